//! Events: marks in a stream to wait for or to time.
use crate::context::Context;
use crate::error::Result;
use crate::functions::EventHandle;
use crate::stream::Stream;
use std::ffi::c_uint;

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: c_uint = 2;

/// A mark in a stream.
#[derive(Debug)]
pub struct Event {
    context: Context,
    handle: EventHandle,
}

impl Event {
    /// Makes an event without a time, which is cheaper. The context must be the thread's.
    pub fn new(context: &Context) -> Result<Self> {
        Self::with_flags(context, DISABLE_TIMING)
    }

    /// Makes an event with a time. The context must be the thread's.
    pub fn timed(context: &Context) -> Result<Self> {
        Self::with_flags(context, 0)
    }

    fn with_flags(context: &Context, flags: c_uint) -> Result<Self> {
        let mut handle = EventHandle::default();
        // SAFETY: a place for the handle.
        context.call("cuEventCreate", unsafe { (context.functions().cuEventCreate)(&mut handle, flags) })?;
        Ok(Self { context: context.clone(), handle })
    }

    /// Marks the end of the work now in the stream.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both exist.
        let code = unsafe { (self.context.functions().cuEventRecord)(self.handle, stream.handle()) };
        self.context.call("cuEventRecord", code)
    }

    /// Waits for the work before the mark, if any, from any thread. Fails if the work failed.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.context.make_current()?;
        // SAFETY: the event exists.
        let code = unsafe { (self.context.functions().cuEventSynchronize)(self.handle) };
        self.context.call("cuEventSynchronize", code)
    }

    /// Returns the seconds from `start` to this event by the device's clock. Both must be timed and waited for.
    pub fn seconds_since(&self, start: &Self) -> Result<f64> {
        let mut milliseconds = 0.0;
        // SAFETY: a place for the number, and two existing events.
        let code =
            unsafe { (self.context.functions().cuEventElapsedTime)(&mut milliseconds, start.handle, self.handle) };
        self.context.call("cuEventElapsedTime", code)?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created once. The driver keeps it while anything waits for it.
        self.context.release("cuEventDestroy", |functions| unsafe { (functions.cuEventDestroy_v2)(self.handle) });
    }
}
