//! From the kernels' source to the committed PTX.
//!
//! The kernels become one module of PTX (`compile`), which is split by entry (`split`), so that the driver compiles
//! only what a program launches. What is written is a function of the source and the compiler alone: no path, no hash
//! and no numbering of the module as a whole gets into it.
mod assemble;
mod compile;
mod files;
mod split;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use compile::{Warnings, compile};
pub use compile::{cargo, run};

/// One entry's file.
pub struct Entry {
    /// Name of the kernel.
    pub name: String,
    /// The PTX module that holds this kernel alone.
    pub text: String,
}

fn folder(root: &Path) -> PathBuf {
    root.join("gmm-kernels/ptx")
}

/// Compiles the kernels, and makes the folder of PTX hold what the source gives.
pub fn write(root: &Path) -> Result<()> {
    let entries = split::split(&compile(root, Warnings::Show)?)?;
    let changes = files::write(&folder(root), &files::expected(&entries))?;
    println!("{} kernels, {} files changed in {}", entries.len(), changes, folder(root).display());
    Ok(())
}

/// Compiles the kernels, and fails unless the committed PTX is what the source gives and in order.
pub fn check(root: &Path) -> Result<()> {
    let entries = split::split(&compile(root, Warnings::Deny)?)?;
    let mut problems = files::differences(&folder(root), &files::expected(&entries))?;
    if !problems.is_empty() {
        problems.push("run `cargo xtask ptx` and commit what it writes".into());
    }
    problems.extend(entries.iter().flat_map(split::barrier_problems));
    let reports = assemble::assemble_all(root, &entries)?;
    print!("{}", assemble::table(&reports));
    problems.extend(reports.iter().flat_map(assemble::Report::problems));
    if !problems.is_empty() {
        bail!("the PTX is not in order:\n  {}", problems.join("\n  "));
    }
    println!("{} kernels: the committed PTX is what the source gives, and in order", entries.len());
    Ok(())
}
