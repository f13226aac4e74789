//! Samples that need more digits, on the CPU, and fits of real float32 data; ignored without the data.
use crate::common::{agreement, far, precision};
use gmm_host::{CovarianceType, CpuEvaluator, GaussianMixtureParams};
use libtest_mimic::Trial;
use ndarray::Array2;

const LOAD: precision::Load = |samples| Box::new(CpuEvaluator::new(samples).unwrap());

pub fn trials() -> Vec<Trial> {
    let of = |module: &'static str, tests: &'static [precision::Test]| {
        tests.iter().map(move |(name, test)| {
            Trial::test(format!("{module}::{name}"), move || {
                test(LOAD);
                Ok(())
            })
        })
    };
    let ours = of("precision", precision::TESTS).chain(of("far", far::TESTS));
    let real: [(&str, &str, fn()); 2] = [
        ("wide_data_converges_as_in_float64", "wide500.npy", wide_data),
        ("digits_converge_as_in_float64", "digits.npy", digits),
    ];
    let real = real.into_iter().map(|(name, file, test)| {
        let missing = agreement::real(file).err();
        let run = move || {
            test();
            Ok(())
        };
        Trial::test(format!("precision::{name}"), run).with_ignored_flag(missing.is_some())
    });
    ours.chain(real).collect()
}

fn read(file: &str) -> Array2<f32> {
    ndarray_npy::read_npy(agreement::real(file).unwrap()).unwrap()
}

/// Each component has fewer samples than columns, so only `reg_covar` makes the covariances positive definite.
fn wide_data() {
    let params = GaussianMixtureParams::default().n_components(8).covariance_type(CovarianceType::Full);
    precision::assert_as_float64(LOAD, &read("wide500.npy"), &params, "wide500, full, K=8");
}

fn digits() {
    let x = read("digits.npy");
    for seed in 0..4 {
        let params =
            GaussianMixtureParams::default().n_components(20).covariance_type(CovarianceType::Full).random_state(seed);
        precision::assert_as_float64(LOAD, &x, &params, &format!("digits, full, K=20, seed {seed}"));
    }
}
