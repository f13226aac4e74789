//! The E-step kernel: log-sum-exp and sufficient statistics from one read of the samples.
//!
//! Moments are taken around each component's current mean, so that nothing cancels, and summed in
//! the element type over a few thousand samples at most; these sums are added up in float64.
//!
//! - `diag`, `spherical`: Σ r·(x−c) and Σ r·(x−c)², of some features and a tile of some groups of
//!   samples at a time, so that the sums stay in registers. Where all components lie near to the
//!   frame's zero, c is zero for all of them, which takes half the operations, because the squares
//!   of the samples are then the same for all. With missing values these are sums over the samples
//!   that have a value in the column, and Σ r over these is a third one.
//! - `full`: the group's samples are turned into rows, and those whose responsibilities are not
//!   negligible wait in a queue of their component until there are many: then Σ r·(x−c) and the
//!   lower triangle of Σ r·(x−c)(x−c)ᵀ are products of matrices. So the sums, which are too large
//!   for a cache if D is, are read and written once for many samples. With few features, and all
//!   components near to the frame's zero, the moments are instead formed as the diagonal ones are:
//!   the products of features are then the same for all components.
//! - `tied`: Σₖ r(x−cₖ)(x−cₖ)ᵀ of one sample is its scatter around the conditional mean c̄ = Σₖ
//!   r·cₖ plus that of the cₖ around c̄, and the latter is ½ Σₖₗ rₖrₗ(cₖ−cₗ)(cₖ−cₗ)ᵀ (both without
//!   a difference of squares). So a sample takes one outer product of D features and one of K
//!   responsibilities, instead of K of D features.
use super::buffer::{Buffer, buffer};
use super::exponents::GROUP;
use super::isa::Isa;
use super::kernel::{Chunk, Group, Product, Visitor, logarithms};
use super::real::{Real, elements, elements_mut, lanes};
use super::resident::Zeros;
use crate::backends::device_parameters::{DeviceParameters, Matrices, triangle};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Samples of a group at most: `GROUP` of the widest registers.
const MAX_GROUP: usize = 16 * GROUP;
/// Groups of a tile at most.
const MAX_TILE: usize = 8;
/// About how many registers a tile has at most of responsibilities, which stay in the first-level
/// cache while the moments of some features after the others are formed, and of samples, which stay
/// in the second-level cache.
const TILE_SHARES: usize = 512;
const TILE_SAMPLES: usize = 2048;
/// Rows of a product of matrices that are formed together.
const ROWS: usize = 4;
/// Registers of a row that lie together in a queue: the columns of a product that are formed
/// together.
const COLUMNS: usize = 2;
/// The least and the most samples of a queue. The parts of the most that a block of a product needs
/// fit into the first-level cache; there are fewer if the queues of all components had more than
/// `QUEUE_ELEMENTS` elements.
const QUEUE: (usize, usize) = (16, 128);
const QUEUE_ELEMENTS: usize = 1 << 21;
/// The most features, and the most sums of all components, for which the products of features are
/// formed for all components at once. With more features a sample takes fewer operations as a row
/// of a queue; more sums than these leave the second-level cache.
const TRIANGLE_FEATURES: usize = 20;
const TRIANGLE_SUMS: usize = 1 << 13;
/// Samples whose moments are summed in the element type before they are added up in float64.
pub(crate) const MAX_PENDING: usize = 4096;

/// How the sums lie in memory: sums that are spread over the elements of registers, (`spread`, L),
/// and behind them, in memory of their own, the rows of matrices, padded to whole registers: first
/// the first moments, (K, `width`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Layout {
    pub lanes: usize,
    /// Number of spread sums: the counts (K,), then, without matrices, first (K, D) and second
    /// moments, (K, D) or lower triangles by rows (K, D·(D+1)/2), and with missing values the
    /// counts of the observed values (K, D).
    pub spread: usize,
    /// Length of a row of D features.
    pub width: usize,
    /// Length of a row of K responsibilities (`tied`).
    pub pair_width: usize,
    /// Where the matrices' second moments begin, (K, D, width) or (D, width) with the number of
    /// rows rounded up.
    pub second: usize,
    /// Rows of one component's second moments, rounded up.
    pub height: usize,
    /// Where the pairs of responsibilities begin, (K, `pair_width`).
    pub pairs: usize,
    /// The number of the matrices' elements.
    pub matrices: usize,
    /// Samples of a component's queue; zero without queues.
    queue: usize,
    /// Groups of a tile; zero with matrices.
    tile: usize,
    /// Whether the moments are taken around the frame's zero, instead of each component's mean.
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

    /// The number of elements in all.
    pub fn length(&self) -> usize {
        self.spread * self.lanes + self.matrices
    }

    /// The elements of component `c`'s first and second moments, if it has a matrix of its own.
    fn component(&self, c: usize) -> [Range<usize>; 2] {
        let first = c * self.width;
        let second = self.second + c * self.height * self.width;
        [first..first + self.width, second..second + self.height * self.width]
    }
}

