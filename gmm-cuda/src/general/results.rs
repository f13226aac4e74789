//! The results of passes over the samples by the kernel `posterior`.
use super::launches::{POSTERIOR_REGISTERS, Posterior};
use super::layout::GeneralLayout;
use crate::device::gpu::Gpu;
use crate::device::memory::{Numbers, allocate, enlarge};
use crate::device::place::Element;
use crate::device::samples::Columns;
use crate::device::slots::Slots;
use crate::device::staging::{BUFFER_BYTES, Staging};
use crate::device::stream::{Running, Stream};
use crate::likelihood::{ReduceSets, Totals};
use gmm_core::error::Result;
use gmm_driver::{DeviceBuffer, Plain};
use gmm_kernels::entries;
use ndarray::Array2;
use rayon::prelude::*;

/// Rows that a thread writes at a time, so that their lines stay in its cache.
const ROWS_AT_ONCE: usize = 128;

/// The results of a pass over the samples besides their total.
pub enum Goal<'a> {
    Total,
    /// log₂ of each sample's likelihood, less the mixture's offset.
    Scores(&'a mut Vec<f64>),
    Labels(&'a mut Vec<usize>),
    /// (N, K)
    Responsibilities(&'a mut Array2<f64>),
    /// The sums of each component over all samples.
    Sums(&'a mut Vec<f64>),
}

#[derive(Clone, Copy)]
pub struct Shape {
    pub piece: usize,
    pub posterior_blocks: u32,
    pub slices: usize,
}

/// A piece of the samples, with everything for its launches.
#[derive(Clone, Copy)]
pub struct Piece<'a, T: Plain> {
    pub gpu: &'static Gpu,
    pub stream: &'a Stream,
    pub columns: Columns<'a, T>,
    pub layout: GeneralLayout,
    pub shape: Shape,
    /// Samples before these.
    pub done: usize,
}

/// Adds up the slices' partial sums, (count, slices), to `sums` on the device, and then to `values`.
pub fn add_slices(
    gpu: &Gpu,
    stream: &Stream,
    partials: &DeviceBuffer<f64>,
    slices: usize,
    sums: &DeviceBuffer<f64>,
    values: &mut [f64],
) -> Result<()> {
    let totals = Totals::Device(Numbers::of(sums));
    let launch = ReduceSets { partials: Numbers::of(partials), count: slices, totals };
    let reduce = gpu.kernel(&entries::reduce_sets(), None)?;
    stream.launch(reduce, launch.grid(values.len()), launch)?.wait()?;
    stream.read(sums, values)
}

/// Copies numbers of a piece from the device, after the work in the stream.
fn downloaded<T: Plain + Copy + Default>(
    gpu: &'static Gpu,
    stream: &Stream,
    from: &DeviceBuffer<T>,
    to: &mut [T],
) -> Result<()> {
    Staging::new(gpu, BUFFER_BYTES / size_of::<T>()).download(stream, from, to)
}

/// Writes rows of `k` numbers from columns, (K, `stride`).
fn write_rows<T: Element>(columns: &[T], stride: usize, k: usize, rows: &mut [f64]) {
    rows.par_chunks_mut(ROWS_AT_ONCE * k).enumerate().for_each(|(i, rows)| {
        for (c, column) in columns.chunks_exact(stride).enumerate() {
            let column = &column[i * ROWS_AT_ONCE..];
            rows[c..].iter_mut().step_by(k).zip(column).for_each(|(to, v)| *to = (*v).into());
        }
    });
}

/// The memory of the results on the device.
#[derive(Debug)]
pub struct Results {
    /// A total for each block of `posterior`.
    totals: DeviceBuffer<f64>,
    /// The results for each sample of a piece.
    scores: DeviceBuffer<f64>,
    labels: DeviceBuffer<u32>,
}

impl Results {
    pub fn new() -> Result<Self> {
        Ok(Self { totals: allocate(1)?, scores: allocate(1)?, labels: allocate(1)? })
    }

    /// Allocates the memory for a goal.
    pub fn prepare(&mut self, shape: Shape, goal: &Goal<'_>) -> Result<()> {
        enlarge(&mut self.totals, shape.posterior_blocks as usize)?;
        match goal {
            Goal::Scores(_) => enlarge(&mut self.scores, shape.piece),
            Goal::Labels(_) => enlarge(&mut self.labels, shape.piece),
            Goal::Total | Goal::Responsibilities(_) | Goal::Sums(_) => Ok(()),
        }
    }

    /// Launches `posterior` over a piece, and copies the goal's results. `q`: (K, samples of a piece).
    pub fn posterior<'a, T: Element>(
        &'a self,
        piece: Piece<'a, T>,
        parameters: Numbers<'a, T>,
        q: &'a DeviceBuffer<T>,
        goal: &mut Goal<'_>,
    ) -> Result<Running<'a, ()>> {
        let Piece { gpu, stream, columns, layout, shape, done } = piece;
        let (n, stride) = (columns.n(), shape.piece);
        let launch = Posterior {
            columns,
            layout,
            parameters,
            of_quads: None,
            q: Numbers::of(q),
            stride,
            // A sample's result does not depend on its weight.
            weighted: matches!(goal, Goal::Total | Goal::Sums(_)),
            responsibilities: matches!(goal, Goal::Responsibilities(_) | Goal::Sums(_)),
            add: done > 0,
            scores: matches!(goal, Goal::Scores(_)).then(|| Numbers::of(&self.scores)),
            labels: matches!(goal, Goal::Labels(_)).then(|| Numbers::of(&self.labels)),
            totals: Numbers::of(&self.totals),
        };
        let kernel = gpu.kernel(&entries::posterior(), Some(POSTERIOR_REGISTERS))?;
        let running = stream.launch(kernel, launch.grid(shape.posterior_blocks), launch)?.borrowed();
        match goal {
            Goal::Scores(all) => {
                let start = all.len();
                all.resize(start + n, 0.0);
                downloaded(gpu, stream, &self.scores, &mut all[start..])?;
            }
            Goal::Labels(all) => {
                let mut some = vec![0u32; n];
                downloaded(gpu, stream, &self.labels, &mut some)?;
                all.par_extend(some.par_iter().map(|label| *label as usize));
            }
            Goal::Responsibilities(all) => {
                let k = layout.k;
                let columns = Numbers::of(q).part(0..k * stride)?;
                let all = all.as_slice_mut().unwrap_or_default();
                let rows = &mut all[done * k..(done + n) * k];
                let write = |columns: &[T]| write_rows(columns, stride, k, rows);
                Staging::new(gpu, columns.len()).read(stream, columns, write)?;
            }
            Goal::Total | Goal::Sums(_) => {}
        }
        Ok(running)
    }

    /// Returns the total of all blocks.
    pub fn total(&self, gpu: &'static Gpu, stream: &Stream, slots: &Slots, shape: Shape) -> Result<f64> {
        slots.clear(1);
        let (partials, totals) = (Numbers::of(&self.totals), Totals::Slots(slots, 1));
        let launch = ReduceSets { partials, count: shape.posterior_blocks as usize, totals };
        let reduce = gpu.kernel(&entries::reduce_sets(), None)?;
        Ok(stream.launch(reduce, launch.grid(1), launch)?.numbers(slots, 1)?[0])
    }
}
