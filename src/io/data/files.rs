//! The files and formats that paths denote.
use super::stream::is_standard_input;
use crate::io::{Problem, Result, extension};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Npy,
    Text,
    Parquet,
    /// A file or a stream, recognised by its first bytes.
    ArrowIpc,
    ArrowStream,
    /// A stream, recognised by its first bytes.
    Any,
}

/// The endings of texts that may or may not be tables.
const TEXTS: [&str; 5] = ["txt", "data", "dat", "tab", "asc"];
/// The endings of data files, for errors.
const ENDINGS: &str = ".npy, .csv, .tsv, .tab, .txt, .data, .dat, .asc, .arrows (also with .gz, .bz2 or .zst), .parquet, .arrow or .feather";

impl Format {
    fn by_name(path: &Path) -> Option<Self> {
        let whole = extension(path);
        let compressed = matches!(whole.as_str(), "gz" | "bz2" | "zst");
        let inner = if compressed { extension(Path::new(path.file_stem()?)) } else { whole };
        match inner.as_str() {
            "npy" => Some(Self::Npy),
            "csv" | "tsv" => Some(Self::Text),
            ending if TEXTS.contains(&ending) => Some(Self::Text),
            "parquet" | "pq" if !compressed => Some(Self::Parquet),
            "arrow" | "feather" | "ipc" if !compressed => Some(Self::ArrowIpc),
            "arrows" => Some(Self::ArrowStream),
            _ => None,
        }
    }

    pub fn of(path: &Path) -> std::result::Result<Self, Problem> {
        let stream = is_standard_input(path) || path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir());
        match Self::by_name(path) {
            _ if is_standard_input(path) => Ok(Self::Any),
            Some(format) => Ok(format),
            None if stream => Ok(Self::Any),
            None => Err(path.metadata().err().map_or_else(
                || Problem::format(format!("the name of a data file must end in {ENDINGS}")),
                Problem::io("open it"),
            )),
        }
    }
}

/// Whether the path denotes a file, any part of which can be read at any time.
pub(super) fn is_regular(path: &Path) -> bool {
    !is_standard_input(path) && path.is_file()
}

/// Returns the files that paths denote; a folder denotes the data files in it and in its subfolders.
pub(super) fn expand<P: AsRef<Path>>(paths: &[P]) -> Result<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> = Vec::new();
    for path in paths.iter().map(AsRef::as_ref) {
        if is_standard_input(path) && all.iter().any(|other| is_standard_input(other)) {
            return Err(Problem::format("standard input can be read only once").at(path));
        }
        if !path.is_dir() {
            all.push(path.into());
            continue;
        }
        let before = all.len();
        add_folder(path, &mut all)?;
        if all.len() == before {
            return Err(Problem::format(format!("a folder without a file whose name ends in {ENDINGS}")).at(path));
        }
    }
    if all.is_empty() {
        return Err(Problem::format("no file is named").at(Path::new("")));
    }
    Ok(all)
}

/// Adds the data files of a folder and of its subfolders in the order of their names.
fn add_folder(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let problem = |e| Problem::io("read it")(e).at(folder);
    let mut entries =
        std::fs::read_dir(folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>).map_err(problem)?;
    entries.sort_unstable_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with(['.', '_']) {
            continue;
        }
        // A link to a folder is not followed, because it may lead back.
        if entry.file_type().map_err(problem)?.is_dir() {
            add_folder(&path, files)?;
        } else if Format::by_name(&path).is_some() && !TEXTS.contains(&&*extension(&path)) && path.is_file() {
            // A text in a folder of tables is usually a description.
            files.push(path);
        }
    }
    Ok(())
}
