//! The choice of a variant by measured time, remembered in the process and, if the caller names one, in a file.
//!
//! A process's first choice for a task stands until its end, so that equal evaluations give equal bits. The file keeps
//! it for later processes; a damaged file counts as empty.
use super::family::{Family, Variant};
use super::task::Task;
use crate::device::gpu::{Gpu, lock};
use gmm_core::error::{Error, Result};
use gmm_kernels::ptx::{checksum, names};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

/// The time for timing the variants of a task, the likely best first.
const BUDGET: Duration = Duration::from_millis(100);
/// A variant slower than the best so far by this factor is measured only once.
const HOPELESS: f64 = 3.0;
/// A later variant must take less than this share of the best time so far, since a smaller difference may be noise.
const BETTER: f64 = 0.98;
/// The approximate time of a measurement, by several launches if one is shorter.
const MEASUREMENT: f64 = 3e-4;
/// The fused multiply-adds of a launch long enough to judge a kernel bound by them.
const ENOUGH_WORK: usize = 4_000_000_000;
/// The samples that fill any device with work.
const ENOUGH_SAMPLES: usize = 1 << 17;

/// The evaluation by which variants are timed.
pub trait Trial {
    /// Makes a variant ready for the first `n` samples.
    fn prepare(&mut self, variant: Variant, n: usize) -> Result<()>;

    /// Returns the seconds of one prepared launch: the mean over `repeats` back to back, by the device's clock.
    fn seconds(&mut self, repeats: u32) -> Result<f64>;
}

/// Returns the median of a few measurements, or one measurement if a launch is long enough or the variant hopeless: the
/// first if it takes ten times as long, because its preparations are then too short to matter.
fn measure(trial: &mut dyn Trial, best: f64) -> Result<f64> {
    let first = trial.seconds(1)?;
    if first > 10.0 * MEASUREMENT {
        return Ok(first);
    }
    let once = trial.seconds(1)?;
    if once > HOPELESS * best || once > MEASUREMENT {
        return Ok(once);
    }
    let repeats = (MEASUREMENT / once.max(1e-6)).clamp(1.0, 50.0) as u32;
    let mut times = [0.0; 3];
    for time in &mut times {
        *time = trial.seconds(repeats)?;
    }
    times.sort_by(f64::total_cmp);
    Ok(times[1])
}

#[derive(Debug, Clone, Copy)]
pub struct Chooser<'a> {
    pub gpu: &'a Gpu,
    pub file: Option<&'a Path>,
}

impl Chooser<'_> {
    /// Returns a task's only variant, the remembered choice, or the fastest by measurement, of a requested family if
    /// any.
    pub fn choose(
        &self,
        task: &Task,
        requested: Option<&'static dyn Family>,
        variants: Vec<Variant>,
        trial: &mut dyn Trial,
    ) -> Result<Variant> {
        if let [only] = variants[..] {
            return Ok(only);
        }
        let key = key(&self.gpu.info.name, task, requested, &variants);
        if let Some(known) = remembered(self.file, &key, &variants) {
            return Ok(known);
        }
        let fastest = fastest(task, variants, trial)?;
        Ok(remember(self.file, key, fastest))
    }
}

fn fastest(task: &Task, variants: Vec<Variant>, trial: &mut dyn Trial) -> Result<Variant> {
    // A part of the samples is enough to compare kernels bound by arithmetic.
    let of_sample = task.k * task.d * if task.full() { task.d.div_ceil(2) } else { 1 };
    let enough = task.n.min(ENOUGH_SAMPLES.max(ENOUGH_WORK / of_sample));
    let began = Instant::now();
    let mut compiling = Duration::ZERO;
    let mut best: Option<(f64, Variant)> = None;
    let mut failure = None;
    for variant in variants {
        let n = if variant.family.facts().timed_with_all_samples { task.n } else { enough };
        let compile = Instant::now();
        let prepared = trial.prepare(variant, n);
        compiling += compile.elapsed();
        let so_far = best.map_or(f64::INFINITY, |(seconds, _)| seconds);
        match prepared.and_then(|()| measure(trial, so_far)) {
            // Another variant may still work; if the device itself has failed, all variants fail.
            Err(error) => failure = Some(failure.unwrap_or(error)),
            Ok(seconds) if seconds < BETTER * so_far => best = Some((seconds, variant)),
            Ok(_) => {}
        }
        if best.is_some() && began.elapsed() > BUDGET + compiling {
            break;
        }
    }
    match (best, failure) {
        (Some((_, variant)), _) => Ok(variant),
        (None, Some(error)) => Err(error),
        (None, None) => Err(Error::Unsupported {
            what: format!("the evaluation `{task}`"),
            backend: "the CUDA backend",
            remedy: "use device `cpu`",
        }),
    }
}

