"""Calls that need more memory than exists: an error before anything is allocated, and the process continues."""

import subprocess
import sys

import numpy as np
import pytest

import gaussmix.cluster
from gaussmix import GaussianMixture, InnerProducts, Likelihood, MixturePosterior, gaussian_kernel, inner_products, select

#: More bytes than any machine has.
MANY = 10**15


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).normal(size=(50, 3))


@pytest.fixture(scope="module")
def gm(x):
    return GaussianMixture(2, random_state=0, missing=True).fit(x)


def refused(match="of memory"):
    return pytest.raises(MemoryError, match=match)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_imputation(x, dtype):
    gm = GaussianMixture(2, random_state=0, missing=True).fit(x.astype(dtype))
    holes = np.full((30, 3), np.nan, dtype=dtype)
    for draws in (10**12, 2**62):
        with refused(f"the samples without gaps, of shape \\[{draws}, 30, 3\\], take .*; take fewer draws"):
            gm.impute(holes, draws=draws)
    with pytest.raises(ValueError, match=f"draws is {10**30}"):
        gm.impute(holes, draws=10**30)
    assert gm.impute(holes, draws=2).shape == (2, 30, 3)


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_draws(x, kind):
    gm = GaussianMixture(2, covariance_type=kind, random_state=0).fit(x)
    for n in (MANY, 10**30):
        with refused("the samples and their components.*draw fewer at a time"):
            gm.sample(n)
    assert gm.sample(5)[0].shape == (5, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_and_kernels(dtype):
    # 36 TB and more, for 3·10⁶ rows squared.
    rows = np.zeros((3_000_000, 1), dtype=dtype)
    with refused("the products, of shape .3000000, 3000000., take"):
        inner_products(rows, rows)
    matrix = InnerProducts(rows)
    with refused():
        matrix(rows)
    with refused("the kernel's values, of shape .3000000, 3000000., take"):
        gaussian_kernel(rows, rows, gamma=1.0)
    assert matrix(rows[:1]).shape == (1, 3_000_000)
    assert gaussian_kernel(rows, rows, gamma=1.0, pairs=True).shape == (3_000_000,)


@pytest.mark.parametrize("sampler", ["nuts", "metropolis", "ensemble"])
def test_chains(x, sampler):
    base = {"sampler": sampler, "random_state": 0}
    with refused("the chains, of shape .100000000000, .*use fewer chains"):
        MixturePosterior(1, chains=10**11, draws=1, **base).fit(x)
    with refused("the draws, of shape"):
        MixturePosterior(1, draws=10**13, **base).fit(x)
    with pytest.raises(ValueError, match="51 components"):
        MixturePosterior(51, **base).fit(x)
    with pytest.raises(ValueError, match="components"):
        MixturePosterior(10**12, **base).fit(x)
    for name in ("chains", "draws", "warmup", "thin", "order", "max_depth", "n_components"):
        for value in (10**30, -1):
            with pytest.raises(ValueError, match=f"{name} is {value}"):
                MixturePosterior(**{**base, name: value}).fit(x)
    posterior = MixturePosterior(1, draws=10, warmup=100, thin=1, **base).fit(x)
    with refused("the draws, of shape"):
        posterior.go_on(draws=10**13)


def test_fits():
    # 100,000 features: a matrix takes 75 GiB.
    wide = np.random.default_rng(0).normal(size=(20, 100_000))
    for kind in ("full", "tied"):
        for mixture in (GaussianMixture, gaussmix.cluster.GaussianMixture):
            with refused("the parameters and statistics of the components"):
                mixture(10, covariance_type=kind, random_state=0).fit(wide)
    with refused("the parameters and statistics of the components"):
        select(wide, 2, covariance_type="full")
    with pytest.raises(ValueError, match="'means' should have the shape of"):
        GaussianMixture(2, means_init=np.broadcast_to(0.0, (10**9, 10**6))).fit(wide)
    with pytest.raises(ValueError, match="n_components = 1000000000000, n_samples = 20"):
        GaussianMixture(10**12).fit(wide)


def test_arrays_that_repeat_one_number(x):
    likelihood = Likelihood(x, covariance_type="diag")
    weights, means, variances = np.ones(1), x[:1], np.ones((1, 3))
    sets = 10**12
    with refused("the numbers, of shape"):
        likelihood(
            np.broadcast_to(weights, (sets, 1)),
            np.broadcast_to(means, (sets, 1, 3)),
            np.broadcast_to(variances, (sets, 1, 3)),
        )
    assert likelihood(weights, means, variances) == likelihood(weights[None], means[None], variances[None])[0]
    for dtype in (np.float32, np.float64):
        with refused("the samples, of shape .100000000000, 3.*copy=False"):
            Likelihood(np.broadcast_to(np.ones(1, dtype), (10**11, 3)))


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is set as Linux has it")
def test_a_limit_of_the_process():
    """1 GiB above the process's memory is less than the machine has."""
    code = """
import resource
import numpy as np
from gaussmix import GaussianMixture
gm = GaussianMixture.from_parameters(np.full(20000, 5e-5), np.zeros((20000, 1)), np.ones(20000), covariance_type="spherical")
mixture = gm.mixture_
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)
for call in (lambda: gm.sample(10**8), lambda: mixture.cauchy_schwarz(gm), lambda: mixture.wasserstein(gm)):
    try:
        call()
    except MemoryError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.count("of memory") == 3, done.stdout + done.stderr


def test_probabilities(gm):
    k = 1 << 22
    many = GaussianMixture.from_parameters(
        np.full(k, 1 / k), np.zeros((k, 1)), np.ones(k), covariance_type="spherical", device="cpu"
    )
    with refused("the probabilities of the components, of shape .1048576, 4194304."):
        many.predict_proba(np.zeros((1 << 20, 1)))


def test_threads(x):
    for n_jobs in (10**5, 10**9, 10**30):
        for work in (
            lambda: GaussianMixture(2, n_jobs=n_jobs).fit(x),
            lambda: Likelihood(x, n_jobs=n_jobs),
            lambda: MixturePosterior(1, n_jobs=n_jobs).fit(x),
            lambda: gaussmix.cluster.GaussianMixture(2, n_jobs=n_jobs).fit(x),
        ):
            with pytest.raises(ValueError, match=f"n_jobs is {n_jobs}; at most 4096 threads"):
                work()
    few = GaussianMixture(2, random_state=0, n_jobs=3).fit(x)
    np.testing.assert_array_equal(few.means_, GaussianMixture(2, random_state=0, n_jobs=1).fit(x).means_)


def test_shards_without_partitions(x):
    engine = gaussmix.cluster.InProcess(10**12)
    gm = gaussmix.cluster.GaussianMixture(2, engine=engine, partition_rows=20, random_state=0).fit(x)
    np.testing.assert_allclose(gm.means_, GaussianMixture(2, random_state=0).fit(x).means_, rtol=1e-9)
