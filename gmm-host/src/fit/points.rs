//! The samples of k-means, and its common steps: nearest centres, and the choice of the first centres.
//! [`kmeans`](super::kmeans) serves a fit's start; [`scikit_learn`](super::scikit_learn) gives scikit-learn's bits.
use gmm_core::backends::cpu::real::Real;
use gmm_core::model::linalg::vectorised;
use gmm_core::simd::isa::Isa;
use gmm_core::simd::lane::fuses;
use ndarray::NdFloat;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

/// The number of samples whose distances are computed at once, in registers.
const SIDE_BY_SIDE: usize = 32;
/// The number of such blocks that one thread takes at a time.
const AT_ONCE: usize = 16;
/// Work of fewer multiply-adds than this, some 30 microseconds, is done by one thread: to wake another takes as long.
const PARALLEL_WORK: usize = 1 << 20;

/// One number for each of some neighbouring samples.
type Block<T> = [T; SIDE_BY_SIDE];

pub(super) trait Number: Real + NdFloat {
    /// The numbers in a register of NumPy's build for x86-64, which forms its sums of squares.
    const NUMPY_LANES: usize;
}

impl Number for f32 {
    const NUMPY_LANES: usize = 4;
}

impl Number for f64 {
    const NUMPY_LANES: usize = 2;
}

pub(super) fn wide<T: Number>(v: T) -> f64 {
    v.into()
}

/// Numbers row by row (N, D), and again in blocks (⌈N / 32⌉, D, 32), filled up with zeros.
pub(super) struct Rows<T> {
    pub numbers: Vec<T>,
    blocks: Vec<Block<T>>,
}

impl<T: Number> Rows<T> {
    pub fn new(numbers: Vec<T>, d: usize) -> Self {
        let mut blocks = vec![[T::zero(); SIDE_BY_SIDE]; (numbers.len() / d).div_ceil(SIDE_BY_SIDE) * d];
        for (rows, block) in numbers.chunks(SIDE_BY_SIDE * d).zip(blocks.chunks_exact_mut(d)) {
            for (i, row) in rows.chunks_exact(d).enumerate() {
                block.iter_mut().zip(row).for_each(|(to, v)| to[i] = *v);
            }
        }
        Self { numbers, blocks }
    }
}

/// The distance of a sample from a centre.
pub(super) enum Distance<T> {
    Squared,
    /// The squared distance over observed values; holds 1 for an observed value, 0 for a missing one.
    Observed(Rows<T>),
    /// The squared distance less the sample's own squared norm, as scikit-learn computes it. Products are added feature
    /// by feature, as BLAS's matrix products do.
    LessNorm,
}

pub(super) struct Points<T> {
    pub d: usize,
    pub rows: Rows<T>,
    pub weights: Vec<T>,
    pub distance: Distance<T>,
    pub isa: Isa,
}

impl<T: Number> Points<T> {
    pub fn new(numbers: Vec<T>, d: usize, weights: Vec<T>, distance: Distance<T>) -> Self {
        Self { d, rows: Rows::new(numbers, d), weights, distance, isa: Isa::best() }
    }

