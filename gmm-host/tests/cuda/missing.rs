//! The CUDA backend on samples with missing values, on a real device, against the float64 reference.
//!
//! Tolerances: float64 10⁻¹⁰ relative; float32 as each test says.
use crate::common::{
    self, Allowed, Backend, CUDA_BACKENDS, assert_close, assert_evaluators_agree, assert_fits_close, blobs, cuda,
    estep, mixture, normal, reference_in_threads, sizes, weights, with_means,
};
use crate::gpu_harness::Test;
use gmm_host::{
    CovarianceType, Device, Error, Evaluator, GaussianMixtureParams, Mixture, ReferenceEvaluator, Samples, load,
};
use ndarray::Array2;

pub fn tests() -> Vec<Test> {
    vec![
        ("every_shape_and_share_agrees::diag", || every_shape_and_share_agrees(CovarianceType::Diag, false)),
        ("every_shape_and_share_agrees::diag_weighted", || every_shape_and_share_agrees(CovarianceType::Diag, true)),
        ("every_shape_and_share_agrees::spherical", || every_shape_and_share_agrees(CovarianceType::Spherical, false)),
        ("every_shape_and_share_agrees::spherical_weighted", || {
            every_shape_and_share_agrees(CovarianceType::Spherical, true);
        }),
        ("narrow_and_far_components_agree", narrow_and_far_components_agree),
        ("far_samples_and_dead_components", far_samples_and_dead_components),
        ("chunks_equal_the_whole", chunks_equal_the_whole),
        ("fits_agree_with_the_cpu", fits_agree_with_the_cpu),
        ("without_holes_the_bits_are_those_of_complete_data", without_holes_the_bits_are_those_of_complete_data),
        ("every_kernel_agrees_or_says_why_not", every_kernel_agrees_or_says_why_not),
        ("all_covariance_types_take_turns", all_covariance_types_take_turns),
        ("auto_takes_them", auto_takes_them),
    ]
}

const TYPES: [CovarianceType; 2] = [CovarianceType::Diag, CovarianceType::Spherical];

/// Makes a share of the values missing at random, and all of row 7.
fn with_holes(seed: u64, x: Array2<f64>, share: f64) -> Array2<f64> {
    let mut x = common::with_holes(seed, x, share);
    if x.nrows() > 7 {
        x.row_mut(7).fill(f64::NAN);
    }
    x
}

/// Compares all results of an evaluator with the reference. `unit` is the allowed error of a sample's log-likelihood,
/// relative to its size and to √D; `statistics` is that of the statistics.
fn check(what: &str, e: &mut dyn Evaluator, samples: &Samples<'_>, m: &Mixture, unit: f64, statistics: f64) {
    if samples.n_samples() > 7 {
        assert_eq!(e.score_samples(m).unwrap()[7], 0.0, "{what}: nothing is observed in this row");
    }
    e.statistics(m).unwrap();
    // The tensor cores round responsibilities by 2⁻¹² of themselves, which hardly averages over a few samples.
    let few = samples.n_samples() < 100 * m.n_components();
    let on_tensor_cores = e.describe().kernel.contains("mma");
    let statistics = if few && on_tensor_cores { statistics.max(5e-4) } else { statistics };
    let unit = unit * (m.n_features() as f64 + 4.0).sqrt();
    let allowed = Allowed { sample: unit, total: unit, statistics };
    assert_evaluators_agree(what, e, &mut reference_in_threads(samples), m, allowed);
}

/// Returns a backend's tolerances for [`check`]. In float32 the tensor cores compute the statistics, and their
/// roundings hardly average in a component of a hundred samples.
fn tolerances(backend: &Backend) -> (f64, f64) {
    (backend.tolerance(1e-14, 16.0 * 2f64.powi(-24)), backend.tolerance(1e-10, 1e-4))
}

fn every_shape_and_share_agrees(t: CovarianceType, weighted: bool) {
    let shapes = sizes(
        "1x1x1 1x13x8 1000x1x1 1001x2x3 5000x16x32 260003x13x8 210000x20x12 3000x40x5 600x3x70 511x70x33 900x17x1 \
        3000x12x4 4000x13x300 1500x80x140 1500x100x140 3000x190x130",
    );
    for (i, (n, d, k)) in shapes.enumerate() {
        let share = [0.05, 0.3, 0.6][i % 3];
        let (x, w) = (with_holes(i as u64, normal(i as u64, n, d, 0.5), share), weights(n));
        let m = mixture(10 + i as u64, t, k, d, 0.5);
        for backend in CUDA_BACKENDS {
            let what = format!("{}, {t} N={n} D={d} K={k}, {share} missing, weights {weighted}", backend.name);
            let samples = backend.samples(x.view(), weighted.then_some(w.view()));
            let (unit, statistics) = tolerances(backend);
            check(&what, (backend.load)(samples.clone()).as_mut(), &samples, &m, unit, statistics);
        }
    }
}

