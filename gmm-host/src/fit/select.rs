//! Choosing the number of components and the covariance type.
use super::em::{Em, GaussianMixtureParams};
use super::fitting::steps::Steps;
use super::fitting::{Checked, Fitting, Method};
use super::grow::grown;
use super::outcome::{Callback, Fit};
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::error::{Error, Result};
use gmm_core::model::covariance_model::CovarianceModel;
use gmm_core::model::mixture::Mixture;
use gmm_core::reproducible::Functions;
use gmm_core::statistics::freeze::Freeze;
use ndarray::Axis;

/// A criterion for choosing among models; the model with the least value is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Criterion {
    /// Schwarz's −2 ln L + p ln N.
    #[default]
    Bic,
    /// Akaike's −2 ln L + 2 p.
    Aic,
    /// The integrated complete-data criterion (Biernacki, Celeux and Govaert 2000): that of Schwarz
    /// − 2 Σ ln maxₖ rᵢₖ, which separate components lower.
    Icl,
    /// Rissanen's description length −ln L + ½ p ln(N·D), as the 2011 paper uses it.
    Rissanen,
}

impl Criterion {
    /// All criteria.
    pub const ALL: [Self; 4] = [Self::Bic, Self::Aic, Self::Icl, Self::Rissanen];

    /// Returns `bic`, `aic`, `icl` or `rissanen`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bic => "bic",
            Self::Aic => "aic",
            Self::Icl => "icl",
            Self::Rissanen => "rissanen",
        }
    }

    /// Returns the value for p parameters and N samples (their total weight) of D features; of `icl`, for certain labels.
    pub fn value(self, log_likelihood: f64, n_parameters: usize, n_samples: f64, n_features: usize) -> f64 {
        let p = n_parameters as f64;
        match self {
            Self::Bic | Self::Icl => p * n_samples.log_e() - 2.0 * log_likelihood,
            Self::Aic => 2.0 * p - 2.0 * log_likelihood,
            Self::Rissanen => 0.5 * p * (n_samples * n_features as f64).log_e() - log_likelihood,
        }
    }
}

impl Criterion {
    /// Returns the row of a fit to the evaluator's samples.
    ///
    /// # Errors
    /// Errors of the evaluator.
    pub(super) fn candidate(self, evaluator: &mut dyn Evaluator, fit: &Fit) -> Result<Candidate> {
        let log_likelihood = evaluator.log_likelihood(&fit.mixture)?;
        let (n_parameters, d) = (fit.mixture.n_parameters(), evaluator.n_features());
        let uncertainty = if self == Self::Icl { uncertainty(evaluator, &fit.mixture)? } else { 0.0 };
        let value = self.value(log_likelihood, n_parameters, evaluator.total_weight(), d) + uncertainty;
        Ok(Candidate {
            covariance_type: fit.mixture.covariance_model(),
            n_components: fit.mixture.n_components(),
            n_parameters,
            log_likelihood,
            criterion: if fit.retained.is_empty() { value } else { f64::NAN },
            uncertainty,
            n_iter: fit.n_iter(),
            converged: fit.converged,
        })
    }
}

/// −2 Σᵢ wᵢ ln maxₖ rᵢₖ.
fn uncertainty(evaluator: &mut dyn Evaluator, mixture: &Mixture) -> Result<f64> {
    let r = evaluator.predict_proba(mixture)?;
    let largest = r.map_axis(Axis(1), |row| row.fold(0.0, |most: f64, v| most.max(*v)).log_e());
    let sum = match evaluator.data().weights {
        Some(weights) => largest.dot(&weights),
        None => largest.sum(),
    };
    Ok(-2.0 * sum)
}

impl std::str::FromStr for Criterion {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|criterion| criterion.name() == name);
        let remedy = "use bic, aic, icl or rissanen";
        known.ok_or_else(|| Error::BadParameter { name: "criterion", value: format!("`{name}`"), remedy })
    }
}

impl std::fmt::Display for Criterion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A model that was tried.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Candidate {
    /// The covariance type.
    pub covariance_type: CovarianceModel,
    /// K.
    pub n_components: usize,
    /// Number of free parameters.
    pub n_parameters: usize,
    /// Total log-likelihood under the fitted parameters.
    pub log_likelihood: f64,
    /// The criterion's value; NaN where the last M-step retained components, because one was empty or had collapsed.
    pub criterion: f64,
    /// −2 Σ ln maxₖ rᵢₖ where the criterion is `icl`, and else 0.
    pub uncertainty: f64,
    /// Iterations of the fit.
    pub n_iter: usize,
    /// Whether it converged.
    pub converged: bool,
}

