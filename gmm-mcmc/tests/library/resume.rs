//! Interrupting, saving and resuming runs, and their files. Chains are independent of each other.
use crate::common::{go_on, run_from_prior};
use gmm_host::{
    CovarianceType, CpuEvaluator, DataFacts, Description, Evaluator, Mixture, ReferenceEvaluator, Rows, Samples,
    Sampling, ShardedEvaluator, Statistics,
};
use gmm_mcmc::{
    Chains, DataSummary, Error, Journal, Posterior, PosteriorModel, Prior, Progress, Sampler, Saved, Settings, Start,
    Target, check_outputs,
};
use ndarray::{Array1, Array2};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const SAMPLERS: [Sampler; 4] =
    [Sampler::METROPOLIS, Sampler::METROPOLIS_BY_COMPONENT, Sampler::ENSEMBLE, Sampler::NUTS];

fn data() -> Array2<f64> {
    Array2::from_shape_fn((30, 2), |(i, j)| (i % 2) as f64 * 4.0 + (i as f64 * 1.7 + j as f64).sin())
}

fn model(x: &Array2<f64>) -> PosteriorModel {
    let summary = DataSummary::new(&Samples::from_f64(x.view()).unwrap());
    PosteriorModel::new(2, CovarianceType::Diag, &Prior::default(), Some(0), &summary).unwrap()
}

/// Returns the posterior of [`model`] by an evaluator of [`data`]. Both are leaked, so that the posterior borrows nothing.
fn posterior_by(evaluator: impl Evaluator + 'static) -> Posterior<'static> {
    Posterior::new(Box::leak(Box::new(model(&data()))), Box::leak(Box::new(evaluator))).unwrap()
}

fn posterior() -> Posterior<'static> {
    posterior_by(ReferenceEvaluator::new(Samples::from_f64(data().view()).unwrap()))
}

fn settings(sampler: Sampler) -> Settings {
    let chains = if matches!(sampler, Sampler::Ensemble { .. }) { 20 } else { 3 };
    Settings::new(sampler).chains(chains).warmup(60).draws(40).thin(2).seed(11)
}

fn new(settings: Settings, posterior: &mut Posterior<'_>) -> Chains {
    let start = Start::from_prior(posterior.model(), &settings).unwrap();
    Chains::new(settings, start, posterior).unwrap()
}

fn resume(prefix: &Path, posterior: &mut Posterior<'_>) -> Chains {
    Saved::load(prefix).unwrap().resume(posterior).unwrap()
}

