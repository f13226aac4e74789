"""The interface of engines, how they divide samples into partitions, and the engine of one process."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .. import _partitions
from .._arrays import floats
from .._partitions import File, Partition
from .shard import ADDED, Answer, Facts, Options, Shard

_Value = TypeVar("_Value")


class Plan(NamedTuple):
    """What is to be loaded: the partitions, the type of all samples, columns with their names but without rows, and each one's rows."""

    partitions: list[Partition]
    dtype: np.dtype[Any]
    head: Any
    counts: Sequence[Any] = ()


class Engine(ABC):
    """Has workers load partitions, and asks all of them.

    The methods are called in one process, by one thread at a time. A worker's exception is to be raised by the method
    that waits for the worker.
    """

    def files(self, paths: Sequence[str]) -> list[File]:
        """Find files and read their heads, where the workers can, and return each with the shape and type of its array."""
        return [_partitions.inspect(path) for path in _partitions.expand(paths)]

    def agree(self, error: BaseException | None) -> None:
        """Raise an error of this process. Engines of which several processes call `fit` raise it in all.
        Parameters: error : BaseException or None -- The error, if there is one.
        """
        if error is not None:
            raise error

    def together(self, work: Callable[[], _Value]) -> _Value:
        """Do what asks the workers, and return its result. Engines of which several processes call `fit` do it in one of them."""
        return work()

    def _plan(self, X: Any, sample_weight: Any, partition_rows: int | None, resident: bool | None, labels: Any = None, k: int = 0) -> Plan:
        """Divide samples of the kinds that the engine knows, here an array or files, and weights and labels with them."""
        if not _partitions.are_paths(X):
            x = floats(X, [np.float64, np.float32])
            partitions, counts = _partitions.of_array(x, partition_rows, sample_weight, labels, k)
            return Plan(partitions, _partitions.common_dtype([x.dtype]), X, counts)
        files = self.files(_listed(X))
        _partitions.check_samples(files)
        dtype = _partitions.common_dtype(file.dtype for file in files)
        partitions, counts = _partitions.divide(files, partition_rows, dtype)
        heads = [self.files(_listed(given)) if _partitions.are_paths(given) else None for given in (sample_weight, labels)]
        weights = _partitions.weights_of_each(counts, sample_weight, heads[0])
        known = _partitions.labels_of_each(counts, labels, k, heads[1])
        return Plan(_partitions.with_both(partitions, weights, known), dtype, _head_of(files[0]), counts)

    @abstractmethod
    def load(self, partitions: Sequence[Partition], options: Options) -> list[Facts]:
        """Have each partition loaded by one worker, in the place of all before, and return what ``shard.load`` returned for each.
        Parameters: options : Options -- What workers make their shards with.
        """

    @abstractmethod
    def ask(self, operation: str, message: bytes) -> Iterable[Answer]:
        """Ask all shards: hand operation and message on to ``shard.ask``.
        Returns:
        answers : iterable of Answer -- All that the shards returned, in any order, or for operations of `added` what `merge` made of it.
        """

    @staticmethod
    def added(operation: str) -> bool:
        """Return whether `merge` may be called for the answers to an operation, because its values are sums.
        Parameters: operation : str -- The name of the operation.
        """
        return operation in ADDED

    def close(self) -> None:
        """Have the workers drop their shards."""


class InProcess(Engine):
    """Shards of this process, one after the other: what others are compared with.
    Parameters: n_shards : int, default=1 -- The number of shards.
    Examples:
    >>> import numpy as np
    >>> from gaussmix.cluster import GaussianMixture, InProcess
    >>> X = np.concatenate([np.linspace(0, 2, 50), np.linspace(9, 11, 50)])[:, np.newaxis]
    >>> gm = GaussianMixture(2, engine=InProcess(), partition_rows=30, random_state=0).fit(X)
    >>> gm.means_.round(6).ravel()
    array([10.,  1.])
    """

    def __init__(self, n_shards: int = 1) -> None:
        self.n_shards = n_shards
        self._shards: list[Shard] = []

    def load(self, partitions: Sequence[Partition], options: Options) -> list[Facts]:
        # More than there are partitions would have none.
        n_shards = max(1, min(self.n_shards, len(partitions)))
        self._shards = [Shard(options) for _ in range(n_shards)]
        return [self._shards[i % n_shards].load(i, partition) for i, partition in enumerate(partitions)]

    def ask(self, operation: str, message: bytes) -> list[Answer]:
        return [answer for shard in self._shards for answer in shard.ask(operation, message)]

    def close(self) -> None:
        self._shards = []


def agreed(engine: Engine, work: Callable[[], _Value]) -> _Value:
    """Do what may fail in one of several processes that all do it, and raise the error in all of them."""
    error: Exception | None = None
    try:
        result = work()
    except Exception as raised:
        error = raised
    engine.agree(error)
    return result


def _listed(paths: Any) -> list[str]:
    return [paths] if not isinstance(paths, (list, tuple)) else list(paths)


def _head_of(file: File) -> Any:
    """Give an array or table without rows that has the columns of a file."""
    if file.columns is None:
        return np.empty((0, file.shape[1]))
    import pyarrow

    return pyarrow.table({name: pyarrow.array([], pyarrow.float64()) for name in file.columns})
