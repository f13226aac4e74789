//! Samples resident in a device, and computations over them.
use crate::arrays::{self, Matrix, NumPy, Numbers1, Numbers2, Numbers3, NumbersD, outliving, view};
use crate::errors::exception;
use crate::fit::{Fit, OfPython, ToPython as _, fitting, in_units, is_variational, run};
use crate::gpu::{GpuArray, Place};
use crate::loaded::Loaded;
use crate::mixture::{Mixture, Mixtures, Sets};
use crate::noise;
use crate::remote::Remote;
use crate::standard::Standardization;
use crate::statistics::Statistics;
use crate::threads::{compute, interruptible};
use gaussmix::Reproducible;
use gaussmix::data::{Element as _, Noise, Samples, View};
use gaussmix::device::{Device, LoadOptions};
use gaussmix::evaluator::{CpuEvaluator, Description, Evaluator, LabelledEvaluator, Labels};
use gaussmix::fit::{Em, MapPrior, Variational, me, noise_of, with_noise};
use gaussmix::memory::use_large_pages;
use gaussmix::model::{CovarianceModel, Covariances, Predict, UniformDensity};
use ndarray::{Array1, Array2, ArrayView2, Axis, ShapeBuilder as _, Zip};
use numpy::{Element, IntoPyArray, PyArray1, PyArrayDescr, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rayon::prelude::*;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// What mclust's EM finds: a mixture, its log-likelihood, and the number of iterations.
type Found = (Mixture, f64, usize);

/// The most numbers of samples that many fits read side by side, each on a thread.
const SMALL: usize = 1 << 20;

/// Samples in a device.
///
/// An array of Python that is not copied is borrowed, and kept alive beside the evaluator.
#[pyclass(frozen, module = "gaussmix._core")]
pub struct Data {
    // Before `array`, so that it is dropped first.
    evaluator: Mutex<Box<dyn Evaluator>>,
    /// Samples that are read side by side: few, and for the CPU.
    few: Option<Samples<'static>>,
    #[allow(dead_code)] // Held for the evaluator, which borrows its memory.
    array: Option<Py<PyAny>>,
    #[allow(dead_code)] // Likewise.
    of_noise: Vec<Py<PyAny>>,
    /// Held as long as these samples are.
    #[allow(dead_code)]
    same: Option<Reproducible>,
    shape: (usize, usize),
    dtype: Py<PyArrayDescr>,
    /// Whether the samples are elsewhere: evaluations call an object of Python, on the calling thread.
    remote: bool,
}

pub fn numbers((n, d): (usize, usize)) -> usize {
    n.saturating_mul(d)
}

pub fn dim(x: View<'_>) -> (usize, usize) {
    match x {
        View::F32(x) => x.dim(),
        View::F64(x) => x.dim(),
    }
}

impl Data {
    fn fit_by<M: OfPython>(
        &self,
        options: &Bound<'_, PyDict>,
        course: Option<Py<PyAny>>,
        before: Option<&Bound<'_, PyAny>>,
        lower_bound: Option<f64>,
        units: Option<&Standardization>,
    ) -> PyResult<Fit> {
        let (fitting, units) = (fitting::<M>(options)?, units.map(|units| &units.0));
        let before = before.map(M::Model::of_python).transpose()?.map(|model| (model, lower_bound));
        compute(options.py(), || run(self.lock().as_mut(), fitting, course.as_ref(), before, units))?
    }

    fn lock(&self) -> MutexGuard<'_, Box<dyn Evaluator>> {
        // An evaluator computes each result anew, so a panic in an earlier call does not matter.
        self.evaluator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn evaluate<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut dyn Evaluator) -> gaussmix::Result<T> + Send,
    ) -> PyResult<T> {
        let work = || work(self.lock().as_mut());
        if self.remote { compute(py, work) } else { interruptible(py, numbers(self.shape), work) }?.map_err(exception)
    }

    fn load(
        device: Device,
        samples: Samples<'static>,
        weights: Option<Array1<f64>>,
        labels: Option<Labels>,
        noise: Option<Noise<'static>>,
        options: &LoadOptions,
    ) -> gaussmix::Result<Loaded> {
        let mut samples = match weights {
            Some(weights) => samples.with_shared_weights(weights.into_shared())?,
            None => samples,
        };
        if let Some(noise) = noise {
            samples = samples.with_noise(noise)?;
        }
        let shape = (samples.n_samples(), samples.n_true_values());
        let load = |samples| gaussmix::device::load(device, samples, options);
        let evaluator = match labels {
            Some(labels) => Box::new(LabelledEvaluator::new(samples, labels, load)?),
            None => load(samples)?,
        };
        Ok((evaluator, shape))
    }
}

