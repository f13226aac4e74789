//! Checks of the files that a command reads and writes.
use crate::terminal::text;
use anyhow::bail;
use gaussmix::io::{self, Table};
use ndarray::Array1;
use std::path::{Path, PathBuf};

/// Refuses a result that would replace an input or another result, or lie in a folder of inputs. Call it before the
/// work starts.
pub fn refuse_overlap<'a>(
    outputs: impl IntoIterator<Item = Option<&'a PathBuf>>,
    inputs: impl IntoIterator<Item = Option<&'a PathBuf>>,
) -> anyhow::Result<()> {
    let inputs: Vec<&PathBuf> = inputs.into_iter().flatten().collect();
    let folders: Vec<PathBuf> =
        inputs.iter().filter(|path| path.is_dir()).filter_map(|path| path.canonicalize().ok()).collect();
    let inputs: Vec<PathBuf> = inputs.into_iter().filter_map(|path| real_path(path)).collect();
    let mut seen = Vec::new();
    for output in outputs.into_iter().flatten() {
        let Some(path) = real_path(output) else { continue };
        if inputs.contains(&path) {
            bail!("{}: is an input; name another file for the result", output.display());
        }
        if folders.iter().any(|folder| path.starts_with(folder)) {
            bail!("{}: lies in a folder that is an input; name another place for the result", output.display());
        }
        if seen.contains(&path) {
            bail!("{}: is named for two results; name a file for each", output.display());
        }
        seen.push(path);
    }
    Ok(())
}

/// Prints how the table was read, if that may surprise, and the columns left out because the model lacks them.
pub fn note_columns(table: &Table, data: &str) {
    for remark in table.remarks() {
        text::note(format_args!("{data}: {remark}"));
    }
}

/// Returns the numbers of a file with one for each sample, after notes on how it is read.
pub fn read_vector(path: &Path) -> io::Result<Array1<f64>> {
    let table = Table::open_vector(path)?;
    note_columns(&table, &path.display().to_string());
    table.read_vector()
}

/// Returns the canonical path of a file, which need not exist yet, or `None` for a device or a pipe.
fn real_path(path: &Path) -> Option<PathBuf> {
    match path.metadata() {
        Ok(found) if !found.is_file() => None,
        Ok(_) => path.canonicalize().ok(),
        Err(_) => {
            let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Some(folder.canonicalize().ok()?.join(path.file_name()?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_found_through_other_spellings() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("in"), "").unwrap();
        std::fs::create_dir(path("sub")).unwrap();
        let check = |outputs: &[PathBuf]| {
            refuse_overlap(outputs.iter().map(Some), [Some(&path("in")), None]).map_err(|e| e.to_string())
        };
        assert_eq!(check(&[path("a"), path("b"), path("sub/a")]), Ok(()));
        assert!(check(&[path("sub/../in")]).unwrap_err().contains("is an input"));
        assert!(check(&[path("a"), path("sub/../a")]).unwrap_err().contains("two results"));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("in", path("link")).unwrap();
            assert!(check(&[path("link")]).unwrap_err().contains("is an input"));
            assert_eq!(check(&["/dev/null".into(), "/dev/null".into()]), Ok(()));
        }
    }
}
