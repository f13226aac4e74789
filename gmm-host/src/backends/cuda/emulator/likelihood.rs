//! `small_k`, `batch`, `tiled` and `pair`: totals and scores.
use super::{PADDING, Problem, of_each_type, random_mixture, with_holes};
use crate::backends::cuda::likelihood::{batch_tensor_cores_layout, layout};
use crate::backends::cuda::missing::add_offsets;
use crate::backends::cuda::plan::even;
use crate::backends::cuda::source::Source;
use crate::backends::device_parameters::{Deviations, DeviceParameters, Matrices, frame_offset};
use crate::data::frame::{Float, Frame};
use crate::{CovarianceType, Covariances, Mixture, Samples};
use cust::memory::bytemuck;
use gmm_kernels::data;
use gmm_kernels::likelihood::batch_parameters::{self, BatchParametersArgs, batch_parameters};
use gmm_kernels::likelihood::{batch, batch_tensor_cores, batch_warpgroup, pair, small_k, tiled};
use gmm_kernels::reduce::sets::{ReduceSetsArgs, reduce_sets};
use gmm_kernels::simt::WARPGROUP;
use gmm_kernels::simt::emulator::{Memory, launch};
use ndarray::{Array1, Array2, s};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

const NO_EXPONENTS: tiled::Exponents =
    tiled::Exponents { q: std::ptr::null_mut(), normalisers: std::ptr::null_mut(), stride: 0 };

impl Problem {
    fn check_samples(&self, samples: &[f32], what: &str) {
        let (n, d, k) = (self.n, self.d, self.k);
        let scores =
            samples.iter().map(|v| std::f64::consts::LN_2 * (f64::from(*v) + self.parameters.offset)).collect();
        let source = Source::Host(Samples::with_missing(self.x.view()).unwrap(), 0);
        let scores = add_offsets(&source, self.parameters.gaps.as_ref(), scores);
        for (i, (&got, bound)) in scores.iter().zip(self.tolerances().1).enumerate() {
            let error = (got - self.samples[i]).abs();
            assert!(error <= bound, "{what} N={n} D={d} K={k} sample {i}: {got} for {}, {error:e}", self.samples[i]);
        }
    }

    fn small_k(&self, grid: u32, block: u32) {
        let total = self.small_k_total(grid, block, std::ptr::null(), Memory::new());
        self.check(total, &format!("small_k {grid}x{block}"));
    }

    /// Samples with weights, some of them zero: to the bound of a total whose samples have the
    /// largest weight.
    fn small_k_weighted(&self, grid: u32, block: u32) {
        let weight = |i: usize| (i * 7 % 5) as f32 / 2.0;
        let mut weights = vec![0u128; self.n.div_ceil(4)];
        let numbers: &mut [f32] = bytemuck::cast_slice_mut(&mut weights);
        numbers.fill(PADDING);
        (0..self.n).for_each(|i| numbers[i] = weight(i));
        let mut memory = Memory::new();
        let weights = memory.read("weights", bytemuck::cast_slice(&weights));
        // What `total` adds for each sample is in the reference's samples too, but once for each.
        let unweighted = layout::total(0.0, self.n as f64, self.parameters.offset, 0.0);
        let of_weights: f64 = (0..self.n).map(|i| f64::from(weight(i))).sum();
        let total = self.small_k_total(grid, block, weights, memory) - unweighted
            + layout::total(0.0, of_weights, self.parameters.offset, 0.0);
        let truth: f64 = self.samples.iter().enumerate().map(|(i, v)| f64::from(weight(i)) * v).sum();
        let (error, bound) = ((total - truth).abs(), 2.0 * self.tolerances().0);
        let (n, d, k) = (self.n, self.d, self.k);
        assert!(error <= bound, "weighted N={n} D={d} K={k}: {total} for {truth}, {error:e}, {bound:e} allowed");
    }

