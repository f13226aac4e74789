"""A mixture fitted by several processes: what all engines (Dask, MPI, ...) have in common.

The samples are divided into partitions. Each worker loads some of them into a `Shard`, which keeps them in its device. An
iteration sends the parameters to all shards, and brings back sufficient statistics, which are added in a fixed tree over
the numbers of the partitions. So the bits of a result depend on the division into partitions and on the kind of device,
and not on how many workers there are, which of them holds which partition, or in which order they answer.

To bring the mixture to another engine, write an `Engine`: its workers call ``shard.load`` and ``shard.ask``, and it brings
what they return to the process that calls `fit`. ``GaussianMixture(8, engine=MyEngine())`` then has all methods.
"""

from __future__ import annotations

import inspect
import math
import pickle
import re
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from numbers import Integral
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import _check_feature_names, _check_n_features, check_array, check_is_fitted

from . import _core, _estimator, _partitions, _start
from ._arrays import Floats, Missing, n_threads, na_as_nan, note_missing
from ._estimator import Evaluations, Moments, Samples, Units
from ._partitions import File, Partition

__all__ = [
    "Answer",
    "Engine",
    "Facts",
    "GaussianMixture",
    "InProcess",
    "Likelihood",
    "MissingPartitionsError",
    "Options",
    "Partition",
    "Shard",
    "merge",
]

#: A part of the answer to a request: the place of the value in the tree over the partitions (its level, and its number on
#: this level), and the value as bytes, which are empty where the partitions have no samples.
Answer = tuple[int, int, bytes]

_Value = TypeVar("_Value")

#: The share of a GPU's free memory that partitions may take; the rest is for evaluations and for one more partition.
_DEVICE_SHARE = 0.8


class Options(NamedTuple):
    """How shards load their partitions.

    Parameters
    ----------
    dtype : str
        The type of all samples, '<f8' or '<f4'.
    n_partitions : int
        The number of all partitions, of all workers.
    device : str
        Where to compute.
    threads : int or None
        The number of threads of a worker; None leaves it to the engine.
    float64 : bool
        Whether to compute in float64 for float32 samples too.
    resident : bool or None
        Whether partitions stay in memory. Others are read again for each request. None keeps as many as `memory` holds.
    memory : int or None
        The bytes of memory that the partitions of a worker may take, where `resident` is None. None is half of what the
        process may use.
    gpu_memory : int or None
        The bytes of the worker's GPU that its partitions may take, with room for evaluations. Others are brought to the GPU
        for each request, one after the other. None is what is free when the shard is made.
    missing : bool
        Whether NaN stands for a missing value.
    """

    dtype: str
    n_partitions: int
    device: str = "auto"
    threads: int | None = None
    float64: bool = False
    resident: bool | None = None
    memory: int | None = None
    gpu_memory: int | None = None
    missing: bool = False


class Facts(NamedTuple):
    """What is known of a partition once it was loaded.

    Parameters
    ----------
    n_samples : int
        The number of its samples, which may be 0.
    n_features : int
        The number of features.
    total_weight : float
        The sum of the sample weights; without weights the number of samples.
    resident : bool
        Whether it stays in memory.
    missing : Missing or None
        What is missing, where values may be.
    """

    n_samples: int
    n_features: int
    total_weight: float
    resident: bool
    missing: Missing | None = None


class MissingPartitionsError(LookupError):
    """A shard was asked for partitions that it has not loaded."""


class _Tree(Generic[_Value]):
    """Adds values in a fixed tree over the numbers of the partitions, as far as they are there."""

    def __init__(self, n_partitions: int, join: Callable[[_Value, _Value], _Value]) -> None:
        self.n_partitions, self.join = n_partitions, join
        self.nodes: dict[tuple[int, int], _Value | None] = {}

    def add(self, level: int, number: int, value: _Value | None) -> None:
        """Add the value of a node; it is None where there are no samples below."""
        while (width := -(-self.n_partitions >> level)) > 1:
            sibling = number ^ 1
            if sibling < width:
                if (level, sibling) not in self.nodes:
                    break
                other = self.nodes.pop((level, sibling))
                left, right = (value, other) if number < sibling else (other, value)
                if left is None or right is None:
                    value = right if left is None else left
                else:
                    value = self.join(left, right)
            level, number = level + 1, number // 2
        self.nodes[level, number] = value

    def root(self) -> _Value | None:
        """Give the sum over all partitions."""
        if len(self.nodes) != 1 or -(-self.n_partitions >> next(iter(self.nodes))[0]) != 1:
            raise MissingPartitionsError("the engine has not brought the answers of all partitions")
        return next(iter(self.nodes.values()))


def _join(left: Any, right: Any) -> Any:
    return left + right


def _encode(value: Any) -> bytes:
    if value is None:
        return b""
    return bytes(value) if isinstance(value, _core.Statistics) else pickle.dumps(value, 5)


def _decode(value: bytes) -> Any:
    if not value:
        return None
    return _core.Statistics.from_bytes(value) if value.startswith(b"gmmstat") else pickle.loads(value)


#: What mixtures travel as.
_Parameters = list[bytes]


def _parameters(mixtures: Sequence[_core.Mixture]) -> _Parameters:
    return [bytes(mixture) for mixture in mixtures]


