//! The program `gmm`.
use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(gaussmix_cli::run(std::env::args_os()))
}
