//! Streams: queues of work for a device.
use crate::context::Context;
use crate::error::Result;
use crate::functions::{NOT_READY, StreamHandle};
use crate::memory::Plain;
use crate::module::Function;
use std::ffi::{c_uint, c_void};
use std::ptr;

/// `CU_STREAM_DEFAULT`: work waits for the legacy default stream, into which
/// [`DeviceBuffer::zeroed`](crate::DeviceBuffer::zeroed) and [`from_slice`](crate::DeviceBuffer::from_slice) write.
const DEFAULT: c_uint = 0;

/// A queue of work for a device, done in order.
#[derive(Debug)]
pub struct Stream {
    context: Context,
    handle: StreamHandle,
}

impl Stream {
    /// Makes a stream. The context must be the thread's.
    pub fn new(context: &Context) -> Result<Self> {
        let mut handle = StreamHandle::default();
        // SAFETY: a place for the handle.
        context.call("cuStreamCreate", unsafe { (context.functions().cuStreamCreate)(&mut handle, DEFAULT) })?;
        Ok(Self { context: context.clone(), handle })
    }

    /// Waits for all work in the legacy default stream of the thread's context, where other libraries leave work. Fails
    /// if that work failed.
    pub fn synchronize_legacy_default(context: &Context) -> Result<()> {
        // `CU_STREAM_LEGACY`.
        let legacy = StreamHandle(ptr::without_provenance_mut(1));
        // SAFETY: the handle stands for a stream of every context.
        context.call("cuStreamSynchronize", unsafe { (context.functions().cuStreamSynchronize)(legacy) })
    }

    pub(crate) fn handle(&self) -> StreamHandle {
        self.handle
    }

    /// Returns the context of the stream.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Waits for all work in the stream, from any thread. Fails if the work failed.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.context.make_current()?;
        // SAFETY: the stream exists.
        let code = unsafe { (self.context.functions().cuStreamSynchronize)(self.handle) };
        self.context.call("cuStreamSynchronize", code)
    }

    /// Whether all work in the stream is done. Fails if the work failed.
    pub fn is_done(&self) -> Result<bool> {
        // SAFETY: the stream exists.
        match unsafe { (self.context.functions().cuStreamQuery)(self.handle) } {
            NOT_READY => Ok(false),
            code => self.context.call("cuStreamQuery", code).map(|()| true),
        }
    }

    /// Enqueues a kernel: x times y blocks, each with so many threads and bytes of dynamic shared memory. `cooperative`
    /// blocks all run at once; the driver refuses more than can. It copies the argument. The context must be the
    /// thread's.
    ///
    /// # Safety
    /// `A` is the type of the kernel's one argument. The memory behind its pointers is as long as the kernel needs for
    /// this grid and stays in place until the work is done; meanwhile nothing else writes memory that the kernel reads,
    /// or touches memory that it writes.
    pub unsafe fn launch<A: Copy>(
        &self,
        function: &Function,
        (x, y): (u32, u32),
        threads: u32,
        shared: usize,
        cooperative: bool,
        argument: &A,
    ) -> Result<()> {
        let (functions, kernel, stream) = (self.context.functions(), function.handle(), self.handle);
        let shared = shared as c_uint;
        let mut pointers: [*mut c_void; 1] = [ptr::from_ref(argument).cast_mut().cast()];
        let pointers = pointers.as_mut_ptr();
        // SAFETY: the caller guarantees the argument, which the driver reads before it returns.
        let (call, code) = unsafe {
            if cooperative {
                let launch = functions.cuLaunchCooperativeKernel;
                ("cuLaunchCooperativeKernel", launch(kernel, x, y, 1, threads, 1, 1, shared, stream, pointers))
            } else {
                let (launch, none) = (functions.cuLaunchKernel, ptr::null_mut());
                ("cuLaunchKernel", launch(kernel, x, y, 1, threads, 1, 1, shared, stream, pointers, none))
            }
        };
        self.context.call(call, code)
    }

    /// Enqueues a copy of numbers to the device.
    ///
    /// # Safety
    /// `to` has room for the numbers on the device. Until the copy is done, both stay in place, nothing writes to
    /// `from`, and nothing touches `to`.
    pub unsafe fn copy_to_device<T: Plain>(&self, to: *mut T, from: &[T]) -> Result<()> {
        let (functions, bytes) = (self.context.functions(), size_of_val(from));
        // SAFETY: the caller guarantees both.
        let code = unsafe {
            (functions.cuMemcpyHtoDAsync_v2)(to.expose_provenance() as u64, from.as_ptr().cast(), bytes, self.handle)
        };
        self.context.call("cuMemcpyHtoDAsync", code)
    }

    /// Enqueues a copy of numbers from the device.
    ///
    /// # Safety
    /// `from` has as many numbers on the device as `to`. Until the copy is done, both stay in place, nothing touches
    /// `to`, and nothing writes to `from`.
    pub unsafe fn copy_to_host<T: Plain>(&self, to: &mut [T], from: *const T) -> Result<()> {
        let (functions, bytes) = (self.context.functions(), size_of_val(to));
        // SAFETY: the caller guarantees both.
        let code = unsafe {
            (functions.cuMemcpyDtoHAsync_v2)(
                to.as_mut_ptr().cast(),
                from.expose_provenance() as u64,
                bytes,
                self.handle,
            )
        };
        self.context.call("cuMemcpyDtoHAsync", code)
    }

    /// Enqueues a write of `len` zeros to the device.
    ///
    /// # Safety
    /// `to` has room for the numbers on the device. It stays in place, and nothing touches it, until the zeros are
    /// written.
    pub unsafe fn zero<T: Plain>(&self, to: *mut T, len: usize) -> Result<()> {
        let (functions, bytes) = (self.context.functions(), len * size_of::<T>());
        // SAFETY: the caller guarantees the memory.
        let code = unsafe { (functions.cuMemsetD8Async)(to.expose_provenance() as u64, 0, bytes, self.handle) };
        self.context.call("cuMemsetD8Async", code)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: created once. The driver keeps it until its work is done.
        self.context.release("cuStreamDestroy", |functions| unsafe { (functions.cuStreamDestroy_v2)(self.handle) });
    }
}
