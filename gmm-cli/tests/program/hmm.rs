//! `gmm hmm`.
use crate::common::*;
use gaussmix::data::Samples;
use gaussmix::hmm::Sequences;
use gaussmix::io::HiddenMarkovFile;

/// Writes three walks between two levels, whose rows take turns; the column `walk` names them.
fn write(folder: &Folder) {
    let mut text = String::from("walk,x,y\n");
    for t in 0..100 {
        for walk in ["c", "a", "b"] {
            let level = ((t + walk.len()) / 20 % 2) as f64 * 6.0;
            let (i, shift) = (t as f64, f64::from(walk.as_bytes()[0]));
            text += &format!("{walk},{:.3},{:.3}\n", level + (i * 1.7 + shift).sin(), level + (i * 2.3 - shift).cos());
        }
    }
    folder.write("walks.csv", text);
}

/// Returns the numbers of a text file of one column, after its name.
fn column(folder: &Folder, name: &str) -> Vec<f64> {
    folder.text(name).lines().skip(1).map(|line| line.parse().unwrap()).collect()
}

#[test]
fn sequences_by_a_column_are_those_of_the_library() {
    let folder = folder();
    write(&folder);
    let text = folder.run("hmm fit walks.csv --by walk -k 1:3 --covariance-type full -o hmm.json");
    assert!(text.contains("a model of 2 states of 3 sequences of 300 rows"), "{text}");
    let HiddenMarkovFile { model, feature_names: names, .. } = HiddenMarkovFile::read(folder.path("hmm.json")).unwrap();
    assert_eq!((model.n_states(), names.unwrap()), (2, vec!["x".to_string(), "y".into()]));
    let on = "walks.csv --by walk -o";
    folder.run(format!("hmm decode hmm.json {on} states.csv"));
    folder.run(format!("hmm decode hmm.json --proba {on} p.npy"));
    folder.run(format!("hmm score hmm.json {on} scores.csv"));
    // The same, from rows in the order of the walks.
    let text = folder.text("walks.csv");
    let mut rows: Vec<(usize, &str)> = text.lines().skip(1).enumerate().collect();
    rows.sort_by_key(|(row, line)| (line.as_bytes()[0], *row));
    let values = rows.iter().flat_map(|(_, line)| line[2..].split(',').map(|v| v.parse::<f64>().unwrap()));
    let x = ndarray::Array2::from_shape_vec((300, 2), values.collect()).unwrap();
    let sequences = Sequences::new(Samples::from_f64(x.view()).unwrap(), &[100, 100, 100]).unwrap();
    let (states, p) = (column(&folder, "states.csv"), folder.numbers("p.npy"));
    let (_, want) = model.viterbi(&sequences).unwrap();
    let (scores, posteriors) = model.forward_backward(&sequences).unwrap();
    for (i, (row, _)) in rows.iter().enumerate() {
        assert_eq!(states[*row], want[i] as f64);
        assert_eq!(p.row(*row), posteriors.row(i));
    }
    let written = folder.text("scores.csv");
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
    write(&folder);
    folder.run("hmm fit walks.csv --drop walk -k 2 -o hmm.json");
    folder.run("hmm sample hmm.json -n 50 --seed 3 -o new.csv --states z.csv");
    let HiddenMarkovFile { model, .. } = HiddenMarkovFile::read(folder.path("hmm.json")).unwrap();
    let (x, states) = model.sample(50, 3, None).unwrap();
    assert_eq!(folder.numbers("new.csv"), x);
    assert_eq!(column(&folder, "z.csv"), states.iter().map(|s| *s as f64).collect::<Vec<_>>());
    let fails = |args: &str, why: &str| folder.refused(format!("hmm {args}"), &[why]);
    fails("fit walks.csv --drop walk -k 400 -o m.json", "at most as many as there are rows");
    fails("fit walks.csv --drop walk -k 2 --reg-covar=-1 -o m.json", "reg_covar is -1");
    fails("fit walks.csv --drop walk -k 2 --tol nan -o m.json", "tol is NaN");
    fails("score walks.csv walks.csv", "not a hidden Markov model");
    folder.write("gaps.csv", "walk,x,y\na,1,2\n,3,4\n");
    fails("score hmm.json gaps.csv --by walk", "row 1 (counted from 0) has no value in the column `walk`");
    folder.write("gaps.csv", "x,y\n1,2\n,4\n");
    fails("score hmm.json gaps.csv", "--missing");
    folder.run("hmm score hmm.json gaps.csv --missing");
}

#[test]
fn fits_go_on_from_checkpoints_and_parts_are_held_out() {
    let folder = folder();
    write(&folder);
    let fit = |more: &str| format!("hmm fit walks.csv --by walk --tol=-inf -o hmm.json {more}");
    let model = || HiddenMarkovFile::read(folder.path("hmm.json")).unwrap();
    folder.run(fit("-k 2 --max-iter 9"));
    let want = model();
    folder.run(fit("-k 2 --max-iter 4 --checkpoint c.json"));
    assert_ne!(model(), want);
    folder.run(fit("-k 2 --max-iter 9 --checkpoint c.json"));
    assert_eq!(model(), want);
    assert_eq!(HiddenMarkovFile::read(folder.path("c.json")).unwrap().history.len(), 9);
    folder.refused(fit("-k 3 --checkpoint c.json"), &["is not a checkpoint of a fit of 3 states"]);
    folder.refused(fit("-k 2:3 --checkpoint d.json"), &["give one with -k"]);
    // The history makes a checkpoint larger than the model: 4096 bytes are too few for it alone.
    #[cfg(target_os = "linux")]
    {
        std::fs::remove_file(folder.path("hmm.json")).unwrap();
        let failed = folder.limited("-f 8", fit("-k 2 --max-iter 600 --checkpoint large.json"));
        assert_has(&String::from_utf8_lossy(&failed.stderr), &["the checkpoint could not be written", "large.json: "]);
        assert_eq!((failed.status.code(), model().model.n_states()), (Some(1), 2));
    }
    let text = folder.run(fit("-k 1:2 --folds 3 --n-init 2"));
    assert!(text.contains("held out") && text.contains("a model of 2 states"), "{text}");
}
