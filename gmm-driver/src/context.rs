//! Contexts: a device's state for a process.
use crate::device::{Device, Driver};
use crate::error::{Error, Result};
use crate::functions::{Code, ContextHandle, DEINITIALIZED, Functions, INVALID_CONTEXT};
use std::cell::RefCell;
use std::fmt::{Debug, Formatter};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

/// A device's primary context, shared with other libraries of the process. It is released when the last clone, and the
/// last owner of anything made in it, is dropped.
#[derive(Debug, Clone)]
pub struct Context(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    device: Device,
    handle: ContextHandle,
    /// The first failure while an owner was dropped, until it is reported.
    failure: Mutex<Option<Error>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Context>> = const { RefCell::new(None) };
}

impl Context {
    /// Retains the primary context of a device.
    pub fn new(device: Device) -> Result<Self> {
        let mut handle = ContextHandle::default();
        // SAFETY: a place for the handle, and an existing device.
        let code = unsafe { (device.driver().functions().cuDevicePrimaryCtxRetain)(&mut handle, device.handle()) };
        device.driver().functions().check("cuDevicePrimaryCtxRetain", code)?;
        Ok(Self(Arc::new(Inner { device, handle, failure: Mutex::new(None) })))
    }

    /// Makes this the calling thread's context, for allocations, launches and copies, until the result is dropped. Also
    /// returns, once, a failure while an owner was dropped.
    pub fn enter(&self) -> Result<Entered> {
        let entered = self.make_current()?;
        let failure = self.0.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map_or(Ok(entered), Err)
    }

    /// Returns the context that the calling thread is in. Fails if it is in none.
    pub fn current(driver: Driver) -> Result<Self> {
        let current = CURRENT.with_borrow(Clone::clone);
        current.ok_or_else(|| driver.functions().error("cuCtxGetCurrent", INVALID_CONTEXT))
    }

    /// As [`enter`](Self::enter), without a report of a failure.
    pub(crate) fn make_current(&self) -> Result<Entered> {
        let mut before = ContextHandle::default();
        // SAFETY: a place for the handle.
        self.call("cuCtxGetCurrent", unsafe { (self.functions().cuCtxGetCurrent)(&mut before) })?;
        // SAFETY: the context is retained.
        self.call("cuCtxSetCurrent", unsafe { (self.functions().cuCtxSetCurrent)(self.0.handle) })?;
        // An ending thread has no such place any more, and enters nothing after this.
        let earlier = CURRENT.try_with(|current| current.replace(Some(self.clone()))).ok().flatten();
        Ok(Entered { functions: self.functions(), before, earlier, of_thread: PhantomData })
    }

    /// Returns the free bytes of the device's memory. The context must be the thread's.
    pub fn free_memory(&self) -> Result<usize> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: places for the two numbers.
        self.call("cuMemGetInfo", unsafe { (self.functions().cuMemGetInfo_v2)(&mut free, &mut total) })?;
        Ok(free)
    }

    pub(crate) fn functions(&self) -> &'static Functions {
        self.0.device.driver().functions()
    }

    pub(crate) fn call(&self, call: &'static str, code: Code) -> Result<()> {
        self.0.device.driver().functions().check(call, code)
    }

    pub(crate) fn error(&self, call: &'static str, code: Code) -> Error {
        self.functions().error(call, code)
    }

    /// Releases an owner's resource in this context, and keeps a failure. A driver that has ended has released it.
    pub(crate) fn release(&self, call: &'static str, release: impl FnOnce(&Functions) -> Code) {
        match self.make_current().and_then(|_entered| self.call(call, release(self.functions()))) {
            Ok(()) | Err(Error::Call { code: DEINITIALIZED, .. }) => {}
            Err(failure) => {
                self.0.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
            }
        }
    }
}

/// A thread's stay in a context. When it is dropped, the thread has its earlier context again, which may be another
/// library's. Of stays within each other, the last ends first.
#[must_use = "the thread leaves the context when this is dropped"]
pub struct Entered {
    functions: &'static Functions,
    before: ContextHandle,
    earlier: Option<Context>,
    of_thread: PhantomData<*const ()>,
}

impl Debug for Entered {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entered").finish_non_exhaustive()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // SAFETY: a context that was the thread's, or none. If its owner has destroyed it, the thread has none.
        let _ = unsafe { (self.functions.cuCtxSetCurrent)(self.before) };
        let _ = CURRENT.try_with(|current| current.replace(self.earlier.take()));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let functions = self.device.driver().functions();
        // SAFETY: retained once, in `Context::new`. Nothing is left to report a failure.
        let _ = unsafe { (functions.cuDevicePrimaryCtxRelease_v2)(self.device.handle()) };
    }
}
