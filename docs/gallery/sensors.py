# %% [markdown]
# # Sensors that lie, and sensors that are silent
#
# A machine has six sensors. Now and then some do not answer, and rarely one answers wrongly. A
# wrong answer need not be extreme: 60 °C is ordinary, but not at this load. So the answers of an
# hour are judged together, by a mixture of what the machine does: it idles, works, or cools down.
#
# They are made here: 5,000 hours, every eighth value missing, and one hour in fifty in which a
# sensor says what it said at some other hour.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np

from gaussmix import GaussianMixture

FULL = "GMM_GALLERY_FULL" in os.environ
n = 1_000_000 if FULL else 5_000  # hours

rng = np.random.default_rng(0)
state = rng.choice(3, n, p=[0.3, 0.5, 0.2])  # idle, at work, cooling
load = np.array([0.05, 0.7, 0.1])[state] + np.array([0.01, 0.12, 0.03])[state] * rng.normal(size=n)
heat = np.array([25, 30, 70])[state] + 45 * load * (state == 1)
heat += np.array([1, 2, 8])[state] * rng.normal(size=n)
true = np.stack([load, 90 * load, 1_300 * load, heat, 2 * load, heat / 50], axis=1)
true += np.array([0.01, 1.0, 20, 0.5, 0.05, 0.05]) * rng.normal(size=(n, 6))
wrong = np.flatnonzero(rng.random(n) < 0.02)
sensor = rng.integers(6, size=len(wrong))
X = np.where(rng.random((n, 6)) < 1 / 8, np.nan, true)
X[wrong, sensor] = rng.permuted(true, axis=0)[wrong, sensor]

# %% [markdown]
# ## How unusual is an hour?
#
# The density of four answers cannot be compared with that of six. So each hour is compared with
# hours that the mixture draws, in which the same sensors are silent: the share of draws with a
# smaller density is its p-value. By chance, one hour in a hundred has a p-value below 0.01,
# whatever is missing.

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
# ## The mixture
#
# Wrong answers are part of the first fit, and make it wide. So the most unusual hours are left out
# of the next, until they are the same hours.

# %%
usual, before = np.ones(n, dtype=bool), None
for _ in range(10):
    if np.array_equal(usual, before):
        break
    gm = GaussianMixture(3, n_init=5, missing=True, standardize=True, random_state=0)
    p, before = p_values(gm.fit(X[usual])), usual
    usual = p > 0.001
print(f"{n - usual.sum():,} hours are left out in the end")
unusual, right = p < 0.01, np.setdiff1d(np.arange(n), wrong)
far = np.abs(X - true)[wrong, sensor] > 0.5 * true.std(axis=0)[sensor]
found = unusual[wrong]
print(
    f"unusual: {unusual[right].mean():.1%} of the right hours, {found.mean():.0%} of the wrong ones"
)
print(f"and {found[far].mean():.0%} of those with an answer more than half a deviation off")
assert unusual[right].mean() < 0.02 and found[far].mean() > 0.8

# %% [markdown]
# ## Which sensor?
#
# The one whose answer surprises most, given the others: the density of all answers over that of the
# others is small.

# %%
others = [gm.score_samples(np.where(np.arange(6) == j, np.nan, X)) for j in range(6)]
surprise = np.transpose(others) - gm.score_samples(X)[:, None] - np.log(np.nanstd(X, axis=0))
surprise[np.isnan(X)] = -np.inf
named = surprise.argmax(axis=1)[wrong] == sensor
print(f"{named[found].mean():.0%} of the wrong hours found are found by the right sensor")
assert named[found].mean() > 0.9

figure, (left, right_side) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
crosses = wrong[found & np.isin(sensor, [0, 3])][:100]
left.plot(X[:5_000, 0], X[:5_000, 3], ".", color="lightgrey", markersize=3)
left.plot(X[crosses, 0], X[crosses, 3], "rx", label="found: load or temperature is wrong")
left.set(title="Two of six sensors", xlabel="load", ylabel="temperature (°C)", ylim=(0, 135))
left.legend()
right_side.ecdf(np.maximum(p[right], 1e-4), label="right hours")
right_side.ecdf(np.maximum(p[wrong], 1e-4), label="hours with a wrong sensor")
right_side.axline((1e-4, 1e-4), (1, 1), color="black", linestyle=":", label="by chance")
right_side.set(title="Hours with a p-value below p", xscale="log", yscale="log", ylim=(1e-4, 1.2))
right_side.set(xlabel="p", ylabel="share")
right_side.legend(loc="lower right")
plt.show()

# %% [markdown]
# A wrong answer that is nearly right is not found, and does no harm.
#
# Where nothing is missing, [`GaussianMixtureOutlierDetector`](../estimators.md#outliers) sets the
# threshold.
#
# ## At full size
#
# `GMM_GALLERY_FULL=1 python docs/gallery/sensors.py` takes a million hours, and 16 s on a machine
# with one H200 and 16 cores (2026-11-28). The draws of the p-values are as many for each of the 50
# patterns, however many hours have it.
