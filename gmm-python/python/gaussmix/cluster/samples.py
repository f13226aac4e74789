"""The samples of all partitions as one evaluator, which the engine asks and the workers answer, and as those of a fit."""

import math
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partialmethod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_feature_names, _check_n_features

from .. import _core, _start
from .._arrays import Floats, Missing, Weights, n_threads, note_missing
from .._partitions import Partition
from .._reports import Course
from .._samples import Samples
from .engine import Engine, Plan, agreed
from .shard import Answer, Facts, Options, Tree, decode

_Value = TypeVar("_Value")


class Interrupts:
    """Remembers Ctrl-C while workers are asked, so that the present iteration ends first.

    A second Ctrl-C is not held back.
    """

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


class Remote:
    """The samples of all partitions, in the devices of the workers: what `_core.Data.remote` asks for, and `_fit` uses.

    `own` are the samples whose labels this process wants; `n_components` is 0 unless samples have labels.
    """

    def __init__(
        self,
        engine: Engine,
        facts: Sequence[Facts],
        interrupts: Interrupts,
        ready: Callable[[], object] = lambda: None,
        own: slice = slice(None),
        n_components: int = 0,
    ) -> None:
        self.engine, self.facts, self.interrupts, self.ready = engine, facts, interrupts, ready
        self.own, self.n_components = own, n_components
        sizes = [fact.n_samples for fact in facts]
        self.ends = np.cumsum(sizes)
        self.begins = self.ends - sizes
        self.shape = (int(self.ends[-1]), facts[0].n_features)
        self.total_weight = math.fsum(fact.total_weight for fact in facts)
        self.out_of_range: _core.OutOfRangeError | None = None

    def _ask(self, operation: str, *arguments: Any) -> Iterator[Answer]:
        # Before the first iteration there is nothing that a fit could leave.
        self.interrupts.check()
        self.ready()
        try:
            yield from self.engine.ask(operation, pickle.dumps(arguments, 5))
        except _core.OutOfRangeError as error:
            self.out_of_range = error
            raise

    def sum(self, operation: str, *arguments: Any) -> Any:
        def added() -> Any:
            tree = Tree(len(self.facts))
            for level, number, value in self._ask(operation, *arguments):
                tree.add(level, number, decode(value))
            return tree.root()

        return self.together(added)

    def parts(self, operation: str, *arguments: Any) -> list[Any]:
        return self.together(lambda: [decode(value) for _, _, value in sorted(self._ask(operation, *arguments))])

    def together(self, work: Callable[[], _Value]) -> _Value:
        """Do something that asks the workers, in one process; an error that the engine hands on without its text gets it back."""

        def told() -> _Value:
            try:
                return work()
            except _core.OutOfRangeError as error:
                raise self.out_of_range or error from None

        return self.engine.together(told)

    # By these names the engine calls them.

    def e_step(self, mixture: _core.Mixture) -> Any:
        return self.sum("statistics", mixture)

    def totals(self, mixtures: Sequence[_core.Mixture]) -> Any:
        return self.sum("totals", mixtures)

    def _values(self, kind: str, mixture: _core.Mixture) -> Any:
        return np.concatenate(self.parts("values", kind, mixture))

    scores = partialmethod(_values, "scores")
    responsibilities = partialmethod(_values, "responsibilities")

    def labels(self, mixture: _core.Mixture) -> NDArray[np.int64]:
        return self._values("labels", mixture)[self.own]

    def rows(self, indices: NDArray[np.int64]) -> Any:
        order = np.argsort(indices, kind="stable")
        owners = np.searchsorted(self.ends, indices[order], side="right")
        wanted = {int(n): indices[order][owners == n] - self.begins[n] for n in np.unique(owners)}
        parts = self.parts("rows", wanted)
        x, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
        back = np.argsort(order, kind="stable")
        return np.ascontiguousarray(x[back]), weights[back]

    def draw(self, mixture: _core.Mixture, seed: int, size: int) -> Any:
        parts = self.parts("draw", mixture, seed, self.begins.tolist(), size)
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    def known(self, n_components: int) -> Any:
        """Give the labels of all samples: numbers, or a mask where any partition has one."""
        parts = self.parts("known")
        if any(part.ndim == 2 for part in parts):
            numbers = np.arange(n_components)
            parts = [part if part.ndim == 2 else (part < 0)[:, None] | (part[:, None] == numbers) for part in parts]
        return np.concatenate(parts)

    def describe(self) -> Any:
        return tuple(" + ".join(sorted(set(names))) for names in zip(*self.parts("describe"), strict=True))

    def total(self, mixture: _core.Mixture) -> tuple[float, float]:
        """Return the total log-likelihood of the samples, and their weight."""
        return float(self.totals([mixture])[0]), self.total_weight

    def fit(self, options: dict[str, Any], course: Course | None, before: Any, lower_bound: float | None, units: Any) -> _core.Fit:
        def fit() -> _core.Fit:
            # The start heeds labels, which only the workers have.
            labelled = self.n_components and before is None
            data = _core.Data.remote(self, (self.known(self.n_components), self.n_components) if labelled else None)
            if course is not None:
                course.check = self.interrupts.check
            return data.fit(options, course, before, lower_bound, units)

        return self.together(fit)


