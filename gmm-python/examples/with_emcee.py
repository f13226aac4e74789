"""The posterior of a mixture by emcee, whose walkers are evaluated together: one call for all of them.

Needs emcee (``pip install emcee``).
"""

import emcee
import numpy as np

from gaussmix import Likelihood


def main(n_walkers=32, n_steps=300):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(300, 1)) - 2.0, rng.normal(size=(700, 1)) + 3.0])
    likelihood = Likelihood(x, covariance_type="spherical")

    def log_posterior(theta):
        """Give the log posterior of parameters (walkers, 5): the logit of a weight, two means, two log variances."""
        first = 1.0 / (1.0 + np.exp(-theta[:, 0]))
        weights = np.stack([first, 1.0 - first], axis=1)
        prior = -0.5 * (theta**2 / [2.0, 10.0, 10.0, 2.0, 2.0]).sum(axis=1)
        return likelihood(weights, theta[:, 1:3, np.newaxis], np.exp(theta[:, 3:])) + prior

    begin = np.array([0.0, -2.0, 3.0, 0.0, 0.0]) + 0.1 * rng.normal(size=(n_walkers, 5))
    sampler = emcee.EnsembleSampler(n_walkers, 5, log_posterior, vectorize=True)
    sampler.random_state = np.random.RandomState(0).get_state()
    sampler.run_mcmc(begin, n_steps)
    draws = sampler.get_chain(discard=n_steps // 3, flat=True)
    print(f"means {draws[:, 1:3].mean(axis=0).round(2)} ± {draws[:, 1:3].std(axis=0).round(2)}")
    return draws


if __name__ == "__main__":
    main()
