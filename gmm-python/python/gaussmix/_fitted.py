"""A fitted mixture: its attributes, the other forms that it can have, and what it says of samples."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from inspect import signature
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from . import _arrays, _core
from ._arrays import Floats, Self, checked_weights, load, n_threads, validated
from ._attributes import attribute_type
from ._gpu import beside, on_host
from ._mixture import ARRAYS, Mixture, names_in_file
from ._parameters import count, seed_of
from ._reports import Estimator


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


class Fitted(DensityMixin, Estimator):  # type: ignore[misc]  # scikit-learn has no types
    """The attributes of a fitted mixture, its other forms, and the methods that evaluate samples, or draw them."""

    covariance_type: str
    device: str
    n_jobs: int | None
    reproducible: bool = False
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
    #: Copies of the attributes, what the engine has of them, and `mixture_`.
    _made: tuple[list[NDArray[Any]], Any] | None = None
    _value: Mixture | None = None
    #: The statistics per sample, and the number, of the chunks that `partial_fit` has seen.
    _average: _core.Statistics | None = None
    _chunks: int = 0
    #: scikit-learn's class, and the attributes that its objects have beside those of every mixture.
    _theirs: ClassVar[Any]
    _more: ClassVar[tuple[str, ...]] = ()
    #: What the engine has of such mixtures.
    _engine_class: ClassVar[Any]

    @property
    def mixture_(self) -> Mixture:
        """The mixture of the attributes `weights_`, `means_` and `covariances_`, which may have been set by hand."""
        check_is_fitted(self)
        engine, names = self._point(), getattr(self, "feature_names_in_", None)
        named = None if names is None else tuple(map(str, names))
        if self._value is None or self._value._engine is not engine or self._value._names != named:
            self._value = Mixture._of(engine, named)
        return self._value

    @abstractmethod
    def _point(self) -> _core.Mixture:
        """Return the engine's mixture of the attributes."""

    @abstractmethod
    def _mixture(self) -> _core.Mixture:
        """Return the mixture behind `predict_proba`. Its densities must be multiplied by exp(`_log_factor()`)."""

    def _log_factor(self) -> float:
        return 0.0

    @abstractmethod
    def _written(self) -> _core.Mixture | _core.VariationalMixture:
        """Return what a file holds."""

    def _deciding(self) -> tuple[Any, ...]:
        """Return the attributes that decide what the engine has."""
        return self.weights_, self.means_, self.precisions_cholesky_

    @abstractmethod
    def _make(self) -> Any:
        """Make of the attributes what the engine has."""

    def _current(self) -> Any:
        """Return what the engine has of the attributes, which is made again where these have changed."""
        if self._made is None or not all(map(_equal, self._made[0], self._deciding())):
            self._keep_made(self._make())
        return self._made[1]  # type: ignore[index]

    def _keep_made(self, made: Any) -> None:
        self._made = [np.array(on_host(value)) for value in self._deciding()], made

    def _point_of_attributes(self) -> _core.Mixture:
        weights, means, covariances, factors = (on_host(getattr(self, name, None)) for name in ARRAYS[:4])
        noise = getattr(self, "noise_", None)
        return _core.Mixture.from_attributes(weights, means, covariances, factors, self.covariance_type, noise)

    def _type(self) -> np.dtype[Any]:
        """Return the type of the attributes."""
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

    def _take_fit(self, other: Fitted) -> None:
        """Take the attributes of a fitted mixture, without what `partial_fit` goes on from."""
        self.__dict__.update({name: value for name, value in vars(other).items() if name.endswith("_")})
        self._forget()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the mixture to a file that the command ``gmm`` and `load` read.

        The names of the features (``feature_names_in_``) are written too: ``gmm`` finds the columns of a table by them.
        """
        check_is_fitted(self)
        names = names_in_file(getattr(self, "feature_names_in_", None))
        self._written().write(os.fspath(path), self.converged_, self.n_iter_, self.lower_bounds_, names)

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
            try:
                threads, missing = n_threads(self.n_jobs), _arrays.takes_missing(self)
                mean = _core.mean_score(X, self._mixture(), self.device, threads, _arrays.MEMORY, missing)
                return mean + self._log_factor()
            except _core.NonFiniteError as error:
                _arrays.refuse_non_finite(self, X, error)
                raise
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
