//! Parameters and results of the kernels of `products_mma`. Nothing here calls CUDA.
use super::centres::{distance, larger, mean_in_frame};
use super::linear::{self, FAR, LinearTerm};
use super::moments::{Moments, Quadratic};
use super::products_shapes::{Shapes, products};
use super::split_component::{Coefficients, Component, TOTAL_ERROR, largest, of_observed, pair_of_halves, power};
use super::whitened_shapes::WhitenedShapes;
use gmm_core::backends::device_parameters::{ColumnConstants, DeviceParameters, numbers_in};
use gmm_core::data::frame::Frame;
use gmm_core::model::covariances::CovarianceType;
use gmm_core::model::linalg::{at_once, map_rows, matrices_at_once, triangle, vectorised};
use gmm_core::model::mixture::Mixture;
use gmm_kernels::estep::fused_mma;
use gmm_kernels::estep::products_mma::{FEATURE_SCALE, ONE, PRODUCT_SCALE};
use ndarray::ArrayView2;
use ndarray::parallel::prelude::*;
use rayon::prelude::*;
use std::sync::Arc;

/// Fewest samples for each unit of [`Moments::spread`], s²: responsibilities, times the samples' weights, are rounded
/// to float16, by 2·10⁻⁴ of themselves in the mean square. This moves means by that many standard deviations over √N in
/// each feature, and so Σₖ nₖ·mₖ·mₖᵀ, unlike the moments of all samples, by √2·s times as much of the scatter, in norm:
/// 4·10⁻⁵. (Without weights most responsibilities are zero or one, which are exact.)
const SAMPLES: f64 = 100.0;
/// The highest exponent: the product of two sums of eight such terms is a float32 number.
const MOST_EXPONENT: f64 = 59.0;

#[derive(Debug, Clone)]
pub(crate) struct TensorCoresLayout {
    pub(super) covariance_type: CovarianceType,
    parameters: Arc<DeviceParameters<f32>>,
    /// The mixture, if values are missing: the E-step adds its moments of these.
    pub(super) mixture: Option<Mixture>,
    /// The coefficients (K, M); those of features are divided by [`ONE`].
    coefficients: Vec<f32>,
    components: Vec<Component>,
    /// The shifts of the triangles (K, D), only in a layout [`of_features`](Self::of_features).
    shifts: Vec<f32>,
    /// The terms that a layout [`of_linear`](Self::of_linear) terms leaves out.
    pub(super) quadratic: Option<Quadratic>,
    /// The largest expected error of an exponent; infinite if too large, or if moments around the data's centre fail.
    ///
    /// Splitting a number into two float16 numbers costs up to 2^-22 of it, 2^-23.5 in the mean square. Both features
    /// of a product, the product, the coefficient and the left-out rest cost together 2^-22 of each coefficient times
    /// product, with random signs. For the samples that a component explains, feature j is about √(Σⱼⱼ + (μⱼ − cⱼ)²)
    /// from the centre c. Besides, numbers have no digits below 2^-25: times [`PRODUCT_SCALE`], and for a product's
    /// features, at most 2^-31.
    error: f64,
}

impl TensorCoresLayout {
    /// Makes the layout for products of features, in the memory of earlier coefficients.
    pub fn of_products(
        memory: Vec<f32>,
        mixture: &Mixture,
        parameters: impl Into<Arc<DeviceParameters<f32>>>,
        frame: &Frame,
    ) -> Self {
        let parameters = parameters.into();
        let (k, d) = mixture.means().dim();
        let full = parameters.has_triangles();
        let mut coefficients = numbers_in(memory, k * products(d, full));
        let dead = |c: usize, row: &mut [f32]| {
            row.fill(0.0);
            (parameters.weight[c] == 0.0).then_some((Component::DEAD, 0.0))
        };
        let of_each = if full {
            // So many that waking the threads does not cost more than they save.
            let at_once = matrices_at_once(k, d, products(d, true) * d / 16);
            Coefficients::map(&parameters, &mut coefficients, at_once, |c, coefficients, row| {
                dead(c, row).unwrap_or_else(|| {
                    let component = Component::products(mixture, &parameters, frame, c, &coefficients, row);
                    let mean: Vec<f32> = mean_in_frame(mixture, &parameters, frame, c).collect();
                    (component, component.error_at(distance(&parameters, c, &mean)))
                })
            })
        } else {
            let rows = coefficients.par_chunks_exact_mut(products(d, false)).enumerate();
            map_rows(rows, at_once(d), |(c, row)| {
                dead(c, row).unwrap_or_else(|| {
                    let component = Component::diagonal(&parameters, c, row);
                    (component, component.error_at(largest(&parameters.shift[c * d..][..d]).into()))
                })
            })
        };
        let (components, errors): (Vec<_>, Vec<f64>) = of_each.into_iter().unzip();
        let of_gaps = parameters.gaps.is_some().then(|| mixture.clone());
        Self { mixture: of_gaps, coefficients, ..Self::of(mixture, parameters, components, errors) }
    }

