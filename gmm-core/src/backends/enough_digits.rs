//! Evaluation with the digits that a mixture needs: relative to a frame if its evaluator's digits suffice, otherwise by
//! a more precise evaluator. float32 gives way to float64 in the frame, and that to float64 around each component's
//! mean ([`Deviations::AroundMeans`](crate::backends::device_parameters::Deviations)).
use super::lazy::Lazy;
use crate::contract::draw::{Draw, Drawn};
use crate::contract::evaluator::{DataFacts, Description, Evaluator, data_facts, draw_by_scores};
use crate::contract::markov::{Markov, MarkovChain, MarkovSums};
use crate::contract::metropolis::{MetropolisSteps, MetropolisTarget};
use crate::contract::sampling::Sampling;
use crate::data::frame::Frame;
use crate::data::samples::Rows;
use crate::error::{Error, Result};
use crate::model::covariances::Covariances;
use crate::model::linalg::{at_once, diagonal_of_precision, map_rows, on_pool_thread, row_major, sum_of, vectorised};
use crate::model::mixture::Mixture;
use crate::precision::{Operation, Precision};
use crate::statistics::Statistics;
use ndarray::{Array1, Array2, ArrayView2};
use rayon::prelude::*;

/// Returns the largest [`cancellation`] at which a type's digits suffice, for `n` samples.
///
/// Rounding to float32 moves a deviation by about 2⁻²⁴ times the cancellation c, and the log-density of a sample z
/// deviations away by z·2⁻²⁴·c: below 10⁻³ for c = 1024 and z = 16. In the mean over n samples these errors are
/// independent: 2⁻²⁴·c/√n is at most 2·10⁻⁷ for c = 3.4·√n. Fewer than 350 samples may have c = 64 (4·10⁻⁷ for 100).
///
/// In float64 it is z·2⁻⁵³·c: below 5·10⁻¹⁰ for c = 2²² and z = 1, and below 10⁻⁹ of a log-density of about z²/2.
fn largest_cancellation(precision: Precision, operation: Operation, n: usize) -> f64 {
    match (precision, operation) {
        (Precision::Float32, Operation::LogLikelihood) => 1024.0,
        (Precision::Float32, Operation::Statistics) => (3.4 * (n as f64).sqrt()).clamp(64.0, 1024.0),
        (Precision::Float64, _) => (1u64 << 22) as f64,
    }
}

/// Returns the size of the numbers whose differences are samples' deviations from a component, in its standard
/// deviations: √(Σⱼ Pⱼⱼ·(Σⱼⱼ + (μⱼ − cⱼ)²)) with the component's covariance Σ, precision P and mean μ, and the frame's
/// centre c, at which the samples' numbers are zero. The largest over all components with weight.
///
/// A deviation is tᵢ = Σⱼ Aᵢⱼ·(xⱼ − μⱼ) with AᵀA = P. Each of its terms is rounded in proportion to its size, and xⱼ −
/// cⱼ is about μⱼ − cⱼ ± √Σⱼⱼ for the samples that the component explains.
pub(crate) fn cancellation(mixture: &Mixture, frame: &Frame) -> f64 {
    // Numbers beyond float64's range give NaN, which counts as above any limit.
    let or_infinite = |v: f64| if v.is_nan() { f64::INFINITY } else { v };
    squares(mixture, frame).into_iter().map(or_infinite).fold(0.0, f64::max).sqrt()
}

