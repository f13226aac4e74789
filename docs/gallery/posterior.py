# %% [markdown]
# # How many are of the other kind?
#
# A clinic has measured 569 tumours. Two kinds are among them, small ones and large ones, whose
# sizes overlap. How many are large, if nobody says which? One fit answers with one number. The
# posterior answers with all numbers that the measurements leave plausible; it is drawn from by
# Markov chains.
#
# The tumours are real (Wolberg, Street and Mangasarian's data set of Wisconsin, as scikit-learn has
# it). A pathologist has told malignant from benign, so that the answer can be compared with the
# truth at the end.

# %%
import os
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from gaussmix import GaussianMixture, MixturePosterior

FULL = "GMM_GALLERY_FULL" in os.environ  # as if a thousand times as many had been measured
data = load_breast_cancer()
radius = np.tile(data.data[:, :1], (1_000 if FULL else 1, 1))

# %% [markdown]
# ## One fit
#
# With the default `tol`, 0.001, a fit ends early here: the likelihood hardly rises any more, but
# the share still does.

# %%
for tol in (1e-3, 1e-9):
    gm = GaussianMixture(2, random_state=0, tol=tol, max_iter=1_000).fit(radius)
    large = gm.means_.argmax()
    print(f"tol={tol}: the share of large tumours is {gm.weights_[large]:.2f}")

# %% [markdown]
# ## Four chains
#
# `order=0` keeps the components in the order of their means, so that the second is the large kind
# in all draws. R-hat is 1 where the chains agree; above 1.01 they should be longer.

# %%
begin = time.perf_counter()
posterior = MixturePosterior(2, order=0, draws=2_000, random_state=0).fit(radius)
print(f"four chains of 2,000 draws in {time.perf_counter() - begin:.1f} s")
r_hat = max(posterior.r_hat().values())
shares = posterior.draws_["weights"][..., 1].ravel()
low, middle, high = np.quantile(shares, [0.05, 0.5, 0.95])
malignant = np.mean(data.target_names[data.target] == "malignant")
print(f"R-hat is at most {r_hat:.3f}; the share is {middle:.2f}")
print(f"with a probability of 90 % it is {low:.2f} to {high:.2f}; malignant are {malignant:.2f}")
assert r_hat < 1.02 and (FULL or low < malignant < high)

# %% [markdown]
# The fit gave no hint of how little these measurements say. The truth lies well within what the
# posterior leaves plausible. That holds as far as the sizes of each kind are Gaussian, which no
# chain can know.
#
# ## What does it say of one tumour?
#
# Each draw is a mixture, with probabilities of its own. Their quantiles are a band: how sure one
# can be that a tumour of this radius is of the large kind.

# %%
grid = np.linspace(8, 24, 81)[:, None]
curves = np.array([mixture.predict_proba(grid)[:, 1] for mixture in posterior.mixtures_[::20]])
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
left.hist(shares, bins=80, density=True, color="tab:blue", alpha=0.6)
left.axvline(gm.weights_[large], color="tab:orange", label="one fit")
left.axvline(malignant, color="black", linestyle=":", label="malignant, in truth")
left.set(title="Posterior of the share of large tumours", xlabel="share", ylabel="density")
left.legend()
right.fill_between(
    grid[:, 0], *np.quantile(curves, [0.05, 0.95], axis=0), alpha=0.3, label="90 % of the draws"
)
right.plot(grid, gm.predict_proba(grid)[:, large], color="tab:orange", label="one fit")
right.set(title="Probability to be large", xlabel="mean radius", ylabel="probability")
right.legend()
plt.show()

# %% [markdown]
# ## At full size
#
# `GMM_GALLERY_FULL=1 python docs/gallery/posterior.py` takes a thousand times as many measurements.
# Every step of a chain evaluates the likelihood of all samples. The four chains of 2,000 draws take
# 5 s on a machine with one H200 and 16 cores (2026-11-28).
