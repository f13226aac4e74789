"""Shards in the ranks of a communicator of MPI."""

import os
import pickle
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ... import _core, _partitions
from ..._arrays import floats
from ..._partitions import Array, File, Partition
from ..engine import Engine, Plan, agreed
from ..shard import Answer, Facts, Options, Shard, merge

#: The tags of the messages with requests and with answers.
_REQUEST, _ANSWER = 7271, 7272
#: For so many seconds a rank that waits looks for messages all the time; then it leaves its core to others between two looks.
_BUSY, NAP = 2e-3, 1e-4


def world() -> Any:
    try:
        from mpi4py import MPI
    except ImportError as missing:
        raise ImportError(
            "gaussmix.mpi needs mpi4py and an MPI library: pip install gaussmix[mpi]; on a cluster, load its module of MPI"
        ) from missing
    return MPI.COMM_WORLD


def _travels(error: BaseException) -> BaseException:
    """Give an error as it can be sent to other ranks."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error.with_traceback(None)


def _of_all(error: BaseException) -> BaseException:
    """Note that all ranks have this error."""
    error.__dict__["of_all_ranks"] = True
    return error


class MPIEngine(Engine):
    """Shards in the ranks of a communicator.

    Rank 0 asks; meanwhile the others are in `together`, where they answer. `load` and `together` are called by all
    ranks.
    """

    def __init__(self, comm: Any = None) -> None:
        self.comm = world() if comm is None else comm
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        self._shard: Shard | None = None
        self._partitions: list[Partition] = []
        #: Whether rank 0 is in `together`, so that the other ranks wait for what it asks.
        self._asking = False

    def together(self, work: Callable[[], Any]) -> Any:
        """Do something on rank 0 while the other ranks answer, and return its result on all ranks, or raise its error there.

        Within `work` it just calls what it is given, because the other ranks answer already.
        """
        if self._asking:
            return work()
        if self.rank == 0:
            self._asking = True
            try:
                result = work()
                # What cannot travel is an error of all ranks.
                message = pickle.dumps(result, 5) if self.size > 1 else None
            except BaseException as raised:
                self._send_down(("end", None, _travels(raised)))
                _of_all(raised)
                raise
            finally:
                self._asking = False
            self._send_down(("end", message, None))
            return result
        before = ignore_interrupts()
        try:
            while True:
                kind, first, second = self._send_down(None)
                if kind == "end":
                    break
                if kind == "load":
                    # The error is raised by rank 0, which has it too.
                    with suppress(Exception):
                        self._load(first, second)
                else:
                    self._answer(first, second)
        finally:
            if before is not None:
                signal.signal(signal.SIGINT, before)
        if second is not None:
            raise _of_all(second)
        return pickle.loads(first)

    def _send_down(self, request: Any) -> Any:
        """Bring a request of rank 0 to all ranks, in a tree."""
        step = 1
        while step < self.size and not self.rank & step:
            step *= 2
        if self.rank != 0:
            request = self._receive(self.rank - step, _REQUEST)
        while step > 1:
            step //= 2
            if self.rank + step < self.size:
                self.comm.send(request, self.rank + step, _REQUEST)
        return request

    def _receive(self, source: int, tag: int) -> Any:
        begin = time.perf_counter()
        while True:
            message = self.comm.improbe(source, tag)
            if message is not None:
                return message.recv()
            if time.perf_counter() - begin > _BUSY:
                time.sleep(NAP)

    def agree(self, error: BaseException | None) -> None:
        # The error of the lowest rank that has one.
        errors = self.comm.allgather(None if error is None else _travels(error))
        found = next((other for other in errors if other is not None), None)
        if found is not None:
            raise _of_all(found)

    def files(self, paths: Sequence[str]) -> list[File]:
        return list(self.together(lambda: Engine.files(self, paths)))

    def load(self, partitions: Sequence[Partition], options: Options) -> list[Facts]:
        if self._asking:
            # The other ranks have the same partitions already, in other units.
            self._send_down(("load", partitions[0].units, options))
            return self._load(partitions[0].units, options)
        self._partitions = list(partitions)
        return self._load(partitions[0].units, options)

    def _plan(self, X: Any, sample_weight: Any, partition_rows: int | None, resident: bool | None, labels: Any = None, k: int = 0) -> Plan:
        """Divide files, or make one partition of the array of each rank."""
        if self.comm.allreduce(_partitions.are_paths(X)) == self.size:
            return super()._plan(X, sample_weight, partition_rows, resident, labels, k)

        def own() -> tuple[Partition, Any]:
            if _partitions.are_paths(X):
                raise ValueError("this rank names files, but others give arrays; all ranks must do the same")
            if resident is False:
                raise ValueError("resident=False needs files, which can be read again; an array is in memory anyway")
            x = floats(X, [np.float64, np.float32])
            [partition], _ = _partitions.of_array(x, max(1, x.shape[0]), sample_weight, labels, k)
            return partition._replace(name=f"the samples of rank {self.rank}"), x.dtype

        partition, kind = agreed(self, own)
        abouts = self.comm.allgather((kind.str, sample_weight is not None, labels is not None))
        dtype = _partitions.common_dtype(kind for kind, _, _ in abouts)
        # Signs that there are some; the ranks have them.
        weights, known = (Array(None) if any(about[i] for about in abouts) else None for i in (1, 2))
        partitions = [Partition(f"the samples of rank {rank}", None, weights, labels=known) for rank in range(self.size)]
        partitions[self.rank] = partition
        return Plan(partitions, dtype, X)

    def _own(self, n_partitions: int) -> range:
        """Return the numbers of this rank's partitions: a block of consecutive ones."""
        return range(self.rank * n_partitions // self.size, (self.rank + 1) * n_partitions // self.size)

    def _load(self, units: Any, options: Options) -> list[Facts]:
        partitions = [partition._replace(units=units) for partition in self._partitions]
        shard = self._shard = Shard(self._of_this_rank(options))
        facts = agreed(self, lambda: [shard.load(number, partitions[number]) for number in self._own(len(partitions))])
        return [fact for part in self.comm.allgather(facts) for fact in part]

    def _of_this_rank(self, options: Options) -> Options:
        """Divide the cores, GPUs and memory of a computer among its ranks."""
        from mpi4py import MPI

        host = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
        others = host.allgather(cores)
        rank, size = host.Get_rank(), host.Get_size()
        threads = options.threads or max(1, len(cores) // sum(other == cores for other in others))
        device = options.device
        if device == "cuda":
            gpus = [name for name, _, why in _core.devices() if name.startswith("cuda") and why is None]
            device = gpus[rank % len(gpus)] if gpus else device
        memory = _core.half_of_the_memory() // size if options.memory is None else options.memory
        gpu_memory = _core.free_gpu_memory(device) if options.gpu_memory is None else options.gpu_memory
        # No rank loads before all have asked.
        sharing = host.allgather(device).count(device)
        host.Free()
        if gpu_memory is not None:
            gpu_memory //= sharing
        return options._replace(threads=threads, device=device, memory=memory, gpu_memory=gpu_memory)

    def ask(self, operation: str, message: bytes) -> list[Answer]:
        # Called by rank 0 alone.
        self._send_down(("ask", operation, message))
        answers, error = self._answer(operation, message)
        if error is not None:
            raise error
        return answers

    def _answer(self, operation: str, message: bytes) -> tuple[list[Answer], BaseException | None]:
        """Answer with this rank's shard, and join that with the answers of the ranks above, in a tree."""
        answers: list[Answer] = []
        error: BaseException | None = None
        try:
            assert self._shard is not None  # Loaded before anything is asked.
            answers = self._shard.ask(operation, message)
        except Exception as raised:
            error = _travels(raised)
        step = 1
        while step < self.size:
            if self.rank & step:
                self.comm.send((answers, error), self.rank - step, _ANSWER)
                break
            if self.rank + step < self.size:
                more, other = self._receive(self.rank + step, _ANSWER)
                error = other if error is None else error
                answers = answers + more
                if error is None and self.added(operation):
                    answers = merge(answers, len(self._partitions))
            step *= 2
        return answers, error

    def close(self) -> None:
        self._shard, self._partitions = None, []


def ignore_interrupts() -> Any:
    """Ignore Ctrl-C, which all ranks get and rank 0 decides about; give what handled it before."""
    try:
        return signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:
        # Not in the main thread, which alone gets signals.
        return None
