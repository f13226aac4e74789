//! Pairs of a warp, for at most 8·ROWS features.
//!
//! The lanes form a grid of eight rows and four columns. Lane (r, c) holds the entries (r + 8·a, c + 4·b) of T, in the
//! places (a, b) with b ≤ 2·a + 1; others are wholly above the diagonal. COLUMNS is 2·ROWS.
use super::super::*;
use super::determinant::{Determinant, ROUNDING};
use crate::math::{Float, smaller};
use crate::simt::*;

/// Rows and columns of lanes.
const LANES: (usize, usize) = (8, 4);
/// The numbers of x − μ of a lane: its own, and the one of 32 features further on.
const OWN: usize = MAX_FEATURES / WARP as usize;

/// A lane, and the two stages of its warp in turn.
struct Lane<const ROWS: usize, const COLUMNS: usize> {
    lane: usize,
    row: usize,
    column: usize,
    /// The warp's number in the grid, and the number of all.
    warp: u32,
    warps: u32,
    stages: Shared<f64>,
    turn: usize,
    /// The lane's numbers of E, place by place.
    e: Shared<f64>,
}

/// A lane's part of a pair.
struct Pair<const ROWS: usize, const COLUMNS: usize> {
    t: [[f64; COLUMNS]; ROWS],
    /// x − μ, and the limits of its features' pivots.
    y: [f64; OWN],
    limits: [f64; OWN],
    seed: f64,
}

impl<const ROWS: usize, const COLUMNS: usize> Lane<ROWS, COLUMNS> {
    const FEATURES: usize = LANES.0 * ROWS;
    const STAGE: usize = Self::FEATURES + BESIDE;

    #[inline(always)]
    fn new() -> Self {
        let (warp, lane, warps) = (thread_idx() / WARP, (thread_idx() % WARP) as usize, block_dim() / WARP);
        let stages = Shared::at(0).offset(warp as usize * 2 * Self::STAGE);
        let sums = Shared::at(0).offset(warps as usize * 2 * Self::STAGE);
        Self {
            lane,
            row: lane / LANES.1,
            column: lane % LANES.1,
            warp: block_idx() * warps + warp,
            warps: grid_dim() * warps,
            stages,
            turn: 0,
            e: sums.offset(warp as usize * places(ROWS) * WARP as usize + lane),
        }
    }

    /// The stage to write to now; the other one may still be read.
    #[inline(always)]
    fn stage(&self) -> Shared<f64> {
        self.stages.offset(self.turn * Self::STAGE)
    }

    /// Ends the writes to the stage, and returns it.
    #[inline(always)]
    fn exchange(&mut self) -> Shared<f64> {
        let stage = self.stage();
        warp_sync();
        self.turn ^= 1;
        stage
    }

    /// Safety: sample and component exist.
    #[inline(always)]
    unsafe fn pair(&self, args: &PairsArgs, sample: usize, c: usize) -> Pair<ROWS, COLUMNS> {
        let d = args.d as usize;
        let (noise, step) = (args.noise_of(sample), args.entry_stride as usize);
        // The places of all entries would take the registers of T.
        let (row, column) = (opaque(self.row as u32) as usize, opaque(self.column as u32) as usize);
        // SAFETY: numbers of the sample and of the component.
        let (covariance, seed, mean) = args.component(c);
        let total = |i: usize, j: usize| {
            let covariance = f64::load(covariance.add(triangle(i) + j));
            match (args.noise.is_null(), args.diagonal != 0) {
                (true, _) => covariance,
                (false, false) => covariance + f64::load(noise.add((triangle(i) + j) * step)),
                (false, true) if i == j => covariance + f64::load(noise.add(i * step)),
                (false, true) => covariance,
            }
        };
        let mut pair = Pair { t: [[0.0; COLUMNS]; ROWS], y: [0.0; OWN], limits: [0.0; OWN], seed };
        written_out!(for a in 0..ROWS {
            counted!(for b in 0..2 * a + 2 {
                let (i, j) = (row + LANES.0 * a, column + LANES.1 * b);
                if i < d && j <= i {
                    pair.t[a][b] = total(i, j);
                }
            });
        });
        counted!(for s in 0..OWN {
            let own = self.lane + WARP as usize * s;
            if own < d {
                pair.y[s] = f64::load(args.x.add(own * args.stride as usize + sample)) - f64::load(mean.add(own));
                pair.limits[s] = ROUNDING * total(own, own);
            }
        });
        pair
    }

