"""Hidden Markov models: hmmlearn's values, its interface, and what it lacks."""

import itertools
import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.datasets import load_iris

import gaussmix
from gaussmix import hmm

IRIS = load_iris().data
X = IRIS[7 * np.arange(150) % 150]
#: hmmlearn 0.3.3's histories and scores after ten iterations (eight of variational inference).
CASES = json.loads(Path(__file__).with_name("hmm.json").read_text())
TYPES = ("spherical", "diag", "full", "tied")


def isotropic(kind, k, d, variance):
    shapes = {"spherical": np.ones(k), "diag": np.ones((k, d)), "full": np.tile(np.eye(d), (k, 1, 1)), "tied": np.eye(d)}
    return variance * shapes[kind]


def model(kind="diag", k=3, **params):
    """Return a model with the golden start."""
    start = hmm.GaussianHMM(k, kind, init_params="", **params)
    start.startprob_, start.transmat_ = np.array([0.6, 0.3, 0.1]), np.full((3, 3), 0.1) + 0.7 * np.eye(3)
    start.means_, start.covars_ = IRIS[[0, 50, 100]].copy(), isotropic(kind, 3, 4, 0.5)
    return start


def close(got, want, tolerance=1e-8):
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "case", [case for case in CASES if "gmm" not in case and "vb" not in case], ids=lambda c: f"{c['cov']}{len(c['lengths'])}"
)
def test_golden_values_of_gaussians(case):
    lengths = case["lengths"]
    fit = model(case["cov"], n_iter=10, tol=-np.inf, hmmlearn_compatible=True)
    close(fit.score(X, lengths), -605.4960433576 if lengths == [150] else -608.3640273722)
    fit.fit(X, lengths)
    close(fit.monitor_.history, case["history"])
    close(fit.score(X, lengths), case["score"])
    close(fit.decode(X, lengths)[0], case["viterbi"])
    close(fit.transmat_, case["transmat"])
    close(fit.means_, case["means"])


@pytest.mark.parametrize("case", [case for case in CASES if "gmm" in case], ids=lambda c: c["cov"])
def test_golden_values_of_mixtures(case):
    fit = hmm.GMMHMM(2, 2, covariance_type=case["cov"], init_params="", n_iter=10, tol=-np.inf, hmmlearn_compatible=True)
    fit.startprob_, fit.transmat_, fit.weights_ = np.full(2, 0.5), np.array([[0.9, 0.1], [0.2, 0.8]]), np.full((2, 2), 0.5)
    fit.means_ = IRIS[[0, 20, 60, 120]].reshape(2, 2, 4).copy()
    shapes = {"spherical": (2, 2), "diag": (2, 2, 4), "full": (2, 2, 4, 4), "tied": (2, 4, 4)}
    fit.covars_ = (np.eye(4) if case["cov"] in ("full", "tied") else 1.0) * np.full(shapes[case["cov"]], 0.5)
    fit.fit(X)
    close(fit.monitor_.history, case["history"])
    close(fit.score(X), case["score"])
    close(fit.weights_, case["weights"])
    close(fit.transmat_, case["transmat"])
    assert fit.covars_.shape == shapes[case["cov"]]


@pytest.mark.parametrize("case", [case for case in CASES if "vb" in case], ids=lambda c: c["cov"])
def test_golden_values_of_variational_inference(case):
    kind = case["cov"]
    fit = hmm.VariationalGaussianHMM(3, kind, init_params="", n_iter=8, tol=-np.inf)
    fit.startprob_prior_, fit.startprob_posterior_ = np.full(3, 1 / 3), np.ones(3)
    fit.transmat_prior_, fit.transmat_posterior_ = np.full((3, 3), 1 / 3), np.full((3, 3), 50 / 3)
    fit.means_prior_, fit.means_posterior_ = np.tile(X.mean(0), (3, 1)), IRIS[[0, 50, 100]].copy()
    fit.beta_prior_, fit.beta_posterior_ = np.ones(3), np.full(3, 50.0)
    fit.dof_prior_, fit.dof_posterior_ = (4, 50) if kind == "tied" else (np.full(3, 4.0), np.full(3, 50.0))
    fit.scale_prior_, fit.scale_posterior_ = isotropic(kind, 3, 4, 1e-3), isotropic(kind, 3, 4, 25.0)
    fit.fit(X)
    close(fit.monitor_.history, case["history"])
    close(fit.score(X), case["score"])
    close(fit.decode(X)[0], case["viterbi"])
    assert fit.monitor_.history == type(fit.monitor_.history)(sorted(fit.monitor_.history))


