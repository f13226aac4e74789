//! `gmm fit`.
use crate::common::*;
use gaussmix::evaluator::{Evaluator, ReferenceEvaluator};
use gaussmix::fit::GaussianMixtureParams;
use gaussmix::model::{CovarianceType, Predict};
use ndarray::{Array2, Axis};
use serde_json::Value;
use std::fs;

#[test]
fn the_model_is_the_librarys() {
    let folder = folder();
    let input = gaussmix::io::read_data(data("iris.csv")).unwrap();
    for t in CovarianceType::ALL {
        let report = folder.fit(format!("data/iris.csv -k 3 --covariance-type {t} --device reference -o m.json"));
        let names = "aic bic converged covariance_type d device feature_names k kernel log_likelihood lower_bound n n_iter precision retained seconds";
        assert_eq!(keys(&report), names);
        assert_eq!(report["precision"], "float64");
        let params = GaussianMixtureParams::default().n_components(3).covariance_type(t).check().unwrap();
        let mut evaluator = ReferenceEvaluator::new(input.samples().unwrap());
        let library = params.fit(&mut evaluator).unwrap();
        assert_eq!(folder.model("m.json"), library.mixture);
        assert_eq!((number(&report, "n"), number(&report, "d"), number(&report, "k")), (150.0, 4.0, 3.0));
        assert_eq!(report["n_iter"], library.n_iter());
        assert_eq!(number(&report, "lower_bound"), library.lower_bound());
        assert_eq!(report["converged"], true);
        assert_eq!(number(&report, "log_likelihood"), evaluator.log_likelihood(&library.mixture).unwrap());
        assert_eq!(number(&report, "bic"), library.mixture.bic(&mut evaluator).unwrap());
        assert_eq!(number(&report, "aic"), library.mixture.aic(&mut evaluator).unwrap());
        assert_eq!((&report["covariance_type"], &report["kernel"]), (&t.name().into(), &"reference".into()));
        // The file records how the fit found the model.
        let file: Value = serde_json::from_slice(&folder.bytes("m.json")).unwrap();
        assert_eq!((&file["converged"], &file["n_iter"]), (&true.into(), &library.n_iter().into()));
        assert_eq!(file["lower_bounds"].as_array().unwrap().len(), library.n_iter());
    }
}

/// One sample at 10⁸ gets a component of its own, which is too narrow for float32.
#[test]
fn the_report_says_where_float32_has_too_few_digits() {
    let folder = folder();
    let mut x = ndarray::Array2::from_shape_fn((500, 4), |(i, j)| ((i * 37 + j * 11) % 101) as f32 / 50.0);
    folder.save("near.npy", &x);
    x.row_mut(499).fill(1e8);
    folder.save("far.npy", &x);
    for (name, wide) in [("near.npy", false), ("far.npy", true)] {
        let text = folder.run(format!("fit {name} -k 2 --covariance-type diag --device cpu -o m.json"));
        assert_eq!(text.contains("precision       float64"), wide, "{text}");
        let text = folder.run(format!("score m.json {name} --device cpu"));
        assert_eq!(text.contains("precision       float64"), wide, "{text}");
    }
}

#[test]
fn an_npz_has_scikit_learns_attributes() {
    let folder = folder();
    let report = folder.fit("data/iris.csv -k 2 -o m.npz");
    let members = members(&folder.path("m.npz"));
    let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    let expected = "covariance_type weights_ means_ covariances_ precisions_ precisions_cholesky_ feature_names_in_ \
                    converged_ n_iter_ lower_bound_ lower_bounds_";
    assert_eq!(names, expected.split_whitespace().map(|n| format!("{n}.npy")).collect::<Vec<_>>());
    let (_, bounds) = members.iter().find(|(name, _)| name == "lower_bounds_.npy").unwrap();
    let n_iter = report["n_iter"].as_u64().unwrap() as usize;
    assert!(String::from_utf8_lossy(bounds).contains(&format!("'shape': ({n_iter},)")));
    assert_eq!(bounds[bounds.len() - 8..], number(&report, "lower_bound").to_le_bytes());
}

