//! Streams, which alone launch kernels and copy memory asynchronously. Memory stays borrowed until that is done.
use super::kernel::{Grid, Kernel, Launch};
use super::memory::{Numbers, context};
use super::mismatch;
use super::slots::Slots;
use gmm_core::error::{Error, Result};
use gmm_driver::{DeviceBuffer, Event, LockedBuffer, Plain};
use std::ptr;

#[derive(Debug)]
pub struct Stream {
    inner: gmm_driver::Stream,
}

impl Stream {
    pub fn new() -> Result<Self> {
        Ok(Self { inner: gmm_driver::Stream::new(&context()?)? })
    }

    /// Waits for all work in the current context's legacy default stream, where other libraries leave work to wait for.
    pub fn wait_for_legacy_default() -> Result<()> {
        Ok(gmm_driver::Stream::synchronize_legacy_default(&context()?)?)
    }

    pub fn inner(&self) -> &gmm_driver::Stream {
        &self.inner
    }

    pub fn synchronize(&self) -> Result<()> {
        Ok(self.inner.synchronize()?)
    }

    /// Starts a kernel after the work in the stream.
    pub fn launch<'s, L: Launch>(
        &'s self,
        kernel: Kernel<L::Argument>,
        grid: Grid,
        launch: L,
    ) -> Result<Running<'s, L>> {
        // SAFETY: the returned guard holds the memory until the work is done.
        unsafe { self.start(kernel, grid, &launch)? };
        Ok(Running { stream: self, held: Some(launch), end: None })
    }

    /// Launches a kernel, as the only place that does.
    ///
    /// # Safety
    /// `launch` lives until the work is done.
    unsafe fn start<L: Launch>(&self, kernel: Kernel<L::Argument>, grid: Grid, launch: &L) -> Result<()> {
        grid.check(&kernel)?;
        let argument = launch.argument(&grid)?;
        let Grid { blocks, threads, shared, cooperative } = grid;
        // SAFETY: the kernel has this one argument; `Launch` vouches for its pointers, the caller for their memory.
        unsafe { self.inner.launch(kernel.function(), blocks, threads, shared, cooperative, &argument)? };
        Ok(())
    }

    /// Returns a guard of no work, to begin a chain of [`Running::followed_by`].
    pub fn idle(&self) -> Running<'_, ()> {
        Running { stream: self, held: None, end: None }
    }

    /// Returns a guard for the caller's next work in this stream: it waits for all of it.
    pub fn unfinished(&self) -> Running<'_, ()> {
        Running { stream: self, held: Some(()), end: None }
    }

    /// Starts to copy page-locked host memory to the device. `places` finds both in `held`, kept until the end.
    pub fn upload<'s, L, T: Plain>(
        &'s self,
        held: L,
        places: impl for<'l> FnOnce(&'l L) -> (&'l LockedBuffer<T>, &'l DeviceBuffer<T>, usize),
    ) -> Result<Running<'s, L>> {
        let (from, to, len) = places(&held);
        if len > from.len() || len > to.len() {
            return Err(mismatch("a copy to the device", vec![len], vec![from.len(), to.len()]));
        }
        // SAFETY: both have at least `len` numbers, held by the guard until the end; page-locked memory does not move.
        unsafe { self.inner.copy_to_device(to.as_device_ptr(), &from[..len])? };
        Ok(Running { stream: self, held: Some(held), end: None })
    }

    /// Copies numbers from the device after the work in the stream, and waits for them.
    pub fn read<'a, T: Plain>(&self, from: impl Into<Numbers<'a, T>>, to: &mut [T]) -> Result<()> {
        let from = from.into().read(to.len(), "numbers on the device")?;
        // SAFETY: both have that many numbers, and the copy is waited for.
        unsafe { self.inner.copy_to_host(to, from)? };
        self.synchronize()
    }

    /// Copies numbers to the device after the work in the stream, and waits for it.
    pub fn write<'a, T: Plain>(&self, to: impl Into<Numbers<'a, T>>, from: &[T]) -> Result<()> {
        self.start_write(to, from)?.wait().map(drop)
    }

    /// Starts to copy numbers to the device after the work in the stream.
    pub fn start_write<'s, 'a: 's, T: Plain>(
        &'s self,
        to: impl Into<Numbers<'a, T>>,
        from: &'s [T],
    ) -> Result<Running<'s, ()>> {
        let to = to.into().write(from.len(), "numbers for the device")?;
        // SAFETY: both have that many numbers, and are borrowed until the copy is done.
        unsafe { self.inner.copy_to_device(to, from)? };
        Ok(self.unfinished())
    }

    /// Starts to fill numbers on the device with zeros, after the work in the stream.
    pub fn clear<'s>(&'s self, numbers: &'s DeviceBuffer<f64>) -> Result<Running<'s, ()>> {
        // SAFETY: the whole memory, borrowed until this is done.
        unsafe { self.inner.zero(numbers.as_device_ptr(), numbers.len())? };
        Ok(self.unfinished())
    }

    /// Returns the seconds, by the device's clock, of the work that `start` puts into the stream.
    pub fn seconds<'s, L>(&'s self, start: impl FnOnce() -> Result<Running<'s, L>>) -> Result<f64> {
        let (before, after) = (Event::timed(self.inner.context())?, Event::timed(self.inner.context())?);
        before.record(&self.inner)?;
        let running = start()?;
        after.record(&self.inner)?;
        running.wait()?;
        Ok(after.seconds_since(&before)?)
    }
}

