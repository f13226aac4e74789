//! Starts given by a caller, for one fit and for many, and selection among models of any method.
use crate::common::{blobs, go, of_classes, reference, watched};
use gmm_host::{
    Checked, CovarianceType, Em, Error, Evaluator, Fit, FitOptions, Fitting, GaussianMixtureParams, InitParams,
    ManyStarts, MapPrior, Mixture, Result, RunStart, Samples, Standardization, Starts, Statistics, Watch, fit_many,
};
use ndarray::{Array2, Axis, array};
use std::sync::Mutex;

/// Starts by number, and the driver's reports of the runs.
struct Given<M> {
    starts: Vec<RunStart<M>>,
    told: Vec<String>,
}

impl<M: Clone> Starts<M> for Given<M> {
    fn begin(&mut self, run: usize) {
        self.told.push(format!("begin {run}"));
    }

    fn start(&mut self, run: usize) -> Result<RunStart<M>> {
        self.told.push(format!("start {run}"));
        self.starts.get(run).cloned().ok_or(Error::Stopped)
    }

    fn end(&mut self, fit: &Fit<M>) {
        self.told.push(format!("end {}", fit.run));
    }
}

/// Returns the statistics of three clusters, by row number modulo 3.
fn clusters(x: &Array2<f64>) -> Statistics {
    let resp = of_classes(x.nrows(), 3, |i| i % 3);
    Statistics::from_responsibilities(x.view(), resp.view(), CovarianceType::Full).unwrap()
}

#[test]
fn a_fit_takes_starts_of_all_kinds() {
    let x = blobs(1, 120, 2);
    let params = GaussianMixtureParams::new(3).n_init(3).tol(0.0).max_iter(4);
    let model = params.clone().check().unwrap();
    let mut e = reference(x.view());
    let other = params.clone().n_init(1).random_state(9).max_iter(0).fit(&x).unwrap().mixture;
    let starts = vec![RunStart::Seed(7, 5), RunStart::At(other.clone(), 0.5), RunStart::Statistics(clusters(&x))];
    let mut given = Given { starts, told: Vec::new() };
    let mut bounds: Vec<Vec<f64>> = vec![Vec::new(); 3];
    let fit = model.fit_from(&mut e, &mut given, &mut |i| {
        bounds[i.run].push(i.lower_bound);
        go(i)
    });
    let fit = fit.unwrap();
    let told = ["begin 0", "start 0", "end 0", "begin 1", "start 1", "end 1", "begin 2", "start 2", "end 2"];
    assert_eq!(given.told, told);

    // The runs equal fits that begin there alone.
    let alone = |params: GaussianMixtureParams| params.n_init(1).fit(&mut reference(x.view())).unwrap();
    let of_other = alone(params.clone().start(other));
    let of_clusters = alone(params.clone().start_statistics(clusters(&x)));
    assert_eq!(bounds[2], of_clusters.lower_bounds);
    assert_eq!(bounds[1][1..], of_other.lower_bounds[1..]);
    assert_eq!(bounds[1][0], of_other.lower_bounds[0] + 0.5);
    let best = (0..3).max_by(|a, b| bounds[*a][3].total_cmp(&bounds[*b][3])).unwrap();
    assert!(bounds.iter().all(|run| run[3] <= fit.lower_bound()) && fit.lower_bounds == bounds[best]);
    // Stream 5 of seed 7 is run 5 of a fit with that seed.
    let mut sixth = Vec::new();
    let six = params.clone().n_init(6).random_state(7).check().unwrap();
    watched(&six, &mut e, |i| sixth.extend((i.run == 5).then_some(i.lower_bound)));
    assert_eq!(bounds[0], sixth);
}

#[test]
fn wrong_starts_are_refused_and_errors_end_the_fit() {
    let x = blobs(1, 60, 2);
    let model = GaussianMixtureParams::new(3).n_init(2).check().unwrap();
    let fit = |start: RunStart<Mixture>| {
        model.fit_from(&mut reference(x.view()), &mut Given { starts: vec![start], told: Vec::new() }, &mut go)
    };
    let other = |k: usize, d: usize, t| {
        let mean = Array2::from_shape_fn((k, d), |(c, j)| (c + j) as f64);
        let covariances = gmm_host::Covariances::from_vec(t, k, d, vec![1.0; t.shape(k, d).iter().product()]);
        Mixture::new(ndarray::Array1::from_elem(k, 1.0 / k as f64), mean, covariances.unwrap()).unwrap()
    };
    let shape = fit(RunStart::At(other(2, 2, CovarianceType::Diag), 0.0));
    assert!(matches!(shape, Err(Error::ShapeMismatch { what: "the start's means", .. })), "{shape:?}");
    let kind = fit(RunStart::At(other(3, 2, CovarianceType::Diag), 0.0));
    assert!(matches!(kind, Err(Error::WrongCovarianceType { .. })), "{kind:?}");
    // The second start does not exist.
    assert!(matches!(fit(RunStart::Seed(0, 0)), Err(Error::Stopped)));
}

#[test]
fn without_iterations_the_last_start_counts() {
    let x = blobs(1, 60, 2);
    let params = GaussianMixtureParams::new(2).init_params(InitParams::RandomFromData).max_iter(0);
    let last = params.clone().n_init(3).fit(&mut reference(x.view())).unwrap();
    let halved = params.clone().n_init(3).halving(true).fit(&mut reference(x.view())).unwrap();
    assert_eq!((halved.run, &halved.mixture), (2, &last.mixture));
    let model = params.check().unwrap();
    let third = Given { starts: vec![RunStart::Seed(0, 2)], told: Vec::new() };
    let alone = model.fit_from(&mut reference(x.view()), &mut { third }, &mut go).unwrap();
    assert_eq!((last.run, last.mixture), (2, alone.mixture));
}

