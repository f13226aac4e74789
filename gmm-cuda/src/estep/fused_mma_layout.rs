//! Parameters and results of the kernels `fused_mma`. Nothing here calls CUDA.
use super::centres::larger;
use super::products_shapes::{Expanded, products};
use super::products_statistics::{SumsOfProducts, by_feature, row_by_row};
use super::split_component::{Component, largest, largest_sizes, power};
use super::sums::Sums;
use super::tensor_cores_layout::TensorCoresLayout;
use crate::likelihood::layout::DEAD_SEED;
use gmm_core::error::Result;
use gmm_core::statistics::Statistics;
use gmm_kernels::estep::fused_mma::{BY_VALUE, FusedShape, STEP, TILE};
use gmm_kernels::estep::products_mma::{FEATURE_SCALE, ONE, PRODUCT_SCALE};

/// The factor that turns a sum over a feature into one over products of the feature and the number one.
const OF_FEATURES: f32 = FEATURE_SCALE * ONE;

/// Returns the row of the sums of features `i` and `j` ≤ `i` of D; `j` = D: of `i` alone; `j` = D + 1: if `i` is
/// observed.
fn row(shape: FusedShape, d: usize, i: usize, j: usize) -> usize {
    if shape.rotations == 0 {
        let kind = match j {
            _ if j == i => 1,
            _ if j > d => 2,
            _ => 0,
        };
        return (shape.kinds() * (i / STEP) + kind) * STEP + i % STEP;
    }
    if j == d {
        return i;
    }
    // `i` is `places` behind `j`, and `j` the rest behind `i`.
    let places = i - j;
    if places < shape.rotations && 2 * places <= d { STEP * (1 + places) + j } else { STEP * (1 + d - places) + i }
}

/// Transposes a matrix of whole tiles of this many columns, to be read column by column.
fn transposed(values: &[f64], columns: usize) -> Vec<f64> {
    let rows = values.len() / columns;
    let mut out = vec![0.0; values.len()];
    for (t, tile) in out.chunks_exact_mut(TILE * rows).enumerate() {
        for (i, row) in values.chunks_exact(columns).enumerate() {
            let to = tile[i..].iter_mut().step_by(rows);
            to.zip(&row[t * TILE..][..TILE]).for_each(|(to, v)| *to = *v);
        }
    }
    out
}

impl TensorCoresLayout {
    fn expanded(&self) -> Expanded {
        Expanded::of(self.full(), self.quadratic.is_some())
    }

    /// Writes the parameters for the kernel: the coefficients and 3 constants of each component.
    pub fn write_fused(&self, shape: FusedShape, out: &mut [f32]) {
        let (k, d) = self.dim();
        let capacity = shape.capacity();
        debug_assert!(k <= capacity && d <= shape.features() && out.len() == shape.numbers());
        out.fill(0.0);
        let (coefficients, constants) = out.split_at_mut(shape.coefficients());
        constants[capacity..][..capacity].fill(DEAD_SEED);
        for (c, &Component { seed, weight, .. }) in self.components().iter().enumerate() {
            if weight == 0.0 {
                continue;
            }
            let to = &mut coefficients[c..];
            let scale = if shape.expanded > 0 {
                self.write_products(c, to, capacity)
            } else if self.full() {
                -self.write_matrix(c, to, capacity)
            } else {
                self.write_diagonal(shape, c, to, capacity)
            };
            for (i, v) in [scale, seed, weight].into_iter().enumerate() {
                constants[i * capacity + c] = v;
            }
        }
    }

    /// Writes the coefficients of a component's products in their own order, and returns the factor for its sums.
    fn write_products(&self, c: usize, out: &mut [f32], capacity: usize) -> f32 {
        let (d, power, of) = (self.dim().1, self.power(c), self.expanded());
        let width = products(d, self.full());
        // For features alone every other coefficient is left out.
        let from = self.coefficients()[c * width..][..width].iter().step_by(width / of.count(d));
        out.iter_mut().step_by(capacity).zip(from).for_each(|(to, v)| *to = v * power);
        1.0 / (power * PRODUCT_SCALE)
    }

