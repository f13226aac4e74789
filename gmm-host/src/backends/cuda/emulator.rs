//! Every kernel's own code, executed on the host (`gmm_kernels::simt::emulator`) and compared with the float64 reference.
//!
//! Tolerances: with f32's unit u = 2⁻²⁴, a sample's exponent q = seed − Σ t² collects about 2·D roundings of |t|·|m|·u,
//! where t = s·x + m cancels from numbers of size |m|. They are random, so that they grow with √D for a sample and with
//! √N over samples; as bounds serve e = 2·√(D + 4)·u·max(|log p|, 1)·max|m| for a sample and Σe/√N + max e for a total.
//! One sample left out or counted twice of up to 1000 is 10⁻³·Σ|log p| away, a hundred times that or more.
mod general;

use super::device::layout as columns_layout;
use super::estep::fused_layout::FusedLayout;
use super::estep::weighted_sums_layout::WeightedSumsLayout;
use super::likelihood::layout;
use super::plan::{Operation, Task, even, weighted_sums_shape};
use crate::backends::device_parameters::DeviceParameters;
use crate::data::frame::Frame;
use crate::{Covariances, Evaluator, Mixture, Precision, ReferenceEvaluator, Samples, Statistics};
use cust::memory::bytemuck;
use gmm_kernels::data;
use gmm_kernels::estep::fused::Moments;
use gmm_kernels::estep::{fused as moments, weighted_sums as scatter};
use gmm_kernels::likelihood::{batch, pair, small_k as direct, tiled};
use gmm_kernels::reduce::Output;
use gmm_kernels::reduce::sets::{ReduceSetsArgs, reduce_sets};
use gmm_kernels::reduce::slices::{self, ReduceSlicesArgs, reduce_slices};
use gmm_kernels::simt::emulator::{Memory, launch};
use ndarray::{Array1, Array2};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

mod walk;

/// What the padding behind the last sample holds: finite, and far from everything, so that it shows if counted.
const PADDING: f32 = 7e3;

/// All features of a sample that is far from every component.
const FAR: f64 = 15.0;

const NO_EXPONENTS: tiled::Exponents =
    tiled::Exponents { q: std::ptr::null_mut(), normalisers: std::ptr::null_mut(), stride: 0 };

/// A data set with a mixture, in the kernels' layout, and the truth about it.
struct Problem {
    frame: Frame,
    packed: DeviceParameters<f32>,
    /// The columns, aligned to 16 bytes.
    data: Vec<u128>,
    n: usize,
    d: usize,
    k: usize,
    total: f64,
    samples: Array1<f64>,
}

fn random_mixture(rng: &mut impl Rng, k: usize, d: usize) -> Mixture {
    let weights = Array1::from_shape_simple_fn(k, || rng.random_range(0.5..1.5));
    let means = Array2::from_shape_simple_fn((k, d), || rng.sample::<f64, _>(StandardNormal));
    let variances = Array2::from_shape_simple_fn((k, d), || rng.random_range(0.3..2.0));
    Mixture::new(&weights / weights.sum(), means, Covariances::Diag(variances)).unwrap()
}

impl Problem {
    fn new(x: Array2<f32>, mixture: &Mixture) -> Self {
        let ((n, d), k) = (x.dim(), mixture.n_components());
        let samples = Samples::from_f32(x.view()).unwrap();
        let frame = Frame::of(x.view());
        let packed = DeviceParameters::new(mixture, &frame).unwrap();
        let stride = columns_layout::stride(n);
        let mut data = vec![0u128; d * stride / 4];
        let columns: &mut [f32] = bytemuck::cast_slice_mut(&mut data);
        columns_layout::columns(&samples, &frame, 1.0, columns);
        for column in columns.chunks_exact_mut(stride) {
            column[n..].fill(PADDING);
        }
        let mut reference = ReferenceEvaluator::new(samples);
        let total = reference.log_likelihood(mixture).unwrap();
        let samples = reference.score_samples(mixture).unwrap();
        Self { frame, packed, data, n, d, k, total, samples }
    }

    fn random(seed: u64, n: usize, d: usize, k: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mixture = random_mixture(&mut rng, k, d);
        Self::new(Array2::from_shape_simple_fn((n, d), || rng.sample(StandardNormal)), &mixture)
    }

