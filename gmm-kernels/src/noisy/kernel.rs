mod determinant;
mod wide;

use super::*;
use crate::math::{Float, smaller, warp_sum};
use crate::simt::*;
use determinant::{Determinant, ROUNDING};

impl PairsArgs {
    /// The place of a sample's noise.
    #[inline(always)]
    fn noise_of(&self, sample: usize) -> *const f64 {
        self.noise.wrapping_add(sample * self.sample_stride as usize)
    }

    /// Σ, log₂ π − D/2·log₂ 2π, and μ of a component.
    /// Safety: the component exists.
    #[inline(always)]
    unsafe fn component(&self, c: usize) -> (*const f64, f64, *const f64) {
        let covariance = self.covariances.wrapping_add(c * self.covariance_stride as usize);
        (covariance, f64::load(self.seeds.add(c)), self.means.wrapping_add(c * self.d as usize))
    }

    /// The place of a pair's q.
    #[inline(always)]
    fn q_of(&self, c: usize, sample: usize) -> *mut f64 {
        self.q.wrapping_add(c * self.q_stride as usize + sample)
    }
}

/// A sample, and the lower triangle of its noise.
#[derive(Clone, Copy)]
struct Sample<const D: usize> {
    x: [f64; D],
    noise: [[f64; D]; D],
}

impl<const D: usize> Sample<D> {
    /// Safety: the sample exists.
    #[inline(always)]
    unsafe fn read(args: &PairsArgs, sample: usize) -> Self {
        let (noise, step) = (args.noise_of(sample), args.entry_stride as usize);
        let mut read = Self { x: [0.0; D], noise: [[0.0; D]; D] };
        // SAFETY: numbers of the sample.
        counted!(for i in 0..D {
            read.x[i] = f64::load(args.x.add(i * args.stride as usize + sample));
        });
        if !args.noise.is_null() && args.diagonal != 0 {
            counted!(for i in 0..D {
                read.noise[i][i] = f64::load(noise.add(i * step));
            });
        } else if !args.noise.is_null() {
            written_out!(for i in 0..D {
                counted!(for j in 0..=i {
                    read.noise[i][j] = f64::load(noise.add((triangle(i) + j) * step));
                });
            });
        }
        read
    }
}

/// The factors of a pair.
struct Pair<const D: usize> {
    /// L, with 1/p in the place of its diagonal.
    l: [[f64; D]; D],
    /// L⁻¹·(x − μ).
    y: [f64; D],
    q: f64,
}

impl<const D: usize> Pair<D> {
    /// Safety: the component exists.
    #[inline(always)]
    unsafe fn new(args: &PairsArgs, sample: &Sample<D>, c: usize) -> Self {
        let (mut l, mut y, mut limits) = (sample.noise, sample.x, [0.0; D]);
        // SAFETY: numbers of the component.
        let seed = {
            let (covariance, seed, mean) = args.component(c);
            written_out!(for i in 0..D {
                counted!(for j in 0..=i {
                    l[i][j] += f64::load(covariance.add(triangle(i) + j));
                });
                y[i] -= f64::load(mean.add(i));
                limits[i] = l[i][i] * ROUNDING;
            });
            seed
        };
        let (mut determinant, mut square) = (Determinant::ONE, 0.0);
        written_out!(for j in 0..D {
            let inverse = determinant.multiply(l[j][j], limits[j]);
            square = fma64(y[j] * inverse, y[j], square);
            written_out!(for i in (j + 1)..D {
                let share = l[i][j] * inverse;
                y[i] = fma64(-share, y[j], y[i]);
                // Column j of the rows before i holds shares.
                counted!(for k in j + 1..i {
                    l[i][k] = fma64(-l[i][j], l[k][j], l[i][k]);
                });
                l[i][i] = fma64(-l[i][j], share, l[i][i]);
                l[i][j] = share;
            });
            l[j][j] = inverse;
        });
        Self { l, y, q: determinant.density(seed, square) }
    }
}

/// Computes q of each pair.
/// Safety: the kernels' contract.
#[inline(always)]
unsafe fn density<const D: usize>(args: &PairsArgs) {
    let (warp, lane, warps) = (thread_idx() / WARP, thread_idx() % WARP, block_dim() / WARP);
    let groups = args.k.div_ceil(GROUP);
    let tasks = args.n.div_ceil(WARP) * groups;
    counted!(for task in (block_idx() * warps + warp..tasks).step_by(grid_dim() * warps) {
        // Neighbouring warps share samples, so that these come from the first-level cache.
        let (tile, first) = (task / groups, task % groups * GROUP);
        let sample = (tile * WARP + lane) as usize;
        if sample < args.n as usize {
            // SAFETY: sample and components exist.
            let read = Sample::<D>::read(args, sample);
            counted!(for c in first..smaller(first + GROUP, args.k) {
                not_unrolled();
                store(args.q_of(c as usize, sample), Pair::new(args, &read, c as usize).q);
            });
        }
    });
}

/// n, h and E of a component over some samples.
struct Sums<const D: usize> {
    n: f64,
    h: [f64; D],
    e: [[f64; D]; D],
}

