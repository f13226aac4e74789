//! The interface of all backends.
use crate::data::samples::Rows;
use crate::draw::{Draw, Drawn};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::labels::Labels;
use crate::memory;
use crate::model::density::Density;
use crate::model::mixture::Mixture;
use crate::precision::{Operation, Precision};
use crate::sampling::Sampling;
use crate::statistics::Statistics;
use ndarray::{Array1, Array2, ArrayView1};

/// The device and the kernel that an evaluator computes with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The device, for example `cpu (2 threads, avx512)` or `cuda:0 NVIDIA H200`.
    pub device: String,
    /// The kernel (code variant) that the last evaluation used.
    pub kernel: String,
}

impl Description {
    /// The names of a device and of a kernel.
    pub fn new(device: impl Into<String>, kernel: impl Into<String>) -> Self {
        Self { device: device.into(), kernel: kernel.into() }
    }
}

/// A data set of N samples and D features that is resident in a backend and is evaluated for many
/// parameter sets.
///
/// All log-likelihoods are natural logarithms. Where the samples were given weights, totals and
/// statistics count each sample as often as its weight says; values per sample (scores, labels) do
/// not depend on it. The same evaluator gives the same bits for the same mixture (that of the
/// device `auto`: once it is [settled](Sampling::settle)). Every method fails with
/// [`Error::ShapeMismatch`] when the mixture's D is not the data's.
pub trait Evaluator: Sampling + Send {
    /// N, the number of samples.
    fn n_samples(&self) -> usize;

    /// D, the number of features.
    fn n_features(&self) -> usize;

    /// Σᵢ wᵢ, the total weight of the samples; N where they have no weights.
    fn total_weight(&self) -> f64;

    /// The weights of the samples (N,), if they have any and this evaluator holds them.
    fn weights(&self) -> Option<ArrayView1<'_, f64>> {
        None
    }

    /// What restricts the components of the samples, if anything does.
    fn labels(&self) -> Option<&Labels> {
        None
    }

    /// The device and the kernel in use.
    fn describe(&self) -> Description;

    /// The number type that this evaluation is made in. An evaluator of float32 samples computes in
    /// float64 where rounding could move a sample's log-density by more than [`Operation`] says:
    /// where a component lies very many of its own standard deviations from the centre of the
    /// samples, or its covariance is nearly singular.
    fn precision(&self, mixture: &Mixture, operation: Operation) -> Precision {
        let _ = (mixture, operation);
        Precision::Float64
    }

    /// Another evaluator over the same resident samples, without a copy of them, so that several
    /// threads can evaluate at once. It gives the bits that this one gives (that of the device
    /// `auto`: for what this one has evaluated since it was [settled](Sampling::settle)).
    ///
    /// ```
    /// use gmm_host::{Covariances, CpuEvaluator, Evaluator, Mixture, Samples};
    /// use ndarray::{Array2, array};
    ///
    /// let x = Array2::from_shape_fn((1000, 2), |(i, j)| ((i * (j + 2)) as f32).sin());
    /// let mixture = Mixture::new(array![1.0], array![[0.0, 0.0]], Covariances::Spherical(array![1.0]))?;
    /// let mut data = CpuEvaluator::new(Samples::from_f32(x.view())?)?;
    /// let total = data.log_likelihood(&mixture)?;
    /// std::thread::scope(|scope| {
    ///     for _ in 0..4 {
    ///         let mut shared = data.share()?;
    ///         let mixture = &mixture;
    ///         scope.spawn(move || assert_eq!(shared.log_likelihood(mixture).unwrap(), total));
    ///     }
    ///     Ok::<(), gmm_host::Error>(())
    /// })?;
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the backend cannot share its samples.
    fn share(&self) -> Result<Box<dyn Evaluator + '_>> {
        Err(cannot_share())
    }

    /// The total log-likelihood Σᵢ wᵢ log Σₖ πₖ N(xᵢ; μₖ, Σₖ).
    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64>;

    /// The total log-likelihood of each of several parameter sets; they may share each read of the
    /// data.
    fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
        mixtures.iter().map(|m| self.log_likelihood(m)).collect()
    }

    /// The log-likelihood of each sample (N,).
    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>>;

    /// The E-step: log-likelihood and sufficient statistics under `mixture`, in its covariance
    /// type, from one pass over the data and without an array of size N·K. Besides EM, the gradient
    /// of the log-likelihood follows from it.
    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics>;

    /// Some samples as they were given, for what is done with a few of them on the host (seeding a
    /// fit).
    ///
    /// # Errors
    /// [`Error::NoSuchRow`].
    fn rows(&mut self, rows: &[usize]) -> Result<Rows>;

    /// Draws samples without replacement, each with a probability in proportion to its weight times
    /// its squared distance to the nearest centre. A sample at a centre is not drawn. What is drawn
    /// does not depend on how the samples are divided over devices, processes or threads, but for
    /// the rounding of distances.
    ///
    /// Unless a backend overrides it, this is one call of [`score_samples`](Self::score_samples),
    /// and the samples are drawn by the [`weights`](Self::weights) that the evaluator holds.
    fn draw(&mut self, draw: &Draw<'_>) -> Result<Vec<Drawn>> {
        draw_by_scores(self, draw)
    }

    /// The most probable component of each sample (N,), the first of equals.
    ///
    /// Unless a backend overrides it, this is computed on one core of the host, in float64.
    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        let mut labels = Vec::with_capacity(self.n_samples());
        for_each_sample(self, mixture, |_, r| labels.push(most_probable(r)))?;
        Ok(labels)
    }

    /// The responsibilities p(k | xᵢ) (N, K). No other method makes this array. Of a sample so far
    /// from all components that its log-density is −∞, the nearest component has all.
    ///
    /// Unless a backend overrides it, this is computed on one core of the host, in float64.
    ///
    /// # Errors
    /// [`Error::Memory`].
    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        let mut r = responsibilities(self.n_samples(), mixture.n_components())?;
        for_each_sample(self, mixture, |row, of_row| r.row_mut(row).assign(&ArrayView1::from(of_row)))?;
        Ok(r)
    }
}

