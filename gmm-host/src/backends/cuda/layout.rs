//! Data and parameters as the kernels read them. No call of CUDA in here: all of it runs and is tested on any machine.
use crate::backends::device_parameters::{DeviceParameters, Matrices, frame_offset, triangle};
use crate::data::frame::{Float, Frame};
use crate::{MetropolisTarget, Samples, View};
use gmm_kernels::likelihood::small_k as direct;
use gmm_kernels::metropolis as walk;
use ndarray::{ArrayView2, s};
use rayon::prelude::*;

/// Columns begin at multiples of this many samples: whole cache lines, and whole pieces of work for the conversion.
pub(crate) const STRIDE: usize = 512;

/// The seed of a component that must never become the maximum: below every real exponent (t² ≤ 2¹¹⁶ a feature), and
/// far enough above the smallest number that differences of the two stay finite.
const DEAD_SEED: f32 = -1e38;

/// Relative error of `ex2.approx.ftz.f32`, averaged over arguments: −5.05·10⁻⁸, the same for all arguments below −1.
/// Measured on an H200 over 2²⁴ random arguments. A kernel that does not take the maximum out puts every term through
/// it, so that it shifts log₂ of each sample's likelihood by −5.05·10⁻⁸·log₂e; the host adds that back, times N.
/// (Where the maximum is taken out, the largest term is 2⁰, which is exact.)
pub(crate) const EXP2_BIAS: f64 = 5.05e-8 * std::f64::consts::LOG2_E;

/// Elements from one column to the next for `n` samples.
pub(crate) fn stride(n: usize) -> usize {
    n.next_multiple_of(STRIDE)
}

/// Writes the samples to `out`, (D, `stride(N)`): centred and scaled in float64, then rounded; zeros behind the last.
/// Samples with weights have one column more for these, divided by `weight_scale`.
pub(crate) fn columns<T: Float>(samples: &Samples<'_>, frame: &Frame, weight_scale: f64, out: &mut [T]) {
    let (n, d) = (samples.n_samples(), samples.n_features());
    let (x, weights) = out.split_at_mut(d * stride(n));
    match samples.view() {
        View::F32(view) => fill(view, frame, x),
        View::F64(view) => fill(view, frame, x),
    }
    let values = samples.weights().into_iter().flatten().map(|w| w / weight_scale);
    weights.iter_mut().zip(values.chain(std::iter::repeat(0.0))).for_each(|(to, w)| *to = T::from_f64(w));
}

fn fill<S: Float, T: Float>(x: ArrayView2<'_, S>, frame: &Frame, out: &mut [T]) {
    let (n, d) = x.dim();
    let stride = stride(n);
    debug_assert_eq!(out.len(), d * stride);
    // Cut into pieces of a few rows and all columns, so that either memory order of `x` is read from the cache.
    let mut pieces: Vec<Vec<&mut [T]>> = (0..stride / STRIDE).map(|_| Vec::with_capacity(d)).collect();
    for column in out.chunks_exact_mut(stride) {
        for (pieces, piece) in pieces.iter_mut().zip(column.chunks_exact_mut(STRIDE)) {
            pieces.push(piece);
        }
    }
    pieces.into_par_iter().enumerate().for_each(|(p, columns)| {
        let rows = x.slice(s![p * STRIDE..n.min((p + 1) * STRIDE), ..]);
        for (j, column) in columns.into_iter().enumerate() {
            let (body, tail) = column.split_at_mut(rows.nrows());
            for (to, &from) in body.iter_mut().zip(rows.column(j)) {
                *to = T::from_f64(frame.apply(j, from.into()));
            }
            tail.fill(T::from_f64(0.0));
        }
    });
}

/// Numbers of one component for `pair`.
pub(crate) fn pair_row(d: usize) -> usize {
    2 * d + 2
}

/// K as `direct` and `batch` count it: with components of zeros that fill it up.
pub(crate) fn filled_up(k: usize) -> usize {
    k.next_multiple_of(direct::SIDE_BY_SIDE)
}

/// Writes the components to `out`, (K or more, `width`): s₀, m₀, s₁, m₁, …, w, seed, and zeros.
pub(crate) fn rows(packed: &DeviceParameters<f32>, width: usize, out: &mut [f32]) {
    let d = packed.n_features;
    debug_assert!(out.len() >= packed.n_components * width && width >= pair_row(d));
    let (body, tail) = out.split_at_mut(packed.n_components * width);
    tail.fill(0.0);
    for (k, row) in body.chunks_exact_mut(width).enumerate() {
        let features = packed.scale[k * d..][..d].iter().zip(&packed.shift[k * d..][..d]);
        for (to, (s, m)) in row.chunks_exact_mut(2).zip(features) {
            to.copy_from_slice(&[*s, *m]);
        }
        row[2 * d..][..2].copy_from_slice(&[packed.weight[k], packed.seed[k]]);
        row[2 * d + 2..].fill(0.0);
    }
}

