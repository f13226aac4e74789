"""`Likelihood`, comparisons of rows, and statistics as values."""

import pickle
import threading

import numpy as np
import pytest
from scipy import optimize, spatial, stats
from scipy.special import logsumexp

from gaussmix import GaussianMixture, InnerProducts, Likelihood, Mixture, Statistics, cluster, gaussian_kernel, inner_products
from gaussmix.deconvolution import Measurements

TYPES = ["full", "tied", "diag", "spherical"]


def problem(covariance_type, n=500, k=3, d=4, seed=0):
    """Samples, and the parameters of a mixture near them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    weights = rng.dirichlet(np.ones(k))
    means = rng.normal(size=(k, d))
    factors = rng.normal(size=(k, d, d)) / 2 + np.eye(d)
    full = factors @ factors.transpose(0, 2, 1)
    covariances = {"full": full, "tied": full[0], "diag": rng.uniform(0.5, 2.0, size=(k, d)), "spherical": rng.uniform(0.5, 2.0, size=k)}[
        covariance_type
    ]
    return x, weights, means, covariances


def matrices(covariances, covariance_type, k, d):
    if covariance_type == "full":
        return covariances
    if covariance_type == "tied":
        return [covariances] * k
    return [np.diag(np.broadcast_to(c, d)) for c in covariances]


def by_scipy(x, weights, means, covariances, covariance_type):
    parts = [
        np.log(w) + stats.multivariate_normal(m, c).logpdf(x)
        for w, m, c in zip(weights, means, matrices(covariances, covariance_type, *means.shape))
    ]
    return logsumexp(parts, axis=0)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_totals_scores_and_batches_agree_with_scipy(covariance_type):
    x, *parameters = problem(covariance_type)
    likelihood = Likelihood(x)
    exact = by_scipy(x, *parameters, covariance_type)
    # Sums of 500 terms in float64, in another order.
    total = likelihood(*parameters)
    assert isinstance(total, float)
    np.testing.assert_allclose(total, exact.sum(), rtol=1e-12)
    np.testing.assert_allclose(likelihood.score_samples(*parameters), exact, rtol=1e-10)
    sets = [problem(covariance_type, seed=seed)[1:] for seed in range(5)]
    totals = likelihood(*map(np.array, zip(*sets)))
    np.testing.assert_array_equal(totals, [likelihood(*one) for one in sets])
    weights = np.random.default_rng(1).uniform(size=len(x))
    np.testing.assert_allclose(Likelihood(x, weights)(*parameters), weights @ exact, rtol=1e-12)
    # float32: the bound of the README for a total near a fit.
    np.testing.assert_allclose(Likelihood(x.astype(np.float32))(*parameters), exact.sum(), atol=0.03)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_gradients_are_the_differences(covariance_type):
    x, *parameters = problem(covariance_type, n=60)
    likelihood = Likelihood(x, device="cpu")
    value, *gradient = likelihood.gradient(*parameters)
    np.testing.assert_allclose(value, likelihood(*parameters), rtol=1e-12)
    weights, means, covariances = parameters

    def total(flat, which):
        changed = [p.copy() for p in parameters]
        changed[which] = flat.reshape(changed[which].shape)
        return by_scipy(x, *changed, covariance_type).sum()

    for which in (0, 1):
        flat, steps = parameters[which].ravel(), 1e-5 * np.eye(parameters[which].size)
        by_differences = [(total(flat + step, which) - total(flat - step, which)) / 2e-5 for step in steps]
        # Central differences with this step err by third derivatives times 2e-11, and rounding by 1e-9.
        np.testing.assert_allclose(gradient[which].ravel(), by_differences, rtol=1e-6, atol=1e-6)
    # A covariance stays symmetric, so mirrored entries change together.
    rng = np.random.default_rng(0)
    for _ in range(5):
        step = rng.normal(size=covariances.shape)
        if covariance_type in ("full", "tied"):
            step = step + np.swapaxes(step, -1, -2)
        ends = [by_scipy(x, weights, means, covariances + h * step, covariance_type).sum() for h in (-1e-5, 1e-5)]
        np.testing.assert_allclose((gradient[2] * step).sum(), (ends[1] - ends[0]) / 2e-5, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_the_score_function_is_the_differences(covariance_type):
    x, *parameters = problem(covariance_type, n=60)
    steps = 1e-5 * np.eye(4)
    differences = [by_scipy(x + step, *parameters, covariance_type) - by_scipy(x - step, *parameters, covariance_type) for step in steps]
    # Differences with a step of 1e-5 of log-densities of some tens, rounded to 1e-15 of them.
    right = np.transpose(differences) / 2e-5
    of_likelihood = Likelihood(x, device="cpu", covariance_type=covariance_type).score_function(*parameters)
    np.testing.assert_allclose(of_likelihood, right, rtol=1e-7, atol=1e-7)
    gm = Mixture(*parameters, covariance_type=covariance_type)
    np.testing.assert_allclose(gm.score_function(x), right, rtol=1e-7, atol=1e-7)
    single = gm.score_function(x.astype(np.float32))
    np.testing.assert_allclose(single, right, rtol=1e-4, atol=1e-4)
    local = cluster.GaussianMixture(3, covariance_type=covariance_type, partition_rows=20, max_iter=5, tol=1e9).fit(x)
    with cluster.Likelihood(x, partition_rows=20) as likelihood:
        by_parts = likelihood.score_function(local)
    np.testing.assert_allclose(by_parts, local.mixture_.score_function(x), rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="expecting 4 features"):
        gm.score_function(x[:, :3])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.parametrize("weight", [0.0, 1e-300, 1e-50, 1e-12])
def test_the_gradient_by_a_weight_near_zero(weight, covariance_type, dtype):
    x, weights, means, covariances = problem(covariance_type, n=60)
    x = x.astype(dtype)
    weights = np.concatenate([[weight], weights[1:] / weights[1:].sum()])
    sample_weight = np.random.default_rng(2).uniform(size=60)
    sample_weight[:3] = 0
    value, *gradient = Likelihood(x, sample_weight, device="cpu").gradient(weights, means, covariances)
    with np.errstate(divide="ignore"):
        exact = by_scipy(x.astype(np.float64), weights, means, covariances, covariance_type)
        own = [by_scipy(x.astype(np.float64), only, means, covariances, covariance_type) for only in np.eye(3)]
    for k, one in enumerate(own):
        right = sample_weight @ np.exp(one - exact)
        # float32: a log-density of some tens is rounded to about 1e-6 of it.
        np.testing.assert_allclose(gradient[0][k], right, rtol=1e-10 if dtype == np.float64 else 2e-4)
    np.testing.assert_allclose(value, sample_weight @ exact, rtol=1e-10 if dtype == np.float64 else 1e-5)
    if weight == 0:
        assert not gradient[1][0].any()
        if covariance_type != "tied":
            assert not gradient[2][0].any()
    assert all(np.isfinite(part).all() for part in gradient)


def test_the_gradient_by_a_weight_of_zero_where_values_are_missing():
    x = np.array([[0.3, np.nan], [1.0, 0.5], [np.nan, np.nan]])
    weights, means = [0.0, 0.5, 0.5], [[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]]
    by_weights = Likelihood(x, covariance_type="diag", missing=True).gradient(weights, means, np.ones((3, 2)))[1]
    densities = np.array([[np.exp(-0.5 * np.nansum((row - mean) ** 2)) for mean in means] for row in x])
    right = (densities / (densities @ weights)[:, np.newaxis]).sum(axis=0)
    np.testing.assert_allclose(by_weights, right, rtol=1e-12)


def test_a_minimiser_of_scipy_finds_the_maximum_of_em():
    x = np.concatenate([np.random.default_rng(0).normal(size=(100, 1)) + c for c in (0.0, 6.0)])
    gm = GaussianMixture(2, covariance_type="spherical", tol=1e-9, max_iter=1000, reg_covar=0, random_state=0).fit(x)
    likelihood = Likelihood(x, device="cpu")

    def negative(theta):
        value, _, by_means, _ = likelihood.gradient(gm.weights_, theta[:, np.newaxis], gm.covariances_)
        return -value, -by_means[:, 0]

    found = optimize.minimize(negative, gm.means_[:, 0] + 0.3, jac=True)
    np.testing.assert_allclose(found.x, gm.means_[:, 0], atol=1e-4)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_statistics_are_values(covariance_type):
    x, *parameters = problem(covariance_type)
    whole = Likelihood(x).statistics(*parameters)
    parts = [Likelihood(part).statistics(*parameters) for part in np.array_split(x, 3)]
    merged = sum(parts)
    assert merged.weight == len(x) and merged.covariance_type == covariance_type
    for name in ("log_likelihood", "counts", "means", "scatter"):
        np.testing.assert_allclose(getattr(merged, name), getattr(whole, name), rtol=1e-10, atol=1e-10)
    for same in (Statistics.from_bytes(bytes(whole)), pickle.loads(pickle.dumps(whole))):
        assert same == whole and same != parts[0]
    fitted = merged.to_mixture(1e-6)
    np.testing.assert_allclose(fitted.weights, whole.counts / len(x))
    for bad in (b"", bytes(whole)[:-1], b"x" * 100, bytes(whole) + b"\0" * 8, bytes(whole)[:8] + b"\xff" * 24):
        with pytest.raises(ValueError, match="not those of statistics"):
            Statistics.from_bytes(bad)
    with pytest.raises(ValueError, match="statistics to be merged"):
        whole + Likelihood(x).statistics([1.0], np.zeros((1, 4)), {"full": np.eye(4)[np.newaxis]}.get(covariance_type, np.ones(1)))


def test_errors():
    x, *parameters = problem("diag", k=4)
    with pytest.raises(ValueError, match="may be 'tied' or 'diag'"):
        Likelihood(x)(*parameters)
    assert np.isfinite(Likelihood(x, covariance_type="diag")(*parameters))
    with pytest.raises(ValueError, match="weights sum to"):
        Likelihood(x, covariance_type="diag")(parameters[0] * 2, *parameters[1:])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        Likelihood(np.full((2, 2), np.nan))
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(Likelihood(x))
    with pytest.raises(ValueError, match="for sets of parameters"):
        Likelihood(x, covariance_type="diag")(parameters[0][np.newaxis], parameters[1], parameters[2])


def test_a_copy_does_not_change_with_the_array():
    x, *parameters = problem("full")
    x = x.astype(np.float32)
    likelihood, total = Likelihood(x), Likelihood(x)(*parameters)
    x[:] = 7.0
    assert likelihood(*parameters) == total


def test_threads_take_turns():
    x, *parameters = problem("full", n=20_000)
    likelihood = Likelihood(x, device="cpu")
    expected, found = likelihood(*parameters), []

    def work():
        found.extend(likelihood(*parameters) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 80


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_comparisons_of_rows(dtype):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(50, 7)).astype(dtype), rng.normal(size=(30, 7)).astype(dtype)
    tolerance = 1e-5 if dtype == np.float32 else 1e-13
    products = inner_products(a, b)
    assert products.dtype == dtype
    np.testing.assert_allclose(products, a @ b.T, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(InnerProducts(b)(a), products)
    exact = np.exp(-0.3 * spatial.distance.cdist(a, b, "sqeuclidean"))
    np.testing.assert_allclose(gaussian_kernel(a, b, gamma=0.3), exact, rtol=10 * tolerance)
    np.testing.assert_allclose(gaussian_kernel(a[:30], b, gamma=0.3, pairs=True), np.diag(exact), rtol=10 * tolerance)
    with pytest.raises(ValueError, match="gamma"):
        gaussian_kernel(a, b, gamma=-1.0)
    with pytest.raises(ValueError, match="NaN"):
        inner_products(a * np.nan, b)


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_measurements_have_a_likelihood_and_its_derivatives(covariance_type, groups):
    rng = np.random.default_rng(0)
    n, k, d = 90, 2, 3
    factors = rng.normal(size=(n, d, d)) / 3 + np.eye(d) / 2
    noise = factors @ factors.transpose(0, 2, 1)
    if groups:
        noise = noise[:2], np.arange(n) % 2
    X = rng.normal(size=(n, d)) * 2
    weights, means = np.array([0.3, 0.7]), rng.normal(size=(k, d))
    factors = rng.normal(size=(k, d, d)) / 2 + np.eye(d)
    full = factors @ factors.transpose(0, 2, 1)
    covariances = {"full": full, "tied": full[0], "diag": rng.uniform(0.5, 2, (k, d)), "spherical": rng.uniform(0.5, 2, k)}[covariance_type]
    likelihood = Likelihood(Measurements(X, noise), rng.uniform(0.5, 2, n), covariance_type=covariance_type, device="cpu")
    value, by_weights, by_means, by_covariances = likelihood.gradient(weights, means, covariances)
    assert value == pytest.approx(likelihood(weights, means, covariances), rel=1e-12)
    step = 1e-6

    def difference(name, at):
        sides = []
        for h in (step, -step):
            moved = {"means": means.copy(), "covariances": covariances.copy()}
            moved[name][at] += h
            if name == "covariances" and covariance_type in ("full", "tied") and at[-1] != at[-2]:
                moved[name][(*at[:-2], at[-1], at[-2])] += h
            sides.append(likelihood(weights, **moved))
        return (sides[0] - sides[1]) / (2 * step)

    assert by_means[1, 2] == pytest.approx(difference("means", (1, 2)), rel=1e-5)
    at = {"full": (1, 2, 0), "tied": (2, 0), "diag": (1, 2), "spherical": (1,)}[covariance_type]
    both = 2 if covariance_type in ("full", "tied") else 1
    assert both * by_covariances[at] == pytest.approx(difference("covariances", at), rel=1e-5)
    assert by_weights @ weights == pytest.approx(likelihood.total_weight, rel=1e-9)
