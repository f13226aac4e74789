//! Batches that the general kernels evaluate, piece by piece.
use super::arrangement::{Batch, Shape};
use super::{ByPattern, Goal, Ready, most_rows};
use crate::device::memory::Numbers;
use crate::device::place::Element;
use crate::device::stream::Running;
use crate::general::accumulate_kernel;
use crate::general::launches::{Accumulate, Density, OfQuads, POSTERIOR_REGISTERS, Posterior, Products, SliceTable};
use crate::likelihood::{ReduceSets, Totals};
use gmm_core::error::Result;
use gmm_core::interrupt::Interrupt;
use gmm_kernels::data::QUAD;
use gmm_kernels::entries;
use gmm_kernels::general::density::TILE;
use gmm_kernels::patterns::SLICE;
use std::f64::consts::LN_2;
use std::ops::Range;

impl<T: Element> ByPattern<'_, T> {
    /// Evaluates a batch by the general kernels, piece by piece. `first`: whether it is the first batch.
    pub(super) fn general<'m>(
        &'m self,
        ready: &'m Ready,
        batch: &'m Batch,
        first: bool,
        goal: &mut Goal<'_>,
    ) -> Result<Running<'m, ()>> {
        let (shape, memory, store) = (&ready.shape, &self.memory, &self.store);
        let (stream, gpu) = (&self.stream, store.gpu);
        let all = store.columns()?;
        let parameters = Numbers::of(&memory.parameters).part(0..batch.patterns.len() * shape.stride)?;
        let layout = shape.general;
        let mut offsets = Vec::new();
        if let Goal::Scores(_) = goal {
            offsets = vec![0.0; batch.patterns.len()];
            stream.read(&memory.offsets, &mut offsets)?;
        }
        let mut running = stream.idle();
        let interrupt = Interrupt::current();
        for (number, slices) in shape.pieces(batch, most_rows(shape)).into_iter().enumerate() {
            interrupt.check()?;
            let rows = shape.rows(slices.clone());
            let stride = rows.len().next_multiple_of(TILE);
            let columns = all.part(rows.start, rows.len())?;
            let quads = Numbers::of(&store.quads).part(rows.start / QUAD..rows.end.div_ceil(QUAD))?;
            let (q, patterns) = (Numbers::of(&memory.q), &batch.patterns);
            let of_quads =
                Some(OfQuads { patterns: quads, first: patterns.start, count: patterns.len(), stride: shape.stride });
            let density = Density { columns, layout, parameters, of_quads, q, stride };
            let registers = Products::Scalar.density_registers::<T>(&layout);
            let kernel = gpu.kernel(&entries::density(true, false, false), Some(registers))?;
            running = running
                .followed_by(stream.launch(kernel, density.grid(Products::Scalar, &gpu.limits), density)?.borrowed());
            let posterior = Posterior {
                columns,
                layout,
                parameters,
                of_quads,
                q,
                stride,
                // Padding has the weight 0. A sample's result does not depend on its weight.
                weighted: matches!(goal, Goal::Total | Goal::Sums(_)),
                responsibilities: matches!(goal, Goal::Responsibilities(_) | Goal::Sums(_)),
                add: number > 0 || !first,
                scores: matches!(goal, Goal::Scores(_)).then(|| Numbers::of(&memory.scores)),
                labels: matches!(goal, Goal::Labels(_)).then(|| Numbers::of(&memory.labels)),
                totals: Numbers::of(&memory.blocks),
            };
            let kernel = gpu.kernel(&entries::posterior(), Some(POSTERIOR_REGISTERS))?;
            let blocks = posterior.grid(memory.blocks.len() as u32);
            running = running.followed_by(stream.launch(kernel, blocks, posterior)?.borrowed());
            if let Goal::Sums(_) = goal {
                let table = SliceTable {
                    slices: Numbers::of(&ready.slices).part(slices.start * SLICE..slices.end * SLICE)?,
                    first: rows.start,
                    number: slices.start - batch.slices.start,
                    of: batch.slices.len(),
                };
                let accumulate = Accumulate {
                    columns,
                    layout,
                    products: Products::new::<T>(&layout, &gpu.limits),
                    parameters,
                    responsibilities: q,
                    stride,
                    slices: slices.len(),
                    table: Some(table),
                    add: false,
                    partials: Numbers::of(&memory.sums),
                };
                let kernel = accumulate_kernel(gpu, &layout)?;
                running = running.followed_by(stream.launch(kernel, accumulate.grid(), accumulate)?.borrowed());
            }
            self.read_piece(shape, (batch, slices, rows, stride), &offsets, goal)?;
        }
        Ok(running)
    }

    /// Copies the rows' results of a piece back: a batch's slices, their rows' places, and the components' stride.
    fn read_piece(
        &self,
        shape: &Shape,
        (batch, slices, rows, stride): (&Batch, Range<usize>, Range<usize>, usize),
        offsets: &[f64],
        goal: &mut Goal<'_>,
    ) -> Result<()> {
        let (stream, memory, arrangement) = (&self.stream, &self.memory, &self.store.arrangement);
        // The patterns of these slices; the first and the last may have rows in other pieces.
        let pattern = |slice: usize| shape.slices[slice * SLICE + 2] as usize;
        let patterns = pattern(slices.start)..pattern(slices.end - 1) + 1;
        let n = rows.len();
        let for_each = |take: &mut dyn FnMut(usize, usize, usize)| {
            arrangement.for_each_place(patterns.clone(), rows.clone(), |pattern, place, row| {
                take(pattern, place - rows.start, row);
            });
        };
        match goal {
            Goal::Scores(to) => {
                let mut scores = vec![0.0; n];
                stream.read(&memory.scores, &mut scores)?;
                for_each(&mut |pattern, i, row| {
                    let placed = &arrangement.patterns[pattern];
                    // Without observed values the probability is 1, however the weights' sum is rounded.
                    to[row] = match placed.observed.is_empty() {
                        true => 0.0,
                        false => {
                            let offset =
                                offsets[pattern - batch.patterns.start] + placed.frame_offset(&self.store.frame);
                            LN_2 * (scores[i] + offset)
                        }
                    };
                });
            }
            Goal::Labels(to) => {
                let mut labels = vec![0u32; n];
                stream.read(&memory.labels, &mut labels)?;
                for_each(&mut |_, i, row| to[row] = labels[i] as usize);
            }
            Goal::Responsibilities(to) => {
                let mut r = vec![T::default(); shape.k * stride];
                stream.read(&memory.q, &mut r)?;
                for_each(&mut |_, i, row| {
                    for (c, to) in to.row_mut(row).iter_mut().enumerate() {
                        *to = r[c * stride + i].into();
                    }
                });
            }
            Goal::Total | Goal::Sums(_) => {}
        }
        Ok(())
    }

    /// Returns Σ weight·log₂ of all samples, from the blocks of `posterior`.
    pub(super) fn general_total(&self, shape: &Shape) -> Result<f64> {
        debug_assert_eq!(shape.capacity, 0);
        let (count, slots) = (self.memory.blocks.len(), &self.memory.total);
        slots.clear(1);
        let launch = ReduceSets { partials: Numbers::of(&self.memory.blocks), count, totals: Totals::Slots(slots, 1) };
        let reduce = self.store.gpu.kernel(&entries::reduce_sets(), None)?;
        Ok(self.stream.launch(reduce, launch.grid(1), launch)?.results(slots, 1)?[0])
    }
}
