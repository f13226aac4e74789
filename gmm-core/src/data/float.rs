//! Number types for the evaluation of samples.
use crate::precision::Precision;

/// A number type for the evaluation of samples.
pub trait Float: Copy + PartialOrd + Send + Sync + 'static + Into<f64> {
    /// The precision of this type.
    const PRECISION: Precision;
    /// The name of this type.
    const NAME: &'static str;
    /// The largest |t| whose square, summed over the features, stays finite.
    const MAX_DEVIATION: f64;
    /// The smallest positive normal number.
    const MIN_POSITIVE: f64;
    /// The exponent of a component of weight zero, so low that the component contributes nothing.
    const DEAD: f64;
    /// The most samples whose median is the centre of a frame. float32's few digits need a centre near most samples;
    /// float64 only needs protection from extremely far samples.
    const LOOKED_AT: usize;
    /// Returns the nearest number of this type.
    fn from_f64(v: f64) -> Self;
    /// Whether the number is neither infinite nor NaN.
    fn is_finite(self) -> bool;
}

impl Float for f32 {
    const PRECISION: Precision = Precision::Float32;
    const NAME: &'static str = "float32";
    const MAX_DEVIATION: f64 = (1u64 << 56) as f64;
    const MIN_POSITIVE: f64 = f32::MIN_POSITIVE as f64;
    const DEAD: f64 = f32::MIN as f64 / 2.0;
    const LOOKED_AT: usize = 1023;
    fn from_f64(v: f64) -> f32 {
        v as f32
    }
    fn is_finite(self) -> bool {
        f32::is_finite(self)
    }
}

impl Float for f64 {
    const PRECISION: Precision = Precision::Float64;
    const NAME: &'static str = "float64";
    const MAX_DEVIATION: f64 = 1e150;
    const MIN_POSITIVE: f64 = f64::MIN_POSITIVE;
    const DEAD: f64 = f64::MIN / 2.0;
    const LOOKED_AT: usize = 7;
    fn from_f64(v: f64) -> f64 {
        v
    }
    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }
}
