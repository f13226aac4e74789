//! What a fit gives, and what its callback sees.
use crate::model::mixture::Mixture;
use std::ops::ControlFlow;

/// The result of a fit, whether it converged or not.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Fit {
    /// The parameters after the last iteration.
    pub mixture: Mixture,
    /// The mean log-likelihood of a sample at the beginning of each iteration: scikit-learn's
    /// `lower_bounds_`.
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

impl Fit {
    /// A fit without iterations: the first run, at its start. The fields can be set afterwards, for
    /// example by those who read a fit from a file of their own.
    pub fn new(mixture: Mixture) -> Self {
        Self { mixture, lower_bounds: Vec::new(), converged: false, stopped: false, run: 0, retained: Vec::new() }
    }

    /// Number of iterations.
    pub fn n_iter(&self) -> usize {
        self.lower_bounds.len()
    }

    /// scikit-learn's `lower_bound_`: the mean log-likelihood under the parameters before the last
    /// M-step; −∞ without iterations.
    pub fn lower_bound(&self) -> f64 {
        self.lower_bounds.last().copied().unwrap_or(f64::NEG_INFINITY)
    }
}

/// What a callback sees after each iteration.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Iteration<'a> {
    /// Which run (from 0).
    pub run: usize,
    /// Which iteration of it (from 1).
    pub iteration: usize,
    /// Mean log-likelihood of a sample before this iteration's M-step.
    pub lower_bound: f64,
    /// Its change since the iteration before; infinite in the first.
    pub change: f64,
    /// The run so far, with the new parameters.
    pub fit: &'a Fit,
    /// The best of the runs before it.
    pub best: Option<&'a Fit>,
}

/// A callback: progress, a checkpoint, or an early end by [`ControlFlow::Break`].
pub type Callback<'a> = &'a mut dyn FnMut(&Iteration<'_>) -> ControlFlow<()>;
