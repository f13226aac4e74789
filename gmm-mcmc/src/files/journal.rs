//! Saves a run while it advances.
//!
//! Two files hold the run: the state of the sampler, and a log of numbers. The log holds the draws so far, or the
//! evaluations of an unfinished NUTS warm-up. The state names one of two logs, and the part of the log that belongs to
//! it. A save appends the new numbers to the log, then replaces the state in one step. If the program is killed during
//! either step or between them, the former state is intact, and the log still begins with its numbers.
use super::paths::{self, damaged};
use super::snapshot::{Layout, Snapshot, decode, numbers};
use crate::error::{Result, io_error};
use crate::rows::Rows;
use crate::run::Chains;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The format of the state. States of other formats are refused.
const FORMAT: &str = "gmm-mcmc journal 2";

/// The part of a log that belongs to a state.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Extent {
    /// The log, 0 or 1.
    slot: usize,
    /// The count of numbers at the beginning of the log.
    length: u64,
    sha256: [u8; 32],
}

/// Saves a run repeatedly while it advances. A save writes only what is new since the last one. [`Chains::save`]
/// removes the files of a journal.
#[derive(Debug)]
pub struct Journal {
    prefix: PathBuf,
    /// The log that belongs to the state on the disk; `None` without a state.
    slot: Option<usize>,
    log: Option<Log>,
}

#[derive(Debug)]
struct Log {
    file: File,
    slot: usize,
    phase: Phase,
    length: usize,
    hash: Sha256,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The evaluations of the NUTS warm-up of the chain after `warmed` chains.
    WarmUp {
        warmed: usize,
    },
    Draws,
}

impl Journal {
    /// Returns a journal of the run saved under a prefix. Writes nothing yet.
    pub fn new(prefix: &Path) -> Self {
        let slot = read_state(prefix).ok().map(|(extent, _)| extent.slot);
        Self { prefix: prefix.into(), slot, log: None }
    }

    /// Removes the journal's files, for a run that cannot continue.
    pub fn remove(self) {
        remove(&self.prefix);
    }

    /// Saves the run as it is now.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io). The former save is then intact, and the next save may succeed.
    pub fn save(&mut self, run: &Chains) -> Result<()> {
        let evaluations = run.recorded();
        let (phase, chunks): (_, Vec<&[f64]>) = if evaluations.is_empty() {
            (Phase::Draws, run.rows.iter().collect())
        } else {
            (Phase::WarmUp { warmed: run.warmed }, vec![evaluations])
        };
        let log = match self.log.take().filter(|log| log.phase == phase) {
            Some(log) => self.log.insert(log),
            None => {
                let slot = self.slot.map_or(0, other);
                let path = paths::log(&self.prefix, slot);
                let file = create(&path).map_err(io_error(&path))?;
                self.log.insert(Log { file, slot, phase, length: 0, hash: Sha256::new() })
            }
        };
        let path = paths::log(&self.prefix, log.slot);
        log.append(&chunks).map_err(io_error(&path))?;
        let extent = Extent { slot: log.slot, length: log.length as u64, sha256: log.hash.clone().finalize().into() };
        write_state(&self.prefix, &extent, run)?;
        self.slot = Some(log.slot);
        // The log of the former state is obsolete. It does no harm if it cannot be removed.
        let _ = fs::remove_file(paths::log(&self.prefix, other(log.slot)));
        Ok(())
    }
}

fn other(slot: usize) -> usize {
    usize::from(slot == 0)
}

