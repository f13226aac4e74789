"""The functions of R's mclust with R's names: classes count from 1, and of BIC and ICL the larger is the better.

Rows count from 0, as everywhere in Python. docs/mclust.md compares the functions with R's. The rows of noise have the
class 0.
"""

from .._documentation import document
from ._bootstrap import MclustBootstrap, mclustBootstrapLRT
from ._combine import clustCombi, clustCombiOptim
from ._models import (
    Mclust,
    MclustDA,
    Table,
    cdfMclust,
    densityMclust,
    emControl,
    hc,
    hclass,
    mclustBIC,
    mclustICL,
    me,
    priorControl,
    quantileMclust,
)

__all__ = [
    "Mclust",
    "MclustBootstrap",
    "MclustDA",
    "Table",
    "cdfMclust",
    "clustCombi",
    "clustCombiOptim",
    "densityMclust",
    "emControl",
    "hc",
    "hclass",
    "mclustBIC",
    "mclustBootstrapLRT",
    "mclustICL",
    "me",
    "priorControl",
    "quantileMclust",
]

document()
