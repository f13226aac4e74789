//! The noise of the samples, in memory or in a file that is read beside theirs.
use super::storage::Storage;
use anyhow::bail;
use gaussmix::data::Noise;
use gaussmix::{Error, mcmc};
use ndarray::Array3;
use std::ops::Range;
use std::path::Path;

/// The noise of N samples of D columns: variances (N, D), covariances row by row (N, D²), or one covariance (D, D).
pub struct NoiseFile {
    storage: Storage,
    d: usize,
    is_common: bool,
}

impl NoiseFile {
    /// Checks the shape of the file, for samples (N, D).
    pub fn new(path: &Path, storage: Storage, (n, d): (usize, usize)) -> anyhow::Result<Self> {
        let (rows, columns) = storage.dim();
        let is_common = rows != n && (rows, columns) == (d, d);
        if !is_common && (rows != n || columns != d && columns != d * d) {
            bail!(
                "{}: {rows} rows of {columns} columns are not the noise of {n} rows of {d} columns; give {d} variances or {} \
                 covariances for each row, or one covariance for all rows, {d} × {d}",
                path.display(),
                d * d
            );
        }
        Ok(Self { storage, d, is_common })
    }

    /// Returns the size of the numbers in bytes, and of those that are in memory.
    pub fn n_bytes(&self) -> (u64, u64) {
        let bytes = self.storage.n_bytes();
        (bytes, if self.storage.is_memory() { bytes } else { 0 })
    }

    /// Returns the noise of some of the samples.
    pub fn rows<'a>(&self, rows: Range<usize>) -> gaussmix::Result<Noise<'a>> {
        let (d, start) = (self.d, rows.start);
        let of_file = if self.is_common { 0..d } else { rows };
        let values = self.storage.rows(of_file).map_err(|e| Error::Load(Box::new(e)))?.into_f64();
        let n = values.nrows();
        let noise = if self.is_common {
            Noise::common(values)
        } else if values.ncols() == d {
            Noise::variances(values.into_shared())
        } else {
            let got = values.shape().to_vec();
            let mismatch = |_| Error::ShapeMismatch { what: "the noise", expected: vec![n, d, d], got };
            Noise::covariances(
                Array3::from_shape_vec((n, d, d), values.into_iter().collect()).map_err(mismatch)?.into_shared(),
            )
        };
        noise.map_err(|error| match error {
            Error::BadNoise { what, problem } if start > 0 && !self.is_common => {
                Error::BadNoise { what: format!("{what} of the chunk that begins at row {start}"), problem }
            }
            error => error,
        })
    }

    /// Returns a hash of the numbers, which are read `rows` at a time.
    pub fn content(&self, rows: usize) -> anyhow::Result<String> {
        let n = self.storage.dim().0;
        let mut content = mcmc::Fingerprint::new(n);
        for start in (0..n).step_by(rows) {
            content.add(&self.storage.rows(start..n.min(start + rows))?.into_samples()?);
        }
        Ok(content.finish(None))
    }
}
