//! Inner products and the Gaussian kernel on a real device.
#[path = "../common/mod.rs"]
mod common;
#[path = "../gpu_harness/mod.rs"]
mod gpu_harness;

use common as checks;
use gmm_pairwise::{Device, InnerProducts};
use ndarray::{Array2, s};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::process::ExitCode;

const GPU: Device = Device::Cuda(0);

fn main() -> ExitCode {
    let tests: Vec<gpu_harness::Test> = vec![
        ("pairs", || checks::pairs(GPU, false)),
        ("growing_centres", || checks::growing_centres(GPU, false)),
        ("products", || checks::products(GPU, false)),
        ("memory_orders", || checks::memory_orders(GPU)),
        ("extreme_distances", || checks::extreme_distances(GPU, false)),
        ("bad_input", || checks::bad_input(GPU)),
        ("float64_is_refused", float64_is_refused),
        ("truncation_does_not_add_up", truncation_does_not_add_up),
        ("tiles_of_all_sizes_give_the_same_bits", tiles_of_all_sizes_give_the_same_bits),
        ("divided_tiles_give_the_same_bits_every_time", divided_tiles_give_the_same_bits_every_time),
        ("millions_of_vectors", millions_of_vectors),
    ];
    gpu_harness::run([gpu_harness::suite("pairwise", tests)])
}

fn float64_is_refused() {
    let x = Array2::<f64>::ones((2, 3));
    let text = InnerProducts::load(GPU, x.view()).unwrap_err().to_string();
    assert!(text.contains("float64") && text.contains("float32"), "{text}");
}

fn error_in_norm(got: &Array2<f32>, truth: &Array2<f64>) -> f64 {
    let error: f64 = got.iter().zip(truth).map(|(&got, truth)| (f64::from(got) - truth).powi(2)).sum();
    (error / truth.iter().map(|v| v * v).sum::<f64>()).sqrt()
}

/// The tensor cores truncate: the bias of sums over 40,000 positive numbers would be largest. The promised 10⁻⁶.
fn truncation_does_not_add_up() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut positive =
        |n| Array2::from_shape_simple_fn((n, 40_000), || rng.sample::<f32, _>(StandardNormal).abs() + 0.1);
    let (vectors, matrix) = (positive(70), positive(130));
    let got = InnerProducts::load(GPU, matrix.view()).unwrap().products(vectors.view()).unwrap();
    let truth = vectors.mapv(f64::from).dot(&matrix.mapv(f64::from).t());
    let relative = got.iter().zip(&truth).map(|(&got, truth)| (f64::from(got) - truth) / truth);
    let (error, bias) = (error_in_norm(&got, &truth), relative.sum::<f64>() / truth.len() as f64);
    println!("products of 40,000 positive numbers: error {error:e} in norm, {bias:e} in the mean");
    assert!(error < 1e-6, "{error:e}");
}

/// Hundreds and thousands of vectors take tiles of different sizes, which are not divided for such short rows.
fn tiles_of_all_sizes_give_the_same_bits() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut normal = |n| Array2::from_shape_simple_fn((n, 70), || rng.sample::<f32, _>(StandardNormal));
    let (vectors, matrix) = (normal(50_001), normal(260));
    let mut resident = InnerProducts::load(GPU, matrix.view()).unwrap();
    let all = resident.products(vectors.view()).unwrap();
    for some in [0..300, 1000..1400, 20_000..23_000, 40_000..50_001] {
        let got = resident.products(vectors.slice(s![some.clone(), ..])).unwrap();
        assert_eq!(got, all.slice(s![some.clone(), ..]), "vectors {some:?}");
    }
}

/// With few tiles of long rows, the blocks of a tile leave sums, and whichever block is last adds them.
fn divided_tiles_give_the_same_bits_every_time() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for (n, d, m) in [(64, 1000, 1000), (250, 1000, 1000), (33, 9999, 65), (700, 1000, 1000)] {
        let mut normal = |n| Array2::from_shape_simple_fn((n, d), || rng.sample::<f32, _>(StandardNormal));
        let (vectors, matrix) = (normal(n), normal(m));
        let mut resident = InnerProducts::load(GPU, matrix.view()).unwrap();
        let first = resident.products(vectors.view()).unwrap();
        for time in 1..50 {
            let again = resident.products(vectors.view()).unwrap();
            assert_eq!(again, first, "N={n} D={d} M={m}, time {time}");
        }
        let truth = vectors.mapv(f64::from).dot(&matrix.mapv(f64::from).t());
        let error = error_in_norm(&first, &truth);
        assert!(error < 1e-6, "N={n} D={d} M={m}: {error:e}");
    }
}

/// More tiles than the second dimension of a grid allows.
fn millions_of_vectors() {
    let vectors = Array2::from_shape_fn((2_200_000, 2), |(i, j)| if j == 0 { (i % 1000) as f32 } else { 1.0 });
    let matrix = Array2::from(vec![[1.0f32, 0.5], [0.0, 3.0], [2.0, -1.0]]);
    let got = InnerProducts::load(GPU, matrix.view()).unwrap().products(vectors.view()).unwrap();
    // Integers and halves below 2¹¹, which the kernels represent and add without rounding.
    for (i, row) in got.outer_iter().enumerate() {
        let x = (i % 1000) as f32;
        assert_eq!(row.to_vec(), [x + 0.5, 3.0, 2.0 * x - 1.0], "vector {i}");
    }
}
