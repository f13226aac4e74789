//! `gmm fit --labels`.
use crate::common::*;
use ndarray::{Array1, Array2};

/// Writes clouds around (0, 0), (6, 0) and (0, 6), sample after sample.
fn clouds(folder: &Folder) {
    let noise = |i: usize, j: usize| ((i * 37 + j * 59) % 101) as f64 / 50.0 - 1.0;
    let centres = [[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]];
    let x = Array2::from_shape_fn((300, 2), |(i, j)| noise(i, j) + centres[i % 3][j]);
    folder.save("x.npy", &x);
}

fn write(folder: &Folder, label: impl Fn(usize) -> f64) {
    folder.save("labels.npy", &Array1::from_shape_fn(300, label));
}

#[test]
fn labels_name_the_components() {
    let folder = folder();
    clouds(&folder);
    let names = [2.0, 0.0, 1.0];
    write(&folder, |i| if i % 20 < 3 { names[i % 3] } else { -1.0 });
    for more in ["--standardize", "--variational", "--float64 --checkpoint state.json"] {
        folder.fit(format!("x.npy -k 3 --labels labels.npy -o m.json {more}"));
        let model = folder.model("m.json");
        for (c, mean) in [[6.0, 0.0], [0.0, 6.0], [0.0, 0.0]].iter().enumerate() {
            assert!((0..2).all(|j| (model.means()[[c, j]] - mean[j]).abs() < 0.3), "{more:?}: {}", model.means());
        }
    }
    // An array of one dimension may be compressed.
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, &folder.bytes("labels.npy")).unwrap();
    folder.write("labels.npy.gz", encoder.finish().unwrap());
    folder.run("fit x.npy -k 3 --labels labels.npy.gz");
    // A checkpoint belongs to its labels.
    write(&folder, |i| if i % 20 < 3 { (i % 3) as f64 } else { -1.0 });
    let arguments = "fit x.npy -k 3 --float64 --labels labels.npy --checkpoint state.json";
    assert!(folder.fails(1, arguments).contains("labels"));
}

#[test]
fn labels_that_do_not_fit_are_refused() {
    let folder = folder();
    clouds(&folder);
    let refused = |more: &str, code: i32, message: &str| {
        folder.refused_with(code, format!("fit x.npy -k 2 --labels labels.npy -o m.json {more}"), &[message])
    };
    write(&folder, |i| if i == 7 { 2.0 } else { -1.0 });
    refused("", 1, "2 in row 7");
    write(&folder, |i| if i == 8 { 0.5 } else { -1.0 });
    refused("", 1, "0.5 in row 8");
    folder.save("labels.npy", &Array1::from_elem(299, 0.0));
    refused("", 1, "299 labels for 300 samples");
    refused("--by group", 2, "cannot be used with");
}