    /// Writes column k of T, which is in the places of row `a`, to the stage, with −1 on the diagonal, and leaves zeros:
    /// what a step adds is then the same everywhere. The part above the diagonal, of row k, only if it is wanted.
    /// Safety: all lanes of the warp call it.
    #[inline(always)]
    unsafe fn give<const ALL: bool>(&self, pair: &mut Pair<ROWS, COLUMNS>, a: usize, k: usize) {
        let stage = self.stage();
        // SAFETY: each entry has one owner.
        counted!(for b in 2 * a..2 * a + 2 {
            if self.column + LANES.1 * b == k {
                if self.row + LANES.0 * a >= k {
                    let on_diagonal = self.row + LANES.0 * a == k;
                    let place = if on_diagonal { Self::FEATURES } else { self.row + LANES.0 * a };
                    stage.set(place, pair.t[a][b]);
                    pair.t[a][b] = 0.0;
                }
                counted!(for below in a + 1..ROWS {
                    stage.set(self.row + LANES.0 * below, pair.t[below][b]);
                    pair.t[below][b] = 0.0;
                });
            }
        });
        if ALL && self.row + LANES.0 * a == k {
            counted!(for b in 0..2 * a + 2 {
                let j = self.column + LANES.1 * b;
                if j < k {
                    stage.set(j, pair.t[a][b]);
                    pair.t[a][b] = 0.0;
                }
            });
        }
        let s = LANES.0 * a / WARP as usize;
        if self.lane + WARP as usize * s == k {
            stage.set(k, -1.0);
            stage.set(Self::FEATURES + 1, pair.limits[s]);
            stage.set(Self::FEATURES + 2, pair.y[s]);
            pair.y[s] = 0.0;
        }
    }

    /// Sweeps T of a pair; returns q. `ALL`: T becomes −T⁻¹, and x − μ becomes u.
    /// Safety: all lanes of the warp call it, with the same pair.
    #[inline(always)]
    unsafe fn sweep<const ALL: bool>(&mut self, pair: &mut Pair<ROWS, COLUMNS>, d: usize) -> f64 {
        let (mut determinant, mut square) = (Determinant::ONE, 0.0);
        written_out!(for rows in 0..ROWS {
            let end = opaque(smaller(LANES.0 * (rows + 1), d) as u32) as usize;
            let first = if ALL { 0 } else { rows };
            counted!(for k in LANES.0 * rows..end {
                not_unrolled();
                // SAFETY: the lanes meet between the writes and the reads of a stage, and so before the next but one.
                self.give::<ALL>(pair, rows, k);
                let stage = self.exchange();
                let inverse = determinant.multiply(stage.get(Self::FEATURES), stage.get(Self::FEATURES + 1));
                let y = stage.get(Self::FEATURES + 2);
                let share = y * inverse;
                square = fma64(share, y, square);
                counted!(for s in 0..OWN {
                    let own = self.lane + WARP as usize * s;
                    if own < Self::FEATURES {
                        pair.y[s] = fma64(-stage.get(own), share, pair.y[s]);
                    }
                });
                let mut factors = [0.0; ROWS];
                counted!(for a in first..ROWS {
                    factors[a] = -inverse * stage.get(self.row + LANES.0 * a);
                });
                written_out!(for b in (if ALL { 0 } else { 2 * rows })..COLUMNS {
                    let column = stage.get(self.column + LANES.1 * b);
                    counted!(for a in b / 2..ROWS {
                        pair.t[a][b] = fma64(factors[a], column, pair.t[a][b]);
                    });
                });
            });
        });
        determinant.density(pair.seed, square)
    }

