//! The M-step of variational inference.
use super::mixture::{VariationalMixture, uniform};
use super::prior::VariationalPrior;
use crate::error::{Error, Result};
use crate::model::covariances::Covariances;
use crate::model::linalg::{at_once, for_each_matrix, map_rows};
use crate::model::mixture::Mixture;
use crate::statistics::freeze::Freeze;
use crate::statistics::{COUNT_FLOOR, Statistics};
use ndarray::{Array1, Array2, ArrayView1, Axis, Zip};
use rayon::prelude::*;

impl VariationalMixture {
    /// Computes the posterior from the statistics of an E-step. As in scikit-learn, `reg_covar` is added to the
    /// variances of each component's samples, and [`COUNT_FLOOR`] to their number.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`], [`Error::WrongCovarianceType`] if the prior has another D or covariance type; as
    /// [`Mixture::new`] if a covariance is not usable.
    pub fn from_statistics(prior: &VariationalPrior, statistics: &Statistics, reg_covar: f64) -> Result<Self> {
        Self::m_step(prior, statistics.clone(), reg_covar, None)
    }

    /// Computes the M-step of an iteration from this posterior, without the parts that `freeze` names: the distribution
    /// of the weights, of the means given the precisions (m and β), or of the precisions (W and ν). The free parts are
    /// the best given the frozen ones, so no lower bound falls.
    ///
    /// # Errors
    /// As [`from_statistics`](Self::from_statistics).
    pub fn update(&self, statistics: &Statistics, reg_covar: f64, freeze: &Freeze) -> Result<Self> {
        Self::m_step(&self.prior, statistics.clone(), reg_covar, Some((self, freeze)))
    }

    /// Computes the M-step, with parts of a posterior frozen. The new covariances reuse the memory of the scatter.
    pub fn m_step(
        prior: &VariationalPrior,
        statistics: Statistics,
        reg_covar: f64,
        frozen: Option<(&Self, &Freeze)>,
    ) -> Result<Self> {
        let (k, d) = statistics.means().dim();
        if prior.n_features() != d {
            let (what, got) = ("mean_prior (against the data's columns)", vec![prior.n_features()]);
            return Err(Error::ShapeMismatch { what, expected: vec![d], got });
        }
        prior.covariance.check_type("covariance_prior", statistics.covariance_type(), 1, d)?;
        if let Some((before, freeze)) = frozen {
            before.check_statistics(&statistics)?;
            freeze.check_whole()?;
        }
        let frozen_part =
            |part: fn(&Freeze) -> bool| frozen.filter(|(_, freeze)| part(freeze)).map(|(before, _)| before);
        let counts = &statistics.counts() + COUNT_FLOOR;
        let concentration = match frozen_part(|freeze| freeze.weights.any()) {
            Some(before) if before.prior.weight_concentration_type == prior.weight_concentration_type => {
                before.weight_concentration.clone()
            }
            Some(before) => {
                return Err(Error::BadParameter {
                    name: "freeze",
                    value: format!("weights, of a {}", before.prior.weight_concentration_type),
                    remedy: "the weights of a start can be frozen under a prior of the same weight_concentration_prior_type",
                });
            }
            None => prior.weight_concentration_of(&counts),
        };
        let (means, beta, offsets) = match frozen_part(|freeze| freeze.means.any()) {
            Some(before) => {
                let (means, of_prior) = (before.means().to_owned(), Array1::from_elem(k, prior.mean_precision));
                let mut away = &statistics.means() - &means;
                for (c, mut away) in away.outer_iter_mut().enumerate() {
                    if statistics.counts()[c] <= COUNT_FLOOR {
                        away.fill(0.0);
                    }
                }
                let offsets = vec![(counts.clone(), away), (of_prior, &means - &prior.mean)];
                (means, before.mean_precision.clone(), offsets)
            }
            None => posterior_means(prior, &statistics, &counts),
        };
        let (parts, nu) = match frozen_part(|freeze| freeze.covariances.any()) {
            Some(before) => {
                let (covariances, factor) = (before.covariances().clone(), before.density.factor().cloned());
                (Mixture::from_parts(uniform(k), means, covariances, factor)?, before.degrees_of_freedom.clone())
            }
            None => {
                let (covariances, nu) =
                    posterior_covariances(prior, statistics.into_scatter(), reg_covar, &counts, &offsets);
                (Mixture::of_symmetric(uniform(k), means, covariances)?, nu)
            }
        };
        Self::with_density_of(prior.clone(), concentration, beta, nu, parts)
    }
}

