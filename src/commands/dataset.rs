//! Samples in memory, or in a file of which a chunk at a time is read.
use gmm::io::{Data, DataFile};
use gmm::{Error, Samples, Standardization, StandardizationBuilder, View};
use ndarray::{Array1, ArrayView1, ArrayView2, Axis, concatenate, s};
use std::ops::Range;

/// N samples of D features, checked: finite, and with usable weights.
#[derive(Clone, Copy)]
pub enum DataSet<'a> {
    /// All of them.
    Memory(Samples<'a>),
    /// Those of a file.
    File(FileSamples<'a>),
}

/// The samples of a file that is read in chunks.
#[derive(Clone, Copy)]
pub struct FileSamples<'a> {
    file: &'a DataFile,
    weights: Option<ArrayView1<'a, f64>>,
    total_weight: f64,
}

impl DataSet<'_> {
    /// N.
    pub fn n_samples(&self) -> usize {
        match self {
            Self::Memory(samples) => samples.n_samples(),
            Self::File(data) => data.file.dim().0,
        }
    }

    /// D.
    pub fn n_features(&self) -> usize {
        match self {
            Self::Memory(samples) => samples.n_features(),
            Self::File(data) => data.file.dim().1,
        }
    }

    /// Sum of the weights; N if there are none.
    pub fn total_weight(&self) -> f64 {
        match self {
            Self::Memory(samples) => samples.total_weight(),
            Self::File(data) => data.total_weight,
        }
    }

    /// Does something with the samples of some rows. Those of a file are standardised on the way, where that is asked for.
    pub fn with_rows<T>(
        &self,
        rows: Range<usize>,
        standard: Option<&Standardization>,
        work: impl FnOnce(Samples<'_>) -> gmm::Result<T>,
    ) -> gmm::Result<T> {
        match self {
            Self::Memory(samples) => work(samples.rows(rows)),
            Self::File(data) => data.with_rows(rows, standard, work),
        }
    }
}

impl<'a> FileSamples<'a> {
    /// With weights (N,) that were checked.
    pub fn new(file: &'a DataFile, weights: Option<ArrayView1<'a, f64>>, total_weight: f64) -> Self {
        Self { file, weights, total_weight }
    }

    /// Reads the whole file, `rows` samples at a time, and makes sure that its values can be used. The standardisation is found
    /// on the way, where it is asked for.
    pub fn check(&self, rows: usize, standardize: bool) -> gmm::Result<Option<Standardization>> {
        let (n, d) = self.file.dim();
        if n == 0 || d == 0 {
            return Err(Error::EmptyData { rows: n, columns: d });
        }
        let mut standard: Option<StandardizationBuilder> = None;
        for start in (0..n).step_by(rows) {
            let part = start..n.min(start + rows);
            let data = self.read(part.clone())?;
            let bad = |e| match e {
                Error::NonFiniteSample { row, column, value } => {
                    Error::NonFiniteSample { row: row + start, column, value }
                }
                other => other,
            };
            self.weighted(&data, part, bad, |samples| match standardize {
                true => standard.get_or_insert_with(|| StandardizationBuilder::new(samples)).add(samples),
                false => Ok(()),
            })?;
        }
        Ok(standard.map(StandardizationBuilder::finish))
    }

    fn read(&self, rows: Range<usize>) -> gmm::Result<Data> {
        self.file.rows(rows).map_err(|e| Error::Load(Box::new(e)))
    }

    fn with_rows<T>(
        &self,
        rows: Range<usize>,
        standard: Option<&Standardization>,
        work: impl FnOnce(Samples<'_>) -> gmm::Result<T>,
    ) -> gmm::Result<T> {
        let mut data = self.read(rows.clone())?;
        // The values were finite when the file was checked.
        let changed = |_| Error::Load(Box::new(self.file.changed()));
        let Some(standard) = standard else { return self.weighted(&data, rows, changed, work) };
        data.samples().map_err(changed)?;
        apply(standard, &mut data)?;
        self.weighted(&data, rows, |e| e, work)
    }

    /// Does something with the samples of some rows and their weights; `bad` makes the error for values that cannot be used.
    fn weighted<T>(
        &self,
        data: &Data,
        rows: Range<usize>,
        bad: impl FnOnce(Error) -> Error,
        work: impl FnOnce(Samples<'_>) -> gmm::Result<T>,
    ) -> gmm::Result<T> {
        let samples = data.samples().map_err(bad)?;
        let Some(weights) = self.weights else { return work(samples) };
        let weights = weights.slice(s![rows]);
        if weights.iter().any(|&w| w > 0.0) {
            return work(samples.with_weights(weights)?);
        }
        // The weights of a whole data set may not all be zero, those of a part may: another row makes them usable.
        fn longer<T: Copy>(x: ArrayView2<'_, T>) -> ndarray::Array2<T> {
            concatenate![Axis(0), x, x.slice(s![..1, ..])]
        }
        let n = samples.n_samples();
        let mut weights = Array1::zeros(n + 1);
        weights[n] = 1.0;
        match samples.view() {
            View::F32(x) => work(Samples::from_f32(longer(x).view())?.with_weights(weights.view())?.rows(0..n)),
            View::F64(x) => work(Samples::from_f64(longer(x).view())?.with_weights(weights.view())?.rows(0..n)),
        }
    }
}

/// Standardises in place.
pub fn apply(standard: &Standardization, data: &mut Data) -> gmm::Result<()> {
    match data {
        Data::F32(x) => standard.apply(x.view_mut(), |v| v as f32),
        Data::F64(x) => standard.apply(x.view_mut(), |v| v),
        other => {
            return Err(Error::Unsupported {
                what: format!("standardising {} data", other.dtype()),
                backend: "this program",
                remedy: "leave --standardize out",
            });
        }
    }
    Ok(())
}
