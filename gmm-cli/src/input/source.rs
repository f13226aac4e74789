//! Data that was read or opened, and its way to a device.
use super::advice::{self, Treatment};
use super::dataset::{self, DataSet, Gaps};
use super::noise::NoiseFile;
use super::storage::Storage;
use super::{DataOptions, files};
use crate::terminal::{ProgressLine, text};
use anyhow::{Context, bail};
use gaussmix::data::{Samples, Weights};
use gaussmix::device::{Device, Footprint, MemoryPlan};
use gaussmix::evaluator::{Evaluator, LabelledEvaluator, Labels, Operation, Precision};
use gaussmix::fit::{Fit, Standardizable, Standardization};
use gaussmix::io::{self, ColumnSelection, Contents, Identity, Ids, Table};
use gaussmix::model::{CovarianceModel, Mixture};
use gaussmix::{Error, mcmc};
use ndarray::Array1;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The most bytes held at a time by operations that read each sample once.
const MAX_PASS_BYTES: usize = 64 << 20;

/// The report's line on float32 data that was computed in float64 without the user's request.
const COMPUTED_IN_FLOAT64: &str = "precision       float64: a component is so narrow, for its distance from the data's centre, or its \
                                   covariance so nearly singular, that float32 has too few digits";

/// The data and the sample weights that the options name. Text is read at once if it fits into memory; other files are
/// only opened.
pub struct Input<'a> {
    options: &'a DataOptions,
    data: Storage,
    ids: Option<Ids>,
    parts: Vec<(PathBuf, usize)>,
    names: Option<Vec<String>>,
    /// The number of each feature among the columns of the first file.
    columns: Vec<usize>,
    weights: Option<(&'a Path, Array1<f64>)>,
    noise: Option<NoiseFile>,
}

impl<'a> Input<'a> {
    /// Reads the sample weights and text; opens other files.
    pub fn open(
        options: &'a DataOptions,
        weights: Option<&'a Path>,
        selection: &ColumnSelection,
    ) -> anyhow::Result<Self> {
        let weights = weights.map(|path| Ok::<_, io::Error>((path, files::read_vector(path)?))).transpose()?;
        // Data in memory is held twice; see `memory_plan`.
        let limit = options.memory_limit() / 2;
        let noise = options.noise.as_deref().map(|path| Storage::open(path, limit)).transpose()?;
        let mut line = ProgressLine::start("opening the data");
        let table = Table::open(&options.table.data, selection)?;
        let describe = options.table.describe();
        line.hide_while(|| files::note_columns(&table, &describe));
        let paths: Vec<PathBuf> = table.paths().map(Path::to_path_buf).collect();
        let (names, columns) = (table.names().map(<[String]>::to_vec), table.columns().to_vec());
        // Beside noise that stays in its file, the data does, too.
        let within = if noise.as_ref().is_none_or(Storage::is_memory) { limit } else { 0 };
        let reading = format!("reading {describe}");
        let whole = match table.n_rows() {
            None => table.read_within(within, &mut |rows| line.rows(&reading, rows, None))?,
            Some(_) => None,
        };
        let (data, ids, rows) = match whole {
            Some(Contents { data, ids, part_rows, .. }) => {
                drop(line);
                (Storage::Memory(data), ids, part_rows)
            }
            None if table.is_read_once() => bail!(
                "{}: a stream is read once, and its numbers take more than the {within} bytes of memory that are allowed; \
                 allow more (--memory), or write it to a file, which is read in chunks",
                describe
            ),
            None => {
                let counting = format!("counting the rows of {describe}");
                let file = table.into_file(&mut |rows| line.rows(&counting, rows, None))?;
                let rows = file.part_rows();
                (Storage::File(Box::new(file)), None, rows)
            }
        };
        let parts = paths.into_iter().zip(rows).collect();
        let noise = options.noise.as_deref().zip(noise);
        let noise = noise.map(|(path, noise)| NoiseFile::new(path, noise, data.dim())).transpose()?;
        Ok(Self { options, data, ids, parts, names, columns, weights, noise })
    }

