"""Signatures and documentation that classes share: texts of parameters, and parameters of other estimators."""

import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping
from types import FunctionType, MappingProxyType
from typing import Any, TypeVar

_Documented = TypeVar("_Documented")
_Class = TypeVar("_Class", bound=type)

#: The entries of common parameters, which a docstring has only where it says something else.
_TABLE = """\
X : array-like of shape (n_samples, n_features) -- The samples.
y : Ignored -- Not used, present by convention.
sample_weight : array-like of shape (n_samples,), default=None -- A sample of weight 2 counts as two.
labels : array-like of shape (n_samples,) or (n_samples, n_components), default=None
    What is known of the samples' components: the number of each one's component, -1 where it is not known; or a mask of
    the components that each sample may belong to. A fit under labels has EM's guarantee too.
random_state : int, RandomState instance or None, default=None -- The source of random numbers.
weights : array-like of shape (n_components,), or Mixture or estimator -- The weights, or a mixture alone.
means : array-like of shape (n_components, n_features), default=None -- The means.
covariances : array-like, default=None -- The covariances, in the shape of their type.
covariance_type : {'full', 'tied', 'diag', 'spherical'} or None, default=None
    The type of all covariances. By default it follows from their shape, which leaves it open between 'tied' and 'diag'
    where there are as many components as features.
device : str, default='auto'
    Where to compute: 'auto', 'cpu', 'cuda', 'cuda:N', 'cuda:all', a list such as 'cuda:0,2', or 'reference'.
float64 : bool, default=False -- Whether to compute in float64 for float32 samples too.
n_jobs : int or None, default=None
    The number of threads, as joblib counts; by default all cores, or as many as RAYON_NUM_THREADS says.
missing : bool, default=False
    Whether NaN stands for a value that is missing at random. The likelihood of a sample is then that of its observed
    values.
other : Mixture or estimator -- A mixture of the same features, or an estimator that was fitted.
feature : int or str, default=None
    The feature, by number, counted from 0, or by name; needed unless it is the only one.
n_features_in_ : int -- The number of features.
feature_names_in_ : ndarray of shape (n_features_in_,) -- Their names, where the data had names.
precisions_cholesky_ : ndarray
    Upper triangular matrices U with U @ U.T the precision; for types without matrices 1 / standard deviation.
converged_ : bool -- Whether the best run converged.
engine : Engine or None, default=None -- What the workers run on; by default this process.
client : distributed.Client or None, default=None
    The connection to the cluster. By default the present client of Dask; where there is none, a LocalCluster within
    this process, which is closed at the end.
comm : mpi4py.MPI.Comm or None, default=None -- The communicator; by default that of all processes.
partition_rows : int or None, default=None
    The rows of a partition. By default the chunks of a dask collection as they are; of an array or files there are
    about 512 partitions of 4 to 256 MiB. The division decides the last bits of the result.
resident : bool or None, default=None
    Whether partitions of files stay in the memory of their workers. Where they do not, each iteration reads them again,
    one after the other. By default as many stay as half of the memory holds.
work : callable -- What to do.
paths : sequence of str -- Names and patterns.
partitions : sequence of Partition -- The partitions, by their numbers.
operation : str -- The name of the operation, for example 'statistics'.
message : bytes -- What the operation needs, for example the parameters.
groups : array-like of shape (n_samples,) -- The group of each sample: numbers, texts or times.
lengths : array-like of shape (n_sequences,), default=None
    The numbers of rows of the sequences, which stand one after the other in X; by default all rows are one sequence.
sequence_weight : array-like of shape (n_sequences,), default=None -- A sequence of weight 2 counts as two.
path : str or path-like -- The file; its name ends in .json or .npz.
noise : array-like, default=None -- The covariances of the samples' noise, in a shape of `Measurements`, unless `X` is that.
projection : array-like of shape (n_samples, n_columns, n_features), default=None -- The matrices that project true values.
n_samples : int, default=1 -- How many.
data : array-like of shape (n, d) or (n,) -- The rows.
newdata : array-like of shape (n_rows, d) -- The rows.
object : Mclust -- The model.
control : emControl, default=emControl() -- When EM ends.
modelName : str -- The model.
ax : matplotlib.axes.Axes, default=None -- Where to draw; by default the current axes.
Xerr : array-like of shape (n_samples, n_features, n_features) -- The covariances of the samples' noise.
"""
#: The same by name, in numpydoc's form.
PARAMETERS: dict[str, str] = {}

