//! The program `gmm` as a function, for its executable and for the Python package, which has the same command.
//!
//! `commands` has a file or folder for each command. The commands share `input`, which brings data from files to a
//! device, `plot`, which draws, and `terminal`, which talks to the user.
mod commands;
mod exit_code;
mod input;
mod plot;
mod terminal;

pub use commands::mpi::arguments as mpi_arguments;
pub use plot::plane::Plane;

/// The tools with which `gmm bench` measures and prints, for the crate `gmm-bench`.
pub mod bench {
    pub use crate::commands::bench::{
        LIKELIHOOD, Missing, MixtureOptions, Named, OutputOptions, Problem, Rates, Row, Task, Workload, ascending,
        mixtures, numbers, print_rows, report, seconds,
    };
    pub use crate::commands::timing::time;
    pub use crate::input::tuning_file;
    pub use crate::terminal::{ProgressLine, text};
}

use crate::commands::Cli;
use crate::exit_code::{FAILURE, SUCCESS};
use crate::terminal::{interrupt, text};
use clap::Parser;
use std::ffi::OsString;
use std::io::{self, Write};

/// Runs the program with its arguments, the first of which is its name, and returns its exit code: 0 after success, 1
/// after a failure, 2 for wrong options, 130 after Ctrl-C, SIGTERM or SIGHUP.
///
/// Call it once in a process: it installs handlers of these signals, which may end the process, and of panics.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(message) => return show(&message),
    };
    #[cfg(feature = "rust-cuda")]
    if let Err(error) = gaussmix::use_rust_cuda_kernels() {
        eprintln!("error: the kernels that rust-cuda compiled cannot be used: {error}");
        return FAILURE;
    }
    // A damaged file may make a library panic; the panic is caught and becomes an error.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !gaussmix::program::panics_are_caught() {
            report(panic);
        }
    }));
    match interrupt::handle_signals().and_then(|()| cli.run()) {
        Ok(code) => code,
        // The reader of the output has closed the pipe (`gmm … | head`): not a failure of this program.
        Err(error) if error.chain().any(is_broken_pipe) => SUCCESS,
        Err(error) => {
            report_failure(&format!("{error:#}"));
            FAILURE
        }
    }
}

/// Shows the message of the option parser: an error, or the text of --help or --version. Returns the exit code.
fn show(message: &clap::Error) -> u8 {
    let plain = message.to_string();
    let short = text::message(&plain);
    let shown = if short == plain {
        message.print()
    } else if message.use_stderr() {
        io::stderr().write_all(short.as_bytes())
    } else {
        io::stdout().write_all(short.as_bytes())
    };
    // Without the flush, a part may be written only at the end of the process, where a failure goes unseen.
    match shown.and_then(|()| io::stdout().flush()) {
        Err(error) if !message.use_stderr() && error.kind() != io::ErrorKind::BrokenPipe => {
            report_failure(&format!("cannot write to standard output: {error}"));
            FAILURE
        }
        // If stderr cannot be written, the exit code alone reports the failure.
        _ => message.exit_code().try_into().unwrap_or(FAILURE),
    }
}

fn report_failure(message: &str) {
    // If stderr cannot be written, the exit code alone reports the failure.
    let _ = writeln!(io::stderr(), "error: {}", text::message(message));
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
