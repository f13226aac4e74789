//! The kernels of `gmm-kernels` as machine code, one archive for each kind of GPU (`cargo xtask machine-code`).
use std::sync::OnceLock;

use gmm_ptx::machine_code::Archive;

struct Card {
    capability: (u32, u32),
    bytes: &'static [u8],
    archive: OnceLock<Option<Archive<'static>>>,
}

macro_rules! card {
    ($major:literal, $minor:literal, $file:literal) => {
        Card { capability: ($major, $minor), bytes: include_bytes!($file), archive: OnceLock::new() }
    };
}

static CARDS: [Card; 4] = [
    card!(8, 0, "../cards/sm_80"),
    card!(9, 0, "../cards/sm_90"),
    card!(10, 0, "../cards/sm_100"),
    card!(12, 0, "../cards/sm_120"),
];

/// Returns the compute capability whose code a GPU runs: the newest of its major version that is not newer.
fn choice(of: impl Iterator<Item = (u32, u32)>, gpu: (u32, u32)) -> Option<(u32, u32)> {
    of.filter(|&(major, minor)| major == gpu.0 && minor <= gpu.1).max()
}

/// Returns the machine code of a kernel for a GPU of this compute capability, compiled with this limit of registers.
/// `ptx` is the CRC-32 of the kernel's PTX. `None` if there is no code, or only code made from another PTX.
///
/// ```
/// assert!(gmm_machine_code::code((7, 5), "reduce_sets", None, 0).is_none());
/// ```
#[must_use]
pub fn code(gpu: (u32, u32), name: &str, registers: Option<u32>, ptx: u32) -> Option<Vec<u8>> {
    let archive = archive(gpu)?;
    // The tests below unpack everything, so this does not fail.
    if archive.checksum(name, registers)? == ptx { archive.code(name, registers).ok()? } else { None }
}

/// Returns the archive that a GPU of this compute capability runs.
#[must_use]
pub fn archive(gpu: (u32, u32)) -> Option<&'static Archive<'static>> {
    let chosen = choice(CARDS.iter().map(|card| card.capability), gpu)?;
    let card = CARDS.iter().find(|card| card.capability == chosen)?;
    card.archive.get_or_init(|| Archive::open(card.bytes).ok()).as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_runs_machine_code_of_its_major_version_that_is_not_newer() {
        let all = || [(8, 0), (8, 6), (9, 0)].into_iter();
        assert_eq!(choice(all(), (8, 0)), Some((8, 0)));
        assert_eq!(choice(all(), (8, 6)), Some((8, 6)));
        assert_eq!(choice(all(), (8, 5)), Some((8, 0)));
        assert_eq!(choice(all(), (8, 9)), Some((8, 6)));
        for none in [(7, 5), (9, 1), (10, 0)] {
            assert_eq!(choice(all().filter(|&of| of != (9, 0)), none), None);
        }
        assert!(archive((8, 9)).is_some() && archive((10, 3)).is_some() && archive((7, 5)).is_none());
        assert!(archive((11, 0)).is_none());
    }

    /// Every kernel of the committed PTX is there, the warpgroup kernels for 9.0 only.
    #[test]
    fn the_machine_code_was_made_from_the_ptx() {
        for card in &CARDS {
            let archive = archive(card.capability).unwrap();
            let mut without: std::collections::BTreeSet<_> = gmm_kernels::ptx::names().into_iter().collect();
            for ((name, _), ptx) in archive.kernels() {
                assert_eq!(gmm_kernels::ptx::checksum(name), Some(ptx), "{name}: run `cargo xtask machine-code`");
                without.remove(name.as_str());
            }
            for name in without {
                assert_ne!(card.capability, (9, 0), "{name}");
                assert!(gmm_kernels::ptx::entry(name).unwrap().contains(".target sm_90a\n"), "{name}");
            }
        }
    }

    #[test]
    fn each_kernel_unpacks_to_an_elf_file() {
        for card in &CARDS {
            let archive = archive(card.capability).unwrap();
            assert!(archive.kernels().count() > 300);
            let mut limited = None;
            for ((name, registers), ptx) in archive.kernels().step_by(7) {
                let code = code(card.capability, name, *registers, ptx).unwrap();
                assert!(code.starts_with(b"\x7fELF"), "{name}");
                assert_eq!(super::code(card.capability, name, *registers, ptx ^ 1), None);
                assert_eq!(super::code(card.capability, name, Some(7), ptx), None);
                limited = limited.or(*registers);
            }
            assert!(limited.is_some());
        }
    }
}
