//! The declaration of a fit's options, and the methods that find a start.
use gmm_core::error::{Error, Result};

/// A method that finds a start, with scikit-learn's names. It looks at a random subset of the samples, or at all if
/// they are few; see [`FitOptions::init_params`](super::FitOptions::init_params).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum InitParams {
    /// k-means++ centres, improved by Lloyd's iterations; each sample belongs to its nearest centre.
    #[default]
    #[cfg_attr(feature = "serde", serde(rename = "kmeans"))]
    KMeans,
    /// k-means++ centres (greedy, Arthur and Vassilvitskii 2007); each sample belongs to its nearest centre.
    #[cfg_attr(feature = "serde", serde(rename = "k-means++"))]
    KMeansPlusPlus,
    /// Random responsibilities.
    #[cfg_attr(feature = "serde", serde(rename = "random"))]
    Random,
    /// Random samples as centres; each sample belongs to its nearest centre.
    #[cfg_attr(feature = "serde", serde(rename = "random_from_data"))]
    RandomFromData,
    /// Groups of a [`Hierarchy`](super::Hierarchy) of [some rows](super::FitOptions::hierarchical_rows), as mclust begins;
    /// with one feature, the ranges between its quantiles.
    #[cfg_attr(feature = "serde", serde(rename = "hierarchical"))]
    Hierarchical,
}

impl InitParams {
    /// All methods.
    pub const ALL: [Self; 5] =
        [Self::KMeans, Self::KMeansPlusPlus, Self::Random, Self::RandomFromData, Self::Hierarchical];

    /// Returns scikit-learn's name of the method.
    pub fn name(self) -> &'static str {
        match self {
            Self::KMeans => "kmeans",
            Self::KMeansPlusPlus => "k-means++",
            Self::Random => "random",
            Self::RandomFromData => "random_from_data",
            Self::Hierarchical => "hierarchical",
        }
    }
}

impl std::str::FromStr for InitParams {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|init| init.name() == name);
        let remedy = "use kmeans, k-means++, random, random_from_data or hierarchical";
        known.ok_or_else(|| Error::BadParameter { name: "init_params", value: format!("`{name}`"), remedy })
    }
}

impl std::fmt::Display for InitParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Declares options, each once: a field of a struct, its default, and the method of [`Fitting`] that sets it.
///
/// `arguments` are a command's arguments too, `fields` are not; the methods of `converted` ones take what converts to
/// them. `optional` ones may be absent and say so themselves.
macro_rules! options {
    (
        $(#[$about:meta])*
        pub struct $name:ident of $fitting:ident at $place:expr, for impl[$($generic:tt)*] $target:ty;
        arguments { $($(#[$of_argument:meta])* $argument:ident: $argument_type:ty = $of_argument_by_default:expr,)* }
        fields { $($(#[$of_field:meta])* $field:ident: $field_type:ty = $of_field_by_default:expr,)* }
        converted { $($(#[$of_converted:meta])* $converted:ident: $converted_type:ty = $of_converted_by_default:expr,)* }
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
            $(
                $(#[$of_converted])*
                #[cfg_attr(feature = "clap", arg(skip = { let value: $converted_type = $of_converted_by_default; value }))]
                pub $converted: $converted_type,
            )*
            $($(#[$of_optional])* pub $optional: Option<$optional_type>,)*
        }

        impl $name {
            /// The names of the options.
            pub const NAMES: &[&str] =
                &[$(stringify!($argument),)* $(stringify!($field),)* $(stringify!($converted),)* $(stringify!($optional),)*];
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($argument: $of_argument_by_default,)*
                    $($field: $of_field_by_default,)*
                    $($converted: $of_converted_by_default,)*
                    $($optional: None,)*
                }
            }
        }

        impl $($generic)* $target {
            $(
                #[doc = concat!("Sets [the option](field@", stringify!($name), "::", stringify!($argument), ").")]
                #[must_use]
                pub fn $argument(self, $argument: $argument_type) -> Self {
                    let mut $fitting = self;
                    $place.$argument = $argument;
                    $fitting
                }
            )*
            $(
                #[doc = concat!("Sets [the option](field@", stringify!($name), "::", stringify!($field), ").")]
                #[must_use]
                pub fn $field(self, $field: $field_type) -> Self {
                    let mut $fitting = self;
                    $place.$field = $field;
                    $fitting
                }
            )*
            $(
                #[doc = concat!("Sets [the option](field@", stringify!($name), "::", stringify!($converted), ").")]
                #[must_use]
                pub fn $converted(self, $converted: impl Into<$converted_type>) -> Self {
                    let mut $fitting = self;
                    $place.$converted = $converted.into();
                    $fitting
                }
            )*
            $(
                #[doc = concat!("Sets [the option](field@", stringify!($name), "::", stringify!($optional), ").")]
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
