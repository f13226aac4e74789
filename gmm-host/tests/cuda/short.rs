//! Each family of CUDA kernels in every form, over few samples in few launches, for compute-sanitizer's racecheck,
//! which makes a launch hundreds of times slower. Kernels are named with their shapes: to choose one by time takes many
//! launches. Results are compared with the float64 reference.
//!
//! Tolerances: 10⁻⁹ relative in float64, 10⁻⁴ in float32; a race would give numbers that are far off.
use crate::common::{cuda, mixture, normal, reference, sizes};
use crate::gpu_harness::{Test, warpgroups};
use crate::{data, evaluator};
use gmm_host::{
    CovarianceType, Covariances, Evaluator, MetropolisPrior, MetropolisSteps, MetropolisTarget, Mixture, Samples,
};
use ndarray::Array1;

pub fn tests() -> Vec<Test> {
    vec![
        ("totals", totals),
        ("batches_and_scores", batches_and_scores),
        ("batches_on_the_tensor_cores", batches_on_the_tensor_cores),
        ("e_steps", e_steps),
        ("e_steps_on_tensor_cores", e_steps_on_tensor_cores),
        ("float64_and_labels", float64_and_labels),
        ("metropolis_steps", metropolis_steps),
    ]
}

#[track_caller]
fn assert_near(what: &str, got: f64, truth: f64, tolerance: f64) {
    assert!((got - truth).abs() <= tolerance * truth.abs().max(1.0), "{what}: {got} for {truth}");
}

/// Kernels with one block for each multiprocessor, so that each thread repeats its loop.
fn totals() {
    use CovarianceType::{Diag, Full, Tied};
    for (n, d, k, covariance_type, kernel) in [
        (40_001, 1, 2, Diag, "small_k:32x1:all"),
        (40_001, 6, 3, Diag, "small_k:32x1:0"),
        (1009, 13, 8, Diag, "small_k:128x4:0"),
        (40_001, 2, 3, Full, "small_k:32x1:all"),
        (1009, 13, 8, Full, "small_k:128x4:0"),
        (1009, 16, 5, Tied, "small_k:128x4:0"),
        (3001, 13, 8, Diag, "tiled/1:128x1:all"),
        (3001, 40, 20, Diag, "tiled/2:128x1:all"),
        (3001, 17, 33, Diag, "tiled/32:128x1:all"),
        (3001, 17, 3, Full, "tiled/32:128x1:all"),
        (3001, 13, 20, Full, "tiled/32:128x1:all"),
        (3001, 40, 20, Tied, "tiled/2:128x1:all"),
        (1009, 5, 3, Diag, "pair"),
    ] {
        let (x, wide) = data(n as u64, n, d);
        let m = mixture(1, covariance_type, k, d, 0.0);
        let total = evaluator(&x, Some(kernel)).log_likelihood(&m).unwrap();
        assert_near(&format!("{kernel} N={n}"), total, reference(wide.view()).log_likelihood(&m).unwrap(), 1e-4);
    }
}

fn batches_and_scores() {
    for (n, d, k) in [(1009, 2, 3), (3001, 13, 8)] {
        let (x, wide) = data(n as u64, n, d);
        let sets: Vec<Mixture> = (0..20).map(|i| mixture(i, CovarianceType::Diag, k, d, 0.0)).collect();
        let totals = evaluator(&x, Some("batch")).log_likelihood_batch(&sets).unwrap();
        for (total, m) in totals.iter().zip(&sets) {
            assert_near("batch", *total, reference(wide.view()).log_likelihood(m).unwrap(), 1e-4);
        }
        for kernel in ["tiled/1:128x3:all", "tiled/16:128x3:all", "pair"] {
            let scores = evaluator(&x, Some(kernel)).score_samples(&sets[0]).unwrap();
            let truth = reference(wide.view()).log_likelihood(&sets[0]).unwrap();
            assert_near(kernel, scores.sum(), truth, 1e-4);
        }
        let tied = mixture(1, CovarianceType::Tied, k, d, 0.0);
        let scores = evaluator(&x, Some("tiled/16:128x1:all")).score_samples(&tied).unwrap();
        assert_near("linear", scores.sum(), reference(wide.view()).log_likelihood(&tied).unwrap(), 1e-4);
    }
}

