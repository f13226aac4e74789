//! Helpers of the program's tests.
#![allow(dead_code, reason = "tests/cuda.rs uses a part of it")]
use assert_cmd::Command;
use gaussmix::evaluator::{Evaluator, ReferenceEvaluator};
use gaussmix::model::{Covariances, Mixture};
use ndarray::{Array1, Array2, arr1, arr2};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub fn gmm(folder: impl AsRef<Path>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gmm"));
    command.current_dir(folder);
    command
}

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
}

/// Returns the path of a scikit-learn model written by tests/data/make.py.
pub fn scikit_learn_model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

pub fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Returns samples (7, 3) whose values are the same in float32 and float64.
pub fn points() -> Array2<f64> {
    Array2::from_shape_fn((7, 3), |(i, j)| ((i * 5 + j * 3) % 11) as f64 / 4.0 - 1.0)
}

pub fn mixture() -> Mixture {
    let means = arr2(&[[0.0, 0.5, 1.0], [-0.5, 0.25, 0.0]]);
    Mixture::new(arr1(&[0.25, 0.75]), means, Covariances::Diag(arr2(&[[1.0, 0.5, 2.0], [0.75, 1.5, 1.0]]))).unwrap()
}

pub const MODEL: &str = r#"{"version": 1, "covariance_type": "diag", "weights": [0.25, 0.75],
    "means": [[0, 0.5, 1], [-0.5, 0.25, 0]], "covariances": [[1, 0.5, 2], [0.75, 1.5, 1]]}"#;

/// Returns the total log-likelihood and that of each sample, computed by the reference.
pub fn reference(data: &gaussmix::io::Data, mixture: &Mixture) -> (f64, Array1<f64>) {
    let mut evaluator = ReferenceEvaluator::new(data.samples().unwrap());
    (evaluator.log_likelihood(mixture).unwrap(), evaluator.score_samples(mixture).unwrap())
}

/// Returns a .npy of NumPy's format 1.0 with any header and any content.
pub fn npy(descr: &str, fortran: bool, shape: &str, body: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    npy_with_header(&format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"), body)
}

pub fn npy_with_header(header: &str, body: &[u8]) -> Vec<u8> {
    let mut header = header.as_bytes().to_vec();
    while !(header.len() + 11).is_multiple_of(64) {
        header.push(b' ');
    }
    header.push(b'\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header);
    file.extend(body);
    file
}

/// Returns the elements of `x`, row by row or column by column, as bytes.
pub fn bytes<const B: usize>(x: &Array2<f64>, fortran: bool, element: fn(f64) -> [u8; B]) -> Vec<u8> {
    let x = if fortran { x.t() } else { x.view() };
    x.iter().flat_map(|&v| element(v)).collect()
}

/// Returns the program, to run in `folder` with all GPUs hidden.
pub fn gmm_without_gpu(folder: impl AsRef<Path>) -> Command {
    let mut command = gmm(folder);
    command.env("CUDA_VISIBLE_DEVICES", "-1");
    command
}

#[track_caller]
pub fn number(report: &serde_json::Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("{name} in {report}"))
}

#[track_caller]
pub fn fit(folder: &Path, args: &[&str]) -> serde_json::Value {
    let run = gmm(folder).arg("fit").args(args).arg("--json").assert().success();
    serde_json::from_slice(&run.get_output().stdout).unwrap()
}

/// Writes 72 MB of float32 samples from four clouds, repeated many times, and returns their number.
pub fn write_clouds(path: &Path) -> u32 {
    let (n, d) = (1_125_000u32, 16u32);
    let pattern: Vec<u8> = (0..1_000 * d)
        .flat_map(|v| {
            let noise = (v.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32;
            (noise + (v / d % 4 * 3 + v % d) as f32).to_le_bytes()
        })
        .collect();
    std::fs::write(path, npy("'<f4'", false, &format!("({n}, {d})"), &pattern.repeat(1_125))).unwrap();
    n
}

/// Returns the names in a folder, in order, and the contents of the files (empty unless regular).
pub fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entry = |f: std::io::Result<std::fs::DirEntry>| {
        let f = f.unwrap();
        let content = if f.path().is_file() { std::fs::read(f.path()).unwrap() } else { Vec::new() };
        (f.file_name().into_string().unwrap(), content)
    };
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(entry).collect();
    files.sort();
    files
}

pub fn names(folder: &Path) -> Vec<String> {
    files(folder).into_iter().map(|(name, _)| name).collect()
}

/// Requires that the command fails, says all of `message` in its last line, and changes nothing.
#[track_caller]
pub fn refused(folder: &Path, args: &[&str], message: &[&str]) {
    let before = files(folder);
    let run = gmm(folder).args(args).assert().code(1).stdout("");
    let stderr = String::from_utf8(run.get_output().stderr.clone()).unwrap();
    for part in message {
        assert!(stderr.contains(part), "`{part}` is missing in: {stderr}");
    }
    assert!(stderr.lines().last().unwrap().starts_with("error: "), "{stderr}");
    assert!(files(folder) == before, "{args:?} changed a file");
}

/// Runs an endless command, presses Ctrl-C after a while, and returns its stderr.
#[cfg(unix)]
#[track_caller]
pub fn interrupted(folder: &Path, args: &[&str]) -> String {
    ended_by("INT", folder, args)
}

/// Like [`interrupted`], with any signal.
#[cfg(unix)]
#[track_caller]
pub fn ended_by(signal: &str, folder: &Path, args: &[&str]) -> String {
    let child = start(folder, args);
    wait_until_busy(&child);
    kill(signal, &child);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(130), 0));
    String::from_utf8(output.stderr).unwrap()
}

/// Starts the program in `folder`. It does not ignore SIGHUP, even if `nohup` started these tests.
#[cfg(unix)]
pub fn start(folder: &Path, args: &[&str]) -> std::process::Child {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    let mut command = Command::new(env!("CARGO_BIN_EXE_gmm"));
    let heed_sighup = || {
        // SAFETY: may be called between fork and exec, and changes this process alone.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(heed_sighup) };
    command.current_dir(folder).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits at most five minutes until a condition holds for a running process.
#[cfg(unix)]
#[track_caller]
pub fn wait_for(child: &std::process::Child, mut holds: impl FnMut(u32) -> bool) {
    let begin = std::time::Instant::now();
    while !holds(child.id()) {
        assert!(begin.elapsed().as_secs() < 300, "it did not come to that");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Waits until a process has computed long enough to have read its data, however slow the machine is.
#[cfg(unix)]
#[track_caller]
pub fn wait_until_busy(child: &std::process::Child) {
    wait_for(child, |id| match cpu_seconds(id) {
        Some(seconds) => seconds > 1.5,
        None => {
            std::thread::sleep(std::time::Duration::from_millis(1500));
            true
        }
    });
}

#[cfg(unix)]
#[track_caller]
pub fn kill(signal: &str, child: &std::process::Child) {
    let kill = format!("kill -{signal} {}", child.id());
    assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

#[cfg(unix)]
fn cpu_seconds(id: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // After the name, which may contain anything, the 12th and 13th fields are the times in ticks of 10 ms.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / 100.0)
}

/// Runs the program under a limit of the shell's `ulimit`, with two threads.
#[cfg(target_os = "linux")]
pub fn limited(folder: &Path, limit: &str, args: &[&str]) -> std::process::Output {
    let script = format!("ulimit {limit}; exec \"$0\" \"$@\"");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_gmm")]).args(args);
    shell.current_dir(folder).env("RAYON_NUM_THREADS", "2").output().unwrap()
}
