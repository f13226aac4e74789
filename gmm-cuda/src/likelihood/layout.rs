//! Parameters as the kernels for likelihoods read them. Nothing here calls CUDA.
use crate::plan::task::{Covariance, Operation, Task};
use gmm_core::backends::device_parameters::{DeviceParameters, Matrices};
use gmm_core::model::linalg::triangle;
use gmm_kernels::likelihood::small_k;
use gmm_kernels::likelihood::tiled::{Form, MAX_EXPANDED};

/// The seed of a component that must never become the maximum: below every real exponent (t² ≤ 2¹¹⁶ a feature), and so
/// far above the smallest number that differences of the two stay finite.
pub(crate) const DEAD_SEED: f32 = -1e38;

/// Returns the numbers of one component of complete samples for `pair`.
pub(crate) fn pair_row(d: usize) -> usize {
    2 * d + 2
}

/// Writes the components to `out`, (K or more, `width`): s₀, m₀, s₁, …, w, seed, zeros; with gaps s₀, m₀, c₀, s₁, ….
pub(crate) fn component_rows(parameters: &DeviceParameters<f32>, width: usize, out: &mut [f32]) {
    let d = parameters.n_features;
    let numbers = small_k::numbers(parameters.gaps.is_some());
    debug_assert!(out.len() >= parameters.n_components * width && width >= numbers * d + 2);
    let (body, tail) = out.split_at_mut(parameters.n_components * width);
    tail.fill(0.0);
    for (k, row) in body.chunks_exact_mut(width).enumerate() {
        let features = parameters.scale[k * d..][..d].iter().zip(&parameters.shift[k * d..][..d]);
        for (j, (to, (s, m))) in row.chunks_exact_mut(numbers).zip(features).enumerate() {
            to[..2].copy_from_slice(&[*s, *m]);
            if let Some(gaps) = &parameters.gaps {
                to[2] = -gaps.constants[k * d + j];
            }
        }
        let (_, constants) = row.split_at_mut(numbers * d);
        constants.fill(0.0);
        constants[..2].copy_from_slice(&[parameters.weight[k], parameters.seed[k]]);
    }
}

/// Returns the components as the argument of `small_k`, [`small_k::Kind::row`]`(D)` = `ROW`; those behind K are zeros.
pub(crate) fn small_k_components<const ROW: usize>(
    parameters: &DeviceParameters<f32>,
) -> [[f32; ROW]; small_k::COMPONENTS] {
    let mut components = [[0.0; ROW]; small_k::COMPONENTS];
    if matches!(parameters.matrices, Matrices::Each(_)) {
        let d = parameters.n_features;
        for (k, (to, shift)) in components.iter_mut().zip(parameters.shift.chunks_exact(d)).enumerate() {
            to[..d].copy_from_slice(shift);
            to[d..d + 2].copy_from_slice(&[parameters.weight[k], parameters.seed[k]]);
        }
    } else {
        component_rows(parameters, ROW, components.as_flattened_mut());
    }
    components
}

/// Writes the triangles as `small_k` reads them, [`small_k::Kind::triangles`] numbers.
pub(crate) fn small_k_triangles(parameters: &DeviceParameters<f32>, out: &mut [f32]) {
    let d = parameters.n_features;
    for (k, to) in out.chunks_exact_mut(small_k::padded_triangle(d)).enumerate() {
        let (triangle, padding) = to.split_at_mut(triangle(d));
        triangle.copy_from_slice(parameters.triangle(k));
        padding.fill(0.0);
    }
}

/// Returns the form of a task's exponents in `tiled`.
pub(crate) fn form(task: &Task) -> Form {
    match task.covariance {
        // The products of an E-step are formed by other kernels.
        Covariance::Full if task.is_expandable() && task.operation != Operation::EStep && task.d <= MAX_EXPANDED => {
            Form::Expanded
        }
        Covariance::Full | Covariance::Tied => Form::Full,
        Covariance::TiedLinear => Form::Linear,
        Covariance::Diagonal if task.gaps => Form::Observed,
        Covariance::Diagonal => Form::Diagonal,
    }
}

/// Writes the components in groups of `t`: s, m and, with missing values, c, or a alone to `sm`, (groups, features,
/// numbers, T); w and seed to `constants`, (groups, 2, T).
pub(crate) fn groups(parameters: &DeviceParameters<f32>, t: usize, form: Form, sm: &mut [f32], constants: &mut [f32]) {
    let (components, d, numbers) = (parameters.n_components, form.features(parameters.n_features), form.numbers());
    debug_assert_eq!((sm.len(), constants.len()), tiled_lengths(components, parameters.n_features, t, form));
    let number = |place: usize, at: usize| match place {
        0 => parameters.scale[at],
        1 => parameters.shift[at],
        _ => parameters.gaps.as_ref().map_or(0.0, |gaps| -gaps.constants[at]),
    };
    for (group, (sm, constants)) in
        sm.chunks_exact_mut(d * numbers * t).zip(constants.chunks_exact_mut(2 * t)).enumerate()
    {
        for l in 0..t {
            let k = group * t + l;
            let alive = k < components && parameters.weight[k] > 0.0;
            constants[l] = if alive { parameters.weight[k] } else { 0.0 };
            constants[t + l] = if alive { parameters.seed[k] } else { DEAD_SEED };
            for (j, sm) in sm.chunks_exact_mut(numbers * t).enumerate() {
                for (place, sm) in sm.chunks_exact_mut(t).enumerate() {
                    sm[l] = if alive { number(place, k * d + j) } else { 0.0 };
                }
            }
        }
    }
}

