//! Log-likelihoods of every backend, against each other and known properties.
use crate::common::estep::FLOAT32;
use crate::common::precision::Load;
use crate::common::*;
use gmm_host::{
    CovarianceType, Covariances, CpuEvaluator, Error, Evaluator, Mixture, Order, ReferenceEvaluator, Samples,
};
use ndarray::{Array1, Array2, ArrayView2, Axis, array, s};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

/// Every backend; new ones are added here.
const BACKENDS: [(&str, Load); 5] = [
    ("reference", |samples| Box::new(ReferenceEvaluator::new(samples))),
    ("cpu", |samples| Box::new(CpuEvaluator::new(samples).unwrap())),
    ("cpu, 1 thread", |samples| Box::new(CpuEvaluator::with_threads(samples, 1).unwrap())),
    ("cpu, portable", |samples| Box::new(CpuEvaluator::with_kernel(samples, "portable").unwrap())),
    ("cpu, 3 threads", |samples| Box::new(CpuEvaluator::with_threads(samples, 3).unwrap())),
];

const TYPES: [CovarianceType; 4] = CovarianceType::ALL;

struct Data {
    f64: Array2<f64>,
    f32: Array2<f32>,
}

impl Data {
    /// Rounds to float32, so that every backend sees the same numbers.
    fn new(x: &Array2<f64>) -> Self {
        let f32 = x.mapv(|v| v as f32);
        Self { f64: f32.mapv(f64::from), f32 }
    }

    fn reference(&self) -> ReferenceEvaluator {
        ReferenceEvaluator::new(Samples::from_f64(self.f64.view()).unwrap())
    }

