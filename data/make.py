"""Makes the data of this folder. Needs numpy and scikit-learn 1.9.1; the tests need neither.

python data/make.py MFCC13_SMALL.npy IRIS.csv

MFCC13_SMALL.npy: MFCC frames (N, 13) of real speech; IRIS.csv: Fisher's iris, a header, four measurements and a species.
"""
import csv
import json
import pathlib
import sys

import numpy as np
from sklearn.mixture import GaussianMixture

HERE = pathlib.Path(__file__).parent


def save_model(name, gm):
    rows = lambda a: "[\n " + ",\n ".join(json.dumps(r) for r in a.tolist()) + "]"
    (HERE / name).write_text(
        f'{{"version": 1, "covariance_type": {json.dumps(gm.covariance_type)},\n'
        f'"weights": {json.dumps(gm.weights_.tolist())},\n'
        f'"means": {rows(gm.means_)},\n"covariances": {rows(gm.covariances_)}}}\n'
    )


speech = np.load(sys.argv[1])
gm = GaussianMixture(8, covariance_type="diag", random_state=0).fit(speech.astype(np.float64))
assert gm.converged_
save_model("speech8.json", gm)
# Drawn with NumPy's generator rather than with gm.sample, whose output is ordered by component.
rng = np.random.default_rng(2018)
component = rng.choice(8, size=20_000, p=gm.weights_)
points = gm.means_[component] + rng.standard_normal((20_000, 13)) * np.sqrt(gm.covariances_)[component]
np.save(HERE / "speech.npy", points.astype(np.float32))

with open(sys.argv[2], newline="") as f:
    header, *rows = csv.reader(f)
with open(HERE / "iris.csv", "w", newline="") as f:
    csv.writer(f, lineterminator="\n").writerows(r[:4] for r in [header, *rows])
iris = np.array([r[:4] for r in rows], dtype=np.float64)
gm = GaussianMixture(3, covariance_type="diag", random_state=0).fit(iris)
assert gm.converged_
save_model("iris3.json", gm)
print("iris: total log-likelihood", repr(gm.score_samples(iris).sum()))
speech = np.load(HERE / "speech.npy").astype(np.float64)
gm = GaussianMixture(8, covariance_type="diag")
model = json.loads((HERE / "speech8.json").read_text())
gm.weights_, gm.means_, gm.covariances_ = (np.array(model[key]) for key in ("weights", "means", "covariances"))
gm.precisions_cholesky_ = 1 / np.sqrt(gm.covariances_)
print("speech: total log-likelihood", repr(gm.score_samples(speech).sum()))
