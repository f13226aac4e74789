//! Samples as rows, and matrix products of such rows.
use super::layout::{COLUMNS, ROWS};
use crate::backends::cpu::real::Real;
use crate::simd::lane::{elements, elements_mut, lanes};
use pulp::Simd;

/// Writes the first `n` samples of a group (REGISTERS, D) as rows (n, `width`), whose padding stays zero.
#[inline(always)]
pub(super) fn transpose<T: Real, S: Simd>(x: &[T::Reg<S>], n: usize, d: usize, width: usize, out: &mut [T::Reg<S>]) {
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

/// Adds uᵀ·v to `sum` (D, `registers`), with u and v (n, `registers`). Entries right of the diagonal are incomplete.
#[inline(always)]
pub(super) fn add_product<T: Real, S: Simd>(
    simd: S,
    d: usize,
    registers: usize,
    u: &[T::Reg<S>],
    v: &[T::Reg<S>],
    sum: &mut [T::Reg<S>],
) {
    for i in (0..d).step_by(ROWS) {
        let needed = (i + ROWS).min(d).div_ceil(lanes::<T, S>());
        let mut j = 0;
        while j < needed {
            let (u, v, sum) = ((u, registers, i), (v, registers, j), &mut sum[i * registers + j..]);
            match needed - j {
                1 => add_block::<T, S, 1, 2>(simd, u, v, sum, registers),
                _ => add_block::<T, S, COLUMNS, 1>(simd, u, v, sum, registers),
            }
            j += COLUMNS;
        }
    }
}

/// Adds a block of uᵀ·v, `ROWS` rows by `WIDTH` registers, to the beginnings of the rows of `sum`, which are
/// `registers` apart. Each factor comes with its rows' number of registers and the block's first element (u) or
/// register (v). `PARTS` samples are added side by side, so that enough sums hide the latency.
#[inline(always)]
pub(super) fn add_block<T: Real, S: Simd, const WIDTH: usize, const PARTS: usize>(
    simd: S,
    (u, u_registers, u_first): (&[T::Reg<S>], usize, usize),
    (v, v_registers, v_first): (&[T::Reg<S>], usize, usize),
    sum: &mut [T::Reg<S>],
    registers: usize,
) {
    let mut block = [[[T::splat(simd, T::from_f64(0.0)); WIDTH]; ROWS]; PARTS];
    let length = u_registers * lanes::<T, S>();
    let whole = v.len() / v_registers / PARTS * PARTS;
    let (u, u_rest) = elements::<T, S>(u).split_at(whole * length);
    let (v, v_rest) = v.split_at(whole * v_registers);
    for (u, v) in u.chunks_exact(PARTS * length).zip(v.chunks_exact(PARTS * v_registers)) {
        for part in 0..PARTS {
            let (u, v) = (&u[part * length + u_first..][..ROWS], &v[part * v_registers + v_first..][..WIDTH]);
            for a in 0..ROWS {
                let u = T::splat(simd, u[a]);
                for b in 0..WIDTH {
                    block[part][a][b] = T::mul_add(simd, v[b], u, block[part][a][b]);
                }
            }
        }
    }
    for (u, v) in u_rest.chunks_exact(length).zip(v_rest.chunks_exact(v_registers)) {
        let (u, v) = (&u[u_first..][..ROWS], &v[v_first..][..WIDTH]);
        for a in 0..ROWS {
            let u = T::splat(simd, u[a]);
            for b in 0..WIDTH {
                block[0][a][b] = T::mul_add(simd, v[b], u, block[0][a][b]);
            }
        }
    }
    for part in &block {
        for a in 0..ROWS {
            for b in 0..WIDTH {
                let sum = &mut sum[a * registers + b];
                *sum = T::add(simd, *sum, part[a][b]);
            }
        }
    }
}
