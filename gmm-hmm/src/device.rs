//! E-steps on a GPU that holds the rows.
use crate::error::{Error, Result};
use crate::expectations::Expectations;
use crate::model::HiddenMarkov;
use crate::sequences::Sequences;
use gmm_host::{Device, Evaluator, LoadOptions, MarkovChain, MarkovSums, Samples};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// An evaluator over the rows.
#[derive(Clone)]
pub(crate) struct OnDevice<'a>(Arc<Mutex<Box<dyn Evaluator + 'a>>>);

impl fmt::Debug for OnDevice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnDevice").finish_non_exhaustive()
    }
}

impl<'a> OnDevice<'a> {
    /// Loads samples into a GPU. Returns `None` for the CPU, which alone takes missing values.
    pub fn new(device: Device, samples: &Samples<'a>) -> Result<Option<Self>> {
        match device {
            Device::Cpu => Ok(None),
            Device::Cuda(_) if samples.missing().is_some() => Ok(None),
            Device::Cuda(_) => {
                let evaluator = gmm_host::load(device, samples.clone(), &LoadOptions::new())?;
                Ok(Some(Self(Arc::new(Mutex::new(evaluator)))))
            }
            device => {
                let remedy = "take cpu, cuda or cuda:N";
                Err(Error::Parameter { what: "the device of sequences", value: device.to_string(), remedy })
            }
        }
    }

    /// Returns the expectations, or `None` where the CPU must compute them.
    pub fn expectations(&self, model: &HiddenMarkov, sequences: &Sequences<'_>) -> Result<Option<Expectations>> {
        if model.n_mix() > 1 {
            return Ok(None);
        }
        let lengths: Vec<usize> = (0..sequences.len()).map(|s| sequences.rows(s).len()).collect();
        let chain = MarkovChain {
            emissions: model.emissions(),
            start: model.startprob(),
            transitions: model.transmat(),
            lengths: &lengths,
            weights: sequences.weights(),
        };
        let mut evaluator = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(markov) = evaluator.markov() else { return Ok(None) };
        let of_sums = |sums: MarkovSums| {
            let MarkovSums { start, transitions, statistics, .. } = sums;
            Expectations { log_likelihood: statistics.log_likelihood(), start, transitions, statistics }
        };
        Ok(markov.expectations(&chain)?.map(of_sums))
    }
}