def test_scores_are_sums_over_paths():
    some, rows = model("full"), X[:6]
    log_b = np.array([multivariate_normal(m, c).logpdf(rows) for m, c in zip(some.means_, some.covars_, strict=True)]).T
    logs = {}
    for path in itertools.product(range(3), repeat=6):
        moves = sum(np.log(some.transmat_[a, b]) for a, b in itertools.pairwise(path))
        logs[path] = np.log(some.startprob_[path[0]]) + moves + sum(log_b[t, s] for t, s in enumerate(path))
    total = np.logaddexp.reduce(list(logs.values()))
    close(some.score(rows), total, 1e-12)
    log_prob, states = some.decode(rows)
    assert tuple(states) == max(logs, key=logs.get)
    close(log_prob, max(logs.values()), 1e-12)
    log_prob, states = some.decode(rows, algorithm="map")
    close(log_prob, logs[tuple(states)], 1e-12)
    posteriors = some.predict_proba(rows)
    some.hmmlearn_compatible = True
    close(some.decode(rows, algorithm="map")[0], posteriors.max(axis=1).sum(), 1e-14)


@pytest.mark.parametrize("kind", TYPES)
def test_fits_from_data(kind):
    fit = hmm.GaussianHMM(3, kind, random_state=0, n_iter=50).fit(X, [100, 50])
    assert fit.covars_.shape == (3, 4, 4)
    close(fit.startprob_.sum(), 1, 1e-12)
    close(fit.transmat_.sum(axis=1), 1, 1e-12)
    assert fit.score(X, [100, 50]) > fit.monitor_.history[0]
    assert fit.predict(X, [100, 50]).shape == (150,)
    assert fit.bic(X, [100, 50]) > fit.aic(X, [100, 50])
    again = pickle.loads(pickle.dumps(fit))
    assert again.score(X) == fit.score(X)
    assert clone(fit).get_params()["covariance_type"] == kind
    mixed = hmm.GMMHMM(2, 2, covariance_type=kind, random_state=0).fit(X)
    assert mixed.score(X) > mixed.monitor_.history[0]
    variational = hmm.BayesianGaussianHMM(3, kind, random_state=0).fit(X)
    assert np.all(np.diff(variational.monitor_.history) > -1e-6)
    # One number is the length of the only sequence; clusters of fewer rows than features.
    hmm.BayesianGaussianHMM(3, kind, random_state=0).fit(np.concatenate([X[:20], [[99, 0, 0, 0], [0, 99, 0, 0]]]), 22)


def test_a_model_of_mclust():
    fits = {name: hmm.GaussianHMM(3, name, random_state=0, n_iter=30, covars_prior=0).fit(X) for name in ("EEE", "VEV", "VVV")}
    # Wider models fit better.
    assert fits["EEE"].score(X) < fits["VEV"].score(X) < fits["VVV"].score(X)
    volumes = np.linalg.eigvalsh(fits["VEV"].covars_)
    shapes = volumes / np.prod(volumes, axis=1, keepdims=True) ** 0.25
    close(shapes, np.tile(shapes[0], (3, 1)), 1e-5)


def test_weights_repeat_sequences():
    lengths = [40, 30, 80]
    repeated = np.concatenate([X[:40], X[40:70], X[40:70], X[70:]])
    a = model("full", covars_prior=0).fit(X, lengths, sequence_weight=[1, 2, 1])
    b = model("full", covars_prior=0).fit(repeated, [40, 30, 30, 80])
    close(a.means_, b.means_, 1e-9)
    close(a.monitor_.history, b.monitor_.history, 1e-12)


def test_missing_values():
    gaps = X.copy()
    gaps[::5, 1] = gaps[3::7, 2] = gaps[60] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model("full").score(gaps)
    fit = model("full", missing=True, covars_prior=0, n_iter=30).fit(gaps)
    assert np.all(np.diff(fit.monitor_.history) > -1e-8)
    assert np.isfinite(fit.predict_proba(gaps)).all()
    rows = gaps[:1].copy()
    rows[0, 1:] = np.nan
    density = [multivariate_normal(m[0], c[0, 0]).pdf(rows[0, 0]) for m, c in zip(fit.means_, fit.covars_, strict=True)]
    close(fit.score(rows), np.log(fit.startprob_ @ density), 1e-12)