    fn columns<'a>(&'a self, memory: &mut Memory<'a>) -> data::Columns {
        let stride = columns_layout::stride(self.n) as u64;
        let x = memory.read("x", bytemuck::cast_slice(&self.data));
        // Some quads are kept in the cache and some are not: it must not matter.
        data::Columns { x, stride, n: self.n as u64, cached_quads: self.n as u32 / 8 }
    }

    /// Runs a launch twice with outputs full of NaN, and checks that both give the same bits and leave the ticket at 0.
    fn total<A: Copy>(
        &self,
        (grid, block, shared): (u32, u32, usize),
        memory: &Memory,
        kernel: unsafe fn(A),
        args: impl Fn(Output) -> A,
    ) -> f64 {
        let once = || {
            let (mut partials, mut ticket, mut total) = (vec![f64::NAN; grid as usize], vec![0u32], vec![f64::NAN]);
            let mut memory = memory.clone();
            let output = Output {
                partials: memory.write("partials", &mut partials),
                ticket: memory.write("ticket", &mut ticket),
                total: memory.write("total", &mut total),
            };
            // SAFETY: the arguments of this kernel, with the arrays of `memory`.
            unsafe { launch((grid, 1), block, shared, &memory, kernel, args(output)) };
            assert_eq!(ticket, [0], "the ticket goes back to zero");
            total[0]
        };
        let total = once();
        assert_eq!(total.to_bits(), once().to_bits(), "the same bits every time");
        layout::total(total, self.n as f64, &self.packed, 0.0)
    }

    /// Bounds of the errors of a total and of each sample; see the top of the file.
    fn tolerances(&self) -> (f64, Array1<f64>) {
        let m = self.packed.shift.iter().fold(1.0, |max: f32, m| max.max(m.abs()));
        let unit = 2.0 * (self.d as f64 + 4.0).sqrt() * 2f64.powi(-24) * f64::from(m);
        let sample = self.samples.mapv(|v| unit * v.abs().max(1.0));
        (sample.sum() / (self.n as f64).sqrt() + sample.iter().copied().fold(0.0, f64::max), sample)
    }

    fn check(&self, total: f64, what: &str) {
        let (bound, error) = (self.tolerances().0, (total - self.total).abs());
        let (n, d, k) = (self.n, self.d, self.k);
        assert!(
            error <= bound,
            "{what} N={n} D={d} K={k}: {total} for {}, {error:e} apart, {bound:e} allowed",
            self.total
        );
    }

    fn check_samples(&self, samples: &[f32], what: &str) {
        let (n, d, k) = (self.n, self.d, self.k);
        for (i, (&got, bound)) in samples.iter().zip(self.tolerances().1).enumerate() {
            let got = std::f64::consts::LN_2 * (f64::from(got) + self.packed.offset);
            let error = (got - self.samples[i]).abs();
            assert!(error <= bound, "{what} N={n} D={d} K={k} sample {i}: {got} for {}, {error:e}", self.samples[i]);
        }
    }

    fn direct(&self, grid: u32, block: u32) {
        let mut memory = Memory::new();
        let (columns, k) = (self.columns(&mut memory), even(self.k) as u32);
        macro_rules! run {
            ($($d:literal $kernel:ident),*) => {
                match self.d {
                    $($d => {
                        const ROW: usize = direct::row($d);
                        let components = layout::small_k_components::<ROW>(&self.packed);
                        let args = |output| direct::SmallKArgs { components, k, columns, output };
                        self.total((grid, block, direct::shared_bytes($d, block)), &memory, direct::$kernel, args)
                    })*
                    _ => unreachable!(),
                }
            };
        }
        let total = run!(1 small_k_d01, 2 small_k_d02, 3 small_k_d03, 4 small_k_d04, 5 small_k_d05, 6 small_k_d06,
            7 small_k_d07, 8 small_k_d08, 9 small_k_d09, 10 small_k_d10, 11 small_k_d11, 12 small_k_d12, 13 small_k_d13,
            14 small_k_d14, 15 small_k_d15, 16 small_k_d16);
        self.check(total, &format!("direct {grid}x{block}"));
    }

    /// Runs a launch that fills scores twice, with and without asking for them.
    fn scored(&self, what: &str, memory: &Memory, run: impl Fn(&Memory, *mut f32) -> f64) {
        let mut samples = vec![f32::NAN; self.n];
        let mut with_scores = memory.clone();
        let scores = with_scores.write("scores", &mut samples);
        let total = run(&with_scores, scores);
        self.check(total, what);
        self.check_samples(&samples, what);
        let without = run(memory, std::ptr::null_mut());
        assert_eq!(total.to_bits(), without.to_bits(), "{what}: asking for scores changes nothing");
    }

    fn tiled(&self, t: usize, grid: u32, block: u32, across: u32) {
        let (tiles, sm_len, constants_len) = layout::tiled_sizes(self.k, self.d, t);
        let (mut sm, mut constants) = (vec![0u128; sm_len.div_ceil(4)], vec![0u128; constants_len.div_ceil(4)]);
        layout::tiles(&self.packed, t, bytemuck::cast_slice_mut(&mut sm), bytemuck::cast_slice_mut(&mut constants));
        let mut memory = Memory::new();
        let columns = self.columns(&mut memory);
        let sm = memory.read("scales and shifts", &bytemuck::cast_slice(&sm)[..sm_len]);
        let constants = memory.read("weights and seeds", &bytemuck::cast_slice(&constants)[..constants_len]);
        let kernel = if t == 8 { tiled::tiled8 } else { tiled::tiled16 };
        self.scored(&format!("tiled{t} {grid}x{block}/{across}"), &memory, |memory, samples| {
            let shape = (grid, block, tiled::shared_bytes(t, block, across));
            self.total(shape, memory, kernel, |output| tiled::TiledArgs {
                columns,
                d: self.d as u32,
                tiles: tiles as u32,
                component_warps: across,
                scales_and_shifts: sm,
                weights_and_seeds: constants,
                sample_weights: std::ptr::null(),
                samples,
                exponents: NO_EXPONENTS,
                output,
            })
        });
    }

    fn pair(&self, grid: u32, block: u32, lanes: u32) {
        let width = layout::pair_row(self.d);
        let mut parameters = vec![f32::NAN; self.k * width];
        layout::component_rows(&self.packed, width, &mut parameters);
        let mut memory = Memory::new();
        let data::Columns { x, stride, n, .. } = self.columns(&mut memory);
        let parameters = memory.read("parameters", &parameters);
        let (k, d) = (self.k as u32, self.d as u32);
        self.scored(&format!("pair {grid}x{block}/{lanes}"), &memory, |memory, samples| {
            let shape = (grid, block, pair::shared_bytes(block));
            self.total(shape, memory, pair::pair, |output| pair::PairArgs {
                x,
                stride,
                n,
                k,
                d,
                threads_per_sample: lanes,
                parameters,
                samples,
                output,
            })
        });
    }

    /// Evaluates `sets` mixtures of the same K over the data in one launch, and compares each with the reference.
    fn batch(&self, x: &Array2<f32>, sets: &[Mixture], grid: u32, block: u32, group: usize) {
        let width = direct::row(self.d);
        let packed: Vec<_> = sets.iter().map(|m| DeviceParameters::<f32>::new(m, &self.frame).unwrap()).collect();
        let k = even(self.k);
        let mut parameters = vec![u128::MAX; sets.len() * k * width / 4];
        let rows: &mut [f32] = bytemuck::cast_slice_mut(&mut parameters);
        for (packed, rows) in packed.iter().zip(rows.chunks_exact_mut(k * width)) {
            layout::component_rows(packed, width, rows);
        }
        let groups = sets.len().div_ceil(group) as u32;
        let shared = batch::shared_bytes(self.d, k, group, block);
        let once = || {
            let mut partials = vec![f64::NAN; sets.len() * grid as usize];
            let mut totals = vec![f64::NAN; sets.len()];
            let mut memory = Memory::new();
            let left = memory.write("partials", &mut partials);
            let args = batch::BatchArgs {
                columns: self.columns(&mut memory),
                parameters: memory.read("parameters", bytemuck::cast_slice(&parameters)),
                sets: sets.len() as u32,
                group: group as u32,
                k: k as u32,
                d: self.d as u32,
                partials: left,
            };
            let kernel = match self.d {
                1 => batch::batch_d01,
                3 => batch::batch_d03,
                8 => batch::batch_d08,
                13 => batch::batch_d13,
                16 => batch::batch_d16,
                _ => unreachable!(),
            };
            let args_of_reduction =
                ReduceSetsArgs { partials: left, count: grid, totals: memory.write("totals", &mut totals) };
            // SAFETY: the arguments of these kernels, with the arrays of `memory`.
            unsafe {
                launch((grid, groups), block, shared, &memory, kernel, args);
                launch((sets.len() as u32, 1), 32, 0, &memory, reduce_sets, args_of_reduction);
            }
            totals
        };
        let totals = once();
        assert_eq!(totals, once(), "the same bits every time");
        for ((mixture, packed), total) in sets.iter().zip(&packed).zip(totals) {
            let truth = Problem::new(x.clone(), mixture);
            truth.check(layout::total(total, self.n as f64, packed, 0.0), &format!("batch {grid}x{block}/{group}"));
        }
    }
}

