//! The samples of a thread, and their exponents under the reference.
use super::*;
use crate::math::Float;

/// A warp's samples as the products take them.
pub(super) struct Samples<const S: usize> {
    pub(super) high: [[Halves; 4]; S],
    pub(super) low: [[Halves; 4]; S],
}

impl<const S: usize> Samples<S> {
    #[inline(always)]
    pub(super) fn new(x: &Features<S>) -> Self {
        let mut samples = Self { high: [[0; 4]; S], low: [[0; 4]; S] };
        counted!(for s in 0..S {
            counted!(for i in 0..4 {
                let v = x[s][i / 2][i % 2];
                let [high, low] = split_halves(FEATURE_SCALE * v, SQUARE_SCALE * (v * v));
                samples.high[s][i] = high;
                samples.low[s][i] = low;
            });
        });
        samples
    }
}

/// Starts to read this thread's features of its two samples, the first of which is number `sample`. No number depends
/// on a condition, at which a thread would wait for it instead of in [`take`].
/// Safety: the columns are valid.
#[inline(always)]
pub(super) unsafe fn fetch<const S: usize>(columns: &Columns, d: usize, sample: u64) -> Features<S> {
    let lane = (thread_idx() % WARP) as usize;
    // Past the end the first samples are read again, and not counted.
    let sample = if sample < columns.n { sample as usize } else { 0 };
    let mut x = [[[0.0f32; ROWS]; 2]; S];
    counted!(for s in 0..S {
        counted!(for h in 0..2 {
            let feature = FEATURES * s + 4 * h + lane % 4;
            // Behind D the last feature is read again, and has coefficients of zero.
            let feature = if feature < d { feature } else { d - 1 };
            // SAFETY: the feature and the samples' quad exist.
            x[s][h] = load_f32x2(columns.x.wrapping_add(feature * columns.stride as usize + sample));
        });
    });
    x
}

/// Returns the features that have arrived, with zeros if the second sample does not exist.
#[inline(always)]
pub(super) fn take<const S: usize>(mut x: Features<S>, second_exists: bool) -> Features<S> {
    let is_one = thread_idx() % 4 == FEATURES as u32 % 4;
    counted!(for s in 0..S {
        counted!(for h in 0..2 {
            // The memory behind the end may hold anything.
            x[s][h][1] = if second_exists { x[s][h][1] } else { 0.0 };
        });
        counted!(for r in 0..ROWS {
            x[s][1][r] = if is_one { ONE } else { x[s][1][r] };
        });
    });
    x
}

/// Writes the reference's exponents of the thread's samples for a quarter of the components; the other lanes with the
/// same samples write the rest. A sample past the end is far from all components. All lanes of the warp call it.
/// Safety: `components` components of the reference are in shared memory, and each exponent has a place.
#[inline(always)]
pub(super) unsafe fn write_exponents<const S: usize>(
    x: &Features<S>,
    (reference, components): (Shared<f32>, usize),
    exists: [bool; ROWS],
    exponents: Shared<f32>,
) {
    /// Below [`THRESHOLD`] whatever the difference.
    const NOWHERE: f32 = -1e30;
    let lane = (thread_idx() % WARP) as usize;
    let row = reference_row(FEATURES * S);
    counted!(for first in (0..components).step_by(COMPONENTS) {
        let mine = reference.offset((first + 2 * (lane % 4)) * row);
        let mut q = [0.0f32; 4];
        counted!(for p in 0..4 {
            q[p] = if exists[p / 2] { mine.get(p % 2 * row + 16 * S) } else { NOWHERE };
        });
        written_out!(for s in 0..S {
            counted!(for half_and_distance in 0..8 {
                let (h, distance) = (half_and_distance / 4, half_and_distance % 4);
                // The lane at this distance has this place of the half step.
                let place = 8 * s + 4 * h + ((lane % 4) ^ distance);
                let mut v = x[s][h];
                let mut r = 0;
                while distance > 0 && r < ROWS {
                    v[r] = v[r].shuffle_xor(distance as u32);
                    r += 1;
                }
                counted!(for u in 0..2 {
                    let [scale, shift] = mine.get_some::<2>(u * row + 2 * place);
                    counted!(for r in 0..ROWS {
                        let t = fma(scale, v[r], shift);
                        q[2 * r + u] = fma(-t, t, q[2 * r + u]);
                    });
                });
            });
        });
        exponents.set4((first / 2 + lane % 4) * 4 * (SAMPLES / ROWS), q);
    });
}
