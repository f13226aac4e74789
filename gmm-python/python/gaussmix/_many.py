"""Many fits in one call: a mixture for each group of samples."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from . import _start, _tables
from ._arrays import Floats, Self, checked_weights, n_threads, refuse_masked, rows_of_caller, validated
from ._estimator import GaussianMixture
from ._fitting import note_regularization, take_features
from ._gpu import on_host
from ._parameters import set_parameters
from ._variational import BayesianGaussianMixture
from ._warnings import warn

Estimator = GaussianMixture | BayesianGaussianMixture


class ManyMixtures(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Mixtures of many groups of samples, each fitted to its group alone.

    All fits are made in one call of the engine: small ones side by side, each on one core. Each is, to the last bit,
    the fit of the estimator to the samples of its group, whatever the other groups are; so with an integer for
    `random_state`, all begin with the same random numbers. A fit that fails stops no other.
    Parameters:
    estimator : GaussianMixture or BayesianGaussianMixture
        The estimator with the parameters of all fits. Its start is by 'kmeans'; it cannot have initial parameters,
        `standardize`, `warm_start`, `noise` or a `callback`.
    checkpoint : path-like or None, default=None
        A file (.jsonl) to which each run is added when it has ended. If the file is there already, its runs are not
        made again; the samples, their groups and the estimator's parameters must be the same then, with an integer
        for `random_state`.
    verbose : int, default=0 -- 1 prints once a second how many runs have ended.
    Attributes:
    groups_ : ndarray of shape (n_groups,) -- The groups in ascending order; the numbers from 0 where the samples came as a list.
    sizes_ : ndarray of shape (n_groups,) -- The number of samples of each group.
    weights_ : ndarray of shape (n_groups, n_components) -- The weights of each fit, NaN where it failed.
    means_ : ndarray of shape (n_groups, n_components, n_features) -- The means of each fit.
    covariances_ : ndarray of shape (n_groups, ...) -- The covariances of each fit, in the shape of their type.
    converged_ : ndarray of shape (n_groups,) -- Whether each fit converged.
    n_iter_ : ndarray of shape (n_groups,) -- The iterations of each fit.
    lower_bound_ : ndarray of shape (n_groups,) -- The lower bound of each fit, NaN where it failed.
    errors_ : dict -- For each group whose fit failed, why.
    n_features_in_, feature_names_in_
    See Also:
    fit_many : The same in one call.
    Examples:
    >>> import numpy as np
    >>> from gaussmix import GaussianMixture, ManyMixtures
    >>> X = np.array([[1.0], [1.1], [7.0], [7.1], [2.0], [2.1], [5.0], [5.1]])
    >>> groups = ["a", "a", "a", "a", "b", "b", "b", "b"]
    >>> many = ManyMixtures(GaussianMixture(2, random_state=0)).fit(X, groups)
    >>> many.groups_.tolist(), np.sort(many.means_[:, :, 0]).round(2).tolist()
    (['a', 'b'], [[1.05, 7.05], [2.05, 5.05]])
    >>> many["b"].predict([[2.0], [5.0]]).tolist() == many.predict([[2.0], [5.0]], ["b", "b"]).tolist()
    True
    """

    def __init__(self, estimator: Estimator, *, checkpoint: str | os.PathLike[str] | None = None, verbose: int = 0) -> None:
        set_parameters(self, locals())

    def fit(self, X: ArrayLike | Sequence[ArrayLike], groups: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit a mixture to each group.

        Ctrl-C keeps what is done: the fits that have not ended then are among `errors_`, and KeyboardInterrupt is
        raised. So is an OSError at the end, if a run could not be written to the checkpoint.
        Parameters:
        X : array-like of shape (n_samples, n_features), or a sequence of such
            The samples; without `groups`, a sequence of those of each group.
        groups : array-like of shape (n_samples,), default=None -- The group of each sample: numbers, texts or times.
        sample_weight : array-like of shape (n_samples,), default=None
            A sample of weight 2 counts as two. For a sequence, the weights of all groups one after the other.
        """
        template = self._template()
        is_joined = groups is None
        x, groups = _joined(template, X) if groups is None else (on_host(validated(template, X, reset=True)), groups)
        weights = checked_weights(sample_weight, x.shape[0])
        labels, order, starts = _ordered(groups, x.shape[0])
        with rows_of_caller(order, starts if is_joined else None):
            fits = _start.fit_many(
                x if order is None else x[order],
                list(pairwise(starts.tolist())),
                weights if order is None or weights is None else weights[order],
                [template],
                progress=_progress() if self.verbose else None,
                checkpoint=None
                if self.checkpoint is None
                else {"path": self.checkpoint, "names": [str(group) for group in labels.tolist()]},
            )
        take_features(self, template)
        self.groups_, self.sizes_, self._fits, self._dtype = labels, np.diff(starts), fits, x.dtype
        self.weights_, self.means_, self.covariances_ = fits.parameters()
        self.converged_, self.n_iter_, self.lower_bound_ = fits.converged, fits.n_iter, fits.lower_bound
        names = list(self)
        self.errors_ = {names[number]: text for number, text in fits.errors}
        if fits.error is not None:
            raise fits.error
        self._warn(template)
        return self

    def _template(self) -> Estimator:
        """Give a copy of the estimator, and refuse parameters that many fits do not have."""
        estimator = self.estimator
        if not isinstance(estimator, Estimator):
            raise TypeError(
                f"the estimator is a {type(estimator).__name__}; many fits are those of a GaussianMixture or a "
                "BayesianGaussianMixture of this package"
            )
        template: Estimator = clone(estimator)
        template._validate_params()
        given = [name for name in (*_start.INITIAL, "callback") if getattr(template, name, None) is not None]
        given += [name for name in ("standardize", "warm_start", "noise") if getattr(template, name, None)]
        if given:
            raise ValueError(f"many fits in one call do not take {given[0]}; leave it out, or fit one by one")
        if not isinstance(template.init_params, str) or template.init_params not in ("kmeans", "hierarchical"):
            raise ValueError(f"many fits in one call start by 'kmeans' or 'hierarchical', not by {template.init_params!r}; fit one by one")
        if self.checkpoint is not None and not isinstance(template.random_state, Integral):
            raise ValueError("a checkpoint needs an integer for random_state, so that the fits go on with the same numbers")
        return template

    def _warn(self, template: Estimator) -> None:
        found = self._fits.over_regularized(template.reg_covar)
        if found is not None:
            note_regularization(template, found[1:], f" in group {list(self)[found[0]]!r}")
        n_groups, failed = len(self.groups_), len(self.errors_)
        if failed:
            group, text = next(iter(self.errors_.items()))
            warn(f"{failed} of {n_groups} fits failed (errors_ has all); that of group {group!r}: {text}", RuntimeWarning)
        going_on = n_groups - failed - int(self.converged_.sum())
        if going_on and template.max_iter > 0:
            warn(
                f"{going_on} of {n_groups} fits did not converge (converged_ says which). Try to increase max_iter or tol.",
                ConvergenceWarning,
            )

    def _table(self) -> tuple[str, list[str], Iterator[list[Any]], int]:
        """Return the title, the head and the rows of the table that is printed, and the number of rows."""
        table = self.table()
        rows = zip(*(column.tolist() for column in table.values()), strict=True)
        return f"{len(self)} fits of {self.estimator}", list(table), map(list, rows), len(self)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Give a table of the groups; before a fit the parameters."""
        return _tables.as_text(*self._table()) if hasattr(self, "groups_") else super().__repr__(N_CHAR_MAX)

    def _repr_html_inner(self) -> str:
        return _tables.as_html(*self._table()) if hasattr(self, "groups_") else super()._repr_html_inner()

    def _repr_mimebundle_(self, **how: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_inner()}

    def __len__(self) -> int:
        check_is_fitted(self)
        return len(self.groups_)

    def __iter__(self) -> Iterator[Any]:
        check_is_fitted(self)
        # Python's times have fewer digits than NumPy's.
        return iter(self.groups_ if self.groups_.dtype.kind in "mM" else self.groups_.tolist())

    def __getitem__(self, group: Any) -> Estimator:
        """Give the mixture of a group, as its estimator fitted to the group alone; the error of that fit, if it failed."""
        check_is_fitted(self)
        try:
            number = int(self._numbers(np.atleast_1d(_as_groups([group])))[0])
        except (TypeError, ValueError):
            raise KeyError(group) from None
        fitted: Estimator = clone(self.estimator)
        fit = self._fits[number]
        take_features(fitted, self)
        fitted._keep(fit, self._dtype)
        return fitted

    def predict(self, X: ArrayLike, groups: ArrayLike) -> NDArray[np.int64]:
        """Return the most probable component of each sample under the mixture of its group, (n_samples,); -1 where its fit failed."""
        return self._evaluate(X, groups, "labels")

    def score_samples(self, X: ArrayLike, groups: ArrayLike) -> NDArray[np.float64]:
        """Return the log-likelihood of each sample under the mixture of its group, (n_samples,); NaN where its fit failed."""
        return self._evaluate(X, groups, "scores")

    def _evaluate(self, X: Any, groups: Any, method: str) -> NDArray[Any]:
        """Call a method of the engine for the samples in the order of their groups."""
        check_is_fitted(self)
        template = self._template()
        take_features(template, self)
        x: Floats = on_host(validated(template, X, reset=False))
        labels, order, starts = _ordered(groups, x.shape[0])
        sets = {
            "ranges": list(pairwise(starts.tolist())),
            "fits": self._numbers(labels).tolist(),
            "device": template.device,
            "threads": n_threads(template.n_jobs),
            "missing": template.missing,
        }
        with rows_of_caller(order):
            values: NDArray[Any] = getattr(self._fits, method)(x if order is None else x[order], sets)
        if order is None:
            return values
        unordered = np.empty_like(values)
        unordered[order] = values
        return unordered

    def _numbers(self, groups: NDArray[Any]) -> NDArray[np.int64]:
        """Give the numbers of groups among those that were fitted."""
        known = self.groups_
        if _KINDS[known.dtype.kind] != _KINDS[groups.dtype.kind]:
            raise ValueError(f"the groups are {_KINDS[groups.dtype.kind]}; those that were fitted are {_KINDS[known.dtype.kind]}")
        if known.dtype.kind != groups.dtype.kind and _KINDS[known.dtype.kind] == "numbers":
            # NumPy compares whole numbers with and without signs as float64, which has fewer digits.
            known, groups = known.astype(object), groups.astype(object)
        numbers = np.minimum(np.searchsorted(known, groups), len(known) - 1)
        unknown = groups[known[numbers] != groups]
        if len(unknown):
            raise ValueError(f"there is no mixture of group {unknown.tolist()[0]!r}; groups_ has those that were fitted")
        return numbers

    def table(self) -> dict[str, NDArray[Any]]:
        """Give a row for each group, as columns: ``pandas.DataFrame(many.table())``.
        Returns:
        table : dict of str to ndarray of shape (n_groups,)
            The group, its size, the lower bound, iterations and convergence of its fit, and why it failed (empty
            where it did not).
        """
        check_is_fitted(self)
        return {
            "group": self.groups_,
            "n_samples": self.sizes_,
            "lower_bound": self.lower_bound_,
            "n_iter": self.n_iter_,
            "converged": self.converged_,
            "error": np.array([self.errors_.get(group, "") for group in self], dtype=object),
        }


def fit_many(
    X: ArrayLike | Sequence[ArrayLike],
    estimator: Estimator,
    *,
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    verbose: int = 0,
) -> ManyMixtures:
    """Return a mixture for each of many groups of samples: ``ManyMixtures(estimator).fit(X, groups)``.
    Parameters:
    X : array-like of shape (n_samples, n_features), or a sequence of such -- As of `ManyMixtures.fit`.
    estimator : GaussianMixture or BayesianGaussianMixture -- The estimator with the parameters of all fits.
    groups, sample_weight : array-like of shape (n_samples,), default=None -- As of `ManyMixtures.fit`.
    checkpoint, verbose : object -- As of `ManyMixtures`.
    """
    return ManyMixtures(estimator, checkpoint=checkpoint, verbose=verbose).fit(X, groups, sample_weight)


def _joined(template: Estimator, sets: Any) -> tuple[Floats, NDArray[np.int64]]:
    """Join the samples of groups to one array, have the template learn their features, and number their groups."""
    if isinstance(sets, Mapping):
        raise TypeError("the samples are a mapping; give list(samples.values()), whose groups are the numbers from 0")
    if hasattr(sets, "ndim") and sets.ndim != 3:
        raise ValueError("one array needs groups, the group of each of its samples; or give a list of arrays")
    arrays: list[Floats] = []
    for number, samples in enumerate(sets):
        try:
            arrays.append(on_host(validated(template, samples, reset=number == 0)))
        except (TypeError, ValueError) as error:
            raise type(error)(f"the samples of group {number}: {error}") from error
    if not arrays:
        raise ValueError("there are no groups; give the samples of at least one")
    return np.concatenate(arrays), np.repeat(np.arange(len(arrays)), [len(array) for array in arrays])


#: What groups may be, by NumPy's kinds of types.
_KINDS = {**dict.fromkeys("biuf", "numbers"), **dict.fromkeys("UTO", "texts"), "M": "times", "m": "durations"}


def _as_groups(groups: Any) -> NDArray[Any]:
    """Make an array of groups of one kind, without missing values."""
    refuse_masked(groups, "groups")
    array = np.asarray(groups)
    if array.dtype == object and not all(isinstance(group, str) for group in array.flat):
        # Numbers and times have types of their own.
        is_time = all(isinstance(group, date) for group in array.flat)
        made = np.array(array.tolist(), dtype="datetime64[us]" if is_time else None)
        of_text = [isinstance(group, str) for group in array.flat]
        array = made if made.shape == array.shape and not any(of_text) else array
        if array.dtype == object:
            kinds = sorted({type(group).__name__ for group in array.flat})
            raise ValueError(f"groups must be numbers, texts or times, all of one kind and without missing values; they are {kinds}")
    if array.dtype.kind not in _KINDS:
        raise ValueError(f"groups have the type {array.dtype}; give numbers, texts or times")
    if array.dtype.kind in "fmM" and (missing := np.flatnonzero(np.isnan(array) if array.dtype.kind == "f" else np.isnat(array))).size:
        raise ValueError(f"groups holds {array.flat[missing[0]]}, first in row {int(missing[0])}".replace("nan", "NaN"))
    return array


def _ordered(groups: Any, n_samples: int) -> tuple[NDArray[Any], NDArray[np.int64] | None, NDArray[np.int64]]:
    """Give the different groups, the order in which their samples follow each other (None if they do), and where each begins then."""
    array = _as_groups(groups)
    if array.shape != (n_samples,):
        raise ValueError(f"groups has the shape {array.shape}; ({n_samples},) is needed, the group of each sample")
    labels, numbers, sizes = np.unique(array, return_inverse=True, return_counts=True)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    order = None if np.all(numbers[1:] >= numbers[:-1]) else np.argsort(numbers, kind="stable")
    return labels, order, starts


def _progress() -> Callable[[int, int], None]:
    """Print once a second how many runs have ended."""
    begin = last = time.monotonic()

    def show(done: int, n_runs: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= 1.0 or done == n_runs:
            last = now
            print(f"  {done} of {n_runs} runs\t time lapse {now - begin:.5f}s", flush=True)

    return show