/// Returns a callback that stops a run at a step of its warm-up or at a draw.
fn stop_at(warming_up: bool, done: usize) -> impl Fn(&Progress<'_>) -> ControlFlow<()> {
    move |p| {
        if (p.warming_up, p.done) == (warming_up, done) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn bytes(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|f| f.unwrap().path())
        .map(|p| (p.file_name().unwrap().to_str().unwrap().to_string(), std::fs::read(p).unwrap()))
        .collect();
    files.sort();
    files
}

/// Compares all files of two runs, not only their draws.
fn assert_same_files(whole: &Path, parts: &Path, sampler: Sampler) {
    let (whole, parts) = (bytes(whole), bytes(parts));
    assert_eq!(whole.len(), settings(sampler).chains + 1);
    assert_eq!(whole.iter().map(|f| &f.0).collect::<Vec<_>>(), parts.iter().map(|f| &f.0).collect::<Vec<_>>());
    for (a, b) in whole.iter().zip(&parts) {
        assert!(a.1 == b.1, "{sampler:?}: {} differs", a.0);
    }
}

#[test]
fn a_resumed_run_is_the_same_to_the_bit() {
    for sampler in SAMPLERS {
        let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        run_from_prior(settings(sampler), &mut posterior()).save(&whole.path().join("run")).unwrap();

        // The run is stopped in its warm-up, then after 17 draws. Each time everything but the files is dropped.
        let prefix = parts.path().join("run");
        let mut first = posterior();
        let mut run = new(settings(sampler), &mut first);
        run.advance(&mut first, stop_at(true, 33)).unwrap();
        run.save(&prefix).unwrap();
        assert_eq!(run.drawn(), 0);
        for draws in [17, 40] {
            let mut posterior = posterior();
            let mut run = resume(&prefix, &mut posterior);
            run.advance(&mut posterior, stop_at(false, draws)).unwrap();
            assert_eq!(run.drawn(), draws);
            run.save(&prefix).unwrap();
            assert_eq!(parts.path().join("run.partial.npz").exists(), draws < 40);
            assert_eq!(prefix.with_extension("npz").exists(), draws == 40);
        }
        assert_same_files(whole.path(), parts.path(), sampler);
    }
}

/// An evaluator whose batches depend on their reference still gives many chains one density.
#[test]
fn chains_that_are_compared_to_a_point_are_resumed_to_the_bit() {
    let comparing = || posterior_by(Odd { comparison: 1e-6, ..Odd::new(&data()) });
    for sampler in [Sampler::METROPOLIS, Sampler::ENSEMBLE] {
        let settings = settings(sampler).chains(20);
        let mut posterior = comparing();
        let whole = run_from_prior(settings.clone(), &mut posterior);

        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("run");
        new(settings, &mut posterior).save(&prefix).unwrap();
        // In the warm-up, after each renewal of the point and elsewhere, and among the draws.
        for (warming_up, at) in [(true, 1), (true, 2), (true, 33), (true, 60), (false, 1), (false, 17), (false, 40)] {
            let mut posterior = comparing();
            let mut run = resume(&prefix, &mut posterior);
            run.advance(&mut posterior, stop_at(warming_up, at)).unwrap();
            run.save(&prefix).unwrap();
        }
        let resumed = resume(&prefix, &mut comparing());
        for name in ["lp__", "means"] {
            assert_eq!(whole.draws(name).unwrap(), resumed.draws(name).unwrap(), "{sampler:?} {name}");
        }
    }
}

/// Advances until the target has made `evaluations` more evaluations, or to the end.
fn go_for(run: &mut Chains, posterior: &mut Posterior<'_>, evaluations: u64) {
    let limit = posterior.evaluations() + evaluations;
    run.advance(posterior, |p| if p.evaluations >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        .unwrap();
}

#[test]
fn a_killed_run_goes_on_from_its_journal_to_the_same_bits() {
    for sampler in SAMPLERS {
        let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut posterior = posterior();
        run_from_prior(settings(sampler), &mut posterior).save(&whole.path().join("run")).unwrap();
        let all = posterior.evaluations();

        let prefix = parts.path().join("run");
        let mut run = new(settings(sampler), &mut posterior);
        let mut lives = 0;
        while !run.finished() {
            // One journal saves the run several times. Work after the last save is lost.
            let mut journal = Journal::new(&prefix);
            for _ in 0..3 {
                go_for(&mut run, &mut posterior, all / 13);
                journal.save(&run).unwrap();
            }
            go_for(&mut run, &mut posterior, all / 50);
            run = resume(&prefix, &mut posterior);
            lives += 1;
        }
        // Each life but the last does three thirteenths of the work. More lives would mean that work was repeated.
        assert!((4..=6).contains(&lives), "{sampler:?}: {lives}");
        assert!(prefix.with_extension("partial.state").exists());
        run.save(&prefix).unwrap();
        assert_same_files(whole.path(), parts.path(), sampler);
    }
}

#[test]
fn a_journal_appends_and_survives_what_a_kill_leaves() {
    let mut posterior = posterior();
    let folder = tempfile::tempdir().unwrap();
    let (prefix, log) = (folder.path().join("run"), folder.path().join("run.partial.log0"));
    let mut run = new(settings(Sampler::METROPOLIS), &mut posterior);
    let state = folder.path().join("run.partial.state");
    let mut journal = Journal::new(&prefix);
    let mut sizes = Vec::new();
    let mut states = Vec::new();
    for draws in [10, 20, 30] {
        run.advance(&mut posterior, stop_at(false, draws)).unwrap();
        journal.save(&run).unwrap();
        sizes.push(std::fs::metadata(&log).unwrap().len());
        states.push(std::fs::read(&state).unwrap());
    }
    // 3 chains of 2 statistics and 2 + 4 + 4 parameters.
    assert_eq!(sizes, [10, 20, 30].map(|draws| draws * 3 * 12 * 8));
    let loaded = |draws: usize| {
        let saved = Saved::load(&prefix).unwrap();
        assert_eq!(saved.run().drawn(), draws);
        let axis = ndarray::Axis(1);
        let expected = run.draws("means").unwrap().slice_axis(axis, (0..draws).into()).to_owned();
        assert_eq!(saved.run().draws("means").unwrap(), expected);
    };
    loaded(30);
    // The program was killed between appending to the log and replacing the state, or while appending.
    std::fs::write(&state, &states[1]).unwrap();
    loaded(20);
    let whole = std::fs::read(&log).unwrap();
    std::fs::write(&log, &whole[..whole.len() - 13]).unwrap();
    loaded(20);
    let damaged = |content: &[u8], part: &str| {
        std::fs::write(&log, content).unwrap();
        let error = Saved::load(&prefix).unwrap_err();
        assert!(matches!(error, Error::Resume { .. }) && error.to_string().contains(part), "{error}");
    };
    damaged(&whole[..sizes[1] as usize - 1], "shorter");
    let mut changed = whole.clone();
    changed[1000] ^= 1;
    damaged(&changed, "SHA-256");
    std::fs::write(&log, &whole).unwrap();
    for length in [0, 5, 40, states[1].len() - 1] {
        std::fs::write(&state, &states[1][..length]).unwrap();
        assert!(matches!(Saved::load(&prefix), Err(Error::Resume { .. })), "{length}");
    }
    // A failed save leaves the former one, and the next succeeds.
    std::fs::write(&state, &states[1]).unwrap();
    let mut journal = Journal::new(&folder.path().join("no/where"));
    assert!(matches!(journal.save(&run), Err(Error::Io { .. })));
    std::fs::create_dir(folder.path().join("no")).unwrap();
    journal.save(&run).unwrap();
    loaded(20);
}

fn with_member(npz: &[u8], name: &str, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    use std::io::{Cursor, Read, Write};
    let mut archive = zip::ZipArchive::new(Cursor::new(npz)).unwrap();
    let mut out = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for i in 0..archive.len() {
        let mut member = archive.by_index(i).unwrap();
        let mut content = Vec::new();
        member.read_to_end(&mut content).unwrap();
        if member.name() == format!("{name}.npy") {
            change(&mut content);
        }
        out.start_file(member.name(), options).unwrap();
        out.write_all(&content).unwrap();
    }
    out.finish().unwrap().into_inner()
}

#[test]
fn saved_draws_that_cannot_be_are_refused() {
    let mut posterior = posterior();
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("run");
    let run = run_from_prior(settings(Sampler::METROPOLIS), &mut posterior);
    run.save(&prefix).unwrap();
    let path = folder.path().join("run.npz");
    let sound = std::fs::read(&path).unwrap();
    let refused = |bytes: &[u8], parts: &[&str]| {
        std::fs::write(&path, bytes).unwrap();
        let error = Saved::load(&prefix).unwrap_err();
        assert!(matches!(error, Error::Resume { .. }), "{error}");
        for part in parts {
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
    };
    // A header of 128 bytes, then (3, 40, 2, 2) numbers.
    let set = |chain: usize, draw: usize, number: usize, v: f64| {
        with_member(&sound, "means", |content| {
            let at = 128 + 8 * ((chain * 40 + draw) * 4 + number);
            content[at..at + 8].copy_from_slice(&v.to_le_bytes());
        })
    };
    for v in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e308] {
        refused(&set(1, 17, 3, v), &["run.npz", "`means`, chain 1, draw 17, number 3"]);
    }
    // Shapes that would take exabytes, and a header that takes exponential time to parse.
    let header = |text: &str| {
        with_member(&sound, "means", |content| {
            let old = 10 + usize::from(u16::from_le_bytes([content[8], content[9]]));
            let mut new = content[..8].to_vec();
            new.extend((text.len() as u16).to_le_bytes());
            new.extend(text.as_bytes());
            new.extend(&content[old..]);
            *content = new;
        })
    };
    let huge = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 1000000000), }\n";
    let nested =
        format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {}1,{}, }}\n", "(1,".repeat(200), ")".repeat(200));
    let begin = std::time::Instant::now();
    for text in [huge, &nested, "{", ""] {
        refused(&header(text), &["`means` is missing or damaged"]);
    }
    // The headers take a few milliseconds. A parser that is exponential in the nesting would not end.
    assert!(begin.elapsed().as_secs() < 5);
    refused(&with_member(&sound, "means", |c| c.truncate(c.len() - 8)), &["`means`", "shape (3,40,2,2)"]);
    std::fs::write(&path, with_member(&sound, "means", |_| {})).unwrap();
    assert_eq!(Saved::load(&prefix).unwrap().run().draws("means"), run.draws("means"));
}

