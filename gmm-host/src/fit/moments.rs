//! The mean and the covariance of all samples, for priors.
use super::init::with_centres;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::data::samples::Rows;
use gmm_core::error::Result;
use gmm_core::model::covariances::{CovarianceType, Covariances};
use gmm_core::statistics::Statistics;
use ndarray::{Array1, Axis};

/// The number of rows whose mean is the centre of the first moments.
const FIRST_ROWS: usize = 64;
/// The most passes over samples with missing values, and the relative change of the moments that ends them.
const PASSES: (usize, f64) = (100, 1e-6);

/// Returns the mean and scatter of all samples, as one component; with missing values, of the likeliest normal one.
pub(super) fn moments(evaluator: &mut dyn Evaluator, kind: CovarianceType) -> Result<Statistics> {
    let kind = if kind.has_matrices() { CovarianceType::Full } else { CovarianceType::Diag };
    let Rows { x, .. } = evaluator.rows(&(0..evaluator.n_samples().min(FIRST_ROWS)).collect::<Vec<_>>())?;
    let of_columns = x.columns().into_iter().map(|column| {
        let observed: Array1<f64> = column.iter().copied().filter(|v| !v.is_nan()).collect();
        (observed.mean().unwrap_or(0.0), observed.var(0.0))
    });
    let (means, variances): (Vec<f64>, Vec<f64>) = of_columns.unzip();
    let variance = variances.into_iter().filter(|v| v.is_normal()).fold(0.0, f64::max);
    let variance = if variance > 0.0 { variance } else { 1.0 };
    let centre = Array1::from(means).insert_axis(Axis(0));
    let mut statistics = with_centres(&centre, variance, kind, |mixture| evaluator.statistics(mixture))?;
    // With complete samples the second pass changes nothing. A constant column with missing values ends the passes too.
    for _ in 0..PASSES.0 {
        let Ok(mixture) = statistics.to_mixture(0.0) else { break };
        let next = evaluator.statistics(&mixture)?;
        let moved = &next.means() - &statistics.means();
        let diagonal = |s: &Statistics, j: usize| match s.scatter() {
            Covariances::Full(v) => v[[0, j, j]],
            other => other.iter().nth(j).unwrap_or(0.0),
        };
        let settled = moved.iter().enumerate().all(|(j, moved)| {
            let (new, old) = (diagonal(&next, j), diagonal(&statistics, j));
            (new - old).abs() <= PASSES.1 * new && moved * moved * next.weight() <= PASSES.1 * PASSES.1 * new
        });
        statistics = next;
        if settled {
            break;
        }
    }
    Ok(statistics)
}

/// Returns the covariance of samples with these moments in a type's shape for one component, with the divisor N − 1;
/// for a weight below two, half of the weight.
pub(super) fn covariance_of(moments: &Statistics, kind: CovarianceType) -> Covariances {
    let weight = moments.weight();
    let divisor = (weight - 1.0).max(0.5 * weight);
    match (kind, moments.scatter()) {
        (CovarianceType::Full, Covariances::Full(v)) => Covariances::Full(v / divisor),
        (CovarianceType::Tied, Covariances::Full(v)) => {
            Covariances::Tied(v.index_axis(Axis(0), 0).to_owned() / divisor)
        }
        (CovarianceType::Spherical, Covariances::Diag(v)) => {
            Covariances::Spherical(v.sum_axis(Axis(1)) / (divisor * v.ncols() as f64))
        }
        (_, scatter) => {
            let mut covariance = scatter.clone();
            covariance.map_inplace(|v| *v /= divisor);
            covariance
        }
    }
}
