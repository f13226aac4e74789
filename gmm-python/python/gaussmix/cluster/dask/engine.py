"""Shards in the workers of a cluster of Dask, and what its users have, divided into partitions: dask arrays and dataframes."""

import asyncio
import math
import os
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import dask.array
import distributed
import numpy as np
from dask.delayed import delayed

from ... import _partitions
from ..._arrays import floats
from ..._partitions import Array, File, Partition
from ..engine import Engine, Plan
from ..shard import Answer, Facts, MissingPartitionsError, Options, Shard, merge

#: After so many seconds without an answer it is looked whether all workers are there.
_LOOK = 0.5
#: How long to wait for a worker where there is none, as when the only one is started again.
_WAIT_FOR_WORKERS = 60.0
#: A request is repeated at most as often, when workers die.
_ATTEMPTS = 5
#: Parameters and statistics of more bytes than these go from worker to worker, not all through one process.
_LARGE = 1 << 20
#: The share of a worker's memory that resident partitions may take.
_SHARE = 0.5


class _Lost(Exception):
    """Workers are gone."""

    def __init__(self, workers: Iterable[str]) -> None:
        super().__init__()
        self.workers = set(workers)


def _shard(options: Options) -> Shard:
    worker = distributed.get_worker()
    memory = worker.memory_manager.memory_limit
    return Shard(
        options._replace(threads=options.threads or worker.state.nthreads, memory=None if memory is None else int(memory * _SHARE))
    )


def _load(shard: Shard, number: int, partition: Partition, chunk: tuple[Any, Any, Any] | None) -> Facts:
    if chunk is not None:
        x, *beside = chunk
        weights, labels = (None if values is None else Array(values) for values in beside)
        partition = partition._replace(samples=Array(x), weights=weights, labels=labels)
    return shard.load(number, partition)


async def _ask_here(operation: str, message: bytes, wanted: dict[str, tuple[str, list[int]]], dask_worker: Any) -> tuple[str, Any]:
    """Ask the shard of this worker without a task, which takes a tenth of the time."""
    key, numbers = wanted[dask_worker.address]
    try:
        shard = dask_worker.data[key]
    except KeyError:
        return "lost", None
    threads = dask_worker.executors["default"]
    try:
        ask = asyncio.get_running_loop().run_in_executor(threads, shard.ask, operation, message, numbers)
        return "answers", await ask
    except MissingPartitionsError:
        return "lost", None
    except Exception as error:
        return "error", error


def _merge(left: list[Answer], right: list[Answer], n_partitions: int) -> list[Answer]:
    return merge([*left, *right], n_partitions)


def is_frame(X: Any) -> bool:
    return hasattr(X, "dask") and hasattr(X, "map_partitions") and hasattr(X, "npartitions") and not is_array(X)


def is_array(X: Any) -> bool:
    return isinstance(X, dask.array.Array)


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


