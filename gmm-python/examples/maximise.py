"""A fit by SciPy's optimiser instead of EM: the likelihood and its gradient come from gaussmix.

The mixture has a constraint that EM does not know: its two means lie symmetrically around 0.
"""

import numpy as np
from scipy.optimize import minimize

from gaussmix import Likelihood


def main():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(5_000, 2)) + [3.0, 1.0], rng.normal(size=(5_000, 2)) - [3.0, 1.0]])
    likelihood = Likelihood(x, covariance_type="diag")
    weights = np.array([0.5, 0.5])

    def negative(theta):
        """Give minus the log-likelihood and its gradient by mean and log variances."""
        mean, variances = theta[:2], np.exp(theta[2:])
        value, _, by_means, by_variances = likelihood.gradient(
            weights, np.array([mean, -mean]), np.array([variances, variances])
        )
        return -value, -np.concatenate([by_means[0] - by_means[1], by_variances.sum(axis=0) * variances])

    found = minimize(negative, [1.0, 0.0, 0.0, 0.0], jac=True)
    print(f"mean {found.x[:2].round(2)}, variances {np.exp(found.x[2:]).round(2)} after {found.nfev} gradients")
    return found.x


if __name__ == "__main__":
    main()
