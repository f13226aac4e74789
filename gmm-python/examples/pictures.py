"""Draws the pictures of docs/python.md, a fit of the iris flowers and the choice of the number of components, and of docs/variational.md,
docs/many.md, docs/estimators.md, docs/between.md, docs/moves.md, docs/gradients.md, docs/mclust.md, docs/hmm.md and
docs/deconvolution.md.

Run it from the root of the repository: ``python gmm-python/examples/pictures.py``.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from gaussmix import (
    BayesianGaussianMixture,
    GaussianMixture,
    GaussianMixtureClassifier,
    GaussianMixtureOutlierDetector,
    GaussianMixtureRegressor,
    Mixture,
    fit_many,
    plot,
    select,
)
from gaussmix.deconvolution import ExtremeDeconvolution
from gaussmix.hmm import GaussianHMM
from gaussmix.mclust import Mclust, MclustBootstrap, clustCombi, mclustBIC, mclustBootstrapLRT, me

ROOT = Path(__file__).resolve().parents[2]
#: The fourteen models of mclust.
MODELS = "EII VII EEI VEI EVI VVI EEE VEE EVE VVE EEV VEV EVV VVV".split()
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
    concentrations(iris).savefig(folder / "concentration.svg", metadata={"Date": None})
    velocities().savefig(folder / "many.svg", metadata={"Date": None})
    three_tasks().savefig(folder / "estimators.svg", metadata={"Date": None})
    between(iris).savefig(folder / "between.svg", metadata={"Date": None})
    moves().savefig(folder / "moves.svg", metadata={"Date": None})
    gradients().savefig(folder / "gradients.svg", metadata={"Date": None})
    figure, ax = plt.subplots(figsize=(7, 5), layout="constrained")
    mclustBIC(iris).plot(ax)
    figure.savefig(folder / "mclust-bic.svg", metadata={"Date": None})
    models().savefig(folder / "mclust-models.svg", metadata={"Date": None})
    of_mclust(folder, iris)
    states_over_time().savefig(folder / "hmm.svg", metadata={"Date": None})
    deconvolution().savefig(folder / "deconvolution.svg", metadata={"Date": None})
    plt.close("all")
    names = ["python-fit", "python-select", "concentration", "many", "estimators", "between", "moves", "gradients", "hmm", "deconvolution"]
    names += [f"mclust-{name}" for name in ("bic", "models", "faithful", "pairs", "bootstrap", "clusters")]
    return [folder / f"{name}.svg" for name in names]


def concentrations(iris):
    """Draw what the concentration does: the weights of 10 components, and how many of them are alive, over ten decades."""
    decades = np.arange(-5, 6)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True, layout="constrained")
    for ax, prior in zip(axes, ("dirichlet_process", "dirichlet_distribution"), strict=True):
        weights = []
        for decade in decades:
            gm = BayesianGaussianMixture(
                n_components=10,
                weight_concentration_prior_type=prior,
                weight_concentration_prior=10.0**decade,
                max_iter=1000,
                random_state=0,
            ).fit(iris)
            weights.append(np.sort(gm.weights_)[::-1])
            # Those with at least half a sample.
            alive = np.sum(gm.mean_precision_ - gm.mean_precision_prior_ >= 0.5)
            ax.text(decade, 1.02, str(alive), ha="center")
        bottom = np.zeros(len(decades))
        for number, of_component in enumerate(np.transpose(weights)):
            ax.bar(decades, of_component, 0.8, bottom, color=f"C{number}", edgecolor="white", linewidth=0.5)
            bottom += of_component
        ax.set(title=prior, xlabel="weight_concentration_prior", xticks=decades, ylim=(0, 1.1))
        ax.set_xticklabels([f"$10^{{{decade}}}$" for decade in decades])
    axes[0].set_ylabel("weights, largest first; above: components alive")
    return figure


def velocities(side=100, stars=200):
    """Draw a map of the fits to the stars of each cell of an image: those of a disc that rotates, and others that do not."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j].reshape(2, -1)
    rotation, share = 200 * x / np.hypot(0.3, np.hypot(x, y)), 0.3 + 0.4 * np.exp(-4 * (x**2 + y**2))
    of_disc = rng.random((stars, side * side)) < share
    speeds = np.where(of_disc, rng.normal(rotation, 20, of_disc.shape), rng.normal(0, 90, of_disc.shape))
    many = fit_many(speeds.T.reshape(-1, 1), GaussianMixture(2, random_state=0), groups=np.repeat(np.arange(side * side), stars))
    # The disc is the narrow component.
    cells, narrow = np.arange(len(many)), np.argmin(many.covariances_[:, :, 0, 0], axis=1)
    maps = {
        "mean velocity of the cell's stars": speeds.mean(axis=0),
        "mean of the narrow component": many.means_[cells, narrow, 0],
        "weight of the narrow component": many.weights_[cells, narrow],
    }
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    for ax, (title, values) in zip(axes, maps.items(), strict=True):
        weights = "weight" in title
        limits = {"vmin": 0, "vmax": 1} if weights else {"vmin": -200, "vmax": 200, "cmap": "RdBu_r"}
        shown = ax.imshow(values.reshape(side, side), origin="lower", **limits)
        figure.colorbar(shown, ax=ax, label=None if weights else "km/s")
        ax.set(title=title, xticks=[], yticks=[])
    return figure


