//! The archive of PTX: a zip file with one text for each kernel, named after the kernel.
use std::io::{self, Cursor, Read as _, Write as _};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipArchive, ZipWriter};

use crate::Entry;

/// An archive of PTX whose index has been read. Texts are unpacked when they are asked for.
#[derive(Debug, Clone)]
pub struct Archive<'a> {
    zip: ZipArchive<Cursor<&'a [u8]>>,
}

impl<'a> Archive<'a> {
    /// Reads the index of an archive.
    ///
    /// # Errors
    /// The bytes are no zip file.
    pub fn open(bytes: &'a [u8]) -> io::Result<Self> {
        Ok(Self { zip: ZipArchive::new(Cursor::new(bytes))? })
    }

    /// The names of the kernels, in the order of the archive.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.zip.file_names()
    }

    /// The CRC-32 of a kernel's PTX, from the index; `None` if the archive has no such kernel.
    #[must_use]
    pub fn checksum(&self, name: &str) -> Option<u32> {
        let index = self.zip.index_for_name(name)?;
        // Reading takes `&mut`; a clone shares the index and the bytes.
        self.zip.clone().by_index_raw(index).ok().map(|file| file.crc32())
    }

    /// Unpacks a kernel's PTX; `None` if the archive has no such kernel.
    ///
    /// # Errors
    /// The archive is damaged: what comes out is not what its checksum says, or is no text.
    pub fn text(&self, name: &str) -> io::Result<Option<String>> {
        let Some(index) = self.zip.index_for_name(name) else { return Ok(None) };
        let mut zip = self.zip.clone();
        let mut file = zip.by_index(index)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(Some(text))
    }
}

/// Packs texts into an archive. The same entries give the same bytes, as long as the compressor is
/// the same.
///
/// # Errors
/// Two entries have the same name, or the archive grows beyond what a zip file can be.
pub fn pack(entries: &[Entry]) -> io::Result<Vec<u8>> {
    // The time is fixed, so that the bytes do not depend on when they were made.
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .compression_level(Some(9))
        .last_modified_time(DateTime::default())
        .unix_permissions(0o644);
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for entry in entries {
        zip.start_file(entry.name.as_str(), options)?;
        zip.write_all(entry.text.as_bytes())?;
    }
    Ok(zip.finish()?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> [Entry; 2] {
        ["a", "b"].map(|name| Entry { name: name.into(), text: format!("// {name}\n").repeat(1000) })
    }

    #[test]
    fn what_is_packed_comes_out_again() {
        let bytes = pack(&entries()).unwrap();
        assert!(bytes.len() < 1000, "8 KB of the same line take {} bytes", bytes.len());
        let archive = Archive::open(&bytes).unwrap();
        assert_eq!(archive.names().collect::<Vec<_>>(), ["a", "b"]);
        for entry in entries() {
            assert_eq!(archive.text(&entry.name).unwrap().as_ref(), Some(&entry.text));
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
        // The local header of the first entry is 30 bytes and its name, one; then comes its
        // compressed text.
        let mut damaged = bytes;
        damaged[33] ^= 0x55;
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
