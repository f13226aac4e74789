//! Errors. Their texts say what is wrong, where it is, and what to do.

/// The result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Everything that can go wrong in this crate. Indices count from 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A sample is NaN or infinite.
    #[error(
        "the data holds {} at row {row}, column {column} (counted from 0); remove the row or fill in a finite value{}",
        short(*value), if value.is_nan() { MISSING } else { "" }
    )]
    NonFiniteSample {
        /// Row of the first such value.
        row: usize,
        /// Its column.
        column: usize,
        /// The value itself.
        value: f64,
    },
    /// An array holds NaN or an infinite number.
    #[error(
        "{what} holds {} at row {row}, column {column} (counted from 0); remove the row or fill in a finite value", short(*value)
    )]
    NonFinite {
        /// Which array.
        what: &'static str,
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
    #[error("the shape of {what} is {got:?} where {expected:?} is needed")]
    ShapeMismatch {
        /// Which array.
        what: &'static str,
        /// The shape that would fit.
        expected: Vec<usize>,
        /// The shape found.
        got: Vec<usize>,
    },
    /// Covariances, or arrays of their shape, that are of another type than is needed.
    #[error("{what} are of the covariance type `{got}` where `{expected}` is needed")]
    WrongCovarianceType {
        /// Which arrays.
        what: &'static str,
        /// The name of the type that would fit.
        expected: &'static str,
        /// The name of the type found.
        got: &'static str,
    },
    /// A parameter of one component is not usable.
    #[error("{what} of component {component} (counted from 0) is {}: {remedy}", short(*value))]
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
    #[error("the weights sum to {}, not to 1 (tolerance {tolerance:e}); divide them by their sum", short(*sum))]
    WeightSum {
        /// Their sum.
        sum: f64,
        /// How far from one it may be.
        tolerance: f64,
    },
    /// A covariance matrix whose two triangles differ.
    #[error(
        "the covariance of {} is not symmetric: {} at row {row}, column {column} (counted from 0) and {} \
         mirrored; average the matrix with its transpose", named(*component), short(*upper), short(*lower)
    )]
    NotSymmetric {
        /// The component it belongs to; none for the one tied covariance.
        component: Option<usize>,
        /// Row of the entry in the upper triangle.
        row: usize,
        /// Its column.
        column: usize,
        /// The entry.
        upper: f64,
        /// Its mirror image.
        lower: f64,
    },
    /// A covariance matrix without a Cholesky factor.
    #[error(
        "the covariance of {} is not positive definite: its Cholesky factorisation fails at pivot {pivot} (counted \
         from 0); that feature is constant there or a combination of those before it: remove the feature, \
         standardize the columns, raise reg_covar, or use fewer components", named(*component)
    )]
    NotPositiveDefinite {
        /// The component it belongs to; none for the one tied covariance.
        component: Option<usize>,
        /// The first leading minor that fails, as the index of its last row.
        pivot: usize,
    },
    /// A sample weight that is not usable.
    #[error("the sample weight of row {row} (counted from 0) is {}; weights must be finite and not negative", short(*value))]
    BadSampleWeight {
        /// Row of the first such weight.
        row: usize,
        /// The weight.
        value: f64,
    },
    /// No sample weight is positive.
    #[error("all sample weights are zero; at least one sample must count")]
    ZeroSampleWeights,
    /// [`Interrupt::raise`](crate::interrupt::Interrupt::raise) was called.
    #[error("the computation was interrupted")]
    Interrupted,
    /// A sample so far from every component that its log-density is outside the range of float64.
    #[error(
        "the sample at row {row} (counted from 0) is infinitely far from every component; standardise the data or \
         start closer to it"
    )]
    UnreachableSample {
        /// Its row.
        row: usize,
    },
    /// A component without samples, when there are no earlier parameters that it could retain.
    #[error(
        "component {component} (counted from 0) has no samples (its responsibilities sum to {}); use fewer \
         components or another start", short(*count)
    )]
    EmptyComponent {
        /// The component.
        component: usize,
        /// The sum of its responsibilities.
        count: f64,
    },
    /// Sums that left the range of the precision they were formed in.
    #[error("{what} of component {component} (counted from 0) is {}; standardise the data, or use float64", short(*value))]
    NonFiniteStatistic {
        /// Which sum.
        what: &'static str,
        /// The component.
        component: usize,
        /// The value found.
        value: f64,
    },
    /// A parameter of a fit that is not usable.
    #[error("{name} is {value}: {remedy}")]
    BadParameter {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A column in which nothing is observed.
    #[error(
        "nothing is observed in column {column} (counted from 0): all of its values are missing, or in rows without weight; \
         leave the column out"
    )]
    UnobservedColumn {
        /// The first such column.
        column: usize,
    },
    /// Fewer samples with a weight than components.
    #[error(
        "only {n_samples} samples have a weight above zero, too few for {n_components} components; use at most {n_samples}"
    )]
    TooFewWeightedSamples {
        /// The samples with weight.
        n_samples: usize,
        /// K.
        n_components: usize,
    },
    /// Fewer samples than components.
    #[error("{n_samples} samples cannot be fitted with {n_components} components; use at most {n_samples}")]
    TooFewSamples {
        /// N.
        n_samples: usize,
        /// K.
        n_components: usize,
    },
    /// A row that the data does not have.
    #[error("row {row} (counted from 0) was asked for, but there are only {n_samples}")]
    NoSuchRow {
        /// The row.
        row: usize,
        /// N.
        n_samples: usize,
    },
    /// A feature that the mixture does not have.
    #[error("there is no feature {feature} (counted from 0); the mixture has {n_features}: 0 to {}", n_features.saturating_sub(1))]
    NoSuchFeature {
        /// The feature.
        feature: usize,
        /// D.
        n_features: usize,
    },
    /// A feature that is named twice.
    #[error("feature {feature} (counted from 0) is named twice; name it once")]
    RepeatedFeature {
        /// The feature.
        feature: usize,
    },
    /// Samples could not be read from their source, for example a file.
    #[error(transparent)]
    Load(Box<dyn std::error::Error + Send + Sync>),
    /// Something that this backend cannot do.
    #[error("{what} is not supported by {backend}; {remedy}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// The backend.
        backend: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// A component whose standard deviations are at the ends of the working precision's range.
    #[error(
        "component {component}, column {column} (counted from 0) cannot be evaluated in {precision}: its standard deviation is \
         nearly zero or infinite there; multiply the data by a constant, so that its values are nearer to one"
    )]
    OutOfRange {
        /// The component.
        component: usize,
        /// The column.
        column: usize,
        /// The working precision.
        precision: &'static str,
    },
    /// More memory than is left was asked for.
    #[error(
        "{what}, of shape {shape:?}, take {} of memory{}; {remedy}", in_words(*needed),
        available.map_or_else(String::new, |left| format!(", and {} are left", in_words(left.into())))
    )]
    Memory {
        /// What was to be made, in the plural.
        what: String,
        /// Its shape.
        shape: Vec<usize>,
        /// The bytes that it takes.
        needed: u128,
        /// The bytes that are left, where the system tells.
        available: Option<u64>,
        /// What to do.
        remedy: String,
    },
    /// Threads could not be started.
    #[error("{n_threads} threads cannot be used: {message}")]
    Threads {
        /// How many were asked for.
        n_threads: usize,
        /// Why not.
        message: String,
    },
    /// A kernel was requested that the backend does not have, or that cannot compute with this
    /// shape.
    #[error("kernel `{name}` {problem}; available here: {available}")]
    Kernel {
        /// The name asked for.
        name: String,
        /// Why it cannot be used.
        problem: String,
        /// The names of the kernels that can be used.
        available: String,
    },
    /// A name that no covariance type has.
    #[error(
        "there is no covariance type `{name}`; use full, tied, diag, spherical or a model such as VEV (docs/mclust.md lists them)"
    )]
    UnknownCovarianceType {
        /// The name given.
        name: String,
    },
    /// A name that no device has.
    #[error(
        "there is no device `{name}`; use auto, cpu, reference, cuda, cuda:N (the GPU of number N), or several: cuda:all, or a list \
         such as cuda:0,2 or cuda:0,cpu"
    )]
    UnknownDevice {
        /// The name asked for.
        name: String,
    },
    /// No usable CUDA device.
    #[error("no CUDA device: {reason}; use the CPU (device `cpu` or `auto`), or repair the driver")]
    NoCudaDevice {
        /// Why not; the driver's message, if there is one.
        reason: String,
    },
    /// A fit was given up because its caller asked for that.
    #[error("the fit was stopped before it had ended; fit again")]
    Stopped,
    /// A call of the CUDA driver failed.
    #[error("CUDA call {op} failed: {message}")]
    Cuda {
        /// The driver function or operation.
        op: &'static str,
        /// The driver's message.
        message: String,
    },
}

