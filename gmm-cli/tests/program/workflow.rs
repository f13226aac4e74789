//! The use of a model: `gmm predict`, `gmm sample`, `gmm select`, and `gmm score` of data larger than memory.
use crate::common::*;
use gaussmix::evaluator::{Evaluator, ReferenceEvaluator};
use gaussmix::model::{CovarianceType, Mixture, Predict};
use ndarray::{Array1, Array2};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn iris() -> &'static str {
    data("iris.csv").display().to_string().leak()
}

fn model() -> &'static str {
    data("iris3.json").display().to_string().leak()
}

fn samples() -> ReferenceEvaluator {
    ReferenceEvaluator::new(gaussmix::io::read_data(data("iris.csv")).unwrap().samples().unwrap())
}

fn mixture() -> Mixture {
    gaussmix::io::read_model(data("iris3.json")).unwrap()
}

fn matrix(path: &Path) -> Array2<f64> {
    match gaussmix::io::read_data(path).unwrap() {
        gaussmix::io::Data::F64(x) => x,
        other => panic!("{}", other.dtype()),
    }
}

#[test]
fn labels_and_probabilities_are_the_references() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let labels = samples().predict(&mixture()).unwrap();
    for device in ["auto", "reference"] {
        let predict = |more: &[&str]| {
            gmm(&folder).args(["predict", model(), iris(), "--device", device]).args(more).assert().success()
        };
        let run = predict(&["-o", "k.npy"]);
        let read: Array1<i64> = ndarray_npy::read_npy(path("k.npy")).unwrap();
        assert!(read.iter().map(|&c| c as usize).eq(labels.iter().copied()));
        let text = String::from_utf8(run.get_output().stdout.clone()).unwrap();
        // The 50 flowers of the first species lie apart from the others and are one component.
        let setosa = labels[0].to_string();
        let line = text.lines().find(|line| line.trim_start().starts_with(&setosa)).unwrap();
        assert!(line.contains("50") && line.contains("33.33 %"), "{text}");
        predict(&["-o", "k.csv"]);
        let csv = fs::read_to_string(path("k.csv")).unwrap();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!((lines[0], lines.len()), ("component", 151));
        assert!(lines[1..].iter().zip(&labels).all(|(line, c)| *line == c.to_string()));
        predict(&["--proba", "-o", "p.npy"]);
        predict(&["--proba", "-o", "p.csv"]);
        assert!(fs::read_to_string(path("p.csv")).unwrap().starts_with("p0,p1,p2\n"));
        assert_eq!(matrix(&path("p.npy")), matrix(&path("p.csv")));
        let truth = samples().predict_proba(&mixture()).unwrap();
        for (&p, &truth) in matrix(&path("p.npy")).iter().zip(&truth) {
            // Both are in float64, computed in a different order.
            approx::assert_abs_diff_eq!(p, truth, epsilon = 1e-11);
        }
    }
}

#[test]
fn a_sample_is_the_librarys_and_fits_back() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let (x, labels) = mixture().sample(3000, 7).unwrap();
    let sample = |more: &[&str]| {
        gmm(&folder).args(["sample", model(), "-n", "3e3", "--seed", "7"]).args(more).assert().success()
    };
    sample(&["-o", "x.npy", "--labels", "k.npy"]);
    sample(&["-o", "x.csv", "--labels", "k.csv"]);
    assert_eq!(matrix(&path("x.npy")), x);
    assert_eq!(matrix(&path("x.csv")), x);
    let read: Array1<i64> = ndarray_npy::read_npy(path("k.npy")).unwrap();
    assert!(read.iter().map(|&c| c as usize).eq(labels.iter().copied()));
    assert!(matrix(&path("k.csv")).iter().map(|&c| c as usize).eq(labels));
    sample(&["-o", "single.npy", "--float32"]);
    let single: Array2<f32> = ndarray_npy::read_npy(path("single.npy")).unwrap();
    assert_eq!(single, x.mapv(|v| v as f32));
    assert!(fs::read_to_string(path("x.csv")).unwrap().starts_with("x0,x1,x2,x3\n"));
    gmm(&folder).args(["fit", "x.npy", "-k", "3", "--covariance-type", "diag", "-o", "m.npz"]).assert().success();
    let fitted = gaussmix::io::read_model(path("m.npz")).unwrap();
    let score = |m: &Mixture| samples().log_likelihood(m).unwrap() / 150.0;
    // 26 parameters from 3000 samples lose 26 / 2 / 3000 = 0.004 in expectation.
    assert!((score(&fitted) - score(&mixture())).abs() < 0.03, "{} {}", score(&fitted), score(&mixture()));
}

