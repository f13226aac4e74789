//! `gmm mcmc`.
use crate::common::*;
use std::process::Stdio;
use std::time::Duration;

/// Returns arguments for iris with three components, in the order of their petal lengths.
fn iris(more: &str) -> String {
    format!("mcmc data/iris.csv -k 3 --order 2 --device cpu {more}")
}

/// Returns arguments for two chains with a number of draws and an output.
#[cfg(unix)]
fn settings(draws: &str, output: &str, more: &str) -> String {
    iris(&format!("--sampler metropolis --warmup 500 --thin 20 --chains 2 --draws {draws} -o {output} {more}"))
}

#[test]
fn iris_is_sampled() {
    let folder = folder();
    let report = serde_json::from_str::<serde_json::Value>(
        &folder.silent(iris("-o post --warmup 300 --draws 300 --plot trace.svg --json")),
    )
    .unwrap();
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
    assert_eq!(folder.names(), ["post-1.csv", "post-2.csv", "post-3.csv", "post-4.csv", "post.npz", "trace.svg"]);
    let svg = folder.text("trace.svg");
    assert!(svg.starts_with("<svg") && svg.contains("lp__") && svg.contains("weights.3"));

    let before = folder.bytes("post-1.csv");
    let short = iris("-o post --warmup 30 --draws 10");
    folder.refused(&short, &["post-1.csv, post-2.csv", "post.npz", "--resume", "--overwrite"]);
    assert!(folder.bytes("post-1.csv") == before);

    // The run is made longer. The report in words shows all parameters.
    let text = folder.run(iris("-o post --warmup 300 --draws 320 --resume"));
    assert!(text.contains("4 chains of 320 draws") && text.contains("covariances.3.4"), "{text}");

    folder.run(format!("{short} --overwrite"));
    assert!(folder.bytes("post-1.csv") != before);
}

#[test]
fn the_order_is_that_of_a_feature_by_name_or_by_number() {
    let folder = folder();
    let draws = |order: &str, more: &str| {
        let short = "-k 2 --sampler metropolis --chains 2 --warmup 30 --draws 20 --overwrite";
        folder.run(format!("mcmc data/iris.csv -o post {short} --order {order} {more}"));
        let text = folder.text("post-1.csv");
        text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect::<String>()
    };
    let by_name = draws("petal_length_cm", "");
    assert_eq!(by_name, draws("2", ""));
    assert_ne!(by_name, draws("sepal_width_cm", ""));
    // The number counts the features, which --columns may have selected.
    let columns = "--columns petal_length_cm,sepal_width_cm";
    assert_eq!(draws("petal_length_cm", columns), draws("0", columns));
}

#[test]
fn every_sampler_converges_on_iris_by_default() {
    let folder = folder();
    for sampler in ["nuts", "metropolis", "ensemble"] {
        let report = folder.json(iris(&format!("--sampler {sampler} -o {sampler} --json")));
        // R-hat was at most 1.02 in trials with five seeds.
        assert!(number(&report, "max_r_hat") < 1.05, "{sampler}: {report}");
    }
}

#[cfg(unix)]
#[test]
fn a_killed_run_goes_on_from_its_last_save() {
    let folder = folder();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gmm"));
    command
        .current_dir(&folder)
        .args(settings("2000000", "run", "").words())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // The run saves its state every ten seconds.
    let begin = std::time::Instant::now();
    while !folder.path("run.partial.state").exists() {
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing was saved: {:?}", folder.names());
        std::thread::sleep(Duration::from_millis(50));
    }
    // SIGKILL, shortly after the first save.
    std::thread::sleep(Duration::from_millis(300));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(folder.names(), ["run.partial.log0", "run.partial.state"]);
    folder.refused(settings("10", "run", ""), &["run.partial.state", "--resume", "--overwrite"]);

    // The error about --draws says how many draws were saved.
    let error = folder.fails(1, settings("1", "run", "--resume"));
    let mut words = error.split_whitespace().skip_while(|word| *word != "least").skip(1);
    let drawn: usize = words.next().unwrap().parse().unwrap();
    assert!(drawn > 100, "{error}");
    assert_goes_on(&folder, drawn);
}

