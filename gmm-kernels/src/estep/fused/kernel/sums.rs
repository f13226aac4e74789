use super::*;

/// The sums of a lane's components: Σ r, and the first and second moments.
pub(crate) struct ComponentSums<const COMPONENTS: usize, const D: usize, const MATRIX: usize> {
    pub(crate) count: [f32; COMPONENTS],
    pub(crate) first: [[f32; D]; COMPONENTS],
    pub(crate) second: [[f32; MATRIX]; COMPONENTS],
}

impl<const COMPONENTS: usize, const D: usize, const MATRIX: usize> ComponentSums<COMPONENTS, D, MATRIX> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { count: [0.0; COMPONENTS], first: [[0.0; D]; COMPONENTS], second: [[0.0; MATRIX]; COMPONENTS] }
    }

    /// Adds samples, each with the responsibilities likelihood · factor.
    #[inline(always)]
    pub(crate) fn accumulate<const RAW: bool, const FULL: bool, const SAMPLES: usize>(
        &mut self,
        x: &[[f32; SAMPLES]; D],
        z: &[[[f32; SAMPLES]; D]; COMPONENTS],
        likelihoods: &[[f32; SAMPLES]; COMPONENTS],
        factor: &[f32; SAMPLES],
    ) {
        written_out!(for p in 0..SAMPLES {
            let mut r = [0.0f32; COMPONENTS];
            counted!(for c in 0..COMPONENTS {
                r[c] = likelihoods[c][p] * factor[p];
                self.count[c] += r[c];
            });
            written_out!(for i in 0..D {
                if RAW {
                    let square = x[i][p] * x[i][p];
                    counted!(for c in 0..COMPONENTS {
                        self.first[c][i] = fma(r[c], x[i][p], self.first[c][i]);
                        self.second[c][i] = fma(r[c], square, self.second[c][i]);
                    });
                } else {
                    counted!(for c in 0..COMPONENTS {
                        let rz = r[c] * z[c][i][p];
                        self.first[c][i] += rz;
                        // Row i of A; of a diagonal, one element.
                        let (start, row) = if FULL { (i * (i + 1) / 2, 0) } else { (0, i) };
                        counted!(for j in row..=i {
                            self.second[c][start + j] = fma(rz, z[c][j][p], self.second[c][start + j]);
                        });
                    });
                }
            });
        });
    }

    /// Moves the sums of component `c` to an array, and leaves zeros.
    #[inline(always)]
    pub(crate) fn take<const SUMS: usize>(&mut self, c: usize) -> [f32; SUMS] {
        let mut sums = [0.0f32; SUMS];
        (sums[0], self.count[c]) = (self.count[c], 0.0);
        counted!(for j in 0..D {
            (sums[1 + j], self.first[c][j]) = (self.first[c][j], 0.0);
        });
        counted!(for j in 0..MATRIX {
            (sums[1 + D + j], self.second[c][j]) = (self.second[c][j], 0.0);
        });
        sums
    }
}

/// Adds the lanes' float32 sums to the warp's float64 sums: sum v in lane l, over the groups, goes to
/// `warp_sums[(v·LANES + l)·COMPONENTS]`. The lanes exchange sums through `room` (`size` numbers). All lanes take part.
/// Safety: `warp_sums` has these places, which only this warp uses, and no lane needs the contents of `room`.
#[inline(always)]
pub(crate) unsafe fn flush<const LANES: usize, const COMPONENTS: usize, const SUMS: usize>(
    warp_sums: Shared<f64>,
    sums: &[f32; SUMS],
    room: Shared<f32>,
    size: usize,
) {
    let add = |at: usize, sum: f64| {
        let at = at * COMPONENTS;
        // SAFETY: a place for each lane's turn.
        warp_sums.set(at, warp_sums.get(at) + sum);
    };
    add_lanes::<LANES, SUMS>(sums, room, size, add);
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
