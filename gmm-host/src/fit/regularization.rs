//! A check of `reg_covar` against the variances of the data.
use gmm_core::model::covariances::Covariances;
use gmm_core::model::mixture::Mixture;
use gmm_core::variational::mixture::VariationalMixture;
use ndarray::{ArrayView1, ArrayView2};

/// The largest share of a column's variance that `reg_covar` may have without a warning.
const SHARE: f64 = 1e-3;
/// The roundings of a fit, in units of the last place.
const ROUNDINGS: f64 = 64.0;

/// Finds a column (from 0) whose variance is below a thousand times `reg_covar`, so that the fit depends on the data's
/// units: of several the one with the least variance. A constant column, without variance, does not count.
///
/// The variances are those of the mixture; no sample is read.
pub trait Regularized {
    /// Returns the column and its variance, if there is one.
    fn over_regularized(&self, reg_covar: f64) -> Option<(usize, f64)>;
}

impl Regularized for Mixture {
    fn over_regularized(&self, reg_covar: f64) -> Option<(usize, f64)> {
        least(self.weights(), self.means(), self.covariances(), reg_covar)
    }
}

impl Regularized for VariationalMixture {
    fn over_regularized(&self, reg_covar: f64) -> Option<(usize, f64)> {
        // The samples have the share N/ν of a covariance, and the prior the rest, without `reg_covar`.
        let (weights, prior) = (self.weights(), self.prior().degrees_of_freedom);
        let share = weights.dot(&self.degrees_of_freedom().mapv(|nu| (nu - prior) / nu));
        least(weights.view(), self.means(), self.covariances(), reg_covar * share)
    }
}

fn least(
    weights: ArrayView1<'_, f64>,
    means: ArrayView2<'_, f64>,
    covariances: &Covariances,
    reg_covar: f64,
) -> Option<(usize, f64)> {
    let of_column = |j: usize| {
        let column = means.column(j);
        let mean = weights.dot(&column);
        let variance =
            |(k, (w, m)): (usize, (&f64, &f64))| w * (covariances.variance(k, j) - reg_covar + (m - mean).powi(2));
        let variance: f64 = weights.iter().zip(column).enumerate().map(variance).sum();
        // A constant column holds `reg_covar` and squares of roundings.
        let rounding = ROUNDINGS * f64::EPSILON;
        let constant = (rounding * mean).powi(2) + rounding * reg_covar;
        (reg_covar > SHARE * variance && variance > constant).then_some((j, variance))
    };
    (0..means.ncols()).filter_map(of_column).min_by(|a, b| a.1.total_cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::{BayesianGaussianMixtureParams, GaussianMixtureParams};
    use gmm_core::model::covariances::CovarianceType;
    use ndarray::Array2;

    /// Columns with variances of nearly 1 and unit², and a constant one.
    fn samples(unit: f64) -> Array2<f64> {
        Array2::from_shape_fn((200, 3), |(i, j)| {
            let x = ((i * (7 + 4 * j) + i * i) % 101) as f64 / 29.0;
            [x, 5.0 + x * unit, 3.0][j]
        })
    }

    #[test]
    fn a_column_in_small_units_is_named_and_a_constant_one_is_not() {
        for covariance_type in [CovarianceType::Full, CovarianceType::Tied, CovarianceType::Diag] {
            for (unit, named) in [(1.0, false), (0.1, false), (1e-2, true), (1e-4, true), (1e-8, true)] {
                let x = samples(unit);
                let params = GaussianMixtureParams::new(2).covariance_type(covariance_type);
                let fit = params.fit(&x).unwrap();
                let variance = x.column(1).var(0.0);
                let found = fit.mixture.over_regularized(1e-6);
                assert_eq!(found.map(|(column, _)| column), named.then_some(1), "{covariance_type:?} {unit}");
                // Roundings of the sum with `reg_covar`, and of means near 5 beside deviations of 10⁻⁸.
                if let Some((_, found)) = found {
                    assert!((found - variance).abs() < 1e-5 * variance + 1e-20, "{found} {variance}");
                }
                assert_eq!(fit.mixture.over_regularized(0.0), None);
            }
        }
        let params = BayesianGaussianMixtureParams::new(2);
        let column =
            |unit| params.clone().fit(&samples(unit)).unwrap().mixture.over_regularized(1e-6).map(|found| found.0);
        assert_eq!((column(1.0), column(1e-3), column(1e-5)), (None, Some(1), Some(1)));
    }
}
