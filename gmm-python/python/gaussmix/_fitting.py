"""What all estimators of mixtures have in common: `fit` and runs from several starts, attributes, files, and the evaluation of samples."""

from __future__ import annotations

import math
import os
import re
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import DensityMixin, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from . import _arrays, _core, _parameters, _start
from ._arrays import Floats, Self, checked_weights, load, n_threads, validated
from ._attributes import attribute_type
from ._gpu import beside, on_host, place
from ._mixture import ARRAYS, Mixture, names_in_file
from ._parameters import count, seed_of
from ._reports import Course, Estimator, all_or_nothing
from ._samples import ArraySamples, Evaluations, Samples
from ._warnings import warn

_ILL_DEFINED = (
    "Fitting the mixture model failed because some components have ill-defined empirical covariance (for instance "
    "caused by singleton or collapsed samples). Try to decrease the number of components, increase reg_covar, or "
    "scale the input data."
)


@contextmanager
def ill_defined(estimator: Any) -> Iterator[None]:
    """Give an error about a covariance scikit-learn's message, with what the engine says, and the feature's name."""
    try:
        yield
    except _core.IllDefinedError as error:
        text = re.sub(r"\bpivot (\d+)", lambda found: f"{found[0]}, {_name(estimator, int(found[1]))}", str(error))
        remedy = "" if estimator.standardize else " standardize=True standardizes the columns."
        raise ValueError(f"{_ILL_DEFINED} ({text}).{remedy}") from error


def tried(fit: Callable[[], tuple[float, float]]) -> tuple[float | ValueError, float]:
    """Return what a fit returns; of one that its number of components or type of covariances made fail, the error and 0."""
    try:
        return fit()
    except ValueError as error:
        if isinstance(error, _core.TooFewSamplesError) or isinstance(error.__cause__, _core.IllDefinedError):
            return error, 0.0
        raise


def _name(estimator: Any, feature: int) -> str:
    names = getattr(estimator, "feature_names_in_", None)
    return f"column {feature}" if names is None else f"column {names[feature]!r}"


def note_regularization(estimator: Any, found: tuple[int, float] | None, of: str = "") -> None:
    """Warn where `reg_covar` is large beside the variance of a column, which was found so."""
    # Of standardised columns it was chosen in their units.
    if found is None or estimator.standardize:
        return
    column, variance = found
    warn(
        f"reg_covar={estimator.reg_covar:g} is more than a thousandth of the variance of {_name(estimator, column)} (counted from "
        f"0), {variance:.2g}{of}: the fit depends on the units; set standardize=True, scale the columns, or use a smaller reg_covar"
    )


def _takes_chunks(estimator: Fitting) -> bool:
    if estimator.standardize:
        raise AttributeError("partial_fit cannot standardize, because it never sees all data; scale the chunks first")
    if getattr(estimator, "prior", None) is not None:
        raise AttributeError("partial_fit takes no prior, because it does not know how many samples there will be")
    if _start.has_noise(estimator):
        raise AttributeError("partial_fit takes no noise, because it does not know how far the samples will reach")
    return True


def take_features(to: Any, of: Any) -> None:
    """Take the number of features, and their names, if there are any, of another estimator."""
    to.n_features_in_ = of.n_features_in_
    if hasattr(of, "feature_names_in_"):
        to.feature_names_in_ = of.feature_names_in_
    else:
        to.__dict__.pop("feature_names_in_", None)


#: The bytes of arrays that are worth a comparison by elements.
_SMALL = 1 << 14


def _equal(kept: NDArray[Any], value: Any) -> bool:
    # Bits of small arrays are compared in less time, and large ones are not to be copied.
    now = value if type(value) is np.ndarray else np.asarray(on_host(value))
    return kept.tobytes() == now.tobytes() if now.nbytes < _SMALL else np.array_equal(kept, now)


