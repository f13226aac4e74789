"""Mixtures of one feature along their axis, distances between mixtures, and mixtures made of others."""

from __future__ import annotations

import math
import os
import signal
import threading
import time

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import sqrtm
from scipy.optimize import linprog
from scipy.stats import norm
from sklearn.exceptions import NotFittedError

from gaussmix import BayesianGaussianMixture, GaussianMixture, ManyMixtures, Mixture, gaussian_kernel, inner_products
from gaussmix._mixture import Estimate, OnAxis, Region, Transport
from gaussmix.mclust import hc

TYPES = ("full", "tied", "diag", "spherical")


@pytest.fixture(scope="module")
def two(iris: np.ndarray) -> tuple[Mixture, Mixture]:
    return GaussianMixture(2, random_state=0).fit(iris).mixture_, GaussianMixture(3, random_state=1).fit(iris).mixture_


def matrices(gm: Mixture) -> np.ndarray:
    """The covariance matrix of each component."""
    k, d = gm.means.shape
    if gm.covariance_type in ("full", "tied"):
        return np.broadcast_to(gm.covariances, (k, d, d))
    variances = gm.covariances if gm.covariance_type == "diag" else gm.covariances[:, np.newaxis]
    return variances[:, :, np.newaxis] * np.eye(d)


def test_one_feature_is_that_of_scipy(two: tuple[Mixture, Mixture]) -> None:
    gm = two[0].marginal(2)
    x = np.linspace(0, 8, 12).reshape(3, 4)
    terms = list(zip(gm.weights, gm.means[:, 0], np.sqrt(gm.covariances[:, 0, 0]), strict=True))
    truth = sum(w * norm(m, s).cdf(x) for w, m, s in terms)
    # Two implementations of erfc, each with an error in the last digits of the argument.
    np.testing.assert_allclose(gm.cdf(x), truth, rtol=1e-12)
    np.testing.assert_array_equal(two[0].cdf(x, feature=2), gm.cdf(x))
    assert isinstance(gm.cdf(1.5), float)
    p = np.array([1e-300, 0.01, 0.5, 0.99])
    np.testing.assert_allclose(gm.cdf(gm.quantile(p)), p, rtol=1e-11)
    draws, _ = gm.sample(50_000, random_state=0)
    # Five standard deviations of a share of the samples.
    assert abs((draws <= gm.quantile(0.3)).mean() - 0.3) < 5 * math.sqrt(0.21 / 50_000)
    region = gm.hdr(0.9)
    assert isinstance(region, Region) and region.intervals.shape == (2, 2)
    assert abs(np.diff(gm.cdf(region.intervals), axis=1).sum() - 0.9) < 1e-13
    np.testing.assert_allclose(sum(w * norm(m, s).pdf(region.intervals) for w, m, s in terms), region.density, rtol=1e-10)
    axis = gm.on_axis(50)
    assert isinstance(axis, OnAxis) and axis.components.shape == (50, 2)
    np.testing.assert_allclose(axis.density, sum(w * norm(m, s).pdf(axis.x) for w, m, s in terms), rtol=1e-11)
    np.testing.assert_allclose(axis.cdf, gm.cdf(axis.x), rtol=1e-15)


def test_one_feature_must_be_named(two: tuple[Mixture, Mixture]) -> None:
    for call in (lambda: two[0].cdf([0.0]), lambda: two[0].hdr(), two[0].on_axis):
        with pytest.raises(ValueError, match="the mixture has 4 features; name the one that is meant"):
            call()
    with pytest.raises(ValueError, match="from 0 to 1"):
        two[0].quantile([0.5, 2.0], feature=0)
    with pytest.raises(ValueError, match="above 0 and below 1"):
        two[0].hdr(1.0, feature=0)
    with pytest.raises(ValueError, match="no feature 4"):
        two[0].hdr(feature=4)


def test_distances(two: tuple[Mixture, Mixture]) -> None:
    p, q = two
    assert p.cauchy_schwarz(p) == p.l2_distance(p) == p.transport(p).distance == 0.0
    assert p.cauchy_schwarz(q) == pytest.approx(q.cauchy_schwarz(p), rel=1e-12)
    assert p.l2_distance(q) > 0.0
    kl = p.kl_divergence(q, 5_000, random_state=3)
    assert isinstance(kl, Estimate) and kl == p.kl_divergence(q, 5_000, random_state=3)
    X, _ = p.sample(5_000, random_state=0)
    ratios = p.score_samples(X) - q.score_samples(X)
    spread = math.hypot(kl.standard_error, ratios.std() / math.sqrt(len(X)))
    # Both are estimates; four standard errors.
    assert abs(kl.value - ratios.mean()) < 4 * spread
    assert 0.0 < p.js_divergence(q, 5_000, random_state=0).value < math.log(2)
    assert p.hellinger_affinity(q).shape == (2, 3)
    np.testing.assert_allclose(np.diag(p.hellinger_affinity(p)), 1.0, rtol=1e-12)


