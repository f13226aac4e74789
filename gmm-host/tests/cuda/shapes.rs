//! The CUDA backend beyond its fast kernels, on a real device: float64, sample weights, every covariance type, any K
//! and D, fits. The truth is the reference, and scikit-learn's fits.
//!
//! Tolerances: float64 10⁻¹⁰ relative; float32 as each test says.
use crate::common::estep::{self, Subject};
use crate::common::{
    Allowed, CUDA_BACKENDS, agreement, assert_all_close, assert_close, assert_evaluators_agree, assert_fits_close,
    blobs, cuda, mixture, normal, reference, reference_in_threads, sizes, weights, with_means,
};
use crate::gpu_harness::{Test, warpgroups};
use gmm_host::{
    CovarianceType, Covariances, CudaEvaluator, Device, Error, Evaluator, GaussianMixtureParams, InitParams, Samples,
    Statistics, load,
};
use ndarray::{Array1, Array2};
use std::time::Instant;

const WITH_MATRICES: [CovarianceType; 2] = [CovarianceType::Full, CovarianceType::Tied];
const WITHOUT_MATRICES: [CovarianceType; 2] = [CovarianceType::Diag, CovarianceType::Spherical];

pub fn tests() -> Vec<Test> {
    vec![
        ("every_operation_agrees", every_operation_agrees),
        ("estep_every_type_and_size", || estep::every_type_and_size(&subjects())),
        ("estep_narrow_clusters", || estep::narrow_clusters_far_from_each_other(&subjects())),
        ("estep_overlapping_clusters", || estep::overlapping_clusters_far_from_the_centre(&subjects())),
        ("estep_far_samples_and_dead_components", || estep::far_samples_and_dead_components(&subjects())),
        ("estep_weights_of_any_size", || estep::weights_of_any_size(&subjects())),
        ("tensor_cores_agree", tensor_cores_agree),
        ("fused_mma_agree", fused_mma_agree),
        ("expanded_mma_agree", expanded_mma_agree),
        ("warpgroups_agree", warpgroups_agree),
        ("whitened_agrees", whitened_agrees),
        ("whitened_wgmma_agrees", whitened_wgmma_agrees),
        ("long_esteps_agree", long_esteps_agree),
        ("tensor_cores_refuse_what_would_lose_digits", tensor_cores_refuse_what_would_lose_digits),
        ("large_k_and_d", large_k_and_d),
        ("many_parts", many_parts),
        ("chunks_equal_the_whole", chunks_equal_the_whole),
        ("far_samples_are_finite", far_samples_are_finite),
        ("errors_leave_it_usable", errors_leave_it_usable),
        ("fits_agree_with_scikit_learn", fits_agree_with_scikit_learn),
        ("fits_agree_with_the_cpu", fits_agree_with_the_cpu),
    ]
}

pub const TIMED: [Test; 1] = [("a_start_costs_less_than_ten_iterations", a_start_costs_less_than_ten_iterations)];

/// Returns the backend with all samples resident, and in chunks of 512 samples or a few more.
fn subjects() -> Vec<Subject> {
    let subject = |name: &str, limit: Option<usize>| Subject {
        name: name.into(),
        load: Box::new(move |samples| Box::new(cuda(samples, None, limit))),
        // Float64 sums over parts and slices, in another order.
        float64: 1e-10,
        // Different kernels round differently: 10⁻³ of a sample if clusters are 10⁴ of their widths apart.
        totals: (1e-12, 1e-5),
    };
    vec![subject("cuda", None), subject("cuda in chunks", Some(2 * 8 * 512 * 72))]
}

