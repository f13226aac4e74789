"""Fits, densities, tables, trees and discriminant analysis."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_consistent_length, check_random_state

from .. import _core, _tables
from .._arrays import Floats, numbers_of
from .._mixture import Mixture
from .._pictures import axes_of, draw_clusters

#: More rows than these do not build a tree.
_SUBSET = 2000
#: The square root of the spacing of float64 at 1.
_ROOT_EPS = 2.0**-26
_MODELS = _core.MODELS[:14]
#: The engine's names of mclust's models of one feature, and of one component.
_OTHERS = {"E": "EII", "V": "VII", "X": "VII", "XII": "VII", "XXI": "VVI", "XXX": "VVV"}
_Numbers: TypeAlias = int | Sequence[int]
_Names: TypeAlias = str | Sequence[str] | None
#: A mixture, its log-likelihood and the iterations.
_Fit: TypeAlias = tuple[Any, float, int]
#: None where a component was empty or collapsed.
_Found: TypeAlias = _Fit | None
_Cells: TypeAlias = dict[tuple[int, str], _Found]


class emControl(NamedTuple):
    """When EM ends.
    Parameters:
    tol : float, default=1e-5 -- At a change of the log-likelihood L by at most tol * (1 + abs(L)).
    itmax : int, default=2147483647 -- After so many iterations.
    """

    tol: float = 1e-5
    itmax: int = 2**31 - 1


class priorControl(NamedTuple):
    """A conjugate prior of means and covariances, under which no component collapses (Fraley and Raftery 2007).
    Parameters:
    shrinkage : float, default=0.01 -- The number of rows that the prior of a mean counts as.
    dof : float, default=None -- The degrees of freedom; by default d + 2.
    mean : float or array-like of shape (d,), default=None -- The means' mean; by default that of the columns.
    scale : float or array-like of shape (d, d), default=None
        The scale; by default the covariance of the rows over G ** (2 / d). Models of spheres and of axes along the
        columns take the mean of its diagonal.
    """

    shrinkage: float = 0.01
    dof: float | None = None
    mean: ArrayLike | None = None
    scale: ArrayLike | None = None


class Prediction(NamedTuple):
    """The class of each row, from 1 or as given, and the probability of each class (n, G)."""

    classification: NDArray[Any]
    z: NDArray[np.float64]


class Table:
    """BIC or ICL of each model: ``table[3, "VEV"]``; NaN, printed as NA, where a component was empty or collapsed.
    Parameters:
    criterion : str -- 'BIC' or 'ICL'.
    values : dict -- The value of each pair of a number of components and the name of a model.
    """

    def __init__(self, criterion: str, values: dict[tuple[int, str], float]) -> None:
        self.criterion, self._values = criterion, values
        self.G, self.modelNames = (list(dict.fromkeys(part)) for part in zip(*values, strict=True))

    @property
    def values(self) -> NDArray[np.float64]:
        """The values (number of G, number of models)."""
        return np.array([[self[k, name] for name in self.modelNames] for k in self.G])

    def __getitem__(self, cell: tuple[int, str]) -> float:
        return self._values[cell]

    def pick(self, k: int = 3) -> list[tuple[str, int, float]]:
        """Return the best models, as pickBIC does: the name of each, its number of components, and the value.
        Parameters: k : int, default=3 -- How many.
        """
        known = [(name, n, value) for (n, name), value in self._values.items() if not np.isnan(value)]
        return sorted(known, key=lambda row: -row[2])[:k]

    def __repr__(self) -> str:
        rows = [[k, *("NA" if np.isnan(v) else v for v in row)] for k, row in zip(self.G, self.values.tolist(), strict=True)]
        best = ", ".join(f"{name} {k}: {value:.2f}" for name, k, value in self.pick())
        return _tables.as_text(f"{self.criterion}, best: {best}", ["G", *self.modelNames], rows, len(rows))

    def plot(self, ax: Any = None) -> Any:
        """Draw the values over the number of components, a line for each model, and return the axes of matplotlib."""
        ax = axes_of(ax)
        for number, (name, line) in enumerate(zip(self.modelNames, self.values.T, strict=True)):
            ax.plot(self.G, line, "o^s"[number % 3] + "-" * (1 + (number > 9)), markersize=4, color=f"C{number % 10}", label=name)
        ax.set(xlabel="number of components", ylabel=self.criterion)
        ax.legend(ncols=2)
        return ax


class Model:
    """A fitted model: what `me` returns; `Mclust` has its attributes."""

    def __init__(self, data: Floats, samples: _core.Data, modelName: str, found: _Fit, moved: _core.Mixture | None = None) -> None:
        engine, self.loglik, self.iterations = found
        self.data, self.mixture = data, Mixture._of(moved or engine)
        self.modelName, (self.n, self.d), self.G = modelName, data.shape, len(engine.means)
        self.hypvol = None if engine.noise is None else engine.noise[0]
        self.df = engine.n_parameters
        self.bic = 2.0 * self.loglik - self.df * float(np.log(self.n))
        self.z = samples.responsibilities(engine)
        self.classification = _classes(self.z, self.G)
        self.uncertainty = 1.0 - self.z.max(axis=1)
        self.icl = self.bic + 2.0 * float(np.log(self.z.max(axis=1)).sum())
        engine = self.mixture._engine
        volumes, shapes, axes = engine.decomposition()
        sigma = sigma_of(engine)
        parts = zip(_OTHERS.get(modelName, modelName), (volumes, shapes, axes), strict=True)
        scale, shape, orientation = (np.moveaxis(part, 0, -1) if letter == "V" else part[0] for letter, part in parts)
        variance = SimpleNamespace(modelName=modelName, d=self.d, G=self.G, sigma=sigma, scale=scale, shape=shape, orientation=orientation)
        if self.d == 1:
            variance.sigmasq = scale
        self.parameters = SimpleNamespace(pro=engine.weights, mean=engine.means.T, variance=variance)
        if self.hypvol is not None:
            self.parameters.Vinv = 1.0 / self.hypvol

    def predict(self, newdata: ArrayLike) -> Prediction:
        """Return the most probable component of other rows: `classification`, from 1, or 0 of noise, and `z`."""
        z = self.mixture.predict_proba(_rows(newdata))
        return Prediction(_classes(z, self.G), z)

    def plot(self, what: str = "classification", dimens: Sequence[int] | None = None, ax: Any = None) -> Any:
        """Draw the model, up to 2,000 rows and ellipses at one and two standard deviations, and return the axes of matplotlib.
        Parameters:
        what : {'BIC', 'classification', 'uncertainty', 'density'}, default='classification'
            The table of `Mclust`; the classes; the rows, large and dark where the class is uncertain; or lines of equal
            density, which enclose 95, 75, 50 and 25 % of the rows.
        dimens : sequence of int, default=None -- The columns, from 0; of more than two all pairs are drawn.
        ax : matplotlib.axes.Axes, default=None -- Where to draw one or two columns; by default on a new figure.
        """
        if what == "BIC" and isinstance(self, Mclust):
            return self.BIC.plot(ax)
        return draw_clusters(self, what, dimens, ax)

    def __repr__(self) -> str:
        head, row = ["loglik", "n", "df", "BIC", "ICL"], [self.loglik, self.n, self.df, self.bic, self.icl]
        sizes = np.bincount(self.classification, minlength=self.G + 1)[1:].tolist()
        noise = "" if self.hypvol is None else f", and noise of {np.sum(self.classification == 0)}"
        title = f"{type(self).__name__} {self.modelName}, {self.G} component{'s' * (self.G > 1)} of {sizes} rows{noise}"
        return _tables.as_text(title, head, [row], 1)


class Mclust(Model):
    """The best of several models and numbers of components by BIC.
    Parameters:
    G : int or sequence of int, default=range(1, 10) -- The numbers of components; beside noise from 0.
    modelNames : str or sequence of str, default=None
        The models. By default all 14, for as many columns as rows or more the six of spheres and of axes along the
        columns, and for one column E and V.
    initialization : dict, default=None
        `hcPairs`, a tree of `hc`; `subset`, the numbers or a mask of the rows that build it and give the start; `noise`,
        those of the rows that begin as noise, a component of the density 1 / `hypvol`. By default a tree of VVV (EII where
        n <= d) with "SVD", of at most 2,000 rows drawn by `random_state`; for one column classes between quantiles.
    prior : priorControl, default=None -- A prior; EVE, VEE, VVE and EVV have none, and are left out by default.
    Attributes:
    BIC : Table -- The criterion of all models.
    data : ndarray of shape (n, d) -- The rows.
    modelName, n, d, G : str and int -- The best model, and the numbers of rows, of columns and of components.
    loglik, df, bic, icl : float and int -- The log-likelihood, the number of parameters, and the criteria.
    iterations : int -- The E-steps.
    parameters : SimpleNamespace
        `pro` (G,), `mean` (d, G) and `variance`, with `sigma` (d, d, G), `scale`, `shape` and `orientation`: (G,), (d, G)
        and (d, d, G), without the last axis where components share them; and `sigmasq` for one column.
    z : ndarray of shape (n, G) -- The probability of each component; with noise one more, the last.
    classification : ndarray of shape (n,) -- The most probable component, from 1; 0 of noise.
    hypvol : float or None
        The volume that noise fills, the smaller of the products of the ranges of the columns and of the principal
        components; `parameters.Vinv` is its inverse.
    uncertainty : ndarray of shape (n,) -- 1 less its probability.
    mixture : Mixture -- The same for all else in this package: pictures, files, draws.
    See Also:
    gaussmix.GaussianMixture : The same models with more choices.
    Examples:
    >>> import numpy as np
    >>> from gaussmix.mclust import Mclust
    >>> rng = np.random.default_rng(0)
    >>> fit = Mclust(np.concatenate([rng.normal(0, 1, (50, 2)), rng.normal(9, 1, (50, 2))]), G=range(1, 4))
    >>> fit.modelName, fit.G
    ('EII', 2)
    """

    def __init__(
        self,
        data: ArrayLike,
        G: _Numbers = range(1, 10),
        modelNames: _Names = None,
        initialization: Mapping[str, Any] | None = None,
        control: emControl = emControl(),
        device: str = "cpu",
        random_state: Any = None,
        prior: priorControl | None = None,
    ) -> None:
        x = _rows(data)
        samples, found = _fits(x, G, modelNames, initialization, control, device, random_state, prior)
        self.BIC = _bic(samples, found)
        name, fit = _best(self.BIC, found)
        super().__init__(x, samples, name, fit, _moved(samples, x, name, fit, initialization, prior))


class densityMclust(Mclust):
    """The density of rows, by the best of several models and numbers of components.
    Parameters: G, modelNames, **search : object -- As of `Mclust`.
    Attributes: density : ndarray of shape (n,) -- The density at each row.
    See Also:
    Mclust : It has all other attributes.
    """

    def __init__(self, data: ArrayLike, G: _Numbers = range(1, 10), modelNames: _Names = None, **search: Any) -> None:
        super().__init__(data, G, modelNames, **search)
        self.density = self.predict()

    def predict(  # type: ignore[override]  # R's differs too.
        self, newdata: ArrayLike | None = None, what: str = "dens", logarithm: bool = False
    ) -> NDArray[np.float64]:
        """Return the density at rows, (n_rows,) or (n_rows, G).
        Parameters:
        newdata : array-like of shape (n_rows, d), default=None -- The rows; by default the model's.
        what : {'dens', 'cdens', 'z'}, default='dens' -- The density, that of each component, or the components' probabilities.
        logarithm : bool, default=False -- Whether to return logarithms.
        """
        x, pars = self.data if newdata is None else _rows(newdata), self.parameters
        if what == "dens":
            logs = self.mixture.score_samples(x)
        elif what in ("cdens", "z"):
            covariances = np.moveaxis(pars.variance.sigma, -1, 0)
            parts = zip(pars.mean.T, covariances, strict=True)
            alone = [Mixture([1.0], mean[np.newaxis], sigma[np.newaxis], covariance_type="full") for mean, sigma in parts]
            logs = np.stack([one.score_samples(x) for one in alone], axis=1)
            if what == "z":
                logs += np.log(pars.pro) - self.mixture.score_samples(x)[:, np.newaxis]
        else:
            raise ValueError(f"what is {what!r}; use 'dens', 'cdens' or 'z'")
        return logs if logarithm else np.exp(logs)


def cdfMclust(object: Mclust, data: ArrayLike | None = None, ngrid: int = 100) -> SimpleNamespace:
    """Return the distribution function of a model of one column: the places `x`, ascending, and the probabilities `y` of at most so much.
    Parameters:
    data : array-like of shape (n,), default=None
        Where; by default at even distances over the range of the model's rows and a tenth more on either side.
    ngrid : int, default=100 -- The number of these places.
    """
    if data is None:
        low, high = object.data.min(), object.data.max()
        x = np.linspace(low - 0.1 * (high - low), high + 0.1 * (high - low), ngrid)
    else:
        x = np.sort(np.ravel(np.asarray(data, dtype=np.float64)))
    return SimpleNamespace(x=x, y=object.mixture.cdf(x))


def quantileMclust(object: Mclust, p: ArrayLike) -> Any:
    """Return the quantiles of a model of one column, in the shape of `p`; infinite for 0 and 1.
    Parameters:
    p : array-like -- Probabilities from 0 to 1.
    """
    return object.mixture.quantile(p)


def mclustBIC(data: ArrayLike, G: _Numbers = range(1, 10), modelNames: _Names = None, **search: Any) -> Table:
    """Return the Bayesian information criterion 2 log L - df log n of all models.
    Parameters: G, modelNames, **search : object -- As of `Mclust`.
    """
    return _bic(*_fits(data, G, modelNames, **search))


def mclustICL(data: ArrayLike, G: _Numbers = range(1, 10), modelNames: _Names = None, **search: Any) -> Table:
    """Return the BIC of all models, plus twice the sum of the logarithms of the rows' largest probabilities.
    Parameters: G, modelNames, **search : object -- As of `Mclust`.
    """
    x = _rows(data)
    samples, found = _fits(x, G, modelNames, **search)
    bic = _bic(samples, found)

    def icl(cell: tuple[int, str], fit: _Found) -> float:
        # Noise alone leaves no doubt.
        return bic[cell] if fit is None or fit[0] is None else Model(x, samples, cell[1], fit).icl

    return Table("ICL", {cell: icl(cell, fit) for cell, fit in found.items()})


def hc(data: ArrayLike, modelName: str = "VVV", use: str = "VARS") -> NDArray[np.int64]:
    """Merge the two groups of rows that cost the least likelihood, step by step, and return the first rows of both, (n - 1, 2).
    Parameters:
    modelName : {'EII', 'VII', 'EEE', 'VVV'}, default='VVV' -- The model of the groups.
    use : {'VARS', 'STD', 'SPH', 'PCS', 'PCR', 'SVD'}, default='VARS' -- How columns are transformed before.
    """
    return _core.hierarchy(_rows(data), modelName, use)


def hclass(tree: ArrayLike, G: _Numbers) -> NDArray[np.int64]:
    """Return the classes of rows, (n,) or (n, number of G), where some groups of a tree are left: from 1, in the order of first rows.
    Parameters:
    tree : array-like of shape (n - 1, 2) -- What `hc` returns.
    G : int or sequence of int -- The number of groups, or several.
    """
    mergers = [(int(a), int(b)) for a, b in np.asarray(tree)]
    return np.transpose([_core.hierarchy_classes(mergers, k) for k in np.atleast_1d(G)]).reshape(-1, *np.shape(G)) + 1


def me(
    data: ArrayLike,
    modelName: str,
    z: ArrayLike,
    control: emControl = emControl(),
    device: str = "cpu",
    prior: priorControl | None = None,
    Vinv: float | None = None,
) -> Model:
    """Return a model fitted by EM that begins with an M-step, with the attributes of `Mclust` but for BIC.
    Parameters:
    z : array-like of shape (n, G) -- The probabilities of the components to begin with; of classes ``np.eye(G)[classes]``.
    prior : priorControl, default=None -- A prior, not for EVE, VEE, VVE and EVV.
    Vinv : float, default=None -- The density of noise, whose probabilities are then one more column of `z`, the last.
    """
    x, start = _rows(data), numbers_of(z, "z", ensure_all_finite=True)
    check_consistent_length(x, start)
    noise = None if Vinv is None else (float(start[:, -1].mean()), 1.0 / Vinv)
    samples, k = _core.Data(x, device=device), start.shape[1] - (noise is not None)
    (found,) = _em(samples, x, {k: start[:, :k]}, [modelName], control, prior, noise).values()
    if found is None:
        raise ValueError(f"{modelName} of {k} components: one is empty or has collapsed; begin otherwise or take fewer")
    return Model(x, samples, modelName, found)


class MclustDA:
    """Discriminant analysis: a mixture for each class, or with "EDDA" one component, all of one model.
    Parameters:
    class_ : array-like of shape (n,) -- Their classes.
    modelType : {'MclustDA', 'EDDA'}, default='MclustDA' -- Whether each class has a mixture or a component.
    G : int or sequence of int, default=range(1, 6) -- The numbers of components of a class, not for "EDDA".
    modelNames : str or sequence of str, default=None -- The models, of which the best by BIC is taken.
    Attributes:
    classes : ndarray -- The classes in ascending order.
    models : list of Model -- That of each class; with "EDDA" one, whose components are the classes.
    loglik, df, bic : float and int -- The log-likelihood of the rows, the number of parameters, and the criterion.
    See Also:
    gaussmix.GaussianMixtureClassifier : A mixture of a given number of components for each class.
    """

    def __init__(
        self,
        data: ArrayLike,
        class_: ArrayLike,
        modelType: str = "MclustDA",
        G: _Numbers = range(1, 6),
        modelNames: _Names = None,
        control: emControl = emControl(),
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        x = _rows(data)
        check_consistent_length(x, class_)
        self.modelType, (self.classes, codes) = modelType, np.unique(class_, return_inverse=True)
        k, samples = len(self.classes), _core.Data(x, device=device)
        if modelType == "EDDA":
            found = _em(samples, x, {k: np.eye(k)[codes]}, _names(modelNames, x), control._replace(itmax=1))
            self.models, self._of = [Model(x, samples, *_best(_bic(samples, found), found))], np.eye(k)
            self.mixture, self.df = self.models[0].mixture, self.models[0].df
        elif modelType == "MclustDA":
            self.models = [Mclust(x[codes == c], G, modelNames, None, control, device, random_state) for c in range(k)]
            self.mixture = Mixture.sum([model.mixture for model in self.models], np.bincount(codes))
            self._of = np.repeat(np.eye(k), [model.G for model in self.models], axis=0)
            self.df = sum(model.df for model in self.models) + k - 1
        else:
            raise ValueError(f"modelType is {modelType!r}; use 'MclustDA' or 'EDDA'")
        self.loglik = samples.mean_score(self.mixture._engine) * len(x)
        self.bic = 2.0 * self.loglik - self.df * float(np.log(len(x)))

    def predict(self, newdata: ArrayLike) -> Prediction:
        """Return the most probable class of rows: `classification`, and `z`, the probability of each class."""
        z = self.mixture.predict_proba(_rows(newdata)) @ self._of
        return Prediction(self.classes[z.argmax(axis=1)], z)

    def __repr__(self) -> str:
        models = ", ".join(f"{model.modelName} {model.G}" for model in self.models)
        return _tables.as_text(f"{self.modelType}: {models}", ["loglik", "df", "BIC"], [[self.loglik, self.df, self.bic]], 1)


def _classes(z: Floats, G: int) -> NDArray[np.intp]:
    """Return the most probable components from 1, and 0 of noise, which is the last."""
    classes: NDArray[np.intp] = z.argmax(axis=1) + 1
    return np.where(classes > G, 0, classes)


def sigma_of(mixture: _core.Mixture) -> NDArray[np.float64]:
    """Return the covariances (d, d, G)."""
    volumes, shapes, axes = mixture.decomposition()
    return np.einsum("k,kia,ka,kja->ijk", volumes, axes, shapes, axes)


def _rows(data: Any) -> Floats:
    """Return checked rows; a series of numbers is one column."""
    data = np.asanyarray(data)[:, np.newaxis] if np.ndim(data) == 1 else data
    return numbers_of(data, "X", [np.float64, np.float32], True, order="C")


def _names(given: _Names, x: Floats, prior: priorControl | None = None) -> list[str]:
    """Return the models to fit: those that are given, or mclust's for rows of this shape."""
    if given is None:
        models = ["E", "V"] if x.shape[1] == 1 else _MODELS if len(x) > x.shape[1] else _MODELS[:6]
        return [name for name in models if prior is None or _core.has_prior(_OTHERS.get(name, name))]
    names = [given] if isinstance(given, str) else list(given)
    if unknown := [name for name in names if name not in _MODELS and name not in _OTHERS]:
        raise ValueError(f"there is no model {unknown[0]!r}; use {', '.join(_MODELS)}, or E or V of one column")
    return names


