//! The M-step of EM.
use super::constrained::constrain;
use super::{COUNT_FLOOR, Statistics};
use crate::error::{Error, Result};
use crate::model::covariance_model::CovarianceModel;
use crate::model::covariances::{CovarianceType, Covariances};
use crate::model::linalg::{
    at_once, diagonal_of_precision, for_each_matrix, map_rows, matrices_at_once, row_major, trace_of_product,
    vectorised,
};
use crate::model::mixture::Mixture;
use crate::reproducible::Functions;
use crate::statistics::freeze::Freeze;
use crate::statistics::prior::ConjugatePrior;
use ndarray::parallel::prelude::*;
use ndarray::{Array1, Array2, ArrayView1, Axis};

/// The result of an M-step.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Update {
    /// The new parameters.
    pub mixture: Mixture,
    /// The components (ascending) that lost their samples or collapsed onto a point, and kept their earlier parameters.
    pub retained: Vec<usize>,
}

impl Statistics {
    /// Computes the M-step without a previous mixture, by the formulas of [`update`](Self::update). Every component
    /// must have samples and a usable covariance.
    ///
    /// # Errors
    /// [`Error::EmptyComponent`]; as [`Mixture::new`] if a covariance is not usable, as for a constant column without
    /// `reg_covar`.
    pub fn to_mixture(&self, reg_covar: f64) -> Result<Mixture> {
        self.check_counts()?;
        let (means, covariances) = self.clone().into_covariances(None, reg_covar, 0.0);
        let mixture = Mixture::of_symmetric(weights(&self.counts, self.floor()), means, covariances)?;
        let all: Vec<usize> = (0..mixture.n_components()).collect();
        let failure = |(of, rounding): (_, Rounding)| rounding.failure(of, self.covariance_type());
        match Rounding::of_each(&mixture, &all, reg_covar).into_iter().find_map(failure) {
            Some(failure) => Err(failure),
            None => Ok(mixture),
        }
    }

    /// Checks that every component has samples.
    fn check_counts(&self) -> Result<()> {
        match self.counts.iter().enumerate().find(|(_, n)| **n <= self.floor()) {
            Some((component, &count)) => Err(Error::EmptyComponent { component, count }),
            None => Ok(()),
        }
    }

    /// As [`to_mixture`](Self::to_mixture), for a model, and under a prior if there is one. The alternation of its M-step
    /// begins at spheres.
    ///
    /// # Errors
    /// As [`to_mixture`](Self::to_mixture), and [`Error::WrongCovarianceType`] for a model of another form.
    pub fn to_mixture_of(
        &self,
        model: CovarianceModel,
        reg_covar: f64,
        prior: Option<&ConjugatePrior>,
    ) -> Result<Mixture> {
        if model.is_plain() && prior.is_none() {
            return self.to_mixture(reg_covar);
        }
        self.check_counts()?;
        let (k, d) = self.means.dim();
        let spheres = Covariances::isotropic(self.covariance_type(), k, d, 1.0);
        let start = Mixture::new(Array1::from_elem(k, 1.0 / k as f64), self.means.clone(), spheres)?;
        let start = start.with_covariance_model(model)?;
        Ok(self.clone().into_update(&start, reg_covar, &Freeze::default(), prior)?.mixture)
    }