#[test]
fn speech_reaches_scikit_learns_score() {
    let folder = folder();
    // scikit-learn's mean score is that of standardised columns: add the logarithms of the scales to compare.
    let input = gaussmix::io::read_data(data("speech.npy")).unwrap();
    let standard = gaussmix::fit::Standardization::of(&input.samples().unwrap()).unwrap();
    let report = folder.fit("data/speech.npy -k 8 --covariance-type diag --standardize --n-init 10 -o m.json");
    let score = number(&report, "log_likelihood") / 20_000.0;
    assert!(score + standard.log_scale() >= -16.3112, "{score}");
    // The model is in the data's units. Its score without standardisation differs only by the rounding of the float32
    // data, which was centred and scaled for the fit.
    let scored = folder.json("score m.json data/speech.npy --json");
    approx::assert_relative_eq!(number(&scored, "mean_log_likelihood"), score, max_relative = 1e-6);
}

#[test]
fn a_spherical_model_of_standardised_data_is_diag() {
    let folder = folder();
    let fit = |out: &str, more: &str| {
        folder.fit(format!("data/iris.csv -k 3 --covariance-type spherical --standardize -o {out} {more}"))
    };
    let report = fit("a.json", "--max-iter 4 --tol 0");
    assert_eq!(report["covariance_type"], "spherical");
    let model = folder.model("a.json");
    assert_eq!(model.covariance_type(), CovarianceType::Diag);
    let input = gaussmix::io::read_data(data("iris.csv")).unwrap();
    let total = ReferenceEvaluator::new(input.samples().unwrap()).log_likelihood(&model).unwrap();
    approx::assert_relative_eq!(total, number(&report, "log_likelihood"), max_relative = 1e-12);
    // As a start for a spherical fit in the same units, the diagonal model is spherical again.
    let going_on = fit("b.json", "--max-iter 3 --tol 0 --init a.json");
    let whole = fit("c.json", "--max-iter 7 --tol 0");
    approx::assert_relative_eq!(number(&going_on, "bic"), number(&whole, "bic"), max_relative = 1e-10);
    // The parameters are K − 1 weights, 4·K means and K variances, for K = 3.
    let expected = 14.0 + 3.0;
    let parameters = (number(&whole, "aic") + 2.0 * number(&whole, "log_likelihood")) / 2.0;
    approx::assert_relative_eq!(parameters, expected, max_relative = 1e-12);
}

#[test]
fn weights_count_as_repetitions() {
    let folder = folder();
    let weights: Vec<f64> = (0..150).map(|i| (i % 3) as f64).collect();
    folder.write("w.csv", weights.iter().map(|w| format!("{w}\n")).collect::<String>());
    folder.save("w.npy", &ndarray::Array1::from(weights));
    let x = iris();
    let rows: Vec<usize> = (0..150).flat_map(|i| std::iter::repeat_n(i, i % 3)).collect();
    folder.save("x.npy", &x.select(Axis(0), &rows));
    folder.fit("data/iris.csv -k 3 --max-iter 0 -o start.json");
    let from = |data: &str, more: &str, out: &str| {
        folder.fit(format!("{data} --init start.json --tol 0 --max-iter 5 -o {out} {more}"))
    };
    let repeated = from("x.npy", "", "repeated.json");
    for (weights, standardize) in [("w.csv", false), ("w.npy", false), ("w.npy", true)] {
        let more = if standardize { "--standardize" } else { "" };
        let weighted = from("data/iris.csv", &format!("--sample-weight {weights} {more}"), "weighted.json");
        // Rounding grows over five iterations. With --standardize, reg_covar is 10⁻⁶ in other units, which changes the
        // result.
        let tolerance = if standardize { 1e-5 } else { 1e-10 };
        for name in ["log_likelihood", "bic", "lower_bound"] {
            approx::assert_relative_eq!(number(&weighted, name), number(&repeated, name), max_relative = tolerance);
        }
    }
}

