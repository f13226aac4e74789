//! `gmm fit --freeze` of single components, `gmm fit --prior` and `gmm adapt`.
use crate::common::*;
use gaussmix::data::Samples;
use gaussmix::evaluator::{CpuEvaluator, ReferenceEvaluator};
use gaussmix::fit::{GaussianMixtureParams, MapPrior};
use gaussmix::io::{FitSummary, ModelOutput, read_model_with_summary};
use gaussmix::model::{CovarianceType, Covariances, Mixture, Predict};
use gaussmix::statistics::Adaptation;
use ndarray::{Array1, Array2, Axis};

/// Writes three clouds of 20, 40 and 60 samples with two features.
fn clouds(folder: &Folder) -> Array2<f64> {
    let noise = |i: usize, j: usize| ((i * 37 + j * 59) % 101) as f64 / 50.0 - 1.0;
    let x = Array2::from_shape_fn((120, 2), |(i, j)| {
        noise(i, j) + [[0.0, 0.0], [3.0, 1.0], [1.0, 4.0]][[0, 1, 1, 2, 2, 2][i % 6]][j]
    });
    folder.save("x.npy", &x);
    x
}

fn variances(mixture: &Mixture) -> &Array2<f64> {
    let Covariances::Diag(variances) = mixture.covariances() else { panic!("not diag") };
    variances
}

/// Returns the responsibilities (N, K) of the components of a `diag` mixture.
fn responsibilities(x: &Array2<f64>, mixture: &Mixture) -> Array2<f64> {
    let (means, variances) = (mixture.means(), variances(mixture));
    let mut shares = Array2::from_shape_fn((x.nrows(), mixture.n_components()), |(i, c)| {
        let density = |j: usize| {
            (-(x[[i, j]] - means[[c, j]]).powi(2) / (2.0 * variances[[c, j]])).exp() / variances[[c, j]].sqrt()
        };
        mixture.weights()[c] * (0..x.ncols()).map(density).product::<f64>()
    });
    for mut row in shares.rows_mut() {
        let sum = row.sum();
        row /= sum;
    }
    shares
}

/// Compares to ten digits: sums of a hundred samples, added in a different order.
#[track_caller]
fn assert_close(result: impl IntoIterator<Item = f64>, expected: impl IntoIterator<Item = f64>) {
    let (result, expected): (Vec<f64>, Vec<f64>) = (result.into_iter().collect(), expected.into_iter().collect());
    approx::assert_relative_eq!(result.as_slice(), expected.as_slice(), max_relative = 1e-10);
}

#[test]
fn frozen_components_stay_to_the_bit() {
    let folder = folder();
    let x = clouds(&folder);
    let of_x = "x.npy --covariance-type diag --tol 0";
    folder.fit(format!("{of_x} -k 3 --max-iter 0 -o start.json"));
    let start = folder.model("start.json");
    let moved = |freeze: &str, iterations: &str| {
        folder.fit(format!("{of_x} --init start.json --freeze {freeze} --max-iter {iterations} -o moved.json"));
        folder.model("moved.json")
    };

    let after = moved("means=0,2,weights=equal", "7");
    for component in [0, 2] {
        assert_eq!(after.means().row(component), start.means().row(component));
    }
    assert_ne!(after.means().row(1), start.means().row(1));
    assert_eq!(after.weights().to_vec(), [1.0 / 3.0; 3]);
    assert!(start.weights().iter().any(|w| *w != 1.0 / 3.0), "{}", start.weights());

    // One iteration: the mean that moves is that of the samples under equal weights.
    let after = moved("means=0,2,weights=equal", "1");
    let third = Array1::from_elem(3, 1.0 / 3.0);
    let equal = Mixture::new(third, start.means().to_owned(), start.covariances().clone()).unwrap();
    let shares = responsibilities(&x, &equal);
    let share = shares.column(1);
    assert_close(after.means().row(1).to_vec(), share.dot(&x) / share.sum());
    // A covariance is taken around its frozen mean.
    let around = (&x - &start.means().row(2)).mapv(|v| v * v);
    let share = shares.column(2);
    assert_close(variances(&after).row(2).to_vec(), share.dot(&around) / share.sum() + 1e-6);

    // The other weights share the remainder that the frozen weight leaves of 1.
    let after = moved("weights=1,covariances=0", "1");
    assert_eq!(after.weights()[1], start.weights()[1]);
    assert_eq!(variances(&after).row(0), variances(&start).row(0));
    let counts = responsibilities(&x, &start).sum_axis(Axis(0));
    let share = (1.0 - start.weights()[1]) / (counts[0] + counts[2]);
    assert_close([after.weights()[0], after.weights()[2]], [share * counts[0], share * counts[2]]);
}

