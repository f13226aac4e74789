//! EM matches scikit-learn 1.9.1 from the same start, after the same number of iterations.
use super::*;
use gmm_host::{GaussianMixtureParams, Predict};
use ndarray::ArrayD;
use ndarray_npy::NpzReader;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Relative to the value, or to the second number times the largest of its array if that is more (for rounding beside a
/// constant column). float64: another order of summation, up to 25 iterations; float32: data and log-densities.
const FLOAT64: (f64, f64) = (1e-8, 1e-4);
const FLOAT32: (f64, f64) = (1e-4, 1.0);

/// Returns this package's folder, even if the tests run on another machine than the one that built them.
fn package() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    if built.is_dir() { built } else { PathBuf::from(if Path::new("gmm-host").is_dir() { "gmm-host" } else { "." }) }
}

fn open(name: &str) -> NpzReader<File> {
    let path = package().join(format!("tests/data/{name}.npz"));
    NpzReader::new(File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
}

/// The samples of a data set.
pub fn samples(name: &str) -> Array2<f64> {
    open(name).by_name("x").unwrap()
}

fn covariances(npz: &mut NpzReader<File>, t: CovarianceType, key: &str, k: usize, d: usize) -> Covariances {
    let values: ArrayD<f64> = npz.by_name(&format!("{t}_{key}")).unwrap();
    Covariances::from_vec(t, k, d, Vec::from_iter(values)).unwrap()
}

/// Fits to a data set of `data/` from scikit-learn's start.
pub fn check(name: &str, t: CovarianceType, backend: &Backend) {
    let (tolerance, floor) = if backend.float32 { FLOAT32 } else { FLOAT64 };
    let agree = |what: &str, got: Vec<f64>, want: Vec<f64>| {
        let largest = want.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        assert_all_close(what, got, want, tolerance, floor * largest);
    };
    let mut npz = open(name);
    let x = samples(name);
    let array1 = |npz: &mut NpzReader<File>, key: &str| -> Array1<f64> { npz.by_name(&format!("{t}_{key}")).unwrap() };
    let lower_bounds = array1(&mut npz, "lower_bounds");
    let weights_init = array1(&mut npz, "weights_init");
    let means_init: Array2<f64> = npz.by_name(&format!("{t}_means_init")).unwrap();
    let (k, d) = means_init.dim();
    let model = GaussianMixtureParams::default()
        .n_components(k)
        .covariance_type(t)
        .tol(0.0)
        .max_iter(lower_bounds.len())
        .weights_init(weights_init)
        .means_init(means_init)
        .precisions_init(covariances(&mut npz, t, "precisions_init", k, d))
        .check()
        .unwrap();
    let mut evaluator = backend.evaluator(x.view(), None);
    let fit = model.fit(evaluator.as_mut()).unwrap();
    assert_eq!((fit.n_iter(), fit.converged, fit.retained.len()), (lower_bounds.len(), false, 0));
    agree("lower bounds", fit.lower_bounds.clone(), lower_bounds.to_vec());
    let mixture = &fit.mixture;
    agree("weights", mixture.weights().to_vec(), array1(&mut npz, "weights").to_vec());
    let means: Array2<f64> = npz.by_name(&format!("{t}_means")).unwrap();
    agree("means", mixture.supervector().to_vec(), means.into_iter().collect());
    let want = covariances(&mut npz, t, "covariances", k, d).iter().collect();
    agree("covariances", mixture.covariances().iter().collect(), want);
    let n_parameters: Array1<i64> = npz.by_name(&format!("{t}_n_parameters")).unwrap();
    assert_eq!(mixture.n_parameters() as i64, n_parameters[0]);
    let e = evaluator.as_mut();
    for (name, got) in [("score", mixture.score(&mut *e)), ("bic", mixture.bic(&mut *e)), ("aic", mixture.aic(&mut *e))]
    {
        agree(name, vec![got.unwrap()], array1(&mut npz, name).to_vec());
    }
}
