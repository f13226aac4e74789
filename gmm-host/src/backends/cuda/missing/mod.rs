//! Samples with missing values: diagonal and spherical covariances column by column, the others
//! pattern by pattern.
pub(crate) mod by_pattern;
mod scores;

use super::device::gpu::Gpu;
use super::engine::{self, Engine};
use super::options::{CudaOptions, Requested};
use super::source::Source;
use crate::data::samples::{Rows, Samples, View};
use crate::draw::{Draw, Drawn};
use crate::error::{Error, Result};
use crate::evaluator::{Description, Evaluator, draw_by_scores};
use crate::labels::Labels;
use crate::metropolis::{MetropolisSteps, MetropolisTarget};
use crate::model::covariances::CovarianceType;
use crate::model::mixture::Mixture;
use crate::precision::{Operation, Precision};
use crate::sampling::Sampling;
use crate::statistics::Statistics;
use ndarray::{Array1, Array2, ArrayView1};
pub(super) use scores::add_offsets;

/// Evaluates samples with missing values. Each of its two sides has a layout of the samples of its
/// own, which is made when it is first needed.
pub(super) struct MissingEngine<'a> {
    samples: Samples<'a>,
    gpu: &'static Gpu,
    ordinal: usize,
    options: CudaOptions,
    /// For diagonal and spherical covariances: the engine in which a sample takes part with the
    /// columns that it has values in.
    by_column: Option<ByColumn<'a>>,
    /// For the other types.
    by_pattern: Option<Box<dyn Evaluator + 'a>>,
    /// The type of the latest evaluation.
    latest: Option<CovarianceType>,
    total_weight: f64,
    /// See [`Sampling::fix_batch_reference`].
    batch_reference: Option<Mixture>,
}

/// The side for diagonal and spherical covariances: of this evaluator, or of the one whose samples
/// it shares.
enum ByColumn<'a> {
    Own(Box<dyn Engine + 'a>),
    Shared(Box<dyn Evaluator + 'a>),
}

impl<'a> ByColumn<'a> {
    fn get(&self) -> &(dyn Evaluator + 'a) {
        match self {
            Self::Own(engine) => engine.as_ref(),
            Self::Shared(engine) => engine.as_ref(),
        }
    }

    fn get_mut(&mut self) -> &mut (dyn Evaluator + 'a) {
        match self {
            Self::Own(engine) => engine.as_mut(),
            Self::Shared(engine) => engine.as_mut(),
        }
    }
}

impl std::fmt::Debug for MissingEngine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MissingEngine").field("samples", &self.samples).finish()
    }
}

impl<'a> MissingEngine<'a> {
    /// # Errors
    /// [`Error::NoCudaDevice`] and [`Error::Kernel`].
    pub fn new(samples: Samples<'a>, ordinal: usize, options: &CudaOptions) -> Result<Self> {
        let gpu = Gpu::open(ordinal)?;
        options.kernel.as_deref().map(Requested::new).transpose()?;
        let (options, total_weight) = (options.clone(), samples.total_weight());
        Ok(Self {
            samples,
            gpu,
            ordinal,
            options,
            by_column: None,
            by_pattern: None,
            latest: None,
            total_weight,
            batch_reference: None,
        })
    }

    /// The side for diagonal and spherical covariances.
    fn by_column(&mut self) -> Result<&mut ByColumn<'a>> {
        let engine = match self.by_column.take() {
            Some(engine) => engine,
            None => {
                let source = Source::Host(self.samples.clone(), self.ordinal);
                let mut engine = engine::complete(source, &self.options)?;
                if let Some(reference) = &self.batch_reference {
                    engine.fix_batch_reference(reference);
                }
                ByColumn::Own(engine)
            }
        };
        Ok(self.by_column.insert(engine))
    }

    /// The side for the other types.
    fn by_pattern(&mut self) -> Result<&mut (dyn Evaluator + 'a)> {
        let engine = match self.by_pattern.take() {
            Some(engine) => engine,
            None => by_pattern::evaluator(self.samples.clone(), self.ordinal, &self.options)?,
        };
        Ok(self.by_pattern.insert(engine).as_mut())
    }

    /// The sides that are made.
    fn sides_mut(&mut self) -> impl Iterator<Item = &mut (dyn Evaluator + 'a)> {
        let by_column = self.by_column.as_mut().map(ByColumn::get_mut);
        by_column.into_iter().chain(self.by_pattern.as_deref_mut())
    }

    /// The side for a covariance type, if it is made.
    fn made(&self, covariance_type: CovarianceType) -> Option<&(dyn Evaluator + 'a)> {
        match covariance_type.has_matrices() {
            true => self.by_pattern.as_deref(),
            false => self.by_column.as_ref().map(ByColumn::get),
        }
    }

    /// The side for a mixture.
    fn side(&mut self, mixture: &Mixture) -> Result<&mut (dyn Evaluator + 'a)> {
        let covariance_type = mixture.covariance_type();
        self.latest = Some(covariance_type);
        match covariance_type.has_matrices() {
            true => self.by_pattern(),
            false => Ok(self.by_column()?.get_mut()),
        }
    }
}

