//! Conversion of the E-step kernel's sums to sufficient statistics.
use super::moments::{Layout, Totals};
use super::real::Real;
use crate::backends::device_parameters::{DeviceParameters, Matrices};
use crate::data::frame::Frame;
use crate::model::covariances::Covariances;
use crate::model::linalg::{for_each_matrix, product, triangle};
use crate::model::mixture::Mixture;
use crate::statistics::CentredSums;
use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2, s};
use std::f64::consts::LOG2_E;

/// Returns the mixture's means in the frame (K, D), as rounded; zeros for a component of weight zero, whose mean may be
/// too far away to be rounded.
pub(super) fn means<T: Real>(mixture: &Mixture, parameters: &DeviceParameters<T>, frame: &Frame) -> Array2<f64> {
    Array2::from_shape_fn(mixture.means().dim(), |(c, j)| match parameters.weight[c].into() == 0.0 {
        true => 0.0,
        false => T::from_f64(frame.apply(j, mixture.means()[[c, j]])).into(),
    })
}

/// Whether the frame's zero lies within eight deviations of every component, in each feature given the others. Second
/// moments around zero then lose at most 65 times as much to rounding as those around the means, even in the direction
/// of least variance. Covariances must not be shared.
pub(super) fn is_near_zero<T: Real>(mixture: &Mixture, parameters: &DeviceParameters<T>, frame: &Frame) -> bool {
    const DEVIATIONS: f64 = 8.0;
    let d = parameters.n_features;
    // Exponents are powers of two, so deviations carry the factor √(½·log₂ e).
    let limit = DEVIATIONS * DEVIATIONS * LOG2_E / 2.0;
    let is_near = |(c, mean): (usize, ArrayView1<'_, f64>)| {
        let mut precision = vec![0.0; d];
        match parameters.matrices {
            Matrices::Diagonal => add_squares(&mut precision, &parameters.scale[c * d..]),
            _ => (0..d).for_each(|i| add_squares(&mut precision[..=i], &parameters.triangle(c)[triangle(i)..])),
        }
        let mut features = mean.iter().zip(&precision).enumerate();
        parameters.weight[c].into() == 0.0 || features.all(|(j, (&mean, v))| frame.apply(j, mean).powi(2) * v <= limit)
    };
    mixture.means().outer_iter().enumerate().all(is_near)
}

fn add_squares<T: Real>(sums: &mut [f64], numbers: &[T]) {
    for (sum, &v) in sums.iter_mut().zip(numbers) {
        let v: f64 = v.into();
        *sum += v * v;
    }
}

/// Converts the kernel's `totals` around `centres`, in the order of `layout`, to the units of the data. `factor`
/// converts the kernel's weights to the samples' weights.
pub(super) fn centred_sums<T: Real>(
    mixture: &Mixture,
    parameters: &DeviceParameters<T>,
    frame: &Frame,
    layout: Layout,
    centres: Array2<f64>,
    totals: &Totals,
    factor: f64,
) -> CentredSums {
    let (k, d) = mixture.means().dim();
    let spread: Vec<f64> = totals.spread.iter().map(|v| factor * v).collect();
    let sums = &totals.matrices;
    let counts = Array1::from_iter(spread[..k].iter().copied());
    // Rows have `width` elements, the last ones padding.
    let matrix = |at: usize, rows: usize, width: usize, columns: usize| {
        Array2::from_shape_fn((rows, columns), |(i, j)| factor * sums[at + i * width + j])
    };
    let moment = |at: usize| Array2::from_shape_fn((k, d), |(c, j)| spread[at + c * d + j]);
    let (first, second) = match parameters.matrices {
        Matrices::Diagonal => (moment(k), Covariances::Diag(moment(k + k * d))),
        Matrices::Each(_) if layout.around_zero => {
            let mut second = Array3::zeros((k, d, d));
            let triangles = spread[k + k * d..].chunks_exact(triangle(d));
            for (mut to, from) in second.outer_iter_mut().zip(triangles) {
                for (i, mut to) in to.outer_iter_mut().enumerate() {
                    to.iter_mut().zip(&from[triangle(i)..triangle(i + 1)]).for_each(|(to, v)| *to = *v);
                }
            }
            (moment(k), Covariances::Full(second))
        }
        Matrices::Each(_) => {
            let mut second = Array3::zeros((k, d, d));
            for_each_matrix(&mut second, |c, mut to| {
                let from = sums[layout.second + c * layout.height * layout.width..].chunks_exact(layout.width);
                for (mut to, from) in to.outer_iter_mut().zip(from) {
                    to.iter_mut().zip(from).for_each(|(to, v)| *to = factor * v);
                }
            });
            (matrix(0, k, layout.width, d), Covariances::Full(second))
        }
        Matrices::Shared(_) => {
            let mut second = matrix(layout.second, d, layout.width, d);
            second += &between(centres.view(), matrix(layout.pairs, k, layout.pair_width, k).view());
            (matrix(0, k, layout.width, d), Covariances::Tied(second))
        }
    };
    let sums = CentredSums { weight: 0.0, log_likelihood: 0.0, centres, counts, first, second };
    let mut sums = frame.in_data_units(sums, mixture.covariance_type());
    if parameters.gaps.is_some() {
        sums.add_missing(mixture, |c, j| spread[k + 2 * k * d + c * d + j]);
    }
    sums
}

/// Returns ½ Σₖₗ Rₖₗ(cₖ−cₗ)(cₖ−cₗ)ᵀ (D, D) from centres (K, D) and the lower triangle of R (K, K), as Σₖ cₖwₖᵀ with wₖ
/// = Σₗ Rₖₗ(cₖ−cₗ): the difference first, so little cancels.
fn between(centres: ArrayView2<'_, f64>, pairs: ArrayView2<'_, f64>) -> Array2<f64> {
    let mut pull = Array2::<f64>::zeros(centres.dim());
    for c in 0..centres.nrows() {
        for l in 0..c {
            let difference = &centres.row(c) - &centres.row(l);
            pull.slice_mut(s![c, ..]).scaled_add(pairs[[c, l]], &difference);
            pull.slice_mut(s![l, ..]).scaled_add(-pairs[[c, l]], &difference);
        }
    }
    let product = product(centres.t(), pull.view());
    (&product + &product.t()) / 2.0
}
