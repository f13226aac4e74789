"""Many fits in one call: each is the fit of its group alone."""

import os
import pickle
import signal
import sys
import threading
import warnings
from datetime import date

import numpy as np
import pytest
import sklearn.datasets
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from gaussmix import BayesianGaussianMixture, GaussianMixture, ManyMixtures, fit_many, select

SIZES = {"a": 40, "bb": 7, "c": 1000, "d": 3, "e": 16500, "f": 200}
ARRAYS = ("weights_", "means_", "covariances_")


@pytest.fixture(scope="module")
def data():
    """Return samples of groups, in random order, and their groups; one has fewer samples than components."""
    rng = np.random.default_rng(3)
    groups = rng.permutation(np.repeat(list(SIZES), list(SIZES.values())))
    x = rng.normal(size=(len(groups), 3)) + 6 * rng.integers(0, 3, len(groups))[:, np.newaxis]
    return x, groups


def quietly(work):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return work()


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("estimator", [GaussianMixture(4), BayesianGaussianMixture(n_components=4)], ids=["em", "vb"])
def test_each_fit_has_the_bits_of_the_fit_alone(data, estimator, kind, global_dtype):
    x, groups = data[0].astype(global_dtype), data[1]
    # More than 16,384 samples get the engine's own start.
    weights = None if kind == "full" else np.linspace(0.5, 2, len(x))
    estimator.set_params(covariance_type=kind, random_state=7, n_init=2, device="cpu")
    many = quietly(lambda: fit_many(x, estimator, groups=groups, sample_weight=weights))
    assert many.groups_.tolist() == sorted(SIZES) and many.sizes_.tolist() == list(SIZES.values())
    assert list(many.errors_) == ["d"] and "3 samples" in many.errors_["d"]
    for number, group in enumerate(many.groups_):
        rows = groups == group
        if group == "d":
            with pytest.raises(ValueError, match="3 samples"):
                many[group]
            assert np.isnan(many.means_[number]).all() and not many.converged_[number]
            continue
        part = None if weights is None else weights[rows]
        alone = quietly(lambda: estimator.fit(x[rows], sample_weight=part))  # noqa: B023
        fitted = many[group]
        for name in (*ARRAYS, "lower_bounds_", "precisions_cholesky_"):
            assert np.array_equal(getattr(fitted, name), getattr(alone, name)), (group, name)
        for name in ARRAYS:
            # The results of the call are float64, as in the engine.
            assert np.array_equal(getattr(many, name)[number].astype(getattr(alone, name).dtype), getattr(alone, name))
        assert many.n_iter_[number] == alone.n_iter_ and many.converged_[number] == alone.converged_
        assert many.lower_bound_[number] == alone.lower_bound_
        assert np.array_equal(many.predict(x[rows], groups[rows]), alone.predict(x[rows]))