/// Columns far from the origin, and components many of their standard deviations apart.
fn narrow_and_far_components_agree() {
    for (i, (n, d, k)) in [(30_000, 13, 8), (20_000, 5, 20), (2000, 40, 6)].into_iter().enumerate() {
        let mut x = normal(60 + i as u64, n, d, 0.0);
        for (i, mut row) in x.outer_iter_mut().enumerate() {
            row.map_inplace(|v| *v += 1e4 + 100.0 * (i % k) as f64);
        }
        let x = with_holes(i as u64, x, 0.3);
        for t in TYPES {
            let of = mixture(70 + i as u64, t, k, d, 0.0);
            let means = Array2::from_shape_fn((k, d), |(c, j)| 1e4 + 100.0 * c as f64 + 0.1 * of.means()[[c, j]]);
            let m = with_means(&of, means);
            for backend in CUDA_BACKENDS {
                let samples = backend.samples(x.view(), None);
                let what = format!("{}, {t} N={n} D={d} K={k}", backend.name);
                // In float32 deviations are differences of numbers of some hundreds of deviations: 2⁻²⁴ of these.
                let (unit, statistics) = (backend.tolerance(1e-12, 4e-4), backend.tolerance(1e-9, 1e-4));
                check(&what, (backend.load)(samples.clone()).as_mut(), &samples, &m, unit, statistics);
            }
        }
    }
}

fn far_samples_and_dead_components() {
    for (n, d, k) in [(3000, 3, 5), (3000, 13, 8), (3000, 20, 9)] {
        let mut x = with_holes(3, normal(80, n, d, 0.0), 0.3);
        x.row_mut(5).map_inplace(|v| *v = if v.is_nan() { *v } else { 1e3 });
        x[[n - 1, 0]] = -1e3;
        for t in TYPES {
            let of = mixture(81, t, k, d, 0.0);
            let mut weights = of.weights().to_owned();
            weights[0] = 0.0;
            weights /= weights.sum();
            let mut means = of.means().to_owned();
            means.row_mut(0).fill(1e3);
            let m = Mixture::new(weights, means, of.covariances().clone()).unwrap();
            for backend in CUDA_BACKENDS {
                let samples = backend.samples(x.view(), None);
                let mut e = (backend.load)(samples.clone());
                let (unit, statistics) = tolerances(backend);
                let what = format!("{}, {t} D={d}", backend.name);
                // The far samples contribute 10⁶ variances to the scatter, with their own rounding.
                check(&what, e.as_mut(), &samples, &m, 4.0 * unit, 10.0 * statistics);
                assert_eq!(e.statistics(&m).unwrap().counts()[0], 0.0, "{what}");
                assert!(e.predict(&m).unwrap().iter().all(|label| *label != 0), "{what}");
            }
        }
    }
}

fn chunks_equal_the_whole() {
    let (n, d, k) = (50_003, 6, 4);
    let (x, w) = (with_holes(4, normal(44, n, d, 0.0), 0.3), weights(n));
    for t in TYPES {
        let m = mixture(45, t, k, d, 0.0);
        for backend in CUDA_BACKENDS {
            let samples = backend.samples(x.view(), Some(w.view()));
            for limit in [512 * 7 * 8 * 2, 300_000] {
                let mut chunked = cuda(samples.clone(), None, Some(limit));
                let (unit, statistics) = tolerances(backend);
                check(&format!("{}, {t}, limit {limit}", backend.name), &mut chunked, &samples, &m, unit, statistics);
                assert!(!chunked.is_resident());
            }
        }
    }
}

fn fits_agree_with_the_cpu() {
    let x = with_holes(5, blobs(51, 20_000, 5), 0.3);
    let w = weights(20_000);
    for t in TYPES {
        let fit = |device| {
            let samples = Samples::with_missing(x.view()).unwrap().with_weights(w.view()).unwrap();
            let params = GaussianMixtureParams::default().n_components(3).covariance_type(t).tol(0.0).max_iter(20);
            params.check().unwrap().fit(load(device, samples, &Default::default()).unwrap().as_mut()).unwrap()
        };
        let (cuda, cpu) = (fit(Device::Cuda(0)), fit(Device::Cpu));
        assert_fits_close(&t.to_string(), &cuda, &cpu, 1e-9);
    }
}

