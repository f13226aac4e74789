//! The launches of `chain_products` and `chain_posteriors`.
use crate::device::kernel::Grid;
use crate::device::launch::launch;
use crate::device::memory::Numbers;
use crate::device::place::Element;
use crate::device::require;
use gmm_core::error::Result;
use gmm_kernels::chain::posteriors::{self, PosteriorsArgs};
use gmm_kernels::chain::products::{self, ProductsArgs};
use gmm_kernels::chain::{CHUNK, ChainArgs, capacity, parameters};

/// Threads of a block: few, as there may be few chunks.
const BLOCK: u32 = 64;

/// The numbers of both kernels.
#[derive(Clone, Copy)]
pub struct ChainNumbers<'a, T: Element> {
    /// (K, stride)
    pub q: Numbers<'a, T>,
    pub stride: usize,
    pub k: usize,
    pub watched: bool,
    pub parameters: Numbers<'a, f64>,
}

impl<T: Element> ChainNumbers<'_, T> {
    /// `chunks`: of rows below the stride.
    fn argument(&self, chunks: Numbers<'_, u32>, n_chunks: usize, what: &'static str) -> Result<ChainArgs<T>> {
        Ok(ChainArgs {
            q: self.q.write(self.k * self.stride, what)?,
            stride: self.stride as u64,
            k: self.k as u32,
            watched: self.watched.into(),
            parameters: self.parameters.read(parameters(capacity(self.k)), what)?,
            chunks: chunks.read(n_chunks * CHUNK, what)?,
        })
    }

    /// Returns the grid of a group for each of `n` chunks or units.
    fn grid(&self, n: usize, shared: usize) -> Grid {
        Grid::new((n * capacity(self.k)).div_ceil(BLOCK as usize) as u32, BLOCK, shared)
    }
}

/// The matrices of chunks.
#[derive(Clone, Copy)]
pub struct Products<'a, T: Element> {
    pub chain: ChainNumbers<'a, T>,
    /// (n, [`CHUNK`])
    pub chunks: Numbers<'a, u32>,
    pub n: usize,
    /// (n, C, C)
    pub matrices: Numbers<'a, f64>,
    /// (n, C)
    pub powers: Numbers<'a, f64>,
}

impl<T: Element> Products<'_, T> {
    pub fn grid(&self) -> Grid {
        self.chain.grid(self.n, products::shared_bytes(capacity(self.chain.k), BLOCK))
    }
}

launch!([T], Products<'_, T>, ProductsArgs<T>, "chain_products", |launch, grid, what| {
    let (capacity, n) = (capacity(launch.chain.k), launch.n);
    grid.require_shared(what, products::shared_bytes(capacity, grid.threads))?;
    Ok(ProductsArgs {
        chain: launch.chain.argument(launch.chunks, n, what)?,
        n: n as u32,
        matrices: launch.matrices.write(n * capacity * capacity, what)?,
        powers: launch.powers.write(n * capacity, what)?,
    })
});

/// The posteriors of all rows, and their sums.
#[derive(Clone, Copy)]
pub struct Posteriors<'a, T: Element> {
    pub chain: ChainNumbers<'a, T>,
    /// (chunks, [`CHUNK`])
    pub chunks: Numbers<'a, u32>,
    pub n_chunks: usize,
    /// (n + 1,)
    pub units: Numbers<'a, u32>,
    pub n: usize,
    /// (chunks,)
    pub weights: Numbers<'a, f64>,
    /// (divided chunks, 2, C)
    pub ends: Numbers<'a, f64>,
    pub n_divided: usize,
    pub rows: usize,
    /// (rows, C)
    pub alpha: Numbers<'a, f64>,
    /// (rows,)
    pub scales: Numbers<'a, u32>,
    /// (chunks,)
    pub log2: Numbers<'a, f64>,
    /// (n, [`posteriors::sums`])
    pub sums: Numbers<'a, f64>,
}

impl<T: Element> Posteriors<'_, T> {
    pub fn grid(&self) -> Grid {
        self.chain.grid(self.n, posteriors::shared_bytes(capacity(self.chain.k), BLOCK))
    }
}

launch!([T], Posteriors<'_, T>, PosteriorsArgs<T>, "chain_posteriors", |launch, grid, what| {
    let (capacity, rows) = (capacity(launch.chain.k), launch.rows);
    require(what, launch.chain.stride >= rows)?;
    grid.require_shared(what, posteriors::shared_bytes(capacity, grid.threads))?;
    Ok(PosteriorsArgs {
        chain: launch.chain.argument(launch.chunks, launch.n_chunks, what)?,
        n: launch.n as u32,
        units: launch.units.read(launch.n + 1, what)?,
        weights: launch.weights.read(launch.n_chunks, what)?,
        ends: launch.ends.read(launch.n_divided * 2 * capacity, what)?,
        alpha: launch.alpha.write(rows * capacity, what)?,
        scales: launch.scales.write(rows, what)?,
        log2: launch.log2.write(launch.n_chunks, what)?,
        sums: launch.sums.write(launch.n * posteriors::sums(capacity), what)?,
    })
});
