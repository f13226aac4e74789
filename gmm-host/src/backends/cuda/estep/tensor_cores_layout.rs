//! Parameters and results of the kernels of `tensor_cores`. Nothing here calls CUDA, so that it is
//! tested on any machine.
use super::weighted_sums_layout::{NEAR, distance, mean_in_frame};
use crate::backends::cuda::likelihood::layout::DEAD_SEED;
use crate::backends::cuda::plan::{Family, Task, Variant};
use crate::backends::device_parameters::{
    ColumnConstants, DeviceParameters, Matrices, first_row, for_each_column, log2_near_one, numbers_in, padded,
    triangle,
};
use crate::data::frame::Frame;
use crate::model::linalg::{at_once, row_major, sum_of, vectorised};
use crate::{CentredSums, CovarianceType, Covariances, Mixture, Result, Statistics};
use gmm_kernels::estep::tensor_cores::{
    COLUMNS, ExponentsShape, FEATURE_SCALE, ONE, PRODUCT_SCALE, RAW_PITCH, RESPONSIBILITY_SCALE, STEP, TILE, WeighShape,
};
use gmm_kernels::estep::whitened::{self, OuterShape, WhitenShape};
use gmm_kernels::estep::{warpgroup, warpgroup_whitened};
use gmm_kernels::simt::WARP;
use ndarray::parallel::prelude::*;
use ndarray::{Array1, Array2, ArrayView1, ArrayViewMut1, ArrayViewMut2, Axis};
use rayon::prelude::*;
use std::convert::identity;
use std::f64::consts::LN_2;
use std::ops::Range;
use std::sync::Arc;

/// The largest error of an exponent (root of the mean square, in units of log₂) that these kernels
/// may be expected to make. Rounding errors differ from sample to sample, so that sums over samples
/// are far nearer to the truth.
const EXPONENT_ERROR: f64 = 2e-4;
/// As [`EXPONENT_ERROR`], where the log-likelihood alone is asked for, of whose differences a
/// sampler lives: the roundings of 10⁶ samples are then expected to add up to 0.02 at most.
const TOTAL_ERROR: f64 = 3e-5;

/// Most warps of a block.
pub(crate) const MOST_WARPS: u32 = 16;
/// Bytes of shared memory that a block of `weigh` takes at most, if it can do with less.
const MOST_SHARED: usize = 200 << 10;

/// M: the number of products of a sample. Each feature, and each square, or each product of two.
pub(crate) fn products(d: usize, full: bool) -> usize {
    if full { d * (d + 3) / 2 } else { 2 * d }
}

/// The two features of each product; D stands for the number one.
fn features(d: usize, full: bool) -> impl Iterator<Item = (usize, usize)> {
    (0..d).flat_map(move |i| std::iter::once((i, d)).chain((if full { 0 } else { i }..=i).map(move |j| (i, j))))
}

/// How both kernels divide the work of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shapes {
    pub exponents: ExponentsShape,
    pub weigh: WeighShape,
}

impl Shapes {
    /// The shapes of a variant: `split` warps of a block of `exponents` are side by side along the
    /// components.
    pub fn new(task: &Task, variant: &Variant) -> Self {
        let Task { k, d, full, .. } = *task;
        if variant.family == Family::Warpgroup {
            return Self::of_warpgroups(k, d);
        }
        let tiles = Self::tiles(k);
        let m = products(d, full);
        let warps = variant.block / WARP;
        let exponents = ExponentsShape {
            d: d as u32,
            full,
            tiles: tiles as u32,
            component_warps: variant.split,
            sample_warps: warps / variant.split,
            steps: m.div_ceil(STEP) as u32,
            groups: k.div_ceil(variant.split as usize * tiles * TILE) as u32,
        };
        // Few idle warps; and few blocks, each of which prepares all samples for itself, which
        // takes as long as two warps' products.
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
        Self { exponents, weigh }
    }

    /// The shapes whose rows and products are those of the kernels of `warpgroup`.
    fn of_warpgroups(k: usize, d: usize) -> Self {
        const COMPONENT_WARPS: u32 = (warpgroup::GROUP / (2 * TILE)) as u32;
        let shape = warpgroup::Shape { d: d as u32, k: k as u32 };
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
        Self { exponents, weigh }
    }

    /// Tiles of components of a warp: two, where K fills them.
    pub fn tiles(k: usize) -> usize {
        if k <= TILE { 1 } else { 2 }
    }

    /// Rows of exponents that both kernels use.
    pub fn rows(&self) -> usize {
        self.exponents.rows().max(self.weigh.rows())
    }

    /// The two features of each product, as `exponents` reads them, and as `weigh` does.
    pub fn pairs(&self, full: bool) -> [Vec<u32>; 2] {
        let d = self.exponents.d;
        let of = |products: usize, row: usize| {
            let mut pairs: Vec<_> = features(d as usize, full).map(|(i, j)| i as u32 | (j as u32) << 16).collect();
            pairs.resize(products, d | d << 16);
            // Below 2^16 because the shared memory has fewer numbers.
            pairs.iter_mut().for_each(|pair| *pair *= row as u32);
            pairs
        };
        [of(self.exponents.products(), self.exponents.samples()), of(self.weigh.products(), RAW_PITCH)]
    }

    /// Lengths of the sections of the parameters, in the order of [`Section`].
    fn lengths(&self) -> [usize; 3] {
        let rows = self.exponents.rows();
        [rows * self.exponents.products(), 3 * rows, self.weigh.rows()]
    }

    /// Numbers of all parameters.
    pub fn len(&self) -> usize {
        self.lengths().iter().sum()
    }

    /// The range of a section in the parameters.
    pub fn section(&self, section: Section) -> Range<usize> {
        let [coefficients, constants, weights] = self.lengths();
        match section {
            Section::Coefficients => 0..coefficients,
            Section::Constants => coefficients..coefficients + constants,
            Section::Weights => coefficients + constants..coefficients + constants + weights,
        }
    }
}

/// How the kernels of `whitened` or of `warpgroup_whitened` divide the work of a task with
/// matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhitenedShapes {
    Warps { whiten: WhitenShape, outer: OuterShape },
    Warpgroups(warpgroup_whitened::Shape),
}

