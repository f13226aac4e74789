use super::*;
use crate::chain::group::{Chunk, Group, ONE, Walk, densities, is_kept, most, near, place, power, scale_of, times};
use crate::chain::{AHEAD, LEAST};
use crate::math::{Float, float64, sum_over};
use crate::simt::*;

/// The largest relative difference between neighbours.
const SAME: f64 = 1e-12;

/// A chunk and the lane's state.
#[derive(Clone, Copy)]
struct Lane<'a, T, const C: usize> {
    args: &'a PosteriorsArgs<T>,
    group: Group<C>,
    chunk: Chunk,
    /// The chunk's number.
    number: u32,
    /// The rows forwards.
    walk: Walk,
    /// c of the state.
    factor: f64,
}

/// The lane's numbers after the forward recursion.
#[derive(Clone, Copy)]
struct Forward {
    /// α of the last row, and its scale.
    alpha: f64,
    scale: u32,
    /// log₂ of the chunk's probability.
    log2: f64,
}

impl<T: Float, const C: usize> Lane<'_, T, C> {
    /// A number of an end of a chunk, or `otherwise` if the chunk has no such end.
    /// Safety: the end exists if `exists`.
    #[inline(always)]
    unsafe fn end(self, number: u32, which: usize, exists: bool, otherwise: f64) -> f64 {
        if !exists {
            return otherwise;
        }
        self.group.load(self.args.chain.ends.wrapping_add((number as usize * 2 + which) * C))
    }

    /// p(state | rows before) of the row before the first; 0 if there is none.
    #[inline(always)]
    fn entry(self) -> f64 {
        // SAFETY: such a chunk has the end.
        unsafe { self.end(self.number, 0, !self.chunk.begins(), 0.0) }
    }

    /// The address of α in a row.
    #[inline(always)]
    fn alpha(self, row: usize) -> *mut f64 {
        self.args.alpha.wrapping_add(row * C + self.group.lane as usize)
    }

    /// NaN if `x` holds in any lane of the group, else 0. All lanes of the warp take part.
    #[inline(always)]
    fn nan_if(self, x: bool) -> f64 {
        self.group.sum(if x { f64::NAN } else { 0.0 })
    }

    /// The forward recursion, through `rounds` rows at least.
    /// Safety: all lanes of the warp take part; the chunk's rows exist.
    #[inline(always)]
    unsafe fn forward(self, rounds: u32) -> Forward {
        let Self { args, group, chunk, walk, factor, .. } = self;
        let watched = args.chain.watched != 0;
        let column = group.column(&args.chain, false);
        // The slots of the chunk before have been read.
        warp_sync();
        // SAFETY: within the parameters; the first turn.
        let mut predicted = {
            let (product, _) = times(group.show(0, self.entry()), &column);
            if chunk.begins() { group.load(args.chain.parameters.wrapping_add(C)) } else { product }
        };
        let (mut alpha, mut scale, mut logs, mut exponents, mut lost) = (0.0, ONE, 0.0, 0, false);
        // SAFETY: rows of the chunk.
        let mut q = walk.exponents(&args.chain, group.lane, 0);
        counted!(for n in (0..rounds).step_by(AHEAD as u32) {
            let next = walk.exponents(&args.chain, group.lane, n + AHEAD as u32);
            let (densities, most_dense) = densities::<T, C>(q, factor);
            q = next;
            counted!(for r in 0..AHEAD {
                let v = predicted * densities[r];
                // SAFETY: the turns alternate, as there is an even number of rows.
                let (product, largest) = times(group.show((r + 1) % 2, v), &column);
                if n + (r as u32) < walk.rows {
                    lost |= watched && predicted > 0.0 && v < LEAST;
                    lost |= !is_kept(largest);
                    scale = scale_of(largest);
                    alpha = v * power(scale);
                    predicted = product * power(scale);
                    logs += most_dense[r];
                    exponents += ONE as i32 - scale as i32;
                    let row = walk.row(n + r as u32);
                    // SAFETY: a place for each state, and one for the row.
                    store(self.alpha(row), alpha);
                    if group.lane == 0 {
                        store(args.scales.wrapping_add(row), scale);
                    }
                }
            });
        });
        let sum = group.sum(alpha);
        // SAFETY: the next chunk has this end if this one does not end the sequence.
        let next = self.end(self.number + 1, 0, !chunk.finishes(), alpha / sum);
        let nan = self.nan_if(lost || !near(alpha / sum, next, SAME));
        Forward { alpha, scale, log2: logs + exponents as f64 + float64::log2(sum) + nan }
    }

    /// α and the scale of the rows before those that are visited from the `n`-th on, backwards.
    /// Safety: `forward` stored them.
    #[inline(always)]
    unsafe fn before(self, back: Walk, n: u32, entry: f64) -> ([f64; AHEAD], [u32; AHEAD]) {
        let (mut alphas, mut scales) = ([entry; AHEAD], [ONE; AHEAD]);
        counted!(for r in 0..AHEAD {
            let n = n + r as u32 + 1;
            if n < back.rows {
                let row = back.row(n);
                // SAFETY: written by this group, and read in other lanes only after a `warp_sync`.
                (alphas[r], scales[r]) = (load(self.alpha(row)), load(self.args.scales.wrapping_add(row)));
            }
        });
        (alphas, scales)
    }

    /// The backward recursion, through `rounds` rows at least. Adds to the sums of pairs. Returns γ of the first row if
    /// the chunk begins a sequence, else zero, and NaN if β is not the end of the chunk before, else zero.
    /// Safety: as for [`Self::forward`], after it.
    #[inline(always)]
    unsafe fn backward(self, rounds: u32, forward: Forward, weight: f64, pairs: &mut [f64; C]) -> (f64, f64) {
        let Self { args, group, chunk, walk, factor, .. } = self;
        let back = Walk { first: chunk.end.wrapping_sub(1), rows: walk.rows, back: true };
        let column = group.column(&args.chain, true);
        let Forward { mut alpha, mut scale, .. } = forward;
        let entry = self.entry();
        // SAFETY: the chunk has this end if it does not end the sequence.
        let exit = self.end(self.number, 1, !chunk.finishes(), 1.0);
        let mut beta = exit * (weight / group.sum(alpha * exit));
        let mut first = 0.0;
        // SAFETY: rows of the chunk.
        let mut q = back.exponents(&args.chain, group.lane, 0);
        counted!(for n in (0..rounds).step_by(AHEAD as u32) {
            let (densities, _) = densities::<T, C>(q, factor);
            // SAFETY: rows of the chunk, after `forward`.
            let (alphas, scales) = {
                q = back.exponents(&args.chain, group.lane, n + AHEAD as u32);
                self.before(back, n, entry)
            };
            written_out!(for r in 0..AHEAD {
                // No way leads to a state whose α is zero; its β may be infinite.
                let v = if alpha > 0.0 { densities[r] * power(scale) * beta } else { 0.0 };
                let exists = n + (r as u32) < back.rows;
                // SAFETY: as in `forward`.
                let weighted = group.show((r + 1) % 2, if exists { v } else { 0.0 });
                let mut products = [0.0; 2];
                counted!(for j in (0..C).step_by(2) {
                    // SAFETY: written before `warp_sync`.
                    let pair = weighted.get_pair(j);
                    counted!(for l in 0..2 {
                        products[l] = computed(fma64(pair[l], column[j + l], products[l]));
                        pairs[j + l] = computed(fma64(alphas[r], pair[l], pairs[j + l]));
                    });
                });
                if exists {
                    let gamma = if alpha > 0.0 { alpha * beta } else { 0.0 };
                    if group.lane < args.chain.k {
                        // SAFETY: row and component exist; only this lane reads or writes there.
                        store(place(&args.chain, group.lane, back.row(n + r as u32)), T::narrow(gamma));
                    }
                    first = gamma;
                    beta = products[0] + products[1];
                    (alpha, scale) = (alphas[r], scales[r]);
                }
            });
        });
        // γ of the row before, up to a factor, from both chunks.
        let joined = |beta: f64| if entry > 0.0 { entry * beta } else { 0.0 };
        // SAFETY: the chunk before has this end.
        let theirs = joined(self.end(self.number.wrapping_sub(1), 1, !chunk.begins(), 1.0));
        let ours = joined(beta);
        let same = near(ours / group.sum(ours), theirs / group.sum(theirs), SAME);
        let nan = self.nan_if(!(same || chunk.begins() || weight == 0.0));
        (if chunk.begins() { first } else { 0.0 }, nan)
    }
}