fn beside(m: &Mixture, i: u64) -> Mixture {
    let means = m.means().mapv(|v| v + 1e-3 * i as f64);
    let covariances = match m.covariances() {
        Covariances::Diag(v) => Covariances::Diag(v * (1.0 + 1e-3 * i as f64)),
        other => other.clone(),
    };
    Mixture::new(m.weights().to_owned(), means, covariances).unwrap()
}

/// Several parts of the sets, and blocks with several rounds and far samples; each number of steps.
fn batches_on_the_tensor_cores() {
    for (n, d, k, sets) in
        [(20_001, 13, 8, 9), (9001, 7, 3, 5), (3001, 20, 17, 6), (1009, 28, 9, 3), (1, 1, 1, 2), (70, 20, 5, 1)]
    {
        let (mut x, _) = data(n as u64, n, d);
        x.row_mut(n / 2).fill(25.0);
        let wide = x.mapv(f64::from);
        let first = mixture(0, CovarianceType::Diag, k, d, 0.0);
        let sets: Vec<_> = (0..sets).map(|i| beside(&first, i)).collect();
        let truths: Vec<_> = sets.iter().map(|m| reference(wide.view()).log_likelihood(m).unwrap()).collect();
        let kernels = ["batch_mma/4:64x1:0", "batch_wgmma/4:128x1:0"];
        for kernel in &kernels[..if warpgroups() { 2 } else { 1 }] {
            let totals = evaluator(&x, Some(kernel)).log_likelihood_batch(&sets).unwrap();
            for (total, truth) in totals.iter().zip(&truths) {
                assert_near(&format!("{kernel} N={n} D={d} K={k}"), *total, *truth, 1e-6);
            }
        }
    }
}

/// `fused` for small K and D, `tiled` with `weighted_sums` for others; around the data's and the components' centres.
fn e_steps() {
    for (n, d, k) in sizes("3001x1x2 1009x13x8 1009x5x20 1009x16x32 700x20x40 515x33x3") {
        let (x, wide) = data(n as u64, n, d);
        for t in CovarianceType::ALL {
            for offset in [0.0, 40.0] {
                let m = mixture(2, t, k, d, offset);
                let statistics = evaluator(&x, None).statistics(&m).unwrap();
                let truth = reference(wide.view()).statistics(&m).unwrap();
                let what = format!("{t} N={n} D={d} K={k} offset {offset}");
                assert_near(&what, statistics.lower_bound(), truth.lower_bound(), 1e-4);
            }
        }
    }
}

/// The E-step on the tensor cores, which is chosen only for many samples.
fn e_steps_on_tensor_cores() {
    let check = |kernel: &str, cases: &str, types: &[CovarianceType]| {
        for (n, d, k) in sizes(cases) {
            let (x, wide) = data(n as u64, n, d);
            for &t in types {
                let m = mixture(2, t, k, d, 0.0);
                let statistics = evaluator(&x, Some(kernel)).statistics(&m).unwrap();
                let truth = reference(wide.view()).statistics(&m).unwrap();
                let what = format!("{kernel} {t} N={n} D={d} K={k}");
                assert_near(&what, statistics.lower_bound(), truth.lower_bound(), 1e-4);
            }
        }
    };
    check("products_mma/1:64x1:all", "600x5x3 300x33x20", &CovarianceType::ALL);
    check("products_mma/2:128x1:all", "515x20x40", &CovarianceType::ALL);
    let with_matrices = [CovarianceType::Full, CovarianceType::Tied];
    check("whitened_mma/2:128x1:all", "600x5x3 515x20x40 300x33x20", &with_matrices);
    if warpgroups() {
        check("whitened_wgmma", "600x5x3 515x20x40 300x33x20 260x70x6 260x100x5", &with_matrices);
    }
    let (diag, full) = ([CovarianceType::Diag], [CovarianceType::Full]);
    // One block of few warps for each multiprocessor, so that each warp repeats its loop.
    check("fused_mma:64x1:0", "600x5x3 515x20x40 300x13x8 20001x13x8 700x32x16", &diag);
    check("fused_mma:64x1:0", "600x5x3 20001x13x8", &full);
    // Several warps share samples.
    check("fused_mma:256x1:0", "515x40x8 700x100x12 300x33x40 600x16x128 3000x5x250", &diag);
    check("fused_mma:256x1:0", "600x13x16", &full);
    check("expanded_mma:256x1:0", "600x3x5 20001x4x40 700x8x16 515x8x60 600x13x16 600x13x40", &full);
    // Warps with different products, and with different components.
    check("expanded_mma:256x1:0", "700x16x7 3000x16x20 300x16x40 600x28x10", &full);
}

