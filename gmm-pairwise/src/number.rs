//! The element types.
use gmm_host::simd::Lane;
use ndarray::ArrayView2;
use std::ops::RangeInclusive;

/// The element type of comparisons: `f32` or `f64`.
#[allow(private_bounds)] // Only this crate implements it.
pub trait Number: Compute {}

impl Number for f32 {}
impl Number for f64 {}

/// The needs of this crate from a [`Number`].
pub(crate) trait Compute: Lane + Default + Into<f64> + Send + Sync {
    /// The γ for which exp(−γ‖a − b‖²) of finite numbers needs no other element type: it is 0 if ‖a − b‖² overflows,
    /// and 1 if ‖a − b‖² loses digits by underflow.
    const GAMMA: RangeInclusive<f64>;

    fn from_f64(v: f64) -> Self;

    fn is_finite(self) -> bool;

    fn float32(_: ArrayView2<'_, Self>) -> Option<ArrayView2<'_, f32>> {
        None
    }

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
