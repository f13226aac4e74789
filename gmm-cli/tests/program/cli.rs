//! The commands with good input.
use crate::common::*;
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};

fn score(args: impl Args) -> Value {
    json(folder().gmm("score --json").args(args.words()))
}

#[test]
fn score_agrees_with_scikit_learn() {
    // Printed by data/make.py (scikit-learn 1.9.1, float64). The float32 speech data is read as it is; 1e-7 relative is
    // the engine's bound for float32, 1e-10 leaves room for another order of float64 operations.
    for device in ["auto", "reference"] {
        let row = score(format!("data/iris3.json data/iris.csv --device {device}"));
        let total = row["log_likelihood"].as_f64().unwrap();
        approx::assert_relative_eq!(total, -307.1819217093602, max_relative = 1e-10);
        let row = score(format!("data/speech8.json data/speech.npy --device {device}"));
        let total = row["log_likelihood"].as_f64().unwrap();
        approx::assert_relative_eq!(total, -1009219.6621568517, max_relative = 1e-7);
    }
}

#[test]
fn score_prints_every_field() {
    let row = score("data/iris3.json data/iris.csv --device reference");
    assert_eq!(keys(&row), "covariance_type d device k kernel log_likelihood mean_log_likelihood n precision seconds");
    assert_eq!(row["precision"], "float64");
    assert_eq!((&row["n"], &row["d"], &row["k"]), (&150.into(), &4.into(), &3.into()));
    assert_eq!((&row["covariance_type"], &row["kernel"]), (&"diag".into(), &"reference".into()));
    assert!(row["seconds"].as_f64().unwrap() > 0.0);
    // JSON keeps every bit, so the same division gives the same mean.
    assert_eq!(row["mean_log_likelihood"].as_f64().unwrap(), row["log_likelihood"].as_f64().unwrap() / 150.0);
    let iris = gaussmix::io::read_data(data("iris.csv")).unwrap();
    let (total, _) = reference(&iris, &gaussmix::io::read_model(data("iris3.json")).unwrap());
    assert_eq!(row["log_likelihood"].as_f64().unwrap(), total);
}

#[test]
fn every_form_of_the_same_data_scores_the_same() {
    let folder = folder();
    folder.write("model.json", MODEL);
    let x = points();
    for fortran in [false, true] {
        let write = |name: &str, descr: &str, body: &[u8]| {
            folder.write(format!("{name}-{fortran}.npy"), npy(descr, fortran, "(7, 3)", body));
        };
        write("f4", "'<f4'", &bytes(&x, fortran, |v| (v as f32).to_le_bytes()));
        write("f8", "'<f8'", &bytes(&x, fortran, f64::to_le_bytes));
        write("b4", "'>f4'", &bytes(&x, fortran, |v| (v as f32).to_be_bytes()));
        write("b8", "'>f8'", &bytes(&x, fortran, f64::to_be_bytes));
    }
    let row = |r: ndarray::ArrayView1<f64>| r.iter().map(f64::to_string).collect::<Vec<_>>();
    let lines: Vec<String> = x.outer_iter().map(|r| row(r).join(",")).collect();
    folder.write("plain.csv", lines.join("\n"));
    folder.write("header.csv", format!("a,\"b, with comma\",c\n{}\n\n", lines.join("\n")));
    folder.write("windows.csv", format!("\u{feff}a , b,c\r\n{}\r\n", lines.join("\r\n")));
    folder.write("spaces.CSV", x.outer_iter().map(|r| row(r).join(" ,\t") + "\n").collect::<String>());
    let (total, _) = reference(&gaussmix::io::Data::F64(x), &mixture());
    let mut seen = 0;
    for file in folder.names().iter().filter(|name| *name != "model.json") {
        let row = folder.json(format!("score model.json {file} --device reference --json"));
        assert_eq!(row["n"], 7, "{file:?}");
        // The same operations on the same values give the same bits.
        assert_eq!(row["log_likelihood"].as_f64().unwrap(), total, "{file:?}");
        seen += 1;
    }
    assert_eq!(seen, 12);
}

