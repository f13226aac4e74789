"""The choice of the number of components, and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from ._estimator import GaussianMixture
from ._gpu import on_host


class Candidate(NamedTuple):
    """A model that was tried.

    Parameters
    ----------
    covariance_type : str
        The covariance type.
    n_components : int
        The number of components.
    n_parameters : int
        The number of free parameters.
    score : float
        The mean log-likelihood of a sample.
    criterion : float
        The criterion; the lower the better.
    n_iter : int
        The iterations of the fit.
    converged : bool
        Whether it converged.
    """

    covariance_type: str
    n_components: int
    n_parameters: int
    score: float
    criterion: float
    n_iter: int
    converged: bool


class Selection(NamedTuple):
    """The models that were tried, and the best of them.

    Parameters
    ----------
    criterion : str
        The name of the criterion.
    table : list of Candidate
        A row for each model, in the order of the fits.
    best : GaussianMixture
        The fitted mixture with the least criterion, of equals the first.
    """

    criterion: str
    table: list[Candidate]
    best: GaussianMixture

    def to_frame(self) -> Any:
        """Give the table as a DataFrame of pandas.

        Returns
        -------
        table : pandas.DataFrame
            A row for each model.
        """
        import pandas

        return pandas.DataFrame(self.table)

    def plot(self, ax: Any = None) -> Any:
        """Draw the criterion over the number of components.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Where to draw; by default the current axes.

        Returns
        -------
        ax : matplotlib.axes.Axes
            The axes.
        """
        ax = _axes(ax)
        for kind in dict.fromkeys(row.covariance_type for row in self.table):
            rows = sorted((row.n_components, row.criterion) for row in self.table if row.covariance_type == kind)
            ax.plot(*zip(*rows, strict=True), marker="o", label=kind)
        ax.set_xlabel("number of components")
        ax.set_ylabel(self.criterion.upper())
        ax.legend()
        return ax


def select(
    X: ArrayLike,
    n_components: Iterable[int],
    *,
    covariance_type: str | Sequence[str] = "full",
    criterion: str = "bic",
    sample_weight: ArrayLike | None = None,
    **params: Any,
) -> Selection:
    """Fit a mixture for each number of components and covariance type, and select the best.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        The samples.
    n_components : iterable of int
        The numbers to try.
    covariance_type : str or sequence of str, default='full'
        The covariance types to try.
    criterion : {'bic', 'aic'}, default='bic'
        What to minimise.
    sample_weight : array-like of shape (n_samples,), default=None
        A sample of weight 2 counts as two.
    **params : dict
        Other parameters of :class:`GaussianMixture`.

    Returns
    -------
    selection : Selection
        The table of all models and the best of them.

    Examples
    --------
    >>> import numpy as np
    >>> from gaussmix import select
    >>> X = np.concatenate([np.arange(10.0), np.arange(100.0, 110.0)])[:, np.newaxis]
    >>> select(X, range(1, 4), random_state=0).best.n_components
    2
    """
    if criterion not in ("bic", "aic"):
        raise ValueError(f"there is no criterion {criterion!r}; use 'bic' or 'aic'")
    kinds = [covariance_type] if isinstance(covariance_type, str) else list(covariance_type)
    table: list[Candidate] = []
    best: tuple[float, GaussianMixture] | None = None
    numbers = list(n_components)
    for kind in kinds:
        for k in numbers:
            gm = GaussianMixture(k, covariance_type=kind, **params).fit(X, sample_weight=sample_weight)
            value = gm.bic(X, sample_weight) if criterion == "bic" else gm.aic(X, sample_weight)
            score = gm.score(X, sample_weight=sample_weight)
            table.append(Candidate(kind, k, gm._n_parameters(), score, value, gm.n_iter_, gm.converged_))
            if best is None or value < best[0]:
                best = (value, gm)
    if best is None:
        raise ValueError("there is nothing to select from; give at least one number of components and covariance type")
    return Selection(criterion, table, best[1])


def plot(
    gm: GaussianMixture, X: ArrayLike | None = None, *, features: tuple[int, int] = (0, 1), ax: Any = None
) -> Any:
    """Draw a fitted mixture over two features: ellipses of one and two standard deviations, and the samples.

    Parameters
    ----------
    gm : GaussianMixture
        The fitted mixture.
    X : array-like of shape (n_samples, n_features), default=None
        Samples, coloured by their most probable component.
    features : tuple of int, default=(0, 1)
        The two features; of a mixture over one feature the density is drawn instead.
    ax : matplotlib.axes.Axes, default=None
        Where to draw; by default the current axes.

    Returns
    -------
    ax : matplotlib.axes.Axes
        The axes.
    """
    check_is_fitted(gm)
    from matplotlib.patches import Ellipse

    ax = _axes(ax)
    labels = None if X is None else gm.predict(X)
    x = None if X is None else np.asarray(on_host(X), dtype=np.float64)
    if gm.means_.shape[1] == 1:
        return _plot_density(gm, x, ax)
    i, j = features
    for k, (mean, covariance) in enumerate(zip(gm.means_, _matrices(gm), strict=True)):
        colour = f"C{k % 10}"
        if x is not None:
            ax.scatter(*x[labels == k][:, [i, j]].T, s=8, color=colour, alpha=0.6)
        variances, axes = np.linalg.eigh(covariance[np.ix_([i, j], [i, j])])
        angle = np.degrees(np.arctan2(axes[1, 1], axes[0, 1]))
        for deviations in (1.0, 2.0):
            height, width = 2.0 * deviations * np.sqrt(variances)
            ellipse = Ellipse((mean[i], mean[j]), width, height, angle=angle, fill=False, color=colour)
            ax.add_patch(ellipse)
    names = getattr(gm, "feature_names_in_", [f"feature {n}" for n in range(gm.means_.shape[1])])
    ax.set_xlabel(names[i])
    ax.set_ylabel(names[j])
    ax.autoscale_view()
    return ax


def _plot_density(gm: GaussianMixture, x: Any, ax: Any) -> Any:
    deviations = np.sqrt(_matrices(gm)[:, 0, 0])
    ends = (gm.means_[:, 0] - 4 * deviations).min(), (gm.means_[:, 0] + 4 * deviations).max()
    at = np.linspace(*ends, 512)[:, np.newaxis]
    if x is not None:
        ax.hist(x[:, 0], bins="auto", density=True, alpha=0.4)
    ax.plot(at[:, 0], np.exp(gm.score_samples(at)))
    ax.set_ylabel("density")
    return ax


def _matrices(gm: GaussianMixture) -> Any:
    """Give the covariances as matrices (n_components, n_features, n_features)."""
    k, d = gm.means_.shape
    if gm.covariance_type == "full":
        return gm.covariances_
    if gm.covariance_type == "tied":
        return np.broadcast_to(gm.covariances_, (k, d, d))
    variances = gm.covariances_ if gm.covariance_type == "diag" else np.repeat(gm.covariances_[:, np.newaxis], d, 1)
    return variances[:, :, np.newaxis] * np.eye(d)


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.gca()