    /// Returns the samples in float32 and in float64 (`true`).
    fn samples(&self) -> [(Samples<'_>, bool); 2] {
        [(Samples::from_f32(self.f32.view()).unwrap(), false), (Samples::from_f64(self.f64.view()).unwrap(), true)]
    }

    /// Calls `check` with every backend over the float32 data and the float64 data (`true`).
    fn with_backends(&self, mut check: impl FnMut(&str, &mut dyn Evaluator, bool)) {
        for (name, load) in BACKENDS {
            for (samples, float64) in self.samples() {
                check(&format!("{name}, float64 {float64}"), load(samples).as_mut(), float64);
            }
        }
    }
}

/// Returns the allowed error of a total, from the samples' scores.
///
/// float64: 10⁻¹² of the sum of the absolute scores. float32: 10⁻⁷ for the rounding of parameters, which all samples
/// share; 10⁻⁶ of a score for the rounding of each sample's terms, which is independent and grows with √N; 10⁻⁶
/// absolute for a score near zero.
fn tolerance(float64: bool, scores: &Array1<f64>) -> f64 {
    let (n, sum) = (scores.len() as f64, scores.iter().map(|v| v.abs()).sum::<f64>());
    if float64 { 1e-12 * (sum + n) } else { sum * (1e-7 + 1e-6 / n.sqrt()) + 1e-6 * n.sqrt() }
}

/// Compares total and scores of every backend with the reference.
fn assert_all_agree(what: &str, data: &Data, mixture: &Mixture) {
    let truth = data.reference().score_samples(mixture).unwrap();
    let total = data.reference().log_likelihood(mixture).unwrap();
    data.with_backends(|name, e, float64| {
        let got = e.log_likelihood(mixture).unwrap();
        let allowed = tolerance(float64, &truth);
        assert!((got - total).abs() <= allowed, "{what}, {name}: {got} against {total}, allowed {allowed:e}");
        let scores = e.score_samples(mixture).unwrap();
        assert_eq!(scores.len(), truth.len());
        for (i, (a, b)) in scores.iter().zip(&truth).enumerate() {
            let allowed = if float64 { 1e-12 * (b.abs() + 1.0) } else { 2e-6 * (b.abs() + 1.0) };
            assert!((a - b).abs() <= allowed, "{what}, {name}, sample {i}: {a} against {b}");
        }
    });
}

fn uniform(rng: &mut ChaCha8Rng, n: usize, d: usize) -> Array2<f64> {
    Array2::from_shape_simple_fn((n, d), || rng.random::<f64>())
}

/// The talk's validity tests: four uniform draws of data, means, variances and weights in all combinations.
#[test]
fn random_parameters_in_all_combinations() {
    let (n, d, k) = (100, 13, 8);
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut draws = |rows, columns| -> Vec<Array2<f64>> { (0..4).map(|_| uniform(&mut rng, rows, columns)).collect() };
    let (data, means, variances, weights) = (draws(n, d), draws(k, d), draws(k, d), draws(1, k));
    for x in data.iter().map(Data::new) {
        for m in &means {
            for v in &variances {
                for w in &weights {
                    let w = w.row(0).to_owned();
                    let mixture = Mixture::new(&w / w.sum(), m.clone(), Covariances::Diag(v.clone())).unwrap();
                    assert_all_agree("diag", &x, &mixture);
                    let v = Covariances::Spherical(v.column(0).to_owned());
                    assert_all_agree("spherical", &x, &Mixture::new(&w / w.sum(), m.clone(), v).unwrap());
                }
            }
        }
    }
}

/// The talk's fixed case; see tests/data/make_seed103.py.
#[test]
fn fixed_case_of_the_talk() {
    const EXPECTED: f64 = -9947.69588155484;
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/seed103.npy");
    let all: Array2<f64> = ndarray_npy::read_npy(file).unwrap();
    let (x, means) = (all.slice(s![..1000, ..]), all.slice(s![1000.., ..]));
    assert_eq!((x.dim(), means.dim()), ((1000, 10), (5, 10)));
    let variances = Covariances::Diag(Array2::ones((5, 10)));
    let mixture = Mixture::new(Array1::from_elem(5, 0.2), means.to_owned(), variances).unwrap();
    let single = x.mapv(|v| v as f32);
    for (name, load) in BACKENDS {
        // The expected value has 15 digits; float32 rounds the data, hence the talk's tolerance.
        for (samples, allowed) in [(Samples::from_f64(x), 1e-8), (Samples::from_f32(single.view()), 1e-3)] {
            let total = load(samples.unwrap()).log_likelihood(&mixture).unwrap();
            assert!((total - EXPECTED).abs() < allowed, "{name}: {total}, allowed {allowed}");
        }
    }
}

#[test]
fn sizes_that_fit_no_tile() {
    let all = "1x1x1 1x13x8 2x1x3 3x2x1 7x3x9 15x5x2 16x4x4 17x1x1 63x7x3 64x64x2 65x65x5 129x63x3 255x13x33 257x130x2 \
        1000x2x17 4097x3x2";
    for (n, d, k) in sizes(all) {
        for t in TYPES {
            let data = Data::new(&normal(n as u64, n, d, 0.3));
            assert_all_agree(&format!("N={n} D={d} K={k} {t}"), &data, &mixture(d as u64, t, k, d, 0.3));
        }
    }
}

#[test]
fn many_components_over_many_features() {
    let data = Data::new(&normal(1, 300, 200, 0.0));
    for t in [CovarianceType::Diag, CovarianceType::Spherical] {
        assert_all_agree("K=300 D=200", &data, &mixture(2, t, 300, 200, 0.0));
    }
    // The reference takes D² for each matrix.
    let data = Data::new(&normal(1, 100, 150, 0.0));
    for t in [CovarianceType::Full, CovarianceType::Tied] {
        assert_all_agree("K=20 D=150", &data, &mixture(2, t, 20, 150, 0.0));
    }
}

#[test]
fn column_major_and_strided_data() {
    let x = normal(5, 90, 14, 1.0).mapv(|v| v as f32);
    let m = mixture(6, CovarianceType::Diag, 3, 7, 1.0);
    let strided = x.slice(s![..;2, ..;2]);
    let row_major = strided.to_owned();
    let mut column_major = Array2::<f32>::zeros(ndarray::ShapeBuilder::f(row_major.dim()));
    column_major.assign(&row_major);
    for (name, load) in BACKENDS {
        let total = |x: ArrayView2<'_, f32>| load(Samples::from_f32(x).unwrap()).log_likelihood(&m).unwrap();
        let expected = total(row_major.view());
        assert_eq!([total(strided), total(column_major.view())], [expected; 2], "{name}");
    }
}

#[test]
fn a_component_of_weight_zero_contributes_nothing() {
    let data = Data::new(&normal(3, 200, 4, 0.0));
    let some = mixture(4, CovarianceType::Diag, 3, 4, 0.0);
    let Covariances::Diag(variances) = some.covariances() else { unreachable!() };
    for (mean, variance) in [(0.0, 1.0), (1e30, 1e-30), (-1e300, 1e300)] {
        for position in 0..=3 {
            let insert = |a: ArrayView2<'_, f64>, v: f64| {
                let row = Array2::from_elem((1, a.ncols()), v);
                ndarray::concatenate![Axis(0), a.slice(s![..position, ..]), row, a.slice(s![position.., ..])]
            };
            let weights = insert(some.weights().insert_axis(Axis(1)), 0.0).column(0).to_owned();
            let variances = Covariances::Diag(insert(variances.view(), variance));
            let more = Mixture::new(weights, insert(some.means(), mean), variances).unwrap();
            data.with_backends(|name, e, _| {
                let (a, b) = (e.log_likelihood(&some).unwrap(), e.log_likelihood(&more).unwrap());
                // The same terms, perhaps in another grouping.
                assert!((a - b).abs() <= 1e-12 * a.abs(), "{name}: {a} against {b}");
            });
        }
    }
}