/// Starts at clusters for even sets, and records the ended runs.
struct Many(Mutex<Vec<(usize, usize)>>);

impl ManyStarts<Mixture> for Many {
    fn seed(&self, set: usize, run: usize) -> Option<(u64, u64)> {
        Some((100 + set as u64, run as u64))
    }

    fn start(&self, set: usize, _: usize, samples: &Samples<'_>) -> Result<Option<RunStart<Mixture>>> {
        let rows: Vec<usize> = (0..samples.n_samples()).collect();
        let x = reference_rows(samples, &rows);
        Ok(set.is_multiple_of(2).then(|| RunStart::Statistics(clusters(&x))))
    }
}

fn reference_rows(samples: &Samples<'_>, rows: &[usize]) -> Array2<f64> {
    gmm_host::ReferenceEvaluator::new(samples.clone()).rows(rows).unwrap().x
}

impl Watch for Many {
    fn ended(&self, set: usize, fit: &Result<Fit>) {
        self.0.lock().unwrap().push((set, fit.as_ref().unwrap().run));
    }

    fn known(&self, set: usize, run: usize) -> Option<Fit> {
        // As from a checkpoint: a run with an impossibly good bound.
        (set == 3 && run == 1).then(|| {
            let mut fit =
                Fit::new(GaussianMixtureParams::new(3).max_iter(0).fit(blobs(3, 60, 2).view()).unwrap().mixture);
            (fit.lower_bounds, fit.run) = (vec![1e9], 1);
            fit
        })
    }
}

#[test]
fn many_fits_take_starts_and_each_has_its_options() {
    let x: Vec<Array2<f64>> = (0..4).map(|seed| blobs(seed, 60, 2)).collect();
    let sets: Vec<Samples<'_>> = x.iter().map(|x| Samples::from_f64(x.view()).unwrap()).collect();
    let tol = [0.0, 1e-3, 1e-2, 1e-1];
    let of = |set: usize| GaussianMixtureParams::new(3).n_init(2).max_iter(7).tol(tol[set]);
    let models: Vec<Checked<Fitting<Em>>> = (0..4).map(|set| of(set).check().unwrap()).collect();
    let many = Many(Mutex::new(Vec::new()));
    let fits = fit_many(&sets, &|set| &models[set], &many, &many);
    let mut ended = many.0.into_inner().unwrap();
    ended.sort_unstable();
    assert_eq!(ended, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)]);
    for (set, fit) in fits.iter().enumerate() {
        let fit = fit.as_ref().unwrap();
        match set {
            3 => assert_eq!((fit.run, &fit.lower_bounds[..]), (1, &[1e9][..])),
            set if set.is_multiple_of(2) => {
                let alone = of(set).n_init(1).start_statistics(clusters(&x[set])).fit(&sets[set]).unwrap();
                assert_eq!((&fit.mixture, &fit.lower_bounds), (&alone.mixture, &alone.lower_bounds));
            }
            set => {
                let alone = of(set).random_state(100 + set as u64).fit(&sets[set]).unwrap();
                assert_eq!((&fit.mixture, fit.run), (&alone.mixture, alone.run));
            }
        }
    }
}

#[test]
fn a_prior_in_the_units_of_the_data_is_that_of_standardised_samples() {
    let x = blobs(5, 90, 2) * &array![1.0, 1000.0];
    let samples = Samples::from_f64(x.view()).unwrap();
    let standard = Standardization::of(&samples).unwrap();
    let mut z = x.clone();
    standard.apply(z.view_mut(), |v| v);
    let mean = x.mean_axis(Axis(0)).unwrap().insert_axis(Axis(0));
    let scale = array![[[4.0, 0.0], [0.0, 4e6]]];
    let prior = MapPrior {
        mean: Some(mean),
        covariance: Some(gmm_host::Covariances::Full(scale)),
        mean_precision: 0.3,
        ..MapPrior::default()
    };
    let params = GaussianMixtureParams::new(2).reg_covar(0.0).tol(0.0).max_iter(20);
    let start = params.clone().max_iter(0).fit(&x).unwrap().mixture;
    let of_x = params.clone().prior(prior.clone()).start(start.clone()).fit(&x).unwrap().mixture;
    let in_z = standard.standardize(&start, CovarianceType::Full).unwrap();
    let of_z = params.prior(prior).standardized(&standard).unwrap().start(in_z).fit(&z).unwrap().mixture;
    let back = standard.restore(&of_z).unwrap();
    for (a, b) in of_x.covariances().iter().zip(back.covariances().iter()) {
        assert!((a - b).abs() < 1e-8 * (a.abs() + b.abs()).max(1.0), "{a} {b}");
    }
}

#[test]
fn initial_parameters_of_more_columns_are_refused_in_other_units() {
    let x = blobs(5, 30, 2);
    let standard = Standardization::of(&Samples::from_f64(x.view()).unwrap()).unwrap();
    let precisions = gmm_host::Covariances::Diag(Array2::ones((2, 3)));
    let params = GaussianMixtureParams::new(2).covariance_type(CovarianceType::Diag).precisions_init(precisions);
    assert!(matches!(params.standardized(&standard), Err(Error::ShapeMismatch { .. })));
}

#[test]
fn options_are_named_as_they_are_serialised() {
    assert!(FitOptions::NAMES.contains(&"halving") && Em::NAMES.contains(&"prior"));
    #[cfg(feature = "serde")]
    {
        let value = serde_json::to_value(GaussianMixtureParams::new(2)).unwrap();
        let mut names: Vec<&str> = FitOptions::NAMES.iter().chain(Em::NAMES).copied().collect();
        names.sort_unstable();
        assert_eq!(value.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>(), names);
    }
}
