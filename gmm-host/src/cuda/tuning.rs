//! The choice of a variant by measured time, remembered in the process and in a file.
//!
//! The file is a JSON object of size classes and variants in the user's cache folder (`gmm/cuda-tuning.json`), or where
//! the environment variable `GMM_TUNING_FILE` says; if that is empty, there is none. A file that cannot be read or
//! written is as good as none.
use super::gpu::{Gpu, failed, lock};
use super::launch::{Columns, Lane, Plan};
use super::ptx::checksum;
use super::variant::{Kind, Task, Variant, candidates};
use crate::packed::Packed;
use crate::{Error, Result};
use cust::event::{Event, EventFlags};
use cust::memory::DeviceBuffer;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long the variants of a task may be timed.
const BUDGET: Duration = Duration::from_secs(2);
/// A variant this much slower than the best so far is not looked at again.
const HOPELESS: f64 = 3.0;
/// A later variant must be this much faster than the best so far: what is less is noise.
const BETTER: f64 = 0.98;
/// Launches of a measurement together take about this long, if a single one does not.
const MEASUREMENT: f64 = 1e-3;
/// Fused multiply-adds of a launch that is long enough to judge a kernel that is bound by them.
const ENOUGH_WORK: usize = 20_000_000_000;
/// Samples that fill any device with work.
const ENOUGH_SAMPLES: usize = 1 << 19;

/// What is evaluated while variants are timed.
pub(super) struct Trial<'a> {
    pub lane: &'a mut Lane,
    pub columns: Columns<'a>,
    pub sets: &'a [Packed<f32>],
    pub scores: Option<&'a mut DeviceBuffer<f32>>,
}

impl Trial<'_> {
    /// Seconds of one launch: the mean over `repeats` of them, back to back, by the device's own clock.
    pub fn seconds(&mut self, plan: &Plan, repeats: u32) -> Result<f64> {
        let event = || Event::new(EventFlags::DEFAULT).map_err(failed("cuEventCreate"));
        let (start, end) = (event()?, event()?);
        start.record(&self.lane.stream).map_err(failed("cuEventRecord"))?;
        for _ in 0..repeats {
            self.lane.launch(plan, self.columns, self.sets, self.scores.as_deref_mut())?;
        }
        end.record(&self.lane.stream).map_err(failed("cuEventRecord"))?;
        end.synchronize().map_err(failed("cuEventSynchronize"))?;
        let milliseconds = end.elapsed_time_f32(&start).map_err(failed("cuEventElapsedTime"))?;
        Ok(f64::from(milliseconds) / 1e3 / f64::from(repeats))
    }

    /// The median of a few measurements, or of one where the variant is slow or hopeless.
    fn measure(&mut self, plan: &Plan, best: f64) -> Result<f64> {
        self.lane.upload(plan, self.sets)?;
        self.seconds(plan, 1)?;
        let once = self.seconds(plan, 1)?;
        if once > HOPELESS * best || once > 20.0 * MEASUREMENT {
            return Ok(once);
        }
        let repeats = (MEASUREMENT / once.max(1e-6)).clamp(1.0, 50.0) as u32;
        let mut times = [0.0; 3];
        for time in &mut times {
            *time = self.seconds(plan, repeats)?;
        }
        times.sort_by(f64::total_cmp);
        Ok(times[1])
    }
}

/// The fastest variant for a task, among those of `kind` if one is given: the remembered one, or else by timing.
pub(super) fn choose(gpu: &Gpu, task: &Task, kind: Option<Kind>, mut trial: Trial<'_>) -> Result<Plan> {
    let variants = candidates(task, kind, &gpu.limits);
    if let [only] = variants[..] {
        return Plan::new(gpu, only, task);
    }
    let key = key(&gpu.info.name, task, kind, &variants);
    if let Some(known) = remembered(&key, &variants) {
        return Plan::new(gpu, known, task);
    }
    // A part of the samples will do where arithmetic decides.
    let part = task.n.min(ENOUGH_SAMPLES.max(ENOUGH_WORK / (task.k * task.d)));
    let began = Instant::now();
    let mut compiling = Duration::ZERO;
    let mut best: Option<(f64, Variant)> = None;
    let mut failure = None;
    for variant in variants {
        let short = if variant.kind == Kind::Direct { task.n } else { part };
        let compile = Instant::now();
        let plan = Plan::new(gpu, variant, &Task { n: short, ..*task });
        compiling += compile.elapsed();
        let so_far = best.map_or(f64::INFINITY, |(seconds, _)| seconds);
        let columns = trial.columns;
        let seconds = plan.and_then(|plan| {
            trial.columns = columns.part(0, short)?;
            trial.measure(&plan, so_far)
        });
        trial.columns = columns;
        match seconds {
            // Another kernel may still do; if the device itself has failed, they all fail.
            Err(error) => failure = Some(failure.unwrap_or(error)),
            Ok(seconds) if seconds < BETTER * so_far => best = Some((seconds, variant)),
            Ok(_) => {}
        }
        if best.is_some() && began.elapsed() > BUDGET + compiling {
            break;
        }
    }
    match (best, failure) {
        (Some((_, variant)), _) => Plan::new(gpu, remember(key, variant), task),
        (None, Some(error)) => Err(error),
        (None, None) => Err(Error::Unsupported {
            what: format!("the evaluation `{task}`"),
            backend: "the CUDA backend",
            remedy: "use device `cpu`",
        }),
    }
}

