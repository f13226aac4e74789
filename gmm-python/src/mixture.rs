//! The parameters of a mixture, checked once.
use crate::arrays::{self, NumPy, Numbers1, Numbers2, Numbers3, NumbersD, numbers};
use crate::bytes::{self, Magic, Read};
use crate::errors::{exception, file_exception};
use crate::threads::interruptible;
use gaussmix::fit::Regularized;
use gaussmix::io::{FitSummary, ModelInFile, ModelOutput, read_model_with_summary};
use gaussmix::model::{Covariances, Order, UniformDensity};
use ndarray::{Array1, Array2, ArrayD, ArrayView2, Axis, s};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyType};
use std::path::PathBuf;

/// The beginning of the bytes of a mixture; its last byte is the version.
const MAGIC: &Magic = b"gmmmix_\x01";
/// That of a mixture with noise.
const MAGIC_OF_NOISE: &Magic = b"gmmmixn\x01";

/// The volume, and the lower and upper bounds (D,), of noise.
type NoiseParts = (f64, Vec<f64>, Vec<f64>);

#[pyclass(frozen, module = "gaussmix._core")]
pub struct Mixture(pub gaussmix::model::Mixture);

impl Mixture {
    /// Returns the count of numbers computed for `n` samples or places.
    fn numbers(&self, n: usize) -> usize {
        n.saturating_mul(self.0.n_components()).saturating_mul(self.0.n_features())
    }

    /// Returns the count of numbers computed for all pairs of components.
    fn pairs(&self, other: &Self) -> usize {
        self.numbers(other.0.n_components()).saturating_mul(self.0.n_features())
    }
}

impl From<gaussmix::model::Mixture> for Mixture {
    fn from(mixture: gaussmix::model::Mixture) -> Self {
        Self(mixture)
    }
}

/// The largest distance of C·Cᵀ·Σ from the identity at which C counts as the Cholesky factor of the inverse of Σ.
/// Factors in float32 of covariances that are not nearly singular pass.
const FACTOR_TOLERANCE: f64 = 1e-3;

/// Whether `factor`·`factor`ᵀ are the precisions of a mixture, except for rounding.
fn is_factor(factor: &Covariances, mixture: &gaussmix::model::Mixture) -> bool {
    let near = |a: f64, b: f64, scale: f64| (a - b).abs() <= FACTOR_TOLERANCE * scale;
    let near_matrix = |p: ArrayView2<'_, f64>, q: ArrayView2<'_, f64>| {
        p.indexed_iter().all(|((i, j), v)| near(*v, q[[i, j]], (p[[i, i]] * p[[j, j]]).sqrt()))
    };
    match (&mixture.precisions(), &product(factor)) {
        (Covariances::Full(p), Covariances::Full(q)) => {
            p.outer_iter().zip(q.outer_iter()).all(|(p, q)| near_matrix(p, q))
        }
        (Covariances::Tied(p), Covariances::Tied(q)) => near_matrix(p.view(), q.view()),
        (p, q) => p.iter().zip(q.iter()).all(|(p, q)| near(p, q, p)),
    }
}

/// Returns `factor`·`factor`ᵀ; for types without matrices, squares.
fn product(factor: &Covariances) -> Covariances {
    match factor.clone() {
        Covariances::Full(mut v) => {
            for mut u in v.outer_iter_mut() {
                let p = u.dot(&u.t());
                u.assign(&p);
            }
            Covariances::Full(v)
        }
        Covariances::Tied(u) => Covariances::Tied(u.dot(&u.t())),
        Covariances::Diag(v) => Covariances::Diag(&v * &v),
        Covariances::Spherical(v) => Covariances::Spherical(&v * &v),
    }
}

