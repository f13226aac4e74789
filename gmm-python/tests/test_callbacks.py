"""scikit-learn's callbacks: on our estimators, in its searches, and beside the parameter `callback`."""

import io
import pickle
import warnings
from contextlib import redirect_stdout

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from gaussmix import (
    BayesianGaussianMixture,
    GaussianMixture,
    GaussianMixtureClassifier,
    GaussianMixtureOutlierDetector,
    GaussianMixtureRegressor,
    MixturePosterior,
    cluster,
    hmm,
)
from gaussmix.cluster.engine import InProcess

callback = pytest.importorskip("sklearn.callback", reason="scikit-learn has no callbacks before 1.9")


def score(estimator, X, y, **metadata):
    """What `ScoringMonitor` is to log; with None, for the score of the estimator, scikit-learn 1.9.1 fails."""
    return {"score": estimator.score(X, y, **metadata)}


class Recorder:
    """Keeps what it is told; it is handed down by searches, as it says how far."""

    max_propagation_depth = None

    def __init__(self, stop_after=None):
        self.calls, self.made, self.stop_after = [], [], stop_after

    def setup(self, estimator, context):
        self.calls.append("setup")

    def teardown(self, estimator, context):
        self.calls.append("teardown")

    def on_fit_task_begin(self, estimator, context, *, X=None):
        self.calls.append(("begin", context.task_name, context.task_id))

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, metadata=None, fitted_estimator=None):
        self.calls.append(("end", context.task_name, context.task_id))
        if context.task_name == "iteration" and fitted_estimator is not None:
            self.made.append(fitted_estimator)
            return len(self.made) == self.stop_after


def iterations(n):
    """The calls for so many iterations, and the empty one at the end."""
    return [(call, "iteration", i) for i in range(n + 1) for call in ("begin", "end")]


@pytest.mark.parametrize("params", [{}, {"standardize": True}, {"n_init": 3}, {"n_init": 4, "halving": True}, {"init_params": "random"}])
@pytest.mark.parametrize("kind", [GaussianMixture, BayesianGaussianMixture])
def test_each_iteration_is_a_task(iris, kind, params):
    recorder, seen = Recorder(), []
    params = {"n_components": 3, "random_state": 0, **params}
    gm = kind(**params, callback=seen.append).set_callbacks(recorder).fit(iris)
    assert recorder.calls == ["setup", ("begin", "fit", 0), *iterations(len(seen)), ("end", "fit", 0), "teardown"]
    assert len(seen) >= gm.n_iter_
    for estimator, iteration in zip(recorder.made, seen, strict=True):
        # As exact as the covariances are from which they are made again.
        np.testing.assert_allclose(estimator.mixture_.means, iteration.mixture.means, rtol=1e-12)
        assert estimator.lower_bound_ == iteration.lower_bound and estimator.n_iter_ == iteration.iteration
    if kind is GaussianMixture and "n_init" not in params:
        # The bound of an iteration is the score before its M-step, which is that after the iteration before.
        scores = [estimator.score(iris) for estimator in recorder.made]
        np.testing.assert_allclose(scores[:-1], gm.lower_bounds_[1:], rtol=1e-9)
    # They change nothing; runs side by side have other starts than runs in turns only with `halving`.
    np.testing.assert_allclose(gm.means_, kind(**params).fit(iris).means_, rtol=1e-9)


def test_a_callback_stops_the_fit(iris):
    recorder = Recorder(stop_after=3)
    with warnings.catch_warnings():
        # It is not one that did not converge.
        warnings.simplefilter("error")
        gm = GaussianMixture(3, random_state=0, tol=0).set_callbacks(recorder).fit(iris)
    assert gm.n_iter_ == 3 and not gm.converged_
    assert recorder.calls == ["setup", ("begin", "fit", 0), *iterations(2), ("end", "fit", 0), "teardown"]