impl WhitenedShapes {
    /// The shapes of a variant: `split` warps of a block of `whiten` are side by side along the
    /// components. None where features of a stage, or of the fewest samples, do not fit into shared
    /// memory, and for diagonal covariances.
    pub fn new(task: &Task, variant: &Variant) -> Option<Self> {
        let Task { k, d, full, .. } = *task;
        if variant.family == Family::WarpgroupWhitened {
            let fits = full && d <= warpgroup_whitened::MAX_FEATURES;
            return fits.then_some(Self::Warpgroups(warpgroup_whitened::Shape { d: d as u32, k: k as u32 }));
        }
        let whiten = |component_warps: u32, sample_warps: u32| WhitenShape {
            d: d as u32,
            k: k as u32,
            component_warps,
            sample_warps,
        };
        let outer = OuterShape::new(d, k, MOST_WARPS);
        let fits = full && outer.shared_bytes().max(whiten(1, 1).shared_bytes()) <= MOST_SHARED;
        fits.then(|| Self::Warps { whiten: whiten(variant.split, variant.block / WARP / variant.split), outer })
    }

    /// Dynamic shared memory of a launch of any of the kernels.
    pub fn shared_bytes(&self) -> usize {
        match self {
            Self::Warps { whiten, outer } => whiten.shared_bytes().max(outer.shared_bytes()),
            Self::Warpgroups(shape) => shape.whiten_bytes().max(shape.respond_bytes()).max(shape.outer_bytes()),
        }
    }

    /// Rows of exponents that all kernels use.
    pub fn rows(&self) -> usize {
        match self {
            Self::Warps { outer, .. } => outer.components(),
            Self::Warpgroups(shape) => shape.rows(),
        }
    }

    /// Numbers of a component's shifts.
    fn shifts(&self) -> usize {
        match self {
            Self::Warps { whiten, .. } => whiten.shifts(),
            Self::Warpgroups(shape) => shape.width(),
        }
    }

    /// (K, D).
    pub fn dim(&self) -> (usize, usize) {
        let (k, d) = match self {
            Self::Warps { whiten, .. } => (whiten.k, whiten.d),
            Self::Warpgroups(shape) => (shape.k, shape.d),
        };
        (k as usize, d as usize)
    }

    /// Of each row the sum of the responsibilities, and that of the rounded ones.
    fn counts(&self, sums: &[f64]) -> [Vec<f64>; 2] {
        let rows = self.rows();
        match self {
            Self::Warps { outer, .. } => [0, 1].map(|kind| sums[outer.counts() + kind * rows..][..rows].to_vec()),
            Self::Warpgroups(shape) => [0, 1].map(|kind| {
                let halves = &sums[shape.outer_sums() + rows * (shape.width() + 2 * kind)..];
                halves[..rows].iter().zip(&halves[rows..2 * rows]).map(|(even, odd)| even + odd).collect()
            }),
        }
    }

    /// Lengths of the sections of the parameters, in the order of [`WhitenedSection`]; whole
    /// 16 bytes each.
    fn lengths(&self) -> [usize; 4] {
        let (k, d) = self.dim();
        [k * triangle(d), k * self.shifts(), 3 * k, self.rows()].map(|len| len.next_multiple_of(4))
    }

    /// Numbers of all parameters.
    pub fn len(&self) -> usize {
        self.lengths().iter().sum()
    }

    /// The range of a section in the parameters.
    pub fn section(&self, section: WhitenedSection) -> Range<usize> {
        let lengths = self.lengths();
        let start = lengths[..section as usize].iter().sum();
        start..start + lengths[section as usize]
    }
}

/// A section of the parameters for matrices.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WhitenedSection {
    /// Triangles row by row, (K, D·(D + 1)/2).
    Matrices,
    /// (K, [`WhitenedShapes::shifts`])
    Shifts,
    /// What sums of products are multiplied by, seeds, and wₖ: (3, K).
    Constants,
    /// wₖ for the kernels that sum over samples.
    Weights,
}

/// A section of the parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Section {
    /// (rows, products)
    Coefficients,
    /// What each row's sum is multiplied by, the constant that is added, and wₖ: (3, rows).
    Constants,
    /// wₖ for `weigh`.
    Weights,
}

/// The larger of two numbers, of which none is NaN: one instruction, unlike `f32::max`.
#[inline(always)]
pub(super) fn larger<T: PartialOrd>(a: T, b: T) -> T {
    if a > b { a } else { b }
}

/// What is known of a component of a mixture.
///
/// The kernels hold the numbers of a component in pairs of float16 numbers, which is coarser than
/// float32. So its other numbers are made for what the pairs hold: a density that has the
/// component's mean and is normalised. Its rounding then costs the total of samples nothing in the
/// first order where they come from the component, though it is the same for all of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Component {
    /// What is added to its exponents, and what 2 to their power is multiplied by.
    pub(super) seed: f32,
    pub(super) weight: f32,
    /// log₂ of the factor by which `weight` is too small.
    missing: f64,
    /// The largest of its coefficients, or of its triangle's numbers.
    pub(super) largest: f32,
    /// The expected error of its exponent, see [`TensorCoresLayout::error`].
    error: f64,
}

impl Component {
    /// Of no weight.
    const DEAD: Self = Self { seed: DEAD_SEED, weight: 0.0, missing: 0.0, largest: 0.0, error: 0.0 };

    /// A component whose weight is to be multiplied by 2^`more`, which is nearly one.
    fn new(seed: f32, weight: f32, more: f64, largest: f32, error: f64) -> Self {
        let exact = f64::from(weight) * more.exp2();
        let weight = exact as f32;
        Self { seed, weight, missing: log2_near_one(exact / f64::from(weight)), largest, error }
    }

    /// A component of which `constant` is log₂ of what its part of the likelihood is multiplied by,
    /// beside `weight`.
    fn with_constant(constant: f64, weight: f32, largest: f32, error: f64) -> Self {
        let seed = constant as f32;
        Self::new(seed, weight, constant - f64::from(seed), largest, error)
    }

    /// Its expected error, if it is so far from the centre of the data; infinite where these
    /// kernels are not to be used.
    fn error_at(&self, distance: f64) -> f64 {
        if distance <= NEAR && self.error <= EXPONENT_ERROR { self.error } else { f64::INFINITY }
    }

