//! `fused64`: the E-step in float64.
use super::{FAR, Memory, PADDING, flat, launch, random_mixture};
use crate::backends::cuda::device::layout;
use crate::backends::cuda::estep::fused64_layout::Fused64Layout;
use crate::backends::device_parameters::{Deviations, DeviceParameters};
use crate::data::frame::Frame;
use crate::{CovarianceType, Covariances, Evaluator, Mixture, ReferenceEvaluator, Samples, Statistics};
use cust::memory::bytemuck;
use gmm_kernels::estep::fused64::*;
use ndarray::{Array1, Array2};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// Error of a sum, relative to the sum of magnitudes. The exponents of a far sample are some
/// thousands, each the sum of up to 16 squares, off by a few units of 2⁻⁵³: 10⁻¹² of its
/// responsibilities at most.
const UNIT: f64 = 1e-12;
/// The weights are divided by it for the kernel.
const WEIGHT_SCALE: f64 = 4.0;

fn kernel(instance: (usize, usize)) -> unsafe fn(Fused64Args) {
    match instance {
        (8, 4) => fused64_k08_d04,
        (8, 8) => fused64_k08_d08,
        (8, 12) => fused64_k08_d12,
        (8, 16) => fused64_k08_d16,
        (32, 4) => fused64_k32_d04,
        (32, 8) => fused64_k32_d08,
        (32, 12) => fused64_k32_d12,
        (32, 16) => fused64_k32_d16,
        _ => panic!("no such instance: {instance:?}"),
    }
}

fn statistics(samples: &Samples<'_>, x: &Array2<f64>, mixture: &Mixture, (grid, block): (u32, u32)) -> Statistics {
    let (n, d) = x.dim();
    let frame = Frame::of(x.view());
    let stride = layout::stride(n);
    let weighted = samples.weights().is_some();
    let width = d + usize::from(weighted);
    let mut data = vec![0u128; width * stride / 2];
    let columns: &mut [f64] = bytemuck::cast_slice_mut(&mut data);
    layout::columns(samples, &frame, WEIGHT_SCALE, columns);
    columns.chunks_exact_mut(stride).for_each(|column| column[n..].fill(PADDING.into()));
    let parameters = DeviceParameters::<f64>::new(mixture, &frame, Deviations::InFrame).unwrap();
    let layout = Fused64Layout::new(mixture.covariance_type(), parameters);
    let mut parameters = vec![f64::NAN; layout.len()];
    layout.write(&mut parameters);
    let (capacity, features) = layout.instance();
    let values = values(features, capacity);
    let mut partials = vec![f64::NAN; values * grid as usize];
    let mut memory = Memory::new();
    let x = memory.read("x", &*columns);
    let args = Fused64Args {
        x,
        stride: stride as u64,
        n: n as u64,
        d: d as u32,
        sample_weights: if weighted { x.wrapping_add(d * stride) } else { std::ptr::null() },
        parameters: memory.read("parameters", &parameters),
        partials: memory.write("partials", &mut partials),
    };
    let shared = shared_bytes(features, capacity, block);
    // SAFETY: the arguments of this kernel, with the arrays of `memory`.
    unsafe { launch((grid, 1), block, shared, &memory, kernel(layout.instance()), args) };
    let factor = if weighted { WEIGHT_SCALE } else { 1.0 };
    let sums: Vec<f64> = partials.chunks_exact(grid as usize).map(|b| factor * b.iter().sum::<f64>()).collect();
    Statistics::from_centred_sums(layout.centred_sums(&sums, samples.total_weight(), &frame)).unwrap()
}

