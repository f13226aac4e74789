//! `gmm fit`.
use crate::common::*;
use gaussmix::evaluator::{Evaluator, ReferenceEvaluator};
use gaussmix::fit::GaussianMixtureParams;
use gaussmix::model::{CovarianceType, Mixture, Predict};
use ndarray::{Array2, Axis};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn iris() -> &'static str {
    data("iris.csv").display().to_string().leak()
}

fn speech() -> &'static str {
    data("speech.npy").display().to_string().leak()
}

#[test]
fn the_model_is_the_librarys() {
    let folder = folder();
    let input = gaussmix::io::read_data(data("iris.csv")).unwrap();
    for t in CovarianceType::ALL {
        let report = fit(
            folder.path(),
            &[iris(), "-k", "3", "--covariance-type", t.name(), "--device", "reference", "-o", "m.json"],
        );
        let mut keys: Vec<_> = report.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let expected = "aic bic converged covariance_type d device feature_names k kernel log_likelihood lower_bound n n_iter precision retained seconds";
        assert_eq!(keys.join(" "), expected);
        assert_eq!(report["precision"], "float64");
        let params = GaussianMixtureParams::default().n_components(3).covariance_type(t).check().unwrap();
        let mut evaluator = ReferenceEvaluator::new(input.samples().unwrap());
        let library = params.fit(&mut evaluator).unwrap();
        assert_eq!(gaussmix::io::read_model(folder.path().join("m.json")).unwrap(), library.mixture);
        assert_eq!((number(&report, "n"), number(&report, "d"), number(&report, "k")), (150.0, 4.0, 3.0));
        assert_eq!(report["n_iter"], library.n_iter());
        assert_eq!(number(&report, "lower_bound"), library.lower_bound());
        assert_eq!(report["converged"], true);
        assert_eq!(number(&report, "log_likelihood"), evaluator.log_likelihood(&library.mixture).unwrap());
        assert_eq!(number(&report, "bic"), library.mixture.bic(&mut evaluator).unwrap());
        assert_eq!(number(&report, "aic"), library.mixture.aic(&mut evaluator).unwrap());
        assert_eq!((&report["covariance_type"], &report["kernel"]), (&t.name().into(), &"reference".into()));
        // The file records how the fit found the model.
        let file: Value = serde_json::from_slice(&fs::read(folder.path().join("m.json")).unwrap()).unwrap();
        assert_eq!((&file["converged"], &file["n_iter"]), (&true.into(), &library.n_iter().into()));
        assert_eq!(file["lower_bounds"].as_array().unwrap().len(), library.n_iter());
    }
}

/// One sample at 10⁸ gets a component of its own, which is too narrow for float32.
#[test]
fn the_report_says_where_float32_has_too_few_digits() {
    let folder = folder();
    let mut x = ndarray::Array2::from_shape_fn((500, 4), |(i, j)| ((i * 37 + j * 11) % 101) as f32 / 50.0);
    ndarray_npy::write_npy(folder.path().join("near.npy"), &x).unwrap();
    x.row_mut(499).fill(1e8);
    ndarray_npy::write_npy(folder.path().join("far.npy"), &x).unwrap();
    for (name, wide) in [("near.npy", false), ("far.npy", true)] {
        let args = [name, "-k", "2", "--covariance-type", "diag", "--device", "cpu", "-o", "m.json"];
        let run = gmm(&folder).arg("fit").args(args).assert().success();
        let text = String::from_utf8(run.get_output().stdout.clone()).unwrap();
        assert_eq!(text.contains("precision       float64"), wide, "{text}");
        let run = gmm(&folder).args(["score", "m.json", name, "--device", "cpu"]).assert().success();
        let text = String::from_utf8(run.get_output().stdout.clone()).unwrap();
        assert_eq!(text.contains("precision       float64"), wide, "{text}");
    }
}

