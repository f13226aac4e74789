//! What can go wrong, said so that the reader knows where it is and what to do.

/// The result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Everything that can go wrong in this crate. Indices count from 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A sample is NaN or infinite.
    #[error(
        "the data holds {value} at row {row}, column {column} (counted from 0); remove the row or fill in a finite value"
    )]
    NonFiniteSample {
        /// Row of the first such value.
        row: usize,
        /// Its column.
        column: usize,
        /// The value itself.
        value: f64,
    },
    /// A data set without rows or without columns.
    #[error("the data has {rows} rows and {columns} columns; at least one of each is needed")]
    EmptyData {
        /// Number of rows found.
        rows: usize,
        /// Number of columns found.
        columns: usize,
    },
    /// Two shapes that must agree do not.
    #[error("{what} has shape {got:?} where {expected:?} is needed")]
    ShapeMismatch {
        /// Which array.
        what: &'static str,
        /// The shape that would fit.
        expected: Vec<usize>,
        /// The shape found.
        got: Vec<usize>,
    },
    /// A parameter of one component is not usable.
    #[error("{what} of component {component} (counted from 0) is {value}: {remedy}")]
    BadComponent {
        /// Which parameter, for example `variance in column 3`.
        what: String,
        /// The component it belongs to.
        component: usize,
        /// The value found.
        value: f64,
        /// What to do.
        remedy: &'static str,
    },
    /// The weights do not sum to one.
    #[error("the weights sum to {sum}, not to 1 (tolerance {tolerance:e}); divide them by their sum")]
    WeightSum {
        /// Their sum.
        sum: f64,
        /// How far from one it may be.
        tolerance: f64,
    },
    /// A component that the working precision cannot evaluate over this data.
    #[error(
        "component {component}, column {column} (counted from 0) cannot be evaluated in {precision} over this data: its mean \
         is too many standard deviations away; use float64 data on the CPU or the device `reference`"
    )]
    OutOfRange {
        /// The component.
        component: usize,
        /// The column.
        column: usize,
        /// The working precision.
        precision: &'static str,
    },
    /// A kernel was asked for by a name that the backend does not have, or that cannot take this shape.
    #[error("kernel `{name}` {problem}; available here: {available}")]
    Kernel {
        /// The name asked for.
        name: String,
        /// Why it cannot serve.
        problem: String,
        /// The names that can.
        available: String,
    },
    /// No usable CUDA device.
    #[error("no CUDA device: {reason}; use the CPU (device `cpu` or `auto`) or mend the driver")]
    NoCudaDevice {
        /// Why not, in the driver's words where it spoke.
        reason: String,
    },
    /// A call of the CUDA driver failed.
    #[error("CUDA call {op} failed: {message}")]
    Cuda {
        /// The driver function or operation.
        op: &'static str,
        /// The driver's message.
        message: String,
    },
}