class Fitting(DensityMixin, Estimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator that is fitted by iterations from a start, and evaluates samples, or draws them."""

    n_components: int
    covariance_type: str
    device: str
    n_jobs: int | None
    reproducible: bool = False
    max_iter: int
    n_init: int
    reg_covar: float
    missing: bool
    warm_start: bool
    #: Up to so many numbers the start is scikit-learn's own, however many samples they are.
    _numbers_of_own_start: ClassVar[int] = 0
    standardize: bool
    decay: float
    #: The attributes with a mixture, that of an estimator of this class.
    _with: Any = staticmethod(vars)
    # Set by a fit, as are the other public attributes.
    weights_: NDArray[Any]
    means_: NDArray[Any]
    covariances_: NDArray[Any]
    precisions_: NDArray[Any]
    precisions_cholesky_: NDArray[Any]
    lower_bounds_: list[float]
    lower_bound_: float
    n_iter_: int
    converged_: bool
    #: Copies of the attributes, what `_make` has made of them, and `mixture_`.
    _made: tuple[list[NDArray[Any]], tuple[_core.Mixture, Any, _core.Mixture]] | None = None
    _value: Mixture | None = None
    #: The statistics per sample, and the number, of the chunks that `partial_fit` has seen.
    _average: _core.Statistics | None = None
    _chunks: int = 0
    #: scikit-learn's class, and the attributes that its objects have beside those of every mixture.
    _theirs: ClassVar[Any]
    _more: ClassVar[tuple[str, ...]] = ()
    #: What the engine has of such mixtures.
    _engine_class: ClassVar[Any]

    @all_or_nothing
    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None, *, labels: ArrayLike | None = None) -> Self:
        """Fit the mixture."""
        with self._samples(X, sample_weight, labels) as samples, self._task(X, y, sample_weight, self._with) as samples.task:
            self._fit(samples)
        return self

    @all_or_nothing
    def fit_predict(
        self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None, *, labels: ArrayLike | None = None
    ) -> NDArray[np.int64]:
        """Fit the mixture, and return what `predict` gives then, (n_samples,); under `labels` a component that the sample may belong to."""
        with self._samples(X, sample_weight, labels) as samples, self._task(X, y, sample_weight, self._with) as samples.task:
            return beside(self._fit(samples).labels(self._mixture()), X)

    @available_if(_takes_chunks)  # type: ignore[untyped-decorator]
    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from a chunk of the data.

        The first chunk is fitted as by `fit`, unless the mixture is fitted already. Then each chunk contributes its
        statistics to a moving average, from which the parameters follow: stepwise EM, or stochastic variational
        inference. Chunks should be random samples of the same data.
        """
        if not hasattr(self, "means_"):
            with self._samples(X, sample_weight) as samples, warnings.catch_warnings():
                # It goes on with the next chunks.
                warnings.simplefilter("ignore", ConvergenceWarning)
                statistics = self._fit(samples).e_step(self._mixture())
        else:
            statistics = self._statistics(X, sample_weight, self._mixture())
        average = statistics.averaged(self._average, self._chunks, float(self.decay))
        with ill_defined(self):
            self.lower_bound_ = self._learn(average, statistics)
        place(self, X)
        self._average, self._chunks = average, self._chunks + 1
        self.lower_bounds_ = [*self.lower_bounds_, self.lower_bound_]
        self.n_iter_ = len(self.lower_bounds_)
        return self

    @abstractmethod
    def _learn(self, average: _core.Statistics, statistics: _core.Statistics) -> float:
        """Make the M-step of the average per sample of all chunks; `statistics` are those of the last. Give its lower bound."""

    def _statistics(self, X: Any, sample_weight: Any, mixture: _core.Mixture) -> _core.Statistics:
        """Make the E-step under a mixture of the shape of this one."""
        return self._data(X, sample_weight).e_step(mixture)

    def _samples(self, X: Any, sample_weight: Any, labels: Any = None) -> Samples:
        return ArraySamples(self, X, sample_weight, labels)

    def _fit(self, samples: Any) -> Evaluations:
        """Fit, and give the samples in the device."""
        self._check_start(samples.shape[0])
        # Errors about parameters come before the samples are loaded.
        options = self._options(samples.shape[1])
        data = samples.load()
        best = self._best_run(samples, samples.standardize() if self.standardize else data, options)
        self._keep(best, samples.dtype)
        self._finish(best)
        return data

    def _goes_on(self) -> bool:
        """Say whether a fit begins at the mixture of the last one."""
        return self.warm_start and hasattr(self, "converged_")

    def _check_start(self, n_samples: int) -> None:
        """Check that there can be a start for so many samples."""
        if n_samples < self.n_components:
            raise _core.TooFewSamplesError(
                f"Expected n_samples >= n_components but got n_components = {self.n_components}, n_samples = {n_samples}"
            )

    #: The names of the options that the engine has for a fit of this class, but for those that are arrays.
    _OPTIONS: ClassVar[tuple[str, ...]]

    @abstractmethod
    def _options(self, n_features: int) -> dict[str, Any]:
        """Check the parameters against the samples, and give the options of a fit as the engine has them."""

    def _engine_options(self, arrays: dict[str, Any], **others: Any) -> dict[str, Any]:
        """Return the options of a fit: the parameters, arrays, and options that differ from the parameter of their name."""
        options = {name: _parameters.plain(getattr(self, name)) for name in self._OPTIONS if name not in others}
        if not isinstance(self.init_params, str):
            options["init_params"] = "kmeans"
        # Starts have random numbers of their own; this one tells fits in a checkpoint apart.
        if not isinstance(options["random_state"], int) or options["random_state"] < 0:
            options["random_state"] = 0
        options["freeze"] = ",".join(_parameters.frozen(self.freeze, self.n_components)) or "none"
        return {**options, **others, "arrays": arrays}

    def _best_run(self, samples: Samples, data: Evaluations, options: dict[str, Any]) -> _core.Fit:
        """Fit from each start, or go on at the mixture of an earlier fit; give the best run."""
        total_weight = data.total_weight
        before = self._current()[1] if self._goes_on() else None
        bound = None if before is None or math.isinf(self.lower_bound_) else float(self.lower_bound_)
        with ill_defined(self), _start.random_state_of(self.random_state) as random_state:
            course = Course(self, lambda _: samples.start(random_state, total_weight), samples.task, samples.dtype)
            return data.fit(options, course, before, bound, samples.units)

    def _keep(self, fit: _core.Fit, dtype: np.dtype[Any]) -> None:
        """Set the attributes to what a run has found."""
        self._forget()
        self._set(fit.mixture, dtype)
        self.converged_ = fit.converged
        self.lower_bounds_ = [float(bound) for bound in fit.lower_bounds]
        self.n_iter_ = len(self.lower_bounds_)
        self.lower_bound_ = self.lower_bounds_[-1] if self.lower_bounds_ else -math.inf

    def _finish(self, best: _core.Fit) -> None:
        """Raise the error that ended a fit, or warn of what is wrong with it; to be called by `_fit` at its end."""
        if best.error is not None:
            raise best.error
        note_regularization(self, best.mixture.over_regularized(self.reg_covar))
        if not best.converged and not best.stopped and self.max_iter > 0:
            warn(
                "Best performing initialization did not converge. Try different init parameters, or increase "
                "max_iter, tol, or check for degenerate data.",
                ConvergenceWarning,
            )

    @property
    def mixture_(self) -> Mixture:
        """The mixture of the attributes `weights_`, `means_` and `covariances_`, which may have been set by hand."""
        check_is_fitted(self)
        engine, names = self._current()[0], getattr(self, "feature_names_in_", None)
        named = None if names is None else tuple(map(str, names))
        if self._value is None or self._value._engine is not engine or self._value._names != named:
            self._value = Mixture._of(engine, named)
        return self._value

    def _mixture(self) -> _core.Mixture:
        """Return the mixture behind `predict_proba`. Its densities must be multiplied by exp(`_log_factor()`)."""
        return self._current()[2]

    def _log_factor(self) -> float:
        return 0.0

    def _deciding(self) -> tuple[Any, ...]:
        """Return the attributes that decide what the engine has."""
        return self.weights_, self.means_, self.precisions_cholesky_

    @abstractmethod
    def _make(self, engine: Any = None) -> tuple[_core.Mixture, Any, _core.Mixture]:
        """Return the mixture of the attributes; what the engine has, made of them unless it is given; and the density of samples."""

    def _current(self) -> tuple[_core.Mixture, Any, _core.Mixture]:
        """Return what is made of the attributes, and made again where these have changed."""
        if self._made is None or not all(map(_equal, self._made[0], self._deciding())):
            self._keep_made(self._make())
        return self._made[1]  # type: ignore[index]

    def _keep_made(self, made: tuple[_core.Mixture, Any, _core.Mixture]) -> None:
        self._made = [np.array(on_host(value)) for value in self._deciding()], made

    def _point_of_attributes(self) -> _core.Mixture:
        weights, means, covariances, factors = (on_host(getattr(self, name, None)) for name in ARRAYS[:4])
        noise = getattr(self, "noise_", None)
        return _core.Mixture.from_attributes(weights, means, covariances, factors, self.covariance_type, noise)

    def _type(self) -> np.dtype[Any]:
        return on_host(self.means_).dtype

    def _set_arrays(self, mixture: _core.Mixture | _core.VariationalMixture, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Set the arrays of a mixture, in the type that is returned."""
        dtype = attribute_type(mixture, dtype)
        for name in ARRAYS:
            setattr(self, name, getattr(mixture, name.rstrip("_")).astype(dtype, copy=False))
        return dtype

    @abstractmethod
    def _set(self, engine: Any, dtype: np.dtype[Any]) -> None:
        """Set the attributes to those of what the engine has."""

    def _forget(self) -> None:
        """Forget what has been made of earlier attributes, and what `partial_fit` goes on from."""
        self._made = self._value = self._average = None
        self._chunks = 0

    def _take_fit(self, other: Fitting) -> None:
        """Take the attributes of a fitted mixture, without what `partial_fit` goes on from."""
        self.__dict__.update({name: value for name, value in vars(other).items() if name.endswith("_")})
        self._forget()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the mixture to a file that the command ``gmm`` and `load` read.

        The names of the features (``feature_names_in_``) are written too: ``gmm`` finds the columns of a table by them.
        """
        check_is_fitted(self)
        names = names_in_file(getattr(self, "feature_names_in_", None))
        bounds = [float(bound) for bound in self.lower_bounds_]
        how = {"converged": bool(self.converged_), "n_iter": int(self.n_iter_), "lower_bounds": bounds, "feature_names": names}
        self._current()[1].write(os.fspath(path), **how)

    @classmethod
    def load(cls, path: str | os.PathLike[str], **params: Any) -> Self:
        """Return what `save` wrote, or ``gmm``, as if fitted, in float64, with ``feature_names_in_`` if the file has names.
        Parameters: **params : dict -- Parameters of the estimator, which the file does not hold.
        """
        engine, found = cls._engine_class.read(os.fspath(path))
        return cls._of(engine, np.dtype(np.float64), found, params)

    @classmethod
    def _of(cls, engine: Any, dtype: np.dtype[Any], found: dict[str, Any], params: dict[str, Any]) -> Self:
        """Make a fitted estimator of what the engine has, and of what a file says of its fit and of the features."""
        if getattr(engine, "noise", None) is not None:
            params = {"noise": True, **params}
        gm = cls(n_components=len(engine.means), covariance_type=getattr(engine, "covariance_model", engine.covariance_type), **params)
        gm._forget()
        gm._set(engine, dtype)
        gm.n_features_in_ = gm.means_.shape[1]
        if found.get("feature_names") is not None:
            gm.feature_names_in_ = np.array(found["feature_names"], dtype=object)
        bounds, bound = found.get("lower_bounds"), found.get("lower_bound")
        gm.lower_bounds_ = [] if bounds is None else list(bounds)
        gm.lower_bound_ = -math.inf if bound is None else float(bound)
        gm.n_iter_ = int(found.get("n_iter") or 0)
        gm.converged_ = bool(found.get("converged"))
        return gm

    @classmethod
    def _shared(cls) -> list[str]:
        """Return the names of the parameters that scikit-learn's class has too."""
        own = signature(cls).parameters
        return [name for name in signature(cls._theirs).parameters if name in own]

    def to_sklearn(self) -> Any:
        """Return the same mixture as an object of scikit-learn, with the same parameters, and fitted if this one is."""
        if hasattr(self, "means_"):
            self.mixture_._check_no_noise("scikit-learn's class")
        params = self.get_params()
        params["covariance_type"] = _core.covariance_form(params["covariance_type"])
        other = self._theirs(**{name: params[name] for name in self._shared()})
        fitted = (*ARRAYS, "converged_", "n_iter_", "lower_bound_", "lower_bounds_", "n_features_in_")
        for name in (*fitted, "feature_names_in_", *self._more):
            if hasattr(self, name):
                setattr(other, name, getattr(self, name))
        return other

    @classmethod
    def from_sklearn(cls, gm: Any, **params: Any) -> Self:
        """Return a mixture with the parameters of an object of scikit-learn, fitted if that is.
        Parameters:
        gm : sklearn.mixture.GaussianMixture or sklearn.mixture.BayesianGaussianMixture
            The mixture, fitted or not; of the class that this one replaces.
        **params : dict -- Parameters that scikit-learn's estimator does not have.
        """
        own = gm.get_params()
        made = cls(**{name: own[name] for name in cls._shared()}, **params)
        if hasattr(gm, "means_"):
            for name, value in vars(gm).items():
                if name.endswith("_") and not name.startswith("_"):
                    setattr(made, name, value)
            made.lower_bounds_ = list(getattr(gm, "lower_bounds_", []))
            made._forget()
            made._current()
        return made

    def _data(self, X: Any, sample_weight: Any = None) -> _core.Data:
        """Bring samples to the device, for a fitted mixture."""
        check_is_fitted(self)
        x = X if self._takes(X) else validated(self, X, reset=False)
        return load(self, x, checked_weights(sample_weight, x.shape[0]), original=X)

    def _value_type(self, dtype: Any) -> np.dtype[Any]:
        """Return the type of values per sample of samples of a type: that of the arithmetic in scikit-learn."""
        return np.dtype(np.float32 if dtype == np.float32 and self._type() == np.float32 else np.float64)

    def _values(self, operation: str, X: Any) -> NDArray[Any]:
        """Return a value for each sample: its label, its responsibilities or its score."""
        data = self._data(X)
        return beside(self._typed(operation, getattr(data, operation)(self._mixture()), data.dtype), X)

    def _typed(self, operation: str, values: NDArray[Any], dtype: Any) -> NDArray[Any]:
        """Return values by the engine as they are for samples of a type."""
        if operation == "labels":
            return values
        if operation == "scores":
            values = values + self._log_factor()
        # A sample so far away that its log-likelihood is no float32 has -inf, without a warning.
        with np.errstate(over="ignore"):
            return values.astype(self._value_type(dtype), copy=False)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the most probable component of each sample, (n_samples,), counted from 0; -1 for noise."""
        return self._values("labels", X)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the probability of each component for each sample, (n_samples, n_components), which sum to 1 for each sample."""
        return self._values("responsibilities", X)

    def score_samples(self, X: ArrayLike) -> Floats:
        """Return the log-likelihood of each sample, the logarithm of the density, (n_samples,)."""
        return self._values("scores", X)

    def score(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the mean log-likelihood of a sample, by weight."""
        if not hasattr(self, "means_"):
            check_is_fitted(self)
        if sample_weight is None and not self.reproducible and self._takes(X):
            threads, missing = n_threads(self.n_jobs), _arrays.takes_missing(self)
            with _arrays.refusing_non_finite(X, self):
                mean = _core.mean_score(X, self._mixture(), self.device, threads, _arrays.MEMORY, missing)
                return mean + self._log_factor()
        return self._data(X, sample_weight).mean_score(self._mixture()) + self._log_factor()

    def impute(self, X: ArrayLike, draws: int | None = None, random_state: int | np.random.RandomState | None = None) -> Floats:
        """Fill in missing values.
        Parameters:
        X : array-like of shape (n_samples, n_features) -- The samples, with NaN where a value is missing.
        draws : int or None, default=None
            For multiple imputation: how many times the missing values are drawn from their distribution given the
            observed values of their sample. By default they are replaced by the means of that distribution, which
            vary less than the data does.
        Returns:
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
        draws, seed = (None, 0) if draws is None else (count(draws, "draws"), seed_of(random_state))
        x = _arrays.native(x)
        return beside(_core.impute(x, self._mixture(), draws, seed).astype(x.dtype, copy=False), X)

    def sample(self, n_samples: int = 1) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw samples: those that scikit-learn draws for the same `random_state`.
        Returns:
        X : ndarray of shape (n_samples, n_features) -- The samples, ordered by component.
        y : ndarray of shape (n_samples,) -- The component of each.
        """
        X, y = self.mixture_.sample(n_samples, self.random_state)
        return beside(X, self.means_), beside(y, self.means_)
