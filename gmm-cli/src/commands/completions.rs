//! `gmm completions`: shell scripts that complete commands and options.
use clap::{Args, Command};
use clap_complete::Shell;
use std::io::{self, Write};

/// Print a shell script that completes commands and options
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  source <(gmm completions bash)                                        in ~/.bashrc
  gmm completions zsh > ~/.zfunc/_gmm                                   a folder of $fpath
  gmm completions fish > ~/.config/fish/completions/gmm.fish")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub fn run(self, mut program: Command) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, "gmm", &mut script);
        Ok(io::stdout().write_all(&script).and_then(|()| io::stdout().flush())?)
    }
}
