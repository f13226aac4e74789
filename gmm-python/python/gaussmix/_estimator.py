"""The estimator `GaussianMixture`."""

from __future__ import annotations

import math
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from numbers import Integral, Real
from time import perf_counter
from typing import Any, ClassVar, NamedTuple, Protocol, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, DensityMixin, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as _ScikitLearn
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from . import _arrays, _core, _start
from ._attributes import attribute_type
from ._arrays import Floats, checked_weights, is_plain, load, n_threads, validated
from ._gpu import beside, on_gpu, on_host

#: scikit-learn's class, also when ours is in its place.
ScikitLearn: Any = _ScikitLearn
#: The attributes of a fitted mixture that are arrays.
_ARRAYS = ("weights_", "means_", "covariances_", "precisions_cholesky_", "precisions_")
#: The parameters that scikit-learn's estimator has too.
_SHARED = (
    "n_components",
    "covariance_type",
    "tol",
    "reg_covar",
    "max_iter",
    "n_init",
    "init_params",
    "weights_init",
    "means_init",
    "precisions_init",
    "random_state",
    "warm_start",
    "verbose",
    "verbose_interval",
)
#: The types of parameters that cannot change, and the parameters of classes that are known to be valid.
_SIMPLE = frozenset({int, float, str, bool, type(None)})
_VALID: set[tuple[type, tuple[type, ...], tuple[Any, ...]]] = set()
_ILL_DEFINED = (
    "Fitting the mixture model failed because some components have ill-defined empirical covariance (for instance "
    "caused by singleton or collapsed samples). Try to decrease the number of components, increase reg_covar, or "
    "scale the input data."
)


def _takes_chunks(estimator: GaussianMixture) -> bool:
    if estimator.standardize:
        raise AttributeError("partial_fit cannot standardize, because it never sees all data; scale the chunks first")
    return True


class Iteration(NamedTuple):
    """What a callback gets after each iteration of EM.

    Parameters
    ----------
    run : int
        The run, counted from 0; there are `n_init` of them.
    iteration : int
        The iteration of the run, counted from 1.
    lower_bound : float
        The mean log-likelihood of a sample before the M-step of this iteration.
    change : float
        Its change since the iteration before; infinite in the first.
    mixture : Mixture
        The mixture after the iteration, with `weights`, `means` and `covariances`.
    """

    run: int
    iteration: int
    lower_bound: float
    change: float
    mixture: _core.Mixture


