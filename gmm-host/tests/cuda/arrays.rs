//! Arrays in the memory of a real device. Every result has the same bits as for the same samples from the host.
use crate::common::{blobs, cuda, mixture};
use crate::gpu_harness::Test;
use gmm_core::data::frame::Float;
use gmm_driver::{Context, DeviceBuffer, Driver, Entered, Plain, Stream};
use gmm_host::{
    CovarianceType, Covariances, CudaEvaluator, CudaOptions, DeviceArray, Element, Error, Evaluator, Fit,
    GaussianMixtureParams, HostArray, Mixture, Operation, Precision, Samples,
};
use ndarray::{Array1, Array2, ArrayView2, ShapeBuilder, array, s};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub fn tests() -> Vec<Test> {
    vec![
        ("every_layout_and_type", every_layout_and_type),
        ("many_columns_and_few_rows", many_columns_and_few_rows),
        ("weights", weights),
        ("fits", fits),
        ("float64_where_float32_does_not_suffice", float64_where_float32_does_not_suffice),
        ("a_copy_is_independent", a_copy_is_independent),
        ("to_host", to_host),
        ("not_finite", not_finite),
        ("what_cannot_be_taken", what_cannot_be_taken),
        ("the_memory_is_held_as_long_as_it_is_needed", the_memory_is_held_as_long_as_it_is_needed),
    ]
}

trait Number: Float + Element + Plain + Default {}

impl Number for f32 {}

impl Number for f64 {}

fn enter() -> (Context, Entered) {
    let context = Context::new(Driver::load().unwrap().device(0).unwrap()).unwrap();
    let entered = context.enter().unwrap();
    (context, entered)
}

/// Returns a copy of the array's memory on the device, and a pointer to its first element.
fn upload<T: Number>(x: ArrayView2<'_, T>) -> (DeviceBuffer<T>, *const T) {
    let (n, d) = x.dim();
    let corners = [(0, 0), (n - 1, 0), (0, d - 1), (n - 1, d - 1)].map(|ij| &raw const x[ij]);
    let (first, last) = corners.iter().fold((corners[0], corners[0]), |(a, b), &p| (a.min(p), b.max(p)));
    // SAFETY: both are elements of the array's one allocation.
    let (all, offset) = unsafe {
        (std::slice::from_raw_parts(first, last.offset_from(first) as usize + 1), x.as_ptr().offset_from(first))
    };
    let (context, _entered) = enter();
    let buffer = DeviceBuffer::from_slice(&context, all).unwrap();
    let pointer = buffer.as_device_ptr().wrapping_offset(offset).cast_const();
    (buffer, pointer)
}

/// Returns the same samples on the device, with the same strides.
fn on_device<T: Number>(x: ArrayView2<'_, T>) -> DeviceArray {
    let (buffer, pointer) = upload(x);
    let strides = [x.strides()[0], x.strides()[1]];
    // SAFETY: the buffer holds all elements between the first and the last; it is initialised and never written again.
    unsafe { DeviceArray::new(pointer.cast(), <T as Float>::PRECISION, x.dim().into(), strides, 0, Arc::new(buffer)) }
        .unwrap()
}

fn evaluator(array: DeviceArray) -> CudaEvaluator<'static> {
    CudaEvaluator::from_device_array(array, &CudaOptions::default()).unwrap()
}

fn from_host<'a>(samples: Samples<'a>) -> CudaEvaluator<'a> {
    cuda(samples, None, None)
}

/// Returns the samples by rows, by columns, as every other row and column of a larger array, and backwards.
fn layouts<T: Number>(x: &Array2<f64>) -> Vec<Array2<T>> {
    let (n, d) = x.dim();
    let by_rows = x.mapv(T::from_f64);
    let by_columns = Array2::from_shape_fn((n, d).f(), |ij| by_rows[ij]);
    let mut wide = Array2::from_elem((2 * n, 2 * d), T::from_f64(f64::NAN));
    wide.slice_mut(s![..;2, ..;2]).assign(&by_rows);
    wide.slice_collapse(s![..;2, ..;2]);
    let mut backwards = Array2::from_shape_fn((n, d), |(i, j)| by_rows[[n - 1 - i, d - 1 - j]]);
    backwards.slice_collapse(s![..;-1, ..;-1]);
    vec![by_rows, by_columns, wide, backwards]
}

