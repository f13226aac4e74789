//! `gmm fit --variational`, `gmm select --variational`, and the use of their models.
use crate::common::*;
use gaussmix::evaluator::{Evaluator, ReferenceEvaluator};
use gaussmix::fit::{BayesianGaussianMixtureParams, Fit};
use gaussmix::model::{CovarianceType, Covariances, VariationalMixture, WeightConcentrationPriorType};
use ndarray::{Array1, Array2, array};

/// Writes three clouds of 40 samples with two features.
fn clouds(folder: &Folder) -> Array2<f64> {
    let noise = |i: usize, j: usize| ((i * 37 + j * 59) % 101) as f64 / 50.0 - 1.0;
    let x = Array2::from_shape_fn((120, 2), |(i, j)| noise(i, j) + [[0.0, 0.0], [6.0, 1.0], [1.0, 7.0]][i % 3][j]);
    folder.save("x.npy", &x);
    x
}

fn library(x: &Array2<f64>, params: &BayesianGaussianMixtureParams) -> (Fit<VariationalMixture>, f64) {
    let mut evaluator = ReferenceEvaluator::new(gaussmix::data::Samples::from_f64(x.view()).unwrap());
    let fit = params.fit(&mut evaluator as &mut dyn Evaluator).unwrap();
    let log_total = x.nrows() as f64 * fit.mixture.log_total();
    let log_likelihood = evaluator.log_likelihood(fit.mixture.density()).unwrap() + log_total;
    (fit, log_likelihood)
}

const FIT: &str = "x.npy -k 6 --variational --device reference -o";

#[test]
fn the_posterior_is_the_librarys() {
    let folder = folder();
    let x = clouds(&folder);
    for t in CovarianceType::ALL {
        let report = folder.fit(format!("{FIT} m.json --covariance-type {t}"));
        let (expected, log_likelihood) = library(&x, &BayesianGaussianMixtureParams::new(6).covariance_type(t));
        let (posterior, summary) =
            gaussmix::io::read_model_with_summary::<VariationalMixture>(folder.path("m.json")).unwrap();
        assert_eq!(posterior, expected.mixture);
        assert_eq!((summary.n_iter, summary.converged), (Some(expected.n_iter() as u64), Some(true)));
        let names = "alive converged covariance_type d device elbo k kernel log_likelihood lower_bound n n_iter precision seconds weight_concentration_prior_type";
        assert_eq!(keys(&report), names);
        assert_eq!(number(&report, "lower_bound"), expected.lower_bound());
        assert_eq!(number(&report, "elbo"), expected.elbo());
        assert_eq!(number(&report, "log_likelihood"), log_likelihood);
        assert_eq!(report["n_iter"], expected.n_iter());
        assert_eq!(report["weight_concentration_prior_type"], "dirichlet_process");
        let counts = expected.mixture.expected_counts();
        assert!((counts.sum() - 120.0).abs() < 1e-9, "{counts}");
        let alive: Vec<usize> = (0..6).filter(|&c| counts[c] >= 0.5).collect();
        assert_eq!(report["alive"], serde_json::json!(alive));
    }
}

/// Each option of the prior reaches the fit, given as numbers or in a file.
#[test]
fn the_prior_is_the_one_that_is_given() {
    let folder = folder();
    let x = clouds(&folder);
    folder.write("prior.csv", "2,0.5\n0.5,3\n");
    folder.save("mean.npy", &array![-1.0, 2.0]);
    let params = BayesianGaussianMixtureParams::new(6)
        .weight_concentration_prior_type(WeightConcentrationPriorType::DirichletDistribution)
        .weight_concentration_prior(0.01)
        .mean_precision_prior(0.5)
        .mean_prior(array![-1.0, 2.0])
        .degrees_of_freedom_prior(3.5)
        .tol(1e-6)
        .max_iter(1000);
    let numbers = "--weight-concentration-prior-type dirichlet-distribution --weight-concentration-prior 0.01 \
                   --mean-precision-prior 0.5 --degrees-of-freedom-prior 3.5 --tol 1e-6 --max-iter 1000";
    let full = Covariances::Full(array![[[2.0, 0.5], [0.5, 3.0]]]);
    let cases = [
        (CovarianceType::Full, full, "prior.csv", "mean.npy"),
        (CovarianceType::Tied, Covariances::Tied(array![[2.0, 0.5], [0.5, 3.0]]), "2,0.5,0.5,3", "-1,2"),
        (CovarianceType::Diag, Covariances::Diag(array![[2.0, 3.0]]), "2,3", "-1,2"),
        (CovarianceType::Spherical, Covariances::Spherical(array![1.5]), "1.5", "mean.npy"),
    ];
    for (t, covariance, given, mean) in cases {
        folder
            .fit(format!("{FIT} m.npz --covariance-type {t} --covariance-prior {given} --mean-prior {mean} {numbers}"));
        let expected = library(&x, &params.clone().covariance_type(t).covariance_prior(covariance)).0;
        let (posterior, _) = gaussmix::io::read_model_with_summary::<VariationalMixture>(folder.path("m.npz")).unwrap();
        assert_eq!(posterior, expected.mixture, "{t}");
    }
}

