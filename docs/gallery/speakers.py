# %% [markdown]
# # Who speaks?
#
# A background model knows how people sound in general. With two seconds of a new speaker it is
# adapted: components that have many of these frames move towards them, the others stay. A voice is
# then accepted as this speaker's if it is likelier under the adapted model than under the
# background (Reynolds, Quatieri and Dunn 2000).
#
# Thirteen numbers describe a frame, a hundredth of a second. Frames are drawn from a mixture that
# was fitted to recordings (`data/speech8.json`, derived from the Arabic Speech Commands data set,
# CC BY 4.0), in which each of our speakers moves the means in a way of their own.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np

from gaussmix import GaussianMixture, Mixture

FULL = "GMM_GALLERY_FULL" in os.environ
seconds = 60 if FULL else 2
n_others, n_frames, n_components, n_new = (1_000, 10_000, 1_024, 200) if FULL else (60, 500, 32, 40)

speech = Mixture.load("data/speech8.json")
rng = np.random.default_rng(0)


def speaker():
    moves = 0.1 * rng.normal(size=13) + 0.2 * rng.normal(size=(8, 13))  # of all means, of each
    means = speech.means + moves * np.sqrt(speech.covariances)
    return Mixture(speech.weights, means, speech.covariances)


def frames(person, n):
    return person.sample(n, random_state=int(rng.integers(2**31)))[0].astype(np.float32)


# %% [markdown]
# ## The background
#
# It is fitted to other speakers than those whom we are to recognise.

# %%
X = np.concatenate([frames(speaker(), n_frames) for _ in range(n_others)])
gm = GaussianMixture(n_components, covariance_type="diag", random_state=0).fit(X)
background = gm.mixture_
print(f"{len(X):,} frames, {n_components} components, {gm.n_iter_} iterations")

# %% [markdown]
# ## Adaptation
#
# Each new speaker speaks for two seconds, from which their model is made, and later for one, which
# is compared with all models. Beside it stands a mixture that was fitted to the two seconds alone.

# %%
people = [speaker() for _ in range(n_new)]
first = [frames(person, 100 * seconds) for person in people]
later = [frames(person, 100) for person in people]
small = GaussianMixture(8, covariance_type="diag", random_state=0)
models = {
    "adapted": [background.adapt(x, relevance=16, parameters="means") for x in first],
    "fitted alone": [small.fit(x).mixture_ for x in first],
}

# %% [markdown]
# ## Who is it?
#
# The mean log-likelihood of each voice's frames under each model, less that under the background. A
# limit of these numbers decides; at the one with *equal error* as many strangers are accepted as
# speakers refused.

# %%
base = np.array([background.score_samples(x).mean() for x in later])
diagonal, errors = np.eye(n_new, dtype=bool), {}
figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for axis, (name, of_people) in zip(axes, models.items()):
    ratios = [[model.score_samples(x).mean() for model in of_people] for x in later] - base[:, None]
    own, other = ratios[diagonal], ratios[~diagonal]
    errors[name] = min(max((own < limit).mean(), (other >= limit).mean()) for limit in own)
    recognised = np.mean(ratios.argmax(axis=1) == np.arange(n_new))
    print(f"{name}: {errors[name]:.1%} equal error, {recognised:.0%} recognised among {n_new}")
    bins = np.linspace(*np.quantile(ratios, [0.01, 1]), 41)
    axis.hist(other, bins, density=True, color="lightgrey", label="models of others")
    axis.hist(own, bins, density=True, alpha=0.6, label="the speaker's model")
    axis.set(title=name, xlabel="log-likelihood of a frame, less the background's")
axes[0].set(ylabel="density")
axes[0].legend()
plt.show()
assert errors["adapted"] < (0.1 if FULL else errors["fitted alone"] / 3)

# %% [markdown]
# Two seconds are too little for a mixture, which takes chance for habit: what the speaker says
# later is less likely under it than under the background. They are enough for an adaptation.
#
# ## At full size
#
# `GMM_GALLERY_FULL=1 python docs/gallery/speakers.py` takes ten million frames of a thousand
# speakers, 1,024 components and a minute of 200 new speakers. It takes 40 s on a machine with one
# H200 and 16 cores (2026-11-28): 1.0 % equal error adapted, 7.4 % fitted alone.
