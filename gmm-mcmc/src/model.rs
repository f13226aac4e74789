//! The Bayesian model: a mixture's shape and its prior, in the unconstrained space.
use crate::data::DataSummary;
use crate::error::setting;
use crate::prior::{Prior, Resolved, ScaleDensity};
use crate::target::Variable;
use crate::transform::{Layout, Point, log_cosh};
use crate::{Error, Result};
use gmm_host::{CovarianceType, Covariances, MetropolisTarget, Mixture, Statistics};
use ndarray::{Array2, Array3, ArrayView2, ArrayViewMut2, Axis};
use rand::Rng;
use rand_distr::{Distribution, Gamma, StandardNormal};

/// A mixture of K components with a [`Prior`], over a data set of known shape and moments: everything of the posterior
/// but the likelihood.
///
/// Samplers move in ℝ^dim (the module `transform` in the source documents the coordinates θ); [`Model::mixture`] takes
/// a point there to the mixture it stands for, [`Model::unconstrain`] goes back.
#[derive(Debug, Clone)]
pub struct Model {
    layout: Layout,
    /// The column by whose mean the components of a draw are ordered.
    order: Option<usize>,
    prior: Resolved,
    stated: Prior,
    data: DataSummary,
}

impl Model {
    /// `order`: a column by whose mean the components of each draw are put in ascending order when it is recorded, against
    /// label switching. The prior must then be the same for all components. Draws so ordered are draws from the posterior
    /// under the constraint that the components are in order, which has the same density there, times K!; but the
    /// chain itself may pass from one order to another, which it cannot within the constraint.
    ///
    /// # Errors
    /// [`Error::Setting`] (K = 0, no such column), [`Error::TooManyComponents`] (K > N), [`Error::Prior`] (a shape that
    /// does not fit, a scale that is not positive, an order with priors that differ).
    pub fn new(
        n_components: usize,
        covariance_type: CovarianceType,
        prior: &Prior,
        order: Option<usize>,
        data: &DataSummary,
    ) -> Result<Self> {
        let (k, n) = (n_components, data.n_samples);
        if k == 0 {
            return setting("K, the number of components,", k, "at least 1 is needed");
        }
        if k > n {
            return Err(Error::TooManyComponents { k, n });
        }
        if let Some(column) = order.filter(|&c| c >= data.n_features) {
            let remedy = format!("the data has columns 0 to {}", data.n_features - 1);
            return setting("the column that orders the components", column, remedy);
        }
        if !matches!(covariance_type, CovarianceType::Full | CovarianceType::Diag | CovarianceType::Spherical) {
            return setting("the covariance type", covariance_type, "full, diag and spherical can be sampled");
        }
        let layout = Layout { k, d: data.n_features, covariance_type };
        let resolved = Resolved::new(prior, k, covariance_type, data)?;
        if order.is_some() && !resolved.exchangeable(k) {
            return Err(Error::Prior {
                what: "order".into(),
                problem: "components with priors of their own are told apart by them; leave out the order".into(),
            });
        }
        Ok(Self { layout, order, prior: resolved, stated: prior.clone(), data: data.clone() })
    }

    /// K.
    pub fn n_components(&self) -> usize {
        self.layout.k
    }

    /// D.
    pub fn n_features(&self) -> usize {
        self.layout.d
    }

    /// The data that the model is for.
    pub fn data(&self) -> &DataSummary {
        &self.data
    }

    /// The prior as it was stated.
    pub fn prior(&self) -> &Prior {
        &self.stated
    }

    /// The column by whose mean the components are ordered.
    pub fn order(&self) -> Option<usize> {
        self.order
    }

    /// The type of the covariances.
    pub fn covariance_type(&self) -> CovarianceType {
        self.layout.covariance_type
    }

    /// Number of unconstrained coordinates.
    pub fn dim(&self) -> usize {
        self.layout.dim()
    }