/// Returns the labels of samples: numbers of components (N,), -1 if unknown, or a mask of the components allowed for
/// each sample (N, K); and K.
fn labels((given, n_components): (Bound<'_, PyAny>, usize)) -> PyResult<Labels> {
    if let Ok(mask) = given.extract::<PyReadonlyArray2<'_, bool>>() {
        return Labels::from_mask(mask.as_array()).map_err(exception);
    }
    // What came from another process may be misaligned.
    let numbers = arrays::plain(given.cast::<PyArray1<i64>>()?)?;
    let known: Vec<Option<usize>> = view(&numbers).iter().map(|&label| usize::try_from(label).ok()).collect();
    Labels::new(&known, n_components).map_err(exception)
}

/// Checks samples; with `missing`, NaN stands for a missing value.
pub fn checked(x: View<'_>, missing: bool) -> gaussmix::Result<Samples<'_>> {
    match x {
        View::F32(x) => f32::samples(x, missing),
        View::F64(x) => f64::samples(x, missing),
    }
}

/// Returns a copy in the same order. All threads make a long one; they wake while one copies a megabyte.
fn copied<T: Copy + Default + Send + Sync>(x: ArrayView2<'_, T>) -> Array2<T> {
    let columns_first = !x.is_standard_layout() && x.t().is_standard_layout();
    let mut copy = Array2::from_elem(x.raw_dim().set_f(columns_first), T::default());
    use_large_pages(copy.as_slice_memory_order_mut().unwrap_or_default());
    let pairs = Zip::from(&mut copy).and(&x);
    match x.len() * size_of::<T>() < 1 << 20 {
        true => pairs.for_each(|to, from| *to = *from),
        false => pairs.par_for_each(|to, from| *to = *from),
    }
    copy
}

/// Checks samples, which are borrowed under the caller's guarantee, or copied.
fn samples<T: Element + gaussmix::data::Element + Default + 'static>(
    x: ArrayView2<'_, T>,
    copy: bool,
    missing: bool,
) -> gaussmix::Result<Samples<'static>> {
    if copy {
        // An array may claim more numbers than it holds (`np.broadcast_to`).
        let remedy = "take fewer rows at a time, or copy=False";
        gaussmix::memory::check("the samples", x.shape(), size_of::<T>(), remedy)?;
        return T::shared_samples(copied(x).into_shared(), missing);
    }
    // SAFETY: `Data` keeps the array in a field that is dropped after the evaluator, and exposes neither.
    T::samples(unsafe { outliving(x) }, missing)
}

/// Fills in the missing values of samples with means, or with `draws` draws.
#[pyfunction]
#[pyo3(signature = (x, mixture, draws=None, seed=0))]
pub fn impute(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    mixture: &Mixture,
    draws: Option<usize>,
    seed: u64,
) -> PyResult<NumbersD> {
    let filled = |samples: gaussmix::Result<Samples<'_>>| match draws {
        None => mixture.0.impute(&samples?).map(ndarray::ArrayBase::into_dyn),
        Some(draws) => mixture.0.impute_draws(&samples?, 0..draws, seed, 0).map(ndarray::ArrayBase::into_dyn),
    };
    let matrix = Matrix::new(x)?;
    let x = matrix.view();
    let filled = interruptible(py, numbers(dim(x)).saturating_mul(draws.unwrap_or(1)), || filled(checked(x, true)))?;
    filled.map_err(exception).map(NumPy)
}

