//! Kernels with the types of their arguments, and the trait of a launch's memory.
use super::require_len;
use gmm_core::error::{Error, Result};
use gmm_driver::{Function, Module};
use gmm_kernels::entries::Entry;
use gmm_kernels::simt::WARP;
use std::fmt;
use std::marker::PhantomData;

/// Most threads of a block on any device.
const MOST_THREADS: u32 = 1024;

/// A kernel as compiled by the driver. Its limit of shared memory is set once, at loading, to all that a block can
/// have, so that no two threads set different limits.
#[derive(Debug)]
pub struct Compiled {
    function: Function,
    /// Bytes of dynamic shared memory that a launch may request.
    most_shared: usize,
}

impl Compiled {
    /// `shared_per_block`: bytes of shared memory that a block can have on this device, static and dynamic.
    pub fn new(module: &Module, entry: &str, shared_per_block: usize) -> Result<Self> {
        let function = module.function(entry)?;
        let most_shared = shared_per_block.saturating_sub(function.static_shared()?);
        function.set_max_dynamic_shared(most_shared)?;
        Ok(Self { function, most_shared })
    }
}

/// A compiled kernel whose one argument is of type `A`.
pub struct Kernel<A> {
    compiled: &'static Compiled,
    argument: PhantomData<fn(A)>,
}

impl<A> fmt::Debug for Kernel<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.compiled.fmt(f)
    }
}

impl<A> Clone for Kernel<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Kernel<A> {}

impl<A> Kernel<A> {
    /// `compiled` was made from the entry.
    pub(super) fn new(_entry: &Entry<A>, compiled: &'static Compiled) -> Self {
        Self { compiled, argument: PhantomData }
    }

    pub(super) fn function(&self) -> &'static Function {
        &self.compiled.function
    }

    /// Returns the bytes of dynamic shared memory that a launch may have: the block's limit less static shared memory.
    pub fn most_shared(&self) -> usize {
        self.compiled.most_shared
    }

    /// Returns the blocks of this size that a multiprocessor runs at once. [`Error::Cuda`] if the driver fails.
    pub fn blocks_at_once(&self, threads: u32, shared: usize) -> Result<u32> {
        Ok(self.function().blocks_at_once(threads, shared)?)
    }
}

/// The blocks of a launch.
#[derive(Debug, Clone, Copy)]
pub struct Grid {
    /// Blocks along x and y.
    pub blocks: (u32, u32),
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared: usize,
    /// Whether all blocks must run at the same time. The driver refuses more than that.
    pub cooperative: bool,
}

impl Grid {
    /// The most blocks along y.
    pub const MOST_SLICES: u32 = 65_535;

    /// Returns blocks along x only, started as room permits.
    pub fn new(blocks: u32, threads: u32, shared: usize) -> Self {
        Self { blocks: (blocks, 1), threads, shared, cooperative: false }
    }

    /// Returns the same blocks for each of this many slices of the samples, along y.
    pub fn slices(self, slices: usize) -> Self {
        Self { blocks: (self.blocks.0, slices as u32), ..self }
    }

    /// Checks the shared memory that a launch needs.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] if a block has less.
    pub fn require_shared(&self, what: &'static str, bytes: usize) -> Result<()> {
        require_len(what, bytes, self.shared)
    }

    /// Checks the shape against the kernel's and the device's limits.
    pub(super) fn check<A>(&self, kernel: &Kernel<A>) -> Result<()> {
        let refused = |message: String| Err(Error::Cuda { op: "cuLaunchKernel", message });
        let Self { blocks, threads, shared, .. } = *self;
        if blocks.0 == 0
            || !(1..=Self::MOST_SLICES).contains(&blocks.1)
            || !threads.is_multiple_of(WARP)
            || !(WARP..=MOST_THREADS).contains(&threads)
        {
            return refused(format!("a grid of {blocks:?} blocks of {threads} threads"));
        }
        if shared > kernel.most_shared() {
            let most = kernel.most_shared();
            return refused(format!("{shared} bytes of dynamic shared memory where a block can have {most}"));
        }
        Ok(())
    }
}

/// A kernel's argument together with the memory of its pointers, borrowed or owned.
///
/// # Safety
/// [`argument`](Self::argument) returns pointers only to memory that `self` borrows or owns at a fixed address, with
/// the length and alignment that the kernel's documentation requires for a launch of this grid, or else an error. While
/// `self` lives, only work in the same stream writes to memory that the kernel writes.
pub unsafe trait Launch {
    /// The type of the kernel's argument.
    type Argument: Copy;

    /// Returns the kernel's argument for a launch of this grid.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] if a length does not fit.
    fn argument(&self, grid: &Grid) -> Result<Self::Argument>;
}
