//! The parameters of a fit, and their check.
use super::map_prior::MapPrior;
use super::outcome::Fit;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::freeze::Freeze;
use crate::memory;
use crate::model::covariances::{CovarianceType, Covariances};
use crate::model::mixture::Mixture;
use ndarray::{Array1, Array2};

/// How a fit finds its start, with scikit-learn's names. What a method needs of the data it takes
/// from a random subset of the samples (all of them, if they are few); see
/// [`GaussianMixtureParams::init_params`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum InitParams {
    /// k-means++ centres, improved by Lloyd's iterations; each sample then belongs to its nearest
    /// centre.
    #[default]
    #[cfg_attr(feature = "serde", serde(rename = "kmeans"))]
    KMeans,
    /// k-means++ centres (greedy, Arthur and Vassilvitskii 2007); each sample belongs to its
    /// nearest centre.
    #[cfg_attr(feature = "serde", serde(rename = "k-means++"))]
    KMeansPlusPlus,
    /// Random responsibilities.
    #[cfg_attr(feature = "serde", serde(rename = "random"))]
    Random,
    /// Random samples as centres; each sample belongs to its nearest centre.
    #[cfg_attr(feature = "serde", serde(rename = "random_from_data"))]
    RandomFromData,
}

impl InitParams {
    /// All methods.
    pub const ALL: [Self; 4] = [Self::KMeans, Self::KMeansPlusPlus, Self::Random, Self::RandomFromData];

    /// scikit-learn's name of the method.
    pub fn name(self) -> &'static str {
        match self {
            Self::KMeans => "kmeans",
            Self::KMeansPlusPlus => "k-means++",
            Self::Random => "random",
            Self::RandomFromData => "random_from_data",
        }
    }
}

impl std::str::FromStr for InitParams {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|init| init.name() == name);
        let remedy = "use kmeans, k-means++, random or random_from_data";
        known.ok_or_else(|| Error::BadParameter { name: "init_params", value: format!("`{name}`"), remedy })
    }
}

impl std::fmt::Display for InitParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The parameters of a fit, with scikit-learn's names and defaults.
///
/// [`fit`](Self::fit) checks them and fits to an array, to [`Samples`](crate::Samples), or to the
/// samples of an [`Evaluator`](crate::Evaluator). [`check`](Self::check) only checks them, and
/// returns them as [`GaussianMixtureValidParams`].
///
/// ```
/// use gmm_host::{CovarianceType, GaussianMixtureParams};
/// use ndarray::array;
///
/// let x = array![[1.0, 2.0], [1.0, 4.0], [1.0, 0.0], [10.0, 2.0], [10.0, 4.0], [10.0, 0.0]];
/// let fit = GaussianMixtureParams::new(2).covariance_type(CovarianceType::Diag).fit(&x)?;
/// assert!(fit.converged && (fit.mixture.means().column(0).sum() - 11.0).abs() < 1e-9);
/// # Ok::<(), gmm_host::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct GaussianMixtureParams(pub(super) GaussianMixtureValidParams);

/// Parameters of a fit that [`GaussianMixtureParams::check`] has checked.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(remote = "Self", default))]
pub struct GaussianMixtureValidParams {
    pub(super) n_components: usize,
    pub(super) covariance_type: CovarianceType,
    pub(super) tol: f64,
    pub(super) reg_covar: f64,
    pub(super) max_iter: usize,
    pub(super) n_init: usize,
    pub(super) halving: bool,
    pub(super) init_params: InitParams,
    pub(super) weights_init: Option<Array1<f64>>,
    pub(super) means_init: Option<Array2<f64>>,
    pub(super) precisions_init: Option<Covariances>,
    pub(super) random_state: u64,
    pub(super) freeze: Freeze,
    pub(super) prior: Option<MapPrior>,
    pub(super) start: Option<Start>,
    pub(super) device: Device,
}

/// Where a fit begins instead of at what `init_params` finds.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) enum Start<M = Mixture> {
    /// At a mixture, and the lower bound of the last iteration that led to it, if there was one.
    At(Box<M>, Option<f64>),
    /// In the middle of a run; the second fit is the best of the runs before that.
    Resume(Box<(Fit<M>, Option<Fit<M>>)>),
}

