//! Converts NumPy's arrays for the engine.
use crate::errors::exception;
use gaussmix::data::View;
use gaussmix::memory;
use gaussmix::model::{CovarianceModel, CovarianceType, Covariances, Mixture};
use gaussmix::statistics::ConjugatePrior;
use ndarray::{Array1, Array2, Array3, ArrayD, ArrayView, Dimension, Ix1, Ix2};
use numpy::{Element, IntoPyArray, PyArray, PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods, npyffi};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use std::convert::Infallible;

/// Samples as given by Python: float32 or float64, (N, D), in any memory order.
pub enum Matrix<'py> {
    F32(Bound<'py, PyArray<f32, Ix2>>),
    F64(Bound<'py, PyArray<f64, Ix2>>),
}

impl<'py> Matrix<'py> {
    /// Takes an array as it is; only a misaligned one is copied.
    pub fn new(x: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(x) = x.cast::<PyArray<f64, Ix2>>() {
            return plain(x).map(Self::F64);
        }
        if let Ok(x) = x.cast::<PyArray<f32, Ix2>>() {
            return plain(x).map(Self::F32);
        }
        Err(PyTypeError::new_err("the data must be a two-dimensional NumPy array of float32 or float64"))
    }

    pub fn view(&self) -> View<'_> {
        match self {
            Self::F32(x) => View::F32(view(x)),
            Self::F64(x) => View::F64(view(x)),
        }
    }
}

/// Returns the array itself, or a copy if its elements are misaligned.
pub fn plain<'py, T: Element, D: Dimension>(x: &Bound<'py, PyArray<T, D>>) -> PyResult<Bound<'py, PyArray<T, D>>> {
    let size = size_of::<T>() as isize;
    // SAFETY: `as_array_ptr` points to the array object itself, which `x` keeps alive.
    let flags = unsafe { (*x.as_array_ptr()).fields.flags };
    let aligned = (flags & npyffi::NPY_ARRAY_ALIGNED) != 0 && x.strides().iter().all(|s| s % size == 0);
    if aligned {
        return Ok(x.clone());
    }
    Ok(x.call_method0(intern!(x.py(), "copy"))?.cast_into::<PyArray<T, D>>()?)
}

/// Returns a view of an array that [`plain`] returned.
pub fn view<'a, T: Element, D: Dimension>(x: &'a Bound<'_, PyArray<T, D>>) -> ArrayView<'a, T, D> {
    // SAFETY: `x` keeps the memory alive, and `plain` has checked that each element is aligned and that the strides are
    // multiples of an element. This crate makes no mutable view of a Python array. The documentation of the Python
    // package asks callers, as NumPy's does, that no other thread writes to the array during a call.
    unsafe { x.as_array() }
}

/// Returns a view that outlives its borrow of the array object.
///
/// # Safety
/// The array must live as long as the view is used.
pub unsafe fn outliving<'a, T, D: Dimension>(view: ArrayView<'a, T, D>) -> ArrayView<'static, T, D> {
    // SAFETY: only the lifetime differs, which the caller guarantees.
    unsafe { std::mem::transmute::<ArrayView<'a, T, D>, ArrayView<'static, T, D>>(view) }
}

/// Returns numbers of any kind and shape as float64, row-major.
pub fn numbers(x: &Bound<'_, PyAny>) -> PyResult<ArrayD<f64>> {
    let own = |x: &Bound<'_, PyArrayDyn<f64>>| {
        // An array may claim more numbers than it holds (`np.broadcast_to`).
        memory::check("the numbers", x.shape(), 2 * size_of::<f64>(), "give fewer at a time").map_err(exception)?;
        Ok(view(&plain(x)?).as_standard_layout().into_owned())
    };
    if let Ok(x) = x.cast::<PyArrayDyn<f64>>() {
        return own(x);
    }
    let py = x.py();
    let array = py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "asarray"), (x, intern!(py, "float64")))?;
    own(array.cast::<PyArrayDyn<f64>>()?)
}

pub fn vector(what: &str, x: &Bound<'_, PyAny>) -> PyResult<Array1<f64>> {
    let x = numbers(x)?;
    let shape = x.shape().to_vec();
    x.into_dimensionality::<Ix1>().map_err(|_| wrong_shape(what, "(N,)", &shape))
}

pub fn matrix(what: &str, x: &Bound<'_, PyAny>) -> PyResult<Array2<f64>> {
    let x = numbers(x)?;
    let shape = x.shape().to_vec();
    x.into_dimensionality::<Ix2>().map_err(|_| wrong_shape(what, "(N, M)", &shape))
}

fn wrong_shape(what: &str, wanted: &str, shape: &[usize]) -> PyErr {
    PyValueError::new_err(format!("{what} must have the shape {wanted}, but have {shape:?}"))
}