/// The sums of some chunks.
#[derive(Debug)]
pub(crate) struct Sums<T> {
    layout: Layout,
    n_components: usize,
    /// What has not been moved into the totals yet.
    spread: Buffer<T>,
    matrices: Zeros<T>,
    spread_totals: Buffer<f64>,
    /// The totals of the matrices; none before something is moved there.
    totals: Option<Zeros<f64>>,
    /// The samples of a group, as rows; without matrices, the responsibilities of a tile (K, `tile`
    /// groups).
    rows: Buffer<T>,
    /// For each component, a bit for each of the tile's groups in which its responsibilities are
    /// not negligible.
    present: Vec<u32>,
    /// The samples' deviations from the centre that wait, for each component: blocks of (`queue`,
    /// `COLUMNS` registers).
    waiting: Zeros<T>,
    /// Their responsibilities (K, `queue`).
    shares: Buffer<T>,
    /// The deviations of one component times the responsibilities.
    weighted: Buffer<T>,
    /// How many wait, for each component, and how many of them `sums` has.
    n_waiting: Vec<usize>,
    n_summed: Vec<usize>,
}

impl<T: Real> Sums<T> {
    pub fn new(layout: Layout, n_components: usize) -> Self {
        let Layout { width, pair_width, queue, tile, matrices, .. } = layout;
        let queues = if queue > 0 { n_components } else { 0 };
        let rows = match (queue, tile) {
            (0, 0) => MAX_GROUP * (3 * width + 2 * pair_width),
            (_, 0) => MAX_GROUP * width,
            _ => n_components * tile * GROUP * layout.lanes,
        };
        Self {
            layout,
            n_components,
            spread: buffer(layout.spread * layout.lanes),
            matrices: Zeros::new(matrices),
            spread_totals: buffer(layout.spread * layout.lanes),
            totals: None,
            rows: buffer(rows),
            present: vec![0; if tile > 0 { n_components } else { 0 }],
            waiting: Zeros::new(queues * queue * width),
            shares: buffer(queues * queue),
            weighted: buffer(queue * width),
            n_waiting: vec![0; queues],
            n_summed: vec![0; queues],
        }
    }

    /// Whether they can be those of an E-step of this shape.
    pub fn has_shape(&self, layout: Layout, n_components: usize) -> bool {
        self.layout == layout && self.n_components == n_components
    }

    /// Moves the sums of what has no queue into the totals.
    pub fn flush(&mut self, isa: Isa) {
        isa.run(Flush { sums: &mut self.spread, totals: &mut self.spread_totals });
        if self.layout.matrices > 0 && self.n_waiting.is_empty() {
            let totals = self.totals.get_or_insert_with(|| Zeros::new(self.layout.matrices));
            isa.run(Flush { sums: &mut self.matrices, totals });
        }
    }

    /// The sums of everything. What is left are zeros; `spare` is memory for them, of an earlier
    /// segment of the same shape.
    pub fn finish(&mut self, isa: Isa, spare: Option<SegmentSums<T>>) -> SegmentSums<T> {
        for c in 0..self.n_waiting.len() {
            isa.run(Drain { sums: &mut *self, c });
        }
        self.n_summed.fill(0);
        isa.run(Flush { sums: &mut self.spread, totals: &mut self.spread_totals });
        let of_lanes = self.spread_totals.chunks_exact(self.layout.lanes);
        let spread = of_lanes.map(|v| v.iter().sum()).collect();
        self.spread_totals.fill(0.0);
        let (matrices, totals) = match spare {
            Some(SegmentSums { mut matrices, mut totals, .. }) => {
                matrices.fill(T::from_f64(0.0));
                totals.iter_mut().for_each(|totals| totals.fill(0.0));
                (matrices, totals)
            }
            None => (Zeros::new(self.layout.matrices), None),
        };
        SegmentSums {
            spread,
            matrices: std::mem::replace(&mut self.matrices, matrices),
            totals: std::mem::replace(&mut self.totals, totals),
        }
    }
}

/// The sums of a segment: of what is spread over registers, (`spread`,), and of the matrices, as
/// the layout says, in two parts: what was moved into totals, and the latest sums. Moving these too
/// would take as long as adding them to the sums of the other segments.
#[derive(Debug)]
pub(crate) struct SegmentSums<T> {
    pub spread: Vec<f64>,
    totals: Option<Zeros<f64>>,
    matrices: Zeros<T>,
}

impl<T: Real> SegmentSums<T> {
    /// Adds the matrices' elements from `from` on to `out`.
    pub fn add_matrices(&self, isa: Isa, from: usize, out: &mut [f64]) {
        let range = from..from + out.len();
        let totals = self.totals.as_ref().map(|totals| &totals[range.clone()]);
        isa.run(Add { totals, sums: &self.matrices[range], out });
    }
}

/// Adds sums of the element type, and totals in float64, to `out`.
struct Add<'a, T> {
    totals: Option<&'a [f64]>,
    sums: &'a [T],
    out: &'a mut [f64],
}

impl<T: Real> WithSimd for Add<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        match self.totals {
            Some(totals) => {
                for ((out, &sum), &total) in self.out.iter_mut().zip(self.sums).zip(totals) {
                    let sum: f64 = sum.into();
                    *out += total + sum;
                }
            }
            None => {
                for (out, &sum) in self.out.iter_mut().zip(self.sums) {
                    let sum: f64 = sum.into();
                    *out += sum;
                }
            }
        }
    }
}

