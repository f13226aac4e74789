//! The launches over patterns of missing values.
use super::arrangement::{Batch, Shape};
use crate::device::kernel::Grid;
use crate::device::launch::launch;
use crate::device::memory::Numbers;
use crate::device::place::Element;
use crate::device::require;
use crate::device::samples::Columns;
use gmm_core::data::frame::Float;
use gmm_core::error::Result;
use gmm_kernels::estep::fused_patterns::{FusedPatternsArgs, shared_bytes};
use gmm_kernels::patterns::complete::CompleteArgs;
use gmm_kernels::patterns::marginals::MarginalsArgs;
use gmm_kernels::patterns::{self, BLOCK, MATRICES, Masks, ParametersOfQuads, SLICE, VECTORS};
use gmm_kernels::simt::WARP;
use std::ptr;

/// Patterns whose parameters are on the device, and their memory.
#[derive(Clone, Copy)]
pub struct OfBatch<'a> {
    pub shape: &'a Shape,
    pub batch: &'a Batch,
    /// All patterns' masks, their words each, and their weights.
    pub masks: Numbers<'a, u32>,
    pub words: usize,
    pub weights: Numbers<'a, f64>,
    /// Memory for each pattern and component: (MATRICES, D, D) and (VECTORS, D).
    pub matrices: Numbers<'a, f64>,
    pub vectors: Numbers<'a, f64>,
    /// ([`patterns::values`], patterns)
    pub values: Numbers<'a, f64>,
}

impl OfBatch<'_> {
    fn count(&self) -> usize {
        self.batch.patterns.len()
    }

    fn components(&self) -> usize {
        self.count() * self.shape.k
    }

    pub fn grid(&self) -> Grid {
        Grid::new(self.count() as u32, BLOCK, 0)
    }

    fn masks(&self) -> Result<Masks> {
        let patterns = &self.batch.patterns;
        let words = self.masks.read_part(patterns.start * self.words..patterns.end * self.words)?;
        Ok(Masks { words, width: self.words as u32, count: self.count() as u32 })
    }

    /// Returns matrices, vectors and values, to write to.
    fn memory(&self) -> Result<(*mut f64, *mut f64, *mut f64)> {
        let (what, d) = ("the memory of a launch over patterns", self.shape.d);
        Ok((
            self.matrices.write(self.components() * MATRICES * d * d, what)?,
            self.vectors.write(self.components() * VECTORS * d, what)?,
            self.values.write(patterns::values(self.shape.k, d) * self.count(), what)?,
        ))
    }
}

#[derive(Clone, Copy)]
pub struct Marginals<'a, T: Element> {
    pub of: OfBatch<'a>,
    /// [`mixture_numbers`](super::arrangement::mixture_numbers)
    pub mixture: Numbers<'a, f64>,
    /// (patterns, stride)
    pub parameters: Numbers<'a, T>,
    /// (patterns, K)
    pub constants: Numbers<'a, f64>,
    pub problems: Numbers<'a, i32>,
    /// (patterns,)
    pub offsets: Numbers<'a, f64>,
}

launch!([T], Marginals<'_, T>, MarginalsArgs<T>, "marginals", |launch, _grid, what| {
    let (of, Shape { k, d, stride, .. }) = (launch.of, launch.of.shape);
    let (count, components, (k, d)) = (of.count(), of.components(), (*k, *d));
    let (matrices, vectors, values) = of.memory()?;
    Ok(MarginalsArgs {
        layout: of.shape.layout(),
        masks: of.masks()?,
        weights: of.weights.read_part(of.batch.patterns.clone())?,
        log2_weights: launch.mixture.read(k, what)?,
        means: launch.mixture.read_part(k..k * (1 + d))?,
        covariances: launch.mixture.read_part(k * (1 + d)..k * (1 + d + d * d))?,
        max_deviation: <T as Float>::MAX_DEVIATION,
        min_positive: <T as Float>::MIN_POSITIVE,
        parameters: launch.parameters.write(count * stride, what)?,
        stride: *stride as u64,
        places: of.shape.places(),
        matrices,
        vectors,
        constants: launch.constants.write(components, what)?,
        problems: launch.problems.write(components, what)?,
        offsets: launch.offsets.write(count, what)?,
        values,
    })
});