/// Returns covariances, or values in their shape, of a known type.
pub fn covariances(covariance_type: CovarianceType, k: usize, d: usize, x: ArrayD<f64>) -> PyResult<Covariances> {
    let expected = covariance_type.shape(k, d);
    if x.shape() != expected {
        let got = x.shape();
        return Err(PyValueError::new_err(format!(
            "the covariances must have the shape {expected:?} for the covariance type '{covariance_type}', but have {got:?}"
        )));
    }
    Covariances::from_vec(covariance_type, k, d, x.into_raw_vec_and_offset().0).map_err(exception)
}

/// Returns the type of covariances of this shape, if it is unambiguous.
pub fn covariance_type_of(shape: &[usize], k: usize, d: usize) -> PyResult<CovarianceType> {
    let fits: Vec<_> = CovarianceType::ALL.into_iter().filter(|t| t.shape(k, d) == shape).collect();
    match fits[..] {
        [one] => Ok(one),
        [] => Err(PyValueError::new_err(format!(
            "covariances of shape {shape:?} fit no covariance type for means of shape ({k}, {d})"
        ))),
        _ => Err(PyValueError::new_err(format!(
            "covariances of shape {shape:?} may be 'tied' or 'diag' for means of shape ({k}, {d}); give covariance_type"
        ))),
    }
}

pub fn mixture(
    weights: ArrayD<f64>,
    means: ArrayD<f64>,
    sigma: ArrayD<f64>,
    model: Option<CovarianceModel>,
) -> PyResult<Mixture> {
    let shape = means.shape().to_vec();
    let means = means.into_dimensionality::<Ix2>().map_err(|_| wrong_shape("means", "(K, D)", &shape))?;
    let shape = weights.shape().to_vec();
    let weights = weights.into_dimensionality::<Ix1>().map_err(|_| wrong_shape("weights", "(K,)", &shape))?;
    let (k, d) = means.dim();
    let model = match model {
        Some(model) => model,
        None => covariance_type_of(sigma.shape(), k, d)?.into(),
    };
    let mixture = Mixture::new(weights, means, covariances(model.form(), k, d, sigma)?);
    mixture.and_then(|mixture| mixture.with_covariance_model(model)).map_err(exception)
}

/// Numbers of the engine, which Python gets as an array of NumPy.
pub struct NumPy<A>(pub A);

impl<'py, A: IntoPyArray> IntoPyObject<'py> for NumPy<A> {
    type Target = PyArray<A::Item, A::Dim>;
    type Output = Bound<'py, Self::Target>;
    type Error = Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Infallible> {
        Ok(self.0.into_pyarray(py))
    }
}

/// The same in float64, of one dimension, of two, of three and of any.
pub type Numbers1 = NumPy<Array1<f64>>;
pub type Numbers2 = NumPy<Array2<f64>>;
pub type Numbers3 = NumPy<Array3<f64>>;
pub type NumbersD = NumPy<ArrayD<f64>>;

/// Returns covariances, or values in their shape, for Python.
pub fn any_shape(covariances: &Covariances) -> NumbersD {
    NumPy(match covariances.clone() {
        Covariances::Full(v) => v.into_dyn(),
        Covariances::Tied(v) | Covariances::Diag(v) => v.into_dyn(),
        Covariances::Spherical(v) => v.into_dyn(),
    })
}

/// Returns the type of the arrays that hold covariances of a model. Raises `ValueError` for an unknown name.
#[pyfunction]
pub fn covariance_form(name: &str) -> PyResult<&'static str> {
    covariance_type(name).map(CovarianceType::name)
}

/// Returns whether a sphere, or what components share, is lost where each column gets a unit of its own.
#[pyfunction]
pub fn needs_one_unit(name: &str) -> PyResult<bool> {
    covariance_model(name).map(|model| model.needs_one_unit() || model.form() == CovarianceType::Spherical)
}

/// Returns whether fits of a model take a prior.
#[pyfunction]
pub fn has_prior(name: &str) -> PyResult<bool> {
    covariance_model(name).map(|model| ConjugatePrior::check_model(model).is_ok())
}

/// Returns the names of the models of a name: one, or all of `all`.
#[pyfunction]
pub fn covariance_models(name: &str) -> PyResult<Vec<&str>> {
    let models = CovarianceModel::several(name).map_err(exception)?;
    Ok(if models.len() == 1 { vec![name] } else { models.into_iter().map(CovarianceModel::mclust_name).collect() })
}

pub fn covariance_model(name: &str) -> PyResult<CovarianceModel> {
    name.parse().map_err(exception)
}

pub fn covariance_type(name: &str) -> PyResult<CovarianceType> {
    covariance_model(name).map(CovarianceModel::form)
}
