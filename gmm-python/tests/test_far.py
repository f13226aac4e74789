"""Samples far from the others: values that stand for missing ones, and rows that no component reaches."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gaussmix import GaussianMixture, GaussianMixtureClassifier, GaussianMixtureRegressor, Likelihood, select


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
    """The CPU agrees with the reference within 1e-9."""
    rng = np.random.default_rng(1)
    X = np.r_[rng.normal(0, 1, (500, 3)), rng.normal(6, 2, (500, 3))]
    X[rng.random(1000) < 0.05, 1] = fill
    X = X.astype(dtype)
    cpu, reference = (
        GaussianMixture(3, covariance_type=covariance_type, random_state=0, device=device, max_iter=5, tol=0).fit(X)
        for device in ("cpu", "reference")
    )
    # The statistics are in float32 if its digits suffice.
    assert_allclose(cpu.lower_bound_, reference.lower_bound_, rtol=1e-9 if dtype == "float64" else 1e-6)
    assert_allclose(cpu.bic(X), reference.bic(X), rtol=1e-9 if dtype == "float64" else 1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_selection_with_a_fill_value():
    """Two components explain the data, one of them for the fill value."""
    rng = np.random.default_rng(1)
    X = np.r_[rng.normal(0, 1, (500, 3)), rng.normal(6, 2, (500, 3))]
    X[rng.random(1000) < 0.05, 1] = 1e20
    assert select(X, range(1, 4), random_state=0).best.n_components == 2


@pytest.mark.parametrize(("dtype", "far"), [("float32", 1e20), ("float64", 1e160)])
def test_one_row_infinitely_far(dtype, far):
    """The row has -inf, without a warning, and does not affect the others."""
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


KINDS = {
    "full": np.array([[[1, 0.5], [0.5, 1]]] * 2),
    "tied": np.array([[1, 0.5], [0.5, 1.0]]),
    "diag": np.ones((2, 2)),
    "spherical": np.ones(2),
}


@pytest.mark.parametrize("device", ["auto", "reference"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("far", [1e6, 1e8, 1e10, 1e20])
def test_probabilities_sum_to_one_far_away(kind, device, far):
    """A log density is rounded there at more than ln 2; tolerances are a few roundings of the sums."""
    w, m, c = np.array([0.5, 0.5]), np.array([[0.0, 0.0], [0.0, 3.0]]), KINDS[kind]
    gm = GaussianMixture.from_parameters(w, m, c, covariance_type=kind).set_params(missing=True, device=device)
    X = np.array([[0.0, 0.1], [0.2, 0.3], [far, np.nan]])
    assert_allclose(gm.predict_proba(X).sum(axis=1), 1, rtol=1e-12)
    like = Likelihood(X, covariance_type=kind, missing=True, device=device)
    assert_allclose(like.statistics(w, m, c).counts.sum(), 3, rtol=1e-12)
    assert_allclose(like.score_function(w, m, c)[2, 0], -far, rtol=1e-12)
    slope = 0.5 if kind in ("full", "tied") else 0.0
    assert_allclose(gm.impute(X)[2, 1], 1.5 + slope * far, rtol=1e-12)
    assert_allclose(gm.mixture_.condition({0: far}).weights, [0.5, 0.5], rtol=1e-12)
    assert_allclose(gm.mixture_.product(gm)[0].weights.sum(), 1, rtol=1e-12)


def test_a_few_samples_of_large_matrices_far_away():
    """They are computed without the engine."""
    rng = np.random.default_rng(0)
    means = np.c_[np.zeros((2, 1)), rng.normal(size=(2, 199))]
    gm = GaussianMixture.from_parameters([0.5, 0.5], means, np.array([np.eye(200)] * 2), covariance_type="full")
    X = np.zeros((2, 200))
    X[1, 0] = 1e12
    assert_allclose(gm.predict_proba(X).sum(axis=1), 1, rtol=1e-12)


def test_a_row_beyond_all_squares():
    """The row does not affect its batch: -inf, and the probabilities of the nearest component, or of the classes without it."""
    rng = np.random.default_rng(0)
    X, y = np.r_[rng.normal(0, 1, (30, 2)), rng.normal(4, 2, (30, 2))], np.repeat([0, 1], 30)
    batch = np.array([[0.0, 0.0], [1e160, 0.0], [4.0, 4.0]])
    near = batch[[0, 2]]
    gm = GaussianMixture(2, random_state=0).fit(X)
    proba = gm.predict_proba(batch)
    assert_allclose(proba[[0, 2]], gm.predict_proba(near), rtol=1e-12)
    assert sorted(proba[1]) == [0, 1] and gm.predict(batch)[1] == proba[1].argmax()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier = GaussianMixtureClassifier(1, priors=[0.25, 0.75]).fit(X, y)
        assert_allclose(classifier.predict_proba(batch)[1], [0.25, 0.75], rtol=1e-12)
        assert_allclose(classifier.predict_proba(batch)[[0, 2]], classifier.predict_proba(near), rtol=1e-12)
        regressor = GaussianMixtureRegressor(2, random_state=0).fit(X[:, :1], X[:, 1])
        log_prob = regressor.log_prob(batch[:, :1], batch[:, 1])
        assert log_prob[1] == -np.inf and np.isfinite(log_prob[[0, 2]]).all()
        assert np.isfinite(regressor.predict(batch[:, :1])).all()


def test_the_density_of_a_target_far_away():
    """Differences of log densities have no digits left: one component is linear regression."""
    gm = GaussianMixture.from_parameters([1.0], [[0.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]]], covariance_type="full")
    rng = np.random.default_rng(0)
    regressor = GaussianMixtureRegressor(1).fit(*rng.normal(size=(2, 50, 1)))
    regressor.mixture_ = gm
    x = np.array([[1e3], [1e6], [1e12]])
    exact = -0.5 * np.log(2 * np.pi * 0.75) - 0.5 / 0.75
    # The first row consists of differences, which lose 1e-16 of half a million; for the others y - x/2 is exact.
    assert_allclose(regressor.log_prob(x, x[:, 0] / 2 + 1), exact, atol=1e-6)


@pytest.mark.parametrize("device", ["auto", "reference"])
@pytest.mark.parametrize("kind", ["full", "diag", "spherical"])
@pytest.mark.parametrize("missing", [False, True])
def test_the_gradient_by_a_weight_of_zero_far_away(missing, kind, device):
    """The narrow component explains nothing of the far row, so its density is a quarter of that of the component without weight. A log
    density is rounded there at more than ln 4; the ratio is exact except for a few roundings."""
    w, m = np.array([0.25, 0.75, 0.0]), np.zeros((3, 2))
    c = np.array([1.0, 0.25, 1.0])
    c = {"full": c[:, None, None] * np.eye(2), "diag": c[:, None] * np.ones(2), "spherical": c}[kind]
    X = np.array([[1e10, np.nan if missing else 0.0]])
    like = Likelihood(X, covariance_type=kind, missing=missing, device=device)
    assert_allclose(like.gradient(w, m, c)[1], [4, 0, 4], rtol=1e-12)
