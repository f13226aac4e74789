//! NumPy's array files.
use super::Problem;
use bytemuck::Pod;
use memmap2::Mmap;
use ndarray::{ArrayD, ArrayView2, IxDyn, ShapeBuilder};
use ndarray_npy::npy::header::{Header, Layout, ParseHeaderError, ReadHeaderError};
use ndarray_npy::{ReadDataError, ReadableElement, WritableElement, WriteNpyError, WriteNpyExt};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

/// The longest header that is read. NumPy's own limit is 10,000; that of a plain array takes 128 bytes.
const MAX_HEADER: usize = 10_000;
/// The most brackets in a header: the parser behind is recursive.
const MAX_BRACKETS: usize = 32;

/// The element types that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dtype {
    F32,
    F64,
}

/// An array that was read.
#[derive(Debug)]
pub(super) enum Array {
    F32(ArrayD<f32>),
    F64(ArrayD<f64>),
    Mapped(Mapped),
}

/// Reads an array of at most `memory` bytes; one of two dimensions and of at least `map_from` bytes is mapped where the
/// machine can use it as it stands, however large it is.
pub(super) fn read(path: &Path, map_from: u64, memory: u64) -> Result<Array, Problem> {
    let mut file = File::open(path).map_err(Problem::io("open it"))?;
    let metadata = file.metadata().map_err(Problem::io("open it"))?;
    if metadata.is_dir() {
        return Err(Problem::io("read it")(io::ErrorKind::IsADirectory.into()));
    }
    if !metadata.is_file() {
        return Err(format("a .npy must be a regular file"));
    }
    let header = read_header(&mut file)?;
    let start = file.stream_position().map_err(Problem::io("read it"))?;
    let body = metadata.len().saturating_sub(start);
    let dtype = dtype(&header)?;
    check_size(&header, dtype, body)?;
    if body >= map_from
        && let Some(mapped) = Mapped::new(&file, start, &header, dtype)?
    {
        return Ok(Array::Mapped(mapped));
    }
    check_memory(body, memory)?;
    let reader = BufReader::with_capacity(1 << 20, file);
    match dtype {
        Dtype::F32 => read_body(&header, reader).map(Array::F32),
        Dtype::F64 => read_body(&header, reader).map(Array::F64),
    }
}

/// Refuses numbers that take more memory than is allowed and cannot be read in chunks.
pub(super) fn check_memory(needed: u64, memory: u64) -> Result<(), Problem> {
    if needed <= memory {
        return Ok(());
    }
    Err(format(format!(
        "its numbers take {needed} bytes of memory or more, where {memory} are allowed; allow more, or save them as a .npy \
         in this machine's byte order, which is read in chunks"
    )))
}

/// Reads an array of either type from the bytes of a .npy, as float64.
pub(super) fn parse(bytes: &[u8]) -> Result<ArrayD<f64>, Problem> {
    let mut rest = bytes;
    let header = read_header(&mut rest)?;
    let dtype = dtype(&header)?;
    check_size(&header, dtype, rest.len() as u64)?;
    match dtype {
        Dtype::F32 => read_body::<f32>(&header, rest).map(|x| x.mapv(f64::from)),
        Dtype::F64 => read_body(&header, rest),
    }
}

/// Reads NumPy's 0-dimensional array of a text (`numpy.array("diag")`) from the bytes of a .npy.
pub(super) fn parse_text(bytes: &[u8]) -> Result<String, Problem> {
    let mut rest = bytes;
    let header = read_header(&mut rest)?;
    let descr = descr(&header);
    if !descr.starts_with("'<U") || !header.shape.is_empty() {
        return Err(format(format!(
            "there is an array of type {descr} and shape {:?} in place of a text",
            header.shape
        )));
    }
    // UCS-4, padded with zeros.
    let (characters, _) = rest.as_chunks::<4>();
    let text: Option<String> = characters.iter().map(|&c| char::from_u32(u32::from_le_bytes(c))).collect();
    Ok(text.ok_or_else(|| format("there is a text that is no Unicode"))?.trim_end_matches('\0').into())
}

/// The .npy of a text.
pub(super) fn text_to_npy(text: &str) -> Vec<u8> {
    let mut header = format!("{{'descr': '<U{}', 'fortran_order': False, 'shape': (), }}", text.chars().count());
    // Magic string, version and length take 10 bytes, the line feed one; the whole is a multiple of 64.
    let padding = (64 - (header.len() + 11) % 64) % 64;
    header.extend(std::iter::repeat_n(' ', padding).chain(['\n']));
    // At most a few hundred bytes: fits.
    let length = (header.len() as u16).to_le_bytes();
    let body = text.chars().flat_map(|c| u32::from(c).to_le_bytes());
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes()].concat().into_iter().chain(body).collect()
}

/// Writes an array in NumPy's form, through `write`.
pub fn write_npy<T: WritableElement, D: ndarray::Dimension>(
    array: &ndarray::ArrayRef<T, D>,
    write: impl io::Write,
) -> io::Result<()> {
    array.write_npy(write).map_err(|e| match e {
        WriteNpyError::Io(e) => e,
        e => io::Error::other(e),
    })
}