    /// The expected error of an exponent, from the sum of the squares of its terms and the largest
    /// of its coefficients.
    fn error(of_terms: f64, largest: f32, products: usize) -> f64 {
        2f64.powi(-22) * of_terms.sqrt() + 2f64.powi(-31) * f64::from(largest) * (products as f64).sqrt()
    }

    /// Writes the coefficients of a component with a diagonal covariance.
    fn diagonal(parameters: &DeviceParameters<f32>, c: usize, row: &mut [f32]) -> Self {
        let d = parameters.n_features;
        let (scale, shift) = (&parameters.scale[c * d..][..d], &parameters.shift[c * d..][..d]);
        // In units of t the variance is log₂e / 2, and the mean −m.
        let unit = std::f64::consts::LOG2_E / 2.0;
        let (mut largest, constants, mut of_terms) = vectorised(
            #[inline(always)]
            || {
                for ((s, m), to) in scale.iter().zip(shift).zip(row.chunks_exact_mut(2)) {
                    to.copy_from_slice(&Feature::new(*s, *m).coefficients);
                }
                let square = |m: f32| f64::from(m) * f64::from(m);
                let of_terms = sum_of([shift], |[m]| (unit + square(m)) * (unit + 5.0 * square(m)));
                (largest(row), sum_of([scale, shift], |[s, m]| Feature::new(s, m).constant), of_terms)
            },
        );
        let mut constant = f64::from(parameters.seed[c]) + constants;
        if let Some(gaps) = &parameters.gaps {
            // The features' constants are coefficients of their own.
            constant = parameters.seed[c].into();
            for v in of_observed(parameters, gaps, c) {
                largest = larger(largest, v.abs());
                of_terms += f64::from(v) * f64::from(v);
            }
        }
        Self::with_constant(constant, parameters.weight[c], largest, Self::error(of_terms, largest, 2 * d))
    }

    /// Writes the coefficients of a component with a triangle.
    fn products(
        mixture: &Mixture,
        parameters: &DeviceParameters<f32>,
        frame: &Frame,
        c: usize,
        row: &mut [f32],
    ) -> Self {
        let d = parameters.n_features;
        let coefficients = Coefficients::new(parameters, c);
        // Of the features, and of the number one.
        let sizes: Vec<f64> = (0..d).map(|j| mean_and_size(mixture, frame, c, j).1).chain([1.0]).collect();
        let (mut largest, mut of_terms) = (0.0f32, 0.0);
        for (to, (i, j)) in row.iter_mut().zip(features(d, true)) {
            let v = if j == d { coefficients.first[i] } else { coefficients.second[triangle(i) + j] };
            *to = if j == d { v as f32 / ONE } else { v as f32 };
            largest = larger(largest, to.abs());
            of_terms += v * v * sizes[i] * sizes[j];
        }
        let error = Self::error(of_terms, largest, products(d, true));
        Self::with_constant(coefficients.constant, parameters.weight[c], largest, error)
    }

    /// Writes the shifts of a component's triangle: b of A·x + b, where A is what the pairs hold.
    /// Also gives how far the component is from the data's centre, as [`distance`] does.
    fn triangle(
        mixture: &Mixture,
        parameters: &DeviceParameters<f32>,
        frame: &Frame,
        c: usize,
        shift: &mut [f32],
    ) -> (Self, f64) {
        let u = mixture.factor_of(c).map(row_major).unwrap_or_default();
        // Of each row, so that none of the sums waits for another.
        let rows = padded(parameters.n_features);
        let mut of_rows = vec![0.0; 3 * rows];
        let (shifts, rest) = of_rows.split_at_mut(rows);
        let (terms, distances) = rest.split_at_mut(rows);
        let mut largest_of_rows = vec![0.0f32; rows];
        let mut determinant = 0.0;
        vectorised(
            #[inline(always)]
            || {
                for_each_column(
                    &u,
                    frame,
                    #[inline(always)]
                    |j, column: &[f32]| {
                        let first = first_row(j);
                        let (mean, size) = mean_and_size(mixture, frame, c, j);
                        let rows = shifts[first..].iter_mut().zip(&mut terms[first..]).zip(&mut distances[first..]);
                        for ((((shift, terms), distance), largest), &a) in
                            rows.zip(&mut largest_of_rows[first..]).zip(column)
                        {
                            let held = f64::from(pair_of_halves(a));
                            *shift -= held * mean;
                            *terms += held * held * size;
                            *distance += (f64::from(a) * mean).abs();
                            *largest = larger(a.abs(), *largest);
                        }
                        let pivot = column[j - first];
                        determinant += log2_near_one(f64::from(pair_of_halves(pivot)) / f64::from(pivot));
                    },
                );
            },
        );
        shift.iter_mut().zip(shifts).for_each(|(to, b)| *to = *b as f32);
        let error = 2f64.powi(-19) * terms.iter().sum::<f64>().sqrt();
        let largest = largest_of_rows.into_iter().fold(0.0, larger);
        let distance = distances.iter().copied().fold(0.0, larger);
        (Self::new(parameters.seed[c], parameters.weight[c], determinant, largest, error), distance)
    }
}

/// A feature of a component with a diagonal covariance, as the kernels hold it.
struct Feature {
    /// Of the feature divided by [`ONE`], and of its square.
    coefficients: [f32; 2],
    /// What they leave of −(s·x + m)², and of log₂ of the scale.
    constant: f64,
}

impl Feature {
    /// From its scale and shift.
    #[inline(always)]
    fn new(s: f32, m: f32) -> Self {
        let (s, m) = (f64::from(s), f64::from(m));
        let square = s * s;
        let held = f64::from(pair_of_halves(square as f32));
        // So small a scale has no square in float32.
        let ratio = if held > 0.0 { held / square } else { 1.0 };
        let first = pair_of_halves((-2.0 * s * m * ratio) as f32 / ONE);
        let of_mean = f64::from(first) * f64::from(ONE);
        let constant = log2_near_one(ratio) / 2.0 - of_mean * of_mean / (4.0 * square * ratio);
        Self { coefficients: [first, -held as f32], constant }
    }
}

