//! The ranges of an array's columns, and the check that all values are finite.
use super::float::Float;
use crate::model::linalg::vectorised;
use ndarray::parallel::prelude::*;
use ndarray::{ArrayView2, Axis};

/// Returns the range of each column of an array (N, D), in one pass; `None` if a value is not finite.
pub(crate) fn finite_ranges<T: Float>(x: ArrayView2<'_, T>) -> Option<Vec<(f64, f64)>> {
    const PIECE: usize = 4096;
    // Waking other threads takes longer than one piece.
    if x.nrows() <= PIECE {
        return ranges(x);
    }
    let both = |mut a: Vec<(f64, f64)>, b: Vec<(f64, f64)>| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a = (a.0.min(b.0), a.1.max(b.1)));
        Some(a)
    };
    x.axis_chunks_iter(Axis(0), PIECE).into_par_iter().map(ranges).try_reduce_with(both)?
}

/// As [`finite_ranges`], for one piece.
fn ranges<T: Float>(rows: ArrayView2<'_, T>) -> Option<Vec<(f64, f64)>> {
    /// The rows compared side by side, so the compiler fills whole registers for any number of columns.
    const SIDE_BY_SIDE: usize = 16;
    let d = rows.ncols();
    let first: Vec<T> = rows.outer_iter().next()?.to_vec();
    let (mut min, mut max) = (first.repeat(SIDE_BY_SIDE), first.repeat(SIDE_BY_SIDE));
    let mut compare = |rows: &[T]| {
        vectorised(
            #[inline(always)]
            || {
                rows.chunks(d * SIDE_BY_SIDE)
                    .fold(true, |finite, rows| extend_ranges(rows, &mut min, &mut max) & finite)
            },
        )
    };
    let finite = match rows.to_slice() {
        Some(rows) => compare(rows),
        None => rows.outer_iter().fold(true, |finite, row| compare(&row.to_vec()) & finite),
    };
    let of_column = |j: usize| {
        let min = min.iter().skip(j).step_by(d).fold(first[j], |a, &b| if b < a { b } else { a });
        let max = max.iter().skip(j).step_by(d).fold(first[j], |a, &b| if b > a { b } else { a });
        (min.into(), max.into())
    };
    finite.then(|| (0..d).map(of_column).collect())
}

/// Extends ranges by one number each; whether all numbers are finite. Inlined for the instructions of its caller.
#[inline(always)]
fn extend_ranges<T: Float>(numbers: &[T], min: &mut [T], max: &mut [T]) -> bool {
    let mut finite = true;
    for ((min, max), &v) in min.iter_mut().zip(max).zip(numbers) {
        *min = if v < *min { v } else { *min };
        *max = if v > *max { v } else { *max };
        finite &= v.is_finite();
    }
    finite
}