    /// The coordinates in blocks that component-wise sampling updates together: the weights (if K > 1), then the mean and
    /// the covariance of each component.
    pub fn blocks(&self) -> Vec<Vec<usize>> {
        self.layout.blocks()
    }

    /// What unconstrained coordinate `i` is, in words, with components and columns counted from 0.
    pub(crate) fn coordinate(&self, i: usize) -> String {
        let Layout { d, .. } = self.layout;
        let (means, scales, correlations) =
            (self.layout.means_at(), self.layout.scales_at(), self.layout.correlations_at());
        if i < means {
            format!("the weight of component {i}")
        } else if i < scales {
            format!("the mean of component {}, column {}", (i - means) / d, (i - means) % d)
        } else if i < correlations {
            let (component, column) = ((i - scales) / self.layout.scales(), (i - scales) % self.layout.scales());
            let column = if self.layout.scales() == d { format!(", column {column}") } else { String::new() };
            format!("the logarithm of the scale of component {component}{column}")
        } else {
            format!("a correlation of component {}", (i - correlations) / self.layout.correlations())
        }
    }

    /// The coordinate of the mean that lies most of its prior's standard deviations away from its prior's location.
    pub(crate) fn farthest_mean(&self, theta: &[f64], point: &Point) -> usize {
        let (t, variances) = (&self.prior.terms, self.variances(theta, point));
        let distance = |(i, (mean, location)): (usize, (&f64, &f64))| {
            let precision = t.precision[i] + t.scaled_precision[i] / variances[self.scale_of(i)];
            (mean - location).abs() * precision.sqrt()
        };
        let distances = point.means.iter().zip(&t.location).enumerate().map(distance);
        let farthest = distances.enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
        self.layout.means_at() + farthest.map_or(0, |(i, _)| i)
    }

    /// The parameters' names and shapes: `weights` (K), `means` (K, D), `covariances` in their type's shape.
    pub fn variables(&self) -> Vec<Variable> {
        let Layout { k, d, covariance_type, .. } = self.layout;
        vec![
            Variable { name: "weights".into(), shape: vec![k] },
            Variable { name: "means".into(), shape: vec![k, d] },
            Variable { name: "covariances".into(), shape: covariance_type.shape(k, d) },
        ]
    }

    /// The numbers of [`variables`](Self::variables) at a point, row-major, one after the other; the components in order,
    /// if the model has one.
    ///
    /// # Panics
    /// If `theta` has not `dim` coordinates.
    pub fn parameters(&self, theta: &[f64]) -> Vec<f64> {
        assert_eq!(theta.len(), self.dim(), "coordinates of the point");
        let p = self.point(theta);
        let mut components: Vec<usize> = (0..self.layout.k).collect();
        if let Some(column) = self.order {
            components.sort_by(|&a, &b| p.means[[a, column]].total_cmp(&p.means[[b, column]]));
        }
        let covariances: Vec<f64> = p.covariances.iter().collect();
        let size = covariances.len() / components.len();
        let mut numbers: Vec<f64> = components.iter().map(|&c| p.weights[c]).collect();
        components.iter().for_each(|&c| numbers.extend(p.means.row(c)));
        components.iter().for_each(|&c| numbers.extend(&covariances[c * size..(c + 1) * size]));
        numbers
    }

    pub(crate) fn point(&self, theta: &[f64]) -> Point {
        self.layout.constrain(theta)
    }

    /// The mixture that a point stands for; `None` where θ is so extreme that it is not one in float64.
    ///
    /// # Panics
    /// If `theta` has not `dim` coordinates.
    pub fn mixture(&self, theta: &[f64]) -> Option<Mixture> {
        assert_eq!(theta.len(), self.dim(), "coordinates of the point");
        let p = self.point(theta);
        Mixture::new(p.weights, p.means, p.covariances).ok()
    }

    /// The point that stands for a mixture.
    ///
    /// # Errors
    /// [`Error::Start`]: another shape or covariance type, a component without weight.
    pub fn unconstrain(&self, mixture: &Mixture) -> Result<Vec<f64>> {
        self.layout.unconstrain(mixture).map_err(Error::Start)
    }

