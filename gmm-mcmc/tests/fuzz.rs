//! Damaged files of a run or a prior: reading one ends with an error or with a run that can continue. It neither panics
//! nor allocates much more than the length of the file.
//!
//! A test run reads 10,000 damaged files. `GMM_FUZZ=1000000 cargo test --release -p gmm-mcmc --test fuzz` reads a
//! million. Case `n` is always the same: `GMM_FUZZ_CASE=n` reads it alone.
mod common;
use common::Nothing;
use gmm_host::{CovarianceType, Samples};
use gmm_mcmc::{
    Chains, DataSummary, Error, Journal, Posterior, PosteriorModel, Prior, Sampler, Saved, Settings, Start,
};
use ndarray::Array2;
use peak_alloc::PeakAlloc;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};
use std::io::{Cursor, Read, Write};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const CASES: u64 = 10_000;

/// A reader may allocate this much, and [`PER_BYTE`] for each byte of its files. serde reserves at most 1 MiB for each
/// of a few nested lists of claimed lengths.
const ALLOCATION: usize = 8 << 20;
const PER_BYTE: usize = 32;

const PRIOR: &str = r#"{"weights": {"dirichlet": {"concentration": [2.0, 1.5]}},
    "means": {"scaled_normal": {"location": [[0.5], [1.0]], "precision": 0.3}},
    "scales": {"inverse_gamma": {"shape": 2.5, "scale": [1.3]}}, "correlations": {"lkj": {"shape": 2}}}"#;

enum Files {
    Journal { state: Vec<u8>, log: Vec<u8> },
    Npz { finished: bool, content: Vec<u8> },
}

fn model() -> PosteriorModel {
    let x = Array2::from_shape_fn((9, 1), |(i, _)| (i as f64).sin());
    let summary = DataSummary::new(&Samples::from_f64(x.view()).unwrap());
    PosteriorModel::new(2, CovarianceType::Diag, &Prior::default(), Some(0), &summary).unwrap()
}

