//! Pairs of a sample and a component, a register of components at a time.
//!
//! With T = R·Σ·Rᵀ + S = L·diag(p)·Lᵀ of a pair, the density needs one factorisation and one solution. The sums over
//! the samples are those of u = Rᵀ·T⁻¹·(x − R·μ) with the responsibilities r: n = Σr, h = Σr·u, and E = Σr·(u·uᵀ −
//! Rᵀ·T⁻¹·R). Those of the true values follow once for each component: around μ, their first moments are Σ·h and their
//! second moments n·Σ + Σ·E·Σ.
//!
//! Matrices are lower triangles, row by row. C is the number of columns of each sample, or 0 if that varies.
use super::rows::Row;
use crate::backends::cpu::buffer::{Buffer, buffer};
use crate::backends::cpu::real::Real;
use crate::model::gaussian::Covariance;
use crate::model::linalg::triangle;
use crate::model::mixture::Mixture;
use crate::simd::Lane;
use crate::simd::lane::lanes;
use pulp::{Simd, WithSimd, bytemuck};
use std::f64::consts::{LN_2, LOG2_E, SQRT_2};

/// Pivots below this share of their variance are rounding noise.
const SINGULAR: f64 = f64::EPSILON;
/// The distances of samples whose squared distances overflow are multiplied by this.
const FROM_AFAR: f64 = 1e-200;
/// Factors whose product of mantissas stays finite.
const FACTORS: usize = 512;
/// The most bytes of the factors of a sample under all components that are kept until its responsibilities are known.
const KEPT: usize = 1 << 20;

type Reg<S> = <S as Simd>::f64s;

/// Returns a·b + c.
#[inline(always)]
fn mul_add<S: Simd>(simd: S, a: Reg<S>, b: Reg<S>, c: Reg<S>) -> Reg<S> {
    <f64 as Lane>::mul_add(simd, a, b, c)
}

/// Returns c − a·b.
#[inline(always)]
fn sub_mul<S: Simd>(simd: S, a: Reg<S>, b: Reg<S>, c: Reg<S>) -> Reg<S> {
    <f64 as Lane>::sub_mul(simd, a, b, c)
}

/// Returns the place of an entry of a symmetric matrix in its lower triangle.
#[inline(always)]
fn entry_at(i: usize, j: usize) -> usize {
    if i < j { triangle(j) + i } else { triangle(i) + j }
}

/// A mixture, with the numbers of `lanes` components side by side.
pub(super) struct Parameters {
    pub k: usize,
    pub d: usize,
    pub lanes: usize,
    /// log₂ πₖ; −∞ in lanes without a component.
    log2_weights: Buffer<f64>,
    means: Buffer<f64>,
    covariances: Buffer<f64>,
    pub of_measurements: bool,
}

impl Parameters {
    pub fn new(mixture: &Mixture, lanes: usize) -> Self {
        let (k, d) = mixture.means().dim();
        let blocks = k.div_ceil(lanes);
        let mut log2_weights = buffer(blocks * lanes);
        let (mut means, mut covariances) = (buffer(blocks * d * lanes), buffer(blocks * triangle(d) * lanes));
        log2_weights.fill(f64::NEG_INFINITY);
        for block in 0..blocks {
            for lane in 0..lanes {
                // Lanes without a component repeat the last one.
                let c = (block * lanes + lane).min(k - 1);
                let covariance = Covariance::of(mixture, c).into_matrix();
                for i in 0..d {
                    means[(block * d + i) * lanes + lane] = mixture.means()[[c, i]];
                    for j in 0..=i {
                        covariances[(block * triangle(d) + triangle(i) + j) * lanes + lane] = covariance[[i, j]];
                    }
                }
            }
        }
        (0..k).for_each(|c| log2_weights[c] = mixture.log2_weight(c));
        Self { k, d, lanes, log2_weights, means, covariances, of_measurements: mixture.is_of_measurements() }
    }

    pub fn blocks(&self) -> usize {
        self.k.div_ceil(self.lanes)
    }

    /// Returns the length of the sums n, h and E of all components.
    pub fn sums(&self) -> usize {
        self.blocks() * (1 + self.d + triangle(self.d)) * self.lanes
    }
}

