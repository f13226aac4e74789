//! The errors of results against true results.
use gaussmix::Error;
use gaussmix::evaluator::Evaluator;
use gaussmix::model::Mixture;
use gaussmix::statistics::{Freeze, Statistics};
use serde::Serialize;
use std::borrow::Borrow;

/// The results that count as true.
pub struct Truth {
    statistics: Statistics,
    /// The mixture that follows from the statistics.
    updated: Mixture,
}

#[derive(Debug, Clone, Serialize)]
pub struct Errors {
    pub total: f64,
    /// The errors of an E-step; `None` for a total alone.
    #[serde(flatten)]
    pub statistics: Option<StatisticsErrors>,
}

/// The errors of the parameters that follow from an E-step.
#[derive(Debug, Clone, Serialize)]
pub struct StatisticsErrors {
    /// The norm of the counts' difference over the norm of the counts.
    pub counts: f64,
    /// The same for the means.
    pub means: f64,
    /// The same for the covariances.
    pub covariances: f64,
    /// The largest error of a mean in one column, in standard deviations of its component there.
    pub deviations: f64,
}

impl Truth {
    /// Computes the truth with an evaluator that computes in float64.
    pub fn new(evaluator: &mut dyn Evaluator, mixture: &Mixture) -> Result<Self, Error> {
        let statistics = evaluator.statistics(mixture)?;
        let updated = statistics.update(mixture, 0.0, &Freeze::default())?.mixture;
        Ok(Self { statistics, updated })
    }

    pub fn errors_of_total(&self, total: f64) -> Errors {
        let truth = self.statistics.log_likelihood();
        Errors { total: ((total - truth) / truth).abs(), statistics: None }
    }

    pub fn errors_of(&self, statistics: &Statistics, mixture: &Mixture) -> Result<Errors, Error> {
        let updated = statistics.update(mixture, 0.0, &Freeze::default())?.mixture;
        let (means, true_means) = (updated.means(), self.updated.means());
        let deviations = means
            .indexed_iter()
            .zip(true_means)
            .map(|(((k, j), mean), truth)| (mean - truth).abs() / self.updated.variance(k, j).sqrt());
        let of_statistics = StatisticsErrors {
            counts: relative(statistics.counts(), self.statistics.counts()),
            means: relative(means, true_means),
            covariances: relative(updated.covariances().iter(), self.updated.covariances().iter()),
            deviations: deviations.fold(0.0, f64::max),
        };
        Ok(Errors { statistics: Some(of_statistics), ..self.errors_of_total(statistics.log_likelihood()) })
    }
}

impl Errors {
    /// Returns the largest relative error.
    pub fn largest(&self) -> f64 {
        let of_statistics = self.statistics.iter().flat_map(|errors| [errors.counts, errors.means, errors.covariances]);
        of_statistics.fold(self.total, f64::max)
    }
}

pub fn in_words(error: f64) -> String {
    format!("{error:.0e}")
}

/// Returns the Euclidean norm of the difference, over that of the truth.
fn relative<A: Borrow<f64>, B: Borrow<f64>>(
    got: impl IntoIterator<Item = A>,
    truth: impl IntoIterator<Item = B>,
) -> f64 {
    let (mut difference, mut norm) = (0.0, 0.0);
    for (got, truth) in got.into_iter().zip(truth) {
        let (got, truth) = (*got.borrow(), *truth.borrow());
        difference += (got - truth).powi(2);
        norm += truth.powi(2);
    }
    (difference / norm).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gaussmix::data::Samples;
    use gaussmix::evaluator::ReferenceEvaluator;
    use gaussmix::model::Covariances;
    use ndarray::{Array2, ArrayView2, array};

    #[test]
    fn errors_are_in_their_units() {
        assert_eq!(relative([3.0, 4.0], [3.0, 4.0]), 0.0);
        // The difference is 1 and the norm 5.
        assert_eq!(relative([3.0, 5.0], [3.0, 4.0]), 0.2);

        let x = Array2::from_shape_fn((50, 1), |(i, _)| (i as f64).sin());
        let mixture = Mixture::new(array![1.0], array![[0.1]], Covariances::Diag(array![[0.6]])).unwrap();
        let truth_of = |x: ArrayView2<'_, f64>| {
            Truth::new(&mut ReferenceEvaluator::new(Samples::from_f64(x).unwrap()), &mixture).unwrap()
        };
        let truth = truth_of(x.view());
        let same = truth.errors_of(&truth.statistics, &mixture).unwrap();
        assert_eq!(same.largest(), 0.0);
        assert_eq!(same.statistics.unwrap().deviations, 0.0);

        // All samples are moved by half a deviation, and doubled in number.
        let sigma = truth.updated.covariances().iter().next().unwrap().sqrt();
        let moved = ndarray::concatenate![ndarray::Axis(0), x, x] + 0.5 * sigma;
        let errors = truth.errors_of(&truth_of(moved.view()).statistics, &mixture).unwrap().statistics.unwrap();
        // A few roundings of float64.
        assert!((errors.deviations - 0.5).abs() < 1e-12, "{errors:?}");
        assert!((errors.counts - 1.0).abs() < 1e-12 && errors.covariances < 1e-12, "{errors:?}");
        let total = truth.statistics.log_likelihood();
        assert_eq!(truth.errors_of_total(total).total, 0.0);
        assert!((truth.errors_of_total(1.5 * total).largest() - 0.5).abs() < 1e-15);
    }
}
