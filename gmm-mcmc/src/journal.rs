//! Saving a run while it goes on.
//!
//! `PREFIX.partial.state` holds the state of the sampler and says which of `PREFIX.partial.log0` and `…log1` belongs to it, and how
//! much of that: the draws so far, or what the unfinished warm-up of a NUTS chain has evaluated. A save appends to the
//! log what is new, then replaces the state in one step. A program that is killed between the two, or within either,
//! leaves the former state with a log that begins with what belongs to it.
use crate::Result;
use crate::archive::numbers;
use crate::run::Run;
use crate::saved::{Contents, at, damaged, partial, with_suffix};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The format of the file of the state; another is not read.
const FORMAT: &str = "gmm-mcmc journal 1";

/// What belongs to the state of a log.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Extent {
    /// Which of the two logs.
    slot: usize,
    /// Numbers.
    length: u64,
    sha256: [u8; 32],
}

fn state_path(prefix: &Path) -> PathBuf {
    with_suffix(&partial(prefix), ".state")
}

fn log_path(prefix: &Path, slot: usize) -> PathBuf {
    with_suffix(&partial(prefix), &format!(".log{slot}"))
}

/// Saves a run again and again while it goes on, at the cost of what is new. [`Run::save`] removes what a journal left.
#[derive(Debug)]
pub struct Journal {
    prefix: PathBuf,
    /// The log that the state on the disk needs.
    slot: Option<usize>,
    log: Option<Log>,
}

#[derive(Debug)]
struct Log {
    file: File,
    slot: usize,
    /// What it is the log of: the number of chains or iterations that were warm, for what warm-up evaluates.
    phase: Phase,
    length: usize,
    hash: Sha256,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    WarmUp { warmed: usize },
    Draws,
}

impl Journal {
    /// A journal of the run that is saved under a prefix. Nothing is written yet.
    pub fn new(prefix: &Path) -> Self {
        let slot = read_state(prefix).ok().map(|(extent, _)| extent.slot);
        Self { prefix: prefix.into(), slot, log: None }
    }

    /// Removes what was saved, for a run that it is of no use to go on with.
    pub fn remove(self) {
        remove(&self.prefix);
    }

    /// The saved state under a prefix, if there is one.
    pub(crate) fn exists(prefix: &Path) -> Option<PathBuf> {
        Some(state_path(prefix)).filter(|path| path.exists())
    }

    /// Saves what the run has done so far.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io); the former save is then still there, and the next may succeed.
    pub fn save(&mut self, run: &Run) -> Result<()> {
        let warming = run.recorded();
        let (phase, chunks): (_, Vec<&[f64]>) = if warming.is_empty() {
            (Phase::Draws, draws(run).collect())
        } else {
            (Phase::WarmUp { warmed: run.warmed }, vec![warming])
        };
        let log = match self.log.take().filter(|log| log.phase == phase) {
            Some(log) => self.log.insert(log),
            None => {
                let slot = self.slot.map_or(0, |slot| 1 - slot);
                let path = log_path(&self.prefix, slot);
                let file = File::create(&path).map_err(at(&path))?;
                self.log.insert(Log { file, slot, phase, length: 0, hash: Sha256::new() })
            }
        };
        let path = log_path(&self.prefix, log.slot);
        log.append(&chunks).map_err(at(&path))?;
        let extent = Extent { slot: log.slot, length: log.length as u64, sha256: log.hash.clone().finalize().into() };
        write_state(&self.prefix, &extent, run)?;
        self.slot = Some(log.slot);
        // The log of the former state; it does no harm where it is.
        let _ = fs::remove_file(log_path(&self.prefix, 1 - log.slot));
        Ok(())
    }
}

impl Log {
    /// Makes the numbers of `chunks`, one after the other, the log's; those that it has are their beginning.
    fn append(&mut self, chunks: &[&[f64]]) -> io::Result<()> {
        // What a failed save may have left beyond.
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

/// The rows of the draws, in the order in which they were made.
fn draws(run: &Run) -> impl Iterator<Item = &[f64]> {
    let width = run.width();
    (0..run.drawn()).flat_map(move |draw| run.rows.iter().map(move |rows| &rows[draw * width..(draw + 1) * width]))
}

fn write_state(prefix: &Path, extent: &Extent, run: &Run) -> Result<()> {
    let path = state_path(prefix);
    let write = || {
        let bytes = postcard::to_stdvec(&(FORMAT, extent, Contents::of(run))).map_err(io::Error::other)?;
        // Always the same name, so that a program that is killed here again and again leaves one file.
        let new = with_suffix(&path, ".new");
        let mut file = File::create(&new)?;
        file.write_all(&bytes)?;
        // The name must not reach the disk before the content.
        file.sync_all()?;
        fs::rename(&new, &path)
    };
    write().map_err(at(&path))
}

fn read_state(prefix: &Path) -> Result<(Extent, Contents)> {
    let path = state_path(prefix);
    let bytes = fs::read(&path).map_err(at(&path))?;
    let (format, rest) = postcard::take_from_bytes::<&str>(&bytes).unwrap_or(("", &[]));
    if format != FORMAT {
        return Err(damaged(&path, format!("it is of another version, not `{FORMAT}`; start afresh")));
    }
    postcard::from_bytes(rest).map_err(|e| damaged(&path, format!("its state is damaged ({e})")))
}

/// The run as it was last saved.
pub(crate) fn load(prefix: &Path) -> Result<Run> {
    let (extent, contents) = read_state(prefix)?;
    let path = log_path(prefix, extent.slot.min(1));
    let mut file = File::open(&path).map_err(at(&path))?;
    let there = file.metadata().map_err(at(&path))?.len();
    let Some(size) = extent.length.checked_mul(8).filter(|size| *size <= there) else {
        return Err(damaged(&path, "it is shorter than its state says; start afresh".into()));
    };
    let mut bytes = vec![0; size as usize];
    file.read_exact(&mut bytes).map_err(at(&path))?;
    if <[u8; 32]>::from(Sha256::digest(&bytes)) != extent.sha256 {
        return Err(damaged(&path, "it is not what its state says (its SHA-256 is another); start afresh".into()));
    }
    let numbers = numbers(&bytes);
    let problem = |problem| damaged(&path, problem);
    if contents.warming().map_err(problem)? {
        return contents.into_run(Vec::new(), numbers).map_err(problem);
    }
    let (chains, width) = contents.rows().map_err(problem)?;
    if chains.checked_mul(width).and_then(|row| row.checked_mul(contents.drawn)) != Some(numbers.len()) {
        return Err(problem("it does not hold as many draws as its state says".into()));
    }
    let mut rows = vec![Vec::with_capacity(contents.drawn * width); chains];
    for (i, row) in numbers.chunks_exact(width).enumerate() {
        rows[i % chains].extend_from_slice(row);
    }
    contents.into_run(rows, Vec::new()).map_err(problem)
}

/// Removes what a journal left; a file that cannot be removed does no harm but to be resumed again.
pub(crate) fn remove(prefix: &Path) {
    // The state first: without it the logs are nothing.
    let state = state_path(prefix);
    for path in [&state, &with_suffix(&state, ".new"), &log_path(prefix, 0), &log_path(prefix, 1)] {
        let _ = fs::remove_file(path);
    }
}
