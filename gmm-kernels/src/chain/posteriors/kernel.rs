use super::*;
use crate::chain::group::{Chunk, Group, densities, most, place, power, scale_of};
use crate::chain::{AHEAD, LEAST, WHOLE};
use crate::math::{Float, float64, sum_over};
use crate::simt::*;

/// The field of a scale of one.
const ONE: u32 = 1023;

/// A chunk and the lane's state.
#[derive(Clone, Copy)]
struct Lane<'a, T, const C: usize> {
    args: &'a PosteriorsArgs<T>,
    chunk: Chunk,
    lane: u32,
    /// c of the state.
    factor: f64,
    /// Two vectors of the group, used in turn.
    slots: Shared<f64>,
}

/// A column of a matrix, in registers or in shared memory.
struct Column<const C: usize> {
    numbers: [f64; C],
    shared: Shared<f64>,
}

impl<const C: usize> Column<C> {
    /// Safety: the number exists.
    #[inline(always)]
    unsafe fn get(&self, i: usize) -> f64 {
        // SAFETY: the caller guarantees it; the memory is written before the first barrier, and then only read.
        if in_shared_memory(C) { unsafe { self.shared.get(i * C) } } else { self.numbers[i] }
    }
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
    /// Shows the lane's number to the group, in one of two places. All lanes of the warp take part.
    /// Safety: the calls alternate between the places.
    #[inline(always)]
    unsafe fn show(self, turn: usize, v: f64) -> Shared<f64> {
        let slots = self.slots.offset(turn * C);
        // SAFETY: a place for each lane. What stood there was read before the latest `warp_sync`.
        unsafe { slots.set(self.lane as usize, v) };
        warp_sync();
        slots
    }

    /// A number of the chunk's `which` end.
    /// Safety: the chunk has ends.
    #[inline(always)]
    unsafe fn end(self, which: usize) -> f64 {
        let at = (self.chunk.ends as usize * 2 + which) * C + self.lane as usize;
        // SAFETY: the caller guarantees it.
        unsafe { f64::load(self.args.ends.wrapping_add(at)) }
    }

    /// The lane's column of the transitions, or of the transposed ones.
    #[inline(always)]
    fn column(self, transposed: bool) -> Column<C> {
        let offset = usize::from(transposed) * C * C + self.lane as usize;
        let mut column = Column { numbers: [0.0; C], shared: Shared::at(0).offset(offset) };
        if !in_shared_memory(C) {
            counted!(for i in 0..C {
                // SAFETY: within the parameters.
                column.numbers[i] =
                    unsafe { f64::load(self.args.chain.parameters.wrapping_add(2 * C + offset + i * C)) };
            });
        }
        column
    }

    /// The address of α in a row.
    #[inline(always)]
    fn alpha(self, row: usize) -> *mut f64 {
        self.args.alpha.wrapping_add(row * C + self.lane as usize)
    }

    /// Stores α and the scale of a row.
    /// Safety: the row exists.
    #[inline(always)]
    unsafe fn keep(self, row: usize, alpha: f64, scale: u32) {
        // SAFETY: a place for each state, and one for the row.
        unsafe {
            store(self.alpha(row), alpha);
            if self.lane == 0 {
                store(self.args.scales.wrapping_add(row), scale);
            }
        }
    }

