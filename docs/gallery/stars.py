# %% [markdown]
# # Which stars belong to a cluster?
#
# The stars of a cluster move together and are equally far away; those of the field behind and
# before it are not. A satellite measures two proper motions and the parallax of each star, but the
# velocity towards us of the bright ones alone. A mixture takes all stars as they are: a velocity
# that is missing is NaN.
#
# The sky is made here: 300 stars of a cluster among 5,700 others, each measured with an error, and
# a velocity for one star in five.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np

from gaussmix import GaussianMixture

FULL = "GMM_GALLERY_FULL" in os.environ  # 6 million stars
n = 6_000_000 if FULL else 6_000

names = ["proper motion, east", "proper motion, north", "parallax", "radial velocity"]
rng = np.random.default_rng(0)
member = rng.random(n) < 0.05
field = [-2, -3, 1.5, 5] + [4, 3, 0.9, 30] * rng.normal(size=(n, 4))
inner = np.array([0.5, 0.5, 0.1, 1])  # the cluster's own deviations
cluster = [-4, -1, 2, 25] + inner * rng.normal(size=(n, 4))
errors = np.array([0.3, 0.3, 0.2, 1])
X = np.where(member[:, None], cluster, field) + errors * rng.normal(size=(n, 4))
X[rng.random(n) < 0.8, 3] = np.nan
print(f"{n:,} stars, {np.isnan(X[:, 3]).mean():.0%} without a radial velocity")

# %% [markdown]
# ## The mixture
#
# One component is the cluster, the other the field. A cluster is seen in a map of the motions, so
# that the fit starts there: at the stars around (−4, −1), and at all others. The second fit is that
# of the motions and parallaxes alone.

# %%
start = (np.hypot(X[:, 0] + 4, X[:, 1] + 1) > 1).astype(int)
start[np.isnan(X[:, 3])] = -1  # not part of the start, but of the fit
gm = GaussianMixture(2, init_params=start, tol=1e-5, missing=True).fit(X)
probability = gm.predict_proba(X)[:, 0]
three = GaussianMixture(2, init_params=start, tol=1e-5).fit(X[:, :3])
without = three.predict_proba(X[:, :3])[:, 0]

known = ~np.isnan(X[:, 3])
for name, rows in (("with a velocity", known), ("without one", ~known)):
    mistakes = [np.sum((p[rows] > 0.5) != member[rows]) for p in (probability, without)]
    print(f"{rows.sum():,} stars {name}: {mistakes[0]} mistakes, {mistakes[1]} by the second fit")
    if name == "with a velocity":
        assert mistakes[0] < mistakes[1] / 3
print(f"members: {member.sum():,}; expected from the probabilities: {probability.sum():,.0f}")
assert abs(probability.sum() / member.sum() - 1) < 0.1

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
order = rng.permutation(n)[:6_000]
order = order[np.argsort(probability[order])]
for axis, (a, b) in ((left, (0, 1)), (right, (2, 3))):
    dots = axis.scatter(X[order, a], X[order, b], c=probability[order], s=4, cmap="viridis_r")
    axis.set(xlabel=names[a], ylabel=names[b])
left.set(title="Motions across the sky", xlim=(-12, 8), ylim=(-11, 7))
right.set(title="Parallax and velocity, where it is known", xlim=(-1.5, 4.5), ylim=(-90, 100))
figure.colorbar(dots, label="probability to be a member")
plt.show()

# %% [markdown]
# ## Errors of the measurements
#
# The mixture knows nothing of errors: its covariances are those of what was measured. Where all
# stars have the same error, its square is subtracted from the variance, and what is left is the
# cluster's own. Errors that differ from star to star, as a satellite's do, cannot be given; a
# method that takes them is called extreme deconvolution.

# %%
own = np.sqrt(np.diag(gm.covariances_[0]) - errors**2)
for name, found, made in zip(names, own, inner):
    print(f"{name}: deviation {found:.2f} of the cluster itself; {made} was drawn from")
assert np.allclose(own[:2], inner[:2], atol=0.1)

# %% [markdown]
# ## At full size
#
# `GMM_GALLERY_FULL=1 python docs/gallery/stars.py` takes six million stars, and 8 s on a machine with
# one H200 and 16 cores (2026-11-28). Stars with a velocity and stars without one are two patterns,
# each evaluated as complete data ([missing values](../missing.md#where-and-how-fast)).
