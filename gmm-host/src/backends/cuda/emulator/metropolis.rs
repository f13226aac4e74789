//! `metropolis`: the densities of its proposals against the reference and the prior's formula, its
//! decisions, and the state that a launch leaves.
use super::{Problem, random_mixture};
use crate::backends::cuda::metropolis::layout;
use crate::{Covariances, Evaluator, MetropolisPrior, MetropolisTarget, Mixture, ReferenceEvaluator, Samples};
use cust::memory::bytemuck;
use gmm_kernels::metropolis::{self as kernel, MetropolisArgs};
use gmm_kernels::simt::emulator::{Memory, launch_together};
use ndarray::{Array1, Array2};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::f64::consts::LN_2;

struct Launch {
    grid: u32,
    block: u32,
    resident: u32,
}

/// A problem with a target, a start and some steps.
struct Chain {
    x: Array2<f32>,
    problem: Problem,
    target: MetropolisTarget,
    point: Vec<f64>,
    /// Rows of `step_width` numbers.
    steps: Vec<f64>,
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
        let x = Array2::from_shape_simple_fn((n, d), || rng.sample(StandardNormal));
        let problem = Problem::new(x.clone(), &random_mixture(&mut rng, k, d));
        let target = random_target(&mut rng, k, d, spherical);
        let point: Vec<f64> = (0..target.dim()).map(|_| 0.5 * rng.sample::<f64, _>(StandardNormal)).collect();
        // Steps of such a length that some are accepted and some are not.
        let length = 1.0 / (n as f64 * target.dim() as f64).sqrt();
        let mut steps = Vec::new();
        for _ in 0..count {
            steps.extend((0..target.dim()).map(|_| length * rng.sample::<f64, _>(StandardNormal)));
            steps.push(rng.random::<f64>().ln());
            steps.resize(steps.len().next_multiple_of(target.step_width()), f64::NAN);
        }
        Self { x, problem, target, point, steps }
    }

    fn count(&self) -> usize {
        self.steps.len() / self.target.step_width()
    }

    /// The log density by the reference, and how far float32 may be from it.
    fn truth(&self, theta: &[f64]) -> (f64, f64) {
        let mut reference = ReferenceEvaluator::new(Samples::from_f32(self.x.view()).unwrap());
        let mixture = self.target.mixture(theta).unwrap();
        let problem = Problem::new(self.x.clone(), &mixture);
        let log_prior = self.target.log_prior(theta, &mixture);
        (reference.log_likelihood(&mixture).unwrap() + log_prior, problem.tolerances().0)
    }

    /// Makes the steps in launches of so many each; returns the densities of the proposals and the
    /// state at the end.
    fn run(&self, launch: &Launch, density: f64, portions: &[usize]) -> (Vec<f64>, Vec<f64>) {
        let (d, k) = (self.target.n_features, self.target.n_components);
        let (dim, width) = (self.target.dim(), self.target.step_width());
        assert_eq!((kernel::dim(k, d, self.target.spherical), kernel::step_width(dim)), (dim, width));
        let (terms, constant) = layout::terms(&self.target, &self.problem.frame, self.problem.n, 0.0);
        // Aligned to 16 bytes.
        let mut steps = vec![0u128; self.steps.len() / 2];
        bytemuck::cast_slice_mut::<u128, f64>(&mut steps).copy_from_slice(&self.steps);
        let mut state = self.point.clone();
        state.push(density);
        let mut exchange = vec![0.0f64; 2 * launch.grid as usize];
        let mut densities = vec![f64::NAN; self.count()];
        let shared = kernel::shared_bytes(d, dim, launch.block, launch.resident + 1);
        let mut before = 0;
        for count in portions {
            let mut memory = Memory::new();
            let args = MetropolisArgs {
                columns: self.problem.columns(&mut memory),
                k: k as u32,
                spherical: self.target.spherical,
                resident: launch.resident,
                terms: memory.read("terms", &terms),
                n_ln_2: LN_2 * self.problem.n as f64,
                constant,
                steps: memory.read("steps", bytemuck::cast_slice::<_, f64>(&steps)).wrapping_add(before * width),
                count: *count as u32,
                before: before as u32,
                state: memory.write("state", &mut state),
                densities: memory.write("densities", &mut densities[before..before + count]),
                exchange: memory.write("exchange", &mut exchange),
            };
            let entry = match d {
                1 => kernel::metropolis_d01,
                2 => kernel::metropolis_d02,
                4 => kernel::metropolis_d04,
                7 => kernel::metropolis_d07,
                13 => kernel::metropolis_d13,
                16 => kernel::metropolis_d16,
                _ => unreachable!(),
            };
            // SAFETY: the arguments of this kernel, with the arrays of `memory`.
            unsafe { launch_together(launch.grid, launch.block, shared, &memory, entry, args) };
            before += count;
        }
        assert_eq!(before, self.count());
        (densities, state)
    }

    /// Compares the densities with the truth, the decisions with the densities, and one launch with
    /// several.
    fn check(&self, launch: &Launch) {
        let (dim, width, count) = (self.target.dim(), self.target.step_width(), self.count());
        let what =
            format!("N={} D={} K={} {}x{}", self.problem.n, self.problem.d, self.problem.k, launch.grid, launch.block);
        let start = self.truth(&self.point).0;
        let (densities, state) = self.run(launch, start, &[count]);
        let (mut point, mut density, mut accepted) = (self.point.clone(), start, 0);
        for (row, value) in self.steps.chunks_exact(width).zip(&densities) {
            let proposal: Vec<f64> = point.iter().zip(row).map(|(x, z)| x + z).collect();
            let (truth, bound) = self.truth(&proposal);
            // The prior is right to 10⁻¹⁴ of its size, which is some hundreds.
            assert!((value - truth).abs() <= bound + 1e-10, "{what}: {value} for {truth}, bound {bound:e}");
            if row[dim] < value - density {
                (point, density) = (proposal, *value);
                accepted += 1;
            }
        }
        point.push(density);
        assert_eq!(state, point, "{what}");
        assert!(
            (1..count).contains(&accepted),
            "{what}: {accepted} of {count} are accepted, where the test needs some of both"
        );
        let again = self.run(launch, start, &[1, 2, count - 3]);
        assert_eq!((densities, state), again, "{what}: in other portions");
    }
}

