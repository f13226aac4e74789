"""Pictures of a model: its classes, their uncertainty and the density, of one column, of two, or of all pairs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._mixture import Mixture
from .._select import plot

#: The most rows that are drawn.
_ROWS = 2000


def draw(fit: Any, what: str, dimens: Sequence[int] | None, ax: Any) -> Any:
    """Draw a model, and return the axes: one, or of more than two columns those of all pairs."""
    panels = {"classification": _classification, "uncertainty": _uncertainty, "density": _density}
    if what not in panels:
        raise ValueError(f"what is {what!r}; use 'BIC', 'classification', 'uncertainty' or 'density'")
    panel, columns = panels[what], list(range(fit.d)) if dimens is None else list(dimens)
    if unknown := [column for column in columns if not 0 <= column < fit.d]:
        raise ValueError(f"dimens has {unknown[0]}; the columns are 0 to {fit.d - 1}")
    rows = np.arange(fit.n) if fit.n <= _ROWS else np.sort(np.random.default_rng(0).choice(fit.n, _ROWS, replace=False))
    if len(columns) <= 2:
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots()[1]
        panel(fit, rows, columns, ax)
        return ax
    if ax is not None:
        raise ValueError(f"{len(columns)} columns make {len(columns) ** 2} axes; leave ax out, or give one or two columns (dimens)")
    return _pairs(lambda pair, ax: panel(fit, rows, pair, ax), columns)


def _pairs(panel: Any, columns: list[int]) -> Any:
    """Draw each column over each other one."""
    import matplotlib.pyplot as plt

    p = len(columns)
    _, axes = plt.subplots(p, p, figsize=(2.2 * p, 2.2 * p), sharex="col", layout="constrained")
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