#[test]
fn the_best_model_is_selected() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let base = ["select", iris(), "-k", "1:3,5", "--covariance-type", "full,spherical"];
    let run =
        gmm(&folder).args(base).args(["--json", "-o", "best.json", "--plot", "p.svg"]).assert().success().stderr("");
    let report: Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    let rows = report["candidates"].as_array().unwrap();
    let shapes: Vec<_> =
        rows.iter().map(|r| (r["covariance_type"].as_str().unwrap(), r["k"].as_u64().unwrap())).collect();
    let expected = ["full", "spherical"].map(|t| [1, 2, 3, 5].map(|k| (t, k))).concat();
    assert_eq!(shapes, expected);
    // Scikit-learn's examples find the same for iris: two full components by BIC.
    assert_eq!((&report["best"]["k"], &report["best"]["covariance_type"]), (&2.into(), &"full".into()));
    let best = gaussmix::io::read_model(path("best.json")).unwrap();
    let bic = best.bic(&mut samples()).unwrap();
    approx::assert_relative_eq!(report["best"]["value"].as_f64().unwrap(), bic, max_relative = 1e-10);
    assert!(rows.iter().all(|row| row["value"].as_f64().unwrap() >= report["best"]["value"].as_f64().unwrap()));
    let svg = fs::read_to_string(path("p.svg")).unwrap();
    for part in ["BIC over the number of components", "full", "spherical", "<polyline", "</svg>"] {
        assert!(svg.contains(part), "{part}");
    }

    let args = ["select", iris(), "-k", "1:3", "--criterion", "aic", "--standardize"];
    let run = gmm(&folder).args(args).assert().success();
    let text = String::from_utf8(run.get_output().stdout.clone()).unwrap();
    for part in ["150 samples × 4 features", "AIC", "best", "best by AIC: 3 components, full"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let note = String::from_utf8(run.get_output().stderr.clone()).unwrap();
    assert!(note.starts_with("note: ") && note.contains("more may be better"), "{note}");
}

#[test]
fn more_components_than_samples_are_left_out() {
    let folder = folder();
    std::fs::write(folder.path().join("x.csv"), "1,2\n2,1\n4,4\n7,5\n9,1\n").unwrap();
    for (more, tried) in [(&[][..], vec![1, 2, 5]), (&["--merge"], vec![5, 4, 3, 2, 1])] {
        let args = ["select", "x.csv", "-k", "1,2,5,7,1000000", "--covariance-type", "spherical", "--json"];
        let run = gmm(&folder).args(args).args(more).assert().success();
        let report: Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
        let k: Vec<u64> = report["candidates"].as_array().unwrap().iter().map(|r| r["k"].as_u64().unwrap()).collect();
        assert_eq!(k, tried);
        let note = String::from_utf8(run.get_output().stderr.clone()).unwrap();
        assert!(note.contains("note: K from 7 to 1000000 are left out: there are fewer samples that count"), "{note}");
    }
    let run = gmm(&folder).args(["select", "x.csv", "-k", "1,6"]).assert().success();
    assert!(String::from_utf8_lossy(&run.get_output().stderr).contains("note: K = 6 is left out"));
}

#[test]
fn models_that_collapse_are_left_out() {
    let folder = folder();
    std::fs::write(folder.path().join("x.csv"), "1,2\n2,1\n4,4\n7,5\n9,1\n").unwrap();
    let select = |k: &str| {
        let args = ["select", "x.csv", "-k", k, "--reg-covar", "0", "--covariance-type", "full", "--json"];
        gmm(&folder).args(args).assert()
    };
    let run = select("1,4").success();
    let report: Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    assert_eq!((report["best"]["k"].as_u64(), report["failed"][0]["k"].as_u64()), (Some(1), Some(4)), "{report}");
    let note = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
    assert!(note.contains("note: full, K = 4 is left out: the covariance"), "{note}");
    select("4").code(1);
}