/// The coefficients of a component for what is observed (D,).
fn of_observed<'a>(
    parameters: &'a DeviceParameters<f32>,
    gaps: &'a ColumnConstants<f32>,
    c: usize,
) -> impl Iterator<Item = f32> + 'a {
    let d = parameters.n_features;
    let (scale, shift) = (&parameters.scale[c * d..][..d], &parameters.shift[c * d..][..d]);
    let columns = gaps.constants[c * d..][..d].iter().zip(scale.iter().zip(shift));
    columns.map(|(constant, (s, m))| (f64::from(*constant) + Feature::new(*s, *m).constant) as f32)
}

/// The power of two that brings the largest coefficient, or its size, to between 2^14 and 2^15.
pub(super) fn power(largest: f32) -> f32 {
    (14.0 - larger(largest, f32::MIN_POSITIVE).log2().floor()).exp2()
}

/// The size of the largest number.
#[inline(always)]
pub(super) fn largest(numbers: &[f32]) -> f32 {
    largest_sizes(numbers).into_iter().fold(0.0, larger)
}

/// The size of the largest of every sixteenth number, from each of the first sixteen on: side by
/// side, because one alone waits for each comparison.
#[inline(always)]
pub(super) fn largest_sizes(numbers: &[f32]) -> [f32; 16] {
    let (sixteens, rest) = numbers.as_chunks::<16>();
    let mut sizes = [0.0f32; 16];
    for numbers in sixteens {
        sizes.iter_mut().zip(numbers).for_each(|(size, v)| *size = larger(v.abs(), *size));
    }
    sizes.iter_mut().zip(rest).for_each(|(size, v)| *size = larger(v.abs(), *size));
    sizes
}

/// What two float16 numbers hold of a number that is at most 2^17 times smaller than the largest
/// beside it: eleven digits in each of them.
#[inline(always)]
fn pair_of_halves(v: f32) -> f32 {
    // The product pushes the other digits out (Veltkamp's splitting); in float64 it does not
    // overflow.
    let eleven_digits = |v: f64| {
        let product = v * ((1u64 << 42) + 1) as f64;
        product - (product - v)
    };
    let high = eleven_digits(v.into());
    (high + eleven_digits(f64::from(v) - high)) as f32
}

/// The mean of feature `j`, and of its square, in the frame, of the samples that a component
/// explains.
fn mean_and_size(mixture: &Mixture, frame: &Frame, c: usize, j: usize) -> (f64, f64) {
    let mean = frame.apply(j, mixture.means()[[c, j]]);
    (mean, mixture.variance(c, j) * frame.scale[j] * frame.scale[j] + mean * mean)
}

/// The coefficients of one component with a triangle: its exponent is their sum, each times its
/// product, and a constant.
struct Coefficients {
    /// Of the products of two features, in a triangle row by row.
    second: Vec<f64>,
    first: Vec<f64>,
    constant: f64,
}

impl Coefficients {
    /// From t = A·x + b and the exponent's seed − |t|².
    fn new(parameters: &DeviceParameters<f32>, c: usize) -> Self {
        let d = parameters.n_features;
        let shift = &parameters.shift[c * d..][..d];
        let matrix = parameters.triangle(c);
        let (mut second, mut first, mut constant) =
            (vec![0.0; triangle(d)], vec![0.0; d], f64::from(parameters.seed[c]));
        for (row, b) in shift.iter().enumerate() {
            let (a, b) = (&matrix[triangle(row)..][..=row], f64::from(*b));
            constant -= b * b;
            for (i, &ai) in a.iter().enumerate() {
                let ai = f64::from(ai);
                first[i] -= 2.0 * ai * b;
                let to = &mut second[triangle(i)..][..=i];
                to.iter_mut().zip(a).for_each(|(to, aj)| *to -= 2.0 * ai * f64::from(*aj));
            }
        }
        (0..d).for_each(|i| second[triangle(i) + i] /= 2.0);
        Self { second, first, constant }
    }
}

/// A mixture as the kernels read it.
#[derive(Debug, Clone)]
pub(crate) struct TensorCoresLayout {
    covariance_type: CovarianceType,
    parameters: Arc<DeviceParameters<f32>>,
    /// The mixture, where values are missing: the E-step adds its moments of these.
    mixture: Option<Mixture>,
    /// The coefficients (K, M), those of features divided by [`ONE`].
    coefficients: Vec<f32>,
    components: Vec<Component>,
    /// The shifts of the triangles (K, D); only of a layout [`of_features`](Self::of_features).
    shifts: Vec<f32>,
    /// The largest expected error of an exponent; infinite where it is too large, or moments around
    /// the centre of the data will not do.
    ///
    /// Splitting a number into two float16 numbers costs up to 2^-22 of it, 2^-23.5 in the mean
    /// square. Both features of a product, the product, the coefficient and what is left out:
    /// together 2^-22 of each coefficient times product, with random signs. For the samples that a
    /// component explains, feature j is about √(Σⱼⱼ + (μⱼ − cⱼ)²) from the centre c. Besides,
    /// numbers have no digits below 2^-25: times [`PRODUCT_SCALE`], and of a product's features,
    /// that is at most 2^-31.
    error: f64,
}

impl TensorCoresLayout {
    pub fn new(mixture: &Mixture, parameters: impl Into<Arc<DeviceParameters<f32>>>, frame: &Frame) -> Self {
        Self::new_in(Vec::new(), mixture, parameters, frame)
    }

    /// As [`new`](Self::new), in the memory of former coefficients.
    pub fn new_in(
        memory: Vec<f32>,
        mixture: &Mixture,
        parameters: impl Into<Arc<DeviceParameters<f32>>>,
        frame: &Frame,
    ) -> Self {
        let parameters = parameters.into();
        let (k, d) = mixture.means().dim();
        let full = parameters.has_triangles();
        let mut coefficients = numbers_in(memory, k * products(d, full));
        // So many that waking the threads does not cost more than they save.
        let at_once = at_once(if full { products(d, true) * d / 16 } else { d });
        let rows = coefficients.par_chunks_exact_mut(products(d, full)).with_min_len(at_once);
        let component = |(c, row): (usize, &mut [f32])| {
            let component = match parameters.matrices {
                _ if parameters.weight[c] == 0.0 => {
                    row.fill(0.0);
                    return (Component::DEAD, 0.0);
                }
                Matrices::Diagonal => Component::diagonal(&parameters, c, row),
                _ => Component::products(mixture, &parameters, frame, c, row),
            };
            let distance = match parameters.matrices {
                Matrices::Diagonal => largest(&parameters.shift[c * d..][..d]).into(),
                _ => {
                    let mean: Vec<f32> = mean_in_frame(mixture, &parameters, frame, c).collect();
                    distance(&parameters, c, &mean)
                }
            };
            (component, component.error_at(distance))
        };
        let (components, errors): (Vec<_>, Vec<f64>) = rows.enumerate().map(component).unzip();
        let error = errors.into_iter().fold(0.0, larger);
        let covariance_type = mixture.covariance_type();
        let mixture = parameters.gaps.is_some().then(|| mixture.clone());
        Self { covariance_type, parameters, mixture, coefficients, components, shifts: Vec::new(), error }
    }