#[test]
fn an_npz_has_scikit_learns_attributes() {
    let folder = folder();
    let report = fit(folder.path(), &[iris(), "-k", "2", "-o", "m.npz"]);
    let file = fs::File::open(folder.path().join("m.npz")).unwrap();
    let mut npz = zip::ZipArchive::new(file).unwrap();
    let names: Vec<String> = (0..npz.len()).map(|i| npz.by_index(i).unwrap().name().into()).collect();
    let expected = "covariance_type weights_ means_ covariances_ precisions_ precisions_cholesky_ feature_names_in_ \
                    converged_ n_iter_ lower_bound_ lower_bounds_";
    assert_eq!(names, expected.split_whitespace().map(|n| format!("{n}.npy")).collect::<Vec<_>>());
    let mut bounds = Vec::new();
    std::io::Read::read_to_end(&mut npz.by_name("lower_bounds_.npy").unwrap(), &mut bounds).unwrap();
    let n_iter = report["n_iter"].as_u64().unwrap() as usize;
    assert!(String::from_utf8_lossy(&bounds).contains(&format!("'shape': ({n_iter},)")));
    assert_eq!(bounds[bounds.len() - 8..], number(&report, "lower_bound").to_le_bytes());
}

#[test]
fn speech_reaches_scikit_learns_score() {
    let folder = folder();
    // scikit-learn's mean score is that of standardised columns: add the logarithms of the scales to compare.
    let input = gaussmix::io::read_data(data("speech.npy")).unwrap();
    let standard = gaussmix::fit::Standardization::of(&input.samples().unwrap()).unwrap();
    let args = [speech(), "-k", "8", "--covariance-type", "diag", "--standardize", "--n-init", "10", "-o", "m.json"];
    let report = fit(folder.path(), &args);
    let score = number(&report, "log_likelihood") / 20_000.0;
    assert!(score + standard.log_scale() >= -16.3112, "{score}");
    // The model is in the data's units. Its score without standardisation differs only by the rounding of the float32
    // data, which was centred and scaled for the fit.
    let run = gmm(&folder).args(["score", "m.json", speech(), "--json"]).assert().success();
    let scored: Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    approx::assert_relative_eq!(number(&scored, "mean_log_likelihood"), score, max_relative = 1e-6);
}

#[test]
fn a_spherical_model_of_standardised_data_is_diag() {
    let folder = folder();
    let fit = |out: &str, more: &[&str]| {
        let args = [&[iris(), "-k", "3", "--covariance-type", "spherical", "--standardize", "-o", out], more].concat();
        fit(folder.path(), &args)
    };
    let report = fit("a.json", &["--max-iter", "4", "--tol", "0"]);
    assert_eq!(report["covariance_type"], "spherical");
    let model = gaussmix::io::read_model(folder.path().join("a.json")).unwrap();
    assert_eq!(model.covariance_type(), CovarianceType::Diag);
    let input = gaussmix::io::read_data(data("iris.csv")).unwrap();
    let total = ReferenceEvaluator::new(input.samples().unwrap()).log_likelihood(&model).unwrap();
    approx::assert_relative_eq!(total, number(&report, "log_likelihood"), max_relative = 1e-12);
    // As a start for a spherical fit in the same units, the diagonal model is spherical again.
    let going_on = fit("b.json", &["--max-iter", "3", "--tol", "0", "--init", "a.json"]);
    let whole = fit("c.json", &["--max-iter", "7", "--tol", "0"]);
    approx::assert_relative_eq!(number(&going_on, "bic"), number(&whole, "bic"), max_relative = 1e-10);
    // The parameters are K − 1 weights, 4·K means and K variances, for K = 3.
    let expected = 14.0 + 3.0;
    let parameters = (number(&whole, "aic") + 2.0 * number(&whole, "log_likelihood")) / 2.0;
    approx::assert_relative_eq!(parameters, expected, max_relative = 1e-12);
}