    fn small_k_total<'a>(&'a self, grid: u32, block: u32, sample_weights: *const f32, mut memory: Memory<'a>) -> f64 {
        let columns = self.columns(&mut memory);
        let kind = match &self.parameters.matrices {
            Matrices::Each(_) => small_k::Kind::Full,
            Matrices::Shared(_) => small_k::Kind::Tied,
            Matrices::Diagonal if self.parameters.gaps.is_some() => small_k::Kind::Observed,
            Matrices::Diagonal => small_k::Kind::Diagonal,
        };
        let (k, len) = (kind.count(self.k) as u32, kind.triangles(self.d, self.k));
        // As aligned as the kernel's reads of 16 bytes.
        let mut aligned = vec![u128::MAX; len / 4];
        layout::small_k_triangles(&self.parameters, bytemuck::cast_slice_mut(&mut aligned));
        let mut memory = memory.clone();
        let triangles = memory.read("triangles", bytemuck::cast_slice(&aligned));
        let shape = (grid, block, kind.shared_bytes(self.d, self.k, block));
        macro_rules! of_kind {
            ($kind:ident $d:literal $kernel:ident) => {{
                const ROW: usize = small_k::Kind::$kind.row($d);
                let components = layout::small_k_components::<ROW>(&self.parameters);
                let args = |output| small_k::SmallKArgs { components, k, triangles, columns, sample_weights, output };
                self.total(shape, &memory, small_k::$kernel, args)
            }};
        }
        macro_rules! run {
            ($($d:literal $diagonal:ident $observed:ident $tied:ident $full:ident),*) => {
                match (self.d, kind) {
                    $(
                        ($d, small_k::Kind::Diagonal) => of_kind!(Diagonal $d $diagonal),
                        ($d, small_k::Kind::Observed) => of_kind!(Observed $d $observed),
                        ($d, small_k::Kind::Tied) => of_kind!(Tied $d $tied),
                        ($d, small_k::Kind::Full) => of_kind!(Full $d $full),
                    )*
                    _ => unreachable!(),
                }
            };
        }
        run!(
            1 small_k_d01 small_k_observed_d01 small_k_tied_d01 small_k_full_d01,
            2 small_k_d02 small_k_observed_d02 small_k_tied_d02 small_k_full_d02,
            3 small_k_d03 small_k_observed_d03 small_k_tied_d03 small_k_full_d03,
            4 small_k_d04 small_k_observed_d04 small_k_tied_d04 small_k_full_d04,
            5 small_k_d05 small_k_observed_d05 small_k_tied_d05 small_k_full_d05,
            6 small_k_d06 small_k_observed_d06 small_k_tied_d06 small_k_full_d06,
            7 small_k_d07 small_k_observed_d07 small_k_tied_d07 small_k_full_d07,
            8 small_k_d08 small_k_observed_d08 small_k_tied_d08 small_k_full_d08,
            9 small_k_d09 small_k_observed_d09 small_k_tied_d09 small_k_full_d09,
            10 small_k_d10 small_k_observed_d10 small_k_tied_d10 small_k_full_d10,
            11 small_k_d11 small_k_observed_d11 small_k_tied_d11 small_k_full_d11,
            12 small_k_d12 small_k_observed_d12 small_k_tied_d12 small_k_full_d12,
            13 small_k_d13 small_k_observed_d13 small_k_tied_d13 small_k_full_d13,
            14 small_k_d14 small_k_observed_d14 small_k_tied_d14 small_k_full_d14,
            15 small_k_d15 small_k_observed_d15 small_k_tied_d15 small_k_full_d15,
            16 small_k_d16 small_k_observed_d16 small_k_tied_d16 small_k_full_d16
        )
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

