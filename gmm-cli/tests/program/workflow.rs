//! The use of a model: `gmm predict`, `gmm sample` and `gmm select`.
use crate::common::*;
use gaussmix::evaluator::{Evaluator, ReferenceEvaluator};
use gaussmix::model::{CovarianceType, Mixture, Predict};
use ndarray::{Array1, Array2};
use serde_json::Value;

fn samples() -> ReferenceEvaluator {
    ReferenceEvaluator::new(gaussmix::io::read_data(data("iris.csv")).unwrap().samples().unwrap())
}

fn mixture() -> Mixture {
    gaussmix::io::read_model(data("iris3.json")).unwrap()
}

#[test]
fn labels_and_probabilities_are_the_references() {
    let folder = folder();
    let labels = samples().predict(&mixture()).unwrap();
    for device in ["auto", "reference"] {
        let predict =
            |more: &str| folder.run(format!("predict data/iris3.json data/iris.csv --device {device} {more}"));
        let text = predict("-o k.npy");
        let read: Array1<i64> = ndarray_npy::read_npy(folder.path("k.npy")).unwrap();
        assert!(read.iter().map(|&c| c as usize).eq(labels.iter().copied()));
        // The 50 flowers of the first species lie apart from the others and are one component.
        let setosa = labels[0].to_string();
        let line = text.lines().find(|line| line.trim_start().starts_with(&setosa)).unwrap();
        assert!(line.contains("50") && line.contains("33.33 %"), "{text}");
        predict("-o k.csv");
        let csv = folder.text("k.csv");
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!((lines[0], lines.len()), ("component", 151));
        assert!(lines[1..].iter().zip(&labels).all(|(line, c)| *line == c.to_string()));
        predict("--proba -o p.npy");
        predict("--proba -o p.csv");
        assert!(folder.text("p.csv").starts_with("p0,p1,p2\n"));
        assert_eq!(folder.numbers("p.npy"), folder.numbers("p.csv"));
        let truth = samples().predict_proba(&mixture()).unwrap();
        for (&p, &truth) in folder.numbers("p.npy").iter().zip(&truth) {
            // Both are in float64, computed in a different order.
            approx::assert_abs_diff_eq!(p, truth, epsilon = 1e-11);
        }
    }
}

#[test]
fn a_sample_is_the_librarys_and_fits_back() {
    let folder = folder();
    let (x, labels) = mixture().sample(3000, 7).unwrap();
    let sample = |more: &str| folder.run(format!("sample data/iris3.json -n 3e3 --seed 7 {more}"));
    sample("-o x.npy --labels k.npy");
    sample("-o x.csv --labels k.csv");
    assert_eq!(folder.numbers("x.npy"), x);
    assert_eq!(folder.numbers("x.csv"), x);
    let read: Array1<i64> = ndarray_npy::read_npy(folder.path("k.npy")).unwrap();
    assert!(read.iter().map(|&c| c as usize).eq(labels.iter().copied()));
    assert!(folder.numbers("k.csv").iter().map(|&c| c as usize).eq(labels));
    sample("-o single.npy --float32");
    let single: Array2<f32> = ndarray_npy::read_npy(folder.path("single.npy")).unwrap();
    assert_eq!(single, x.mapv(|v| v as f32));
    assert!(folder.text("x.csv").starts_with("x0,x1,x2,x3\n"));
    folder.run("fit x.npy -k 3 --covariance-type diag -o m.npz");
    let fitted = folder.model("m.npz");
    let score = |m: &Mixture| samples().log_likelihood(m).unwrap() / 150.0;
    // 26 parameters from 3000 samples lose 26 / 2 / 3000 = 0.004 in expectation.
    assert!((score(&fitted) - score(&mixture())).abs() < 0.03, "{} {}", score(&fitted), score(&mixture()));
}

