//! The common part of E-steps that leave the exponents of a piece of the samples in memory, add up its sums slice by
//! slice, and go on with the next piece: the memory in between, and the way of the sums to the host.
use super::launch::{EStepKernels, Read, Wanted, Work};
use super::layouts::Layouts;
use super::reduce_slices::ReduceSlices;
use super::sums::Sums;
use crate::device::gpu::Gpu;
use crate::device::kernel::{Grid, Kernel, Launch};
use crate::device::memory::{Numbers, allocate, locked, zeroed};
use crate::device::samples::Columns;
use crate::device::stream::{Running, Stream};
use crate::device::workspace::{BlockSums, Output, Total, Workspace};
use crate::likelihood::Exponents;
use gmm_core::error::Result;
use gmm_core::statistics::Statistics;
use gmm_driver::{DeviceBuffer, LockedBuffer};
use gmm_kernels::entries;
use gmm_kernels::reduce::slices::ReduceSlicesArgs;
use std::cell::RefCell;
use std::fmt::Debug;
use std::marker::PhantomData;

/// The share of the device's free memory (one over this) for a piece's exponents, unless keeping the device busy needs
/// more. Device memory is fast enough for kernels of so much arithmetic; each piece costs writing all slices' sums.
const EXPONENTS: usize = 8;

/// The division of an E-step over `n` samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Division {
    /// The most samples of an E-step.
    pub n: usize,
    pub piece: usize,
    /// The samples that are not divided among slices.
    pub granularity: usize,
    /// The least samples of a slice, in units of these.
    pub min_slice: usize,
    /// The slices of a piece that the device has room for.
    pub slices: usize,
    /// The most blocks of the kernel that writes exponents.
    pub blocks: u32,
    pub rows: usize,
    /// The sums of a slice.
    pub sums: usize,
    /// The slices and sums of another kernel beside these; zeros without one.
    pub others: (usize, usize),
}

impl Division {
    /// Returns the samples whose exponents, in `rows` rows, take the share [`EXPONENTS`] of the device's free memory.
    pub fn most(gpu: &Gpu, rows: usize) -> Result<usize> {
        Ok(gpu.free_memory()? / EXPONENTS / size_of::<f32>() / rows)
    }

    /// Returns the samples of a piece: as many whole waves as `most` allows, at least one; at most `n`, in granules.
    pub fn piece(n: usize, most: usize, wave: usize, granule: usize) -> usize {
        (most.max(wave) / wave * wave).min(n.next_multiple_of(granule))
    }

    fn all_sums(&self) -> usize {
        self.sums + self.others.1
    }
}

/// A piece of the samples, and the place of its results.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    /// Its first sample, among those of the E-step.
    pub first: usize,
    pub columns: Columns<'a>,
    pub exponents: Exponents<'a>,
    /// The most blocks of the kernel that writes exponents.
    pub blocks: u32,
    pub output: Output<'a>,
    pub slices: usize,
    /// Whether to add to the present sums, or to replace them.
    pub add: bool,
    pub sums: Numbers<'a, f64>,
    /// The slices and the sums of [`Division::others`].
    pub others: (usize, Numbers<'a, f64>),
}

/// Kernels of an E-step in pieces.
pub(super) trait PieceKernels: Debug + Send + Sized {
    /// Returns the number of parameters.
    fn len(&self) -> usize;

    fn write(&self, layouts: &Layouts<'_>, out: &mut [f32]);

    /// Starts the kernels that prepare the parameters for the pieces.
    fn start<'a>(&'a self, at: Launcher<'a, Self, ()>) -> Result<Running<'a, ()>>;

    /// Starts the work on a piece, or at least the part that is wanted.
    fn start_piece<'a>(&'a self, at: Launcher<'a, Self, Piece<'a>>, wanted: Wanted) -> Result<Running<'a, ()>>;

    fn statistics(&self, layouts: &Layouts<'_>, sums: &Sums<'_>) -> Result<Statistics>;
}

/// Kernels with the memory of their pieces.
#[derive(Debug)]
pub(super) struct InPieces<K> {
    kernels: K,
    division: Division,
    reduce: Kernel<ReduceSlicesArgs>,
    q: DeviceBuffer<f32>,
    normalisers: DeviceBuffer<f32>,
    sums: DeviceBuffer<f64>,
    others: DeviceBuffer<f64>,
    /// The sums over all slices, followed by the log₂-likelihood of each piece.
    totals: DeviceBuffer<f64>,
    /// Their copy in page-locked memory, a fraction of the time of a copy to other memory.
    results: RefCell<LockedBuffer<f64>>,
    block_sums: BlockSums,
}

impl<K: PieceKernels + 'static> InPieces<K> {
    pub fn boxed(gpu: &Gpu, kernels: K, division: Division) -> Result<Box<dyn EStepKernels>> {
        let Division { n, piece, granularity, min_slice, slices, blocks, rows, sums, others } = division;
        let slices = slices.max(1).min(piece.min(n).div_ceil(min_slice * granularity)).max(1);
        let results = division.all_sums() + n.div_ceil(piece);
        Ok(Box::new(Self {
            kernels,
            division: Division { slices, ..division },
            reduce: gpu.kernel(&entries::reduce_slices(), None)?,
            // Kernels also read the rows behind K, and ignore them.
            q: zeroed(rows * piece)?,
            normalisers: allocate(2 * piece)?,
            sums: allocate(slices * sums)?,
            others: allocate(others.0 * others.1)?,
            totals: allocate(results)?,
            results: locked(results)?.into(),
            block_sums: BlockSums::new(blocks as usize)?,
        }))
    }
}

