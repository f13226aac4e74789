//! Samples that each have their own noise: a factorisation for each pair of a sample and a component, in float64.
mod kernel;
mod rows;

use super::threads::Threads;
use crate::backends::noisy_reference::rows_of;
use crate::compensated::neumaier_sum;
use crate::contract::evaluator::{
    DataFacts, Description, Evaluator, check_features, check_responsibilities, most_probable,
};
use crate::data::samples::{Rows, Samples};
use crate::data::true_values::statistics;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::model::linalg::triangle;
use crate::model::mixture::Mixture;
use crate::reproducible::Functions;
use crate::simd::isa::Isa;
use crate::statistics::Statistics;
use kernel::{Accumulation, Densities, Lanes, Parameters, Room, Shares};
use ndarray::{Array1, Array2};
use rayon::prelude::*;
use rows::Row;
use std::f64::consts::LN_2;
use std::ops::Range;

/// The least samples of a segment of an E-step, and of a piece of other evaluations.
const PIECE: usize = 256;
/// The most segments, which each have their own sums, and the most sums of all of them, unless there are four segments.
/// Their number does not depend on the threads, so the results do not either.
const SEGMENTS: (usize, usize) = (64, 1 << 22);

/// Evaluates samples with noise.
pub(super) struct OwnNoise<'a> {
    samples: Samples<'a>,
    threads: Threads,
    isa: Isa,
}

/// The evaluation of samples one after another, on one thread.
struct Worker<'s, 'a> {
    samples: &'s Samples<'a>,
    parameters: &'s Parameters,
    isa: Isa,
    row: Row,
    room: Room,
    /// The number of columns if they are the true values of all samples, otherwise 0.
    columns: usize,
}

/// Calls an operation of the kernel with the number of columns as a constant if that is the same in all samples, and
/// small.
macro_rules! with_columns {
    ($self:ident, $operation:ident { $($field:ident: $value:expr),* }) => {
        match $self.columns {
            1 => $self.isa.run($operation::<1> { $($field: $value),* }),
            2 => $self.isa.run($operation::<2> { $($field: $value),* }),
            3 => $self.isa.run($operation::<3> { $($field: $value),* }),
            4 => $self.isa.run($operation::<4> { $($field: $value),* }),
            5 => $self.isa.run($operation::<5> { $($field: $value),* }),
            6 => $self.isa.run($operation::<6> { $($field: $value),* }),
            7 => $self.isa.run($operation::<7> { $($field: $value),* }),
            8 => $self.isa.run($operation::<8> { $($field: $value),* }),
            _ => $self.isa.run($operation::<0> { $($field: $value),* }),
        }
    };
}

impl<'s, 'a> Worker<'s, 'a> {
    fn new(samples: &'s Samples<'a>, parameters: &'s Parameters, isa: Isa) -> Self {
        let room = Room::new(parameters, samples.n_features());
        let is_plain = samples.missing().is_none() && !samples.noise().is_some_and(|noise| noise.is_projected());
        let columns = if is_plain { parameters.d } else { 0 };
        Self { samples, parameters, isa, row: Row::default(), room, columns }
    }

    /// Computes the components' log₂ densities of a sample, into the room, and returns the largest.
    fn densities(&mut self, row: usize, is_far: bool) -> Result<f64> {
        self.row.read(self.samples, row, !self.parameters.of_measurements);
        let (parameters, row_read, room) = (self.parameters, &self.row, &mut self.room);
        if with_columns!(self, Densities { parameters: parameters, row: row_read, room: room, is_far: is_far }) {
            return Err(Error::NoSpread { row });
        }
        Ok(self.values().iter().copied().fold(f64::NEG_INFINITY, f64::max))
    }

    fn values(&self) -> &[f64] {
        &self.room.values[..self.parameters.k]
    }

    /// Turns the log₂ densities of a sample into shares of their sum up to a factor; returns the sum of the shares.
    fn shares(&mut self, largest: f64) -> f64 {
        self.isa.run(Shares { k: self.parameters.k, largest, values: &mut self.room.values })
    }

    /// Returns the log-density of a sample, with its shares and their sum.
    fn score(&mut self, row: usize) -> Result<(f64, f64)> {
        let largest = self.densities(row, false)?;
        if largest == f64::NEG_INFINITY {
            return Ok((largest, 0.0));
        }
        let sum = self.shares(largest);
        Ok(((largest + sum.log_2()) * LN_2, sum))
    }

    /// Computes the responsibilities of a sample; one infinitely far from all components belongs to the nearest.
    fn responsibilities(&mut self, row: usize) -> Result<&[f64]> {
        let (score, sum) = self.score(row)?;
        if score == f64::NEG_INFINITY {
            let largest = self.densities(row, true)?;
            self.room.values.iter_mut().for_each(|v| *v = f64::from(*v == largest));
            let nearest = most_probable(self.values());
            self.room.values.iter_mut().enumerate().for_each(|(c, v)| *v = f64::from(c == nearest));
        } else {
            self.room.values.iter_mut().for_each(|v| *v /= sum);
        }
        Ok(self.values())
    }

    /// Adds a sample with weight to the sums, and returns its weighted log-density.
    fn add(&mut self, row: usize, weight: f64, sums: &mut [f64]) -> Result<f64> {
        let (score, sum) = self.score(row)?;
        if !score.is_finite() {
            return Err(Error::UnreachableSample { row });
        }
        let factor = weight / sum;
        let (parameters, of_row, room) = (self.parameters, &self.row, &mut self.room);
        with_columns!(
            self,
            Accumulation { parameters: parameters, row: of_row, room: room, factor: factor, sums: sums }
        );
        Ok(weight * score)
    }
}