/// Room for a sample with at most `c` columns.
pub(super) struct Room {
    /// The factors of each block: L with 1/p in the place of the diagonal, and L⁻¹·(x − R·μ).
    kept: Buffer<f64>,
    keeps_all: bool,
    /// L⁻¹, T⁻¹, and rows of R·Σ or of T⁻¹·R.
    inverse: Buffer<f64>,
    precision: Buffer<f64>,
    product: Buffer<f64>,
    column: Buffer<f64>,
    limits: Buffer<f64>,
    /// log₂ of the densities of the sample under all components, then its responsibilities.
    pub values: Buffer<f64>,
}

impl Room {
    pub fn new(parameters: &Parameters, c: usize) -> Self {
        let Parameters { d, lanes, .. } = *parameters;
        let each = (triangle(c) + c) * lanes;
        let keeps_all = parameters.blocks() * each * size_of::<f64>() <= KEPT;
        Self {
            kept: buffer(each * if keeps_all { parameters.blocks() } else { 1 }),
            keeps_all,
            inverse: buffer(triangle(c) * lanes),
            precision: buffer(triangle(c) * lanes),
            product: buffer(c * d * lanes),
            column: buffer(c.max(d) * lanes),
            limits: buffer(c * lanes),
            values: buffer(parameters.blocks() * lanes),
        }
    }
}

/// Computes log₂ of the densities of a sample under all components, into the values of the room. Returns whether a
/// factor is singular. `is_far`: less 0.5·log₂ e times squared distances, of distances times [`FROM_AFAR`].
pub(super) struct Densities<'a, const C: usize> {
    pub parameters: &'a Parameters,
    pub row: &'a Row,
    pub room: &'a mut Room,
    pub is_far: bool,
}

impl<const C: usize> WithSimd for Densities<'_, C> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        let Self { parameters, row, room, is_far } = self;
        let c = if C > 0 { C } else { row.x.len() };
        let size = triangle(c) + c;
        let mut least = simd.splat_f64s(f64::INFINITY);
        for block in 0..parameters.blocks() {
            let at = if room.keeps_all { block * size } else { 0 };
            let kept = &mut f64::registers_mut::<S>(&mut room.kept)[at..][..size];
            let others = Others {
                product: f64::registers_mut::<S>(&mut room.product),
                column: f64::registers_mut::<S>(&mut room.column),
                limits: f64::registers_mut::<S>(&mut room.limits),
            };
            let scale = if is_far { FROM_AFAR } else { 1.0 };
            let (square, log2_det, of_block) = factorise::<S, C>(simd, parameters, row, block, scale, kept, others);
            least = simd.min_f64s(of_block, least);
            let far = simd.mul_f64s(square, simd.splat_f64s(-0.5 * LOG2_E));
            let seed = f64::registers::<S>(&parameters.log2_weights)[block];
            let norm = sub_mul(simd, log2_det, simd.splat_f64s(0.5), seed);
            f64::registers_mut::<S>(&mut room.values)[block] = if is_far { far } else { simd.add_f64s(norm, far) };
        }
        f64::any_below(simd, least, 0.0)
    }
}

struct Others<'a, R> {
    product: &'a mut [R],
    column: &'a mut [R],
    limits: &'a mut [R],
}

