#!/usr/bin/env python3
"""Writes the reference values that tests/real_data/agreement.rs compares with: EM as scikit-learn 1.9.1 does it.

    python make_sklearn.py MFCC13_SMALL.npy

MFCC13_SMALL.npy is the file of data/make.py. Needs numpy and scikit-learn 1.9.1. For each data set one .npz with the samples, `x`, and,
for each covariance type, the start (`weights_init`, `means_init`, `precisions_init`), and `weights`, `means`,
`covariances`, `lower_bounds`, `score`, `bic`, `aic`, `n_parameters` after a fixed number of iterations, all in
float64. The start is the one that scikit-learn's k-means makes, exported, so that nothing depends on its random numbers.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import sklearn
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

TYPES = ["full", "tied", "diag", "spherical"]


def data(speech):
    """(name, float64 samples, K, iterations)"""
    yield "iris", load_iris().data, 3, 25
    digits = load_digits().data[:600]
    assert all((digits[:, j] == 0).all() for j in (0, 32, 39)), "constant columns"
    yield "digits", digits, 2, 8
    # A fixed subset of the speech frames, which are shuffled already.
    yield "speech", np.load(speech)[:2000].astype(np.float64), 8, 20


def main():
    assert sklearn.__version__ == "1.9.1", sklearn.__version__
    warnings.simplefilter("ignore", ConvergenceWarning)
    out = Path(__file__).parent
    for name, x, k, n_iter in data(sys.argv[1]):
        values = {"x": x}
        for t in TYPES:
            start = GaussianMixture(k, covariance_type=t, max_iter=0, random_state=0).fit(x)
            init = dict(weights_init=start.weights_, means_init=start.means_, precisions_init=start.precisions_)
            fit = GaussianMixture(k, covariance_type=t, tol=0.0, max_iter=n_iter, **init).fit(x)
            assert fit.n_iter_ == n_iter
            result = dict(
                weights=fit.weights_,
                means=fit.means_,
                covariances=fit.covariances_,
                lower_bounds=np.array(fit.lower_bounds_),
                score=np.array([fit.score(x)]),
                bic=np.array([fit.bic(x)]),
                aic=np.array([fit.aic(x)]),
                n_parameters=np.array([fit._n_parameters()], dtype=np.int64),
            )
            for key, value in {**init, **result}.items():
                values[f"{t}_{key}"] = value
        np.savez_compressed(out / f"{name}.npz", **values)


if __name__ == "__main__":
    main()
