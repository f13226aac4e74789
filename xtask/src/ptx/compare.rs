//! Compares the committed archive with the source's kernels, one by one.
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use gmm_ptx::{Archive, Entry};

/// The committed archive.
pub fn archive_file(root: &Path) -> PathBuf {
    root.join("gmm-kernels/ptx.packed")
}

/// Returns the differences between an archive and the expected entries, a line for each kernel. Only the texts count:
/// other versions of the compressor may write other bytes.
pub fn differences(archive: Option<&Archive<'_>>, expected: &[Entry]) -> io::Result<Vec<String>> {
    let mut present = BTreeMap::new();
    if let Some(archive) = archive {
        for name in archive.names() {
            present.insert(name, archive.text(name)?.unwrap_or_default());
        }
    }
    let mut lines = Vec::new();
    for Entry { name, text } in expected {
        match present.remove(name.as_str()) {
            None => lines.push(format!("{name}: not in the archive; the source has {} bytes", text.len())),
            Some(found) if found != *text => lines.push(format!(
                "{name}: {} bytes in the archive, {} from the source; they differ from line {} on",
                found.len(),
                text.len(),
                1 + text.lines().zip(found.lines()).take_while(|(a, b)| a == b).count()
            )),
            Some(_) => {}
        }
    }
    lines.extend(present.iter().map(|(name, text)| format!("{name}: {} bytes, but not in the source", text.len())));
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmm_ptx::pack;

    fn entry(name: &str, text: &str) -> Entry {
        Entry { name: name.into(), text: text.into() }
    }

    #[test]
    fn each_difference_is_named_with_its_place() {
        let committed = [entry("changed", "a\nb\nc\n"), entry("old", "gone\n"), entry("same", "same\n")];
        let packed = pack(&committed).unwrap();
        let archive = Archive::open(&packed).unwrap();
        assert!(differences(Some(&archive), &committed).unwrap().is_empty());
        let expected = [entry("changed", "a\nB\nc\nd\n"), entry("new", "n\n"), entry("same", "same\n")];
        assert_eq!(
            differences(Some(&archive), &expected).unwrap(),
            [
                "changed: 6 bytes in the archive, 8 from the source; they differ from line 2 on",
                "new: not in the archive; the source has 2 bytes",
                "old: 5 bytes, but not in the source",
            ]
        );
        assert_eq!(differences(None, &expected).unwrap().len(), 3);
    }
}