/// What else can be done about NaN in data.
const MISSING: &str = "; if NaN stands for a missing value, say so: --missing (Samples::with_missing, missing=True)";

/// A number as text, with an exponent if it would have many zeros otherwise.
fn short(value: f64) -> String {
    let zeros = value != 0.0 && value.is_finite() && !(1e-5..1e16).contains(&value.abs());
    if zeros { format!("{value:e}") } else { value.to_string() }
}

/// A number of bytes in words, for example `1.5 GiB`.
pub fn in_words(bytes: u128) -> String {
    const UNITS: [&str; 7] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = (bytes.max(1).ilog2() as usize / 10).min(UNITS.len() - 1);
    let value = bytes as f64 / 1024f64.powi(power as i32);
    match value {
        _ if power == 0 => format!("{bytes} bytes"),
        ..1e4 => format!("{} {}", (10.0 * value).round() / 10.0, UNITS[power]),
        _ => format!("{value:.1e} {}", UNITS[power]),
    }
}

/// How an error names the component of a covariance; none stands for the tied one.
fn named(component: Option<usize>) -> String {
    component.map_or_else(|| "all components (tied)".into(), |k| format!("component {k} (counted from 0)"))
}

#[cfg(feature = "cuda")]
impl From<gmm_driver::Error> for Error {
    fn from(error: gmm_driver::Error) -> Self {
        match error {
            gmm_driver::Error::Call { call: op, message, .. } => Self::Cuda { op, message },
            absent => Self::NoCudaDevice { reason: absent.to_string() },
        }
    }
}

#[cfg(feature = "linfa")]
impl From<linfa::Error> for Error {
    fn from(error: linfa::Error) -> Self {
        Self::Load(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_no_rows_of_zeros() {
        let error = |value| Error::BadSampleWeight { row: 0, value }.to_string();
        assert!(error(-1e-320).contains("is -1e-320;"), "{}", error(-1e-320));
        assert!(error(-1e300).contains("is -1e300;"), "{}", error(-1e300));
        assert!(error(-0.25).contains("is -0.25;"));
        assert!(error(f64::NAN).contains("is NaN;"));
        assert!(error(f64::NEG_INFINITY).contains("is -inf;"));
        assert!(error(0.0).contains("is 0;"));
    }

    #[test]
    fn sizes_in_words() {
        for (bytes, words) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1536, "1.5 KiB"),
            (3 << 30, "3 GiB"),
            (1 << 70, "1024 EiB"),
            (1 << 100, "1.1e12 EiB"),
        ] {
            assert_eq!(in_words(bytes), words);
        }
    }
}
