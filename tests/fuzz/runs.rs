//! Files of a sampler's run, and priors: reading one ends with an error, or with a run that can continue.
use super::{Memory, fuzz};
use gaussmix::data::Samples;
use gaussmix::evaluator::ReferenceEvaluator;
use gaussmix::io::{self, Problem};
use gaussmix::mcmc::{
    Chains, DataSummary, Error, Journal, Posterior, PosteriorModel, Prior, Progress, Result, Sampler, Saved, Settings,
    Start,
};
use gaussmix::model::CovarianceType;
use ndarray::Array2;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};
use std::cell::Cell;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

/// serde reserves at most 1 MiB for each of a few nested lists of claimed lengths.
const OF_RUN: Memory = Memory { per_byte: 32, claimed: |_| 8 << 20 };

fn samples() -> Array2<f64> {
    Array2::from_shape_fn((9, 1), |(i, _)| (i as f64).sin())
}

fn model(prior: &Prior, order: Option<usize>) -> Result<PosteriorModel> {
    let summary = DataSummary::new(&Samples::from_f64(samples().view())?);
    PosteriorModel::new(2, CovarianceType::Diag, prior, order, &summary)
}

/// Calls `work` with the posterior of a model.
fn with_posterior<T>(work: impl FnOnce(&mut Posterior<'_>) -> Result<T>) -> Result<T> {
    let (x, model) = (samples(), model(&Prior::default(), Some(0))?);
    let mut evaluator = ReferenceEvaluator::new(Samples::from_f64(x.view())?);
    work(&mut Posterior::new(&model, &mut evaluator)?)
}

/// Calls `write` with the run of each sampler, stopped in its warm-up, stopped among its draws, and finished, and with a
/// prefix; returns the results.
fn runs<T>(write: impl Fn(&Chains, &Path) -> T) -> Vec<T> {
    let mut all = Vec::new();
    for sampler in [Sampler::METROPOLIS, Sampler::METROPOLIS_BY_COMPONENT, Sampler::ENSEMBLE, Sampler::nuts(0.8, 4)] {
        let chains = if sampler == Sampler::ENSEMBLE { 6 } else { 2 };
        let settings = Settings::new(sampler).chains(chains).warmup(20).draws(5).seed(3);
        for (warming_up, done) in [(true, 13), (false, 3), (false, 5)] {
            let stop = |p: &Progress<'_>| match p.warming_up == warming_up && p.done == done {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            let run = with_posterior(|posterior| {
                let start = Start::from_prior(posterior.model(), &settings)?;
                let mut run = Chains::new(settings.clone(), start, posterior)?;
                run.advance(posterior, stop)?;
                Ok(run)
            });
            let folder = tempfile::tempdir().unwrap();
            all.push(write(&run.unwrap(), &folder.path().join("run")));
        }
    }
    all
}

/// The numbers of inputs that were refused when they were read, and later.
#[derive(Default)]
struct Refused {
    unread: Cell<u64>,
    unused: Cell<u64>,
}

impl Refused {
    /// Reads a value, and uses it.
    fn count<T>(&self, read: Result<T>, use_it: impl FnOnce(T) -> Result<()>) -> Result<()> {
        let one_more = |count: &Cell<u64>| count.set(count.get() + 1);
        use_it(read.inspect_err(|_| one_more(&self.unread))?).inspect_err(|_| one_more(&self.unused))
    }

    /// Checks that both occur: otherwise the damage is too small or too large for the test.
    fn check(&self) {
        let counts = [self.unread.get(), self.unused.get()];
        assert!(counts.iter().all(|&n| n > 0), "{counts:?} refused when read and later");
    }
}

/// Loads the run beside a file, and lets it go on for some iterations.
fn go_on(path: &Path, counts: &Refused) -> io::Result<()> {
    let gone_on = counts.count(Saved::load(&path.with_file_name("run")), |saved| {
        with_posterior(|posterior| {
            let mut run = saved.resume(posterior)?;
            // Some damage asks for more work than a test has time for.
            let settings = run.settings();
            if settings.thin > 100 || settings.warmup > 1000 {
                return Ok(());
            }
            let mut left = 30;
            let gone_on = run.advance(posterior, |_| {
                left -= 1;
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert_eq!(run.draws("means").unwrap().shape(), [run.settings().chains, run.drawn(), 2, 1]);
            match gone_on {
                Ok(_) | Err(Error::Nuts { .. } | Error::Start(_)) => Ok(()),
                Err(error) => panic!("an error of another kind: {error}"),
            }
        })
    });
    gone_on.map_err(|error| refused(path, &error))
}

fn refused(path: &Path, error: &Error) -> io::Error {
    io::Error { path: path.into(), problem: Problem::Format(error.to_string()) }
}

#[test]
fn run_archives() {
    let good = runs(|run, prefix| {
        let files = run.save(prefix).unwrap();
        fs::read(files.last().unwrap()).unwrap()
    });
    let counts = Refused::default();
    fuzz("run.npz", OF_RUN, &["cannot resume from "], &good, |path| go_on(path, &counts));
    counts.check();
}

/// A journal as one input: the length of its state, the state and the log.
#[test]
fn run_journals() {
    let good = runs(|run, prefix| {
        Journal::new(prefix).save(run).unwrap();
        ["run.partial.state", "run.partial.log0"].map(|name| fs::read(prefix.with_file_name(name)).unwrap())
    });
    let inputs: Vec<Vec<u8>> = good
        .iter()
        .map(|[state, log]| [&(state.len() as u64).to_le_bytes()[..], &state[..], &log[..]].concat())
        .collect();
    let counts = Refused::default();
    fuzz("journal", OF_RUN, &["cannot resume from ", "run.partial.log"], &inputs, |path| {
        let input = fs::read(path).unwrap();
        let (length, rest) = input.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
        let (state, log) = rest.split_at(rest.len().min(u64::from_le_bytes(*length) as usize));
        let mut state = state.to_vec();
        if let Some([_, whole]) = good.iter().find(|[sound, whole]| *sound == state && whole != log) {
            // The right hash of the wrong numbers: otherwise the hash would always reveal the change.
            let hash = Sha256::digest(whole);
            let at = state.windows(32).position(|w| w == hash.as_slice()).unwrap();
            state[at..at + 32].copy_from_slice(&Sha256::digest(log));
        }
        fs::write(path.with_file_name("run.partial.state"), state).unwrap();
        fs::write(path.with_file_name("run.partial.log0"), log).unwrap();
        go_on(path, &counts)
    });
    counts.check();
}

#[test]
fn priors() {
    let good = br#"{"weights": {"dirichlet": {"concentration": [2.0, 1.5]}},
        "means": {"scaled_normal": {"location": [[0.5], [1.0]], "precision": 0.3}},
        "scales": {"inverse_gamma": {"shape": 2.5, "scale": [1.3]}}, "correlations": {"lkj": {"shape": 2}}}"#;
    let counts = Refused::default();
    fuzz("prior.json", Memory::per_byte(64), &["prior"], &[good.to_vec()], |path| {
        let text = fs::read(path).unwrap();
        let used = counts.count(Prior::from_json(&String::from_utf8_lossy(&text)), |prior| {
            let model = model(&prior, None)?;
            if let Ok(theta) = model.sample_prior(&mut ChaCha8Rng::seed_from_u64(0)) {
                assert!(model.mixture(&theta).is_some());
            }
            Ok(())
        });
        used.map_err(|error| refused(path, &error))
    });
    counts.check();
}
