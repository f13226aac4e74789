//! The E-step kernel: log-sum-exp and sufficient statistics from one read of the samples.
//!
//! All moments are taken around each component's current mean, so that nothing cancels, and summed in the element
//! type over a few thousand samples at most; the caller adds these sums up in float64.
//!
//! - `diag`, `spherical`: with t = s·x + m at hand, Σ r·t and Σ r·t², register by register of samples.
//! - `full`: the group's samples are turned into rows; Σ r·(x−c) and the lower triangle of Σ r·(x−c)(x−c)ᵀ are products of
//!   matrices.
//! - `tied`: Σₖ r(x−cₖ)(x−cₖ)ᵀ of one sample is its scatter around the conditional mean c̄ = Σₖ r·cₖ plus that of the cₖ
//!   around c̄, and the latter is ½ Σₖₗ rₖrₗ(cₖ−cₗ)(cₖ−cₗ)ᵀ (both without a difference of squares). So a sample takes one outer product of
//!   D features and one of K responsibilities, instead of K of D features.
use super::kernel::{Chunk, GROUP, Group, Product, Visitor, logarithms};
use super::real::{Real, elements, elements_mut, lanes};
use crate::backends::device_parameters::{DeviceParameters, Matrices};
use pulp::{Simd, WithSimd};

/// Samples of a group at most: `GROUP` of the widest registers.
const MAX_GROUP: usize = 16 * GROUP;
/// Rows of a product of matrices that are formed together.
const ROWS: usize = 4;

/// How the sums lie in memory: first sums that are spread over the elements of registers, (`spread`, L), then the rows of
/// matrices, padded to whole registers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub lanes: usize,
    /// Number of spread sums: the counts (K,), then, without matrices, first (K, D) and second moments (K, D).
    pub spread: usize,
    /// Length of a row of D features.
    pub width: usize,
    /// Length of a row of K responsibilities (`tied`).
    pub pair_width: usize,
    /// Where the second moments begin, (K, D, width) or (D, width) with the number of rows rounded up. The first moments,
    /// (K, width), lie before them.
    pub second: usize,
    /// Rows of one component's second moments, rounded up.
    pub height: usize,
    /// Where the pairs of responsibilities begin, (K, `pair_width`).
    pub pairs: usize,
    /// The number of elements in all.
    pub length: usize,
}

impl Layout {
    pub fn new<T>(parameters: &DeviceParameters<T>, lanes: usize) -> Self {
        let (k, d) = (parameters.n_components, parameters.n_features);
        let unit = lanes.max(ROWS);
        let (width, height) = (d.next_multiple_of(unit), d.next_multiple_of(ROWS));
        let (matrices, pairs) = match parameters.matrices {
            Matrices::Diagonal => (0, false),
            Matrices::Each(_) => (k, false),
            Matrices::Shared(_) => (1, true),
        };
        let spread = if matrices == 0 { k + 2 * k * d } else { k };
        let first = spread * lanes;
        let second = first + if matrices == 0 { 0 } else { k * width };
        let pairs_begin = second + matrices * height * width;
        let pair_width = if pairs { k.next_multiple_of(unit) } else { 0 };
        let length = pairs_begin + if pairs { k.next_multiple_of(ROWS) * pair_width } else { 0 };
        Self { lanes, spread, width, pair_width, second, height, pairs: pairs_begin, length }
    }

    /// Length of the buffer of rows that a group needs.
    pub fn rows(&self) -> usize {
        MAX_GROUP * (3 * self.width + 2 * self.pair_width)
    }
}

/// The E-step over a chunk, whose sums are added to `sums`. The output is the total of log₂ p − offset.
pub(crate) struct EStep<'a, T> {
    pub chunk: Chunk<'a, T>,
    pub layout: Layout,
    /// The weights of the chunk's samples, if they have any.
    pub weights: Option<&'a [f64]>,
    /// The centres of the moments in the frame, (K, width); empty without matrices.
    pub centres: &'a [T],
    /// As long as [`Layout::length`] says.
    pub sums: &'a mut [T],
    /// As long as [`Layout::rows`] says.
    pub rows: &'a mut [T],
}