#[test]
fn the_best_model_is_selected() {
    let folder = folder();
    let base = "select data/iris.csv -k 1:3,5 --covariance-type full,spherical";
    let report = folder.silent(format!("{base} --json -o best.json --plot p.svg"));
    let report: Value = serde_json::from_str(&report).unwrap();
    let rows = report["candidates"].as_array().unwrap();
    let shapes: Vec<_> =
        rows.iter().map(|r| (r["covariance_type"].as_str().unwrap(), r["k"].as_u64().unwrap())).collect();
    let expected = ["full", "spherical"].map(|t| [1, 2, 3, 5].map(|k| (t, k))).concat();
    assert_eq!(shapes, expected);
    // Scikit-learn's examples find the same for iris: two full components by BIC.
    assert_eq!((&report["best"]["k"], &report["best"]["covariance_type"]), (&2.into(), &"full".into()));
    let best = folder.model("best.json");
    let bic = best.bic(&mut samples()).unwrap();
    approx::assert_relative_eq!(report["best"]["value"].as_f64().unwrap(), bic, max_relative = 1e-10);
    assert!(rows.iter().all(|row| row["value"].as_f64().unwrap() >= report["best"]["value"].as_f64().unwrap()));
    let svg = folder.text("p.svg");
    assert_has(&svg, &["BIC over the number of components", "full", "spherical", "<polyline", "</svg>"]);

    let (text, note) = folder.output(0, "select data/iris.csv -k 1:3 --criterion aic --standardize");
    assert_has(&text, &["150 samples × 4 features", "AIC", "best", "best by AIC: 3 components, full"]);
    assert!(note.starts_with("note: ") && note.contains("more may be better"), "{note}");
}

#[test]
fn more_components_than_samples_are_left_out() {
    let folder = folder();
    folder.write("x.csv", "1,2\n2,1\n4,4\n7,5\n9,1\n");
    for (more, tried) in [("", vec![1, 2, 5]), ("--merge", vec![5, 4, 3, 2, 1])] {
        let args = "select x.csv -k 1,2,5,7,1000000 --covariance-type spherical --json";
        let (report, note) = folder.output(0, format!("{args} {more}"));
        let report: Value = serde_json::from_str(&report).unwrap();
        let k: Vec<u64> = report["candidates"].as_array().unwrap().iter().map(|r| r["k"].as_u64().unwrap()).collect();
        assert_eq!(k, tried);
        assert_has(&note, &["note: K from 7 to 1000000 are left out: there are fewer samples that count"]);
    }
    assert_has(&folder.notes("select x.csv -k 1,6"), &["note: K = 6 is left out"]);
}

#[test]
fn models_that_collapse_are_left_out() {
    let folder = folder();
    folder.write("x.csv", "1,2\n2,1\n4,4\n7,5\n9,1\n");
    let select = |k: &str| format!("select x.csv -k {k} --reg-covar 0 --covariance-type full --json");
    let (report, note) = folder.output(0, select("1,4"));
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((report["best"]["k"].as_u64(), report["failed"][0]["k"].as_u64()), (Some(1), Some(4)), "{report}");
    assert_has(&note, &["note: full, K = 4 is left out: the covariance"]);
    folder.output(1, select("4"));
}

#[test]
fn components_are_merged_down() {
    let folder = folder();
    let report = folder.json("select data/iris.csv -k 2:6 --merge --covariance-type full,tied --json -o m.json");
    let rows = report["candidates"].as_array().unwrap();
    let k: Vec<u64> = rows.iter().map(|r| r["k"].as_u64().unwrap()).collect();
    assert_eq!(k, [6, 5, 4, 3, 2, 6, 5, 4, 3, 2]);
    let best = folder.model("m.json");
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
    let endless = "select data/speech.npy -k 1:4000 --covariance-type diag --tol 0 --max-iter 20";
    let run = |more: &str| folder.interrupted(format!("{endless} {more}"));
    let note = run("-o m.json");
    assert!(note.starts_with("note: interrupted; the best of ") && note.contains("m.json"), "{note}");
    let k = folder.model("m.json").n_components();
    let plural = if k == 1 { "" } else { "s" };
    assert!(note.contains(&format!("{k} component{plural}, diag")), "{note}");
    assert!(run("--plot p.svg").contains("nothing was written"));
    assert_eq!(folder.names(), ["m.json"]);
}

#[test]
fn bad_input() {
    let folder = folder();
    folder.write("m.json", MODEL);
    folder.write("x.csv", "1,2\n3,4\n");
    folder.write("far.csv", "0,0,0\n1,1,1\n1e200,0,0\n");
    // A model and data with different numbers of features. No result file is left.
    for more in ["", "--proba"] {
        folder.refused(format!("predict m.json x.csv -o k.npy {more}"), &["m.json", "[2, 3]", "[2, 2]"]);
    }
    folder.refused("fit far.csv --init m.json --device reference", &["row 2", "far"]);
    folder.refused("select x.csv -k 3:5", &["x.csv", "2 samples", "3 components"]);
    folder.refused("select x.csv -k 5 --merge", &["x.csv", "2 samples", "5 components"]);
    folder.refused("select x.csv -k 1 --sample-weight far.csv", &["far.csv", "3 columns"]);
}
