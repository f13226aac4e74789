//! The E-step of hidden Markov models, against the CPU's.
use super::{flat, of_each_type};
use crate::float32::Float32;
use crate::float64::Float64;
use crate::options::CudaOptions;
use crate::source::Source;
use gmm_core::backends::device_parameters::Deviations;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::contract::markov::{MarkovChain, MarkovSums};
use gmm_core::data::samples::Samples;
use gmm_core::error::Error;
use gmm_core::model::mixture::Mixture;
use gmm_hmm::{HiddenMarkov, Sequences};
use ndarray::{Array1, Array2, arr1, arr2, s};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// Rows of runs near one mean after the other, so that a path has long stays and changes.
fn rows(rng: &mut impl Rng, n: usize, mixture: &Mixture) -> Array2<f64> {
    let (k, d) = mixture.means().dim();
    Array2::from_shape_fn((n, d), |(i, j)| mixture.means()[[i / 7 * 3 % k, j]] + rng.sample::<f64, _>(StandardNormal))
}

fn random_rows(rng: &mut impl Rng, k: usize) -> Array2<f64> {
    let mut a = Array2::from_shape_simple_fn((k, k), || rng.random_range(0.05..1.0));
    a.outer_iter_mut().for_each(|mut row| row /= row.sum());
    a
}

/// Returns samples, with NaN for missing values.
fn samples(x: &Array2<f64>) -> Samples<'_> {
    Samples::with_missing(x.view()).unwrap()
}

fn engine(x: &Array2<f64>, float64: bool) -> Box<dyn Evaluator + '_> {
    let source = Source::Host(samples(x), 0);
    let options = CudaOptions::default();
    match float64 {
        true => Box::new(Float64::new(source, Deviations::InFrame, &options).unwrap()),
        false => Box::new(Float32::new(source, &options).unwrap()),
    }
}

/// Returns the sums in float64 or float32, which must be the same bits in a second run.
fn sums(
    model: &HiddenMarkov,
    x: &Array2<f64>,
    lengths: &[usize],
    weights: Option<&[f64]>,
    float64: bool,
) -> Option<MarkovSums> {
    let mut engine = engine(x, float64);
    let (start, transitions) = (model.startprob(), model.transmat());
    let chain = MarkovChain { emissions: model.emissions(), offsets: &[], start, transitions, lengths, weights };
    let first = engine.markov().unwrap().expectations(&chain).unwrap();
    assert_eq!(first, engine.markov().unwrap().expectations(&chain).unwrap(), "the same bits");
    first
}

fn compare(model: &HiddenMarkov, x: &Array2<f64>, lengths: &[usize], weights: Option<&[f64]>) {
    // In float32, an exponent of some tens is off by 10⁻⁵, and so are a row's posteriors; their sums over rows, less.
    for (float64, tolerance) in [(true, 1e-11), (false, 2e-4)] {
        let x = if float64 { x.clone() } else { x.mapv(|v| f64::from(v as f32)) };
        let what = format!("K={} float64={float64} {lengths:?}", model.n_states());
        let sequences = Sequences::new(samples(&x), lengths).unwrap();
        let scores = model.score(&sequences).unwrap();
        let sequences = match weights {
            Some(weights) => sequences.with_weights(weights.to_vec()).unwrap(),
            None => sequences,
        };
        let truth = model.expectations(&sequences).unwrap();
        let got = sums(model, &x, lengths, weights, float64).expect(&what);
        let near = |got: f64, truth: f64, scale: f64, name: &str| {
            assert!((got - truth).abs() <= tolerance * scale, "{what}, {name}: {got} for {truth}");
        };
        let n = x.nrows() as f64 * 3.0;
        for (got, truth) in got.log_likelihoods.iter().zip(&scores) {
            near(*got, *truth, truth.abs().max(10.0), "log-likelihood");
        }
        near(got.statistics.log_likelihood(), truth.log_likelihood, truth.log_likelihood.abs().max(10.0), "total");
        near(got.statistics.weight(), truth.statistics.weight(), n, "weight");
        got.start
            .iter()
            .zip(&truth.start)
            .for_each(|(got, truth)| near(*got, *truth, 3.0 * lengths.len() as f64, "start"));
        got.transitions.iter().zip(&truth.transitions).for_each(|(got, truth)| near(*got, *truth, n, "transitions"));
        for (c, count) in truth.statistics.counts().iter().enumerate() {
            near(got.statistics.counts()[c], *count, n, "count");
            if *count > 0.1 {
                for (a, b) in got.statistics.means().row(c).iter().zip(truth.statistics.means().row(c)) {
                    near(*a, *b, n / count * 10.0, "mean");
                }
            }
        }
        for (a, b) in flat(got.statistics.scatter()).into_iter().zip(flat(truth.statistics.scatter())) {
            near(a, b, 100.0 * n, "scatter");
        }
    }
}

