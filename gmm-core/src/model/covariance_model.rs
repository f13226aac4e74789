//! The models of covariances: the parts of volume, shape and orientation that components share.
use super::covariances::CovarianceType;
use crate::error::{Error, Result};

/// A model of the covariances Σₖ = λₖ·Dₖ·Aₖ·Dₖᵀ with |Aₖ| = 1, by the names of mclust (Celeux and
/// Govaert 1995): a letter for the volume λ, the shape A (axis lengths) and the orientation D. A part
/// is E, equal for all components, V, variable, or I: spheres have the shape I, and ellipsoids along
/// the axes the orientation I.
///
/// scikit-learn's names of four of the models are `full` (VVV), `tied` (EEE), `diag` (VVI) and
/// `spherical` (VII).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "String", into = "&'static str")
)]
pub enum CovarianceModel {
    /// Spheres of one volume.
    EII,
    /// Spheres.
    VII,
    /// One ellipsoid along the axes, for all components.
    EEI,
    /// Ellipsoids along the axes, of one shape.
    VEI,
    /// Ellipsoids along the axes, of one volume.
    EVI,
    /// Ellipsoids along the axes.
    VVI,
    /// One ellipsoid for all components.
    EEE,
    /// Ellipsoids of one shape and orientation.
    VEE,
    /// Ellipsoids of one volume and orientation.
    EVE,
    /// Ellipsoids of one orientation.
    VVE,
    /// Ellipsoids of one volume and shape.
    EEV,
    /// Ellipsoids of one shape.
    VEV,
    /// Ellipsoids of one volume.
    EVV,
    /// Ellipsoids.
    VVV,
}

use CovarianceModel::*;

impl CovarianceModel {
    /// All models, the narrowest first.
    pub const ALL: [Self; 14] = [EII, VII, EEI, VEI, EVI, VVI, EEE, VEE, EVE, VVE, EEV, VEV, EVV, VVV];

    /// Returns the models of a name: one, or [`ALL`](Self::ALL) of `all`.
    ///
    /// # Errors
    /// [`Error::UnknownCovarianceType`].
    pub fn several(name: &str) -> Result<Vec<Self>> {
        if name == "all" { Ok(Self::ALL.into()) } else { Ok(vec![name.parse()?]) }
    }

    /// Returns scikit-learn's name, if it has one, or mclust's.
    pub fn name(self) -> &'static str {
        match self {
            EII => "EII",
            EEI => "EEI",
            VEI => "VEI",
            EVI => "EVI",
            VEE => "VEE",
            EVE => "EVE",
            VVE => "VVE",
            EEV => "EEV",
            VEV => "VEV",
            EVV => "EVV",
            VII | VVI | EEE | VVV => self.form().name(),
        }
    }

    /// Returns mclust's name.
    pub fn mclust_name(self) -> &'static str {
        match self {
            VII => "VII",
            VVI => "VVI",
            EEE => "EEE",
            VVV => "VVV",
            other => other.name(),
        }
    }

    /// Returns the type of the arrays that hold such covariances, and of the kernels that evaluate them.
    pub fn form(self) -> CovarianceType {
        match self {
            EII | VII => CovarianceType::Spherical,
            EEI | VEI | EVI | VVI => CovarianceType::Diag,
            EEE => CovarianceType::Tied,
            VEE | EVE | VVE | EEV | VEV | EVV | VVV => CovarianceType::Full,
        }
    }

    /// Returns whether an M-step takes the covariances of its form as they are.
    pub fn is_plain(self) -> bool {
        self == Self::from(self.form())
    }

    /// Returns whether a component's covariance depends on the samples of others.
    pub fn shares(self) -> bool {
        !matches!(self, VII | VVI | VVV)
    }

    /// Returns whether a unit for each column breaks what rotated components share.
    pub fn needs_one_unit(self) -> bool {
        matches!(self, EVE | VVE | EEV | VEV)
    }

    /// Returns whether all components have the same axes, which their covariances alone do not name.
    pub fn has_common_axes(self) -> bool {
        matches!(self, EEE | VEE | EVE | VVE)
    }

    /// Returns the number of free parameters of the covariances of K components over D features.
    pub fn n_parameters(self, k: usize, d: usize) -> usize {
        let [volume, shape, orientation] = self.mclust_name().as_bytes() else {
            unreachable!("names have three letters")
        };
        let times = |letter: &u8, numbers: usize| match letter {
            b'E' => numbers,
            b'V' => k * numbers,
            _ => 0,
        };
        times(volume, 1) + times(shape, d - 1) + times(orientation, d * (d - 1) / 2)
    }
}

impl From<CovarianceType> for CovarianceModel {
    /// Returns the least constrained model of a form.
    fn from(form: CovarianceType) -> Self {
        match form {
            CovarianceType::Full => VVV,
            CovarianceType::Tied => EEE,
            CovarianceType::Diag => VVI,
            CovarianceType::Spherical => VII,
        }
    }
}

impl std::str::FromStr for CovarianceModel {
    type Err = Error;

    /// Parses a name of scikit-learn or of mclust; also `tied-diagonal` (EEI) and `tied-spherical` (EII).
    fn from_str(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|model| [model.name(), model.mclust_name()].contains(&name));
        known
            .or(match name {
                "tied-diagonal" => Some(EEI),
                "tied-spherical" => Some(EII),
                _ => None,
            })
            .ok_or_else(|| Error::UnknownCovarianceType { name: name.into() })
    }
}

impl TryFrom<String> for CovarianceModel {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        name.parse()
    }
}

impl From<CovarianceModel> for &'static str {
    fn from(model: CovarianceModel) -> Self {
        model.name()
    }
}

impl std::fmt::Display for CovarianceModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