#[test]
fn the_report_is_readable_and_the_plot_drawn() {
    let folder = folder();
    let args = "fit data/speech.npy -k 3 --covariance-type tied -o m.json --plot p.svg --max-iter 3";
    let text = folder.silent(args);
    assert_has(
        &text,
        &["20,000 samples × 13 features, float32", "3 components, tied", "3, not converged", "BIC  ", "m.json"],
    );
    let svg = folder.text("p.svg");
    assert_has(
        &svg,
        &["2,000 of 20,000 samples", "standard deviations", "lower bound", "iteration", "<polyline", "</svg>"],
    );
    // Data of one feature is drawn as a histogram, data of two features in its own columns.
    let x = Array2::from_shape_fn((40, 2), |(i, j)| ((i * 7 + j * 3) % 11) as f64 + (i % 2 * 20) as f64);
    folder.save("2.npy", &x);
    folder.save("1.npy", &x.select(Axis(1), &[0]));
    for (name, part) in [("1", "density of the mixture"), ("2", "column 1")] {
        let (data, plot) = (format!("{name}.npy"), format!("{name}.svg"));
        folder.fit(format!("{data} -k 2 --plot {plot} --standardize"));
        let svg = folder.text(plot);
        assert!(svg.contains(part) && svg.contains("40 samples, 2 components"), "{part}");
    }
    assert_eq!(folder.names(), ["1.npy", "1.svg", "2.npy", "2.svg", "m.json", "p.svg"]);
}

/// A fit that has no end but its number of iterations.
#[cfg(unix)]
const ENDLESS: &str = "data/speech.npy -k 8 --covariance-type diag --tol 0 --device cpu";

#[cfg(unix)]
fn interrupted_fit(folder: &Folder, more: &str) -> String {
    folder.interrupted(format!("fit {ENDLESS} --max-iter 100000000 {more}"))
}

#[cfg(unix)]
fn number_before(text: &str, word: &str) -> usize {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().position(|w| w.starts_with(word)).unwrap_or_else(|| panic!("{word} in {text}"));
    words[at - 1].parse().unwrap()
}

#[cfg(unix)]
#[test]
fn ctrl_c_writes_the_model_so_far() {
    let folder = folder();
    let note = interrupted_fit(&folder, "-o m.json");
    assert!(note.starts_with("note: interrupted after ") && note.contains("m.json"), "{note}");
    let n = number_before(&note, "iterations");
    // The model has the bits of a fit with the same number of iterations, and is marked as not converged.
    folder.fit(format!("{ENDLESS} --max-iter {n} -o whole.json"));
    assert!(folder.bytes("m.json") == folder.bytes("whole.json"));
    assert!(String::from_utf8_lossy(&folder.bytes("m.json")).contains("\"converged\": false"));
    let note = interrupted_fit(&folder, "--plot p.svg");
    assert!(note.contains("nothing was written"), "{note}");
    assert_eq!(folder.names(), ["m.json", "whole.json"]);
}

#[cfg(unix)]
#[test]
fn a_checkpoint_goes_on_to_the_same_bits() {
    let folder = folder();
    let note = interrupted_fit(&folder, "--n-init 2 --checkpoint c.json");
    assert!(note.contains("the same command continues from c.json"), "{note}");
    let n = number_before(&note, "iterations");
    // The fit continues for a few iterations and through the second run. The result is that of an uninterrupted fit.
    let go = |more: &str| folder.notes(format!("fit {ENDLESS} --n-init 2 --max-iter {} {more}", n + 3));
    let note = go("--checkpoint c.json -o resumed.json");
    assert_eq!(note, format!("note: continuing from c.json: run 1/2, iteration {n}\n"));
    go("-o whole.json");
    assert!(folder.text("resumed.json") == folder.text("whole.json"));
    // The checkpoint of a finished fit gives the same model again, and can be read as a model.
    go("--checkpoint c.json -o again.json");
    assert!(folder.text("again.json") == folder.text("whole.json"));
    folder.run("score c.json data/speech.npy");
    assert_eq!(folder.names(), ["again.json", "c.json", "resumed.json", "whole.json"]);
}

