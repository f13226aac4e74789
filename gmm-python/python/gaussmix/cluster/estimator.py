"""The estimators of mixtures and the likelihood of a cluster, on any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from inspect import Parameter, Signature, cleandoc, signature
from numbers import Integral
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from .. import _core, _estimator, _partitions, _variational, deconvolution
from .._arrays import n_threads
from .._documentation import with_documentation_of
from .._fitting import Fitting, tried
from .._likelihood import Evaluation
from .._samples import Samples
from ..deconvolution._estimator import measurements
from .engine import Engine, InProcess, Plan, agreed
from .samples import ClusterSamples, Interrupts, Remote, check_columns, check_facts
from .shard import Options

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
        if cls.__doc__:
            summary, _, more = cleandoc(cls.__doc__).partition("\n\n")
            known = f":class:`{local.__module__.rpartition('.')[0]}.{local.__name__}`"
            shared = (
                f"Parameters, methods, attributes and errors are those of {known}, and so are the results, but for the rounding of sums."
            )
            cls.__doc__ = f"{summary}\n\n{shared}\n\n{more}"
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

    def _evaluate(self, X: Any, sample_weight: Any, work: Callable[[Remote], Any]) -> Any:
        """Load samples for a fitted mixture, and drop them after `work`."""
        check_is_fitted(self)
        with ClusterSamples(self, X, sample_weight, reset=False) as samples:
            return work(samples._resident())

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
        values = self._evaluate(X, None, lambda data: getattr(data, operation)(self._mixture()))
        return self._typed(operation, values, getattr(X, "dtype", None))

    def _local(self) -> Any:
        """Give the mixture as an estimator of one process."""
        local: Any = self._LOCAL(**{name: getattr(self, name) for name in self._LOCAL().get_params()})
        local._take_fit(self)
        return local


@on_workers("engine", [Engine, None], _estimator.GaussianMixture)
class GaussianMixture(ClusterEstimator, _estimator.GaussianMixture):
    """A Gaussian mixture, fitted to partitions that an engine's workers hold.

    `gaussmix.dask.GaussianMixture` and `gaussmix.mpi.GaussianMixture` bring their own engines.

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
                    check_columns(estimator, samples.plan, True, samples.options.noise)
                    samples.estimator = estimator
                yield estimator, *tried(lambda: estimator._fit(samples).total(estimator._mixture()))


@on_workers("engine", [Engine, None], deconvolution.ExtremeDeconvolution)
class ExtremeDeconvolution(deconvolution.ExtremeDeconvolution, GaussianMixture):
    """Extreme deconvolution of partitions that an engine's workers hold.

    The noise is one covariance for all samples, or an array beside that of the samples, with variances or a covariance
    for each; there are neither groups nor projections.
    """

    _samples = ClusterEstimator._samples

    def _beside(self, X: Any) -> tuple[Any, Any]:
        x, noise, projection = measurements(X)
        if projection is not None or isinstance(noise, tuple) or self.standardize:
            raise ValueError("workers take neither projections nor groups of noise nor standardize=True; give each sample its noise")
        x, noise = (part.to_dask_array(lengths=True) if hasattr(part, "to_dask_array") else part for part in (x, noise))
        noise = noise if hasattr(noise, "dask") else np.asarray(noise, dtype=np.float64)
        if noise.ndim == 2 and noise.shape[0] == noise.shape[1]:
            if not _partitions.are_paths(x) and np.shape(x)[0] == noise.shape[0]:
                raise ValueError(f"noise of shape {noise.shape} may be variances or one covariance; give {noise.shape[:1] * 3}")
            return x, np.asarray(noise)
        x = x if hasattr(x, "dask") else np.asarray(x)
        if noise.shape not in (x.shape, (*x.shape, x.shape[1])):
            raise ValueError(f"noise has the shape {noise.shape}; it should be {x.shape} or {(*x.shape, x.shape[1])}")
        return np.concatenate([x, noise.reshape(x.shape[0], -1)], axis=1), x.shape[1]


@on_workers("engine", [Engine, None], _variational.BayesianGaussianMixture)
class BayesianGaussianMixture(ClusterEstimator, _variational.BayesianGaussianMixture):
    """A Gaussian mixture, fitted by variational inference to partitions that an engine's workers hold.

    `gaussmix.dask.BayesianGaussianMixture` and `gaussmix.mpi.BayesianGaussianMixture` bring their own engines. Samples
    are as those of :class:`GaussianMixture`.
    """


class Likelihood(Evaluation):
    """The log-likelihood of samples that stay in the devices of an engine's workers.

    It is called as :class:`gaussmix.Likelihood` is: with the parameters of one mixture, or with those of several, which
    travel together, there and back. `close`, or a ``with`` statement, frees the memory of the workers.
    Parameters:
    X : array-like of shape (n_samples, n_features), or paths -- The samples.
    sample_weight : array-like of shape (n_samples,), or paths, default=None -- A sample of weight 2 counts as two.
    device : str, default='auto' -- Where the workers compute: 'auto', 'cpu', 'cuda', 'cuda:N' or 'reference'.
    n_jobs : int or None, default=None -- The number of threads of a worker, as joblib counts.
    Examples:
    >>> import numpy as np
    >>> from gaussmix.cluster import Likelihood
    >>> with Likelihood(np.array([[0.0], [1.0]]), partition_rows=1) as likelihood:
    ...     round(likelihood([1.0], [[0.5]], [1.0]), 6)
    -2.087877
    """

    def __init__(
        self,
        X: Any,
        sample_weight: Any = None,
        *,
        engine: Engine | None = None,
        device: str = "auto",
        covariance_type: str | None = None,
        float64: bool = False,
        n_jobs: int | None = None,
        partition_rows: int | None = None,
        resident: bool | None = None,
        missing: bool = False,
    ) -> None:
        self._engine = InProcess() if engine is None else engine
        try:
            self._expect(covariance_type)
            threads = agreed(self._engine, lambda: n_threads(n_jobs))
            found = agreed(self._engine, lambda: self._engine._plan(X, sample_weight, partition_rows, resident))
            options = Options(found.dtype.str, len(found.partitions), device, threads, float64, resident, missing=missing)
            facts = self._engine.load(found.partitions, options)
            check_facts(facts, found.partitions, 1, type(self).__name__)
        except BaseException:
            self._engine.close()
            raise
        self._remote = Remote(self._engine, facts, Interrupts())
        self._data = _core.Data.remote(self._remote)

    def _evaluate(self, *arguments: Any) -> Any:
        evaluate = super()._evaluate
        return self._remote.together(lambda: evaluate(*arguments))

    @property
    def device(self) -> str:
        """The devices of the last evaluation, in words."""
        return self._remote.together(lambda: self._data.describe()[0])

    def close(self) -> None:
        """Free the memory of the workers. The likelihood cannot be used any more."""
        self._engine.close()

    def __enter__(self) -> Likelihood:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
