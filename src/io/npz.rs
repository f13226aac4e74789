//! Mixtures as .npz, with the names and shapes of scikit-learn's attributes.
use super::header::Header;
use super::model::{self, Found};
use super::npy::{self, write_npy};
use super::{Problem, Result as FileResult};
use gmm_host::{CovarianceType, Covariances, Mixture};
use ndarray::{arr0, aview1};
use ndarray_npy::WritableElement;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

const TYPE: &str = "covariance_type";
/// The members that are read; all others are checked as files and left alone.
const MEMBERS: [&str; 10] = [
    TYPE,
    "weights_",
    "means_",
    "covariances_",
    "precisions_",
    "precisions_cholesky_",
    "converged_",
    "n_iter_",
    "lower_bound_",
    "lower_bounds_",
];

/// Reads a mixture (`covariance_type`, `weights_`, `means_`, `covariances_`) and how it was found, as far as that stands there.
pub(super) fn read(file: impl Read + Seek) -> Result<(Mixture, Found), Problem> {
    let mut members = members(file)?;
    let mut entry = |name: &str| members.remove(name);
    let missing = |name: &str| Problem::format(format!("the .npz has no usable `{name}`: there is no such member"));
    let named = |name: &str, e: Problem| Problem::format(format!("`{name}`: {e}"));
    let text = entry(TYPE).ok_or_else(|| missing(TYPE))?;
    let covariance_type: CovarianceType = npy::parse_text(&text).map_err(|e| named(TYPE, e))?.parse()?;
    let mut array = |name: &str| {
        let parse = |bytes: Vec<u8>| {
            let array = npy::parse(&bytes).map_err(|e| named(name, e))?;
            Ok::<_, Problem>((array.shape().to_vec(), array.iter().copied().collect::<Vec<f64>>()))
        };
        entry(name).map(parse).transpose()
    };
    let mut needed = |name: &str| array(name)?.ok_or_else(|| missing(name));
    let mixture = model::build(covariance_type, needed("weights_")?, needed("means_")?, needed("covariances_")?)?;
    // Not needed here; but scikit-learn computes with them.
    for name in ["precisions_", "precisions_cholesky_"] {
        let Some((shape, values)) = array(name)? else { continue };
        let wanted = mixture.covariances().shape();
        if shape != wanted {
            return Err(named(name, Problem::format(format!("the shape is {shape:?} where {wanted:?} is needed"))));
        }
        if let Some(at) = values.iter().position(|v| !v.is_finite()) {
            let value = values[at];
            return Err(named(
                name,
                Problem::format(format!("value {at} (counted from 0) is {value}: leave `{name}` out")),
            ));
        }
    }
    let lower_bounds = array("lower_bounds_")?.map(|(_, values)| values);
    let mut number =
        |name: &str| entry(name).map(|bytes| npy::parse_scalar(&bytes).map_err(|e| named(name, e))).transpose();
    let n_iter = number("n_iter_")?;
    if let Some(n) = n_iter.filter(|n| !(n.fract() == 0.0 && (0.0..1e15).contains(n))) {
        return Err(named("n_iter_", Problem::format(format!("{n} is no number of iterations"))));
    }
    let found = Found {
        converged: number("converged_")?.map(|v| v != 0.0),
        n_iter: n_iter.map(|n| n as u64),
        lower_bound: number("lower_bound_")?,
        lower_bounds,
    };
    if let Some(bound) = found.lower_bounds.iter().flatten().chain(&found.lower_bound).find(|v| !v.is_finite()) {
        return Err(named(
            "lower_bounds_",
            Problem::format(format!("{bound} is no lower bound: leave the member out")),
        ));
    }
    Ok((mixture, found))
}

/// Makes sure that a .npz can be read without a surprise: that each of its members is there once, is a plain array whose header
/// is bounded, and has the size that the header tells. The arrays themselves are not read.
///
/// # Errors
/// A file that cannot be read or is not such an archive; the error names the member.
pub fn check_npz(path: impl AsRef<Path>) -> FileResult<()> {
    let path = path.as_ref();
    let check = || {
        let mut archive = open(File::open(path).map_err(Problem::io("read it"))?)?;
        (0..archive.len()).try_for_each(|i| member(&mut archive, i).map(drop))
    };
    check().map_err(|problem| problem.at(path))
}

/// The bytes of the members that are read, by name without `.npy`. All are read to their end, so that their checksums are
/// compared.
fn members(file: impl Read + Seek) -> Result<HashMap<String, Vec<u8>>, Problem> {
    let mut archive = open(file)?;
    let mut members = HashMap::new();
    for i in 0..archive.len() {
        let (name, size) = member(&mut archive, i)?;
        let failed = |e: io::Error| Problem::format(format!("the .npz has no usable `{name}`: {e}"));
        let entry = archive.by_index(i).map_err(|e| failed(e.into()))?;
        // One byte more than there should be, so that the end is seen.
        let mut content = entry.take(size + 1);
        if MEMBERS.contains(&name.as_str()) {
            let mut bytes = Vec::new();
            content.read_to_end(&mut bytes).map_err(failed)?;
            members.insert(name, bytes);
        } else {
            io::copy(&mut content, &mut io::sink()).map_err(failed)?;
        }
    }
    Ok(members)
}