/// Totals in float64: of the sums that are spread over registers, (`spread`,), and of the matrices,
/// as the layout says.
#[derive(Debug)]
pub(crate) struct Totals {
    pub spread: Vec<f64>,
    pub matrices: Zeros<f64>,
}

/// The E-step over a chunk, whose sums are added to `sums`. The output is the total of log₂ p −
/// offset.
pub(crate) struct EStep<'a, T> {
    pub chunk: Chunk<'a, T>,
    /// The weights of the chunk's samples, if they have any.
    pub weights: Option<&'a [f64]>,
    /// The centres of the moments in the frame, (K, width).
    pub centres: &'a [T],
    pub sums: &'a mut Sums<T>,
}

impl<T: Real> WithSimd for EStep<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let mut moments = Moments::<T, S> {
            n: self.chunk.n,
            parameters: self.chunk.parameters,
            weights: self.weights,
            centres: T::registers::<S>(self.centres),
            sums: self.sums,
            product: Product::new(simd),
            log2: 0.0,
            held: 0,
            x: T::registers::<S>(self.chunk.x),
        };
        self.chunk.for_each_group(simd, &mut moments);
        moments.release(simd);
        if self.weights.is_some() { moments.log2 } else { moments.product.log2() }
    }
}

/// Moves the sums of the element type into totals in float64.
struct Flush<'a, T> {
    sums: &'a mut [T],
    totals: &'a mut [f64],
}

impl<T: Real> WithSimd for Flush<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (total, sum) in self.totals.iter_mut().zip(self.sums) {
            let v: f64 = (*sum).into();
            *total += v;
            *sum = T::from_f64(0.0);
        }
    }
}

struct Moments<'a, T: Real, S: Simd> {
    n: usize,
    parameters: &'a DeviceParameters<T>,
    weights: Option<&'a [f64]>,
    centres: &'a [T::Reg<S>],
    sums: &'a mut Sums<T>,
    product: Product<T, S>,
    log2: f64,
    /// Without matrices: how many groups the tile holds, and the samples from the first of them on.
    held: usize,
    x: &'a [T::Reg<S>],
}

impl<T: Real, S: Simd> Visitor<T, S> for Moments<'_, T, S> {
    const TERMS: bool = true;

    #[inline(always)]
    fn visit<const REGISTERS: usize>(&mut self, simd: S, group: Group<'_, T::Reg<S>, REGISTERS>) {
        let n = (self.n - group.first).min(REGISTERS * lanes::<T, S>());
        let mut weight = [T::splat(simd, T::from_f64(1.0)); REGISTERS];
        match self.weights {
            None => {
                self.product.multiply(simd, group.sum, group.shift, n);
                elements_mut::<T, S>(&mut weight)[n..].fill(T::from_f64(0.0));
            }
            Some(weights) => {
                let weights = &weights[group.first..][..n];
                let mut log2 = [0.0; MAX_GROUP];
                logarithms::<T, S>(&mut log2[..n], &group.sum, group.shift.as_ref().map(|v| &v[..]));
                let weight = elements_mut::<T, S>(&mut weight);
                weight.fill(T::from_f64(0.0));
                for ((to, &w), log2) in weight.iter_mut().zip(weights).zip(log2) {
                    *to = T::from_f64(w);
                    self.log2 += if w > 0.0 { w * log2 } else { 0.0 };
                }
            }
        }
        let mut share = weight;
        for g in 0..REGISTERS {
            share[g] = T::div(simd, weight[g], group.sum[g]);
        }
        if self.sums.layout.tile > 0 {
            return self.hold(simd, group.x, group.terms, &share);
        }
        // From here on `terms` holds the responsibilities times the samples' weights.
        let counts = T::registers_mut::<S>(&mut self.sums.spread);
        for (terms, count) in group.terms.iter_mut().zip(counts) {
            *terms = responsibilities::<T, S, REGISTERS>(simd, terms, &share, count);
        }
        if let Matrices::Each(_) = self.parameters.matrices {
            self.full(simd, n, group.x, group.terms);
        } else {
            self.tied(simd, n, group.x, group.terms, &weight);
        }
    }
}