impl<M> Start<M> {
    /// All mixtures that the start holds.
    pub fn mixtures(&self) -> impl Iterator<Item = &M> {
        let (mixture, best) = match self {
            Self::At(mixture, _) => (&**mixture, None),
            Self::Resume(fits) => (&fits.0.mixture, fits.1.as_ref()),
        };
        std::iter::once(mixture).chain(best.map(|fit| &fit.mixture))
    }
}

impl Default for GaussianMixtureValidParams {
    fn default() -> Self {
        Self {
            n_components: 1,
            covariance_type: CovarianceType::Full,
            tol: 1e-3,
            reg_covar: 1e-6,
            max_iter: 100,
            n_init: 1,
            halving: false,
            init_params: InitParams::KMeans,
            weights_init: None,
            means_init: None,
            precisions_init: None,
            random_state: 0,
            freeze: Freeze::default(),
            prior: None,
            start: None,
            device: Device::Auto,
        }
    }
}

impl GaussianMixtureParams {
    /// The default parameters for K components.
    pub fn new(n_components: usize) -> Self {
        Self::default().n_components(n_components)
    }

    /// K, at least 1; default 1.
    #[must_use]
    pub fn n_components(mut self, n_components: usize) -> Self {
        self.0.n_components = n_components;
        self
    }

    /// Default [`CovarianceType::Full`].
    #[must_use]
    pub fn covariance_type(mut self, covariance_type: CovarianceType) -> Self {
        self.0.covariance_type = covariance_type;
        self
    }

    /// A fit has converged when an iteration changes the mean log-likelihood by less than this;
    /// default 1e-3. With 0 it goes on to `max_iter`.
    #[must_use]
    pub fn tol(mut self, tol: f64) -> Self {
        self.0.tol = tol;
        self
    }

    /// Added to every variance (the diagonals of matrices), in the data's units squared; default
    /// 1e-6, 0 is legal.
    #[must_use]
    pub fn reg_covar(mut self, reg_covar: f64) -> Self {
        self.0.reg_covar = reg_covar;
        self
    }

    /// Most iterations of one run; default 100. With 0 the result is the start.
    #[must_use]
    pub fn max_iter(mut self, max_iter: usize) -> Self {
        self.0.max_iter = max_iter;
        self
    }

    /// Runs from different starts, of which the best is returned; default 1.
    #[must_use]
    pub fn n_init(mut self, n_init: usize) -> Self {
        self.0.n_init = n_init;
        self
    }

    /// Whether the runs of `n_init` are thinned out by successive halving; default false.
    ///
    /// All runs make 5 iterations, and the half with the lower bounds is dropped; those that are
    /// left go on to 10, 20, 40, … iterations, with the same choice each time, until one is left, or
    /// all have ended. Each run has the bits that it has otherwise. One that begins slowly can be
    /// dropped although it would have been the best, so that the bound can be less than that of all
    /// runs to their end, never more.
    ///
    /// A callback sees the runs in turns, a round of iterations each: the number of an iteration
    /// goes on where the run was left, and [`Iteration::best`](super::Iteration::best) is the best
    /// of the other runs that have begun and are not dropped. That is not enough to
    /// [`resume`](Self::resume) such a fit, which is refused.
    #[must_use]
    pub fn halving(mut self, halving: bool) -> Self {
        self.0.halving = halving;
        self
    }

    /// How to find the start; default [`InitParams::KMeans`].
    ///
    /// Seeding looks at a few thousand samples (more for thousands of components): random ones, and
    /// some that one pass over all draws by their distances, so that rare ones are among them. The
    /// centres are then improved by at most 20 passes of the backend over all samples, and the
    /// start's parameters computed by one more, each as expensive as an EM iteration or two.
    #[must_use]
    pub fn init_params(mut self, init_params: InitParams) -> Self {
        self.0.init_params = init_params;
        self
    }

    /// Initial weights (K,), instead of those that `init_params` finds.
    #[must_use]
    pub fn weights_init(mut self, weights: Array1<f64>) -> Self {
        self.0.weights_init = Some(weights);
        self
    }

    /// Initial means (K, D), instead of those that `init_params` finds.
    #[must_use]
    pub fn means_init(mut self, means: Array2<f64>) -> Self {
        self.0.means_init = Some(means);
        self
    }

    /// Initial precisions (inverse covariances) in the covariance type's shape, instead of what
    /// `init_params` finds.
    #[must_use]
    pub fn precisions_init(mut self, precisions: Covariances) -> Self {
        self.0.precisions_init = Some(precisions);
        self
    }

