//! Many fits in one call: each is the fit of its set alone.
use crate::common::*;
use gmm_host::{
    BayesianGaussianMixtureParams, CovarianceType, Device, Error, Fit, GaussianMixtureParams, Mixture, Result, Samples,
    Watch,
};
use ndarray::{Array1, Array2, s};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Groups of many sizes; the last has more work than all others together.
const SIZES: [usize; 9] = [2, 700, 31, 64, 5, 3, 1000, 33, 60_000];

/// Returns samples with the rows of each group scattered, and their groups.
fn grouped() -> (Array2<f64>, Vec<usize>) {
    let mut left = SIZES;
    let mut group = Vec::new();
    while left.iter().any(|n| *n > 0) {
        for (g, left) in left.iter_mut().enumerate().filter(|(_, left)| **left > 0) {
            *left -= 1;
            group.push(g);
        }
    }
    (blobs(3, group.len(), 3), group)
}

fn of_group<T: Clone>(values: &[T], group: &[usize], g: usize) -> Vec<T> {
    values.iter().zip(group).filter(|(_, of)| **of == g).map(|(v, _)| v.clone()).collect()
}

fn bits(fit: &Fit) -> Vec<u64> {
    let (weights, means) = (fit.mixture.weights(), fit.mixture.means());
    let numbers = weights.iter().chain(&means).copied().chain(fit.mixture.covariances().iter());
    numbers.chain(fit.lower_bounds.iter().copied()).map(f64::to_bits).collect()
}

fn assert_same(what: &str, many: &Result<Fit>, alone: &Result<Fit>) {
    match (many, alone) {
        (Ok(many), Ok(alone)) => assert_eq!(bits(many), bits(alone), "{what}"),
        (many, alone) => {
            assert_eq!(many.as_ref().unwrap_err().to_string(), alone.as_ref().unwrap_err().to_string(), "{what}")
        }
    }
}

#[test]
fn each_fit_is_that_of_its_set_alone_on_any_number_of_threads() {
    let (x, group) = grouped();
    let x32 = x.mapv(|v| v as f32);
    let weights = Array1::from_shape_fn(x.nrows(), |i| 0.5 + (i % 7) as f64);
    for t in CovarianceType::ALL {
        let params = GaussianMixtureParams::new(4).covariance_type(t).device(Device::Cpu).n_init(2).random_state(5);
        let of = |samples: Samples<'_>, weighted: bool| {
            let all = if weighted { samples.with_shared_weights(weights.to_shared()).unwrap() } else { samples };
            let sets = all.groups(&group, SIZES.len()).unwrap();
            let runs = [1, 2, 5].map(|n| with_threads(n, || params.fit_many(&sets, &()).unwrap()));
            for (g, set) in sets.iter().enumerate() {
                assert_eq!(set.n_samples(), SIZES[g]);
                let alone = params.fit(set);
                runs.iter().for_each(|fits| assert_same(&format!("{t}, group {g}"), &fits[g], &alone));
            }
            runs.into_iter().next().unwrap()
        };
        let fits = of(Samples::from_f64(x.view()).unwrap(), false);
        of(Samples::from_f32(x32.view()).unwrap(), true);
        // Groups with fewer samples than components return an error; all others are fitted.
        for (fit, size) in fits.iter().zip(SIZES) {
            match fit {
                Ok(fit) => assert!(size >= 4 && fit.n_iter() > 0),
                Err(error) => assert!(matches!(error, Error::TooFewSamples { n_samples, .. } if *n_samples == size)),
            }
        }
        // Sets of samples that are not cut out of others give the same.
        let rows: Vec<usize> = of_group(&(0..x.nrows()).collect::<Vec<_>>(), &group, 1);
        let own = Array2::from_shape_fn((rows.len(), 3), |(i, j)| x[[rows[i], j]]);
        assert_same(&format!("{t}, a copy of group 1"), &fits[1], &params.fit(&own));
    }
}

