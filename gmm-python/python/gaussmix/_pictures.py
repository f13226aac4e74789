"""Pictures of mixtures, of hidden Markov models, and of the models of `gaussmix.mclust`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import _safe_indexing

from . import _core
from ._arrays import numbers_of
from ._fitting import Fitting
from ._gpu import on_host
from ._mixture import AnyMixture, Mixture, mixture_of
from ._start import matrices_of
from ._variational import BayesianGaussianMixture

#: The most samples that are drawn.
_POINTS = 2000
#: The opacity of components that are not alive.
_FAINT = 0.25
#: Arrows of smaller probabilities are not drawn.
_LEAST = 0.005


def _pyplot() -> Any:
    import matplotlib.pyplot

    return matplotlib.pyplot


def axes_of(ax: Any) -> Any:
    """Return axes, by default the current ones."""
    return _pyplot().gca() if ax is None else ax


def _some(n: int) -> NDArray[np.intp]:
    """Return the numbers of the samples that are drawn."""
    return np.arange(n) if n <= _POINTS else np.sort(np.random.default_rng(0).choice(n, _POINTS, replace=False))


def plot(gm: AnyMixture, X: ArrayLike | None = None, *, features: tuple[int, int] | None = None, ax: Any = None) -> Any:
    """Draw a mixture as the command ``gmm fit --plot`` draws it, and return the axes of matplotlib.

    Around the mean of each component lie ellipses at one and two standard deviations. Up to 2,000 samples, chosen at
    random, have the colour of their most probable component. Samples with missing values (of a mixture with
    ``missing=True``) are open circles, at the means of what is missing given the rest of the sample. Components of a
    :class:`BayesianGaussianMixture` that are not alive, because they have less than half a sample in expectation, are
    drawn faintly.
    Parameters:
    gm : Mixture or estimator -- The mixture, or a fitted estimator that has one.
    X : array-like of shape (n_samples, n_features), default=None -- Samples.
    features : tuple of int, default=None
        The two features to draw over. By default, where there are more than two, the mixture is projected to the
        plane in which its means are spread most; the labels of the axes say how. Of a mixture over one feature the
        density is drawn.
    ax : matplotlib.axes.Axes, default=None
        Where to draw. By default a figure is made, with the lower bound of each iteration beside the mixture.
    """
    mixture = mixture_of(gm, "what is to be drawn")
    if ax is None:
        ax = _figure(gm)
    x = labels = missing = None
    if X is not None:
        x = on_host(X)
        n_samples = len(x)
        if n_samples > _POINTS:
            # Without a copy of the others; a table stays one.
            x = _safe_indexing(x, _some(n_samples))
        # A posterior has labels of its own; NaN stands for missing values unless an estimator takes none.
        if isinstance(gm, Fitting):
            labels, filled, x = gm.predict(x), gm.impute(x), numbers_of(x, "X")
        else:
            labels, x = mixture.predict(x, missing=True), numbers_of(x, "X")
            filled = _core.impute(x, mixture._engine)
        missing = np.isnan(x)
        # Samples without any value are nowhere.
        somewhere = ~missing.all(axis=1)
        x, labels, missing = np.where(missing, filled, x)[somewhere], labels[somewhere], missing[somewhere]
    k = mixture.n_components
    # Components of a posterior may have hardly any samples.
    alive = np.array(gm._posterior().alive) if isinstance(gm, BayesianGaussianMixture) else np.ones(k, dtype=bool)
    if mixture.n_features == 1:
        _plot_density(mixture, alive, x, ax)
    else:
        _plot_plane(mixture, alive, x, labels, missing, features, ax)
    # Of very many components there is no room for the names.
    if k <= 28:
        ax.legend(title="component: weight", fontsize="small")
    if x is not None:
        shown = f"{n_samples:,} samples" if len(x) == n_samples else f"{len(x):,} of {n_samples:,} samples"
        of_them = "" if alive.all() else f", {alive.sum()} alive"
        ax.set_title(f"{shown}, {k} component{'' if k == 1 else 's'}{of_them}")
    return ax


def _figure(gm: AnyMixture) -> Any:
    """Make a figure with axes for the mixture, and draw the lower bounds beside them if there are any."""
    bounds = getattr(gm, "lower_bounds_", [])
    if not bounds:
        return _pyplot().subplots()[1]
    _, (ax, beside) = _pyplot().subplots(1, 2, figsize=(12, 5), width_ratios=(3, 2), layout="constrained")
    beside.plot(np.arange(1, len(bounds) + 1), bounds, marker=".")
    of = ", as scikit-learn counts" if isinstance(gm, BayesianGaussianMixture) else ": mean log-likelihood of a sample"
    beside.set(xlabel="iteration", ylabel=f"lower bound{of}")
    return ax


def _plot_plane(
    gm: Mixture, alive: NDArray[np.bool_], x: Any, labels: Any, missing: Any, features: tuple[int, int] | None, ax: Any
) -> None:
    from matplotlib.patches import Ellipse

    d, names = gm.n_features, list(gm.feature_names or ())
    if features is None:
        projection, origin, axis_labels = gm._engine.plane(names)
    else:
        projection, origin = np.eye(d)[list(features)], np.zeros(d)
        axis_labels = [names[j] if names else f"feature {j}" for j in features]
    if x is not None:
        points = (x - origin) @ projection.T
        # What is missing in other features than those that are drawn does not matter.
        open_ = (missing & projection.any(axis=0)).any(axis=1)
        for k in np.unique(labels):
            colour = "grey" if k < 0 else f"C{k % 10}"
            ax.scatter(*points[(labels == k) & ~open_].T, s=8, color=colour, alpha=0.45, linewidths=0)
            if open_[labels == k].any():
                ax.scatter(*points[(labels == k) & open_].T, s=8, facecolors="none", edgecolors=colour, alpha=0.45)
    means = (gm.means - origin) @ projection.T
    # The weight of noise has no mean.
    matrices = matrices_of(gm.covariances, gm.covariance_type, *gm.means.shape)
    for k, (weight, mean, covariance) in enumerate(zip(gm.weights, means, matrices, strict=False)):
        variances, axes = np.linalg.eigh(projection @ covariance @ projection.T)
        angle = np.degrees(np.arctan2(axes[1, 1], axes[0, 1]))
        for deviations in (1.0, 2.0):
            height, width = 2.0 * deviations * np.sqrt(np.maximum(variances, 0.0))
            label = f"{k}: {weight:.3f}" if deviations == 1.0 else None
            look = {"fill": False, "color": f"C{k % 10}", "alpha": None if alive[k] else _FAINT, "label": label}
            ellipse = Ellipse(tuple(mean), width, height, angle=angle, **look)
            # The axes are as wide as what is alive needs.
            (ax.add_patch if alive[k] or not alive.any() else ax.add_artist)(ellipse)
    ax.set(xlabel=axis_labels[0], ylabel=axis_labels[1])
    ax.autoscale_view()


def _plot_density(gm: Mixture, alive: NDArray[np.bool_], x: Any, ax: Any) -> None:
    means, deviations = gm.means[:, 0], np.sqrt(matrices_of(gm.covariances, gm.covariance_type, *gm.means.shape)[:, 0, 0])
    seen = alive | ~alive.any()
    ends = (means - 4 * deviations)[seen].min(), (means + 4 * deviations)[seen].max()
    at = np.linspace(*ends, 512)
    squares = ((at - means[:, np.newaxis]) / deviations[:, np.newaxis]) ** 2
    weights = gm.weights[: len(means)]
    densities = (weights / (deviations * np.sqrt(2.0 * np.pi)))[:, np.newaxis] * np.exp(-0.5 * squares)
    if x is not None:
        ax.hist(x[:, 0], bins="auto", density=True, alpha=0.3, color="grey")
    ax.plot(at, densities.sum(axis=0), color="black", label="all")
    for k, (weight, density) in enumerate(zip(weights, densities, strict=True)):
        ax.plot(at, density, color=f"C{k % 10}", alpha=None if alive[k] else _FAINT, label=f"{k}: {weight:.3f}")
    ax.set(xlabel="feature 0" if gm.feature_names is None else gm.feature_names[0], ylabel="density")


def draw_markov(model: Any, X: Any, what: str, lengths: ArrayLike | None, feature: int, ax: Any) -> Any:
    """Draw a hidden Markov model: its states over time, its transitions or its emissions, and return the axes."""
    if what not in ("states", "transitions", "emissions"):
        raise ValueError(f"what is {what!r}; use 'states', 'transitions' or 'emissions'")
    if X is None and what == "states":
        raise ValueError("the states over time are those of rows; give X")
    ax = _pyplot().subplots(layout="constrained")[1] if ax is None else ax
    if what == "emissions":
        plot(model.mixture_, X, ax=ax).set_title("")
    elif what == "transitions":
        _transitions(model, ax)
    else:
        _states(model, numbers_of(X, "X"), lengths, feature, ax)
    return ax


def _states(model: Any, x: Any, lengths: ArrayLike | None, feature: int, ax: Any) -> None:
    if not 0 <= feature < x.shape[1]:
        raise ValueError(f"feature is {feature}; the features are 0 to {x.shape[1] - 1}")
    states = model.predict(x, lengths)
    changes = np.flatnonzero(np.diff(states)) + 1
    for begin, end in zip([0, *changes], [*changes, len(x)], strict=True):
        ax.axvspan(begin - 0.5, end - 0.5, color=f"C{states[begin] % 10}", alpha=0.25, linewidth=0)
    for end in np.cumsum([] if lengths is None else lengths)[:-1]:
        ax.axvline(end - 0.5, color="0.5", linestyle=":")
    ax.plot(x[:, feature], "k", linewidth=0.8)
    ax.set(xlabel="row", ylabel=f"feature {feature}", xlim=(-0.5, len(x) - 0.5))


def _transitions(model: Any, ax: Any) -> None:
    transmat, shares = model.transmat_, model.get_stationary_distribution()
    k = len(shares)
    angles = 2 * np.pi * np.arange(k) / k
    at = np.column_stack([np.cos(angles), np.sin(angles)]) * (k > 1)
    for i, j in zip(*np.nonzero((transmat >= _LEAST) & ~np.eye(k, dtype=bool)), strict=True):
        # Both directions bend to their right.
        look = {"arrowstyle": "-|>", "connectionstyle": "arc3,rad=0.15", "shrinkA": 22, "shrinkB": 22, "color": f"C{i % 10}"}
        ax.annotate("", at[j], at[i], arrowprops={**look, "linewidth": 0.5 + 6 * transmat[i, j]})
        across = np.array([-1, 1]) * (at[j] - at[i])[::-1]
        ax.text(*(0.6 * at[i] + 0.4 * at[j] - 0.12 * across), f"{transmat[i, j]:.2g}", ha="center", va="center", fontsize="small")
    for i in range(k):
        ax.scatter(*at[i], s=200 + 1500 * shares[i], color=f"C{i % 10}", alpha=0.5, zorder=3)
        ax.text(*at[i], f"{i}\n{transmat[i, i]:.2g}", ha="center", va="center", zorder=4)
    ax.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal")
    ax.set_axis_off()


def draw_clusters(fit: Any, what: str, dimens: Sequence[int] | None, ax: Any) -> Any:
    """Draw a model of `gaussmix.mclust`: its classes, their uncertainty or the density, and return the axes, or those of all pairs."""
    panels = {"classification": _classification, "uncertainty": _uncertainty, "density": _density}
    if what not in panels:
        raise ValueError(f"what is {what!r}; use 'BIC', 'classification', 'uncertainty' or 'density'")
    panel, columns = panels[what], list(range(fit.d)) if dimens is None else list(dimens)
    if unknown := [column for column in columns if not 0 <= column < fit.d]:
        raise ValueError(f"dimens has {unknown[0]}; the columns are 0 to {fit.d - 1}")
    rows = _some(fit.n)
    if len(columns) <= 2:
        if ax is None:
            ax = _pyplot().subplots()[1]
        panel(fit, rows, columns, ax)
        return ax
    if ax is not None:
        raise ValueError(f"{len(columns)} columns make {len(columns) ** 2} axes; leave ax out, or give one or two columns (dimens)")
    return _pairs(lambda pair, ax: panel(fit, rows, pair, ax), columns)


def _pairs(panel: Any, columns: list[int]) -> Any:
    """Draw each column over each other one."""
    p = len(columns)
    _, axes = _pyplot().subplots(p, p, figsize=(2.2 * p, 2.2 * p), sharex="col", layout="constrained")
    for i, j in np.ndindex(p, p):
        if i != j:
            panel([columns[j], columns[i]], axes[i, j])
            if legend := axes[i, j].get_legend():
                legend.remove()
        axes[i, j].set(xlabel="", ylabel="", title="")
        axes[i, j].tick_params(labelbottom=i == p - 1, labelleft=j == 0 and i > 0)
    for i in range(p):
        beside = axes[i, (i + 1) % p]
        axes[i, i].set(yticks=[], ylim=beside.get_ylim())
        axes[i, i].text(0.5, 0.5, f"feature {columns[i]}", ha="center", va="center", transform=axes[i, i].transAxes)
    return axes


def _classification(fit: Any, rows: NDArray[np.intp], columns: list[int], ax: Any) -> None:
    x, classes = fit.data[rows][:, columns], fit.classification[rows]
    if len(columns) == 1:
        for k in range(fit.G):
            at = x[classes == k + 1, 0]
            ax.plot(at, np.full(len(at), k + 1), "|", color=f"C{k % 10}", markersize=14)
        ax.set(xlabel=f"feature {columns[0]}", ylabel="class", yticks=range(1, fit.G + 1), ylim=(0.5, fit.G + 0.5))
        return
    _ellipses(fit, columns, ax)
    if fit.hypvol is not None:
        ax.scatter(*x[classes == 0].T, s=10, color="0.6", linewidths=0)
    for k in range(fit.G):
        ax.scatter(*x[classes == k + 1].T, s=10, color=f"C{k % 10}", alpha=0.6, linewidths=0)
    ax.autoscale_view()


def _uncertainty(fit: Any, rows: NDArray[np.intp], columns: list[int], ax: Any) -> None:
    x, doubt = fit.data[rows][:, columns], fit.uncertainty[rows]
    if len(columns) == 1:
        order = np.argsort(x[:, 0])
        ax.plot(x[order, 0], doubt[order], "k.-", linewidth=0.8, markersize=4)
        ax.set(xlabel=f"feature {columns[0]}", ylabel="uncertainty")
        return
    _ellipses(fit, columns, ax)
    # The less certain a quarter and a twentieth of the rows are, the larger and darker they are.
    group = np.searchsorted(np.quantile(fit.uncertainty, [0.75, 0.95]), doubt, side="left")
    for number, (size, colour) in enumerate([(8, "0.75"), (18, "0.45"), (32, "0.0")]):
        ax.scatter(*x[group == number].T, s=size, color=colour, linewidths=0, zorder=2 + number)
    ax.autoscale_view()


def _density(fit: Any, rows: NDArray[np.intp], columns: list[int], ax: Any) -> None:
    x, mixture = fit.data[rows][:, columns], fit.mixture.without_noise().marginal(columns)
    if len(columns) == 1:
        plot(mixture, x, ax=ax)
        _count_from_one(ax)
        ax.set(title="", xlabel=f"feature {columns[0]}")
        return
    ax.scatter(*x.T, s=6, color="0.6", linewidths=0)
    low, high = x.min(axis=0), x.max(axis=0)
    across, up = (np.linspace(a - 0.1 * (b - a), b + 0.1 * (b - a), 100) for a, b in zip(low, high, strict=True))
    grid = np.stack(np.meshgrid(across, up), axis=-1)
    # The lines enclose 95, 75, 50 and 25 % of the rows.
    levels = np.unique(np.quantile(mixture.score_samples(x), [0.05, 0.25, 0.5, 0.75]))
    ax.contour(across, up, mixture.score_samples(grid.reshape(-1, 2)).reshape(100, 100), levels, cmap="viridis")
    ax.set(xlabel=f"feature {columns[0]}", ylabel=f"feature {columns[1]}")


def _ellipses(fit: Any, columns: list[int], ax: Any) -> None:
    """Draw the components over two columns."""
    mixture: Mixture = fit.mixture.without_noise()
    plot(mixture, features=(columns[0], columns[1]), ax=ax)
    _count_from_one(ax)


def _count_from_one(ax: Any) -> None:
    """Number the components of a legend as classes."""
    if legend := ax.get_legend():
        for text in legend.get_texts():
            number, colon, weight = text.get_text().partition(":")
            text.set_text(f"{int(number) + 1}{colon}{weight}" if colon else number)
