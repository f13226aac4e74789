"""Starts: those of scikit-learn, from the same random numbers, and the engine's for more samples."""

import inspect
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as ScikitLearn
from threadpoolctl import threadpool_limits

import gaussmix
from gaussmix import GaussianMixture, _core, _start
from gaussmix.cluster import GaussianMixture as ClusterMixture
from gaussmix.cluster import InProcess

INITS = ["kmeans", "k-means++", "random", "random_from_data"]


def random_data(seed):
    """Return a random data set of a random kind, weights for every third one, and a number of clusters."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(5, 600)), int(rng.integers(1, 12))
    k = int(rng.integers(1, min(12, n) + 1))
    kind = seed % 5
    if kind == 0:
        x = rng.normal(size=(n, d))
    elif kind == 1:
        x = rng.normal(size=(n, d)) + rng.integers(0, 5, size=(n, 1)) * rng.uniform(1, 9, size=d)
    elif kind == 2:
        # Small integers, many of them equal.
        x = rng.integers(0, int(rng.integers(2, 30)), size=(n, d)).astype(float)
    elif kind == 3:
        x = rng.standard_t(1.5, size=(n, d)) * 10.0 ** rng.uniform(-8, 8)
    else:
        x = rng.normal(size=(n, d))[rng.integers(0, n, size=n)] + 1e3
    weights = rng.integers(0, 4, size=n) * rng.uniform() if seed % 3 == 1 else None
    if weights is not None and np.count_nonzero(weights) < k:
        weights = None
    x = x.astype(np.float32) if seed % 4 == 3 else x
    return (np.asfortranarray(x) if seed % 7 == 0 else x), weights, k


class Nudged(np.random.RandomState):
    """Random numbers that are slightly larger or smaller."""

    def __init__(self, seed, factor):
        super().__init__(seed)
        self.factor = factor

    def uniform(self, *args, **kwargs):
        return super().uniform(*args, **kwargs) * self.factor


def scikit_learn(algorithm, x, weights, k, random_state):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if algorithm == "kmeans":
            return KMeans(n_clusters=k, n_init=1, random_state=random_state).fit(x, sample_weight=weights).labels_
        return kmeans_plusplus(x, k, sample_weight=weights, random_state=random_state)[1]


def is_tie(algorithm, x, weights, k, seed, found):
    """Say whether scikit-learn itself gives something else than ``found`` if nothing but rounding changes.

    Its columns are put in another order, its values are changed in their last digits, or the random numbers by what
    the rounding of a sum over the samples is.
    """
    rng = np.random.default_rng(seed)
    eps = np.finfo(x.dtype).eps
    for _ in range(150):
        other = np.ascontiguousarray(x[:, rng.permutation(x.shape[1])])
        other *= 1 + eps * rng.integers(-2, 3, size=x.shape).astype(x.dtype)
        factor = 1 + rng.uniform(-1, 1) * eps * len(x)
        with threadpool_limits(1):
            if not np.array_equal(scikit_learn(algorithm, other, weights, k, Nudged(seed, factor)), found):
                return True
    return False


@pytest.mark.parametrize("algorithm", ["kmeans", "kmeans_plusplus"])
def test_the_same_clusters_as_scikit_learn_over_2000_data_sets(algorithm):
    ours = getattr(_core, algorithm)
    ties, different = [], []
    # Sums over samples by one thread, which adds them in their order.
    with threadpool_limits(1):
        for seed in range(2000):
            x, weights, k = random_data(seed)
            expected = scikit_learn(algorithm, x, weights, k, seed)
            found = ours(x, weights, k, np.random.RandomState(seed).random_sample(_core.n_uniforms(k)))
            if not np.array_equal(found, expected):
                (ties if is_tie(algorithm, x, weights, k, seed, expected) else different).append(seed)
    assert not different, different
    # Two centres as near to a sample (small integers), two draws that leave the same sum (two far rows near to each other).
    assert len(ties) <= 60, ties


@pytest.mark.parametrize("init_params", INITS)
@pytest.mark.parametrize("weights", [False, True])
def test_the_random_state_is_left_as_scikit_learn_leaves_it(init_params, weights, iris):
    ours, theirs = np.random.RandomState(3), np.random.RandomState(3)
    params = {"n_components": 3, "init_params": init_params, "n_init": 2, "max_iter": 1000}
    weights = np.ones(len(iris)) if weights else None
    gm = GaussianMixture(random_state=ours, **params).fit(iris, sample_weight=weights)
    expected = ScikitLearn(random_state=theirs, **params).fit(iris)
    if init_params != "random_from_data" or weights is None:
        # NumPy chooses with and without probabilities in different ways.
        assert all(np.array_equal(a, b) for a, b in zip(ours.get_state(), theirs.get_state(), strict=True))
        # The same optimum, up to the tolerance.
        assert abs(gm.lower_bound_ - expected.lower_bound_) < 1e-6


def test_seeds_of_all_kinds(iris):
    expected = GaussianMixture(3, random_state=5).fit(iris).means_
    np.random.seed(5)
    for seed in (None, np.int64(5), np.random.RandomState(5)):
        assert np.array_equal(GaussianMixture(3, random_state=seed).fit(iris).means_, expected)
    with pytest.raises(ValueError, match="must be an int in the range"):
        GaussianMixture(3, random_state=-1).fit(iris)
    # A random state around another generator returns its own numbers.
    other = [c(3, random_state=np.random.RandomState(np.random.PCG64(1))).fit(iris) for c in (GaussianMixture, ScikitLearn)]
    np.testing.assert_allclose(other[0].means_, other[1].means_, atol=1e-6)


def test_a_fit_in_a_callback_has_its_own_random_numbers(iris):
    def inner(iteration):
        GaussianMixture(2, random_state=9).fit(iris)

    params = {"n_components": 4, "n_init": 3, "random_state": 1, "max_iter": 500}
    plain = GaussianMixture(**params).fit(iris)
    assert np.array_equal(GaussianMixture(callback=inner, **params).fit(iris).means_, plain.means_)


def test_a_fit_calls_no_k_means_of_scikit_learn(iris, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("scikit-learn's k-means is called")

    monkeypatch.setattr(KMeans, "fit", refuse)
    monkeypatch.setattr("sklearn.cluster._kmeans._kmeans_plusplus", refuse)
    for init_params in INITS:
        GaussianMixture(3, init_params=init_params, random_state=0, max_iter=1000).fit(iris)
    assert "sklearn.cluster" not in inspect.getsource(gaussmix._start)


# In a separate interpreter, because threads of OpenMP from another test would make it hang.
FORK = """
import multiprocessing, numpy as np
from gaussmix import GaussianMixture
X = np.random.default_rng(0).normal(size=(3000, 3))
def fit(seed): return GaussianMixture(2, random_state=seed, max_iter=1000).fit(X).lower_bound_
if __name__ == "__main__":
    here = [fit(seed) for seed in range(3)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(fit, range(3)).get(60) == here
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_default_start_in_parent_and_forked_children(tmp_path):
    script = tmp_path / "fork.py"
    script.write_text(FORK)
    subprocess.run([sys.executable, str(script)], check=True, timeout=120)


def test_fewer_clusters_than_components_are_told_of():
    x = np.repeat([[0.0, 1.0], [5.0, 2.0]], 50, axis=0)
    with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(2\) found smaller than n_clusters \(3\)") as told:
        GaussianMixture(3, random_state=0).fit(x)
    assert told[0].filename == __file__


@pytest.mark.parametrize("n", [400, 20_000])
@pytest.mark.parametrize("init_params", INITS)
def test_fewer_weighted_rows_than_components(n, init_params):
    x, weights = np.random.default_rng(0).normal(size=(n, 3)), np.zeros(n)
    weights[:2] = 1
    message = "only 2 samples have a weight above zero, too few for 3 components; use at most 2"
    for gm in (
        GaussianMixture(3, init_params=init_params, random_state=0),
        ClusterMixture(3, init_params=init_params, random_state=0, engine=InProcess(), partition_rows=n // 3 + 1),
    ):
        with pytest.raises(ValueError, match=message):
            gm.fit(x, sample_weight=weights)
        assert gm.set_params(n_components=2).fit(x, sample_weight=weights).converged_


def bounds(x, k, seeds, make=GaussianMixture, **params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.array([make(k, random_state=seed, **params).fit(x).lower_bound_ for seed in seeds])


def cluster(*args, **params):
    return ClusterMixture(*args, engine=InProcess(2), partition_rows=7001, **params)


@pytest.mark.parametrize("make", [GaussianMixture, cluster], ids=["array", "partitions"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rare", [1, 2, 5, 20])
def test_rare_rows_are_found_above_16384_samples(rare, dtype, make):
    x = np.zeros((20_000, 2), dtype)
    x[-rare:] = 1
    # Two points, each with the covariance reg_covar.
    share = rare / len(x)
    expected = share * np.log(share) + (1 - share) * np.log1p(-share) - np.log(2 * np.pi * 1e-6)
    # The tolerance of a fit, and float32's digits of numbers around 12.
    np.testing.assert_allclose(bounds(x, 2, range(6), make), expected, atol=1e-4)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e4])
def test_a_rare_row_is_found_at_any_scale(scale, offset):
    x = np.full((30_000, 2), offset)
    x[12_345] += scale
    gm = GaussianMixture(2, covariance_type="spherical", reg_covar=1e-10 * scale**2, random_state=0).fit(x)
    assert sorted(gm.predict(x).tolist()).count(int(gm.weights_.argmin())) == 1


def test_a_rare_row_counts_by_its_weight():
    # Rows without weight are far away, and far more than those with weight.
    x = np.zeros((40_000, 2))
    x[10_000:] = np.random.default_rng(0).normal(size=(30_000, 2)) * 100
    x[7] = 3
    weights = np.zeros(len(x))
    weights[:10_000] = 1
    gm = GaussianMixture(2, random_state=1).fit(x, sample_weight=weights)
    np.testing.assert_allclose(np.sort(gm.weights_), [1e-4, 1 - 1e-4], atol=1e-9)


def test_few_distinct_rows_are_all_found():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 50, (12, 2))
    x = rows[rng.choice(12, 30_000, p=rng.dirichlet(np.full(12, 0.3)))].astype(float)
    _, counts = np.unique(x, axis=0, return_counts=True)
    share = counts / len(x)
    # Each distinct row is a component with the covariance reg_covar: a bound that no other mixture of 12 reaches.
    best = (share * np.log(share)).sum() - np.log(2 * np.pi * 1e-6)
    assert bounds(x, 12, range(20), covariance_type="diag").min() > best - 1e-3


def images(n):
    rng = np.random.default_rng(1)
    digits = load_digits().data
    return digits[rng.integers(0, len(digits), size=n)] + rng.normal(size=(n, 64))


def blobs(n):
    rng = np.random.default_rng(2)
    return rng.uniform(-20, 20, size=(15, 4))[rng.integers(0, 15, size=n)] + rng.normal(size=(n, 4))


def heavy(n):
    return np.random.default_rng(3).standard_t(2, size=(n, 3))


@pytest.mark.parametrize(("data", "k"), [(blobs, 15), (images, 10), (heavy, 4)])
def test_the_large_start_is_as_good_as_scikit_learns(data, k):
    x = data(20_000)
    params = {"covariance_type": "diag", "tol": 1e-4, "max_iter": 300}
    ours = bounds(x, k, range(8), **params)
    with threadpool_limits(1):
        theirs = bounds(x, k, range(8), ScikitLearn, **params)
    # The mean over starts is at least as good as chance would make eight of them.
    spread = np.sqrt((ours.var() + theirs.var()) / 7) + 1e-3
    assert ours.mean() > theirs.mean() - 3 * spread, (ours, theirs)


def test_partitions_start_as_one_array():
    x = blobs(20_000)
    fits = [make(15, random_state=3, covariance_type="diag").fit(x) for make in (GaussianMixture, cluster)]
    np.testing.assert_allclose(fits[0].means_, fits[1].means_, rtol=1e-6)


def test_threads_do_not_change_the_start():
    x = blobs(20_000)
    fits = [GaussianMixture(15, random_state=3, n_jobs=n, max_iter=1000).fit(x).means_ for n in (1, 2, 3)]
    assert np.array_equal(fits[0], fits[1]) and np.array_equal(fits[0], fits[2])
