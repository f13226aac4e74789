//! The CUDA backend in float64, by the general kernels.
use super::device::samples::DeviceSamples;
use super::general::{self, General};
use super::options::CudaOptions;
use crate::{Description, Evaluator, Mixture, Result, Rows, Samples, Statistics};
use ndarray::{Array1, Array2};

#[derive(Debug)]
pub(super) struct Float64<'a> {
    /// The first field, so that it is dropped before the others: its drop waits for the device.
    pub data: DeviceSamples<f64>,
    samples: Samples<'a>,
    general: General<f64>,
}

impl<'a> Float64<'a> {
    pub fn new(samples: Samples<'a>, ordinal: usize, options: &CudaOptions) -> Result<Self> {
        Ok(Self {
            data: DeviceSamples::new(&samples, ordinal, options.memory_limit)?,
            samples,
            general: General::new()?,
        })
    }

    /// See [`super::CudaEvaluator::kernel_seconds`].
    pub fn kernel_seconds(&mut self, mixture: &Mixture, repeats: u32) -> Result<f64> {
        self.general.seconds(&mut self.data, mixture, repeats)
    }
}

impl Evaluator for Float64<'_> {
    fn n_samples(&self) -> usize {
        self.data.n()
    }

    fn n_features(&self) -> usize {
        self.data.d()
    }

    fn total_weight(&self) -> f64 {
        self.data.total_weight()
    }

    fn share(&self) -> Result<Box<dyn Evaluator + '_>> {
        Ok(Box::new(Self { data: self.data.share()?, samples: self.samples.clone(), general: General::new()? }))
    }

    fn describe(&self) -> Description {
        Description { device: self.data.describe(), kernel: general::VARIANT.to_string() }
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