    /// The posterior as a backend takes it that walks by itself; `None` for `full`.
    pub fn walk_target(&self) -> Option<MetropolisTarget> {
        let spherical = match self.layout.covariance_type {
            CovarianceType::Diag => false,
            CovarianceType::Spherical => true,
            _ => return None,
        };
        let Layout { k: n_components, d: n_features, .. } = self.layout;
        Some(MetropolisTarget { n_components, n_features, spherical, prior: self.prior.terms.clone() })
    }

    /// A mixture drawn from the prior, as a point.
    ///
    /// # Errors
    /// [`Error::Start`] when the prior is so wide that no draw is a mixture in float64.
    pub fn sample_prior(&self, rng: &mut impl Rng) -> Result<Vec<f64>> {
        const TRIES: usize = 1000;
        let mut draws = (0..TRIES).map(|_| self.draw(rng));
        draws.find(|theta| self.mixture(theta).is_some()).ok_or_else(|| {
            Error::Start(format!("drawn from the prior was unusable {TRIES} times; give one, or narrow the prior"))
        })
    }

    fn draw(&self, rng: &mut impl Rng) -> Vec<f64> {
        let Layout { k, d, .. } = self.layout;

        let mut theta = Vec::with_capacity(self.dim());
        let g: Vec<f64> = self.prior.terms.concentration.iter().map(|&a| gamma(a, rng)).collect();
        for c in 0..k - 1 {
            let rest: f64 = g[c + 1..].iter().sum();
            theta.push((g[c] / rest).ln() + ((k - 1 - c) as f64).ln());
        }
        let scales = self.layout.scales();
        let log_scales: Vec<f64> = (0..k * scales)
            .map(|i| match &self.prior.scale {
                ScaleDensity::HalfNormal(s) => normal(rng).abs().ln() + s[i].ln(),
                ScaleDensity::InverseGamma(a, b) => 0.5 * (b[i] / gamma(a[i], rng)).ln(),
            })
            .collect();
        for i in 0..k * d {
            // One of the two is zero.
            let terms = &self.prior.terms;
            let by_variance = terms.scaled_precision[i] * (-2.0 * log_scales[self.scale_of(i)]).exp();
            let sd = (terms.precision[i] + by_variance).sqrt().recip();
            theta.push(terms.location[i] + sd * normal(rng));
        }
        theta.extend(log_scales);
        for _ in 0..if self.layout.correlations() > 0 { k } else { 0 } {
            for i in 1..d {
                for j in 0..i {
                    // z = 2b − 1 with b ~ Beta(α, α): atanh z = log(g₁ / g₂) / 2.
                    let a = self.partial_shape(j);
                    theta.push(0.5 * (gamma(a, rng) / gamma(a, rng)).ln());
                }
            }
        }
        theta
    }

    /// Under LKJ(η) the partial correlation in column j is 2·Beta(α, α) − 1 with α = η + (D − 2 − j)/2, independently
    /// (Lewandowski, Kurowicka and Joe 2009, section 2.4).
    fn partial_shape(&self, column: usize) -> f64 {
        self.prior.lkj + (self.layout.d - 2 - column) as f64 / 2.0
    }

