//! The launches of `density`, `posterior` and `accumulate`.
use super::layout::GeneralLayout;
use crate::device::gpu::Limits;
use crate::device::kernel::Grid;
use crate::device::launch::launch;
use crate::device::memory::Numbers;
use crate::device::place::Element;
use crate::device::require;
use crate::device::samples::Columns;
use gmm_core::error::Result;
use gmm_core::precision::Precision;
use gmm_kernels::data::QUAD;
use gmm_kernels::general::accumulate::{self, AccumulateArgs, NARROW, NEIGHBOURS, TALL, WIDE};
use gmm_kernels::general::density::{COMPONENTS, DensityArgs, GROUPS, TILE};
use gmm_kernels::general::posterior::{self, PosteriorArgs};
use gmm_kernels::patterns::{ParametersOfQuads, SLICE};
use gmm_kernels::simt::WARP;

/// Threads of a block of `posterior`, and of `density` and `accumulate`, which need more registers.
pub const BLOCK: u32 = 256;
const SMALL_BLOCK: u32 = 128;

/// The patterns of missing values of some samples, each with its own parameters.
#[derive(Clone, Copy)]
pub struct OfQuads<'a> {
    pub patterns: Numbers<'a, u32>,
    /// The patterns whose parameters are there.
    pub first: usize,
    pub count: usize,
    /// Numbers from one pattern's parameters to the next.
    pub stride: usize,
}

/// Returns the argument that assigns parameters to each quad of `n` samples.
fn of_quads<T>(of: Option<OfQuads<'_>>, n: usize, parameters: &Numbers<'_, T>) -> Result<ParametersOfQuads>
where
    T: Element,
{
    let Some(of) = of else { return Ok(ParametersOfQuads::ONE) };
    let what = "the parameters of patterns";
    parameters.read(of.count * of.stride, what)?;
    let patterns = of.patterns.read(n.div_ceil(QUAD), what)?;
    Ok(ParametersOfQuads { patterns, first: of.first as u32, stride: of.stride as u64 })
}

/// qₖ of every sample and component.
#[derive(Clone, Copy)]
pub struct Density<'a, T: Element> {
    pub columns: Columns<'a, T>,
    pub layout: GeneralLayout,
    pub parameters: Numbers<'a, T>,
    pub of_quads: Option<OfQuads<'a>>,
    /// (K, stride)
    pub q: Numbers<'a, T>,
    pub stride: usize,
}

/// Returns the warps of `density` for each tile of samples: one for each triangle, or for groups of diagonals.
pub fn density_units(layout: &GeneralLayout) -> usize {
    if layout.full { layout.k } else { layout.k.div_ceil(COMPONENTS * GROUPS) }
}

impl<T: Element> Density<'_, T> {
    /// Returns the grid: blocks take neighbouring tasks, as many blocks as run at once.
    pub fn grid(&self, products: Products, limits: &Limits) -> Grid {
        let at_once = if products == Products::Scalar { (SMALL_BLOCK / WARP) as usize } else { 1 };
        let registers = products.density_registers::<T>(&self.layout);
        let resident = limits.multiprocessors * limits.resident_blocks(registers, SMALL_BLOCK, 0);
        let tasks = self.columns.n().div_ceil(TILE) * density_units(&self.layout);
        Grid::new(resident.min(tasks.div_ceil(at_once) as u32), SMALL_BLOCK, 0)
    }
}

// The columns are padded to whole tiles.
launch!([T], Density<'_, T>, DensityArgs<T>, "density", |launch, _grid, what| {
    let (layout, columns) = (launch.layout, launch.columns);
    let padded = columns.n().next_multiple_of(TILE);
    require(what, columns.d() >= layout.d && launch.stride >= padded && columns.stride() >= padded)?;
    let [matrices, shifts, seeds, ..] = layout.sections();
    Ok(DensityArgs {
        x: columns.x(),
        stride: columns.stride() as u64,
        n: columns.n() as u32,
        k: layout.k as u32,
        d: layout.d as u32,
        matrices: launch.parameters.read_part(matrices)?,
        matrix_stride: layout.matrix_stride as u64,
        shifts: launch.parameters.read_part(shifts)?,
        seeds: launch.parameters.read_part(seeds)?,
        of_quads: of_quads(launch.of_quads, columns.n(), &launch.parameters)?,
        q: launch.q.write(layout.k * launch.stride, what)?,
        q_stride: launch.stride as u64,
    })
});