    /// Returns the samples, row by row.
    pub fn iter(&self) -> std::slice::ChunksExact<'_, T> {
        self.rows.numbers.chunks_exact(self.d)
    }

    pub fn row(&self, i: usize) -> &[T] {
        &self.rows.numbers[i * self.d..][..self.d]
    }

    /// Returns the distance of each sample (N,) to the nearest of `centres` (K, D).
    pub fn distances(&self, centres: &[T]) -> Vec<T> {
        self.nearest(centres).0
    }

    /// Returns the nearest of `centres` (K, D) of each sample (N,), the first of equal ones.
    pub fn labels(&self, centres: &[T]) -> Vec<usize> {
        self.nearest(centres).1.into_iter().map(|number| wide(number) as usize).collect()
    }

    /// Returns each sample's distance to its nearest centre, and that centre's number in the samples' type, which is
    /// exact for more centres than there are samples.
    fn nearest(&self, centres: &[T]) -> (Vec<T>, Vec<T>) {
        let norms: Vec<T> = centres.chunks_exact(self.d).map(squared_norm).collect();
        let n_blocks = self.rows.blocks.len() / self.d;
        let mut least = vec![[T::infinity(); SIDE_BY_SIDE]; n_blocks];
        let mut labels = vec![[T::zero(); SIDE_BY_SIDE]; n_blocks];
        let piece = |(piece, (least, labels)): (usize, (&mut [_], &mut [_]))| {
            let work = Nearest { first: piece * AT_ONCE, centres, norms: &norms, least, labels };
            self.isa.run(ByDistance(self, work));
        };
        if n_blocks * SIDE_BY_SIDE * centres.len() < PARALLEL_WORK {
            piece((0, (&mut least, &mut labels)));
        } else {
            least.par_chunks_mut(AT_ONCE).zip(labels.par_chunks_mut(AT_ONCE)).enumerate().for_each(piece);
        }
        let of_samples = |blocks: Vec<Block<T>>| {
            let mut numbers = blocks.into_flattened();
            numbers.truncate(self.rows.numbers.len() / self.d);
            numbers
        };
        (of_samples(least), of_samples(labels))
    }
}

