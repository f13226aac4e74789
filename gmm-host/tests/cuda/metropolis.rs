//! Random-walk Metropolis on a real device: its densities against the float64 reference, and its decisions.
//!
//! Tolerances as in `evaluator.rs`. The prior is computed in float64: right to 10⁻¹⁴ of its size.
use crate::common::{cuda, reference};
use crate::gpu_harness::Test;
use crate::{evaluator, tolerances};
use gmm_host::{
    CovarianceType, CudaEvaluator, Error, Evaluator, MetropolisPrior, MetropolisSteps, MetropolisTarget, Mixture,
    Samples,
};
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

pub fn tests() -> Vec<Test> {
    vec![
        ("every_shape_agrees_with_the_reference", every_shape_agrees_with_the_reference),
        ("portions_and_other_work_change_nothing", portions_and_other_work_change_nothing),
        ("impossible_proposals_are_rejected", impossible_proposals_are_rejected),
        ("decisions_at_a_million_samples_are_the_references", decisions_at_a_million_samples_are_the_references),
        ("a_long_chain_does_not_stall", a_long_chain_does_not_stall),
        ("what_the_kernel_cannot_do_is_left_to_the_caller", what_the_kernel_cannot_do_is_left_to_the_caller),
    ]
}

fn target(seed: u64, k: usize, d: usize, spherical: bool) -> MetropolisTarget {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut some =
        |len: usize, low: f64, high: f64| -> Vec<f64> { (0..len).map(|_| rng.random_range(low..high)).collect() };
    let s = if spherical { 1 } else { d };
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

/// Steps made in advance, proposed `portion` at a time, and the densities of their proposals.
struct Steps {
    rows: Vec<f64>,
    width: usize,
    proposed: usize,
    portion: usize,
    densities: Vec<f64>,
}

impl Steps {
    fn random(seed: u64, target: &MetropolisTarget, n: usize, count: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (dim, width) = (target.dim(), target.step_width());
        // So long that some are accepted and some are not.
        let length = 1.0 / (n as f64 * dim as f64).sqrt();
        let mut rows = vec![0.0; count * width];
        for row in rows.chunks_exact_mut(width) {
            row[..dim].fill_with(|| length * rng.sample::<f64, _>(StandardNormal));
            row[dim] = rng.random::<f64>().ln();
        }
        Self { rows, width, proposed: 0, portion: usize::MAX, densities: Vec::new() }
    }

    fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.rows.chunks_exact(self.width)
    }
}

impl MetropolisSteps for Steps {
    fn propose(&mut self, rows: &mut [f64]) -> usize {
        let all = self.rows.len() / self.width;
        let count = (all - self.proposed).min(rows.len() / self.width).min(self.portion);
        let from = self.proposed * self.width;
        rows[..count * self.width].copy_from_slice(&self.rows[from..from + count * self.width]);
        self.proposed += count;
        count
    }

    fn record(&mut self, rows: &[f64], log_densities: &[f64]) {
        let from = self.densities.len() * self.width;
        assert_eq!(rows, &self.rows[from..from + rows.len()], "the steps come back as they were");
        assert_eq!(rows.len(), log_densities.len() * self.width);
        self.densities.extend(log_densities);
    }
}

fn point(seed: u64, target: &MetropolisTarget) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..target.dim()).map(|_| 0.3 * rng.sample::<f64, _>(StandardNormal)).collect()
}

fn data(seed: u64, n: usize, d: usize) -> Array2<f32> {
    crate::data(seed, n, d).0
}

/// Returns the reference's log density, and the bound of the device's error.
fn truth(x: &Array2<f32>, target: &MetropolisTarget, theta: &[f64]) -> (f64, f64) {
    let mixture = target.mixture(theta).unwrap();
    let wide = x.mapv(f64::from);
    let samples = reference(wide.view()).score_samples(&mixture).unwrap();
    (samples.sum() + target.log_prior(theta, &mixture), tolerances(&samples, x.ncols()).0 + 1e-10)
}

/// Makes the steps and compares each density with the reference. The decisions follow from the densities.
fn compare(what: &str, x: &Array2<f32>, target: &MetropolisTarget, count: usize, kernel: Option<&str>) {
    let mut cuda = evaluator(x, kernel);
    let mut point = point(7, target);
    let mut density = truth(x, target, &point).0;
    let mut steps = Steps::random(8, target, x.nrows(), count);
    assert!(cuda.sampling().unwrap().metropolis(target, &point, density, &mut steps).unwrap(), "{what}");
    let what = format!("{what} {}", cuda.describe().kernel);
    assert_eq!(steps.densities.len(), count, "{what}");
    for (t, (row, value)) in steps.rows().zip(&steps.densities).enumerate() {
        let proposal: Vec<f64> = point.iter().zip(row).map(|(x, z)| x + z).collect();
        let (truth, bound) = truth(x, target, &proposal);
        assert!((value - truth).abs() <= bound, "{what} step {t}: {value} for {truth}, bound {bound:e}");
        if row[target.dim()] < value - density {
            (point, density) = (proposal, *value);
        }
    }
}

