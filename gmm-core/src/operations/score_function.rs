//! The score function: the derivative of the log-density by the sample.
use crate::contract::evaluator::{Evaluator, check_features};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::memory;
use crate::model::covariances::Covariances;
use crate::model::marginal::{observed, restrict};
use crate::model::mixture::Mixture;
use ndarray::linalg::general_mat_mul;
use ndarray::parallel::prelude::*;
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, s};

const ROWS_AT_ONCE: usize = 1 << 14;

/// Samples a thread takes at a time: few enough for its cache, enough for a matrix product.
const BLOCK: usize = 128;

/// Returns ∇ₓ log p(xᵢ) = −Σₖ rᵢₖ Σₖ⁻¹ (xᵢ − μₖ) (N, D), with the evaluator's responsibilities r, summed on the host in
/// float64. It is 0 for a missing value, and elsewhere the derivative of the observed values' density.
///
/// # Errors
/// [`Error::Unsupported`] for samples with noise; errors of the evaluator.
pub fn score_function(evaluator: &mut dyn Evaluator, mixture: &Mixture) -> Result<Array2<f64>> {
    let (n, d) = (evaluator.n_samples(), evaluator.n_features());
    check_features(mixture, d)?;
    mixture.check_no_noise("the score function")?;
    memory::check("the score function", &[n, d], size_of::<f64>(), "take fewer rows at a time")?;
    let check_noise = |evaluator: &dyn Evaluator| match evaluator.data().has_noise {
        true => {
            let (what, remedy) = ("the score function".into(), "take the samples without their noise");
            Err(Error::Unsupported { what, backend: "samples with noise", remedy })
        }
        false => Ok(()),
    };
    check_noise(evaluator)?;
    let responsibilities = evaluator.predict_proba(mixture)?;
    // Chunks know their noise once they are loaded.
    check_noise(evaluator)?;
    let precisions = mixture.precisions();
    let mut out = Array2::zeros((n, d));
    for start in (0..n).step_by(ROWS_AT_ONCE) {
        Interrupt::current().check()?;
        let rows = start..n.min(start + ROWS_AT_ONCE);
        let x = evaluator.rows(&rows.clone().collect::<Vec<_>>())?.x;
        let r = responsibilities.slice(s![rows.clone(), ..]);
        let mut out = out.slice_mut(s![rows, ..]);
        let blocks = out.axis_chunks_iter_mut(Axis(0), BLOCK).into_par_iter();
        let blocks = blocks.zip(x.axis_chunks_iter(Axis(0), BLOCK)).zip(r.axis_chunks_iter(Axis(0), BLOCK));
        blocks.try_for_each(|((out, x), r)| match x.iter().any(|x| x.is_nan()) {
            true => of_observed(mixture, x, r, out),
            false => {
                of_complete(mixture.means(), &precisions, x, r, out);
                Ok(())
            }
        })?;
    }
    Ok(out)
}

/// Handles samples (B, D) without missing values; `out` (B, D) is zero.
fn of_complete(
    means: ArrayView2<'_, f64>,
    precisions: &Covariances,
    x: ArrayView2<'_, f64>,
    r: ArrayView2<'_, f64>,
    mut out: ArrayViewMut2<'_, f64>,
) {
    for (k, (mean, r)) in means.outer_iter().zip(r.axis_iter(Axis(1))).enumerate() {
        let weighted = (&mean - &x) * r.insert_axis(Axis(1));
        match precisions {
            Covariances::Full(p) => general_mat_mul(1.0, &weighted, &p.index_axis(Axis(0), k), 1.0, &mut out),
            Covariances::Tied(_) => out += &weighted,
            Covariances::Diag(p) => out += &(weighted * p.row(k)),
            Covariances::Spherical(p) => out.scaled_add(p[k], &weighted),
        }
    }
    if let Covariances::Tied(p) = precisions {
        let product = out.dot(p);
        out.assign(&product);
    }
}

/// Handles samples (B, D), some with missing values; `out` (B, D) is zero.
fn of_observed(
    mixture: &Mixture,
    x: ArrayView2<'_, f64>,
    r: ArrayView2<'_, f64>,
    mut out: ArrayViewMut2<'_, f64>,
) -> Result<()> {
    // Shared by consecutive samples that miss the same values.
    let mut part: Option<(Vec<usize>, Mixture, Covariances)> = None;
    for (row, mut out) in out.outer_iter_mut().enumerate() {
        let columns = observed(x.row(row));
        if columns.is_empty() {
            continue;
        }
        if part.as_ref().is_none_or(|(of, ..)| *of != columns) {
            let mixture = restrict(mixture, &columns)?;
            let precisions = mixture.precisions();
            part = Some((columns, mixture, precisions));
        }
        if let Some((columns, mixture, precisions)) = &part {
            let x = x.slice(s![row..=row, ..]).select(Axis(1), columns);
            let mut observed = Array2::zeros(x.raw_dim());
            of_complete(mixture.means(), precisions, x.view(), r.slice(s![row..=row, ..]), observed.view_mut());
            columns.iter().zip(&observed).for_each(|(&j, v)| out[j] = *v);
        }
    }
    Ok(())
}
