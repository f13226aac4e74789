//! E-steps of hidden Markov models on a GPU, against the CPU.
use crate::common::{mixture, normal};
use crate::gpu_harness::Test;
use gmm_hmm::{Expectations, HiddenMarkov, Options, Sequences};
use gmm_host::{CovarianceType, Device, Evaluator, MarkovChain, Samples};
use ndarray::{Array1, Array2};

pub fn tests() -> Vec<Test> {
    vec![
        ("expectations", expectations),
        ("expectations_in_float32", expectations_in_float32),
        ("fits", fits),
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
