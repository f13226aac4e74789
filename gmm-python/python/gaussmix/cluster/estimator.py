"""The estimators of a cluster, on any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from inspect import Parameter, Signature, signature
from numbers import Integral
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from .. import _core, _estimator, _variational, deconvolution
from .._documentation import with_documentation_of
from .._fitting import Fitting, tried
from .._samples import Samples
from ..deconvolution._estimator import measurements
from .engine import Engine, InProcess, Plan
from .samples import ClusterSamples, Resident

_Estimator = TypeVar("_Estimator", bound="OnWorkers")


def on_workers(connection: str, kinds: Any, local: type[Any]) -> Callable[[type[_Estimator]], type[_Estimator]]:
    """Make a class the estimator `local` on workers, to which a parameter is the connection: one of these kinds, or None."""

    def change(cls: type[_Estimator]) -> type[_Estimator]:
        def init(self: _Estimator, *n_components: Any, **params: Any) -> None:
            OnWorkers.__init__(self, *n_components, **params)

        theirs, own = signature(local.__init__).parameters, signature(OnWorkers.__init__).parameters
        connected = Parameter(connection, Parameter.KEYWORD_ONLY, default=None, annotation="Any")
        named = [*theirs.values(), connected, own["partition_rows"], own["resident"]]
        init.__signature__ = Signature(named)  # type: ignore[attr-defined]
        cls.__init__, cls._LOCAL, cls._connection = init, local, connection  # type: ignore[method-assign]
        cls._parameter_constraints = {
            **local._parameter_constraints,
            connection: kinds,
            "partition_rows": [Interval(Integral, 1, None, closed="left"), None],
            "resident": ["boolean", None],
        }
        return with_documentation_of(local)(cls)

    return change


class OnWorkers(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The connection to workers, which hold the partitions that an estimator is fitted to."""

    engine: Engine | None
    partition_rows: int | None
    resident: bool | None
    #: The parameter that `clone` shares and a pickle leaves out, because it is a connection to workers.
    _connection: ClassVar[str]
    #: Callbacks have no estimator to evaluate samples by, which the workers hold.
    _with: Any = staticmethod(lambda gm: None)
    #: The estimator of one process.
    _LOCAL: ClassVar[type[Any]]

    def __init__(self, *n_components: Any, partition_rows: int | None = None, resident: bool | None = None, **params: Any) -> None:
        setattr(self, self._connection, params.pop(self._connection, None))
        self._LOCAL.__init__(self, *n_components, **params)
        self.partition_rows, self.resident = partition_rows, resident

    def __sklearn_clone__(self) -> OnWorkers:
        """Make an unfitted estimator with the same parameters, on the same workers."""
        held = getattr(self, self._connection)
        setattr(self, self._connection, None)
        try:
            made: OnWorkers = super().__sklearn_clone__()
        finally:
            setattr(self, self._connection, held)
        return made.set_params(**{self._connection: held})

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), self._connection: None}

    def _make_engine(self) -> Engine:
        return InProcess() if self.engine is None else self.engine

    def _own_rows(self, samples: ClusterSamples) -> slice:
        """Return which of all samples are those of this process."""
        return slice(None)

    def _beside(self, X: Any) -> tuple[Any, Any]:
        """Return samples with columns for what each has beside, and the noise of the options that shards are made with."""
        return X, None