#[test]
fn missing_values_and_variational_fits_too() {
    let (mut x, group) = grouped();
    x.iter_mut().step_by(11).for_each(|v| *v = f64::NAN);
    let sets = Samples::with_missing(x.view()).unwrap().groups(&group, SIZES.len()).unwrap();
    for t in [CovarianceType::Full, CovarianceType::Diag] {
        let params = GaussianMixtureParams::new(2).covariance_type(t).device(Device::Cpu).max_iter(5);
        let fits = with_threads(2, || params.fit_many(&sets, &()).unwrap());
        for (g, set) in sets.iter().enumerate().take(8) {
            assert_same(&format!("{t}, group {g}"), &fits[g], &params.fit(set));
        }
        let params = BayesianGaussianMixtureParams::new(2).covariance_type(t).device(Device::Cpu).max_iter(5);
        let fits = with_threads(2, || params.fit_many(&sets, &()).unwrap());
        for (g, set) in sets.iter().enumerate().take(8) {
            match (&fits[g], &params.fit(set)) {
                (Ok(many), Ok(alone)) => assert_eq!(many.lower_bounds, alone.lower_bounds, "{t}, group {g}"),
                (many, alone) => assert_eq!(many.is_ok(), alone.is_ok(), "{t}, group {g}"),
            }
        }
    }
}

#[test]
fn groups_keep_the_order_of_rows_and_refuse_what_is_no_group() {
    let (x, group) = grouped();
    let weights = Array1::from_shape_fn(x.nrows(), |i| i as f64);
    let samples = Samples::from_f64(x.view()).unwrap().with_weights(weights.view()).unwrap();
    let sets = samples.groups(&group, SIZES.len()).unwrap();
    for (g, set) in sets.iter().enumerate() {
        assert_eq!(set.weights().unwrap().to_vec(), of_group(&weights.to_vec(), &group, g));
    }
    // Rows in order already are not copied.
    let part = Samples::from_f64(x.slice(s![..6, ..])).unwrap();
    let sets = part.groups(&[0, 0, 1, 1, 1, 2], 3).unwrap();
    let gmm_host::View::F64(second) = sets[1].view() else { panic!("float64") };
    assert!(std::ptr::eq(&second[[0, 0]], &x[[2, 0]]));
    let error = |group: &[usize], n| part.groups(group, n).unwrap_err().to_string();
    assert!(error(&[0; 5], 1).contains("the groups of the samples"), "{}", error(&[0; 5], 1));
    assert!(error(&[0, 0, 0, 0, 0, 3], 3).contains('3'));
    // A group without samples.
    assert!(part.groups(&[0, 0, 0, 2, 2, 2], 3).is_err());
}

#[derive(Default)]
struct Stopping {
    after: usize,
    ended: Mutex<Vec<usize>>,
    asked: AtomicUsize,
}

impl Watch for Stopping {
    fn ended(&self, set: usize, result: &Result<Fit<Mixture>>) {
        assert!(!matches!(result, Err(Error::Stopped)));
        self.ended.lock().unwrap().push(set);
    }
    fn stop(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.ended.lock().unwrap().len() >= self.after
    }
}

#[test]
fn what_is_done_is_kept_when_the_others_are_stopped() {
    let x = blobs(4, 4000, 2);
    let group: Vec<usize> = (0..4000).map(|i| i / 40).collect();
    let sets = Samples::from_f64(x.view()).unwrap().groups(&group, 100).unwrap();
    let params = GaussianMixtureParams::new(2).device(Device::Cpu);
    let watch = Stopping { after: 30, ..Stopping::default() };
    let fits = with_threads(2, || params.fit_many(&sets, &watch).unwrap());
    let mut ended = watch.ended.into_inner().unwrap();
    ended.sort_unstable();
    // The other thread may have ended one more.
    assert!((30..=31).contains(&ended.len()), "{}", ended.len());
    for (g, fit) in fits.iter().enumerate() {
        match ended.contains(&g) {
            true => assert_eq!(bits(fit.as_ref().unwrap()), bits(&params.fit(&sets[g]).unwrap())),
            false => assert!(matches!(fit, Err(Error::Stopped))),
        }
    }
    // A fit interrupted between two iterations is given up too.
    let one = Samples::from_f64(x.view()).unwrap();
    let watch = Stopping { after: 0, ..Stopping::default() };
    assert!(matches!(params.fit_many(&[one], &watch).unwrap()[0], Err(Error::Stopped)));
    assert!(params.fit_many(&[], &()).unwrap().is_empty());
    assert!(GaussianMixtureParams::new(0).fit_many(&sets, &()).is_err());
}
