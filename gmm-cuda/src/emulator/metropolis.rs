//! `metropolis`: the densities of its proposals against the reference and the prior's formula, and its decisions.
use super::{Problem, float32, normal};
use gmm_core::backends::reference::ReferenceEvaluator;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::contract::metropolis::{MetropolisPrior, MetropolisSteps, MetropolisTarget};
use gmm_core::data::samples::Samples;
use gmm_core::model::covariances::Covariances;
use gmm_core::model::mixture::Mixture;
use ndarray::{Array1, Array2};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

struct Chain {
    x: Array2<f32>,
    target: MetropolisTarget,
    point: Vec<f64>,
    /// Rows of `step_width` numbers.
    steps: Vec<f64>,
}

/// Proposes steps in portions, and records the densities of the proposals.
struct Portions<'a> {
    steps: &'a [f64],
    width: usize,
    portions: std::slice::Iter<'a, usize>,
    densities: Vec<f64>,
}

impl MetropolisSteps for Portions<'_> {
    fn propose(&mut self, rows: &mut [f64]) -> usize {
        let Some(count) = self.portions.next() else { return 0 };
        let numbers = count * self.width;
        let (now, later) = self.steps.split_at(numbers);
        rows[..numbers].copy_from_slice(now);
        self.steps = later;
        *count
    }

    fn record(&mut self, _: &[f64], densities: &[f64]) {
        self.densities.extend(densities);
    }
}

fn random_target(rng: &mut ChaCha8Rng, k: usize, d: usize, spherical: bool) -> MetropolisTarget {
    let s = if spherical { 1 } else { d };
    let mut some =
        |len: usize, low: f64, high: f64| -> Vec<f64> { (0..len).map(|_| rng.random_range(low..high)).collect() };
    let prior = MetropolisPrior {
        concentration: some(k, 0.5, 3.0),
        location: some(k * d, -1.0, 1.0),
        precision: some(k * d, 0.1, 2.0),
        scaled_precision: some(k * d, 0.1, 2.0),
        by_log_scale: some(k * s, -2.0, 2.0),
        by_variance: some(k * s, 0.1, 2.0),
        by_precision: some(k * s, 0.1, 2.0),
        constant: 17.0,
    };
    MetropolisTarget { n_components: k, n_features: d, spherical, prior }
}

impl Chain {
    fn new(seed: u64, (n, d): (usize, usize), k: usize, spherical: bool, count: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let x = normal(&mut rng, n, d);
        let target = random_target(&mut rng, k, d, spherical);
        let point: Vec<f64> = (0..target.dim()).map(|_| 0.5 * rng.sample::<f64, _>(StandardNormal)).collect();
        // Steps so long that some are accepted and some are not.
        let length = 1.0 / (n as f64 * target.dim() as f64).sqrt();
        let mut steps = Vec::new();
        for _ in 0..count {
            steps.extend((0..target.dim()).map(|_| length * rng.sample::<f64, _>(StandardNormal)));
            steps.push(rng.random::<f64>().ln());
            steps.resize(steps.len().next_multiple_of(target.step_width()), f64::NAN);
        }
        Self { x, target, point, steps }
    }

    fn count(&self) -> usize {
        self.steps.len() / self.target.step_width()
    }

    /// Returns the reference's log density, and the tolerance of float32.
    fn truth(&self, theta: &[f64]) -> (f64, f64) {
        let mixture = self.target.mixture(theta).unwrap();
        let problem = Problem::new(Samples::from_f32(self.x.view()).unwrap(), &mixture);
        let log_prior = self.target.log_prior(theta, &mixture);
        // The bias of 2^x is measured over other numbers, and may be off by half a rounding.
        let bias = self.x.nrows() as f64 * 2f64.powi(-25);
        (problem.total + log_prior, problem.tolerances().0 + bias)
    }

    /// Makes the steps in these portions, by the kernel in a shape; returns the densities of the proposals.
    fn run(&self, shape: &str, density: f64, portions: &[usize]) -> Vec<f64> {
        let mut evaluator = float32(&Samples::from_f32(self.x.view()).unwrap(), shape);
        let (steps, width) = (&self.steps[..], self.target.step_width());
        let mut portions = Portions { steps, width, portions: portions.iter(), densities: Vec::new() };
        assert!(evaluator.sampling().unwrap().metropolis(&self.target, &self.point, density, &mut portions).unwrap());
        assert!(portions.steps.is_empty() && portions.densities.len() == self.count());
        portions.densities
    }