    fn tiled(&self, t: usize, grid: u32, block: u32, component_warps: u32) {
        let gaps = self.parameters.gaps.is_some();
        let (tiles, sm_len, constants_len) = layout::tiled_sizes(self.k, self.d, t, gaps);
        let (mut sm, mut constants) = (vec![0u128; sm_len.div_ceil(4)], vec![0u128; constants_len.div_ceil(4)]);
        layout::tiles(&self.parameters, t, bytemuck::cast_slice_mut(&mut sm), bytemuck::cast_slice_mut(&mut constants));
        let mut memory = Memory::new();
        let columns = self.columns(&mut memory);
        let sm = memory.read("scales and shifts", &bytemuck::cast_slice(&sm)[..sm_len]);
        let constants = memory.read("weights and seeds", &bytemuck::cast_slice(&constants)[..constants_len]);
        let kernel = match t {
            8 if gaps => tiled::tiled_observed8,
            8 => tiled::tiled8,
            _ => tiled::tiled16,
        };
        self.scored(&format!("tiled{t} {grid}x{block}/{component_warps}"), &memory, |memory, samples| {
            let shape = (grid, block, tiled::shared_bytes(t, gaps, block, component_warps));
            self.total(shape, memory, kernel, |output| tiled::TiledArgs {
                columns,
                d: self.d as u32,
                tiles: tiles as u32,
                component_warps,
                scales_and_shifts: sm,
                weights_and_seeds: constants,
                sample_weights: std::ptr::null(),
                samples,
                exponents: NO_EXPONENTS,
                output,
            })
        });
    }

    fn pair(&self, grid: u32, block: u32) {
        let width = layout::pair_row(self.d);
        let mut parameters = vec![f32::NAN; self.k * width];
        layout::component_rows(&self.parameters, width, &mut parameters);
        let mut memory = Memory::new();
        let data::Columns { x, stride, n, .. } = self.columns(&mut memory);
        let parameters = memory.read("parameters", &parameters);
        let (k, d) = (self.k as u32, self.d as u32);
        self.scored(&format!("pair {grid}x{block}"), &memory, |memory, samples| {
            let shape = (grid, block, pair::shared_bytes(block));
            self.total(shape, memory, pair::pair, |output| pair::PairArgs {
                x,
                stride,
                n,
                k,
                d,
                parameters,
                samples,
                output,
            })
        });
    }

