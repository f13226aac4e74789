//! Samples that are restricted to some components.
use super::parts;
use crate::compensated::neumaier_sum;
use crate::contract::draw::{Draw, Drawn};
use crate::contract::evaluator::{DataFacts, Description, Evaluator, check_features, data_facts, responsibilities};
use crate::contract::labels::Labels;
use crate::contract::markov::Markov;
use crate::contract::sampling::Sampling;
use crate::data::samples::{Rows, Samples, check_rows};
use crate::error::{Error, Result};
use crate::model::mixture::Mixture;
use crate::precision::{Operation, Precision};
use crate::statistics::Statistics;
use ndarray::{Array1, Array2};

/// An evaluator of samples that can only belong to the components that their [`Labels`] allow; all results are
/// conditional on this. The log-likelihood of sample i is log Σₖ πₖ N(xᵢ; μₖ, Σₖ) over the allowed k, so EM's lower
/// bound rises as it does without labels, and responsibilities are zero for all other k.
///
/// The samples of each set of components have their own evaluator, which gets that part of a mixture. Evaluation takes
/// longer the more sets there are. A mixture of one component applies to all samples.
///
/// ```
/// use gmm_host::{CpuEvaluator, GaussianMixtureParams, LabelledEvaluator, Labels, Samples};
/// use ndarray::array;
///
/// let x = array![[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]];
/// // The component of the first three samples is to have the number 1.
/// let labels = Labels::new(&[Some(1), None, None, None, None, None], 2)?;
/// let mut data = LabelledEvaluator::new(Samples::from_f64(x.view())?, labels, |part| {
///     Ok(Box::new(CpuEvaluator::new(part)?))
/// })?;
/// let fit = GaussianMixtureParams::new(2).fit(&mut data)?;
/// assert!((fit.mixture.means()[[1, 0]] - 1.0).abs() < 1e-3);
/// # Ok::<(), gmm_host::Error>(())
/// ```
pub struct LabelledEvaluator<'a> {
    labels: Labels,
    weights: Option<Array1<f64>>,
    parts: Vec<Box<dyn Evaluator + 'a>>,
}

impl<'a> LabelledEvaluator<'a> {
    /// Divides the samples by their labels. `load` makes the evaluator of a part.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] if labels and samples differ in number, and errors of `load`.
    pub fn new(
        samples: Samples<'a>,
        labels: Labels,
        load: impl FnMut(Samples<'a>) -> Result<Box<dyn Evaluator + 'a>>,
    ) -> Result<Self> {
        let (n, got) = (samples.n_samples(), labels.n_samples());
        if n != got {
            return Err(Error::ShapeMismatch { what: "labels", expected: vec![n], got: vec![got] });
        }
        let sets: Vec<usize> = (0..n).map(|row| labels.place(row).0).collect();
        let weights = samples.weights().map(|weights| weights.to_owned());
        let parts = samples.groups(&sets, labels.sets().len())?;
        let parts = parts.into_iter().map(load).collect::<Result<_>>()?;
        Ok(Self { labels, weights, parts })
    }

    /// Returns the part of a mixture for a set of components, with weights of sum one, and the logarithm of their sum.
    fn restricted(&self, mixture: &Mixture, set: usize) -> Result<(Mixture, f64)> {
        let (k, labels) = (mixture.n_components(), &self.labels);
        if k == 1 {
            return Ok((mixture.clone(), 0.0));
        }
        let components = &labels.sets()[set];
        let of_part = mixture.permuted(components);
        let log_weights = components.iter().map(|&c| mixture.log_weight(c)).collect();
        let row = labels.rows_of(set)[0];
        of_part.with_log_weights(log_weights).map_err(|_| Error::UnreachableSample { row })
    }

    /// Returns the results of `f` for each part. It gets the evaluator, the part's mixture, the logarithm of its
    /// weight, and the number of its set.
    fn map<T>(
        &mut self,
        mixture: &Mixture,
        mut f: impl FnMut(&mut dyn Evaluator, &Mixture, f64, usize) -> Result<T>,
    ) -> Result<Vec<T>> {
        check_features(mixture, self.n_features())?;
        self.check_components(mixture)?;
        let mut results = Vec::with_capacity(self.parts.len());
        for set in 0..self.parts.len() {
            let (part, log_share) = self.restricted(mixture, set)?;
            let result = f(self.parts[set].as_mut(), &part, log_share, set);
            results.push(result.map_err(|error| self.row_of_all(error, set))?);
        }
        Ok(results)
    }

    fn check_components(&self, mixture: &Mixture) -> Result<()> {
        let (k, expected) = (mixture.n_components(), self.labels.n_components());
        if k == 1 || k == expected {
            return Ok(());
        }
        let what = "the mixture's components (against those of the labels)";
        Err(Error::ShapeMismatch { what, expected: vec![expected], got: vec![k] })
    }

    /// Converts the row in an error about a part to a row of all samples.
    fn row_of_all(&self, error: Error, set: usize) -> Error {
        match error {
            Error::UnreachableSample { row } => Error::UnreachableSample { row: self.labels.rows_of(set)[row] },
            Error::NoSpread { row } => Error::NoSpread { row: self.labels.rows_of(set)[row] },
            other => other,
        }
    }

    /// Reorders the parts' values per sample to the order of all samples (N,).
    fn in_order<T: Copy>(&self, of_parts: &[impl std::ops::Index<usize, Output = T>]) -> Vec<T> {
        let place = |row| self.labels.place(row);
        (0..self.labels.n_samples()).map(place).map(|(set, place)| of_parts[set][place]).collect()
    }
}

#[deny(clippy::missing_trait_methods)]
impl Evaluator for LabelledEvaluator<'_> {
    data_facts!();

