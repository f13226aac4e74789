//! The CUDA backend on a real device, against the float64 reference.
//!
//! Tolerances, unless a test states its own: with f32's unit u = 2⁻²⁴, a sample's log-likelihood collects about 2·D
//! random roundings, each of a few times u of numbers up to max(|log p|, 1), if samples and means are within a few
//! standard deviations of the data's centre. So e = 16·√(D + 4)·u·max(|log p|, 1) bounds a sample's error, and Σe/√N +
//! max e + 5·10⁻⁸·N a total's. The last term is the target of 0.05 at N = 10⁶, for the mean error of the approximate
//! exponential, whose part common to all arguments the host subtracts. One sample of up to 5000 left out or counted
//! twice exceeds the bound.
use crate::common::noise_component::assert_noise_agrees;
use crate::common::{CUDA_BACKENDS, cuda, normal, reference, sizes, with_means};
use crate::gpu_harness::{Test, warpgroups};
use crate::{data, evaluator, tolerances};
use gmm_driver::{Context, Driver, Module};
use gmm_host::{
    CovarianceType, Covariances, CpuEvaluator, CudaEvaluator, CudaOptions, Device, Error, Evaluator, Mixture, Samples,
    cuda_devices, cuda_kernel_names, load,
};
use ndarray::{Array1, Array2, arr1, arr2};

pub fn tests() -> Vec<Test> {
    vec![
        ("a_device_is_listed", a_device_is_listed),
        ("the_driver_takes_every_kernel", the_driver_takes_every_kernel),
        ("every_kernel_agrees_at_sizes_that_fit_no_tile", every_kernel_agrees_at_sizes_that_fit_no_tile),
        ("large_k_and_d", large_k_and_d),
        ("totals_of_few_matrices_agree", totals_of_few_matrices_agree),
        ("the_choice_agrees_on_every_size_class", the_choice_agrees_on_every_size_class),
        ("noise_is_a_constant_density", noise_is_a_constant_density),
        ("far_from_the_origin", far_from_the_origin),
        ("far_samples_are_finite", far_samples_are_finite),
        ("weight_zero_contributes_nothing", weight_zero_contributes_nothing),
        ("a_batch_equals_its_sets", a_batch_equals_its_sets),
        (
            "a_fixed_reference_makes_a_total_a_function_of_its_set",
            a_fixed_reference_makes_a_total_a_function_of_its_set,
        ),
        ("the_same_bits_twice", the_same_bits_twice),
        ("a_million_samples_near_a_fit", a_million_samples_near_a_fit),
        ("likelihoods_of_the_tensor_cores", likelihoods_of_the_tensor_cores),
        ("samples_are_scored_and_read_back", samples_are_scored_and_read_back),
        ("requests_that_cannot_be_met_are_refused", requests_that_cannot_be_met_are_refused),
        ("evaluators_share_resident_samples", evaluators_share_resident_samples),
        ("threads_load_kernels_at_once", threads_load_kernels_at_once),
        ("float32_likelihoods_have_fast_kernels", float32_likelihoods_have_fast_kernels),
        ("kernels_are_timed_and_choices_remembered", kernels_are_timed_and_choices_remembered),
        ("auto_agrees_on_either_side", auto_agrees_on_either_side),
    ]
}

pub const TIMED: [Test; 2] =
    [("warpgroups_win_batches", warpgroups_win_batches), ("auto_takes_the_faster_side", auto_takes_the_faster_side)];

fn diag(seed: u64, k: usize, d: usize, offset: f64) -> Mixture {
    crate::common::mixture(seed, CovarianceType::Diag, k, d, offset)
}

#[track_caller]
fn assert_near(what: &str, got: f64, truth: f64, bound: f64) {
    let error = (got - truth).abs();
    assert!(error <= bound, "{what}: {got} for {truth}, {error:e} apart, {bound:e} allowed");
}

fn a_device_is_listed() {
    let devices = cuda_devices().unwrap();
    assert!(!devices.is_empty() && devices[0].multiprocessors > 0 && devices[0].memory > 1 << 30);
    println!("{}", devices[0]);
}

/// The driver compiles the committed PTX and finds each entry by its name.
fn the_driver_takes_every_kernel() {
    let context = Context::new(Driver::load().unwrap().device(0).unwrap()).unwrap();
    let _entered = context.enter().unwrap();
    let names = gmm_kernels::ptx::names();
    assert!(!names.is_empty());
    for entry in names {
        let ptx = gmm_kernels::ptx::entry(entry).unwrap();
        let module = Module::from_ptx(&context, ptx, None).unwrap_or_else(|error| panic!("{entry}: {error}"));
        module.function(entry).unwrap_or_else(|error| panic!("{entry}: {error}"));
    }
}

