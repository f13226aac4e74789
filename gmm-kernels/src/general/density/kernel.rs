mod wide;

use super::*;
use crate::math::Float;
use crate::simt::*;
use core::num::NonZeroU32;

/// q of four samples and one component. `AROUND_MEANS`: `b` is the mean, which is subtracted from the samples first.
/// Safety: `a`, `b` and `x` are of a component and of samples as the arguments describe them.
#[inline(always)]
unsafe fn full<T: Float, const AROUND_MEANS: bool>(
    args: &DensityArgs<T>,
    mut a: *const T,
    b: *const T,
    x: *const T,
    seed: T,
) -> [T; QUAD] {
    let d = args.d as usize;
    let mut q = [seed; QUAD];
    counted!(for row in (0..d).step_by(ROWS) {
        let mut z = [[T::ZERO; QUAD]; ROWS];
        if !AROUND_MEANS {
            // SAFETY: the shifts are padded to whole panels.
            let shifts = unsafe { [T::load4(b.add(row)), T::load4(b.add(row + 4))] };
            counted!(for r in 0..ROWS {
                z[r] = [shifts[r / 4][r % 4]; QUAD];
            });
        }
        let end = columns(row, d);
        counted!(for j in 0..end {
            // SAFETY: column j of the panel and of the samples.
            let (mut xs, column) =
                unsafe { (T::load4(x.add(j * args.stride as usize)), [T::load4(a), T::load4(a.add(4))]) };
            if AROUND_MEANS {
                // SAFETY: a number for each feature.
                let mean = unsafe { T::load(b.add(j)) };
                counted!(for p in 0..QUAD {
                    xs[p] = xs[p] - mean;
                });
            }
            counted!(for r in 0..ROWS {
                counted!(for p in 0..QUAD {
                    z[r][p] = column[r / 4][r % 4].fma(xs[p], z[r][p]);
                });
            });
            a = a.wrapping_add(ROWS);
        });
        counted!(for r in 0..ROWS {
            counted!(for p in 0..QUAD {
                q[p] = (-z[r][p]).fma(z[r][p], q[p]);
            });
        });
    });
    q
}

/// q of four samples and a group of components. `GAPS`: only a sample's observed features count; `AROUND_MEANS`: b are
/// the components' means, which are subtracted from the samples first.
/// Safety: as for [`full`].
#[inline(always)]
unsafe fn diagonals<T: Float, const GAPS: bool, const AROUND_MEANS: bool>(
    args: &DensityArgs<T>,
    ab: *const T,
    x: *const T,
    seeds: [T; COMPONENTS],
) -> [[T; QUAD]; COMPONENTS] {
    let mut q = [[T::ZERO; QUAD]; COMPONENTS];
    counted!(for c in 0..COMPONENTS {
        q[c] = [seeds[c]; QUAD];
    });
    counted!(for j in 0..args.d as usize {
        let at = ab.wrapping_add(j * numbers(GAPS) * COMPONENTS);
        // SAFETY: feature j of the group and of the samples.
        let (mut xs, a, b) =
            unsafe { (T::load4(x.add(j * args.stride as usize)), T::load4(at), T::load4(at.add(COMPONENTS))) };
        let (mut constants, mut observed) = ([T::ZERO; COMPONENTS], [T::ONE; QUAD]);
        if GAPS {
            // SAFETY: as above.
            constants = unsafe { T::load4(at.add(2 * COMPONENTS)) };
            counted!(for p in 0..QUAD {
                (xs[p], observed[p]) = if xs[p].is_nan() { (T::ZERO, T::ZERO) } else { (xs[p], T::ONE) };
            });
        }
        counted!(for c in 0..COMPONENTS {
            counted!(for p in 0..QUAD {
                let z = match (AROUND_MEANS, GAPS) {
                    (false, _) => a[c].fma(xs[p], b[c]),
                    (true, false) => a[c] * (xs[p] - b[c]),
                    // Zero times the infinite square of a missing feature would be NaN.
                    (true, true) => a[c] * (observed[p] * (xs[p] - b[c])),
                };
                q[c][p] = match GAPS {
                    true => (-observed[p]).fma(z.fma(z, constants[c]), q[c][p]),
                    false => (-z).fma(z, q[c][p]),
                };
            });
        });
    });
    q
}

#[inline(always)]
unsafe fn body<T: Float, const FULL: bool, const GAPS: bool, const AROUND_MEANS: bool>(args: &DensityArgs<T>) {
    let (warp, lane) = (thread_idx() / WARP, (thread_idx() % WARP) as usize);
    let warps = block_dim() / WARP;
    let units = if FULL { args.k } else { args.k.div_ceil(COMPONENTS as u32) };
    let Some(units) = NonZeroU32::new(units) else { return };
    let tasks = args.n.div_ceil(TILE as u32) * units.get();
    counted!(for task in (block_idx() * warps + warp..tasks).step_by(grid_dim() * warps) {
        let (tile, unit) = ((task / units) as usize, (task % units) as usize);
        let sample = tile * TILE + QUAD * lane;
        let (x, matrix) = (args.x.wrapping_add(sample), args.matrices.wrapping_add(unit * args.matrix_stride as usize));
        let out = args.q.wrapping_add(sample);
        // SAFETY: samples and components that exist, or their padding.
        unsafe {
            if FULL && sample < args.n as usize {
                let at = args.of_quads.offset(sample / QUAD);
                let b = args.shifts.add(at + unit * (args.d as usize).next_multiple_of(ROWS));
                let q = full::<T, AROUND_MEANS>(args, matrix.add(at), b, x, T::load(args.seeds.add(at + unit)));
                T::store4(out.add(unit * args.q_stride as usize), q);
            } else if !FULL {
                let seeds = T::load4(args.seeds.add(unit * COMPONENTS));
                let q = diagonals::<T, GAPS, AROUND_MEANS>(args, matrix, x, seeds);
                counted!(for c in 0..COMPONENTS {
                    let component = unit * COMPONENTS + c;
                    if component < args.k as usize {
                        T::store4(out.add(component * args.q_stride as usize), q[c]);
                    }
                });
            }
        }
    });
}

kernels! {
    /// Computes q of every sample and component.
    density_diag_f32: DensityArgs<f32> = body::<f32, false, false, false>;
    density_observed_f32: DensityArgs<f32> = body::<f32, false, true, false>;
    density_full_f32: DensityArgs<f32> = body::<f32, true, false, false>;
    density_diag_f64: DensityArgs<f64> = body::<f64, false, false, false>;
    density_observed_f64: DensityArgs<f64> = body::<f64, false, true, false>;
    density_full_f64: DensityArgs<f64> = body::<f64, true, false, false>;
    density_diag_around_means_f64: DensityArgs<f64> = body::<f64, false, false, true>;
    density_observed_around_means_f64: DensityArgs<f64> = body::<f64, false, true, true>;
    density_full_around_means_f64: DensityArgs<f64> = body::<f64, true, false, true>;
    density_wide_f64: DensityArgs<f64> = wide::triangles;
}