def test_predictions_are_those_of_the_mixture_of_the_group(data):
    x, groups = data
    many = quietly(lambda: fit_many(x, GaussianMixture(4, random_state=0), groups=groups))
    scores, labels = many.score_samples(x, groups), many.predict(x, groups)
    for group in many.groups_:
        rows = groups == group
        if group == "d":
            assert np.isnan(scores[rows]).all() and (labels[rows] == -1).all()
        else:
            assert np.array_equal(labels[rows], many[group].predict(x[rows]))
            assert np.allclose(scores[rows], many[group].score_samples(x[rows]), rtol=1e-12, atol=1e-12)
    # In a different order, and for some groups only.
    some = np.flatnonzero((groups == "f") | (groups == "a"))[::-1]
    assert np.array_equal(many.predict(x[some], groups[some]), labels[some])
    copy = pickle.loads(pickle.dumps(many))
    assert np.array_equal(copy.predict(x, groups), labels)
    assert np.allclose(copy.score_samples(x, groups), scores, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert np.array_equal(copy["f"].means_, many["f"].means_) and list(copy) == list(many) and len(copy) == 6
    with pytest.raises(ValueError, match="no mixture of group 'zz'"):
        many.predict(x[:1], ["zz"])
    with pytest.raises(KeyError):
        many["zz"]


def test_a_list_of_arrays_and_the_table(iris):
    sets = [iris[:50], iris[50:100], iris[100:]]
    many = fit_many(sets, GaussianMixture(2, random_state=0))
    assert many.groups_.tolist() == [0, 1, 2] and many.means_.shape == (3, 2, 4)
    for number, part in enumerate(sets):
        assert np.array_equal(many[number].means_, GaussianMixture(2, random_state=0).fit(part).means_)
    table = many.table()
    assert table["n_samples"].tolist() == [50, 50, 50] and table["error"].tolist() == ["", "", ""]
    assert table["converged"].all() and np.array_equal(table["lower_bound"], many.lower_bound_)
    # The columns of a table, each by itself.
    columns = fit_many([iris[:, [j]] for j in range(4)], BayesianGaussianMixture(n_components=3, random_state=0))
    assert columns.means_.shape == (4, 3, 1)


def test_missing_values(iris):
    x = iris.copy()
    x[::7, 1] = np.nan
    groups = np.repeat([30, 20, 10], 50)
    estimator = GaussianMixture(2, missing=True, random_state=1)
    many = quietly(lambda: fit_many(x, estimator, groups=groups))
    for group in (10, 20, 30):
        alone = quietly(lambda: estimator.fit(x[groups == group]))  # noqa: B023
        assert np.array_equal(many[group].means_, alone.means_)


def test_failures_are_said_and_stop_nobody(iris):
    sets = [iris[:50], iris[:1], iris[50:]]
    with pytest.warns(RuntimeWarning, match="1 of 3 fits failed .* of group 1: .*1 sample"):
        many = fit_many(sets, GaussianMixture(2, random_state=0))
    assert np.isfinite(many.means_[[0, 2]]).all()
    with pytest.warns(ConvergenceWarning, match="2 of 2 fits did not converge"):
        fit_many([iris[:50], iris[50:]], GaussianMixture(3, tol=0, max_iter=2, random_state=0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"groups": [0] * 149}, r"groups has the shape \(149,\)"),
        ({"groups": [np.nan] * 150}, "NaN, first in row 0"),
        ({"groups": [None] * 150}, "without missing values"),
        ({"groups": np.array([1, "a", 2] * 50, dtype=object)}, r"all of one kind .* they are \['int', 'str'\]"),
        ({"groups": np.array(["2026-01-01", "NaT"] * 75, dtype="M8[D]")}, "NaT, first in row 1"),
        ({"groups": np.ma.masked_equal([0, 1, 2] * 50, 1)}, "hides a value in row 1"),
        ({"groups": None}, "one array needs groups"),
        ({"estimator": GaussianMixture(2, standardize=True)}, "do not take standardize"),
        ({"estimator": GaussianMixture(2, means_init=np.zeros((2, 4)))}, "do not take means_init"),
        ({"estimator": GaussianMixture(2, init_params="random")}, "start by 'kmeans' or 'hierarchical', not by 'random'"),
        ({"estimator": GaussianMixture(0)}, "n_components"),
        ({"estimator": GaussianMixture(2, device="nothing")}, "no device `nothing`"),
    ],
)
def test_what_cannot_be_is_refused(iris, arguments, message):
    arguments = {"groups": np.arange(150) % 3, "estimator": GaussianMixture(2), **arguments}
    with pytest.raises(ValueError, match=message):
        fit_many(iris, arguments["estimator"], groups=arguments["groups"])


def test_lists_that_do_not_fit_together_are_refused(iris):
    with pytest.raises(ValueError, match="samples of group 1: X has 3 features"):
        fit_many([iris[:50], iris[50:100, :3]], GaussianMixture())
    with pytest.raises(ValueError, match="no groups"):
        fit_many([], GaussianMixture())
    with pytest.raises(ValueError, match="row 10 of group 1, column 2"):
        x = iris.copy()
        x[60, 2] = np.nan
        fit_many([x[:50], x[50:]], GaussianMixture())
    # What was fitted before stays.
    many = fit_many([iris[:50, :3], iris[50:, :3]], GaussianMixture())
    before = vars(many).copy()
    with pytest.raises(ValueError, match="contains NaN|row 60"):
        many.fit(x, np.repeat([7, 8, 9], 50))
    assert all(vars(many)[name] is value for name, value in before.items())


