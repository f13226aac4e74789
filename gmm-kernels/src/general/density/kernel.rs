mod wide;

use super::*;
use crate::math::{Float, smaller};
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
            let shifts = [T::load4(b.add(row)), T::load4(b.add(row + 4))];
            counted!(for r in 0..ROWS {
                z[r] = [shifts[r / 4][r % 4]; QUAD];
            });
        }
        let end = columns(row, d);
        counted!(for j in 0..end {
            // SAFETY: column j of the panel and of the samples.
            let (mut xs, column) = (T::load4(x.add(j * args.stride as usize)), [T::load4(a), T::load4(a.add(4))]);
            if AROUND_MEANS {
                // SAFETY: a number for each feature.
                let mean = T::load(b.add(j));
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

/// Writes q of the lane's four samples of a tile and of GROUPS groups of components from `group` on. `GAPS`: only a
/// sample's observed features count; `AROUND_MEANS`: b are the components' means, which are subtracted from the samples
/// first.
/// Safety: as for [`full`].
#[inline(always)]
unsafe fn diagonals<T: Float, const GROUPS: usize, const GAPS: bool, const AROUND_MEANS: bool>(
    args: &DensityArgs<T>,
    tile: usize,
    group: usize,
) {
    let sample = tile * TILE + (thread_idx() % WARP) as usize * T::NEIGHBOURS;
    let x = args.x.wrapping_add(sample);
    let ab = args.matrices.wrapping_add(group * args.matrix_stride as usize);
    let mut q = [[[T::ZERO; QUAD]; COMPONENTS]; GROUPS];
    counted!(for g in 0..GROUPS {
        // SAFETY: the seeds are padded to whole groups.
        let seeds = T::load4(args.seeds.add((group + g) * COMPONENTS));
        counted!(for c in 0..COMPONENTS {
            q[g][c] = [seeds[c]; QUAD];
        });
    });
    counted!(for j in 0..args.d as usize {
        // SAFETY: feature j of the samples.
        let mut xs = T::load_apart(x.add(j * args.stride as usize), TILE / 2);
        let mut observed = [T::ONE; QUAD];
        if GAPS {
            counted!(for p in 0..QUAD {
                (xs[p], observed[p]) = if xs[p].is_nan() { (T::ZERO, T::ZERO) } else { (xs[p], T::ONE) };
            });
        }
        written_out!(for g in 0..GROUPS {
            let at = ab.wrapping_add(g * args.matrix_stride as usize + j * numbers(GAPS) * COMPONENTS);
            // SAFETY: feature j of the group.
            let (a, b, constants) = {
                let constants = if GAPS { T::load4(at.add(2 * COMPONENTS)) } else { [T::ZERO; COMPONENTS] };
                (T::load4(at), T::load4(at.add(COMPONENTS)), constants)
            };
            counted!(for c in 0..COMPONENTS {
                counted!(for p in 0..QUAD {
                    let z = match (AROUND_MEANS, GAPS) {
                        (false, _) => a[c].fma(xs[p], b[c]),
                        (true, false) => a[c] * (xs[p] - b[c]),
                        // Zero times the infinite square of a missing feature would be NaN.
                        (true, true) => a[c] * (observed[p] * (xs[p] - b[c])),
                    };
                    q[g][c][p] = match GAPS {
                        true => (-observed[p]).fma(z.fma(z, constants[c]), q[g][c][p]),
                        false => (-z).fma(z, q[g][c][p]),
                    };
                });
            });
        });
    });
    let out = args.q.wrapping_add(sample);
    counted!(for g in 0..GROUPS {
        counted!(for c in 0..COMPONENTS {
            let component = (group + g) * COMPONENTS + c;
            if component < args.k as usize {
                // SAFETY: the component exists, and the samples or their padding.
                T::store_apart(out.add(component * args.q_stride as usize), TILE / 2, q[g][c]);
            }
        });
    });
}

#[inline(always)]
unsafe fn body<T: Float, const FULL: bool, const GAPS: bool, const AROUND_MEANS: bool>(args: &DensityArgs<T>) {
    let (warp, lane) = (thread_idx() / WARP, (thread_idx() % WARP) as usize);
    let warps = block_dim() / WARP;
    let groups = args.k.div_ceil(COMPONENTS as u32);
    let units = if FULL { args.k } else { groups.div_ceil(GROUPS as u32) };
    let Some(units) = NonZeroU32::new(units) else { return };
    let tasks = args.n.div_ceil(TILE as u32) * units.get();
    let of_block = tasks.div_ceil(grid_dim());
    let end = smaller((block_idx() + 1) * of_block, tasks);
    counted!(for task in (block_idx() * of_block + warp..end).step_by(warps) {
        let (tile, unit) = ((task / units) as usize, (task % units) as usize);
        // SAFETY: samples and components that exist, or their padding.
        if FULL {
            let sample = tile * TILE + QUAD * lane;
            if sample < args.n as usize {
                let (x, at) = (args.x.wrapping_add(sample), args.of_quads.offset(sample / QUAD));
                let matrix = args.matrices.add(at + unit * args.matrix_stride as usize);
                let b = args.shifts.add(at + unit * (args.d as usize).next_multiple_of(ROWS));
                let q = full::<T, AROUND_MEANS>(args, matrix, b, x, T::load(args.seeds.add(at + unit)));
                T::store4(args.q.add(unit * args.q_stride as usize + sample), q);
            }
        } else if (unit + 1) * GROUPS <= groups as usize {
            diagonals::<T, GROUPS, GAPS, AROUND_MEANS>(args, tile, unit * GROUPS);
        } else {
            diagonals::<T, 1, GAPS, AROUND_MEANS>(args, tile, unit * GROUPS);
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
    density_wide_f64: DensityArgs<f64> = wide::triangles::<false, false>;
    density_tall_f64: DensityArgs<f64> = wide::triangles::<true, false>;
    density_tall_d16_f64: DensityArgs<f64> = wide::triangles::<true, true>;
}