impl<const D: usize> Sums<D> {
    #[inline(always)]
    fn add(&mut self, r: f64, pair: Pair<D>) {
        let Pair { mut l, y, .. } = pair;
        let mut u = [0.0; D];
        written_out!(for i in 0..D {
            let inverse = l[i][i];
            // Row i of L becomes that of L⁻¹.
            written_out!(for a in 0..i {
                let mut v = -l[i][a];
                counted!(for k in a + 1..i {
                    v = fma64(-l[i][k], l[k][a], v);
                });
                l[i][a] = v;
            });
            l[i][i] = 1.0;
            let (of_u, of_e) = (y[i] * inverse, -r * inverse);
            written_out!(for a in 0..(i + 1) {
                u[a] = fma64(l[i][a], of_u, u[a]);
                let factor = l[i][a] * of_e;
                counted!(for b in 0..=a {
                    self.e[a][b] = fma64(factor, l[i][b], self.e[a][b]);
                });
            });
        });
        self.n += r;
        written_out!(for a in 0..D {
            let scaled = r * u[a];
            self.h[a] += scaled;
            counted!(for b in 0..=a {
                self.e[a][b] = fma64(scaled, u[b], self.e[a][b]);
            });
        });
    }
}

impl SumsArgs {
    /// The samples of a slice.
    #[inline(always)]
    fn samples(&self, slice: u32) -> (usize, usize) {
        let (slice, size) = (slice as usize, self.slice as usize);
        (slice * size, smaller((slice + 1) * size, self.pairs.n as usize))
    }

    /// Writes a sum of a component and a slice.
    /// Safety: both exist, and only this thread writes it.
    #[inline(always)]
    unsafe fn put(&self, (c, slice): (u32, u32), number: usize, v: f64) {
        let place = (c as usize * sums(self.pairs.d as usize) + number) * self.slices as usize + slice as usize;
        // See `posterior` on `load_fresh`.
        let to = self.partials.add(place);
        store(to, if self.add != 0 { load_fresh(to) + v } else { v });
    }
}

/// Computes the sums of each component and slice.
/// Safety: the kernels' contract.
#[inline(always)]
unsafe fn sums_of_slices<const D: usize>(args: &SumsArgs) {
    let (warp, lane, warps) = (thread_idx() / WARP, thread_idx() % WARP, block_dim() / WARP);
    let tasks = args.pairs.k * args.slices;
    counted!(for task in (block_idx() * warps + warp..tasks).step_by(grid_dim() * warps) {
        // Neighbouring warps share samples.
        let (slice, c) = (task / args.pairs.k, task % args.pairs.k);
        let mut of_lane = Sums { n: 0.0, h: [0.0; D], e: [[0.0; D]; D] };
        let (start, end) = args.samples(slice);
        counted!(for sample in (start + lane as usize..end).step_by(WARP as usize) {
            // SAFETY: sample and component exist.
            let r = load(args.pairs.q_of(c as usize, sample));
            if r > NEGLIGIBLE {
                let read = Sample::<D>::read(&args.pairs, sample);
                // The component's numbers would take the registers of the sums.
                of_lane.add(r, Pair::new(&args.pairs, &read, opaque(c) as usize));
            }
        });
        let put = |number: usize, v: f64| {
            let v = warp_sum(v);
            if lane == 0 {
                // SAFETY: a place for each number, which only this lane writes.
                args.put((c, slice), number, v);
            }
        };
        put(0, of_lane.n);
        written_out!(for a in 0..D {
            put(1 + a, of_lane.h[a]);
            counted!(for b in 0..=a {
                put(1 + D + triangle(a) + b, of_lane.e[a][b]);
            });
        });
    });
}

kernels! {
    /// Computes q of each sample and component.
    noisy_density_d01: PairsArgs = density::<1>;
    noisy_density_d02: PairsArgs = density::<2>;
    noisy_density_d03: PairsArgs = density::<3>;
    noisy_density_d04: PairsArgs = density::<4>;
    noisy_density_d05: PairsArgs = density::<5>;
    noisy_density_d06: PairsArgs = density::<6>;
    noisy_density_d07: PairsArgs = density::<7>;
    noisy_density_d08: PairsArgs = density::<8>;
    noisy_density_d16: PairsArgs = wide::density::<2, 4>;
    noisy_density_d32: PairsArgs = wide::density::<4, 8>;
    noisy_density_d48: PairsArgs = wide::density::<6, 12>;
    noisy_density_d64: PairsArgs = wide::density::<8, 16>;
}

kernels! {
    /// Computes n, h and E of each component and slice.
    noisy_sums_d01: SumsArgs = sums_of_slices::<1>;
    noisy_sums_d02: SumsArgs = sums_of_slices::<2>;
    noisy_sums_d03: SumsArgs = sums_of_slices::<3>;
    noisy_sums_d04: SumsArgs = sums_of_slices::<4>;
    noisy_sums_d05: SumsArgs = sums_of_slices::<5>;
    noisy_sums_d06: SumsArgs = sums_of_slices::<6>;
    noisy_sums_d07: SumsArgs = sums_of_slices::<7>;
    noisy_sums_d08: SumsArgs = sums_of_slices::<8>;
    noisy_sums_d16: SumsArgs = wide::sums_of_slices::<2, 4>;
    noisy_sums_d32: SumsArgs = wide::sums_of_slices::<4, 8>;
    noisy_sums_d48: SumsArgs = wide::sums_of_slices::<6, 12>;
    noisy_sums_d64: SumsArgs = wide::sums_of_slices::<8, 16>;
}