    /// Seed of every random choice; default 0. Run r of `n_init` uses stream r of the generator
    /// ChaCha8.
    #[must_use]
    pub fn random_state(mut self, seed: u64) -> Self {
        self.0.random_state = seed;
        self
    }

    /// Parameters that stay as the start has them.
    #[must_use]
    pub fn freeze(mut self, freeze: Freeze) -> Self {
        self.0.freeze = freeze;
        self
    }

    /// A prior: the fit finds the mode of the posterior (MAP) instead of the likeliest parameters, and
    /// a component cannot collapse. Lower bounds then are those of the log-likelihood and the logarithm
    /// of the prior's density, up to a constant, over the weight of the samples. Default none.
    ///
    /// ```
    /// use gmm_host::{GaussianMixtureParams, MapPrior};
    /// use ndarray::array;
    ///
    /// // Two rows are equal: without a prior, a component would collapse onto them.
    /// let x = array![[1.0, 2.0], [1.0, 2.0], [7.0, 9.0], [8.0, 7.0], [9.0, 8.0]];
    /// let fit = GaussianMixtureParams::new(2).reg_covar(0.0).prior(MapPrior::default()).fit(&x)?;
    /// assert!(fit.retained.is_empty());
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    #[must_use]
    pub fn prior(mut self, prior: MapPrior) -> Self {
        self.0.prior = Some(prior);
        self
    }

    /// Starts at a mixture, of the same K and covariance type; `n_init` is then ignored.
    #[must_use]
    pub fn start(mut self, mixture: Mixture) -> Self {
        self.0.start = Some(Start::At(Box::new(mixture), None));
        self
    }

    /// scikit-learn's `warm_start`: goes on where an earlier fit stopped. The change of its first
    /// iteration is taken against that fit's last lower bound.
    #[must_use]
    pub fn warm_start(mut self, fit: &Fit) -> Self {
        self.0.start = Some(Start::At(Box::new(fit.mixture.clone()), fit.lower_bounds.last().copied()));
        self
    }

    /// Goes on with a fit that was interrupted, to the same bits as if it had not been: `present`
    /// is the run that it was in and `best` the best run before that, as an
    /// [`Iteration`](super::Iteration) shows them. The iterations and runs that are done count;
    /// those that are left are done.
    #[must_use]
    pub fn resume(mut self, present: Fit, best: Option<Fit>) -> Self {
        self.0.start = Some(Start::Resume(Box::new((present, best))));
        self
    }

    /// Where to compute when the samples come as an array; default [`Device::Auto`]. An
    /// [`Evaluator`](crate::Evaluator) computes on its own device.
    #[must_use]
    pub fn device(mut self, device: Device) -> Self {
        self.0.device = device;
        self
    }

    /// Checks everything that does not need the data.
    ///
    /// # Errors
    /// [`Error::BadParameter`]; [`Error::ShapeMismatch`], [`Error::WrongCovarianceType`],
    /// [`Error::BadComponent`], [`Error::WeightSum`], [`Error::NotSymmetric`],
    /// [`Error::NotPositiveDefinite`] for the initial parameters.
    pub fn check(self) -> Result<GaussianMixtureValidParams> {
        self.checked()?;
        Ok(self.0)
    }

    /// As [`check`](Self::check), by reference.
    pub(crate) fn checked(&self) -> Result<&GaussianMixtureValidParams> {
        self.0.check_numbers()?;
        self.0.check_start()?;
        self.0.check_initial_parameters()?;
        self.0.prior.as_ref().map_or(Ok(()), MapPrior::check)?;
        self.0.freeze.check(self.0.n_components, self.0.covariance_type)?;
        Ok(&self.0)
    }
}

impl GaussianMixtureValidParams {
    pub(super) fn check_numbers(&self) -> Result<()> {
        let bad = |name, value: String, remedy| Err(Error::BadParameter { name, value, remedy });
        let k = self.n_components;
        if k == 0 {
            return bad("n_components", k.to_string(), "at least one component is needed");
        }
        if self.tol.is_nan() || self.tol < 0.0 {
            return bad("tol", self.tol.to_string(), "it must be zero or positive");
        }
        if !(self.reg_covar >= 0.0 && self.reg_covar.is_finite()) {
            return bad("reg_covar", self.reg_covar.to_string(), "it must be zero or positive, and finite");
        }
        if self.n_init == 0 {
            return bad("n_init", "0".into(), "at least one run is needed");
        }
        Ok(())
    }