#[inline(always)]
unsafe fn body<T: Float, const C: usize>(args: &PosteriorsArgs<T>) {
    let group = Group::<C>::new();
    let unit = args.units.wrapping_add(group.number as usize);
    let [from, to] = if group.number < args.n {
        // SAFETY: the unit exists.
        [load_u32(unit), load_u32(unit.wrapping_add(1))]
    } else {
        [0, 0]
    };
    // SAFETY: within the parameters.
    let factor = group.load(args.chain.parameters);
    let (mut pairs, mut start) = ([0.0; C], 0.0);
    // The bounds are the same for all lanes of the warp, so that all take part in exchanges.
    let chunks = most(to - from);
    counted!(for i in 0..chunks {
        let number = from + i;
        let here = number < to;
        // SAFETY: the chunk exists, and so do its rows and ends; all lanes of the warp take part.
        let chunk = Chunk::load(&args.chain, number, here);
        let weight = if here { f64::load(args.weights.wrapping_add(number as usize)) } else { 0.0 };
        let walk = Walk { first: chunk.first, rows: chunk.end - chunk.first, back: false };
        let rounds = most(walk.rows);
        let lane = Lane { args, group, chunk, number, walk, factor };
        let forward = lane.forward(rounds);
        // The scales of lane 0 are visible to the others.
        warp_sync();
        let (first, nan) = lane.backward(rounds, forward, weight, &mut pairs);
        if here && group.lane == 0 {
            store(args.log2.wrapping_add(number as usize), forward.log2 + nan);
        }
        start += first;
    });
    // The same state's lanes of the warp's groups.
    let others = (WARP - 1) ^ (C as u32 - 1);
    start = sum_over(start, others);
    counted!(for j in 0..C {
        pairs[j] = sum_over(pairs[j], others);
    });
    // The first group of a warp writes.
    if thread_idx() % WARP < C as u32 && group.number < args.n {
        let to = args.sums.wrapping_add(group.number as usize * C / WARP as usize * sums(C) + group.lane as usize);
        // SAFETY: the warp has a place for each sum.
        counted!(for j in 0..C {
            store(to.wrapping_add(j * C), pairs[j]);
        });
        store(to.wrapping_add(C * C), start);
    }
}

kernels! {
    /// Computes the posteriors of all rows, and their sums.
    chain_posteriors_k04_f32: PosteriorsArgs<f32> = body::<f32, 4>;
    chain_posteriors_k08_f32: PosteriorsArgs<f32> = body::<f32, 8>;
    chain_posteriors_k16_f32: PosteriorsArgs<f32> = body::<f32, 16>;
    chain_posteriors_k32_f32: PosteriorsArgs<f32> = body::<f32, 32>;
    chain_posteriors_k04_f64: PosteriorsArgs<f64> = body::<f64, 4>;
    chain_posteriors_k08_f64: PosteriorsArgs<f64> = body::<f64, 8>;
    chain_posteriors_k16_f64: PosteriorsArgs<f64> = body::<f64, 16>;
    chain_posteriors_k32_f64: PosteriorsArgs<f64> = body::<f64, 32>;
}