/// The header of an array in C order.
pub(super) fn npy_header<T: WritableElement>(shape: Vec<usize>) -> io::Result<Vec<u8>> {
    Header { type_descriptor: T::type_descriptor(), layout: Layout::Standard, shape }
        .to_bytes()
        .map_err(io::Error::other)
}

fn format(what: impl Into<String>) -> Problem {
    Problem::Format(what.into())
}

/// Reads the header; what its parser is given is bounded before.
fn read_header(reader: &mut impl Read) -> Result<Header, Problem> {
    let not_npy = |e: io::Error| match e.kind() {
        io::ErrorKind::UnexpectedEof => format("not a .npy file: it ends within the header"),
        _ => Problem::io("read it")(e),
    };
    // Magic string (6), version (2), length of the rest (2 or 4, little-endian).
    let mut bytes = vec![0; 10];
    reader.read_exact(&mut bytes).map_err(not_npy)?;
    if !bytes.starts_with(b"\x93NUMPY") {
        return Err(format("not a .npy file: it does not begin with NumPy's magic string"));
    }
    let mut length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    if bytes[6] > 1 {
        bytes.resize(12, 0);
        reader.read_exact(&mut bytes[10..]).map_err(not_npy)?;
        length |= usize::from(u16::from_le_bytes([bytes[10], bytes[11]])) << 16;
    }
    if length > MAX_HEADER {
        return Err(format(format!("the header claims {length} bytes; at most {MAX_HEADER} are read")));
    }
    let start = bytes.len();
    bytes.resize(start + length, 0);
    reader.read_exact(&mut bytes[start..]).map_err(not_npy)?;
    if bytes[start..].iter().filter(|b| b"([{".contains(b)).count() > MAX_BRACKETS {
        return Err(format(format!("the header has more than {MAX_BRACKETS} brackets; only plain arrays are read")));
    }
    Header::from_reader(&mut &bytes[..]).map_err(|e| match e {
        // Its text is a drawing of several lines.
        ReadHeaderError::Parse(ParseHeaderError::DictParse(_)) => format("the .npy header is no Python dictionary"),
        e => format(format!("the .npy header is not usable: {e}")),
    })
}

fn descr(header: &Header) -> String {
    header.type_descriptor.to_string()
}

fn dtype(header: &Header) -> Result<Dtype, Problem> {
    match descr(header).as_str() {
        "'<f4'" | "'>f4'" => Ok(Dtype::F32),
        "'<f8'" | "'>f8'" => Ok(Dtype::F64),
        descr => Err(format(format!(
            "the array's type is {descr} where float32 or float64 is needed; save x.astype('float32') or 'float64'"
        ))),
    }
}

/// Whether `body` bytes are what the header tells: to be known before memory is taken for it.
fn check_size(header: &Header, dtype: Dtype, body: u64) -> Result<(), Problem> {
    let size = if dtype == Dtype::F32 { 4 } else { 8 };
    let needed = header.shape.iter().try_fold(size, |n: u64, &length| n.checked_mul(u64::try_from(length).ok()?));
    if needed == Some(body) {
        return Ok(());
    }
    let needed = needed.map_or("too many".into(), |n| n.to_string());
    Err(format(format!(
        "an array of shape {:?} takes {needed} bytes, the file holds {body}: it was cut short or something was appended",
        header.shape
    )))
}

/// Reads an array whose size was checked.
fn read_body<T: ReadableElement>(header: &Header, reader: impl Read) -> Result<ArrayD<T>, Problem> {
    let count = header.shape.iter().product();
    let data = T::read_to_end_exact_vec(reader, &header.type_descriptor, count).map_err(|e| match e {
        ReadDataError::Io(e) => Problem::io("read it")(e),
        e => format(e.to_string()),
    })?;
    let shape = IxDyn(&header.shape).set_f(header.layout.is_fortran());
    ArrayD::from_shape_vec(shape, data).map_err(|e| format(e.to_string()))
}

/// A two-dimensional array in a file that is mapped into memory: read piece by piece as it is used, and again when memory
/// got short meanwhile.
#[derive(Debug)]
pub struct Mapped {
    map: Mmap,
    /// Where the numbers begin, in bytes.
    start: usize,
    dtype: Dtype,
    dim: (usize, usize),
    fortran: bool,
}

