//! Samples in the order of their patterns of missing values, and the patterns' tables. Nothing here calls CUDA.
use crate::device::layout;
use crate::general::layout::GeneralLayout;
use gmm_core::backends::device_parameters::frame_offset;
use gmm_core::compensated::neumaier_sum;
use gmm_core::data::frame::{Float, Frame};
use gmm_core::data::patterns::{Pattern, Patterns};
use gmm_core::data::samples::{Samples, View};
use gmm_core::error::{Error, Result};
use gmm_core::model::covariances::Covariances;
use gmm_core::model::mixture::Mixture;
use gmm_core::statistics::{CentredSums, Statistics};
use gmm_kernels::data::QUAD;
use gmm_kernels::estep::{fused, fused_patterns};
use gmm_kernels::general::{accumulate, density};
use gmm_kernels::patterns::{self, MATRICES, SLICE, VECTORS};
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis};
use rayon::prelude::*;
use std::ops::Range;

/// Rows of a slice: few, so that all multiprocessors have slices, but enough that a slice's own work is small.
const SLICE_ROWS: usize = 1024;
/// Bytes of the parameters and sums of patterns that are on the device at once, unless one pattern needs more.
const BATCH_BYTES: usize = 256 << 20;
/// Places behind the last row that the kernels may read.
const SLACK: usize = density::TILE;

/// The rows in the order of their patterns. Each pattern begins with a quad; places left between patterns are padding.
#[derive(Debug)]
pub(crate) struct Arrangement {
    pub n: usize,
    pub d: usize,
    /// Places, with the padding.
    pub places: usize,
    pub patterns: Vec<Placed>,
    /// The rows, pattern by pattern.
    order: Vec<usize>,
}

/// Rows in which the same columns are observed.
#[derive(Debug)]
pub(crate) struct Placed {
    /// These columns, ascending.
    pub observed: Vec<usize>,
    /// Their rows, as a range of the order.
    rows: Range<usize>,
    /// The place of the first.
    first: usize,
    /// The weight of all of them.
    pub weight: f64,
}

impl Arrangement {
    pub fn new(samples: &Samples<'_>) -> Self {
        let (n, d) = (samples.n_samples(), samples.n_features());
        let Patterns { order, groups } = Patterns::of(samples);
        let mut places = 0;
        let place = |Pattern { observed, rows }| {
            let weight = match samples.weights() {
                Some(weights) => neumaier_sum(order[Range::clone(&rows)].iter().map(|&row| weights[row])),
                None => rows.len() as f64,
            };
            let first = places;
            places += rows.len().next_multiple_of(QUAD);
            Placed { observed, rows, first, weight }
        };
        let patterns = groups.into_iter().map(place).collect();
        Self { n, d, places, patterns, order }
    }

    /// Returns the places of the columns, with those behind the last row.
    pub fn padded(&self) -> usize {
        self.places + SLACK
    }

    /// Returns the elements from one column to the next.
    pub fn stride(&self) -> usize {
        layout::stride(self.padded())
    }

    /// Writes the samples to `out`, (D + 1, [`stride`](Self::stride)): centred and scaled in float64, then rounded;
    /// zeros for missing values and padding. The last column holds the weights over `weight_scale`, zeros for padding.
    pub fn write_columns<T: Float>(&self, samples: &Samples<'_>, frame: &Frame, weight_scale: f64, out: &mut [T]) {
        fn column<S: Float, T: Float>(
            this: &Arrangement,
            x: ArrayView2<'_, S>,
            frame: &Frame,
            j: usize,
            out: &mut [T],
        ) {
            let column = x.index_axis(Axis(1), j);
            this.for_each_place(0..this.patterns.len(), 0..this.places, |_, place, row| {
                let v: f64 = column[row].into();
                if !v.is_nan() {
                    out[place] = T::from_f64(frame.apply(j, v));
                }
            });
        }
        debug_assert_eq!(out.len(), (self.d + 1) * self.stride());
        out.par_chunks_exact_mut(self.stride()).enumerate().for_each(|(j, out)| {
            out.fill(T::from_f64(0.0));
            match samples.view() {
                _ if j == self.d => {
                    let weights = samples.weights();
                    let weight = |row: usize| weights.map_or(1.0, |w| w[row] / weight_scale);
                    self.for_each_place(0..self.patterns.len(), 0..self.places, |_, place, row| {
                        out[place] = T::from_f64(weight(row))
                    });
                }
                View::F32(x) => column(self, x, frame, j, out),
                View::F64(x) => column(self, x, frame, j, out),
            }
        });
    }

    /// Calls `take` with the pattern, place and row of each row of these patterns whose place is in the range.
    pub fn for_each_place(
        &self,
        patterns: Range<usize>,
        places: Range<usize>,
        mut take: impl FnMut(usize, usize, usize),
    ) {
        for number in patterns {
            let pattern = &self.patterns[number];
            let rows = self.order[pattern.rows.clone()].iter().enumerate();
            for (place, &row) in
                rows.map(|(i, row)| (pattern.first + i, row)).filter(|(place, _)| places.contains(place))
            {
                take(number, place, row);
            }
        }
    }

