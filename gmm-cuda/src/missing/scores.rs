//! The part of a sample's score that depends on which values are missing, which the kernels leave out.
use crate::source::Source;
use gmm_core::backends::device_parameters::ColumnConstants;
use gmm_core::data::samples::View;
use ndarray::parallel::prelude::*;
use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut1, Axis, Zip};
use std::f64::consts::LN_2;

const ROWS: usize = 4096;

/// Adds to `scores`, which include the mixture's offset with its mean over the samples, the difference of a sample's
/// constants of observed columns from that mean. A sample without an observed value has the score 0, exactly.
pub fn add_offsets<T>(source: &Source<'_>, gaps: Option<&ColumnConstants<T>>, mut scores: Array1<f64>) -> Array1<f64> {
    let (Source::Host(samples, _), Some(gaps)) = (source, gaps) else { return scores };
    match samples.view() {
        View::F32(x) => add_to_rows(x, &gaps.offsets, gaps.mean, scores.view_mut()),
        View::F64(x) => add_to_rows(x, &gaps.offsets, gaps.mean, scores.view_mut()),
    }
    scores
}

/// Returns the number of values in each column (groups, D) of groups of neighbouring rows with these numbers of rows.
pub fn observed(source: &Source<'_>, rows: &[usize]) -> Array2<f64> {
    let Source::Host(samples, _) = source else { return Array2::zeros((rows.len(), 0)) };
    match samples.view() {
        View::F32(x) => count(x, rows),
        View::F64(x) => count(x, rows),
    }
}

fn count<T: Copy + Into<f64>>(x: ArrayView2<'_, T>, rows: &[usize]) -> Array2<f64> {
    let mut counts = Array2::zeros((rows.len(), x.ncols()));
    let groups = rows.iter().enumerate().flat_map(|(group, n)| std::iter::repeat_n(group, *n));
    for (row, group) in x.outer_iter().zip(groups) {
        let is_there = |v: &T| if Into::<f64>::into(*v).is_nan() { 0.0 } else { 1.0 };
        counts.row_mut(group).zip_mut_with(&row, |count, v| *count += is_there(v));
    }
    counts
}

fn add_to_rows<T: Copy + Sync + Into<f64>>(
    x: ArrayView2<'_, T>,
    offsets: &[f64],
    mean: f64,
    mut scores: ArrayViewMut1<'_, f64>,
) {
    let rows = x.axis_chunks_iter(Axis(0), ROWS).into_par_iter();
    rows.zip(scores.axis_chunks_iter_mut(Axis(0), ROWS)).for_each(|(x, scores)| {
        Zip::from(x.rows()).and(scores).for_each(|row, score| {
            let (mut sum, mut seen) = (-mean, false);
            for (v, offset) in row.iter().zip(offsets) {
                if !Into::<f64>::into(*v).is_nan() {
                    (sum, seen) = (sum + offset, true);
                }
            }
            *score = if seen { *score + LN_2 * sum } else { 0.0 };
        });
    });
}
