//! The launches of the chain's kernels.
use crate::device::kernel::Grid;
use crate::device::launch::launch;
use crate::device::memory::Numbers;
use crate::device::place::Element;
use crate::device::require;
use gmm_core::error::Result;
use gmm_kernels::chain::ends::EndsArgs;
use gmm_kernels::chain::mixed::MixedArgs;
use gmm_kernels::chain::posteriors::{self, PosteriorsArgs};
use gmm_kernels::chain::{CHUNK, ChainArgs, capacity, parameters, shared_bytes};
use gmm_kernels::simt::WARP;

/// Threads of a block: few, as there may be few chunks.
const BLOCK: u32 = 64;
/// Those of a block of `chain_states` and `chain_components`.
const BLOCK_OF_ROWS: u32 = 256;

/// The numbers of both kernels.
#[derive(Clone, Copy)]
pub struct ChainNumbers<'a, T: Element> {
    /// (K, stride)
    pub q: Numbers<'a, T>,
    pub stride: usize,
    pub k: usize,
    pub watched: bool,
    pub parameters: Numbers<'a, f64>,
    /// (chunks, [`CHUNK`]), of rows below the stride.
    pub chunks: Numbers<'a, u32>,
    pub n_chunks: usize,
    /// (chunks, 2, C)
    pub ends: Numbers<'a, f64>,
}

impl<T: Element> ChainNumbers<'_, T> {
    fn argument(&self, grid: &Grid, what: &'static str) -> Result<ChainArgs<T>> {
        let capacity = capacity(self.k);
        grid.require_shared(what, shared_bytes(grid.threads))?;
        Ok(ChainArgs {
            q: self.q.write(self.k * self.stride, what)?,
            stride: self.stride as u64,
            k: self.k as u32,
            watched: self.watched.into(),
            parameters: self.parameters.read(parameters(capacity), what)?,
            chunks: self.chunks.read(self.n_chunks * CHUNK, what)?,
            ends: self.ends.write(self.n_chunks * 2 * capacity, what)?,
        })
    }

    /// Returns the grid of `n` groups.
    fn grid(&self, n: usize) -> Grid {
        Grid::new((n * capacity(self.k)).div_ceil(BLOCK as usize) as u32, BLOCK, shared_bytes(BLOCK))
    }
}

/// The ends of chunks.
#[derive(Clone, Copy)]
pub struct Ends<'a, T: Element>(pub ChainNumbers<'a, T>);

impl<T: Element> Ends<'_, T> {
    pub fn grid(&self) -> Grid {
        self.0.grid(2 * self.0.n_chunks)
    }
}

launch!([T], Ends<'_, T>, EndsArgs<T>, "chain_ends", |launch, grid, what| {
    Ok(EndsArgs { chain: launch.0.argument(grid, what)?, n: launch.0.n_chunks as u32 })
});

/// The posteriors of all rows, and their sums.
#[derive(Clone, Copy)]
pub struct Posteriors<'a, T: Element> {
    pub chain: ChainNumbers<'a, T>,
    /// (n + 1,)
    pub units: Numbers<'a, u32>,
    pub n: usize,
    /// (chunks,)
    pub weights: Numbers<'a, f64>,
    pub rows: usize,
    /// (rows, C)
    pub alpha: Numbers<'a, f64>,
    /// (rows,)
    pub scales: Numbers<'a, u32>,
    /// (chunks,)
    pub log2: Numbers<'a, f64>,
    /// ([`warps`], [`posteriors::sums`])
    pub sums: Numbers<'a, f64>,
}

/// Returns the warps of `chain_posteriors` for `n` units.
pub fn warps(n: usize, capacity: usize) -> usize {
    (n * capacity).div_ceil(WARP as usize)
}

impl<T: Element> Posteriors<'_, T> {
    pub fn grid(&self) -> Grid {
        self.chain.grid(self.n)
    }
}

launch!([T], Posteriors<'_, T>, PosteriorsArgs<T>, "chain_posteriors", |launch, grid, what| {
    let (capacity, rows, n_chunks) = (capacity(launch.chain.k), launch.rows, launch.chain.n_chunks);
    require(what, launch.chain.stride >= rows)?;
    Ok(PosteriorsArgs {
        chain: launch.chain.argument(grid, what)?,
        n: launch.n as u32,
        units: launch.units.read(launch.n + 1, what)?,
        weights: launch.weights.read(n_chunks, what)?,
        alpha: launch.alpha.write(rows * capacity, what)?,
        scales: launch.scales.write(rows, what)?,
        log2: launch.log2.write(n_chunks, what)?,
        sums: launch.sums.write(warps(launch.n, capacity) * posteriors::sums(capacity), what)?,
    })
});

/// States that emit from mixtures, for `chain_states` and `chain_components`.
#[derive(Clone, Copy)]
pub struct Mixed<'a, T: Element> {
    /// (K·M, stride)
    pub q: Numbers<'a, T>,
    pub stride: usize,
    pub rows: usize,
    pub n_states: usize,
    pub n_mix: usize,
    /// (K·M,)
    pub offsets: Numbers<'a, f64>,
    /// (K, stride)
    pub states: Numbers<'a, T>,
}

impl<T: Element> Mixed<'_, T> {
    pub fn grid(&self) -> Grid {
        Grid::new((self.rows as u32).div_ceil(BLOCK_OF_ROWS), BLOCK_OF_ROWS, 0)
    }
}

launch!([T], Mixed<'_, T>, MixedArgs<T>, "chain_states", |launch, _grid, what| {
    let n = launch.n_states * launch.n_mix;
    require(what, launch.stride >= launch.rows)?;
    Ok(MixedArgs {
        q: launch.q.write(n * launch.stride, what)?,
        stride: launch.stride as u64,
        rows: launch.rows as u32,
        n_states: launch.n_states as u32,
        n_mix: launch.n_mix as u32,
        offsets: launch.offsets.read(n, what)?,
        states: launch.states.write(launch.n_states * launch.stride, what)?,
    })
});