/// Writes T and x − R·μ of a sample and a block, and factorises: T becomes L with 1/p, and x − R·μ becomes L⁻¹·(x −
/// R·μ). Returns (x − R·μ)ᵀ·T⁻¹·(x − R·μ), log₂ |2πT|, and a number below 0 where T is singular.
#[inline(always)]
fn factorise<S: Simd, const C: usize>(
    simd: S,
    parameters: &Parameters,
    row: &Row,
    block: usize,
    scale: f64,
    kept: &mut [Reg<S>],
    others: Others<'_, Reg<S>>,
) -> (Reg<S>, Reg<S>, Reg<S>) {
    let d = if C > 0 { C } else { parameters.d };
    let c = if C > 0 { C } else { row.x.len() };
    let (t, y) = kept.split_at_mut(triangle(c));
    let (y, column, limits) = (&mut y[..c], &mut others.column[..c], &mut others.limits[..c]);
    let mean = &f64::registers::<S>(&parameters.means)[block * d..][..d];
    let sigma = &f64::registers::<S>(&parameters.covariances)[block * triangle(d)..][..triangle(d)];
    if C > 0 {
        for (t, (sigma, noise)) in t.iter_mut().zip(sigma.iter().zip(&row.noise[..triangle(c)])) {
            *t = simd.add_f64s(*sigma, simd.splat_f64s(*noise));
        }
        for i in 0..c {
            y[i] = simd.sub_f64s(simd.splat_f64s(row.x[i]), mean[i]);
        }
    } else {
        write_any(simd, row, mean, sigma, others.product, t, y);
    }
    let scale = simd.splat_f64s(scale);
    for i in 0..c {
        y[i] = simd.mul_f64s(y[i], scale);
        limits[i] = simd.mul_f64s(t[triangle(i) + i], simd.splat_f64s(SINGULAR));
    }
    let one = simd.splat_f64s(1.0);
    let (mut square, mut least) = (simd.splat_f64s(0.0), simd.splat_f64s(f64::INFINITY));
    let (mut mantissas, mut counters) = (one, simd.splat_u32s(0));
    let mut log2 = simd.splat_f64s(0.0);
    for j in 0..c {
        let pivot = t[triangle(j) + j];
        // What follows a singular pivot may be no number, for which the second one counts.
        least = simd.min_f64s(simd.sub_f64s(pivot, limits[j]), least);
        let inverse = simd.div_f64s(one, pivot);
        let (mantissa, counted) = f64::split(simd, pivot, counters);
        (mantissas, counters) = (simd.mul_f64s(mantissas, mantissa), counted);
        if C == 0 && (j + 1) % FACTORS == 0 {
            log2 = simd.add_f64s(log2, log2_of(simd, mantissas, counters, FACTORS));
            (mantissas, counters) = (one, simd.splat_u32s(0));
        }
        square = mul_add(simd, simd.mul_f64s(y[j], inverse), y[j], square);
        for i in j + 1..c {
            column[i] = t[triangle(i) + j];
        }
        for i in j + 1..c {
            let share = simd.mul_f64s(column[i], inverse);
            let of_row = &mut t[triangle(i)..][..=i];
            for (v, of_column) in of_row[j + 1..].iter_mut().zip(&column[j + 1..=i]) {
                *v = sub_mul(simd, share, *of_column, *v);
            }
            of_row[j] = share;
            y[i] = sub_mul(simd, share, y[j], y[i]);
        }
        t[triangle(j) + j] = inverse;
    }
    let rest = if C > 0 { C } else { c % FACTORS };
    log2 = simd.add_f64s(log2, log2_of(simd, mantissas, counters, rest));
    let log2_tau = (2.0 * std::f64::consts::PI).log2() * c as f64;
    (square, simd.add_f64s(log2, simd.splat_f64s(log2_tau)), least)
}

/// Writes T and x − R·μ of a sample that lacks columns or is a projection. `product` is room for R·Σ.
#[inline(always)]
fn write_any<S: Simd>(
    simd: S,
    row: &Row,
    mean: &[Reg<S>],
    sigma: &[Reg<S>],
    product: &mut [Reg<S>],
    t: &mut [Reg<S>],
    y: &mut [Reg<S>],
) {
    let d = mean.len();
    for (i, y) in y.iter_mut().enumerate() {
        *y = simd.splat_f64s(row.x[i]);
        if row.projection.is_empty() {
            *y = simd.sub_f64s(*y, mean[row.columns[i]]);
            for j in 0..=i {
                let noise = simd.splat_f64s(row.noise[triangle(i) + j]);
                t[triangle(i) + j] = simd.add_f64s(sigma[entry_at(row.columns[i], row.columns[j])], noise);
            }
            continue;
        }
        let r = &row.projection[i * d..][..d];
        let product = &mut product[i * d..][..d];
        product.fill(simd.splat_f64s(0.0));
        for (l, &r) in r.iter().enumerate().filter(|(_, r)| **r != 0.0) {
            let r = simd.splat_f64s(r);
            *y = sub_mul(simd, r, mean[l], *y);
            for (k, product) in product.iter_mut().enumerate() {
                *product = mul_add(simd, r, sigma[entry_at(k, l)], *product);
            }
        }
        for j in 0..=i {
            let mut sum = simd.splat_f64s(row.noise[triangle(i) + j]);
            for (k, &r) in row.projection[j * d..][..d].iter().enumerate() {
                sum = mul_add(simd, product[k], simd.splat_f64s(r), sum);
            }
            t[triangle(i) + j] = sum;
        }
    }
}

