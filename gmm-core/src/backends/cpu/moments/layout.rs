//! The memory layout of an E-step's sums.
use crate::backends::cpu::exponents::GROUP;
use crate::backends::device_parameters::{DeviceParameters, Matrices};
use crate::model::linalg::triangle;
use std::ops::Range;

/// The most samples of a group: `GROUP` of the widest registers.
pub const MAX_GROUP: usize = 16 * GROUP;
const MAX_TILE: usize = 8;
/// About the most registers of a tile: of responsibilities, which stay in the first-level cache while the moments of
/// successive features are formed, and of samples, which stay in the second-level cache.
const TILE_SHARES: usize = 512;
const TILE_SAMPLES: usize = 2048;
/// Rows of a matrix product formed together.
pub const ROWS: usize = 4;
/// Columns of a product formed together, as registers of a row that lie together in a queue.
pub const COLUMNS: usize = 2;
/// The least and the most samples of a queue. The parts of the most that a block of a product needs fit into the
/// first-level cache. Queues are shorter if those of all components would have more than `QUEUE_ELEMENTS` elements.
const QUEUE: (usize, usize) = (16, 128);
const QUEUE_ELEMENTS: usize = 1 << 21;
/// The most features, and the most sums, for forming the products of features for all components at once. With more
/// features a sample takes fewer operations as a row of a queue; more sums leave the second-level cache.
const TRIANGLE_FEATURES: usize = 20;
const TRIANGLE_SUMS: usize = 1 << 13;
/// The memory layout of the sums: first those spread over the elements of registers, (`spread`, L); then, in separate
/// memory, the rows of matrices, padded to whole registers, beginning with the first moments, (K, `width`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Layout {
    pub lanes: usize,
    /// The number of spread sums: the counts (K,); then, without matrices, first (K, D) and second moments, (K, D) or
    /// lower triangles by rows (K, D·(D+1)/2); and with missing values the counts of observed values (K, D).
    pub spread: usize,
    /// The length of a row of D features.
    pub width: usize,
    /// The length of a row of K responsibilities (`tied`).
    pub pair_width: usize,
    /// The start of the matrices' second moments, (K, D, width) or (D, width) with the number of rows rounded up.
    pub second: usize,
    /// The rows of a component's second moments, rounded up.
    pub height: usize,
    /// The start of the pairs of responsibilities, (K, `pair_width`).
    pub pairs: usize,
    /// The number of elements of the matrices.
    pub matrices: usize,
    /// The samples of a component's queue; zero without queues.
    pub queue: usize,
    /// The groups of a tile; zero with matrices.
    pub tile: usize,
    /// Whether moments are taken around the frame's zero instead of each component's mean.
    pub around_zero: bool,
}

impl Layout {
    /// `near_zero`: whether moments around the frame's zero lose little to rounding.
    pub fn new<T>(parameters: &DeviceParameters<T>, lanes: usize, near_zero: impl Fn() -> bool) -> Self {
        let (k, d) = (parameters.n_components, parameters.n_features);
        let unit = lanes.max(ROWS);
        let (width, height) = (d.next_multiple_of(unit), d.next_multiple_of(ROWS));
        let gaps = parameters.gaps.is_some();
        let triangles = k * (1 + d + triangle(d));
        let (matrices, pairs, spread, around_zero) = match parameters.matrices {
            Matrices::Diagonal if gaps => (0, false, k + 3 * k * d, false),
            Matrices::Diagonal => (0, false, k + 2 * k * d, near_zero()),
            Matrices::Each(_) if d <= TRIANGLE_FEATURES && triangles <= TRIANGLE_SUMS && near_zero() => {
                (0, false, triangles, true)
            }
            Matrices::Each(_) => (k, false, k, false),
            Matrices::Shared(_) => (1, true, k, false),
        };
        let second = if matrices == 0 { 0 } else { k * width };
        let pairs_begin = second + matrices * height * width;
        let pair_width = if pairs { k.next_multiple_of(unit) } else { 0 };
        let length = pairs_begin + if pairs { k.next_multiple_of(ROWS) * pair_width } else { 0 };
        let queue = match parameters.matrices {
            Matrices::Each(_) if matrices > 0 => (QUEUE_ELEMENTS / (k * width)).clamp(QUEUE.0, QUEUE.1),
            _ => 0,
        };
        let tile = if matrices == 0 { ((TILE_SHARES / k).min(TILE_SAMPLES / d) / GROUP).clamp(1, MAX_TILE) } else { 0 };
        Self {
            lanes,
            spread,
            width,
            pair_width,
            second,
            height,
            pairs: pairs_begin,
            matrices: length,
            queue,
            tile,
            around_zero,
        }
    }

    /// Returns the number of elements in all.
    pub fn length(&self) -> usize {
        self.spread * self.lanes + self.matrices
    }

    /// Returns the elements of component `c`'s first and second moments, if it has its own matrix.
    pub fn component(&self, c: usize) -> [Range<usize>; 2] {
        let first = c * self.width;
        let second = self.second + c * self.height * self.width;
        [first..first + self.width, second..second + self.height * self.width]
    }
}