    /// For `whitened`, `warpgroup_whitened`, and `fused_tensor_cores` with matrices, which multiply
    /// the triangles with the features themselves: without coefficients, which take D times as
    /// long.
    ///
    /// [`Self::error`] then is: the terms of t = A·x + b are split as those of an exponent are, and
    /// there are D of them in a row, whose sums the units truncate; together that costs some 2^-20
    /// of the root of the sum of their squares, and of |t|², twice as much.
    pub fn of_features(mixture: &Mixture, parameters: impl Into<Arc<DeviceParameters<f32>>>, frame: &Frame) -> Self {
        let parameters = parameters.into();
        let (k, d) = mixture.means().dim();
        let mut shifts = vec![0.0; k * d];
        let component = |(c, shift): (usize, &mut [f32])| {
            if parameters.weight[c] == 0.0 {
                return (Component::DEAD, 0.0);
            }
            let (component, distance) = Component::triangle(mixture, &parameters, frame, c, shift);
            (component, component.error_at(distance))
        };
        let rows = shifts.par_chunks_exact_mut(d).enumerate().with_min_len(at_once(d * d / 4));
        let (components, errors): (Vec<_>, Vec<f64>) = rows.map(component).unzip();
        let error = errors.into_iter().fold(0.0, larger);
        let covariance_type = mixture.covariance_type();
        Self { covariance_type, parameters, mixture: None, coefficients: Vec::new(), components, shifts, error }
    }

    /// Whether these kernels keep the digits of the mixture.
    pub fn expandable(&self) -> bool {
        self.error.is_finite()
    }

    /// Whether they keep the digits of a log-likelihood, for which more is asked than for an
    /// E-step.
    pub fn keeps_totals(&self) -> bool {
        self.error <= TOTAL_ERROR
    }

    /// log₂ of the factor by which the weights are too small, in the mean over samples of the
    /// mixture.
    pub fn missing(&self, mixture: &Mixture) -> f64 {
        mixture.weights().iter().zip(&self.components).map(|(weight, component)| weight * component.missing).sum()
    }

    /// The memory of the parameters, if nobody else has them, and that of the coefficients.
    pub fn into_memory(self) -> (Option<DeviceParameters<f32>>, Vec<f32>) {
        (Arc::into_inner(self.parameters), self.coefficients)
    }

    /// (K, D).
    pub fn dim(&self) -> (usize, usize) {
        (self.parameters.n_components, self.parameters.n_features)
    }

    /// Whether products are of all pairs of features.
    pub fn full(&self) -> bool {
        self.parameters.has_triangles()
    }

    /// Writes the parameters.
    pub fn write(&self, shapes: &Shapes, out: &mut [f32]) {
        let (rows, width) = (shapes.exponents.rows(), shapes.exponents.products());
        let (coefficients, rest) = out.split_at_mut(rows * width);
        let (constants, weights) = rest.split_at_mut(3 * rows);
        let (scales, rest) = constants.split_at_mut(rows);
        let (seeds, of_exponents) = rest.split_at_mut(rows);
        for to in [of_exponents, weights] {
            to.fill(0.0);
            to.iter_mut().zip(&self.components).for_each(|(to, component)| *to = component.weight);
        }
        let m = products(self.parameters.n_features, self.full());
        let rows = coefficients
            .par_chunks_exact_mut(width)
            .zip(scales)
            .zip(seeds)
            .enumerate()
            .with_min_len(at_once(width / 2));
        rows.for_each(|(c, ((row, scale), seed))| {
            row.fill(0.0);
            let component = self.components.get(c).copied().unwrap_or(Component::DEAD);
            (*scale, *seed) = (0.0, component.seed);
            if component.weight == 0.0 {
                return;
            }
            let power = self.power(c);
            let from = &self.coefficients[c * m..][..m];
            row.iter_mut().zip(from).for_each(|(to, v)| *to = v * power);
            *scale = 1.0 / (power * PRODUCT_SCALE);
        });
    }

    /// Writes the parameters of a mixture with matrices for `whitened` and `warpgroup_whitened`.
    pub fn write_whitened(&self, shapes: &WhitenedShapes, out: &mut [f32]) {
        let (k, d) = self.dim();
        let parameters = &self.parameters;
        let weights = || self.components.iter().map(|component| component.weight);
        // Behind K, and between the sections, there are zeros.
        out[k * triangle(d)..shapes.section(WhitenedSection::Shifts).start].fill(0.0);
        out[shapes.section(WhitenedSection::Constants).start..].fill(0.0);
        out[shapes.section(WhitenedSection::Weights)].iter_mut().zip(weights()).for_each(|(to, weight)| *to = weight);
        let (matrices, rest) = out.split_at_mut(shapes.section(WhitenedSection::Shifts).start);
        let (shifts, rest) = rest.split_at_mut(shapes.section(WhitenedSection::Shifts).len());
        let (scales, rest) = rest.split_at_mut(k);
        let (seeds, rest) = rest.split_at_mut(k);
        seeds.iter_mut().zip(&self.components).for_each(|(to, component)| *to = component.seed);
        rest.iter_mut().zip(weights()).for_each(|(to, weight)| *to = weight);
        let width = triangle(d);
        let shifts = shifts.par_chunks_exact_mut(shapes.shifts());
        let components = matrices.par_chunks_exact_mut(width).zip(shifts).zip(scales).enumerate();
        components.with_min_len(at_once(width / 2)).for_each(|(c, ((to, shift), scale))| {
            shift.fill(0.0);
            if self.components[c].weight == 0.0 {
                to.fill(0.0);
                return;
            }
            let power = self.power(c);
            vectorised(
                #[inline(always)]
                || to.iter_mut().zip(parameters.triangle(c)).for_each(|(to, a)| *to = pair_of_halves(*a) * power),
            );
            shift[..d].copy_from_slice(self.shift(c));
            *scale = 1.0 / (power * FEATURE_SCALE);
        });
    }

