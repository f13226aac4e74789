//! What a fit gives, and what its callback sees.
use gmm_core::model::mixture::Mixture;
use gmm_core::variational::mixture::VariationalMixture;
use std::borrow::Borrow;
use std::ops::ControlFlow;

/// The result of a fit, whether it converged or not: of EM, which finds a [`Mixture`], or of
/// variational inference, which finds a [`VariationalMixture`].
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Fit<M = Mixture> {
    /// The parameters after the last iteration.
    pub mixture: M,
    /// scikit-learn's `lower_bounds_`: of EM, the mean log-likelihood of a sample at the beginning
    /// of each iteration; of variational inference, the lower bound of the evidence of all samples
    /// at its end, less what does not depend on the posterior.
    pub lower_bounds: Vec<f64>,
    /// Whether the last iteration changed the lower bound by less than `tol`.
    pub converged: bool,
    /// Whether the callback stopped the fit.
    pub stopped: bool,
    /// The number (from 0) of the run that the other fields are of: the best of them, once the fit
    /// has ended.
    pub run: usize,
    /// Components (ascending) that retained earlier parameters in the last iteration, because they
    /// had no samples or no usable covariance in spite of `reg_covar`: see
    /// [`Statistics::update`](crate::Statistics::update).
    pub retained: Vec<usize>,
}

impl<M> Fit<M> {
    /// A fit without iterations: the first run, at its start. The fields can be set afterwards, for
    /// example by those who read a fit from a file of their own.
    pub fn new(mixture: M) -> Self {
        Self { mixture, lower_bounds: Vec::new(), converged: false, stopped: false, run: 0, retained: Vec::new() }
    }

    /// The same fit with its mixture in another form.
    pub fn map<N>(self, form: impl FnOnce(M) -> N) -> Fit<N> {
        let Self { mixture, lower_bounds, converged, stopped, run, retained } = self;
        Fit { mixture: form(mixture), lower_bounds, converged, stopped, run, retained }
    }

    /// Number of iterations.
    pub fn n_iter(&self) -> usize {
        self.lower_bounds.len()
    }

    /// scikit-learn's `lower_bound_`, that of the last iteration; −∞ without iterations.
    pub fn lower_bound(&self) -> f64 {
        self.lower_bounds.last().copied().unwrap_or(f64::NEG_INFINITY)
    }
}

/// The fit with the greatest lower bound, of equals that of the first run; without iterations the last,
/// as in scikit-learn.
pub(super) fn best_of<M, F: Borrow<Fit<M>>>(fits: impl IntoIterator<Item = F>) -> Option<F> {
    let is_better = |fit: &Fit<M>, best: &Fit<M>| {
        let (bound, greatest) = (fit.lower_bound(), best.lower_bound());
        bound > greatest || bound == greatest && fit.run < best.run || fit.n_iter() == 0
    };
    fits.into_iter().reduce(|best, fit| if is_better(fit.borrow(), best.borrow()) { fit } else { best })
}

impl Fit<VariationalMixture> {
    /// The lower bound of the log-evidence of all samples, with what
    /// [`lower_bound`](Self::lower_bound) leaves out; −∞ without iterations.
    pub fn elbo(&self) -> f64 {
        self.lower_bound() + self.mixture.constant_terms()
    }
}

/// What a callback sees after each iteration.
#[derive(Debug)]
#[non_exhaustive]
pub struct Iteration<'a, M = Mixture> {
    /// Which run (from 0).
    pub run: usize,
    /// Which iteration of it (from 1).
    pub iteration: usize,
    /// Its lower bound, as in [`Fit::lower_bounds`].
    pub lower_bound: f64,
    /// Its change since the iteration before; infinite in the first.
    pub change: f64,
    /// The run so far, with the new parameters.
    pub fit: &'a Fit<M>,
    /// The best of the runs before it; with [`halving`](super::FitOptions::halving), of the
    /// other runs so far.
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