/// The key of a choice: device, code of the kernels in question and their candidates, size class.
fn key(device: &str, task: &Task, kind: Option<Kind>, variants: &[Variant]) -> String {
    let mut hasher = DefaultHasher::new();
    for variant in variants {
        (variant, checksum(&variant.kind.entry(task.d))).hash(&mut hasher);
    }
    let kind = kind.map_or("any", Kind::name);
    format!("{device}; {:016x}; {kind}; {task}", hasher.finish())
}

/// Choices made so far, by key: those of this process, and those of the file that were asked for.
static CHOICES: Mutex<BTreeMap<String, Variant>> = Mutex::new(BTreeMap::new());

fn remembered(key: &str, variants: &[Variant]) -> Option<Variant> {
    let mut choices = lock(&CHOICES);
    if let Some(known) = choices.get(key) {
        return Some(*known);
    }
    let known = read(&path()?).get(key)?.parse().ok().filter(|known| variants.contains(known))?;
    choices.insert(key.into(), known);
    Some(known)
}

/// Remembers a choice, and returns the one that stands: another thread may have been first.
fn remember(key: String, variant: Variant) -> Variant {
    let standing = *lock(&CHOICES).entry(key.clone()).or_insert(variant);
    if let Some(path) = path() {
        // Nothing is lost but time, next time.
        let _ = write(&path, key, standing.to_string());
    }
    standing
}

/// Where choices are kept.
fn path() -> Option<PathBuf> {
    match std::env::var_os("GMM_TUNING_FILE") {
        Some(path) if path.is_empty() => None,
        Some(path) => Some(path.into()),
        None => Some(dirs::cache_dir()?.join("gmm").join("cuda-tuning.json")),
    }
}

fn read(path: &Path) -> BTreeMap<String, String> {
    std::fs::read_to_string(path).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// Adds an entry to what the file holds now, and replaces the file as a whole.
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
    use crate::cuda::variant::Op;

    #[test]
    fn the_file_is_replaced_as_a_whole_and_damage_is_ignored() {
        let folder = std::env::temp_dir().join(format!("gmm-tuning-{}", std::process::id()));
        let path = folder.join("deep").join("tuning.json");
        assert!(read(&path).is_empty());
        write(&path, "a".into(), "direct:128x4:0".into()).unwrap();
        write(&path, "b".into(), "direct:128x3:0".into()).unwrap();
        assert_eq!(read(&path).into_values().collect::<Vec<_>>(), ["direct:128x4:0", "direct:128x3:0"]);
        std::fs::write(&path, "{ \"a\": ").unwrap();
        assert!(read(&path).is_empty());
        write(&path, "c".into(), "x".into()).unwrap();
        assert_eq!(read(&path).len(), 1);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file is left");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_key_tells_tasks_and_candidates_apart() {
        let task = Task { n: 1_000_000, k: 8, d: 13, op: Op::Total };
        let (a, b): (Variant, Variant) = ("direct:128x4:0".parse().unwrap(), "direct:128x3:0".parse().unwrap());
        let first = key("NVIDIA H200", &task, None, &[a, b]);
        assert_eq!(first, key("NVIDIA H200", &Task { n: 9_999_999, ..task }, None, &[a, b]), "one size class");
        let others = [
            key("NVIDIA A100", &task, None, &[a, b]),
            key("NVIDIA H200", &task, Some(Kind::Direct), &[a, b]),
            key("NVIDIA H200", &task, None, &[a]),
            key("NVIDIA H200", &Task { n: 999_999, ..task }, None, &[a, b]),
            key("NVIDIA H200", &Task { k: 7, ..task }, None, &[a, b]),
            key("NVIDIA H200", &Task { op: Op::Batch, ..task }, None, &[a, b]),
        ];
        assert!(!others.contains(&first));
    }

    /// The first choice of a process stands.
    #[test]
    fn the_first_choice_stands() {
        let (a, b): (Variant, Variant) = ("pair/8:256x8:all".parse().unwrap(), "pair/8:128x16:all".parse().unwrap());
        let key = "a device of this test; no task";
        assert_eq!(*lock(&CHOICES).entry(key.into()).or_insert(a), a);
        assert_eq!(remembered(key, &[b]), Some(a));
    }
}