#[test]
fn options_without_a_meaning_are_refused() {
    let folder = folder();
    clouds(&folder);
    let wrong = |command: &str, args: &str, message: &str| {
        folder.refused_with(2, format!("{command} x.npy -k 3 {args}"), &[message]);
    };
    for option in ["--criterion=aic", "--merge"] {
        wrong("select", &format!("--variational {option}"), "cannot be used with");
    }
    let priors = [
        "--weight-concentration-prior-type=dirichlet-process",
        "--weight-concentration-prior=1",
        "--mean-precision-prior=1",
        "--mean-prior=0,0",
        "--degrees-of-freedom-prior=2",
        "--covariance-prior=1,0,0,1",
    ];
    for option in priors {
        wrong("fit", option, "--variational");
        wrong("select", option, "--variational");
    }
    wrong("fit", "--variational --weight-concentration-prior-type=process", "dirichlet_distribution");
    let bad = |option: &str, message: &[&str]| {
        folder.refused(format!("fit x.npy -k 3 --variational {option}"), message);
    };
    bad("--weight-concentration-prior=0", &["weight_concentration_prior", "positive"]);
    bad("--mean-precision-prior=-1", &["mean_precision_prior", "positive"]);
    bad("--degrees-of-freedom-prior=1", &["degrees_of_freedom_prior", "number of features less one"]);
    bad("--mean-prior=1,2,3", &["mean_prior", "[2]", "[3]"]);
    bad("--mean-prior=no.csv", &["--mean-prior", "no.csv"]);
    bad("--covariance-prior=1,2,3", &["--covariance-prior", "3 numbers are not the rows of a square matrix"]);
    bad("--covariance-prior=1,2,2,1", &["not positive definite"]);
    folder.write("em.json", MODEL);
    folder.refused("fit x.npy --variational --init em.json", &["em.json", "posterior"]);
}

/// The results of `predict`, `score`, `sample` and `convert` are those of the library for the posterior.
#[test]
fn commands_take_the_posterior() {
    let folder = folder();
    let x = clouds(&folder);
    folder.fit(format!("{FIT} m.json"));
    folder.run("convert m.json m.npz");
    folder.run("convert m.npz again.json");
    assert_eq!(folder.bytes("m.json"), folder.bytes("again.json"));
    let (expected, log_likelihood) = library(&x, &BayesianGaussianMixtureParams::new(6));
    let (density, log_total) = (expected.mixture.density(), expected.mixture.log_total());
    // The constants of the density are not logarithms of weights.
    assert!(log_total.abs() > 1e-3);
    let mut evaluator = ReferenceEvaluator::new(gaussmix::data::Samples::from_f64(x.view()).unwrap());
    for model in ["m.json", "m.npz"] {
        let on = "x.npy --device reference";
        folder.run(format!("predict {model} {on} --proba -o p.npy"));
        folder.run(format!("predict {model} {on} -o labels.npy"));
        let score = folder.json(format!("score {model} {on} --json --per-sample s.npy"));
        assert_eq!(number(&score, "log_likelihood"), log_likelihood);
        assert_eq!(folder.numbers("p.npy"), evaluator.predict_proba(density).unwrap());
        let labels: Array1<i64> = ndarray_npy::read_npy(folder.path("labels.npy")).unwrap();
        let expected = evaluator.predict(density).unwrap();
        assert!(labels.iter().zip(&expected).all(|(&a, &b)| a == b as i64));
        let scores: Array1<f64> = ndarray_npy::read_npy(folder.path("s.npy")).unwrap();
        assert_eq!(scores, evaluator.score_samples(density).unwrap() + log_total);
    }
    folder.run("sample m.npz -n 5 -o drawn.npy");
    let mixture = expected.mixture.to_mixture().unwrap();
    assert_eq!(folder.numbers("drawn.npy"), mixture.sampler(0).unwrap().draw(5).unwrap().0);
    // A fit that starts at the posterior converges at once.
    assert_eq!(folder.fit("x.npy --variational --init m.npz --tol 1 --device reference")["n_iter"], 2);
}

