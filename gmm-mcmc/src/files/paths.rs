//! The names of a run's files.
//!
//! A finished run is stored as `PREFIX-1.csv` … `PREFIX-C.csv` and `PREFIX.npz`. A stopped run has the prefix
//! `PREFIX.partial`, so that its files are not mistaken for those of a finished run. The journal of a running run is
//! stored as `PREFIX.partial.state` with `PREFIX.partial.log0` or `PREFIX.partial.log1`.
use crate::error::Error;
use std::path::{Path, PathBuf};

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(super) fn npz(prefix: &Path) -> PathBuf {
    with_suffix(prefix, ".npz")
}

pub(super) fn csv(prefix: &Path, chain: usize) -> PathBuf {
    with_suffix(prefix, &format!("-{}.csv", chain + 1))
}

pub(super) fn partial(prefix: &Path) -> PathBuf {
    with_suffix(prefix, ".partial")
}

pub(super) fn state(prefix: &Path) -> PathBuf {
    with_suffix(prefix, ".partial.state")
}

/// Returns the path of the journal's next state, before it replaces the state.
pub(super) fn new_state(prefix: &Path) -> PathBuf {
    with_suffix(prefix, ".partial.state.new")
}

pub(super) fn log(prefix: &Path, slot: usize) -> PathBuf {
    with_suffix(prefix, &format!(".partial.log{slot}"))
}

pub(super) fn folder(prefix: &Path) -> &Path {
    prefix.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub(super) fn damaged(path: &Path, problem: String) -> Error {
    Error::Resume { path: path.into(), problem }
}
