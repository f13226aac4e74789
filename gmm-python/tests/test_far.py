"""Samples far from the others: values that stand for none, and rows that no component reaches."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gaussmix import GaussianMixture, select


@pytest.mark.parametrize("distance", [1e3, 1e10, 1e13, 1e16, 1e20])
def test_a_group_of_equal_samples_far_away(distance):
    """The bound is that of two points of 50 and 30 samples with the variance reg_covar."""
    X = np.r_[np.zeros((50, 1)), np.full((30, 1), distance)]
    shares = np.array([50, 30]) / 80
    exact = shares @ np.log(shares) - 0.5 * np.log(2 * np.pi * 1e-6)
    mixture = GaussianMixture(2, random_state=0, device="cpu").fit(X)
    assert_allclose(mixture.score(X), exact, rtol=1e-9)
    assert_allclose(mixture.bic(X), -160 * exact + 5 * np.log(80), rtol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize(("dtype", "fill"), [("float64", 1e20), ("float32", 1e15), ("float64", -9999.0)])
def test_fill_values(covariance_type, dtype, fill):
    """The CPU gives what the reference gives, within 1e-9."""
    rng = np.random.default_rng(1)
    X = np.r_[rng.normal(0, 1, (500, 3)), rng.normal(6, 2, (500, 3))]
    X[rng.random(1000) < 0.05, 1] = fill
    X = X.astype(dtype)
    cpu, reference = (
        GaussianMixture(3, covariance_type=covariance_type, random_state=0, device=device, max_iter=5, tol=0).fit(X)
        for device in ("cpu", "reference")
    )
    # float32's statistics are those of float32 where its digits suffice.
    assert_allclose(cpu.lower_bound_, reference.lower_bound_, rtol=1e-9 if dtype == "float64" else 1e-6)
    assert_allclose(cpu.bic(X), reference.bic(X), rtol=1e-9 if dtype == "float64" else 1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_selection_with_a_fill_value():
    """Two components explain the data, of which one is that of the fill value."""
    rng = np.random.default_rng(1)
    X = np.r_[rng.normal(0, 1, (500, 3)), rng.normal(6, 2, (500, 3))]
    X[rng.random(1000) < 0.05, 1] = 1e20
    assert select(X, range(1, 4), random_state=0).best.n_components == 2


@pytest.mark.parametrize(("dtype", "far"), [("float32", 1e20), ("float64", 1e160)])
def test_one_row_infinitely_far(dtype, far):
    """It has -inf, without a warning, and costs the others nothing."""
    rng = np.random.default_rng(1)
    X = np.r_[rng.normal(0, 1, (200, 3)), rng.normal(6, 2, (200, 3))].astype(dtype)
    mixture = GaussianMixture(3, random_state=0).fit(X)
    rows = np.vstack([X[:2], np.full((1, 3), far, dtype)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = mixture.score_samples(rows)
        labels = mixture.predict(rows)
    assert scores[2] == -np.inf
    assert_allclose(scores[:2], mixture.score_samples(X[:2]), rtol=1e-6)
    assert_allclose(labels[:2], mixture.predict(X[:2]))
