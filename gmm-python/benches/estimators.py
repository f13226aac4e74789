"""Regression beside gmr, and Fisher vectors beside scikit-image: ``python gmm-python/benches/estimators.py [--rounds N]``.

Predictions are of 1,000,000 rows with 12 features and one target, K = 8 full; gmr predicts 200,000 of them, and its time is scaled. Times
are the best of the rounds, because others may use the cores.
"""

import argparse
import os
import time

import gmr
import numpy as np
from skimage.feature import fisher_vector

import gaussmix


def best(work, rounds):
    """Give the result, and the least seconds."""
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - begin)
    return result, min(seconds)


def regression(rounds):
    rng = np.random.default_rng(0)
    n, some, d, k = 1_000_000, 200_000, 12, 8
    rows = rng.normal(size=(n, d + 1)) + 2 * rng.normal(size=(k, d + 1))[rng.integers(0, k, n)]
    rows[:, -1] += rows[:, :3].sum(axis=1)
    x, y = rows[:, :d].copy(), rows[:, d].copy()
    ours = gaussmix.GaussianMixtureRegressor(k, random_state=0, device="cpu").fit(x[:50_000], y[:50_000])
    gm = ours.mixture_
    theirs = gmr.GMM(k, priors=gm.weights, means=gm.means, covariances=gm.covariances)
    found, seconds = best(lambda: ours.predict(x), rounds)
    expected, slow = best(lambda: theirs.predict(np.arange(d), x[:some]), min(rounds, 2))
    slow *= n / some
    print(f"predict: gmr {slow:.2f} s, gaussmix {seconds:.3f} s, {slow / seconds:.1f} times; ", end="")
    print(f"they differ by {np.abs(found[:some] - expected[:, 0]).max():.0e}")
    print(f"with deviations {best(lambda: ours.predict(x, return_std=True), rounds)[1]:.3f} s, ", end="")
    print(f"log_prob {best(lambda: ours.log_prob(x, y), rounds)[1]:.3f} s")


def fisher(rounds):
    rng = np.random.default_rng(0)
    for n, d, k in ((1000, 64, 64), (100_000, 64, 64)):
        x = rng.normal(size=(n, d))
        gm = gaussmix.Mixture(
            np.full(k, 1 / k), 0.3 * rng.normal(size=(k, d)), rng.uniform(0.5, 2, (k, d)), covariance_type="diag"
        )
        other = gm.to_sklearn()
        found, seconds = best(lambda: gm.fisher_vector(x), rounds)  # noqa: B023
        expected, slow = best(lambda: fisher_vector(x, other), rounds)  # noqa: B023
        print(f"Fisher vector of {n} x {d}, K = {k}: scikit-image {1e3 * slow:.1f} ms, ", end="")
        print(f"gaussmix {1e3 * seconds:.2f} ms, {slow / seconds:.1f} times; they differ by {np.abs(found - expected).max():.0e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print(f"gaussmix {gaussmix.__version__}, gmr {gmr.__version__}, {os.cpu_count()} cores")
    regression(options.rounds)
    fisher(options.rounds)