impl<T: Real, S: Simd> Moments<'_, T, S> {
    /// Puts the responsibilities of a group into the tile, whose moments are formed when it is
    /// full. A single register is a tile of its own. `terms` and `share` are as
    /// [`responsibilities`] takes them.
    #[inline(always)]
    fn hold<const REGISTERS: usize>(
        &mut self,
        simd: S,
        x: &[T::Reg<S>],
        terms: &[[T::Reg<S>; REGISTERS]],
        share: &[T::Reg<S>; REGISTERS],
    ) {
        if REGISTERS != GROUP {
            self.release(simd);
        }
        let (group, tile) = (self.held, self.sums.layout.tile);
        let Sums { spread, rows, present, .. } = &mut *self.sums;
        let counts = T::registers_mut::<S>(spread);
        let rows = T::registers_mut::<S>(rows).chunks_exact_mut(tile * GROUP);
        for (((terms, count), row), present) in terms.iter().zip(counts).zip(rows).zip(present) {
            let r = responsibilities::<T, S, REGISTERS>(simd, terms, share, count);
            let mut most = r[0];
            for &r in &r[1..] {
                most = T::max(simd, most, r);
            }
            *present |= u32::from(T::any_above(simd, most, T::NEGLIGIBLE)) << group;
            row[group * REGISTERS..][..REGISTERS].copy_from_slice(&r);
        }
        self.held += 1;
        if REGISTERS != GROUP {
            self.moments_of_tile::<REGISTERS>(simd, x);
        } else if self.held == tile {
            self.release(simd);
        }
    }

    /// The moments of the groups that the tile holds.
    #[inline(always)]
    fn release(&mut self, simd: S) {
        let length = self.held * GROUP * self.parameters.n_features;
        let (x, rest) = self.x.split_at(length);
        self.x = rest;
        self.moments_of_tile::<GROUP>(simd, x);
    }

    /// The moments of the groups that the tile holds, whose samples are `x` (`held`·REGISTERS, D).
    /// Empties the tile.
    #[inline(always)]
    fn moments_of_tile<const REGISTERS: usize>(&mut self, simd: S, x: &[T::Reg<S>]) {
        let groups = std::mem::take(&mut self.held);
        if groups > 0 {
            let Sums { layout, spread, rows, present, .. } = &mut *self.sums;
            let tile = Tile::<T, REGISTERS> {
                x: elements::<T, S>(x),
                shares: rows,
                present,
                groups,
                parameters: self.parameters,
                centres: elements::<T, S>(self.centres),
                sums: spread,
                layout: *layout,
            };
            add_tile(simd, tile);
        }
    }

    #[inline(always)]
    fn full<const REGISTERS: usize>(&mut self, simd: S, n: usize, x: &[T::Reg<S>], r: &[[T::Reg<S>; REGISTERS]]) {
        let Layout { width, queue, .. } = self.sums.layout;
        let registers = width / lanes::<T, S>();
        let samples = T::registers_mut::<S>(&mut self.sums.rows);
        transpose::<T, S>(x, n, self.parameters.n_features, width, samples);
        for (c, r) in r.iter().enumerate() {
            let (chosen, m) = choose::<T, S>(r, n);
            let (r, mut chosen) = (elements::<T, S>(r), &chosen[..m]);
            let centre = &self.centres[c * registers..][..registers];
            while !chosen.is_empty() {
                let at = self.sums.n_waiting[c];
                let (now, later) = chosen.split_at(chosen.len().min(queue - at));
                let samples = T::registers::<S>(&self.sums.rows);
                let waiting = &mut self.sums.waiting[c * queue * width..][..queue * width];
                let waiting = T::registers_mut::<S>(waiting);
                for block in (0..registers).step_by(COLUMNS) {
                    let columns = COLUMNS.min(registers - block);
                    let to = &mut waiting[block * queue + at * columns..][..now.len() * columns];
                    for (to, &row) in to.chunks_exact_mut(columns).zip(now) {
                        let sample = &samples[usize::from(row) * registers + block..][..columns];
                        for ((to, sample), centre) in to.iter_mut().zip(sample).zip(&centre[block..]) {
                            *to = T::sub(simd, *sample, *centre);
                        }
                    }
                }
                for (share, &row) in self.sums.shares[c * queue + at..].iter_mut().zip(now) {
                    *share = r[usize::from(row)];
                }
                self.sums.n_waiting[c] = at + now.len();
                if at + now.len() == queue {
                    drain::<T, S>(simd, Drain { sums: &mut *self.sums, c });
                }
                chosen = later;
            }
        }
    }

    #[inline(always)]
    fn tied<const REGISTERS: usize>(
        &mut self,
        simd: S,
        n: usize,
        x: &[T::Reg<S>],
        r: &[[T::Reg<S>; REGISTERS]],
        weight: &[T::Reg<S>; REGISTERS],
    ) {
        let (k, d) = (self.parameters.n_components, self.parameters.n_features);
        let (lanes, Layout { width, height, pair_width, .. }) = (lanes::<T, S>(), self.sums.layout);
        let (registers, pair_registers) = (width / lanes, pair_width / lanes);
        let (samples, rest) = T::registers_mut::<S>(&mut self.sums.rows).split_at_mut(MAX_GROUP * registers);
        let (deviations, rest) = rest.split_at_mut(MAX_GROUP * registers);
        let (weighted, rest) = rest.split_at_mut(MAX_GROUP * registers);
        let (pairs, weighted_pairs) = rest.split_at_mut(MAX_GROUP * pair_registers);
        let (first, second) = T::registers_mut::<S>(&mut self.sums.matrices).split_at_mut(k * registers);
        let (second, pair_sums) = second.split_at_mut(height * registers);
        transpose::<T, S>(x, n, d, width, samples);
        let zero = T::splat(simd, T::from_f64(0.0));
        deviations[..n * registers].fill(zero);
        // deviations = Σₖ r·(x − cₖ) = weight·(x − c̄)
        for (c, r) in r.iter().enumerate() {
            let (chosen, m) = choose::<T, S>(r, n);
            let r = elements::<T, S>(r);
            for v in 0..registers {
                let centre = self.centres[c * registers + v];
                let mut sum = first[c * registers + v];
                for &row in &chosen[..m] {
                    let at = usize::from(row) * registers + v;
                    let deviation = T::sub(simd, samples[at], centre);
                    let u = T::mul(simd, deviation, T::splat(simd, r[usize::from(row)]));
                    deviations[at] = T::add(simd, deviations[at], u);
                    sum = T::add(simd, sum, u);
                }
                first[c * registers + v] = sum;
            }
            let to = elements_mut::<T, S>(pairs);
            for row in 0..n {
                to[row * pair_width + c] = r[row];
            }
        }
        for (row, &w) in elements::<T, S>(weight)[..n].iter().enumerate() {
            let w: f64 = w.into();
            let inverse = T::splat(simd, T::from_f64(if w > 0.0 { 1.0 / w } else { 0.0 }));
            for at in row * registers..(row + 1) * registers {
                weighted[at] = T::mul(simd, deviations[at], inverse);
            }
            for at in row * pair_registers..(row + 1) * pair_registers {
                weighted_pairs[at] = T::mul(simd, pairs[at], inverse);
            }
        }
        let (u, v) = (&weighted[..n * registers], &deviations[..n * registers]);
        add_product::<T, S>(simd, d, registers, u, v, second);
        let (u, v) = (&weighted_pairs[..n * pair_registers], &pairs[..n * pair_registers]);
        add_product::<T, S>(simd, k, pair_registers, u, v, pair_sums);
    }
}

