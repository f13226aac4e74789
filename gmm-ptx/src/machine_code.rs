//! Archives of machine code: what an assembler made of the PTX, for the GPUs of one kind.
//!
//! An archive begins with an index in plain text: the assembler, and for each group of kernels its
//! bytes, packed, and its CRC-32, then its kernels, each with the registers that a thread may have
//! (`-` without a limit), the CRC-32 of the PTX that it was made from, and its bytes. An empty line
//! ends the index, and the groups follow. Kernels that resemble each other are compressed together,
//! which takes two thirds of the space that each alone would; a group is small, because it is
//! unpacked for each of its kernels that is launched.
use std::collections::BTreeMap;
use std::io::{self, Read as _};

use lzma_rust2::Lzma2Reader;

const FIRST_LINE: &str = "machine code 1";
/// Bytes of the compressor's window: that of a group, and of its largest kernel.
const WINDOW: u32 = 1 << 20;
/// Bytes of an instruction, to whose multiples kernels are aligned within a group.
const ALIGN: usize = 16;

/// A kernel, and the registers that a thread of it may have, if they are limited.
pub type Key = (String, Option<u32>);

/// The machine code of one kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cubin {
    /// Name of the kernel.
    pub name: String,
    /// The registers that a thread may have, if they are limited.
    pub registers: Option<u32>,
    /// The CRC-32 of the PTX that it was made from.
    pub ptx: u32,
    /// An ELF file.
    pub code: Vec<u8>,
}

#[derive(Debug)]
struct Group {
    /// Where it is in the archive.
    packed: std::ops::Range<usize>,
    checksum: u32,
    /// Bytes when it is unpacked.
    bytes: usize,
}

#[derive(Debug)]
struct Place {
    ptx: u32,
    group: usize,
    within: std::ops::Range<usize>,
}

/// An archive whose index has been read. Machine code is unpacked when it is asked for.
#[derive(Debug)]
pub struct Archive<'a> {
    bytes: &'a [u8],
    assembler: &'a str,
    groups: Vec<Group>,
    kernels: BTreeMap<Key, Place>,
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the archive of machine code is damaged")
}

impl<'a> Archive<'a> {
    /// Reads the index of an archive.
    ///
    /// # Errors
    /// The bytes are no such archive, or not all of it.
    pub fn open(bytes: &'a [u8]) -> io::Result<Self> {
        let end = bytes.windows(2).position(|two| two == b"\n\n").ok_or_else(damaged)?;
        let index = std::str::from_utf8(&bytes[..end]).map_err(|_| damaged())?;
        let mut lines = index.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(damaged());
        }
        let assembler = lines.next().and_then(|line| line.strip_prefix("assembler ")).ok_or_else(damaged)?;
        let mut archive = Self { bytes, assembler, groups: Vec::new(), kernels: BTreeMap::new() };
        let mut start = end + 2;
        for line in lines {
            archive.read_line(line, &mut start).ok_or_else(damaged)?;
        }
        if start == bytes.len() { Ok(archive) } else { Err(damaged()) }
    }

    /// Reads a line of the index; `start`: where the packed bytes of the next group begin.
    fn read_line(&mut self, line: &str, start: &mut usize) -> Option<()> {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["group", packed, checksum] => {
                let end = start.checked_add(packed.parse().ok()?)?;
                let checksum = u32::from_str_radix(checksum, 16).ok()?;
                self.groups.push(Group { packed: *start..end, checksum, bytes: 0 });
                *start = end;
            }
            ["kernel", name, registers, ptx, bytes] => {
                let group = self.groups.len().checked_sub(1)?;
                let registers = if registers == "-" { None } else { Some(registers.parse().ok()?) };
                let from = self.groups[group].bytes;
                let to = from.checked_add(bytes.parse().ok()?)?;
                self.groups[group].bytes = to.checked_next_multiple_of(ALIGN)?;
                let place = Place { ptx: u32::from_str_radix(ptx, 16).ok()?, group, within: from..to };
                self.kernels.insert((name.to_owned(), registers), place);
            }
            _ => return None,
        }
        Some(())
    }

    /// The assembler, with its version.
    #[must_use]
    pub fn assembler(&self) -> &str {
        self.assembler
    }

    /// The kernels, each with the CRC-32 of the PTX that it was made from, in the order of their
    /// names.
    pub fn kernels(&self) -> impl Iterator<Item = (&Key, u32)> {
        self.kernels.iter().map(|(key, place)| (key, place.ptx))
    }

    /// The CRC-32 of the PTX that a kernel was made from; `None` if the archive has no such kernel
    /// with this limit of registers.
    #[must_use]
    pub fn checksum(&self, name: &str, registers: Option<u32>) -> Option<u32> {
        self.kernels.get(&(name.to_owned(), registers)).map(|place| place.ptx)
    }

    /// Unpacks a kernel's machine code; `None` if the archive has no such kernel with this limit
    /// of registers.
    ///
    /// # Errors
    /// The archive is damaged.
    pub fn code(&self, name: &str, registers: Option<u32>) -> io::Result<Option<Vec<u8>>> {
        let Some(place) = self.kernels.get(&(name.to_owned(), registers)) else { return Ok(None) };
        let group = self.unpack(&self.groups[place.group])?;
        Ok(Some(group[place.within.clone()].to_vec()))
    }

    fn unpack(&self, group: &Group) -> io::Result<Vec<u8>> {
        let packed = self.bytes.get(group.packed.clone()).ok_or_else(damaged)?;
        let mut unpacked = Vec::new();
        // One byte more than there should be, so that more is noticed.
        Lzma2Reader::new(packed, WINDOW, None).take(group.bytes as u64 + 1).read_to_end(&mut unpacked)?;
        if unpacked.len() != group.bytes || crc32fast::hash(&unpacked) != group.checksum {
            return Err(damaged());
        }
        Ok(unpacked)
    }
}

