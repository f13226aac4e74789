//! Copies of long arrays between ordinary host memory and the device. The driver would copy with one thread; here all
//! threads copy to or from one page-locked buffer while the device copies another.
use super::buffer::{Buffer, for_each, total};
use super::gpu::{Gpu, lock};
use super::memory::Numbers;
use super::mismatch;
use super::stream::{Running, Stream};
use gmm_core::error::Result;
use gmm_driver::Plain;
use rayon::prelude::*;
use std::cell::{OnceCell, RefCell};
use std::marker::PhantomData;

/// Bytes of a buffer, so many that waking the threads for it costs little. 200 MB each way, with 16 cores beside an
/// H200: buffers of 1 MB 44 ms, 4 MB 23, 16 MB 13, 32 MB 12; the driver alone 58.
pub const BUFFER_BYTES: usize = 16 << 20;
/// The driver copies shorter arrays: the threads would wake too late.
const LEAST_BYTES: usize = 1 << 20;
/// Bytes that a thread copies at a time.
const BYTES_AT_A_TIME: usize = 1 << 18;

/// Two page-locked buffers, taken from the device's spare ones or allocated for the first long array. They are the
/// device's spare ones afterwards, because the system takes 0.4 ms to lock a megabyte (beside an H200).
#[derive(Debug)]
pub struct Staging<T: Plain> {
    gpu: &'static Gpu,
    len: usize,
    /// None if the system has no page-locked memory.
    buffers: OnceCell<Option<[RefCell<Buffer>; 2]>>,
    numbers: PhantomData<T>,
}

impl<T: Plain + Copy + Default> Staging<T> {
    /// Returns buffers of `len` numbers, or more.
    pub fn new(gpu: &'static Gpu, len: usize) -> Self {
        Self { gpu, len: len.max(1), buffers: OnceCell::new(), numbers: PhantomData }
    }

    /// Returns the buffers, if the system has page-locked memory for them.
    fn pair(&self) -> Option<&[RefCell<Buffer>; 2]> {
        let bytes = self.len * size_of::<T>();
        let bytes = if bytes < BUFFER_BYTES { bytes.next_power_of_two() } else { bytes };
        let spare = || lock(&self.gpu.spare_buffers).take_if(|pair| pair[0].bytes() >= bytes);
        let new = || Some([Buffer::new(bytes).ok()?, Buffer::new(bytes).ok()?]);
        self.buffers.get_or_init(|| spare().or_else(new).map(|pair| pair.map(RefCell::new))).as_ref()
    }

    /// Makes `write` fill the first or second buffer, by the parity of `turn`, and starts to copy its numbers to the
    /// places, one after the other, after the work in the stream. The buffer may be in use on return.
    pub fn send<'s>(
        &'s self,
        stream: &'s Stream,
        turn: usize,
        places: &[Numbers<'s, T>],
        write: impl FnOnce(&mut [T]),
    ) -> Result<Running<'s, ()>> {
        let len = total(places);
        if len > self.len {
            return Err(mismatch("numbers for a buffer", vec![self.len], vec![len]));
        }
        let running = stream.unfinished();
        match self.pair() {
            // SAFETY: `running` waits for the work, and borrows `self`.
            Some(buffers) => unsafe { buffers[turn % 2].borrow_mut().send(stream, places, write)? },
            None => {
                let mut numbers = vec![T::default(); len];
                write(&mut numbers);
                for_each(places, |place, range| stream.write(place, &numbers[range]))?;
            }
        }
        Ok(running)
    }

    /// Starts to copy `from` to the device after the work in the stream. The last buffers may be in use on return.
    pub fn upload<'s>(
        &'s self,
        stream: &'s Stream,
        to: impl Into<Numbers<'s, T>>,
        from: &'s [T],
    ) -> Result<Running<'s, ()>> {
        let to = to.into();
        if size_of_val(from) < LEAST_BYTES || self.pair().is_none() {
            return stream.start_write(to, from);
        }
        let (to, mut running) = (to.part(0..from.len())?, stream.unfinished());
        for (turn, numbers) in from.chunks(self.len).enumerate() {
            let place = to.part(turn * self.len..turn * self.len + numbers.len())?;
            running = running.followed_by(self.send(stream, turn, &[place], |host| copy(numbers, host))?);
        }
        Ok(running)
    }

    /// Copies as [`upload`](Self::upload) parts of these lengths, consecutive on the device. `write` writes a part,
    /// which must fit into a buffer; its results are returned for each part.
    pub fn upload_parts<'s, R: Send>(
        &'s self,
        stream: &'s Stream,
        to: impl Into<Numbers<'s, T>>,
        lengths: &[usize],
        write: impl Fn(usize, &mut [T]) -> R + Sync,
    ) -> Result<(Running<'s, ()>, Vec<R>)> {
        let to = to.into();
        let all: usize = lengths.iter().sum();
        let most = lengths.iter().copied().max().unwrap_or(0);
        if all > to.len() || most > self.len {
            return Err(mismatch("parts for the device", vec![to.len(), self.len], vec![all, most]));
        }
        let mut running = stream.unfinished();
        let mut results = Vec::with_capacity(lengths.len());
        let (mut start, mut turn) = (0, 0);
        while results.len() < lengths.len() {
            let first = results.len();
            let mut len = 0;
            let fits = lengths[first..].iter().take_while(|length| {
                len += **length;
                len <= self.len
            });
            let count = fits.count();
            let lengths = &lengths[first..first + count];
            let len: usize = lengths.iter().sum();
            let write_all = |numbers: &mut [T]| {
                let parts = parts(numbers, lengths).into_par_iter().enumerate();
                results.par_extend(parts.map(|(i, part)| write(first + i, part)));
            };
            running = running.followed_by(self.send(stream, turn, &[to.part(start..start + len)?], write_all)?);
            (start, turn) = (start + len, turn + 1);
        }
        Ok((running, results))
    }

    /// Copies at most a buffer of numbers from the device after the work in the stream, and calls `read` with them.
    pub fn read(&self, stream: &Stream, from: Numbers<'_, T>, read: impl FnOnce(&[T])) -> Result<()> {
        let len = from.len();
        if len > self.len {
            return Err(mismatch("numbers of a buffer", vec![self.len], vec![len]));
        }
        let Some([buffer, _]) = self.pair() else {
            let mut numbers = vec![T::default(); len];
            stream.read(from, &mut numbers)?;
            read(&numbers);
            return Ok(());
        };
        // SAFETY: the copy is waited for.
        unsafe { buffer.borrow_mut().fetch(stream, from)? };
        let buffer = buffer.borrow();
        buffer.wait()?;
        read(&buffer.host.numbers()[..len]);
        Ok(())
    }

    /// Copies numbers from the device after the work in the stream, and waits for them.
    pub fn download<'a>(&self, stream: &Stream, from: impl Into<Numbers<'a, T>>, to: &mut [T]) -> Result<()> {
        let from = from.into();
        let buffers = if size_of_val(to) < LEAST_BYTES { None } else { self.pair() };
        let Some(buffers) = buffers else { return stream.read(from, to) };
        let from = from.part(0..to.len())?;
        // If this ends early, dropping it waits for the device's copies.
        let running = stream.unfinished();
        let start = |i: usize| -> Result<()> {
            let (first, end) = (i * self.len, from.len().min((i + 1) * self.len));
            if first >= end {
                return Ok(());
            }
            // SAFETY: this function waits for the copy.
            unsafe { buffers[i % 2].borrow_mut().fetch(stream, from.part(first..end)?) }
        };
        start(0)?;
        for (i, numbers) in to.chunks_mut(self.len).enumerate() {
            start(i + 1)?;
            let buffer = buffers[i % 2].borrow();
            buffer.wait()?;
            copy(&buffer.host.numbers()[..numbers.len()], numbers);
        }
        running.wait().map(drop)
    }
}