/// float32: some roundings for each feature of numbers of the size of a sample's score.
fn every_operation_agrees() {
    let all = "1x1x1 1x17x1 5x13x8 1001x2x3 70001x13x8 10007x16x32 4099x7x9 3001x17x3 20011x33x65 5003x2x40 \
        3000x40x5 600x3x70 2049x3x70 511x70x33 777x130x18";
    for (i, (n, d, k)) in sizes(all).enumerate() {
        for t in CovarianceType::ALL {
            let (x, w) = (normal(i as u64, n, d, 0.5), weights(n));
            let m = mixture(10 + i as u64, t, k, d, 0.5);
            for backend in CUDA_BACKENDS {
                let w = (i % 2 == 1).then_some(w.view());
                let mut truth = reference_in_threads(&backend.samples(x.view(), w));
                let unit = backend.tolerance(1e-13, 16.0 * 2f64.powi(-24)) * (d as f64 + 4.0).sqrt();
                let statistics = backend.tolerance(1e-10, estep::FLOAT32);
                let allowed = Allowed { sample: unit, total: unit, statistics };
                let what = format!("{}, {t} N={n} D={d} K={k}", backend.name);
                assert_evaluators_agree(&what, backend.evaluator(x.view(), w).as_mut(), &mut truth, &m, allowed);
            }
        }
    }
}

/// One E-step each, with a matrix larger than a block can hold.
fn large_k_and_d() {
    for (n, d, k, t) in [
        (3000, 16, 1500, CovarianceType::Diag),
        (2000, 300, 3, CovarianceType::Full),
        (2000, 300, 3, CovarianceType::Tied),
        (700, 1000, 2, CovarianceType::Diag),
        (5000, 31, 100, CovarianceType::Full),
    ] {
        let x = normal(40, n, d, 0.0);
        let m = mixture(41, t, k, d, 0.0);
        estep::check(&subjects()[..1], &format!("large N={n} D={d} K={k}"), &x, None, &m, estep::FLOAT32);
    }
}

/// The E-step on the tensor cores, at sizes that fit no tile, on random and on real data, and far from the origin.
///
/// Tolerances: responsibilities are rounded by 2⁻¹² of themselves, which moves the mean over N samples by 2⁻¹²/√N of a
/// deviation, up to 2⁻¹² for a few samples. With thousands the errors are those of the exponents, [`estep::FLOAT32`].
fn tensor_cores_agree() {
    let small = "1x1x1 3x2x2 130x16x5 257x3x19 900x40x3 1500x13x70 700x129x33";
    agree_on_tensor_cores("products_mma", &CovarianceType::ALL, small, "20003x13x8 30001x32x64 10007x64x20");
}

/// As [`tensor_cores_agree`], for the kernels that multiply matrices with features.
fn whitened_agrees() {
    let small = "1x1x1 3x2x2 130x16x5 257x3x19 900x40x3 700x129x33 1500x70x7";
    agree_on_tensor_cores("whitened_mma", &WITH_MATRICES, small, "20003x13x8 30001x32x64 10007x64x20");
}

/// All kernels of E-steps, against float64 on the same device, with so many samples that slices add to separate sums
/// and samples are divided into several pieces. A sum left out or counted twice changes the whole by far more than 10⁻³
/// in norm, which is above every kernel's rounding.
fn long_esteps_agree() {
    const KERNELS: &str = "fused fused_mma expanded_mma products_mma products_wgmma whitened_mma whitened_wgmma \
        weighted_sums general";
    // Counts, and sums of the samples and of their products, in which components of few samples count little.
    let sums = |statistics: &Statistics| {
        let counts = statistics.counts();
        let first = statistics.means().indexed_iter().map(|((c, _), mean)| counts[c] * mean).collect();
        [counts.to_vec(), first, statistics.scatter().iter().collect::<Vec<f64>>()]
    };
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|v| v * v).sum::<f64>().sqrt();
    for (i, (n, d, k)) in [(1_200_007, 17, 20), (400_009, 200, 8), (700_001, 40, 70)].into_iter().enumerate() {
        let x = normal(60 + i as u64, n, d, 0.0).mapv(|v| v as f32);
        let samples = Samples::from_f32(x.view()).unwrap();
        for t in CovarianceType::ALL {
            let m = mixture(70 + i as u64, t, k, d, 0.0);
            let exact = samples.clone().into_float64();
            let truth = sums(&cuda(exact, None, None).statistics(&m).unwrap());
            let mut found = 0;
            for kernel in KERNELS.split_whitespace() {
                let got = match cuda(samples.clone(), Some(kernel), None).statistics(&m) {
                    Ok(statistics) => sums(&statistics),
                    Err(Error::Kernel { .. }) => continue,
                    Err(error) => panic!("{kernel}: {error}"),
                };
                found += 1;
                for (what, (got, truth)) in ["counts", "sums", "scatter"].into_iter().zip(got.iter().zip(&truth)) {
                    let error = norm(&mut got.iter().zip(truth).map(|(a, b)| a - b)) / norm(&mut truth.iter().copied());
                    assert!(error < 1e-3, "{kernel}, {t} N={n} D={d} K={k}: {what} are off by {error}");
                }
            }
            assert!(found >= 2, "{t} N={n} D={d} K={k}: {found} kernels");
        }
    }
}

