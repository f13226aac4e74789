"""The kinds of data that are accepted."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from gaussmix import BayesianGaussianMixture, GaussianMixture, GaussianMixtureClassifier, Likelihood, Mixture, plot, select
from gaussmix.deconvolution import XDGMM, ExtremeDeconvolution
from gaussmix.hmm import GaussianHMM
from gaussmix.mclust import Mclust


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).normal(size=(60, 3))


@pytest.fixture(scope="module")
def fitted(x):
    return GaussianMixture(2, random_state=0).fit(x)


def unaligned(x):
    """Return the same numbers, each at an odd address."""
    memory = np.zeros(x.nbytes + 1, dtype=np.uint8)
    view = memory[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    assert not view.flags.aligned
    return view


def of_records(x):
    """Return the same numbers as a field of records, whose strides are not multiples of a number's size."""
    records = np.zeros(x.shape, dtype=np.dtype([("pad", "u1"), ("value", x.dtype)]))
    records["value"] = x
    return records["value"]


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


LAYOUTS = {
    "fortran": np.asfortranarray,
    "every other": lambda x: np.repeat(np.repeat(x, 2, axis=0), 2, axis=1)[::2, ::2],
    "backwards": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": read_only,
    "unaligned": unaligned,
    "records": of_records,
    "big-endian": lambda x: x.astype(">f8"),
    "list": lambda x: x.tolist(),
    "object": lambda x: x.astype(object),
    "longdouble": lambda x: x.astype(np.longdouble),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_does_not_matter(layout, x, fitted):
    other = LAYOUTS[layout](x)
    gm = GaussianMixture(2, random_state=0).fit(other)
    np.testing.assert_array_equal(gm.means_, fitted.means_)
    np.testing.assert_array_equal(fitted.score_samples(other), fitted.score_samples(x))
    parameters = (fitted.weights_, fitted.means_, fitted.covariances_)
    assert Likelihood(other, device="cpu")(*parameters) == Likelihood(x, device="cpu")(*parameters)
    assert Likelihood(x, device="cpu")(*map(LAYOUTS["fortran"], parameters)) == Likelihood(x, device="cpu")(*parameters)


def test_memory_mapped_files(x, fitted, tmp_path):
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    np.testing.assert_array_equal(GaussianMixture(2, random_state=0).fit(mapped).means_, fitted.means_)


def test_tables_have_feature_names(x, fitted):
    pandas, polars, pyarrow = map(pytest.importorskip, ["pandas", "polars", "pyarrow"])
    names = ["a", "b", "c"]
    columns = dict(zip(names, x.T))
    for table in (pandas.DataFrame(columns), polars.DataFrame(columns)):
        gm = GaussianMixture(2, random_state=0).fit(table)
        np.testing.assert_array_equal(gm.means_, fitted.means_)
        assert gm.feature_names_in_.tolist() == names
        with pytest.warns(UserWarning, match="X does not have valid feature names"):
            gm.predict(x)
    table = pyarrow.table(columns)
    np.testing.assert_array_equal(GaussianMixture(2, random_state=0).fit(table).means_, fitted.means_)


def test_names_travel_to_the_command_and_back(x, fitted, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(x, columns=["a", "b", "c"])
    frame[["c", "a", "b"]].assign(id=range(60)).to_csv(tmp_path / "x.csv", index=False)
    gm = GaussianMixture(2, random_state=0).fit(frame)

    def gmm(*arguments):
        program = "from gaussmix._core import run_program; import sys; sys.exit(run_program())"
        subprocess.run([sys.executable, "-c", program, *arguments], cwd=tmp_path, check=True)

    for name in ("model.json", "model.npz"):
        gm.save(tmp_path / name)
        loaded = GaussianMixture.load(tmp_path / name)
        assert loaded.feature_names_in_.tolist() == ["a", "b", "c"]
        np.testing.assert_array_equal(loaded.predict(frame), gm.predict(frame))
        with pytest.raises(ValueError, match="feature names should match"):
            loaded.predict(frame[["c", "a", "b"]])
        # The command sorts the columns.
        gmm("predict", name, "x.csv", "--id", "id", "-o", "labels.csv")
        labels = pandas.read_csv(tmp_path / "labels.csv")
        assert labels.columns.tolist() == ["id", "component"]
        np.testing.assert_array_equal(labels["component"], gm.predict(frame))
        gmm("fit", "x.csv", "--init", name, "-o", "again.npz")
        assert GaussianMixture.load(tmp_path / "again.npz").feature_names_in_.tolist() == ["a", "b", "c"]
    fitted.save(tmp_path / "plain.json")
    assert not hasattr(GaussianMixture.load(tmp_path / "plain.json"), "feature_names_in_")
    # A name of two columns finds neither.
    gm.feature_names_in_ = np.array(["a", "b", "a"], dtype=object)
    with pytest.warns(UserWarning, match="two features are called"):
        gm.save(tmp_path / "twice.json")
    assert "feature_names" not in (tmp_path / "twice.json").read_text()


def test_output_of_a_transformer_may_be_a_table(x):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pipeline = make_pipeline(StandardScaler(), GaussianMixture(2, random_state=0)).set_output(transform="pandas")
    assert pipeline.fit(x).predict(x).shape == (60,)


anything = st.one_of(
    nps.arrays(
        dtype=st.sampled_from([np.float64, np.float32, np.float16, np.int8, np.uint64, np.bool_, np.complex64]),
        shape=nps.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6),
    ),
    st.lists(st.lists(st.one_of(st.floats(), st.text(max_size=2), st.none()), max_size=3), max_size=3),
)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(anything, st.integers(1, 8), st.sampled_from(["full", "tied", "diag", "spherical"]), st.booleans())
@pytest.mark.filterwarnings("ignore")
def test_nothing_crashes_the_interpreter(x, n_components, covariance_type, weighted):
    gm = GaussianMixture(n_components, covariance_type=covariance_type, random_state=0, max_iter=3)
    try:
        gm.fit(x, sample_weight=np.ones(len(x)) if weighted else None)
        np.testing.assert_allclose(gm.predict_proba(x).sum(axis=1), 1)
    except (ValueError, TypeError, OverflowError) as error:
        assert str(error)
        # Numbers of ordinary size in enough rows fit.
        assert not (
            isinstance(x, np.ndarray)
            and x.ndim == 2
            and x.dtype.kind in "fiu"
            and x.shape[1] > 0
            and len(x) >= max(2, n_components)
            and np.all(np.abs(x.astype(float)) < 1e6)
        ), error


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(anything, anything, anything)
@pytest.mark.filterwarnings("ignore")
def test_parameters_of_any_kind_are_refused_in_words(weights, means, covariances):
    likelihood = Likelihood(np.zeros((4, 2)), device="cpu")
    for call in (likelihood, likelihood.gradient, likelihood.statistics, likelihood.score_samples):
        try:
            assert call(weights, means, covariances) is not None
        except (ValueError, TypeError) as error:
            assert str(error)
    try:
        assert GaussianMixture.from_parameters(weights, means, covariances).mixture_.n_features
    except (ValueError, TypeError) as error:
        assert str(error)


def test_more_components_than_memory_is_an_error():
    with pytest.raises(ValueError, match="n_samples >= n_components"):
        GaussianMixture(10**18).fit(np.zeros((5, 2)))


FITS_A_MAPPED_FILE = """
import sys, threading, time
import numpy as np
import gaussmix
from gaussmix import BayesianGaussianMixture, GaussianMixture, GaussianMixtureClassifier, Likelihood, plot, select

def anonymous():
    \"\"\"The bytes of memory that are no mapped file's.\"\"\"
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) * 1024

gaussmix._arrays.MEMORY = 30_000_000
x = np.load(sys.argv[1], mmap_mode="r")
before, most = anonymous(), 0
def watch():
    global most
    while True:
        most = max(most, anonymous())
        time.sleep(0.002)
threading.Thread(target=watch, daemon=True).start()
gm = GaussianMixture(2, covariance_type="diag", max_iter=3, tol=0, random_state=0).fit(x)
likelihood = Likelihood(x, covariance_type="diag")
total = likelihood(gm.weights_, gm.means_, gm.covariances_)
assert "chunks" in likelihood.device, likelihood.device
print(repr(total), repr(float(np.sum(gm.score_samples(x)))), most - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.filterwarnings("ignore:Best performing")
def test_a_mapped_file_may_be_larger_than_the_memory(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4_000_000, 16)).astype(np.float32)
    x[::3] += 4
    path = tmp_path / "x.npy"
    np.save(path, x)
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", FITS_A_MAPPED_FILE, path], check=True, capture_output=True, text=True)
    total, scores, memory = map(float, run.stdout.split())
    # A third of the 30 MB is a chunk, one of 4·10⁶ log-likelihoods in float64 takes 32 MB; the file has 256 MB.
    assert memory < 120e6
    # The same samples at once: other chunks round otherwise, in float32.
    gm = GaussianMixture(2, covariance_type="diag", max_iter=3, tol=0, random_state=0).fit(x)
    whole = Likelihood(x, covariance_type="diag")(gm.weights_, gm.means_, gm.covariances_)
    np.testing.assert_allclose([total, scores], whole, rtol=1e-6)


def test_what_a_mask_hides_is_missing(iris):
    pandas = pytest.importorskip("pandas")
    hidden = np.zeros((150, 4), dtype=bool)
    hidden[:20, 0] = True
    masked = np.ma.masked_array(np.where(hidden, 9.96921e36, iris), mask=hidden)
    missing = np.where(hidden, np.nan, iris)
    for x, same in ((masked, missing), (masked.astype(np.float32), missing.astype(np.float32))):
        fits = [GaussianMixture(2, missing=True, random_state=0).fit(given) for given in (x, same)]
        assert np.array_equal(fits[0].means_, fits[1].means_) and fits[0].means_.dtype == fits[1].means_.dtype
        assert np.array_equal(fits[0].predict(x), fits[0].predict(same))
    whole = np.ma.masked_array(np.arange(8).reshape(4, 2), mask=[[True, False]] + [[False, False]] * 3)
    assert np.isclose(GaussianMixture(1, missing=True, tol=1e-12).fit(whole).means_[0, 1], 4)
    with pytest.raises(ValueError, match=r"contains NaN[\s\S]*row 0, column 0"):
        GaussianMixture(2).fit(masked)
    # A mask that hides nothing has no effect.
    assert np.array_equal(GaussianMixture(1).fit(np.ma.masked_array(iris)).means_, GaussianMixture(1).fit(iris).means_)
    parameters = ([1.0], [[0.0] * 4], [[1.0] * 4])
    xd = ExtremeDeconvolution.from_parameters(*parameters, missing=True)
    table = pandas.DataFrame(missing).astype("Float64")
    for evaluate in (
        lambda x: Likelihood(x, missing=True)(*parameters),
        lambda x: xd.score(x, noise=np.ones((150, 4)), projection=np.tile(np.eye(4), (150, 1, 1))),
        lambda x: GaussianHMM(2, random_state=0, missing=True).fit(x).score(x),
    ):
        assert evaluate(masked) == evaluate(missing) == evaluate(table)
    for refuse in (
        lambda: GaussianHMM(2).fit(masked),
        lambda: Mclust(masked[:, 0], G=2),
        lambda: Mixture(*parameters).regression([0, 1]).predict(masked[:, :2]),
        lambda: XDGMM().fit(masked, np.ones((150, 4))),
    ):
        with pytest.raises(ValueError, match="NaN"):
            refuse()


@pytest.mark.parametrize("call", [
    lambda x, mask: GaussianMixture(2).fit(x, sample_weight=mask),
    lambda x, mask: GaussianMixture(2).fit(x, labels=mask.astype(int)),
    lambda x, mask: GaussianMixtureClassifier(1).fit(x, mask.astype(int)),
    lambda x, mask: Likelihood(x, mask),
])  # fmt: skip
def test_a_mask_where_nothing_may_be_missing_is_refused(iris, call):
    with pytest.raises(ValueError, match="hides a value in row 7"):
        call(iris, np.ma.masked_array(np.ones(150), mask=np.arange(150) == 7))


def test_a_mask_chooses_features(iris):
    gm = GaussianMixture(2, random_state=0).fit(iris).mixture_
    for mask in ([True, False, False, True], np.array([True, False, False, True])):
        assert np.array_equal(gm.marginal(mask).means, gm.marginal([0, 3]).means)
    for call in (lambda: gm.marginal([True, False]), lambda: gm.cdf(1.0, feature=True), lambda: gm.condition({True: 1.0})):
        with pytest.raises(TypeError, match="a feature is True; give its name, or its number"):
            call()


@pytest.mark.parametrize(("call", "kind", "message"), [
    (lambda gm: gm.reduce(-1), ValueError, "n_components is -1; give a whole number from 1"),
    (lambda gm: gm.reduce(10**30), ValueError, "n_components is 1000"),
    (lambda gm: gm.on_axis(-1, feature=0), ValueError, "n_points is -1"),
    (lambda gm: gm.sorted([-1, 0]), ValueError, "component in order is -1"),
    (lambda gm: gm.kl_divergence(gm, 1e3), TypeError, r"n_samples is 1000.0; give a whole number"),
    (lambda gm: gm.condition([(0, 1.0)]), TypeError, r"is a list; give a dict of features and their values"),
    (lambda gm: gm.condition({0: 10**400}), ValueError, "value of feature 0 is 1000"),
    (lambda gm: gm.condition({0: None}), TypeError, "value of feature 0 is None"),
    (lambda gm: Mixture.sum([3, gm]), TypeError, "one of mixtures is a int; give a Mixture"),
    (lambda gm: Mixture.sum({"a": gm}), TypeError, "give a list of mixtures"),
])  # fmt: skip
def test_wrong_arguments_of_mixtures_are_named(iris, call, kind, message):
    with pytest.raises(kind, match=message):
        call(GaussianMixture(2, random_state=0).fit(iris).mixture_)


@pytest.mark.parametrize(("call", "message"), [
    (lambda x, y: select(x, 3, estimator=BayesianGaussianMixture()), "is a BayesianGaussianMixture; .* elbo_ compares"),
    (lambda x, y: select(x, "1:3"), r"n_components is '1:3'; .* such as range\(1, 4\)"),
    (lambda x, y: select(x, [1, 2.0]), r"a number of n_components is 2.0; give a whole number"),
    (lambda x, y: plot(GaussianMixtureClassifier(1).fit(x, y), x), "is a GaussianMixtureClassifier; give a Mixture"),
])  # fmt: skip
def test_what_is_no_mixture_is_refused_by_name(iris, call, message):
    with pytest.raises(TypeError, match=message):
        call(iris, np.repeat([0, 1, 2], 50))


def test_priors_of_classes_are_given_in_order_or_by_class(iris):
    y = np.repeat([0, 1, 2], 50)
    found = [GaussianMixtureClassifier(1, priors=priors).fit(iris, y).priors_ for priors in ([0.2, 0.3, 0.5], {2: 0.5, 0: 0.2, 1: 0.3})]
    assert np.array_equal(*found)
    for priors, message in (
        ({0: 0.2, 1: 0.8}, "no number for class 2"),
        ({0: 0.2, 1: 0.3, 2: 0.5, 3: 0}, "the class 3, which no sample has"),
    ):
        with pytest.raises(ValueError, match=message):
            GaussianMixtureClassifier(1, priors=priors).fit(iris, y)
