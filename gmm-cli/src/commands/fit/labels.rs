//! `gmm fit --labels`: the known components of samples.
use crate::input::{Source, read_vector};
use anyhow::{Context, bail};
use gaussmix::evaluator::{Evaluator, Labels};
use gaussmix::mcmc::Fingerprint;
use ndarray::Array1;
use std::path::{Path, PathBuf};

/// The numbers of a labels file, one for each sample.
pub(super) struct Known {
    path: PathBuf,
    numbers: Array1<f64>,
}

impl Known {
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        Ok(Self { path: path.to_owned(), numbers: read_vector(path)? })
    }

    /// Returns a hash by which a checkpoint recognises the labels.
    pub fn fingerprint(&self) -> String {
        Fingerprint::of_numbers(self.numbers.view())
    }

    /// Checks the numbers as labels of `n` samples for K components.
    fn labels(&self, n: usize, k: usize) -> anyhow::Result<Labels> {
        if self.numbers.len() != n {
            bail!("{} labels for {n} samples", self.numbers.len());
        }
        let label = |(row, &number): (usize, &f64)| match number {
            -1.0 => Ok(None),
            _ if number >= 0.0 && number.fract() == 0.0 => Ok(Some(number as usize)),
            _ => bail!("{number} in row {row}; a label is the number of a component counted from 0, or -1"),
        };
        let labels: Vec<Option<usize>> = self.numbers.iter().enumerate().map(label).collect::<anyhow::Result<_>>()?;
        Ok(Labels::new(&labels, k)?)
    }
}

/// Returns the data on the device, with its components restricted by the labels, if any.
pub(super) fn evaluator<'a>(
    source: &Source<'a>,
    known: Option<Known>,
    k: usize,
) -> anyhow::Result<Box<dyn Evaluator + 'a>> {
    let Some(known) = known else { return Ok(source.evaluator()?) };
    let place = || known.path.display().to_string();
    source.labelled(known.labels(source.samples.n_samples(), k).with_context(place)?).with_context(place)
}
