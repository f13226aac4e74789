//! Inner products in every way, and the Gaussian kernel, on an emulated device, within the promised tolerances.
use super::{Centres, Pairs, Products, start};
use gmm_driver::Driver;
use gmm_kernels::simt::emulator::driver;
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::sync::Once;

/// Replaces the machine's driver by the emulated one, for this process.
fn emulate() {
    static ONCE: Once = Once::new();
    // SAFETY: the emulator's functions have the driver's signatures, and check their memory.
    ONCE.call_once(|| gmm_host::cuda::use_driver(unsafe { Driver::from_functions(driver::symbol) }).unwrap());
}

#[test]
fn a_device_gets_ready() {
    emulate();
    start().unwrap();
    assert_eq!(gmm_host::cuda_devices().unwrap()[0].name, "emulated");
}

fn shifted(seed: u64, n: usize, d: usize, shift: f32) -> Array2<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Array2::from_shape_simple_fn((n, d), || rng.sample(StandardNormal)) + shift
}

/// Returns the products in every way, each computed twice.
fn in_every_way(vectors: &Array2<f32>, matrix: &Array2<f32>) -> Vec<(String, Array2<f32>)> {
    emulate();
    let mut products = Products::open(0, matrix.view()).unwrap();
    let n = vectors.nrows();
    let ways: Vec<_> = products.ways(n).map(|(way, _)| way).collect();
    let mut all = Vec::new();
    for way in ways {
        let [first, second] = [(); 2].map(|()| {
            let mut out = Array2::from_elem((n, matrix.nrows()), f32::NAN);
            products.products_by(vectors.view(), out.as_slice_mut().unwrap(), |_, _| Ok(way)).unwrap();
            out
        });
        assert_eq!(first, second, "{way:?}: the same bits every time");
        all.push((format!("{way:?}"), first));
    }
    assert!(all.len() >= 4, "tiles of three sizes, and few vectors");
    all
}

#[test]
fn products_have_the_accuracy_of_float32() {
    // Even and odd M; partial tiles, and two along each side; one to four chunks.
    for (n, d, m, shift) in
        [(3, 1, 1, 0.0), (257, 20, 3, 0.0), (5, 33, 130, 1.0), (70, 100, 65, 10.0), (3, 700, 2, 0.0)]
    {
        let (vectors, matrix) = (shifted(1, n, d, shift), shifted(2, m, d, -shift));
        for (way, got) in in_every_way(&vectors, &matrix) {
            let (v, w) = (vectors.mapv(f64::from), matrix.mapv(f64::from));
            let size = v.mapv(f64::abs).dot(&w.t().mapv(f64::abs));
            let error: f64 = got.iter().zip(&v.dot(&w.t())).map(|(&got, truth)| (f64::from(got) - truth).powi(2)).sum();
            let ratio = (error / size.iter().map(|v| v * v).sum::<f64>()).sqrt();
            // The emulator does not truncate: the error comes from the parts l·l and the roundings of l and the sums.
            assert!(ratio < 3e-7, "{way} N={n} D={d} M={m}: {ratio:e}");
        }
    }
}

/// Rows of zeros, of the largest, the smallest and subnormal numbers, and of a wide range.
#[test]
fn products_of_extreme_rows() {
    let rows =
        [[0.0; 3], [3.0e38, -1e38, 1e30], [1e-38, 2e-38, 0.0], [1e-44, 0.0, 3e-43], [1.0, 1e-9, 1e9], [3e38, 0.0, 0.0]];
    let x = Array2::from(rows.to_vec());
    let ones = Array2::from(vec![[1.0f32, 1.0, 1.0], [1e-3, 0.0, 0.0], [0.0, 0.0, 1e20]]);
    let truth = x.mapv(f64::from).dot(&ones.mapv(f64::from).t());
    let all = in_every_way(&x, &ones);
    for ((i, j), &truth) in truth.indexed_iter() {
        // 2⁻²² of the row's largest number for each of three numbers; a product below the normal numbers loses digits.
        let largest =
            x.row(i).iter().fold(0.0f32, |m, v| m.max(v.abs())) * ones.row(j).iter().fold(0.0, |m: f32, v| m.max(*v));
        let allowed = f64::from(largest) * 3.0 * 2f64.powi(-22) + f64::from(f32::MIN_POSITIVE) * 2f64.powi(-20);
        for (way, got) in &all {
            let got = got[[i, j]];
            let what = format!("{way}, row {i} with {j}: {got:e} for {truth:e}");
            if truth.abs() > f64::from(f32::MAX) {
                assert!(got.is_infinite(), "{what}");
            } else {
                assert!((f64::from(got) - truth).abs() <= allowed, "{what}");
            }
        }
    }
}

fn assert_value(what: &str, got: f32, gamma: f64, a: ndarray::ArrayView1<f32>, b: ndarray::ArrayView1<f32>) {
    let square: f64 = a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum();
    let truth = (-gamma * square).exp();
    let allowed =
        truth * (gamma * square + 1.0) * (a.len() as f64 + 8.0) * 2f64.powi(-24) + f64::from(f32::MIN_POSITIVE);
    assert!((f64::from(got) - truth).abs() <= allowed, "{what}: {got:e} for {truth:e}");
}

#[test]
fn the_gaussian_kernel_of_pairs() {
    emulate();
    for (n, d, shift) in [(1, 1, 0.0), (7, 3, 1e3), (300, 20, 0.0), (130, 6, 1e3)] {
        let (a, b) = (shifted(3, n, d, shift), shifted(4, n, d, shift));
        let gamma = 0.5 / d as f64;
        let mut values = vec![f32::NAN; n];
        Pairs::open(0, [a.view(), b.view()]).unwrap().gaussian(gamma, &mut values).unwrap();
        for (i, &value) in values.iter().enumerate() {
            assert_value(&format!("N={n} D={d} pair {i}"), value, gamma, a.row(i), b.row(i));
        }
    }
}

#[test]
fn the_gaussian_kernel_with_centres() {
    emulate();
    for (n, d, m, shift) in [(1, 1, 1, 0.0), (130, 3, 66, 1e3), (9, 20, 8, 0.0)] {
        let (a, c) = (shifted(5, n, d, shift), shifted(6, m, d, shift));
        let gamma = 0.5 / d as f64;
        let mut values = vec![f32::NAN; n * m];
        Centres::open(0, d).unwrap().gaussian(gamma, a.view(), c.view(), &mut values).unwrap();
        for (i, j) in (0..n).flat_map(|i| (0..m).map(move |j| (i, j))) {
            assert_value(
                &format!("N={n} D={d} M={m} row {i}, centre {j}"),
                values[i * m + j],
                gamma,
                a.row(i),
                c.row(j),
            );
        }
    }
}
