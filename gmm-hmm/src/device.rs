//! E-steps on a GPU that holds the rows.
use crate::error::{Error, Result};
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
    /// Loads samples into a GPU. Returns `None` for the CPU.
    pub fn new(device: Device, samples: &Samples<'a>) -> Result<Option<Self>> {
        match device {
            Device::Cpu => Ok(None),
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

    /// See [`Markov::expectations`](gmm_host::Markov::expectations).
    pub fn expectations(&self, chain: &MarkovChain<'_>) -> Result<Option<MarkovSums>> {
        let mut evaluator = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match evaluator.markov() {
            Some(markov) => Ok(markov.expectations(chain)?),
            None => Ok(None),
        }
    }
}
