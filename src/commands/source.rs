//! The way of data from a file into a device, in one piece or in chunks.
use super::advice::{self, Circumstances};
use super::dataset::{self, DataSet, FileSamples, apply};
use super::{files, text};
use anyhow::{Context, bail};
use clap::Args;
use gmm::io::{self, Data, DataFile, Identity};
use gmm::{
    ChunkedEvaluator, CovarianceType, Device, Error, Evaluator, Fit, LoadOptions, Mixture, Operation, Precision,
    Samples, Standardization, mcmc,
};
use ndarray::{Array1, arr0};
use std::path::{Path, PathBuf};

/// Most bytes of a chunk: larger ones gain nothing.
const MAX_CHUNK: u64 = 256 << 20;

/// Bytes that are held at once in a single pass.
const PASS: usize = 64 << 20;

/// The options of every command that computes over data.
#[derive(Debug, Args)]
pub struct DataOptions {
    /// The data (samples × features): .npy (float32 or float64) or .csv (with or without a header)
    pub data: PathBuf,
    /// Where to compute: auto, cpu, cuda, cuda:N or reference
    #[arg(long, default_value = "auto")]
    pub device: Device,
    /// The kernel (code variant) to use instead of the one that the device chooses
    #[arg(long, value_name = "NAME")]
    pub kernel: Option<String>,
    /// Compute in float64 whatever the data is; by default float32 data is, where float32 has too few digits for the model
    #[arg(long, conflicts_with = "kernel")]
    pub float64: bool,
    /// Memory for the data and copies of it, such as 500M or 8G: a .npy that needs more stays in its file and is read in
    /// chunks, again for each pass (`auto` is the CPU then). Default: half of the machine's memory
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub memory: Option<u64>,
}

/// The line of a report on float32 data that was computed in float64 unasked.
const WIDENED: &str = "precision       float64: a component is so narrow, for its distance from the data's centre, or its \
                       covariance so nearly singular, that float32 has too few digits";

/// What was read or opened.
pub struct Input<'a> {
    options: &'a DataOptions,
    data: Place,
    weights: Option<(&'a Path, Array1<f64>)>,
}

enum Place {
    Memory(Data),
    /// Not yet read.
    File(DataFile),
}

impl DataOptions {
    fn load_options(&self) -> LoadOptions {
        LoadOptions::new().kernel(self.kernel.clone()).float64(self.float64)
    }

    pub fn read<'a>(&'a self, weights: Option<&'a Path>) -> anyhow::Result<Input<'a>> {
        let weights = weights.map(|path| Ok::<_, io::Error>((path, io::read_vector(path)?))).transpose()?;
        let data = match self.data.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy")) {
            true => Place::File(DataFile::open(&self.data)?),
            false => Place::Memory(files::read_data(&self.data, self.memory.unwrap_or(u64::MAX))?),
        };
        Ok(Input { options: self, data, weights })
    }
}