/// Returns the mixture of the bytes of [`Mixture::__bytes__`].
fn of_bytes(bytes: &[u8]) -> PyResult<gaussmix::model::Mixture> {
    let sizes = |k: usize, d: usize| k.checked_mul(d)?.checked_add(k);
    let wrong = || PyValueError::new_err("these bytes are not those of a mixture");
    let noisy = bytes.starts_with(MAGIC_OF_NOISE);
    // Of noise: its weight, its volume and its bounds.
    let of_noise = |k: usize, d: usize| sizes(k, d)?.checked_add(d.checked_mul(2)?.checked_add(2)?);
    let read = if noisy { bytes::read(MAGIC_OF_NOISE, bytes, of_noise) } else { bytes::read(MAGIC, bytes, sizes) };
    let Read { model, k, d, mut numbers, matrices } = read.ok_or_else(wrong)?;
    let noise = numbers.split_off(k + k * d);
    let means = Array2::from_shape_vec((k, d), numbers.split_off(k)).map_err(|_| wrong())?;
    let mixture = if let [weight, volume, bounds @ ..] = &noise[..] {
        let (lower, upper) = bounds.split_at(d);
        let noise = UniformDensity { volume: *volume, lower: lower.to_vec(), upper: upper.to_vec() };
        numbers.push(*weight);
        with_noise(numbers.into(), means, matrices, noise)
    } else {
        gaussmix::model::Mixture::new(numbers.into(), means, matrices)
    };
    mixture.and_then(|mixture| mixture.with_covariance_model(model)).map_err(exception)
}

/// Returns the mixture of K Gaussians and noise with these weights (K + 1,).
fn with_noise(
    weights: Array1<f64>,
    means: Array2<f64>,
    covariances: Covariances,
    noise: UniformDensity,
) -> gaussmix::Result<gaussmix::model::Mixture> {
    let k = means.nrows();
    gaussmix::model::Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, covariances)?.with_noise(weights, noise)
}

/// Returns a model from a file, and the record of its fit as a dict.
pub fn read<M: ModelInFile>(py: Python<'_>, path: PathBuf) -> PyResult<(M, Bound<'_, PyAny>)> {
    let (model, found) = read_model_with_summary(path).map_err(file_exception)?;
    Ok((model, pythonize::pythonize(py, &found)?))
}

/// Writes a model and the record of its fit, JSON or .npz by the name of the file.
pub fn write(model: &impl ModelInFile, path: PathBuf, found: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    let mut found: FitSummary =
        found.map_or_else(|| Ok(FitSummary::default()), |found| pythonize::depythonize(found))?;
    found.lower_bound = found.lower_bounds.as_ref().and_then(|bounds| bounds.last().copied());
    let output = ModelOutput::create(path).map_err(file_exception)?;
    output.write_with_summary(model, &found).map_err(file_exception)
}

/// One or several mixtures, to be evaluated together.
#[pyclass(frozen, module = "gaussmix._core")]
pub struct Mixtures(pub Sets);

/// One set of parameters, whose evaluation returns a number, or several sets, even a list of one, whose evaluation
/// returns an array.
pub enum Sets {
    One(Box<gaussmix::model::Mixture>),
    Several(Vec<gaussmix::model::Mixture>),
}

#[pymethods]
impl Mixtures {
    /// Several sets of parameters are arrays with a first axis over the sets.
    #[new]
    #[pyo3(signature = (weights, means, covariances, covariance_type=None))]
    fn new(
        weights: &Bound<'_, PyAny>,
        means: &Bound<'_, PyAny>,
        covariances: &Bound<'_, PyAny>,
        covariance_type: Option<&str>,
    ) -> PyResult<Self> {
        let covariance_type = covariance_type.map(arrays::covariance_model).transpose()?;
        let (weights, means, covariances) = (numbers(weights)?, numbers(means)?, numbers(covariances)?);
        if weights.ndim() < 2 {
            let one = arrays::mixture(weights, means, covariances, covariance_type)?;
            return Ok(Self(Sets::One(Box::new(one))));
        }
        let sets = weights.len_of(Axis(0));
        if means.ndim() != 3 || means.len_of(Axis(0)) != sets || covariances.shape().first() != Some(&sets) {
            return Err(PyValueError::new_err(format!(
                "for sets of parameters, expected weights (B, K), means (B, K, D) and covariances (B, …); got {:?}, {:?} and {:?}",
                weights.shape(),
                means.shape(),
                covariances.shape()
            )));
        }
        let part = |x: &ArrayD<f64>, i| x.index_axis(Axis(0), i).to_owned();
        let set = |i| arrays::mixture(part(&weights, i), part(&means, i), part(&covariances, i), covariance_type);
        (0..sets).map(set).collect::<PyResult<_>>().map(|several| Self(Sets::Several(several)))
    }

    #[staticmethod]
    fn one(mixture: &Mixture) -> Self {
        Self(Sets::One(Box::new(mixture.0.clone())))
    }

