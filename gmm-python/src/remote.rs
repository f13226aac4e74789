//! Samples elsewhere: an evaluator whose results come from an object of Python, which lets other processes compute
//! them.
use crate::errors::OutOfRangeError;
use crate::mixture::Mixture;
use crate::statistics::Statistics;
use gaussmix::data::Rows;
use gaussmix::evaluator::{DataFacts, Description, Draw, Drawn, Evaluator, Labels};
use gaussmix::{Error, Result};
use ndarray::{Array1, Array2};
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyList;

/// An evaluator over the samples of all partitions of a cluster.
///
/// The object has the methods `e_step(mixture)`, `totals(mixtures)`, `scores(mixture)`, `labels(mixture)`,
/// `responsibilities(mixture)`, `rows(indices)`, `draw(mixture, seed, size)` and `describe()`. An exception in one of
/// them ends the engine's operation and is raised in Python. If samples have labels, the object's results heed them,
/// and a start needs them here.
pub struct Remote {
    object: Py<PyAny>,
    n_samples: usize,
    n_features: usize,
    total_weight: f64,
    labels: Option<Labels>,
}

/// Returns the engine's error for an exception of the object.
///
/// A start tries wider components if a mixture is out of the range of its number type, so that error must keep its
/// type; Python remembers its text.
fn error(py: Python<'_>, exception: PyErr) -> Error {
    if exception.is_instance_of::<OutOfRangeError>(py) {
        return Error::OutOfRange { component: 0, column: 0, precision: "the type of the data" };
    }
    Error::Load(Box::new(exception))
}

impl Remote {
    pub fn new(object: &Bound<'_, PyAny>, labels: Option<Labels>) -> PyResult<Self> {
        let (n_samples, n_features) = object.getattr("shape")?.extract()?;
        let total_weight = object.getattr("total_weight")?.extract()?;
        Ok(Self { object: object.clone().unbind(), n_samples, n_features, total_weight, labels })
    }

    fn call<T>(&self, work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Result<T> {
        Python::attach(|py| work(self.object.bind(py)).map_err(|exception| error(py, exception)))
    }
}

fn of_python(py: Python<'_>, mixture: &gaussmix::model::Mixture) -> PyResult<Py<Mixture>> {
    Py::new(py, Mixture::from(mixture.clone()))
}

fn vector(x: &Bound<'_, PyAny>) -> PyResult<Array1<f64>> {
    Ok(x.cast::<PyArray1<f64>>()?.to_owned_array())
}

fn matrix(x: &Bound<'_, PyAny>) -> PyResult<Array2<f64>> {
    Ok(x.cast::<PyArray2<f64>>()?.to_owned_array())
}

impl Evaluator for Remote {
    fn data(&self) -> DataFacts<'_> {
        let (total_weight, labels) = (self.total_weight, self.labels.as_ref());
        DataFacts { total_weight, labels, ..DataFacts::new(self.n_samples, self.n_features) }
    }

    fn describe(&self) -> Description {
        let names: Result<(String, String)> = self.call(|object| object.call_method0("describe")?.extract());
        let (device, kernel) = names.unwrap_or_default();
        Description::new(device, kernel)
    }

    fn log_likelihood(&mut self, mixture: &gaussmix::model::Mixture) -> Result<f64> {
        Ok(self.log_likelihood_batch(std::slice::from_ref(mixture))?.into_iter().sum())
    }

    fn log_likelihood_batch(&mut self, mixtures: &[gaussmix::model::Mixture]) -> Result<Vec<f64>> {
        self.call(|object| {
            let py = object.py();
            let mixtures = mixtures.iter().map(|mixture| of_python(py, mixture)).collect::<PyResult<Vec<_>>>()?;
            let totals = object.call_method1("totals", (PyList::new(py, mixtures)?,))?;
            Ok(vector(&totals)?.to_vec())
        })
    }

    fn score_samples(&mut self, mixture: &gaussmix::model::Mixture) -> Result<Array1<f64>> {
        self.call(|object| vector(&object.call_method1("scores", (of_python(object.py(), mixture)?,))?))
    }

    fn statistics(&mut self, mixture: &gaussmix::model::Mixture) -> Result<gaussmix::statistics::Statistics> {
        self.call(|object| {
            let statistics = object.call_method1("e_step", (of_python(object.py(), mixture)?,))?;
            Ok(statistics.cast::<Statistics>()?.get().0.clone())
        })
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.call(|object| {
            let indices: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
            let found = object.call_method1("rows", (PyArray1::from_vec(object.py(), indices),))?;
            let (x, weights): (Bound<'_, PyAny>, Bound<'_, PyAny>) = found.extract()?;
            Ok(Rows::new(matrix(&x)?, vector(&weights)?))
        })
    }

    fn draw(&mut self, draw: &Draw<'_>) -> Result<Vec<Drawn>> {
        let drawn = self.call(|object| {
            let mixture = of_python(object.py(), draw.centres())?;
            let found = object.call_method1("draw", (mixture, draw.seed(), draw.size()))?;
            let (rows, keys, far): (Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyAny>) = found.extract()?;
            let rows = rows.cast::<PyArray1<i64>>()?.to_owned_array();
            let numbers = rows.into_iter().zip(vector(&keys)?).zip(vector(&far)?);
            Ok(numbers.map(|((row, key), far)| Drawn::new(row as usize, key, far)).collect())
        })?;
        Ok(draw.least(drawn))
    }

    fn predict(&mut self, mixture: &gaussmix::model::Mixture) -> Result<Vec<usize>> {
        self.call(|object| {
            let labels = object.call_method1("labels", (of_python(object.py(), mixture)?,))?;
            let labels = labels.cast::<PyArray1<i64>>()?.to_owned_array();
            // Python's −1 is the noise, the last component.
            let last = mixture.n_components() - 1;
            Ok(labels.into_iter().map(|label| usize::try_from(label).unwrap_or(last)).collect())
        })
    }

    fn predict_proba(&mut self, mixture: &gaussmix::model::Mixture) -> Result<Array2<f64>> {
        self.call(|object| matrix(&object.call_method1("responsibilities", (of_python(object.py(), mixture)?,))?))
    }
}
