//! The launches of `noisy_density` and `noisy_sums`.
use crate::device::kernel::Grid;
use crate::device::launch::launch;
use crate::device::memory::Numbers;
use crate::device::require;
use crate::device::samples::Columns;
use crate::general::layout::GeneralLayout;
use gmm_core::error::Result;
use gmm_kernels::noisy::{self, BLOCK, GROUP, NARROW, PairsArgs, SumsArgs};
use gmm_kernels::simt::WARP;
use std::ptr;

/// The noise of some samples.
#[derive(Clone, Copy)]
pub struct NoiseOf<'a> {
    pub numbers: Numbers<'a, f64>,
    /// The first sample's place.
    pub first: usize,
    pub diagonal: bool,
    pub sample_stride: usize,
    pub entry_stride: usize,
}

impl NoiseOf<'_> {
    /// Returns the address of the first of `n` samples' noise in D columns.
    fn read(&self, n: usize, d: usize) -> Result<*const f64> {
        let entries = if self.diagonal { d } else { noisy::triangle(d) };
        let start = self.first * self.sample_stride;
        let last = start + (n - 1) * self.sample_stride + (entries - 1) * self.entry_stride;
        self.numbers.read_part(start..last + 1)
    }
}

/// log₂ of each density.
#[derive(Clone, Copy)]
pub struct Pairs<'a> {
    pub columns: Columns<'a, f64>,
    pub noise: Option<NoiseOf<'a>>,
    pub layout: GeneralLayout,
    /// In this layout, with lower triangles of Σ, row by row.
    pub parameters: Numbers<'a, f64>,
    /// (K, stride)
    pub q: Numbers<'a, f64>,
    pub stride: usize,
}

impl Pairs<'_> {
    pub fn grid(&self) -> Grid {
        let (n, GeneralLayout { k, d, .. }) = (self.columns.n(), self.layout);
        let narrow = n.div_ceil(WARP as usize) * k.div_ceil(GROUP as usize);
        let warps = if d <= NARROW { narrow } else { n * k };
        let blocks = warps.div_ceil((BLOCK / WARP) as usize).min(i32::MAX as usize);
        Grid::new(blocks as u32, BLOCK, noisy::shared_bytes(d, false))
    }

    fn argument(&self, grid: &Grid, what: &'static str) -> Result<PairsArgs> {
        let (columns, layout, GeneralLayout { k, d, .. }) = (self.columns, self.layout, self.layout);
        let n = columns.n();
        require(what, columns.d() == d && self.stride >= n && (1..=noisy::MAX_FEATURES).contains(&d))?;
        require(what, grid.threads == BLOCK)?;
        let [covariances, _, seeds, _, means] = layout.sections();
        Ok(PairsArgs {
            x: columns.x(),
            stride: columns.stride() as u64,
            n: n as u32,
            k: k as u32,
            d: d as u32,
            diagonal: self.noise.is_some_and(|noise| noise.diagonal).into(),
            noise: self.noise.map_or(Ok(ptr::null()), |noise| noise.read(n, d))?,
            sample_stride: self.noise.map_or(0, |noise| noise.sample_stride as u64),
            entry_stride: self.noise.map_or(0, |noise| noise.entry_stride as u64),
            covariances: self.parameters.read_part(covariances)?,
            covariance_stride: layout.matrix_stride as u64,
            seeds: self.parameters.read_part(seeds)?,
            means: self.parameters.read_part(means)?,
            q: self.q.write(k * self.stride, what)?,
            q_stride: self.stride as u64,
        })
    }
}

launch!(Pairs<'_>, PairsArgs, "noisy_density", |launch, grid, what| {
    grid.require_shared(what, noisy::shared_bytes(launch.layout.d, false))?;
    launch.argument(grid, what)
});

/// The sums of each component, slice by slice, from responsibilities in the place of q.
#[derive(Clone, Copy)]
pub struct Sums<'a> {
    pub pairs: Pairs<'a>,
    pub slices: usize,
    /// Whether to add to the present sums.
    pub add: bool,
    /// (K, sums, slices)
    pub partials: Numbers<'a, f64>,
}

impl Sums<'_> {
    pub fn grid(&self) -> Grid {
        let GeneralLayout { k, d, .. } = self.pairs.layout;
        let blocks = (k * self.slices).div_ceil((BLOCK / WARP) as usize);
        Grid::new(blocks as u32, BLOCK, noisy::shared_bytes(d, true))
    }
}

launch!(Sums<'_>, SumsArgs, "noisy_sums", |launch, grid, what| {
    let (pairs, slices) = (launch.pairs, launch.slices);
    require(what, slices > 0)?;
    grid.require_shared(what, noisy::shared_bytes(pairs.layout.d, true))?;
    Ok(SumsArgs {
        pairs: pairs.argument(grid, what)?,
        slices: slices as u32,
        slice: pairs.columns.n().div_ceil(slices) as u32,
        add: launch.add.into(),
        partials: launch.partials.write(pairs.layout.k * noisy::sums(pairs.layout.d) * slices, what)?,
    })
});
