//! Hidden Markov models.
use crate::arrays::{self, Matrix, NumPy, Numbers1, Numbers2, NumbersD, numbers};
use crate::errors::{exception, file_exception, hmm_exception};
use crate::statistics::Statistics;
use crate::threads::interruptible;
use gaussmix::data::{Element, Samples, View};
use gaussmix::device::Device;
use gaussmix::hmm::{self, Frozen, Hyperparameters, Options, Priors};
use gaussmix::io::{HiddenMarkovFile, Output};
use gaussmix::model::Covariances;
use ndarray::{Array2, ArrayView2};
use numpy::{PyReadonlyArray1, PyReadonlyArray2, ToPyArray};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;

type Pair<A, B> = (NumPy<A>, NumPy<B>);

/// A copy of rows, divided into sequences.
#[pyclass(frozen, module = "gaussmix._core")]
pub struct Sequences(hmm::Sequences<'static>);

#[pymethods]
impl Sequences {
    #[new]
    #[pyo3(signature = (x, lengths, weights=None, missing=false, device="cpu"))]
    fn new(
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        lengths: Vec<usize>,
        weights: Option<Vec<f64>>,
        missing: bool,
        device: &str,
    ) -> PyResult<Self> {
        let device: Device = device.parse().map_err(exception)?;
        let matrix = Matrix::new(x)?;
        let view = matrix.view();
        let n = match &view {
            View::F32(x) => x.len(),
            View::F64(x) => x.len(),
        };
        let sequences = interruptible(py, n, || {
            let samples = match view {
                View::F32(x) => copied(x, missing)?,
                View::F64(x) => copied(x, missing)?,
            };
            let sequences = hmm::Sequences::new(samples, &lengths)?;
            let sequences = match weights {
                Some(weights) => sequences.with_weights(weights)?,
                None => sequences,
            };
            sequences.on(device)
        })?;
        sequences.map(Self).map_err(hmm_exception)
    }
}

fn copied<T: Element + Clone + 'static>(x: ArrayView2<'_, T>, missing: bool) -> gaussmix::Result<Samples<'static>> {
    let shape = [x.nrows(), x.ncols()];
    gaussmix::memory::check("a copy of the samples", &shape, size_of::<T>(), "take fewer sequences at a time")?;
    T::shared_samples(x.as_standard_layout().into_owned().into_shared(), missing)
}

impl Sequences {
    fn compute<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&hmm::Sequences<'static>) -> hmm::Result<T> + Send,
    ) -> PyResult<T> {
        let samples = self.0.samples();
        let n = samples.n_samples().saturating_mul(samples.n_features());
        interruptible(py, n, || work(&self.0))?.map_err(hmm_exception)
    }
}

/// Returns the parameters whose letters, as of hmmlearn's `params`, are missing.
fn frozen(params: &str) -> Frozen {
    let not = |letter| !params.contains(letter);
    Frozen { start: not('s'), transitions: not('t'), means: not('m'), covariances: not('c'), weights: not('w') }
}

#[pyclass(frozen, module = "gaussmix._core")]
pub struct HiddenMarkov(hmm::HiddenMarkov);

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct PriorNumbers {
    start: Py<PyAny>,
    transitions: Py<PyAny>,
    weights: Py<PyAny>,
    means: Py<PyAny>,
    means_weight: Py<PyAny>,
    scatter: Py<PyAny>,
    divisor: Py<PyAny>,
    around_last_means: bool,
}

impl PriorNumbers {
    /// Returns the options of an iteration from `model`.
    fn options(&self, py: Python<'_>, model: &hmm::HiddenMarkov, params: &str, reg_covar: f64) -> PyResult<Options> {
        let (n, d) = model.emissions().means().dim();
        let form = model.emissions().covariance_type();
        let priors = Priors {
            start: arrays::vector("startprob_prior", self.start.bind(py))?,
            transitions: arrays::matrix("transmat_prior", self.transitions.bind(py))?,
            weights: arrays::matrix("weights_prior", self.weights.bind(py))?,
            means: arrays::matrix("means_prior", self.means.bind(py))?,
            means_weight: arrays::vector("means_weight", self.means_weight.bind(py))?,
            scatter: arrays::covariances(form, n, d, numbers(self.scatter.bind(py))?)?,
            divisor: arrays::vector("covars_weight", self.divisor.bind(py))?,
            around_last_means: self.around_last_means,
        };
        Ok(Options { frozen: frozen(params), priors: Some(priors), reg_covar, ..Options::default() })
    }
}

/// The sequences that a model has learned from.
#[pyclass(frozen, module = "gaussmix._core")]
pub struct SequenceStream(hmm::Stream);