#: A default that the signature may have otherwise.
_DEFAULT = re.compile(r"(?<=, default=)('\w*'|True|False)$", re.MULTILINE)
_HEADING = "Parameters\n----------\n"
#: Where the entry of a parameter begins.
_ENTRY = re.compile(r"^(?=\S+(?:, [\w*]+)* : )", re.MULTILINE)
#: The beginning of a section in the short form.
_SHORT = re.compile(r"(Parameters|Returns|Attributes|See Also|References|Examples):(?: (\S.*))?")
#: The beginning of a section that follows the parameters, in numpydoc's form.
_AFTER = re.compile(r"^\w+( Also)?\n--+$", re.MULTILINE)
#: What a summary says of the result.
_RESULT = re.compile(r"(?:^R|[,;] (?:and )?r)eturn (.*?\.)(?= |$)", re.MULTILINE)
#: Names of types in annotations, as documentation has them.
_TYPES = {**dict.fromkeys(("NDArray", "ndarray", "Floats", "Float64", "States"), "ndarray"), "Any": "object"}


def filled(
    text: str, names: Mapping[str, str] = MappingProxyType({}), returns: str | None = None, entries: Mapping[str, str] = PARAMETERS
) -> str:
    """Return a docstring in numpydoc's form.

    In the short form a section begins as with ``Parameters:``, needs no blank line before it, and ends at a blank line or
    at another section. An entry may be ``name : type -- text`` in one line, and a name of the table stands for its entry.
    What is in ``Examples:`` and its like stays as it is.

    `names` are those of the parameters in the signature, with their defaults: what has no entry gets that of `entries`.
    `returns` is the type of the result, which the summary describes after the word return, unless a section does.
    """
    lines: list[str] = []
    has_entries = False
    for line in inspect.cleandoc(text).split("\n"):
        if start := _SHORT.fullmatch(line):
            if lines and lines[-1]:
                lines.append("")
            name, entry = start.groups()
            lines += [name, "-" * len(name)]
            has_entries = name not in ("See Also", "References", "Examples")
            if entry is None:
                continue
            line = entry
        elif not line:
            has_entries = False
        lines += _entry(line) if has_entries and not line.startswith(" ") else [line]
    head, heading, rest = "\n".join(lines).partition(_HEADING)
    section, _, after = rest.partition("\n\n")
    if not heading and (found := _AFTER.search(head)):
        head, after = head[: found.start()], head[found.start() :]
    own = _divided(section)
    given = {
        name: own.pop(name, "") or _DEFAULT.sub(lambda found: default if default[:1] in "'TF" else found[0], entries.get(name, ""), 1)
        for name, default in names.items()
    }
    # Where the signature has them, this stands for its other parameters.
    own.pop("**params", "")
    shown = [entry for entry in (*given.values(), *own.values()) if entry]
    parts = [head.rstrip(), _HEADING + "\n".join(shown) if shown else ""]
    if returns is not None and "Returns\n----" not in after:
        result = _RESULT.search(head.partition("\n")[0])
        about = f"{result[1][0].upper()}{result[1][1:]}" if result else "This object." if returns == "Self" else ""
        parts.append(f"Returns\n-------\n{returns.replace('Self', 'object')}\n    {about}" if about else "")
    return "\n\n".join(part for part in (*parts, after) if part)


def _entry(entry: str) -> list[str]:
    """Return the lines of an entry, or of those of several names."""
    if re.fullmatch(r"\w+(, \w+)*", entry):
        return [line for name in entry.split(", ") for line in PARAMETERS[name].split("\n")]
    head, separator, about = entry.partition(" -- ")
    return [head, 4 * " " + about] if separator else [entry]


