"""Draws the pictures of docs/python.md: a fit of the iris flowers, and the choice of the number of components.

Run it from the root of the repository: ``python gmm-python/examples/pictures.py``.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from gaussmix import GaussianMixture, plot, select

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["sepal length", "sepal width", "petal length", "petal width"]


def main(folder=ROOT / "docs"):
    """Write the pictures to a folder, and give their paths."""
    # The same bits on every run.
    plt.rcParams.update({"svg.hashsalt": "gaussmix", "svg.fonttype": "none"})
    iris = np.loadtxt(ROOT / "data" / "iris.csv", delimiter=",", skiprows=1)
    iris = pd.DataFrame(iris, columns=NAMES)
    gm = GaussianMixture(3, random_state=0).fit(iris)
    plot(gm, iris).figure.savefig(folder / "python-fit.svg", metadata={"Date": None})
    selection = select(iris, range(1, 7), covariance_type=["full", "tied", "diag", "spherical"], random_state=0)
    figure, ax = plt.subplots(layout="constrained")
    selection.plot(ax=ax)
    figure.savefig(folder / "python-select.svg", metadata={"Date": None})
    plt.close("all")
    return [folder / "python-fit.svg", folder / "python-select.svg"]


if __name__ == "__main__":
    for path in main():
        print(path)
