//! E-steps of hidden Markov models on a GPU, against the CPU.
use crate::common::{mixture, normal};
use crate::gpu_harness::Test;
use gmm_hmm::{Expectations, Frozen, HiddenMarkov, Hyperparameters, Options, Sequences, VariationalHiddenMarkov};
use gmm_host::{CovarianceType, Device, Evaluator, MarkovChain, Samples};
use ndarray::{Array1, Array2};

pub fn tests() -> Vec<Test> {
    vec![
        ("expectations", expectations),
        ("expectations_in_float32", expectations_in_float32),
        ("fits", fits),
        ("mixtures_of_states", mixtures_of_states),
        ("missing_values", missing_values),
        ("variational", variational),
        ("ends_far_away", ends_far_away),
        ("lost_states", lost_states),
    ]
}

/// A model whose states change every ten rows or so, and rows that it could emit.
fn problem(k: usize, d: usize, covariance_type: CovarianceType, n: usize) -> (HiddenMarkov, Array2<f64>) {
    let emissions = mixture(k as u64, covariance_type, k, d, 0.0);
    let noise = normal(n as u64, n, d, 0.0);
    let x = Array2::from_shape_fn((n, d), |(i, j)| emissions.means()[[i / 11 * 5 % k, j]] + noise[[i, j]]);
    let a = |i: usize, j: usize| if i == j { 4.0 } else { 0.2 + 0.1 * ((i + 2 * j) % 5) as f64 };
    let mut transmat = Array2::from_shape_fn((k, k), |(i, j)| a(i, j));
    transmat.outer_iter_mut().for_each(|mut row| row /= row.sum());
    let startprob = Array1::from_elem(k, 1.0 / k as f64);
    (HiddenMarkov::new(startprob, transmat, emissions).unwrap(), x)
}

fn near(what: &str, got: &Expectations, truth: &Expectations, tolerance: f64) {
    let close = |name: &str, got: f64, truth: f64, scale: f64| {
        assert!((got - truth).abs() <= tolerance * scale, "{what}, {name}: {got} for {truth}");
    };
    let n = truth.statistics.weight();
    close("log-likelihood", got.log_likelihood, truth.log_likelihood, truth.log_likelihood.abs());
    got.start.iter().zip(&truth.start).for_each(|(a, b)| close("start", *a, *b, truth.start.sum()));
    got.transitions.iter().zip(&truth.transitions).for_each(|(a, b)| close("transitions", *a, *b, n));
    let (a, b) = (&got.statistics, &truth.statistics);
    a.counts().iter().zip(b.counts()).for_each(|(a, b)| close("count", *a, *b, n));
    a.means().iter().zip(b.means()).for_each(|(a, b)| close("mean", *a, *b, 100.0));
    a.scatter().iter().zip(b.scatter().iter()).for_each(|(a, b)| close("scatter", a, b, 10.0 * n));
}

/// In float64: one sequence, many, and several of several chunks, with weights; the same bits twice.
fn expectations() {
    let thousand = [100; 1000];
    let lengths: [&[usize]; 3] = [&[100_000], &thousand, &[1, 60_000, 511, 512, 38_976]];
    for (i, k) in [1, 2, 5, 8, 13, 32].into_iter().enumerate() {
        for (j, covariance_type) in CovarianceType::ALL.into_iter().enumerate() {
            let (model, x) = problem(k, [2, 5, 13][(i + j) % 3], covariance_type, 100_000);
            let lengths = lengths[(i + 2 * j) % 3];
            let weights: Vec<f64> = (0..lengths.len()).map(|s| [1.0, 2.5, 0.0][s % 3]).collect();
            let sequences = Sequences::new(Samples::from_f64(x.view()).unwrap(), lengths).unwrap();
            let sequences = if i % 2 == 0 { sequences.with_weights(weights).unwrap() } else { sequences };
            let truth = model.expectations(&sequences).unwrap();
            let on_gpu = sequences.on(Device::Cuda(0)).unwrap();
            let got = model.expectations(&on_gpu).unwrap();
            // Sums of 10⁵ rows.
            near(&format!("K={k} {covariance_type}"), &got, &truth, 1e-9);
            assert_eq!(got, model.expectations(&on_gpu).unwrap(), "the same bits every time");
        }
    }
}

/// An exponent is off by 10⁻⁵ or so.
fn expectations_in_float32() {
    for k in [3, 8, 20] {
        let (model, x) = problem(k, 4, CovarianceType::Diag, 50_000);
        let x = x.mapv(|v| v as f32);
        let sequences = Sequences::new(Samples::from_f32(x.view()).unwrap(), &[50_000]).unwrap();
        let truth = model.expectations(&sequences).unwrap();
        let on_gpu = sequences.on(Device::Cuda(0)).unwrap();
        near(&format!("K={k}"), &model.expectations(&on_gpu).unwrap(), &truth, 1e-4);
    }
}

/// Ten iterations have the log-likelihoods of the CPU's.
fn fits() {
    let (model, x) = problem(4, 3, CovarianceType::Full, 20_000);
    let sequences = Sequences::new(Samples::from_f64(x.view()).unwrap(), &[20_000]).unwrap();
    let options = Options { n_iter: 10, tol: f64::NEG_INFINITY, ..Options::default() };
    let truth = options.fit(model.clone(), &sequences).unwrap();
    let got = options.fit(model, &sequences.on(Device::Cuda(0)).unwrap()).unwrap();
    for (got, truth) in got.history.iter().zip(&truth.history) {
        assert!((got - truth).abs() <= 1e-9 * truth.abs(), "{got} for {truth}");
    }
}

