//! Reads the committed kernels, and compares them with what the source gives, one by one.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result};
use gmm_ptx::{Archive, Entry};

/// The folder of the committed archives, and of `list.rs`, which embeds them.
pub const FOLDER: &str = "gmm-kernels/ptx";

/// The committed archives. One holds the kernels whose names differ behind the last `_` alone.
pub fn archives(root: &Path) -> Result<Vec<PathBuf>> {
    let cannot = || format!("cannot list {FOLDER}");
    let files = fs::read_dir(root.join(FOLDER)).with_context(cannot)?.map(|file| Ok(file?.path()));
    let mut files = files.collect::<io::Result<Vec<_>>>().with_context(cannot)?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "packed"));
    files.sort();
    Ok(files)
}

/// The kernels of an archive.
pub fn read(file: &Path) -> Result<Vec<Entry>> {
    let read = || -> io::Result<_> {
        let bytes = fs::read(file)?;
        let archive = Archive::open(&bytes)?;
        let entry = |name: &str| Ok(Entry { name: name.into(), text: archive.text(name)?.unwrap_or_default() });
        archive.names().map(entry).collect()
    };
    read().with_context(|| format!("cannot read {}", file.display()))
}

/// The committed kernels.
pub fn committed(root: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for file in archives(root)? {
        entries.extend(read(&file)?);
    }
    Ok(entries)
}

/// The differences between the committed entries and the expected ones, a line for each kernel. The
/// texts count, not the archives: other versions of the compressor may give other bytes.
pub fn differences(committed: &[Entry], expected: &[Entry]) -> Vec<String> {
    let mut present: BTreeMap<_, _> = committed.iter().map(|entry| (&*entry.name, &*entry.text)).collect();
    let mut lines = Vec::new();
    for Entry { name, text } in expected {
        match present.remove(name.as_str()) {
            None => lines.push(format!("{name}: not committed; the source gives {} bytes", text.len())),
            Some(found) if found != *text => lines.push(format!(
                "{name}: {} bytes committed, {} from the source; they differ from line {} on",
                found.len(),
                text.len(),
                1 + text.lines().zip(found.lines()).take_while(|(a, b)| a == b).count()
            )),
            Some(_) => {}
        }
    }
    lines.extend(present.iter().map(|(name, text)| format!("{name}: {} bytes of no kernel in the source", text.len())));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, text: &str) -> Entry {
        Entry { name: name.into(), text: text.into() }
    }

    #[test]
    fn each_difference_is_named_with_its_place() {
        let committed = [entry("changed", "a\nb\nc\n"), entry("old", "gone\n"), entry("same", "same\n")];
        assert!(differences(&committed, &committed).is_empty());
        let expected = [entry("changed", "a\nB\nc\nd\n"), entry("new", "n\n"), entry("same", "same\n")];
        assert_eq!(
            differences(&committed, &expected),
            [
                "changed: 6 bytes committed, 8 from the source; they differ from line 2 on",
                "new: not committed; the source gives 2 bytes",
                "old: 5 bytes of no kernel in the source",
            ]
        );
        assert_eq!(differences(&[], &expected).len(), 3);
    }
}
