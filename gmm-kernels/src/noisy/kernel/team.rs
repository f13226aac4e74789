//! Pairs of a team: SIDE² warps for at most 32·SIDE features.
//!
//! The threads form a grid of 8·SIDE rows and 4·SIDE columns. Thread (r, c) holds the entries of every 8·SIDE-th row from
//! r on and every 4·SIDE-th column from c on, in ROWS × COLUMNS places. Places wholly above the diagonal are unused.
use super::super::*;
use super::{Determinant, NEGLIGIBLE, ROUNDING};
use crate::math::Float;
use crate::simt::*;

const ROWS: usize = 4;
const COLUMNS: usize = 8;

/// Numbers of a thread for a lower triangle.
type Entries = [[f64; COLUMNS]; ROWS];

/// Whether a place has entries of the lower triangle: there are twice as many rows of threads as columns.
const fn used(a: usize, b: usize) -> bool {
    b <= 2 * a + 1
}

/// A thread of a team, and the two stages of the team in turn.
struct Team<const SIDE: usize> {
    /// The number of the team in the grid, and the number of teams.
    number: u32,
    of: u32,
    thread: usize,
    row: usize,
    column: usize,
    stages: Shared<f64>,
    turn: usize,
}

/// T of a pair, and a number of x − μ in each of the first D threads.
struct Pair {
    t: Entries,
    y: f64,
    limit: f64,
    seed: f64,
}

impl<const SIDE: usize> Team<SIDE> {
    /// Rows and columns of threads, and the most features.
    const SHAPE: (usize, usize) = (8 * SIDE, 4 * SIDE);
    const FEATURES: usize = 32 * SIDE;

    #[inline(always)]
    fn new() -> Self {
        let (threads, (_, columns)) = ((SIDE * SIDE) as u32 * WARP, Self::SHAPE);
        let (team, thread) = (thread_idx() / threads, (thread_idx() % threads) as usize);
        let teams = block_dim() / threads;
        Self {
            number: block_idx() * teams + team,
            of: grid_dim() * teams,
            thread,
            row: thread / columns,
            column: thread % columns,
            stages: Shared::at(0).offset(team as usize * 2 * (Self::FEATURES + BESIDE)),
            turn: 0,
        }
    }

    /// The stage to write to now; the other one may still be read.
    #[inline(always)]
    fn stage(&self) -> Shared<f64> {
        self.stages.offset(self.turn * (Self::FEATURES + BESIDE))
    }

    /// The row and the column of an entry.
    #[inline(always)]
    fn entry(&self, a: usize, b: usize) -> (usize, usize) {
        (self.row + Self::SHAPE.0 * a, self.column + Self::SHAPE.1 * b)
    }

    /// Safety: sample and component exist.
    #[inline(always)]
    unsafe fn pair(&self, args: &PairsArgs, sample: usize, c: usize) -> Pair {
        let d = args.d as usize;
        let (noise, step) = (args.noise_of(sample), args.entry_stride as usize);
        // The places of all entries would take the registers of the sums.
        let (row, column) = (opaque(self.row as u32) as usize, opaque(self.column as u32) as usize);
        // SAFETY: numbers of the sample and of the component.
        unsafe {
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
            let mut pair = Pair { t: [[0.0; COLUMNS]; ROWS], y: 0.0, limit: 0.0, seed };
            counted!(for a in 0..ROWS {
                counted!(for b in 0..COLUMNS {
                    let (i, j) = (row + Self::SHAPE.0 * a, column + Self::SHAPE.1 * b);
                    if used(a, b) && i < d && j <= i {
                        pair.t[a][b] = total(i, j);
                    }
                });
            });
            let own = self.thread;
            if own < d {
                pair.y = f64::load(args.x.add(own * args.stride as usize + sample)) - f64::load(mean.add(own));
                pair.limit = ROUNDING * total(own, own);
            }
            pair
        }
    }

    /// Writes column k of T to the stage, with −1 on the diagonal, and leaves zeros: what a step adds is then the same
    /// everywhere.
    /// Safety: all threads of the team call it.
    #[inline(always)]
    unsafe fn give(&self, pair: &mut Pair, k: usize) {
        let (stage, (rows, columns)) = (self.stage(), Self::SHAPE);
        // SAFETY: each entry has one owner.
        unsafe {
            counted!(for b in 0..COLUMNS {
                if b == k / columns && self.column == k % columns {
                    counted!(for a in 0..ROWS {
                        let i = self.entry(a, b).0;
                        if used(a, b) && i >= k {
                            stage.set(if i == k { Self::FEATURES } else { i }, pair.t[a][b]);
                            pair.t[a][b] = 0.0;
                        }
                    });
                }
            });
            counted!(for a in 0..ROWS {
                if a == k / rows && self.row == k % rows {
                    counted!(for b in 0..COLUMNS {
                        let j = self.entry(a, b).1;
                        if used(a, b) && j < k {
                            stage.set(j, pair.t[a][b]);
                            pair.t[a][b] = 0.0;
                        }
                    });
                }
            });
            if self.thread == k {
                stage.set(k, -1.0);
                stage.set(Self::FEATURES + 1, pair.limit);
                stage.set(Self::FEATURES + 2, pair.y);
                pair.y = 0.0;
            }
        }
    }