#[pymethods]
impl SequenceStream {
    #[new]
    fn new(decay: f64) -> PyResult<Self> {
        hmm::Stream::new(decay).map(Self).map_err(hmm_exception)
    }
}

#[pymethods]
impl HiddenMarkov {
    /// Builds a model; the weights are those of all components.
    #[new]
    fn new(
        startprob: &Bound<'_, PyAny>,
        transmat: &Bound<'_, PyAny>,
        weights: &Bound<'_, PyAny>,
        means: &Bound<'_, PyAny>,
        covariances: &Bound<'_, PyAny>,
        model: &str,
        tied_within_states: bool,
    ) -> PyResult<Self> {
        let model = arrays::covariance_model(model)?;
        let emissions = arrays::mixture(numbers(weights)?, numbers(means)?, numbers(covariances)?, Some(model))?;
        let startprob = arrays::vector("startprob_", startprob)?;
        let hmm = hmm::HiddenMarkov::new(startprob, arrays::matrix("transmat_", transmat)?, emissions);
        let hmm = hmm.and_then(|hmm| if tied_within_states { hmm.tied_within_states() } else { Ok(hmm) });
        hmm.map(Self).map_err(hmm_exception)
    }

    #[getter]
    fn startprob(&self) -> Numbers1 {
        NumPy(self.0.startprob().to_owned())
    }

    #[getter]
    fn transmat(&self) -> Numbers2 {
        NumPy(self.0.transmat().to_owned())
    }

    /// The weights within the states.
    #[getter]
    fn weights(&self) -> Numbers2 {
        NumPy(self.0.weights())
    }

    #[getter]
    fn means(&self) -> Numbers2 {
        NumPy(self.0.emissions().means().to_owned())
    }

    #[getter]
    fn covariances(&self) -> NumbersD {
        arrays::any_shape(self.0.emissions().covariances())
    }

    #[getter]
    fn model(&self) -> &'static str {
        self.0.emissions().covariance_model().name()
    }

    #[getter]
    fn tied_within_states(&self) -> bool {
        self.0.is_tied_within_states()
    }

    #[getter]
    fn n_parameters(&self) -> usize {
        self.0.n_parameters()
    }

    fn stationary_distribution(&self) -> Numbers1 {
        NumPy(self.0.stationary_distribution())
    }

    /// Returns log p of each sequence.
    fn score(&self, py: Python<'_>, sequences: &Sequences) -> PyResult<NumPy<Vec<f64>>> {
        sequences.compute(py, |sequences| self.0.score(sequences)).map(NumPy)
    }

    /// Returns the total log-likelihood, and its derivatives by the parameters as they are given.
    fn gradient(&self, py: Python<'_>, sequences: &Sequences) -> PyResult<(f64, [NumbersD; 5])> {
        let found = sequences.compute(py, |sequences| self.0.gradient(sequences))?;
        let covariances = arrays::any_shape(&found.covariances);
        let [startprob, transmat, weights, means] =
            [found.startprob.into_dyn(), found.transmat.into_dyn(), found.weights.into_dyn(), found.means.into_dyn()]
                .map(NumPy);
        Ok((found.log_likelihood, [startprob, transmat, weights, means, covariances]))
    }

    fn forward_backward(&self, py: Python<'_>, sequences: &Sequences) -> PyResult<Pair<Vec<f64>, Array2<f64>>> {
        let (scores, posteriors) = sequences.compute(py, |sequences| self.0.forward_backward(sequences))?;
        Ok((NumPy(scores), NumPy(posteriors)))
    }

    fn viterbi(&self, py: Python<'_>, sequences: &Sequences) -> PyResult<Pair<Vec<f64>, Vec<i64>>> {
        let (scores, states) = sequences.compute(py, |sequences| self.0.viterbi(sequences))?;
        let states: Vec<i64> = states.into_iter().map(|state| state as i64).collect();
        Ok((NumPy(scores), NumPy(states)))
    }

    /// Returns log p of each sequence with these states.
    fn score_paths(&self, py: Python<'_>, sequences: &Sequences, states: Vec<usize>) -> PyResult<NumPy<Vec<f64>>> {
        sequences.compute(py, |sequences| self.0.score_paths(sequences, &states)).map(NumPy)
    }

    /// Returns the expected numbers of starts and of transitions, and the statistics of the emissions.
    fn e_step(&self, py: Python<'_>, sequences: &Sequences) -> PyResult<(Numbers1, Numbers2, Statistics)> {
        let sums = sequences.compute(py, |sequences| self.0.expectations(sequences))?;
        Ok((NumPy(sums.start), NumPy(sums.transitions), Statistics(sums.statistics)))
    }

    /// Returns the model of an M-step of `params` from the sums of E-steps under this one.
    fn m_step(
        &self,
        py: Python<'_>,
        sums: (PyReadonlyArray1<'_, f64>, PyReadonlyArray2<'_, f64>, PyRef<'_, Statistics>),
        params: &str,
        priors: PriorNumbers,
    ) -> PyResult<Self> {
        let options = priors.options(py, &self.0, params, 0.0)?;
        let (start, transitions, statistics) = sums;
        let sums = hmm::Expectations {
            log_likelihood: statistics.0.log_likelihood(),
            start: start.as_array().to_owned(),
            transitions: transitions.as_array().to_owned(),
            statistics: statistics.0.clone(),
        };
        options.m_step(&self.0, &sums).map(Self).map_err(hmm_exception)
    }

    /// Learns from sequences as from those of `stream`. Returns the new model, the stream with them, and their
    /// log-likelihood under this model.
    fn learn(
        &self,
        py: Python<'_>,
        sequences: &Sequences,
        params: &str,
        priors: PriorNumbers,
        stream: &SequenceStream,
    ) -> PyResult<(Self, SequenceStream, f64)> {
        let options = priors.options(py, &self.0, params, 0.0)?;
        let mut stream = stream.0.clone();
        let learned = sequences.compute(py, |sequences| options.learn(&self.0, sequences, &mut stream))?;
        Ok((Self(learned.0), SequenceStream(stream), learned.1))
    }

    /// Reads a JSON file: a model, the names of its features, and the history of a fit up to it.
    #[staticmethod]
    fn read(path: PathBuf) -> PyResult<(Self, Option<Vec<String>>, Vec<f64>)> {
        let HiddenMarkovFile { model, feature_names, history } =
            HiddenMarkovFile::read(path).map_err(file_exception)?;
        Ok((Self(model), feature_names, history))
    }

    fn write(&self, path: PathBuf, history: Vec<f64>) -> PyResult<()> {
        let output = Output::create(path).map_err(file_exception)?;
        let file = HiddenMarkovFile { model: self.0.clone(), feature_names: None, history };
        file.write(&output).map_err(file_exception)
    }
}