/// Packs machine code into an archive. The same cubins give the same bytes, as long as the
/// compressor is the same.
///
/// # Errors
/// The compressor fails.
#[cfg(feature = "pack-machine-code")]
pub fn pack(assembler: &str, mut cubins: Vec<Cubin>) -> io::Result<Vec<u8>> {
    use std::fmt::Write as _;
    use std::io::Write as _;

    use lzma_rust2::{Lzma2Options, Lzma2Writer};

    /// Most bytes of a group, unless it is one kernel.
    const GROUP: usize = 256 << 10;

    // Kernels that resemble each other have neighbouring names.
    cubins.sort_by(|a, b| (&a.name, a.registers).cmp(&(&b.name, b.registers)));
    let padded = |cubin: &Cubin| cubin.code.len().next_multiple_of(ALIGN);
    let mut index = format!("{FIRST_LINE}\nassembler {assembler}\n");
    let mut groups = Vec::new();
    let mut rest = &cubins[..];
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |cubin: &&Cubin| {
            bytes += padded(cubin);
            bytes <= GROUP
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (group, others) = rest.split_at(count);
        rest = others;
        let mut unpacked = Vec::new();
        let mut kernels = String::new();
        for cubin in group {
            let registers = cubin.registers.map_or_else(|| "-".into(), |registers| registers.to_string());
            // Writing to a string does not fail.
            let _ = writeln!(kernels, "kernel {} {registers} {:08x} {}", cubin.name, cubin.ptx, cubin.code.len());
            unpacked.extend_from_slice(&cubin.code);
            unpacked.resize(unpacked.len().next_multiple_of(ALIGN), 0);
        }
        let mut options = Lzma2Options::with_preset(9);
        options.lzma_options.dict_size = WINDOW;
        // Bytes depend on their place within an instruction.
        (options.lzma_options.lc, options.lzma_options.lp, options.lzma_options.pb) = (0, 4, 4);
        let mut writer = Lzma2Writer::new(Vec::new(), options);
        writer.write_all(&unpacked)?;
        let packed = writer.finish()?;
        let _ = write!(index, "group {} {:08x}\n{kernels}", packed.len(), crc32fast::hash(&unpacked));
        groups.extend_from_slice(&packed);
    }
    index.push('\n');
    Ok([index.into_bytes(), groups].concat())
}

#[cfg(all(test, feature = "pack-machine-code"))]
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
            cubin("a", Some(64), 300_000),
            cubin("bb", Some(168), 200_000),
            cubin("c", None, 5),
        ]
    }

    #[test]
    fn what_is_packed_comes_out_again() {
        let bytes = pack("of the tests", cubins().into_iter().rev().collect()).unwrap();
        assert_eq!(bytes, pack("of the tests", cubins()).unwrap());
        let archive = Archive::open(&bytes).unwrap();
        assert_eq!(archive.assembler(), "of the tests");
        assert!(archive.groups.len() > 1 && archive.groups.len() < 4);
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
            // What the index says of the assembler is not used to unpack.
            let of_assembler = bytes[..place].iter().filter(|byte| **byte == b'\n').count() == 1;
            assert!(!cubins().iter().all(same) || before_index_end && of_assembler, "byte {place}");
        }
    }
}
