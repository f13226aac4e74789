"""Variational inference beside scikit-learn's, in one run: times, and how far the results are from each other.

    python gmm-python/benches/variational.py [CASE ...]     # all cases, or those of these numbers, from 0; some minutes

Both sides have the same samples (float64), start and number of iterations. With many samples the start is a posterior of the
first 5,000 of them, from which both go on (`warm_start`); with 1,000 it is made in the fit, by k-means. A time is that of `fit`,
which includes the checks of the input: the least of some, because other work on the machine disturbs it. Both sides use all cores.
"""

import sys
import time
import warnings

import numpy as np
import sklearn
from sklearn.mixture import BayesianGaussianMixture as ScikitLearn

from gaussmix import BayesianGaussianMixture, __version__

ITERATIONS = 10
#: N, D, K, the covariance type, and the aim: how many times faster than scikit-learn.
CASES = [
    (1_000_000, 13, 8, "diag", 40),
    (1_000_000, 13, 8, "full", 40),
    (100_000, 1, 10, "full", 25),
    (1_000, 13, 8, "diag", 5),
    (1_000, 13, 8, "full", 5),
    (1_000, 1, 10, "full", 5),
]
#: How many samples a start is made of, where there are more than 16,384: scikit-learn's own start is not ours then.
OF_START = 5_000


def samples(n, d, k):
    rng = np.random.default_rng(1)
    centres = np.random.default_rng(0).normal(size=(k, d)) * 4
    return centres[rng.integers(k, size=n)] + rng.normal(size=(n, d))


def made(n, x, params):
    """The two estimators, each at the start."""
    theirs = ScikitLearn(**params, max_iter=ITERATIONS, tol=0, random_state=0)
    if n > OF_START:
        theirs.set_params(warm_start=True, max_iter=1).fit(x[:OF_START]).set_params(max_iter=ITERATIONS)
    return theirs, BayesianGaussianMixture.from_sklearn(theirs)


def measured(n, d, k, kind):
    """The least seconds of a fit by each side, and the largest difference of their means, in standard deviations of the data."""
    x, params = samples(n, d, k), {"n_components": k, "covariance_type": kind}
    least, fitted = [], []
    for side, rounds in enumerate((2, 5)):
        times = []
        while len(times) < rounds or sum(times) < 0.5:
            gm = made(n, x, params)[side]
            began = time.perf_counter()
            gm.fit(x)
            times.append(time.perf_counter() - began)
        least.append(min(times))
        fitted.append(gm)
    difference = np.max(np.abs(fitted[0].means_ - fitted[1].means_) / x.std(axis=0))
    return *least, difference


def main():
    chosen = [int(case) for case in sys.argv[1:]] or range(len(CASES))
    print(f"gaussmix {__version__} beside scikit-learn {sklearn.__version__}; {ITERATIONS} iterations")
    print(f"{'N':>9} {'D':>3} {'K':>3} {'type':6} {'scikit-learn':>12} {'gaussmix':>10} {'times':>7} {'aim':>4}  difference")
    for case in chosen:
        n, d, k, kind, aim = CASES[case]
        theirs, ours, difference = measured(n, d, k, kind)
        row = f"{n:9,} {d:3} {k:3} {kind:6} {theirs:10.4f} s {ours:8.4f} s {theirs / ours:7.1f} {aim:4}  {difference:.1e}"
        print(row, flush=True)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message=".*did not converge")
    main()
