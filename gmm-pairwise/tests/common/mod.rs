//! Inner products and the Gaussian kernel on one device, against plain loops in float64.
#![allow(dead_code, missing_docs)]
use gmm_pairwise::{Centres, Device, Error, GaussianKernel, InnerProducts, Number, Result, RowPairs};
use ndarray::{Array2, ArrayView2, Axis, ShapeBuilder, array, s};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

fn normal(seed: u64, n: usize, d: usize, shift: f64) -> Array2<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Array2::from_shape_simple_fn((n, d), || shift + rng.sample::<f64, _>(StandardNormal))
}

/// Returns the numbers rounded to float32, in float64 and float32.
fn both(x: &Array2<f64>) -> (Array2<f64>, Array2<f32>) {
    let narrow = x.mapv(|v| v as f32);
    (narrow.mapv(f64::from), narrow)
}

/// Returns exp(−γ‖a − b‖²), and ‖a − b‖².
fn truth(gamma: f64, a: ArrayView2<f64>, b: ArrayView2<f64>, i: usize, j: usize) -> (f64, f64) {
    let square: f64 = a.row(i).iter().zip(b.row(j)).map(|(a, b)| (a - b).powi(2)).sum();
    ((-gamma * square).exp(), square)
}

/// The bound that `GaussianKernel` promises.
fn assert_value<T: Number>(what: &str, got: T, gamma: f64, (truth, square): (f64, f64), d: usize) {
    let float32 = (2f64.powi(-24), f32::MIN_POSITIVE.into());
    let (unit, least) = if size_of::<T>() == 4 { float32 } else { (2f64.powi(-53), f64::MIN_POSITIVE) };
    let allowed = truth * (gamma * square + 1.0) * (d as f64 + 8.0) * unit + least;
    let got: f64 = got.into();
    assert!((got - truth).abs() <= allowed, "{what}: {got:e} for {truth:e}, {allowed:e} allowed");
}

/// Partial tiles, one element, one row, one column; near the origin and far from it.
pub fn pairs(device: Device, float64: bool) {
    let shapes =
        [(1, 1), (7, 1), (1, 20), (1000, 20), (333, 16), (129, 17), (70, 31), (65, 100), (3, 1003), (20_011, 20)];
    for ((n, d), shift) in shapes.into_iter().flat_map(|shape| [(shape, 0.0), (shape, 1e3)]) {
        let (a64, a32) = both(&normal(1, n, d, shift));
        let (b64, b32) = both(&(&a64 + normal(2, n, d, 0.0)));
        let gamma = 0.7 / d as f64;
        let kernel = GaussianKernel::new(gamma).unwrap();
        let narrow = RowPairs::load(device, a32.view(), b32.view()).unwrap().gaussian(&kernel).unwrap();
        let wide = float64.then(|| RowPairs::load(device, a64.view(), b64.view()).unwrap().gaussian(&kernel).unwrap());
        assert_eq!(narrow.len(), n);
        for i in 0..n {
            let truth = truth(gamma, a64.view(), b64.view(), i, i);
            let what = format!("{device} N={n} D={d} row {i}");
            assert_value(&what, narrow[i], gamma, truth, d);
            if let Some(wide) = &wide {
                assert_value(&what, wide[i], gamma, truth, d);
            }
        }
    }
}

/// One centre, then up to four, then all.
pub fn growing_centres(device: Device, float64: bool) {
    fn check<T: Number>(device: Device, [x, c]: [&Array2<T>; 2], [x64, c64]: [&Array2<f64>; 2]) {
        let ((n, d), m) = (x.dim(), c.nrows());
        let gamma = 0.4 / d as f64;
        let kernel = GaussianKernel::new(gamma).unwrap();
        let mut centres = Centres::load(device, c.slice(s![..1, ..])).unwrap();
        for last in [1, m.min(4), m] {
            if last > centres.view().nrows() {
                centres.push(c.slice(s![centres.view().nrows()..last, ..])).unwrap();
            }
            let values = centres.gaussian(&kernel, x.view()).unwrap();
            assert_eq!(values.dim(), (n, last));
            for ((i, j), &value) in values.indexed_iter() {
                let what = format!("{device} N={n} D={d} M={m} row {i}, centre {j}");
                assert_value(&what, value, gamma, truth(gamma, x64.view(), c64.view(), i, j), d);
            }
        }
    }
    for (n, d, m) in
        [(1, 1, 1), (5, 1, 33), (3, 20, 31), (64, 7, 32), (101, 20, 70), (1, 13, 5), (517, 33, 129), (5, 2, 8200)]
    {
        for shift in [0.0, 1e3] {
            let (x64, x32) = both(&normal(3, n, d, shift));
            let (c64, c32) = both(&normal(4, m, d, shift));
            check(device, [&x32, &c32], [&x64, &c64]);
            if float64 {
                check(device, [&x64, &c64], [&x64, &c64]);
            }
        }
    }
}

