//! What the E-steps have in common that leave the exponents of a piece of the samples in memory,
//! add up the piece's sums slice by slice, and go on with the next piece: the memory in between,
//! and the way of the sums to the host.
use super::launch::Wanted;
use super::reduce_slices::ReduceSlices;
use crate::backends::cuda::device::gpu::Gpu;
use crate::backends::cuda::device::kernel::Kernel;
use crate::backends::cuda::device::memory::{Numbers, allocate, locked, zeroed};
use crate::backends::cuda::device::samples::Columns;
use crate::backends::cuda::device::stream::{Running, Stream};
use crate::backends::cuda::device::workspace::{BlockSums, Output, Total};
use crate::backends::cuda::likelihood::Exponents;
use crate::error::Result;
use gmm_driver::{DeviceBuffer, LockedBuffer};
use gmm_kernels::entries;
use gmm_kernels::reduce::slices::ReduceSlicesArgs;
use std::cell::RefCell;

/// Least samples of a slice, as a multiple of [`Division::granularity`].
const MIN_SLICE: usize = 4;

/// How an E-step over `n` samples is divided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Division {
    /// Samples of an E-step, at most.
    pub n: usize,
    /// Samples of a piece.
    pub piece: usize,
    /// Samples that are not divided among slices.
    pub granularity: usize,
    /// Slices of a piece for which the device has room.
    pub slices: usize,
    /// Blocks of the kernel that gives exponents, at most.
    pub blocks: u32,
    /// Rows of exponents.
    pub rows: usize,
    /// Numbers that a slice gives.
    pub sums: usize,
    /// The slices of another kernel that gives sums, and their numbers.
    pub others: Option<Others>,
}

/// A kernel that gives sums beside those of the slices.
#[derive(Debug, Clone, Copy)]
pub(super) struct Others {
    pub slices: usize,
    pub sums: usize,
}

impl Division {
    /// Numbers of all sums.
    fn all_sums(&self) -> usize {
        self.sums + self.others.map_or(0, |others| others.sums)
    }
}

/// The memory of an E-step in pieces.
#[derive(Debug)]
pub(super) struct Pieces {
    division: Division,
    reduce: Kernel<ReduceSlicesArgs>,
    q: DeviceBuffer<f32>,
    normalisers: DeviceBuffer<f32>,
    sums: DeviceBuffer<f64>,
    others: DeviceBuffer<f64>,
    /// The sums over all slices, and behind them the log₂-likelihood of each piece.
    totals: DeviceBuffer<f64>,
    /// Where they are copied to, page-locked: the copy takes a fraction of the time that one to
    /// other memory does.
    results: RefCell<LockedBuffer<f64>>,
    block_sums: BlockSums,
}

/// The parameters that both kernels read.
#[derive(Clone, Copy)]
pub(super) struct OnDevice<'a> {
    /// What the kernels wrote that split the coefficients.
    pub halves: Numbers<'a, u32>,
    pub constants: Numbers<'a, f32>,
    pub weights: Numbers<'a, f32>,
    /// Whether samples have weights.
    pub weighted: bool,
}

/// A piece of the samples, and where its results go.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    /// Its first sample, among those of the E-step.
    pub first: usize,
    pub columns: Columns<'a>,
    pub exponents: Exponents<'a>,
    /// Blocks of the kernel that gives exponents, at most.
    pub blocks: u32,
    pub output: Output<'a>,
    pub slices: usize,
    /// Whether to add to the sums that are there, or to replace them.
    pub add: bool,
    pub sums: Numbers<'a, f64>,
    /// The slices and the sums of [`Division::others`].
    pub others: (usize, Numbers<'a, f64>),
}

impl Pieces {
    pub fn new(gpu: &Gpu, division: Division) -> Result<Self> {
        let Division { n, piece, granularity, slices, blocks, rows, sums, others } = division;
        let slices = slices.max(1).min(piece.min(n).div_ceil(MIN_SLICE * granularity)).max(1);
        let results = division.all_sums() + n.div_ceil(piece);
        Ok(Self {
            division: Division { slices, ..division },
            reduce: gpu.kernel(&entries::reduce_slices(), None)?,
            // Kernels read the rows behind K too, and take no notice of them.
            q: zeroed(rows * piece)?,
            normalisers: allocate(2 * piece)?,
            sums: allocate(slices * sums)?,
            others: allocate(others.map_or(0, |others| others.slices * others.sums))?,
            totals: allocate(results)?,
            results: locked(results)?.into(),
            block_sums: BlockSums::new(blocks as usize)?,
        })
    }