def three_tasks():
    """Draw a regression with two branches, the regions of two classes, and outliers."""
    rng = np.random.default_rng(0)
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")

    # x as a function of y is one curve, but y as a function of x is not.
    y = rng.uniform(0, 1, 250)
    x = y + 0.3 * np.sin(2 * np.pi * y) + rng.normal(0, 0.04, 250)
    regressor = GaussianMixtureRegressor(6, random_state=0).fit(x[:, np.newaxis], y)
    at, heights = np.linspace(-0.1, 1.1, 120), np.linspace(-0.2, 1.2, 140)
    grid = np.stack(np.meshgrid(at, heights), axis=-1).reshape(-1, 2)
    density = np.exp(regressor.log_prob(grid[:, :1], grid[:, 1])).reshape(140, 120)
    left.imshow(density, origin="lower", extent=(-0.1, 1.1, -0.2, 1.2), aspect="auto", cmap="Blues", vmax=8, interpolation="none")
    mean, deviation = regressor.predict(at[:, np.newaxis], return_std=True)
    for line, style in ((mean, "-"), (mean - deviation, "--"), (mean + deviation, "--")):
        left.plot(at, line, f"C1{style}")
    left.plot(x, y, "k.", markersize=2)
    left.set(title="regression", xlabel="feature", ylabel="target")

    # A class around another, and one of two parts.
    angle = rng.uniform(0, 2 * np.pi, 120)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1) * rng.normal(3, 0.3, (120, 1))
    parts = rng.normal(0, 0.45, (120, 2)) + np.where(rng.random((120, 1)) < 0.5, [-1.0, 0.5], [1.0, -0.5])
    samples, labels = np.concatenate([ring, parts]), np.repeat([0, 1], 120)
    classifier = GaussianMixtureClassifier([8, 2], random_state=0).fit(samples, labels)
    axis = np.linspace(-4.5, 4.5, 80)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    proba = classifier.predict_proba(grid)[:, 1].reshape(80, 80)
    middle.imshow(proba, origin="lower", extent=(-4.5, 4.5, -4.5, 4.5), cmap="RdBu", vmin=-1, vmax=2, interpolation="none")
    middle.contour(axis, axis, proba, [0.5], colors="k", linewidths=1)
    for label in (0, 1):
        middle.plot(*samples[labels == label].T, f"{'^o'[label]}", color=("C3", "C0")[label], markersize=2.5)
    middle.set(title="classification", xticks=[], yticks=[])

    # Two clusters, and points that belong to neither.
    clusters = rng.normal(size=(250, 2)) * [1.2, 0.4] @ [[1, 0.6], [-0.6, 1]] + np.where(rng.random((250, 1)) < 0.5, -2, 2)
    samples = np.concatenate([clusters, rng.uniform(-6, 6, (12, 2))])
    detector = GaussianMixtureOutlierDetector(2, contamination="auto", random_state=0).fit(samples)
    axis = np.linspace(-6.5, 6.5, 80)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    decision = detector.decision_function(grid).reshape(80, 80)
    right.contourf(axis, axis, decision, [0, np.inf], colors=["#dbe9f6"])
    right.contour(axis, axis, decision, [0], colors="C0")
    outliers = detector.predict(samples) == -1
    right.plot(*samples[~outliers].T, "k.", markersize=2)
    right.plot(*samples[outliers].T, "C3x", markersize=5)
    right.set(title="outliers", xticks=[], yticks=[])
    return figure


