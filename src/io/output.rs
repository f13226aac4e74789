//! Files that appear whole or not at all.
use super::{Problem, Result};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A result file. That its place can be written to is found out before the work starts; what is written goes to a temporary
/// file beside it, which takes its name in one step when the content is complete. Until then, and when anything fails, an
/// existing file stays as it was.
///
/// Something that is no regular file (`/dev/stdout`, a pipe) is written to directly.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    /// The file to replace; a link is followed.
    Replace(PathBuf),
    Direct(File),
}

impl Output {
    /// Makes sure that `path` can be written, and changes nothing there.
    ///
    /// # Errors
    /// A folder that does not exist or cannot be written to; a path that is a folder.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let sink = open(path).map_err(|e| Problem::io("write it")(e).at(path))?;
        Ok(Self { path: path.into(), sink })
    }

    /// The path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the content with `write` and puts it in place; may be done again.
    ///
    /// # Errors
    /// What `write` returns, and what the system reports, a full disk for example; the former content is still there.
    pub fn write(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        let done = match &self.sink {
            Sink::Direct(file) => fill(file, write),
            Sink::Replace(target) => replace(target, write),
        };
        done.map_err(|e| Problem::io("write it")(e).at(&self.path))
    }
}

fn replace(target: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let temporary = temporary_beside(target)?;
    if let Ok(existing) = std::fs::metadata(target) {
        temporary.as_file().set_permissions(existing.permissions())?;
    }
    fill(temporary.as_file(), write)?;
    // The name must not reach the disk before the content.
    temporary.as_file().sync_all()?;
    temporary.persist(target).map(drop).map_err(|e| e.error)
}

fn fill(file: &File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    write(&mut out)?;
    out.flush()
}

fn open(path: &Path) -> io::Result<Sink> {
    let target = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(metadata) if !metadata.is_file() => return File::options().write(true).open(path).map(Sink::Direct),
        Ok(_) => {
            // A file that may not be written may not be replaced either, even where the folder would allow it.
            File::options().append(true).open(path)?;
            path.canonicalize()?
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => path.to_path_buf(),
        Err(e) => return Err(e),
    };
    // Only to see that it can be done: nothing is left when the program is interrupted before it writes.
    temporary_beside(&target)?;
    Ok(Sink::Replace(target))
}

fn temporary_beside(target: &Path) -> io::Result<NamedTempFile> {
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".gmm-").suffix(".part");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // What File::create would give (the umask applies), instead of tempfile's 0600.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}