#[test]
fn weights_count_and_frozen_parameters_stay() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let weights: Vec<f64> = (0..150).map(|i| (i % 3) as f64).collect();
    fs::write(path("w.csv"), weights.iter().map(|w| format!("{w}\n")).collect::<String>()).unwrap();
    ndarray_npy::write_npy(path("w.npy"), &ndarray::Array1::from(weights)).unwrap();
    let gaussmix::io::Data::F64(x) = gaussmix::io::read_data(data("iris.csv")).unwrap() else { panic!("float64") };
    let rows: Vec<usize> = (0..150).flat_map(|i| std::iter::repeat_n(i, i % 3)).collect();
    ndarray_npy::write_npy(path("x.npy"), &x.select(Axis(0), &rows)).unwrap();
    fit(folder.path(), &[iris(), "-k", "3", "--max-iter", "0", "-o", "start.json"]);
    let from = |data: &str, more: &[&str], out: &str| {
        fit(
            folder.path(),
            &[&[data, "--init", "start.json", "--tol", "0", "--max-iter", "5", "-o", out], more].concat(),
        )
    };
    let repeated = from("x.npy", &[], "repeated.json");
    for (weights, standardize) in [("w.csv", false), ("w.npy", false), ("w.npy", true)] {
        let more = if standardize {
            &["--sample-weight", weights, "--standardize"][..]
        } else {
            &["--sample-weight", weights]
        };
        let weighted = from(iris(), more, "weighted.json");
        // Rounding grows over five iterations. With --standardize, reg_covar is 10⁻⁶ in other units, which changes the
        // result.
        let tolerance = if standardize { 1e-5 } else { 1e-10 };
        for name in ["log_likelihood", "bic", "lower_bound"] {
            approx::assert_relative_eq!(number(&weighted, name), number(&repeated, name), max_relative = tolerance);
        }
    }
    let model = |name: &str| gaussmix::io::read_model(path(name)).unwrap();
    from(iris(), &["--freeze", "means,weights"], "frozen.json");
    assert_eq!(model("frozen.json").means(), model("start.json").means());
    assert_eq!(model("frozen.json").weights(), model("start.json").weights());
    assert_ne!(model("frozen.json").covariances(), model("start.json").covariances());
}

