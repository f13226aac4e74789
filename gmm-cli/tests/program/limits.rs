//! Sizes in options and headers that exceed every machine cause an error before memory is taken, and do not end the
//! process.
use crate::common::*;
use arrow_array::{ArrayRef, Float64Array, RecordBatch};
use gaussmix::io::{ColumnSelection, Table};
use parquet::file::metadata::{ParquetMetaDataReader, ParquetMetaDataWriter};
use std::fs;
use std::sync::Arc;
use std::time::Duration;
use zip::CompressionMethod;

fn batch() -> RecordBatch {
    let column =
        |seed: usize| Arc::new(Float64Array::from_iter_values((0..60).map(|i| (i * seed % 11) as f64))) as ArrayRef;
    RecordBatch::try_from_iter([("a", column(3)), ("b", column(5)), ("c", column(7))]).unwrap()
}

/// Every length of 60 in an Arrow file or stream may be damaged: the reader reports it, and does not visit rows that do
/// not exist.
#[test]
fn arrow_lengths_must_agree() {
    let batch = batch();
    let (mut file, mut stream) = (Vec::new(), Vec::new());
    write_batches(arrow_ipc::writer::FileWriter::try_new(&mut file, &batch.schema()).unwrap(), &batch, 60);
    write_batches(arrow_ipc::writer::StreamWriter::try_new(&mut stream, &batch.schema()).unwrap(), &batch, 60);
    let folder = folder();
    for (name, good) in [("x.feather", file), ("x.arrows", stream)] {
        let length = 60i64.to_le_bytes();
        let places: Vec<usize> = (0..good.len() - 8).filter(|&at| good[at..at + 8] == length).collect();
        // The batch's own, and one for each column.
        assert!(places.len() >= 4, "{places:?}");
        for at in places {
            let mut bytes = good.clone();
            bytes[at + 7] = 1;
            folder.write(name, bytes);
            let run = folder.gmm(format!("fit {name} -k 1")).timeout(Duration::from_secs(60)).assert().code(1);
            let stderr = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
            assert!(stderr.contains(name) && stderr.contains("is damaged"), "{at}: {stderr}");
        }
        folder.write(name, &good);
        folder.run(format!("fit {name} -k 1"));
    }
}

#[test]
fn parquet_lengths_must_agree() {
    let good = parquet(&batch(), None);
    let folder = folder();
    let path = folder.path("x.parquet");
    fs::write(&path, &good).unwrap();
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&fs::File::open(&path).unwrap()).unwrap();
    let footer = u32::from_le_bytes(good[good.len() - 8..good.len() - 4].try_into().unwrap()) as usize;
    for rows in [60 + (1i64 << 56), 59, 60] {
        let group = metadata.row_group(0).clone().into_builder().set_num_rows(rows).build().unwrap();
        let claimed = metadata.clone().into_builder().set_row_groups(vec![group]).build();
        let mut bytes = good[..good.len() - 8 - footer].to_vec();
        ParquetMetaDataWriter::new(&mut bytes, &claimed).finish().unwrap();
        fs::write(&path, bytes).unwrap();
        let opened = Table::open(&[&path], &ColumnSelection::default());
        match rows {
            60 => assert_eq!(opened.unwrap().read().unwrap().data.dim(), (60, 3)),
            _ => {
                let error = opened.unwrap_err().to_string();
                assert!(
                    error.contains(&format!("column `a` has 60 values in row group 0 (counted from 0) of {rows} rows")),
                    "{error}"
                );
            }
        }
    }
}

/// A member of a .npz may be compressed to a thousandth of its size.
#[test]
fn members_of_a_model_that_are_larger_than_it_are_not_read() {
    let folder = folder();
    let text: Vec<u8> = "diag".chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
    let zeros = vec![0; 8 << 20];
    for (name, large) in [
        ("weights_", "(1048576,)"),
        ("covariances_", "(2, 524288)"),
        ("n_iter_", "(2, 524288)"),
        ("precisions_", "(1, 1048576)"),
    ] {
        let members = [
            ("covariance_type.npy", npy("'<U4'", false, "()", &text)),
            ("means_.npy", npy("'<f8'", false, "(2, 3)", &zeros[..48])),
            (&format!("{name}.npy"), npy("'<f8'", false, large, &zeros)),
        ];
        archive(&folder.path("m.npz"), &members, CompressionMethod::Deflated);
        let said = &["m.npz: ", name, "too large beside means of shape [2, 3]"];
        folder.refused("convert m.npz new.json", said);
    }
    let texts = npy("'<U2097152'", false, "()", &zeros);
    archive(&folder.path("m.npz"), &[("covariance_type.npy", texts)], CompressionMethod::Deflated);
    folder.refused("convert m.npz new.json", &["covariance_type", "262144 characters"]);
}

