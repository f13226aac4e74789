# %% [markdown]
# # The colours of an image
#
# A photograph has tens of thousands of colours, but few things in it: sky, roof, trees. Each thing
# is a cloud of colours, longer than wide, because light and shadow change all three channels
# together. A mixture with full covariances finds these clouds, and so divides the image into its
# things.
#
# The image is `china.jpg` of scikit-learn (danielbuechele, CC BY 2.0).

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from gaussmix import GaussianMixture, select

FULL = "GMM_GALLERY_FULL" in os.environ
image = load_sample_image("china.jpg")
pixels = image.reshape(-1, 3) / np.float32(255)
rng = np.random.default_rng(0)
X = np.tile(pixels, (100, 1)) if FULL else rng.choice(pixels, 10_000, replace=False)
X += rng.uniform(-0.5, 0.5, X.shape) / 255  # because channels were rounded to whole numbers
print(f"{len(X):,} pixels; the image has {len(pixels):,}")

# %% [markdown]
# ## How many things, and of what shape?
#
# Fits of 1 to 12 components, with matrices (`full`) and with variances alone (`diag`). Each number
# of components also starts at the fit of the number before.

# %%
options = {"reg_covar": 1e-5, "grow": True, "random_state": 0}
selection = select(X, range(1, 13), covariance_type=["full", "diag"], **options)
bic = {(row.covariance_type, row.n_components): row.criterion for row in selection.table}
print(f"BIC: {bic['full', 6]:,.0f} of full, 6 components; {bic['diag', 12]:,.0f} of diag, 12")
assert bic["full", 6] < bic["diag", 12]
selection.plot(ax=plt.subplots(figsize=(6, 3.2), layout="constrained")[1])
plt.show()

# %% [markdown]
# Six clouds with a direction say more than twelve without one. The criterion goes on falling to the
# last number that was tried, because a cloud of colours is not quite Gaussian. So the number is
# chosen for what it is for: six colours to print the image with.

# %%
gm = GaussianMixture(6, reg_covar=1e-5, n_init=5, random_state=0).fit(X)
seen, all_pixels = gm.score(X), gm.score(pixels)
print(f"mean log-likelihood {seen:.3f} of the fitted pixels, {all_pixels:.3f} of all")
assert abs(seen - all_pixels) < 0.1
printed = np.clip(gm.means_, 0, 1)[gm.predict(pixels)].reshape(image.shape)
error = np.sqrt(np.mean((printed.reshape(-1, 3) - pixels) ** 2))
print(
    f"six colours instead of {len(np.unique(pixels, axis=0)):,} are off by {error:.1%} of the range"
)
assert error < 0.15

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for axis, picture, title in ((left, image, "The image"), (right, printed, "In six colours")):
    axis.imshow(picture)
    axis.set(title=title)
    axis.axis("off")
plt.show()

# %% [markdown]
# ## At full size
#
# `GMM_GALLERY_FULL=1 python docs/gallery/colours.py` takes 27 million pixels, those of a hundred
# such images, and 27 s on a machine with one H200 and 16 cores (2026-11-28). How many starts and
# iterations the colours of such images take is in [many fits](../many.md#starts).