impl<T: Real> WithSimd for EStep<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let layout = self.layout;
        let (spread, matrices) = T::registers_mut::<S>(self.sums).split_at_mut(layout.spread);
        let mut moments = Moments::<T, S> {
            n: self.chunk.n,
            parameters: self.chunk.parameters,
            layout,
            weights: self.weights,
            centres: T::registers::<S>(self.centres),
            spread,
            matrices,
            rows: T::registers_mut::<S>(self.rows),
            product: Product::new(simd),
            log2: 0.0,
        };
        self.chunk.for_each_group(simd, &mut moments);
        if self.weights.is_some() { moments.log2 } else { moments.product.log2() }
    }
}

/// Moves the sums of the element type into totals in float64.
pub(crate) struct Flush<'a, T> {
    pub sums: &'a mut [T],
    pub totals: &'a mut [f64],
}

impl<T: Real> WithSimd for Flush<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (total, sum) in self.totals.iter_mut().zip(self.sums) {
            let v: f64 = (*sum).into();
            *total += v;
            *sum = T::from_f64(0.0);
        }
    }
}

struct Moments<'a, T: Real, S: Simd> {
    n: usize,
    parameters: &'a DeviceParameters<T>,
    layout: Layout,
    weights: Option<&'a [f64]>,
    centres: &'a [T::Reg<S>],
    spread: &'a mut [T::Reg<S>],
    matrices: &'a mut [T::Reg<S>],
    rows: &'a mut [T::Reg<S>],
    product: Product<T, S>,
    log2: f64,
}

impl<T: Real, S: Simd> Visitor<T, S> for Moments<'_, T, S> {
    const TERMS: bool = true;

    #[inline(always)]
    fn visit<const REGISTERS: usize>(&mut self, simd: S, group: Group<'_, T::Reg<S>, REGISTERS>) {
        let n = (self.n - group.first).min(REGISTERS * lanes::<T, S>());
        let mut weight = [T::splat(simd, T::from_f64(1.0)); REGISTERS];
        match self.weights {
            None => {
                self.product.multiply(simd, group.sum, group.shift, n);
                elements_mut::<T, S>(&mut weight)[n..].fill(T::from_f64(0.0));
            }
            Some(weights) => {
                let weights = &weights[group.first..][..n];
                let mut log2 = [0.0; MAX_GROUP];
                logarithms::<T, S>(&mut log2[..n], &group.sum, group.shift.as_ref().map(|v| &v[..]));
                let weight = elements_mut::<T, S>(&mut weight);
                weight.fill(T::from_f64(0.0));
                for ((to, &w), log2) in weight.iter_mut().zip(weights).zip(log2) {
                    *to = T::from_f64(w);
                    self.log2 += w * log2;
                }
            }
        }
        // From here on `terms` holds the responsibilities times the samples' weights.
        let mut share = weight;
        for g in 0..REGISTERS {
            share[g] = T::div(simd, weight[g], group.sum[g]);
        }
        for (terms, count) in group.terms.iter_mut().zip(self.spread.iter_mut()) {
            for g in 0..REGISTERS {
                terms[g] = T::mul(simd, terms[g], share[g]);
                *count = T::add(simd, *count, terms[g]);
            }
        }
        match self.parameters.matrices {
            Matrices::Diagonal => self.diagonal(simd, group.x, group.terms),
            Matrices::Each(_) => self.full(simd, n, group.x, group.terms),
            Matrices::Shared(_) => self.tied(simd, n, group.x, group.terms, &weight),
        }
    }
}

