//! `--by`: a mixture for each group of rows.
use crate::common::*;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int64Array, RecordBatch};
use gaussmix::io::{Data, GroupModels, Ids, read_data};
use ndarray::Array2;
use parquet::arrow::ArrowWriter;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Groups whose names are not valid file names, or differ only in the case of letters.
const GROUPS: [&str; 3] = ["../x", "A_B", "a/b"];
const FILES: [&str; 3] = ["_.._x.json", "A_B.json", "a_b-2.json"];
/// A group of one sample, to which two components cannot be fitted.
const SMALL: &str = "small";

fn iris() -> Array2<f64> {
    match read_data(data("iris.csv")).unwrap() {
        Data::F64(x) => x,
        other => panic!("{other:?}"),
    }
}

fn group(row: usize) -> usize {
    row * 7 % 3
}

/// Writes x.csv, whose column `who` has the groups, with the one-sample group in the middle, and the rows of the other
/// groups as 0.csv, 1.csv and 2.csv.
fn write(folder: &Path) {
    let x = iris();
    let line = |i: usize| format!("{:?},{:?},{:?}", x[[i, 0]], x[[i, 1]], x[[i, 3]]);
    let mut all = String::from("a,who,b,c\n");
    let mut parts = [(); 3].map(|()| String::from("a,b,c\n"));
    for i in 0..x.nrows() {
        let (first, rest) = (format!("{:?}", x[[i, 0]]), format!("{:?},{:?}", x[[i, 1]], x[[i, 3]]));
        all += &format!("{first},{},{rest}\n", GROUPS[group(i)]);
        parts[group(i)] += &format!("{}\n", line(i));
        if i == 70 {
            all += &format!("1,{SMALL},2,3\n");
        }
    }
    fs::write(folder.join("x.csv"), all).unwrap();
    parts.iter().enumerate().for_each(|(g, part)| fs::write(folder.join(format!("{g}.csv")), part).unwrap());
}

fn column(path: impl AsRef<Path>, name: &str) -> Vec<String> {
    let mut reader = csv::Reader::from_path(path).unwrap();
    let at = reader.headers().unwrap().iter().position(|header| header == name).unwrap();
    reader.records().map(|record| record.unwrap()[at].into()).collect()
}

const FIT: [&str; 6] = ["x.csv", "-k", "2", "--by", "who", "-o"];

#[test]
fn each_model_is_that_of_the_rows_of_its_group_alone() {
    let folder = folder();
    let folder = folder.path();
    write(folder);
    for options in [
        &["--threads", "1"][..],
        &["--covariance-type", "tied", "--n-init", "2", "--threads", "2"],
        &["--variational", "--max-iter", "500", "--threads", "2"],
    ] {
        let single = options[..options.len() - 2].to_vec();
        let report = fit(folder, &[&FIT[..], &["models/"], options].concat());
        let mut names = FILES.to_vec();
        names.push("groups.csv");
        names.sort_unstable();
        assert_eq!(crate::common::names(&folder.join("models")), names);
        for (g, file) in FILES.iter().enumerate() {
            let part = format!("{g}.csv");
            let alone = fit(folder, &[&[&part[..], "-k", "2", "-o", "alone.json"][..], &single].concat());
            let model = fs::read_to_string(folder.join("models").join(file)).unwrap();
            assert_eq!(model, fs::read_to_string(folder.join("alone.json")).unwrap(), "{file}");
            let of_group = &report["groups"][g];
            for name in ["n_iter", "converged", "lower_bound"] {
                assert_eq!(of_group[name], alone[name], "{name} of {file}");
            }
            assert_eq!((of_group["group"].as_str(), of_group["error"].as_str()), (Some(GROUPS[g]), None));
        }
        assert_eq!((&report["n_groups"], &report["fitted"], &report["failed"]), (&4.into(), &3.into(), &1.into()));
        assert_eq!((&report["by"], &report["feature_names"]), (&"who".into(), &serde_json::json!(["a", "b", "c"])));
        let error = report["groups"][3]["error"].as_str().unwrap();
        assert!(error.contains("1 sample") && report["groups"][3]["n_iter"].is_null(), "{report}");
        let table = folder.join("models/groups.csv");
        assert_eq!(column(&table, "group"), [GROUPS[0], GROUPS[1], GROUPS[2], SMALL]);
        assert_eq!(column(&table, "file"), [FILES[0], FILES[1], FILES[2], ""]);
        assert_eq!(column(&table, "n_samples"), ["50", "50", "50", "1"]);
        assert_eq!(column(&table, "error"), ["", "", "", error]);
        // The group `../x` has not left the folder of the models.
        assert!(!folder.join("x.json").exists());
        fs::remove_dir_all(folder.join("models")).unwrap();
    }
}

