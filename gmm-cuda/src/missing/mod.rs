//! Samples with missing values: diagonal and spherical covariances column by column, others pattern by pattern.
pub(crate) mod by_pattern;
mod scores;

use super::engine::{self, Engine};
use super::options::{CudaOptions, Requested};
use super::source::Source;
use gmm_core::backends::missing::MissingEngine;
use gmm_core::contract::evaluator::Description;
use gmm_core::data::samples::{Samples, View};
use gmm_core::error::{Error, Result};
use gmm_core::model::mixture::Mixture;
use gmm_core::precision::Precision;
pub(super) use scores::{add_offsets, observed};

/// Returns the engine of samples with missing values. Errors: [`Error::Kernel`].
pub(super) fn engine<'a>(samples: Samples<'a>, ordinal: usize, options: &CudaOptions) -> Result<Box<dyn Engine + 'a>> {
    options.kernel.as_deref().map(Requested::new).transpose()?;
    let precision = match samples.view() {
        View::F64(_) if options.kernel.is_none() => Precision::Float64,
        _ => Precision::Float32,
    };
    let device = format!("cuda:{ordinal} (missing values, no evaluation yet)");
    let unmade = (Description::new(device, "not chosen yet"), precision);
    let (source, of_source) = (Source::Host(samples.clone(), ordinal), options.clone());
    let (rows, options) = (samples.clone(), options.clone());
    let by_column = move || engine::complete(source.clone(), &of_source);
    let by_pattern = move || by_pattern::evaluator(rows.clone(), ordinal, &options);
    Ok(Box::new(MissingEngine::new(samples, unmade, by_column, by_pattern)))
}

impl<'a> Engine for MissingEngine<'a, Box<dyn Engine + 'a>> {
    /// Returns whether no side sends the samples to the device in chunks.
    fn is_resident(&self) -> bool {
        self.by_column.made().is_none_or(|engine| engine.is_resident())
    }

    /// Errors: also [`Error::Unsupported`] for covariances between features.
    fn kernel_seconds(&mut self, mixture: &Mixture, repeats: u32) -> Result<f64> {
        if mixture.covariance_type().has_matrices() {
            return Err(Error::Unsupported {
                what: "the time of one kernel for missing values under covariances of type full or tied".into(),
                backend: "the CUDA backend",
                remedy: "time `log_likelihood`",
            });
        }
        self.by_column.get()?.kernel_seconds(mixture, repeats)
    }
}
