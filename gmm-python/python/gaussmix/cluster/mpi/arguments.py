"""The arguments of the command ``python -m gaussmix.mpi``.

Its options are those that the library has for a fit, and parameters of the estimators and of `gaussmix.select`: their
names, defaults, values and descriptions are taken from there.
"""

import argparse
import inspect
import math
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval

from ... import _core
from ..._documentation import description_of
from ..._parameters import CHOICES
from ..._reports import Iteration
from ..._select import CRITERIA, select
from .estimator import BayesianGaussianMixture, GaussianMixture

Either = GaussianMixture | BayesianGaussianMixture
#: The exit code for a wrong use.
_USAGE = 2
#: What an option of three states may be.
_STATES = {"auto": None, "yes": True, "no": False}
#: The parameters of the estimator that are options of all commands.
_COMMON = ("device", "n_jobs", "partition_rows", "missing")
_OF_FITS, _OF_EM, _OF_VARIATIONAL = _core.option_names()
#: The library's options of a fit that are no options here, or are added by themselves.
_APART = {
    "n_components": "`select` tries several",
    "covariance_type": "`select` tries several",
    "device": "all commands have it",
    "random_state": "it has a second name, and here a default",
    **dict.fromkeys(("weights_init", "means_init", "precisions_init"), "`--init MODEL` starts at a model"),
}
#: The parameters that are options of the commands that fit.
_TRAINING = (*(name for name in (*_OF_FITS, *_OF_EM) if name not in _APART), "standardize", "resident")
#: The methods that give the values of ``predict --values``.
METHODS = {"labels": "predict", "proba": "predict_proba", "scores": "score_samples"}

