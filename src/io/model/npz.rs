//! Models as .npz, with the names and shapes of scikit-learn's attributes.
use super::contents::{FitSummary, Model, mixture_from_arrays};
use super::variational;
use crate::io::Problem;
use crate::io::data::npy::{self, write_npy};
use crate::io::data::npy_header::Header;
use crate::io::data::npy_text;
use crate::io::data::short as shortened;
use gmm_host::{CovarianceModel, Covariances, Mixture, UniformDensity, VariationalMixture, memory};
use ndarray::{ArrayD, arr0, aview1};
use ndarray_npy::WritableElement;
use std::collections::{HashMap, HashSet};
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

const TYPE: &str = "covariance_type";
const NAMES: &str = "feature_names_in_";
const MEANS: &str = "means_";
const BOUNDS: &str = "lower_bounds_";
/// A member with at most this many elements may have any shape: its error is reported later.
const SMALL: usize = 1 << 16;
/// The most bytes of a text element, at four bytes a character.
const MAX_TEXT: u64 = 1 << 20;
/// The memory of a mixture and of reading it, in multiples of the arrays' bytes.
const COPIES: usize = 4;
/// The members to read. Others are checked as files, and their values are ignored.
const MEMBERS: [&str; 14] = [
    TYPE,
    NAMES,
    "weights_",
    MEANS,
    "covariances_",
    "precisions_",
    "precisions_cholesky_",
    "converged_",
    "n_iter_",
    "lower_bound_",
    BOUNDS,
    "noise_volume_",
    "noise_lower_",
    "noise_upper_",
];

fn is_read(name: &str) -> bool {
    MEMBERS.contains(&name) || name == variational::PRIOR_TYPE || is_of_posterior(name)
}

fn is_of_posterior(name: &str) -> bool {
    name.strip_suffix('_').is_some_and(|name| variational::NAMES.contains(&name))
}