/// Every kernel that takes the shape returns the reference's total; the other kernels refuse it.
fn compare_all(shapes: impl Iterator<Item = (usize, usize, usize)>) {
    for (i, (n, d, k)) in shapes.enumerate() {
        let (x, wide) = data(i as u64, n, d);
        let mixture = diag(100 + i as u64, k, d, 0.0);
        let truth = reference(wide.view()).score_samples(&mixture).unwrap();
        let (bound, _) = tolerances(&truth, d);
        let mut taken = 0;
        for kernel in cuda_kernel_names() {
            let what = format!("{kernel} N={n} D={d} K={k}");
            match evaluator(&x, Some(&kernel)).log_likelihood(&mixture) {
                Ok(total) => {
                    assert_near(&what, total, truth.sum(), bound);
                    taken += 1;
                }
                Err(Error::Kernel { name, .. }) => assert!(name == kernel && (d > 16 || k > 8), "{what}"),
                Err(error) => panic!("{what}: {error}"),
            }
        }
        assert!(taken >= if d <= 500 { 2 } else { 1 }, "tiled takes any shape, pair up to 500 features");
    }
}

fn every_kernel_agrees_at_sizes_that_fit_no_tile() {
    let no_tile = "1x1x1 3x13x8 4x1x8 5x13x1 1000x10x5 4099x13x8 513x17x9 \
        70001x13x8 20011x13x40 3001x2x17 511x64x33 1025x65x3 2047x130x16";
    // Each instance of `small_k` and `batch`, with even and odd K.
    compare_all(sizes(no_tile).chain((1..=16).map(|d| (1003 + d, d, 1 + d % 8))));
}

fn large_k_and_d() {
    compare_all(sizes("5003x200x300 515x1024x70 301x16x2000"));
}

/// Each instance of `small_k` for full and tied covariances, with even and odd K, at sizes that fit no tile, and far
/// from the origin. A product with a triangle adds D roundings to each t; the tolerance allows as many already.
fn totals_of_few_matrices_agree() {
    let shapes = (1..=16).map(|d| (1003 + d, d, 1 + d % 8));
    let shapes = shapes.chain(sizes("1x1x1 1x13x8 3x13x8 4x16x8 70001x13x8 20011x15x7"));
    for (i, (n, d, k)) in shapes.enumerate() {
        let (x, wide) = data(i as u64, n, d);
        for covariance_type in [CovarianceType::Full, CovarianceType::Tied] {
            let mixture = crate::common::mixture(100 + i as u64, covariance_type, k, d, 0.0);
            let truth = reference(wide.view()).score_samples(&mixture).unwrap();
            for kernel in ["small_k", "tiled/1:128x3:all", "tiled/16:128x3:all"] {
                let what = format!("{kernel} {covariance_type} N={n} D={d} K={k}");
                let mut cuda = evaluator(&x, Some(kernel));
                let total = cuda.log_likelihood(&mixture).unwrap();
                assert_near(&what, total, truth.sum(), tolerances(&truth, d).0);
                assert_eq!(cuda.log_likelihood(&mixture).unwrap().to_bits(), total.to_bits(), "{what}");
            }
        }
    }
    let x = normal(5, 10_007, 13, 1e4);
    let mixture = crate::common::mixture(6, CovarianceType::Full, 8, 13, 1e4);
    let truth = reference(x.view()).score_samples(&mixture).unwrap();
    let mut cuda = cuda(Samples::from_f64(x.view()).unwrap(), Some("small_k"), None);
    assert_near("far from the origin", cuda.log_likelihood(&mixture).unwrap(), truth.sum(), tolerances(&truth, 13).0);
}

/// Without a requested kernel, each size class has its own choice, at its border too.
fn the_choice_agrees_on_every_size_class() {
    for (i, (n, d, k)) in sizes("99x13x8 100x13x8 99999x13x8 100000x3x30 250000x20x5").enumerate() {
        let (x, wide) = data(50 + i as u64, n, d);
        let mixture = diag(60 + i as u64, k, d, 0.0);
        let truth = reference(wide.view()).score_samples(&mixture).unwrap();
        let mut cuda = evaluator(&x, None);
        let total = cuda.log_likelihood(&mixture).unwrap();
        let kernel = cuda.describe().kernel;
        assert_near(&format!("{kernel} N={n} D={d} K={k}"), total, truth.sum(), tolerances(&truth, d).0);
    }
}

