//! The number type of an evaluation, and the operations that need different numbers of digits.

/// The number type of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Precision {
    /// 24 binary digits.
    Float32,
    /// 53 binary digits.
    Float64,
}

/// What an evaluation is for, which decides how many digits it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Log-likelihoods, labels and responsibilities: a sample within 16 standard deviations of its
    /// component is to have a log-density within 10⁻³ of the truth, and one that is farther from
    /// all components within 10⁻³ and 10⁻⁶ of its log-density.
    LogLikelihood,
    /// The E-step: rounding is to move the mean log-likelihood, by which EM decides whether it has
    /// converged, by less than 10⁻⁶.
    Statistics,
}
