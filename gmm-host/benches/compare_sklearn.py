"""Times scikit-learn's score and this crate's likelihood bench on one machine, in one run, and prints the ratios.

    python gmm-host/benches/compare_sklearn.py

Needs NumPy and scikit-learn; both sides use all cores. Data: float32, standard normal, D=13, K=8, diag.
"""
import json
import subprocess
import time
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


def this_crate():
    """Median seconds by size, from criterion's own files."""
    command = ["cargo", "bench", "-p", "gmm-host", "--bench", "likelihood", "--", "cpu/diag/f32/N.*/D13/K8"]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    metadata = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--no-deps"], cwd=ROOT, check=True, capture_output=True
    )
    folder = Path(json.loads(metadata.stdout)["target_directory"]) / "criterion" / "log_likelihood"
    medians = {}
    for n in SIZES:
        name = f"cpu/diag/f32/N{n}/D{D}/K{K}".replace("/", "_")
        estimates = json.loads((folder / name / "new" / "estimates.json").read_text())
        medians[n] = estimates["median"]["point_estimate"] * 1e-9
    return medians


def main():
    print(f"scikit-learn {sklearn.__version__}, NumPy {np.__version__}; D={D}, K={K}, diag, float32; medians")
    print(f"{'N':>8} {'scikit-learn':>14} {'gmm cpu':>14} {'ratio':>7}")
    ours = this_crate()
    for n in SIZES:
        theirs = scikit_learn(n)
        print(f"{n:>8} {theirs * 1e6:>11.1f} µs {ours[n] * 1e6:>11.2f} µs {theirs / ours[n]:>7.0f}")


if __name__ == "__main__":
    main()
