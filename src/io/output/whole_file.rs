//! Result files that appear whole or not at all.
use crate::io::{Problem, Result};
use gmm_mcmc::temporary::Temporary;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A result file. [`create`](Self::create) checks, before the work starts, that it can be written.
/// [`write`](Self::write) fills a temporary file in the same folder and renames it to the result when the content is
/// complete. If anything fails earlier, an existing file stays as it was.
///
/// A device or a pipe, such as `/dev/stdout`, is written directly.
///
/// The [`Display`](fmt::Display) form is the path, with a remark if an older file is replaced.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    /// A regular file: its final place (links are followed), and whether an older file is there.
    Replace {
        target: PathBuf,
        exists: bool,
    },
    Direct(File),
}

impl Output {
    /// Checks that `path` can be written, and changes nothing there.
    ///
    /// # Errors
    /// If the path is a folder, or the folder of the file does not exist or cannot be written.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let sink = open(path).map_err(|e| Problem::io("write it")(e).at(path))?;
        Ok(Self { path: path.into(), sink })
    }

    /// Returns the path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets `write` write the content, and puts it in place. A second call replaces the content of the first.
    ///
    /// # Errors
    /// Errors of `write` or of the system, such as a full disk. The former content is then kept.
    pub fn write(&self, write: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>) -> Result<()> {
        let done = match &self.sink {
            Sink::Direct(file) => fill(file, write),
            Sink::Replace { target, .. } => replace(target, write),
        };
        done.map_err(|e| Problem::io("write it")(e).at(&self.path))
    }

    /// Returns the folder of the file, whose disk it takes; `None` for a device or a pipe.
    pub(super) fn folder(&self) -> Option<&Path> {
        match &self.sink {
            Sink::Replace { target, .. } => Some(folder(target)),
            Sink::Direct(_) => None,
        }
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replaced = matches!(self.sink, Sink::Replace { exists: true, .. });
        write!(f, "{}{}", self.path.display(), if replaced { ", in place of an older file" } else { "" })
    }
}

fn replace(target: &Path, write: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>) -> io::Result<()> {
    let temporary = Temporary::create(folder(target))?;
    fill(temporary.file(), write)?;
    temporary.persist(target)
}

fn fill(file: &File, write: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    write(&mut out)?;
    out.flush()
}

fn open(path: &Path) -> io::Result<Sink> {
    #[cfg(unix)]
    refuse_links_of_others(path, 0)?;
    let (target, exists) = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(metadata) if !metadata.is_file() => return File::options().write(true).open(path).map(Sink::Direct),
        Ok(_) => {
            // Fails for a write-protected file, which must not be replaced even if the folder allows it.
            File::options().append(true).open(path)?;
            (path.canonicalize()?, true)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => (path.to_path_buf(), false),
        Err(e) => return Err(e),
    };
    // Checks that a file can be created there. It is removed at once.
    Temporary::create(folder(&target))?;
    Ok(Sink::Replace { target, exists })
}

/// Refuses a path through another user's link in a folder where everybody may write, such as /tmp: it could lead to any
/// file that this user may write. Linux does the same if so configured (`fs.protected_symlinks`).
#[cfg(unix)]
fn refuse_links_of_others(path: &Path, depth: usize) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    /// The limit of Linux.
    const MAX_LINKS: usize = 40;
    /// Everybody may add files to the folder, and only their owners may remove them.
    const STICKY_AND_WRITABLE: u32 = 0o1002;
    for link in path.ancestors().filter(|part| !part.as_os_str().is_empty()) {
        let Some(found) = std::fs::symlink_metadata(link).ok().filter(std::fs::Metadata::is_symlink) else { continue };
        let (inside, own) = (std::fs::metadata(folder(link))?, rustix::process::geteuid().as_raw());
        let open_to_all = inside.mode() & STICKY_AND_WRITABLE == STICKY_AND_WRITABLE;
        if open_to_all && found.uid() != own && found.uid() != inside.uid() {
            let what =
                "it is a link of another user in a folder where everybody may write; remove it, or name another file";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        if depth < MAX_LINKS {
            refuse_links_of_others(&folder(link).join(std::fs::read_link(link)?), depth + 1)?;
        }
    }
    Ok(())
}

fn folder(target: &Path) -> &Path {
    target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_display_says_what_was_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.json");
        assert_eq!(Output::create(&path).unwrap().to_string(), path.display().to_string());
        std::fs::write(&path, "old").unwrap();
        let output = Output::create(&path).unwrap();
        assert_eq!(output.to_string(), format!("{}, in place of an older file", path.display()));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        // The first two calls replace a file, the last one makes a new one.
        for content in ["one", "two"] {
            output.write(|file| file.write_all(content.as_bytes())).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
        std::fs::remove_file(&path).unwrap();
        output.write(|file| file.write_all(b"three")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"three");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }
}