    /// The forward recursion, through `rounds` rows at least.
    /// Safety: all lanes of the warp take part; the chunk's rows exist.
    #[inline(always)]
    unsafe fn forward(self, rounds: u32) -> Forward {
        let Self { args, chunk, lane, factor, .. } = self;
        let watched = args.chain.watched != 0;
        let transitions = self.column(false);
        // SAFETY: within the parameters; a chunk that does not begin a sequence has ends.
        let (start, mut v) = unsafe {
            let start = f64::load(args.chain.parameters.wrapping_add(C + lane as usize));
            (start, if chunk.begins { 0.0 } else { self.end(0) })
        };
        let (mut logs, mut exponents, mut lost) = (0.0, 0, false);
        counted!(for n in (0..rounds).step_by(AHEAD as u32) {
            // SAFETY: rows of the chunk.
            let (densities, largest) = unsafe { densities::<T, C, false>(&args.chain, chunk, lane, n, factor) };
            written_out!(for r in 0..AHEAD {
                // SAFETY: the turns alternate, as there is an even number of rows.
                let before = unsafe { self.show(r % 2, v) };
                let (mut products, mut sums) = ([0.0; 2], [0.0; 2]);
                counted!(for i in (0..C).step_by(2) {
                    // SAFETY: written before `warp_sync`.
                    let (pair, a) = unsafe { (before.get_pair(i), [transitions.get(i), transitions.get(i + 1)]) };
                    counted!(for l in 0..2 {
                        products[l] = fma64(pair[l], a[l], products[l]);
                        sums[l] += pair[l];
                    });
                });
                let n = n + r as u32;
                if n < chunk.rows {
                    let (mut predicted, sum) = (products[0] + products[1], sums[0] + sums[1]);
                    if n > 0 {
                        let scale = scale_of(sum);
                        // SAFETY: the row before this one.
                        unsafe { self.keep(chunk.row::<false>(n - 1), v * power(scale), scale) };
                        predicted *= power(scale);
                        exponents += ONE as i32 - scale as i32;
                        lost |= sum.is_nan() || sum <= LEAST;
                    } else if chunk.begins {
                        predicted = start;
                    }
                    v = predicted * densities[r];
                    lost |= watched && predicted > 0.0 && v < LEAST;
                    // NaN if no state reaches the row.
                    lost |= largest[r] == f64::NEG_INFINITY;
                    logs += largest[r];
                }
            });
        });
        let sum = sum_over(v, C as u32 - 1);
        let scale = scale_of(sum);
        lost |= sum.is_nan() || sum <= LEAST;
        // NaN if any lane has lost a probability.
        let nan = sum_over(if lost { f64::NAN } else { 0.0 }, C as u32 - 1);
        let alpha = v * power(scale);
        if chunk.rows > 0 {
            // SAFETY: the last row.
            unsafe { self.keep(chunk.row::<false>(chunk.rows - 1), alpha, scale) };
        }
        let log2 = logs + (exponents + ONE as i32 - scale as i32) as f64 + float64::log2(sum * power(scale));
        Forward { alpha, scale, log2: log2 + nan }
    }