impl<T: Plain> Drop for Staging<T> {
    fn drop(&mut self) {
        let Some(Some(pair)) = self.buffers.take() else { return };
        let pair = pair.map(RefCell::into_inner);
        // Those of very many columns are too large to be kept.
        if pair.iter().all(|buffer| buffer.bytes() <= BUFFER_BYTES && buffer.wait().is_ok()) {
            let mut spare = lock(&self.gpu.spare_buffers);
            if spare.as_ref().is_none_or(|spare| spare[0].bytes() < pair[0].bytes()) {
                *spare = Some(pair);
            }
        }
    }
}

fn parts<'n, T>(mut numbers: &'n mut [T], lengths: &[usize]) -> Vec<&'n mut [T]> {
    let mut parts = Vec::with_capacity(lengths.len());
    for length in lengths {
        let (part, rest) = numbers.split_at_mut(*length);
        parts.push(part);
        numbers = rest;
    }
    parts
}

fn copy<T: Copy + Send + Sync>(from: &[T], to: &mut [T]) {
    let size = (BYTES_AT_A_TIME / size_of::<T>()).max(1);
    to.par_chunks_mut(size).zip(from.par_chunks(size)).for_each(|(to, from)| to.copy_from_slice(from));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::cuda_devices;
    use crate::device::memory::allocate;

    /// The buffers of a long copy serve the next one, of any type, and give way to larger ones.
    #[test]
    fn page_locked_buffers_are_kept_for_the_next_copy() {
        let gpu: &'static Gpu = Box::leak(Box::new(Gpu::new(cuda_devices().unwrap().remove(0)).unwrap()));
        let _entered = gpu.enter().unwrap();
        let spare = || lock(&gpu.spare_buffers).as_ref().map(|[first, _]| first.bytes());
        let (stream, memory) = (Stream::new().unwrap(), allocate::<f32>(9).unwrap());
        let place = |range| Numbers::of(&memory).part(range).unwrap();
        assert_eq!(spare(), None);
        {
            let staging = Staging::new(gpu, 5);
            // Two buffers in turn; the numbers of one go to two places.
            let first = staging.send(&stream, 0, &[place(7..9), place(0..3)], |to| to.copy_from_slice(&[1.0; 5]));
            let second = staging.send(&stream, 1, &[place(3..7)], |to| to.copy_from_slice(&[2.0, 3.0, 4.0, 5.0]));
            first.unwrap().followed_by(second.unwrap()).wait().unwrap();
            assert!(staging.send(&stream, 0, &[place(0..6)], |_| ()).is_err());
        }
        let mut numbers = [0.0; 9];
        stream.read(&memory, &mut numbers).unwrap();
        assert_eq!(numbers, [1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 1.0]);
        assert_eq!(spare(), Some(32));
        let doubles = allocate::<f64>(4).unwrap();
        for (len, kept) in [(4, 32), (9, 128), (2, 128), (BUFFER_BYTES / 8 + 1, 128)] {
            let staging = Staging::new(gpu, len);
            let two = [Numbers::of(&doubles).part(0..2).unwrap()];
            staging.send(&stream, 0, &two, |to| to.fill(len as f64)).unwrap().wait().unwrap();
            let too_small = match len {
                9 => Some(32),
                2 | 4 => None,
                _ => Some(128),
            };
            assert_eq!(spare(), too_small, "{len}");
            drop(staging);
            assert_eq!(spare(), Some(kept), "{len}");
            let mut numbers = [0.0; 2];
            stream.read(&doubles, &mut numbers).unwrap();
            assert_eq!(numbers, [len as f64; 2]);
        }
    }
}
