//! Tests of `gmm-bench`: each runs the program like a user, and checks its output and files.
use assert_cmd::Command;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

fn bench(folder: impl AsRef<Path>, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gmm-bench"));
    command.current_dir(folder).args(args).timeout(Duration::from_secs(120));
    command
}

/// The output of a successful run.
fn stdout(folder: &TempDir, args: &[&str]) -> String {
    let run = bench(folder, args).assert().success();
    String::from_utf8(run.get_output().stdout.clone()).unwrap()
}

fn rows(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

fn refused(folder: &TempDir, args: &[&str], said: &str) {
    let run = bench(folder, args).assert().failure().stdout("");
    let stderr = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
    assert!(stderr.contains(said) && !stderr.contains("panicked"), "{args:?}: {stderr}");
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn rows_of_a_file_are_reported() {
    let folder = folder();
    let row = |device: &str, n: u32, seconds: f64| {
        format!(r#"{{"device": "{device}", "kernel": "x", "n": {n}, "k": 8, "d": 13, "seconds": {seconds}}}"#)
    };
    // The CPU's times are proportional to N and meet the GPU's at N = 1000.
    let times = [row("cpu", 100, 1e-6), row("cpu", 10_000, 1e-4), row("cuda", 100, 1e-5), row("cuda", 10_000, 1e-5)];
    fs::write(folder.path().join("rows.json"), format!("[{}]", times.join(","))).unwrap();
    let report = ["report", "rows.json", "--plot", "p.svg"];
    let text = stdout(&folder, &report);
    assert!(text.contains("the GPU overtakes the CPU at about N = 1,000"), "{text}");
    assert!(fs::read_to_string(folder.path().join("p.svg")).unwrap().contains("cuda"));
    for (rows, message) in [
        ("{}".to_string(), "rows.json: not rows of gmm bench"),
        ("[]".into(), "nothing to report"),
        (format!("[{}]", row("cpu", 0, 1.0)), "rows.json: row 0 (counted from 0)"),
        (format!("[{}]", row("cpu", 1, -1.0)), "must be above 0"),
    ] {
        fs::write(folder.path().join("rows.json"), rows).unwrap();
        refused(&folder, &report, message);
    }
    refused(&folder, &["report", "none.json"], "none.json: cannot read it");
}

#[test]
fn workloads_are_set_beside_published_times() {
    let folder = folder();
    for (workload, shape, published, title) in [
        ("inner-products", &["-k", "5", "-d", "7"][..], "cudamat", "D = 7"),
        ("gaussian-kernel", &["-d", "3"], "NumPy", "D = 3"),
    ] {
        let args = [workload, "--device", "reference,cpu", "--n", "10,100", "--seconds", "0.001"];
        let with = |more: &[&'static str]| [&args[..], shape, more].concat();
        let text = stdout(&folder, &with(&["--plot", "p.svg"]));
        assert!(text.contains(published) && text.contains("× the best here"), "{text}");
        let svg = fs::read_to_string(folder.path().join("p.svg")).unwrap();
        assert!(svg.contains("<polyline") && svg.contains(title));
        let json = stdout(&folder, &with(&["--json"]));
        let sizes: Vec<_> = rows(&json).iter().map(|r| r["n"].as_u64().unwrap()).collect();
        assert_eq!(sizes, [10, 100, 10, 100]);
        // Rows are reported as they were when measured.
        fs::write(folder.path().join("rows.json"), json).unwrap();
        let reported = stdout(&folder, &["report", "rows.json"]);
        assert!(reported.contains(published) && reported.contains(if title == "D = 7" { "5 × 7" } else { title }));
    }
    refused(&folder, &["gaussian-kernel", "-k", "3"], "-k");
}

#[test]
fn a_million_evaluations_are_measured() {
    let folder = folder();
    let args = ["mcmc", "--device", "cpu", "--n", "200", "-k", "2", "-d", "2", "--seconds", "0.2"];
    let rows = rows(&stdout(&folder, &[&args[..], &["--evaluations", "2000", "--json"]].concat()));
    // The mixture has nine parameters, and the ensemble twice as many walkers.
    let cases = [("metropolis", 1), ("metropolis", 64), ("ensemble", 18), ("nuts", 1)];
    assert_eq!(rows.len(), cases.len());
    for (row, (sampler, chains)) in rows.iter().zip(cases) {
        assert_eq!((row["sampler"].as_str(), row["chains"].as_u64()), (Some(sampler), Some(chains)));
        assert_eq!((row["n"].as_u64(), row["k"].as_u64(), row["d"].as_u64()), (Some(200), Some(2), Some(2)));
        let seconds = row["seconds"].as_f64().unwrap();
        assert!(seconds > 0.0 && row["evaluations"].as_u64().unwrap() > 0);
        // Both come from one measurement.
        assert!((row["seconds_per_million"].as_f64().unwrap() / (seconds * 1e6) - 1.0).abs() < 1e-12);
    }
    let text = stdout(&folder, &[&args[..], &["--evaluations", "500"]].concat());
    assert!(text.contains("NumPy, 2018") && text.contains("1.1 years"), "{text}");
}

/// Tests every option that decides a size.
#[test]
fn absurd_sizes_are_refused() {
    let folder = folder();
    let (most, memory) = ("18446744073709551615", "of memory");
    for k in ["1e12", most] {
        refused(&folder, &["mcmc", "--device", "cpu", "-k", k], memory);
        refused(&folder, &["inner-products", "--device", "cpu", "-k", k], memory);
    }
    for workload in ["inner-products", "gaussian-kernel"] {
        for d in ["1e9", "1e15", most] {
            refused(&folder, &[workload, "--device", "cpu", "--n", "1e6", "-d", d], memory);
        }
        refused(&folder, &[workload, "--device", "cpu", "--n", most], memory);
    }
}

/// Tests small cases that the CPU can run; the others need GPUs.
#[test]
fn tables_have_their_rows() {
    let folder = folder();
    let missing = stdout(&folder, &["missing", "--n", "50", "-k", "2", "--covariance-type", "diag"]);
    let rows: Vec<Vec<&str>> = missing.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    // 50 rows have at most 50 patterns.
    let patterns: Vec<usize> = rows.iter().map(|row| row[2].parse().unwrap()).collect();
    assert!(patterns[0] == 1 && patterns[1] == 10 && patterns[2..].iter().all(|n| *n <= 50), "{missing}");
    assert!(patterns.len() == 6 && rows.iter().all(|row| row.contains(&"diag")), "{missing}");
    let gpu = bench(&folder, &["operations"]).env("CUDA_VISIBLE_DEVICES", "-1").assert().failure();
    assert!(String::from_utf8_lossy(&gpu.get_output().stderr).contains("CUDA"));
}

#[test]
fn fits_of_a_file_are_timed() {
    let folder = folder();
    let x = ndarray::Array2::from_shape_fn((40, 2), |(i, j)| ((i * (j + 2)) as f32).sin());
    ndarray_npy::write_npy(folder.path().join("x.npy"), &x).unwrap();
    ndarray_npy::write_npy(folder.path().join("m.npy"), &x.slice(ndarray::s![..3, ..])).unwrap();
    let numbers = |text: String| -> Vec<Vec<f64>> {
        text.lines().map(|line| line.split(' ').map(|number| number.parse().unwrap()).collect()).collect()
    };
    let ten = numbers(stdout(&folder, &["em", "ten", "x.npy", "m.npy", "full"]));
    assert!(ten.len() == 1 && ten[0].len() == 2 && ten[0][0] > 0.0, "{ten:?}");
    let starts = numbers(stdout(&folder, &["em", "start", "x.npy", "3", "diag", "2"]));
    assert!(
        starts.len() == 2 && starts.iter().all(|row| row.len() == 4 && row[0] > 0.0 && row[2] >= 1.0),
        "{starts:?}"
    );
}
