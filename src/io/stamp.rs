//! Whether a file is still the one that was opened.
use super::Problem;
use std::fs::{File, Metadata};
use std::time::SystemTime;

/// Size of a file and time of its last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    size: u64,
    /// Not every system tells.
    changed: Option<SystemTime>,
}

impl Stamp {
    /// `None` for a pipe and the like, which have neither.
    pub fn of(metadata: &Metadata) -> Option<Self> {
        metadata.is_file().then(|| Self { size: metadata.len(), changed: metadata.modified().ok() })
    }

    /// [`Problem::Changed`] if the file has another size or time by now. A file that takes the name of the open one
    /// does not matter: the open one is read to its end.
    pub fn check(self, file: &File) -> Result<(), Problem> {
        let metadata = file.metadata().map_err(Problem::io("read it"))?;
        if Self::of(&metadata) == Some(self) { Ok(()) } else { Err(Problem::Changed) }
    }
}