_EXAMPLES = """examples:
  mpiexec -n 4 python -m gaussmix.mpi fit x.npy -k 8 -o model.json
  mpiexec -n 64 python -m gaussmix.mpi fit 'frames/*.npy' -k 32 --covariance-type diag --device cuda --verbose -o model.npz
  mpiexec -n 4 python -m gaussmix.mpi fit x.npy -k 20 --variational --mean-prior 0,0,1.5 -o model.json
  mpiexec -n 4 python -m gaussmix.mpi fit new.npy --init model.json --freeze means=0,2,weights -o refitted.json
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
        if name != "predict":
            command.add_argument("--sample-weight", nargs="+", help=".npy files of sample weights (N,)")
        for parameter in _COMMON:
            # The command gmm calls them threads.
            _add(command, parameter, *(("--threads",) if parameter == "n_jobs" else ()), dest=parameter)
        command.add_argument("--json", action="store_true", help="print the result as JSON")
        return command

    fit = add("fit", "Fit a mixture and write it to a file.")
    _add(fit, "n_components", "-k", default=None, help="The number of components; needed without --init (default: that of --init)")
    kinds = f"{description_of(GaussianMixture, 'covariance_type')} (default: that of --init, or full)"
    _add(fit, "covariance_type", default=None, help=kinds)
    fit.add_argument("--init", metavar="MODEL", help="a model to start at; with --variational, the posterior that it has")
    known = (
        "what is known of the samples' components: .npy files of a number for each sample, that of its component counted from "
        "0, or -1 where it is not known; or of a mask (N, K) of those it may belong to. Components are numbered as the labels say"
    )
    fit.add_argument("--labels", nargs="+", metavar="FILE", help=known)
    fit.add_argument("-o", "--output", required=True, help="the model to write, .json or .npz")
    _add_training(fit)
    _add_prior(fit)
    trial = add("select", "Fit mixtures of several numbers of components and covariance types, and select the best.")
    numbers = "numbers of components: 1:20 (both included), 10:100:10 (in steps) or 2,4,8"
    _add(trial, "n_components", "-k", required=True, type=_ranges, metavar="RANGE", help=numbers)
    types = "one or several, as full,diag, or all of mclust's (default: full)"
    _add(trial, "covariance_type", type=_kinds, choices=None, default=["full"], metavar="TYPES", help=types)
    _add(trial, "criterion", choices=CRITERIA, of=select)
    trial.add_argument("-o", "--output", help="where to write the best model, .json or .npz")
    _add_training(trial)
    add("score", "Print the mean log-likelihood of the samples, BIC and AIC.")
    predict = add("predict", "Write a value for each sample to a .npy file.")
    predict.add_argument("-o", "--output", required=True, help="the .npy file to write")
    predict.add_argument(
        "--values",
        choices=METHODS,
        default="labels",
        help="the most probable component, the probabilities of all, or the log-likelihood (default: %(default)s)",
    )
    return parser


def _add(command: argparse._ActionsContainer, name: str, *short: str, of: Any = GaussianMixture, **changes: Any) -> None:
    """Add an option for a parameter of the estimator, or of a function, but for what `changes` says."""
    default = inspect.signature(of).parameters[name].default
    option: dict[str, Any] = {"help": description_of(of, name).replace("%", "%%"), "default": default}
    if name in CHOICES:
        option["choices"] = CHOICES[name]
    kinds = getattr(of, "_parameter_constraints", {}).get(name, [])
    for kind in kinds:
        if kind == "boolean" and dict not in kinds:
            three = {"choices": _STATES, "default": "auto"}
            option.update(three if None in kinds else {"action": "store_true"})
        elif isinstance(kind, Interval):
            option["type"] = float if kind.type is Real else _positive if kind.left == 1 else _whole
        elif kind is Integral:
            option["type"] = _whole
    if option["default"] is not None and "action" not in option and "required" not in changes:
        option["help"] += f" (default: {option['default']})"
    command.add_argument(*short, f"--{name.replace('_', '-')}", **{**option, **changes})


def _add_training(command: argparse.ArgumentParser) -> None:
    for parameter in _TRAINING:
        # Only what is given has a value. The command gmm has another `--noise`.
        flags = ("--noise-component",) if parameter == "noise" else ()
        _add(command, parameter, *flags, **{**_SPELLED.get(parameter, {}), "default": argparse.SUPPRESS, "dest": parameter})
    command.add_argument("--random-state", "--seed", type=int, default=0, help="the seed of all random numbers (default: %(default)s)")
    command.add_argument("-v", "--verbose", action="store_true", help="print iterations to stderr")


def _add_prior(command: argparse.ArgumentParser) -> None:
    prior = command.add_argument_group("variational inference")
    does = "fit by variational inference, under a prior, instead of EM; the other options of this group need it"
    prior.add_argument("--variational", action="store_true", help=does)
    for parameter in _OF_VARIATIONAL:
        more: dict[str, Any] = {}
        if parameter == "weight_concentration_prior_type":
            # The command gmm spells its values with hyphens.
            more = {"type": lambda text: text.replace("-", "_")}
        elif parameter in ("mean_prior", "covariance_prior"):
            rows = ", the rows of a matrix one after the other" if parameter == "covariance_prior" else ""
            text = f"{description_of(BayesianGaussianMixture, parameter)} Numbers with commas between them{rows}, or a .npy file."
            more = {"type": _numbers, "metavar": "NUMBERS|FILE", "help": f"{text} Before a negative number: =-1,2."}
        _add(prior, parameter, of=BayesianGaussianMixture, **{**more, "default": argparse.SUPPRESS})


def _numbers(text: str) -> NDArray[np.float64]:
    """Read numbers with commas between them, or a .npy file of them, as the command gmm does."""
    try:
        return np.asarray(text.split(","), dtype=np.float64)
    except ValueError:
        pass
    try:
        return np.asarray(np.load(text), dtype=np.float64)
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"neither numbers with commas between them nor a .npy file of numbers: {error}") from error


def _named(text: str, known: tuple[str, ...], default: Any) -> Any:
    """Read numbers with names, or the word default, as the command gmm does."""
    if text == "default":
        return default
    numbers = {}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        try:
            if name not in known:
                raise ValueError
            numbers[name] = float(value)
        except ValueError:
            names = ", ".join(known)
            raise argparse.ArgumentTypeError(f"{part!r}; use default, or {names} with a number, as in {known[0]}=0.5") from None
    return numbers


#: How options are spelled whose values are neither one number nor one name.
_SPELLED: dict[str, dict[str, Any]] = {
    "prior": {
        "type": lambda text: _named(text, ("weight_concentration", "mean_precision", "degrees_of_freedom"), "default"),
        "metavar": "PRIOR",
        "help": "Find the mode of the posterior under a prior (MAP), so that no component collapses: default, or numbers that "
        "differ from it, as in mean_precision=1,degrees_of_freedom=9,weight_concentration=2.",
    },
    "noise": {
        "type": lambda text: _named(text if "=" in text or text == "default" else f"share={text}", ("share", "volume"), True),
        "metavar": "NOISE",
        "help": "Add a component of uniform density for outliers: default, its share at the start, or share=0.1,volume=30.",
    },
    "freeze": {
        "nargs": "+",
        "action": "extend",
        "metavar": "NAMES",
        "choices": None,
        "help": "Parameters that are not fitted and stay those of the start: weights, means, covariances, with commas or spaces "
        "between them; of single components (from 0) as in means=0,2. With weights=equal or means=equal those of all components are equal.",
    },
}


def square(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give the rows of a matrix that were given one after the other; anything else is left to the estimator's check."""
    d = math.isqrt(numbers.size)
    return numbers.reshape(d, d) if d * d == numbers.size else numbers