def test_progress_is_printed(iris, capsys):
    fit_many([iris[:50]] * 20, GaussianMixture(2, random_state=0), verbose=1)
    assert "20 of 20 runs" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_ctrl_c_keeps_what_is_done():
    rng = np.random.default_rng(0)
    sets = [rng.normal(size=(60, 8))] * 3 + [rng.normal(size=(20000, 8))] * 40
    many = ManyMixtures(GaussianMixture(8, tol=0, max_iter=2000, random_state=0, device="cpu", n_jobs=2))
    timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            many.fit(sets)
    finally:
        timer.cancel()
    stopped = [group for group, text in many.errors_.items() if "stopped" in text]
    assert stopped and all(np.isnan(many.means_[group]).all() for group in stopped)
    done = [group for group in many if group not in many.errors_]
    assert all(np.isfinite(many[group].means_).all() for group in done)


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("option", [{}, {"standardize": True}, {"reproducible": True}], ids=str)
def test_starts_side_by_side_are_those_one_after_the_other(iris, kind, option):
    if "standardize" in option and kind == "spherical":
        pytest.skip("such fits are not standardised")
    params = {"covariance_type": kind, "n_init": 5, "random_state": 3, **option}
    seen = []
    # A callback sees the runs in their order.
    one_by_one = GaussianMixture(4, callback=seen.append, **params).fit(iris)
    together = GaussianMixture(4, **params).fit(iris)
    assert len({iteration.run for iteration in seen}) == 5
    for name in (*ARRAYS, "lower_bounds_", "converged_", "n_iter_", "retained_"):
        assert np.array_equal(getattr(together, name), getattr(one_by_one, name)), name


def test_a_selection_has_the_bits_of_fits_one_after_the_other(iris):
    kinds = ["full", "diag"]
    names = [f"feature {j}" for j in range(4)]
    pandas = pytest.importorskip("pandas")
    x = pandas.DataFrame(iris, columns=names)
    found = quietly(lambda: select(x, range(1, 8), covariance_type=kinds, n_init=2, random_state=5))
    rows = iter(found.table)
    for kind in kinds:
        for k in range(1, 8):
            gm = quietly(lambda: GaussianMixture(k, covariance_type=kind, n_init=2, random_state=5).fit(iris))  # noqa: B023
            row = next(rows)
            assert (row.n_components, row.covariance_type) == (k, kind)
            assert (row.criterion, row.n_iter, row.converged) == (gm.bic(iris), gm.n_iter_, gm.converged_)
    best = min(found.table, key=lambda row: row.criterion)
    assert found.best.n_components == best.n_components and list(found.best.feature_names_in_) == names
    assert found.best.predict(x).shape == (150,)
    # Too many components for the samples.
    with pytest.warns(UserWarning, match="from 6 on are left out"):
        assert len(select(iris[:5], [2, 7, 6], random_state=0).table) == 1
    with pytest.raises(ValueError, match="n_samples >= n_components"):
        select(iris[:5], [6, 7])


@pytest.mark.parametrize(
    "estimator", [GaussianMixture(2, n_init=2, random_state=0), BayesianGaussianMixture(n_components=3, random_state=0)]
)
def test_a_checkpoint_goes_on(iris, estimator, tmp_path):
    groups = np.array(["setosa", "versicolor", "virginica"])[np.arange(150) // 50]
    path = tmp_path / "fits.jsonl"
    whole = quietly(lambda: fit_many(iris, estimator, groups=groups))
    first = quietly(lambda: fit_many(iris, estimator, groups=groups, checkpoint=path))
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) == 1 + 3 * estimator.n_init
    # As if the process had been killed while it wrote the third run.
    path.write_text("".join(lines[:3]) + lines[3][:50])
    again = quietly(lambda: fit_many(iris, estimator, groups=groups, checkpoint=path))
    for many in (first, again):
        for name in ("weights_", "means_", "covariances_", "converged_", "n_iter_", "lower_bound_"):
            assert np.array_equal(getattr(many, name), getattr(whole, name)), name
    assert path.read_text().startswith("".join(lines[:3])) and len(path.read_text().splitlines()) == len(lines)
    assert np.array_equal(again.predict(iris, groups), whole.predict(iris, groups))
    with pytest.raises(ValueError, match=r"fits\.jsonl: belongs to other fits: tol was 0\.001 and is 0\.1 now"):
        fit_many(iris, clone(estimator).set_params(tol=0.1), groups=groups, checkpoint=path)
    with pytest.raises(ValueError, match="X differs"):
        fit_many(iris + 1.0, estimator, groups=groups, checkpoint=path)
    with pytest.raises(ValueError, match="the rows of the groups differs"):
        fit_many(iris, estimator, groups=groups == "setosa", checkpoint=path)
    with pytest.raises(ValueError, match="integer for random_state"):
        fit_many(iris, clone(estimator).set_params(random_state=None), groups=groups, checkpoint=path)
    with pytest.raises(FileNotFoundError, match="none"):
        fit_many(iris, estimator, groups=groups, checkpoint=tmp_path / "none" / "c.jsonl")


