"""The samples of all partitions as one evaluator: what the engine asks for, and the workers answer."""

import math
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import add
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._reports import Course
from .._samples import Evaluations
from .engine import Engine
from .shard import Facts
from .tree import Answer, Tree, decode, parameters_of

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
    """What `_core.Data.remote` asks for: results over the samples of all partitions."""

    def __init__(self, engine: Engine, facts: Sequence[Facts], interrupts: Interrupts, ready: Callable[[], object] = lambda: None) -> None:
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
        tree: Tree[Any] = Tree(len(self.facts), add)
        try:
            for level, number, value in self._ask(operation, *arguments):
                tree.add(level, number, decode(value))
        except _core.OutOfRangeError as error:
            self.out_of_range = error
            raise
        return tree.root()

    def parts(self, operation: str, *arguments: Any) -> list[Any]:
        answers = sorted(self._ask(operation, *arguments))
        return [decode(value) for _, _, value in answers]

    @contextmanager
    def told(self) -> Iterator[None]:
        """Restore the text of an error that the engine has handed on without it."""
        try:
            yield
        except _core.OutOfRangeError as error:
            raise self.out_of_range or error from None

    # By these names the engine calls them.

    def e_step(self, mixture: _core.Mixture) -> Any:
        return self.sum("statistics", parameters_of([mixture]))

    def totals(self, mixtures: Sequence[_core.Mixture]) -> Any:
        return self.sum("totals", parameters_of(mixtures))

    def scores(self, mixture: _core.Mixture) -> Any:
        return np.concatenate(self.parts("scores", parameters_of([mixture])))

    def labels(self, mixture: _core.Mixture) -> Any:
        return np.concatenate(self.parts("labels", parameters_of([mixture])))

    def responsibilities(self, mixture: _core.Mixture) -> Any:
        return np.concatenate(self.parts("responsibilities", parameters_of([mixture])))

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
            parts = self.parts("draw", parameters_of([mixture]), seed, first_rows, size)
        except _core.OutOfRangeError as error:
            self.out_of_range = error
            raise
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


class Resident(Evaluations):
    """The samples of all partitions, in the devices of the workers."""

    def __init__(self, remote: Remote, n_components: int, own: slice) -> None:
        self.remote, self.data = remote, _core.Data.remote(remote)
        #: The number of components where samples have labels, else 0.
        self.n_components = n_components
        #: The samples whose labels this process wants.
        self.own = own

    def told(self, work: Callable[[], _Value]) -> _Value:
        """Do something that asks the workers, in one process."""

        def told() -> _Value:
            with self.remote.told():
                return work()

        return self.remote.engine.together(told)

    @property
    def total_weight(self) -> float:
        return self.remote.total_weight

    def labels(self, mixture: _core.Mixture) -> NDArray[np.int64]:
        return self.told(lambda: self.data.labels(mixture))[self.own]

    def total(self, mixture: _core.Mixture) -> tuple[float, float]:
        """Return the total log-likelihood of the samples, and their weight."""
        return self.told(lambda: float(self.remote.totals([mixture])[0])), self.total_weight

    def e_step(self, mixture: _core.Mixture) -> _core.Statistics:
        return self.told(lambda: self.data.e_step(mixture))

    def fit(self, options: dict[str, Any], course: Course | None, before: Any, lower_bound: float | None, units: Any) -> _core.Fit:
        def fit() -> _core.Fit:
            data = self.data
            if self.n_components and before is None:
                # The start heeds labels, which only the workers have.
                data = _core.Data.remote(self.remote, (self.remote.known(self.n_components), self.n_components))
            watched = course and Interruptible(course, self.remote.interrupts)
            return data.fit(options, watched, before, lower_bound, units)

        return self.told(fit)


class Interruptible:
    """The course of a fit that looks after each iteration whether Ctrl-C was pressed."""

    def __init__(self, course: Course, interrupts: Interrupts) -> None:
        self.begin, self.start, self.end = course.begin, course.start, course.end
        self._after, self._interrupts = course.callback(), interrupts

    def callback(self) -> Callable[..., object]:
        return self.after

    def after(self, *iteration: Any) -> object:
        self._interrupts.check()
        return self._after is not None and self._after(*iteration)
