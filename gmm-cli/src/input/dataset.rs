//! Samples in memory, or in a file that is read in chunks.
use super::noise::NoiseFile;
use super::storage::Storage;
use crate::terminal::text;
use gaussmix::Error;
use gaussmix::data::{Noise, Samples, Weights};
use gaussmix::fit::Standardization;
use gaussmix::io::Data;
use std::ops::Range;

/// N samples of D features that passed the checks: all values are finite and the weights usable.
#[derive(Clone)]
pub struct DataSet<'a> {
    data: &'a Storage,
    /// Whether NaN stands for a missing value.
    missing: bool,
    weights: Option<Weights<'a>>,
    noise: Option<&'a NoiseFile>,
    /// The samples, if they are in memory.
    whole: Option<Samples<'a>>,
}

impl<'a> DataSet<'a> {
    /// `weights` and `noise` are those of all samples.
    pub fn new(data: &'a Storage, missing: bool, weights: Option<Weights<'a>>, noise: Option<&'a NoiseFile>) -> Self {
        Self { data, missing, weights, noise, whole: None }
    }

    /// Checks `data`, its numbers in memory, which were standardised with `standard`.
    pub fn in_memory(self, data: &'a Data, standard: Option<&Standardization>) -> gaussmix::Result<(Self, Gaps)> {
        let (all, samples) = (0..self.n_samples(), samples(data, self.missing)?);
        let mut gaps = Gaps::default();
        gaps.add(&samples, 0);
        let whole = with_noise(self.weighted(samples, all.clone())?, self.noise(all)?, standard)?;
        Ok((Self { whole: Some(whole), ..self }, gaps))
    }

    /// Returns the samples, if they are in memory.
    pub fn whole(&self) -> Option<&Samples<'a>> {
        self.whole.as_ref()
    }

    pub fn n_samples(&self) -> usize {
        self.data.dim().0
    }

    pub fn n_features(&self) -> usize {
        self.data.dim().1
    }

    /// Returns the sum of the weights; N without weights.
    pub fn total_weight(&self) -> f64 {
        self.weights.as_ref().map_or(self.n_samples() as f64, Weights::total)
    }

    /// Reads the whole file, `rows` samples at a time, checks all values and the noise, and counts the missing values.
    /// If `standardize`, also finds the standardisation. `progress` gets the number of samples read.
    pub fn check(
        &self,
        rows: usize,
        standardize: bool,
        mut progress: impl FnMut(usize),
    ) -> gaussmix::Result<(Gaps, Option<Standardization>)> {
        let (n, d) = self.data.dim();
        if n == 0 || d == 0 {
            return Err(Error::EmptyData { rows: n, columns: d });
        }
        let mut standard: Option<Standardization> = None;
        let mut gaps = Gaps::default();
        for start in (0..n).step_by(rows) {
            let part = start..n.min(start + rows);
            let samples = read(self.data, self.missing, part.clone())?;
            gaps.add(&samples, part.start);
            self.noise(part.clone())?;
            progress(part.end);
            if standardize {
                let of_part = Standardization::of(&self.weighted(samples, part)?)?;
                standard = Some(standard.map_or(Ok(of_part.clone()), |before| before.merged(&of_part))?);
            }
        }
        Ok((gaps, standard))
    }

    /// Returns some of the samples. Those of a file are standardised with `standard` as they are read.
    pub fn rows(&self, rows: Range<usize>, standard: Option<&Standardization>) -> gaussmix::Result<Samples<'a>> {
        if let Some(whole) = &self.whole {
            return Ok(whole.rows(rows));
        }
        // The check found all values finite, so one that is not shows that the file has changed.
        let changed = |error| match self.data {
            Storage::File(file) => Error::Load(Box::new(file.changed(rows.start))),
            Storage::Memory(_) => error,
        };
        let mut data = load(self.data, rows.clone())?;
        let samples = match standard {
            Some(standard) => {
                samples(&data, self.missing).map_err(changed)?;
                standardize(standard, &mut data);
                into_samples(data, self.missing)?
            }
            None => into_samples(data, self.missing).map_err(changed)?,
        };
        with_noise(self.weighted(samples, rows.clone())?, self.noise(rows)?, standard)
    }

    fn noise(&self, rows: Range<usize>) -> gaussmix::Result<Option<Noise<'a>>> {
        self.noise.map(|noise| noise.rows(rows)).transpose()
    }

    fn weighted(&self, samples: Samples<'a>, rows: Range<usize>) -> gaussmix::Result<Samples<'a>> {
        match &self.weights {
            Some(weights) => samples.weighted(weights.rows(rows)),
            None => Ok(samples),
        }
    }
}

