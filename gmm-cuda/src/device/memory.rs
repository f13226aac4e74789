//! Device memory and page-locked host memory.
use super::driver::driver;
use super::{mismatch, require_len};
use gmm_core::error::Result;
use gmm_driver::{Context, DeviceBuffer, LockedBuffer, Plain};
use std::any::TypeId;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr;

/// Returns the context that the calling thread is in.
pub fn context() -> Result<Context> {
    Ok(Context::current(driver()?)?)
}

/// Returns device memory for `len` uninitialised numbers.
pub fn allocate<T: Plain>(len: usize) -> Result<DeviceBuffer<T>> {
    Ok(DeviceBuffer::new(&context()?, len)?)
}

/// Returns device memory for `len` numbers, zero.
pub fn zeroed<T: Plain>(len: usize) -> Result<DeviceBuffer<T>> {
    Ok(DeviceBuffer::zeroed(&context()?, len)?)
}

/// Returns a copy of the numbers on the device.
pub fn copied<T: Plain>(numbers: &[T]) -> Result<DeviceBuffer<T>> {
    Ok(DeviceBuffer::from_slice(&context()?, numbers)?)
}

/// Returns page-locked host memory for `len` numbers, zero.
pub fn locked<T: Plain>(len: usize) -> Result<LockedBuffer<T>> {
    Ok(LockedBuffer::new(&context()?, len)?)
}

/// Some numbers on the device, borrowed from their buffer. Kernels may write to them through a shared borrow, because a
/// stream's work runs in order, and the host reads them only by a copy in that stream.
#[derive(Debug)]
pub struct Numbers<'a, T> {
    pointer: *mut T,
    len: usize,
    owner: PhantomData<&'a T>,
}

impl<T> Clone for Numbers<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Numbers<'_, T> {}

impl<'a, T: Plain> From<&'a DeviceBuffer<T>> for Numbers<'a, T> {
    fn from(buffer: &'a DeviceBuffer<T>) -> Self {
        Self { pointer: buffer.as_device_ptr(), len: buffer.len(), owner: PhantomData }
    }
}

impl<'a, T: Plain> Numbers<'a, T> {
    /// Returns all numbers of a buffer.
    pub(crate) fn of(buffer: &'a DeviceBuffer<T>) -> Self {
        buffer.into()
    }

    /// Returns the numbers of a range.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`](gmm_core::error::Error::ShapeMismatch) if it exceeds these numbers.
    pub fn part(self, range: Range<usize>) -> Result<Self> {
        if range.start > range.end || range.end > self.len {
            return Err(mismatch("a part of the numbers on the device", vec![self.len], vec![range.start, range.end]));
        }
        Ok(Self { pointer: self.pointer.wrapping_add(range.start), len: range.end - range.start, ..self })
    }

    /// Returns the first `len` numbers, or all if there are fewer.
    pub(super) fn first(self, len: usize) -> Self {
        Self { len: len.min(self.len), ..self }
    }

    /// Returns the same numbers, if they are of type `U`.
    pub fn cast<U: 'static>(self) -> Option<Numbers<'a, U>>
    where
        T: 'static,
    {
        let same = TypeId::of::<T>() == TypeId::of::<U>();
        same.then(|| Numbers { pointer: self.pointer.cast(), len: self.len, owner: PhantomData })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the device address of `len` numbers to read; `what` names the requester.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`](gmm_core::error::Error::ShapeMismatch) if there are fewer.
    pub fn read(self, len: usize, what: &'static str) -> Result<*const T> {
        self.write(len, what).map(<*mut T>::cast_const)
    }

    /// Returns the address as [`read`](Self::read), with the same errors, to write to.
    pub fn write(self, len: usize, what: &'static str) -> Result<*mut T> {
        require_len(what, len, self.len).map(|()| self.pointer)
    }

    /// Returns the device address of a range to read, with the errors of [`part`](Self::part).
    pub fn read_part(self, range: Range<usize>) -> Result<*const T> {
        self.write_part(range).map(<*mut T>::cast_const)
    }

    /// Returns the device address of a range to write to, with the errors of [`part`](Self::part).
    pub fn write_part(self, range: Range<usize>) -> Result<*mut T> {
        self.part(range).map(|part| part.pointer)
    }

    /// Returns the address as [`read`](Self::read), with the same errors, or null for `None`.
    pub fn read_if(numbers: Option<Self>, len: usize, what: &'static str) -> Result<*const T> {
        Self::write_if(numbers, len, what).map(<*mut T>::cast_const)
    }

    /// Returns the address as [`write`](Self::write), with the same errors, or null for `None`.
    pub fn write_if(numbers: Option<Self>, len: usize, what: &'static str) -> Result<*mut T> {
        numbers.map_or(Ok(ptr::null_mut()), |numbers| numbers.write(len, what))
    }
}

/// Returns the ranges of consecutive sections of these lengths.
pub(crate) fn sections<const N: usize>(lengths: [usize; N]) -> [Range<usize>; N] {
    let mut end = 0;
    lengths.map(|len| {
        end += len;
        end - len..end
    })
}

/// Replaces a buffer of fewer than `len` numbers by one of `len`. The caller ensures that no work uses the buffer.
pub fn enlarge<T: Plain>(buffer: &mut DeviceBuffer<T>, len: usize) -> Result<()> {
    if buffer.len() < len {
        // The old one first, so that both need not fit.
        *buffer = allocate(0)?;
        *buffer = allocate(len)?;
    }
    Ok(())
}

/// As [`enlarge`]; the larger buffer holds zeros.
pub fn enlarge_with_zeros<T: Plain>(buffer: &mut DeviceBuffer<T>, len: usize) -> Result<()> {
    if buffer.len() < len {
        *buffer = allocate(0)?;
        *buffer = zeroed(len)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::kernel::{Grid, Launch};
    use crate::device::launch::launch;
    use gmm_core::error::Error;

    struct Copying<'a> {
        from: Numbers<'a, f32>,
        count: usize,
    }

    launch!(Copying<'_>, *const f32, "copying", |launch, grid, what| {
        grid.require_shared(what, 8)?;
        launch.from.read(launch.count, what)
    });

    #[test]
    fn a_launch_has_the_memory_and_the_grid_that_it_asks_for() {
        let from = Numbers { pointer: ptr::null_mut(), len: 5, owner: PhantomData };
        let refused = |count, shared| Copying { from, count }.argument(&Grid::new(1, 32, shared)).err();
        assert!(refused(5, 8).is_none());
        for (count, shared, needed, had) in [(6, 8, 6, 5), (5, 7, 8, 7)] {
            let Some(Error::ShapeMismatch { what, expected, got }) = refused(count, shared) else {
                panic!("{count} numbers and {shared} bytes are taken");
            };
            assert_eq!((what, expected, got), ("a launch of `copying`", vec![needed], vec![had]));
        }
        assert!(from.read_part(0..5).is_ok() && from.write_part(4..6).is_err());
        assert!(Numbers::read_if(None::<Numbers<'_, f32>>, 6, "nothing").unwrap().is_null());
        assert!(Numbers::write_if(Some(from), 6, "numbers").is_err());
    }
}