#[test]
fn direct_takes_every_shape() {
    for d in 1..=direct::MAX_FEATURES {
        for k in 1..=direct::COMPONENTS {
            Problem::random((100 * d + k) as u64, 131, d, k).direct(1, 32);
        }
    }
}

#[test]
fn direct_takes_every_size_and_grid() {
    for (i, n) in [1, 3, 4, 5, 127, 128, 129, 511, 512, 1000].into_iter().enumerate() {
        let problem = Problem::random(i as u64, n, 13, 8);
        for (grid, block) in [(1, 32), (3, 64), (9, 32)] {
            problem.direct(grid, block);
        }
    }
    Problem::random(77, 2003, 2, 3).direct(2, 128);
}

#[test]
fn batch_takes_every_shape() {
    let cases = [
        // N, D, K, sets, grid, block, group
        (1, 1, 1, 1, 1, 32, 1),
        (5, 3, 8, 3, 2, 32, 2),
        (300, 13, 8, 5, 1, 64, 2),
        (1000, 13, 8, 4, 3, 32, 4),
        (515, 16, 40, 2, 1, 32, 1),
        (511, 8, 17, 3, 4, 64, 16),
    ];
    for (i, (n, d, k, sets, grid, block, group)) in cases.into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let sets: Vec<_> = (0..sets).map(|_| random_mixture(&mut rng, k, d)).collect();
        let x = Array2::from_shape_simple_fn((n, d), || rng.sample(StandardNormal));
        Problem::new(x.clone(), &sets[0]).batch(&x, &sets, grid, block, group);
    }
}

