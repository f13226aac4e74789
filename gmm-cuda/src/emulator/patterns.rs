//! Samples by pattern of missing values: `marginals`; `density`, `posterior`, `accumulate` or `fused_patterns`;
//! `complete_patterns`.
use super::{FAR, compare, of_each_type};
use crate::device::place::Element;
use crate::missing::by_pattern::{ByPattern, evaluator};
use crate::options::CudaOptions;
use gmm_core::backends::reference::ReferenceEvaluator;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::data::samples::Samples;
use gmm_core::error::{Error, Result};
use gmm_core::model::covariances::Covariances;
use gmm_core::model::mixture::Mixture;
use ndarray::{Array1, Array2};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// A type, with its errors as in `general.rs`.
trait Type: Element {
    const ROUNDING: f64;
    const SUMS: f64;
    fn round(v: f64) -> f64 {
        Self::from_f64(v).into()
    }
}
impl Type for f32 {
    const ROUNDING: f64 = 2e-6;
    const SUMS: f64 = 2e-4;
}
impl Type for f64 {
    const ROUNDING: f64 = 1e-14;
    const SUMS: f64 = 1e-11;
}

/// Checks a type's engine: scores and labels by the general kernels; totals and statistics in float32 by
/// `fused_patterns`, if K and D are small enough.
fn check<T: Type>(x: &Array2<f64>, weights: Option<&Array1<f64>>, mixture: &Mixture) {
    let x = &x.mapv(T::round);
    let samples = Samples::with_missing(x.view()).unwrap();
    let samples = weights.iter().fold(samples, |samples, w| samples.with_weights(w.view()).unwrap());
    let mut engine = ByPattern::<T>::new(samples.clone(), 0, None).unwrap();
    let mut reference = ReferenceEvaluator::new(samples);
    compare(T::NAME, &mut engine, &mut reference, mixture, (T::ROUNDING, T::SUMS), x.nrows() < 25);
}

/// Returns samples with a share of their values missing, and empty rows. Patterns are few, because the emulator runs a
/// block as host threads, which meet in each step of a factorisation.
fn data(rng: &mut ChaCha8Rng, n: usize, d: usize, holes: f64) -> Array2<f64> {
    const PATTERNS: usize = 3;
    let missing = Array2::from_shape_simple_fn((PATTERNS, d), || rng.random::<f64>() < holes);
    let mut x = Array2::from_shape_simple_fn((n, d), || 3.0 + rng.sample::<f64, _>(StandardNormal));
    x.row_mut(n / 2).fill(FAR);
    for mut row in x.outer_iter_mut() {
        let missing = missing.row(rng.random_range(0..PATTERNS));
        row.iter_mut().zip(missing).for_each(|(v, missing)| *v = if *missing { f64::NAN } else { *v });
    }
    if n > 20 {
        x.row_mut(7).fill(f64::NAN);
        x.row_mut(n - 1).fill(f64::NAN);
    }
    x
}

/// Returns the `full` and the `tied` mixture.
fn with_matrices(rng: &mut ChaCha8Rng, k: usize, d: usize) -> Vec<Mixture> {
    let matrix = |m: &Mixture| m.covariance_type().has_matrices();
    of_each_type(rng, k, d).into_iter().filter(matrix).collect()
}

#[test]
fn every_shape_agrees_with_the_reference() {
    let narrow =
        [(1, 1, 1, 0.0), (30, 1, 2, 0.3), (30, 3, 1, 0.6), (1100, 3, 2, 0.05), (40, 5, 3, 0.3), (21, 9, 3, 0.3)];
    let wide = [(30, 13, 8, 0.05), (30, 14, 8, 0.05), (20, 16, 2, 0.3), (24, 4, 11, 0.3), (6, 33, 2, 0.1)];
    for (i, (n, d, k, holes)) in narrow.into_iter().chain(wide).enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let x = data(&mut rng, n, d, holes);
        let weights = Array1::from_shape_fn(n, |i| if i == 0 { 1.5 } else { (i % 5) as f64 * 0.7 });
        for (j, mixture) in with_matrices(&mut rng, k, d).into_iter().enumerate() {
            let weights = [None, Some(&weights)];
            check::<f32>(&x, weights[(i + j) % 2], &mixture);
            check::<f64>(&x, weights[(i + j + 1) % 2], &mixture);
        }
    }
}

/// Columns far from the origin, columns with all values missing, and a component without weight.
#[test]
fn far_columns_empty_columns_and_dead_components() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut x = data(&mut rng, 40, 5, 0.2);
    // A quarter is a float32's last place there.
    x.column_mut(1).mapv_inplace(|v| (4.0 * v).round() / 4.0 + 2e6);
    x.column_mut(3).fill(f64::NAN);
    for mixture in with_matrices(&mut rng, 4, 5) {
        let weights = ndarray::arr1(&[0.5, 0.0, 0.2, 0.3]);
        let mut means = mixture.means().to_owned();
        means.column_mut(1).mapv_inplace(|v| v + 2e6);
        means.row_mut(1).fill(1e9);
        let mixture = Mixture::new(weights, means, mixture.covariances().clone()).unwrap();
        check::<f32>(&x, None, &mixture);
        check::<f64>(&x, None, &mixture);
    }
}

