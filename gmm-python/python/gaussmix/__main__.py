"""Runs a program of Python with our models in the place of scikit-learn's and hmmlearn's: ``python -m gaussmix program.py``."""

import importlib.util
import runpy
import sys

from ._patch import patch_hmmlearn, patch_sklearn

USAGE = """usage: python -m gaussmix program.py [argument ...]
       python -m gaussmix -m module [argument ...]

Runs a program unchanged, with GaussianMixture and BayesianGaussianMixture of gaussmix in the place of those of sklearn.mixture,
and with GaussianHMM, GMMHMM and VariationalGaussianHMM in the place of hmmlearn's, where it is installed."""


def main() -> int:
    """Run the program that the arguments name, and return the exit code."""
    arguments = sys.argv[1:]
    as_module = arguments[:1] == ["-m"]
    if as_module:
        arguments = arguments[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    patch_sklearn()
    if importlib.util.find_spec("hmmlearn"):
        patch_hmmlearn()
    sys.argv = arguments
    if as_module:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(__import__("pathlib").Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