class GaussianMixture(DensityMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A Gaussian mixture, fitted by expectation-maximisation.

    Parameters, attributes and methods are those of :class:`sklearn.mixture.GaussianMixture`, and from the same start
    both find the same mixture. The arithmetic is done by the engine of this package, on the CPU or on a GPU, in the
    type of the data: float32 stays float32. The attributes of a fit to float32 data are float32 too, unless the mixture is
    one that float32 cannot hold (features that are nearly collinear, means very many standard deviations from 0, variances
    beyond 10±³⁸): rounding would change log densities by more than 10⁻⁴, or leave no mixture at all. Then all of them are float64.

    The data must not be changed by another thread during a call; it is not copied. An array in a GPU's memory (of
    PyTorch, CuPy, JAX or another library that knows DLPack) is read there.

    Parameters
    ----------
    n_components : int, default=1
        The number of components.
    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        The shape of the covariances: a matrix for each component, one matrix for all, a variance for each component
        and feature, or a variance for each component.
    tol : float, default=1e-3
        A fit has converged when an iteration changes the lower bound by less than this.
    reg_covar : float, default=1e-6
        Added to all variances.
    max_iter : int, default=100
        The most iterations of a run.
    n_init : int, default=1
        The number of runs from different starts, of which the best counts.
    init_params : {'kmeans', 'k-means++', 'random', 'random_from_data'}, default='kmeans'
        How a start is found. Up to 16,384 samples it is the very start of scikit-learn for the same `random_state`;
        with more, the engine finds one by the same method, in much less time.
    weights_init : array-like of shape (n_components,), default=None
        The weights to start with.
    means_init : array-like of shape (n_components, n_features), default=None
        The means to start with.
    precisions_init : array-like, default=None
        The precisions (inverse covariances) to start with, in the shape of the covariances.
    random_state : int, RandomState instance or None, default=None
        The source of random numbers for starts and for `sample`.
    warm_start : bool, default=False
        Whether a fit goes on where the last one stopped.
    verbose : int, default=0
        1 prints the iterations, 2 also times and changes.
    verbose_interval : int, default=10
        How many iterations lie between two lines.
    device : str, default='auto'
        Where to compute: 'auto', 'cpu', 'cuda', 'cuda:N' (the GPU of number N), over several devices at
        once 'cuda:all' or a list such as 'cuda:0,2' or 'cuda:0,cpu', or 'reference' (slow and exact). 'auto'
        begins on the CPU and goes on on a GPU where that is measured to be faster. For an array in a GPU's memory,
        'auto' and 'cuda' mean that GPU.
    freeze : sequence of {'weights', 'means', 'covariances'} or None, default=None
        Parameters that stay as the start has them.
    standardize : bool, default=False
        Whether to fit to columns of mean 0 and standard deviation 1, so that units do not matter; `reg_covar` is in
        these units then. All attributes are in the units of the data. Not for 'spherical' covariances, which such a
        fit does not have in the units of the data.
    decay : float, default=0.7
        How fast `partial_fit` forgets early chunks, above 0.5 and at most 1: the chunk of number t, counted from 0,
        has the share (t + 1) ** -decay.
    n_jobs : int or None, default=None
        The number of threads, as joblib counts; by default all cores, or as many as RAYON_NUM_THREADS says.
    missing : bool, default=False
        Whether NaN stands for a value that is missing at random, instead of being an error. The likelihood of a sample is
        then that of its observed values, and a fit maximises it exactly. An array in a GPU's memory is copied to the
        host first.
    callback : callable or None, default=None
        Called after each iteration with an :class:`Iteration`; the fit ends when it returns something true.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
        The share of each component.
    means_ : ndarray of shape (n_components, n_features)
        The mean of each component.
    covariances_ : ndarray
        The covariances, in the shape of their type.
    precisions_ : ndarray
        The inverses of the covariances, in the same shape.
    precisions_cholesky_ : ndarray
        Upper triangular matrices U with U @ U.T the precision; for types without matrices 1 / standard deviation.
    converged_ : bool
        Whether the best run converged.
    n_iter_ : int
        The iterations of the best run; after `partial_fit`, the number of chunks and the iterations of the first.
    lower_bound_ : float
        The mean log-likelihood of a sample before the last M-step.
    lower_bounds_ : list of float
        That of each iteration.
    retained_ : list of int
        Components that retained earlier parameters in the last iteration, because they had lost their samples or their
        covariance had collapsed.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, where the data had names.

    See Also
    --------
    sklearn.mixture.GaussianMixture : The estimator in whose place this one can be put.

    Examples
    --------
    >>> import numpy as np
    >>> from gaussmix import GaussianMixture
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> gm = GaussianMixture(n_components=2, random_state=0).fit(X)
    >>> gm.means_.round(6)
    array([[10.,  2.],
           [ 1.,  2.]])
    >>> gm.predict([[0, 0], [12, 3]])
    array([1, 0])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions({"full", "tied", "diag", "spherical"})],
        "tol": [Interval(Real, 0.0, None, closed="left")],
        "reg_covar": [Interval(Real, 0.0, None, closed="left")],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "init_params": [StrOptions({"kmeans", "random", "random_from_data", "k-means++"})],
        "weights_init": ["array-like", None],
        "means_init": ["array-like", None],
        "precisions_init": ["array-like", None],
        "random_state": ["random_state"],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
        "verbose_interval": [Interval(Integral, 1, None, closed="left")],
        "device": [str],
        "freeze": [list, tuple, set, None],
        "standardize": ["boolean"],
        "decay": [Interval(Real, 0.5, 1.0, closed="right")],
        "n_jobs": [Integral, None],
        "missing": ["boolean"],
        "callback": [callable, None],
    }

    # Set by a fit, as are the public attributes.
    lower_bounds_: list[float]
    _average: _core.Statistics | None
    _chunks: int
    _made: _core.Mixture | None

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: str = "full",
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        n_init: int = 1,
        init_params: str = "kmeans",
        weights_init: ArrayLike | None = None,
        means_init: ArrayLike | None = None,
        precisions_init: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        verbose: int = 0,
        verbose_interval: int = 10,
        device: str = "auto",
        freeze: Sequence[str] | None = None,
        standardize: bool = False,
        decay: float = 0.7,
        n_jobs: int | None = None,
        missing: bool = False,
        callback: Callable[[Iteration], object] | None = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval
        self.device = device
        self.freeze = freeze
        self.standardize = standardize
        self.decay = decay
        self.n_jobs = n_jobs
        self.missing = missing
        self.callback = callback

    def __sklearn_tags__(self) -> Any:
        """Say what the estimator takes."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = bool(self.missing)
        return tags

    # Fitting

    def _validate_params(self) -> None:
        """Check the parameters, unless equal ones of this class have passed before."""
        values = tuple(getattr(self, name) for name in self._parameter_constraints)
        types = tuple(map(type, values))
        if not _SIMPLE.issuperset(types):
            super()._validate_params()
            return
        # 1, 1.0 and True are equal, but not as parameters.
        key = (type(self), types, values)
        if key not in _VALID:
            super()._validate_params()
            if len(_VALID) >= 1000:
                _VALID.clear()
            _VALID.add(key)

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> GaussianMixture:
        """Fit the mixture.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.
        y : Ignored
            Not used, present by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            A sample of weight 2 counts as two.

        Returns
        -------
        self : GaussianMixture
            The fitted mixture.
        """
        with self._samples(X, sample_weight) as samples:
            self._fit(samples)
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit_predict(
        self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> NDArray[np.int64]:
        """Fit the mixture, and give the most probable component of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.
        y : Ignored
            Not used, present by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            A sample of weight 2 counts as two.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            The components, which are those that `predict` gives afterwards.
        """
        with self._samples(X, sample_weight) as samples:
            return beside(self._fit(samples).labels(self._mixture()), X)

    @available_if(_takes_chunks)  # type: ignore[untyped-decorator]
    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(
        self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> GaussianMixture:
        """Learn from a chunk of the data, by stepwise EM.

        The first chunk is fitted as by `fit`, unless the mixture is fitted already. Then each chunk contributes its
        statistics to a moving average, from which the parameters follow. Chunks should be random samples of the same
        data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples of the chunk.
        y : Ignored
            Not used, present by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            A sample of weight 2 counts as two.

        Returns
        -------
        self : GaussianMixture
            The mixture after the chunk.
        """
        if not hasattr(self, "means_"):
            with self._samples(X, sample_weight) as samples, warnings.catch_warnings():
                # It goes on with the next chunks.
                warnings.simplefilter("ignore", ConvergenceWarning)
                statistics = self._fit(samples).e_step(self._mixture())
        else:
            statistics = self._statistics(X, sample_weight)
        eta = float((self._chunks + 1) ** -self.decay)
        average = statistics.scaled(eta / statistics.weight)
        if self._average is not None:
            average = average + self._average.scaled(1.0 - eta)
        with _ill_defined():
            mixture, retained = average.update(self._mixture(), self.reg_covar, self._frozen())
        self._set_mixture(mixture, self.means_.dtype)
        self._average, self._chunks = average, self._chunks + 1
        self.lower_bound_ = statistics.log_likelihood / statistics.weight
        self.lower_bounds_ = [*self.lower_bounds_, self.lower_bound_]
        self.n_iter_, self.retained_ = len(self.lower_bounds_), retained
        return self

    def _samples(self, X: Any, sample_weight: Any) -> Samples:
        """Check what is to be fitted to."""
        return _Samples(self, X, sample_weight)

    def _statistics(self, X: Any, sample_weight: Any) -> _core.Statistics:
        return self._data(X, sample_weight).e_step(self._mixture())

    def _fit(self, samples: Samples) -> Evaluations:
        """Fit, and give the samples in the device."""
        n_samples, n_features = samples.shape
        if n_samples < self.n_components:
            raise _core.TooFewSamplesError(
                "Expected n_samples >= n_components "
                f"but got n_components = {self.n_components}, n_samples = {n_samples}"
            )
        parameters = _start.checked_parameters(self, n_features)
        if get_config().get("array_api_dispatch") and self.init_params not in ("random", "random_from_data"):
            raise NotImplementedError(
                "Allowed `init_params` are ['random', 'random_from_data'] if 'array_api_dispatch' is enabled. You "
                f"passed init_params={self.init_params!r}, which are not implemented to work with "
                "'array_api_dispatch' enabled. Please disable 'array_api_dispatch' to use "
                f"init_params={self.init_params!r}."
            )
        frozen = self._frozen()
        data = samples.load()
        _start.check_memory(self, n_features)
        # What is fitted to: the data, or in other units.
        units, fitted_data = None, data
        if self.standardize:
            units, fitted_data = samples.standardize()
            parameters = units.apply_to_parameters(parameters)

        goes_on = self.warm_start and hasattr(self, "converged_")
        before = None
        if goes_on:
            before = self._mixture() if units is None else units.apply_to_mixture(self._mixture())
        random_state = _start.taken_random_state(self.random_state)
        options: dict[str, Any] = {
            "n_components": self.n_components,
            "covariance_type": self.covariance_type,
            "tol": self.tol,
            "reg_covar": self.reg_covar,
            "max_iter": self.max_iter,
            "init_params": self.init_params,
            "seed": 0,
            "weights_init": parameters[0],
            "means_init": parameters[1],
            "precisions_init": parameters[2],
            "freeze": frozen,
            "shift": 0.0,
            "last_lower_bound": None,
        }
        best: _core.Fit | None = None
        best_bound = -math.inf
        error: BaseException | None = None
        for run in range(1 if goes_on else self.n_init):
            reporter = _Reporter(self, run, 0.0 if units is None else units.log_scale)
            reporter.begin()
            with _ill_defined():
                if before is not None:
                    start: _core.Mixture | None = before
                    last = float(self.lower_bound_)
                    options["last_lower_bound"] = None if math.isinf(last) else last + reporter.log_scale
                else:
                    start, options["shift"] = samples.start(parameters, random_state, fitted_data.total_weight)
                    if start is None:
                        options["seed"] = int(random_state.randint(0, 2**31 - 1))
                fit = fitted_data.fit(options, start, reporter.callback())
            bound = float(fit.lower_bounds[-1]) if len(fit.lower_bounds) else -math.inf
            if self.max_iter > 0:
                reporter.end(bound, fit.converged)
            # Without iterations the last start counts, as in scikit-learn.
            if best is None or bound > best_bound or self.max_iter == 0:
                best, best_bound = fit, bound
            if fit.stopped:
                error = fit.error
                break
        _start.keep_random_state(random_state, self.random_state)
        assert best is not None  # There is at least one run.

        bounds = [float(bound) for bound in best.lower_bounds]
        mixture = best.mixture
        if units is not None:
            mixture, bounds = units.restore(mixture), [bound - units.log_scale for bound in bounds]
        self._set_mixture(mixture, samples.dtype)
        self.converged_ = best.converged
        self.n_iter_ = len(bounds)
        self.lower_bounds_ = bounds
        self.lower_bound_ = bounds[-1] if bounds else -math.inf
        self.retained_ = best.retained
        self._average, self._chunks = None, 0
        if error is not None:
            raise error
        if not best.converged and not best.stopped and self.max_iter > 0:
            warnings.warn(
                "Best performing initialization did not converge. Try different init parameters, or increase "
                "max_iter, tol, or check for degenerate data.",
                ConvergenceWarning,
                stacklevel=4,
            )
        return data

    def _frozen(self) -> list[str]:
        frozen = [] if self.freeze is None else sorted(self.freeze)
        for name in frozen:
            if name not in ("weights", "means", "covariances"):
                raise ValueError(f"freeze names {name!r}; use 'weights', 'means' or 'covariances'")
        return frozen

    # The fitted mixture

    def _set_mixture(self, mixture: _core.Mixture, dtype: np.dtype[Any]) -> None:
        dtype = attribute_type(mixture, dtype)
        self.weights_ = mixture.weights.astype(dtype, copy=False)
        self.means_ = mixture.means.astype(dtype, copy=False)
        self.covariances_ = mixture.covariances.astype(dtype, copy=False)
        self.precisions_cholesky_ = mixture.precisions_cholesky.astype(dtype, copy=False)
        self.precisions_ = mixture.precisions.astype(dtype, copy=False)
        self._made = None
        self._mixture()

    def _mixture(self) -> _core.Mixture:
        """Give the mixture of the attributes, which may have been set by hand."""
        made = getattr(self, "_made", None)
        weights, means, factors = self.weights_, self.means_, self.precisions_cholesky_
        if made is None or not made.made_of(weights, means, factors):
            covariances = getattr(self, "covariances_", None)
            made = _core.Mixture.from_attributes(weights, means, covariances, factors, self.covariance_type)
            self._made = made
        return made

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        if "_made" in state:
            # It is made anew of the attributes.
            state["_made"] = None
        return state

    def _takes(self, X: object) -> TypeGuard[Floats]:
        """Say whether the engine takes ``X`` without a check of scikit-learn's before."""
        attributes = self.__dict__
        return "feature_names_in_" not in attributes and is_plain(X, attributes.get("n_features_in_", -1))

    def _data(self, X: Any, sample_weight: Any = None) -> _core.Data:
        """Bring samples to the device, for a fitted mixture."""
        given, threads = X, n_threads(self.n_jobs)
        if not self._takes(X):
            check_is_fitted(self)
            X = validated(self, X, reset=False)
        if sample_weight is not None:
            sample_weight = checked_weights(sample_weight, X.shape[0])
        return load(self, X, sample_weight, device=self.device, threads=threads, original=given)

    def _few(self, X: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Give log-densities of few samples under large matrices, of the components and of all, straight from the attributes.

        For all other samples, and where something is wrong, give nothing.
        """
        if self.covariance_type not in ("full", "tied") or self.device not in ("auto", "cpu") or not self._takes(X):
            return None
        return _core.few_log_densities(
            X, self.weights_, self.means_, self.precisions_cholesky_, self.covariance_type
        )

    def _value_type(self, dtype: Any) -> np.dtype[Any]:
        """Give the type of values per sample of samples of a type: that of the arithmetic in scikit-learn."""
        return np.dtype(np.float32 if dtype == np.float32 and self.means_.dtype == np.float32 else np.float64)

    def _typed(self, data: _core.Data, values: NDArray[np.float64], X: Any) -> Floats:
        # A sample so far away that its log-likelihood is no float32 has -inf, without a warning.
        with np.errstate(over="ignore"):
            typed: Floats = values.astype(self._value_type(data.dtype), copy=False)
        return beside(typed, X)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Give the most probable component of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            The components, counted from 0.
        """
        check_is_fitted(self)
        if (few := self._few(X)) is not None:
            labels: NDArray[np.int64] = few[0].argmax(axis=1).astype(np.int64, copy=False)
            return labels
        return beside(self._data(X).labels(self._mixture()), X)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Give the probability of each component for each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.

        Returns
        -------
        resp : ndarray of shape (n_samples, n_components)
            The probabilities, which sum to 1 for each sample.
        """
        check_is_fitted(self)
        if (few := self._few(X)) is not None:
            return np.exp(few[0] - few[1][:, np.newaxis]).astype(self._value_type(np.asarray(X).dtype), copy=False)
        data = self._data(X)
        return self._typed(data, data.responsibilities(self._mixture()), X)

    def score_samples(self, X: ArrayLike) -> Floats:
        """Give the log-likelihood of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.

        Returns
        -------
        log_prob : ndarray of shape (n_samples,)
            The logarithms of the density.
        """
        check_is_fitted(self)
        if (few := self._few(X)) is not None:
            return few[1].astype(self._value_type(np.asarray(X).dtype), copy=False)
        data = self._data(X)
        return self._typed(data, data.scores(self._mixture()), X)

    def score(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> float:
        """Give the mean log-likelihood of a sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.
        y : Ignored
            Not used, present by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            A sample of weight 2 counts as two.

        Returns
        -------
        log_likelihood : float
            The mean, by weight.
        """
        if not hasattr(self, "means_"):
            check_is_fitted(self)
        if sample_weight is None and self._takes(X):
            if (few := self._few(X)) is not None:
                return float(few[1].mean())
            try:
                threads, missing = n_threads(self.n_jobs), _arrays.takes_missing(self)
                return _core.mean_score(X, self._mixture(), self.device, threads, _arrays.MEMORY, missing)
            except _core.NonFiniteError as error:
                _arrays.refuse_non_finite(self, X, error)
                raise
        return self._data(X, sample_weight).mean_score(self._mixture())

    def impute(
        self,
        X: ArrayLike,
        draws: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> Floats:
        """Fill in missing values.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples, with NaN where a value is missing.
        draws : int or None, default=None
            For multiple imputation: how many times the missing values are drawn from their distribution given the
            observed values of their sample. By default they are replaced by the means of that distribution, which vary
            less than the data does.
        random_state : int, RandomState instance or None, default=None
            The source of the draws.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features) or (draws, n_samples, n_features)
            The samples without gaps, in their own type; what is observed is as it was.
        """
        check_is_fitted(self)
        x: Floats = validate_data(
            self,
            _arrays.na_as_nan(_arrays.copied_from_gpu(X, type(self).__name__)),
            reset=False,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
        )
        seed = 0
        if draws is not None:
            if not isinstance(draws, Integral) or not 1 <= draws < 2**63:
                raise ValueError(f"draws is {draws!r}; give the number of draws, from 1 to 2**63 - 1, or None for means")
            seed = int(check_random_state(random_state).randint(0, 2**31 - 1))
        x = np.asarray(x, dtype=x.dtype.newbyteorder("="))
        return beside(_core.impute(x, self._mixture(), draws, seed).astype(x.dtype, copy=False), X)

    def bic(self, X: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Give the Bayesian information criterion; the lower the better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.
        sample_weight : array-like of shape (n_samples,), default=None
            A sample of weight 2 counts as two.

        Returns
        -------
        bic : float
            -2 log L + p log N, with p parameters and N samples.
        """
        return self._criterion("bic", *self._total(X, sample_weight))

    def aic(self, X: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Give the Akaike information criterion; the lower the better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.
        sample_weight : array-like of shape (n_samples,), default=None
            A sample of weight 2 counts as two.

        Returns
        -------
        aic : float
            -2 log L + 2 p, with p parameters.
        """
        return self._criterion("aic", *self._total(X, sample_weight))

    def _criterion(self, name: str, total: float, n: float) -> float:
        """Give a criterion for samples of this total log-likelihood and weight."""
        penalty = math.log(n) if name == "bic" else 2.0
        return -2.0 * total + penalty * self._n_parameters()

    def _total(self, X: Any, sample_weight: Any) -> tuple[float, float]:
        check_is_fitted(self)
        data = self._data(X, sample_weight)
        n = data.total_weight
        return data.mean_score(self._mixture()) * n, n

    @classmethod
    def _fitted(
        cls, estimators: Iterable[GaussianMixture], X: Any, sample_weight: Any
    ) -> Iterator[tuple[GaussianMixture, float, float] | tuple[GaussianMixture, _core.TooFewSamplesError]]:
        """Fit estimators of this class in turn, and give each with the log-likelihood and the weight of the samples.

        One for which there are too few samples comes with the error instead.
        """
        for estimator in estimators:
            try:
                estimator.fit(X, sample_weight=sample_weight)
            except _core.TooFewSamplesError as error:
                yield estimator, error
            else:
                yield estimator, *estimator._total(X, sample_weight)

    def _n_parameters(self) -> int:
        return self._mixture().n_parameters

    def sample(self, n_samples: int = 1) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw samples: those that scikit-learn draws for the same `random_state`.

        Parameters
        ----------
        n_samples : int, default=1
            How many.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The samples, ordered by component.
        y : ndarray of shape (n_samples,)
            The component of each.
        """
        check_is_fitted(self)
        if n_samples < 1:
            raise ValueError(
                f"Invalid value for 'n_samples': {n_samples} . The sampling requires at least one sample."
            )
        random_state = check_random_state(self.random_state)
        k, d = self.means_.shape
        # The parts, and what they are put together to; of the components there is one number a sample.
        _core.check_memory("the samples and their components", (int(n_samples), 2 * d + 1), 8, "draw fewer at a time")
        counts = random_state.multinomial(n_samples, self.weights_.astype(np.float64))
        parts = []
        for component, count in enumerate(counts):
            mean = self.means_[component]
            if self.covariance_type in ("full", "tied"):
                covariance = self.covariances_ if self.covariance_type == "tied" else self.covariances_[component]
                parts.append(random_state.multivariate_normal(mean, covariance, int(count)))
            else:
                deviation = np.sqrt(self.covariances_[component])
                parts.append(mean + random_state.standard_normal(size=(count, d)) * deviation)
        return np.vstack(parts).astype(np.float64, copy=False), np.repeat(np.arange(k, dtype=np.int64), counts)

    # Other forms

    @classmethod
    def from_parameters(
        cls,
        weights: ArrayLike,
        means: ArrayLike,
        covariances: ArrayLike,
        *,
        covariance_type: str | None = None,
        **params: Any,
    ) -> GaussianMixture:
        """Make a fitted mixture of its parameters.

        Parameters
        ----------
        weights : array-like of shape (n_components,)
            The weights, which sum to 1.
        means : array-like of shape (n_components, n_features)
            The means; where they are float32, so are the attributes, if float32 holds the mixture.
        covariances : array-like
            The covariances, in the shape of their type.
        covariance_type : {'full', 'tied', 'diag', 'spherical'}, default=None
            Their type. It follows from the shape, unless there are as many components as features.
        **params : dict
            Other parameters of the estimator.

        Returns
        -------
        gm : GaussianMixture
            The mixture, as if fitted.
        """
        mixture = _core.Mixture(np.asarray(weights), np.asarray(means), np.asarray(covariances), covariance_type)
        dtype = np.dtype(np.float32 if np.asarray(means).dtype == np.float32 else np.float64)
        return cls._of(mixture, dtype, {}, params)

    @classmethod
    def _of(
        cls, mixture: _core.Mixture, dtype: np.dtype[Any], found: dict[str, Any], params: dict[str, Any]
    ) -> GaussianMixture:
        k, d = mixture.means.shape
        gm = cls(k, covariance_type=mixture.covariance_type, **params)
        gm.n_features_in_ = d
        names = found.get("feature_names")
        if names is not None:
            gm.feature_names_in_ = np.array(names, dtype=object)
        gm._set_mixture(mixture, dtype)
        bounds = found.get("lower_bounds")
        gm.lower_bounds_ = [] if bounds is None else list(bounds)
        bound = found.get("lower_bound")
        gm.lower_bound_ = -math.inf if bound is None else float(bound)
        gm.n_iter_ = int(found.get("n_iter") or 0)
        gm.converged_ = bool(found.get("converged"))
        gm.retained_ = []
        gm._average, gm._chunks = None, 0
        return gm

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the mixture to a file that the command ``gmm`` and `load` read.

        The names of the features (``feature_names_in_``) are written too: ``gmm`` finds the columns of a table by them.

        Parameters
        ----------
        path : str or path-like
            The file; its name ends in .json or .npz.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        # A table's columns cannot be found by names that stand for several of them.
        names = [str(name) for name in names] if names is not None and len(set(names)) == len(names) else None
        self._mixture().write(os.fspath(path), self.converged_, self.n_iter_, self.lower_bounds_, names)

    @classmethod
    def load(cls, path: str | os.PathLike[str], **params: Any) -> GaussianMixture:
        """Read a mixture from a file of `save` or of the command ``gmm``.

        Parameters
        ----------
        path : str or path-like
            The file, JSON or .npz.
        **params : dict
            Parameters of the estimator, which the file does not hold.

        Returns
        -------
        gm : GaussianMixture
            The fitted mixture, in float64, with ``feature_names_in_`` if the file has names.
        """
        mixture, found = _core.Mixture.read(os.fspath(path))
        return cls._of(mixture, np.dtype(np.float64), found, params)

    def to_sklearn(self) -> Any:
        """Give the same mixture as an object of scikit-learn.

        Returns
        -------
        gm : sklearn.mixture.GaussianMixture
            With the same parameters, and fitted if this one is.
        """
        params = self.get_params()
        other = ScikitLearn(**{name: params[name] for name in _SHARED})
        fitted = (*_ARRAYS, "converged_", "n_iter_", "lower_bound_", "lower_bounds_", "n_features_in_")
        for name in (*fitted, "feature_names_in_"):
            if hasattr(self, name):
                setattr(other, name, getattr(self, name))
        return other

    @classmethod
    def from_sklearn(cls, gm: Any, **params: Any) -> GaussianMixture:
        """Make a mixture of an object of scikit-learn.

        Parameters
        ----------
        gm : sklearn.mixture.GaussianMixture
            The mixture, fitted or not.
        **params : dict
            Parameters that scikit-learn's estimator does not have.

        Returns
        -------
        gm : GaussianMixture
            With the same parameters, and fitted if the other is.
        """
        own = gm.get_params()
        made = cls(**{name: own[name] for name in _SHARED}, **params)
        if hasattr(gm, "means_"):
            for name, value in vars(gm).items():
                if name.endswith("_") and not name.startswith("_"):
                    setattr(made, name, value)
            made.lower_bounds_ = list(getattr(gm, "lower_bounds_", []))
            made.retained_ = []
            made._average, made._chunks = None, 0
            made._made = None
            made._mixture()
        return made


class Evaluations(Protocol):
    """Samples in a device or in several, as `_fit` uses them."""

    @property
    def total_weight(self) -> float: ...

    def labels(self, mixture: _core.Mixture) -> NDArray[np.int64]: ...

    def e_step(self, mixture: _core.Mixture) -> _core.Statistics: ...

    def fit(
        self,
        options: dict[str, Any],
        start: _core.Mixture | None = None,
        callback: Callable[[int, float, float, _core.Mixture], object] | None = None,
    ) -> _core.Fit: ...


class Samples(AbstractContextManager["Samples"]):
    """What `_fit` is to fit to: here an array of this process, in a subclass the partitions of a cluster."""

    #: N and D.
    shape: tuple[int, int]
    #: The type of the attributes.
    dtype: np.dtype[Any]

    @abstractmethod
    def load(self) -> Evaluations:
        """Bring the samples to the device."""

    @abstractmethod
    def standardize(self) -> tuple[Units, Evaluations]:
        """Change to columns of mean 0 and standard deviation 1."""

    @abstractmethod
    def start(
        self, parameters: _start.Parameters, random_state: np.random.RandomState, total_weight: float
    ) -> tuple[_core.Mixture | None, float]:
        """Give the mixture that a run starts at, as `_start.start` does."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        pass


class _Samples(Samples):
    """An array of this process."""

    def __init__(self, estimator: GaussianMixture, X: Any, sample_weight: Any) -> None:
        self.estimator, self.given, self.sample_weight = estimator, X, sample_weight
        self.X: Floats | _core.GpuArray = validated(estimator, X, reset=True, min_samples=2)
        self.shape, self.dtype = (self.X.shape[0], self.X.shape[1]), self.X.dtype

    def load(self) -> Evaluations:
        if self.estimator.standardize and on_gpu(self.X):
            raise ValueError(
                "standardize=True does not take an array in a GPU's memory; scale the columns there, or bring the "
                "array to the host"
            )
        self.weights = checked_weights(self.sample_weight, self.shape[0])
        data = self._load(self.given)
        if self.estimator.missing:
            # `validated` refuses what is not on the host.
            _arrays.note_missing(_arrays.Missing.of(on_host(self.X), self.weights))
        return data

    def _load(self, original: Any = None) -> Evaluations:
        estimator, threads = self.estimator, n_threads(self.estimator.n_jobs)
        return load(estimator, self.X, self.weights, device=estimator.device, threads=threads, original=original)

    def standardize(self) -> tuple[Units, Evaluations]:
        # `load` refuses what is not on the host.
        X: Floats = on_host(self.X)
        units = Units.of(Moments.of(X, self.weights), self.estimator.covariance_type)
        self.X = units.apply(X)
        return units, self._load()

    def start(
        self, parameters: _start.Parameters, random_state: np.random.RandomState, total_weight: float
    ) -> tuple[_core.Mixture | None, float]:
        return _start.start(self.X, parameters, self.estimator, random_state, self.weights, total_weight)


class _ill_defined:
    """Gives an error about a covariance scikit-learn's message, with what the engine says."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _core.IllDefinedError):
            raise ValueError(f"{_ILL_DEFINED} ({error})") from error


class _Reporter:
    """Prints what `verbose` asks for, and calls the callback."""

    def __init__(self, estimator: GaussianMixture, run: int, log_scale: float) -> None:
        self.estimator, self.run, self.log_scale = estimator, run, log_scale
        self.began = self.last = perf_counter()

    def begin(self) -> None:
        if self.estimator.verbose:
            print(f"Initialization {self.run}")

    def callback(self) -> Callable[[int, float, float, _core.Mixture], object] | None:
        if self.estimator.verbose or self.estimator.callback is not None:
            return self.after
        return None

    def after(self, iteration: int, lower_bound: float, change: float, mixture: _core.Mixture) -> object:
        verbose = self.estimator.verbose
        if verbose and iteration % self.estimator.verbose_interval == 0:
            if verbose == 1:
                print(f"  Iteration {iteration}")
            else:
                now = perf_counter()
                print(f"  Iteration {iteration}\t time lapse {now - self.last:.5f}s\t ll change {change:.5f}")
                self.last = now
        if self.estimator.callback is None:
            return False
        return self.estimator.callback(
            Iteration(self.run, iteration, lower_bound - self.log_scale, change, mixture)
        )

    def end(self, lower_bound: float, converged: bool) -> None:
        verbose = self.estimator.verbose
        state = "converged" if converged else "did not converge"
        if verbose == 1:
            print(f"Initialization {state}.")
        elif verbose > 1:
            seconds = perf_counter() - self.began
            bound = lower_bound - self.log_scale
            print(f"Initialization {state}. time lapse {seconds:.5f}s\t lower bound {bound:.5f}.")


@dataclass(frozen=True)
class Moments:
    """Means and variances of columns, of what is observed in them; ``a + b`` are those of the samples of both."""

    #: The weight of all samples.
    weight: float
    #: The weight of each column's observed values.
    counts: NDArray[np.float64]
    means: NDArray[np.float64]
    variances: NDArray[np.float64]

    @classmethod
    def of(cls, X: Floats, weights: NDArray[np.float64] | None) -> Moments:
        """Compute them for an array of at least one sample."""
        missing = np.isnan(X)
        if missing.any():
            return cls._of_observed(X, missing, weights)
        # Differences from the first sample lose nothing far from zero, and are exactly zero in a constant column.
        origin = X[0].astype(np.float64)
        differences = X - origin
        means = np.average(differences, axis=0, weights=weights)
        variances = np.average((differences - means) ** 2, axis=0, weights=weights)
        weight = float(len(X)) if weights is None else float(weights.sum())
        return cls(weight, np.full(X.shape[1], weight), means + origin, variances)

    @classmethod
    def _of_observed(
        cls, X: Floats, missing: NDArray[np.bool_], weights: NDArray[np.float64] | None
    ) -> Moments:
        total = np.ones(len(X)) if weights is None else weights
        counts = total @ ~missing
        divisors = np.where(counts > 0, counts, 1.0)
        # As above, from the first value of each column; one without any has the mean 0.
        origin = np.nan_to_num(X[missing.argmin(axis=0), np.arange(X.shape[1])].astype(np.float64))
        differences = np.where(missing, 0.0, X - origin)
        means = total @ differences / divisors
        squares = np.where(missing, 0.0, differences - means) ** 2
        return cls(float(total.sum()), counts, means + origin, total @ squares / divisors)

    def __add__(self, other: Moments) -> Moments:
        counts = self.counts + other.counts
        divisors = np.where(counts > 0, counts, 1.0)
        difference = other.means - self.means
        share = other.counts / divisors
        means = np.where(self.counts > 0, self.means + share * difference, other.means)
        within = self.counts * self.variances + other.counts * other.variances
        variances = (within + self.counts * share * difference**2) / divisors
        return Moments(self.weight + other.weight, counts, means, variances)


class Units(NamedTuple):
    """Columns of mean 0 and standard deviation 1."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    covariance_type: str
    #: The share of each column's values that is observed, by weight.
    observed: NDArray[np.float64]

    @classmethod
    def of(cls, moments: Moments, covariance_type: str) -> Units:
        cls.check(covariance_type)
        scale = np.sqrt(moments.variances)
        scale = np.where(scale > 0, scale, 1.0)
        return cls(moments.means, scale, covariance_type, moments.counts / moments.weight)

    @staticmethod
    def check(covariance_type: str) -> None:
        if covariance_type == "spherical":
            raise ValueError(
                "standardize=True cannot give spherical covariances, because variances in the units of the data "
                "differ by column; use covariance_type='diag'"
            )

    @property
    def log_scale(self) -> float:
        # The mean over the samples, of which each counts with the columns that are observed in it.
        return float((np.log(self.scale) * self.observed).sum())

    def _factors(self) -> NDArray[np.float64]:
        """Give the factors of covariances, which broadcast over the components."""
        return np.outer(self.scale, self.scale) if self.covariance_type in ("full", "tied") else self.scale**2

    def apply(self, X: Floats) -> Floats:
        return np.ascontiguousarray(((X - self.mean) / self.scale).astype(X.dtype, copy=False))

    def apply_to_parameters(self, parameters: _start.Parameters) -> _start.Parameters:
        weights, means, precisions = parameters
        if means is not None:
            means = (means - self.mean) / self.scale
        if precisions is not None:
            precisions = precisions * self._factors()
        return weights, means, precisions

    def apply_to_mixture(self, mixture: _core.Mixture) -> _core.Mixture:
        means = (mixture.means - self.mean) / self.scale
        covariances = mixture.covariances / self._factors()
        return _core.Mixture(mixture.weights, means, covariances, self.covariance_type)

    def restore(self, mixture: _core.Mixture) -> _core.Mixture:
        means = mixture.means * self.scale + self.mean
        covariances = mixture.covariances * self._factors()
        return _core.Mixture(mixture.weights, means, covariances, self.covariance_type)