fn noise_is_a_constant_density() {
    use gmm_host::CovarianceModel::{EEE, VII, VVI, VVV};
    for backend in CUDA_BACKENDS {
        for (n, d, k) in sizes("1x1x1 5000x2x3 20000x13x7 20000x13x63 3000x40x4 3000x130x3 9000x20x150") {
            assert_noise_agrees(backend, &[VVV, EEE, VVI, VII], n, k, d);
        }
    }
}

/// float64 data 10⁴ standard deviations from the origin lose nothing: they are centred before rounding.
fn far_from_the_origin() {
    let (n, d, k) = (10_007, 13, 8);
    let x = normal(5, n, d, 1e4);
    let mixture = diag(6, k, d, 1e4);
    let truth = reference(x.view()).score_samples(&mixture).unwrap();
    for kernel in ["small_k", "batch", "tiled/1:128x3:all", "tiled/16:128x3:all", "pair"] {
        let mut cuda = cuda(Samples::from_f64(x.view()).unwrap(), Some(kernel), None);
        let total = cuda.log_likelihood(&mixture).unwrap();
        assert_near(kernel, total, truth.sum(), tolerances(&truth, d).0);
        // Also the target: 10⁻⁷ relative.
        assert_near(kernel, total, truth.sum(), 1e-7 * truth.sum().abs());
    }
}

/// Samples 1000 standard deviations away, alone and beside near ones, are finite and right to 10⁻⁶ of their size: f32's
/// relative rounding of a square and of its coordinates, with a margin.
fn far_samples_are_finite() {
    let (n, d, k) = (4001, 5, 6);
    let (mut x, _) = data(7, n, d);
    for row in [0, 9, 20, 21, 22, 23, 4000] {
        x.row_mut(row).fill(if row % 2 == 0 { 1e3 } else { -1e3 });
    }
    let mixture = diag(8, k, d, 0.0);
    let wide = x.mapv(f64::from);
    let truth = reference(wide.view()).log_likelihood(&mixture).unwrap();
    for kernel in cuda_kernel_names() {
        let total = evaluator(&x, Some(&kernel)).log_likelihood(&mixture).unwrap();
        assert_near(&kernel, total, truth, 1e-6 * truth.abs());
    }
}

/// A component of weight zero right on the data, with the others 30 standard deviations away: 10⁻⁶ relative.
fn weight_zero_contributes_nothing() {
    let (x, _) = data(9, 1001, 3);
    let x = x + 30.0;
    let means = arr2(&[[30.0, 30.0, 30.0], [0.0, 0.0, 0.0], [30.0, 29.0, 30.0], [1.0, 1.0, 1.0]]);
    let mixture = Mixture::new(arr1(&[0.0, 0.4, 0.0, 0.6]), means, Covariances::Diag(Array2::ones((4, 3)))).unwrap();
    let wide = x.mapv(f64::from);
    let truth = reference(wide.view()).log_likelihood(&mixture).unwrap();
    for kernel in cuda_kernel_names() {
        let total = evaluator(&x, Some(&kernel)).log_likelihood(&mixture).unwrap();
        assert_near(&kernel, total, truth, 1e-6 * truth.abs());
    }
}

/// Each set of a batch of any size has its own total, and the same batch the same bits.
fn a_batch_equals_its_sets() {
    for (n, d, k, most) in [(10_003, 13, 8, 130), (70_001, 13, 8, 64), (777, 16, 40, 17), (501, 40, 5, 3)] {
        let (x, wide) = data(10, n, d);
        let sets: Vec<Mixture> = (0..most).map(|i| diag(200 + i, k, d, 0.0)).collect();
        let mut cuda = evaluator(&x, None);
        let all = cuda.log_likelihood_batch(&sets).unwrap();
        assert_eq!(all.len(), sets.len());
        assert_eq!(cuda.log_likelihood_batch(&sets).unwrap(), all, "{most} sets, N={n}");
        let truths = [0, 1, 2, sets.len() / 2, sets.len() - 1]
            .map(|i| (i, reference(wide.view()).score_samples(&sets[i]).unwrap()));
        let check = |totals: &[f64]| {
            for (i, truth) in truths.iter().filter(|(i, _)| *i < totals.len()) {
                let what = format!("set {i} of {}, N={n} D={d} K={k}", totals.len());
                assert_near(&what, totals[*i], truth.sum(), tolerances(truth, d).0);
            }
        };
        check(&all);
        for count in [1, 2, 3, 16, 17] {
            check(&cuda.log_likelihood_batch(&sets[..sets.len().min(count)]).unwrap());
        }
    }
    // Sets of different K in one call.
    let (x, wide) = data(11, 1000, 4);
    let sets = [diag(1, 3, 4, 0.0), diag(2, 3, 4, 0.0), diag(3, 9, 4, 0.0), diag(4, 3, 4, 0.0)];
    let mut cuda = evaluator(&x, None);
    for (set, total) in sets.iter().zip(cuda.log_likelihood_batch(&sets).unwrap()) {
        let truth = reference(wide.view()).score_samples(set).unwrap();
        assert_near("different K", total, truth.sum(), tolerances(&truth, 4).0);
    }
    assert!(cuda.log_likelihood_batch(&[]).unwrap().is_empty());
}

