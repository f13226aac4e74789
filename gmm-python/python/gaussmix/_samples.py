"""The samples a fit uses, and the evaluation of mixtures over them on their device."""

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from . import _arrays, _core, _start
from ._arrays import Floats, Self, Weights, checked_labels, checked_weights, load, validated
from ._gpu import on_gpu, on_host
from ._parameters import seed_of
from ._reports import Course, Start, Task


class Evaluations(Protocol):
    """Samples in a device or in several, as `_fit` uses them."""

    @property
    def total_weight(self) -> float: ...

    def labels(self, mixture: _core.Mixture) -> NDArray[np.int64]: ...

    def e_step(self, mixture: _core.Mixture) -> _core.Statistics: ...

    def fit(self, options: dict[str, Any], course: Course | None, before: Any, lower_bound: float | None, units: Any) -> _core.Fit: ...


class Samples(ABC):
    """What `_fit` is to fit to: here an array of this process, in a subclass the partitions of a cluster."""

    #: N and D.
    shape: tuple[int, int]
    #: The type of the attributes.
    dtype: np.dtype[Any]
    #: What is fitted.
    estimator: Any
    #: Whether there are labels.
    labelled: bool
    #: What scikit-learn's callbacks are told.
    task: Task | None = None
    #: The units of standardised samples.
    units: _core.Standardization | None = None
    #: The noise of each sample, as the engine takes it.
    noise: Any = None

    @abstractmethod
    def load(self) -> Evaluations:
        """Bring the samples to the device."""

    @abstractmethod
    def standardize(self) -> Evaluations:
        """Change to columns of mean 0 and standard deviation 1, the `units`."""

    @abstractmethod
    def _rows(self) -> tuple[Floats, Weights]:
        """Return all samples, in the `units`, and their weights if they have some."""

    def start(self, random_state: np.random.RandomState, total_weight: float) -> Start:
        """Return where a run begins."""
        estimator = self.estimator
        if all(getattr(estimator, name, None) is not None for name in _start.INITIAL):
            # The engine needs no random numbers.
            return 0
        by_name = isinstance(estimator.init_params, str)
        # scikit-learn's start does not heed labels; the engine's does.
        if not (by_name and self.labelled) and _start.is_of_scikit_learn(self.shape, estimator):
            X, weights = self._rows()
            # Nor does its k-means take missing values.
            if not (by_name and estimator.missing and np.isnan(X).any()):
                return _start.start(X, estimator, random_state, weights, total_weight, self.units)
        return seed_of(random_state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        pass


class ArraySamples(Samples):
    """An array of this process."""

    def __init__(self, estimator: Any, X: Any, sample_weight: Any, labels: Any = None, units: _core.Standardization | None = None) -> None:
        self.estimator, self.given, self.sample_weight = estimator, X, sample_weight
        #: Those of `standardize`, where they are not to be those of these samples.
        self.units = units
        self.X: Floats | _core.GpuArray = validated(estimator, X, reset=True, min_samples=2)
        self.shape, self.dtype = (self.X.shape[0], self.X.shape[1]), self.X.dtype
        self.labelled = labels is not None
        self.labels = None if labels is None else checked_labels(labels, self.shape[0], estimator.n_components)
        if labels is not None and on_gpu(self.X):
            raise ValueError("labels do not go with an array in a GPU's memory; bring the array to the host")

    def load(self) -> _core.Data:
        if self.estimator.standardize and on_gpu(self.X):
            raise ValueError(
                "standardize=True does not take an array in a GPU's memory; scale the columns there, or bring the array to the host"
            )
        self.weights = checked_weights(self.sample_weight, self.shape[0])
        data = self._load(self.given)
        if self.estimator.missing:
            # `validated` refuses what is not on the host.
            _arrays.note_missing(_arrays.Missing.of(on_host(self.X), self.weights))
        return data

    def _load(self, original: Any = None) -> _core.Data:
        return load(self.estimator, self.X, self.weights, original=original, labels=self.labels, noise=self.noise)

    def standardize(self) -> _core.Data:
        # `load` refuses what is not on the host.
        X: Floats = on_host(self.X)
        if self.units is None:
            _start.check_units(self.estimator)
            self.units = _core.Standardization.of(X, self.weights)
        self.X = self.units.apply(X)
        return self._load()

    def _rows(self) -> tuple[Floats, Weights]:
        return on_host(self.X), self.weights

    def fit_many(self, estimators: list[Any]) -> _core.Fits:
        """Fit several estimators to the samples, on each core another run."""
        fits = _start.fit_many(on_host(self.X), [(0, self.shape[0])] * len(estimators), self.weights, estimators)
        if fits.error is not None:
            raise fits.error
        return fits