/// Returns whether the device multiplies by warpgroups. If not, checks that the kernel is refused.
fn has_warpgroups(kernel: &str, covariance_type: CovarianceType) -> bool {
    let here = warpgroups();
    if !here {
        let x = normal(1, 10, 2, 0.0);
        let mut cuda = cuda(Samples::from_f64(x.view()).unwrap(), Some(kernel), None);
        assert!(matches!(cuda.statistics(&mixture(2, covariance_type, 3, 2, 0.0)), Err(Error::Kernel { .. })));
    }
    here
}

/// As [`tensor_cores_agree`], for the warpgroup kernels of matrices: one and two units of few features, each width,
/// several groups of triangles, several chunks of responsibilities.
fn whitened_wgmma_agrees() {
    if has_warpgroups("whitened_wgmma", CovarianceType::Full) {
        let small = "1x1x1 3x2x2 130x16x5 257x3x75 900x40x3 700x65x33 1500x128x7";
        let large = "20003x13x8 30001x32x64 10007x64x20 10007x127x9";
        agree_on_tensor_cores("whitened_wgmma", &WITH_MATRICES, small, large);
    }
}

/// As [`tensor_cores_agree`], for the warpgroup kernels.
fn warpgroups_agree() {
    if has_warpgroups("products_wgmma", CovarianceType::Diag) {
        let small = "1x1x1 3x2x2 130x16x5 257x3x19 900x40x3 1500x13x140 700x127x33";
        agree_on_tensor_cores("products_wgmma", &WITHOUT_MATRICES, small, "20003x13x8 30001x32x64 60013x128x130");
    }
}

/// As [`tensor_cores_agree`], for each instance of the kernels that keep exponents in registers; in the second line of
/// sizes, several warps share samples, with different features, different components, or both.
fn fused_mma_agree() {
    let small = "1x1x1 15x5x3 17x13x9 130x16x5 1000x8x8 257x3x19 700x17x16 300x25x7 900x32x33 \
        100x33x3 700x70x12 301x100x30 257x130x8 300x65x40 500x20x130 600x5x300";
    let large = "20003x13x8 20003x7x5 15000x32x8 30001x32x64 20011x16x32 700001x4x3 30001x64x8 20003x128x32 \
        20003x13x128 60011x32x128 60011x64x64";
    agree_on_tensor_cores("fused_mma", &WITHOUT_MATRICES, small, large);
    let small = "1x1x1 15x5x3 17x13x8 130x15x5 1000x8x8 257x10x7 300x13x20 200x5x70";
    let large = "20003x13x8 20003x7x5 20003x14x8 700001x4x3 20003x13x16 20003x15x30";
    agree_on_tensor_cores("fused_mma", &WITH_MATRICES, small, large);
}

