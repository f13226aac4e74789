//! The CUDA backend on the emulated device of `gmm_kernels::simt::emulator::driver`: every family of kernels, through
//! the production evaluators and launches, against the float64 reference.
//!
//! The device has few multiprocessors, and a variant limits the blocks on each, so that blocks and warps repeat their
//! loops. A requested family makes the computation, or the test fails.
//!
//! Tolerances: with f32's unit roundoff u = 2⁻²⁴, a sample's exponent q = seed − Σ t² collects about 2·D random
//! roundings of |t|·|m|·u, where t = s·x + m cancels from numbers of size |m|. They grow with √D for a sample and with
//! √N over samples. The bounds are e = 2·√(D + 4)·u·max(|log p|, 1)·max|m| for a sample and Σe/√N + max e for a total.
//! One sample of up to 1000 left out or counted twice is 10⁻³·Σ|log p| away, a hundred times that or more. With
//! matrices they may be sums of linear and quadratic terms of the size |m|², which is added to |log p|.
mod arrays;
mod estep;
mod fit;
mod general;
mod likelihood;
mod markov;
mod metropolis;
mod noise_component;
mod noisy;
mod patterns;
mod variational;

use super::float32::Float32;
use super::options::CudaOptions;
use super::source::Source;
use gmm_core::backends::device_parameters::{Deviations, DeviceParameters};
use gmm_core::backends::reference::ReferenceEvaluator;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::data::frame::Frame;
use gmm_core::data::samples::{Samples, View};
use gmm_core::model::covariances::Covariances;
use gmm_core::model::mixture::Mixture;
use ndarray::{Array1, Array2, ArrayView1};
use rand::{Rng, RngExt};
use rand_distr::StandardNormal;

/// The features of a sample far from every component.
const FAR: f64 = 15.0;

/// Returns the float32 engine, with a requested kernel.
fn float32<'a>(samples: &Samples<'a>, kernel: &str) -> Float32<'a> {
    let options = CudaOptions::default().with_kernel(Some(kernel.into()));
    Float32::new(Source::Host(samples.clone(), 0), &options).unwrap()
}

/// Returns samples, with NaN for missing values, with or without weights.
fn samples<'a>(x: &'a Array2<f32>, weights: Option<ArrayView1<'a, f64>>) -> Samples<'a> {
    let samples = if x.iter().any(|v| v.is_nan()) {
        Samples::with_missing(x.view()).unwrap()
    } else {
        Samples::from_f32(x.view()).unwrap()
    };
    weights.into_iter().fold(samples, |samples, weights| samples.with_weights(weights).unwrap())
}

/// Samples and a mixture, with the true results.
struct Problem<'a> {
    samples: Samples<'a>,
    mixture: Mixture,
    /// The largest shift of a component's features in the data's frame.
    largest_shift: f64,
    /// The largest sum of squares of a component's shifts, for matrices; otherwise zero.
    largest_terms: f64,
    total: f64,
    scores: Array1<f64>,
}

fn random_mixture(rng: &mut impl Rng, k: usize, d: usize) -> Mixture {
    let weights = Array1::from_shape_simple_fn(k, || rng.random_range(0.5..1.5));
    let means = Array2::from_shape_simple_fn((k, d), || rng.sample::<f64, _>(StandardNormal));
    let variances = Array2::from_shape_simple_fn((k, d), || rng.random_range(0.3..2.0));
    Mixture::new(&weights / weights.sum(), means, Covariances::Diag(variances)).unwrap()
}

fn normal(rng: &mut impl Rng, n: usize, d: usize) -> Array2<f32> {
    Array2::from_shape_simple_fn((n, d), || rng.sample(StandardNormal))
}

/// Makes a share of the values missing, at random and independently.
fn with_holes(rng: &mut impl Rng, mut x: Array2<f32>, share: f64) -> Array2<f32> {
    x.map_inplace(|v| *v = if rng.random::<f64>() < share { f32::NAN } else { *v });
    x
}