#[test]
fn the_report_is_readable_and_the_plot_drawn() {
    let folder = folder();
    let args = [speech(), "-k", "3", "--covariance-type", "tied", "-o", "m.json", "--plot", "p.svg", "--max-iter", "3"];
    let run = gmm(&folder).arg("fit").args(args).assert().success().stderr("");
    let text = String::from_utf8(run.get_output().stdout.clone()).unwrap();
    for part in ["20,000 samples × 13 features, float32", "3 components, tied", "3, not converged", "BIC  ", "m.json"]
    {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let svg = fs::read_to_string(folder.path().join("p.svg")).unwrap();
    for part in ["2,000 of 20,000 samples", "standard deviations", "lower bound", "iteration", "<polyline", "</svg>"] {
        assert!(svg.contains(part), "{part}");
    }
    // Data of one feature is drawn as a histogram, data of two features in its own columns.
    let x = Array2::from_shape_fn((40, 2), |(i, j)| ((i * 7 + j * 3) % 11) as f64 + (i % 2 * 20) as f64);
    ndarray_npy::write_npy(folder.path().join("2.npy"), &x).unwrap();
    ndarray_npy::write_npy(folder.path().join("1.npy"), &x.select(Axis(1), &[0])).unwrap();
    for (name, part) in [("1", "density of the mixture"), ("2", "column 1")] {
        let (data, plot) = (format!("{name}.npy"), format!("{name}.svg"));
        fit(folder.path(), &[&data, "-k", "2", "--plot", &plot, "--standardize"]);
        let svg = fs::read_to_string(folder.path().join(plot)).unwrap();
        assert!(svg.contains(part) && svg.contains("40 samples, 2 components"), "{part}");
    }
    assert_eq!(names(folder.path()), ["1.npy", "1.svg", "2.npy", "2.svg", "m.json", "p.svg"]);
}

#[cfg(unix)]
fn interrupted_fit(folder: &Path, more: &[&str]) -> String {
    let endless = ["-k", "8", "--covariance-type", "diag", "--tol", "0", "--max-iter", "100000000", "--device", "cpu"];
    interrupted(folder, &[&["fit", speech()][..], &endless, more].concat())
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
    let note = interrupted_fit(folder.path(), &["-o", "m.json"]);
    assert!(note.starts_with("note: interrupted after ") && note.contains("m.json"), "{note}");
    let n = number_before(&note, "iterations");
    // The model has the bits of a fit with the same number of iterations, and is marked as not converged.
    let n_iter = n.to_string();
    let args = [speech(), "-k", "8", "--covariance-type", "diag", "--tol", "0", "--device", "cpu"];
    fit(folder.path(), &[&args[..], &["--max-iter", &n_iter, "-o", "whole.json"]].concat());
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    assert!(read("m.json") == read("whole.json"));
    assert!(String::from_utf8_lossy(&read("m.json")).contains("\"converged\": false"));
    let note = interrupted_fit(folder.path(), &["--plot", "p.svg"]);
    assert!(note.contains("nothing was written"), "{note}");
    assert_eq!(names(folder.path()), ["m.json", "whole.json"]);
}

#[cfg(unix)]
#[test]
fn a_checkpoint_goes_on_to_the_same_bits() {
    let folder = folder();
    let note = interrupted_fit(folder.path(), &["--n-init", "2", "--checkpoint", "c.json"]);
    assert!(note.contains("the same command continues from c.json"), "{note}");
    let n = number_before(&note, "iterations");
    // The fit continues for a few iterations and through the second run. The result is that of an uninterrupted fit.
    let max_iter = (n + 3).to_string();
    let go = |more: &[&str]| {
        let args = [speech(), "-k", "8", "--covariance-type", "diag", "--tol", "0", "--device", "cpu", "--n-init", "2"];
        gmm(&folder).arg("fit").args(args).args(["--max-iter", &max_iter]).args(more).assert().success()
    };
    let run = go(&["--checkpoint", "c.json", "-o", "resumed.json"]);
    let note = String::from_utf8(run.get_output().stderr.clone()).unwrap();
    assert_eq!(note, format!("note: continuing from c.json: run 1/2, iteration {n}\n"));
    go(&["-o", "whole.json"]);
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(read("resumed.json") == read("whole.json"));
    // The checkpoint of a finished fit gives the same model again, and can be read as a model.
    go(&["--checkpoint", "c.json", "-o", "again.json"]);
    assert!(read("again.json") == read("whole.json"));
    gmm(&folder).args(["score", "c.json", speech()]).assert().success();
    assert_eq!(names(folder.path()), ["again.json", "c.json", "resumed.json", "whole.json"]);
}

#[test]
fn a_checkpoint_of_standardised_data_goes_on() {
    let folder = folder();
    for t in CovarianceType::ALL {
        let go = |max_iter: &str, checkpoint: &str| {
            let args = [iris(), "-k", "3", "--standardize", "--tol", "0", "--covariance-type", t.name()];
            fit(folder.path(), &[&args[..], &["--max-iter", max_iter, "--checkpoint", checkpoint]].concat())
        };
        let (a, b) = (format!("a-{t}.json"), format!("b-{t}.json"));
        go("4", &a);
        let (resumed, whole) = (go("9", &a), go("9", &b));
        assert_eq!((&resumed["n_iter"], &whole["n_iter"]), (&9.into(), &9.into()));
        // The parameters were converted to the data's units and back.
        approx::assert_relative_eq!(number(&resumed, "bic"), number(&whole, "bic"), max_relative = 1e-10);
    }
}

#[track_caller]
fn refused_fit(folder: &Path, args: &[&str], message: &[&str]) {
    refused(folder, &[&["fit"], args].concat(), message);
}

#[test]
fn bad_data_and_weights() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let lines = |rows: usize, row: fn(usize) -> String| (0..rows).map(row).collect::<String>();
    fs::write(path("few.csv"), "1,2\n3,4\n").unwrap();
    fs::write(path("equal.csv"), lines(20, |_| "0.5,2\n".into())).unwrap();
    fs::write(path("constant.csv"), lines(30, |i| format!("{},7\n", (i * i) % 17))).unwrap();
    fs::write(path("nan.csv"), "1,2\n3,NaN\n5,6\n").unwrap();
    fs::write(path("x.csv"), lines(10, |i| format!("{},{}\n", (i * i) % 7, i))).unwrap();
    fs::write(path("long.csv"), lines(11, |_| "1\n".into())).unwrap();
    fs::write(path("negative.csv"), lines(10, |i| format!("{}\n", 3 - i as i64))).unwrap();
    fs::write(path("zero.csv"), lines(10, |_| "0\n".into())).unwrap();
    fs::write(path("nanw.csv"), lines(10, |i| if i == 6 { "NaN\n".into() } else { "1\n".into() })).unwrap();
    fs::write(path("two.csv"), lines(10, |i| format!("{},{}\n", usize::from(i < 2), 1))).unwrap();
    fs::write(path("sparse.csv"), lines(10, |i| format!("{}\n", usize::from(i < 2)))).unwrap();
    let refused =
        |args: &[&str], message: &[&str]| refused_fit(folder.path(), &[args, &["-o", "m.json"]].concat(), message);
    refused(&["few.csv", "-k", "3"], &["few.csv", "2 samples", "3 components", "at most 2"]);
    for t in ["full", "tied", "diag", "spherical"] {
        let of_type = |data| [data, "-k", "2", "--covariance-type", t];
        let option = if matches!(t, "full" | "tied") { "--reg-covar" } else { "reg_covar" };
        refused(&[&of_type("equal.csv")[..], &["--reg-covar", "0"]].concat(), &[option]);
        if t != "spherical" {
            refused(&[&of_type("constant.csv")[..], &["--reg-covar", "0"]].concat(), &[option]);
        }
        // With the default of --reg-covar the result is finite.
        for data in ["equal.csv", "constant.csv"] {
            for more in [&[][..], &["--standardize"]] {
                let report = fit(folder.path(), &[&of_type(data)[..], more].concat());
                assert!(number(&report, "log_likelihood").is_finite() && number(&report, "bic").is_finite());
            }
        }
    }
    refused(&["nan.csv", "-k", "1"], &["nan.csv", "row 1, column 1", "NaN"]);
    let weighted = |w| ["x.csv", "-k", "3", "--sample-weight", w];
    refused(&weighted("long.csv"), &["long.csv", "[11]", "[10]"]);
    refused(&weighted("negative.csv"), &["negative.csv", "row 4", "-1", "not negative"]);
    refused(&weighted("nanw.csv"), &["nanw.csv", "row 6", "NaN"]);
    refused(&weighted("zero.csv"), &["zero.csv", "all sample weights are zero"]);
    refused(&weighted("two.csv"), &["two.csv", "[10, 2]"]);
    refused(&weighted("none.csv"), &["none.csv", "No such file"]);
    refused(&weighted("sparse.csv"), &["2 samples", "3 components"]);
}