#[test]
fn tiled_takes_every_shape() {
    let cases = [
        // N, D, K, grid, block, across
        (1, 1, 1, 1, 32, 1),
        (3, 13, 8, 1, 32, 1),
        (255, 9, 9, 2, 64, 1),
        (511, 64, 17, 1, 64, 2),
        (300, 65, 40, 1, 64, 2),
        (260, 130, 3, 3, 32, 1),
        (1000, 7, 40, 2, 64, 2),
        (513, 16, 33, 1, 128, 4),
        (1030, 2, 100, 2, 128, 2),
    ];
    for (i, (n, d, k, grid, block, across)) in cases.into_iter().enumerate() {
        let problem = Problem::random(i as u64, n, d, k);
        problem.tiled(8, grid, block, across);
        problem.tiled(16, grid, block, across);
    }
}

#[test]
fn pair_takes_every_shape() {
    let cases = [
        // N, D, K, grid, block, lanes
        (1, 1, 1, 1, 32, 1),
        (3, 13, 8, 1, 32, 8),
        (5, 13, 8, 4, 64, 2),
        (511, 13, 40, 2, 64, 32),
        (100, 65, 3, 3, 32, 2),
        (301, 20, 9, 5, 64, 8),
        // Lanes that are no power of two: 21 samples a block and a warp's threads split among samples.
        (100, 4, 7, 2, 96, 3),
    ];
    for (i, (n, d, k, grid, block, lanes)) in cases.into_iter().enumerate() {
        Problem::random(i as u64, n, d, k).pair(grid, block, lanes);
    }
}