#[test]
fn far_samples_keep_their_finite_log_likelihood() {
    let mut x = normal(8, 500, 13, 0.0);
    // One to ten thousand standard deviations away, in one feature and in all, alone and next to each other.
    for (row, distance) in [(0, 1e3), (77, 1e4), (78, -1e3), (250, 30.0), (251, 40.0), (499, 2e3)] {
        x.row_mut(row).fill(distance);
    }
    x[[300, 5]] = 1e3;
    let data = Data::new(&x);
    let m = mixture(9, CovarianceType::Diag, 8, 13, 0.0);
    assert_all_agree("far", &data, &m);
    // All samples far.
    let data = Data::new(&normal(10, 100, 13, 1e3));
    assert_all_agree("all far", &data, &m);
    // Between two components that are far from each other.
    let two = Mixture::new(array![0.5, 0.5], array![[-1e3], [1e3]], Covariances::Diag(array![[1.0], [1.0]])).unwrap();
    let data = Data::new(&array![[-1e3], [1e3], [0.0], [1.0], [-1.0]]);
    assert_all_agree("between", &data, &two);
}

#[test]
fn weights_of_very_different_size() {
    let data = Data::new(&normal(11, 300, 2, 0.0));
    let weights = array![1.0 - 1e-7, 1e-7, 1e-30, 1e-300];
    let means = array![[0.0, 0.0], [3.0, 3.0], [-3.0, 3.0], [0.0, 1.0]];
    let variances = array![[1.0, 1.0], [1e-6, 1.0], [1.0, 1e-3], [1e-8, 1e-8]];
    assert_all_agree("weights", &data, &Mixture::new(weights, means, Covariances::Diag(variances)).unwrap());
}

