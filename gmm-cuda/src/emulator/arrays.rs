//! Arrays already on the device (`array_ranges`, `array_columns`, `array_rows`) give the bits of samples from the host.
use crate::device::gpu::Gpu;
use crate::device::memory::copied;
use crate::{CudaEvaluator, CudaOptions, DeviceArray, HostArray};
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::data::frame::Float;
use gmm_core::data::samples::{Element, Samples};
use gmm_core::error::Error;
use gmm_driver::Plain;
use ndarray::{Array2, ArrayView2, ShapeBuilder, s};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

trait Number: Float + Element + Plain + Default {}

impl Number for f32 {}

impl Number for f64 {}

/// Returns the samples by rows, by columns, as every other row and column, and backwards.
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

/// Returns the same samples on the device, with the same strides.
fn on_device<T: Number>(x: ArrayView2<'_, T>) -> DeviceArray {
    let (n, d) = x.dim();
    let corners = [(0, 0), (n - 1, 0), (0, d - 1), (n - 1, d - 1)].map(|ij| &raw const x[ij]);
    let (first, last) = corners.iter().fold((corners[0], corners[0]), |(a, b), &p| (a.min(p), b.max(p)));
    // SAFETY: both are elements of the array's one allocation.
    let (all, offset) = unsafe {
        (std::slice::from_raw_parts(first, last.offset_from(first) as usize + 1), x.as_ptr().offset_from(first))
    };
    let _entered = Gpu::open(0).unwrap().enter().unwrap();
    let buffer = copied(all).unwrap();
    let pointer = buffer.as_device_ptr().wrapping_offset(offset);
    let strides = [x.strides()[0], x.strides()[1]];
    // SAFETY: the buffer holds all elements between the first and the last; it is initialised and never written again.
    unsafe { DeviceArray::new(pointer.cast(), <T as Float>::PRECISION, [n, d], strides, 0, Arc::new(buffer)) }.unwrap()
}

/// Returns numbers far from zero, of two magnitudes, so that frame and columns round.
fn numbers(n: usize, d: usize) -> Array2<f64> {
    Array2::from_shape_fn((n, d), |(i, j)| {
        1e3 * (j as f64 - 3.0) + ((i * (2 * d + 1) + 7 * j) as f64).sin() * 10f64.powi(j as i32 % 5 - 2)
    })
}

fn check<T: Number>() {
    // One sample; two blocks of columns; more rows than threads, and than are read.
    for (n, d) in [(1, 1), (5, 17), (1100, 3)] {
        let mixture = super::random_mixture(&mut ChaCha8Rng::seed_from_u64(1), 2, d);
        let rows: Vec<usize> = (0..n).step_by(3).collect();
        for x in layouts::<T>(&numbers(n, d)) {
            let what = format!("{:?} {n} × {d}, strides {:?}", <T as Float>::PRECISION, x.strides());
            let samples = T::samples(x.view(), false).unwrap();
            let array = on_device(x.view());
            let copy = match array.to_host().unwrap() {
                HostArray::F32(copy) => copy.mapv(f64::from),
                HostArray::F64(copy) => copy,
            };
            assert_eq!(copy, x.mapv(Into::into), "{what}");
            for options in [CudaOptions::default(), CudaOptions::default().with_kernel(Some("general".into()))] {
                let mut from_host = CudaEvaluator::new(samples.clone(), 0, &options).unwrap();
                let mut from_device = CudaEvaluator::from_device_array(array.clone(), &options).unwrap();
                assert_eq!(from_device.score_samples(&mixture).unwrap(), from_host.score_samples(&mixture).unwrap());
                assert_eq!(from_device.statistics(&mixture).unwrap(), from_host.statistics(&mixture).unwrap());
                let [here, there] = [from_host.rows(&rows).unwrap(), from_device.rows(&rows).unwrap()];
                assert_eq!(format!("{here:?}"), format!("{there:?}"), "{what}: rows");
            }
        }
    }
}

#[test]
fn float32_arrays() {
    check::<f32>();
}

#[test]
fn float64_arrays() {
    check::<f64>();
}

#[test]
fn the_first_element_that_is_not_finite_is_the_host_s() {
    let check = |kinds: usize, bad: &[((usize, usize), f64)]| {
        let mut x = numbers(300, 18);
        bad.iter().for_each(|&(place, value)| x[place] = value);
        for x in layouts::<f32>(&x).into_iter().take(kinds) {
            let host = Samples::from_f32(x.view()).unwrap_err();
            let device = CudaEvaluator::from_device_array(on_device(x.view()), &CudaOptions::default()).unwrap_err();
            assert!(matches!(host, Error::NonFiniteSample { .. }));
            assert_eq!(device.to_string(), host.to_string());
        }
    };
    check(1, &[((0, 0), f64::NAN)]);
    check(1, &[((299, 17), f64::INFINITY)]);
    // Several in one row, in other rows, in another block of columns, and with other signs.
    check(4, &[((120, 17), f64::NAN), ((120, 2), f64::NEG_INFINITY), ((121, 0), f64::NAN), ((280, 1), f64::INFINITY)]);
}

#[test]
fn a_copy_with_zero_subtracted_is_exact() {
    let x = Array2::from(vec![[0.0, -0.0, f64::MAX, f64::from_bits(1), -f64::MIN_POSITIVE, 1.0 / 3.0]]);
    let Ok(HostArray::F64(copy)) = on_device(x.view()).to_host() else { panic!() };
    assert!(copy.iter().zip(&x).all(|(a, b)| a.to_bits() == b.to_bits()));
    let x = Array2::from(vec![[0.0, -0.0, f32::MAX, f32::from_bits(1), -f32::MIN_POSITIVE, 1.0 / 3.0]]);
    let Ok(HostArray::F32(copy)) = on_device(x.view()).to_host() else { panic!() };
    assert!(copy.iter().zip(&x).all(|(a, b)| a.to_bits() == b.to_bits()));
}
