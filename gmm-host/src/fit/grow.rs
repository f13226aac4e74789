//! A fit that starts at one of fewer components, some of them split in two.
use super::em::Em;
use super::fitting::{Checked, Fitting};
use super::init::random_numbers;
use super::outcome::{Callback, Fit, best_of};
use super::subset::{SUBSET, subset};
use gmm_core::backends::cpu::CpuEvaluator;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::data::samples::{Rows, Samples};
use gmm_core::error::Result;
use gmm_core::model::covariances::Covariances;
use gmm_core::model::mixture::Mixture;
use ndarray::parallel::prelude::*;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};
use std::ops::ControlFlow;

/// The distance of two halves from their mean, in standard deviations. Together they have the covariance of the whole.
const APART: f64 = 0.8;
/// The number of axes along which a component is split.
const AXES: usize = 2;
/// The iterations after which trial splits are compared.
const TRIAL: usize = 5;
/// The multiplications that find an axis, which need not be exact.
const POWERS: usize = 30;

/// Returns the better of `fit` and a fit that starts from `before`, the mixture of fewer components.
pub(super) fn grown(
    model: &Checked<Fitting<Em>>,
    before: Mixture,
    mut fit: Fit,
    evaluator: &mut dyn Evaluator,
    callback: Callback<'_>,
) -> Result<Fit> {
    let Some(start) = model.grown_start(before, evaluator)? else { return Ok(fit) };
    let grown = model.restarted(start).check()?.fit_with(evaluator, callback)?;
    if grown.lower_bound() > fit.lower_bound() {
        // Its run number follows those of the other starts.
        return Ok(Fit { run: model.options.n_init, ..grown });
    }
    fit.stopped |= grown.stopped;
    Ok(fit)
}

impl Checked<Fitting<Em>> {
    /// Returns the start that [`grow`](super::grow) makes of a mixture of fewer components: the likeliest mixture of K
    /// components by splitting components of `before`, or `None` if no split is possible.
    ///
    /// # Errors
    /// [`Error::Unsupported`](gmm_core::error::Error::Unsupported) for a mixture with noise; errors of the evaluator.
    pub fn grown_start(&self, before: Mixture, evaluator: &mut dyn Evaluator) -> Result<Option<Mixture>> {
        before.check_no_noise("the growth")?;
        let k = self.options.n_components;
        // The stream after the streams of all runs.
        let rng = &mut random_numbers((self.options.random_state, self.options.n_init as u64));
        let size = SUBSET.max(k.saturating_mul(4)).min(evaluator.n_samples());
        let Rows { x, weights } = subset(evaluator, k, size, rng)?.rows;
        let samples = Samples::with_missing(x.view())?.with_weights(weights.view())?;
        let mut mixture = before;
        while mixture.n_components() < k {
            let d = mixture.n_features();
            let splits: Vec<(usize, usize)> =
                (0..mixture.n_components()).flat_map(|c| (0..AXES.min(d)).map(move |axis| (c, axis))).collect();
            let tried: Vec<Option<Fit>> = splits
                .into_par_iter()
                .map(|(c, axis)| {
                    let split = split(&mixture, c, axis)?;
                    let trial = self.restarted(split).max_iter(TRIAL).tol(0.0).check()?;
                    let mut few = CpuEvaluator::of_this_thread(samples.clone());
                    trial.fit_with(&mut few, &mut |_| ControlFlow::Continue(()))
                })
                // A split that makes no valid mixture is skipped.
                .map(Result::ok)
                .collect();
            let Some(best) = best_of(tried.into_iter().flatten()) else { return Ok(None) };
            mixture = best.mixture;
        }
        Ok(Some(mixture))
    }
}