/// With a fixed reference, a set's total has the same bits alone, anywhere in a batch of any size, and beside sets far
/// from the reference. It is true to float32's tolerance; far from all samples to 10⁻⁷, because roundings of parameters
/// are common to all samples and do not average.
fn a_fixed_reference_makes_a_total_a_function_of_its_set() {
    let (n, k, d) = (200_011, 8, 13);
    let (x, wide) = data(14, n, d);
    let reference_set = diag(300, k, d, 0.0);
    let beside = |i: usize| with_means(&reference_set, reference_set.means().mapv(|v| v * (1.0 + 1e-4 * i as f64)));
    let far = diag(301, k, d, 5.0);
    let sets: Vec<Mixture> = (1..=70).map(|i| if i % 9 == 0 { far.clone() } else { beside(i) }).collect();
    let mut cuda = evaluator(&x, None);
    cuda.sampling().unwrap().fix_batch_reference(&reference_set);
    let all = cuda.log_likelihood_batch(&sets).unwrap();
    for part in [&sets[..1], &sets[3..40], &sets[8..9], &sets[60..]] {
        let first = sets.iter().position(|set| set == &part[0]).unwrap();
        let totals = cuda.log_likelihood_batch(part).unwrap();
        totals.iter().zip(&all[first..]).for_each(|(a, b)| assert_eq!(a.to_bits(), b.to_bits(), "{}", part.len()));
    }
    // An earlier reference has no effect.
    cuda.sampling().unwrap().fix_batch_reference(&far);
    cuda.log_likelihood_batch(&sets).unwrap();
    cuda.sampling().unwrap().fix_batch_reference(&reference_set);
    assert_eq!(cuda.log_likelihood_batch(&sets).unwrap(), all);
    for i in [0, 8, 69] {
        let truth = reference(wide.view()).score_samples(&sets[i]).unwrap();
        let bound = if sets[i] == far { 1e-7 * truth.sum().abs() } else { tolerances(&truth, d).0 };
        assert_near(&format!("set {i}"), all[i], truth.sum(), bound);
    }
}

/// Enough samples that the warpgroups are much faster than the other kernels.
fn warpgroups_win_batches() {
    let (n, k, d) = (200_011, 8, 13);
    let (x, _) = data(14, n, d);
    let mut cuda = evaluator(&x, None);
    let set = diag(300, k, d, 0.0);
    cuda.sampling().unwrap().fix_batch_reference(&set);
    cuda.log_likelihood_batch(&[set]).unwrap();
    let kernel = cuda.describe().kernel;
    assert!(kernel.starts_with("batch_wgmma") || !warpgroups(), "{kernel}");
}

/// The same evaluator, and another one with the same variant requested, return the same bits.
fn the_same_bits_twice() {
    for (n, d, k) in [(100, 13, 8), (200_003, 13, 8), (30_001, 30, 20)] {
        let (x, _) = data(12, n, d);
        let mixture = diag(13, k, d, 0.0);
        let mut cuda = evaluator(&x, None);
        let first = cuda.log_likelihood(&mixture).unwrap();
        for _ in 0..20 {
            assert_eq!(cuda.log_likelihood(&mixture).unwrap().to_bits(), first.to_bits());
        }
        let variant = cuda.describe().kernel;
        let mut again = evaluator(&x, Some(&variant));
        assert_eq!(again.log_likelihood(&mixture).unwrap().to_bits(), first.to_bits(), "{variant}");
        assert_eq!(again.describe().kernel, variant);
    }
}

/// Returns the mixture fitted to real speech, and N samples drawn from it.
fn speech(n: usize) -> (Mixture, Array2<f32>) {
    let text = include_str!("../data/speech8.json");
    let json: serde_json::Value = serde_json::from_str(text).unwrap();
    let array = |name: &str| -> Array2<f64> {
        let rows: Vec<Vec<f64>> = serde_json::from_value(json[name].clone()).unwrap();
        Array2::from_shape_vec((rows.len(), rows[0].len()), rows.concat()).unwrap()
    };
    let weights: Vec<f64> = serde_json::from_value(json["weights"].clone()).unwrap();
    let (means, variances) = (array("means"), array("covariances"));
    let mixture = Mixture::new(weights.into(), means, Covariances::Diag(variances)).unwrap();
    let x = mixture.sample(n, 2026).unwrap().0.mapv(|v| v as f32);
    (mixture, x)
}

