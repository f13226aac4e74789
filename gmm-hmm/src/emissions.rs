//! The log densities of rows under each state.
use crate::tile::{LANES, Lanes, NO_ROW, exp, fill};
use gmm_core::model::density::Density;
use gmm_core::model::linalg::product;
use gmm_core::reproducible::Functions;
use gmm_host::linalg::vectorised;
use gmm_host::{CovarianceType, Mixture, Samples, View};
use ndarray::{Array2, ArrayView2, Axis, s};
use std::ops::Range;

/// Features from which a matrix product is faster than a loop over tiles.
const WIDE: usize = 32;

/// The columns of a triangle that one matrix product computes.
pub(crate) const COLUMNS: usize = 64;

/// A mixture whose components belong to states, M neighbours to each.
pub(crate) struct Emissions<'a> {
    pub mixture: &'a Mixture,
    pub n_states: usize,
    /// log w − ½ log |2πΣ| of each component, with its weight w within the state (K·M,).
    constants: Vec<f64>,
    /// log of the weight within the state less that in the mixture (K·M,).
    of_weight: Vec<f64>,
    /// 1/σ (K·M, D), or the columns of U with Σ⁻¹ = U·Uᵀ without their zeros, for each component or once.
    scales: Vec<f64>,
}

impl<'a> Emissions<'a> {
    /// Adds `offsets` (K,) to the log densities of the states.
    pub fn new(mixture: &'a Mixture, n_states: usize, offsets: &[f64]) -> Self {
        let (n, d) = mixture.means().dim();
        let per_state = n / n_states;
        let weights = mixture.weights();
        let of_weight: Vec<f64> = (0..n)
            .map(|c| {
                let state = c / per_state;
                let sum: f64 = weights.slice(s![state * per_state..(state + 1) * per_state]).sum();
                offsets.get(state).copied().unwrap_or(0.0) - sum.log_e()
            })
            .collect();
        let log_2_pi = std::f64::consts::TAU.log_e();
        let constants = (0..n)
            .map(|c| weights[c].log_e() + of_weight[c] - 0.5 * (mixture.log_det(c) + d as f64 * log_2_pi))
            .collect();
        let matrices = match mixture.covariance_type() {
            CovarianceType::Full => n,
            CovarianceType::Tied => 1,
            CovarianceType::Diag | CovarianceType::Spherical => 0,
        };
        let mut scales = Vec::new();
        for u in (0..matrices).filter_map(|c| mixture.factor_of(c)) {
            u.columns().into_iter().enumerate().for_each(|(j, column)| scales.extend(column.iter().take(j + 1)));
        }
        if matrices == 0 {
            scales.extend((0..n * d).map(|i| 1.0 / mixture.variance(i / d, i % d).sqrt()));
        }
        Self { mixture, n_states, constants, of_weight, scales }
    }

    /// Returns K·M.
    pub fn n_components(&self) -> usize {
        self.constants.len()
    }

    /// Writes the log densities of rows under each component, with its weight within the state (tiles, K·M), for
    /// [`LANES`] of the `rows` in each tile.
    pub fn components(&self, samples: &Samples<'_>, rows: &[usize], out: &mut [Lanes]) {
        let view = samples.view();
        let wide = self.mixture.factor().is_some() && self.mixture.n_features() >= WIDE;
        if wide && samples.missing().is_none() {
            return self.by_products(&view, rows, out);
        }
        let (n, d) = (self.n_components(), self.mixture.n_features());
        let (mut columns, mut differences) = (vec![[0.0; LANES]; d], vec![[0.0; LANES]; d]);
        let mut density = None;
        for (out, rows) in out.chunks_exact_mut(n).zip(rows.chunks_exact(LANES)) {
            let missing = vectorised(
                #[inline(always)]
                || {
                    let missing = fill(&view, rows, &mut columns);
                    self.of_tile(&columns, &mut differences, out);
                    missing
                },
            );
            for (lane, &row) in rows.iter().enumerate().filter(|(lane, _)| missing >> lane & 1 == 1) {
                let density = density.get_or_insert_with(|| Density::new(self.mixture));
                let mut of_row = vec![0.0; n];
                match &view {
                    View::F32(x) => density.evaluate(x.row(row).mapv(f64::from).view(), &mut of_row),
                    View::F64(x) => density.evaluate(x.row(row), &mut of_row),
                };
                for ((out, v), of_weight) in out.iter_mut().zip(&of_row).zip(&self.of_weight) {
                    out[lane] = v + of_weight;
                }
            }
        }
    }

    #[inline(always)]
    fn of_tile(&self, columns: &[Lanes], differences: &mut [Lanes], out: &mut [Lanes]) {
        let d = columns.len();
        let means = self.mixture.means();
        for (c, out) in out.iter_mut().enumerate() {
            let mut square = [0.0; LANES];
            if self.mixture.factor().is_none() {
                let scales = &self.scales[c * d..][..d];
                for ((x, mean), scale) in columns.iter().zip(means.row(c)).zip(scales) {
                    for (square, x) in square.iter_mut().zip(x) {
                        let y = (x - mean) * scale;
                        *square += y * y;
                    }
                }
            } else {
                for ((difference, x), mean) in differences.iter_mut().zip(columns).zip(means.row(c)) {
                    difference.iter_mut().zip(x).for_each(|(difference, x)| *difference = x - mean);
                }
                let mut u = self.triangle(c, d);
                for j in 0..d {
                    let (column, rest) = u.split_at(j + 1);
                    u = rest;
                    let mut y = [0.0; LANES];
                    for (u, difference) in column.iter().zip(&*differences) {
                        y.iter_mut().zip(difference).for_each(|(y, difference)| *y += u * difference);
                    }
                    square.iter_mut().zip(&y).for_each(|(square, y)| *square += y * y);
                }
            }
            out.iter_mut().zip(&square).for_each(|(out, square)| *out = self.log_density(c, *square));
        }
    }