/// Returns the mixture with component `c` split in two along an axis of its covariance (0 is the longest). Each half
/// has half of the weight; the second half is the last component.
fn split(mixture: &Mixture, c: usize, axis: usize) -> Result<Mixture> {
    let d = mixture.n_features();
    let weight = mixture.weights()[c];
    // The old components, and a second copy of the split one.
    let rows: Vec<usize> = (0..mixture.n_components()).chain([c]).collect();
    let last = mixture.n_components();
    let along_feature = |spread: ArrayView1<'_, f64>, variance: &dyn Fn(usize) -> f64| {
        let feature = descending(spread)[axis];
        let mut offset = Array1::zeros(d);
        offset[feature] = APART * variance(feature).sqrt();
        offset
    };
    let (offset, covariances) = match mixture.covariances() {
        Covariances::Full(v) => {
            let offset = along_axis(v.index_axis(Axis(0), c), axis);
            let mut half = v.index_axis(Axis(0), c).to_owned();
            subtract_outer(&mut half, &offset, 1.0);
            let mut all = v.select(Axis(0), &rows);
            all.index_axis_mut(Axis(0), c).assign(&half);
            all.index_axis_mut(Axis(0), last).assign(&half);
            (offset, Covariances::Full(all))
        }
        Covariances::Tied(v) => {
            let offset = along_axis(v.view(), axis);
            let mut common = v.clone();
            subtract_outer(&mut common, &offset, weight);
            (offset, Covariances::Tied(common))
        }
        Covariances::Diag(v) => {
            let offset = along_feature(v.row(c), &|feature| v[[c, feature]]);
            let half = &v.row(c) - &(&offset * &offset);
            let mut all = v.select(Axis(0), &rows);
            all.row_mut(c).assign(&half);
            all.row_mut(last).assign(&half);
            (offset, Covariances::Diag(all))
        }
        Covariances::Spherical(v) => {
            // All axes have the same length, so the spread of the means chooses the feature.
            let offset = along_feature(mixture.means().var_axis(Axis(0), 0.0).view(), &|_| v[c]);
            let mut all = v.select(Axis(0), &rows);
            let half = v[c] * (1.0 - APART * APART / d as f64);
            (all[c], all[last]) = (half, half);
            (offset, Covariances::Spherical(all))
        }
    };
    let mut weights = mixture.weights().select(Axis(0), &rows);
    let mut means = mixture.means().select(Axis(0), &rows);
    (weights[c], weights[last]) = (0.5 * weight, 0.5 * weight);
    means.row_mut(c).scaled_add(1.0, &offset);
    means.row_mut(last).scaled_add(-1.0, &offset);
    Mixture::new(weights, means, covariances)
}

/// Returns the features' indices by descending variance.
fn descending(variances: ArrayView1<'_, f64>) -> Vec<usize> {
    let mut features: Vec<usize> = (0..variances.len()).collect();
    features.sort_by(|a, b| variances[*b].total_cmp(&variances[*a]));
    features
}

/// Returns a vector along an axis of the covariance, APART standard deviations long. The covariance less its outer
/// product is positive definite, even if the axis is not exact.
fn along_axis(covariance: ArrayView2<'_, f64>, axis: usize) -> Array1<f64> {
    let d = covariance.nrows();
    let mut found: Vec<Array1<f64>> = Vec::new();
    let features = descending(covariance.diag());
    for feature in &features[..=axis] {
        let mut v = Array1::zeros(d);
        v[*feature] = 1.0;
        for _ in 0..POWERS {
            let mut next = covariance.dot(&v);
            for u in &found {
                let along = u.dot(&next);
                next.scaled_add(-along, u);
            }
            let length = next.dot(&next).sqrt();
            if !length.is_normal() {
                break;
            }
            v = next / length;
        }
        found.push(v);
    }
    let v = &found[axis];
    let along = covariance.dot(v);
    let variance = v.dot(&along);
    along * (APART / variance.sqrt())
}

fn subtract_outer(matrix: &mut Array2<f64>, v: &Array1<f64>, factor: f64) {
    for ((i, j), value) in matrix.indexed_iter_mut() {
        *value -= factor * v[i] * v[j];
    }
}
