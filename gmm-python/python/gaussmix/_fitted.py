"""A fitted mixture: its attributes, and the other forms that it can have."""

from __future__ import annotations

import math
import os
from abc import ABCMeta, abstractmethod
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from . import _core
from ._attributes import attribute_type
from ._documentation import documented
from ._gpu import on_host
from ._mixture import ARRAYS, Mixture, names_in_file
from ._reports import Estimator

if TYPE_CHECKING:
    from typing_extensions import Self


def take_features(to: Any, of: Any) -> None:
    """Take the number of features, and their names, if there are any, of another estimator."""
    to.n_features_in_ = of.n_features_in_
    if hasattr(of, "feature_names_in_"):
        to.feature_names_in_ = of.feature_names_in_
    else:
        to.__dict__.pop("feature_names_in_", None)


#: The bytes of arrays that are worth a comparison by elements.
_SMALL = 1 << 14


class Abstract(ABCMeta):
    """Classes with abstract methods, but no virtual subclasses: `_patch` says which other objects count."""

    __instancecheck__ = type.__instancecheck__
    __subclasscheck__ = type.__subclasscheck__


def _equal(kept: NDArray[Any], value: Any) -> bool:
    """Say whether an attribute is what it was."""
    # Bits of small arrays are compared in less time, and large ones are not to be copied.
    now = value if type(value) is np.ndarray else np.asarray(on_host(value))
    return kept.tobytes() == now.tobytes() if now.nbytes < _SMALL else np.array_equal(kept, now)


@documented
class Fitted(DensityMixin, Estimator, metaclass=Abstract):  # type: ignore[misc]  # scikit-learn has no types
    """The attributes that every fitted mixture has."""

    covariance_type: str
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
        return on_host(self.means_).dtype  # type: ignore[no-any-return]

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

    def _take_bounds(self, found: dict[str, Any]) -> None:
        """Set what a file says of how a fit found the mixture, and of the features."""
        self.n_features_in_ = self.means_.shape[1]
        names = found.get("feature_names")
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        bounds = found.get("lower_bounds")
        self.lower_bounds_ = [] if bounds is None else list(bounds)
        bound = found.get("lower_bound")
        self.lower_bound_ = -math.inf if bound is None else float(bound)
        self.n_iter_ = int(found.get("n_iter") or 0)
        self.converged_ = bool(found.get("converged"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the mixture to a file that the command ``gmm`` and `load` read.

        The names of the features (``feature_names_in_``) are written too: ``gmm`` finds the columns of a table by them.
        Parameters: path
        """
        check_is_fitted(self)
        names = names_in_file(getattr(self, "feature_names_in_", None))
        self._written().write(os.fspath(path), self.converged_, self.n_iter_, self.lower_bounds_, names)

    @classmethod
    def load(cls, path: str | os.PathLike[str], **params: Any) -> Self:
        """Read what `save` wrote, or the command ``gmm``.
        Parameters: path
        **params : dict -- Parameters of the estimator, which the file does not hold.
        Returns: gm : object -- The estimator as if fitted, in float64, with ``feature_names_in_`` if the file has names.
        """
        engine, found = cls._engine_class.read(os.fspath(path))
        return cls._of(engine, np.dtype(np.float64), found, params)

    @classmethod
    def _of(cls, engine: Any, dtype: np.dtype[Any], found: dict[str, Any], params: dict[str, Any]) -> Self:
        if getattr(engine, "noise", None) is not None:
            params = {"noise": True, **params}
        gm = cls(n_components=len(engine.means), covariance_type=getattr(engine, "covariance_model", engine.covariance_type), **params)
        gm._forget()
        gm._set(engine, dtype)
        gm._take_bounds(found)
        return gm

    @classmethod
    def _shared(cls) -> list[str]:
        """Return the names of the parameters that scikit-learn's class has too."""
        own = signature(cls).parameters
        return [name for name in signature(cls._theirs).parameters if name in own]

    def to_sklearn(self) -> Any:
        """Return the same mixture as an object of scikit-learn.
        Returns: gm : object -- Of the class that this one replaces, with the same parameters, and fitted if this one is.
        """
        self.mixture_._check_no_noise("scikit-learn's class") if hasattr(self, "means_") else None
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
        """Make a mixture of an object of scikit-learn.
        Parameters:
        gm : sklearn.mixture.GaussianMixture or sklearn.mixture.BayesianGaussianMixture
            The mixture, fitted or not; of the class that this one replaces.
        **params : dict -- Parameters that scikit-learn's estimator does not have.
        Returns: gm : object -- The mixture, with the same parameters, and fitted if the other is.
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