/// Reads a mixture (`covariance_type`, `weights_`, `means_`, `covariances_`), the record of its fit, and the posterior.
pub(super) fn read(file: impl Read + Seek) -> Result<Model, Problem> {
    let mut members = members(file)?;
    let prior_type = members.remove(variational::PRIOR_TYPE);
    let mut entry = |name: &str| members.remove(name);
    let missing = |name: &str| Problem::format(format!("the .npz has no usable `{name}`: there is no such member"));
    let named = |name: &str, e: Problem| Problem::format(format!("`{name}`: {e}"));
    let text = entry(TYPE).ok_or_else(|| missing(TYPE))?;
    let covariance_type: CovarianceModel = npy_text::parse_text(&text).map_err(|e| named(TYPE, e))?.parse()?;
    let mut array = |name: &str| {
        let parse = |bytes: Vec<u8>| {
            let array = npy::parse(&bytes).map_err(|e| named(name, e))?;
            Ok::<_, Problem>((array.shape().to_vec(), array.iter().copied().collect::<Vec<f64>>()))
        };
        entry(name).map(parse).transpose()
    };
    let mut needed = |name: &str| array(name)?.ok_or_else(|| missing(name));
    let (weights, means, covariances) = (needed("weights_")?, needed("means_")?, needed("covariances_")?);
    let noise = match array("noise_volume_")? {
        Some((_, volume)) => {
            let mut bound = |name: &str| Ok::<_, Problem>(array(name)?.ok_or_else(|| missing(name))?.1);
            let [volume] = volume[..] else { return Err(missing("noise_volume_")) };
            Some(UniformDensity { volume, lower: bound("noise_lower_")?, upper: bound("noise_upper_")? })
        }
        None => None,
    };
    let mixture = mixture_from_arrays(covariance_type, weights, means, covariances, noise)?;
    // This program computes precisions itself, but scikit-learn takes them from the file.
    for name in ["precisions_", "precisions_cholesky_"] {
        let Some((shape, values)) = array(name)? else { continue };
        let gaussians = mixture.without_noise();
        let wanted = gaussians.covariances().shape();
        if shape != wanted {
            return Err(named(name, Problem::format(format!("the shape is {shape:?}; expected {wanted:?}"))));
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
    let posterior = match prior_type {
        None => None,
        Some(text) => {
            let prior_type = npy_text::parse_text(&text).map_err(|e| named(variational::PRIOR_TYPE, e))?;
            let of_name = |name: &'static str| array(&format!("{name}_"))?.ok_or_else(|| variational::missing(name));
            Some(variational::posterior(&mixture, &prior_type, of_name)?)
        }
    };
    let names = entry(NAMES).map(|bytes| npy_text::parse_texts(&bytes).map_err(|e| named(NAMES, e))).transpose()?;
    let mut number =
        |name: &str| entry(name).map(|bytes| npy::parse_scalar(&bytes).map_err(|e| named(name, e))).transpose();
    let n_iter = number("n_iter_")?;
    if let Some(n) = n_iter.filter(|n| !(n.fract() == 0.0 && (0.0..1e15).contains(n))) {
        return Err(named("n_iter_", Problem::format(format!("{n} is not a number of iterations"))));
    }
    let summary = FitSummary {
        feature_names: names,
        converged: number("converged_")?.map(|v| v != 0.0),
        n_iter: n_iter.map(|n| n as u64),
        lower_bound: number("lower_bound_")?,
        lower_bounds,
    };
    if let Some(bound) = summary.lower_bounds.iter().flatten().chain(&summary.lower_bound).find(|v| !v.is_finite()) {
        return Err(named(
            "lower_bounds_",
            Problem::format(format!("{bound} is not a lower bound: leave the member out")),
        ));
    }
    summary.check(&mixture).map_err(|e| named(NAMES, e))?;
    Ok(Model { mixture, summary, posterior })
}

/// Returns the bytes of the members to read, by their names without `.npy`. Every member is decompressed to its end,
/// where the archive reader compares its checksum.
fn members(file: impl Read + Seek) -> Result<HashMap<String, Vec<u8>>, Problem> {
    let mut archive = open(file)?;
    let headers = (0..archive.len()).map(|i| member(&mut archive, i)).collect::<Result<Vec<_>, _>>()?;
    check_shapes(&headers)?;
    let mut members = HashMap::new();
    for (i, (name, size, _)) in headers.into_iter().enumerate() {
        let failed = |e: io::Error| Problem::format(format!("the .npz has no usable `{}`: {e}", shortened(&name)));
        let entry = archive.by_index(i).map_err(|e| failed(e.into()))?;
        // The limit is one byte beyond the size, so that the reader reaches the end.
        let mut content = entry.take(size + 1);
        if is_read(&name) {
            let mut bytes = Vec::new();
            content.read_to_end(&mut bytes).map_err(failed)?;
            members.insert(name, bytes);
        } else {
            io::copy(&mut content, &mut io::sink()).map_err(failed)?;
        }
    }
    Ok(members)
}

/// Checks, before members are read, that none has more numbers than a mixture with means of this shape needs, and that
/// all together fit into memory: a member may be compressed to a thousandth of its size.
fn check_shapes(headers: &[(String, u64, Header)]) -> Result<(), Problem> {
    let used = || headers.iter().filter(|(name, ..)| is_read(name));
    let count = |shape: &[usize]| shape.iter().fold(1usize, |n, &length| n.saturating_mul(length));
    let means = used().find(|(name, ..)| name == MEANS).map(|(.., header)| &header.shape[..]);
    let (k, d) = match means {
        Some(&[k, d]) => (k, d),
        // The means cause an error later.
        _ => (1, 1),
    };
    for (name, _, header) in used() {
        let shape = &header.shape;
        if header.element().is_some_and(|(_, size, _)| size > MAX_TEXT) {
            return Err(Problem::format(format!("`{name}`: its texts have more than {} characters", MAX_TEXT / 4)));
        }
        let most = match name.as_str() {
            MEANS if means.is_some_and(|shape| shape.len() == 2) => count(&[k, d]),
            "weights_" => k + 1,
            NAMES | "noise_lower_" | "noise_upper_" => d,
            "covariances_" | "precisions_" | "precisions_cholesky_" => count(&[k, d, d]),
            BOUNDS => usize::MAX,
            name if is_of_posterior(name) => count(&[2, k, d, d]),
            _ => 1,
        };
        if count(shape) > most.max(SMALL) {
            return Err(Problem::format(format!(
                "`{name}`: the shape is {shape:?}, which is too large beside means of shape {:?}",
                means.unwrap_or(&[])
            )));
        }
    }
    let bytes =
        used().fold(0usize, |sum, (_, size, _)| sum.saturating_add(usize::try_from(*size).unwrap_or(usize::MAX)));
    Ok(memory::check("the arrays of the .npz", &[bytes, COPIES], 1, "this machine cannot use the model")?)
}

/// Returns the name, the size and the header of a member, after a check that header and size agree.
fn member<R: Read + Seek>(archive: &mut ZipArchive<R>, index: usize) -> Result<(String, u64, Header), Problem> {
    /// Deflate compresses at most by about this factor; a member that claims more is refused before memory is taken for
    /// it.
    const MAX_RATIO: u64 = 1040;
    let mut entry = archive.by_index(index).map_err(|e| Problem::format(format!("not a usable .npz file: {e}")))?;
    let name = entry.name().to_string();
    let named = |e: Problem| {
        Problem::format(format!("the .npz has no usable `{}`: {e}", shortened(name.trim_end_matches(".npy"))))
    };
    let size = entry.size();
    if size > entry.compressed_size().saturating_mul(MAX_RATIO).saturating_add(64) {
        return Err(named(Problem::format(format!("it claims {size} bytes, more than its content can hold"))));
    }
    let header = Header::read(&mut entry).map_err(named)?;
    let element = header.element().ok_or_else(|| {
        named(Problem::format(format!(
            "its type is {}; only numbers, truth values and texts are read",
            shortened(&header.descr)
        )))
    })?;
    header.check_size(element.1, size.saturating_sub(header.start)).map_err(named)?;
    Ok((name.trim_end_matches(".npy").to_string(), size, header))
}

/// Opens an archive, after a check that every name occurs once and that the two places that hold a checksum agree.
///
/// `ZipArchive` reserves memory for as many members as the archive claims, at most 65,535, which is some 14 MB.
fn open<R: Read + Seek>(file: R) -> Result<ZipArchive<R>, Problem> {
    let not_npz = |e: zip::result::ZipError| Problem::format(format!("not a .npz file: {e}"));
    let archive = ZipArchive::new(file).map_err(not_npz)?;
    // `ZipArchive` indexes its members by name and shows only the last of two with the same name, so the directory is
    // read again.
    let (directory, offset) = (archive.central_directory_start(), archive.offset());
    let mut file = archive.into_inner();
    check_directory(&mut file, directory, offset)?;
    ZipArchive::new(file).map_err(not_npz)
}

/// Reads the central directory (section 4.3.12 of the ZIP specification, APPNOTE.TXT) and the local headers that it
/// points to (4.3.7).
fn check_directory<R: Read + Seek>(file: &mut R, directory: u64, offset: u64) -> Result<(), Problem> {
    /// The flag of a member whose checksum follows its content, and is missing in its local header.
    const CHECKSUM_FOLLOWS: u16 = 1 << 3;
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
                "the .npz has the member `{}` twice; remove one of them",
                shortened(&shown)
            )));
        }
        // The largest offset marks a member beyond 4 GiB, whose offset is stored elsewhere.
        if long(42) != u32::MAX {
            let mut local = [0; 18];
            file.seek(SeekFrom::Start(offset + u64::from(long(42)))).map_err(damaged)?;
            file.read_exact(&mut local).map_err(damaged)?;
            let follows = u16::from_le_bytes([local[6], local[7]]) & CHECKSUM_FOLLOWS != 0;
            if !follows && local[14..18] != record[16..20] {
                return Err(Problem::format(format!(
                    "the two checksums of `{}` in the .npz differ: it is damaged",
                    shortened(&shown)
                )));
            }
        }
        at += 46 + [28, 30, 32].map(|i| u64::from(short(i))).iter().sum::<u64>();
    }
}

