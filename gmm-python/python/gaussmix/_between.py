"""Distances between fitted mixtures, and mixtures made of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from . import _core
from ._fitted import FittedMixture
from ._parts import Parts

if TYPE_CHECKING:
    from typing_extensions import Self


class Estimate(NamedTuple):
    """A number that was estimated from random samples."""

    #: The estimate.
    value: float
    #: Its standard deviation, estimated from the samples themselves.
    standard_error: float


class Between(Parts):
    """The methods of a fitted mixture that take another one."""

    def _two(self, other: FittedMixture) -> tuple[_core.Mixture, _core.Mixture]:
        """Give both mixtures, of the same features."""
        if not isinstance(other, FittedMixture):
            raise TypeError(
                f"the other mixture is {type(other).__name__!r}; make a gaussmix.GaussianMixture of it, by from_sklearn or"
                " from_parameters"
            )
        check_is_fitted(self)
        check_is_fitted(other)
        names, others = (getattr(gm, "feature_names_in_", None) for gm in (self, other))
        if names is not None and others is not None and list(names) != list(others):
            raise ValueError("the two mixtures have other names of features; bring them to one order, by marginal")
        return self._mixture(), other._mixture()

    def cauchy_schwarz(self, other: FittedMixture) -> float:
        """Give the Cauchy-Schwarz divergence from another mixture, in closed form.

        Parameters
        ----------
        other : GaussianMixture
            A fitted mixture of the same features.

        Returns
        -------
        divergence : float
            -log(∫pq / √(∫p² ∫q²)): 0 for equal densities alone, and the same both ways.
        """
        mine, others = self._two(other)
        return mine.cauchy_schwarz(others)

    def l2_distance(self, other: FittedMixture) -> float:
        """Give the distance of the densities in L², in closed form.

        Parameters
        ----------
        other : GaussianMixture
            A fitted mixture of the same features.

        Returns
        -------
        distance : float
            √∫(p - q)².
        """
        mine, others = self._two(other)
        return mine.l2_distance(others)

    def kl_divergence(
        self,
        other: FittedMixture,
        n_samples: int = 100_000,
        random_state: int | np.random.RandomState | None = None,
    ) -> Estimate:
        """Estimate the Kullback-Leibler divergence ∫ p log(p/q) of another mixture (q) from this one (p).

        Parameters
        ----------
        other : GaussianMixture
            A fitted mixture of the same features.
        n_samples : int, default=100_000
            How many samples of this mixture are drawn.
        random_state : int, RandomState instance or None, default=None
            The source of the samples; the same one gives the same bits.

        Returns
        -------
        estimate : Estimate
            The divergence in nats, and its standard error.
        """
        mine, others = self._two(other)
        return Estimate(*mine.kl_divergence(others, n_samples, _seed(random_state)))

    def js_divergence(
        self,
        other: FittedMixture,
        n_samples: int = 100_000,
        random_state: int | np.random.RandomState | None = None,
    ) -> Estimate:
        """Estimate the Jensen-Shannon divergence, the mean divergence of both mixtures from their mean.

        Parameters
        ----------
        other : GaussianMixture
            A fitted mixture of the same features.
        n_samples : int, default=100_000
            How many samples of each mixture are drawn.
        random_state : int, RandomState instance or None, default=None
            The source of the samples; the same one gives the same bits.

        Returns
        -------
        estimate : Estimate
            The divergence in nats, from 0 to log 2, and its standard error.
        """
        mine, others = self._two(other)
        return Estimate(*mine.js_divergence(others, n_samples, _seed(random_state)))

    def wasserstein(self, other: FittedMixture) -> NDArray[np.float64]:
        """Give the 2-Wasserstein distance of each component from each of another mixture.

        Parameters
        ----------
        other : GaussianMixture
            A fitted mixture of the same features, such as this one.

        Returns
        -------
        distances : ndarray of shape (n_components, n_components of other)
            The distances, in the units of the data.
        """
        mine, others = self._two(other)
        return mine.wasserstein(others)

    def hellinger_affinity(self, other: FittedMixture) -> NDArray[np.float64]:
        """Give the Hellinger affinity of each component with each of another mixture.

        Parameters
        ----------
        other : GaussianMixture
            A fitted mixture of the same features, such as this one.

        Returns
        -------
        affinities : ndarray of shape (n_components, n_components of other)
            ∫√(fg) of the components f and g: 1 for equal ones, 0 for such as have nothing in common.
        """
        mine, others = self._two(other)
        return mine.hellinger_affinity(others)

    def product(self, other: FittedMixture) -> tuple[Self, float]:
        """Give the normalised product of the densities.

        Parameters
        ----------
        other : GaussianMixture
            A fitted mixture of the same features.

        Returns
        -------
        gm : GaussianMixture
            The fitted mixture p·q / ∫p·q, with a component for each pair.
        log_integral : float
            log ∫p·q.
        """
        mixture, log_integral = _core.Mixture.product(*self._two(other))
        return self._another(mixture), log_integral

    @staticmethod
    def union(mixtures: Sequence[Between], shares: ArrayLike | None = None) -> Between:
        """Put mixtures together, each with a share.

        Parameters
        ----------
        mixtures : sequence of GaussianMixture
            Fitted mixtures of the same features.
        shares : array-like of shape (n_mixtures,), default=None
            The share of each, up to a factor; by default all are equal.

        Returns
        -------
        gm : GaussianMixture
            The fitted mixture of all components, those of the first mixture first, with the parameters of that.
        """
        if not mixtures:
            raise ValueError("mixtures is empty; give at least one mixture")
        first = mixtures[0]
        parts = [first._two(mixture)[1] for mixture in mixtures]
        given = np.ones(len(parts)) if shares is None else np.asarray(shares, dtype=np.float64)
        return first._another(_core.Mixture.union(parts, given.tolist()))

    def reduce(self, n_components: int) -> tuple[Self, float]:
        """Give a mixture of fewer components, by merging those of which that loses least (Runnalls 2007).

        Parameters
        ----------
        n_components : int
            The number of components that stay.

        Returns
        -------
        gm : GaussianMixture
            The fitted mixture, with the same mean and covariance.
        bound : float
            Its Kullback-Leibler divergence from this one is at most this, in nats.

        Examples
        --------
        >>> from gaussmix import GaussianMixture
        >>> gm = GaussianMixture.from_parameters([0.4, 0.4, 0.2], [[0.0], [0.1], [9.0]], [1.0, 1.0, 1.0])
        >>> smaller, bound = gm.reduce(2)
        >>> smaller.weights_, bound < 1e-3
        (array([0.8, 0.2]), True)
        """
        check_is_fitted(self)
        mixture, bound = self._mixture().reduce(n_components)
        return self._another(mixture), bound


def _seed(random_state: int | np.random.RandomState | None) -> int:
    return int(check_random_state(random_state).randint(0, 2**31 - 1))
