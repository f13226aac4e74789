"""What the estimators have in common that fit Gaussian mixtures for another task: outliers, classification, regression."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from . import _core, _parameters
from ._arrays import Floats, is_plain, load, n_threads, takes_missing, validated
from ._estimator import GaussianMixture


def constraints(without: Collection[str] = ()) -> dict[str, list[Any]]:
    """Give what the parameters of `GaussianMixture` may be, but for some."""
    return {name: allowed for name, allowed in _parameters.CONSTRAINTS.items() if name not in without}


class OfMixtures(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator with the parameters of `GaussianMixture`, which makes its mixtures.

    The decorator `with_parameters_of` says which of them a subclass has.
    """

    device: str
    n_jobs: int | None
    random_state: int | np.random.RandomState | None
    n_features_in_: int
    _parameter_constraints: ClassVar[dict[str, list[Any]]]

    def __init__(self, n_components: Any = 1, **params: Any) -> None:
        names = inspect.signature(type(self)).parameters
        for name in params:
            if name not in names:
                raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument {name!r}")
        own = GaussianMixture(n_components, **params).get_params(deep=False)
        self.__dict__.update({name: value for name, value in own.items() if name in names})

    def __sklearn_tags__(self) -> Any:
        """Say what the estimator takes."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = takes_missing(self)
        return tags

    def _validate_params(self) -> None:
        """Check the parameters, unless equal ones of this class have passed before."""
        _parameters.validate(self, super()._validate_params)

    def _unfitted(self, **params: Any) -> GaussianMixture:
        """Make a mixture with the parameters of this estimator, or with others."""
        own = {name: getattr(self, name) for name in _parameters.CONSTRAINTS if hasattr(self, name)}
        return GaussianMixture(**{**own, **params})

    def _to_be_fitted(self) -> GaussianMixture:
        """Make the mixture of this estimator, or take the fitted one to go on with."""
        if getattr(self, "warm_start", False) and hasattr(self, "mixture_"):
            fitted: GaussianMixture = self.mixture_.set_params(**self._unfitted().get_params(deep=False))
            return fitted
        return self._unfitted()

    def _checked(self, X: Any, *, reset: bool) -> Floats | _core.GpuArray:
        """Check samples, for a fit or for the fitted estimator; in those for the latter the engine looks for NaN."""
        if reset:
            return validated(self, X, reset=True, min_samples=2, check_finite=True)
        attributes = self.__dict__
        if "feature_names_in_" not in attributes and is_plain(X, attributes.get("n_features_in_", -1)):
            # What scikit-learn's function would do, in less time than it takes to find out.
            return X
        check_is_fitted(self)
        return validated(self, X, reset=False)

    def _load(self, x: Floats | _core.GpuArray, X: Any) -> _core.Data:
        """Bring checked samples to the device; ``X`` is what the caller gave."""
        return load(self, x, None, device=self.device, threads=n_threads(self.n_jobs), original=X)
