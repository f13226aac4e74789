//! Helpers of the program's tests.
#![allow(dead_code, reason = "tests/cuda.rs uses a part of it")]
use arrow_array::{RecordBatch, RecordBatchWriter};
use assert_cmd::Command;
use gaussmix::evaluator::{Evaluator, ReferenceEvaluator};
use gaussmix::model::{Covariances, Mixture};
use ndarray::{Array1, Array2, ArrayRef, Dimension, arr1, arr2};
use ndarray_npy::WritableElement;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

pub fn gmm(folder: impl AsRef<Path>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gmm"));
    command.current_dir(folder);
    command
}

pub fn package(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub fn data(name: &str) -> PathBuf {
    package("data").join(name)
}

/// Arguments of the program: a list, or a text that is divided at its spaces. A word that begins with `data/` or
/// `tests/data/` is a file of this package.
pub trait Args {
    fn words(&self) -> Vec<OsString>;
}

impl Args for str {
    fn words(&self) -> Vec<OsString> {
        let is_ours = |word: &str| word.starts_with("data/") || word.starts_with("tests/data/");
        let word = |word: &str| if is_ours(word) { package(word).into() } else { word.into() };
        self.split_whitespace().map(word).collect()
    }
}

impl Args for String {
    fn words(&self) -> Vec<OsString> {
        self.as_str().words()
    }
}

impl<T: AsRef<OsStr>, const N: usize> Args for [T; N] {
    fn words(&self) -> Vec<OsString> {
        self.iter().map(Into::into).collect()
    }
}

impl<A: Args + ?Sized> Args for &A {
    fn words(&self) -> Vec<OsString> {
        (**self).words()
    }
}

/// A folder with the files of a test, in which the program runs.
pub struct Folder {
    dir: TempDir,
    hides_gpus: bool,
}

pub fn folder() -> Folder {
    Folder { dir: tempfile::tempdir().unwrap(), hides_gpus: false }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        self.dir.path()
    }
}

/// Requires that a text has all of these parts.
#[track_caller]
pub fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}