#[test]
fn bad_options() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("m.json"), MODEL).unwrap();
    for args in [
        &["-k", "0"][..],
        &["-k", "-3"],
        &[],
        &["-k", "3", "--covariance-type", "banana"],
        &["-k", "3", "--init-params", "magic"],
        &["-k", "3", "--n-init", "0"],
        &["-k", "3", "--freeze", "all"],
        &["--init", "m.json", "--n-init", "3"],
        &["-k", "3", "--memory", "lots"],
    ] {
        gmm(&folder).args(["fit", iris()]).args(args).assert().code(2).stdout("");
    }
    let refused = |args: &[&str], message: &[&str]| refused_fit(folder.path(), &[&[iris()], args].concat(), message);
    refused(&["-k", "3", "--tol", "-1"], &["tol is -1"]);
    refused(&["-k", "3", "--tol", "nan"], &["tol is NaN"]);
    refused(&["-k", "3", "--reg-covar", "-1"], &["reg_covar is -1"]);
    refused(&["-k", "3", "--reg-covar", "inf"], &["reg_covar is inf"]);
    // A start of another shape: K, D, covariance type.
    refused(&["-k", "3", "--init", "m.json"], &["[2, 3]", "[3, 3]"]);
    refused(&["--init", "m.json"], &["start's means", "[2, 3]", "[2, 4]", "data's columns"]);
    refused(&["--init", "m.json", "--standardize"], &["m.json", "[2, 3]", "[2, 4]"]);
    refused(&["--init", "m.json", "--covariance-type", "full"], &["`diag`", "`full`"]);
    refused(&["-k", "1", "--device", "cpu", "--kernel", "warp9"], &["warp9"]);
}

#[test]
fn unwritable_results_are_found_before_the_work() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("folder.json")).unwrap();
    fs::write(path("x.csv"), "1,2\n3,5\n").unwrap();
    fs::write(path("w.csv"), "1\n2\n").unwrap();
    // Results are checked first: the data does not even exist.
    for (option, out, message) in [
        ("-o", "no/such/m.json", "No such file"),
        ("-o", "folder.json", "directory"),
        ("-o", "m.txt", ".json or .npz"),
        ("--checkpoint", "no/such/c.json", "No such file"),
        ("--checkpoint", "c.npz", "must end in .json"),
        ("--plot", "no/such/p.svg", "No such file"),
        ("--plot", "folder.json", "directory"),
    ] {
        let run = gmm(&folder).args(["fit", "none.npy", "-k", "1", option, out]).assert().code(1).stdout("");
        let stderr = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
        assert!(stderr.contains(out) && stderr.contains(message) && !stderr.contains("none.npy"), "{stderr}");
    }
    refused_fit(folder.path(), &["x.csv", "-k", "1", "--plot", "x.csv"], &["x.csv: is an input"]);
    let args = ["x.csv", "-k", "1", "--sample-weight", "w.csv", "--plot", "./w.csv"];
    refused_fit(folder.path(), &args, &["w.csv: is an input"]);
    refused_fit(folder.path(), &["x.csv", "-k", "1", "-o", "m.json", "--checkpoint", "./m.json"], &["two results"]);
}

