//! Filling in missing values.
use crate::contract::evaluator::check_features;
use crate::data::patterns::{Block, by_pattern};
use crate::data::samples::Samples;
use crate::error::{Error, Result};
use crate::memory;
use crate::model::conditional::{Conditional, Conditioned};
use crate::model::mixture::Mixture;
use crate::operations::regression::{WORDS, draw, expectations};
use ndarray::{Array2, Array3, ArrayViewMut2, Axis, s};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::ops::Range;

/// # Missing values
///
/// Both functions take samples with [missing values](Samples::with_missing) and return them in float64, with only the
/// missing values filled in. They compute on the CPU in float64, with one factorisation per pattern of missing values
/// and component.
impl Mixture {
    /// Returns the samples (N, D) with each missing value replaced by its mean given the sample's observed values: Σₖ
    /// rₖ (μₖ + Σₖ,mo Σₖ,oo⁻¹ (x_o − μₖ,o))ⱼ with the responsibilities rₖ of the observed values. This is the best
    /// guess in squared error, but varies less than the data. To estimate more than means, use
    /// [`impute_draws`](Self::impute_draws).
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
    /// [`Error::ShapeMismatch`] if the samples have another D, [`Error::NotPositiveDefinite`], [`Error::Memory`].
    pub fn impute(&self, samples: &Samples<'_>) -> Result<Array2<f64>> {
        self.fill(samples, 1, |part, given, _, mut out| {
            let expected = expectations(given);
            part.missing.iter().zip(expected.axis_iter(Axis(1))).for_each(|(&j, v)| out.column_mut(j).assign(&v));
            Ok(())
        })
    }

    /// Returns copies of the samples (M, N, D), each with other draws of the missing values given the sample's observed
    /// values: for multiple imputation (Rubin 1987).
    ///
    /// `draws` numbers the draws: `0..5` for five, `5..8` for three more. A draw depends on `seed`, its own number, and
    /// the sample's number alone. If the samples are a part of the data, `first_row` is the number of their first, so
    /// that parts get the draws of the whole; otherwise it is 0.
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
        let filled = self.fill(samples, draws.len(), |part, given, rows, mut out| {
            let roots = part.conditional.roots()?;
            for (at, (&row, mut out)) in rows.iter().zip(out.outer_iter_mut()).enumerate() {
                let mut rng = generator.clone();
                rng.set_stream((first_row + row) as u64);
                for (copy, number) in draws.clone().enumerate() {
                    rng.set_word_pos((number as u128) * WORDS);
                    let drawn = draw(given, at, &roots, &mut rng);
                    part.missing.iter().zip(drawn).for_each(|(&j, v)| out[copy * d + j] = v);
                }
            }
            Ok(())
        })?;
        let mut copies = Array3::zeros((draws.len(), samples.n_samples(), d));
        for (copy, mut to) in copies.outer_iter_mut().enumerate() {
            to.assign(&filled.slice(s![.., copy * d..(copy + 1) * d]));
        }
        Ok(copies)
    }

    /// Makes `copies` copies of each sample (N, `copies`·D). `fill` writes the missing values: it gets the
    /// distribution, the weights and means of a block of incomplete rows, the rows' numbers, and the copies.
    fn fill(
        &self,
        samples: &Samples<'_>,
        copies: usize,
        fill: impl Fn(&Part, &Conditioned, &[usize], ArrayViewMut2<'_, f64>) -> Result<()> + Sync,
    ) -> Result<Array2<f64>> {
        let (n, d) = (samples.n_samples(), samples.n_features());
        check_features(self, d)?;
        // The copies are made pattern by pattern, then put in order.
        let (what, remedy) = ("the samples without gaps", "take fewer draws or fewer rows at a time");
        memory::check(what, &[copies, n, d], 2 * size_of::<f64>(), remedy)?;
        let prepare = |observed: &[usize]| {
            let missing: Vec<usize> = (0..d).filter(|j| observed.binary_search(j).is_err()).collect();
            let part = match missing.is_empty() {
                true => None,
                false => Some(Part { conditional: Conditional::new(self, observed, &missing)?, missing }),
            };
            Ok((observed.to_vec(), part))
        };
        by_pattern(samples, copies * d, prepare, |(observed, part), Block { rows, x }, mut out| {
            for copy in 0..copies {
                for (&j, x) in observed.iter().zip(x.axis_iter(Axis(1))) {
                    out.column_mut(copy * d + j).assign(&x);
                }
            }
            part.as_ref().map_or(Ok(()), |part| fill(part, &part.conditional.rows(x.view()), rows, out))
        })
    }
}

/// The distribution of samples that miss the same values.
struct Part {
    missing: Vec<usize>,
    conditional: Conditional,
}
