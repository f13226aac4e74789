"""Puts our mixture in the place of scikit-learn's."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import sklearn.mixture
from sklearn import get_config

from ._estimator import _SHARED, GaussianMixture, ScikitLearn


class _Patched(GaussianMixture):
    """Our mixture under scikit-learn's name, which leaves to scikit-learn what it cannot serve."""

    def _fit(self, X: Any, sample_weight: Any) -> Any:
        why = _cannot(X)
        if why is None:
            return super()._fit(X, sample_weight)
        if sample_weight is not None:
            raise ValueError(f"{why}, and scikit-learn's GaussianMixture takes no sample_weight")
        warnings.warn(f"scikit-learn's GaussianMixture fits this: {why}", UserWarning, stacklevel=4)
        params = self.get_params()
        other = ScikitLearn(**{name: params[name] for name in _SHARED})
        if self.warm_start and hasattr(self, "converged_"):
            vars(other).update({name: value for name, value in vars(self).items() if name.endswith("_")})
        labels = other.fit_predict(X)
        vars(self).update({name: value for name, value in vars(other).items() if name.endswith("_")})
        self.retained_, self._average, self._chunks, self._made = [], None, 0, None
        return _Labels(labels)

    def _data(self, X: Any, sample_weight: Any = None) -> Any:
        why = _cannot(X)
        if why is None:
            return super()._data(X, sample_weight)
        warnings.warn(f"scikit-learn's GaussianMixture computes this: {why}", UserWarning, stacklevel=3)
        return _ScikitLearnData(self.to_sklearn(), X)

    def _mixture(self) -> Any:
        # Arrays of another library stay with scikit-learn.
        return None if _cannot(self.means_) else super()._mixture()


# The name that shows in messages and in the repr; pickles name the class that can be imported.
_Patched.__name__ = "GaussianMixture"


class _Labels:
    """What scikit-learn's fit gave, where our fit gives samples in a device."""

    def __init__(self, labels: Any) -> None:
        self._labels = labels

    def labels(self, mixture: object) -> Any:
        return self._labels


class _ScikitLearnData:
    """Samples of which scikit-learn computes."""

    def __init__(self, mixture: Any, X: Any) -> None:
        self.mixture, self.X = mixture, X
        self.total_weight = X.shape[0]

    def labels(self, mixture: object) -> Any:
        return self.mixture.predict(self.X)

    def responsibilities(self, mixture: object) -> Any:
        return _Array(self.mixture.predict_proba(self.X))

    def scores(self, mixture: object) -> Any:
        return _Array(self.mixture.score_samples(self.X))

    def mean_score(self, mixture: object) -> float:
        return float(self.mixture.score(self.X))


class _Array:
    """An array of another library, which stays what it is."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def astype(self, dtype: object, copy: bool = False) -> Any:
        return self.array


def _cannot(X: Any) -> str | None:
    """Say why the engine cannot take ``X``, if it cannot."""
    if get_config().get("array_api_dispatch") and hasattr(X, "__array_namespace__"):
        namespace = getattr(X.__array_namespace__(), "__name__", "")
        if namespace != "numpy":
            return f"array_api_dispatch is enabled and the data is an array of {namespace}"
    return None


def patch_sklearn() -> None:
    """Put our mixture in the place of `sklearn.mixture.GaussianMixture`.

    Modules that have imported that class by its name get ours too. What the engine cannot serve is left to
    scikit-learn, with a warning that says why.
    """
    _replace(ScikitLearn, _Patched)


def unpatch_sklearn() -> None:
    """Undo `patch_sklearn`."""
    _replace(_Patched, ScikitLearn)


def _replace(old: type, new: type) -> None:
    for name, module in list(sys.modules.items()):
        inside = name == "sklearn" or name.startswith(("sklearn.", "gaussmix"))
        if not inside and getattr(module, "GaussianMixture", None) is old:
            module.GaussianMixture = new  # type: ignore[attr-defined]
    sklearn.mixture.GaussianMixture = new
