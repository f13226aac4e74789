//! `array_ranges`, `array_columns` and `array_rows`. What they give equals, to the bit, what the
//! host makes of the same samples.
use crate::backends::cuda::arrays::launches::{least_index, ranges};
use crate::backends::cuda::device::layout;
use crate::data::frame::{Float, Frame, looked_at};
use crate::{Samples, data::samples};
use gmm_kernels::arrays::columns::{self, ColumnsArgs};
use gmm_kernels::arrays::ranges::{self as found, RangesArgs};
use gmm_kernels::arrays::rows::{self, RowsArgs};
use gmm_kernels::arrays::{Array, COLUMNS};
use gmm_kernels::simt::emulator::{Memory, launch};
use ndarray::{Array2, ArrayView2, ShapeBuilder, s};

/// The kernels of an element type.
trait Source: Float + samples::Element + std::fmt::Debug {
    const RANGES: unsafe fn(RangesArgs<Self>);
    const ROWS: unsafe fn(RowsArgs<Self>);
}

impl Source for f32 {
    const RANGES: unsafe fn(RangesArgs<f32>) = found::array_ranges_f32;
    const ROWS: unsafe fn(RowsArgs<f32>) = rows::array_rows_f32;
}

impl Source for f64 {
    const RANGES: unsafe fn(RangesArgs<f64>) = found::array_ranges_f64;
    const ROWS: unsafe fn(RowsArgs<f64>) = rows::array_rows_f64;
}

/// The same samples in memory in several ways: by rows, by columns, every other row and column, and
/// backwards.
fn layouts<T: Float>(x: &Array2<f64>) -> Vec<Array2<T>> {
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

/// The array as an argument, with all memory between its first and its last element registered.
fn argument<'a, T: Copy>(memory: &mut Memory<'a>, x: &'a ArrayView2<'_, T>) -> Array<T> {
    let ((n, d), [row_stride, column_stride]) = (x.dim(), [x.strides()[0], x.strides()[1]]);
    let corners = [(0, 0), (n - 1, 0), (0, d - 1), (n - 1, d - 1)].map(|ij| &raw const x[ij]);
    let (first, last) = corners.iter().fold((corners[0], corners[0]), |(a, b), &p| (a.min(p), b.max(p)));
    // SAFETY: both are elements of the array's one allocation.
    let all = unsafe { std::slice::from_raw_parts(first, last.offset_from(first) as usize + 1) };
    memory.read("array", all);
    let (row_stride, column_stride) = (row_stride as i64, column_stride as i64);
    Array { x: x.as_ptr(), row_stride, column_stride, n: n as u64, d: d as u64 }
}

/// The range of each column, and the first element that is not finite.
fn run_ranges<T: Source>(x: ArrayView2<'_, T>) -> (Vec<(f64, f64)>, Option<u64>) {
    let d = x.ncols();
    let (grid, block) = ((3, d.div_ceil(COLUMNS) as u32), 64);
    let warps = 6;
    let nan = T::from_f64(f64::NAN);
    let (mut least, mut greatest) = (vec![nan; warps * d], vec![nan; warps * d]);
    let mut not_finite = vec![1; warps * grid.1 as usize];
    let mut memory = Memory::new();
    let args = RangesArgs {
        array: argument(&mut memory, &x),
        least: memory.write("least", &mut least),
        greatest: memory.write("greatest", &mut greatest),
        not_finite: memory.write("not finite", &mut not_finite),
    };
    // SAFETY: the arguments of this kernel, with the arrays of `memory`.
    unsafe { launch(grid, block, 0, &memory, T::RANGES, args) };
    (ranges(&least, &greatest, d), least_index(&not_finite))
}

fn run_rows<T: Source>(x: ArrayView2<'_, T>, rows: &[usize]) -> Array2<T> {
    let indices: Vec<u64> = rows.iter().map(|&row| row as u64).collect();
    let mut out = vec![T::from_f64(f64::NAN); rows.len() * x.ncols()];
    let mut memory = Memory::new();
    let args = RowsArgs {
        array: argument(&mut memory, &x),
        rows: memory.read("rows", &indices),
        count: rows.len() as u64,
        out: memory.write("out", &mut out),
    };
    // SAFETY: the arguments of this kernel, with the arrays of `memory`.
    unsafe { launch((2, 1), 32, 0, &memory, T::ROWS, args) };
    Array2::from_shape_vec((rows.len(), x.ncols()), out).unwrap()
}