def data_sets():
    """Data sets of scikit-learn's package: blobs, digits and the colours of an image."""
    colours = sklearn.datasets.load_sample_image("flower.jpg")[::8, ::8].reshape(-1, 3) / 255.0
    return {
        "blobs": (sklearn.datasets.make_blobs(600, 3, centers=6, random_state=1)[0], "full", 7),
        "digits": (sklearn.datasets.load_digits().data[:600] / 16.0, "diag", 8),
        "colours": (colours, "full", 5),
    }


@pytest.mark.parametrize("name", ["blobs", "digits", "colours"])
@pytest.mark.parametrize("standardize", [False, True])
def test_growing_finds_no_lower_bound(name, standardize):
    x, kind, most = data_sets()[name]
    if standardize:
        x = x + 1e-3 * np.random.default_rng(0).normal(size=x.shape)
    params = {"covariance_type": kind, "random_state": 0, "standardize": standardize, "reg_covar": 1e-3}
    one_by_one = [quietly(lambda k=k: GaussianMixture(k, **params).fit(x)) for k in range(1, most + 1)]
    grown = quietly(lambda: select(x, range(most, 0, -1), grow=True, **params))
    assert [row.n_components for row in grown.table] == list(range(1, most + 1))
    # The score is that after the last M-step; the guarantee is for the bound before it.
    gains = [row.score - gm.score(x) for row, gm in zip(grown.table, one_by_one, strict=True)]
    assert gains[0] == 0.0 and min(gains) > -2e-3 and max(gains) > 1e-3, gains
    again = quietly(lambda: select(x, range(1, most + 1), grow=True, **params))
    assert again.table == grown.table


def test_growing_needs_all_parameters_free(iris):
    with pytest.raises(ValueError, match="freeze is given beside growing"):
        select(iris, 3, grow=True, freeze=["weights"])


@pytest.mark.parametrize("make", [GaussianMixture, BayesianGaussianMixture])
def test_halving(iris, make):
    def fitted(**params):
        seen = []
        callback = seen.append if params.pop("watched", False) else None
        gm = make(n_components=3, n_init=6, random_state=0, max_iter=500, callback=callback, **params)
        return quietly(lambda: gm.fit(iris)), seen

    halved, seen = fitted(halving=True, watched=True)
    # All runs make the first iterations; the remaining ones, some more.
    runs = [iteration.run for iteration in seen]
    counts = [runs.count(run) for run in range(6)]
    assert min(counts) >= 1 and sorted(counts)[2] <= 5 < max(counts), counts
    assert np.array_equal(fitted(halving=True)[0].means_, halved.means_)
    many = quietly(lambda: fit_many([iris], clone(halved).set_params(callback=None)))
    assert np.array_equal(many.means_[0], halved.means_)


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_scores_under_a_posterior_are_those_of_the_estimator_of_the_group(iris, kind):
    groups = np.arange(150) % 3
    many = quietly(lambda: fit_many(iris, BayesianGaussianMixture(n_components=3, covariance_type=kind, random_state=0), groups=groups))
    scores = many.score_samples(iris, groups)
    for group in many:
        # Two computations of the same sums in float64.
        assert np.allclose(scores[groups == group], many[group].score_samples(iris[groups == group]), rtol=0, atol=1e-10)


