//! Device memory, and host memory that a device can reach.
use crate::context::Context;
use crate::error::Result;
use crate::functions::{Address, Code, Functions, OUT_OF_MEMORY};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

/// A number type for which any bits, also all zeros, are a value without pointers.
pub trait Plain: sealed::Plain + Send + Sync + 'static {}

impl<T: sealed::Plain + Send + Sync + 'static> Plain for T {}

mod sealed {
    pub trait Plain {}
}

macro_rules! plain {
    ($($type:ty),*) => { $(impl sealed::Plain for $type {})* };
}

plain!(u8, u32, u64, i32, f32, f64, AtomicU64);

fn bytes_of<T>(context: &Context, call: &'static str, len: usize) -> Result<usize> {
    len.checked_mul(size_of::<T>()).ok_or_else(|| context.error(call, OUT_OF_MEMORY))
}

/// Numbers in a device's memory.
#[derive(Debug)]
pub struct DeviceBuffer<T: Plain> {
    context: Context,
    /// Zero for an empty buffer.
    start: Address,
    len: usize,
    numbers: PhantomData<T>,
}

impl<T: Plain> DeviceBuffer<T> {
    /// Allocates `len` numbers, with any bits. The context must be the thread's.
    pub fn new(context: &Context, len: usize) -> Result<Self> {
        let bytes = bytes_of::<T>(context, "cuMemAlloc", len)?;
        let mut start = 0;
        if bytes > 0 {
            // SAFETY: a place for the address.
            context.call("cuMemAlloc", unsafe { (context.functions().cuMemAlloc_v2)(&mut start, bytes) })?;
        }
        Ok(Self { context: context.clone(), start, len, numbers: PhantomData })
    }

    /// Allocates `len` zeros, which are written before later work in any [`Stream`](crate::Stream).
    pub fn zeroed(context: &Context, len: usize) -> Result<Self> {
        // SAFETY: the whole of the buffer.
        Self::filled(context, len, "cuMemsetD8", |functions, to, bytes| unsafe {
            (functions.cuMemsetD8_v2)(to, 0, bytes)
        })
    }

    /// Copies the host's numbers to the device, before later work in any [`Stream`](crate::Stream).
    pub fn from_slice(context: &Context, numbers: &[T]) -> Result<Self> {
        // SAFETY: both have so many bytes.
        Self::filled(context, numbers.len(), "cuMemcpyHtoD", |functions, to, bytes| unsafe {
            (functions.cuMemcpyHtoD_v2)(to, numbers.as_ptr().cast(), bytes)
        })
    }

    fn filled(
        context: &Context,
        len: usize,
        call: &'static str,
        fill: impl FnOnce(&Functions, Address, usize) -> Code,
    ) -> Result<Self> {
        let buffer = Self::new(context, len)?;
        if len > 0 {
            context.call(call, fill(context.functions(), buffer.start, len * size_of::<T>()))?;
        }
        Ok(buffer)
    }

    /// Returns the number of numbers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of the first number on the device, null if empty. The host cannot read through it.
    #[must_use]
    pub fn as_device_ptr(&self) -> *mut T {
        ptr::with_exposed_provenance_mut(self.start as usize)
    }
}

impl<T: Plain> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        if self.start != 0 {
            // SAFETY: allocated in `new`. The driver waits for the work that uses it.
            self.context.release("cuMemFree", |functions| unsafe { (functions.cuMemFree_v2)(self.start) });
        }
    }
}

/// Numbers in page-locked memory of the host, which a device copies at full speed, and which kernels can reach at
/// [`as_device_ptr`](Self::as_device_ptr).
#[derive(Debug)]
pub struct LockedBuffer<T: Plain> {
    context: Context,
    start: NonNull<T>,
    len: usize,
}

// SAFETY: the memory is owned, and any thread may free it.
unsafe impl<T: Plain> Send for LockedBuffer<T> {}
// SAFETY: a shared borrow gives shared borrows of the numbers, which are `Sync`.
unsafe impl<T: Plain> Sync for LockedBuffer<T> {}

impl<T: Plain> LockedBuffer<T> {
    /// Allocates `len` zeros. The context must be the thread's.
    pub fn new(context: &Context, len: usize) -> Result<Self> {
        let bytes = bytes_of::<T>(context, "cuMemAllocHost", len)?;
        let mut start = NonNull::dangling();
        if bytes > 0 {
            let mut place = ptr::null_mut();
            // SAFETY: a place for the address.
            let code = unsafe { (context.functions().cuMemAllocHost_v2)(&mut place, bytes) };
            context.call("cuMemAllocHost", code)?;
            start = NonNull::new(place.cast()).ok_or_else(|| context.error("cuMemAllocHost", OUT_OF_MEMORY))?;
            // SAFETY: the allocation has room for so many numbers; zeros are numbers.
            unsafe { start.write_bytes(0, len) };
        }
        Ok(Self { context: context.clone(), start, len })
    }

    /// Returns the address of the first number for kernels. Fails for an empty buffer.
    pub fn as_device_ptr(&self) -> Result<*mut T> {
        let (mut address, host) = (0, self.start.as_ptr().cast());
        // SAFETY: a place for the address, and memory that the driver allocated in `new`.
        let code = unsafe { (self.context.functions().cuMemHostGetDevicePointer_v2)(&mut address, host, 0) };
        self.context.call("cuMemHostGetDevicePointer", code)?;
        Ok(ptr::with_exposed_provenance_mut(address as usize))
    }
}

impl LockedBuffer<u8> {
    /// Returns the bytes as numbers of another type.
    #[must_use]
    pub fn numbers<T: Plain + Copy>(&self) -> &[T] {
        // SAFETY: any bits are a number, which cannot change through a shared borrow.
        unsafe { self.align_to().1 }
    }

    /// Returns the bytes as numbers of another type, to be written.
    pub fn numbers_mut<T: Plain + Copy>(&mut self) -> &mut [T] {
        // SAFETY: any bits are a number, and any number is bytes.
        unsafe { self.align_to_mut().1 }
    }
}

impl<T: Plain> Deref for LockedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: so many numbers, written in `new`. A caller that lets a device write them borrows the buffer
        // exclusively, or uses atomic numbers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for LockedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the buffer is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> Drop for LockedBuffer<T> {
    fn drop(&mut self) {
        if self.len > 0 {
            let start = self.start.as_ptr().cast();
            // SAFETY: allocated in `new`.
            self.context.release("cuMemFreeHost", |functions| unsafe { (functions.cuMemFreeHost)(start) });
        }
    }
}
