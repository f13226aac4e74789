"""Standardisation: the means and variances of columns, and the units in which they are 0 and 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _core, _start
from ._arrays import Floats


@dataclass(frozen=True)
class Moments:
    """Means and variances of columns, of what is observed in them; ``a + b`` are those of the samples of both."""

    #: The weight of all samples.
    weight: float
    #: The weight of each column's observed values.
    counts: NDArray[np.float64]
    means: NDArray[np.float64]
    variances: NDArray[np.float64]

    @classmethod
    def of(cls, X: Floats, weights: NDArray[np.float64] | None) -> Moments:
        """Compute them for an array of at least one sample."""
        missing = np.isnan(X)
        if missing.any():
            return cls._of_observed(X, missing, weights)
        # Differences from the first sample lose nothing far from zero, and are exactly zero in a
        # constant column.
        origin = X[0].astype(np.float64)
        differences = X - origin
        means = np.average(differences, axis=0, weights=weights)
        variances = np.average((differences - means) ** 2, axis=0, weights=weights)
        weight = float(len(X)) if weights is None else float(weights.sum())
        return cls(weight, np.full(X.shape[1], weight), means + origin, variances)

    @classmethod
    def _of_observed(
        cls, X: Floats, missing: NDArray[np.bool_], weights: NDArray[np.float64] | None
    ) -> Moments:
        total = np.ones(len(X)) if weights is None else weights
        counts = total @ ~missing
        divisors = np.where(counts > 0, counts, 1.0)
        # As above, from the first value of each column; one without any has the mean 0.
        origin = np.nan_to_num(X[missing.argmin(axis=0), np.arange(X.shape[1])].astype(np.float64))
        differences = np.where(missing, 0.0, X - origin)
        means = total @ differences / divisors
        squares = np.where(missing, 0.0, differences - means) ** 2
        return cls(float(total.sum()), counts, means + origin, total @ squares / divisors)

    def __add__(self, other: Moments) -> Moments:
        counts = self.counts + other.counts
        divisors = np.where(counts > 0, counts, 1.0)
        difference = other.means - self.means
        share = other.counts / divisors
        means = np.where(self.counts > 0, self.means + share * difference, other.means)
        within = self.counts * self.variances + other.counts * other.variances
        variances = (within + self.counts * share * difference**2) / divisors
        return Moments(self.weight + other.weight, counts, means, variances)


class Units(NamedTuple):
    """Columns of mean 0 and standard deviation 1; for 'spherical' covariances, of the mean variance 1."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    covariance_type: str
    #: The share of each column's values that is observed, by weight.
    observed: NDArray[np.float64]

    @classmethod
    def of(cls, moments: Moments, covariance_type: str) -> Units:
        variances = moments.variances
        if covariance_type == "spherical":
            # Of which one number scales all columns.
            variances = np.full_like(variances, variances.mean())
        scale = np.sqrt(variances)
        scale = np.where(scale > 0, scale, 1.0)
        return cls(moments.means, scale, covariance_type, moments.counts / moments.weight)

    @staticmethod
    def check(covariance_type: str) -> None:
        if covariance_type == "spherical":
            raise ValueError(
                "standardize=True cannot give spherical covariances, because variances in the units of the data "
                "differ by column; use covariance_type='diag'"
            )

    @property
    def log_scale(self) -> float:
        # The mean over the samples, of which each counts with the columns that are observed in it.
        return float((np.log(self.scale) * self.observed).sum())

    def _factors(self) -> NDArray[np.float64]:
        """Return the factors of covariances, which broadcast over the components."""
        if self.covariance_type in ("full", "tied"):
            return np.outer(self.scale, self.scale)
        return self.scale**2 if self.covariance_type == "diag" else self.scale[:1] ** 2

    def apply(self, X: Floats) -> Floats:
        _core.check_memory("the standardised samples", X.shape, 8, "set standardize=False, and scale the columns before")
        return np.ascontiguousarray(((X - self.mean) / self.scale).astype(X.dtype, copy=False))

    def apply_to_parameters(self, parameters: _start.Parameters) -> _start.Parameters:
        weights, means, precisions = parameters
        if means is not None:
            means = (means - self.mean) / self.scale
        if precisions is not None:
            precisions = precisions * self._factors()
        return weights, means, precisions

    def apply_to_covariances(self, covariances: NDArray[np.float64]) -> NDArray[np.float64]:
        return covariances / self._factors()

    def apply_to_mixture(self, mixture: _core.Mixture | _core.VariationalMixture) -> _core.Mixture:
        means = (mixture.means - self.mean) / self.scale
        covariances = self.apply_to_covariances(mixture.covariances)
        return _core.Mixture(mixture.weights, means, covariances, self.covariance_type)

    def apply_to_posterior(self, posterior: _core.VariationalMixture) -> _core.VariationalMixture:
        prior = posterior.prior
        prior["mean"] = (prior["mean"] - self.mean) / self.scale
        prior["covariance"] = self.apply_to_covariances(prior["covariance"])
        return _with(posterior, prior, self.apply_to_mixture(posterior))

    def restore_posterior(self, posterior: _core.VariationalMixture) -> _core.VariationalMixture:
        prior = posterior.prior
        prior["mean"] = prior["mean"] * self.scale + self.mean
        prior["covariance"] = prior["covariance"] * self._factors()
        return _with(posterior, prior, self.restore(posterior))

    def restore(self, mixture: _core.Mixture | _core.VariationalMixture) -> _core.Mixture:
        means = mixture.means * self.scale + self.mean
        covariances = mixture.covariances * self._factors()
        return _core.Mixture(mixture.weights, means, covariances, self.covariance_type)


def _with(
    posterior: _core.VariationalMixture, prior: dict[str, Any], mixture: _core.Mixture
) -> _core.VariationalMixture:
    """Return a posterior another prior, and the means and covariances of a mixture."""
    concentration, beta, nu = posterior.weight_concentration, posterior.mean_precision, posterior.degrees_of_freedom
    return _core.VariationalMixture(prior, mixture, concentration, beta, nu)
