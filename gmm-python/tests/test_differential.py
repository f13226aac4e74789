"""Random mixtures, samples and fits of all kinds beside scikit-learn and the float64 reference.

A case is a function of its number. `GMM_DIFFERENTIAL=5000:15000` takes the cases from 5000 to 14,999 in the place of
the first hundred:

    GMM_DIFFERENTIAL=0:10000 pytest gmm-python/tests/test_differential.py
"""

import os
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import sklearn.mixture
from sklearn.exceptions import ConvergenceWarning

import gaussmix

FIRST, END = map(int, os.environ.get("GMM_DIFFERENTIAL", "0:100").split(":"))
TYPES = ["full", "tied", "diag", "spherical"]
# Relative rounding of a sum of some hundred products in float64, with a condition of the covariances up to 100 (`_case`)
# and means up to 100 standard deviations from the origin, where scikit-learn does not centre.
FLOAT64 = 1e-9


@dataclass
class Case:
    """A mixture and samples that it could have made, in units that differ from feature to feature."""

    rng: np.random.Generator
    covariance_type: str
    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    X: np.ndarray
    # A standard deviation of each feature.
    unit: np.ndarray

    def ours(self, **params):
        return gaussmix.GaussianMixture.from_parameters(
            self.weights, self.means, self.covariances, covariance_type=self.covariance_type, device="cpu"
        ).set_params(**params)

    def theirs(self):
        gm = sklearn.mixture.GaussianMixture(len(self.weights), covariance_type=self.covariance_type)
        gm.weights_, gm.means_, gm.covariances_ = self.weights, self.means, self.covariances
        compute = sklearn.mixture._gaussian_mixture._compute_precision_cholesky
        gm.precisions_cholesky_ = compute(self.covariances, self.covariance_type)
        return gm


def _case(number: int) -> Case:
    rng = np.random.default_rng([4711, number])
    kind = TYPES[rng.integers(4)]
    d, k = int(rng.integers(1, 13)), int(rng.integers(1, 7))
    n = int(rng.choice([1, 2, 7, 64, 65, 500]))
    # One unit for all features if the covariances have no directions.
    unit = 10.0 ** (rng.integers(-4, 5, size=d) if kind != "spherical" else np.full(d, rng.integers(-4, 5)))
    # Eigenvalues from 0.1 to 10, in random directions.
    rotations = np.linalg.qr(rng.normal(size=(k, d, d)))[0]
    matrices = (rotations * 10.0 ** rng.uniform(-1, 1, size=(k, 1, d))) @ rotations.swapaxes(1, 2)
    if kind == "tied":
        matrices = np.broadcast_to(matrices[0], matrices.shape)
    elif kind == "diag":
        matrices = np.stack([np.diag(10.0 ** rng.uniform(-1, 1, size=d)) for _ in range(k)])
    elif kind == "spherical":
        matrices = 10.0 ** rng.uniform(-1, 1, size=(k, 1, 1)) * np.eye(d)
    means = rng.normal(size=(k, d)) * rng.choice([0, 1, 5]) + rng.choice([0, 0, 100])
    component = rng.integers(k, size=n)
    X = means[component] + np.einsum("nij,nj->ni", np.linalg.cholesky(matrices)[component], rng.normal(size=(n, d)))
    matrices = matrices * np.outer(unit, unit)
    covariances = {
        "full": lambda: matrices,
        "tied": lambda: matrices[0],
        "diag": lambda: np.diagonal(matrices, axis1=1, axis2=2).copy(),
        "spherical": lambda: matrices[:, 0, 0].copy(),
    }[kind]()
    return Case(rng, kind, rng.dirichlet(np.full(k, 2.0)), means * unit, covariances, X * unit, unit)


def _near(what, got, truth, bound):
    error = np.abs(np.asarray(got, np.float64) - truth)
    worst = np.max(error / bound)
    assert worst <= 1, f"{what}: {worst:.3g} times the bound ({np.max(error):.3g} apart)"


def _scores_agree(case: Case) -> None:
    scores, shares = case.theirs().score_samples(case.X), case.theirs().predict_proba(case.X)
    size = 1 + np.abs(scores)
    for device in ["cpu", "reference"]:
        gm = case.ours(device=device)
        _near(f"scores by {device}", gm.score_samples(case.X), scores, FLOAT64 * size)
        # A share changes by the error of its log density.
        _near(f"shares by {device}", gm.predict_proba(case.X), shares, FLOAT64 * size[:, None])


