//! The second moments of all samples, which no mixture changes. An E-step or a total of a `tied` mixture adds them to its
//! linear terms.
use gmm_core::data::frame::Frame;
use gmm_core::error::Result;
use gmm_core::model::covariances::Covariances;
use gmm_core::model::linalg::{row_major, sum_of, vectorised};
use gmm_core::model::mixture::Mixture;
use gmm_core::statistics::Statistics;
use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2, Axis};
use std::f64::consts::LOG2_E;
use std::sync::Arc;

/// The moments of an evaluator's samples around the centre of its frame.
#[derive(Debug)]
pub(crate) struct Moments {
    samples: usize,
    weight: f64,
    /// Σᵢ wᵢ·(xᵢ − c)(xᵢ − c)ᵀ (D, D).
    second: Array2<f64>,
}

impl Moments {
    /// Returns the mixture whose E-step computes the moments: one component at the centre, as wide as the frame.
    pub fn mixture(frame: &Frame) -> Result<Mixture> {
        let d = frame.shift.len();
        let variance =
            |(_, i, j): (usize, usize, usize)| if i == j { frame.inverse[i] * frame.inverse[i] } else { 0.0 };
        let covariances = Covariances::Full(Array3::from_shape_fn((1, d, d), variance));
        let means = Array2::from_shape_fn((1, d), |(_, j)| frame.shift[j]);
        Mixture::new(Array1::ones(1), means, covariances)
    }

    /// Takes the moments from the statistics of that E-step.
    pub fn new(statistics: &Statistics, frame: &Frame, samples: usize, weight: f64) -> Self {
        let delta = &statistics.means().row(0) - &ArrayView1::from(&frame.shift);
        let d = delta.len();
        let mut second = Array2::zeros((d, d));
        if let Covariances::Full(scatter) = statistics.scatter() {
            second.assign(&scatter.index_axis(Axis(0), 0));
        }
        let count = statistics.counts()[0];
        second.indexed_iter_mut().for_each(|((i, j), to)| *to += count * delta[i] * delta[j]);
        Self { samples, weight, second }
    }

    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Returns the mean over the samples of Σⱼ Pⱼⱼ·(xⱼ − cⱼ)² with P = Σ⁻¹, the `precision`: squared distances from the
    /// centre over the features' variances given the other features.
    pub fn spread(&self, precision: ArrayView2<'_, f64>) -> f64 {
        self.second.diag().iter().zip(precision.diag()).map(|(second, precision)| second * precision).sum::<f64>()
            / self.weight
    }
}

/// The quadratic terms of the samples under a `tied` mixture: the same for all components.
#[derive(Debug, Clone)]
pub(crate) struct Quadratic {
    moments: Arc<Moments>,
    /// Their part of the samples' log₂-likelihood: −½·tr(Σ⁻¹S)·log₂e.
    pub log2: f64,
}

impl Quadratic {
    /// Takes Σ⁻¹, the `precision`.
    pub fn new(precision: ArrayView2<'_, f64>, moments: &Arc<Moments>) -> Self {
        let [precision, second] = [precision, moments.second.view()].map(row_major);
        let trace = vectorised(
            #[inline(always)]
            || sum_of([&precision, &second], |[p, s]| p * s),
        );
        Self { moments: moments.clone(), log2: -0.5 * LOG2_E * trace }
    }

    pub fn second(&self) -> &Array2<f64> {
        &self.moments.second
    }
}
