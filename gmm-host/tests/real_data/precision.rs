//! Samples that need more digits, on the CPU; and a fit of real float32 data.
use crate::common::{agreement, far, precision};
use gmm_host::{CovarianceType, CpuEvaluator, GaussianMixtureParams};
use libtest_mimic::Trial;

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
    let digits = Trial::test("precision::digits_converge_as_in_float64", || {
        digits();
        Ok(())
    });
    ours.chain([digits]).collect()
}

fn digits() {
    let x = agreement::samples("digits").mapv(|v| v as f32);
    for seed in 0..4 {
        let params =
            GaussianMixtureParams::default().n_components(20).covariance_type(CovarianceType::Full).random_state(seed);
        precision::assert_as_float64(LOAD, &x, &params, &format!("digits, full, K=20, seed {seed}"));
    }
}