/// As [`tensor_cores_agree`], for each instance of the kernels with expanded exponents: few components and many, alone
/// and in teams with different products, different components, or both.
fn expanded_mma_agree() {
    let small = "1x1x1 15x4x3 300x2x40 257x4x70 130x8x5 300x7x20 200x5x40 200x11x9 150x10x30 17x13x9 300x13x20 \
        200x12x35 130x16x7 150x16x40 130x20x17 100x28x5 100x24x20";
    let large = "700001x3x4 60011x4x100 20003x8x32 20003x13x16 60011x13x60 20003x11x20 20003x16x8 20003x28x8";
    agree_on_tensor_cores("expanded_mma", &WITH_MATRICES, small, large);
    let small = "1x1x1 15x8x3 257x3x70 300x24x9";
    agree_on_tensor_cores("expanded_mma", &WITHOUT_MATRICES, small, "700001x3x4 60011x8x100");
}

fn agree_on_tensor_cores(kernel: &'static str, types: &[CovarianceType], small: &str, large: &str) {
    let subject = |limit: Option<usize>| Subject {
        name: format!("{kernel}, memory {limit:?}"),
        load: Box::new(move |samples| Box::new(cuda(samples, Some(kernel), limit))),
        float64: 5e-4,
        totals: (1e-5, 1e-5),
    };
    let subjects = [subject(None), subject(Some(2 * 8 * 512 * 140))];
    for (n, d, k) in sizes(small) {
        for &t in types {
            let x = normal((n + d) as u64, n, d, 0.4);
            let m = mixture((k + d) as u64, t, k, d, 0.4);
            let what = format!("N={n} D={d} K={k}");
            estep::check(&subjects, &what, &x, None, &m, 5e-4);
            estep::check(&subjects[..1], &format!("{what} weighted"), &x, Some(&weights(n)), &m, 5e-4);
        }
    }
    for (n, d, k) in sizes(large) {
        for &t in types {
            for offset in [0.0, 1e4] {
                // In float64, so that data far from the origin are exact; they are centred before rounding.
                let x = normal(n as u64, n, d, offset);
                let m = mixture(7, t, k, d, offset);
                let samples = Samples::from_f64(x.view()).unwrap();
                let truth = reference_in_threads(&samples).statistics(&m).unwrap();
                let got = (subjects[0].load)(samples).statistics(&m).unwrap();
                let what = format!("{t} N={n} D={d} K={k} offset {offset}");
                estep::assert_statistics_agree(&what, &got, &truth, estep::FLOAT32);
                let relative = (got.log_likelihood() / truth.log_likelihood() - 1.0).abs();
                assert!(relative < 1e-7, "{what}: total {relative:e}");
                println!("{kernel}, {what}: total {relative:e}, {}", estep::errors(&got, &truth));
            }
        }
    }
}

/// Narrow components far from the data's centre are refused by a requested kernel, and left to other kernels otherwise.
fn tensor_cores_refuse_what_would_lose_digits() {
    let (n, d, k) = (2000, 3, 2);
    let mut x = normal(50, n, d, 0.0);
    x.outer_iter_mut().enumerate().for_each(|(i, mut row)| row += if i % 2 == 0 { 30.0 } else { -30.0 });
    let means = Array2::from_shape_fn((k, d), |(c, _)| if c == 0 { 30.0 } else { -30.0 });
    for t in CovarianceType::ALL {
        let unit = mixture(51, t, k, d, 0.0);
        let m = with_means(&unit, means.clone());
        let mut e = cuda(Samples::from_f64(x.view()).unwrap(), Some("products_mma"), None);
        let error = e.statistics(&m).unwrap_err();
        assert!(matches!(error, Error::Kernel { .. }) && error.to_string().contains("narrow"), "{t}: {error}");
    }
}

/// With more samples than a part takes, and more parts than one launch takes, sums over the parts are exact enough.
fn many_parts() {
    let n = 3_000_017;
    let x = blobs(42, n, 4);
    let w = weights(n);
    let means = Array2::from_shape_fn((3, 4), |(c, _)| 5.0 * c as f64);
    for t in CovarianceType::ALL {
        let m = with_means(&mixture(43, t, 3, 4, 5.0), means.clone());
        // In float32 moments around the data's centre, up to 7 deviations from the components. Counts sum eleven
        // weights, whose roundings are common to many samples: up to 4·10⁻⁷ off, times 49 in the scatter.
        estep::check(&subjects()[..1], "many parts", &x, Some(&w), &m, 3e-5);
    }
}