impl Folder {
    /// Hides all GPUs from the program.
    pub fn without_gpus(self) -> Self {
        Self { hides_gpus: true, ..self }
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    #[track_caller]
    pub fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    /// Writes an array as a .npy.
    #[track_caller]
    pub fn save<T: WritableElement, D: Dimension>(&self, name: &str, array: &ArrayRef<T, D>) {
        ndarray_npy::write_npy(self.path(name), array).unwrap();
    }

    #[track_caller]
    pub fn bytes(&self, name: impl AsRef<Path>) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    #[track_caller]
    pub fn text(&self, name: impl AsRef<Path>) -> String {
        String::from_utf8(self.bytes(name)).unwrap()
    }

    #[track_caller]
    pub fn model(&self, name: &str) -> Mixture {
        gaussmix::io::read_model(self.path(name)).unwrap()
    }

    /// Returns the numbers of a data file.
    #[track_caller]
    pub fn numbers(&self, name: &str) -> Array2<f64> {
        gaussmix::io::read_data(self.path(name)).unwrap().into_f64()
    }

    /// Returns the program with arguments, to be given an input or an environment.
    pub fn gmm(&self, args: impl Args) -> Command {
        let mut command = gmm(self);
        command.args(args.words());
        if self.hides_gpus {
            command.env("CUDA_VISIBLE_DEVICES", "-1");
        }
        command
    }

    /// Runs the program, which must end with an exit code, and returns its stdout and its stderr.
    #[track_caller]
    pub fn output(&self, code: i32, args: impl Args) -> (String, String) {
        let run = self.gmm(args).assert().code(code);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (text(&run.get_output().stdout), text(&run.get_output().stderr))
    }

    /// Runs the program, which must succeed, and returns its stdout.
    #[track_caller]
    pub fn run(&self, args: impl Args) -> String {
        self.output(0, args).0
    }

    /// Like [`run`](Self::run), for a command that says nothing on stderr.
    #[track_caller]
    pub fn silent(&self, args: impl Args) -> String {
        let (stdout, stderr) = self.output(0, args);
        assert_eq!(stderr, "");
        stdout
    }

    /// Like [`run`](Self::run), for a report as JSON.
    #[track_caller]
    pub fn json(&self, args: impl Args) -> Value {
        json(&mut self.gmm(args))
    }

    /// Returns the report of `gmm fit`.
    #[track_caller]
    pub fn fit(&self, args: impl Args) -> Value {
        json(self.gmm("fit --json").args(args.words()))
    }

    /// Runs the program, which must succeed, and returns its stderr.
    #[track_caller]
    pub fn notes(&self, args: impl Args) -> String {
        self.output(0, args).1
    }

    /// Runs the program, which must fail with an exit code and without output, and returns its stderr.
    #[track_caller]
    pub fn fails(&self, code: i32, args: impl Args) -> String {
        let (stdout, stderr) = self.output(code, args);
        assert_eq!(stdout, "");
        stderr
    }

    /// Requires that a command fails, says all of `message` in one line, after notes at most, and changes nothing. Returns
    /// its stderr.
    #[track_caller]
    pub fn refused(&self, args: impl Args, message: &[&str]) -> String {
        let stderr = self.refused_with(1, args, message);
        let errors: Vec<&str> = stderr.lines().filter(|line| !line.starts_with("note: ")).collect();
        assert!(errors.len() == 1 && errors[0].starts_with("error: "), "{stderr}");
        stderr
    }

    /// Requires that a command fails with an exit code, says all of `message` and changes nothing. Returns its stderr.
    #[track_caller]
    pub fn refused_with(&self, code: i32, args: impl Args, message: &[&str]) -> String {
        let before = files(self);
        let stderr = self.fails(code, &args);
        assert_has(&stderr, message);
        assert!(files(self) == before, "{:?} changed a file", args.words());
        stderr
    }

    pub fn names(&self) -> Vec<String> {
        names(self)
    }

    /// Runs an endless command, presses Ctrl-C after a while, and returns its stderr.
    #[cfg(unix)]
    #[track_caller]
    pub fn interrupted(&self, args: impl Args) -> String {
        self.ended_by("INT", args)
    }

    /// Like [`interrupted`](Self::interrupted), with any signal.
    #[cfg(unix)]
    #[track_caller]
    pub fn ended_by(&self, signal: &str, args: impl Args) -> String {
        let mut child = start(self, args);
        wait_until_busy(&mut child);
        kill(signal, &child);
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(130), 0));
        String::from_utf8(output.stderr).unwrap()
    }

    /// Requires that the program refuses to write a file of more than a number of blocks, and changes nothing.
    #[cfg(target_os = "linux")]
    #[track_caller]
    pub fn too_large(&self, blocks: usize, args: impl Args) {
        let before = files(self);
        let output = self.limited(&format!("-f {blocks}"), &args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        // On a busy machine a note of the progress comes first.
        let mut lines = stderr.lines();
        assert!(lines.any(|line| line.starts_with("error: ") && line.contains("File too large")), "{stderr}");
        assert!(files(self) == before, "{:?} changed a file", args.words());
    }

    /// Runs the program under a limit of the shell's `ulimit`, with two threads.
    #[cfg(target_os = "linux")]
    pub fn limited(&self, limit: &str, args: impl Args) -> std::process::Output {
        let script = format!("ulimit {limit}; exec \"$0\" \"$@\"");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_gmm")]).args(args.words());
        shell.current_dir(self).env("RAYON_NUM_THREADS", "2").output().unwrap()
    }
}

pub fn iris() -> Array2<f64> {
    gaussmix::io::read_data(data("iris.csv")).unwrap().into_f64()
}

/// Returns the names of a report's members, in order.
pub fn keys(report: &Value) -> String {
    let mut keys: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys.join(" ")
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

/// Returns the report of a command, which must succeed.
#[track_caller]
pub fn json(command: &mut Command) -> Value {
    serde_json::from_slice(&command.assert().success().get_output().stdout).unwrap()
}

#[track_caller]
pub fn number(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("{name} in {report}"))
}

