//! The arrays of a saved run, read from its .npz.
//!
//! A file may hold anything, whatever its headers say. So an array is read only if its header is the very one that this
//! crate (or NumPy) writes for the expected type and shape, and if its bytes are there: nothing is parsed, and nothing is
//! allocated that the file is too short for.
use std::fs::File;
use std::io::{BufReader, Read};
use zip::{CompressionMethod, ZipArchive};

/// A header of these arrays takes a few hundred bytes.
const LONGEST_HEADER: usize = 4096;

/// A .npz of a saved run.
pub(crate) struct Archive {
    zip: ZipArchive<BufReader<File>>,
    /// Bytes of the file.
    length: u64,
}

impl Archive {
    /// # Errors
    /// What is wrong with the file.
    pub fn new(file: File) -> Result<Self, String> {
        let damaged = |e: &dyn std::fmt::Display| format!("it is damaged ({e})");
        let length = file.metadata().map_err(|e| damaged(&e))?.len();
        Ok(Self { zip: ZipArchive::new(BufReader::new(file)).map_err(|e| damaged(&e))?, length })
    }

    /// The bytes of a one-dimensional array.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn bytes(&mut self, name: &str) -> Result<Vec<u8>, String> {
        self.member(name, "|u1", |size| Some((vec![size], size)))
    }

    /// The numbers of a one-dimensional array.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn vector(&mut self, name: &str) -> Result<Vec<f64>, String> {
        self.member(name, "<f8", |size| Some((vec![size / 8], size))).map(|bytes| numbers(&bytes))
    }

    /// The numbers of an array of this shape.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn array(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f64>, String> {
        let size = shape.iter().try_fold(8usize, |product, &n| product.checked_mul(n));
        self.member(name, "<f8", |_| Some((shape.to_vec(), size?))).map(|bytes| numbers(&bytes))
    }

    /// The content of an array of this type; `shape` gives from the bytes that there are the shape that is expected, and the
    /// bytes that it takes.
    fn member(
        &mut self,
        name: &str,
        descr: &str,
        shape: impl FnOnce(usize) -> Option<(Vec<usize>, usize)>,
    ) -> Result<Vec<u8>, String> {
        let damaged = |e: &dyn std::fmt::Display| format!("`{name}` is missing or damaged ({e})");
        let mut member = self.zip.by_name(&format!("{name}.npy")).map_err(|e| damaged(&e))?;
        if member.compression() != CompressionMethod::Stored || member.size() > self.length {
            return Err(damaged(&"it is compressed, or longer than the file; gmm writes neither"));
        }
        let (header, header_size) = header(&mut member).map_err(|e| damaged(&e))?;
        let size = (member.size() as usize).saturating_sub(header_size);
        let (shape, needed) = shape(size).ok_or_else(|| damaged(&"its shape is too large"))?;
        let lengths: Vec<String> = shape.iter().map(usize::to_string).collect();
        let tuple = format!("({}{})", lengths.join(","), if shape.len() == 1 { "," } else { "" });
        let expected = format!("{{'descr':'{descr}','fortran_order':False,'shape':{tuple}}}");
        // NumPy has a comma at the end, and both pad with blanks.
        let plain = header.split(|c: char| c.is_ascii_whitespace()).collect::<String>().replace(",}", "}");
        if plain != expected || needed != size {
            return Err(damaged(&format_args!(
                "it is not an array of type {descr} and shape {tuple}, as it must be here"
            )));
        }
        let mut content = Vec::with_capacity(size);
        member.read_to_end(&mut content).map_err(|e| damaged(&e))?;
        Ok(content)
    }
}

/// The text of the header of a .npy, and the bytes before the array.
fn header(file: &mut impl Read) -> Result<(String, usize), String> {
    let mut start = [0; 10];
    file.read_exact(&mut start).map_err(|e| e.to_string())?;
    let size = usize::from(u16::from_le_bytes([start[8], start[9]]));
    if !start.starts_with(b"\x93NUMPY\x01\x00") || size > LONGEST_HEADER {
        return Err("it has no header as gmm writes it".into());
    }
    let mut text = vec![0; size];
    file.read_exact(&mut text).map_err(|e| e.to_string())?;
    Ok((String::from_utf8(text).map_err(|e| e.to_string())?, start.len() + size))
}

/// Little-endian numbers.
pub(crate) fn numbers(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect()
}