def test_an_error_of_a_callback_ends_the_fit(iris):
    class Fails(Recorder):
        def on_fit_task_end(self, estimator, context):
            super().on_fit_task_end(estimator, context)
            raise KeyError("mine")

    recorder = Fails()
    with pytest.raises(KeyError, match="mine"):
        GaussianMixture(3, random_state=0).set_callbacks(recorder).fit(iris)
    assert recorder.calls == ["setup", ("begin", "fit", 0), *iterations(0), "teardown"]
    # A fit that fails before its first iteration.
    recorder = Recorder()
    with pytest.raises(ValueError, match="NaN"):
        GaussianMixture(3).set_callbacks(recorder).fit(np.where(iris == iris[7], np.nan, iris))
    assert (recorder.calls[0], recorder.calls[-1]) == ("setup", "teardown")


def test_what_callbacks_are_given(iris):
    class Looks(Recorder):
        def on_fit_task_end(self, estimator, context, *, X=None, y=None, metadata=None):
            self.given = estimator, X, y, metadata

    looks, weights, y = Looks(), np.arange(1.0, 151.0), np.zeros(150)
    gm = GaussianMixture(2, random_state=0).set_callbacks(looks)
    gm.fit(iris, y, sample_weight=weights)
    assert looks.given[0] is gm and looks.given[1] is iris and looks.given[2] is y and looks.given[3]["sample_weight"] is weights
    gm.fit_predict(iris)
    assert looks.given[2] == () and looks.given[3] is None
    assert clone(gm)._skl_callbacks == gm._skl_callbacks
    with pytest.raises(TypeError, match="FitCallback"):
        gm.set_callbacks(print)
    assert not hasattr(gm.set_callbacks(), "_skl_callbacks")


def test_estimators_that_predict(iris):
    X, y = iris[:, :3], iris[:, 3]
    recorder = Recorder()
    regressor = GaussianMixtureRegressor(3, random_state=0).set_callbacks(recorder).fit(X, y)
    assert recorder.calls[2:-2] == iterations(regressor.n_iter_)
    scores = [made.score(X, y) for made in recorder.made]
    assert scores[-1] == pytest.approx(regressor.score(X, y), rel=1e-9) and scores[0] < scores[-1]

    recorder = Recorder()
    detector = GaussianMixtureOutlierDetector(3, random_state=0).set_callbacks(recorder).fit(iris)
    assert recorder.calls[2:-2] == iterations(detector.n_iter_)
    np.testing.assert_array_equal(recorder.made[-1].predict(iris), detector.predict(iris))
    assert recorder.made[0].offset_ != recorder.made[-1].offset_ == pytest.approx(detector.offset_, rel=1e-9)

    fit = ["setup", ("begin", "fit", 0), ("end", "fit", 0), "teardown"]
    for estimator in (GaussianMixtureClassifier(2, random_state=0), MixturePosterior(chains=1, warmup=20, draws=10, random_state=0)):
        recorder = Recorder()
        estimator.set_callbacks(recorder).fit(iris, np.repeat([0, 1, 2], 50))
        # All classes are fitted in one call of the engine; the chains have `progress`.
        assert recorder.calls == fit


def test_on_a_cluster(iris):
    class Ends(Recorder):
        def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
            super().on_fit_task_end(estimator, context, fitted_estimator=fitted_estimator)
            self.last = fitted_estimator

    recorder, engine = Ends(), InProcess()
    gm = cluster.GaussianMixture(3, random_state=0, engine=engine).set_callbacks(recorder).fit(iris)
    assert recorder.calls[2:-2] == iterations(gm.n_iter_) and recorder.made == []
    assert recorder.last.engine is engine and recorder.last.score(iris) == gm.score(iris)


