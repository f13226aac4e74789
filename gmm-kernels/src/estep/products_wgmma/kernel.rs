mod exponents;
mod operands;
mod weigh;

use super::*;
use crate::estep::products_mma::kernel::store_sum;
use crate::math::smaller;
use crate::simt::*;
pub use operands::*;

/// Two barriers for each of `AHEAD` places in shared memory, at offset `bytes`. Copies arrive at the first; `of_warp`
/// threads of each warp arrive at the second when they have read the place.
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

    /// Initialises the barriers.
    ///
    /// # Safety
    /// One thread calls it, before the others use the barriers.
    #[inline(always)]
    pub unsafe fn init(self) {
        counted!(for place in 0..AHEAD as u32 {
            self.full(place).init(1);
            self.empty(place).init(MULTIPLYING / WARP * self.of_warp);
        });
    }

    /// Waits until copy `number` has a free place, whose barrier then expects `bytes`; returns it. All lanes call it.
    ///
    /// # Safety
    /// The barriers are ready.
    #[inline(always)]
    pub unsafe fn claim(self, number: u32, bytes: usize) -> u32 {
        let place = number % AHEAD as u32;
        self.empty(place).wait((number / AHEAD as u32 % 2) ^ 1);
        if thread().is_multiple_of(WARP) {
            self.full(place).expect(bytes as u32);
        }
        warp_sync();
        place
    }

    /// Waits until copy `number` has arrived, and returns its place.
    ///
    /// # Safety
    /// The barriers are ready; all lanes of the warp call it.
    #[inline(always)]
    pub unsafe fn arrived(self, number: u32) -> u32 {
        let place = number % AHEAD as u32;
        self.full(place).wait(number / AHEAD as u32 % 2);
        place
    }

    /// Marks the place as read by this thread, or by its warp.
    ///
    /// # Safety
    /// The barriers are ready.
    #[inline(always)]
    pub unsafe fn release(self, place: u32) {
        if self.of_warp == WARP || thread().is_multiple_of(WARP) {
            self.empty(place).arrive();
        }
    }
}
