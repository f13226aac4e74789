"""The door for users of R's mclust against the numbers of mclust 6.0.0 (R 4.2.2), and the models in the estimator."""

import pickle
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone

import gaussmix
from gaussmix import GaussianMixture, GaussianMixtureClassifier, Likelihood, Mixture, _core, fit_many, plot, select
from gaussmix.anndata import cluster
from gaussmix.mclust import Mclust, MclustDA, emControl, hc, hclass, mclustBIC, mclustICL, me, priorControl

MODELS = _core.MODELS[:14]
#: Those that no covariance type of scikit-learn is.
OWN = [name for name in MODELS if name not in ("VII", "VVI", "EEE", "VVV")]
#: Of iris from the species: the log-likelihood after an M-step, the last, and the iterations.
FROM_SPECIES = {
    "EII": (-414.6979512733, -401.8035856588, 10),
    "VII": (-392.4984144985, -384.3169637404, 16),
    "EEI": (-364.5173643381, -361.4285168921, 9),
    "VEI": (-340.8360524756, -339.4711290087, 9),
    "EVI": (-342.9736984728, -340.0897557658, 8),
    "VVI": (-309.3627578939, -306.8753878018, 18),
    "EEE": (-256.6461842549, -256.3541406884, 5),
    "VEE": (-238.3946990591, -237.5608737484, 7),
    "EVE": (-235.5504842603, -234.1404756487, 7),
    "VVE": (-215.3443048498, -214.6384949991, 5),
    "EEV": (-215.1432631274, -214.8509887772, 7),
    "VEV": (-187.7097444050, -186.0740180653, 12),
    "EVV": (-209.4547976987, -205.5368514289, 15),
    "VVV": (-182.9208486053, -180.1858520496, 11),
}
#: mclustBIC(iris), G = 1 to 5.
BIC = """
-1804.085438 -1804.085438 -1522.120153 -1522.120153 -1522.120153 -1522.120153 -829.9781544 -829.9781544 -829.9781544 -829.9781544
    -829.9781544 -829.9781544 -829.9781544 -829.9781544
-1123.411741 -1012.235180 -1042.967917 -956.2822689 -1007.308224 -857.5514939 -688.0972201 -656.3270061 -657.2262803 -605.1840935
    -644.5996994 -561.7284621 -658.3306309 -574.0178323
-878.7649858 -853.8144072 -813.0504331 -779.1565603 -797.8342010 -744.6381834 -632.9647323 -605.3982485 -666.5491500 -636.4258665
    -644.7810179 -562.5522369 -656.0359365 -580.8396304
-893.6140464 -812.6047578 -827.4036122 -748.4528822 -837.5451684 -751.0197703 -646.0257630 -604.8371466 -705.5434784 -639.7078032
    -699.8684166 -602.0103829 -725.2924895 -630.5999592
-782.6440536 -742.6083246 -741.9184779 -688.3463094 -766.8158039 -711.4502401 -604.8130676 nan -723.7198696 -632.2055860
    -652.2958633 -634.2889918 nan -676.6060630
"""
#: Of iris from the species under the prior, and under one with shrinkage 0.2, mean (5, 3, 4, 1) and scale 0.3 or, of
#: ellipsoids, diag(0.5, 0.2, 0.3, 0.4). mclust's EII has no scale, and its EEI does not shrink the means.
UNDER_PRIORS = {
    "VII": (-384.4736814774, -384.6684347932),
    "VEI": (-344.5993848272, -342.5840814991),
    "EVI": (-342.2559846189, -343.2134205535),
    "VVI": (-312.8787704380, -313.4740642187),
    "EEE": (-257.3807107403, -257.0930914312),
    "EEV": (-220.9699359082, -220.2662875649),
    "VEV": (-198.4737496599, -201.1583456898),
    "VVV": (-192.7024049334, -190.8050973604),
}
#: mclustBIC(iris, prior = priorControl()) of G = 1 to 4 for VII, VEI, EVI, VVI, EEE, EEV, VEV and VVV.
BIC_UNDER_PRIOR = """
-1804.184603677 -1522.709022482 -1522.709022482 -1522.709022482 -831.494922571 -831.494922571 -831.494922571 -831.494922571
-1012.348656119 -961.067358615 -1009.996744577 -871.410096448 -689.590487672 -648.523175834 -580.813553997 -592.512834873
-854.128173539 -791.143928686 -804.767206217 -756.037596206 -635.752130714 -624.086404048 -587.403842760 -605.869549939
-813.101496435 -778.754963726 -844.918611313 -776.611959107 -648.259415972 -678.044747713 nan -664.931430343
"""
SPECIES = np.repeat(np.arange(3), 50)