/// Writes data of the shape and type of the iris data.
fn like_iris(path: &Path) -> Array2<f64> {
    let x = Array2::from_shape_fn((150, 4), |(i, j)| ((i * 7 + j * 3) % 11) as f64 + (i % 3 * 30) as f64);
    ndarray_npy::write_npy(path, &x).unwrap();
    x
}

#[test]
fn a_checkpoint_of_other_data_or_options_is_refused() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let x = like_iris(&path("other.npy"));
    ndarray_npy::write_npy(path("narrow.npy"), &x.select(Axis(1), &[0, 1, 2])).unwrap();
    ndarray_npy::write_npy(path("single.npy"), &x.mapv(|v| v as f32)).unwrap();
    fs::write(path("w.csv"), "2\n".repeat(150)).unwrap();
    fs::write(path("v.csv"), "2\n".repeat(149) + "3\n").unwrap();
    fs::write(path("model.json"), MODEL).unwrap();
    let base = ["-k", "3", "--covariance-type", "diag", "--checkpoint", "c.json"];
    let with = |data: &'static str, more: &[&'static str]| [&[data], &base[..], more].concat();
    let iris: &'static str = iris();
    fit(folder.path(), &with(iris, &["--max-iter", "2", "--tol", "0"]));
    let refused = |args: &[&str], message: &[&str]| {
        refused_fit(
            folder.path(),
            args,
            &[message, &["c.json: belongs to another fit", "name another checkpoint"]].concat(),
        );
    };
    // Data of the same shape and type with different numbers.
    refused(&with("other.npy", &[]), &["the data's content differs"]);
    refused(&with("narrow.npy", &[]), &["the data's shape was 150 × 4 and is 150 × 3 now"]);
    refused(&with("single.npy", &[]), &["the data's type was float64 and is float32 now"]);
    refused(&with(iris, &["--sample-weight", "w.csv"]), &["sample-weight"]);
    refused(&with(iris, &["--reg-covar", "1e-3"]), &["reg-covar was 1e-6 and is 0.001 now"]);
    refused(&with(iris, &["--standardize"]), &["standardize was false and is true now"]);
    refused(&with(iris, &["--seed", "1"]), &["random-state was 0 and is 1 now"]);
    refused(&with(iris, &["--init-params", "random"]), &["init-params was kmeans and is random now"]);
    refused(&with(iris, &["--n-init", "2"]), &["n-init was 1 and is 2 now"]);
    refused(&with(iris, &["--freeze", "means"]), &["freeze was none and is means now"]);
    // All differences are named at once.
    let several = ["--seed", "1", "--n-init", "2"];
    refused(&with(iris, &several), &["n-init was 1 and is 2 now; random-state was 0 and is 1 now"]);
    let same = |k: &'static str, t: &'static str| [iris, "-k", k, "--covariance-type", t, "--checkpoint", "c.json"];
    refused(&same("4", "diag"), &["n-components was 3 and is 4 now"]);
    refused(&same("3", "full"), &["covariance-type was diag and is full now"]);
    refused_fit(folder.path(), &[iris, "-k", "3", "--checkpoint", "model.json"], &["not a checkpoint", "--init"]);

    // --max-iter and --tol may change, and so may the name and the format of the data.
    let gaussmix::io::Data::F64(numbers) = gaussmix::io::read_data(data("iris.csv")).unwrap() else {
        panic!("float64")
    };
    ndarray_npy::write_npy(path("iris.npy"), &numbers).unwrap();
    let report = fit(folder.path(), &with("iris.npy", &["--max-iter", "5", "--tol", "0"]));
    assert_eq!(report["n_iter"], 5);

    // Weights and starts are recognised by their content, not by their names.
    let weighted = |w: &'static str| [iris, "-k", "2", "--sample-weight", w, "--checkpoint", "d.json"];
    fit(folder.path(), &weighted("w.csv"));
    refused_fit(folder.path(), &weighted("v.csv"), &["d.json: belongs to another fit: sample-weight differs; give"]);
    for (name, seed) in [("a.json", "0"), ("b.json", "1")] {
        let args = ["--max-iter", "0", "--init-params", "random", "--seed", seed, "-o", name];
        fit(folder.path(), &[&[iris, "-k", "2"], &args[..]].concat());
    }
    let started = |init: &'static str| [iris, "--init", init, "--checkpoint", "e.json"];
    fit(folder.path(), &started("a.json"));
    refused_fit(folder.path(), &started("b.json"), &["e.json: belongs to another fit: init differs; give"]);
    fs::copy(path("a.json"), path("copy.json")).unwrap();
    fit(folder.path(), &started("copy.json"));

    // A checkpoint from before checkpoints recorded their data and options.
    let old = fs::read_to_string(path("c.json")).unwrap();
    let (before, _) = old.split_once(",\n\"made_with\"").unwrap();
    fs::write(path("old.json"), format!("{before}, \"n_samples\": 150}}")).unwrap();
    let args = [iris, "-k", "3", "--covariance-type", "diag", "--checkpoint", "old.json"];
    refused_fit(folder.path(), &args, &["old.json: a checkpoint of an older version", "--init"]);
    fit(folder.path(), &[iris, "--init", "old.json"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_fills() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    for name in ["m.json", "m.npz", "c.json", "p.svg"] {
        std::os::unix::fs::symlink("/dev/full", path(name)).unwrap();
    }
    for (option, out) in [("-o", "m.json"), ("-o", "m.npz"), ("--checkpoint", "c.json"), ("--plot", "p.svg")] {
        let run = gmm(&folder).args(["fit", iris(), "-k", "2", option, out]).assert().code(1).stdout("");
        let stderr = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
        assert!(stderr.contains(out) && stderr.contains("No space left on device"), "{stderr}");
    }
    // A file may have at most one block here. The old file stays, and no other appears.
    fs::write(path("old.json"), "old").unwrap();
    let before = names(folder.path());
    let args = ["fit", speech(), "-k", "8", "--covariance-type", "diag", "-o", "old.json"];
    let run = limited(folder.path(), "-f 1", &args);
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("old.json: cannot write it: File too large"), "{stderr}");
    assert_eq!((fs::read(path("old.json")).unwrap(), names(folder.path())), (b"old".to_vec(), before));
}