def test_draws_and_the_long_run():
    fit = model("full").fit(X)
    x, states = fit.sample(3000, random_state=1)
    assert np.array_equal(fit.sample(3000, random_state=1)[0], x)
    shares = fit.get_stationary_distribution()
    close(shares @ fit.transmat_, shares, 1e-12)
    assert abs(np.bincount(states, minlength=3) / 3000 - shares).max() < 0.1
    assert fit.sample(1, random_state=0, currstate=2)[1][0] == 2
    # A row alone has the density of the mixture.
    close(fit.mixture_.weights, shares, 1e-12)


def test_left_right_models_and_frozen_parameters():
    start = model()
    start.startprob_, start.transmat_ = np.array([1.0, 0, 0]), np.array([[0.9, 0.1, 0], [0, 0.9, 0.1], [0, 0, 1.0]])
    fit = start.fit(IRIS)
    assert np.all(np.diff(fit.predict(IRIS)) >= 0) and fit.transmat_[0, 2] == fit.transmat_[2, 0] == 0
    frozen = model(params="st")
    means = frozen.means_.copy()
    assert np.array_equal(frozen.fit(X).means_, means)


def test_a_monitor_decides(capsys):
    class Monitor(hmm.ConvergenceMonitor):
        @property
        def converged(self):
            return self.iter == 3

    fit = model(n_iter=50)
    fit.monitor_ = Monitor(0, 50, False)
    assert len(fit.fit(X).monitor_.history) == 3
    assert model(n_iter=0).fit(X).monitor_.iter == 0
    # Parameters that are set later count too.
    monitor = model(n_iter=2).set_params(n_iter=4, tol=-np.inf, verbose=True).fit(X).monitor_
    assert monitor.iter == 4 and len(capsys.readouterr().err.splitlines()) == 4
    # So does a monitor that is set by hand.
    fit.monitor_ = hmm.ConvergenceMonitor(-np.inf, 5, False)
    assert fit.fit(X).monitor_.iter == 5


def test_bad_input():
    some = model()
    with pytest.raises(ValueError, match="add up to 140, but the data has 150 rows"):
        some.score(X, [100, 40])
    with pytest.raises(ValueError, match="lengths holds 0"):
        some.score(X, [150, 0])
    with pytest.raises(ValueError, match="lengths holds -1"):
        some.score(X, [151, -1])
    with pytest.raises(ValueError, match="expected"):
        some.score(X[:, :2])
    with pytest.raises(ValueError, match="use 'viterbi' or 'map'"):
        some.decode(X, algorithm="forward")
    with pytest.raises(ValueError, match="weight of sequence 1"):
        some.fit(X, [100, 50], sequence_weight=[1, -1])
    some.transmat_ = np.full((3, 3), 0.3)
    with pytest.raises(ValueError, match="row 0 of transmat sums to"):
        some.score(X)
    with pytest.raises(ValueError, match="covariance"):
        hmm.GaussianHMM(2, "round").fit(X)
    with pytest.raises(ValueError, match="covariance"):
        hmm.GMMHMM(2, covariance_type="round").fit(X)
    with pytest.raises(ValueError, match="is reference: take cpu, cuda or cuda:N"):
        hmm.GaussianHMM(2, device="reference").fit(X)
    with pytest.raises(ValueError):
        model("full").covars_ = np.zeros((3, 4, 4))
    with pytest.raises(ValueError, match="n_components is 0"):
        hmm.GaussianHMM(0).fit(X)
    with pytest.raises(ValueError, match="n_mix is 0"):
        hmm.GMMHMM(2, 0).fit(X)
    with pytest.raises(ValueError, match="is reference: take cpu"):
        model(device="reference").partial_fit(X)
    likelihood, halves = hmm.Likelihood(X), np.full((2, 2), 0.5)
    for bad in (np.full((4, 1), 0.25), np.full((2, 2), 0.4), None):
        with pytest.raises(ValueError, match=r"weights must have the shape \(2, 2\)"):
            likelihood(halves[0], halves, IRIS[:4].reshape(2, 2, 4), np.ones((2, 2, 4)), bad)
    impossible = model()
    impossible.transmat_, impossible.startprob_ = np.eye(3), np.array([1.0, 0, 0])
    far = X.copy()
    far[5] = 1e200
    assert impossible.score(far) == -np.inf