/// Returns the expected true values of samples with noise, and their covariances.
#[pyfunction]
#[pyo3(signature = (x, mixture, noise, missing=false))]
pub fn denoise(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    mixture: &Mixture,
    noise: noise::Given<'_>,
    missing: bool,
) -> PyResult<(Numbers2, Numbers3)> {
    let matrix = Matrix::new(x)?;
    let x = matrix.view();
    // SAFETY: `arrays` lives to the end of this function, and the noise does not.
    let noise::Borrowed { noise, arrays } = unsafe { noise.borrow()? };
    let values = |samples: Samples<'_>| mixture.0.denoise(&samples);
    let work = || checked(x, missing)?.with_noise(noise.reborrow()).and_then(values);
    let (values, covariances) = interruptible(py, numbers(dim(x)), work)?.map_err(exception)?;
    drop(arrays);
    Ok((NumPy(values), NumPy(covariances)))
}

/// Adds the memory that samples may take to the options, by default half of the memory. Samples that fit neither there
/// nor into the memory of GPUs are loaded chunk by chunk, again for each pass.
fn within(memory: Option<u64>, options: LoadOptions) -> LoadOptions {
    // Asking the system takes longer than evaluating a few samples.
    static HALF_OF_THE_MEMORY: LazyLock<u64> = LazyLock::new(gaussmix::memory::half);
    options.memory(memory.unwrap_or_else(|| *HALF_OF_THE_MEMORY))
}

#[pymethods]
impl Data {
    #[new]
    #[pyo3(signature = (x, sample_weight=None, *, device="auto", float64=false, threads=None, copy=false, settle=false, memory=None, missing=false, one_gpu=false, labels=None, reproducible=false, noise=None))]
    #[allow(clippy::too_many_arguments)] // They are named in Python.
    fn new(
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        sample_weight: Option<&Bound<'_, PyAny>>,
        device: &str,
        float64: bool,
        threads: Option<usize>,
        copy: bool,
        settle: bool,
        memory: Option<u64>,
        missing: bool,
        one_gpu: bool,
        labels: Option<(Bound<'_, PyAny>, usize)>,
        reproducible: bool,
        noise: Option<noise::Given<'_>>,
    ) -> PyResult<Self> {
        let same = reproducible.then(Reproducible::begin);
        let labels = labels.map(self::labels).transpose()?;
        let weights = sample_weight.map(|w| arrays::vector("sample_weight", w)).transpose()?;
        // SAFETY: `Data` keeps the arrays in a field that is dropped after the evaluator, and exposes neither.
        let noise = noise.map(|noise| unsafe { noise.borrow() }).transpose()?;
        let (noise, of_noise) = noise.map_or((None, Vec::new()), |given| (Some(given.noise), given.arrays));
        let options = within(memory, LoadOptions::new().float64(float64).threads(threads).one_gpu(one_gpu));
        let mut few = None;
        let (loaded, array, dtype) = if let Ok(x) = x.cast::<GpuArray>() {
            let x = x.get();
            let place = x.place(device)?;
            let from = || match place {
                Place::Gpu if noise.is_none() => x.load(weights, &options, copy),
                Place::Gpu => Self::load(Device::Auto, x.samples()?, weights, labels, noise, &options),
                Place::Host(device) => Self::load(device, x.samples()?, weights, labels, noise, &options),
            };
            (compute(py, from)?, None, x.dtype(py))
        } else {
            let device: Device = device.parse().map_err(exception)?;
            let load = |samples: gaussmix::Result<Samples<'static>>| {
                let (samples, on_cpu) = (samples?, matches!(device, Device::Auto | Device::Cpu));
                let is_few = on_cpu && samples.n_samples() * samples.n_features() < SMALL;
                let is_plain = weights.is_none() && labels.is_none() && noise.is_none() && threads.is_none();
                few = (is_few && is_plain).then(|| samples.clone());
                Self::load(device, samples, weights, labels, noise, &options)
            };
            match &Matrix::new(x)? {
                Matrix::F32(x) => {
                    let v = view(x);
                    let from = || load(samples(v, copy, missing));
                    (compute(py, from)?, Some(x.clone().into_any()), numpy::dtype::<f32>(py))
                }
                Matrix::F64(x) => {
                    let v = view(x);
                    let from = || load(samples(v, copy, missing));
                    (compute(py, from)?, Some(x.clone().into_any()), numpy::dtype::<f64>(py))
                }
            }
        };
        let (mut evaluator, shape) = loaded.map_err(exception)?;
        if settle {
            evaluator.sampling().into_iter().for_each(|sampling| sampling.settle());
        }
        let array = array.filter(|_| !copy).map(Bound::unbind);
        Ok(Self {
            evaluator: Mutex::new(evaluator),
            few,
            array,
            of_noise,
            same,
            shape,
            dtype: dtype.unbind(),
            remote: false,
        })
    }

