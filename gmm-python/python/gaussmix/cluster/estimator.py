"""The estimators of a cluster, on any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from numbers import Integral
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from .. import _core, _estimator, _variational
from .._arrays import Floats
from .._documentation import documented, with_documentation_of, with_parameters_of
from .._fitting import Fitting
from .._samples import Samples
from .engine import Engine, InProcess
from .plan import Plan, plan
from .remote import ClusterEvaluations, Resident
from .samples import ClusterSamples

_OWN_CONSTRAINTS: dict[str, list[Any]] = {
    "engine": [Engine, None],
    "partition_rows": [Interval(Integral, 1, None, closed="left"), None],
    "resident": ["boolean", None],
}


@documented
class ClusterEstimator(Fitting):
    """What estimators have that are fitted to partitions, which an engine's workers hold."""

    engine: Engine | None
    partition_rows: int | None
    resident: bool | None

    #: The parameters that `clone` shares and a pickle leaves out, because they are connections to
    #: workers.
    _connections: ClassVar[tuple[str, ...]] = ("engine",)

    def __sklearn_clone__(self) -> ClusterEstimator:
        """Make an unfitted estimator with the same parameters, on the same workers."""
        held = {name: getattr(self, name) for name in self._connections}
        for name in held:
            setattr(self, name, None)
        try:
            made: ClusterEstimator = super().__sklearn_clone__()
        finally:
            for name, value in held.items():
                setattr(self, name, value)
        return made.set_params(**held)  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **dict.fromkeys(self._connections)}

    def _make_engine(self) -> Engine:
        return InProcess() if self.engine is None else self.engine

    def _plan(self, engine: Any, X: Any, sample_weight: Any, labels: Any) -> Plan:
        return plan(engine, X, sample_weight, self.partition_rows, labels, self.n_components)

    def _samples(self, X: Any, sample_weight: Any, labels: Any = None) -> Samples:
        return ClusterSamples(self, X, sample_weight, labels)

    def _evaluate(self, X: Any, sample_weight: Any, work: Callable[[Resident], Any]) -> Any:
        """Load samples for a fitted mixture, and drop them after `work`."""
        check_is_fitted(self)
        with ClusterSamples(self, X, sample_weight, reset=False) as samples:
            resident = samples._resident()
            with resident.remote.told():
                return work(resident)

    def _statistics(self, X: Any, sample_weight: Any, mixture: _core.Mixture) -> _core.Statistics:
        statistics: _core.Statistics = self._evaluate(X, sample_weight, lambda data: data.e_step(mixture))
        return statistics

    def _total(self, X: Any, sample_weight: Any) -> tuple[float, float]:
        check_is_fitted(self)
        mixture = self._mixture()
        total: tuple[float, float] = self._evaluate(
            X, sample_weight, lambda data: (data.total(mixture), data.total_weight)
        )
        return total[0] + total[1] * self._log_factor(), total[1]

    def fit_predict(self, X: Any, y: object = None, sample_weight: Any = None, *, labels: Any = None) -> Any:
        """Fit the mixture, and give the most probable component of each sample.

        Parameters:
        X : array-like of shape (n_samples, n_features), or paths -- The samples.
        y : Ignored -- Not used, present by convention.
        sample_weight : array-like of shape (n_samples,), or paths, default=None -- A sample of weight 2 counts as two.
        labels : array-like of shape (n_samples,) or (n_samples, n_components), or paths, default=None
            What is known of the samples' components, as for `fit`.
        Returns:
        labels : array of shape (n_samples,)
            What `predict` gives; under `labels` a NumPy array of components that the samples may belong to.
        """
        if labels is not None:
            return super().fit_predict(X, y, sample_weight, labels=labels)
        return self.fit(X, sample_weight=sample_weight).predict(X)

    def score(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> float:
        """Give the mean log-likelihood of a sample.

        Parameters:
        X : array-like of shape (n_samples, n_features), or paths -- The samples.
        y : Ignored -- Not used, present by convention.
        sample_weight : array-like of shape (n_samples,), or paths, default=None -- A sample of weight 2 counts as two.
        Returns: log_likelihood : float -- The mean, by weight.
        """
        total, n = self._total(X, sample_weight)
        return total / n

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Give the most probable component of each sample.

        Parameters: X : array-like of shape (n_samples, n_features), or paths -- The samples.
        Returns: labels : array of shape (n_samples,) -- The components, counted from 0.
        """
        labels: NDArray[np.int64] = self._values("labels", X)
        return labels

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Give the probability of each component for each sample.

        Parameters: X : array-like of shape (n_samples, n_features), or paths -- The samples.
        Returns: resp : array of shape (n_samples, n_components) -- The probabilities, which sum to 1 for each sample.
        """
        resp: Floats = self._values("responsibilities", X)
        return resp

    def score_samples(self, X: ArrayLike) -> Floats:
        """Give the log-likelihood of each sample.

        Parameters: X : array-like of shape (n_samples, n_features), or paths -- The samples.
        Returns: log_prob : array of shape (n_samples,) -- The logarithms of the density.
        """
        log_prob: Floats = self._values("scores", X)
        return log_prob

    #: The method of the local estimator that gives the values of an operation.
    _METHODS: ClassVar[dict[str, str]] = {
        "labels": "predict",
        "responsibilities": "predict_proba",
        "scores": "score_samples",
    }

    def _values(self, operation: str, X: Any) -> Any:
        """Give one value for each sample, computed by the workers."""

        def work(data: Resident) -> Any:
            found = getattr(data.data, operation)(self._mixture())
            if operation == "labels":
                return found
            if operation == "scores":
                found = found + self._log_factor()
            return found.astype(self._value_type(getattr(X, "dtype", None)), copy=False)

        return self._evaluate(X, None, work)

    #: The estimator of one process.
    _LOCAL: ClassVar[type[Fitting]]

    def _local(self) -> Any:
        """Give the mixture as an estimator of one process."""
        local: Any = self._LOCAL(**{name: getattr(self, name) for name in self._LOCAL().get_params()})
        local._take_fit(self)
        return local


@with_documentation_of(_estimator.GaussianMixture)
@documented
class GaussianMixture(ClusterEstimator, _estimator.GaussianMixture):
    """A Gaussian mixture, fitted to partitions that an engine's workers hold.

    Methods, attributes and errors are those of :class:`gaussmix.GaussianMixture`, and so are the
    results, but for the rounding of sums. `gaussmix.dask.GaussianMixture` and
    `gaussmix.mpi.GaussianMixture` bring their own engines.

    Samples are an array, which is divided, or paths of .npy and Parquet files, which the workers
    read. Sample weights and labels are arrays, or with files of samples paths of .npy files too.

    Parameters:
    n_components : int, default=1 -- The number of components.
    engine : Engine or None, default=None -- What the workers run on; by default this process.
    partition_rows : int or None, default=None
        The rows of a partition. By default such that there are about 512 partitions of 4 to 256 MiB. The division
        decides about the last bits of the result.
    resident : bool or None, default=None
        Whether partitions stay in the memory of their workers. Where they do not, each iteration reads them again,
        one after the other. By default as many stay as the memory holds.
    **params : dict -- The other parameters of :class:`gaussmix.GaussianMixture`.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_estimator.GaussianMixture._parameter_constraints,
        **_OWN_CONSTRAINTS,
    }
    _LOCAL = _estimator.GaussianMixture

    @with_parameters_of(_estimator.GaussianMixture)
    def __init__(
        self,
        n_components: int = 1,
        *,
        engine: Engine | None = None,
        partition_rows: int | None = None,
        resident: bool | None = None,
        **params: Any,
    ) -> None:
        super().__init__(n_components, **params)
        self.engine = engine
        self.partition_rows = partition_rows
        self.resident = resident

    @classmethod
    def _fitted(
        cls, estimators: Iterable[Any], X: Any, sample_weight: Any
    ) -> Iterator[
        tuple[_estimator.GaussianMixture, float, float] | tuple[_estimator.GaussianMixture, _core.TooFewSamplesError]
    ]:
        samples: ClusterSamples | None = None
        with ExitStack() as stack:
            for estimator in estimators:
                estimator._validate_params()
                if samples is None:
                    # The workers load them once for all.
                    samples = ClusterSamples(estimator, X, sample_weight)
                    stack.enter_context(samples)
                else:
                    samples.serve(estimator)
                try:
                    data = cast(ClusterEvaluations, estimator._fit(samples))
                except _core.TooFewSamplesError as error:
                    yield estimator, error
                else:
                    yield estimator, data.total(estimator._mixture()), data.total_weight


@with_documentation_of(_variational.BayesianGaussianMixture)
@documented
class BayesianGaussianMixture(ClusterEstimator, _variational.BayesianGaussianMixture):
    """A Gaussian mixture, fitted by variational inference to partitions that an engine's workers hold.

    Methods, attributes and errors are those of :class:`gaussmix.BayesianGaussianMixture`, and so are
    the results, but for the rounding of sums. `gaussmix.dask.BayesianGaussianMixture` and
    `gaussmix.mpi.BayesianGaussianMixture` bring their own engines. Samples are as those of
    :class:`GaussianMixture`.

    Parameters:
    n_components : int, default=1 -- The largest number of components.
    engine : Engine or None, default=None -- What the workers run on; by default this process.
    partition_rows : int or None, default=None -- The rows of a partition, as in :class:`GaussianMixture`.
    resident : bool or None, default=None
        Whether partitions stay in the memory of their workers, as in :class:`GaussianMixture`.
    **params : dict -- The other parameters of :class:`gaussmix.BayesianGaussianMixture`.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_variational.BayesianGaussianMixture._parameter_constraints,
        **_OWN_CONSTRAINTS,
    }
    _LOCAL = _variational.BayesianGaussianMixture

    @with_parameters_of(_variational.BayesianGaussianMixture)
    def __init__(
        self,
        *,
        engine: Engine | None = None,
        partition_rows: int | None = None,
        resident: bool | None = None,
        **params: Any,
    ) -> None:
        super().__init__(**params)
        self.engine = engine
        self.partition_rows = partition_rows
        self.resident = resident
