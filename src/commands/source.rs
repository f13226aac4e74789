//! The way of data from a file into a device, in one piece or in chunks.
use super::text;
use anyhow::Context;
use clap::Args;
use gmm::io::{self, Data};
use gmm::{
    ChunkedEvaluator, CovarianceType, Device, Error, Evaluator, Fit, LoadOptions, Samples, Standardization, View,
};
use ndarray::Array1;
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
    /// (`auto` is the CPU then). Default: half of the machine's memory
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub memory: Option<u64>,
}

/// What was read.
pub struct Input<'a> {
    options: &'a DataOptions,
    data: Data,
    weights: Option<(&'a Path, Array1<f64>)>,
}

impl DataOptions {
    pub fn read<'a>(&'a self, weights: Option<&'a Path>) -> anyhow::Result<Input<'a>> {
        let weights = weights.map(|path| Ok::<_, io::Error>((path, io::read_vector(path)?))).transpose()?;
        Ok(Input { options: self, data: io::read_data(&self.data)?, weights })
    }
}

impl Input<'_> {
    fn samples(&self) -> anyhow::Result<Samples<'_>> {
        let samples = self.data.samples().with_context(|| self.options.data.display().to_string())?;
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
    pub samples: Samples<'a>,
    pub standardization: Option<Standardization>,
    /// Rows of a chunk, where the data is larger than the memory that it may take.
    chunk: Option<usize>,
    dtype: &'static str,
}

impl<'a> Source<'a> {
    /// Checks the data, and standardises it where that is asked for.
    pub fn new(input: &'a mut Input<'_>, standardize: bool) -> anyhow::Result<Self> {
        let memory = input.options.memory.unwrap_or_else(half_of_the_memory);
        let (n, d) = input.data.dim();
        let bytes = input.data.n_bytes();
        let chunk = (input.data.is_mapped() && bytes > memory).then(|| {
            // Besides the chunk in the device's layout there may be one that is being standardised.
            let row = (bytes / n as u64).max(1);
            usize::try_from((memory / 3).min(MAX_CHUNK) / row).unwrap_or(usize::MAX).clamp(1, n)
        });
        let mut standardization = None;
        if standardize && chunk.is_none() {
            let standard = Standardization::of(&input.samples()?)?;
            input.data = std::mem::replace(&mut input.data, Data::F32(Default::default())).into_memory();
            match &mut input.data {
                Data::F32(x) => standard.apply(x.view_mut(), |v| v as f32),
                Data::F64(x) => standard.apply(x.view_mut(), |v| v),
                _ => anyhow::bail!("data of a form that cannot be standardised"),
            }
            standardization = Some(standard);
        }
        let input: &'a Input<'_> = input;
        let samples = input.samples()?;
        if standardize && chunk.is_some() {
            standardization = Some(Standardization::of(&samples)?);
        }
        debug_assert_eq!((samples.n_samples(), samples.n_features()), (n, d));
        Ok(Self { options: input.options, samples, standardization, chunk, dtype: input.data.dtype() })
    }

    /// The data in the device: all of it, or chunk by chunk as it is used.
    pub fn evaluator(&self) -> gmm::Result<Box<dyn Evaluator + 'a>> {
        let options = LoadOptions { kernel: self.options.kernel.clone() };
        let Some(rows) = self.chunk else {
            return gmm::load(self.options.device, self.samples.clone(), &options);
        };
        let device = self.chunk_device();
        let standard = self.standardization.clone();
        let chunks = ChunkedEvaluator::of_samples(self.samples.clone(), rows, move |chunk| {
            Ok(match &standard {
                Some(standard) => load_standardized(&chunk, standard, device, &options)?,
                None => gmm::load(device, chunk, &options)?,
            })
        })?;
        Ok(Box::new(chunks))
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
            let chunk = self.samples.rows(start..n.min(start + rows));
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

/// Loads a standardised copy.
fn load_standardized(
    chunk: &Samples<'_>,
    standard: &Standardization,
    device: Device,
    options: &LoadOptions,
) -> gmm::Result<Box<dyn Evaluator>> {
    let samples = match chunk.view() {
        View::F32(x) => {
            let mut x = x.to_owned();
            standard.apply(x.view_mut(), |v| v as f32);
            Samples::from_shared_f32(x.into_shared())?
        }
        View::F64(x) => {
            let mut x = x.to_owned();
            standard.apply(x.view_mut(), |v| v);
            Samples::from_shared_f64(x.into_shared())?
        }
    };
    let samples = match chunk.weights() {
        Some(weights) => samples.with_shared_weights(weights.to_shared())?,
        None => samples,
    };
    gmm::load(device, samples, options)
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
