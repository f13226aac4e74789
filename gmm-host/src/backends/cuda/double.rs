//! The CUDA backend in float64: the general kernels do all of it.
use super::backend::CudaOptions;
use super::general::{self, General};
use super::resident::Resident;
use crate::{Description, Evaluator, Mixture, Result, Rows, Samples, Statistics};
use ndarray::{Array1, Array2};

#[derive(Debug)]
pub(super) struct Double<'a> {
    /// First, so that its drop comes before the other's.
    pub data: Resident<f64>,
    samples: Samples<'a>,
    general: General<f64>,
}

impl<'a> Double<'a> {
    pub fn new(samples: Samples<'a>, ordinal: usize, options: &CudaOptions) -> Result<Self> {
        Ok(Self { data: Resident::new(&samples, ordinal, options.memory_limit)?, samples, general: General::new()? })
    }

    /// See [`super::CudaEvaluator::kernel_seconds`].
    pub fn kernel_seconds(&mut self, mixture: &Mixture, repeats: u32) -> Result<f64> {
        self.general.seconds(&mut self.data, mixture, repeats)
    }
}

impl Evaluator for Double<'_> {
    fn n_samples(&self) -> usize {
        self.data.n
    }

    fn n_features(&self) -> usize {
        self.data.d
    }

    fn total_weight(&self) -> f64 {
        self.data.total_weight
    }

    fn describe(&self) -> Description {
        Description { device: self.data.describe(), kernel: general::NAME.into() }
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        self.general.log_likelihood(&mut self.data, mixture)
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        self.general.score_samples(&mut self.data, mixture)
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        self.general.statistics(&mut self.data, mixture)
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.samples.select(rows)
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        self.general.predict(&mut self.data, mixture)
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        self.general.predict_proba(&mut self.data, mixture)
    }
}