@pytest.fixture(scope="module")
def blobs():
    """Two groups, (120, 2)."""
    rng = np.random.default_rng(1)
    return np.concatenate([rng.normal(0, 1, (60, 2)), rng.normal(6, (1, 2), (60, 2))])


def fitted(x, name="VEV", k=2, **params):
    return GaussianMixture(k, covariance_type=name, random_state=0, **params).fit(x)


@pytest.mark.parametrize("name", MODELS)
def test_em_is_that_of_mclust(name, iris):
    one, last, iterations = FROM_SPECIES[name]
    z = np.eye(3)[SPECIES]
    fit = me(iris, name, z)
    # Both have rounded some hundred terms; alternations in an M-step end a rounding apart.
    assert fit.loglik == pytest.approx(last, abs=1e-8)
    assert (fit.iterations, fit.modelName, fit.n, fit.d, fit.G) == (iterations, name, 150, 4, 3)
    assert me(iris, name, z, emControl(itmax=1)).loglik == pytest.approx(one, abs=1e-8)


def test_table_of_iris(iris):
    table = mclustBIC(iris)
    assert (table.G, table.modelNames) == (list(range(1, 10)), list(MODELS))
    # R prints ten digits.
    np.testing.assert_allclose(table.values[:5], np.array(BIC.split(), dtype=float).reshape(5, 14), atol=6e-7, rtol=0)
    assert {(5, "VEE"), (7, "VEE"), (5, "EVV"), (6, "EVV")} <= {(k, name) for k in table.G for name in MODELS if np.isnan(table[k, name])}
    assert table[9, "EEE"] == pytest.approx(-653.0877948, abs=1e-6)
    assert table[9, "VVV"] == pytest.approx(-883.6931485, abs=1e-6)
    assert [best[:2] for best in table.pick()] == [("VEV", 2), ("VEV", 3), ("VVV", 2)]
    assert "NA" in repr(table).splitlines()[6] and repr(table).startswith("BIC, best: VEV 2: -561.73")


@pytest.mark.parametrize("name", UNDER_PRIORS)
def test_priors_are_those_of_mclust(name, iris):
    z, (by_default, given) = np.eye(3)[SPECIES], UNDER_PRIORS[name]
    assert me(iris, name, z, prior=priorControl()).loglik == pytest.approx(by_default, abs=1e-8)
    scale = np.diag([0.5, 0.2, 0.3, 0.4]) if _core.covariance_form(name) in ("full", "tied") else 0.3
    prior = priorControl(shrinkage=0.2, mean=[5, 3, 4, 1], scale=scale)
    assert me(iris, name, z, prior=prior).loglik == pytest.approx(given, abs=1e-8)


def test_the_table_under_a_prior(iris):
    table = mclustBIC(iris, range(1, 5), prior=priorControl())
    assert table.modelNames == [name for name in MODELS if name not in ("EVE", "VEE", "VVE", "EVV")]
    found = [[table[k, name] for name in UNDER_PRIORS] for k in table.G]
    wanted = np.array(BIC_UNDER_PRIOR.split(), dtype=float).reshape(4, 8)
    np.testing.assert_allclose(found, wanted, atol=1e-6, rtol=0)
    best = Mclust(iris, [2, 3], ["VEV", "VVV"], prior=priorControl())
    assert (best.modelName, best.G) == ("VEV", 2)
    # One column; mclust's V.
    eruptions = np.concatenate([np.random.default_rng(0).normal(c, s, 60) for c, s in ((2, 0.3), (4, 0.5))])
    assert mclustBIC(eruptions, [1, 2], prior=priorControl()).modelNames == ["E", "V"]


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("EVE", "VEE", "VVE", "EVV")])
def test_the_estimator_takes_a_prior_of_each_model(name, blobs):
    # Four equal rows, on which a component would collapse.
    x = np.concatenate([blobs, np.full((4, 2), 30.0)])
    gm = fitted(x, name, 3, prior="default")
    # VEV's volumes have no prior.
    assert gm.retained_ == [] or name == "VEV"
    volumes = gm.mixture_.decomposition()[0]
    assert volumes.min() > 1e-3 or name == "VEV"