    /// Adds a pair's r·(u·uᵀ − T⁻¹) to E, and r·u to h.
    /// Safety: all lanes of the warp call it, with the same pair.
    #[inline(always)]
    unsafe fn add(&mut self, r: f64, pair: &Pair<ROWS, COLUMNS>, h: &mut [f64; OWN]) {
        // SAFETY: the lanes meet between writes and reads; the numbers of E are the lane's.
        let stage = self.stage();
        counted!(for s in 0..OWN {
            h[s] = fma64(r, pair.y[s], h[s]);
            if self.lane + WARP as usize * s < Self::FEATURES {
                stage.set(self.lane + WARP as usize * s, pair.y[s]);
            }
        });
        let stage = self.exchange();
        written_out!(for a in 0..ROWS {
            let scaled = r * stage.get(self.row + LANES.0 * a);
            counted!(for b in 0..2 * a + 2 {
                let place = (places(a) + b) * WARP as usize;
                let with_u = fma64(scaled, stage.get(self.column + LANES.1 * b), self.e.get(place));
                self.e.set(place, fma64(r, pair.t[a][b], with_u));
            });
        });
    }
}

/// Computes q of each pair.
/// Safety: the kernels' contract.
#[inline(always)]
pub(super) unsafe fn density<const ROWS: usize, const COLUMNS: usize>(args: &PairsArgs) {
    let mut lane = Lane::<ROWS, COLUMNS>::new();
    counted!(for task in (lane.warp as u64..args.n as u64 * args.k as u64).step_by(lane.warps as u64) {
        let (sample, c) = ((task / args.k as u64) as usize, (task % args.k as u64) as usize);
        // SAFETY: the pair exists, and its warp takes part.
        let mut pair = lane.pair(args, sample, c);
        let q = lane.sweep::<false>(&mut pair, args.d as usize);
        if lane.lane == 0 {
            store(args.q_of(c, sample), q);
        }
    });
}

/// Computes the sums of each component and slice.
/// Safety: the kernels' contract.
#[inline(always)]
pub(super) unsafe fn sums_of_slices<const ROWS: usize, const COLUMNS: usize>(args: &SumsArgs) {
    let mut lane = Lane::<ROWS, COLUMNS>::new();
    let d = args.pairs.d as usize;
    counted!(for task in (lane.warp..args.pairs.k * args.slices).step_by(lane.warps) {
        let (slice, c) = (task / args.pairs.k, task % args.pairs.k);
        let (mut n, mut h) = (0.0, [0.0; OWN]);
        counted!(for place in 0..places(ROWS) {
            // SAFETY: a number of the lane.
            lane.e.set(place * WARP as usize, 0.0);
        });
        let (start, end) = args.samples(slice);
        counted!(for sample in start..end {
            // SAFETY: the pair exists, and its warp takes part.
            let r = load(args.pairs.q_of(c as usize, sample));
            if r > NEGLIGIBLE {
                let mut pair = lane.pair(&args.pairs, sample, opaque(c) as usize);
                lane.sweep::<true>(&mut pair, d);
                n += r;
                lane.add(r, &pair, &mut h);
            }
        });
        // SAFETY: each sum has one owner.
        if lane.lane == 0 {
            args.put((c, slice), 0, n);
        }
        counted!(for s in 0..OWN {
            let own = lane.lane + WARP as usize * s;
            if own < d {
                args.put((c, slice), 1 + own, h[s]);
            }
        });
        written_out!(for a in 0..ROWS {
            counted!(for b in 0..2 * a + 2 {
                let (i, j) = (lane.row + LANES.0 * a, lane.column + LANES.1 * b);
                if i < d && j <= i {
                    let v = lane.e.get((places(a) + b) * WARP as usize);
                    args.put((c, slice), 1 + d + triangle(i) + j, v);
                }
            });
        });
    });
}
