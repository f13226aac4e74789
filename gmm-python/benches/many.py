"""Many fits: scikit-learn with joblib on all cores, and `gaussmix` one by one and in one call.

    python gmm-python/benches/many.py [CASE ...] [--rounds N] [--share S]

Cases: groups (1,000 groups of 500 x 5, K = 3, full), tiny (1,000 groups of 100 x 2, K = 2), columns (20 columns of 100,000, K = 10),
select (20,000 x 10, K = 1 to 11, ten starts each, which are 110 fits). scikit-learn fits a share of the groups or columns only (default
0.2), and its time is scaled; of `select` it makes all fits. All sides have the same seeds. Beside each time of the clock stands that of
the processors of this process, which does not count joblib's workers.
"""

import argparse
import os
import time
import warnings

import joblib
import numpy as np
import sklearn.mixture
from sklearn.base import clone

import gaussmix


def blobs(n, d, k, rng):
    """Samples around K centres of a few standard deviations' distance, as `gmm-bench many` has them."""
    centres = 4 * rng.standard_normal((k, d))
    return centres[np.arange(n) % k] + rng.standard_normal((n, d))


def timed(work, rounds):
    """Give the result, and the median seconds of the clock and of the processors."""
    seconds = []
    for _ in range(rounds):
        begin = np.array([time.perf_counter(), time.process_time()])
        result = work()
        seconds.append(np.array([time.perf_counter(), time.process_time()]) - begin)
    return result, np.median(seconds, axis=0)


def fit(estimator, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(x)


def of_sets(name, sets, k, rounds, share):
    """Fit to each of many sets of samples."""
    theirs = sklearn.mixture.GaussianMixture(k, random_state=0)
    ours = gaussmix.GaussianMixture(k, random_state=0, device="cpu")
    some = sets[: max(1, round(share * len(sets)))]
    scale = len(sets) / len(some)
    with joblib.Parallel(n_jobs=-1) as parallel:
        parallel(joblib.delayed(fit)(clone(theirs), x) for x in some[:2])
        found, joblib_seconds = timed(lambda: parallel(joblib.delayed(fit)(clone(theirs), x) for x in some), 1)
    _, loop = timed(lambda: [fit(clone(ours), x) for x in some], rounds)
    x, groups = np.concatenate(sets), np.repeat(np.arange(len(sets)), [len(x) for x in sets])
    many, together = timed(lambda: gaussmix.fit_many(x, ours, groups=groups), rounds)
    differences = [many.lower_bound_[number] - gm.lower_bound_ for number, gm in enumerate(found)]
    note = f"lower bounds less scikit-learn's {min(differences):.0e} to {max(differences):.0e}"
    report(name, joblib_seconds[0] * scale, loop * scale, together, note)


def report(name, theirs, loop, together, note):
    print(
        f"{name:>8}: scikit-learn {theirs:8.2f} s   one by one {loop[0]:7.3f} s ({loop[1]:.3f})   "
        f"in one call {together[0]:7.3f} s ({together[1]:.3f})   {theirs / together[0]:6.1f} times scikit-learn, "
        f"{loop[0] / together[0]:.1f} times one by one; {note}",
        flush=True,
    )


def selection(rounds):
    """Fit all numbers of components with ten starts each."""
    x = blobs(20_000, 10, 6, np.random.default_rng(0))
    tasks = [sklearn.mixture.GaussianMixture(k, n_init=10, random_state=0) for k in range(1, 12)]
    with joblib.Parallel(n_jobs=-1) as parallel:
        found, theirs = timed(lambda: parallel(joblib.delayed(fit)(gm, x) for gm in tasks), 1)
    bics = [gm.bic(x) for gm in found]

    def one_by_one():
        ours = [gaussmix.GaussianMixture(k, n_init=10, random_state=0, device="cpu") for k in range(1, 12)]
        return [fit(gm, x) for gm in ours]

    def in_one_call():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return gaussmix.select(x, range(1, 12), n_init=10, random_state=0, device="cpu")

    _, loop = timed(one_by_one, rounds)
    found, together = timed(in_one_call, rounds)
    agree = max(abs(row.criterion - bic) / abs(bic) for row, bic in zip(found.table, bics, strict=True))
    report("select", theirs[0], loop, together, f"BIC agrees to {agree:.0e} of it")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cases = {"groups": (1000, 500, 5, 3), "tiny": (1000, 100, 2, 2), "columns": (20, 100_000, 1, 10)}
    parser.add_argument("cases", nargs="*", default=[*cases, "select"], metavar="CASE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.2)
    options = parser.parse_args()
    print(f"gaussmix {gaussmix.__version__}, scikit-learn {sklearn.__version__}, {os.cpu_count()} cores; seconds (processors')")
    for name in options.cases:
        if name == "select":
            selection(options.rounds)
        else:
            sets, n, d, k = cases[name]
            rng = np.random.default_rng(0)
            of_sets(name, [blobs(n, d, k, rng) for _ in range(sets)], k, options.rounds, options.share)


if __name__ == "__main__":
    main()