impl<T: Real, S: Simd> Moments<'_, T, S> {
    #[inline(always)]
    fn diagonal<const REGISTERS: usize>(&mut self, simd: S, x: &[T::Reg<S>], r: &[[T::Reg<S>; REGISTERS]]) {
        let (k, d) = (self.parameters.n_components, self.parameters.n_features);
        let (first, second) = self.spread[k..].split_at_mut(k * d);
        let mut samples = [&x[..0]; REGISTERS];
        for (g, samples) in samples.iter_mut().enumerate() {
            *samples = &x[g * d..][..d];
        }
        for (c, r) in r.iter().enumerate() {
            let mut most = r[0];
            for &r in &r[1..] {
                most = T::max(simd, most, r);
            }
            if !T::any_above(simd, most, T::NEGLIGIBLE) {
                continue;
            }
            let scale_and_shift = self.parameters.scale[c * d..][..d].iter().zip(&self.parameters.shift[c * d..][..d]);
            let moments = first[c * d..][..d].iter_mut().zip(&mut second[c * d..][..d]);
            for (j, ((&s, &m), (first, second))) in scale_and_shift.zip(moments).enumerate() {
                let (s, m) = (T::splat(simd, s), T::splat(simd, m));
                let (mut a, mut b) = (*first, *second);
                for g in 0..REGISTERS {
                    let t = T::mul_add(simd, samples[g][j], s, m);
                    let u = T::mul(simd, r[g], t);
                    a = T::add(simd, a, u);
                    b = T::mul_add(simd, u, t, b);
                }
                (*first, *second) = (a, b);
            }
        }
    }

    #[inline(always)]
    fn full<const REGISTERS: usize>(&mut self, simd: S, n: usize, x: &[T::Reg<S>], r: &[[T::Reg<S>; REGISTERS]]) {
        let (k, d) = (self.parameters.n_components, self.parameters.n_features);
        let registers = self.layout.width / lanes::<T, S>();
        let (samples, rest) = self.rows.split_at_mut(MAX_GROUP * registers);
        let (deviations, rest) = rest.split_at_mut(MAX_GROUP * registers);
        let weighted = &mut rest[..MAX_GROUP * registers];
        let (first, second) = self.matrices.split_at_mut(k * registers);
        transpose::<T, S>(x, n, d, self.layout.width, samples);
        for (c, r) in r.iter().enumerate() {
            let (chosen, m) = choose::<T, S>(r, n);
            if m == 0 {
                continue;
            }
            let r = elements::<T, S>(r);
            for v in 0..registers {
                let centre = self.centres[c * registers + v];
                let mut sum = first[c * registers + v];
                for (to, &row) in chosen[..m].iter().enumerate() {
                    let deviation = T::sub(simd, samples[usize::from(row) * registers + v], centre);
                    let u = T::mul(simd, deviation, T::splat(simd, r[usize::from(row)]));
                    deviations[to * registers + v] = deviation;
                    weighted[to * registers + v] = u;
                    sum = T::add(simd, sum, u);
                }
                first[c * registers + v] = sum;
            }
            let size = self.layout.height * registers;
            let second = &mut second[c * size..][..size];
            add_product::<T, S>(simd, d, registers, &weighted[..m * registers], &deviations[..m * registers], second);
        }
    }

    #[inline(always)]
    fn tied<const REGISTERS: usize>(
        &mut self,
        simd: S,
        n: usize,
        x: &[T::Reg<S>],
        r: &[[T::Reg<S>; REGISTERS]],
        weight: &[T::Reg<S>; REGISTERS],
    ) {
        let (k, d) = (self.parameters.n_components, self.parameters.n_features);
        let lanes = lanes::<T, S>();
        let (registers, pair_registers) = (self.layout.width / lanes, self.layout.pair_width / lanes);
        let (samples, rest) = self.rows.split_at_mut(MAX_GROUP * registers);
        let (deviations, rest) = rest.split_at_mut(MAX_GROUP * registers);
        let (weighted, rest) = rest.split_at_mut(MAX_GROUP * registers);
        let (pairs, weighted_pairs) = rest.split_at_mut(MAX_GROUP * pair_registers);
        let (first, second) = self.matrices.split_at_mut(k * registers);
        let (second, pair_sums) = second.split_at_mut(self.layout.height * registers);
        transpose::<T, S>(x, n, d, self.layout.width, samples);
        let zero = T::splat(simd, T::from_f64(0.0));
        deviations[..n * registers].fill(zero);
        // deviations = Σₖ r·(x − cₖ) = weight·(x − c̄)
        for (c, r) in r.iter().enumerate() {
            let (chosen, m) = choose::<T, S>(r, n);
            let r = elements::<T, S>(r);
            for v in 0..registers {
                let centre = self.centres[c * registers + v];
                let mut sum = first[c * registers + v];
                for &row in &chosen[..m] {
                    let at = usize::from(row) * registers + v;
                    let deviation = T::sub(simd, samples[at], centre);
                    let u = T::mul(simd, deviation, T::splat(simd, r[usize::from(row)]));
                    deviations[at] = T::add(simd, deviations[at], u);
                    sum = T::add(simd, sum, u);
                }
                first[c * registers + v] = sum;
            }
            let to = elements_mut::<T, S>(pairs);
            for row in 0..n {
                to[row * self.layout.pair_width + c] = r[row];
            }
        }
        for (row, &w) in elements::<T, S>(weight)[..n].iter().enumerate() {
            let w: f64 = w.into();
            let inverse = T::splat(simd, T::from_f64(if w > 0.0 { 1.0 / w } else { 0.0 }));
            for at in row * registers..(row + 1) * registers {
                weighted[at] = T::mul(simd, deviations[at], inverse);
            }
            for at in row * pair_registers..(row + 1) * pair_registers {
                weighted_pairs[at] = T::mul(simd, pairs[at], inverse);
            }
        }
        let (u, v) = (&weighted[..n * registers], &deviations[..n * registers]);
        add_product::<T, S>(simd, d, registers, u, v, second);
        let (u, v) = (&weighted_pairs[..n * pair_registers], &pairs[..n * pair_registers]);
        add_product::<T, S>(simd, k, pair_registers, u, v, pair_sums);
    }
}

