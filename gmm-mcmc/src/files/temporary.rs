//! Temporary files for unfinished results of runs and of the crate `gaussmix`.
//!
//! On Linux such a file has no name (`O_TMPFILE`), so that the system removes it however the program ends. If the
//! system or the file system does not support this, the file has a name, which is recorded for
//! [`remove_temporaries_and_exit`] to remove.
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::NamedTempFile;

/// The beginning and end of the names of unfinished files, if they need names.
const PREFIX: &str = ".gmm-";
const SUFFIX: &str = ".part";

/// Whether a file of this name is an unfinished one, which a killed program may have left.
#[must_use]
pub fn is_temporary(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// The names of the existing temporary files. The lock is held while a file is created, renamed or removed.
static NAMES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A file whose content is incomplete.
#[derive(Debug)]
pub enum Temporary {
    /// The file has no name. The system frees it when the program ends.
    #[cfg(target_os = "linux")]
    Unnamed(File),
    /// The file has a name, which is recorded.
    Named(Named),
}

impl Temporary {
    /// Creates a file in `folder`, with the permissions of any new file.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn create(folder: &Path) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if let Some(file) = unnamed(folder) {
            return Ok(Self::Unnamed(file));
        }
        Named::create(folder).map(Self::Named)
    }

    /// Returns the open file.
    pub fn file(&self) -> &File {
        match self {
            #[cfg(target_os = "linux")]
            Self::Unnamed(file) => file,
            Self::Named(named) => named.file(),
        }
    }

    /// Gives the file the name `target`, in the same folder, when its content has reached the disk. An existing file of
    /// that name is replaced in one step, and its permissions are kept; a link is itself replaced.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn persist(self, target: &Path) -> io::Result<()> {
        if let Some(existing) = std::fs::symlink_metadata(target).ok().filter(std::fs::Metadata::is_file) {
            self.file().set_permissions(existing.permissions())?;
        }
        // A crash between the two steps must not leave an empty file.
        self.file().sync_all()?;
        match self {
            #[cfg(target_os = "linux")]
            Self::Unnamed(file) => name(&file, target),
            Self::Named(named) => named.persist(target),
        }
    }
}

/// Removes the temporary files of all unfinished results and ends the program, in answer to a signal.
pub fn remove_temporaries_and_exit(code: i32) -> ! {
    // The lock is held until the process ends, so that threads cannot create temporary files.
    let names = names();
    remove(&names);
    std::process::exit(code)
}

fn remove(names: &[PathBuf]) {
    // The program is about to end: nobody could act on a failure.
    names.iter().for_each(|name| drop(std::fs::remove_file(name)));
}

fn names() -> MutexGuard<'static, Vec<PathBuf>> {
    // A thread that panicked while it held the lock cannot have left a partial name.
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // The mode of `File::create` (the umask applies), instead of tempfile's 0600.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder
}

/// A file with a temporary name. Dropping it removes the file.
#[derive(Debug)]
pub struct Named(Option<NamedTempFile>);

impl Named {
    fn create(folder: &Path) -> io::Result<Self> {
        let mut names = names();
        let file = builder().tempfile_in(folder).map_err(without_path)?;
        names.push(file.path().into());
        Ok(Self(Some(file)))
    }

    fn file(&self) -> &File {
        // Only `persist` and `drop` take the file out, and nothing calls this function after them.
        self.0.as_ref().expect("a file until it is persisted or dropped").as_file()
    }

    fn persist(mut self, target: &Path) -> io::Result<()> {
        let mut names = names();
        let Some(file) = self.0.take() else { return Ok(()) };
        names.retain(|name| name != file.path());
        // On a failure the error holds the file; dropping the error removes the file.
        file.persist(target).map(drop).map_err(|e| e.error)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if let Some(file) = self.0.take() {
            let mut names = names();
            names.retain(|name| name != file.path());
        }
    }
}