/// Gives samples, which may be standardised, their noise in the units of the data.
fn with_noise<'a>(
    samples: Samples<'a>,
    noise: Option<Noise<'a>>,
    standard: Option<&Standardization>,
) -> gaussmix::Result<Samples<'a>> {
    let Some(noise) = noise else { return Ok(samples) };
    samples.with_noise(match standard {
        Some(standard) => noise.scaled(&standard.scale().to_vec())?,
        None => noise,
    })
}

/// Returns the data as samples; with `missing`, NaN stands for a missing value.
pub fn samples(data: &Data, missing: bool) -> gaussmix::Result<Samples<'_>> {
    if missing { data.samples_with_missing() } else { data.samples() }
}

/// Like [`samples`], but the samples own the data.
fn into_samples<'a>(data: Data, missing: bool) -> gaussmix::Result<Samples<'a>> {
    if missing { data.into_samples_with_missing() } else { data.into_samples() }
}

/// A count of the missing values in the whole data.
#[derive(Debug, Clone, Default)]
pub struct Gaps {
    n_samples: usize,
    /// The number of observed values of each column (D,); empty before any samples are counted.
    observed: Vec<usize>,
    /// The number of rows without observed values, and the first such row.
    empty: Option<(usize, usize)>,
}

impl Gaps {
    pub fn add(&mut self, samples: &Samples<'_>, start: usize) {
        let n = samples.n_samples();
        self.n_samples += n;
        self.observed.resize(samples.n_features(), 0);
        let missing = samples.missing();
        for (j, observed) in self.observed.iter_mut().enumerate() {
            *observed += missing.map_or(n, |missing| missing.observed[j]);
        }
        if let Some((missing, first)) = missing.and_then(|m| Some((m, m.first_empty_row?))) {
            let (rows, first) = self.empty.unwrap_or((0, start + first));
            self.empty = Some((rows + missing.empty_rows, first));
        }
    }

    pub fn note(&self) -> Option<String> {
        let (rows, first) = self.empty?;
        let rows = match rows {
            1 => format!("row {first} (counted from 0) has no observed value; it counts"),
            rows => format!(
                "{} rows have no observed value, the first is row {first} (counted from 0); each counts",
                text::grouped(rows as u64)
            ),
        };
        Some(format!("{rows} with the log-likelihood 0"))
    }

    /// Returns the share of missing values in words, or `None` if nothing is missing.
    pub fn describe(&self) -> Option<String> {
        let values = (self.n_samples * self.observed.len()) as f64;
        let missing = values - self.observed.iter().sum::<usize>() as f64;
        (missing > 0.0).then(|| format!("{:.3} % missing", 100.0 * missing / values))
    }

    /// Fails if a column has no observed value, because nothing can be fitted to it.
    pub fn check_columns(&self) -> gaussmix::Result<()> {
        match self.observed.iter().position(|&observed| observed == 0) {
            Some(column) => Err(Error::UnobservedColumn { column }),
            None => Ok(()),
        }
    }
}

fn load(data: &Storage, rows: Range<usize>) -> gaussmix::Result<Data> {
    data.rows(rows).map_err(|e| Error::Load(Box::new(e)))
}

/// Reads samples and checks their values. An error names the row by its number in the file.
pub fn read<'a>(data: &Storage, missing: bool, rows: Range<usize>) -> gaussmix::Result<Samples<'a>> {
    let start = rows.start;
    into_samples(load(data, rows)?, missing).map_err(|e| match e {
        Error::NonFiniteSample { row, column, value } => Error::NonFiniteSample { row: row + start, column, value },
        other => other,
    })
}

pub fn standardize(standard: &Standardization, data: &mut Data) {
    match data {
        Data::F32(x) => standard.apply(x.view_mut(), |v| v as f32),
        Data::F64(x) => standard.apply(x.view_mut(), |v| v),
    }
}
