"""Times scikit-learn and this crate on one machine, in one run, and prints the ratios.

    python benches/compare_sklearn.py [score | em [CASE ...] | start [SEEDS]]

`score`: one evaluation of the likelihood against GaussianMixture.score, over N. `em`: ten iterations of EM from a given
start against GaussianMixture.fit (its checks of the input included), all cases or those of these numbers, from 0; takes some
minutes. `start`: fits from a start by k-means, for seeds from 0. For `em` and `start` both sides have the same samples.

Needs NumPy and scikit-learn; both sides use all cores. Data: float32 around K centres.
"""
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import sklearn
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture

D, K = 13, 8
# N, D, K and the covariance type.
EM = [
    (1_000_000, 13, 8, "diag"), (1_000_000, 13, 8, "full"), (200_000, 64, 32, "diag"), (200_000, 64, 32, "full"),
    (50_000, 200, 16, "full"), (20_000, 500, 8, "full"),
]
# N, D, K and the clouds' standard deviation; the centres' is 1.
START = [(100_000, 13, 32, 0.6), (100_000, 13, 32, 1.0), (100_000, 2, 32, 0.2), (100_000, 64, 32, 1.0)]
SIZES = [100, 1_000, 10_000, 100_000, 1_000_000]
ROOT = Path(__file__).resolve().parents[1]


def scikit_learn(n):
    """Median seconds of one GaussianMixture.score."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((n, D)).astype(np.float32)
    model = GaussianMixture(K, covariance_type="diag")
    model.weights_ = np.full(K, 1 / K, np.float32)
    model.means_ = rng.standard_normal((K, D)).astype(np.float32)
    model.covariances_ = rng.uniform(0.5, 1.5, (K, D)).astype(np.float32)
    model.precisions_cholesky_ = 1 / np.sqrt(model.covariances_)
    model.score(x)
    seconds = []
    while len(seconds) < 5 or (sum(seconds) < 2 and len(seconds) < 1000):
        start = time.perf_counter()
        model.score(x)
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def criterion(bench, group, names):
    """Median seconds of this crate's benches by name, from the files that criterion writes."""
    folder = None
    medians = {}
    for name in names:
        command = ["cargo", "bench", "-p", "gaussmix", "--bench", bench, "--", f"{group}/{name}$"]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if folder is None:
            command = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
            metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
            folder = Path(metadata["target_directory"]) / "criterion" / group
        estimates = json.loads((folder / name.replace("/", "_") / "new" / "estimates.json").read_text())
        medians[name] = estimates["median"]["point_estimate"] * 1e-9
    return medians


def score():
    print(f"One evaluation of the likelihood; D={D}, K={K}, diag, float32; medians")
    print(f"{'N':>8} {'scikit-learn':>15} {'gmm cpu':>15} {'ratio':>7}")
    names = {n: f"cpu/diag/f32/N{n}/D{D}/K{K}" for n in SIZES}
    ours = criterion("likelihood", "log_likelihood", names.values())
    for n in SIZES:
        theirs, mine = scikit_learn(n), ours[names[n]]
        print(f"{n:>8} {theirs * 1e6:>12.1f} µs {mine * 1e6:>12.2f} µs {theirs / mine:>7.0f}")


def clouds(n, d, k, spread):
    """Samples (n, d) around k centres (k, d), which come second."""
    rng = np.random.default_rng(1)
    means = rng.standard_normal((k, d)).astype(np.float32)
    return means[np.arange(n) % k] + np.float32(spread) * rng.standard_normal((n, d), np.float32), means


def measure(folder, work, arrays, *arguments):
    """The numbers that `gmm-bench em` prints, line by line."""
    files = []
    for i, array in enumerate(arrays):
        files.append(str(folder / f"{i}.npy"))
        np.save(files[-1], array)
    command = ["cargo", "run", "--release", "--quiet", "-p", "gmm-bench", "--", "em", work]
    output = subprocess.run(command + files + list(map(str, arguments)), cwd=ROOT, check=True, capture_output=True)
    return [list(map(float, line.split())) for line in output.stdout.decode().splitlines()]


def ten_iterations(x, means, covariance_type):
    """Seconds of ten iterations of GaussianMixture.fit from a given start, and its last lower bound."""
    k, d = means.shape
    precisions = {"full": np.tile(2 * np.eye(d), (k, 1, 1)), "diag": np.full((k, d), 2.0)}[covariance_type]
    model = GaussianMixture(
        k, covariance_type=covariance_type, max_iter=10, tol=0, init_params="random", means_init=means,
        weights_init=np.full(k, 1 / k, np.float32), precisions_init=precisions.astype(np.float32),
    )
    start = time.perf_counter()
    model.fit(x)
    return time.perf_counter() - start, model.lower_bound_


def em(*chosen):
    print("Ten iterations of EM, float32; gmm cpu: median, with the loading of the samples")
    print(f"{'N':>8} {'D':>4} {'K':>4} {'type':>5} {'scikit-learn':>14} {'gmm cpu':>14} {'ratio':>7}  lower bounds")
    for n, d, k, t in [EM[int(i)] for i in chosen] or EM:
        x, means = clouds(n, d, k, 0.6)
        with tempfile.TemporaryDirectory() as folder:
            mine, our_bound = measure(Path(folder), "ten", [x, means], t)[0]
        theirs, bound = ten_iterations(x, means, t)
        ratio = theirs / mine
        print(f"{n:>8} {d:>4} {k:>4} {t:>5} {theirs:>12.2f} s {mine:>12.4f} s {ratio:>7.1f}  {bound:.5f} {our_bound:.5f}", flush=True)


def start(seeds=10):
    print(f"Fits from a start by k-means, spherical, tol 1e-3, {seeds} seeds: medians")
    print(f"{'N':>8} {'D':>4} {'K':>4} {'noise':>5} {'':>12} {'iterations':>11} {'of start':>10} {'in all':>10} {'lower bound':>12}")
    for n, d, k, spread in START:
        x, _ = clouds(n, d, k, spread)
        with tempfile.TemporaryDirectory() as folder:
            mine = measure(Path(folder), "start", [x], k, "spherical", seeds)
        theirs = []
        for seed in range(int(seeds)):
            begin = time.perf_counter()
            KMeans(k, n_init=1, random_state=seed).fit(x)
            middle = time.perf_counter()
            model = GaussianMixture(k, covariance_type="spherical", max_iter=500, random_state=seed).fit(x)
            end = time.perf_counter()
            theirs.append([middle - begin, end - middle, model.n_iter_, model.lower_bound_])
        for name, rows in [("scikit-learn", theirs), ("gmm cpu", mine)]:
            first, whole, iterations, bound = np.median(rows, axis=0)
            shape = f"{n:>8} {d:>4} {k:>4} {spread:>5}"
            print(f"{shape} {name:>12} {iterations:>11.1f} {first:>8.4f} s {whole:>8.3f} s {bound:>12.5f}", flush=True)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    print(f"scikit-learn {sklearn.__version__}, NumPy {np.__version__}")
    {"score": score, "em": em, "start": start}[sys.argv[1] if len(sys.argv) > 1 else "score"](*sys.argv[2:])