/// The terms of one component times `share`, the samples' weights over the sums of their terms.
/// Adds them up in `count`.
#[inline(always)]
fn responsibilities<T: Real, S: Simd, const REGISTERS: usize>(
    simd: S,
    terms: &[T::Reg<S>; REGISTERS],
    share: &[T::Reg<S>; REGISTERS],
    count: &mut T::Reg<S>,
) -> [T::Reg<S>; REGISTERS] {
    let (mut r, mut sum) = (*terms, *count);
    for g in 0..REGISTERS {
        r[g] = T::mul(simd, terms[g], share[g]);
        sum = T::add(simd, sum, r[g]);
    }
    *count = sum;
    r
}

/// What is multiplied with the responsibilities and summed up, for some features of a sample.
#[derive(Clone, Copy)]
enum Products {
    Features,
    Squares,
    /// The features, times this one: a row of a lower triangle.
    WithFeature(usize),
}

/// Samples, and their responsibilities, of a tile.
struct Tile<'a, T, const REGISTERS: usize> {
    /// The samples (`groups`·REGISTERS, D).
    x: &'a [T],
    /// The responsibilities (K, `tile` groups).
    shares: &'a [T],
    /// For each component, a bit for each group in which its responsibilities are not negligible.
    /// All become zero.
    present: &'a mut [u32],
    groups: usize,
    parameters: &'a DeviceParameters<T>,
    /// The centres of the moments, (K, width).
    centres: &'a [T],
    /// The spread sums that the layout describes.
    sums: &'a mut [T],
    layout: Layout,
}

/// Runs `tile` in a function that is compiled for `S`, and that is not inlined here.
#[inline(never)]
fn add_tile<T: Real, S: Simd, const REGISTERS: usize>(simd: S, tile: Tile<'_, T, REGISTERS>) {
    simd.vectorize(tile);
}

impl<T: Real, const REGISTERS: usize> WithSimd for Tile<'_, T, REGISTERS> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        match self.parameters.gaps {
            None if self.layout.around_zero => self.add_around_zero(simd),
            None => self.add::<S, false>(simd),
            Some(_) => self.add::<S, true>(simd),
        }
        self.present.fill(0);
    }
}