/// Every capacity, full and not, and every covariance type, over whole sequences and chunks of them, which
/// have up to 128 rows.
#[test]
fn sums_are_those_of_the_cpu() {
    let lengths: [&[usize]; 6] = [&[1, 127], &[128], &[129], &[300, 1, 129, 40], &[2, 1, 5, 1, 1, 3, 60, 7], &[513]];
    for (case, k) in [1, 2, 3, 4, 5, 8, 11, 17, 32].into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(k as u64);
        let d = [1, 3, 2, 9][case % 4];
        for (i, mixture) in of_each_type(&mut rng, k, d).into_iter().enumerate() {
            let lengths = lengths[(case + 2 * i) % lengths.len()];
            let x = rows(&mut rng, lengths.iter().sum(), &mixture);
            let transmat = random_rows(&mut rng, k);
            let startprob = random_rows(&mut rng, k).row(0).to_owned();
            let model = HiddenMarkov::new(startprob, transmat, mixture).unwrap();
            let weights: Vec<f64> = (0..lengths.len()).map(|s| [1.0, 0.0, 2.5][s % 3]).collect();
            compare(&model, &x, lengths, (i % 2 == 0).then_some(&weights));
        }
    }
}

/// States that emit from mixtures.
#[test]
fn mixtures_of_states() {
    for (k, m) in [(1, 2), (3, 2), (4, 3), (5, 5)] {
        let mut rng = ChaCha8Rng::seed_from_u64(10 + m);
        for mixture in of_each_type(&mut rng, k * m as usize, 2) {
            let x = rows(&mut rng, 331, &mixture);
            let (startprob, transmat) = (Array1::from_elem(k, 1.0 / k as f64), random_rows(&mut rng, k));
            let model = HiddenMarkov::new(startprob, transmat, mixture).unwrap();
            compare(&model, &x, &[300, 31], Some(&[2.0, 0.5]));
        }
    }
}

/// Missing values, of which some rows have no others, under covariances without matrices.
#[test]
fn missing_values() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    for mixture in of_each_type(&mut rng, 4, 3).into_iter().filter(|m| !m.covariance_type().has_matrices()) {
        let mut x = rows(&mut rng, 331, &mixture);
        x.indexed_iter_mut().filter(|((i, j), _)| (i + j) % 5 == 0 || i % 50 == 1).for_each(|(_, v)| *v = f64::NAN);
        let model = HiddenMarkov::new(Array1::from_elem(4, 0.25), random_rows(&mut rng, 4), mixture).unwrap();
        compare(&model, &x, &[300, 31], Some(&[2.0, 0.5]));
    }
}

/// Offsets of states that the transitions take back, so that these sum to other numbers than one.
#[test]
fn offsets_of_states() {
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let mixture = of_each_type(&mut rng, 3, 2).remove(0);
    let (start, transitions, offsets) =
        (random_rows(&mut rng, 3).row(0).to_owned(), random_rows(&mut rng, 3), [0.5, -1.0, 2.0]);
    let x = rows(&mut rng, 300, &mixture);
    let factors = arr1(&offsets).mapv(|v: f64| (-v).exp());
    let (less_start, less) = (&start * &factors, &transitions * &factors);
    let chain = |start, transitions, offsets| MarkovChain {
        emissions: &mixture,
        offsets,
        start,
        transitions,
        lengths: &[299, 1],
        weights: None,
    };
    let mut engine = engine(&x, true);
    let mut sums = |chain| engine.markov().unwrap().expectations(&chain).unwrap().unwrap();
    let truth = sums(chain(start.view(), transitions.view(), &[]));
    let got = sums(chain(less_start.view(), less.view(), &offsets));
    for (got, truth) in got.transitions.iter().zip(&truth.transitions) {
        assert!((got - truth).abs() < 1e-9, "{got} for {truth}");
    }
    for (got, truth) in got.log_likelihoods.iter().zip(&truth.log_likelihoods) {
        assert!((got - truth).abs() < 1e-10 * truth.abs(), "{got} for {truth}");
    }
}

