//! A fit by any method: its options, its start, and the check of both.
use super::options::{InitParams, options};
use super::outcome::Fit;
use super::regularization::Regularized;
use super::standard::{Standardizable, Standardization};
use crate::device::names::Device;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::error::{Error, Result};
use gmm_core::model::covariance_model::CovarianceModel;
use gmm_core::model::covariances::CovarianceType;
use gmm_core::model::mixture::Mixture;
use gmm_core::reproducible::Reproducible;
use gmm_core::statistics::Statistics;
use gmm_core::statistics::freeze::Freeze;
use std::fmt::Debug;
use std::ops::Deref;

options! {
    /// The options that all fits have, with scikit-learn's names and defaults.
    pub struct FitOptions of fitting at fitting.options, for impl[<M: Method>] Fitting<M>;
    arguments {
        /// A fit has converged when an iteration changes the lower bound by less than this: for EM the mean
        /// log-likelihood, for variational inference the bound of all samples. With 0 a run makes all its iterations.
        #[cfg_attr(feature = "clap", arg(long, allow_negative_numbers = true))]
        tol: f64 = 1e-3,
        /// The most iterations of a run. With 0 the result is the start.
        #[cfg_attr(feature = "clap", arg(long, value_name = "N", value_parser = crate::count::whole_number_or_0))]
        max_iter: usize = 100,
        /// The number added to every variance (to the diagonals of matrices), in squared units of the data; in units of
        /// standard deviations if columns are standardized.
        #[cfg_attr(feature = "clap", arg(long, value_name = "VARIANCE", allow_negative_numbers = true))]
        reg_covar: f64 = 1e-6,
        /// The number of runs from different starts. The best run is the result.
        #[cfg_attr(feature = "clap", arg(long, value_name = "RUNS", value_parser = crate::count::whole_number))]
        n_init: usize = 1,
        /// Drop poor runs early: all runs make 5 iterations, then the half with the lower bounds is dropped; the rest
        /// go on to 10, 20, 40, … iterations, until one run is left or all have ended.
        ///
        /// This takes about half of the iterations. Each run computes the same bits as without it. A run that begins
        /// slowly may be dropped although it would have become the best: the final bound can be lower than without
        /// halving, never higher. The callback sees the runs in turns, and the fit cannot be resumed.
        #[cfg_attr(feature = "clap", arg(long))]
        halving: bool = false,
        /// The method that finds a start: kmeans, k-means++, random, random_from_data or hierarchical.
        ///
        /// Seeding looks at a few thousand samples (more for thousands of components): random ones, and some that one
        /// pass over all samples draws by distance, so that rare samples are among them. At most 20 passes over all
        /// samples improve the centres, and one computes the start's parameters, each as long as an EM iteration or
        /// two.
        #[cfg_attr(feature = "clap", arg(long, value_name = "METHOD"))]
        init_params: InitParams = InitParams::KMeans,
        /// The most rows that a hierarchical start merges: random ones, if there are more.
        #[cfg_attr(feature = "clap", arg(long, value_name = "ROWS", value_parser = crate::count::whole_number))]
        hierarchical_rows: usize = 2000,
        /// The seed of every random choice. Run r of a fit uses stream r of the generator ChaCha8.
        #[cfg_attr(feature = "clap", arg(long, visible_alias = "seed", value_name = "SEED"))]
        random_state: u64 = 0,
    }
    fields {
        /// The number of components K, at least 1.
        n_components: usize = 1,
        /// The parameters that keep their starting values. Variational inference freezes parts of the posterior of all
        /// components: the distribution of the weights, of the means given the precisions (m and β), of the precisions
        /// (W and ν). Lower bounds never fall when parameters are frozen (but those of VVE).
        freeze: Freeze = Freeze::default(),
        /// The device for samples given as an array. An [`Evaluator`](crate::Evaluator) computes on its own device.
        device: Device = Device::Auto,
        /// Whether the fit runs under [`Reproducible`], with the same bits on every CPU. An evaluator
        /// made without it is refused. Whatever makes a start must run under it too, and what evaluates the result.
        reproducible: bool = false,
    }
    converted {
        /// The model of the covariances: full, tied, diag, spherical, or one of mclust's, such as VEV.
        covariance_type: CovarianceModel = CovarianceModel::VVV,
    }
    optional {}
}