def test_the_best_model_of_iris(iris):
    fit = Mclust(iris)
    assert (fit.modelName, fit.G, fit.df, np.bincount(fit.classification).tolist()) == ("VEV", 2, 26, [0, 50, 100])
    assert fit.loglik == pytest.approx(-215.72597223429, abs=1e-8)
    assert fit.icl == pytest.approx(-561.72887565114, abs=1e-8)
    assert fit.bic == fit.BIC[2, "VEV"] and fit.uncertainty == pytest.approx(1 - fit.z.max(axis=1))
    assert mclustICL(iris, 3, "VEV")[3, "VEV"] == pytest.approx(-566.46728711981, abs=1e-7)
    prediction = fit.predict(iris[:3])
    assert prediction.classification.tolist() == fit.classification[:3].tolist()
    np.testing.assert_allclose(prediction.z, fit.z[:3])
    assert "loglik" in repr(fit) and "[50, 100]" in repr(fit)
    assert fit.mixture.covariance_model == "VEV"


def test_models_of_faithful(faithful):
    fit = Mclust(faithful)
    assert (fit.modelName, fit.G, np.bincount(fit.classification)[1:].tolist()) == ("EEE", 3, [40, 97, 135])
    numbers = [fit.loglik, fit.bic, fit.icl]
    np.testing.assert_allclose(numbers, [-1126.3262364683, -2314.3162956658, -2357.8242489548], atol=1e-8, rtol=0)
    # Those of one more M-step than the log-likelihood's.
    np.testing.assert_allclose(fit.parameters.pro, [0.165678399056, 0.356369626513, 0.477951974430], atol=1e-10)
    assert [best[:2] for best in fit.BIC.pick()] == [("EEE", 3), ("VVE", 2), ("VEE", 3)]
    two = """-3452.998452 -3458.304986 -2354.600644 -2350.606810 -2352.617554 -2346.064924 -2325.219937 -2322.971928
        -2324.272741 -2320.432980 -2329.115443 -2325.416446 -2327.597829 -2322.191959"""
    # R prints ten digits.
    np.testing.assert_allclose(fit.BIC.values[1], np.array(two.split(), dtype=float), atol=6e-7, rtol=0)
    best, second = mclustICL(faithful).pick(2)
    assert (best[:2], second[:2]) == (("VVE", 2), ("VVV", 2))
    np.testing.assert_allclose([best[2], second[2]], [-2320.76282207, -2322.69746733], atol=6e-9, rtol=0)