class ClusterEstimator(OnWorkers, Fitting):
    """What mixtures on workers have in common."""

    def _plan(self, engine: Engine, X: Any, sample_weight: Any, labels: Any) -> Plan:
        return engine._plan(X, sample_weight, self.partition_rows, self.resident, labels, self.n_components)

    def _samples(self, X: Any, sample_weight: Any, labels: Any = None) -> Samples:
        return ClusterSamples(self, X, sample_weight, labels)

    def _evaluate(self, X: Any, sample_weight: Any, work: Callable[[Resident], Any]) -> Any:
        """Load samples for a fitted mixture, and drop them after `work`."""
        check_is_fitted(self)
        with ClusterSamples(self, X, sample_weight, reset=False) as samples:
            resident = samples._resident()
            return resident.remote.together(lambda: work(resident))

    def _statistics(self, X: Any, sample_weight: Any, mixture: _core.Mixture) -> Any:
        return self._evaluate(X, sample_weight, lambda data: data.e_step(mixture))

    def _total(self, X: Any, sample_weight: Any) -> tuple[float, float]:
        check_is_fitted(self)
        total, n = self._evaluate(X, sample_weight, lambda data: data.total(self._mixture()))
        return total + n * self._log_factor(), n

    def fit_predict(self, X: Any, y: object = None, sample_weight: Any = None, *, labels: Any = None) -> Any:
        if labels is not None:
            return super().fit_predict(X, y, sample_weight, labels=labels)
        return self.fit(X, sample_weight=sample_weight).predict(X)

    def score(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> float:
        total, n = self._total(X, sample_weight)
        return total / n

    def _values(self, operation: str, X: Any) -> Any:
        values = self._evaluate(X, None, lambda data: getattr(data.data, operation)(self._mixture()))
        return self._typed(operation, values, getattr(X, "dtype", None))

    def _local(self) -> Any:
        """Give the mixture as an estimator of one process."""
        local: Any = self._LOCAL(**{name: getattr(self, name) for name in self._LOCAL().get_params()})
        local._take_fit(self)
        return local


@on_workers("engine", [Engine, None], _estimator.GaussianMixture)
class GaussianMixture(ClusterEstimator, _estimator.GaussianMixture):
    """A Gaussian mixture, fitted to partitions that an engine's workers hold.

    Parameters, methods, attributes and errors are those of :class:`gaussmix.GaussianMixture`, and so are the results, but for the
    rounding of sums. `gaussmix.dask.GaussianMixture` and `gaussmix.mpi.GaussianMixture` bring their own engines.

    Samples are an array, which is divided, or paths of .npy and Parquet files, which the workers read. Sample weights
    and labels are arrays, or with files of samples paths of .npy files too.
    """

    def icl(self, X: Any, sample_weight: Any = None) -> float:
        # The workers sum no logarithms of probabilities.
        raise ValueError("icl is computed in one process: gaussmix.GaussianMixture.from_parameters(gm.mixture_).icl(X)")

    @classmethod
    def _fitted(cls, estimators: Iterable[Any], X: Any, sample_weight: Any) -> Iterator[_estimator.Tried]:
        samples: ClusterSamples | None = None
        with ExitStack() as stack:
            for estimator in estimators:
                estimator._validate_params()
                if samples is None:
                    # The workers load them once for all.
                    samples = stack.enter_context(ClusterSamples(estimator, X, sample_weight))
                else:
                    samples.serve(estimator)
                yield estimator, *tried(lambda: estimator._fit(samples).total(estimator._mixture()))


@on_workers("engine", [Engine, None], deconvolution.ExtremeDeconvolution)
class ExtremeDeconvolution(deconvolution.ExtremeDeconvolution, GaussianMixture):
    """Extreme deconvolution of partitions that an engine's workers hold.

    Parameters, methods, attributes and errors are those of :class:`gaussmix.deconvolution.ExtremeDeconvolution`, and so are the
    results, but for the rounding of sums. The noise is one covariance for all samples, or an array beside that of the
    samples, with variances or a covariance for each; there are neither groups nor projections.
    """

    _samples = ClusterEstimator._samples

    def _beside(self, X: Any) -> tuple[Any, Any]:
        x, noise, projection = measurements(X)
        if projection is not None or isinstance(noise, tuple) or self.standardize:
            raise ValueError("workers take neither projections nor groups of noise nor standardize=True; give each sample its noise")
        x, noise = (part.to_dask_array(lengths=True) if hasattr(part, "to_dask_array") else part for part in (x, noise))
        noise = noise if hasattr(noise, "dask") else np.asarray(noise, dtype=np.float64)
        if noise.ndim == 2 and noise.shape[0] == noise.shape[1]:
            return x, np.asarray(noise)
        x = x if hasattr(x, "dask") else np.asarray(x)
        if noise.shape not in (x.shape, (*x.shape, x.shape[1])):
            raise ValueError(f"noise has the shape {noise.shape}; it should be {x.shape} or {(*x.shape, x.shape[1])}")
        return np.concatenate([x, noise.reshape(x.shape[0], -1)], axis=1), x.shape[1]


@on_workers("engine", [Engine, None], _variational.BayesianGaussianMixture)
class BayesianGaussianMixture(ClusterEstimator, _variational.BayesianGaussianMixture):
    """A Gaussian mixture, fitted by variational inference to partitions that an engine's workers hold.

    Parameters, methods, attributes and errors are those of :class:`gaussmix.BayesianGaussianMixture`, and so are the results, but
    for the rounding of sums. `gaussmix.dask.BayesianGaussianMixture` and `gaussmix.mpi.BayesianGaussianMixture` bring
    their own engines. Samples are as those of :class:`GaussianMixture`.
    """
