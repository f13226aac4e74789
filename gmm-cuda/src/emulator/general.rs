//! The general kernels in both types, and the E-step of float64.
use super::{FAR, compare, of_each_type, random_mixture, sizes};
use crate::float32::Float32;
use crate::float64::Float64;
use crate::options::CudaOptions;
use crate::source::Source;
use gmm_core::backends::device_parameters::Deviations;
use gmm_core::backends::reference::ReferenceEvaluator;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::data::samples::Samples;
use gmm_core::error::Error;
use gmm_core::interrupt::Interrupt;
use gmm_core::model::covariances::Covariances;
use gmm_core::model::mixture::Mixture;
use gmm_core::precision::Precision;
use ndarray::{Array1, Array2};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// An element type's engine, which uses the general kernels if the type has others for everything tested here.
trait Engine {
    /// Errors of an exponent, relative to its size; of a sum of responsibilities; of a mean and of a scatter.
    const ROUNDING: f64;
    const SUMS: f64;
    const PRECISION: Precision;
    fn round(v: f64) -> f64;
    fn engine<'a>(samples: &Samples<'a>, deviations: Deviations) -> Box<dyn Evaluator + 'a>;
}

impl Engine for f32 {
    /// Some thirty roundings of 2⁻²⁴.
    const ROUNDING: f64 = 2e-6;
    /// Exponents of some hundreds, whose error is the relative error of a responsibility.
    const SUMS: f64 = 2e-4;
    const PRECISION: Precision = Precision::Float32;
    fn round(v: f64) -> f64 {
        f64::from(v as f32)
    }
    fn engine<'a>(samples: &Samples<'a>, _: Deviations) -> Box<dyn Evaluator + 'a> {
        let options = CudaOptions::default().with_kernel(Some("general".into()));
        Box::new(Float32::new(Source::Host(samples.clone(), 0), &options).unwrap())
    }
}

impl Engine for f64 {
    const ROUNDING: f64 = 1e-14;
    const SUMS: f64 = 1e-11;
    const PRECISION: Precision = Precision::Float64;
    fn round(v: f64) -> f64 {
        v
    }
    fn engine<'a>(samples: &Samples<'a>, deviations: Deviations) -> Box<dyn Evaluator + 'a> {
        let options = CudaOptions::default();
        Box::new(Float64::new(Source::Host(samples.clone(), 0), deviations, &options).unwrap())
    }
}

fn samples<'a>(x: &'a Array2<f64>, weights: Option<&'a Array1<f64>>) -> Samples<'a> {
    let samples = Samples::with_missing(x.view()).unwrap();
    weights.into_iter().fold(samples, |samples, weights| samples.with_weights(weights.view()).unwrap())
}

fn check<T: Engine>(x: &Array2<f64>, weights: Option<&Array1<f64>>, mixture: &Mixture) {
    check_of::<T>(x, weights, mixture, Deviations::InFrame);
    if T::PRECISION == Precision::Float64 {
        check_of::<T>(x, weights, mixture, Deviations::AroundMeans);
    }
}

fn check_of<T: Engine>(x: &Array2<f64>, weights: Option<&Array1<f64>>, mixture: &Mixture, deviations: Deviations) {
    // Rounded to the element type, so that the reference and the kernels have the same numbers.
    let x = &x.mapv(T::round);
    let samples = samples(x, weights);
    let mut engine = T::engine(&samples, deviations);
    let mut reference = ReferenceEvaluator::new(samples);
    let what = format!("{:?} {deviations:?}", T::PRECISION);
    let twice = x.nrows() < 200;
    compare(&what, engine.as_mut(), &mut reference, mixture, (T::ROUNDING, T::SUMS), twice);
}

#[test]
fn every_type_and_size() {
    // N, D, K; the last are too large for the fused kernels of float64.
    let shapes = sizes("1x1x1 130x2x3 1100x7x2 700x8x5 200x17x2 150x3x33 50x36x2");
    // Edges of the tensor cores' tiles; more components than `posterior` has in registers.
    let edges = sizes("140x13x6 35x16x5 70x32x1 20x3x70");
    for (i, (n, d, k)) in shapes.chain(edges).enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let mut x = Array2::from_shape_simple_fn((n, d), || 3.0 + rng.sample::<f64, _>(StandardNormal));
        x.row_mut(n / 2).fill(FAR);
        let weights = Array1::from_shape_fn(n, |i| if i == 0 { 1.5 } else { (i % 5) as f64 * 0.7 });
        for mixture in of_each_type(&mut rng, k, d) {
            // One with weights, one without.
            let weights = [None, Some(&weights)];
            check::<f32>(&x, weights[i % 2], &mixture);
            check::<f64>(&x, weights[(i + 1) % 2], &mixture);
        }
    }
}

