"""The command ``python -m gaussmix.mpi``, which all ranks of an MPI job run."""

import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_n_features

from ... import _core
from ..._arrays import Floats
from ..._reports import Iteration
from ..._select import CRITERIA, select
from ..engine import Plan, agreed
from ..shard import Options
from .engine import NAP, MPIEngine, ignore_interrupts, world
from .estimator import BayesianGaussianMixture, GaussianMixture

Either = GaussianMixture | BayesianGaussianMixture
#: The methods that give the values of ``predict --values``.
_METHODS = {"labels": "predict", "proba": "predict_proba", "scores": "score_samples"}
#: How long a rank with an error waits for rank 0 to report the same one, and for the launcher to read its own report, in seconds.
_GRACE = 1.0
#: The exit codes of the command: a failure, and Ctrl-C.
_FAILURE, _INTERRUPTED = 1, 130


def _parsed(arguments: Sequence[str] | None, comm: Any) -> SimpleNamespace | int:
    """Parse on rank 0, which alone prints; give all ranks the options, or the exit code."""
    found: dict[str, Any] = {}
    if comm.Get_rank() == 0:
        found = _core.mpi_arguments(sys.argv[1:] if arguments is None else list(arguments))
        if "text" in found:
            print(found["text"], end="", file=sys.stderr if found["code"] else sys.stdout)
    found = comm.bcast(found)
    return found["code"] if "text" in found else SimpleNamespace(**found)


def _estimator_of(options: SimpleNamespace, comm: Any, show: Callable[[Iteration], None], kind: type[Either] = GaussianMixture) -> Either:
    """Make an estimator with the parameters that a command of a fit has options for."""
    params = {"random_state": 0, **options.params, "resident": {"auto": None, "yes": True, "no": False}[options.resident]}
    return kind(comm=comm, callback=show if options.verbose else None, **_common(options), **params)


def _common(options: SimpleNamespace) -> dict[str, Any]:
    """Return the parameters that all commands have options for."""
    return {name: getattr(options, name) for name in ("device", "n_jobs", "partition_rows", "missing")}


def _show(iteration: Iteration, what: str = "") -> None:
    text = f"{what}run {iteration.run}, iteration {iteration.iteration}: lower bound {iteration.lower_bound:.9f}"
    print(f"{text}, change {iteration.change:.3e}", file=sys.stderr, flush=True)


def _show_model(iteration: Iteration) -> None:
    mixture = iteration.mixture
    _show(iteration, f"{mixture.covariance_type}, K = {len(mixture.weights)}, ")


def _select(options: SimpleNamespace, comm: Any) -> dict[str, Any]:
    with warnings.catch_warnings():
        # The table says it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        if comm.Get_rank() > 0:
            warnings.filterwarnings("ignore", ".* are left out", UserWarning)
        selection = select(
            options.data,
            list(chain(*options.n_components)),
            covariance_type=list(chain(*options.covariance_type)),
            criterion=options.criterion,
            sample_weight=options.sample_weight,
            estimator=_estimator_of(options, comm, _show_model),
        )
    if options.output is not None:
        MPIEngine(comm).together(lambda: selection.best.save(options.output))
    if not options.json:
        return {"selection": selection}
    # JSON has no NaN.
    rows = [{name: None if value != value else value for name, value in row._asdict().items()} for row in selection.table]
    best = min(rows, key=lambda row: math.inf if row["criterion"] is None else row["criterion"])
    return {"criterion": options.criterion, "best": best, "candidates": rows}


def _fit(options: SimpleNamespace, comm: Any) -> dict[str, Any]:
    gm = _estimator_of(options, comm, _show, BayesianGaussianMixture if options.variational else GaussianMixture)
    shape = {name: getattr(options, name) for name in ("n_components", "covariance_type") if getattr(options, name) is not None}
    if options.init is None:
        gm.set_params(**shape)
    else:
        before = MPIEngine(comm).together(lambda: _start_of(gm, shape, options))
        names = ("n_components", "covariance_type", "weight_concentration_prior_type")
        gm.set_params(warm_start=True, **{name: getattr(before, name) for name in names if hasattr(before, name)})
        gm._take_fit(before)
    prior = np.array(options.params.get("covariance_prior", ()))
    d = math.isqrt(prior.size)
    if gm.covariance_type in ("full", "tied") and d > 0 and d * d == prior.size:
        # Its rows stand one after the other.
        gm.set_params(covariance_prior=prior.reshape(d, d))
    interrupted = False
    try:
        with warnings.catch_warnings():
            # The result says it.
            warnings.simplefilter("ignore", ConvergenceWarning)
            gm.fit(options.data, sample_weight=options.sample_weight, labels=options.labels)
    except KeyboardInterrupt:
        if not hasattr(gm, "means_"):
            raise
        interrupted = True
    MPIEngine(comm).together(lambda: gm.save(options.output))
    # With the names that `gmm fit --variational` has.
    of_posterior: dict[str, Any] = {}
    if isinstance(gm, BayesianGaussianMixture):
        of_posterior = {"elbo": gm.elbo_, "alive": np.flatnonzero(gm._posterior().alive).tolist()}
    return {
        "converged": bool(gm.converged_),
        "interrupted": interrupted,
        "n_iter": gm.n_iter_,
        "lower_bound": gm.lower_bound_,
        **of_posterior,
    }


