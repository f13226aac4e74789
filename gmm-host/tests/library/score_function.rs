//! The score function, against differences of log-densities.
use crate::common::*;
use gmm_host::{
    BayesianGaussianMixtureParams, CovarianceType, Covariances, Device, Error, Evaluator, LoadOptions, Mixture, Noise,
    Predict, Samples, load, load_chunks,
};
use ndarray::{Array2, ArrayView1, Axis, array, concatenate, s};

const NAN: f64 = f64::NAN;

fn log_density(m: &Mixture, x: ArrayView1<'_, f64>) -> f64 {
    reference(x.insert_axis(Axis(0))).score_samples(m).unwrap()[0]
}

/// Returns central differences with steps of `h`, whose error is h² times third derivatives, and rounding over h.
fn by_differences(m: &Mixture, x: &Array2<f64>, h: f64) -> Array2<f64> {
    Array2::from_shape_fn(x.dim(), |(i, j)| {
        let at = |step: f64| {
            let mut moved = x.row(i).to_owned();
            moved[j] += step;
            log_density(m, moved.view())
        };
        (at(h) - at(-h)) / (2.0 * h)
    })
}

#[test]
fn it_is_the_differences_of_log_densities() {
    for covariance_type in CovarianceType::ALL {
        // More samples than a block, one sample, one component, one feature, and far from the origin.
        for (n, k, d, offset) in [(150, 3, 4, 0.0), (1, 3, 4, 0.0), (20, 1, 3, 0.0), (20, 3, 1, 0.0), (20, 3, 4, 1e4)] {
            let m = mixture(n as u64, covariance_type, k, d, offset);
            let x = normal(2, n, d, offset);
            let right = by_differences(&m, &x, 1e-4);
            // Log-densities of some tens rounded to 10⁻¹⁵, and samples at 10⁴ to 10⁻¹², over the step; and its square.
            let tolerance = if offset == 0.0 { 1e-6 } else { 1e-5 };
            for device in [Device::Cpu, Device::Reference] {
                assert_all_close("score function", m.on(device).score_function(&x).unwrap(), &right, tolerance, 1.0);
            }
            // float32: the function at the rounded samples.
            let rounded = x.mapv(|v| v as f32);
            let right = by_differences(&m, &rounded.mapv(f64::from), 1e-4);
            let of_rounded = m.on(Device::Cpu).score_function(&rounded).unwrap();
            assert_all_close("score function of float32", of_rounded, right, 1e-3, 1.0);
        }
    }
}

#[test]
fn of_many_samples_it_is_that_of_each() {
    let m = mixture(1, CovarianceType::Full, 2, 3, 0.0);
    let x = normal(5, 20_000, 3, 0.0);
    let all = m.on(Device::Cpu).score_function(&x).unwrap();
    for row in [0, 127, 128, 16_383, 16_384, 19_999] {
        let alone = m.on(Device::Cpu).score_function(x.slice(s![row..=row, ..])).unwrap();
        assert_all_close("row", alone, all.row(row), 1e-12, 1.0);
    }
    // Chunk by chunk, for samples that exceed the memory.
    let small = LoadOptions::default().memory(100_000);
    let mut chunks = load(Device::Cpu, Samples::from_f64(x.view()).unwrap(), &small).unwrap();
    assert_all_close("chunks", m.score_function(chunks.as_mut()).unwrap(), all, 1e-12, 1.0);
}

#[test]
fn with_missing_values_it_is_that_of_what_is_observed() {
    let mut holes = normal(3, 200, 4, 0.0);
    holes.indexed_iter_mut().filter(|((i, j), _)| (i * 7 + j * 3) % 5 == 0).for_each(|(_, v)| *v = NAN);
    let holes = concatenate![Axis(0), holes, array![[NAN, NAN, NAN, NAN], [1.0, NAN, NAN, NAN]]];
    for covariance_type in CovarianceType::ALL {
        let m = mixture(4, covariance_type, 3, 4, 0.0);
        let samples = Samples::with_missing(holes.view()).unwrap();
        let found = m.on(Device::Cpu).score_function(&samples).unwrap();
        for (x, found) in holes.outer_iter().zip(found.outer_iter()) {
            let observed: Vec<usize> = (0..4).filter(|j| !x[*j].is_nan()).collect();
            let mut right = ndarray::Array1::zeros(4);
            if !observed.is_empty() {
                let x = x.select(Axis(0), &observed).insert_axis(Axis(0));
                let of_observed = by_differences(&m.marginal(&observed).unwrap(), &x, 1e-4);
                observed.iter().zip(&of_observed).for_each(|(j, v)| right[*j] = *v);
            }
            assert_all_close("score function", &found, right, 1e-6, 1.0);
        }
    }
}

#[test]
fn a_variational_mixture_has_that_of_its_density() {
    let x = blobs(1, 60, 2);
    let fit = BayesianGaussianMixtureParams::new(2).fit(&x).unwrap();
    let right = fit.mixture.density().score_function(&x).unwrap();
    assert_eq!(fit.mixture.score_function(&x).unwrap(), right);
}

#[test]
fn what_cannot_be_is_an_error() {
    let m = mixture(1, CovarianceType::Diag, 2, 3, 0.0);
    let wrong = m.score_function(&array![[1.0, 2.0]]).unwrap_err();
    assert!(matches!(wrong, Error::ShapeMismatch { .. }), "{wrong}");
    let x = normal(5, 600, 3, 0.0);
    let samples = Samples::from_f64(x.view()).unwrap().with_noise(Noise::common(Array2::eye(3)).unwrap()).unwrap();
    let within = load(Device::Cpu, samples.reborrow(), &LoadOptions::default().memory(1)).unwrap();
    let read = |rows| Ok(samples.rows(rows));
    let chunks = load_chunks(Device::Cpu, (600, 3), 300, read, &LoadOptions::new()).unwrap();
    for mut data in [within, Box::new(chunks)] {
        let noisy = m.score_function(data.as_mut()).unwrap_err();
        assert!(matches!(noisy, Error::Unsupported { .. }), "{noisy}");
    }
}

/// Where the density is zero in float64, the slope is that of the nearest component.
#[test]
fn a_sample_that_no_component_reaches_has_a_slope() {
    let m = Mixture::new(array![0.5, 0.5], array![[0.0], [1.0]], Covariances::Spherical(array![1.0, 4.0])).unwrap();
    assert_eq!(m.on(Device::Cpu).score_function(&array![[0.0], [1e200]]).unwrap()[[1, 0]], -0.25e200);
}