#[test]
fn a_prior_is_the_librarys_and_keeps_components_from_collapsing() {
    let folder = folder();
    let mut x = clouds(&folder);
    // A quarter of the samples are equal.
    for mut row in x.rows_mut().into_iter().take(30) {
        row.assign(&ndarray::arr1(&[20.0, -20.0]));
    }
    folder.save("x.npy", &x);
    let run = |more: &str| {
        let arguments =
            format!("x.npy -k 4 --covariance-type diag --reg-covar 0 --device reference {more} -o map.json");
        let report = folder.fit(arguments);
        (report, folder.model("map.json"))
    };
    // The equal samples have a component of their own.
    let own = |mixture: &Mixture| (0..4).find(|&c| mixture.means()[[c, 0]] > 15.0).unwrap();
    let (report, mixture) = run("--max-iter 2");
    assert_eq!(report["retained"], serde_json::json!([own(&mixture)]));
    for (text, prior) in [
        ("default", MapPrior::default()),
        (
            "mean_precision=1,degrees_of_freedom=9,weight_concentration=2",
            MapPrior {
                mean_precision: 1.0,
                degrees_of_freedom: Some(9.0),
                weight_concentration: 2.0,
                ..MapPrior::default()
            },
        ),
    ] {
        let (report, mixture) = run(&format!("--prior {text}"));
        assert_eq!(report["retained"], serde_json::json!([]), "{report}");
        let params =
            GaussianMixtureParams::new(4).covariance_type(CovarianceType::Diag).reg_covar(0.0).prior(prior.clone());
        let mut evaluator = ReferenceEvaluator::new(Samples::from_f64(x.view()).unwrap());
        let expected = params.fit(&mut evaluator as &mut dyn gaussmix::evaluator::Evaluator).unwrap();
        assert_eq!(mixture, expected.mixture, "{text}");
        assert_eq!(number(&report, "lower_bound"), expected.lower_bound());
        // To its scatter of 0 the prior adds Ψ, the variances of the data over K^(2/D) = 4, and to its count the
        // prior's own.
        let own = own(&mixture);
        let degrees_of_freedom = prior.degrees_of_freedom.unwrap_or(4.0);
        let least = x.var_axis(Axis(0), 0.0) / 4.0 / (30.0 + degrees_of_freedom + 4.0);
        for j in 0..2 {
            assert!(variances(&mixture)[[own, j]] > 0.99 * least[j], "{mixture:?} {least}");
        }
    }
}

