//! `gmm mcmc` and `gmm bench --mcmc`.
mod common;
use common::*;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Arguments for iris with three components, in the order of their petal lengths.
fn iris(more: &[&str]) -> Vec<String> {
    let data = data("iris.csv").display().to_string();
    let fixed = ["mcmc", &data, "-k", "3", "--order", "2", "--device", "cpu"];
    fixed.iter().chain(more).map(|s| s.to_string()).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn iris_is_sampled() {
    let folder = folder();
    let args = iris(&["-o", "post", "--warmup", "300", "--draws", "300", "--plot", "trace.svg", "--json"]);
    let run = gmm(&folder).args(args).assert().success().stderr("");
    let report: Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    for (name, expected) in [("n", 150), ("d", 4), ("k", 3), ("chains", 4), ("draws", 300), ("divergences", 0)] {
        assert_eq!(report[name], expected, "{name}");
    }
    assert_eq!(report["sampler"], "nuts");
    assert!(report["evaluations"].as_u64().unwrap() > 1200 && report["seconds"].as_f64().unwrap() > 0.0);
    // Chains this short agree to a few hundredths.
    assert!(report["max_r_hat"].as_f64().unwrap() < 1.06, "{report}");
    let parameters = report["parameters"].as_array().unwrap();
    assert_eq!(parameters.len(), 1 + 3 + 12 + 12);
    // The first component is the setosa flowers, which stand apart: the mean of their petal lengths is 1.462, and the posterior
    // cannot know it better than 0.17/√50.
    let setosa = parameters.iter().find(|p| p["name"] == "means.1.3").unwrap();
    assert!((setosa["mean"].as_f64().unwrap() - 1.462).abs() < 0.01, "{setosa}");
    assert!((0.015..0.04).contains(&setosa["std"].as_f64().unwrap()), "{setosa}");
    assert_eq!(names(folder.path()), ["post-1.csv", "post-2.csv", "post-3.csv", "post-4.csv", "post.npz", "trace.svg"]);
    let svg = fs::read_to_string(folder.path().join("trace.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("lp__") && svg.contains("weights.3"));

    // Made longer, in words; the summary is short enough to be all there.
    let args = iris(&["-o", "post", "--warmup", "300", "--draws", "320", "--resume"]);
    let run = gmm(&folder).args(args).assert().success();
    let text = String::from_utf8(run.get_output().stdout.clone()).unwrap();
    assert!(text.contains("4 chains of 320 draws") && text.contains("covariances.3.4"), "{text}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_what_was_drawn_and_resume_goes_on() {
    let folder = folder();
    let settings = |draws: &str, output: &str, more: &[&str]| {
        let fixed = ["--sampler", "metropolis", "--warmup", "500", "--thin", "20", "--chains", "2"];
        iris(&[&fixed, &["--draws", draws, "-o", output][..], more].concat())
    };
    // More than it will live to draw.
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gmm"));
    command.current_dir(&folder).args(settings("100000000", "run", &[])).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    let kill = format!("kill -INT {}", child.id());
    assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let note = String::from_utf8(output.stderr).unwrap();
    let drawn: usize = note.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    assert!(note.starts_with("note: interrupted") && drawn > 0, "{note}");
    assert_eq!(names(folder.path()), ["run.partial-1.csv", "run.partial-2.csv", "run.partial.npz"]);

    // Not by a new run.
    let again = gmm(&folder).args(settings("10", "run", &[])).assert().code(1);
    assert!(String::from_utf8_lossy(&again.get_output().stderr).contains("unfinished run"));

    // A little further, and the same without an interruption.
    let draws = (drawn + 7).to_string();
    gmm(&folder).args(settings(&draws, "run", &["--resume"])).assert().success();
    gmm(&folder).args(settings(&draws, "whole", &[])).assert().success();
    for (a, b) in [("run-1.csv", "whole-1.csv"), ("run-2.csv", "whole-2.csv"), ("run.npz", "whole.npz")] {
        let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
        assert!(read(a) == read(b), "{a} and {b} differ");
    }
    assert!(!names(folder.path()).iter().any(|name| name.contains("partial")));
}

/// The command must fail, say all of `message`, and write nothing.
#[track_caller]
fn refused(folder: &Path, args: &[&str], message: &[&str]) {
    let before = names(folder);
    let run = gmm(folder).args(args).assert().code(1).stdout("");
    let stderr = String::from_utf8(run.get_output().stderr.clone()).unwrap();
    for part in message {
        assert!(stderr.contains(part), "`{part}` is missing in: {stderr}");
    }
    assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{stderr}");
    assert_eq!(names(folder), before);
}

#[test]
fn bad_input() {
    let folder = folder();
    let path = folder.path();
    let rows: String = (0..8).map(|i| format!("{},{}\n", i % 3, f64::from(i * i % 7) / 2.0)).collect();
    fs::write(path.join("x.csv"), &rows).unwrap();
    fs::write(path.join("y.csv"), rows.replace("0.5", "0.25")).unwrap();
    fs::write(path.join("m.json"), MODEL).unwrap();
    fs::write(path.join("prior.json"), r#"{"scales": {"half_normal": {"scale": 0}}}"#).unwrap();
    fs::write(path.join("broken.json"), r#"{"scales": {"half_normal": {"#).unwrap();
    let base = ["mcmc", "x.csv", "--warmup", "50", "--draws", "20", "-o", "out"];
    let with = |more: &[&'static str]| [&base[..], more].concat();
    refused(path, &with(&["-k", "9"]), &["9 components over 8 samples"]);
    refused(path, &with(&["-k", "2", "--order", "2"]), &["columns 0 to 1"]);
    refused(path, &with(&["-k", "2", "--prior", "prior.json"]), &["prior", "component 0, column 0", "is 0"]);
    refused(path, &with(&["-k", "2", "--prior", "broken.json"]), &["broken.json", "line 1"]);
    refused(path, &with(&["-k", "2", "--prior", "none.json"]), &["none.json"]);
    refused(path, &with(&["-k", "2", "--init", "m.json"]), &["(2, 3)", "(2, 2)"]);
    refused(path, &with(&["-k", "2", "--covariance-type", "tied"]), &["full, diag and spherical"]);
    refused(path, &with(&["-k", "2", "--sampler", "ensemble", "--chains", "7"]), &["even number"]);
    refused(path, &with(&["-k", "2", "--resume"]), &["out.npz"]);
    refused(path, &["mcmc", "x.csv", "-k", "2", "-o", "no/where"], &["no"]);

    // A run, and what cannot go on from it.
    gmm(path).args(with(&["-k", "2"])).assert().success();
    let resumed = |data: &'static str, draws: &'static str, more: &[&'static str]| {
        [&["mcmc", data, "--warmup", "50", "--draws", draws, "-o", "out", "--resume"][..], more].concat()
    };
    refused(path, &resumed("y.csv", "20", &["-k", "2"]), &["out.npz", "the data", "sha256"]);
    refused(path, &resumed("x.csv", "20", &["-k", "3"]), &["another model"]);
    refused(
        path,
        &resumed("x.csv", "20", &["-k", "2", "--seed", "1"]),
        &["another run: seed was 0 and is 1 now", "same options"],
    );
    refused(path, &resumed("x.csv", "19", &["-k", "2"]), &["at least 20 are needed"]);
}

#[test]
fn a_million_evaluations_are_measured() {
    let args = ["bench", "--mcmc", "--method", "cpu", "--n", "200", "-k", "2", "-d", "2", "--seconds", "0.2"];
    let run = gmm(".").args(args).args(["--evaluations", "2000", "--json"]).assert().success();
    let rows: Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    let rows = rows.as_array().unwrap();
    // Nine parameters, twice as many walkers.
    let cases = [("metropolis", 1), ("metropolis", 64), ("ensemble", 18), ("nuts", 1)];
    assert_eq!(rows.len(), cases.len());
    for (row, (sampler, chains)) in rows.iter().zip(cases) {
        assert_eq!((row["sampler"].as_str(), row["chains"].as_u64()), (Some(sampler), Some(chains)));
        assert_eq!((row["n"].as_u64(), row["k"].as_u64(), row["d"].as_u64()), (Some(200), Some(2), Some(2)));
        let seconds = row["seconds"].as_f64().unwrap();
        assert!(seconds > 0.0 && row["evaluations"].as_u64().unwrap() > 0);
        // The same number, scaled.
        assert!((row["seconds_per_million"].as_f64().unwrap() / (seconds * 1e6) - 1.0).abs() < 1e-12);
    }
    let run = gmm(".").args(args).args(["--evaluations", "500"]).assert().success();
    let text = String::from_utf8(run.get_output().stdout.clone()).unwrap();
    assert!(text.contains("NumPy, 2018") && text.contains("1.1 years"), "{text}");
}
