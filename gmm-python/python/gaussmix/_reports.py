"""The course of a fit: where its runs begin, an `Iteration` to the callback, and the lines of `verbose`."""

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

from . import _core
from ._mixture import Mixture


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

    def __init__(self, estimator: Any, start: Callable[[], Start]) -> None:
        self.estimator, self._start = estimator, start
        self.began = self.last = perf_counter()

    def begin(self, run: int) -> None:
        self.began = self.last = perf_counter()
        if self.estimator.verbose:
            print(f"Initialization {run}")

    def start(self, run: int) -> Start:
        return self._start()

    def callback(self) -> Callable[[int, int, float, float, Any], object] | None:
        """Return what is called after each iteration, if anything is."""
        if self.estimator.verbose or self.estimator.callback is not None:
            return self.after
        return None

    def after(self, run: int, iteration: int, lower_bound: float, change: float, mixture: Any) -> object:
        verbose = self.estimator.verbose
        if verbose and iteration % self.estimator.verbose_interval == 0:
            if verbose == 1:
                print(f"  Iteration {iteration}")
            else:
                now = perf_counter()
                print(f"  Iteration {iteration}\t time lapse {now - self.last:.5f}s\t ll change {change:.5f}")
                self.last = now
        if self.estimator.callback is None:
            return False
        if isinstance(mixture, _core.VariationalMixture):
            arrays = (mixture.weights, mixture.means, mixture.covariances)
            mixture = _core.Mixture(*arrays, mixture.covariance_type)
        value = Mixture._of(mixture, getattr(self.estimator, "feature_names_in_", None))
        return self.estimator.callback(Iteration(run, iteration, lower_bound, change, value))

    def end(self, lower_bound: float, converged: bool) -> None:
        verbose = self.estimator.verbose if self.estimator.max_iter > 0 else 0
        state = "converged" if converged else "did not converge"
        if verbose == 1:
            print(f"Initialization {state}.")
        elif verbose > 1:
            print(f"Initialization {state}. time lapse {perf_counter() - self.began:.5f}s\t lower bound {lower_bound:.5f}.")