/// States of three components each.
fn mixtures_of_states() {
    for covariance_type in CovarianceType::ALL {
        let (of_components, x) = problem(12, 3, covariance_type, 30_000);
        let (of_states, _) = problem(4, 3, covariance_type, 1);
        let (startprob, transmat) = (of_states.startprob().to_owned(), of_states.transmat().to_owned());
        let model = HiddenMarkov::new(startprob, transmat, of_components.emissions().clone()).unwrap();
        let sequences = Sequences::new(Samples::from_f64(x.view()).unwrap(), &[20_000, 10_000]).unwrap();
        let truth = model.expectations(&sequences).unwrap();
        let got = model.expectations(&sequences.on(Device::Cuda(0)).unwrap()).unwrap();
        near(&format!("{covariance_type}"), &got, &truth, 1e-9);
    }
}

/// A tenth of the values, and all of some rows.
fn missing_values() {
    for covariance_type in CovarianceType::ALL {
        let (model, mut x) = problem(5, 4, covariance_type, 20_000);
        let is_missing = |i: usize, j: usize| (7 * i + 3 * j).is_multiple_of(10) || i % 1000 == 500;
        x.indexed_iter_mut().filter(|((i, j), _)| is_missing(*i, *j)).for_each(|(_, v)| *v = f64::NAN);
        let sequences = Sequences::new(Samples::with_missing(x.view()).unwrap(), &[15_000, 5000]).unwrap();
        let sequences = sequences.with_weights(vec![2.0, 0.5]).unwrap();
        let truth = model.expectations(&sequences).unwrap();
        let got = model.expectations(&sequences.on(Device::Cuda(0)).unwrap()).unwrap();
        near(&format!("{covariance_type}"), &got, &truth, 1e-9);
    }
}

/// An iteration of variational inference has the bound and the posterior of the CPU's.
fn variational() {
    let (model, x) = problem(4, 2, CovarianceType::Full, 20_000);
    let of_rows = |rows: f64| Hyperparameters {
        start: Array1::from_elem(4, rows),
        transitions: model.transmat().to_owned() * rows,
        means: model.emissions().means().to_owned(),
        beta: Array1::from_elem(4, rows),
        dof: Array1::from_elem(4, rows + 2.0),
        scale: {
            let mut scale = model.emissions().covariances().clone();
            scale.map_inplace(|v| *v *= rows);
            scale
        },
    };
    let start = VariationalHiddenMarkov::new(of_rows(1.0), of_rows(100.0)).unwrap();
    let sequences = Sequences::one(Samples::from_f64(x.view()).unwrap());
    let (truth, bound) = start.step(&sequences, Frozen::default()).unwrap();
    let (got, got_bound) = start.step(&sequences.on(Device::Cuda(0)).unwrap(), Frozen::default()).unwrap();
    assert!((got_bound - bound).abs() <= 1e-9 * bound.abs(), "{got_bound} for {bound}");
    for (got, truth) in got.posterior().transitions.iter().zip(&truth.posterior().transitions) {
        assert!((got - truth).abs() <= 1e-9 * 20_000.0, "{got} for {truth}");
    }
}

/// Rows that say little of states that last long: an end takes hundreds of rows, or more than the GPU tries, when the CPU
/// computes.
fn ends_far_away() {
    let variances = gmm_host::Covariances::Spherical(Array1::ones(2));
    let means = ndarray::arr2(&[[0.0], [0.3]]);
    let emissions = gmm_host::Mixture::new(Array1::from_elem(2, 0.5), means, variances).unwrap();
    let x = normal(3, 50_000, 1, 0.1);
    for change in [0.01, 1e-6] {
        let transmat = ndarray::arr2(&[[1.0 - change, change], [2.0 * change, 1.0 - 2.0 * change]]);
        let model = HiddenMarkov::new(Array1::from(vec![0.9, 0.1]), transmat, emissions.clone()).unwrap();
        let sequences = Sequences::one(Samples::from_f64(x.view()).unwrap());
        let truth = model.expectations(&sequences).unwrap();
        let got = model.expectations(&sequences.on(Device::Cuda(0)).unwrap()).unwrap();
        near(&format!("change {change}"), &got, &truth, 1e-9);
        assert_eq!(got == truth, change < 1e-3, "the CPU computed");
    }
}

/// A state whose probability underflows, and that alone explains the last rows: the GPU refuses, the CPU computes.
fn lost_states() {
    let (model, mut x) = problem(2, 1, CovarianceType::Diag, 3000);
    x.fill(30.0);
    x.row_mut(2999).fill(model.emissions().means()[[0, 0]]);
    let (start, transmat) = (Array1::from(vec![1.0, 0.0]), ndarray::arr2(&[[0.5, 0.5], [0.0, 1.0]]));
    let mut means = model.emissions().means().to_owned();
    means[[1, 0]] = 30.0;
    let emissions =
        gmm_host::Mixture::new(model.emissions().weights().to_owned(), means, model.emissions().covariances().clone());
    let model = HiddenMarkov::new(start, transmat, emissions.unwrap()).unwrap();
    let samples = Samples::from_f64(x.view()).unwrap();
    let mut cuda = gmm_host::load(Device::Cuda(0), samples.clone(), &gmm_host::LoadOptions::new()).unwrap();
    let (start, transitions) = (model.startprob(), model.transmat());
    let emissions = model.emissions();
    let chain = MarkovChain { emissions, offsets: &[], start, transitions, lengths: &[3000], weights: None };
    assert_eq!(cuda.markov().unwrap().expectations(&chain).unwrap(), None);
    let sequences = Sequences::one(samples);
    let truth = model.expectations(&sequences).unwrap();
    assert_eq!(model.expectations(&sequences.on(Device::Cuda(0)).unwrap()).unwrap(), truth);
}
