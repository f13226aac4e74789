"""A component for noise at mclust's door, with the numbers of mclust 6.0.0 (R 4.2.2)."""

import numpy as np
import pytest

from gaussmix.mclust import Mclust, MclustBootstrap, clustCombi, mclustBIC, mclustICL, me


def test_noise_of_faithful(faithful):
    rows = np.array([1, 10, 100, 200, 250]) - 1
    fit = Mclust(faithful, range(1, 4), initialization={"noise": rows})
    assert (fit.modelName, fit.G, fit.df) == ("VVE", 2, 12)
    # R's numbers, printed to so many digits.
    np.testing.assert_allclose(
        [fit.loglik, fit.bic, fit.icl], [-1126.9560469516, -2321.1817186987, -2360.7185051428], atol=1e-8, rtol=0
    )
    np.testing.assert_allclose(fit.parameters.pro, [0.3180325154, 0.5871549536, 0.0948125309], atol=1e-9)
    np.testing.assert_allclose([fit.hypvol, 1 / fit.parameters.Vinv], 131.8688010035, rtol=1e-11)
    assert np.bincount(fit.classification).tolist() == [15, 90, 167]
    assert fit.z.shape == (272, 3) and fit.predict(faithful).classification.tolist() == fit.classification.tolist()
    np.testing.assert_allclose([fit.BIC[2, "VVV"], fit.BIC[2, "VVI"]], [-2324.425115, -2326.226171], atol=1e-6)
    assert "and noise of 15" in repr(fit)
    # Noise alone.
    alone = mclustBIC(faithful, range(2), ["EEE", "VVV"], initialization={"noise": rows})
    n = len(faithful)
    np.testing.assert_allclose(alone[0, "VVV"], -2 * n * np.log(fit.hypvol) - np.log(n), rtol=1e-12)
    assert mclustICL(faithful, range(2), "EEE", initialization={"noise": rows})[0, "EEE"] == alone[0, "EEE"]


def test_noise_from_probabilities(faithful):
    noise = np.array([1, 10, 100, 200, 250]) - 1
    z = np.zeros((272, 3))
    z[np.arange(272), np.where(faithful[:, 0] < 3, 0, 1)] = 1
    z[noise] = [0, 0, 1]
    of_mclust = {
        "EEE": (-1138.1671613451, 26),
        "VVV": (-1125.7697973705, 19),
        "VEI": (-1140.6596464078, 16),
        "EVE": (-1132.7753161191, 21),
    }
    for name, (loglik, iterations) in of_mclust.items():
        fit = me(faithful, name, z, Vinv=1 / 131.8688010035)
        np.testing.assert_allclose(fit.loglik, loglik, atol=1e-8, rtol=0)
        assert fit.iterations == iterations, name


def test_noise_is_refused_where_there_is_none(faithful):
    with pytest.raises(ValueError, match="from 1"):
        mclustBIC(faithful, [0, 1])
    fit = Mclust(faithful, 2, "VVV", initialization={"noise": [0, 1]})
    with pytest.raises(ValueError, match="noise"):
        MclustBootstrap(fit)
    with pytest.raises(ValueError, match="noise"):
        clustCombi(fit)
    with pytest.raises(ValueError, match="noise"):
        mclustBIC(faithful[:10], 3, initialization={"noise": range(8)})