def _whole(text: str) -> int:
    """Read a whole number, also as 1e3 or 1_000, as the command gmm does."""
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if not value.is_integer() or abs(value) > 1e15:
            raise ValueError from None
        return int(value)


_whole.__name__ = "integer"


def _ranges(text: str) -> list[int]:
    """Read numbers and ranges such as 1:20 and 10:100:10, as the command gmm does."""
    found: list[int] = []
    for part in text.split(","):
        numbers = [_whole(number) for number in part.split(":")]
        first, last, step = (numbers * 2 + [1] if len(numbers) == 1 else [*numbers, 1])[:3]
        if len(numbers) > 3 or not (1 <= first <= last and step >= 1) or (last - first) // step >= 100_000:
            raise ValueError
        found += range(first, last + 1, step)
    return found


_ranges.__name__ = "range"


def _kinds(text: str) -> list[str]:
    kinds = text.split(",")
    if text != "all" and not set(kinds) <= set(CHOICES["covariance_type"]):
        raise ValueError
    return kinds


_kinds.__name__ = "covariance type"


def _positive(text: str) -> int:
    value = _whole(text)
    if value < 1:
        raise ValueError
    return value


_positive.__name__ = "positive integer"


def parsed(arguments: Sequence[str] | None, comm: Any) -> argparse.Namespace | int:
    """Parse on rank 0, which alone prints; give all ranks the options, or the exit code."""
    found: argparse.Namespace | int = _USAGE
    if comm.Get_rank() == 0:
        parser = _parser()
        try:
            found = parser.parse_args(arguments)
            outputs = {"predict": (".npy",)}.get(found.command, (".json", ".npz"))
            if getattr(found, "output", None) is not None and not found.output.endswith(outputs):
                parser.error(f"the name of the output is {found.output}; it must end in {' or '.join(outputs)}")
            _check(found, parser.error)
        except SystemExit as end:
            found = int(end.code or 0)
    return comm.bcast(found)


def _check(found: argparse.Namespace, refuse: Callable[[str], object]) -> None:
    """Check options that are about each other; complete what is spelled in several words."""

    def given(names: Sequence[str]) -> str | None:
        return next((f"--{name.replace('_', '-')}" for name in names if hasattr(found, name)), None)

    if "freeze" in found:
        try:
            found.freeze = ",".join(found.freeze)
            _core.check_freeze(found.freeze)
        except ValueError as error:
            refuse(f"argument --freeze: {error}")
    if found.command != "fit":
        return
    if found.variational and (option := given(_OF_EM)):
        refuse(f"{option} is an option of EM; leave it out, or --variational")
    if not found.variational and (option := given(_OF_VARIATIONAL)):
        refuse(f"{option} needs --variational")
    if found.init is None and found.n_components is None:
        refuse("-k is missing; give the number of components, or a model to start at by --init")
    if found.init is not None and (option := given(("n_init", "init_params"))):
        refuse(f"--init starts at a model, not as {option} says; leave out one of them")


def estimator_of(
    options: argparse.Namespace, comm: Any, show: Callable[[Iteration], None] | None = None, kind: type[Either] = GaussianMixture
) -> Either:
    """Make an estimator with the parameters that a command has options for."""
    names = (*_COMMON, *_TRAINING, *_OF_VARIATIONAL, "random_state")
    params = {name: getattr(options, name) for name in names if hasattr(options, name)}
    if "resident" in params:
        params["resident"] = _STATES[params["resident"]]
    if show is not None and options.verbose:
        params["callback"] = show
    return kind(comm=comm, **params)