/// Log-likelihoods from the tensor cores: those of E-steps, and totals of so much arithmetic that an E-step's first
/// kernels are the fastest. Each is within 10⁻⁷ of itself. For up to 10⁶ samples of the mixture, differences between
/// parameter sets 10⁻³ apart are within 0.04, twice the deviation allowed for totals; here they were up to 0.024 off,
/// and those of float32's own kernels 0.025. A mixture that would lose digits is left to other kernels. The truth is
/// the CPU's in float64, which other tests compare with the reference.
fn likelihoods_of_the_tensor_cores() {
    if !warpgroups() {
        return;
    }
    /// Returns the mixture with means moved by about `step` deviations, and variances multiplied by 1 + `step`.
    fn beside(mixture: &Mixture, step: f64) -> Mixture {
        let mut moved = mixture.means().to_owned();
        moved.indexed_iter_mut().for_each(|((c, j), v)| *v += step * ((c * 31 + j * 7) as f64).sin());
        let mut covariances = mixture.covariances().clone();
        covariances.map_inplace(|v| *v *= 1.0 + step);
        Mixture::new(mixture.weights().to_owned(), moved, covariances).unwrap()
    }
    let mut wrong = Vec::new();
    for (n, d, k, covariance_type, weighted, of_total) in [
        (1_000_000, 64, 32, CovarianceType::Full, false, true),
        (400_001, 32, 64, CovarianceType::Full, true, true),
        // Its totals would lose digits.
        (120_011, 128, 16, CovarianceType::Full, true, false),
        // More components than `fused_mma` takes with so many features.
        (400_001, 64, 300, CovarianceType::Tied, false, false),
        (300_007, 64, 300, CovarianceType::Diag, true, false),
        (500_000, 128, 256, CovarianceType::Diag, false, false),
    ] {
        let mixture = crate::common::mixture(n as u64, covariance_type, k, d, 0.0);
        let x = mixture.sample(n, 1).unwrap().0.mapv(|v| v as f32);
        let wide = x.mapv(f64::from);
        let weights = Array1::from_shape_fn(n, |i| (i % 4) as f64 / 2.0);
        let weights = weighted.then_some(&weights);
        let [single, double] = [Samples::from_f32(x.view()), Samples::from_f64(wide.view())]
            .map(|samples| weights.iter().fold(samples.unwrap(), |samples, w| samples.with_weights(w.view()).unwrap()));
        let mut cuda = cuda(single, None, None);
        let mut truth = CpuEvaluator::new(double).unwrap();
        let sets = [0.0, 1e-3, -1e-3, 2e-3, 0.3].map(|step| beside(&mixture, step));
        let of_estep = sets.each_ref().map(|set| cuda.statistics(set).unwrap().log_likelihood());
        let kernel = cuda.describe().kernel;
        let what = format!("{kernel} {covariance_type} N={n} D={d} K={k}");
        assert!(kernel.contains("wgmma"), "{what}");
        let totals = sets.each_ref().map(|set| cuda.log_likelihood(set).unwrap());
        let kernel = cuda.describe().kernel;
        assert_eq!(kernel.contains("wgmma"), of_total, "{what}: {kernel} for a total");
        assert_eq!(cuda.log_likelihood(&sets[4]).unwrap().to_bits(), totals[4].to_bits(), "{what}: the same bits");
        let exact = sets.each_ref().map(|set| truth.log_likelihood(set).unwrap());
        for (of, got) in [("E-step", of_estep), ("total", totals)] {
            let relative = [0, 4].map(|i| (got[i] - exact[i]) / exact[i].abs());
            let differences = [1, 2, 3].map(|i| (got[i] - got[0]) - (exact[i] - exact[0]));
            println!("{what}, {of}: {relative:?}, {differences:+.4?}");
            if relative.iter().any(|error| error.abs() > 1e-7) || differences.iter().any(|v| v.abs() > 0.04) {
                wrong.push(format!("{what}, {of}: {relative:?}, {differences:?}"));
            }
        }
        // Narrow for its distance from the centre.
        let narrow = crate::common::mixture(1, covariance_type, k, d, 1e4);
        let (total, expected) = (cuda.log_likelihood(&narrow).unwrap(), truth.log_likelihood(&narrow).unwrap());
        let kernel = cuda.describe().kernel;
        assert!(!kernel.contains("wgmma"), "{what}: {kernel} for a narrow mixture");
        assert_near(&format!("{kernel} {what}, narrow"), total, expected, 1e-6 * expected.abs());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The targets: a total over 10⁶ samples within 0.05, the difference of totals of two parameter sets 10⁻³ apart within
/// 0.02, the total within 10⁻⁷ relative anywhere.
fn a_million_samples_near_a_fit() {
    let (mixture, x) = speech(1_000_000);
    let near = {
        let means = mixture.means().mapv(|v| v * (1.0 + 1e-3));
        let Covariances::Diag(variances) = mixture.covariances() else { unreachable!() };
        Mixture::new(mixture.weights().to_owned(), means, Covariances::Diag(variances * (1.0 + 1e-3))).unwrap()
    };
    let away = with_means(&mixture, mixture.means().mapv(|v| v + 40.0));
    let wide = x.mapv(f64::from);
    let mut truth = reference(wide.view());
    let [at, beside, anywhere] = [&mixture, &near, &away].map(|m| truth.log_likelihood(m).unwrap());
    let mut requests: Vec<_> = cuda_kernel_names().into_iter().map(Some).collect();
    requests.push(None);
    for request in requests {
        let mut cuda = evaluator(&x, request.as_deref());
        let [a, b, c] = [&mixture, &near, &away].map(|m| cuda.log_likelihood(m).unwrap());
        let kernel = cuda.describe().kernel;
        println!(
            "{kernel}: total {:+.4}, difference {:+.4}, anywhere {:+.1e} relative",
            a - at,
            (a - b) - (at - beside),
            (c - anywhere) / anywhere.abs()
        );
        assert_near(&format!("{kernel} total"), a, at, 0.05);
        assert_near(&format!("{kernel} difference"), a - b, at - beside, 0.02);
        assert_near(&format!("{kernel} anywhere"), c, anywhere, 1e-7 * anywhere.abs());
    }
    let mut requests = vec![Some("batch"), Some("batch_mma"), None];
    if warpgroups() {
        requests.push(Some("batch_wgmma"));
    }
    for request in requests {
        let mut cuda = evaluator(&x, request);
        // Enough sets for each kernel, and one set far from the rest.
        let sets = [&mixture, &near, &mixture, &near, &away].map(Clone::clone);
        let batch = cuda.log_likelihood_batch(&sets[..4]).unwrap();
        let kernel = cuda.describe().kernel;
        println!("{kernel}: total {:+.4}, difference {:+.4}", batch[0] - at, (batch[0] - batch[1]) - (at - beside));
        assert_near(&format!("{kernel} batch total"), batch[0], at, 0.05);
        assert_near(&format!("{kernel} batch difference"), batch[0] - batch[1], at - beside, 0.02);
        // The tensor cores do not take sets so far from each other.
        if !matches!(request, Some("batch_mma" | "batch_wgmma")) {
            let batch = cuda.log_likelihood_batch(&sets).unwrap();
            assert_near(&format!("{kernel} anywhere"), batch[4], anywhere, 1e-7 * anywhere.abs());
        }
    }
}

fn samples_are_scored_and_read_back() {
    for (n, d, k) in sizes("1x1x1 7x13x8 50001x13x8 1001x70x40") {
        let (x, wide) = data(16, n, d);
        let mixture = diag(17, k, d, 0.0);
        let scores = reference(wide.view()).score_samples(&mixture).unwrap();
        for kernel in [None, Some("pair"), Some("tiled/1:128x3:all"), Some("tiled/16:128x3:all")] {
            let mut cuda = evaluator(&x, kernel);
            let got = cuda.score_samples(&mixture).unwrap();
            assert_eq!(got.len(), n);
            for (i, e) in tolerances(&scores, d).1.into_iter().enumerate() {
                assert_near(&format!("{kernel:?} N={n} D={d} K={k} sample {i}"), got[i], scores[i], e);
            }
        }
        let mut cuda = evaluator(&x, None);
        let rows: Vec<usize> = (0..n).rev().step_by(3).chain(0..n.min(5)).collect();
        let back = cuda.rows(&rows).unwrap();
        for (r, &row) in rows.iter().enumerate() {
            for j in 0..d {
                // Rounded around the centre, in units of at most 2⁻²⁴ of the largest deviation (below 8 here).
                assert_near("row", back.x[[r, j]], wide[[row, j]], 8.0 * 2f64.powi(-24));
            }
        }
        assert!(matches!(cuda.rows(&[n]), Err(Error::NoSuchRow { .. })));
    }
}

fn requests_that_cannot_be_met_are_refused() {
    let (x, _) = data(18, 50, 3);
    let samples = || Samples::from_f32(x.view()).unwrap();
    let new = |kernel: Option<&str>, ordinal, memory_limit| {
        let options = CudaOptions::default().with_kernel(kernel.map(String::from)).with_memory_limit(memory_limit);
        CudaEvaluator::new(samples(), ordinal, &options).map(|_| ()).unwrap_err()
    };
    for name in ["warp9", "small_k:100x4:0", "small_k:", ""] {
        assert!(matches!(new(Some(name), 0, None), Error::Kernel { .. }), "{name}");
    }
    assert!(matches!(new(None, 4711, None), Error::NoCudaDevice { .. }));
    assert!(matches!(new(None, 0, Some(100)), Error::Unsupported { .. }));

    let mut cuda = evaluator(&x, Some("small_k"));
    let error = cuda.log_likelihood(&diag(1, 9, 3, 0.0)).unwrap_err();
    assert!(error.to_string().contains("at most 8 components"), "{error}");
    assert!(matches!(cuda.log_likelihood(&diag(1, 2, 4, 0.0)), Err(Error::ShapeMismatch { .. })));
    // A mean so far away that squared distances overflow.
    let far =
        Mixture::new(arr1(&[1.0]), Array2::from_elem((1, 3), 1e200), Covariances::Diag(Array2::ones((1, 3)))).unwrap();
    assert_eq!(cuda.log_likelihood(&far).unwrap(), f64::NEG_INFINITY);
    // The evaluator still works.
    assert!(cuda.log_likelihood(&diag(1, 2, 3, 0.0)).unwrap().is_finite());
}

/// Four threads evaluate the same resident samples, or chunks, each with its own evaluator, to the same bits as one.
fn evaluators_share_resident_samples() {
    let (x, _) = data(31, 60_001, 7);
    let mixtures: Vec<_> = (0..4).map(|i| diag(32 + i, 4, 7, 0.0)).collect();
    for limit in [None, Some(7 * 512 * 20 * size_of::<f32>())] {
        let mut data = cuda(Samples::from_f32(x.view()).unwrap(), Some("tiled/1:128x4:all"), limit);
        let alone: Vec<_> = mixtures.iter().map(|m| data.log_likelihood(m).unwrap().to_bits()).collect();
        let counts = data.statistics(&mixtures[0]).unwrap().counts().to_owned();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mut shared = data.share().unwrap();
                let (mixtures, alone, counts) = (&mixtures, &alone, &counts);
                scope.spawn(move || {
                    for _ in 0..10 {
                        let bits = mixtures.iter().map(|m| shared.log_likelihood(m).unwrap().to_bits());
                        assert_eq!(bits.collect::<Vec<_>>(), *alone);
                    }
                    assert_eq!(shared.statistics(&mixtures[0]).unwrap().counts(), counts.view());
                });
            }
        });
    }
}