def test_files_and_the_number_of_states(tmp_path):
    best, values = hmm.select(hmm.GaussianHMM(random_state=0, n_iter=50), X[:, :1], n_components=range(1, 4))
    assert values[best.n_components] == min(values.values())
    for fit in (best, hmm.GMMHMM(2, 2, covariance_type="tied", random_state=0).fit(X[:, :1])):
        fit.save(tmp_path / "model.json")
        assert hmm.load(tmp_path / "model.json").score(X[:, :1]) == fit.score(X[:, :1])


def test_fits_that_have_not_begun_end_with_an_error(monkeypatch):
    fits = []

    class Slow(hmm.GaussianHMM):
        def fit(self, *given):
            fits.append(self.n_components)
            if self.n_components == 1:
                raise RuntimeError("one state")
            time.sleep(0.1)
            return super().fit(*given)

    monkeypatch.setattr("os.cpu_count", lambda: 1)
    with pytest.raises(RuntimeError, match="one state"):
        hmm.select(Slow(), X, n_components=range(1, 7))
    assert len(fits) <= 2


@pytest.mark.parametrize("kind", [*TYPES, "EEE", "VEV", "EII", "VVI"])
def test_files_of_the_program(kind, tmp_path):
    share, path = np.full(2, 0.5), os.fspath(tmp_path / "model.json")
    covars = isotropic(gaussmix._core.covariance_form(kind), 4, 4, 0.5)
    engine = gaussmix._core.HiddenMarkov(share, np.tile(share, (2, 1)), np.full(4, 0.25), IRIS[[0, 20, 60, 120]], covars, kind, False)
    engine.write(path, [])
    loaded = hmm.load(path)
    close(loaded.score(X), engine.score(hmm._base.sequences_of(X, None, None, False)).sum(), 1e-12)
    assert loaded.set_params(init_params="").fit(X).covars_.shape[:2] == (2, 2)


def test_the_held_out_likelihood():
    start = model("diag", 3)
    start.startprob_ = np.full(3, 1 / 3)
    x = np.concatenate([start.sample(100, random_state=seed)[0] for seed in range(6)])
    lengths = [100] * 6
    best, values = hmm.select(hmm.GaussianHMM(random_state=0, n_iter=20), x, lengths, [1, 2, 3], "held_out", folds=3)
    assert best.n_components == max(values, key=values.get)
    by_hand = 0.0
    for part in range(3):
        seen = np.arange(6) % 3 != part
        fit = hmm.GaussianHMM(2, random_state=0, n_iter=20).fit(x, lengths, sequence_weight=seen)
        by_hand += sum(fit.score(x[100 * s : 100 * s + 100]) for s in np.flatnonzero(~seen))
    close(values[2], by_hand, 1e-10)
    with pytest.raises(ValueError, match="folds is 7"):
        hmm.select(hmm.GaussianHMM(), x, lengths, [1], "held_out", folds=7)


@pytest.mark.parametrize("cls", [hmm.GaussianHMM, hmm.GMMHMM])
def test_fits_go_on_from_checkpoints(cls, tmp_path):
    whole = cls(2, random_state=0, n_iter=9, tol=-np.inf).fit(X)
    path = tmp_path / "fit.json"
    cls(2, random_state=0, n_iter=4, tol=-np.inf).fit(X, checkpoint=path)
    went_on = cls(2, random_state=1, n_iter=9, tol=-np.inf).fit(X, checkpoint=path)
    assert list(went_on.monitor_.history) == list(whole.monitor_.history)
    np.testing.assert_array_equal(went_on.means_, whole.means_)
    np.testing.assert_array_equal(went_on.covars_, whole.covars_)
    # A longer fit is not cut.
    shorter = cls(2, n_iter=3, tol=-np.inf).fit(X, checkpoint=path)
    assert list(shorter.monitor_.history) == list(whole.monitor_.history) and shorter.monitor_.converged
    with pytest.raises(ValueError, match="give the data of the checkpoint"):
        cls(2, n_iter=20).fit(X + 1, checkpoint=path)
    with pytest.raises(ValueError, match=r"\(3, 1, 4\)"):
        cls(3).fit(X, checkpoint=path)
    with pytest.raises(ValueError, match="variational"):
        hmm.VariationalGaussianHMM(2).fit(X, checkpoint=path)