def test_models_of_one_column(acidity, faithful):
    fit = Mclust(acidity)
    assert (fit.modelName, fit.G) == ("E", 2)
    np.testing.assert_allclose([fit.loglik, fit.bic, fit.icl], [-185.94930517334, -392.07231081436, -398.55543381452], atol=1e-8, rtol=0)
    assert fit.parameters.variance.sigmasq == pytest.approx(0.186370174781, abs=1e-11)
    np.testing.assert_allclose(fit.parameters.mean, [[4.37094616354, 6.32015308403]], atol=1e-10)
    fit = Mclust(faithful[:, 0])
    assert (fit.modelName, fit.G) == ("V", 4)
    np.testing.assert_allclose([fit.loglik, fit.bic, fit.icl], [-257.49813850032, -576.66009972990, -690.40154609639], atol=1e-8, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_have_the_shapes_of_r(name, iris):
    fit = me(iris, name, np.eye(3)[SPECIES])
    parts = fit.parameters.variance
    assert fit.parameters.pro.shape == (3,) and fit.parameters.mean.shape == (4, 3) and parts.sigma.shape == (4, 4, 3)
    ends = [(3,) if letter == "V" else () for letter in name]
    assert [np.shape(parts.scale), parts.shape.shape, parts.orientation.shape] == [ends[0], (4, *ends[1]), (4, 4, *ends[2])]
    for k in range(3):
        scale, shape, axes = (part[..., k] if end else part for part, end in zip((parts.scale, parts.shape, parts.orientation), ends))
        sigma = scale * axes @ np.diag(shape) @ axes.T
        # Where an M-step alternates, shared parts are those of its last turn but for √ε.
        np.testing.assert_allclose(sigma, parts.sigma[..., k], atol=1e-6)
    np.testing.assert_allclose(np.prod(parts.shape, axis=0), 1.0, rtol=1e-9)


def test_trees_of_iris(iris):
    def sizes(name, use, k):
        return np.bincount(hclass(hc(iris, name, use), k))[1:].tolist()

    for name in ("EII", "VII", "EEE", "VVV"):
        assert sizes(name, "VARS", 3) == [50, 64, 36], name
        assert sizes(name, "SVD", 3) == [49, 62, 39], name
    assert (sizes("VVV", "SVD", 2), sizes("VVV", "SVD", 4)) == ([49, 101], [33, 16, 62, 39])
    tree = hc(iris, use="SVD")
    assert sorted(tree[0]) == [101, 142] and hclass(tree, [2, 3]).shape == (150, 2)
    np.testing.assert_array_equal(hclass(tree, [2, 3])[:, 1], hclass(tree, 3))
    assert Mclust(iris, 2, "VEV", initialization={"hcPairs": tree}).loglik == Mclust(iris, 2, "VEV").loglik


def test_one_feature_begins_between_quantiles():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(0, 1, 100), rng.normal(8, 0.5, 50)])
    fit = Mclust(x, G=range(1, 4))
    assert (fit.modelName, fit.G, fit.BIC.modelNames) == ("V", 2, ["E", "V"])
    assert np.bincount(fit.classification)[1:].tolist() == [100, 50]
    np.testing.assert_allclose(fit.parameters.variance.sigmasq, [1, 0.25], rtol=0.3)
    equal = Mclust(x, 2, "E")
    assert equal.df == 4 and equal.parameters.variance.sigmasq == equal.parameters.variance.scale
    # Equal values: bounds of finer quantiles.
    many = Mclust(np.r_[np.zeros(30), rng.normal(5, 1, 30)], 2, "E")
    assert np.bincount(many.classification)[1:].tolist() == [30, 30]


def test_models_by_the_shape_of_the_data(blobs):
    assert mclustBIC(np.random.default_rng(0).normal(size=(5, 6)), 1).modelNames == list(MODELS[:6])
    assert Mclust(blobs, 1, "VEV").modelName == "XXX" and Mclust(blobs, 1, "EVI").modelName == "XXI"
    # As many components as rows: each is empty of variance.
    assert np.isnan(mclustBIC(blobs[:4], 4, ["VVV", "VII"]).values).all()


def test_a_subset_gives_the_start_of_many_rows(iris):
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.normal(0, 1, (1500, 3)), rng.normal(5, 1, (1500, 3))])
    first, again = (Mclust(x, 2, "EEE", random_state=7) for _ in range(2))
    assert first.loglik == again.loglik and np.bincount(first.classification)[1:].tolist() == [1500, 1500]
    rows = np.arange(1, 150, 2)
    part = Mclust(iris, 2, "VEV", initialization={"subset": rows})
    tree = hc(iris[rows], use="SVD")
    assert part.loglik == Mclust(iris, 2, "VEV", initialization={"subset": rows, "hcPairs": tree}).loglik
    # The same optimum; each stops within the tolerance of it.
    assert part.loglik == pytest.approx(-215.72597223429, abs=0.01)


def test_discriminant_analysis(iris):
    names = np.array(["setosa", "versicolor", "virginica"])[SPECIES]
    edda = MclustDA(iris, names, "EDDA")
    assert (edda.models[0].modelName, edda.df) == ("VEV", 38)
    assert edda.loglik == pytest.approx(-187.709744405, abs=1e-8) and edda.bic == pytest.approx(-565.8236, abs=1e-4)
    assert np.mean(edda.predict(iris).classification == names) > 0.97
    by_class = MclustDA(iris, names)
    assert by_class.loglik > edda.loglik and by_class.predict(iris).z.sum(axis=1) == pytest.approx(np.ones(150))
    assert np.mean(by_class.predict(iris).classification == names) > 0.97
    # With one component for each class and nothing shared, it is the classifier.
    whole = MclustDA(iris, names, G=1, modelNames="VVV")
    classifier = GaussianMixtureClassifier(reg_covar=0, standardize=False).fit(iris, names)
    np.testing.assert_allclose(whole.predict(iris).z, classifier.predict_proba(iris), atol=1e-9)


