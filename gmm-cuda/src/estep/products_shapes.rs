//! The division of work by the kernels of `products_mma` and `products_wgmma`, and the sections of their parameters.
use crate::device::memory::sections;
use crate::plan::task::{Digits, Multiplies, Shape as LaunchShape, Task};
use gmm_core::model::linalg::triangle;
use gmm_kernels::estep::fused_mma::FusedShape;
use gmm_kernels::estep::products_mma::{COLUMNS, ExponentsShape, RAW_PITCH, STEP, TILE, WeighShape};
use gmm_kernels::estep::products_wgmma;
use gmm_kernels::simt::WARP;
use std::ops::Range;

pub(crate) const MOST_WARPS: u32 = 16;
/// Most shared memory, in bytes, of a block of `weigh`, unless it needs more.
pub(super) const MOST_SHARED: usize = 200 << 10;

/// Returns M, the number of products of a sample: each feature, and each square or each product of two.
pub(crate) fn products(d: usize, full: bool) -> usize {
    if full { d * (d + 3) / 2 } else { 2 * d }
}

/// The products that `expanded_mma` forms: all but those with coefficients zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expanded {
    /// Each feature, for [linear](Task::is_linear) terms.
    Features,
    /// Each feature and each square.
    Squares,
    /// Each feature and each product of two.
    All,
}

impl Expanded {
    pub fn of(full: bool, linear: bool) -> Self {
        match full {
            true => Self::All,
            false if linear => Self::Features,
            false => Self::Squares,
        }
    }

    pub fn shape(self, k: usize, d: usize) -> Option<FusedShape> {
        FusedShape::expanded(k, d, self.count(d))
    }

    pub fn count(self, d: usize) -> usize {
        if self == Self::Features { d } else { products(d, self == Self::All) }
    }

    /// Returns the two features of each product; D stands for the number one.
    pub fn pairs(self, d: usize) -> impl Iterator<Item = (usize, usize)> {
        features(d, self == Self::All).filter(move |(_, j)| self != Self::Features || *j == d)
    }

    /// Returns the place of a product that it forms.
    pub fn place(self, d: usize, (i, j): (usize, usize)) -> usize {
        if self == Self::Features { i } else { place(d, self == Self::All, (i, j)) }
    }
}

/// Returns the two features of each product; D stands for the number one.
pub(super) fn features(d: usize, full: bool) -> impl Iterator<Item = (usize, usize)> {
    (0..d).flat_map(move |i| std::iter::once((i, d)).chain((if full { 0 } else { i }..=i).map(move |j| (i, j))))
}

/// Returns the place of a product among these; D + 1 stands for whether feature i is observed, behind the products.
pub(super) fn place(d: usize, full: bool, (i, j): (usize, usize)) -> usize {
    match full {
        _ if j > d => products(d, full) + i,
        true if j == d => triangle(i) + i,
        true => triangle(i) + i + 1 + j,
        false if j == d => 2 * i,
        false => 2 * i + 1,
    }
}

/// Returns the largest part of a task's features for the kernels of `products_wgmma`.
pub(super) fn warpgroups(task: &Task) -> products_wgmma::Shape {
    products_wgmma::Shape { d: task.d.div_ceil(parts(task)) as u32, k: task.k as u32, gaps: task.gaps }
}

/// Returns the number of parts of a task's features for the kernels of `products_wgmma`.
pub(super) fn parts(task: &Task) -> usize {
    if task.gaps { task.d.div_ceil(products_wgmma::MAX_FEATURES_OBSERVED) } else { 1 }
}

/// The division of a task's work by both kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shapes {
    pub exponents: ExponentsShape,
    pub weigh: WeighShape,
    /// The features of a part, of which the last may have fewer: all, but for the kernels of `products_wgmma`.
    pub of_part: usize,
}