/// Scores, labels, responsibilities, and the total, from qₖ.
#[derive(Clone, Copy)]
pub struct Posterior<'a, T: Element> {
    pub columns: Columns<'a, T>,
    pub layout: GeneralLayout,
    pub parameters: Numbers<'a, T>,
    pub of_quads: Option<OfQuads<'a>>,
    /// (K, stride)
    pub q: Numbers<'a, T>,
    pub stride: usize,
    /// Whether samples count by their weights.
    pub weighted: bool,
    /// Whether responsibilities replace qₖ.
    pub responsibilities: bool,
    /// Whether to add to the present totals.
    pub add: bool,
    pub scores: Option<Numbers<'a, f64>>,
    pub labels: Option<Numbers<'a, u32>>,
    /// A total for each block.
    pub totals: Numbers<'a, f64>,
}

/// The limit of registers of `posterior`, so that a multiprocessor holds three blocks in float64.
pub const POSTERIOR_REGISTERS: u32 = 96;

/// Returns the samples, of K components, that a block of `posterior` takes at a time.
pub fn posterior_samples(k: usize) -> usize {
    (BLOCK / posterior::parts(k)) as usize
}

impl<T: Element> Posterior<'_, T> {
    pub fn grid(&self, blocks: u32) -> Grid {
        Grid::new(blocks, BLOCK, posterior::shared_bytes(BLOCK))
    }
}

launch!([T], Posterior<'_, T>, PosteriorArgs<T>, "posterior", |launch, grid, what| {
    let (layout, n, [.., weights, _]) = (launch.layout, launch.columns.n(), launch.layout.sections());
    require(what, launch.stride >= n)?;
    grid.require_shared(what, posterior::shared_bytes(grid.threads))?;
    Ok(PosteriorArgs {
        q: launch.q.write(layout.k * launch.stride, what)?,
        stride: launch.stride as u64,
        n: n as u32,
        k: layout.k as u32,
        parts: posterior::parts(layout.k),
        weights: launch.parameters.read_part(weights)?,
        of_quads: of_quads(launch.of_quads, n, &launch.parameters)?,
        sample_weights: launch.columns.weights_if(launch.weighted),
        responsibilities: launch.responsibilities.into(),
        add: launch.add.into(),
        scores: Numbers::write_if(launch.scores, n, what)?,
        labels: Numbers::write_if(launch.labels, n, what)?,
        partials: launch.totals.write(grid.blocks.0 as usize, what)?,
    })
});

/// The sufficient statistics from responsibilities, slice by slice of the samples.
#[derive(Clone, Copy)]
pub struct Accumulate<'a, T: Element> {
    pub columns: Columns<'a, T>,
    pub layout: GeneralLayout,
    pub products: Products,
    pub parameters: Numbers<'a, T>,
    /// (K, stride)
    pub responsibilities: Numbers<'a, T>,
    pub stride: usize,
    pub slices: usize,
    /// The slices of patterns of missing values, if there are patterns.
    pub table: Option<SliceTable<'a>>,
    /// Whether to add to the present sums.
    pub add: bool,
    /// A sum for each value and slice.
    pub partials: Numbers<'a, f64>,
}

#[derive(Clone, Copy)]
pub struct SliceTable<'a> {
    /// (slices, [`SLICE`])
    pub slices: Numbers<'a, u32>,
    /// The row of the table's numbers that is the samples' first.
    pub first: usize,
    /// The first slice's number among the slices with partial sums, and the number of these.
    pub number: usize,
    pub of: usize,
}

/// The unit that multiplies triangles.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Products {
    /// The scalar units; they also multiply diagonals.
    Scalar,
    /// The tensor cores in float64; `tall` with the products of compute capability 9.0, `narrow` up to [`NARROW`]
    /// features.
    Tensor { tall: bool, narrow: bool },
}

