//! Streams: the one place where kernels are launched and memory is copied asynchronously. What a
//! launch reads and writes stays borrowed until the launch or copy is done.
use super::error::{check, failed};
use super::kernel::{Grid, Kernel, Launch};
use super::mismatch;
use super::slots::Slots;
use crate::error::{Error, Result};
use cust::event::{Event, EventFlags};
use cust::memory::{AsyncCopyDestination, DeviceCopy, DeviceSlice, LockedBuffer};
use cust::stream::{Stream as Inner, StreamFlags};
use cust::sys;
use std::ffi::c_void;
use std::ptr;

/// A queue of work for the device.
#[derive(Debug)]
pub struct Stream {
    inner: Inner,
}

impl Stream {
    pub fn new() -> Result<Self> {
        // `cust` ignores the flag and makes a stream that waits for the default stream; that is
        // harmless, as nothing uses the default stream.
        Ok(Self { inner: Inner::new(StreamFlags::NON_BLOCKING, None).map_err(failed("cuStreamCreate"))? })
    }

    /// Waits for all work in the legacy default stream of the present context, in which other
    /// libraries leave what this one is to wait for.
    pub fn wait_for_legacy_default() -> Result<()> {
        // CU_STREAM_LEGACY.
        let legacy = ptr::without_provenance_mut(1);
        // SAFETY: a handle that stands for a stream of every context.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(legacy) })
    }

    pub fn inner(&self) -> &Inner {
        &self.inner
    }

    /// Waits for all work in the stream.
    pub fn synchronize(&self) -> Result<()> {
        self.inner.synchronize().map_err(failed("cuStreamSynchronize"))
    }

