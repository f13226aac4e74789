//! Results of parts of the samples (chunks, shards, or sets of labels), combined in the order of the parts.
use crate::compensated::neumaier_sum;
use crate::data::samples::Rows;
use crate::error::{Error, Result};
use crate::model::mixture::Mixture;
use crate::statistics::Statistics;
use ndarray::{Array1, Array2, Axis, concatenate};

/// Returns the total of each mixture, from the totals of the parts.
pub fn totals(n_mixtures: usize, parts: &[Vec<f64>]) -> Vec<f64> {
    (0..n_mixtures).map(|i| neumaier_sum(parts.iter().map(|part| part[i]))).collect()
}

/// Returns the statistics of all parts under a mixture.
pub fn merged(mixture: &Mixture, parts: Vec<Statistics>) -> Result<Statistics> {
    let mut parts = parts.into_iter();
    let (k, d) = mixture.means().dim();
    let first = parts.next().unwrap_or_else(|| Statistics::empty(mixture.covariance_type(), k, d));
    parts.try_fold(first, |mut total, part| {
        total.merge(&part)?;
        Ok(total)
    })
}

/// Stacks the rows of the parts, which have equal numbers of columns.
pub(super) fn stacked(parts: &[Array2<f64>]) -> Result<Array2<f64>> {
    let views: Vec<_> = parts.iter().map(|part| part.view()).collect();
    concatenate(Axis(0), &views).map_err(|_| Error::ShapeMismatch {
        what: "values of parts of the samples",
        expected: parts.first().map_or(Vec::new(), |part| part.shape().to_vec()),
        got: parts.iter().map(Array2::ncols).collect(),
    })
}

/// Collects some samples of data in parts that begin at `starts`, which ends with N. `of_part` returns some rows of a
/// part, and is called once for each part that has any, in order.
pub fn rows(
    starts: &[usize],
    n_features: usize,
    rows: &[usize],
    mut of_part: impl FnMut(usize, &[usize]) -> Result<Rows>,
) -> Result<Rows> {
    let mut out = Rows { x: Array2::zeros((rows.len(), n_features)), weights: Array1::zeros(rows.len()) };
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&at| rows[at]);
    let mut rest = order.as_slice();
    while let Some(&at) = rest.first() {
        let part = starts.partition_point(|&start| start <= rows[at]) - 1;
        let (start, end) = (starts[part], starts[part + 1]);
        let (here, later) = rest.split_at(rest.partition_point(|&at| rows[at] < end));
        let local: Vec<usize> = here.iter().map(|&at| rows[at] - start).collect();
        let found = of_part(part, &local)?;
        for ((&at, x), &w) in here.iter().zip(found.x.outer_iter()).zip(&found.weights) {
            out.x.row_mut(at).assign(&x);
            out.weights[at] = w;
        }
        rest = later;
    }
    Ok(out)
}
