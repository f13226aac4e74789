//! The sources of samples for a fit or a prediction: an array, checked samples, or an evaluator.
use crate::device::load::{LoadOptions, load};
use crate::device::names::Device;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::data::samples::{Element, Samples};
use gmm_core::error::Result;
use ndarray::{ArrayBase, ArrayView2, Data, Ix2};

/// Samples for a fit or a prediction: `&array` of any ndarray storage or a view, float32 or float64, of shape (N, D);
/// [`Samples`], which may have weights; or `&mut evaluator`, whose samples are resident already.
///
/// Arrays and samples are checked and loaded for this one call. For many calls, [`load`] them and pass the evaluator.
///
/// ```
/// use gmm_host::{CpuEvaluator, GaussianMixtureParams, Samples};
/// use ndarray::{Array2, s};
///
/// let x = Array2::from_shape_fn((60, 2), |(i, j)| ((i * (j + 2)) as f64).sin());
/// let params = GaussianMixtureParams::new(2);
/// let fits = [
///     params.fit(&x)?,
///     params.fit(x.slice(s![.., ..]))?,
///     params.fit(Samples::from_f64(x.view())?)?,
///     params.fit(&mut CpuEvaluator::new(Samples::from_f64(x.view())?)?)?,
/// ];
/// assert!(fits.iter().all(|fit| fit.mixture == fits[0].mixture));
/// # Ok::<(), gmm_host::Error>(())
/// ```
pub trait DataSource: sealed::Sealed {
    /// Calls `work` with an evaluator of the samples, loading them into `device` unless the source is an evaluator.
    #[doc(hidden)]
    fn evaluate<T>(self, device: Device, work: impl FnOnce(&mut dyn Evaluator) -> Result<T>) -> Result<T>;
}

pub(crate) mod sealed {
    /// Only this crate implements [`DataSource`](super::DataSource).
    pub trait Sealed {}
}

impl sealed::Sealed for Samples<'_> {}
impl DataSource for Samples<'_> {
    fn evaluate<T>(self, device: Device, work: impl FnOnce(&mut dyn Evaluator) -> Result<T>) -> Result<T> {
        work(load(device, self, &LoadOptions::default())?.as_mut())
    }
}

impl sealed::Sealed for &Samples<'_> {}
impl DataSource for &Samples<'_> {
    fn evaluate<T>(self, device: Device, work: impl FnOnce(&mut dyn Evaluator) -> Result<T>) -> Result<T> {
        self.clone().evaluate(device, work)
    }
}

impl<A: Element> sealed::Sealed for ArrayView2<'_, A> {}
impl<A: Element> DataSource for ArrayView2<'_, A> {
    fn evaluate<T>(self, device: Device, work: impl FnOnce(&mut dyn Evaluator) -> Result<T>) -> Result<T> {
        A::samples(self, false)?.evaluate(device, work)
    }
}

impl<A: Element, S: Data<Elem = A>> sealed::Sealed for &ArrayBase<S, Ix2> {}
impl<A: Element, S: Data<Elem = A>> DataSource for &ArrayBase<S, Ix2> {
    fn evaluate<T>(self, device: Device, work: impl FnOnce(&mut dyn Evaluator) -> Result<T>) -> Result<T> {
        self.view().evaluate(device, work)
    }
}

impl<E: Evaluator> sealed::Sealed for &mut E {}
impl<E: Evaluator> DataSource for &mut E {
    fn evaluate<T>(self, _: Device, work: impl FnOnce(&mut dyn Evaluator) -> Result<T>) -> Result<T> {
        work(self)
    }
}

impl sealed::Sealed for &mut (dyn Evaluator + '_) {}
impl DataSource for &mut (dyn Evaluator + '_) {
    fn evaluate<T>(self, _: Device, work: impl FnOnce(&mut dyn Evaluator) -> Result<T>) -> Result<T> {
        work(self)
    }
}
