//! The program `gmm`: the command line of the crate `gaussmix`.
use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(gaussmix::program::run(std::env::args_os()))
}
