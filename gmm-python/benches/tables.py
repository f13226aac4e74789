"""RDT's ClusterBasedNormalizer, unmodified, with scikit-learn and with `patch_sklearn()`: its times, and whether its columns are the same.

    pip install rdt==2.0.0 scikit-learn==1.9.1              # in a virtual environment with gaussmix
    python gmm-python/benches/tables.py [ROWS [COLUMNS [SEEDS]]]    # default 100000 20 3; a quarter of an hour

The table is like the numbers of the census data set `adult`: ages, hours, weights of samples, years of education, gains that are
mostly zero, in several variants. CTGAN and SDV transform each column of numbers into a number of a component and a number within
that component, by a BayesianGaussianMixture of 10 components.

What is compared. Fits with other seeds find other mixtures, whose components have no order, so that not even two fits of scikit-learn
have equal columns. Two fits of a column are compared by

- the adjusted Rand index of their component columns: 1 if they divide the rows equally, 0 for divisions by chance;
- the Kolmogorov-Smirnov distance of their normalised columns, the largest difference of the two distribution functions;
- the difference of the mean log-likelihood of a row, in nats.

The noise of scikit-learn is what these are between its fits with other seeds. Ours is beside it: our fits against scikit-learn's.
Up to 262,144 rows both have the same start, and then the columns must be equal, which is checked.

Beside each time stands the processors' time of this process, all threads together, which other work on the machine disturbs less.
"""

import sys
import time
import warnings
from itertools import combinations

import numpy as np
import pandas as pd
import rdt
import sklearn
from rdt.transformers.numerical import ClusterBasedNormalizer
from scipy.stats import ks_2samp
from sklearn.metrics import adjusted_rand_score

import gaussmix

#: Rows, columns, and fits of each side with other seeds, of which there must be two at least.
DEFAULTS = [100_000, 20, 3]
#: Up to so many rows of one column scikit-learn's start is ours too.
EQUAL_START = 1 << 18


def table(rows, columns):
    """Make a table of columns like those of `adult`."""
    rng = np.random.default_rng(0)

    def age():
        return np.clip(17 + rng.gamma(3.0, 7.5, rows), 17, 90).round()

    def hours():
        usual = rng.choice([20, 40, 40, 40, 50, 60], rows)
        return np.clip(usual + rng.normal(0, 3, rows) * (rng.random(rows) < 0.5), 1, 99).round()

    def weight():
        return np.exp(rng.normal(12.0, 0.5, rows)).round()

    def education():
        return rng.choice(np.arange(1, 17), rows, p=np.array([1, 1, 2, 3, 3, 4, 5, 2, 35, 25, 5, 4, 6, 2, 1, 1]) / 100)

    def gain():
        return np.where(rng.random(rows) < 0.9, 0.0, np.exp(rng.normal(8.5, 1.0, rows)).round())

    kinds = [age, hours, weight, education, gain]
    return pd.DataFrame({f"{kinds[i % 5].__name__}_{i // 5}": kinds[i % 5]().astype(float) for i in range(columns)})


def clocks():
    """Give the seconds of the clock, and of the processors."""
    return np.array([time.perf_counter(), time.process_time()])


def transformed(data, seed):
    """Fit and transform each column. Give the columns, the fitted mixtures, and the seconds of all fits and of all transforms.

    The seconds are those of the clock, and below them those of the processors.
    """
    columns, mixtures, seconds = [], [], np.zeros((2, 2))
    for name in data:
        normalizer = ClusterBasedNormalizer()
        # All transformers have the same seed for their fits, here one of ours; that of the draws is a hash of the column.
        normalizer.INITIAL_FIT_STATE = np.random.RandomState(seed)
        began = clocks()
        normalizer.fit(data[[name]], name)
        middle = clocks()
        columns.append(normalizer.transform(data[[name]]).to_numpy(dtype=float))
        seconds += np.transpose([middle - began, clocks() - middle])
        mixtures.append(normalizer._bgm_transformer)
    return columns, mixtures, seconds


