//! The noise of samples, borrowed from Python's arrays.
use crate::arrays::{outliving, plain, view};
use crate::errors::exception;
use gaussmix::data::Noise;
use ndarray::{Ix2, Ix3};
use numpy::PyArray;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// Noise as Python gives it: one covariance (C, C) if `common`, variances (N, C), covariances (N, C, C), or those of
/// groups (J, C, C) with the group of each sample; and the projection (N, C, D).
#[derive(FromPyObject)]
pub struct Given<'py>(Bound<'py, PyAny>, bool, Option<Vec<usize>>, Option<Bound<'py, PyAny>>);

/// Noise that borrows arrays of Python.
pub struct Borrowed {
    pub noise: Noise<'static>,
    /// The arrays, which are to live as long as the noise.
    pub arrays: Vec<Py<PyAny>>,
}

impl Given<'_> {
    /// Checks the noise. It borrows the arrays, unless they are small.
    ///
    /// # Safety
    /// The arrays that it returns must live as long as the noise is used.
    pub unsafe fn borrow(&self) -> PyResult<Borrowed> {
        let Self(covariances, common, groups, projection) = self;
        let mut arrays = Vec::new();
        let noise = if let Ok(variances) = covariances.cast::<PyArray<f64, Ix2>>() {
            let variances = plain(variances)?;
            arrays.push(variances.clone().into_any().unbind());
            match common {
                true => Noise::common(view(&variances).to_owned()),
                // SAFETY: the caller keeps `arrays`.
                false => Noise::variances(unsafe { outliving(view(&variances)) }),
            }
        } else if let Ok(matrices) = covariances.cast::<PyArray<f64, Ix3>>() {
            let matrices = plain(matrices)?;
            arrays.push(matrices.clone().into_any().unbind());
            match groups {
                Some(groups) => Noise::of_groups(view(&matrices).to_owned(), groups.clone()),
                // SAFETY: as above.
                None => Noise::covariances(unsafe { outliving(view(&matrices)) }),
            }
        } else {
            return Err(PyTypeError::new_err("noise must be an array of float64 with two or three dimensions"));
        };
        let mut noise = noise.map_err(exception)?;
        if let Some(projection) = projection {
            let projection = plain(projection.cast::<PyArray<f64, Ix3>>()?)?;
            arrays.push(projection.clone().into_any().unbind());
            // SAFETY: as above.
            noise = noise.projected(unsafe { outliving(view(&projection)) }).map_err(exception)?;
        }
        Ok(Borrowed { noise, arrays })
    }
}