/// Returns the files of each sampler's run, stopped in its warm-up, stopped among its draws, and finished.
fn sound_files(model: &PosteriorModel) -> Vec<Files> {
    let mut all = Vec::new();
    for sampler in [Sampler::METROPOLIS, Sampler::METROPOLIS_BY_COMPONENT, Sampler::ENSEMBLE, Sampler::nuts(0.8, 4)] {
        let chains = if sampler == Sampler::ENSEMBLE { 6 } else { 2 };
        let settings = Settings::new(sampler).chains(chains).warmup(20).draws(5).seed(3);
        for (warming_up, done) in [(true, 13), (false, 3), (false, 5)] {
            let mut nothing = Nothing { n: 9, d: 1 };
            let mut posterior = Posterior::new(model, &mut nothing).unwrap();
            let start = Start::from_prior(model, &settings).unwrap();
            let mut run = Chains::new(settings.clone(), start, &mut posterior).unwrap();
            let stop = |p: &gmm_mcmc::Progress<'_>| {
                let here = p.warming_up == warming_up && p.done == done;
                if here { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            run.advance(&mut posterior, stop).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let prefix = folder.path().join("run");
            Journal::new(&prefix).save(&run).unwrap();
            let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
            all.push(Files::Journal { state: read("run.partial.state"), log: read("run.partial.log0") });
            run.save(&prefix).unwrap();
            let finished = run.finished();
            all.push(Files::Npz { finished, content: read(if finished { "run.npz" } else { "run.partial.npz" }) });
        }
    }
    all
}

/// Damages bytes in one to four places.
fn damage(bytes: &mut Vec<u8>, rng: &mut ChaCha8Rng) {
    for _ in 0..rng.random_range(1..=4) {
        if bytes.is_empty() {
            bytes.push(rng.random());
        }
        let at = rng.random_range(0..bytes.len());
        let length = rng.random_range(1..=16.min(bytes.len() - at));
        match rng.random_range(0..8) {
            0 => bytes[at] ^= 1 << rng.random_range(0..8),
            1 => bytes[at] = *[0, 1, 2, 0x7f, 0x80, 0xff].choose(rng).unwrap(),
            2 => bytes[at] = rng.random(),
            3 => bytes.truncate(at),
            4 => drop(bytes.drain(at..at + length)),
            5 => bytes.splice(at..at, (0..length).map(|_| rng.random())).for_each(drop),
            // An extreme number: not finite, large, small or zero.
            6 => {
                let v = *[f64::NAN, f64::INFINITY, -f64::MAX, 1e300, -0.0, 5e-324, 1.0].choose(rng).unwrap();
                let n = 8.min(bytes.len() - at);
                bytes[at..at + n].copy_from_slice(&v.to_le_bytes()[..n]);
            }
            // The largest integer in postcard's encoding.
            _ => {
                let n = 10.min(bytes.len() - at);
                bytes[at..at + n].copy_from_slice(&[255, 255, 255, 255, 255, 255, 255, 255, 255, 1][..n]);
            }
        }
    }
}

/// Returns the .npz with one of its arrays damaged, and correct checksums.
fn with_damaged_member(npz: &[u8], rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut archive = zip::ZipArchive::new(Cursor::new(npz)).unwrap();
    let mut out = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    // Half of the time it is the state, which has the most to damage.
    let state = archive.index_for_name("state.npy").unwrap();
    let which = if rng.random() { state } else { rng.random_range(0..archive.len()) };
    for i in 0..archive.len() {
        let mut member = archive.by_index(i).unwrap();
        let mut content = Vec::new();
        member.read_to_end(&mut content).unwrap();
        if i == which {
            // Most damage is after the header, which is 128 bytes long.
            let mut header: Vec<u8> = content.drain(..128).collect();
            damage(if rng.random_range(0..4) == 0 { &mut header } else { &mut content }, rng);
            content.splice(0..0, header).for_each(drop);
        }
        out.start_file(member.name(), options).unwrap();
        out.write_all(&content).unwrap();
    }
    out.finish().unwrap().into_inner()
}

/// Writes damaged files of a run; returns their size.
fn write_damaged(files: &Files, folder: &Path, rng: &mut ChaCha8Rng) -> usize {
    for name in ["run.partial.state", "run.partial.log0", "run.partial.npz", "run.npz"] {
        let _ = std::fs::remove_file(folder.join(name));
    }
    let write = |name: &str, content: &[u8]| std::fs::write(folder.join(name), content).unwrap();
    match files {
        Files::Journal { state, log } => {
            let (mut state, mut log) = (state.clone(), log.clone());
            if rng.random_range(0..3) == 0 {
                let hash = Sha256::digest(&log);
                damage(&mut log, rng);
                // The right hash of the wrong numbers: otherwise the hash would always reveal the damage.
                let at = state.windows(32).position(|w| w == hash.as_slice()).unwrap();
                state[at..at + 32].copy_from_slice(&Sha256::digest(&log));
            } else {
                damage(&mut state, rng);
            }
            write("run.partial.state", &state);
            write("run.partial.log0", &log);
            state.len() + log.len()
        }
        Files::Npz { finished, content } => {
            let mut content = content.clone();
            if rng.random_range(0..4) == 0 {
                damage(&mut content, rng);
            } else {
                content = with_damaged_member(&content, rng);
            }
            write(if *finished { "run.npz" } else { "run.partial.npz" }, &content);
            content.len()
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Result {
    /// It was refused when it was read.
    Unreadable,
    /// It was read, but refused when its run was resumed (or when a model was built with the prior).
    NotResumed,
    /// Its run was resumed (or its prior used).
    Resumed,
}

fn read_run(prefix: &Path, size: usize, model: &PosteriorModel) -> Result {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let saved = Saved::load(prefix);
    let allocated = ALLOCATOR.peak_usage().saturating_sub(before);
    assert!(allocated <= ALLOCATION + PER_BYTE * size, "{allocated} bytes were allocated for {size}");
    let saved = match saved {
        Ok(saved) => saved,
        Err(Error::Resume { .. } | Error::Io { .. }) => return Result::Unreadable,
        Err(e) => panic!("an error of another kind: {e}"),
    };
    let mut nothing = Nothing { n: 9, d: 1 };
    let mut posterior = Posterior::new(model, &mut nothing).unwrap();
    let mut run = match saved.resume(&mut posterior) {
        Ok(run) => run,
        Err(Error::Resume { .. }) => return Result::NotResumed,
        Err(e) => panic!("an error of another kind: {e}"),
    };
    // Some damage asks for more work than a test has time for.
    let settings = run.settings();
    if settings.thin > 100 || settings.warmup > 1000 {
        return Result::Resumed;
    }
    let mut left = 30;
    match run.advance(&mut posterior, |_| {
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }) {
        Ok(_) | Err(Error::Nuts { .. } | Error::Start(_)) => {}
        Err(e) => panic!("an error of another kind: {e}"),
    }
    let shape = [run.settings().chains, run.drawn(), 2, 1];
    assert_eq!(run.draws("means").unwrap().shape(), shape);
    Result::Resumed
}

fn read_prior(model: &PosteriorModel, rng: &mut ChaCha8Rng) -> Result {
    let mut text = PRIOR.as_bytes().to_vec();
    if rng.random_range(0..4) == 0 {
        damage(&mut text, rng);
    } else {
        // A different value replaces a digit, so that the JSON remains valid more often.
        let digits: Vec<usize> = (0..text.len()).filter(|&i| text[i].is_ascii_digit()).collect();
        let at = *digits.choose(rng).unwrap();
        let values = ["0", "-1", "7e300", "1e-300", "1e999", "null", "\"1\"", "[]", "[1, 2, 3]", "[[1], [2]]", "{}"];
        text.splice(at..=at, values.choose(rng).unwrap().bytes()).for_each(drop);
    }
    let Ok(prior) = Prior::from_json(&String::from_utf8_lossy(&text)) else { return Result::Unreadable };
    match PosteriorModel::new(2, CovarianceType::Diag, &prior, None, model.data()) {
        Err(Error::Prior { .. }) => Result::NotResumed,
        Err(e) => panic!("an error of another kind: {e}"),
        Ok(model) => {
            if let Ok(theta) = model.sample_prior(rng) {
                assert!(model.mixture(&theta).is_some());
            }
            Result::Resumed
        }
    }
}

#[test]
fn damaged_files_are_refused_or_go_on() {
    let number = |name: &str| std::env::var(name).ok().map(|v| v.parse::<u64>().unwrap());
    let cases = match number("GMM_FUZZ_CASE") {
        Some(case) => case..case + 1,
        None => 0..number("GMM_FUZZ").unwrap_or(CASES),
    };
    let model = model();
    let sound = sound_files(&model);
    let folder = tempfile::tempdir().unwrap();
    let mut counts = [[0u64; 3]; 3];
    for case in cases.clone() {
        let mut rng = ChaCha8Rng::seed_from_u64(case);
        let result = catch_unwind(AssertUnwindSafe(|| {
            if rng.random_range(0..10) == 0 {
                return (2, read_prior(&model, &mut rng));
            }
            let files = sound.choose(&mut rng).unwrap();
            let size = write_damaged(files, folder.path(), &mut rng);
            (usize::from(matches!(files, Files::Npz { .. })), read_run(&folder.path().join("run"), size, &model))
        }));
        let (kind, result) = result.unwrap_or_else(|_| panic!("case {case}: GMM_FUZZ_CASE={case} repeats it"));
        counts[kind][result as usize] += 1;
    }
    println!("{:10} {:>12} {:>12} {:>12}", "", "unreadable", "not resumed", "resumed");
    for (kind, counts) in ["journal", "npz", "prior"].iter().zip(counts) {
        println!("{kind:10} {:12} {:12} {:12}", counts[0], counts[1], counts[2]);
        // Every outcome occurs, so the damage is neither too small nor too large for the test.
        assert!(cases.end - cases.start < CASES || counts.iter().all(|&n| n > 0), "{kind}: {counts:?}");
    }
}