fn chunks_equal_the_whole() {
    let (n, d, k) = (50_003, 6, 4);
    let (x, w) = (normal(44, n, d, 0.0), weights(n));
    for t in CovarianceType::ALL {
        let m = mixture(45, t, k, d, 0.0);
        for backend in CUDA_BACKENDS {
            let samples = backend.samples(x.view(), Some(w.view()));
            let mut whole = cuda(samples.clone(), None, None);
            assert!(whole.is_resident());
            // The first is nearly the smallest: chunks of 512 samples.
            for limit in [512 * 7 * 8 * 2, 300_000, 1_300_000] {
                let mut chunked = cuda(samples.clone(), None, Some(limit));
                assert!(!chunked.is_resident());
                let what = format!("{}, {t}, limit {limit}", backend.name);
                let tolerance = backend.tolerance(1e-12, 1e-6);
                let batch = |e: &mut CudaEvaluator<'_>| e.log_likelihood_batch(&[m.clone(), m.clone()]).unwrap();
                assert_all_close(&what, batch(&mut chunked), batch(&mut whole), tolerance, 1.0);
                let (a, b) = (chunked.log_likelihood(&m).unwrap(), whole.log_likelihood(&m).unwrap());
                assert_close(&what, a, b, tolerance, 1.0);
                assert_eq!(a.to_bits(), chunked.log_likelihood(&m).unwrap().to_bits(), "{what}");
                // In float32 chunks of another size may get another kernel: some roundings of 6·10⁻⁸ apart.
                let score = backend.tolerance(0.0, 3e-6);
                for (a, b) in chunked.score_samples(&m).unwrap().iter().zip(&whole.score_samples(&m).unwrap()) {
                    assert!((a - b).abs() <= score * b.abs().max(1.0), "{what}: {a} and {b}");
                }
                assert_eq!(chunked.predict(&m).unwrap(), whole.predict(&m).unwrap(), "{what}");
                assert_eq!(chunked.predict_proba(&m).unwrap(), whole.predict_proba(&m).unwrap(), "{what}");
                let rows: Vec<usize> = (0..n).rev().step_by(17).chain([0, 511, 512, n - 1]).collect();
                let (a, b) = (chunked.rows(&rows).unwrap(), whole.rows(&rows).unwrap());
                assert_eq!((a.x, &a.weights), (b.x, &b.weights), "{what}");
                assert!(rows.iter().zip(&a.weights).all(|(row, weight)| w[*row] == *weight), "{what}");
                let (a, b) = (chunked.statistics(&m).unwrap(), whole.statistics(&m).unwrap());
                estep::assert_statistics_agree(&what, &a, &b, backend.tolerance(1e-12, 1e-5));
            }
        }
    }
}

/// Samples 10⁶ standard deviations away, and near ones beside them, are right to a few tens of roundings, relative.
fn far_samples_are_finite() {
    let mut x = normal(46, 3001, 5, 0.0);
    for row in [0, 9, 20, 21, 3000] {
        x.row_mut(row).fill(if row % 2 == 0 { 1e6 } else { -1e6 });
    }
    for t in CovarianceType::ALL {
        let m = mixture(47, t, 6, 5, 0.0);
        for backend in CUDA_BACKENDS {
            let truth = reference(backend.seen(&x).view()).score_samples(&m).unwrap();
            let got = backend.evaluator(x.view(), None).score_samples(&m).unwrap();
            for (i, (got, v)) in got.iter().zip(&truth).enumerate() {
                let bound = backend.tolerance(1e-13, 4e-6) * v.abs().max(1.0);
                assert!(got.is_finite() && (got - v).abs() <= bound, "{}, {t}, {i}: {got} for {v}", backend.name);
            }
        }
    }
}

