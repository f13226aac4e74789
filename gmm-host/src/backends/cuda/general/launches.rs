//! The launches of `density`, `posterior` and `accumulate`.
use super::layout::{GeneralLayout, Section};
use crate::backends::cuda::device::check_suffices;
use crate::backends::cuda::device::kernel::{Grid, Launch};
use crate::backends::cuda::device::memory::Numbers;
use crate::backends::cuda::device::samples::{Columns, Element};
use crate::error::Result;
use gmm_kernels::data::QUAD;
use gmm_kernels::general::accumulate::{self, AccumulateArgs};
use gmm_kernels::general::density::{COMPONENTS, DensityArgs, TILE};
use gmm_kernels::general::posterior::PosteriorArgs;
use gmm_kernels::patterns::{ParametersOfQuads, SLICE};
use gmm_kernels::reduce::FINISH_SHARED_BYTES;
use gmm_kernels::simt::WARP;
use std::ptr;

/// Threads of a block of `density` and `posterior`, and of `accumulate`, which needs twice the
/// registers.
pub const BLOCK: u32 = 256;
const ACCUMULATE_BLOCK: u32 = 128;

/// The patterns of missing values of some samples; each has parameters of its own.
#[derive(Clone, Copy)]
pub struct OfQuads<'a> {
    /// The pattern of each quad of the samples.
    pub patterns: Numbers<'a, u32>,
    /// The patterns whose parameters there are.
    pub first: usize,
    pub count: usize,
    /// Numbers from one pattern's parameters to the next.
    pub stride: usize,
}

/// Which of some parameters each quad of `n` samples has.
fn of_quads<T>(of: Option<OfQuads<'_>>, n: usize, parameters: &Numbers<'_, T>) -> Result<ParametersOfQuads>
where
    T: Element,
{
    let Some(of) = of else { return Ok(ParametersOfQuads::ONE) };
    let (needed, got) = (vec![n.div_ceil(QUAD), of.count * of.stride], vec![of.patterns.len(), parameters.len()]);
    check_suffices("the parameters of patterns", needed, got)?;
    Ok(ParametersOfQuads { patterns: of.patterns.pointer(), first: of.first as u32, stride: of.stride as u64 })
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

impl<T: Element> Density<'_, T> {
    pub fn grid(&self) -> Grid {
        let GeneralLayout { k, full, .. } = self.layout;
        let units = if full { k } else { k.div_ceil(COMPONENTS) };
        let blocks = (self.columns.n().div_ceil(TILE) * units).div_ceil((BLOCK / WARP) as usize);
        Grid::new(blocks as u32, BLOCK, 0)
    }
}

// SAFETY: the columns' lengths were checked when they were made, and they are padded to whole
// tiles; the sections of the parameters are inside them by `Numbers::part`, and a place for each
// component and sample is checked here.
unsafe impl<T: Element> Launch for Density<'_, T> {
    type Argument = DensityArgs<T>;

    fn argument(&self, _: &Grid) -> Result<DensityArgs<T>> {
        let (layout, columns) = (self.layout, self.columns);
        let padded = columns.n().next_multiple_of(TILE);
        let needed = vec![layout.d, layout.k * self.stride, padded, padded];
        check_suffices(
            "a launch of `density`",
            needed,
            vec![columns.d(), self.q.len(), self.stride, columns.stride()],
        )?;
        let section = |section| self.parameters.part(layout.section(section));
        Ok(DensityArgs {
            x: columns.x(),
            stride: columns.stride() as u64,
            n: columns.n() as u32,
            k: layout.k as u32,
            d: layout.d as u32,
            matrices: section(Section::Matrices)?.pointer(),
            matrix_stride: layout.matrix_stride as u64,
            shifts: section(Section::Shifts)?.pointer(),
            seeds: section(Section::Seeds)?.pointer(),
            of_quads: of_quads(self.of_quads, columns.n(), &self.parameters)?,
            q: self.q.pointer_mut(),
            q_stride: self.stride as u64,
        })
    }
}

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
    /// Whether to add to the totals that are there.
    pub add: bool,
    pub scores: Option<Numbers<'a, f64>>,
    pub labels: Option<Numbers<'a, u32>>,
    /// A total for each block.
    pub totals: Numbers<'a, f64>,
}

impl<T: Element> Posterior<'_, T> {
    pub fn grid(&self, blocks: u32) -> Grid {
        Grid::new(blocks, BLOCK, FINISH_SHARED_BYTES)
    }
}