#[test]
fn data_far_from_the_origin_and_in_extreme_units() {
    // Offset 10⁴ standard deviations: float32 holds three digits of a deviation, and all of them count.
    for (scale, offset) in [(1.0, 1e4), (1e-15, 0.0), (1e15, -3e18), (1e-3, 10.0)] {
        let data = Data::new(&normal(12, 1000, 5, 0.0).mapv(|v| v * scale + offset));
        let unit = mixture(13, CovarianceType::Diag, 4, 5, 0.0);
        let Covariances::Diag(v) = unit.covariances() else { unreachable!() };
        let means = unit.means().mapv(|v| v * scale + offset);
        let variances = Covariances::Diag(v * scale * scale);
        let m = Mixture::new(unit.weights().to_owned(), means, variances).unwrap();
        let total = data.reference().log_likelihood(&m).unwrap();
        let scores = data.reference().score_samples(&m).unwrap();
        data.with_backends(|name, e, float64| {
            let got = e.log_likelihood(&m).unwrap();
            // The truth has the offset in its data and means: in float64, 10⁴ costs four of sixteen digits.
            let allowed = tolerance(float64, &scores) + if float64 { 1e-9 * total.abs() } else { 0.0 };
            assert!((got - total).abs() <= allowed, "{name}, {scale}, {offset}: {got} against {total}");
        });
    }
}

#[test]
fn extreme_columns() {
    // A constant column, a column of one outlier, columns of very different units.
    let mut x = normal(14, 256, 4, 0.0);
    x.column_mut(0).fill(3.25);
    x.column_mut(1).fill(0.0);
    x[[17, 1]] = 1e6;
    x.column_mut(2).mapv_inplace(|v| v * 1e12);
    x.column_mut(3).mapv_inplace(|v| v * 1e-12);
    let means = array![[3.0, 0.0, 0.0, 0.0], [3.5, 10.0, 1e12, 1e-12]];
    let variances = Covariances::Diag(array![[0.5, 4.0, 1e24, 1e-24], [1e-6, 1e10, 2e24, 3e-24]]);
    assert_all_agree("columns", &Data::new(&x), &Mixture::new(array![0.25, 0.75], means, variances).unwrap());
}

/// Returns seeded samples of a mixture, and a mixture near a fit to them.
fn near_a_fit(n: usize, d: usize, k: usize) -> (Data, Mixture) {
    let m = mixture(20, CovarianceType::Diag, k, d, 0.0);
    let Covariances::Diag(variances) = m.covariances() else { unreachable!() };
    let mut x = normal(21, n, d, 0.0);
    for (i, mut row) in x.outer_iter_mut().enumerate() {
        let c = i % k;
        for (j, v) in row.iter_mut().enumerate() {
            *v = m.means()[[c, j]] + *v * variances[[c, j]].sqrt();
        }
    }
    let equal = Array1::from_elem(k, 1.0 / k as f64);
    let m = Mixture::new(equal, m.means().to_owned(), m.covariances().clone()).unwrap();
    (Data::new(&x), m)
}

/// The accuracy that Markov chain Monte Carlo needs, of totals and of their differences.
#[test]
fn a_million_samples() {
    // Fewer samples without optimisation, where the reference is slow; the bounds are those for 10⁶.
    let n = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
    let (mut data, m) = near_a_fit(n, 13, 8);
    let mut rng = ChaCha8Rng::seed_from_u64(22);
    let Covariances::Diag(variances) = m.covariances() else { unreachable!() };
    let mut apart = |v: &Array2<f64>, by: f64| v.mapv(|v| v + by * rng.random_range(-1.0..1.0));
    let (means, variances) = (apart(&m.means().to_owned(), 1e-3), Covariances::Diag(apart(variances, 1e-3)));
    let near = Mixture::new(m.weights().to_owned(), means, variances).unwrap();
    for offset in [0.0, 1e4] {
        let moved = |m: &Mixture| with_means(m, m.means().mapv(|v| v + offset));
        let (m, near) = (moved(&m), moved(&near));
        data = Data::new(&(&data.f64 + offset));
        let truth = data.reference().log_likelihood(&m).unwrap();
        let truth_near = data.reference().log_likelihood(&near).unwrap();
        data.with_backends(|name, e, float64| {
            if name.starts_with("reference") {
                return;
            }
            let totals = e.log_likelihood_batch(&[m.clone(), near.clone()]).unwrap();
            let (error, step) = (totals[0] - truth, (totals[1] - totals[0]) - (truth_near - truth));
            println!("{name}, offset {offset}: total off by {error:e}, difference off by {step:e}");
            let (total, difference) = if float64 { (1e-12 * truth.abs(), 1e-5) } else { (0.05, 0.02) };
            // In float64 the truth and the backend have rounded offset means: 10⁻¹² relative to the deviation.
            let total = total + if float64 && offset != 0.0 { 1e-5 } else { 0.0 };
            assert!(error.abs() <= total, "{name}, offset {offset}: {} against {truth}", totals[0]);
            assert!(step.abs() <= difference, "{name}, offset {offset}: difference off by {step}");
        });
    }
}