impl<T: Real, const REGISTERS: usize> Tile<'_, T, REGISTERS> {
    /// Some features at a time, whose registers stay in the first-level cache for all components.
    #[inline(always)]
    fn add<S: Simd, const GAPS: bool>(&mut self, simd: S) {
        let d = self.parameters.n_features;
        // More features at a time need more registers than some instruction sets have.
        let most = if S::REGISTER_COUNT >= 32 { 4 } else { 2 };
        let mut start = 0;
        while start < d {
            // Steps of about the same width, because narrow ones do not hide the latency of the
            // sums.
            let width = (d - start).div_ceil((d - start).div_ceil(most));
            match width {
                1 => self.add_features::<S, GAPS, 1>(simd, start),
                2 => self.add_features::<S, GAPS, 2>(simd, start),
                3 => self.add_features::<S, GAPS, 3>(simd, start),
                _ => self.add_features::<S, GAPS, 4>(simd, start),
            }
            start += width;
        }
    }

    /// As [`add`](Self::add), around zero: the products of features are formed once for some
    /// components.
    #[inline(always)]
    fn add_around_zero<S: Simd>(&mut self, simd: S) {
        let d = self.parameters.n_features;
        self.add_row::<S>(simd, Products::Features, d);
        match self.parameters.matrices {
            Matrices::Diagonal => self.add_row::<S>(simd, Products::Squares, d),
            _ => {
                for i in 0..d {
                    self.add_row::<S>(simd, Products::WithFeature(i), i + 1);
                }
            }
        }
    }

    /// The sums of the products with the first `length` features, some at a time, so that their
    /// sums stay in registers.
    #[inline(always)]
    fn add_row<S: Simd>(&mut self, simd: S, products: Products, length: usize) {
        let most = if S::REGISTER_COUNT >= 32 { 3 } else { 2 };
        let mut start = 0;
        while start < length {
            let width = (length - start).div_ceil((length - start).div_ceil(most));
            match width {
                1 => self.add_products_of_all::<S, 1>(simd, products, start),
                2 => self.add_products_of_all::<S, 2>(simd, products, start),
                _ => self.add_products_of_all::<S, 3>(simd, products, start),
            }
            start += width;
        }
    }

    /// As [`add_products`](Self::add_products), of all components: as many together as registers
    /// have room for their sums.
    #[inline(always)]
    fn add_products_of_all<S: Simd, const WIDTH: usize>(&mut self, simd: S, products: Products, start: usize) {
        let k = self.parameters.n_components;
        let mut c = 0;
        while S::REGISTER_COUNT >= 32 && c + 8 <= k {
            self.add_products::<S, 8, WIDTH>(simd, c, products, start);
            c += 8;
        }
        while c + 4 <= k {
            self.add_products::<S, 4, WIDTH>(simd, c, products, start);
            c += 4;
        }
        while c + 2 <= k {
            self.add_products::<S, 2, WIDTH>(simd, c, products, start);
            c += 2;
        }
        if c < k {
            self.add_products::<S, 1, WIDTH>(simd, c, products, start);
        }
    }

    /// Of the components from `c` on, the sums of the products with the features from `start` on.
    #[inline(always)]
    fn add_products<S: Simd, const COMPONENTS: usize, const WIDTH: usize>(
        &mut self,
        simd: S,
        c: usize,
        products: Products,
        start: usize,
    ) {
        let (k, d) = (self.parameters.n_components, self.parameters.n_features);
        let present = self.present[c..][..COMPONENTS].iter().fold(0, |all, present| all | present);
        let tile = self.layout.tile * GROUP;
        let mut shares = [&T::registers::<S>(self.shares)[..0]; COMPONENTS];
        for (i, shares) in shares.iter_mut().enumerate() {
            *shares = &T::registers::<S>(self.shares)[(c + i) * tile..][..self.groups * REGISTERS];
        }
        let mut sums = [[T::splat(simd, T::from_f64(0.0)); WIDTH]; COMPONENTS];
        let groups = T::registers::<S>(self.x).chunks_exact(REGISTERS * d).take(self.groups);
        for (group, x) in groups.enumerate() {
            if present >> group & 1 == 0 {
                continue;
            }
            for g in 0..REGISTERS {
                let x = &x[g * d..][..d];
                let mut product = [x[0]; WIDTH];
                product.copy_from_slice(&x[start..][..WIDTH]);
                for product in &mut product {
                    *product = match products {
                        Products::Features => *product,
                        Products::Squares => T::mul(simd, *product, *product),
                        Products::WithFeature(i) => T::mul(simd, *product, x[i]),
                    };
                }
                for i in 0..COMPONENTS {
                    let share = shares[i][group * REGISTERS + g];
                    for w in 0..WIDTH {
                        sums[i][w] = T::mul_add(simd, share, product[w], sums[i][w]);
                    }
                }
            }
        }
        let (at, length) = match products {
            Products::Features => (k + start, d),
            Products::Squares => (k + k * d + start, d),
            Products::WithFeature(i) => (k + k * d + triangle(i) + start, triangle(d)),
        };
        let totals = T::registers_mut::<S>(self.sums);
        for i in 0..COMPONENTS {
            let totals = &mut totals[at + (c + i) * length..][..WIDTH];
            for w in 0..WIDTH {
                totals[w] = T::add(simd, totals[w], sums[i][w]);
            }
        }
    }

    /// The moments of the features from `start` on, of all components; with missing values also the
    /// counts of what is observed.
    #[inline(always)]
    fn add_features<S: Simd, const GAPS: bool, const WIDTH: usize>(&mut self, simd: S, start: usize) {
        let (k, d) = (self.parameters.n_components, self.parameters.n_features);
        let x = T::registers::<S>(self.x);
        let (_, moments) = T::registers_mut::<S>(self.sums).split_at_mut(k);
        let (first, moments) = moments.split_at_mut(k * d);
        let (second, counts) = moments.split_at_mut(k * d);
        let components = self.present.iter().zip(T::registers::<S>(self.shares).chunks_exact(self.layout.tile * GROUP));
        for (c, (&present, shares)) in components.enumerate() {
            if present == 0 {
                continue;
            }
            let at = c * d + start;
            // The sums of registers in turn, because one sum alone waits for each addition; with
            // missing values there are three sums of each feature, and no registers left for more.
            let parts = if GAPS { 1 } else { 2 };
            let zero = [T::splat(simd, T::from_f64(0.0)); WIDTH];
            let (mut centre, mut a, mut b, mut n) = (zero, [zero; 2], [zero; 2], zero);
            let centres = &self.centres[c * self.layout.width + start..][..WIDTH];
            for w in 0..WIDTH {
                centre[w] = T::splat(simd, centres[w]);
            }
            a[0].copy_from_slice(&first[at..][..WIDTH]);
            b[0].copy_from_slice(&second[at..][..WIDTH]);
            if GAPS {
                n.copy_from_slice(&counts[at..][..WIDTH]);
            }
            let groups = shares.chunks_exact(REGISTERS).zip(x.chunks_exact(REGISTERS * d));
            for (group, (shares, x)) in groups.take(self.groups).enumerate() {
                if present >> group & 1 == 0 {
                    continue;
                }
                for g in 0..REGISTERS {
                    let row = &x[g * d + start..][..WIDTH];
                    for w in 0..WIDTH {
                        // A difference, which takes other units of the processor than the products:
                        // these are what there is most of.
                        let mut deviation = T::sub(simd, row[w], centre[w]);
                        let mut share = shares[g];
                        if GAPS {
                            let observed = T::is_number(simd, row[w]);
                            deviation = T::only(simd, observed, deviation);
                            share = T::only(simd, observed, share);
                            n[w] = T::add(simd, n[w], share);
                        }
                        let u = T::mul(simd, share, deviation);
                        let part = g % parts;
                        a[part][w] = T::add(simd, a[part][w], u);
                        b[part][w] = T::mul_add(simd, u, deviation, b[part][w]);
                    }
                }
            }
            for w in 0..WIDTH {
                first[at + w] = T::add(simd, a[0][w], a[1][w]);
                second[at + w] = T::add(simd, b[0][w], b[1][w]);
            }
            if GAPS {
                counts[at..][..WIDTH].copy_from_slice(&n);
            }
        }
    }
}

