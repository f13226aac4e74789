//! The moments of full covariances: matrix products of the many samples that wait in a component's queue.
use super::layout::{COLUMNS, Layout, ROWS};
use super::responsibilities::choose;
use super::rows::add_block;
use super::totals::{Flush, MAX_PENDING, MatrixSums};
use crate::backends::cpu::buffer::{Buffer, Zeros, buffer};
use crate::backends::cpu::real::Real;
use crate::simd::isa::{Isa, vectorize};
use crate::simd::lane::{elements, lanes};
use pulp::{Simd, WithSimd};

#[derive(Debug)]
pub(super) struct Queues<T> {
    layout: Layout,
    /// The deviations from the centre: blocks of (`queue`, `COLUMNS` registers).
    waiting: Zeros<T>,
    /// The responsibilities (K, `queue`).
    shares: Buffer<T>,
    /// The deviations of one component times the responsibilities.
    weighted: Buffer<T>,
    /// The number of waiting samples of each component, and the number in its latest sums.
    n_waiting: Vec<usize>,
    n_summed: Vec<usize>,
}

impl<T: Real> Queues<T> {
    pub fn new(layout: Layout, n_components: usize) -> Self {
        let Layout { width, queue, .. } = layout;
        Self {
            layout,
            waiting: Zeros::new(n_components * queue * width),
            shares: buffer(n_components * queue),
            weighted: buffer(queue * width),
            n_waiting: vec![0; n_components],
            n_summed: vec![0; n_components],
        }
    }

    /// Adds the moments of all waiting samples to `sums`.
    pub fn finish(&mut self, isa: Isa, sums: &mut MatrixSums<T>) {
        for c in 0..self.n_waiting.len() {
            isa.run(Drain { queues: &mut *self, sums: &mut *sums, c });
        }
        self.n_summed.fill(0);
    }

    /// Takes the `n` samples of a group as rows (n, `width`), with responsibilities `r`; adds full queues to `sums`.
    #[inline(always)]
    pub fn add<S: Simd, const REGISTERS: usize>(
        &mut self,
        simd: S,
        n: usize,
        samples: &[T::Reg<S>],
        r: &[[T::Reg<S>; REGISTERS]],
        centres: &[T::Reg<S>],
        sums: &mut MatrixSums<T>,
    ) {
        let Layout { width, queue, .. } = self.layout;
        let registers = width / lanes::<T, S>();
        for (c, r) in r.iter().enumerate() {
            let (chosen, m) = choose::<T, S>(r, n);
            let (r, mut chosen) = (elements::<T, S>(r), &chosen[..m]);
            let centre = &centres[c * registers..][..registers];
            while !chosen.is_empty() {
                let at = self.n_waiting[c];
                let (now, later) = chosen.split_at(chosen.len().min(queue - at));
                let waiting = &mut self.waiting[c * queue * width..][..queue * width];
                let waiting = T::registers_mut::<S>(waiting);
                for block in (0..registers).step_by(COLUMNS) {
                    let columns = COLUMNS.min(registers - block);
                    let to = &mut waiting[block * queue + at * columns..][..now.len() * columns];
                    for (to, &row) in to.chunks_exact_mut(columns).zip(now) {
                        let sample = &samples[usize::from(row) * registers + block..][..columns];
                        for ((to, sample), centre) in to.iter_mut().zip(sample).zip(&centre[block..]) {
                            *to = T::sub(simd, *sample, *centre);
                        }
                    }
                }
                for (share, &row) in self.shares[c * queue + at..].iter_mut().zip(now) {
                    *share = r[usize::from(row)];
                }
                self.n_waiting[c] = at + now.len();
                if at + now.len() == queue {
                    drain::<T, S>(simd, Drain { queues: &mut *self, sums: &mut *sums, c });
                }
                chosen = later;
            }
        }
    }
}

/// Adds the moments of the samples waiting for component `c`, which must have its own matrix.
struct Drain<'a, T> {
    queues: &'a mut Queues<T>,
    sums: &'a mut MatrixSums<T>,
    c: usize,
}

/// Runs `drain` compiled for `S`, without inlining it here.
#[inline(never)]
fn drain<T: Real, S: Simd>(simd: S, drain: Drain<'_, T>) {
    vectorize(simd, drain);
}

impl<T: Real> WithSimd for Drain<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (c, lanes) = (self.c, lanes::<T, S>());
        let Queues { layout, waiting, shares, weighted, n_waiting, n_summed } = self.queues;
        let sums = &mut self.sums.latest;
        let (queue, registers, m) = (layout.queue, layout.width / lanes, n_waiting[c]);
        let waiting = &T::registers::<S>(waiting)[c * queue * registers..][..queue * registers];
        let weighted = T::registers_mut::<S>(weighted);
        let [first, second] = layout.component(c);
        let first_moments = T::registers_mut::<S>(&mut sums[first.clone()]);
        for block in (0..registers).step_by(COLUMNS) {
            let columns = COLUMNS.min(registers - block);
            let deviations = waiting[block * queue..][..m * columns].chunks_exact(columns);
            let products = weighted[block * queue..][..m * columns].chunks_exact_mut(columns);
            let mut sum = [T::splat(simd, T::from_f64(0.0)); COLUMNS];
            for ((u, deviation), &r) in products.zip(deviations).zip(&shares[c * queue..][..m]) {
                let r = T::splat(simd, r);
                for ((u, deviation), sum) in u.iter_mut().zip(deviation).zip(&mut sum) {
                    *u = T::mul(simd, *deviation, r);
                    *sum = T::add(simd, *sum, *u);
                }
            }
            for (to, sum) in first_moments[block..].iter_mut().zip(&sum[..columns]) {
                *to = T::add(simd, *to, *sum);
            }
        }
        let sum = T::registers_mut::<S>(&mut sums[second.clone()]);
        for row_block in (0..registers).step_by(COLUMNS) {
            let u_registers = COLUMNS.min(registers - row_block);
            let u = &weighted[row_block * queue..][..m * u_registers];
            for block in (0..=row_block).step_by(COLUMNS) {
                let v_registers = COLUMNS.min(registers - block);
                let v = &waiting[block * queue..][..m * v_registers];
                let end = ((row_block + u_registers) * lanes).min(layout.height);
                for i in (row_block * lanes..end).step_by(ROWS) {
                    let needed = (i + ROWS).div_ceil(lanes).min(block + v_registers) - block;
                    let (u, v) = ((u, u_registers, i - row_block * lanes), (v, v_registers, 0));
                    let sum = &mut sum[i * registers + block..];
                    match needed {
                        COLUMNS => add_block::<T, S, COLUMNS, 1>(simd, u, v, sum, registers),
                        _ => add_block::<T, S, 1, 2>(simd, u, v, sum, registers),
                    }
                }
            }
        }
        n_waiting[c] = 0;
        n_summed[c] += m;
        if n_summed[c] >= MAX_PENDING {
            n_summed[c] = 0;
            let (sums, totals) = self.sums.with_totals();
            Flush { sums: &mut sums[first.clone()], totals: &mut totals[first] }.with_simd(simd);
            let rows = sums[second.clone()].chunks_exact_mut(layout.width);
            for (i, (sums, totals)) in rows.zip(totals[second].chunks_exact_mut(layout.width)).enumerate() {
                // A block of rows has sums only in the registers on and left of the diagonal.
                let end = (i / ROWS * ROWS + ROWS).next_multiple_of(lanes).min(layout.width);
                Flush { sums: &mut sums[..end], totals: &mut totals[..end] }.with_simd(simd);
            }
        }
    }
}