/// Samples 1000 and 10⁴ standard deviations away beside near ones in one quad, and whole quads of them: each has its
/// finite log-likelihood (about −5·10⁵ and −5·10⁷ a feature), and the near ones keep theirs.
#[test]
fn far_samples_are_finite() {
    for (n, far) in [(64, vec![0, 9, 20, 21, 22, 23]), (7, vec![6]), (1, vec![0])] {
        let mut rng = ChaCha8Rng::seed_from_u64(n as u64);
        let mixture = random_mixture(&mut rng, 5, 3);
        let mut x = Array2::from_shape_simple_fn((n, 3), || rng.sample(StandardNormal));
        for (i, &row) in far.iter().enumerate() {
            x.row_mut(row).fill(if i % 2 == 0 { 1e3 } else { -1e4 });
        }
        let problem = Problem::new(x.clone(), &mixture);
        assert!(problem.samples.iter().all(|v| v.is_finite()) && problem.samples[far[0]] < -1e5);
        problem.direct(2, 32);
        problem.tiled(8, 1, 32, 1);
        problem.tiled(16, 1, 64, 2);
        problem.pair(2, 32, 4);
        problem.batch(&x, &[mixture.clone(), mixture], 1, 32, 1);
    }
}

/// A component of weight zero contributes nothing, also where it is the nearest or the only one of a tile.
#[test]
fn weight_zero_contributes_nothing() {
    let k = 19;
    let mut rng = ChaCha8Rng::seed_from_u64(19);
    let full = random_mixture(&mut rng, k, 3);
    let x: Array2<f32> = Array2::from_shape_simple_fn((70, 3), || 30.0 + rng.sample::<f32, _>(StandardNormal));
    let mut means = full.means().to_owned();
    // Right on the data, while the components that count are 30 standard deviations away.
    for c in (0..8).chain(16..19) {
        means.row_mut(c).fill(30.0);
    }
    let weights = Array1::from_shape_fn(k, |c| if (8..16).contains(&c) { 0.125 } else { 0.0 });
    let mixture = Mixture::new(weights, means, full.covariances().clone()).unwrap();
    let problem = Problem::new(x.clone(), &mixture);
    problem.tiled(8, 1, 32, 1);
    problem.tiled(8, 1, 128, 4);
    problem.tiled(16, 1, 64, 2);
    problem.pair(2, 64, 8);
    problem.batch(&x, &[mixture], 1, 32, 1);

    let weights = ndarray::arr1(&[0.0, 0.4, 0.0, 0.6]);
    let means = ndarray::arr2(&[[30.0, 30.0, 30.0], [0.0, 0.0, 0.0], [30.0, 29.0, 30.0], [1.0, 1.0, 1.0]]);
    let mixture = Mixture::new(weights, means, Covariances::Diag(Array2::ones((4, 3)))).unwrap();
    Problem::new(x, &mixture).direct(1, 32);
}

/// A mixture of each covariance type, from random data.
fn of_each_type(rng: &mut impl Rng, k: usize, d: usize) -> Vec<Mixture> {
    let diag = random_mixture(rng, k, d);
    let matrix = |rng: &mut dyn Rng| {
        let b = Array2::from_shape_simple_fn((d, d), || 0.4 * rng.sample::<f64, _>(StandardNormal));
        b.dot(&b.t()) + Array2::<f64>::eye(d)
    };
    let tied = matrix(rng);
    let full: Vec<_> = (0..k).map(|_| matrix(rng)).collect();
    let full = ndarray::stack(ndarray::Axis(0), &full.iter().map(|m| m.view()).collect::<Vec<_>>()).unwrap();
    let spherical = Array1::from_shape_simple_fn(k, || rng.random_range(0.3..2.0));
    let with = |c| Mixture::new(diag.weights().to_owned(), diag.means().to_owned(), c).unwrap();
    [Covariances::Full(full), Covariances::Tied(tied), Covariances::Spherical(spherical)]
        .map(with)
        .into_iter()
        .chain([diag.clone()])
        .collect()
}

fn flat(s: &Covariances) -> Vec<f64> {
    s.iter().collect()
}