    /// Starts a kernel behind the work that is in the stream.
    pub fn launch<'s, L: Launch>(
        &'s self,
        kernel: Kernel<L::Argument>,
        grid: Grid,
        launch: L,
    ) -> Result<Running<'s, L>> {
        // SAFETY: the guard that is returned holds the memory until the work is done.
        unsafe { self.start(kernel, grid, &launch)? };
        Ok(Running { stream: self, held: Some(launch), end: None })
    }

    /// The one place that launches kernels.
    ///
    /// # Safety
    /// `launch` lives until the work is done.
    unsafe fn start<L: Launch>(&self, kernel: Kernel<L::Argument>, grid: Grid, launch: &L) -> Result<()> {
        grid.check(&kernel)?;
        let argument = launch.argument(&grid)?;
        let mut pointers: [*mut c_void; 1] = [ptr::from_ref(&argument).cast_mut().cast()];
        let (function, (x, y)) = (kernel.function().to_raw(), grid.blocks);
        let (threads, shared, stream) = (grid.threads, grid.shared as u32, self.inner.as_inner());
        let pointers = pointers.as_mut_ptr();
        // SAFETY: the kernel's type says that this is its one argument; `Launch` vouches for the
        // pointers in it, and the caller for the life of their memory. The driver reads the
        // argument before it returns.
        let (op, result) = unsafe {
            if grid.cooperative {
                let result = sys::cuLaunchCooperativeKernel(function, x, y, 1, threads, 1, 1, shared, stream, pointers);
                ("cuLaunchCooperativeKernel", result)
            } else {
                let none = ptr::null_mut();
                let result = sys::cuLaunchKernel(function, x, y, 1, threads, 1, 1, shared, stream, pointers, none);
                ("cuLaunchKernel", result)
            }
        };
        check(op, result)
    }

    /// A guard of no work, to begin a chain of [`Running::followed_by`] with.
    pub fn idle(&self) -> Running<'_, ()> {
        Running { stream: self, held: None, end: None }
    }

    /// A guard for work that the caller is about to put into this stream: it waits for all of it.
    pub fn unfinished(&self) -> Running<'_, ()> {
        Running { stream: self, held: Some(()), end: None }
    }

    /// Starts to copy page-locked host memory to the device. `places` finds both in what is held
    /// until the copy is done.
    pub fn upload<'s, L, T: DeviceCopy>(
        &'s self,
        held: L,
        places: impl for<'l> FnOnce(&'l L) -> (&'l LockedBuffer<T>, &'l DeviceSlice<T>, usize),
    ) -> Result<Running<'s, L>> {
        let (from, to, len) = places(&held);
        if len > from.len() || len > to.len() {
            return Err(mismatch("a copy to the device", vec![len], vec![from.len(), to.len()]));
        }
        // SAFETY: both have at least `len` numbers; the guard holds them until the copy is done,
        // and page-locked memory stays where it is when its owner moves.
        unsafe { to.index(..len).async_copy_from(&from[..len], &self.inner) }.map_err(failed("cuMemcpyHtoDAsync"))?;
        Ok(Running { stream: self, held: Some(held), end: None })
    }

    /// Copies numbers from the device behind the work in the stream, and waits for them.
    pub fn read<T: DeviceCopy + Default>(&self, from: &DeviceSlice<T>, to: &mut [T]) -> Result<()> {
        if to.len() > from.len() {
            return Err(mismatch("numbers on the device", vec![to.len()], vec![from.len()]));
        }
        // SAFETY: both have that many numbers, and the copy is waited for.
        unsafe { from.index(..to.len()).async_copy_to(to, &self.inner) }.map_err(failed("cuMemcpyDtoHAsync"))?;
        self.synchronize()
    }

    /// Copies numbers to the device behind the work in the stream, and waits for it.
    pub fn write<T: DeviceCopy>(&self, to: &DeviceSlice<T>, from: &[T]) -> Result<()> {
        self.start_write(to, from)?.wait().map(drop)
    }

    /// Starts to copy numbers to the device behind the work in the stream.
    pub fn start_write<'s, T: DeviceCopy>(&'s self, to: &'s DeviceSlice<T>, from: &'s [T]) -> Result<Running<'s, ()>> {
        if from.len() > to.len() {
            return Err(mismatch("numbers for the device", vec![to.len()], vec![from.len()]));
        }
        // SAFETY: both have that many numbers, and are borrowed until the copy is done.
        unsafe { to.index(..from.len()).async_copy_from(from, &self.inner) }.map_err(failed("cuMemcpyHtoDAsync"))?;
        Ok(self.unfinished())
    }

    /// Starts to fill numbers on the device with zeros, behind the work in the stream.
    pub fn clear<'s>(&'s self, numbers: &'s DeviceSlice<f64>) -> Result<Running<'s, ()>> {
        let words = numbers.len() * size_of::<f64>() / size_of::<u32>();
        // SAFETY: the whole of the memory, which is borrowed until this is done.
        let result =
            unsafe { sys::cuMemsetD32Async(numbers.as_device_ptr().as_raw(), 0, words, self.inner.as_inner()) };
        check("cuMemsetD32Async", result)?;
        Ok(Running { stream: self, held: Some(()), end: None })
    }

    /// Seconds that the device takes for the work that `start` puts into the stream, by the
    /// device's clock.
    pub fn seconds<'s, L>(&'s self, start: impl FnOnce() -> Result<Running<'s, L>>) -> Result<f64> {
        let event = || Event::new(EventFlags::DEFAULT).map_err(failed("cuEventCreate"));
        let (before, after) = (event()?, event()?);
        before.record(&self.inner).map_err(failed("cuEventRecord"))?;
        let running = start()?;
        after.record(&self.inner).map_err(failed("cuEventRecord"))?;
        running.wait()?;
        Ok(f64::from(after.elapsed_time_f32(&before).map_err(failed("cuEventElapsedTime"))?) / 1e3)
    }
}

/// Seconds of what `start` puts into the stream, the mean over `repeats` times of it back to back.
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

/// Results of a kernel, which are finite unless it failed.
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
    /// Recorded behind the work, where more work may follow in the stream that need not be waited
    /// for.
    end: Option<Event>,
}

