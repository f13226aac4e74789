//! Samples with missing values: by column for diagonal and spherical covariances, by pattern for the others.
use super::lazy::Lazy;
use crate::contract::draw::{Draw, Drawn};
use crate::contract::evaluator::{DataFacts, Description, Evaluator, data_facts, draw_by_scores};
use crate::contract::markov::{Markov, MarkovChain, MarkovSums};
use crate::contract::sampling::Sampling;
use crate::data::samples::{Rows, Samples};
use crate::error::Result;
use crate::model::covariances::CovarianceType;
use crate::model::mixture::Mixture;
use crate::precision::{Operation, Precision};
use crate::statistics::Statistics;
use ndarray::{Array1, Array2};

/// Evaluates samples with missing values. Each of its two sides has its own layout of the samples, made on demand.
pub struct MissingEngine<'a, C> {
    samples: Samples<'a>,
    /// For diagonal and spherical covariances: an engine in which a sample takes part with its observed columns.
    pub by_column: Lazy<'a, C>,
    by_pattern: Lazy<'a, Box<dyn Evaluator + 'a>>,
    /// The description and the precision before a side is made.
    unmade: (Description, Precision),
    latest: Option<CovarianceType>,
    batch_reference: Option<Mixture>,
}

impl<'a, C: Evaluator + 'a> MissingEngine<'a, C> {
    /// Takes the functions that make the two sides when they are first needed.
    pub fn new(
        samples: Samples<'a>,
        unmade: (Description, Precision),
        by_column: impl Fn() -> Result<C> + Send + Sync + 'a,
        by_pattern: impl Fn() -> Result<Box<dyn Evaluator + 'a>> + Send + Sync + 'a,
    ) -> Self {
        let (by_column, by_pattern) = (Lazy::new(by_column), Lazy::new(by_pattern));
        Self { samples, by_column, by_pattern, unmade, latest: None, batch_reference: None }
    }

    /// Returns the side for a covariance type, if it is made.
    fn made(&self, covariance_type: CovarianceType) -> Option<&(dyn Evaluator + 'a)> {
        match covariance_type.has_matrices() {
            true => self.by_pattern.made().map(Box::as_ref),
            false => self.by_column.made().map(|side| side as _),
        }
    }

    fn side(&mut self, covariance_type: CovarianceType) -> Result<&mut (dyn Evaluator + 'a)> {
        self.latest = Some(covariance_type);
        Ok(match covariance_type.has_matrices() {
            true => self.by_pattern.get()?.as_mut(),
            false => self.by_column.get()?,
        })
    }

    fn side_for(&mut self, mixture: &Mixture) -> Result<&mut (dyn Evaluator + 'a)> {
        mixture.check_no_noise("missing values under the density")?;
        self.side(mixture.covariance_type())
    }
}

#[deny(clippy::missing_trait_methods)]
impl<'a, C: Evaluator + 'a> Evaluator for MissingEngine<'a, C> {
    data_facts!();

    fn data(&self) -> DataFacts<'_> {
        DataFacts::from(&self.samples)
    }

    fn describe(&self) -> Description {
        let described = self.latest.and_then(|latest| self.made(latest)).map(Evaluator::describe);
        described.unwrap_or_else(|| self.unmade.0.clone())
    }

    fn precision(&self, mixture: &Mixture, operation: Operation) -> Precision {
        self.made(mixture.covariance_type()).map_or(self.unmade.1, |side| side.precision(mixture, operation))
    }

    fn share(&self) -> Result<Box<dyn Evaluator + '_>> {
        Ok(Box::new(MissingEngine {
            samples: self.samples.reborrow(),
            by_column: self.by_column.share()?,
            by_pattern: self.by_pattern.share()?,
            unmade: self.unmade.clone(),
            latest: self.latest,
            batch_reference: self.batch_reference.clone(),
        }))
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        self.side_for(mixture)?.log_likelihood(mixture)
    }

    fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
        let kind = |mixture: &Mixture| mixture.covariance_type().has_matrices();
        let Some(first) = mixtures.first().filter(|first| mixtures.iter().all(|other| kind(other) == kind(first)))
        else {
            return mixtures.iter().map(|mixture| self.log_likelihood(mixture)).collect();
        };
        let reference = self.batch_reference.take();
        let totals = self.side_for(first).and_then(|side| {
            // Each time, because the side may be new.
            if let (Some(reference), Some(sampling)) = (&reference, side.sampling()) {
                sampling.fix_batch_reference(reference);
            }
            side.log_likelihood_batch(mixtures)
        });
        self.batch_reference = reference;
        totals
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        self.side_for(mixture)?.score_samples(mixture)
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        self.side_for(mixture)?.statistics(mixture)
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.samples.select(rows)
    }

    fn draw(&mut self, draw: &Draw<'_>) -> Result<Vec<Drawn>> {
        draw_by_scores(self, draw)
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        self.side_for(mixture)?.predict(mixture)
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        self.side_for(mixture)?.predict_proba(mixture)
    }

    fn sampling(&mut self) -> Option<&mut dyn Sampling> {
        Some(self)
    }

    fn markov(&mut self) -> Option<&mut dyn Markov> {
        Some(self)
    }
}

/// The side by column has the operation.
impl<'a, C: Evaluator + 'a> Markov for MissingEngine<'a, C> {
    fn expectations(&mut self, chain: &MarkovChain<'_>) -> Result<Option<MarkovSums>> {
        if chain.emissions.covariance_type().has_matrices() {
            return Ok(None);
        }
        self.side_for(chain.emissions)?.markov().map_or(Ok(None), |side| side.expectations(chain))
    }
}

/// The caller makes the steps of a chain: Metropolis on a device needs complete samples.
impl<'a, C: Evaluator + 'a> Sampling for MissingEngine<'a, C> {
    /// The shares of the side of the latest evaluation.
    fn useful_shares(&mut self) -> usize {
        let side = self.latest.and_then(|latest| self.side(latest).ok());
        side.and_then(Evaluator::sampling).map_or(1, Sampling::useful_shares)
    }

    fn fix_batch_reference(&mut self, mixture: &Mixture) {
        self.batch_reference = Some(mixture.clone());
    }
}
