"""The mixture on MPI, by mpi4py: ``pip install gaussmix[mpi]`` and an MPI library.

From the command line, ``mpiexec -n 4 python -m gaussmix.mpi fit x.npy -k 8 -o model.json``; ``--help`` has more. In a program all
ranks of a communicator make the same calls:

    from mpi4py import MPI
    from gaussmix.mpi import GaussianMixture

    gm = GaussianMixture(8, comm=MPI.COMM_WORLD).fit("x.npy")       # each rank reads its part of the file
    gm = GaussianMixture(8, comm=MPI.COMM_WORLD).fit(x)             # or has its part in an array of its own
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from . import _core, _estimator, _partitions, cluster
from ._arrays import Floats, na_as_nan
from ._partitions import Array, File, Partition
from ._select import select
from .cluster import Answer, Engine, Facts, Options, Plan, Shard

__all__ = ["GaussianMixture", "Likelihood", "MPIEngine", "main"]

#: The tags of the messages with requests and with answers.
_REQUEST, _ANSWER = 7271, 7272
#: For so many seconds a rank that waits looks for messages all the time; then it leaves its core to others between two looks.
_BUSY, _NAP = 2e-3, 1e-4
#: How long a rank with an error waits for rank 0 to report the same one, and for the launcher to read its own report, in seconds.
_GRACE = 1.0
_KINDS = ("full", "tied", "diag", "spherical")
#: The exit codes of the command: a failure, a wrong use, and Ctrl-C.
_FAILURE, _USAGE, _INTERRUPTED = 1, 2, 130


def _world() -> Any:
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

    Rank 0 asks; meanwhile the others are in `together`, where they answer. `load` and `together` are called by all ranks.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or None, default=None
        The communicator; by default that of all processes.
    """

    def __init__(self, comm: Any = None) -> None:
        self.comm = _world() if comm is None else comm
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        self._shard: Shard | None = None
        self._partitions: list[Partition] = []
        #: Whether rank 0 is in `together`, so that the other ranks wait for what it asks.
        self._asking = False

    def together(self, work: Callable[[], Any]) -> Any:
        """Do something on rank 0 while the other ranks answer; give all ranks the result, or raise its error.

        Within `work` it just calls what it is given, because the other ranks answer already.

        Parameters
        ----------
        work : callable
            Called by rank 0.

        Returns
        -------
        result : object
            What `work` returned.
        """
        if self._asking:
            return work()
        error: BaseException | None = None
        result = None
        if self.rank == 0:
            self._asking = True
            try:
                result = work()
            except BaseException as raised:
                self._send_down(("end", None, _travels(raised)))
                _of_all(raised)
                raise
            finally:
                self._asking = False
            self._send_down(("end", result, None))
            return result
        # Rank 0 decides what happens on Ctrl-C, which all ranks get.
        before = _signals_to(signal.SIG_IGN)
        try:
            while True:
                kind, first, second = self._send_down(None)
                if kind == "end":
                    result, error = first, second
                    break
                if kind == "load":
                    # The error is raised by rank 0, which has it too.
                    with suppress(Exception):
                        self._load(first, second)
                else:
                    self._answer(first, second)
        finally:
            _restore(before)
        if error is not None:
            raise _of_all(error)
        return result

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
                time.sleep(_NAP)

    def agree(self, error: BaseException | None) -> None:
        """Raise the error of the lowest rank that has one, in all ranks.

        Parameters
        ----------
        error : BaseException or None
            That of this rank.
        """
        errors = self.comm.allgather(None if error is None else _travels(error))
        found = next((other for other in errors if other is not None), None)
        if found is not None:
            raise _of_all(found)

    def files(self, paths: Sequence[str]) -> list[File]:
        """Find files and read their heads, on rank 0.

        Parameters
        ----------
        paths : sequence of str
            Names and patterns.

        Returns
        -------
        files : list of File
            Each file with the shape and type of its array.
        """
        return list(self.together(lambda: Engine.files(self, paths)))

    def load(self, partitions: Sequence[Partition], options: Options) -> list[Facts]:
        """Load the partitions of this rank: a block of consecutive ones, or the one of its own array.

        Parameters
        ----------
        partitions : sequence of Partition
            All partitions.
        options : Options
            The options of the shards.

        Returns
        -------
        facts : list of Facts
            Those of all partitions.
        """
        if self._asking:
            # The other ranks have the same partitions already, in other units.
            self._send_down(("load", partitions[0].units, options))
            return self._load(partitions[0].units, options)
        self._partitions = list(partitions)
        return self._load(partitions[0].units, options)

    def _load(self, units: Any, options: Options) -> list[Facts]:
        partitions = [partition._replace(units=units) for partition in self._partitions]
        n = len(partitions)
        self._shard = Shard(self._of_this_rank(options))
        first, last = (self.rank * n // self.size, (self.rank + 1) * n // self.size)
        error: BaseException | None = None
        facts = []
        try:
            facts = [self._shard.load(number, partitions[number]) for number in range(first, last)]
        except Exception as raised:
            error = raised
        self.agree(error)
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
        """Ask all ranks. It is called by rank 0.

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
                    answers = cluster.merge(answers, len(self._partitions))
            step *= 2
        return answers, error

    def close(self) -> None:
        """Drop the shard of this rank."""
        self._shard, self._partitions = None, []


class _Together(cluster.ClusterEvaluations):
    """The samples of all ranks, as all ranks evaluate them."""

    def __init__(self, engine: MPIEngine, resident: cluster.ClusterEvaluations) -> None:
        self.engine, self.resident = engine, resident

    @property
    def total_weight(self) -> float:
        return self.resident.total_weight

    def labels(self, mixture: _core.Mixture) -> NDArray[np.int64]:
        labels: NDArray[np.int64] = self.engine.together(lambda: self.resident.labels(mixture))
        return labels

    def total(self, mixture: _core.Mixture) -> float:
        total: float = self.engine.together(lambda: self.resident.total(mixture))
        return total

    def e_step(self, mixture: _core.Mixture) -> _core.Statistics:
        statistics: _core.Statistics = self.engine.together(lambda: self.resident.e_step(mixture))
        return statistics

    def fit(self, *_: Any) -> _core.Fit:
        raise NotImplementedError("rank 0 fits, with the samples themselves")


def _signals_to(handler: Any) -> Any:
    try:
        return signal.signal(signal.SIGINT, handler)
    except ValueError:
        # Not in the main thread, which alone gets signals.
        return None


def _restore(handler: Any) -> None:
    if handler is not None:
        signal.signal(signal.SIGINT, handler)


def _plan(
    engine: MPIEngine, X: Any, sample_weight: Any, partition_rows: int | None, resident: bool | None
) -> Plan:
    """Divide files, or make one partition of the array of each rank."""
    if engine.comm.allreduce(_partitions.are_paths(X)) == engine.size:
        return cluster.plan(engine, X, sample_weight, partition_rows)

    def own() -> tuple[Partition, Any]:
        if _partitions.are_paths(X):
            raise ValueError("this rank names files, but others give arrays; all ranks must do the same")
        if resident is False:
            raise ValueError("resident=False needs files, which can be read again; an array is in memory anyway")
        x = check_array(na_as_nan(X), dtype=[np.float64, np.float32], ensure_all_finite=False, ensure_min_samples=0)
        [partition] = _partitions.of_array(x, max(1, x.shape[0]), sample_weight)
        return partition._replace(name=f"the samples of rank {engine.rank}"), x.dtype

    partition, kind = cluster.agreed(engine, own)
    abouts = engine.comm.allgather((kind.str, sample_weight is not None))
    weighted = any(has for _, has in abouts)
    dtype = _partitions.common_dtype(kind for kind, _ in abouts)
    partitions = [
        Partition(f"the samples of rank {rank}", None, Array(None) if weighted else None) for rank in range(engine.size)
    ]
    partitions[engine.rank] = partition
    return Plan(partitions, dtype, X)


@cluster.with_documentation_of_the_local_estimator
class GaussianMixture(cluster.GaussianMixture):
    """A Gaussian mixture, fitted by the ranks of an MPI communicator.

    Parameters, methods, attributes and errors are those of :class:`gaussmix.GaussianMixture`. All ranks call the same methods.
    `fit`, `score`, `aic` and `bic` are about the samples of all ranks: either all ranks name the same .npy or Parquet files,
    of which each reads its part, or each gives an array of its own samples (all do, in the order of the ranks; one may be
    empty). Afterwards all ranks have the same fitted mixture. `predict`, `predict_proba` and `score_samples` are about the
    array of each rank; of files they give each rank all values.

    An iteration sends the parameters and brings back sums over the samples, which are added in the order of the
    partitions: the same partitions on the same kind of device give the same bits, whatever the number of ranks. An error of one rank is
    raised in all. `verbose` and `callback` work on rank 0 alone. The device 'cuda' is another GPU for each rank of a computer;
    `n_jobs` is the number of threads of a rank, by default its share of the cores.

    Parameters
    ----------
    n_components : int, default=1
        The number of components.
    comm : mpi4py.MPI.Comm or None, default=None
        The communicator; by default that of all processes.
    partition_rows : int or None, default=None
        The rows of a partition of files. By default such that there are about 512 partitions of 4 to 256 MiB.
    resident : bool or None, default=None
        Whether partitions of files stay in memory. Where they do not, each iteration reads them again, one after the other. By
        default as many stay as half of the memory holds.
    **params : dict
        The other parameters of :class:`gaussmix.GaussianMixture`.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{name: kinds for name, kinds in cluster.GaussianMixture._parameter_constraints.items() if name != "engine"},
        "comm": "no_validation",  # type: ignore[dict-item]  # scikit-learn's word for any object
    }
    _connections: ClassVar[tuple[str, ...]] = ("comm",)

    @cluster.with_parameters_of_the_local_estimator
    def __init__(
        self,
        n_components: int = 1,
        *,
        comm: Any = None,
        partition_rows: int | None = None,
        resident: bool | None = None,
        **params: Any,
    ) -> None:
        _estimator.GaussianMixture.__init__(self, n_components, **params)
        self.comm = comm
        self.partition_rows = partition_rows
        self.resident = resident

    def _make_engine(self) -> MPIEngine:
        return MPIEngine(self.comm)

    def _plan(self, engine: Engine, X: Any, sample_weight: Any) -> Plan:
        assert isinstance(engine, MPIEngine)
        return _plan(engine, X, sample_weight, self.partition_rows, self.resident)

    def _fit(self, samples: _estimator.Samples) -> _estimator.Evaluations:
        assert isinstance(samples, cluster._ClusterSamples) and isinstance(samples.engine, MPIEngine)
        engine = samples.engine

        def work() -> None:
            super(GaussianMixture, self)._fit(samples)

        try:
            engine.together(work)
        finally:
            # After Ctrl-C, or an error of a callback, there may be a fitted mixture on rank 0 all the same.
            names = [name for name in vars(self) if name.endswith("_") or name in ("_average", "_chunks")]
            fitted = engine.comm.bcast({name: vars(self)[name] for name in names})
            self.__dict__.update(fitted)
            if engine.rank != 0:
                self._made = None
        return _Together(engine, samples._resident())

    def _evaluate(self, X: Any, sample_weight: Any, work: Callable[[Any], Any]) -> Any:
        check_is_fitted(self)
        with cluster._ClusterSamples(self, X, sample_weight, reset=False) as samples:
            resident = samples._resident()
            assert isinstance(samples.engine, MPIEngine)

            def told() -> Any:
                with resident.remote.told():
                    return work(resident)

            return samples.engine.together(told)

    def _values(self, operation: str, X: Any) -> Any:
        check_is_fitted(self)
        if _partitions.are_paths(X):
            return super()._values(operation, X)
        method = self._METHODS[operation]
        return getattr(self._local(), method)(X)