#[test]
fn the_same_bits_every_time_and_in_batches() {
    let (data, m) = near_a_fit(30_011, 13, 8);
    let other = mixture(3, CovarianceType::Spherical, 5, 13, 0.0);
    data.with_backends(|name, e, _| {
        let first = e.log_likelihood(&m).unwrap();
        for _ in 0..3 {
            assert_eq!(e.log_likelihood(&m).unwrap().to_bits(), first.to_bits(), "{name}");
        }
        let alone = e.log_likelihood(&other).unwrap();
        let batch = e.log_likelihood_batch(&[other.clone(), m.clone(), other.clone()]).unwrap();
        assert_eq!(batch, [alone, first, alone], "{name}");
        assert!(e.log_likelihood_batch(&[]).unwrap().is_empty(), "{name}");
    });
}

/// Tolerances: sums in another order, and in float32 an exponent of some hundreds has an error of some 10⁻⁵, the relative
/// error of a responsibility.
#[test]
fn every_instruction_set_agrees_in_every_operation() {
    let names = CpuEvaluator::kernels();
    assert_eq!(names.last(), Some(&"portable"));
    for (n, d, k) in sizes("1x1x1 63x2x3 65x13x8 300x3x1 777x13x8 2500x5x17") {
        let data = Data::new(&(normal(n as u64, n, d, 2.0) * 1.5));
        for t in TYPES {
            let m = mixture(k as u64, t, k, d, 2.0);
            for (name, (samples, float64)) in
                names.iter().flat_map(|name| data.samples().map(|samples| (name, samples)))
            {
                let mut e = CpuEvaluator::with_kernel(samples, name).unwrap();
                assert_eq!(e.describe().kernel, *name);
                let single = Allowed { sample: 4e-6, total: 2e-6, statistics: FLOAT32 };
                let allowed = if float64 { Allowed::all(1e-11) } else { single };
                let what = format!("{name} {t} N={n} D={d} K={k}, float64 {float64}");
                assert_evaluators_agree(&what, &mut e, &mut data.reference(), &m, allowed);
            }
        }
    }
    let one = array![[0.0]];
    let unknown = CpuEvaluator::with_kernel(Samples::from_f64(one.view()).unwrap(), "mmx");
    assert!(matches!(unknown, Err(Error::Kernel { .. })));
}

#[test]
fn rows_come_back() {
    let data = Data::new(&normal(33, 100, 3, 50.0));
    let rows = [99, 0, 17, 17];
    data.with_backends(|name, e, float64| {
        let back = e.rows(&rows).unwrap();
        let expected = data.f64.select(Axis(0), &rows);
        for (a, b) in back.x.iter().zip(&expected) {
            // The deviation from the centre, about three, is rounded to float32.
            let allowed = if float64 { 1e-14 } else { 4e-7 };
            assert!((a - b).abs() <= allowed, "{name}: {a} against {b}");
        }
        assert_eq!(back.weights, Array1::<f64>::ones(4));
        assert!(matches!(e.rows(&[3, 100]), Err(Error::NoSuchRow { row: 100, n_samples: 100 })), "{name}");
    });
}

