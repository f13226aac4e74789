"""Extreme deconvolution: mixtures of the true values behind samples that each have their own noise.

A sample is ``x = R v + noise`` with a known covariance of its noise, and the true values ``v`` have the density of the
mixture (Bovy, Hogg and Roweis 2011). `ExtremeDeconvolution` is the estimator; `extreme_deconvolution` and `XDGMM` have
the interfaces of the programs of these names. docs/deconvolution.md compares them.
"""

from .._arrays import Measurements
from .._documentation import document
from ._estimator import ExtremeDeconvolution
from ._interfaces import XDGMM, extreme_deconvolution

__all__ = ["XDGMM", "ExtremeDeconvolution", "Measurements", "extreme_deconvolution"]

document()
