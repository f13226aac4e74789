"""The Fisher vector of a set of samples under a mixture."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from . import _core
from ._fitted import Fitted


class FisherVectors(Fitted):
    """The method `fisher_vector` of mixtures with diagonal covariances."""

    @abstractmethod
    def _statistics(self, X: Any, sample_weight: Any, mixture: _core.Mixture) -> _core.Statistics:
        """Make the E-step under a mixture."""

    def fisher_vector(
        self,
        X: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        improved: bool = False,
        alpha: float = 0.5,
    ) -> NDArray[np.float64]:
        """Describe a set of samples, such as the features of an image, by the slope of its likelihood.

        It is the mean over the samples of the derivatives of the log density by weights, means and
        standard deviations, each over its own deviation in a sample of the mixture: numbers near 0
        where the samples are as the mixture says. One E-step gives them. The mixture must have
        'diag' covariances.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.
        sample_weight : array-like of shape (n_samples,), default=None
            A sample of weight 2 counts as two.
        improved : bool, default=False
            Whether to take the power `alpha` of each number, with its sign, and then to divide by
            the norm.
        alpha : float, default=0.5
            The power, above 0 and at most 1.

        Returns
        -------
        vector : ndarray of shape (n_components * (2 * n_features + 1),)
            The numbers and their order are those of :func:`skimage.feature.fisher_vector`: first of
            the weights, then of the means of each component, then of its standard deviations, with
            the opposite sign.

        References
        ----------
        F. Perronnin, J. Sánchez, T. Mensink: Improving the Fisher kernel for large-scale image
        classification, ECCV 2010.
        """
        check_is_fitted(self)
        if self.covariance_type != "diag":
            raise ValueError(
                f"a Fisher vector needs a mixture with 'diag' covariances; this one has {self.covariance_type!r} ones"
            )
        if not 0 < alpha <= 1:
            raise ValueError(f"alpha is {alpha!r}; give a power above 0 and at most 1")
        mixture = self._point()
        statistics = self._statistics(X, sample_weight, mixture)
        # Of a component: its share of the samples, the mean of its samples, and their mean square about the component's mean, each
        # times that share.
        share = (statistics.counts / statistics.weight)[:, np.newaxis]
        shift = share * (statistics.means - mixture.means)
        square = statistics.scatter / statistics.weight + shift * (statistics.means - mixture.means)
        root, variances = np.sqrt(mixture.weights)[:, np.newaxis], mixture.covariances
        parts = (
            (share[:, 0] - mixture.weights) / root[:, 0],
            shift / (root * np.sqrt(variances)),
            (share * variances - square) / (np.sqrt(2.0) * root * variances),
        )
        vector: NDArray[np.float64] = np.concatenate([part.ravel() for part in parts])
        if not improved:
            return vector
        powers = np.sign(vector) * np.abs(vector) ** alpha
        norm = np.linalg.norm(powers)
        improved_vector: NDArray[np.float64] = powers / norm if norm > 0 else powers
        return improved_vector
