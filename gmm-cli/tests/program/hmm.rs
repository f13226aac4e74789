//! `gmm hmm`.
use crate::common::*;
use gaussmix::data::Samples;
use gaussmix::hmm::Sequences;
use gaussmix::io::{Data, HiddenMarkovFile, read_data};
use predicates::prelude::*;
use std::fs;
use std::path::Path;

/// Writes three walks between two levels, whose rows take turns; the column `walk` names them.
fn write(folder: &Path) {
    let mut text = String::from("walk,x,y\n");
    for t in 0..100 {
        for walk in ["c", "a", "b"] {
            let level = ((t + walk.len()) / 20 % 2) as f64 * 6.0;
            let (i, shift) = (t as f64, f64::from(walk.as_bytes()[0]));
            text += &format!("{walk},{:.3},{:.3}\n", level + (i * 1.7 + shift).sin(), level + (i * 2.3 - shift).cos());
        }
    }
    fs::write(folder.join("walks.csv"), text).unwrap();
}

fn numbers(path: impl AsRef<Path>) -> Vec<f64> {
    match read_data(path).unwrap() {
        Data::F64(x) => x.iter().copied().collect(),
        Data::F32(x) => x.iter().map(|v| f64::from(*v)).collect(),
    }
}

/// Returns the numbers of a text file of one column, after its name.
fn column(path: impl AsRef<Path>) -> Vec<f64> {
    fs::read_to_string(path).unwrap().lines().skip(1).map(|line| line.parse().unwrap()).collect()
}

#[test]
fn sequences_by_a_column_are_those_of_the_library() {
    let folder = folder();
    let folder = folder.path();
    write(folder);
    let fit = ["hmm", "fit", "walks.csv", "--by", "walk", "-k", "1:3", "--covariance-type", "full", "-o", "hmm.json"];
    gmm(folder)
        .args(fit)
        .assert()
        .success()
        .stdout(predicate::str::contains("a model of 2 states of 3 sequences of 300 rows"));
    let HiddenMarkovFile { model, feature_names: names, .. } = HiddenMarkovFile::read(folder.join("hmm.json")).unwrap();
    assert_eq!((model.n_states(), names.unwrap()), (2, vec!["x".to_string(), "y".into()]));
    let on = ["walks.csv", "--by", "walk", "-o"];
    gmm(folder).args(["hmm", "decode", "hmm.json"]).args(on).arg("states.csv").assert().success();
    gmm(folder).args(["hmm", "decode", "hmm.json", "--proba"]).args(on).arg("p.npy").assert().success();
    gmm(folder).args(["hmm", "score", "hmm.json"]).args(on).arg("scores.csv").assert().success();
    // The same, from rows in the order of the walks.
    let text = fs::read_to_string(folder.join("walks.csv")).unwrap();
    let mut rows: Vec<(usize, &str)> = text.lines().skip(1).enumerate().collect();
    rows.sort_by_key(|(row, line)| (line.as_bytes()[0], *row));
    let values = rows.iter().flat_map(|(_, line)| line[2..].split(',').map(|v| v.parse::<f64>().unwrap()));
    let x = ndarray::Array2::from_shape_vec((300, 2), values.collect()).unwrap();
    let sequences = Sequences::new(Samples::from_f64(x.view()).unwrap(), &[100, 100, 100]).unwrap();
    let (states, p) = (column(folder.join("states.csv")), numbers(folder.join("p.npy")));
    let (_, want) = model.viterbi(&sequences).unwrap();
    let (scores, posteriors) = model.forward_backward(&sequences).unwrap();
    for (i, (row, _)) in rows.iter().enumerate() {
        assert_eq!(states[*row], want[i] as f64);
        assert_eq!(p[2 * row..2 * row + 2], posteriors.row(i).to_vec()[..]);
    }
    let written = fs::read_to_string(folder.join("scores.csv")).unwrap();
    let lines: Vec<&str> = written.lines().collect();
    assert_eq!(lines[0], "walk,log_likelihood");
    for ((line, name), score) in lines[1..].iter().zip(["a", "b", "c"]).zip(scores) {
        let (walk, value) = line.split_once(',').unwrap();
        assert_eq!((walk, value.parse::<f64>().unwrap()), (name, score));
    }
}

#[test]
fn samples_and_errors() {
    let folder = folder();
    let folder = folder.path();
    write(folder);
    gmm(folder).args(["hmm", "fit", "walks.csv", "--drop", "walk", "-k", "2", "-o", "hmm.json"]).assert().success();
    let sample = ["hmm", "sample", "hmm.json", "-n", "50", "--seed", "3", "-o", "new.csv", "--states", "z.csv"];
    gmm(folder).args(sample).assert().success();
    let HiddenMarkovFile { model, .. } = HiddenMarkovFile::read(folder.join("hmm.json")).unwrap();
    let (x, states) = model.sample(50, 3, None).unwrap();
    assert_eq!(numbers(folder.join("new.csv")), x.into_raw_vec_and_offset().0);
    assert_eq!(column(folder.join("z.csv")), states.iter().map(|s| *s as f64).collect::<Vec<_>>());
    let fails = |args: &[&str], why: &str| {
        gmm(folder).arg("hmm").args(args).assert().failure().stderr(predicate::str::contains(why));
    };
    fails(&["fit", "walks.csv", "--drop", "walk", "-k", "400", "-o", "m.json"], "at most as many as there are rows");
    fails(&["score", "walks.csv", "walks.csv"], "not a hidden Markov model");
    fs::write(folder.join("gaps.csv"), "walk,x,y\na,1,2\n,3,4\n").unwrap();
    fails(
        &["score", "hmm.json", "gaps.csv", "--by", "walk"],
        "row 1 (counted from 0) has no value in the column `walk`",
    );
    fs::write(folder.join("gaps.csv"), "x,y\n1,2\n,4\n").unwrap();
    fails(&["score", "hmm.json", "gaps.csv"], "--missing");
    gmm(folder).args(["hmm", "score", "hmm.json", "gaps.csv", "--missing"]).assert().success();
}

#[test]
fn fits_go_on_from_checkpoints_and_parts_are_held_out() {
    let folder = folder();
    let folder = folder.path();
    write(folder);
    let fit = |more: &[&str]| {
        let on = ["hmm", "fit", "walks.csv", "--by", "walk", "--tol=-inf", "-o", "hmm.json"];
        gmm(folder).args(on).args(more).assert()
    };
    let model = || HiddenMarkovFile::read(folder.join("hmm.json")).unwrap();
    fit(&["-k", "2", "--max-iter", "9"]).success();
    let want = model();
    fit(&["-k", "2", "--max-iter", "4", "--checkpoint", "c.json"]).success();
    assert_ne!(model(), want);
    fit(&["-k", "2", "--max-iter", "9", "--checkpoint", "c.json"]).success();
    assert_eq!(model(), want);
    assert_eq!(HiddenMarkovFile::read(folder.join("c.json")).unwrap().history.len(), 9);
    let other = fit(&["-k", "3", "--checkpoint", "c.json"]).failure();
    other.stderr(predicate::str::contains("is not a checkpoint of a fit of 3 states"));
    let range = fit(&["-k", "2:3", "--checkpoint", "d.json"]).failure();
    range.stderr(predicate::str::contains("give one with -k"));
    let held_out = fit(&["-k", "1:2", "--folds", "3", "--n-init", "2"]).success();
    held_out.stdout(predicate::str::contains("held out").and(predicate::str::contains("a model of 2 states")));
}