def _divided(section: str) -> dict[str, str]:
    """Return the entries of a section by name; an entry of several names is that of each."""
    entries = (entry.rstrip().partition(" : ") for entry in _ENTRY.split(section) if entry.strip())
    return {name: f"{name} : {about}" for names, _, about in entries for name in names.split(", ")}


PARAMETERS.update(_divided("\n".join(line for text in _TABLE.split("\n") for line in _entry(text))))


def type_of(annotation: Any) -> str | None:
    """Return the type of a result as documentation has it; None where there is no result."""
    if annotation in (None, "None", inspect.Signature.empty):
        return None
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    # Without the modules.
    text = re.sub(r"~|\b(?:\w+\.)+(?=\w)", "", text)
    return _TYPES.get(text.partition("[")[0], text)


#: The functions and classes whose docstrings are filled in.
_DONE: set[Any] = set()


def documented(thing: _Documented, entries: Mapping[str, str] = PARAMETERS) -> _Documented:
    """Fill in the docstring of a function, or those of a class and of its methods; that of the class has these entries.

    A public method without one has that of the class whose method it overrides.
    """
    for name, member in {"": thing, **(vars(thing) if isinstance(thing, type) else {})}.items():
        # Class methods, and scikit-learn's methods that are not always there, hold the function.
        holder: Any = getattr(member, "__func__", getattr(member, "fn", member))
        if not isinstance(holder, type | FunctionType) or holder in _DONE or name.startswith("_") and name != "__call__":
            continue
        _DONE.add(holder)
        if holder.__doc__ is None and isinstance(thing, type):
            holder.__doc__ = next((vars(base)[name].__doc__ for base in thing.__mro__[1:] if name in vars(base)), None)
        if holder.__doc__:
            names, returns = _signature(holder)
            holder.__doc__ = filled(holder.__doc__, names, returns, PARAMETERS if name else entries)
    return thing


def _signature(thing: Any) -> tuple[dict[str, str], str | None]:
    """Return the names of the parameters, with their asterisks and defaults, and the type of the result; nothing of a class of C."""
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return {}, None
    returns = None if isinstance(thing, type) else type_of(signature.return_annotation)
    parameters = [parameter for name, parameter in signature.parameters.items() if name not in ("self", "cls")]
    return {re.split("[:=]", str(parameter))[0]: repr(parameter.default) for parameter in parameters}, returns


def document() -> None:
    """Do so for all that this package's loaded modules define; each public module calls it at its end."""
    for name, module in list(sys.modules.items()):
        if name.startswith(__package__):
            for thing in list(vars(module).values()):
                if getattr(thing, "__module__", None) == name:
                    documented(thing)


def with_parameters_of(
    estimator: type, without: Collection[str] = (), defaults: Mapping[str, Any] = MappingProxyType({})
) -> Callable[[_Class], _Class]:
    """Put the parameters of an estimator, but for some, in the place of ``**params`` of a class; some have other defaults.

    Its documentation has their entries, as by `with_documentation_of`.
    """
    theirs = inspect.signature(estimator.__init__).parameters  # type: ignore[misc]

    def change(cls: _Class) -> _Class:
        init: Any = cls.__init__  # type: ignore[misc]
        own = dict(inspect.signature(init).parameters)
        params = own.pop("params")
        shared = [
            # Only what the constructor itself takes by position is given so.
            own.pop(name, parameter.replace(kind=params.KEYWORD_ONLY, default=defaults.get(name, parameter.default)))
            for name, parameter in theirs.items()
            if name not in without
        ]
        init.__signature__ = inspect.Signature([*shared, *own.values()])
        return with_documentation_of(estimator)(cls)

    return change


def with_documentation_of(estimator: type) -> Callable[[_Class], _Class]:
    """Fill in docstrings as `documented` does; parameters of the signature without an entry have that of an estimator."""

    def change(cls: _Class) -> _Class:
        # There is none where Python was started with -OO.
        section = (documented(estimator).__doc__ or "").partition(_HEADING)[2].partition("\n\n")[0]
        return documented(cls, {**PARAMETERS, **_divided(section)})

    return change
