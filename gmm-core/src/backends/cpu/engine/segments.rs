//! The E-step over segments of the samples.
use super::{Engine, Spare};
use crate::backends::cpu::buffer::{Buffer, Zeros, buffer};
use crate::backends::cpu::estep;
use crate::backends::cpu::kernel::{Chunk, Scratch};
use crate::backends::cpu::leading::leading_rows;
use crate::backends::cpu::moments::{EStep, Layout, MAX_PENDING, SegmentSums, Sums, Totals};
use crate::backends::cpu::real::Real;
use crate::backends::device_parameters::DeviceParameters;
use crate::compensated::neumaier_sum;
use crate::error::Result;
use crate::model::mixture::Mixture;
use crate::statistics::CentredSums;
use ndarray::Array2;
use std::f64::consts::LN_2;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The most sums of all segments together, unless there are four segments. An E-step gathers its chunks into segments,
/// each with its own sums; their number does not depend on the threads, so the results do not either.
const SEGMENT_ELEMENTS: usize = 1 << 22;

impl<T: Real> Engine<'_, T> {
    /// Computes the E-step around `centres` in the frame (K, D): its totals, and the sums in the units of the data.
    pub(super) fn sums(
        &mut self,
        mixture: &Mixture,
        parameters: &DeviceParameters<T>,
        layout: Layout,
        centres: Array2<f64>,
    ) -> Result<CentredSums> {
        let leading = leading_rows(parameters);
        let padded = Self::padded(&centres, layout);
        let (log2, totals) = self.all_sums(parameters, leading, layout, &padded)?;
        let (frame, scale) = (&self.data.frame, self.weight_scale);
        let mut sums = estep::centred_sums(mixture, parameters, frame, layout, centres, &totals, scale);
        if !self.spare.sums.is_empty() {
            self.spare.matrices = Some(totals.matrices);
        }
        sums.weight = self.samples.total_weight();
        sums.log_likelihood = (sums.weight * parameters.offset + log2 * scale) * LN_2;
        Ok(sums)
    }

    /// Returns the centres of the moments as rows of `layout.width` elements.
    fn padded(centres: &Array2<f64>, layout: Layout) -> Buffer<T> {
        let mut padded = buffer(centres.nrows() * layout.width);
        for (to, from) in padded.chunks_mut(layout.width).zip(centres.rows()) {
            to.iter_mut().zip(from).for_each(|(to, &from)| *to = T::from_f64(from));
        }
        padded
    }

    /// Adds the E-step over some chunks to `sums`; returns the total of log₂ p − offset.
    fn segment_sums(
        &self,
        chunks: Range<usize>,
        parameters: &DeviceParameters<T>,
        leading: Option<usize>,
        centres: &[T],
        sums: &mut Sums<T>,
    ) -> f64 {
        let mut scratch = Scratch::new(parameters.n_components, parameters.n_features);
        let mut log2 = Vec::new();
        let mut pending = 0;
        for c in chunks {
            let (x, samples) = self.data.chunk(c);
            pending += samples.len();
            log2.push(self.isa.run(EStep {
                chunk: Chunk { x, n: samples.len(), parameters, leading, scratch: &mut scratch },
                weights: self.weights.as_ref().map(|w| &w[samples]),
                centres,
                sums: &mut *sums,
            }));
            if pending >= MAX_PENDING {
                sums.flush(self.isa);
                pending = 0;
            }
        }
        neumaier_sum(log2)
    }

    /// Computes the E-step over all chunks: the total of log₂ p − offset, and the totals that `layout` describes.
    fn all_sums(
        &mut self,
        parameters: &DeviceParameters<T>,
        leading: Option<usize>,
        layout: Layout,
        centres: &[T],
    ) -> Result<(f64, Totals)> {
        let (n_chunks, k) = (self.data.n_chunks(), parameters.n_components);
        let n_segments = n_chunks.min((SEGMENT_ELEMENTS / layout.length()).clamp(4, 64));
        let mut spare = std::mem::take(&mut self.spare);
        if !spare.sums.iter().all(|sums| sums.has_shape(layout, k)) {
            spare = Spare::default();
        }
        let mut sum = match spare.matrices.take() {
            Some(mut matrices) => {
                matrices.fill(0.0);
                matrices
            }
            None => Zeros::new(layout.matrices),
        };
        let spare = Mutex::new(spare);
        let of_spare = || spare.lock().unwrap_or_else(PoisonError::into_inner);
        let mut segments: Vec<Option<(f64, SegmentSums<T>)>> = (0..n_segments).map(|_| None).collect();
        let cost = 4 * (parameters.scale.len() + parameters.shift.len() * layout.height.max(2));
        self.for_each_piece(&mut segments, 1, cost, |segment, out| {
            let chunks = segment * n_chunks / n_segments..(segment + 1) * n_chunks / n_segments;
            let present = of_spare().sums.pop();
            let mut sums = present.unwrap_or_else(|| Sums::new(layout, k));
            let log2 = self.segment_sums(chunks, parameters, leading, centres, &mut sums);
            let room = of_spare().segments.pop();
            out[0] = Some((log2, sums.finish(self.isa, room)));
            of_spare().sums.push(sums);
        })?;
        let (log2, segments): (Vec<f64>, Vec<SegmentSums<T>>) = segments.into_iter().flatten().unzip();
        let mut spread = vec![0.0; layout.spread];
        for segment in &segments {
            spread.iter_mut().zip(&segment.spread).for_each(|(sum, v)| *sum += v);
        }
        const PIECE: usize = 1 << 14;
        self.in_pieces(&mut sum, PIECE, layout.matrices * segments.len(), |piece, sum| {
            for segment in &segments {
                segment.add_matrices(self.isa, piece * PIECE, sum);
            }
        })?;
        // Kept only if it takes no more memory than the samples.
        if n_segments * layout.length() <= self.data.n * self.data.d {
            self.spare = spare.into_inner().unwrap_or_else(PoisonError::into_inner);
            self.spare.segments.extend(segments);
        }
        Ok((neumaier_sum(log2), Totals { spread, matrices: sum }))
    }
}
