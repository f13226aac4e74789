//! Bad input.
use super::Numbers;
use gmm_hmm::{Error, HiddenMarkov, Options, Priors, Sequences};
use gmm_host::{CovarianceModel, Covariances, Mixture, Samples};
use ndarray::{Array1, Array2, array, s};

fn text<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn sequences() {
    let x = Array2::<f64>::zeros((5, 1));
    let of = |lengths: &[usize]| Sequences::new(Samples::from_f64(x.view()).unwrap(), lengths);
    assert_eq!(
        text(of(&[2, 2])),
        "the lengths of the sequences add up to 4, but the data has 5 rows; they must be equal"
    );
    assert_eq!(text(of(&[2, 0, 3])), "sequence 1 (counted from 0) has no rows; leave it out");
    assert!(text(of(&[usize::MAX, 6])).contains("but the data has 5 rows"));
    assert!(matches!(of(&[]), Err(Error::NoSequence)));
    assert!(text(of(&[2, 3]).unwrap().with_weights(vec![1.0])).contains("expected [2]"));
    assert!(text(of(&[2, 3]).unwrap().with_weights(vec![1.0, f64::NAN])).starts_with("the weight of sequence 1 "));
    assert!(matches!(of(&[2, 3]).unwrap().with_weights(vec![0.0; 2]), Err(Error::NoSequence)));
    let nan = array![[1.0], [f64::NAN]];
    assert!(Samples::from_f64(nan.view()).is_err());
}

#[test]
fn models() {
    let emissions =
        || Mixture::new(array![0.5, 0.5], array![[0.0], [1.0]], Covariances::Spherical(array![1.0, 1.0])).unwrap();
    let of = |start: &[f64], transmat: Array2<f64>| HiddenMarkov::new(start.to_vec().into(), transmat, emissions());
    let half = || array![[0.5, 0.5], [0.5, 0.5]];
    assert_eq!(text(of(&[0.5, 0.6], half())), "startprob sums to 1.1, not to 1; divide it by its sum");
    assert_eq!(
        text(of(&[0.5, 0.5], array![[0.5, 0.5], [0.5, 0.4]])),
        "row 1 of transmat sums to 0.9, not to 1; divide it by its sum"
    );
    assert!(text(of(&[1.5, -0.5], half())).starts_with("startprob holds -0.5 at position 1 "));
    assert!(text(of(&[f64::NAN, 1.0], half())).starts_with("startprob holds NaN at position 0 "));
    assert!(text(of(&[0.2, 0.3, 0.5], half())).contains("the shape of startprob"));
    assert!(text(of(&[0.5, 0.5], array![[1.0]])).contains("the shape of transmat"));
    assert!(text(of(&[0.5, 0.5], half()).unwrap().tied_within_states()).contains("expected `full`"));
    let other = array![[1.0, 2.0]];
    assert!(
        text(of(&[0.5, 0.5], half()).unwrap().score(&Sequences::one(Samples::from_f64(other.view()).unwrap())))
            .contains("expected [1, 1]")
    );
    assert!(text(of(&[0.5, 0.5], half()).unwrap().sample(3, 0, Some(2))).starts_with("the first state is 2"));
}

/// A sequence of probability zero has the score −∞ and no NaN, and a fit says which one it is.
#[test]
fn impossible_sequences() {
    let emissions =
        Mixture::new(array![0.5, 0.5], array![[0.0], [1.0]], Covariances::Spherical(array![1e-3, 1.0])).unwrap();
    let hmm = HiddenMarkov::new(array![1.0, 0.0], array![[1.0, 0.0], [0.0, 1.0]], emissions).unwrap();
    for n in [3, 3000] {
        let mut x = Array2::<f64>::zeros((n + 2, 1));
        x[[3, 0]] = 1e200;
        let sequences = Sequences::new(Samples::from_f64(x.view()).unwrap(), &[2, n]).unwrap();
        let (scores, gamma) = hmm.forward_backward(&sequences).unwrap();
        assert!(scores[0].is_finite() && scores[1] == f64::NEG_INFINITY);
        assert!(gamma.row(0).sum() == 1.0 && gamma.row(3).sum() == 0.0 && gamma.iter().all(|v| !v.is_nan()));
        assert_eq!(hmm.score(&sequences).unwrap(), scores);
        let (paths, _) = hmm.viterbi(&sequences).unwrap();
        assert!(paths[0].is_finite() && paths[1] == f64::NEG_INFINITY);
        assert!(matches!(hmm.expectations(&sequences), Err(Error::ImpossibleSequence { sequence: 1 })));
        let weighted = sequences.with_weights(vec![1.0, 0.0]).unwrap();
        assert!(hmm.expectations(&weighted).unwrap().log_likelihood.is_finite());
    }
    // The impossible row lies in the third chunk. The end of the chunk before is not known, that of its own is.
    let mut x = Array2::<f64>::zeros((4002, 1));
    x.slice_mut(s![1502..1512, ..]).fill(60.0);
    x.slice_mut(s![1750..2350, ..]).fill(f64::NAN);
    x[[2502, 0]] = 1e200;
    let emissions = Mixture::new(
        Array1::from_elem(3, 1.0 / 3.0),
        array![[0.0], [6.0], [12.0]],
        Covariances::Spherical(Array1::ones(3)),
    );
    let transmat = array![[1.0 - 1e-9, 1e-9, 0.0], [0.0, 1.0 - 1e-9, 1e-9], [1e-9, 0.0, 1.0 - 1e-9]];
    let hmm = HiddenMarkov::new(array![1.0, 0.0, 0.0], transmat, emissions.unwrap()).unwrap();
    let sequences = Sequences::new(Samples::with_missing(x.view()).unwrap(), &[2, 4000]).unwrap();
    let expectations = hmm.expectations(&sequences.with_weights(vec![1.0, 0.0]).unwrap()).unwrap();
    assert!((expectations.statistics.counts().sum() - 2.0).abs() < 1e-12);
}

#[test]
fn fits() {
    let x = Numbers(1).array(5, 2);
    let sequences = Sequences::one(Samples::from_f64(x.view()).unwrap());
    assert!(text(HiddenMarkov::start(6, CovarianceModel::VVI, &sequences, 0)).contains("6·1"));
    let start = HiddenMarkov::start(2, CovarianceModel::VVI, &sequences, 0).unwrap();
    for (options, said) in [
        (Options { n_iter: 0, ..Options::default() }, "n_iter is 0"),
        (Options { tol: f64::NAN, ..Options::default() }, "tol is NaN"),
        (Options { reg_covar: -1.0, ..Options::default() }, "reg_covar is -1"),
    ] {
        assert!(text(options.fit(start.clone(), &sequences)).starts_with(said));
    }
    let none = Priors::none(&start);
    for (priors, part) in [
        (Priors { start: array![0.0], ..none.clone() }, "the prior of startprob"),
        (Priors { start: array![0.0, f64::NAN], ..none.clone() }, "the prior of startprob is NaN"),
        (Priors { means_weight: array![0.0, -1.0], ..none.clone() }, "means_weight of the prior is -1"),
        (Priors { scatter: Covariances::Diag(Array2::from_elem((2, 2), f64::INFINITY)), ..none }, "covariance is inf"),
    ] {
        let got = text(Options { priors: Some(priors), ..Options::default() }.fit(start.clone(), &sequences));
        assert!(got.contains(part), "{got}");
    }
}
