//! The element types.
use gmm_host::simd::Lane;
use ndarray::ArrayView2;
use std::ops::RangeInclusive;

/// The element type of comparisons: `f32` or `f64`.
#[allow(private_bounds)] // Only this crate implements it.
pub trait Number: Compute {}

impl Number for f32 {}
impl Number for f64 {}

/// What this crate needs of a [`Number`].
pub(crate) trait Compute: Lane + Default + Into<f64> + Send + Sync {
    /// The γ for which exp(−γ‖a − b‖²) of finite numbers needs no other element type: where ‖a −
    /// b‖² overflows it is 0, and where ‖a − b‖² loses digits by underflow it is 1.
    const GAMMA: RangeInclusive<f64>;

    fn from_f64(v: f64) -> Self;

    /// Whether it is neither infinite nor NaN.
    fn is_finite(self) -> bool;

    /// The array, if the elements are float32.
    fn float32(_: ArrayView2<'_, Self>) -> Option<ArrayView2<'_, f32>> {
        None
    }

    /// The numbers, if they are float32.
    fn float32_mut(_: &mut [Self]) -> Option<&mut [f32]> {
        None
    }
}

impl Compute for f32 {
    const GAMMA: RangeInclusive<f64> = 1e-30..=1e30;

    fn from_f64(v: f64) -> f32 {
        v as f32
    }

    fn is_finite(self) -> bool {
        f32::is_finite(self)
    }

    fn float32(x: ArrayView2<'_, f32>) -> Option<ArrayView2<'_, f32>> {
        Some(x)
    }

    fn float32_mut(x: &mut [f32]) -> Option<&mut [f32]> {
        Some(x)
    }
}

impl Compute for f64 {
    const GAMMA: RangeInclusive<f64> = 1e-280..=1e280;

    fn from_f64(v: f64) -> f64 {
        v
    }

    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }
}