    #[staticmethod]
    fn several(mixtures: Vec<PyRef<'_, Mixture>>) -> Self {
        Self(Sets::Several(mixtures.iter().map(|mixture| mixture.0.clone()).collect()))
    }
}

#[pymethods]
impl Mixture {
    #[new]
    #[pyo3(signature = (weights, means, covariances, covariance_type=None))]
    fn new(
        weights: &Bound<'_, PyAny>,
        means: &Bound<'_, PyAny>,
        covariances: &Bound<'_, PyAny>,
        covariance_type: Option<&str>,
    ) -> PyResult<Self> {
        let covariance_type = covariance_type.map(arrays::covariance_model).transpose()?;
        arrays::mixture(numbers(weights)?, numbers(means)?, numbers(covariances)?, covariance_type).map(Self::from)
    }

    /// Returns the mixture of these bytes, to the bit.
    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        of_bytes(bytes).map(Self::from)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        Ok((PyType::new::<Self>(py).getattr("from_bytes")?, (self.__bytes__(py),)))
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let k = self.0.n_gaussians();
        let (weights, means, model) = (self.0.weights(), self.0.means(), self.0.covariance_model());
        let numbers = weights.into_iter().take(k).chain(means.slice_move(s![..k, ..])).copied();
        let Some(noise) = self.0.noise() else {
            return PyBytes::new(py, &bytes::write(MAGIC, model, means.dim(), numbers, self.0.covariances()));
        };
        let gaussians = self.0.without_noise();
        let of_noise = [weights[k], noise.volume].into_iter().chain(noise.lower.iter().chain(&noise.upper).copied());
        let (shape, numbers) = (gaussians.means().dim(), numbers.chain(of_noise));
        PyBytes::new(py, &bytes::write(MAGIC_OF_NOISE, model, shape, numbers, gaussians.covariances()))
    }

    /// Builds a mixture from the attributes of an estimator, which may have been set by hand: as in scikit-learn the
    /// factors of the precisions count. If they agree with the covariances, the covariances are used, so that inverting
    /// twice loses nothing.
    #[staticmethod]
    #[pyo3(signature = (weights, means, covariances, precisions_cholesky, covariance_type, noise=None))]
    fn from_attributes(
        weights: &Bound<'_, PyAny>,
        means: &Bound<'_, PyAny>,
        covariances: Option<&Bound<'_, PyAny>>,
        precisions_cholesky: &Bound<'_, PyAny>,
        covariance_type: &str,
        noise: Option<NoiseParts>,
    ) -> PyResult<Self> {
        let model = arrays::covariance_model(covariance_type)?;
        let covariance_type = model.form();
        let (all_weights, means) = (arrays::vector("weights_", weights)?, arrays::matrix("means_", means)?);
        let (k, d) = means.dim();
        let weights = if noise.is_some() { Array1::from_elem(k, 1.0 / k as f64) } else { all_weights.clone() };
        let with_noise = |mixture: gaussmix::model::Mixture| {
            let mixture = mixture.with_covariance_model(model).map_err(exception)?;
            let Some((volume, lower, upper)) = noise else { return Ok(Self(mixture)) };
            let noise = UniformDensity { volume, lower, upper };
            mixture.with_noise(all_weights.clone(), noise).map(Self).map_err(exception)
        };
        let factor = arrays::covariances(covariance_type, k, d, numbers(precisions_cholesky)?)?;
        if let Some(covariances) = covariances
            && let Ok(covariances) = arrays::covariances(covariance_type, k, d, numbers(covariances)?)
            && let Ok(mixture) = gaussmix::model::Mixture::new(weights.clone(), means.clone(), covariances)
            && is_factor(&factor, &mixture)
        {
            return with_noise(mixture);
        }
        with_noise(gaussmix::model::Mixture::from_precisions(weights, means, product(&factor)).map_err(exception)?)
    }

    /// Reads a model and the record of its fit.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<(Self, Bound<'_, PyAny>)> {
        self::read(py, path).map(|(mixture, found)| (Self(mixture), found))
    }

    /// Writes a model and the record of its fit.
    #[pyo3(signature = (path, **found))]
    fn write(&self, path: PathBuf, found: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        self::write(&self.0, path, found)
    }

    #[getter]
    fn covariance_type(&self) -> &'static str {
        self.0.covariance_model().form().name()
    }

    /// Returns the volume and the bounds of the noise, if the mixture has one.
    #[getter]
    fn noise(&self) -> Option<NoiseParts> {
        self.0.noise().map(|noise| (noise.volume, noise.lower.clone(), noise.upper.clone()))
    }

    /// Returns the Gaussians with noise beside them; `weights` (K + 1,) replace theirs.
    fn with_noise(&self, weights: &Bound<'_, PyAny>, noise: NoiseParts) -> PyResult<Self> {
        let (volume, lower, upper) = noise;
        let weights = arrays::vector("weights", weights)?;
        self.0.without_noise().with_noise(weights, UniformDensity { volume, lower, upper }).map(Self).map_err(exception)
    }

    /// Returns the Gaussians alone, with weights of sum 1.
    fn without_noise(&self) -> Self {
        Self(self.0.without_noise().into_owned())
    }

    #[getter]
    fn covariance_model(&self) -> &'static str {
        self.0.covariance_model().name()
    }

    /// The volumes, shapes and orientations of the covariances.
    fn decomposition(&self) -> (Numbers1, Numbers2, Numbers3) {
        let parts = self.0.decomposition();
        (NumPy(parts.volumes), NumPy(parts.shapes), NumPy(parts.orientations))
    }

    #[getter]
    fn n_parameters(&self) -> usize {
        self.0.n_parameters()
    }

    #[getter]
    fn weights(&self) -> Numbers1 {
        NumPy(self.0.weights().to_owned())
    }

    /// The means of the Gaussians.
    #[getter]
    fn means(&self) -> Numbers2 {
        NumPy(self.0.means().slice(s![..self.0.n_gaussians(), ..]).to_owned())
    }

    /// The covariances of the Gaussians, as the following.
    #[getter]
    fn covariances(&self) -> NumbersD {
        arrays::any_shape(self.0.without_noise().covariances())
    }

    #[getter]
    fn precisions(&self) -> NumbersD {
        arrays::any_shape(&self.0.without_noise().precisions())
    }

    #[getter]
    fn precisions_cholesky(&self) -> NumbersD {
        arrays::any_shape(&self.0.without_noise().precisions_cholesky())
    }

    /// Returns the plane in which the command `gmm` draws the mixture: y = A·(x − origin), with A (2, D) and the labels
    /// of the axes.
    fn plane(&self, names: Vec<String>) -> (Numbers2, Numbers1, [String; 2]) {
        let plane = gaussmix_cli::Plane::of(&self.0.without_noise(), &names);
        (NumPy(plane.axes), NumPy(plane.origin), plane.labels)
    }

    fn sample(&self, py: Python<'_>, n_samples: usize, seed: u64) -> PyResult<(Numbers2, NumPy<Vec<i64>>)> {
        let (x, labels) =
            interruptible(py, self.numbers(n_samples), || self.0.sample(n_samples, seed))?.map_err(exception)?;
        let labels: Vec<i64> = labels.into_iter().map(|k| self.0.label(k)).collect();
        Ok((NumPy(x), NumPy(labels)))
    }

    fn marginal(&self, features: Vec<usize>) -> PyResult<Self> {
        self.0.marginal(&features).map(Self::from).map_err(exception)
    }

    /// Returns the mixture of the other features given the values of some.
    fn condition(&self, given: Vec<(usize, f64)>) -> PyResult<Self> {
        self.0.condition(&given).map(Self::from).map_err(exception)
    }

    fn cdf(&self, py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<NumPy<Vec<f64>>> {
        let x = arrays::vector("x", x)?;
        let p = interruptible(py, self.numbers(x.len()), || {
            x.iter().map(|x| self.0.cdf(*x)).collect::<Result<Vec<_>, _>>()
        })?;
        p.map_err(exception).map(NumPy)
    }

    fn quantile(&self, py: Python<'_>, p: &Bound<'_, PyAny>) -> PyResult<NumPy<Vec<f64>>> {
        let p = arrays::vector("p", p)?;
        let x = interruptible(py, self.numbers(p.len()), || {
            p.iter().map(|p| self.0.quantile(*p)).collect::<Result<Vec<_>, _>>()
        })?;
        x.map_err(exception).map(NumPy)
    }

    /// Returns the intervals of highest density of a mixture of one feature, and the density at their ends.
    fn hdr(&self, py: Python<'_>, level: f64) -> PyResult<(Numbers2, f64)> {
        let region = interruptible(py, self.pairs(self), || self.0.hdr(level))?.map_err(exception)?;
        Ok((NumPy(Array2::from(region.intervals)), region.density))
    }

    /// Returns places on the axis of a mixture of one feature, the density, the distribution function, and each
    /// component's part of the density.
    fn on_axis(&self, py: Python<'_>, n_points: usize) -> PyResult<(Numbers1, Numbers1, Numbers1, Numbers2)> {
        let axis = interruptible(py, self.numbers(n_points), || self.0.on_axis(n_points))?.map_err(exception)?;
        Ok((NumPy(axis.x), NumPy(axis.density), NumPy(axis.cdf), NumPy(axis.components)))
    }

    /// Returns the mixture with its components in another order: by the mean of a feature, by their numbers, or without
    /// either by weight.
    #[pyo3(signature = (feature=None, numbers=None))]
    fn sorted(&self, feature: Option<usize>, numbers: Option<Vec<usize>>) -> PyResult<Self> {
        let order = feature.map(Order::Mean).or(numbers.map(Order::Permutation)).unwrap_or(Order::Weight);
        self.0.sorted(&order).map(Self::from).map_err(exception)
    }

    fn cauchy_schwarz(&self, py: Python<'_>, other: &Self) -> PyResult<f64> {
        interruptible(py, self.pairs(other), || self.0.cauchy_schwarz(&other.0))?.map_err(exception)
    }

    fn l2_distance(&self, py: Python<'_>, other: &Self) -> PyResult<f64> {
        interruptible(py, self.pairs(other), || self.0.l2_distance(&other.0))?.map_err(exception)
    }

    fn kl_divergence(&self, py: Python<'_>, other: &Self, n_samples: usize, seed: u64) -> PyResult<(f64, f64)> {
        let found = interruptible(py, self.numbers(n_samples), || self.0.kl_divergence(&other.0, n_samples, seed))?
            .map_err(exception)?;
        Ok((found.value, found.standard_error))
    }

    fn js_divergence(&self, py: Python<'_>, other: &Self, n_samples: usize, seed: u64) -> PyResult<(f64, f64)> {
        let found = interruptible(py, self.numbers(n_samples), || self.0.js_divergence(&other.0, n_samples, seed))?
            .map_err(exception)?;
        Ok((found.value, found.standard_error))
    }

    fn wasserstein(&self, py: Python<'_>, other: &Self) -> PyResult<Numbers2> {
        interruptible(py, self.pairs(other), || self.0.wasserstein(&other.0))?.map_err(exception).map(NumPy)
    }

    fn transport(&self, py: Python<'_>, other: &Self) -> PyResult<(f64, Numbers2)> {
        let found = interruptible(py, self.pairs(other), || self.0.transport(&other.0))?.map_err(exception)?;
        Ok((found.distance, NumPy(found.plan)))
    }

    fn hellinger_affinity(&self, py: Python<'_>, other: &Self) -> PyResult<Numbers2> {
        interruptible(py, self.pairs(other), || self.0.hellinger_affinity(&other.0))?.map_err(exception).map(NumPy)
    }

    /// Returns the normalised product, and the logarithm of its integral before normalisation.
    fn product(&self, py: Python<'_>, other: &Self) -> PyResult<(Self, f64)> {
        let (product, log_integral) =
            interruptible(py, self.pairs(other), || self.0.product(&other.0))?.map_err(exception)?;
        Ok((product.into(), log_integral))
    }

    /// Returns the components of all mixtures, each mixture with its weight.
    #[staticmethod]
    fn sum(mixtures: Vec<PyRef<'_, Self>>, weights: Vec<f64>) -> PyResult<Self> {
        let mixtures: Vec<_> = mixtures.iter().map(|mixture| &mixture.0).collect();
        gaussmix::model::Mixture::sum(&mixtures, &weights).map(Self::from).map_err(exception)
    }

    /// Returns a column whose variance is less than a thousand times `reg_covar`, and that variance.
    fn over_regularized(&self, reg_covar: f64) -> Option<(usize, f64)> {
        self.0.over_regularized(reg_covar)
    }

    /// Returns a mixture of fewer components, and the bound of the loss.
    fn reduce(&self, py: Python<'_>, n_components: usize) -> PyResult<(Self, f64)> {
        let (mixture, bound) =
            interruptible(py, self.pairs(self), || self.0.reduce(n_components))?.map_err(exception)?;
        Ok((mixture.into(), bound))
    }
}
