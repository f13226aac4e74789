"""What a worker holds: the partitions that it has loaded, in its device; and the fixed tree in which their values are added."""

import pickle
import threading
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._arrays import Floats, Labels, Missing, Weights, refusing_non_finite, rows_of_caller
from .._partitions import Partition
from ..hmm._base import sequences_of

#: A part of the answer to a request: the place of the value in the tree over the partitions (its level, and its number on this level), and
#: the value as bytes, which are empty where the partitions have no samples.
Answer = tuple[int, int, bytes]


class MissingPartitionsError(LookupError):
    """A shard was asked for partitions that it has not loaded."""


class Tree:
    """Adds values in a fixed tree over the numbers of the partitions, as far as they are there."""

    def __init__(self, n_partitions: int) -> None:
        self.n_partitions = n_partitions
        self.nodes: dict[tuple[int, int], Any] = {}

    def add(self, level: int, number: int, value: Any) -> None:
        """Add the value of a node; it is None where there are no samples below."""
        while (width := -(-self.n_partitions >> level)) > 1:
            sibling = number ^ 1
            if sibling < width:
                if (level, sibling) not in self.nodes:
                    break
                other = self.nodes.pop((level, sibling))
                left, right = (value, other) if number < sibling else (other, value)
                value = right if left is None else left if right is None else left + right
            level, number = level + 1, number // 2
        self.nodes[level, number] = value

    def root(self) -> Any:
        """Give the sum over all partitions."""
        if len(self.nodes) != 1 or -(-self.n_partitions >> next(iter(self.nodes))[0]) != 1:
            raise MissingPartitionsError("the engine has not brought the answers of all partitions")
        return next(iter(self.nodes.values()))


def encode(value: Any) -> bytes:
    return b"" if value is None else pickle.dumps(value, 5)


def decode(value: bytes) -> Any:
    return pickle.loads(value) if value else None


def merge(answers: Iterable[Answer], n_partitions: int) -> list[Answer]:
    """Add answers of several shards to a request whose values are sums, and return as few as possible.

    They are added as far as the tree over the partitions allows. An engine may call it for any part of the answers, on
    any worker: the bits of the sum of all stay the same.
    Parameters:
    answers : iterable of Answer -- Answers of one or several shards.
    n_partitions : int -- The number of all partitions.
    """
    tree = Tree(n_partitions)
    untouched: dict[tuple[int, int], bytes] = {}
    for level, number, value in answers:
        untouched[level, number] = value
        tree.add(level, number, decode(value))
    return [(*node, untouched[node] if node in untouched else encode(value)) for node, value in sorted(tree.nodes.items())]


#: The share of a GPU's free memory that partitions may take; the rest is for evaluations and for one more partition.
_DEVICE_SHARE = 0.8