class ClusterSamples(Samples):
    """The partitions of a cluster."""

    def __init__(self, estimator: Any, X: Any, sample_weight: Any, labels: Any = None, reset: bool = True) -> None:
        self.estimator, self.interrupts = estimator, Interrupts()
        if estimator.standardize:
            _start.check_units(estimator)
        self.engine: Any = estimator._make_engine()
        try:
            self._load(X, sample_weight, labels, reset)
        except BaseException:
            self.engine.close()
            raise

    def _load(self, X: Any, sample_weight: Any, labels: Any, reset: bool) -> None:
        estimator = self.estimator
        X, noise, threads = agreed(self.engine, lambda: (*estimator._beside(X), n_threads(estimator.n_jobs)))

        def planned() -> Plan:
            found: Plan = estimator._plan(self.engine, X, sample_weight, labels)
            check_columns(estimator, found, reset, noise)
            return found

        self.plan = agreed(self.engine, planned)
        self.dtype = self.plan.dtype
        self.labelled = any(partition.labels is not None for partition in self.plan.partitions)
        self.options = Options(
            self.dtype.str,
            len(self.plan.partitions),
            device=estimator.device,
            threads=threads,
            resident=estimator.resident,
            missing=estimator.missing,
            n_components=estimator.n_components if self.labelled else 0,
            reproducible=estimator.reproducible,
            noise=noise,
        )
        self.facts = self.engine.load(self.plan.partitions, self.options)
        #: What the engine has loaded.
        self.loaded = self.plan.partitions
        check_facts(self.facts, self.plan.partitions, 2 if reset else 1, type(estimator).__name__)
        self.shape = (sum(fact.n_samples for fact in self.facts), self.facts[0].n_features)

    def load(self) -> Remote:
        self.units = None
        if self.estimator.missing:
            note_missing(_missing_of_all(self.facts))
        self.interrupts.hold()
        return self._resident()

    def _resident(self, partitions: list[Partition] | None = None) -> Remote:
        """Give the samples, in the units of these partitions, which are loaded again where the engine has others."""
        wanted = self.plan.partitions if partitions is None else partitions

        def ready() -> None:
            if self.loaded is not wanted:
                self.engine.load(wanted, self.options)
                self.loaded = wanted

        own = self.estimator._own_rows(self)
        self.remote = Remote(self.engine, self.facts, self.interrupts, ready, own, self.options.n_components)
        return self.remote

    def standardize(self) -> Remote:
        self.units = self.remote.sum("moments")
        return self._resident([partition._replace(units=self.units) for partition in self.plan.partitions])

    def _rows(self) -> tuple[Floats, Weights]:
        X, weights = self.remote.rows(np.arange(self.shape[0]))
        weighted = any(partition.weights is not None for partition in self.plan.partitions)
        return X.astype(self.dtype, copy=False), weights if weighted else None

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        pressed = self.interrupts.release()
        self.engine.close()
        if pressed and kind is None:
            raise KeyboardInterrupt


def check_columns(estimator: Any, planned: Plan, reset: bool, noise: Any = None) -> None:
    """Check that an estimator knows the columns of the samples, but for those of their noise, or have it learn them."""
    head = planned.head[:, :noise] if isinstance(noise, int) else planned.head
    _check_feature_names(estimator, head, reset=reset)
    _check_n_features(estimator, head, reset=reset)


def _missing_of_all(facts: Sequence[Facts]) -> Missing:
    """Say what is missing in all partitions together, with the numbers of rows among those of all."""
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
    """Check that partitions belong together, and that there are enough samples for what has this name."""
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
