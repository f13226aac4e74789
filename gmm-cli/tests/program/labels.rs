//! `gmm fit --labels`.
use crate::common::*;
use gaussmix::io::read_model;
use ndarray::{Array1, Array2};
use std::path::Path;

/// Writes clouds around (0, 0), (6, 0) and (0, 6), sample after sample.
fn clouds(folder: &Path) {
    let noise = |i: usize, j: usize| ((i * 37 + j * 59) % 101) as f64 / 50.0 - 1.0;
    let centres = [[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]];
    let x = Array2::from_shape_fn((300, 2), |(i, j)| noise(i, j) + centres[i % 3][j]);
    ndarray_npy::write_npy(folder.join("x.npy"), &x).unwrap();
}

fn write(folder: &Path, label: impl Fn(usize) -> f64) {
    ndarray_npy::write_npy(folder.join("labels.npy"), &Array1::from_shape_fn(300, label)).unwrap();
}

#[test]
fn labels_name_the_components() {
    let folder = folder();
    clouds(folder.path());
    let names = [2.0, 0.0, 1.0];
    write(folder.path(), |i| if i % 20 < 3 { names[i % 3] } else { -1.0 });
    for more in [&["--standardize"][..], &["--variational"], &["--float64", "--checkpoint", "state.json"]] {
        fit(folder.path(), &[&["x.npy", "-k", "3", "--labels", "labels.npy", "-o", "m.json"], more].concat());
        let model = read_model(folder.path().join("m.json")).unwrap();
        for (c, mean) in [[6.0, 0.0], [0.0, 6.0], [0.0, 0.0]].iter().enumerate() {
            assert!((0..2).all(|j| (model.means()[[c, j]] - mean[j]).abs() < 0.3), "{more:?}: {}", model.means());
        }
    }
    // A checkpoint belongs to its labels.
    write(folder.path(), |i| if i % 20 < 3 { (i % 3) as f64 } else { -1.0 });
    let arguments = "fit x.npy -k 3 --float64 --labels labels.npy --checkpoint state.json";
    let run = gmm(folder.path()).args(arguments.split(' ')).assert().failure();
    assert!(String::from_utf8_lossy(&run.get_output().stderr).contains("labels"));
}

#[test]
fn labels_that_do_not_fit_are_refused() {
    let folder = folder();
    clouds(folder.path());
    let refused = |more: &str, code: i32, message: &str| {
        let arguments = format!("fit x.npy -k 2 --labels labels.npy -o m.json{more}");
        let run = gmm(folder.path()).args(arguments.split(' ')).assert().code(code).stdout("");
        let stderr = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
        assert!(stderr.contains(message), "{stderr}");
        assert!(!folder.path().join("m.json").exists());
    };
    write(folder.path(), |i| if i == 7 { 2.0 } else { -1.0 });
    refused("", 1, "2 in row 7");
    write(folder.path(), |i| if i == 8 { 0.5 } else { -1.0 });
    refused("", 1, "0.5 in row 8");
    ndarray_npy::write_npy(folder.path().join("labels.npy"), &Array1::from_elem(299, 0.0)).unwrap();
    refused("", 1, "299 labels for 300 samples");
    refused(" --by group", 2, "cannot be used with");
}
