//! Whether a disk can hold what is to be written.
use super::{Output, Problem, Result};
use std::path::Path;

/// Refuses results that their disks cannot hold, `needed` bytes each, before any of them is begun. A file that is replaced
/// keeps its space until the new one is complete. Where the system does not tell what is free, nothing is refused.
pub(super) fn check(results: &[(&Output, u64)]) -> Result<()> {
    check_with(results, disk)
}

fn check_with(results: &[(&Output, u64)], disk: impl Fn(&Path) -> Option<Disk>) -> Result<()> {
    let mut seen: Vec<(u64, u64)> = Vec::new();
    for (output, needed) in results {
        let Some(Disk { id, free }) = output.folder().and_then(&disk) else { continue };
        let before: u64 = seen.iter().filter(|(other, _)| *other == id).map(|(_, needed)| needed).sum();
        if needed.saturating_add(before) > free {
            let others = if before == 0 { String::new() } else { format!(", besides {} for another", words(before)) };
            return Err(Problem::Format(format!(
                "it needs {}{others}; the disk has {} free: make room or name a place on another disk",
                words(*needed),
                words(free)
            ))
            .at(output.path()));
        }
        seen.push((id, *needed));
    }
    Ok(())
}

struct Disk {
    id: u64,
    /// Bytes for those who are not the system's administrator.
    free: u64,
}

#[cfg(unix)]
fn disk(folder: &Path) -> Option<Disk> {
    use std::os::unix::fs::MetadataExt;
    let found = rustix::fs::statvfs(folder).ok()?;
    // Network file systems that count no blocks say zero.
    (found.f_blocks > 0).then_some(())?;
    let id = std::fs::metadata(folder).ok()?.dev();
    Some(Disk { id, free: found.f_bavail.saturating_mul(found.f_frsize) })
}

#[cfg(not(unix))]
fn disk(_: &Path) -> Option<Disk> {
    None
}

/// `999 bytes`, `1.5 kB`, `2.0 GB`: powers of 1000, as disks are sold.
fn words(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, "bytes");
    for larger in ["kB", "MB", "GB", "TB", "PB", "EB"] {
        if value < 999.95 {
            break;
        }
        (value, unit) = (value / 1000.0, larger);
    }
    if unit == "bytes" { format!("{bytes} bytes") } else { format!("{value:.1} {unit}") }
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
        assert!(error.contains("b: it needs 2.0 GB, besides 1.0 GB for another; the disk has 3.0 GB free"), "{error}");
        // Disks of their own.
        let apart = std::cell::Cell::new(0);
        let disks = |_: &Path| {
            apart.set(apart.get() + 1);
            Some(Disk { id: apart.get(), free: 2_000_000_001 })
        };
        assert!(check_with(&[(&a, 1_000_000_000), (&b, 2_000_000_001)], disks).is_ok());
        assert!(check_with(&[(&a, u64::MAX)], |_: &Path| None).is_ok());
        assert!(check(&[(&a, u64::MAX)]).is_err() || cfg!(not(unix)));
        assert!(check(&[(&a, 1)]).is_ok());
    }

    #[test]
    fn sizes_in_words() {
        for (bytes, text) in [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (999_960, "1.0 MB")] {
            assert_eq!(words(bytes), text);
        }
        assert_eq!(words(u64::MAX), "18.4 EB");
    }
}
