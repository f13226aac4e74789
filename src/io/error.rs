//! Errors of reading and writing files.
use std::path::{Path, PathBuf};

/// The result of every fallible call of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// A file and its problem.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: Problem,
}

/// A problem of a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The operating system refused an action.
    #[error("cannot {action}: {error}")]
    Io {
        /// The action, such as "open it".
        action: &'static str,
        /// The system's reason.
        error: std::io::Error,
    },
    /// The file violates its format. The text says where, and what to do.
    #[error("{0}")]
    Format(String),
    /// The size of the file or the time of its last change differs from that at opening.
    #[error("the file changed while it was read; run again when nothing writes to it")]
    Changed,
    /// The file has the right format, but its values cannot be used.
    #[error(transparent)]
    Content(Box<gmm_host::Error>),
}

impl From<gmm_host::Error> for Problem {
    fn from(error: gmm_host::Error) -> Self {
        Self::Content(Box::new(error))
    }
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