    /// Starts `work` for each piece of some samples behind `running`, and adds up the slices' sums,
    /// if these are wanted.
    pub fn start<'a>(
        &'a self,
        stream: &'a Stream,
        columns: Columns<'a>,
        mut running: Running<'a, ()>,
        wanted: Wanted,
        work: impl Fn(Piece<'a>) -> Result<Running<'a, ()>>,
    ) -> Result<Running<'a, ()>> {
        let Division { piece, granularity, slices, blocks, sums: count, .. } = self.division;
        let slices = slices.min(piece.min(columns.n()).div_ceil(granularity));
        let (sums, totals) = (Numbers::of(&self.sums), Numbers::of(&self.totals));
        let other_slices = self.division.others.map_or(0, |others| others.slices);
        let others = (other_slices.min(piece.min(columns.n()).div_ceil(granularity)), Numbers::of(&self.others));
        let log2 = totals.part(self.division.all_sums()..totals.len())?;
        for (p, first) in (0..columns.n()).step_by(piece).enumerate() {
            running = running.followed_by(work(Piece {
                first,
                columns: columns.part(first, piece.min(columns.n() - first))?,
                exponents: Exponents {
                    exponents: Numbers::of(&self.q),
                    normalisers: Numbers::of(&self.normalisers),
                    stride: piece,
                },
                blocks,
                output: Output { blocks: &self.block_sums, total: Total::Device(log2.part(p..log2.len())?) },
                slices,
                add: p > 0,
                sums,
                others,
            })?);
        }
        if wanted == Wanted::Total {
            return Ok(running);
        }
        if let Some(Others { sums: count_of_others, .. }) = self.division.others {
            let (slices, sums) = others;
            let reduce =
                ReduceSlices { sums, slices, count: count_of_others, totals: totals.part(count..totals.len())? };
            running = running.followed_by(stream.launch(self.reduce, reduce.grid(), reduce)?.borrowed());
        }
        let reduce = ReduceSlices { sums, slices, count, totals };
        Ok(running.followed_by(stream.launch(self.reduce, reduce.grid(), reduce)?).borrowed())
    }

    /// Waits for the log-likelihood of `n` samples that was started last, to base 2.
    pub fn read_total(&self, running: Running<'_, ()>, stream: &Stream, n: usize) -> Result<f64> {
        let (first, pieces) = (self.division.all_sums(), n.div_ceil(self.division.piece));
        let mut results = self.results.borrow_mut();
        let results = &mut results[..pieces];
        stream.read(Numbers::of(&self.totals).part(first..first + pieces)?, results)?;
        running.wait()?;
        Ok(results.iter().sum())
    }

    /// Waits for the E-step over `n` samples that was started last, and has `read` read its sums
    /// and the log₂-likelihood.
    pub fn read(
        &self,
        running: Running<'_, ()>,
        stream: &Stream,
        n: usize,
        read: &mut dyn FnMut(&[f64], f64),
    ) -> Result<()> {
        let (piece, count) = (self.division.piece, self.division.all_sums());
        let mut results = self.results.borrow_mut();
        let results = &mut results[..count + n.div_ceil(piece)];
        stream.read(&self.totals, results)?;
        running.wait()?;
        let (sums, log2) = results.split_at(count);
        read(sums, log2.iter().sum());
        Ok(())
    }
}

/// How an [`EStepKernels`](super::launch::EStepKernels) of [`Pieces`] reads its sums and gives the
/// statistics, by a method of [`TensorCoresLayout`](super::tensor_cores_layout::TensorCoresLayout)
/// for its `shapes`.
macro_rules! read_pieces {
    ($statistics:ident) => {
        fn read(
            &self,
            running: Running<'_, ()>,
            stream: &Stream,
            n: usize,
            read: &mut dyn FnMut(&[f64], f64),
        ) -> Result<()> {
            self.pieces.read(running, stream, n, read)
        }

        fn statistics(&self, layout: &Layout, sums: &Sums<'_>) -> Result<Statistics> {
            layout.tensor_cores()?.$statistics(&self.shapes, sums)
        }
    };
}
pub(super) use read_pieces;