/// Writes the first `n` samples of a group (REGISTERS, D) as rows (n, `width`). The padding of the
/// rows stays zero.
#[inline(always)]
fn transpose<T: Real, S: Simd>(x: &[T::Reg<S>], n: usize, d: usize, width: usize, out: &mut [T::Reg<S>]) {
    let lanes = lanes::<T, S>();
    let out = elements_mut::<T, S>(out);
    for (g, block) in x.chunks_exact(d).enumerate() {
        let block = elements::<T, S>(block);
        for lane in 0..lanes.min(n.saturating_sub(g * lanes)) {
            let row = &mut out[(g * lanes + lane) * width..][..d];
            for (to, from) in row.iter_mut().zip(block[lane..].iter().step_by(lanes)) {
                *to = *from;
            }
        }
    }
}

/// The indices of those of the first `n` samples whose responsibilities are not negligible, and
/// their number.
#[inline(always)]
fn choose<T: Real, S: Simd>(r: &[T::Reg<S>], n: usize) -> ([u8; MAX_GROUP], usize) {
    let (mut chosen, mut m) = ([0; MAX_GROUP], 0);
    for (row, &r) in elements::<T, S>(r)[..n].iter().enumerate() {
        chosen[m % MAX_GROUP] = row as u8;
        m += usize::from(r > T::NEGLIGIBLE);
    }
    (chosen, m)
}

/// The moments of the samples that wait for component `c`; it needs a matrix of its own.
struct Drain<'a, T> {
    sums: &'a mut Sums<T>,
    c: usize,
}

/// Runs `drain` in a function that is compiled for `S`, and that is not inlined here.
#[inline(never)]
fn drain<T: Real, S: Simd>(simd: S, drain: Drain<'_, T>) {
    simd.vectorize(drain);
}