#[test]
fn a_start_without_a_gradient_is_told() {
    let settings = settings(Sampler::NUTS);
    let mut posterior = posterior();
    let mut start = Start::from_prior(posterior.model(), &settings).unwrap();
    // θ is a weight, four means and four scales. First the mean of component 1 in column 0 is NaN, then a scale is
    // enormous.
    for (i, v, part) in
        [(3, f64::NAN, "the mean of component 1, column 0 is NaN"), (8, 1e3, "chain 2 (counted from 0)")]
    {
        let before = start.points[2][i];
        start.points[2][i] = v;
        let error = Chains::new(settings.clone(), start.clone(), &mut posterior).unwrap_err();
        assert!(matches!(error, Error::Start(_)) && error.to_string().contains(part), "{error}");
        start.points[2][i] = before;
    }
}

#[test]
fn a_finished_run_can_be_made_longer() {
    let mut posterior = posterior();
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("run");
    let at_once = run_from_prior(settings(Sampler::NUTS).draws(60), &mut posterior);
    run_from_prior(settings(Sampler::NUTS), &mut posterior).save(&prefix).unwrap();
    let mut longer = resume(&prefix, &mut posterior);
    assert!(longer.set_draws(39).is_err());
    longer.set_draws(60).unwrap();
    longer.advance(&mut posterior, go_on).unwrap();
    assert_eq!(longer.draws("means"), at_once.draws("means"));
    assert_eq!(longer.draws("lp__"), at_once.draws("lp__"));
}