/// Returns the mean seconds of the work of `start`, over `repeats` times back to back.
pub fn seconds<'s>(
    stream: &'s Stream,
    repeats: u32,
    mut start: impl FnMut() -> Result<Running<'s, ()>>,
) -> Result<f64> {
    let all = stream.seconds(|| {
        let mut running = stream.idle();
        for _ in 0..repeats {
            running = running.followed_by(start()?);
        }
        Ok(running)
    })?;
    Ok(all / f64::from(repeats))
}

/// Checks a kernel's results, which are finite unless it failed.
pub fn finite(results: Vec<f64>) -> Result<Vec<f64>> {
    match results.iter().find(|result| !result.is_finite()) {
        Some(result) => Err(Error::Cuda { op: "cuLaunchKernel", message: format!("the kernel's result is {result}") }),
        None => Ok(results),
    }
}

/// Work in a stream, with the memory that it uses. Dropping the guard waits for the work.
#[must_use = "the work's memory is borrowed until it is waited for"]
#[derive(Debug)]
pub struct Running<'s, L> {
    stream: &'s Stream,
    /// None once the work is done.
    held: Option<L>,
    /// Recorded after the work if later work in the stream need not be waited for.
    end: Option<Event>,
}

impl<'s, L> Running<'s, L> {
    /// Returns the guard for this work and for `next`, started after it: waiting for the later waits for both.
    pub fn followed_by<M>(self, next: Running<'s, M>) -> Running<'s, M>
    where
        L: Copy + 's,
    {
        // This guard only borrows, for as long as the later guard may live. The end of later work in another stream is
        // not the end of this work, so `drop` waits for it here.
        if ptr::eq(self.stream, next.stream) {
            self.release();
        }
        next
    }

    /// Starts to copy numbers back after this work. `places` finds both places in `held`.
    pub fn download<T: Plain>(
        mut self,
        places: impl for<'l> FnOnce(&'l mut L) -> (&'l DeviceBuffer<T>, &'l mut LockedBuffer<T>, usize),
    ) -> Result<Self> {
        let Some(held) = &mut self.held else { return Ok(self) };
        let (from, to, len) = places(held);
        if len > from.len() || len > to.len() {
            return Err(mismatch("a copy from the device", vec![len], vec![from.len(), to.len()]));
        }
        // SAFETY: both have at least `len` numbers, held by the guard until the end; page-locked memory does not move.
        unsafe { self.stream.inner.copy_to_host(&mut to[..len], from.as_device_ptr())? };
        Ok(self)
    }

    /// Makes [`wait`](Self::wait) wait only for the work in the stream now, not for later work.
    pub fn marked(mut self) -> Result<Self> {
        let end = Event::new(self.stream.inner.context())?;
        end.record(&self.stream.inner)?;
        self.end = Some(end);
        Ok(self)
    }

    /// Waits for the work, and returns what the guard held.
    pub fn wait(mut self) -> Result<Option<L>> {
        match &self.end {
            Some(end) => end.synchronize()?,
            None => self.stream.synchronize()?,
        }
        Ok(self.held.take())
    }

    /// Returns the results that the work writes to the first `count` slots. The work must write them last: they can be
    /// read before the driver reports the work as done.
    pub fn results(self, slots: &Slots, count: usize) -> Result<Vec<f64>> {
        finite(self.numbers(slots, count)?)
    }

    /// Returns the numbers as [`results`](Self::results), even if they are not finite.
    pub fn numbers(mut self, slots: &Slots, count: usize) -> Result<Vec<f64>> {
        let results = self.first_numbers(slots, count)?;
        self.held = None;
        Ok(results)
    }

    /// Returns the numbers that this work writes to the first `count` slots before its end.
    pub fn first_numbers(&self, slots: &Slots, count: usize) -> Result<Vec<f64>> {
        (0..count).map(|i| slots.wait(i, &self.stream.inner)).collect()
    }

    /// Returns a guard of the same work that holds nothing: its memory is borrowed for as long as the guard may live.
    pub fn borrowed(mut self) -> Running<'s, ()>
    where
        L: Copy + 's,
    {
        let (stream, end) = (self.stream, self.end.take());
        self.release();
        Running { stream, held: Some(()), end }
    }

    fn release(mut self) {
        self.held = None;
    }
}

impl<L: Launch> Running<'_, L> {
    /// Starts, after this work, the kernel whose argument the guard holds.
    pub fn launch(self, kernel: Kernel<L::Argument>, grid: Grid) -> Result<Self> {
        if let Some(launch) = &self.held {
            // SAFETY: this guard holds the memory until the work is done; `Launch` allows it to move.
            unsafe { self.stream.start(kernel, grid, launch)? };
        }
        Ok(self)
    }
}

impl<L> Drop for Running<'_, L> {
    fn drop(&mut self) {
        if self.held.is_some() {
            // The failure that led here has been reported, or the next call reports it.
            let _ = self.stream.synchronize();
        }
    }
}
