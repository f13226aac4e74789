use super::*;
use crate::likelihood::small_k::THRESHOLD;
use crate::math::Float;

/// Combines the four numbers of the eight lanes of the same samples; each lane gets the result for its [`own_sample`].
#[inline(always)]
pub(super) fn scatter(v: Quad, combine: impl Fn(f32, f32) -> f32) -> f32 {
    let lane = thread_idx();
    let upper = lane & 16 != 0;
    let (keep, give) = if upper { (v[1], v[0]) } else { (v[0], v[1]) };
    let v = [combine(keep[0], give[0].shuffle_xor(16)), combine(keep[1], give[1].shuffle_xor(16))];
    let upper = lane & 8 != 0;
    let (keep, give) = if upper { (v[1], v[0]) } else { (v[0], v[1]) };
    let v = combine(keep, give.shuffle_xor(8));
    combine(v, v.shuffle_xor(4))
}

/// The inverse: distributes each lane's number to all lanes of the same sample.
#[inline(always)]
pub(super) fn gather(v: f32) -> Quad {
    let lane = thread_idx();
    let other = v.shuffle_xor(8);
    let v = if lane & 8 != 0 { [other, v] } else { [v, other] };
    let other = [v[0].shuffle_xor(16), v[1].shuffle_xor(16)];
    if lane & 16 != 0 { [other, v] } else { [v, other] }
}

/// The sample of a group whose likelihood this lane holds; two lanes hold each.
#[inline(always)]
pub(super) fn own_sample() -> u32 {
    let lane = thread_idx() % WARP;
    4 * (lane % 4) + 2 * (lane / 16) + lane / 8 % 2
}

/// Scales sums of products, and adds the constant of the component.
#[inline(always)]
pub(super) fn finish_exponents(q: &mut Quad, scale: f32, constant: f32) {
    counted!(for p in 0..QUAD {
        q[p / 2][p % 2] = fma(q[p / 2][p % 2], scale, constant);
    });
}

pub(super) struct Likelihoods<const N: usize, const G: usize> {
    /// Likelihoods of each of the lane's components.
    pub(super) each: [Components<N>; G],
    /// Of the lane's own sample, over all components; times 2^−`power`, as `each` is.
    pub(super) sum: [f32; G],
    pub(super) power: [f32; G],
    /// Whether the maximum was subtracted.
    pub(super) far: bool,
}

impl<const N: usize, const G: usize> Likelihoods<N, G> {
    /// Computes likelihoods from exponents and weights. All lanes of the warp call it.
    #[inline(always)]
    pub(super) fn new(q: &[Components<N>; G], weights: &[f32; N]) -> Self {
        let mut likelihoods = Self { each: *q, sum: [0.0; G], power: [0.0; G], far: N > 1 };
        if N == 1 {
            let mut low = f32::MAX;
            counted!(for g in 0..G {
                likelihoods.sum[g] = sum(&mut likelihoods.each[g], weights, [[0.0; 2]; 2]);
                low = min(low, likelihoods.sum[g]);
            });
            likelihoods.far = warp_any(low < THRESHOLD);
        }
        if likelihoods.far {
            counted!(for g in 0..G {
                let mut top = q[g][0];
                counted!(for i in QUAD..N * QUAD {
                    let top = &mut top[i / 2 % 2][i % 2];
                    *top = max(*top, q[g][i / QUAD][i / 2 % 2][i % 2]);
                });
                likelihoods.power[g] = scatter(top, max);
                likelihoods.each[g] = q[g];
                likelihoods.sum[g] = sum(&mut likelihoods.each[g], weights, gather(likelihoods.power[g]));
            });
        }
        likelihoods
    }
}

/// Turns a group's exponents less `power` into likelihoods, and adds them up.
#[inline(always)]
fn sum<const N: usize>(q: &mut Components<N>, weights: &[f32; N], power: Quad) -> f32 {
    let mut sums = [[0.0; 2]; 2];
    counted!(for n in 0..N {
        counted!(for p in 0..QUAD {
            let (a, b) = (p / 2, p % 2);
            q[n][a][b] = weights[n] * exp2(q[n][a][b] - power[a][b]);
            sums[a][b] = if n == 0 { q[n][a][b] } else { sums[a][b] + q[n][a][b] };
        });
    });
    scatter(sums, |a, b| a + b)
}
