//! `gmm condition` and `gmm marginal`.
use crate::common::*;
use gaussmix::io::{FitSummary, ModelOutput, read_model, read_model_with_summary};
use std::path::Path;

/// Writes the model of the irises with feature names.
fn named(folder: &Path) -> Vec<String> {
    let names = ["sepal_length_cm", "sepal_width_cm", "petal_length_cm", "petal_width_cm"].map(String::from).to_vec();
    let summary = FitSummary { feature_names: Some(names.clone()), n_iter: Some(7), ..FitSummary::default() };
    let mixture = read_model(data("iris3.json")).unwrap();
    ModelOutput::create(folder.join("model.json")).unwrap().write_with_summary(&mixture, &summary).unwrap();
    names
}

#[test]
fn conditions_and_margins_are_the_librarys() {
    let folder = folder();
    let names = named(folder.path());
    let mixture = read_model(folder.path().join("model.json")).unwrap();
    let read = |name: &str| read_model_with_summary(folder.path().join(name)).unwrap();
    gmm(&folder).args(["condition", "model.json", "petal_length_cm=4.2", "-o", "c.json"]).assert().success();
    let (given, summary) = read("c.json");
    assert_eq!(given, mixture.condition(&[(2, 4.2)]).unwrap());
    // The record of the fit is not passed on to a part of the model.
    let rest = vec![names[0].clone(), names[1].clone(), names[3].clone()];
    assert_eq!(summary, FitSummary { feature_names: Some(rest), ..FitSummary::default() });
    gmm(&folder).args(["condition", "model.json", "3=-1e-1", "sepal_length_cm=5", "-o", "c.npz"]).assert().success();
    assert_eq!(read("c.npz").0, mixture.condition(&[(3, -0.1), (0, 5.0)]).unwrap());
    let run = gmm(&folder).args(["marginal", "model.json", "petal_length_cm,0", "-o", "m.json"]).assert().success();
    assert_eq!(run.get_output().stdout, b"2 of 4 features written to m.json\n");
    let (marginal, summary) = read("m.json");
    assert_eq!(marginal, mixture.marginal(&[2, 0]).unwrap());
    assert_eq!(summary.feature_names, Some(vec![names[2].clone(), names[0].clone()]));
}

#[test]
fn what_does_not_name_a_feature_or_a_value_is_refused() {
    let folder = folder();
    named(folder.path());
    for (arguments, text) in [
        ("condition petal=1", "no feature `petal`; the features are sepal_length_cm, sepal_width_cm,"),
        ("condition 4=1", "no feature `4`"),
        ("condition 2", "`2` must be FEATURE=VALUE"),
        ("condition 2=wide", "`wide` is not a number"),
        ("condition 2=inf", "a given value is inf for feature 2"),
        ("condition 2=1 petal_length_cm=1", "feature 2 (counted from 0) is named twice"),
        ("condition 0=1 1=1 2=1 3=1", "the number of given features is 4"),
        ("marginal 0,0", "feature 0 (counted from 0) is named twice"),
        ("marginal width", "no feature `width`"),
    ] {
        let mut words = arguments.split(' ');
        let (command, rest) = (words.next().unwrap(), words);
        let run = gmm(&folder).args([command, "model.json"]).args(rest).args(["-o", "new.json"]).assert().code(1);
        let stderr = String::from_utf8(run.get_output().stderr.clone()).unwrap();
        assert!(stderr.contains(text), "{arguments}: {stderr}");
        assert!(!folder.path().join("new.json").exists());
    }
    gmm(&folder).args(["condition", "model.json", "2=1", "-o", "model.json"]).assert().code(1);
}