#[test]
fn components_are_merged_down() {
    let folder = folder();
    let args = ["select", iris(), "-k", "2:6", "--merge", "--covariance-type", "full,tied", "--json", "-o", "m.json"];
    let run = gmm(&folder).args(args).assert().success();
    let report: Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    let rows = report["candidates"].as_array().unwrap();
    let k: Vec<u64> = rows.iter().map(|r| r["k"].as_u64().unwrap()).collect();
    assert_eq!(k, [6, 5, 4, 3, 2, 6, 5, 4, 3, 2]);
    let best = gaussmix::io::read_model(folder.path().join("m.json")).unwrap();
    assert_eq!(report["best"]["k"], best.n_components());
    assert_eq!((best.n_components(), best.covariance_type()), (2, CovarianceType::Full));
    // The likelihood falls as components are removed, or rises slightly if another start would have been better.
    let value = |i: usize| rows[i]["log_likelihood"].as_f64().unwrap();
    assert!(value(4) < value(0) && value(9) < value(5));
}

#[cfg(unix)]
#[test]
fn ctrl_c_in_a_selection_keeps_the_best_so_far() {
    let folder = folder();
    let speech = data("speech.npy").display().to_string();
    let endless = ["select", &speech, "-k", "1:4000", "--covariance-type", "diag", "--tol", "0", "--max-iter", "20"];
    let run = |more: &[&str]| interrupted(folder.path(), &[&endless[..], more].concat());
    let note = run(&["-o", "m.json"]);
    assert!(note.starts_with("note: interrupted; the best of ") && note.contains("m.json"), "{note}");
    let k = gaussmix::io::read_model(folder.path().join("m.json")).unwrap().n_components();
    let plural = if k == 1 { "" } else { "s" };
    assert!(note.contains(&format!("{k} component{plural}, diag")), "{note}");
    assert!(run(&["--plot", "p.svg"]).contains("nothing was written"));
    assert_eq!(files(folder.path()).len(), 1);
}

#[test]
fn bad_input() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("m.json"), MODEL).unwrap();
    fs::write(path("x.csv"), "1,2\n3,4\n").unwrap();
    fs::write(path("far.csv"), "0,0,0\n1,1,1\n1e200,0,0\n").unwrap();
    fs::create_dir(path("folder.csv")).unwrap();
    let refused = |args: &[&str], message: &[&str]| refused(folder.path(), args, message);
    // Results are checked first: these models and data do not exist.
    for command in [&["predict", "none.json", "none.npy"][..], &["sample", "none.json", "-n", "5"]] {
        for (out, message) in [("no/such.npy", "No such file"), ("folder.csv", "directory"), ("x.txt", ".npy or .csv")]
        {
            refused(&[command, &["-o", out]].concat(), &[out, message]);
        }
        refused(&[command, &["-o", "out.npy"]].concat(), &["none.json", "No such file"]);
    }
    refused(&["sample", "none.json", "-n", "5", "-o", "a.npy", "--labels", "no/such.npy"], &["no/such.npy"]);
    refused(&["sample", "m.json", "-n", "5", "-o", "a.npy", "--labels", "./a.npy"], &["two results"]);
    refused(&["select", "none.npy", "-k", "1:3", "-o", "no/m.json"], &["no/m.json", "No such file"]);
    refused(&["select", "none.npy", "-k", "1:3", "-o", "m.txt"], &["m.txt", ".json or .npz"]);
    refused(&["select", "none.npy", "-k", "1:3", "--plot", "no/p.svg"], &["no/p.svg", "No such file"]);
    refused(&["predict", "m.json", "x.csv", "-o", "x.csv"], &["x.csv: is an input"]);
    refused(&["score", "m.json", "x.csv", "--per-sample", "./x.csv"], &["is an input"]);
    // A model and data with different numbers of features. No result file is left.
    for more in [&[][..], &["--proba"]] {
        refused(&[&["predict", "m.json", "x.csv", "-o", "k.npy"], more].concat(), &["m.json", "[2, 3]", "[2, 2]"]);
    }
    let reference = ["--device", "reference"];
    refused(&[&["fit", "far.csv", "--init", "m.json"], &reference[..]].concat(), &["row 2", "far"]);
    refused(&["select", "x.csv", "-k", "3:5"], &["x.csv", "2 samples", "3 components"]);
    refused(&["select", "x.csv", "-k", "5", "--merge"], &["x.csv", "2 samples", "5 components"]);
    refused(&["select", "x.csv", "-k", "1", "--sample-weight", "far.csv"], &["far.csv", "[3, 3]"]);
    for args in [
        &["select", "x.csv"][..],
        &["select", "x.csv", "-k", "0:3"],
        &["select", "x.csv", "-k", "5:3"],
        &["select", "x.csv", "-k", "1:3", "--criterion", "luck"],
        &["select", "x.csv", "-k", "1:3", "--covariance-type", "full,round"],
        &["predict", "m.json", "x.csv"],
        &["sample", "m.json", "-o", "x.npy"],
        &["sample", "m.json", "-n", "0", "-o", "x.npy"],
    ] {
        gmm(&folder).args(args).assert().code(2).stdout("");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_fills() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    for name in ["full.npy", "full.csv", "full.json", "full.npz", "full.svg"] {
        std::os::unix::fs::symlink("/dev/full", path(name)).unwrap();
    }
    for args in [
        &["predict", model(), iris(), "-o", "full.npy"][..],
        &["predict", model(), iris(), "--proba", "-o", "full.csv"],
        &["sample", model(), "-n", "10", "-o", "full.npy"],
        &["sample", model(), "-n", "10", "-o", "/dev/null", "--labels", "full.csv"],
        &["select", iris(), "-k", "1:2", "-o", "full.npz"],
        &["select", iris(), "-k", "1:2", "--plot", "full.svg"],
        &["convert", model(), "full.json"],
    ] {
        let run = gmm(&folder).args(args).assert().code(1);
        let stderr = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
        assert!(stderr.contains("full.") && stderr.contains("No space left on device"), "{args:?}: {stderr}");
    }
    // A file may have at most one block here. The old file stays, and no other appears.
    fs::write(path("old.csv"), "old").unwrap();
    let before = files(folder.path());
    for out in ["old.csv", "new.npy"] {
        let run = limited(folder.path(), "-f 1", &["sample", model(), "-n", "100000", "-o", out]);
        let stderr = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(out) && stderr.contains("File too large"), "{stderr}");
        assert!(files(folder.path()) == before);
    }
}