/// The components as the argument of `direct`, [`direct::row`]`(D)` = `ROW`; those behind K are zeros.
pub(crate) fn direct_components<const ROW: usize>(packed: &DeviceParameters<f32>) -> [[f32; ROW]; direct::COMPONENTS] {
    let mut components = [[0.0; ROW]; direct::COMPONENTS];
    rows(packed, ROW, components.as_flattened_mut());
    components
}

/// Sizes of the parameters of `tiled` with tiles of `t` components: number of tiles, length of `sm` and `constants`.
pub(crate) fn tiled_sizes(k: usize, d: usize, t: usize) -> (usize, usize, usize) {
    let tiles = k.div_ceil(t);
    (tiles, tiles * d * 2 * t, tiles * 2 * t)
}

/// Writes the components in tiles of `t`: s and m to `sm`, (tiles, D, 2, T); w and seed to `constants`, (tiles, 2, T).
pub(crate) fn tiles(packed: &DeviceParameters<f32>, t: usize, sm: &mut [f32], constants: &mut [f32]) {
    let (components, d) = (packed.n_components, packed.n_features);
    debug_assert_eq!((sm.len(), constants.len()), (tiled_sizes(components, d, t).1, tiled_sizes(components, d, t).2));
    for (tile, (sm, constants)) in sm.chunks_exact_mut(d * 2 * t).zip(constants.chunks_exact_mut(2 * t)).enumerate() {
        for l in 0..t {
            let k = tile * t + l;
            let alive = k < components && packed.weight[k] > 0.0;
            constants[l] = if alive { packed.weight[k] } else { 0.0 };
            constants[t + l] = if alive { packed.seed[k] } else { DEAD_SEED };
            for (j, sm) in sm.chunks_exact_mut(2 * t).enumerate() {
                sm[l] = if alive { packed.scale[k * d + j] } else { 0.0 };
                sm[t + l] = if alive { packed.shift[k * d + j] } else { 0.0 };
            }
        }
    }
}

/// Sizes of the parameters of the `full` kernels of `tiled` with tiles of `t` rows: length of `sm` and `constants`.
pub(crate) fn triangle_sizes(k: usize, d: usize, t: usize) -> (usize, usize) {
    (k * d.div_ceil(t) * (d + 1) * t, (2 * k).next_multiple_of(4))
}

/// Writes triangles in tiles of `t` rows: A and below it b to `a`, (K, ⌈D / T⌉, D + 1, T); w and seed to `constants`,
/// (K, 2).
pub(crate) fn triangles(packed: &DeviceParameters<f32>, t: usize, a: &mut [f32], constants: &mut [f32]) {
    let (components, d) = (packed.n_components, packed.n_features);
    debug_assert_eq!((a.len(), constants.len()), triangle_sizes(components, d, t));
    a.fill(0.0);
    constants.fill(0.0);
    for (k, component) in a.chunks_exact_mut(d.div_ceil(t) * (d + 1) * t).enumerate() {
        let alive = packed.weight[k] > 0.0;
        let own = if alive { [packed.weight[k], packed.seed[k]] } else { [0.0, DEAD_SEED] };
        constants[2 * k..][..2].copy_from_slice(&own);
        if !alive {
            continue;
        }
        let matrix = match &packed.matrices {
            Matrices::Each(a) => &a[k * triangle(d)..],
            Matrices::Shared(a) => a,
            // Kernels for diagonals serve them.
            Matrices::Diagonal => continue,
        };
        for (block, tile) in component.chunks_exact_mut((d + 1) * t).enumerate() {
            for (l, i) in (block * t..d.min((block + 1) * t)).enumerate() {
                for j in 0..=i {
                    tile[j * t + l] = matrix[triangle(i) + j];
                }
                tile[d * t + l] = packed.shift[k * d + i];
            }
        }
    }
}

/// The natural logarithm of the likelihood of `n` samples, from a kernel's sum in log₂ units. `bias` is what each
/// sample of it lacks: [`EXP2_BIAS`] or zero.
pub(crate) fn total(kernel_total: f64, n: usize, packed: &DeviceParameters<f32>, bias: f64) -> f64 {
    std::f64::consts::LN_2 * (kernel_total + n as f64 * (packed.offset + bias))
}