    /// The backward recursion, through `rounds` rows at least. Adds to the sums of pairs, and returns γ of the first
    /// row if the chunk begins a sequence, else zero.
    /// Safety: as for [`Self::forward`], after it.
    #[inline(always)]
    unsafe fn backward(self, rounds: u32, forward: Forward, weight: f64, pairs: &mut [f64; C]) -> f64 {
        let Self { args, chunk, lane, factor, .. } = self;
        let transitions = self.column(true);
        let Forward { mut alpha, mut scale, .. } = forward;
        // SAFETY: such a chunk has ends.
        let exit = if chunk.ends == WHOLE { 1.0 } else { unsafe { self.end(1) } };
        // SAFETY: as above.
        let entry = if chunk.begins { 0.0 } else { unsafe { self.end(0) } };
        let mut beta = exit * (weight / sum_over(alpha * exit, C as u32 - 1));
        let mut first = 0.0;
        counted!(for n in (0..rounds).step_by(AHEAD as u32) {
            // SAFETY: rows of the chunk.
            let (densities, _) = unsafe { densities::<T, C, true>(&args.chain, chunk, lane, n, factor) };
            let (mut alphas, mut scales) = ([entry; AHEAD], [ONE; AHEAD]);
            counted!(for r in 0..AHEAD {
                // Those of the row before.
                if n + (r as u32) + 1 < chunk.rows {
                    let row = chunk.row::<true>(n + r as u32 + 1);
                    // SAFETY: written by this group, and read in other lanes only after a `warp_sync`.
                    (alphas[r], scales[r]) = unsafe { (load(self.alpha(row)), load(args.scales.wrapping_add(row))) };
                }
            });
            written_out!(for r in 0..AHEAD {
                // No way leads to a state whose α is zero; its β may be infinite.
                let v = if alpha > 0.0 { densities[r] * power(scale) * beta } else { 0.0 };
                let exists = n + (r as u32) < chunk.rows;
                // SAFETY: as in `forward`.
                let weighted = unsafe { self.show(r % 2, if exists { v } else { 0.0 }) };
                let mut products = [0.0; 2];
                counted!(for j in (0..C).step_by(2) {
                    // SAFETY: written before `warp_sync`.
                    let (pair, a) = unsafe { (weighted.get_pair(j), [transitions.get(j), transitions.get(j + 1)]) };
                    counted!(for l in 0..2 {
                        products[l] = computed(fma64(pair[l], a[l], products[l]));
                        pairs[j + l] = computed(fma64(alphas[r], pair[l], pairs[j + l]));
                    });
                });
                if exists {
                    let gamma = if alpha > 0.0 { alpha * beta } else { 0.0 };
                    if lane < args.chain.k {
                        // SAFETY: row and component exist; only this lane reads or writes there.
                        unsafe {
                            let row = chunk.row::<true>(n + r as u32);
                            store(place(&args.chain, lane, row), T::narrow(gamma));
                        }
                    }
                    first = gamma;
                    beta = products[0] + products[1];
                    (alpha, scale) = (alphas[r], scales[r]);
                }
            });
        });
        if chunk.begins { first } else { 0.0 }
    }
}

#[inline(always)]
unsafe fn body<T: Float, const C: usize>(args: &PosteriorsArgs<T>) {
    let Group { number, lane } = Group::new::<C>();
    let exists = number < args.n;
    let [from, to] = if exists {
        let unit = args.units.wrapping_add(number as usize);
        // SAFETY: the unit exists.
        unsafe { [load_u32(unit), load_u32(unit.wrapping_add(1))] }
    } else {
        [0, 0]
    };
    // SAFETY: within the parameters.
    let factor = unsafe { f64::load(args.chain.parameters.wrapping_add(lane as usize)) };
    let thread = thread_idx() as usize;
    if in_shared_memory(C) {
        counted!(for i in (thread..2 * C * C).step_by(block_dim() as usize) {
            // SAFETY: as many numbers in both places.
            unsafe { Shared::<f64>::at(0).set(i, f64::load(args.chain.parameters.wrapping_add(2 * C + i))) };
        });
        barrier!();
    }
    let slots = Shared::<f64>::at(matrix_bytes(C)).offset(thread / C * (2 * C));
    let (mut pairs, mut start) = ([0.0; C], 0.0);
    // The bounds are the same for all lanes of the warp, so that all take part in exchanges.
    let chunks = most(to - from);
    counted!(for i in 0..chunks {
        let number = from + i;
        let here = number < to;
        // SAFETY: the chunk exists, and so do its rows and ends; all lanes of the warp take part.
        unsafe {
            let chunk = Chunk::load(&args.chain, number, here);
            let weight = if here { f64::load(args.weights.wrapping_add(number as usize)) } else { 0.0 };
            let rounds = most(chunk.rows);
            let lane = Lane::<T, C> { args, chunk, lane, factor, slots };
            let forward = lane.forward(rounds);
            // The scales of lane 0 are visible to the others.
            warp_sync();
            if here && lane.lane == 0 {
                store(args.log2.wrapping_add(number as usize), forward.log2);
            }
            start += lane.backward(rounds, forward, weight, &mut pairs);
        }
    });
    if exists {
        let to = args.sums.wrapping_add(number as usize * sums(C) + lane as usize);
        // SAFETY: the unit has a place for each sum.
        unsafe {
            counted!(for j in 0..C {
                store(to.wrapping_add(j * C), pairs[j]);
            });
            store(to.wrapping_add(C * C), start);
        }
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