    /// Makes a layout of components with these errors.
    fn of(
        mixture: &Mixture,
        parameters: Arc<DeviceParameters<f32>>,
        components: Vec<Component>,
        errors: impl IntoIterator<Item = f64>,
    ) -> Self {
        Self {
            covariance_type: mixture.covariance_type(),
            parameters,
            mixture: None,
            coefficients: Vec::new(),
            components,
            shifts: Vec::new(),
            quadratic: None,
            error: errors.into_iter().fold(0.0, larger),
        }
    }

    /// For a `tied` mixture: makes a layout for products of diagonal covariances with coefficients zero for squares, in
    /// the memory of earlier coefficients. The samples' quadratic terms are the same for all components, and come from
    /// `moments`. `precision`: Σ⁻¹.
    ///
    /// Each exponent has [`LinearTerm`]'s error. Besides, the quadratic part of the log-likelihood, ½·tr(Σ⁻¹S), and the
    /// scatter S − Σₖ nₖ·mₖ·mₖᵀ are differences between S and its counterpart in the kernel's sums, whose terms are off
    /// by about 2^-24 of themselves. So by Cauchy and Schwarz a sample's likelihood is off by that much of ½·Σⱼ
    /// Pⱼⱼ·Sⱼⱼ/N with P = Σ⁻¹ in the mean, and the scatter by as much of the covariance. This grows with D as a
    /// log-likelihood does; [`FAR`] bounds it for a feature.
    pub fn of_linear(
        memory: Vec<f32>,
        mixture: &Mixture,
        precision: ArrayView2<'_, f64>,
        frame: &Frame,
        moments: &Arc<Moments>,
    ) -> Self {
        let (k, d) = mixture.means().dim();
        let mut coefficients = numbers_in(memory, k * 2 * d);
        let terms = LinearTerm::of_each(mixture, precision, frame, pair_of_halves, &mut coefficients);
        for row in coefficients.chunks_exact_mut(2 * d) {
            for j in (0..d).rev() {
                (row[2 * j], row[2 * j + 1]) = (row[j] / ONE, 0.0);
            }
        }
        let largest = |of: fn(&LinearTerm) -> f64| terms.iter().flatten().map(of).fold(f64::NEG_INFINITY, larger);
        let mut offset = largest(|term| term.constant);
        // Exponents of diagonal covariances are not above zero, and `fused_mma` takes out the maximum of up to a tile
        // of components only if all are low. So no exponent may be too high.
        if k <= fused_mma::TILE {
            offset = larger(largest(|term| term.most) - MOST_EXPONENT, offset);
        }
        let components = LinearTerm::components(&terms, offset);
        let near = moments.spread(precision) <= (FAR * d as f64).min(moments.samples() as f64 / SAMPLES);
        let errors: Vec<_> = match near {
            true => components.iter().map(|component| component.error_at(0.0)).collect(),
            false => vec![f64::INFINITY],
        };
        let parameters = linear::parameters(mixture, Vec::new(), &components, offset + linear::factor(mixture));
        let layout = Self::of(mixture, parameters.into(), components, errors);
        let quadratic = layout.expandable().then(|| Quadratic::new(precision, moments));
        Self { coefficients, quadratic, ..layout }
    }