impl FitOptions {
    /// Turns the switch on, if the options ask for it; a fit holds it while it runs.
    pub(super) fn begin(&self) -> Option<Reproducible> {
        self.reproducible.then(Reproducible::begin)
    }

    pub(super) fn check(&self) -> Result<()> {
        let bad = |name, value: String, remedy| Err(Error::BadParameter { name, value, remedy });
        if self.n_components == 0 {
            return bad("n_components", "0".into(), "at least one component is needed");
        }
        if self.tol.is_nan() || self.tol < 0.0 {
            return bad("tol", self.tol.to_string(), "it must be zero or positive");
        }
        if !(self.reg_covar >= 0.0 && self.reg_covar.is_finite()) {
            return bad("reg_covar", self.reg_covar.to_string(), "it must be zero or positive, and finite");
        }
        if self.n_init == 0 {
            return Err(no_runs());
        }
        let eigenvectors = !self.covariance_type.is_plain() || self.init_params == InitParams::Hierarchical;
        if self.reproducible && eigenvectors {
            let value = format!("{} from a {} start", self.covariance_type, self.init_params);
            let remedy =
                "a reproducible fit takes full, tied, diag and spherical covariances, and no hierarchical start";
            return bad("reproducible", value, remedy);
        }
        Ok(())
    }
}

pub(super) fn no_runs() -> Error {
    Error::BadParameter { name: "n_init", value: "0".into(), remedy: "at least one run is needed" }
}

/// A method of fitting, with its own options: [`Em`](super::Em) or [`Variational`](super::Variational).
pub trait Method: steps::Steps {}

impl<M: steps::Steps> Method for M {}

/// The result of a fit: a [`Mixture`], or the posterior of one.
pub trait FittedModel: Standardizable + Regularized + Debug + Send + Sync + 'static {
    /// Returns the mixture whose density, times a constant factor, is the density of samples under this model.
    fn density(&self) -> &Mixture;

    /// Returns the logarithm of that factor.
    fn log_factor(&self) -> f64;
}

impl FittedModel for Mixture {
    fn density(&self) -> &Mixture {
        self
    }

    fn log_factor(&self) -> f64 {
        0.0
    }
}

pub(super) mod steps {
    use super::*;

    /// The result of an iteration.
    pub struct Iterated<M> {
        pub mixture: M,
        pub lower_bound: f64,
        pub retained: Vec<usize>,
    }

    /// The steps by which methods differ. Only this crate implements them.
    pub trait Steps: Clone + Debug + Default + Send + Sync + 'static {
        /// The model that an iteration improves.
        type Model: FittedModel;
        /// The prior; missing parts follow from the samples.
        type Prior: Send + Sync;

        /// Checks everything that does not need the data.
        fn check(&self, options: &FitOptions, has_start: bool) -> Result<()>;

        /// Checks the parameters against the data's D.
        fn check_features(&self, options: &FitOptions, d: usize) -> Result<()>;

        /// Converts the method's options to standardised units.
        fn standardized(self, options: &FitOptions, standard: &Standardization) -> Result<Self>;

        fn prior(&self, options: &FitOptions, evaluator: &mut dyn Evaluator) -> Result<Self::Prior>;

        /// Finds a start with the random numbers of this seed and stream. `check` may end it before a pass over all
        /// samples.
        fn find(
            &self,
            options: &FitOptions,
            prior: &Self::Prior,
            evaluator: &mut dyn Evaluator,
            seed: (u64, u64),
            check: &mut dyn FnMut() -> Result<()>,
        ) -> Result<Self::Model>;

        /// Returns the start that the M-step makes of statistics.
        fn of_statistics(
            &self,
            options: &FitOptions,
            prior: &Self::Prior,
            statistics: &Statistics,
        ) -> Result<Self::Model>;

        /// Turns a start given by the caller into the model of the first iteration.
        fn begin_at(&self, options: &FitOptions, prior: &Self::Prior, given: Self::Model) -> Result<Self::Model>;

        /// Makes an E-step and an M-step.
        fn iterate(
            &self,
            options: &FitOptions,
            prior: &Self::Prior,
            evaluator: &mut dyn Evaluator,
            model: &Self::Model,
        ) -> Result<Iterated<Self::Model>>;

