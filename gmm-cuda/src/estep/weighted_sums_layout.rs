//! Parameters and results of the kernels `weighted_sums`. Nothing here calls CUDA.
use super::centres::{NEAR, farthest, means_in_frame};
use super::sums::Sums;
use crate::device::memory::sections;
use crate::likelihood::layout::{self, form};
use crate::plan::task::Task;
use gmm_core::backends::device_parameters::DeviceParameters;
use gmm_core::data::frame::Frame;
use gmm_core::model::covariances::{CovarianceType, Covariances};
use gmm_core::model::mixture::Mixture;
use gmm_core::statistics::CentredSums;
use gmm_kernels::data::QUAD;
use gmm_kernels::estep::weighted_sums::{self, COMPONENTS, VALUES};
use ndarray::{Array1, Array2, Array3};
use std::ops::Range;
use std::sync::Arc;

/// A mixture as the kernels of the E-step read it.
#[derive(Debug, Clone)]
pub(crate) struct WeightedSumsLayout {
    covariance_type: CovarianceType,
    parameters: Arc<DeviceParameters<f32>>,
    /// wₖ (tiles, [`COMPONENTS`]), zeros behind K.
    weights: Vec<f32>,
    /// Centres of the components in the frame (tiles, [`COMPONENTS`], D), zeros behind K; empty if moments are not
    /// central.
    centres: Vec<f32>,
}

impl WeightedSumsLayout {
    pub fn new(mixture: &Mixture, parameters: Arc<DeviceParameters<f32>>, frame: &Frame) -> Self {
        let (k, d) = mixture.means().dim();
        let padded = k.next_multiple_of(COMPONENTS);
        let mut weights = parameters.weight.clone();
        weights.resize(padded, 0.0);
        let mut centres = means_in_frame(mixture, &parameters, frame);
        centres.resize(padded * d, 0.0);
        if farthest(&parameters, &centres) <= NEAR {
            centres.clear();
        }
        Self { covariance_type: mixture.covariance_type(), parameters, weights, centres }
    }

    /// Returns (K, D).
    fn dim(&self) -> (usize, usize) {
        (self.parameters.n_components, self.parameters.n_features)
    }

    /// Returns whether each component's moments are taken around its centre, not the data's.
    pub fn central(&self) -> bool {
        !self.centres.is_empty()
    }

    /// Writes the parameters to their [`parameters`] for a task of the mixture.
    pub fn write(&self, task: &Task, rows: usize, out: &mut [f32]) {
        let [_, weights, centres] = parameters(task, rows);
        layout::write_tiled(&self.parameters, rows, form(task), out);
        out[weights][..self.weights.len()].copy_from_slice(&self.weights);
        out[centres][..self.centres.len()].copy_from_slice(&self.centres);
    }

    /// Returns the sums in the data's units, from the kernels' sums.
    pub fn centred_sums(&self, task: &Task, sums_of: &Sums<'_>) -> CentredSums {
        let Sums { log2, weight_scale, total_weight, frame, .. } = *sums_of;
        let sums = sums_of.weighted_values();
        let (k, d) = self.dim();
        let patches = patches(d, task.full());
        let tasks = k.div_ceil(COMPONENTS) * patches;
        let sum = |c: usize, patch: usize, v: usize| {
            sums[(c % COMPONENTS * VALUES + v) * tasks + c / COMPONENTS * patches + patch]
        };
        let centre = |c: usize, j: usize| self.centres.get(c * d + j).map_or(0.0, |v| f64::from(*v));
        let (first, second) = if task.full() { self.of_pairs(sum, frame) } else { self.of_squares(sum, frame) };
        CentredSums {
            weight: total_weight,
            log_likelihood: sums_of.log_likelihood(weight_scale * log2, self.parameters.offset),
            centres: Array2::from_shape_fn((k, d), |(c, j)| frame.shift[j] + centre(c, j) * frame.inverse[j]),
            counts: Array1::from_shape_fn(k, |c| sums[COMPONENTS * VALUES * tasks + c]),
            first,
            second,
        }
    }

    /// Returns first and second moments from patches of features and their squares; `sum(component, patch, value)`.
    fn of_squares(&self, sum: impl Fn(usize, usize, usize) -> f64, frame: &Frame) -> (Array2<f64>, Covariances) {
        let inverse = &frame.inverse;
        let first = Array2::from_shape_fn(self.dim(), |(c, j)| sum(c, j / QUAD, j % QUAD) * inverse[j]);
        let second =
            Array2::from_shape_fn(self.dim(), |(c, j)| sum(c, j / QUAD, QUAD + j % QUAD) * inverse[j] * inverse[j]);
        (first, Covariances::of_diagonals(self.covariance_type, second))
    }

