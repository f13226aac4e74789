//! Detects changes of a file during reading.
use crate::io::Problem;
use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::time::SystemTime;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStamp {
    size: u64,
    /// `None` on a system that does not record it.
    modified: Option<SystemTime>,
}

impl FileStamp {
    /// Opens a regular file, any part of which can be read.
    pub fn open(path: &Path) -> Result<(File, Self), Problem> {
        let file = File::open(path).map_err(Problem::io("open it"))?;
        let metadata = file.metadata().map_err(Problem::io("open it"))?;
        if metadata.is_dir() {
            return Err(Problem::io("read it")(io::ErrorKind::IsADirectory.into()));
        }
        let stamp = Self::of(&metadata).ok_or_else(|| Problem::format("it must be a regular file"))?;
        Ok((file, stamp))
    }

    pub fn size(self) -> u64 {
        self.size
    }

    /// Returns `None` for a pipe or a device, which have no fixed size.
    pub fn of(metadata: &Metadata) -> Option<Self> {
        metadata.is_file().then(|| Self { size: metadata.len(), modified: metadata.modified().ok() })
    }

    /// Returns [`Problem::Changed`] if the open file has a different size or time of change now. Another file that
    /// takes its name does no harm: the open file is read to its end.
    pub fn check(self, file: &File) -> Result<(), Problem> {
        let metadata = file.metadata().map_err(Problem::io("read it"))?;
        if Self::of(&metadata) == Some(self) { Ok(()) } else { Err(Problem::Changed) }
    }
}
