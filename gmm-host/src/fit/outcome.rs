//! The result of a fit, and the view of its callback.
use gmm_core::model::mixture::Mixture;
use gmm_core::variational::mixture::VariationalMixture;
use std::borrow::Borrow;
use std::ops::ControlFlow;

/// The result of a fit, converged or not: a [`Mixture`] by EM, a [`VariationalMixture`] by variational inference.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Fit<M = Mixture> {
    /// The parameters after the last iteration.
    pub mixture: M,
    /// scikit-learn's `lower_bounds_`: for EM, the mean log-likelihood at the beginning of each iteration; for
    /// variational inference, the lower bound of all samples' evidence at its end, without constant terms.
    pub lower_bounds: Vec<f64>,
    /// Whether the last iteration changed the lower bound by less than `tol`.
    pub converged: bool,
    /// Whether the callback stopped the fit.
    pub stopped: bool,
    /// The number (from 0) of the run that this fit comes from: the best run, once the fit has ended.
    pub run: usize,
    /// The components (ascending) that kept earlier parameters in the last iteration because they had no samples, or no
    /// usable covariance in spite of `reg_covar`: see [`Statistics::update`](crate::Statistics::update).
    pub retained: Vec<usize>,
}

impl<M> Fit<M> {
    /// Returns a fit without iterations: the first run, at its start. The fields can be set, for example from a file.
    pub fn new(mixture: M) -> Self {
        Self { mixture, lower_bounds: Vec::new(), converged: false, stopped: false, run: 0, retained: Vec::new() }
    }

    /// Returns the same fit with its mixture in another form.
    pub fn map<N>(self, form: impl FnOnce(M) -> N) -> Fit<N> {
        let Self { mixture, lower_bounds, converged, stopped, run, retained } = self;
        Fit { mixture: form(mixture), lower_bounds, converged, stopped, run, retained }
    }

    /// Returns the number of iterations.
    pub fn n_iter(&self) -> usize {
        self.lower_bounds.len()
    }

    /// Returns scikit-learn's `lower_bound_`, that of the last iteration; −∞ without iterations.
    pub fn lower_bound(&self) -> f64 {
        self.lower_bounds.last().copied().unwrap_or(f64::NEG_INFINITY)
    }
}

/// Returns the fit with the greatest lower bound, the first of equal ones; without iterations the last.
pub(super) fn best_of<M, F: Borrow<Fit<M>>>(fits: impl IntoIterator<Item = F>) -> Option<F> {
    let is_better = |fit: &Fit<M>, best: &Fit<M>| {
        let (bound, greatest) = (fit.lower_bound(), best.lower_bound());
        bound > greatest || bound == greatest && fit.run < best.run || fit.n_iter() == 0
    };
    fits.into_iter().reduce(|best, fit| if is_better(fit.borrow(), best.borrow()) { fit } else { best })
}

impl Fit<VariationalMixture> {
    /// Returns the lower bound of the log-evidence of all samples, with the terms that
    /// [`lower_bound`](Self::lower_bound) leaves out; −∞ without iterations.
    pub fn elbo(&self) -> f64 {
        self.lower_bound() + self.mixture.constant_terms()
    }
}

/// The state that a callback sees after each iteration.
#[derive(Debug)]
#[non_exhaustive]
pub struct Iteration<'a, M = Mixture> {
    /// The number of the run (from 0).
    pub run: usize,
    /// The number of its iteration (from 1).
    pub iteration: usize,
    /// Its lower bound, as in [`Fit::lower_bounds`].
    pub lower_bound: f64,
    /// The change since the previous iteration; infinite in the first.
    pub change: f64,
    /// The run so far, with the new parameters.
    pub fit: &'a Fit<M>,
    /// The best of the earlier runs; with [`halving`](super::FitOptions::halving), of the other runs so far.
    pub best: Option<&'a Fit<M>>,
}

impl<M> Clone for Iteration<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Iteration<'_, M> {}

/// A callback: progress, a checkpoint, or an early end by [`ControlFlow::Break`].
pub type Callback<'a, M = Mixture> = &'a mut dyn FnMut(&Iteration<'_, M>) -> ControlFlow<()>;
