"""A fitted mixture: its attributes, and the other forms that it can have."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.mixture import GaussianMixture as _ScikitLearn
from sklearn.utils.validation import check_is_fitted

from . import _core
from ._attributes import attribute_type
from ._parameters import SHARED

if TYPE_CHECKING:
    from typing_extensions import Self

#: scikit-learn's class, also when ours is in its place.
ScikitLearn: Any = _ScikitLearn
#: The attributes of a fitted mixture that are arrays.
_ARRAYS = ("weights_", "means_", "covariances_", "precisions_cholesky_", "precisions_")


def take_features(to: Any, of: Any) -> None:
    """Take the number of features, and their names, if there are any, of another estimator."""
    to.n_features_in_ = of.n_features_in_
    if hasattr(of, "feature_names_in_"):
        to.feature_names_in_ = of.feature_names_in_
    else:
        to.__dict__.pop("feature_names_in_", None)


class Fitted(DensityMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
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
    #: What the engine has made of the attributes.
    _made: Any
    #: The statistics per sample, and the number, of the chunks that `partial_fit` has seen.
    _average: _core.Statistics | None = None
    _chunks: int = 0
    #: The parameters that scikit-learn's class has too.
    _shared: ClassVar[tuple[str, ...]]

    def _set_arrays(
        self, mixture: _core.Mixture | _core.VariationalMixture, dtype: np.dtype[Any]
    ) -> np.dtype[Any]:
        """Set the arrays of a mixture, in the type that is given back."""
        dtype = attribute_type(mixture, dtype)
        for name in _ARRAYS:
            setattr(self, name, getattr(mixture, name.rstrip("_")).astype(dtype, copy=False))
        return dtype

    def _mixture(self) -> _core.Mixture:
        """Give the mixture of which the probabilities of the components are, and the densities but for a factor."""
        raise NotImplementedError

    def _log_factor(self) -> float:
        """Give the logarithm of that factor."""
        return 0.0

    def _point(self) -> _core.Mixture:
        """Give the mixture of the attributes `weights_`, `means_` and `covariances_`."""
        raise NotImplementedError

    def _forget(self) -> None:
        """Forget what has been made of earlier attributes, and what `partial_fit` goes on from."""
        self._made = self._average = None
        self._chunks = 0

    def _take_fit(self, other: Fitted) -> None:
        """Take the attributes of a fitted mixture, without what `partial_fit` goes on from."""
        self.__dict__.update({name: value for name, value in vars(other).items() if name.endswith("_")})
        self._made = self._average = None
        self._chunks = 0

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

    def _feature_names(self) -> list[str] | None:
        """Give the names of the features for a file."""
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            return None
        texts = [str(name) for name in names]
        if len(set(texts)) == len(texts):
            return texts
        # A table's columns cannot be found by names that stand for several of them.
        twice = next(name for number, name in enumerate(texts) if name in texts[:number])
        warnings.warn(
            f"two features are called {twice!r}, so that the file has no names, and its model takes columns by their order; "
            "give them different names",
            UserWarning,
            stacklevel=3,
        )
        return None

    def _written(self) -> _core.Mixture | _core.VariationalMixture:
        """Give what a file holds."""
        return self._mixture()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the mixture to a file that the command ``gmm`` and `load` read.

        The names of the features (``feature_names_in_``) are written too: ``gmm`` finds the columns
        of a table by them.

        Parameters
        ----------
        path : str or path-like
            The file; its name ends in .json or .npz.
        """
        check_is_fitted(self)
        self._written().write(
            os.fspath(path), self.converged_, self.n_iter_, self.lower_bounds_, self._feature_names()
        )

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        if "_made" in state:
            # It is made anew of the attributes.
            state["_made"] = None
        return state

    def _copy_to(self, other: Any, more: Iterable[str]) -> Any:
        """Give an object of scikit-learn the attributes of this one."""
        fitted = (*_ARRAYS, "converged_", "n_iter_", "lower_bound_", "lower_bounds_", "n_features_in_")
        for name in (*fitted, "feature_names_in_", *more):
            if hasattr(self, name):
                setattr(other, name, getattr(self, name))
        return other

    def _take_from(self, other: Any) -> None:
        """Take the attributes of a fitted object of scikit-learn."""
        for name, value in vars(other).items():
            if name.endswith("_") and not name.startswith("_"):
                setattr(self, name, value)
        self.lower_bounds_ = list(getattr(other, "lower_bounds_", []))
        self._forget()
        self._mixture()

    @classmethod
    def from_sklearn(cls, gm: Any, **params: Any) -> Self:
        """Make a mixture of an object of scikit-learn.

        Parameters
        ----------
        gm : sklearn.mixture.GaussianMixture or sklearn.mixture.BayesianGaussianMixture
            The mixture, fitted or not; of the class in whose place this one can be put.
        **params : dict
            Parameters that scikit-learn's estimator does not have.

        Returns
        -------
        gm : object
            The mixture, with the same parameters, and fitted if the other is.
        """
        own = gm.get_params()
        made = cls(**{name: own[name] for name in cls._shared}, **params)
        if hasattr(gm, "means_"):
            made._take_from(gm)
        return made


class FittedMixture(Fitted):
    """The attributes of a mixture that EM has fitted, and the ways to and from parameters, files and scikit-learn's class."""

    retained_: list[int]
    _shared = SHARED
    _made: _core.Mixture | None

    def _forget(self) -> None:
        super()._forget()
        self.retained_ = []

    def _set_mixture(self, mixture: _core.Mixture, dtype: np.dtype[Any]) -> None:
        self._set_arrays(mixture, dtype)
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

    def _point(self) -> _core.Mixture:
        return self._mixture()

    @classmethod
    def from_parameters(
        cls,
        weights: ArrayLike,
        means: ArrayLike,
        covariances: ArrayLike,
        *,
        covariance_type: str | None = None,
        **params: Any,
    ) -> Self:
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
    ) -> Self:
        gm = cls(len(mixture.weights), covariance_type=mixture.covariance_type, **params)
        gm._forget()
        gm._set_mixture(mixture, dtype)
        gm._take_bounds(found)
        return gm

    @classmethod
    def load(cls, path: str | os.PathLike[str], **params: Any) -> Self:
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
        other = ScikitLearn(**{name: params[name] for name in SHARED})
        return self._copy_to(other, ())