/// Returns the squares of the sizes in [`cancellation`]: one per component, or the largest of several components.
fn squares(mixture: &Mixture, frame: &Frame) -> Vec<f64> {
    let (weights, means, d) = (row_major(mixture.weights()), row_major(mixture.means()), mixture.n_features());
    if let Covariances::Diag(v) = mixture.covariances() {
        let at_once = at_once(d / 4);
        let variances = row_major(v.view());
        let rows = means.par_chunks(d * at_once).zip(variances.par_chunks(d * at_once));
        let rows = rows.zip(weights.par_chunks(at_once));
        return map_rows(rows, 1, |((means, variances), weights)| {
            of_variances(weights, means, variances, &frame.shift)
        });
    }
    let of_component = if mixture.factor().is_some() { d * d / 8 } else { d };
    map_rows((0..weights.len()).into_par_iter(), at_once(of_component), |c| {
        if weights[c] == 0.0 || mixture.is_noise(c) {
            return 0.0;
        }
        let mean = &means[c * d..][..d];
        let distances = mean.iter().zip(&frame.shift).map(|(mean, shift)| (mean - shift) * (mean - shift));
        match (mixture.covariances(), mixture.factor_of(c)) {
            (Covariances::Spherical(v), _) => d as f64 + distances.sum::<f64>() / v[c],
            (_, Some(u)) => of_matrix(distances, (0..d).map(|j| mixture.variance(c, j)), u),
            // Unreachable: a mixture with matrices has their factors.
            _ => f64::INFINITY,
        }
    })
}

/// Returns the largest Σⱼ 1 + (μⱼ − cⱼ)² / σ²ⱼ of some components with weight; NaN if one is.
fn of_variances(weights: &[f64], means: &[f64], variances: &[f64], shift: &[f64]) -> f64 {
    vectorised(
        #[inline(always)]
        || {
            let mut most = 0.0;
            let rows = means.chunks_exact(shift.len()).zip(variances.chunks_exact(shift.len()));
            for (weight, (mean, variances)) in weights.iter().zip(rows) {
                let term = |[mean, shift, variance]: [f64; 3]| 1.0 + (mean - shift) * (mean - shift) / variance;
                let sum = sum_of([mean, shift, variances], term);
                if *weight > 0.0 && (sum > most || sum.is_nan()) {
                    most = sum;
                }
            }
            most
        },
    )
}

/// Returns Σⱼ Pⱼⱼ·(Σⱼⱼ + `distances`ⱼ), from the `variances` Σⱼⱼ of one covariance and the upper triangular factor U
/// (D, D) of its precision P = U·Uᵀ.
fn of_matrix(
    distances: impl Iterator<Item = f64>,
    variances: impl Iterator<Item = f64>,
    factor: ArrayView2<'_, f64>,
) -> f64 {
    let (d, factor) = (factor.nrows(), row_major(factor));
    vectorised(
        #[inline(always)]
        || {
            let precisions = diagonal_of_precision(&factor, d);
            distances.zip(variances).zip(precisions).map(|((distance, v), p)| (v + distance) * p).sum()
        },
    )
}

/// An evaluator whose parameters are relative to a frame.
pub trait FramedEvaluator: Evaluator + Sized {
    /// The number type of the evaluation.
    const PRECISION: Precision;

    /// Returns the frame of the samples.
    fn frame(&self) -> &Frame;

    /// Whether the components' second moments lie in the type's range. The mixture has the evaluator's D.
    fn holds_moments(&self, _: &Mixture) -> bool {
        true
    }

    /// Returns another evaluator over the same resident samples ([`Evaluator::share`]).
    fn shared(&self) -> Result<Self>;
}

/// Evaluates in a frame if its digits suffice for the mixture, otherwise with a more precise evaluator, made on demand.
pub struct EnoughDigits<'a, E> {
    /// The evaluator in the frame of the samples.
    pub framed: E,
    precise: Lazy<'a, Box<dyn Evaluator + 'a>>,
    latest_is_precise: bool,
}