def between(iris):
    """Draw the way from one mixture to another, what a reduction loses, and one feature along its axis."""
    rng = np.random.default_rng(3)
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")

    petals = GaussianMixture(3, random_state=0).fit(iris[["petal length", "sepal width"]]).mixture_
    shuffled = iris[["petal length", "sepal width"]] * [0.8, 0.9] + rng.normal([2.5, 1.2], 0.1, (len(iris), 2))
    other = GaussianMixture(4, random_state=1).fit(shuffled).mixture_
    angles = np.linspace(0, 2 * np.pi, 60)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    for gm, colour in ((petals, "C0"), (other, "C1")):
        for mean, covariance in zip(gm.means, gm.covariances, strict=True):
            left.plot(*(mean[:, np.newaxis] + 2 * np.linalg.cholesky(covariance) @ circle), colour)
    distance, plan = petals.transport(other)
    for i, j in np.argwhere(plan > 0):
        style = {"arrowstyle": "-|>", "linewidth": 8 * plan[i, j], "color": "0.4"}
        left.annotate("", other.means[j], petals.means[i], arrowprops=style)
    left.set(title=f"transport, distance {distance:.2f}", xlabel="petal length", ylabel="sepal width")

    large = GaussianMixture(12, random_state=0).fit(iris).mixture_
    k = np.arange(1, 13)
    smaller, bounds = zip(*(large.reduce(n) for n in k), strict=True)
    estimates = [large.kl_divergence(gm, 20_000, random_state=0) for gm in smaller]
    values, errors = np.array(estimates).T
    middle.plot(k, bounds, "C1o-", markersize=4, label="bound")
    middle.errorbar(k, values, 2 * errors, fmt="C0o", markersize=4, label="divergence, by samples")
    middle.set(title="12 components reduced", xlabel="components left", ylabel="nats")
    middle.legend(frameon=False)

    flowers = GaussianMixture(3, random_state=0).fit(iris).mixture_
    axis, region = flowers.on_axis(300, feature="petal length"), flowers.hdr(0.9, feature="petal length")
    right.plot(axis.x, axis.components, "0.6", linewidth=1)
    right.plot(axis.x, axis.density, "C0")
    right.axhline(region.density, color="C1", linewidth=1, linestyle="--")
    for first, last in region.intervals:
        inside = (axis.x >= first) & (axis.x <= last)
        right.fill_between(axis.x[inside], axis.density[inside], color="C0", alpha=0.2)
    right.set(title="region of 0.9", xlabel="petal length", ylabel="density", ylim=(0, None))
    return figure


def ellipses(ax, gm, colour, **look):
    """Draw each component's ellipse of two standard deviations."""
    angles = np.linspace(0, 2 * np.pi, 60)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    for mean, covariance in zip(gm.means, gm.covariances, strict=True):
        ax.plot(*(mean[:, np.newaxis] + 2 * np.linalg.cholesky(covariance) @ circle), colour, **look)