impl<'a> Problem<'a> {
    fn new(samples: Samples<'a>, mixture: &Mixture) -> Self {
        let View::F32(x) = samples.view() else { panic!("float64 samples") };
        let parameters = if samples.missing().is_none() {
            DeviceParameters::<f32>::with_matrices(mixture, &Frame::of(x), Deviations::InFrame)
        } else {
            DeviceParameters::with_gaps(mixture, &Frame::of_observed(x), Deviations::InFrame)
        };
        let shift = parameters.unwrap().shift;
        let largest_shift = shift.iter().fold(1.0, |max: f32, m| max.max(m.abs()));
        let squares = shift.chunks_exact(mixture.n_features()).map(|row| row.iter().map(|m| m * m).sum());
        let largest_terms = if mixture.factor().is_some() { squares.fold(0.0, f32::max).into() } else { 0.0 };
        let mut reference = ReferenceEvaluator::new(samples.clone());
        let total = reference.log_likelihood(mixture).unwrap();
        let scores = reference.score_samples(mixture).unwrap();
        Self {
            samples,
            mixture: mixture.clone(),
            largest_shift: f64::from(largest_shift),
            largest_terms,
            total,
            scores,
        }
    }

    /// Returns bounds of the errors of a total and of each sample, from the top of the file.
    fn tolerances(&self) -> (f64, Array1<f64>) {
        let (n, d) = (self.samples.n_samples(), self.samples.n_features());
        let rounding = 2.0 * (d as f64 + 4.0).sqrt() * 2f64.powi(-24) * self.largest_shift;
        let sample = self.scores.mapv(|v| rounding * (v.abs().max(1.0) + self.largest_terms));
        let total = sample.sum() / (n as f64).sqrt() + sample.iter().copied().fold(0.0, f64::max);
        // With weights, as if all samples had the largest weight.
        let largest = self.samples.weights().map_or(1.0, |weights| weights.iter().copied().fold(0.0, f64::max));
        (total * largest, sample)
    }

    fn check_total(&self, total: f64, what: &str) {
        let (bound, error) = (self.tolerances().0, (total - self.total).abs());
        let (n, d, k) = (self.samples.n_samples(), self.samples.n_features(), self.mixture.n_components());
        assert!(
            error <= bound,
            "{what} {} N={n} D={d} K={k}: {total} for {}, {error:e} apart, {bound:e} allowed",
            self.mixture.covariance_type(),
            self.total
        );
    }

    /// Checks the total by a kernel, twice.
    fn total(&self, kernel: &str) {
        let mut evaluator = float32(&self.samples, kernel);
        let total = evaluator.log_likelihood(&self.mixture).unwrap();
        used(&evaluator, kernel);
        self.check_total(total, kernel);
        let again = evaluator.log_likelihood(&self.mixture).unwrap();
        assert_eq!(total.to_bits(), again.to_bits(), "{kernel}: the same bits every time");
    }

    /// Checks the total and the scores by a kernel.
    fn total_and_scores(&self, kernel: &str) {
        self.total(kernel);
        let mut evaluator = float32(&self.samples, kernel);
        let scores = evaluator.score_samples(&self.mixture).unwrap();
        used(&evaluator, kernel);
        for (i, (&got, bound)) in scores.iter().zip(self.tolerances().1).enumerate() {
            let error = (got - self.scores[i]).abs();
            let (n, d, k) = (self.samples.n_samples(), self.samples.n_features(), self.mixture.n_components());
            assert!(error <= bound, "{kernel} N={n} D={d} K={k} sample {i}: {got} for {}, {error:e}", self.scores[i]);
        }
    }
}

/// Returns three numbers for each case, from text such as `1x1x1 300x4x3`.
fn sizes(text: &str) -> impl Iterator<Item = (usize, usize, usize)> {
    text.split_whitespace().map(|case| {
        let numbers: Vec<usize> = case.split('x').map(|number| number.parse().unwrap()).collect();
        (numbers[0], numbers[1], numbers[2])
    })
}

