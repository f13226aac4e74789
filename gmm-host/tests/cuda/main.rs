//! The CUDA backend on a real device. A test's name begins with its module's: the argument `shapes::` runs one module.
#[path = "../common/mod.rs"]
mod common;
#[path = "../gpu_harness/mod.rs"]
mod gpu_harness;

mod arrays;
mod evaluator;
mod fit_many;
mod markov;
mod metropolis;
mod missing;
mod missing_patterns;
mod noise;
mod precision;
mod several;
mod shapes;
mod short;
mod variational;

use gpu_harness::{suite, timed};
use std::process::ExitCode;

fn main() -> ExitCode {
    gpu_harness::run([
        suite("short", short::tests()),
        suite("evaluator", evaluator::tests()),
        timed("evaluator", evaluator::TIMED),
        suite("shapes", shapes::tests()),
        timed("shapes", shapes::TIMED),
        suite("arrays", arrays::tests()),
        suite("fit_many", fit_many::tests()),
        suite("markov", markov::tests()),
        suite("metropolis", metropolis::tests()),
        suite("missing", missing::tests()),
        suite("missing_patterns", missing_patterns::tests()),
        suite("noise", noise::tests()),
        suite("precision", precision::tests()),
        suite("several", several::tests()),
        suite("variational", variational::tests()),
    ])
}