def moves():
    """Draw a fit with frozen means, one with and one without a prior, and a background model that is adapted."""
    rng = np.random.default_rng(0)
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    centres = np.array([[-3.0, -1.0], [0.0, 2.0], [3.0, -1.0]])
    samples = centres[rng.integers(0, 3, 300)] + rng.normal(0, 0.8, (300, 2))

    start = np.array([[-4.0, 0.0], [0.5, 0.0], [3.0, -1.0]])
    gm = GaussianMixture(3, means_init=start, freeze={"means": [0, 2]}, random_state=0).fit(samples)
    left.plot(*samples.T, "k.", markersize=2)
    ellipses(left, gm.mixture_, "C0")
    left.plot(*start[[0, 2]].T, "C1s", label="frozen")
    left.annotate("", gm.means_[1], start[1], arrowprops={"arrowstyle": "-|>", "color": "C0", "linewidth": 2})
    left.plot(*start[1], "C0o")
    left.set(title='freeze={"means": [0, 2]}', xticks=[], yticks=[])
    left.legend(frameon=False)

    # A few of the samples are nearly equal.
    equal = np.concatenate([samples, [0.0, -3.5] + rng.normal(0, 1e-3, (12, 2))])
    middle.plot(*equal.T, "k.", markersize=2)
    for prior, colour, look in ((None, "C1", {"marker": "o", "markersize": 3}), ("default", "C0", {})):
        gm = GaussianMixture(4, prior=prior, n_init=20, random_state=0).fit(equal)
        ellipses(middle, gm.mixture_, colour, **look)
        least = np.sqrt(np.linalg.eigvalsh(gm.covariances_)[:, 0]).min()
        middle.plot([], [], colour, label=f"prior={prior!r}: least deviation {least:.1g}")
    middle.set(title="a prior", xticks=[], yticks=[], ylim=(-6.5, 5.5))
    middle.legend(frameon=False, fontsize="small", loc="upper left")

    # Few samples, of two of the components only.
    new = centres[rng.choice([0, 1], 30, p=[0.8, 0.2])] + [1.2, 1.0] + rng.normal(0, 0.5, (30, 2))
    background = GaussianMixture(3, random_state=0).fit(samples).mixture_
    right.plot(*new.T, "k.", markersize=3)
    ellipses(right, background, "0.6")
    for relevance, colour in ((16, "C0"), (2, "C1")):
        adapted = background.adapt(new, relevance=relevance)
        ellipses(right, adapted, colour, linewidth=1)
        for before, after in zip(background.means, adapted.means, strict=True):
            right.plot(*np.transpose([before, after]), f"{colour}-")
        right.plot(*adapted.means.T, f"{colour}o", markersize=5, label=f"relevance={relevance}")
    right.plot(*background.means.T, "o", color="0.6", markersize=5, label="background")
    right.set(title="adapted to 30 samples", xticks=[], yticks=[])
    right.legend(frameon=False, fontsize="small")
    return figure


def gradients():
    """Draw the score function over the density, and the paths of samples that follow it to a peak."""
    covariances = [[[1.0, 0.6], [0.6, 1.0]], [[0.5, -0.2], [-0.2, 1.2]], [[1.5, 0.0], [0.0, 0.3]]]
    gm = Mixture([0.4, 0.3, 0.3], [[-2.0, -0.5], [2.2, 0.8], [0.5, -2.8]], covariances)
    x, y = np.linspace(-5, 5, 61), np.linspace(-4.5, 4.0, 52)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), sharey=True, layout="constrained")
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    log_density = gm.score_samples(grid).reshape(len(y), len(x))
    for ax in axes:
        ax.contour(x, y, log_density, np.arange(-14.0, 0.0), cmap="Blues", linewidths=0.8)
        ax.set(xticks=[], yticks=[])
    at = np.stack(np.meshgrid(x[3::6], y[3::6]), axis=-1).reshape(-1, 2)
    arrows = gm.score_function(at)
    # As long as the root of the slope, so that short ones are seen.
    arrows /= np.sqrt(np.linalg.norm(arrows, axis=1))[:, np.newaxis]
    axes[0].quiver(*at.T, *arrows.T, color="C1", angles="xy", scale=60, width=0.004)
    axes[0].set_title("score_function")

    paths = [at]
    for _ in range(400):
        paths.append(paths[-1] + 0.05 * gm.score_function(paths[-1]))
    for path in np.swapaxes(paths, 0, 1):
        axes[1].plot(*path.T, "C1", linewidth=0.8)
    axes[1].plot(*at.T, "C1.", markersize=3)
    axes[1].plot(*paths[-1].T, "ko", markersize=4)
    axes[1].set_title("steps along it")
    return figure


def models():
    """Draw the fourteen models: three components that are fitted to the same samples."""
    covariances = [[[4.0, 0.6], [0.6, 0.4]], [[0.8, 0.5], [0.5, 0.5]], [[2.2, -0.7], [-0.7, 0.7]]]
    samples, labels = Mixture(np.ones(3) / 3, [[0.0, 4.0], [-4.0, 0.0], [2.0, -1.0]], covariances).sample(600, random_state=0)
    figure, axes = plt.subplots(2, 7, figsize=(14, 4.6), sharex=True, sharey=True, layout="constrained")
    for ax, name in zip(axes.flat, MODELS, strict=True):
        plot(me(samples, name, np.eye(3)[labels]).mixture, ax=ax)
        ax.get_legend().remove()
        ax.set(title=name, xlabel="", ylabel="", xticks=[], yticks=[], aspect="equal")
    return figure


