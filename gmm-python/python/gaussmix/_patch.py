"""Puts our mixture in the place of scikit-learn's."""

from __future__ import annotations

import functools
import sys
import warnings
from abc import ABCMeta
from collections.abc import Callable
from typing import Any

import sklearn.mixture
from sklearn import get_config

from ._estimator import GaussianMixture
from ._fitted import ScikitLearn
from ._parameters import SHARED


class _EitherClass(ABCMeta):
    """Has the objects of scikit-learn's class and of ours count as objects of the class that is in the place of scikit-learn's."""

    def __instancecheck__(cls, instance: object) -> bool:
        # Classes that inherit from that class have their own objects only.
        return isinstance(instance, (GaussianMixture, ScikitLearn)) if cls is _Patched else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, (GaussianMixture, ScikitLearn)) if cls is _Patched else super().__subclasscheck__(subclass)


class _Patched(GaussianMixture, metaclass=_EitherClass):
    """Our mixture under scikit-learn's name, which leaves to scikit-learn what it cannot serve."""

    def _theirs(self) -> Any:
        """Give scikit-learn's object with what this one has."""
        params = self.get_params()
        other = ScikitLearn(**{name: params[name] for name in SHARED})
        other.__dict__.update(_attributes(self))
        return other


def _attributes(estimator: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(estimator).items() if name.endswith("_") and not name.startswith("_")}


def _or_theirs(name: str) -> Callable[..., Any]:
    """Make a method that calls ours, or scikit-learn's for what ours cannot take."""
    ours = getattr(GaussianMixture, name)

    @functools.wraps(ours)
    def method(self: _Patched, *args: Any, **kwargs: Any) -> Any:
        data = args[0] if args and name != "sample" else kwargs.get("X", getattr(self, "means_", None))
        why = _cannot(data)
        if why is None:
            return ours(self, *args, **kwargs)
        warnings.warn(f"scikit-learn's own GaussianMixture does this: {why}", UserWarning, stacklevel=2)
        other = self._theirs()
        result = getattr(other, name)(*args, **kwargs)
        if name not in ("fit", "fit_predict"):
            return result
        self.__dict__.update(_attributes(other), retained_=[], _average=None, _chunks=0, _made=None)
        return self if name == "fit" else result

    return method


for _name in (
    "fit",
    "fit_predict",
    "predict",
    "predict_proba",
    "score_samples",
    "score",
    "bic",
    "aic",
    "sample",
):
    setattr(_Patched, _name, _or_theirs(_name))

# The name that shows in messages and in the repr.
_Patched.__name__ = "GaussianMixture"


def _cannot(X: Any) -> str | None:
    """Say why the engine cannot take ``X``, if it cannot."""
    if get_config().get("array_api_dispatch") and hasattr(X, "__array_namespace__"):
        namespace = getattr(X.__array_namespace__(), "__name__", "")
        if namespace != "numpy":
            return f"array_api_dispatch is enabled, and the data is an array of {namespace}"
    return None


def patch_sklearn() -> None:
    """Put our mixture in the place of `sklearn.mixture.GaussianMixture`.

    Modules that have imported that class by its name get ours too. What the engine cannot serve is left to
    scikit-learn, with a warning that says why.

    Objects of scikit-learn's class, also those that were made before, and of ours are instances of the class in its place. From then
    on ours are instances of scikit-learn's class and of its `BaseMixture` too, for modules that have these by other names.
    """
    ScikitLearn.register(GaussianMixture)
    _replace(ScikitLearn, _Patched)


def unpatch_sklearn() -> None:
    """Undo `patch_sklearn`."""
    _replace(_Patched, ScikitLearn)


def _replace(old: type, new: type) -> None:
    for name, module in list(sys.modules.items()):
        inside = name == "sklearn" or name.startswith(("sklearn.", "gaussmix"))
        # A look into the dictionary, because some modules import others when an attribute is asked for.
        if not inside and getattr(module, "__dict__", {}).get("GaussianMixture") is old:
            module.GaussianMixture = new  # type: ignore[attr-defined]
    sklearn.mixture.GaussianMixture = new