/// Threads load the same kernel at the same time, and launch it with more and with less dynamic shared memory than the
/// 48 KiB that need no request. All succeed: no thread may set a limit below another's need.
fn threads_load_kernels_at_once() {
    let shapes = ["tiled/16:256x1:all", "tiled/16:128x1:all", "tiled/16:64x1:all", "tiled/32:256x1:all"];
    // No other test has evaluated this size with this kernel before.
    let (x, wide) = data(33, 9001, 23);
    let mixture = diag(34, 19, 23, 0.0);
    let truth = reference(wide.view()).score_samples(&mixture).unwrap();
    let start = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for i in 0..8 {
            let (x, mixture, truth, start) = (&x, &mixture, &truth, &start);
            scope.spawn(move || {
                let mut cuda = evaluator(x, Some(shapes[i % 4]));
                start.wait();
                for _ in 0..20 {
                    let total = cuda.log_likelihood(mixture).unwrap();
                    assert_near(shapes[i % 4], total, truth.sum(), tolerances(truth, 23).0);
                }
            });
        }
    });
}

/// Totals, batches and scores of matrices and of weighted samples come from the tiled kernels, and are right.
fn float32_likelihoods_have_fast_kernels() {
    for (i, (n, d, k)) in sizes("1x1x1 5003x13x8 3001x17x3 777x40x18 2049x8x33").enumerate() {
        let (x, wide) = data(35 + i as u64, n, d);
        let weights = Array1::from_shape_fn(n, |i| if i == 0 { 1.5 } else { 0.25 * (i % 7) as f64 });
        for covariance_type in CovarianceType::ALL {
            for weights in [None, Some(&weights)] {
                let mixture = crate::common::mixture(40 + i as u64, covariance_type, k, d, 0.0);
                let samples = Samples::from_f32(x.view()).unwrap();
                let samples = weights.iter().fold(samples, |samples, w| samples.with_weights(w.view()).unwrap());
                let mut cuda = cuda(samples, None, None);
                let truth = reference(wide.view()).score_samples(&mixture).unwrap();
                let sum = match weights {
                    Some(weights) => (&truth * weights).sum(),
                    None => truth.sum(),
                };
                let what = format!("{covariance_type} N={n} D={d} K={k} weighted: {}", weights.is_some());
                // Triangles round D times as often as diagonals; weights are at most 1.5.
                let bound = 1.5 * (d as f64).sqrt() * tolerances(&truth, d).0;
                let total = cuda.log_likelihood(&mixture).unwrap();
                assert_near(&what, total, sum, bound);
                let kernel = cuda.describe().kernel;
                assert!(!kernel.starts_with("general"), "{what}: {kernel}");
                let other = crate::common::mixture(50 + i as u64, covariance_type, k, d, 0.0);
                let totals = cuda.log_likelihood_batch(&[mixture.clone(), other]).unwrap();
                assert_near(&what, totals[0], sum, bound);
                let scores = cuda.score_samples(&mixture).unwrap();
                assert!(!cuda.describe().kernel.starts_with("general"), "{what}: {}", cuda.describe().kernel);
                for (got, (truth, e)) in scores.iter().zip(truth.iter().zip(&tolerances(&truth, d).1)) {
                    assert_near(&what, *got, *truth, (d as f64).sqrt() * e);
                }
                // The same bits twice.
                assert_eq!(cuda.log_likelihood(&mixture).unwrap().to_bits(), total.to_bits(), "{what}");
            }
        }
    }
}

