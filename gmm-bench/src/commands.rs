use crate::{median, normal};
use anyhow::{Context, ensure};
use clap::Args;
use gaussmix::io;
use gaussmix::model::CovarianceType;
use gaussmix_cli::bench::{mixtures, text};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Time commands of a program from the start of the process to its end
///
/// Over 20,000 samples of 13 features, with 8 components and diagonal covariances, on the CPU.
#[derive(Debug, Args)]
pub struct Commands {
    /// The program `gmm`
    program: PathBuf,
}

impl Commands {
    pub fn run(self) -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let program = self.program.canonicalize().with_context(|| self.program.display().to_string())?;
        let x = normal(20_000, 13)?;
        io::Output::create(folder.path().join("x.npy"))?.write(|file| io::write_npy(&x, file))?;
        let model = &mixtures(1, [8, 13], CovarianceType::Diag)?[0];
        io::ModelOutput::create(folder.path().join("m.json"))?.write(model)?;
        let mut rows = Vec::new();
        for arguments in ["fit x.npy --init m.json --max-iter 10 --tol 0 -o f.json", "score m.json x.npy"] {
            let seconds = median(|_| {
                let mut command = Command::new(&program);
                command.args(arguments.split(' ')).args(["--device", "cpu"]).current_dir(folder.path());
                let status = command.stdout(Stdio::null()).status()?;
                ensure!(status.success(), "gmm {arguments}: {status}");
                Ok(())
            })?;
            rows.push(vec![format!("gmm {arguments}"), text::seconds(seconds)]);
        }
        text::print(text::table(&["command", "time"], rows, 1))
    }
}
