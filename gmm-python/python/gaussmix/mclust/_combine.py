"""Clusters of several components, merged by the entropy of the classification."""

from itertools import combinations, pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from .._pictures import axes_of
from ._models import Model


class clustCombi:
    """Merge the components of a model one pair after the other, always the pair that lowers the entropy most [1]_.
    Attributes:
    classification : dict -- The cluster of each row, from 1, for each number of clusters from 1 to G.
    combiz : dict -- The probabilities of the clusters (n, K), for each number K.
    combiM : dict -- The matrix (K, K + 1) of zeros and ones that brings K + 1 clusters to K; for G the identity.
    entropy : ndarray of shape (G,) -- The entropy of the classification, of 1 to G clusters.
    MclustOutput : Mclust -- The model.
    References:
    .. [1] Baudry, J.-P., Raftery, A. E., Celeux, G., Lo, K. and Gottardo, R. (2010). Combining mixture components for
       clustering. Journal of Computational and Graphical Statistics 19.
    Examples:
    >>> import numpy as np
    >>> from gaussmix.mclust import Mclust, clustCombi
    >>> rng = np.random.default_rng(0)
    >>> fit = Mclust(np.concatenate([rng.normal(0, 1, (50, 2)), rng.normal(9, 1, (50, 2))]), G=3, modelNames="EII")
    >>> np.bincount(clustCombi(fit).classification[2])
    array([ 0, 50, 50])
    """

    def __init__(self, object: Model) -> None:
        object.mixture._check_no_noise("the merging")
        self.MclustOutput, z = object, object.z
        self.combiz, self.combiM = {object.G: z}, {object.G: np.eye(object.G)}
        for k in range(object.G - 1, 0, -1):
            own = xlogy(z, z).sum(axis=0)
            pairs = list(combinations(range(k + 1), 2))
            gains = [xlogy(z[:, a] + z[:, b], z[:, a] + z[:, b]).sum() - (own[a] + own[b]) for a, b in pairs]
            a, b = pairs[int(np.argmax(gains))]
            merge = np.delete(np.eye(k + 1), b, axis=0)
            merge[a, b] = 1.0
            z = z @ merge.T
            self.combiM[k], self.combiz[k] = merge, z
        self.combiM, self.combiz = dict(sorted(self.combiM.items())), dict(sorted(self.combiz.items()))
        self.classification = {k: z.argmax(axis=1) + 1 for k, z in self.combiz.items()}
        self.entropy = np.array([-xlogy(z, z).sum() for z in self.combiz.values()])

    def plot(self, reg: int = 2, ax: Any = None) -> Any:
        """Draw the entropy over the number of clusters, and the lines of `clustCombiOptim`, and return the axes of matplotlib.
        Parameters: reg : int, default=2 -- The number of lines.
        """
        ax = axes_of(ax)
        numbers = np.arange(1, len(self.entropy) + 1)
        ax.plot(numbers, self.entropy, "o")
        for part in pairwise(_bends(self.entropy, reg)):
            at = numbers[part[0] : part[1] + 1]
            ax.plot(at, np.polyval(np.polyfit(at, self.entropy[part[0] : part[1] + 1], 1), at), "C3--")
        ax.set(xlabel="number of clusters", ylabel="entropy", xticks=numbers)
        return ax

    def __repr__(self) -> str:
        sizes = {k: np.bincount(classes, minlength=k + 1)[1:].tolist() for k, classes in self.classification.items()}
        lines = [f"{k} cluster{'s' * (k > 1)} of {size} rows, entropy {self.entropy[k - 1]:.5g}" for k, size in sizes.items()]
        return "\n".join(["clustCombi", *lines])


def clustCombiOptim(object: clustCombi, reg: int = 2) -> SimpleNamespace:
    """Return the clusters where the entropy bends, by least squares with joined ranges of numbers of clusters.
    Parameters:
    object : clustCombi -- The clusters.
    reg : int, default=2 -- The number of lines: 2 or 3. With two clusters or fewer there is no bend, and all stay.
    Returns:
    best : SimpleNamespace -- `numClusters_combi`, the number at the first bend, and its `z_combi` and `cluster_combi`, the classes from 1.
    """
    k = _bends(object.entropy, reg)[1] + 1
    return SimpleNamespace(numClusters_combi=k, z_combi=object.combiz[k], cluster_combi=object.classification[k])


def _bends(entropy: NDArray[np.float64], reg: int) -> list[int]:
    """Return the ends of the ranges over which lines fit the entropy best, with the first and the last position."""
    if reg not in (2, 3):
        raise ValueError(f"reg is {reg}; use 2 or 3 lines")
    last, at = len(entropy) - 1, np.arange(len(entropy))
    if last < 2:
        return [0, last]
    if last < reg:
        raise ValueError(f"{reg} lines need {reg + 1} components; there are {last + 1}")

    def squares(part: tuple[int, int]) -> float:
        x, y = at[part[0] : part[1] + 1], entropy[part[0] : part[1] + 1]
        return float(np.sum((np.polyval(np.polyfit(x, y, 1), x) - y) ** 2))

    ways = [[0, *inner, last] for inner in combinations(range(1, last), reg - 1)]
    return min(ways, key=lambda ends: sum(map(squares, pairwise(ends))))