impl Log {
    /// Appends those numbers of `chunks` that follow the numbers the log has.
    fn append(&mut self, chunks: &[&[f64]]) -> io::Result<()> {
        // A failed save may have left numbers beyond the log's length.
        self.file.set_len(8 * self.length as u64)?;
        self.file.seek(SeekFrom::Start(8 * self.length as u64))?;
        let (mut hash, mut seen) = (self.hash.clone(), 0);
        let mut out = BufWriter::new(&self.file);
        let mut bytes = Vec::new();
        for chunk in chunks {
            let new = &chunk[self.length.saturating_sub(seen).min(chunk.len())..];
            seen += chunk.len();
            bytes.clear();
            bytes.extend(new.iter().flat_map(|v| v.to_le_bytes()));
            hash.update(&bytes);
            out.write_all(&bytes)?;
        }
        out.flush()?;
        drop(out);
        self.file.sync_data()?;
        (self.hash, self.length) = (hash, seen);
        Ok(())
    }
}

/// Creates a file in place of an older one. A link in its place is not followed.
fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    File::options().write(true).create_new(true).open(path)
}

fn write_state(prefix: &Path, extent: &Extent, run: &Chains) -> Result<()> {
    let path = paths::state(prefix);
    let write = || {
        let bytes = postcard::to_stdvec(&(FORMAT, extent, Snapshot::of(run))).map_err(io::Error::other)?;
        // The name is always the same, so that a program killed here repeatedly leaves only one file.
        let new = paths::new_state(prefix);
        let mut file = create(&new)?;
        file.write_all(&bytes)?;
        // The content must reach the disk before the name does.
        file.sync_all()?;
        fs::rename(&new, &path)
    };
    write().map_err(io_error(&path))
}

fn read_state(prefix: &Path) -> Result<(Extent, Snapshot)> {
    let path = paths::state(prefix);
    let bytes = fs::read(&path).map_err(io_error(&path))?;
    let (extent, snapshot): (Extent, Snapshot) = decode(FORMAT, &bytes).map_err(|problem| damaged(&path, problem))?;
    if extent.slot > 1 {
        return Err(damaged(&path, format!("it is damaged: there is no log {}", extent.slot)));
    }
    Ok((extent, snapshot))
}

/// Loads the run as it was last saved. Errors: [`Error::Io`](crate::Error::Io),
/// [`Error::Resume`](crate::Error::Resume).
pub(super) fn load(prefix: &Path) -> Result<Chains> {
    let (extent, snapshot) = read_state(prefix)?;
    let state_path = paths::state(prefix);
    let layout = snapshot.layout().map_err(|problem| damaged(&state_path, problem))?;
    let path = paths::log(prefix, extent.slot);
    let mut file = File::open(&path).map_err(io_error(&path))?;
    let available = file.metadata().map_err(io_error(&path))?.len();
    let Some(size) = extent.length.checked_mul(8).filter(|size| *size <= available) else {
        return Err(damaged(&path, "it is shorter than its state says; start afresh".into()));
    };
    let mut bytes = vec![0; size as usize];
    file.read_exact(&mut bytes).map_err(io_error(&path))?;
    if <[u8; 32]>::from(Sha256::digest(&bytes)) != extent.sha256 {
        return Err(damaged(&path, "it does not match its state (its SHA-256 differs); start afresh".into()));
    }
    let numbers = numbers(&bytes);
    let run = match layout {
        Layout::Evaluations => snapshot.with_evaluations(numbers),
        Layout::Draws { chains, drawn, width } => {
            if chains.checked_mul(width).and_then(|row| row.checked_mul(drawn)) != Some(numbers.len()) {
                return Err(damaged(&path, "it does not hold as many draws as its state says".into()));
            }
            let mut rows = Rows::new(chains, width);
            numbers.chunks_exact(width).for_each(|row| rows.push([row]));
            snapshot.with_draws(rows)
        }
    };
    run.map_err(|problem| damaged(&path, problem))
}

/// Removes the files of a journal. A file that cannot be removed does no harm, except that the run can be resumed
/// again.
pub(super) fn remove(prefix: &Path) {
    // The state is removed first: without it the logs are not read.
    for path in [paths::state(prefix), paths::new_state(prefix), paths::log(prefix, 0), paths::log(prefix, 1)] {
        let _ = fs::remove_file(path);
    }
}