fn assert_products<T: Number>(what: &str, got: &Array2<T>, vectors: &Array2<f64>, matrix: &Array2<f64>, bound: f64) {
    let truth = vectors.dot(&matrix.t());
    let size = vectors.mapv(f64::abs).dot(&matrix.t().mapv(f64::abs));
    assert_eq!(got.dim(), truth.dim());
    let error: f64 = got.iter().zip(&truth).map(|(&got, truth)| (got.into() - truth).powi(2)).sum();
    let ratio = (error / size.iter().map(|v| v * v).sum::<f64>()).sqrt();
    assert!(ratio <= bound, "{what}: {ratio:e}");
}

/// The promised 10⁻⁶ in float32; 10⁻¹⁵, a few units in the last place, in float64.
pub fn products(device: Device, float64: bool) {
    for (n, d, m) in [(1, 1, 1), (1, 1000, 1000), (3, 700, 500), (70, 33, 129), (257, 40, 65), (2, 5000, 3)] {
        let (v64, v32) = both(&normal(5, n, d, 0.0));
        let (m64, m32) = both(&normal(6, m, d, 1.0));
        let what = format!("{device} N={n} D={d} M={m}");
        if float64 {
            let got = InnerProducts::load(device, m64.view()).unwrap().products(v64.view()).unwrap();
            assert_products(&what, &got, &v64, &m64, 1e-15);
        }
        let mut resident = InnerProducts::load(device, m32.view()).unwrap();
        assert_eq!((resident.n_rows(), resident.n_columns()), (m, d));
        assert_products(&what, &resident.products(v32.view()).unwrap(), &v64, &m64, 1e-6);
        // One vector at a time, and another memory order.
        let first = resident.products(v32.slice(s![..1, ..])).unwrap();
        assert_products(&what, &first, &v64.slice(s![..1, ..]).to_owned(), &m64, 1e-6);
        let fortran = Array2::from_shape_fn((n, d).f(), |ij| v32[ij]);
        assert_products(&what, &resident.products(fortran.view()).unwrap(), &v64, &m64, 1e-6);
    }
}

/// Other memory orders take the same operations in the same order.
pub fn memory_orders(device: Device) {
    let (a, b) = (normal(7, 600, 12, 0.0).mapv(|v| v as f32), normal(8, 600, 12, 0.0).mapv(|v| v as f32));
    let kernel = GaussianKernel::new(0.1).unwrap();
    let fortran = Array2::from_shape_fn((600, 12).f(), |ij| a[ij]);
    let mut backwards = b.clone();
    backwards.invert_axis(Axis(0));
    let backwards = backwards.as_standard_layout().into_owned();
    let same_as_b = backwards.slice(s![..;-1, ..]);
    let pairs = |a, b| RowPairs::load(device, a, b).unwrap().gaussian(&kernel).unwrap();
    assert_eq!(pairs(fortran.view(), same_as_b), pairs(a.view(), b.view()));
    let matrix = |c, x| Centres::load(device, c).unwrap().gaussian(&kernel, x).unwrap();
    assert_eq!(matrix(same_as_b, fortran.view()), matrix(b.view(), a.view()));
}

