"""Times beside scikit-learn, and on a GPU beside PyTorch, in one run.

    pytest gmm-python/benches/speed.py --benchmark-group-by=group --benchmark-columns=median,rounds --benchmark-sort=name

needs pytest-benchmark; the GPU's part also PyTorch, and tgmm (mixtures in PyTorch) where it is installed.
"""

import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture as ScikitLearn

from gaussmix import GaussianMixture, Likelihood, _core

warnings.filterwarnings("ignore", message="Best performing")

CLASSES = {"gaussmix": GaussianMixture, "scikit-learn": ScikitLearn}
IRIS = Path(__file__).resolve().parents[2] / "data" / "iris.csv"
K, D, ITERATIONS = 8, 13, 10
CENTRES = np.random.default_rng(0).normal(size=(K, D)) * 4


def clouds(n, dtype=np.float64):
    rng = np.random.default_rng(1)
    return (CENTRES[rng.integers(K, size=n)] + rng.normal(size=(n, D))).astype(dtype)


@pytest.fixture(scope="module")
def million():
    return clouds(10**6)


def start(covariance_type):
    """The parameters to start at, so that all make the same iterations."""
    gm = ScikitLearn(K, covariance_type=covariance_type, random_state=0, max_iter=1).fit(clouds(5000))
    return {
        "n_components": K,
        "covariance_type": covariance_type,
        "weights_init": gm.weights_,
        "means_init": gm.means_,
        "precisions_init": gm.precisions_,
        "max_iter": ITERATIONS,
        "tol": 0,
    }


@pytest.mark.parametrize("library", CLASSES)
@pytest.mark.benchmark(group="fit of iris, K=3 full")
def test_fit_of_iris(library, benchmark):
    x = np.loadtxt(IRIS, delimiter=",", skiprows=1)
    benchmark(lambda: CLASSES[library](3, random_state=0).fit(x))


@pytest.mark.parametrize("library", CLASSES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("covariance_type", ["diag", "full", "tied"])
def test_ten_iterations(library, dtype, covariance_type, million, benchmark):
    benchmark.group = f"ten iterations, N=10⁶ D={D} K={K} {covariance_type} {dtype}"
    x, params = million.astype(dtype), start(covariance_type)
    rounds = 1 if library == "scikit-learn" else 5
    benchmark.pedantic(lambda: CLASSES[library](**params).fit(x), rounds=rounds, warmup_rounds=rounds // 5)


@pytest.mark.parametrize("library", CLASSES)
@pytest.mark.parametrize("shape", ["iris", f"D={D} K={K}"])
@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_score_of_a_hundred(library, shape, covariance_type, benchmark):
    benchmark.group = f"score of N=100, {shape} {covariance_type}"
    x = np.loadtxt(IRIS, delimiter=",", skiprows=1) if shape == "iris" else clouds(2000)
    gm = CLASSES[library](3 if shape == "iris" else K, covariance_type=covariance_type, random_state=0).fit(x)
    benchmark(gm.score, x[:100])


@pytest.mark.benchmark(group="one value of the likelihood")
@pytest.mark.parametrize("n", [100, 10**6])
def test_likelihood(n, benchmark):
    gm = GaussianMixture(K, covariance_type="diag", random_state=0).fit(clouds(2000))
    likelihood = Likelihood(clouds(n, np.float32), covariance_type="diag")
    benchmark(likelihood, gm.weights_, gm.means_, gm.covariances_)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("call", ["predict", "predict_proba", "score_samples", "score"])
def test_call_with_a_million_samples_of_the_host(call, device, million, benchmark):
    benchmark.group = f"{call}, N=10⁶ D={D} K={K} full float32"
    if device == "cuda":
        gpu()
    x = million.astype(np.float32)
    gm = GaussianMixture(K, random_state=0, device=device).fit(x[:10**4])
    benchmark.pedantic(getattr(gm, call), args=(x,), rounds=9, warmup_rounds=2)


# On a GPU: the samples are in its memory, in float32.


def gpu():
    """PyTorch, where it can be used and there is a GPU for both."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available() or not any(name == "cuda:0" and not why for name, _, why in _core.devices()):
        pytest.skip("no GPU")
    return torch


def em_in_torch(torch, x, params):
    """Ten iterations of EM for diagonal covariances, as one writes them with matrix products."""
    weights = torch.tensor(params["weights_init"], device="cuda", dtype=torch.float32)
    means = torch.tensor(params["means_init"], device="cuda", dtype=torch.float32)
    precisions = torch.tensor(params["precisions_init"], device="cuda", dtype=torch.float32)
    squares = x * x
    for _ in range(ITERATIONS):
        constant = weights.log() + 0.5 * (precisions.log().sum(1) - D * np.log(2 * np.pi))
        exponents = -0.5 * (squares @ precisions.T - 2 * x @ (means * precisions).T + (means**2 * precisions).sum(1))
        resp = torch.softmax(constant + exponents, dim=1)
        counts = resp.sum(0)
        means = resp.T @ x / counts[:, None]
        precisions = 1 / (resp.T @ squares / counts[:, None] - means**2 + 1e-6)
        weights = counts / len(x)
    return means


@pytest.mark.parametrize("library", ["gaussmix", "gaussmix, samples on the host", "PyTorch", "tgmm"])
@pytest.mark.benchmark(group=f"GPU: ten iterations, N=10⁶ D={D} K={K} diag float32")
def test_ten_iterations_on_a_gpu(library, benchmark):
    torch = gpu()
    host, params = clouds(10**6, np.float32), start("diag")
    x = torch.tensor(host, device="cuda")
    if library == "PyTorch":
        work = lambda: em_in_torch(torch, x, params)  # noqa: E731
    elif library == "tgmm":
        tgmm = pytest.importorskip("tgmm")
        work = lambda: tgmm.GaussianMixture(  # noqa: E731
            n_components=K, covariance_type="diag", max_iter=ITERATIONS, tol=1e-30, init_means="random", device="cuda"
        ).fit(x)
    else:
        work = lambda: GaussianMixture(**params, device="cuda").fit(x if library == "gaussmix" else host)  # noqa: E731

    def timed():
        work()
        torch.cuda.synchronize()

    benchmark.pedantic(timed, rounds=9, warmup_rounds=2)
