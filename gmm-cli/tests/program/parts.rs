//! `gmm condition` and `gmm marginal`.
use crate::common::*;
use gaussmix::io::{FitSummary, ModelOutput, read_model, read_model_with_summary};

/// Writes the model of the irises with feature names.
fn named(folder: &Folder) -> Vec<String> {
    let names = ["sepal_length_cm", "sepal_width_cm", "petal_length_cm", "petal_width_cm"].map(String::from).to_vec();
    let summary = FitSummary { feature_names: Some(names.clone()), n_iter: Some(7), ..FitSummary::default() };
    let mixture = read_model(data("iris3.json")).unwrap();
    ModelOutput::create(folder.path("model.json")).unwrap().write_with_summary(&mixture, &summary).unwrap();
    names
}

#[test]
fn conditions_and_margins_are_the_librarys() {
    let folder = folder();
    let names = named(&folder);
    let mixture = folder.model("model.json");
    let read = |name: &str| read_model_with_summary::<gaussmix::model::Mixture>(folder.path(name)).unwrap();
    folder.run("condition model.json petal_length_cm=4.2 -o c.json");
    let (given, summary) = read("c.json");
    assert_eq!(given, mixture.condition(&[(2, 4.2)]).unwrap());
    // The record of the fit is not passed on to a part of the model.
    let rest = vec![names[0].clone(), names[1].clone(), names[3].clone()];
    assert_eq!(summary, FitSummary { feature_names: Some(rest), ..FitSummary::default() });
    folder.run("condition model.json 3=-1e-1 sepal_length_cm=5 -o c.npz");
    assert_eq!(read("c.npz").0, mixture.condition(&[(3, -0.1), (0, 5.0)]).unwrap());
    assert_eq!(folder.run("marginal model.json petal_length_cm,0 -o m.json"), "2 of 4 features written to m.json\n");
    let (marginal, summary) = read("m.json");
    assert_eq!(marginal, mixture.marginal(&[2, 0]).unwrap());
    assert_eq!(summary.feature_names, Some(vec![names[2].clone(), names[0].clone()]));
}

#[test]
fn what_does_not_name_a_feature_or_a_value_is_refused() {
    let folder = folder();
    named(&folder);
    for (arguments, text) in [
        ("condition model.json petal=1", "no feature `petal`; the features are sepal_length_cm, sepal_width_cm,"),
        ("condition model.json 4=1", "no feature `4`"),
        ("condition model.json 2", "`2` must be FEATURE=VALUE"),
        ("condition model.json 2=wide", "`wide` is not a number"),
        ("condition model.json 2=inf", "a given value is inf for feature 2"),
        ("condition model.json 2=1 petal_length_cm=1", "feature 2 (counted from 0) is named twice"),
        ("condition model.json 0=1 1=1 2=1 3=1", "the number of given features is 4"),
        ("marginal model.json 0,0", "feature 0 (counted from 0) is named twice"),
        ("marginal model.json width", "no feature `width`"),
    ] {
        folder.refused(format!("{arguments} -o new.json"), &[text]);
    }
    folder.fails(1, "condition model.json 2=1 -o model.json");
}
