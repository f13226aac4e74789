//! How a launch's total is formed.
use super::*;
use crate::math::{LogProduct, warp_sum};
use crate::simt::*;

/// Block sums that a lane reads at once: 32 lanes then read those of four blocks on each of an H200's 132 multiprocessors.
const ROUND: u32 = 17;

impl Output {
    /// The sum of the log-likelihoods of the block's threads, in thread 0. The order is fixed: the same bits every time.
    ///
    /// # Safety
    /// All threads of the block call it; [`FINISH_SHARED_BYTES`] of shared memory are there and not in use.
    #[inline(always)]
    pub unsafe fn block_sum(product: LogProduct) -> f64 {
        // SAFETY: the caller guarantees it.
        unsafe { Self::block_total(product.warp_sum()) }
    }

    /// As [`Output::block_sum`], from each warp's sum in its lane 0.
    ///
    /// # Safety
    /// As for [`Output::block_sum`].
    #[inline(always)]
    pub unsafe fn block_total(sum: f64) -> f64 {
        let s = Shared::<f64>::at(0);
        if thread_idx().is_multiple_of(WARP) {
            // SAFETY: one slot a warp, at most 32 warps a block.
            unsafe { s.set((thread_idx() / WARP) as usize, sum) };
        }
        barrier!();
        let mut total = 0.0;
        if thread_idx() == 0 {
            let mut w = 0;
            while w < block_dim() / WARP {
                // SAFETY: as above; the barrier ordered the writes.
                total += unsafe { s.get(w as usize) };
                w += 1;
            }
        }
        total
    }

    /// Ends a launch: each block leaves its sum, and the last block to do so adds them up, in block order, and
    /// publishes the total.
    ///
    /// # Safety
    /// All threads of all blocks call it, once, as their last act; the grid is one-dimensional; `partials` has
    /// gridDim.x places; see [`Output::block_sum`] for the shared memory.
    #[inline(always)]
    pub unsafe fn finish(self, product: LogProduct) {
        // SAFETY: the caller guarantees it.
        unsafe { self.finish_with(product, || ()) }
    }

    /// As [`Output::finish`]; all threads of the last block call `last`, which sees what all blocks have written before this.
    ///
    /// # Safety
    /// As for [`Output::finish`].
    #[inline(always)]
    pub unsafe fn finish_with(self, product: LogProduct, last: impl FnOnce()) {
        let s = Shared::<f64>::at(0);
        // SAFETY: the caller guarantees it.
        unsafe {
            let sum = Self::block_sum(product);
            if grid_dim() == 1 {
                if thread_idx() == 0 {
                    publish(self.total, sum);
                }
                last();
                return;
            }
            if thread_idx() == 0 {
                store(self.partials.add(block_idx() as usize), sum);
                let before = count_up(self.ticket, 1);
                s.set(0, if before == grid_dim() - 1 { 1.0 } else { 0.0 });
            }
            barrier!();
            if s.get(0) == 1.0 {
                // The first warp adds them, in an order that depends on the grid alone; the reads of a round are
                // independent, so that their latencies overlap.
                if thread_idx() < WARP {
                    let mut sum = 0.0;
                    let mut start = thread_idx();
                    while start < grid_dim() {
                        let mut v = [0.0f64; ROUND as usize];
                        let mut r = 0;
                        while r < ROUND {
                            let b = start + r * WARP;
                            if b < grid_dim() {
                                v[r as usize] = load_fresh(self.partials.add(b as usize));
                            }
                            r += 1;
                        }
                        let mut r = 0;
                        while r < ROUND {
                            sum += v[r as usize];
                            r += 1;
                        }
                        start += ROUND * WARP;
                    }
                    let sum = warp_sum(sum);
                    if thread_idx() == 0 {
                        store(self.ticket, 0);
                        publish(self.total, sum);
                    }
                }
                last();
            }
        }
    }
}