def _start_of(gm: Either, shape: dict[str, Any], options: SimpleNamespace) -> Any:
    """Read the model at which a fit is to start; what is said of its shape must be so."""
    before: Any = gm._LOCAL.load(options.init)
    kind = "weight_concentration_prior_type"
    for name, value in {**shape, **({kind: options.params[kind]} if kind in options.params else {})}.items():
        if value != getattr(before, name):
            raise ValueError(
                f"{options.init}: the model has {name}={getattr(before, name)!r}, but --{name.replace('_', '-')} says {value!r}; "
                "leave it out, or say the same"
            )
    return before


def _loaded(options: SimpleNamespace, comm: Any) -> Either:
    """Give all ranks the model, which rank 0 reads: the posterior, where the file has one."""

    def read() -> Either:
        kind = BayesianGaussianMixture if _core.VariationalMixture.is_in(options.model) else GaussianMixture
        return kind.load(options.model, **_common(options))

    gm: Either = MPIEngine(comm).together(read)
    return gm.set_params(comm=comm)


def _score(options: SimpleNamespace, comm: Any) -> dict[str, Any]:
    gm = _loaded(options, comm)
    total, n = gm._total(options.data, options.sample_weight)
    criteria = {name: gm._criterion(name, total, n) for name in CRITERIA} if isinstance(gm, GaussianMixture) else {}
    return {"score": total / n, "log_likelihood": total, **criteria}


def _predict(options: SimpleNamespace, comm: Any) -> dict[str, Any]:
    """Write a value for each sample: each rank those of its partitions, to their place in the file."""
    gm = _loaded(options, comm)
    engine = MPIEngine(comm)
    plan = engine._plan(options.data, None, options.partition_rows, None)
    n_rows = sum(plan.counts)
    local = gm._local()
    local.n_jobs = engine._of_this_rank(Options(plan.dtype.str, 1, threads=options.n_jobs)).threads
    evaluate: Callable[[Floats], NDArray[Any]] = getattr(local, _METHODS[options.values])
    kind = np.dtype(np.int64 if options.values == "labels" else np.float64)
    shape = (n_rows, gm.means_.shape[0]) if options.values == "proba" else (n_rows,)
    unfinished = f"{options.output}.unfinished"

    def create() -> None:
        _check_n_features(gm, plan.head, reset=False)
        np.lib.format.open_memmap(unfinished, "w+", kind, shape).flush()

    engine.together(create)
    try:
        agreed(engine, lambda: _write(unfinished, engine, plan, evaluate))
    except BaseException:
        if engine.rank == 0:
            os.remove(unfinished)
        raise
    engine.together(lambda: os.replace(unfinished, options.output))
    return {"samples": n_rows, "values": options.values, "output": options.output}


def _write(path: str, engine: MPIEngine, plan: Plan, evaluate: Callable[[Floats], NDArray[Any]]) -> None:
    """Write the values of this rank's partitions."""
    values = np.lib.format.open_memmap(path, "r+")
    begins = np.cumsum([0, *plan.counts])
    for number in engine._own(len(plan.partitions)):
        partition = plan.partitions[number]
        try:
            x, _ = partition.read(plan.dtype)
            if x.shape[0] > 0:
                values[begins[number] : begins[number + 1]] = evaluate(x)
        except Exception as raised:
            raise partition.error(raised) from raised
    values.flush()


def main(arguments: Sequence[str] | None = None, comm: Any = None) -> int:
    """Run the command, which all ranks call, and return the exit code, the same on all ranks.
    Parameters: arguments : sequence of str, default=None -- The arguments; by default those of the process.
    """
    comm = world() if comm is None else comm
    options = _parsed(arguments, comm)
    if isinstance(options, int):
        return options
    begin = time.perf_counter()
    try:
        if options.command in ("fit", "select") and options.output is not None:
            MPIEngine(comm).together(lambda: _core.check_output(options.output))
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
    if options.command in ("fit", "select"):
        result |= {"ranks": comm.Get_size(), "seconds": time.perf_counter() - begin, "model": options.output}
    if comm.Get_rank() == 0:
        print(json.dumps(result) if options.json else "\n".join(f"{name}: {value}" for name, value in result.items()))
    return _INTERRUPTED if result.get("interrupted") else 0


def _abort(comm: Any, code: int) -> NoReturn:
    """End all ranks, once the launcher has read what this one wrote to stderr.

    When a rank aborts, the launcher drops what it has not read.
    """
    # Not every system has these, and not every stderr can tell how many bytes are still unread.
    with suppress(ImportError, OSError):
        import fcntl
        import termios

        given_up = time.monotonic() + _GRACE
        while time.monotonic() < given_up and any(fcntl.ioctl(sys.stderr.fileno(), termios.FIONREAD, bytes(4))):
            time.sleep(NAP)
    comm.Abort(code)
    # Some launchers leave it to the rank to end.
    os._exit(code)


def run() -> int:
    """Run the command; what is an error of one rank alone ends all ranks."""
    comm = world()
    if comm.Get_rank() != 0:
        ignore_interrupts()
    try:
        return main(comm=comm)
    except BaseException as error:
        if comm.Get_rank() != 0:
            # Where rank 0 has the same error, it has ended all ranks by then.
            time.sleep(_GRACE)
        print(f"error: rank {comm.Get_rank()}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        _abort(comm, _FAILURE)
