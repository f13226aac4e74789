//! The CUDA backend in float64: the E-step by `fused64` if it can, all else by the general kernels.
use super::device::samples::DeviceSamples;
use super::estep::fused64::Fused64;
use super::general::{self, General};
use super::options::CudaOptions;
use super::plan::family::Variant;
use super::source::Source;
use gmm_core::backends::device_parameters::Deviations;
use gmm_core::backends::enough_digits::FramedEvaluator;
use gmm_core::contract::evaluator::{DataFacts, Description, Evaluator};
use gmm_core::contract::markov::{Markov, MarkovChain, MarkovSums};
use gmm_core::data::frame::Frame;
use gmm_core::data::samples::Rows;
use gmm_core::error::Result;
use gmm_core::model::mixture::Mixture;
use gmm_core::precision::Precision;
use gmm_core::statistics::Statistics;
use ndarray::{Array1, Array2};

#[derive(Debug)]
pub(super) struct Float64<'a> {
    /// The first field, so that it is dropped first: its drop waits for the device.
    pub data: DeviceSamples<f64>,
    samples: Source<'a>,
    general: General<f64>,
    /// The kernel of the latest E-step made by `fused64`.
    fused: Option<Fused64>,
    latest: Variant,
}

impl<'a> Float64<'a> {
    pub fn new(samples: Source<'a>, deviations: Deviations, options: &CudaOptions) -> Result<Self> {
        Self::over(samples.load(deviations, options.memory_limit)?, samples)
    }

    fn over(data: DeviceSamples<f64>, samples: Source<'a>) -> Result<Self> {
        let _entered = data.gpu().enter()?;
        Ok(Self { data, samples, general: General::new()?, fused: None, latest: general::VARIANT })
    }

    fn general(&mut self) -> (&mut General<f64>, &mut DeviceSamples<f64>) {
        self.latest = general::VARIANT;
        (&mut self.general, &mut self.data)
    }

    pub fn kernel_seconds(&mut self, mixture: &Mixture, repeats: u32) -> Result<f64> {
        let (general, data) = self.general();
        general.seconds(data, mixture, repeats)
    }
}

impl FramedEvaluator for Float64<'_> {
    const PRECISION: Precision = Precision::Float64;

    fn frame(&self) -> &Frame {
        self.data.frame()
    }

    fn shared(&self) -> Result<Self> {
        Self::over(self.data.share()?, self.samples.clone())
    }
}

impl Evaluator for Float64<'_> {
    fn data(&self) -> DataFacts<'_> {
        let (total_weight, weights) = (self.data.total_weight(), self.samples.weights());
        DataFacts { total_weight, weights, ..DataFacts::new(self.data.n(), self.data.d()) }
    }

    fn describe(&self) -> Description {
        Description::new(self.data.describe(), self.latest.to_string())
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        let (general, data) = self.general();
        general.log_likelihood(data, mixture)
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        self.latest = general::VARIANT;
        self.general.score_samples(&mut self.data, &self.samples, mixture)
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        let around_means = self.data.deviations() == Deviations::AroundMeans;
        if !Fused64::takes(mixture) || self.data.gaps() || around_means {
            self.latest = general::VARIANT;
            return self.general.statistics(&mut self.data, &self.samples, mixture);
        }
        let _entered = self.data.gpu().enter()?;
        let (variant, sums) = Fused64::centred_sums(&mut self.fused, &self.data, mixture)?;
        if sums.cancel(mixture) {
            self.latest = general::VARIANT;
            return self.general.statistics(&mut self.data, &self.samples, mixture);
        }
        self.latest = variant;
        Statistics::from_centred_sums(sums)
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.samples.select(rows)
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        self.latest = general::VARIANT;
        self.general.predict(&mut self.data, &self.samples, mixture)
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        self.latest = general::VARIANT;
        self.general.predict_proba(&mut self.data, &self.samples, mixture)
    }

    fn markov(&mut self) -> Option<&mut dyn Markov> {
        Some(self)
    }
}

impl Markov for Float64<'_> {
    fn expectations(&mut self, chain: &MarkovChain<'_>) -> Result<Option<MarkovSums>> {
        self.latest = general::VARIANT;
        self.general.expectations(&mut self.data, &self.samples, chain)
    }
}