/// The components' factors and vectors of the outer products that their means add to the scatter.
type Offsets = Vec<(Array1<f64>, Array2<f64>)>;

/// Returns the means m and β of the M-step, and the offsets that the samples' means and m₀ add to the scatter.
fn posterior_means(
    prior: &VariationalPrior,
    statistics: &Statistics,
    counts: &Array1<f64>,
) -> (Array2<f64>, Array1<f64>, Offsets) {
    let beta = counts + prior.mean_precision;
    let mut means = statistics.means().to_owned();
    // From m₀ to the samples' mean; zero for a component without samples.
    let mut away = Array2::zeros(means.raw_dim());
    let rows = means.axis_iter_mut(Axis(0)).into_par_iter().zip(away.axis_iter_mut(Axis(0))).enumerate();
    map_rows(rows, at_once(prior.n_features()), |(c, (mut mean, away))| {
        let (count, beta) = (statistics.counts()[c], beta[c]);
        if count <= COUNT_FLOOR {
            mean.assign(&prior.mean);
        }
        Zip::from(&mut mean).and(away).and(&prior.mean).for_each(|mean, away, prior| {
            *away = *mean - prior;
            *mean = (prior * (beta - count) + count * *mean) / beta;
        });
    });
    // nₖ·β₀/βₖ covers both distances.
    let pulls = counts * prior.mean_precision / &beta;
    (means, beta, vec![(pulls, away)])
}

/// Returns the covariances (ν·W)⁻¹ and ν of the M-step, in the memory of the scatter.
fn posterior_covariances(
    prior: &VariationalPrior,
    mut scatter: Covariances,
    reg_covar: f64,
    counts: &Array1<f64>,
    offsets: &Offsets,
) -> (Covariances, Array1<f64>) {
    let (k, d) = (counts.len(), prior.n_features());
    let mut nu = counts + prior.degrees_of_freedom;
    match (&mut scatter, &prior.covariance) {
        (Covariances::Full(v), Covariances::Full(of_prior)) => {
            let of_prior = of_prior.index_axis(Axis(0), 0);
            for_each_matrix(v, |c, mut v| {
                offsets.iter().for_each(|(factors, away)| add_outer(&mut v, factors[c], away.row(c)));
                v.diag_mut().map_inplace(|v| *v += counts[c] * reg_covar);
                Zip::from(v).and(of_prior).for_each(|v, of_prior| *v = (*v + of_prior) / nu[c]);
            });
        }
        (Covariances::Tied(v), Covariances::Tied(of_prior)) => {
            // The components' priors give one posterior: their mean.
            nu.fill(prior.degrees_of_freedom + counts.sum() / k as f64);
            for (factors, away) in offsets {
                away.outer_iter().zip(factors).for_each(|(away, factor)| add_outer(&mut v.view_mut(), *factor, away));
            }
            v.diag_mut().map_inplace(|v| *v += counts.sum() * reg_covar);
            *v /= k as f64;
            *v += of_prior;
            *v /= nu[0];
        }
        (Covariances::Diag(v), Covariances::Diag(of_prior)) => {
            let rows = v.axis_iter_mut(Axis(0)).into_par_iter().enumerate();
            map_rows(rows, at_once(d), |(c, mut v)| {
                for (factors, away) in offsets {
                    Zip::from(&mut v).and(away.row(c)).for_each(|v, away| *v += factors[c] * away * away);
                }
                let regular = counts[c] * reg_covar;
                Zip::from(v).and(of_prior.row(0)).for_each(|v, of_prior| *v = (*v + regular + of_prior) / nu[c]);
            });
        }
        (Covariances::Spherical(v), Covariances::Spherical(of_prior)) => {
            let squares = |c: usize| -> f64 {
                let one = |(factors, away): &(Array1<f64>, Array2<f64>)| {
                    factors[c] * away.row(c).iter().map(|v| v * v).sum::<f64>()
                };
                offsets.iter().map(one).sum()
            };
            for (c, v) in v.iter_mut().enumerate() {
                *v = ((*v + squares(c)) / d as f64 + counts[c] * reg_covar + of_prior[0]) / nu[c];
            }
        }
        _ => unreachable!("the prior has the covariance type of the posterior"),
    }
    (scatter, nu)
}

fn add_outer(matrix: &mut ndarray::ArrayViewMut2<'_, f64>, factor: f64, x: ArrayView1<'_, f64>) {
    for (row, a) in matrix.outer_iter_mut().zip(x) {
        Zip::from(row).and(x).for_each(|v, b| *v += factor * (a * b));
    }
}
