//! NumPy's array files.
use super::array::{Data, Dtype, make_matrix};
use super::file_stamp::FileStamp;
use super::npy_element::{Element, Stored};
use super::npy_header::Header;
use super::stream;
use crate::io::Problem;
use gmm_host::{Interrupt, memory};
use ndarray::{Array2, ArrayD, IxDyn, ShapeBuilder};
use ndarray_npy::npy::header as numpy;
use ndarray_npy::{WritableElement, WriteNpyError, WriteNpyExt};
use rayon::prelude::*;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

/// Bytes of one system call. A larger array is read by several threads, a piece each.
const PIECE_BYTES: usize = 4 << 20;

/// An open array file. It is never mapped into memory: if another process cut a mapped file short, the system would end
/// this process with SIGBUS, whereas a read returns an error.
#[derive(Debug)]
pub(super) struct Npy {
    file: File,
    stamp: FileStamp,
    header: Header,
    stored: Stored,
}

impl Npy {
    /// Opens an array of samples, or of one number for each if `is_vector`, and checks that the file has the size that
    /// its header implies.
    pub fn open(path: &Path, is_vector: bool) -> Result<Self, Problem> {
        let (mut file, stamp) = FileStamp::open(path)?;
        let mut header = Header::read(&mut file)?;
        let stored = Stored::of(&header)?;
        header.check_size(stored.size as u64, stamp.size().saturating_sub(header.start))?;
        make_matrix(&mut header.shape, is_vector)?;
        Ok(Self { file, stamp, header, stored })
    }

    pub fn dtype(&self) -> Dtype {
        self.stored.dtype()
    }

    pub fn shape(&self) -> &[usize] {
        &self.header.shape
    }

    /// Reads some rows, in the file's memory order; `T` must hold its [`dtype`](Self::dtype).
    ///
    /// # Panics
    /// If the array has fewer rows.
    pub fn rows<T: Element>(&self, rows: Range<usize>) -> Result<Array2<T>, Problem> {
        let &[n, d] = self.shape() else { panic!("rows of an array of shape {:?}", self.shape()) };
        assert!(rows.start <= rows.end && rows.end <= n, "rows {rows:?} of {n}");
        let mut values = zeros(&[rows.len(), d])?;
        if self.header.fortran {
            for (column, part) in values.chunks_mut(rows.len().max(1)).enumerate() {
                self.fill(part, column * n + rows.start)?;
            }
        } else {
            self.fill(&mut values, rows.start * d)?;
        }
        self.stamp.check(&self.file)?;
        Array2::from_shape_vec((rows.len(), d).set_f(self.header.fortran), values)
            .map_err(|e| Problem::format(e.to_string()))
    }

    /// Reads some rows. Errors and panics: as [`rows`](Self::rows).
    pub fn data(&self, rows: Range<usize>) -> Result<Data, Problem> {
        match self.dtype() {
            Dtype::F32 => self.rows(rows).map(Data::F32),
            Dtype::F64 => self.rows(rows).map(Data::F64),
        }
    }

    /// Fills `out` with elements from number `first` (counted from 0) on.
    fn fill<T: Element>(&self, out: &mut [T], first: usize) -> Result<(), Problem> {
        let (piece, size) = (PIECE_BYTES / size_of::<T>(), self.stored.size);
        let interrupt = Interrupt::current();
        out.par_chunks_mut(piece).enumerate().try_for_each(|(i, part)| {
            interrupt.check()?;
            let offset = self.header.start + ((first + i * piece) * size) as u64;
            let read = |bytes: &mut [u8]| {
                read_exact_at(&self.file, bytes, offset).map_err(|e| match e.kind() {
                    // The file had the right size when it was opened.
                    io::ErrorKind::UnexpectedEof => Problem::Changed,
                    _ => Problem::io("read it")(e),
                })
            };
            if self.stored.is_as::<T>() {
                read(bytemuck::cast_slice_mut(part))?;
                if self.stored.swap_bytes {
                    part.iter_mut().for_each(|v| *v = v.swapped());
                }
            } else {
                let mut bytes = vec![0; part.len() * size];
                read(&mut bytes)?;
                self.stored.decode(&bytes, part);
            }
            Ok(())
        })
    }
}

#[cfg(unix)]
pub(super) fn read_exact_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

