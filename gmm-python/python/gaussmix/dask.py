"""The mixture on a cluster of Dask: ``pip install gaussmix[dask]``.

`GaussianMixture` is the estimator over dask arrays, dask dataframes, and files that the workers read themselves.
`Likelihood` evaluates mixtures over data that stays in the workers. Both are used as those of one process.
"""

from ._documentation import document
from .cluster.dask.engine import DaskEngine
from .cluster.dask.estimator import GMMHMM, BayesianGaussianMixture, ExtremeDeconvolution, GaussianHMM, GaussianMixture, Likelihood

__all__ = ["GMMHMM", "BayesianGaussianMixture", "DaskEngine", "ExtremeDeconvolution", "GaussianHMM", "GaussianMixture", "Likelihood"]

document()