impl Input<'_> {
    /// Names the data in an error about its values; one about the file does so by itself.
    fn error(&self, error: Error) -> anyhow::Error {
        match error {
            Error::Load(_) => error.into(),
            error => anyhow::Error::from(error).context(self.options.data.display().to_string()),
        }
    }

    /// The same of an error in finding the standardisation, whose sums are in float64 whatever the data is.
    fn standardization_error(&self, error: Error) -> anyhow::Error {
        match error {
            error @ Error::NonFiniteStatistic { .. } => {
                let circumstances = Circumstances { float64: true, standardized: true, fit: true };
                advice::advise(error, circumstances).context(self.options.data.display().to_string())
            }
            error => self.error(error),
        }
    }

    /// Gives samples their weights.
    fn weighted<'s>(&'s self, samples: Samples<'s>) -> anyhow::Result<Samples<'s>> {
        match &self.weights {
            Some((path, weights)) => samples.with_weights(weights.view()).with_context(|| path.display().to_string()),
            None => Ok(samples),
        }
    }

    /// Checks the weights and sums them up, N where there are none, before any sample is read.
    fn total_weight(&self, n: usize) -> anyhow::Result<f64> {
        if n == 0 {
            return Ok(0.0);
        }
        // A column of zeros, which takes no memory.
        let any = arr0(0.0);
        let any = any.broadcast((n, 1)).context("too many samples")?;
        Ok(self.weighted(Samples::from_f64(any)?)?.total_weight())
    }

    fn dim(&self) -> (usize, usize) {
        match &self.data {
            Place::Memory(data) => data.dim(),
            Place::File(file) => file.dim(),
        }
    }

    fn dtype(&self) -> &'static str {
        match &self.data {
            Place::Memory(data) => data.dtype(),
            Place::File(file) => file.dtype(),
        }
    }

    /// Bytes of the values.
    fn n_bytes(&self) -> u64 {
        match &self.data {
            Place::Memory(data) => data.n_bytes(),
            Place::File(file) => file.n_bytes(),
        }
    }

    /// What tells this data, with its weights, from other data.
    pub fn identity(&self) -> anyhow::Result<Identity> {
        let (n, d) = self.dim();
        self.total_weight(n)?;
        let mut content = mcmc::Fingerprint::new(n);
        match &self.data {
            Place::Memory(data) => content.add(&data.samples().map_err(|e| self.error(e))?),
            Place::File(file) => {
                let rows = (PASS / (8 * d.max(1))).max(1);
                for start in (0..n).step_by(rows) {
                    let samples = dataset::read(file, start..n.min(start + rows)).map_err(|e| self.error(e))?;
                    content.add(&samples);
                }
            }
        }
        let weights = self.weights.as_ref().map(|(_, w)| mcmc::Fingerprint::new(n).finish(Some(w.view())));
        Ok(Identity::default()
            .with("the data's shape", format!("{n} × {d}"))
            .with("the data's type", self.dtype())
            .with("the data's content", content.finish(None))
            .with("sample-weight", weights))
    }

    /// What of the data is in memory at once: its values as they were read and a copy in the device's layout, of all or of a
    /// chunk.
    fn plan(&self) -> anyhow::Result<Plan> {
        let (n, bytes) = (self.dim().0, self.n_bytes());
        let given = self.options.memory;
        let memory = given.unwrap_or_else(half_of_the_memory);
        let in_memory = matches!(self.data, Place::Memory(_));
        let held = (if in_memory { bytes } else { 0 }) + 8 * self.weights.as_ref().map_or(0, |(_, w)| w.len() as u64);
        let copies = if in_memory { bytes } else { bytes.saturating_mul(2) };
        // Twice a chunk, and room for what the device adds to it.
        let (row, part) = ((bytes / n.max(1) as u64).max(1), memory.saturating_sub(held) / 3);
        let whole = held.saturating_add(copies) <= memory;
        if given.is_some() && !whole && part < row {
            bail!(
                "{}: --memory {memory} is too little; it takes {} bytes at least",
                self.options.data.display(),
                held + 3 * row
            );
        }
        // Without a limit by the user, data that fills half of the memory already is no reason to give up.
        let part = if part < row { memory / 3 } else { part };
        let rows = || usize::try_from(part.min(MAX_CHUNK) / row).unwrap_or(usize::MAX).clamp(1, n.max(1));
        Ok(Plan { chunk: (!whole).then(rows), pass: PASS.min(usize::try_from(part).unwrap_or(PASS)) })
    }
}

/// How data comes into a device.
struct Plan {
    /// Rows of a chunk, where it does not come as a whole.
    chunk: Option<usize>,
    /// Most bytes that are held at once in a single pass.
    pass: usize,
}