/// The error of an evaluator that cannot share its samples.
pub(crate) fn cannot_share() -> Error {
    Error::Unsupported {
        what: "evaluation of the same resident samples by several threads".into(),
        backend: "this evaluator",
        remedy: "load the samples once for each thread",
    }
}

/// [`Evaluator::draw`] by one call of [`Evaluator::score_samples`].
pub(crate) fn draw_by_scores<E: Evaluator + ?Sized>(evaluator: &mut E, draw: &Draw<'_>) -> Result<Vec<Drawn>> {
    let scores = evaluator.score_samples(draw.centres())?;
    Ok(draw.with_scores(&scores, evaluator.weights()))
}

/// Room for the responsibilities (N, K), all zero.
///
/// # Errors
/// [`Error::Memory`].
pub(crate) fn responsibilities(n_samples: usize, n_components: usize) -> Result<Array2<f64>> {
    check_responsibilities(n_samples, n_components)?;
    Ok(Array2::zeros((n_samples, n_components)))
}

/// Whether there is memory for the responsibilities (N, K), before an evaluator makes those of a
/// part of the samples.
///
/// # Errors
/// [`Error::Memory`].
pub(crate) fn check_responsibilities(n_samples: usize, n_components: usize) -> Result<()> {
    let shape = [n_samples, n_components];
    memory::check("the probabilities of the components", &shape, size_of::<f64>(), "take fewer rows at a time")
}

/// The error about the first sample with weight whose log-likelihood, of `scores` (N,), is −∞:
/// their total is.
pub(crate) fn unreachable_sample(scores: &Array1<f64>, weights: Option<ArrayView1<'_, f64>>) -> Error {
    let row = far_rows(scores).into_iter().find(|&row| weights.is_none_or(|weights| weights[row] > 0.0)).unwrap_or(0);
    Error::UnreachableSample { row }
}

/// The index of the largest value, the first of equals.
pub(crate) fn most_probable(log_p: &[f64]) -> usize {
    log_p.iter().enumerate().fold(0, |best, (c, v)| if *v > log_p[best] { c } else { best })
}

/// Implements [`Evaluator`] and [`Sampling`] for a type by calling the evaluator that its functions `inner` and
/// `inner_mut` give.
macro_rules! pass_on {
    ($type:ident) => {
        const _: () = {
            use ndarray::{Array1, Array2, ArrayView1};
            use $crate::data::samples::Rows;
            use $crate::draw::{Draw, Drawn};
            use $crate::error::Result;
            use $crate::evaluator::{Description, Evaluator};
            use $crate::labels::Labels;
            use $crate::metropolis::{MetropolisSteps, MetropolisTarget};
            use $crate::model::mixture::Mixture;
            use $crate::precision::{Operation, Precision};
            use $crate::sampling::Sampling;
            use $crate::statistics::Statistics;

            #[deny(clippy::missing_trait_methods)]
            impl Evaluator for $type<'_> {
                fn n_samples(&self) -> usize {
                    self.inner().n_samples()
                }
                fn n_features(&self) -> usize {
                    self.inner().n_features()
                }
                fn total_weight(&self) -> f64 {
                    self.inner().total_weight()
                }
                fn weights(&self) -> Option<ArrayView1<'_, f64>> {
                    self.inner().weights()
                }
                fn labels(&self) -> Option<&Labels> {
                    self.inner().labels()
                }
                fn describe(&self) -> Description {
                    self.inner().describe()
                }
                fn precision(&self, mixture: &Mixture, operation: Operation) -> Precision {
                    self.inner().precision(mixture, operation)
                }
                fn share(&self) -> Result<Box<dyn Evaluator + '_>> {
                    self.inner().share()
                }
                fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
                    self.inner_mut().log_likelihood(mixture)
                }
                fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
                    self.inner_mut().log_likelihood_batch(mixtures)
                }
                fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
                    self.inner_mut().score_samples(mixture)
                }
                fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
                    self.inner_mut().statistics(mixture)
                }
                fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
                    self.inner_mut().rows(rows)
                }
                fn draw(&mut self, draw: &Draw<'_>) -> Result<Vec<Drawn>> {
                    self.inner_mut().draw(draw)
                }
                fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
                    self.inner_mut().predict(mixture)
                }
                fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
                    self.inner_mut().predict_proba(mixture)
                }
            }

            #[deny(clippy::missing_trait_methods)]
            impl Sampling for $type<'_> {
                fn useful_shares(&self) -> usize {
                    self.inner().useful_shares()
                }
                fn settle(&mut self) {
                    self.inner_mut().settle();
                }
                fn fix_batch_reference(&mut self, mixture: &Mixture) {
                    self.inner_mut().fix_batch_reference(mixture);
                }
                fn metropolis(
                    &mut self,
                    target: &MetropolisTarget,
                    point: &[f64],
                    log_density: f64,
                    steps: &mut dyn MetropolisSteps,
                ) -> Result<bool> {
                    self.inner_mut().metropolis(target, point, log_density, steps)
                }
            }
        };
    };
}
pub(crate) use pass_on;

