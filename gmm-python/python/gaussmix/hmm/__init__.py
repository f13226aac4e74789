"""Hidden Markov models of Gaussians and mixtures, with hmmlearn's interface.

`GaussianHMM`, `GMMHMM` and `VariationalGaussianHMM` take hmmlearn's parameters and have its methods and attributes;
`gaussmix.patch_hmmlearn` puts them in the place of hmmlearn's. docs/hmm.md names the differences.
"""

from .._documentation import document
from ._base import ConvergenceMonitor, Expectations
from ._models import GMMHMM, BayesianGaussianHMM, GaussianHMM, Likelihood, VariationalGaussianHMM, load, select

__all__ = [
    "GMMHMM",
    "BayesianGaussianHMM",
    "ConvergenceMonitor",
    "Expectations",
    "GaussianHMM",
    "Likelihood",
    "VariationalGaussianHMM",
    "load",
    "select",
]

document()
