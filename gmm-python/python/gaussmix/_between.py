"""Distances between fitted mixtures, and mixtures made of others."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from . import _core
from ._fitted import Fitted, FittedMixture
from ._parameters import count
from ._parts import Parts

if TYPE_CHECKING:
    from ._estimator import GaussianMixture


class Estimate(NamedTuple):
    """A number that was estimated from random samples.

    Parameters
    ----------
    value : float
        The estimate.
    standard_error : float
        Its standard deviation over seeds, estimated from the samples themselves.
    """

    value: float
    standard_error: float


class Transport(NamedTuple):
    """What brings the weights of one mixture to those of another.

    Parameters
    ----------
    distance : float
        The distance that it takes, in the units of the data.
    plan : ndarray of shape (n_components, n_components of other)
        The weight that goes from each component of the one to each of the other.
    """

    distance: float
    plan: NDArray[np.float64]


class Between(Parts):
    """The methods of a fitted mixture that take another one."""

    def _two(self, other: Fitted) -> tuple[_core.Mixture, _core.Mixture]:
        """Give both mixtures, of the same features."""
        if not isinstance(other, Fitted):
            raise TypeError(
                f"the other mixture is {type(other).__name__!r}; make a gaussmix.GaussianMixture of it, by from_sklearn or"
                " from_parameters"
            )
        check_is_fitted(self)
        check_is_fitted(other)
        names, others = (getattr(gm, "feature_names_in_", None) for gm in (self, other))
        if names is not None and others is not None and list(names) != list(others):
            raise ValueError("the two mixtures have other names of features; bring them to one order, by marginal")
        return self._point(), other._point()

    def cauchy_schwarz(self, other: Fitted) -> float:
        """Give the Cauchy-Schwarz divergence from another mixture, in closed form.

        Parameters
        ----------
        other : GaussianMixture or BayesianGaussianMixture
            A fitted mixture of the same features.

        Returns
        -------
        divergence : float
            -log(∫pq / √(∫p² ∫q²)): 0 for equal densities alone, and the same both ways.
        """
        mine, others = self._two(other)
        return mine.cauchy_schwarz(others)

    def l2_distance(self, other: Fitted) -> float:
        """Give the distance of the densities in L², in closed form.

        Parameters
        ----------
        other : GaussianMixture or BayesianGaussianMixture
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
        other: Fitted,
        n_samples: int = 100_000,
        random_state: int | np.random.RandomState | None = None,
    ) -> Estimate:
        """Estimate the Kullback-Leibler divergence ∫ p log(p/q) of another mixture (q) from this one (p).

        Parameters
        ----------
        other : GaussianMixture or BayesianGaussianMixture
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
        return Estimate(*mine.kl_divergence(others, count(n_samples, "n_samples"), _seed(random_state)))

    def js_divergence(
        self,
        other: Fitted,
        n_samples: int = 100_000,
        random_state: int | np.random.RandomState | None = None,
    ) -> Estimate:
        """Estimate the Jensen-Shannon divergence, the mean divergence of both mixtures from their mean.

        Parameters
        ----------
        other : GaussianMixture or BayesianGaussianMixture
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
        return Estimate(*mine.js_divergence(others, count(n_samples, "n_samples"), _seed(random_state)))

    def wasserstein(self, other: Fitted) -> NDArray[np.float64]:
        """Give the 2-Wasserstein distance of each component from each of another mixture.

        Parameters
        ----------
        other : GaussianMixture or BayesianGaussianMixture
            A fitted mixture of the same features, such as this one.

        Returns
        -------
        distances : ndarray of shape (n_components, n_components of other)
            The distances, in the units of the data.
        """
        mine, others = self._two(other)
        return mine.wasserstein(others)

    def transport(self, other: Fitted) -> Transport:
        """Give the distance from another mixture where shares of whole components are moved.

        It is the least that it takes to bring the weights of this mixture to those of the other, where a weight is
        moved over the Wasserstein distance of the two components. The 2-Wasserstein distance of the densities is at
        most this [1]_.

        Parameters
        ----------
        other : GaussianMixture or BayesianGaussianMixture
            A fitted mixture of the same features.

        Returns
        -------
        transport : Transport
            The distance, and the plan of it, (n_components, n_components of other).

        References
        ----------
        .. [1] Delon, J. and Desolneux, A. (2020). A Wasserstein-type distance in the space of Gaussian mixture
           models. SIAM Journal on Imaging Sciences 13.
        """
        mine, others = self._two(other)
        return Transport(*mine.transport(others))

    def hellinger_affinity(self, other: Fitted) -> NDArray[np.float64]:
        """Give the Hellinger affinity of each component with each of another mixture.

        Parameters
        ----------
        other : GaussianMixture or BayesianGaussianMixture
            A fitted mixture of the same features, such as this one.

        Returns
        -------
        affinities : ndarray of shape (n_components, n_components of other)
            ∫√(fg) of the components f and g: 1 for equal ones, 0 for such as have nothing in common.
        """
        mine, others = self._two(other)
        return mine.hellinger_affinity(others)

    def product(self, other: Fitted) -> tuple[GaussianMixture, float]:
        """Give the normalised product of the densities.

        Parameters
        ----------
        other : GaussianMixture or BayesianGaussianMixture
            A fitted mixture of the same features.

        Returns
        -------
        gm : GaussianMixture
            The fitted mixture p·q / ∫p·q, with a component for each pair.
        log_integral : float
            The logarithm of ∫p·q.
        """
        mixture, log_integral = _core.Mixture.product(*self._two(other))
        return self._another(mixture), log_integral

    @staticmethod
    def sum(mixtures: Sequence[Between], weights: ArrayLike | None = None) -> GaussianMixture:
        """Give the weighted sum of densities, which has the components of all mixtures.

        Parameters
        ----------
        mixtures : sequence of GaussianMixture or BayesianGaussianMixture
            Fitted mixtures of the same features.
        weights : array-like of shape (n_mixtures,), default=None
            The weight of each, up to a factor; by default all are equal.

        Returns
        -------
        gm : GaussianMixture
            The fitted mixture, with the components of the first mixture first, and its parameters.
        """
        if isinstance(mixtures, Mapping) or not all(isinstance(mixture, Between) for mixture in mixtures):
            raise TypeError(f"mixtures is {reprlib.repr(mixtures)}; give a list of fitted mixtures of this package")
        if len(mixtures) == 0:
            raise ValueError("mixtures is empty; give at least one mixture")
        first = mixtures[0]
        parts = [first._two(mixture)[1] for mixture in mixtures]
        given = np.ones(len(parts)) if weights is None else np.asarray(weights, dtype=np.float64)
        return first._another(_core.Mixture.sum(parts, given.tolist()))

    def reduce(self, n_components: int) -> tuple[GaussianMixture, float]:
        """Give a mixture of fewer components, by merging those of which that loses least (Runnalls 2007).

        Parameters
        ----------
        n_components : int
            The number of components that stay.

        Returns
        -------
        gm : GaussianMixture
            The fitted mixture. It has the same mean and covariance (with 'diag' the same variances, with 'spherical'
            the same sum of variances).
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
        mixture, bound = self._point().reduce(count(n_components, "n_components"))
        return self._another(mixture), bound


    def sorted(self, order: str | int | Sequence[int] = "weight") -> GaussianMixture:
        """Give the same mixture with its components in another order.

        Parameters
        ----------
        order : 'weight', int, str or sequence of int, default='weight'
            'weight' puts the heaviest component first; a feature, by number, counted from 0, or by name
            (``feature_names_in_``), the one with the least mean of it; a sequence has the numbers of all components
            in their new order.

        Returns
        -------
        gm : GaussianMixture
            The fitted mixture.

        Examples
        --------
        >>> from gaussmix import GaussianMixture
        >>> gm = GaussianMixture.from_parameters([0.2, 0.8], [[0.0], [9.0]], [1.0, 1.0])
        >>> gm.sorted("weight").weights_, gm.sorted(0).weights_, gm.sorted([1, 0]).weights_
        (array([0.8, 0.2]), array([0.2, 0.8]), array([0.8, 0.2]))
        """
        check_is_fitted(self)
        mixture = self._point()
        if isinstance(order, str) and order == "weight":
            other = mixture.sorted()
        elif isinstance(order, (str, SupportsIndex)) and not isinstance(order, np.ndarray):
            other = mixture.sorted(feature=self._feature(order))
        else:
            other = mixture.sorted(numbers=[count(number, "a component in order", least=0) for number in order])
        gm = self._another(other)
        if isinstance(self, FittedMixture):
            # It was found by the same fit.
            for name in ("lower_bounds_", "lower_bound_", "n_iter_", "converged_"):
                setattr(gm, name, getattr(self, name))
        return gm


def _seed(random_state: int | np.random.RandomState | None) -> int:
    return int(check_random_state(random_state).randint(0, 2**31 - 1))
