//! The options of a fit that EM and variational inference share. Each is declared here, once.
use super::fitting::{Fitting, Method};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::freeze::Freeze;
use crate::model::covariances::CovarianceType;

/// How a fit finds its start, with scikit-learn's names. A method looks at a random subset of the
/// samples (at all, if they are few); see [`FitOptions::init_params`].
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

/// Declares options, each once: a field of a struct, its default, and the method of [`Fitting`] that
/// sets it.
///
/// `arguments` are arguments of a command too, `fields` are not, and `optional` ones need not be
/// given; these say by themselves whether they are arguments.
macro_rules! options {
    (
        $(#[$about:meta])*
        pub struct $name:ident of $fitting:ident at $place:expr, for impl[$($generic:tt)*] $target:ty;
        arguments { $($(#[$of_argument:meta])* $argument:ident: $argument_type:ty = $of_argument_by_default:expr,)* }
        fields { $($(#[$of_field:meta])* $field:ident: $field_type:ty = $of_field_by_default:expr,)* }
        optional { $($(#[$of_optional:meta])* $optional:ident: $optional_type:ty,)* }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
        #[cfg_attr(feature = "clap", derive(clap::Args))]
        #[non_exhaustive]
        pub struct $name {
            $(
                $(#[$of_argument])*
                #[cfg_attr(feature = "clap", arg(default_value_t = $of_argument_by_default))]
                pub $argument: $argument_type,
            )*
            $(
                $(#[$of_field])*
                #[cfg_attr(feature = "clap", arg(skip = { let value: $field_type = $of_field_by_default; value }))]
                pub $field: $field_type,
            )*
            $($(#[$of_optional])* pub $optional: Option<$optional_type>,)*
        }

        impl $name {
            /// The names of the options.
            pub const NAMES: &[&str] =
                &[$(stringify!($argument),)* $(stringify!($field),)* $(stringify!($optional),)*];
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($argument: $of_argument_by_default,)*
                    $($field: $of_field_by_default,)*
                    $($optional: None,)*
                }
            }
        }

        impl $($generic)* $target {
            $(
                #[doc = concat!("Sets [`", stringify!($name), "::", stringify!($argument), "`].")]
                #[must_use]
                pub fn $argument(self, $argument: $argument_type) -> Self {
                    let mut $fitting = self;
                    $place.$argument = $argument;
                    $fitting
                }
            )*
            $(
                #[doc = concat!("Sets [`", stringify!($name), "::", stringify!($field), "`].")]
                #[must_use]
                pub fn $field(self, $field: $field_type) -> Self {
                    let mut $fitting = self;
                    $place.$field = $field;
                    $fitting
                }
            )*
            $(
                #[doc = concat!("Sets [`", stringify!($name), "::", stringify!($optional), "`].")]
                #[must_use]
                pub fn $optional(self, $optional: impl Into<Option<$optional_type>>) -> Self {
                    let mut $fitting = self;
                    $place.$optional = $optional.into();
                    $fitting
                }
            )*
        }
    };
}
pub(super) use options;

options! {
    /// The options that all fits have, with scikit-learn's names and defaults.
    pub struct FitOptions of fitting at fitting.options, for impl[<M: Method>] Fitting<M>;
    arguments {
        /// A fit has converged when an iteration changes the lower bound by less than this: the mean
        /// log-likelihood of a sample, or by variational inference the bound of all samples. With 0 a
        /// run makes all its iterations.
        #[cfg_attr(feature = "clap", arg(long, allow_negative_numbers = true))]
        tol: f64 = 1e-3,
        /// The most iterations of a run. With 0 the result is the start.
        #[cfg_attr(feature = "clap", arg(long, value_name = "N", value_parser = crate::count::whole_number_or_0))]
        max_iter: usize = 100,
        /// The number added to every variance (to the diagonals of matrices), in squared units of the
        /// data; of standard deviations, where columns are standardized.
        #[cfg_attr(feature = "clap", arg(long, value_name = "VARIANCE", allow_negative_numbers = true))]
        reg_covar: f64 = 1e-6,
        /// The number of runs from different starts; the best of them is the result.
        #[cfg_attr(feature = "clap", arg(long, value_name = "RUNS", value_parser = crate::count::whole_number))]
        n_init: usize = 1,
        /// Drop poor runs early: all make 5 iterations, and the half with the lower bounds is dropped;
        /// the others go on to 10, 20, 40, … iterations, until one is left or all have ended.
        ///
        /// Successive halving takes about half of the iterations. Each run has the bits that it has
        /// otherwise. A run that begins slowly can be dropped although it would have been the best, so
        /// that the bound can be lower than that of all runs, never higher. A callback sees the runs in
        /// turns, and such a fit cannot be resumed.
        #[cfg_attr(feature = "clap", arg(long))]
        halving: bool = false,
        /// The method that finds a start: kmeans, k-means++, random or random_from_data.
        ///
        /// Seeding looks at a few thousand samples (more for thousands of components): random ones, and
        /// some that one pass over all draws by their distances, so that rare ones are among them. The
        /// centres are then improved by at most 20 passes over all samples, and the start's parameters
        /// computed by one more, each as expensive as an EM iteration or two.
        #[cfg_attr(feature = "clap", arg(long, value_name = "METHOD"))]
        init_params: InitParams = InitParams::KMeans,
        /// The seed of every random choice. Run r of a fit uses stream r of the generator ChaCha8.
        #[cfg_attr(feature = "clap", arg(long, visible_alias = "seed", value_name = "SEED"))]
        random_state: u64 = 0,
    }
    fields {
        /// The number of components K, at least 1.
        n_components: usize = 1,
        /// The shape of the covariances.
        covariance_type: CovarianceType = CovarianceType::Full,
        /// The parameters that stay as the start has them. Variational inference freezes a part of the
        /// posterior of all components: the distribution of the weights, that of the means given the
        /// precisions (m and β), that of the precisions (W and ν). Lower bounds never fall with it either.
        freeze: Freeze = Freeze::default(),
        /// Where a fit computes whose samples come as an array. An [`Evaluator`](crate::Evaluator)
        /// computes on its own device.
        device: Device = Device::Auto,
    }
    optional {}
}

impl FitOptions {
    /// Checks the numbers.
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
            return bad("n_init", "0".into(), "at least one run is needed");
        }
        Ok(())
    }
}
