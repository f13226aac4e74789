//! A few samples under large matrices, evaluated in float64 with the mixture's own factors: laying out the parameters
//! for the engine would take several passes over the matrices, the evaluation takes one.
use crate::compensated::log_sum_exp;
use crate::data::samples::{Samples, View};
use crate::model::covariances::Covariances;
use crate::model::density::Density;
use crate::model::linalg::{row_major, sum_of, vectorised};
use crate::model::mixture::Mixture;
use ndarray::{Array1, Array2, Axis};
use rayon::prelude::*;

/// The most samples that count as few, with a matrix per component and with one for all, which is faster to lay out.
const MOST_SAMPLES: (usize, usize) = (16, 2);
/// The least numbers in all components' factors that count as many.
const LEAST_NUMBERS: usize = 1 << 16;
/// Multiply-adds worth waking other threads.
const SHARED_WORK: usize = 1 << 18;

pub(super) fn are_few(n_samples: usize, mixture: &Mixture) -> bool {
    let (k, d) = mixture.means().dim();
    let most = match mixture.factor() {
        Some(Covariances::Full(_)) => MOST_SAMPLES.0,
        Some(_) => MOST_SAMPLES.1,
        None => 0,
    };
    n_samples <= most && k.saturating_mul(d).saturating_mul(d) >= LEAST_NUMBERS
}

/// Returns log πₖ N(x; μₖ, Σₖ) (N, K) of complete samples under matrices; `None` if a distance is not finite.
pub(super) fn log_densities(samples: &Samples<'_>, mixture: &Mixture, in_threads: bool) -> Option<Array2<f64>> {
    let (n, (k, d)) = (samples.n_samples(), mixture.means().dim());
    let x = match samples.view() {
        View::F32(x) => x.mapv(f64::from),
        View::F64(x) => x.as_standard_layout().into_owned(),
    };
    let density = Density::new(mixture);
    let norms: Vec<f64> = (0..k).map(|c| density.log_norm(c)).collect();
    let one = |(c, log_p): (usize, &mut [f64])| {
        // Noise has the same density everywhere.
        if let Some(factor) = mixture.factor_of(c).filter(|_| !mixture.is_noise(c)) {
            squares(&(&x - &mixture.means().row(c)), &row_major(factor), log_p);
        }
        log_p.iter_mut().for_each(|v| *v = if v.is_finite() { norms[c] - 0.5 * *v } else { f64::NAN });
    };
    let mut by_component = vec![0.0; k * n];
    if in_threads && n * k * d * d >= SHARED_WORK {
        by_component.par_chunks_exact_mut(n).enumerate().for_each(one);
    } else {
        by_component.chunks_exact_mut(n).enumerate().for_each(one);
    }
    let log_p = Array2::from_shape_vec((k, n), by_component).ok()?.reversed_axes();
    log_p.iter().all(|v| !v.is_nan()).then(|| log_p.as_standard_layout().into_owned())
}

pub(super) fn log_sums(log_p: &Array2<f64>) -> Array1<f64> {
    log_p.map_axis(Axis(1), |row| log_sum_exp(&row_major(row)))
}

/// Writes |Uᵀδ|² of each row δ (N, D) into `out`, in one pass over the upper triangular U.
fn squares(deviations: &Array2<f64>, factor: &[f64], out: &mut [f64]) {
    let d = deviations.ncols();
    let deviations = row_major(deviations.view());
    let mut y = vec![0.0; deviations.len()];
    vectorised(
        #[inline(always)]
        || {
            for (i, row) in factor.chunks_exact(d).enumerate() {
                for (y, deviations) in y.chunks_exact_mut(d).zip(deviations.chunks_exact(d)) {
                    let deviation = deviations[i];
                    y[i..].iter_mut().zip(&row[i..]).for_each(|(y, u)| *y += deviation * u);
                }
            }
            for (out, y) in out.iter_mut().zip(y.chunks_exact(d)) {
                *out = sum_of([y], |[y]| y * y);
            }
        },
    );
}
