"""The mixture on a cluster of Dask: ``pip install gaussmix[dask]``.

`GaussianMixture` is the estimator over dask arrays, dask dataframes, and files that the workers read themselves.
`Likelihood` evaluates mixtures over data that stays in the workers. Both are used as those of one process.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import _check_feature_names, _check_n_features, check_is_fitted

try:
    import dask.array
    import distributed
    from dask.delayed import delayed
except ImportError as missing:
    raise ImportError("gaussmix.dask needs Dask: pip install gaussmix[dask]") from missing

from . import _estimator, _partitions, cluster
from ._arrays import floats
from ._partitions import Array, File, Partition
from .cluster import Answer, Engine, Facts, Options, Plan, Shard

__all__ = ["DaskEngine", "GaussianMixture", "Likelihood"]

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
    """Make the shard of this worker."""
    worker = distributed.get_worker()
    memory = worker.memory_manager.memory_limit
    return Shard(
        options._replace(
            threads=options.threads or worker.state.nthreads,
            memory=None if memory is None else int(memory * _SHARE),
        )
    )


def _pair(x: Any, weights: Any) -> tuple[Any, Any]:
    return x, weights


def _load(shard: Shard, number: int, partition: Partition, pair: tuple[Any, Any] | None) -> Facts:
    if pair is not None:
        x, weights = pair
        partition = partition._replace(samples=Array(x), weights=None if weights is None else Array(weights))
    return shard.load(number, partition)


def _ask(shard: Shard, operation: str, message: bytes, numbers: Sequence[int]) -> list[Answer]:
    return shard.ask(operation, message, numbers)


async def _ask_here(
    operation: str, message: bytes, wanted: dict[str, tuple[str, list[int]]], dask_worker: Any
) -> tuple[str, Any]:
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
    except cluster.MissingPartitionsError:
        return "lost", None
    except Exception as error:
        return "error", error


def _merge(left: list[Answer], right: list[Answer], n_partitions: int) -> list[Answer]:
    return cluster.merge([*left, *right], n_partitions)


class DaskEngine(Engine):
    """Shards in the workers of a cluster of Dask.

    A shard lives in the memory of its worker as the result of a task, so that it is freed when nobody refers to it any more,
    also when this process ends in another way than by `close`.

    Parameters
    ----------
    client : distributed.Client or None, default=None
        The connection to the cluster. By default the present client of Dask; where there is none, a LocalCluster of this
        process, which `close` ends.
    """

    def __init__(self, client: Any = None) -> None:
        self._own: list[Any] = []
        if client is None:
            try:
                client = distributed.default_client()
            except ValueError:
                local = distributed.LocalCluster(
                    n_workers=1, processes=False, dashboard_address=None, memory_limit=0
                )
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
        self.chunks: list[tuple[Any, Any]] = []
        self._options: Options | None = None

    def files(self, paths: Sequence[str]) -> list[File]:
        """Find files and read their heads, on the workers.

        Parameters
        ----------
        paths : sequence of str
            Names and patterns.

        Returns
        -------
        files : list of File
            Each file with the shape and type of its array.
        """
        self._live()
        names = self.client.submit(_partitions.expand, list(map(os.fspath, paths)), pure=False).result()
        heads = self.client.map(_partitions.inspect, names, pure=False)
        return list(self.client.gather(heads))

    # Loading

    def load(self, partitions: Sequence[Partition], options: Options) -> list[Facts]:
        """Load each partition on one worker: chunks of dask collections where they are, files anywhere.

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
        pairs, holders = self._compute_chunks(missing)
        homes = self._assign(missing, holders, live)
        for worker in set(homes.values()) - set(self._shards):
            self._shards[worker] = self._submit(worker, _shard, self._options)
        loads = {}
        for number, worker in homes.items():
            partition, pair = self._partitions[number], pairs.get(number)
            if pair is None and isinstance(partition.samples, Array):
                weights = None if partition.weights is None else partition.weights.read()
                pair = self._scatter((partition.samples.values, weights), worker)
                partition = partition._replace(samples=None, weights=None)
            loads[number] = self._submit(worker, _load, self._shards[worker], number, partition, pair)
        found = self._collect(list(loads.values()), set(homes.values()))
        self._facts.update(zip(loads, found, strict=True))
        self._home.update(homes)

    def _compute_chunks(self, numbers: Sequence[int]) -> tuple[dict[int, Any], dict[int, Sequence[str]]]:
        """Have chunks of dask collections computed wherever Dask likes, and say where they are."""
        if not self.chunks:
            return {}, {}
        pairs = [delayed(_pair, pure=False)(*self.chunks[number]) for number in numbers]
        futures = self.client.compute(pairs)
        with self.client.as_current():
            distributed.wait(futures)
        for number, future in zip(numbers, futures, strict=True):
            if future.status == "error":
                error = future.exception()
                raise self._partitions[number].error(error) from error
        where = self.client.who_has(futures)
        holders = {number: where.get(future.key, ()) for number, future in zip(numbers, futures, strict=True)}
        return dict(zip(numbers, futures, strict=True)), holders

    def _assign(
        self, numbers: Sequence[int], holders: dict[int, Sequence[str]], live: dict[str, int]
    ) -> dict[int, str]:
        """Choose a worker for each partition."""
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
        """Ask all shards, with one message to each worker.

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
        answers: list[Answer] = self._repeat(lambda: self._ask_all(operation, message))
        return answers

    def _ask_all(self, operation: str, message: bytes) -> list[Answer]:
        by_worker: dict[str, list[int]] = {}
        for number in sorted(self._home):
            by_worker.setdefault(self._home[number], []).append(number)
        if len(message) > _LARGE:
            return self._ask_by_tasks(operation, message, by_worker)
        wanted = {worker: (self._shards[worker].key, numbers) for worker, numbers in by_worker.items()}
        found = self.client.run(
            _ask_here, operation=operation, message=message, wanted=wanted, workers=list(wanted), on_error="return"
        )
        # What is not a pair is an error of the connection.
        pairs = {worker: pair if isinstance(pair, tuple) else ("lost", pair) for worker, pair in found.items()}
        for worker in by_worker:
            if pairs.get(worker, ("lost", None))[0] == "error":
                raise pairs[worker][1]
        lost = {worker for worker in by_worker if pairs.get(worker, ("lost", None))[0] == "lost"}
        if lost:
            raise _Lost(lost)
        return [answer for _, answers in pairs.values() for answer in answers]

    def _ask_by_tasks(self, operation: str, message: bytes, by_worker: dict[str, list[int]]) -> list[Answer]:
        """Ask with one task for each worker, so that large messages and answers go from worker to worker."""
        # To one worker, from which the others take it.
        sent = self._scatter(message, next(iter(by_worker)))
        futures = [
            self._submit(worker, _ask, self._shards[worker], operation, sent, numbers)
            for worker, numbers in by_worker.items()
        ]
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
        """Bring a value to a worker."""

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
        except (distributed.KilledWorker, distributed.CancelledError, cluster.MissingPartitionsError) as error:
            # The worker was started again, or has given away what it had.
            self._check(workers)
            raise _Lost(workers) from error

    def close(self) -> None:
        """Free the memory of the workers; end the cluster if it was made here."""
        self._shards, self._home, self._facts, self._partitions, self.chunks = {}, {}, {}, [], []
        for thing in self._own:
            thing.close()
        self._own = []


def _is_frame(X: Any) -> bool:
    return hasattr(X, "dask") and hasattr(X, "map_partitions") and hasattr(X, "npartitions") and not _is_array(X)


def _type_of(X: Any) -> np.dtype[Any]:
    """Give the type of the samples of a dask dataframe: that which scikit-learn gives its partitions, whatever their columns are."""
    dtype: np.dtype[Any] = floats(X._meta, [np.float64, np.float32]).dtype
    return dtype


def _is_array(X: Any) -> bool:
    return isinstance(X, dask.array.Array)


def _by_rows(X: Any) -> Any:
    """Give a dask array whose chunks hold whole rows."""
    if X.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {X.ndim}D array instead. Reshape your data either using array.reshape(-1, 1) if your "
            "data has a single feature or array.reshape(1, -1) if it contains a single sample."
        )
    return X if X.numblocks[1] == 1 else X.rechunk({1: -1})


def _plan(
    engine: DaskEngine, X: Any, sample_weight: Any, partition_rows: int | None, resident: bool | None
) -> Plan:
    """Divide what Dask's users have; hand the chunks of collections to the engine."""
    if resident is False and hasattr(X, "dask"):
        raise ValueError(
            "resident=False needs files, which workers can read again; the chunks of a dask collection stay in memory"
        )
    if _is_frame(X):
        parts, head = X.to_delayed(), X._meta
        dtype = _type_of(X)
        counts = [math.nan] * len(parts)
    elif _is_array(X):
        if partition_rows is not None:
            X = X.rechunk({0: partition_rows, 1: -1})
        X = _by_rows(X)
        parts, head, counts = X.to_delayed()[:, 0].tolist(), np.empty((0, X.shape[1])), list(X.chunks[0])
        dtype = _partitions.common_dtype([X.dtype])
    else:
        if hasattr(sample_weight, "dask"):
            sample_weight = sample_weight.compute()
        return cluster.plan(engine, X, sample_weight, partition_rows)
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
        if _is_array(sample_weight):
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


