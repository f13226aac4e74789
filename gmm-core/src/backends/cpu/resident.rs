//! The samples in the kernels' layout.
use super::buffer::Zeros;
use super::real::Real;
use crate::data::float::Float;
use crate::data::frame::Frame;
use crate::data::samples::{Samples, View};
use crate::simd::isa::Isa;
use crate::simd::lane::lanes;
use ndarray::parallel::prelude::*;
use ndarray::{ArrayView2, Axis};
use pulp::{Simd, WithSimd};
use rayon::slice::ParallelSliceMut;
use std::marker::PhantomData;

/// Samples in their [`Frame`], as an array (⌈N/L⌉, D, L) with L elements in a register: a register holds one feature of
/// L samples. The last block is filled up with copies of the last sample. A missing value is NaN.
#[derive(Debug)]
pub(crate) struct Resident<T> {
    pub frame: Frame,
    pub n: usize,
    pub d: usize,
    /// L.
    pub lanes: usize,
    /// The number of samples whose sums are formed in one piece. It depends on D alone, so that results do not depend
    /// on the threads; is a multiple of every L; and a chunk (nearly) fits into the second-level cache.
    pub chunk: usize,
    x: Zeros<T>,
}

/// About the elements of a chunk: enough that, under matrices of many features with components far apart, the samples
/// of one component fill whole registers (ten iterations of K = 16, D = 200 took 0.71 s with a quarter of it).
const CHUNK_ELEMENTS: usize = 1 << 18;
/// Chunks are multiples of this many samples: sixteen of the widest registers.
const CHUNK_UNIT: usize = 256;
const MAX_CHUNK: usize = 2048;

impl<T: Real> Resident<T> {
    pub fn new(samples: &Samples<'_>, frame: Frame, isa: Isa) -> Self {
        match samples.view() {
            View::F32(x) => Self::of(x, frame, isa),
            View::F64(x) => Self::of(x, frame, isa),
        }
    }

    fn of<V: Float>(samples: ArrayView2<'_, V>, frame: Frame, isa: Isa) -> Self {
        struct Lanes<T>(PhantomData<T>);
        impl<T: Real> WithSimd for Lanes<T> {
            type Output = usize;
            #[inline(always)]
            fn with_simd<S: Simd>(self, _: S) -> usize {
                lanes::<T, S>()
            }
        }
        let lanes = isa.run(Lanes::<T>(PhantomData));
        let (n, d) = samples.dim();
        let chunk = (CHUNK_ELEMENTS / d / CHUNK_UNIT * CHUNK_UNIT).clamp(CHUNK_UNIT, MAX_CHUNK);
        let mut x = Zeros::new(n.div_ceil(lanes) * lanes * d);
        let lay_out = |(out, samples): (&mut [T], ArrayView2<'_, V>)| {
            let copy: Vec<V>;
            let rows = match samples.to_slice() {
                Some(rows) => rows,
                None => {
                    copy = samples.iter().copied().collect();
                    &copy
                }
            };
            isa.run(LayOut { rows, frame: &frame, out });
        };
        // Waking other threads takes longer than laying out one chunk.
        match n <= chunk {
            true => lay_out((&mut x, samples)),
            false => x.par_chunks_mut(chunk * d).zip(samples.axis_chunks_iter(Axis(0), chunk)).for_each(lay_out),
        }
        Self { frame, n, d, lanes, chunk, x }
    }

    pub fn n_chunks(&self) -> usize {
        self.n.div_ceil(self.chunk)
    }

    /// Returns the registers of chunk `c`, and the range of its samples.
    pub fn chunk(&self, c: usize) -> (&[T], std::ops::Range<usize>) {
        let samples = c * self.chunk..self.n.min((c + 1) * self.chunk);
        let length = samples.len().div_ceil(self.lanes) * self.lanes * self.d;
        (&self.x[samples.start * self.d..][..length], samples)
    }
}

/// Lays out `rows` (n, D) in the registers `out` (⌈n/L⌉, D, L), the last filled up with copies of the last row.
struct LayOut<'a, V, T> {
    rows: &'a [V],
    frame: &'a Frame,
    out: &'a mut [T],
}

impl<V: Float, T: Real> WithSimd for LayOut<'_, V, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let (d, lanes) = (self.frame.shift.len(), lanes::<T, S>());
        // The frame of each element of a block, to convert consecutive elements at once.
        let (shift, scale) = (self.frame.shift.repeat(lanes), self.frame.scale.repeat(lanes));
        let mut block = vec![T::from_f64(0.0); lanes * d];
        for (rows, out) in self.rows.chunks(lanes * d).zip(self.out.chunks_exact_mut(lanes * d)) {
            // A loop, because a closure would not be compiled for the instruction set.
            for (((to, &v), shift), scale) in block.iter_mut().zip(rows).zip(&shift).zip(&scale) {
                let v: f64 = v.into();
                *to = T::from_f64((v - shift) * scale);
            }
            for end in (rows.len()..block.len()).step_by(d) {
                block.copy_within(end - d..end, end);
            }
            for (j, out) in out.chunks_exact_mut(lanes).enumerate() {
                for lane in 0..lanes {
                    out[lane] = block[lane * d + j];
                }
            }
        }
    }
}
