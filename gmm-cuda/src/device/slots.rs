//! Results that kernels write to the host's memory.
use super::memory::locked;
use super::require_len;
use gmm_core::error::{Error, Result};
use gmm_driver::LockedBuffer;
use gmm_kernels::reduce::UNWRITTEN;
use std::sync::atomic::{AtomicU64, Ordering};

/// The reads of a slot between two questions to the driver about the stream.
const LOOKS: u32 = 10_000;
/// The questions (a few milliseconds) after which the thread yields its core between them.
const PATIENCE: u32 = 20;

/// Places for results in host memory: kernels write and the host polls, which is faster than a copy.
#[derive(Debug)]
pub struct Slots {
    /// Atomic: the device writes to them while the host reads.
    host: LockedBuffer<AtomicU64>,
    /// The device address of the first, as a number, because `Slots` move between threads.
    device: usize,
}

impl Slots {
    pub fn new(len: usize) -> Result<Self> {
        let host: LockedBuffer<AtomicU64> = locked(len)?;
        let slots = Self { device: host.as_device_ptr()?.expose_provenance(), host };
        slots.clear(len);
        Ok(slots)
    }

    pub fn len(&self) -> usize {
        self.host.len()
    }

    /// Returns the device address of the first `len` slots for `what`. [`Error::ShapeMismatch`] if there are fewer.
    pub fn write(&self, len: usize, what: &'static str) -> Result<*mut f64> {
        require_len(what, len, self.len()).map(|()| self.device as *mut f64)
    }

    /// Empties the first `count` slots, before the launch that fills them.
    pub fn clear(&self, count: usize) {
        self.host[..count].iter().for_each(|slot| slot.store(UNWRITTEN, Ordering::Relaxed));
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Waits until the work in `stream` fills a slot. Returns the driver's error if the work fails.
    pub fn wait(&self, i: usize, stream: &gmm_driver::Stream) -> Result<f64> {
        let slot = &self.host[i];
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
            if stream.is_done()? {
                break;
            }
            if question >= PATIENCE {
                std::thread::yield_now();
            }
        }
        let silent = || Error::Cuda { op: "cuLaunchKernel", message: "the kernel ended without a result".into() };
        read().ok_or_else(silent)
    }
}