        /// Returns whether a GPU can make whole runs of this method.
        fn is_plain(&self) -> bool;

        /// Returns the model of a mixture that a GPU has found, or `None` if GPUs make no runs of this method.
        fn of_mixture(mixture: Mixture) -> Option<Self::Model>;
    }
}

/// A fit that has not been checked yet: its options, with scikit-learn's names and defaults, and its start.
///
/// [`fit`](Self::fit) checks them and fits to an array, to [`Samples`](crate::Samples), or to the samples of an
/// [`Evaluator`]. [`check`](Self::check) only checks them.
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
#[derive(Debug, Clone)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(bound(
        serialize = "M: serde::Serialize, M::Model: serde::Serialize",
        deserialize = "M: serde::Deserialize<'de>, M::Model: serde::Deserialize<'de>"
    ))
)]
#[non_exhaustive]
pub struct Fitting<M: Method> {
    /// The options that all fits have.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub options: FitOptions,
    /// The options of the method.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub method: M,
    #[cfg_attr(feature = "serde", serde(default = "none", skip_serializing_if = "Option::is_none"))]
    pub(super) start: Option<Start<M::Model>>,
}

#[cfg(feature = "serde")]
fn none<T>() -> Option<T> {
    None
}

/// A fit that [`Fitting::check`] has checked.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(transparent))]
#[repr(transparent)]
pub struct Checked<F>(pub(super) F);

impl<F> Checked<F> {
    /// Returns the fit, so that its options can be changed and checked again.
    pub fn into_inner(self) -> F {
        self.0
    }
}

impl<F> Deref for Checked<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.0
    }
}

#[cfg(feature = "serde")]
impl<'de, M: Method + serde::Deserialize<'de>> serde::Deserialize<'de> for Checked<Fitting<M>>
where
    M::Model: serde::Deserialize<'de>,
{
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Fitting::deserialize(deserializer)?.check().map_err(serde::de::Error::custom)
    }
}

/// A start that replaces the one that `init_params` finds.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) enum Start<M> {
    /// A model, with the lower bound of the last iteration that led to it, if any.
    At(Box<M>, Option<f64>),
    #[cfg_attr(feature = "serde", serde(skip))]
    Statistics(Box<Statistics>),
    /// The middle of a run, and the best of the runs before it.
    Resume(Box<(Fit<M>, Option<Fit<M>>)>),
}

/// K, D and a covariance type.
pub(super) type Shape = (usize, usize, CovarianceType);

pub(super) fn shape_of(model: &impl FittedModel) -> Shape {
    let density = model.density();
    (density.n_gaussians(), density.n_features(), density.covariance_model().form())
}

pub(super) fn shape_of_statistics(statistics: &Statistics) -> Shape {
    let (k, d) = statistics.means().dim();
    (k, d, statistics.covariance_type())
}

impl<M: FittedModel> Start<M> {
    fn shapes(&self) -> impl Iterator<Item = Shape> {
        let (first, second) = match self {
            Self::At(model, _) => (shape_of(&**model), None),
            Self::Statistics(statistics) => (shape_of_statistics(statistics), None),
            Self::Resume(fits) => (shape_of(&fits.0.mixture), fits.1.as_ref().map(|fit| shape_of(&fit.mixture))),
        };
        std::iter::once(first).chain(second)
    }
}

impl<M: Method> Default for Fitting<M> {
    fn default() -> Self {
        Self { options: FitOptions::default(), method: M::default(), start: None }
    }
}

impl<M: Method> From<(FitOptions, M)> for Fitting<M> {
    fn from((options, method): (FitOptions, M)) -> Self {
        Self { options, method, start: None }
    }
}

impl<M: Method> Fitting<M> {
    /// Returns the default options for K components.
    pub fn new(n_components: usize) -> Self {
        Self::default().n_components(n_components)
    }

    /// Starts at a model of the same K and covariance type, and ignores `n_init`. The prior is that of these options.
    #[must_use]
    pub fn start(mut self, model: M::Model) -> Self {
        self.start = Some(Start::At(Box::new(model), None));
        self
    }

    /// Starts at the M-step of statistics, for example of clusters found by another method, and ignores `n_init`.
    #[must_use]
    pub fn start_statistics(mut self, statistics: Statistics) -> Self {
        self.start = Some(Start::Statistics(Box::new(statistics)));
        self
    }

