"""What all estimators have in common, and the course of a fit: where its runs begin, and what callbacks and `verbose` say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import wraps
from time import perf_counter
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeGuard, TypeVar

from sklearn.base import BaseEstimator, _fit_context

from . import _core, _parameters
from ._arrays import Floats, is_plain, takes_missing
from ._gpu import place
from ._mixture import Mixture

try:
    from sklearn.callback import CallbackSupportMixin
except ImportError:
    # Before scikit-learn 1.9.
    CallbackSupportMixin = object

_Method = TypeVar("_Method", bound=Callable[..., Any])


def all_or_nothing(fit: _Method) -> _Method:
    """Return a method that checks the parameters, and whose errors leave an estimator as it was, unless a mixture is fitted then."""
    # scikit-learn tears callbacks down before this forgets them.
    checked: Any = _fit_context(prefer_skip_nested_validation=True)(fit)

    @wraps(fit)
    def fitted(self: Any, *given: Any, **named: Any) -> Any:
        before = vars(self).copy()
        try:
            return checked(self, *given, **named)
        except BaseException:
            # Equal, not the same: MPI gives each rank a copy.
            if vars(self).get("lower_bounds_") == before.get("lower_bounds_"):
                for name in vars(self).keys() - before:
                    delattr(self, name)
                vars(self).update(before)
            raise

    return fitted  # type: ignore[return-value]


class Watched(BaseEstimator, CallbackSupportMixin):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator that takes scikit-learn's callbacks."""

    def _told(self, X: Any, y: Any, metadata: Any, made: Callable[[Any], Any] | None) -> Task | None:
        """Tell the callbacks, if there are some, that a fit begins."""
        return Task(self, X, y, metadata, made) if hasattr(self, "_skl_callbacks") else None


class Estimator(Watched):
    """The tags, the check of the parameters, and scikit-learn's callbacks."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = takes_missing(self)
        tags.array_api_support = True
        return tags

    def _validate_params(self) -> None:
        """Check the parameters, unless equal ones of this class have passed before."""
        _parameters.validate(self, super()._validate_params)

    @contextmanager
    def _task(self, X: Any, y: Any, sample_weight: Any, made: Callable[[Any], Any] | None = None) -> Iterator[Task | None]:
        """Tell scikit-learn's callbacks, if there are some, that a fit begins, and that it has ended with the attributes beside ``X``.

        `made` returns the attributes of this estimator with a mixture, the one after an iteration; without it there are none.
        """
        task = self._told(X, y, None if sample_weight is None else {"sample_weight": sample_weight}, made)
        yield task
        place(self, X)
        if task is not None:
            task.end()

    def _takes(self, X: object) -> TypeGuard[Floats]:
        """Say whether the engine takes ``X`` without a check of scikit-learn's before."""
        attributes = self.__dict__
        return "feature_names_in_" not in attributes and is_plain(X, attributes.get("n_features_in_", -1))

    def __getstate__(self) -> dict[str, Any]:
        # They are made again of the rest, or hold the data in a device.
        return {name: value for name, value in super().__getstate__().items() if name not in ("_made", "_value", "_chains")}


class Task:
    """A fit as scikit-learn's callbacks see it: a task, and in it one for each iteration and, as in scikit-learn, an empty one."""

    def __init__(self, estimator: Any, X: Any, y: Any, metadata: Any, made: Callable[[Any], Any] | None) -> None:
        self.made = made
        # `ScoringMonitor` passes over fits that have no targets.
        self.about = {"estimator": estimator, "X": X, "y": () if y is None else y, "metadata": metadata}
        of_runs = hasattr(estimator, "n_init")
        most = 0 if made is None else 1 + (estimator.n_init * estimator.max_iter if of_runs else estimator.n_iter)
        self.fit = estimator._init_callback_context(max_subtasks=most).call_on_fit_task_begin(**self.about)
        self.iteration: Any = None if made is None else self._begun()

    def _begun(self) -> Any:
        return self.fit.subcontext(task_name="iteration").call_on_fit_task_begin(**self.about)

    def after(self, fitted: Callable[[], Any]) -> bool:
        """End an iteration, and begin the next one, unless a callback stops the fit."""
        made: Any = self.made
        stop: bool = self.iteration.call_on_fit_task_end(**self.about, reconstruction_attributes=lambda: made(fitted()))
        self.iteration = None if stop else self._begun()
        return stop

    def end(self) -> None:
        if self.iteration is not None:
            self.iteration.call_on_fit_task_end(**self.about)
        self.fit.call_on_fit_task_end(**self.about, reconstruction_attributes=lambda: vars(self.about["estimator"]))


