//! The launches over patterns of missing values.
use super::arrangement::{Batch, Shape};
use crate::backends::cuda::device::check_suffices;
use crate::backends::cuda::device::kernel::{Grid, Launch};
use crate::backends::cuda::device::memory::Numbers;
use crate::backends::cuda::device::samples::{Columns, Element};
use crate::data::frame::Float;
use crate::error::Result;
use gmm_kernels::estep::fused_patterns::{FusedPatternsArgs, shared_bytes};
use gmm_kernels::patterns::complete::CompleteArgs;
use gmm_kernels::patterns::marginals::MarginalsArgs;
use gmm_kernels::patterns::{self, BLOCK, MATRICES, Masks, ParametersOfQuads, SLICE, VECTORS};
use gmm_kernels::simt::WARP;
use std::ptr;

/// Patterns whose parameters are on the device, and the memory that goes with them.
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

    /// A block for each pattern.
    pub fn grid(&self) -> Grid {
        Grid::new(self.count() as u32, BLOCK, 0)
    }

    /// The masks, after a check of all memory.
    fn masks(&self) -> Result<Masks> {
        let (d, end) = (self.shape.d, self.batch.patterns.end);
        let results = patterns::values(self.shape.k, d) * self.count();
        let (matrices, vectors) = (self.components() * MATRICES * d * d, self.components() * VECTORS * d);
        check_suffices(
            "the memory of a launch over patterns",
            vec![end * self.words, end, matrices, vectors, results],
            [self.masks.len(), self.weights.len(), self.matrices.len(), self.vectors.len(), self.values.len()].into(),
        )?;
        let masks = self.masks.part(self.batch.patterns.start * self.words..end * self.words)?;
        Ok(Masks { words: masks.pointer(), width: self.words as u32, count: self.count() as u32 })
    }
}

/// The parameters of each pattern.
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

// SAFETY: the lengths of all arrays are checked here.
unsafe impl<T: Element> Launch for Marginals<'_, T> {
    type Argument = MarginalsArgs<T>;

    fn argument(&self, _: &Grid) -> Result<MarginalsArgs<T>> {
        let (of, Shape { k, d, stride, .. }) = (self.of, self.of.shape);
        let (count, components, (k, d)) = (of.count(), of.components(), (*k, *d));
        let needed = vec![k * (1 + d + d * d), count * stride, components, components, count];
        let got = [self.mixture.len(), self.parameters.len(), self.constants.len(), self.problems.len()];
        check_suffices("a launch of `marginals`", needed, got.into_iter().chain([self.offsets.len()]).collect())?;
        Ok(MarginalsArgs {
            layout: of.shape.layout(),
            masks: of.masks()?,
            weights: of.weights.part(of.batch.patterns.clone())?.pointer(),
            log2_weights: self.mixture.pointer(),
            means: self.mixture.part(k..k * (1 + d))?.pointer(),
            covariances: self.mixture.part(k * (1 + d)..k * (1 + d + d * d))?.pointer(),
            max_deviation: <T as Float>::MAX_DEVIATION,
            min_positive: <T as Float>::MIN_POSITIVE,
            parameters: self.parameters.pointer_mut(),
            stride: *stride as u64,
            places: of.shape.places(),
            matrices: of.matrices.pointer_mut(),
            vectors: of.vectors.pointer_mut(),
            constants: self.constants.pointer_mut(),
            problems: self.problems.pointer_mut(),
            offsets: self.offsets.pointer_mut(),
            values: of.values.pointer_mut(),
        })
    }
}

/// The sums of all columns of each pattern.
#[derive(Clone, Copy)]
pub struct Complete<'a> {
    pub of: OfBatch<'a>,
    /// The first slice of each of all patterns, and the number of all.
    pub first_slices: Numbers<'a, u32>,
    /// The sums of the batch's slices, if there are any to complete; by slice where
    /// `fused_patterns` left them, else by value.
    pub sums: Option<Numbers<'a, f64>>,
    /// The log-likelihood of each of these slices, where these are known.
    pub totals: Option<Numbers<'a, f64>>,
}

// SAFETY: the lengths of all arrays are checked here.
unsafe impl Launch for Complete<'_> {
    type Argument = CompleteArgs;

    fn argument(&self, _: &Grid) -> Result<CompleteArgs> {
        let (of, patterns, slices) = (self.of, &self.of.batch.patterns, self.of.batch.slices.len());
        let (sums, totals) = (of.shape.sums * slices, slices);
        let got = vec![self.sums.map_or(sums, |s| s.len()), self.totals.map_or(totals, |t| t.len())];
        check_suffices("a launch of `complete_patterns`", vec![sums, totals], got)?;
        let (value_stride, slice_stride) = if of.shape.capacity > 0 { (1, of.shape.sums) } else { (slices, 1) };
        Ok(CompleteArgs {
            layout: of.shape.layout(),
            masks: of.masks()?,
            slices: self.first_slices.part(patterns.start..patterns.end + 1)?.pointer(),
            first_slice: of.batch.slices.start as u32,
            statistics: self.sums.is_some().into(),
            sums: self.sums.map_or(ptr::null(), |sums| sums.pointer()),
            value_stride: value_stride as u64,
            slice_stride: slice_stride as u64,
            totals: self.totals.map_or(ptr::null(), |totals| totals.pointer()),
            matrices: of.matrices.pointer_mut(),
            vectors: of.vectors.pointer_mut(),
            values: of.values.pointer_mut(),
        })
    }
}

/// The sums of each slice by `fused_patterns`.
#[derive(Clone, Copy)]
pub struct FusedPatterns<'a> {
    pub shape: &'a Shape,
    pub batch: &'a Batch,
    pub columns: Columns<'a>,
    /// Whether samples count by their weights.
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
    /// A warp for each slice.
    pub fn grid(&self) -> Grid {
        Grid::new(self.batch.slices.len() as u32, WARP, shared_bytes(self.shape.d, self.shape.capacity))
    }
}

// SAFETY: the columns' lengths were checked when they were made; the slices are inside them, and
// the lengths of all other arrays are checked here.
unsafe impl Launch for FusedPatterns<'_> {
    type Argument = FusedPatternsArgs;

    fn argument(&self, grid: &Grid) -> Result<FusedPatternsArgs> {
        let (Shape { d, capacity, stride, sums, .. }, batch) = (self.shape, self.batch);
        let slices = batch.slices.len();
        let shared = shared_bytes(*d, *capacity);
        let end = self.shape.rows(batch.slices.clone()).end;
        let needed = vec![*d, end, batch.patterns.len() * stride, slices * sums, slices, shared];
        let got = vec![self.columns.d(), self.columns.n(), self.parameters.len(), self.sums.len(), self.totals.len()];
        check_suffices("a launch of `fused_patterns`", needed, got.into_iter().chain([grid.shared]).collect())?;
        Ok(FusedPatternsArgs {
            columns: self.columns.argument(self.cached_quads),
            sample_weights: if self.weighted { self.columns.weights() } else { ptr::null() },
            slices: self.slices.part(batch.slices.start * SLICE..batch.slices.end * SLICE)?.pointer(),
            of_patterns: ParametersOfQuads {
                patterns: ptr::null(),
                first: batch.patterns.start as u32,
                stride: *stride as u64,
            },
            parameters: self.parameters.pointer(),
            sums: self.sums.pointer_mut(),
            totals: self.totals.pointer_mut(),
        })
    }
}