impl Mapped {
    /// `None` where the array is not two-dimensional or the machine cannot use its bytes as they stand. The size was checked.
    fn new(file: &File, start: u64, header: &Header, dtype: Dtype) -> Result<Option<Self>, Problem> {
        let &[rows, columns] = &header.shape[..] else { return Ok(None) };
        let (Ok(start), '<', true) =
            (usize::try_from(start), descr(header).chars().nth(1).unwrap_or(' '), cfg!(target_endian = "little"))
        else {
            return Ok(None);
        };
        // SAFETY: the map is read-only, and every bit pattern is a value of the types it is seen as. A file that another
        // process changes meanwhile changes the values, and one that it cuts short ends this process: the documentation
        // of `read_data` says so.
        let map = unsafe { Mmap::map(file) }.map_err(Problem::io("map it"))?;
        let mapped = Self { map, start, dtype, dim: (rows, columns), fortran: header.layout.is_fortran() };
        let usable = match dtype {
            Dtype::F32 => mapped.try_view::<f32>().is_some(),
            Dtype::F64 => mapped.try_view::<f64>().is_some(),
        };
        Ok(usable.then_some(mapped))
    }

    pub(super) fn dim(&self) -> (usize, usize) {
        self.dim
    }

    pub(super) fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn try_view<T: Pod>(&self) -> Option<ArrayView2<'_, T>> {
        let values = bytemuck::try_cast_slice(self.map.get(self.start..)?).ok()?;
        ArrayView2::from_shape(self.dim.set_f(self.fortran), values).ok()
    }

    /// The array; `T` must be its type.
    pub(super) fn view<T: Pod>(&self) -> ArrayView2<'_, T> {
        // Tried in `new`; neither the map nor the type has changed since.
        self.try_view().expect("an array that was viewed before")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    fn values(array: &Array) -> Vec<f64> {
        match array {
            Array::F32(x) => x.iter().map(|&v| f64::from(v)).collect(),
            Array::F64(x) => x.iter().copied().collect(),
            Array::Mapped(m) if m.dtype == Dtype::F32 => m.view::<f32>().iter().map(|&v| f64::from(v)).collect(),
            Array::Mapped(m) => m.view::<f64>().iter().copied().collect(),
        }
    }

    #[test]
    fn mapped_and_read_arrays_are_the_same() {
        let x = ndarray::Array2::from_shape_fn((5, 3), |(i, j)| (i * 3 + j) as f64 / 2.0);
        let mut f32s = Vec::new();
        write_npy(&x.mapv(|v| v as f32), &mut f32s).unwrap();
        let mut fortran = Vec::new();
        write_npy(&x.t().as_standard_layout().reversed_axes(), &mut fortran).unwrap();
        assert!(String::from_utf8_lossy(&fortran).contains("'fortran_order': True"));
        for bytes in [f32s, fortran] {
            let file = file(&bytes);
            let (mapped, read) = (read(file.path(), 0, 0).unwrap(), read(file.path(), u64::MAX, u64::MAX).unwrap());
            assert!(matches!(mapped, Array::Mapped(_)) && !matches!(read, Array::Mapped(_)));
            assert_eq!(values(&mapped), x.iter().copied().collect::<Vec<_>>());
            assert_eq!(values(&mapped), values(&read));
        }
    }

    #[test]
    fn what_cannot_be_mapped_is_read() {
        let mut big_endian = Vec::new();
        write_npy(&ndarray::arr2(&[[1.0f64]]), &mut big_endian).unwrap();
        let at = big_endian.iter().position(|&b| b == b'<').unwrap();
        big_endian[at] = b'>';
        let end = big_endian.len() - 8;
        big_endian[end..].copy_from_slice(&2.5f64.to_be_bytes());
        let mut vector = Vec::new();
        write_npy(&ndarray::arr1(&[2.5f64]), &mut vector).unwrap();
        // A header whose length is no multiple of 8, as NumPy wrote long ago.
        let mut odd = vector.clone();
        odd.remove(100);
        odd[8] -= 1;
        for bytes in [big_endian, vector, odd] {
            let file = file(&bytes);
            let array = read(file.path(), 0, 8).unwrap();
            assert!(read(file.path(), 0, 7).unwrap_err().to_string().contains("8 bytes"));
            assert!(matches!(array, Array::F64(_)));
            assert_eq!(values(&array), [2.5]);
        }
    }

    #[test]
    fn texts_round_trip() {
        for text in ["diag", "spherical", "", "é𝄞"] {
            let bytes = text_to_npy(text);
            assert_eq!(parse_text(&bytes).unwrap(), text);
            assert!(parse(&bytes).is_err());
        }
        let mut numbers = Vec::new();
        write_npy(&ndarray::arr0(1.0f64), &mut numbers).unwrap();
        assert!(parse_text(&numbers).is_err());
    }

    /// Whatever one byte of the header is changed to, there is an array or an error, never a panic.
    #[test]
    fn damaged_headers_do_not_panic() {
        let mut good = Vec::new();
        write_npy(&ndarray::arr2(&[[1.0f32, 2.0], [3.0, 4.0]]), &mut good).unwrap();
        let mut refused = 0;
        for i in 0..good.len() - 16 {
            for &by in b"\0()[{',:-9\n\xff" {
                let mut bytes = good.clone();
                bytes[i] = by;
                refused += usize::from(parse(&bytes).is_err());
                refused += usize::from(parse_text(&bytes).is_err());
            }
        }
        assert!(refused > good.len(), "{refused}");
    }
}
