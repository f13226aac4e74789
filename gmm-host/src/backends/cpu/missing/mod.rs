//! Samples with missing values: diagonal and spherical covariances column by column, the others
//! pattern by pattern.
mod by_pattern;
mod completion;
mod few;

use super::complete::Complete;
use crate::backends::cpu::threads::Threads;
use crate::data::samples::{Rows, Samples, View};
use crate::draw::{Draw, Drawn};
use crate::error::Result;
use crate::evaluator::{Description, Evaluator, draw_by_scores};
use crate::labels::Labels;
use crate::model::covariances::CovarianceType;
use crate::model::mixture::Mixture;
use crate::precision::{Operation, Precision};
use crate::sampling::Sampling;
use crate::simd::isa::Isa;
use crate::statistics::Statistics;
use by_pattern::ByPattern;
use ndarray::{Array1, Array2, ArrayView1};

/// Evaluates samples with missing values. Each of its two sides has a layout of the samples of its
/// own, which is made when it is first needed.
pub(super) struct MissingEngine<'a> {
    samples: Samples<'a>,
    /// For diagonal and spherical covariances: the engine in which a sample takes part with the
    /// columns that it has values in.
    by_column: Option<Box<dyn Evaluator + 'a>>,
    /// For the other types.
    by_pattern: Option<Box<dyn Evaluator + 'a>>,
    /// The type of the latest evaluation.
    latest: Option<CovarianceType>,
    total_weight: f64,
    isa: Isa,
    threads: Threads,
}

impl std::fmt::Debug for MissingEngine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MissingEngine").field("samples", &self.samples).finish()
    }
}

impl<'a> MissingEngine<'a> {
    pub fn new(samples: Samples<'a>, threads: Threads, isa: Isa) -> Self {
        let total_weight = samples.total_weight();
        Self { samples, by_column: None, by_pattern: None, latest: None, total_weight, isa, threads }
    }

    /// The side for a covariance type, if it is made.
    fn made(&self, covariance_type: CovarianceType) -> Option<&(dyn Evaluator + 'a)> {
        match covariance_type.has_matrices() {
            true => self.by_pattern.as_deref(),
            false => self.by_column.as_deref(),
        }
    }

    /// The side for a mixture.
    fn side(&mut self, mixture: &Mixture) -> &mut (dyn Evaluator + 'a) {
        let covariance_type = mixture.covariance_type();
        self.latest = Some(covariance_type);
        let (samples, threads, isa) = (&self.samples, &self.threads, self.isa);
        let side = match covariance_type.has_matrices() {
            true => {
                self.by_pattern.get_or_insert_with(|| Box::new(ByPattern::new(samples.clone(), threads.clone(), isa)))
            }
            false => self.by_column.get_or_insert_with(|| Box::new(Complete::new(samples.clone(), threads, isa))),
        };
        side.as_mut()
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
        described.unwrap_or_else(|| Description::new("cpu (missing values, no evaluation yet)", self.isa.name()))
    }

    fn precision(&self, mixture: &Mixture, operation: Operation) -> Precision {
        match (self.made(mixture.covariance_type()), self.samples.view()) {
            (Some(side), _) => side.precision(mixture, operation),
            (None, View::F32(_)) => Precision::Float32,
            (None, View::F64(_)) => Precision::Float64,
        }
    }

    fn share(&self) -> Result<Box<dyn Evaluator + '_>> {
        Ok(Box::new(MissingEngine {
            samples: self.samples.reborrow(),
            by_column: self.by_column.as_ref().map(|side| side.share()).transpose()?,
            by_pattern: self.by_pattern.as_ref().map(|side| side.share()).transpose()?,
            latest: self.latest,
            total_weight: self.total_weight,
            isa: self.isa,
            threads: self.threads.clone(),
        }))
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        self.side(mixture).log_likelihood(mixture)
    }

    fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
        let kind = |mixture: &Mixture| mixture.covariance_type().has_matrices();
        match mixtures {
            [first, others @ ..] if others.iter().all(|other| kind(other) == kind(first)) => {
                self.side(first).log_likelihood_batch(mixtures)
            }
            _ => mixtures.iter().map(|mixture| self.log_likelihood(mixture)).collect(),
        }
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        self.side(mixture).score_samples(mixture)
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        self.side(mixture).statistics(mixture)
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.samples.select(rows)
    }

    fn draw(&mut self, draw: &Draw<'_>) -> Result<Vec<Drawn>> {
        draw_by_scores(self, draw)
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        self.side(mixture).predict(mixture)
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        self.side(mixture).predict_proba(mixture)
    }
}

/// Both sides treat each mixture by itself.
impl Sampling for MissingEngine<'_> {}
