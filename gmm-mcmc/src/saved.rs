//! Saving a run and going on with it.
//!
//! A finished run is `PREFIX-1.csv` … `PREFIX-C.csv` and `PREFIX.npz`; one that was stopped has `PREFIX.partial` for a prefix,
//! so that it never looks whole. All files are first written under other names, then put in place, so that a failure
//! leaves what was there. What is saved while a run goes on has a form of its own: see the module `journal`.
use crate::archive::Archive;
use crate::journal::{self, Journal};
use crate::output::{write_csv, write_npz};
use crate::run::Run;
use crate::sampler::{Settings, State};
use crate::target::{Identity, Target, Variable};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The format of the state; another is not read.
const FORMAT: &str = "gmm-mcmc state 2";

#[derive(Serialize)]
struct Header<'a> {
    format: &'a str,
    settings: &'a Settings,
    identity: &'a Identity,
    variables: &'a [Variable],
    drawn: usize,
    finished: bool,
}

/// Everything of a run but the numbers of its draws and what a warm-up has evaluated.
#[derive(Serialize, Deserialize)]
pub(crate) struct Contents {
    settings: Settings,
    identity: Identity,
    variables: Vec<Variable>,
    warmed: usize,
    /// Whether a chain was in a warm-up of which the evaluations were kept.
    warming: bool,
    /// Draws of each chain.
    pub drawn: usize,
    state: State,
}

/// The largest magnitude of a saved number: beyond, sums of two are infinite.
const LARGEST: f64 = 1e300;

impl Contents {
    pub fn of(run: &Run) -> Self {
        Self {
            settings: run.settings.clone(),
            identity: run.identity.clone(),
            variables: run.variables.clone(),
            warmed: run.warmed,
            warming: !run.recorded().is_empty(),
            drawn: run.drawn(),
            state: run.state.clone(),
        }
    }

    /// Whether a chain was in a warm-up of which the evaluations were kept.
    ///
    /// # Errors
    /// What contradicts that.
    pub fn warming(&self) -> std::result::Result<bool, String> {
        if self.warming && (self.drawn > 0 || !matches!(self.state, State::Nuts(_))) {
            return Err("it is of a warm-up and has draws".into());
        }
        Ok(self.warming)
    }

    /// Number of chains, and numbers in a row of each.
    ///
    /// # Errors
    /// What does not fit together.
    pub fn rows(&self) -> std::result::Result<(usize, usize), String> {
        let chains = self.settings.chains;
        if chains == 0 || self.state.positions().0.len() != chains {
            return Err("its chains are not as many as its settings say".into());
        }
        let size = |v: &Variable| v.shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
        let statistics = self.settings.sampler.statistics().len();
        let width = self.variables.iter().try_fold(statistics, |sum, v| sum.checked_add(size(v)?));
        Ok((chains, width.ok_or("its variables are too large")?))
    }

    /// # Errors
    /// What does not fit together: a number that is not finite, with its place.
    pub fn into_run(self, mut rows: Vec<Vec<f64>>, recorded: Vec<f64>) -> std::result::Result<Run, String> {
        let (chains, width) = self.rows()?;
        rows.resize(chains, Vec::new());
        let names = || {
            let statistics = self.settings.sampler.statistics().iter().map(|name| (*name, 1));
            statistics.chain(self.variables.iter().map(|v| (v.name.as_str(), v.shape.iter().product())))
        };
        for (chain, numbers) in rows.iter().enumerate() {
            // In CmdStan's `energy__` too: where this is infinite, nothing is drawn.
            if let Some(i) = numbers.iter().position(|v| !v.is_finite() || v.abs() > LARGEST) {
                let (draw, mut column) = (i / width, i % width);
                let mut name = "";
                for (variable, size) in names() {
                    name = variable;
                    if column < size {
                        break;
                    }
                    column -= size;
                }
                return Err(format!(
                    "`{name}`, chain {chain}, draw {draw}, number {column} (all counted from 0) is {:e}, which cannot have been \
                     drawn; start afresh",
                    numbers[i]
                ));
            }
        }
        let dim = self.state.positions().0.first().map_or(0, Vec::len);
        if !recorded.len().is_multiple_of(dim + 1) || (!recorded.is_empty() && self.warmed >= chains) {
            return Err("the evaluations of its warm-up are damaged; start afresh".into());
        }
        let mut state = self.state;
        if let State::Nuts(nuts) = &mut state {
            nuts.set_recorded(recorded);
        }
        Ok(Run::restore(self.settings, self.identity, self.variables, state, self.warmed, rows))
    }
}

