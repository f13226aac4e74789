//! Memory that host and device share.
use super::gpu::{check, failed};
use crate::{Error, Result};
use cust::memory::bytemuck::Zeroable;
use cust::memory::{
    AsyncCopyDestination, DeviceBuffer, DeviceCopy, LockedBuffer, cuda_free_locked, cuda_malloc_locked,
};
use cust::stream::Stream;
use cust::sys;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Device memory for `len` elements, not initialised.
pub(super) fn allocate<T: DeviceCopy>(len: usize) -> Result<DeviceBuffer<T>> {
    // SAFETY: elements are numbers, for which any bits will do; each is written before it is read.
    unsafe { DeviceBuffer::uninitialized(len) }.map_err(failed("cuMemAlloc"))
}

/// Device memory for `len` numbers, zero.
pub(super) fn zeroed<T: DeviceCopy + Zeroable>(len: usize) -> Result<DeviceBuffer<T>> {
    DeviceBuffer::zeroed(len).map_err(failed("cuMemsetD8"))
}

/// Page-locked host memory for `len` numbers, zero.
pub(super) fn locked<T: DeviceCopy + Default>(len: usize) -> Result<LockedBuffer<T>> {
    LockedBuffer::new(&T::default(), len).map_err(failed("cuMemAllocHost"))
}

/// Host memory to copy from at full speed where it can be had, else any host memory.
#[derive(Debug)]
pub(super) enum HostBuffer<T: DeviceCopy> {
    Locked(LockedBuffer<T>),
    Plain(Vec<T>),
}

impl<T: DeviceCopy + Default> HostBuffer<T> {
    pub fn zeroed(len: usize) -> Self {
        locked(len).map_or_else(|_| Self::Plain(vec![T::default(); len]), Self::Locked)
    }

    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::Locked(buffer) => buffer,
            Self::Plain(buffer) => buffer,
        }
    }

    pub fn as_mut_slice(&mut self) -> &mut [T] {
        match self {
            Self::Locked(buffer) => buffer,
            Self::Plain(buffer) => buffer,
        }
    }
}

/// Parameters on their way to the device, and the place where they go.
#[derive(Debug)]
pub(super) struct Upload<T: DeviceCopy> {
    staging: LockedBuffer<T>,
    device: DeviceBuffer<T>,
}

impl<T: DeviceCopy + Default> Upload<T> {
    pub fn new() -> Result<Self> {
        Ok(Self { staging: locked(1)?, device: allocate(1)? })
    }

    /// Has `write` fill `len` numbers, and sends them. A result of all earlier work in the stream that reads them has
    /// been waited for.
    pub fn send(&mut self, len: usize, stream: &Stream, write: impl FnOnce(&mut [T])) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        if self.staging.len() < len {
            stream.synchronize().map_err(failed("cuStreamSynchronize"))?;
            self.staging = locked(len)?;
            self.device = allocate(len)?;
        }
        let staging = &mut self.staging[..len];
        write(staging);
        let mut to = self.device.index(..len);
        // SAFETY: both are as long; the staging memory is rewritten only after a result of the work behind this copy has
        // been waited for, and freed only after the stream has been.
        unsafe { to.async_copy_from(&*staging, stream) }.map_err(failed("cuMemcpyHtoDAsync"))
    }

    /// What was sent, on the device.
    pub fn device(&self) -> &DeviceBuffer<T> {
        &self.device
    }
}

/// What a slot holds before a kernel has written to it: a signalling NaN, which arithmetic never gives.
const UNWRITTEN: u64 = 0x7ff4_dead_beef_0001;
/// Looks at a slot between two questions to the driver.
const LOOKS: u32 = 10_000;
/// Questions after which the thread offers its core to others (a few milliseconds).
const PATIENCE: u32 = 20;

/// Places for results in host memory that kernels write to and the host watches: the shortest way of a number out of
/// the device.
#[derive(Debug)]
pub(super) struct Slots {
    /// `len` slots of page-locked memory. Atomic: the device writes to them while the host reads.
    host: NonNull<AtomicU64>,
    len: usize,
    /// Their address on the device.
    device: u64,
}

// SAFETY: the memory is owned and only accessed atomically; where it was allocated does not matter for its use.
unsafe impl Send for Slots {}

impl Slots {
    pub fn new(len: usize) -> Result<Self> {
        // SAFETY: freed in `drop` only; the bits of any number are a valid `AtomicU64`, which has its size.
        let host = unsafe { cuda_malloc_locked::<u64>(len) }.map_err(failed("cuMemAllocHost"))?;
        let Some(host) = NonNull::new(host.cast::<AtomicU64>()) else {
            return Err(Error::Cuda { op: "cuMemAllocHost", message: "no memory was given".into() });
        };
        let mut slots = Self { host, len, device: 0 };
        // SAFETY: a place for the address, and memory that was just allocated by the driver.
        let result = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut slots.device, host.as_ptr().cast(), 0) };
        check("cuMemHostGetDevicePointer", result)?;
        (0..len).for_each(|i| slots.slot(i).store(UNWRITTEN, Ordering::Relaxed));
        Ok(slots)
    }

    /// The address of the first slot on the device.
    pub fn device_pointer(&self) -> *mut f64 {
        self.device as *mut f64
    }

    fn slot(&self, i: usize) -> &AtomicU64 {
        assert!(i < self.len, "slot {i} of {}", self.len);
        // SAFETY: within the allocation, which lives as long as `self`.
        unsafe { self.host.add(i).as_ref() }
    }

    /// Empties the first `count` slots; to be called before the launch that fills them.
    pub fn clear(&self, count: usize) {
        (0..count).for_each(|i| self.slot(i).store(UNWRITTEN, Ordering::Relaxed));
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Waits until a slot is filled by the work in `stream`. Ends with the driver's error if that work fails.
    pub fn wait(&self, i: usize, stream: &Stream) -> Result<f64> {
        let slot = self.slot(i);
        let read = || match slot.load(Ordering::Acquire) {
            UNWRITTEN => None,
            bits => Some(f64::from_bits(bits)),
        };
        for question in 0u32.. {
            for _ in 0..LOOKS {
                if let Some(v) = read() {
                    return Ok(v);
                }
                std::hint::spin_loop();
            }
            // SAFETY: the stream exists.
            match unsafe { sys::cuStreamQuery(stream.as_inner()) } {
                sys::CUresult::CUDA_ERROR_NOT_READY if question < PATIENCE => {}
                sys::CUresult::CUDA_ERROR_NOT_READY => std::thread::yield_now(),
                result => {
                    check("cuStreamQuery", result)?;
                    break;
                }
            }
        }
        let silent = || Error::Cuda { op: "cuLaunchKernel", message: "the kernel ended without a result".into() };
        read().ok_or_else(silent)
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: allocated by its counterpart in `new`. A failure leaves nothing to do.
        let _ = unsafe { cuda_free_locked(self.host.as_ptr()) };
    }
}
