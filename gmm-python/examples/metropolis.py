"""A Metropolis chain written by hand: the program of the talk "Accelerating your Python Code For GMMs with PyCUDA".

It draws the means of a mixture from their posterior with a flat prior. Only the likelihood comes from gaussmix.

    python metropolis.py [samples [steps]]
"""

import sys
import time

import numpy as np

from gaussmix import GaussianMixture, Likelihood


def main(n_samples=10_000, n_steps=2_000):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(n_samples // 2, 13)), rng.normal(size=(n_samples // 2, 13)) + 2.0])
    x = x.astype(np.float32)
    gm = GaussianMixture(8, covariance_type="diag", random_state=0, max_iter=20).fit(x)

    # The samples go to the device once, and stay there.
    likelihood = Likelihood(x, covariance_type="diag")
    means, accepted = gm.means_.astype(np.float64), 0
    value = likelihood(gm.weights_, means, gm.covariances_)
    scale = 2.4 * np.sqrt(gm.covariances_ / (gm.weights_[:, np.newaxis] * n_samples)) / np.sqrt(means.size)
    begin = time.perf_counter()
    for _ in range(n_steps):
        proposal = means + scale * rng.normal(size=means.shape)
        proposed = likelihood(gm.weights_, proposal, gm.covariances_)
        if np.log(rng.uniform()) < proposed - value:
            means, value, accepted = proposal, proposed, accepted + 1
    seconds = time.perf_counter() - begin
    print(f"{likelihood.device}: {seconds / n_steps * 1e6:.1f} µs a step, {accepted / n_steps:.0%} accepted")
    return accepted / n_steps


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