#[test]
fn chains_do_not_depend_on_how_many_run() {
    for sampler in [Sampler::METROPOLIS, Sampler::METROPOLIS_BY_COMPONENT, Sampler::NUTS] {
        let mut posterior = posterior();
        let mut draws =
            |chains| run_from_prior(settings(sampler).chains(chains), &mut posterior).draws("means").unwrap();
        let (one, five) = (draws(1), draws(5));
        let axis = ndarray::Axis(0);
        assert_eq!(one.index_axis(axis, 0), five.index_axis(axis, 0), "{sampler:?}");
        assert_ne!(five.index_axis(axis, 0), five.index_axis(axis, 1), "{sampler:?}");
    }
}

/// Samples divided over devices of different kinds: the same division gives the same bits, and the chains of one device
/// except for rounding, unless a proposal happens to be as good as its random number.
#[test]
fn chains_over_shards_are_those_over_one_device() {
    let x = data();
    let model = model(&x);
    let all = Samples::from_f64(x.view()).unwrap();
    for sampler in SAMPLERS {
        let draws = |evaluator: &mut dyn Evaluator| {
            let mut posterior = Posterior::new(&model, evaluator).unwrap();
            run_from_prior(settings(sampler), &mut posterior).draws("means").unwrap()
        };
        let shards = || {
            let cpu = CpuEvaluator::with_threads(all.rows(0..7), 1).unwrap();
            ShardedEvaluator::new(vec![Box::new(cpu), Box::new(ReferenceEvaluator::new(all.rows(7..30)))]).unwrap()
        };
        let found = draws(&mut shards());
        assert_eq!(found, draws(&mut shards()), "{sampler:?}");
        if sampler != Sampler::NUTS {
            // NUTS follows trajectories, on which roundings grow.
            let one = draws(&mut ReferenceEvaluator::new(all.clone()));
            assert!(found.iter().zip(&one).all(|(a, b)| (a - b).abs() <= 1e-9 * b.abs().max(1.0)), "{sampler:?}");
        }
    }
}