    fn data(&self) -> DataFacts<'_> {
        DataFacts {
            n_samples: self.labels.n_samples(),
            n_features: self.parts[0].n_features(),
            total_weight: neumaier_sum(self.parts.iter().map(|part| part.total_weight())),
            weights: self.weights.as_ref().map(|weights| weights.view()),
            labels: Some(&self.labels),
            has_noise: self.parts.iter().any(|part| part.data().has_noise),
        }
    }

    fn describe(&self) -> Description {
        let largest = (0..self.parts.len()).max_by_key(|&set| self.labels.rows_of(set).len());
        self.parts[largest.unwrap_or(0)].describe()
    }

    fn precision(&self, mixture: &Mixture, operation: Operation) -> Precision {
        let float32 = |set: usize| {
            let restricted = self.check_components(mixture).and_then(|()| self.restricted(mixture, set));
            restricted.is_ok_and(|(mixture, _)| self.parts[set].precision(&mixture, operation) == Precision::Float32)
        };
        if (0..self.parts.len()).any(float32) { Precision::Float32 } else { Precision::Float64 }
    }

    fn share(&self) -> Result<Box<dyn Evaluator + '_>> {
        let parts = self.parts.iter().map(|part| part.share()).collect::<Result<_>>()?;
        Ok(Box::new(LabelledEvaluator { labels: self.labels.clone(), weights: self.weights.clone(), parts }))
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        let totals = self.map(mixture, |part, mixture, log_share, _| {
            Ok(part.log_likelihood(mixture)? + part.total_weight() * log_share)
        })?;
        Ok(neumaier_sum(totals))
    }

    fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
        for mixture in mixtures {
            check_features(mixture, self.n_features())?;
            self.check_components(mixture)?;
        }
        let mut of_parts = Vec::with_capacity(self.parts.len());
        for set in 0..self.parts.len() {
            let restricted: Vec<(Mixture, f64)> =
                mixtures.iter().map(|mixture| self.restricted(mixture, set)).collect::<Result<_>>()?;
            let (mixtures, log_shares): (Vec<_>, Vec<_>) = restricted.into_iter().unzip();
            let part = &mut self.parts[set];
            let totals = part.log_likelihood_batch(&mixtures).map_err(|error| self.row_of_all(error, set))?;
            let weight = self.parts[set].total_weight();
            of_parts.push(totals.iter().zip(log_shares).map(|(total, share)| total + weight * share).collect());
        }
        Ok(parts::totals(mixtures.len(), &of_parts))
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        let scores = self.map(mixture, |part, mixture, log_share, _| Ok(part.score_samples(mixture)? + log_share))?;
        Ok(self.in_order(&scores).into())
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        let labels = self.labels.clone();
        let of_parts = self.map(mixture, |part, of_part, log_share, set| {
            let statistics = part.statistics(of_part)?;
            Ok(match mixture.n_components() {
                1 => statistics,
                _ => statistics.as_part_of(mixture, &labels.sets()[set], log_share),
            })
        })?;
        parts::merged(mixture, of_parts)
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        check_rows(rows, self.n_samples())?;
        let mut x = Array2::zeros((rows.len(), self.n_features()));
        let mut weights = Array1::zeros(rows.len());
        let places: Vec<(usize, usize)> = rows.iter().map(|&row| self.labels.place(row)).collect();
        for (set, part) in self.parts.iter_mut().enumerate() {
            let here: Vec<usize> = (0..rows.len()).filter(|&i| places[i].0 == set).collect();
            if here.is_empty() {
                continue;
            }
            let found = part.rows(&here.iter().map(|&i| places[i].1).collect::<Vec<_>>())?;
            for ((&i, row), weight) in here.iter().zip(found.x.outer_iter()).zip(&found.weights) {
                x.row_mut(i).assign(&row);
                weights[i] = *weight;
            }
        }
        Ok(Rows::new(x, weights))
    }

    /// Ignores the labels: the centres are candidates, not components.
    fn draw(&mut self, draw: &Draw<'_>) -> Result<Vec<Drawn>> {
        check_features(draw.centres(), self.n_features())?;
        let scores: Vec<_> =
            self.parts.iter_mut().map(|part| part.score_samples(draw.centres())).collect::<Result<_>>()?;
        Ok(draw.with_scores(&self.in_order(&scores).into(), self.data().weights))
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        let labels = self.labels.clone();
        let of_parts = self.map(mixture, |part, of_part, _, set| {
            let mut found = part.predict(of_part)?;
            if mixture.n_components() > 1 {
                found.iter_mut().for_each(|label| *label = labels.sets()[set][*label]);
            }
            Ok(found)
        })?;
        Ok(self.in_order(&of_parts))
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        let mut all = responsibilities(self.n_samples(), mixture.n_components())?;
        let labels = self.labels.clone();
        self.map(mixture, |part, of_part, _, set| {
            let found = part.predict_proba(of_part)?;
            for (&row, found) in labels.rows_of(set).iter().zip(found.outer_iter()) {
                let components = if mixture.n_components() == 1 { &[0][..] } else { &labels.sets()[set] };
                components.iter().zip(found).for_each(|(&c, r)| all[[row, c]] = *r);
            }
            Ok(())
        })?;
        Ok(all)
    }
    fn sampling(&mut self) -> Option<&mut dyn Sampling> {
        Some(self)
    }

    fn markov(&mut self) -> Option<&mut dyn Markov> {
        None
    }
}

impl Sampling for LabelledEvaluator<'_> {
    /// The number that helps every part.
    fn useful_shares(&mut self) -> usize {
        let of_part = |part: &mut Box<dyn Evaluator + '_>| part.sampling().map_or(1, Sampling::useful_shares);
        self.parts.iter_mut().map(of_part).min().unwrap_or(1)
    }

    fn settle(&mut self) {
        self.parts.iter_mut().filter_map(|part| part.sampling()).for_each(Sampling::settle);
    }

    fn fix_batch_reference(&mut self, mixture: &Mixture) {
        for set in 0..self.parts.len() {
            if let Ok((of_part, _)) = self.check_components(mixture).and_then(|()| self.restricted(mixture, set))
                && let Some(sampling) = self.parts[set].sampling()
            {
                sampling.fix_batch_reference(&of_part);
            }
        }
    }
}

impl std::fmt::Debug for LabelledEvaluator<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LabelledEvaluator")
            .field("sets", &self.labels.sets())
            .field("device", &self.describe().device)
            .finish()
    }
}
