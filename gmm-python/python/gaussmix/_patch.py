"""Puts our mixtures in the place of scikit-learn's, and our hidden Markov models in the place of hmmlearn's."""

import importlib
import sys
from abc import ABCMeta
from collections.abc import Collection
from types import ModuleType

import sklearn.mixture

from . import _estimator, _variational
from ._parameters import BayesianScikitLearn, ScikitLearn


class _EitherClass(ABCMeta):
    """Has the objects of scikit-learn's class and of ours count as objects of the class that is in the place of scikit-learn's."""

    def __instancecheck__(cls, instance: object) -> bool:
        return issubclass(type(instance), cls)

    def __subclasscheck__(cls, subclass: type) -> bool:
        # Classes that inherit from that class have their own objects only.
        classes = _CLASSES.get(cls)
        return super().__subclasscheck__(subclass) if classes is None else issubclass(subclass, classes)


class GaussianMixture(_estimator.GaussianMixture, metaclass=_EitherClass):
    """Our mixture under scikit-learn's name."""


class BayesianGaussianMixture(_variational.BayesianGaussianMixture, metaclass=_EitherClass):
    """The same for the mixture by variational inference."""


#: The classes that are put in the place of scikit-learn's, with ours and scikit-learn's.
_CLASSES: dict[type, tuple[type, type]] = {
    GaussianMixture: (_estimator.GaussianMixture, ScikitLearn),
    BayesianGaussianMixture: (_variational.BayesianGaussianMixture, BayesianScikitLearn),
}


def patch_sklearn() -> None:
    """Put our mixtures in the place of `sklearn.mixture.GaussianMixture` and `sklearn.mixture.BayesianGaussianMixture`.

    Modules that have imported these classes by their names get ours too. Objects of scikit-learn's classes, also those
    that were made before, and of ours are instances of the classes in their place. From then on ours are instances of
    scikit-learn's classes and of its `BaseMixture` too, for modules that have these by other names.
    """
    for patched, (ours, theirs) in _CLASSES.items():
        theirs.register(ours)  # type: ignore[attr-defined]
        _replace(theirs, patched, sklearn.mixture)


def unpatch_sklearn() -> None:
    """Undo `patch_sklearn`."""
    for patched, (_, theirs) in _CLASSES.items():
        _replace(patched, theirs, sklearn.mixture)


#: The modules of hmmlearn with classes that are replaced by ours.
_HMMLEARN = {"GaussianHMM": "hmmlearn.hmm", "GMMHMM": "hmmlearn.hmm", "VariationalGaussianHMM": "hmmlearn.vhmm"}
#: hmmlearn's own, while ours are in their place.
_THEIRS: dict[str, type] = {}
#: The modules that had ours by their names before, which they keep.
_WITH_OURS: set[str] = set()


def patch_hmmlearn() -> None:
    """Put our hidden Markov models in the place of hmmlearn's `GaussianHMM`, `GMMHMM` and `VariationalGaussianHMM`.

    Modules that have imported these classes by their names get ours too.
    """
    from . import hmm

    for name, home in _HMMLEARN.items():
        module = importlib.import_module(home)
        if name not in _THEIRS:
            _WITH_OURS.update(of for of, some in list(sys.modules.items()) if getattr(some, "__dict__", {}).get(name) is getattr(hmm, name))
        _THEIRS.setdefault(name, getattr(module, name))
        _replace(_THEIRS[name], getattr(hmm, name), module)


def unpatch_hmmlearn() -> None:
    """Undo `patch_hmmlearn`."""
    from . import hmm

    for name, theirs in _THEIRS.items():
        _replace(getattr(hmm, name), theirs, sys.modules[_HMMLEARN[name]], _WITH_OURS)
    _THEIRS.clear()
    _WITH_OURS.clear()


def _replace(old: type, new: type, home: ModuleType, but: Collection[str] = ()) -> None:
    title = new.__name__
    for name, module in list(sys.modules.items()):
        inside = name in but or name.split(".")[0] in ("sklearn", "hmmlearn", "gaussmix")
        # A look into the dictionary, because some modules import others when an attribute is asked for.
        if not inside and getattr(module, "__dict__", {}).get(title) is old:
            setattr(module, title, new)
    setattr(home, title, new)
