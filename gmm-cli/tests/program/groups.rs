//! `--by`: a mixture for each group of rows.
use crate::common::*;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int64Array, RecordBatch};
use gaussmix::io::{GroupModels, Ids};
use ndarray::{Array2, arr2};
use std::fs;
use std::sync::Arc;

/// Groups whose names are not valid file names, or differ only in the case of letters.
const GROUPS: [&str; 3] = ["../x", "A_B", "a/b"];
const FILES: [&str; 3] = ["_.._x.json", "A_B.json", "a_b-2.json"];
/// A group of one sample, to which two components cannot be fitted.
const SMALL: &str = "small";

fn group(row: usize) -> usize {
    row * 7 % 3
}

/// Writes x.csv, whose column `who` has the groups, with the one-sample group in the middle, and the rows of the other
/// groups as 0.csv, 1.csv and 2.csv.
fn write(folder: &Folder) {
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
    folder.write("x.csv", all);
    parts.iter().enumerate().for_each(|(g, part)| folder.write(format!("{g}.csv"), part));
}

fn column(folder: &Folder, file: &str, name: &str) -> Vec<String> {
    let mut reader = csv::Reader::from_path(folder.path(file)).unwrap();
    let at = reader.headers().unwrap().iter().position(|header| header == name).unwrap();
    reader.records().map(|record| record.unwrap()[at].into()).collect()
}

const FIT: &str = "x.csv -k 2 --by who -o";