impl Ranked for Candidate {
    fn criterion(&self) -> f64 {
        self.criterion
    }
}

/// A row of a selection's table.
pub trait Ranked {
    /// Returns the value by which models are compared: the least is best, NaN is worst.
    fn criterion(&self) -> f64;
}

/// The models that were tried, and the best of them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Selection<M = Mixture, C = Candidate> {
    /// All models, in the order of the fits.
    pub table: Vec<C>,
    /// Index of the best row.
    pub best: usize,
    /// The best model's fit.
    pub fit: Fit<M>,
    /// Whether the callback stopped the search; the table then ends with the fit that it stopped.
    pub stopped: bool,
    /// The numbers of components (ascending) that were not tried because there are fewer samples.
    pub left_out: Vec<usize>,
    /// The models whose fits failed, because a component was empty or collapsed at the start.
    pub failed: Vec<Failed>,
}

/// A model whose fit failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// The covariance type.
    pub covariance_type: CovarianceModel,
    /// K.
    pub n_components: usize,
    /// The error in words.
    pub reason: String,
}

impl<M, C> Selection<M, C> {
    /// Returns the selection with its rows mapped.
    #[must_use]
    pub fn map_rows<D>(self, row: impl FnMut(C) -> D) -> Selection<M, D> {
        let Self { table, best, fit, stopped, left_out, failed } = self;
        Selection { table: table.into_iter().map(row).collect(), best, fit, stopped, left_out, failed }
    }
}

impl<M, C: Ranked> Selection<M, C> {
    /// Returns this search and another by the same criterion as one search.
    #[must_use]
    pub fn then(mut self, other: Self) -> Self {
        if is_better(&other.table[other.best], &self.table[self.best]) {
            (self.best, self.fit) = (self.table.len() + other.best, other.fit);
        }
        self.table.extend(other.table);
        self.stopped |= other.stopped;
        self.left_out.extend(other.left_out);
        self.left_out.sort_unstable();
        self.left_out.dedup();
        self.failed.extend(other.failed);
        self
    }
}

fn is_better(row: &impl Ranked, best: &impl Ranked) -> bool {
    row.criterion() < best.criterion() || best.criterion().is_nan()
}

/// Fits every K of `n_components` with every covariance type, otherwise with `params`, and selects the best by
/// `criterion`, the first of equal ones. Each fit calls `callback`, which ends the search by breaking. A K with too few
/// samples ([`Selection::left_out`]) and a model whose covariances collapse ([`Selection::failed`]) are left out.
///
/// # Errors
/// [`Error::BadParameter`] if there is nothing to try; the first model's error if all are left out; as
/// [`Checked::fit`].
pub fn select(
    evaluator: &mut dyn Evaluator,
    params: &GaussianMixtureParams,
    n_components: &[usize],
    covariance_types: &[impl Into<CovarianceModel> + Copy],
    criterion: Criterion,
    callback: Callback<'_>,
) -> Result<Selection> {
    // All models are checked before the first fit begins.
    let models = models(params, n_components, covariance_types)?;
    select_by(evaluator, &models, &|evaluator, fit| criterion.candidate(evaluator, fit), callback)
}

/// Selects as [`select`] among models of any method, which `rank` compares.
///
/// # Errors
/// As [`select`], and errors of `rank`.
pub fn select_by<M: Method, C: Ranked>(
    evaluator: &mut dyn Evaluator,
    models: &[Checked<Fitting<M>>],
    rank: Rank<'_, M::Model, C>,
    callback: Callback<'_, M::Model>,
) -> Result<Selection<M::Model, C>> {
    try_all(evaluator, models, rank, callback, &mut |_, fit, _, _| Ok(fit))
}

/// Ranks a fit to the evaluator's samples.
pub type Rank<'a, M, C> = &'a dyn Fn(&mut dyn Evaluator, &Fit<M>) -> Result<C>;

/// Improves a fit before it is ranked.
type Improve<'a, M> = &'a mut dyn FnMut(
    &Checked<Fitting<M>>,
    Fit<<M as Steps>::Model>,
    &mut dyn Evaluator,
    Callback<'_, <M as Steps>::Model>,
) -> Result<Fit<<M as Steps>::Model>>;

