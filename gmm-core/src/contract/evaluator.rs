//! The interface of all backends.
use crate::contract::draw::{Draw, Drawn};
use crate::contract::labels::Labels;
use crate::contract::markov::Markov;
use crate::contract::sampling::Sampling;
use crate::data::samples::{Rows, Samples};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::memory;
use crate::model::density::Density;
use crate::model::mixture::Mixture;
use crate::precision::{Operation, Precision};
use crate::statistics::Statistics;
use ndarray::{Array1, Array2, ArrayView1};

/// The device and the kernel of an evaluator.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The device, for example `cpu (2 threads, avx512)` or `cuda:0 NVIDIA H200`.
    pub device: String,
    /// The kernel (code variant) that the last evaluation used.
    pub kernel: String,
    /// The reason why the device `auto` does not use a GPU that it tried.
    pub gpu_problem: Option<String>,
}

impl Description {
    /// Combines the names of a device and of a kernel.
    pub fn new(device: impl Into<String>, kernel: impl Into<String>) -> Self {
        Self { device: device.into(), kernel: kernel.into(), gpu_problem: None }
    }
}

/// The facts about an evaluator's data.
#[derive(Debug, Clone, Copy)]
pub struct DataFacts<'a> {
    /// N, the number of samples.
    pub n_samples: usize,
    /// D, the number of features.
    pub n_features: usize,
    /// Σᵢ wᵢ, the total weight of the samples; N without weights.
    pub total_weight: f64,
    /// The weights of the samples (N,), if they have any and the evaluator holds them.
    pub weights: Option<ArrayView1<'a, f64>>,
    /// The restriction of the samples to some components, if any.
    pub labels: Option<&'a Labels>,
    /// Whether the samples are known to be measurements with noise.
    pub has_noise: bool,
}

impl DataFacts<'_> {
    /// Returns the facts about samples without weights and labels.
    pub fn new(n_samples: usize, n_features: usize) -> Self {
        Self { n_samples, n_features, total_weight: n_samples as f64, weights: None, labels: None, has_noise: false }
    }
}

impl<'a> From<&'a Samples<'_>> for DataFacts<'a> {
    fn from(samples: &'a Samples<'_>) -> Self {
        let (total_weight, weights) = (samples.total_weight(), samples.weights());
        let has_noise = samples.noise().is_some();
        Self { total_weight, weights, has_noise, ..DataFacts::new(samples.n_samples(), samples.n_features()) }
    }
}

/// The methods that return parts of [`Evaluator::data`]. An implementation without defaults
/// (`clippy::missing_trait_methods`) repeats them by this macro.
#[macro_export]
macro_rules! data_facts {
    () => {
        /// Returns N, the number of samples.
        fn n_samples(&self) -> usize {
            self.data().n_samples
        }

        /// Returns D, the number of features.
        fn n_features(&self) -> usize {
            self.data().n_features
        }

        /// Returns Σᵢ wᵢ, the total weight of the samples; N without weights.
        fn total_weight(&self) -> f64 {
            self.data().total_weight
        }

        /// Returns the restriction of the samples to some components, if any.
        fn labels(&self) -> Option<&$crate::contract::labels::Labels> {
            self.data().labels
        }
    };
}
pub use data_facts;

/// N samples of D features, resident in a backend, evaluated for many parameter sets.
///
/// All log-likelihoods are natural logarithms. Sample weights count in totals and statistics, not in values per sample
/// (scores, labels). The same evaluator returns the same bits for the same mixture (the device `auto` once it is
/// [settled](Sampling::settle)). Every method fails with [`Error::ShapeMismatch`] if the mixture's D differs from the
/// data's.
pub trait Evaluator: Send {
    /// Returns the facts about the data.
    fn data(&self) -> DataFacts<'_>;

    data_facts!();

    /// Returns the device and the kernel in use.
    fn describe(&self) -> Description;

    /// Returns the number type of this evaluation. An evaluator of float32 samples computes in float64 if rounding
    /// could move a sample's log-density by more than [`Operation`] allows: if a component lies very many of its
    /// standard deviations from the centre of the samples, or its covariance is nearly singular.
    fn precision(&self, mixture: &Mixture, operation: Operation) -> Precision {
        let _ = (mixture, operation);
        Precision::Float64
    }