def _mixtures(parameters: _Parameters) -> list[_core.Mixture]:
    return [_core.Mixture.from_bytes(mixture) for mixture in parameters]


class _Part:
    """A partition in a shard."""

    def __init__(self, partition: Partition, options: Options, resident: bool, in_device: bool) -> None:
        self.partition, self.options = partition, options
        x, weights = partition.read(np.dtype(options.dtype))
        total = float(x.shape[0]) if weights is None else float(weights.sum())
        missing = Missing.of(x, weights) if options.missing else None
        self.facts = Facts(x.shape[0], x.shape[1], total, resident, missing)
        # Samples that do not stay are brought to the device all the same, which looks for what is not finite.
        data = self._data(x, weights)
        #: Samples and weights in memory.
        self.held = (x, weights) if resident else None
        #: The samples in the device; also None where there are no samples.
        self.data = data if resident and in_device else None
        self.described = None if data is None else data._describe()

    def _data(self, x: Floats, weights: NDArray[np.float64] | None) -> _core.Data | None:
        if x.shape[0] == 0:
            return None
        if weights is not None and not weights.any():
            # The engine refuses them; values per sample do not depend on weights.
            weights = None
        options = self.options
        try:
            # The other GPUs of a computer are those of other workers.
            return _core.Data(
                x,
                weights,
                device=options.device,
                float64=options.float64,
                threads=options.threads,
                settle=True,
                missing=options.missing,
                one_gpu=True,
            )
        except _core.NonFiniteError:
            check_array(x, input_name="X", ensure_all_finite="allow-nan" if options.missing else True)
            raise

    def read(self) -> tuple[Floats, NDArray[np.float64] | None]:
        """Give samples and weights; those that are not resident are read again."""
        return self.partition.read(np.dtype(self.options.dtype)) if self.held is None else self.held

    def opened(self) -> _core.Data | None:
        """Give the samples in the device, to which those that do not stay there are brought; None where there are no samples."""
        return self._data(*self.read()) if self.data is None else self.data

    def statistics(self, parameters: _Parameters) -> Any:
        data = self.opened()
        return data.e_step(_mixtures(parameters)[0]) if data is not None and self.facts.total_weight > 0 else None

    def totals(self, parameters: _Parameters) -> Any:
        data = self.opened()
        return data.totals(_mixtures(parameters)) if data is not None and self.facts.total_weight > 0 else None

    def moments(self) -> Any:
        return Moments.of(*self.read()) if self.facts.total_weight > 0 else None

    def rows(self, wanted: dict[int, NDArray[np.int64]], number: int) -> Any:
        if number not in wanted:
            return None
        x, weights = self.read()
        rows = wanted[number]
        return x[rows].astype(np.float64), np.ones(len(rows)) if weights is None else weights[rows]

    def scores(self, parameters: _Parameters) -> Any:
        data = self.opened()
        return np.empty(0) if data is None else data.scores(_mixtures(parameters)[0])

    def labels(self, parameters: _Parameters) -> Any:
        data = self.opened()
        return np.empty(0, np.int64) if data is None else data.labels(_mixtures(parameters)[0])

    def draw(self, parameters: _Parameters, seed: int, first_rows: list[int], size: int, number: int) -> Any:
        data = self.opened()
        if data is None or not self.facts.total_weight > 0:
            return None
        return data.draw(_mixtures(parameters)[0], seed, first_rows[number], size)

    def responsibilities(self, parameters: _Parameters) -> Any:
        data = self.opened()
        [mixture] = _mixtures(parameters)
        return np.empty((0, len(mixture.weights))) if data is None else data.responsibilities(mixture)

    def describe(self) -> Any:
        return self.described if self.data is None else self.data._describe()


#: The operations whose values are added over partitions; those of the others stay apart.
_ADDED = {"statistics", "totals", "moments"}
_OPERATIONS = _ADDED | {"rows", "draw", "scores", "labels", "responsibilities", "describe"}
#: The operations that a partition does by its number.
_NUMBERED = {"rows", "draw"}


