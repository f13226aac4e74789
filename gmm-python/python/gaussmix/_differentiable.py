"""The log-likelihood as a function that other libraries differentiate."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._likelihood import Likelihood
from ._mixture import mixture_of
from ._start import shape_of

#: What both libraries are told who ask for more.
NO_SECOND_DERIVATIVES = (
    "gaussmix offers first derivatives of the log-likelihood, no second ones: its gradient cannot be differentiated. For "
    "those, write the log-likelihood in operations of {library}, or take differences of the gradient"
)

#: How far mirrored entries of a covariance may be apart, in units of its standard deviations. Twice the step of a check
#: by differences passes; a matrix that was never symmetric does not.
_ASYMMETRY = 1e-4


def arrays_of(covariance_type: str | None, weights: Any, means: Any, covariances: Any) -> tuple[Any, Any, Any]:
    """Return weights, means and covariances that are given as such, or as a mixture in the place of the weights."""
    if means is not None and covariances is not None:
        return weights, means, covariances
    mixture = mixture_of(weights, "what stands alone in the place of weights, means and covariances")
    mixture._check_no_noise("a gradient")
    # PyTorch takes arrays that may be changed only.
    weights, means, matrices = (np.array(part) for part in (mixture.weights, mixture.means, mixture.covariances))
    kind, (k, d) = mixture.covariance_type, means.shape
    if covariance_type not in (None, kind):
        raise ValueError(f"the mixture has {kind!r} covariances; covariance_type is {covariance_type!r}")
    if covariance_type is None and k == d and kind in ("tied", "diag"):
        # One shape is that of both types; a matrix for each component has one of its own.
        is_tied = kind == "tied"
        matrices = np.repeat(matrices[np.newaxis], k, 0) if is_tied else matrices[:, :, np.newaxis] * np.eye(d)
    return weights, means, matrices


class Parameters(NamedTuple):
    """The parameters of a mixture as the engine takes them, whether covariances are matrices, and what the weights summed to."""

    weights: NDArray[np.float64]
    means: NDArray[np.float64]
    covariances: NDArray[np.float64]
    matrices: bool
    total: float


def check_shapes(n_features: int, weights: Any, means: Any, covariances: Any, covariance_type: str | None) -> None:
    """Refuse arrays whose shapes do not fit together, of which the numbers are not known yet."""
    k = weights.shape[0] if weights.ndim == 1 else None
    if k is None:
        raise ValueError(f"the weights have the shape {weights.shape}; give one number for each component")
    if means.shape != (k, n_features):
        raise ValueError(
            f"the means have the shape {means.shape}; for {k} weights and {n_features} columns of the samples it is {(k, n_features)}"
        )
    kinds = ("full", "tied", "diag", "spherical") if covariance_type is None else (covariance_type,)
    shapes = [shape_of(kind, k, n_features) for kind in kinds]
    if covariances.shape not in shapes:
        raise ValueError(f"the covariances have the shape {covariances.shape}; give {' or '.join(map(str, dict.fromkeys(shapes)))}")


def _symmetric(covariances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the means of mirrored entries."""
    if covariances.shape[-1] != covariances.shape[-2]:
        # The engine says what shape it wants.
        return covariances
    mirrored = np.swapaxes(covariances, -1, -2)
    deviations = np.sqrt(np.abs(np.diagonal(covariances, axis1=-2, axis2=-1)))
    bound = _ASYMMETRY * deviations[..., :, np.newaxis] * deviations[..., np.newaxis, :]
    wrong = np.argwhere(np.abs(covariances - mirrored) > bound)
    if len(wrong):
        at = tuple(wrong[0].tolist())
        raise ValueError(
            f"the covariance at {at} is {covariances[at]} and its mirrored entry {mirrored[at]}; give symmetric matrices, "
            "such as the product of a factor with its transpose"
        )
    return (covariances + mirrored) / 2


class Differentiable:
    """The total log-likelihood Σᵢ vᵢ log Σₖ wₖ N(xᵢ; μₖ, Σₖ) of samples in a device, and its derivatives.

    The sample weights v are constants, the weights w any numbers that are not negative: they are not divided by their
    sum, so that each is a variable of its own. The samples are kept and must not change.
    """

    def __init__(self, samples: Any, sample_weight: Any = None, covariance_type: str | None = None, **options: Any) -> None:
        self.covariance_type = covariance_type
        self._samples = samples
        self._options = {"covariance_type": covariance_type, "copy": False, **options}
        self.likelihood = Likelihood(samples, sample_weight, **self._options)

    def parameters(self, weights: ArrayLike, means: ArrayLike, covariances: ArrayLike) -> Parameters:
        """Take weights that sum to anything, and covariances of which mirrored entries are variables of their own."""
        w, m, c = (np.asarray(p, dtype=np.float64) for p in (weights, means, covariances))
        total = float(w.sum())
        if not 0 < total < np.inf:
            raise ValueError(f"the weights sum to {total}; give numbers that are not negative, of which at least one is above 0")
        is_tied = self.covariance_type == "tied" or (self.covariance_type is None and c.shape != m.shape)
        matrices = c.ndim == 3 or (c.ndim == 2 and is_tied)
        return Parameters(w / total, m, _symmetric(c) if matrices else c, matrices, total)

    def __call__(self, *parameters: ArrayLike) -> float:
        """Return the total."""
        of = self.parameters(*parameters)
        return float(self.likelihood(*of[:3]) + self.likelihood.total_weight * np.log(of.total))

    def gradient(self, *parameters: ArrayLike) -> tuple[float, list[NDArray[np.float64]]]:
        """Return the total, and its derivatives by weights, means and covariances."""
        of = self.parameters(*parameters)
        value, by_weights, by_means, by_covariances = self.likelihood.gradient(*of[:3])
        return value + self.likelihood.total_weight * np.log(of.total), [by_weights / of.total, by_means, by_covariances]

    def score_samples(self, *parameters: ArrayLike) -> NDArray[np.float64]:
        """Return the log-likelihood of each sample, without its weight."""
        of = self.parameters(*parameters)
        return self.likelihood.score_samples(*of[:3]) + np.log(of.total)

    def gradient_of_scores(self, factors: NDArray[np.float64], *parameters: ArrayLike) -> list[NDArray[np.float64]]:
        """Return the derivatives, by the parameters, of the sum of the samples' log-likelihoods times factors of any sign."""
        of = self.parameters(*parameters)
        gradient = [np.zeros_like(parameter) for parameter in of[:3]]
        for sign in (1.0, -1.0):
            part = np.maximum(sign * factors, 0.0)
            if part.any():
                likelihood = Likelihood(self._samples, part, **self._options)
                for total, term in zip(gradient, likelihood.gradient(*of[:3])[1:], strict=True):
                    total += sign * term
        gradient[0] /= of.total
        return gradient

    def score_function(self, *parameters: ArrayLike) -> NDArray[np.float64]:
        """Return the derivatives of each sample's log-likelihood by the sample."""
        return self.likelihood.score_function(*self.parameters(*parameters)[:3])