/// A call that continues from a checkpoint ends with the files of an uninterrupted call.
#[test]
fn fits_go_on_from_a_checkpoint() {
    let folder = folder();
    let folder = folder.path();
    write(folder);
    for options in [&[][..], &["--variational", "--max-iter", "500"]] {
        fit(folder, &[&FIT[..], &["whole/"], options].concat());
        let args = [&FIT[..], &["models/", "--checkpoint", "c.jsonl"], options].concat();
        fit(folder, &args);
        // As if the program had been killed while it wrote the second fit.
        let log = fs::read_to_string(folder.join("c.jsonl")).unwrap();
        let lines: Vec<&str> = log.split_inclusive('\n').collect();
        assert_eq!(lines.len(), 4, "{log}");
        fs::write(folder.join("c.jsonl"), [lines[0], lines[1], &lines[2][..100]].concat()).unwrap();
        // Some models exist, as after a signal; another file stays, and is an error.
        fs::remove_file(folder.join("models/groups.csv")).unwrap();
        fs::write(folder.join("models/other.json"), "mine").unwrap();
        refused(folder, &[&["fit"], &args[..]].concat(), &["models/: the folder has `other.json`"]);
        fs::remove_file(folder.join("models/other.json")).unwrap();
        let run = gmm(folder).arg("fit").args(&args).assert().success();
        let stderr = String::from_utf8(run.get_output().stderr.clone()).unwrap();
        assert!(stderr.contains("note: continuing from c.jsonl: 1 of 4 fits"), "{stderr}");
        for file in FILES.iter().chain(&["groups.csv"]) {
            let read = |folder_of: &str| fs::read_to_string(folder.join(folder_of).join(file)).unwrap();
            assert_eq!(read("models"), read("whole"), "{file}");
        }
        // Finished fits are not repeated.
        let again = fs::read_to_string(folder.join("c.jsonl")).unwrap();
        assert!(again.starts_with(&[lines[0], lines[1]].concat()) && again.lines().count() == 4, "{again}");
        let rest = [&["--checkpoint", "c.jsonl"], options, &["--tol", "0.1"]].concat();
        let other = [&["fit", "x.csv", "-k", "2", "--by", "who"], &rest[..]].concat();
        refused(folder, &other, &["c.jsonl: belongs to other fits: tol was 0.001 and is 0.1 now"]);
        for used in ["whole", "models"] {
            fs::remove_dir_all(folder.join(used)).unwrap();
        }
        fs::remove_file(folder.join("c.jsonl")).unwrap();
    }
    let other = ["fit", "x.csv", "-k", "2", "--by", "who", "--checkpoint", "c.json"];
    refused(folder, &other, &["c.json: ", ".jsonl"]);
}

#[test]
fn the_report_says_what_failed_and_the_exit_code_whether_all_did() {
    let folder = folder();
    let folder = folder.path();
    write(folder);
    let run = gmm(folder).arg("fit").args(FIT).arg("models").assert().success();
    let output = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (stdout, stderr) = (output(&run.get_output().stdout), output(&run.get_output().stderr));
    for part in ["4, by `who`", "fitted          3", "failed          1", "`small`: ", "1 to 50 in a group"] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    assert!(stderr.contains("note: 1 of 4 fits failed"), "{stderr}");
    // All fits fail: the older file stays.
    fs::write(folder.join("old.parquet"), "old").unwrap();
    let args = ["fit", "x.csv", "-k", "60", "--by", "who", "-o", "old.parquet"];
    refused(folder, &args, &["x.csv: all of 4 fits failed", "`../x`", "50 samples"]);
    refused(folder, &[&["fit"], &FIT[..], &["models"]].concat(), &["models: the folder is not empty"]);
}

