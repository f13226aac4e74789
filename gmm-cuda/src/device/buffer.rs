//! Page-locked memory through which long arrays pass.
use super::memory::{Numbers, context, locked};
use super::stream::Stream;
use gmm_core::error::Result;
use gmm_driver::{Event, LockedBuffer, Plain};
use std::ops::Range;

/// Page-locked memory, and the end of the device's copies from or to it.
#[derive(Debug)]
pub struct Buffer {
    pub(super) host: LockedBuffer<u8>,
    copied: Event,
}

impl Buffer {
    pub fn new(bytes: usize) -> Result<Self> {
        Ok(Self { host: locked(bytes)?, copied: Event::new(&context()?)? })
    }

    /// Makes `write` fill the buffer for the places, and starts to copy the numbers there, one place after the other.
    ///
    /// # Safety
    /// The buffer is freed only after the work in the stream has been waited for.
    pub unsafe fn send<T: Plain + Copy>(
        &mut self,
        stream: &Stream,
        places: &[Numbers<'_, T>],
        write: impl FnOnce(&mut [T]),
    ) -> Result<()> {
        self.wait()?;
        let host = &mut self.host.numbers_mut()[..total(places)];
        write(host);
        // SAFETY: both are equally long. The caller keeps the buffer alive; it is rewritten only after the event.
        let copy = |to, range| unsafe { stream.inner().copy_to_device(to, &host[range]) };
        let started = for_each(places, |place, range| Ok(copy(place.write(range.len(), WHAT)?, range)?));
        self.copied.record(stream.inner())?;
        started
    }

    /// Starts to copy numbers from the device to the buffer.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    pub unsafe fn fetch<T: Plain + Copy>(&mut self, stream: &Stream, from: Numbers<'_, T>) -> Result<()> {
        self.wait()?;
        let host = &mut self.host.numbers_mut()[..from.len()];
        // SAFETY: both are equally long. The caller keeps the buffer alive; it is read only after the event.
        unsafe { stream.inner().copy_to_host(host, from.read(host.len(), WHAT)?)? };
        Ok(self.copied.record(stream.inner())?)
    }

    /// Waits for the device's copies.
    pub fn wait(&self) -> Result<()> {
        Ok(self.copied.synchronize()?)
    }

    pub fn bytes(&self) -> usize {
        self.host.len()
    }
}

const WHAT: &str = "a copy through a buffer";

pub fn total<T: Plain>(places: &[Numbers<'_, T>]) -> usize {
    places.iter().map(Numbers::len).sum()
}

/// Calls `f` with each place and the range of a buffer that belongs to it.
pub fn for_each<T: Plain>(
    places: &[Numbers<'_, T>],
    mut f: impl FnMut(Numbers<'_, T>, Range<usize>) -> Result<()>,
) -> Result<()> {
    let mut end = 0;
    places.iter().try_for_each(|place| {
        let start = end;
        end += place.len();
        f(*place, start..end)
    })
}