@pytest.mark.parametrize(("first", "second"), [("full", "full"), ("tied", "diag"), ("diag", "spherical"), ("spherical", "full")])
def test_transport_is_that_of_scipy(iris: np.ndarray, first: str, second: str) -> None:
    p = GaussianMixture(4, covariance_type=first, random_state=0).fit(iris).mixture_
    # An estimator stands for its mixture.
    other = GaussianMixture(6, covariance_type=second, random_state=1).fit(iris + [0.3, 0.1, -0.4, 0.0])
    q = other.mixture_
    squares = np.empty((4, 6))
    for i, s in enumerate(matrices(p)):
        root = sqrtm(s)
        for j, t in enumerate(matrices(q)):
            cross = np.trace(sqrtm(root @ t @ root)).real
            squares[i, j] = ((p.means[i] - q.means[j]) ** 2).sum() + np.trace(s + t) - 2 * cross
    # The differences of traces near 1 lose digits that the engine's formula keeps.
    np.testing.assert_allclose(p.wasserstein(q) ** 2, squares, atol=1e-9)
    found = p.transport(other)
    assert isinstance(found, Transport)
    sums = np.concatenate([np.kron(np.eye(4), np.ones(6)), np.kron(np.ones(4), np.eye(6))])
    truth = linprog(squares.ravel(), A_eq=sums, b_eq=np.concatenate([p.weights, q.weights]))
    assert found.distance**2 == pytest.approx(truth.fun, rel=1e-8)
    np.testing.assert_allclose(found.plan.sum(axis=1), p.weights, atol=1e-14)
    np.testing.assert_allclose(found.plan.sum(axis=0), q.weights, atol=1e-14)


def test_made_of_others(two: tuple[Mixture, Mixture], iris: np.ndarray) -> None:
    p, q = two
    product, log_integral = p.product(q)
    assert (product.n_components, product.weights.shape) == (6, (6,))
    wanted = p.score_samples(iris) + q.score_samples(iris) - log_integral
    # Numbers near 10, of matrices with condition numbers near 100.
    np.testing.assert_allclose(product.score_samples(iris), wanted, atol=1e-10)
    total = Mixture.sum([p, q], [1, 3])
    wanted = np.logaddexp(p.score_samples(iris) + math.log(0.25), q.score_samples(iris) + math.log(0.75))
    np.testing.assert_allclose(total.score_samples(iris), wanted, atol=1e-10)
    np.testing.assert_allclose(Mixture.sum([p, p]).weights, np.tile(p.weights / 2, 2), rtol=1e-14)
    smaller, bound = total.reduce(2)
    assert smaller.weights.shape == (2,)
    np.testing.assert_allclose(smaller.weights @ smaller.means, total.weights @ total.means, rtol=1e-12)
    kl = total.kl_divergence(smaller, 5_000, random_state=0)
    assert kl.value - 4 * kl.standard_error < bound


def test_sorted_components(iris: np.ndarray) -> None:
    frame = pd.DataFrame(iris, columns=["a", "b", "c", "d"])
    for covariance_type in TYPES:
        gm = GaussianMixture(3, covariance_type=covariance_type, random_state=0).fit(frame).mixture_
        by_weight = gm.sorted()
        assert (np.diff(by_weight.weights) <= 0).all()
        by_mean = gm.sorted("c")
        assert (np.diff(by_mean.means[:, 2]) >= 0).all() and by_mean.feature_names == ("a", "b", "c", "d")
        np.testing.assert_array_equal(gm.sorted(2).means, by_mean.means)
        back = by_weight.sorted(np.argsort(np.argsort(-gm.weights, kind="stable")))
        np.testing.assert_array_equal(back.means, gm.means)
        np.testing.assert_allclose(by_mean.score_samples(frame), gm.score_samples(frame), rtol=1e-12)
        for bad in ([0, 1], [0, 1, 1]):
            with pytest.raises(ValueError, match="name each component once"):
                gm.sorted(bad)
    with pytest.raises(ValueError, match="no feature 'e'"):
        gm.sorted("e")


def test_other_features_are_refused(two: tuple[Mixture, Mixture], iris: np.ndarray) -> None:
    p, q = two
    with pytest.raises(ValueError, match=r"\[3, 2\]; expected \[3, 4\]"):
        p.product(q.marginal([0, 1]))
    with pytest.raises(TypeError, match="from_sklearn"):
        p.cauchy_schwarz(object())  # type: ignore[arg-type]
    frame = pd.DataFrame(iris, columns=["a", "b", "c", "d"])
    named = GaussianMixture(1).fit(frame).mixture_
    with pytest.raises(ValueError, match="other names of features"):
        named.l2_distance(named.marginal(["b", "a", "c", "d"]))
    assert named.sum([named, p]).feature_names == ("a", "b", "c", "d")
    with pytest.raises(ValueError, match="at least one"):
        Mixture.sum([])
    with pytest.raises(ValueError, match="n_components is 5"):
        p.reduce(5)
    with pytest.raises(NotFittedError):
        p.product(GaussianMixture(2))