/// An evaluator that fails after some calls, reports another kernel, is off by a rounding, compares batches to a
/// mixture, or is shared.
#[derive(Clone)]
struct Odd {
    inner: ReferenceEvaluator,
    /// The dependence of a total in a batch on the mixture of comparison.
    comparison: f64,
    batch_reference: Option<Mixture>,
    /// See [`Sampling::useful_shares`].
    shares: usize,
    /// The calls left to all shares together.
    calls_left: Arc<AtomicUsize>,
    kernel: &'static str,
    factor: f64,
}

impl Odd {
    fn new(x: &Array2<f64>) -> Self {
        let inner = ReferenceEvaluator::new(Samples::from_f64(x.view()).unwrap());
        let calls_left = Arc::new(usize::MAX.into());
        Self { inner, comparison: 0.0, batch_reference: None, shares: 1, calls_left, kernel: "reference", factor: 1.0 }
    }

    fn count(&mut self) -> gmm_host::Result<()> {
        let fewer = self.calls_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        let unplugged = |_| gmm_host::Error::Cuda { op: "cuLaunchKernel", message: "unplugged".into() };
        fewer.map(drop).map_err(unplugged)
    }
}

impl Evaluator for Odd {
    fn data(&self) -> DataFacts<'_> {
        self.inner.data()
    }
    fn describe(&self) -> Description {
        Description::new(self.inner.describe().device, self.kernel)
    }
    fn share(&self) -> gmm_host::Result<Box<dyn Evaluator + '_>> {
        Ok(Box::new(self.clone()))
    }
    fn log_likelihood(&mut self, m: &Mixture) -> gmm_host::Result<f64> {
        self.count()?;
        Ok(self.inner.log_likelihood(m)? * self.factor)
    }
    fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> gmm_host::Result<Vec<f64>> {
        let compared_to = self.batch_reference.as_ref().or(mixtures.first());
        let shift = compared_to.map_or(0.0, |m| self.comparison * m.means()[[0, 0]]);
        mixtures.iter().map(|m| Ok(self.log_likelihood(m)? + shift)).collect()
    }
    fn score_samples(&mut self, m: &Mixture) -> gmm_host::Result<Array1<f64>> {
        self.inner.score_samples(m)
    }
    fn statistics(&mut self, m: &Mixture) -> gmm_host::Result<Statistics> {
        self.count()?;
        self.inner.statistics(m)
    }
    fn rows(&mut self, rows: &[usize]) -> gmm_host::Result<Rows> {
        self.inner.rows(rows)
    }
    fn sampling(&mut self) -> Option<&mut dyn Sampling> {
        Some(self)
    }
}

impl Sampling for Odd {
    fn useful_shares(&mut self) -> usize {
        self.shares
    }

    fn fix_batch_reference(&mut self, mixture: &Mixture) {
        self.batch_reference = Some(mixture.clone());
    }
}

#[test]
fn after_a_failure_the_run_goes_on_as_if_there_had_been_none() {
    let x = data();
    let model = model(&x);
    for sampler in SAMPLERS {
        let expected = run_from_prior(settings(sampler), &mut posterior_by(Odd::new(&x)));
        let mut evaluator = Odd::new(&x);
        let mut run = new(settings(sampler), &mut Posterior::new(&model, &mut evaluator).unwrap());
        let mut failures = 0;
        // The failures fall into the warm-up, into the draws, and anywhere within a step.
        for calls in [7, 100, 301, 5003, 11_111, usize::MAX] {
            evaluator.calls_left.store(calls, Ordering::Relaxed);
            let result = run.advance(&mut Posterior::new(&model, &mut evaluator).unwrap(), go_on);
            match result {
                Ok(_) => break,
                Err(Error::Host(gmm_host::Error::Cuda { message, .. })) => assert_eq!(message, "unplugged"),
                Err(e) => panic!("{e}"),
            }
            failures += 1;
        }
        assert!(failures >= 2, "{sampler:?} {failures}");
        assert_eq!(run.draws("means"), expected.draws("means"), "{sampler:?}");
    }
}

