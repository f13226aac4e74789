//! The division of work by the kernels of `whitened_mma` and `whitened_wgmma`, and the sections of their parameters.
use super::products_shapes::{MOST_SHARED, MOST_WARPS};
use crate::device::memory::sections;
use crate::plan::task::{Shape as LaunchShape, Task};
use gmm_core::model::linalg::triangle;
use gmm_kernels::estep::whitened_mma::{OuterShape, WhitenShape};
use gmm_kernels::estep::whitened_wgmma;
use gmm_kernels::simt::WARP;
use std::ops::Range;

/// The division of a task with matrices by the kernels of `whitened_mma` or `whitened_wgmma`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhitenedShapes {
    Warps { whiten: WhitenShape, outer: OuterShape },
    Warpgroups(whitened_wgmma::Shape),
}

impl WhitenedShapes {
    /// Returns the shapes of `whitened_wgmma`. None for too many features, and for diagonal covariances.
    pub fn of_warpgroups(task: &Task) -> Option<Self> {
        let (Task { k, d, .. }, full) = (*task, task.full());
        let fits = full && d <= whitened_wgmma::MAX_FEATURES;
        fits.then_some(Self::Warpgroups(whitened_wgmma::Shape { d: d as u32, k: k as u32 }))
    }

    /// Returns the shapes of a launch of `whitened_mma`: `split` warps of a block of `whiten` are side by side along
    /// the components. None if features of a stage, or of the fewest samples, exceed shared memory, and for diagonals.
    pub fn of_warps(task: &Task, launch: LaunchShape) -> Option<Self> {
        let (Task { k, d, .. }, full) = (*task, task.full());
        let whiten = |component_warps: u32, sample_warps: u32| WhitenShape {
            d: d as u32,
            k: k as u32,
            component_warps,
            sample_warps,
        };
        let outer = OuterShape::new(d, k, MOST_WARPS);
        let fits = full && outer.shared_bytes().max(whiten(1, 1).shared_bytes()) <= MOST_SHARED;
        fits.then(|| Self::Warps { whiten: whiten(launch.split, launch.block / WARP / launch.split), outer })
    }

    /// Returns the dynamic shared memory of a launch of any of the kernels.
    pub fn shared_bytes(&self) -> usize {
        match self {
            Self::Warps { whiten, outer } => whiten.shared_bytes().max(outer.shared_bytes()),
            Self::Warpgroups(shape) => shape.whiten_bytes().max(shape.respond_bytes()).max(shape.outer_bytes()),
        }
    }

    /// Returns the rows of exponents that all kernels use.
    pub fn rows(&self) -> usize {
        match self {
            Self::Warps { outer, .. } => outer.components(),
            Self::Warpgroups(shape) => shape.rows(),
        }
    }

    /// Returns the number of a component's shifts.
    pub(super) fn shifts(&self) -> usize {
        match self {
            Self::Warps { whiten, .. } => whiten.shifts(),
            Self::Warpgroups(shape) => shape.width(),
        }
    }

    /// Returns (K, D).
    pub fn dim(&self) -> (usize, usize) {
        let (k, d) = match self {
            Self::Warps { whiten, .. } => (whiten.k, whiten.d),
            Self::Warpgroups(shape) => (shape.k, shape.d),
        };
        (k as usize, d as usize)
    }

    /// Returns each row's sum of responsibilities, and of rounded ones.
    pub(super) fn counts(&self, sums: &[f64]) -> [Vec<f64>; 2] {
        let rows = self.rows();
        match self {
            Self::Warps { outer, .. } => [0, 1].map(|kind| sums[outer.counts() + kind * rows..][..rows].to_vec()),
            Self::Warpgroups(shape) => [0, 1].map(|kind| {
                let halves = &sums[shape.outer_sums() + rows * (shape.width() + 2 * kind)..];
                halves[..rows].iter().zip(&halves[rows..2 * rows]).map(|(even, odd)| even + odd).collect()
            }),
        }
    }

    /// Returns the places of the parameters, in sections of whole 16 bytes: triangles row by row, (K, D·(D + 1)/2);
    /// shifts (K, [`shifts`](Self::shifts)); factors of sums of products, seeds, and wₖ, (3, K); and wₖ for the sums.
    pub fn sections(&self) -> [Range<usize>; 4] {
        let (k, d) = self.dim();
        sections([k * triangle(d), k * self.shifts(), 3 * k, self.rows()].map(|len| len.next_multiple_of(4)))
    }

    pub fn len(&self) -> usize {
        let [.., weights] = self.sections();
        weights.end
    }
}