/// Rows that say little of states that last long: an end takes hundreds of rows, or more than are tried, when the CPU
/// computes.
#[test]
fn ends_far_away() {
    let means = arr2(&[[0.0], [0.3]]);
    let variances = gmm_core::model::covariances::Covariances::Spherical(arr1(&[1.0, 1.0]));
    let mixture = Mixture::new(arr1(&[0.5, 0.5]), means, variances).unwrap();
    let model = |change: f64| {
        let transmat = arr2(&[[1.0 - change, change], [2.0 * change, 1.0 - 2.0 * change]]);
        HiddenMarkov::new(arr1(&[0.9, 0.1]), transmat, mixture.clone()).unwrap()
    };
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let x = rows(&mut rng, 9000, &mixture);
    let some = x.slice(s![..2000, ..]).to_owned();
    compare(&model(0.01), &some, &[1300, 700], None);
    compare(&model(1e-6), &some, &[2000], None);
    assert_eq!(sums(&model(1e-6), &x, &[9000], None, true), None);
}

/// Transitions of probability zero do not matter where no state is lost.
#[test]
fn transitions_of_zero() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mixture = of_each_type(&mut rng, 3, 2).remove(0);
    let circle = arr2(&[[0.7, 0.3, 0.0], [0.0, 0.8, 0.2], [0.4, 0.0, 0.6]]);
    let model = HiddenMarkov::new(arr1(&[1.0, 0.0, 0.0]), circle, mixture).unwrap();
    let lengths = [200, 31];
    let x = rows(&mut rng, 231, model.emissions());
    compare(&model, &x, &lengths, None);
}

/// The CPU computes where a state is lost that explains later rows, where none that is possible is near a row, and for
/// more than 32 states.
#[test]
fn what_is_left_to_the_cpu() {
    let mixture = |means: &Array2<f64>| {
        let k = means.nrows();
        let variances = gmm_core::model::covariances::Covariances::Spherical(Array1::from_elem(k, 1.0));
        Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means.clone(), variances).unwrap()
    };
    let means = arr2(&[[0.0], [40.0]]);
    let one_way = |stay: f64| arr2(&[[stay, 1.0 - stay], [0.0, 1.0]]);
    let model = |start, transmat| HiddenMarkov::new(start, transmat, mixture(&means)).unwrap();
    // The first state alone explains the last rows, and is lost in those before: nothing leads back to it.
    let mut x = Array2::from_elem((400, 1), 40.0);
    x.slice_mut(s![300.., ..]).fill(0.0);
    assert_eq!(sums(&model(arr1(&[1.0, 0.0]), one_way(0.5)), &x, &[400], None, true), None);
    // Only the second state is possible, and far from all rows.
    let far = Array2::zeros((5, 1));
    assert_eq!(sums(&model(arr1(&[0.0, 1.0]), one_way(0.5)), &far, &[5], None, true), None);
    let many = HiddenMarkov::new(
        Array1::from_elem(33, 1.0 / 33.0),
        Array2::from_elem((33, 33), 1.0 / 33.0),
        mixture(&Array2::zeros((33, 1))),
    );
    assert_eq!(sums(&many.unwrap(), &x, &[400], None, true), None);
    // Lengths that do not add up.
    let model = model(arr1(&[1.0, 0.0]), one_way(0.5));
    let samples = Samples::from_f64(x.view()).unwrap();
    let mut engine = Float64::new(Source::Host(samples, 0), Deviations::InFrame, &CudaOptions::default()).unwrap();
    let (start, transitions) = (model.startprob(), model.transmat());
    let emissions = model.emissions();
    let chain = MarkovChain { emissions, offsets: &[], start, transitions, lengths: &[399], weights: None };
    assert!(matches!(engine.markov().unwrap().expectations(&chain), Err(Error::ShapeMismatch { .. })));
}
