//! The way of data from a file into a device, in one piece or in chunks.
use super::dataset::{DataSet, FileSamples, apply};
use super::{files, text};
use anyhow::Context;
use clap::Args;
use gmm::io::{self, Data, DataFile};
use gmm::{ChunkedEvaluator, CovarianceType, Device, Error, Evaluator, Fit, LoadOptions, Samples, Standardization};
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
    /// Memory for the data, such as 500M or 8G: a larger .npy stays in its file and is read in chunks, again for each pass
    /// (`auto` is the CPU then). Default: a third of the machine's memory
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub memory: Option<u64>,
}

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
    pub fn read<'a>(&'a self, weights: Option<&'a Path>) -> anyhow::Result<Input<'a>> {
        let weights = weights.map(|path| Ok::<_, io::Error>((path, io::read_vector(path)?))).transpose()?;
        let data = match self.data.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy")) {
            true => Place::File(DataFile::open(&self.data)?),
            false => Place::Memory(files::read_data(&self.data)?),
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

    /// Gives samples their weights.
    fn weighted<'s>(&'s self, samples: Samples<'s>) -> anyhow::Result<Samples<'s>> {
        match &self.weights {
            Some((path, weights)) => samples.with_weights(weights.view()).with_context(|| path.display().to_string()),
            None => Ok(samples),
        }
    }
}

/// Checked samples, and how they reach the device.
pub struct Source<'a> {
    options: &'a DataOptions,
    /// Standardised already, unless they are read in chunks.
    pub samples: DataSet<'a>,
    pub standardization: Option<Standardization>,
    /// Rows of a chunk, where the data is larger than the memory that it may take.
    chunk: Option<usize>,
    dtype: &'static str,
}

impl<'a> Source<'a> {
    /// Reads the data, or opens it where it is larger than the memory that it may take; checks it, and standardises it where
    /// that is asked for.
    pub fn new(input: &'a mut Input<'_>, standardize: bool) -> anyhow::Result<Self> {
        let memory = input.options.memory.unwrap_or_else(a_third_of_the_memory);
        let mut chunk = None;
        if let Place::File(file) = &input.data {
            if file.n_bytes() > memory {
                let n = file.dim().0;
                // Besides the chunk as it was read there is the one in the device's layout.
                let row = (file.n_bytes() / n as u64).max(1);
                let rows = usize::try_from((memory / 3).min(MAX_CHUNK) / row).unwrap_or(usize::MAX);
                chunk = Some(rows.clamp(1, n));
            } else {
                input.data = Place::Memory(file.read()?);
            }
        }
        let mut standardization = None;
        if let (Place::Memory(data), true) = (&input.data, standardize) {
            let samples = data.samples().map_err(|e| input.error(e))?;
            standardization = Some(Standardization::of(input.weighted(samples)?)?);
        }
        if let (Place::Memory(data), Some(standard)) = (&mut input.data, &standardization) {
            apply(standard, data)?;
        }
        let input: &'a Input<'_> = input;
        let (samples, dtype) = match &input.data {
            Place::Memory(data) => {
                let samples = data.samples().map_err(|e| input.error(e))?;
                (DataSet::Memory(input.weighted(samples)?), data.dtype())
            }
            Place::File(file) => {
                let any = arr0(0.0);
                // A column of as many zeros, which takes no memory: with it the weights are checked.
                let any = any.broadcast((file.dim().0, 1)).context("too many samples")?;
                let total_weight = match file.dim() {
                    (0, _) | (_, 0) => 0.0,
                    _ => input.weighted(Samples::from_f64(any)?)?.total_weight(),
                };
                let weights = input.weights.as_ref().map(|(_, weights)| weights.view());
                let data = FileSamples::new(file, weights, total_weight);
                standardization = data.check(chunk.unwrap_or(1), standardize).map_err(|e| input.error(e))?;
                (DataSet::File(data), file.dtype())
            }
        };
        Ok(Self { options: input.options, samples, standardization, chunk, dtype })
    }

    /// The data in the device: all of it, or chunk by chunk as it is used.
    pub fn evaluator(&self) -> gmm::Result<Box<dyn Evaluator + 'a>> {
        let options = LoadOptions { kernel: self.options.kernel.clone() };
        let (n, d) = (self.samples.n_samples(), self.samples.n_features());
        let Some(rows) = self.chunk else {
            let load = |samples: Samples<'_>| gmm::load(self.options.device, samples, &options);
            return self.samples.with_rows(0..n, None, load).map(|e| e as _);
        };
        let device = self.chunk_device();
        let (samples, standard) = (self.samples, self.standardization.clone());
        let sizes = (0..n).step_by(rows).map(|start| rows.min(n - start)).collect();
        let chunks = ChunkedEvaluator::new(d, sizes, move |i| {
            samples.with_rows(i * rows..n.min((i + 1) * rows), standard.as_ref(), |chunk| {
                gmm::load(device, chunk, &options).map(|e| e as _)
            })
        })?;
        Ok(Box::new(chunks.with_total_weight(self.samples.total_weight())))
    }

    /// Chunk after chunk in the device, for what is done with each sample once: `each` bytes a sample besides the data's.
    pub fn pass<'s, T: 's>(
        &'s self,
        each: usize,
        mut work: impl FnMut(&mut dyn Evaluator) -> gmm::Result<T> + 's,
    ) -> impl Iterator<Item = gmm::Result<T>> + 's {
        let options = LoadOptions { kernel: self.options.kernel.clone() };
        let (n, d) = (self.samples.n_samples(), self.samples.n_features());
        let rows = (PASS / (each + 8 * d)).clamp(1, self.chunk.unwrap_or(n));
        let device = if self.is_chunked() { self.chunk_device() } else { self.options.device };
        (0..n).step_by(rows).map(move |start| {
            let evaluator =
                self.samples.with_rows(start..n.min(start + rows), self.standardization.as_ref(), |chunk| {
                    gmm::load(device, chunk, &options)
                });
            work(evaluator?.as_mut()).map_err(|e| match e {
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

/// A third of the memory that this process may use: data is there twice, as it was read and as the device keeps it.
fn a_third_of_the_memory() -> u64 {
    use sysinfo::{MemoryRefreshKind, RefreshKind, System};
    let what = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    let limit = System::new_with_specifics(what).ok().map(|system| {
        let total = system.total_memory();
        system.cgroup_limits().map_or(total, |limits| limits.total_memory.min(total))
    });
    // A system that does not tell has a few gigabytes.
    limit.filter(|&bytes| bytes > 0).unwrap_or(8 << 30) / 3
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
        assert!(a_third_of_the_memory() > 1 << 26);
    }
}
