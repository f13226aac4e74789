//! Data and parameters in the form in which the fast backends compute.
//!
//! The data is centred once, in float64, and scaled per column by a power of two (exact), so that a data set far
//! from the origin or of an extreme unit loses nothing when it is rounded to the working precision.
//!
//! With t = s·x + m, s = √(log₂e / 2) / σ and m = −μ·s, one component's log₂-density is a constant minus Σⱼ tⱼ².
//! The sum over components is formed as Σₖ wₖ·2^qₖ with qₖ = seedₖ − Σⱼ tⱼ²: the constant goes into the factor wₖ in
//! (0, 1], and its rounding error into seedₖ, so that no rounding of a constant repeats itself N times.
use crate::{Covariances, Error, Mixture, Result};
use ndarray::ArrayView2;

/// A working precision.
pub(crate) trait Float: Copy + Send + Sync + 'static + Into<f64> {
    /// Name of the type.
    const NAME: &'static str;
    /// Largest |t| whose square, summed over the features, stays finite.
    const MAX_DEVIATION: f64;
    fn from_f64(v: f64) -> Self;
}
impl Float for f32 {
    const NAME: &'static str = "float32";
    const MAX_DEVIATION: f64 = (1u64 << 58) as f64;
    fn from_f64(v: f64) -> f32 {
        v as f32
    }
}
impl Float for f64 {
    const NAME: &'static str = "float64";
    const MAX_DEVIATION: f64 = 1e150;
    fn from_f64(v: f64) -> f64 {
        v
    }
}

/// x′ = (x − shift) · scale per column, computed in float64; scale is a power of two.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub shift: Vec<f64>,
    pub scale: Vec<f64>,
}

impl Frame {
    /// Shift = the column's mean, scale = the power of two that brings its largest deviation to about 2³ (a normal
    /// column then has a standard deviation near one).
    pub fn of<T: Float>(x: ArrayView2<'_, T>) -> Self {
        let n = x.nrows() as f64;
        let (mut shift, mut scale) = (Vec::new(), Vec::new());
        for column in x.columns() {
            // Divided before the sum, so that the largest finite values do not overflow it.
            let mean: f64 = crate::reference::neumaier_sum(column.iter().map(|&v| v.into() / n));
            let spread = column.iter().map(|&v| (v.into() / 2.0 - mean / 2.0).abs()).fold(0.0, f64::max);
            let exponent = if spread > 0.0 { (2.0 - spread.log2().floor()).clamp(-1020.0, 1020.0) } else { 0.0 };
            shift.push(mean);
            scale.push(exponent.exp2());
        }
        Self { shift, scale }
    }

    /// One value of column `j` in the frame.
    #[inline]
    pub fn apply(&self, j: usize, x: f64) -> f64 {
        (x - self.shift[j]) * self.scale[j]
    }
}

/// The parameters of a mixture in the frame of a data set, in the working precision.
///
/// log₂ p(x) = `offset` + log₂ Σₖ `weight[k]` · 2^(`seed[k]` − Σⱼ (`scale[k,j]`·x′ⱼ + `shift[k,j]`)²)
#[derive(Debug, Clone)]
pub(crate) struct Packed<T> {
    pub n_components: usize,
    pub n_features: usize,
    /// s (K, D), row-major.
    pub scale: Vec<T>,
    /// m (K, D), row-major.
    pub shift: Vec<T>,
    /// wₖ in [2⁻⁶⁰, 1], the largest 1; 0 for a component of weight zero.
    pub weight: Vec<T>,
    /// What of the constant did not fit into wₖ.
    pub seed: Vec<T>,
    /// Constant of every sample, in log₂ units, to be added in float64.
    pub offset: f64,
}

/// The smallest exponent that is put into a factor wₖ; the rest of a smaller constant goes into the seed.
const MIN_WEIGHT_EXPONENT: f64 = -60.0;

impl<T: Float> Packed<T> {
    /// Packs `mixture` for data in `frame`; the constants are computed in float64 from the scales as rounded to `T`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for full and tied covariances; [`Error::OutOfRange`] where a standard deviation is so small, or a mean so far, that t² would overflow `T`.
    pub fn new(mixture: &Mixture, frame: &Frame) -> Result<Self> {
        if let Covariances::Full(_) | Covariances::Tied(_) = mixture.covariances() {
            return Err(Error::Unsupported {
                what: format!("the covariance type `{}`", mixture.covariance_type()),
                backend: "this kernel",
                remedy: "use the device `reference`",
            });
        }
        let (k, d) = mixture.means().dim();
        let (mut scale, mut shift) = (Vec::with_capacity(k * d), Vec::with_capacity(k * d));
        let root = (std::f64::consts::LOG2_E / 2.0).sqrt();
        // log₂ of 1/√(2π) over `root`: turns a sum of log₂ s into the normalising constant.
        let unit = -0.5 * std::f64::consts::TAU.log2() - root.log2();
        let mut constant = Vec::with_capacity(k);
        let means = mixture.means();
        for c in 0..k {
            let mut log2 = mixture.weights()[c].log2();
            for j in 0..d {
                let exact = root / mixture.variance(c, j).sqrt();
                let s = T::from_f64(exact / frame.scale[j]);
                let seen: f64 = s.into();
                let seen = seen * frame.scale[j];
                let m = (frame.shift[j] - means[[c, j]]) * seen;
                // |x′| is below 16 by the choice of the frame.
                if !(16.0 * s.into() + m.abs() <= T::MAX_DEVIATION && seen > 0.0) {
                    return Err(Error::OutOfRange { component: c, column: j, precision: T::NAME });
                }
                scale.push(s);
                shift.push(T::from_f64(m));
                log2 += seen.log2() + unit;
            }
            constant.push(log2);
        }
        let offset = constant.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (mut weight, mut seed) = (Vec::with_capacity(k), Vec::with_capacity(k));
        for c in constant {
            let relative = c - offset;
            let w = T::from_f64(relative.max(MIN_WEIGHT_EXPONENT).exp2());
            let seen: f64 = w.into();
            let dead = c == f64::NEG_INFINITY;
            weight.push(if dead { T::from_f64(0.0) } else { w });
            seed.push(T::from_f64(if dead { 0.0 } else { relative - seen.log2() }));
        }
        Ok(Self { n_components: k, n_features: d, scale, shift, weight, seed, offset })
    }
}
