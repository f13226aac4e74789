//! `gmm man`: writes the manual as man pages.
use crate::terminal::text;
use anyhow::Context;
use clap::{Args, Command};
use std::fs;
use std::path::PathBuf;

/// Write a man page for the program and for each command
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm man -o ~/.local/share/man/man1
  gmm man -o . && man ./gmm-fit.1")]
pub struct Man {
    /// The folder for gmm.1, gmm-fit.1 and so on, created if necessary
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
}

impl Man {
    pub fn run(self, program: Command) -> anyhow::Result<()> {
        let place = || format!("{}: the man pages cannot be written", self.output.display());
        fs::create_dir_all(&self.output).with_context(place)?;
        clap_mangen::generate_to(program.disable_help_subcommand(true), &self.output).with_context(place)?;
        text::print(format_args!("man pages written to {}", self.output.display()))
    }
}
