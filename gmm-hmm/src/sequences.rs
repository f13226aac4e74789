//! Rows divided into sequences.
use crate::device::OnDevice;
use crate::error::{Error, Result};
use gmm_host::{Device, Samples};
use std::ops::Range;

/// Samples (N, D), whose rows are one sequence after another. Missing values are allowed if the samples allow them.
#[derive(Debug, Clone)]
pub struct Sequences<'a> {
    samples: Samples<'a>,
    /// The first row of each sequence, and N (S + 1,).
    starts: Vec<usize>,
    weights: Option<Vec<f64>>,
    device: Option<OnDevice<'a>>,
}

impl<'a> Sequences<'a> {
    /// Divides samples into sequences of these lengths. Weights of the samples do not count.
    ///
    /// # Errors
    /// [`Error::Lengths`], [`Error::EmptySequence`], [`Error::NoSequence`].
    pub fn new(samples: Samples<'a>, lengths: &[usize]) -> Result<Self> {
        if let Some(sequence) = lengths.iter().position(|length| *length == 0) {
            return Err(Error::EmptySequence { sequence });
        }
        let mut starts = Vec::with_capacity(lengths.len() + 1);
        starts.push(0);
        let mut sum = 0_usize;
        for length in lengths {
            sum = sum.saturating_add(*length);
            starts.push(sum);
        }
        match (lengths.is_empty(), samples.n_samples()) {
            (true, _) => Err(Error::NoSequence),
            (_, n_samples) if n_samples != sum => Err(Error::Lengths { sum, n_samples }),
            _ => Ok(Self { samples, starts, weights: None, device: None }),
        }
    }

    /// Takes all samples as one sequence.
    pub fn one(samples: Samples<'a>) -> Self {
        let starts = vec![0, samples.n_samples()];
        Self { samples, starts, weights: None, device: None }
    }

    /// Gives each sequence a weight (S,): a sequence of weight w counts as w equal sequences.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::SequenceWeight`], [`Error::NoSequence`].
    pub fn with_weights(self, weights: Vec<f64>) -> Result<Self> {
        if weights.len() != self.len() {
            let (expected, got) = (vec![self.len()], vec![weights.len()]);
            return Err(Error::Shape { what: "the weights of the sequences", expected, got });
        }
        if let Some(sequence) = weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
            return Err(Error::SequenceWeight { sequence, value: weights[sequence] });
        }
        match weights.iter().any(|w| *w > 0.0) {
            true => Ok(Self { weights: Some(weights), ..self }),
            false => Err(Error::NoSequence),
        }
    }

    /// Computes E-steps and scores on a device. A GPU, `cuda` or `cuda:N`, holds the rows and takes up to 32 states;
    /// missing values under covariances between features, and rows that exceed its memory, are left to the CPU.
    ///
    /// # Errors
    /// [`Error::Parameter`] for other devices; [`Error::Host`] for a GPU that cannot be used.
    pub fn on(self, device: Device) -> Result<Self> {
        Ok(Self { device: OnDevice::new(device, &self.samples)?, ..self })
    }

    pub(crate) fn device(&self) -> Option<&OnDevice<'a>> {
        self.device.as_ref()
    }

    pub(crate) fn weights(&self) -> Option<&[f64]> {
        self.weights.as_deref()
    }

    /// Returns the rows.
    pub fn samples(&self) -> &Samples<'a> {
        &self.samples
    }

    /// Returns S, the number of sequences.
    #[allow(clippy::len_without_is_empty, reason = "there is always a sequence")]
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the rows of a sequence.
    pub fn rows(&self, sequence: usize) -> Range<usize> {
        self.starts[sequence]..self.starts[sequence + 1]
    }

    /// Returns the weight of a sequence, 1 without weights.
    pub fn weight(&self, sequence: usize) -> f64 {
        self.weights.as_ref().map_or(1.0, |weights| weights[sequence])
    }
}
