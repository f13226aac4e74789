//! The log densities of rows under each state.
use crate::tile::{LANES, Lanes, exp, fill};
use gmm_core::model::density::Density;
use gmm_core::model::linalg::product;
use gmm_core::reproducible::Functions;
use gmm_host::linalg::vectorised;
use gmm_host::{CovarianceType, Mixture, Samples, View};
use ndarray::{Array2, ArrayView2, s};
use std::ops::Range;

/// Features from which a matrix product is faster than a loop over tiles.
const WIDE: usize = 32;

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

    /// Writes the log densities of `rows` under each component, with its weight within the state (rows, K·M).
    pub fn components(&self, samples: &Samples<'_>, rows: Range<usize>, out: &mut [f64]) {
        let view = samples.view();
        let wide = self.mixture.factor().is_some() && self.mixture.n_features() >= WIDE;
        if wide && samples.missing().is_none() {
            return self.by_products(&view, rows, out);
        }
        let (n, d) = (self.n_components(), self.mixture.n_features());
        let (mut columns, mut differences) = (vec![[0.0; LANES]; d], vec![[0.0; LANES]; d]);
        let mut density = None;
        for (out, start) in out.chunks_mut(LANES * n).zip(rows.clone().step_by(LANES)) {
            let of_tile = start..rows.end.min(start + LANES);
            let missing = fill(&view, of_tile.clone(), &mut columns);
            vectorised(
                #[inline(always)]
                || self.of_tile(&columns, &mut differences, out),
            );
            for (lane, row) in of_tile.enumerate().filter(|(lane, _)| missing >> lane & 1 == 1) {
                let density = density.get_or_insert_with(|| Density::new(self.mixture));
                let out = &mut out[lane * n..][..n];
                match &view {
                    View::F32(x) => density.evaluate(x.row(row).mapv(f64::from).view(), out),
                    View::F64(x) => density.evaluate(x.row(row), out),
                };
                out.iter_mut().zip(&self.of_weight).for_each(|(out, of_weight)| *out += of_weight);
            }
        }
    }

    #[inline(always)]
    fn of_tile(&self, columns: &[Lanes], differences: &mut [Lanes], out: &mut [f64]) {
        let (n, d) = (self.n_components(), columns.len());
        let means = self.mixture.means();
        for c in 0..n {
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
            for (out, square) in out.iter_mut().skip(c).step_by(n).zip(&square) {
                *out = self.log_density(c, *square);
            }
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

    fn by_products(&self, view: &View<'_>, rows: Range<usize>, out: &mut [f64]) {
        let n = self.n_components();
        let x = match view {
            View::F32(x) => x.slice(s![rows, ..]).mapv(f64::from),
            View::F64(x) => x.slice(s![rows, ..]).to_owned(),
        };
        for c in 0..n {
            let Some(u) = self.mixture.factor_of(c) else { continue };
            let y = self.transformed(x.view(), c, u);
            for (out, y) in out.iter_mut().skip(c).step_by(n).zip(y.outer_iter()) {
                let y = y.to_slice().unwrap_or_default();
                *out = self.log_density(c, gmm_host::linalg::sum_of([y], |[y]| y * y));
            }
        }
    }

    fn transformed(&self, x: ArrayView2<'_, f64>, c: usize, u: ArrayView2<'_, f64>) -> Array2<f64> {
        product((&x - &self.mixture.means().row(c)).view(), u)
    }

    /// Writes the log densities of the states (rows, `stride`), of whose rows the first K are used, from those of the
    /// components (rows, K·M).
    pub fn states(&self, components: &[f64], stride: usize, out: &mut [f64]) {
        let n = self.n_components();
        let per_state = n / self.n_states;
        for (components, out) in components.chunks_exact(n).zip(out.chunks_exact_mut(stride)) {
            if per_state == 1 {
                out[..n].copy_from_slice(components);
                continue;
            }
            for (of_state, out) in components.chunks_exact(per_state).zip(out) {
                let most = of_state.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                *out = if most > f64::NEG_INFINITY {
                    most + of_state.iter().map(|v| exp(v - most)).sum::<f64>().log_e()
                } else {
                    most
                };
            }
        }
    }

    /// Replaces the components' log densities (rows, K·M) by their responsibilities, given those of the states
    /// (rows, `stride`) and the states' log densities.
    pub fn responsibilities(&self, components: &mut [f64], logs: &[f64], gamma: &[f64], stride: usize) {
        let n = self.n_components();
        let per_state = n / self.n_states;
        let rows = components.chunks_exact_mut(n).zip(logs.chunks_exact(stride)).zip(gamma.chunks_exact(stride));
        for ((components, logs), gamma) in rows {
            if per_state == 1 {
                components.copy_from_slice(&gamma[..n]);
                continue;
            }
            for ((of_state, log), gamma) in components.chunks_exact_mut(per_state).zip(logs).zip(gamma) {
                of_state
                    .iter_mut()
                    .for_each(|v| *v = if *gamma > 0.0 { gamma * exp((*v - log).min(0.0)) } else { 0.0 });
            }
        }
    }
}
