//! Relations between results.
use super::Numbers;
use gmm_hmm::{Frozen, HiddenMarkov, Options, Selection, Sequences, Stream};
use gmm_host::{CovarianceModel, CpuEvaluator, Evaluator, Samples, WEIGHT_SUM_TOLERANCE};
use ndarray::{Array1, Array2, Axis, concatenate};
use std::sync::atomic::{AtomicUsize, Ordering};

fn near(what: &str, got: f64, want: f64, tolerance: f64) {
    assert!((got - want).abs() <= tolerance * want.abs().max(1.0), "{what}: {got} for {want}");
}

#[test]
fn equal_transitions_make_a_mixture() {
    // Few features, and so many that matrix products compute the densities and the moments.
    for (n, d) in [(3000, 3), (400, 150)] {
        let mut numbers = Numbers(3);
        let hmm = numbers.model(4, 1, d, CovarianceModel::VVV, 3.0);
        let weights = hmm.emissions().weights().to_owned();
        assert!((weights.sum() - 1.0).abs() < WEIGHT_SUM_TOLERANCE);
        let transmat = Array2::ones((4, 1)) * &weights;
        let hmm = HiddenMarkov::new(weights, transmat, hmm.emissions().clone()).unwrap();
        let x = numbers.array(n, d) * 3.0;
        let samples = Samples::from_f64(x.view()).unwrap();
        let sequences = Sequences::one(samples.clone());
        let (scores, gamma) = hmm.forward_backward(&sequences).unwrap();
        let mut evaluator = CpuEvaluator::new(samples).unwrap();
        near("log-likelihood", scores[0], evaluator.log_likelihood(hmm.emissions()).unwrap(), 1e-12);
        let r = evaluator.predict_proba(hmm.emissions()).unwrap();
        gamma.iter().zip(&r).for_each(|(got, want)| near("probability", *got, *want, 1e-11));
        let (got, want) =
            (hmm.expectations(&sequences).unwrap().statistics, evaluator.statistics(hmm.emissions()).unwrap());
        got.means().iter().zip(&want.means()).for_each(|(got, want)| near("mean", *got, *want, 1e-10));
        let scatter = got.scatter().iter().zip(want.scatter().iter());
        scatter.for_each(|(got, want)| near("scatter", got, want, 1e-10));
    }
}

#[test]
fn weights_are_repetitions() {
    let mut numbers = Numbers(4);
    let hmm = numbers.model(3, 2, 2, CovarianceModel::VVV, 3.0);
    let (a, b) = (numbers.array(40, 2) * 3.0, numbers.array(25, 2) * 3.0);
    let once = concatenate(Axis(0), &[a.view(), b.view()]).unwrap();
    let repeated = concatenate(Axis(0), &[a.view(), b.view(), b.view(), b.view()]).unwrap();
    let once = Sequences::new(Samples::from_f64(once.view()).unwrap(), &[40, 25]).unwrap();
    let weighted = once.with_weights(vec![1.0, 3.0]).unwrap();
    let repeated = Sequences::new(Samples::from_f64(repeated.view()).unwrap(), &[40, 25, 25, 25]).unwrap();
    let (got, want) = (hmm.expectations(&weighted).unwrap(), hmm.expectations(&repeated).unwrap());
    near("log-likelihood", got.log_likelihood, want.log_likelihood, 1e-13);
    near("weight", got.statistics.weight(), want.statistics.weight(), 0.0);
    got.start.iter().zip(&want.start).for_each(|(got, want)| near("start", *got, *want, 1e-12));
    got.transitions.iter().zip(&want.transitions).for_each(|(got, want)| near("transition", *got, *want, 1e-12));
    got.statistics
        .scatter()
        .iter()
        .zip(want.statistics.scatter().iter())
        .for_each(|(got, want)| near("scatter", got, want, 1e-12));
    // Sums of parts are sums of the whole.
    let parts = [(a, 1.0), (b, 3.0)].map(|(x, weight)| {
        let one = Sequences::one(Samples::from_f64(x.view()).unwrap()).with_weights(vec![weight]).unwrap();
        hmm.expectations(&one).unwrap()
    });
    let [mut sum, other] = parts;
    sum.merge(&other).unwrap();
    near("log-likelihood", sum.log_likelihood, want.log_likelihood, 1e-13);
    sum.transitions.iter().zip(&want.transitions).for_each(|(got, want)| near("transition", *got, *want, 1e-12));
    sum.statistics
        .scatter()
        .iter()
        .zip(want.statistics.scatter().iter())
        .for_each(|(got, want)| near("scatter", got, want, 1e-12));
}

