//! Samples that may belong only to some components.
use crate::common::*;
use gmm_host::*;
use ndarray::{Array1, Array2, ArrayView2, Axis, array, concatenate};
use std::borrow::Borrow;

/// Returns sets of allowed components for the samples of three blobs, all sets in each blob.
fn mask(n: usize) -> Array2<bool> {
    let sets = [[true, true, true], [false, true, false], [true, false, true], [true, false, false]];
    Array2::from_shape_fn((n, 3), |(i, c)| sets[(i / 3) % 4][c])
}

fn on_the_cpu<'a>(x: &'a Array2<f64>, weights: &'a Option<Array1<f64>>, labels: Labels) -> LabelledEvaluator<'a> {
    LabelledEvaluator::new(samples(x, weights), labels, |part| Ok(Box::new(CpuEvaluator::with_threads(part, 1)?)))
        .unwrap()
}

fn samples<'a>(x: &'a Array2<f64>, weights: &'a Option<Array1<f64>>) -> Samples<'a> {
    let all = Samples::from_f64(x.view()).unwrap();
    match weights {
        Some(weights) => all.with_weights(weights.view()).unwrap(),
        None => all,
    }
}

/// Returns log πₖ N(xᵢ; μₖ, Σₖ) for allowed k, else −∞ (N, K), from mixtures of one component.
fn log_joint(x: ArrayView2<'_, f64>, mixture: &Mixture, mask: &Array2<bool>) -> Array2<f64> {
    let k = mixture.n_components();
    let mut all = Array2::from_elem((x.nrows(), k), f64::NEG_INFINITY);
    for c in 0..k {
        let means = mixture.means().select(Axis(0), &[c]);
        let one = Mixture::new(array![1.0], means, mixture.covariances().select(&[c]));
        let scores = ReferenceEvaluator::new(Samples::from_f64(x).unwrap()).score_samples(&one.unwrap()).unwrap();
        for (i, score) in scores.iter().enumerate().filter(|(i, _)| mask[[*i, c]]) {
            all[[i, c]] = mixture.weights()[c].ln() + score;
        }
    }
    all
}

fn log_sums(log_joint: &Array2<f64>) -> Array1<f64> {
    let most = log_joint.map_axis(Axis(1), |row| row.fold(f64::NEG_INFINITY, |most, v| most.max(*v)));
    let sums = (log_joint - &most.view().insert_axis(Axis(1))).exp().sum_axis(Axis(1));
    most + sums.ln()
}

/// Sums of 303 samples in another order, of numbers up to some hundreds.
const TOLERANCE: f64 = 1e-11;

#[track_caller]
fn close(what: &str, a: impl IntoIterator<Item: Borrow<f64>>, b: impl IntoIterator<Item: Borrow<f64>>) {
    assert_all_close(what, a, b, TOLERANCE, 1.0);
}

#[test]
fn every_operation_is_that_of_the_allowed_components() {
    let x = blobs(5, 303, 2);
    let mask = mask(303);
    for t in CovarianceType::ALL {
        let mixture = GaussianMixtureParams::new(3).covariance_type(t).max_iter(2).fit(&x).unwrap().mixture;
        for weights in [None, Some(Array1::from_shape_fn(303, |i| (i % 4) as f64))] {
            let mut data = on_the_cpu(&x, &weights, Labels::from_mask(mask.view()).unwrap());
            let w = weights.clone().unwrap_or_else(|| Array1::ones(303));
            let log_joint = log_joint(x.view(), &mixture, &mask);
            let scores = log_sums(&log_joint);
            let r = (&log_joint - &scores.view().insert_axis(Axis(1))).exp();
            close("scores", data.score_samples(&mixture).unwrap(), &scores);
            close("total", [data.log_likelihood(&mixture).unwrap()], [(&scores * &w).sum()]);
            let batch = [mixture.clone(), mixture.clone()];
            close("batch", data.log_likelihood_batch(&batch).unwrap(), [(&scores * &w).sum(); 2]);
            close("responsibilities", data.predict_proba(&mixture).unwrap(), &r);
            let labels = data.predict(&mixture).unwrap();
            assert!(labels.iter().enumerate().all(|(i, &c)| r.row(i).iter().all(|other| r[[i, c]] >= *other)));
            let expected =
                Statistics::from_responsibilities(x.view(), (r * w.view().insert_axis(Axis(1))).view(), t).unwrap();
            let found = data.statistics(&mixture).unwrap();
            close("weight", [found.weight(), data.total_weight()], [w.sum(); 2]);
            close("log-likelihood", [found.log_likelihood()], [(&scores * &w).sum()]);
            close("counts", found.counts(), expected.counts());
            close("means", found.means(), expected.means());
            close("scatter", found.scatter().iter(), expected.scatter().iter());
            let shared = data.share().unwrap().statistics(&mixture).unwrap();
            assert_eq!(shared.log_likelihood(), found.log_likelihood());
            let rows = data.rows(&[302, 0, 7]).unwrap();
            assert_eq!(rows.x, x.select(Axis(0), &[302, 0, 7]));
            assert_eq!(rows.weights, w.select(Axis(0), &[302, 0, 7]));
        }
    }
}