    /// Computes the M-step of an EM iteration from `previous`, with scikit-learn's formulas: with nₖ = Nₖ + 10·ε
    /// ([`COUNT_FLOOR`]), weights nₖ / Σ nₖ, means x̄ₖ, covariances scatter / nₖ (`tied`: / Σ nₖ; `spherical`: the mean
    /// over the features) with `reg_covar` added to the diagonal. (scikit-learn's means Σ r x / nₖ draw a nearly empty
    /// component towards the origin; these do not depend on the origin.)
    ///
    /// Frozen parameters stay as in `previous`. Covariances are taken around frozen means, and free weights share the
    /// rest of 1, so each parameter is the best given the frozen ones.
    ///
    /// If the model of `previous` shares volumes, shapes or axes ([`CovarianceModel`]), these covariances are replaced
    /// by the likeliest ones that the model allows; those of VVE only nearly, as mclust's.
    ///
    /// A component with Nₖ ≤ 10·ε has lost its samples: it keeps its mean and covariance, and its weight nₖ / Σ nₖ is
    /// nearly zero. A component whose new covariance is not positive definite, because it collapsed onto a point or a
    /// plane and `reg_covar` is too small, keeps its last covariance (as do all, if components share a part). Neither lowers the likelihood, because the M-step
    /// of each parameter is a maximum for any value of the other. [`Update::retained`] lists both kinds.
    ///
    /// A covariance counts as positive definite only if rounding leaves no doubt. With P = Σ⁻¹, the variance 1/Pⱼⱼ of
    /// feature j given the others must be at least 16·D·2⁻⁵² of the variance Σⱼⱼ and, without `reg_covar`, the square
    /// of 64·2⁻⁵² of the mean μⱼ: rounding of the scatter and of the mean can turn zero into anything smaller. If
    /// rounding could still lower the likelihood noticeably, the new covariance is taken only if it gains more than
    /// that over the last one.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] if `previous` has another K or D, [`Error::WrongCovarianceType`]. As [`Mixture::new`]
    /// if no component with samples has a usable covariance: the data are degenerate, and `reg_covar` is too small.
    pub fn update(&self, previous: &Mixture, reg_covar: f64, freeze: &Freeze) -> Result<Update> {
        self.clone().into_update(previous, reg_covar, freeze, None)
    }

