//! A group of few rows, evaluated row by row in float64.
use crate::compensated::neumaier_sum;
use crate::contract::evaluator::most_probable;
use crate::data::patterns::gather;
use crate::data::samples::Samples;
use crate::error::{Error, Result};
use crate::model::covariances::Covariances;
use crate::model::density::Density;
use crate::model::marginal::Marginal;
use crate::statistics::{CentredSums, Statistics};
use ndarray::{Array1, Array2, ArrayView1, ArrayViewMut2, Axis};

#[derive(Clone, Copy)]
pub(super) struct GroupRows<'r> {
    pub samples: &'r Samples<'r>,
    pub rows: &'r [usize],
}

/// The observed columns of a group's rows, and their mixture.
pub(super) struct FewRows<'r, 'm> {
    rows: GroupRows<'r>,
    marginal: &'m Marginal,
}

impl<'r, 'm> FewRows<'r, 'm> {
    pub fn new(rows: GroupRows<'r>, marginal: &'m Marginal) -> Self {
        Self { rows, marginal }
    }

    fn weight(&self, i: usize) -> f64 {
        self.rows.samples.weights().map_or(1.0, |w| w[self.rows.rows[i]])
    }

    /// Calls `visit` with each row's index in the group, observed values, responsibilities (K,), and log-density.
    fn for_each(&self, mut visit: impl FnMut(usize, &[f64], &[f64], f64) -> Result<()>) -> Result<()> {
        let mixture = &self.marginal.mixture;
        let mut density = Density::new(mixture);
        let mut r = vec![0.0; mixture.n_components()];
        let mut x = vec![0.0; mixture.n_features()];
        for (i, &row) in self.rows.rows.iter().enumerate() {
            gather(self.rows.samples, row, &self.marginal.observed, &mut x);
            let log_density = density.responsibilities(ArrayView1::from(&x[..]), &mut r);
            visit(i, &x, &r, log_density)?;
        }
        Ok(())
    }

    fn collect<T>(&self, mut value: impl FnMut(&[f64], f64) -> T) -> Vec<T> {
        let mut all = Vec::with_capacity(self.rows.rows.len());
        let done = self.for_each(|_, _, r, log_density| {
            all.push(value(r, log_density));
            Ok(())
        });
        debug_assert!(done.is_ok());
        all
    }

    pub fn score_samples(&self) -> Vec<f64> {
        self.collect(|_, log_density| log_density)
    }

    pub fn predict(&self) -> Vec<usize> {
        self.collect(|r, _| most_probable(r))
    }

    pub fn log_likelihood(&self) -> f64 {
        let scores = self.score_samples();
        let counted = scores.into_iter().enumerate().map(|(i, v)| (self.weight(i), v)).filter(|(w, _)| *w > 0.0);
        neumaier_sum(counted.map(|(w, v)| w * v))
    }

    pub fn predict_proba(&self) -> Vec<f64> {
        self.collect(|r, _| r.to_vec()).concat()
    }

    /// Returns the statistics of the observed columns; `weight` is the total of the rows.
    pub fn statistics(&self, weight: f64) -> Result<Statistics> {
        let mixture = &self.marginal.mixture;
        let mut sums = self.sums(weight, mixture.means().to_owned())?;
        if sums.cancel(mixture) {
            sums = self.sums(weight, sums.new_centres())?;
        }
        Statistics::from_centred_sums(sums)
    }

    /// Returns the sums of the observed columns around `centres` (K, D).
    fn sums(&self, weight: f64, centres: Array2<f64>) -> Result<CentredSums> {
        let mixture = &self.marginal.mixture;
        let (k, d) = mixture.means().dim();
        let mut counts = Array1::zeros(k);
        let mut first = Array2::zeros((k, d));
        let mut second = Covariances::zeros(mixture.covariance_type(), k, d);
        let mut log_likelihood = 0.0;
        let mut difference = vec![0.0; d];
        self.for_each(|row, x, r, log_density| {
            let weight = self.weight(row);
            if weight == 0.0 {
                return Ok(());
            }
            if !log_density.is_finite() {
                return Err(Error::UnreachableSample { row });
            }
            log_likelihood += weight * log_density;
            for (c, r) in r.iter().enumerate() {
                let r = weight * r;
                counts[c] += r;
                for (j, difference) in difference.iter_mut().enumerate() {
                    *difference = x[j] - centres[[c, j]];
                    first[[c, j]] += r * *difference;
                }
                match &mut second {
                    Covariances::Full(v) => add_lower(v.index_axis_mut(Axis(0), c), r, &difference),
                    Covariances::Tied(v) => add_lower(v.view_mut(), r, &difference),
                    Covariances::Diag(_) | Covariances::Spherical(_) => {
                        unreachable!("the engine of columns evaluates covariances without matrices")
                    }
                }
            }
            Ok(())
        })?;
        Ok(CentredSums { weight, log_likelihood, centres, counts, first, second })
    }
}

/// Adds r·δδᵀ to the lower triangle; zero for r = 0, even if the square overflows.
fn add_lower(mut matrix: ArrayViewMut2<'_, f64>, r: f64, delta: &[f64]) {
    for (i, (mut row, a)) in matrix.outer_iter_mut().zip(delta).enumerate() {
        row.iter_mut().zip(&delta[..=i]).for_each(|(v, b)| *v += r * a * b);
    }
}