    /// log p(θ): the prior density of the parameters times the Jacobian of the transform, normalised but for the LKJ
    /// constant.
    pub(crate) fn log_prior(&self, theta: &[f64], point: &Point) -> f64 {
        let t = &self.prior.terms;
        let log_scales = self.log_scales(theta);
        let variances = self.variances(theta, point);
        let mut sum = t.constant;
        sum += t.concentration.iter().zip(&point.log_weights).map(|(a, w)| a * w).sum::<f64>();
        for (i, (mean, location)) in point.means.iter().zip(&t.location).enumerate() {
            let precision = t.precision[i] + t.scaled_precision[i] / variances[self.scale_of(i)];
            sum -= 0.5 * (mean - location) * (mean - location) * precision;
        }
        for (i, (log_scale, variance)) in log_scales.iter().zip(variances.iter()).enumerate() {
            sum += t.by_log_scale[i] * log_scale - t.by_variance[i] * variance - t.by_precision[i] / variance;
        }
        if self.layout.correlations() > 0 {
            let y = &theta[self.layout.correlations_at()..];
            // (1 − z²)^(α−1) times the Jacobian 1 − z² of z = tanh y.
            sum += y
                .iter()
                .zip(self.partial_columns())
                .map(|(&y, j)| -2.0 * self.partial_shape(j) * log_cosh(y))
                .sum::<f64>();
        }
        sum
    }

    /// The column of each partial correlation of θ, in its order.
    fn partial_columns(&self) -> impl Iterator<Item = usize> {
        let Layout { k, d, .. } = self.layout;
        (0..k).flat_map(move |_| (0..d).flat_map(|i| 0..i))
    }