/// Missing values, more and more of them, with an empty row and an empty column.
#[test]
fn every_share_of_missing_values() {
    // N, D, K, share
    for (i, (n, d, k, share)) in
        [(1, 1, 1, 0.3), (1, 3, 2, 0.5), (1100, 7, 2, 0.05), (700, 8, 5, 0.3), (130, 2, 3, 0.6), (300, 17, 1, 0.3)]
            .into_iter()
            .enumerate()
    {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let mut x = Array2::from_shape_simple_fn((n, d), || 1e3 + rng.sample::<f64, _>(StandardNormal));
        x.map_inplace(|v| *v = if rng.random::<f64>() < share { f64::NAN } else { *v });
        x.row_mut(n / 2).fill(f64::NAN);
        if d > 2 {
            x.column_mut(1).fill(f64::NAN);
        }
        let weights = Array1::from_shape_fn(n, |i| if i == 0 { 1.5 } else { (i % 5) as f64 * 0.7 });
        for mixture in of_each_type(&mut rng, k, d) {
            if mixture.covariance_type().has_matrices() {
                continue;
            }
            let moved = mixture.means().mapv(|mean| mean + 1e3);
            let mixture = Mixture::new(mixture.weights().to_owned(), moved, mixture.covariances().clone()).unwrap();
            let weights = [None, Some(&weights)];
            check::<f32>(&x, weights[i % 2], &mixture);
            check::<f64>(&x, weights[(i + 1) % 2], &mixture);
            let scores = f64::engine(&samples(&x, None), Deviations::InFrame).score_samples(&mixture).unwrap();
            assert_eq!(scores[n / 2], 0.0, "nothing observed says nothing");
        }
    }
}

/// A component of weight zero gets no sample, even as the nearest; a sample 1000 deviations away has a finite score.
#[test]
fn dead_components_and_far_samples() {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let mut x = Array2::from_shape_simple_fn((200, 3), || rng.sample::<f64, _>(StandardNormal));
    x.row_mut(5).fill(1e3);
    for mixture in of_each_type(&mut rng, 5, 3) {
        let weights = ndarray::arr1(&[0.0, 0.5, 0.5, 0.0, 0.0]);
        let mut means = mixture.means().to_owned();
        means.row_mut(0).fill(1e3);
        means.row_mut(3).fill(1e6);
        let mixture = Mixture::new(weights, means, mixture.covariances().clone()).unwrap();
        let truth = ReferenceEvaluator::new(Samples::from_f64(x.view()).unwrap()).score_samples(&mixture).unwrap();
        let samples = samples(&x, None);
        for (mut engine, tolerance) in [
            (f32::engine(&samples, Deviations::InFrame), 1e-5),
            (f64::engine(&samples, Deviations::InFrame), 1e-13),
            (f64::engine(&samples, Deviations::AroundMeans), 1e-13),
        ] {
            for (a, b) in engine.score_samples(&mixture).unwrap().iter().zip(&truth) {
                assert!((a - b).abs() <= tolerance * (b.abs() + 3.0), "{a} for {b}");
            }
            assert!(engine.predict(&mixture).unwrap().iter().all(|label| [1, 2].contains(label)));
            let statistics = engine.statistics(&mixture).unwrap();
            let counts = statistics.counts();
            assert_eq!([counts[0], counts[3], counts[4]], [0.0; 3]);
            assert!((counts.sum() - 200.0).abs() < 1e-4);
        }
    }
}

/// Narrow groups of samples, far apart; every third value is missing, or none.
#[test]
fn groups_that_lie_far_apart() {
    for (distance, missing) in [(1e16, false), (1e16, true), (1e150, false), (1e300, false), (1e300, true)] {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let (n, d, k) = (300, 5, 3);
        for mixture in of_each_type(&mut rng, k, d) {
            if missing && mixture.covariance_type().has_matrices() {
                continue;
            }
            let offset = |c: usize| c as f64 * distance;
            let means = Array2::from_shape_fn((k, d), |(c, j)| mixture.means()[[c, j]] + offset(c));
            let mixture = Mixture::new(mixture.weights().to_owned(), means, mixture.covariances().clone()).unwrap();
            let mut x = Array2::from_shape_fn((n, d), |(i, j)| {
                mixture.means()[[i % k, j]] + rng.sample::<f64, _>(StandardNormal)
            });
            if missing {
                x.indexed_iter_mut().for_each(|((i, j), v)| *v = if (i + j) % 3 == 0 { f64::NAN } else { *v });
            }
            check_of::<f64>(&x, None, &mixture, Deviations::AroundMeans);
        }
    }
}