class DaskEngine(Engine):
    """Shards in the workers of a cluster of Dask.

    A shard lives in the memory of its worker as the result of a task, so that it is freed when nobody refers to it any
    more, also when this process ends in another way than by `close`.
    """

    def __init__(self, client: Any = None) -> None:
        self._own: list[Any] = []
        if client is None:
            try:
                client = distributed.default_client()
            except ValueError:
                local = distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None, memory_limit=0)
                client = distributed.Client(local, set_as_default=False)
                self._own = [client, local]
        if client.asynchronous:
            raise ValueError("the client is asynchronous; give one that was made without asynchronous=True")
        self.client = client
        self._shards: dict[str, Any] = {}
        self._home: dict[int, str] = {}
        self._facts: dict[int, Facts] = {}
        self._partitions: list[Partition] = []
        #: The samples of partitions that are chunks of a dask collection.
        self.chunks: list[tuple[Any, Any, Any]] = []
        self._options: Options | None = None

    def files(self, paths: Sequence[str]) -> list[File]:
        self._live()
        names = self.client.submit(_partitions.expand, list(map(os.fspath, paths)), pure=False).result()
        heads = self.client.map(_partitions.inspect, names, pure=False)
        return list(self.client.gather(heads))

    def _plan(self, X: Any, sample_weight: Any, partition_rows: int | None, resident: bool | None, labels: Any = None, k: int = 0) -> Plan:
        """Divide what Dask's users have; hand the chunks of collections to the engine."""
        if resident is False and hasattr(X, "dask"):
            raise ValueError("resident=False needs files, which workers can read again; the chunks of a dask collection stay in memory")
        if is_frame(X):
            if partition_rows is not None:
                raise ValueError("partition_rows does not divide a dask dataframe; call its method repartition, or X.to_dask_array()")
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
            return Engine._plan(self, X, sample_weight, partition_rows, resident, labels, k)
        if is_array(sample_weight) and sample_weight.ndim != 1:
            raise ValueError(f"Sample weights must be 1D array or scalar, got {sample_weight.ndim}D array.")
        of_each = (
            _divided("sample_weight", sample_weight, counts, _partitions.weights_of_each),
            _divided("labels", labels, counts, partial(_partitions.labels_of_each, n_components=k)),
        )
        self.chunks = list(zip(parts, *of_each, strict=True))
        # Signs that there are some; the engine has them.
        weights, known = (None if given is None else Array(None) for given in (sample_weight, labels))
        partitions = []
        for number, (count, end) in enumerate(zip(counts, np.cumsum(counts).tolist(), strict=True)):
            name, begin = f"partition {number} of X", 0
            if not math.isnan(end) and count > 0:
                name, begin = f"rows {int(end - count)} to {int(end) - 1} of X", int(end - count)
            partitions.append(Partition(name, None, weights, first=begin, labels=known))
        return Plan(partitions, dtype, head, counts)

    # Loading

    def load(self, partitions: Sequence[Partition], options: Options) -> list[Facts]:
        # Chunks of dask collections where they are, files anywhere.
        self._shards, self._home, self._facts = {}, {}, {}
        self._partitions, self._options = list(partitions), options
        self._repeat(lambda: None)
        return [self._facts[number] for number in range(len(self._partitions))]

    def _live(self) -> dict[str, int]:
        """Give the workers and their numbers of threads."""
        live: dict[str, int] = self.client.nthreads()
        if not live:
            try:
                self.client.wait_for_workers(1, timeout=_WAIT_FOR_WORKERS)
            except Exception as error:
                raise RuntimeError("the cluster has no workers; start some, or wait until they are there") from error
            live = self.client.nthreads()
        return live

    def _repeat(self, work: Callable[[], Any]) -> Any:
        """Load what no worker has, then do `work`; all again where a worker dies meanwhile."""
        for attempt in range(_ATTEMPTS):
            try:
                self._load_missing()
                return work()
            except _Lost as lost:
                self._shards = {worker: shard for worker, shard in self._shards.items() if worker not in lost.workers}
                self._home = {number: worker for number, worker in self._home.items() if worker not in lost.workers}
                # Until the scheduler knows of it too.
                time.sleep(0.1 * 2**attempt)
        raise RuntimeError(
            f"workers of the cluster died in each of {_ATTEMPTS} attempts; their logs say why. If they run out of memory, "
            "use more workers, smaller partitions, or resident=False"
        )

    def _load_missing(self) -> None:
        missing = [number for number in range(len(self._partitions)) if number not in self._home]
        if not missing:
            return
        live = self._live()
        gone = set(self._home.values()) - set(live)
        if gone:
            raise _Lost(gone)
        chunks, holders = self._compute_chunks(missing)
        homes = self._assign(missing, holders, live)
        for worker in set(homes.values()) - set(self._shards):
            self._shards[worker] = self._submit(worker, _shard, self._options)
        loads = {}
        for number, worker in homes.items():
            partition, chunk = self._partitions[number], chunks.get(number)
            if chunk is None and isinstance(partition.samples, Array):
                beside = [_partitions.array_of(part) for part in (partition.weights, partition.labels)]
                chunk = self._scatter((partition.samples.values, *beside), worker)
                partition = partition._replace(samples=None, weights=None, labels=None)
            loads[number] = self._submit(worker, _load, self._shards[worker], number, partition, chunk)
        found = self._collect(list(loads.values()), set(homes.values()))
        self._facts.update(zip(loads, found, strict=True))
        self._home.update(homes)

    def _compute_chunks(self, numbers: Sequence[int]) -> tuple[dict[int, Any], dict[int, Sequence[str]]]:
        """Have chunks of dask collections computed wherever Dask likes, and say where they are."""
        if not self.chunks:
            return {}, {}
        chunks = [delayed(self.chunks[number], pure=False) for number in numbers]
        futures = self.client.compute(chunks)
        with self.client.as_current():
            distributed.wait(futures)
        for number, future in zip(numbers, futures, strict=True):
            if future.status == "error":
                error = future.exception()
                raise self._partitions[number].error(error) from error
        where = self.client.who_has(futures)
        holders = {number: where.get(future.key, ()) for number, future in zip(numbers, futures, strict=True)}
        return dict(zip(numbers, futures, strict=True)), holders

    def _assign(self, numbers: Sequence[int], holders: dict[int, Sequence[str]], live: dict[str, int]) -> dict[int, str]:
        total, threads = len(self._partitions), sum(live.values())
        share = {worker: total * n / threads for worker, n in live.items()}
        load = dict.fromkeys(live, 0)
        for worker in self._home.values():
            load[worker] += 1
        homes = {}
        workers = sorted(live)
        for number in numbers:
            # A holder of the chunk, unless it has far more than its share already.
            near = [w for w in holders.get(number, ()) if w in load and load[w] < 1.25 * share[w] + 1]
            if not near:
                # Neighbours in the tree come to the same worker, so that it adds them.
                near = [w for w in workers if load[w] + 1 <= share[w]] or workers
                near = near[:1] if near is not workers else near
            homes[number] = min(near, key=lambda worker: (load[worker] + 1) / share[worker])
            load[homes[number]] += 1
        return homes

    def _submit(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function on one worker, and on no other."""
        key = f"gaussmix{function.__name__}-{uuid.uuid4().hex}"
        return self.client.submit(function, *arguments, key=key, workers=[worker], allow_other_workers=False, pure=False)

    # Asking

    def ask(self, operation: str, message: bytes) -> Iterable[Answer]:
        return self._repeat(lambda: self._ask_all(operation, message))

    def _ask_all(self, operation: str, message: bytes) -> list[Answer]:
        by_worker: dict[str, list[int]] = {}
        for number in sorted(self._home):
            by_worker.setdefault(self._home[number], []).append(number)
        if len(message) > _LARGE:
            return self._ask_by_tasks(operation, message, by_worker)
        wanted = {worker: (self._shards[worker].key, numbers) for worker, numbers in by_worker.items()}
        found = self.client.run(_ask_here, operation=operation, message=message, wanted=wanted, workers=list(wanted), on_error="return")
        # What is not a pair is an error of the connection.
        pairs = {worker: pair if isinstance(pair := found.get(worker), tuple) else ("lost", None) for worker in by_worker}
        for error in (value for kind, value in pairs.values() if kind == "error"):
            raise error
        if lost := [worker for worker, (kind, _) in pairs.items() if kind == "lost"]:
            raise _Lost(lost)
        return [answer for _, answers in pairs.values() for answer in answers]

    def _ask_by_tasks(self, operation: str, message: bytes, by_worker: dict[str, list[int]]) -> list[Answer]:
        """Ask with one task for each worker, so that large messages and answers go from worker to worker."""
        # To one worker, from which the others take it.
        sent = self._scatter(message, next(iter(by_worker)))
        futures = [self._submit(worker, Shard.ask, self._shards[worker], operation, sent, numbers) for worker, numbers in by_worker.items()]
        if self.added(operation):
            n = len(self._partitions)
            while len(futures) > 1:
                pairs = zip(futures[::2], futures[1::2], strict=False)
                last = futures[len(futures) // 2 * 2 :]
                futures = [*(self.client.submit(_merge, a, b, n, pure=False) for a, b in pairs), *last]
        return [answer for part in self._collect(futures, set(by_worker)) for answer in part]

    def _check(self, workers: set[str]) -> None:
        gone = workers - set(self.client.nthreads())
        if gone:
            raise _Lost(gone)

    def _patiently(self, work: Callable[[], Any], workers: set[str]) -> Any:
        """Wait for a coroutine. What waits for a dead worker would not end by itself."""
        patience = 2.0
        while True:
            try:
                return self.client.sync(work, callback_timeout=patience)
            except TimeoutError:
                self._check(workers)
                patience *= 2

    def _scatter(self, value: Any, worker: str) -> Any:
        async def scatter() -> Any:
            # In a list, because of a tuple Dask would make several values.
            return (await self.client.scatter([value], workers=[worker], hash=False, asynchronous=True))[0]

        try:
            return self._patiently(scatter, {worker})
        except OSError as error:
            raise _Lost({worker}) from error

    def _collect(self, futures: list[Any], workers: set[str]) -> list[Any]:
        """Wait for results that need these workers."""

        async def gather() -> Any:
            return await self.client.gather(futures, asynchronous=True)

        try:
            while True:
                try:
                    with self.client.as_current():
                        distributed.wait(futures, timeout=_LOOK)
                    break
                except TimeoutError:
                    self._check(workers)
            return list(self._patiently(gather, workers))
        except (distributed.KilledWorker, distributed.CancelledError, MissingPartitionsError) as error:
            # The worker was started again, or has given away what it had.
            self._check(workers)
            raise _Lost(workers) from error

    def close(self) -> None:
        """Free the memory of the workers; end the cluster if it was made here."""
        self._shards, self._home, self._facts, self._partitions, self.chunks = {}, {}, {}, [], []
        for thing in self._own:
            thing.close()
        self._own = []
