//! Bad input gives a clear error and exit code 1, and nothing is written.
use crate::common::*;
use std::fs;

/// Requires that `gmm score` refuses the files, with an existing result file that stays.
#[track_caller]
fn refused(folder: &Folder, model: &str, data: &str, message: &[&str]) {
    folder.write("precious.npy", "precious");
    folder.refused(["score", model, data, "--per-sample", "precious.npy"], message);
}

#[track_caller]
fn refused_data(name: &str, content: impl AsRef<[u8]>, message: &[&str]) {
    let folder = folder();
    folder.write("m.json", MODEL);
    folder.write(name, content);
    refused(&folder, "m.json", name, &[&[name], message].concat());
}

#[track_caller]
fn refused_model(content: impl AsRef<[u8]>, message: &[&str]) {
    let folder = folder();
    folder.write("m.json", content);
    folder.write("x.csv", "1,2,3\n");
    refused(&folder, "m.json", "x.csv", &[&["m.json"], message].concat());
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[test]
fn non_finite_data() {
    let mut x = points();
    x[[4, 1]] = f64::NAN;
    x[[5, 0]] = f64::INFINITY;
    for fortran in [false, true] {
        let body = bytes(&x, fortran, f64::to_le_bytes);
        refused_data("x.npy", npy("'<f8'", fortran, "(7, 3)", &body), &["NaN", "row 4", "column 1"]);
        let body = bytes(&x, fortran, |v| (v as f32).to_le_bytes());
        refused_data("x.npy", npy("'<f4'", fortran, "(7, 3)", &body), &["NaN", "row 4", "column 1"]);
    }
    refused_data("x.csv", "a,b,c\n1,2,3\n1,2,-inf\n", &["-inf", "row 1", "column 2"]);
    refused_data("x.csv", "1,nan,3\n", &["NaN", "row 0", "column 1"]);
    // A number too large for float64 is read as infinite.
    refused_data("x.csv", "1,2,3\n1e999,2,3\n", &["inf", "row 1", "column 0"]);
}

#[test]
fn empty_data() {
    refused_data("x.npy", npy("'<f4'", false, "(0, 3)", &[]), &["0 rows and 3 columns"]);
    refused_data("x.npy", npy("'<f8'", true, "(5, 0)", &[]), &["5 rows and 0 columns"]);
    refused_data("x.csv", "", &["0 rows"]);
    refused_data("x.csv", "\n\n", &["0 rows"]);
    refused_data("x.csv", "a,b,c\n", &["0 rows and 3 columns"]);
    refused_data("x.npy", "", &["not a .npy file"]);
}

#[test]
fn arrays_of_another_type() {
    for (descr, size) in [("'<c16'", 16), ("'<f16'", 16), ("'|O'", 8), ("'<U4'", 16), ("'<M8[s]'", 8)] {
        let file = npy(descr, false, "(2, 3)", &vec![0; 6 * size]);
        refused_data("x.npy", file, &[descr, "float16, float32 or float64", "astype"]);
    }
    refused_data("x.npy", npy("[('a', '<f4')]", false, "(2, 3)", &[0; 24]), &["float16, float32 or float64"]);
}

#[test]
fn arrays_of_another_shape() {
    let body = f32s(&[0.0; 6]);
    refused_data("x.npy", npy("'<f4'", false, "(6,)", &body), &["[6]", "(samples, features)", "reshape(-1, 1)"]);
    refused_data("x.npy", npy("'<f4'", false, "()", &body[..4]), &["[]", "(samples, features)"]);
    refused_data("x.npy", npy("'<f4'", false, "(1, 2, 3)", &body), &["[1, 2, 3]", "(samples, features)"]);
}

#[test]
fn truncated_and_lengthened_arrays() {
    let whole = npy("'<f4'", false, "(2, 3)", &f32s(&[0.5; 6]));
    let header = whole.len() - 24;
    for length in [0, 3, 6, 8, 9, 10, 40, header - 1] {
        refused_data("x.npy", &whole[..length], &["not a .npy file"]);
    }
    for length in [header, header + 1, whole.len() - 4, whole.len() - 1] {
        let holds = format!("holds {}", length - header);
        refused_data("x.npy", &whole[..length], &["takes 24 bytes", &holds, "cut short"]);
    }
    refused_data("x.npy", [&whole[..], b"x"].concat(), &["takes 24 bytes", "holds 25"]);
}

#[test]
fn absurd_array_headers() {
    let body = f32s(&[0.5; 6]);
    let shape = |s: &str| npy("'<f4'", false, s, &body);
    refused_data("x.npy", shape("(1000000000000, 13)"), &["[1000000000000, 13]", "holds 24"]);
    refused_data("x.npy", shape("(4611686018427387904, 4)"), &["too many bytes", "holds 24"]);
    refused_data("x.npy", shape("(4294967296, 4294967296)"), &["too many bytes"]);
    refused_data("x.npy", shape("(0, 18446744073709551615)"), &["holds 24"]);
    refused_data("x.npy", shape("(18446744073709551616, 1)"), &["header", "shape"]);
    refused_data("x.npy", shape(&format!("{}2, 3{}", "(".repeat(2000), ")".repeat(2000))), &["brackets"]);
    refused_data("x.npy", npy_with_header("__import__('os')", &body), &["header"]);
    // A header of format 2.0 that claims 4 GiB.
    refused_data("x.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{'descr'", &["header", "4294967295"]);
    refused_data("x.npy", [b"\x93NUMPY\x07\x00", &shape("(2, 3)")[8..]].concat(), &["header"]);
    refused_data("x.npy", "a,b\n1,2\n", &["not a .npy file"]);
}

#[test]
fn bad_rows_of_text() {
    refused_data("x.csv", "a,b,c\n1,2,3\n\n1,2\n", &["line 4", "2 fields", "have 3"]);
    refused_data("x.csv", "1,2,3\n1,2,3,4\n", &["line 2", "4 fields", "have 3"]);
    refused_data("x.csv", "a,b\n1,2,3\n", &["line 2", "3 fields", "have 2"]);
    refused_data("x.csv", "a,b,c\n1,two,3\n", &["line 2", "column 1", "`two`", "--drop b"]);
    for field in ["", "NA", "null", "\"\""] {
        refused_data("x.csv", format!("1,2,3\n1,{field},3\n"), &["NaN at row 1, column 1", "--missing"]);
    }
    refused_data("x.csv", "a,b,c\n1,2,3\n1,,3\n", &["x.csv: column `b`: ", "NaN", "row 1", "column 1"]);
    refused_data("x.csv", "1.O5,2,3\n1,2,3\n", &["line 1", "column 0", "`1.O5`", "--header yes", "--drop 0"]);
    let texts = "a,b,c d,e\n1,x,\"y,z\",2\n3,x,y,\n";
    refused_data("x.csv", texts, &["`b` holds texts (line 2: `x`)", "`c d` holds", "--missing", "--drop 'b,c d'"]);
    refused_data(
        "x.csv",
        "made by,x\n1,2,3\n1,2,4\n1,3,3\n",
        &["line 2 has 3 fields", "line 1 has 2", "--skip-lines 1"],
    );
    refused_data("x.csv", "a,b\ncm,kg\n1,2\n3,4\n", &["line 2 has no number", "--skip-lines 2 --header no"]);
    let thousands = "a;b;c\n1;2,500;3\n";
    refused_data("x.csv", thousands, &["line 2", "column 1", "`b`", "`2,500`", "decimals have a point", "--decimal ,"]);
    refused_data("x.csv", b"a,b,c\n1,\xff\xfe,3\n", &["Windows-1252", "line 2", "column 1"]);
    refused_data("x.csv", "a,b,c\n1,2,3\nx,y,z\n", &["line 3", "`x`"]);
    refused_data("x.csv", "\u{feff}a,b,c\r\n\r\n1,2,3\r\n1,two,3\r\n", &["line 4", "`two`"]);
    refused_data("x.csv", "\n\n1,2\n\"3\",4\n5\n", &["line 5", "1 fields"]);
}

#[test]
fn missing_and_unreadable_files() {
    let folder = folder();
    folder.write("m.json", MODEL);
    folder.write("x.csv", "1,2,3\n");
    // A folder in place of a file cannot be read, not even by the superuser.
    for name in ["folder.json", "folder.npy", "folder.csv"] {
        fs::create_dir(folder.path(name)).unwrap();
    }
    refused(&folder, "m.json", "none.npy", &["none.npy", "No such file"]);
    refused(&folder, "m.json", "none.csv", &["none.csv", "No such file"]);
    refused(&folder, "none.json", "x.csv", &["none.json", "No such file"]);
    refused(&folder, "folder.json", "x.csv", &["folder.json", "directory"]);
    refused(&folder, "m.json", "folder.npy", &["folder.npy: a folder without a file"]);
    refused(&folder, "m.json", "folder.csv", &["folder.csv: a folder without a file"]);
    refused(&folder, "m.json", "m.json", &["m.json", ".npy, .csv, .tsv"]);
    refused(&folder, "m.json", "x", &["x: ", "No such file"]);
    folder.write("x", "1,2,3\n");
    refused(&folder, "m.json", "x", &["x: ", "must end in .npy, .csv, .tsv"]);
}

#[test]
fn results_are_checked_before_the_work() {
    let folder = folder();
    folder.write("m.json", MODEL);
    folder.write("bad.json", "{}");
    folder.write("x.csv", "1,2,3\n");
    folder.write("w.csv", "1\n");
    ["two.csv", "post-1.csv"].iter().for_each(|name| folder.write(name, "1,2\n2,1\n3,4\n"));
    folder.write("old.npz", "old");
    for name in ["folder.csv", "folder.json"] {
        fs::create_dir(folder.path(name)).unwrap();
    }
    // The result is checked first: the other model and the data do not even exist.
    for (command, outs) in [
        ("score m.json none.npy --per-sample", &["no/s.npy", "folder.csv", "x.csv/s.npy"][..]),
        ("fit none.npy -k 1 -o", &["no/m.json", "folder.json", "m.txt"]),
        ("fit none.npy -k 1 --checkpoint", &["no/c.json", "c.npz"]),
        ("fit none.npy -k 1 --plot", &["no/p.svg", "folder.json"]),
        ("predict none.json none.npy -o", &["no/k.npy", "folder.csv", "x.txt"]),
        ("sample none.json -n 5 -o", &["no/x.npy", "folder.csv", "x.txt"]),
        ("sample none.json -n 5 -o a.npy --labels", &["no/k.npy"]),
        ("select none.npy -k 1:3 -o", &["no/m.json", "m.txt"]),
        ("select none.npy -k 1:3 --plot", &["no/p.svg"]),
        ("convert m.json", &["no/m.npz", "model", "model.txt"]),
        ("bench likelihood --n 10 --plot", &["folder.csv"]),
    ] {
        for out in outs {
            let message = match *out {
                out if out.starts_with("no/") => "No such file",
                out if out.starts_with("folder") => "directory",
                "x.csv/s.npy" => "Not a directory",
                "x.txt" => ".npy or .csv",
                "c.npz" => "must end in .json",
                _ => ".json or .npz",
            };
            let stderr = folder.refused(format!("{command} {out}"), &[out, message]);
            assert!(!stderr.contains("none."), "{stderr}");
        }
    }
    for (args, message) in [
        ("score m.json x.csv --per-sample m.json", "m.json: is an input"),
        ("score m.json x.csv --per-sample ./x.csv", "x.csv: is an input"),
        ("fit x.csv -k 1 --plot x.csv", "x.csv: is an input"),
        ("fit x.csv -k 1 --sample-weight w.csv --plot ./w.csv", "w.csv: is an input"),
        ("fit x.csv -k 1 --noise w.csv --plot w.csv", "w.csv: is an input"),
        ("fit x.csv --init m.json --plot m.json", "m.json: is an input"),
        ("select x.csv -k 1 --noise w.csv --plot w.csv", "w.csv: is an input"),
        ("score m.json x.csv --noise w.csv --per-sample w.csv", "w.csv: is an input"),
        ("predict m.json x.csv --noise w.csv -o w.csv", "w.csv: is an input"),
        ("mcmc two.csv -k 1 -o post --plot two.csv", "two.csv: is an input"),
        ("mcmc post-1.csv -k 1 -o post --overwrite", "post-1.csv: is an input"),
        ("mcmc two.csv -k 1 -o post --plot post-2.csv", "two results"),
        ("fit x.csv -k 1 -o m.json --checkpoint ./m.json", "two results"),
        ("predict m.json x.csv -o x.csv", "x.csv: is an input"),
        ("predict none.json none.npy -o out.npy", "none.json: cannot read it: No such file"),
        ("sample none.json -n 5 -o out.npy", "none.json: cannot read it: No such file"),
        ("sample m.json -n 5 -o a.npy --labels ./a.npy", "two results"),
        ("impute m.json x.csv -o x.csv", "x.csv: is an input"),
        ("convert bad.json old.npz", "missing field"),
        ("convert none.json new.npz", "No such file"),
    ] {
        folder.refused(args, &[message]);
    }
}

fn model(part: &str, by: &str) -> String {
    assert!(MODEL.contains(part));
    MODEL.replacen(part, by, 1)
}

#[test]
fn non_finite_models() {
    refused_model(model("[0.25, 0.75]", "[0.25, NaN]"), &["weight", "component 1", "NaN"]);
    refused_model(model("[-0.5, 0.25, 0]", "[-0.5, Infinity, 0]"), &["mean in column 1", "component 1", "inf"]);
    refused_model(model("[-0.5, 0.25, 0]", "[-Infinity, 0.25, 0]"), &["mean in column 0", "component 1", "-inf"]);
    refused_model(model("[1, 0.5, 2]", "[1, 0.5, null]"), &["variance in column 2", "component 0", "NaN"]);
    refused_model(model("[1, 0.5, 2]", "[1, \"NaN\", 2]"), &["variance in column 1", "component 0", "NaN"]);
    refused_model(model("[1, 0.5, 2]", "[1, 1e999, 2]"), &["number out of range", "line 2"]);
}

#[test]
fn variances_that_are_none() {
    for bad in ["0", "-1", "1e-310", "-0.0", "Infinity"] {
        let message = &["variance in column 1", "component 0", "positive"];
        refused_model(model("[1, 0.5, 2]", &format!("[1, {bad}, 2]")), message);
    }
    refused_model(
        r#"{"version":1,"covariance_type":"spherical","weights":[1],"means":[[0,0,0]],"covariances":[-2]}"#,
        &["variance of component 0", "-2"],
    );
}

#[test]
fn weights_that_are_none() {
    refused_model(model("[0.25, 0.75]", "[-0.25, 1.25]"), &["weight of component 0", "-0.25"]);
    refused_model(model("[0.25, 0.75]", "[0.25, 0.5]"), &["sum to 0.75", "tolerance 1e-6"]);
}

#[test]
fn shapes_that_disagree() {
    refused_model(model("[0.25, 0.75]", "[0.25, 0.25, 0.5]"), &["weights", "[3]", "[2]"]);
    refused_model(model("[[1, 0.5, 2], [0.75, 1.5, 1]]", "[[1, 0.5, 2]]"), &["covariances", "[1, 3]", "[2, 3]"]);
    refused_model(model("[-0.5, 0.25, 0]", "[-0.5, 0.25]"), &["means", "component 1", "2 values", "3"]);
    refused_model(model("[0.75, 1.5, 1]", "[0.75]"), &["covariances", "component 1", "1 values", "3"]);
    refused_model(
        r#"{"version":1,"covariance_type":"diag","weights":[],"means":[],"covariances":[]}"#,
        &["means (K, D)", "[0]"],
    );
    refused_model(model("[[1, 0.5, 2], [0.75, 1.5, 1]]", "[1, 2]"), &["covariances", "[2]", "[2, 3]"]);
    refused_model(model("\"diag\"", "\"full\""), &["covariances", "[2, 3]", "[2, 3, 3]"]);
    refused_data("x.csv", "1,2,3,4\n", &["[2, 4]", "[2, 3]"]);
}

#[test]
fn texts_that_are_no_model() {
    refused_model("", &["not a model in JSON"]);
    refused_model("[1, 2", &["not a model in JSON"]);
    refused_model(b"\xff\xfe\x00", &["UTF-8"]);
    refused_model("{}", &["missing field `version`"]);
    refused_model(model("\"means\"", "\"mean\""), &["missing field `means`"]);
    refused_model(model("\"version\": 1", "\"version\": 2"), &["version is 2", "reads version 1"]);
    refused_model(model("\"version\": 1", "\"version\": \"one\""), &["string \"one\"", "line 1"]);
    refused_model(model("\"diag\"", "\"banana\""), &["`banana`", "diag"]);
    refused_model(model("0.25, 0]", "\"x\", 0]"), &["string \"x\"", "a number or a list"]);
    refused_model(model("[0.75, 1.5, 1]", "{}"), &["not a model in JSON", "line 2", "a number or a list"]);
    refused_model(format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)), &["not a model in JSON"]);
}