fn check_statistics<const LANES: usize>(
    n: usize,
    (k, d): (usize, usize),
    [plain, diag, full]: [unsafe fn(moments::FusedArgs); 3],
) {
    assert_eq!(moments::lanes(k), LANES);
    let mut rng = ChaCha8Rng::seed_from_u64((100 * n + 10 * k + d) as u64);
    let mut x = Array2::from_shape_simple_fn((n, d), || rng.sample::<f32, _>(StandardNormal));
    // A sample far from every component takes the path with the maximum.
    x.row_mut(n / 2).fill(FAR as f32);
    let mut mixtures = of_each_type(&mut rng, k, d);
    if k > 1 {
        // One with a component far from the data's centre, for which moments of x will not do.
        let near = &mixtures[mixtures.len() - 1];
        let mut means = near.means().to_owned();
        means.row_mut(0).fill(60.0);
        mixtures.push(Mixture::new(near.weights().to_owned(), means, near.covariances().clone()).unwrap());
    }
    for mixture in mixtures {
        let problem = Problem::new(x.clone(), &random_mixture(&mut rng, k, d));
        let parameters = DeviceParameters::with_matrices(&mixture, &problem.frame).unwrap();
        let fused = FusedLayout::new(mixture.covariance_type(), parameters);
        let mut parameters = vec![f32::NAN; moments::numbers(d, fused.moments().full()) * LANES];
        fused.write(&mut parameters);
        let (grid, block) = (3, 64);
        let values = moments::values(d, fused.moments().full(), LANES);
        let mut partials = vec![f64::NAN; values * grid as usize];
        let mut memory = Memory::new();
        let args = moments::FusedArgs {
            columns: problem.columns(&mut memory),
            sample_weights: std::ptr::null(),
            parameters: memory.read("parameters", &parameters),
            partials: memory.write("partials", &mut partials),
        };
        let kernel = match fused.moments() {
            Moments::Full => full,
            Moments::Raw => plain,
            Moments::Diag => diag,
        };
        let shared = moments::shared_bytes(d, fused.moments().full(), LANES, block);
        // SAFETY: the arguments of this kernel, with the arrays of `memory`.
        unsafe { launch((grid, 1), block, shared, &memory, kernel, args) };
        let sums: Vec<f64> = partials.chunks_exact(grid as usize).map(|blocks| blocks.iter().sum()).collect();
        let got = fused.statistics(&sums, n as f64, 0.0, &problem.frame).unwrap();
        assert_statistics(&x, &mixture, &got);
    }
}

/// Compares with the reference, for samples of which one is as far away as [`FAR`].
fn assert_statistics(x: &Array2<f32>, mixture: &Mixture, got: &Statistics) {
    let (n, d) = x.dim();
    let truth = ReferenceEvaluator::new(Samples::from_f32(x.view()).unwrap()).statistics(mixture).unwrap();
    let what = format!("{} N={n} K={} D={d}", mixture.covariance_type(), mixture.n_components());
    // float32 sums of up to 2048 samples: 3·10⁻⁵ of the sum of magnitudes is generous. The far sample's exponents are some
    // thousands, with an error of a few units of 2⁻²⁴ of that: its responsibilities are right to 2·10⁻³.
    let (sums, far) = (3e-5, 2e-3);
    let near = |got: f64, truth: f64, bound: f64, name: &str| {
        assert!((got - truth).abs() <= bound, "{what}: {name} {got} for {truth} (bound {bound})");
    };
    let total = truth.log_likelihood();
    near(got.log_likelihood(), total, sums * total.abs().max(1.0), "log-likelihood");
    for (a, b) in got.counts().iter().zip(truth.counts()) {
        near(*a, *b, sums * n as f64 + far, "count");
    }
    let counts = truth.counts();
    for ((c, j), b) in truth.means().indexed_iter() {
        // A component next to no samples has no mean to speak of.
        if counts[c] > 0.1 {
            near(got.means()[[c, j]], *b, sums * FAR + far * FAR / counts[c], "mean");
        }
    }
    for (a, b) in flat(got.scatter()).into_iter().zip(flat(truth.scatter())) {
        near(a, b, (sums + far) * FAR * FAR * d as f64 + sums * 4.0 * (n * d) as f64, "scatter");
    }
}

