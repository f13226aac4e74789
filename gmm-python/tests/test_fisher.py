"""Fisher vectors: those of scikit-image, and slopes of the likelihood."""

import numpy as np
import pytest

from gaussmix import GaussianMixture, Likelihood, Mixture


@pytest.fixture(scope="module")
def gm():
    rng = np.random.default_rng(0)
    return Mixture(
        [0.2, 0.3, 0.4, 0.1],
        # No sample comes near the last component.
        np.vstack([rng.normal(size=(3, 5)), np.full(5, 100.0)]),
        rng.uniform(0.5, 2.0, size=(4, 5)),
        covariance_type="diag",
    )


@pytest.mark.parametrize("improved", [False, True])
def test_it_is_the_vector_of_scikit_image(gm, improved):
    feature = pytest.importorskip("skimage.feature", reason="scikit-image is not installed")
    rng = np.random.default_rng(1)
    for n in (1, 20, 5000):
        x = rng.normal(size=(n, 5)) + rng.normal(size=5)
        expected = feature.fisher_vector(x, gm.to_sklearn(), improved=improved, alpha=0.7)
        found = gm.fisher_vector(x, improved=improved, alpha=0.7)
        # The vector's rounding is that of its largest numbers; the power 0.7 amplifies it near 0.
        tolerance = 1e-12 if not improved else 1e-9
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=tolerance * np.abs(expected).max())


def test_it_is_the_slope_of_the_likelihood(gm):
    x = np.random.default_rng(2).normal(size=(200, 5))
    weights = np.linspace(0.5, 2, 200)
    found = gm.fisher_vector(x, sample_weight=weights)[4:].reshape(2, 4, 5)
    roots = np.sqrt(gm.weights[:, np.newaxis])

    def score(means, deviations):
        other = GaussianMixture.from_parameters(gm.weights, means, deviations**2, covariance_type="diag")
        return other.score(x, sample_weight=weights)

    means, deviations = gm.means, np.sqrt(gm.covariances)
    for k, j in np.ndindex(3, 5):
        step = np.zeros_like(means)
        step[k, j] = 1e-5
        by_mean = (score(means + step, deviations) - score(means - step, deviations)) / 2e-5
        by_deviation = (score(means, deviations + step) - score(means, deviations - step)) / 2e-5
        # Central differences are exact to the square of the step, and to rounding over the step.
        np.testing.assert_allclose(found[0, k, j], by_mean * deviations[k, j] / roots[k, 0], atol=1e-8)
        np.testing.assert_allclose(-found[1, k, j], by_deviation * deviations[k, j] / (np.sqrt(2) * roots[k, 0]), atol=1e-8)


def test_samples_of_the_mixture_have_a_small_vector():
    gm = Mixture([0.5, 0.5], [[0.0], [3.0]], [[1.0], [0.5]], covariance_type="diag")
    x, _ = gm.sample(100_000, random_state=0)
    # Each number has a standard deviation of at most about 1 / √n.
    assert np.abs(gm.fisher_vector(x)).max() < 5 / np.sqrt(100_000)
    assert np.abs(gm.fisher_vector(x + 1)).max() > 0.3


def test_missing_values_count_by_what_is_observed(gm):
    x = np.random.default_rng(3).normal(size=(50, 5))
    x[::2, 1] = np.nan
    means = gm.fisher_vector(x, missing=True)[4:24].reshape(4, 5)
    shares = gm.predict_proba(x, missing=True)
    statistics = Likelihood(x, missing=True).statistics(gm)
    np.testing.assert_allclose(gm.fisher_vector(statistics), gm.fisher_vector(x, missing=True), rtol=1e-12)
    seen = np.where(np.isnan(x)[:, np.newaxis], 0, x[:, np.newaxis] - gm.means)
    expected = np.einsum("nk,nkd->kd", shares, seen) / 50 / np.sqrt(gm.weights[:, np.newaxis] * gm.covariances)
    np.testing.assert_allclose(means, expected, rtol=1e-10, atol=1e-12)


def test_what_cannot_be_is_refused(gm, iris):
    with pytest.raises(ValueError, match="'diag' covariances; this one has 'full' ones"):
        GaussianMixture(2).fit(iris).mixture_.fisher_vector(iris)
    with pytest.raises(ValueError, match="alpha is 0"):
        gm.fisher_vector(iris, improved=True, alpha=0)
    with pytest.raises(ValueError, match="X has 4 features"):
        gm.fisher_vector(iris)