def of_mclust(folder, iris):
    """Draw what users of mclust draw: classes, uncertainty and density, the bootstrap, and merged clusters."""
    faithful = np.loadtxt(ROOT / "data" / "faithful.csv", delimiter=",", skiprows=1)
    fit = Mclust(faithful)
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    for ax, what in zip(axes, ("classification", "uncertainty", "density"), strict=True):
        fit.plot(what, ax=ax)
        ax.set_title(what)
    figure.savefig(folder / "mclust-faithful.svg", metadata={"Date": None})
    pairs = Mclust(iris, 3, "VEV").plot("classification", dimens=[0, 2, 3])
    pairs[0, 0].figure.savefig(folder / "mclust-pairs.svg", metadata={"Date": None})
    means = MclustBootstrap(fit, random_state=0).plot("mean")
    means[0, 0].figure.savefig(folder / "mclust-bootstrap.svg", metadata={"Date": None})
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    mclustBootstrapLRT(faithful, "VVV", maxG=2, random_state=0).plot(2, ax=left)
    clustCombi(Mclust(faithful, 7, "VVI")).plot(ax=right)
    figure.savefig(folder / "mclust-clusters.svg", metadata={"Date": None})


def states_over_time():
    """Draw rows of a sequence over the states of a hidden Markov model, its transitions, and its Gaussians."""
    rng = np.random.default_rng(0)
    x = np.repeat([0, 3, 1, 3, 0], 60)[:, None] + rng.normal(0, 1, (300, 2))
    model = GaussianHMM(3, "full", n_iter=50, random_state=0, init_params="smc")
    model.transmat_ = np.full((3, 3), 0.05) + 0.85 * np.eye(3)
    model.fit(x)
    figure, axes = plt.subplot_mosaic([["states"] * 2, ["transitions", "emissions"]], figsize=(8, 7), layout="constrained")
    for what, ax in axes.items():
        model.plot(x, what, ax=ax)
    return figure


def deconvolution():
    """Draw measurements with their noise, an ordinary fit to them, and a deconvolved one over the truth."""
    covariances = [[[0.3, 0.25], [0.25, 0.3]], [[0.5, -0.3], [-0.3, 0.25]], [[0.05, 0.0], [0.0, 0.6]]]
    truth = Mixture([0.4, 0.35, 0.25], [[-2.2, 0.0], [1.0, 2.0], [2.0, -1.5]], covariances)
    rng = np.random.default_rng(4)
    values, _ = truth.sample(1500, random_state=4)
    noise = np.array([np.diag(rng.uniform(0.05, 1.5, 2)) for _ in values])
    angles = rng.uniform(0, np.pi, len(values))
    turns = np.stack([np.cos(angles), -np.sin(angles), np.sin(angles), np.cos(angles)], axis=1).reshape(-1, 2, 2)
    noise = turns @ noise @ turns.transpose(0, 2, 1)
    X = values + np.einsum("nij,nj->ni", np.linalg.cholesky(noise), rng.normal(size=values.shape))
    ordinary = GaussianMixture(3, random_state=0).fit(X).mixture_
    deconvolved = ExtremeDeconvolution(3, tol=1e-6, max_iter=1000, random_state=0).fit(X, noise=noise).mixture_
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.4), sharex=True, sharey=True, layout="constrained")
    for mean, covariance in list(zip(X, noise, strict=True))[::40]:
        ellipses(axes[0], Mixture([1.0], [mean], [covariance]), "0.75", linewidth=0.5)
    some = X[::5]
    axes[0].plot(*some.T, "k.", markersize=2)
    axes[0].set_title("measurements, and the noise of some")
    for ax, fitted, title in ((axes[1], ordinary, "ordinary fit"), (axes[2], deconvolved, "deconvolved")):
        ax.plot(*some.T, ".", color="0.8", markersize=2)
        ellipses(ax, truth, "k", linewidth=1, linestyle="--")
        ellipses(ax, fitted, "C1")
        ax.set_title(f"{title}, and the truth (dashed)")
    for ax in axes:
        ax.set(xticks=[], yticks=[], aspect="equal")
    return figure


if __name__ == "__main__":
    for path in main():
        print(path)
