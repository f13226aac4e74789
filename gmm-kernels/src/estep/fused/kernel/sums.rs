use super::*;

/// The sums of a lane's component: Σ r, and the first and second moments.
pub(crate) struct ComponentSums<const D: usize, const MATRIX: usize> {
    pub(crate) count: f32,
    pub(crate) first: [f32; D],
    pub(crate) second: [f32; MATRIX],
}

impl<const D: usize, const MATRIX: usize> ComponentSums<D, MATRIX> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { count: 0.0, first: [0.0; D], second: [0.0; MATRIX] }
    }

    /// Adds samples, each with the responsibilities likelihood · factor.
    #[inline(always)]
    pub(crate) fn accumulate<const FULL: bool, const SAMPLES: usize>(
        &mut self,
        z: &[[f32; SAMPLES]; D],
        likelihoods: &[f32; SAMPLES],
        factor: &[f32; SAMPLES],
    ) {
        written_out!(for p in 0..SAMPLES {
            let r = likelihoods[p] * factor[p];
            self.count += r;
            written_out!(for i in 0..D {
                let rz = r * z[i][p];
                self.first[i] += rz;
                // Row i of A; of a diagonal, one element.
                let (start, row) = if FULL { (i * (i + 1) / 2, 0) } else { (0, i) };
                counted!(for j in row..=i {
                    self.second[start + j] = fma(rz, z[j][p], self.second[start + j]);
                });
            });
        });
    }

    /// Moves the sums to an array, and leaves zeros.
    #[inline(always)]
    pub(crate) fn take<const SUMS: usize>(&mut self) -> [f32; SUMS] {
        let mut sums = [0.0f32; SUMS];
        (sums[0], self.count) = (self.count, 0.0);
        counted!(for j in 0..D {
            (sums[1 + j], self.first[j]) = (self.first[j], 0.0);
        });
        counted!(for j in 0..MATRIX {
            (sums[1 + D + j], self.second[j]) = (self.second[j], 0.0);
        });
        sums
    }
}

/// Adds the lanes' float32 sums in float64 over the groups of lanes: calls `take` with v·LANES + l and sum v of lane l,
/// each in one lane. The lanes exchange sums through `room` (`size` numbers). All lanes take part.
/// Safety: no lane needs the contents of `room`.
#[inline(always)]
pub(crate) unsafe fn add_lanes<const LANES: usize, const SUMS: usize>(
    sums: &[f32; SUMS],
    room: Shared<f32>,
    size: usize,
    take: impl Fn(usize, f64),
) {
    let (warp, lane) = (WARP as usize, (thread_idx() % WARP) as usize);
    // As many sums at once as there is room for.
    let most = size / warp;
    let mut start = 0;
    while start < SUMS {
        let end = if SUMS - start < most { SUMS } else { start + most };
        warp_sync();
        counted!(for v in 0..SUMS {
            if v >= start && v < end {
                // SAFETY: inside; only this lane uses the places.
                room.set((v - start) * warp + lane, sums[v]);
            }
        });
        warp_sync();
        counted!(for o in (lane..(end - start) * LANES).step_by(warp) {
            let (v, lane) = (o / LANES, o % LANES);
            let mut sum = 0.0f64;
            counted!(for group in 0..warp / LANES {
                // SAFETY: written before all lanes met.
                sum += room.get(v * warp + group * LANES + lane) as f64;
            });
            take(start * LANES + o, sum);
        });
        start = end;
    }
}