    /// For `whitened_mma`, `whitened_wgmma`, and `fused_mma` with matrices, which multiply triangles with the features
    /// themselves: makes a layout without coefficients, which would take D times as long.
    ///
    /// [`Self::error`] is then as follows: the terms of t = A·x + b are split like those of an exponent, and there are
    /// D of them in a row, whose sums the tensor cores truncate; together that costs some 2^-20 of the root of the sum
    /// of their squares, and twice as much of |t|².
    pub fn of_features(mixture: &Mixture, parameters: impl Into<Arc<DeviceParameters<f32>>>, frame: &Frame) -> Self {
        let parameters = parameters.into();
        let (k, d) = mixture.means().dim();
        let mut shifts = vec![0.0; k * d];
        let component = |(c, shift): (usize, &mut [f32])| {
            if parameters.weight[c] == 0.0 {
                return (Component::DEAD, 0.0);
            }
            let (component, distance) = Component::triangle(mixture, &parameters, frame, c, shift);
            (component, component.error_at(distance))
        };
        let rows = shifts.par_chunks_exact_mut(d).enumerate();
        let of_each = map_rows(rows, matrices_at_once(k, d, d * d / 4), component);
        let (components, errors): (Vec<_>, Vec<f64>) = of_each.into_iter().unzip();
        Self { shifts, ..Self::of(mixture, parameters, components, errors) }
    }

    /// Returns whether these kernels keep the mixture's digits.
    pub fn expandable(&self) -> bool {
        self.error.is_finite()
    }

    /// Returns whether they keep the digits of a log-likelihood, which needs more than an E-step.
    pub fn keeps_totals(&self) -> bool {
        self.error <= TOTAL_ERROR
    }

    /// Returns the mean over the mixture's samples of log₂ of the factor by which weights are too small.
    pub fn missing(&self, mixture: &Mixture) -> f64 {
        linear::missing(mixture, &self.components)
    }

    pub fn into_memory(self) -> Vec<f32> {
        self.coefficients
    }

    /// Returns (K, D).
    pub fn dim(&self) -> (usize, usize) {
        (self.parameters.n_components, self.parameters.n_features)
    }

    /// Returns whether products are of all pairs of features.
    pub fn full(&self) -> bool {
        self.parameters.has_triangles()
    }

    pub fn write(&self, shapes: &Shapes, out: &mut [f32]) {
        let (rows, width) = (shapes.exponents.rows(), shapes.exponents.products());
        let (coefficients, rest) = out.split_at_mut(shapes.parts().len() * rows * width);
        let (constants, weights) = rest.split_at_mut(3 * rows);
        let (scales, rest) = constants.split_at_mut(rows);
        let (seeds, of_exponents) = rest.split_at_mut(rows);
        for to in [of_exponents, weights] {
            to.fill(0.0);
            to.iter_mut().zip(&self.components).for_each(|(to, component)| *to = component.weight);
        }
        let m = products(self.parameters.n_features, self.full());
        let component = |c: usize| self.components.get(c).copied().unwrap_or(Component::DEAD);
        for (c, (scale, seed)) in scales.iter_mut().zip(seeds).enumerate() {
            let alive = component(c).weight != 0.0;
            *seed = component(c).seed;
            *scale = if alive { 1.0 / (self.power(c) * PRODUCT_SCALE) } else { 0.0 };
        }
        let parts: Vec<_> = shapes.parts().collect();
        map_rows(coefficients.par_chunks_exact_mut(width).enumerate(), at_once(width / 2), |(i, row)| {
            let (c, features) = (i % rows, parts[i / rows].clone());
            row.fill(0.0);
            if component(c).weight == 0.0 {
                return;
            }
            let power = self.power(c);
            let (from, observed) = (&self.coefficients[c * m..][..m], self.of_observed(c));
            let (from, observed) = match parts.len() {
                1 => (from, &observed[..]),
                _ => (&from[2 * features.start..2 * features.end], &observed[features]),
            };
            row.iter_mut().zip(from.iter().chain(observed)).for_each(|(to, v)| *to = v * power);
        });
    }

    /// Writes the parameters of a mixture with matrices for `whitened_mma` and `whitened_wgmma`.
    pub fn write_whitened(&self, shapes: &WhitenedShapes, out: &mut [f32]) {
        let (k, d) = self.dim();
        let parameters = &self.parameters;
        let weights = || self.components.iter().map(|component| component.weight);
        let [_, of_shifts, of_constants, of_weights] = shapes.sections();
        // Zeros behind K and between the sections.
        out[k * triangle(d)..of_shifts.start].fill(0.0);
        out[of_constants.start..].fill(0.0);
        out[of_weights].iter_mut().zip(weights()).for_each(|(to, weight)| *to = weight);
        let (matrices, rest) = out.split_at_mut(of_shifts.start);
        let (shifts, rest) = rest.split_at_mut(of_shifts.len());
        let (scales, rest) = rest.split_at_mut(k);
        let (seeds, rest) = rest.split_at_mut(k);
        seeds.iter_mut().zip(&self.components).for_each(|(to, component)| *to = component.seed);
        rest.iter_mut().zip(weights()).for_each(|(to, weight)| *to = weight);
        let width = triangle(d);
        let shifts = shifts.par_chunks_exact_mut(shapes.shifts());
        let components = matrices.par_chunks_exact_mut(width).zip(shifts).zip(scales).enumerate();
        map_rows(components, at_once(width / 2), |(c, ((to, shift), scale))| {
            shift.fill(0.0);
            if self.components[c].weight == 0.0 {
                to.fill(0.0);
                return;
            }
            let power = self.power(c);
            vectorised(
                #[inline(always)]
                || to.iter_mut().zip(parameters.triangle(c)).for_each(|(to, a)| *to = pair_of_halves(*a) * power),
            );
            shift[..d].copy_from_slice(self.shift(c));
            *scale = 1.0 / (power * FEATURE_SCALE);
        });
    }

