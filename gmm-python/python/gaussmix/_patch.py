"""Puts our mixtures in the place of scikit-learn's."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import sklearn.mixture
from sklearn import get_config

from ._estimator import GaussianMixture
from ._fitted import Abstract
from ._parameters import BayesianScikitLearn, ScikitLearn
from ._variational import BayesianGaussianMixture
from ._warnings import warn


class _EitherClass(Abstract):
    """Has the objects of scikit-learn's class and of ours count as objects of the class that is in the place of scikit-learn's."""

    def __instancecheck__(cls, instance: object) -> bool:
        # Classes that inherit from that class have their own objects only.
        classes = _CLASSES.get(cls)
        return super().__instancecheck__(instance) if classes is None else isinstance(instance, classes)

    def __subclasscheck__(cls, subclass: type) -> bool:
        classes = _CLASSES.get(cls)
        return super().__subclasscheck__(subclass) if classes is None else issubclass(subclass, classes)


class _Patched(GaussianMixture, metaclass=_EitherClass):
    """Our mixture under scikit-learn's name, which leaves to scikit-learn what it cannot serve."""


class _PatchedBayesian(BayesianGaussianMixture, metaclass=_EitherClass):
    """The same for the mixture by variational inference."""


#: The classes that are put in the place of scikit-learn's, with ours and scikit-learn's.
_CLASSES: dict[type, tuple[type, type]] = {
    _Patched: (GaussianMixture, ScikitLearn),
    _PatchedBayesian: (BayesianGaussianMixture, BayesianScikitLearn),
}


def _or_theirs(name: str, own: type, theirs: type) -> Callable[..., Any]:
    """Make a method that calls ours, or scikit-learn's for what ours cannot take."""
    ours = getattr(own, name)

    @functools.wraps(ours)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        data = args[0] if args and name != "sample" else kwargs.get("X", getattr(self, "means_", None))
        why = _cannot(data)
        if why is None:
            return ours(self, *args, **kwargs)
        warn(f"scikit-learn's own {theirs.__name__} does this: {why}")
        other = self.to_sklearn()
        result = getattr(other, name)(*args, **kwargs)
        if name not in ("fit", "fit_predict"):
            return result
        self.__dict__.update({name: value for name, value in vars(other).items() if name.endswith("_") and not name.startswith("_")})
        self._forget()
        return self if name == "fit" else result

    return method


_METHODS = ("fit", "fit_predict", "predict", "predict_proba", "score_samples", "score", "bic", "aic", "sample")
for _patched, (_own, _of_scikit_learn) in _CLASSES.items():
    for _name in _METHODS:
        if hasattr(_own, _name):
            setattr(_patched, _name, _or_theirs(_name, _own, _of_scikit_learn))
    # The name that shows in messages and in the repr.
    _patched.__name__ = _own.__name__


def _cannot(X: Any) -> str | None:
    """Say why the engine cannot take ``X``, if it cannot."""
    if get_config().get("array_api_dispatch") and hasattr(X, "__array_namespace__"):
        namespace = getattr(X.__array_namespace__(), "__name__", "")
        if namespace != "numpy":
            return f"array_api_dispatch is enabled, and the data is an array of {namespace}"
    return None


def patch_sklearn() -> None:
    """Put our mixtures in the place of `sklearn.mixture.GaussianMixture` and `sklearn.mixture.BayesianGaussianMixture`.

    Modules that have imported these classes by their names get ours too. What the engine cannot serve is left to
    scikit-learn, with a warning that says why.

    Objects of scikit-learn's classes, also those that were made before, and of ours are instances of the classes in
    their place. From then on ours are instances of scikit-learn's classes and of its `BaseMixture` too, for modules
    that have these by other names.
    """
    for patched, (ours, theirs) in _CLASSES.items():
        theirs.register(ours)  # type: ignore[attr-defined]
        _replace(theirs, patched)


def unpatch_sklearn() -> None:
    """Undo `patch_sklearn`."""
    for patched, (_, theirs) in _CLASSES.items():
        _replace(patched, theirs)


def _replace(old: type, new: type) -> None:
    title = new.__name__
    for name, module in list(sys.modules.items()):
        inside = name == "sklearn" or name.startswith(("sklearn.", "gaussmix"))
        # A look into the dictionary, because some modules import others when an attribute is asked for.
        if not inside and getattr(module, "__dict__", {}).get(title) is old:
            setattr(module, title, new)
    setattr(sklearn.mixture, title, new)
