//! Chores of the gmm workspace; run them as `cargo xtask <chore>`.
mod devices;
mod ptx;
mod rust_cuda;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Chores of the gmm workspace", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Compile the kernels and write gmm-kernels/ptx/
    Ptx {
        /// Write nothing; fail if the committed files are not what the source gives, if a barrier was duplicated,
        /// or if ptxas refuses a file or finds a stack or spills in a fast kernel
        #[arg(long)]
        check: bool,
    },
    /// Time whole commands of a built `gmm` on each device, from few samples to many
    Devices(devices::Options),
    /// Check what the feature `rust-cuda` compiles, on the host
    RustCuda {
        /// Type-check and lint; there is nothing else to do without rust-cuda's compiler
        #[arg(long, required = true)]
        check: bool,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Chore) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent folder")?;
    match chore {
        Chore::Devices(options) => devices::run(&options),
        Chore::Ptx { check: false } => ptx::write(root),
        Chore::Ptx { check: true } => ptx::check(root),
        Chore::RustCuda { .. } => rust_cuda::check(root),
    }
}
