//! The parameters of totals and scores whose exponents are linear: in the features of `tied` mixtures, or in products of
//! two features.
use super::centres::larger;
use super::moments::{Moments, Quadratic};
use super::products_shapes::products;
use super::split_component::{Coefficients, Component, TOTAL_ERROR, largest, mean_and_size};
use gmm_core::backends::device_parameters::{DeviceParameters, Matrices};
use gmm_core::data::frame::Frame;
use gmm_core::model::covariances::Covariances;
use gmm_core::model::linalg::{at_once, map_rows, product};
use gmm_core::model::mixture::Mixture;
use gmm_kernels::estep::products_mma::ONE;
use ndarray::{ArrayView1, ArrayView2, s};
use rayon::prelude::*;
use std::f64::consts::{LOG2_E, TAU};
use std::sync::Arc;

/// The size of the largest feature of any sample, by the choice of the frame.
const LARGEST_FEATURE: f64 = 8.0;

/// The limit of the squared distances of features from the centre, over the features' variances given the others, in the
/// mean over samples and features: it keeps the error of a log-likelihood to about 10⁻⁶ of itself.
pub(super) const FAR: f64 = 64.0;
/// The same for a log-likelihood alone: about 10⁻⁷ of itself (measured in the emulator: 7·10⁻⁸ at 17, 6·10⁻⁹ at 2).
const FAR_TOTAL: f64 = 16.0;

/// The components whose terms one product of matrices computes.
const TOGETHER: usize = 32;

/// A component's linear terms under one covariance of all components (`tied`): log₂ of its part of the likelihood is q
/// = `constant` + a·x, less −½·xᵀΣ⁻¹x·log₂e, the same for all components.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinearTerm {
    /// It includes log₂ of the component's weight.
    pub(super) constant: f64,
    /// The largest q of any sample.
    pub(super) most: f64,
    largest: f32,
    error: f64,
}

impl LinearTerm {
    /// Writes the coefficients of each component, rounded by `round`, into the first D numbers of its row of `rows`;
    /// zeros, and `None`, without weight. `precision`: Σ⁻¹.
    ///
    /// The coefficients a = Σ⁻¹·μ·log₂e, once rounded to ã, are those of another mean μ̃ = Σ·ã / log₂e. The constant is
    /// that mean's, −½·ãᵀΣã / log₂e with ãᵀΣã = aᵀΣa + 2·(ã − a)ᵀΣa but for the square of the rounding, so that the
    /// density is normalised.
    pub(super) fn of_each(
        mixture: &Mixture,
        precision: ArrayView2<'_, f64>,
        frame: &Frame,
        round: impl Fn(f32) -> f32 + Sync,
        rows: &mut [f32],
    ) -> Vec<Option<Self>> {
        let (k, d) = mixture.means().dim();
        let width = rows.len() / k;
        let variances: Vec<f64> = (0..d).map(|j| mixture.variance(0, j) * frame.scale[j] * frame.scale[j]).collect();
        // A product of matrices takes a part of the time of a product for each component.
        let groups = rows.par_chunks_mut(TOGETHER * width).enumerate();
        let terms = map_rows(groups, at_once(TOGETHER * d * d / 4), |(group, rows)| {
            let first = group * TOGETHER;
            let means = mixture.means().slice_move(s![first..first + rows.len() / width, ..]);
            let deltas = &means - &ArrayView1::from(&frame.shift);
            let exact = product(deltas.view(), precision);
            let term = |(i, row): (usize, &mut [f32])| {
                Self::new(mixture, frame, &variances, first + i, [deltas.row(i), exact.row(i)], &round, &mut row[..d])
            };
            rows.chunks_exact_mut(width).enumerate().map(term).collect::<Vec<_>>()
        });
        terms.into_iter().flatten().collect()
    }