def test_an_interrupted_fit_leaves_a_checkpoint(tmp_path):
    class Stop(hmm.ConvergenceMonitor):
        def report(self, log_prob):
            super().report(log_prob)
            if self.iter == 6:
                raise KeyboardInterrupt

    fit = hmm.GaussianHMM(2, random_state=0, n_iter=9, tol=-np.inf)
    fit.monitor_ = Stop(-np.inf, 9, False)
    with pytest.raises(KeyboardInterrupt):
        fit.fit(X, checkpoint=tmp_path / "fit.json")
    went_on = hmm.GaussianHMM(2, n_iter=9, tol=-np.inf).fit(X, checkpoint=tmp_path / "fit.json")
    whole = hmm.GaussianHMM(2, random_state=0, n_iter=9, tol=-np.inf).fit(X)
    np.testing.assert_array_equal(went_on.means_, whole.means_)


def test_partial_fit():
    lengths = [60, 50, 39, 1]
    once = model(n_iter=1).fit(X, lengths)
    chunk = model(decay=1.0)
    # Equal chunks under one model are one chunk twice: the averages per row do not change.
    first = clone(chunk).set_params(init_params="")
    first.startprob_, first.transmat_, first.means_, first.covars_ = chunk.startprob_, chunk.transmat_, chunk.means_, chunk._covars_
    first.partial_fit(X, lengths)
    close(first.means_, once.means_, 1e-12)
    close(first.transmat_, once.transmat_, 1e-12)
    before = first.score(X, lengths)
    for _ in range(5):
        first.partial_fit(X, lengths)
    assert first.score(X, lengths) > before
    assert "_stream" not in pickle.loads(pickle.dumps(first)).__dict__
    fresh = hmm.GMMHMM(2, 2, random_state=0).partial_fit(X, lengths)
    assert fresh.means_.shape == (2, 2, 4)
    assert not hasattr(hmm.VariationalGaussianHMM(2), "partial_fit")
    with pytest.raises(ValueError, match="decay is 0.2"):
        hmm.GaussianHMM(2, decay=0.2).partial_fit(X)


def test_the_classes_stand_in_the_place_of_hmmlearns(monkeypatch):
    package, homes = ModuleType("hmmlearn"), {name: ModuleType(f"hmmlearn.{name}") for name in ("hmm", "vhmm")}
    theirs = {name: type(name, (), {}) for name in ("GaussianHMM", "GMMHMM", "VariationalGaussianHMM")}
    for name, cls in theirs.items():
        setattr(homes["vhmm" if name.startswith("V") else "hmm"], name, cls)
    for name, module in [("hmmlearn", package), *((f"hmmlearn.{name}", module) for name, module in homes.items())]:
        monkeypatch.setitem(sys.modules, name, module)
    program, ours = ModuleType("program"), ModuleType("ours")
    program.GaussianHMM, ours.GaussianHMM = theirs["GaussianHMM"], hmm.GaussianHMM
    monkeypatch.setitem(sys.modules, "program", program)
    monkeypatch.setitem(sys.modules, "ours", ours)
    gaussmix.patch_hmmlearn()
    try:
        assert homes["hmm"].GMMHMM is hmm.GMMHMM and program.GaussianHMM is hmm.GaussianHMM
        gaussmix.patch_hmmlearn()
        assert homes["vhmm"].VariationalGaussianHMM is hmm.VariationalGaussianHMM
    finally:
        gaussmix.unpatch_hmmlearn()
    assert homes["hmm"].GMMHMM is theirs["GMMHMM"] and program.GaussianHMM is theirs["GaussianHMM"]
    assert ours.GaussianHMM is hmm.GaussianHMM


@pytest.mark.parametrize("kind", ["GaussianHMM", "GMMHMM"])
def test_sums_of_processes_make_the_iteration_of_all(kind):
    def start():
        some = hmm.GaussianHMM(3, "full", random_state=0, n_iter=1) if kind == "GaussianHMM" else hmm.GMMHMM(2, 2, random_state=0, n_iter=1)
        return some.fit(X, [100, 50])

    whole = start()
    sums = whole.e_step(X, [100, 50], [2.0, 1.0])
    assert sums.statistics.log_likelihood == pytest.approx(2 * whole.score(X[:100]) + whole.score(X[100:]), rel=1e-12)
    parts = [whole.e_step(X[:100]), pickle.loads(pickle.dumps(whole.e_step(X[100:]))), whole.e_step(X[:100])]
    there = start().m_step(parts[0] + parts[1] + parts[2])
    whole.m_step(sums)
    for name in ("startprob_", "transmat_", "means_", "covars_"):
        np.testing.assert_allclose(getattr(there, name), getattr(whole, name), rtol=1e-10, atol=1e-12)
    # An iteration of a fit is the two steps.
    some = start().m_step(start().e_step(X, [100, 50]))
    two = (hmm.GaussianHMM(3, "full", random_state=0, n_iter=2) if kind == "GaussianHMM" else hmm.GMMHMM(2, 2, random_state=0, n_iter=2)).fit(X, [100, 50])
    np.testing.assert_array_equal(some.means_, two.means_)
    other = hmm.GaussianHMM(4, n_iter=1, random_state=0).fit(X)
    with pytest.raises(ValueError, match="sums of an E-step"):
        other.m_step(sums)


