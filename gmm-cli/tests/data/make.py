"""Makes the .npz models of this folder with numpy and scikit-learn 1.9.1, and prints what the tests compare with.

python gmm-cli/tests/data/make.py
"""
import pathlib

import numpy as np
from sklearn.mixture import GaussianMixture

HERE = pathlib.Path(__file__).parent
iris = np.loadtxt(HERE / "../../data/iris.csv", delimiter=",", skiprows=1)
for covariance_type in ["full", "tied", "diag", "spherical"]:
    gm = GaussianMixture(3, covariance_type=covariance_type, random_state=0).fit(iris)
    for save in [np.savez, np.savez_compressed]:
        save(
            HERE / f"{save.__name__}_{covariance_type}.npz",
            covariance_type=gm.covariance_type,
            weights_=gm.weights_,
            means_=gm.means_,
            covariances_=gm.covariances_,
        )
    print(f'("{covariance_type}", {float(gm.score_samples(iris).sum())!r}),')