/// Selects as [`select`], with one more run for each K but the first of a covariance type: it starts at the fit of the
/// previous K with components split in two. So no bound is below that of [`select`] with the same starts.
///
/// To add a component, every component is split along its first two axes; the likeliest of these mixtures after a few
/// iterations over some samples is taken. K are tried in ascending order. `callback` sees the additional run as a fit.
///
/// # Errors
/// As [`select`]; [`Error::BadParameter`] with noise or frozen parameters.
pub fn grow(
    evaluator: &mut dyn Evaluator,
    params: &GaussianMixtureParams,
    n_components: &[usize],
    covariance_types: &[impl Into<CovarianceModel> + Copy],
    criterion: Criterion,
    callback: Callback<'_>,
) -> Result<Selection> {
    params.method.check_no_noise("growing")?;
    if params.options.freeze != Freeze::default() {
        return Err(Error::BadParameter {
            name: "freeze",
            value: "given beside growing".into(),
            remedy: "a component that is split changes all parameters; fit each number of components from its own start",
        });
    }
    let mut n_components = n_components.to_vec();
    n_components.sort_unstable();
    n_components.dedup();
    let models = models(params, &n_components, covariance_types)?;
    let mut before: Option<Mixture> = None;
    let rank: Rank<'_, _, _> = &|evaluator, fit| criterion.candidate(evaluator, fit);
    try_all(evaluator, &models, rank, callback, &mut |model, fit, evaluator, callback| {
        let fit = match before.take().filter(|before| before.covariance_model() == model.options.covariance_type) {
            Some(before) if !fit.stopped => grown(model, before, fit, evaluator, callback)?,
            _ => fit,
        };
        before = Some(fit.mixture.clone());
        Ok(fit)
    })
}

fn models(
    params: &GaussianMixtureParams,
    n_components: &[usize],
    covariance_types: &[impl Into<CovarianceModel> + Copy],
) -> Result<Vec<Checked<Fitting<Em>>>> {
    let of_type = |&t| n_components.iter().map(move |&k| params.clone().n_components(k).covariance_type(t).check());
    covariance_types.iter().flat_map(of_type).collect()
}

fn try_all<M: Method, C: Ranked>(
    evaluator: &mut dyn Evaluator,
    models: &[Checked<Fitting<M>>],
    rank: Rank<'_, M::Model, C>,
    callback: Callback<'_, M::Model>,
    improve: Improve<'_, M>,
) -> Result<Selection<M::Model, C>> {
    let mut search = Search::new(rank);
    // The least K with too few samples, and its error.
    let mut too_few: Option<(usize, Error)> = None;
    let mut failure: Option<Error> = None;
    for model in models {
        let k = model.options.n_components;
        let fit = match model.fit_with(evaluator, callback) {
            Err(error @ (Error::TooFewSamples { .. } | Error::TooFewWeightedSamples { .. })) => {
                search.left_out.push(k);
                too_few = Some(too_few.take().filter(|(least, _)| *least <= k).unwrap_or((k, error)));
                continue;
            }
            Err(error) if error.is_of_component() => {
                let (covariance_type, reason) = (model.options.covariance_type, error.to_string());
                search.failed.push(Failed { covariance_type, n_components: k, reason });
                failure.get_or_insert(error);
                continue;
            }
            fit => fit?,
        };
        let fit = improve(model, fit, evaluator, callback)?;
        if search.add(evaluator, fit)? {
            break;
        }
    }
    match failure.or(too_few.map(|(_, error)| error)) {
        Some(error) if search.table.is_empty() => Err(error),
        _ => search.finish(),
    }
}

/// A selection to which fits are added.
pub(super) struct Search<'a, M, C> {
    rank: Rank<'a, M, C>,
    table: Vec<C>,
    best: Option<(usize, Fit<M>)>,
    stopped: bool,
    left_out: Vec<usize>,
    failed: Vec<Failed>,
}

impl<'a, M, C: Ranked> Search<'a, M, C> {
    pub(super) fn new(rank: Rank<'a, M, C>) -> Self {
        Self { rank, table: Vec::new(), best: None, stopped: false, left_out: Vec::new(), failed: Vec::new() }
    }

    /// Adds a fit, and returns whether its callback ended the search.
    pub(super) fn add(&mut self, evaluator: &mut dyn Evaluator, fit: Fit<M>) -> Result<bool> {
        let row = (self.rank)(evaluator, &fit)?;
        self.stopped = fit.stopped;
        if self.best.as_ref().is_none_or(|(i, _)| is_better(&row, &self.table[*i])) {
            self.best = Some((self.table.len(), fit));
        }
        self.table.push(row);
        Ok(self.stopped)
    }

    pub(super) fn finish(mut self) -> Result<Selection<M, C>> {
        self.left_out.sort_unstable();
        self.left_out.dedup();
        let Some((best, fit)) = self.best else {
            return Err(Error::BadParameter {
                name: "n_components or covariance_types",
                value: "an empty list".into(),
                remedy: "give at least one of each",
            });
        };
        let Self { table, stopped, left_out, failed, .. } = self;
        Ok(Selection { table, best, fit, stopped, left_out, failed })
    }
}