impl<K: PieceKernels> EStepKernels for InPieces<K> {
    fn prepare(&self, workspace: &mut Workspace, layouts: &Layouts<'_>) -> Result<()> {
        workspace.parameters.fill(self.kernels.len(), |to| self.kernels.write(layouts, to))
    }

    fn start<'a>(&'a self, work: Work<'a>, _: &Layouts<'_>) -> Result<Running<'a, ()>> {
        let Work { stream, parameters, columns, wanted } = work;
        let Division { piece, granularity, slices, blocks, sums: count, others: (other_slices, other_count), .. } =
            self.division;
        let most_slices = piece.min(columns.n()).div_ceil(granularity);
        let (slices, sums, totals) = (slices.min(most_slices), Numbers::of(&self.sums), Numbers::of(&self.totals));
        let others = (other_slices.min(most_slices), Numbers::of(&self.others));
        let log2 = totals.part(self.division.all_sums()..totals.len())?;
        let kernels = &self.kernels;
        let mut running = kernels.start(Launcher { stream, kernels, parameters, piece: () })?;
        for (p, first) in (0..columns.n()).step_by(piece).enumerate() {
            let piece = Piece {
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
            };
            let at = Launcher { stream, kernels, parameters, piece };
            running = running.followed_by(kernels.start_piece(at, wanted)?);
        }
        if wanted == Wanted::Total {
            return Ok(running);
        }
        if other_count > 0 {
            let (slices, sums) = others;
            let reduce = ReduceSlices { sums, slices, count: other_count, totals: totals.part(count..totals.len())? };
            running = running.followed_by(stream.launch(self.reduce, reduce.grid(), reduce)?.borrowed());
        }
        let reduce = ReduceSlices { sums, slices, count, totals };
        Ok(running.followed_by(stream.launch(self.reduce, reduce.grid(), reduce)?).borrowed())
    }

    fn read(&self, running: Running<'_, ()>, stream: &Stream, n: usize, read: &mut Read<'_>) -> Result<()> {
        let (piece, count) = (self.division.piece, self.division.all_sums());
        let mut results = self.results.borrow_mut();
        let results = &mut results[..count + n.div_ceil(piece)];
        stream.read(&self.totals, results)?;
        running.wait()?;
        let (sums, log2) = results.split_at(count);
        read(sums, log2.iter().sum());
        Ok(())
    }

    fn read_total(&self, running: Running<'_, ()>, stream: &Stream, n: usize) -> Result<f64> {
        let (first, pieces) = (self.division.all_sums(), n.div_ceil(self.division.piece));
        let mut results = self.results.borrow_mut();
        let results = &mut results[..pieces];
        stream.read(Numbers::of(&self.totals).part(first..first + pieces)?, results)?;
        running.wait()?;
        Ok(results.iter().sum())
    }

    fn statistics(&self, layouts: &Layouts<'_>, sums: &Sums<'_>) -> Result<Statistics> {
        self.kernels.statistics(layouts, sums)
    }
}

/// The place of a launch: with the parameters of a mixture, over a piece, or before all pieces.
pub(super) struct Launcher<'a, K, P> {
    pub stream: &'a Stream,
    kernels: &'a K,
    pub parameters: Numbers<'a, f32>,
    pub piece: P,
}

impl<'a, K, P: Copy + 'a> Launcher<'a, K, P> {
    /// Returns the place of launches over a part of the work.
    pub fn over<Q>(&self, piece: Q) -> Launcher<'a, K, Q> {
        let Self { stream, kernels, parameters, .. } = *self;
        Launcher { stream, kernels, parameters, piece }
    }

    /// Starts a kernel whose [`Launched`] defines its memory.
    pub fn launch<A: 'a>(&self, kernel: Kernel<A>, grid: Grid) -> Result<Running<'a, ()>>
    where
        Launched<'a, K, P, A>: Launch<Argument = A>,
    {
        let Self { stream, kernels, parameters, piece } = *self;
        Ok(stream.launch(kernel, grid, Launched { kernels, parameters, piece, argument: PhantomData })?.borrowed())
    }
}

/// A launch of the kernel with the argument `A`, one of `kernels`.
pub(super) struct Launched<'a, K, P, A> {
    pub kernels: &'a K,
    pub parameters: Numbers<'a, f32>,
    pub piece: P,
    argument: PhantomData<fn(A)>,
}

impl<K, P: Copy, A> Clone for Launched<'_, K, P, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, P: Copy, A> Copy for Launched<'_, K, P, A> {}

/// Implements the launch of one of some kernels, as `launch!` does that of a [`Launched`]: from the kernels' type, that
/// of the launch's place, the argument's type, the kernel's name, and the function that makes the argument.
macro_rules! launch_piece {
    ($kernels:ty, $piece:ty, $argument:ty, $($rest:tt)*) => {
        $crate::device::launch::launch!(
            $crate::estep::pieces::Launched<'_, $kernels, $piece, $argument>, $argument, $($rest)*
        );
    };
}
pub(super) use launch_piece;