    /// Returns first and second moments from patches of products of pairs with quads of features and the number one.
    fn of_pairs(&self, sum: impl Fn(usize, usize, usize) -> f64, frame: &Frame) -> (Array2<f64>, Covariances) {
        let (k, d) = self.dim();
        let (mut first, mut second) = (Array2::zeros((k, d)), Array3::zeros((k, d, d)));
        let pairs = pairs(d);
        for c in 0..k {
            for (patch, [pair, quad]) in pairs.iter().enumerate() {
                for v in 0..VALUES {
                    let (i, j) = (2 * *pair as usize + v / QUAD, QUAD * *quad as usize + v % QUAD);
                    // Features behind D are the number one.
                    if i == d && j < d {
                        first[[c, j]] = sum(c, patch, v) * frame.inverse[j];
                    } else if j <= i && i < d {
                        second[[c, i, j]] = sum(c, patch, v) * frame.inverse[i] * frame.inverse[j];
                    }
                }
            }
        }
        (first, Covariances::of_matrices(self.covariance_type, second))
    }
}

/// Returns the places of the parameters, in sections of whole 16 bytes: of `tiled` with these rows, weights, centres.
pub(crate) fn parameters(task: &Task, rows: usize) -> [Range<usize>; 3] {
    let Task { k, d, central, .. } = *task;
    let (scales, constants) = layout::tiled_lengths(k, d, rows, form(task));
    let padded = k.next_multiple_of(COMPONENTS);
    let lengths = [scales + constants, padded, if central { padded * d } else { 0 }];
    sections(lengths.map(|len| len.next_multiple_of(4)))
}

/// Returns patches that cover all pairs (i, j), j ≤ i, of D features and the number one: pairs of features by quads.
pub(super) fn pairs(d: usize) -> Vec<[u32; 2]> {
    (0..=d / 2).flat_map(|pair| (0..=(2 * pair + 1) / QUAD).map(move |quad| [pair as u32, quad as u32])).collect()
}

/// Returns the number of patches of a sample's values: quads of features, or pairs of all features and the number one.
pub fn patches(d: usize, full: bool) -> usize {
    if full { (0..=d / 2).map(|pair| (2 * pair + 1) / QUAD + 1).sum() } else { d.div_ceil(QUAD) }
}

/// Returns the division of `weighted_sums`' work among blocks of at most this many threads, with at least two stages of
/// samples, and as many as fit into this many bytes of shared memory.
pub fn shape(task: &Task, threads: usize, shared: usize) -> weighted_sums::PatchShape {
    /// Most patches of a block: the lanes of a warp.
    const MOST_PATCHES: usize = 32;
    let tiles = task.k.div_ceil(weighted_sums::COMPONENTS);
    let patches = patches(task.d, task.full());
    let block_patches = patches.div_ceil(patches.div_ceil(MOST_PATCHES));
    let mut shape = weighted_sums::PatchShape {
        d: task.d as u32,
        tiles: tiles as u32,
        patches: patches as u32,
        block_tiles: tiles.min((threads / block_patches).max(1)) as u32,
        block_patches: block_patches as u32,
        stages: weighted_sums::MOST_STAGES,
        full: task.full(),
        central: task.central,
    };
    while shape.stages > 2 && shape.shared_bytes() > shared {
        shape.stages -= 1;
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A patch holds each pair of D features and the number one, and the launch plans for as many patches.
    #[test]
    fn pairs_are_covered() {
        for d in 1..40 {
            let pairs = pairs(d);
            assert_eq!(pairs.len(), patches(d, true));
            for (i, j) in (0..=d).flat_map(|i| (0..=i).map(move |j| (i, j))) {
                assert!(pairs.contains(&[i as u32 / 2, (j / QUAD) as u32]), "{i}, {j} of {d}");
            }
        }
    }

    #[test]
    fn patches_cover_all_pairs() {
        // Pairs of features by quads: the lower triangle of D features and the number one.
        assert_eq!([1, 2, 3, 13].map(|d| patches(d, true)), [1, 2, 2, 16]);
        assert_eq!([1, 4, 5].map(|d| patches(d, false)), [1, 1, 2]);
    }
}
