//! Copies of long arrays between ordinary host memory and the device. The driver would copy with one thread; here all
//! threads copy to or from one page-locked buffer while the device copies another.
use super::memory::{Numbers, context, locked};
use super::mismatch;
use super::stream::{Running, Stream};
use gmm_core::error::Result;
use gmm_driver::{Event, LockedBuffer, Plain};
use rayon::prelude::*;
use std::cell::{OnceCell, RefCell};

/// Bytes of a buffer, so many that waking the threads for it costs little. 200 MB each way, with 16 cores beside an
/// H200: buffers of 1 MB 44 ms, 4 MB 23, 16 MB 13, 32 MB 12; the driver alone 58.
pub const BUFFER_BYTES: usize = 16 << 20;
/// The driver copies shorter arrays: the threads would wake too late.
const LEAST_BYTES: usize = 1 << 20;
/// Bytes that a thread copies at a time.
const BYTES_AT_A_TIME: usize = 1 << 18;

/// Two page-locked buffers, allocated for the first long array.
#[derive(Debug)]
pub struct Staging<T: Plain> {
    len: usize,
    /// None if the system has no page-locked memory.
    buffers: OnceCell<Option<[RefCell<Buffer<T>>; 2]>>,
}

#[derive(Debug)]
struct Buffer<T: Plain> {
    host: LockedBuffer<T>,
    /// The end of the device's copy.
    copied: Event,
}

impl<T: Plain> Buffer<T> {
    fn new(len: usize) -> Result<Self> {
        Ok(Self { host: locked(len)?, copied: Event::new(&context()?)? })
    }

    /// Makes `write` fill the buffer for the place, and starts to copy the numbers there.
    ///
    /// # Safety
    /// The buffer is freed only after the work in the stream has been waited for.
    unsafe fn send(&mut self, stream: &Stream, place: Numbers<'_, T>, write: impl FnOnce(&mut [T])) -> Result<()> {
        self.wait()?;
        let len = place.len();
        write(&mut self.host[..len]);
        let to = place.write(len, "the place of a buffer")?;
        // SAFETY: both are equally long. The caller keeps the buffer alive; it is rewritten only after the event.
        unsafe { stream.inner().copy_to_device(to, &self.host[..len])? };
        Ok(self.copied.record(stream.inner())?)
    }

    fn wait(&self) -> Result<()> {
        Ok(self.copied.synchronize()?)
    }
}

impl<T: Plain + Copy + Default> Staging<T> {
    pub fn new(len: usize) -> Self {
        Self { len: len.max(1), buffers: OnceCell::new() }
    }

    /// Returns the buffers, if an array of this many elements is to pass through them.
    fn buffers(&self, len: usize) -> Option<&[RefCell<Buffer<T>>; 2]> {
        if len * size_of::<T>() < LEAST_BYTES {
            return None;
        }
        self.pair()
    }

    /// Returns the buffers, if the system has page-locked memory for them.
    fn pair(&self) -> Option<&[RefCell<Buffer<T>>; 2]> {
        let buffer = || Buffer::new(self.len).ok().map(RefCell::new);
        self.buffers.get_or_init(|| Some([buffer()?, buffer()?])).as_ref()
    }

    /// Starts to copy `from` to the device after the work in the stream. The last buffers may be in use on return.
    pub fn upload<'s>(
        &'s self,
        stream: &'s Stream,
        to: impl Into<Numbers<'s, T>>,
        from: &'s [T],
    ) -> Result<Running<'s, ()>> {
        let to = to.into();
        let Some(buffers) = self.buffers(from.len()) else { return stream.start_write(to, from) };
        let (to, running) = (to.part(0..from.len())?, stream.unfinished());
        for (i, numbers) in from.chunks(self.len).enumerate() {
            let place = to.part(i * self.len..i * self.len + numbers.len())?;
            // SAFETY: `running` waits for the work, and borrows `self`.
            unsafe { buffers[i % 2].borrow_mut().send(stream, place, |host| copy(numbers, host))? };
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
        let buffers = self.pair();
        let running = stream.unfinished();
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
            let mut write_all = |numbers: &mut [T]| {
                let parts = parts(numbers, lengths).into_par_iter().enumerate();
                results.par_extend(parts.map(|(i, part)| write(first + i, part)));
            };
            let place = to.part(start..start + len)?;
            match buffers {
                // SAFETY: as in `upload`.
                Some(buffers) => unsafe { buffers[turn % 2].borrow_mut().send(stream, place, write_all)? },
                None => {
                    let mut numbers = vec![T::default(); len];
                    write_all(&mut numbers);
                    stream.write(place, &numbers)?;
                }
            }
            (start, turn) = (start + len, turn + 1);
        }
        Ok((running, results))
    }

    /// Copies numbers from the device after the work in the stream, and waits for them.
    pub fn download<'a>(&self, stream: &Stream, from: impl Into<Numbers<'a, T>>, to: &mut [T]) -> Result<()> {
        let from = from.into();
        let Some(buffers) = self.buffers(to.len()) else { return stream.read(from, to) };
        let from = from.part(0..to.len())?;
        // If this ends early, dropping it waits for the device's copies.
        let running = stream.unfinished();
        let start = |i: usize| -> Result<()> {
            let first = i * self.len;
            if first >= from.len() {
                return Ok(());
            }
            let len = self.len.min(from.len() - first);
            let buffer = &mut *buffers[i % 2].borrow_mut();
            buffer.wait()?;
            let place = from.read_part(first..first + len)?;
            // SAFETY: both are equally long. The buffer is read after the event, and this function waits for the copy.
            unsafe { stream.inner().copy_to_host(&mut buffer.host[..len], place)? };
            Ok(buffer.copied.record(stream.inner())?)
        };
        start(0)?;
        for (i, numbers) in to.chunks_mut(self.len).enumerate() {
            start(i + 1)?;
            let buffer = buffers[i % 2].borrow();
            buffer.wait()?;
            copy(&buffer.host[..numbers.len()], numbers);
        }
        running.wait().map(drop)
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