    /// Writes the coefficients of features and squares, and returns the factor for sums.
    fn write_diagonal(&self, shape: FusedShape, c: usize, out: &mut [f32], capacity: usize) -> f32 {
        let d = self.dim().1;
        let of_products = |(i, v): (usize, f32)| if i.is_multiple_of(2) { v * OF_FEATURES } else { v };
        // Even and odd ones apart.
        let sizes = largest_sizes(&self.coefficients()[c * 2 * d..][..2 * d]);
        let observed = self.of_observed(c);
        let power = power(sizes.into_iter().enumerate().map(of_products).fold(largest(&observed), larger));
        for (j, both) in self.coefficients()[c * 2 * d..][..2 * d].chunks_exact(2).enumerate() {
            let at = row(shape, d, j, d);
            out[at * capacity] = both[0] * OF_FEATURES * power;
            out[(at + STEP) * capacity] = both[1] * power;
        }
        for (j, v) in observed.into_iter().enumerate() {
            out[row(shape, d, j, d + 1) * capacity] = v * power;
        }
        1.0 / (power * PRODUCT_SCALE)
    }

    /// Writes the coefficients of a component's A·x + b, (features, 16), and returns the factor for sums of squares.
    fn write_matrix(&self, c: usize, out: &mut [f32], capacity: usize) -> f32 {
        let shift = self.shift(c);
        // Features are multiplied by the scale, and the number one by the scale and `ONE`.
        let of_one = shift.iter().map(|b| b / OF_FEATURES);
        let power = power(of_one.clone().map(f32::abs).fold(self.components()[c].largest / FEATURE_SCALE, larger));
        let mut triangle = self.triangle(c);
        for (i, b) in of_one.enumerate() {
            for (j, a) in triangle.by_ref().take(i + 1).enumerate() {
                out[(i * STEP + j) * capacity] = a / FEATURE_SCALE * power;
            }
            out[(i * STEP + STEP - 1) * capacity] = b * power;
        }
        1.0 / (power * power)
    }

    /// Returns the parameters by value, if the kernel takes them so.
    pub fn fused_by_value(&self, shape: FusedShape) -> Option<[f32; BY_VALUE]> {
        shape.by_value().then(|| {
            let mut values = [0.0; BY_VALUE];
            self.write_fused(shape, &mut values[..shape.numbers()]);
            values
        })
    }

    /// Returns the statistics, from the kernel's log₂-likelihood and the sums that follow it.
    pub fn fused_statistics(&self, shape: FusedShape, sums_of: &Sums<'_>) -> Result<Statistics> {
        let Sums { values, weight_scale, total_weight, exp2_bias, .. } = *sums_of;
        let (rows, capacity, d) = (shape.products(), shape.capacity(), self.dim().1);
        let (log2, values) = (values[0], &values[1..]);
        // With more than one tile the maximum is taken out, and its 2⁰ is exact.
        let bias = if shape.components == 1 { exp2_bias } else { 0.0 };
        let log2 = weight_scale * log2 + total_weight * bias;
        let (values, counts) = values.split_at(rows * capacity);
        let (counts, rounded) = counts.split_at(capacity);
        let of_components = transposed(values, capacity);
        let of_component = |c: usize| &of_components[c * rows..][..rows];
        if shape.expanded > 0 {
            let of = self.expanded();
            let product = |c: usize, factors: (usize, usize)| of_component(c)[of.place(d, factors)];
            // Consecutive, in the order of j.
            let row = |c: usize, i: usize, to: &mut [f64]| {
                let products = &of_component(c)[of.place(d, (i, 0))..];
                to.iter_mut().zip(products).for_each(|(to, product)| *to = *product);
            };
            let diagonal = &by_feature(d, product);
            return self.statistics_of(SumsOfProducts { counts, rounded, product, row, diagonal, log2 }, sums_of);
        }
        // Of each feature, and of its square.
        let places: Vec<[usize; 2]> = (0..d).map(|i| [row(shape, d, i, d), row(shape, d, i, i)]).collect();
        let product = |c: usize, (i, j): (usize, usize)| {
            let [of_feature, of_square] = places[i];
            match j {
                _ if j == d => of_component(c)[of_feature] * f64::from(OF_FEATURES),
                _ if j == i => of_component(c)[of_square],
                _ => of_component(c)[row(shape, d, i, j)],
            }
        };
        let (row, diagonal) = (row_by_row(product), &by_feature(d, product));
        self.statistics_of(SumsOfProducts { counts, rounded, product, row, diagonal, log2 }, sums_of)
    }
}