/// Name and size of a member, whose header was read and agrees with the size.
fn member<R: Read + Seek>(archive: &mut ZipArchive<R>, index: usize) -> Result<(String, u64), Problem> {
    /// No stream that deflate made is longer than this many times its compressed form.
    const RATIO: u64 = 1040;
    let mut entry = archive.by_index(index).map_err(|e| Problem::format(format!("not a usable .npz file: {e}")))?;
    let name = entry.name().to_string();
    let named =
        |e: Problem| Problem::format(format!("the .npz has no usable `{}`: {e}", name.trim_end_matches(".npy")));
    let size = entry.size();
    if size > entry.compressed_size().saturating_mul(RATIO).saturating_add(64) {
        return Err(named(Problem::format(format!("it claims {size} bytes, more than its content can hold"))));
    }
    let header = Header::read(&mut entry).map_err(named)?;
    let element = header.element().ok_or_else(|| {
        named(Problem::format(format!("its type is {}; only numbers, truth values and texts are read", header.descr)))
    })?;
    header.check_size(element.1, size.saturating_sub(header.start)).map_err(named)?;
    Ok((name.trim_end_matches(".npy").to_string(), size))
}

/// Opens an archive in which every name is there once, and its checksums are the same in both places that tell them.
fn open<R: Read + Seek>(file: R) -> Result<ZipArchive<R>, Problem> {
    let not_npz = |e: zip::result::ZipError| Problem::format(format!("not a .npz file: {e}"));
    let archive = ZipArchive::new(file).map_err(not_npz)?;
    // The archive's own index holds the last member of a name only, so that the directory is read again.
    let (directory, offset) = (archive.central_directory_start(), archive.offset());
    let mut file = archive.into_inner();
    check_directory(&mut file, directory, offset)?;
    ZipArchive::new(file).map_err(not_npz)
}

/// Walks the central directory (APPNOTE.TXT of the ZIP format, 4.3.12) and the local headers that it points to (4.3.7).
fn check_directory<R: Read + Seek>(file: &mut R, directory: u64, offset: u64) -> Result<(), Problem> {
    const SIZES: u16 = 1 << 3;
    let damaged = |e: io::Error| Problem::format(format!("not a usable .npz file: {e}"));
    let mut names = HashSet::new();
    let mut at = directory;
    loop {
        let mut record = [0; 46];
        file.seek(SeekFrom::Start(at)).map_err(damaged)?;
        if file.read_exact(&mut record).is_err() || !record.starts_with(b"PK\x01\x02") {
            return Ok(());
        }
        let short = |i: usize| u16::from_le_bytes([record[i], record[i + 1]]);
        let long = |i: usize| u32::from_le_bytes([record[i], record[i + 1], record[i + 2], record[i + 3]]);
        let mut name = vec![0; usize::from(short(28))];
        file.read_exact(&mut name).map_err(damaged)?;
        let shown = String::from_utf8_lossy(&name).trim_end_matches(".npy").to_string();
        if !names.insert(name) {
            return Err(Problem::format(format!(
                "the .npz has the member `{shown}` twice; which one counts is not known"
            )));
        }
        // The largest number stands for one that does not fit: a member beyond 4 GiB.
        if long(42) != u32::MAX {
            let mut local = [0; 18];
            file.seek(SeekFrom::Start(offset + u64::from(long(42)))).map_err(damaged)?;
            file.read_exact(&mut local).map_err(damaged)?;
            let later = u16::from_le_bytes([local[6], local[7]]) & SIZES != 0;
            if !later && local[14..18] != record[16..20] {
                return Err(Problem::format(format!(
                    "the two checksums of `{shown}` in the .npz differ: it is damaged"
                )));
            }
        }
        at += 46 + [28, 30, 32].map(|i| u64::from(short(i))).iter().sum::<u64>();
    }
}

/// The bytes of a .npz; besides what is read, the precisions and their Cholesky factors, so that a scikit-learn object works
/// with nothing but these attributes, and how a fit found it.
pub(super) fn to_bytes(mixture: &Mixture, found: &Found) -> Result<Vec<u8>, Problem> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    // As numpy.savez: not compressed.
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
    let mut add = |name: &str, bytes: Vec<u8>| {
        let started = archive.start_file(format!("{name}.npy"), options).map_err(std::io::Error::from);
        started.and_then(|()| archive.write_all(&bytes)).map_err(Problem::io("write it"))
    };
    add(TYPE, npy::text_to_npy(mixture.covariance_type().name()))?;
    add("weights_", bytes(&mixture.weights())?)?;
    add("means_", bytes(&mixture.means())?)?;
    for (name, covariances) in [
        ("covariances_", mixture.covariances()),
        ("precisions_", &mixture.precisions()),
        ("precisions_cholesky_", &*mixture.precisions_cholesky()),
    ] {
        add(name, covariance_bytes(covariances)?)?;
    }
    if let Some(converged) = found.converged {
        add("converged_", bytes(&*arr0(converged))?)?;
    }
    if let Some(n_iter) = found.n_iter {
        add("n_iter_", bytes(&*arr0(n_iter as i64))?)?;
    }
    if let Some(bound) = found.lower_bound {
        add("lower_bound_", bytes(&*arr0(bound))?)?;
    }
    if let Some(bounds) = &found.lower_bounds {
        add("lower_bounds_", bytes(&*aview1(bounds))?)?;
    }
    let cursor = archive.finish().map_err(|e| Problem::io("write it")(e.into()))?;
    Ok(cursor.into_inner())
}

fn bytes<T: WritableElement, D: ndarray::Dimension>(array: &ndarray::ArrayRef<T, D>) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    write_npy(array, &mut bytes).map_err(Problem::io("write it"))?;
    Ok(bytes)
}

fn covariance_bytes(covariances: &Covariances) -> Result<Vec<u8>, Problem> {
    let shape = covariances.shape().to_vec();
    let array = ndarray::ArrayD::from_shape_vec(shape, covariances.iter().collect());
    bytes(&*array.map_err(|e| Problem::Format(e.to_string()))?)
}