class Options(NamedTuple):
    """How shards load their partitions.
    Parameters:
    dtype : str -- The type of all samples, '<f8' or '<f4'.
    n_partitions : int -- The number of all partitions, of all workers.
    device : str -- Where to compute.
    threads : int or None -- The number of threads of a worker; None leaves it to the engine.
    float64 : bool -- Whether to compute in float64 for float32 samples too.
    resident : bool or None
        Whether partitions stay in memory. Others are read again for each request. None keeps as many as `memory`
        holds.
    memory : int or None
        The bytes of memory that the partitions of a worker may take, where `resident` is None. None is half of what
        the process may use.
    gpu_memory : int or None
        The bytes of the worker's GPU that its partitions may take, with room for evaluations. Others are brought to
        the GPU for each request, one after the other. None is what is free when the shard is made.
    missing : bool -- Whether NaN stands for a missing value.
    n_components : int -- The number of components, where partitions have labels.
    reproducible : bool -- Whether results have the same bits on every CPU.
    noise : ndarray, int or None
        The covariance of the noise of all samples; or the number of the columns before those of each sample's noise.
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
    n_components: int = 0
    reproducible: bool = False
    noise: Any = None


class Facts(NamedTuple):
    """What is known of a partition once it was loaded.
    Parameters:
    n_samples : int -- The number of its samples, which may be 0.
    n_features : int -- The number of features.
    total_weight : float -- The sum of the sample weights; without weights the number of samples.
    resident : bool -- Whether it stays in memory.
    missing : Missing or None -- What is missing, where values may be.
    """

    n_samples: int
    n_features: int
    total_weight: float
    resident: bool
    missing: Missing | None = None


class _Part:
    """A partition in a shard."""

    def __init__(self, number: int, partition: Partition, options: Options, resident: bool, in_device: bool) -> None:
        self.number, self.partition, self.options = number, partition, options
        x, weights = partition.read(np.dtype(options.dtype))
        labels = partition.known(x.shape[0], options.n_components)
        beside = weights if partition.sequences is None else partition.sequences[1]
        total = float(x.shape[0]) if beside is None else float(np.sum(beside))
        measured, _ = self._split(x)
        missing = Missing.of(measured, weights) if options.missing else None
        self.facts = Facts(x.shape[0], measured.shape[1], total, resident, missing)
        # Samples that do not stay are brought to the device all the same, which looks for what is not finite.
        data = self._data(x, weights, labels)
        #: Samples, weights and labels in memory.
        self.held = (x, weights, labels) if resident else None
        #: The samples in the device; also None where there are no samples.
        self.data = data if resident and in_device else None
        self.described = getattr(data, "describe", lambda: None)()

    def _split(self, x: Floats) -> tuple[Floats, Any]:
        """Return samples, and their noise as the engine takes it."""
        c = self.options.noise
        if not isinstance(c, int):
            return x, None if c is None else (c, True, None, None)
        noise = np.ascontiguousarray(x[:, c:], np.float64)
        return np.ascontiguousarray(x[:, :c]), (noise if noise.shape[1] == c else noise.reshape(-1, c, c), False, None, None)

    def _data(self, x: Floats, weights: Weights, labels: Labels | None) -> Any:
        options, sequences = self.options, self.partition.sequences
        if sequences is not None and (len(x) or len(sequences[0] or ())):
            return sequences_of(x, sequences[0], sequences[1] if np.any(sequences[1]) else None, options.missing, options.device)
        if x.shape[0] == 0:
            return None
        if weights is not None and not weights.any():
            # The engine refuses them; values per sample do not depend on weights.
            weights = None
        x, noise = self._split(x)
        first = self.partition.first
        with refusing_non_finite(x, missing=options.missing), rows_of_caller(range(first, first + len(x))):
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
                labels=None if labels is None else (labels, options.n_components),
                reproducible=options.reproducible,
                noise=noise,
            )

    def read(self) -> tuple[Floats, Weights]:
        """Give samples and weights; those that are not resident are read again."""
        return self.partition.read(np.dtype(self.options.dtype)) if self.held is None else self.held[:2]

    def labels(self) -> Labels | None:
        """Give the labels of the samples, if there are any; those that are not resident are read again."""
        if self.held is not None:
            return self.held[2]
        return self.partition.known(self.facts.n_samples, self.options.n_components)

    def opened(self) -> Any:
        """Give the samples in the device, to which those that do not stay there are brought."""
        return self._data(*self.read(), self.labels()) if self.data is None else self.data

    # The operations.

    def statistics(self, mixture: _core.Mixture) -> Any:
        return self.opened().e_step(mixture)

    def totals(self, mixtures: Sequence[_core.Mixture]) -> Any:
        return self.opened().totals(_core.Mixtures.several(mixtures))

    def moments(self) -> Any:
        return _core.Standardization.of(*self.read())

    def draw(self, mixture: _core.Mixture, seed: int, first_rows: list[int], size: int) -> Any:
        return self.opened().draw(mixture, seed, first_rows[self.number], size)

    def rows(self, wanted: dict[int, NDArray[np.int64]]) -> Any:
        if self.number not in wanted:
            return None
        x, weights = self.read()
        rows = wanted[self.number]
        return self._split(x[rows])[0].astype(np.float64), np.ones(len(rows)) if weights is None else weights[rows]

    def known(self) -> Any:
        labels = self.labels()
        return np.full(self.facts.n_samples, -1) if labels is None else labels

    def values(self, kind: str, mixture: _core.Mixture) -> Any:
        """Return the scores, labels or responsibilities of the samples."""
        return getattr(self.opened(), kind)(mixture)

    def sequence_values(self, model: Any, method: str, *arguments: Any) -> Any:
        """Call a method of a hidden Markov model with the sequences."""
        return getattr(model, method)(self.opened(), None, *arguments)

    sequence_sums = sequence_values

    def describe(self) -> Any:
        return self.described if self.data is None else self.data.describe()


#: The operations whose values are added over partitions; those of the others stay apart.
ADDED = {"statistics", "totals", "moments", "sequence_sums"}
#: The operations that pass over partitions without weight; the others pass over those without samples.
_WEIGHTED = ADDED | {"draw"}
_OPERATIONS = _WEIGHTED | {"rows", "values", "describe", "known", "sequence_values"}


class Shard:
    """The partitions of one worker, in its device.

    A pickle of it is a shard without partitions, because what is in a device does not travel.
    Parameters: options : Options -- How partitions are loaded.
    Examples:
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
        return Shard, (self.options,)

    def load(self, number: int, partition: Partition) -> Facts:
        """Load a partition, in the place of one of this number, and return how many samples there are, and of what weight.
        Parameters:
        number : int -- The number of the partition, from 0.
        partition : Partition -- Where its samples are.
        """
        options = self.options
        try:
            with self._lock:
                if (before := self._parts.pop(number, None)) is not None:
                    self._count(before, -1)
                resident = self._bytes < self._memory if options.resident is None else options.resident
                in_device = self._device_memory is None or self._device_bytes < _DEVICE_SHARE * self._device_memory
            part = _Part(number, partition, options, resident, in_device)
        except Exception as error:
            raise partition.error(error) from error
        with self._lock:
            self._parts[number] = part
            self._count(part, 1)
        return part.facts

    def _count(self, part: _Part, sign: int) -> None:
        """Count the bytes of a partition that comes, or goes."""
        if part.held is not None:
            size = sign * part.held[0].nbytes
            # The array; and on the CPU what the device makes of it.
            self._bytes += size if self._device_memory is not None else 2 * size
        if part.data is not None:
            # In float64 it is twice as much, beside the samples in float32.
            wide = np.dtype(self.options.dtype).itemsize == 8
            self._device_bytes += size if wide else 2 * size if self.options.float64 else 3 * size

    def ask(self, operation: str, message: bytes, numbers: Iterable[int] | None = None) -> list[Answer]:
        """Return the answers to a request for some partitions, in which sums are added already as far as the tree allows.
        Parameters: numbers : iterable of int, default=None -- The partitions; by default all partitions of the shard.
        """
        if operation not in _OPERATIONS:
            raise ValueError(f"there is no operation {operation!r}; use one of {sorted(_OPERATIONS)}")
        wanted = sorted(self._parts if numbers is None else numbers)
        missing = [number for number in wanted if number not in self._parts]
        if missing:
            raise MissingPartitionsError(f"partitions {missing} are not loaded here")
        arguments = pickle.loads(message)
        tree = Tree(self.options.n_partitions)
        answers: list[Answer] = []
        for number in wanted:
            part = self._parts[number]
            try:
                counts = part.facts.total_weight if operation in _WEIGHTED else part.facts.n_samples
                value = getattr(part, operation)(*arguments) if counts > 0 else None
            except Exception as error:
                raise part.partition.error(error) from error
            if operation in ADDED:
                tree.add(0, number, value)
            elif value is not None:
                answers.append((0, number, encode(value)))
        return answers + [(level, number, encode(value)) for (level, number), value in sorted(tree.nodes.items())]