#[cfg(windows)]
pub(super) fn read_exact_at(file: &File, mut out: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !out.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, out, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => (out, offset) = (&mut out[n..], offset + n as u64),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Returns zeros for an array, if there is memory for it: a file may be sparse.
fn zeros<T: Element>(shape: &[usize]) -> Result<Vec<T>, Problem> {
    memory::check("the numbers of the array", shape, size_of::<T>(), "read fewer rows or columns at a time")?;
    Ok(vec![T::zeroed(); shape.iter().product()])
}

/// Reads an array of numbers from the bytes of a .npy, as float64.
pub(in crate::io) fn parse(bytes: &[u8]) -> Result<ArrayD<f64>, Problem> {
    let (header, body) = split(bytes)?;
    let stored = Stored::of(&header)?;
    header.check_size(stored.size as u64, body.len() as u64)?;
    let mut values = zeros(&header.shape)?;
    stored.decode(body, &mut values);
    array(&header, values)
}

/// Reads a data set from a stream of any length. Memory is taken as the data comes, at most as much as the header
/// claims, which is refused if there is no room for it.
pub(super) fn read_stream(content: &mut dyn io::Read, is_vector: bool) -> Result<Data, Problem> {
    fn matrix<T: Element>(header: &Header, stored: Stored, content: &mut dyn io::Read) -> Result<Array2<T>, Problem> {
        let count = header.shape.iter().try_fold(1usize, |n, &length| n.checked_mul(length)).unwrap_or(usize::MAX);
        let what = "the numbers of the array";
        memory::check(what, &header.shape, size_of::<T>(), "write it to a file, which is read in chunks")?;
        let (mut values, mut bytes) = (Vec::<T>::new(), Vec::new());
        while values.len() < count {
            let before = values.len();
            let piece = (PIECE_BYTES / size_of::<T>()).min(count - before);
            bytes.clear();
            let wanted = (piece * stored.size) as u64;
            let read = io::Read::take(&mut *content, wanted).read_to_end(&mut bytes).map_err(stream::problem)?;
            if (read as u64) < wanted {
                // The check fails and says what is missing.
                header.check_size(stored.size as u64, (before * stored.size + read) as u64)?;
            }
            values.resize(before + piece, T::zeroed());
            stored.decode(&bytes, &mut values[before..]);
        }
        if io::Read::take(&mut *content, 1).read_to_end(&mut bytes).map_err(stream::problem)? > 0 {
            let what = format!("more follows the array of shape {:?}: something was appended", header.shape);
            return Err(Problem::Format(what));
        }
        let matrix = array(header, values)?;
        matrix.into_dimensionality().map_err(|e| Problem::format(e.to_string()))
    }
    let mut header = Header::read(&mut &mut *content)?;
    let stored = Stored::of(&header)?;
    make_matrix(&mut header.shape, is_vector)?;
    Ok(match stored.dtype() {
        Dtype::F32 => Data::F32(matrix(&header, stored, content)?),
        Dtype::F64 => Data::F64(matrix(&header, stored, content)?),
    })
}

/// Reads one truth value, whole number or floating-point number (an array without dimensions) as float64.
pub(in crate::io) fn parse_scalar(bytes: &[u8]) -> Result<f64, Problem> {
    let number = parse(bytes)?;
    if number.ndim() > 0 {
        return Err(Problem::format(format!("expected a number, found an array of shape {:?}", number.shape())));
    }
    Ok(number.sum())
}

pub(super) fn split(bytes: &[u8]) -> Result<(Header, &[u8]), Problem> {
    let mut rest = bytes;
    Ok((Header::read(&mut rest)?, rest))
}

/// Writes an array as a `.npy`.
pub fn write_npy<T: WritableElement, D: ndarray::Dimension>(
    array: &ndarray::ArrayRef<T, D>,
    write: impl io::Write,
) -> io::Result<()> {
    array.write_npy(write).map_err(|e| match e {
        WriteNpyError::Io(e) => e,
        e => io::Error::other(e),
    })
}

/// Returns the header of a .npy whose array is in C order.
pub(in crate::io) fn npy_header<T: WritableElement>(shape: Vec<usize>) -> io::Result<Vec<u8>> {
    numpy::Header { type_descriptor: T::type_descriptor(), layout: numpy::Layout::Standard, shape }
        .to_bytes()
        .map_err(io::Error::other)
}

/// Arranges elements in the shape and order of the header, which implies their number.
fn array<T>(header: &Header, values: Vec<T>) -> Result<ArrayD<T>, Problem> {
    ArrayD::from_shape_vec(IxDyn(&header.shape).set_f(header.fortran), values)
        .map_err(|e| Problem::format(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    /// Returns the bytes of a file in version 1 of the format.
    fn npy(descr: &str, shape: &str, body: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}\n");
        [&b"\x93NUMPY\x01\x00"[..], &(header.len() as u16).to_le_bytes(), header.as_bytes(), body].concat()
    }

    fn read<T: Element + Into<f64>>(bytes: &[u8]) -> Vec<f64> {
        let npy = Npy::open(file(bytes).path(), true).unwrap();
        npy.rows::<T>(0..npy.shape()[0]).unwrap().iter().map(|&v| v.into()).collect()
    }

    #[test]
    fn rows_are_those_of_the_whole() {
        let x = Array2::from_shape_fn((5, 3), |(i, j)| (i * 3 + j) as f64 / 2.0);
        let mut c_order = Vec::new();
        write_npy(&x, &mut c_order).unwrap();
        let mut fortran = Vec::new();
        write_npy(&x.t().as_standard_layout().reversed_axes(), &mut fortran).unwrap();
        assert!(String::from_utf8_lossy(&fortran).contains("'fortran_order': True"));
        for bytes in [&c_order, &fortran] {
            assert_eq!(read::<f64>(bytes), x.iter().copied().collect::<Vec<_>>());
            let file = file(bytes);
            let npy = Npy::open(file.path(), false).unwrap();
            for rows in [0..5, 0..1, 1..4, 4..5, 2..2] {
                assert_eq!(npy.rows::<f64>(rows.clone()).unwrap(), x.slice(ndarray::s![rows, ..]));
            }
        }
    }

    #[test]
    fn headers_of_any_length_are_read() {
        let mut vector = Vec::new();
        write_npy(&ndarray::arr1(&[2.5f64]), &mut vector).unwrap();
        // A header whose length is not a multiple of 8, as NumPy wrote long ago.
        let mut odd = vector.clone();
        odd.remove(100);
        odd[8] -= 1;
        for bytes in [vector, odd] {
            assert_eq!(read::<f64>(&bytes), [2.5]);
            assert_eq!(parse(&bytes).unwrap().sum(), 2.5);
        }
    }

    /// Every kind, width and byte order, at its extremes; from files (which are read in place), and from bytes and
    /// streams.
    #[test]
    fn integers_truth_values_and_half_precision_are_read() {
        fn big_and_little(descr: &str, values: &[(f64, &[u8])]) {
            for (order, reversed) in [('<', true), ('>', false)] {
                let ordered = |big: &[u8]| if reversed { big.iter().rev().copied().collect() } else { big.to_vec() };
                let body: Vec<u8> = values.iter().flat_map(|(_, big)| ordered(big)).collect();
                let bytes = npy(&format!("{order}{descr}"), &format!("(1, {})", values.len()), &body);
                let wanted: Vec<f64> = values.iter().map(|(value, _)| *value).collect();
                assert_eq!(read::<f64>(&bytes), wanted, "{order}{descr}");
                assert_eq!(parse(&bytes).unwrap().iter().copied().collect::<Vec<_>>(), wanted, "{order}{descr}");
                let data = read_stream(&mut &bytes[..], false).unwrap();
                assert_eq!(data.dtype(), if descr == "f2" { "float32" } else { "float64" });
                assert_eq!(data.dim(), (1, values.len()));
                let opened = Npy::open(file(&bytes).path(), false).unwrap();
                assert_eq!(format!("{data:?}"), format!("{:?}", opened.data(0..1).unwrap()));
            }
        }
        big_and_little("b1", &[(0.0, &[0]), (1.0, &[1])]);
        big_and_little("u1", &[(0.0, &[0]), (255.0, &[255])]);
        big_and_little("i1", &[(-128.0, &[0x80]), (127.0, &[0x7f]), (-1.0, &[0xff])]);
        big_and_little("u2", &[(65_535.0, &[0xff, 0xff]), (256.0, &[1, 0])]);
        big_and_little("i2", &[(-32_768.0, &[0x80, 0]), (258.0, &[1, 2])]);
        big_and_little("u4", &[(4_294_967_295.0, &[0xff; 4]), (16_777_216.0, &[1, 0, 0, 0])]);
        big_and_little("i4", &[(-2_147_483_648.0, &[0x80, 0, 0, 0]), (-2.0, &[0xff, 0xff, 0xff, 0xfe])]);
        big_and_little("u8", &[(1.844_674_407_370_955_2e19, &[0xff; 8]), (3.0, &[0, 0, 0, 0, 0, 0, 0, 3])]);
        big_and_little("i8", &[(-9.223_372_036_854_776e18, &[0x80, 0, 0, 0, 0, 0, 0, 0]), (-1.0, &[0xff; 8])]);
        let half = |value| half::f16::from_f64(value).to_f64();
        big_and_little("f2", &[(65_504.0, &[0x7b, 0xff]), (half(-0.1), &[0xae, 0x66])]);
    }

    #[test]
    fn streams_that_are_cut_or_go_on_are_refused() {
        let mut bytes = Vec::new();
        write_npy(&ndarray::arr2(&[[1u8, 2], [3, 4]]), &mut bytes).unwrap();
        assert_eq!(read_stream(&mut &bytes[..], false).unwrap().dim(), (2, 2));
        let error = read_stream(&mut &bytes[..bytes.len() - 1], false).unwrap_err().to_string();
        assert!(error.contains("takes 4 bytes, the file holds 3"), "{error}");
        bytes.push(5);
        let error = read_stream(&mut &bytes[..], false).unwrap_err().to_string();
        assert!(error.contains("something was appended"), "{error}");
        // A claim is refused before its data comes.
        let claim = npy("|u1", "(1125899906842624, 2)", &[]);
        let mut endless = io::Read::chain(&claim[..], io::repeat(0));
        let error = read_stream(&mut endless, false).unwrap_err().to_string();
        assert!(error.contains("16 PiB of memory"), "{error}");
    }

    /// The array takes more than one piece, so that several threads read.
    #[test]
    fn large_arrays_are_read_in_pieces() {
        let n = 3 * PIECE_BYTES / 4 + 5;
        let x = ndarray::Array1::from_shape_fn(n, |i| i as f32);
        let mut bytes = Vec::new();
        write_npy(&x, &mut bytes).unwrap();
        assert!(read::<f32>(&bytes).into_iter().eq(x.iter().map(|&v| f64::from(v))));
    }

    #[test]
    fn files_that_change_are_found_out() {
        let mut bytes = Vec::new();
        write_npy(&Array2::<f32>::zeros((1000, 3)), &mut bytes).unwrap();
        let changed = |change: &dyn Fn(&File)| {
            let file = file(&bytes);
            // The time of change has a coarse resolution; an old one makes any change visible.
            file.as_file().set_modified(std::time::UNIX_EPOCH).unwrap();
            let npy = Npy::open(file.path(), false).unwrap();
            assert!(npy.rows::<f32>(0..10).is_ok());
            change(&File::options().write(true).open(file.path()).unwrap());
            for rows in [0..1000, 0..1] {
                let error = npy.rows::<f32>(rows).unwrap_err();
                assert!(matches!(error, Problem::Changed), "{error}");
            }
        };
        changed(&|file| file.set_len(200).unwrap());
        changed(&|file| file.set_len(1 << 20).unwrap());
        changed(&|mut file| io::Write::write_all(&mut file, b"\x93NUMPY").unwrap());
    }

    #[test]
    fn scalars() {
        let number = |descr: &str, body: &[u8]| parse_scalar(&npy(descr, "()", body)).map_err(|e| e.to_string());
        assert_eq!(number("|b1", &[1]), Ok(1.0));
        assert_eq!(number("<i4", &(-7i32).to_le_bytes()), Ok(-7.0));
        assert_eq!(number(">i8", &300i64.to_be_bytes()), Ok(300.0));
        assert_eq!(number("|u1", &[200]), Ok(200.0));
        assert_eq!(number("<f4", &0.5f32.to_le_bytes()), Ok(0.5));
        assert_eq!(number(">f2", &[0x35, 0x00]), Ok(0.3125));
        assert!(number("<i8", &[1, 2]).is_err());
        assert!(number("<U1", &[1, 0, 0, 0]).is_err());
    }
}
