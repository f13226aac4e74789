//! The Bayesian model: the shape of a mixture, and its prior.
mod coordinates;
mod density;
mod prior;
mod resolved_prior;

pub use prior::{CorrelationsPrior, MeansPrior, Prior, ScalesPrior, Values, WeightsPrior};

use crate::data::DataSummary;
use crate::error::{Error, Result, setting};
use crate::target::Variable;
use coordinates::{Layout, MixtureParameters};
use density::Density;
use gmm_host::{CovarianceType, Covariances, MetropolisTarget, Mixture, Statistics};
use rand::Rng;
use resolved_prior::ResolvedPrior;

/// A mixture of K components with a [`Prior`], for a data set of known shape and moments: the posterior except the
/// likelihood.
///
/// The samplers move in ℝ^dim: a point θ there holds, for example, the logarithms of weights and scales, so that it is
/// free of constraints (`model/coordinates.rs` in the source defines the coordinates). [`PosteriorModel::mixture`]
/// converts a point to its mixture, [`PosteriorModel::unconstrain`] a mixture to its point.
#[derive(Debug, Clone)]
pub struct PosteriorModel {
    density: Density,
    /// The column by whose mean the components of a draw are ordered.
    order: Option<usize>,
    stated_prior: Prior,
    data: DataSummary,
}