fn every_shape_agrees_with_the_reference() {
    for d in 1..=16 {
        for (k, spherical) in [(1 + d % 8, false), (1 + (d + 3) % 8, true)] {
            for n in [1, 130, 3001] {
                let x = data(d as u64, n, d);
                compare(&format!("N={n} D={d} K={k}"), &x, &target(d as u64, k, d, spherical), 9, None);
            }
        }
    }
    // A block's samples are resident as a whole, in part, or hardly at all, in grids of several shapes.
    for n in [70_001, 300_007, 1_000_003] {
        compare(&format!("N={n}"), &data(3, n, 13), &target(4, 8, 13, false), 4, None);
    }
    let x = data(5, 200_003, 13);
    for shape in [
        "metropolis:128x7/2:0",
        "metropolis:512x100/0:10",
        "metropolis:256x132/3:100",
        "metropolis:160x1/4:0",
        "metropolis:384x131/0:0",
    ] {
        compare("N=200003", &x, &target(6, 8, 13, false), 4, Some(shape));
    }
}

fn portions_and_other_work_change_nothing() {
    for (n, k, d) in [(100, 3, 2), (20_011, 8, 13), (300_007, 8, 13)] {
        let (x, target) = (data(9, n, d), target(10, k, d, false));
        let start = point(11, &target);
        let density = truth(&x, &target, &start).0;
        let densities = |cuda: &mut CudaEvaluator, portion| {
            let mut steps = Steps { portion, ..Steps::random(12, &target, n, 1500) };
            assert!(cuda.sampling().unwrap().metropolis(&target, &start, density, &mut steps).unwrap());
            steps.densities
        };
        let mut cuda = evaluator(&x, None);
        let whole = densities(&mut cuda, usize::MAX);
        let kernel = cuda.describe().kernel;
        for portion in [1, 7, usize::MAX] {
            assert_eq!(whole, densities(&mut cuda, portion), "N={n} in portions of {portion}");
        }
        // With a requested kernel and shape, as in a resumed run, and after other work on the same evaluator.
        let mut pinned = evaluator(&x, Some(&kernel));
        pinned.log_likelihood(&target.mixture(&start).unwrap()).unwrap();
        assert_eq!(whole, densities(&mut pinned, 64), "N={n} pinned");
        assert_eq!(pinned.describe().kernel, kernel);
        // A density depends on the point alone: the density of the last proposal is evaluated again by itself.
        let mut here = start.clone();
        let (mut at, steps) = (density, Steps::random(12, &target, n, 1500));
        let mut last = here.clone();
        for (row, value) in steps.rows().zip(&whole) {
            last = here.iter().zip(row).map(|(x, z)| x + z).collect();
            if row[target.dim()] < value - at {
                (here, at) = (last.clone(), *value);
            }
        }
        let mut still = Steps { rows: vec![0.0; target.step_width()], ..Steps::random(1, &target, n, 1) };
        cuda.sampling().unwrap().metropolis(&target, &last, f64::NAN, &mut still).unwrap();
        assert_eq!(still.densities[0].to_bits(), whole[1499].to_bits(), "N={n} alone");
    }
}

fn impossible_proposals_are_rejected() {
    let (x, target) = (data(13, 5000, 2), target(14, 2, 2, false));
    let start = point(15, &target);
    let density = truth(&x, &target, &start).0;
    let mut steps = Steps::random(16, &target, 5000, 12);
    let bad = [(5, 800.0), (5, -800.0), (6, 1e300), (7, -1e9), (1, 1e30), (2, -1e300)];
    for (i, (coordinate, increment)) in bad.into_iter().enumerate() {
        steps.rows[2 * i * steps.width + coordinate] = increment;
    }
    evaluator(&x, None).sampling().unwrap().metropolis(&target, &start, density, &mut steps).unwrap();
    for (t, value) in steps.densities.iter().enumerate() {
        assert_eq!(*value == f64::NEG_INFINITY, t % 2 == 0, "step {t}: {value}");
        assert!(!value.is_nan());
    }
}