/// Distances whose squares overflow, and equal rows, for the least and the largest γ.
pub fn extreme_distances(device: Device, float64: bool) {
    fn check<T: Number>(device: Device, number: fn(f64) -> T, far: f64, gammas: [f64; 2]) {
        let a = array![[far, -far], [1.0, 2.0], [far, 0.0]].mapv(number);
        let b = array![[-far, far], [1.0, 2.0], [far, 0.0]].mapv(number);
        for kernel in gammas.map(|gamma| GaussianKernel::new(gamma).unwrap()) {
            let got = RowPairs::load(device, a.view(), b.view()).unwrap().gaussian(&kernel).unwrap();
            assert_eq!(got.to_vec().into_iter().map(T::into).collect::<Vec<f64>>(), [0.0, 1.0, 1.0], "{device}");
            let got = Centres::load(device, b.view()).unwrap().gaussian(&kernel, a.view()).unwrap();
            assert_eq!([0, 1, 2].map(|i| got[[i, i]].into()), [0.0, 1.0, 1.0], "{device}");
        }
    }
    check(device, |v| v as f32, 3e38, [1e-30, 1e30]);
    if float64 {
        check(device, |v| v, 1.7e308, [1e-280, 1e280]);
    }
}

/// NaN and infinite numbers, wrong shapes, empty arrays, and γ beyond float32's range.
pub fn bad_input(device: Device) {
    let good = normal(9, 300, 5, 0.0).mapv(|v| v as f32);
    let kernel = GaussianKernel::new(1.0).unwrap();
    let refused = |result: Result<()>| result.unwrap_err().to_string();
    let large = GaussianKernel::new(1e31).unwrap();
    let text = refused(RowPairs::load(device, good.view(), good.view()).unwrap().gaussian(&large).map(drop));
    assert!(text.contains("gamma is 1e31") && text.contains("1e30"), "{text}");
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut x = good.clone();
        x[[271, 3]] = bad;
        let place = "at row 271, column 3";
        // If both are infinite, the difference is NaN.
        for (a, b, what) in [(&x, &good, "the first"), (&good, &x, "the second"), (&x, &x, "the first")] {
            let pairs = RowPairs::load(device, a.view(), b.view());
            let text = refused(pairs.and_then(|mut pairs| pairs.gaussian(&kernel).map(drop)));
            assert!(text.contains(what) && text.contains(place), "{device}: {text}");
        }
        let mut centres = Centres::load(device, good.view()).unwrap();
        let errors = [
            ("the rows", refused(centres.gaussian(&kernel, x.view()).map(drop))),
            ("the centres", refused(centres.push(x.view()))),
            ("the centres", refused(Centres::load(device, x.view()).map(drop))),
            ("the matrix", refused(InnerProducts::load(device, x.view()).map(drop))),
            ("the vectors", refused(InnerProducts::load(device, good.view()).unwrap().products(x.view()).map(drop))),
        ];
        for (what, text) in errors {
            assert!(text.contains(what) && text.contains(place), "{device}: {text}");
        }
        assert_eq!(centres.view(), good.view());
    }
    let narrow = good.slice(s![.., ..4]);
    let mut centres = Centres::load(device, good.view()).unwrap();
    let mut products = InnerProducts::load(device, good.view()).unwrap();
    let errors = [
        refused(RowPairs::load(device, good.view(), narrow).map(drop)),
        refused(RowPairs::load(device, good.view(), good.slice(s![..4, ..])).map(drop)),
        refused(centres.push(narrow)),
        refused(centres.gaussian(&kernel, narrow).map(drop)),
        refused(products.products(narrow).map(drop)),
        refused(products.products_into(good.view(), &mut [0.0; 7])),
    ];
    assert!(errors.iter().all(|text| text.contains("the shape of")), "{errors:?}");
    let empty = good.slice(s![..0, ..]);
    let errors = [
        refused(RowPairs::load(device, empty, empty).map(drop)),
        refused(Centres::load(device, empty).map(drop)),
        refused(centres.gaussian(&kernel, empty).map(drop)),
        refused(InnerProducts::load(device, empty).map(drop)),
        refused(products.products(empty).map(drop)),
    ];
    assert!(errors.iter().all(|text| text.contains("at least one of each")), "{errors:?}");
}

/// γ outside the range of every element type.
#[allow(dead_code)]
pub fn bad_gamma() {
    for gamma in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = GaussianKernel::new(gamma).unwrap_err();
        assert!(matches!(error, Error::BadParameter { name: "gamma", .. }), "{error}");
    }
}
