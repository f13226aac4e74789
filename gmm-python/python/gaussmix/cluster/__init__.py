"""A mixture fitted by several processes: what all engines (Dask, MPI, ...) have in common.

The samples are divided into partitions. Each worker loads some of them into a `Shard`, which keeps them in its device.
An iteration sends the parameters to all shards, and brings back sufficient statistics, which are added in a fixed tree
over the numbers of the partitions. So the bits of a result depend on the division into partitions and on the kind of
device, and not on how many workers there are, which of them holds which partition, or in which order they answer.

To bring the mixture to another engine, write an `Engine`: its workers call ``shard.load`` and ``shard.ask``, and it
brings what they return to the process that calls `fit`. ``GaussianMixture(8, engine=MyEngine())`` then has all methods.
"""

from .._documentation import document
from .._partitions import Partition
from .engine import Engine, InProcess
from .estimator import BayesianGaussianMixture, ExtremeDeconvolution, GaussianMixture, Likelihood
from .markov import GMMHMM, GaussianHMM
from .shard import Answer, Facts, MissingPartitionsError, Options, Shard, merge

__all__ = [
    "GMMHMM",
    "Answer",
    "BayesianGaussianMixture",
    "Engine",
    "ExtremeDeconvolution",
    "Facts",
    "GaussianHMM",
    "GaussianMixture",
    "InProcess",
    "Likelihood",
    "MissingPartitionsError",
    "Options",
    "Partition",
    "Shard",
    "merge",
]

document()
