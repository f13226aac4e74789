//! Errors. Each message says where the problem is and what to do.

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate. Indices count from 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The mixture engine failed.
    #[error(transparent)]
    Host(#[from] gmm_host::Error),
    /// The lengths of the sequences do not add up to the number of rows.
    #[error("the lengths of the sequences add up to {sum}, but the data has {n_samples} rows; they must be equal")]
    Lengths {
        /// The sum of the lengths.
        sum: usize,
        /// The number of rows.
        n_samples: usize,
    },
    /// A sequence without rows.
    #[error("sequence {sequence} (counted from 0) has no rows; leave it out")]
    EmptySequence {
        /// The sequence.
        sequence: usize,
    },
    /// A weight of a sequence that is not usable.
    #[error("the weight of sequence {sequence} (counted from 0) is {value}; weights must be finite and not negative")]
    SequenceWeight {
        /// The sequence.
        sequence: usize,
        /// The weight.
        value: f64,
    },
    /// All weights of the sequences are zero, or there are no sequences.
    #[error("no sequence has weight; at least one must count")]
    NoSequence,
    /// A probability that is negative or not a number.
    #[error(
        "{what} holds {value} at position {position} (counted from 0); probabilities must be finite and not negative"
    )]
    Probability {
        /// The array, for example `row 2 of transmat`.
        what: String,
        /// The position.
        position: usize,
        /// The value.
        value: f64,
    },
    /// Probabilities that do not sum to one.
    #[error("{what} sums to {sum}, not to 1; divide it by its sum")]
    ProbabilitySum {
        /// The array, for example `row 2 of transmat`.
        what: String,
        /// Its sum.
        sum: f64,
    },
    /// An array of an unexpected shape.
    #[error("the shape of {what} is {got:?}; expected {expected:?}")]
    Shape {
        /// The array.
        what: &'static str,
        /// The expected shape.
        expected: Vec<usize>,
        /// The actual shape.
        got: Vec<usize>,
    },
    /// A parameter that is not usable.
    #[error("{what} is {value}: {remedy}")]
    Parameter {
        /// The parameter.
        what: &'static str,
        /// Its value.
        value: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A sequence that the model cannot emit.
    #[error(
        "sequence {sequence} (counted from 0) has probability zero under the model: its rows need a transition of \
         probability 0, or lie infinitely far from every state; make the transition possible or start closer to the data"
    )]
    ImpossibleSequence {
        /// The sequence.
        sequence: usize,
    },
}