@pytest.mark.parametrize("covariance_type", TYPES)
def test_a_posterior_is_the_mixture_of_its_attributes(
    two: tuple[Mixture, Mixture], iris: np.ndarray, covariance_type: str
) -> None:
    posterior = BayesianGaussianMixture(
        n_components=4, covariance_type=covariance_type, random_state=0, max_iter=1000, n_jobs=1, total_samples=7
    ).fit(iris)
    parameters = (posterior.weights_, posterior.means_, posterior.covariances_)
    gm, other = Mixture(*parameters, covariance_type=covariance_type), two[0]
    # Its density differs, by the uncertainty of the parameters.
    assert not np.allclose(posterior.score_samples(iris), gm.score_samples(iris), atol=1e-3)

    mixture = posterior.mixture_

    def same(made: object, expected: Mixture) -> None:
        assert type(made) is Mixture
        assert made.covariance_type == expected.covariance_type
        for name in ("weights", "means", "covariances"):
            # Its factors of the covariances are the attribute's, not factors of the rounded covariances.
            np.testing.assert_allclose(getattr(made, name), getattr(expected, name), rtol=1e-9, atol=1e-12)

    same(mixture.marginal([2, 0]), gm.marginal([2, 0]))
    same(mixture.condition({1: 3.0}), gm.condition({1: 3.0}))
    for order in ("weight", 2, [3, 1, 0, 2]):
        same(mixture.sorted(order), gm.sorted(order))
    if covariance_type == "full":
        # In either place, and in both.
        same(mixture.product(other)[0], gm.product(other)[0])
        same(other.product(posterior)[0], other.product(gm)[0])
        same(Mixture.sum([posterior, other]), Mixture.sum([gm, other]))
        same(Mixture.sum([other, posterior], [1, 2]), Mixture.sum([other, gm], [1, 2]))
    assert mixture.l2_distance(posterior) == 0.0
    assert mixture.cauchy_schwarz(other) == pytest.approx(gm.cauchy_schwarz(other), rel=1e-9)
    assert other.kl_divergence(posterior, random_state=0) == pytest.approx(other.kl_divergence(gm, random_state=0), rel=1e-9)
    assert mixture.js_divergence(other, random_state=0) == pytest.approx(gm.js_divergence(other, random_state=0), rel=1e-9)
    np.testing.assert_allclose(mixture.wasserstein(other), gm.wasserstein(other), rtol=1e-7)
    assert mixture.transport(other).distance == pytest.approx(gm.transport(other).distance, rel=1e-7)
    np.testing.assert_allclose(mixture.hellinger_affinity(other), gm.hellinger_affinity(other), rtol=1e-9)
    if covariance_type != "tied":
        (smaller, bound), (expected, expected_bound) = mixture.reduce(2), gm.reduce(2)
        same(smaller, expected)
        assert bound == pytest.approx(expected_bound, rel=1e-7)
    np.testing.assert_allclose(mixture.cdf([1.5, 5.0], feature=2), gm.cdf([1.5, 5.0], feature=2), rtol=1e-9)
    np.testing.assert_allclose(mixture.quantile([0.1, 0.9], feature=2), gm.quantile([0.1, 0.9], feature=2), rtol=1e-9)
    np.testing.assert_allclose(mixture.hdr(feature=2).intervals, gm.hdr(feature=2).intervals, rtol=1e-6)
    np.testing.assert_allclose(mixture.on_axis(feature=2).density, gm.on_axis(feature=2).density, rtol=1e-6)
    same(mixture.adapt(iris[:20], parameters=["means", "weights"]), gm.adapt(iris[:20], parameters=["means", "weights"]))
    np.testing.assert_array_equal(mixture.supervector(), posterior.means_.ravel())
    if covariance_type == "diag":
        np.testing.assert_allclose(mixture.fisher_vector(iris), gm.fisher_vector(iris), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize(
    "call",
    [
        "small.kl_divergence(small, 10**12)",
        "small.js_divergence(small, 10**12)",
        "big.reduce(2)",
        "big.wasserstein(big)",
        "gaussian_kernel(rows, rows, gamma=1e-3, device='reference')",
        "inner_products(rows, rows, device='reference')",
        "hc(many[:60_000], 'EII')",
        "groups.predict(many, np.repeat([0, 1], 150_000))",
    ],
)
def test_ctrl_c_ends_a_long_call(call: str) -> None:
    rng, k = np.random.default_rng(0), 6000
    small = Mixture([0.5, 0.5], [[0.0], [3.0]], [1.0, 1.0], covariance_type="spherical")
    matrices = (np.eye(3) + 0.5) * rng.uniform(1, 2, (k, 1, 1))
    big = Mixture(np.full(k, 1 / k), rng.normal(size=(k, 3)), matrices, covariance_type="full")
    rows = rng.normal(size=(4000, 500))
    many = rng.normal(size=(300_000, 20))
    groups = ManyMixtures(GaussianMixture(200)).fit([many[:400]] * 2)
    groups.estimator.set_params(device="reference")
    names = {"small": small, "big": big, "rows": rows, "many": many, "groups": groups, "hc": hc, "np": np}
    names |= {"gaussian_kernel": gaussian_kernel, "inner_products": inner_products}
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    begin = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        eval(call, names)
    # Each would take more than ten seconds.
    assert time.monotonic() - begin < 5
    timer.join()