/// Two labelled samples of each blob decide which component is which; the bound rises.
#[test]
fn labels_name_the_components_from_any_start() {
    let x = blobs(6, 300, 2);
    let free = GaussianMixtureParams::new(3).fit(&x).unwrap().mixture;
    let blob = free.predict(&x).unwrap();
    let numbers = [2, 0, 1];
    let first = |b: usize| blob.iter().position(|other| *other == b).unwrap();
    let known: Vec<usize> = (0..3).flat_map(|b| [first(b), first(b) + 3]).collect();
    let labels: Vec<Option<usize>> =
        (0..300).map(|i| if known.contains(&i) { Some(numbers[blob[i]]) } else { None }).collect();
    let none = None;
    for t in CovarianceType::ALL {
        for init in InitParams::ALL {
            let mut data = on_the_cpu(&x, &none, Labels::new(&labels, 3).unwrap());
            let params = GaussianMixtureParams::new(3).covariance_type(t).init_params(init).tol(1e-9).max_iter(500);
            let (fit, found) = params.fit_predict(&mut data).unwrap();
            assert!(fit.lower_bounds.windows(2).all(|pair| pair[1] >= pair[0] - 1e-9), "{t} {init}");
            let right = found.iter().zip(&blob).filter(|(found, blob)| **found == numbers[**blob]).count();
            // From random responsibilities a fit may end elsewhere, but known labels stay.
            if init != InitParams::Random {
                assert_eq!(right, 300, "{t} {init}");
            }
            assert!(known.iter().all(|&i| Some(found[i]) == labels[i]), "{t} {init}");
        }
    }
}

/// One component is known, by one sample in a thousand, and two are not.
#[test]
fn a_rare_label_is_the_mean_of_its_component() {
    let x = blobs(7, 9000, 2);
    let blob = GaussianMixtureParams::new(3).fit(&x).unwrap().mixture.predict(&x).unwrap();
    let known: Vec<usize> = (0..9000).filter(|&i| blob[i] == 1).step_by(400).collect();
    let labels: Vec<Option<usize>> = (0..9000).map(|i| known.contains(&i).then_some(2)).collect();
    let mut data = on_the_cpu(&x, &None, Labels::new(&labels, 3).unwrap());
    let found = GaussianMixtureParams::new(3).fit_predict(&mut data).unwrap().1;
    assert!((0..9000).all(|i| (found[i] == 2) == (blob[i] == 1)));
}

/// Sets without a known sample: half of the blobs' samples are for two components, half for the third.
#[test]
fn sets_divide_the_components() {
    let x = blobs(8, 300, 2);
    let blob = GaussianMixtureParams::new(3).fit(&x).unwrap().mixture.predict(&x).unwrap();
    let mask = Array2::from_shape_fn((300, 3), |(i, c)| (c == 1) == (blob[i] == 0));
    let mut data = on_the_cpu(&x, &None, Labels::from_mask(mask.view()).unwrap());
    let found = GaussianMixtureParams::new(3).fit_predict(&mut data).unwrap().1;
    assert!((0..300).all(|i| mask[[i, found[i]]]));
    let of = |b: usize| blob.iter().position(|other| *other == b).unwrap();
    assert_ne!(found[of(1)], found[of(2)]);
}

/// With all labels known, the mixture is that of the classes.
#[test]
fn labels_of_all_samples_are_a_classifier() {
    let x = blobs(9, 90, 2);
    let labels: Vec<Option<usize>> = (0..90).map(|i| Some(i % 2)).collect();
    let mut data = on_the_cpu(&x, &None, Labels::new(&labels, 2).unwrap());
    let fit = GaussianMixtureParams::new(2).reg_covar(0.0).fit(&mut data).unwrap();
    let r = of_classes(90, 2, |i| i % 2);
    let expected = Statistics::from_responsibilities(x.view(), r.view(), CovarianceType::Full).unwrap();
    let expected = expected.to_mixture(0.0).unwrap();
    close("means", fit.mixture.means(), expected.means());
    close("covariances", fit.mixture.covariances().iter(), expected.covariances().iter());
    assert!(fit.converged && fit.n_iter() <= 2);
}

