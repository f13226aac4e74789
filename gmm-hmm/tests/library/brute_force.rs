//! Sums over all paths of short sequences.
use super::Numbers;
use gmm_hmm::{HiddenMarkov, Sequences};
use gmm_host::{CovarianceModel, Covariances, Mixture, Samples};
use ndarray::{Array1, Array2, ArrayView2, array};

/// log p, p(state | rows), p(pair of states | rows) summed over the rows, and the best path with its log probability.
struct All {
    log_p: f64,
    gamma: Array2<f64>,
    pairs: Array2<f64>,
    best: (f64, Vec<usize>),
}

fn log_sum(v: &[f64]) -> f64 {
    let most = v.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY { most } else { most + v.iter().map(|v| (v - most).exp()).sum::<f64>().ln() }
}

fn all_paths(model: &HiddenMarkov, x: ArrayView2<'_, f64>) -> All {
    let (k, n) = (model.n_states(), x.nrows());
    let log_b = Array2::from_shape_fn((n, k), |(t, state)| {
        let mixture = model.mixture_of(state).unwrap();
        let mut log_p = vec![0.0; mixture.n_components()];
        gmm_core::model::density::Density::new(&mixture).evaluate(x.row(t), &mut log_p)
    });
    let paths: Vec<Vec<usize>> =
        (0..k.pow(n as u32)).map(|i| (0..n).map(|t| i / k.pow(t as u32) % k).collect()).collect();
    let log_of = |path: &Vec<usize>| {
        let mut log = model.startprob()[path[0]].ln() + log_b[[0, path[0]]];
        for t in 1..n {
            log += model.transmat()[[path[t - 1], path[t]]].ln() + log_b[[t, path[t]]];
        }
        log
    };
    let logs: Vec<f64> = paths.iter().map(log_of).collect();
    let log_p = log_sum(&logs);
    let (mut gamma, mut pairs) = (Array2::zeros((n, k)), Array2::zeros((k, k)));
    for (path, log) in paths.iter().zip(&logs) {
        let p = (log - log_p).exp();
        (0..n).for_each(|t| gamma[[t, path[t]]] += p);
        (1..n).for_each(|t| pairs[[path[t - 1], path[t]]] += p);
    }
    let best = (0..paths.len()).fold(0, |best, i| if logs[i] > logs[best] { i } else { best });
    All { log_p, gamma, pairs, best: (logs[best], paths[best].clone()) }
}

fn check(model: &HiddenMarkov, x: &Array2<f64>) {
    let want = all_paths(model, x.view());
    let sequences = Sequences::one(Samples::with_missing(x.view()).unwrap());
    let (scores, gamma) = model.forward_backward(&sequences).unwrap();
    // Rounding of a few hundred operations.
    let near = |got: f64, want: f64| assert!((got - want).abs() <= 1e-11 * want.abs().max(1.0), "{got} for {want}");
    near(scores[0], want.log_p);
    near(model.score(&sequences).unwrap()[0], want.log_p);
    gamma.iter().zip(&want.gamma).for_each(|(got, want)| near(*got, *want));
    let expectations = model.expectations(&sequences).unwrap();
    expectations.transitions.iter().zip(&want.pairs).for_each(|(got, want)| near(*got, *want));
    expectations.start.iter().zip(want.gamma.row(0)).for_each(|(got, want)| near(*got, *want));
    let (scores, path) = model.viterbi(&sequences).unwrap();
    near(scores[0], want.best.0);
    assert_eq!(path, want.best.1);
    near(model.score_paths(&sequences, &path).unwrap()[0], want.best.0);
}

#[test]
fn results_are_sums_over_all_paths() {
    let mut numbers = Numbers(1);
    for (k, m, n) in [(1, 1, 4), (2, 1, 7), (3, 1, 5), (2, 3, 6), (4, 2, 4), (9, 1, 3)] {
        for model in [CovarianceModel::VVV, CovarianceModel::EEE, CovarianceModel::VVI, CovarianceModel::VII] {
            for apart in [1.0, 4.0, 100.0] {
                let hmm = numbers.model(k, m, 2, model, apart);
                check(&hmm, &(numbers.array(n, 2) * apart));
            }
        }
    }
}

#[test]
fn missing_values_are_integrated_out() {
    let mut numbers = Numbers(2);
    for model in [CovarianceModel::VVV, CovarianceModel::VVI] {
        let hmm = numbers.model(3, 2, 3, model, 3.0);
        let mut x = numbers.array(5, 3) * 3.0;
        x[[1, 0]] = f64::NAN;
        x[[2, 1]] = f64::NAN;
        x.row_mut(3).fill(f64::NAN);
        check(&hmm, &x);
    }
}

/// States whose probabilities differ by thousands of powers of e, joined by impossible and by unlikely transitions.
#[test]
fn nothing_underflows() {
    let transitions = [
        array![[1.0, 0.0], [0.0, 1.0]],
        array![[0.5, 0.5], [0.0, 1.0]],
        array![[1.0 - 1e-200, 1e-200], [1e-200, 1.0 - 1e-200]],
        array![[1.0 - 1e-100, 1e-100], [1e-100, 1.0 - 1e-100]],
        array![[0.5, 0.5], [1e-312, 1.0]],
        array![[0.0, 1.0], [1.0, 0.0]],
        array![[0.5, 0.5], [0.5, 0.5]],
    ];
    for (transmat, start) in transitions.iter().flat_map(|t| [(t, array![0.5, 0.5]), (t, array![1.0, 0.0])]) {
        for places in [
            [0.0, 0.0, 0.0, 99.0, 99.0, 99.0, 99.0],
            [99.0, 0.0, 99.0, 99.0, 0.0, 99.0, 0.0],
            [60.0, 0.0, 99.0, 40.0, 50.0, 99.0, 99.0],
        ] {
            let emissions =
                Mixture::new(array![0.5, 0.5], array![[0.0], [99.0]], Covariances::Diag(array![[1.0], [1.0]])).unwrap();
            let hmm = HiddenMarkov::new(start.clone(), transmat.clone(), emissions).unwrap();
            let x = Array1::from(places.to_vec()).insert_axis(ndarray::Axis(1));
            check(&hmm, &x);
        }
    }
}