/// Checked samples, and how they reach the device.
pub struct Source<'a> {
    options: &'a DataOptions,
    /// Standardised already, unless they are read in chunks.
    pub samples: DataSet<'a>,
    pub standardization: Option<Standardization>,
    /// Rows of a chunk, where the data is larger than the memory that it may take.
    chunk: Option<usize>,
    /// Most bytes that are held at once in a single pass.
    pass: usize,
    dtype: &'static str,
}

impl<'a> Source<'a> {
    /// Reads the data, or opens it where it is larger than the memory that it may take; checks it, and standardises it where
    /// that is asked for.
    pub fn new(input: &'a mut Input<'_>, standardize: bool) -> anyhow::Result<Self> {
        let Plan { chunk, pass } = input.plan()?;
        if let (Place::File(file), None) = (&input.data, chunk) {
            input.data = Place::Memory(file.read()?);
        }
        let mut standardization = None;
        if let (Place::Memory(data), true) = (&input.data, standardize) {
            let samples = input.weighted(data.samples().map_err(|e| input.error(e))?)?;
            standardization = Some(Standardization::of(&samples).map_err(|e| input.standardization_error(e))?);
        }
        if let (Place::Memory(data), Some(standard)) = (&mut input.data, &standardization) {
            apply(standard, data)?;
        }
        let input: &'a Input<'_> = input;
        let samples = match &input.data {
            Place::Memory(data) => DataSet::Memory(input.weighted(data.samples().map_err(|e| input.error(e))?)?),
            Place::File(file) => {
                let weights = input.weights.as_ref().map(|(_, weights)| weights.view());
                let data = FileSamples::new(file, weights, input.total_weight(file.dim().0)?);
                let checked = data.check(chunk.unwrap_or(1), standardize);
                standardization = checked.map_err(|e| input.standardization_error(e))?;
                DataSet::File(data)
            }
        };
        Ok(Self { options: input.options, samples, standardization, chunk, pass, dtype: input.dtype() })
    }