    /// As [`update`](Self::update), but reuses the memory of the scatter for the covariances: new memory for large
    /// matrices would take a good part of an M-step's time. Under a prior it computes the mode of the posterior: the
    /// prior can keep components from collapsing, and the sum of the log-likelihood and the [logarithm of the prior's
    /// density](ConjugatePrior::log_density) never falls.
    ///
    /// # Errors
    /// As [`update`](Self::update), and for a prior of another shape.
    pub fn into_update(
        mut self,
        previous: &Mixture,
        reg_covar: f64,
        freeze: &Freeze,
        prior: Option<&ConjugatePrior>,
    ) -> Result<Update> {
        let (k, d) = self.means.dim();
        if previous.means().dim() != (k, d) {
            let got = previous.means().shape().to_vec();
            return Err(Error::ShapeMismatch { what: "means of the previous mixture", expected: vec![k, d], got });
        }
        previous.covariances().check_type("the previous covariances", self.covariance_type(), k, d)?;
        let model = previous.covariance_model();
        freeze.check(previous.n_gaussians(), model)?;
        let freeze = &freeze.with_noise_of(previous);
        let pseudo_count = self.floor() + prior.map_or(0.0, ConjugatePrior::pseudo_count);
        let weights = if freeze.weights.any() || freeze.equal_weights {
            freeze.weights(&self.counts + pseudo_count, previous)
        } else {
            weights(&self.counts, pseudo_count)
        };
        let mut divisor = 0.0;
        if let Some(prior) = prior {
            prior.check(previous.n_gaussians(), d, model)?;
            self.add_prior(prior, model, previous.n_gaussians());
            divisor = prior.divisor(model, previous.n_gaussians()) - prior.mean_precision();
        }
        let noise = previous.noise().cloned();
        let empty: Vec<usize> = (0..k).filter(|&c| self.counts[c] <= self.floor() && !previous.is_noise(c)).collect();
        // Components without any information about their covariance.
        let is_bare = |c: &usize| self.counts[*c] + divisor <= self.floor() && !previous.is_noise(*c);
        let bare: Vec<usize> = (0..k).filter(is_bare).collect();
        // Means other than the samples' own.
        let kept: Vec<usize> = (0..k).filter(|&c| freeze.means.has(c)).chain(empty.iter().copied()).collect();
        let mut means = (freeze.equal_means || !kept.is_empty()).then(|| self.means.clone());
        if let Some(means) = &mut means {
            for c in kept {
                means.row_mut(c).assign(&previous.means().row(c));
            }
            if freeze.equal_means {
                let shared = freeze.shared_mean(self.counts.view(), self.means.view(), previous);
                for c in (0..k).filter(|&c| !freeze.means.has(c)) {
                    match &shared {
                        Some(shared) => means.row_mut(c).assign(shared),
                        None => means.row_mut(c).assign(&previous.means().row(c)),
                    }
                }
            }
        }
        let frozen: Vec<usize> = (0..k).filter(|&c| freeze.covariances.has(c)).collect();
        if frozen.len() == k {
            let (covariances, factor) = (previous.covariances().clone(), previous.factor().cloned());
            let means = means.unwrap_or(self.means);
            let mixture = Mixture::from_parts(weights, means, covariances, factor)?.with_noise_of(noise);
            return Ok(Update { mixture: mixture.with_covariance_model(model)?, retained: empty });
        }
        let covariance_type = self.covariance_type();
        let tied = covariance_type == CovarianceType::Tied;
        let is_without = |c: usize| bare.contains(&c) || previous.is_noise(c);
        let divisors = Array1::from_shape_fn(k, |c| if is_without(c) { 0.0 } else { self.counts[c] + divisor });
        let (means, mut covariances) = self.into_covariances(means, reg_covar, divisor);
        constrain(&mut covariances, &divisors, previous);
        if !tied {
            for &c in bare.iter().chain(&frozen) {
                covariances.copy_component(c, previous.covariances());
            }
        }
        let (factor, mut failures) = covariances.factorise();
        let n_alive = if tied { 1 } else { previous.n_gaussians() - bare.len() };
        let mixture = Mixture::from_parts(weights, means, covariances, factor)?.with_noise_of(noise);
        let mut mixture = mixture.with_covariance_model(model)?;
        // Frozen components keep their factors, which may come from precisions.
        frozen.iter().for_each(|&c| mixture.copy_covariance(c, previous));
        failures.retain(|failure| component_of(failure).is_none_or(|c| !freeze.covariances.has(c)));
        let failed: Vec<usize> = failures.iter().filter_map(component_of).collect();
        let sound: Vec<usize> =
            (0..k).filter(|c| !bare.contains(c) && !failed.contains(c) && !freeze.covariances.has(*c)).collect();
        let mut doubtful = Vec::new();
        if !tied || failures.is_empty() {
            for (of, rounding) in Rounding::of_each(&mixture, &sound, reg_covar) {
                match rounding.failure(of, covariance_type) {
                    Some(failure) => failures.push(failure),
                    None if rounding.loss > LOSS && gain(&mixture, previous, of.unwrap_or(0)) <= rounding.loss => {
                        doubtful.push(of);
                    }
                    None => {}
                }
            }
        }
        // Components that share a part retain it together, unless they have none yet.
        let whole = model.shares() && !tied;
        if (failures.len() == n_alive || whole && !failures.is_empty() && previous.is_round())
            && let Some(failure) = failures.drain(..).min_by_key(component_of)
        {
            return Err(failure);
        }
        let mut retained = empty;
        if whole && !(failures.is_empty() && doubtful.is_empty()) {
            (0..k).for_each(|c| mixture.copy_covariance(c, previous));
            return Ok(Update { mixture, retained: (0..previous.n_gaussians()).collect() });
        }
        for of in failures.iter().map(component_of).chain(doubtful) {
            mixture.copy_covariance(of.unwrap_or(0), previous);
            match of {
                Some(c) => retained.push(c),
                None => retained = (0..k).collect(),
            }
        }
        retained.sort_unstable();
        Ok(Update { mixture, retained })
    }