    /// Evaluates `sets` mixtures of the same K over the data in one launch, and compares each with
    /// the reference.
    fn batch(&self, x: &Array2<f32>, sets: &[Mixture], grid: u32, block: u32, group: usize) {
        let width = small_k::row(self.d, false);
        let all: Vec<_> =
            sets.iter().map(|m| DeviceParameters::<f32>::new(m, &self.frame, Deviations::InFrame).unwrap()).collect();
        let k = even(self.k);
        let mut parameters = vec![u128::MAX; sets.len() * k * width / 4];
        let rows: &mut [f32] = bytemuck::cast_slice_mut(&mut parameters);
        for (set, rows) in all.iter().zip(rows.chunks_exact_mut(k * width)) {
            layout::component_rows(set, width, rows);
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
        self.check_batch(x, sets, &all, &format!("batch {grid}x{block}/{group}"), once);
    }
}

/// The parameters of sets beside a reference as `batch_parameters` makes them for a total over `n`
/// samples, and the sets' constants.
fn near_sets(frame: &Frame, reference: &Mixture, sets: &[Mixture], n: usize) -> (Vec<u128>, Vec<f64>) {
    let (k, d) = reference.means().dim();
    let [of_coefficients, of_weights, of_reference] = batch_tensor_cores_layout::sections(k, d, sets.len());
    let mut mixtures = vec![f64::NAN; batch_tensor_cores_layout::numbers(k, d, sets.len())];
    batch_tensor_cores_layout::write(frame, reference, sets, &mut mixtures);
    let mut offsets = vec![f64::NAN; sets.len()];
    // NaN: each number is to be written.
    let mut parameters = vec![u128::MAX; of_reference.end / 4];
    let all: &mut [f32] = bytemuck::cast_slice_mut(&mut parameters);
    let (coefficients, rest) = all.split_at_mut(of_coefficients.len());
    let (weights, reference_rows) = rest.split_at_mut(of_weights.len());
    let (loss, most) = batch_tensor_cores_layout::loss(n);
    let mut memory = Memory::new();
    let args = BatchParametersArgs {
        k: k as u32,
        d: d as u32,
        sets: sets.len() as u32,
        mixtures: memory.read("mixtures", &mixtures),
        max_deviation: f32::MAX_DEVIATION,
        loss,
        most,
        coefficients: memory.write("coefficients", coefficients),
        weights: memory.write("weights", weights),
        reference: memory.write("reference", reference_rows),
        offsets: memory.write("offsets", &mut offsets),
    };
    let places = (batch_tensor_cores::SETS * batch_tensor_cores_layout::fours(sets.len())) as u32;
    // SAFETY: the argument of this kernel, with the arrays of `memory`.
    unsafe {
        launch(
            (places, 1),
            batch_parameters::BLOCK,
            batch_parameters::shared_bytes(k),
            &memory,
            batch_parameters,
            args,
        );
    }
    assert!(bytemuck::cast_slice::<_, f32>(&parameters).iter().all(|v| v.is_finite()), "a number was not written");
    (parameters, offsets)
}

/// Which sets are near to the reference.
fn near(frame: &Frame, reference: &Mixture, sets: &[Mixture], n: usize) -> Vec<bool> {
    near_sets(frame, reference, sets, n).1.into_iter().map(f64::is_finite).collect()
}

impl Problem {
    /// As [`Self::batch`] on the matrix units, `part` fours of sets in a block: by warps, and, in
    /// blocks of so many more threads that they are whole warpgroups, by these.
    fn batch_tensor_cores(&self, x: &Array2<f32>, sets: &[Mixture], grid: u32, block: u32, part: usize) {
        let all: Vec<_> =
            sets.iter().map(|m| DeviceParameters::<f32>::new(m, &self.frame, Deviations::InFrame).unwrap()).collect();
        let [coefficients, weights, reference] = batch_tensor_cores_layout::sections(self.k, self.d, sets.len());
        let (parameters, offsets) = near_sets(&self.frame, &sets[0], sets, self.n);
        for (set, offset) in all.iter().zip(offsets) {
            let offset = offset + frame_offset(self.d, self.frame.log2_scale);
            // Some roundings of float64 in sums of K·D logarithms of at most 2^7; infinite where a
            // set is not near.
            assert!((offset - set.offset).abs() <= 1e-11, "{offset} for {}", set.offset);
        }
        let parameters: &[f32] = bytemuck::cast_slice(&parameters);
        let eights = batch_tensor_cores_layout::eights(self.k);
        let fours = batch_tensor_cores_layout::fours(sets.len());
        let once = |kernel: unsafe fn(batch_tensor_cores::BatchTensorCoresArgs), block, shared| {
            let mut partials = vec![f64::NAN; 4 * fours * grid as usize];
            let mut totals = vec![f64::NAN; sets.len()];
            let mut memory = Memory::new();
            let left = memory.write("partials", &mut partials);
            let args = batch_tensor_cores::BatchTensorCoresArgs {
                columns: self.columns(&mut memory),
                d: self.d as u32,
                fours: fours as u32,
                part: part as u32,
                eights: eights as u32,
                coefficients: memory.read("coefficients", &parameters[coefficients.clone()]),
                weights: memory.read("weights", &parameters[weights.clone()]),
                reference: memory.read("reference", &parameters[reference.clone()]),
                partials: left,
            };
            let args_of_reduction =
                ReduceSetsArgs { partials: left, count: grid, totals: memory.write("totals", &mut totals) };
            // SAFETY: the arguments of these kernels, with the arrays of `memory`.
            unsafe {
                launch((grid, fours.div_ceil(part) as u32), block, shared, &memory, kernel, args);
                launch((sets.len() as u32, 1), 32, 0, &memory, reduce_sets, args_of_reduction);
            }
            totals
        };
        let steps = batch_tensor_cores::steps(self.d) - 1;
        let kernel = [
            batch_tensor_cores::batch_tensor_cores_s1,
            batch_tensor_cores::batch_tensor_cores_s2,
            batch_tensor_cores::batch_tensor_cores_s3,
            batch_tensor_cores::batch_tensor_cores_s4,
        ][steps];
        let shared = batch_tensor_cores::shared_bytes(self.d, eights, part, block);
        self.check_batch(x, sets, &all, &format!("batch_tensor_cores {grid}x{block}/{part}"), || {
            once(kernel, block, shared)
        });
        let [any, one_eight] = [
            [
                batch_warpgroup::batch_warpgroup_s1,
                batch_warpgroup::batch_warpgroup_s2,
                batch_warpgroup::batch_warpgroup_s3,
                batch_warpgroup::batch_warpgroup_s4,
            ],
            [
                batch_warpgroup::batch_warpgroup_k08_s1,
                batch_warpgroup::batch_warpgroup_k08_s2,
                batch_warpgroup::batch_warpgroup_k08_s3,
                batch_warpgroup::batch_warpgroup_k08_s4,
            ],
        ];
        let block = block.next_multiple_of(WARPGROUP);
        let shared = batch_warpgroup::shared_bytes(self.d, eights, part, block);
        for kernel in [Some(any[steps]), (eights == 1).then_some(one_eight[steps])].into_iter().flatten() {
            self.check_batch(x, sets, &all, &format!("batch_warpgroup {grid}x{block}/{part}"), || {
                once(kernel, block, shared)
            });
        }
    }

