"""Pictures of a hidden Markov model: its states over time, its transitions and its emissions."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._select import plot

#: Arrows of smaller probabilities are not drawn.
_LEAST = 0.005


def draw(model: Any, X: Any, what: str, lengths: ArrayLike | None, feature: int, ax: Any) -> Any:
    """Draw a model, and return the axes."""
    if what not in ("states", "transitions", "emissions"):
        raise ValueError(f"what is {what!r}; use 'states', 'transitions' or 'emissions'")
    if X is None and what == "states":
        raise ValueError("the states over time are those of rows; give X")
    import matplotlib.pyplot as plt

    ax = plt.subplots(layout="constrained")[1] if ax is None else ax
    if what == "emissions":
        plot(model.mixture_, X, ax=ax).set_title("")
    elif what == "transitions":
        _transitions(model, ax)
    else:
        _states(model, np.asarray(X, dtype=np.float64), lengths, feature, ax)
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