    /// Sweeps T of a pair; returns q. `ALL`: T becomes −T⁻¹, and x − μ becomes u.
    /// Safety: all threads of the team call it, with the same pair.
    #[inline(always)]
    unsafe fn sweep<const ALL: bool>(&mut self, pair: &mut Pair, d: usize) -> f64 {
        let (mut determinant, mut square) = (Determinant::ONE, 0.0);
        let rows = Self::SHAPE.0;
        counted!(for k in 0..d {
            not_unrolled();
            // SAFETY: the threads meet between the writes and the reads of a stage, and so before the next but one.
            unsafe {
                self.give(pair, k);
                if SIDE == 1 {
                    warp_sync();
                } else {
                    barrier!();
                }
                let stage = self.stage();
                self.turn ^= 1;
                let inverse = determinant.multiply(stage.get(Self::FEATURES), stage.get(Self::FEATURES + 1));
                let y = stage.get(Self::FEATURES + 2);
                let share = y * inverse;
                square = fma64(share, y, square);
                if self.thread < d {
                    pair.y = fma64(-stage.get(self.thread), share, pair.y);
                }
                let mut column = [0.0; COLUMNS];
                counted!(for b in 0..COLUMNS {
                    column[b] = stage.get(self.entry(0, b).1);
                });
                counted!(for a in 0..ROWS {
                    if rows * a < d && (ALL || rows * (a + 1) > k) {
                        let factor = -inverse * stage.get(self.entry(a, 0).0);
                        counted!(for b in 0..COLUMNS {
                            if used(a, b) {
                                pair.t[a][b] = fma64(factor, column[b], pair.t[a][b]);
                            }
                        });
                    }
                });
            }
        });
        determinant.density(pair.seed, square)
    }
}

/// Computes q of each pair.
/// Safety: the kernels' contract.
#[inline(always)]
pub(super) unsafe fn density<const SIDE: usize>(args: &PairsArgs) {
    let mut team = Team::<SIDE>::new();
    counted!(for task in (team.number as u64..args.n as u64 * args.k as u64).step_by(team.of as u64) {
        let (sample, c) = ((task / args.k as u64) as usize, (task % args.k as u64) as usize);
        // SAFETY: the pair exists, and its team takes part.
        unsafe {
            let mut pair = team.pair(args, sample, c);
            let q = team.sweep::<false>(&mut pair, args.d as usize);
            if team.thread == 0 {
                store(args.q_of(c, sample), q);
            }
        }
    });
}

/// Computes the sums of each component and slice.
/// Safety: the kernels' contract.
#[inline(always)]
pub(super) unsafe fn sums_of_slices<const SIDE: usize>(args: &SumsArgs) {
    let mut team = Team::<SIDE>::new();
    let d = args.pairs.d as usize;
    counted!(for task in (team.number..args.pairs.k * args.slices).step_by(team.of) {
        let (slice, c) = (task / args.pairs.k, task % args.pairs.k);
        let (mut n, mut h, mut e): (f64, f64, Entries) = (0.0, 0.0, [[0.0; COLUMNS]; ROWS]);
        let (start, end) = args.samples(slice);
        counted!(for sample in start..end {
            // SAFETY: the pair exists, and its team takes part; the threads meet between writes and reads.
            unsafe {
                let r = load(args.pairs.q_of(c as usize, sample));
                if r > NEGLIGIBLE {
                    let mut pair = team.pair(&args.pairs, sample, opaque(c) as usize);
                    team.sweep::<true>(&mut pair, d);
                    let stage = team.stage();
                    if team.thread < Team::<SIDE>::FEATURES {
                        stage.set(team.thread, pair.y);
                    }
                    if SIDE == 1 {
                        warp_sync();
                    } else {
                        barrier!();
                    }
                    team.turn ^= 1;
                    n += r;
                    h = fma64(r, pair.y, h);
                    counted!(for a in 0..ROWS {
                        let scaled = r * stage.get(team.entry(a, 0).0);
                        counted!(for b in 0..COLUMNS {
                            if used(a, b) {
                                let with_u = fma64(scaled, stage.get(team.entry(0, b).1), e[a][b]);
                                e[a][b] = fma64(r, pair.t[a][b], with_u);
                            }
                        });
                    });
                }
            }
        });
        // SAFETY: each sum has one owner.
        unsafe {
            if team.thread == 0 {
                args.put((c, slice), 0, n);
            }
            if team.thread < d {
                args.put((c, slice), 1 + team.thread, h);
            }
            counted!(for a in 0..ROWS {
                counted!(for b in 0..COLUMNS {
                    let (i, j) = team.entry(a, b);
                    if used(a, b) && i < d && j <= i {
                        args.put((c, slice), 1 + d + triangle(i) + j, e[a][b]);
                    }
                });
            });
        }
    });
}