/// Removes the temporary file's name from an error: `tempfile` adds it, and it would only confuse the user.
fn without_path(error: io::Error) -> io::Error {
    let text = error.to_string();
    match text.split_once(" at path ") {
        Some((reason, _)) => io::Error::new(error.kind(), reason),
        None => error,
    }
}

/// Returns the path by which the system knows an open file, even an unnamed one.
#[cfg(target_os = "linux")]
fn path_of_open(file: &File) -> PathBuf {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Creates an unnamed file. `None` if the file system does not support this, or if the file could not get a name later
/// because /proc is missing.
#[cfg(target_os = "linux")]
fn unnamed(folder: &Path) -> Option<File> {
    use rustix::fs::OFlags;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    let mut options = File::options();
    let flags = i32::try_from(OFlags::TMPFILE.bits()).ok()?;
    let file = options.read(true).write(true).mode(0o666).custom_flags(flags).open(folder).ok()?;
    let (this, seen) = (file.metadata().ok()?, std::fs::metadata(path_of_open(&file)).ok()?);
    (this.is_file() && (this.dev(), this.ino()) == (seen.dev(), seen.ino())).then_some(file)
}

#[cfg(target_os = "linux")]
fn name(file: &File, target: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    let link = |to: &Path| linkat(CWD, path_of_open(file), CWD, to, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from);
    match link(target) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        done => return done,
    }
    // A link cannot replace a file; a rename can. The lock delays the removal of temporary files until the rename.
    let _names = names();
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let named = builder().make_in(folder, |path| link(path)).map_err(without_path)?;
    named.persist(target).map(drop).map_err(|e| e.error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn count(folder: &tempfile::TempDir) -> usize {
        std::fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn a_named_file_is_known_until_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let known = || names().iter().filter(|name| name.starts_with(folder.path())).cloned().collect::<Vec<_>>();
        let target = folder.path().join("x");
        let named = Named::create(folder.path()).unwrap();
        named.file().write_all(b"new").unwrap();
        assert_eq!((known().len(), count(&folder)), (1, 1));
        named.persist(&target).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
        assert_eq!((known().len(), count(&folder)), (0, 1));
        drop(Named::create(folder.path()).unwrap());
        assert_eq!((known().len(), count(&folder)), (0, 1));
        // As in `remove_temporaries_and_exit`. Windows may keep the name of an open file until it is closed, as at the
        // end of a program.
        let (open, _) = Named::create(folder.path()).unwrap().0.take().unwrap().keep().unwrap();
        remove(&known());
        drop(open);
        assert_eq!(count(&folder), 1);
        names().retain(|name| !name.starts_with(folder.path()));
        // A file cannot replace a folder.
        let named = Named::create(folder.path()).unwrap();
        std::fs::create_dir(folder.path().join("y")).unwrap();
        assert!(named.persist(&folder.path().join("y")).is_err());
        assert_eq!((known().len(), count(&folder)), (0, 2));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_unnamed_file_is_seen_only_when_it_is_whole() {
        // The memory file system supports unnamed files on every kernel in use.
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let target = folder.path().join("x");
        for content in ["one", "two"] {
            let mut file = unnamed(folder.path()).unwrap();
            file.write_all(content.as_bytes()).unwrap();
            let before = std::fs::read_to_string(&target).ok();
            assert_eq!(count(&folder), usize::from(before.is_some()));
            assert_ne!(before.as_deref(), Some(content));
            name(&file, &target).unwrap();
            assert_eq!((std::fs::read_to_string(&target).unwrap().as_str(), count(&folder)), (content, 1));
        }
        // A file can neither replace a folder nor lie in one that does not exist.
        let file = unnamed(folder.path()).unwrap();
        std::fs::create_dir(folder.path().join("y")).unwrap();
        assert!(name(&file, &folder.path().join("y")).is_err());
        assert!(name(&file, &folder.path().join("no/z")).is_err());
        assert_eq!(count(&folder), 2);
        assert!(unnamed(&folder.path().join("no")).is_none());
    }
}