// SAFETY: the columns' lengths were checked when they were made; a qₖ for each component and
// sample, a place for each score, label and block are checked here.
unsafe impl<T: Element> Launch for Posterior<'_, T> {
    type Argument = PosteriorArgs<T>;

    fn argument(&self, grid: &Grid) -> Result<PosteriorArgs<T>> {
        let (layout, n) = (self.layout, self.columns.n());
        let needed = vec![layout.k * self.stride, n, n, n, grid.blocks.0 as usize, FINISH_SHARED_BYTES];
        let (scores, labels) = (self.scores.map_or(n, |s| s.len()), self.labels.map_or(n, |l| l.len()));
        let got = vec![self.q.len(), self.stride, scores, labels, self.totals.len(), grid.shared];
        check_suffices("a launch of `posterior`", needed, got)?;
        Ok(PosteriorArgs {
            q: self.q.pointer_mut(),
            stride: self.stride as u64,
            n: n as u32,
            k: layout.k as u32,
            weights: self.parameters.part(layout.section(Section::Weights))?.pointer(),
            of_quads: of_quads(self.of_quads, n, &self.parameters)?,
            sample_weights: if self.weighted { self.columns.weights() } else { ptr::null() },
            responsibilities: self.responsibilities.into(),
            add: self.add.into(),
            scores: self.scores.map_or(ptr::null_mut(), |scores| scores.pointer_mut()),
            labels: self.labels.map_or(ptr::null_mut(), |labels| labels.pointer_mut()),
            partials: self.totals.pointer_mut(),
        })
    }
}

/// The sufficient statistics from responsibilities, slice by slice of the samples.
#[derive(Clone, Copy)]
pub struct Accumulate<'a, T: Element> {
    pub columns: Columns<'a, T>,
    pub layout: GeneralLayout,
    pub parameters: Numbers<'a, T>,
    /// (K, stride)
    pub responsibilities: Numbers<'a, T>,
    pub stride: usize,
    pub slices: usize,
    /// The slices, where they are those of patterns of missing values.
    pub table: Option<SliceTable<'a>>,
    /// Whether to add to the sums that are there.
    pub add: bool,
    /// A sum for each value and slice.
    pub partials: Numbers<'a, f64>,
}

/// Slices of patterns of missing values.
#[derive(Clone, Copy)]
pub struct SliceTable<'a> {
    /// (slices, [`SLICE`])
    pub slices: Numbers<'a, u32>,
    /// The row of the table's numbers that is the first of the samples.
    pub first: usize,
    /// The number of the first slice among those that there are partial sums of, and how many these
    /// are.
    pub number: usize,
    pub of: usize,
}

impl<T: Element> Accumulate<'_, T> {
    pub fn grid(&self) -> Grid {
        let GeneralLayout { k, d, full, .. } = self.layout;
        let tasks = k * accumulate::tiles(d, full) * self.slices;
        Grid::new(tasks.div_ceil((ACCUMULATE_BLOCK / WARP) as usize) as u32, ACCUMULATE_BLOCK, 0)
    }
}

// SAFETY: the columns' lengths were checked when they were made; responsibilities of all components
// and samples, and a place for each value and slice, are checked here.
unsafe impl<T: Element> Launch for Accumulate<'_, T> {
    type Argument = AccumulateArgs<T>;

    fn argument(&self, _: &Grid) -> Result<AccumulateArgs<T>> {
        let (layout, n) = (self.layout, self.columns.n());
        let GeneralLayout { k, d, full, .. } = layout;
        let (table, of) =
            (self.table.map_or(SLICE * self.slices, |t| t.slices.len()), self.table.map_or(self.slices, |t| t.of));
        let number = self.table.map_or(0, |t| t.number);
        let values = accumulate::values(k, d, full);
        let needed = vec![k * self.stride, n, values * of, number + self.slices, SLICE * self.slices, d, 1];
        let got = vec![
            self.responsibilities.len(),
            self.stride,
            self.partials.len(),
            of,
            table,
            self.columns.d(),
            self.slices,
        ];
        check_suffices("a launch of `accumulate`", needed, got)?;
        Ok(AccumulateArgs {
            x: self.columns.x(),
            stride: self.columns.stride() as u64,
            n: n as u32,
            k: k as u32,
            d: d as u32,
            slices: self.slices as u32,
            slice: n.div_ceil(self.slices).next_multiple_of(WARP as usize) as u32,
            table: self.table.map_or(ptr::null(), |table| table.slices.pointer()),
            first: self.table.map_or(0, |table| table.first as u32),
            add: self.add.into(),
            r: self.responsibilities.pointer(),
            r_stride: self.stride as u64,
            centres: self.parameters.part(layout.section(Section::Centres))?.pointer(),
            partials: self.partials.part(number..self.partials.len())?.pointer_mut(),
            partials_stride: of as u64,
        })
    }
}