#[test]
fn several_threads_draw_what_one_draws_also_after_failures() {
    let comparing = |shares| Odd { comparison: 1e-6, shares, ..Odd::new(&data()) };
    for sampler in [Sampler::METROPOLIS, Sampler::METROPOLIS_BY_COMPONENT, Sampler::ENSEMBLE] {
        let settings = settings(sampler).chains(50).warmup(30).draws(20);
        let mut posterior = posterior_by(comparing(1));
        let expected = run_from_prior(settings.clone(), &mut posterior);
        let evaluations = posterior.evaluations();

        let shared = comparing(3);
        let calls_left = shared.calls_left.clone();
        let mut posterior = posterior_by(shared);
        let mut run = new(settings.clone(), &mut posterior);
        let mut without_failure = run.clone();
        without_failure.advance(&mut posterior, go_on).unwrap();
        assert_eq!(posterior.evaluations(), evaluations, "{sampler:?}");
        let mut failures = 0;
        // The failures fall into the warm-up and into the draws, each time first for one of the threads.
        for calls in [7, 1000, 2777, usize::MAX] {
            calls_left.store(calls, Ordering::Relaxed);
            failures += usize::from(run.advance(&mut posterior, go_on).is_err());
        }
        assert_eq!(failures, 3, "{sampler:?}");
        for name in ["weights", "means", "covariances", "lp__"] {
            assert_eq!(without_failure.draws(name), expected.draws(name), "{sampler:?} {name}");
            assert_eq!(run.draws(name), expected.draws(name), "{sampler:?} {name}");
        }
    }
}

fn save_unfinished(prefix: &Path) {
    let mut posterior = posterior();
    let mut run = new(settings(Sampler::METROPOLIS), &mut posterior);
    run.advance(&mut posterior, stop_at(false, 1)).unwrap();
    run.save(prefix).unwrap();
}

fn refusal(prefix: &Path, model: &PosteriorModel, evaluator: &mut dyn Evaluator) -> String {
    let before = bytes(prefix.parent().unwrap());
    let mut posterior = Posterior::new(model, evaluator).unwrap();
    let error = Saved::load(prefix).and_then(|s| s.resume(&mut posterior)).unwrap_err();
    assert!(matches!(error, Error::Resume { .. }), "{error}");
    assert_eq!(before, bytes(prefix.parent().unwrap()));
    error.to_string()
}

#[test]
fn only_the_same_thing_is_resumed() {
    let x = data();
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("run");
    save_unfinished(&prefix);

    let mut other = x.clone();
    other[[7, 1]] += 1e-9;
    let summary = DataSummary::new(&Samples::from_f64(x.view()).unwrap());
    let message = refusal(&prefix, &model(&other), &mut Odd::new(&other));
    assert!(message.contains("the data") && message.contains("sha256"), "{message}");

    let stated = Prior::from_json(r#"{"weights": {"dirichlet": {"concentration": 2.0}}}"#).unwrap();
    let prior = PosteriorModel::new(2, CovarianceType::Diag, &stated, Some(0), &summary).unwrap();
    assert!(refusal(&prefix, &prior, &mut Odd::new(&x)).contains("the prior"));
    let unordered = PosteriorModel::new(2, CovarianceType::Diag, &Prior::default(), None, &summary).unwrap();
    assert!(refusal(&prefix, &unordered, &mut Odd::new(&x)).contains("the model"));
    let larger = PosteriorModel::new(3, CovarianceType::Diag, &Prior::default(), Some(0), &summary).unwrap();
    assert!(refusal(&prefix, &larger, &mut Odd::new(&x)).contains("another model"));

    let message = refusal(&prefix, &model(&x), &mut Odd { kernel: "direct", ..Odd::new(&x) });
    assert!(message.contains("the kernel reference, not direct"), "{message}");
    let message = refusal(&prefix, &model(&x), &mut Odd { factor: 1.0 + 1e-15, ..Odd::new(&x) });
    assert!(message.contains("was at log density"), "{message}");
    // The same model, data and kernel are accepted.
    resume(&prefix, &mut posterior());
}

#[test]
fn nothing_is_overwritten_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("run");
    check_outputs(&prefix, 3, false).unwrap();
    save_unfinished(&prefix);
    assert!(matches!(check_outputs(&prefix, 3, false), Err(Error::Unfinished { .. })));
    assert!(matches!(check_outputs(&folder.path().join("no/where"), 3, false), Err(Error::Io { .. })));
    std::fs::write(folder.path().join("other-4.csv"), "mine").unwrap();
    assert!(matches!(check_outputs(&folder.path().join("other"), 3, false), Err(Error::Setting { .. })));
    let Err(Error::Exists { paths }) = check_outputs(&folder.path().join("other"), 4, false) else { panic!() };
    assert_eq!(paths, [folder.path().join("other-4.csv")]);
    check_outputs(&folder.path().join("other"), 4, true).unwrap();
    check_outputs(&prefix, 3, true).unwrap();

    // A save that cannot put its last file in place leaves no partial file under a result's name.
    let run = run_from_prior(settings(Sampler::METROPOLIS), &mut posterior());
    assert!(matches!(run.save(&folder.path().join("no/where")), Err(Error::Io { .. })));
}