/// Writes the data of [`write`] without the small group, as a table with the groups in three types.
fn write_parquet(folder: &Path) {
    let x = iris();
    let rows = 0..x.nrows();
    let texts: DictionaryArray<Int32Type> = rows.clone().map(|i| GROUPS[group(i)]).collect();
    let numbers = Arc::new(Int64Array::from_iter_values(rows.clone().map(|i| group(i) as i64 * 100 - 100)));
    let truths = Arc::new(BooleanArray::from_iter(rows.map(|i| Some(group(i) == 0))));
    let feature = |j: usize| Arc::new(Float64Array::from_iter_values(x.column(j).iter().copied())) as ArrayRef;
    let columns = [
        ("a", feature(0)),
        ("category", Arc::new(texts)),
        ("b", feature(1)),
        ("number", numbers),
        ("c", feature(3)),
        ("truth", truths),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = fs::File::create(folder.join("x.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn tables_of_models_have_those_of_the_folder() {
    let folder = folder();
    let folder = folder.path();
    write(folder);
    write_parquet(folder);
    fit(folder, &[&FIT[..], &["models"]].concat());
    fit(folder, &[&FIT[..], &["models.parquet"]].concat());
    let of_folder = GroupModels::read(folder.join("models")).unwrap();
    let of_table = GroupModels::read(folder.join("models.parquet")).unwrap();
    assert_eq!((of_table.by.as_str(), &of_table.groups), ("who", &of_folder.groups));
    for (folder, table) in of_folder.fits.iter().zip(&of_table.fits) {
        assert_eq!(folder.n_samples, table.n_samples);
        let mixture = |fit: &gaussmix::io::GroupFit| fit.model.clone().map(|model| model.mixture);
        assert_eq!(mixture(folder), mixture(table));
    }
    // The same groups as numbers, whose order here is that of the texts.
    let args = ["x.parquet", "-k", "2", "--by", "number", "--columns", "a,b,c", "-o", "numbers.parquet"];
    let report = fit(folder, &args);
    let numbers = GroupModels::read(folder.join("numbers.parquet")).unwrap();
    assert_eq!(numbers.groups, Ids::Integers(vec![Some(-100), Some(0), Some(100)]));
    assert_eq!(report["groups"][0]["group"], -100);
    assert!(numbers.models().map(|model| &model.mixture).eq(of_table.models().map(|model| &model.mixture)));
    fit(folder, &["x.parquet", "-k", "2", "--by", "category", "--columns", "a,b,c", "-o", "categories.parquet"]);
    let categories = GroupModels::read(folder.join("categories.parquet")).unwrap();
    assert_eq!((categories.by.as_str(), categories.groups.text(2)), ("category", GROUPS[2].into()));
    assert_eq!(categories.fits, numbers.fits);
    let args = ["x.parquet", "-k", "2", "--by", "truth", "--drop", "category,number", "-o", "truths.parquet"];
    assert_eq!(fit(folder, &args)["groups"][1]["group"], "true");
    let truths = GroupModels::read(folder.join("truths.parquet")).unwrap();
    assert_eq!(truths.fits[1].model.as_ref().unwrap().mixture, numbers.models().next().unwrap().mixture);
}

#[test]
fn rows_meet_the_mixture_of_their_group() {
    let folder = folder();
    let folder = folder.path();
    write(folder);
    fit(folder, &[&FIT[..], &["models"]].concat());
    fit(folder, &[&FIT[..], &["models.parquet"]].concat());
    fit(folder, &[&FIT[..], &["posteriors", "--variational"]].concat());
    let run = |args: &[&str]| drop(gmm(folder).args(args).assert().success());
    let score = |args: &[&str]| -> serde_json::Value {
        let run = gmm(folder).arg("score").args(args).arg("--json").assert().success();
        serde_json::from_slice(&run.get_output().stdout).unwrap()
    };
    for (models, files) in [("models", "models"), ("models.parquet", "models"), ("posteriors", "posteriors")] {
        run(&["predict", models, "x.csv", "--by", "who", "-o", "labels.csv"]);
        run(&["predict", models, "x.csv", "--by", "who", "--proba", "-o", "proba.csv"]);
        run(&["predict", models, "x.csv", "--by", "who", "-o", "labels.npy"]);
        let report = score(&[models, "x.csv", "--by", "who", "--per-sample", "scores.csv"]);
        let who = column(folder.join("x.csv"), "who");
        assert_eq!(column(folder.join("labels.csv"), "who"), who);
        let of = |file: &str, name: &str, group: &str| -> Vec<String> {
            let values = column(folder.join(file), name).into_iter().zip(&who);
            values.filter(|(_, who)| *who == group).map(|(value, _)| value).collect()
        };
        let mut total = 0.0;
        for (g, group) in GROUPS.iter().enumerate() {
            let (model, part) = (format!("{files}/{}", FILES[g]), format!("{g}.csv"));
            run(&["predict", &model, &part, "-o", "alone.csv"]);
            assert_eq!(of("labels.csv", "component", group), column(folder.join("alone.csv"), "component"));
            run(&["predict", &model, &part, "--proba", "-o", "alone.csv"]);
            assert_eq!(of("proba.csv", "p1", group), column(folder.join("alone.csv"), "p1"));
            let alone = score(&[&model, &part, "--per-sample", "alone.csv"]);
            assert_eq!(of("scores.csv", "log_likelihood", group), column(folder.join("alone.csv"), "log_likelihood"));
            assert_eq!(report["groups"][g]["log_likelihood"], alone["log_likelihood"]);
            total += number(&alone, "log_likelihood");
        }
        // Both are the sum of the same numbers in the same order.
        assert_eq!(number(&report, "log_likelihood"), total);
        assert_eq!((&report["n"], &report["n_without_model"]), (&151.into(), &1.into()));
        assert_eq!(of("labels.csv", "component", SMALL), ["-1"]);
        assert_eq!(of("proba.csv", "p0", SMALL), ["NaN"]);
        assert_eq!(of("scores.csv", "log_likelihood", SMALL), ["NaN"]);
    }
    fs::write(folder.join("new.csv"), "who,a,b,c\na/b,1,2,3\nnobody,1,2,3\n").unwrap();
    let args = ["predict", "models", "new.csv", "--by", "who", "-o", "labels.csv"];
    refused(folder, &args, &["new.csv: row 1 ", "group `nobody`", "models has no model"]);
    refused(folder, &["score", "models", "new.csv", "--by", "a"], &["missing here: a"]);
    for models in ["models", "models.parquet"] {
        refused(folder, &["score", models, "x.csv"], &[models, "--by names the column"]);
    }
    refused(folder, &["score", "models/A_B.json", "new.csv", "--by", "who"], &["a .parquet, or a folder"]);
}

#[test]
fn bad_groups_are_errors() {
    let folder = folder();
    let folder = folder.path();
    write(folder);
    fs::write(folder.join("gap.csv"), "who,a\nx,1\n,2\nx,3\n").unwrap();
    let error = |args: &[&str], message: &[&str]| refused(folder, &[&["fit", "-k", "2"], args].concat(), message);
    error(&["x.csv", "--by", "whom"], &["x.csv: --by: there is no column `whom`; there are a, who, b, c"]);
    error(
        &["x.csv", "--by", "who", "--columns", "a,who"],
        &["`who` is the column of --by", "remove it from --columns"],
    );
    error(&["gap.csv", "--by", "who"], &["gap.csv: row 1 (counted from 0) has no value in the column `who`"]);
    error(&["x.csv", "--by", "who", "-o", "m.json"], &["m.json: models of groups are a .parquet, or a folder"]);
    error(&["x.csv", "--by", "who", "-o", "x.csv"], &["x.csv: is an input"]);
    error(&["x.csv", "--by", "who", "-o", "no/models/"], &["no/models/: cannot write it"]);
    error(&["x.csv", "--by", "who", "--device", "cuda:0,1"], &["--by: each group is computed on one device"]);
    fs::write(folder.join("weight.csv"), "weight,a\nx,1\nx,2\n").unwrap();
    error(&["weight.csv", "--by", "weight", "-o", "m.parquet"], &["m.parquet: ", "cannot be called `weight`"]);
    // The whole data must fit into memory; text is read at once.
    error(&["x.csv", "--by", "who", "--memory", "6000"], &["x.csv: --by needs all of the data in memory"]);
    error(&["x.csv", "--by", "who", "--variational", "-o", "m.parquet"], &["m.parquet: ", "name a folder"]);
    for option in ["--init=m.json", "--plot=p.svg", "--standardize"] {
        let args = ["fit", "x.csv", "-k", "2", "--by", "who", option];
        let run = gmm(folder).args(args).assert().code(2).stdout("");
        let stderr = String::from_utf8(run.get_output().stderr.clone()).unwrap();
        assert!(
            stderr.contains("--by <NAME>' cannot be used with") || stderr.contains("cannot be used with '--by"),
            "{stderr}"
        );
    }
    gmm(folder).args(["fit", "x.csv", "-k", "2", "--by", "who", "--threads", "0"]).assert().code(2);
}

#[test]
fn weights_and_missing_values_go_with_their_rows() {
    let folder = folder();
    let folder = folder.path();
    let x = iris();
    let (mut all, mut weights) = (String::from("who,a,b\n"), String::new());
    let mut parts = [(); 3].map(|()| (String::from("a,b\n"), String::new()));
    for i in 0..x.nrows() {
        let second = if i % 10 == 3 { String::new() } else { format!("{:?}", x[[i, 2]]) };
        let (line, weight) = (format!("{:?},{second}\n", x[[i, 0]]), format!("{}\n", 1 + i % 4));
        all += &format!("{},{line}", GROUPS[group(i)]);
        weights += &weight;
        let part = &mut parts[group(i)];
        (part.0, part.1) = (format!("{}{line}", part.0), format!("{}{weight}", part.1));
    }
    fs::write(folder.join("x.csv"), all).unwrap();
    fs::write(folder.join("w.csv"), weights).unwrap();
    let options = ["-k", "2", "--missing", "--sample-weight"];
    fit(folder, &[&["x.csv", "--by", "who", "-o", "models"], &options[..], &["w.csv"]].concat());
    for ((x, w), file) in parts.iter().zip(FILES) {
        fs::write(folder.join("part.csv"), x).unwrap();
        fs::write(folder.join("part-w.csv"), w).unwrap();
        fit(folder, &[&["part.csv", "-o", "alone.json"], &options[..], &["part-w.csv"]].concat());
        let model = fs::read_to_string(folder.join("models").join(file)).unwrap();
        assert_eq!(model, fs::read_to_string(folder.join("alone.json")).unwrap(), "{file}");
    }
}

/// Ctrl-C keeps finished fits. The first of eight groups of the same size is two distant clouds, to which a fit
/// converges in a few iterations; the other groups, one cloud each, need far longer than the test.
#[cfg(unix)]
#[test]
fn an_interrupted_command_keeps_the_fits_that_have_ended() {
    let folder = folder();
    let rows = 20_000;
    let noise = |v: usize| ((v as u32).wrapping_mul(2_654_435_761) >> 8) as f64 / (1 << 24) as f64;
    let x = Array2::from_shape_fn((8 * rows, 3), |(i, j)| match (j, i / rows) {
        (0, group) => group as f64,
        (_, 0) => (i % 2 * 1000) as f64 + (i / 2 % 2) as f64,
        _ => noise(3 * i + j) + noise(7 * i + j + 1) + noise(11 * i + 5 * j),
    });
    let file = npy("'<f8'", false, &format!("({}, 3)", x.nrows()), &bytes(&x, false, f64::to_le_bytes));
    fs::write(folder.path().join("x.npy"), file).unwrap();
    let args =
        ["fit", "x.npy", "-k", "2", "--by", "0", "--tol", "1e-300", "--max-iter", "100000000", "--device", "cpu"];
    let note = interrupted(folder.path(), &[&args[..], &["--threads", "1", "-o", "models.parquet"]].concat());
    assert!(
        note.starts_with("note: interrupted after ") && note.contains(" of 8 fits; the models so far are in"),
        "{note}"
    );
    let models = GroupModels::read(folder.path().join("models.parquet")).unwrap();
    assert!(models.fits[0].model.is_ok());
    assert_eq!(models.fits[7].model, Err("stopped".into()));
    assert_eq!(names(folder.path()), ["models.parquet", "x.npy"]);
}
