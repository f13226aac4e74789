"""The command `gmm`: the program of the Rust crate, through the extension."""

import sys

from . import _core


def main() -> int:
    """Run the command with the arguments of this process, and return its exit code."""
    return _core.run_program(["gmm", *sys.argv[1:]])
