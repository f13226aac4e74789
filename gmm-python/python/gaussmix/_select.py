"""The choice of the number of components."""

import math
from collections.abc import Iterable, Iterator, Sequence
from numbers import Integral
from textwrap import shorten
from typing import Any, NamedTuple

from numpy.typing import ArrayLike
from sklearn.base import clone

from . import _core, _tables
from ._estimator import GaussianMixture
from ._parameters import count
from ._pictures import axes_of
from ._warnings import warn

#: What models are compared by; the lower the better.
CRITERIA = ("bic", "aic", "icl")


class Candidate(NamedTuple):
    """A model that was tried."""

    covariance_type: str
    n_components: int
    n_parameters: int | None
    score: float
    criterion: float
    n_iter: int
    converged: bool
    reason: str = ""


class Selection(NamedTuple):
    """The models that were tried, and the best of them.
    Parameters:
    criterion : str -- The name of the criterion.
    table : list of Candidate
        A row for each model, in the order of the fits: its `covariance_type`, `n_components`, `n_parameters` (the free
        ones), `score` (the mean log-likelihood of a sample), `criterion`, `n_iter`, and whether it `converged`. Where the
        fit failed, or a component is empty or has collapsed, `criterion` is NaN, printed as NA, and `reason` says why;
        of a fit that failed the other numbers are missing too.
    best : GaussianMixture -- The fitted mixture with the least criterion, of equals the first.
    """

    criterion: str
    table: list[Candidate]
    best: GaussianMixture

    def _shown(self) -> tuple[str, list[str], list[list[Any]], int]:
        """Return the title, the head and the rows of the table that is printed, and the number of rows."""
        best = f"{self.best.covariance_type!r} covariances, {self.best.n_components} components"
        head = [self.criterion.upper() if name == "criterion" else name for name in Candidate._fields]
        title = f"Selection by {self.criterion.upper()}, best: {best}"
        rows = [["NA" if value is None or value != value else value for value in row] for row in self.table]
        # Reasons are long, and seldom.
        shown = len(head) if any(row.reason for row in self.table) else -1
        return title, head[:shown], [[*row[:-1], shorten(str(row[-1]), 60, placeholder="…")][:shown] for row in rows], len(rows)

    def __repr__(self) -> str:
        return _tables.as_text(*self._shown())

    def _repr_html_(self) -> str:
        return _tables.as_html(*self._shown())

    def to_frame(self) -> Any:
        """Return the table as a DataFrame of pandas, a row for each model."""
        import pandas

        return pandas.DataFrame(self.table)

    def plot(self, ax: Any = None) -> Any:
        """Draw the criterion over the number of components, and return the axes of matplotlib."""
        ax = axes_of(ax)
        for kind in dict.fromkeys(row.covariance_type for row in self.table):
            rows = sorted((row.n_components, row.criterion) for row in self.table if row.covariance_type == kind)
            ax.plot(*zip(*rows, strict=True), marker="o", label=kind)
        ax.set(xlabel="number of components", ylabel=self.criterion.upper())
        ax.legend()
        return ax


