//! The sums of an E-step in progress over some chunks.
use super::layout::{Layout, MAX_GROUP};
use super::queues::Queues;
use super::totals::{Flush, MatrixSums, SegmentSums};
use crate::backends::cpu::buffer::{Buffer, buffer};
use crate::backends::cpu::exponents::GROUP;
use crate::backends::cpu::real::Real;
use crate::simd::isa::Isa;

#[derive(Debug)]
pub(crate) struct Sums<T> {
    pub(super) layout: Layout,
    n_components: usize,
    /// Sums not yet moved into the totals.
    pub(super) spread: Buffer<T>,
    pub(super) matrices: MatrixSums<T>,
    spread_totals: Buffer<f64>,
    /// The samples of a group, as rows; without matrices, the responsibilities of a tile (K, `tile` groups).
    pub(super) rows: Buffer<T>,
    /// For each component, a bit for each group of the tile with non-negligible responsibilities.
    pub(super) present: Vec<u32>,
    pub(super) queues: Option<Queues<T>>,
}

impl<T: Real> Sums<T> {
    pub fn new(layout: Layout, n_components: usize) -> Self {
        let Layout { width, pair_width, queue, tile, matrices, .. } = layout;
        let rows = match (queue, tile) {
            (0, 0) => MAX_GROUP * (3 * width + 2 * pair_width),
            (_, 0) => MAX_GROUP * width,
            _ => n_components * tile * GROUP * layout.lanes,
        };
        Self {
            layout,
            n_components,
            spread: buffer(layout.spread * layout.lanes),
            matrices: MatrixSums::new(matrices),
            spread_totals: buffer(layout.spread * layout.lanes),
            rows: buffer(rows),
            present: vec![0; if tile > 0 { n_components } else { 0 }],
            queues: (queue > 0).then(|| Queues::new(layout, n_components)),
        }
    }

    /// Whether they fit an E-step of this shape.
    pub fn has_shape(&self, layout: Layout, n_components: usize) -> bool {
        self.layout == layout && self.n_components == n_components
    }

    /// Moves all sums without a queue into the totals.
    pub fn flush(&mut self, isa: Isa) {
        isa.run(Flush { sums: &mut self.spread, totals: &mut self.spread_totals });
        if self.layout.matrices > 0 && self.queues.is_none() {
            let (sums, totals) = self.matrices.with_totals();
            isa.run(Flush { sums, totals });
        }
    }

    /// Returns all sums and leaves zeros; `spare` is the memory of an earlier segment of the same shape.
    pub fn finish(&mut self, isa: Isa, spare: Option<SegmentSums<T>>) -> SegmentSums<T> {
        if let Some(queues) = &mut self.queues {
            queues.finish(isa, &mut self.matrices);
        }
        isa.run(Flush { sums: &mut self.spread, totals: &mut self.spread_totals });
        let of_lanes = self.spread_totals.chunks_exact(self.layout.lanes);
        let spread = of_lanes.map(|v| v.iter().sum()).collect();
        self.spread_totals.fill(0.0);
        let zeros = match spare {
            Some(SegmentSums { mut matrices, .. }) => {
                matrices.clear();
                matrices
            }
            None => MatrixSums::new(self.layout.matrices),
        };
        SegmentSums { spread, matrices: std::mem::replace(&mut self.matrices, zeros) }
    }
}
