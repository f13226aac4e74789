"""The partitions of all ranks: those of files, or one of the array of each rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_array

from ... import _partitions
from ..._arrays import na_as_nan
from ..._partitions import Array, Partition
from ..engine import agreed
from ..plan import Plan, plan

if TYPE_CHECKING:
    from .engine import MPIEngine


def plan_of(
    engine: MPIEngine,
    X: Any,
    sample_weight: Any,
    partition_rows: int | None,
    resident: bool | None,
    labels: Any = None,
    n_components: int = 0,
) -> Plan:
    """Divide files, or make one partition of the array of each rank."""
    if engine.comm.allreduce(_partitions.are_paths(X)) == engine.size:
        return plan(engine, X, sample_weight, partition_rows, labels, n_components)

    def own() -> tuple[Partition, Any]:
        if _partitions.are_paths(X):
            raise ValueError("this rank names files, but others give arrays; all ranks must do the same")
        if resident is False:
            raise ValueError("resident=False needs files, which can be read again; an array is in memory anyway")
        x = check_array(na_as_nan(X), dtype=[np.float64, np.float32], ensure_all_finite=False, ensure_min_samples=0)
        [partition] = _partitions.of_array(x, max(1, x.shape[0]), sample_weight, labels, n_components)
        return partition._replace(name=f"the samples of rank {engine.rank}"), x.dtype

    partition, kind = agreed(engine, own)
    abouts = engine.comm.allgather((kind.str, sample_weight is not None, labels is not None))
    dtype = _partitions.common_dtype(kind for kind, _, _ in abouts)
    # Signs that there are some; the ranks have them.
    weights, known = (Array(None) if any(about[i] for about in abouts) else None for i in (1, 2))
    partitions = [
        Partition(f"the samples of rank {rank}", None, weights, labels=known) for rank in range(engine.size)
    ]
    partitions[engine.rank] = partition
    return Plan(partitions, dtype, X)
