"""Warnings that name the caller's line."""

import sys
import warnings
from pathlib import Path

import sklearn

#: What lies between a caller and a warning: this package, and scikit-learn's decorators of `fit`.
_BETWEEN = tuple(str(Path(str(module)).parent) for module in (__file__, sklearn.__file__))


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the first line outside of this package and of scikit-learn."""
    if sys.version_info >= (3, 12):
        warnings.warn(message, category, skip_file_prefixes=_BETWEEN)
    else:
        frame, level = sys._getframe(1), 2
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_BETWEEN):
            frame, level = frame.f_back, level + 1
        warnings.warn(message, category, stacklevel=level)