@pytest.mark.parametrize("kind", [hmm.GaussianHMM, hmm.GMMHMM, hmm.BayesianGaussianHMM, cluster.GaussianHMM])
def test_hidden_markov_models(iris, kind):
    recorder, params = Recorder(), {"n_components": 2, "random_state": 0, "n_iter": 4, "tol": -np.inf}
    model = kind(**params).set_callbacks(recorder).fit(iris, [100, 50])
    assert recorder.calls == ["setup", ("begin", "fit", 0), *iterations(4), ("end", "fit", 0), "teardown"]
    np.testing.assert_array_equal(model.means_, kind(**params).fit(iris, [100, 50]).means_)
    # The value of an iteration is that before its M-step; a bound is not a score.
    if kind in (hmm.GaussianHMM, hmm.GMMHMM):
        scores = [made.score(iris, [100, 50]) for made in recorder.made]
        np.testing.assert_allclose(scores[:-1], list(model.monitor_.history)[1:], rtol=1e-12)
    else:
        assert len(recorder.made) == (0 if kind is cluster.GaussianHMM else 4)
    if kind is not cluster.GaussianHMM:
        assert kind(**params).set_callbacks(Recorder(stop_after=2)).fit(iris).monitor_.iter == 2
        monitor = callback.ScoringMonitor(scoring=lambda made, x, y, lengths: {"score": made.score(x, lengths)})
        model = kind(**params).set_callbacks(monitor).fit(iris, [100, 50])
        assert monitor.get_logs().data[-1]["score"] == model.score(iris, [100, 50])


def test_scoring_monitor(iris):
    monitor = callback.ScoringMonitor(scoring=score)
    gm = GaussianMixture(3, random_state=0).set_callbacks(monitor).fit(iris)
    log = monitor.get_logs().data
    assert [row["score"] for row in log if row["task_name"] == "fit"] == [gm.score(iris)]
    scores = [row["score"] for row in log if row["task_name"] == "iteration"]
    assert len(scores) == gm.n_iter_ and scores == sorted(scores)

    species, monitor = np.repeat([0, 1, 2], 50), callback.ScoringMonitor(scoring="adjusted_rand_score")
    GaussianMixture(3, random_state=0).set_callbacks(monitor).fit(iris, species)
    assert monitor.get_logs().data[-1]["adjusted_rand_score"] > 0.9
    weights, monitor = np.arange(1.0, 151.0), callback.ScoringMonitor(scoring=score)
    gm = GaussianMixture(3, random_state=0).set_callbacks(monitor).fit(iris, sample_weight=weights)
    assert monitor.get_logs().data[0]["score"] == gm.score(iris, sample_weight=weights)


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_in_a_search(iris, n_jobs):
    monitor = callback.ScoringMonitor(scoring="adjusted_rand_score")
    gm = GaussianMixture(random_state=0, n_jobs=1).set_callbacks(monitor)
    search = GridSearchCV(gm, {"n_components": [2, 3]}, cv=3, n_jobs=n_jobs).fit(iris, np.repeat([0, 1, 2], 50))
    ends = {}
    for row in monitor.get_logs().data:
        ends.setdefault(row["parent_task_id_path"] if row["task_name"] == "iteration" else row["task_id_path"], []).append(row)
    # Six fits of folds, and the last one of all samples.
    assert len(ends) == 7 and all(len(rows) > 1 for rows in ends.values())
    assert search.best_estimator_.n_iter_ + 1 in map(len, ends.values())
    assert not hasattr(search.best_estimator_, "_callback_fit_ctx") and pickle.loads(pickle.dumps(search.best_estimator_)).converged_


def test_progress_bar(iris):
    pytest.importorskip("rich")
    with redirect_stdout(io.StringIO()) as out:
        GaussianMixture(3, random_state=0).set_callbacks(callback.ProgressBar()).fit(iris)
    assert "GaussianMixture - fit" in out.getvalue() and "100%" in out.getvalue()
    with redirect_stdout(io.StringIO()) as out:
        search = GridSearchCV(GaussianMixture(random_state=0), {"n_components": [2, 3]}, cv=3).set_callbacks(callback.ProgressBar())
        search.fit(iris)
    # Nothing is said of estimators that take no callbacks.
    assert out.getvalue().count("GaussianMixture - fit") == 7
    assert not hasattr(search.best_estimator_, "_skl_callbacks")