class Likelihood(cluster.Likelihood):
    """The log-likelihood of samples that stay in the ranks of an MPI communicator.

    It is called as :class:`gaussmix.Likelihood` is, by all ranks, which all get the result; the parameters that count are
    those of rank 0. Several sets of parameters in one call travel together: down the tree of the ranks and, as totals, up
    again. `together` lets a sampler run on rank 0 alone.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features), or paths
        The samples of this rank, or files, of which each rank reads its part.
    sample_weight : array-like of shape (n_samples,), or paths, default=None
        A sample of weight 2 counts as two.
    comm : mpi4py.MPI.Comm or None, default=None
        The communicator; by default that of all processes.
    **options : dict
        `device`, `covariance_type`, `float64`, `n_jobs`, `partition_rows`, `resident` and `missing`, as of
        :class:`gaussmix.cluster.Likelihood`.
    """

    _engine: MPIEngine

    def __init__(self, X: Any, sample_weight: Any = None, *, comm: Any = None, **options: Any) -> None:
        super().__init__(X, sample_weight, engine=MPIEngine(comm), **options)

    def _plan(self, X: Any, sample_weight: Any, partition_rows: int | None, resident: bool | None) -> Plan:
        return _plan(self._engine, X, sample_weight, partition_rows, resident)

    def _evaluate(self, work: Callable[[], Any]) -> Any:
        evaluate = super()._evaluate
        return self._engine.together(lambda: evaluate(work))

    def together(self, work: Callable[[], Any]) -> Any:
        """Do something on rank 0, which may evaluate as often as it likes; the other ranks answer meanwhile.

        Parameters
        ----------
        work : callable
            Called by rank 0 only, for example to run a sampler.

        Returns
        -------
        result : object
            What `work` returned, on all ranks. Its error is raised on all ranks too.
        """
        return self._engine.together(work)