    /// Refuses to go on in the middle of several runs that are thinned out.
    pub(super) fn check_resumed<M>(&self, start: Option<&Start<M>>) -> Result<()> {
        if self.halving && matches!(start, Some(Start::Resume(_))) {
            return Err(Error::BadParameter {
                name: "halving",
                value: "true, beside a fit to be resumed".into(),
                remedy: "the runs that were dropped are not known any more; resume without halving, or fit anew",
            });
        }
        Ok(())
    }

    /// A given start against K, the covariance type and the other initial parameters.
    fn check_start(&self) -> Result<()> {
        let k = self.n_components;
        self.check_resumed(self.start.as_ref())?;
        for start in self.start.iter().flat_map(Start::mixtures) {
            if self.weights_init.is_some() || self.means_init.is_some() || self.precisions_init.is_some() {
                return Err(Error::BadParameter {
                    name: "start",
                    value: "given beside initial parameters".into(),
                    remedy: "leave out either the start or weights_init, means_init and precisions_init",
                });
            }
            let (k0, d) = start.means().dim();
            let t = self.covariance_type;
            if k0 != k {
                return Err(Error::ShapeMismatch { what: "the start's means", expected: vec![k, d], got: vec![k0, d] });
            }
            start.covariances().check_type("the start's covariances", t, k, d)?;
        }
        Ok(())
    }

    /// Checks each initial parameter that is given, in a mixture whose other parameters are
    /// neutral.
    fn check_initial_parameters(&self) -> Result<()> {
        let k = self.n_components;
        let d = match (&self.means_init, &self.precisions_init) {
            (Some(means), _) => means.ncols(),
            (_, Some(Covariances::Spherical(_)) | None) => 1,
            (_, Some(precisions)) => precisions.shape().last().copied().unwrap_or(1),
        };
        if let Some(means) = self.means_init.as_ref().filter(|means| means.nrows() != k) {
            return Err(Error::ShapeMismatch { what: "means_init", expected: vec![k, d], got: means.shape().to_vec() });
        }
        if let Some(weights) = self.weights_init.as_ref().filter(|weights| weights.len() != k) {
            return Err(Error::ShapeMismatch { what: "weights_init", expected: vec![k], got: vec![weights.len()] });
        }
        if let Some(precisions) = &self.precisions_init {
            precisions.check_type("precisions_init", self.covariance_type, k, d)?;
        }
        if self.weights_init.is_none() && self.means_init.is_none() && self.precisions_init.is_none() {
            return Ok(());
        }
        memory::check("the initial parameters", &[k, d], 3 * size_of::<f64>(), "use fewer components")?;
        let means = self.means_init.clone().unwrap_or_else(|| Array2::zeros((k, d)));
        let weights = self.weights_init.clone().unwrap_or_else(|| Array1::from_elem(k, 1.0 / k as f64));
        let precisions = match &self.precisions_init {
            Some(precisions) => precisions.clone(),
            None => Covariances::isotropic(CovarianceType::Spherical, k, d, 1.0),
        };
        Mixture::from_precisions(weights, means, precisions).map(drop)
    }

    /// The parameters, so that some of them can be changed and all be checked again.
    pub fn into_params(self) -> GaussianMixtureParams {
        GaussianMixtureParams(self)
    }

    /// K.
    pub fn n_components(&self) -> usize {
        self.n_components
    }

    /// The covariance type.
    pub fn covariance_type(&self) -> CovarianceType {
        self.covariance_type
    }

    /// Most iterations of one run.
    pub fn max_iter(&self) -> usize {
        self.max_iter
    }
}

#[cfg(feature = "serde")]
mod serialisation {
    use super::{GaussianMixtureParams, GaussianMixtureValidParams};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

    impl Serialize for GaussianMixtureValidParams {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            // The derived function of this name, which takes the place of a trait's method.
            GaussianMixtureValidParams::serialize(self, serializer)
        }
    }

    impl Serialize for GaussianMixtureParams {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            GaussianMixtureValidParams::serialize(&self.0, serializer)
        }
    }

    impl<'de> Deserialize<'de> for GaussianMixtureParams {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            GaussianMixtureValidParams::deserialize(deserializer).map(Self)
        }
    }

    impl<'de> Deserialize<'de> for GaussianMixtureValidParams {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            GaussianMixtureParams::deserialize(deserializer)?.check().map_err(D::Error::custom)
        }
    }
}