#[test]
fn a_checkpoint_of_standardised_data_goes_on() {
    let folder = folder();
    for t in CovarianceType::ALL {
        let go = |max_iter: &str, checkpoint: &str| {
            let args = format!("data/iris.csv -k 3 --standardize --tol 0 --covariance-type {t}");
            folder.fit(format!("{args} --max-iter {max_iter} --checkpoint {checkpoint}"))
        };
        let (a, b) = (format!("a-{t}.json"), format!("b-{t}.json"));
        go("4", &a);
        let (resumed, whole) = (go("9", &a), go("9", &b));
        assert_eq!((&resumed["n_iter"], &whole["n_iter"]), (&9.into(), &9.into()));
        // The parameters were converted to the data's units and back.
        approx::assert_relative_eq!(number(&resumed, "bic"), number(&whole, "bic"), max_relative = 1e-10);
    }
}

#[test]
fn bad_data_and_weights() {
    let folder = folder();
    let lines = |rows: usize, row: fn(usize) -> String| (0..rows).map(row).collect::<String>();
    folder.write("few.csv", "1,2\n3,4\n");
    folder.write("equal.csv", lines(20, |_| "0.5,2\n".into()));
    folder.write("constant.csv", lines(30, |i| format!("{},7\n", (i * i) % 17)));
    folder.write("nan.csv", "1,2\n3,NaN\n5,6\n");
    folder.write("x.csv", lines(10, |i| format!("{},{}\n", (i * i) % 7, i)));
    folder.write("long.csv", lines(11, |_| "1\n".into()));
    folder.write("negative.csv", lines(10, |i| format!("{}\n", 3 - i as i64)));
    folder.write("zero.csv", lines(10, |_| "0\n".into()));
    folder.write("nanw.csv", lines(10, |i| if i == 6 { "NaN\n".into() } else { "1\n".into() }));
    folder.write("two.csv", lines(10, |i| format!("{},{}\n", usize::from(i < 2), 1)));
    folder.write("sparse.csv", lines(10, |i| format!("{}\n", usize::from(i < 2))));
    let refused = |args: &str, message: &[&str]| folder.refused(format!("fit {args} -o m.json"), message);
    refused("few.csv -k 3", &["few.csv", "2 samples", "3 components", "at most 2"]);
    for t in ["full", "tied", "diag", "spherical"] {
        let of_type = |data| format!("{data} -k 2 --covariance-type {t}");
        let option = if matches!(t, "full" | "tied") { "--reg-covar" } else { "reg_covar" };
        refused(&format!("{} --reg-covar 0", of_type("equal.csv")), &[option]);
        if t != "spherical" {
            refused(&format!("{} --reg-covar 0", of_type("constant.csv")), &[option]);
        }
        // With the default of --reg-covar the result is finite.
        for data in ["equal.csv", "constant.csv"] {
            for more in ["", "--standardize"] {
                let report = folder.fit(format!("{} {more}", of_type(data)));
                assert!(number(&report, "log_likelihood").is_finite() && number(&report, "bic").is_finite());
            }
        }
    }
    refused("nan.csv -k 1", &["nan.csv", "row 1, column 1", "NaN"]);
    let weighted = |w| format!("x.csv -k 3 --sample-weight {w}");
    refused(&weighted("long.csv"), &["long.csv", "[11]", "[10]"]);
    refused(&weighted("negative.csv"), &["negative.csv", "row 4", "-1", "not negative"]);
    refused(&weighted("nanw.csv"), &["nanw.csv", "row 6", "NaN"]);
    refused(&weighted("zero.csv"), &["zero.csv", "all sample weights are zero"]);
    refused(&weighted("two.csv"), &["two.csv", "2 columns"]);
    refused(&weighted("none.csv"), &["none.csv", "No such file"]);
    refused(&weighted("sparse.csv"), &["2 samples", "3 components"]);
}

