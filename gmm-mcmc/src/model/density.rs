//! The prior as a density over the coordinates θ, the gradient of the posterior, and draws from the prior.
use super::coordinates::{Layout, MixtureParameters, log_cosh};
use super::resolved_prior::{ResolvedPrior, ScaleDistribution};
use gmm_host::linalg::{sum_of, vectorised};
use gmm_host::{Covariances, Statistics};
use nalgebra::{DMatrix, DVector};
use ndarray::{Array2, Array3, ArrayView2, Axis};
use rand::Rng;
use rand_distr::{Distribution, Gamma, StandardNormal};
use std::borrow::Cow;

#[derive(Debug, Clone)]
pub(crate) struct Density {
    pub layout: Layout,
    pub prior: ResolvedPrior,
}

impl Density {
    /// Returns log p(θ): the prior density of the parameters times the Jacobian of the coordinates, normalised except
    /// for the constant of the LKJ distribution.
    pub fn log_prior(&self, theta: &[f64], parameters: &MixtureParameters) -> f64 {
        let t = &self.prior.terms;
        let log_scales = self.log_scales(theta);
        let variances = self.variances(theta, parameters);
        let means = &theta[self.layout.means_at()..self.layout.scales_at()];
        let of_means: Cow<'_, [f64]> = match variances.len() == means.len() {
            true => variances[..].into(),
            false => (0..means.len()).map(|i| variances[self.scale_of(i)]).collect::<Vec<_>>().into(),
        };
        let (location, precision, scaled) = (&t.location[..], &t.precision[..], &t.scaled_precision[..]);
        let (a, b, c) = (&t.by_log_scale[..], &t.by_variance[..], &t.by_precision[..]);
        let mut sum = t.constant;
        sum += t.concentration.iter().zip(&parameters.log_weights).map(|(a, w)| a * w).sum::<f64>();
        sum += vectorised(
            #[inline(always)]
            || {
                let of_mean = |[x, m, p, s, v]: [f64; 5]| (x - m) * (x - m) * (p + s / v);
                let of_scale = |[u, v, a, b, c]: [f64; 5]| a * u - b * v - c / v;
                sum_of([log_scales, &variances, a, b, c], of_scale)
                    - 0.5 * sum_of([means, location, precision, scaled, &of_means], of_mean)
            },
        );
        if self.layout.correlations() > 0 {
            let y = &theta[self.layout.correlations_at()..];
            // (1 − z²)^(α−1) times the Jacobian 1 − z² of z = tanh y.
            sum += y
                .iter()
                .zip(self.correlation_columns())
                .map(|(&y, j)| -2.0 * self.correlation_shape(j) * log_cosh(y))
                .sum::<f64>();
        }
        sum
    }

    /// Returns the gradient by θ of log prior + log-likelihood, from the sufficient statistics Nₖ, x̄ₖ and Sₖ (scatter
    /// about x̄ₖ) of the responsibilities at θ: ∂ℓ/∂log πₖ = Nₖ, ∂ℓ/∂μₖ = Σₖ⁻¹ Nₖ (x̄ₖ − μₖ), and, with Aₖ = Sₖ + Nₖ
    /// (x̄ₖ − μₖ)(x̄ₖ − μₖ)ᵀ, ∂ℓ/∂log σₖⱼ = Aₖⱼⱼ/σ²ₖⱼ − Nₖ (diag), ∂ℓ/∂Lₖ = Lₖ⁻ᵀ (Lₖ⁻¹ Aₖ Lₖ⁻ᵀ − Nₖ) (full).
    pub fn gradient(
        &self,
        theta: &[f64],
        parameters: &MixtureParameters,
        statistics: &Statistics,
        gradient: &mut [f64],
    ) {
        let Layout { k, d, .. } = self.layout;
        let t = &self.prior.terms;
        gradient.fill(0.0);
        let by_log_weight: Vec<f64> = statistics.counts().iter().zip(&t.concentration).map(|(n, a)| n + a).collect();
        let variances = self.variances(theta, parameters);
        let (scales_at, correlations_at) = (self.layout.scales_at(), self.layout.correlations_at());
        let by_log_scale = &mut gradient[scales_at..correlations_at];

        let offsets = centre_offsets(statistics, &parameters.means);
        let mut by_mean = vec![0.0; k * d];
        let mut by_cholesky = None;
        match &parameters.cholesky {
            None => {
                // The scatter of each column (K·D), or its sum over the columns (K).
                for (s, scatter) in statistics.scatter().iter().enumerate() {
                    by_log_scale[s] = scatter / variances[s];
                }
                for i in 0..k * d {
                    let (n, offset, s) = (statistics.counts()[i / d], offsets[[i / d, i % d]], self.scale_of(i));
                    by_mean[i] = n * offset / variances[s];
                    by_log_scale[s] += n * (offset * offset / variances[s] - 1.0);
                }
            }
            Some(l) => by_cholesky = Some(full_likelihood_gradient(l, statistics, &offsets, &mut by_mean)),
        }

        for (i, (g, mean)) in by_mean.iter_mut().zip(&parameters.means).enumerate() {
            let s = self.scale_of(i);
            let deviation = mean - t.location[i];
            let scaled = t.scaled_precision[i] / variances[s];
            *g -= deviation * (t.precision[i] + scaled);
            by_log_scale[s] += deviation * deviation * scaled;
        }
        for (i, (g, variance)) in by_log_scale.iter_mut().zip(variances.iter()).enumerate() {
            *g += t.by_log_scale[i] - 2.0 * t.by_variance[i] * variance + 2.0 * t.by_precision[i] / variance;
        }
        self.layout.chain_rule(theta, &by_log_weight, &by_mean, by_cholesky.as_ref(), gradient);
        let correlations = gradient[correlations_at..].iter_mut().zip(&theta[correlations_at..]);
        for ((g, y), j) in correlations.zip(self.correlation_columns()) {
            *g -= 2.0 * self.correlation_shape(j) * y.tanh();
        }
    }

    /// Draws a point from the prior. It may be too extreme to be a mixture in float64.
    pub fn draw(&self, rng: &mut impl Rng) -> Vec<f64> {
        let Layout { k, d, .. } = self.layout;
        let t = &self.prior.terms;
        let mut theta = Vec::with_capacity(self.layout.dim());
        let g: Vec<f64> = t.concentration.iter().map(|&a| gamma(a, rng)).collect();
        for c in 0..k - 1 {
            let rest: f64 = g[c + 1..].iter().sum();
            theta.push((g[c] / rest).ln() + ((k - 1 - c) as f64).ln());
        }
        let log_scales: Vec<f64> = (0..k * self.layout.scales())
            .map(|i| match &self.prior.scales {
                ScaleDistribution::HalfNormal(s) => normal(rng).abs().ln() + s[i].ln(),
                ScaleDistribution::InverseGamma(a, b) => 0.5 * (b[i] / gamma(a[i], rng)).ln(),
            })
            .collect();
        for i in 0..k * d {
            // The prior of a mean has one of the two precisions; the other is 0.
            let scaled = t.scaled_precision[i] * (-2.0 * log_scales[self.scale_of(i)]).exp();
            let sd = (t.precision[i] + scaled).sqrt().recip();
            theta.push(t.location[i] + sd * normal(rng));
        }
        theta.extend(log_scales);
        for _ in 0..if self.layout.correlations() > 0 { k } else { 0 } {
            for i in 1..d {
                for j in 0..i {
                    // z = 2b − 1 with b ~ Beta(α, α), so atanh z = log(g₁ / g₂) / 2 with two gamma variables.
                    let a = self.correlation_shape(j);
                    theta.push(0.5 * (gamma(a, rng) / gamma(a, rng)).ln());
                }
            }
        }
        theta
    }

    /// Returns the coordinate of the mean that is farthest from the location of its prior, in standard deviations of
    /// the prior.
    pub fn farthest_mean(&self, theta: &[f64], parameters: &MixtureParameters) -> usize {
        let variances = self.variances(theta, parameters);
        let distance = |(i, (mean, location)): (usize, (&f64, &f64))| {
            (mean - location).abs() * self.precision_of_mean(i, &variances).sqrt()
        };
        let distances = parameters.means.iter().zip(&self.prior.terms.location).enumerate().map(distance);
        let farthest = distances.enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
        self.layout.means_at() + farthest.map_or(0, |(i, _)| i)
    }

    /// Returns a rough guess of the posterior's standard deviation along each coordinate, good if θ is near the mode
    /// and the components overlap little. The samplers' step sizes begin with it.
    pub fn typical_scale(&self, theta: &[f64], parameters: &MixtureParameters, total_weight: f64) -> Vec<f64> {
        let Layout { k, d, .. } = self.layout;
        let count = |c: usize| total_weight * parameters.weights[c] + 1.0;
        let mut scale: Vec<f64> = (0..k - 1).map(|c| count(c).sqrt().recip()).collect();
        let sigma: Vec<f64> = self.log_scales(theta).iter().map(|u| u.exp()).collect();
        for i in 0..k * d {
            let sd = sigma[self.scale_of(i)] / count(i / d).sqrt();
            scale.push(sd);
        }
        let values_per_scale = (d / self.layout.scales()) as f64;
        scale.extend(
            (0..sigma.len()).map(|i| (2.0 * values_per_scale * count(i / self.layout.scales())).sqrt().recip()),
        );
        let correlations = self.layout.correlations();
        scale.extend((0..k * correlations).map(|i| count(i / correlations).sqrt().recip()));
        scale
    }

    /// Returns the precision of the prior of mean `i` of the K·D.
    fn precision_of_mean(&self, i: usize, variances: &[f64]) -> f64 {
        self.prior.terms.precision[i] + self.prior.terms.scaled_precision[i] / variances[self.scale_of(i)]
    }

    /// Under LKJ(η) a partial correlation in column j is 2·Beta(α, α) − 1 with α = η + (D − 2 − j)/2, independently of
    /// the others (Lewandowski, Kurowicka and Joe 2009, section 2.4).
    fn correlation_shape(&self, column: usize) -> f64 {
        self.prior.lkj_shape + (self.layout.d - 2 - column) as f64 / 2.0
    }

    /// Returns the column of each partial correlation, in the order of θ.
    fn correlation_columns(&self) -> impl Iterator<Item = usize> {
        let Layout { k, d, .. } = self.layout;
        (0..k).flat_map(move |_| (0..d).flat_map(|i| 0..i))
    }

    fn log_scales<'t>(&self, theta: &'t [f64]) -> &'t [f64] {
        &theta[self.layout.scales_at()..self.layout.correlations_at()]
    }

    /// Returns σ² of each scale.
    fn variances<'p>(&self, theta: &[f64], parameters: &'p MixtureParameters) -> Cow<'p, [f64]> {
        let known = match &parameters.covariances {
            Covariances::Diag(v) => v.as_slice(),
            Covariances::Spherical(v) => v.as_slice(),
            _ => None,
        };
        match known {
            Some(v) => v.into(),
            None => self.log_scales(theta).iter().map(|u| (2.0 * u).exp()).collect::<Vec<_>>().into(),
        }
    }

    /// Returns the index of the scale of mean `i` of the K·D.
    fn scale_of(&self, i: usize) -> usize {
        if self.layout.scales() == 1 { i / self.layout.d } else { i }
    }
}