    /// Adds the name of the data to an error about its values. Errors of reading the file name it already.
    fn error(&self, error: Error) -> anyhow::Error {
        match error {
            Error::Load(_) => error.into(),
            Error::NonFiniteSample { mut row, column, value } => {
                let mut file = &self.parts[0].0;
                for (path, rows) in &self.parts {
                    file = path;
                    if row < *rows {
                        break;
                    }
                    row -= rows;
                }
                let name = self.names.as_ref().map_or(String::new(), |names| format!(": column `{}`", names[column]));
                let error = Error::NonFiniteSample { row, column: self.columns[column], value };
                advice::about_values(error, &self.option(column)).context(format!("{}{name}", file.display()))
            }
            Error::UnobservedColumn { column } => {
                let name = self.names.as_ref().map_or(String::new(), |names| format!(": column `{}`", names[column]));
                let error = Error::UnobservedColumn { column: self.columns[column] };
                let error = advice::about_values(error, &self.option(column));
                error.context(format!("{}{name}", self.options.table.describe()))
            }
            error => anyhow::Error::from(error).context(self.options.table.describe()),
        }
    }

    /// Returns a feature as `--drop` takes it: its name, or its number if a shell would need quotes.
    fn option(&self, column: usize) -> String {
        let plain = |name: &&String| name.chars().all(|c| c.is_alphanumeric() || "_.".contains(c)) && !name.is_empty();
        let name = self.names.as_ref().and_then(|names| names.get(column)).filter(plain);
        name.map_or_else(|| self.columns[column].to_string(), Clone::clone)
    }

    /// Like [`error`](Self::error), for an error from finding the standardisation, which always computes in float64.
    fn standardization_error(&self, error: Error) -> anyhow::Error {
        match error {
            error @ Error::NonFiniteStatistic { .. } => {
                let treatment = Treatment { float64: true, standardized: true, can_standardize: true };
                advice::advise(error, treatment, None).context(self.options.table.describe())
            }
            error => self.error(error),
        }
    }

    /// Returns the weights of `n` samples, if any, checked before any sample is read.
    fn checked_weights(&self, n: usize) -> anyhow::Result<Option<Weights<'_>>> {
        match &self.weights {
            Some((path, weights)) if n > 0 => {
                Weights::new(weights.view(), n).map(Some).with_context(|| path.display().to_string())
            }
            _ => Ok(None),
        }
    }

    fn weighted<'s>(&'s self, samples: Samples<'s>) -> anyhow::Result<Samples<'s>> {
        match self.checked_weights(samples.n_samples())? {
            Some(weights) => Ok(samples.weighted(weights)?),
            None => Ok(samples),
        }
    }

    /// Returns the shape, the type and a hash of the data and of the weights, by which a checkpoint recognises them.
    pub fn identity(&self) -> anyhow::Result<Identity> {
        let (n, d) = self.data.dim();
        self.checked_weights(n)?;
        let mut content = mcmc::Fingerprint::new(n);
        let rows = (MAX_PASS_BYTES / (8 * d.max(1))).max(1);
        let mut line = ProgressLine::start("looking whether the data is that of the checkpoint");
        for start in (0..n).step_by(rows) {
            let samples = dataset::read(&self.data, self.options.missing, start..n.min(start + rows));
            content.add(&samples.map_err(|e| self.error(e))?);
            line.rows("hashing the data", start, Some(n));
        }
        let weights = self.weights.as_ref().map(|(_, w)| mcmc::Fingerprint::of_numbers(w.view()));
        let identity = Identity::default()
            .with("the data's shape", format!("{n} × {d}"))
            .with("the data's type", self.data.dtype())
            .with("the data's content", content.finish(None))
            .with("sample-weight", weights);
        Ok(match &self.noise {
            Some(noise) => identity.with("noise", noise.content(MAX_PASS_BYTES / (8 * d * d).max(1))?),
            None => identity,
        })
    }

    /// Decides how much of the data is in memory at a time. Values are held twice: as read, and as a copy in the
    /// device's layout; and once more, pattern by pattern, if some are missing.
    fn memory_plan(&self) -> anyhow::Result<MemoryPlan> {
        let options = self.options;
        let (of_noise, noise_held) = self.noise.as_ref().map_or((0, 0), NoiseFile::n_bytes);
        let (memory, bytes) = (options.memory_limit(), self.data.n_bytes() + of_noise);
        let is_read = self.data.is_memory();
        let weights = 8 * self.weights.as_ref().map_or(0, |(_, w)| w.len() as u64);
        let footprint = Footprint {
            n_samples: self.data.dim().0,
            bytes,
            held: weights + noise_held + if is_read { self.data.n_bytes() } else { 0 },
            in_device: if options.missing { 2 } else { 1 },
            is_read,
        };
        let on_gpus = || !options.float64 && options.device.has_gpu_memory_for(bytes, options.missing);
        let plan = footprint.within(memory, on_gpus);
        // Without a limit from the user, data that fills half of the memory is still computed, in chunks.
        if options.memory.is_some() && plan.chunk_rows.is_some() && memory < plan.least {
            bail!("{}: --memory {memory} is too little; the least is {} bytes", options.table.describe(), plan.least);
        }
        Ok(plan)
    }
}