#[test]
fn a_sampler_that_cannot_start_says_why_and_leaves_nothing() {
    let folder = folder();
    let rows: String = (0..12).map(|i| format!("{},{}\n", i % 3, f64::from(i * i % 7) / 2.0)).collect();
    folder.write("x.csv", rows);
    // The prior is so narrow that its log density, or its gradient, exceeds float64 at all samples.
    folder.write("prior.json", r#"{"means": {"normal": {"location": 1e6, "scale": 1e-150}}}"#);
    for sampler in ["nuts", "metropolis"] {
        let args = format!("mcmc x.csv -k 2 --prior prior.json -o out --sampler {sampler}");
        folder.refused(
            args,
            &["chain 0 (counted from 0)", "the prior", "the mean of component", "start from another model"],
        );
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_what_was_drawn_and_resume_goes_on() {
    let folder = folder();
    // More draws than it has time for.
    let note = folder.interrupted(settings("2000000", "run", ""));
    let drawn: usize = note.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    assert!(note.starts_with("note: interrupted") && drawn > 0, "{note}");
    assert_eq!(folder.names(), ["run.partial-1.csv", "run.partial-2.csv", "run.partial.npz"]);

    assert!(folder.fails(1, settings("10", "run", "")).contains("unfinished run"));

    assert_goes_on(&folder, drawn);
}

/// Resumes the run `run` of two chains, which was stopped after `drawn` draws, for a few more draws. The files must be
/// those of an uninterrupted run.
#[cfg(unix)]
#[track_caller]
fn assert_goes_on(folder: &Folder, drawn: usize) {
    let draws = (drawn + 7).to_string();
    folder.run(settings(&draws, "run", "--resume"));
    folder.run(settings(&draws, "whole", ""));
    for (a, b) in [("run-1.csv", "whole-1.csv"), ("run-2.csv", "whole-2.csv"), ("run.npz", "whole.npz")] {
        assert!(folder.bytes(a) == folder.bytes(b), "{a} and {b} differ");
    }
    assert!(!folder.names().iter().any(|name| name.contains("partial")));
}

#[test]
fn bad_input() {
    let folder = folder();
    let rows: String = (0..8).map(|i| format!("{},{}\n", i % 3, f64::from(i * i % 7) / 2.0)).collect();
    folder.write("x.csv", &rows);
    folder.write("y.csv", rows.replace("0.5", "0.25"));
    folder.write("m.json", MODEL);
    folder.write("prior.json", r#"{"scales": {"half_normal": {"scale": 0}}}"#);
    folder.write("broken.json", r#"{"scales": {"half_normal": {"#);
    let base = "mcmc x.csv --warmup 50 --draws 20 -o out";
    let with = |more: &str| format!("{base} {more}");
    folder.refused(with("-k 9"), &["9 components over 8 samples"]);
    folder.refused(with("-k 2 --order 2"), &["--order: there is no feature `2`; the features are 0 to 1"]);
    folder.refused(with("-k 2 --order x"), &["--order: there is no feature `x`; the features are 0 to 1"]);
    folder.write("names.csv", format!("x,y\n{rows}"));
    let named = "mcmc names.csv -k 2 --order z -o out";
    folder.refused(named, &["--order: there is no feature `z`; the features are x, y, or 0 to 1"]);
    folder.refused(with("-k 2 --prior prior.json"), &["prior", "component 0, column 0", "is 0"]);
    folder.refused(with("-k 2 --prior broken.json"), &["broken.json", "line 1"]);
    folder.refused(with("-k 2 --prior none.json"), &["none.json"]);
    folder.refused(with("-k 2 --init m.json"), &["(2, 3)", "(2, 2)"]);
    folder.refused(with("-k 2 --covariance-type tied"), &["full, diag and spherical"]);
    folder.refused(with("-k 2 --sampler ensemble --chains 7"), &["even number"]);
    folder.refused(with("-k 2 --resume"), &["out", "no run is saved there", "start it without --resume"]);
    folder.refused("mcmc x.csv -k 2 -o no/where", &["no"]);
    for (more, sampler) in [("--by-component", "metropolis"), ("--sampler ensemble --max-depth 3", "nuts")] {
        folder.refused(with(&format!("-k 2 {more}")), &["is an option of --sampler", sampler]);
    }

    // A finished run, and commands that must not resume it.
    folder.run(with("-k 2"));
    let resumed =
        |data: &str, draws: &str, more: &str| format!("mcmc {data} --warmup 50 --draws {draws} -o out --resume {more}");
    folder.refused(resumed("y.csv", "20", "-k 2"), &["out.npz", "the data", "sha256"]);
    folder.refused(resumed("x.csv", "20", "-k 3"), &["another model"]);
    folder.refused(resumed("x.csv", "20", "-k 2 --seed 1"), &["another run: seed was 0 and is 1 now", "same options"]);
    folder.refused(resumed("x.csv", "19", "-k 2"), &["at least 20 are needed"]);
    assert!(folder.fails(2, resumed("x.csv", "20", "-k 2 --overwrite")).contains("--overwrite"));
}