/// Writes triangles in bands of `t` rows: A and below it b to `a`, (K, ⌈D / T⌉, D + 1, T); w and seed, (K, 2).
pub(crate) fn triangles(parameters: &DeviceParameters<f32>, t: usize, a: &mut [f32], constants: &mut [f32]) {
    let (components, d) = (parameters.n_components, parameters.n_features);
    debug_assert_eq!((a.len(), constants.len()), tiled_lengths(components, d, t, Form::Full));
    a.fill(0.0);
    constants.fill(0.0);
    for (k, component) in a.chunks_exact_mut(d.div_ceil(t) * (d + 1) * t).enumerate() {
        let alive = parameters.weight[k] > 0.0;
        let weight_and_seed = if alive { [parameters.weight[k], parameters.seed[k]] } else { [0.0, DEAD_SEED] };
        constants[2 * k..][..2].copy_from_slice(&weight_and_seed);
        if !alive {
            continue;
        }
        let matrix = parameters.triangle(k);
        for (number, band) in component.chunks_exact_mut((d + 1) * t).enumerate() {
            for (l, i) in (number * t..d.min((number + 1) * t)).enumerate() {
                for j in 0..=i {
                    band[j * t + l] = matrix[triangle(i) + j];
                }
                band[d * t + l] = parameters.shift[k * d + i];
            }
        }
    }
}

/// Returns the lengths of the parameters of `tiled` with groups of `rows` components, or bands of `rows` rows: numbers
/// of features, and constants.
pub(crate) fn tiled_lengths(k: usize, d: usize, rows: usize, form: Form) -> (usize, usize) {
    let groups = k.div_ceil(rows);
    match form {
        Form::Full => (k * d.div_ceil(rows) * (d + 1) * rows, (2 * k).next_multiple_of(4)),
        _ => (groups * form.features(d) * form.numbers() * rows, groups * 2 * rows),
    }
}

/// Writes the components in groups of `rows`, or their triangles in bands of this many rows: first the numbers of
/// features, then the constants.
pub(crate) fn write_tiled(parameters: &DeviceParameters<f32>, rows: usize, form: Form, out: &mut [f32]) {
    let (scales, constants) = tiled_lengths(parameters.n_components, parameters.n_features, rows, form);
    let (scales, constants) = out[..scales + constants].split_at_mut(scales);
    match form {
        Form::Full => triangles(parameters, rows, scales, constants),
        _ => groups(parameters, rows, form, scales, constants),
    }
}

/// Returns the natural logarithm of the likelihood of samples of total weight `weight`, from a kernel's sum in log₂
/// units, with `bias` (see `exp2_bias`) and the parameters' `offset` added to each sample's log₂-likelihood.
pub(crate) fn total(log2: f64, weight: f64, offset: f64, bias: f64) -> f64 {
    std::f64::consts::LN_2 * (log2 + weight * (offset + bias))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmm_core::data::frame::Frame;
    use gmm_core::model::covariances::Covariances;
    use gmm_core::model::mixture::Mixture;
    use ndarray::{arr1, arr2};

    #[test]
    fn parameters_keep_their_places() {
        let mixture = Mixture::new(
            arr1(&[0.25, 0.0, 0.75]),
            arr2(&[[0.0, 1.0], [5.0, 6.0], [2.0, 3.0]]),
            Covariances::Diag(arr2(&[[1.0, 2.0], [1.0, 1.0], [3.0, 4.0]])),
        )
        .unwrap();
        let frame = Frame::of(arr2(&[[0.0f32, 0.0], [4.0, 2.0]]).view());
        let p =
            DeviceParameters::<f32>::new(&mixture, &frame, gmm_core::backends::device_parameters::Deviations::InFrame)
                .unwrap();
        let mut out = vec![f32::NAN; 3 * 8];
        component_rows(&p, 8, &mut out);
        assert_eq!(out[16..], [p.scale[4], p.shift[4], p.scale[5], p.shift[5], p.weight[2], p.seed[2], 0.0, 0.0]);
        assert_eq!(out[12], 0.0, "component 1 has no weight");
        let small_k = small_k_components::<8>(&p);
        assert_eq!(small_k[..3].as_flattened(), out);
        assert_eq!(small_k[3..], [[0.0; 8]; 5]);

        // Two groups of two: the last place is padding, and component 1, without weight, is written like padding.
        let (sm, constants) = tiled_lengths(3, 2, 2, Form::Diagonal);
        assert_eq!((sm, constants), (16, 8));
        let mut out = vec![f32::NAN; sm + constants];
        write_tiled(&p, 2, Form::Diagonal, &mut out);
        let (sm, constants) = out.split_at(sm);
        assert_eq!(sm[..8], [p.scale[0], 0.0, p.shift[0], 0.0, p.scale[1], 0.0, p.shift[1], 0.0]);
        assert_eq!(sm[8..], [p.scale[4], 0.0, p.shift[4], 0.0, p.scale[5], 0.0, p.shift[5], 0.0]);
        assert_eq!(constants[..4], [p.weight[0], 0.0, p.seed[0], DEAD_SEED]);
        assert_eq!(constants[4..], [p.weight[2], 0.0, p.seed[2], DEAD_SEED]);
    }
}
