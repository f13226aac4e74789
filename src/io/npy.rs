//! NumPy's array files.
use super::{Data, Problem};
use ndarray::{Array2, ShapeBuilder};
use ndarray_npy::npy::header::{Header, ParseHeaderError, ReadHeaderError};
use ndarray_npy::{ReadDataError, ReadableElement, WritableElement, WriteNpyError, WriteNpyExt};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

/// The longest header that is read. NumPy's own limit is 10,000; that of a plain array takes 128 bytes.
const MAX_HEADER: usize = 10_000;
/// The most brackets in a header: the parser behind is recursive.
const MAX_BRACKETS: usize = 32;

pub(super) fn read(path: &Path) -> Result<Data, Problem> {
    let mut file = File::open(path).map_err(Problem::io("open it"))?;
    let metadata = file.metadata().map_err(Problem::io("open it"))?;
    if metadata.is_dir() {
        return Err(Problem::io("read it")(io::ErrorKind::IsADirectory.into()));
    }
    if !metadata.is_file() {
        return Err(format("a .npy must be a regular file"));
    }
    let header = read_header(&mut file)?;
    let header_length = file.stream_position().map_err(Problem::io("read it"))?;
    let body = metadata.len().saturating_sub(header_length);
    let &[rows, columns] = &header.shape[..] else {
        return Err(format(format!(
            "the array has shape {:?} where (samples, features) is needed{}",
            header.shape,
            if header.shape.len() == 1 { "; one feature? save x.reshape(-1, 1)" } else { "" }
        )));
    };
    let descr = header.type_descriptor.to_string();
    let reader = BufReader::with_capacity(1 << 20, file);
    match descr.trim_matches('\'') {
        "<f4" | ">f4" => Ok(Data::F32(read_body(&header, (rows, columns), reader, body)?)),
        "<f8" | ">f8" => Ok(Data::F64(read_body(&header, (rows, columns), reader, body)?)),
        _ => Err(format(format!(
            "the array's type is {descr} where float32 or float64 is needed; save x.astype('float32') or 'float64'"
        ))),
    }
}

/// Reads the header; what its parser is given is bounded before.
fn read_header(file: &mut File) -> Result<Header, Problem> {
    let not_npy = |e: io::Error| match e.kind() {
        io::ErrorKind::UnexpectedEof => format("not a .npy file: it ends within the header"),
        _ => Problem::io("read it")(e),
    };
    // Magic string (6), version (2), length of the rest (2 or 4, little-endian).
    let mut bytes = vec![0; 10];
    file.read_exact(&mut bytes).map_err(not_npy)?;
    if !bytes.starts_with(b"\x93NUMPY") {
        return Err(format("not a .npy file: it does not begin with NumPy's magic string"));
    }
    let mut length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    if bytes[6] > 1 {
        bytes.resize(12, 0);
        file.read_exact(&mut bytes[10..]).map_err(not_npy)?;
        length |= usize::from(u16::from_le_bytes([bytes[10], bytes[11]])) << 16;
    }
    if length > MAX_HEADER {
        return Err(format(format!("the header claims {length} bytes; at most {MAX_HEADER} are read")));
    }
    let start = bytes.len();
    bytes.resize(start + length, 0);
    file.read_exact(&mut bytes[start..]).map_err(not_npy)?;
    if bytes[start..].iter().filter(|b| b"([{".contains(b)).count() > MAX_BRACKETS {
        return Err(format(format!("the header has more than {MAX_BRACKETS} brackets; only plain arrays are read")));
    }
    Header::from_reader(&mut &bytes[..]).map_err(|e| match e {
        // Its text is a drawing of several lines.
        ReadHeaderError::Parse(ParseHeaderError::DictParse(_)) => format("the .npy header is no Python dictionary"),
        e => format(format!("the .npy header is not usable: {e}")),
    })
}

/// Reads the array once its size is known to be what the file holds.
fn read_body<T: ReadableElement>(
    header: &Header,
    dim: (usize, usize),
    reader: impl Read,
    body: u64,
) -> Result<Array2<T>, Problem> {
    let count = dim.0.checked_mul(dim.1).filter(|n| n.checked_mul(size_of::<T>()).is_some());
    let needed = count.map(|n| (n * size_of::<T>()) as u64);
    if needed != Some(body) {
        let needed = needed.map_or("too many".into(), |n| n.to_string());
        return Err(format(format!(
            "an array of shape {:?} takes {needed} bytes, the file holds {body}: it was cut short or something was appended",
            header.shape
        )));
    }
    let data = T::read_to_end_exact_vec(reader, &header.type_descriptor, count.unwrap_or(0)).map_err(|e| match e {
        ReadDataError::Io(e) => Problem::io("read it")(e),
        e => format(e.to_string()),
    })?;
    Array2::from_shape_vec(dim.set_f(header.layout.is_fortran()), data).map_err(|e| format(e.to_string()))
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

fn format(what: impl Into<String>) -> Problem {
    Problem::Format(what.into())
}
