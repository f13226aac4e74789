//! Files that appear whole or not at all.
use super::temporary::Temporary;
use super::{Problem, Result, space};
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A result file. That its place can be written to is found out before the work starts; what is written goes to a temporary
/// file in the same folder, without a name where the system has such files, which takes the result's name in one step when
/// the content is complete. Until then, and when anything fails, an existing file stays as it was.
///
/// Something that is no regular file (`/dev/stdout`, a pipe) is written to directly.
///
/// Its [`Display`](fmt::Display) is the path, with the remark that an older file was replaced where there was one.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    /// The file to replace (a link is followed), and whether there was one.
    Replace(PathBuf, bool),
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
            Sink::Replace(target, _) => replace(target, write),
        };
        done.map_err(|e| Problem::io("write it")(e).at(&self.path))
    }

    /// The folder whose disk the content takes space on; none for a pipe, a device and the like.
    pub(super) fn folder(&self) -> Option<&Path> {
        match &self.sink {
            Sink::Replace(target, _) => Some(folder(target)),
            Sink::Direct(_) => None,
        }
    }

    /// Refuses to begin what the disk cannot hold: `needed` bytes, besides what other results take there.
    pub(super) fn check_space(&self, needed: u64) -> Result<()> {
        space::check(&[(self, needed)])
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replaced = matches!(self.sink, Sink::Replace(_, true));
        write!(f, "{}{}", self.path.display(), if replaced { ", in place of an older file" } else { "" })
    }
}

fn replace(target: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let temporary = Temporary::create(folder(target))?;
    if let Ok(existing) = std::fs::metadata(target) {
        temporary.file().set_permissions(existing.permissions())?;
    }
    fill(temporary.file(), write)?;
    // The name must not reach the disk before the content.
    temporary.file().sync_all()?;
    temporary.persist(target)
}

fn fill(file: &File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    write(&mut out)?;
    out.flush()
}

fn open(path: &Path) -> io::Result<Sink> {
    let (target, there) = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(metadata) if !metadata.is_file() => return File::options().write(true).open(path).map(Sink::Direct),
        Ok(_) => {
            // A file that may not be written may not be replaced either, even where the folder would allow it.
            File::options().append(true).open(path)?;
            (path.canonicalize()?, true)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => (path.to_path_buf(), false),
        Err(e) => return Err(e),
    };
    // Only to see that it can be done: nothing is left when the program is interrupted before it writes.
    Temporary::create(folder(&target))?;
    Ok(Sink::Replace(target, there))
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
        // Again and again, over a file that is there and one that is not.
        for content in ["one", "two"] {
            output.write(|file| file.write_all(content.as_bytes())).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
        std::fs::remove_file(&path).unwrap();
        output.write(|file| file.write_all(b"three")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"three");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn new_files_are_as_readable_as_others_and_old_ones_stay_so() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mode = |name: &str| std::fs::metadata(path(name)).unwrap().permissions().mode() & 0o777;
        std::fs::write(path("plain"), "").unwrap();
        Output::create(path("new")).unwrap().write(|file| file.write_all(b"x")).unwrap();
        assert_eq!(mode("new"), mode("plain"));
        std::fs::write(path("old"), "").unwrap();
        std::fs::set_permissions(path("old"), std::fs::Permissions::from_mode(0o640)).unwrap();
        Output::create(path("old")).unwrap().write(|file| file.write_all(b"x")).unwrap();
        assert_eq!(mode("old"), 0o640);
    }

    #[test]
    fn errors_name_the_result_and_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("no").join("m.json");
        let error = Output::create(&path).unwrap_err().to_string();
        assert!(error.contains("m.json: cannot write it: No such file") || cfg!(windows), "{error}");
        assert!(!error.contains(".part") && !error.contains(".gmm-"), "{error}");
    }
}