/// Float32 samples, and samples in columns, have the results of their copies.
#[test]
fn forms_of_arrays_do_not_matter() {
    let mut numbers = Numbers(5);
    let hmm = numbers.model(3, 1, 3, CovarianceModel::VVI, 2.0);
    let x = (numbers.array(100, 3) * 3.0).mapv(|v| v as f32);
    let copy = x.mapv(f64::from);
    let columns = copy.t().as_standard_layout().into_owned();
    let want = hmm.expectations(&Sequences::one(Samples::from_f64(copy.view()).unwrap())).unwrap();
    assert_eq!(hmm.expectations(&Sequences::one(Samples::from_f32(x.view()).unwrap())).unwrap(), want);
    assert_eq!(hmm.expectations(&Sequences::one(Samples::from_f64(columns.t()).unwrap())).unwrap(), want);
}

/// All covariance models, mixtures, missing values and many sequences.
#[test]
fn the_likelihood_never_falls() {
    for (i, model) in CovarianceModel::ALL.into_iter().enumerate() {
        for (m, missing) in [(1, false), (2, false), (1, true)] {
            let mut numbers = Numbers(7 + i as u64);
            let (mut x, _) = numbers.model(3, m, 3, model, 5.0).sample(600, i as u64, None).unwrap();
            if missing {
                x.iter_mut().step_by(7).for_each(|v| *v = f64::NAN);
            }
            let sequences = Sequences::new(Samples::with_missing(x.view()).unwrap(), &[300, 1, 99, 200]).unwrap();
            let start = HiddenMarkov::start_mixtures(3, m, model, &sequences, 0).unwrap();
            let options = Options { n_iter: 25, tol: f64::NEG_INFINITY, reg_covar: 0.0, ..Options::default() };
            let fit = options.fit(start, &sequences).unwrap();
            assert_eq!(fit.history.len(), 25);
            for pair in fit.history.windows(2) {
                assert!(pair[1] >= pair[0] - 1e-9 * pair[0].abs(), "{model} M={m} missing={missing}: {pair:?}");
            }
            assert!(fit.history[24] > fit.history[0] + 1.0);
        }
    }
}

#[test]
fn frozen_parameters_stay() {
    let mut numbers = Numbers(8);
    let start = numbers.model(3, 2, 2, CovarianceModel::VVI, 3.0);
    let x = numbers.array(200, 2) * 3.0;
    let sequences = Sequences::one(Samples::from_f64(x.view()).unwrap());
    let step = |frozen| Options { frozen, ..Options::default() }.step(&start, &sequences).unwrap().0;
    let all = Frozen { start: true, transitions: true, means: true, covariances: true, weights: true };
    let parts = |hmm: &HiddenMarkov| {
        let emissions = hmm.emissions();
        let means = emissions.means().iter().copied().collect::<Vec<_>>();
        [
            hmm.startprob().to_vec(),
            hmm.transmat().iter().copied().collect(),
            means,
            emissions.covariances().iter().collect(),
            hmm.weights().iter().copied().collect(),
        ]
    };
    let before = parts(&start);
    let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-14);
    assert!(parts(&step(all)).iter().zip(&before).all(|(a, b)| close(a, b)));
    let but: [fn(&mut Frozen); 5] = [
        |f| f.start = false,
        |f| f.transitions = false,
        |f| f.means = false,
        |f| f.covariances = false,
        |f| f.weights = false,
    ];
    for (part, free) in but.iter().enumerate() {
        let mut frozen = all;
        free(&mut frozen);
        let after = parts(&step(frozen));
        (0..5).for_each(|i| assert_eq!(close(&after[i], &before[i]), i != part, "part {i} with {part} free"));
    }
}

