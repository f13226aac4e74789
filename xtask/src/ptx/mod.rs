//! From the kernels' source to the committed PTX.
//!
//! The kernels become one module of PTX (`compile`), which is split by entry, so that the driver compiles only the
//! kernels that a program launches, and packed into an archive (both in `gmm_ptx`). The result only depends on the
//! source and the compilers: it has no path, no hash and no numbering across the module.
mod assemble;
mod barriers;
mod compare;
mod compile;
pub mod machine_code;

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context, Result, bail};
use compare::archive_file;
use compile::{Warnings, compile};
pub use compile::{cargo, run};
use gmm_ptx::{Archive, Entry, pack, split};

/// The compiler and its version, for the first line of each kernel's text.
const MAKER: &str = "`cargo xtask ptx`";

/// Returns the differences between the committed archive and these entries. A missing file counts as an archive without
/// kernels.
fn differences(root: &Path, entries: &[Entry]) -> Result<Vec<String>> {
    let file = archive_file(root);
    let differences = match fs::read(&file) {
        Ok(bytes) => Archive::open(&bytes).and_then(|archive| compare::differences(Some(&archive), entries)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => compare::differences(None, entries),
        Err(error) => Err(error),
    };
    differences.with_context(|| format!("cannot read {}", file.display()))
}

/// Returns the source's kernels, without the marks of barriers, which change with each line added above; and the faults
/// that the marks show.
fn kernels(root: &Path, warnings: Warnings) -> Result<(Vec<Entry>, Vec<String>)> {
    let mut entries = split(&compile(root, warnings)?, MAKER)?;
    let problems = entries.iter().flat_map(barriers::problems).collect();
    for entry in &mut entries {
        entry.text = barriers::unmarked(&entry.text);
    }
    Ok((entries, problems))
}

/// Compiles the kernels, and updates the archive.
pub fn write(root: &Path) -> Result<()> {
    let (entries, _) = kernels(root, Warnings::Show)?;
    let file = archive_file(root);
    // An unreadable archive is replaced like one that differs.
    let changes = differences(root, &entries).unwrap_or_else(|error| vec![format!("{error:#}")]);
    if !changes.is_empty() {
        let folder = file.parent().context("the archive has no folder")?;
        let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
        temporary.write_all(&pack(&entries)?)?;
        // Temporary files are private to their owner; this one is part of the source.
        #[cfg(unix)]
        fs::set_permissions(temporary.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
        temporary.persist(&file).with_context(|| format!("cannot write {}", file.display()))?;
    }
    for change in &changes {
        println!("{change}");
    }
    let (unpacked, packed) = (entries.iter().map(|entry| entry.text.len()).sum::<usize>(), fs::metadata(&file)?.len());
    println!(
        "{} kernels, {} of them changed; {unpacked} bytes of PTX in {packed} bytes of {}",
        entries.len(),
        changes.len(),
        file.display()
    );
    Ok(())
}

/// Compiles the kernels, and fails unless the committed PTX is the same and passes all checks.
pub fn check(root: &Path) -> Result<()> {
    let (entries, of_barriers) = kernels(root, Warnings::Deny)?;
    let mut problems = differences(root, &entries)?;
    if !problems.is_empty() {
        problems.push("run `cargo xtask ptx` and commit what it writes".into());
    }
    problems.extend(of_barriers);
    let reports = assemble::assemble_all(root, &entries)?;
    print!("{}", assemble::table(&reports));
    problems.extend(reports.iter().flat_map(assemble::Report::problems));
    problems.extend(machine_code::problems(root)?);
    if !problems.is_empty() {
        bail!("the PTX fails its checks:\n  {}", problems.join("\n  "));
    }
    println!("{} kernels: the committed PTX matches the source and passes its checks", entries.len());
    Ok(())
}

/// Prints the committed PTX of one kernel.
pub fn show(root: &Path, name: &str) -> Result<()> {
    let file = archive_file(root);
    let cannot = || format!("cannot read {}", file.display());
    let bytes = fs::read(&file).with_context(cannot)?;
    let archive = Archive::open(&bytes).with_context(cannot)?;
    let Some(text) = archive.text(name).with_context(|| format!("cannot unpack `{name}`"))? else {
        let mut near: Vec<_> = archive.names().filter(|other| other.contains(name)).collect();
        if near.is_empty() {
            near = archive.names().collect();
        }
        bail!("no kernel is called `{name}`; give one of {}", near.join(", "));
    };
    print(text.as_bytes())
}

/// Prints all texts of an archive.
pub fn show_all(file: &Path) -> Result<()> {
    let cannot = || format!("cannot read {}", file.display());
    let bytes = fs::read(file).with_context(cannot)?;
    let archive = Archive::open(&bytes).with_context(cannot)?;
    let mut texts = String::new();
    for name in archive.names() {
        texts.push_str(&archive.text(name).with_context(cannot)?.unwrap_or_default());
    }
    print(texts.as_bytes())
}

fn print(bytes: &[u8]) -> Result<()> {
    match io::stdout().write_all(bytes) {
        // The reader of a pipe has closed it (`| head`).
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("cannot print"),
        _ => Ok(()),
    }
}
