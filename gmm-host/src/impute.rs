//! Filling in missing values.
use crate::data::patterns::{Pattern, Patterns, gather};
use crate::data::samples::Samples;
use crate::error::{Error, Result};
use crate::evaluator::check_features;
use crate::interrupt::Interrupt;
use crate::memory;
use crate::model::density::Density;
use crate::model::marginal::{Completion, spreads};
use crate::model::mixture::Mixture;
use ndarray::{Array1, Array2, Array3, ArrayView1, Axis};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use rayon::prelude::*;
use std::ops::Range;

/// The place of a draw in the stream of random numbers of its sample, in words from that of the
/// draw before: more than the numbers that it takes, whatever D is.
const WORDS: u128 = 1 << 32;

/// # Missing values
///
/// Both functions take samples with [missing values](Samples::with_missing) and give them in
/// float64, with what is missing filled in and all else as it is. They compute on the CPU in
/// float64, and take one factorisation for each pattern of missing values and each component.
impl Mixture {
    /// The samples (N, D) with the mean of each missing value given the observed values of its
    /// sample: Σₖ rₖ (μₖ + Σₖ,mo Σₖ,oo⁻¹ (x_o − μₖ,o))ⱼ with the responsibilities rₖ of the
    /// observed values. That is the best guess in squared error; it varies less than the data does.
    /// For estimates of more than means, use [`impute_draws`](Self::impute_draws).
    ///
    /// ```
    /// use gmm_host::{Covariances, Mixture, Samples};
    /// use ndarray::array;
    ///
    /// let mixture = Mixture::new(array![1.0], array![[0.0, 0.0]], Covariances::Tied(array![[1.0, 0.5], [0.5, 1.0]]))?;
    /// let x = array![[2.0, f64::NAN], [f64::NAN, f64::NAN]];
    /// let filled = mixture.impute(&Samples::with_missing(x.view())?)?;
    /// assert!((filled - array![[2.0, 1.0], [0.0, 0.0]]).iter().all(|v| v.abs() < 1e-12));
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] where the samples have another D than the mixture,
    /// [`Error::NotPositiveDefinite`], [`Error::Memory`].
    pub fn impute(&self, samples: &Samples<'_>) -> Result<Array2<f64>> {
        let d = self.n_features();
        let filled = self.fill(samples, None, |sample, out| {
            let mut mean = vec![0.0; d];
            out.fill(0.0);
            for (c, r) in sample.responsibilities.iter().enumerate().filter(|(_, r)| **r > 0.0) {
                sample.completion.fill(c, sample.x, &mut mean);
                out.iter_mut().zip(&mean).for_each(|(out, v)| *out += r * v);
            }
            // What is observed stays as it is, to the bit.
            out.iter_mut().zip(sample.x).filter(|(_, x)| !x.is_nan()).for_each(|(out, x)| *out = *x);
        })?;
        Ok(filled.index_axis_move(Axis(0), 0))
    }

    /// Copies of the samples (M, N, D), each with other draws of the missing values from their
    /// distribution given the observed values of their sample: for multiple imputation (Rubin
    /// 1987).
    ///
    /// `draws` are the numbers of the draws: `0..5` for five of them, `5..8` for three more. A draw
    /// for a sample depends on `seed`, on its own number, and on that of the sample alone. Where
    /// the samples are a part of the data, `first_row` is the number of their first, so that the
    /// parts get what the whole would get; otherwise it is 0.
    ///
    /// # Errors
    /// As [`impute`](Self::impute); [`Error::BadParameter`] for no draws.
    pub fn impute_draws(
        &self,
        samples: &Samples<'_>,
        draws: Range<usize>,
        seed: u64,
        first_row: usize,
    ) -> Result<Array3<f64>> {
        if draws.is_empty() {
            return Err(Error::BadParameter {
                name: "draws",
                value: "0".into(),
                remedy: "at least one draw is needed; without it, missing values are replaced by their means",
            });
        }
        let d = self.n_features();
        let generator = ChaCha8Rng::seed_from_u64(seed);
        self.fill(samples, Some(draws.len()), |sample, out| {
            let mut rng = generator.clone();
            rng.set_stream((first_row + sample.row) as u64);
            for (number, out) in draws.clone().zip(out.chunks_exact_mut(d)) {
                rng.set_word_pos((number as u128) * WORDS);
                let c = draw(sample.responsibilities, rng.random());
                sample.completion.fill(c, sample.x, out);
                let spread = &sample.spreads[c.min(sample.spreads.len() - 1)];
                let z: Array1<f64> = (0..sample.missing.len()).map(|_| rng.sample(StandardNormal)).collect();
                sample.missing.iter().zip(spread.dot(&z)).for_each(|(&j, v)| out[j] += v);
            }
        })
    }

    /// Calls `fill` with each sample that misses a value, and with room for a copy of it (D,), or
    /// for so many draws (M·D). Gives the copies of all samples (M, N, D).
    fn fill(
        &self,
        samples: &Samples<'_>,
        draws: Option<usize>,
        fill: impl Fn(Sample<'_>, &mut [f64]) + Sync,
    ) -> Result<Array3<f64>> {
        let (n, d) = (samples.n_samples(), samples.n_features());
        check_features(self, d)?;
        let copies = draws.unwrap_or(1);
        // They are made pattern by pattern, and put in order then.
        let numbers = 2 * size_of::<f64>();
        memory::check(
            "the samples without gaps",
            &[copies, n, d],
            numbers,
            "take fewer draws or fewer rows at a time",
        )?;
        let Patterns { order, groups } = Patterns::of(samples);
        let all: Vec<usize> = (0..d).collect();
        let interrupt = Interrupt::current();
        let filled = groups.par_iter().map(|Pattern { observed, rows }| {
            let rows = &order[rows.clone()];
            let mut values = vec![0.0; rows.len() * copies * d];
            let mut x = vec![0.0; d];
            let mut responsibilities = vec![0.0; self.n_components()];
            let mut density = Density::new(self);
            let mut completion = Completion::new(self);
            let missing: Vec<usize> = (0..d).filter(|j| observed.binary_search(j).is_err()).collect();
            let spreads = if draws.is_some() && !missing.is_empty() { spreads(self, &missing)? } else { Vec::new() };
            for (&row, out) in rows.iter().zip(values.chunks_exact_mut(copies * d)) {
                interrupt.check()?;
                gather(samples, row, &all, &mut x);
                if missing.is_empty() {
                    out.chunks_exact_mut(d).for_each(|out| out.copy_from_slice(&x));
                    continue;
                }
                let view = ArrayView1::from(&x[..]);
                completion.prepare(view)?;
                density.responsibilities(view, &mut responsibilities);
                let sample = Sample {
                    row,
                    x: view,
                    missing: &missing,
                    responsibilities: &responsibilities,
                    completion: &completion,
                    spreads: &spreads,
                };
                fill(sample, out);
            }
            Ok(values)
        });
        let filled: Vec<Result<Vec<f64>>> = filled.collect();
        let mut out = Array3::zeros((copies, n, d));
        for (Pattern { rows, .. }, values) in groups.iter().zip(filled) {
            let values = values?;
            for (&row, values) in order[rows.clone()].iter().zip(values.chunks_exact(copies * d)) {
                for (copy, values) in values.chunks_exact(d).enumerate() {
                    out.slice_mut(ndarray::s![copy, row, ..]).assign(&ArrayView1::from(values));
                }
            }
        }
        Ok(out)
    }
}

/// A sample with missing values, and what the mixture says about it.
struct Sample<'s> {
    row: usize,
    /// (D,), NaN where a value is missing.
    x: ArrayView1<'s, f64>,
    /// The columns that are missing.
    missing: &'s [usize],
    /// (K,).
    responsibilities: &'s [f64],
    completion: &'s Completion<'s>,
    /// As [`spreads`] gives them; empty where nothing is drawn.
    spreads: &'s [Array2<f64>],
}

/// The component at `u`, from 0 to 1, of the running sums of the responsibilities.
fn draw(responsibilities: &[f64], u: f64) -> usize {
    let mut left = u * responsibilities.iter().sum::<f64>();
    let mut last = 0;
    for (c, &r) in responsibilities.iter().enumerate().filter(|(_, r)| **r > 0.0) {
        last = c;
        left -= r;
        if left < 0.0 {
            break;
        }
    }
    last
}
