"""The mixture on MPI, by mpi4py: ``pip install gaussmix[mpi]`` and an MPI library.

From the command line, ``mpiexec -n 4 python -m gaussmix.mpi fit x.npy -k 8 -o model.json``; ``--help`` has more. In a
program all ranks of a communicator make the same calls:

    from mpi4py import MPI
    from gaussmix.mpi import GaussianMixture

    gm = GaussianMixture(8, comm=MPI.COMM_WORLD).fit("x.npy")       # each rank reads its part of the file
    gm = GaussianMixture(8, comm=MPI.COMM_WORLD).fit(x)             # or has its part in an array of its own
"""

import sys

from ._documentation import document
from .cluster.mpi.command_line import main, run
from .cluster.mpi.engine import MPIEngine
from .cluster.mpi.estimator import GMMHMM, BayesianGaussianMixture, ExtremeDeconvolution, GaussianHMM, GaussianMixture, Likelihood

__all__ = ["GMMHMM", "BayesianGaussianMixture", "ExtremeDeconvolution", "GaussianHMM", "GaussianMixture", "Likelihood", "MPIEngine", "main"]

document()

if __name__ == "__main__":
    sys.exit(run())
