//! A target as the kernel `metropolis` reads it. Nothing here calls CUDA.
use gmm_core::backends::device_parameters::frame_offset;
use gmm_core::contract::metropolis::MetropolisTarget;
use gmm_core::data::frame::Frame;
use gmm_kernels::metropolis;

/// Returns the terms of a target over data in this frame, and the constant of every log density of `n` samples.
pub(crate) fn terms(target: &MetropolisTarget, frame: &Frame, n: usize, bias: f64) -> (Vec<f64>, f64) {
    let (k, d, prior) = (target.n_components, target.n_features, &target.prior);
    let mut terms = Vec::with_capacity(
        k * d * metropolis::FEATURE_TERMS + d * metropolis::COLUMN_TERMS + k * metropolis::COMPONENT_TERMS,
    );
    for i in 0..k * d {
        // A spherical component has one scale for all features; its prior is with its first feature.
        let s = if target.spherical { i / d } else { i };
        terms.extend([prior.location[i], prior.precision[i], prior.scaled_precision[i]]);
        terms.extend([prior.by_log_scale[s], prior.by_variance[s], prior.by_precision[s]]);
    }
    for ((shift, scale), inverse) in frame.shift.iter().zip(&frame.scale).zip(&frame.inverse) {
        let unit = (std::f64::consts::LOG2_E / 2.0).sqrt() * inverse;
        terms.extend([unit, unit.log2(), *shift, *scale]);
    }
    for (c, alpha) in prior.concentration.iter().enumerate() {
        terms.extend([*alpha, ((k - 1 - c).max(1) as f64).ln()]);
    }
    let constant = prior.constant + std::f64::consts::LN_2 * n as f64 * (frame_offset(d, frame.log2_scale) + bias);
    (terms, constant)
}

pub(crate) fn length(target: &MetropolisTarget) -> usize {
    let (k, d) = (target.n_components, target.n_features);
    k * d * metropolis::FEATURE_TERMS + d * metropolis::COLUMN_TERMS + k * metropolis::COMPONENT_TERMS
}