/// Parameters that float32 cannot hold are refused with the component and the column.
#[test]
fn parameters_outside_the_range_are_refused() {
    let x = ndarray::arr2(&[[1.0, f64::NAN, 2.0], [f64::NAN, 1.0, 3.0], [0.5, 2.0, f64::NAN]]);
    let samples = Samples::with_missing(x.view()).unwrap();
    let mut covariances = ndarray::Array3::zeros((2, 3, 3));
    for c in 0..2 {
        (0..3).for_each(|j| covariances[[c, j, j]] = 1.0);
    }
    covariances[[1, 2, 2]] = 1e-60;
    let mixture =
        Mixture::new(ndarray::arr1(&[0.5, 0.5]), Array2::zeros((2, 3)), Covariances::Full(covariances)).unwrap();
    let mut engine = ByPattern::<f32>::new(samples.clone(), 0, None).unwrap();
    // By the general kernels, and by the fused one.
    let errors = [engine.score_samples(&mixture).map(drop), engine.statistics(&mixture).map(drop)];
    for error in errors.map(Result::unwrap_err) {
        assert!(matches!(error, Error::OutOfRange { component: 1, column: 2, .. }), "{error}");
    }
    ByPattern::<f64>::new(samples, 0, None).unwrap().log_likelihood(&mixture).unwrap();
}

/// Errors name the caller's rows, although patterns reorder them. A row that no component reaches changes no other.
#[test]
fn rows_are_named_as_the_caller_counts() {
    let (nan, far) = (f64::NAN, 3);
    let x = |size: f64| {
        ndarray::arr2(&[[0.1, nan, 0.3], [0.5, 0.2, 0.1], [nan, 0.1, 0.7], [nan, size, 0.2], [1.0, nan, 2.0]])
    };
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let (x, single) = (x(1e160), x(3e38).mapv(|v| v as f32));
    let samples = Samples::with_missing(x.view()).unwrap();
    let weights = ndarray::arr1(&[1.0, 2.0, 1.0, 0.0, 1.0]);
    for mixture in with_matrices(&mut rng, 2, 3) {
        let (mut engine, mut reference) = (production(samples.clone()), ReferenceEvaluator::new(samples.clone()));
        let scores = engine.score_samples(&mixture).unwrap();
        for (got, truth) in scores.iter().zip(&reference.score_samples(&mixture).unwrap()) {
            assert!(got == truth || (got - truth).abs() <= 1e-12 * truth.abs().max(1.0), "{got} for {truth}");
        }
        assert_eq!(scores[far], f64::NEG_INFINITY);
        assert_eq!(engine.log_likelihood(&mixture).unwrap(), f64::NEG_INFINITY);
        assert_eq!(engine.predict(&mixture).unwrap(), reference.predict(&mixture).unwrap());
        let error = engine.statistics(&mixture).unwrap_err();
        assert!(matches!(error, Error::UnreachableSample { row } if row == far), "{error}");
        let weighted = samples.clone().with_weights(weights.view()).unwrap();
        let total = production(weighted.clone()).statistics(&mixture).unwrap().log_likelihood();
        let truth = ReferenceEvaluator::new(weighted).log_likelihood(&mixture).unwrap();
        assert!((total - truth).abs() <= 1e-12 * truth.abs(), "{total} for {truth}");
        // float64 reaches everything that float32 can hold.
        let single = Samples::with_missing(single.view()).unwrap();
        let total = production(single.clone()).statistics(&mixture).unwrap().log_likelihood();
        let truth = ReferenceEvaluator::new(single).log_likelihood(&mixture).unwrap();
        assert!((total - truth).abs() <= 1e-12 * truth.abs(), "{total} for {truth}");
        assert!(matches!(engine.rows(&[2, 5]), Err(Error::NoSuchRow { row: 5, n_samples: 5 })));
    }
    let mut infinite = x.clone();
    infinite[[far, 1]] = f64::INFINITY;
    let error = Samples::with_missing(infinite.view()).unwrap_err();
    assert!(matches!(error, Error::NonFiniteSample { row: 3, column: 1, .. }), "{error}");
}

/// Returns the caller's evaluator: float32, float64, and the host for mixtures that need more digits.
fn production(samples: Samples<'_>) -> Box<dyn Evaluator + '_> {
    evaluator(samples, 0, &CudaOptions::default()).unwrap()
}