/// Fails unless both evaluators return the same bits for everything.
fn assert_same(what: &str, a: &mut dyn Evaluator, b: &mut dyn Evaluator, m: &Mixture) {
    assert_eq!((a.n_samples(), a.n_features(), a.total_weight()), (b.n_samples(), b.n_features(), b.total_weight()));
    assert_eq!(a.log_likelihood(m).unwrap(), b.log_likelihood(m).unwrap(), "{what}: log-likelihood");
    assert_eq!(a.score_samples(m).unwrap(), b.score_samples(m).unwrap(), "{what}: scores");
    assert_eq!(a.predict(m).unwrap(), b.predict(m).unwrap(), "{what}: labels");
    assert_eq!(a.predict_proba(m).unwrap(), b.predict_proba(m).unwrap(), "{what}: responsibilities");
    assert_eq!(a.statistics(m).unwrap(), b.statistics(m).unwrap(), "{what}: statistics");
    let n = a.n_samples();
    let rows = [n - 1, 0, n / 2, n / 2];
    let (a, b) = (a.rows(&rows).unwrap(), b.rows(&rows).unwrap());
    assert_eq!((a.x, a.weights), (b.x, b.weights), "{what}: rows");
}

fn every_layout_and_type() {
    fn check<T: Number>() {
        for (n, d) in [(1, 1), (513, 3), (50_001, 13)] {
            let m = mixture(1, CovarianceType::Full, 3, d, 0.0);
            for x in layouts::<T>(&blobs(2, n, d)) {
                let what = format!("{:?} {n} × {d}, strides {:?}", <T as Float>::PRECISION, x.strides());
                let mut device = evaluator(on_device(x.view()));
                assert!(device.is_resident() && device.describe().device.starts_with("cuda:0"));
                assert_same(&what, &mut device, &mut from_host(T::samples(x.view(), false).unwrap()), &m);
            }
        }
    }
    check::<f32>();
    check::<f64>();
}

fn many_columns_and_few_rows() {
    let x = blobs(3, 40, 1030).mapv(|v| v as f32);
    let m = mixture(4, CovarianceType::Diag, 2, 1030, 0.0);
    assert_same(
        "D = 1030",
        &mut evaluator(on_device(x.view())),
        &mut from_host(Samples::from_f32(x.view()).unwrap()),
        &m,
    );
}

fn weights() {
    let x = blobs(5, 3001, 4).mapv(|v| v as f32);
    let w = Array1::from_shape_fn(3001, |i| (i % 7) as f64 * 0.37);
    let samples = Samples::from_f32(x.view()).unwrap().with_weights(w.view()).unwrap();
    let array = on_device(x.view());
    let m = mixture(6, CovarianceType::Tied, 3, 4, 0.0);
    let weighted = array.clone().with_weights(w.to_shared()).unwrap();
    assert_same("weights", &mut evaluator(weighted), &mut from_host(samples), &m);
    let refused = array.with_weights(Array1::zeros(3001).into_shared()).unwrap_err();
    assert!(matches!(refused, Error::ZeroSampleWeights), "{refused}");
}

fn fits() {
    let fit = |evaluator: &mut dyn Evaluator| -> Fit {
        GaussianMixtureParams::new(3).max_iter(20).random_state(7).fit(evaluator).unwrap()
    };
    // Fewer samples than the start's subset, and more.
    for n in [2000, 60_000] {
        let x = blobs(8, n, 5);
        let (a, b) =
            (fit(&mut evaluator(on_device(x.view()))), fit(&mut from_host(Samples::from_f64(x.view()).unwrap())));
        assert_eq!((a.mixture, a.lower_bounds), (b.mixture, b.lower_bounds), "N={n}");
    }
}

/// Returns a mixture that needs more digits than float32 has: narrow components far from the centre of the samples.
fn narrow() -> (Array2<f32>, Mixture) {
    let x = Array2::from_shape_fn((4000, 2), |(i, _)| {
        (if i % 2 == 0 { 1000.0f32 } else { -1000.0 }) + (i as f32).sin() * 1e-2
    });
    let means = array![[1000.0, 1000.0], [-1000.0, -1000.0]];
    (x, Mixture::new(array![0.5, 0.5], means, Covariances::Spherical(array![1e-4, 1e-4])).unwrap())
}

fn float64_where_float32_does_not_suffice() {
    let (x, m) = narrow();
    let mut device = evaluator(on_device(x.view()));
    assert_eq!(device.precision(&m, Operation::LogLikelihood), Precision::Float64);
    let mut host = from_host(Samples::from_f32(x.view()).unwrap());
    assert_same("narrow components", &mut device, &mut host, &m);
    assert!(device.describe().device.contains("float64"), "{:?}", device.describe());
    // All in float64, as requested.
    let wide = mixture(9, CovarianceType::Diag, 2, 2, 0.0);
    let mut host = from_host(Samples::from_f32(x.view()).unwrap().into_float64());
    assert_same("in float64", &mut evaluator(on_device(x.view()).in_float64()), &mut host, &wide);
}

