"""Three programs of scikit-learn's documentation run unchanged on our class, and draw the same pictures.

They are read from the source distribution of the installed scikit-learn.
"""

import os
import subprocess
import sys
import tarfile

import numpy as np
import pytest
import sklearn

pytest.importorskip("seaborn")  # needed by one of the programs
pypi_simple = pytest.importorskip("pypi_simple")
image = pytest.importorskip("matplotlib.image")

PROGRAMS = ["plot_gmm_covariances", "plot_gmm_selection", "plot_gmm_pdf"]

# A backend of matplotlib whose `show` writes the figures to files and names the class that the program uses.
BACKEND = """
import os
import matplotlib.pyplot as plt
import sklearn.mixture
from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas

def show(*args, **kwargs):
    for number in plt.get_fignums():
        name = f"{len(os.listdir(os.environ['FIGURES']))}.png"
        plt.figure(number).savefig(os.path.join(os.environ["FIGURES"], name), dpi=50)
    plt.close("all")
    print("mixture of", sklearn.mixture.GaussianMixture.__module__.split(".")[0])
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The folder with the programs."""
    folder = tmp_path_factory.mktemp("examples")
    with pypi_simple.PyPISimple() as index:
        packages = index.get_project_page("scikit-learn").packages
        sources = [p for p in packages if p.package_type == "sdist" and p.version == sklearn.__version__]
        index.download_package(sources[0], folder / "scikit-learn.tar.gz")
    with tarfile.open(folder / "scikit-learn.tar.gz") as archive:
        for member in archive:
            name = os.path.basename(member.name)
            if name.removesuffix(".py") in PROGRAMS:
                (folder / name).write_bytes(archive.extractfile(member).read())
    (folder / "writing_backend.py").write_text(BACKEND)
    return folder


def run(command, programs, figures):
    """Run a program, and return its output and its pictures."""
    figures.mkdir()
    env = dict(os.environ, MPLBACKEND="module://writing_backend", FIGURES=str(figures), PYTHONPATH=os.pathsep.join(
        [str(programs), os.environ.get("PYTHONPATH", "")]
    ))  # fmt: skip
    done = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    names = sorted(os.listdir(figures), key=lambda name: int(name.split(".")[0]))
    return done.stdout, [image.imread(figures / name)[:, :, :3] for name in names]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, programs, tmp_path):
    program = str(programs / f"{name}.py")
    theirs, expected = run([program], programs, tmp_path / "theirs")
    ours, found = run(["-m", "gaussmix", program], programs, tmp_path / "ours")
    assert "mixture of sklearn" in theirs and "mixture of gaussmix" in ours
    assert len(found) == len(expected) > 0
    for ours, theirs in zip(found, expected, strict=True):
        # Fits from the same start agree to 1e-8, so a pixel differs only where a line lies between two.
        assert ours.shape == theirs.shape and np.mean(np.abs(ours - theirs)) < 2e-3
        assert np.ptp(theirs) > 0.5  # The picture is not empty.
