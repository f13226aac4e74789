//! Kernels packed in groups, beneath both archives.
//!
//! An archive begins with an index in plain text: its title, lines of its own, and for each group
//! of kernels its bytes, packed, and its CRC-32, then its kernels, each with the registers that a
//! thread may have (`-` without a limit), the CRC-32 of its PTX, and its bytes. An empty line ends
//! the index, and the groups follow. Kernels that resemble each other are compressed together,
//! which takes two thirds of the space that each alone would; a group is small, because it is
//! unpacked for each of its kernels that is launched.
use std::collections::BTreeMap;
use std::io::{self, Read as _};

use lzma_rust2::Lzma2Reader;

/// Bytes of the compressor's window: that of a group, and of its largest kernel.
const WINDOW: u32 = 1 << 20;
/// Bytes of an instruction of a GPU, to whose multiples kernels are aligned within a group.
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

#[derive(Debug, Clone)]
struct Group {
    /// Where it is in the archive.
    packed: std::ops::Range<usize>,
    checksum: u32,
    /// Bytes when it is unpacked.
    bytes: usize,
}

#[derive(Debug, Clone)]
struct Place {
    ptx: u32,
    group: usize,
    within: std::ops::Range<usize>,
}

/// An archive whose index has been read.
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
    /// Reads the index of an archive that has this title.
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

    /// Reads a line of the index; `start`: where the packed bytes of the next group begin.
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

    /// The kernels, each with the CRC-32 of its PTX, in the order of their names.
    pub(crate) fn kernels(&self) -> impl Iterator<Item = (&Key, u32)> {
        self.kernels.iter().map(|(key, place)| (key, place.ptx))
    }

    pub(crate) fn checksum(&self, name: &str, registers: Option<u32>) -> Option<u32> {
        self.kernels.get(&(name.to_owned(), registers)).map(|place| place.ptx)
    }

    /// Unpacks a kernel.
    pub(crate) fn kernel(&self, name: &str, registers: Option<u32>) -> io::Result<Option<Vec<u8>>> {
        let Some(place) = self.kernels.get(&(name.to_owned(), registers)) else { return Ok(None) };
        let group = self.unpack(&self.groups[place.group])?;
        Ok(Some(group[place.within.clone()].to_vec()))
    }

    fn unpack(&self, group: &Group) -> io::Result<Vec<u8>> {
        let packed = self.bytes.get(group.packed.clone()).ok_or_else(|| self.damaged())?;
        let mut unpacked = Vec::new();
        // One byte more than there should be, so that more is noticed.
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

/// How kernels are compressed.
#[cfg(feature = "pack")]
pub(crate) struct Packing {
    /// Most bytes of a group, unless it is one kernel.
    pub(crate) group: usize,
    /// LZMA's `lc`, `lp` and `pb`: of how many bits of the byte before, and of a byte's place, the
    /// compressor takes account.
    pub(crate) bits: (u32, u32, u32),
}

/// Packs kernels into an archive; `head`: what stands between the title and the first group.
#[cfg(feature = "pack")]
pub(crate) fn pack(title: &str, head: &str, packing: &Packing, mut kernels: Vec<Cubin>) -> io::Result<Vec<u8>> {
    use std::fmt::Write as _;
    use std::io::Write as _;

    use lzma_rust2::{Lzma2Options, Lzma2Writer};

    // Kernels that resemble each other have neighbouring names.
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
