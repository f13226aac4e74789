//! Many fits in one launch, against those of the CPU.
use crate::common::assert_all_close;
use crate::gpu_harness::Test;
use gmm_host::{CovarianceType, Device, Error, Fit, GaussianMixtureParams, Order, Result, Samples, Watch};
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::sync::Mutex;

pub fn tests() -> Vec<Test> {
    vec![
        ("many_fits_are_those_of_the_cpu", many_fits_are_those_of_the_cpu),
        ("what_a_block_cannot_fit_is_fitted_otherwise", what_a_block_cannot_fit_is_fitted_otherwise),
    ]
}

/// Returns clusters so far apart that there is one optimum.
fn clusters(seed: u64, n: usize, d: usize, k: usize) -> Array2<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Array2::from_shape_fn((n, d), |(i, j)| {
        20.0 * (i % k) as f64 + (1.0 + 0.2 * j as f64) * rng.sample::<f64, _>(StandardNormal)
    })
}

/// Returns the numbers of a fit, its components sorted by their first mean.
fn sorted(fit: &Fit) -> Vec<f64> {
    let mixture = fit.mixture.sorted(&Order::Mean(0)).unwrap();
    [fit.lower_bound()].iter().chain(&mixture.weights()).chain(&mixture.means()).copied().collect()
}

#[derive(Default)]
struct Ended(Mutex<Vec<usize>>);

impl Watch for Ended {
    fn ended(&self, set: usize, _: &Result<Fit>) {
        self.0.lock().unwrap().push(set);
    }
}

fn many_fits_are_those_of_the_cpu() {
    // Sizes for every block and every instance of D, and more fits than multiprocessors.
    let sizes =
        [(60, 2, 2), (500, 5, 3), (1500, 8, 4), (5000, 3, 2), (300, 10, 5), (400, 13, 3), (200, 16, 2), (90, 1, 1)];
    for (n, d, k) in sizes {
        let arrays: Vec<Array2<f64>> = (0..300).map(|seed| clusters(seed, n, d, k)).collect();
        let sets: Vec<Samples<'_>> = arrays.iter().map(|x| Samples::from_f64(x.view()).unwrap()).collect();
        for covariance_type in CovarianceType::ALL {
            let params = GaussianMixtureParams::new(k).covariance_type(covariance_type).tol(1e-10);
            let fit = |device, sets: &[Samples<'_>]| {
                let fits = params.clone().device(device).fit_many(sets, &()).unwrap();
                fits.into_iter().map(|fit| fit.unwrap()).collect::<Vec<_>>()
            };
            let (of_cpu, of_gpu) = (fit(Device::Cpu, &sets), fit(Device::Cuda(0), &sets));
            for (set, (cpu, gpu)) in of_cpu.iter().zip(&of_gpu).enumerate() {
                // Both converge when a change of the bound is 10⁻¹⁰; parameters then change by the root of that.
                let what = format!("{covariance_type} {n}x{d} K={k} set {set}");
                assert_all_close(&what, sorted(cpu), sorted(gpu), 1e-4, 1.0);
                assert!((cpu.lower_bound() - gpu.lower_bound()).abs() < 1e-8, "{what}: {cpu:?} {gpu:?}");
            }
            // The same bits every time, and alone.
            let again = fit(Device::Cuda(0), &sets[7..9]);
            for (a, b) in again.iter().zip(&of_gpu[7..9]) {
                assert!(a.mixture == b.mixture && a.lower_bounds == b.lower_bounds);
            }
        }
    }
}

fn what_a_block_cannot_fit_is_fitted_otherwise() {
    // Good sets, one of too few samples, one with a constant column, and one of float32 with weights.
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let good = clusters(1, 300, 3, 3);
    let few = clusters(2, 2, 3, 2);
    let mut constant = clusters(3, 200, 3, 3);
    constant.column_mut(1).fill(2.0);
    let single = good.mapv(|v| v as f32);
    let weights = ndarray::Array1::from_shape_simple_fn(300, || rng.random_range(0.0..2.0));
    let sets = [
        Samples::from_f64(good.view()).unwrap(),
        Samples::from_f64(few.view()).unwrap(),
        Samples::from_f64(constant.view()).unwrap(),
        Samples::from_f32(single.view()).unwrap().with_weights(weights.view()).unwrap(),
    ];
    let params = GaussianMixtureParams::new(3).reg_covar(0.0).n_init(3).tol(1e-9);
    let fit = |device| {
        let watch = Ended::default();
        let fits = params.clone().device(device).fit_many(&sets, &watch).unwrap();
        let mut ended = watch.0.into_inner().unwrap();
        ended.sort_unstable();
        // Each of the three runs.
        assert_eq!(ended, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
        fits
    };
    let (of_cpu, of_gpu) = (fit(Device::Cpu), fit(Device::Cuda(0)));
    assert!(matches!(of_gpu[1], Err(Error::TooFewSamples { .. })));
    assert_eq!(format!("{:?}", of_gpu[2].as_ref().err()), format!("{:?}", of_cpu[2].as_ref().err()));
    for set in [0, 3] {
        let (cpu, gpu) = (of_cpu[set].as_ref().unwrap(), of_gpu[set].as_ref().unwrap());
        assert!((cpu.lower_bound() - gpu.lower_bound()).abs() < 1e-7, "{} {}", cpu.lower_bound(), gpu.lower_bound());
    }
    // The best of three runs is not worse than the first.
    let one = params.clone().n_init(1).device(Device::Cuda(0)).fit_many(&sets[..1], &()).unwrap();
    assert!(one[0].as_ref().unwrap().lower_bound() <= of_gpu[0].as_ref().unwrap().lower_bound());
}
