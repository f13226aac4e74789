"""Every option of a fit exists at every door, or has a reason for its absence; docs/options.md shows which."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gaussmix
from gaussmix import _core

PAGE = Path(__file__).parents[2] / "docs" / "options.md"
DOORS = ("Rust", "Python", "`gmm fit`", "`gmm select`", "MPI")
COMMON, EM, VARIATIONAL = _core.option_names()
#: The names of options at doors that name them differently.
OTHER_NAMES = {"n_components": {"`gmm fit`": "--n-components, -k", "`gmm select`": "--n-components, -k", "MPI": "--n-components, -k"}}
OTHER_NAMES["noise"] = dict.fromkeys(("`gmm fit`", "`gmm select`", "MPI"), "--noise-component")
OTHER_NAMES["random_state"] = dict.fromkeys(("`gmm fit`", "`gmm select`", "MPI"), "--random-state, --seed")
#: Options that a door lacks, with reasons.
ABSENT = {
    **{(name, door): "`--init MODEL` starts at a model" for name in ("weights_init", "means_init", "precisions_init") for door in DOORS[2:]},
}
#: Options of a fit outside of the engine: the data, and the steps around a fit.
AROUND = {
    "standardize": ("`Fitting::standardized`", "standardize", "--standardize", "--standardize", "--standardize"),
    "missing": ("`Samples::with_missing`", "missing", "--missing", "--missing", "--missing"),
    "sample_weight": ("`Samples::with_weights`", "fit(sample_weight=)", "--sample-weight", "--sample-weight", "--sample-weight"),
    "noise of the samples": ("`Samples::with_noise`", "ExtremeDeconvolution.fit(noise=)", "--noise", "--noise", "–"),
    "labels": ("`LabelledEvaluator`", "fit(labels=)", "--labels", "–", "--labels"),
    "threads": ("`LoadOptions::threads`", "n_jobs", "--threads", "--threads", "--threads"),
    "start at a model": ("`Fitting::start`", "from_parameters, load, warm_start", "--init", "–", "--init"),
    "groups": ("`Fitting::fit_many`", "ManyMixtures, fit_many", "--by", "–", "–"),
    "checkpoint": ("`Fitting::resume`", "ManyMixtures(checkpoint=)", "--checkpoint", "–", "–"),
}


def options_of_program(command):
    """Return the options in the help of a command of the program."""
    code = "from gaussmix._core import run_program; import sys; sys.exit(run_program())"
    return options_in(subprocess.run([sys.executable, "-c", code, command, "--help"], capture_output=True, text=True, check=True).stdout)


def options_of_mpi(command):
    return options_in(_core.mpi_arguments([command, "--help"])["text"])


def options_in(text):
    return set(re.findall(r"^\s+(?:-\w, )?(--[a-z0-9-]+)", text, re.M)) | set(re.findall(r"--[a-z-]+(?=[\],])", text))


def doors():
    python = set(inspect.signature(gaussmix.GaussianMixture).parameters) | set(inspect.signature(gaussmix.BayesianGaussianMixture).parameters)
    return {"Python": python, "`gmm fit`": options_of_program("fit"), "`gmm select`": options_of_program("select"), "MPI": options_of_mpi("fit")}


def table(found):
    """Return the lines of the table, and the options that are neither at a door nor excused."""
    lines, forgotten = ["| option | " + " | ".join(DOORS) + " |", "|---" * (len(DOORS) + 1) + "|"], []
    notes = []
    for name in [*COMMON, *EM, *VARIATIONAL]:
        cells = [f"`{name}`"]
        for door in DOORS[1:]:
            spelled = name if door == "Python" else "--" + name.replace("_", "-")
            shown = OTHER_NAMES.get(name, {}).get(door, spelled)
            if shown.split(", ")[0] in found[door]:
                cells.append(shown)
            elif (name, door) in ABSENT:
                note = ABSENT[name, door]
                if note not in notes:
                    notes.append(note)
                cells.append(f"– ({notes.index(note) + 1})")
            else:
                forgotten.append((name, door))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [f"| {name} | " + " | ".join(cells) + " |" for name, cells in AROUND.items()]
    return lines, notes, forgotten


HEAD = """# Options of a fit, by door

Each option of a fit is declared once, in the library; this table is made by `GMM_WRITE_DOCS=1 pytest gmm-python/tests/test_doors.py`,
which fails where a door forgets an option. Descriptions: [the library](https://docs.rs/gmm-host/latest/gmm_host/struct.FitOptions.html),
[Python](api/gaussmix.md), [the program](manual.md).

"""


def test_every_option_stands_at_every_door():
    lines, notes, forgotten = table(doors())
    assert forgotten == []
    text = HEAD + "\n".join(lines) + "\n\n" + "\n".join(f"({i}) {note}." for i, note in enumerate(notes, 1)) + "\n"
    if os.environ.get("GMM_WRITE_DOCS"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text


def test_excuses_are_needed():
    found = doors()
    for name, door in ABSENT:
        assert "--" + name.replace("_", "-") not in found[door]


def test_what_is_around_a_fit_is_there():
    found = doors()
    for cells in AROUND.values():
        for door, cell in zip(DOORS[2:], cells[2:], strict=True):
            assert cell == "–" or cell in found[door], (door, cell)


def test_an_unknown_option_is_refused():
    gm = gaussmix.GaussianMixture(2)
    data = _core.Data(np.array([[0.0], [1.0], [5.0], [6.0]]))
    with pytest.raises(TypeError, match="a fit has no option tolerance"):
        data.fit({**gm._options(1), "tolerance": 1.0})
