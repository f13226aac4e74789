//! A group of lanes, one for each state.
use super::*;
use crate::math::{Float, butterfly, float64, join_over};
use crate::simt::*;

/// The lane's place in a group of `C` lanes.
#[derive(Clone, Copy)]
pub(super) struct Group {
    /// The group's number in the grid.
    pub number: u32,
    pub lane: u32,
}

impl Group {
    #[inline(always)]
    pub fn new<const C: usize>() -> Self {
        let (thread, c) = (thread_idx(), C as u32);
        Self { number: block_idx() * (block_dim() / c) + thread / c, lane: thread % c }
    }
}

/// The larger of two numbers.
#[inline(always)]
fn larger(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

/// The largest of the lanes' numbers; all lanes of the warp take part.
#[inline(always)]
pub(super) fn most(x: u32) -> u32 {
    butterfly(x, WARP - 1, |x, distance| {
        let other = shuffle_xor_u32(x, distance);
        if other > x { other } else { x }
    })
}

/// Some rows of a sequence.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    pub first: u32,
    pub rows: u32,
    /// The place of its ends.
    pub ends: u32,
    pub begins: bool,
}

impl Chunk {
    /// A chunk, without rows unless it `exists`.
    /// Safety: it is one of the chunks if it exists.
    #[inline(always)]
    pub unsafe fn load<T>(args: &ChainArgs<T>, number: u32, exists: bool) -> Self {
        let mut numbers = [0, 0, WHOLE, 1];
        if exists {
            let from = args.chunks.wrapping_add(number as usize * CHUNK);
            counted!(for i in 0..CHUNK {
                // SAFETY: the caller guarantees it.
                numbers[i] = unsafe { load_u32(from.wrapping_add(i)) };
            });
        }
        let [first, end, ends, begins] = numbers;
        Self { first, rows: end - first, ends, begins: begins != 0 }
    }

    /// The row that is visited as the `n`-th: forwards, or backwards.
    #[inline(always)]
    pub fn row<const BACK: bool>(self, n: u32) -> usize {
        (if BACK { self.first + self.rows - 1 - n } else { self.first + n }) as usize
    }
}

/// The address of a state's exponent in a row.
#[inline(always)]
pub(super) fn place<T>(args: &ChainArgs<T>, state: u32, row: usize) -> *mut T {
    args.q.wrapping_add(state as usize * args.stride as usize + row)
}

/// The densities of the lane's state in [`AHEAD`] rows, from the `n`-th visited one, over the largest of the group, and
/// log₂ of the largest: −∞ behind the last row, and where no state reaches a row. All lanes of the warp take part.
/// Safety: the chunk's rows exist.
#[inline(always)]
pub(super) unsafe fn densities<T: Float, const C: usize, const BACK: bool>(
    args: &ChainArgs<T>,
    chunk: Chunk,
    lane: u32,
    n: u32,
    factor: f64,
) -> ([f64; AHEAD], [f64; AHEAD]) {
    let mut q = [f64::NEG_INFINITY; AHEAD];
    counted!(for r in 0..AHEAD {
        if n + (r as u32) < chunk.rows && lane < args.k {
            // SAFETY: row and component exist.
            q[r] = unsafe { load(place(args, lane, chunk.row::<BACK>(n + r as u32))) }.wide() + factor;
        }
    });
    let mut largest = q;
    counted!(for r in 0..AHEAD {
        largest[r] = join_over(q[r], C as u32 - 1, larger);
        // −∞ − −∞ is NaN.
        q[r] = if q[r] > f64::NEG_INFINITY { float64::exp2(q[r] - largest[r]) } else { 0.0 };
    });
    (q, largest)
}

/// The exponent field of the power of two that brings a normal number to 1 to below 2.
#[inline(always)]
pub(super) fn scale_of(v: f64) -> u32 {
    2046u32.wrapping_sub((v.to_bits() >> 52) as u32)
}

/// The power of two of this exponent field.
#[inline(always)]
pub(super) fn power(field: u32) -> f64 {
    f64::from_bits((field as u64) << 52)
}