    /// Returns another evaluator over the same resident samples, without a copy, so that several threads can evaluate
    /// at once. It returns the same bits as this one (the device `auto`: for evaluations made since this one was
    /// [settled](Sampling::settle)).
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
    /// [`Error::Unsupported`] if the backend cannot share its samples.
    fn share(&self) -> Result<Box<dyn Evaluator + '_>> {
        Err(cannot_share())
    }

    /// Returns the total log-likelihood Σᵢ wᵢ log Σₖ πₖ N(xᵢ; μₖ, Σₖ).
    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64>;

    /// Returns the total log-likelihood of each of several parameter sets, which may share reads of the data.
    fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
        mixtures.iter().map(|m| self.log_likelihood(m)).collect()
    }

    /// Returns the log-likelihood of each sample (N,).
    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>>;

    /// Computes the E-step: log-likelihood and sufficient statistics under `mixture`, in its covariance type, in one
    /// pass over the data and without an N·K array. EM and the gradient of the log-likelihood use it.
    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics>;

    /// Copies some samples, in their original values, to the host (to seed a fit).
    ///
    /// # Errors
    /// [`Error::NoSuchRow`].
    fn rows(&mut self, rows: &[usize]) -> Result<Rows>;

    /// Draws samples without replacement, in proportion to the weight times the squared distance to the nearest centre.
    /// A sample at a centre is not drawn. Apart from the rounding of distances, the draw does not depend on the
    /// division of the samples over devices, processes or threads.
    ///
    /// The default calls [`score_samples`](Self::score_samples) once and uses the evaluator's
    /// [`weights`](DataFacts::weights).
    fn draw(&mut self, draw: &Draw<'_>) -> Result<Vec<Drawn>> {
        draw_by_scores(self, draw)
    }

    /// Returns the most probable component of each sample (N,), the first of equals.
    ///
    /// The default computes on one core of the host, in float64.
    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        let mut labels = Vec::with_capacity(self.n_samples());
        for_each_sample(self, mixture, |_, r| labels.push(most_probable(r)))?;
        Ok(labels)
    }

    /// Returns the responsibilities p(k | xᵢ) (N, K); no other method allocates this array. If a sample's log-density
    /// is −∞, the nearest component has responsibility 1.
    ///
    /// The default computes on one core of the host, in float64.
    ///
    /// # Errors
    /// [`Error::Memory`].
    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        let mut r = responsibilities(self.n_samples(), mixture.n_components())?;
        for_each_sample(self, mixture, |row, of_row| r.row_mut(row).assign(&ArrayView1::from(of_row)))?;
        Ok(r)
    }

    /// Returns the methods for Markov chains, if this evaluator has its own.
    fn sampling(&mut self) -> Option<&mut dyn Sampling> {
        None
    }

    /// Returns the operation for hidden Markov models, if this evaluator has it.
    fn markov(&mut self) -> Option<&mut dyn Markov> {
        None
    }
}

pub(crate) fn cannot_share() -> Error {
    Error::Unsupported {
        what: "evaluation of the same resident samples by several threads".into(),
        backend: "this evaluator",
        remedy: "load the samples once for each thread",
    }
}

/// Implements [`Evaluator::draw`] by one call of [`Evaluator::score_samples`].
pub fn draw_by_scores<E: Evaluator + ?Sized>(evaluator: &mut E, draw: &Draw<'_>) -> Result<Vec<Drawn>> {
    let scores = evaluator.score_samples(draw.centres())?;
    Ok(draw.with_scores(&scores, evaluator.data().weights))
}

/// Allocates the responsibilities (N, K), all zero.
///
/// # Errors
/// [`Error::Memory`].
pub fn responsibilities(n_samples: usize, n_components: usize) -> Result<Array2<f64>> {
    check_responsibilities(n_samples, n_components)?;
    let mut zeros = Array2::zeros((n_samples, n_components));
    memory::use_large_pages(zeros.as_slice_mut().unwrap_or_default());
    Ok(zeros)
}

/// Checks the memory for the responsibilities (N, K), before an evaluator computes a part of them.
pub(crate) fn check_responsibilities(n_samples: usize, n_components: usize) -> Result<()> {
    let shape = [n_samples, n_components];
    memory::check("the probabilities of the components", &shape, size_of::<f64>(), "take fewer rows at a time")
}