impl Points<f64> {
    /// Returns the samples' squared norms (N,), if [`Distance::LessNorm`] leaves them out.
    fn norms(&self) -> Vec<f64> {
        match self.distance {
            Distance::LessNorm => self.iter().map(squared_norm).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns for each block of 32 samples, and each of the samples `candidates` in turn, the distances to that sample,
    /// or to the nearest centre so far, as `nearest` (N,) holds them. `norms` are [`Self::norms`].
    fn nearer<T: Number>(&self, candidates: &[usize], norms: &[f64], nearest: &[T]) -> Vec<Block<T>> {
        let centres: Vec<_> = candidates.iter().map(|&i| (self.row(i), squared_norm(self.row(i)))).collect();
        let (n_blocks, at_once) = (nearest.len().div_ceil(SIDE_BY_SIDE), AT_ONCE * SIDE_BY_SIDE);
        let mut out = vec![[T::zero(); SIDE_BY_SIDE]; n_blocks * candidates.len()];
        let piece = |(i, (nearest, out)): (usize, (&[T], &mut [_]))| {
            let norms = norms.get(i * at_once..).unwrap_or_default();
            let work = Nearer { first: i * AT_ONCE, centres: &centres, norms, nearest, out };
            self.isa.run(ByDistance(self, work));
        };
        if out.len() * SIDE_BY_SIDE * self.d < PARALLEL_WORK {
            piece((0, (nearest, &mut out)));
        } else {
            let pieces = nearest.par_chunks(at_once).zip(out.par_chunks_mut(AT_ONCE * candidates.len()));
            pieces.enumerate().for_each(piece);
        }
        out
    }
}

/// Returns the number of samples that k-means++ draws for each centre but the first, to keep the best: 2 + ⌊ln K⌋.
pub(super) fn trials(k: usize) -> usize {
    2 + (k as f64).ln() as usize
}

/// Returns the `k` samples that greedy k-means++ (Arthur and Vassilvitskii 2007) chooses as centres: each is the best
/// of the samples that `candidates` draws by the distance of each sample to its nearest centre so far. `nearest` holds
/// these distances before the first choice.
pub(super) fn plus_plus<T: Number>(
    points: &Points<f64>,
    k: usize,
    weights: &[T],
    mut nearest: Vec<T>,
    mut candidates: impl FnMut(&[T]) -> Vec<usize>,
) -> Vec<usize> {
    let norms = points.norms();
    let mut chosen = Vec::with_capacity(k);
    for _ in 0..k {
        let candidates = candidates(&nearest);
        if candidates.is_empty() {
            break;
        }
        let nearer = points.nearer(&candidates, &norms, &nearest);
        // The potential of each, and its number among the candidates.
        let of = |number: usize| nearer.iter().skip(number).step_by(candidates.len()).map(|block| &block[..]);
        let mut least: Option<(T, usize)> = None;
        for number in 0..candidates.len() {
            let potential = weighted_sum_of_blocks(of(number), weights);
            if least.is_none_or(|(least, _)| potential < least) {
                least = Some((potential, number));
            }
        }
        if let Some((_, number)) = least {
            chosen.push(candidates[number]);
            let best = nearest.chunks_mut(SIDE_BY_SIDE).zip(of(number));
            best.for_each(|(to, from)| to.copy_from_slice(&from[..to.len()]));
        }
    }
    chosen
}

/// Returns Σᵢ wᵢ·vᵢ in float64, in eight sums side by side, so that no addition waits for the previous one.
pub(super) fn weighted_sum<T: Number>(values: &[T], weights: &[T]) -> T {
    weighted_sum_of_blocks(values.chunks(SIDE_BY_SIDE), weights)
}

fn weighted_sum_of_blocks<'a, T: Number>(values: impl Iterator<Item = &'a [T]>, weights: &[T]) -> T {
    let mut sums = [0.0; 8];
    vectorised(
        #[inline(always)]
        || {
            for (values, weights) in values.zip(weights.chunks(SIDE_BY_SIDE)) {
                let (eights, last) = weights.as_chunks::<8>();
                for (values, weights) in values.as_chunks::<8>().0.iter().zip(eights) {
                    sums.iter_mut().zip(values).zip(weights).for_each(|((sum, v), w)| *sum += wide(*v) * wide(*w));
                }
                let values = &values[8 * eights.len()..];
                sums.iter_mut().zip(values).zip(last).for_each(|((sum, v), w)| *sum += wide(*v) * wide(*w));
            }
        },
    );
    T::from_f64(sums.iter().sum())
}

pub(super) fn running<T: Number>(values: impl Iterator<Item = T>) -> Vec<T> {
    let sums = values.scan(T::zero(), |sum, v| {
        *sum += v;
        Some(*sum)
    });
    sums.collect()
}

/// Returns the sum of a row's squares, in as many sums as NumPy makes; of four registers the last is added first.
pub(super) fn squared_norm<T: Number>(row: &[T]) -> T {
    let mut sums = [T::zero(); 4];
    let mut add = |values: &[T]| sums.iter_mut().zip(values).for_each(|(sum, v)| *sum += *v * *v);
    let fours = row.chunks_exact(4 * T::NUMPY_LANES);
    let rest = fours.remainder();
    fours.for_each(|four| four.chunks(T::NUMPY_LANES).rev().for_each(&mut add));
    rest.chunks(T::NUMPY_LANES).for_each(&mut add);
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

/// Work over blocks of samples, with their distances from a centre: of a block's number and values, and of the centre
/// and its squared norm.
trait ForEachBlock<T> {
    fn each(self, points: &Points<T>, distances: impl Fn(usize, &[Block<T>], &[T], T) -> Block<T>);
}

/// Does work, compiled for the kind of distance: a choice inside its loops would keep distances in memory instead of
/// registers.
struct ByDistance<'a, T, W>(&'a Points<T>, W);

impl<T: Number, W: ForEachBlock<T>> WithSimd for ByDistance<'_, T, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self(points, work) = self;
        let d = points.d;
        match &points.distance {
            Distance::Squared => work.each(
                points,
                #[inline(always)]
                |_, block, centre, _| squares(block, centre),
            ),
            Distance::Observed(observed) => work.each(
                points,
                #[inline(always)]
                |b, block, centre, _| observed_squares(block, &observed.blocks[b * d..(b + 1) * d], centre),
            ),
            Distance::LessNorm => work.each(
                points,
                #[inline(always)]
                |_, block, centre, norm| less_norm::<T, S>(block, centre, norm),
            ),
        }
    }
}

/// Computes the nearest of `centres` (K, D), with squared norms `norms` (K,), and its distance for each sample of the
/// blocks from `first` on. Registers of any width give the same bits.
struct Nearest<'a, T> {
    first: usize,
    centres: &'a [T],
    norms: &'a [T],
    least: &'a mut [Block<T>],
    labels: &'a mut [Block<T>],
}