    /// As [`Self::statistics`], from the sums of `whitened` or `warpgroup_whitened`.
    pub fn whitened_statistics(
        &self,
        shapes: &WhitenedShapes,
        sums: &[f64],
        scale: f64,
        weight: f64,
        log2: f64,
        frame: &Frame,
    ) -> Result<Statistics> {
        /// What the kernels' products and responsibilities are less than those of the other
        /// kernels.
        const UNIT: f64 = (RESPONSIBILITY_SCALE / whitened::RESPONSIBILITY_SCALE) as f64;
        let [counts, rounded] =
            shapes.counts(sums).map(|of_rows| of_rows.iter().map(|count| count * UNIT).collect::<Vec<_>>());
        let (counts, rounded) = (&counts[..], &rounded[..]);
        let d = self.dim().1;
        let of_one = UNIT * f64::from(PRODUCT_SCALE / FEATURE_SCALE * ONE);
        // A copy of what follows for each kind: which kind it is costs as much as to read a sum.
        match shapes {
            WhitenedShapes::Warps { outer, .. } => {
                let product = move |c: usize, (i, j): (usize, usize)| {
                    sums[outer.place(c, i, j)] * if j == d { of_one } else { UNIT }
                };
                let row = row_by_row(product);
                self.statistics_of(SumsOfProducts { counts, rounded, product, row, scale, log2 }, weight, frame)
            }
            WhitenedShapes::Warpgroups(shape) => {
                let (of_pairs, of_features) = sums.split_at(shape.outer_sums());
                let product = move |c: usize, (i, j): (usize, usize)| match j == d {
                    true => of_features[c * shape.width() + i] * of_one,
                    false => of_pairs[shape.place(c, i, j)] * UNIT,
                };
                // Of eight neighbours, the even and the odd ones are behind each other.
                let row = identity(
                    #[inline(always)]
                    |c: usize, i: usize, to: &mut [f64]| {
                        let (eights, rest) = to.as_chunks_mut::<8>();
                        for (e, to) in eights.iter_mut().enumerate() {
                            let even = &of_pairs[shape.place(c, i, 8 * e)..][..4];
                            let odd = &of_pairs[shape.place(c, i, 8 * e + 1)..][..4];
                            for j in 0..4 {
                                (to[2 * j], to[2 * j + 1]) = (even[j] * UNIT, odd[j] * UNIT);
                            }
                        }
                        let first = 8 * eights.len();
                        for (j, to) in rest.iter_mut().enumerate() {
                            *to = of_pairs[shape.place(c, i, first + j)] * UNIT;
                        }
                    },
                );
                self.statistics_of(SumsOfProducts { counts, rounded, product, row, scale, log2 }, weight, frame)
            }
        }
    }

    pub(super) fn parameters(&self) -> &DeviceParameters<f32> {
        &self.parameters
    }

    /// The coefficients (K, M), those of features divided by [`ONE`].
    pub(super) fn coefficients(&self) -> &[f32] {
        &self.coefficients
    }

    /// The coefficients of a component for what is observed (D,); none where no values are missing.
    pub(super) fn of_observed(&self, c: usize) -> Vec<f32> {
        let of = |gaps: &ColumnConstants<f32>| of_observed(&self.parameters, gaps, c).collect();
        self.parameters.gaps.as_ref().map_or_else(Vec::new, of)
    }

    /// The triangle of a component as pairs of float16 numbers hold it, row by row.
    pub(super) fn triangle(&self, c: usize) -> impl Iterator<Item = f32> {
        self.parameters.triangle(c).iter().map(|a| pair_of_halves(*a))
    }

    /// The shifts of the triangle of a component (D,).
    pub(super) fn shift(&self, c: usize) -> &[f32] {
        let d = self.parameters.n_features;
        &self.shifts[c * d..][..d]
    }

    /// What the coefficients or the triangle of a component are multiplied by; see [`power`].
    fn power(&self, c: usize) -> f32 {
        power(self.components[c].largest)
    }

    pub(super) fn components(&self) -> &[Component] {
        &self.components
    }

    /// The statistics, from the sums over samples of total weight `weight`, whose likelihoods (less
    /// the mixture's offset) have the logarithm `log2` to base 2; `scale`: what sums are to be
    /// multiplied by.
    pub fn statistics(
        &self,
        shapes: &Shapes,
        sums: &[f64],
        scale: f64,
        weight: f64,
        log2: f64,
        frame: &Frame,
    ) -> Result<Statistics> {
        let shape = &shapes.weigh;
        let (counts, rounded) = sums[shape.rows() * shape.products()..].split_at(shape.rows());
        let d = self.dim().1;
        let full = self.full();
        let place = move |(i, j): (usize, usize)| match full {
            _ if j == d => {
                if full {
                    triangle(i) + i
                } else {
                    2 * i
                }
            }
            true => triangle(i) + i + 1 + j,
            false => 2 * i + 1,
        };
        let width = shape.products();
        let product = move |c: usize, of: (usize, usize)| sums[c * width + place(of)];
        let row = row_by_row(product);
        self.statistics_of(SumsOfProducts { counts, rounded, product, row, scale, log2 }, weight, frame)
    }