/// The data is larger than the process's memory limit.
#[cfg(target_os = "linux")]
#[test]
fn data_larger_than_memory_is_fitted_in_chunks() {
    let folder = folder();
    let n = write_clouds(&folder.path().join("x.npy"));
    let args = ["x.npy", "-k", "3", "--covariance-type", "diag", "--device", "cpu", "--max-iter", "2", "--tol", "0"];
    // The limit of 64 MiB is on anonymous memory, including stacks of threads.
    let go = |more: &[&str]| limited(folder.path(), "-d 65536", &[&["fit"], &args[..], &["--json"], more].concat());
    let failed = go(&["--memory", "1G", "-o", "whole.json"]);
    assert!(!failed.status.success(), "the limit does not bite");
    for more in [&[][..], &["--standardize"]] {
        let run = go(&[&["--memory", "18M", "-o", "chunks.json"], more].concat());
        let stderr = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{stderr}");
        let report: Value = serde_json::from_slice(&run.stdout).unwrap();
        assert_eq!((&report["n"], &report["n_iter"]), (&n.into(), &2.into()));
        assert!(report["device"].as_str().unwrap().contains("in 12 chunks"), "{report}");
        // The same fit in one piece. The samples are float32, and each chunk is rounded relative to its own centre.
        let whole = fit(folder.path(), &[&args[..], more].concat());
        approx::assert_relative_eq!(
            number(&report, "log_likelihood"),
            number(&whole, "log_likelihood"),
            max_relative = 1e-5
        );
    }
    assert_eq!(names(folder.path()), ["chunks.json", "x.npy"]);
    let model: Mixture = gaussmix::io::read_model(folder.path().join("chunks.json")).unwrap();
    assert_eq!(model.n_components(), 3);
}

