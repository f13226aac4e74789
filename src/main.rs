//! Command line of gmm.
mod commands;

use clap::Parser;
use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    // A wrong use ends here, with exit code 2.
    let cli = commands::Cli::parse();
    #[cfg(feature = "rust-cuda")]
    if let Err(error) = gmm::use_rust_cuda_kernels() {
        eprintln!("error: the kernels that rust-cuda compiled cannot be used: {error}");
        return ExitCode::FAILURE;
    }
    match commands::interrupt::handle_signals().and_then(|()| cli.run()) {
        Ok(code) => code,
        // The reader of the output has gone (`| head`): nobody to tell.
        Err(error) if error.chain().any(is_broken_pipe) => ExitCode::SUCCESS,
        Err(error) => {
            // Without a usable stderr there is nobody to tell either.
            let _ = io::Write::write_fmt(&mut io::stderr(), format_args!("error: {}\n", commands::harmless(&error)));
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