#[test]
fn the_report_and_the_plot_tell_what_is_alive() {
    let folder = folder();
    clouds(&folder);
    let text = folder.run(format!("fit {FIT} m.json --weight-concentration-prior 1e-3 --max-iter 500 --plot p.svg"));
    assert!(text.contains("  alive         3 of them") && text.contains("ELBO            -"), "{text}");
    assert!(!text.contains("BIC"), "{text}");
    let svg = folder.text("p.svg");
    assert!(svg.contains("6 components, 3 alive"));
    let faint =
        |shape: &str| svg.lines().filter(|l| l.starts_with(shape) && l.contains("stroke-opacity=\"0.25\"")).count();
    // Two ellipses and a line of the legend for each.
    assert_eq!((faint("<ellipse"), faint("<line")), (6, 3));
}

#[test]
fn the_bound_selects() {
    let folder = folder();
    let x = clouds(&folder);
    let args = "select x.npy -k 2,6 --covariance-type diag,full --variational";
    let more = "--device reference --tol 1e-5 --max-iter 500 -o m.json --plot p.svg";
    let report = folder.json(format!("{args} {more} --json"));
    let rows = report["candidates"].as_array().unwrap();
    let mut best: Option<(usize, Fit<VariationalMixture>)> = None;
    let tried =
        [(CovarianceType::Diag, 2), (CovarianceType::Diag, 6), (CovarianceType::Full, 2), (CovarianceType::Full, 6)];
    assert_eq!(rows.len(), tried.len());
    for (i, (row, (t, k))) in rows.iter().zip(tried).enumerate() {
        let params = BayesianGaussianMixtureParams::new(k).covariance_type(t).tol(1e-5).max_iter(500);
        let (expected, _) = library(&x, &params);
        assert_eq!((&row["covariance_type"], &row["k"]), (&t.name().into(), &k.into()));
        assert_eq!(number(row, "elbo"), expected.elbo());
        assert_eq!(number(row, "alive") as usize, expected.mixture.alive().iter().filter(|a| **a).count());
        if best.as_ref().is_none_or(|(_, best)| expected.elbo() > best.elbo()) {
            best = Some((i, expected));
        }
    }
    let (best, expected) = best.unwrap();
    assert_eq!((&report["criterion"], &report["best"]), (&"elbo".into(), &rows[best]));
    let (written, _) = gaussmix::io::read_model_with_summary::<VariationalMixture>(folder.path("m.json")).unwrap();
    assert_eq!(written, expected.mixture);
    assert_eq!(report["best"]["alive"], 3);
    let text = folder.run(format!("{args} {more}"));
    assert!(text.contains("best by ELBO: 6 components, 3 of them alive"), "{text}");
}

#[test]
fn a_checkpoint_goes_on_to_the_same_bits() {
    let folder = folder();
    clouds(&folder);
    let go = |output: &str, max_iter: &str, checkpoint: &str| {
        folder.fit(format!("{FIT} {output} --tol 1e-9 --max-iter {max_iter} --checkpoint {checkpoint}"));
        gaussmix::io::read_model_with_summary::<VariationalMixture>(folder.path(output)).unwrap().0
    };
    let whole = go("whole.json", "40", "whole-checkpoint.json");
    go("begun.json", "7", "c.json");
    assert_eq!(go("resumed.json", "40", "c.json"), whole);
    folder.refused(
        format!("fit {FIT} m.json --checkpoint c.json --mean-prior 0,0"),
        &["belongs to another fit", "mean-prior"],
    );
    // A fit by EM cannot continue from it, nor the reverse.
    folder.refused("fit x.npy -k 6 --checkpoint c.json", &["belongs to another fit"]);
    folder.fit("x.npy -k 6 --checkpoint em.json");
    folder.refused(format!("fit {FIT} m.json --checkpoint em.json"), &["posterior"]);
}

/// In standardised units, with a prior in units of the data, the fit is the library's. A fit from its posterior with
/// everything frozen returns it.
#[test]
fn standardised_units_and_frozen_parts() {
    let folder = folder();
    let x = clouds(&folder);
    let report = folder.fit(format!("{FIT} m.json --standardize --mean-prior -1,2"));
    let samples = gaussmix::data::Samples::from_f64(x.view()).unwrap();
    let standard = gaussmix::fit::Standardization::of(&samples).unwrap();
    let mut z = x.clone();
    standard.apply(z.view_mut(), |v| v);
    let params = BayesianGaussianMixtureParams::new(6).mean_prior(array![-1.0, 2.0]).standardized(&standard).unwrap();
    let expected = standard.restore_fit(&library(&z, &params).0).unwrap();
    let read = |name: &str| gaussmix::io::read_model_with_summary::<VariationalMixture>(folder.path(name)).unwrap().0;
    assert_eq!(read("m.json"), expected.mixture);
    assert_eq!(number(&report, "elbo"), expected.elbo());
    let frozen = folder
        .fit("x.npy --init m.json --variational --device reference -o same.json --freeze weights,means,covariances");
    assert_eq!(read("same.json").means(), expected.mixture.means());
    assert!((number(&frozen, "log_likelihood") - number(&report, "log_likelihood")).abs() < 1e-9 * 120.0);
}
