//! Damaged, hostile and changing files give an error that names the cause. Conversions lose nothing.
use crate::common::*;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use zip::CompressionMethod;

#[test]
fn archives_are_checked_as_a_whole() {
    let folder = folder();
    folder.write("m.json", MODEL);
    folder.run("convert m.json good.npz");
    let good = members(&folder.path("good.npz"));
    let bad = |message: &[&str]| folder.refused("convert bad.npz out.json", &[&["bad.npz"], message].concat());
    let with = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut parts = good.clone();
        change(&mut parts.iter_mut().find(|(n, _)| n == name).unwrap().1);
        archive(&folder.path("bad.npz"), &parts, CompressionMethod::Deflated);
    };
    // The last eight bytes are the last number.
    for name in ["precisions_.npy", "precisions_cholesky_.npy"] {
        with(name, &|bytes| {
            let at = bytes.len() - 8;
            bytes[at..].copy_from_slice(&f64::NAN.to_le_bytes());
        });
        bad(&[name.trim_end_matches(".npy"), "NaN"]);
    }
    let absurd = npy("'<f8'", false, "(10000000000, 1000000000)", &[0; 48]);
    with("means_.npy", &|bytes| bytes.clone_from(&absurd));
    bad(&["means_", "[10000000000, 1000000000]", "too many bytes"]);
    with("weights_.npy", &|bytes| bytes.truncate(bytes.len() - 8));
    bad(&["weights_", "takes 16 bytes", "holds 8"]);
    with("weights_.npy", &|bytes| bytes.clone_from(&npy("'|O'", false, "(2,)", &[0; 16])));
    bad(&["weights_", "'|O'"]);

    // Two members with the same name: the second is written under a different name of the same length, which is then
    // replaced.
    let whole = folder.bytes("good.npz");
    let position = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).position(|w| w == part).unwrap();
    let mut parts = good.clone();
    parts.push(("meanz_.npy".into(), good[2].1.clone()));
    archive(&folder.path("bad.npz"), &parts, CompressionMethod::Stored);
    let mut twice = folder.bytes("bad.npz");
    for _ in 0..2 {
        let at = position(&twice, b"meanz_");
        twice[at..at + 6].copy_from_slice(b"means_");
    }
    folder.write("bad.npz", &twice);
    bad(&["`means_` twice"]);
    // The checksum of an unneeded member, in the directory (16 bytes into its record) and before the content (14).
    for (signature, at) in [(b"PK\x01\x02", 16), (b"PK\x03\x04", 14)] {
        let mut damaged = whole.clone();
        let last = damaged.windows(4).rposition(|w| w == signature).unwrap();
        damaged[last + at] ^= 1;
        folder.write("bad.npz", &damaged);
        bad(&["checksum"]);
    }
}

#[test]
fn conversions_keep_how_a_model_was_found() {
    let folder = folder();
    folder.run("fit data/iris.csv -k 2 -o a.json");
    for (from, to) in [("a.json", "b.npz"), ("b.npz", "c.json"), ("c.json", "d.json"), ("b.npz", "e.npz")] {
        folder.run(format!("convert {from} {to}"));
    }
    let text = folder.text("a.json");
    assert_has(&text, &["converged", "n_iter", "lower_bound\"", "lower_bounds"]);
    assert_eq!(text, folder.text("c.json"));
    assert_eq!(folder.bytes("a.json"), folder.bytes("d.json"));
    assert_eq!(folder.bytes("b.npz"), folder.bytes("e.npz"));
    let (_, found) = gaussmix::io::read_model_with_summary::<gaussmix::model::Mixture>(folder.path("b.npz")).unwrap();
    assert_eq!(found.lower_bounds.as_ref().unwrap().len() as u64, found.n_iter.unwrap());
    assert_eq!(found.lower_bounds.unwrap().last(), found.lower_bound.as_ref());
    // A model that was not fitted has none of these members.
    folder.write("m.json", MODEL);
    folder.run("convert m.json m.npz");
    assert_eq!(
        gaussmix::io::read_model_with_summary::<gaussmix::model::Mixture>(folder.path("m.npz")).unwrap().1,
        gaussmix::io::FitSummary::default()
    );
    folder.write("m.json", text.replace("\"converged\": true", "\"converged\": \"yes\""));
    folder.refused("convert m.json new.npz", &["m.json", "\"yes\""]);
}

/// Starts a fit that reads its file repeatedly, changes the file, and returns the fit's stderr.
#[cfg(unix)]
#[track_caller]
fn changed_while_read(change: impl Fn(&mut fs::File)) -> String {
    let folder = folder();
    let path = folder.path("x.npy");
    let (n, d) = (40_000usize, 16usize);
    let values: Vec<u8> = (0..n * d).flat_map(|i| (((i * 7919) % 1009) as f32).to_le_bytes()).collect();
    fs::write(&path, npy("'<f4'", false, &format!("({n}, {d})"), &values)).unwrap();
    // The columns are shifted copies of each other, so that full covariances may be singular.
    let args = "fit x.npy --memory 300k --device cpu -k 3 --covariance-type diag --tol 0 --max-iter 1000000";
    let mut child = start(&folder, args);
    wait_until_busy(&mut child);
    change(&mut fs::File::options().write(true).open(&path).unwrap());
    let output = child.wait_with_output().unwrap();
    // There is an exit code only if no signal ended the program.
    assert_eq!(output.status.code(), Some(1), "{:?}", output.status);
    String::from_utf8(output.stderr).unwrap()
}

