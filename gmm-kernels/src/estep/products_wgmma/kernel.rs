//! The code of the kernels of warpgroups.
mod exponents;
mod operands;
mod weigh;

use super::*;
use crate::estep::products_mma::store_sum;
use crate::math::smaller;
use crate::simt::*;
pub use exponents::*;
pub use operands::*;
pub use weigh::*;

/// Two barriers for each of `AHEAD` places in shared memory, `bytes` behind its start: at the first
/// arrives what is to be read, at the second arrive those that have read it: so many threads of
/// each warp.
#[derive(Clone, Copy)]
pub(crate) struct Places<const AHEAD: usize> {
    pub bytes: usize,
    pub of_warp: u32,
}

impl<const AHEAD: usize> Places<AHEAD> {
    #[inline(always)]
    pub fn full(self, place: u32) -> Mbarrier {
        Mbarrier::at(self.bytes + 8 * place as usize)
    }

    #[inline(always)]
    pub fn empty(self, place: u32) -> Mbarrier {
        Mbarrier::at(self.bytes + 8 * (AHEAD + place as usize))
    }

    /// Makes the barriers ready.
    ///
    /// # Safety
    /// One thread calls it, before the others use the barriers.
    #[inline(always)]
    pub unsafe fn init(self) {
        counted!(for place in 0..AHEAD as u32 {
            // SAFETY: the caller guarantees it.
            unsafe {
                self.full(place).init(1);
                self.empty(place).init(MULTIPLYING / WARP * self.of_warp);
            }
        });
    }

    /// Waits until all have read what was in the place of copy number `number`, and has the place's
    /// barrier wait for so many bytes. All lanes of the warp call it.
    ///
    /// # Safety
    /// The barriers are ready.
    #[inline(always)]
    pub unsafe fn claim(self, number: u32, bytes: usize) -> u32 {
        let place = number % AHEAD as u32;
        // SAFETY: the caller guarantees it.
        unsafe {
            self.empty(place).wait((number / AHEAD as u32 % 2) ^ 1);
            if thread().is_multiple_of(WARP) {
                self.full(place).expect(bytes as u32);
            }
        }
        warp_sync();
        place
    }

    /// Waits until copy number `number` has arrived, and gives its place.
    ///
    /// # Safety
    /// The barriers are ready; all lanes of the warp call it.
    #[inline(always)]
    pub unsafe fn arrived(self, number: u32) -> u32 {
        let place = number % AHEAD as u32;
        // SAFETY: the caller guarantees it.
        unsafe { self.full(place).wait(number / AHEAD as u32 % 2) };
        place
    }

    /// Says that this thread, or its warp, has read the place.
    ///
    /// # Safety
    /// The barriers are ready.
    #[inline(always)]
    pub unsafe fn release(self, place: u32) {
        if self.of_warp == WARP || thread().is_multiple_of(WARP) {
            // SAFETY: the caller guarantees it.
            unsafe { self.empty(place).arrive() };
        }
    }
}