fn a_copy_is_independent() {
    let (x, m) = narrow();
    let (buffer, pointer) = upload(x.view());
    // SAFETY: the buffer holds all elements; it is overwritten below, when only the copy is in use.
    let array =
        unsafe { DeviceArray::new(pointer.cast(), Precision::Float32, [4000, 2], [2, 1], 0, Arc::new(())) }.unwrap();
    let copy = array.copied().unwrap();
    drop(array);
    let mut evaluator = evaluator(copy);
    let (context, _entered) = enter();
    let stream = Stream::new(&context).unwrap();
    // SAFETY: the buffer holds 8000 numbers, and the copy is waited for.
    unsafe { stream.copy_to_device(buffer.as_device_ptr(), &[0.0f32; 8000]).unwrap() };
    stream.synchronize().unwrap();
    // The rows and the float64 samples come from the copy.
    assert_same("a copy", &mut evaluator, &mut from_host(Samples::from_f32(x.view()).unwrap()), &m);
}

fn to_host() {
    for x in layouts::<f32>(&blobs(10, 700, 19)) {
        let HostArray::F32(host) = on_device(x.view()).to_host().unwrap() else { panic!() };
        assert_eq!(host, x);
    }
    // More than one copy's portion.
    let x = Array2::from_shape_fn((3_000_000, 2), |(i, j)| (2 * i + j) as f64);
    let HostArray::F64(host) = on_device(x.view()).to_host().unwrap() else { panic!() };
    assert_eq!(host, x);
}

fn not_finite() {
    for (row, column, value) in [(0, 0, f64::NAN), (70_000, 18, f64::INFINITY), (4097, 3, f64::NEG_INFINITY)] {
        let mut x = blobs(11, 70_001, 19);
        x[[row, column]] = value;
        x[[70_000, 18]] = f64::INFINITY;
        for x in [x.clone(), Array2::from_shape_fn(x.raw_dim().f(), |ij| x[ij])] {
            let error = CudaEvaluator::from_device_array(on_device(x.view()), &CudaOptions::default()).unwrap_err();
            let host = Samples::from_f64(x.view()).unwrap_err();
            assert_eq!(error.to_string(), host.to_string());
        }
    }
}

fn what_cannot_be_taken() {
    let x = blobs(12, 5000, 4);
    let (buffer, pointer) = upload(x.view());
    let owner = Arc::new(());
    let new = |pointer: *const f64, shape, ordinal| {
        // SAFETY: the buffer holds this many elements, and outlives the array.
        unsafe { DeviceArray::new(pointer.cast(), Precision::Float64, shape, [4, 1], ordinal, owner.clone()) }
    };
    let error = new(pointer.wrapping_byte_add(4), [4000, 4], 0).unwrap_err().to_string();
    assert!(error.contains("not a multiple of 8 bytes"), "{error}");
    assert!(matches!(new(pointer, [0, 4], 0), Err(Error::EmptyData { rows: 0, columns: 4 })));
    let elsewhere = new(pointer, [5000, 4], 99).unwrap();
    let error = CudaEvaluator::from_device_array(elsewhere, &CudaOptions::default()).unwrap_err();
    assert!(matches!(error, Error::NoCudaDevice { .. }) && error.to_string().contains("99"), "{error}");
    let limited = CudaOptions::default().with_memory_limit(100_000);
    let error = CudaEvaluator::from_device_array(new(pointer, [5000, 4], 0).unwrap(), &limited).unwrap_err();
    assert!(error.to_string().contains("100000 bytes of GPU memory"), "{error}");
    drop(buffer);
}

fn the_memory_is_held_as_long_as_it_is_needed() {
    struct Owner(DeviceBuffer<f32>, Arc<AtomicBool>);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.1.store(true, Ordering::SeqCst);
        }
    }
    let x = blobs(13, 1000, 2).mapv(|v| v as f32);
    let ((buffer, pointer), dropped) = (upload(x.view()), Arc::new(AtomicBool::new(false)));
    let owner = Arc::new(Owner(buffer, dropped.clone()));
    assert_eq!(owner.0.len(), 2000);
    // SAFETY: the owner's buffer holds all elements.
    let array = unsafe { DeviceArray::new(pointer.cast(), Precision::Float32, [1000, 2], [2, 1], 0, owner) }.unwrap();
    let evaluator = evaluator(array.clone());
    drop(array);
    assert!(!dropped.load(Ordering::SeqCst));
    drop(evaluator);
    assert!(dropped.load(Ordering::SeqCst));
}
