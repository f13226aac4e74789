//! Samples in memory, or in a file of which one chunk at a time is read.
use gaussmix::io::{Data, DataFile};
use gaussmix::{Error, Samples, Standardization, StandardizationBuilder, View};
use ndarray::{Array1, ArrayView1, ArrayView2, Axis, concatenate, s};
use std::ops::Range;

/// N samples of D features that passed the checks: all values are finite and the weights usable.
#[derive(Clone)]
pub enum DataSet<'a> {
    Memory(Samples<'a>),
    File(FileSamples<'a>),
}

/// The samples of a file that is read in chunks.
#[derive(Clone, Copy)]
pub struct FileSamples<'a> {
    file: &'a DataFile,
    weights: Option<ArrayView1<'a, f64>>,
    total_weight: f64,
}

impl<'a> DataSet<'a> {
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

    /// The sum of the weights; N if there are none.
    pub fn total_weight(&self) -> f64 {
        match self {
            Self::Memory(samples) => samples.total_weight(),
            Self::File(data) => data.total_weight,
        }
    }

    /// Some of the samples. Those of a file are standardised with `standard` when they are read.
    pub fn rows(&self, rows: Range<usize>, standard: Option<&Standardization>) -> gaussmix::Result<Samples<'a>> {
        match self {
            Self::Memory(samples) => Ok(samples.rows(rows)),
            Self::File(data) => data.rows(rows, standard),
        }
    }
}

impl<'a> FileSamples<'a> {
    /// `weights` (N,) must have been checked.
    pub fn new(file: &'a DataFile, weights: Option<ArrayView1<'a, f64>>, total_weight: f64) -> Self {
        Self { file, weights, total_weight }
    }

    /// Reads the whole file, `rows` samples at a time, and checks that all values are finite. If asked to, also finds the
    /// standardisation. `progress` is told how many samples were read.
    pub fn check(
        &self,
        rows: usize,
        standardize: bool,
        mut progress: impl FnMut(usize),
    ) -> gaussmix::Result<Option<Standardization>> {
        let (n, d) = self.file.dim();
        if n == 0 || d == 0 {
            return Err(Error::EmptyData { rows: n, columns: d });
        }
        let mut standard: Option<StandardizationBuilder> = None;
        for start in (0..n).step_by(rows) {
            let part = start..n.min(start + rows);
            let samples = read(self.file, part.clone())?;
            progress(part.end);
            if standardize {
                let samples = self.weighted(samples, part)?;
                standard.get_or_insert_with(|| StandardizationBuilder::new(&samples)).add(&samples)?;
            }
        }
        Ok(standard.map(StandardizationBuilder::finish))
    }

    fn rows(&self, rows: Range<usize>, standard: Option<&Standardization>) -> gaussmix::Result<Samples<'a>> {
        // All values were finite when the file was checked, so that one that is not shows a change of the file.
        let start = rows.start;
        let changed = |_| Error::Load(Box::new(self.file.changed(start)));
        let mut data = data(self.file, rows.clone())?;
        if let Some(standard) = standard {
            data.samples().map_err(changed)?;
            standardize(standard, &mut data);
            return self.weighted(data.into_samples()?, rows);
        }
        self.weighted(data.into_samples().map_err(changed)?, rows)
    }

    /// Adds the weights of these rows.
    fn weighted(&self, samples: Samples<'a>, rows: Range<usize>) -> gaussmix::Result<Samples<'a>> {
        let Some(weights) = self.weights else { return Ok(samples) };
        let weights = weights.slice_move(s![rows]);
        if weights.iter().any(|&w| w > 0.0) {
            return samples.with_weights(weights);
        }
        // `Samples` refuses weights that are all zero, as those of a chunk may be. A row of weight 1 is added, and the view that
        // is returned leaves it out again.
        fn with_one_more_row<T: Copy>(x: ArrayView2<'_, T>) -> ndarray::ArcArray2<T> {
            concatenate![Axis(0), x, x.slice(s![..1, ..])].into_shared()
        }
        let n = samples.n_samples();
        let mut weights = Array1::zeros(n + 1);
        weights[n] = 1.0;
        let longer = match samples.view() {
            View::F32(x) => Samples::from_shared_f32(with_one_more_row(x))?,
            View::F64(x) => Samples::from_shared_f64(with_one_more_row(x))?,
        };
        Ok(longer.with_shared_weights(weights.into_shared())?.rows(0..n))
    }
}

fn data(file: &DataFile, rows: Range<usize>) -> gaussmix::Result<Data> {
    file.rows(rows).map_err(|e| Error::Load(Box::new(e)))
}

/// Reads samples and checks their values. An error names the row by its number in the file.
pub fn read<'a>(file: &DataFile, rows: Range<usize>) -> gaussmix::Result<Samples<'a>> {
    let start = rows.start;
    data(file, rows)?.into_samples().map_err(|e| match e {
        Error::NonFiniteSample { row, column, value } => Error::NonFiniteSample { row: row + start, column, value },
        other => other,
    })
}

/// Standardises data in place.
pub fn standardize(standard: &Standardization, data: &mut Data) {
    match data {
        Data::F32(x) => standard.apply(x.view_mut(), |v| v as f32),
        Data::F64(x) => standard.apply(x.view_mut(), |v| v),
    }
}