def differences(data, a, b):
    """How far two fits of all columns are from each other: each measure by column."""
    found = []
    for i, name in enumerate(data):
        # Rounded, because the columns have few values, whose last digits would count as differences.
        (x, y), (one, other) = (a[0][i].round(6), b[0][i].round(6)), (a[1][i], b[1][i])
        values = data[[name]].to_numpy()
        found.append(
            (
                adjusted_rand_score(x[:, 1], y[:, 1]),
                ks_2samp(x[:, 0], y[:, 0], method="asymp").statistic,
                abs(one.score(values) - other.score(values)),
            )
        )
    return np.array(found)


def main():
    given = [int(argument) for argument in sys.argv[1:]]
    rows, columns, seeds = given + DEFAULTS[len(given) :]
    data = table(rows, columns)
    print(f"rdt {rdt.__version__}, scikit-learn {sklearn.__version__}, gaussmix {gaussmix.__version__}: {columns} columns × {rows:,} rows")
    fits = {"scikit-learn": [], "gaussmix": []}
    for seed in range(seeds):
        for side, runs in fits.items():
            if side == "gaussmix":
                gaussmix.patch_sklearn()
            runs.append(transformed(data, seed))
            if side == "gaussmix":
                gaussmix.unpatch_sklearn()
            (fit, transform), (of_fit, of_transform) = runs[-1][2]
            own = sum(isinstance(mixture, gaussmix.BayesianGaussianMixture) for mixture in runs[-1][1])
            assert own == (columns if side == "gaussmix" else 0)
            times = f"fit {fit:7.2f} s (processors {of_fit:7.2f} s), transform {transform:6.2f} s ({of_transform:6.2f} s)"
            print(f"  seed {seed}, {side:12}: {times}", flush=True)
    least = {side: np.min([run[2] for run in runs], axis=0) for side, runs in fits.items()}
    for i, clock in enumerate(("by the clock", "by the processors")):
        of_fit, whole = (f(least["scikit-learn"][i]) / f(least["gaussmix"][i]) for f in (lambda t: t[0], np.sum))
        print(f"{clock}: fit {of_fit:.1f} times as fast, fit and transform {whole:.1f} times (least of {seeds} seeds)")

    theirs, ours = fits["scikit-learn"], fits["gaussmix"]
    noise = np.array([differences(data, a, b) for a, b in combinations(theirs, 2)])
    between = np.array([differences(data, a, b) for a in ours for b in theirs])
    print("differences, means over pairs of fits (and the worst)    Rand index       KS distance      log-likelihood")
    for name, found in (("scikit-learn, other seeds", noise), ("gaussmix and scikit-learn", between)):
        mean, low, high = found.mean((0, 1)), found.min((0, 1)), found.max((0, 1))
        print(f"  {name:54} {mean[0]:.3f} ({low[0]:.3f})  {mean[1]:.4f} ({high[1]:.4f})  {mean[2]:.1e} ({high[2]:.1e})")
    if rows <= EQUAL_START:
        equal = [np.mean(np.isclose(a, b, rtol=0, atol=1e-6)) for one, other in zip(theirs, ours) for a, b in zip(one[0], other[0])]
        print(f"equal start: {100 * min(equal):.3f} % of the numbers of the worst column are the same to 10⁻⁶")
        return 0 if min(equal) > 0.999 else 1
    # Ours are to be as near to scikit-learn's as these are to each other, but for twice the noise of so few pairs.
    (rand, distance, score), (rand_of, distance_of, score_of) = noise.mean((0, 1)), between.mean((0, 1))
    same = rand_of > 2 * rand - 1 and distance_of < 2 * distance + 1e-3 and score_of < 2 * score + 1e-3
    print("the same up to scikit-learn's own noise" if same else "NOT the same up to scikit-learn's own noise")
    return 0 if same else 1


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message=".*did not converge")
    sys.exit(main())
