//! Samples divided over several evaluators give the results of all together.
use crate::common::{Allowed, assert_all_close, assert_close, assert_evaluators_agree};
use gmm_host::*;
use ndarray::{Array1, Array2, array, s};

fn samples(n: usize, d: usize) -> Array2<f64> {
    Array2::from_shape_fn((n, d), |(i, j)| ((i * (j + 3)) as f64 * 0.37).sin() * 3.0 + (i % 3) as f64 * 5.0 + j as f64)
}

fn mixture(x: &Array2<f64>, covariance_type: CovarianceType) -> Mixture {
    GaussianMixtureParams::new(3).covariance_type(covariance_type).max_iter(3).fit(x).unwrap().mixture
}

/// Returns evaluators of rows 0 to 40, 41 to 100, and so on.
fn shards<'a>(x: Samples<'a>, ends: &[usize]) -> ShardedEvaluator<'a> {
    let starts = std::iter::once(&0).chain(ends);
    let parts = starts.zip(ends).map(|(&start, &end)| -> Box<dyn Evaluator + 'a> {
        Box::new(CpuEvaluator::with_threads(x.rows(start..end), 1).unwrap())
    });
    ShardedEvaluator::new(parts.collect()).unwrap()
}

// Sums in another order: a few units of the last digit, times the cancellation in a sum.
const TOLERANCE: f64 = 1e-12;

#[test]
fn every_operation_agrees_with_one_evaluator() {
    let x = samples(1003, 4);
    let weights = Array1::from_shape_fn(1003, |i| (i % 5) as f64);
    for covariance_type in CovarianceType::ALL {
        let m = mixture(&x, covariance_type);
        for weighted in [false, true] {
            let all = || {
                let all = Samples::from_f64(x.view()).unwrap();
                if weighted { all.with_weights(weights.view()).unwrap() } else { all }
            };
            let mut one = CpuEvaluator::new(all()).unwrap();
            let mut several = shards(all(), &[1, 41, 500, 1003]);
            assert_eq!((several.n_samples(), several.n_features(), several.n_shards()), (1003, 4, 4));
            assert_close("weight", several.total_weight(), one.total_weight(), TOLERANCE, 0.0);
            let what = format!("{covariance_type}, weighted: {weighted}");
            assert_evaluators_agree(&what, &mut several, &mut one, &m, Allowed::all(TOLERANCE));
            let other = mixture(&(&x + 0.5), covariance_type);
            let batch = several.log_likelihood_batch(&[m.clone(), other.clone()]).unwrap();
            let alone = [&m, &other].map(|m| one.log_likelihood(m).unwrap());
            assert_all_close("batch", batch, alone, TOLERANCE, 0.0);
            // The same division gives the same bits.
            let again = shards(all(), &[1, 41, 500, 1003]).statistics(&m).unwrap();
            assert_eq!(again, several.statistics(&m).unwrap());
        }
    }
}

#[test]
fn rows_come_from_their_shards() {
    let x = samples(50, 2);
    let mut data = shards(Samples::from_f64(x.view()).unwrap(), &[7, 8, 50]);
    let rows = [49, 0, 7, 6, 8, 7];
    assert_eq!(data.rows(&rows).unwrap().x, x.select(ndarray::Axis(0), &rows));
    assert!(matches!(data.rows(&[50]), Err(Error::NoSuchRow { row: 50, n_samples: 50 })));
    assert!(data.describe().device.matches("cpu").count() == 3, "{:?}", data);
}

#[test]
fn fits_find_the_same() {
    let x = samples(900, 3);
    let params = GaussianMixtureParams::new(3).max_iter(20);
    let one = params.fit(&x).unwrap();
    let mut several = [shards(Samples::from_f64(x.view()).unwrap(), &[300, 310, 900]), mixed(&x)];
    for several in &mut several {
        let fit = params.fit(several).unwrap();
        assert_eq!(one.n_iter(), fit.n_iter());
        let difference = (&one.mixture.means() - &fit.mixture.means()).mapv(f64::abs);
        assert!(difference.iter().all(|d| *d < 1e-9), "{difference}");
    }
    assert_eq!(params.fit(&mut mixed(&x)).unwrap().mixture, params.fit(&mut mixed(&x)).unwrap().mixture);
}

/// Returns shards of several kinds, the second larger than its device and evaluated in chunks.
fn mixed(x: &Array2<f64>) -> ShardedEvaluator<'_> {
    let all = Samples::from_f64(x.view()).unwrap();
    let n = x.nrows();
    let middle = all.rows(200..n - 100);
    let chunks = ChunkedEvaluator::of_samples(middle, 64, |chunk| Ok(Box::new(CpuEvaluator::with_threads(chunk, 1)?)));
    ShardedEvaluator::new(vec![
        Box::new(CpuEvaluator::with_threads(all.rows(0..200), 1).unwrap()),
        Box::new(chunks.unwrap()),
        Box::new(ReferenceEvaluator::new(all.rows(n - 100..n))),
    ])
    .unwrap()
}

#[test]
fn shards_of_several_kinds_agree() {
    let x = samples(1003, 4);
    for covariance_type in CovarianceType::ALL {
        let m = mixture(&x, covariance_type);
        let (mut several, mut one) = (mixed(&x), ReferenceEvaluator::new(Samples::from_f64(x.view()).unwrap()));
        assert_evaluators_agree(&format!("{covariance_type}"), &mut several, &mut one, &m, Allowed::all(TOLERANCE));
        assert_eq!(several.rows(&[1002, 300, 0]).unwrap().x, x.select(ndarray::Axis(0), &[1002, 300, 0]));
    }
}

#[test]
fn errors_name_the_row_of_all_samples() {
    let mut x = samples(60, 1);
    x[[45, 0]] = 1e200;
    let m = Mixture::new(array![1.0], array![[0.0]], Covariances::Spherical(array![1.0])).unwrap();
    let all = Samples::from_f64(x.view()).unwrap();
    let part = |rows| -> Box<dyn Evaluator> { Box::new(ReferenceEvaluator::new(all.rows(rows))) };
    let mut data = ShardedEvaluator::new(vec![part(0..10), part(10..40), part(40..60)]).unwrap();
    assert!(matches!(data.statistics(&m), Err(Error::UnreachableSample { row: 45 })));
    let wrong = Mixture::new(array![1.0], array![[0.0, 1.0]], Covariances::Spherical(array![1.0])).unwrap();
    assert!(matches!(data.log_likelihood(&wrong), Err(Error::ShapeMismatch { .. })));
    let wide = |rows: std::ops::Range<usize>, columns: usize| -> Box<dyn Evaluator> {
        let owned = x.slice(s![rows, ..]).broadcast((10, columns)).unwrap().to_owned();
        Box::new(CpuEvaluator::new(Samples::from_shared_f64(owned.into_shared()).unwrap()).unwrap())
    };
    let different = ShardedEvaluator::new(vec![wide(0..10, 1), wide(0..10, 2)]);
    assert!(matches!(different, Err(Error::ShapeMismatch { what: "a shard", .. })));
    assert!(matches!(ShardedEvaluator::new(vec![]), Err(Error::EmptyData { .. })));
}