impl Engine for MissingEngine<'_> {
    fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Whether no side sends the samples to the device in chunks.
    fn is_resident(&self) -> bool {
        !matches!(&self.by_column, Some(ByColumn::Own(engine)) if !engine.is_resident())
    }

    /// # Errors
    /// [`Error::Unsupported`] for covariances between features.
    fn kernel_seconds(&mut self, mixture: &Mixture, repeats: u32) -> Result<f64> {
        if mixture.covariance_type().has_matrices() {
            return Err(Error::Unsupported {
                what: "the time of one kernel for missing values under covariances of type full or tied".into(),
                backend: "the CUDA backend",
                remedy: "time `log_likelihood`",
            });
        }
        match self.by_column()? {
            ByColumn::Own(engine) => engine.kernel_seconds(mixture, repeats),
            ByColumn::Shared(_) => Err(Error::Unsupported {
                what: "the time of a kernel by an evaluator that shares its samples".into(),
                backend: "the CUDA backend",
                remedy: "ask the evaluator that it shares them with",
            }),
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Evaluator for MissingEngine<'_> {
    fn n_samples(&self) -> usize {
        self.samples.n_samples()
    }

    fn n_features(&self) -> usize {
        self.samples.n_features()
    }

    fn weights(&self) -> Option<ArrayView1<'_, f64>> {
        self.samples.weights()
    }

    fn total_weight(&self) -> f64 {
        self.total_weight
    }

    fn labels(&self) -> Option<&Labels> {
        None
    }

    fn describe(&self) -> Description {
        let described = self.latest.and_then(|latest| self.made(latest)).map(Evaluator::describe);
        described.unwrap_or_else(|| {
            Description::new(format!("cuda:{} (missing values, no evaluation yet)", self.ordinal), "not chosen yet")
        })
    }

    fn precision(&self, mixture: &Mixture, operation: Operation) -> Precision {
        match (self.made(mixture.covariance_type()), self.samples.view()) {
            (Some(side), _) => side.precision(mixture, operation),
            (None, View::F64(_)) if self.options.kernel.is_none() => Precision::Float64,
            (None, _) => Precision::Float32,
        }
    }

    fn share(&self) -> Result<Box<dyn Evaluator + '_>> {
        Ok(Box::new(MissingEngine {
            samples: self.samples.reborrow(),
            gpu: self.gpu,
            ordinal: self.ordinal,
            options: self.options.clone(),
            by_column: self.by_column.as_ref().map(|side| side.get().share()).transpose()?.map(ByColumn::Shared),
            by_pattern: self.by_pattern.as_ref().map(|side| side.share()).transpose()?,
            latest: self.latest,
            total_weight: self.total_weight,
            batch_reference: self.batch_reference.clone(),
        }))
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        self.side(mixture)?.log_likelihood(mixture)
    }

    fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
        let kind = |mixture: &Mixture| mixture.covariance_type().has_matrices();
        match mixtures {
            [first, others @ ..] if others.iter().all(|other| kind(other) == kind(first)) => {
                self.side(first)?.log_likelihood_batch(mixtures)
            }
            _ => mixtures.iter().map(|mixture| self.log_likelihood(mixture)).collect(),
        }
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        self.side(mixture)?.score_samples(mixture)
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        self.side(mixture)?.statistics(mixture)
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.samples.select(rows)
    }

    fn draw(&mut self, draw: &Draw<'_>) -> Result<Vec<Drawn>> {
        draw_by_scores(self, draw)
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        self.side(mixture)?.predict(mixture)
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        self.side(mixture)?.predict_proba(mixture)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Sampling for MissingEngine<'_> {
    /// Those of the side of the latest evaluation.
    fn useful_shares(&self) -> usize {
        self.latest.and_then(|latest| self.made(latest)).map_or(1, |side| side.useful_shares())
    }

    fn settle(&mut self) {
        for side in self.sides_mut() {
            side.settle();
        }
    }

    fn fix_batch_reference(&mut self, mixture: &Mixture) {
        for side in self.sides_mut() {
            side.fix_batch_reference(mixture);
        }
        self.batch_reference = Some(mixture.clone());
    }

    /// Leaves the chain to the caller: the walk on the device takes complete samples.
    fn metropolis(
        &mut self,
        target: &MetropolisTarget,
        point: &[f64],
        _log_density: f64,
        _steps: &mut dyn MetropolisSteps,
    ) -> Result<bool> {
        target.check(self.n_features(), point).map(|()| false)
    }
}