#[test]
fn the_csv_is_cmdstans() {
    let folder = tempfile::tempdir().unwrap();
    let mut posterior = posterior();
    let mut run = run_from_prior(settings(Sampler::NUTS), &mut posterior);
    let files = run.save(&folder.path().join("run")).unwrap();
    let names: Vec<_> = files.iter().map(|f| f.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["run-1.csv", "run-2.csv", "run-3.csv", "run.npz"]);
    let text = std::fs::read_to_string(&files[1]).unwrap();
    // ArviZ and CmdStanPy need settings by these names, the adaptation below the header, and comments at the end.
    for line in [
        "# model = gmm_mcmc_model",
        "# method = sample (Default)",
        "#     num_samples = 80",
        "#     num_warmup = 60",
        "#     save_warmup = false",
        "#     thin = 2",
        "#     algorithm = hmc (Default)",
        "#       engine = nuts (Default)",
        "#         max_depth = 10",
        "#       metric = diag_e (Default)",
        "# id = 2",
        "#   seed = 11",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
    let lines: Vec<&str> = text.lines().collect();
    let header = lines.iter().position(|l| l.starts_with("lp__,")).unwrap();
    assert_eq!(lines[header + 1], "# Adaptation terminated");
    let step: f64 = lines[header + 2].strip_prefix("# Step size = ").unwrap().parse().unwrap();
    assert!(step > 0.0);
    assert_eq!(lines[header + 3], "# Diagonal elements of inverse mass matrix:");
    assert_eq!(lines[header + 4].split(", ").count(), posterior.dim());
    assert_eq!(lines[lines.len() - 2..], ["#", "#"]);
    let rows: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
    assert_eq!(
        rows[0],
        "lp__,accept_stat__,stepsize__,treedepth__,n_leapfrog__,divergent__,energy__,weights.1,weights.2,\
         means.1.1,means.2.1,means.1.2,means.2.2,covariances.1.1,covariances.2.1,covariances.1.2,covariances.2.2"
    );
    assert_eq!(rows.len(), 41);
    let means = run.draws("means").unwrap();
    for (i, row) in rows[1..].iter().enumerate() {
        let numbers: Vec<f64> = row.split(',').map(|v| v.parse().unwrap()).collect();
        assert_eq!(numbers.len(), 17);
        assert_eq!(numbers[9..13], [0, 2, 1, 3].map(|j| means[[1, i, j / 2, j % 2]]));
        // The energy is the log density plus a kinetic energy that is not negative.
        assert!(numbers[6] >= -numbers[0] - 1e-9 * numbers[0].abs());
    }
    // The largest possible number of draws needs more iterations than fit into a usize.
    run.set_draws(usize::MAX).unwrap();
    let files = run.save(&folder.path().join("run")).unwrap();
    let text = std::fs::read_to_string(&files[0]).unwrap();
    assert!(text.lines().any(|l| l == format!("#     num_samples = {}", 2 * usize::MAX as u128)), "{text}");
}
