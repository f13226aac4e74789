//! One EM iteration and its parts. The id is work/device/covariance type/N/D/K/element type.
//!
//! `cargo bench -p gaussmix --bench fit -- em/cpu`, with `--features cuda` on GPUs too; missing devices are left out.
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gmm_host::{
    CovarianceType, Device, Evaluator, Freeze, GaussianMixtureParams, InitParams, LoadOptions, Mixture, Samples, load,
};
use ndarray::{Array2, ArrayView2, s};
use std::hint::black_box;

/// N, D, K and the covariance types.
const SHAPES: [(usize, usize, usize); 3] = [(1_000_000, 13, 8), (1_000_000, 32, 64), (200_000, 64, 32)];
const TYPES: [CovarianceType; 2] = [CovarianceType::Diag, CovarianceType::Full];
/// N for the slow reference.
const SMALL: usize = 2_000;

/// Makes K clouds cheaply: an additive recurrence for each column, bent towards a normal shape.
fn data(n: usize, d: usize, k: usize) -> Array2<f32> {
    Array2::from_shape_fn((n, d), |(i, j)| {
        let golden = |m: f64| (i as f64 * m + j as f64 * 0.37).fract();
        let noise = golden(0.618_033_988_7) + golden(0.754_877_666_2) + golden(0.569_840_290_9) - 1.5;
        (2.0 * noise + 3.0 * ((i % k * (j + 2)) as f64).sin()) as f32
    })
}

/// Returns a mixture near the data, found by the reference over a few samples.
fn start(x: ArrayView2<'_, f32>, t: CovarianceType, k: usize) -> gmm_host::Result<Mixture> {
    let few = x.slice(s![..(20 * k).max(SMALL).min(x.nrows()), ..]);
    let mut evaluator = load(Device::Reference, Samples::from_f32(few)?, &LoadOptions::default())?;
    let params = GaussianMixtureParams::default().n_components(k).covariance_type(t).max_iter(1);
    Ok(params.init_params(InitParams::KMeans).check()?.fit(evaluator.as_mut())?.mixture)
}

fn evaluator<'a>(device: Device, x: ArrayView2<'a, f32>) -> Option<(Box<dyn Evaluator + 'a>, usize)> {
    let n = if device == Device::Reference { SMALL.min(x.nrows()) } else { x.nrows() };
    let samples = Samples::from_f32(x.slice_move(s![..n, ..])).ok()?;
    Some((load(device, samples, &LoadOptions::default()).ok()?, n))
}

fn em(c: &mut Criterion) {
    for (n, d, k) in SHAPES {
        let x = data(n, d, k);
        for device in [Device::Cpu, Device::Cuda(0), Device::Reference] {
            let Some((mut evaluator, n)) = evaluator(device, x.view()) else { continue };
            for t in TYPES {
                let Ok(mixture) = start(x.view(), t, k) else { continue };
                let id = format!("{device}/{t}/{n}/{d}/{k}/f32");
                // The backend does not support this covariance type.
                if evaluator.statistics(&mixture).is_err() {
                    continue;
                }
                let mut group = c.benchmark_group("em");
                group.sample_size(10);
                group.bench_function(BenchmarkId::from_parameter(&id), |b| {
                    b.iter(|| {
                        let statistics = evaluator.statistics(black_box(&mixture))?;
                        statistics.update(&mixture, 1e-6, &Freeze::default())
                    })
                });
                group.finish();
                let Ok(statistics) = evaluator.statistics(&mixture) else { continue };
                c.bench_function(&format!("m-step/{id}"), |b| {
                    b.iter(|| black_box(&statistics).update(&mixture, 1e-6, &Freeze::default()))
                });
            }
        }
    }
}

/// Compares a start (seeding on the host, and its passes over all samples) with ten iterations.
fn start_of_a_fit(c: &mut Criterion) {
    for (n, d, k) in [SHAPES[0], (150, 4, 3), (20_000, 13, 8), (20_000, 13, 1024)] {
        let x = data(n, d, k);
        for device in [Device::Cpu, Device::Cuda(0), Device::Reference] {
            let Some((mut evaluator, n)) = evaluator(device, x.view()) else { continue };
            let params = GaussianMixtureParams::default().n_components(k).covariance_type(CovarianceType::Diag);
            let mut group = c.benchmark_group("start");
            group.sample_size(10);
            for init in InitParams::ALL {
                let Ok(model) = params.clone().init_params(init).max_iter(0).check() else { continue };
                group.bench_function(format!("{device}/{init}/{n}/{d}/{k}/f32"), |b| {
                    b.iter(|| model.fit(evaluator.as_mut()))
                });
            }
            let Ok(start) = start(x.view(), CovarianceType::Diag, k) else { continue };
            let Ok(ten) = params.start(start).tol(0.0).max_iter(10).check() else { continue };
            group.bench_function(format!("{device}/ten iterations/{n}/{d}/{k}/f32"), |b| {
                b.iter(|| ten.fit(evaluator.as_mut()))
            });
            group.finish();
        }
    }
}

criterion_group!(benches, em, start_of_a_fit);
criterion_main!(benches);
