//! The number type of an evaluation, and the operations that need different numbers of digits.

/// The number type of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Precision {
    /// 24 binary digits.
    Float32,
    /// 53 binary digits.
    Float64,
}

/// The purpose of an evaluation, which decides how many digits it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Log-likelihoods, labels and responsibilities. The log-density of a sample within 16 standard deviations of its
    /// component is accurate to 10⁻³; farther from all components, to 10⁻³ plus 10⁻⁶ of the log-density.
    LogLikelihood,
    /// The E-step. Rounding moves the mean log-likelihood, EM's convergence criterion, by less than 10⁻⁶.
    Statistics,
}