/// Returns the key of a choice: device, code of the kernels, candidates, size class.
fn key(device: &str, task: &Task, requested: Option<&'static dyn Family>, variants: &[Variant]) -> String {
    static CODE: LazyLock<Vec<Option<u32>>> = LazyLock::new(|| names().into_iter().map(checksum).collect());
    let mut hasher = DefaultHasher::new();
    (&*CODE, variants).hash(&mut hasher);
    let requested = requested.map_or("any", |family| family.name());
    format!("{device}; {:016x}; {requested}; {task}", hasher.finish())
}

/// Choices made so far, by key: those of this process, and those of requested files.
static CHOICES: Mutex<BTreeMap<String, Variant>> = Mutex::new(BTreeMap::new());

fn remembered(file: Option<&Path>, key: &str, variants: &[Variant]) -> Option<Variant> {
    let mut choices = lock(&CHOICES);
    if let Some(known) = choices.get(key) {
        return Some(*known);
    }
    let known = read(file?).get(key)?.parse().ok().filter(|known| variants.contains(known))?;
    choices.insert(key.into(), known);
    Some(known)
}

/// Remembers a choice, and returns the one that stands: another thread may have been first.
fn remember(file: Option<&Path>, key: String, variant: Variant) -> Variant {
    // Held while the file is written: threads of several GPUs share it.
    let mut choices = lock(&CHOICES);
    let standing = *choices.entry(key.clone()).or_insert(variant);
    if let Some(file) = file {
        // If this fails, the next process measures again.
        let _ = write(file, key, standing.to_string());
    }
    standing
}

fn read(path: &Path) -> BTreeMap<String, String> {
    std::fs::read_to_string(path).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// Adds an entry to the file's present content, and replaces the whole file.
fn write(path: &Path, key: String, value: String) -> std::io::Result<()> {
    let mut choices = read(path);
    choices.insert(key, value);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut text = serde_json::to_string_pretty(&choices)?;
    text.push('\n');
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    std::fs::write(&temporary, text)?;
    std::fs::rename(&temporary, path).inspect_err(|_| {
        let _ = std::fs::remove_file(&temporary);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::tests::TASK;
    use crate::plan::task::Operation;

    #[test]
    fn the_file_is_replaced_as_a_whole_and_damage_is_ignored() {
        let folder = std::env::temp_dir().join(format!("gmm-tuning-{}", std::process::id()));
        let path = folder.join("deep").join("tuning.json");
        assert!(read(&path).is_empty());
        write(&path, "a".into(), "small_k:128x4:0".into()).unwrap();
        write(&path, "b".into(), "small_k:128x3:0".into()).unwrap();
        assert_eq!(read(&path).into_values().collect::<Vec<_>>(), ["small_k:128x4:0", "small_k:128x3:0"]);
        std::fs::write(&path, "{ \"a\": ").unwrap();
        assert!(read(&path).is_empty());
        write(&path, "c".into(), "x".into()).unwrap();
        assert_eq!(read(&path).len(), 1);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file is left");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_key_tells_tasks_and_candidates_apart() {
        let task = Task { operation: Operation::Total, ..TASK };
        let (a, b): (Variant, Variant) = ("small_k:128x4:0".parse().unwrap(), "small_k:128x3:0".parse().unwrap());
        let first = key("NVIDIA H200", &task, None, &[a, b]);
        assert_eq!(first, key("NVIDIA H200", &Task { n: 9_999_999, ..task }, None, &[a, b]), "one size class");
        let others = [
            key("NVIDIA A100", &task, None, &[a, b]),
            key("NVIDIA H200", &task, Some(&crate::likelihood::small_k::SMALL_K), &[a, b]),
            key("NVIDIA H200", &task, None, &[a]),
            key("NVIDIA H200", &Task { n: 999_999, ..task }, None, &[a, b]),
            key("NVIDIA H200", &Task { k: 7, ..task }, None, &[a, b]),
            key("NVIDIA H200", &Task { operation: Operation::Totals, ..task }, None, &[a, b]),
            key("NVIDIA H200", &Task { weighted: true, ..task }, None, &[a, b]),
            key("NVIDIA H200", &Task { gaps: true, ..task }, None, &[a, b]),
        ];
        assert!(!others.contains(&first));
    }

    #[test]
    fn the_first_choice_stands() {
        let (a, b): (Variant, Variant) = ("pair/8:256x8:all".parse().unwrap(), "pair/16:512x4:all".parse().unwrap());
        let key = "a device of this test; no task";
        assert_eq!(*lock(&CHOICES).entry(key.into()).or_insert(a), a);
        assert_eq!(remembered(None, key, &[b]), Some(a));
    }
}