/// Returns log₂ of a product of positive normal numbers, given the product of their mantissas and the sum of their
/// exponent fields.
#[inline(always)]
fn log2_of<S: Simd>(simd: S, mantissas: Reg<S>, counters: S::u32s, factors: usize) -> Reg<S> {
    let (m, counters) = f64::split(simd, mantissas, counters);
    // The sum e is below 2²⁰, in the upper half of a word: with the exponent of 2⁵² above it, it is 2⁵² + e·2³².
    let e = simd.and_u64s(bytemuck::cast(counters), simd.splat_u64s(0xffff_ffff_0000_0000));
    let e = simd.transmute_f64s_u64s(simd.or_u64s(e, simd.splat_u64s(0x4330_0000_0000_0000)));
    let e = simd.sub_f64s(e, simd.splat_f64s((1u64 << 52) as f64));
    let bias = simd.splat_f64s(-1023.0 * (factors + 1) as f64);
    let exponent = mul_add(simd, e, simd.splat_f64s(1.0 / (1u64 << 32) as f64), bias);
    // log m = log √2 + 2·artanh t.
    let root = simd.splat_f64s(SQRT_2);
    let t = simd.div_f64s(simd.sub_f64s(m, root), simd.add_f64s(m, root));
    let square = simd.mul_f64s(t, t);
    let mut sum = simd.splat_f64s(1.0 / 21.0);
    for odd in (1..=19).rev().step_by(2) {
        sum = mul_add(simd, sum, square, simd.splat_f64s(1.0 / f64::from(odd)));
    }
    let half = simd.add_f64s(exponent, simd.splat_f64s(0.5));
    mul_add(simd, simd.mul_f64s(sum, t), simd.splat_f64s(2.0 / LN_2), half)
}

/// Turns the values of the room into 2^(value − `largest`), and returns their sum, in the order of the components.
pub(super) struct Shares<'a> {
    pub k: usize,
    pub largest: f64,
    pub values: &'a mut [f64],
}

impl WithSimd for Shares<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let largest = simd.splat_f64s(self.largest);
        for value in f64::registers_mut::<S>(self.values) {
            *value = <f64 as Lane>::exp2(simd, simd.sub_f64s(*value, largest));
        }
        self.values[..self.k].iter().sum()
    }
}

/// Adds n, h and E of a sample to the sums of all components. The values of the room are r up to `factor`.
pub(super) struct Accumulation<'a, const C: usize> {
    pub parameters: &'a Parameters,
    pub row: &'a Row,
    pub room: &'a mut Room,
    pub factor: f64,
    pub sums: &'a mut [f64],
}

impl<const C: usize> WithSimd for Accumulation<'_, C> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { parameters, row, room, factor, sums } = self;
        let d = if C > 0 { C } else { parameters.d };
        let c = if C > 0 { C } else { row.x.len() };
        let (size, width) = (triangle(c) + c, 1 + d + triangle(d));
        let factor = simd.splat_f64s(factor);
        for block in 0..parameters.blocks() {
            let r = simd.mul_f64s(f64::registers::<S>(&room.values)[block], factor);
            // Beside the largest responsibility the others are nothing.
            if !f64::any_above(simd, f64::registers::<S>(&room.values)[block], f64::NEGLIGIBLE) {
                continue;
            }
            let at = if room.keeps_all { block * size } else { 0 };
            let kept = &mut f64::registers_mut::<S>(&mut room.kept)[at..][..size];
            let product = f64::registers_mut::<S>(&mut room.product);
            let column = f64::registers_mut::<S>(&mut room.column);
            if !room.keeps_all {
                let limits = f64::registers_mut::<S>(&mut room.limits);
                let others = Others { product, column, limits };
                factorise::<S, C>(simd, parameters, row, block, 1.0, kept, others);
            }
            let inverse = &mut f64::registers_mut::<S>(&mut room.inverse)[..triangle(c)];
            let precision = &mut f64::registers_mut::<S>(&mut room.precision)[..triangle(c)];
            let column = f64::registers_mut::<S>(&mut room.column);
            invert::<S, C>(simd, c, kept, inverse, precision, &mut column[..c]);
            let sums = &mut f64::registers_mut::<S>(sums)[block * width..][..width];
            let (n, sums) = sums.split_at_mut(1);
            let (h, e) = sums.split_at_mut(d);
            n[0] = simd.add_f64s(n[0], r);
            if C == 0 {
                let product = f64::registers_mut::<S>(&mut room.product);
                add_any(simd, row, r, &column[..c], precision, product, h, e);
                continue;
            }
            for i in 0..c {
                let scaled = simd.mul_f64s(r, column[i]);
                h[i] = simd.add_f64s(h[i], scaled);
                let of_row = precision[triangle(i)..].iter().zip(&column[..=i]);
                for (sum, (precision, u)) in e[triangle(i)..].iter_mut().zip(of_row) {
                    *sum = sub_mul(simd, r, *precision, mul_add(simd, scaled, *u, *sum));
                }
            }
        }
    }
}

