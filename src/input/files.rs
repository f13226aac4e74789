//! Checks of the files that a command reads and writes.
use crate::terminal::text;
use anyhow::bail;
use gaussmix::io::{self, Data};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Makes sure that no result would replace an input or another result. To be called before the work starts.
pub fn refuse_overlap<'a>(
    outputs: impl IntoIterator<Item = Option<&'a PathBuf>>,
    inputs: impl IntoIterator<Item = Option<&'a PathBuf>>,
) -> anyhow::Result<()> {
    let inputs: Vec<PathBuf> = inputs.into_iter().flatten().filter_map(|path| real_path(path)).collect();
    let mut seen = Vec::new();
    for output in outputs.into_iter().flatten() {
        let Some(path) = real_path(output) else { continue };
        if inputs.contains(&path) {
            bail!("{}: is an input; name another file for the result", output.display());
        }
        if seen.contains(&path) {
            bail!("{}: is named for two results; name a file for each", output.display());
        }
        seen.push(path);
    }
    Ok(())
}

/// Reads data. A `.csv` may take at most `memory` bytes; if its first line looks like a header that was read as a sample, a note
/// says so.
pub fn read_data(path: &Path, memory: u64) -> io::Result<Data> {
    let data = io::read_data_within(path, memory)?;
    let csv = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("csv"));
    if let (true, Data::F64(x)) = (csv, &data)
        && x.nrows() > 1
        && is_count(&x.row(0).to_vec())
        && !has_header(path)
    {
        text::note(format_args!(
            "{}: the first line holds the numbers 0 to {} and was taken as a sample; if it is a header, delete it or put \
             names in place of the numbers",
            path.display(),
            x.ncols() - 1
        ));
    }
    Ok(data)
}

/// Whether a row is 0, 1, 2, …: pandas gives such names to columns that have none.
fn is_count(row: &[f64]) -> bool {
    row.len() > 1 && row.iter().enumerate().all(|(column, &v)| v == column as f64)
}

/// Whether the first line that is not empty begins with something other than a number. True if the file cannot be read again.
fn has_header(path: &Path) -> bool {
    let lines = File::open(path).ok().filter(|_| path.is_file()).map(|file| BufReader::new(file).lines());
    let first = lines.and_then(|lines| lines.map_while(Result::ok).find(|line| !line.trim().is_empty()));
    let field = first.as_deref().and_then(|line| line.split(',').next());
    field.is_none_or(|field| field.trim().trim_matches('"').trim().parse::<f64>().is_err())
}

/// The file that a path stands for, in one spelling, whether or not it exists yet. `None` for a device or a pipe.
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