def test_errors_of_the_door(iris):
    for call, what in [
        (lambda: Mclust(iris, 0), "from 1"),
        (lambda: Mclust(iris, 2, "VEX"), "there is no model 'VEX'; use EII"),
        (lambda: Mclust(iris[:4], 4), "take fewer than 4"),
        (lambda: Mclust(iris, 2, initialization={"hcPairs": hc(iris[:9])}), "merges 9 rows, but there are 150"),
        (lambda: me(iris[:4], "VVV", np.eye(4)), "VVV of 4 components"),
        (lambda: me(iris, "VVV", np.eye(4)), "inconsistent"),
        (lambda: hc(iris, "VEV"), "EII, VII, EEE or VVV"),
        (lambda: hc(iris, use="XYZ"), "VARS"),
        (lambda: hc(iris[:0]), "0 sample"),
        (lambda: MclustDA(iris, SPECIES, "QDA"), "'MclustDA' or 'EDDA'"),
        (lambda: me(iris, "EVE", np.eye(3)[SPECIES], prior=priorControl()), "prior is given for EVE"),
        (lambda: fitted(iris, "VVE", prior="default"), "prior is given for VVE"),
        (lambda: me(iris, "VVV", np.eye(3)[SPECIES], prior=priorControl(dof=1)), "degrees_of_freedom"),
        (lambda: Mclust(np.where(iris > 7, np.nan, iris)), "NaN"),
    ]:
        with pytest.raises(ValueError, match=what):
            call()


def test_clusters_of_an_anndata(blobs):
    pandas = pytest.importorskip("pandas")
    adata = SimpleNamespace(obsm={"emb_pca": blobs}, obs=pandas.DataFrame(index=range(120)))
    assert cluster(adata, 2) is adata
    classes = adata.obs["mclust"]
    assert classes.dtype == "category" and classes.cat.categories.tolist() == [1, 2]
    assert classes.astype(int).tolist() == [1] * 60 + [2] * 60


# The models in the estimator.


@pytest.mark.parametrize("name", [*MODELS, "tied-diagonal", "tied-spherical"])
def test_every_model_fits_and_is_kept(name, blobs, tmp_path):
    gm = clone(fitted(blobs, name)).fit(blobs)
    mixture = gm.mixture_
    canonical = {"tied-diagonal": "EEI", "tied-spherical": "EII"}.get(name, name)
    assert gm.covariance_type == name and _core.covariance_form(name) == mixture.covariance_type
    again = [pickle.loads(pickle.dumps(gm)), pickle.loads(pickle.dumps(mixture))]
    for file in ("model.json", "model.npz"):
        gm.save(tmp_path / file)
        again += [GaussianMixture.load(tmp_path / file), Mixture.load(tmp_path / file)]
    for one in again:
        found = one if isinstance(one, Mixture) else one.mixture_
        assert (found.covariance_model, found.n_parameters) == (mixture.covariance_model, mixture.n_parameters)
        np.testing.assert_allclose(one.score_samples(blobs), gm.score_samples(blobs), rtol=1e-12)
    theirs = gm.to_sklearn()
    assert theirs.covariance_type == mixture.covariance_type
    np.testing.assert_allclose(theirs.score_samples(blobs), gm.score_samples(blobs), rtol=1e-9)
    # Other numbers of parameters than of the form.
    total = gm.score(blobs) * 120
    assert gm.bic(blobs) == pytest.approx(-2 * total + np.log(120) * mixture.n_parameters)
    assert gm.icl(blobs) == pytest.approx(gm.bic(blobs) - 2 * np.log(gm.predict_proba(blobs).max(axis=1)).sum())
    assert me(blobs, canonical, gm.predict_proba(blobs)).df == mixture.n_parameters
    narrow = fitted(blobs.astype(np.float32), name)
    assert narrow.means_.dtype == np.float32 and narrow.mixture_.covariance_model == mixture.covariance_model
    # The engine sums float32 samples in float64.
    assert narrow.score(blobs) == pytest.approx(gm.score(blobs), abs=1e-4)


