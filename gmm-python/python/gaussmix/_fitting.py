"""What all estimators that are fitted have in common: the methods `fit` and `fit_predict`, and runs from several starts."""

from __future__ import annotations

import math
import re
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if

from . import _core, _parameters, _start
from ._arrays import Self
from ._fitted import Fitted
from ._gpu import beside, place
from ._reports import Course
from ._samples import ArraySamples, Evaluations, Samples
from ._warnings import warn

_ILL_DEFINED = (
    "Fitting the mixture model failed because some components have ill-defined empirical covariance (for instance "
    "caused by singleton or collapsed samples). Try to decrease the number of components, increase reg_covar, or "
    "scale the input data."
)


@contextmanager
def ill_defined(estimator: Any) -> Iterator[None]:
    """Give an error about a covariance scikit-learn's message, with what the engine says, and the feature's name."""
    try:
        yield
    except _core.IllDefinedError as error:
        text = re.sub(r"\bpivot (\d+)", lambda found: f"{found[0]}, {_name(estimator, int(found[1]))}", str(error))
        remedy = "" if estimator.standardize else " standardize=True standardizes the columns."
        raise ValueError(f"{_ILL_DEFINED} ({text}).{remedy}") from error


def tried(fit: Callable[[], tuple[float, float]]) -> tuple[float | ValueError, float]:
    """Return what a fit returns; of one that its number of components or type of covariances made fail, the error and 0."""
    try:
        return fit()
    except ValueError as error:
        if isinstance(error, _core.TooFewSamplesError) or isinstance(error.__cause__, _core.IllDefinedError):
            return error, 0.0
        raise


def _name(estimator: Any, feature: int) -> str:
    names = getattr(estimator, "feature_names_in_", None)
    return f"column {feature}" if names is None else f"column {names[feature]!r}"


def note_regularization(estimator: Any, found: tuple[int, float] | None, of: str = "") -> None:
    """Warn where `reg_covar` is large beside the variance of a column, which was found so."""
    # Of standardised columns it was chosen in their units.
    if found is None or estimator.standardize:
        return
    column, variance = found
    warn(
        f"reg_covar={estimator.reg_covar:g} is more than a thousandth of the variance of {_name(estimator, column)} (counted from "
        f"0), {variance:.2g}{of}: the fit depends on the units; set standardize=True, scale the columns, or use a smaller reg_covar"
    )


def _takes_chunks(estimator: Fitting) -> bool:
    if estimator.standardize:
        raise AttributeError("partial_fit cannot standardize, because it never sees all data; scale the chunks first")
    if getattr(estimator, "prior", None) is not None:
        raise AttributeError("partial_fit takes no prior, because it does not know how many samples there will be")
    if _start.has_noise(estimator):
        raise AttributeError("partial_fit takes no noise, because it does not know how far the samples will reach")
    return True


