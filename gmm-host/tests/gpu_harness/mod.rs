//! Runs tests that need a GPU. Without one they are ignored, never passed; with `GMM_REQUIRE_CUDA=1` they fail.
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;
use std::sync::LazyLock;

/// A test's name and body; the body panics to fail.
#[allow(dead_code)]
pub type Test = (&'static str, fn());

/// The reason that no GPU can be used, if none can.
static ABSENT: LazyLock<Option<String>> =
    LazyLock::new(|| gmm_host::cuda_devices().err().map(|error| error.to_string()));

fn required() -> bool {
    std::env::var_os("GMM_REQUIRE_CUDA").is_some_and(|value| value == "1")
}

fn trial<F: FnOnce() + Send + 'static>(suite: &str, (name, body): (&str, F), ignored: bool) -> Trial {
    let ignored = ignored || ABSENT.is_some() && !required();
    let run = move || match &*ABSENT {
        Some(reason) => Err(Failed::from(reason)),
        None => {
            body();
            Ok(())
        }
    };
    Trial::test(format!("{suite}::{name}"), run).with_ignored_flag(ignored)
}

/// Returns the tests of a suite, whose names begin with the suite's name.
pub fn suite<F: FnOnce() + Send + 'static>(
    name: &str,
    tests: impl IntoIterator<Item = (&'static str, F)>,
) -> Vec<Trial> {
    tests.into_iter().map(|test| trial(name, test, false)).collect()
}

/// Returns tests by the clock, for an idle machine: ignored without `--ignored` or `--include-ignored`.
#[allow(dead_code)]
pub fn timed<F: FnOnce() + Send + 'static>(
    suite: &str,
    tests: impl IntoIterator<Item = (&'static str, F)>,
) -> Vec<Trial> {
    tests.into_iter().map(|test| trial(suite, test, true)).collect()
}

/// Tests at a time: each mostly waits for the float64 reference on one core. More would exceed the device's memory.
const AT_A_TIME: usize = 8;

/// Runs the tests with the arguments and the report of `cargo test`, tests by the clock one at a time.
pub fn run(suites: impl IntoIterator<Item = Vec<Trial>>) -> ExitCode {
    kernels_of_another_compiler();
    let mut arguments = Arguments::from_args();
    let by_the_clock = arguments.ignored || arguments.include_ignored;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads.get_or_insert(if by_the_clock { 1 } else { cores.min(AT_A_TIME) });
    if let Some(reason) = &*ABSENT {
        eprintln!("{reason}\ntests that need a GPU {} here", if required() { "fail" } else { "are ignored" });
    }
    libtest_mimic::run(&arguments, suites.into_iter().flatten().collect()).exit_code()
}

/// Returns whether the device multiplies by warpgroups.
#[allow(dead_code)]
pub fn warpgroups() -> bool {
    let of_device = gmm_host::cuda_devices().unwrap()[0].compute_capability == (9, 0);
    of_device && std::env::var_os("GMM_TEST_CAPABILITY").is_none_or(|chosen| chosen == "9.0")
}

/// Replaces the committed PTX by the archive that `GMM_TEST_KERNELS` names: docs/rust-cuda.md.
fn kernels_of_another_compiler() {
    if let Some(file) = std::env::var_os("GMM_TEST_KERNELS") {
        let archive = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        gmm_kernels::ptx::replace(archive.leak()).unwrap();
    }
}