/// The E-step by `tiled` and `scatter`, in pieces of the samples.
fn scattered_statistics(
    x: &Array2<f32>,
    mixture: &Mixture,
    (t, across): (usize, u32),
    block: (usize, usize),
    (piece, slices): (usize, usize),
) -> Statistics {
    let problem = Problem::new(x.clone(), &random_mixture(&mut ChaCha8Rng::seed_from_u64(0), 1, x.ncols()));
    let packed = DeviceParameters::<f32>::with_matrices(mixture, &problem.frame).unwrap();
    let scattered = WeightedSumsLayout::new(mixture, packed.clone(), &problem.frame);
    let (k, d) = (packed.n_components, packed.n_features);
    let task = Task {
        operation: Operation::EStep,
        n: problem.n,
        k,
        d,
        full: scattered.full(),
        central: scattered.central(),
        weighted: false,
        precision: Precision::Float32,
    };
    let shape = weighted_sums_shape(&task, block.0, block.1);
    let (sm_len, constants_len) = match shape.full {
        true => layout::triangle_sizes(k, d, t),
        false => (layout::tiled_sizes(k, d, t).1, layout::tiled_sizes(k, d, t).2),
    };
    let (mut sm, mut constants) = (vec![u128::MAX; sm_len.div_ceil(4)], vec![u128::MAX; constants_len.div_ceil(4)]);
    let (a, b) = (bytemuck::cast_slice_mut(&mut sm), bytemuck::cast_slice_mut(&mut constants));
    if shape.full {
        layout::triangles(&packed, t, a, b)
    } else {
        layout::tiles(&packed, t, a, b)
    }
    // NaN wherever nobody writes.
    let mut exponents = vec![u128::MAX; k.next_multiple_of(16) * piece / 4];
    let mut normalisers = vec![u128::MAX; 2 * piece / 4];
    let (mut sums, mut log2) = (vec![f64::NAN; slices * shape.sums()], 0.0);
    for first in (0..problem.n).step_by(piece) {
        let mut memory = Memory::new();
        let mut columns = problem.columns(&mut memory);
        columns.x = columns.x.wrapping_add(first);
        columns.n = piece.min(problem.n - first) as u64;
        let exponents = tiled::Exponents {
            q: memory.write("exponents", bytemuck::cast_slice_mut(&mut exponents)),
            normalisers: memory.write("normalisers", bytemuck::cast_slice_mut(&mut normalisers)),
            stride: piece as u32,
        };
        let (mut partials, mut ticket, mut total) = (vec![f64::NAN; 2], vec![0u32], vec![f64::NAN]);
        let tiled = tiled::TiledArgs {
            columns,
            d: d as u32,
            tiles: if shape.full { k } else { k.div_ceil(t) } as u32,
            component_warps: across,
            scales_and_shifts: memory.read("scales and shifts", &bytemuck::cast_slice(&sm)[..sm_len]),
            weights_and_seeds: memory.read("weights and seeds", &bytemuck::cast_slice(&constants)[..constants_len]),
            sample_weights: std::ptr::null(),
            samples: std::ptr::null_mut(),
            exponents,
            output: Output {
                partials: memory.write("partials", &mut partials),
                ticket: memory.write("ticket", &mut ticket),
                total: memory.write("total", &mut total),
            },
        };
        let tiled_kernel = match (t, shape.full) {
            (8, false) => tiled::tiled8,
            (8, true) => tiled::tiled_full8,
            (_, false) => tiled::tiled16,
            (_, true) => tiled::tiled_full16,
        };
        let scatter = scatter::WeightedSumsArgs {
            shape,
            columns,
            exponents,
            weights: memory.read("weights", &scattered.weights),
            centres: memory.read("centres", &scattered.centres),
            pairs: memory.read("pairs", &scattered.pairs).cast(),
            slices: slices as u32,
            add: (first > 0) as u32,
            sums: memory.write("sums", &mut sums),
        };
        let scatter_kernel = match (shape.full, shape.central) {
            (false, false) => scatter::weighted_sums_diag_raw,
            (true, false) => scatter::weighted_sums_full_raw,
            (false, true) => scatter::weighted_sums_diag_central,
            (true, true) => scatter::weighted_sums_full_central,
        };
        let block = 32 * across;
        // SAFETY: the arguments of these kernels, with the arrays of `memory`.
        unsafe {
            launch((2, 1), block, tiled::shared_bytes(t, block, across), &memory, tiled_kernel, tiled);
            let grid = (shape.blocks(), slices as u32);
            launch(grid, shape.block(), shape.shared_bytes(), &memory, scatter_kernel, scatter);
        }
        log2 += total[0];
    }
    let mut totals = vec![f64::NAN; shape.sums()];
    let count = shape.sums() as u32;
    let mut memory = Memory::new();
    let args = ReduceSlicesArgs {
        sums: memory.read("sums", &sums),
        slices: slices as u32,
        count,
        totals: memory.write("totals", &mut totals),
    };
    let (grid, shared) = ((count.div_ceil(slices::REDUCE_NUMBERS), 1), slices::shared_bytes(64));
    // SAFETY: as above.
    unsafe { launch(grid, 64, shared, &memory, reduce_slices, args) };
    let n = problem.n as f64;
    scattered.statistics(&task, &totals, n, log2, &problem.frame).unwrap()
}

