//! Chores of the gmm workspace; run them as `cargo xtask <chore>`.
mod devices;
mod ptx;
mod rust_cuda;

use std::path::{Path, PathBuf};
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
    /// Compile the kernels and write gmm-kernels/ptx
    Ptx {
        /// Write nothing; fail if the committed PTX is not what the source gives, if a barrier was
        /// duplicated, or if ptxas refuses a kernel or finds a stack or spills in a fast one
        #[arg(long)]
        check: bool,
        /// Compile nothing; print the committed PTX of this kernel
        #[arg(long, value_name = "KERNEL", conflicts_with = "check")]
        show: Option<String>,
        /// Compile nothing; print all texts of an archive, for `git diff`
        #[arg(long, value_name = "FILE", conflicts_with_all = ["check", "show"])]
        texts: Option<PathBuf>,
    },
    /// Assemble the committed PTX for common GPUs and write gmm-machine-code/cards, for a release; needs
    /// ptxas
    MachineCode,
    /// Time whole commands of a built `gmm` on each device, from few samples to many
    Devices(devices::Options),
    /// Check on the host the code that the feature `rust-cuda` compiles
    RustCuda {
        /// Type-check and lint; without rust-cuda's compiler nothing else is possible
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
        Chore::Ptx { show: Some(kernel), .. } => ptx::show(root, &kernel),
        Chore::Ptx { texts: Some(file), .. } => ptx::show_all(&file),
        Chore::Ptx { check: true, .. } => ptx::check(root),
        Chore::Ptx { .. } => ptx::write(root),
        Chore::MachineCode => ptx::machine_code::write(root),
        Chore::RustCuda { .. } => rust_cuda::check(root),
    }
}