impl<'s, L> Running<'s, L> {
    /// The guard for this work and for `next`, which was started behind it: waiting for the later
    /// waits for both.
    pub fn followed_by<M>(self, next: Running<'s, M>) -> Running<'s, M>
    where
        L: Copy + 's,
    {
        // What this guard holds is only borrowed, for as long as the later guard may live. If the
        // later work is in another stream, its end does not mean the end of this work, which is
        // then waited for here (by `drop`).
        if ptr::eq(self.stream, next.stream) {
            self.release();
        }
        next
    }

    /// Starts to copy numbers back behind this work. `places` finds both places in what is held.
    pub fn download<T: DeviceCopy>(
        mut self,
        places: impl for<'l> FnOnce(&'l mut L) -> (&'l DeviceSlice<T>, &'l mut LockedBuffer<T>, usize),
    ) -> Result<Self> {
        let Some(held) = &mut self.held else { return Ok(self) };
        let (from, to, len) = places(held);
        if len > from.len() || len > to.len() {
            return Err(mismatch("a copy from the device", vec![len], vec![from.len(), to.len()]));
        }
        // SAFETY: both have at least `len` numbers; the guard holds them until the copy is done,
        // and page-locked memory stays where it is when its owner moves.
        unsafe { from.index(..len).async_copy_to(&mut to[..len], &self.stream.inner) }
            .map_err(failed("cuMemcpyDtoHAsync"))?;
        Ok(self)
    }

    /// Makes [`wait`](Self::wait) wait only for what is in the stream now, not for work that is put
    /// behind it later.
    pub fn marked(mut self) -> Result<Self> {
        let end = Event::new(EventFlags::DISABLE_TIMING).map_err(failed("cuEventCreate"))?;
        end.record(&self.stream.inner).map_err(failed("cuEventRecord"))?;
        self.end = Some(end);
        Ok(self)
    }

    /// Waits for the work, and gives back what it held.
    pub fn wait(mut self) -> Result<Option<L>> {
        match &self.end {
            Some(end) => end.synchronize().map_err(failed("cuEventSynchronize"))?,
            None => self.stream.synchronize()?,
        }
        Ok(self.held.take())
    }

    /// The results that the work leaves in the first `count` slots. The work must write them last:
    /// they can be read sooner than the driver reports that the work is done.
    pub fn results(self, slots: &Slots, count: usize) -> Result<Vec<f64>> {
        finite(self.numbers(slots, count)?)
    }

    /// As [`results`](Self::results), also where they are not finite.
    pub fn numbers(mut self, slots: &Slots, count: usize) -> Result<Vec<f64>> {
        let results = self.first_numbers(slots, count)?;
        self.held = None;
        Ok(results)
    }

    /// What this work leaves in the first `count` slots before its end.
    pub fn first_numbers(&self, slots: &Slots, count: usize) -> Result<Vec<f64>> {
        (0..count).map(|i| slots.wait(i, &self.stream.inner)).collect()
    }

    /// A guard of the same work that holds nothing: what this one holds is borrowed for as long as
    /// the guard may live.
    pub fn borrowed(mut self) -> Running<'s, ()>
    where
        L: Copy + 's,
    {
        let (stream, end) = (self.stream, self.end.take());
        self.release();
        Running { stream, held: Some(()), end }
    }

    /// Drops the guard without waiting for the work.
    fn release(mut self) {
        self.held = None;
    }
}

impl<L: Launch> Running<'_, L> {
    /// Starts the kernel whose argument is what is held, behind this work.
    pub fn launch(self, kernel: Kernel<L::Argument>, grid: Grid) -> Result<Self> {
        if let Some(launch) = &self.held {
            // SAFETY: this guard holds the memory until the work is done; `Launch` says that it may
            // be moved.
            unsafe { self.stream.start(kernel, grid, launch)? };
        }
        Ok(self)
    }
}

impl<L> Drop for Running<'_, L> {
    fn drop(&mut self) {
        if self.held.is_some() {
            // The failure that led here has been reported, or the next call will report it.
            let _ = self.stream.synchronize();
        }
    }
}
