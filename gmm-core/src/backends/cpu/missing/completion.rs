//! Extension of the statistics of the observed columns to all columns, for covariances with matrices.
//!
//! The mean of a missing column given the observed ones is linear in these, x̂_m = μ_m + B·(x_o − μ_o), so its sums
//! over a group's samples follow from the sums of the observed columns: with Nₖ, x̄_o and the scatter S_oo of a
//! component, its mean is μ_m + B·(x̄_o − μ_o), S_mo = B·S_oo, and S_mm = B·S_oo·Bᵀ + Nₖ·C, with C the covariance of
//! the missing columns given the observed ones ([`Marginal`]).
use crate::error::Result;
use crate::model::covariances::Covariances;
use crate::model::linalg::product;
use crate::model::marginal::{Dependence, Marginal};
use crate::model::mixture::Mixture;
use crate::statistics::{CentredSums, Statistics};
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis};

pub(super) fn completed(seen: Statistics, marginal: &Marginal, mixture: &Mixture) -> Result<Statistics> {
    if marginal.missing.is_empty() {
        return Ok(seen);
    }
    let (k, d) = mixture.means().dim();
    let counts = seen.counts().to_owned();
    let dependences = marginal.dependences(mixture);
    let of = |c: usize| &dependences[c.min(dependences.len() - 1)];
    let mut centres = mixture.means().to_owned();
    for (c, mut centre) in centres.outer_iter_mut().enumerate().filter(|(c, _)| counts[*c] > 0.0) {
        let delta = &seen.means().row(c) - &marginal.mixture.means().row(c);
        let mut filled = centre.select(Axis(0), &marginal.missing);
        of(c).add(delta.view(), filled.view_mut());
        marginal.missing.iter().zip(filled).for_each(|(&j, v)| centre[j] = v);
        marginal.observed.iter().zip(seen.means().row(c)).for_each(|(&j, v)| centre[j] = *v);
    }
    let mut second = Covariances::zeros(mixture.covariance_type(), k, d);
    match (&mut second, seen.scatter()) {
        (Covariances::Full(all), Covariances::Full(seen)) => {
            for (c, (all, seen)) in all.outer_iter_mut().zip(seen.outer_iter()).enumerate() {
                if counts[c] > 0.0 {
                    complete(all, seen, marginal, of(c), counts[c]);
                }
            }
        }
        (Covariances::Tied(all), Covariances::Tied(seen)) => {
            complete(all.view_mut(), seen.view(), marginal, of(0), counts.sum());
        }
        _ => unreachable!("the engine of columns evaluates covariances without matrices"),
    }
    Statistics::from_centred_sums(CentredSums {
        weight: seen.weight(),
        log_likelihood: seen.log_likelihood(),
        first: Array2::zeros((k, d)),
        centres,
        counts,
        second,
    })
}

/// Writes a scatter matrix from its observed part `seen`; `count` is its number of samples.
fn complete(
    mut all: ArrayViewMut2<'_, f64>,
    seen: ArrayView2<'_, f64>,
    marginal: &Marginal,
    dependence: &Dependence,
    count: f64,
) {
    let (observed, missing) = (&marginal.observed, &marginal.missing);
    for ((i, j), v) in seen.indexed_iter() {
        all[[observed[i], observed[j]]] = *v;
    }
    let mut inner = &dependence.covariance * count;
    if let Some(slope) = &dependence.slope {
        let mixed = product(slope.view(), seen);
        inner += &product(mixed.view(), slope.t());
        for ((i, j), &v) in mixed.indexed_iter() {
            all[[missing[i], observed[j]]] = v;
            all[[observed[j], missing[i]]] = v;
        }
    }
    for ((i, j), &v) in inner.indexed_iter() {
        all[[missing[i], missing[j]]] = v;
    }
}

/// Returns the statistics of samples of this weight without observed values: they are distributed as the mixture.
pub(super) fn unobserved(weight: f64, mixture: &Mixture) -> Result<Statistics> {
    let (k, d) = mixture.means().dim();
    let counts = &mixture.weights() * (weight / mixture.weights().sum());
    let mut second = mixture.covariances().clone();
    match &mut second {
        Covariances::Full(v) => v.outer_iter_mut().zip(&counts).for_each(|(mut v, n)| v *= *n),
        Covariances::Tied(v) => *v *= weight,
        Covariances::Diag(_) | Covariances::Spherical(_) => {
            unreachable!("the engine of columns evaluates covariances without matrices")
        }
    }
    Statistics::from_centred_sums(CentredSums {
        weight,
        log_likelihood: 0.0,
        first: Array2::zeros((k, d)),
        centres: mixture.means().to_owned(),
        counts,
        second,
    })
}
