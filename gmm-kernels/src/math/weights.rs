//! Weights and seeds of components.
use super::{Float, float64};

/// A bound of |x| in the frame.
pub const REACH: f64 = 16.0;
/// √(log₂e / 2): a component's scale times its deviation.
pub const ROOT_HALF_LOG2_E: f64 = 0.849_321_800_288_019_1;
/// The smallest exponent of a weight wₖ; the rest of a smaller constant goes into the seed.
const MIN_WEIGHT_EXPONENT: f64 = -60.0;

/// wₖ and the seed, from log₂ of a component's constant over the largest; zeros if that is the lowest number or −∞.
#[inline(always)]
pub fn weight_and_seed<T: Float>(relative: f64) -> (T, T) {
    // The lowest number may have been rounded with the largest constant.
    if relative > 0.5 * f64::MIN {
        let exponent = if relative < MIN_WEIGHT_EXPONENT { MIN_WEIGHT_EXPONENT } else { relative };
        let exact = float64::exp2(exponent);
        let w = T::narrow(exact);
        // log₂(exact / w), from the first two terms of its series: the two differ by a rounding.
        let e = (exact - w.wide()) * float64::reciprocal(w.wide());
        (w, T::narrow(relative - exponent + (e - e * e / 2.0) * core::f64::consts::LOG2_E))
    } else {
        (T::ZERO, T::ZERO)
    }
}