pub struct Source<'a> {
    options: &'a DataOptions,
    /// Samples in memory are standardised already; those of a file are standardised as they are read.
    pub samples: DataSet<'a>,
    pub standardization: Option<Standardization>,
    plan: MemoryPlan,
    gaps: Gaps,
    input: &'a Input<'a>,
}

impl<'a> Source<'a> {
    /// Reads the data into memory if it fits, checks it and, if `standardize`, standardises it. Larger data is checked
    /// chunk by chunk and stays in its file.
    pub fn new(input: &'a mut Input<'a>, standardize: bool) -> anyhow::Result<Self> {
        let plan = input.memory_plan()?;
        let mut line = ProgressLine::start("reading the data");
        let (n, reading) = (input.data.dim().0, format!("reading {}", input.options.table.describe()));
        if let (Storage::File(file), None) = (&input.data, plan.chunk_rows) {
            let whole = file.table().read_within(u64::MAX, &mut |rows| line.rows(&reading, rows, Some(n)))?;
            if let Some(Contents { data, ids, .. }) = whole {
                (input.data, input.ids) = (Storage::Memory(data), ids);
            }
        }
        let mut standardization = None;
        if let (Storage::Memory(data), true) = (&input.data, standardize) {
            let samples = dataset::samples(data, input.options.missing).map_err(|e| input.error(e))?;
            let samples = input.weighted(samples)?;
            standardization = Some(Standardization::of(&samples).map_err(|e| input.standardization_error(e))?);
        }
        if let (Storage::Memory(data), Some(standard)) = (&mut input.data, &standardization) {
            dataset::standardize(standard, data);
        }
        let input: &'a Input<'a> = input;
        let (weights, noise) = (input.checked_weights(n)?, input.noise.as_ref());
        let samples = DataSet::new(&input.data, input.options.missing, weights, noise);
        let (samples, gaps) = match &input.data {
            Storage::Memory(data) => samples.in_memory(data, standardization.as_ref()).map_err(|e| input.error(e))?,
            Storage::File(_) => {
                let (rows, progress) = (plan.chunk_rows.unwrap_or(1), |rows| line.rows(&reading, rows, Some(n)));
                let checked = samples.check(rows, standardize, progress);
                let gaps;
                (gaps, standardization) = checked.map_err(|e| input.standardization_error(e))?;
                (samples, gaps)
            }
        };
        drop(line);
        if let Some(note) = gaps.note() {
            text::note(format_args!("{}: {note}", input.options.table.describe()));
        }
        let source = Self { options: input.options, samples, standardization, plan, gaps, input };
        text::tell(|| format!("read {}", source.describe()));
        Ok(source)
    }

