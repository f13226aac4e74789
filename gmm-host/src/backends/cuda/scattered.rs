//! Parameters and results of the `scatter` kernels. No call of CUDA in here: all of it runs and is tested on any machine.
use crate::backends::device_parameters::{DeviceParameters, Matrices, triangle};
use crate::data::frame::Frame;
use crate::statistics::CentredSums;
use crate::{CovarianceType, Covariances, Mixture, Result, Statistics};
use gmm_kernels::data::QUAD;
use gmm_kernels::estep::weighted_sums::{COMPONENTS, MOST_STAGES, Shape, VALUES};
use ndarray::{Array1, Array2, Array3, Axis};

/// The farthest that a component may be from the data's centre, in units of its own t (0.85 standard deviations), for
/// moments around that centre: what then cancels costs two of float32's seven digits at most.
pub(crate) const NEAR: f64 = 16.0;
/// Patches of a block, at most: the lanes of a warp.
const MOST_PATCHES: usize = 32;

/// How a mixture's moments are summed up.
#[derive(Debug, Clone)]
pub(crate) struct Scattered {
    pub shape: Shape,
    covariance_type: CovarianceType,
    k: usize,
    /// Pair and quad of features of each patch, where patches are pairs.
    pub pairs: Vec<[u32; 2]>,
    /// wₖ (tiles, [`COMPONENTS`]), zeros behind K.
    pub weights: Vec<f32>,
    /// Centres of the components in the frame (tiles, [`COMPONENTS`], D), zeros behind K; empty where the frame's own
    /// centre serves them all.
    pub centres: Vec<f32>,
}

impl Scattered {
    /// For blocks of at most so many threads and, if two stages of samples fit there, bytes of shared memory.
    pub fn new(
        mixture: &Mixture,
        packed: &DeviceParameters<f32>,
        frame: &Frame,
        (threads, shared): (usize, usize),
    ) -> Self {
        let (k, d) = mixture.means().dim();
        let tiles = k.div_ceil(COMPONENTS);
        let full = !matches!(packed.matrices, Matrices::Diagonal);
        let mut weights = packed.weight.clone();
        weights.resize(tiles * COMPONENTS, 0.0);
        let mut centres = vec![0.0; tiles * COMPONENTS * d];
        let mut farthest = 0.0f64;
        for (c, (mean, centre)) in mixture.means().outer_iter().zip(centres.chunks_exact_mut(d)).enumerate() {
            if packed.weight[c] == 0.0 {
                continue;
            }
            for j in 0..d {
                centre[j] = frame.apply(j, mean[j]) as f32;
            }
            for i in 0..d {
                let row = |j: usize| match &packed.matrices {
                    Matrices::Diagonal => packed.scale[c * d + j],
                    Matrices::Each(a) => a[c * triangle(d) + triangle(i) + j],
                    Matrices::Shared(a) => a[triangle(i) + j],
                };
                let reach = if full { 0..=i } else { i..=i };
                farthest = farthest.max(reach.map(|j| f64::from((row(j) * centre[j]).abs())).sum());
            }
        }
        let own = farthest > NEAR;
        let pairs = if full { pairs(d) } else { Vec::new() };
        let patches = if full { pairs.len() } else { d.div_ceil(QUAD) };
        let block_patches = patches.div_ceil(patches.div_ceil(MOST_PATCHES));
        let mut shape = Shape {
            d: d as u32,
            tiles: tiles as u32,
            patches: patches as u32,
            block_tiles: tiles.min((threads / block_patches).max(1)) as u32,
            block_patches: block_patches as u32,
            stages: MOST_STAGES,
            full,
            central: own,
        };
        while shape.stages > 2 && shape.shared_bytes() > shared {
            shape.stages -= 1;
        }
        let centres = if own { centres } else { Vec::new() };
        Self { shape, covariance_type: mixture.covariance_type(), k, pairs, weights, centres }
    }

    /// From a launch's sums ([`Shape::sums`]) over samples of total weight `weight`, and their log-likelihood.
    pub fn statistics(&self, sums: &[f64], weight: f64, log_likelihood: f64, frame: &Frame) -> Result<Statistics> {
        let Self { shape, k, .. } = self;
        let (k, d) = (*k, shape.d as usize);
        let patches = shape.patches as usize;
        let tasks = shape.tiles as usize * patches;
        let sum = |c: usize, patch: usize, v: usize| {
            sums[(c % COMPONENTS * VALUES + v) * tasks + c / COMPONENTS * patches + patch]
        };
        let counts = Array1::from_shape_fn(k, |c| sums[COMPONENTS * VALUES * tasks + c]);
        let centres = Array2::from_shape_fn((k, d), |(c, j)| {
            frame.shift[j] + self.centres.get(c * d + j).map_or(0.0, |v| f64::from(*v)) * frame.inverse[j]
        });
        let mut first = Array2::zeros((k, d));
        let second = if shape.full {
            let mut second = Array3::zeros((k, d, d));
            for c in 0..k {
                for (patch, [pair, quad]) in self.pairs.iter().enumerate() {
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
            match self.covariance_type {
                CovarianceType::Tied => Covariances::Tied(second.sum_axis(Axis(0))),
                _ => Covariances::Full(second),
            }
        } else {
            let mut second = Array2::zeros((k, d));
            for ((c, j), v) in second.indexed_iter_mut() {
                first[[c, j]] = sum(c, j / QUAD, j % QUAD) * frame.inverse[j];
                *v = sum(c, j / QUAD, QUAD + j % QUAD) * frame.inverse[j] * frame.inverse[j];
            }
            match self.covariance_type {
                CovarianceType::Spherical => Covariances::Spherical(second.sum_axis(Axis(1))),
                _ => Covariances::Diag(second),
            }
        };
        Statistics::from_centred_sums(CentredSums { weight, log_likelihood, centres, counts, first, second })
    }
}

/// Patches that cover all pairs (i, j), j ≤ i, of D features and the number one: pairs of features by quads of features.
fn pairs(d: usize) -> Vec<[u32; 2]> {
    (0..=d / 2).flat_map(|pair| (0..=(2 * pair + 1) / QUAD).map(move |quad| [pair as u32, quad as u32])).collect()
}