fn kernels_are_timed_and_choices_remembered() {
    let folder = std::env::temp_dir().join(format!("gmm-cuda-test-{}", std::process::id()));
    let file = folder.join("tuning.json");
    let (x, _) = data(23, 300_000, 6);
    let mixture = diag(24, 8, 6, 0.0);
    let options = CudaOptions::default().with_tuning_file(file.clone());
    let mut cuda = CudaEvaluator::new(Samples::from_f32(x.view()).unwrap(), 0, &options).unwrap();
    let seconds = cuda.kernel_seconds(&mixture, 20).unwrap();
    // Between the time of an empty launch and a tenth of a second.
    assert!((1e-7..0.1).contains(&seconds), "{seconds}");
    let remembered = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    let choices: std::collections::BTreeMap<String, String> = serde_json::from_str(&remembered).unwrap();
    let name = cuda.gpu().name.clone();
    let own = choices.iter().find(|(key, _)| key.starts_with(&name) && key.ends_with("total n=1e5 k=8 d=6 diag"));
    assert_eq!(*own.unwrap().1, cuda.describe().kernel);
}

/// The talk's data stays on the CPU if it is small, and moves to the GPU if it is large.
fn auto_takes_the_faster_side() {
    for (n, device) in [(50, "cpu"), (1_000_000, "cuda:0")] {
        let (x, _) = data(25, n, 13);
        let mut auto = load(Device::Auto, Samples::from_f32(x.view()).unwrap(), &Default::default()).unwrap();
        auto.sampling().unwrap().settle();
        auto.log_likelihood(&diag(26, 8, 13, 0.0)).unwrap();
        // Without optimisation the CPU is slow.
        if n > 1000 || !cfg!(debug_assertions) {
            assert!(auto.describe().device.starts_with(device), "N={n}: {:?}", auto.describe());
        }
    }
}

fn auto_agrees_on_either_side() {
    for n in [50, 1_000_000] {
        let (x, wide) = data(25, n, 13);
        let mixture = diag(26, 8, 13, 0.0);
        let mut auto = load(Device::Auto, Samples::from_f32(x.view()).unwrap(), &Default::default()).unwrap();
        auto.sampling().unwrap().settle();
        let total = auto.log_likelihood(&mixture).unwrap();
        let truth = reference(wide.view()).score_samples(&mixture).unwrap();
        assert_near(&format!("auto N={n}"), total, truth.sum(), tolerances(&truth, 13).0);
        assert_eq!(auto.log_likelihood(&mixture).unwrap().to_bits(), total.to_bits());
        // Another covariance type is another choice.
        let full = crate::common::mixture(27, CovarianceType::Full, 2, 13, 0.0);
        if n < 1000 {
            let truth = reference(wide.view()).log_likelihood(&full).unwrap();
            assert_near("full", auto.log_likelihood(&full).unwrap(), truth, 1e-5 * truth.abs());
        }
    }
}
