//! Fits of real data against scikit-learn's, and float32 samples that need more digits.
#[path = "../common/mod.rs"]
mod common;

mod agreement;
mod precision;

use std::process::ExitCode;

fn main() -> ExitCode {
    let trials = agreement::trials().into_iter().chain(precision::trials()).collect();
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials).exit_code()
}
