"""What is to be loaded: arrays and files, divided into partitions, and what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import _check_feature_names, _check_n_features

from .. import _partitions
from .._arrays import Missing
from .._partitions import File, Partition
from .shard import Facts


class Plan(NamedTuple):
    """What is to be loaded: the partitions, the type of all samples, and columns with their names but without rows."""

    partitions: list[Partition]
    dtype: np.dtype[Any]
    head: Any


def divided(engine: Any, paths: Any, partition_rows: int | None) -> tuple[Plan, list[int]]:
    """Divide files into partitions without weights; also give the rows of each."""
    files = engine.files(listed(paths))
    _partitions.check_samples(files)
    dtype = _partitions.common_dtype(file.dtype for file in files)
    partitions, counts = _partitions.divide(files, partition_rows, dtype)
    return Plan(partitions, dtype, _head_of(files[0])), counts


def listed(paths: Any) -> list[str]:
    return [paths] if not isinstance(paths, (list, tuple)) else list(paths)


def _head_of(file: File) -> Any:
    """Give an array or table without rows that has the columns of a file."""
    if file.columns is None:
        return np.empty((0, file.shape[1]))
    import pyarrow

    return pyarrow.table({name: pyarrow.array([], pyarrow.float64()) for name in file.columns})


def check_columns(estimator: Any, planned: Plan, reset: bool) -> None:
    """Check that an estimator knows the columns of the samples, or have it learn them."""
    _check_feature_names(estimator, planned.head, reset=reset)
    _check_n_features(estimator, planned.head, reset=reset)


def missing_of_all(facts: Sequence[Facts]) -> Missing:
    """Say what is missing in all partitions together, with the numbers of rows among those of all."""
    unobserved, first, empty, begin = set(range(facts[0].n_features)), None, 0, 0
    for fact in facts:
        assert fact.missing is not None  # The shards were told to look.
        unobserved &= set(fact.missing.unobserved)
        empty += fact.missing.empty_rows
        if first is None and fact.missing.first_empty_row is not None:
            first = begin + fact.missing.first_empty_row
        begin += fact.n_samples
    return Missing(tuple(sorted(unobserved)), empty, first)


def check_facts(facts: Sequence[Facts], partitions: Sequence[Partition], least: int, name: str) -> None:
    """Check that partitions belong together, and that there are enough samples for what has this name."""
    for fact, partition in zip(facts, partitions, strict=True):
        if fact.n_features != facts[0].n_features:
            raise ValueError(
                f"{partition.name} has {fact.n_features} features, but {partitions[0].name} has {facts[0].n_features}; "
                "all partitions must have as many"
            )
    n = sum(fact.n_samples for fact in facts)
    if n < least:
        shape = (n, facts[0].n_features)
        raise ValueError(f"Found array with {n} sample(s) (shape={shape}) while a minimum of {least} is required by {name}.")
    if not any(fact.total_weight > 0 for fact in facts):
        raise ValueError("all sample weights are zero; at least one sample must count")