def test_tables_of_groups_have_the_same_columns(iris):
    pandas = pytest.importorskip("pandas")
    frames = [pandas.DataFrame(part, columns=list("abcd")) for part in np.split(iris, 3)]
    many = fit_many(frames, GaussianMixture(1))
    assert many.feature_names_in_.tolist() == list("abcd") == many[1].feature_names_in_.tolist()
    with pytest.raises(ValueError, match="samples of group 2: The feature names should match"):
        fit_many([*frames[:2], frames[2][list("bacd")]], GaussianMixture(1))
    with pytest.raises(TypeError, match=r"list\(samples.values\(\)\)"):
        fit_many(dict(enumerate(frames)), GaussianMixture(1))


def test_errors_name_the_rows_of_the_caller(iris):
    groups = np.arange(150) % 3
    x, weights = iris.copy(), np.ones(150)
    x[17, 1], weights[17] = np.nan, -1
    for sets, message in (((x, None), "row 17, column 1"), ((iris, weights), "weight of row 17")):
        with pytest.raises(ValueError, match=message):
            fit_many(sets[0], GaussianMixture(2), groups=groups, sample_weight=sets[1])
    with pytest.raises(ValueError, match="row 17 of group 1, column 1"):
        fit_many([iris, x, iris], GaussianMixture(2))
    many = fit_many(iris, GaussianMixture(2, random_state=0), groups=groups)
    with pytest.raises(ValueError, match="row 17, column 1"):
        many.predict(x, groups)


def test_groups_are_numbers_texts_and_times(iris):
    def fit(groups):
        many = fit_many(iris, GaussianMixture(1), groups=groups)
        assert [many[group].n_features_in_ for group in many] == [4] * len(many)
        assert np.isfinite(many.score_samples(iris, groups)).all()
        return many

    day = np.arange(150) % 3
    assert fit((day + 1).astype(object)).groups_.tolist() == [1, 2, 3]
    assert fit(np.array(list("abc") * 50, dtype=object)).groups_.tolist() == ["a", "b", "c"]
    for unit in ("D", "us", "ns"):
        many = fit(np.datetime64("2026-01-01", unit) + day * np.timedelta64(1, "D"))
        assert many[date(2026, 1, 2)].means_.tolist() == many[np.datetime64("2026-01-02")].means_.tolist()
    assert fit(np.array(many.groups_.astype("M8[us]").tolist() * 50, dtype=object)).groups_.dtype.kind == "M"
    with pytest.raises(ValueError, match="the groups are numbers; those that were fitted are times"):
        many.predict(iris, day)
    large = np.array([2**53, 2**53 + 1, -1])[day]
    many_numbers = fit(large)
    for other in (large.astype(object)[day < 2], large[day < 2].astype(np.uint64)):
        assert np.array_equal(many_numbers.score_samples(iris[day < 2], other), many_numbers.score_samples(iris, large)[day < 2])
    with pytest.raises(ValueError, match="no mixture of group 18446744073709551615"):
        many_numbers.predict(iris, large.astype(np.uint64))
    for group in ("x", 1, None):
        with pytest.raises(KeyError):
            many[group]


def test_a_pickle_has_all_fits_and_errors(data):
    x, groups = data
    for estimator in (GaussianMixture(4, random_state=0), BayesianGaussianMixture(n_components=4, random_state=0)):
        many = quietly(lambda: fit_many(x, estimator, groups=groups))  # noqa: B023
        copy = pickle.loads(pickle.dumps(many))
        for group in set(SIZES) - {"d"}:
            for name in (*ARRAYS, "lower_bounds_", "converged_"):
                assert np.array_equal(getattr(copy[group], name), getattr(many[group], name))
        with pytest.raises(ValueError, match="3 samples") as of_copy:
            copy["d"]
        assert type(of_copy.value).__name__ == "TooFewSamplesError" and copy.errors_ == many.errors_
        assert np.array_equal(copy.score_samples(x, groups), many.score_samples(x, groups), equal_nan=True)
    with pytest.raises(ValueError, match="pickle of many fits is damaged"):
        type(many._fits)('[[null], [1, 1, "full"]]', [])
