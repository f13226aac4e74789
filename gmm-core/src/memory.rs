//! Checks of the available memory before an allocation: a failed allocation ends the process, and so does a system that
//! has promised more memory than it has.
pub mod groups;

pub use crate::error::in_words;
use crate::error::{Error, Result};
use groups::Limit;
use std::hint::black_box;
use std::path::Path;
use sysinfo::{MemoryRefreshKind, ProcessRefreshKind, ProcessesToUpdate, RefreshKind, System};

/// Allocations below this size are not checked.
const SMALL: u128 = 64 << 20;

/// Checks that an array of `shape`, with `element` bytes per element, fits into the available memory. `what` names the
/// array in the error, in the plural ("the draws of the missing values"); `remedy` says what the caller can do.
///
/// Shapes below 64 MiB are not checked, so that small calls need not ask the system.
///
/// ```
/// use gmm_host::{Error, memory};
///
/// assert!(memory::check("the samples", &[1000, 3], 8, "draw fewer").is_ok());
/// let error = memory::check("the samples", &[usize::MAX, 3], 8, "draw fewer").unwrap_err();
/// assert!(matches!(error, Error::Memory { .. }));
/// ```
///
/// # Errors
/// [`Error::Memory`].
pub fn check(what: &str, shape: &[usize], element: usize, remedy: &str) -> Result<()> {
    // A saturated number is more than any machine has.
    let needed = shape.iter().fold(element as u128, |bytes, &length| bytes.saturating_mul(length as u128));
    if needed < SMALL {
        return Ok(());
    }
    let available = available();
    // Without overcommitment only an allocation tells. The compiler must not remove it as unused.
    let given = || usize::try_from(needed).is_ok_and(|n| black_box(&mut Vec::<u8>::new()).try_reserve_exact(n).is_ok());
    if available.is_none_or(|available| needed <= available.into()) && given() {
        return Ok(());
    }
    Err(Error::Memory { what: what.into(), shape: shape.to_vec(), needed, available, remedy: remedy.into() })
}

/// Returns the memory that this process may use, in bytes: the machine's, or a lower limit of the process or its
/// control groups (`ulimit -v`, cgroups). `None` if the system does not tell.
pub fn total() -> Option<u64> {
    let system = system(MemoryRefreshKind::nothing().with_ram())?;
    let total = Some(system.total_memory()).filter(|&bytes| bytes > 0)?;
    Some(limits(system).into_iter().fold(total, |total, limit| total.min(limit.total)))
}

/// Returns half of [`total`], in bytes: the default limit of the program `gmm` and the Python package for data and its
/// copies. If the system does not tell its memory, 8 GiB is assumed.
pub fn half() -> u64 {
    total().unwrap_or(8 << 30) / 2
}

/// Returns the memory left of [`total`], in bytes, with swap space if no lower limit holds; `None` if unknown.
pub fn available() -> Option<u64> {
    let system = system(MemoryRefreshKind::everything())?;
    let left = Some(system.available_memory()).filter(|&bytes| bytes > 0)?;
    let left = left.saturating_add(system.free_swap());
    Some(limits(system).into_iter().fold(left, |left, limit| left.min(limit.left)))
}

fn system(what: MemoryRefreshKind) -> Option<System> {
    System::new_with_specifics(RefreshKind::nothing().with_memory(what)).ok()
}

fn limits(mut system: System) -> Vec<Limit> {
    let mut limits = groups::limits(Path::new("/"), system.free_swap());
    if let (Some(total), Ok(pid)) = (address_space(), sysinfo::get_current_pid()) {
        let memory = ProcessRefreshKind::nothing().with_memory().without_tasks();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), false, memory);
        let taken = system.process(pid).map_or(0, |process| process.virtual_memory());
        limits.push(Limit { total, left: total.saturating_sub(taken) });
    }
    limits
}

/// Returns the limit of this process's address space, in bytes (`ulimit -v`).
fn address_space() -> Option<u64> {
    #[cfg(unix)]
    return rustix::process::getrlimit(rustix::process::Resource::As).current;
    #[cfg(not(unix))]
    None
}

/// Asks the system for large pages for long memory that is still to be written: in small ones, an array of 512 MB takes
/// 180 ms to write for the first time, in large ones 32.
pub fn use_large_pages<T>(memory: &mut [T]) {
    #[cfg(target_os = "linux")]
    {
        /// A multiple of the size of small pages.
        const PAGE: usize = 1 << 16;
        let range = memory.as_mut_ptr_range();
        let start = range.start.cast::<u8>();
        let start = start.wrapping_add(start.align_offset(PAGE));
        let len = range.end.addr().saturating_sub(start.addr()) / PAGE * PAGE;
        if len >= 4 << 20 {
            // SAFETY: pages of the borrowed memory, whose content this does not change.
            // A system without large pages refuses, so the outcome does not matter.
            let _ = unsafe { rustix::mm::madvise(start.cast(), len, rustix::mm::Advice::LinuxHugepage) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_in_large_pages_keeps_its_content() {
        for len in [0, 3, 1 << 20, 12_345_678] {
            let mut memory: Vec<u16> = (0..len).map(|i| i as u16).collect();
            use_large_pages(&mut memory);
            assert!(memory.iter().enumerate().all(|(i, v)| *v == i as u16));
        }
    }

    #[test]
    fn the_machine_has_memory() {
        let (total, available) = (total().unwrap(), available().unwrap());
        assert!(total > 1 << 27 && available > 1 << 24, "{total} {available}");
    }

    #[test]
    fn more_than_there_is_is_an_error_and_less_is_not() {
        let free = available().unwrap() as usize;
        assert!(check("the samples", &[free / 4, 1], 1, "draw fewer").is_ok());
        // Far enough from the size above for other processes to take and free memory meanwhile.
        for shape in [vec![8 * free, 1], vec![usize::MAX, usize::MAX, usize::MAX, 3], vec![1 << 40, 1 << 10]] {
            let error = check("the samples", &shape, 8, "draw fewer").unwrap_err();
            let text = error.to_string();
            assert!(text.starts_with(&format!("the samples, of shape {shape:?}, take ")), "{text}");
            assert!(text.ends_with("; draw fewer"), "{text}");
        }
        assert!(check("the samples", &[usize::MAX, 0], 8, "draw fewer").is_ok());
    }
}