/// A fit in chunks may continue in one piece, and the reverse.
#[test]
fn a_checkpoint_knows_data_in_chunks() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let mut x = like_iris(&path("x.npy"));
    let args = ["-k", "3", "--covariance-type", "diag", "--tol", "0", "--checkpoint", "c.json", "--standardize"];
    let chunked = ["--memory", "3k", "--device", "cpu"];
    let report = fit(folder.path(), &[&["x.npy"], &args[..], &chunked, &["--max-iter", "2"]].concat());
    assert!(report["device"].as_str().unwrap().contains("in 5 chunks"), "{report}");
    let report = fit(folder.path(), &[&["x.npy"], &args[..], &["--max-iter", "3"]].concat());
    assert_eq!(report["n_iter"], 3);
    x[[149, 3]] += 1e-12;
    ndarray_npy::write_npy(path("x.npy"), &x).unwrap();
    refused_fit(folder.path(), &[&["x.npy"], &args[..], &chunked].concat(), &["the data's content differs"]);
}

#[test]
fn memory_is_minded_below_64_mib() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let x = like_iris(&path("x.npy"));
    let rows = x.outer_iter().map(|r| r.iter().map(f64::to_string).collect::<Vec<_>>().join(",") + "\n");
    fs::write(path("x.csv"), rows.collect::<String>()).unwrap();
    let swapped = bytes(&x, false, f64::to_be_bytes);
    fs::write(path("big.npy"), npy("'>f8'", false, "(150, 4)", &swapped)).unwrap();
    let start = ["-k", "2", "--covariance-type", "diag", "--device", "cpu", "--max-iter", "3", "--tol", "0"];
    let go = |data: &str, memory: &str| fit(folder.path(), &[&[data, "--memory", memory], &start[..]].concat());
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
    let refused = |args: &[&str], message: &[&str]| refused_fit(folder.path(), args, message);
    refused(&["x.npy", "-k", "2", "--memory", "95"], &["x.npy: --memory 95 is too little; the least is 96 bytes"]);
    refused(&["x.csv", "-k", "2", "--memory", "95"], &["x.csv: --memory 95 is too little; the least is 96 bytes"]);
    refused(&["big.npy", "-k", "2", "--memory", "95"], &["big.npy: --memory 95 is too little; the least is 96 bytes"]);
}

#[test]
fn advice_is_not_what_was_done() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("far.csv"), "0,0\n1,1\n1e200,0\n2e200,3\n").unwrap();
    let failed = |args: &[&str]| {
        let run = gmm(&folder).arg("fit").args(args).assert().code(1);
        String::from_utf8(run.get_output().stderr.clone()).unwrap()
    };
    for more in [&[][..], &["--standardize"]] {
        let error = failed(&[&["far.csv", "-k", "1"], more].concat());
        assert!(error.contains("divide the data by a constant") && !error.contains("float64"), "{error}");
        assert_eq!(error.contains("--standardize"), more.is_empty(), "{error}");
    }
}

#[test]
fn the_report_says_what_was_replaced() {
    let folder = folder();
    let report = |args: &[&str]| {
        let run = gmm(&folder).args(args).assert().success();
        String::from_utf8(run.get_output().stdout.clone()).unwrap()
    };
    for (args, names) in [
        (&["fit", iris(), "-k", "1", "-o", "m.json", "--plot", "p.svg"][..], &["m.json", "p.svg"][..]),
        (&["predict", "m.json", iris(), "-o", "k.npy"], &["k.npy"]),
        (&["sample", "m.json", "-n", "3", "-o", "x.csv", "--labels", "y.csv"], &["x.csv", "y.csv"]),
        (&["score", "m.json", iris(), "--per-sample", "s.npy"], &["s.npy"]),
        (&["convert", "m.json", "n.npz"], &["n.npz"]),
        (&["select", iris(), "-k", "1", "-o", "best.json"], &["best.json"]),
    ] {
        for replaced in [false, true] {
            let text = report(args);
            for name in names {
                assert!(text.contains(name), "{text}");
                assert_eq!(text.contains(&format!("{name}, in place of an older file")), replaced, "{text}");
            }
        }
    }
}
