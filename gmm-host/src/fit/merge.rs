//! Merging components, beginning with many: how the 2011 paper finds K (after Bouman's CLUSTER).
use super::outcome::Callback;
use super::params::GaussianMixtureValidParams;
use super::select::{Criterion, Search, Selection};
use crate::error::{Error, Result};
use crate::evaluator::Evaluator;
use crate::model::covariances::Covariances;
use crate::model::linalg;
use crate::model::mixture::Mixture;
use ndarray::parallel::prelude::*;
use ndarray::{Array2, ArrayView1, Axis};

/// Fits `model`, then repeatedly merges the two closest components and fits from there, down to
/// `least` components (at least one), and selects the best of all fits by `criterion`.
///
/// The distance of components a and b is the loss of log-likelihood by merging them to their common
/// moments: ½ [πₐ ln(|Σₐᵦ|/|Σₐ|) + πᵦ ln(|Σₐᵦ|/|Σᵦ|)], with Σₐᵦ the covariance of the two taken
/// together.
///
/// # Errors
/// As [`GaussianMixtureValidParams::fit`].
pub fn merge_down(
    evaluator: &mut dyn Evaluator,
    model: &GaussianMixtureValidParams,
    least: usize,
    criterion: Criterion,
    callback: Callback<'_>,
) -> Result<Selection> {
    let mut search = Search::new(criterion);
    let mut fit = model.fit_with(evaluator, callback)?;
    loop {
        let mixture = fit.mixture.clone();
        if search.add(evaluator, fit)? || mixture.n_components() <= least.max(1) {
            return search.finish();
        }
        let merged = merge_closest(&mixture)?;
        // The initial parameters that the caller gave are for the first fit only.
        let mut next = model.clone();
        (next.weights_init, next.means_init, next.precisions_init) = (None, None, None);
        let params = next.into_params().n_components(merged.n_components()).start(merged);
        fit = params.check()?.fit_with(evaluator, callback)?;
    }
}

/// The mixture (K − 1) with its two closest components merged; K is at least two.
fn merge_closest(mixture: &Mixture) -> Result<Mixture> {
    let k = mixture.n_components();
    let log_dets: Vec<f64> = (0..k).into_par_iter().map(|c| log_det(mixture, c)).collect::<Result<_>>()?;
    let closest = (0..k)
        .into_par_iter()
        .map(|a| {
            let mut best = (f64::INFINITY, a, a);
            for b in a + 1..k {
                let w = mixture.weights();
                let together = log_det(&merge(mixture, a, b, true)?, 0)?;
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

/// Merges components `a` < `b` to their common moments, in the place of `a`. If `alone`, gives a
/// mixture of the merged component only.
fn merge(mixture: &Mixture, a: usize, b: usize, alone: bool) -> Result<Mixture> {
    let weights = mixture.weights();
    let total = weights[a] + weights[b];
    // Two components of weight zero count half each.
    let share = if total > 0.0 { weights[b] / total } else { 0.5 };
    let delta = &mixture.means().row(b) - &mixture.means().row(a);
    let spread = share * (1.0 - share);
    let rows: Vec<usize> = if alone { vec![a] } else { (0..mixture.n_components()).filter(|&c| c != b).collect() };
    let at = if alone { 0 } else { a };
    let mut means = mixture.means().select(Axis(0), &rows);
    means.row_mut(at).scaled_add(share, &delta);
    let mut new_weights = weights.select(Axis(0), &rows);
    new_weights[at] = if alone { 1.0 } else { total };
    let outer = outer(delta.view());
    let covariances = match mixture.covariances() {
        Covariances::Full(v) => {
            let mut new = v.select(Axis(0), &rows);
            let both = &v.index_axis(Axis(0), a) * (1.0 - share) + &v.index_axis(Axis(0), b) * share;
            new.index_axis_mut(Axis(0), at).assign(&(both + outer * spread));
            Covariances::Full(new)
        }
        // The distance of the two means adds to the common matrix in proportion to their weight.
        Covariances::Tied(v) => Covariances::Tied(v + &(outer * (spread * if alone { 1.0 } else { total }))),
        Covariances::Diag(v) => {
            let mut new = v.select(Axis(0), &rows);
            let both = &v.row(a) * (1.0 - share) + &v.row(b) * share;
            new.row_mut(at).assign(&(both + outer.diag().to_owned() * spread));
            Covariances::Diag(new)
        }
        Covariances::Spherical(v) => {
            let mut new = v.select(Axis(0), &rows);
            new[at] = v[a] * (1.0 - share) + v[b] * share + spread * outer.diag().sum() / delta.len() as f64;
            Covariances::Spherical(new)
        }
    };
    Mixture::new(new_weights, means, covariances)
}

fn outer(v: ArrayView1<'_, f64>) -> Array2<f64> {
    Array2::from_shape_fn((v.len(), v.len()), |(i, j)| v[i] * v[j])
}

/// ln |Σ| of a component.
fn log_det(mixture: &Mixture, c: usize) -> Result<f64> {
    let of_matrix = |m: ndarray::ArrayView2<'_, f64>| {
        let lower = linalg::cholesky(m).map_err(|pivot| Error::NotPositiveDefinite { component: Some(c), pivot })?;
        Ok((0..m.nrows()).map(|j| 2.0 * lower[[j, j]].ln()).sum())
    };
    match mixture.covariances() {
        Covariances::Full(v) => of_matrix(v.index_axis(Axis(0), c)),
        Covariances::Tied(v) => of_matrix(v.view()),
        Covariances::Diag(v) => Ok(v.row(c).iter().map(|v| v.ln()).sum()),
        Covariances::Spherical(v) => Ok(v[c].ln() * mixture.n_features() as f64),
    }
}