    /// Compares the totals of a batch with the reference.
    fn check_batch(
        &self,
        x: &Array2<f32>,
        sets: &[Mixture],
        parameters: &[DeviceParameters<f32>],
        what: &str,
        once: impl Fn() -> Vec<f64>,
    ) {
        let totals = once();
        assert_eq!(totals, once(), "the same bits every time");
        for ((mixture, set), total) in sets.iter().zip(parameters).zip(totals) {
            let truth = Problem::new(x.clone(), mixture);
            truth.check(layout::total(total, self.n as f64, set.offset, 0.0), what);
        }
    }
}

#[test]
fn batch_tensor_cores_takes_every_shape() {
    let cases = [
        // N, D, K, sets, grid, block, part
        (1, 1, 1, 1, 1, 32, 1),
        (5, 3, 8, 3, 2, 32, 2),
        (300, 13, 8, 5, 1, 64, 1),
        (520, 13, 8, 9, 3, 32, 4),
        (150, 16, 40, 2, 1, 32, 1),
        (511, 7, 17, 3, 2, 64, 3),
        (160, 28, 9, 6, 1, 96, 2),
        (33, 8, 3, 4, 1, 64, 1),
    ];
    for (i, (n, d, k, sets, grid, block, part)) in cases.into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let sets: Vec<_> = (0..sets).map(|_| random_mixture(&mut rng, k, d)).collect();
        let x = Array2::from_shape_simple_fn((n, d), || rng.sample(StandardNormal));
        Problem::new(x.clone(), &sets[0]).batch_tensor_cores(&x, &sets, grid, block, part);
    }
}

/// Components of weight zero contribute nothing, also where they are the nearest: to near samples,
/// and to far ones. (In the reference all have a weight.)
#[test]
fn batch_tensor_cores_leaves_out_components_without_weight() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let full = random_mixture(&mut rng, 11, 3);
    let mut x = Array2::from_shape_simple_fn((200, 3), || rng.sample(StandardNormal));
    // Different, so that their roundings are.
    x.slice_mut(s![60..90, ..]).mapv_inplace(|v: f32| 14.0 + 0.2 * v);
    let mut means = full.means().to_owned();
    means.slice_mut(s![3.., ..]).mapv_inplace(|v| 2.0 + v);
    means.slice_mut(s![..3, ..]).fill(0.0);
    means.row_mut(2).fill(14.0);
    let weights = Array1::from_shape_fn(11, |c| if c < 3 { 0.0 } else { 0.125 });
    let mixture = Mixture::new(weights, means, full.covariances().clone()).unwrap();
    Problem::new(x.clone(), &mixture).batch_tensor_cores(&x, &[full, mixture.clone(), mixture], 1, 64, 1);
}