/// Writes the first `n` samples of a group (REGISTERS, D) as rows (n, `width`). The padding of the rows stays zero.
#[inline(always)]
fn transpose<T: Real, S: Simd>(x: &[T::Reg<S>], n: usize, d: usize, width: usize, out: &mut [T::Reg<S>]) {
    let lanes = lanes::<T, S>();
    let out = elements_mut::<T, S>(out);
    for (g, block) in x.chunks_exact(d).enumerate() {
        let block = elements::<T, S>(block);
        for lane in 0..lanes.min(n.saturating_sub(g * lanes)) {
            let row = &mut out[(g * lanes + lane) * width..][..d];
            for (to, from) in row.iter_mut().zip(block[lane..].iter().step_by(lanes)) {
                *to = *from;
            }
        }
    }
}

/// The indices of those of the first `n` samples whose responsibilities are not negligible, and their number.
#[inline(always)]
fn choose<T: Real, S: Simd>(r: &[T::Reg<S>], n: usize) -> ([u8; MAX_GROUP], usize) {
    let (mut chosen, mut m) = ([0; MAX_GROUP], 0);
    for (row, &r) in elements::<T, S>(r)[..n].iter().enumerate() {
        chosen[m % MAX_GROUP] = row as u8;
        m += usize::from(r > T::NEGLIGIBLE);
    }
    (chosen, m)
}

/// Adds uᵀ·v to `sum` (D, width), where u and v are (n, width). Only the entries on and left of the diagonal are complete.
#[inline(always)]
fn add_product<T: Real, S: Simd>(
    simd: S,
    d: usize,
    registers: usize,
    u: &[T::Reg<S>],
    v: &[T::Reg<S>],
    sum: &mut [T::Reg<S>],
) {
    let mut i = 0;
    while i < d {
        let needed = (i + ROWS).min(d).div_ceil(lanes::<T, S>());
        let mut j = 0;
        while j + 1 < needed {
            add_block::<T, S, 2>(simd, registers, i, j, u, v, sum);
            j += 2;
        }
        if j < needed {
            add_block::<T, S, 1>(simd, registers, i, j, u, v, sum);
        }
        i += ROWS;
    }
}

/// Adds rows `i..i + ROWS` and registers `j..j + COLUMNS` of the product.
#[inline(always)]
fn add_block<T: Real, S: Simd, const COLUMNS: usize>(
    simd: S,
    registers: usize,
    i: usize,
    j: usize,
    u: &[T::Reg<S>],
    v: &[T::Reg<S>],
    sum: &mut [T::Reg<S>],
) {
    let width = registers * lanes::<T, S>();
    let mut block = [[T::splat(simd, T::from_f64(0.0)); COLUMNS]; ROWS];
    for (u, v) in elements::<T, S>(u).chunks_exact(width).zip(v.chunks_exact(registers)) {
        let (u, v) = (&u[i..][..ROWS], &v[j..][..COLUMNS]);
        for a in 0..ROWS {
            let u = T::splat(simd, u[a]);
            for b in 0..COLUMNS {
                block[a][b] = T::mul_add(simd, v[b], u, block[a][b]);
            }
        }
    }
    for a in 0..ROWS {
        for b in 0..COLUMNS {
            let sum = &mut sum[(i + a) * registers + j + b];
            *sum = T::add(simd, *sum, block[a][b]);
        }
    }
}