# The command

_EXAMPLES = """examples:
  mpiexec -n 4 python -m gaussmix.mpi fit x.npy -k 8 -o model.json
  mpiexec -n 64 python -m gaussmix.mpi fit 'frames/*.npy' -k 32 --covariance-type diag --device cuda --verbose -o model.npz
  mpiexec -n 4 python -m gaussmix.mpi fit x.npy --sample-weight w.npy -k 8 --json -o model.json
  mpiexec -n 4 python -m gaussmix.mpi select x.npy -k 1:20 --covariance-type full,diag -o model.json
  mpiexec -n 4 python -m gaussmix.mpi score model.json x.npy
  mpiexec -n 4 python -m gaussmix.mpi predict model.json x.npy -o labels.npy
  mpiexec -n 4 python -m gaussmix.mpi fit holes.parquet --missing -k 8 -o model.json

Samples are .npy files (N, D) of float64 or float32, or Parquet files of which all columns are numbers; all ranks must see
them. Models are those of the command gmm and of GaussianMixture.load. The exit code is 0 after success, 1 after a
failure, 2 for wrong arguments, and 130 after Ctrl-C, which ends a fit after the present iteration and writes its model."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gaussmix.mpi",
        description="Fits and applies Gaussian mixtures with all ranks of an MPI job.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="{fit,select,score,predict}")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name, help=text, description=text, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name in ("score", "predict"):
            command.add_argument("model", help="a model, .json or .npz")
        command.add_argument("data", nargs="+", help="files of samples, or patterns of their names")
        command.add_argument("--device", default="auto", help="where each rank computes (default: %(default)s)")
        command.add_argument("--n-jobs", type=int, help="threads of a rank (default: its share of the cores)")
        command.add_argument("--partition-rows", type=_positive, help="rows of a partition (default: 4 to 256 MiB)")
        command.add_argument("--missing", action="store_true", help="NaN and nulls of Parquet stand for missing values")
        command.add_argument("--json", action="store_true", help="print the result as JSON")
        return command

    fit = add("fit", "Fit a mixture and write it to a file.")
    fit.add_argument("-k", "--n-components", type=_positive, required=True, help="the number of components")
    fit.add_argument("-o", "--output", required=True, help="the model to write, .json or .npz")
    fit.add_argument("--covariance-type", choices=_KINDS, default="full")
    fit.add_argument("--warm-start", metavar="MODEL", help="a model to start at")
    _add_training(fit)
    select = add("select", "Fit mixtures of several numbers of components and covariance types, and select the best.")
    select.add_argument(
        "-k",
        "--n-components",
        type=_ranges,
        required=True,
        metavar="RANGE",
        help="numbers of components: 1:20 (both included), 10:100:10 (in steps) or 2,4,8",
    )
    select.add_argument("-o", "--output", help="where to write the best model, .json or .npz")
    select.add_argument(
        "--covariance-type", type=_kinds, default=["full"], metavar="TYPES", help="one or several, as full,diag (default: full)"
    )
    select.add_argument("--criterion", choices=["bic", "aic"], default="bic", help="(default: %(default)s)")
    _add_training(select)
    add("score", "Print the mean log-likelihood of the samples, BIC and AIC.").add_argument(
        "--sample-weight", nargs="+", help=".npy files of sample weights (N,)"
    )
    predict = add("predict", "Write a value for each sample to a .npy file.")
    predict.add_argument("-o", "--output", required=True, help="the .npy file to write")
    predict.add_argument(
        "--values",
        choices=["labels", "proba", "scores"],
        default="labels",
        help="the most probable component, the probabilities of all, or the log-likelihood (default: %(default)s)",
    )
    return parser


def _add_training(command: argparse.ArgumentParser) -> None:
    command.add_argument("--sample-weight", nargs="+", help=".npy files of sample weights (N,)")
    command.add_argument("--tol", type=float, default=1e-3, help="(default: %(default)s)")
    command.add_argument("--reg-covar", type=float, default=1e-6, help="(default: %(default)s)")
    command.add_argument("--max-iter", type=int, default=100, help="(default: %(default)s)")
    command.add_argument("--n-init", type=_positive, default=1, help="runs from different starts (default: %(default)s)")
    command.add_argument(
        "--init-params", choices=["kmeans", "k-means++", "random", "random_from_data"], default="kmeans"
    )
    command.add_argument("--freeze", nargs="+", choices=["weights", "means", "covariances"])
    command.add_argument("--standardize", action="store_true", help="fit to columns of mean 0 and deviation 1")
    command.add_argument("--seed", type=int, default=0, help="of all random numbers (default: %(default)s)")
    command.add_argument("--verbose", action="store_true", help="print iterations to stderr")
    command.add_argument(
        "--resident",
        choices=["auto", "yes", "no"],
        default="auto",
        help="whether samples stay in memory; otherwise each iteration reads them again (default: as many as half of the "
        "memory holds)",
    )


def _ranges(text: str) -> list[int]:
    """Read numbers and ranges such as 1:20 and 10:100:10, as the command gmm does."""
    found: list[int] = []
    for part in text.split(","):
        numbers = [int(number) for number in part.split(":")]
        first, last, step = (numbers * 2 + [1] if len(numbers) == 1 else [*numbers, 1])[:3]
        if len(numbers) > 3 or not (1 <= first <= last and step >= 1) or (last - first) // step >= 100_000:
            raise ValueError
        found += range(first, last + 1, step)
    return found


_ranges.__name__ = "range"


def _kinds(text: str) -> list[str]:
    kinds = text.split(",")
    if not set(kinds) <= set(_KINDS):
        raise ValueError
    return kinds


_kinds.__name__ = "covariance type"


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


_positive.__name__ = "positive integer"


def _parsed(arguments: Sequence[str] | None, comm: Any) -> argparse.Namespace | int:
    """Parse on rank 0, which alone prints; give all ranks the options, or the exit code."""
    found: argparse.Namespace | int = _USAGE
    if comm.Get_rank() == 0:
        parser = _parser()
        try:
            found = parser.parse_args(arguments)
            outputs = {"predict": (".npy",)}.get(found.command, (".json", ".npz"))
            if getattr(found, "output", None) is not None and not found.output.endswith(outputs):
                parser.error(f"the name of the output is {found.output}; it must end in {' or '.join(outputs)}")
        except SystemExit as end:
            found = int(end.code or 0)
    broadcast: argparse.Namespace | int = comm.bcast(found)
    return broadcast


def _show(iteration: _estimator.Iteration, what: str = "") -> None:
    text = f"{what}run {iteration.run}, iteration {iteration.iteration}: lower bound {iteration.lower_bound:.9f}"
    print(f"{text}, change {iteration.change:.3e}", file=sys.stderr, flush=True)


def _show_model(iteration: _estimator.Iteration) -> None:
    mixture = iteration.mixture
    _show(iteration, f"{mixture.covariance_type}, K = {len(mixture.weights)}, ")


def _estimator_of(options: argparse.Namespace, comm: Any, show: Callable[[_estimator.Iteration], None]) -> GaussianMixture:
    return GaussianMixture(
        comm=comm,
        tol=options.tol,
        reg_covar=options.reg_covar,
        max_iter=options.max_iter,
        n_init=options.n_init,
        init_params=options.init_params,
        random_state=options.seed,
        freeze=options.freeze,
        standardize=options.standardize,
        device=options.device,
        n_jobs=options.n_jobs,
        partition_rows=options.partition_rows,
        resident={"auto": None, "yes": True, "no": False}[options.resident],
        missing=options.missing,
        callback=show if options.verbose else None,
    )


def _select(options: argparse.Namespace, comm: Any) -> dict[str, Any]:
    begin = time.perf_counter()
    with warnings.catch_warnings():
        # The table says it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        if comm.Get_rank() > 0:
            warnings.filterwarnings("ignore", ".* are left out", UserWarning)
        selection = select(
            options.data,
            options.n_components,
            covariance_type=options.covariance_type,
            criterion=options.criterion,
            sample_weight=options.sample_weight,
            estimator=_estimator_of(options, comm, _show_model),
        )
    if options.output is not None:
        MPIEngine(comm).together(lambda: selection.best.save(options.output))
    best = min(selection.table, key=lambda candidate: candidate.criterion)
    return {
        "criterion": options.criterion,
        "best": best._asdict(),
        "candidates": [candidate._asdict() for candidate in selection.table],
        "ranks": comm.Get_size(),
        "seconds": time.perf_counter() - begin,
        "model": options.output,
    }


def _fit(options: argparse.Namespace, comm: Any) -> dict[str, Any]:
    begin = time.perf_counter()
    gm = _estimator_of(options, comm, _show)
    gm.set_params(n_components=options.n_components, covariance_type=options.covariance_type)
    if options.warm_start is not None:
        before = _estimator.GaussianMixture.load(options.warm_start)
        if before.means_.shape[0] != options.n_components or before.covariance_type != options.covariance_type:
            raise ValueError(
                f"{options.warm_start} has {before.means_.shape[0]} components of the covariance type "
                f"'{before.covariance_type}'; -k and --covariance-type must say the same"
            )
        gm.__dict__.update({name: value for name, value in vars(before).items() if name.endswith("_")})
        gm._average, gm._chunks, gm._made = None, 0, None
        gm.set_params(warm_start=True)
    interrupted = False
    try:
        with warnings.catch_warnings():
            # The result says it.
            warnings.simplefilter("ignore", ConvergenceWarning)
            gm.fit(options.data, sample_weight=options.sample_weight)
    except KeyboardInterrupt:
        if not hasattr(gm, "means_"):
            raise
        interrupted = True
    MPIEngine(comm).together(lambda: gm.save(options.output))
    return {
        "converged": bool(gm.converged_),
        "interrupted": interrupted,
        "n_iter": gm.n_iter_,
        "lower_bound": gm.lower_bound_,
        "ranks": comm.Get_size(),
        "seconds": time.perf_counter() - begin,
        "model": options.output,
    }


def _loaded(options: argparse.Namespace, comm: Any) -> GaussianMixture:
    # All ranks have the same model, so that rank 0 reads it for all.
    def read() -> dict[str, Any]:
        gm = _estimator.GaussianMixture.load(options.model)
        return {**gm.get_params(), **{name: value for name, value in vars(gm).items() if name.endswith("_")}}

    state: dict[str, Any] = MPIEngine(comm).together(read)
    gm = GaussianMixture(
        state["n_components"],
        comm=comm,
        covariance_type=state["covariance_type"],
        device=options.device,
        n_jobs=options.n_jobs,
        partition_rows=options.partition_rows,
        missing=options.missing,
    )
    gm.__dict__.update({name: value for name, value in state.items() if name.endswith("_")})
    gm._average, gm._chunks, gm._made = None, 0, None
    return gm


def _score(options: argparse.Namespace, comm: Any) -> dict[str, Any]:
    gm = _loaded(options, comm)
    total, n = gm._total(options.data, options.sample_weight)
    criteria = {name: gm._criterion(name, total, n) for name in ("bic", "aic")}
    return {"score": total / n, "log_likelihood": total, **criteria}


def _predict(options: argparse.Namespace, comm: Any) -> dict[str, Any]:
    """Each rank writes the values of its partitions to their place in the file."""
    gm = _loaded(options, comm)
    engine = MPIEngine(comm)
    files = engine.files(options.data)
    _partitions.check_samples(files)
    dtype = _partitions.common_dtype(file.dtype for file in files)
    partitions = _partitions.divide(files, options.partition_rows, dtype)
    counts = _partitions.lengths(partitions, files)
    n_rows = sum(counts)
    method: Callable[[Floats], NDArray[Any]]
    local = gm._local()
    local.n_jobs = engine._of_this_rank(Options(dtype.str, 1, threads=options.n_jobs)).threads
    kind: np.dtype[Any] = np.dtype(np.float64)
    shape: tuple[int, ...] = (n_rows,)
    if options.values == "labels":
        method, kind = local.predict, np.dtype(np.int64)
    elif options.values == "scores":
        method = local.score_samples
    else:
        method, shape = local.predict_proba, (n_rows, gm.means_.shape[0])
    unfinished = f"{options.output}.unfinished"

    def create() -> None:
        if files[0].shape[1] != gm.n_features_in_:
            raise ValueError(
                f"X has {files[0].shape[1]} features, but GaussianMixture is expecting {gm.n_features_in_} features as input"
            )
        np.lib.format.open_memmap(unfinished, "w+", kind, shape).flush()

    engine.together(create)
    error: BaseException | None = None
    try:
        values = np.lib.format.open_memmap(unfinished, "r+")
        n, begins = len(partitions), np.cumsum([0, *counts])
        for number in range(engine.rank * n // engine.size, (engine.rank + 1) * n // engine.size):
            try:
                x, _ = partitions[number].read(dtype)
                if x.shape[0] > 0:
                    values[begins[number] : begins[number + 1]] = method(x)
            except Exception as raised:
                raise partitions[number].error(raised) from raised
        values.flush()
    except Exception as raised:
        error = raised
    try:
        engine.agree(error)
    except BaseException:
        if engine.rank == 0:
            os.remove(unfinished)
        raise
    engine.together(lambda: os.replace(unfinished, options.output))
    return {"samples": n_rows, "values": options.values, "output": options.output}


def main(arguments: Sequence[str] | None = None, comm: Any = None) -> int:
    """Run the command. All ranks call it.

    Parameters
    ----------
    arguments : sequence of str, default=None
        The arguments; by default those of the process.
    comm : mpi4py.MPI.Comm, default=None
        The communicator; by default that of all processes.

    Returns
    -------
    code : int
        The exit code, the same on all ranks.
    """
    comm = _world() if comm is None else comm
    options = _parsed(arguments, comm)
    if isinstance(options, int):
        return options
    try:
        result = {"fit": _fit, "select": _select, "score": _score, "predict": _predict}[options.command](options, comm)
    except KeyboardInterrupt:
        if comm.Get_rank() == 0:
            print("interrupted; nothing was written", file=sys.stderr, flush=True)
            # The other ranks may wait for this one.
            if comm.Get_size() > 1:
                _abort(comm, _INTERRUPTED)
        return _INTERRUPTED
    except Exception as error:
        if comm.Get_size() > 1 and not hasattr(error, "of_all_ranks"):
            raise
        if comm.Get_rank() == 0:
            print(f"error: {error}", file=sys.stderr)
        return _FAILURE
    if comm.Get_rank() == 0:
        print(json.dumps(result) if options.json else _text(result))
    return _INTERRUPTED if result.get("interrupted") else 0


def _text(result: dict[str, Any]) -> str:
    """Give a result for people: a table of the candidates, if there are any, and a line for each other value."""
    candidates = result.pop("candidates", None)
    if candidates is None:
        return "\n".join(f"{name}: {value}" for name, value in result.items())
    best, name = result["best"], result["criterion"].upper()
    rows = [("type", "K", "parameters", "score", name, "iterations")]
    for c in candidates:
        mark = " best" if c == best else "" if c["converged"] else " not converged"
        numbers = (c["n_parameters"], f"{c['score']:.6f}", f"{c['criterion']:.3f}", f"{c['n_iter']}{mark}")
        rows.append((c["covariance_type"], *map(str, (c["n_components"], *numbers))))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    result["best"] = f"{best['n_components']} components, {best['covariance_type']}"
    return "\n".join([*table, "", _text(result)])


def _abort(comm: Any, code: int) -> NoReturn:
    """End all ranks, once the launcher has read what this one wrote to stderr: it drops what it has not read when a rank aborts."""
    # Not every system has these, and not every stderr can tell how many bytes are still unread.
    with suppress(ImportError, OSError):
        import fcntl
        import termios

        given_up = time.monotonic() + _GRACE
        while time.monotonic() < given_up and any(fcntl.ioctl(sys.stderr.fileno(), termios.FIONREAD, bytes(4))):
            time.sleep(_NAP)
    comm.Abort(code)
    # Some launchers leave it to the rank to end.
    os._exit(code)


def _run() -> int:
    """Run the command; what is an error of one rank alone ends all ranks."""
    comm = _world()
    if comm.Get_rank() != 0:
        # Rank 0 decides what happens on Ctrl-C, which all ranks get.
        _signals_to(signal.SIG_IGN)
    try:
        return main(comm=comm)
    except BaseException as error:
        if comm.Get_rank() != 0:
            # Where rank 0 has the same error, it has ended all ranks by then.
            time.sleep(_GRACE)
        print(f"error: rank {comm.Get_rank()}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        _abort(comm, _FAILURE)


if __name__ == "__main__":
    sys.exit(_run())
