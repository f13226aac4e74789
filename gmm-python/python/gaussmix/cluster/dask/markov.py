"""Hidden Markov models over dask arrays, dask dataframes, and files that the workers read."""

import math
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import dask.array
import dask.base
import distributed
import numpy as np
from dask.delayed import delayed
from sklearn.utils.validation import check_is_fitted

from ... import _partitions, hmm
from ..._partitions import Partition
from .. import markov
from ..engine import Plan
from ..estimator import on_workers
from .collections import is_array, is_frame, plan_of
from .estimator import OnDask, evaluated


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

    def _parts(self, engine: Any, X: Any) -> tuple[Plan, list[int]]:
        if not hasattr(X, "dask"):
            return super()._parts(engine, X)
        if is_array(X) and math.isnan(X.shape[0]):
            X = X.copy().compute_chunk_sizes()
        plan = plan_of(engine, X, None, None, self.resident)
        return plan, list(X.map_partitions(len).compute() if is_frame(X) else X.chunks[0])

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
                total, values = delayed(evaluated, nout=2, pure=True)(partition, chunk, plan.dtype.str, evaluate)
                totals.append(total)
                blocks.append(dask.array.from_delayed(values, (n, *width), kind))
        return dask.array.from_delayed(delayed(np.sum)(totals), (), np.float64), dask.array.concatenate(blocks)


@on_workers("client", [distributed.Client, None], hmm.GaussianHMM)
class GaussianHMM(MarkovOnDask, markov.GaussianHMM):
    """A hidden Markov model of Gaussians, fitted by the workers of a cluster of Dask.

    Parameters, methods, attributes and errors are those of :class:`gaussmix.hmm.GaussianHMM`, without `partial_fit`. Samples, workers
    and bits are as for :class:`GaussianMixture`, but a partition holds whole sequences: `lengths` are those of all
    sequences, a list for each partition, or the name of the column of a dask dataframe that holds the sequence of each
    row; by default each partition is one sequence. They may be delayed. Results of collections and files are dask arrays.
    Parameters: client, partition_rows, resident
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
    """A hidden Markov model of mixtures, fitted by the workers of a cluster of Dask.

    Parameters, methods, attributes and errors are those of :class:`gaussmix.hmm.GMMHMM`; the rest is as for :class:`GaussianHMM`.
    Parameters: client, partition_rows, resident
    """
