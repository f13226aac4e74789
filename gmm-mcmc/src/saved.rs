//! Saving a run and going on with it.
//!
//! A finished run is `PREFIX-1.csv` … `PREFIX-C.csv` and `PREFIX.npz`; an unfinished one has `PREFIX.partial` for a prefix,
//! so that it never looks whole. All files are first written under other names, then put in place, so that a failure
//! leaves what was there.
use crate::output::{write_csv, write_npz};
use crate::run::Run;
use crate::sampler::{Settings, State};
use crate::target::{Identity, Target, Variable};
use crate::{Error, Result};
use ndarray::{Array1, ArrayD};
use ndarray_npy::NpzReader;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The format of the state; another is not read.
const FORMAT: &str = "gmm-mcmc state 1";

#[derive(Serialize)]
struct Header<'a> {
    format: &'a str,
    settings: &'a Settings,
    identity: &'a Identity,
    variables: &'a [Variable],
    drawn: usize,
    finished: bool,
}

#[derive(Serialize, Deserialize)]
struct Contents {
    settings: Settings,
    identity: Identity,
    variables: Vec<Variable>,
    warmed: usize,
    state: State,
}

fn with_suffix(prefix: &Path, suffix: &str) -> PathBuf {
    let mut name = prefix.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn npz_path(prefix: &Path) -> PathBuf {
    with_suffix(prefix, ".npz")
}

fn csv_path(prefix: &Path, chain: usize) -> PathBuf {
    with_suffix(prefix, &format!("-{}.csv", chain + 1))
}

fn partial(prefix: &Path) -> PathBuf {
    with_suffix(prefix, ".partial")
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
    |error| Error::Io { path: path.into(), error }
}

fn folder(prefix: &Path) -> &Path {
    prefix.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Checks, before anything long begins, that a new run of so many chains can be saved under a prefix.
///
/// # Errors
/// [`Error::Io`] where the folder does not exist or cannot be written to; [`Error::Unfinished`] where an unfinished run lies
/// there; [`Error::Setting`] where an older run of more chains does, whose last files would mix with the new ones.
pub fn check_outputs(prefix: &Path, chains: usize) -> Result<()> {
    let unfinished = npz_path(&partial(prefix));
    if unfinished.exists() {
        return Err(Error::Unfinished { path: unfinished });
    }
    let beyond = csv_path(prefix, chains);
    if beyond.exists() {
        return Err(Error::Setting {
            what: "the output prefix",
            value: prefix.display().to_string(),
            remedy: format!("{} is of a run with more chains; delete it or take another prefix", beyond.display()),
        });
    }
    check_folder(prefix)
}

fn check_folder(prefix: &Path) -> Result<()> {
    temporary(prefix).map(drop)
}

/// A file beside the results, to take the place of one of them.
fn temporary(prefix: &Path) -> Result<NamedTempFile> {
    let folder = folder(prefix);
    // The error's own text would repeat the folder.
    NamedTempFile::new_in(folder).map_err(|e| at(folder)(e.kind().into()))
}

/// An unfinished or finished run, read from its files.
#[derive(Debug)]
pub struct Saved {
    path: PathBuf,
    run: Run,
}

impl Run {
    /// Writes the run's files: under `prefix` if it is finished (and removes what it left there unfinished), else under
    /// `prefix.partial`. Returns what was written.
    ///
    /// # Errors
    /// [`Error::Io`]; the files that were there are then as they were, unless putting a new one in place failed itself.
    pub fn save(&self, prefix: &Path) -> Result<Vec<PathBuf>> {
        let finished = self.finished();
        let to = if finished { prefix.to_path_buf() } else { partial(prefix) };
        let mut written = Vec::new();
        let mut write = |path: PathBuf, fill: &dyn Fn(&mut File) -> io::Result<()>| -> Result<()> {
            let mut file = temporary(prefix)?;
            let result = fill(file.as_file_mut()).and_then(|()| file.as_file().sync_all());
            result.map_err(at(&path))?;
            written.push((file, path));
            Ok(())
        };
        for chain in 0..self.settings.chains {
            write(csv_path(&to, chain), &|file| write_csv(self, chain, file))?;
        }
        let header = Header {
            format: FORMAT,
            settings: &self.settings,
            identity: &self.identity,
            variables: &self.variables,
            drawn: self.drawn(),
            finished,
        };
        let header = serde_json::to_string_pretty(&header).map_err(io::Error::other);
        let contents = Contents {
            settings: self.settings.clone(),
            identity: self.identity.clone(),
            variables: self.variables.clone(),
            warmed: self.warmed,
            state: self.state.clone(),
        };
        let state = postcard::to_stdvec(&(FORMAT, contents)).map_err(io::Error::other);
        let path = npz_path(&to);
        let (header, state) = (header.map_err(at(&path))?, state.map_err(at(&path))?);
        write(path, &|file| write_npz(self, &header, state.clone(), file))?;
        let mut paths = Vec::new();
        for (file, path) in written {
            readable(&file);
            file.persist(&path).map_err(|e| at(&path)(e.error))?;
            paths.push(path);
        }
        if finished {
            // What it was resumed from; if it cannot be removed, it does no harm but to be resumed again.
            let partial = partial(prefix);
            let _ = std::fs::remove_file(npz_path(&partial));
            (0..self.settings.chains).for_each(|c| drop(std::fs::remove_file(csv_path(&partial, c))));
        }
        Ok(paths)
    }
}

/// Temporary files are made for their owner alone; results are as readable as other files. No harm if that fails.
fn readable(file: &NamedTempFile) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let _ = file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644));
    }
    #[cfg(not(unix))]
    let _ = file;
}

