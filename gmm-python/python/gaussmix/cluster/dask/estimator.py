"""The estimators, the hidden Markov models and the likelihood over dask arrays, dask dataframes, and files that the workers read."""

import math
from collections.abc import Callable
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import Any

import dask.array
import dask.base
import distributed
import numpy as np
from dask.delayed import delayed
from sklearn.utils.validation import check_is_fitted

from ... import _estimator, _partitions, _variational, deconvolution, hmm
from ..._partitions import Array, Partition
from ...deconvolution import Measurements
from .. import estimator, markov
from ..engine import Plan
from ..estimator import on_workers
from ..samples import check_columns
from .engine import DaskEngine, is_array, is_frame


def _evaluated(partition: Partition, chunk: Any, dtype: str, evaluate: Callable[[Any, Partition], Any]) -> Any:
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
        if noise.shape == (d, d):
            # Variances of as many rows as columns could be one covariance.
            noise = noise[:, :, np.newaxis] * np.eye(d)
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
        with closing(self._planner(X)) as engine:
            plan = DaskEngine._plan(engine, X, None, None if hasattr(X, "dask") else self.partition_rows, None)
            chunks = [chunk for chunk, *_ in engine.chunks] or [None] * len(plan.partitions)
        check_columns(self, plan, False, noise)
        width = (len(self.weights_),) if operation == "responsibilities" else ()
        kind = np.dtype(np.int64) if operation == "labels" else self._value_type(plan.dtype)
        # One for all blocks.
        evaluate = delayed(partial(_values, local=local, operation=operation, width=width, kind=kind, noise=noise), pure=True)
        values = delayed(_evaluated, pure=True)
        return dask.array.concatenate(
            [
                dask.array.from_delayed(values(partition, chunk, plan.dtype.str, evaluate), (count, *width), kind)
                for partition, chunk, count in zip(plan.partitions, chunks, plan.counts, strict=True)
            ]
        )


@on_workers("client", [distributed.Client, None], _estimator.GaussianMixture)
class GaussianMixture(Mixtures, estimator.GaussianMixture):
    """A Gaussian mixture, fitted by the workers of a cluster of Dask.

    The samples are a dask array, a dask dataframe, an array, or paths of .npy and Parquet files, which the workers
    read; sample weights and labels the same, divided as the samples are. `predict`, `predict_proba` and `score_samples`
    of collections and files give dask arrays, which are computed when they are asked for.

    Each worker loads its partitions once and keeps them in its device. An iteration sends the parameters and brings
    back sums over the samples, which are added in the order of the partitions: the same partitions on the same kind of
    device give the same bits, whatever the number of workers. The partitions of a worker that dies are loaded by
    others, and the fit goes on. Ctrl-C ends the fit after the present iteration and leaves a fitted mixture. `device`
    is that of each worker, and `n_jobs` the number of its threads, by default as many as Dask gives it.
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

    Samples, partitions and workers are as for :class:`GaussianMixture`. The noise is one covariance for all samples, or
    a dask array or dataframe beside the samples, with variances or a covariance for each.
    """


@on_workers("client", [distributed.Client, None], _variational.BayesianGaussianMixture)
class BayesianGaussianMixture(Mixtures, estimator.BayesianGaussianMixture):
    """A Gaussian mixture, fitted by variational inference by the workers of Dask to samples as of :class:`GaussianMixture`."""


class Likelihood(estimator.Likelihood):
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


def _runs(ids: Any) -> tuple[list[Any], list[int]]:
    """Return the ids of the sequences in a column, and their lengths."""
    values = np.asarray(ids)
    begins = np.flatnonzero(np.r_[True, values[1:] != values[:-1]][: len(values)])
    return values[begins].tolist(), np.diff(np.r_[begins, len(values)]).tolist()