    /// Adds the samples that a prior of Gaussians stands for: κ at each mean, and Ψ.
    fn add_prior(&mut self, prior: &ConjugatePrior, model: CovarianceModel, n_gaussians: usize) {
        let kappa = prior.mean_precision();
        for c in 0..self.n_components() {
            let (count, joined) = (self.counts[c], self.counts[c] + kappa);
            if kappa > 0.0 && count > 0.0 {
                let delta = &prior.mean(c) - &self.means.row(c);
                self.means.row_mut(c).scaled_add(kappa / joined, &delta);
                self.scatter.add_outer(c, count * (kappa / joined), &delta.to_vec());
            } else if kappa > 0.0 {
                self.means.row_mut(c).assign(&prior.mean(c));
            }
            self.counts[c] = joined;
        }
        prior.add_scatter(&mut self.scatter, model, n_gaussians);
    }

    /// Returns [`COUNT_FLOOR`], or proportionally less if the total weight is less than one.
    fn floor(&self) -> f64 {
        COUNT_FLOOR * self.weight.min(1.0)
    }

    /// Returns the given means, or the samples' own, and the scatter around them, divided by the counts, each with
    /// `more`, with `reg_covar` added to the diagonal.
    pub(crate) fn into_covariances(
        self,
        means: Option<Array2<f64>>,
        reg_covar: f64,
        more: f64,
    ) -> (Array2<f64>, Covariances) {
        let (k, d) = self.means.dim();
        let floor = self.floor();
        let mut covariances = self.scatter;
        if let Some(means) = &means {
            let mut delta = vec![0.0; d];
            for c in (0..k).filter(|&c| self.counts[c] > floor) {
                for ((delta, own), mean) in delta.iter_mut().zip(self.means.row(c)).zip(means.row(c)) {
                    *delta = own - mean;
                }
                covariances.add_outer(c, self.counts[c], &delta);
            }
        }
        let counts = &self.counts + floor;
        match &mut covariances {
            Covariances::Full(v) => for_each_matrix(v, |c, mut v| {
                let count = counts[c] + more;
                vectorised(
                    #[inline(always)]
                    || v.iter_mut().for_each(|v| *v /= count),
                );
                v.diag_mut().map_inplace(|v| *v += reg_covar);
            }),
            Covariances::Tied(v) => {
                *v /= counts.sum() + k as f64 * more;
                v.diag_mut().map_inplace(|v| *v += reg_covar);
            }
            Covariances::Diag(v) => {
                *v /= &(counts + more).insert_axis(Axis(1));
                *v += reg_covar;
            }
            Covariances::Spherical(v) => {
                *v /= &((counts + more) * d as f64);
                *v += reg_covar;
            }
        }
        (means.unwrap_or(self.means), covariances)
    }
}

/// The loss of mean log-likelihood from rounding of a covariance that goes unnoticed.
const LOSS: f64 = 1e-9;

#[derive(Debug, Clone, Copy)]
struct Rounding {
    /// The last feature whose variance given the others is all rounding error, and that variance.
    unusable: Option<(usize, f64)>,
    /// The most that rounding may take from the mean log-likelihood of the component's samples.
    loss: f64,
}

impl Rounding {
    /// Computes the effect for each of the components whose factors are sound (once for a tied covariance).
    ///
    /// The sums of a scatter S are off by a few units in the last place of √(Sᵢᵢ·Sⱼⱼ), and the Cholesky factorisation
    /// by about D of them. With ε for both, P = Σ⁻¹, and vⱼ = Pⱼⱼ·Σⱼⱼ ≥ 1 (the factor by which the other features
    /// reduce the variance of feature j), this moves tr(P·S) by at most η = ε·(Σⱼ √vⱼ)². The likelihood has its maximum
    /// at S, so it loses η²/4. A mean that is off by a unit in its last place takes at most D/2·Σⱼ Pⱼⱼ·(2⁻⁵²·μⱼ)².
    fn of_each(mixture: &Mixture, components: &[usize], reg_covar: f64) -> Vec<(Option<usize>, Self)> {
        let means = mixture.means();
        if mixture.covariance_type() == CovarianceType::Tied {
            let largest = means.fold_axis(Axis(0), 0.0, |most: &f64, v| v.abs().max(*most));
            return vec![(None, Self::new(mixture, 0, largest.view(), reg_covar))];
        }
        if mixture.factor().is_none() && reg_covar > 0.0 {
            return Vec::new();
        }
        let (k, d) = means.dim();
        let at_once = if mixture.factor().is_some() { matrices_at_once(k, d, d * d / 8) } else { at_once(d / 8) };
        let of = |&c: &usize| (Some(c), Self::new(mixture, c, means.row(c), reg_covar));
        map_rows(components.par_iter(), at_once, of)
    }