    /// Returns the 32-bit words of a pattern's mask.
    pub fn words(&self) -> usize {
        self.d.div_ceil(32)
    }

    /// Returns the patterns' masks (patterns, [`words`](Self::words)).
    pub fn masks(&self) -> Vec<u32> {
        let mut masks = vec![0; self.patterns.len() * self.words()];
        for (pattern, mask) in self.patterns.iter().zip(masks.chunks_exact_mut(self.words())) {
            pattern.observed.iter().for_each(|j| mask[j / 32] |= 1 << (j % 32));
        }
        masks
    }

    /// Returns the pattern of each quad.
    pub fn quads(&self) -> Vec<u32> {
        let quads = |(p, pattern): (usize, &Placed)| std::iter::repeat_n(p as u32, pattern.rows.len().div_ceil(QUAD));
        self.patterns.iter().enumerate().flat_map(quads).collect()
    }

    /// Returns Σ over the patterns of log₂ of the frame's constant for their samples, times their weight.
    pub fn frame_offset(&self, frame: &Frame) -> f64 {
        neumaier_sum(self.patterns.iter().map(|pattern| pattern.weight * pattern.frame_offset(frame)))
    }
}

impl Placed {
    /// Returns log₂ of the frame's constant for a sample.
    pub fn frame_offset(&self, frame: &Frame) -> f64 {
        let log2_scale = self.observed.iter().map(|&j| frame.scale[j].log2()).sum();
        frame_offset(self.observed.len(), log2_scale)
    }
}

/// The evaluation of mixtures of K components over an arrangement.
#[derive(Debug)]
pub(crate) struct Shape {
    pub k: usize,
    pub d: usize,
    /// Components that `fused_patterns` has room for; 0 for the general kernels.
    pub capacity: usize,
    /// The layout of a pattern's parameters for the general kernels.
    pub general: GeneralLayout,
    /// Numbers from one pattern's parameters to the next.
    pub stride: usize,
    pub sums: usize,
    /// (slices, [`SLICE`])
    pub slices: Vec<u32>,
    /// The first slice of each pattern, and the number of all.
    pub first_slices: Vec<u32>,
    pub batches: Vec<Batch>,
}

/// Patterns whose parameters and sums are on the device at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Batch {
    pub patterns: Range<usize>,
    pub slices: Range<usize>,
}

impl Shape {
    /// For mixtures of K components; by `fused_patterns` in float32, if `fused` and there is an instance.
    pub fn new<T: Float>(arrangement: &Arrangement, k: usize, fused: bool) -> Self {
        let d = arrangement.d;
        let capacity = if fused { fused::capacity(k) } else { 0 };
        let general = GeneralLayout::of_triangles(k, d);
        let (stride, sums) = match capacity {
            0 => (general.len().next_multiple_of(4), accumulate::values(k, d, true)),
            _ => (fused::numbers(d, true) * capacity, fused_patterns::values(d, capacity)),
        };
        // Most sums of a pattern with many rows should fit into a batch.
        let most = (BATCH_BYTES / 2 / (sums * size_of::<f64>())).max(1);
        let rows = SLICE_ROWS.max(arrangement.n.div_ceil(most).next_multiple_of(SLICE_ROWS));
        let (mut slices, mut first_slices) = (Vec::new(), Vec::with_capacity(arrangement.patterns.len() + 1));
        for (p, pattern) in arrangement.patterns.iter().enumerate() {
            first_slices.push((slices.len() / SLICE) as u32);
            let end = pattern.first + pattern.rows.len();
            for first in (pattern.first..end).step_by(rows) {
                slices.extend([first, end.min(first + rows), p].map(|v| v as u32));
            }
        }
        first_slices.push((slices.len() / SLICE) as u32);
        let component = MATRICES * d * d + VECTORS * d + 1;
        let of_pattern = (k * component + patterns::values(k, d) + 1) * size_of::<f64>() + stride * size_of::<T>();
        let of_slice = (sums + 1) * size_of::<f64>();
        let (mut batches, mut start, mut bytes) = (Vec::new(), 0, 0);
        let batch = |patterns: Range<usize>| {
            let slices = first_slices[patterns.start] as usize..first_slices[patterns.end] as usize;
            Batch { patterns, slices }
        };
        for p in 0..arrangement.patterns.len() {
            let more = of_pattern + of_slice * (first_slices[p + 1] - first_slices[p]) as usize;
            if p > start && bytes + more > BATCH_BYTES {
                batches.push(batch(start..p));
                (start, bytes) = (p, 0);
            }
            bytes += more;
        }
        batches.push(batch(start..arrangement.patterns.len()));
        Self { k, d, capacity, general, stride, sums, slices, first_slices, batches }
    }

    pub fn layout(&self) -> patterns::Layout {
        patterns::Layout { k: self.k as u32, d: self.d as u32, capacity: self.capacity as u32 }
    }

    /// Returns where b, the seeds, the weights and the centres begin in the general kernels' parameters.
    pub fn places(&self) -> [u32; 4] {
        let [_, shifts, seeds, weights, centres] = self.general.sections();
        [shifts, seeds, weights, centres].map(|section| section.start as u32)
    }

