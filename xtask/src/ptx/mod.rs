//! From the kernels' source to the committed PTX.
//!
//! The kernels become one module of PTX (`compile`), which is split by entry, so that the driver
//! compiles only what a program launches, and packed into archives (both in `gmm_ptx`).
//! The result depends on the source and the compilers alone: it has no path, no hash and no
//! numbering of the module as a whole.
mod assemble;
mod barriers;
mod compare;
mod compile;
pub mod machine_code;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context, Result, bail};
use compare::{FOLDER, archives, committed, differences, read};
use compile::{Warnings, compile};
pub use compile::{cargo, run};
use gmm_ptx::{Entry, pack, split};

/// The compiler and its version, for the first line of each kernel's text.
const MAKER: &str = "`cargo xtask ptx`";

/// What the source gives, without the marks of barriers, which would change with each line that is
/// added before one; and what the marks say is wrong.
fn kernels(root: &Path, warnings: Warnings) -> Result<(Vec<Entry>, Vec<String>)> {
    let mut entries = split(&compile(root, warnings)?, MAKER)?;
    let problems = entries.iter().flat_map(barriers::problems).collect();
    for entry in &mut entries {
        entry.text = barriers::unmarked(&entry.text);
    }
    Ok((entries, problems))
}

/// Compiles the kernels, and makes the archives hold what the source gives.
pub fn write(root: &Path) -> Result<()> {
    let (entries, _) = kernels(root, Warnings::Show)?;
    let mut files = BTreeMap::<_, Vec<_>>::new();
    for entry in &entries {
        let family = entry.name.rsplit_once('_').map_or(&*entry.name, |(family, _)| family);
        files.entry(root.join(FOLDER).join(format!("{family}.packed"))).or_default().push(entry.clone());
    }
    for file in archives(root)?.iter().filter(|file| !files.contains_key(*file)) {
        fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display()))?;
        println!("{} is gone", file.display());
    }
    let mut list = String::from("&[\n");
    let (mut changed, mut unpacked, mut packed) = (0, 0, 0);
    for (file, entries) in files {
        // An archive that cannot be read is replaced like one that differs.
        let differences = differences(&read(&file).unwrap_or_default(), &entries);
        if !differences.is_empty() {
            fs::write(&file, pack(&entries)?).with_context(|| format!("cannot write {}", file.display()))?;
        }
        differences.iter().for_each(|difference| println!("{difference}"));
        list += &format!("    include_bytes!({:?}),\n", file.file_name().unwrap_or_default());
        changed += differences.len();
        unpacked += entries.iter().map(|entry| entry.text.len()).sum::<usize>();
        packed += fs::metadata(&file)?.len();
    }
    fs::write(root.join(FOLDER).join("list.rs"), list + "]\n")
        .with_context(|| format!("cannot write {FOLDER}/list.rs"))?;
    println!(
        "{} kernels, {changed} of them changed; {unpacked} bytes of PTX in {packed} bytes of {FOLDER}",
        entries.len()
    );
    Ok(())
}

/// Compiles the kernels, and fails unless the committed PTX is the same and passes all checks.
pub fn check(root: &Path) -> Result<()> {
    let (entries, of_barriers) = kernels(root, Warnings::Deny)?;
    let mut problems = differences(&committed(root)?, &entries);
    if !problems.is_empty() {
        problems.push("run `cargo xtask ptx` and commit what it writes".into());
    }
    problems.extend(of_barriers);
    let reports = assemble::assemble_all(root, &entries)?;
    print!("{}", assemble::table(&reports));
    problems.extend(reports.iter().flat_map(assemble::Report::problems));
    machine_code::check(root, &entries)?;
    if !problems.is_empty() {
        bail!("the PTX fails its checks:\n  {}", problems.join("\n  "));
    }
    println!("{} kernels: the committed PTX matches the source and passes its checks", entries.len());
    Ok(())
}

/// Prints the committed PTX of one kernel.
pub fn show(root: &Path, name: &str) -> Result<()> {
    let entries = committed(root)?;
    if let Some(entry) = entries.iter().find(|entry| entry.name == name) {
        return print(entry.text.as_bytes());
    }
    let names = || entries.iter().map(|entry| entry.name.as_str());
    let mut near: Vec<_> = names().filter(|other| other.contains(name)).collect();
    if near.is_empty() {
        near = names().collect();
    }
    bail!("there is no kernel `{name}`; there is {}", near.join(", "))
}

/// Prints all texts of an archive.
pub fn show_all(file: &Path) -> Result<()> {
    print(read(file)?.into_iter().map(|entry| entry.text).collect::<String>().as_bytes())
}

fn print(bytes: &[u8]) -> Result<()> {
    match io::stdout().write_all(bytes) {
        // The reader of a pipe has closed it (`| head`).
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("cannot print"),
        _ => Ok(()),
    }
}
