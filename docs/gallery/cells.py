# %% [markdown]
# # Regions of a tissue
#
# A slide of tissue has some numbers for each cell: ten here, such as an autoencoder makes of the
# expression of genes. Which regions does the tissue have, and how many? CellCharter answers in
# three steps: it appends the mean of the neighbours to each cell, clusters the cells by Gaussian
# mixtures, and takes the number of clusters at which fits from different random starts agree best.
# This page takes the same steps.
#
# The slide is made here: six regions, in which two cells differ as much as the regions do.

# %%
import os
import time

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import uniform_filter
from sklearn.metrics import adjusted_rand_score, fowlkes_mallows_score

from gaussmix import GaussianMixture

FULL = "GMM_GALLERY_FULL" in os.environ
side, device = (6_325, "cuda") if FULL else (200, "cpu")  # 40 million cells, or 40,000
ks, starts = (range(2, 19), 10) if FULL else (range(2, 11), 4)

rng = np.random.default_rng(4)
row, column = np.indices((side, side), dtype=np.float32) / side
nearest, region = np.full((side, side), np.inf), np.zeros((side, side), dtype=int)
for number, centre in enumerate(rng.random((12, 2))):
    distance = np.hypot(row - centre[0], column - centre[1])
    region[distance < nearest] = number % 6
    nearest = np.minimum(nearest, distance)
profiles = rng.normal(size=(6, 10)).astype(np.float32)
cells = profiles[region] + rng.standard_normal((side, side, 10), dtype=np.float32)

# %% [markdown]
# ## Neighbours
#
# The cells lie on a grid, so that a filter takes the mean of the 3 × 3 cells around each.

# %%
X = np.concatenate([cells, uniform_filter(cells, (3, 3, 1))], axis=2).reshape(-1, 20)
if FULL:
    import torch

    X = torch.from_numpy(X).cuda()  # once for all fits

# %% [markdown]
# ## Fits
#
# Each number of clusters is fitted from several starts. The labels of 4,000 cells are enough to
# compare two fits.

# %%
some = rng.choice(side**2, 4_000, replace=False)
begin, labels = time.perf_counter(), {}
for k in ks:
    fits = [GaussianMixture(k, random_state=seed, device=device).fit(X) for seed in range(starts)]
    fits.sort(key=lambda gm: -gm.lower_bound_)  # the likeliest first
    labels[k] = [gm.predict(X[some]) for gm in fits]
print(f"{len(ks) * starts} fits of {len(X):,} cells in {time.perf_counter() - begin:.1f} s")

# %% [markdown]
# ## The number of regions
#
# A number of clusters is stable if its labels are like those with one cluster less and with one
# more, from whatever start. The similarity of two sets of labels is the index of Fowlkes and
# Mallows: 1 if they are equal.

# %%
similar = {
    k: np.mean([fowlkes_mallows_score(a, b) for a in labels[k] for b in labels[k + 1]])
    for k in ks[:-1]
}
stability = {k: (similar[k - 1] + similar[k]) / 2 for k in ks[1:-1]}
best = max(stability, key=stability.get)
agreement = adjusted_rand_score(region.ravel()[some], labels[best][0])
print(f"{best} clusters; adjusted Rand index with the true regions: {agreement:.2f}")
assert abs(best - 6) <= 1 and agreement > 0.95

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
left.imshow(cells[:: side // 200, :: side // 200, 0], cmap="Greys", extent=(0, side, side, 0))
left.set(title="One of ten features")
middle.scatter(some % side, some // side, c=labels[best][0], s=6, cmap="tab10", vmax=9)
middle.set(title=f"{best} clusters, by 4,000 cells", aspect="equal")
middle.set(xlim=(0, side), ylim=(side, 0))
right.plot(stability.keys(), stability.values(), "o-")
right.plot(best, stability[best], "o", markersize=10)
right.set(title="Stability", xlabel="number of clusters", xticks=list(stability))
plt.show()

# %% [markdown]
# A seventh cluster would be the cells at a border, which are like neither side.
#
# ## At full size
#
# `GMM_GALLERY_FULL=1 python docs/gallery/cells.py` takes 40 million cells and makes 170 fits, of 2
# to 18 clusters from ten starts each, on a GPU, to which PyTorch brings the cells once. The fits
# took 121 s on one H200, and the whole page 151 s (2026-11-28). With 20,000 cells, CellCharter's
# own 110 fits take 84 s on an H100 and ours 2.7 s in the same loop ([many
# fits](../many.md#on-a-gpu)).