impl Shapes {
    /// Returns the shapes of a launch: `split` warps of a block of `exponents` are side by side along the components.
    pub fn of_warps(task: &Task, launch: LaunchShape) -> Self {
        let (Task { k, d, .. }, full) = (*task, task.full());
        let tiles = Self::tiles(k);
        let m = products(d, full);
        let warps = launch.block / WARP;
        let exponents = ExponentsShape {
            d: d as u32,
            full,
            tiles: tiles as u32,
            component_warps: launch.split,
            sample_warps: warps / launch.split,
            steps: m.div_ceil(STEP) as u32,
            groups: k.div_ceil(launch.split as usize * tiles * TILE) as u32,
        };
        // Few idle warps, and few blocks, because each prepares all samples, as long as two warps' products take.
        let component_warps = k.div_ceil(tiles * TILE).next_power_of_two().min(4) as u32;
        let needed = m.div_ceil(COLUMNS) as u32;
        let shape = |product_warps: u32| WeighShape {
            d: d as u32,
            full,
            tiles: tiles as u32,
            component_warps,
            product_warps,
            groups: k.div_ceil(component_warps as usize * tiles * TILE) as u32,
            parts: needed.div_ceil(product_warps),
        };
        let fits = |warps: &u32| shape(*warps).shared_bytes() <= MOST_SHARED;
        let product_warps = (1..=MOST_WARPS / component_warps).rev().filter(fits);
        let weigh = shape(product_warps.min_by_key(|warps| needed.div_ceil(*warps) * (warps + 2)).unwrap_or(1));
        Self { exponents, weigh, of_part: d }
    }

    /// Returns the shapes whose rows and products are those of the kernels of `products_wgmma`.
    pub fn of_warpgroups(task: &Task) -> Self {
        const COMPONENT_WARPS: u32 = (products_wgmma::GROUP / (2 * TILE)) as u32;
        let (shape, d) = (warpgroups(task), task.d);
        let (groups, products) = (shape.groups() as u32, shape.products());
        let exponents = ExponentsShape {
            d: d as u32,
            full: false,
            tiles: 2,
            component_warps: COMPONENT_WARPS,
            sample_warps: 1,
            steps: (products / STEP) as u32,
            groups,
        };
        let weigh = WeighShape {
            d: d as u32,
            full: false,
            tiles: 2,
            component_warps: COMPONENT_WARPS,
            product_warps: (products / COLUMNS) as u32,
            groups,
            parts: 1,
        };
        Self { exponents, weigh, of_part: shape.d as usize }
    }

    /// Returns the features of each part.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = Range<usize>> {
        let (d, of_part) = (self.exponents.d as usize, self.of_part);
        (0..d).step_by(of_part).map(move |first| first..d.min(first + of_part))
    }

    /// Returns the sums of all parts.
    pub fn sums(&self) -> usize {
        self.parts().len() * self.weigh.sums()
    }

    /// Returns the tiles of components of a warp: two, if K fills them.
    pub fn tiles(k: usize) -> usize {
        if k <= TILE { 1 } else { 2 }
    }

    /// Returns the rows of exponents that both kernels use.
    pub fn rows(&self) -> usize {
        self.exponents.rows().max(self.weigh.rows())
    }

    /// Returns the two features of each product, for `exponents` and for `weigh`.
    pub fn pairs(&self, full: bool) -> [Vec<u32>; 2] {
        let d = self.exponents.d;
        let of = |products: usize, row: usize| {
            let mut pairs: Vec<_> = features(d as usize, full).map(|(i, j)| i as u32 | (j as u32) << 16).collect();
            pairs.resize(products, d | d << 16);
            // Below 2^16 because shared memory holds fewer numbers.
            pairs.iter_mut().for_each(|pair| *pair *= row as u32);
            pairs
        };
        [of(self.exponents.products(), self.exponents.samples()), of(self.weigh.products(), RAW_PITCH)]
    }

    /// Returns the places of the parameters: the coefficients (parts, rows, products); each row's factor of its sum,
    /// added constant, and wₖ, (3, rows); and wₖ for `weigh`.
    pub fn sections(&self) -> [Range<usize>; 3] {
        let rows = self.exponents.rows();
        sections([self.parts().len() * rows * self.exponents.products(), 3 * rows, self.weigh.rows()])
    }

    pub fn len(&self) -> usize {
        let [.., weights] = self.sections();
        weights.end
    }
}

/// Returns why the tensor cores cannot compute a task in float16, if they cannot.
pub(crate) fn loses_digits(task: &Task, multiplies: Option<Multiplies>) -> Option<String> {
    let problem = "takes no component so narrow and so far from the centre of the data that float16 loses digits";
    let keeps = match task.digits {
        Digits::Expandable => true,
        Digits::Whitenable => multiplies == Some(Multiplies::Features),
        Digits::Neither => false,
    };
    (!keeps).then(|| problem.into())
}