    /// The data in the device: all of it, or chunk by chunk as it is used.
    pub fn evaluator(&self) -> gmm::Result<Box<dyn Evaluator + 'a>> {
        let options = self.options.load_options();
        let (n, d) = (self.samples.n_samples(), self.samples.n_features());
        let Some(rows) = self.chunk else {
            return gmm::load(self.options.device, self.samples.rows(0..n, None)?, &options);
        };
        let device = self.chunk_device();
        let (samples, standard) = (self.samples.clone(), self.standardization.clone());
        let sizes = (0..n).step_by(rows).map(|start| rows.min(n - start)).collect();
        let chunks = ChunkedEvaluator::new(d, sizes, move |i| {
            let chunk = samples.rows(i * rows..n.min((i + 1) * rows), standard.as_ref())?;
            gmm::load(device, chunk, &options)
        })?;
        Ok(Box::new(chunks.with_total_weight(self.samples.total_weight())))
    }

    /// Chunk after chunk in the device, for what is done with each sample once: `each` bytes a sample besides the data's.
    pub fn pass<'s, T: 's>(
        &'s self,
        each: usize,
        mut work: impl FnMut(&mut dyn Evaluator) -> gmm::Result<T> + 's,
    ) -> impl Iterator<Item = gmm::Result<T>> + 's {
        let options = self.options.load_options();
        let (n, d) = (self.samples.n_samples(), self.samples.n_features());
        let rows = (self.pass / (each + 8 * d)).clamp(1, self.chunk.unwrap_or(n));
        let device = if self.is_chunked() { self.chunk_device() } else { self.options.device };
        (0..n).step_by(rows).map(move |start| {
            let chunk = self.samples.rows(start..n.min(start + rows), self.standardization.as_ref())?;
            work(gmm::load(device, chunk, &options)?.as_mut()).map_err(|e| match e {
                Error::UnreachableSample { row } => Error::UnreachableSample { row: row + start },
                other => other,
            })
        })
    }

    /// What stands for `auto` where data comes in chunks: nothing stays long enough to be measured.
    fn chunk_device(&self) -> Device {
        match (self.options.device, &self.options.kernel) {
            (Device::Auto, None) => Device::Cpu,
            (device, _) => device,
        }
    }

    /// Whether the data is larger than the memory that it may take.
    pub fn is_chunked(&self) -> bool {
        self.chunk.is_some()
    }

    /// Σⱼ ln sⱼ: how much larger the log-likelihood of a standardised sample is than that of the sample itself.
    pub fn log_scale(&self) -> f64 {
        self.standardization.as_ref().map_or(0.0, Standardization::log_scale)
    }

    /// A fit to these samples as one to the data in its own units.
    pub fn restore_fit(&self, fit: &Fit) -> gmm::Result<Fit> {
        self.standardization.as_ref().map_or_else(|| Ok(fit.clone()), |standard| standard.restore_fit(fit))
    }

    /// The inverse of [`restore_fit`](Self::restore_fit).
    pub fn standardize_fit(&self, fit: Fit, covariance_type: CovarianceType) -> gmm::Result<Fit> {
        match &self.standardization {
            Some(standard) => standard.standardize_fit(&fit, covariance_type),
            None => Ok(fit),
        }
    }

    /// The engine's error with advice that fits this data; `fit`: whether the command has `--standardize`.
    pub fn advise(&self, error: Error, fit: bool) -> anyhow::Error {
        let (float64, standardized) = (self.dtype == "float64", self.standardization.is_some());
        advice::advise(error, Circumstances { float64, standardized, fit })
    }

    /// The number type of an evaluation, and a line of the report where it is not the data's own.
    pub fn precision(
        &self,
        evaluator: &dyn Evaluator,
        mixture: &Mixture,
        operation: Operation,
    ) -> (&'static str, Option<&'static str>) {
        match evaluator.precision(mixture, operation) {
            Precision::Float32 => ("float32", None),
            Precision::Float64 if self.dtype == "float64" || self.options.float64 => ("float64", None),
            Precision::Float64 => ("float64", Some(WIDENED)),
        }
    }

    /// The data in words.
    pub fn describe(&self) -> String {
        format!(
            "{}: {} samples × {} features, {}",
            self.options.data.display(),
            text::grouped(self.samples.n_samples() as u64),
            self.samples.n_features(),
            self.dtype
        )
    }
}

/// Half of the memory that this process may use.
fn half_of_the_memory() -> u64 {
    use sysinfo::{MemoryRefreshKind, RefreshKind, System};
    let what = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    let limit = System::new_with_specifics(what).ok().map(|system| {
        let total = system.total_memory();
        system.cgroup_limits().map_or(total, |limits| limits.total_memory.min(total))
    });
    // A system that does not tell has a few gigabytes.
    limit.filter(|&bytes| bytes > 0).unwrap_or(8 << 30) / 2
}

/// 1000, 500k, 64M, 8G, 2T; also with i and B: 8GiB. Powers of 1024.
fn bytes(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches('b').trim_end_matches('i');
    let (digits, unit) = match digits.chars().last().and_then(|c| "kmgt".find(c)) {
        Some(power) => (&digits[..digits.len() - 1], 1024f64.powi(power as i32 + 1)),
        None => (digits, 1.0),
    };
    let value = digits.parse::<f64>().ok().map(|v| v * unit).filter(|v| (1.0..1e18).contains(v));
    value.map(|v| v as u64).ok_or_else(|| "must be a size such as 500M or 8G".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, value) in [("1000", 1000), ("1k", 1024), ("1.5M", 3 << 19), ("8GiB", 8 << 30), ("2tb", 2 << 40)] {
            assert_eq!(bytes(text), Ok(value), "{text}");
        }
        for bad in ["", "0", "-1", "M", "x", "1e30", "nan", "8Gx"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_machine_has_memory() {
        assert!(half_of_the_memory() > 1 << 26);
    }
}