#[test]
fn bad_options() {
    let folder = folder();
    folder.write("m.json", MODEL);
    let refused = |args: &str, message: &[&str]| folder.refused(format!("fit data/iris.csv {args}"), message);
    refused("-k 3 --tol -1", &["tol is -1"]);
    refused("-k 3 --tol nan", &["tol is NaN"]);
    refused("-k 3 --reg-covar -1", &["reg_covar is -1"]);
    refused("-k 3 --reg-covar inf", &["reg_covar is inf"]);
    // A start of another shape: K, D, covariance type.
    refused("-k 3 --init m.json", &["[2, 3]", "[3, 3]"]);
    refused("--init m.json", &["start's means", "[2, 3]", "[2, 4]", "data's columns"]);
    refused("--init m.json --standardize", &["m.json", "[2, 3]", "[2, 4]"]);
    refused("--init m.json --covariance-type full", &["`diag`", "`full`"]);
    refused("-k 1 --device cpu --kernel warp9", &["warp9"]);
}

/// Writes data of the shape and type of the iris data.
fn like_iris(folder: &Folder, name: &str) -> Array2<f64> {
    let x = Array2::from_shape_fn((150, 4), |(i, j)| ((i * 7 + j * 3) % 11) as f64 + (i % 3 * 30) as f64);
    folder.save(name, &x);
    x
}

#[test]
fn a_checkpoint_of_other_data_or_options_is_refused() {
    let folder = folder();
    let x = like_iris(&folder, "other.npy");
    folder.save("narrow.npy", &x.select(Axis(1), &[0, 1, 2]));
    folder.save("single.npy", &x.mapv(|v| v as f32));
    folder.write("w.csv", "2\n".repeat(150));
    folder.write("v.csv", "2\n".repeat(149) + "3\n");
    folder.write("model.json", MODEL);
    let with =
        |data: &str, more: &str| format!("fit {data} -k 3 --covariance-type diag --checkpoint c.json --json {more}");
    folder.json(with("data/iris.csv", "--max-iter 2 --tol 0"));
    let refused_data = |data: &str, more: &str, message: &str| {
        let message = [message, "c.json: belongs to another fit", "name another checkpoint"];
        folder.refused(with(data, more), &message);
    };
    // Data of the same shape and type with different numbers.
    refused_data("other.npy", "", "the data's content differs");
    refused_data("narrow.npy", "", "the data's shape was 150 × 4 and is 150 × 3 now");
    refused_data("single.npy", "", "the data's type was float64 and is float32 now");
    let refused = |more: &str, message: &str| refused_data("data/iris.csv", more, message);
    refused("--sample-weight w.csv", "sample-weight");
    refused("--reg-covar 1e-3", "reg-covar was 1e-6 and is 0.001 now");
    refused("--standardize", "standardize was false and is true now");
    refused("--seed 1", "random-state was 0 and is 1 now");
    refused("--init-params random", "init-params was kmeans and is random now");
    refused("--n-init 2", "n-init was 1 and is 2 now");
    refused("--freeze means", "freeze was none and is means now");
    // All differences are named at once.
    refused("--seed 1 --n-init 2", "n-init was 1 and is 2 now; random-state was 0 and is 1 now");
    for (k, t, message) in
        [("4", "diag", "n-components was 3 and is 4 now"), ("3", "full", "covariance-type was diag and is full now")]
    {
        folder.refused(format!("fit data/iris.csv -k {k} --covariance-type {t} --checkpoint c.json"), &[message]);
    }
    folder.refused("fit data/iris.csv -k 3 --checkpoint model.json", &["not a checkpoint", "--init"]);

    // --max-iter and --tol may change, and so may the name and the format of the data.
    folder.save("iris.npy", &iris());
    let report = folder.json(with("iris.npy", "--max-iter 5 --tol 0"));
    assert_eq!(report["n_iter"], 5);

    // Weights and starts are recognised by their content, not by their names.
    let weighted = |w: &str| format!("fit data/iris.csv -k 2 --sample-weight {w} --checkpoint d.json");
    folder.run(weighted("w.csv"));
    folder.refused(weighted("v.csv"), &["d.json: belongs to another fit: sample-weight differs; give"]);
    for (name, seed) in [("a.json", "0"), ("b.json", "1")] {
        folder.fit(format!("data/iris.csv -k 2 --max-iter 0 --init-params random --seed {seed} -o {name}"));
    }
    let started = |init: &str| format!("fit data/iris.csv --init {init} --checkpoint e.json");
    folder.run(started("a.json"));
    folder.refused(started("b.json"), &["e.json: belongs to another fit: init differs; give"]);
    fs::copy(folder.path("a.json"), folder.path("copy.json")).unwrap();
    folder.run(started("copy.json"));

    // A checkpoint from before checkpoints recorded their data and options.
    let old = folder.text("c.json");
    let (before, _) = old.split_once(",\n\"made_with\"").unwrap();
    folder.write("old.json", format!("{before}, \"n_samples\": 150}}"));
    folder.refused(
        "fit data/iris.csv -k 3 --covariance-type diag --checkpoint old.json",
        &["old.json: a checkpoint of an older version", "--init"],
    );
    folder.fit("data/iris.csv --init old.json");
}