    /// The statistics, from sums over samples of total weight `weight`.
    pub(super) fn statistics_of(
        &self,
        sums: SumsOfProducts<
            '_,
            impl Fn(usize, (usize, usize)) -> f64 + Copy + Sync,
            impl Fn(usize, usize, &mut [f64]) + Sync,
        >,
        weight: f64,
        frame: &Frame,
    ) -> Result<Statistics> {
        let (k, d) = self.dim();
        let SumsOfProducts { counts, rounded, product, row, scale, log2 } = sums;
        // The moments were formed with rounded responsibilities, whose own sum is not quite the
        // count.
        let unit = |c: usize| {
            let of_rounded = if rounded[c] > 0.0 { counts[c] / rounded[c] } else { 0.0 };
            scale * of_rounded / f64::from(PRODUCT_SCALE * RESPONSIBILITY_SCALE)
        };
        let of_component = |(count, component): (&f64, &Component)| count * component.missing;
        let missing: f64 = counts.iter().zip(&self.components).map(of_component).sum();
        let log2 = log2 + scale / f64::from(RESPONSIBILITY_SCALE) * missing;
        let inverse = &frame.inverse;
        let write_first = |c: usize, mut row: ArrayViewMut1<'_, f64>| {
            let unit = unit(c) / f64::from(ONE);
            row.iter_mut()
                .zip(inverse)
                .enumerate()
                .for_each(|(i, (to, inverse))| *to = product(c, (i, d)) * unit * inverse);
        };
        let pair = |c: usize, unit: f64, i: usize, j: usize| product(c, (i, j)) * unit * inverse[i] * inverse[j];
        let log_likelihood = LN_2 * (log2 + weight * self.parameters.offset);
        let of_samples: Array1<f64> =
            counts[..k].iter().map(|count| count * scale / f64::from(RESPONSIBILITY_SCALE)).collect();
        let centre = ArrayView1::from(&frame.shift);
        if self.covariance_type == CovarianceType::Diag && self.mixture.is_none() {
            let write = |c: usize, mut first: ArrayViewMut1<'_, f64>, mut second: ArrayViewMut1<'_, f64>| {
                // Copies, which no number that is written can change.
                let (product, unit) = (product, unit(c));
                let of_first = unit / f64::from(ONE);
                for (i, ((first, second), inverse)) in first.iter_mut().zip(&mut second).zip(inverse).enumerate() {
                    *first = product(c, (i, d)) * of_first * inverse;
                    *second = product(c, (i, i)) * unit * inverse * inverse;
                }
            };
            return Statistics::from_diagonal_sums(weight, log_likelihood, of_samples, centre, write);
        }
        if self.covariance_type == CovarianceType::Full {
            let write = |c: usize, first: ArrayViewMut1<'_, f64>, mut second: ArrayViewMut2<'_, f64>| {
                write_first(c, first);
                let unit = unit(c);
                vectorised(
                    #[inline(always)]
                    || {
                        for (i, to) in second.as_slice_mut().unwrap_or_default().chunks_exact_mut(d).enumerate() {
                            // Whole eights, where there are so many.
                            let to = &mut to[..d.min((i + 1).next_multiple_of(8))];
                            row(c, i, to);
                            // Powers of two.
                            let unit = unit * inverse[i];
                            to.iter_mut().zip(inverse).for_each(|(to, inverse)| *to *= unit * inverse);
                        }
                    },
                );
            };
            return Statistics::from_full_sums(weight, log_likelihood, of_samples, centre, write);
        }
        let (mut first, mut second) = (Array2::zeros((k, d)), Covariances::zeros(self.covariance_type, k, d));
        let rows = first.axis_iter_mut(Axis(0)).into_par_iter().enumerate();
        rows.with_min_len(at_once(d / 2)).for_each(|(c, row)| write_first(c, row));
        match &mut second {
            Covariances::Diag(to) => {
                for (c, mut row) in to.outer_iter_mut().enumerate() {
                    row.iter_mut().enumerate().for_each(|(i, to)| *to = pair(c, unit(c), i, i));
                }
            }
            Covariances::Spherical(to) => {
                to.iter_mut().enumerate().for_each(|(c, to)| *to = (0..d).map(|i| pair(c, unit(c), i, i)).sum());
            }
            // See above.
            Covariances::Full(_) => {}
            Covariances::Tied(to) => {
                for c in 0..k {
                    let unit = unit(c);
                    for (i, mut row) in to.outer_iter_mut().enumerate() {
                        row.iter_mut().take(i + 1).enumerate().for_each(|(j, to)| *to += pair(c, unit, i, j));
                    }
                }
            }
        }
        let mut sums =
            CentredSums { weight, log_likelihood, centres: Array2::zeros((0, 0)), counts: of_samples, first, second };
        if let Some(mixture) = &self.mixture {
            sums.centres = Array2::from_shape_fn((k, d), |(_, j)| centre[j]);
            sums.add_missing(mixture, |c, j| product(c, (j, d + 1)) * unit(c));
            return Statistics::from_centred_sums(sums);
        }
        Statistics::from_sums_around(centre, sums)
    }
}

/// [`SumsOfProducts::row`] from [`SumsOfProducts::product`].
pub(super) fn row_by_row(product: impl Fn(usize, (usize, usize)) -> f64) -> impl Fn(usize, usize, &mut [f64]) {
    move |c, i, to| to.iter_mut().take(i + 1).enumerate().for_each(|(j, to)| *to = product(c, (i, j)))
}

/// Sums over samples as the kernels form them.
pub(super) struct SumsOfProducts<'a, P, R> {
    /// Of each component the sum of the responsibilities, and that of the rounded ones, times
    /// [`RESPONSIBILITY_SCALE`].
    pub counts: &'a [f64],
    pub rounded: &'a [f64],
    /// Of a component and a product of features i and j ≤ i, or of feature i and the number one (j
    /// is D), or of whether feature i is observed (j is D + 1): the sum of rounded
    /// responsibilities, times [`RESPONSIBILITY_SCALE`], times products, times [`PRODUCT_SCALE`].
    pub product: P,
    /// Writes, of a component and feature i, its products with the features j ≤ i; what it leaves
    /// behind these does not matter.
    pub row: R,
    /// What all of them are to be multiplied by.
    pub scale: f64,
    /// Log₂-likelihood of the samples, less the mixture's offset; not to be multiplied.
    pub log2: f64,
}