    /// Continues an earlier fit (scikit-learn's `warm_start`): the first change is taken against its last lower bound.
    #[must_use]
    pub fn warm_start(mut self, fit: &Fit<M::Model>) -> Self {
        self.start = Some(Start::At(Box::new(fit.mixture.clone()), fit.lower_bounds.last().copied()));
        self
    }

    /// Resumes an interrupted fit, with the bits of an uninterrupted one. `present` is the interrupted run and `best`
    /// the best run before it, as in an [`Iteration`](super::Iteration). Iterations and runs already made count.
    #[must_use]
    pub fn resume(mut self, present: Fit<M::Model>, best: Option<Fit<M::Model>>) -> Self {
        self.start = Some(Start::Resume(Box::new((present, best))));
        self
    }

    /// Converts the fit to standardised samples. Its priors are in the samples' units; missing parts of them follow
    /// from the standardised samples.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] for another D; [`Error::WrongCovarianceType`] if a `spherical` prior covariance is not
    /// spherical in standardised units; [`Error::BadParameter`] for a model whose shared parts a unit for each column
    /// breaks.
    pub fn standardized(mut self, standard: &Standardization) -> Result<Self> {
        let model = self.options.covariance_type;
        if model.needs_one_unit() && !standard.is_isotropic() {
            let remedy =
                "standardised columns do not keep what its components share; use full, or one scale for all columns";
            return Err(Error::BadParameter { name: "covariance_type", value: model.name().into(), remedy });
        }
        self.method = self.method.standardized(&self.options, standard)?;
        Ok(self)
    }

    /// Checks everything that does not need the data.
    ///
    /// # Errors
    /// [`Error::BadParameter`]; [`Error::ShapeMismatch`], [`Error::WrongCovarianceType`],
    /// [`Error::BadComponent`], [`Error::WeightSum`], [`Error::NotSymmetric`],
    /// [`Error::NotPositiveDefinite`] for initial parameters, priors and the start.
    pub fn check(self) -> Result<Checked<Self>> {
        self.checked()?;
        Ok(Checked(self))
    }

    /// Checks as [`check`](Self::check), by reference.
    pub(crate) fn checked(&self) -> Result<&Checked<Self>> {
        self.options.check()?;
        self.check_start()?;
        self.method.check(&self.options, self.start.is_some())?;
        // SAFETY: `Checked` has the layout of its only field.
        Ok(unsafe { &*std::ptr::from_ref(self).cast::<Checked<Self>>() })
    }

    fn check_start(&self) -> Result<()> {
        let Some(start) = &self.start else { return Ok(()) };
        if self.options.halving && matches!(start, Start::Resume(_)) {
            return Err(Error::BadParameter {
                name: "halving",
                value: "true in a resumed fit".into(),
                remedy: "the dropped runs are lost; resume without halving, or fit anew",
            });
        }
        start.shapes().try_for_each(|shape| self.check_shape(shape))
    }

    /// Checks the shape of a start against K and the covariance type.
    pub(super) fn check_shape(&self, (of_start, d, got): Shape) -> Result<()> {
        let FitOptions { n_components: k, covariance_type, .. } = self.options;
        if of_start != k {
            let (expected, got) = (vec![k, d], vec![of_start, d]);
            return Err(Error::ShapeMismatch { what: "the start's means", expected, got });
        }
        if got != covariance_type.form() {
            let (what, expected) = ("the start's covariances", covariance_type.form().name());
            return Err(Error::WrongCovarianceType { what, expected, got: got.name() });
        }
        Ok(())
    }

    /// Checks the shape of a start against the data's D.
    pub(super) fn check_n_features(&self, (k, of_start, _): Shape, d: usize) -> Result<()> {
        if of_start != d {
            let what = "the start's means (against the data's columns)";
            return Err(Error::ShapeMismatch { what, expected: vec![k, d], got: vec![k, of_start] });
        }
        Ok(())
    }

    /// Checks the start and the parameters against the data's D.
    pub(super) fn check_features(&self, d: usize) -> Result<()> {
        self.start.iter().flat_map(Start::shapes).try_for_each(|shape| self.check_n_features(shape, d))?;
        self.method.check_features(&self.options, d)
    }
}
