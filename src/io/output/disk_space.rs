//! Checks that a disk can hold the results.
use super::Output;
use crate::io::{Problem, Result};
use gmm_host::memory::in_words;
use std::path::Path;

/// Checks that the disks have room for these results, each with its size in bytes. An older file that a result replaces
/// takes space until the new one is complete, so its space does not count as free. If the system does not report free
/// space, the check passes.
pub(super) fn check(results: &[(&Output, u64)]) -> Result<()> {
    check_with(results, disk)
}

fn check_with(results: &[(&Output, u64)], disk: impl Fn(&Path) -> Option<Disk>) -> Result<()> {
    // The disk and the bytes of each earlier result.
    let mut seen: Vec<(u64, u64)> = Vec::new();
    for (output, needed) in results {
        let Some(Disk { id, free }) = output.folder().and_then(&disk) else { continue };
        let before: u64 = seen.iter().filter(|(other, _)| *other == id).map(|(_, needed)| needed).sum();
        if needed.saturating_add(before) > free {
            let others =
                if before == 0 { String::new() } else { format!(", besides {} for another", in_words(before.into())) };
            return Err(Problem::Format(format!(
                "it needs {}{others}; the disk has {} free: make room or name a place on another disk",
                in_words((*needed).into()),
                in_words(free.into())
            ))
            .at(output.path()));
        }
        seen.push((id, *needed));
    }
    Ok(())
}

struct Disk {
    id: u64,
    /// Free bytes, without those reserved for the system's administrator.
    free: u64,
}

#[cfg(unix)]
fn disk(folder: &Path) -> Option<Disk> {
    use std::os::unix::fs::MetadataExt;
    let found = rustix::fs::statvfs(folder).ok()?;
    // Some network file systems do not count blocks and report a size of zero.
    (found.f_blocks > 0).then_some(())?;
    let id = std::fs::metadata(folder).ok()?.dev();
    Some(Disk { id, free: found.f_bavail.saturating_mul(found.f_frsize) })
}

/// A drive is identified by its letter; network drives are not checked.
#[cfg(windows)]
fn disk(folder: &Path) -> Option<Disk> {
    use std::path::{Component, Prefix};
    let folder = folder.canonicalize().ok()?;
    let Component::Prefix(prefix) = folder.components().next()? else { return None };
    let Prefix::VerbatimDisk(letter) = prefix.kind() else { return None };
    Some(Disk { id: letter.into(), free: fs4::available_space(&folder).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_on_one_disk_are_added() {
        let folder = tempfile::tempdir().unwrap();
        let output = |name: &str| Output::create(folder.path().join(name)).unwrap();
        let (a, b) = (output("a"), output("b"));
        let disk = |_: &Path| Some(Disk { id: 7, free: 3_000_000_000 });
        assert!(check_with(&[(&a, 1_000_000_000), (&b, 2_000_000_000)], disk).is_ok());
        let error = check_with(&[(&a, 1_000_000_000), (&b, 2_000_000_001)], disk).unwrap_err().to_string();
        assert!(
            error.contains("b: it needs 1.9 GiB, besides 953.7 MiB for another; the disk has 2.8 GiB free"),
            "{error}"
        );
        // Each result is on its own disk.
        let apart = std::cell::Cell::new(0);
        let disks = |_: &Path| {
            apart.set(apart.get() + 1);
            Some(Disk { id: apart.get(), free: 2_000_000_001 })
        };
        assert!(check_with(&[(&a, 1_000_000_000), (&b, 2_000_000_001)], disks).is_ok());
        assert!(check_with(&[(&a, u64::MAX)], |_: &Path| None).is_ok());
        assert!(check(&[(&a, u64::MAX)]).is_err());
        assert!(check(&[(&a, 1)]).is_ok());
    }
}