    /// Compares the densities with the truth, which depends on earlier decisions, and one launch with several.
    fn check(&self, shape: &str) {
        let (dim, width, count) = (self.target.dim(), self.target.step_width(), self.count());
        let what = format!("N={} D={} K={} {shape}", self.x.nrows(), self.x.ncols(), self.target.n_components);
        let start = self.truth(&self.point).0;
        let densities = self.run(shape, start, &[1, count - 1]);
        let (mut point, mut density, mut accepted) = (self.point.clone(), start, 0);
        for (row, value) in self.steps.chunks_exact(width).zip(&densities) {
            let proposal: Vec<f64> = point.iter().zip(row).map(|(x, z)| x + z).collect();
            let (truth, bound) = self.truth(&proposal);
            // The prior is right to 10⁻¹⁴ of its size, some hundreds.
            assert!((value - truth).abs() <= bound + 1e-10, "{what}: {value} for {truth}, bound {bound:e}");
            if row[dim] < value - density {
                (point, density) = (proposal, *value);
                accepted += 1;
            }
        }
        assert!(
            (1..count).contains(&accepted),
            "{what}: {accepted} of {count} are accepted, where the test needs some of both"
        );
        assert_eq!(densities, self.run(shape, start, &[1, 2, count - 3]), "{what}: in other portions");
    }
}

#[test]
fn the_kernel_decides_as_the_host_would() {
    let cases = [
        // N, D, K, spherical, steps, grid, block, resident
        (1, 1, 1, false, 12, 1, 128, 0),
        (70, 2, 3, true, 12, 1, 128, 0),
        (600, 4, 2, false, 12, 1, 160, 0),
        // Rounds of samples that are resident, that stay where the others pass through, and that pass through.
        (2003, 13, 8, false, 9, 1, 128, 4),
        (2003, 13, 8, true, 9, 1, 128, 3),
        (2003, 13, 8, false, 9, 1, 128, 2),
        (2003, 16, 8, false, 7, 1, 128, 0),
        // Several blocks: shares of unequal length, and one without samples.
        (1100, 7, 5, false, 9, 2, 128, 0),
        (1500, 13, 7, false, 7, 3, 128, 0),
        (1030, 1, 2, true, 7, 3, 128, 1),
        (13, 2, 2, false, 7, 3, 128, 0),
    ];
    for (i, (n, d, k, spherical, count, grid, block, resident)) in cases.into_iter().enumerate() {
        let shape = format!("metropolis:{block}x{grid}/{resident}:0");
        Chain::new(i as u64, (n, d), k, spherical, count).check(&shape);
    }
}

/// Proposals without a density are rejected, and the chain goes on: overflowing and vanishing scales, means beyond
/// float32, a weight that is zero in float64 (which has a density: the other component's).
#[test]
fn impossible_proposals_are_rejected() {
    let mut chain = Chain::new(5, (300, 2), 2, false, 12);
    let width = chain.target.step_width();
    let start = chain.truth(&chain.point).0;
    let bad = [(5, 800.0), (5, -800.0), (6, 1e300), (7, -1e9), (1, 1e30), (2, -1e300)];
    for (step, (coordinate, increment)) in bad.into_iter().enumerate() {
        chain.steps[2 * step * width + coordinate] = increment;
    }
    for shape in ["metropolis:128x1/0:0", "metropolis:128x2/0:0"] {
        let densities = chain.run(shape, start, &[1, 11]);
        for (step, density) in densities.iter().enumerate() {
            assert_eq!(*density == f64::NEG_INFINITY, step % 2 == 0, "step {step}: {densities:?}");
            assert!(!density.is_nan() && (step % 2 == 0 || *density > -1e4));
        }
    }
    // A stick-breaking fraction of 1 to the last bit: component 1 has no noticeable weight.
    let mut chain = Chain::new(6, (300, 2), 2, false, 2);
    chain.steps[0] = 200.0;
    let densities = chain.run("metropolis:128x1/0:0", start, &[1, 1]);
    let mut theta: Vec<f64> = chain.point.iter().zip(&chain.steps).map(|(x, z)| x + z).collect();
    let lone = Covariances::Diag(Array2::from_shape_fn((1, 2), |(_, j)| (2.0 * theta[5 + j]).exp()));
    let lone = Mixture::new(Array1::ones(1), Array2::from_shape_fn((1, 2), |(_, j)| theta[1 + j]), lone).unwrap();
    let mut reference = ReferenceEvaluator::new(Samples::from_f32(chain.x.view()).unwrap());
    // The limit of the weights' prior for a large θ₀: log π₁ = −θ₀, log π₀ = 0. The rest is taken at θ₀ = 0.
    let alpha = &chain.target.prior.concentration;
    let stick = -alpha[1] * theta[0] - (alpha[0] + alpha[1]) * 0.5f64.ln();
    theta[0] = 0.0;
    let rest = chain.target.log_prior(&theta, &chain.target.mixture(&theta).unwrap());
    let expected = reference.log_likelihood(&lone).unwrap() + rest + stick;
    assert!((densities[0] - expected).abs() < 1e-3, "{} {expected}", densities[0]);
}
