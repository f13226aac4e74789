//! Kernels packed in groups, the basis of both archives.
//!
//! An archive begins with an index in plain text: a title, lines of its own, and for each group of kernels its packed
//! bytes and CRC-32, then its kernels, each with the register limit of a thread (`-` without one), the CRC-32 of its
//! PTX, and its bytes. An empty line ends the index; the groups follow. Compressing similar kernels together takes two
//! thirds of the space of separate ones. Groups are small, because each launched kernel unpacks its group.
use std::collections::BTreeMap;
use std::io::{self, Read as _};

use lzma_rust2::Lzma2Reader;

/// The compressor's window in bytes: the size of a group and of its largest kernel.
const WINDOW: u32 = 1 << 20;
/// The bytes of a GPU's instruction, the alignment of kernels within a group.
const ALIGN: usize = 16;

/// A kernel's name and register limit, if any.
pub type Key = (String, Option<u32>);

/// The machine code of one kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cubin {
    /// The name of the kernel.
    pub name: String,
    /// The register limit of a thread, if any.
    pub registers: Option<u32>,
    /// The CRC-32 of its PTX.
    pub ptx: u32,
    /// The ELF file.
    pub code: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Group {
    /// The place in the archive.
    packed: std::ops::Range<usize>,
    checksum: u32,
    bytes: usize,
}

#[derive(Debug, Clone)]
struct Place {
    ptx: u32,
    group: usize,
    within: std::ops::Range<usize>,
}

/// An archive with its index read.
#[derive(Debug, Clone)]
pub(crate) struct Packed<'a> {
    title: &'static str,
    bytes: &'a [u8],
    /// The lines between the title and the first group.
    head: Vec<&'a str>,
    groups: Vec<Group>,
    kernels: BTreeMap<Key, Place>,
}

impl<'a> Packed<'a> {
    /// Reads the index of an archive with this title.
    pub(crate) fn open(title: &'static str, bytes: &'a [u8]) -> io::Result<Self> {
        let mut archive = Self { title, bytes, head: Vec::new(), groups: Vec::new(), kernels: BTreeMap::new() };
        let damaged = || damaged(title);
        let end = bytes.windows(2).position(|two| two == b"\n\n").ok_or_else(damaged)?;
        let index = std::str::from_utf8(&bytes[..end]).map_err(|_| damaged())?;
        let mut lines = index.lines();
        if lines.next() != Some(title) {
            return Err(damaged());
        }
        let mut start = end + 2;
        for line in lines {
            archive.read_line(line, &mut start).ok_or_else(damaged)?;
        }
        if start == bytes.len() { Ok(archive) } else { Err(damaged()) }
    }

    /// Reads a line of the index; `start` is where the next group begins.
    fn read_line(&mut self, line: &'a str, start: &mut usize) -> Option<()> {
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
            _ if self.groups.is_empty() => self.head.push(line),
            _ => return None,
        }
        Some(())
    }

    pub(crate) fn damaged(&self) -> io::Error {
        damaged(self.title)
    }

    #[cfg(all(test, feature = "pack"))]
    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    pub(crate) fn head(&self) -> &[&'a str] {
        &self.head
    }

    /// Returns the kernels in the order of their names, each with the CRC-32 of its PTX.
    pub(crate) fn kernels(&self) -> impl Iterator<Item = (&Key, u32)> {
        self.kernels.iter().map(|(key, place)| (key, place.ptx))
    }

    pub(crate) fn checksum(&self, name: &str, registers: Option<u32>) -> Option<u32> {
        self.kernels.get(&(name.to_owned(), registers)).map(|place| place.ptx)
    }

    pub(crate) fn kernel(&self, name: &str, registers: Option<u32>) -> io::Result<Option<Vec<u8>>> {
        let Some(place) = self.kernels.get(&(name.to_owned(), registers)) else { return Ok(None) };
        let group = self.unpack(&self.groups[place.group])?;
        Ok(Some(group[place.within.clone()].to_vec()))
    }

    fn unpack(&self, group: &Group) -> io::Result<Vec<u8>> {
        let packed = self.bytes.get(group.packed.clone()).ok_or_else(|| self.damaged())?;
        let mut unpacked = Vec::new();
        // One byte more, so that surplus is detected.
        Lzma2Reader::new(packed, WINDOW, None).take(group.bytes as u64 + 1).read_to_end(&mut unpacked)?;
        if unpacked.len() != group.bytes || crc32fast::hash(&unpacked) != group.checksum {
            return Err(self.damaged());
        }
        Ok(unpacked)
    }
}

fn damaged(title: &str) -> io::Error {
    // The title ends with the number of the format.
    let what = title.rsplit_once(' ').map_or(title, |(what, _)| what);
    io::Error::new(io::ErrorKind::InvalidData, format!("the archive of {what} is damaged"))
}

#[cfg(feature = "pack")]
pub(crate) struct Packing {
    /// The most bytes of a group of several kernels.
    pub(crate) group: usize,
    /// LZMA's `lc`, `lp` and `pb`: how many bits of the previous byte, and of a byte's place, the compressor uses.
    pub(crate) bits: (u32, u32, u32),
}

/// Packs kernels into an archive; `head` goes between the title and the first group.
#[cfg(feature = "pack")]
pub(crate) fn pack(title: &str, head: &str, packing: &Packing, mut kernels: Vec<Cubin>) -> io::Result<Vec<u8>> {
    use std::fmt::Write as _;
    use std::io::Write as _;

    use lzma_rust2::{Lzma2Options, Lzma2Writer};

    // Similar kernels have neighbouring names.
    kernels.sort_by(|a, b| (&a.name, a.registers).cmp(&(&b.name, b.registers)));
    let padded = |kernel: &Cubin| kernel.code.len().next_multiple_of(ALIGN);
    let mut index = format!("{title}\n{head}");
    let mut groups = Vec::new();
    let mut rest = &kernels[..];
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |kernel: &&Cubin| {
            bytes += padded(kernel);
            bytes <= packing.group
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (group, others) = rest.split_at(count);
        rest = others;
        let mut unpacked = Vec::new();
        let mut lines = String::new();
        for kernel in group {
            let registers = kernel.registers.map_or_else(|| "-".into(), |registers| registers.to_string());
            // Writing to a string does not fail.
            let _ = writeln!(lines, "kernel {} {registers} {:08x} {}", kernel.name, kernel.ptx, kernel.code.len());
            unpacked.extend_from_slice(&kernel.code);
            unpacked.resize(unpacked.len().next_multiple_of(ALIGN), 0);
        }
        let mut options = Lzma2Options::with_preset(9);
        options.lzma_options.dict_size = WINDOW;
        (options.lzma_options.lc, options.lzma_options.lp, options.lzma_options.pb) = packing.bits;
        let mut writer = Lzma2Writer::new(Vec::new(), options);
        writer.write_all(&unpacked)?;
        let packed = writer.finish()?;
        let _ = write!(index, "group {} {:08x}\n{lines}", packed.len(), crc32fast::hash(&unpacked));
        groups.extend_from_slice(&packed);
    }
    index.push('\n');
    Ok([index.into_bytes(), groups].concat())
}
