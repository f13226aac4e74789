//! The program computes on a GPU; Markov chains there resume to the bit, are independent of each other and have the
//! right distribution. Without a GPU each test is reported as ignored.
#[path = "program/common.rs"]
mod common;
mod gpu_harness;

use common::{folder, number, write_clouds};
use gaussmix::data::Samples;
use gaussmix::device::{Device, LoadOptions};
use gaussmix::evaluator::Evaluator;
use gaussmix::mcmc::{Chains, DataSummary, Outcome, Posterior, PosteriorModel, Prior, Sampler, Saved, Settings, Start};
use gaussmix::model::CovarianceType;
use ndarray::{Array2, Axis};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::ops::ControlFlow;
use std::process::ExitCode;

fn main() -> ExitCode {
    // SAFETY: no other thread runs yet. With an empty name the measured choices of kernels are not saved for the user.
    unsafe { std::env::set_var("GMM_TUNING_FILE", "") };
    let tests: Vec<gpu_harness::Test> = vec![
        ("a_resumed_run_is_the_same_to_the_bit", a_resumed_run_is_the_same_to_the_bit),
        ("chains_do_not_depend_on_their_company", chains_do_not_depend_on_their_company),
        ("metropolis_meets_the_closed_form", metropolis_meets_the_closed_form),
        ("the_program_computes_on_a_gpu", the_program_computes_on_a_gpu),
        ("bench_finds_the_crossover", bench_finds_the_crossover),
        ("bench_shows_errors_beside_times", bench_shows_errors_beside_times),
        ("a_gpu_fits_what_the_cpu_fits", a_gpu_fits_what_the_cpu_fits),
    ];
    gpu_harness::run([gpu_harness::suite("program", tests)])
}

const SAMPLERS: [Sampler; 4] =
    [Sampler::METROPOLIS, Sampler::METROPOLIS_BY_COMPONENT, Sampler::ENSEMBLE, Sampler::NUTS];

fn data(n: usize) -> Array2<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    Array2::from_shape_fn((n, 3), |(i, _)| (i % 2 * 4) as f32 + rng.sample::<f32, _>(StandardNormal))
}

fn model(x: &Array2<f32>, k: usize, prior: &Prior) -> PosteriorModel {
    let summary = DataSummary::new(&Samples::from_f32(x.view()).unwrap());
    PosteriorModel::new(k, CovarianceType::Diag, prior, None, &summary).unwrap()
}

fn load(x: &Array2<f32>, kernel: Option<String>) -> Box<dyn Evaluator + '_> {
    gaussmix::device::load(Device::Cuda(0), Samples::from_f32(x.view()).unwrap(), &LoadOptions::new().kernel(kernel))
        .unwrap()
}

fn start(model: &PosteriorModel, settings: Settings, posterior: &mut Posterior<'_>) -> Chains {
    let start = Start::from_prior(model, &settings).unwrap();
    Chains::new(settings, start, posterior).unwrap()
}

fn settings(sampler: Sampler, chains: usize) -> Settings {
    let chains = if matches!(sampler, Sampler::Ensemble { .. }) { 28 } else { chains };
    Settings::new(sampler).chains(chains).warmup(60).draws(40).thin(3).seed(11)
}

fn a_resumed_run_is_the_same_to_the_bit() {
    let x = data(20_001);
    let model = model(&x, 2, &Prior::default());
    for sampler in SAMPLERS {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("run");
        let mut evaluator = load(&x, None);
        let mut posterior = Posterior::new(&model, evaluator.as_mut()).unwrap();
        let mut whole = start(&model, settings(sampler, 2), &mut posterior);
        whole.advance(&mut posterior, |_| ControlFlow::Continue(())).unwrap();
        let kernel = whole.identity().kernel.clone();
        let walks = matches!(sampler, Sampler::Metropolis { .. });
        assert_eq!(kernel.starts_with("metropolis:"), walks, "{sampler:?}: {kernel}");

        // Stopped in warm-up and again after 17 draws. Each time only the files remain, and the run continues with the
        // kernel they name.
        let mut run = start(&model, settings(sampler, 2), &mut posterior);
        run.set_draws(17).unwrap();
        let stop = |p: &gaussmix::mcmc::Progress<'_>| {
            if p.warming_up && p.done == 33 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        assert_eq!(run.advance(&mut posterior, stop).unwrap(), Outcome::Stopped);
        run.save(&prefix).unwrap();
        for draws in [17, 40] {
            let saved = Saved::load(&prefix).unwrap();
            let mut evaluator = load(&x, Some(saved.run().identity().kernel.clone()));
            let mut posterior = Posterior::new(&model, evaluator.as_mut()).unwrap();
            let mut run = saved.resume(&mut posterior).unwrap();
            run.set_draws(draws).unwrap();
            run.advance(&mut posterior, |_| ControlFlow::Continue(())).unwrap();
            run.save(&prefix).unwrap();
        }
        let run = Saved::load(&prefix).unwrap();
        assert_eq!(run.run().identity(), whole.identity(), "{sampler:?}");
        for name in ["lp__", "accept_stat__", "weights", "means", "covariances"] {
            assert_eq!(run.run().draws(name), whole.draws(name), "{sampler:?} {name}");
        }
    }
}

