//! Expectations of logarithms of weights and precisions, and normalising constants of their distributions.
use super::gamma::{digamma, digamma_sum, ln_gamma_sum};
use crate::model::covariances::Covariances;
use crate::model::linalg::{LogProduct, at_once, map_rows, row_major, vectorised};
use crate::model::mixture::Mixture;
use crate::reproducible::Functions;
use libm::lgamma;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};
use rayon::prelude::*;

/// Returns the expected logarithms of vₖ and 1 − vₖ (2, K), or of π (1, K), in the shape of the parameters.
pub(super) fn expected_logs(concentration: &Array2<f64>) -> Array2<f64> {
    let sums = match concentration.nrows() {
        1 => Array1::from_elem(concentration.ncols(), concentration.sum()),
        _ => concentration.sum_axis(Axis(0)),
    };
    let digammas = |values: ArrayView1<'_, f64>| -> Array1<f64> {
        for_each_component(values.len(), OF_GAMMA, |c| digamma(values[c])).into()
    };
    let of_sums = digammas(sums.view());
    let mut logs = Array2::zeros(concentration.raw_dim());
    for (mut logs, values) in logs.outer_iter_mut().zip(concentration.outer_iter()) {
        logs.assign(&(digammas(values) - &of_sums));
    }
    logs
}

pub(super) fn expected_log_weights(concentration: &Array2<f64>) -> Array1<f64> {
    let logs = expected_logs(concentration);
    let mut log_weights = logs.row(0).to_owned();
    if logs.nrows() == 2 {
        let mut left = 0.0;
        for (log_weight, log_rest) in log_weights.iter_mut().zip(logs.row(1)) {
            *log_weight += left;
            left += log_rest;
        }
    }
    log_weights
}

/// Returns E\[log |Λ|] − log |W| under a Wishart distribution.
pub(super) fn expected_log_det(nu: f64, d: usize) -> f64 {
    digamma_sum(nu, d) + d as f64 * std::f64::consts::LN_2
}

/// Returns the log normalising constant of a Wishart distribution, without its constant terms, from ν and the log
/// determinant of the Cholesky factor of ν·W.
pub(super) fn log_wishart_norm(nu: f64, log_det_factor: f64, d: usize) -> f64 {
    let log_det_factor = log_det_factor - 0.5 * d as f64 * nu.log_e();
    -(nu * log_det_factor + 0.5 * nu * d as f64 * std::f64::consts::LN_2 + ln_gamma_sum(nu, d))
}

/// Returns the log normalising constant of the distribution of the weights.
pub(super) fn log_weight_norm(concentration: &Array2<f64>) -> f64 {
    if concentration.nrows() == 1 {
        return lgamma(concentration.sum()) - concentration.iter().map(|&a| lgamma(a)).sum::<f64>();
    }
    let of_stick = |c: usize| {
        let (a, b) = (concentration[[0, c]], concentration[[1, c]]);
        lgamma(a + b) - lgamma(a) - lgamma(b)
    };
    for_each_component(concentration.ncols(), 3 * OF_GAMMA, of_stick).iter().sum()
}

/// Returns the log determinant of the Cholesky factor of each component's precision (K,).
pub(super) fn log_det_factors(mixture: &Mixture) -> Array1<f64> {
    let (k, d) = mixture.means().dim();
    let of_component = |c: usize| match (mixture.covariances(), mixture.factor_of(c)) {
        (_, Some(u)) => -0.5 * log_det_of_factor(u),
        (Covariances::Diag(v), _) => -0.5 * ln_of_product(&row_major(v.row(c))),
        _ => -0.5 * d as f64 * mixture.variance(c, 0).log_e(),
    };
    for_each_component(k, d, of_component).into()
}

/// The cost of a gamma function, in numbers visited.
const OF_GAMMA: usize = 16;

/// Returns a number for each of `k` components, on all threads if worthwhile for work of `numbers` numbers each.
pub(super) fn for_each_component(
    k: usize,
    numbers: usize,
    of_component: impl Fn(usize) -> f64 + Sync + Send,
) -> Vec<f64> {
    map_rows((0..k).into_par_iter(), at_once(numbers), of_component)
}

/// Returns log |Σ| of U with Σ⁻¹ = U·Uᵀ.
pub(super) fn log_det_of_factor(u: ArrayView2<'_, f64>) -> f64 {
    -2.0 * ln_of_product(&u.diag().to_vec())
}

fn ln_of_product(numbers: &[f64]) -> f64 {
    let mut product = LogProduct::default();
    vectorised(
        #[inline(always)]
        || product.multiply_all(numbers),
    );
    product.log2() * std::f64::consts::LN_2
}