const _: () = assert!(RESPONSIBILITY_SCALE <= 65504.0, "a responsibility of one is a float16 number");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::device_parameters::Deviations;
    use half::f16;
    use ndarray::{Array3, arr1, arr2, arr3};

    /// As the kernels split a number, after they multiplied it with a power of two.
    fn split_into_halves(v: f32) -> f32 {
        let rounded = |v: f32| f16::from_f32(v).to_f32();
        let high = rounded(v);
        high + rounded(v - high)
    }

    #[test]
    fn pairs_hold_what_was_rounded_to_them() {
        for v in
            [1.0f32, -3.0, 12345.678, 0.1, 2f32.powi(-3) / 3.0, 2047.75, 16383.999, 3.14159e9, 1.0 - 2f32.powi(-24)]
        {
            let held = pair_of_halves(v);
            assert!((held - v).abs() <= v.abs() * 2f32.powi(-23), "{v} {held}");
            let power = power(v.abs() * 7.0);
            assert_eq!(split_into_halves(held * power), held * power, "{v}");
        }
        assert_eq!(pair_of_halves(0.0), 0.0);
        assert!(pair_of_halves(1e-38).abs() <= 1e-38 && pair_of_halves(1e32).is_finite());
    }

    /// Three components, of which the last has no weight, and the parameters of a frame that is not
    /// the data's own.
    fn some(covariances: Covariances) -> (Mixture, Frame, DeviceParameters<f32>) {
        let frame = Frame::of(arr2(&[[-30.0f32, 0.1, 5.0], [11.0, 0.2, 9.0], [24.0, 0.7, 9.5]]).view());
        let means = arr2(&[[1.3, 0.3, 7.0], [-8.1, 0.5, 9.1], [0.0, 0.0, 0.0]]);
        let mixture = Mixture::new(arr1(&[0.31, 0.69, 0.0]), means, covariances).unwrap();
        let parameters = DeviceParameters::with_matrices(&mixture, &frame, Deviations::InFrame).unwrap();
        (mixture, frame, parameters)
    }

    /// log₂ of what the kernels multiply a component's 2^(exponent − seed) by, with what they are
    /// off by.
    fn log2_factor(component: &Component) -> f64 {
        f64::from(component.weight).log2() + component.missing
    }

    /// Completing the square gives the mean and the integral of what the kernels hold.
    #[test]
    fn a_held_diagonal_has_the_mean_and_is_normalised() {
        let variances = arr2(&[[31.7, 0.013, 2.1], [1.0, 0.02, 5.3], [1.0, 1.0, 1.0]]);
        let (mixture, frame, parameters) = some(Covariances::Diag(variances));
        let layout = TensorCoresLayout::new(&mixture, parameters.clone(), &frame);
        for c in 0..2 {
            let component = &layout.components[c];
            let mut log2 = f64::from(component.seed) + log2_factor(component);
            let mut expected = f64::from(parameters.seed[c]) + f64::from(parameters.weight[c]).log2();
            for j in 0..3 {
                let [first, square] = [0, 1].map(|i| f64::from(layout.coefficients[6 * c + 2 * j + i]));
                let (first, square) = (first * f64::from(ONE), -square);
                let mean = frame.apply(j, mixture.means()[[c, j]]);
                assert!((first / (2.0 * square) - mean).abs() <= 2f64.powi(-22) * mean.abs(), "{c} {j}");
                let s = f64::from(parameters.scale[3 * c + j]);
                assert_ne!(square, s * s, "there is something to correct");
                log2 += first * first / (4.0 * square) - square.log2() / 2.0;
                expected -= s.log2();
            }
            assert!((log2 - expected).abs() < 1e-13 * (1.0 + expected.abs()), "{c}: {log2} {expected}");
        }
        assert_eq!((layout.components[2].weight, layout.components[2].seed), (0.0, DEAD_SEED));
    }

    #[test]
    fn a_held_triangle_has_the_mean_and_is_normalised() {
        let one = arr2(&[[31.7, 0.31, 2.1], [0.31, 0.02, 0.05], [2.1, 0.05, 1.9]]);
        let mut all = Array3::zeros((3, 3, 3));
        [one.clone(), one * 0.3, Array2::eye(3)]
            .iter()
            .enumerate()
            .for_each(|(c, m)| all.index_axis_mut(Axis(0), c).assign(m));
        let (mixture, frame, parameters) = some(Covariances::Full(all));
        let layout = TensorCoresLayout::of_features(&mixture, parameters.clone(), &frame);
        for c in 0..2 {
            let held: Vec<f32> = layout.triangle(c).collect();
            let from = parameters.triangle(c);
            assert_ne!(held, from, "there is something to correct");
            let mean: Vec<f64> = (0..3).map(|j| frame.apply(j, mixture.means()[[c, j]])).collect();
            let mut log2 = f64::from(layout.components[c].seed) + log2_factor(&layout.components[c]);
            let mut expected = f64::from(parameters.seed[c]) + f64::from(parameters.weight[c]).log2();
            for i in 0..3 {
                let terms = || (0..=i).map(|j| f64::from(held[triangle(i) + j]) * mean[j]);
                let size: f64 = terms().map(f64::abs).sum();
                let of_mean = terms().sum::<f64>() + f64::from(layout.shift(c)[i]);
                assert!(of_mean.abs() <= 2f64.powi(-24) * size, "{c} {i}: {of_mean}");
                log2 -= f64::from(held[triangle(i) + i]).log2();
                expected -= f64::from(from[triangle(i) + i]).log2();
            }
            assert!((log2 - expected).abs() < 1e-13 * (1.0 + expected.abs()), "{c}: {log2} {expected}");
        }
    }

    /// Features are multiplied as long as no component is so narrow and so far, or its features so
    /// correlated, that digits are lost.
    #[test]
    fn features_are_multiplied_where_their_digits_suffice() {
        let x = arr2(&[[-4.0f32, -4.0], [0.0, 0.0], [4.0, 4.0]]);
        let frame = Frame::of(x.view());
        let expandable = |mean: f64, correlation: f64| {
            let (variance, other) = (1.0, correlation);
            let covariances = Covariances::Full(arr3(&[[[variance, other], [other, variance]]]));
            let mixture = Mixture::new(arr1(&[1.0]), arr2(&[[mean, 0.0]]), covariances).unwrap();
            let parameters = DeviceParameters::with_matrices(&mixture, &frame, Deviations::InFrame).unwrap();
            TensorCoresLayout::of_features(&mixture, parameters, &frame).expandable()
        };
        assert!(expandable(0.0, 0.0) && expandable(3.0, 0.9));
        assert!(!expandable(100.0, 0.0) && !expandable(0.0, 1.0 - 1e-5));
    }
}