    pub(super) fn parameters(&self) -> &Arc<DeviceParameters<f32>> {
        &self.parameters
    }

    pub(super) fn coefficients(&self) -> &[f32] {
        &self.coefficients
    }

    /// Returns a component's coefficients for observed values (D,); empty if no values are missing.
    pub(super) fn of_observed(&self, c: usize) -> Vec<f32> {
        let of = |gaps: &ColumnConstants<f32>| of_observed(&self.parameters, gaps, c).collect();
        self.parameters.gaps.as_ref().map_or_else(Vec::new, of)
    }

    /// Returns the triangle of a component as pairs of float16 numbers hold it, row by row.
    pub(super) fn triangle(&self, c: usize) -> impl Iterator<Item = f32> {
        self.parameters.triangle(c).iter().map(|a| pair_of_halves(*a))
    }

    pub(super) fn shift(&self, c: usize) -> &[f32] {
        let d = self.parameters.n_features;
        &self.shifts[c * d..][..d]
    }

    /// Returns the factor of a component's coefficients or triangle; see [`power`].
    pub(super) fn power(&self, c: usize) -> f32 {
        power(self.components[c].largest)
    }

    pub(super) fn components(&self) -> &[Component] {
        &self.components
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::likelihood::layout::DEAD_SEED;
    use gmm_core::backends::device_parameters::Deviations;
    use gmm_core::model::covariances::Covariances;
    use gmm_kernels::estep::products_mma::ONE;
    use half::f16;
    use ndarray::{Array2, Axis};
    use ndarray::{Array3, arr1, arr2, arr3};

    /// Splits a number as the kernels do, after they multiply it by a power of two.
    fn split_into_halves(v: f32) -> f32 {
        let rounded = |v: f32| f16::from_f32(v).to_f32();
        let high = rounded(v);
        high + rounded(v - high)
    }

    #[test]
    fn pairs_hold_what_was_rounded_to_them() {
        for v in
            [1.0f32, -3.0, 12345.678, 0.1, 2f32.powi(-3) / 3.0, 2047.75, 16383.999, 3.14159e9, 1.0 - 2f32.powi(-24)]
        {
            let held = pair_of_halves(v);
            assert!((held - v).abs() <= v.abs() * 2f32.powi(-23), "{v} {held}");
            let power = power(v.abs() * 7.0);
            assert_eq!(split_into_halves(held * power), held * power, "{v}");
        }
        assert_eq!(pair_of_halves(0.0), 0.0);
        assert!(pair_of_halves(1e-38).abs() <= 1e-38 && pair_of_halves(1e32).is_finite());
    }

    /// Returns three components, the last without weight, and the parameters in a frame that is not the data's own.
    fn some(covariances: Covariances) -> (Mixture, Frame, DeviceParameters<f32>) {
        let frame = Frame::of(arr2(&[[-30.0f32, 0.1, 5.0], [11.0, 0.2, 9.0], [24.0, 0.7, 9.5]]).view());
        let means = arr2(&[[1.3, 0.3, 7.0], [-8.1, 0.5, 9.1], [0.0, 0.0, 0.0]]);
        let mixture = Mixture::new(arr1(&[0.31, 0.69, 0.0]), means, covariances).unwrap();
        let parameters = DeviceParameters::with_matrices(&mixture, &frame, Deviations::InFrame).unwrap();
        (mixture, frame, parameters)
    }

    /// Returns log₂ of the kernels' factor of a component's 2^(exponent − seed), corrected for its error.
    fn log2_factor(component: &Component) -> f64 {
        f64::from(component.weight).log2() + component.missing
    }

    /// Completing the square gives the mean and the integral of the held numbers.
    #[test]
    fn a_held_diagonal_has_the_mean_and_is_normalised() {
        let variances = arr2(&[[31.7, 0.013, 2.1], [1.0, 0.02, 5.3], [1.0, 1.0, 1.0]]);
        let (mixture, frame, parameters) = some(Covariances::Diag(variances));
        let layout = TensorCoresLayout::of_products(Vec::new(), &mixture, parameters.clone(), &frame);
        for c in 0..2 {
            let component = &layout.components[c];
            let mut log2 = f64::from(component.seed) + log2_factor(component);
            let mut expected = f64::from(parameters.seed[c]) + f64::from(parameters.weight[c]).log2();
            for j in 0..3 {
                let [first, square] = [0, 1].map(|i| f64::from(layout.coefficients[6 * c + 2 * j + i]));
                let (first, square) = (first * f64::from(ONE), -square);
                let mean = frame.apply(j, mixture.means()[[c, j]]);
                assert!((first / (2.0 * square) - mean).abs() <= 2f64.powi(-22) * mean.abs(), "{c} {j}");
                let s = f64::from(parameters.scale[3 * c + j]);
                assert_ne!(square, s * s, "there is something to correct");
                log2 += first * first / (4.0 * square) - square.log2() / 2.0;
                expected -= s.log2();
            }
            assert!((log2 - expected).abs() < 1e-13 * (1.0 + expected.abs()), "{c}: {log2} {expected}");
        }
        assert_eq!((layout.components[2].weight, layout.components[2].seed), (0.0, DEAD_SEED));
    }

    #[test]
    fn a_held_triangle_has_the_mean_and_is_normalised() {
        let one = arr2(&[[31.7, 0.31, 2.1], [0.31, 0.02, 0.05], [2.1, 0.05, 1.9]]);
        let mut all = Array3::zeros((3, 3, 3));
        [one.clone(), one * 0.3, Array2::eye(3)]
            .iter()
            .enumerate()
            .for_each(|(c, m)| all.index_axis_mut(Axis(0), c).assign(m));
        let (mixture, frame, parameters) = some(Covariances::Full(all));
        let layout = TensorCoresLayout::of_features(&mixture, parameters.clone(), &frame);
        for c in 0..2 {
            let held: Vec<f32> = layout.triangle(c).collect();
            let from = parameters.triangle(c);
            assert_ne!(held, from, "there is something to correct");
            let mean: Vec<f64> = (0..3).map(|j| frame.apply(j, mixture.means()[[c, j]])).collect();
            let mut log2 = f64::from(layout.components[c].seed) + log2_factor(&layout.components[c]);
            let mut expected = f64::from(parameters.seed[c]) + f64::from(parameters.weight[c]).log2();
            for i in 0..3 {
                let terms = || (0..=i).map(|j| f64::from(held[triangle(i) + j]) * mean[j]);
                let size: f64 = terms().map(f64::abs).sum();
                let of_mean = terms().sum::<f64>() + f64::from(layout.shift(c)[i]);
                assert!(of_mean.abs() <= 2f64.powi(-24) * size, "{c} {i}: {of_mean}");
                log2 -= f64::from(held[triangle(i) + i]).log2();
                expected -= f64::from(from[triangle(i) + i]).log2();
            }
            assert!((log2 - expected).abs() < 1e-13 * (1.0 + expected.abs()), "{c}: {log2} {expected}");
        }
    }

    /// Features are multiplied unless a component is so narrow and far, or so correlated, that digits are lost.
    #[test]
    fn features_are_multiplied_where_their_digits_suffice() {
        let x = arr2(&[[-4.0f32, -4.0], [0.0, 0.0], [4.0, 4.0]]);
        let frame = Frame::of(x.view());
        let expandable = |mean: f64, correlation: f64| {
            let (variance, other) = (1.0, correlation);
            let covariances = Covariances::Full(arr3(&[[[variance, other], [other, variance]]]));
            let mixture = Mixture::new(arr1(&[1.0]), arr2(&[[mean, 0.0]]), covariances).unwrap();
            let parameters = DeviceParameters::with_matrices(&mixture, &frame, Deviations::InFrame).unwrap();
            TensorCoresLayout::of_features(&mixture, parameters, &frame).expandable()
        };
        assert!(expandable(0.0, 0.0) && expandable(3.0, 0.9));
        assert!(!expandable(100.0, 0.0) && !expandable(0.0, 1.0 - 1e-5));
    }
}
