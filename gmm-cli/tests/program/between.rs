//! `gmm compare`, `reduce`, `product`, `sum` and `axis`, and the order of components.
use crate::common::*;
use gaussmix::io::{FitSummary, ModelOutput, read_model, read_model_with_summary};
use gaussmix::model::{Mixture, Order};

const NAMES: [&str; 4] = ["sepal_length_cm", "sepal_width_cm", "petal_length_cm", "petal_width_cm"];

/// Writes the model of the irises with feature names as a.json, and two of its components as b.json.
fn two(folder: &Folder) -> [Mixture; 2] {
    let a = read_model(data("iris3.json")).unwrap();
    let b = a.reduce(2).unwrap().0;
    let summary = FitSummary { feature_names: Some(NAMES.map(String::from).to_vec()), ..FitSummary::default() };
    ModelOutput::create(folder.path("a.json")).unwrap().write_with_summary(&a, &summary).unwrap();
    ModelOutput::create(folder.path("b.json")).unwrap().write_with_summary(&b, &FitSummary::default()).unwrap();
    [a, b]
}

#[test]
fn results_are_the_librarys() {
    let folder = folder();
    let [a, b] = two(&folder);
    let read = |name: &str| read_model_with_summary::<Mixture>(folder.path(name)).unwrap();
    let all = folder.json("compare a.json b.json -n 1000 --seed 3 --json");
    let kl = a.kl_divergence(&b, 1000, 3).unwrap();
    assert_eq!(all["kl_divergence"]["value"], kl.value);
    assert_eq!(all["kl_divergence"]["standard_error"], kl.standard_error);
    assert_eq!(all["kl_divergence_back"]["value"], b.kl_divergence(&a, 1000, 3).unwrap().value);
    assert_eq!(all["js_divergence"]["value"], a.js_divergence(&b, 1000, 3).unwrap().value);
    assert_eq!(all["cauchy_schwarz"], a.cauchy_schwarz(&b).unwrap());
    assert_eq!(all["l2_distance"], a.l2_distance(&b).unwrap());
    let transport = a.transport(&b).unwrap();
    assert_eq!((&all["transport"], &all["plan"][2][1]), (&transport.distance.into(), &transport.plan[[2, 1]].into()));
    assert_eq!(all["wasserstein"][0][1], a.wasserstein(&b).unwrap()[[0, 1]]);
    assert_eq!(all["hellinger_affinity"][1][0], a.hellinger_affinity(&b).unwrap()[[1, 0]]);
    let text = folder.run("compare a.json b.json -n 1000");
    assert!(text.contains("Jensen-Shannon") && text.contains("nearest of the second"), "{text}");

    let text = folder.run("reduce a.json -k 2 -o r.json");
    assert!(text.starts_with("2 components of 3 written to r.json; divergence from the model at most"), "{text}");
    let (reduced, summary) = read("r.json");
    assert_eq!((reduced, summary.feature_names.unwrap()), (b.clone(), NAMES.map(String::from).to_vec()));
    folder.run("product b.json a.json -o p.json");
    // A file holds normalised weights.
    assert_eq!(read("p.json").0.means(), b.product(&a).unwrap().0.means());
    assert_eq!(read("p.json").1.feature_names.unwrap()[0], NAMES[0]);
    folder.run("sum a.json b.json --weights 3,1 -o s.npz");
    assert_eq!(read("s.npz").0, Mixture::sum(&[&a, &b], &[3.0, 1.0]).unwrap());
    for (order, wanted) in [
        ("weight", Order::Weight),
        ("petal_length_cm", Order::Mean(2)),
        ("1", Order::Mean(1)),
        ("2,0,1", Order::Permutation(vec![2, 0, 1])),
    ] {
        folder.run(format!("convert a.json o.json --order {order}"));
        assert_eq!(read("o.json").0, a.sorted(&wanted).unwrap(), "{order}");
    }
}

#[test]
fn an_axis_has_probabilities_quantiles_and_regions() {
    let folder = folder();
    let [a, _] = two(&folder);
    let petals = a.marginal(&[2]).unwrap();
    let found = folder.json("axis a.json petal_length_cm --cdf -1,2.5 --quantile 0.5 --hdr 0.9 --json");
    assert_eq!(found["cdf"][0]["p"], petals.cdf(-1.0).unwrap());
    assert_eq!(found["cdf"][1]["p"], petals.cdf(2.5).unwrap());
    assert_eq!(found["quantile"][0]["x"], petals.quantile(0.5).unwrap());
    let region = petals.hdr(0.9).unwrap();
    assert_eq!(found["hdr"][0]["density"], region.density);
    assert_eq!(found["hdr"][0]["intervals"][1][0], region.intervals[1][0]);
    let text = folder.run("axis a.json 2");
    assert!(text.lines().count() == 6 && text.contains("quantile  0.025"), "{text}");
    let text = folder.run("axis a.json 2 -o line.csv --points 11");
    assert_eq!(text, "11 places written to line.csv\n");
    let table = folder.text("line.csv");
    assert_eq!(table.lines().next().unwrap(), "petal_length_cm,density,cdf,component0,component1,component2");
    assert_eq!(table.lines().count(), 12);
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let folder = folder();
    two(&folder);
    folder.run("marginal a.json 2,1 -o part.json");
    for (arguments, text) in [
        ("compare a.json part.json", "the features of a.json are sepal_length_cm,"),
        ("compare b.json part.json", "[3, 4]"),
        ("compare a.json b.json -n 1", "at least two are needed"),
        ("reduce a.json -k 4 -o n.json", "n_components is 4: give a number from 1"),
        ("sum a.json b.json --weights 1 -o n.json", "the weights is [1]; expected [2]"),
        ("sum a.json b.json --weights 1,-1 -o n.json", "finite and not negative"),
        ("axis a.json", "the model has 4 features; name the one"),
        ("axis a.json 2 --quantile 1.5", "p is 1.5: give a probability, from 0 to 1"),
        ("axis a.json 2 --hdr 1", "level is 1: give a probability above 0"),
        ("convert a.json n.json --order width", "no feature `width`"),
        ("convert a.json n.json --order 0,1", "name each component once"),
    ] {
        folder.refused(arguments, &[text]);
    }
    // A count of 0 is a mistake in the call.
    folder.fails(2, "reduce a.json -k 0 -o n.json");
}
