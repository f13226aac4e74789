# %% [markdown]
# # Sensors that lie, and sensors that are silent
#
# A machine has six sensors. Now and then some do not answer, and rarely one answers wrongly. A wrong answer need not be
# extreme: 60 °C is ordinary, but not at this load. So the readings of an hour are judged together, by a mixture of what
# the machine does: it idles, works, or cools down.
#
# The readings are made here: 5,000 hours, every eighth value missing, and one hour in fifty with a wrong sensor.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np

from gaussmix import GaussianMixture

FULL = "GMM_GALLERY_FULL" in os.environ  # a million hours
n = 1_000_000 if FULL else 5_000

names = ["load", "power", "speed", "temperature", "vibration", "pressure"]
rng = np.random.default_rng(0)
state = rng.choice(3, n, p=[0.3, 0.5, 0.2])  # idle, at work, cooling
load = np.array([0.05, 0.7, 0.1])[state] + np.array([0.01, 0.12, 0.03])[
    state
] * rng.standard_normal(n)
heat = (
    np.array([25, 30, 70])[state]
    + 45 * load * (state == 1)
    + np.array([1, 2, 8])[state] * rng.standard_normal(n)
)
true = np.stack(
    [load, 5 + 90 * load, 200 + 1_300 * load, heat, 0.2 + 2 * load, 3 + 0.02 * heat], axis=1
)
true += np.array([0.01, 1.0, 20, 0.5, 0.05, 0.05]) * rng.standard_normal((n, 6))
X = true.copy()
wrong = np.flatnonzero(rng.random(n) < 0.02)
sensor = rng.integers(6, size=len(wrong))
X[wrong, sensor] = rng.permuted(true, axis=0)[
    wrong, sensor
]  # what this sensor said at another hour
holes = rng.random(X.shape) < 1 / 8
holes[wrong, sensor] = False
X[holes] = np.nan

# %% [markdown]
# ## How unusual is an hour?
#
# The density of four answers cannot be compared with that of six. So each hour is compared with hours that the mixture
# draws, in which the same sensors are silent: the share of draws with a smaller density is its p-value. By chance, one
# hour in a hundred has a p-value below 0.01, whatever is missing.

# %%
patterns, pattern = np.unique(np.isnan(X), axis=0, return_inverse=True)


def p_values(gm):
    scores, p = gm.score_samples(X), np.empty(n)
    draws = gm.sample(20_000)[0]
    for number, silent in enumerate(patterns):
        drawn = np.sort(gm.score_samples(np.where(silent, np.nan, draws)))
        p[pattern == number] = np.searchsorted(drawn, scores[pattern == number]) / len(drawn)
    return p


# %% [markdown]
# ## The mixture, of readings with holes
#
# Wrong answers are part of the first fit, and make it wide. So the least usual hours are left out of the next, until
# these are the same hours.

# %%
usual = np.ones(n, dtype=bool)
for number in range(10):
    gm = GaussianMixture(3, n_init=5, missing=True, standardize=True, random_state=0).fit(X[usual])
    p, before = p_values(gm), usual
    usual = p > 0.001
    print(f"fit {number}: {n - usual.sum()} hours are left out of the next")
    if (usual == before).all():
        break
unusual = p < 0.01
right = np.setdiff1d(np.arange(n), wrong)
off = np.abs(X - true)[wrong, sensor] / true.std(axis=0)[sensor]
print(
    f"unusual: {unusual[right].mean():.1%} of the right hours, {unusual[wrong].mean():.0%} of the wrong ones,"
)
print(
    f"and {unusual[wrong][off > 0.5].mean():.0%} of those that are wrong by more than half a deviation of the sensor"
)
assert unusual[right].mean() < 0.02 and unusual[wrong][off > 0.5].mean() > 0.8

# %% [markdown]
# ## Which sensor?
#
# The one whose answer is the greatest surprise, given the others: the density of all answers over that of the others.

# %%
without = np.stack(
    [gm.score_samples(np.where(np.arange(6) == j, np.nan, X)) for j in range(6)], axis=1
)
surprise = without - gm.score_samples(X)[:, None] - np.log(np.nanstd(X, axis=0))
surprise[np.isnan(X)] = -np.inf
found = unusual[wrong]
named = surprise[wrong[found]].argmax(axis=1) == sensor[found]
print(f"the right sensor is named in {named.mean():.0%} of the wrong hours that were found")
assert named.mean() > 0.9

# %%
figure, (left, right_axis) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.plot(X[:5_000, 0], X[:5_000, 3], ".", color="lightgrey", markersize=3)
crosses = wrong[found & np.isin(sensor, [0, 3])][:100]
left.plot(
    X[crosses, 0], X[crosses, 3], "x", color="tab:red", label="found: load or temperature is wrong"
)
left.set(title="Two of six sensors", xlabel=names[0], ylabel=names[3] + " (°C)", ylim=(0, 135))
left.legend()
for rows, name in ((right, "right hours"), (wrong, "hours with a wrong sensor")):
    right_axis.ecdf(np.maximum(p[rows], 1e-4), label=name)
right_axis.axline((1e-4, 1e-4), (1, 1), color="black", linestyle=":", label="by chance")
right_axis.set(
    title="p-values",
    xscale="log",
    yscale="log",
    xlabel="p",
    ylabel="share of the hours below",
    ylim=(1e-4, 1.2),
)
right_axis.legend(loc="lower right")
plt.show()

# %% [markdown]
# `GaussianMixtureOutlierDetector` does all this in one call where nothing is missing ([outliers](../estimators.md#outliers)).
#
# ## At full size
#
# `GMM_GALLERY_FULL=1 python docs/gallery/sensors.py` takes a million hours, on a GPU if there is one; it has not been
# measured. With 100 patterns of missing values an iteration of a million samples of 13 features and 8 components takes
# 61 ms on two cores and 0.24 ms on an H200 ([missing values](../missing.md#where-and-how-fast)). The draws of the
# p-values are as many for each pattern, however many hours have it.
