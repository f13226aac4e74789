//! The total of a launch.
use super::*;
use crate::math::{LogProduct, warp_sum};
use crate::simt::*;

/// Block sums that a thread reads at once: with 128 threads, four blocks for each of an H200's 132 multiprocessors.
const ROUND: u32 = 5;

impl Output {
    /// The sum of the block's log-likelihoods, in thread 0. The order is fixed: the same bits every time.
    ///
    /// # Safety
    /// All threads of the block call it; [`FINISH_SHARED_BYTES`] of shared memory exist and are unused.
    #[inline(always)]
    pub unsafe fn block_sum(product: LogProduct) -> f64 {
        Self::block_total(product.warp_sum())
    }

    /// As [`Output::block_sum`], from each warp's sum in its lane 0.
    ///
    /// # Safety
    /// As for [`Output::block_sum`].
    #[inline(always)]
    pub unsafe fn block_total(sum: f64) -> f64 {
        let s = Shared::<f64>::at(0);
        if thread_idx().is_multiple_of(WARP) {
            // SAFETY: one slot per warp, at most 32 warps in a block.
            s.set((thread_idx() / WARP) as usize, sum);
        }
        barrier!();
        let mut total = 0.0;
        if thread_idx() == 0 {
            counted!(for w in 0..block_dim() / WARP {
                // SAFETY: the barrier ordered the writes.
                total += s.get(w as usize);
            });
        }
        total
    }

    /// Ends a launch: each block leaves its sum, and the last one in the grid waits for all, adds them up in a fixed
    /// order, and publishes the total. ([`UNWRITTEN`] shows missing sums; a counter would cost an exchange with
    /// memory.)
    ///
    /// # Safety
    /// All threads of all blocks call it, once, as their last act; the grid is one-dimensional; `partials` has
    /// gridDim.x places, all unwritten; see [`Output::block_sum`] for the shared memory.
    #[inline(always)]
    pub unsafe fn finish(self, product: LogProduct) {
        self.finish_by::<false>(product, || ())
    }

    /// As [`Output::finish`]; all threads of the last block call `last`, which sees all earlier writes of all blocks.
    ///
    /// # Safety
    /// As for [`Output::finish`].
    #[inline(always)]
    pub unsafe fn finish_with(self, product: LogProduct, last: impl FnOnce()) {
        self.finish_by::<true>(product, last)
    }

    /// `FENCED`: whether `last` sees what all blocks have written, which costs a wait for the memory.
    /// Safety: as for [`Output::finish`].
    #[inline(always)]
    unsafe fn finish_by<const FENCED: bool>(self, product: LogProduct, last: impl FnOnce()) {
        let s = Shared::<f64>::at(0);
        let sum = Self::block_sum(product);
        if grid_dim() == 1 {
            if thread_idx() == 0 {
                publish(self.total, sum);
            }
            last();
            return;
        }
        if thread_idx() == 0 {
            // The block's other threads wrote before the barrier in `block_sum`.
            if FENCED {
                fence();
            }
            store_fresh(self.partials.add(block_idx() as usize), sum);
        }
        // Blocks start in order, and only this one waits for others, so that all run eventually.
        if block_idx() == grid_dim() - 1 {
            let mut sum = 0.0;
            let mut start = 0;
            while start < grid_dim() {
                sum += self.take_round(start + thread_idx());
                start += ROUND * block_dim();
            }
            if FENCED {
                fence();
            }
            let sum = warp_sum(sum);
            // The first thread has read the warps' sums.
            barrier!();
            if thread_idx().is_multiple_of(WARP) {
                s.set((thread_idx() / WARP) as usize, sum);
            }
            barrier!();
            if thread_idx() == 0 {
                let mut total = 0.0;
                counted!(for w in 0..block_dim() / WARP {
                    total += s.get(w as usize);
                });
                publish(self.total, total);
            }
            last();
        }
    }

    /// The sum of a round of block sums from `start` on, once the warp's have arrived; leaves [`UNWRITTEN`].
    /// Safety: all lanes of one warp call it; `partials` has gridDim.x places.
    #[inline(always)]
    unsafe fn take_round(self, start: u32) -> f64 {
        let mut v = [0.0f64; ROUND as usize];
        let mut missing = true;
        while missing {
            // The reads of a round are independent, so that they overlap.
            missing = false;
            counted!(for r in 0..ROUND {
                let b = start + r * block_dim();
                if b < grid_dim() {
                    // SAFETY: a place for each block.
                    v[r as usize] = load_fresh(self.partials.add(b as usize));
                }
            });
            counted!(for r in 0..ROUND {
                missing |= v[r as usize].to_bits() == UNWRITTEN;
            });
            missing = warp_any(missing);
            if missing {
                pause();
            }
        }
        let mut sum = 0.0;
        counted!(for r in 0..ROUND {
            let b = start + r * block_dim();
            if b < grid_dim() {
                // SAFETY: the block has written.
                store_fresh(self.partials.add(b as usize), f64::from_bits(UNWRITTEN));
            }
            sum += v[r as usize];
        });
        sum
    }
}