impl Saved {
    /// Reads the run that was saved under a prefix: the unfinished one if there is one, else the finished one (which
    /// can be made longer).
    ///
    /// # Errors
    /// [`Error::Io`] where there is neither; [`Error::Resume`] where the file is damaged or of another version.
    pub fn load(prefix: &Path) -> Result<Self> {
        let unfinished = npz_path(&partial(prefix));
        let path = if unfinished.exists() { unfinished } else { npz_path(prefix) };
        let file = File::open(&path).map_err(at(&path))?;
        check_folder(prefix)?;
        let damaged = |e: String| Error::Resume { path: path.clone(), problem: e };
        let mut npz = NpzReader::new(file).map_err(|e| damaged(format!("it is damaged ({e})")))?;
        let state: Array1<u8> = npz.by_name("state").map_err(|e| damaged(format!("it is not of a run ({e})")))?;
        let bytes = state.to_vec();
        let (format, rest) = postcard::take_from_bytes::<&str>(&bytes).unwrap_or(("", &[]));
        if format != FORMAT {
            return Err(damaged(format!("it is of another version, not `{FORMAT}`; start afresh")));
        }
        let Contents { settings, identity, variables, warmed, state } =
            postcard::from_bytes(rest).map_err(|e| damaged(format!("its state is damaged ({e})")))?;

        // Back from an array for each column to rows.
        let names: Vec<&str> =
            settings.sampler.statistics().iter().copied().chain(variables.iter().map(|v| v.name.as_str())).collect();
        let mut columns: Vec<ArrayD<f64>> = Vec::new();
        for name in names {
            let column: ArrayD<f64> =
                npz.by_name(name).map_err(|e| damaged(format!("`{name}` is missing or damaged ({e})")))?;
            columns.push(column);
        }
        let drawn = columns[0].shape().get(1).copied().unwrap_or(0);
        let fits = columns.iter().all(|c| c.shape().starts_with(&[settings.chains, drawn]));
        let sizes: Vec<usize> = columns.iter().map(|c| c.shape().iter().skip(2).product()).collect();
        if !fits || state.positions().0.len() != settings.chains {
            return Err(damaged("its arrays do not have the shape of its settings".into()));
        }
        let numbers: Vec<Vec<f64>> = columns.into_iter().map(|c| c.iter().copied().collect()).collect();
        let rows = (0..settings.chains)
            .map(|chain| {
                let mut rows = Vec::new();
                for i in chain * drawn..(chain + 1) * drawn {
                    for (numbers, &size) in numbers.iter().zip(&sizes) {
                        rows.extend_from_slice(&numbers[i * size..(i + 1) * size]);
                    }
                }
                rows
            })
            .collect();
        let run = Run::restore(settings, identity, variables, state, warmed, rows);
        Ok(Self { path, run })
    }

    /// The run as it was saved: its settings, what it was made of (the kernel that must be pinned among it), its draws.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The run, to be [advanced](Run::advance) further.
    ///
    /// # Errors
    /// [`Error::Resume`] where the target is of another model, prior or data, uses another kernel, or does not give the
    /// same bits; what the target fails with.
    pub fn resume(self, target: &mut dyn Target) -> Result<Run> {
        match self.run.check_target(target)? {
            Ok(()) => Ok(self.run),
            Err(problem) => Err(Error::Resume { path: self.path, problem }),
        }
    }
}