/// An infinitely far sample has the score −∞ and the nearest component's label; with weight zero an E-step skips it.
#[test]
fn a_sample_that_no_component_reaches() {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let mut x = Array2::from_shape_simple_fn((40, 3), || rng.sample::<f64, _>(StandardNormal));
    x.row_mut(7).fill(1e200);
    let weights = Array1::from_shape_fn(40, |i| if i == 7 { 0.0 } else { 1.0 });
    for mixture in of_each_type(&mut rng, 2, 3) {
        let samples = Samples::from_f64(x.view()).unwrap().with_weights(weights.view()).unwrap();
        let mut engine = f64::engine(&samples, Deviations::AroundMeans);
        assert_eq!(engine.score_samples(&mixture).unwrap()[7], f64::NEG_INFINITY);
        let mut reference = ReferenceEvaluator::new(samples.clone());
        assert_eq!(engine.predict(&mixture).unwrap()[7], reference.predict(&mixture).unwrap()[7]);
        let got = engine.statistics(&mixture).unwrap();
        let truth = reference.statistics(&mixture).unwrap();
        assert!((got.log_likelihood() - truth.log_likelihood()).abs() <= 1e-11 * truth.log_likelihood().abs());
        for (got, truth) in got.counts().iter().zip(truth.counts()) {
            assert!((got - truth).abs() <= 1e-10, "{got} for {truth}");
        }
    }
}

#[test]
fn fused64_gives_the_statistics() {
    // N, K, D
    for (n, k, d) in sizes("1x1x1 63x3x4 300x8x13 130x8x8 257x5x10 65x9x3 200x20x6 129x32x12 200x32x16") {
        let mut rng = ChaCha8Rng::seed_from_u64((100 * n + 10 * k + d) as u64);
        let mut x = Array2::from_shape_simple_fn((n, d), || rng.sample::<f64, _>(StandardNormal));
        x.row_mut(n / 2).fill(FAR);
        let mixture = random_mixture(&mut rng, k, d);
        check_of::<f64>(&x, None, &mixture, Deviations::InFrame);
        let weights = Array1::from_shape_simple_fn(n, || rng.random_range(0.0..4.0));
        check_of::<f64>(&x, Some(&weights), &mixture, Deviations::InFrame);
        let spherical = Covariances::Spherical(Array1::from_elem(k, 0.7));
        let spherical = Mixture::new(mixture.weights().to_owned(), mixture.means().to_owned(), spherical).unwrap();
        check_of::<f64>(&x, None, &spherical, Deviations::InFrame);
    }
}

/// Samples 100 deviations away, where every 2^q is zero in float64; a component of weight zero right on them; a
/// component whose moments would cancel around the data's centre.
#[test]
fn fused64_at_extremes() {
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
    let mixture = Mixture::new(weights, means, near.covariances().clone()).unwrap();
    check_of::<f64>(&x, None, &mixture, Deviations::InFrame);
}

/// An interrupt acts between chunks, and the next pass is unaffected.
#[test]
fn an_interrupt_ends_a_pass() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let x = Array2::from_shape_simple_fn((50, 2), || rng.sample::<f64, _>(StandardNormal));
    let mixture = random_mixture(&mut rng, 2, 2);
    let interrupt = Interrupt::default();
    interrupt.raise();
    for mut engine in
        [f32::engine(&samples(&x, None), Deviations::InFrame), f64::engine(&samples(&x, None), Deviations::InFrame)]
    {
        let total = engine.log_likelihood(&mixture).unwrap();
        let errors = interrupt.install(|| {
            [
                engine.log_likelihood(&mixture).err(),
                engine.score_samples(&mixture).err(),
                engine.statistics(&mixture).err(),
                engine.predict(&mixture).err(),
            ]
        });
        for (i, error) in errors.into_iter().enumerate() {
            assert!(matches!(error, Some(Error::Interrupted)), "{i}: {error:?}");
        }
        assert_eq!(engine.log_likelihood(&mixture).unwrap().to_bits(), total.to_bits());
    }
}