fn normal(rng: &mut impl Rng) -> f64 {
    StandardNormal.sample(rng)
}

fn gamma(shape: f64, rng: &mut impl Rng) -> f64 {
    // `Gamma` needs a positive finite shape, which `ResolvedPrior` has checked.
    Gamma::new(shape, 1.0).map_or(f64::NAN, |g| g.sample(rng))
}

/// Returns x̄ₖ − μₖ (K, D), or 0 for a component without samples.
fn centre_offsets(statistics: &Statistics, means: &Array2<f64>) -> Array2<f64> {
    let mut offsets = &statistics.means() - means;
    for (mut row, &n) in offsets.outer_iter_mut().zip(statistics.counts()) {
        if n == 0.0 {
            row.fill(0.0);
        }
    }
    offsets
}

/// Returns the lower triangles of ∂ℓ/∂L (K, D, D); writes ∂ℓ/∂μ to `by_mean` (K·D,).
fn full_likelihood_gradient(
    l: &Array3<f64>,
    statistics: &Statistics,
    offsets: &Array2<f64>,
    by_mean: &mut [f64],
) -> Array3<f64> {
    let (k, d, _) = l.dim();
    let mut by_l = Array3::zeros((k, d, d));
    for c in 0..k {
        let n = statistics.counts()[c];
        let l = to_nalgebra(l.index_axis(Axis(0), c));
        let offset = offsets.row(c);
        let mut a = DMatrix::from_fn(d, d, |i, j| n * offset[i] * offset[j]);
        if let Covariances::Full(scatter) = statistics.scatter() {
            a += to_nalgebra(scatter.index_axis(Axis(0), c));
        }
        // L⁻¹ A L⁻ᵀ is L⁻¹ (L⁻¹ A)ᵀ, because A is symmetric.
        l.solve_lower_triangular_mut(&mut a);
        a.transpose_mut();
        l.solve_lower_triangular_mut(&mut a);
        for i in 0..d {
            a[(i, i)] -= n;
        }
        l.tr_solve_lower_triangular_mut(&mut a);
        for i in 0..d {
            for j in 0..=i {
                by_l[[c, i, j]] = a[(i, j)];
            }
        }
        let mut by_mu = DVector::from_iterator(d, offset.iter().map(|v| n * v));
        l.solve_lower_triangular_mut(&mut by_mu);
        l.tr_solve_lower_triangular_mut(&mut by_mu);
        by_mean[c * d..(c + 1) * d].copy_from_slice(by_mu.as_slice());
    }
    by_l
}

fn to_nalgebra(matrix: ArrayView2<'_, f64>) -> DMatrix<f64> {
    DMatrix::from_fn(matrix.nrows(), matrix.ncols(), |i, j| matrix[[i, j]])
}