def select(
    X: ArrayLike,
    n_components: int | Iterable[int],
    *,
    covariance_type: str | Sequence[str] = "full",
    criterion: str = "bic",
    sample_weight: ArrayLike | None = None,
    grow: bool = False,
    estimator: GaussianMixture | None = None,
    **params: Any,
) -> Selection:
    """Fit a mixture for each number of components and covariance type, and return the table of all and the best of them.
    Parameters:
    X : array-like of shape (n_samples, n_features) -- The samples, or what else the estimator fits to.
    n_components : int or iterable of int
        The numbers to try; one number K stands for 1 to K. Numbers for which there are too few samples are left
        out, with a warning.
    covariance_type : str or sequence of str, default='full' -- The covariance types to try; 'all' stands for mclust's 14.
    criterion : {'bic', 'aic', 'icl'}, default='bic' -- What to minimise.
    grow : bool, default=False
        Whether each number of components but the first also starts at the fit of the number before, of which
        components are split in two. No bound is lower than without that.
    estimator : GaussianMixture, default=None
        What is fitted, with other numbers of components and covariance types, for example
        ``gaussmix.dask.GaussianMixture(client=client)`` or ``gaussmix.mpi.GaussianMixture()``, whose workers load
        the samples once for all fits. By default the estimator of this process.
    **params : dict -- Other parameters of the estimator.
    Examples:
    >>> import numpy as np
    >>> from gaussmix import select
    >>> X = np.concatenate([np.arange(10.0), np.arange(100.0, 110.0)])[:, np.newaxis]
    >>> select(X, range(1, 4), random_state=0).best.n_components
    2
    """
    if criterion not in CRITERIA:
        raise ValueError(f"there is no criterion {criterion!r}; use 'bic', 'aic' or 'icl'")
    given = [covariance_type] if isinstance(covariance_type, str) else covariance_type
    kinds = [kind for name in given for kind in _core.covariance_models(name)]
    base = GaussianMixture() if estimator is None else estimator
    if not isinstance(base, GaussianMixture):
        raise TypeError(
            f"the estimator is a {type(base).__name__}; criteria compare fits of a GaussianMixture of this package. A "
            "BayesianGaussianMixture finds the number of components by itself, and elbo_ compares its fits"
        )
    numbers = _numbers(n_components)
    if grow:
        if not base._fits_here():
            raise ValueError(f"grow is for a GaussianMixture of this process, not for a {type(base).__name__}; leave it out")
        numbers = sorted(set(numbers))
    ascending = grow or isinstance(numbers, range) and numbers.step > 0
    # The least number for which there are too few samples, and the error that says so.
    too_many: tuple[int, _core.TooFewSamplesError] | None = None

    def models() -> Iterator[GaussianMixture]:
        for kind in kinds:
            for k in numbers:
                if too_many is None or k < too_many[0]:
                    yield clone(base).set_params(**{**params, "n_components": k, "covariance_type": kind})
                elif ascending:
                    break

    table: list[Candidate] = []
    best: tuple[float, GaussianMixture] | None = None
    failure: ValueError | None = None
    fitted = base._fitted(models(), X, sample_weight)
    if grow:
        fitted = clone(base).set_params(**params)._grown(fitted, X, sample_weight)
    for gm, total, n in fitted:
        if isinstance(total, _core.TooFewSamplesError):
            if too_many is None or gm.n_components < too_many[0]:
                too_many = gm.n_components, total
            continue
        kind, k = gm.covariance_type, gm.n_components
        if isinstance(total, ValueError):
            failure = failure or total
            table.append(Candidate(kind, k, None, math.nan, math.nan, 0, False, str(total.__cause__)))
            continue
        value, reason = gm.icl(X, sample_weight) if criterion == "icl" else gm._criterion(criterion, total, n), ""
        if gm.retained_:
            value, reason = math.nan, f"components {gm.retained_} (counted from 0) keep earlier parameters: one is empty or has collapsed"
        table.append(Candidate(kind, k, gm._mixture().n_parameters, total / n, value, gm.n_iter_, gm.converged_, reason))
        if best is None or value < best[0] or math.isnan(best[0]) and not math.isnan(value):
            best = (value, gm)
    if best is None:
        nothing = ValueError("there is nothing to select from; give at least one number of components and covariance type")
        raise too_many[1] if too_many is not None else failure or nothing
    if too_many is not None:
        warn(f"n_components from {too_many[0]} on are left out: {too_many[1]}")
    if math.isnan(best[0]):
        warn("in each model a component is empty or has collapsed: the first is taken; try fewer components")
    return Selection(criterion, table, best[1])


def _numbers(n_components: Any) -> Sequence[int]:
    """Return the numbers of components to try, as often as they are asked for."""
    if isinstance(n_components, Integral):
        if n_components < 1:
            raise ValueError(f"n_components is {n_components}; give the largest number to try, at least 1, or several numbers")
        return range(1, int(n_components) + 1)
    if isinstance(n_components, str) or not isinstance(n_components, Iterable):
        raise TypeError(f"n_components is {n_components!r}; give the largest number to try, or several numbers, such as range(1, 4)")
    return n_components if isinstance(n_components, range) else [count(k, "a number of n_components") for k in n_components]
