//! Saves a run, and loads it to resume it.
//!
//! All files of a run are first written under temporary names and then put in place, so that a failure leaves existing
//! files intact. The module `paths` has their names; the module `journal` saves a run while it advances.
use super::paths::{self, damaged};
use super::temporary::Temporary;
use super::{csv, journal, npz};
use crate::error::{Error, Result, io_error};
use crate::run::Chains;
use crate::target::Target;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Checks, before a long run begins, that a run of this many chains can be saved under a prefix. With `overwrite` it
/// may replace the files of an older run.
///
/// # Errors
/// [`Error::Io`] if the folder does not exist or cannot be written. Without `overwrite`, [`Error::Unfinished`] if an
/// unfinished run is stored there, and [`Error::Exists`] if a file of a finished run is. [`Error::Setting`] if an older
/// run there has more chains: its last files would mix with the new ones.
pub fn check_outputs(prefix: &Path, chains: usize, overwrite: bool) -> Result<()> {
    if !overwrite {
        let unfinished = [paths::state(prefix), paths::npz(&paths::partial(prefix))];
        if let Some(path) = unfinished.into_iter().find(|path| path.exists()) {
            return Err(Error::Unfinished { path });
        }
        let existing: Vec<PathBuf> = results(prefix, chains).filter(|path| path.exists()).collect();
        if !existing.is_empty() {
            return Err(Error::Exists { paths: existing });
        }
    }
    let beyond = paths::csv(prefix, chains);
    if beyond.exists() {
        return Err(Error::Setting {
            what: "the output prefix",
            value: prefix.display().to_string(),
            remedy: format!("{} is of a run with more chains; delete it or take another prefix", beyond.display()),
        });
    }
    check_folder(prefix)
}

/// Returns the paths of a finished run of `chains` chains.
pub fn results(prefix: &Path, chains: usize) -> impl Iterator<Item = PathBuf> {
    (0..chains).map(|c| paths::csv(prefix, c)).chain([paths::npz(prefix)])
}

fn check_folder(prefix: &Path) -> Result<()> {
    temporary(prefix).map(drop)
}

/// Creates a file in the folder of the results, to replace one of them.
fn temporary(prefix: &Path) -> Result<Temporary> {
    let folder = paths::folder(prefix);
    // Only the kind of the error is passed on: its text names the folder, and so does `Error::Io`.
    Temporary::create(folder).map_err(|e| io_error(folder)(e.kind().into()))
}

/// An unfinished or finished run, read from its files.
#[derive(Debug)]
pub struct Saved {
    path: PathBuf,
    run: Chains,
}

impl Chains {
    /// Writes the run's files and returns their paths. A finished run is saved under `prefix`, and the files of its
    /// unfinished state are removed. An unfinished run is saved under `prefix.partial`.
    ///
    /// # Errors
    /// [`Error::Io`]. Existing files are then unchanged, except those already replaced if putting a later file in place
    /// failed.
    pub fn save(&self, prefix: &Path) -> Result<Vec<PathBuf>> {
        let finished = self.finished();
        let to = if finished { prefix.to_path_buf() } else { paths::partial(prefix) };
        let mut written = Vec::new();
        let mut write = |path: PathBuf, fill: &dyn Fn(&File) -> io::Result<()>| -> Result<()> {
            let file = temporary(prefix)?;
            fill(file.file()).and_then(|()| file.file().sync_all()).map_err(io_error(&path))?;
            written.push((file, path));
            Ok(())
        };
        for chain in 0..self.settings.chains {
            write(paths::csv(&to, chain), &|file| csv::write(self, chain, file))?;
        }
        write(paths::npz(&to), &|file| npz::write(self, file))?;
        let mut in_place = Vec::new();
        for (file, path) in written {
            file.persist(&path).map_err(io_error(&path))?;
            in_place.push(path);
        }
        journal::remove(prefix);
        if finished {
            // A file of the unfinished run that cannot be removed does no harm, except that the run can be resumed
            // again.
            let partial = paths::partial(prefix);
            let _ = std::fs::remove_file(paths::npz(&partial));
            (0..self.settings.chains).for_each(|c| drop(std::fs::remove_file(paths::csv(&partial, c))));
        }
        Ok(in_place)
    }
}

impl Saved {
    /// Reads the run saved under a prefix: the one that a [`Journal`](crate::Journal) saved; or else the stopped one;
    /// or else the finished one, which can be made longer.
    ///
    /// # Errors
    /// [`Error::Resume`] if there is no run, or a file is damaged or of another version; [`Error::Io`].
    pub fn load(prefix: &Path) -> Result<Self> {
        let state = paths::state(prefix);
        if state.exists() {
            check_folder(prefix)?;
            return journal::load(prefix).map(|run| Self { path: state, run });
        }
        let unfinished = paths::npz(&paths::partial(prefix));
        let path = if unfinished.exists() { unfinished } else { paths::npz(prefix) };
        let file = File::open(&path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => damaged(
                prefix,
                "no run is saved there: none was started with this prefix, or it ended before it was first saved (after ten \
                 seconds); start it without --resume"
                    .into(),
            ),
            _ => io_error(&path)(e),
        })?;
        check_folder(prefix)?;
        let run = npz::read(file).map_err(|problem| damaged(&path, problem))?;
        Ok(Self { path, run })
    }

    /// Returns the run as saved. Its identity names the kernel with which it must be resumed.
    pub fn run(&self) -> &Chains {
        &self.run
    }

    /// Returns the run, to be [advanced](Chains::advance) with this target.
    ///
    /// # Errors
    /// [`Error::Resume`] if the target has another model, prior or data, uses another kernel, or does not give the same
    /// bits; the target's errors.
    pub fn resume(self, target: &mut dyn Target) -> Result<Chains> {
        match self.run.check_target(target)? {
            Ok(()) => Ok(self.run),
            Err(problem) => Err(Error::Resume { path: self.path, problem }),
        }
    }
}