/// Compares with the reference. The sums of magnitudes: see `estep::assert_statistics`.
fn check(x: &Array2<f64>, weights: Option<&Array1<f64>>, mixture: &Mixture, shape: (u32, u32)) {
    let (n, d) = x.dim();
    let samples = Samples::from_f64(x.view()).unwrap();
    let samples = weights.iter().fold(samples, |samples, w| samples.with_weights(w.view()).unwrap());
    let got = statistics(&samples, x, mixture, shape);
    let weight = samples.total_weight();
    let truth = ReferenceEvaluator::new(samples).statistics(mixture).unwrap();
    let what = format!("{} N={n} K={} D={d}", mixture.covariance_type(), mixture.n_components());
    let near = |got: f64, truth: f64, bound: f64, name: &str| {
        assert!((got - truth).abs() <= bound, "{what}: {name} {got} for {truth} (bound {bound:e})");
    };
    let total = truth.log_likelihood();
    near(got.log_likelihood(), total, UNIT * total.abs().max(1.0), "log-likelihood");
    let size = x.iter().fold(0.0f64, |max, v| max.max(v.abs()));
    for (c, (a, b)) in got.counts().iter().zip(truth.counts()).enumerate() {
        near(*a, *b, UNIT * weight, "count");
        for (a, b) in got.means().row(c).iter().zip(truth.means().row(c)) {
            if truth.counts()[c] > 0.01 {
                near(*a, *b, UNIT * size * weight / truth.counts()[c], "mean");
            }
        }
    }
    let features = if mixture.covariance_type() == CovarianceType::Spherical { d as f64 } else { 1.0 };
    for (a, b) in flat(got.scatter()).into_iter().zip(flat(truth.scatter())) {
        near(a, b, UNIT * weight * size * size * features, "scatter");
    }
}

#[test]
fn every_instance_agrees() {
    let cases = [
        // N, K, D, grid, block
        (1, 1, 1, 1, 32),
        (63, 3, 4, 2, 64),
        (300, 8, 13, 3, 64),
        (130, 8, 8, 1, 96),
        (257, 5, 10, 2, 32),
        (65, 9, 3, 1, 64),
        (200, 20, 6, 2, 64),
        (129, 32, 12, 1, 64),
        (200, 32, 16, 2, 32),
    ];
    for (n, k, d, grid, block) in cases {
        let mut rng = ChaCha8Rng::seed_from_u64((100 * n + 10 * k + d) as u64);
        let mut x = Array2::from_shape_simple_fn((n, d), || rng.sample::<f64, _>(StandardNormal));
        x.row_mut(n / 2).fill(FAR);
        let mixture = random_mixture(&mut rng, k, d);
        check(&x, None, &mixture, (grid, block));
        let weights = Array1::from_shape_simple_fn(n, || rng.random_range(0.0..WEIGHT_SCALE));
        check(&x, Some(&weights), &mixture, (grid, block));
        let spherical = Covariances::Spherical(Array1::from_elem(k, 0.7));
        let spherical = Mixture::new(mixture.weights().to_owned(), mixture.means().to_owned(), spherical).unwrap();
        check(&x, None, &spherical, (grid, block));
    }
}

/// Samples 100 deviations away, where every 2^q is zero in float64; a component of weight zero
/// right on them; a component whose moments would cancel if they were taken around the data's
/// centre.
#[test]
fn extremes_agree() {
    let mut rng = ChaCha8Rng::seed_from_u64(64);
    let mut x = Array2::from_shape_simple_fn((200, 5), || rng.sample::<f64, _>(StandardNormal));
    for i in [0, 7, 8, 9, 199] {
        x.row_mut(i).fill(if i % 2 == 0 { 100.0 } else { -100.0 });
    }
    let near = random_mixture(&mut rng, 6, 5);
    let mut means = near.means().to_owned();
    means.row_mut(1).fill(100.0);
    means.row_mut(2).fill(-60.0);
    let weights = ndarray::arr1(&[0.3, 0.0, 0.2, 0.1, 0.3, 0.1]);
    check(&x, None, &Mixture::new(weights, means, near.covariances().clone()).unwrap(), (1, 64));
}

#[test]
fn the_same_bits_every_time() {
    let mut rng = ChaCha8Rng::seed_from_u64(65);
    let x = Array2::from_shape_simple_fn((500, 7), || rng.sample::<f64, _>(StandardNormal));
    let (samples, mixture) = (Samples::from_f64(x.view()).unwrap(), random_mixture(&mut rng, 4, 7));
    assert_eq!(statistics(&samples, &x, &mixture, (3, 64)), statistics(&samples, &x, &mixture, (3, 64)));
}