class Iteration(NamedTuple):
    """What a callback gets after each iteration of EM."""

    run: int
    iteration: int
    lower_bound: float
    change: float
    mixture: Mixture


#: Where a run begins: at what the engine finds from a seed, at a mixture with what is added to its first lower bound, or at statistics.
Start = int | tuple[_core.Mixture, float] | _core.Statistics


class Course:
    """The runs of a fit as the engine sees them: where each begins, and what is said of it."""

    def __init__(self, estimator: Any, start: Callable[[int], Start], task: Task | None, dtype: Any) -> None:
        self.estimator, self.start, self.task, self.dtype = estimator, start, task, dtype
        #: Called first after each iteration, to end a fit that was interrupted.
        self.check: Callable[[], None] | None = None
        self.bounds: dict[int, list[float]] = {}
        self.began = self.last = perf_counter()

    def begin(self, run: int) -> None:
        self.began = self.last = perf_counter()
        if self.estimator.verbose:
            print(f"Initialization {run}")

    def callback(self) -> Callable[[int, int, float, float, Any], object] | None:
        """Return what is called after each iteration, if anything is."""
        watched = (self.estimator.callback, self.task, self.check)
        return self.after if self.estimator.verbose or any(watcher is not None for watcher in watched) else None

    def after(self, run: int, iteration: int, lower_bound: float, change: float, mixture: Any) -> object:
        if self.check is not None:
            self.check()
        verbose = self.estimator.verbose
        if verbose and iteration % self.estimator.verbose_interval == 0:
            if verbose == 1:
                print(f"  Iteration {iteration}")
            else:
                now = perf_counter()
                print(f"  Iteration {iteration}\t time lapse {now - self.last:.5f}s\t ll change {change:.5f}")
                self.last = now
        self.bounds.setdefault(run, []).append(lower_bound)
        stop = self.task is not None and self.task.after(lambda: self._fitted(run, mixture))
        if self.estimator.callback is None:
            return stop
        if isinstance(mixture, _core.VariationalMixture):
            arrays = (mixture.weights, mixture.means, mixture.covariances)
            mixture = _core.Mixture(*arrays, mixture.covariance_type)
        value = Mixture._of(mixture, getattr(self.estimator, "feature_names_in_", None))
        return self.estimator.callback(Iteration(run, iteration, lower_bound, change, value)) or stop

    def _fitted(self, run: int, mixture: Any) -> Any:
        """Return the estimator as if the fit had ended here."""
        gm = copy(self.estimator)
        gm._keep(SimpleNamespace(mixture=mixture, converged=False, lower_bounds=self.bounds[run], retained=[]), self.dtype)
        place(gm, self.task.about["X"])  # type: ignore[union-attr]
        return gm

    def end(self, lower_bound: float, converged: bool) -> None:
        verbose = self.estimator.verbose if self.estimator.max_iter > 0 else 0
        state = "converged" if converged else "did not converge"
        if verbose == 1:
            print(f"Initialization {state}.")
        elif verbose > 1:
            print(f"Initialization {state}. time lapse {perf_counter() - self.began:.5f}s\t lower bound {lower_bound:.5f}.")