fn run_columns<S: Source, T: Float>(
    x: ArrayView2<'_, S>,
    frame: &Frame,
    kernel: unsafe fn(ColumnsArgs<S, T>),
) -> Vec<T> {
    let (n, d) = x.dim();
    let stride = layout::stride(n);
    let mut out = vec![T::from_f64(f64::NAN); d * stride];
    let mut memory = Memory::new();
    let args = ColumnsArgs {
        array: argument(&mut memory, &x),
        shift: memory.read("shift", &frame.shift),
        scale: memory.read("scale", &frame.scale),
        columns: memory.write("columns", &mut out),
        stride: stride as u64,
    };
    // SAFETY: the arguments of this kernel, with the arrays of `memory`.
    unsafe { launch((2, d.div_ceil(COLUMNS) as u32), 64, 0, &memory, kernel, args) };
    out
}

/// Numbers far from zero, of two magnitudes, so that frame and columns round.
fn numbers(n: usize, d: usize) -> Array2<f64> {
    Array2::from_shape_fn((n, d), |(i, j)| {
        1e3 * (j as f64 - 3.0) + ((i * (2 * d + 1) + 7 * j) as f64).sin() * 10f64.powi(j as i32 % 5 - 2)
    })
}

fn check<S: Source>(to_f32: unsafe fn(ColumnsArgs<S, f32>), to_f64: unsafe fn(ColumnsArgs<S, f64>)) {
    // One sample; two blocks of columns; more rows than threads, and than rows that are looked at.
    for (n, d) in [(1, 1), (5, 17), (1100, 3)] {
        for x in layouts::<S>(&numbers(n, d)) {
            let what = format!("{} {n} × {d}, strides {:?}", S::NAME, x.strides());
            let (ranges, bad) = run_ranges(x.view());
            assert_eq!(bad, None, "{what}");
            let rows: Vec<usize> = looked_at::<S>(n).collect();
            let some = run_rows(x.view(), &rows);
            assert!(rows.iter().zip(some.outer_iter()).all(|(&i, row)| row == x.row(i)), "{what}: rows");
            let frame =
                Frame::from_ranges(d, |j| ranges[j], |j, to| to.extend(some.column(j).iter().map(|&v| v.into())));
            let expected = Frame::of(x.view());
            assert_eq!((&frame.shift, &frame.scale), (&expected.shift, &expected.scale), "{what}: frame");
            let samples = S::samples(x.view(), false).unwrap();
            let (mut single, mut double) = (vec![f32::NAN; d * layout::stride(n)], vec![0.0; d * layout::stride(n)]);
            layout::columns(&samples, &frame, 1.0, &mut single);
            layout::columns(&samples, &frame, 1.0, &mut double);
            assert_eq!(run_columns(x.view(), &frame, to_f32), single, "{what}: columns in float32");
            assert_eq!(run_columns(x.view(), &frame, to_f64), double, "{what}: columns in float64");
        }
    }
}

#[test]
fn float32_arrays() {
    check::<f32>(columns::array_columns_f32_f32, columns::array_columns_f32_f64);
}

#[test]
fn float64_arrays() {
    check::<f64>(columns::array_columns_f64_f32, columns::array_columns_f64_f64);
}

#[test]
fn the_first_element_that_is_not_finite_is_the_host_s() {
    let check = |kinds: usize, bad: &[((usize, usize), f64)]| {
        let mut x = numbers(300, 18);
        bad.iter().for_each(|&(place, value)| x[place] = value);
        for x in layouts::<f32>(&x).into_iter().take(kinds) {
            let Err(crate::Error::NonFiniteSample { row, column, .. }) = Samples::from_f32(x.view()) else { panic!() };
            assert_eq!(run_ranges(x.view()).1, Some((row * 18 + column) as u64));
        }
    };
    check(1, &[((0, 0), f64::NAN)]);
    check(1, &[((299, 17), f64::INFINITY)]);
    // Of several in one row, in other rows, in another block of columns, and with other signs.
    check(4, &[((120, 17), f64::NAN), ((120, 2), f64::NEG_INFINITY), ((121, 0), f64::NAN), ((280, 1), f64::INFINITY)]);
}

#[test]
fn a_copy_with_zero_subtracted_is_exact() {
    let frame = Frame { shift: vec![0.0; 6], scale: vec![1.0; 6], inverse: vec![1.0; 6], log2_scale: 0.0 };
    let x = Array2::from(vec![[0.0, -0.0, f64::MAX, f64::from_bits(1), -f64::MIN_POSITIVE, 1.0 / 3.0]]);
    let copy = run_columns(x.view(), &frame, columns::array_columns_f64_f64);
    assert!(copy.iter().step_by(512).zip(&x).all(|(a, b)| a.to_bits() == b.to_bits()));
    let x = Array2::from(vec![[0.0, -0.0, f32::MAX, f32::from_bits(1), -f32::MIN_POSITIVE, 1.0 / 3.0]]);
    let copy = run_columns(x.view(), &frame, columns::array_columns_f32_f32);
    assert!(copy.iter().step_by(512).zip(&x).all(|(a, b)| a.to_bits() == b.to_bits()));
}