/// At N = 10⁶ the noise of a log-ratio is below 0.02; decisions differ only if log u is closer to it than that.
fn decisions_at_a_million_samples_are_the_references() {
    let (n, d, k) = (1_000_000, 13, 8);
    let generator = crate::common::mixture(17, CovarianceType::Diag, k, d, 0.0);
    let mut rng = ChaCha8Rng::seed_from_u64(18);
    let x = Array2::from_shape_fn((n, d), |(i, j)| {
        let c = i * k / n;
        let gmm_host::Covariances::Diag(v) = generator.covariances() else { unreachable!() };
        (generator.means()[[c, j]] + v[[c, j]].sqrt() * rng.sample::<f64, _>(StandardNormal)) as f32
    });
    let target = target(19, k, d, false);
    // Near the parameters that made the data: equal weights, and their means and scales.
    let mut start = vec![0.0; k - 1];
    start.extend(generator.means());
    start.extend(generator.covariances().iter().map(|v| 0.5 * v.ln()));
    let mut cuda = evaluator(&x, None);
    let density = |cuda: &mut CudaEvaluator, theta: &[f64]| {
        let mut still = Steps { rows: vec![0.0; target.step_width()], ..Steps::random(1, &target, n, 1) };
        cuda.sampling().unwrap().metropolis(&target, theta, f64::NAN, &mut still).unwrap();
        still.densities[0]
    };
    let mut here = density(&mut cuda, &start);
    let mut steps = Steps::random(20, &target, n, 40);
    cuda.sampling().unwrap().metropolis(&target, &start, here, &mut steps).unwrap();
    let wide = x.mapv(f64::from);
    let mut reference = reference(wide.view());
    let mut exact = |theta: &[f64]| {
        let mixture: Mixture = target.mixture(theta).unwrap();
        reference.log_likelihood(&mixture).unwrap() + target.log_prior(theta, &mixture)
    };
    let (mut point, mut truth_here) = (start.clone(), exact(&start));
    let (mut worst, mut accepted) = (0.0f64, 0);
    for (t, (row, value)) in steps.rows().zip(&steps.densities).enumerate() {
        let proposal: Vec<f64> = point.iter().zip(row).map(|(x, z)| x + z).collect();
        let truth = exact(&proposal);
        let (ratio, true_ratio, log_u) = (value - here, truth - truth_here, row[target.dim()]);
        worst = worst.max((ratio - true_ratio).abs());
        let close = (log_u - true_ratio).abs() < 0.02;
        assert!(close || (log_u < ratio) == (log_u < true_ratio), "step {t}: {ratio} for {true_ratio}, log u {log_u}");
        if log_u < ratio {
            (point, here, truth_here) = (proposal, *value, truth);
            accepted += 1;
        }
    }
    println!("noise of a log-ratio at N = 10⁶: {worst:.4} at most, {accepted} of 40 accepted");
    assert!(worst < 0.02, "{worst}");
    assert!((1..40).contains(&accepted), "{accepted} of 40 are accepted, where the test needs some of both");
}

/// In each of many steps the blocks wait for each other, in grids of several sizes.
fn a_long_chain_does_not_stall() {
    for (n, k, d) in [(100, 8, 13), (10_000, 8, 13), (100_000, 2, 2), (500_000, 8, 13)] {
        let (x, target) = (data(21, n, d), target(22, k, d, false));
        let start = point(23, &target);
        let density = truth(&x, &target, &start).0;
        let mut steps = Steps::random(24, &target, n, 20_000);
        evaluator(&x, None).sampling().unwrap().metropolis(&target, &start, density, &mut steps).unwrap();
        assert_eq!(steps.densities.len(), 20_000);
        assert!(steps.densities.iter().all(|v| v.is_finite()));
    }
}

fn what_the_kernel_cannot_do_is_left_to_the_caller() {
    let x = data(25, 500, 3);
    let run = |cuda: &mut CudaEvaluator, target: &MetropolisTarget| {
        let mut steps = Steps::random(26, target, 500, 3);
        let result = cuda.sampling().unwrap().metropolis(target, &point(27, target), 0.0, &mut steps);
        (result, steps.proposed)
    };
    // Nine components; another requested kernel; samples in chunks.
    assert!(matches!(run(&mut evaluator(&x, None), &target(28, 9, 3, false)), (Ok(false), 0)));
    assert!(matches!(run(&mut evaluator(&x, Some("small_k")), &target(28, 2, 3, false)), (Ok(false), 0)));
    let large = data(25, 5000, 3);
    let limit = 4 * 512 * 3 * size_of::<f32>();
    let mut chunked = cuda(Samples::from_f32(large.view()).unwrap(), None, Some(limit));
    assert!(!chunked.is_resident());
    assert!(matches!(run(&mut chunked, &target(28, 2, 3, false)), (Ok(false), 0)));
    // Another number of features, and a shape with more blocks than the device runs at once.
    let other = target(28, 2, 4, false);
    assert!(matches!(run(&mut evaluator(&x, None), &other), (Err(Error::ShapeMismatch { .. }), 0)));
    let mut crowded = evaluator(&x, Some("metropolis:512x100000/0:0"));
    assert!(matches!(run(&mut crowded, &target(28, 2, 3, false)), (Err(Error::Kernel { .. }), 0)));
    // The kernel runs a target that it supports.
    assert!(matches!(run(&mut evaluator(&x, Some("metropolis")), &target(28, 2, 3, false)), (Ok(true), 3)));
}