/// A set is near or not, depending on how much its total would lose over so many samples.
#[test]
fn near_depends_on_the_number_of_samples() {
    let frame = Frame::of(ndarray::arr2(&[[-4.0f32, -4.0], [0.0, 0.0], [4.0, 4.0]]).view());
    let one = |variance: f64, mean: f64| {
        let (means, variances) = (ndarray::arr2(&[[mean, 0.0]]), ndarray::arr2(&[[variance, 1.0]]));
        Mixture::new(Array1::ones(1), means, Covariances::Diag(variances)).unwrap()
    };
    let [a, b, c] = [one(1.0, 1.0), one(1.01, 1.005), one(3.0, -2.0)];
    let near = |set: &Mixture, n| near(&frame, &a, std::slice::from_ref(set), n)[0];
    assert!(near(&a, usize::MAX));
    assert!(near(&b, 1_000_000) && !near(&b, 1_000_000_000));
    assert!(near(&c, 1000) && !near(&c, 1_000_000));
}

/// In the place of a set that is not near, or outside the range of float32, is the reference: the
/// other sets' numbers are the same.
#[test]
fn far_sets_are_replaced_by_the_reference() {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let (n, k, d) = (1_000_000, 9, 8);
    let x = Array2::from_shape_simple_fn((100, d), || rng.sample(StandardNormal));
    let reference = random_mixture(&mut rng, k, d);
    let problem = Problem::new(x, &reference);
    let with = |weights: Array1<f64>, shift: f64, factor: f64| {
        let Covariances::Diag(v) = reference.covariances() else { unreachable!() };
        Mixture::new(weights, &reference.means() + shift, Covariances::Diag(v * factor)).unwrap()
    };
    let weights = || reference.weights().to_owned();
    let mut one = Array1::zeros(k);
    one[3] = 1.0;
    let sets =
        [with(weights(), 1e-4, 1.0), with(weights(), 3.0, 1.0), with(weights(), 0.0, 1e-60), with(one, 0.0, 1.0)];
    let (parameters, offsets) = near_sets(&problem.frame, &reference, &sets, n);
    assert_eq!(offsets.iter().map(|v| v.is_finite()).collect::<Vec<_>>(), [true, false, false, true]);
    assert_eq!(offsets[1..3], [f64::INFINITY; 2]);
    let replaced = [sets[0].clone(), reference.clone(), reference.clone(), sets[3].clone()];
    assert!(near_sets(&problem.frame, &reference, &replaced, n).0 == parameters);
    // Spherical covariances are diagonal ones.
    let variances = Array1::from_shape_fn(k, |c| 1.0 + c as f64 / 8.0);
    let spread = Array2::from_shape_fn((k, d), |(c, _)| variances[c]);
    let [spherical, diagonal] = [Covariances::Spherical(variances), Covariances::Diag(spread)]
        .map(|covariances| Mixture::new(weights(), reference.means().to_owned(), covariances).unwrap());
    let [spherical, diagonal] =
        [spherical, diagonal].map(|set| near_sets(&problem.frame, &set, std::slice::from_ref(&set), n));
    assert!(spherical == diagonal && spherical.1[0].is_finite());
    // A component that the reference has no weight for has nothing to be compared to.
    assert_eq!(near(&problem.frame, &sets[3], &[sets[3].clone(), reference.clone()], n), [true, false]);
    // Nor has any set beside a reference that float32 cannot hold.
    assert_eq!(near(&problem.frame, &sets[2], &[sets[2].clone(), reference.clone()], n), [false, false]);
}

#[test]
fn small_k_takes_every_shape() {
    for d in 1..=small_k::MAX_FEATURES {
        for k in 1..=small_k::COMPONENTS {
            Problem::random((100 * d + k) as u64, 131, d, k).small_k(1, 32);
        }
    }
}

