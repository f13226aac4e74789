"""The samples a fit uses, and the evaluation of mixtures over them on their device."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from . import _arrays, _core, _start
from ._arrays import Floats, checked_labels, checked_weights, load, n_threads, validated
from ._gpu import on_gpu, on_host
from ._reports import Course
from ._units import Moments, Units


class Evaluations(Protocol):
    """Samples in a device or in several, as `_fit` uses them."""

    @property
    def total_weight(self) -> float: ...

    def labels(self, mixture: _core.Mixture) -> NDArray[np.int64]: ...

    def e_step(self, mixture: _core.Mixture) -> _core.Statistics: ...

    def fit(
        self,
        options: dict[str, Any],
        course: Course | None,
        before: _core.Mixture | _core.VariationalMixture | None = None,
        lower_bound: float | None = None,
    ) -> _core.Fit: ...


class Samples(AbstractContextManager["Samples"]):
    """What `_fit` is to fit to: here an array of this process, in a subclass the partitions of a cluster."""

    #: N and D.
    shape: tuple[int, int]
    #: The type of the attributes.
    dtype: np.dtype[Any]
    #: What is fitted.
    estimator: Any
    #: Whether there are labels.
    labelled: bool

    def _start_is_by_labels(self) -> bool:
        """Say whether the engine finds the start, which heeds labels; scikit-learn's does not."""
        return self.labelled and _start.is_name(self.estimator.init_params)

    @abstractmethod
    def load(self) -> Evaluations:
        """Bring the samples to the device."""

    @abstractmethod
    def standardize(self) -> tuple[Units, Evaluations]:
        """Change to columns of mean 0 and standard deviation 1."""

    @abstractmethod
    def start(
        self, parameters: _start.Parameters, random_state: np.random.RandomState, total_weight: float
    ) -> tuple[_core.Mixture | None, float]:
        """Return the mixture that a run starts at, as `_start.start` does."""

    @abstractmethod
    def statistics(self, random_state: np.random.RandomState) -> _core.Statistics | None:
        """Return the statistics of scikit-learn's start, or nothing where the engine is to find one."""

    def fit_side_by_side(self, estimator: Any) -> _core.Fit | None:
        """Make the runs of a fit on different cores, where that is faster."""
        return None

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        pass


class ArraySamples(Samples):
    """An array of this process."""

    def __init__(self, estimator: Any, X: Any, sample_weight: Any, labels: Any = None, units: Units | None = None) -> None:
        self.estimator, self.given, self.sample_weight = estimator, X, sample_weight
        #: Those of `standardize`, where they are not to be those of these samples.
        self.units = units
        self.X: Floats | _core.GpuArray = validated(estimator, X, reset=True, min_samples=2)
        self.shape, self.dtype = (self.X.shape[0], self.X.shape[1]), self.X.dtype
        self.labelled = labels is not None
        self.labels = None if labels is None else checked_labels(labels, self.shape[0], estimator.n_components)
        if labels is not None and on_gpu(self.X):
            raise ValueError("labels do not go with an array in a GPU's memory; bring the array to the host")

    def __enter__(self) -> ArraySamples:
        return self

    def load(self) -> _core.Data:
        if self.estimator.standardize and on_gpu(self.X):
            raise ValueError(
                "standardize=True does not take an array in a GPU's memory; scale the columns there, or bring the "
                "array to the host"
            )
        self.weights = checked_weights(self.sample_weight, self.shape[0])
        data = self._load(self.given)
        if self.estimator.missing:
            # `validated` refuses what is not on the host.
            _arrays.note_missing(_arrays.Missing.of(on_host(self.X), self.weights))
        return data

    def _load(self, original: Any = None) -> _core.Data:
        estimator, threads = self.estimator, n_threads(self.estimator.n_jobs)
        how = {"device": estimator.device, "threads": threads, "labels": self.labels}
        return load(estimator, self.X, self.weights, original=original, **how)

    def standardize(self) -> tuple[Units, _core.Data]:
        # `load` refuses what is not on the host.
        X: Floats = on_host(self.X)
        if self.units is None:
            Units.check(self.estimator.covariance_type)
            self.units = Units.of(Moments.of(X, self.weights), self.estimator.covariance_type)
        self.X = self.units.apply(X)
        return self.units, self._load()

    def fit_many(self, estimators: list[Any]) -> _core.Fits:
        """Fit several estimators to the samples, on each core another run."""
        fits = _core.fit_many(
            on_host(self.X),
            [(0, self.shape[0])] * len(estimators),
            self.weights,
            [estimator._options(self.shape[1]) for estimator in estimators],
            [_start.runs(estimator) for estimator in estimators],
            threads=n_threads(self.estimator.n_jobs),
            missing=self.estimator.missing,
        )
        if fits.error is not None:
            raise fits.error
        return fits

    def fit_side_by_side(self, estimator: Any) -> _core.Fit | None:
        if self.labels is not None or not _start.is_side_by_side(self.X, estimator):
            return None
        return self.fit_many([estimator])[0]

    def start(
        self, parameters: _start.Parameters, random_state: np.random.RandomState, total_weight: float
    ) -> tuple[_core.Mixture | None, float]:
        if self._start_is_by_labels():
            return None, 0.0
        return _start.start(self.X, parameters, self.estimator, random_state, self.weights, total_weight, self.units)

    def statistics(self, random_state: np.random.RandomState) -> _core.Statistics | None:
        x = None if self._start_is_by_labels() else _start.few(self.X, self.estimator)
        return None if x is None else _start.statistics_of(x, self.estimator, random_state, self.weights, self.units)
