//! The program `gmm`: the command line of the crate `gaussmix`.
//!
//! `commands` has a file or folder for each command. The commands share `input`, which brings data from files to
//! a device, `plot`, which draws, and `terminal`, which talks to the user.
mod commands;
mod input;
mod plot;
mod terminal;

use clap::Parser;
use std::io;
use std::process::ExitCode;
use terminal::{interrupt, text};

fn main() -> ExitCode {
    // Wrong options end the program here, with exit code 2.
    let cli = commands::Cli::parse();
    #[cfg(feature = "rust-cuda")]
    if let Err(error) = gaussmix::use_rust_cuda_kernels() {
        eprintln!("error: the kernels that rust-cuda compiled cannot be used: {error}");
        return ExitCode::FAILURE;
    }
    match interrupt::handle_signals().and_then(|()| cli.run()) {
        Ok(code) => code,
        // Whoever read the output has closed the pipe (`gmm … | head`), which is no failure of this program.
        Err(error) if error.chain().any(is_broken_pipe) => ExitCode::SUCCESS,
        Err(error) => {
            let message = text::escape_control_characters(&format!("{error:#}")).into_owned();
            // Where stderr cannot be written to, the exit code alone tells of the failure.
            let _ = io::Write::write_fmt(&mut io::stderr(), format_args!("error: {message}\n"));
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
