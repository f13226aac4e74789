"""Times scikit-learn and this crate on one machine, in one run, and prints the ratios.

    python gmm-host/benches/compare_sklearn.py [score | em]

`score`: one evaluation of the likelihood against GaussianMixture.score, over N. `em`: ten iterations of EM from a given
start against GaussianMixture.fit (its checks of the input included); takes some minutes for each covariance type.

Needs NumPy and scikit-learn; both sides use all cores. Data: float32 around K centres.
"""
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import sklearn
from sklearn.mixture import GaussianMixture

D, K = 13, 8
SIZES = [100, 1_000, 10_000, 100_000, 1_000_000]
ROOT = Path(__file__).resolve().parents[2]


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
        command = ["cargo", "bench", "-p", "gmm-host", "--bench", bench, "--", f"{group}/{name}$"]
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


def ten_iterations(n, d, k, covariance_type):
    """Seconds of ten iterations of GaussianMixture.fit from a given start."""
    rng = np.random.default_rng(1)
    means = rng.standard_normal((k, d)).astype(np.float32)
    x = means[np.arange(n) % k] + 0.6 * rng.standard_normal((n, d), np.float32)
    precisions = np.eye(d, dtype=np.float32) * 2
    if covariance_type == "full":
        precisions = np.tile(precisions, (k, 1, 1))
    else:
        precisions = np.full((k, d), 2, np.float32)
    model = GaussianMixture(
        k, covariance_type=covariance_type, max_iter=10, tol=0, init_params="random", means_init=means,
        weights_init=np.full(k, 1 / k, np.float32), precisions_init=precisions,
    )
    start = time.perf_counter()
    model.fit(x)
    return time.perf_counter() - start


def em():
    print("Ten iterations of EM, float32")
    print(f"{'N':>8} {'D':>4} {'K':>4} {'type':>5} {'scikit-learn':>14} {'gmm cpu':>14} {'ratio':>7}")
    cases = [(n, d, k, t) for n, d, k in [(1_000_000, 13, 8), (200_000, 64, 32)] for t in ["diag", "full"]]
    names = {case: f"cpu/{case[3]}/{case[0]}/{case[1]}/{case[2]}/f32" for case in cases}
    ours = criterion("fit", "em", names.values())
    for case in cases:
        n, d, k, t = case
        theirs, mine = ten_iterations(*case), 10 * ours[names[case]]
        print(f"{n:>8} {d:>4} {k:>4} {t:>5} {theirs:>12.2f} s {mine:>12.3f} s {theirs / mine:>7.0f}")


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    print(f"scikit-learn {sklearn.__version__}, NumPy {np.__version__}")
    {"score": score, "em": em}[sys.argv[1] if len(sys.argv) > 1 else "score"]()
