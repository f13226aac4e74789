//! Kernels, each with the type of its argument, and the trait of what a launch of one needs.
use super::require_len;
use gmm_core::error::{Error, Result};
use gmm_driver::{Function, Module};
use gmm_kernels::entries::Entry;
use gmm_kernels::simt::WARP;
use std::fmt;
use std::marker::PhantomData;

/// Most threads of a block on any device.
const MOST_THREADS: u32 = 1024;

/// A kernel as the driver has compiled it. Its limit of shared memory is set once, when it is
/// loaded, to all that a block can have on the device, so that no two threads can set different
/// limits.
#[derive(Debug)]
pub struct Compiled {
    function: Function,
    /// Bytes of dynamic shared memory that a launch may ask for.
    most_shared: usize,
}

impl Compiled {
    /// `shared_per_block`: bytes of shared memory that a block can have on this device, static and
    /// dynamic.
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
    /// The kernel of this entry; `compiled` was made from it.
    pub(super) fn new(_entry: &Entry<A>, compiled: &'static Compiled) -> Self {
        Self { compiled, argument: PhantomData }
    }

    pub(super) fn function(&self) -> &'static Function {
        &self.compiled.function
    }

    /// Bytes of dynamic shared memory that a launch may have: what the device gives a block, less
    /// the kernel's static shared memory.
    pub fn most_shared(&self) -> usize {
        self.compiled.most_shared
    }

    /// Blocks of this size that a multiprocessor runs at the same time.
    ///
    /// # Errors
    /// [`Error::Cuda`].
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
    /// Whether all blocks must run at the same time. The driver refuses more than can.
    pub cooperative: bool,
}

impl Grid {
    /// Blocks along x only, each when there is room for it.
    pub fn new(blocks: u32, threads: u32, shared: usize) -> Self {
        Self { blocks: (blocks, 1), threads, shared, cooperative: false }
    }

    /// The same blocks for each of so many slices of the samples, along y.
    pub fn slices(self, slices: usize) -> Self {
        Self { blocks: (self.blocks.0, slices as u32), ..self }
    }

    /// What a launch asks for in shared memory.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] where a block has less.
    pub fn require_shared(&self, what: &'static str, bytes: usize) -> Result<()> {
        require_len(what, bytes, self.shared)
    }

    /// Checks the shape against the kernel's and the device's limits.
    pub(super) fn check<A>(&self, kernel: &Kernel<A>) -> Result<()> {
        let refused = |message: String| Err(Error::Cuda { op: "cuLaunchKernel", message });
        let Self { blocks, threads, shared, .. } = *self;
        if blocks.0 == 0 || blocks.1 == 0 || !threads.is_multiple_of(WARP) || !(WARP..=MOST_THREADS).contains(&threads)
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

/// A kernel's argument together with the memory that its pointers lead to, borrowed or owned.
///
/// # Safety
/// [`argument`](Self::argument) gives pointers only to memory that `self` borrows or owns at a
/// fixed address, and only where that memory is as long and as aligned as the kernel's
/// documentation asks for in a launch of this grid; else it is an error. Memory that the kernel
/// writes is written by nobody but work in the same stream while `self` lives.
pub unsafe trait Launch {
    /// What the kernel takes.
    type Argument: Copy;

    /// The kernel's argument for a launch of this grid.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] where a length does not fit.
    fn argument(&self, grid: &Grid) -> Result<Self::Argument>;
}