fn errors_leave_it_usable() {
    let x = normal(48, 100, 3, 0.0);
    for backend in CUDA_BACKENDS {
        let mut e = backend.evaluator(x.view(), None);
        let good = mixture(49, CovarianceType::Full, 2, 3, 0.0);
        let total = e.log_likelihood(&good).unwrap();
        let wrong = mixture(50, CovarianceType::Full, 2, 4, 0.0);
        assert!(matches!(e.log_likelihood(&wrong), Err(Error::ShapeMismatch { .. })));
        assert!(matches!(e.predict(&wrong), Err(Error::ShapeMismatch { .. })));
        assert!(matches!(e.rows(&[100]), Err(Error::NoSuchRow { .. })));
        let far = Array2::from_elem((1, 3), 1e200);
        let far = gmm_host::Mixture::new(Array1::ones(1), far, Covariances::Spherical(Array1::ones(1))).unwrap();
        assert!(matches!(e.statistics(&far), Err(Error::UnreachableSample { row: 0 })));
        assert_eq!(e.log_likelihood(&good).unwrap().to_bits(), total.to_bits());
        assert!(e.rows(&[]).unwrap().x.is_empty());
    }
}

/// 10⁻⁴ in float32 and 10⁻⁸ in float64, as on the CPU: iris, digits, speech.
fn fits_agree_with_scikit_learn() {
    for data in ["iris", "digits", "speech"] {
        for t in CovarianceType::ALL {
            for backend in CUDA_BACKENDS {
                println!("{data}, {t}, {}", backend.name);
                agreement::check(data, t, backend);
            }
        }
    }
}

/// Twenty iterations from one start, float64, weighted: 10⁻¹⁰, relative to the largest entry of each array.
fn fits_agree_with_the_cpu() {
    let x = blobs(51, 20_000, 5);
    let w = weights(20_000);
    for t in CovarianceType::ALL {
        let start = mixture(52, t, 4, 5, 4.0);
        let fit = |device| {
            let samples = Samples::from_f64(x.view()).unwrap().with_weights(w.view()).unwrap();
            let params = GaussianMixtureParams::default().n_components(4).covariance_type(t).tol(0.0).max_iter(20);
            let params = params.weights_init(start.weights().to_owned()).means_init(start.means().to_owned());
            params.check().unwrap().fit(load(device, samples, &Default::default()).unwrap().as_mut()).unwrap()
        };
        let (cuda, cpu) = (fit(Device::Cuda(0)), fit(Device::Cpu));
        assert_fits_close(&t.to_string(), &cuda, &cpu, 1e-10);
    }
}

/// By the clock, at the talk's size. A start may take a millisecond if ten iterations take about half of one.
fn a_start_costs_less_than_ten_iterations() {
    let (n, d, k) = (1_000_000, 13, 8);
    let x = blobs(53, n, d).mapv(|v| v as f32);
    let mut e = load(Device::Cuda(0), Samples::from_f32(x.view()).unwrap(), &Default::default()).unwrap();
    for t in [CovarianceType::Diag, CovarianceType::Full] {
        for init in InitParams::ALL {
            let mut seconds = |iterations: usize| {
                let params = GaussianMixtureParams::default().n_components(k).covariance_type(t).tol(0.0);
                let model = params.init_params(init).max_iter(iterations).check().unwrap();
                let mut times: Vec<f64> = (0..9)
                    .map(|_| {
                        let start = Instant::now();
                        model.fit(e.as_mut()).unwrap();
                        start.elapsed().as_secs_f64()
                    })
                    .collect();
                times.sort_by(f64::total_cmp);
                times[times.len() / 2]
            };
            let (start, whole) = (seconds(0), seconds(10));
            println!("{t} {init}: start {:.0} µs, ten iterations {:.0} µs", start * 1e6, (whole - start) * 1e6);
            assert!(start < 1e-3 || start < whole - start, "{t} {init}");
        }
    }
}