impl PosteriorModel {
    /// Builds a model. If `order` names a column, the components of each recorded draw are sorted by their means in
    /// that column. This undoes label switching. The prior must then be the same for all components. The recorded draws
    /// have the posterior distribution under the constraint that the components are in that order (its density there is
    /// K! times as large); the chain itself is not constrained and may pass from one order to another.
    ///
    /// # Errors
    /// [`Error::Setting`] (K = 0, no such column, tied covariances), [`Error::TooManyComponents`] (K > N),
    /// [`Error::Prior`] (a wrong shape, a scale that is not positive, an order although components have different
    /// priors).
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
        let resolved = ResolvedPrior::new(prior, k, covariance_type, data)?;
        if order.is_some() && !resolved.exchangeable(k) {
            return Err(Error::Prior {
                what: "order".into(),
                problem: "components with priors of their own are told apart by them; leave out the order".into(),
            });
        }
        let density = Density { layout, prior: resolved };
        Ok(Self { density, order, stated_prior: prior.clone(), data: data.clone() })
    }

    /// Returns K.
    pub fn n_components(&self) -> usize {
        self.density.layout.k
    }

    /// Returns D.
    pub fn n_features(&self) -> usize {
        self.density.layout.d
    }

    /// Returns the summary of the model's data.
    pub fn data(&self) -> &DataSummary {
        &self.data
    }

    /// Returns the prior as stated by the user.
    pub fn prior(&self) -> &Prior {
        &self.stated_prior
    }

    /// Returns the column by whose mean the components of a recorded draw are sorted.
    pub fn order(&self) -> Option<usize> {
        self.order
    }

    /// Returns the type of the covariances.
    pub fn covariance_type(&self) -> CovarianceType {
        self.density.layout.covariance_type
    }

    /// Returns the number of unconstrained coordinates.
    pub fn dim(&self) -> usize {
        self.density.layout.dim()
    }

    /// Returns the blocks of coordinates that component-wise sampling updates together: the weights (if K > 1), then
    /// the mean and the covariance of each component.
    pub fn blocks(&self) -> Vec<Vec<usize>> {
        self.density.layout.blocks()
    }

    /// Describes unconstrained coordinate `i` in words, with components and columns counted from 0.
    pub(crate) fn coordinate(&self, i: usize) -> String {
        let layout = &self.density.layout;
        let (d, scales) = (layout.d, layout.scales());
        if i < layout.means_at() {
            format!("the weight of component {i}")
        } else if i < layout.scales_at() {
            let i = i - layout.means_at();
            format!("the mean of component {}, column {}", i / d, i % d)
        } else if i < layout.correlations_at() {
            let i = i - layout.scales_at();
            let column = if scales == d { format!(", column {}", i % scales) } else { String::new() };
            format!("the logarithm of the scale of component {}{column}", i / scales)
        } else {
            format!("a correlation of component {}", (i - layout.correlations_at()) / layout.correlations())
        }
    }

    /// Returns the parameters' names and shapes: `weights` (K), `means` (K, D), `covariances` in their type's shape.
    pub fn variables(&self) -> Vec<Variable> {
        let Layout { k, d, covariance_type, .. } = self.density.layout;
        vec![
            Variable::new("weights", [k]),
            Variable::new("means", [k, d]),
            Variable::new("covariances", covariance_type.shape(k, d)),
        ]
    }

    /// Returns the numbers of [`variables`](Self::variables) at a point, row-major, variable by variable. The
    /// components are sorted if the model has an order.
    ///
    /// # Panics
    /// If `theta` does not have `dim` coordinates.
    pub fn parameters(&self, theta: &[f64]) -> Vec<f64> {
        assert_eq!(theta.len(), self.dim(), "coordinates of the point");
        let p = self.mixture_parameters(theta);
        let mut components: Vec<usize> = (0..self.density.layout.k).collect();
        if let Some(column) = self.order {
            components.sort_by(|&a, &b| p.means[[a, column]].total_cmp(&p.means[[b, column]]));
        }
        let means = &theta[self.density.layout.means_at()..self.density.layout.scales_at()];
        let covariances: Vec<f64> = match p.covariances {
            Covariances::Diag(v) => v.into_raw_vec_and_offset().0,
            others => others.iter().collect(),
        };
        let mut numbers = Vec::with_capacity(components.len() + means.len() + covariances.len());
        numbers.extend(components.iter().map(|&c| p.weights[c]));
        for of_components in [means, &covariances] {
            let size = of_components.len() / components.len();
            components.iter().for_each(|&c| numbers.extend_from_slice(&of_components[c * size..(c + 1) * size]));
        }
        numbers
    }

    pub(crate) fn mixture_parameters(&self, theta: &[f64]) -> MixtureParameters {
        self.density.layout.parameters_at(theta)
    }

    /// Returns the mixture at a point; `None` if θ is so extreme that its parameters are not a mixture in float64.
    ///
    /// # Panics
    /// If `theta` does not have `dim` coordinates.
    pub fn mixture(&self, theta: &[f64]) -> Option<Mixture> {
        assert_eq!(theta.len(), self.dim(), "coordinates of the point");
        let p = self.mixture_parameters(theta);
        Mixture::new(p.weights, p.means, p.covariances).ok()
    }

    /// Returns the point of a mixture.
    ///
    /// # Errors
    /// [`Error::Start`] if its shape or covariance type is not the model's, or a component has no weight.
    pub fn unconstrain(&self, mixture: &Mixture) -> Result<Vec<f64>> {
        self.density.layout.point_of(mixture).map_err(Error::Start)
    }

    /// Returns the posterior density for evaluators that make Metropolis steps themselves; `None` for `full`
    /// covariances, which these do not support.
    pub fn metropolis_target(&self) -> Option<MetropolisTarget> {
        let spherical = match self.density.layout.covariance_type {
            CovarianceType::Diag => false,
            CovarianceType::Spherical => true,
            _ => return None,
        };
        let Layout { k: n_components, d: n_features, .. } = self.density.layout;
        Some(MetropolisTarget { n_components, n_features, spherical, prior: self.density.prior.terms.clone() })
    }

    /// Draws a mixture from the prior and returns its point.
    ///
    /// # Errors
    /// [`Error::Start`] if the prior is so wide that none of a thousand draws is a mixture in float64.
    pub fn sample_prior(&self, rng: &mut impl Rng) -> Result<Vec<f64>> {
        const TRIES: usize = 1000;
        let mut draws = (0..TRIES).map(|_| self.density.draw(rng));
        draws.find(|theta| self.mixture(theta).is_some()).ok_or_else(|| {
            Error::Start(format!("drawn from the prior was unusable {TRIES} times; give one, or narrow the prior"))
        })
    }

    pub(crate) fn log_prior(&self, theta: &[f64], parameters: &MixtureParameters) -> f64 {
        self.density.log_prior(theta, parameters)
    }

    /// Returns the gradient of the log posterior, from the statistics of an E-step at the point.
    pub(crate) fn gradient(
        &self,
        theta: &[f64],
        parameters: &MixtureParameters,
        statistics: &Statistics,
        gradient: &mut [f64],
    ) {
        self.density.gradient(theta, parameters, statistics, gradient);
    }

    /// Returns the coordinate of the mean that is farthest from the location of its prior.
    pub(crate) fn farthest_mean(&self, theta: &[f64]) -> usize {
        self.density.farthest_mean(theta, &self.mixture_parameters(theta))
    }

    /// Returns a rough guess of the posterior's standard deviation along each coordinate.
    pub(crate) fn typical_scale(&self, theta: &[f64]) -> Vec<f64> {
        self.density.typical_scale(theta, &self.mixture_parameters(theta), self.data.total_weight)
    }
}