def test_random_models_are_hmmlearns():
    theirs = pytest.importorskip("hmmlearn.hmm")
    rng = np.random.default_rng(0)
    for number in range(60):
        kind, k, d = TYPES[number % 4], int(rng.integers(1, 6)), int(rng.integers(1, 5))
        centres = rng.normal(size=(k, d)) * rng.choice([1, 5, 30])
        rows = centres[rng.integers(0, k, 120)] + rng.normal(size=(120, d))
        lengths = [50, 1, 69]
        params = {"covariance_type": kind, "random_state": number, "tol": -np.inf, "n_iter": 4}
        a = hmm.GaussianHMM(k, hmmlearn_compatible=True, **params).fit(rows, lengths)
        b = theirs.GaussianHMM(k, **params).fit(rows, lengths)
        close(a.monitor_.history, b.monitor_.history, 1e-7)
        close(a.score(rows, lengths), b.score(rows, lengths), 1e-7)
        close(a.predict_proba(rows, lengths), b.predict_proba(rows, lengths), 1e-6)
        close(a.decode(rows, lengths)[0], b.decode(rows, lengths)[0], 1e-7)
        assert np.array_equal(a.predict(rows, lengths), b.predict(rows, lengths))


def test_pictures():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    fit = model("full").fit(X, [100, 50])
    ax = fit.plot(X, lengths=[100, 50], feature=2)
    np.testing.assert_array_equal(ax.lines[-1].get_ydata(), X[:, 2])
    states = fit.predict(X, [100, 50])
    # A span for each run of a state, and a line between the sequences.
    assert len(ax.patches) == 1 + np.count_nonzero(np.diff(states)) and len(ax.lines) == 2
    some = model()
    some.transmat_ = np.array([[0.9, 0.1, 0], [0, 0.9, 0.1], [0.2, 0, 0.8]])
    ax = some.plot(what="transitions")
    assert sorted(text.get_text() for text in ax.texts if text.get_text()) == ["0\n0.9", "0.1", "0.1", "0.2", "1\n0.9", "2\n0.8"]
    figure, ax = pyplot.subplots()
    assert fit.plot(X, "emissions", ax=ax) is ax and len(ax.patches) == 6
    with pytest.raises(ValueError, match="use 'states'"):
        fit.plot(X, "paths")
    with pytest.raises(ValueError, match="give X"):
        fit.plot()
    with pytest.raises(ValueError, match="0 to 3"):
        fit.plot(X, feature=4)
    pyplot.close("all")


def test_a_program_of_hmmlearn_runs_unchanged(tmp_path):
    pytest.importorskip("hmmlearn")
    lines = [
        "import numpy as np",
        "from hmmlearn.hmm import GaussianHMM, GMMHMM",
        "from hmmlearn.vhmm import VariationalGaussianHMM",
        "x = np.repeat([0, 5, 0], 40)[:, None] + np.random.default_rng(0).normal(size=(120, 2))",
        "for model in (GaussianHMM(2, random_state=0), GMMHMM(2, 1, random_state=0), VariationalGaussianHMM(2, random_state=0)):",
        "    print(type(model).__module__.split('.')[0], round(model.fit(x, [80, 40]).score(x, [80, 40]), 6), model.monitor_.iter)",
    ]
    program = tmp_path / "program.py"
    program.write_text("\n".join(lines))
    runs = [[sys.executable, "-W", "ignore", *more, str(program)] for more in ([], ["-m", "gaussmix"])]
    theirs, ours = (subprocess.run(run, capture_output=True, text=True, check=True).stdout.split() for run in runs)
    assert theirs[::3] == ["hmmlearn"] * 3 and ours[::3] == ["gaussmix"] * 3
    # The scores, to the sixth decimal, and the iterations.
    np.testing.assert_allclose(np.array(ours[1::3], float), np.array(theirs[1::3], float), atol=2e-6)
    assert ours[2::3] == theirs[2::3]
