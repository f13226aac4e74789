"""The engine of MPI, and what runs on it; users import it from `gaussmix.mpi`."""