impl<'a, E: FramedEvaluator + 'a> EnoughDigits<'a, E> {
    /// Takes the framed evaluator and the function that opens the precise one.
    pub fn new(framed: E, open_precise: impl Fn() -> Result<Box<dyn Evaluator + 'a>> + Send + Sync + 'a) -> Self {
        Self { framed, precise: Lazy::new(open_precise), latest_is_precise: false }
    }

    fn suffices(&self, mixture: &Mixture, operation: Operation) -> bool {
        // Both evaluators refuse a mixture of another D.
        if mixture.n_features() != self.n_features() {
            return true;
        }
        let largest = largest_cancellation(E::PRECISION, operation, self.n_samples());
        cancellation(mixture, self.framed.frame()) <= largest
            && (operation != Operation::Statistics || self.framed.holds_moments(mixture))
    }

    fn framed(&mut self) -> &mut E {
        self.latest_is_precise = false;
        &mut self.framed
    }

    fn precise(&mut self) -> Result<&mut (dyn Evaluator + 'a)> {
        self.latest_is_precise = true;
        Ok(self.precise.get()?.as_mut())
    }

    /// Evaluates a mixture with the evaluator for it: also with the precise one if the framed one cannot hold the
    /// parameters, because a sample is far from all others.
    fn evaluate<R>(
        &mut self,
        mixture: &Mixture,
        operation: Operation,
        evaluate: impl Fn(&mut (dyn Evaluator + 'a)) -> Result<R>,
    ) -> Result<R> {
        if self.suffices(mixture, operation) {
            match evaluate(self.framed()) {
                Err(Error::OutOfRange { .. }) => {}
                result => return result,
            }
        }
        evaluate(self.precise()?)
    }
}

#[deny(clippy::missing_trait_methods)]
impl<'a, E: FramedEvaluator + 'a> Evaluator for EnoughDigits<'a, E> {
    data_facts!();

    fn data(&self) -> DataFacts<'_> {
        self.framed.data()
    }

    fn describe(&self) -> Description {
        match self.precise.made() {
            Some(precise) if self.latest_is_precise => precise.describe(),
            _ => self.framed.describe(),
        }
    }

    fn precision(&self, mixture: &Mixture, operation: Operation) -> Precision {
        match self.suffices(mixture, operation) {
            true => E::PRECISION,
            false => Precision::Float64,
        }
    }

    fn share(&self) -> Result<Box<dyn Evaluator + '_>> {
        let (framed, precise) = (self.framed.shared()?, self.precise.anew());
        Ok(Box::new(Self { framed, precise, latest_is_precise: false }))
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        on_pool_thread(mixture.n_numbers(), || {
            self.evaluate(mixture, Operation::LogLikelihood, |side| side.log_likelihood(mixture))
        })
    }

    fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
        // Kernels of batches know Gaussians only.
        if mixtures.iter().any(|mixture| mixture.noise().is_some()) {
            return mixtures.iter().map(|mixture| self.log_likelihood(mixture)).collect();
        }
        let suffices: Vec<bool> = mixtures.iter().map(|m| self.suffices(m, Operation::LogLikelihood)).collect();
        let result = if suffices.iter().all(|suffices| *suffices) {
            self.framed().log_likelihood_batch(mixtures)
        } else {
            self.split_batch(mixtures, &suffices)
        };
        match result {
            // One of the mixtures needs more digits.
            Err(Error::OutOfRange { .. }) => mixtures.iter().map(|mixture| self.log_likelihood(mixture)).collect(),
            result => result,
        }
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        self.evaluate(mixture, Operation::LogLikelihood, |side| side.score_samples(mixture))
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        on_pool_thread(mixture.n_numbers(), || {
            self.evaluate(mixture, Operation::Statistics, |side| side.statistics(mixture))
        })
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.framed.rows(rows)
    }

    fn draw(&mut self, draw: &Draw<'_>) -> Result<Vec<Drawn>> {
        draw_by_scores(self, draw)
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        self.evaluate(mixture, Operation::LogLikelihood, |side| side.predict(mixture))
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        self.evaluate(mixture, Operation::LogLikelihood, |side| side.predict_proba(mixture))
    }

    fn sampling(&mut self) -> Option<&mut dyn Sampling> {
        Some(self)
    }

    fn markov(&mut self) -> Option<&mut dyn Markov> {
        Some(self)
    }
}

impl<'a, E: FramedEvaluator + 'a> Markov for EnoughDigits<'a, E> {
    fn expectations(&mut self, chain: &MarkovChain<'_>) -> Result<Option<MarkovSums>> {
        self.evaluate(chain.emissions, Operation::Statistics, |side| match side.markov() {
            Some(markov) => markov.expectations(chain),
            None => Ok(None),
        })
    }
}

