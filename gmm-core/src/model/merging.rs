//! Merging of components to their common moments.
use super::linalg;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::memory;
use crate::model::covariances::{CovarianceType, Covariances};
use crate::model::mixture::Mixture;
use crate::reproducible::Functions;
use ndarray::parallel::prelude::*;
use ndarray::{Array2, ArrayView1, Axis};

impl Mixture {
    /// Returns a mixture of `n_components` components and a bound of the loss: the Kullback–Leibler divergence of the
    /// result from this mixture, in nats, is at most the bound.
    ///
    /// Merges the pair with the least bound ½ [(πₐ + πᵦ) ln|Σₐᵦ| − πₐ ln|Σₐ| − πᵦ ln|Σᵦ|] to its common weight, mean
    /// and covariance Σₐᵦ, and repeats; the bounds add up (Runnalls 2007). With tied covariances, where a merger widens
    /// all components, the bound is ½ (ln|Σ'| − ln|Σ|).
    ///
    /// The overall mean is kept, and the part of the overall covariance that the type can hold: all (`full`, `tied`),
    /// the variances (`diag`) or their sum (`spherical`).
    ///
    /// # Errors
    /// [`Error::BadParameter`] for zero components, or more than the mixture has; [`Error::Memory`].
    pub fn reduce(&self, n_components: usize) -> Result<(Self, f64)> {
        self.check_no_noise("the reduction")?;
        let k = self.n_components();
        if n_components == 0 || n_components > k {
            let remedy = "give a number from 1 to the number of components";
            return Err(Error::BadParameter { name: "n_components", value: n_components.to_string(), remedy });
        }
        memory::check("the bounds of the pairs", &[k, k.div_ceil(2)], size_of::<f64>(), "reduce parts of it first")?;
        let interrupt = Interrupt::current();
        let (mut mixture, mut bound) = (self.clone(), 0.0);
        let tied = self.covariance_type() == CovarianceType::Tied;
        // Row a holds the bounds of the pairs a < b, at b − a − 1.
        let mut bounds: Vec<Vec<f64>> = Vec::new();
        while mixture.n_components() > n_components {
            let k = mixture.n_components();
            if tied || bounds.is_empty() {
                let pair = |a, b| interrupt.check().and_then(|()| merging_bound(&mixture, a, b));
                let row = |a: usize| (a + 1..k).map(|b| pair(a, b)).collect();
                bounds = (0..k).into_par_iter().map(row).collect::<Result<_>>()?;
            }
            interrupt.check()?;
            let mut best = (f64::INFINITY, 0, 1);
            for (a, row) in bounds.iter().enumerate() {
                for (v, b) in row.iter().zip(a + 1..) {
                    if *v < best.0 {
                        best = (*v, a, b);
                    }
                }
            }
            let (least, a, b) = best;
            mixture = merge(&mixture, a, b, false)?;
            bound += least.max(0.0);
            if !tied {
                bounds.remove(b);
                bounds.iter_mut().enumerate().take(b).for_each(|(c, row)| _ = row.remove(b - c - 1));
                for c in (0..k - 1).filter(|c| *c != a) {
                    let (first, second) = (a.min(c), a.max(c));
                    bounds[first][second - first - 1] = merging_bound(&mixture, first, second)?;
                }
            }
        }
        Ok((mixture, bound))
    }
}

fn merging_bound(mixture: &Mixture, a: usize, b: usize) -> Result<f64> {
    let w = mixture.weights();
    let total = w[a] + w[b];
    if total == 0.0 {
        return Ok(0.0);
    }
    match (mixture.covariance_type(), mixture.factor_of(a)) {
        (CovarianceType::Tied, Some(u)) => {
            let delta = &mixture.means().row(b) - &mixture.means().row(a);
            let square = linalg::squared_length(u, &linalg::row_major(delta.view()));
            Ok(0.5 * (w[a] * w[b] / total * square).log_e_1p())
        }
        _ => {
            let together = merge(mixture, a, b, true)?.log_det(0);
            Ok(0.5 * (w[a] * (together - mixture.log_det(a)) + w[b] * (together - mixture.log_det(b))))
        }
    }
}

/// Merges components `a` < `b` to their common moments, in the place of `a`. If `alone`, returns no other component.
pub fn merge(mixture: &Mixture, a: usize, b: usize, alone: bool) -> Result<Mixture> {
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
        // The distance of the means adds to the common matrix in proportion to the pair's weight.
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