#[test]
fn variational_inference_and_missing_values_heed_labels() {
    let mut x = blobs(10, 300, 2);
    x.column_mut(0).iter_mut().step_by(7).for_each(|v| *v = f64::NAN);
    let labels: Vec<Option<usize>> = (0..300).map(|i| (i % 5 == 0).then_some(i % 3)).collect();
    let labels = Labels::new(&labels, 3).unwrap();
    let with = |part| Ok(Box::new(CpuEvaluator::with_threads(part, 1)?) as Box<dyn Evaluator + '_>);
    let samples = || Samples::with_missing(x.view()).unwrap();
    let mut data = LabelledEvaluator::new(samples(), labels.clone(), with).unwrap();
    let (fit, found) = GaussianMixtureParams::new(3).tol(1e-9).max_iter(300).fit_predict(&mut data).unwrap();
    assert!(fit.lower_bounds.windows(2).all(|pair| pair[1] >= pair[0] - 1e-9));
    assert!((0..300).step_by(5).all(|i| found[i] == i % 3));
    let fit = BayesianGaussianMixtureParams::new(3).tol(1e-9).max_iter(300).fit(&mut data).unwrap();
    assert!(fit.lower_bounds.windows(2).all(|pair| pair[1] >= pair[0] - 1e-9));
}

/// Samples are drawn by distance to all centres, whatever their labels, as one evaluator draws them.
#[test]
fn draws_are_those_without_labels() {
    let x = concatenate![Axis(0), blobs(11, 200, 2), array![[1e3, 1e3]]];
    let centres = Mixture::new(
        array![0.5, 0.5],
        x.slice(ndarray::s![..2, ..]).to_owned(),
        Covariances::Spherical(array![0.1, 0.1]),
    );
    let centres = centres.unwrap();
    let draw = Draw::new(&centres, 3, 20);
    let labels = Labels::from_mask(mask(201).view()).unwrap();
    let found = on_the_cpu(&x, &None, labels).draw(&draw).unwrap();
    let mut all = CpuEvaluator::with_threads(Samples::from_f64(x.view()).unwrap(), 1).unwrap();
    let expected = all.draw(&draw).unwrap();
    assert_eq!(found.iter().map(|d| d.row).collect::<Vec<_>>(), expected.iter().map(|d| d.row).collect::<Vec<_>>());
}

/// The derivative by a weight of zero is that by a tiny one.
#[test]
fn the_gradient_by_a_weight_of_zero_heeds_labels() {
    let x = blobs(13, 60, 2);
    let mut data = on_the_cpu(&x, &None, Labels::new(&[Some(0), None, None].repeat(20), 2).unwrap());
    let covariances = Covariances::Spherical(array![30.0, 50.0]);
    let mut of = |weights| {
        let mixture = Mixture::new(weights, array![[0.0, 0.0], [1.0, 2.0]], covariances.clone()).unwrap();
        mixture.gradient(&mut data as &mut dyn Evaluator).unwrap().weights
    };
    assert_all_close("weights", of(array![1.0, 0.0]), of(array![1.0 - 1e-12, 1e-12]), 1e-9, 1.0);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let x = blobs(12, 20, 2);
    let message = |error: Error| error.to_string();
    assert!(message(Labels::new(&[None, Some(3)], 3).unwrap_err()).contains("3 in row 1"));
    let none = Array2::from_shape_fn((4, 2), |(i, _)| i != 2);
    assert!(message(Labels::from_mask(none.view()).unwrap_err()).contains("row 2"));
    let labels = Labels::new(&vec![Some(1); 19], 3).unwrap();
    let load = |part| Ok(Box::new(ReferenceEvaluator::new(part)) as Box<dyn Evaluator>);
    assert!(LabelledEvaluator::new(Samples::from_f64(x.view()).unwrap(), labels, load).is_err());
    let labels = Labels::new(&vec![Some(1); 20], 3).unwrap();
    let mut data = LabelledEvaluator::new(Samples::from_f64(x.view()).unwrap(), labels, load).unwrap();
    let error = GaussianMixtureParams::new(2).fit(&mut data).unwrap_err();
    assert!(message(error).contains("labels"));
    let two = GaussianMixtureParams::new(2).fit(&x).unwrap().mixture;
    assert!(matches!(data.score_samples(&two), Err(Error::ShapeMismatch { .. })));
    // The samples' only allowed component has no weight.
    let variances = Covariances::Spherical(Array1::ones(3));
    let without = Mixture::new(array![0.5, 0.0, 0.5], Array2::zeros((3, 2)), variances).unwrap();
    assert!(matches!(data.log_likelihood(&without), Err(Error::UnreachableSample { row: 0 })));
}
