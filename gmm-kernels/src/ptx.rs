//! The kernels as PTX, the text that a CUDA driver compiles for its GPU: from the archives that are
//! part of the program, or from one that replaces them.
use std::borrow::ToOwned as _;
use std::collections::BTreeMap;
use std::string::String;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::vec::Vec;
use std::{format, io, vec};

use gmm_ptx::Archive;

/// The committed PTX, made by `cargo xtask ptx`.
static COMMITTED: &[&[u8]] = include!("../ptx/list.rs");

/// The archives in use, set when a kernel is first asked for.
static IN_USE: OnceLock<Vec<Archive<'static>>> = OnceLock::new();

fn archives() -> &'static [Archive<'static>] {
    // The tests below unpack all of them, so that opening them does not fail.
    IN_USE.get_or_init(|| COMMITTED.iter().filter_map(|bytes| Archive::open(bytes).ok()).collect())
}

/// Returns the PTX of a kernel: a module with this one entry. `None` if there is no such kernel. A text is unpacked at
/// the first request, and stays in memory until the process ends.
///
/// ```
/// let ptx = gmm_kernels::ptx::entry("pair").expect("a kernel of this name");
/// assert!(ptx.contains(".visible .entry pair("));
/// ```
#[must_use]
pub fn entry(name: &str) -> Option<&'static str> {
    static UNPACKED: Mutex<BTreeMap<String, &'static str>> = Mutex::new(BTreeMap::new());
    // A thread that panicked with the lock leaves the map consistent: each change is one insertion.
    let mut unpacked = UNPACKED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(text) = unpacked.get(name) {
        return Some(text);
    }
    let text: &'static str = String::leak(archives().iter().find_map(|archive| archive.text(name).ok()?)?);
    unpacked.insert(name.to_owned(), text);
    Some(text)
}

/// Returns a number that changes with the PTX of a kernel, without unpacking it; `None` if there is no such kernel.
#[must_use]
pub fn checksum(name: &str) -> Option<u32> {
    archives().iter().find_map(|archive| archive.checksum(name))
}

/// Returns the names of all kernels, sorted.
#[must_use]
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = archives().iter().flat_map(Archive::names).collect();
    names.sort_unstable();
    names
}

/// Uses another archive than the committed ones, for the rest of the process: for kernels that
/// another compiler made. To be called before any kernel is asked for, so at the start of a
/// program.
///
/// # Errors
/// The archive is damaged, or a kernel has been requested before.
pub fn replace(bytes: &'static [u8]) -> io::Result<()> {
    let archive = Archive::open(bytes)?;
    for name in archive.names() {
        archive.text(name).map_err(|error| io::Error::new(error.kind(), format!("the PTX of `{name}`: {error}")))?;
    }
    IN_USE.set(vec![archive]).map_err(|_| io::Error::other("the kernels cannot be replaced after one of them was used"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_name_has_its_entry_alone() {
        let names = names();
        assert!(names.len() > 100 && names.contains(&"pair"));
        for name in names {
            let ptx = entry(name).unwrap();
            assert!(ptx.contains(&format!(".visible .entry {name}(")), "{name}");
            assert_eq!(ptx.matches(".entry ").count(), 1, "{name}");
            assert!(checksum(name).is_some());
        }
        for unknown in ["pai", "", "pair.ptx"] {
            assert!(entry(unknown).is_none() && checksum(unknown).is_none());
        }
    }

    #[test]
    fn a_text_is_unpacked_once() {
        assert!(std::ptr::eq(entry("pair").unwrap(), entry("pair").unwrap()));
    }

    /// A replacement before the first use needs a process without other tests: `tests/replace.rs`.
    #[test]
    fn a_replacement_comes_before_the_first_use() {
        assert!(entry("pair").is_some());
        assert_eq!(replace(COMMITTED[0]).unwrap_err().kind(), io::ErrorKind::Other);
        assert!(replace(&COMMITTED[0][100..200]).is_err());
    }

    /// All kernels in one module, as from rust-cuda, are split into the committed ones.
    #[test]
    fn kernels_that_were_joined_come_apart_again() {
        let names = ["density_diag_f32", "pair", "posterior_f64", "reduce_sets", "weighted_sums_diag_raw"];
        let kernels = names.map(|name| entry(name).unwrap());
        // In an archive's text an empty line precedes each item.
        let header_and_items = |text: &'static str| {
            let (header, items) = text.trim_end().split_once("\n\n").unwrap();
            (header, items.split("\n\n").collect::<Vec<_>>())
        };
        let mut module = String::new();
        let mut seen = BTreeSet::new();
        for (number, kernel) in kernels.iter().enumerate() {
            let (header, items) = header_and_items(kernel);
            if module.is_empty() {
                module.push_str(header);
            }
            for item in items {
                // Numbers are unique within a module, and items that kernels share occur once.
                let item =
                    item.replace("BB0_", &format!("BB{number}_")).replace("constant_", &format!("alloc_{number}"));
                if !seen.contains(&item) {
                    module.push('\n');
                    module.push_str(&item);
                    seen.insert(item);
                }
            }
        }
        let entries = gmm_ptx::split(&module, "`cargo xtask ptx`").unwrap();
        assert_eq!(entries.len(), names.len());
        for ((name, kernel), entry) in names.iter().zip(kernels).zip(entries) {
            assert_eq!(entry.name, *name);
            // A function that several kernels call may be at another place than in the kernel's own module.
            let sorted = |text: &'static str| {
                let (header, items) = header_and_items(text);
                (header, items.into_iter().collect::<BTreeSet<_>>())
            };
            assert!(sorted(entry.text.leak()) == sorted(kernel), "{name} is not what was joined");
        }
    }
}