impl<'a, E: FramedEvaluator + 'a> Sampling for EnoughDigits<'a, E> {
    fn useful_shares(&mut self) -> usize {
        self.framed.sampling().map_or(1, Sampling::useful_shares)
    }

    fn fix_batch_reference(&mut self, mixture: &Mixture) {
        if let Some(sampling) = self.framed.sampling() {
            sampling.fix_batch_reference(mixture);
        }
    }

    fn metropolis(
        &mut self,
        target: &MetropolisTarget,
        point: &[f64],
        log_density: f64,
        steps: &mut dyn MetropolisSteps,
    ) -> Result<bool> {
        target.check(self.n_features(), point)?;
        // Without a more precise Metropolis, the caller asks for each log-likelihood, with the digits it needs.
        let suffices = |mixture: Mixture| self.suffices(&mixture, Operation::LogLikelihood);
        match target.mixture(point).is_some_and(suffices) {
            true => self.framed().sampling().map_or(Ok(false), |own| own.metropolis(target, point, log_density, steps)),
            false => Ok(false),
        }
    }
}

impl<'a, E: FramedEvaluator + 'a> EnoughDigits<'a, E> {
    /// Returns the totals of mixtures, for only some of which the framed evaluator's digits suffice.
    fn split_batch(&mut self, mixtures: &[Mixture], suffices: &[bool]) -> Result<Vec<f64>> {
        let mut totals = vec![0.0; mixtures.len()];
        for framed in [true, false] {
            let places: Vec<usize> = (0..mixtures.len()).filter(|&i| suffices[i] == framed).collect();
            if places.is_empty() {
                continue;
            }
            let sets: Vec<Mixture> = places.iter().map(|&i| mixtures[i].clone()).collect();
            let side: &mut dyn Evaluator = if framed { self.framed() } else { self.precise()? };
            let some = side.log_likelihood_batch(&sets)?;
            places.iter().zip(some).for_each(|(&i, total)| totals[i] = total);
        }
        Ok(totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array1, ShapeBuilder, arr1, arr2};

    fn frame(d: usize) -> Frame {
        Frame { shift: vec![0.5; d], scale: vec![1.0; d], inverse: vec![1.0; d], log2_scale: 0.0 }
    }

    #[test]
    fn cancellation_is_that_of_the_farthest_component_with_weight() {
        let means = arr2(&[[0.5, 0.5], [2.5, 0.5], [1e9, 1e9]]);
        let variances = arr2(&[[1.0, 4.0], [0.25, 1.0], [1e-9, 1.0]]);
        let mixture = Mixture::new(arr1(&[0.5, 0.5, 0.0]), means, Covariances::Diag(variances)).unwrap();
        // 1 + 2²/0.25 from the first feature, and 1 from the second.
        assert_eq!(cancellation(&mixture, &frame(2)), 18f64.sqrt());
        let means = arr2(&[[0.5, 1e200], [2.5, 0.5]]);
        let mixture = Mixture::new(arr1(&[0.5, 0.5]), means, Covariances::Spherical(arr1(&[1.0, 1.0]))).unwrap();
        assert_eq!(cancellation(&mixture, &frame(2)), f64::INFINITY);
    }

    /// More components than a thread takes, in arrays of both orders; one component is far away.
    #[test]
    fn cancellation_does_not_depend_on_the_order_of_arrays() {
        let (k, d) = (5000, 11);
        let mut means = Array2::from_shape_fn((k, d), |(c, j)| ((c * 7 + j * 3) % 10) as f64 / 10.0);
        means[[4321, 10]] = 40.5;
        let variances = Array2::from_elem((k, d), 4.0);
        let weights = Array1::from_elem(k, 1.0 / k as f64);
        let of = |means: Array2<f64>, variances| {
            let mixture = Mixture::new(weights.clone(), means, Covariances::Diag(variances)).unwrap();
            cancellation(&mixture, &frame(d))
        };
        let row_major = of(means.clone(), variances.clone());
        let mut column_major = Array2::zeros((k, d).f());
        column_major.assign(&means);
        assert_eq!(of(column_major, variances), row_major);
        let of_others: f64 = means.row(4321).iter().take(10).map(|m| 1.0 + (m - 0.5) * (m - 0.5) / 4.0).sum();
        // A dozen roundings.
        assert!((row_major / (of_others + 401.0).sqrt() - 1.0).abs() < 1e-14, "{row_major}");
    }
}
