//! The kernels of `gmm-kernels` as machine code, made by `cargo xtask machine-code` for releases: an
//! archive for each kind of GPU, which is part of the program. A clone has none until it is made.
use std::sync::OnceLock;

use gmm_ptx::machine_code::Archive;

struct Card {
    capability: (u32, u32),
    bytes: &'static [u8],
    archive: OnceLock<Option<Archive<'static>>>,
}

macro_rules! card {
    ($major:literal, $minor:literal, $file:literal) => {
        Card {
            capability: ($major, $minor),
            bytes: include_bytes!(concat!(env!("OUT_DIR"), "/", $file)),
            archive: OnceLock::new(),
        }
    };
}

static CARDS: [Card; 4] = [card!(8, 0, "sm_80"), card!(9, 0, "sm_90"), card!(10, 0, "sm_100"), card!(12, 0, "sm_120")];

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
    let chosen = choice(CARDS.iter().map(|card| card.capability), gpu)?;
    CARDS.iter().find(|card| card.capability == chosen)?.code(name, registers, ptx)
}

impl Card {
    fn code(&self, name: &str, registers: Option<u32>, ptx: u32) -> Option<Vec<u8>> {
        let archive = self.archive.get_or_init(|| Archive::open(self.bytes).ok()).as_ref()?;
        if archive.checksum(name, registers)? == ptx { archive.code(name, registers).ok()? } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmm_ptx::machine_code::{Cubin, pack};

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
    }

    #[test]
    fn machine_code_is_of_the_same_ptx_and_limit_of_registers() {
        let card = |bytes| Card { capability: (9, 0), bytes, archive: OnceLock::new() };
        let cubin = Cubin { name: "a".into(), registers: Some(64), ptx: 7, code: b"\x7fELF".into() };
        let made = card(pack("of the tests", vec![cubin.clone()]).unwrap().leak());
        assert_eq!(made.code("a", Some(64), 7), Some(cubin.code));
        for (name, registers, ptx) in [("a", Some(64), 6), ("a", None, 7), ("b", Some(64), 7)] {
            assert_eq!(made.code(name, registers, ptx), None);
        }
        // As in a clone.
        assert_eq!(card(&[]).code("a", Some(64), 7), None);
    }
}