def _block(x: Any, local: _estimator.GaussianMixture, method: str, n_columns: int | None, kind: Any) -> Any:
    """Evaluate the rows of one block, in the process of a worker."""
    if x.shape[0] == 0:
        return np.empty((0,) if n_columns is None else (0, n_columns), kind)
    return getattr(local, method)(x).astype(kind, copy=False)


def _read_block(
    partition: Partition, dtype: str, local: _estimator.GaussianMixture, method: str, n_columns: int | None, kind: Any
) -> Any:
    try:
        return _block(partition.read(np.dtype(dtype))[0], local, method, n_columns, kind)
    except Exception as error:
        raise partition.error(error) from error


@cluster.with_documentation_of_the_local_estimator
class GaussianMixture(cluster.GaussianMixture):
    """A Gaussian mixture, fitted by the workers of a cluster of Dask.

    Parameters, methods, attributes and errors are those of :class:`gaussmix.GaussianMixture`. The samples are a dask array, a
    dask dataframe, an array, or paths of .npy and Parquet files, which the workers read; sample weights the same,
    divided as the samples are. `predict`, `predict_proba` and `score_samples` of collections and files give dask arrays,
    which are computed when they are asked for.

    Each worker loads its partitions once and keeps them in its device. An iteration sends the parameters and brings back
    sums over the samples, which are added in the order of the partitions: the same partitions on the same kind of device
    give the same bits, whatever the number of workers. The partitions of a worker that dies are loaded by others, and the
    fit goes on. Ctrl-C ends the fit after the present iteration and leaves a fitted mixture. `device` is that of each worker, and
    `n_jobs` the number of its threads, by default as many as Dask gives it.

    Parameters
    ----------
    n_components : int, default=1
        The number of components.
    client : distributed.Client or None, default=None
        The connection to the cluster. By default the present client of Dask; where there is none, a LocalCluster within this
        process, which is closed at the end.
    partition_rows : int or None, default=None
        The rows of a partition. By default the chunks of a dask collection as they are, and of files about 512 partitions of
        4 to 256 MiB.
    resident : bool or None, default=None
        Whether partitions of files stay in the memory of the workers. Where they do not, each iteration reads them again,
        one after the other. By default as many stay as half of a worker's memory holds.
    **params : dict
        The other parameters of :class:`gaussmix.GaussianMixture`.

    Examples
    --------
    >>> import dask.array
    >>> from gaussmix.dask import GaussianMixture
    >>> x = dask.array.from_array([[1.0], [2.0], [3.0], [11.0], [12.0], [13.0]], chunks=(4, 1))
    >>> gm = GaussianMixture(2, random_state=0).fit(x)
    >>> gm.means_.round(6).ravel()
    array([12.,  2.])
    >>> gm.predict(x).compute()
    array([1, 1, 1, 0, 0, 0])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{name: kinds for name, kinds in cluster.GaussianMixture._parameter_constraints.items() if name != "engine"},
        "client": [distributed.Client, None],
    }
    _connections: ClassVar[tuple[str, ...]] = ("client",)

    @cluster.with_parameters_of_the_local_estimator
    def __init__(
        self,
        n_components: int = 1,
        *,
        client: Any = None,
        partition_rows: int | None = None,
        resident: bool | None = None,
        **params: Any,
    ) -> None:
        _estimator.GaussianMixture.__init__(self, n_components, **params)
        self.client = client
        self.partition_rows = partition_rows
        self.resident = resident

    def _make_engine(self) -> DaskEngine:
        return DaskEngine(self.client)

    def _plan(self, engine: Engine, X: Any, sample_weight: Any) -> Plan:
        assert isinstance(engine, DaskEngine)
        return _plan(engine, X, sample_weight, self.partition_rows, self.resident)

    def _values(self, operation: str, X: Any) -> Any:
        check_is_fitted(self)
        method = self._METHODS[operation]
        local, k = self._local(), self.means_.shape[0]
        n_columns = k if operation == "responsibilities" else None
        files = _partitions.are_paths(X)
        if not files and not hasattr(X, "dask"):
            return getattr(local, method)(X)
        # A worker evaluates as many blocks at once as it has threads.
        local.n_jobs = 1
        # Blocks are arrays, whose columns have no names.
        local.__dict__.pop("feature_names_in_", None)
        if files:
            return self._values_of_files(X, local, method, n_columns)
        _check_feature_names(self, X._meta, reset=False)
        if _is_frame(X):
            dtype = _type_of(X)
            X = X.map_partitions(floats, dtype, meta=np.empty((0, len(X.columns)), dtype))
        else:
            dtype = X.dtype
            X = _by_rows(X)
        _check_n_features(self, np.empty((0, X.shape[1])), reset=False)
        kind = self._kind(method, dtype)
        shape = {"drop_axis": 1, "chunks": (X.chunks[0],)} if n_columns is None else {"chunks": (X.chunks[0], (k,))}
        meta = np.empty((0,) * (1 if n_columns is None else 2), kind)
        return X.map_blocks(
            _block, local=local, method=method, n_columns=n_columns, kind=kind, dtype=kind, meta=meta, **shape
        )

    def _kind(self, method: str, dtype: Any) -> np.dtype[Any]:
        return np.dtype(np.int64) if method == "predict" else self._value_type(dtype)

    def _values_of_files(self, X: Any, local: _estimator.GaussianMixture, method: str, n_columns: int | None) -> Any:
        engine = self._make_engine()
        try:
            files = engine.files([X] if not isinstance(X, (list, tuple)) else list(X))
        finally:
            engine.close()
        _partitions.check_samples(files)
        head = cluster.head_of(files[0])
        _check_feature_names(self, head, reset=False)
        _check_n_features(self, head, reset=False)
        dtype = _partitions.common_dtype(file.dtype for file in files)
        kind = self._kind(method, dtype)
        partitions = _partitions.divide(files, self.partition_rows, dtype)
        counts = _partitions.lengths(partitions, files)
        read = delayed(_read_block, pure=True)
        blocks = [
            dask.array.from_delayed(
                read(partition, dtype.str, local, method, n_columns, kind),
                (count,) if n_columns is None else (count, n_columns),
                kind,
            )
            for partition, count in zip(partitions, counts, strict=True)
        ]
        return dask.array.concatenate(blocks)


class Likelihood(cluster.Likelihood):
    """The log-likelihood of samples that stay in the workers of a cluster of Dask.

    It is called as :class:`gaussmix.Likelihood` is. Several sets of parameters in one call make one round trip, as all
    walkers of a sampler should. `close`, or a ``with`` statement, frees the memory of the workers.

    Parameters
    ----------
    X : dask array or dataframe, array-like, or paths
        The samples.
    sample_weight : dask array or series, array-like, or paths, default=None
        A sample of weight 2 counts as two.
    client : distributed.Client or None, default=None
        The connection to the cluster, as of :class:`GaussianMixture`.
    **options : dict
        `device`, `covariance_type`, `float64`, `n_jobs`, `partition_rows`, `resident` and `missing`, as of
        :class:`gaussmix.cluster.Likelihood`.

    Examples
    --------
    >>> import dask.array
    >>> from gaussmix.dask import Likelihood
    >>> x = dask.array.from_array([[0.0], [1.0]], chunks=(1, 1))
    >>> weights, means, covariances = [1.0], [[0.5]], [1.0]
    >>> with Likelihood(x) as likelihood:
    ...     likelihood([weights, weights], [means, [[0.0]]], [covariances, covariances]).round(6)
    array([-2.087877, -2.337877])
    """

    def __init__(self, X: Any, sample_weight: Any = None, *, client: Any = None, **options: Any) -> None:
        super().__init__(X, sample_weight, engine=DaskEngine(client), **options)

    def _plan(self, X: Any, sample_weight: Any, partition_rows: int | None, resident: bool | None) -> Plan:
        assert isinstance(self._engine, DaskEngine)
        return _plan(self._engine, X, sample_weight, partition_rows, resident)