    /// A square that overflows is the difference of infinities, NaN, or infinite.
    #[inline(always)]
    fn log_density(&self, c: usize, square: f64) -> f64 {
        if square < f64::INFINITY { self.constants[c] - 0.5 * square } else { f64::NEG_INFINITY }
    }

    fn triangle(&self, c: usize, d: usize) -> &[f64] {
        let numbers = d * (d + 1) / 2;
        let of = if self.mixture.covariance_type() == CovarianceType::Tied { 0 } else { c };
        &self.scales[of * numbers..][..numbers]
    }

    fn by_products(&self, view: &View<'_>, rows: &[usize], out: &mut [Lanes]) {
        let n = self.n_components();
        let x = matrix(view, rows, self.mixture.n_features());
        for c in 0..n {
            let Some(u) = self.mixture.factor_of(c) else { continue };
            let y = self.transformed(x.view(), c, u);
            for (out, y) in out.iter_mut().skip(c).step_by(n).zip(y.axis_chunks_iter(Axis(0), LANES)) {
                for (out, y) in out.iter_mut().zip(y.outer_iter()) {
                    let y = y.to_slice().unwrap_or_default();
                    *out = self.log_density(c, gmm_host::linalg::sum_of([y], |[y]| y * y));
                }
            }
        }
    }

    /// Returns the product with an upper triangular U, without most of its zeros.
    fn transformed(&self, x: ArrayView2<'_, f64>, c: usize, u: ArrayView2<'_, f64>) -> Array2<f64> {
        let (x, d) = (&x - &self.mixture.means().row(c), u.ncols());
        let mut y = Array2::zeros(x.raw_dim());
        for start in (0..d).step_by(COLUMNS) {
            let end = d.min(start + COLUMNS);
            y.slice_mut(s![.., start..end]).assign(&product(x.slice(s![.., ..end]), u.slice(s![..end, start..end])));
        }
        y
    }

    /// Writes the log densities of the states (tiles, K) from those of the components (tiles, K·M), and replaces those
    /// by p(component | state).
    #[inline(always)]
    pub fn states(&self, components: &mut [Lanes], out: &mut [Lanes]) {
        for (of_state, out) in components.chunks_exact_mut(self.n_components() / self.n_states).zip(out) {
            let (mut most, mut sum) = ([f64::NEG_INFINITY; LANES], [0.0; LANES]);
            for v in &*of_state {
                most.iter_mut().zip(v).for_each(|(most, v)| *most = if *v > *most { *v } else { *most });
            }
            for v in &mut *of_state {
                for (l, v) in v.iter_mut().enumerate() {
                    *v = if most[l] > f64::NEG_INFINITY { exp(*v - most[l]) } else { 0.0 };
                    sum[l] += *v;
                }
            }
            for v in &mut *of_state {
                v.iter_mut().zip(&sum).for_each(|(v, sum)| *v = if *sum > 0.0 { *v / sum } else { 0.0 });
            }
            for (l, out) in out.iter_mut().enumerate() {
                *out = if sum[l] > 0.0 { most[l] + sum[l].log_e() } else { f64::NEG_INFINITY };
            }
        }
    }

    /// Writes the log densities of the states (rows, `stride`), of whose rows the first K are used.
    pub fn logs(&self, samples: &Samples<'_>, rows: Range<usize>, stride: usize, out: &mut [f64]) {
        let (n, k) = (self.n_components(), self.n_states);
        let mut list: Vec<usize> = rows.collect();
        list.resize(list.len().next_multiple_of(LANES), NO_ROW);
        let mut components = vec![[0.0; LANES]; list.len() / LANES * n];
        self.components(samples, &list, &mut components);
        let mut states = vec![[0.0; LANES]; k];
        for (components, out) in components.chunks_exact_mut(n).zip(out.chunks_mut(LANES * stride)) {
            match n > k {
                true => self.states(components, &mut states),
                false => states.copy_from_slice(components),
            }
            for (l, out) in out.chunks_exact_mut(stride).enumerate() {
                out.iter_mut().zip(&states).for_each(|(out, v)| *out = v[l]);
            }
        }
    }
}

/// Returns a copy of rows (rows, D), with zeros for [`NO_ROW`].
pub(crate) fn matrix(view: &View<'_>, rows: &[usize], d: usize) -> Array2<f64> {
    let mut out = Array2::zeros((rows.len(), d));
    for (mut out, &row) in out.outer_iter_mut().zip(rows).filter(|(_, row)| **row != NO_ROW) {
        match view {
            View::F32(x) => out.zip_mut_with(&x.row(row), |out, v| *out = f64::from(*v)),
            View::F64(x) => out.assign(&x.row(row)),
        }
    }
    out
}