    /// Returns the places of some slices' rows, from the first to behind the last.
    pub fn rows(&self, slices: Range<usize>) -> Range<usize> {
        let number = |slice: usize, i: usize| self.slices[slice * SLICE + i] as usize;
        number(slices.start, 0)..number(slices.end - 1, 1)
    }

    /// Returns consecutive slices of a batch with together at most this many rows, or single slices.
    pub fn pieces(&self, batch: &Batch, most: usize) -> Vec<Range<usize>> {
        let (mut pieces, mut start) = (Vec::new(), batch.slices.start);
        for slice in batch.slices.clone() {
            if slice > start && self.rows(start..slice + 1).len() > most {
                pieces.push(start..slice);
                start = slice;
            }
        }
        pieces.push(start..batch.slices.end);
        pieces
    }
}

/// Returns the numbers of a mixture for `marginals`: log₂ of the weights (K,), means (K, D), covariances (K, D, D).
pub(crate) fn mixture_numbers(k: usize, d: usize) -> usize {
    k * (1 + d + d * d)
}

/// Writes a mixture in the frame ([`mixture_numbers`]).
///
/// # Errors
/// [`Error::Unsupported`] for covariances without matrices; [`Error::OutOfRange`] for a variance that vanishes in a
/// frame widened by a sample far from all others.
pub(crate) fn write_mixture(mixture: &Mixture, frame: &Frame, out: &mut [f64]) -> Result<()> {
    let (k, d) = mixture.means().dim();
    let (weights, rest) = out.split_at_mut(k);
    let (means, covariances) = rest.split_at_mut(k * d);
    weights.iter_mut().enumerate().for_each(|(c, to)| *to = mixture.log2_weight(c));
    for (to, mean) in means.chunks_exact_mut(d).zip(mixture.means().outer_iter()) {
        to.iter_mut().zip(mean).enumerate().for_each(|(j, (to, mean))| *to = frame.apply(j, *mean));
    }
    for (c, to) in covariances.chunks_exact_mut(d * d).enumerate() {
        let matrix = match mixture.covariances() {
            Covariances::Full(v) => v.index_axis(Axis(0), c),
            Covariances::Tied(v) => v.view(),
            Covariances::Diag(_) | Covariances::Spherical(_) => {
                return Err(Error::Unsupported {
                    what: format!("the covariance type `{}`", mixture.covariance_type()),
                    backend: "the CUDA backend, pattern by pattern",
                    remedy: "use the type `full`",
                });
            }
        };
        for i in 0..d {
            if !(matrix[[i, i]] * frame.scale[i] * frame.scale[i]).is_normal() {
                return Err(Error::OutOfRange { component: c, column: i, precision: "float64" });
            }
            for j in 0..d {
                // The lower triangle of a matrix counts.
                to[i * d + j] = matrix[[i.max(j), i.min(j)]] * frame.scale[i] * frame.scale[j];
            }
        }
    }
    Ok(())
}

/// Returns the statistics from `factor` times all columns' sums around the means in the frame ([`patterns::sums`]).
pub(crate) fn statistics(
    values: &[f64],
    factor: f64,
    (weight, log_likelihood): (f64, f64),
    mixture: &Mixture,
    frame: &Frame,
) -> Result<Statistics> {
    let (k, d) = mixture.means().dim();
    let value = |c: usize, number: usize| factor * values[c * patterns::sums(d) + number];
    let lower = |c: usize, i: usize, j: usize| {
        let (i, j) = (i.max(j), i.min(j));
        value(c, 1 + d + i * (i + 1) / 2 + j)
    };
    let second = match mixture.covariances() {
        Covariances::Tied(_) => {
            Covariances::Tied(Array2::from_shape_fn((d, d), |(i, j)| (0..k).map(|c| lower(c, i, j)).sum::<f64>()))
        }
        _ => Covariances::Full(Array3::from_shape_fn((k, d, d), |(c, i, j)| lower(c, i, j))),
    };
    let sums = CentredSums {
        weight,
        log_likelihood,
        centres: Array2::zeros((k, d)),
        counts: Array1::from_shape_fn(k, |c| value(c, 0)),
        first: Array2::from_shape_fn((k, d), |(c, j)| value(c, 1 + j)),
        second,
    };
    let sums = frame.in_data_units(sums, mixture.covariance_type());
    Statistics::from_centred_sums(CentredSums { centres: mixture.means().to_owned(), ..sums })
}

/// Returns the error that `marginals` found, (patterns, K), if any.
pub(crate) fn check_problems(problems: &[i32], k: usize, mixture: &Mixture, precision: &'static str) -> Result<()> {
    let Some((at, problem)) = problems.iter().enumerate().find(|(_, problem)| **problem != 0) else { return Ok(()) };
    let (component, column) = (at % k, problem.unsigned_abs() as usize - 1);
    Err(if *problem < 0 {
        Error::OutOfRange { component, column, precision }
    } else {
        let tied = matches!(mixture.covariances(), Covariances::Tied(_));
        Error::NotPositiveDefinite { component: (!tied).then_some(component), pivot: column }
    })
}