@pytest.mark.parametrize("name", OWN)
def test_what_fits_take_beside_samples(name, blobs):
    gm = fitted(blobs, name)
    counts = 1 + np.arange(120) % 3
    start = {"weights_init": gm.weights_, "means_init": gm.means_, "precisions_init": gm.precisions_}
    weighted = GaussianMixture(2, covariance_type=name, **start).fit(blobs, sample_weight=counts)
    repeated = GaussianMixture(2, covariance_type=name, **start).fit(np.repeat(blobs, counts, axis=0))
    # The ends of alternations in an M-step differ by √ε.
    assert weighted.lower_bound_ == pytest.approx(repeated.lower_bound_, abs=1e-7)
    with_gaps = blobs.copy()
    with_gaps[::7, 0] = np.nan
    assert np.isfinite(fitted(with_gaps, name, missing=True).impute(with_gaps)).all()
    means = fitted(blobs, name, freeze=["means"], means_init=[[0, 0], [5, 5]]).means_
    np.testing.assert_array_equal(means, [[0, 0], [5, 5]])
    with pytest.raises(ValueError, match="share"):
        GaussianMixture(2, covariance_type=name, freeze={"covariances": [0]}, **start).fit(blobs)
    many = fit_many([blobs, blobs[::2]], GaussianMixture(2, covariance_type=name, random_state=0))
    assert many[0].score(blobs) == gm.score(blobs) and many[1].mixture_.covariance_model == name
    template = GaussianMixture(2, covariance_type=name, init_params="hierarchical")
    assert fit_many([blobs[::2], blobs], template)[1].score(blobs) == clone(template).fit(blobs).score(blobs)
    resumed = GaussianMixture(2, covariance_type=name, random_state=0, warm_start=True).fit(blobs).fit(blobs)
    # VVE's M-step need not raise the likelihood.
    assert resumed.lower_bound_ > gm.lower_bound_ - (1e-3 if name == "VVE" else 1e-9)


@pytest.mark.parametrize("name", OWN)
def test_standardised_fits_have_what_components_share_in_the_units_of_the_data(name, iris):
    x = iris * [1, 10, 1, 100]
    if name in ("EII", "EVE", "VVE", "EEV", "VEV"):
        with pytest.raises(ValueError, match=f"cannot give {name} covariances"):
            fitted(x, name, 3, standardize=True)
        mixture = gaussmix.GaussianMixtureRegressor(3, covariance_type=name, random_state=0).fit(x[:, :2], x[:, 2:]).mixture_
    else:
        mixture = fitted(x, name, 3, standardize=True).mixture_
    volumes, shapes, axes = mixture.decomposition()
    shared = [part if letter == "V" else part[:1] for letter, part in zip(name, (volumes, shapes, axes))]
    volumes, shapes, axes = (np.broadcast_to(part, (3, *part.shape[1:])) for part in shared)
    covariances = np.einsum("k,kia,ka,kja->kij", volumes, axes, shapes, axes)
    full = Mixture(mixture.weights, mixture.means, covariances, covariance_type="full")
    # Alternations in an M-step end within √ε.
    np.testing.assert_allclose(full.score_samples(x), mixture.score_samples(x), atol=1e-4)


def test_collapse_is_retained_by_the_estimator_and_missing_in_the_table(iris):
    # Of five groups one collapses under VEE.
    assert np.isnan(mclustBIC(iris, 5, "VEE")[5, "VEE"])
    gm = GaussianMixture(5, covariance_type="VEE", init_params="hierarchical", tol=1e-5, reg_covar=0)
    assert np.isfinite(gm.fit(iris).lower_bound_)


def test_selection_of_models(iris):
    params = {"init_params": "hierarchical", "reg_covar": 0, "tol": 1e-7, "max_iter": 1000}
    by_bic = select(iris, range(1, 4), covariance_type="all", **params)
    assert (by_bic.best.covariance_type, by_bic.best.n_components, len(by_bic.table)) == ("VEV", 2, 42)
    row = next(row for row in by_bic.table if row[:2] == ("VEV", 2))
    # Fits end at smaller changes than mclust's.
    assert row.criterion == pytest.approx(561.7284621, abs=1e-3)
    by_icl = select(iris, [2], covariance_type="VEV", criterion="icl", **params)
    assert by_icl.table[0].criterion == pytest.approx(561.72887565114, abs=1e-3)