/// Computes L⁻¹, T⁻¹ = L⁻ᵀ·diag(1/p)·L⁻¹ and u = T⁻¹·(x − R·μ) from the factors.
#[inline(always)]
fn invert<S: Simd, const C: usize>(
    simd: S,
    c: usize,
    kept: &[Reg<S>],
    inverse: &mut [Reg<S>],
    precision: &mut [Reg<S>],
    u: &mut [Reg<S>],
) {
    let c = if C > 0 { C } else { c };
    let (l, y) = kept.split_at(triangle(c));
    let zero = simd.splat_f64s(0.0);
    precision.fill(zero);
    u.fill(zero);
    for i in 0..c {
        let (done, of_row) = inverse.split_at_mut(triangle(i));
        for (to, l) in of_row[..i].iter_mut().zip(&l[triangle(i)..]) {
            *to = simd.sub_f64s(zero, *l);
        }
        for k in 1..i {
            let factor = l[triangle(i) + k];
            for (to, v) in of_row[..k].iter_mut().zip(&done[triangle(k)..]) {
                *to = sub_mul(simd, factor, *v, *to);
            }
        }
        of_row[i] = simd.splat_f64s(1.0);
        let pivot = l[triangle(i) + i];
        for a in 0..=i {
            let factor = simd.mul_f64s(of_row[a], pivot);
            u[a] = mul_add(simd, factor, y[i], u[a]);
            for (to, v) in precision[triangle(a)..][..=a].iter_mut().zip(&of_row[..]) {
                *to = mul_add(simd, factor, *v, *to);
            }
        }
    }
}

/// Adds h and E of a sample that lacks columns or is a projection. `product` is room for (u·uᵀ − T⁻¹)·R.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // The parts of a pair, in registers.
fn add_any<S: Simd>(
    simd: S,
    row: &Row,
    r: Reg<S>,
    u: &[Reg<S>],
    precision: &[Reg<S>],
    product: &mut [Reg<S>],
    h: &mut [Reg<S>],
    e: &mut [Reg<S>],
) {
    let d = h.len();
    for (i, &of_value) in u.iter().enumerate() {
        let scaled = simd.mul_f64s(r, of_value);
        if row.projection.is_empty() {
            let a = row.columns[i];
            h[a] = simd.add_f64s(h[a], scaled);
            for j in 0..=i {
                let to = &mut e[entry_at(a, row.columns[j])];
                *to = sub_mul(simd, r, precision[triangle(i) + j], mul_add(simd, scaled, u[j], *to));
            }
            continue;
        }
        let product = &mut product[..d];
        product.fill(simd.splat_f64s(0.0));
        for j in 0..u.len() {
            let entry = sub_mul(simd, r, precision[entry_at(i, j)], simd.mul_f64s(scaled, u[j]));
            for (k, &r) in row.projection[j * d..][..d].iter().enumerate().filter(|(_, r)| **r != 0.0) {
                product[k] = mul_add(simd, entry, simd.splat_f64s(r), product[k]);
            }
        }
        for (k, &r) in row.projection[i * d..][..d].iter().enumerate().filter(|(_, r)| **r != 0.0) {
            let r = simd.splat_f64s(r);
            h[k] = mul_add(simd, scaled, r, h[k]);
            for (to, product) in e[triangle(k)..][..=k].iter_mut().zip(&product[..]) {
                *to = mul_add(simd, r, *product, *to);
            }
        }
    }
}

/// Returns the number of components in a register.
pub(super) struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        lanes::<f64, S>()
    }
}
