use super::*;
use crate::chain::group::{Chunk, Group, Walk, densities, is_kept, most, near, power, scale_of, times};
use crate::chain::{AHEAD, LEAST};
use crate::math::Float;
use crate::simt::*;

/// The largest relative difference between ends from few and from more rows: below that of neighbours.
const SAME: f64 = 1e-13;

/// A lane on its way to an end.
#[derive(Clone, Copy)]
struct Lane<'a, T, const C: usize> {
    args: &'a ChainArgs<T>,
    group: Group<C>,
    /// The first row behind the end: the walk's last row is the one before it.
    border: u32,
    back: bool,
}

impl<T: Float, const C: usize> Lane<'_, T, C> {
    /// The end, from some rows before it and p(state) of the first up to a factor: NaN if a probability was lost.
    /// Safety: all lanes of the warp take part; the rows exist.
    #[inline(always)]
    unsafe fn walk(self, rows: u32, first: f64, column: &[f64; C]) -> f64 {
        let Self { args, group, border, back } = self;
        let watched = args.watched != 0;
        // SAFETY: within the parameters.
        let factor = group.load(args.parameters);
        let start = if back { border.wrapping_add(rows).wrapping_sub(1) } else { border.wrapping_sub(rows) };
        let walk = Walk { first: start, rows, back };
        let (mut predicted, mut v, mut lost) = (first, 0.0, false);
        // SAFETY: rows of the walk.
        let mut q = walk.exponents(args, group.lane, 0);
        // The bound is the same for all lanes of the warp, so that all take part in exchanges.
        let rounds = most(rows);
        counted!(for n in (0..rounds).step_by(AHEAD as u32) {
            let next = walk.exponents(args, group.lane, n + AHEAD as u32);
            let (densities, _) = densities::<T, C>(q, factor);
            q = next;
            counted!(for r in 0..AHEAD {
                let here = predicted * densities[r];
                // SAFETY: the turns alternate, as there is an even number of rows.
                let (product, largest) = times(group.show(r % 2, here), column);
                if n + (r as u32) < rows {
                    lost |= watched && predicted > 0.0 && here < LEAST;
                    lost |= !is_kept(largest);
                    v = here;
                    predicted = product * power(scale_of(largest));
                }
            });
        });
        let end = if back { predicted } else { v };
        // NaN if any lane has lost a probability.
        end / group.sum(if lost { f64::NAN } else { end })
    }
}

#[inline(always)]
unsafe fn body<T: Float, const C: usize>(args: &EndsArgs<T>) {
    let group = Group::<C>::new();
    let (chain, back) = (&args.chain, group.number >= args.n);
    let number = if back { group.number - args.n } else { group.number };
    // SAFETY: the chunk exists if its number is below theirs.
    let chunk = Chunk::load(chain, number, number < args.n);
    let available = if back { chunk.sequence_end - chunk.end } else { chunk.first - chunk.sequence };
    let border = if back { chunk.end } else { chunk.first };
    let column = group.column(chain, back);
    let lane = Lane { args: chain, group, border, back };
    let (mut end, mut rows) = (0.0, FEWEST);
    let mut known = available == 0;
    while warp_any(!known) {
        let here = if known { 0 } else { smaller(rows, available) };
        let whole = here == available;
        // SAFETY: π is within the parameters; the walk's rows belong to the sequence; all lanes of the warp take part.
        let found = {
            let start = group.load(chain.parameters.wrapping_add(C));
            let any = if group.lane < chain.k { 1.0 } else { 0.0 };
            lane.walk(here, if whole && !back { start } else { any }, &column)
        };
        let differ = group.sum(if near(found, end, SAME) { 0.0 } else { 1.0 }) > 0.0;
        if !known {
            end = found;
            known = whole || !differ || rows >= MOST;
        }
        rows *= 2;
    }
    if available > 0 {
        let to = chain.ends.wrapping_add((number as usize * 2 + usize::from(back)) * C + group.lane as usize);
        // SAFETY: a place for each state of both ends.
        store(to, end);
    }
}

#[inline(always)]
fn smaller(a: u32, b: u32) -> u32 {
    if b < a { b } else { a }
}

kernels! {
    /// Computes the probabilities at the ends of chunks.
    chain_ends_k04_f32: EndsArgs<f32> = body::<f32, 4>;
    chain_ends_k08_f32: EndsArgs<f32> = body::<f32, 8>;
    chain_ends_k16_f32: EndsArgs<f32> = body::<f32, 16>;
    chain_ends_k32_f32: EndsArgs<f32> = body::<f32, 32>;
    chain_ends_k04_f64: EndsArgs<f64> = body::<f64, 4>;
    chain_ends_k08_f64: EndsArgs<f64> = body::<f64, 8>;
    chain_ends_k16_f64: EndsArgs<f64> = body::<f64, 16>;
    chain_ends_k32_f64: EndsArgs<f64> = body::<f64, 32>;
}