#[test]
fn what_cannot_be_evaluated_is_an_error() {
    let data = Data::new(&normal(34, 20, 3, 0.0));
    let other = mixture(35, CovarianceType::Diag, 2, 4, 0.0);
    data.with_backends(|name, e, _| {
        let shape = |result: gmm_host::Result<()>| matches!(result, Err(Error::ShapeMismatch { .. }));
        assert!(shape(e.log_likelihood(&other).map(drop)), "{name}");
        assert!(shape(e.log_likelihood_batch(std::slice::from_ref(&other)).map(drop)), "{name}");
        assert!(shape(e.score_samples(&other).map(drop)), "{name}");
    });
    let with_mean_at = |far: f64| {
        let means = array![[0.0, 0.0, 0.0], [0.0, far, 0.0]];
        Mixture::new(array![0.5, 0.5], means, Covariances::Spherical(array![1.0, 1.0])).unwrap()
    };
    // The square of 10³⁰ deviations fits a float64 only; that of 10²⁰⁰ fits neither, and the component has no share.
    let samples = Samples::from_f32(data.f32.view()).unwrap();
    let mut cpu = CpuEvaluator::new(samples.clone()).unwrap();
    for far in [1e30, 1e200] {
        let truth = ReferenceEvaluator::new(samples.clone()).log_likelihood(&with_mean_at(far)).unwrap();
        let total = cpu.log_likelihood(&with_mean_at(far)).unwrap();
        assert!((total - truth).abs() <= 1e-12 * truth.abs(), "{total} for {truth}");
        let truth = data.reference().log_likelihood(&with_mean_at(far)).unwrap();
        data.with_backends(|name, e, float64| {
            let got = e.log_likelihood(&with_mean_at(far)).unwrap();
            assert!(!float64 || (got - truth).abs() <= 1e-12 * truth.abs(), "{name}: {got} against {truth}");
        });
    }
    assert!(matches!(CpuEvaluator::with_threads(samples, 0), Err(Error::Threads { n_threads: 0, .. })));
}

fn problem() -> impl Strategy<Value = (usize, usize, usize, usize, u64)> {
    (1usize..300, 1usize..20, 1usize..12, 0..TYPES.len(), any::<u64>())
}