def _of_column(column: Any) -> list[list[int]]:
    """Return the lengths of the sequences of each partition, whose ids are a column."""
    lengths, seen = [], dict[Any, int]()
    for number, (ids, own) in enumerate(dask.base.compute(*(delayed(_runs)(part) for part in column.to_delayed()))):
        for name in ids:
            if name in seen:
                raise ValueError(
                    f"the rows of sequence {name!r} of the column {column.name!r} lie apart, in partitions {seen[name]} and {number}; "
                    "they must be consecutive, in one partition: sort by the column and divide X between sequences"
                )
            seen[name] = number
        lengths.append(own)
    return lengths


def _pair(x: Any, partition: Partition, method: Callable[..., Any], more: Any) -> Any:
    return method(x, partition.sequences[0], *more)  # type: ignore[index]


class MarkovOnDask(OnDask, markov.MarkovOnWorkers):
    """What the models have in common."""

    def _parts(self, engine: Any, X: Any) -> Plan:
        if not hasattr(X, "dask"):
            return super()._parts(engine, X)
        if is_array(X) and math.isnan(X.shape[0]):
            X = X.copy().compute_chunk_sizes()
        plan = DaskEngine._plan(engine, X, None, None, self.resident)
        return plan._replace(counts=list(X.map_partitions(len).compute())) if is_frame(X) else plan

    def _plan(self, engine: Any, X: Any, sequence_weight: Any, lengths: Any) -> Plan:
        if isinstance(lengths, str):
            X, lengths = X.drop(columns=lengths), _of_column(X[lengths])
        return super()._plan(engine, X, *dask.base.compute(sequence_weight, lengths))

    def _pairs(self, method: str, X: Any, lengths: Any, *more: Any) -> tuple[Any, Any]:
        check_is_fitted(self, "startprob_")
        local = self._local()
        if not hasattr(X, "dask") and not _partitions.are_paths(X):
            return getattr(local, method)(X, lengths, *more)
        with closing(self._planner(X)) as engine:
            plan = self._plan(engine, X, None, lengths)
            chunks = [chunk for chunk, *_ in engine.chunks] or [None] * len(plan.partitions)
        evaluate = delayed(partial(_pair, method=getattr(local, method), more=more), pure=True)
        kind, width = (np.int64, ()) if method == "decode" else (np.float64, (self.n_components,))
        totals, blocks = [], []
        for partition, chunk in zip(plan.partitions, chunks, strict=True):
            if n := sum(partition.sequences[0]):  # type: ignore[index,arg-type]
                total, values = delayed(_evaluated, nout=2, pure=True)(partition, chunk, plan.dtype.str, evaluate)
                totals.append(total)
                blocks.append(dask.array.from_delayed(values, (n, *width), kind))
        return dask.array.from_delayed(delayed(np.sum)(totals), (), np.float64), dask.array.concatenate(blocks)


@on_workers("client", [distributed.Client, None], hmm.GaussianHMM)
class GaussianHMM(MarkovOnDask, markov.GaussianHMM):
    """A hidden Markov model of Gaussians, fitted by the workers of a cluster of Dask.

    There is no `partial_fit`. Samples, workers and bits are as for :class:`GaussianMixture`, but a partition holds
    whole sequences: `lengths` are those of all sequences, a list for each partition, or the name of the column of a
    dask dataframe that holds the sequence of each row; by default each partition is one sequence. They may be delayed.
    Results of collections and files are dask arrays.
    Examples:
    >>> import dask.array
    >>> import numpy as np
    >>> from gaussmix.dask import GaussianHMM
    >>> x = dask.array.from_array(np.repeat([[0.0], [9.0], [0.0], [9.0]], 20, axis=0), chunks=(40, 1))
    >>> states = GaussianHMM(2, random_state=0).fit(x, lengths=[40, 40]).predict(x).compute()
    >>> bool(states[0] == states[40] != states[20] == states[60])
    True
    """


@on_workers("client", [distributed.Client, None], hmm.GMMHMM)
class GMMHMM(MarkovOnDask, markov.GMMHMM):
    """A hidden Markov model of mixtures, fitted by the workers of a cluster of Dask as :class:`GaussianHMM` is."""
