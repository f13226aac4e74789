//! Results that kernels write to the host's memory.
use super::error::{check, failed};
use super::require_len;
use crate::error::{Error, Result};
use cust::memory::{cuda_free_locked, cuda_malloc_locked};
use cust::sys;
use gmm_kernels::reduce::UNWRITTEN;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often a slot is read before the driver is asked for the state of the stream.
const LOOKS: u32 = 10_000;
/// After so many questions to the driver (a few milliseconds) the thread yields its core to others
/// between them.
const PATIENCE: u32 = 20;

/// Places for results in host memory. Kernels write to them and the host reads them until they are
/// filled, which takes less time than a copy.
#[derive(Debug)]
pub struct Slots {
    /// `len` slots of page-locked memory. Atomic: the device writes to them while the host reads.
    host: NonNull<AtomicU64>,
    len: usize,
    /// Their address on the device.
    device: u64,
}

// SAFETY: the memory is owned and only accessed atomically; where it was allocated does not matter
// for its use.
unsafe impl Send for Slots {}

impl Slots {
    pub fn new(len: usize) -> Result<Self> {
        // SAFETY: freed in `drop` only; the bits of any number are a valid `AtomicU64`, which has
        // its size.
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

    pub fn len(&self) -> usize {
        self.len
    }

    /// The address on the device of the first `len` slots; `what` asks for them.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] where there are fewer.
    pub fn write(&self, len: usize, what: &'static str) -> Result<*mut f64> {
        require_len(what, len, self.len).map(|()| self.device as *mut f64)
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

    /// Waits until a slot is filled by the work in `stream`. Ends with the driver's error if that
    /// work fails.
    pub fn wait(&self, i: usize, stream: &cust::stream::Stream) -> Result<f64> {
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
