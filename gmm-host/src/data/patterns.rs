//! Samples grouped by the columns in which they have values.
use crate::data::samples::{Samples, View};
use ndarray::ArrayView1;
use rayon::prelude::*;
use std::ops::Range;

/// The rows of samples, grouped by the columns in which they have values. Nothing in it depends on
/// the number of threads.
#[derive(Debug)]
pub(crate) struct Patterns {
    /// The rows, those of a group beside each other, in their order within the group.
    pub order: Vec<usize>,
    pub groups: Vec<Pattern>,
}

/// Rows in which the same columns are observed.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// These columns, ascending.
    pub observed: Vec<usize>,
    /// The rows, as a range of [`order`](Patterns::order).
    pub rows: Range<usize>,
}

impl Patterns {
    pub fn of(samples: &Samples<'_>) -> Self {
        let (n, d) = (samples.n_samples(), samples.n_features());
        match samples.view() {
            View::F32(x) => Self::new(n, d, |i, j| !x[[i, j]].is_nan()),
            View::F64(x) => Self::new(n, d, |i, j| !x[[i, j]].is_nan()),
        }
    }

    fn new(n: usize, d: usize, observed: impl Fn(usize, usize) -> bool + Sync) -> Self {
        let width = d.div_ceil(64);
        // A bit for each column of a row.
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

/// The values of one row in some columns, in float64.
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
    use ndarray::Array2;

    #[test]
    fn rows_of_a_pattern_are_a_group() {
        // 70 columns, so that a row's bits take two words; the pattern of row i is i modulo 3.
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
