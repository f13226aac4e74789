//! The data as the kernels read it.
use super::isa::Isa;
use super::real::{Real, lanes};
use crate::packed::Frame;
use aligned_vec::{AVec, ConstAlign};
use ndarray::ArrayView2;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

/// Samples in their [`Frame`], as an array of structures of arrays: (⌈N/L⌉, D, L) with L the elements of a register,
/// so that a register holds one feature of L samples. The last block is filled up with copies of the last sample.
#[derive(Debug)]
pub(crate) struct Resident<T> {
    pub frame: Frame,
    pub n: usize,
    pub d: usize,
    /// L.
    pub lanes: usize,
    /// Samples that are summed as one piece: fixed by D alone, so that results do not depend on the threads. A multiple
    /// of every L; its data fits the second-level cache.
    pub chunk: usize,
    x: AVec<T, ConstAlign<64>>,
}

/// About this many elements of data make a chunk.
const CHUNK_ELEMENTS: usize = 1 << 16;
/// Chunks are multiples of this many samples: sixteen registers of the widest kind.
const CHUNK_UNIT: usize = 256;
const MAX_CHUNK: usize = 2048;

impl<T: Real> Resident<T> {
    pub fn new(samples: ArrayView2<'_, T>, isa: Isa) -> Self {
        struct Lanes<T>(std::marker::PhantomData<T>);
        impl<T: Real> WithSimd for Lanes<T> {
            type Output = usize;
            #[inline(always)]
            fn with_simd<S: Simd>(self, _: S) -> usize {
                lanes::<T, S>()
            }
        }
        let lanes = isa.run(Lanes::<T>(std::marker::PhantomData));
        let (n, d) = samples.dim();
        let frame = Frame::of(samples);
        let chunk = (CHUNK_ELEMENTS / d / CHUNK_UNIT * CHUNK_UNIT).clamp(CHUNK_UNIT, MAX_CHUNK);
        let zero = T::from_f64(0.0);
        let mut x: AVec<T, ConstAlign<64>> =
            AVec::from_iter(64, std::iter::repeat_n(zero, n.div_ceil(lanes) * lanes * d));
        x.par_chunks_mut(chunk * d).enumerate().for_each(|(c, out)| {
            for (b, block) in out.chunks_exact_mut(lanes * d).enumerate() {
                for lane in 0..lanes {
                    let row = samples.row((c * chunk + b * lanes + lane).min(n - 1));
                    for (j, &v) in row.iter().enumerate() {
                        block[j * lanes + lane] = T::from_f64(frame.apply(j, v.into()));
                    }
                }
            }
        });
        Self { frame, n, d, lanes, chunk, x }
    }

    pub fn n_chunks(&self) -> usize {
        self.n.div_ceil(self.chunk)
    }

    /// Chunk `c`: its registers, and the samples it holds.
    pub fn chunk(&self, c: usize) -> (&[T], std::ops::Range<usize>) {
        let samples = c * self.chunk..self.n.min((c + 1) * self.chunk);
        let length = samples.len().div_ceil(self.lanes) * self.lanes * self.d;
        (&self.x[samples.start * self.d..][..length], samples)
    }

    /// Feature `j` of sample `i` as it was given, up to rounding.
    pub fn value(&self, i: usize, j: usize) -> f64 {
        let x: f64 = self.x[(i / self.lanes * self.d + j) * self.lanes + i % self.lanes].into();
        x / self.frame.scale[j] + self.frame.shift[j]
    }
}
