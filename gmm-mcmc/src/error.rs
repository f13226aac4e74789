//! Errors. Each message says where the problem is and what to do.
use std::path::{Path, PathBuf};

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate. Indices count from 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The likelihood engine failed.
    #[error(transparent)]
    Host(#[from] gmm_host::Error),
    /// A parameter of the prior is not usable.
    #[error("prior, {what}: {problem}")]
    Prior {
        /// The parameter, for example `scale of the means, column 3`.
        what: String,
        /// The problem and its remedy.
        problem: String,
    },
    /// The prior is not the JSON that [`crate::Prior`] reads.
    #[error("the prior is not valid: {0}")]
    PriorSyntax(serde_json::Error),
    /// A sampler setting is not usable.
    #[error("{what} is {value}: {remedy}")]
    Setting {
        /// The setting.
        what: &'static str,
        /// Its value.
        value: String,
        /// What to do.
        remedy: String,
    },
    /// More components than samples.
    #[error("{k} components over {n} samples: a mixture needs at least one sample per component; lower K")]
    TooManyComponents {
        /// K.
        k: usize,
        /// N.
        n: usize,
    },
    /// The initial model does not fit, or has no posterior density.
    #[error("the initial model {0}")]
    Start(String),
    /// A saved run does not match the target or the files of its resumption.
    #[error("cannot resume from {path}: {problem}")]
    Resume {
        /// The file.
        path: PathBuf,
        /// The difference and its remedy.
        problem: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        error: std::io::Error,
    },
    /// An unfinished run is stored where a new run would write its files.
    #[error("{path} holds an unfinished run; continue it (--resume), replace it (--overwrite), or take another prefix")]
    Unfinished {
        /// The file of the unfinished run.
        path: PathBuf,
    },
    /// The results of a finished run are stored where a new run would write its files.
    #[error(
        "{} would be replaced; make that run longer (--resume with more --draws), replace it (--overwrite), or take another prefix",
        paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    Exists {
        /// The files of the finished run.
        paths: Vec<PathBuf>,
    },
    /// The NUTS sampler could not continue.
    #[error("NUTS, chain {chain}: {problem}")]
    Nuts {
        /// The chain.
        chain: usize,
        /// The report of `nuts-rs`.
        problem: String,
    },
}

pub(crate) fn setting<T>(what: &'static str, value: impl ToString, remedy: impl Into<String>) -> Result<T> {
    Err(Error::Setting { what, value: value.to_string(), remedy: remedy.into() })
}

/// Turns an error of the operating system into an [`Error::Io`] about this file.
pub(crate) fn io_error(path: &Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
    |error| Error::Io { path: path.into(), error }
}
