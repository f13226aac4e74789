"""The likelihood of sequences under many models."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import _core
from ._base import Array, Lengths, sequences_of


class Likelihood:
    """The log-likelihood of sequences that are kept, for one set of parameters after the other.

    ``likelihood(startprob, transmat, means, covars)`` is the total log-likelihood, a float. With ``weights`` of shape
    (n_components, n_mix) each state has a mixture: means and covariances then have these two axes in front.
    `gaussmix.torch.MarkovLogLikelihood` and `gaussmix.jax.MarkovLogLikelihood` are the same for automatic
    differentiation.
    Parameters:
    covariance_type : {'diag', 'spherical', 'full', 'tied'}, default='diag' -- The type of the covariances.
    missing : bool, default=False -- Whether NaN stands for a value that is missing at random.
    device : str, default='cpu' -- Where to keep the sequences and compute, as of `GaussianHMM`.
    Examples:
    >>> from gaussmix.hmm import Likelihood
    >>> likelihood = Likelihood([[0.0], [1.0], [5.0]], covariance_type="spherical")
    >>> startprob, transmat, means, covars = [1.0, 0.0], [[0.5, 0.5], [0.0, 1.0]], [[0.0], [5.0]], [1.0, 1.0]
    >>> round(likelihood(startprob, transmat, means, covars), 4)
    -4.642
    """

    def __init__(
        self,
        X: Any,
        lengths: Lengths = None,
        *,
        sequence_weight: ArrayLike | None = None,
        covariance_type: str = "diag",
        missing: bool = False,
        device: str = "cpu",
    ) -> None:
        if covariance_type != _core.covariance_form(covariance_type):
            raise ValueError(f"covariance_type is {covariance_type!r}; use 'diag', 'spherical', 'full' or 'tied'")
        self._sequences = sequences_of(X, lengths, sequence_weight, missing, device)
        self._weights = None if sequence_weight is None else np.asarray(sequence_weight, dtype=np.float64).ravel()
        self._covariance_type = covariance_type

    def _engine(self, startprob: Any, transmat: Any, means: Any, covars: Any, weights: Any) -> _core.HiddenMarkov:
        means, covars = np.asarray(means, dtype=np.float64), np.asarray(covars, dtype=np.float64)
        k = len(np.asarray(startprob))
        weights = np.ones((k, 1)) if weights is None else np.asarray(weights, dtype=np.float64)
        if means.ndim == 3:
            means = means.reshape(-1, means.shape[-1])
            covars = covars if self._covariance_type == "tied" else covars.reshape(len(means), *covars.shape[2:])
        return _core.HiddenMarkov(startprob, transmat, weights.ravel() / weights.sum(), means, covars, self._covariance_type, False)

    def __call__(
        self, startprob: ArrayLike, transmat: ArrayLike, means: ArrayLike, covars: ArrayLike, weights: ArrayLike | None = None
    ) -> float:
        """Return the total log-likelihood; -inf for an impossible sequence."""
        scores = self._engine(startprob, transmat, means, covars, weights).score(self._sequences)
        return float(scores.sum() if self._weights is None else scores[self._weights > 0] @ self._weights[self._weights > 0])

    def gradient(
        self, startprob: ArrayLike, transmat: ArrayLike, means: ArrayLike, covars: ArrayLike, weights: ArrayLike | None = None
    ) -> tuple[float, list[Array]]:
        """Return the total log-likelihood and its derivatives.

        Each entry of the arrays is a variable of its own: probabilities need not sum to 1, and mirrored entries of a
        covariance matrix are two variables. A probability of 0 is a constant, whose derivative is 0.
        Parameters:
        startprob : array-like of shape (n_components,) -- The probabilities of the first states.
        transmat : array-like of shape (n_components, n_components) -- Those of the transitions.
        means : array-like of shape (n_components, n_features) or (n_components, n_mix, n_features) -- The means.
        covars : array-like -- The covariances, in the shape of their type.
        weights : array-like of shape (n_components, n_mix), default=None -- The weights within the states.
        Returns:
        value : float -- The total log-likelihood.
        derivatives : list of ndarray -- By the parameters in their order, as many and in the shapes as they were given.
        """
        engine = self._engine(startprob, transmat, means, covars, weights)
        value, (by_start, by_transitions, by_weights, by_means, by_covariances) = engine.gradient(self._sequences)
        parts = [by_start, by_transitions, by_means.reshape(np.shape(means)), by_covariances.reshape(np.shape(covars))]
        return value, parts if weights is None else [*parts, by_weights]
