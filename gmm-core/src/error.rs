//! Errors, whose texts say what is wrong, where, and what to do.

/// The result of this crate's fallible calls.
pub type Result<T> = std::result::Result<T, Error>;

/// All errors of this crate. Indices count from 0.
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
        /// The value.
        value: f64,
    },
    /// An array holds NaN or an infinite number.
    #[error(
        "{what} holds {} at row {row}, column {column} (counted from 0); remove the row or fill in a finite value", short(*value)
    )]
    NonFinite {
        /// The array.
        what: &'static str,
        /// Row of the first such value.
        row: usize,
        /// Its column.
        column: usize,
        /// The value.
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
    #[error("the shape of {what} is {got:?}; expected {expected:?}")]
    ShapeMismatch {
        /// The array.
        what: &'static str,
        /// The expected shape.
        expected: Vec<usize>,
        /// The actual shape.
        got: Vec<usize>,
    },
    /// Covariances, or arrays of their shape, of an unexpected type.
    #[error("the covariance type of {what} is `{got}`; expected `{expected}`")]
    WrongCovarianceType {
        /// The arrays.
        what: &'static str,
        /// The name of the expected type.
        expected: &'static str,
        /// The name of the actual type.
        got: &'static str,
    },
    /// A parameter of one component is not usable.
    #[error("{what} of component {component} (counted from 0) is {}: {remedy}", short(*value))]
    BadComponent {
        /// The parameter, for example `variance in column 3`.
        what: String,
        /// The component.
        component: usize,
        /// The value.
        value: f64,
        /// What to do.
        remedy: &'static str,
    },
    /// The weights do not sum to one.
    #[error("the weights sum to {}, not to 1 (tolerance {tolerance:e}); divide them by their sum", short(*sum))]
    WeightSum {
        /// Their sum.
        sum: f64,
        /// The largest allowed deviation from one.
        tolerance: f64,
    },
    /// A covariance matrix whose two triangles differ.
    #[error(
        "the covariance of {} is not symmetric: {} at row {row}, column {column} (counted from 0) and {} \
         mirrored; average the matrix with its transpose", named(*component), short(*upper), short(*lower)
    )]
    NotSymmetric {
        /// The component; `None` for the tied covariance.
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
         from 0); that feature is constant there or a combination of earlier features: remove it, \
         standardize the columns, raise reg_covar, or use fewer components", named(*component)
    )]
    NotPositiveDefinite {
        /// The component; `None` for the tied covariance.
        component: Option<usize>,
        /// The last row of the first leading minor that fails.
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
    /// Noise that is not a covariance.
    #[error("{what} {problem}")]
    BadNoise {
        /// The noise, with its row.
        what: String,
        /// The problem.
        problem: String,
    },
    /// A measurement without noise in a direction in which a component has no spread.
    #[error(
        "the noise of row {row} (counted from 0) is zero in a direction in which a component has no spread; \
         give it noise there, raise reg_covar, or check that the rows of its projection are independent"
    )]
    NoSpread {
        /// The row.
        row: usize,
    },
    /// No sample weight is positive.
    #[error("all sample weights are zero; at least one sample must count")]
    ZeroSampleWeights,
    /// [`Interrupt::raise`](crate::interrupt::Interrupt::raise) was called.
    #[error("the computation was interrupted")]
    Interrupted,
    /// A sample so far from every component that its log-density is outside float64's range.
    #[error(
        "the sample at row {row} (counted from 0) is infinitely far from every component; standardise the data or \
         start closer to it"
    )]
    UnreachableSample {
        /// Its row.
        row: usize,
    },
    /// A component without samples, and without earlier parameters to keep.
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
    /// Sums outside the range of their precision.
    #[error("{what} of component {component} (counted from 0) is {}; standardise the data, or use float64", short(*value))]
    NonFiniteStatistic {
        /// The sum.
        what: &'static str,
        /// The component.
        component: usize,
        /// The value.
        value: f64,
    },
    /// An unusable parameter of a fit.
    #[error("{name} is {value}: {remedy}")]
    BadParameter {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A column without any observed value.
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
        /// The number of samples with weight.
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
    /// A row outside the data.
    #[error("there is no row {row} (counted from 0); the data has {n_samples} rows")]
    NoSuchRow {
        /// The row.
        row: usize,
        /// N.
        n_samples: usize,
    },
    /// A feature outside the mixture.
    #[error("there is no feature {feature} (counted from 0); the mixture has {n_features}: 0 to {}", n_features.saturating_sub(1))]
    NoSuchFeature {
        /// The feature.
        feature: usize,
        /// D.
        n_features: usize,
    },
    /// A feature named twice.
    #[error("feature {feature} (counted from 0) is named twice; name it once")]
    RepeatedFeature {
        /// The feature.
        feature: usize,
    },
    /// Samples could not be read from their source, for example a file.
    #[error(transparent)]
    Load(Box<dyn std::error::Error + Send + Sync>),
    /// A request that the backend does not support.
    #[error("{what} is not supported by {backend}; {remedy}")]
    Unsupported {
        /// The request.
        what: String,
        /// The backend.
        backend: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// A component whose standard deviation is at an end of the working precision's range.
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
    /// A request for more memory than is available.
    #[error(
        "{what}, of shape {shape:?}, take {} of memory{}; {remedy}", in_words(*needed),
        available.map_or_else(String::new, |left| format!(", and {} are left", in_words(left.into())))
    )]
    Memory {
        /// The arrays, in the plural.
        what: String,
        /// The shape.
        shape: Vec<usize>,
        /// The bytes needed.
        needed: u128,
        /// The bytes available, if the system tells.
        available: Option<u64>,
        /// What to do.
        remedy: String,
    },
    /// Threads could not be started.
    #[error("{n_threads} threads cannot be used: {message}")]
    Threads {
        /// The number requested.
        n_threads: usize,
        /// The reason.
        message: String,
    },
    /// A requested kernel that the backend lacks, or that cannot compute with this shape.
    #[error("kernel `{name}` {problem}; available here: {available}")]
    Kernel {
        /// The requested name.
        name: String,
        /// The reason.
        problem: String,
        /// The names of the usable kernels.
        available: String,
    },
    /// An unknown covariance type.
    #[error("there is no covariance type `{name}`; use full, tied, diag, spherical or a model of mclust such as VEV")]
    UnknownCovarianceType {
        /// The given name.
        name: String,
    },
    /// An unknown device.
    #[error(
        "there is no device `{name}`; use auto, cpu, reference, cuda, cuda:N (the GPU of number N), or several: cuda:all, or a list \
         such as cuda:0,2 or cuda:0,cpu"
    )]
    UnknownDevice {
        /// The requested name.
        name: String,
    },
    /// No usable CUDA device.
    #[error("no CUDA device: {reason}; use the CPU (device `cpu` or `auto`), or repair the driver")]
    NoCudaDevice {
        /// The reason: the driver's message, if there is one.
        reason: String,
    },
    /// A fit was stopped at its caller's request.
    #[error("the fit was stopped before its end; fit again")]
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

impl Error {
    /// Returns whether a component is to blame: its covariance is not positive definite, or it has no samples.
    pub fn is_of_component(&self) -> bool {
        matches!(self, Self::NotPositiveDefinite { .. } | Self::BadComponent { .. } | Self::EmptyComponent { .. })
    }
}

/// The remedy for NaN in data.
const MISSING: &str = "; if NaN stands for a missing value, say so: --missing (Samples::with_missing, missing=True)";

/// Formats a number, with an exponent if it would have many zeros.
fn short(value: f64) -> String {
    let zeros = value != 0.0 && value.is_finite() && !(1e-5..1e16).contains(&value.abs());
    if zeros { format!("{value:e}") } else { value.to_string() }
}

/// Formats a number of bytes, for example `1.5 GiB`.
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

/// Names the component of a covariance; `None` is the tied one.
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