#[test]
fn impossible_transitions_stay_impossible() {
    let mut numbers = Numbers(9);
    let hmm = numbers.model(3, 1, 2, CovarianceModel::VVI, 3.0);
    let transmat = ndarray::array![[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]];
    let left_right = HiddenMarkov::new(ndarray::array![1.0, 0.0, 0.0], transmat, hmm.emissions().clone()).unwrap();
    let x = numbers.array(300, 2) * 3.0;
    let sequences = Sequences::new(Samples::from_f64(x.view()).unwrap(), &[100, 100, 100]).unwrap();
    let fit = Options::default().fit(left_right, &sequences).unwrap();
    for (i, j) in [(0, 2), (1, 0), (2, 0), (2, 1)] {
        assert_eq!(fit.model.transmat()[[i, j]], 0.0);
    }
    assert_eq!(fit.model.startprob().to_vec(), [1.0, 0.0, 0.0]);
    let (_, states) = fit.model.viterbi(&sequences).unwrap();
    assert!(states.chunks(100).all(|states| states.is_sorted() && states[0] == 0));
}

/// A drawn sequence has the model's frequencies, and the same bits for the same seed.
#[test]
fn samples_have_the_models_frequencies() {
    let mut numbers = Numbers(10);
    let hmm = numbers.model(3, 2, 2, CovarianceModel::VVV, 3.0);
    let (x, states) = hmm.sample(60_000, 7, None).unwrap();
    assert_eq!(hmm.sample(60_000, 7, None).unwrap(), (x.clone(), states.clone()));
    let shares = Array1::from_shape_fn(3, |k| states.iter().filter(|s| **s == k).count() as f64 / 60_000.0);
    // Five standard deviations of a share, with room for the dependence between rows.
    let stationary = hmm.stationary_distribution();
    shares.iter().zip(&stationary).for_each(|(got, want)| assert!((got - want).abs() < 0.02, "{got} for {want}"));
    near("stationary", (&stationary.dot(&hmm.transmat()) - &stationary).mapv(f64::abs).sum(), 0.0, 1e-13);
    let sequences = Sequences::one(Samples::from_f64(x.view()).unwrap());
    let fit = Options { n_iter: 5, ..Options::default() }.fit(hmm.clone(), &sequences).unwrap();
    hmm.transmat()
        .iter()
        .zip(fit.model.transmat())
        .for_each(|(want, got)| assert!((got - want).abs() < 0.05, "{got} for {want}"));
    assert_eq!(hmm.sample(5, 1, Some(2)).unwrap().1[0], 2);
}

#[test]
fn criteria_find_the_number_of_states() {
    let mut numbers = Numbers(11);
    let hmm = numbers.model(3, 1, 2, CovarianceModel::VVI, 12.0);
    let (x, _) = hmm.sample(900, 3, None).unwrap();
    let sequences = Sequences::new(Samples::from_f64(x.view()).unwrap(), &[300, 300, 300]).unwrap();
    let selection = Selection {
        n_states: vec![1, 2, 3, 4, 5],
        n_mix: 1,
        model: CovarianceModel::VVI,
        options: Options::default(),
        n_init: 2,
        folds: 3,
        seed: 0,
    };
    let n_ended = AtomicUsize::new(0);
    let found = selection.candidates(&sequences, |n| assert!(n_ended.fetch_add(1, Ordering::Relaxed) < n)).unwrap();
    assert_eq!(n_ended.into_inner(), 5 * 2 * 4);
    let best = (0..5).fold(0, |best, i| if found[i].bic < found[best].bic { i } else { best });
    assert_eq!(best + 1, 3);
    // Each part by hand, and no number of states below the truth is as good.
    let by_hand = |k: usize, part: usize| {
        let weights = (0..3).map(|s| if s == part { 0.0 } else { 1.0 }).collect();
        let rest = sequences.clone().with_weights(weights).unwrap();
        let fits = [0, 1].map(|seed| {
            let start = HiddenMarkov::start(k, CovarianceModel::VVI, &sequences, seed).unwrap();
            Options::default().fit(start, &rest).unwrap()
        });
        let best = usize::from(fits[1].history.last() >= fits[0].history.last());
        fits[best].model.score(&sequences).unwrap()[part]
    };
    for k in [2, 3] {
        let want = (0..3).map(|part| by_hand(k, part)).sum();
        near("held out", found[k - 1].held_out.unwrap(), want, 1e-12);
    }
    assert!(found[2].held_out > found[1].held_out && found[1].held_out > found[0].held_out);
    let bad = Selection { folds: 4, ..selection };
    assert!(bad.candidates(&sequences, |_| {}).unwrap_err().to_string().starts_with("folds is 4"));
}

