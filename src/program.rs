//! The program `gmm` as a function, for its executable and for the package of Python, which brings the same command.
//!
//! `commands` has a file or folder for each command. The commands share `input`, which brings data from files to
//! a device, `plot`, which draws, and `terminal`, which talks to the user.
use crate::commands::Cli;
use crate::terminal::{interrupt, text};
use clap::Parser;
use std::ffi::OsString;
use std::io;

/// Runs the program with its arguments, of which the first is its name, and gives its exit code: 0 after success, 1 after a
/// failure, 2 for wrong options, 130 after Ctrl-C, SIGTERM or SIGHUP.
///
/// To be called once in a process, because it installs handlers of these signals, which may end the process, and of panics.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        // Also what --help and --version print. Where stderr cannot be written to, the exit code alone tells of the failure.
        Err(message) => {
            let _ = message.print();
            return message.exit_code().try_into().unwrap_or(FAILURE);
        }
    };
    #[cfg(feature = "rust-cuda")]
    if let Err(error) = crate::use_rust_cuda_kernels() {
        eprintln!("error: the kernels that rust-cuda compiled cannot be used: {error}");
        return FAILURE;
    }
    // A damaged file may make a library panic, which is caught and becomes an error.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !gaussmix::io::panics_are_caught() {
            report(panic);
        }
    }));
    match interrupt::handle_signals().and_then(|()| cli.run()) {
        Ok(code) => code,
        // Whoever read the output has closed the pipe (`gmm … | head`), which is no failure of this program.
        Err(error) if error.chain().any(is_broken_pipe) => SUCCESS,
        Err(error) => {
            let message = text::escape_control_characters(&format!("{error:#}")).into_owned();
            // Where stderr cannot be written to, the exit code alone tells of the failure.
            let _ = io::Write::write_fmt(&mut io::stderr(), format_args!("error: {message}\n"));
            FAILURE
        }
    }
}

/// The exit code of a command that did what it was asked for.
pub(crate) const SUCCESS: u8 = 0;
/// The exit code of a command that failed.
const FAILURE: u8 = 1;

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