def _float32_agrees(case: Case) -> None:
    X = case.X.astype(np.float32)
    scores = case.theirs().score_samples(X.astype(np.float64))
    # As for the backends: 16 roundings of D + 4 terms as large as the density in units of one, and its constant.
    size = np.abs(scores + np.log(case.unit).sum()) + X.shape[1]
    bound = 16 * np.sqrt(X.shape[1] + 4) * 2.0**-24 * size
    _near("float32", case.ours().score_samples(X), scores, bound)


def _missing_values_agree(case: Case) -> None:
    X = np.where(case.rng.random(case.X.shape) < 0.3, np.nan, case.X)
    cpu, reference = (case.ours(missing=True, device=device) for device in ["cpu", "reference"])
    scores = reference.score_samples(X)
    _near("scores", cpu.score_samples(X), scores, FLOAT64 * (1 + np.abs(scores)))
    shares = reference.predict_proba(X)
    _near("sum of shares", shares.sum(axis=1), 1, FLOAT64)
    _near("shares", cpu.predict_proba(X), shares, FLOAT64 * (1 + np.abs(scores[:, None])))
    # The density of the observed features is that of the marginal mixture.
    for row, score in zip(X[:5], scores[:5], strict=True):
        seen = np.flatnonzero(~np.isnan(row))
        truth = case.ours().mixture_.marginal(seen).score_samples(row[None, seen])[0] if len(seen) else 0.0
        _near("a row with gaps", score, truth, FLOAT64 * (1 + abs(truth)))


def _fits_agree(case: Case) -> None:
    n, d = case.X.shape
    k = min(len(case.weights), max(1, n // (4 * (d + 1))))
    if n < 4 * (d + 1) * k:
        return
    # The covariances' condition is bounded by the spread of the data in each unit.
    X, seed = case.X / case.unit, int(case.rng.integers(2**31))
    bayesian = case.rng.random() < 0.4
    weighted = not bayesian and case.rng.random() < 0.4
    name = "BayesianGaussianMixture" if bayesian else "GaussianMixture"
    # With samples as means, scikit-learn's first tied covariance measures all samples around the origin: docs/variational.md.
    starts = ["kmeans", "random"] + ["k-means++", "random_from_data"] * (not bayesian or case.covariance_type != "tied")
    options = {
        "n_components": k,
        "covariance_type": case.covariance_type,
        "tol": 0.0,
        "max_iter": 4,
        "reg_covar": 1e-3,
        "random_state": seed,
        "init_params": str(case.rng.choice(starts)),
    }
    if weighted:
        # A weight of two is a sample twice; scikit-learn has no weights, so both start from given parameters.
        counts = case.rng.integers(1, 4, size=n)
        precisions = {
            "full": np.tile(np.eye(d), (k, 1, 1)),
            "tied": np.eye(d),
            "diag": np.ones((k, d)),
            "spherical": np.ones(k),
        }
        options.pop("init_params")
        options |= {"weights_init": np.full(k, 1 / k), "means_init": X[case.rng.choice(n, k, replace=False)]}
        options["precisions_init"] = precisions[case.covariance_type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = getattr(sklearn.mixture, name)(**options).fit(np.repeat(X, counts, axis=0) if weighted else X)
        for device in ["cpu", "reference"]:
            ours = getattr(gaussmix, name)(device=device, **options)
            ours.fit(X, sample_weight=counts.astype(float)) if weighted else ours.fit(X)
            size = 1 + np.abs(theirs.means_).max()
            what = f"{name} by {device}: "
            # Four iterations carry the rounding of the first on; 1e-3 times the smallest variance bounds their amplification.
            _near(what + "weights", ours.weights_, theirs.weights_, 1e-7)
            _near(what + "means", ours.means_, theirs.means_, 1e-7 * size)
            _near(what + "covariances", ours.covariances_, theirs.covariances_, 1e-6 * size**2)
            _near(what + "bound", ours.lower_bound_, theirs.lower_bound_, 1e-7 * (1 + abs(theirs.lower_bound_)))


@pytest.mark.parametrize("check", [_scores_agree, _float32_agrees, _missing_values_agree, _fits_agree])
def test_random_cases(check):
    for number in range(FIRST, END):
        try:
            check(_case(number))
        except Exception as error:
            raise AssertionError(f"case {number}: {error}") from error