#[cfg(unix)]
#[test]
fn a_file_that_changes_is_named_as_the_cause() {
    let changes: [&dyn Fn(&mut fs::File); 2] = [&|file| file.set_len(1000).unwrap(), &|file| {
        file.seek(SeekFrom::Start(100_000)).unwrap();
        file.write_all(&f32::NAN.to_le_bytes().repeat(1000)).unwrap();
    }];
    for change in changes {
        let stderr = changed_while_read(change);
        assert!(stderr.contains("x.npy: the file changed while it was read"), "{stderr}");
        assert!(!stderr.contains("NaN"), "{stderr}");
    }
}

#[test]
fn chunks_without_weight_count_for_nothing() {
    let folder = folder();
    let (n, d) = (3000usize, 2usize);
    let x = ndarray::Array2::from_shape_fn((n, d), |(i, j)| {
        ((i * 37 + j * 11) % 101) as f64 + if i < 1000 { 1e3 } else { 0.0 }
    });
    let w = ndarray::Array1::from_shape_fn(n, |i| if i < 1000 { 0.0 } else { 1.0 });
    folder.save("x.npy", &x);
    folder.save("w.npy", &w);
    folder.save("part.npy", &x.slice(ndarray::s![1000.., ..]));
    let total = |args: &str| {
        let report = folder.json(format!("fit -k 1 --device cpu --json {args}"));
        report["log_likelihood"].as_f64().unwrap()
    };
    let wanted = total("part.npy");
    for more in ["", "--standardize"] {
        let got = total(&format!("x.npy --sample-weight w.npy --memory 33k {more}"));
        // Both are in float64. The order of the sums differs, and with --standardize the units of reg_covar.
        approx::assert_relative_eq!(got, wanted, max_relative = 1e-6);
    }
}

#[test]
fn control_characters_of_a_file_do_not_reach_the_terminal() {
    let folder = folder();
    folder.write("m.json", MODEL);
    folder.write("x.csv", "1,2,3\n1,\x1b[2J\x07,3\n");
    folder.refused("score m.json x.csv", &["line 2", "`\\u{1b}[2J\\u{7}`"]);
    folder.write("x.csv", format!("1,2,3\n1,{},3\n", "x".repeat(100_000)));
    assert!(folder.fails(1, "score m.json x.csv").len() < 400);
    folder.write("bad.json", MODEL.replace("diag", "di\\u001b[31mag"));
    assert!(!folder.fails(1, "score bad.json x.csv").contains('\u{1b}'));
}

#[test]
fn numbers_at_the_edge_are_short() {
    let folder = folder();
    folder.write("m.json", MODEL.replace("[0.75, 1.5, 1]", "[0.75, -1e-320, 1]"));
    folder.write("x.csv", "1,2,3\n");
    folder.refused("score m.json x.csv", &["component 1", "is -1e-320"]);
}

#[test]
fn a_header_of_numbers_is_noted() {
    let folder = folder();
    folder.write("m.json", MODEL);
    let stderr = |text: &str| {
        folder.write("x.csv", text);
        folder.notes("score m.json x.csv")
    };
    let note = stderr("0,1,2\n0.5,1.5,2.5\n");
    assert!(
        note.starts_with("note: x.csv: the first line holds the numbers 0 to 2 and was taken as a sample"),
        "{note}"
    );
    let note = stderr("2019,2020,2021\n0.5,1.5,2\n0.5,1.0,0.5\n");
    assert!(
        note.starts_with("note: x.csv: the first line, with the numbers 2019 to 2021, was taken as a header"),
        "{note}"
    );
    for text in ["0,1,2\n", "0,2,1\n0.5,1.5,2.5\n", "a,b,c\n0,1,2\n1,1,1\n", "1,2,3\n1,1,1\n"] {
        assert_eq!(stderr(text), "", "{text}");
    }
}

#[test]
fn help_is_at_most_100_columns_wide() {
    for command in ["fit", "select", "score", "predict", "sample", "mcmc", "convert", "bench", "devices", ""] {
        for help in ["--help", "-h"] {
            let args = format!("{command} {help}");
            let run = folder().gmm(&args).env("COLUMNS", "400").assert().success();
            let text = String::from_utf8(run.get_output().stdout.clone()).unwrap();
            let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
            assert!(widest.chars().count() <= 100, "{args}: {widest}");
        }
    }
}

#[test]
fn plots_tell_components_apart() {
    let folder = folder();
    folder.run("fit data/iris.csv -k 15 --covariance-type diag --max-iter 3 --plot p.svg");
    let svg = folder.text("p.svg");
    assert_eq!(svg.matches("<ellipse ").count(), 30);
    // The legend shows a different line for each component.
    let mut looks: Vec<&str> = svg.lines().filter_map(|l| l.strip_prefix("<line fill")?.split(" x1").next()).collect();
    assert_eq!(looks.len(), 15);
    looks.sort_unstable();
    looks.dedup();
    assert_eq!(looks.len(), 15);
    assert!((0..15).all(|c| svg.contains(&format!(">{c}: 0."))), "weights in the legend");
    // Coordinates have fractions of a pixel.
    assert!(svg.lines().filter(|l| l.starts_with("<ellipse")).any(|l| !l.contains(".00\" rx")));
}
