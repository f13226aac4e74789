//! A group of lanes, one for each state.
use super::*;
use crate::math::{Float, butterfly, float64, join_over, sum_over};
use crate::simt::*;

/// The exponent field of a scale of one.
pub(super) const ONE: u32 = 1023;

/// Below this a probability does not matter.
const NOTHING: f64 = 1e-290;

/// A lane of a group of `C` lanes.
#[derive(Clone, Copy)]
pub(super) struct Group<const C: usize> {
    /// The group's number in the grid.
    pub number: u32,
    pub lane: u32,
    /// Two vectors of the group, used in turn.
    slots: Shared<f64>,
}

impl<const C: usize> Group<C> {
    #[inline(always)]
    pub fn new() -> Self {
        let (thread, c) = (thread_idx(), C as u32);
        let number = block_idx() * (block_dim() / c) + thread / c;
        Self { number, lane: thread % c, slots: Shared::at(0).offset(thread as usize / C * (2 * C)) }
    }

    /// The lane's number of an array (C,).
    /// Safety: it exists, and no thread writes there during the launch.
    #[inline(always)]
    pub unsafe fn load(self, from: *const f64) -> f64 {
        f64::load(from.wrapping_add(self.lane as usize))
    }

    /// The lane's column of the transitions, or of the transposed ones.
    #[inline(always)]
    pub fn column<T>(self, args: &ChainArgs<T>, transposed: bool) -> [f64; C] {
        let first = args.parameters.wrapping_add(2 * C + if transposed { C * C } else { 0 });
        let mut column = [0.0; C];
        counted!(for i in 0..C {
            // SAFETY: within the parameters.
            column[i] = unsafe { self.load(first.wrapping_add(i * C)) };
        });
        column
    }

    /// Shows the lane's number to the group, in one of two places. All lanes of the warp take part.
    /// Safety: the calls alternate between the places.
    #[inline(always)]
    pub unsafe fn show(self, turn: usize, v: f64) -> Shared<f64> {
        let slots = self.slots.offset(turn * C);
        // SAFETY: a place for each lane. What stood there was read before the latest `warp_sync`.
        slots.set(self.lane as usize, v);
        warp_sync();
        slots
    }

    /// The sum over the group. All lanes of the warp take part.
    #[inline(always)]
    pub fn sum(self, v: f64) -> f64 {
        sum_over(v, C as u32 - 1)
    }
}

/// The product of the group's numbers with a column, and the upper half of the largest number's bits.
/// Safety: the numbers were written before `warp_sync`.
#[inline(always)]
pub(super) unsafe fn times<const C: usize>(numbers: Shared<f64>, column: &[f64; C]) -> (f64, u32) {
    let (mut products, mut largest) = ([0.0; 4], 0);
    counted!(for i in (0..C).step_by(2) {
        let pair = numbers.get_pair(i);
        counted!(for l in 0..2 {
            products[(i + l) % 4] = fma64(pair[l], column[i + l], products[(i + l) % 4]);
            largest = larger((pair[l].to_bits() >> 32) as u32, largest);
        });
    });
    ((products[0] + products[1]) + (products[2] + products[3]), largest)
}

#[inline(always)]
fn larger<T: PartialOrd>(a: T, b: T) -> T {
    if b > a { b } else { a }
}

/// The largest of the lanes' numbers; all lanes of the warp take part.
#[inline(always)]
pub(super) fn most(x: u32) -> u32 {
    butterfly(x, WARP - 1, |x, distance| larger(x, shuffle_xor_u32(x, distance)))
}

/// Whether two probabilities are the same, up to a relative difference. NaN is not.
#[inline(always)]
pub(super) fn near(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * b + NOTHING
}

/// Some rows of a sequence.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    /// The first row, and the row after the last.
    pub first: u32,
    pub end: u32,
    /// Those of the sequence.
    pub sequence: u32,
    pub sequence_end: u32,
}

impl Chunk {
    /// A chunk, a sequence without rows unless it `exists`.
    /// Safety: it is one of the chunks if it exists.
    #[inline(always)]
    pub unsafe fn load<T>(args: &ChainArgs<T>, number: u32, exists: bool) -> Self {
        let mut numbers = [0; CHUNK];
        if exists {
            let from = args.chunks.wrapping_add(number as usize * CHUNK);
            counted!(for i in 0..CHUNK {
                numbers[i] = load_u32(from.wrapping_add(i));
            });
        }
        let [first, end, sequence, sequence_end] = numbers;
        Self { first, end, sequence, sequence_end }
    }

    /// Whether the chunk begins its sequence.
    #[inline(always)]
    pub fn begins(self) -> bool {
        self.first == self.sequence
    }

    /// Whether the chunk ends its sequence.
    #[inline(always)]
    pub fn finishes(self) -> bool {
        self.end == self.sequence_end
    }
}

/// Rows in the order in which a recursion visits them.
#[derive(Clone, Copy)]
pub(super) struct Walk {
    pub first: u32,
    pub rows: u32,
    pub back: bool,
}

impl Walk {
    /// The row that is visited as the `n`-th.
    #[inline(always)]
    pub fn row(self, n: u32) -> usize {
        (if self.back { self.first - n } else { self.first + n }) as usize
    }

    /// The exponents of a state in [`AHEAD`] rows, from the `n`-th visited one: −∞ behind the last.
    /// Safety: the rows exist.
    #[inline(always)]
    pub unsafe fn exponents<T: Float>(self, args: &ChainArgs<T>, state: u32, n: u32) -> [T; AHEAD] {
        let mut q = [T::narrow(f64::NEG_INFINITY); AHEAD];
        counted!(for r in 0..AHEAD {
            if n + (r as u32) < self.rows && state < args.k {
                // SAFETY: row and component exist.
                q[r] = load(place(args, state, self.row(n + r as u32)));
            }
        });
        q
    }
}

/// The address of a state's exponent in a row.
#[inline(always)]
pub(super) fn place<T>(args: &ChainArgs<T>, state: u32, row: usize) -> *mut T {
    args.q.wrapping_add(state as usize * args.stride as usize + row)
}

/// The densities of the lane's state over the largest of the group, from exponents, and log₂ of the largest: −∞ where
/// no state reaches a row. All lanes of the warp take part.
#[inline(always)]
pub(super) fn densities<T: Float, const C: usize>(q: [T; AHEAD], factor: f64) -> ([f64; AHEAD], [f64; AHEAD]) {
    let (mut densities, mut largest) = ([0.0; AHEAD], [0.0; AHEAD]);
    counted!(for r in 0..AHEAD {
        let q = q[r].wide() + factor;
        largest[r] = join_over(q, C as u32 - 1, larger);
        // −∞ − −∞ is NaN.
        densities[r] = if q > f64::NEG_INFINITY { float64::exp2(q - largest[r]) } else { 0.0 };
    });
    (densities, largest)
}

/// The exponent field of the power of two that brings a normal number to 1 to below 2, from the upper half of its bits.
#[inline(always)]
pub(super) fn scale_of(upper: u32) -> u32 {
    2046u32.wrapping_sub(upper >> 20)
}

/// Whether a number is above [`LEAST`] and finite, by the upper half of its bits.
#[inline(always)]
pub(super) fn is_kept(upper: u32) -> bool {
    upper > (LEAST.to_bits() >> 32) as u32 && upper < (f64::INFINITY.to_bits() >> 32) as u32
}

/// The power of two of this exponent field.
#[inline(always)]
pub(super) fn power(field: u32) -> f64 {
    f64::from_bits((field as u64) << 52)
}
