# %% [markdown]
# # Who speaks?
#
# A background model knows how people sound in general. With two seconds of a new speaker it is adapted: components
# that these seconds have frames of move towards them, the others stay. A voice is then accepted as this speaker's if it is
# likelier under the adapted model than under the background (Reynolds, Quatieri and Dunn 2000).
#
# Thirteen numbers describe a hundredth of a second of speech. The frames are drawn from a mixture that was fitted to
# recordings (`data/speech8.json`, derived from the Arabic Speech Commands data set, CC BY 4.0), in which each of our
# speakers moves the means in a way of their own.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np

from gaussmix import GaussianMixture, Mixture

FULL = (
    "GMM_GALLERY_FULL" in os.environ
)  # 10 million frames of a thousand speakers, 1,024 components
n_others, n_frames, n_components, n_new = (1_000, 10_000, 1_024, 200) if FULL else (60, 500, 32, 40)

speech = Mixture.load("data/speech8.json")
rng = np.random.default_rng(0)


def speaker():
    """A mixture: all means moved together, as by the throat, and each a little by itself, as by habit."""
    deviations = np.sqrt(speech.covariances)
    moves = 0.1 * rng.standard_normal(13) + 0.2 * rng.standard_normal((8, 13))
    return Mixture(speech.weights, speech.means + moves * deviations, speech.covariances)


def frames(person, n):
    return person.sample(n, random_state=int(rng.integers(2**31)))[0].astype(np.float32)


# %% [markdown]
# ## The background
#
# It is fitted to other speakers than those whom we are to recognise.

# %%
X = np.concatenate([frames(speaker(), n_frames) for _ in range(n_others)])
background = (
    GaussianMixture(n_components, covariance_type="diag", tol=1e-3, random_state=0).fit(X).mixture_
)
print(f"{len(X):,} frames, {n_components} components")

# %% [markdown]
# ## Adaptation
#
# Each new speaker speaks for two seconds, from which their model is made, and later for one, which is compared with all
# models. Beside it stands a mixture that was fitted to the two seconds alone.

# %%
people = [speaker() for _ in range(n_new)]
first = [frames(person, 200) for person in people]
later = [frames(person, 100) for person in people]
adapted = [background.adapt(x, relevance=16, parameters="means") for x in first]
alone = [GaussianMixture(8, covariance_type="diag", random_state=0).fit(x).mixture_ for x in first]


def scores(models):
    """The mean log-likelihood ratio of each voice (row) under each model (column)."""
    base = np.array([background.score_samples(x).mean() for x in later])
    return (
        np.array([[model.score_samples(x).mean() for model in models] for x in later])
        - base[:, None]
    )


def error(ratios):
    """Where as many strangers are accepted as speakers are refused."""
    own, other = np.diag(ratios), ratios[~np.eye(n_new, dtype=bool)]
    return min(
        max((own < limit).mean(), (other >= limit).mean()) for limit in np.sort(ratios.ravel())
    )


by_adapted, by_alone = scores(adapted), scores(alone)
recognised = np.mean(by_adapted.argmax(axis=1) == np.arange(n_new))
print(f"adapted: {error(by_adapted):.1%} equal error, {recognised:.0%} recognised")
print(
    f"alone:   {error(by_alone):.1%} equal error, {np.mean(by_alone.argmax(axis=1) == np.arange(n_new)):.0%} recognised"
)
assert error(by_adapted) < 0.1 and error(by_adapted) < error(by_alone) / 3

figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for axis, ratios, title in zip(axes, (by_adapted, by_alone), ("Adapted", "Fitted alone")):
    bins = np.linspace(*np.quantile(ratios, [0.01, 1]), 41)
    axis.hist(
        ratios[~np.eye(n_new, dtype=bool)],
        bins,
        density=True,
        color="lightgrey",
        label="models of others",
    )
    axis.hist(np.diag(ratios), bins, density=True, alpha=0.6, label="the speaker's model")
    axis.set(
        title=title, xlabel="log-likelihood of a frame, less the background's", ylabel="density"
    )
axes[0].legend()
plt.show()

# %% [markdown]
# Two seconds are too little for a mixture, which takes chance for habit: what the speaker says later is less likely
# under it than under the background. They are enough for an adaptation.
#
# ## At full size
#
# `GMM_GALLERY_FULL=1 python docs/gallery/speakers.py` takes ten million frames of a thousand speakers, 1,024 components
# and 200 new speakers, on a GPU if there is one. It has not been measured. An iteration of the background has
# 4·N·K·D multiply-adds, 5·10¹¹, which the float32 units of an H100 do in 16 ms ([how fast](../speed.md#the-map-of-shapes)
# has the rule); an adaptation is half an iteration over the two seconds of a speaker.
