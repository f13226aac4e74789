//! Samples grouped by the columns in which they have values.
use crate::data::samples::{Samples, View};
use crate::error::Result;
use crate::interrupt::Interrupt;
use ndarray::{Array2, ArrayView1, ArrayViewMut2, Axis};
use rayon::prelude::*;
use std::ops::Range;

/// The rows of samples, grouped by the columns in which they have values. They do not depend on the number of threads.
#[derive(Debug)]
pub struct Patterns {
    /// The rows, group by group, in their order within each group.
    pub order: Vec<usize>,
    /// The patterns.
    pub groups: Vec<Pattern>,
}

/// The rows in which the same columns are observed.
#[derive(Debug)]
pub struct Pattern {
    /// The observed columns, ascending.
    pub observed: Vec<usize>,
    /// The rows, as a range of [`order`](Patterns::order).
    pub rows: Range<usize>,
}

impl Patterns {
    /// Returns the patterns of missing values of samples.
    pub fn of(samples: &Samples<'_>) -> Self {
        let (n, d) = (samples.n_samples(), samples.n_features());
        if samples.missing().is_none() {
            return Self { order: (0..n).collect(), groups: vec![Pattern { observed: (0..d).collect(), rows: 0..n }] };
        }
        match samples.view() {
            View::F32(x) => Self::new(n, d, |i, j| !x[[i, j]].is_nan()),
            View::F64(x) => Self::new(n, d, |i, j| !x[[i, j]].is_nan()),
        }
    }

    fn new(n: usize, d: usize, observed: impl Fn(usize, usize) -> bool + Sync) -> Self {
        let width = d.div_ceil(64);
        let mut masks = vec![0u64; n * width];
        masks.par_chunks_mut(width).with_min_len(1024).enumerate().for_each(|(row, mask)| {
            (0..d).filter(|&j| observed(row, j)).for_each(|j| mask[j / 64] |= 1 << (j % 64));
        });
        let mask = |row: usize| &masks[row * width..][..width];
        let mut order: Vec<usize> = (0..n).collect();
        order.par_sort_unstable_by(|&a, &b| mask(a).cmp(mask(b)).then(a.cmp(&b)));
        let mut groups = Vec::new();
        let mut start = 0;
        for same in order.chunk_by(|&a, &b| mask(a) == mask(b)) {
            let observed = (0..d).filter(|&j| mask(same[0])[j / 64] >> (j % 64) & 1 == 1).collect();
            groups.push(Pattern { observed, rows: start..start + same.len() });
            start += same.len();
        }
        Self { order, groups }
    }
}

/// The rows a thread takes at a time: few enough for its cache, enough for matrix products.
const BLOCK: usize = 128;

/// Rows of a group: their numbers, and their observed values (B, observed).
pub(crate) struct Block<'a> {
    pub rows: &'a [usize],
    pub x: Array2<f64>,
}

/// Computes `width` numbers for each sample (N, `width`) in float64, block by block on all threads. `prepare` turns the
/// observed columns of a group into data for `each`, which fills zeros (B, `width`) for a block of the group.
pub(crate) fn by_pattern<P: Sync>(
    samples: &Samples<'_>,
    width: usize,
    prepare: impl Fn(&[usize]) -> Result<P> + Sync,
    each: impl Fn(&P, Block<'_>, ArrayViewMut2<'_, f64>) -> Result<()> + Sync,
) -> Result<Array2<f64>> {
    let Patterns { order, groups } = Patterns::of(samples);
    let interrupt = Interrupt::current();
    let of_group = |Pattern { observed, rows }: &Pattern| {
        let prepared = prepare(observed)?;
        let rows = &order[rows.clone()];
        let mut values = Array2::zeros((rows.len(), width));
        let blocks = values.axis_chunks_iter_mut(Axis(0), BLOCK).into_par_iter().zip(rows.par_chunks(BLOCK));
        blocks.try_for_each(|(out, rows)| {
            interrupt.check()?;
            let mut x = Array2::zeros((rows.len(), observed.len()));
            for (&row, mut x) in rows.iter().zip(x.outer_iter_mut()) {
                gather(samples, row, observed, x.as_slice_mut().unwrap_or_default());
            }
            each(&prepared, Block { rows, x }, out)
        })?;
        Ok(values)
    };
    let mut of_groups: Vec<Array2<f64>> = groups.par_iter().map(of_group).collect::<Result<_>>()?;
    if samples.missing().is_none()
        && let Some(all) = of_groups.pop()
    {
        return Ok(all);
    }
    let mut out = Array2::zeros((samples.n_samples(), width));
    for (Pattern { rows, .. }, values) in groups.iter().zip(of_groups) {
        for (&row, values) in order[rows.clone()].iter().zip(values.outer_iter()) {
            out.row_mut(row).assign(&values);
        }
    }
    Ok(out)
}

/// Copies the values of one row in some columns to `out`, in float64.
pub(crate) fn gather(samples: &Samples<'_>, row: usize, columns: &[usize], out: &mut [f64]) {
    fn copy<T: Copy + Into<f64>>(x: ArrayView1<'_, T>, columns: &[usize], out: &mut [f64]) {
        out.iter_mut().zip(columns).for_each(|(out, &j)| *out = x[j].into());
    }
    match samples.view() {
        View::F32(x) => copy(x.row(row), columns, out),
        View::F64(x) => copy(x.row(row), columns, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_pattern_are_a_group() {
        // With 70 columns a row's bits take two words; row i has pattern i modulo 3.
        let x = Array2::from_shape_fn((9, 70), |(i, j)| match (i % 3, j) {
            (1, 69) | (2, 3) => f32::NAN,
            _ => (i * 70 + j) as f32,
        });
        let samples = Samples::with_missing(x.view()).unwrap();
        let patterns = Patterns::of(&samples);
        assert_eq!(patterns.groups.len(), 3);
        for group in &patterns.groups {
            let rows = &patterns.order[group.rows.clone()];
            assert!(rows.len() == 3 && rows.is_sorted() && rows.iter().all(|row| row % 3 == rows[0] % 3));
            let want: Vec<usize> = (0..70).filter(|&j| !x[[rows[0], j]].is_nan()).collect();
            assert_eq!(group.observed, want);
            let mut values = vec![0.0; want.len()];
            gather(&samples, rows[1], &group.observed, &mut values);
            assert!(values.iter().zip(&want).all(|(v, &j)| *v == f64::from(x[[rows[1], j]])));
        }
    }
}