/// Writes x.npy, 72 MB of float32 samples from four clouds, repeated many times, and returns their number.
pub fn write_clouds(folder: &Folder) -> u32 {
    let (n, d) = (1_125_000u32, 16u32);
    let pattern: Vec<u8> = (0..1_000 * d)
        .flat_map(|v| {
            let noise = (v.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32;
            (noise + (v / d % 4 * 3 + v % d) as f32).to_le_bytes()
        })
        .collect();
    folder.write("x.npy", npy("'<f4'", false, &format!("({n}, {d})"), &pattern.repeat(1_125)));
    n
}

/// Returns the names in a folder, in order, and the contents of the files (empty unless regular).
pub fn files(folder: impl AsRef<Path>) -> Vec<(String, Vec<u8>)> {
    let entry = |f: std::io::Result<fs::DirEntry>| {
        let f = f.unwrap();
        let content = if f.path().is_file() { fs::read(f.path()).unwrap() } else { Vec::new() };
        (f.file_name().into_string().unwrap(), content)
    };
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(entry).collect();
    files.sort();
    files
}

pub fn names(folder: impl AsRef<Path>) -> Vec<String> {
    files(folder).into_iter().map(|(name, _)| name).collect()
}

/// Starts the program in `folder`. It does not ignore SIGHUP, even if `nohup` started these tests.
#[cfg(unix)]
pub fn start(folder: impl AsRef<Path>, args: impl Args) -> std::process::Child {
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
    command.current_dir(folder).args(args.words()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits at most five minutes until a condition holds for a process, which must hold before it ends.
#[cfg(unix)]
#[track_caller]
pub fn wait_for(child: &mut std::process::Child, mut holds: impl FnMut(u32) -> bool) {
    let begin = std::time::Instant::now();
    loop {
        let end = child.try_wait().unwrap();
        if holds(child.id()) {
            return;
        }
        if let Some(status) = end {
            let stderr = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
            panic!("the program ended before that ({status}): {stderr}");
        }
        assert!(begin.elapsed().as_secs() < 300, "it did not come to that");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Waits until a process has computed long enough to have read its data, however slow the machine is.
#[cfg(unix)]
#[track_caller]
pub fn wait_until_busy(child: &mut std::process::Child) {
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
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // After the name, which may contain anything, the 12th and 13th fields are the times in ticks of 10 ms.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / 100.0)
}

/// Returns the names and contents of the members of an archive.
pub fn members(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut archive = zip::ZipArchive::new(fs::File::open(path).unwrap()).unwrap();
    let mut all = Vec::new();
    for i in 0..archive.len() {
        let mut entry = archive.by_index(i).unwrap();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
        all.push((entry.name().to_string(), bytes));
    }
    all
}

pub fn archive(path: &Path, members: &[(impl AsRef<str>, Vec<u8>)], method: CompressionMethod) {
    let mut archive = zip::ZipWriter::new(fs::File::create(path).unwrap());
    for (name, bytes) in members {
        let options = SimpleFileOptions::default().compression_method(method);
        archive.start_file(name.as_ref(), options).unwrap();
        std::io::Write::write_all(&mut archive, bytes).unwrap();
    }
    archive.finish().unwrap();
}

/// Writes a table in batches of some rows.
pub fn write_batches(mut writer: impl RecordBatchWriter, table: &RecordBatch, rows: usize) {
    for start in (0..table.num_rows()).step_by(rows) {
        writer.write(&table.slice(start, rows.min(table.num_rows() - start))).unwrap();
    }
    writer.close().unwrap();
}

/// Returns the bytes of a Parquet file.
pub fn parquet(batch: &RecordBatch, properties: Option<WriterProperties>) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_batches(ArrowWriter::try_new(&mut bytes, batch.schema(), properties).unwrap(), batch, usize::MAX);
    bytes
}