#[test]
fn archives_that_are_no_model() {
    let folder = folder();
    folder.write("x.csv", "1,2,3\n");
    let good = fs::read(package("tests/data/savez_diag.npz")).unwrap();
    let refused_npz = |content: &[u8], message: &[&str]| {
        folder.write("m.npz", content);
        refused(&folder, "m.npz", "x.csv", &[&["m.npz"], message].concat());
    };
    refused_npz(b"", &["not a .npz file"]);
    refused_npz(&good[..good.len() - 30], &["not a .npz file"]);
    refused_npz(MODEL.as_bytes(), &["not a .npz file"]);
    // The name of an entry is both before its content and in the directory.
    let renamed = replace(&good, b"means_.npy", b"meanz_.npy");
    assert_ne!(renamed, good);
    refused_npz(&renamed, &["no usable `means_`"]);
    // The checksum reveals a changed bit of the content.
    let mut damaged = good.clone();
    let at = good.windows(5).position(|w| w == b"NUMPY").unwrap() + 130;
    damaged[at] ^= 1;
    refused_npz(&damaged, &["checksum"]);
}

/// Replaces every occurrence of `from` by `to`, which has the same length.
fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for at in 0..=bytes.len() - from.len() {
        if bytes[at..].starts_with(from) {
            out[at..at + from.len()].copy_from_slice(to);
        }
    }
    out
}