    /// Returns samples elsewhere, whose results `object` computes, restricted by their labels, if any.
    #[staticmethod]
    #[pyo3(signature = (object, labels=None))]
    fn remote(object: &Bound<'_, PyAny>, labels: Option<(Bound<'_, PyAny>, usize)>) -> PyResult<Self> {
        let labels = labels.map(self::labels).transpose()?;
        let remote = Remote::new(object, labels)?;
        let shape = (remote.n_samples(), remote.n_features());
        // The type of the results; the samples' own type is known where they are.
        let dtype = numpy::dtype::<f64>(object.py()).unbind();
        let evaluator = Mutex::new(Box::new(remote) as Box<dyn Evaluator>);
        Ok(Self { evaluator, few: None, array: None, of_noise: Vec::new(), same: None, shape, dtype, remote: true })
    }

    /// Returns the total log-likelihood and its derivatives by weights, means and covariances.
    fn gradient(&self, py: Python<'_>, mixture: &Mixture) -> PyResult<(f64, Numbers1, Numbers2, NumbersD)> {
        let gradient = self.evaluate(py, |data| mixture.0.gradient(data))?;
        let covariances = arrays::any_shape(&gradient.covariances);
        Ok((gradient.log_likelihood, NumPy(gradient.weights), NumPy(gradient.means), covariances))
    }

    /// Returns the mean log-likelihood of a sample, by weight.
    fn mean_score(&self, py: Python<'_>, mixture: &Mixture) -> PyResult<f64> {
        self.evaluate(py, |data| Ok(data.log_likelihood(&mixture.0)? / data.total_weight()))
    }

    /// Returns the total log-likelihood of one mixture, or an array of those of several.
    fn totals<'py>(&self, py: Python<'py>, mixtures: &Mixtures) -> PyResult<Bound<'py, PyAny>> {
        match &mixtures.0 {
            Sets::One(mixture) => {
                let total = self.evaluate(py, |data| data.log_likelihood(mixture))?;
                Ok(total.into_pyobject(py)?.into_any())
            }
            Sets::Several(mixtures) => {
                let totals = self.evaluate(py, |data| data.log_likelihood_batch(mixtures))?;
                Ok(totals.into_pyarray(py).into_any())
            }
        }
    }

    fn scores(&self, py: Python<'_>, mixture: &Mixture) -> PyResult<Numbers1> {
        self.evaluate(py, |data| data.score_samples(&mixture.0)).map(NumPy)
    }

    fn labels(&self, py: Python<'_>, mixture: &Mixture) -> PyResult<NumPy<Vec<i64>>> {
        let labels = self.evaluate(py, |data| data.predict(&mixture.0))?;
        Ok(NumPy(labels.into_iter().map(|k| mixture.0.label(k)).collect()))
    }

    /// Draws samples by their distance to narrow components, for the start of a fit. Returns their rows, keys and
    /// distances. The first sample is row `first_row` of the whole.
    #[allow(clippy::type_complexity)] // A tuple in Python.
    fn draw(
        &self,
        py: Python<'_>,
        mixture: &Mixture,
        seed: u64,
        first_row: usize,
        size: usize,
    ) -> PyResult<(NumPy<Vec<i64>>, NumPy<Vec<f64>>, NumPy<Vec<f64>>)> {
        let draw = gaussmix::evaluator::Draw::new(&mixture.0, seed, size).from_row(first_row);
        let drawn = self.evaluate(py, |data| data.draw(&draw))?;
        let rows: Vec<i64> = drawn.iter().map(|drawn| drawn.row as i64).collect();
        let (keys, far): (Vec<f64>, Vec<f64>) = drawn.iter().map(|drawn| (drawn.key, drawn.far)).unzip();
        Ok((NumPy(rows), NumPy(keys), NumPy(far)))
    }

    fn responsibilities(&self, py: Python<'_>, mixture: &Mixture) -> PyResult<Numbers2> {
        self.evaluate(py, |data| data.predict_proba(&mixture.0)).map(NumPy)
    }

    /// Returns the derivatives of each sample's log-likelihood by the sample.
    fn score_function(&self, py: Python<'_>, mixture: &Mixture) -> PyResult<Numbers2> {
        self.evaluate(py, |data| mixture.0.score_function(data)).map(NumPy)
    }

    fn e_step(&self, py: Python<'_>, mixture: &Mixture) -> PyResult<Statistics> {
        self.evaluate(py, |data| data.statistics(&mixture.0)).map(Statistics)
    }

    /// Returns the volume of the samples: the smaller of the products of the ranges of the columns and of the principal
    /// components.
    fn volume(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.evaluate(py, |data| noise_of(data))?.volume)
    }

    /// Runs mclust's EM from the M-step of each of these statistics under a model. Returns the mixture, its log-likelihood
    /// and the number of iterations; None where a component is empty or collapses. `prior` has the shrinkage, the degrees
    /// of freedom, the mean and the scale (D, D), each None for mclust's but the first. `noise` has the weight of a
    /// component for noise at the start, and its volume.
    #[pyo3(signature = (starts, tol, max_iter, prior=None, noise=None))]
    #[allow(clippy::type_complexity)] // A tuple in Python.
    fn me(
        &self,
        py: Python<'_>,
        starts: Vec<(PyRef<'_, Statistics>, String)>,
        tol: f64,
        max_iter: usize,
        prior: Option<(f64, Option<f64>, Option<PyReadonlyArray1<'_, f64>>, Option<PyReadonlyArray2<'_, f64>>)>,
        noise: Option<(f64, f64)>,
    ) -> PyResult<Vec<Option<Found>>> {
        let prior = prior.map(|(mean_precision, degrees_of_freedom, mean, scale)| MapPrior {
            mean_precision,
            degrees_of_freedom,
            mean: mean.map(|mean| mean.as_array().to_owned().insert_axis(Axis(0))),
            covariance: scale.map(|scale| Covariances::Full(scale.as_array().to_owned().insert_axis(Axis(0)))),
            ..MapPrior::default()
        });
        let starts =
            starts.iter().map(|(statistics, model)| Ok((statistics.0.clone(), arrays::covariance_model(model)?)));
        let starts: Vec<_> = starts.collect::<PyResult<_>>()?;
        let moments = match prior {
            Some(_) => Some(self.evaluate(py, MapPrior::moments)?),
            None => None,
        };
        let noise = match noise {
            Some((share, volume)) => {
                let density = self.evaluate(py, |data| noise_of(data))?;
                Some((UniformDensity { volume, ..density }, share))
            }
            None => None,
        };
        let one = |data: &mut dyn Evaluator,
                   (statistics, model): &(gaussmix::statistics::Statistics, CovarianceModel)| {
            let of_model =
                |(prior, moments): (&MapPrior, _)| prior.of_mclust(moments, *model, statistics.n_components());
            let prior = prior.as_ref().zip(moments.as_ref()).map(of_model).transpose()?;
            let Ok(start) = statistics.to_mixture_of(*model, 0.0, prior.as_ref()) else { return Ok(None) };
            let start = match &noise {
                Some(noise) => with_noise(&start, noise)?,
                None => start,
            };
            let found = me(data, start, prior.as_ref(), tol, max_iter)?;
            Ok((!found.is_singular).then(|| (found.mixture.into(), found.log_likelihood, found.n_iter)))
        };
        match &self.few {
            Some(few) if starts.len() >= rayon::current_num_threads() => {
                // The most components come first, so that no thread is left with them at the end.
                let one = |start| one(&mut CpuEvaluator::of_this_thread(few.clone()), start);
                let found = compute(py, || starts.par_iter().rev().with_max_len(1).map(one).collect())?;
                let mut found: Vec<_> = gaussmix::Result::map_err(found, exception)?;
                found.reverse();
                Ok(found)
            }
            _ => self.evaluate(py, |data| starts.iter().map(|start| one(data, start)).collect()),
        }
    }

    /// Fits to the samples by the method of the options. `course` starts runs and observes their iterations: [`run`]. A
    /// fit continues at `before`, a mixture or a posterior, whose last lower bound may be given. `units` are those of
    /// the samples, if they are standardised.
    #[pyo3(signature = (options, course=None, before=None, lower_bound=None, units=None))]
    fn fit(
        &self,
        options: &Bound<'_, PyDict>,
        course: Option<Py<PyAny>>,
        before: Option<&Bound<'_, PyAny>>,
        lower_bound: Option<f64>,
        units: Option<&Standardization>,
    ) -> PyResult<Fit> {
        match is_variational(options)? {
            true => self.fit_by::<Variational>(options, course, before, lower_bound, units),
            false => self.fit_by::<Em>(options, course, before, lower_bound, units),
        }
    }

    /// Fits from a mixture of fewer components, some of which are split; returns `None` if a split is impossible.
    /// Arguments and results are in the units of the data, and the samples are in `units`.
    #[pyo3(signature = (options, seed, before, units=None))]
    fn grown(
        &self,
        options: &Bound<'_, PyDict>,
        seed: u64,
        before: &Mixture,
        units: Option<&Standardization>,
    ) -> PyResult<Option<Fit>> {
        let (fitting, units) = (fitting::<Em>(options)?, units.map(|units| &units.0));
        let seeded = in_units(fitting.clone().random_state(seed), units)?.check().map_err(exception)?;
        let start = || {
            let kind = seeded.options.covariance_type;
            let before = units.map_or(Ok(before.0.clone()), |units| units.standardize(&before.0, kind))?;
            let start = seeded.grown_start(before, self.lock().as_mut())?;
            start.map(|start| units.map_or(Ok(start.clone()), |units| units.restore(&start))).transpose()
        };
        let grow = || match start().map_err(exception)? {
            Some(start) => run(self.lock().as_mut(), fitting, None, Some((start, None)), units).map(Some),
            None => Ok(None),
        };
        compute(options.py(), grow)?
    }

    #[getter]
    fn shape(&self) -> (usize, usize) {
        self.shape
    }

    #[getter]
    fn dtype(&self, py: Python<'_>) -> Py<PyArrayDescr> {
        self.dtype.clone_ref(py)
    }

    #[getter]
    fn total_weight(&self, py: Python<'_>) -> PyResult<f64> {
        self.evaluate(py, |data| Ok(data.total_weight()))
    }

    /// Returns the device and the kernel of the last evaluation.
    fn describe(&self, py: Python<'_>) -> PyResult<(String, String)> {
        self.evaluate(py, |data| {
            let Description { device, kernel, gpu_problem, .. } = data.describe();
            Ok((gpu_problem.map_or(device.clone(), |problem| format!("{device}; no GPU: {problem}")), kernel))
        })
    }
}

/// Returns the mean log-likelihood of a sample, for samples used only once: the result of loading them as [`Data`],
/// with less overhead.
#[pyfunction]
#[pyo3(signature = (x, mixture, device, threads=None, memory=None, missing=false))]
pub fn mean_score(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    mixture: &Mixture,
    device: &str,
    threads: Option<usize>,
    memory: Option<u64>,
    missing: bool,
) -> PyResult<f64> {
    let device: Device = device.parse().map_err(exception)?;
    let options = within(memory, LoadOptions::new().threads(threads));
    let matrix = Matrix::new(x)?;
    let x = matrix.view();
    let score = || {
        let mut evaluator = gaussmix::device::load(device, checked(x, missing)?, &options)?;
        Ok(evaluator.log_likelihood(&mixture.0)? / evaluator.total_weight())
    };
    interruptible(py, numbers(dim(x)), score)?.map_err(exception)
}
