//! Runs tests that need a GPU: where there is none they are reported as ignored, never as passed; with
//! `GMM_REQUIRE_CUDA=1`, as on the GPU machine, they fail instead.
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;

/// A test's name and body; the body panics to fail.
#[allow(dead_code)]
pub type Test = (&'static str, fn());

/// Runs the tests one at a time, because they share a device, with the arguments and the report of `cargo test`.
#[allow(dead_code)]
pub fn main_with(tests: Vec<Test>) -> ExitCode {
    run(tests, [])
}

/// As [`main_with`], for bodies of any one type. `timed` are tests by the clock: they are ignored unless `--ignored` or
/// `--include-ignored` asks for them, on a machine that does nothing else.
pub fn run<F: FnOnce() + Send + 'static>(
    tests: impl IntoIterator<Item = (&'static str, F)>,
    timed: impl IntoIterator<Item = (&'static str, F)>,
) -> ExitCode {
    kernels_of_another_compiler();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    let required = std::env::var_os("GMM_REQUIRE_CUDA").is_some_and(|value| value == "1");
    let absent = gmm_host::cuda_devices().err().map(|error| error.to_string());
    if let Some(reason) = &absent {
        eprintln!("{reason}\ntests that need a GPU {} here", if required { "fail" } else { "are ignored" });
    }
    let trial = |(name, body): (&'static str, F), timed: bool| {
        let absent = absent.clone();
        let ignored = timed || absent.is_some() && !required;
        let run = move || match absent {
            Some(reason) => Err(Failed::from(reason)),
            None => {
                body();
                Ok(())
            }
        };
        Trial::test(name, run).with_ignored_flag(ignored)
    };
    let tests = tests.into_iter().map(|test| trial(test, false));
    let trials = tests.chain(timed.into_iter().map(|test| trial(test, true))).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Whether the device has the products of warpgroups.
#[allow(dead_code)]
pub fn warpgroups() -> bool {
    gmm_host::cuda_devices().unwrap()[0].compute_capability == (9, 0)
}

/// `GMM_TEST_KERNELS` names an archive of PTX that is tested instead of the committed one: docs/rust-cuda.md.
fn kernels_of_another_compiler() {
    if let Some(file) = std::env::var_os("GMM_TEST_KERNELS") {
        let archive = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        gmm_kernels::ptx::replace(archive.leak()).unwrap();
    }
}
