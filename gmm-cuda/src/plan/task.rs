//! A task: an operation and everything that the choice of its kernels depends on; and the shape of a launch.
use crate::device::samples::DeviceSamples;
use gmm_core::model::covariances::CovarianceType;
use gmm_core::model::mixture::Mixture;
use std::fmt;

/// The multiply-adds of an E-step of about 0.1 ms on a large device. For shorter ones timing costs more than it saves.
const LONG_ESTEP: usize = 2_000_000_000;

/// The result computed over the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The total log-likelihood for one parameter set.
    Total,
    /// The totals for several parameter sets, in one read of the data.
    Totals,
    /// The log-likelihood of each sample.
    Scores,
    /// Log-likelihood and sufficient statistics.
    EStep,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Total => "total",
            Self::Totals => "totals",
            Self::Scores => "scores",
            Self::EStep => "estep",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Covariance {
    /// Types `diag` and `spherical`.
    Diagonal,
    Full,
    Tied,
    /// Type `tied`, of whose exponents only the linear terms are computed for each sample and component: the quadratic
    /// ones are the same for all components, and their sum follows from moments that do not depend on the mixture.
    TiedLinear,
}

/// The factors that the tensor cores can multiply without a noticeable loss of digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Digits {
    /// Features and their products, which expand squares in exponents (E-step) or in differences of these (many
    /// totals).
    Expandable,
    /// Features, with the triangles of matrices (E-step).
    Whitenable,
    Neither,
}

/// An operation in float32, with everything that the choice of kernel and launch depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Task {
    pub operation: Operation,
    pub n: usize,
    pub k: usize,
    pub d: usize,
    pub covariance: Covariance,
    /// Whether each component's moments are around its own centre, not the data's (E-step).
    pub central: bool,
    pub digits: Digits,
    pub weighted: bool,
    /// Whether values are missing; then covariances are diagonal.
    pub gaps: bool,
}

impl fmt::Display for Task {
    /// Writes the size class: everything that the choice depends on, with N to the power of ten.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = self.operation;
        let shape = match self.covariance {
            Covariance::Diagonal => "diag",
            Covariance::Full => "full",
            Covariance::Tied => "tied",
            Covariance::TiedLinear => "tied linear",
        };
        write!(f, "{operation} n=1e{} k={} d={} {shape}", self.n.ilog10(), self.k, self.d)?;
        f.write_str(if self.central { " central" } else { "" })?;
        f.write_str(match self.digits {
            Digits::Expandable => " expandable",
            Digits::Whitenable => " whitenable",
            Digits::Neither => "",
        })?;
        f.write_str(if self.weighted { " weighted" } else { "" })?;
        f.write_str(if self.gaps { " gaps" } else { "" })
    }
}

impl Task {
    /// Returns the task of an operation over mixtures like this one, before [`Digits`] are known.
    pub fn new(operation: Operation, data: &DeviceSamples<f32>, mixture: &Mixture) -> Self {
        let (k, d) = mixture.means().dim();
        Self {
            operation,
            n: data.chunk_size(),
            k,
            d,
            covariance: match mixture.covariance_type() {
                CovarianceType::Full => Covariance::Full,
                CovarianceType::Tied => Covariance::Tied,
                CovarianceType::Diag | CovarianceType::Spherical => Covariance::Diagonal,
            },
            central: false,
            digits: Digits::Neither,
            // A sample's score does not depend on its weight.
            weighted: data.weighted() && operation != Operation::Scores,
            gaps: data.gaps(),
        }
    }

    /// Returns whether exponents are computed with matrices.
    pub fn full(&self) -> bool {
        matches!(self.covariance, Covariance::Full | Covariance::Tied)
    }

    pub fn is_linear(&self) -> bool {
        self.covariance == Covariance::TiedLinear
    }

    pub fn is_expandable(&self) -> bool {
        self.digits == Digits::Expandable
    }

    /// Returns whether an E-step takes so long that its shapes are worth timing.
    pub fn is_long(&self) -> bool {
        let pairs = if self.full() { self.d * self.d } else { 4 * self.d };
        self.n.saturating_mul(self.k).saturating_mul(pairs) >= LONG_ESTEP
    }
}

/// The shape of a launch. A family offers several if its time depends on the shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// A second division (lanes, tiles, warps), documented by each family; one if unused.
    pub split: u32,
    pub block: u32,
    /// The most blocks of the grid for each multiprocessor.
    pub per_multiprocessor: u32,
}

impl Shape {
    pub const fn new(split: u32, block: u32, per_multiprocessor: u32) -> Self {
        Self { split, block, per_multiprocessor }
    }
}

/// The factor by which the tensor cores multiply a mixture's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Multiplies {
    Features,
    Products,
}