def test_failed_models_of_a_selection_have_no_criterion(iris):
    params = {"init_params": "hierarchical", "reg_covar": 0, "tol": 1e-5, "max_iter": 1000}
    found = select(iris, range(1, 10), covariance_type="all", **params)
    assert (found.best.covariance_type, found.best.n_components) == ("VEV", 2)
    failed = {row[:2] for row in found.table if np.isnan(row.criterion)}
    # mclust's, and VEE with 9: the tolerance is of a sample's mean.
    assert failed == {("VEE", 5), ("VEE", 7), ("EVV", 5), ("EVV", 6), ("VEE", 9)} == {row[:2] for row in found.table if row.reason}
    few = select(iris, [5], covariance_type=["EVV", "VEE", "VVV"], **params)
    assert few.best.covariance_type == "VVV" and few.table[0].n_parameters is None and "not positive definite" in few.table[0].reason
    assert "one is empty or has collapsed" in few.table[1].reason
    assert repr(few).count("NA") == 4 and "reason" in repr(few) and "reason" not in repr(select(iris, [2], random_state=0))
    with pytest.warns(UserWarning, match="in each model a component is empty"):
        assert select(iris, [5], covariance_type="VEE", **params).best.covariance_type == "VEE"
    with pytest.raises(ValueError, match="ill-defined empirical covariance"):
        select(iris, [5], covariance_type="EVV", **params)


@pytest.mark.parametrize("name", MODELS)
def test_mixtures_of_models_are_evaluated_drawn_and_exported(name, blobs):
    gm = fitted(blobs, name)
    value, *gradients = Likelihood(blobs).gradient(gm)
    assert value == pytest.approx(gm.score(blobs) * 120) and gradients[2].shape == gm.covariances_.shape
    # The derivatives are those of the form, not of what its components share: by means they are 0 at the optimum.
    assert np.isfinite(gradients[0]).all() and np.abs(gradients[1]).max() < 1
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(gaussmix.to_onnx(gm).SerializeToString())
    np.testing.assert_array_equal(session.run(None, {session.get_inputs()[0].name: blobs})[0], gm.predict(blobs))
    pytest.importorskip("matplotlib").use("agg")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    assert len(plot(gm, blobs, ax=pyplot.subplots()[1]).patches) == 4
    pyplot.close("all")
    assert gm.sample(50)[0].shape == (50, 2)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("name", ["EII", "EVI", "VEE"])
def test_headers_for_c_compute_models(name, blobs, tmp_path):
    gm = fitted(blobs, name)
    gm.save(tmp_path / "model.json")
    # The program runs once in a process, whose start takes longer than all else: a model of each form.
    convert = "import sys; from gaussmix import _core; sys.exit(_core.run_program(['gmm', 'convert', *sys.argv[1:]]))"
    subprocess.run([sys.executable, "-c", convert, "model.json", "model.h"], cwd=tmp_path, check=True)
    program = """
        #include <stdio.h>
        #include "model.h"
        int main(void) { double x[2] = {1.5, -0.5}; printf("%.17g %d\\n", model_score(x), model_predict(x)); return 0; }
    """
    (tmp_path / "main.c").write_text(program)
    subprocess.run(["cc", "-std=c99", "-o", tmp_path / "main", tmp_path / "main.c", "-lm"], check=True)
    score, label = subprocess.run([tmp_path / "main"], check=True, capture_output=True, text=True).stdout.split()
    x = [[1.5, -0.5]]
    # C's own logarithms and exponentials.
    assert float(score) == pytest.approx(gm.score_samples(x)[0], rel=1e-12) and int(label) == gm.predict(x)[0]


def test_the_table_is_drawn(blobs):
    pytest.importorskip("matplotlib").use("agg")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.figure()
    assert len(mclustBIC(blobs, range(1, 4)).plot().lines) == 14
    pyplot.close("all")