/// Returns the bytes of a .npz with all attributes that a scikit-learn object needs, including precisions and their
/// Cholesky factors, the record of the fit, and the posterior, if any.
pub(super) fn to_bytes(
    mixture: &Mixture,
    summary: &FitSummary,
    posterior: Option<&VariationalMixture>,
) -> Result<Vec<u8>, Problem> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    // Not compressed, like `numpy.savez`.
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
    let mut add = |name: &str, bytes: Vec<u8>| {
        let started = archive.start_file(format!("{name}.npy"), options).map_err(std::io::Error::from);
        started.and_then(|()| archive.write_all(&bytes)).map_err(Problem::io("write it"))
    };
    add(TYPE, npy_text::text_to_npy(mixture.covariance_model().name()).map_err(Problem::io("write it"))?)?;
    let gaussians = mixture.without_noise();
    add("weights_", bytes(&mixture.weights())?)?;
    add("means_", bytes(&gaussians.means())?)?;
    if let Some(noise) = mixture.noise() {
        add("noise_volume_", bytes(&arr0(noise.volume))?)?;
        add("noise_lower_", bytes(&aview1(&noise.lower))?)?;
        add("noise_upper_", bytes(&aview1(&noise.upper))?)?;
    }
    for (name, covariances) in [
        ("covariances_", gaussians.covariances()),
        ("precisions_", &gaussians.precisions()),
        ("precisions_cholesky_", &*gaussians.precisions_cholesky()),
    ] {
        add(name, covariance_bytes(covariances)?)?;
    }
    if let Some(posterior) = posterior {
        let prior_type = posterior.prior().weight_concentration_type.name();
        add(variational::PRIOR_TYPE, npy_text::text_to_npy(prior_type).map_err(Problem::io("write it"))?)?;
        for (name, array) in variational::NAMES.into_iter().zip(variational::arrays(posterior)) {
            add(&format!("{name}_"), array_bytes(array)?)?;
        }
    }
    if let Some(names) = &summary.feature_names {
        add(NAMES, npy_text::texts_to_npy(names).map_err(Problem::io("write it"))?)?;
    }
    if let Some(converged) = summary.converged {
        add("converged_", bytes(&*arr0(converged))?)?;
    }
    if let Some(n_iter) = summary.n_iter {
        add("n_iter_", bytes(&*arr0(n_iter as i64))?)?;
    }
    if let Some(bound) = summary.lower_bound {
        add("lower_bound_", bytes(&*arr0(bound))?)?;
    }
    if let Some(bounds) = &summary.lower_bounds {
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
    array_bytes((covariances.shape().to_vec(), covariances.iter().collect()))
}

fn array_bytes((shape, values): (Vec<usize>, Vec<f64>)) -> Result<Vec<u8>, Problem> {
    let array = ArrayD::from_shape_vec(shape, values);
    bytes(&*array.map_err(|e| Problem::format(e.to_string()))?)
}
