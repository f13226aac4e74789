"""What users of Dask have, divided into partitions: dask arrays and dataframes, beside arrays and files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import dask.array
import numpy as np

from ... import _partitions
from ..._arrays import floats
from ..._partitions import Array, Partition
from ..plan import Plan, plan
from .engine import DaskEngine


def is_frame(X: Any) -> bool:
    return hasattr(X, "dask") and hasattr(X, "map_partitions") and hasattr(X, "npartitions") and not is_array(X)


def type_of(X: Any) -> np.dtype[Any]:
    """Give the type of the samples of a dask dataframe.

    It is the type that scikit-learn gives its partitions, whatever their columns are.
    """
    dtype: np.dtype[Any] = floats(X._meta, [np.float64, np.float32]).dtype
    return dtype


def is_array(X: Any) -> bool:
    return isinstance(X, dask.array.Array)


def by_rows(X: Any) -> Any:
    """Give a dask array whose chunks hold whole rows."""
    if X.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {X.ndim}D array instead. Reshape your data either using array.reshape(-1, 1) if your "
            "data has a single feature or array.reshape(1, -1) if it contains a single sample."
        )
    return X if X.numblocks[1] == 1 else X.rechunk({1: -1})


def plan_of(
    engine: DaskEngine, X: Any, sample_weight: Any, partition_rows: int | None, resident: bool | None
) -> Plan:
    """Divide what Dask's users have; hand the chunks of collections to the engine."""
    if resident is False and hasattr(X, "dask"):
        raise ValueError(
            "resident=False needs files, which workers can read again; the chunks of a dask collection stay in memory"
        )
    if is_frame(X):
        parts, head = X.to_delayed(), X._meta
        dtype = type_of(X)
        counts = [math.nan] * len(parts)
    elif is_array(X):
        if partition_rows is not None:
            X = X.rechunk({0: partition_rows, 1: -1})
        X = by_rows(X)
        parts, head, counts = X.to_delayed()[:, 0].tolist(), np.empty((0, X.shape[1])), list(X.chunks[0])
        dtype = _partitions.common_dtype([X.dtype])
    else:
        if hasattr(sample_weight, "dask"):
            sample_weight = sample_weight.compute()
        return plan(engine, X, sample_weight, partition_rows)
    engine.chunks = list(zip(parts, _weights_of(sample_weight, counts), strict=True))
    partitions, first = [], 0.0
    for number, count in enumerate(counts):
        known = not math.isnan(first + count) and count > 0
        name = f"rows {int(first)} to {int(first + count) - 1} of X" if known else f"partition {number} of X"
        partitions.append(Partition(name, None))
        first += count
    if sample_weight is not None:
        # A sign that there are weights; the engine has them.
        partitions = [partition._replace(weights=Array(None)) for partition in partitions]
    return Plan(partitions, dtype, head)


def _weights_of(sample_weight: Any, counts: Sequence[float]) -> list[Any]:
    """Give the sample weights of each partition."""
    if sample_weight is None:
        return [None] * len(counts)
    known = not any(map(math.isnan, counts))
    if hasattr(sample_weight, "to_delayed"):
        if is_array(sample_weight):
            if sample_weight.ndim != 1:
                raise ValueError(f"Sample weights must be 1D array or scalar, got {sample_weight.ndim}D array.")
            if known and sample_weight.shape != (sum(counts),):
                raise ValueError(f"sample_weight.shape == {sample_weight.shape}, expected {(sum(counts),)}!")
            if known and sample_weight.chunks[0] != tuple(counts):
                sample_weight = sample_weight.rechunk((tuple(counts),))
        parts = np.ravel(np.asarray(sample_weight.to_delayed(), dtype=object)).tolist()
        if len(parts) != len(counts):
            raise ValueError(
                f"sample_weight has {len(parts)} partitions, but X has {len(counts)}; divide them in the same way"
            )
        return list(parts)
    if not known:
        raise ValueError(
            "the lengths of the partitions of X are not known, so that an array of sample weights cannot be divided; give "
            "them as a column of the same dataframe, or call X.compute_chunk_sizes() first"
        )
    empty = [Partition("X", None)] * len(counts)
    weighted = _partitions.with_weights(empty, [int(count) for count in counts], sample_weight, None)
    return [None if partition.weights is None else partition.weights.read() for partition in weighted]
