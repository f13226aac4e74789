//! The traits of the crate linfa, which uses arrays of ndarray 0.16.
//!
//! ```
//! use gmm_host::GaussianMixtureParams;
//! use linfa::DatasetBase;
//! use linfa::traits::Predict;
//! use ndarray16::array;
//!
//! let dataset = DatasetBase::from(array![[1.0, 2.0], [1.0, 4.0], [10.0, 2.0], [10.0, 4.0]]);
//! let fit = GaussianMixtureParams::new(2).fit(&dataset)?;
//! let labels = fit.predict(&dataset);
//! assert!(labels[0] == labels[1] && labels[1] != labels[2] && labels[2] == labels[3]);
//! # Ok::<(), gmm_host::Error>(())
//! ```
use crate::device::names::Device;
use crate::fit::{Checked, Fit, Fitting, Method};
use crate::predict::{MixtureOn, Predict};
use crate::source::DataSource;
use crate::source::sealed::Sealed;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::data::samples::Element;
use gmm_core::error::{Error, Result};
use linfa::traits::PredictInplace;
use linfa::{DatasetBase, ParamGuard};
use ndarray::ArrayView2;
use ndarray16::{Array1, ArrayBase, Data, Ix2};

impl<A: Element, S: Data<Elem = A>> Sealed for &ArrayBase<S, Ix2> {}
/// A linfa array.
impl<A: Element, S: Data<Elem = A>> DataSource for &ArrayBase<S, Ix2> {
    fn evaluate<T>(self, device: Device, work: impl FnOnce(&mut dyn Evaluator) -> Result<T>) -> Result<T> {
        with_view(self, |view| view.evaluate(device, work))
    }
}

impl<A: Element, S: Data<Elem = A>, Y> Sealed for &DatasetBase<ArrayBase<S, Ix2>, Y> {}
/// The records of a data set, with its weights if it has any.
impl<A: Element, S: Data<Elem = A>, Y> DataSource for &DatasetBase<ArrayBase<S, Ix2>, Y> {
    fn evaluate<T>(self, device: Device, work: impl FnOnce(&mut dyn Evaluator) -> Result<T>) -> Result<T> {
        with_view(&self.records, |view| {
            let samples = A::samples(view, false)?;
            match self.weights() {
                None => samples.evaluate(device, work),
                Some(weights) => {
                    let weights: ndarray::Array1<f64> = weights.iter().map(|&w| f64::from(w)).collect();
                    samples.with_weights(weights.view())?.evaluate(device, work)
                }
            }
        })
    }
}

/// Calls `work` with linfa's array as a view of this crate's ndarray; copies it if it is not in row-major order.
fn with_view<A: Element, S: Data<Elem = A>, T>(
    x: &ArrayBase<S, Ix2>,
    work: impl FnOnce(ArrayView2<'_, A>) -> Result<T>,
) -> Result<T> {
    let rows = x.as_standard_layout();
    let (n, d) = rows.dim();
    let elements = rows.as_slice().unwrap_or_default();
    let view = ArrayView2::from_shape((n, d), elements).map_err(|_| Error::ShapeMismatch {
        what: "the records",
        expected: vec![n, d],
        got: vec![elements.len()],
    })?;
    work(view)
}

impl<M: Method> ParamGuard for Fitting<M> {
    type Checked = Checked<Self>;
    type Error = Error;

    fn check_ref(&self) -> Result<&Checked<Self>> {
        self.checked()
    }

    fn check(self) -> Result<Checked<Self>> {
        Self::check(self)
    }
}

impl<M: Method, A: Element, S: Data<Elem = A>, Y> linfa::traits::Fit<ArrayBase<S, Ix2>, Y, Error>
    for Checked<Fitting<M>>
{
    type Object = Fit<M::Model>;

    fn fit(&self, dataset: &DatasetBase<ArrayBase<S, Ix2>, Y>) -> Result<Fit<M::Model>> {
        Self::fit(self, dataset)
    }
}

/// Predicts with the mixture on its device.
///
/// # Panics
/// If [`Predict::predict`] would return an error, for samples that are not finite or have another D.
impl<A: Element, S: Data<Elem = A>> PredictInplace<ArrayBase<S, Ix2>, Array1<usize>> for MixtureOn<'_> {
    fn predict_inplace(&self, x: &ArrayBase<S, Ix2>, labels: &mut Array1<usize>) {
        match Predict::predict(self, x) {
            Ok(predicted) => *labels = predicted.into(),
            Err(error) => panic!("{error}"),
        }
    }

    fn default_target(&self, x: &ArrayBase<S, Ix2>) -> Array1<usize> {
        Array1::zeros(x.nrows())
    }
}

/// Predicts with the fitted mixture.
///
/// # Panics
/// As [`MixtureOn`].
impl<M: Predict, A: Element, S: Data<Elem = A>> PredictInplace<ArrayBase<S, Ix2>, Array1<usize>> for Fit<M> {
    fn predict_inplace(&self, x: &ArrayBase<S, Ix2>, labels: &mut Array1<usize>) {
        self.mixture.on(Device::Auto).predict_inplace(x, labels);
    }

    fn default_target(&self, x: &ArrayBase<S, Ix2>) -> Array1<usize> {
        Array1::zeros(x.nrows())
    }
}
