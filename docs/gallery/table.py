# %% [markdown]
# # Columns of a table, for CTGAN
#
# CTGAN and SDV make artificial rows of a table. A network learns columns badly as they are: an hour
# has two rush hours, an account many zeros and a few fortunes. So each column gets a mixture, by
# variational inference with at most ten components, and each number becomes a component (its
# *mode*) and a place within it. Decoding gives the number again.
#
# The table is made here: 20,000 trips in a town, with five columns of different shapes.

# %%
import os
import time

import matplotlib.pyplot as plt
import numpy as np

from gaussmix import BayesianGaussianMixture, fit_many

FULL = "GMM_GALLERY_FULL" in os.environ  # a million rows, 20 columns
n, copies, iterations = (1_000_000, 4, 100) if FULL else (20_000, 1, 3_000)

rng = np.random.default_rng(0)
morning = rng.random(n) < 0.4
card = rng.random(n) < 0.7
distance = rng.lognormal(1.2, 0.6, n)
table = {
    "hour": np.where(morning, rng.normal(8, 1, n), rng.normal(17.5, 1.8, n)),
    "distance (km)": distance,
    "fare": 3 + 2 * distance + np.where(rng.random(n) < 0.1, 35, 0) + rng.normal(0, 0.5, n),
    "tip": np.where(card, rng.gamma(4, 0.7, n), 0),
    "temperature (°C)": np.where(rng.random(n) < 0.5, rng.normal(4, 4, n), rng.normal(19, 5, n)),
}
columns = [column[:, None] for column in table.values()] * copies

# %% [markdown]
# ## The mixtures
#
# All columns are fitted in one call. The parameters are those that CTGAN gives to scikit-learn's
# class, but for the iterations: after its 100 the hour still has ten modes, and when it has
# converged the two that it was made of. More rows take more iterations.

# %%
begin = time.perf_counter()
estimator = BayesianGaussianMixture(
    n_components=10, weight_concentration_prior=0.001, max_iter=iterations, random_state=0
)
many = fit_many(columns, estimator)
print(f"{len(columns)} columns of {n:,} rows in {time.perf_counter() - begin:.1f} s")

# %% [markdown]
# ## Encoding and decoding
#
# A number may belong to several components. CTGAN draws one of them, by their probabilities, and
# divides the distance from its mean by four standard deviations.

# %%
modes, places = {}, {}
for i, (name, x) in enumerate(table.items()):
    gm = many[i]
    edges = gm.predict_proba(x[:, None]).cumsum(axis=1)
    modes[name] = (rng.random((n, 1)) > edges[:, :-1]).sum(axis=1)
    mean, deviation = gm.means_[modes[name], 0], np.sqrt(gm.covariances_[modes[name], 0, 0])
    places[name] = (x - mean) / (4 * deviation)
    used = np.sort(gm.means_[np.bincount(modes[name], minlength=10) > 0.005 * n, 0])
    print(f"{name}: {len(used)} modes, at {', '.join(f'{mean:.1f}' for mean in used)}")
    assert np.allclose(places[name] * 4 * deviation + mean, x), "decoding gives the column again"
    assert np.mean(np.abs(places[name]) < 1) > 0.999
    if name == "hour" and not FULL:
        assert np.allclose(used, [8, 17.5], atol=0.1)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
axis = many[0].mixture_.on_axis(feature=0)
left.hist(table["hour"], bins=100, density=True, color="lightgrey")
left.plot(axis.x, axis.density, color="tab:blue")
left.set(title="The hour and its mixture", xlabel="hour", ylabel="density", xlim=(3, 25))
fare, place, mode = (values["fare"][:4_000] for values in (table, places, modes))
right.scatter(fare, place, c=mode, s=3, cmap="tab10")
right.set(title="The fare as a network gets it", xlabel="fare", xlim=(0, 80))
right.set(ylabel="place; the colour is the mode")
plt.show()

# %% [markdown]
# ## At full size
#
# `GMM_GALLERY_FULL=1 python docs/gallery/table.py` takes 20 columns of a million rows with 100
# iterations, on the CPU: 4.2 s for the fits on 16 cores (2026-11-28). SDV's own encoder, unmodified,
# fits two columns of 100,000 rows in 0.74 s with `gaussmix.patch_sklearn()` and in 24 s without, on
# two cores ([variational Bayes](../variational.md#how-fast)). The patch is all that CTGAN itself
# needs.