impl<'a> OwnNoise<'a> {
    pub fn new(samples: Samples<'a>, threads: Threads, isa: Isa) -> Self {
        Self { samples, threads, isa }
    }

    fn parameters(&self, mixture: &Mixture) -> Result<Parameters> {
        check_features(mixture, self.n_features())?;
        mixture.check_no_noise("noise of the samples, under the density")?;
        Ok(Parameters::new(mixture, self.isa.run(Lanes)))
    }

    /// Returns the results of `work` for pieces of `size` rows, in order.
    fn map<T: Send>(
        &self,
        parameters: &Parameters,
        size: usize,
        work: impl Fn(&mut Worker<'_, 'a>, Range<usize>) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let n = self.samples.n_samples();
        let interrupt = Interrupt::current();
        let one = |start: usize| {
            let mut worker = Worker::new(&self.samples, parameters, self.isa);
            interrupt.install(|| work(&mut worker, start..n.min(start + size)))
        };
        let starts: Vec<usize> = (0..n).step_by(size).collect();
        match (&self.threads, starts.len()) {
            (Threads::Calling, _) | (_, 1) => starts.into_iter().map(one).collect(),
            _ => self.threads.install(|| starts.into_par_iter().map(one).collect()),
        }
    }

    /// Returns the values of all rows.
    fn map_rows<T: Send>(
        &self,
        mixture: &Mixture,
        each: usize,
        value: impl Fn(&mut Worker<'_, 'a>, usize, &mut Vec<T>) -> Result<()> + Sync,
    ) -> Result<Vec<T>> {
        let pieces = self.map(&self.parameters(mixture)?, PIECE, |worker, rows| {
            Interrupt::current().check()?;
            let mut values = Vec::with_capacity(rows.len() * each);
            rows.into_iter().try_for_each(|row| value(worker, row, &mut values))?;
            Ok(values)
        })?;
        Ok(pieces.into_iter().flatten().collect())
    }
}

impl Evaluator for OwnNoise<'_> {
    fn data(&self) -> DataFacts<'_> {
        DataFacts { n_features: self.samples.n_true_values(), ..DataFacts::from(&self.samples) }
    }

    fn describe(&self) -> Description {
        let (threads, isa) = (self.threads.count(), self.isa.name());
        let plural = if threads == 1 { "" } else { "s" };
        Description::new(format!("cpu ({threads} thread{plural}, {isa}, float64, noise of each sample)"), isa)
    }

    fn share(&self) -> Result<Box<dyn Evaluator + '_>> {
        Ok(Box::new(OwnNoise { samples: self.samples.reborrow(), threads: self.threads.clone(), isa: self.isa }))
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        let scores = self.score_samples(mixture)?;
        Ok(match self.samples.weights() {
            None => neumaier_sum(scores),
            Some(weights) => {
                let counted = scores.into_iter().zip(weights).filter(|(_, weight)| **weight > 0.0);
                neumaier_sum(counted.map(|(score, weight)| score * weight))
            }
        })
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        let scores = self.map_rows(mixture, 1, |worker, row, out| {
            out.push(worker.score(row)?.0);
            Ok(())
        })?;
        Ok(scores.into())
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        let parameters = self.parameters(mixture)?;
        let n = self.samples.n_samples();
        let most = (SEGMENTS.1 / parameters.sums()).clamp(4, SEGMENTS.0);
        let size = n.div_ceil(most).max(PIECE);
        let parts = self.map(&parameters, size, |worker, rows| {
            let mut sums = super::buffer::buffer(parameters.sums());
            let mut scores = Vec::with_capacity(rows.len());
            let weights = self.samples.weights();
            for row in rows {
                if row % PIECE == 0 {
                    Interrupt::current().check()?;
                }
                let weight = weights.map_or(1.0, |weights| weights[row]);
                if weight > 0.0 {
                    scores.push(worker.add(row, weight, &mut sums)?);
                }
            }
            Ok((neumaier_sum(scores), sums))
        })?;
        let log_likelihood = neumaier_sum(parts.iter().map(|(score, _)| *score));
        let mut parts = parts.into_iter().map(|(_, sums)| sums);
        let mut total = parts.next().unwrap_or_else(|| super::buffer::buffer(parameters.sums()));
        parts.for_each(|sums| total.iter_mut().zip(&sums[..]).for_each(|(total, sum)| *total += sum));
        let (lanes, width) = (parameters.lanes, 1 + parameters.d + triangle(parameters.d));
        let at = |c: usize, i: usize| total[((c / lanes) * width + i) * lanes + c % lanes];
        statistics(mixture, (self.samples.total_weight(), log_likelihood), at)
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        rows_of(&self.samples, rows)
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        self.map_rows(mixture, 1, |worker, row, out| {
            out.push(most_probable(worker.responsibilities(row)?));
            Ok(())
        })
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        let (n, k) = (self.samples.n_samples(), mixture.n_components());
        check_responsibilities(n, k)?;
        let r = self.map_rows(mixture, k, |worker, row, out| {
            out.extend_from_slice(worker.responsibilities(row)?);
            Ok(())
        })?;
        let r = Array2::from_shape_vec((n, k), r);
        r.map_err(|_| Error::ShapeMismatch { what: "responsibilities", expected: vec![n, k], got: vec![] })
    }
}