/// The terms of `walk` for a target over data in this frame, and what all log densities of `n` samples have in common.
pub(crate) fn walk_terms(target: &MetropolisTarget, frame: &Frame, n: usize, bias: f64) -> (Vec<f64>, f64) {
    let (k, d, prior) = (target.n_components, target.n_features, &target.prior);
    let mut terms =
        Vec::with_capacity(k * d * walk::FEATURE_TERMS + d * walk::COLUMN_TERMS + k * walk::COMPONENT_TERMS);
    for i in 0..k * d {
        // With one scale for all features, it is the first of them that has its prior.
        let s = if target.spherical { i / d } else { i };
        terms.extend([prior.location[i], prior.precision[i], prior.scaled_precision[i]]);
        terms.extend([prior.by_log_scale[s], prior.by_variance[s], prior.by_precision[s]]);
    }
    for ((shift, scale), inverse) in frame.shift.iter().zip(&frame.scale).zip(&frame.inverse) {
        let unit = (std::f64::consts::LOG2_E / 2.0).sqrt() * inverse;
        terms.extend([unit, unit.log2(), *shift, *scale]);
    }
    for (c, alpha) in prior.concentration.iter().enumerate() {
        terms.extend([*alpha, ((k - 1 - c).max(1) as f64).ln()]);
    }
    let constant = prior.constant + std::f64::consts::LN_2 * n as f64 * (frame_offset(d, frame) + bias);
    (terms, constant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Covariances, Mixture};
    use ndarray::{Array2, ShapeBuilder, arr1, arr2};

    #[test]
    fn columns_are_centred_in_float64_and_padded() {
        // 10⁷ plus a quarter is not a float32; with its neighbours' mean taken out it is.
        let x = Array2::from_shape_fn((1030, 3), |(i, j)| 1e7 + 0.25 * (i as f64 + 10.0 * j as f64));
        let frame = Frame::of(x.view());
        let fortran = Array2::from_shape_fn((1030, 3).f(), |ij| x[ij]);
        for view in [x.view(), fortran.view()] {
            let mut out = vec![f32::NAN; 3 * 1536];
            columns(&Samples::from_f64(view).unwrap(), &frame, 1.0, &mut out);
            for j in 0..3 {
                for i in 0..1536 {
                    let exact = if i < 1030 { (x[[i, j]] - frame.shift[j]) * frame.scale[j] } else { 0.0 };
                    assert_eq!(out[j * 1536 + i], exact as f32);
                }
            }
        }
    }

    #[test]
    fn parameters_keep_their_places() {
        let mixture = Mixture::new(
            arr1(&[0.25, 0.0, 0.75]),
            arr2(&[[0.0, 1.0], [5.0, 6.0], [2.0, 3.0]]),
            Covariances::Diag(arr2(&[[1.0, 2.0], [1.0, 1.0], [3.0, 4.0]])),
        )
        .unwrap();
        let frame = Frame::of(arr2(&[[0.0f32, 0.0], [4.0, 2.0]]).view());
        let p = DeviceParameters::<f32>::new(&mixture, &frame).unwrap();
        let mut out = vec![f32::NAN; 3 * 8];
        rows(&p, 8, &mut out);
        assert_eq!(out[16..], [p.scale[4], p.shift[4], p.scale[5], p.shift[5], p.weight[2], p.seed[2], 0.0, 0.0]);
        assert_eq!(out[12], 0.0, "component 1 has no weight");
        let direct = direct_components::<8>(&p);
        assert_eq!(direct[..3].as_flattened(), out);
        assert_eq!(direct[3..], [[0.0; 8]; 5]);

        // Two tiles of two: the last place is padding, and component 1 is as good as padding.
        let (tiles_, sm, constants) = tiled_sizes(3, 2, 2);
        assert_eq!((tiles_, sm, constants), (2, 16, 8));
        let (mut sm, mut constants) = (vec![f32::NAN; sm], vec![f32::NAN; constants]);
        tiles(&p, 2, &mut sm, &mut constants);
        assert_eq!(sm[..8], [p.scale[0], 0.0, p.shift[0], 0.0, p.scale[1], 0.0, p.shift[1], 0.0]);
        assert_eq!(sm[8..], [p.scale[4], 0.0, p.shift[4], 0.0, p.scale[5], 0.0, p.shift[5], 0.0]);
        assert_eq!(constants[..4], [p.weight[0], 0.0, p.seed[0], DEAD_SEED]);
        assert_eq!(constants[4..], [p.weight[2], 0.0, p.seed[2], DEAD_SEED]);
    }
}
