use super::*;
use crate::math::warp_sum;
use crate::simt::*;

kernel! {
    /// `totals[set]` = Σ over `count` blocks of `partials[set, block]`, in a fixed order, by one warp for each set.
    pub unsafe fn reduce_sets(args: ReduceSetsArgs) {
        let ReduceSetsArgs { partials, count, totals } = args;
        let set = block_idx() as usize;
        let mut sum = 0.0;
        counted!(for b in (thread_idx()..count).step_by(WARP) {
            // SAFETY: b < count.
            sum += load(partials.add(set * count as usize + b as usize));
        });
        let sum = warp_sum(sum);
        if thread_idx() == 0 {
            // SAFETY: a place for each set.
            store(totals.add(set), sum);
        }
    }
}
