"""The engine of Dask, and the estimator and the likelihood on it; users import them from `gaussmix.dask`."""

try:
    import dask.array
    import distributed  # noqa: F401
except ImportError as missing:
    raise ImportError("gaussmix.dask needs Dask: pip install gaussmix[dask]") from missing