impl Products {
    pub fn new<T: Element>(layout: &GeneralLayout, limits: &Limits) -> Self {
        let (d, tall) = (layout.d, limits.warpgroups);
        if !layout.full || T::PRECISION != Precision::Float64 || d < if tall { TALL } else { WIDE } {
            return Self::Scalar;
        }
        Self::Tensor { tall, narrow: tall && d <= NARROW }
    }

    /// Returns the warps of `accumulate` for each slice of the samples.
    fn tasks(self, &GeneralLayout { k, d, full, .. }: &GeneralLayout) -> usize {
        match self {
            Self::Scalar => accumulate::units(k, d, full),
            Self::Tensor { narrow: true, .. } => k.div_ceil(NEIGHBOURS),
            Self::Tensor { narrow: false, .. } => k * accumulate::squares(d, accumulate::BLOCK),
        }
    }

    /// Returns the limit of registers of `density`.
    pub fn density_registers<T: Element>(self, layout: &GeneralLayout) -> u32 {
        match self {
            Self::Tensor { narrow: false, .. } => 255,
            Self::Scalar if layout.full || T::PRECISION == Precision::Float32 => 128,
            _ => 168,
        }
    }

    /// Returns the limit of registers of `accumulate`, which leaves its sums in registers.
    pub fn accumulate_registers<T: Element>(layout: &GeneralLayout) -> u32 {
        match T::PRECISION {
            Precision::Float32 if layout.full => 168,
            Precision::Float32 => 128,
            Precision::Float64 => 255,
        }
    }
}

/// The most rounds in which the warps of `accumulate` run.
const MOST_WAVES: usize = 4;

/// Returns the slices, at most `most`, with which the warps of `accumulate`, equally long, finish soonest in waves.
pub fn accumulate_slices<T: Element>(layout: &GeneralLayout, limits: &Limits, most: usize) -> usize {
    let products = Products::new::<T>(layout, limits);
    let registers = Products::accumulate_registers::<T>(layout);
    let blocks = limits.multiprocessors * limits.resident_blocks(registers, SMALL_BLOCK, 0);
    slices_in_waves(products.tasks(layout), (blocks * (SMALL_BLOCK / WARP)) as usize, most)
}

/// Returns the slices, at most `most`, with which equally long tasks of each, of which some are resident at a time,
/// finish soonest in waves.
pub fn slices_in_waves(tasks: usize, resident: usize, most: usize) -> usize {
    let of_waves = |waves: usize| (waves * resident / tasks).clamp(1, most);
    let time = |slices: usize| (tasks * slices).div_ceil(resident) as f64 / slices as f64;
    (1..=MOST_WAVES).map(of_waves).min_by(|a, b| time(*a).total_cmp(&time(*b))).unwrap_or(1)
}

impl<T: Element> Accumulate<'_, T> {
    pub fn grid(&self) -> Grid {
        let tasks = self.products.tasks(&self.layout) * self.slices;
        Grid::new(tasks.div_ceil((SMALL_BLOCK / WARP) as usize) as u32, SMALL_BLOCK, 0)
    }
}

launch!([T], Accumulate<'_, T>, AccumulateArgs<T>, "accumulate", |launch, _grid, what| {
    let (GeneralLayout { k, d, full, .. }, n, slices) = (launch.layout, launch.columns.n(), launch.slices);
    let [.., centres] = launch.layout.sections();
    let (number, of) = launch.table.map_or((0, slices), |table| (table.number, table.of));
    require(what, launch.stride >= n && number + slices <= of && launch.columns.d() >= d && slices > 0)?;
    Ok(AccumulateArgs {
        x: launch.columns.x(),
        stride: launch.columns.stride() as u64,
        n: n as u32,
        k: k as u32,
        d: d as u32,
        slices: slices as u32,
        slice: n.div_ceil(slices).next_multiple_of(WARP as usize) as u32,
        table: Numbers::read_if(launch.table.map(|table| table.slices), SLICE * slices, what)?,
        first: launch.table.map_or(0, |table| table.first as u32),
        add: launch.add.into(),
        r: launch.responsibilities.read(k * launch.stride, what)?,
        r_stride: launch.stride as u64,
        centres: launch.parameters.read_part(centres)?,
        partials: launch.partials.write_part(number..accumulate::values(k, d, full) * of)?,
        partials_stride: of as u64,
    })
});