#[test]
fn the_kernel_decides_as_the_host_would() {
    let cases = [
        // N, D, K, spherical, steps, grid, block, resident
        (1, 1, 1, false, 12, 1, 128, 0),
        (70, 2, 3, true, 12, 1, 128, 0),
        (600, 4, 2, false, 12, 1, 160, 0),
        // Rounds of samples that are resident, that stay in the place the others come through, and
        // that come through it.
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
        Chain::new(i as u64, (n, d), k, spherical, count).check(&Launch { grid, block, resident });
    }
}

/// Proposals without a density are rejected, and the chain goes on: overflowing and vanishing
/// scales, means beyond float32, a weight that is zero in float64 (which has a density: the other
/// component's).
#[test]
fn impossible_proposals_are_rejected() {
    let mut chain = Chain::new(5, (300, 2), 2, false, 12);
    let (dim, width) = (chain.target.dim(), chain.target.step_width());
    let start = chain.truth(&chain.point).0;
    let bad = [(5, 800.0), (5, -800.0), (6, 1e300), (7, -1e9), (1, 1e30), (2, -1e300)];
    for (step, (coordinate, increment)) in bad.into_iter().enumerate() {
        chain.steps[2 * step * width + coordinate] = increment;
    }
    for (grid, resident) in [(1, 0), (2, 0)] {
        let (densities, state) = chain.run(&Launch { grid, block: 128, resident }, start, &[12]);
        for (step, density) in densities.iter().enumerate() {
            assert_eq!(*density == f64::NEG_INFINITY, step % 2 == 0, "step {step}: {densities:?}");
            assert!(!density.is_nan());
        }
        assert!(state.iter().all(|v| v.is_finite()) && state[dim] > -1e4, "{state:?}");
    }
    // A stick-breaking fraction that is 1 to the last bit: component 1 has no weight that counts.
    let mut chain = Chain::new(6, (300, 2), 2, false, 2);
    chain.steps[0] = 200.0;
    let (densities, _) = chain.run(&Launch { grid: 1, block: 128, resident: 0 }, start, &[2]);
    let mut theta: Vec<f64> = chain.point.iter().zip(&chain.steps).map(|(x, z)| x + z).collect();
    let lone = Covariances::Diag(Array2::from_shape_fn((1, 2), |(_, j)| (2.0 * theta[5 + j]).exp()));
    let lone = Mixture::new(Array1::ones(1), Array2::from_shape_fn((1, 2), |(_, j)| theta[1 + j]), lone).unwrap();
    let mut reference = ReferenceEvaluator::new(Samples::from_f32(chain.x.view()).unwrap());
    // The limit of the weights' prior for a large θ₀: log π₁ = −θ₀ and log π₀ = 0. What else the
    // prior has is taken at θ₀ = 0, where both weights are a half.
    let alpha = &chain.target.prior.concentration;
    let stick = -alpha[1] * theta[0] - (alpha[0] + alpha[1]) * 0.5f64.ln();
    theta[0] = 0.0;
    let rest = chain.target.log_prior(&theta, &chain.target.mixture(&theta).unwrap());
    let expected = reference.log_likelihood(&lone).unwrap() + rest + stick;
    assert!((densities[0] - expected).abs() < 1e-3, "{} {expected}", densities[0]);
}