fn chains_do_not_depend_on_their_company() {
    let x = data(5001);
    let model = model(&x, 2, &Prior::default());
    for sampler in [Sampler::METROPOLIS, Sampler::METROPOLIS_BY_COMPONENT, Sampler::NUTS] {
        let draws = |chains| {
            let mut evaluator = load(&x, None);
            let mut posterior = Posterior::new(&model, evaluator.as_mut()).unwrap();
            let mut run = start(&model, settings(sampler, chains), &mut posterior);
            run.advance(&mut posterior, |_| ControlFlow::Continue(())).unwrap();
            run.draws("means").unwrap()
        };
        let (one, five) = (draws(1), draws(5));
        assert_eq!(one.index_axis(Axis(0), 0), five.index_axis(Axis(0), 0), "{sampler:?}");
        assert_ne!(five.index_axis(Axis(0), 0), five.index_axis(Axis(0), 1), "{sampler:?}");
    }
}

/// One component with the conjugate prior: the posterior means of mean and variance in closed form, within four Monte
/// Carlo standard errors.
fn metropolis_meets_the_closed_form() {
    let x = data(50);
    let prior = Prior::from_json(
        r#"{"means": {"scaled_normal": {"location": 1.0, "precision": 0.5}},
            "scales": {"inverse_gamma": {"shape": 4.0, "scale": 3.0}}}"#,
    );
    let model = model(&x, 1, &prior.unwrap());
    let mut evaluator = load(&x, None);
    let mut posterior = Posterior::new(&model, evaluator.as_mut()).unwrap();
    let settings = settings(Sampler::METROPOLIS, 4).warmup(2000).draws(4000).thin(20);
    let mut run = start(&model, settings, &mut posterior);
    run.advance(&mut posterior, |_| ControlFlow::Continue(())).unwrap();
    let summary = run.summary();
    assert!(summary.max_r_hat() < 1.01, "{summary}");
    for (j, column) in x.columns().into_iter().enumerate() {
        let n = column.len() as f64;
        let centre = column.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
        let scatter: f64 = column.iter().map(|v| (f64::from(*v) - centre).powi(2)).sum();
        let kappa = 0.5 + n;
        let mean = (0.5 + n * centre) / kappa;
        let b = 3.0 + 0.5 * scatter + 0.25 * n / kappa * (centre - 1.0).powi(2);
        let variance = b / (4.0 + n / 2.0 - 1.0);
        for (name, expected) in [("means", mean), ("covariances", variance)] {
            let name = format!("{name}.1.{}", j + 1);
            let row = summary.rows.iter().find(|row| row.name == name).unwrap();
            assert!((row.mean - expected).abs() < 4.0 * row.mcse, "{name}: {} ± {}, {expected}", row.mean, row.mcse);
            assert!(row.mcse < 0.05 * row.std, "{name}: {} of {}", row.mcse, row.std);
        }
    }
}

fn the_program_computes_on_a_gpu() {
    let report = score_on("cuda");
    assert!(report["device"].as_str().unwrap().contains("cuda"), "{report}");
    // Both are in float64, computed in a different order.
    approx::assert_relative_eq!(
        number(&report, "log_likelihood"),
        number(&score_on("reference"), "log_likelihood"),
        max_relative = 1e-10
    );
}

fn score_on(device: &str) -> serde_json::Value {
    folder().json(format!("score data/iris3.json data/iris.csv --device {device} --json"))
}

fn bench_finds_the_crossover() {
    let text = folder().run("bench likelihood --device cpu,cuda --n 100,10000 --seconds 0.01");
    assert!(text.contains("crossover: "), "{text}");
}

fn bench_shows_errors_beside_times() {
    let rows = folder().json("bench accuracy --device cuda --n 10000 --seconds 0.001 --json");
    let mut seen = Vec::new();
    for row in rows.as_array().unwrap() {
        let text = |name: &str| row[name].as_str().unwrap().to_string();
        let kernel = text("kernel").split([':', '/']).next().unwrap().to_string();
        // Roundings of 6e-8 and 1e-16 in means of ten thousand, with two digits to spare.
        let most = if text("precision") == "float32" { 1e-6 } else { 1e-13 };
        assert!(row["total"].as_f64().unwrap() < most, "{row}");
        seen.push((kernel, text("precision"), text("operation")));
    }
    for (kernel, precision, operation) in [
        ("small_k", "float32", "total"),
        ("batch", "float32", "total"),
        ("fused", "float32", "estep"),
        ("general", "float32", "estep"),
        ("general", "float64", "total"),
        ("fused", "float64", "estep"),
    ] {
        let row = (kernel.to_string(), precision.to_string(), operation.to_string());
        assert_eq!(seen.iter().filter(|seen| **seen == row).count(), 1, "{row:?} of {seen:?}");
    }
}

/// All covariance types, in one piece and in chunks, standardised and not.
fn a_gpu_fits_what_the_cpu_fits() {
    let folder = folder();
    write_clouds(&folder);
    for t in CovarianceType::ALL {
        // Both fits begin at the same start, because finding a start depends on the precision of the device.
        let args = format!("x.npy --covariance-type {t} --tol 0");
        folder.fit(format!("{args} -k 3 --max-iter 0 -o start.json --device cpu"));
        let go = |more: &str| {
            let report = folder.fit(format!("{args} --init start.json --max-iter 3 {more}"));
            (number(&report, "log_likelihood"), report["device"].as_str().unwrap().to_string())
        };
        let (cpu, _) = go("--device cpu");
        for more in ["", "--memory 18M", "--memory 18M --standardize"] {
            if more.contains("standardize") && t == CovarianceType::Spherical {
                continue; // In standardised units a spherical start is diagonal.
            }
            let (gpu, device) = go(&format!("--device cuda {more}"));
            assert!(device.contains("cuda") && device.contains("chunks") != more.is_empty(), "{device}");
            // Both are in float32; the clouds are a few units apart.
            approx::assert_relative_eq!(gpu, cpu, max_relative = 1e-4);
        }
    }
}
