//! The time of a step of Markov chain Monte Carlo without the likelihood, which is 1 everywhere here: `cargo bench -p
//! gaussmix --bench steps`. The name of a benchmark holds sampler, K, D and chains. The throughput counts one
//! evaluation of one chain as an element.
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gmm_host::{CovarianceType, Covariances, Mixture, Samples};
use gmm_mcmc::{Chains, DataSummary, Posterior, PosteriorModel, Prior, Sampler, Settings, Start};
use ndarray::{Array1, Array2};
use std::ops::ControlFlow;

#[path = "../gmm-mcmc/tests/common/mod.rs"]
mod common;

const THIN: usize = 100;

fn steps(c: &mut Criterion) {
    let mut group = c.benchmark_group("step");
    for (k, d, chains) in [(3, 4, 1), (8, 13, 1), (8, 13, 64)] {
        let n = 50;
        let x = Array2::from_shape_fn((n, d), |(i, j)| ((i * 7 + j * 3) as f64).sin());
        let summary = DataSummary::new(&Samples::from_f64(x.view()).unwrap());
        let model = PosteriorModel::new(k, CovarianceType::Diag, &Prior::default(), None, &summary).unwrap();
        let mixture = Mixture::new(
            Array1::from_elem(k, 1.0 / k as f64),
            Array2::zeros((k, d)),
            Covariances::Diag(Array2::ones((k, d))),
        )
        .unwrap();
        for sampler in [Sampler::METROPOLIS, Sampler::METROPOLIS_BY_COMPONENT, Sampler::NUTS, Sampler::ENSEMBLE] {
            if sampler == Sampler::NUTS && chains > 1 || sampler == Sampler::ENSEMBLE && chains == 1 {
                continue;
            }
            // Twice as many walkers as coordinates.
            let chains = if sampler == Sampler::ENSEMBLE { 2 * model.dim() } else { chains };
            let mut nothing = common::Nothing { n, d };
            let mut posterior = Posterior::new(&model, &mut nothing).unwrap();
            let settings = Settings::new(sampler).chains(chains).warmup(500).draws(1).thin(THIN).seed(1);
            let start = Start::around(&model, &mixture, &settings).unwrap();
            let mut run = Chains::new(settings, start, &mut posterior).unwrap();
            run.advance(&mut posterior, |_| ControlFlow::Continue(())).unwrap();
            let blocks = if sampler == Sampler::METROPOLIS_BY_COMPONENT { k + 1 } else { 1 };
            let name = match sampler {
                Sampler::METROPOLIS_BY_COMPONENT => "by component",
                other => other.name(),
            };
            if sampler != Sampler::NUTS {
                group.throughput(Throughput::Elements((chains * blocks * THIN) as u64));
            }
            // One draw in THIN steps is recorded, so recording takes a negligible part of the time.
            group.bench_function(BenchmarkId::new(name, format!("K={k},D={d},chains={chains}")), |b| {
                b.iter(|| {
                    run.set_draws(run.drawn() + 1).unwrap();
                    run.advance(&mut posterior, |_| ControlFlow::Continue(())).unwrap()
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, steps);
criterion_main!(benches);