#[test]
fn an_adapted_model_is_the_librarys() {
    let folder = folder();
    let x = clouds(&folder);
    let names = vec!["height".to_owned(), "width".to_owned()];
    let summary = FitSummary { feature_names: Some(names), n_iter: Some(7), ..FitSummary::default() };
    let means = ndarray::arr2(&[[0.5, 0.25], [2.0, 1.5]]);
    let background =
        Mixture::new(ndarray::arr1(&[0.25, 0.75]), means, Covariances::Diag(ndarray::arr2(&[[1.0, 2.0], [1.5, 3.0]])))
            .unwrap();
    let output = ModelOutput::create(folder.path("background.json")).unwrap();
    output.write_with_summary(&background, &summary).unwrap();
    let adapted = |arguments: &str| {
        let arguments = format!("adapt background.json {arguments} -o adapted.json");
        let said = folder.run(arguments);
        let (mixture, after) = read_model_with_summary::<Mixture>(folder.path("adapted.json")).unwrap();
        // The record of the background model's fit is not passed on to the adapted model.
        assert_eq!(after, FitSummary { feature_names: summary.feature_names.clone(), ..FitSummary::default() });
        (mixture, said)
    };

    let plain = Samples::from_f64(x.view()).unwrap();
    let expected = |samples: &Samples<'_>, adaptation: Adaptation| {
        background.adapt(&mut CpuEvaluator::new(samples.clone()).unwrap(), &adaptation).unwrap()
    };
    let (mixture, said) = adapted("x.npy --device cpu");
    assert_eq!(said, "the model, adapted to 120 samples, written to adapted.json\n");
    assert_eq!(mixture, expected(&plain, Adaptation::default()));
    let all = Adaptation { weights: true, covariances: true, ..Adaptation::default() };
    let (mixture, _) = adapted("x.npy --device cpu --parameters weights,means,covariances");
    assert_eq!(mixture, expected(&plain, all));
    // Sample weights and the relevance count.
    let weights = Array1::from_shape_fn(120, |i| (i % 4) as f64);
    folder.save("w.npy", &weights);
    let weighted = plain.with_weights(weights.view()).unwrap();
    let (mixture, _) = adapted("x.npy --device cpu --relevance 3 --sample-weight w.npy");
    assert_eq!(mixture, expected(&weighted, Adaptation { relevance: 3.0, ..Adaptation::default() }));
}

#[test]
fn what_cannot_be_frozen_a_prior_or_an_adaptation_is_refused() {
    let folder = folder();
    clouds(&folder);
    folder.write("m.json", MODEL);
    for (arguments, code, message) in [
        ("fit x.npy -k 3 --freeze means=0,x", 2, "`x`"),
        ("fit x.npy -k 3 --freeze means=-1", 2, "`means=-1`"),
        ("fit x.npy -k 3 --freeze covariances=equal", 2, "`covariances=equal`"),
        ("fit x.npy -k 3 --freeze means=0,3", 1, "means of component 3"),
        ("fit x.npy -k 3 --freeze weights=equal,weights", 1, "leave out one of them"),
        ("fit x.npy -k 3 --covariance-type tied --freeze covariances=1", 1, "share a part"),
        ("fit x.npy -k 3 --variational --freeze means=1", 1, "variational"),
        ("fit x.npy -k 3 --prior strong", 2, "strong"),
        ("fit x.npy -k 3 --prior mean_precision=much", 2, "much"),
        ("fit x.npy -k 3 --prior default --variational", 2, "--variational"),
        ("fit x.npy -k 3 --prior degrees_of_freedom=-3", 1, "degrees_of_freedom"),
        ("fit x.npy -k 3 --prior mean_precision=-1", 2, "mean_precision"),
        ("adapt m.json x.npy", 1, "[2, 3]"),
        ("adapt m.json x.npy --relevance 0", 1, "relevance is 0"),
        ("adapt m.json x.npy --relevance nan", 1, "relevance is NaN"),
        ("adapt m.json x.npy --relevance much", 2, "much"),
        ("adapt m.json x.npy --parameters means,speed", 1, "`speed`"),
        ("adapt m.json none.npy", 1, "none.npy"),
        ("adapt none.json x.npy", 1, "none.json"),
    ] {
        folder.refused_with(code, format!("{arguments} -o new.json"), &[message]);
    }
    folder.fails(1, "adapt m.json x.npy -o m.json");
    assert_eq!(folder.text("m.json"), MODEL);
    folder.fails(2, "adapt m.json x.npy");
}
