"""The estimators and the likelihood over dask arrays, dask dataframes, and files that the workers read."""

import math
from collections.abc import Callable
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import Any

import dask.array
import distributed
import numpy as np
from dask.delayed import delayed
from sklearn.utils.validation import check_is_fitted

from ... import _estimator, _partitions, _variational, deconvolution
from ..._partitions import Array, Partition
from ...deconvolution import Measurements
from .. import estimator, likelihood
from ..engine import divided
from ..estimator import on_workers
from ..samples import check_columns
from .collections import is_array, plan_of
from .engine import DaskEngine


def evaluated(partition: Partition, chunk: Any, dtype: str, evaluate: Callable[[Any, Partition], Any]) -> Any:
    """Evaluate a partition, in the process of a worker."""
    try:
        x, _ = (partition if chunk is None else partition._replace(samples=Array(chunk))).read(np.dtype(dtype))
        return evaluate(x, partition)
    except Exception as error:
        raise partition.error(error) from error


def _values(x: Any, _: Partition, local: Any, operation: str, width: tuple[int, ...], kind: Any, noise: Any) -> Any:
    if x.shape[0] == 0:
        return np.empty((0, *width), kind)
    if isinstance(noise, int):
        d, both = noise, x
        x, noise = both[:, :d], both[:, d:].reshape(-1, *[d] * (1 + (both.shape[1] > 2 * d)))
    elif noise is not None:
        # One group, which is not taken for variances in blocks of as many rows as columns.
        noise = noise[np.newaxis], np.zeros(len(x), np.int64)
    return local._values(operation, x if noise is None else Measurements(x, noise)).astype(kind, copy=False)


class OnDask(estimator.OnWorkers):
    """What the estimators have in common."""

    client: Any

    def _make_engine(self) -> DaskEngine:
        return DaskEngine(self.client)

    def _planner(self, X: Any) -> Any:
        """Return an engine that divides X; collections need no workers for that."""
        return SimpleNamespace(close=lambda: None) if hasattr(X, "dask") else self._make_engine()


class Mixtures(OnDask, estimator.ClusterEstimator):
    """What mixtures have in common."""

    def _values(self, operation: str, X: Any) -> Any:
        check_is_fitted(self)
        local = self._local()
        given, (X, noise) = X, self._beside(X)
        if not _partitions.are_paths(X) and not hasattr(X, "dask"):
            return local._values(operation, given)
        # A worker evaluates as many blocks at once as it has threads.
        local.n_jobs = 1
        # Blocks are arrays, whose columns have no names.
        local.__dict__.pop("feature_names_in_", None)
        counts: Any
        with closing(self._planner(X)) as engine:
            if hasattr(X, "dask"):
                plan = plan_of(engine, X, None, None, None)
                counts = X.chunks[0] if is_array(X) else [math.nan] * len(plan.partitions)
                chunks = [chunk for chunk, *_ in engine.chunks]
            else:
                plan, counts = divided(engine, X, self.partition_rows)
                chunks = [None] * len(counts)
        check_columns(self, plan._replace(head=plan.head[:, :noise]) if isinstance(noise, int) else plan, reset=False)
        width = (len(self.weights_),) if operation == "responsibilities" else ()
        kind = np.dtype(np.int64) if operation == "labels" else self._value_type(plan.dtype)
        # One for all blocks.
        evaluate = delayed(partial(_values, local=local, operation=operation, width=width, kind=kind, noise=noise), pure=True)
        values = delayed(evaluated, pure=True)
        return dask.array.concatenate(
            [
                dask.array.from_delayed(values(partition, chunk, plan.dtype.str, evaluate), (count, *width), kind)
                for partition, chunk, count in zip(plan.partitions, chunks, counts, strict=True)
            ]
        )


@on_workers("client", [distributed.Client, None], _estimator.GaussianMixture)
class GaussianMixture(Mixtures, estimator.GaussianMixture):
    """A Gaussian mixture, fitted by the workers of a cluster of Dask.

    Parameters, methods, attributes and errors are those of :class:`gaussmix.GaussianMixture`. The samples are a dask
    array, a dask dataframe, an array, or paths of .npy and Parquet files, which the workers read; sample weights and
    labels the same, divided as the samples are. `predict`, `predict_proba` and `score_samples` of collections and files
    give dask arrays, which are computed when they are asked for.

    Each worker loads its partitions once and keeps them in its device. An iteration sends the parameters and brings
    back sums over the samples, which are added in the order of the partitions: the same partitions on the same kind of
    device give the same bits, whatever the number of workers. The partitions of a worker that dies are loaded by
    others, and the fit goes on. Ctrl-C ends the fit after the present iteration and leaves a fitted mixture. `device`
    is that of each worker, and `n_jobs` the number of its threads, by default as many as Dask gives it.
    Parameters: client, partition_rows, resident
    Examples:
    >>> import dask.array
    >>> from gaussmix.dask import GaussianMixture
    >>> x = dask.array.from_array([[1.0], [2.0], [3.0], [11.0], [12.0], [13.0]], chunks=(4, 1))
    >>> gm = GaussianMixture(2, random_state=0).fit(x)
    >>> gm.means_.round(6).ravel()
    array([12.,  2.])
    >>> gm.predict(x).compute()
    array([1, 1, 1, 0, 0, 0])
    """


@on_workers("client", [distributed.Client, None], deconvolution.ExtremeDeconvolution)
class ExtremeDeconvolution(Mixtures, estimator.ExtremeDeconvolution):
    """Extreme deconvolution by the workers of a cluster of Dask.

    Parameters, methods, attributes and errors are those of :class:`gaussmix.deconvolution.ExtremeDeconvolution`; samples,
    partitions and workers are as for :class:`GaussianMixture`. The noise is one covariance for all samples, or a dask
    array or dataframe beside the samples, with variances or a covariance for each.
    Parameters: client, partition_rows, resident
    """


@on_workers("client", [distributed.Client, None], _variational.BayesianGaussianMixture)
class BayesianGaussianMixture(Mixtures, estimator.BayesianGaussianMixture):
    """A Gaussian mixture, fitted by variational inference by the workers of a cluster of Dask.

    Parameters, methods, attributes and errors are those of :class:`gaussmix.BayesianGaussianMixture`; samples,
    partitions and workers are as for :class:`GaussianMixture`.
    Parameters: client, partition_rows, resident
    """


class Likelihood(likelihood.Likelihood):
    """The log-likelihood of samples that stay in the workers of a cluster of Dask.

    It is called as :class:`gaussmix.Likelihood` is. Several sets of parameters in one call make one round trip, as all
    walkers of a sampler should. `close`, or a ``with`` statement, frees the memory of the workers.
    Parameters:
    X : dask array or dataframe, array-like, or paths -- The samples.
    sample_weight : dask array or series, array-like, or paths, default=None -- A sample of weight 2 counts as two.
    **options : dict -- The other parameters of :class:`gaussmix.cluster.Likelihood`.
    """

    def __init__(self, X: Any, sample_weight: Any = None, *, client: Any = None, **options: Any) -> None:
        super().__init__(X, sample_weight, engine=DaskEngine(client), **options)