/// Returns the error about the first sample with weight whose score, of `scores` (N,), is −∞ and so makes the total −∞.
pub fn unreachable_sample(scores: &Array1<f64>, weights: Option<ArrayView1<'_, f64>>) -> Error {
    let row = far_rows(scores).into_iter().find(|&row| weights.is_none_or(|weights| weights[row] > 0.0)).unwrap_or(0);
    Error::UnreachableSample { row }
}

/// Returns the index of the largest value, the first of equals.
pub(crate) fn most_probable(log_p: &[f64]) -> usize {
    log_p.iter().enumerate().fold(0, |best, (c, v)| if *v > log_p[best] { c } else { best })
}

/// Implements [`Evaluator`] for a type by its inner evaluator.
#[macro_export]
macro_rules! pass_on {
    ([$($generics:tt)*] $type:ty, $self:ident, $inner:expr) => {
        const _: () = {
            use ndarray::{Array1, Array2};
            use $crate::data::samples::Rows;
            use $crate::contract::draw::{Draw, Drawn};
            use $crate::error::Result;
            use $crate::contract::evaluator::{DataFacts, Description, Evaluator};
            use $crate::contract::markov::Markov;
            use $crate::model::mixture::Mixture;
            use $crate::precision::{Operation, Precision};
            use $crate::contract::sampling::Sampling;
            use $crate::statistics::Statistics;

            #[deny(clippy::missing_trait_methods)]
            impl<$($generics)*> Evaluator for $type {
                $crate::contract::evaluator::data_facts!();
                fn data(&$self) -> DataFacts<'_> { $inner.data() }
                fn describe(&$self) -> Description { $inner.describe() }
                fn precision(&$self, mixture: &Mixture, operation: Operation) -> Precision {
                    $inner.precision(mixture, operation)
                }
                fn share(&$self) -> Result<Box<dyn Evaluator + '_>> { $inner.share() }
                fn log_likelihood(&mut $self, mixture: &Mixture) -> Result<f64> { $inner.log_likelihood(mixture) }
                fn log_likelihood_batch(&mut $self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
                    $inner.log_likelihood_batch(mixtures)
                }
                fn score_samples(&mut $self, mixture: &Mixture) -> Result<Array1<f64>> { $inner.score_samples(mixture) }
                fn statistics(&mut $self, mixture: &Mixture) -> Result<Statistics> { $inner.statistics(mixture) }
                fn rows(&mut $self, rows: &[usize]) -> Result<Rows> { $inner.rows(rows) }
                fn draw(&mut $self, draw: &Draw<'_>) -> Result<Vec<Drawn>> { $inner.draw(draw) }
                fn predict(&mut $self, mixture: &Mixture) -> Result<Vec<usize>> { $inner.predict(mixture) }
                fn predict_proba(&mut $self, mixture: &Mixture) -> Result<Array2<f64>> { $inner.predict_proba(mixture) }
                fn sampling(&mut $self) -> Option<&mut dyn Sampling> { $inner.sampling() }
                fn markov(&mut $self) -> Option<&mut dyn Markov> { $inner.markov() }
            }
        };
    };
}
pub use pass_on;

pass_on!([E: Evaluator + ?Sized] Box<E>, self, **self);

/// Calls `visit`, in order, with the index of each sample and its responsibilities (K,), computed on the host in
/// float64 from samples that the evaluator copies back some thousands at a time.
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

/// Calls `visit` with each of the `indices` and its sample's responsibilities (K,), in float64. `rows` returns samples.
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

/// Computes the responsibilities of samples infinitely far from every component, whose rows of `r` (N, K) are NaN.
pub fn responsibilities_from_afar(
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
pub fn labels_from_afar(
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

/// Returns the rows whose log-density is −∞.
pub fn far_rows(scores: &Array1<f64>) -> Vec<usize> {
    (0..scores.len()).filter(|&row| scores[row] == f64::NEG_INFINITY).collect()
}

/// Adds `start`, the first row of a chunk, to the row in an error about the chunk.
pub(crate) fn shift_row(error: Error, start: usize) -> Error {
    match error {
        Error::UnreachableSample { row } => Error::UnreachableSample { row: row + start },
        Error::NoSpread { row } => Error::NoSpread { row: row + start },
        other => other,
    }
}

/// Checks the mixture's D against the data's.
pub fn check_features(mixture: &Mixture, n_features: usize) -> Result<()> {
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