def _name(name: str, k: int) -> str:
    """Return a model's name; of one component models coincide."""
    if k > 1:
        return name
    return "X" if len(name) == 1 else "XII" if name[1:] == "II" else "XXI" if name[2] == "I" else "XXX"


def _fits(
    data: Any,
    G: Any,
    modelNames: Any,
    initialization: Any = None,
    control: Any = emControl(),
    device: str = "cpu",
    random_state: Any = None,
    prior: priorControl | None = None,
) -> tuple[_core.Data, _Cells]:
    """Fit all models from the classes of one tree."""
    x, numbers = _rows(data), [int(k) for k in np.atleast_1d(np.asarray(G))]
    (n, d), given = x.shape, dict(initialization or {})
    tree, subset, noise_rows = (given.pop(name, None) for name in ("hcPairs", "subset", "noise"))
    if given:
        raise ValueError(f"initialization has {next(iter(given))!r}; use 'hcPairs', 'subset' and 'noise'")
    if min(numbers, default=-1) < (noise_rows is None):
        raise ValueError(f"G is {G}; give numbers of components from 1, or beside noise from 0")
    if subset is None and tree is None and n > _SUBSET:
        subset = np.sort(check_random_state(random_state).choice(n, _SUBSET, replace=False))
    chosen = np.arange(n) if subset is None else np.arange(n)[np.asarray(subset)]
    samples, noise = _core.Data(x, device=device), None
    if noise_rows is not None:
        is_noise = np.zeros(n, dtype=bool)
        is_noise[np.asarray(noise_rows)] = True
        chosen, noise = chosen[~is_noise[chosen]], (float(is_noise.mean()), samples.volume())
    rows = x[chosen]
    if noise is not None and len(rows) <= max(numbers):
        raise ValueError(f"{len(rows)} rows beside the noise cannot begin {max(numbers)} components; take fewer rows of noise")
    if d > 1 and tree is None and max(numbers) > 1:
        tree = hc(rows, "VVV" if n > d else "EII", "SVD")
    if tree is not None and len(tree) + 1 != len(rows):
        raise ValueError(f"hcPairs merges {len(tree) + 1} rows, but there are {len(rows)}; give the tree of these rows, or its subset")

    def start(k: int) -> NDArray[np.float64]:
        if k == 1:
            return np.ones((len(rows), 1))
        return np.eye(k)[_core.quantile_classes(rows[:, 0], k) if tree is None else hclass(tree, k) - 1]

    names = _names(modelNames, x, prior)
    found = _em(samples, rows, {k: start(k) for k in numbers if k > 0}, names, control, prior, noise)
    if noise is not None and 0 in numbers:
        # Noise alone has one parameter, its volume.
        alone: _Cells = {(0, name): (None, -n * float(np.log(noise[1])), 0) for name in names}
        found = alone | found
    return samples, found