class Fitting(Fitted):
    """An estimator that is fitted by iterations from a start."""

    n_components: int
    max_iter: int
    n_init: int
    reg_covar: float
    missing: bool
    warm_start: bool
    #: Up to so many numbers the start is scikit-learn's own, however many samples they are.
    _numbers_of_own_start: ClassVar[int] = 0
    standardize: bool
    decay: float
    #: The attributes with a mixture, that of an estimator of this class.
    _with: Any = staticmethod(vars)

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None, *, labels: ArrayLike | None = None) -> Self:
        """Fit the mixture."""
        with self._samples(X, sample_weight, labels) as samples, self._task(X, y, sample_weight, self._with) as samples.task:
            self._fit(samples)
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit_predict(
        self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None, *, labels: ArrayLike | None = None
    ) -> NDArray[np.int64]:
        """Fit the mixture, and return what `predict` gives then, (n_samples,); under `labels` a component that the sample may belong to."""
        with self._samples(X, sample_weight, labels) as samples, self._task(X, y, sample_weight, self._with) as samples.task:
            return beside(self._fit(samples).labels(self._mixture()), X)

    @available_if(_takes_chunks)  # type: ignore[untyped-decorator]
    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from a chunk of the data.

        The first chunk is fitted as by `fit`, unless the mixture is fitted already. Then each chunk contributes its
        statistics to a moving average, from which the parameters follow: stepwise EM, or stochastic variational
        inference. Chunks should be random samples of the same data.
        """
        if not hasattr(self, "means_"):
            with self._samples(X, sample_weight) as samples, warnings.catch_warnings():
                # It goes on with the next chunks.
                warnings.simplefilter("ignore", ConvergenceWarning)
                statistics = self._fit(samples).e_step(self._mixture())
        else:
            statistics = self._statistics(X, sample_weight, self._mixture())
        average = statistics.averaged(self._average, self._chunks, float(self.decay))
        with ill_defined(self):
            self.lower_bound_ = self._learn(average, statistics)
        place(self, X)
        self._average, self._chunks = average, self._chunks + 1
        self.lower_bounds_ = [*self.lower_bounds_, self.lower_bound_]
        self.n_iter_ = len(self.lower_bounds_)
        return self

    @abstractmethod
    def _learn(self, average: _core.Statistics, statistics: _core.Statistics) -> float:
        """Make the M-step of the average per sample of all chunks; `statistics` are those of the last. Give its lower bound."""

    def _statistics(self, X: Any, sample_weight: Any, mixture: _core.Mixture) -> _core.Statistics:
        """Make the E-step under a mixture of the shape of this one."""
        return self._data(X, sample_weight).e_step(mixture)

    def _samples(self, X: Any, sample_weight: Any, labels: Any = None) -> Samples:
        return ArraySamples(self, X, sample_weight, labels)

    def _fit(self, samples: Any) -> Evaluations:
        """Fit, and give the samples in the device."""
        self._check_start(samples.shape[0])
        # Errors about parameters come before the samples are loaded.
        options = self._options(samples.shape[1])
        data = samples.load()
        best = self._best_run(samples, samples.standardize() if self.standardize else data, options)
        self._keep(best, samples.dtype)
        self._finish(best)
        return data

    def _goes_on(self) -> bool:
        """Say whether a fit begins at the mixture of the last one."""
        return self.warm_start and hasattr(self, "converged_")

    def _check_start(self, n_samples: int) -> None:
        """Check that there can be a start for so many samples."""
        if n_samples < self.n_components:
            raise _core.TooFewSamplesError(
                f"Expected n_samples >= n_components but got n_components = {self.n_components}, n_samples = {n_samples}"
            )

    #: The names of the options that the engine has for a fit of this class, but for those that are arrays.
    _OPTIONS: ClassVar[tuple[str, ...]]

    @abstractmethod
    def _options(self, n_features: int) -> dict[str, Any]:
        """Check the parameters against the samples, and give the options of a fit as the engine has them."""

    def _engine_options(self, arrays: dict[str, Any], **others: Any) -> dict[str, Any]:
        """Return the options of a fit: the parameters, arrays, and options that differ from the parameter of their name."""
        options = {name: _parameters.plain(getattr(self, name)) for name in self._OPTIONS if name not in others}
        if not isinstance(self.init_params, str):
            options["init_params"] = "kmeans"
        # Starts have random numbers of their own; this one tells fits in a checkpoint apart.
        if not isinstance(options["random_state"], int) or options["random_state"] < 0:
            options["random_state"] = 0
        options["freeze"] = ",".join(_parameters.frozen(self.freeze, self.n_components)) or "none"
        return {**options, **others, "arrays": arrays}

    def _best_run(self, samples: Samples, data: Evaluations, options: dict[str, Any]) -> _core.Fit:
        """Fit from each start, or go on at the mixture of an earlier fit; give the best run."""
        total_weight = data.total_weight
        before = self._written() if self._goes_on() else None
        bound = None if before is None or math.isinf(self.lower_bound_) else float(self.lower_bound_)
        with ill_defined(self), _start.random_state_of(self.random_state) as random_state:
            course = Course(self, lambda: samples.start(random_state, total_weight), samples.task, samples.dtype)
            return data.fit(options, course, before, bound, samples.units)

    def _keep(self, fit: _core.Fit, dtype: np.dtype[Any]) -> None:
        """Set the attributes to what a run has found."""
        self._forget()
        self._set(fit.mixture, dtype)
        self.converged_ = fit.converged
        self.lower_bounds_ = [float(bound) for bound in fit.lower_bounds]
        self.n_iter_ = len(self.lower_bounds_)
        self.lower_bound_ = self.lower_bounds_[-1] if self.lower_bounds_ else -math.inf

    def _finish(self, best: _core.Fit) -> None:
        """Raise the error that ended a fit, or warn of what is wrong with it; to be called by `_fit` at its end."""
        if best.error is not None:
            raise best.error
        note_regularization(self, best.mixture.over_regularized(self.reg_covar))
        if not best.converged and not best.stopped and self.max_iter > 0:
            warn(
                "Best performing initialization did not converge. Try different init parameters, or increase "
                "max_iter, tol, or check for degenerate data.",
                ConvergenceWarning,
            )
