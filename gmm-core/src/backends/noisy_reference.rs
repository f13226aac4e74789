//! The float64 evaluation of samples with noise that tests compare the others with.
use crate::compensated::{Sums, neumaier_sum, softmax};
use crate::contract::evaluator::{
    DataFacts, Description, Evaluator, check_features, check_responsibilities, most_probable,
};
use crate::data::samples::{Rows, Samples};
use crate::data::true_values::{OfComponent, TrueValues, guess};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::model::covariances::Covariances;
use crate::model::mixture::Mixture;
use crate::statistics::{CentredSums, Statistics};
use ndarray::{Array1, Array2};

/// Samples with noise, evaluated one by one on one thread, by the moments of their true values.
pub struct NoisyReference<'a>(Samples<'a>);

impl<'a> NoisyReference<'a> {
    /// Takes samples with or without noise.
    pub fn new(samples: Samples<'a>) -> Self {
        Self(samples)
    }

    fn weight(&self, row: usize) -> f64 {
        self.0.weights().map_or(1.0, |w| w[row])
    }

    /// Calls `visit` with each row, its parts, their responsibilities (K,) and its log-density.
    fn for_each(
        &self,
        mixture: &Mixture,
        mut visit: impl FnMut(usize, &[OfComponent], &[f64], f64) -> Result<()>,
    ) -> Result<()> {
        check_features(mixture, self.0.n_true_values())?;
        mixture.check_no_noise("noise of the samples, under the density")?;
        let true_values = TrueValues::new(&self.0, mixture);
        let interrupt = Interrupt::current();
        for row in 0..self.0.n_samples() {
            interrupt.check()?;
            let parts = true_values.of_row(row)?;
            let mut r: Vec<f64> = parts.iter().map(|part| part.log_p).collect();
            let log_density = softmax(&mut r);
            visit(row, &parts, &r, log_density)?;
        }
        Ok(())
    }
}

impl Evaluator for NoisyReference<'_> {
    fn data(&self) -> DataFacts<'_> {
        DataFacts { n_features: self.0.n_true_values(), ..DataFacts::from(&self.0) }
    }

    fn describe(&self) -> Description {
        Description::new("reference (float64, 1 thread, noise)", "reference")
    }

    fn share(&self) -> Result<Box<dyn Evaluator + '_>> {
        Ok(Box::new(NoisyReference(self.0.reborrow())))
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        let scores = self.score_samples(mixture)?;
        let counted = scores.into_iter().enumerate().filter(|(row, _)| self.weight(*row) > 0.0);
        Ok(neumaier_sum(counted.map(|(row, score)| self.weight(row) * score)))
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        let mut scores = Array1::zeros(self.0.n_samples());
        self.for_each(mixture, |row, _, _, log_density| {
            scores[row] = log_density;
            Ok(())
        })?;
        Ok(scores)
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        let (k, d) = mixture.means().dim();
        let (mut log_likelihood, mut counts) = (Sums::new(1), Sums::new(k));
        let (mut first, mut second) = (Sums::new(k * d), Sums::new(k * d * d));
        self.for_each(mixture, |row, parts, r, log_density| {
            let weight = self.weight(row);
            if weight == 0.0 {
                return Ok(());
            }
            if !log_density.is_finite() {
                return Err(Error::UnreachableSample { row });
            }
            log_likelihood.add(0, weight * log_density);
            for (c, (part, r)) in parts.iter().zip(r).enumerate() {
                let r = weight * r;
                counts.add(c, r);
                let delta = &part.mean - &mixture.means().row(c);
                delta.iter().enumerate().for_each(|(j, v)| first.add(c * d + j, r * v));
                second.add_outer(c * d * d, r, &delta.to_vec());
                part.covariance.iter().enumerate().for_each(|(at, v)| second.add(c * d * d + at, r * v));
            }
            Ok(())
        })?;
        let totals = second.totals();
        let mut second = Covariances::zeros(mixture.covariance_type(), k, d);
        for c in 0..k {
            second.add_matrix(c, &Array2::from_shape_fn((d, d), |(i, j)| totals[(c * d + i) * d + j]));
        }
        Statistics::from_centred_sums(CentredSums {
            weight: self.0.total_weight(),
            log_likelihood: log_likelihood.totals()[0],
            centres: mixture.means().to_owned(),
            counts: counts.totals().into(),
            // The shape is that of the means.
            first: Array2::from_shape_vec((k, d), first.totals()).unwrap_or_default(),
            second,
        })
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        rows_of(&self.0, rows)
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        let mut labels = Vec::with_capacity(self.0.n_samples());
        self.for_each(mixture, |_, _, r, _| {
            labels.push(most_probable(r));
            Ok(())
        })?;
        Ok(labels)
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        let shape = (self.0.n_samples(), mixture.n_components());
        check_responsibilities(shape.0, shape.1)?;
        let mut all = Array2::zeros(shape);
        self.for_each(mixture, |row, _, r, _| {
            all.row_mut(row).iter_mut().zip(r).for_each(|(to, r)| *to = *r);
            Ok(())
        })?;
        Ok(all)
    }
}

/// Copies some rows: of projected samples a guess of their true values, NaN where nothing is known of one.
pub(super) fn rows_of(samples: &Samples<'_>, rows: &[usize]) -> Result<Rows> {
    let mut out = samples.select(rows)?;
    if samples.noise().is_some_and(|noise| noise.is_projected()) {
        out.x = Array2::zeros((rows.len(), samples.n_true_values()));
        rows.iter().zip(out.x.outer_iter_mut()).for_each(|(&row, mut x)| x.assign(&guess(samples, row)));
    }
    Ok(out)
}
