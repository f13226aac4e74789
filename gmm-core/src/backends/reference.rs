//! The float64 evaluation that tests compare every other backend with.
use crate::compensated::{Sums, neumaier_sum};
use crate::contract::evaluator::{DataFacts, Description, Evaluator, check_features};
use crate::data::samples::{Rows, Samples, View, check_rows};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::model::covariances::Covariances;
use crate::model::density::Density;
use crate::model::marginal::Completion;
use crate::model::mixture::Mixture;
use crate::statistics::{CentredSums, Statistics};
use ndarray::{ArcArray1, ArcArray2, Array1, Array2, ArrayView1, Axis};

/// The reference backend: float64 on one thread, log-sum-exp with the maximum taken out, compensated sums over the
/// samples, second moments around means from their own pass, and missing values filled in sample by sample. It is slow;
/// tests take its results as the truth.
#[derive(Debug, Clone)]
pub struct ReferenceEvaluator {
    x: ArcArray2<f64>,
    weights: Option<ArcArray1<f64>>,
    total_weight: f64,
}

impl ReferenceEvaluator {
    /// Copies the samples to float64, with their weights and without their noise.
    pub fn new(samples: Samples<'_>) -> Self {
        let x = match samples.view() {
            View::F32(x) => x.mapv(f64::from).into_shared(),
            View::F64(x) => x.to_shared(),
        };
        let weights = samples.weights().map(|w| w.to_shared());
        Self { x, weights, total_weight: samples.total_weight() }
    }

    fn weight(&self, row: usize) -> f64 {
        self.weights.as_ref().map_or(1.0, |w| w[row])
    }

    /// Calls `visit` with each sample with weight, its log-likelihood, weight, and weighted responsibilities (K,).
    fn for_each_sample(
        &self,
        mixture: &Mixture,
        mut visit: impl FnMut(ArrayView1<'_, f64>, f64, f64, &[f64]) -> Result<()>,
    ) -> Result<()> {
        let mut density = Density::new(mixture);
        let mut r = vec![0.0; mixture.n_components()];
        let interrupt = Interrupt::current();
        for (row, x) in self.x.outer_iter().enumerate() {
            interrupt.check()?;
            let weight = self.weight(row);
            if weight == 0.0 {
                continue;
            }
            let log_density = density.responsibilities(x, &mut r);
            if !log_density.is_finite() {
                return Err(Error::UnreachableSample { row });
            }
            r.iter_mut().for_each(|r| *r *= weight);
            visit(x, log_density, weight, &r)?;
        }
        Ok(())
    }
}

impl Evaluator for ReferenceEvaluator {
    fn data(&self) -> DataFacts<'_> {
        let weights = self.weights.as_ref().map(|weights| weights.view());
        DataFacts { total_weight: self.total_weight, weights, ..DataFacts::new(self.x.nrows(), self.x.ncols()) }
    }

    fn describe(&self) -> Description {
        Description::new("reference (float64, 1 thread)", "reference")
    }

    fn share(&self) -> Result<Box<dyn Evaluator + '_>> {
        Ok(Box::new(self.clone()))
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        let log_p = self.score_samples(mixture)?;
        // A sample without weight does not count, even if its log-likelihood is not finite.
        let weighted = log_p.into_iter().enumerate().filter(|(i, _)| self.weight(*i) > 0.0);
        Ok(neumaier_sum(weighted.map(|(i, v)| self.weight(i) * v)))
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        check_features(mixture, self.n_features())?;
        let mut density = Density::new(mixture);
        let mut log_p = vec![0.0; mixture.n_components()];
        let interrupt = Interrupt::current();
        let score = |x: ArrayView1<'_, f64>| interrupt.check().map(|()| density.evaluate(x, &mut log_p));
        self.x.outer_iter().map(score).collect()
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        check_features(mixture, self.n_features())?;
        let (k, d) = mixture.means().dim();
        let mut log_likelihood = Sums::new(1);
        let mut counts = Sums::new(k);
        let mut first = Sums::new(k * d);
        let means = mixture.means();
        let mut completion = Completion::new(mixture);
        let mut filled = vec![0.0; d];
        self.for_each_sample(mixture, |x, log_p, weight, r| {
            completion.prepare(x)?;
            log_likelihood.add(0, weight * log_p);
            for (c, &r) in r.iter().enumerate() {
                completion.fill(c, x, &mut filled);
                counts.add(c, r);
                for j in 0..d {
                    first.add(c * d + j, r * (filled[j] - means[[c, j]]));
                }
            }
            Ok(())
        })?;
        let counts = Array1::from_vec(counts.totals());
        let first = first.totals();
        let mut centres = means.to_owned();
        for ((c, j), centre) in centres.indexed_iter_mut() {
            if counts[c] > 0.0 {
                *centre += first[c * d + j] / counts[c];
            }
        }
        // Around these means the first moments are only the rounding of the means, which is large far from the origin.
        let mut first = Sums::new(k * d);
        let mut second = Covariances::zeros(mixture.covariance_type(), k, d);
        let mut sums = Sums::new(second.iter().count());
        let mut difference = vec![0.0; d];
        self.for_each_sample(mixture, |x, _, _, r| {
            completion.prepare(x)?;
            for (c, &r) in r.iter().enumerate() {
                completion.fill(c, x, &mut filled);
                for (j, difference) in difference.iter_mut().enumerate() {
                    *difference = filled[j] - centres[[c, j]];
                    first.add(c * d + j, r * *difference);
                }
                match &second {
                    Covariances::Full(_) => sums.add_outer(c * d * d, r, &difference),
                    Covariances::Tied(_) => sums.add_outer(0, r, &difference),
                    Covariances::Diag(_) => (0..d).for_each(|j| sums.add(c * d + j, r * difference[j] * difference[j])),
                    Covariances::Spherical(_) => sums.add(c, difference.iter().map(|v| r * v * v).sum()),
                }
                let (missing, covariance) = completion.covariance(c);
                for ((i, j), &v) in covariance.indexed_iter() {
                    let (i, j, on_diagonal) = (missing[i], missing[j], i == j);
                    match &second {
                        Covariances::Full(_) => sums.add((c * d + i) * d + j, r * v),
                        Covariances::Tied(_) => sums.add(i * d + j, r * v),
                        Covariances::Diag(_) if on_diagonal => sums.add(c * d + j, r * v),
                        Covariances::Spherical(_) if on_diagonal => sums.add(c, r * v),
                        Covariances::Diag(_) | Covariances::Spherical(_) => {}
                    }
                }
            }
            Ok(())
        })?;
        let totals = sums.totals();
        match &mut second {
            Covariances::Full(v) => v.iter_mut().zip(totals).for_each(|(v, t)| *v = t),
            Covariances::Tied(v) | Covariances::Diag(v) => v.iter_mut().zip(totals).for_each(|(v, t)| *v = t),
            Covariances::Spherical(v) => v.iter_mut().zip(totals).for_each(|(v, t)| *v = t),
        }
        Statistics::from_centred_sums(CentredSums {
            weight: self.total_weight,
            log_likelihood: log_likelihood.totals()[0],
            // The shape is that of the means.
            first: Array2::from_shape_vec((k, d), first.totals()).unwrap_or_default(),
            centres,
            counts,
            second,
        })
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        check_rows(rows, self.n_samples())?;
        let weights = rows.iter().map(|&row| self.weight(row)).collect();
        Ok(Rows { x: self.x.select(Axis(0), rows), weights })
    }
}