pub(crate) fn with_suffix(prefix: &Path, suffix: &str) -> PathBuf {
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

pub(crate) fn partial(prefix: &Path) -> PathBuf {
    with_suffix(prefix, ".partial")
}

pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
    |error| Error::Io { path: path.into(), error }
}

pub(crate) fn damaged(path: &Path, problem: String) -> Error {
    Error::Resume { path: path.into(), problem }
}

fn folder(prefix: &Path) -> &Path {
    prefix.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Checks, before anything long begins, that a new run of so many chains can be saved under a prefix; `overwrite`: also over an
/// older run.
///
/// # Errors
/// [`Error::Io`] where the folder does not exist or cannot be written to; [`Error::Unfinished`] where an unfinished run lies
/// there and [`Error::Exists`] where a file of a finished one does, unless `overwrite`; [`Error::Setting`] where an older
/// run of more chains does, whose last files would mix with the new ones.
pub fn check_outputs(prefix: &Path, chains: usize, overwrite: bool) -> Result<()> {
    if !overwrite {
        let stopped = Some(npz_path(&partial(prefix))).filter(|path| path.exists());
        if let Some(path) = Journal::exists(prefix).or(stopped) {
            return Err(Error::Unfinished { path });
        }
        let results = (0..chains).map(|c| csv_path(prefix, c)).chain([npz_path(prefix)]);
        let there: Vec<PathBuf> = results.filter(|path| path.exists()).collect();
        if !there.is_empty() {
            return Err(Error::Exists { paths: there });
        }
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
        let state = postcard::to_stdvec(&(FORMAT, Contents::of(self))).map_err(io::Error::other);
        let path = npz_path(&to);
        let (header, state) = (header.map_err(at(&path))?, state.map_err(at(&path))?);
        write(path, &|file| write_npz(self, &header, state.clone(), file))?;
        let mut paths = Vec::new();
        for (file, path) in written {
            readable(&file);
            file.persist(&path).map_err(|e| at(&path)(e.error))?;
            paths.push(path);
        }
        journal::remove(prefix);
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
    /// Reads the run that was saved under a prefix: what a [`Journal`] saved while it went on, else the stopped one, else the
    /// finished one (which can be made longer).
    ///
    /// # Errors
    /// [`Error::Io`] where there is none; [`Error::Resume`] where the file is damaged or of another version.
    pub fn load(prefix: &Path) -> Result<Self> {
        if let Some(path) = Journal::exists(prefix) {
            check_folder(prefix)?;
            return journal::load(prefix).map(|run| Self { path, run });
        }
        let unfinished = npz_path(&partial(prefix));
        let path = if unfinished.exists() { unfinished } else { npz_path(prefix) };
        let file = File::open(&path).map_err(at(&path))?;
        check_folder(prefix)?;
        let run = read_npz(file).map_err(|problem| damaged(&path, problem))?;
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

/// The run of a .npz, or what is wrong with it.
fn read_npz(file: File) -> std::result::Result<Run, String> {
    let mut npz = Archive::new(file)?;
    let bytes = npz.bytes("state")?;
    let (format, rest) = postcard::take_from_bytes::<&str>(&bytes).unwrap_or(("", &[]));
    if format != FORMAT {
        return Err(format!("it is of another version, not `{FORMAT}`; start afresh"));
    }
    let contents: Contents = postcard::from_bytes(rest).map_err(|e| format!("its state is damaged ({e})"))?;
    let (chains, width) = contents.rows()?;
    if contents.warming()? {
        let recorded = npz.vector("warmup")?;
        return contents.into_run(Vec::new(), recorded);
    }
    // Back from an array for each column to rows.
    let statistics = contents.settings.sampler.statistics().iter().map(|name| (*name, &[][..]));
    let variables = contents.variables.iter().map(|v| (v.name.as_str(), v.shape.as_slice()));
    let mut columns = Vec::new();
    for (name, shape) in statistics.chain(variables) {
        let full = [&[chains, contents.drawn][..], shape].concat();
        columns.push((npz.array(name, &full)?, shape.iter().product::<usize>()));
    }
    let mut rows = vec![Vec::with_capacity(contents.drawn * width); chains];
    for (chain, rows) in rows.iter_mut().enumerate() {
        for i in chain * contents.drawn..(chain + 1) * contents.drawn {
            for (numbers, size) in &columns {
                rows.extend_from_slice(&numbers[i * size..(i + 1) * size]);
            }
        }
    }
    contents.into_run(rows, Vec::new())
}
