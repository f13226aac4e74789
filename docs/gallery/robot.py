# %% [markdown]
# # The path of a robot
#
# A person leads the hand of a robot along a path some times; no time is like the other. From these
# demonstrations the robot learns where to be when, and how exactly. And if somebody has held it up,
# it asks the other way round: at which point of the path am I? Both are answered by one mixture of
# time and position, given the one or the other.
#
# The demonstrations are made here: a loop, led seven times by an unsteady hand.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter1d

from gaussmix import GaussianMixtureRegressor

FULL = "GMM_GALLERY_FULL" in os.environ  # a thousand demonstrations of a thousand points
n_paths, n_points = (1_000, 1_000) if FULL else (7, 200)

time = np.linspace(0, 1, n_points)
angle = 2 * np.pi * (time - 0.5)
loop = np.stack([angle - 2 * np.sin(angle), -1.5 * np.cos(angle)], axis=1)
unsteady = 0.04 + 0.2 * np.sin(np.pi * time) ** 4  # more in the middle than at the ends
noise = np.random.default_rng(0).normal(size=(n_paths, n_points, 2))
noise = gaussian_filter1d(noise, n_points / 10, axis=1)
paths = loop + unsteady[:, None] * noise / noise.std()

# %% [markdown]
# ## Where to be when
#
# Given a time, the position is a mixture. Its mean is the path to follow; its deviation says where
# the demonstrations agree and the robot must be exact, and where it may give way.

# %%
t = np.tile(time, n_paths)[:, None]
regressor = GaussianMixtureRegressor(10, n_init=5, random_state=0).fit(t, paths.reshape(-1, 2))
mean, deviation = regressor.predict(time[:, None], return_std=True)
off = np.linalg.norm(mean - loop, axis=1).mean()
off_alone = np.linalg.norm(paths - loop, axis=2).mean()
print(f"off the loop by {off:.3f} in the mean; a single demonstration by {off_alone:.3f}")
likeness = np.corrcoef(deviation.mean(axis=1), unsteady)[0, 1]
print(f"correlation of the deviations found with the true ones: {likeness:.2f}")
assert off < 0.6 * off_alone and likeness > 0.8

# %% [markdown]
# ## Where along the path
#
# Given a position, the time is a mixture too. Where the path crosses itself it has two peaks: a
# mean would lie between them, at a time when the hand is elsewhere. The region of highest density
# has two intervals there.

# %%
places = {
    "on the way in": loop[n_points // 8],
    "at the bottom": loop[n_points // 2],
    "at the crossing": [0, 0.48],
}
times = {name: regressor.mixture_.condition({1: x, 2: y}) for name, (x, y) in places.items()}
for name, given in times.items():
    intervals, _ = given.hdr(0.9)
    print(f"{name}: at {' or '.join(f'{begin:.2f} to {end:.2f}' for begin, end in intervals)}")
assert [len(given.hdr(0.9)[0]) for given in times.values()] == [1, 1, 2]

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.plot(*paths[:7].transpose(2, 1, 0), color="lightgrey", linewidth=1)
for number in range(0, n_points, n_points // 20):
    left.add_patch(plt.matplotlib.patches.Ellipse(mean[number], *4 * deviation[number], alpha=0.25))
left.plot(*mean.T, color="tab:blue")
for name, (x, y) in places.items():
    left.plot(x, y, "o", markersize=9, label=name)
    axis = times[name].on_axis(feature=0)
    right.plot(axis.x, axis.density / axis.density.max())
left.set(title="Demonstrations, the mean, two deviations", xlabel="x", ylabel="y", aspect="equal")
right.set(title="The time, given a position", xlabel="time", ylabel="relative density", xlim=(0, 1))
left.legend(loc="lower left", frameon=False)
plt.show()

# %% [markdown]
# ## At full size
#
# `GMM_GALLERY_FULL=1 python docs/gallery/robot.py` takes a thousand demonstrations of a thousand
# points, and 4 s on a machine with one H200 and 16 cores (2026-11-28). A robot asks for one position
# at a time; [estimators](../estimators.md#how-fast) has the time of many.