def _em(
    samples: _core.Data,
    rows: Floats,
    starts: dict[int, NDArray[np.float64]],
    names: list[str],
    control: emControl,
    prior: priorControl | None = None,
    noise: tuple[float, float] | None = None,
) -> _Cells:
    """Run EM of each model from each start, whose M-step is of these rows, beside noise of a weight and a volume."""
    cells = {(k, name): _OTHERS.get(_name(name, k), name) for k in starts for name in names}
    forms = {(k, _core.covariance_form(model)) for (k, _), model in cells.items()}
    statistics = {(k, form): _core.Statistics.from_responsibilities(rows, starts[k], form) for k, form in forms}
    runs = {(k, model): (statistics[k, _core.covariance_form(model)], model) for (k, _), model in cells.items()}
    of_prior = _of_columns(prior, rows.shape[1])
    found = dict(zip(runs, samples.me(list(runs.values()), control.tol, control.itmax, of_prior, noise), strict=True))
    return {(k, name): found[k, model] for (k, name), model in cells.items()}


def _moved(
    samples: _core.Data, x: Floats, name: str, fit: _Fit, initialization: Mapping[str, Any] | None, prior: priorControl | None
) -> _core.Mixture:
    """Return the parameters that mclust reports beside a log-likelihood.

    They are those of one more M-step, where that moves the shares of components or a subset gave the start; not of a
    mixture with noise.
    """
    engine: _core.Mixture = fit[0]
    z, given = samples.responsibilities(engine), initialization or {}
    from_subset = "subset" in given or (len(x) > _SUBSET and "hcPairs" not in given)
    settled = not from_subset and np.sum((engine.weights - z.mean(axis=0)) ** 2) <= _ROOT_EPS
    if settled or z.shape[1] == 1 or engine.noise is not None:
        return engine
    (step,) = _em(samples, x, {z.shape[1]: z}, [name], emControl(itmax=1), prior).values()
    return engine if step is None else step[0]


