//! What can be wrong with a file.
use std::path::{Path, PathBuf};

/// The result of every fallible call of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// A file, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The operating system refused.
    #[error("cannot {action}: {error}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The system's reason.
        error: std::io::Error,
    },
    /// The file is not in the form it has to have; says where and what to do.
    #[error("{0}")]
    Format(String),
    /// The size or the time of the last change of the file is another than when it was opened.
    #[error("the file changed while it was read; run again when nothing writes to it any more")]
    Changed,
    /// The content is well-formed and not usable.
    #[error(transparent)]
    Content(#[from] gmm_host::Error),
}

impl Problem {
    pub(crate) fn io(action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Io { action, error }
    }

    pub(crate) fn format(what: impl Into<String>) -> Self {
        Self::Format(what.into())
    }

    pub(crate) fn at(self, path: &Path) -> Error {
        Error { path: path.into(), problem: self }
    }
}
