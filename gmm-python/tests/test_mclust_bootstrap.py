"""The bootstrap and the merging of components against the numbers of mclust 6.0.0 (R 4.2.2)."""

import numpy as np
import pytest

from gaussmix.mclust import Mclust, MclustBootstrap, clustCombi, clustCombiOptim, emControl, mclustBIC, mclustBootstrapLRT

#: Standard errors of shares, and of means (d, G), of faithful under EEE with 3 components: of the jackknife, and of 2,000
#: samples by R (500 for wlbs).
ERRORS = {
    "jk": (
        [0.0219413313891393, 0.0291215269088405, 0.0299965825084767],
        [[0.0527140229806111, 0.0273267713532491, 0.02643729609819], [1.07069835843206, 0.596515207732641, 0.479898773291679]],
    ),
    "bs": ([0.0473, 0.0288, 0.0526], [[0.1165, 0.0273, 0.0465], [2.287, 0.598, 0.586]]),
    "pb": ([0.0364, 0.0294, 0.0407], [[0.0687, 0.0296, 0.0342], [1.217, 0.587, 0.612]]),
    "wlbs": ([0.0561, 0.0268, 0.0605], [[0.1315, 0.0273, 0.0515], [2.573, 0.593, 0.608]]),
}


@pytest.fixture(scope="module")
def geysers(faithful):
    return Mclust(faithful, 3, "EEE")


def test_the_jackknife_is_that_of_mclust(geysers):
    found = MclustBootstrap(geysers, type="jk")
    assert (found.nboot, found.nonfit, found.pro.shape, found.mean.shape, found.variance.shape) == (
        272,
        0,
        (272, 3),
        (272, 2, 3),
        (272, 2, 2, 3),
    )
    errors, ends = found.summary("se"), found.summary("ci")
    # Both round sums of 272 terms, and no fit takes another number of iterations.
    np.testing.assert_allclose(errors.pro, ERRORS["jk"][0], rtol=1e-10)
    np.testing.assert_allclose(errors.mean, ERRORS["jk"][1], rtol=1e-10)
    expected = [[0.00805182515935548, 0.120790231451229], [0.120790231451229, 2.75713744003175]]
    np.testing.assert_allclose(errors.variance, np.repeat(np.array(expected)[:, :, np.newaxis], 3, axis=2), rtol=1e-10)
    np.testing.assert_allclose(ends.pro[:, 0], [0.123110945084364, 0.209119383675506], rtol=1e-10)
    np.testing.assert_allclose(
        ends.variance[:, :, 2], [[0.0624073011398931, 28.3313767735155], [0.0939698757841935, 39.1391569392939]], rtol=1e-10
    )
    np.testing.assert_allclose(found.summary("ave").pro, geysers.parameters.pro, atol=0.01)


@pytest.mark.parametrize("kind", ["bs", "pb", "wlbs"])
def test_standard_errors_are_those_of_mclust(kind, geysers):
    found = MclustBootstrap(geysers, 2000, kind, random_state=0)
    errors, ends, means = (found.summary(what) for what in ("se", "ci", "ave"))
    # Of a few thousand samples from distributions with long tails, on either side.
    np.testing.assert_allclose(errors.pro, ERRORS[kind][0], rtol=0.12)
    np.testing.assert_allclose(errors.mean, ERRORS[kind][1], rtol=0.12)
    assert ends.pro.shape == (2, 3) and ends.mean.shape == ends.variance.shape == (2, 2, 3)
    assert np.all((ends.mean[0] < means.mean) & (means.mean < ends.mean[1]))
    np.testing.assert_allclose(ends.pro, np.quantile(found.pro, [0.025, 0.975], axis=0))
    assert found.summary("ci", 0.5).pro[1, 0] < ends.pro[1, 0]
    assert "EEE, standard errors of 2000 fits" in repr(found)


def test_samples_that_collapse_are_replaced(faithful):
    model = Mclust(faithful[:30, 0], 4, "V")
    found = MclustBootstrap(model, 50, random_state=1)
    assert found.nonfit > 0 and found.pro.shape == (50, 4) and not np.isnan(found.pro).any()
    again = MclustBootstrap(model, 50, random_state=1)
    np.testing.assert_array_equal(found.variance, again.variance)