#[cfg(unix)]
#[test]
fn outputs_keep_links_modes_and_special_files() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    folder.write("real.npy", "old");
    fs::set_permissions(folder.path("real.npy"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("real.npy", folder.path("link.npy")).unwrap();
    for out in ["link.npy", "new.npy", "/dev/null"] {
        folder.run(format!("score data/iris3.json data/iris.csv --per-sample {out}"));
    }
    assert_eq!(folder.names(), ["link.npy", "new.npy", "real.npy"], "no temporary file is left");
    let mode = |name: &str| fs::metadata(folder.path(name)).unwrap().permissions().mode() & 0o777;
    assert!(fs::symlink_metadata(folder.path("link.npy")).unwrap().is_symlink());
    assert_eq!(mode("real.npy"), 0o640);
    assert_eq!(folder.bytes("real.npy"), folder.bytes("new.npy"));
    // A new file has the mode that the umask gives to any new file.
    fs::File::create(folder.path("plain")).unwrap();
    assert_eq!(mode("new.npy"), mode("plain"));
    use std::os::unix::fs::FileTypeExt;
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
}

#[test]
fn score_is_readable() {
    let text = folder().run("score data/speech8.json data/speech.npy");
    let parts = ["20,000 samples × 13 features, float32", "8 components, diag", "log-likelihood  -1009219.6", "kernel"];
    assert_has(&text, &parts);
}

#[test]
fn kernels_are_chosen_by_name() {
    let row = score("data/iris3.json data/iris.csv --device reference --kernel reference");
    assert_eq!(row["kernel"], "reference");
    let args = "score data/iris3.json data/iris.csv --device reference --kernel warp9";
    folder().refused(args, &["`warp9`", "available here: reference"]);
}

#[test]
fn a_missing_gpu_is_an_error_that_says_so() {
    folder().without_gpus().refused("score data/iris3.json data/iris.csv --device cuda", &["no CUDA device"]);
}

/// Returns the rows that a command prints as JSON, without a note.
#[track_caller]
fn rows(folder: &Folder, args: &str) -> Vec<Value> {
    serde_json::from_str(&folder.silent(format!("{args} --json"))).unwrap()
}

/// Requires that a command names a missing GPU beside the reference's row, and that alone it is an error.
#[track_caller]
fn assert_names_the_missing_gpu(bench: &str) {
    let folder = folder().without_gpus();
    let (missing, both) = ("no CUDA device", format!("{bench} --device reference,cuda"));
    folder.refused(format!("{bench} --device cuda"), &[missing]);
    assert_has(&folder.run(&both), &[missing]);
    let (rows, notes) = folder.output(0, format!("{both} --json"));
    assert_has(&notes, &[missing]);
    let rows: Vec<Value> = serde_json::from_str(&rows).unwrap();
    assert!(!rows.is_empty() && rows.iter().all(|row| row["device"] == "reference"), "{rows:?}");
}

#[test]
fn bench_rows() {
    let rows = rows(&folder(), "bench likelihood --device reference --n 200,1e2 -k 3 -d 2 --seconds 0.01");
    let of = |r: &Value| (r["device"].as_str().unwrap().to_string(), r["n"].as_u64().unwrap());
    let expected = [("reference", 100), ("reference", 200)];
    assert_eq!(rows.iter().map(of).collect::<Vec<_>>(), expected.map(|(m, n)| (m.to_string(), n)));
    for row in &rows {
        assert_eq!(keys(row), "d device k kernel n seconds");
        assert_eq!((&row["k"], &row["d"]), (&3.into(), &2.into()));
        assert!(row["seconds"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn bench_without_a_gpu_says_so() {
    let bench = "bench likelihood --n 100 --seconds 0.001";
    assert_names_the_missing_gpu(bench);
    let text = folder().without_gpus().run(format!("{bench} --device reference,cuda"));
    assert_has(&text, &["unavailable"]);
}

#[test]
fn bench_compares_kernels() {
    let rows = rows(&folder(), "bench likelihood --device reference --kernels --n 100 --seconds 0.001");
    let mut kernels: Vec<&str> = rows.iter().map(|r| r["kernel"].as_str().unwrap()).collect();
    kernels.dedup();
    let expected = gaussmix::device::kernel_names(&gaussmix::device::Device::Reference);
    assert_eq!(kernels, expected);
}

#[test]
fn bench_shows_errors_beside_times() {
    let args = "bench accuracy --device reference,cpu --n 3e3 -k 3 -d 2 --seconds 0.001";
    let rows_of = |more: &str| rows(&folder(), &format!("{args} {more}"));
    let rows = rows_of("");
    let is = |row: &Value, kernel: &str, precision: &str, operation: &str| {
        (&row["kernel"], &row["precision"], &row["operation"]) == (&kernel.into(), &precision.into(), &operation.into())
    };
    for operation in ["total", "estep"] {
        for kernel in gaussmix::device::kernel_names(&gaussmix::device::Device::Cpu) {
            for precision in ["float32", "float64"] {
                let of = rows.iter().filter(|row| is(row, &kernel, precision, operation));
                assert_eq!(of.count(), 1, "{kernel}, {precision}, {operation}");
            }
        }
        // The reference computes in float64 only; errors are measured against it.
        assert_eq!(rows.iter().filter(|row| is(row, "reference", "float64", operation)).count(), 1);
    }
    for row in &rows {
        let mut expected =
            vec!["covariance_type", "d", "device", "k", "kernel", "n", "operation", "precision", "seconds", "total"];
        let mut errors = vec!["total"];
        if row["operation"] == "estep" {
            errors.extend(["counts", "covariances", "deviations", "means"]);
            expected.extend(&errors[1..]);
            expected.sort_unstable();
        }
        assert_eq!(keys(row), expected.join(" "));
        assert_eq!((&row["n"], &row["k"], &row["d"]), (&3000.into(), &3.into(), &2.into()));
        assert!(row["seconds"].as_f64().unwrap() > 0.0);
        for error in errors {
            let value = row[error].as_f64().unwrap();
            // Means of thousands of independent roundings of 6e-8 and 1e-16, with two digits to spare. Covariances may
            // come from sums of squares around the centre of the data, up to 65 times as large.
            let most = match (row["precision"].as_str().unwrap(), error) {
                ("float32", "covariances") => 1e-5,
                ("float32", _) => 1e-6,
                _ => 1e-13,
            };
            assert!((0.0..most).contains(&value), "{row}: {error}");
            let exact = row["device"] == "reference" || row["precision"] == "float64";
            assert!(exact || error != "deviations" || value > 0.0, "{row}: float32 is not exact");
            assert!(row["device"] != "reference" || value == 0.0, "{row}: {error}");
        }
    }
    assert_has(&folder().run(args), &["N = 3,000, D = 2, K = 3", "mean / σ"]);
    for covariance_type in ["full", "tied", "spherical"] {
        for row in rows_of(&format!("--covariance-type {covariance_type}")) {
            assert_eq!(row["covariance_type"], covariance_type);
            // The same bound as for the totals of float32 above.
            assert!((0.0..1e-6).contains(&row["total"].as_f64().unwrap()), "{row}");
            for error in ["counts", "covariances", "deviations", "means"].iter().filter_map(|of| row.get(of)) {
                assert!((0.0..1e-5).contains(&error.as_f64().unwrap()), "{row}");
            }
        }
    }
    folder().fails(2, "bench likelihood --covariance-type full");
    assert_names_the_missing_gpu("bench accuracy --n 100 --seconds 0.001");
}

const SMALL_MAP: &str = "bench map --device cpu --n 2e3 --d 3,2 --k 2,4 --covariance-type diag,full --seconds 0.001";

#[test]
fn bench_map_has_a_row_for_each_cell() {
    let rows = rows(&folder(), &format!("{SMALL_MAP} --task em,total,scores"));
    let cells = |row: &Value| {
        let number = |name: &str| row[name].as_u64().unwrap();
        let text = |name: &str| row[name].as_str().unwrap().to_string();
        (text("task"), text("covariance_type"), number("d"), number("k"))
    };
    let mut expected = Vec::new();
    for task in ["em", "total", "scores"] {
        for covariance_type in ["diag", "full"] {
            for (d, k) in [(2, 2), (2, 4), (3, 2), (3, 4)] {
                expected.push((task.to_string(), covariance_type.to_string(), d, k));
            }
        }
    }
    assert_eq!(rows.iter().map(cells).collect::<Vec<_>>(), expected);
    let kernels = gaussmix::device::kernel_names(&gaussmix::device::Device::Cpu);
    for row in &rows {
        let names = "cliff covariance_type d device family floor k kernel n ratio seconds task";
        assert_eq!(keys(row), names);
        let of = |name: &str| row[name].as_f64().unwrap();
        assert_eq!((of("n"), row["device"].as_str()), (2000.0, Some("cpu")));
        assert!(of("seconds") > 0.0 && (of("ratio") * of("floor") / of("seconds") - 1.0).abs() < 1e-12, "{row}");
        assert!(kernels.iter().any(|kernel| row["family"] == **kernel), "{row}");
        if let Some(cliff) = row["cliff"].as_object() {
            let step = |name: &str| cliff[name].as_f64().unwrap() - of(name);
            assert!(cliff["times"].as_f64().unwrap() > 1.6 && (step("d") == 0.0) != (step("k") == 0.0), "{row}");
        }
    }
    // Eight bytes a sample at the memory's rate, and four more for a score.
    let floor = |i: usize| rows[i]["floor"].as_f64().unwrap();
    assert!((floor(0) - 2000.0 * 8.0 / 3.0e12).abs() < 1e-18 && (floor(16) - 2000.0 * 12.0 / 3.0e12).abs() < 1e-18);
}

#[test]
fn bench_map_prints_and_draws() {
    let folder = folder();
    let text = folder.silent(format!("{SMALL_MAP} --plot map.svg"));
    let heads =
        ["D \\ K", "an iteration of EM, diag covariances", "full covariances", "plot: map.svg", "rates of an H100"];
    assert_has(&text, &heads);
    assert!(!text.contains('\u{1b}'), "colours are for terminals: {text:?}");
    let svg = folder.text("map.svg");
    assert!(svg.contains("K = 4") && svg.contains("D = 3"));
    let text = folder.run(format!("{SMALL_MAP} --bandwidth 1e10"));
    assert!(text.contains("at 0.01·10¹² bytes a second") && !text.contains("H100"), "{text}");
}

#[test]
fn bench_map_names_what_it_leaves_out() {
    let folder = folder();
    let bench = |n: &str, d: &str, more: &str| {
        format!("bench map --device cpu --covariance-type diag --seconds 0.001 --n {n} --d {d} --k 2 {more}")
    };
    let left_out = &["diag, D = 1000000000000 is left out: the samples and their copies"];
    assert_has(&folder.run(bench("1e3", "2,1e12", "")), left_out);
    let (rows, notes) = folder.output(0, bench("1e3", "2,1e12", "--json"));
    assert_has(&notes, left_out);
    assert_eq!(serde_json::from_str::<Vec<Value>>(&rows).unwrap().len(), 1);
    folder.refused(bench("1e15", "2", ""), &["nothing could be measured: diag, D = 2"]);
    folder.fails(2, bench("0", "2", ""));
    folder.refused_with(2, bench("1e3", "2", "--bandwidth 0"), &["above 0"]);
    folder.fails(2, bench("1e3", "2", "--task fit"));
    folder.without_gpus().refused("bench map --n 1e12", &["no CUDA device"]);
}

#[test]
fn bench_plots() {
    let folder = folder();
    let text = folder.run("bench likelihood --device reference --n 10,100 --seconds 0.001 --plot p.svg");
    assert_has(&text, &["p.svg"]);
    let svg = folder.text("p.svg");
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert_has(&svg, &["number of samples N", "seconds", "reference", "K = 8, D = 13", "<polyline"]);
}

#[test]
fn devices_are_listed_with_reasons() {
    let folder = folder();
    assert_has(&folder.run("devices"), &["cpu", "cuda:0"]);
    let rows = rows(&folder, "devices");
    for row in &rows {
        assert_eq!(keys(row), "available description device kernels");
        assert_ne!(row["description"], "");
        assert_eq!(row["available"].as_bool().unwrap(), !row["kernels"].as_array().unwrap().is_empty(), "{row}");
    }
    assert!(rows.iter().any(|r| r["device"] == "reference" && r["available"] == true));
}

#[test]
fn help_has_examples() {
    for command in ["", "score", "bench", "bench likelihood", "convert", "devices"] {
        assert_has(&folder().run(format!("{command} --help")), &["Examples:"]);
    }
    assert_eq!(folder().run("--version"), concat!("gmm ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn wrong_use_is_exit_code_2() {
    for args in [
        "",
        "frobnicate",
        "score",
        "score model.json",
        "score m.json x.npy --device gpu",
        "score m.json x.npy --device cuda:x",
        "score m.json x.npy --frobnicate",
        "bench",
        "bench likelihood --device cpu,abacus",
        "bench likelihood --n 0",
        "bench likelihood -k 0",
        "bench likelihood --n ten",
        "bench likelihood --seconds nan",
        "devices -v -q",
        "fit x.csv",
        "fit x.csv -k 0",
        "fit x.csv -k -3",
        "fit x.csv -k 3 --covariance-type banana",
        "fit x.csv -k 3 --init-params magic",
        "fit x.csv -k 3 --n-init 0",
        "fit x.csv -k 3 --freeze all",
        "fit x.csv -k 3 --memory lots",
        "fit x.csv --init m.json --n-init 3",
        "select x.csv",
        "select x.csv -k 0:3",
        "select x.csv -k 5:3",
        "select x.csv -k 1:3 --criterion luck",
        "select x.csv -k 1:3 --covariance-type full,round",
        "predict m.json x.csv",
        "sample m.json -o x.npy",
        "sample m.json -n 0 -o x.npy",
        "completions cmd",
        "man",
    ] {
        assert_ne!(folder().fails(2, args), "", "{args}");
    }
}

/// Total log-likelihood of iris under the models of tests/data, printed by tests/data/make.py.
const NUMPY: [(&str, f64); 4] = [
    ("full", -180.19666276476264),
    ("tied", -256.7954998377291),
    ("diag", -307.1819217093602),
    ("spherical", -384.3213885960083),
];

#[test]
fn models_convert_and_come_back() {
    let folder = folder();
    for (from, to) in [("data/speech8.json", "m.npz"), ("m.npz", "m.json")] {
        assert_eq!(folder.run(format!("convert {from} {to}")), format!("{to} written\n"));
    }
    assert_eq!(folder.model("m.json"), gaussmix::io::read_model(data("speech8.json")).unwrap());
    // numpy.savez, compressed and not, made with numpy 2.4 from a mixture of each of scikit-learn's types.
    for form in ["savez", "savez_compressed"] {
        for (covariance_type, total) in NUMPY {
            let row = score(format!("tests/data/{form}_{covariance_type}.npz data/iris.csv --device reference"));
            assert_eq!(row["covariance_type"], covariance_type);
            // The same operations in float64, in a different order.
            approx::assert_relative_eq!(row["log_likelihood"].as_f64().unwrap(), total, max_relative = 1e-10);
        }
    }
}

/// A closed pipe, as in `gmm … | head -0`, causes neither a panic nor a failure, and all results are written.
#[test]
fn a_closed_pipe_is_quiet() {
    let folder = folder();
    for args in [
        "score data/iris3.json data/iris.csv --json",
        "score data/iris3.json data/iris.csv",
        "hmm fit data/iris.csv -k 2 -o h.json",
        "hmm score h.json data/iris.csv -o s.csv",
        "hmm sample h.json -n 5 -o x.csv --states z.csv",
        "sample data/iris3.json -n 5 -o x.npy --labels k.npy",
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gmm"));
        command.current_dir(&folder).args(args.words()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert!(output.status.success());
    }
    assert_eq!(folder.names(), ["h.json", "k.npy", "s.csv", "x.csv", "x.npy", "z.csv"]);
}

/// The report on a result that goes to stdout does not follow it there.
#[cfg(unix)]
#[test]
fn a_result_on_stdout_stands_alone() {
    let run = folder().gmm("sample data/iris3.json -n 2 -o /dev/stdout").assert().success();
    let output = run.get_output();
    // A header of 128 bytes, and two rows of four numbers.
    assert_eq!(output.stdout.len(), 128 + 2 * 4 * 8);
    assert_has(&String::from_utf8_lossy(&output.stderr), &["2 samples × 4 features written to /dev/stdout"]);
}

/// Each script names commands and options, and bash completes with its own.
#[test]
fn completions_complete() {
    for shell in ["bash", "zsh", "fish"] {
        assert_has(&folder().silent(["completions", shell]), &["select", "likelihood", "covariance-type"]);
    }
    #[cfg(unix)]
    {
        let script = r#"source <("$0" completions bash); COMP_WORDS=(gmm bench lik); COMP_CWORD=2; _gmm gmm lik bench; echo "${COMPREPLY[@]}""#;
        let mut bash = Command::new("bash");
        let answer = bash.args(["-c", script, env!("CARGO_BIN_EXE_gmm")]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&answer.stdout).trim(), "likelihood", "{answer:?}");
    }
}

#[test]
fn man_pages_say_what_help_says() {
    let folder = folder();
    assert_has(&folder.run("man -o pages/man1"), &["pages/man1"]);
    for (name, word) in
        [("gmm.1", "Exit codes"), ("gmm-fit.1", "n\\-init"), ("gmm-bench-accuracy.1", "covariance\\-type")]
    {
        assert_has(&folder.text(format!("pages/man1/{name}")), &[word]);
    }
    folder.write("file", "");
    folder.refused("man -o file", &["file: the man pages cannot be written"]);
}

#[test]
fn quiet_and_verbose() {
    let folder = folder();
    // A first line of numbers that look like a header causes a note.
    folder.write("x.csv", "0,1\n5,6\n7,9\n2,1\n");
    let fit = |option: &str| {
        let (stdout, stderr) = folder.output(0, format!("fit x.csv -k 1 --device cpu --json {option}"));
        assert!(serde_json::from_str::<Value>(&stdout).unwrap()["converged"].is_boolean());
        stderr
    };
    assert!(fit("").starts_with("note: "));
    assert_eq!(fit("-q"), "");
    let told = ["note: ", "read x.csv: 4 samples", "the data is in", "iteration 1: lower bound", "done"];
    assert_has(&fit("--verbose"), &told);
    // An error is printed in any case.
    folder.refused("-q fit none.csv -k 1", &["none.csv"]);
}

/// The header gives the results of the program, compiled by the C compiler without a warning.
#[cfg(unix)]
#[test]
fn a_model_becomes_a_c_header() {
    let folder = folder();
    let numbers = "#include <stdio.h>\n#include \"m-1.h\"\nint main(void) {\n    double x[M_1_N_FEATURES], \
        p[M_1_N_COMPONENTS];\n    int j;\n    for (;;) {\n        for (j = 0; j < M_1_N_FEATURES; j++)\n            \
        if (scanf(\"%lf\", x + j) != 1) return 0;\n        m_1_predict_proba(x, p);\n        \
        printf(\"%.17g %d %.17g\\n\", m_1_score(x), m_1_predict(x), p[0]);\n    }\n}\n";
    folder.write("m.c", numbers);
    // Two samples are so far away that squares of their distances overflow.
    let table = fs::read_to_string(data("iris.csv")).unwrap() + "1e160,0,0,0\n-1e308,1e308,0,0\n";
    folder.write("x.csv", &table);
    let rows = table.split_once('\n').unwrap().1.replace(',', " ");
    let column = |file: &str, at: usize| -> Vec<f64> {
        let text = folder.text(file);
        text.lines().skip(1).map(|line| line.split(',').nth(at).unwrap().parse().unwrap()).collect()
    };
    let kinds = ["full", "tied", "diag", "spherical"].map(|kind| format!("--covariance-type {kind}"));
    for options in kinds.iter().map(|kind| &kind[..]).chain(["--variational"]) {
        folder.run(format!("fit data/iris.csv -k 3 --device cpu -o m.json {options}"));
        folder.run("convert m.json m-1.h");
        folder.run("score m.json x.csv --device reference --per-sample scores.csv");
        folder.run("predict m.json x.csv --device reference -o labels.csv");
        folder.run("predict m.json x.csv --device reference --proba -o proba.csv");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let strict = "-std=c99 -Wall -Wextra -Werror -pedantic m.c -o m -lm".words();
        let compiled = std::process::Command::new(compiler).current_dir(&folder).args(strict).output().unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let run = assert_cmd::Command::new(folder.path("m")).write_stdin(rows.clone()).assert().success();
        let stdout = String::from_utf8(run.get_output().stdout.clone()).unwrap();
        let (scores, labels, proba) = (column("scores.csv", 0), column("labels.csv", 0), column("proba.csv", 0));
        assert_eq!(stdout.lines().count(), 152);
        for (i, line) in stdout.lines().enumerate() {
            let values: Vec<f64> = line.split(' ').map(|value| value.parse().unwrap()).collect();
            // A few roundings in float64.
            let equal = values[0] == scores[i] || (values[0] - scores[i]).abs() <= 1e-12 * scores[i].abs().max(1.0);
            assert!(equal && (values[0].is_finite() == (i < 150)), "{options:?} {i}: {line}");
            // Rounding decides which of equal covariances is nearest.
            if i >= 150 && options.ends_with("tied") {
                assert!((0.0..=1.0).contains(&values[2]), "{options:?} {i}: {line}");
                continue;
            }
            assert!((values[2] - proba[i]).abs() <= 1e-12, "{options:?} {i}: {line} {}", proba[i]);
            assert_eq!(values[1], labels[i], "{options:?} {i}");
        }
    }
}

/// A feature is predicted from the others by the closed form, with the values that fill in missing ones.
#[test]
fn targets_are_predicted_from_the_other_features() {
    let folder = folder();
    let model = r#"{"version": 1, "covariance_type": "full", "weights": [0.5, 0.5], "feature_names": ["a", "b"],
        "means": [[0, 1], [2, -1]], "covariances": [[[0.5, -1], [-1, 5]], [[5, 1], [1, 0.5]]]}"#;
    folder.write("m.json", model);
    folder.write("x.csv", "id,a\nfirst,2\nsecond,-1.5\n");
    folder.run("predict m.json x.csv --target b --id id -o y.csv");
    // The mean of b given a: component 0 has 1 - 2·a, component 1 has -1 + (a - 2)/5.
    let expected = |a: f64| {
        let density = |mean: f64, variance: f64| (-0.5 * (a - mean).powi(2) / variance).exp() / variance.sqrt();
        let (first, second) = (density(0.0, 0.5), density(2.0, 5.0));
        (first * (1.0 - 2.0 * a) + second * (-1.0 + (a - 2.0) / 5.0)) / (first + second)
    };
    let text = folder.text("y.csv");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "id,b");
    for (line, (id, a)) in lines[1..].iter().zip([("first", 2.0), ("second", -1.5)]) {
        let (name, value) = line.split_once(',').unwrap();
        assert!(name == id && (value.parse::<f64>().unwrap() - expected(a)).abs() < 1e-12, "{line} {}", expected(a));
    }
    let refused = |target: &str, part: &str| {
        folder.refused(format!("predict m.json x.csv --target {target} -o z.csv"), &[part]);
    };
    refused("c", "no feature `c`");
    refused("a,b", "all 2 features");
    refused("a,a", "twice");
}

#[test]
fn the_least_likely_samples_are_outliers() {
    let folder = folder();
    folder.run("fit data/iris.csv -k 2 -o m.json");
    let report = folder.json("score m.json data/iris.csv --outliers 0.05 --per-sample o.csv --json");
    let text = folder.text("o.csv");
    assert_eq!(text.lines().next(), Some("log_likelihood,outlier"));
    let rows: Vec<Vec<f64>> =
        text.lines().skip(1).map(|line| line.split(',').map(|value| value.parse().unwrap()).collect()).collect();
    let mut sorted: Vec<f64> = rows.iter().map(|row| row[0]).collect();
    sorted.sort_by(f64::total_cmp);
    // 0.05 · 149 = 7.45 lies between the eighth and the ninth.
    let threshold = sorted[7] + 0.45 * (sorted[8] - sorted[7]);
    let found = &report["outliers"];
    assert!((found["threshold"].as_f64().unwrap() - threshold).abs() < 1e-9, "{found} {threshold}");
    assert_eq!((&found["n"], found["rows"].as_array().unwrap().len()), (&8.into(), 8));
    for (row, values) in rows.iter().enumerate() {
        let named = found["rows"].as_array().unwrap().contains(&row.into());
        assert!(named == (values[1] == 1.0) && named == (values[0] < threshold), "{row}");
    }
    folder.fails(2, "score m.json data/iris.csv --outliers 0.6");
    // Rows so far away that their likelihood is 0.
    folder.write(
        "one.json",
        r#"{"version":1,"covariance_type":"spherical","weights":[1],"means":[[0]],"covariances":[1]}"#,
    );
    for (far, share) in [(1, 0.2), (3, 0.1)] {
        folder.write("far.csv", format!("{}1\n2\n3\n4\n", "1e200\n".repeat(far)));
        let report = folder.json(format!("score one.json far.csv --outliers {share} --json"));
        let found = &report["outliers"];
        // The likelihood of 4, −½(4² + log 2π).
        assert!((number(found, "threshold") + 8.918_938_533).abs() < 1e-8 && found["n"] == far, "{found}");
    }
}