#[test]
fn small_k_takes_matrices() {
    for d in 1..=small_k::MAX_FEATURES {
        let mut rng = ChaCha8Rng::seed_from_u64(d as u64);
        let mixtures = of_each_type(&mut rng, 1 + d % 8, d);
        let mut x = Array2::from_shape_simple_fn((131, d), || rng.sample(StandardNormal));
        // A whole warp of far samples, and the next round of each of its lanes.
        x.slice_mut(s![20.., ..]).mapv_inplace(|v: f32| 40.0 + v);
        for covariance_type in [CovarianceType::Tied, CovarianceType::Full] {
            let of_type = mixtures.iter().find(|mixture| mixture.covariance_type() == covariance_type).unwrap();
            Problem::new(x.clone(), of_type).small_k(1, 32);
        }
    }
}

#[test]
fn small_k_takes_weights() {
    for (i, n) in [1, 3, 130, 515].into_iter().enumerate() {
        let d = [1, 3, 13, 16][i];
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let mut x = Array2::from_shape_simple_fn((n, d), || rng.sample(StandardNormal));
        x.row_mut(n / 2).fill(30.0);
        for mixture in of_each_type(&mut rng, 1 + 2 * i, d) {
            let problem = Problem::new(x.clone(), &mixture);
            problem.small_k_weighted(1, 32);
            problem.small_k_weighted(3, 64);
        }
    }
}

/// Full covariances: every size and grid, and components of weight zero right on the data.
#[test]
fn small_k_takes_full_covariances_of_every_size() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let full = |rng: &mut ChaCha8Rng, k, d| {
        of_each_type(rng, k, d).into_iter().find(|m| m.covariance_type() == CovarianceType::Full).unwrap()
    };
    let mixture = full(&mut rng, 8, 13);
    for n in [1, 3, 4, 127, 128, 129, 515, 1000] {
        let x = Array2::from_shape_simple_fn((n, 13), || rng.sample(StandardNormal));
        for (grid, block) in [(1, 32), (3, 64)] {
            Problem::new(x.clone(), &mixture).small_k(grid, block);
        }
    }
    let mixture = full(&mut rng, 4, 3);
    let mut means = mixture.means().to_owned();
    for c in [0, 2] {
        means.row_mut(c).fill(30.0);
    }
    let mixture = Mixture::new(ndarray::arr1(&[0.0, 0.4, 0.0, 0.6]), means, mixture.covariances().clone()).unwrap();
    let x = Array2::from_shape_simple_fn((70, 3), || 30.0 + rng.sample::<f32, _>(StandardNormal));
    Problem::new(x, &mixture).small_k(1, 32);
}

#[test]
fn small_k_takes_every_size_and_grid() {
    for (i, n) in [1, 3, 4, 5, 127, 128, 129, 511, 512, 1000].into_iter().enumerate() {
        let problem = Problem::random(i as u64, n, 13, 8);
        for (grid, block) in [(1, 32), (3, 64), (9, 32)] {
            problem.small_k(grid, block);
        }
    }
    Problem::random(77, 2003, 2, 3).small_k(2, 128);
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
        // N, D, K, grid, block, component_warps
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
    for (i, (n, d, k, grid, block, component_warps)) in cases.into_iter().enumerate() {
        let problem = Problem::random(i as u64, n, d, k);
        problem.tiled(8, grid, block, component_warps);
        problem.tiled(16, grid, block, component_warps);
    }
}

#[test]
fn pair_takes_every_shape() {
    let cases = [
        // N, D, K, grid, block
        (1, 1, 1, 1, 32),
        (3, 13, 8, 1, 256),
        (5, 13, 8, 4, 64),
        (131, 13, 40, 2, 512),
        (131, 16, 4, 2, 128),
        (100, 65, 3, 3, 64),
        (301, 20, 9, 3, 128),
        (100, 4, 7, 2, 96),
    ];
    for (i, (n, d, k, grid, block)) in cases.into_iter().enumerate() {
        Problem::random(i as u64, n, d, k).pair(grid, block);
    }
}

