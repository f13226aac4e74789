"""Mixtures of one feature along their line, distances between mixtures, and mixtures made of others."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from gaussmix import Estimate, GaussianMixture


@pytest.fixture(scope="module")
def two(iris: np.ndarray) -> tuple[GaussianMixture, GaussianMixture]:
    return GaussianMixture(2, random_state=0).fit(iris), GaussianMixture(3, random_state=1).fit(iris)


def test_one_feature_is_that_of_scipy(two: tuple[GaussianMixture, GaussianMixture]) -> None:
    gm = two[0].marginal(2)
    x = np.linspace(0, 8, 12).reshape(3, 4)
    terms = zip(gm.weights_, gm.means_[:, 0], gm.covariances_[:, 0, 0], strict=True)
    truth = sum(w * norm(m, math.sqrt(v)).cdf(x) for w, m, v in terms)
    # Two implementations of erfc, each with an error in the last digits of the argument.
    np.testing.assert_allclose(gm.cdf(x), truth, rtol=1e-12)
    assert isinstance(gm.cdf(1.5), float)
    p = np.array([1e-300, 0.01, 0.5, 0.99])
    np.testing.assert_allclose(gm.cdf(gm.quantile(p)), p, rtol=1e-11)
    intervals = gm.hdr(0.9)
    assert intervals.shape == (2, 2)
    assert abs(np.diff(gm.cdf(intervals), axis=1).sum() - 0.9) < 1e-10
    with pytest.raises(ValueError, match="one feature; take the marginal"):
        two[0].cdf([0.0])
    with pytest.raises(ValueError, match="from 0 to 1"):
        gm.quantile([0.5, 2.0])


def test_distances(two: tuple[GaussianMixture, GaussianMixture]) -> None:
    p, q = two
    assert p.cauchy_schwarz(p) == p.l2_distance(p) == 0.0
    assert p.cauchy_schwarz(q) == pytest.approx(q.cauchy_schwarz(p), rel=1e-12)
    assert p.l2_distance(q) > 0.0
    kl = p.kl_divergence(q, 20_000, random_state=3)
    assert isinstance(kl, Estimate) and kl == p.kl_divergence(q, 20_000, random_state=3)
    X, _ = p.sample(20_000)
    ratios = p.score_samples(X) - q.score_samples(X)
    spread = math.hypot(kl.standard_error, ratios.std() / math.sqrt(len(X)))
    # Both are estimates; four standard errors.
    assert abs(kl.value - ratios.mean()) < 4 * spread
    assert 0.0 < p.js_divergence(q, 20_000, random_state=0).value < math.log(2)
    assert p.wasserstein(q).shape == p.hellinger_affinity(q).shape == (2, 3)
    np.testing.assert_allclose(np.diag(p.hellinger_affinity(p)), 1.0, rtol=1e-12)


def test_made_of_others(two: tuple[GaussianMixture, GaussianMixture], iris: np.ndarray) -> None:
    p, q = two
    product, log_integral = p.product(q)
    assert (product.n_components, product.weights_.shape) == (6, (6,))
    wanted = p.score_samples(iris) + q.score_samples(iris) - log_integral
    # Numbers near 10, of matrices with condition numbers near 100.
    np.testing.assert_allclose(product.score_samples(iris), wanted, atol=1e-10)
    union = GaussianMixture.union([p, q], [1, 3])
    wanted = np.logaddexp(p.score_samples(iris) + math.log(0.25), q.score_samples(iris) + math.log(0.75))
    np.testing.assert_allclose(union.score_samples(iris), wanted, atol=1e-10)
    np.testing.assert_allclose(GaussianMixture.union([p, p]).weights_, np.tile(p.weights_ / 2, 2), rtol=1e-14)
    smaller, bound = union.reduce(2)
    assert smaller.weights_.shape == (2,)
    np.testing.assert_allclose(smaller.weights_ @ smaller.means_, union.weights_ @ union.means_, rtol=1e-12)
    kl = union.kl_divergence(smaller, 10_000, random_state=0)
    assert kl.value - 4 * kl.standard_error < bound


def test_other_features_are_refused(two: tuple[GaussianMixture, GaussianMixture], iris: np.ndarray) -> None:
    p, q = two
    with pytest.raises(ValueError, match=r"\[3, 2\] where \[3, 4\]"):
        p.product(q.marginal([0, 1]))
    with pytest.raises(TypeError, match="from_sklearn"):
        p.cauchy_schwarz(object())  # type: ignore[arg-type]
    frame = pd.DataFrame(iris, columns=["a", "b", "c", "d"])
    named = GaussianMixture(1).fit(frame)
    with pytest.raises(ValueError, match="other names of features"):
        named.l2_distance(named.marginal(["b", "a", "c", "d"]))
    assert list(named.union([named, p]).feature_names_in_) == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="at least one"):
        GaussianMixture.union([])
    with pytest.raises(ValueError, match="n_components is 5"):
        p.reduce(5)
