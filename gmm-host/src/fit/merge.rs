//! Merging components, beginning with many, as the 2011 paper finds K (after Bouman's CLUSTER).
use super::em::Em;
use super::fitting::{Checked, Fitting};
use super::outcome::Callback;
use super::select::{Criterion, Rank, Search, Selection};
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::error::{Error, Result};
use gmm_core::model::merging::merge;
use gmm_core::model::mixture::Mixture;
use ndarray::parallel::prelude::*;

/// Fits `model`, then repeatedly merges the two closest components and fits from there, down to `least` components (at
/// least one), and selects the best of all fits by `criterion`.
///
/// The distance of components a and b is the log-likelihood lost by merging them to their common moments: ½ [πₐ
/// ln(|Σₐᵦ|/|Σₐ|) + πᵦ ln(|Σₐᵦ|/|Σᵦ|)], with Σₐᵦ the covariance of the two together.
///
/// # Errors
/// As [`Checked::fit`]; [`Error::BadParameter`] with noise.
pub fn merge_down(
    evaluator: &mut dyn Evaluator,
    model: &Checked<Fitting<Em>>,
    least: usize,
    criterion: Criterion,
    callback: Callback<'_>,
) -> Result<Selection> {
    model.method.check_no_noise("merging")?;
    let rank: Rank<'_, _, _> = &|evaluator, fit| criterion.candidate(evaluator, fit);
    let mut search = Search::new(rank);
    let mut fit = model.fit_with(evaluator, callback)?;
    loop {
        let mixture = fit.mixture.clone();
        if search.add(evaluator, fit)? || mixture.n_components() <= least.max(1) {
            return search.finish();
        }
        let merged = merge_closest(&mixture)?;
        fit = model.restarted(merged).check()?.fit_with(evaluator, callback)?;
    }
}

/// Returns the mixture (K − 1) with its two closest components merged; K is at least two.
fn merge_closest(mixture: &Mixture) -> Result<Mixture> {
    let k = mixture.n_components();
    let log_dets: Vec<f64> = (0..k).map(|c| mixture.log_det(c)).collect();
    let closest = (0..k)
        .into_par_iter()
        .map(|a| {
            let mut best = (f64::INFINITY, a, a);
            for b in a + 1..k {
                let w = mixture.weights();
                let together = merge(mixture, a, b, true)?.log_det(0);
                let cost = 0.5 * (w[a] * (together - log_dets[a]) + w[b] * (together - log_dets[b]));
                if cost < best.0 {
                    best = (cost, a, b);
                }
            }
            Ok::<_, Error>(best)
        })
        .collect::<Result<Vec<_>>>()?;
    let mut best = (f64::INFINITY, 0, 1);
    for candidate in closest {
        if candidate.0 < best.0 {
            best = candidate;
        }
    }
    merge(mixture, best.1, best.2, false)
}
