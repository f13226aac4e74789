//! Archives of machine code: the PTX assembled for one kind of GPU. The index names the assembler.
use std::io;

use crate::packed::Packed;
pub use crate::packed::{Cubin, Key};

const TITLE: &str = "machine code 1";

/// An archive with its index read. Machine code is unpacked on request.
#[derive(Debug)]
pub struct Archive<'a> {
    packed: Packed<'a>,
    assembler: &'a str,
}

impl<'a> Archive<'a> {
    /// Reads the index of an archive.
    ///
    /// # Errors
    /// If the bytes are not a complete archive.
    pub fn open(bytes: &'a [u8]) -> io::Result<Self> {
        let packed = Packed::open(TITLE, bytes)?;
        let assembler = match packed.head() {
            [line] => line.strip_prefix("assembler "),
            _ => None,
        };
        let assembler = assembler.ok_or_else(|| packed.damaged())?;
        Ok(Self { packed, assembler })
    }

    /// Returns the assembler with its version.
    #[must_use]
    pub fn assembler(&self) -> &str {
        self.assembler
    }

    /// Returns the kernels in the order of their names, each with the CRC-32 of its PTX.
    pub fn kernels(&self) -> impl Iterator<Item = (&Key, u32)> {
        self.packed.kernels()
    }

    /// Returns the CRC-32 of the PTX of a kernel; `None` for an unknown kernel or limit of registers.
    #[must_use]
    pub fn checksum(&self, name: &str, registers: Option<u32>) -> Option<u32> {
        self.packed.checksum(name, registers)
    }

    /// Unpacks a kernel's machine code; `None` for an unknown kernel or limit of registers.
    ///
    /// # Errors
    /// If the archive is damaged.
    pub fn code(&self, name: &str, registers: Option<u32>) -> io::Result<Option<Vec<u8>>> {
        self.packed.kernel(name, registers)
    }
}

/// Packs machine code into an archive. The same cubins and compressor give the same bytes.
///
/// # Errors
/// If the compressor fails.
#[cfg(feature = "pack")]
pub fn pack(assembler: &str, cubins: Vec<Cubin>) -> io::Result<Vec<u8>> {
    use crate::packed::Packing;

    // A byte depends on its place within an instruction.
    let packing = Packing { group: 512 << 10, bits: (0, 4, 4) };
    crate::packed::pack(TITLE, &format!("assembler {assembler}\n"), &packing, cubins)
}

#[cfg(all(test, feature = "pack"))]
mod tests {
    use super::*;

    fn cubins() -> Vec<Cubin> {
        let cubin = |name: &str, registers, bytes: usize| Cubin {
            name: name.into(),
            registers,
            ptx: name.len() as u32,
            code: (0..bytes).map(|i| (i * i / 7) as u8).collect(),
        };
        vec![
            cubin("a", None, 1001),
            cubin("a", Some(64), 600_000),
            cubin("bb", Some(168), 400_000),
            cubin("c", None, 5),
        ]
    }

    #[test]
    fn what_is_packed_comes_out_again() {
        let bytes = pack("of the tests", cubins().into_iter().rev().collect()).unwrap();
        assert_eq!(bytes, pack("of the tests", cubins()).unwrap());
        let archive = Archive::open(&bytes).unwrap();
        assert_eq!(archive.assembler(), "of the tests");
        assert!(archive.packed.groups() > 1 && archive.packed.groups() < 4);
        assert_eq!(archive.kernels().count(), 4);
        for Cubin { name, registers, ptx, code } in cubins() {
            assert_eq!(archive.checksum(&name, registers), Some(ptx));
            assert_eq!(archive.code(&name, registers).unwrap(), Some(code));
        }
        for (name, registers) in [("bb", None), ("bb", Some(64)), ("d", None)] {
            assert!(archive.checksum(name, registers).is_none() && archive.code(name, registers).unwrap().is_none());
        }
    }

    #[test]
    fn damage_is_an_error() {
        let bytes = pack("of the tests", cubins()).unwrap();
        for wrong in [&bytes[..bytes.len() - 1], &bytes[1..], &bytes[..20], &[]] {
            assert!(Archive::open(wrong).is_err());
        }
        for place in (0..bytes.len()).step_by(bytes.len() / 40) {
            let mut wrong = bytes.clone();
            wrong[place] ^= 0x11;
            let Ok(archive) = Archive::open(&wrong) else { continue };
            let same = |cubin: &Cubin| {
                let found = archive.code(&cubin.name, cubin.registers);
                found.is_ok_and(|code| code.as_ref() == Some(&cubin.code))
                    && archive.checksum(&cubin.name, cubin.registers) == Some(cubin.ptx)
            };
            let before_index_end = bytes.windows(2).position(|two| two == b"\n\n").unwrap() > place;
            // Unpacking does not use the line about the assembler.
            let of_assembler = bytes[..place].iter().filter(|byte| **byte == b'\n').count() == 1;
            assert!(!cubins().iter().all(same) || before_index_end && of_assembler, "byte {place}");
        }
    }
}
