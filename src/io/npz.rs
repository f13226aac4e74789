//! Mixtures as .npz, with the names and shapes of scikit-learn's attributes.
use super::npy::{self, write_npy};
use super::{Problem, model};
use gmm_host::{CovarianceType, Covariances, Fit, Mixture};
use ndarray::{arr0, aview1};
use ndarray_npy::WritableElement;
use std::io::{Cursor, Read, Seek, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

const TYPE: &str = "covariance_type";

/// Reads a mixture: `covariance_type`, `weights_`, `means_`, `covariances_`.
pub(super) fn read(file: impl Read + Seek) -> Result<Mixture, Problem> {
    let mut archive = ZipArchive::new(file).map_err(|e| Problem::Format(format!("not a .npz file: {e}")))?;
    let mut entry = |name: &str| {
        let mut bytes = Vec::new();
        let entry = archive.by_name(&format!("{name}.npy"));
        let mut entry = entry.map_err(|e| Problem::Format(format!("the .npz has no usable `{name}`: {e}")))?;
        entry.read_to_end(&mut bytes).map_err(Problem::io("read it"))?;
        Ok::<_, Problem>(bytes)
    };
    let named = |name: &str, e: Problem| Problem::Format(format!("`{name}`: {e}"));
    let covariance_type: CovarianceType = npy::parse_text(&entry(TYPE)?).map_err(|e| named(TYPE, e))?.parse()?;
    let mut array = |name: &str| {
        let array = npy::parse(&entry(name)?).map_err(|e| named(name, e))?;
        Ok::<_, Problem>((array.shape().to_vec(), array.iter().copied().collect()))
    };
    model::build(covariance_type, array("weights_")?, array("means_")?, array("covariances_")?)
}

/// The bytes of a .npz; besides what is read, the precisions and their Cholesky factors, so that a scikit-learn object works
/// with nothing but these attributes, and how a fit found it.
pub(super) fn to_bytes(mixture: &Mixture, fit: Option<&Fit>) -> Result<Vec<u8>, Problem> {
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
    if let Some(fit) = fit {
        add("converged_", bytes(&*arr0(fit.converged))?)?;
        add("n_iter_", bytes(&*arr0(fit.n_iter() as i64))?)?;
        if let Some(&last) = fit.lower_bounds.last() {
            add("lower_bound_", bytes(&*arr0(last))?)?;
        }
        add("lower_bounds_", bytes(&*aview1(&fit.lower_bounds))?)?;
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