/// The sums of all columns of each pattern.
#[derive(Clone, Copy)]
pub struct Complete<'a> {
    pub of: OfBatch<'a>,
    /// The first slice of each of all patterns, and the number of all.
    pub first_slices: Numbers<'a, u32>,
    /// The sums of the batch's slices, if there are any to complete: by slice from `fused_patterns`, else by value.
    pub sums: Option<Numbers<'a, f64>>,
    /// The log-likelihood of each of these slices, if known.
    pub totals: Option<Numbers<'a, f64>>,
}

launch!(Complete<'_>, CompleteArgs, "complete_patterns", |launch, _grid, what| {
    let (of, patterns, slices) = (launch.of, &launch.of.batch.patterns, launch.of.batch.slices.len());
    let (value_stride, slice_stride) = if of.shape.capacity > 0 { (1, of.shape.sums) } else { (slices, 1) };
    let (matrices, vectors, values) = of.memory()?;
    Ok(CompleteArgs {
        layout: of.shape.layout(),
        masks: of.masks()?,
        slices: launch.first_slices.read_part(patterns.start..patterns.end + 1)?,
        first_slice: of.batch.slices.start as u32,
        statistics: launch.sums.is_some().into(),
        sums: Numbers::read_if(launch.sums, of.shape.sums * slices, what)?,
        value_stride: value_stride as u64,
        slice_stride: slice_stride as u64,
        totals: Numbers::read_if(launch.totals, slices, what)?,
        matrices,
        vectors,
        values,
    })
});

/// The sums of each slice by `fused_patterns`.
#[derive(Clone, Copy)]
pub struct FusedPatterns<'a> {
    pub shape: &'a Shape,
    pub batch: &'a Batch,
    pub columns: Columns<'a>,
    pub weighted: bool,
    pub cached_quads: u32,
    /// (slices, [`SLICE`]), all.
    pub slices: Numbers<'a, u32>,
    /// (patterns, stride)
    pub parameters: Numbers<'a, f32>,
    /// (slices, sums) and (slices,)
    pub sums: Numbers<'a, f64>,
    pub totals: Numbers<'a, f64>,
}

impl FusedPatterns<'_> {
    pub fn grid(&self) -> Grid {
        Grid::new(self.batch.slices.len() as u32, WARP, shared_bytes(self.shape.d, self.shape.capacity))
    }
}

// The slices are of samples below `end`.
launch!(FusedPatterns<'_>, FusedPatternsArgs, "fused_patterns", |launch, grid, what| {
    let (Shape { d, capacity, stride, sums, .. }, batch) = (launch.shape, launch.batch);
    let slices = batch.slices.len();
    let end = launch.shape.rows(batch.slices.clone()).end;
    require(what, launch.columns.d() >= *d && launch.columns.n() >= end)?;
    grid.require_shared(what, shared_bytes(*d, *capacity))?;
    Ok(FusedPatternsArgs {
        columns: launch.columns.argument(launch.cached_quads),
        sample_weights: launch.columns.weights_if(launch.weighted),
        slices: launch.slices.read_part(batch.slices.start * SLICE..batch.slices.end * SLICE)?,
        of_patterns: ParametersOfQuads {
            patterns: ptr::null(),
            first: batch.patterns.start as u32,
            stride: *stride as u64,
        },
        parameters: launch.parameters.read(batch.patterns.len() * stride, what)?,
        sums: launch.sums.write(slices * sums, what)?,
        totals: launch.totals.write(slices, what)?,
    })
});