/// Samples 1000 and 10⁴ standard deviations away beside near ones in one quad, and whole quads of
/// them: each has its finite log-likelihood (about −5·10⁵ and −5·10⁷ a feature), and the near ones
/// keep theirs.
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
        problem.small_k(2, 32);
        problem.tiled(8, 1, 32, 1);
        problem.tiled(16, 1, 64, 2);
        problem.pair(2, 128);
        problem.batch(&x, &[mixture.clone(), mixture.clone()], 1, 32, 1);
        // In the others the centre of the data is far away from the mixture.
        if n == 64 {
            problem.batch_tensor_cores(&x, &[mixture.clone(), mixture], 1, 32, 1);
        }
    }
}

/// The rounds of a warp behind one with far samples are computed with the maximum taken out, until
/// none is far; near samples among them keep their values.
#[test]
fn far_and_near_rounds_follow_each_other() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mixture = random_mixture(&mut rng, 5, 13);
    // Rounds of 128 samples: near, one far, all far, near, near.
    let mut x = Array2::from_shape_simple_fn((5 * 128 - 3, 13), || rng.sample(StandardNormal));
    x.row_mut(130).fill(20.0);
    x.slice_mut(s![256..384, ..]).fill(-20.0);
    Problem::new(x, &mixture).small_k(1, 32);
}

/// Missing values, more and more of them, for every D; a row of which nothing is observed, and one
/// that is far from every component.
#[test]
fn small_k_takes_missing_values() {
    for d in 1..=16 {
        let mut rng = ChaCha8Rng::seed_from_u64(70 + d as u64);
        let (n, k) = ([1, 130, 301, 67][d % 4], 1 + d % 8);
        let mixture = random_mixture(&mut rng, k, d);
        let x = Array2::from_shape_simple_fn((n, d), || rng.sample::<f32, _>(StandardNormal));
        let mut x = with_holes(&mut rng, x, [0.05, 0.3, 0.6][d % 3]);
        x.row_mut(n / 2).fill(f32::NAN);
        if n > 1 {
            x[[0, 0]] = 40.0;
        }
        let problem = Problem::new(x, &mixture);
        problem.small_k(1, 32);
        problem.small_k(2, 64);
    }
}

#[test]
fn tiled_takes_missing_values() {
    let cases = [
        // N, D, K, share, grid, block, warps along the components
        (1, 1, 1, 0.6, 1, 32, 1),
        (3, 13, 8, 0.3, 1, 64, 2),
        (300, 13, 20, 0.05, 2, 64, 1),
        (515, 16, 40, 0.3, 1, 128, 4),
        (511, 17, 3, 0.6, 2, 32, 1),
        (100, 41, 9, 0.3, 1, 64, 2),
    ];
    for (i, (n, d, k, share, grid, block, component_warps)) in cases.into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(90 + i as u64);
        let mixture = random_mixture(&mut rng, k, d);
        let x = Array2::from_shape_simple_fn((n, d), || rng.sample::<f32, _>(StandardNormal));
        let mut x = with_holes(&mut rng, x, share);
        x.row_mut(n / 2).fill(f32::NAN);
        x[[0, d - 1]] = if n > 1 { 40.0 } else { f32::NAN };
        Problem::new(x, &mixture).tiled(8, grid, block, component_warps);
    }
}

/// A component of weight zero contributes nothing, also where it is the nearest or the only one of
/// a tile.
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
    problem.pair(2, 256);
    problem.batch(&x, &[mixture], 1, 32, 1);

    let weights = ndarray::arr1(&[0.0, 0.4, 0.0, 0.6]);
    let means = ndarray::arr2(&[[30.0, 30.0, 30.0], [0.0, 0.0, 0.0], [30.0, 29.0, 30.0], [1.0, 1.0, 1.0]]);
    let mixture = Mixture::new(weights, means, Covariances::Diag(Array2::ones((4, 3)))).unwrap();
    Problem::new(x, &mixture).small_k(1, 32);
}
