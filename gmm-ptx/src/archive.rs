//! The archive of PTX: one text for each kernel.
use std::io;

use crate::packed::Packed;

const TITLE: &str = "PTX 1";

/// An archive of PTX with its index read. Texts are unpacked on request.
#[derive(Debug, Clone)]
pub struct Archive<'a> {
    packed: Packed<'a>,
}

impl<'a> Archive<'a> {
    /// Reads the index of an archive.
    ///
    /// # Errors
    /// If the bytes are not a complete archive.
    pub fn open(bytes: &'a [u8]) -> io::Result<Self> {
        Ok(Self { packed: Packed::open(TITLE, bytes)? })
    }

    /// Returns the names of the kernels, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.packed.kernels().map(|((name, _), _)| name.as_str())
    }

    /// Returns the CRC-32 of a kernel's PTX from the index; `None` for an unknown kernel.
    #[must_use]
    pub fn checksum(&self, name: &str) -> Option<u32> {
        self.packed.checksum(name, None)
    }

    /// Unpacks a kernel's PTX; `None` for an unknown kernel.
    ///
    /// # Errors
    /// If the archive is damaged: a checksum is wrong, or the PTX is not text.
    pub fn text(&self, name: &str) -> io::Result<Option<String>> {
        let text = self.packed.kernel(name, None)?.map(String::from_utf8).transpose();
        text.map_err(|_| self.packed.damaged())
    }
}

/// Packs texts into an archive. The same entries and compressor give the same bytes.
///
/// # Errors
/// If two entries have the same name, or the compressor fails.
#[cfg(feature = "pack")]
pub fn pack(entries: &[crate::Entry]) -> io::Result<Vec<u8>> {
    use crate::packed::{Cubin, Packing};

    let mut names = std::collections::BTreeSet::new();
    if let Some(twice) = entries.iter().find(|entry| !names.insert(&entry.name)) {
        let problem = format!("there are two kernels `{}`", twice.name);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let kernel = |entry: &crate::Entry| Cubin {
        name: entry.name.clone(),
        registers: None,
        ptx: entry.checksum(),
        code: entry.text.clone().into_bytes(),
    };
    let packing = Packing { group: 256 << 10, bits: (3, 0, 0) };
    crate::packed::pack(TITLE, "", &packing, entries.iter().map(kernel).collect())
}

#[cfg(all(test, feature = "pack"))]
mod tests {
    use super::*;
    use crate::Entry;

    fn entries() -> [Entry; 2] {
        ["a", "b"].map(|name| Entry { name: name.into(), text: format!("// {name}\n").repeat(40_000) })
    }

    #[test]
    fn what_is_packed_comes_out_again() {
        let bytes = pack(&entries()).unwrap();
        assert!(bytes.len() < 1000, "400 KB of two lines take {} bytes", bytes.len());
        let archive = Archive::open(&bytes).unwrap();
        assert_eq!(archive.names().collect::<Vec<_>>(), ["a", "b"]);
        for entry in entries() {
            assert_eq!(archive.text(&entry.name).unwrap().as_ref(), Some(&entry.text));
            assert_eq!(archive.checksum(&entry.name), Some(entry.checksum()));
        }
        assert!(archive.text("c").unwrap().is_none() && archive.checksum("c").is_none());
        assert_ne!(archive.checksum("a"), archive.checksum("b"));
    }

    #[test]
    fn the_same_entries_give_the_same_bytes() {
        assert_eq!(pack(&entries()).unwrap(), pack(&entries()).unwrap());
    }

    #[test]
    fn damage_is_an_error() {
        let bytes = pack(&entries()).unwrap();
        assert!(Archive::open(&bytes[..bytes.len() - 30]).is_err());
        // Each kernel has its own group, of equal size.
        let end = bytes.len();
        let index = bytes.windows(2).position(|two| two == b"\n\n").unwrap() + 2;
        let mut damaged = bytes;
        damaged[index + (end - index) / 4] ^= 0x55;
        let archive = Archive::open(&damaged).unwrap();
        let error = archive.text("a").unwrap_err().to_string();
        assert!(!error.is_empty());
        assert!(archive.text("b").unwrap().is_some());
    }

    #[test]
    fn a_name_cannot_be_there_twice() {
        let [a, _] = entries();
        assert!(pack(&[Entry { name: a.name.clone(), text: a.text.clone() }, a]).is_err());
    }
}