/// The data is larger than the process's memory limit.
#[cfg(target_os = "linux")]
#[test]
fn data_larger_than_memory_is_fitted_in_chunks() {
    let folder = folder();
    let n = write_clouds(&folder);
    let args = "x.npy -k 3 --covariance-type diag --device cpu --max-iter 2 --tol 0";
    // The limit of 64 MiB is on anonymous memory, including stacks of threads.
    let go = |more: &str| folder.limited("-d 65536", format!("fit {args} --json {more}"));
    let failed = go("--memory 1G -o whole.json");
    assert!(!failed.status.success(), "the limit does not bite");
    for more in ["", "--standardize"] {
        let run = go(&format!("--memory 18M -o chunks.json {more}"));
        let stderr = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{stderr}");
        let report: Value = serde_json::from_slice(&run.stdout).unwrap();
        assert_eq!((&report["n"], &report["n_iter"]), (&n.into(), &2.into()));
        assert!(report["device"].as_str().unwrap().contains("in 12 chunks"), "{report}");
        // The same fit in one piece. The samples are float32, and each chunk is rounded relative to its own centre.
        let whole = folder.fit(format!("{args} {more}"));
        approx::assert_relative_eq!(
            number(&report, "log_likelihood"),
            number(&whole, "log_likelihood"),
            max_relative = 1e-5
        );
    }
    assert_eq!(folder.names(), ["chunks.json", "x.npy"]);
    assert_eq!(folder.model("chunks.json").n_components(), 3);
}

/// A fit in chunks may continue in one piece, and the reverse.
#[test]
fn a_checkpoint_knows_data_in_chunks() {
    let folder = folder();
    let mut x = like_iris(&folder, "x.npy");
    let args = "-k 3 --covariance-type diag --tol 0 --checkpoint c.json --standardize";
    let chunked = "--memory 3k --device cpu";
    let report = folder.fit(format!("x.npy {args} {chunked} --max-iter 2"));
    assert!(report["device"].as_str().unwrap().contains("in 5 chunks"), "{report}");
    let report = folder.fit(format!("x.npy {args} --max-iter 3"));
    assert_eq!(report["n_iter"], 3);
    x[[149, 3]] += 1e-12;
    folder.save("x.npy", &x);
    folder.refused(format!("fit x.npy {args} {chunked}"), &["the data's content differs"]);
}

