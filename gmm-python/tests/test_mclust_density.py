"""Densities and pictures of `gaussmix.mclust`; the numbers are those of mclust 6.0.0 (R 4.2.2)."""

import numpy as np
import pytest

from gaussmix.mclust import Mclust, cdfMclust, densityMclust, me, quantileMclust


def test_densities(faithful):
    fit, new = densityMclust(faithful), [[3, 70], [2, 50]]
    # R prints thirteen digits.
    np.testing.assert_allclose(fit.density[:3], [0.01227077691991, 0.02507915437198, 0.00437065193006], rtol=1e-9)
    np.testing.assert_allclose(fit.predict(new), [0.0002943299095442, 0.0269610769905967], rtol=1e-9)
    logs = [[-6.411024922432, -9.692179307555, -16.01413367842], [-27.246992618354, -2.581574235979, -45.05431231798]]
    np.testing.assert_allclose(fit.predict(new, "cdens", logarithm=True), logs, rtol=1e-9)
    z = [[0.9250362354379, 0.07478358730378, 1.801772582804e-4], [9.022151388577e-12, 0.99999999999098, 4.806265943367e-19]]
    np.testing.assert_allclose(fit.predict(new, "z"), z, rtol=1e-8)
    np.testing.assert_allclose(fit.predict(new, "z"), Mclust(faithful).predict(new).z, rtol=1e-9, atol=1e-15)
    assert (fit.modelName, fit.G, fit.bic) == ("EEE", 3, Mclust(faithful).bic)
    with pytest.raises(ValueError, match="use 'dens', 'cdens' or 'z'"):
        fit.predict(new, "cdf")


def test_distribution_functions_and_quantiles_of_one_column(acidity, faithful):
    fit = densityMclust(acidity)
    np.testing.assert_allclose(fit.density[:3], [0.002169165304356, 0.325779918107667, 0.193251491629067], rtol=1e-9)
    cdf = cdfMclust(fit, [6, 4, 5])
    assert cdf.x.tolist() == [4, 5, 6]
    np.testing.assert_allclose(cdf.y, [0.1216171973825, 0.5785608526660, 0.7096221475392], rtol=1e-9)
    np.testing.assert_allclose(cdfMclust(fit, ngrid=5).x, [2.5108634, 3.7638452, 5.0168270, 6.2698088, 7.5227906], rtol=1e-9)
    # R finds a root to 1.5e-8 of p, where the density is 0.07.
    np.testing.assert_allclose(quantileMclust(fit, [0.025, 0.5, 0.9]), [3.615691071587, 4.737420670469, 6.590601923110], atol=1e-7)
    four = Mclust(faithful[:, 0], 4, "V")
    np.testing.assert_allclose(quantileMclust(four, [0.1, 0.5]), [1.846920700535, 3.991711788750], atol=1e-7)
    assert quantileMclust(fit, 1.0) == np.inf


def test_pictures(acidity, faithful, iris):
    pytest.importorskip("matplotlib").use("agg")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    two = Mclust(faithful)
    ax = two.plot()
    # Two ellipses of each component, and the rows of each class.
    assert len(ax.patches) == 6 and [len(points.get_offsets()) for points in ax.collections] == [40, 97, 135]
    assert [text.get_text().split(":")[0] for text in ax.get_legend().get_texts()] == ["1", "2", "3"]
    ax = two.plot("uncertainty")
    # Three quarters, a fifth and a twentieth of the rows.
    assert [len(points.get_offsets()) for points in ax.collections] == [204, 54, 14]
    assert len(two.plot("density").collections) == 2
    pyplot.figure()
    assert len(two.plot("BIC").lines) == 14
    one = Mclust(acidity)
    ax = one.plot("classification")
    assert [len(line.get_xdata()) for line in ax.lines] == [98, 57]
    assert len(one.plot("uncertainty").lines[0].get_xdata()) == 155
    assert len(one.plot("density").lines) == 3
    four = me(iris, "VEV", np.eye(3)[np.repeat([0, 1, 2], 50)])
    for what in ("classification", "uncertainty", "density"):
        axes = four.plot(what)
        assert axes.shape == (4, 4) and axes[1, 0].get_xlim() == axes[3, 0].get_xlim() == axes[0, 0].get_xlim()
        assert axes[1, 0].get_ylim() == axes[1, 1].get_ylim()
    ax = four.plot("density", [2, 0])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("feature 2", "feature 0")
    # Of many rows some.
    many = Mclust(np.repeat(iris, 20, axis=0), 2, "VVV", initialization={"subset": np.arange(0, 3000, 20)})
    assert sum(len(points.get_offsets()) for points in many.plot(dimens=[0, 1]).collections) == 2000
    pyplot.close("all")
    for call, what in [
        (lambda: four.plot("BIC"), "use 'BIC', 'classification'"),
        (lambda: four.plot(dimens=[0, 4]), "dimens has 4; the columns are 0 to 3"),
        (lambda: four.plot(ax=ax), "4 columns make 16 axes"),
    ]:
        with pytest.raises(ValueError, match=what):
            call()