#[test]
fn fits_go_on_from_checkpoints() {
    let mut numbers = Numbers(13);
    let start = numbers.model(3, 2, 2, CovarianceModel::VVV, 3.0);
    let x = numbers.array(200, 2) * 3.0;
    let sequences = Sequences::one(Samples::from_f64(x.view()).unwrap());
    let options = Options { n_iter: 8, ..Options::default() };
    let mut checkpoint = None;
    let whole = options
        .fit_watched(start, Vec::new(), &sequences, |model, history| {
            if history.len() == 5 {
                checkpoint = Some((model.clone(), history.to_vec()));
            }
        })
        .unwrap();
    let (model, history) = checkpoint.unwrap();
    assert_eq!(history, whole.history[..5]);
    assert_eq!(options.fit_watched(model.clone(), history.clone(), &sequences, |_, _| {}).unwrap(), whole);
    // A longer fit than wanted is not cut.
    let shorter = Options { n_iter: 3, ..options.clone() };
    let again = shorter.fit_watched(model.clone(), history.clone(), &sequences, |_, _| {}).unwrap();
    assert_eq!(again.history, history);
    let other = (numbers.array(200, 2) * 3.0, [200]);
    let other = Sequences::new(Samples::from_f64(other.0.view()).unwrap(), &other.1).unwrap();
    let error = options.fit_watched(model, history, &other, |_, _| {}).unwrap_err().to_string();
    assert!(error.contains("give the data of the checkpoint"), "{error}");
}

/// One chunk is an iteration; with α = 1 equal chunks stay one; and a stream of chunks finds the truth.
#[test]
fn a_stream_teaches_a_model() {
    let mut numbers = Numbers(14);
    let truth = numbers.model(3, 1, 2, CovarianceModel::VVI, 8.0);
    let chunk = |seed| truth.sample(2000, seed, None).unwrap().0;
    let options = Options { reg_covar: 0.0, ..Options::default() };
    let first = chunk(0);
    let sequences = Sequences::new(Samples::from_f64(first.view()).unwrap(), &[500; 4]).unwrap();
    let start = HiddenMarkov::start(3, CovarianceModel::VVI, &sequences, 0).unwrap();
    let mut stream = Stream::new(1.0).unwrap();
    let (want, log_likelihood) = options.step(&start, &sequences).unwrap();
    for _ in 0..2 {
        let (got, of_chunk) = options.learn(&start, &sequences, &mut stream).unwrap();
        assert_eq!(of_chunk, log_likelihood);
        got.transmat().iter().zip(want.transmat()).for_each(|(got, want)| near("transition", *got, *want, 1e-12));
        let means = [&got, &want].map(|model| model.emissions().means().to_owned());
        means[0].iter().zip(&means[1]).for_each(|(got, want)| near("mean", *got, *want, 1e-12));
        let covariances = got.emissions().covariances().iter().zip(want.emissions().covariances().iter());
        covariances.for_each(|(got, want)| near("covariance", got, want, 1e-11));
    }
    let mut stream = Stream::new(0.7).unwrap();
    let mut model = options.fit(start, &sequences).unwrap().model;
    let before = model.clone();
    for seed in 1..60 {
        let x = chunk(seed);
        let sequences = Sequences::new(Samples::from_f64(x.view()).unwrap(), &[500; 4]).unwrap();
        model = options.learn(&model, &sequences, &mut stream).unwrap().0;
    }
    // Per row, on rows that none has seen.
    let x = truth.sample(50_000, 1000, None).unwrap().0;
    let sequences = Sequences::one(Samples::from_f64(x.view()).unwrap());
    let score = |model: &HiddenMarkov| model.score(&sequences).unwrap()[0];
    assert!(score(&truth) - score(&model) < 0.2 * (score(&truth) - score(&before)));
    assert!(Stream::new(0.5).unwrap_err().to_string().starts_with("decay is 0.5"));
}

#[cfg(feature = "serde")]
#[test]
fn files_keep_models() {
    let mut numbers = Numbers(12);
    for m in [1, 2] {
        let hmm = numbers.model(3, m, 2, CovarianceModel::EEV, 3.0).tied_within_states().unwrap();
        let text = serde_json::to_string(&hmm).unwrap();
        let again: HiddenMarkov = serde_json::from_str(&text).unwrap();
        assert_eq!(again.n_parameters(), hmm.n_parameters());
        assert_eq!(again.startprob(), hmm.startprob());
    }
}