    pub fn dtype(&self) -> &'static str {
        self.input.data.dtype()
    }

    /// Returns the share of missing values in words, or `None` if nothing is missing.
    pub fn missing(&self) -> Option<String> {
        self.gaps.describe()
    }

    /// Fails if a column has no observed value, because nothing can be fitted to it.
    pub fn check_columns(&self) -> anyhow::Result<()> {
        self.gaps.check_columns().map_err(|error| self.input.error(error))
    }

    pub fn names(&self) -> Option<&'a [String]> {
        self.input.names.as_deref()
    }

    /// Returns some rows of the column that identifies the rows; `None` if no column was named.
    pub fn ids(&self, rows: Range<usize>) -> io::Result<Option<Ids>> {
        match &self.input.data {
            Storage::Memory(_) => Ok(self.input.ids.as_ref().map(|ids| ids.rows(rows))),
            Storage::File(file) => file.ids(rows),
        }
    }

    /// Returns the samples in memory and the column that identifies the rows; `None` if the data is too large for its
    /// memory, or without such a column.
    pub fn in_memory(&self) -> Option<(Samples<'a>, &'a Ids)> {
        let samples = self.samples.whole()?.clone();
        Some((if self.options.float64 { samples.into_float64() } else { samples }, self.input.ids.as_ref()?))
    }

    pub fn device(&self) -> Device {
        self.options.device
    }

    pub fn name(&self) -> String {
        self.options.table.describe()
    }

    /// Loads the data on the device, at once or chunk by chunk whenever it is used.
    pub fn evaluator(&self) -> gaussmix::Result<Box<dyn Evaluator + 'a>> {
        let options = self.options.load_options();
        let (n, d) = (self.samples.n_samples(), self.samples.n_features());
        let Some(rows) = self.plan.chunk_rows else {
            let line = ProgressLine::start(format!("bringing the data to the device {}", self.options.device));
            let evaluator = gaussmix::device::load(self.options.device, self.samples.rows(0..n, None)?, &options)?;
            drop(line);
            text::tell(|| format!("the data is in {}", evaluator.describe().device));
            return Ok(evaluator);
        };
        text::tell(|| format!("the data is read in chunks of {} samples", text::grouped(rows as u64)));
        let (samples, standard) = (self.samples.clone(), self.standardization.clone());
        let read = move |rows| samples.rows(rows, standard.as_ref());
        let chunks = gaussmix::device::load_chunks(self.options.device, (n, d), rows, read, &options)?;
        Ok(Box::new(chunks.with_total_weight(self.samples.total_weight())))
    }

    /// Returns all samples, which `what` needs in memory.
    pub fn whole(&self, what: &str) -> anyhow::Result<Samples<'a>> {
        if self.is_chunked() {
            bail!("{what} need all of the data in memory; allow more (--memory), or give fewer rows");
        }
        Ok(self.samples.rows(0..self.samples.n_samples(), None)?)
    }

    /// Like [`evaluator`](Self::evaluator), with labels that restrict the components of samples. The samples must be in
    /// memory, because they are divided by their labels.
    pub fn labelled(&self, labels: Labels) -> anyhow::Result<Box<dyn Evaluator + 'a>> {
        let samples = self.whole("labels")?;
        let options = self.options.load_options();
        let load = |part| gaussmix::device::load(self.options.device, part, &options);
        Ok(Box::new(LabelledEvaluator::new(samples, labels, load)?))
    }

    /// Loads one part of the data after another and lets `work` compute a result for each, for operations that read
    /// each sample once. A result takes `result_bytes` for each sample.
    pub fn pass<'s, T: 's>(
        &'s self,
        result_bytes: usize,
        mut work: impl FnMut(&mut dyn Evaluator) -> gaussmix::Result<T> + 's,
    ) -> impl Iterator<Item = gaussmix::Result<T>> + 's {
        let options = self.options.load_options();
        let device = self.options.device;
        let device = if self.is_chunked() { options.device_of_chunks(device) } else { device };
        self.pass_samples(result_bytes, move |chunk, _| work(gaussmix::device::load(device, chunk, &options)?.as_mut()))
    }

    /// Like [`pass`](Self::pass), with the samples of each part and the number of the first.
    pub fn pass_samples<'s, T: 's>(
        &'s self,
        result_bytes: usize,
        mut work: impl FnMut(Samples<'a>, usize) -> gaussmix::Result<T> + 's,
    ) -> impl Iterator<Item = gaussmix::Result<T>> + 's {
        let (n, d) = (self.samples.n_samples(), self.samples.n_features());
        let bytes = MAX_PASS_BYTES.min(usize::try_from(self.plan.part).unwrap_or(MAX_PASS_BYTES));
        let rows = (bytes / (result_bytes + 8 * d)).clamp(1, self.plan.chunk_rows.unwrap_or(n));
        let mut line = ProgressLine::start("computing");
        (0..n).step_by(rows).map(move |start| {
            line.rows("computing", start, Some(n));
            let chunk = self.samples.rows(start..n.min(start + rows), self.standardization.as_ref())?;
            work(chunk, start).map_err(|e| match e {
                Error::UnreachableSample { row } => Error::UnreachableSample { row: row + start },
                other => other,
            })
        })
    }

    pub fn is_chunked(&self) -> bool {
        self.plan.chunk_rows.is_some()
    }

    /// Returns Σⱼ ln sⱼ over the columns' scales, by which the log-likelihood of a standardised sample exceeds that of
    /// the sample in its own units.
    pub fn log_scale(&self) -> f64 {
        self.standardization.as_ref().map_or(0.0, Standardization::log_scale)
    }

    /// Converts a fit to these samples into a fit to the data in its own units.
    pub fn restore_fit<M: Standardizable>(&self, fit: &Fit<M>) -> gaussmix::Result<Fit<M>> {
        self.standardization.as_ref().map_or_else(|| Ok(fit.clone()), |standard| standard.restore_fit(fit))
    }

    pub fn standardize_fit<M: Standardizable>(
        &self,
        fit: Fit<M>,
        covariance_type: CovarianceModel,
    ) -> gaussmix::Result<Fit<M>> {
        match &self.standardization {
            Some(standard) => standard.standardize_fit(&fit, covariance_type),
            None => Ok(fit),
        }
    }

    /// Adds advice for this data to an error of the engine. `can_standardize`: whether the command has `--standardize`.
    pub fn advise(&self, error: Error, can_standardize: bool) -> anyhow::Error {
        let (float64, standardized) = (self.dtype() == "float64", self.standardization.is_some());
        advice::advise(error, Treatment { float64, standardized, can_standardize }, self.names())
    }

    /// Says in an error of the engine what the model of this file was evaluated over, with advice for this data.
    pub fn failed(&self, model: &Path, error: Error) -> anyhow::Error {
        self.advise(error, false).context(format!("{} over {}", model.display(), self.name()))
    }

    /// Returns the number type of an evaluation, and a line for the report if float32 data was computed in float64
    /// without the user's request.
    pub fn precision(
        &self,
        evaluator: &dyn Evaluator,
        mixture: &Mixture,
        operation: Operation,
    ) -> (&'static str, Option<&'static str>) {
        match evaluator.precision(mixture, operation) {
            Precision::Float32 => ("float32", None),
            Precision::Float64 if self.dtype() == "float64" || self.options.float64 => ("float64", None),
            Precision::Float64 => ("float64", Some(COMPUTED_IN_FLOAT64)),
        }
    }

    pub fn describe(&self) -> String {
        format!(
            "{}: {} samples × {} features, {}{}",
            self.options.table.describe(),
            text::grouped(self.samples.n_samples() as u64),
            self.samples.n_features(),
            self.dtype(),
            self.missing().map_or_else(String::new, |gaps| format!(", {gaps}"))
        )
    }
}