/// Calls `visit`, in order, with the index of each sample and its responsibilities (K,). Computes
/// these on the host in float64, from samples that the evaluator copies back some thousands at a time.
fn for_each_sample<E: Evaluator + ?Sized>(
    evaluator: &mut E,
    mixture: &Mixture,
    mut visit: impl FnMut(usize, &[f64]),
) -> Result<()> {
    const ROWS_AT_ONCE: usize = 1 << 13;
    check_features(mixture, evaluator.n_features())?;
    let n = evaluator.n_samples();
    for start in (0..n).step_by(ROWS_AT_ONCE) {
        let indices: Vec<usize> = (start..n.min(start + ROWS_AT_ONCE)).collect();
        on_host(mixture, &indices, |rows| evaluator.rows(rows), &mut visit)?;
    }
    Ok(())
}

/// Calls `visit` with each index of `indices` and the responsibilities (K,) of that sample, in float64.
/// `rows` gives the samples of indices.
fn on_host(
    mixture: &Mixture,
    indices: &[usize],
    rows: impl FnOnce(&[usize]) -> Result<Rows>,
    mut visit: impl FnMut(usize, &[f64]),
) -> Result<()> {
    let mut density = Density::new(mixture);
    let mut r = vec![0.0; mixture.n_components()];
    let interrupt = Interrupt::current();
    for (row, x) in indices.iter().zip(rows(indices)?.x.outer_iter()) {
        interrupt.check()?;
        density.responsibilities(x, &mut r);
        visit(*row, &r);
    }
    Ok(())
}

/// Computes on the host what a backend cannot: the responsibilities of samples that are infinitely far
/// from every component, for which it has written NaN into `r` (N, K).
pub(crate) fn responsibilities_from_afar(
    r: &mut Array2<f64>,
    mixture: &Mixture,
    rows: impl FnOnce(&[usize]) -> Result<Rows>,
) -> Result<()> {
    let far: Vec<usize> = (0..r.nrows()).filter(|&row| r[[row, 0]].is_nan()).collect();
    match far.is_empty() {
        true => Ok(()),
        false => on_host(mixture, &far, rows, |row, of_row| r.row_mut(row).assign(&ArrayView1::from(of_row))),
    }
}

/// As [`responsibilities_from_afar`], for the labels of the samples `far`.
pub(crate) fn labels_from_afar(
    labels: &mut [usize],
    far: &[usize],
    mixture: &Mixture,
    rows: impl FnOnce(&[usize]) -> Result<Rows>,
) -> Result<()> {
    match far.is_empty() {
        true => Ok(()),
        false => on_host(mixture, far, rows, |row, of_row| labels[row] = most_probable(of_row)),
    }
}

/// The rows of −∞ among log-densities.
pub(crate) fn far_rows(scores: &Array1<f64>) -> Vec<usize> {
    (0..scores.len()).filter(|&row| scores[row] == f64::NEG_INFINITY).collect()
}

/// Makes the row in the error about a chunk, whose first row is row `start` of all samples, one of
/// all samples.
pub(crate) fn shift_row(error: Error, start: usize) -> Error {
    match error {
        Error::UnreachableSample { row } => Error::UnreachableSample { row: row + start },
        other => other,
    }
}

/// Checks the mixture's D against the data's, as every backend does first.
pub(crate) fn check_features(mixture: &Mixture, n_features: usize) -> Result<()> {
    if mixture.n_features() == n_features {
        return Ok(());
    }
    let k = mixture.n_components();
    Err(Error::ShapeMismatch {
        what: "the mixture's means (against the data's columns)",
        expected: vec![k, n_features],
        got: vec![k, mixture.n_features()],
    })
}