/// Compares all evaluations with those of a reference over the same numbers. `rounding` is the error of an exponent,
/// relative to its size, `sums` that of a sum of responsibilities, of a mean and of a scatter. If `twice`, a second
/// evaluation must have the same bits.
fn compare(
    what: &str,
    engine: &mut dyn Evaluator,
    reference: &mut dyn Evaluator,
    mixture: &Mixture,
    (rounding, sums): (f64, f64),
    twice: bool,
) {
    let (n, d) = (engine.n_samples(), engine.n_features() as f64);
    let what = format!("{what} {} N={n} D={d} K={}", mixture.covariance_type(), mixture.n_components());
    let near = |got: f64, truth: f64, bound: f64, name: &str| {
        assert!((got - truth).abs() <= bound, "{what}: {name} {got} for {truth} (bound {bound:e})");
    };
    let scores = reference.score_samples(mixture).unwrap();
    let bounds = scores.mapv(|score| rounding * (score.abs() + d));
    let sum = reference.data().weights.map_or(bounds.sum(), |weights| weights.dot(&bounds));
    for (i, got) in engine.score_samples(mixture).unwrap().iter().enumerate() {
        near(*got, scores[i], bounds[i], &format!("score {i}"));
    }
    let total = engine.log_likelihood(mixture).unwrap();
    near(total, reference.log_likelihood(mixture).unwrap(), sum, "log-likelihood");
    // Rounding may decide between equally probable components: one sample in a thousand.
    let labels = reference.predict(mixture).unwrap();
    let same = engine.predict(mixture).unwrap().iter().zip(&labels).filter(|(a, b)| a == b).count();
    assert!(same * 1000 >= n * 999, "{what}: {same} labels of {n} agree");
    let got = engine.statistics(mixture).unwrap();
    if twice {
        assert_eq!(total.to_bits(), engine.log_likelihood(mixture).unwrap().to_bits(), "{what}");
        assert_eq!(got, engine.statistics(mixture).unwrap(), "{what}: the same bits every time");
    }
    let truth = reference.statistics(mixture).unwrap();
    let weight = truth.weight();
    near(got.weight(), weight, 1e-12 * weight, "weight");
    near(got.log_likelihood(), truth.log_likelihood(), sum, "log-likelihood of the E-step");
    for (c, count) in truth.counts().iter().enumerate() {
        near(got.counts()[c], *count, sums * weight, &format!("count {c}"));
        if *count > 0.01 {
            for (a, b) in got.means().row(c).iter().zip(truth.means().row(c)) {
                let bound = sums * FAR.max(b.abs() / 100.0) * weight / count + 1e-15 * b.abs();
                near(*a, *b, bound, &format!("mean of {c}"));
            }
        }
    }
    for (a, b) in flat(got.scatter()).into_iter().zip(flat(truth.scatter())) {
        near(a, b, sums * FAR * FAR * d + sums * 4.0 * weight * d, "scatter");
    }
}

/// Fails unless this kernel made the latest evaluation.
fn used(evaluator: &dyn Evaluator, kernel: &str) {
    let latest = evaluator.describe().kernel;
    let family = |variant: &str| variant.split([':', '/']).next().unwrap().to_string();
    assert_eq!(family(&latest), family(kernel), "{latest} in the place of {kernel}");
}

/// Returns a mixture of each covariance type, from random data.
fn of_each_type(rng: &mut impl Rng, k: usize, d: usize) -> Vec<Mixture> {
    let diag = random_mixture(rng, k, d);
    let matrix = |rng: &mut dyn Rng| {
        let b = Array2::from_shape_simple_fn((d, d), || 0.4 * rng.sample::<f64, _>(StandardNormal));
        b.dot(&b.t()) + Array2::<f64>::eye(d)
    };
    let tied = matrix(rng);
    let full: Vec<_> = (0..k).map(|_| matrix(rng)).collect();
    let full = ndarray::stack(ndarray::Axis(0), &full.iter().map(|m| m.view()).collect::<Vec<_>>()).unwrap();
    let spherical = Array1::from_shape_simple_fn(k, || rng.random_range(0.3..2.0));
    let with = |c| Mixture::new(diag.weights().to_owned(), diag.means().to_owned(), c).unwrap();
    [Covariances::Full(full), Covariances::Tied(tied), Covariances::Spherical(spherical)]
        .map(with)
        .into_iter()
        .chain([diag.clone()])
        .collect()
}

fn flat(s: &Covariances) -> Vec<f64> {
    s.iter().collect()
}