fn without_holes_the_bits_are_those_of_complete_data() {
    let x = blobs(3, 20_000, 5);
    let x32 = x.mapv(|v| v as f32);
    let of = |samples| load(Device::Cuda(0), samples, &Default::default()).unwrap();
    for t in CovarianceType::ALL {
        let m = mixture(1, t, 3, 5, 2.0);
        let mut pairs = [
            (of(Samples::from_f64(x.view()).unwrap()), of(Samples::with_missing(x.view()).unwrap())),
            (of(Samples::from_f32(x32.view()).unwrap()), of(Samples::with_missing(x32.view()).unwrap())),
        ];
        for (a, b) in &mut pairs {
            assert_eq!(a.statistics(&m).unwrap(), b.statistics(&m).unwrap());
            assert_eq!(a.score_samples(&m).unwrap(), b.score_samples(&m).unwrap());
            assert_eq!(a.log_likelihood(&m).unwrap().to_bits(), b.log_likelihood(&m).unwrap().to_bits());
            assert_eq!(a.describe(), b.describe());
        }
    }
}

fn every_kernel_agrees_or_says_why_not() {
    let backend = &CUDA_BACKENDS[1];
    for (n, d, k) in [(210_000, 13, 8), (3000, 5, 3), (2000, 40, 20)] {
        let x = with_holes(8, normal(90, n, d, 0.0), 0.3);
        let samples = backend.samples(x.view(), None);
        let m = mixture(91, CovarianceType::Diag, k, d, 0.0);
        let mut general = cuda(samples.clone(), Some("general"), None);
        let (total, statistics) = (general.log_likelihood(&m).unwrap(), general.statistics(&m).unwrap());
        for name in gmm_host::cuda_kernel_names() {
            let mut e = cuda(samples.clone(), Some(&name), None);
            let what = format!("{name} N={n} D={d} K={k}");
            match e.log_likelihood(&m) {
                Ok(got) => assert_close(&what, got, total, 1e-6, 1.0),
                Err(Error::Kernel { .. }) => println!("{what}: no total"),
                Err(error) => panic!("{what}: {error}"),
            }
            match e.statistics(&m) {
                Ok(got) => {
                    // Responsibilities are rounded to float16 there, which hardly averages over thirty samples.
                    let allowed = match e.describe().kernel.contains("mma") {
                        true if n < 1000 * k => 5e-4,
                        true => 1e-4,
                        false => 3e-5,
                    };
                    estep::assert_statistics_agree(&what, &got, &statistics, allowed)
                }
                Err(Error::Kernel { .. }) => println!("{what}: no E-step"),
                Err(error) => panic!("{what}: {error}"),
            }
            println!("{what}: {}", e.describe().kernel);
        }
    }
}

/// Both sides of one evaluator, with a layout of the samples for each.
fn all_covariance_types_take_turns() {
    let x = with_holes(9, normal(92, 500, 4, 0.0), 0.3);
    let samples = Samples::with_missing(x.view()).unwrap();
    let mut e = cuda(samples.clone(), None, None);
    let mut truth = ReferenceEvaluator::new(samples.clone());
    for t in CovarianceType::ALL.into_iter().chain(CovarianceType::ALL) {
        let m = mixture(93, t, 3, 4, 0.0);
        let (got, want) = (e.log_likelihood(&m).unwrap(), truth.log_likelihood(&m).unwrap());
        assert_close(&t.to_string(), got, want, 1e-10, 0.0);
    }
}

fn auto_takes_them() {
    let n = 200_000;
    let x = with_holes(10, normal(54, n, 13, 0.0), 0.1);
    let samples = Samples::with_missing(x.view()).unwrap();
    for t in CovarianceType::ALL {
        let m = mixture(55, t, 8, 13, 0.0);
        let mut auto = load(Device::Auto, samples.clone(), &Default::default()).unwrap();
        auto.sampling().unwrap().settle();
        let mut cpu = load(Device::Cpu, samples.clone(), &Default::default()).unwrap();
        for _ in 0..3 {
            assert_close("auto", auto.log_likelihood(&m).unwrap(), cpu.log_likelihood(&m).unwrap(), 1e-11, 0.0);
        }
        println!("{t}: {:?}", auto.describe());
        assert_eq!(auto.predict(&m).unwrap().len(), n);
    }
}
