//! A task: an operation, with all that the choice of its kernels depends on; and the shape of a
//! launch.
use crate::precision::Precision;
use std::fmt;

/// Multiply-adds of an E-step that takes about 0.1 ms on a large device. For a shorter one, timing
/// several shapes costs more than the best of them saves.
const LONG_ESTEP: usize = 2_000_000_000;

/// What is computed over the samples.
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

/// An operation, with all that the choice of its kernel and launch depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Task {
    pub operation: Operation,
    /// Samples of a launch.
    pub n: usize,
    pub k: usize,
    pub d: usize,
    /// Whether the covariances are matrices (`full`, `tied`); else they are diagonal (`diag`,
    /// `spherical`), or the task is [linear](Self::is_linear).
    pub full: bool,
    /// Whether the components have one matrix (`tied`).
    pub tied: bool,
    /// Whether the moments of each component are taken around the component's centre, not the
    /// data's (E-step).
    pub central: bool,
    /// Whether the squares in the exponents can be expanded without a loss of digits that would
    /// show (E-step), or those in the differences of the parameter sets' exponents (totals of many
    /// sets).
    pub expandable: bool,
    /// Whether the tensor cores keep the digits of an E-step of matrices as triangles times features:
    /// wherever it is `expandable`, and beyond.
    pub whitenable: bool,
    /// Whether samples have weights.
    pub weighted: bool,
    /// Whether values are missing (then the covariances are diagonal).
    pub gaps: bool,
    pub precision: Precision,
}

impl fmt::Display for Task {
    /// The size class: everything that the choice depends on, N to the power of ten.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = self.operation;
        let shape = match (self.full, self.tied) {
            (true, true) => "tied",
            (false, true) => "tied linear",
            (true, false) => "full",
            (false, false) => "diag",
        };
        write!(f, "{operation} n=1e{} k={} d={} {shape}", self.n.ilog10(), self.k, self.d)?;
        f.write_str(if self.central { " central" } else { "" })?;
        f.write_str(match (self.expandable, self.whitenable) {
            (true, _) => " expandable",
            (false, true) => " whitenable",
            (false, false) => "",
        })?;
        f.write_str(if self.weighted { " weighted" } else { "" })?;
        f.write_str(if self.gaps { " gaps" } else { "" })?;
        f.write_str(if self.precision == Precision::Float64 { " float64" } else { "" })
    }
}

impl Task {
    /// Whether this is an E-step of components with one matrix (`tied`), of which only what is
    /// linear in the features is computed for each sample: what is quadratic is the same for all
    /// components, and its sum over the samples does not depend on the mixture.
    pub fn is_linear(&self) -> bool {
        self.tied && !self.full
    }

    /// Whether an E-step takes so long that its shapes are worth timing.
    pub fn is_long(&self) -> bool {
        let pairs = if self.full { self.d * self.d } else { 4 * self.d };
        self.n.saturating_mul(self.k).saturating_mul(pairs) >= LONG_ESTEP
    }
}

/// The shape of a launch, of which a family offers several where its time depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// What a family divides besides; its documentation says what. One where it divides nothing.
    pub split: u32,
    /// Threads of a block.
    pub block: u32,
    /// Blocks of the grid for each multiprocessor, at most.
    pub per_multiprocessor: u32,
}

impl Shape {
    pub const fn new(split: u32, block: u32, per_multiprocessor: u32) -> Self {
        Self { split, block, per_multiprocessor }
    }
}

/// What the tensor cores multiply with what they have of a mixture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Multiplies {
    Features,
    /// Products of two features.
    Products,
}