impl<T: Real> WithSimd for Drain<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (c, lanes) = (self.c, lanes::<T, S>());
        let Sums { layout, matrices: sums, totals, waiting, shares, weighted, n_waiting, n_summed, .. } = self.sums;
        let (queue, registers, m) = (layout.queue, layout.width / lanes, n_waiting[c]);
        let waiting = &T::registers::<S>(waiting)[c * queue * registers..][..queue * registers];
        let weighted = T::registers_mut::<S>(weighted);
        let [first, second] = layout.component(c);
        let first_moments = T::registers_mut::<S>(&mut sums[first.clone()]);
        for block in (0..registers).step_by(COLUMNS) {
            let columns = COLUMNS.min(registers - block);
            let deviations = waiting[block * queue..][..m * columns].chunks_exact(columns);
            let products = weighted[block * queue..][..m * columns].chunks_exact_mut(columns);
            let mut sum = [T::splat(simd, T::from_f64(0.0)); COLUMNS];
            for ((u, deviation), &r) in products.zip(deviations).zip(&shares[c * queue..][..m]) {
                let r = T::splat(simd, r);
                for ((u, deviation), sum) in u.iter_mut().zip(deviation).zip(&mut sum) {
                    *u = T::mul(simd, *deviation, r);
                    *sum = T::add(simd, *sum, *u);
                }
            }
            for (to, sum) in first_moments[block..].iter_mut().zip(&sum[..columns]) {
                *to = T::add(simd, *to, *sum);
            }
        }
        let sum = T::registers_mut::<S>(&mut sums[second.clone()]);
        for row_block in (0..registers).step_by(COLUMNS) {
            let u_registers = COLUMNS.min(registers - row_block);
            let u = &weighted[row_block * queue..][..m * u_registers];
            for block in (0..=row_block).step_by(COLUMNS) {
                let v_registers = COLUMNS.min(registers - block);
                let v = &waiting[block * queue..][..m * v_registers];
                let end = ((row_block + u_registers) * lanes).min(layout.height);
                for i in (row_block * lanes..end).step_by(ROWS) {
                    let needed = (i + ROWS).div_ceil(lanes).min(block + v_registers) - block;
                    let (u, v) = ((u, u_registers, i - row_block * lanes), (v, v_registers, 0));
                    let sum = &mut sum[i * registers + block..];
                    match needed {
                        COLUMNS => add_block::<T, S, COLUMNS, 1>(simd, u, v, sum, registers),
                        _ => add_block::<T, S, 1, 2>(simd, u, v, sum, registers),
                    }
                }
            }
        }
        n_waiting[c] = 0;
        n_summed[c] += m;
        if n_summed[c] >= MAX_PENDING {
            n_summed[c] = 0;
            let totals = totals.get_or_insert_with(|| Zeros::new(layout.matrices));
            Flush { sums: &mut sums[first.clone()], totals: &mut totals[first] }.with_simd(simd);
            let rows = sums[second.clone()].chunks_exact_mut(layout.width);
            for (i, (sums, totals)) in rows.zip(totals[second].chunks_exact_mut(layout.width)).enumerate() {
                // Nothing was added behind the registers that a block of rows has on and left of
                // the diagonal.
                let end = (i / ROWS * ROWS + ROWS).next_multiple_of(lanes).min(layout.width);
                Flush { sums: &mut sums[..end], totals: &mut totals[..end] }.with_simd(simd);
            }
        }
    }
}

/// Adds uᵀ·v to `sum` (D, `registers`), where u and v are (n, `registers`). Only the entries on and
/// left of the diagonal are complete.
#[inline(always)]
fn add_product<T: Real, S: Simd>(
    simd: S,
    d: usize,
    registers: usize,
    u: &[T::Reg<S>],
    v: &[T::Reg<S>],
    sum: &mut [T::Reg<S>],
) {
    for i in (0..d).step_by(ROWS) {
        let needed = (i + ROWS).min(d).div_ceil(lanes::<T, S>());
        let mut j = 0;
        while j < needed {
            let (u, v, sum) = ((u, registers, i), (v, registers, j), &mut sum[i * registers + j..]);
            match needed - j {
                1 => add_block::<T, S, 1, 2>(simd, u, v, sum, registers),
                _ => add_block::<T, S, COLUMNS, 1>(simd, u, v, sum, registers),
            }
            j += COLUMNS;
        }
    }
}

/// Adds a block of uᵀ·v, of `ROWS` rows and `WIDTH` registers, to the beginnings of the rows of
/// `sum`, which are `registers` apart. The factors come with the number of registers of their rows,
/// and with the first element of u's and the first register of v's that the block takes. `PARTS`
/// samples are added side by side, so that enough sums hide the latency of the multiply-adds.
#[inline(always)]
fn add_block<T: Real, S: Simd, const WIDTH: usize, const PARTS: usize>(
    simd: S,
    (u, u_registers, u_first): (&[T::Reg<S>], usize, usize),
    (v, v_registers, v_first): (&[T::Reg<S>], usize, usize),
    sum: &mut [T::Reg<S>],
    registers: usize,
) {
    let mut block = [[[T::splat(simd, T::from_f64(0.0)); WIDTH]; ROWS]; PARTS];
    let length = u_registers * lanes::<T, S>();
    let whole = v.len() / v_registers / PARTS * PARTS;
    let (u, u_rest) = elements::<T, S>(u).split_at(whole * length);
    let (v, v_rest) = v.split_at(whole * v_registers);
    for (u, v) in u.chunks_exact(PARTS * length).zip(v.chunks_exact(PARTS * v_registers)) {
        for part in 0..PARTS {
            let (u, v) = (&u[part * length + u_first..][..ROWS], &v[part * v_registers + v_first..][..WIDTH]);
            for a in 0..ROWS {
                let u = T::splat(simd, u[a]);
                for b in 0..WIDTH {
                    block[part][a][b] = T::mul_add(simd, v[b], u, block[part][a][b]);
                }
            }
        }
    }
    for (u, v) in u_rest.chunks_exact(length).zip(v_rest.chunks_exact(v_registers)) {
        let (u, v) = (&u[u_first..][..ROWS], &v[v_first..][..WIDTH]);
        for a in 0..ROWS {
            let u = T::splat(simd, u[a]);
            for b in 0..WIDTH {
                block[0][a][b] = T::mul_add(simd, v[b], u, block[0][a][b]);
            }
        }
    }
    for part in &block {
        for a in 0..ROWS {
            for b in 0..WIDTH {
                let sum = &mut sum[a * registers + b];
                *sum = T::add(simd, *sum, part[a][b]);
            }
        }
    }
}
