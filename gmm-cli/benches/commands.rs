//! What a program that embeds `gaussmix`, or a user of the command line, waits for. Nothing is
//! compared with other software.
//!
//! `cargo bench -p gaussmix-cli --bench commands`; with `-- --test` each case runs once.
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use gaussmix::data::Samples;
use gaussmix::device::{Device, LoadOptions};
use gaussmix::fit::GaussianMixtureParams;
use gaussmix::io;
use gaussmix::model::{CovarianceType, Covariances, Mixture};
use ndarray::{Array2, arr1};
use std::hint::black_box;
use std::process::{Command, Stdio};

const D: usize = 13;
const K: usize = 8;

/// A mixture of well separated components; `shift` moves all of them.
fn mixture(shift: f64) -> Mixture {
    let means = Array2::from_shape_fn((K, D), |(c, j)| ((c * D + j) as f64 * 0.7).sin() * 3.0 + shift);
    let variances = Array2::from_shape_fn((K, D), |(c, j)| 0.5 + ((c + j) % 3) as f64 / 2.0);
    Mixture::new(arr1(&[1.0 / K as f64; K]), means, Covariances::Diag(variances)).expect("usable parameters")
}

/// Samples drawn from [`mixture`], in float32.
fn data(n: usize) -> Array2<f32> {
    mixture(0.0).sample(n, 2018).expect("memory for the samples").0.mapv(|v| v as f32)
}

/// One evaluation of the likelihood over resident data, with other parameters each time, as Markov
/// chains need it.
fn likelihood(c: &mut Criterion) {
    let x = data(1_000_000);
    let samples = Samples::from_f32(x.view()).expect("finite samples");
    let mut evaluator = gaussmix::device::load(Device::Auto, samples, &LoadOptions::default()).expect("a device");
    // `auto` may move to a GPU; that is not to happen while the time is taken.
    evaluator.sampling().into_iter().for_each(|sampling| sampling.settle());
    let mixtures: Vec<Mixture> = (0..16).map(|i| mixture(1e-3 * f64::from(i))).collect();
    let mut turn = (0..mixtures.len()).cycle();
    c.bench_function("likelihood/auto/diag/N=1000000/D=13/K=8/float32", |b| {
        b.iter(|| evaluator.log_likelihood(&mixtures[turn.next().unwrap_or(0)]).expect("a likelihood"));
    });
}

/// Ten iterations of EM over samples in memory, from a given start, and the scores of all samples.
fn fit_and_score(c: &mut Criterion) {
    let x = data(20_000);
    let load = || {
        let samples = Samples::from_f32(x.view()).expect("finite samples");
        gaussmix::device::load(Device::Cpu, samples, &LoadOptions::default()).expect("the CPU")
    };
    let params = GaussianMixtureParams::default().n_components(K).covariance_type(CovarianceType::Diag);
    let params = params.start(mixture(0.1)).max_iter(10).tol(0.0).check().expect("usable parameters");
    c.bench_function("fit of ten iterations/cpu/diag/N=20000/D=13/K=8/float32", |b| {
        b.iter_batched_ref(load, |evaluator| params.fit(evaluator.as_mut()).expect("a fit"), BatchSize::PerIteration);
    });
    let (mut evaluator, model) = (load(), mixture(0.1));
    c.bench_function("score_samples/cpu/diag/N=20000/D=13/K=8/float32", |b| {
        b.iter(|| evaluator.score_samples(&model).expect("scores"));
    });
}

/// The commands, from the start of the process to its end, on files.
fn commands(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    let x = io::Output::create(path("x.npy")).expect("a result file");
    x.write(|file| io::write_npy(&data(20_000), file)).expect("the data");
    io::ModelOutput::create(path("m.json")).and_then(|m| m.write(&mixture(0.1))).expect("the model");
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gmm"));
        let status = command.args(args).current_dir(folder.path()).stdout(Stdio::null()).status();
        assert!(status.expect("the program").success());
    };
    let fit = ["fit", "x.npy", "--init", "m.json", "--max-iter", "10", "--tol", "0", "--device", "cpu", "-o", "f.json"];
    c.bench_function("gmm fit of ten iterations/cpu/diag/N=20000/D=13/K=8/float32", |b| {
        b.iter(|| run(black_box(&fit)))
    });
    let score = ["score", "m.json", "x.npy", "--device", "cpu"];
    c.bench_function("gmm score/cpu/diag/N=20000/D=13/K=8/float32", |b| b.iter(|| run(black_box(&score))));
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = likelihood, fit_and_score, commands
}
criterion_main!(benches);
