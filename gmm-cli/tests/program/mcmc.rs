//! `gmm mcmc`.
use crate::common::*;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Returns arguments for iris with three components, in the order of their petal lengths.
fn iris(more: &[&str]) -> Vec<String> {
    let data = data("iris.csv").display().to_string();
    let fixed = ["mcmc", &data, "-k", "3", "--order", "2", "--device", "cpu"];
    fixed.iter().chain(more).map(|s| s.to_string()).collect()
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
    // Such short chains agree to a few hundredths.
    assert!(report["max_r_hat"].as_f64().unwrap() < 1.06, "{report}");
    let parameters = report["parameters"].as_array().unwrap();
    assert_eq!(parameters.len(), 1 + 3 + 12 + 12);
    // The first component is the setosa flowers, which stand apart: the mean of their petal lengths is 1.462, and the
    // posterior's uncertainty is at least 0.17/√50.
    let setosa = parameters.iter().find(|p| p["name"] == "means.1.3").unwrap();
    assert!((setosa["mean"].as_f64().unwrap() - 1.462).abs() < 0.01, "{setosa}");
    assert!((0.015..0.04).contains(&setosa["std"].as_f64().unwrap()), "{setosa}");
    assert_eq!(names(folder.path()), ["post-1.csv", "post-2.csv", "post-3.csv", "post-4.csv", "post.npz", "trace.svg"]);
    let svg = fs::read_to_string(folder.path().join("trace.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("lp__") && svg.contains("weights.3"));

    let before = fs::read(folder.path().join("post-1.csv")).unwrap();
    let short = iris(&["-o", "post", "--warmup", "30", "--draws", "10"]);
    refused(folder.path(), &short, &["post-1.csv, post-2.csv", "post.npz", "--resume", "--overwrite"]);
    assert!(fs::read(folder.path().join("post-1.csv")).unwrap() == before);

    // The run is made longer. The report in words shows all parameters.
    let args = iris(&["-o", "post", "--warmup", "300", "--draws", "320", "--resume"]);
    let run = gmm(&folder).args(args).assert().success();
    let text = String::from_utf8(run.get_output().stdout.clone()).unwrap();
    assert!(text.contains("4 chains of 320 draws") && text.contains("covariances.3.4"), "{text}");

    gmm(&folder).args(short).arg("--overwrite").assert().success();
    assert!(fs::read(folder.path().join("post-1.csv")).unwrap() != before);
}

#[test]
fn the_order_is_that_of_a_feature_by_name_or_by_number() {
    let folder = folder();
    let data = data("iris.csv").display().to_string();
    let draws = |order: &str, more: &[&str]| {
        let args =
            ["mcmc", &data, "-k", "2", "--order", order, "--sampler", "metropolis", "--chains", "2", "-o", "post"];
        let short = ["--warmup", "30", "--draws", "20", "--overwrite"];
        gmm(&folder).args(args).args(short).args(more).assert().success();
        let text = fs::read_to_string(folder.path().join("post-1.csv")).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect::<String>()
    };
    let by_name = draws("petal_length_cm", &[]);
    assert_eq!(by_name, draws("2", &[]));
    assert_ne!(by_name, draws("sepal_width_cm", &[]));
    // The number counts the features, which --columns may have selected.
    let columns = ["--columns", "petal_length_cm,sepal_width_cm"];
    assert_eq!(draws("petal_length_cm", &columns), draws("0", &columns));
}

fn default_r_hat(data: &Path, order: &str, sampler: &str) -> f64 {
    let folder = folder();
    let args = ["-k", "3", "--order", order, "--sampler", sampler, "--device", "cpu", "-o", "post", "--json"];
    let run = gmm(&folder).arg("mcmc").arg(data).args(args).assert().success();
    let report: Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    println!("{sampler}: R-hat {}, {} s", report["max_r_hat"], report["seconds"]);
    report["max_r_hat"].as_f64().unwrap()
}

#[test]
fn every_sampler_converges_on_iris_by_default() {
    for sampler in ["nuts", "metropolis", "ensemble"] {
        // R-hat was at most 1.02 in trials with five seeds.
        let r_hat = default_r_hat(&data("iris.csv"), "2", sampler);
        assert!(r_hat < 1.05, "{sampler}: {r_hat}");
    }
}

#[test]
#[ignore = "needs scikit-learn's wine data: GMM_SKLEARN=the folder of the installed package `sklearn`"]
fn every_sampler_converges_on_wine_by_default() {
    let package = std::env::var("GMM_SKLEARN").expect("GMM_SKLEARN names the folder of the package sklearn");
    let text = fs::read_to_string(Path::new(&package).join("datasets/data/wine_data.csv")).unwrap();
    // The first line has sizes and names, the last column the class.
    let rows: Vec<&str> = text.lines().skip(1).map(|line| line.rsplit_once(',').unwrap().0).collect();
    assert_eq!(rows.len(), 178);
    let folder = folder();
    let path = folder.path().join("wine.csv");
    fs::write(&path, rows.join("\n")).unwrap();
    for sampler in ["nuts", "metropolis", "ensemble"] {
        let r_hat = default_r_hat(&path, "0", sampler);
        assert!(r_hat < 1.05, "{sampler}: {r_hat}");
    }
}

#[cfg(unix)]
#[test]
fn a_killed_run_goes_on_from_its_last_save() {
    let folder = folder();
    let settings = |draws: &str, output: &str, more: &[&str]| {
        let fixed = ["--sampler", "metropolis", "--warmup", "500", "--thin", "20", "--chains", "2"];
        iris(&[&fixed, &["--draws", draws, "-o", output][..], more].concat())
    };
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gmm"));
    command.current_dir(&folder).args(settings("2000000", "run", &[])).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // The run saves its state every ten seconds.
    let begin = std::time::Instant::now();
    while !folder.path().join("run.partial.state").exists() {
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing was saved: {:?}", names(folder.path()));
        std::thread::sleep(Duration::from_millis(50));
    }
    // SIGKILL, shortly after the first save.
    std::thread::sleep(Duration::from_millis(300));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(names(folder.path()), ["run.partial.log0", "run.partial.state"]);
    refused(folder.path(), &settings("10", "run", &[]), &["run.partial.state", "--resume", "--overwrite"]);

    // The error about --draws says how many draws were saved.
    let again = gmm(&folder).args(settings("1", "run", &["--resume"])).assert().code(1);
    let error = String::from_utf8(again.get_output().stderr.clone()).unwrap();
    let mut words = error.split_whitespace().skip_while(|word| *word != "least").skip(1);
    let drawn: usize = words.next().unwrap().parse().unwrap();
    assert!(drawn > 100, "{error}");
    assert_goes_on(folder.path(), drawn, settings);
}

#[test]
fn a_sampler_that_cannot_start_says_why_and_leaves_nothing() {
    let folder = folder();
    let path = folder.path();
    let rows: String = (0..12).map(|i| format!("{},{}\n", i % 3, f64::from(i * i % 7) / 2.0)).collect();
    fs::write(path.join("x.csv"), rows).unwrap();
    // The prior is so narrow that its log density, or its gradient, exceeds float64 at all samples.
    fs::write(path.join("prior.json"), r#"{"means": {"normal": {"location": 1e6, "scale": 1e-150}}}"#).unwrap();
    for sampler in ["nuts", "metropolis"] {
        let args = ["mcmc", "x.csv", "-k", "2", "--prior", "prior.json", "-o", "out", "--sampler", sampler];
        refused(
            path,
            &args,
            &["chain 0 (counted from 0)", "the prior", "the mean of component", "start from another model"],
        );
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_what_was_drawn_and_resume_goes_on() {
    let folder = folder();
    let settings = |draws: &str, output: &str, more: &[&str]| {
        let fixed = ["--sampler", "metropolis", "--warmup", "500", "--thin", "20", "--chains", "2"];
        iris(&[&fixed, &["--draws", draws, "-o", output][..], more].concat())
    };
    // More draws than it has time for.
    let endless = settings("2000000", "run", &[]);
    let note = interrupted(folder.path(), &endless.iter().map(String::as_str).collect::<Vec<_>>());
    let drawn: usize = note.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    assert!(note.starts_with("note: interrupted") && drawn > 0, "{note}");
    assert_eq!(names(folder.path()), ["run.partial-1.csv", "run.partial-2.csv", "run.partial.npz"]);

    let again = gmm(&folder).args(settings("10", "run", &[])).assert().code(1);
    assert!(String::from_utf8_lossy(&again.get_output().stderr).contains("unfinished run"));

    assert_goes_on(folder.path(), drawn, settings);
}

/// Resumes the run `run` of two chains, which was stopped after `drawn` draws, for a few more draws. The files must be
/// those of an uninterrupted run. `settings` returns the arguments for a number of draws, an output and more options.
#[cfg(unix)]
#[track_caller]
fn assert_goes_on(folder: &Path, drawn: usize, settings: impl Fn(&str, &str, &[&str]) -> Vec<String>) {
    let draws = (drawn + 7).to_string();
    gmm(folder).args(settings(&draws, "run", &["--resume"])).assert().success();
    gmm(folder).args(settings(&draws, "whole", &[])).assert().success();
    for (a, b) in [("run-1.csv", "whole-1.csv"), ("run-2.csv", "whole-2.csv"), ("run.npz", "whole.npz")] {
        let read = |name: &str| fs::read(folder.join(name)).unwrap();
        assert!(read(a) == read(b), "{a} and {b} differ");
    }
    assert!(!names(folder).iter().any(|name| name.contains("partial")));
}

#[track_caller]
fn refused(folder: &Path, args: &[impl AsRef<std::ffi::OsStr>], message: &[&str]) {
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
    refused(path, &with(&["-k", "2", "--order", "2"]), &["--order: there is no feature `2`; the features are 0 to 1"]);
    refused(path, &with(&["-k", "2", "--order", "x"]), &["--order: there is no feature `x`; the features are 0 to 1"]);
    fs::write(path.join("names.csv"), format!("x,y\n{rows}")).unwrap();
    let named = ["mcmc", "names.csv", "-k", "2", "--order", "z", "-o", "out"];
    refused(path, &named, &["--order: there is no feature `z`; the features are x, y, or 0 to 1"]);
    refused(path, &with(&["-k", "2", "--prior", "prior.json"]), &["prior", "component 0, column 0", "is 0"]);
    refused(path, &with(&["-k", "2", "--prior", "broken.json"]), &["broken.json", "line 1"]);
    refused(path, &with(&["-k", "2", "--prior", "none.json"]), &["none.json"]);
    refused(path, &with(&["-k", "2", "--init", "m.json"]), &["(2, 3)", "(2, 2)"]);
    refused(path, &with(&["-k", "2", "--covariance-type", "tied"]), &["full, diag and spherical"]);
    refused(path, &with(&["-k", "2", "--sampler", "ensemble", "--chains", "7"]), &["even number"]);
    refused(path, &with(&["-k", "2", "--resume"]), &["out", "no run is saved there", "start it without --resume"]);
    refused(path, &["mcmc", "x.csv", "-k", "2", "-o", "no/where"], &["no"]);

    // A finished run, and commands that must not resume it.
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
    let run = gmm(path).args(resumed("x.csv", "20", &["-k", "2", "--overwrite"])).assert().code(2);
    assert!(String::from_utf8_lossy(&run.get_output().stderr).contains("--overwrite"));
}