    /// Writes the coefficients of a component (D,), from its mean less the centre and the product of this with Σ⁻¹.
    /// `variances`: those of the features in the frame.
    ///
    /// As for [`Component::error`], each term aⱼ·xⱼ carries 2^-22 of itself, with random signs, and xⱼ is about √(Σⱼⱼ +
    /// μⱼ²) for the samples that the component explains.
    fn new(
        mixture: &Mixture,
        frame: &Frame,
        variances: &[f64],
        c: usize,
        [delta, exact]: [ArrayView1<'_, f64>; 2],
        round: impl Fn(f32) -> f32,
        to: &mut [f32],
    ) -> Option<Self> {
        if mixture.weights()[c] == 0.0 {
            to.fill(0.0);
            return None;
        }
        let (mut quadratic, mut of_terms, mut most) = (0.0, 0.0, 0.0);
        let features = variances.iter().zip(&frame.scale).zip(&frame.inverse);
        for (((delta, exact), to), ((variance, scale), inverse)) in
            delta.iter().zip(exact).zip(to.iter_mut()).zip(features)
        {
            let exact = LOG2_E * exact;
            *to = round((exact * inverse) as f32);
            let (held, mean) = (f64::from(*to), delta * scale);
            quadratic += LOG2_E * delta * (2.0 * held * scale - exact);
            of_terms += held * held * (variance + mean * mean);
            most += held.abs() * LARGEST_FEATURE;
        }
        let constant = mixture.log2_weight(c) - 0.5 * quadratic / LOG2_E;
        let (largest, d) = (largest(to) / ONE, to.len());
        Some(Self { constant, most: constant + most, largest, error: Component::error(of_terms, largest, d) })
    }

    /// Returns the components of terms, with exponents reduced by the common `offset`.
    pub(super) fn components(terms: &[Option<Self>], offset: f64) -> Vec<Component> {
        let component = |term: &Self| Component::with_constant(term.constant - offset, 1.0, term.largest, term.error);
        terms.iter().map(|term| term.as_ref().map_or(Component::DEAD, component)).collect()
    }
}

/// Returns the mean over the mixture's samples of log₂ of the factor by which weights are too small.
pub(super) fn missing(mixture: &Mixture, components: &[Component]) -> f64 {
    mixture.weights().iter().zip(components).map(|(weight, component)| weight * component.missing).sum()
}

/// Returns log₂ of a `tied` density's factor: the constants of an exponent without its quadratic part.
pub(super) fn factor(mixture: &Mixture) -> f64 {
    (mixture.log_det(0) + mixture.n_features() as f64 * TAU.ln()) / -2.0 * LOG2_E
}

/// Returns the parameters of components whose exponents are linear, with `coefficients` for each.
pub(super) fn parameters(
    mixture: &Mixture,
    coefficients: Vec<f32>,
    components: &[Component],
    offset: f64,
) -> DeviceParameters<f32> {
    let (n_components, n_features) = mixture.means().dim();
    DeviceParameters {
        n_components,
        n_features,
        scale: coefficients,
        shift: Vec::new(),
        around_means: false,
        weight: components.iter().map(|component| component.weight).collect(),
        seed: components.iter().map(|component| component.seed).collect(),
        offset,
        matrices: Matrices::Diagonal,
        gaps: None,
    }
}

/// Returns the parameters of a `tied` mixture's linear terms for totals and scores, and the rest of a total, if these
/// keep their digits.
pub fn of_tied(mixture: &Mixture, frame: &Frame, moments: &Arc<Moments>) -> Option<(DeviceParameters<f32>, Quadratic)> {
    let (k, d) = mixture.means().dim();
    let Covariances::Tied(precision) = mixture.precisions() else { return None };
    let precision = precision.view();
    let near = moments.spread(precision) <= FAR_TOTAL * d as f64;
    if !near {
        return None;
    }
    let mut coefficients = vec![0.0; k * d];
    let terms = LinearTerm::of_each(mixture, precision, frame, |v| v, &mut coefficients);
    let offset = terms.iter().flatten().map(|term| term.constant).fold(f64::NEG_INFINITY, larger);
    let components = LinearTerm::components(&terms, offset);
    let offset = offset + factor(mixture) + missing(mixture, &components);
    let exact = components.iter().all(|component| component.error <= TOTAL_ERROR);
    exact.then(|| (parameters(mixture, coefficients, &components, offset), Quadratic::new(precision, moments)))
}

/// Returns the parameters of a mixture with matrices for totals and scores from the products of two features, if these
/// keep their digits: in the order of the lower triangle of the features and the number one.
///
/// The constants make up for the rounding of the coefficients in the mean over a component's density, so that it is
/// normalised.
pub fn of_full(mixture: &Mixture, frame: &Frame, parameters: &DeviceParameters<f32>) -> Option<DeviceParameters<f32>> {
    let (k, d) = mixture.means().dim();
    let Covariances::Full(covariances) = mixture.covariances() else { return None };
    let m = products(d, true);
    let mut coefficients = vec![0.0; k * m];
    let component = |c: usize, Coefficients { second, first, constant }: Coefficients, row: &mut [f32]| {
        if parameters.weight[c] == 0.0 {
            return Component::DEAD;
        }
        // The number one follows the features.
        let (means, sizes): (Vec<_>, Vec<_>) =
            (0..d).map(|j| mean_and_size(mixture, frame, c, j)).chain([(1.0, 1.0)]).unzip();
        let (mut rounding, mut of_terms) = (0.0, 0.0);
        let pairs = (0..=d).flat_map(|i| (0..=i).map(move |j| (i, j)));
        for (((i, j), exact), to) in pairs.zip(second.iter().chain(&first)).zip(&mut *row) {
            *to = *exact as f32;
            let covariance = if i < d { covariances[[c, i, j]] * frame.scale[i] * frame.scale[j] } else { 0.0 };
            rounding += (f64::from(*to) - exact) * (covariance + means[i] * means[j]);
            of_terms += exact * exact * sizes[i] * sizes[j];
        }
        let largest = largest(row);
        Component::with_constant(
            constant - rounding,
            parameters.weight[c],
            largest,
            Component::error(of_terms, largest, m),
        )
    };
    let components = Coefficients::map(parameters, &mut coefficients, at_once(d * d * d / 8), component);
    let offset = parameters.offset + missing(mixture, &components);
    let exact = components.iter().all(|component| component.error <= TOTAL_ERROR);
    exact.then(|| self::parameters(mixture, coefficients, &components, offset))
}