#[pyclass(frozen, module = "gaussmix._core")]
pub struct VariationalHiddenMarkov(hmm::VariationalHiddenMarkov);

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Numbers {
    start: Py<PyAny>,
    transitions: Py<PyAny>,
    means: Py<PyAny>,
    beta: Py<PyAny>,
    dof: Py<PyAny>,
    scale: Py<PyAny>,
}

impl Numbers {
    fn hyperparameters(&self, py: Python<'_>, covariance_type: &str) -> PyResult<Hyperparameters> {
        let means = arrays::matrix("the means", self.means.bind(py))?;
        let (k, d) = means.dim();
        let form = arrays::covariance_type(covariance_type)?;
        Ok(Hyperparameters {
            start: arrays::vector("the parameters of startprob_", self.start.bind(py))?,
            transitions: arrays::matrix("the parameters of transmat_", self.transitions.bind(py))?,
            beta: arrays::vector("beta", self.beta.bind(py))?,
            dof: arrays::vector("dof", self.dof.bind(py))?,
            scale: arrays::covariances(form, k, d, numbers(self.scale.bind(py))?)?,
            means,
        })
    }
}

#[pymethods]
impl VariationalHiddenMarkov {
    #[new]
    fn new(py: Python<'_>, prior: Numbers, posterior: Numbers, covariance_type: &str) -> PyResult<Self> {
        let of = |numbers: Numbers| numbers.hyperparameters(py, covariance_type);
        hmm::VariationalHiddenMarkov::new(of(prior)?, of(posterior)?).map(Self).map_err(hmm_exception)
    }

    /// The parameters of the posterior.
    #[getter]
    fn posterior<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let Hyperparameters { start, transitions, means, beta, dof, scale } = self.0.posterior();
        let found = PyDict::new(py);
        for (name, vector) in [("start", start), ("beta", beta), ("dof", dof)] {
            found.set_item(name, vector.to_pyarray(py))?;
        }
        found.set_item("transitions", transitions.to_pyarray(py))?;
        found.set_item("means", means.to_pyarray(py))?;
        let scale: &Covariances = scale;
        found.set_item("scale", arrays::any_shape(scale))?;
        Ok(found)
    }

    /// Returns the model of the posterior means.
    fn model(&self) -> PyResult<HiddenMarkov> {
        self.0.model().map(HiddenMarkov).map_err(hmm_exception)
    }

    /// Computes an iteration, and returns the new posterior and the lower bound of this one.
    fn step(&self, py: Python<'_>, sequences: &Sequences, params: &str) -> PyResult<(Self, f64)> {
        let frozen = frozen(params);
        let (next, bound) = sequences.compute(py, |sequences| self.0.step(sequences, frozen))?;
        Ok((Self(next), bound))
    }
}