impl<T: Number> ForEachBlock<T> for Nearest<'_, T> {
    #[inline(always)]
    fn each(self, points: &Points<T>, distances: impl Fn(usize, &[Block<T>], &[T], T) -> Block<T>) {
        let d = points.d;
        let blocks = points.rows.blocks.chunks_exact(d).enumerate().skip(self.first);
        for (((b, block), least), labels) in blocks.zip(self.least).zip(self.labels) {
            let mut number = T::zero();
            for (centre, norm) in self.centres.chunks_exact(d).zip(self.norms) {
                let distances = distances(b, block, centre, *norm);
                for i in 0..SIDE_BY_SIDE {
                    let nearer = distances[i] < least[i];
                    least[i] = if nearer { distances[i] } else { least[i] };
                    labels[i] = if nearer { number } else { labels[i] };
                }
                number += T::one();
            }
        }
    }
}

/// Computes [`Points::nearer`] for the samples of the blocks from `first` on. The centres have their squared norms.
struct Nearer<'a, T> {
    first: usize,
    centres: &'a [(&'a [f64], f64)],
    norms: &'a [f64],
    nearest: &'a [T],
    out: &'a mut [Block<T>],
}

impl<T: Number> ForEachBlock<f64> for Nearer<'_, T> {
    #[inline(always)]
    fn each(self, points: &Points<f64>, distances: impl Fn(usize, &[Block<f64>], &[f64], f64) -> Block<f64>) {
        let blocks = points.rows.blocks.chunks_exact(points.d).enumerate().skip(self.first);
        let nearest = self.nearest.chunks(SIDE_BY_SIDE).enumerate();
        for (((b, block), (i, nearest)), out) in blocks.zip(nearest).zip(self.out.chunks_exact_mut(self.centres.len()))
        {
            let mut norms = [0.0; SIDE_BY_SIDE];
            let of_block = self.norms.get(i * SIDE_BY_SIDE..).unwrap_or_default();
            norms.iter_mut().zip(of_block).for_each(|(to, norm)| *to = *norm);
            let mut before = [T::infinity(); SIDE_BY_SIDE];
            before[..nearest.len()].copy_from_slice(nearest);
            for ((centre, norm), out) in self.centres.iter().zip(out) {
                let distances = distances(b, block, centre, *norm);
                for i in 0..SIDE_BY_SIDE {
                    let v = if distances[i] < f64::INFINITY { distances[i] } else { f64::INFINITY } + norms[i];
                    let v = T::from_f64(if v > 0.0 { v } else { 0.0 });
                    out[i] = if before[i] < v { before[i] } else { v };
                }
            }
        }
    }
}

#[inline(always)]
fn squares<T: Number>(block: &[Block<T>], centre: &[T]) -> Block<T> {
    let mut sums = [T::zero(); SIDE_BY_SIDE];
    for (values, centre) in block.iter().zip(centre) {
        for (sum, v) in sums.iter_mut().zip(values) {
            *sum += (*v - *centre) * (*v - *centre);
        }
    }
    sums
}

#[inline(always)]
fn observed_squares<T: Number>(block: &[Block<T>], observed: &[Block<T>], centre: &[T]) -> Block<T> {
    let mut sums = [T::zero(); SIDE_BY_SIDE];
    for ((values, observed), centre) in block.iter().zip(observed).zip(centre) {
        for ((sum, v), observed) in sums.iter_mut().zip(values).zip(observed) {
            *sum += *observed * ((*v - *centre) * (*v - *centre));
        }
    }
    sums
}

#[inline(always)]
fn less_norm<T: Number, S: Simd>(block: &[Block<T>], centre: &[T], norm: T) -> Block<T> {
    let mut sums = [T::zero(); SIDE_BY_SIDE];
    for (values, centre) in block.iter().zip(centre) {
        for (sum, v) in sums.iter_mut().zip(values) {
            // One fused operation where the processor has it.
            *sum = if fuses::<S>() { v.mul_add(*centre, *sum) } else { *v * *centre + *sum };
        }
    }
    for sum in &mut sums {
        *sum = norm - (*sum + *sum);
    }
    sums
}
