"""What users of Dask have, divided into partitions: dask arrays and dataframes, beside arrays and files."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import dask.array
import numpy as np

from ... import _partitions
from ..._arrays import floats
from ..._partitions import Array, Partition
from ..engine import Engine, Plan


def is_frame(X: Any) -> bool:
    return hasattr(X, "dask") and hasattr(X, "map_partitions") and hasattr(X, "npartitions") and not is_array(X)


def is_array(X: Any) -> bool:
    return isinstance(X, dask.array.Array)


def plan_of(
    engine: Any, X: Any, sample_weight: Any, partition_rows: int | None, resident: bool | None, labels: Any = None, k: int = 0
) -> Plan:
    """Divide what Dask's users have; hand the chunks of collections to the engine."""
    if resident is False and hasattr(X, "dask"):
        raise ValueError("resident=False needs files, which workers can read again; the chunks of a dask collection stay in memory")
    if is_frame(X):
        parts, head = X.to_delayed(), X._meta
        # The type that scikit-learn gives the partitions, whatever their columns are.
        dtype, counts = floats(head, [np.float64, np.float32]).dtype, [math.nan] * len(parts)
    elif is_array(X):
        if X.ndim != 2:
            raise ValueError(
                f"Expected 2D array, got {X.ndim}D array instead. Reshape your data either using array.reshape(-1, 1) if your "
                "data has a single feature or array.reshape(1, -1) if it contains a single sample."
            )
        if partition_rows is not None or X.numblocks[1] > 1:
            # Chunks hold whole rows.
            X = X.rechunk({1: -1} if partition_rows is None else {0: partition_rows, 1: -1})
        parts, head, counts = X.to_delayed()[:, 0].tolist(), np.empty((0, X.shape[1])), list(X.chunks[0])
        dtype = _partitions.common_dtype([X.dtype])
    else:
        sample_weight, labels = (given.compute() if hasattr(given, "dask") else given for given in (sample_weight, labels))
        return Engine._plan(engine, X, sample_weight, partition_rows, resident, labels, k)
    if is_array(sample_weight) and sample_weight.ndim != 1:
        raise ValueError(f"Sample weights must be 1D array or scalar, got {sample_weight.ndim}D array.")
    of_each = (
        _divided("sample_weight", sample_weight, counts, _partitions.weights_of_each),
        _divided("labels", labels, counts, partial(_partitions.labels_of_each, n_components=k)),
    )
    engine.chunks = list(zip(parts, *of_each, strict=True))
    # Signs that there are some; the engine has them.
    weights, known = (None if given is None else Array(None) for given in (sample_weight, labels))
    partitions, first = [], 0.0
    for number, count in enumerate(counts):
        name, begin = f"partition {number} of X", 0
        if not math.isnan(first + count) and count > 0:
            begin = int(first)
            name = f"rows {begin} to {begin + int(count) - 1} of X"
        partitions.append(Partition(name, None, weights, first=begin, labels=known))
        first += count
    return Plan(partitions, dtype, head)


def _divided(name: str, given: Any, counts: Sequence[float], of_each: Callable[..., list[Any]]) -> list[Any]:
    """Give each partition its part of what samples have beside: a collection, or an array, which `of_each` divides."""
    if given is None:
        return [None] * len(counts)
    if _partitions.are_paths(given):
        raise ValueError(f"{name} names files, which goes with samples in files only; give an array or a collection")
    known = not any(map(math.isnan, counts))
    if hasattr(given, "to_delayed"):
        if is_array(given):
            if known and given.shape[0] != sum(counts):
                expected = (sum(counts), *given.shape[1:])
                raise ValueError(f"{name}.shape == {given.shape}, expected {expected}!")
            if known and given.chunks[0] != tuple(counts):
                given = given.rechunk({0: tuple(counts)})
            if given.ndim > 1:
                given = given.rechunk({1: -1})
        parts = np.ravel(np.asarray(given.to_delayed(), dtype=object)).tolist()
        if len(parts) != len(counts):
            raise ValueError(f"{name} has {len(parts)} partitions, but X has {len(counts)}; divide them in the same way")
        return list(parts)
    if not known:
        raise ValueError(
            f"the lengths of the partitions of X are not known, so that an array {name} cannot be divided; give it as a "
            "column of the same dataframe, or call X.compute_chunk_sizes() first"
        )
    return [part.read() for part in of_each([int(count) for count in counts], given)]
