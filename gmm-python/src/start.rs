//! The starts of scikit-learn, from random numbers drawn by Python.
use crate::arrays::{self, Matrix, NumPy};
use crate::data::{dim, numbers};
use crate::errors::exception;
use crate::mixture::Mixture;
use crate::statistics::Statistics;
use crate::threads::interruptible;
use gaussmix::data::View;
use gaussmix::fit::{Em, Hierarchy, quantile_classes as between_quantiles, scikit_learn};
use gaussmix::model::CovarianceType;
use ndarray::{Array1, Array2, ArrayView1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Returns the count of uniform random numbers for k-means and k-means++.
#[pyfunction]
pub fn n_uniforms(n_components: usize) -> usize {
    scikit_learn::n_uniforms(n_components)
}

type Weights = Option<Array1<f64>>;

fn weights(sample_weight: Option<&Bound<'_, PyAny>>) -> PyResult<Weights> {
    sample_weight.map(|weights| arrays::vector("sample_weight", weights)).transpose()
}

/// Calls `work` with the samples, without the GIL.
fn with<T: Send>(
    x: &Bound<'_, PyAny>,
    n_components: usize,
    work: impl FnOnce(View<'_>) -> gaussmix::Result<T> + Send,
) -> PyResult<T> {
    let matrix = Matrix::new(x)?;
    let view = matrix.view();
    interruptible(x.py(), numbers(dim(view)).saturating_mul(n_components), || work(view))?.map_err(exception)
}

fn to_numpy(numbers: Vec<usize>) -> NumPy<Vec<i64>> {
    NumPy(numbers.into_iter().map(|number| number as i64).collect())
}

/// Returns the statistics of the clusters of k-means, and the number of clusters with samples.
pub fn clusters(
    x: View<'_>,
    weights: Option<ArrayView1<'_, f64>>,
    k: usize,
    covariance_type: CovarianceType,
    uniforms: &[f64],
) -> gaussmix::Result<(gaussmix::statistics::Statistics, usize)> {
    let labels = scikit_learn::kmeans(x, weights, k, uniforms)?;
    let mut found = vec![false; k];
    labels.iter().for_each(|&label| found[label] = true);
    let statistics = scikit_learn::statistics(x, weights, &labels, k, covariance_type)?;
    Ok((statistics, found.into_iter().filter(|found| *found).count()))
}

/// Returns the statistics of the clusters of k-means, and the number of clusters with samples.
#[pyfunction]
#[pyo3(signature = (x, sample_weight, n_components, covariance_type, uniforms))]
pub fn kmeans_statistics(
    x: &Bound<'_, PyAny>,
    sample_weight: Option<&Bound<'_, PyAny>>,
    n_components: usize,
    covariance_type: &str,
    uniforms: &Bound<'_, PyAny>,
) -> PyResult<(Statistics, usize)> {
    let (weights, uniforms) = (weights(sample_weight)?, arrays::vector("uniforms", uniforms)?.to_vec());
    let covariance_type = arrays::covariance_type(covariance_type)?;
    with(x, n_components, move |x| {
        let weights = weights.as_ref().map(|weights| weights.view());
        let (statistics, found) = clusters(x, weights, n_components, covariance_type, &uniforms)?;
        Ok((Statistics(statistics), found))
    })
}

/// Returns the cluster of each row.
#[pyfunction]
#[pyo3(signature = (x, sample_weight, n_components, uniforms))]
pub fn kmeans(
    x: &Bound<'_, PyAny>,
    sample_weight: Option<&Bound<'_, PyAny>>,
    n_components: usize,
    uniforms: &Bound<'_, PyAny>,
) -> PyResult<NumPy<Vec<i64>>> {
    whole_numbers(x, sample_weight, n_components, uniforms, scikit_learn::kmeans)
}

/// Returns the rows that k-means++ chooses.
#[pyfunction]
#[pyo3(signature = (x, sample_weight, n_components, uniforms))]
pub fn kmeans_plusplus(
    x: &Bound<'_, PyAny>,
    sample_weight: Option<&Bound<'_, PyAny>>,
    n_components: usize,
    uniforms: &Bound<'_, PyAny>,
) -> PyResult<NumPy<Vec<i64>>> {
    whole_numbers(x, sample_weight, n_components, uniforms, scikit_learn::kmeans_plusplus)
}

fn whole_numbers(
    x: &Bound<'_, PyAny>,
    sample_weight: Option<&Bound<'_, PyAny>>,
    n_components: usize,
    uniforms: &Bound<'_, PyAny>,
    of: impl Fn(View<'_>, Option<ArrayView1<'_, f64>>, usize, &[f64]) -> gaussmix::Result<Vec<usize>> + Send,
) -> PyResult<NumPy<Vec<i64>>> {
    let (weights, uniforms) = (weights(sample_weight)?, arrays::vector("uniforms", uniforms)?.to_vec());
    let found =
        with(x, n_components, move |x| of(x, weights.as_ref().map(|weights| weights.view()), n_components, &uniforms));
    found.map(to_numpy)
}

/// Returns the mergers (N − 1, 2) of rows by the criterion of a model, after a transformation of the columns.
#[pyfunction]
pub fn hierarchy(x: &Bound<'_, PyAny>, model: &str, transformation: &str) -> PyResult<NumPy<Array2<i64>>> {
    let (py, x) = (x.py(), arrays::matrix("the data", x)?);
    let (model, transformation) = (arrays::covariance_model(model)?, transformation.parse().map_err(exception)?);
    let n = x.nrows();
    let made = interruptible(py, n.saturating_mul(n), || Hierarchy::new(x.view(), model, transformation))?;
    let made = made.map_err(exception)?;
    let rows =
        |(i, j): (usize, usize)| made.mergers.get(i).map_or(0, |pair| if j == 0 { pair.0 } else { pair.1 } as i64);
    Ok(NumPy(Array2::from_shape_fn((made.mergers.len(), 2), rows)))
}

/// Returns the group of each row (N,) when K are left.
#[pyfunction]
pub fn hierarchy_classes(mergers: Vec<(usize, usize)>, k: usize) -> PyResult<NumPy<Vec<i64>>> {
    let last = mergers.len();
    if let Some((a, b)) = mergers.iter().find(|(a, b)| *a.max(b) > last) {
        let text = format!("the tree merges the rows {a} and {b}, but {last} mergers have the rows 0 to {last}");
        return Err(PyValueError::new_err(text));
    }
    Ok(to_numpy(Hierarchy { mergers }.classes(k)))
}

/// Returns the class of each number (N,), of K between quantiles.
#[pyfunction]
pub fn quantile_classes(x: &Bound<'_, PyAny>, k: usize) -> PyResult<NumPy<Vec<i64>>> {
    Ok(to_numpy(between_quantiles(arrays::vector("the data", x)?.view(), k)))
}

#[pyfunction]
pub fn mixture_of_clusters(clusters: &Statistics, covariance_type: &str, reg_covar: f64) -> PyResult<Mixture> {
    Em::mixture_of(&clusters.0, arrays::covariance_model(covariance_type)?, reg_covar)
        .map(Mixture::from)
        .map_err(exception)
}