#[test]
fn scatter_gives_the_statistics() {
    let cases = [
        // N, K, D, rows of a tile, warps along the components, threads of scatter, samples of a piece, slices; the shared
        // memory is enough for all stages, or for two or three of them
        (1, 1, 1, 8, 1, 32, 512, 1),
        (600, 3, 2, 8, 1, 32, 256, 2),
        (517, 9, 5, 16, 1, 64, 512, 3),
        (300, 20, 9, 8, 2, 128, 1024, 5),
        (530, 17, 13, 16, 2, 64, 512, 2),
        (70, 2, 34, 16, 1, 64, 256, 1),
    ];
    for (i, (n, k, d, t, across, threads, piece, slices)) in cases.into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let mut x = Array2::from_shape_simple_fn((n, d), || rng.sample::<f32, _>(StandardNormal));
        x.row_mut(n / 2).fill(FAR as f32);
        for mixture in of_each_type(&mut rng, k, d) {
            let shared = [227 << 10, 0, 8 << 10][i % 3];
            let run = || scattered_statistics(&x, &mixture, (t, across), (threads, shared), (piece, slices));
            let got = run();
            assert_statistics(&x, &mixture, &got);
            let again = run();
            assert_eq!(got, again, "the same bits every time");
        }
    }
}

/// Components of standard deviation 1 that are 10⁴ apart: their variances come out as right as any, which needs a centre
/// of their own. Around a common one they would be off by 10⁸ units in float32's seventh digit: by all they are.
#[test]
fn components_far_apart_keep_their_variances() {
    let (n, k, d) = (400, 11, 3);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let centre = |c: usize| 1e4 * c as f64;
    let x = Array2::from_shape_fn((n, d), |(i, _)| (centre(i % k) + rng.sample::<f64, _>(StandardNormal)) as f32);
    let weights = Array1::from_elem(k, 1.0 / k as f64);
    let means = Array2::from_shape_fn((k, d), |(c, _)| centre(c) + 0.1);
    let full = ndarray::Array3::from_shape_fn((k, d, d), |(_, i, j)| if i == j { 1.0 } else { 0.2 });
    for covariances in [Covariances::Diag(Array2::ones((k, d))), Covariances::Full(full)] {
        let mixture = Mixture::new(weights.clone(), means.clone(), covariances).unwrap();
        let got = scattered_statistics(&x, &mixture, (8, 1), (64, 227 << 10), (512, 2));
        let truth = ReferenceEvaluator::new(Samples::from_f32(x.view()).unwrap()).statistics(&mixture).unwrap();
        let (a, b): (Vec<f64>, Vec<f64>) = match (got.scatter(), truth.scatter()) {
            (Covariances::Diag(a), Covariances::Diag(b)) => (a.iter().copied().collect(), b.iter().copied().collect()),
            (Covariances::Full(a), Covariances::Full(b)) => (a.iter().copied().collect(), b.iter().copied().collect()),
            _ => panic!("another covariance type"),
        };
        for (a, b) in a.into_iter().zip(b) {
            // A sample's float32 is right to 4·10⁻³ here, 36 of them are summed up: random, so far below 0.1.
            assert!((a - b).abs() < 0.1, "{a} for {b}");
        }
    }
}

#[test]
fn moments_give_the_statistics() {
    use moments::*;
    check_statistics::<8>(1000, (8, 13), [fused_raw_k08_d13, fused_diag_k08_d13, fused_full_k08_d13]);
    check_statistics::<8>(1, (1, 1), [fused_raw_k08_d01, fused_diag_k08_d01, fused_full_k08_d01]);
    check_statistics::<8>(517, (3, 2), [fused_raw_k08_d02, fused_diag_k08_d02, fused_full_k08_d02]);
    check_statistics::<32>(131, (9, 5), [fused_raw_k32_d05, fused_diag_k32_d05, fused_full_k32_d05]);
    check_statistics::<32>(300, (32, 16), [fused_raw_k32_d16, fused_diag_k32_d16, fused_full_k32_d16]);
}