    fn new(mixture: &Mixture, c: usize, mean: ArrayView1<'_, f64>, reg_covar: f64) -> Self {
        let d = mean.len() as f64;
        let precisions: Vec<f64> = match mixture.factor_of(c).map(row_major) {
            Some(u) => vectorised(
                #[inline(always)]
                || diagonal_of_precision(&u, mean.len()).collect(),
            ),
            None => (0..mean.len()).map(|j| 1.0 / mixture.variance(c, j)).collect(),
        };
        let (mut unusable, mut roots, mut of_mean) = (None, 0.0, 0.0);
        for (j, (mean, precision)) in mean.iter().zip(precisions).enumerate() {
            let variance = mixture.variance(c, j);
            let (reduced, unit) = (precision * variance, f64::EPSILON * mean);
            // A constant column, whose variance is `reg_covar`, has an exact mean.
            let units = if reg_covar > 0.0 { 0.0 } else { precision * unit * unit };
            roots += reduced.sqrt();
            of_mean += units;
            let clear = 16.0 * d * f64::EPSILON * reduced <= 1.0 && 64.0 * 64.0 * units <= 1.0;
            if !clear {
                unusable = Some((j, 1.0 / precision));
            }
        }
        let moved = if mixture.factor().is_some() { 4.0 * (d + 4.0) * f64::EPSILON * roots * roots } else { 0.0 };
        Self { unusable, loss: 0.25 * moved * moved + 0.5 * d * of_mean }
    }

    /// Returns the error about the covariance of a component, or about the tied one.
    fn failure(&self, component: Option<usize>, covariance_type: CovarianceType) -> Option<Error> {
        let (feature, variance) = self.unusable?;
        if covariance_type.has_matrices() {
            return Some(Error::NotPositiveDefinite { component, pivot: feature });
        }
        let remedy = "this is within the rounding error of the mean; was a column constant? add reg_covar";
        let what = format!("variance in column {feature}");
        Some(Error::BadComponent { what, component: component.unwrap_or(0), value: variance, remedy })
    }
}

/// Returns the component that an error about a covariance names; `None` for a tied covariance.
fn component_of(failure: &Error) -> Option<usize> {
    match failure {
        Error::NotPositiveDefinite { component, .. } => *component,
        Error::BadComponent { component, .. } => Some(*component),
        _ => None,
    }
}

/// Returns the gain in mean log-likelihood of the samples of component `c` (of all, if tied), whose covariance is Σ,
/// under Σ over the covariance Σ' of `before`: ½·(log |Σ'| − log |Σ| + tr(Σ'⁻¹·Σ) − D).
fn gain(new: &Mixture, before: &Mixture, c: usize) -> f64 {
    let twice: f64 = match (new.covariances().matrix(c), new.factor_of(c), before.factor_of(c)) {
        (Some(sigma), Some(u), Some(of_before)) => {
            let trace = trace_of_product(sigma, of_before);
            let log_ratio: f64 =
                u.diag().iter().zip(of_before.diag()).map(|(new, before)| (new / before).log_e()).sum();
            2.0 * log_ratio + trace - new.n_features() as f64
        }
        _ => {
            let ratios = (0..new.n_features()).map(|j| new.variance(c, j) / before.variance(c, j));
            ratios.map(|ratio| ratio - 1.0 - ratio.log_e()).sum()
        }
    };
    0.5 * twice
}

fn weights(counts: &Array1<f64>, floor: f64) -> Array1<f64> {
    let counts = counts + floor;
    let sum = counts.sum();
    counts / sum
}