#[test]
fn memory_is_minded_below_64_mib() {
    let folder = folder();
    let x = like_iris(&folder, "x.npy");
    let rows = x.outer_iter().map(|r| r.iter().map(f64::to_string).collect::<Vec<_>>().join(",") + "\n");
    folder.write("x.csv", rows.collect::<String>());
    let swapped = bytes(&x, false, f64::to_be_bytes);
    folder.write("big.npy", npy("'>f8'", false, "(150, 4)", &swapped));
    let go = |data: &str, memory: &str| {
        folder.fit(format!("{data} --memory {memory} -k 2 --covariance-type diag --device cpu --max-iter 3 --tol 0"))
    };
    let whole = go("x.npy", "1M");
    // The data takes 4,800 bytes, twice: as read, and in the device's layout. Larger data stays in its file.
    for (data, memory, chunks) in [
        ("x.npy", "9600", None),
        ("x.npy", "9599", Some(2)),
        ("x.npy", "96", Some(150)),
        ("x.csv", "9600", None),
        ("x.csv", "9599", Some(2)),
        ("x.csv", "96", Some(150)),
        ("big.npy", "96", Some(150)),
    ] {
        let report = go(data, memory);
        let device = report["device"].as_str().unwrap();
        match chunks {
            Some(n) => assert!(device.contains(&format!("in {n} chunks")), "{data} {memory}: {device}"),
            None => assert!(!device.contains("chunks"), "{data} {memory}: {device}"),
        }
        assert_eq!(number(&report, "n"), 150.0);
        if chunks.is_none() {
            assert_eq!(number(&report, "log_likelihood"), number(&whole, "log_likelihood"));
        }
    }
    for data in ["x.npy", "x.csv", "big.npy"] {
        let message = format!("{data}: --memory 95 is too little; the least is 96 bytes");
        folder.refused(format!("fit {data} -k 2 --memory 95"), &[&message]);
    }
}

#[test]
fn advice_is_not_what_was_done() {
    let folder = folder();
    folder.write("far.csv", "0,0\n1,1\n1e200,0\n2e200,3\n");
    for more in ["", "--standardize"] {
        let error = folder.fails(1, format!("fit far.csv -k 1 {more}"));
        assert!(error.contains("divide the data by a constant") && !error.contains("float64"), "{error}");
        assert_eq!(error.contains("--standardize"), more.is_empty(), "{error}");
    }
}

#[test]
fn the_report_says_what_was_replaced() {
    let folder = folder();
    for (args, names) in [
        ("fit data/iris.csv -k 1 -o m.json --plot p.svg", &["m.json", "p.svg"][..]),
        ("predict m.json data/iris.csv -o k.npy", &["k.npy"]),
        ("sample m.json -n 3 -o x.csv --labels y.csv", &["x.csv", "y.csv"]),
        ("score m.json data/iris.csv --per-sample s.npy", &["s.npy"]),
        ("convert m.json n.npz", &["n.npz"]),
        ("select data/iris.csv -k 1 -o best.json", &["best.json"]),
    ] {
        for replaced in [false, true] {
            let text = folder.run(args);
            for name in names {
                assert!(text.contains(name), "{text}");
                assert_eq!(text.contains(&format!("{name}, in place of an older file")), replaced, "{text}");
            }
        }
    }
}

#[test]
fn a_reproducible_fit_gives_the_same_file_in_any_code() {
    let folder = folder();
    let fit = "fit data/iris.csv -k 3 --reproducible -o m.json";
    let file = |more: &str| {
        folder.run(format!("{fit} {more}"));
        folder.bytes("m.json")
    };
    assert_eq!(file(""), file("--device cpu --kernel reproducible-portable --threads 3"));
    folder.refused(format!("{fit} --device cuda"), &["is not supported by GPUs"]);
}
