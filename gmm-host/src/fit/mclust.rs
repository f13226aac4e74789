//! EM as R's mclust runs it, so that its numbers of iterations and its likelihoods are those of mclust to the digit.
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::error::Result;
use gmm_core::model::mixture::Mixture;
use gmm_core::statistics::freeze::Freeze;
use gmm_core::statistics::prior::ConjugatePrior;

/// The least weight of a component: √ε, as in mclust.
const LEAST: f64 = 1.490_116_119_384_765_6e-8;

/// mclust's result of a fit.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Me {
    /// The parameters.
    pub mixture: Mixture,
    /// Their log-likelihood.
    pub log_likelihood: f64,
    /// The number of E-steps.
    pub n_iter: usize,
    /// Whether a component lost its samples or collapsed in an M-step: mclust then has no result.
    pub is_singular: bool,
}

/// Iterates EM from parameters until the log-likelihood ℓ changes by at most `tol`·(1 + |ℓ|) (mclust: 10⁻⁵), without
/// `reg_covar`. M-steps are under the prior, if there is one. Unlike a [`Fitting`](super::Fitting), it ends after an
/// E-step.
///
/// # Errors
/// As [`Evaluator::statistics`].
pub fn me(
    evaluator: &mut dyn Evaluator,
    start: Mixture,
    prior: Option<&ConjugatePrior>,
    tol: f64,
    max_iter: usize,
) -> Result<Me> {
    let mut me = Me { mixture: start, log_likelihood: f64::NEG_INFINITY, n_iter: 0, is_singular: false };
    loop {
        let statistics = evaluator.statistics(&me.mixture)?;
        let before = std::mem::replace(&mut me.log_likelihood, statistics.log_likelihood());
        me.n_iter += 1;
        let change = (me.log_likelihood - before).abs();
        if change <= tol * (1.0 + me.log_likelihood.abs()) || me.n_iter >= max_iter {
            return Ok(me);
        }
        if statistics.counts().iter().take(me.mixture.n_gaussians()).any(|count| *count < LEAST) {
            me.is_singular = true;
            return Ok(me);
        }
        match statistics.into_update(&me.mixture, 0.0, &Freeze::default(), prior) {
            Ok(update) => (me.mixture, me.is_singular) = (update.mixture, !update.retained.is_empty()),
            Err(_) => me.is_singular = true,
        }
        if me.is_singular {
            return Ok(me);
        }
    }
}