def test_likelihood_ratios_of_faithful(faithful):
    found = mclustBootstrapLRT(faithful, "VVV", nboot=300, random_state=0)
    np.testing.assert_allclose(found.obs, [319.065354, 6.130516], atol=1e-6)
    assert found.G.tolist() == [1, 2] and found.boot.shape == (300, 2)
    # R with 999 samples: 0.001 and 0.579, and the quartiles of the statistic.
    assert found.p_value[0] == pytest.approx(1 / 301) and abs(found.p_value[1] - 0.579) < 0.1
    np.testing.assert_allclose(np.quantile(found.boot, [0.25, 0.5, 0.75], axis=0)[:, 0], [3.10, 5.42, 8.72], rtol=0.2)
    assert "2 vs 3" in repr(found)
    table = mclustBIC(faithful, [2, 3], "VVV")
    limited = mclustBootstrapLRT(faithful, "VVV", nboot=9, maxG=3, random_state=0)
    assert limited.G.tolist() == [1, 2, 3] and limited.obs[1] == pytest.approx(
        table[3, "VVV"] - table[2, "VVV"] + 6 * np.log(272), abs=1e-8
    )


def test_merging_by_entropy(faithful, iris):
    # R's entropies, the sizes of the clusters, and the numbers at the bends of two and three lines.
    for x, k, name, entropy, sizes, bends in [
        (faithful, 3, "EEE", [0, 0.494838746892, 42.3124067945], {2: [175, 97]}, [2]),
        (
            faithful,
            7,
            "VVI",
            [0, 0.591529653646, 13.8532683790, 32.1865097194, 50.7937323242, 81.3771729192, 105.619650531],
            {2: [175, 97], 4: [175, 56, 29, 12], 6: [27, 56, 102, 29, 46, 12]},
            [3, 2],
        ),
        (
            iris,
            9,
            "VVI",
            [0, 4.77061703140e-5, 0.179504159902, 1.29335219621, 2.48740147748, 4.88499780635, 9.26330357837, 13.9184164620, 18.5871129677],
            {2: [49, 101], 5: [33, 16, 6, 84, 11], 8: [20, 16, 13, 6, 18, 47, 19, 11]},
            [5, 3],
        ),
        (iris, 2, "VEV", [0, 1.99089940044e-3], {2: [50, 100]}, [2, 2]),
        (iris, 1, "VEV", [0], {1: [150]}, [1]),
    ]:
        combi = clustCombi(Mclust(x, k, name))
        # R prints twelve digits.
        np.testing.assert_allclose(combi.entropy, entropy, rtol=1e-9, atol=1e-12)
        for clusters, size in sizes.items():
            assert np.bincount(combi.classification[clusters])[1:].tolist() == size
        assert [clustCombiOptim(combi, lines).numClusters_combi for lines in (2, 3)[: len(bends)]] == bends
        for clusters in range(1, k):
            np.testing.assert_allclose(combi.combiz[clusters + 1] @ combi.combiM[clusters].T, combi.combiz[clusters])
        np.testing.assert_array_equal(combi.combiM[k], np.eye(k))
    combi = clustCombi(Mclust(faithful, 3, "EEE"))
    assert combi.combiM[2].tolist() == [[1, 0, 1], [0, 1, 0]] and "2 clusters of [175, 97] rows" in repr(combi)
    best = clustCombiOptim(combi)
    np.testing.assert_array_equal(best.cluster_combi, best.z_combi.argmax(axis=1) + 1)


def test_errors_of_the_bootstrap(faithful, geysers):
    for call, what in [
        (lambda: MclustBootstrap(geysers, type="nonpara"), "use 'bs', 'wlbs', 'pb' or 'jk'"),
        (lambda: MclustBootstrap(geysers, 2).summary("sd"), "use 'se', 'ci' or 'ave'"),
        (lambda: MclustBootstrap(Mclust(faithful, 2, "VVV"), 3, control=emControl()).plot("mu"), "use 'pro', 'mean' or 'var'"),
        (lambda: mclustBootstrapLRT(faithful[:4], "VVV"), "VVV of 2 components has an empty or collapsed one"),
        (lambda: mclustBootstrapLRT(faithful, "VVV", 2, maxG=1).plot(2), "no test of 2 components; use 1 to 1"),
        (lambda: clustCombiOptim(clustCombi(geysers), 3), "3 lines need 4 components; there are 3"),
        (lambda: clustCombiOptim(clustCombi(geysers), 4), "use 2 or 3 lines"),
    ]:
        with pytest.raises(ValueError, match=what):
            call()


def test_pictures_of_the_bootstrap(faithful, geysers):
    pytest.importorskip("matplotlib").use("agg")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    found = MclustBootstrap(geysers, 20, random_state=0)
    assert [found.plot(what).shape for what in ("pro", "mean", "var")] == [(1, 3), (2, 3), (2, 3)]
    pyplot.figure()
    ax = mclustBootstrapLRT(faithful, "VVV", 20, maxG=1, random_state=0).plot()
    assert len(ax.lines) == 1 and sum(patch.get_height() for patch in ax.patches) == 20
    pyplot.figure()
    assert len(clustCombi(geysers).plot().lines) == 3
    pyplot.close("all")