def _of_columns(prior: priorControl | None, d: int) -> Any:
    """Return a prior with a mean (d,) and a scale (d, d), of one number if so given."""
    if prior is None:
        return None
    shrinkage, dof, mean, scale = prior
    mean = None if mean is None else np.full(d, mean, dtype=np.float64)
    scale = None if scale is None else np.multiply(scale, np.eye(d) if np.ndim(scale) == 0 else 1.0)
    return shrinkage, dof, mean, scale


def _bic(samples: _core.Data, found: _Cells) -> Table:
    """Return the table of fits."""
    penalty = float(np.log(samples.shape[0]))

    def bic(fit: _Found) -> float:
        return np.nan if fit is None else 2.0 * fit[1] - penalty * (1 if fit[0] is None else fit[0].n_parameters)

    return Table("BIC", {cell: bic(fit) for cell, fit in found.items()})


def _best(table: Table, found: _Cells) -> tuple[str, Any]:
    """Return the name of the best model, and its fit."""
    best = table.pick(1)
    if not best:
        raise ValueError(f"in every model a component is empty or has collapsed; take fewer than {min(table.G)} components")
    name, k, _ = best[0]
    if k == 0:
        raise ValueError("the noise alone has the best BIC; give other numbers of components, or fewer rows of noise")
    return _name(name, k), found[k, name]