class Shard:
    """The partitions of one worker, in its device.

    A pickle of it is a shard without partitions, because what is in a device does not travel.

    Parameters
    ----------
    options : Options
        How partitions are loaded.

    Examples
    --------
    >>> import numpy as np
    >>> from gaussmix.cluster import Options, Partition, Shard, merge
    >>> from gaussmix._partitions import Array
    >>> shard = Shard(Options("<f8", n_partitions=2))
    >>> shard.load(1, Partition("the second part", Array(np.array([[3.0], [5.0]]))))
    Facts(n_samples=2, n_features=1, total_weight=2.0, resident=True, missing=None)
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._parts: dict[int, _Part] = {}
        self._lock = threading.Lock()
        #: The bytes of partitions that stay, in memory and in the device, and how many may stay.
        self._bytes = self._device_bytes = 0
        self._memory = _core.half_of_the_memory() if options.memory is None else options.memory
        self._device_memory = options.gpu_memory
        if self._device_memory is None:
            self._device_memory = _core.free_gpu_memory(options.device)

    def __reduce__(self) -> Any:
        """Give a shard without partitions."""
        return Shard, (self.options,)

    def load(self, number: int, partition: Partition) -> Facts:
        """Load a partition, in the place of an earlier one of this number.

        Parameters
        ----------
        number : int
            The number of the partition, from 0.
        partition : Partition
            Where its samples are.

        Returns
        -------
        facts : Facts
            How many samples there are, and of what weight.
        """
        options = self.options
        try:
            with self._lock:
                self._parts.pop(number, None)
                resident = self._bytes < self._memory if options.resident is None else options.resident
                in_device = self._device_memory is None or self._device_bytes < _DEVICE_SHARE * self._device_memory
            part = _Part(partition, options, resident, in_device)
        except Exception as error:
            raise partition.error(error) from error
        with self._lock:
            self._parts[number] = part
            if part.held is not None:
                size = part.held[0].nbytes
                # The array; and on the CPU what the device makes of it.
                self._bytes += size if self._device_memory is not None else 2 * size
            if part.data is not None:
                # In float64 it is twice as much, beside the samples in float32.
                wide = np.dtype(options.dtype).itemsize == 8
                self._device_bytes += size if wide else 2 * size if options.float64 else 3 * size
        return part.facts

    def ask(self, operation: str, message: bytes, numbers: Iterable[int] | None = None) -> list[Answer]:
        """Answer a request for some partitions.

        Parameters
        ----------
        operation : str
            The name of the operation, for example 'statistics'.
        message : bytes
            What the operation needs, for example the parameters.
        numbers : iterable of int, default=None
            The partitions; by default all of the shard.

        Returns
        -------
        answers : list of Answer
            Values that are sums are added already as far as the tree allows.
        """
        if operation not in _OPERATIONS:
            raise ValueError(f"there is no operation {operation!r}; use one of {sorted(_OPERATIONS)}")
        wanted = sorted(self._parts if numbers is None else numbers)
        missing = [number for number in wanted if number not in self._parts]
        if missing:
            raise MissingPartitionsError(f"partitions {missing} are not loaded here")
        arguments = pickle.loads(message)
        tree: _Tree[Any] = _Tree(self.options.n_partitions, _join)
        answers: list[Answer] = []
        for number in wanted:
            part = self._parts[number]
            try:
                evaluate = getattr(part, operation)
                value = evaluate(*arguments, number) if operation in _NUMBERED else evaluate(*arguments)
            except Exception as error:
                raise part.partition.error(error) from error
            if operation in _ADDED:
                tree.add(0, number, value)
            elif value is not None:
                answers.append((0, number, _encode(value)))
        return answers + [(level, number, _encode(value)) for (level, number), value in sorted(tree.nodes.items())]


def merge(answers: Iterable[Answer], n_partitions: int) -> list[Answer]:
    """Add the answers of several shards to a request whose values are sums, as far as the tree over the partitions allows.

    An engine may call it for any part of the answers, on any worker: the bits of the sum of all stay the same.

    Parameters
    ----------
    answers : iterable of Answer
        Answers of one or several shards.
    n_partitions : int
        The number of all partitions.

    Returns
    -------
    merged : list of Answer
        As few answers as possible.
    """
    tree: _Tree[Any] = _Tree(n_partitions, _join)
    untouched: dict[tuple[int, int], bytes] = {}
    for level, number, value in answers:
        untouched[level, number] = value
        tree.add(level, number, _decode(value))
    return [
        (*node, untouched[node] if node in untouched else _encode(value)) for node, value in sorted(tree.nodes.items())
    ]


class Engine(ABC):
    """Has workers load partitions, and asks all of them.

    The methods are called in one process, by one thread at a time. A worker's exception is to be raised by the method that
    waits for the worker.
    """

    def files(self, paths: Sequence[str]) -> list[File]:
        """Find files and read their heads, where the workers can.

        Parameters
        ----------
        paths : sequence of str
            Names and patterns.

        Returns
        -------
        files : list of File
            Each file with the shape and type of its array.
        """
        return [_partitions.inspect(path) for path in _partitions.expand(paths)]

    def agree(self, error: BaseException | None) -> None:
        """Raise an error of this process. Engines of which several processes call `fit` raise it in all.

        Parameters
        ----------
        error : BaseException or None
            The error, if there is one.
        """
        if error is not None:
            raise error

    @abstractmethod
    def load(self, partitions: Sequence[Partition], options: Options) -> list[Facts]:
        """Have each partition loaded by one worker, in the place of all that were loaded before.

        Parameters
        ----------
        partitions : sequence of Partition
            The partitions, by their numbers.
        options : Options
            What workers make their shards with.

        Returns
        -------
        facts : list of Facts
            What ``shard.load`` returned for each partition.
        """

    @abstractmethod
    def ask(self, operation: str, message: bytes) -> Iterable[Answer]:
        """Ask all shards.

        Parameters
        ----------
        operation : str
            To be handed on to ``shard.ask``.
        message : bytes
            The same.

        Returns
        -------
        answers : iterable of Answer
            All that the shards returned, in any order, or for operations of `added` what `merge` made of it.
        """

    @staticmethod
    def added(operation: str) -> bool:
        """Say whether `merge` may be called for the answers to an operation.

        Parameters
        ----------
        operation : str
            The name of the operation.

        Returns
        -------
        added : bool
            Whether its values are sums.
        """
        return operation in _ADDED

    def close(self) -> None:
        """Have the workers drop their shards."""


class InProcess(Engine):
    """Shards of this process, one after the other: what others are compared with.

    Parameters
    ----------
    n_shards : int, default=1
        The number of shards.

    Examples
    --------
    >>> import numpy as np
    >>> from gaussmix.cluster import GaussianMixture, InProcess
    >>> X = np.concatenate([np.linspace(-1, 1, 50), np.linspace(9, 11, 50)])[:, np.newaxis]
    >>> gm = GaussianMixture(2, engine=InProcess(), partition_rows=30, random_state=0).fit(X)
    >>> gm.means_.round(6).ravel()
    array([10., -0.])
    """

    def __init__(self, n_shards: int = 1) -> None:
        self.n_shards = n_shards
        self._shards: list[Shard] = []

    def load(self, partitions: Sequence[Partition], options: Options) -> list[Facts]:
        """Load partitions in turn.

        Parameters
        ----------
        partitions : sequence of Partition
            The partitions.
        options : Options
            The options of the shards.

        Returns
        -------
        facts : list of Facts
            Those of each partition.
        """
        # More than there are partitions would have none.
        n_shards = max(1, min(self.n_shards, len(partitions)))
        self._shards = [Shard(options) for _ in range(n_shards)]
        return [self._shards[i % n_shards].load(i, partition) for i, partition in enumerate(partitions)]

    def ask(self, operation: str, message: bytes) -> list[Answer]:
        """Ask one shard after the other.

        Parameters
        ----------
        operation : str
            The operation.
        message : bytes
            Its message.

        Returns
        -------
        answers : list of Answer
            All answers.
        """
        return [answer for shard in self._shards for answer in shard.ask(operation, message)]

    def close(self) -> None:
        """Drop the shards."""
        self._shards = []


class _Interrupts:
    """Remembers Ctrl-C while workers are asked, so that the present iteration ends first. A second one is not held back."""

    def __init__(self) -> None:
        self.pressed = False
        self._before: Any = None

    def hold(self) -> None:
        usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if usual and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._press)

    def _press(self, *_: object) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True

    def release(self) -> bool:
        """Hold nothing back any longer; say whether there is a Ctrl-C that nobody has seen."""
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None
        pressed, self.pressed = self.pressed, False
        return pressed

    def check(self) -> None:
        if self.pressed:
            self.pressed = False
            raise KeyboardInterrupt


class _Remote:
    """What `_core.Data.remote` asks for: results over the samples of all partitions."""

    def __init__(
        self,
        engine: Engine,
        facts: Sequence[Facts],
        interrupts: _Interrupts,
        ready: Callable[[], object] = lambda: None,
    ) -> None:
        self.engine, self.facts, self.interrupts, self.ready = engine, facts, interrupts, ready
        self.ends = np.cumsum([fact.n_samples for fact in facts])
        self.shape = (int(self.ends[-1]), facts[0].n_features)
        self.total_weight = math.fsum(fact.total_weight for fact in facts)
        self.out_of_range: _core.OutOfRangeError | None = None

    def _ask(self, operation: str, *arguments: Any) -> Iterable[Answer]:
        # Before the first iteration there is nothing that a fit could leave.
        self.interrupts.check()
        self.ready()
        return self.engine.ask(operation, pickle.dumps(arguments, 5))

    def sum(self, operation: str, *arguments: Any) -> Any:
        tree: _Tree[Any] = _Tree(len(self.facts), _join)
        try:
            for level, number, value in self._ask(operation, *arguments):
                tree.add(level, number, _decode(value))
        except _core.OutOfRangeError as error:
            self.out_of_range = error
            raise
        return tree.root()

    def parts(self, operation: str, *arguments: Any) -> list[Any]:
        answers = sorted(self._ask(operation, *arguments))
        return [_decode(value) for _, _, value in answers]

    @contextmanager
    def told(self) -> Iterator[None]:
        """Restore the text of an error that the engine has handed on without it."""
        try:
            yield
        except _core.OutOfRangeError as error:
            raise self.out_of_range or error from None

    # By these names the engine calls them.

    def e_step(self, mixture: _core.Mixture) -> Any:
        return self.sum("statistics", _parameters([mixture]))

    def totals(self, mixtures: Sequence[_core.Mixture]) -> Any:
        return self.sum("totals", _parameters(mixtures))

    def scores(self, mixture: _core.Mixture) -> Any:
        return np.concatenate(self.parts("scores", _parameters([mixture])))

    def labels(self, mixture: _core.Mixture) -> Any:
        return np.concatenate(self.parts("labels", _parameters([mixture])))

    def responsibilities(self, mixture: _core.Mixture) -> Any:
        return np.concatenate(self.parts("responsibilities", _parameters([mixture])))

    def rows(self, indices: NDArray[np.int64]) -> Any:
        order = np.argsort(indices, kind="stable")
        owners = np.searchsorted(self.ends, indices[order], side="right")
        begins = self.ends - [fact.n_samples for fact in self.facts]
        wanted = {int(n): indices[order][owners == n] - begins[n] for n in np.unique(owners)}
        parts = self.parts("rows", wanted)
        x, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
        back = np.argsort(order, kind="stable")
        return np.ascontiguousarray(x[back]), weights[back]

    def draw(self, mixture: _core.Mixture, seed: int, size: int) -> Any:
        first_rows = [int(end) - fact.n_samples for end, fact in zip(self.ends, self.facts, strict=True)]
        try:
            parts = self.parts("draw", _parameters([mixture]), seed, first_rows, size)
        except _core.OutOfRangeError as error:
            self.out_of_range = error
            raise
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    def describe(self) -> Any:
        found = [tuple(name) for name in self.parts("describe") if name is not None]
        names = [sorted({name[i] for name in found}) for i in range(2)]
        return " + ".join(names[0]), " + ".join(names[1])


class ClusterEvaluations(Evaluations, Protocol):
    """The samples of all partitions, as estimators use them."""

    def total(self, mixture: _core.Mixture) -> float: ...


class _Resident(ClusterEvaluations):
    """The samples of all partitions, in the devices of the workers."""

    def __init__(self, remote: _Remote) -> None:
        self.remote, self.data = remote, _core.Data.remote(remote)

    @property
    def total_weight(self) -> float:
        return self.remote.total_weight

    def labels(self, mixture: _core.Mixture) -> NDArray[np.int64]:
        with self.remote.told():
            return self.data.labels(mixture)

    def total(self, mixture: _core.Mixture) -> float:
        with self.remote.told():
            return float(self.remote.totals([mixture])[0])

    def e_step(self, mixture: _core.Mixture) -> _core.Statistics:
        with self.remote.told():
            return self.data.e_step(mixture)

    def fit(
        self,
        options: dict[str, Any],
        start: _core.Mixture | None = None,
        callback: Callable[[int, float, float, _core.Mixture], object] | None = None,
    ) -> _core.Fit:
        def after(iteration: int, lower_bound: float, change: float, mixture: _core.Mixture) -> object:
            self.remote.interrupts.check()
            return callback is not None and callback(iteration, lower_bound, change, mixture)

        with self.remote.told():
            return self.data.fit(options, start, after)


class Plan(NamedTuple):
    """What is to be loaded.

    Parameters
    ----------
    partitions : list of Partition
        The partitions.
    dtype : dtype
        The type of all samples.
    head : array or table
        As many columns as the samples have, with their names, and without rows.
    """

    partitions: list[Partition]
    dtype: np.dtype[Any]
    head: Any


def plan(engine: Engine, X: Any, sample_weight: Any, partition_rows: int | None) -> Plan:
    """Divide an array or files into partitions.

    Parameters
    ----------
    engine : Engine
        Finds files.
    X : array-like, path, or list of paths
        The samples.
    sample_weight : array-like, path, or list of paths
        Their weights, or None.
    partition_rows : int or None
        The rows of a partition.

    Returns
    -------
    plan : Plan
        The partitions.
    """
    if not _partitions.are_paths(X):
        head = X
        X = check_array(na_as_nan(X), dtype=[np.float64, np.float32], ensure_all_finite=False, ensure_min_samples=0)
        if _partitions.are_paths(sample_weight):
            raise ValueError("sample_weight names files, which goes with samples in files only; give an array")
        partitions = _partitions.of_array(X, partition_rows, sample_weight)
        return Plan(partitions, _partitions.common_dtype([X.dtype]), head)
    files = engine.files(_listed(X))
    _partitions.check_samples(files)
    dtype = _partitions.common_dtype(file.dtype for file in files)
    partitions = _partitions.divide(files, partition_rows, dtype)
    heads = engine.files(_listed(sample_weight)) if _partitions.are_paths(sample_weight) else None
    counts = _partitions.lengths(partitions, files)
    partitions = _partitions.with_weights(partitions, counts, sample_weight, heads)
    return Plan(partitions, dtype, head_of(files[0]))


def _listed(paths: Any) -> list[str]:
    return [paths] if not isinstance(paths, (list, tuple)) else list(paths)


def head_of(file: File) -> Any:
    """Give an array or table without rows that has the columns of a file."""
    if file.columns is None:
        return np.empty((0, file.shape[1]))
    import pyarrow

    return pyarrow.table({name: pyarrow.array([], pyarrow.float64()) for name in file.columns})


def agreed(engine: Engine, work: Callable[[], _Value]) -> _Value:
    """Do what may fail in one of several processes that all do it, and raise the error in all of them.

    Parameters
    ----------
    engine : Engine
        Knows of the other processes.
    work : callable
        What to do.

    Returns
    -------
    result : object
        What `work` returned.
    """
    error: Exception | None = None
    try:
        result = work()
    except Exception as raised:
        error = raised
    engine.agree(error)
    return result


def _check_columns(estimator: GaussianMixture, planned: Plan, reset: bool) -> None:
    _check_feature_names(estimator, planned.head, reset=reset)
    _check_n_features(estimator, planned.head, reset=reset)


class _ClusterSamples(Samples):
    """The partitions of a cluster."""

    def __init__(self, estimator: GaussianMixture, X: Any, sample_weight: Any, reset: bool = True) -> None:
        self.estimator, self.interrupts = estimator, _Interrupts()
        if estimator.standardize:
            Units.check(estimator.covariance_type)
        self.engine = estimator._make_engine()
        try:
            self._load(X, sample_weight, reset)
        except BaseException:
            self.engine.close()
            raise

    def _load(self, X: Any, sample_weight: Any, reset: bool) -> None:
        estimator = self.estimator

        def planned() -> Plan:
            found = estimator._plan(self.engine, X, sample_weight)
            _check_columns(estimator, found, reset)
            return found

        self.plan = agreed(self.engine, planned)
        self.dtype = self.plan.dtype
        self.options = Options(
            self.dtype.str,
            len(self.plan.partitions),
            device=estimator.device,
            threads=n_threads(estimator.n_jobs),
            resident=estimator.resident,
            missing=estimator.missing,
        )
        self.facts = self.engine.load(self.plan.partitions, self.options)
        #: What the engine has loaded.
        self.loaded = self.plan.partitions
        check_facts(self.facts, self.plan.partitions, 2 if reset else 1, type(estimator).__name__)
        self.shape = (sum(fact.n_samples for fact in self.facts), self.facts[0].n_features)

    def serve(self, estimator: GaussianMixture) -> None:
        """Let another estimator, which differs in what does not concern the samples, fit to them."""
        _check_columns(estimator, self.plan, True)
        self.estimator = estimator

    def load(self) -> _Resident:
        if self.estimator.missing:
            note_missing(missing_of_all(self.facts))
        self.interrupts.hold()
        return self._resident()

    def _resident(self, partitions: list[Partition] | None = None) -> _Resident:
        """Give the samples, in the units of these partitions, which are loaded again where the engine has others."""
        wanted = self.plan.partitions if partitions is None else partitions

        def ready() -> None:
            if self.loaded is not wanted:
                self.engine.load(wanted, self.options)
                self.loaded = wanted

        self.remote = _Remote(self.engine, self.facts, self.interrupts, ready)
        return _Resident(self.remote)

    def standardize(self) -> tuple[Units, Evaluations]:
        units = Units.of(self.remote.sum("moments"), self.estimator.covariance_type)
        scaled = [partition._replace(units=(units.mean, units.scale)) for partition in self.plan.partitions]
        return units, self._resident(scaled)

    def start(
        self, parameters: _start.Parameters, random_state: np.random.RandomState, total_weight: float
    ) -> tuple[_core.Mixture | None, float]:
        # Of many samples the start is found by the engine, which asks for some rows; only their number counts here.
        X, weights = np.broadcast_to(np.zeros(1), self.shape), None
        if self.shape[0] <= _start.SCIKIT_LEARN_START and any(part is None for part in parameters):
            X, weights = self.remote.rows(np.arange(self.shape[0]))
            X = X.astype(self.dtype, copy=False)
            weighted = any(partition.weights is not None for partition in self.plan.partitions)
            weights = weights if weighted else None
        return _start.start(X, parameters, self.estimator, random_state, weights, total_weight)

    def __enter__(self) -> _ClusterSamples:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        pressed = self.interrupts.release()
        self.engine.close()
        if pressed and kind is None:
            raise KeyboardInterrupt


def missing_of_all(facts: Sequence[Facts]) -> Missing:
    """Say what is missing in all partitions together.

    Parameters
    ----------
    facts : sequence of Facts
        What is known of the partitions.

    Returns
    -------
    missing : Missing
        With the numbers of rows among those of all partitions.
    """
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
    """Check that partitions belong together, and that there are enough samples.

    Parameters
    ----------
    facts : sequence of Facts
        What is known of the partitions.
    partitions : sequence of Partition
        The partitions.
    least : int
        The least number of samples.
    name : str
        The estimator, for the message.
    """
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


_Init = TypeVar("_Init", bound=Callable[..., None])
_Class = TypeVar("_Class", bound=type)


def with_parameters_of_the_local_estimator(init: _Init) -> _Init:
    """Give ``__init__`` a signature in which the parameters of the local estimator stand in the place of ``**params``."""
    local = dict(inspect.signature(_estimator.GaussianMixture.__init__).parameters)
    own = {
        name: parameter
        for name, parameter in inspect.signature(init).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD and name not in local
    }
    init.__signature__ = inspect.Signature([*local.values(), *own.values()])  # type: ignore[attr-defined]
    return init


def with_documentation_of_the_local_estimator(cls: _Class) -> _Class:
    """Put the descriptions of the parameters of the local estimator in the place of that of ``**params``."""
    if cls.__doc__ is None or _estimator.GaussianMixture.__doc__ is None:
        # Python was started with -OO.
        return cls
    entry = re.compile(r"^(?=\S+ : )", re.MULTILINE)
    local = inspect.cleandoc(_estimator.GaussianMixture.__doc__).split("Parameters\n----------\n")[1].split("\n\n")[0]
    head, rest = inspect.cleandoc(cls.__doc__).split("Parameters\n----------\n")
    own, *after = rest.split("\n\n")
    added = [text.rstrip() for text in entry.split(own) if text and not text.startswith(("n_components ", "**params "))]
    parameters = "\n".join([local.rstrip(), *added])
    cls.__doc__ = "\n\n".join([f"{head}Parameters\n----------\n{parameters}", *after])
    return cls


@with_documentation_of_the_local_estimator
class GaussianMixture(_estimator.GaussianMixture):
    """A Gaussian mixture, fitted to partitions that an engine's workers hold.

    Methods, attributes and errors are those of :class:`gaussmix.GaussianMixture`, and so are the results, but for the
    rounding of sums. `gaussmix.dask.GaussianMixture` and `gaussmix.mpi.GaussianMixture` bring their own engines.

    Samples are an array, which is divided, or paths of .npy and Parquet files, which the workers read.

    Parameters
    ----------
    n_components : int, default=1
        The number of components.
    engine : Engine or None, default=None
        What the workers run on; by default this process.
    partition_rows : int or None, default=None
        The rows of a partition. By default such that there are about 512 partitions of 4 to 256 MiB. The division decides
        about the last bits of the result.
    resident : bool or None, default=None
        Whether partitions stay in the memory of their workers. Where they do not, each iteration reads them again, one
        after the other. By default as many stay as the memory holds.
    **params : dict
        The other parameters of :class:`gaussmix.GaussianMixture`.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_estimator.GaussianMixture._parameter_constraints,
        "engine": [Engine, None],
        "partition_rows": [Interval(Integral, 1, None, closed="left"), None],
        "resident": ["boolean", None],
    }

    @with_parameters_of_the_local_estimator
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

    #: The parameters that `clone` shares and a pickle leaves out, because they are connections to workers.
    _connections: ClassVar[tuple[str, ...]] = ("engine",)

    def __sklearn_clone__(self) -> GaussianMixture:
        """Make an unfitted estimator with the same parameters, on the same workers."""
        held = {name: getattr(self, name) for name in self._connections}
        for name in held:
            setattr(self, name, None)
        try:
            made: GaussianMixture = super().__sklearn_clone__()
        finally:
            for name, value in held.items():
                setattr(self, name, value)
        return made.set_params(**held)  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **dict.fromkeys(self._connections)}

    def _make_engine(self) -> Engine:
        return InProcess() if self.engine is None else self.engine

    def _plan(self, engine: Engine, X: Any, sample_weight: Any) -> Plan:
        return plan(engine, X, sample_weight, self.partition_rows)

    def _samples(self, X: Any, sample_weight: Any) -> Samples:
        return _ClusterSamples(self, X, sample_weight)

    def _evaluate(self, X: Any, sample_weight: Any, work: Callable[[_Resident], Any]) -> Any:
        """Load samples for a fitted mixture, and drop them after `work`."""
        check_is_fitted(self)
        with _ClusterSamples(self, X, sample_weight, reset=False) as samples:
            resident = samples._resident()
            with resident.remote.told():
                return work(resident)

    def _statistics(self, X: Any, sample_weight: Any) -> _core.Statistics:
        statistics: _core.Statistics = self._evaluate(X, sample_weight, lambda data: data.e_step(self._mixture()))
        return statistics

    def _total(self, X: Any, sample_weight: Any) -> tuple[float, float]:
        check_is_fitted(self)
        mixture = self._mixture()
        total: tuple[float, float] = self._evaluate(
            X, sample_weight, lambda data: (data.total(mixture), data.total_weight)
        )
        return total

    @classmethod
    def _fitted(
        cls, estimators: Iterable[_estimator.GaussianMixture], X: Any, sample_weight: Any
    ) -> Iterator[
        tuple[_estimator.GaussianMixture, float, float] | tuple[_estimator.GaussianMixture, _core.TooFewSamplesError]
    ]:
        samples: _ClusterSamples | None = None
        with ExitStack() as stack:
            for estimator in estimators:
                estimator._validate_params()
                assert isinstance(estimator, GaussianMixture)
                if samples is None:
                    # The workers load them once for all.
                    samples = _ClusterSamples(estimator, X, sample_weight)
                    stack.enter_context(samples)
                else:
                    samples.serve(estimator)
                try:
                    data = cast(ClusterEvaluations, estimator._fit(samples))
                except _core.TooFewSamplesError as error:
                    yield estimator, error
                else:
                    yield estimator, data.total(estimator._mixture()), data.total_weight

    def fit_predict(self, X: Any, y: object = None, sample_weight: Any = None) -> Any:
        """Fit the mixture, and give the most probable component of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or paths
            The samples.
        y : Ignored
            Not used, present by convention.
        sample_weight : array-like of shape (n_samples,), or paths, default=None
            A sample of weight 2 counts as two.

        Returns
        -------
        labels : array of shape (n_samples,)
            What `predict` gives.
        """
        return self.fit(X, sample_weight=sample_weight).predict(X)

    def score(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> float:
        """Give the mean log-likelihood of a sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or paths
            The samples.
        y : Ignored
            Not used, present by convention.
        sample_weight : array-like of shape (n_samples,), or paths, default=None
            A sample of weight 2 counts as two.

        Returns
        -------
        log_likelihood : float
            The mean, by weight.
        """
        total, n = self._total(X, sample_weight)
        return total / n

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Give the most probable component of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or paths
            The samples.

        Returns
        -------
        labels : array of shape (n_samples,)
            The components, counted from 0.
        """
        labels: NDArray[np.int64] = self._values("labels", X)
        return labels

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Give the probability of each component for each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or paths
            The samples.

        Returns
        -------
        resp : array of shape (n_samples, n_components)
            The probabilities, which sum to 1 for each sample.
        """
        resp: Floats = self._values("responsibilities", X)
        return resp

    def score_samples(self, X: ArrayLike) -> Floats:
        """Give the log-likelihood of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or paths
            The samples.

        Returns
        -------
        log_prob : array of shape (n_samples,)
            The logarithms of the density.
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

        def work(data: _Resident) -> Any:
            found = getattr(data.data, operation)(self._mixture())
            if operation == "labels":
                return found
            return found.astype(self._value_type(getattr(X, "dtype", None)), copy=False)

        return self._evaluate(X, None, work)

    def _local(self) -> _estimator.GaussianMixture:
        """Give the mixture as an estimator of one process."""
        params = _estimator.GaussianMixture().get_params()
        local = _estimator.GaussianMixture(**{name: getattr(self, name) for name in params})
        local.__dict__.update({name: value for name, value in vars(self).items() if name.endswith("_")})
        local._average, local._chunks, local._made = None, 0, None
        return local


class Likelihood:
    """The log-likelihood of samples that stay in the devices of an engine's workers.

    It is called as :class:`gaussmix.Likelihood` is: with the parameters of one mixture, or with those of several, which
    travel together, there and back. `close`, or a ``with`` statement, frees the memory of the workers.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features), or paths
        The samples.
    sample_weight : array-like of shape (n_samples,), or paths, default=None
        A sample of weight 2 counts as two.
    engine : Engine or None, default=None
        What the workers run on; by default this process.
    device : str, default='auto'
        Where the workers compute: 'auto', 'cpu', 'cuda', 'cuda:N' or 'reference'.
    covariance_type : {'full', 'tied', 'diag', 'spherical'} or None, default=None
        The type of all covariances; by default it follows from their shape.
    float64 : bool, default=False
        Whether to compute in float64 for float32 samples too.
    n_jobs : int or None, default=None
        The number of threads of a worker, as joblib counts.
    partition_rows : int or None, default=None
        The rows of a partition, where samples are to be divided.
    resident : bool or None, default=None
        Whether partitions stay in memory; by default as many as it holds.
    missing : bool, default=False
        Whether NaN stands for a value that is missing at random. The likelihood of a sample is then that of its observed
        values.

    Examples
    --------
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
            found = agreed(self._engine, lambda: self._plan(X, sample_weight, partition_rows, resident))
            options = Options(
                found.dtype.str, len(found.partitions), device, n_threads(n_jobs), float64, resident, missing=missing
            )
            facts = self._engine.load(found.partitions, options)
            check_facts(facts, found.partitions, 1, type(self).__name__)
        except BaseException:
            self._engine.close()
            raise
        self._remote = _Remote(self._engine, facts, _Interrupts())
        self._data = _core.Data.remote(self._remote, covariance_type)

    def _plan(self, X: Any, sample_weight: Any, partition_rows: int | None, resident: bool | None) -> Plan:
        return plan(self._engine, X, sample_weight, partition_rows)

    def _evaluate(self, work: Callable[[], _Value]) -> _Value:
        """Do something that asks the workers."""
        with self._remote.told():
            return work()

    def __call__(self, weights: ArrayLike, means: ArrayLike, covariances: ArrayLike) -> Any:
        """Give the total log-likelihood, of one set of parameters or of each of several."""
        return self._evaluate(lambda: self._data(weights, means, covariances))

    def score_samples(self, weights: ArrayLike, means: ArrayLike, covariances: ArrayLike) -> NDArray[np.float64]:
        """Give the log-likelihood of each sample, without its weight.

        Parameters
        ----------
        weights : array-like of shape (n_components,)
            The weights of the components.
        means : array-like of shape (n_components, n_features)
            The means.
        covariances : array-like
            The covariances, in the shape of their type.

        Returns
        -------
        log_prob : ndarray of shape (n_samples,)
            The logarithms of the density.
        """
        return self._evaluate(lambda: self._data._score_samples(weights, means, covariances))

    def gradient(
        self, weights: ArrayLike, means: ArrayLike, covariances: ArrayLike
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Give the total log-likelihood and its derivatives.

        Parameters
        ----------
        weights : array-like of shape (n_components,)
            The weights of the components.
        means : array-like of shape (n_components, n_features)
            The means.
        covariances : array-like
            The covariances, in the shape of their type.

        Returns
        -------
        value : float
            The total log-likelihood.
        by_weights : ndarray of shape (n_components,)
            Its derivatives by the weights.
        by_means : ndarray of shape (n_components, n_features)
            Its derivatives by the means.
        by_covariances : ndarray
            Its derivatives by the covariances, in their shape.
        """
        return self._evaluate(lambda: self._data._gradient(weights, means, covariances))

    def statistics(self, weights: ArrayLike, means: ArrayLike, covariances: ArrayLike) -> _core.Statistics:
        """Give the sufficient statistics under a mixture, from which an M-step follows.

        Parameters
        ----------
        weights : array-like of shape (n_components,)
            The weights of the components.
        means : array-like of shape (n_components, n_features)
            The means.
        covariances : array-like
            The covariances, in the shape of their type.

        Returns
        -------
        statistics : Statistics
            Counts, means and scatter of the components, and the log-likelihood.
        """
        return self._evaluate(lambda: self._data._statistics(weights, means, covariances))

    @property
    def device(self) -> str:
        """The devices of the last evaluation, in words."""
        return self._evaluate(lambda: self._data._describe()[0])

    def close(self) -> None:
        """Free the memory of the workers. The likelihood cannot be used any more."""
        self._engine.close()

    def __enter__(self) -> Likelihood:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