    fn log_scales<'t>(&self, theta: &'t [f64]) -> &'t [f64] {
        &theta[self.layout.scales_at()..self.layout.correlations_at()]
    }

    /// σ² of each scale.
    fn variances<'p>(&self, theta: &[f64], point: &'p Point) -> std::borrow::Cow<'p, [f64]> {
        let known = match &point.covariances {
            Covariances::Diag(v) => v.as_slice(),
            Covariances::Spherical(v) => v.as_slice(),
            _ => None,
        };
        match known {
            Some(v) => v.into(),
            None => self.log_scales(theta).iter().map(|u| (2.0 * u).exp()).collect::<Vec<_>>().into(),
        }
    }

    /// Index of the scale that belongs to mean `i` of the K·D.
    fn scale_of(&self, i: usize) -> usize {
        if self.layout.scales() == 1 { i / self.layout.d } else { i }
    }

    /// The gradient by θ of log prior + log-likelihood, from the sufficient statistics Nₖ, x̄ₖ and Sₖ (scatter about x̄ₖ) of
    /// the responsibilities at θ: ∂ℓ/∂log πₖ = Nₖ, ∂ℓ/∂μₖ = Σₖ⁻¹ Nₖ (x̄ₖ − μₖ), and, with Aₖ = Sₖ + Nₖ (x̄ₖ − μₖ)(x̄ₖ − μₖ)ᵀ,
    /// ∂ℓ/∂log σₖⱼ = Aₖⱼⱼ/σ²ₖⱼ − Nₖ (diag), ∂ℓ/∂Lₖ = Lₖ⁻ᵀ (Lₖ⁻¹ Aₖ Lₖ⁻ᵀ − Nₖ) (full).
    pub(crate) fn gradient(&self, theta: &[f64], point: &Point, statistics: &Statistics, gradient: &mut [f64]) {
        let Layout { k, d, .. } = self.layout;
        let t = &self.prior.terms;
        gradient.fill(0.0);
        let by_log_weight: Vec<f64> = statistics.counts().iter().zip(&t.concentration).map(|(n, a)| n + a).collect();
        let variances = self.variances(theta, point);
        let (at, to) = (self.layout.scales_at(), self.layout.correlations_at());
        let by_log_scale = &mut gradient[at..to];

        let offsets = centre_offsets(statistics, &point.means);
        let mut by_mean = vec![0.0; k * d];
        let mut by_cholesky = None;
        match &point.cholesky {
            None => {
                // Diagonals (K·D), or traces over the columns (K).
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

        for (i, (g, mean)) in by_mean.iter_mut().zip(&point.means).enumerate() {
            let s = self.scale_of(i);
            let deviation = mean - t.location[i];
            let scaled = t.scaled_precision[i] / variances[s];
            *g -= deviation * (t.precision[i] + scaled);
            by_log_scale[s] += deviation * deviation * scaled;
        }
        for (i, (g, variance)) in by_log_scale.iter_mut().zip(variances.iter()).enumerate() {
            *g += t.by_log_scale[i] - 2.0 * t.by_variance[i] * variance + 2.0 * t.by_precision[i] / variance;
        }
        self.layout.pull_back(theta, &by_log_weight, &by_mean, by_cholesky.as_ref(), gradient);
        for ((g, y), j) in gradient[to..].iter_mut().zip(&theta[to..]).zip(self.partial_columns()) {
            *g -= 2.0 * self.partial_shape(j) * y.tanh();
        }
    }

    /// Roughly the posterior's standard deviation along each coordinate, if θ is near the mode and the components
    /// overlap little: where the samplers' step sizes start.
    pub(crate) fn typical_scale(&self, theta: &[f64]) -> Vec<f64> {
        let Layout { k, d, .. } = self.layout;
        let point = self.point(theta);
        let count = |c: usize| self.data.total_weight * point.weights[c] + 1.0;
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
}

fn normal(rng: &mut impl Rng) -> f64 {
    StandardNormal.sample(rng)
}

fn gamma(shape: f64, rng: &mut impl Rng) -> f64 {
    // Shapes were checked to be positive and finite, all that `Gamma` asks for.
    Gamma::new(shape, 1.0).map_or(f64::NAN, |g| g.sample(rng))
}

/// x̄ₖ − μₖ (K, D); 0 where a component has no points.
fn centre_offsets(statistics: &Statistics, means: &Array2<f64>) -> Array2<f64> {
    let mut offsets = &statistics.means() - means;
    for (mut row, &n) in offsets.outer_iter_mut().zip(statistics.counts()) {
        if n == 0.0 {
            row.fill(0.0);
        }
    }
    offsets
}

/// ∂ℓ/∂L (its lower triangle), and ∂ℓ/∂μ into `by_mean`.
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
        let l = l.index_axis(Axis(0), c);
        let offset = offsets.row(c);
        let mut a = Array2::from_shape_fn((d, d), |(i, j)| n * offset[i] * offset[j]);
        if let Covariances::Full(scatter) = statistics.scatter() {
            a += &scatter.index_axis(Axis(0), c);
        }
        // L⁻¹ A L⁻ᵀ: rows, then (as A is symmetric) rows of the transpose.
        solve_lower(l, a.view_mut());
        a = a.reversed_axes().as_standard_layout().into_owned();
        solve_lower(l, a.view_mut());
        a.diag_mut().map_inplace(|v| *v -= n);
        solve_lower_transposed(l, a.view_mut());
        for i in 0..d {
            for j in 0..=i {
                by_l[[c, i, j]] = a[[i, j]];
            }
        }
        let mut by_mu = offset.mapv(|v| n * v).insert_axis(Axis(1));
        solve_lower(l, by_mu.view_mut());
        solve_lower_transposed(l, by_mu.view_mut());
        by_mean[c * d..(c + 1) * d].iter_mut().zip(&by_mu).for_each(|(g, v)| *g = *v);
    }
    by_l
}

/// B ← L⁻¹ B.
fn solve_lower(l: ArrayView2<'_, f64>, mut b: ArrayViewMut2<'_, f64>) {
    for i in 0..l.nrows() {
        let (solved, mut rest) = b.view_mut().split_at(Axis(0), i);
        let mut row = rest.row_mut(0);
        for m in 0..i {
            row.scaled_add(-l[[i, m]], &solved.row(m));
        }
        row /= l[[i, i]];
    }
}

/// B ← L⁻ᵀ B.
fn solve_lower_transposed(l: ArrayView2<'_, f64>, mut b: ArrayViewMut2<'_, f64>) {
    for i in (0..l.nrows()).rev() {
        let (mut rest, solved) = b.view_mut().split_at(Axis(0), i + 1);
        let mut row = rest.row_mut(i);
        for m in i + 1..l.nrows() {
            row.scaled_add(-l[[m, i]], &solved.row(m - i - 1));
        }
        row /= l[[i, i]];
    }
}