/// The data is larger than the process's memory limit.
#[cfg(target_os = "linux")]
#[test]
fn data_larger_than_memory_is_scored_and_labelled_in_chunks() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    // The same 4000 samples repeated, 72 MB in float32.
    let speech = gaussmix::io::read_data(data("speech.npy")).unwrap();
    let gaussmix::io::Data::F32(x) = &speech else { panic!("float32") };
    let pattern = x.slice(ndarray::s![..4000, ..]).to_owned();
    let repeats = 350;
    let body = bytes(&pattern.mapv(f64::from), false, |v| (v as f32).to_le_bytes()).repeat(repeats);
    let n = 4000 * repeats;
    fs::write(path("x.npy"), npy("'<f4'", false, &format!("({n}, 13)"), &body)).unwrap();
    drop(body);
    // The limit of 48 MiB is on anonymous memory.
    let go = |args: &[&str]| limited(folder.path(), "-d 49152", args);
    let model_file = data("speech8.json").display().to_string();
    assert!(
        !go(&["score", &model_file, "x.npy", "--device", "cpu", "--memory", "1G"]).status.success(),
        "the limit does not bite"
    );
    let run = go(&["score", &model_file, "x.npy", "--memory", "15M", "--per-sample", "s.npy", "--json"]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    let model = gaussmix::io::read_model(&model_file).unwrap();
    let mut reference = ReferenceEvaluator::new(gaussmix::data::Samples::from_f32(pattern.view()).unwrap());
    let scores = reference.score_samples(&model).unwrap();
    // The engine's bound for float32.
    approx::assert_relative_eq!(
        report["mean_log_likelihood"].as_f64().unwrap(),
        scores.mean().unwrap(),
        max_relative = 1e-7
    );
    let read: Array1<f64> = ndarray_npy::read_npy(path("s.npy")).unwrap();
    for (i, &v) in read.iter().enumerate() {
        approx::assert_relative_eq!(v, scores[i % 4000], max_relative = 1e-5);
    }
    let run = go(&["predict", &model_file, "x.npy", "--memory", "15M", "-o", "k.npy"]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let labels: Array1<i64> = ndarray_npy::read_npy(path("k.npy")).unwrap();
    let truth = reference.predict_proba(&model).unwrap();
    // A label may differ from the reference's only if two components are equally probable to float32.
    for (i, &label) in labels.iter().enumerate() {
        let row = truth.row(i % 4000);
        let most = row.iter().copied().fold(0.0, f64::max);
        assert!(row[label as usize] >= most - 1e-3, "sample {i}: {label} of {row}");
    }
    assert_eq!(read.len(), n);
    assert_eq!(labels.len(), n);
}