#[test]
fn absurd_sizes_are_refused() {
    let folder = folder();
    let rows: String = (0..40).map(|i| format!("{},{}\n", i % 7, i * i % 11)).collect();
    folder.write("x.csv", &rows);
    folder.write("gaps.csv", rows.replace("3,", ","));
    let model =
        r#"{"version": 1, "covariance_type": "diag", "weights": [1], "means": [[3, 5]], "covariances": [[4, 9]]}"#;
    folder.write("m.json", model);
    let before = folder.names();
    let most = "18446744073709551615";
    let refused = |args: &str, said: &str| {
        let run = folder.gmm(args).timeout(Duration::from_secs(120)).assert();
        let output = run.get_output();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{args:?}: {:?}: {stderr}", output.status);
        assert!(stderr.contains(said) && !stderr.contains("panicked"), "{args:?}: {stderr}");
        assert_eq!(folder.names(), before, "{args:?}");
    };
    let memory = "of memory";
    for k in ["1e12", most] {
        for more in ["", "--missing"] {
            refused(
                &format!("fit gaps.csv --device cpu -k {k} {more}"),
                if more.is_empty() { "NaN" } else { "samples cannot be fitted" },
            );
        }
        refused(&format!("fit x.csv --device cpu -k {k}"), "40 samples cannot be fitted");
        refused(&format!("mcmc x.csv -o run -k {k}"), "components over 40 samples");
        refused(&format!("bench likelihood --device cpu -k {k}"), memory);
        refused(&format!("bench accuracy --device cpu --covariance-type full -k {k}"), memory);
        refused(&format!("mcmc x.csv -o run -k 2 --chains {k}"), memory);
        refused(&format!("mcmc x.csv -o run -k 2 --draws {k}"), memory);
    }
    refused("select x.csv --device cpu -k 1000000000000", "samples cannot be fitted");
    refused("select x.csv -k 1:1000000000000", "FIRST:LAST");
    for d in ["1e9", "1e15", most] {
        refused(&format!("bench likelihood --device cpu --n 1e6 -d {d}"), memory);
    }
    refused(&format!("bench likelihood --device cpu --n {most}"), memory);
    refused("bench accuracy --device cpu --covariance-type full --n 10 -d 1e6", memory);
    refused("sample m.json -n 1e15 -o s.npy", "the disk has");
    refused(&format!("sample m.json -n {most} -o s.csv"), "the disk has");
    refused("impute m.json gaps.csv --draws 1e15 -o s.npy", "the disk has");
    refused(&format!("impute m.json gaps.csv --draws {most} -o /dev/null"), "cannot be counted");
}

/// A pipe brings more numbers than fit into memory.
#[cfg(target_os = "linux")]
#[test]
fn standard_input_has_an_end() {
    let folder = folder();
    let fit = |args: &str| {
        // The process's limit is on anonymous memory.
        let script = format!("yes 1,2 | head -n 12000000 | (ulimit -d 100000; exec \"$0\" {args})");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_gmm")]).current_dir(&folder).env("RAYON_NUM_THREADS", "2");
        let output = shell.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for args in ["fit - -k 1", "mcmc - -k 1 -o run"] {
        let (code, stderr) = fit(args);
        assert!(code == Some(1) && stderr.contains("too little memory"), "{args}: {code:?} {stderr}");
    }
    let (code, stderr) = fit("fit - -k 1 --memory 10M");
    assert!(code == Some(1) && stderr.contains("allow more (--memory)"), "{code:?} {stderr}");
    let run = folder.gmm("fit - -k 1").write_stdin("").assert().code(1);
    run.stderr(predicates::str::contains("standard input is empty"));
}

/// A name of 5,000 characters is not repeated in full.
#[test]
fn long_names_are_shortened() {
    let folder = folder();
    let long = "x".repeat(5000);
    folder.write("x.csv", format!("{long},b,{long}\n1,2,3\n2,3,1\n3,1,2\n"));
    folder.write("y.csv", format!("{long},b\n1,2\n2,3\n3,1\n"));
    folder.write("spaces.csv", format!("{},b\n1,2\nx,3\n", "x ".repeat(2500)));
    let wide = r#"{"version": 1, "covariance_type": "diag", "weights": [1], "means": [[3]], "covariances": [[4]], "feature_names": ["b"]}"#;
    folder.write("m.json", wide);
    let part = &long[1..];
    for args in [
        &format!("fit x.csv -k 1 --columns {long}"),
        &format!("fit y.csv -k 1 --columns {part}"),
        &format!("fit y.csv -k 1 --device {long}"),
        &format!("fit y.csv -k 1 --covariance-type {long}"),
        &format!("fit {long}.csv -k 1"),
        &format!("fit y.csv -k 1 -o {long}"),
        "fit spaces.csv -k 1",
        &format!("mcmc y.csv -k 1 -o run --order {part}"),
        &format!("score m.json y.csv --{long}"),
        "score m.json y.csv",
        &long,
    ] {
        let stderr = String::from_utf8(folder.gmm(args).output().unwrap().stderr).unwrap();
        assert!(!stderr.is_empty() && stderr.len() < 2500, "{} characters: {stderr}", stderr.len());
    }
}