proptest! {
    #![proptest_config(crate::common::proptest_config())]

    #[test]
    fn permutations_change_nothing((n, d, k, t, seed) in problem()) {
        let x = Data::new(&normal(seed, n, d, 1.0));
        let m = mixture(seed ^ 1, TYPES[t], k, d, 1.0);
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 2);
        let (mut rows, mut components): (Vec<usize>, Vec<usize>) = ((0..n).collect(), (0..k).collect());
        rows.shuffle(&mut rng);
        components.shuffle(&mut rng);
        let shuffled_m = m.sorted(&Order::Permutation(components)).unwrap();
        let scores = x.reference().score_samples(&m).unwrap();
        let shuffled = Data { f64: x.f64.select(Axis(0), &rows), f32: x.f32.select(Axis(0), &rows) };
        let mut before = Vec::new();
        x.with_backends(|_, e, _| before.push(e.log_likelihood(&m).unwrap()));
        let mut before = before.into_iter();
        shuffled.with_backends(|name, e, float64| {
            let (a, b) = (before.next().unwrap(), e.log_likelihood(&shuffled_m).unwrap());
            assert!((a - b).abs() <= tolerance(float64, &scores), "{name}: {a} against {b}");
        });
    }

    #[test]
    fn equal_components_are_one((n, d, k, t, seed) in problem()) {
        let x = Data::new(&normal(seed, n, d, 1.0));
        let one = mixture(seed ^ 1, TYPES[t], 1, d, 1.0);
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 2);
        let weights = Array1::from_shape_simple_fn(k, || rng.random_range(0.1..1.0));
        let same = vec![0; k];
        let covariances = one.covariances().select(&same);
        let many = Mixture::new(&weights / weights.sum(), one.means().select(Axis(0), &same), covariances).unwrap();
        let scores = x.reference().score_samples(&one).unwrap();
        x.with_backends(|name, e, float64| {
            let (a, b) = (e.log_likelihood(&one).unwrap(), e.log_likelihood(&many).unwrap());
            assert!((a - b).abs() <= tolerance(float64, &scores), "{name}: {a} against {b}");
        });
    }

    #[test]
    fn parts_of_the_data_add_up((n, d, k, t, seed) in problem(), cut in 0.0f64..1.0) {
        prop_assume!(n > 1);
        let cut = 1 + (cut * (n - 1) as f64) as usize;
        let x = Data::new(&normal(seed, n, d, 1.0));
        let m = mixture(seed ^ 1, TYPES[t], k, d, 1.0);
        let part = |rows: std::ops::Range<usize>| Data {
            f64: x.f64.slice(s![rows.clone(), ..]).to_owned(),
            f32: x.f32.slice(s![rows, ..]).to_owned(),
        };
        let scores = x.reference().score_samples(&m).unwrap();
        let (mut left, mut right) = (Vec::new(), Vec::new());
        part(0..cut).with_backends(|_, e, _| left.push(e.log_likelihood(&m).unwrap()));
        part(cut..n).with_backends(|_, e, _| right.push(e.log_likelihood(&m).unwrap()));
        let mut parts = left.into_iter().zip(right);
        x.with_backends(|name, e, float64| {
            let (a, b) = parts.next().unwrap();
            let whole = e.log_likelihood(&m).unwrap();
            // Three roundings of the parameters, one for each frame.
            assert!((a + b - whole).abs() <= 3.0 * tolerance(float64, &scores), "{name}: {a} + {b} against {whole}");
        });
    }
}

/// Up to 16 samples are evaluated without a layout of large matrices, with the results that they have among many.
#[test]
fn few_samples_under_large_matrices_are_as_in_the_reference() {
    let (k, d) = (20, 60);
    for covariance_type in [CovarianceType::Full, CovarianceType::Tied] {
        let mut m = mixture(2, covariance_type, k, d, 0.0);
        // Also beside a component without weight.
        let mut weights = m.weights().to_owned();
        weights[3] = 0.0;
        weights /= weights.sum();
        m = Mixture::new(weights, m.means().to_owned(), m.covariances().clone()).unwrap();
        for n in [1, 2, 3, 16, 17] {
            let x = normal(n as u64, n, d, 0.0);
            let w = ndarray::Array1::from_shape_fn(n, |i| (i % 3) as f64 + 0.5);
            let samples = Samples::from_f64(x.view()).unwrap().with_weights(w.view()).unwrap();
            let (mut cpu, mut exact) = (CpuEvaluator::new(samples).unwrap(), weighted(x.view(), w.view()));
            // Log densities of a hundred.
            let scores = cpu.score_samples(&m).unwrap();
            assert_all_close("scores", scores, exact.score_samples(&m).unwrap(), 1e-13, 100.0);
            let total = exact.log_likelihood(&m).unwrap();
            assert_close("total", cpu.log_likelihood(&m).unwrap(), total, 1e-13, 100.0);
            let shares = cpu.predict_proba(&m).unwrap();
            assert_all_close("shares", shares, exact.predict_proba(&m).unwrap(), 1e-11, 1.0);
            assert_eq!(cpu.predict(&m).unwrap(), exact.predict(&m).unwrap());
        }
        // One sample's squares overflow: the nearest component gets it.
        let mut x = normal(1, 2, d, 0.0);
        x.row_mut(1).fill(1e200);
        let mut cpu = CpuEvaluator::new(Samples::from_f64(x.view()).unwrap()).unwrap();
        assert_eq!(cpu.score_samples(&m).unwrap()[1], f64::NEG_INFINITY);
        assert_eq!(cpu.predict(&m).unwrap(), reference(x.view()).predict(&m).unwrap());
    }
}