fn float64_and_labels() {
    for (n, d, k) in [(1009, 13, 8), (600, 3, 70), (5000, 6, 4)] {
        let x = normal(3, n, d, 0.0);
        let weights = Array1::from_shape_fn(n, |i| (i % 5) as f64 * 0.4 + 0.1);
        for t in CovarianceType::ALL {
            let m = mixture(4, t, k, d, 0.0);
            let samples = || Samples::from_f64(x.view()).unwrap().with_weights(weights.view()).unwrap();
            let mut e = cuda(samples(), None, None);
            let mut truth = crate::common::weighted(x.view(), weights.view());
            let total = truth.log_likelihood(&m).unwrap();
            assert_near("total", e.log_likelihood(&m).unwrap(), total, 1e-9);
            let statistics = e.statistics(&m).unwrap();
            assert_near("lower bound", statistics.lower_bound(), truth.statistics(&m).unwrap().lower_bound(), 1e-9);
            assert_eq!(e.predict(&m).unwrap(), truth.predict(&m).unwrap());
            assert_near("responsibilities", e.predict_proba(&m).unwrap().sum(), n as f64, 1e-9);
        }
    }
}

/// Equal steps, and the densities of their proposals.
struct Steps {
    left: usize,
    width: usize,
    densities: Vec<f64>,
}

impl MetropolisSteps for Steps {
    fn propose(&mut self, rows: &mut [f64]) -> usize {
        let count = (rows.len() / self.width).min(self.left);
        rows[..count * self.width].fill(1e-3);
        self.left -= count;
        count
    }
    fn record(&mut self, _: &[f64], densities: &[f64]) {
        self.densities.extend(densities);
    }
}

/// Samples that stay in shared memory, and samples that stream through it.
fn metropolis_steps() {
    for (n, d, k, kernel) in
        [(1009, 2, 3, "metropolis"), (15_001, 13, 8, "metropolis:128x7/2:0"), (6003, 13, 8, "metropolis:160x3/0:0")]
    {
        let (x, wide) = data(n as u64, n, d);
        let zeros = |len| vec![0.0; len];
        let prior = MetropolisPrior {
            concentration: zeros(k),
            location: zeros(k * d),
            precision: zeros(k * d),
            scaled_precision: zeros(k * d),
            by_log_scale: zeros(k * d),
            by_variance: zeros(k * d),
            by_precision: zeros(k * d),
            constant: 0.0,
        };
        let target = MetropolisTarget { n_components: k, n_features: d, spherical: false, prior };
        let mut steps = Steps { left: 9, width: target.step_width(), densities: Vec::new() };
        let point: Vec<f64> = (0..target.dim()).map(|i| (i % 7) as f64 * 0.1).collect();
        // The start has no density (NaN), so every step is rejected and all proposals are the same.
        let mut e = evaluator(&x, Some(kernel));
        assert!(e.sampling().unwrap().metropolis(&target, &point, f64::NAN, &mut steps).unwrap());
        let proposal: Vec<f64> = point.iter().map(|v| v + 1e-3).collect();
        let truth = reference(wide.view()).log_likelihood(&target.mixture(&proposal).unwrap()).unwrap();
        assert_eq!(steps.densities.len(), 9);
        for density in steps.densities {
            assert_near(kernel, density, truth, 1e-4);
        }
    }
}