#[test]
fn each_model_is_that_of_the_rows_of_its_group_alone() {
    let folder = folder();
    write(&folder);
    for options in ["", "--covariance-type tied --n-init 2", "--variational --max-iter 500"] {
        let threads = if options.is_empty() { "--threads 1" } else { "--threads 2" };
        let report = folder.fit(format!("{FIT} models/ {options} {threads}"));
        let mut names = FILES.to_vec();
        names.push("groups.csv");
        names.sort_unstable();
        assert_eq!(crate::common::names(folder.path("models")), names);
        for (g, file) in FILES.iter().enumerate() {
            let alone = folder.fit(format!("{g}.csv -k 2 -o alone.json {options}"));
            let model = folder.text(format!("models/{file}"));
            assert_eq!(model, folder.text("alone.json"), "{file}");
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
        let table = |name: &str| column(&folder, "models/groups.csv", name);
        assert_eq!(table("group"), [GROUPS[0], GROUPS[1], GROUPS[2], SMALL]);
        assert_eq!(table("file"), [FILES[0], FILES[1], FILES[2], ""]);
        assert_eq!(table("n_samples"), ["50", "50", "50", "1"]);
        assert_eq!(table("error"), ["", "", "", error]);
        // The group `../x` has not left the folder of the models.
        assert!(!folder.path("x.json").exists());
        fs::remove_dir_all(folder.path("models")).unwrap();
    }
}

/// A call that continues from a checkpoint ends with the files of an uninterrupted call.
#[test]
fn fits_go_on_from_a_checkpoint() {
    let folder = folder();
    write(&folder);
    for options in ["", "--variational --max-iter 500"] {
        folder.fit(format!("{FIT} whole/ {options}"));
        let args = format!("{FIT} models/ --checkpoint c.jsonl {options}");
        folder.fit(&args);
        // As if the program had been killed while it wrote the second fit.
        let log = folder.text("c.jsonl");
        let lines: Vec<&str> = log.split_inclusive('\n').collect();
        assert_eq!(lines.len(), 4, "{log}");
        folder.write("c.jsonl", [lines[0], lines[1], &lines[2][..100]].concat());
        // Some models exist, as after a signal; another file stays, and is an error.
        fs::remove_file(folder.path("models/groups.csv")).unwrap();
        folder.write("models/other.json", "mine");
        folder.refused(format!("fit {args}"), &["models/: the folder has `other.json`"]);
        fs::remove_file(folder.path("models/other.json")).unwrap();
        let stderr = folder.notes(format!("fit {args}"));
        assert!(stderr.contains("note: continuing from c.jsonl: 1 of 4 fits"), "{stderr}");
        for file in FILES.iter().chain(&["groups.csv"]) {
            assert_eq!(folder.text(format!("models/{file}")), folder.text(format!("whole/{file}")), "{file}");
        }
        // Finished fits are not repeated.
        let again = folder.text("c.jsonl");
        assert!(again.starts_with(&[lines[0], lines[1]].concat()) && again.lines().count() == 4, "{again}");
        let other = format!("fit x.csv -k 2 --by who --checkpoint c.jsonl {options} --tol 0.1");
        folder.refused(other, &["c.jsonl: belongs to other fits: tol was 0.001 and is 0.1 now"]);
        for used in ["whole", "models"] {
            fs::remove_dir_all(folder.path(used)).unwrap();
        }
        fs::remove_file(folder.path("c.jsonl")).unwrap();
    }
    folder.refused("fit x.csv -k 2 --by who --checkpoint c.json", &["c.json: ", ".jsonl"]);
}

#[test]
fn the_report_says_what_failed_and_the_exit_code_whether_all_did() {
    let folder = folder();
    write(&folder);
    let (stdout, stderr) = folder.output(0, format!("fit {FIT} models"));
    assert_has(&stdout, &["4, by `who`", "fitted          3", "failed          1", "`small`: ", "1 to 50 in a group"]);
    assert!(stderr.contains("note: 1 of 4 fits failed"), "{stderr}");
    // All fits fail: the older file stays.
    folder.write("old.parquet", "old");
    folder.refused("fit x.csv -k 60 --by who -o old.parquet", &["x.csv: all of 4 fits failed", "`../x`", "50 samples"]);
    folder.refused(format!("fit {FIT} models"), &["models: the folder is not empty"]);
}

/// Writes the data of [`write`] without the small group, as a table with the groups in three types.
fn write_parquet(folder: &Folder) {
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
    folder.write("x.parquet", parquet(&batch, None));
}

#[test]
fn tables_of_models_have_those_of_the_folder() {
    let folder = folder();
    write(&folder);
    write_parquet(&folder);
    folder.fit(format!("{FIT} models"));
    folder.fit(format!("{FIT} models.parquet"));
    let of_folder = GroupModels::read(folder.path("models")).unwrap();
    let of_table = GroupModels::read(folder.path("models.parquet")).unwrap();
    assert_eq!((of_table.by.as_str(), &of_table.groups), ("who", &of_folder.groups));
    for (in_folder, table) in of_folder.fits.iter().zip(&of_table.fits) {
        assert_eq!(in_folder.n_samples, table.n_samples);
        let mixture = |fit: &gaussmix::io::GroupFit| fit.model.clone().map(|model| model.mixture);
        assert_eq!(mixture(in_folder), mixture(table));
    }
    // The same groups as numbers, whose order here is that of the texts.
    let report = folder.fit("x.parquet -k 2 --by number --columns a,b,c -o numbers.parquet");
    let numbers = GroupModels::read(folder.path("numbers.parquet")).unwrap();
    assert_eq!(numbers.groups, Ids::Integers(vec![Some(-100), Some(0), Some(100)]));
    assert_eq!(report["groups"][0]["group"], -100);
    assert!(numbers.models().map(|model| &model.mixture).eq(of_table.models().map(|model| &model.mixture)));
    folder.fit("x.parquet -k 2 --by category --columns a,b,c -o categories.parquet");
    let categories = GroupModels::read(folder.path("categories.parquet")).unwrap();
    assert_eq!((categories.by.as_str(), categories.groups.text(2)), ("category", GROUPS[2].into()));
    assert_eq!(categories.fits, numbers.fits);
    assert_eq!(
        folder.fit("x.parquet -k 2 --by truth --drop category,number -o truths.parquet")["groups"][1]["group"],
        "true"
    );
    let truths = GroupModels::read(folder.path("truths.parquet")).unwrap();
    assert_eq!(truths.fits[1].model.as_ref().unwrap().mixture, numbers.models().next().unwrap().mixture);
}

#[test]
fn rows_meet_the_mixture_of_their_group() {
    let folder = folder();
    write(&folder);
    folder.fit(format!("{FIT} models"));
    folder.fit(format!("{FIT} models.parquet"));
    folder.fit(format!("{FIT} posteriors --variational"));
    let score = |args: &str| folder.json(format!("score --json {args}"));
    for (models, files) in [("models", "models"), ("models.parquet", "models"), ("posteriors", "posteriors")] {
        folder.run(format!("predict {models} x.csv --by who -o labels.csv"));
        folder.run(format!("predict {models} x.csv --by who --proba -o proba.csv"));
        folder.run(format!("predict {models} x.csv --by who -o labels.npy"));
        let report = score(&format!("{models} x.csv --by who --per-sample scores.csv"));
        let who = column(&folder, "x.csv", "who");
        assert_eq!(column(&folder, "labels.csv", "who"), who);
        let of = |file: &str, name: &str, group: &str| -> Vec<String> {
            let values = column(&folder, file, name).into_iter().zip(&who);
            values.filter(|(_, who)| *who == group).map(|(value, _)| value).collect()
        };
        let mut total = 0.0;
        for (g, group) in GROUPS.iter().enumerate() {
            let (model, part) = (format!("{files}/{}", FILES[g]), format!("{g}.csv"));
            folder.run(format!("predict {model} {part} -o alone.csv"));
            assert_eq!(of("labels.csv", "component", group), column(&folder, "alone.csv", "component"));
            folder.run(format!("predict {model} {part} --proba -o alone.csv"));
            assert_eq!(of("proba.csv", "p1", group), column(&folder, "alone.csv", "p1"));
            let alone = score(&format!("{model} {part} --per-sample alone.csv"));
            assert_eq!(of("scores.csv", "log_likelihood", group), column(&folder, "alone.csv", "log_likelihood"));
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
    folder.write("new.csv", "who,a,b,c\na/b,1,2,3\nnobody,1,2,3\n");
    folder.refused(
        "predict models new.csv --by who -o labels.csv",
        &["new.csv: row 1 ", "group `nobody`", "models has no model"],
    );
    folder.refused("score models new.csv --by a", &["missing here: a"]);
    for models in ["models", "models.parquet"] {
        folder.refused(format!("score {models} x.csv"), &[models, "--by names the column"]);
    }
    folder.refused("score models/A_B.json new.csv --by who", &["a .parquet, or a folder"]);
}

#[test]
fn bad_groups_are_errors() {
    let folder = folder();
    write(&folder);
    folder.write("gap.csv", "who,a\nx,1\n,2\nx,3\n");
    let error = |args: &str, message: &[&str]| folder.refused(format!("fit -k 2 {args}"), message);
    error("x.csv --by whom", &["x.csv: --by: there is no column `whom`; there are a, who, b, c"]);
    error("x.csv --by who --columns a,who", &["`who` is the column of --by", "remove it from --columns"]);
    error("gap.csv --by who", &["gap.csv: row 1 (counted from 0) has no value in the column `who`"]);
    let columns = [("who", f64::NAN), ("a", 2.0)];
    let columns = columns.map(|(name, last)| (name, Arc::new(Float64Array::from(vec![1.0, last])) as ArrayRef));
    folder.write("gap.parquet", parquet(&RecordBatch::try_from_iter(columns).unwrap(), None));
    error("gap.parquet --by who", &["gap.parquet: row 1 (counted from 0) has no value in the column `who`"]);
    folder.save("gap.npy", &arr2(&[[1.0, 2.0], [f64::NAN, 3.0]]));
    error("gap.npy --by 0", &["gap.npy: row 1 (counted from 0) has no value in the column `0`"]);
    folder.save("large.npy", &arr2(&[[(1i64 << 53) + 1, 2], [1 << 53, 3]]));
    error("large.npy --by 0", &["large.npy: --id or --by: ", "9007199254740992", ".parquet or .csv"]);
    error("x.csv --by who -o m.json", &["m.json: models of groups are a .parquet, or a folder"]);
    error("x.csv --by who -o x.csv", &["x.csv: is an input"]);
    error("x.csv --by who -o no/models/", &["no/models/: cannot write it"]);
    error("x.csv --by who --device cuda:0,1", &["--by: each group is computed on one device"]);
    folder.write("weight.csv", "weight,a\nx,1\nx,2\n");
    error("weight.csv --by weight -o m.parquet", &["m.parquet: ", "cannot be called `weight`"]);
    // The whole data must fit into memory; text is read at once.
    error("x.csv --by who --memory 6000", &["x.csv: --by needs all of the data in memory"]);
    error("x.csv --by who --variational -o m.parquet", &["m.parquet: ", "name a folder"]);
    for option in ["--init=m.json", "--plot=p.svg", "--standardize"] {
        let stderr = folder.fails(2, format!("fit x.csv -k 2 --by who {option}"));
        assert!(
            stderr.contains("--by <NAME>' cannot be used with") || stderr.contains("cannot be used with '--by"),
            "{stderr}"
        );
    }
    folder.fails(2, "fit x.csv -k 2 --by who --threads 0");
}

#[test]
fn weights_and_missing_values_go_with_their_rows() {
    let folder = folder();
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
    folder.write("x.csv", all);
    folder.write("w.csv", weights);
    let options = "-k 2 --missing --sample-weight";
    folder.fit(format!("x.csv --by who -o models {options} w.csv"));
    for ((x, w), file) in parts.iter().zip(FILES) {
        folder.write("part.csv", x);
        folder.write("part-w.csv", w);
        folder.fit(format!("part.csv -o alone.json {options} part-w.csv"));
        let model = folder.text(format!("models/{file}"));
        assert_eq!(model, folder.text("alone.json"), "{file}");
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
    folder.save("x.npy", &x);
    let note = folder.interrupted(
        "fit x.npy -k 2 --by 0 --tol 1e-300 --max-iter 100000000 --device cpu --threads 1 -o models.parquet",
    );
    assert!(
        note.starts_with("note: interrupted after ") && note.contains(" of 8 fits; the models so far are in"),
        "{note}"
    );
    let models = GroupModels::read(folder.path("models.parquet")).unwrap();
    assert!(models.fits[0].model.is_ok());
    assert_eq!(models.fits[7].model, Err("stopped".into()));
    assert_eq!(folder.names(), ["models.parquet", "x.npy"]);
}
