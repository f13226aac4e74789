//! The unconstrained space in which the samplers move, and the way from it to a mixture and back.
//!
//! A point θ holds, in this order (K components, D features, S scales a component: D, or 1 for `spherical`):
//! - K − 1 numbers for the weights: Stan's stick-breaking, zₖ = logit⁻¹(θₖ − log(K−1−k)), πₖ = zₖ Π_{j<k} (1 − zⱼ), so
//!   that θ = 0 is the uniform mixture. log|∂π/∂θ| = Σₖ log πₖ over all K.
//! - K·D means, as they are.
//! - K·S numbers log σ. Priors are stated for σ or σ², their Jacobians are in [`crate::Model`].
//! - for `full` K·D(D−1)/2 numbers y: partial correlations z = tanh y, row by row below the diagonal, from which Stan's
//!   recursion makes the Cholesky factor C of the correlation matrix; L = diag(σ) C, Σ = L Lᵀ.
use gmm_host::{CovarianceType, Covariances, Mixture};
use ndarray::{Array1, Array2, Array3};

/// Where things are in θ.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub k: usize,
    pub d: usize,
    pub covariance_type: CovarianceType,
}

/// What θ stands for.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    pub log_weights: Vec<f64>,
    pub weights: Array1<f64>,
    pub means: Array2<f64>,
    pub covariances: Covariances,
    /// L (K, D, D) for `full`.
    pub cholesky: Option<Array3<f64>>,
}

impl Layout {
    /// S, the scales of one component.
    pub fn scales(&self) -> usize {
        if self.covariance_type == CovarianceType::Spherical { 1 } else { self.d }
    }

    /// Partial correlations of one component.
    pub fn correlations(&self) -> usize {
        if self.covariance_type == CovarianceType::Full { self.d * (self.d - 1) / 2 } else { 0 }
    }

    pub fn means_at(&self) -> usize {
        self.k - 1
    }

    pub fn scales_at(&self) -> usize {
        self.means_at() + self.k * self.d
    }

    pub fn correlations_at(&self) -> usize {
        self.scales_at() + self.k * self.scales()
    }

    pub fn dim(&self) -> usize {
        self.correlations_at() + self.k * self.correlations()
    }

    /// The coordinates of the weights (if K > 1), then those of each component.
    pub fn blocks(&self) -> Vec<Vec<usize>> {
        let mut blocks = Vec::new();
        if self.k > 1 {
            blocks.push((0..self.means_at()).collect());
        }
        for c in 0..self.k {
            let part = |at: usize, len: usize| at + c * len..at + (c + 1) * len;
            let mut block: Vec<usize> = part(self.means_at(), self.d).collect();
            block.extend(part(self.scales_at(), self.scales()));
            block.extend(part(self.correlations_at(), self.correlations()));
            blocks.push(block);
        }
        blocks
    }

    /// θ → parameters. They may be out of range of f64 where θ is extreme; [`Mixture::new`] tells.
    pub fn constrain(&self, theta: &[f64]) -> Point {
        debug_assert_eq!(theta.len(), self.dim());
        let (k, d) = (self.k, self.d);
        let mut log_weights = vec![0.0; k];
        let mut log_rest = 0.0;
        for c in 0..k - 1 {
            let t = theta[c] - ((k - 1 - c) as f64).ln();
            log_weights[c] = log_rest - softplus(-t);
            log_rest -= softplus(t);
        }
        log_weights[k - 1] = log_rest;
        let weights = log_weights.iter().map(|w| w.exp()).collect();

        let means = matrix((k, d), theta[self.means_at()..self.scales_at()].to_vec());

        let log_scales = &theta[self.scales_at()..self.correlations_at()];
        let mut cholesky = None;
        let covariances = match self.covariance_type {
            CovarianceType::Spherical => Covariances::Spherical(log_scales.iter().map(|u| (2.0 * u).exp()).collect()),
            CovarianceType::Full => {
                let l = self.cholesky(theta);
                let mut sigma = Array3::zeros((k, d, d));
                for c in 0..k {
                    for i in 0..d {
                        for j in 0..=i {
                            let s = (0..=j).map(|m| l[[c, i, m]] * l[[c, j, m]]).sum();
                            sigma[[c, i, j]] = s;
                            sigma[[c, j, i]] = s;
                        }
                    }
                }
                cholesky = Some(l);
                Covariances::Full(sigma)
            }
            _ => Covariances::Diag(matrix((k, d), log_scales.iter().map(|u| (2.0 * u).exp()).collect())),
        };
        Point { log_weights, weights, means, covariances, cholesky }
    }

    /// L = diag(σ) C (K, D, D).
    fn cholesky(&self, theta: &[f64]) -> Array3<f64> {
        let mut y = theta[self.correlations_at()..].iter();
        let mut l = Array3::zeros((self.k, self.d, self.d));
        for c in 0..self.k {
            for i in 0..self.d {
                let mut rest = theta[self.scales_at() + c * self.d + i].exp();
                for (j, y) in (0..i).zip(&mut y) {
                    l[[c, i, j]] = rest * y.tanh();
                    rest /= y.cosh();
                }
                l[[c, i, i]] = rest;
            }
        }
        l
    }

    /// From ∂f/∂(log πₖ), taken as if the πₖ were free, and ∂f/∂μ, ∂f/∂L to ∂f/∂θ (weights, means and correlations); the
    /// scales' part of `gradient` holds ∂f/∂(log σ) already.
    pub fn pull_back(
        &self,
        theta: &[f64],
        by_log_weight: &[f64],
        by_mean: &[f64],
        by_cholesky: Option<&Array3<f64>>,
        gradient: &mut [f64],
    ) {
        let (k, d) = (self.k, self.d);
        // With gₖ = ∂f/∂log πₖ: ∂/∂tₖ = gₖ (1 − zₖ) − zₖ Σ_{j>k} gⱼ.
        let mut later = by_log_weight[k - 1];
        for c in (0..k - 1).rev() {
            let t = theta[c] - ((k - 1 - c) as f64).ln();
            let g = by_log_weight[c];
            let z = 1.0 / (1.0 + (-t).exp());
            gradient[c] = g / (1.0 + t.exp()) - z * later;
            later += g;
        }
        gradient[self.means_at()..self.scales_at()].copy_from_slice(by_mean);
        if let Some(by_l) = by_cholesky {
            let mut at = self.correlations_at();
            for c in 0..k {
                for i in 0..d {
                    // Forwards: L_ij = r_j tanh y_j, r_{j+1} = r_j / cosh y_j, L_ii = r_i, r_0 = σ_i; then backwards.
                    let y = &theta[at..at + i];
                    let sigma = theta[self.scales_at() + c * d + i].exp();
                    let rest: Vec<f64> = std::iter::once(sigma)
                        .chain(y.iter().scan(sigma, |r, y| {
                            *r /= y.cosh();
                            Some(*r)
                        }))
                        .collect();
                    let mut by_rest = by_l[[c, i, i]];
                    for j in (0..i).rev() {
                        let (z, sech) = (y[j].tanh(), 1.0 / y[j].cosh());
                        gradient[at + j] = rest[j] * sech * (by_l[[c, i, j]] * sech - by_rest * z);
                        by_rest = by_l[[c, i, j]] * z + by_rest * sech;
                    }
                    gradient[self.scales_at() + c * d + i] += by_rest * sigma;
                    at += i;
                }
            }
        }
    }

    /// A mixture → θ, or what is wrong with it.
    pub fn unconstrain(&self, mixture: &Mixture) -> Result<Vec<f64>, String> {
        let (k, d) = (self.k, self.d);
        if mixture.means().dim() != (k, d) {
            return Err(format!("has means of shape {:?} where (K, D) = ({k}, {d}) is needed", mixture.means().dim()));
        }
        if mixture.covariance_type() != self.covariance_type {
            return Err(format!(
                "has {} covariances where {} ones are sampled",
                mixture.covariance_type(),
                self.covariance_type
            ));
        }
        if let Some(c) = mixture.weights().iter().position(|&w| w <= 0.0) {
            return Err(format!(
                "gives component {c} (counted from 0) no weight; start from positive weights or lower K"
            ));
        }
        let mut theta = Vec::with_capacity(self.dim());
        // The weights sum to one within a tolerance; what is left of their own sum is exact for the last.
        let w = mixture.weights();
        for c in 0..k - 1 {
            let rest: f64 = w.iter().skip(c + 1).sum();
            theta.push((w[c] / rest).ln() + ((k - 1 - c) as f64).ln());
        }
        theta.extend(mixture.means());
        let mut correlations = Vec::new();
        for c in 0..k {
            match mixture.covariances() {
                Covariances::Diag(v) => theta.extend(v.row(c).iter().map(|v| 0.5 * v.ln())),
                Covariances::Spherical(v) => theta.push(0.5 * v[c].ln()),
                Covariances::Full(v) => {
                    let v = v.index_axis(ndarray::Axis(0), c);
                    let Some(l) = crate::linalg::cholesky(v.iter().copied().collect(), d) else {
                        return Err(format!(
                            "has a covariance matrix, of component {c}, that is not positive definite"
                        ));
                    };
                    for i in 0..d {
                        theta.push(0.5 * v[[i, i]].ln());
                        let mut rest = v[[i, i]].sqrt();
                        for j in 0..i {
                            let z = (l[i * d + j] / rest).clamp(-1.0 + 1e-15, 1.0 - 1e-15);
                            correlations.push(z.atanh());
                            rest *= ((1.0 - z) * (1.0 + z)).sqrt();
                        }
                    }
                }
                other => return Err(format!("has {} covariances, which cannot be sampled", other.covariance_type())),
            }
        }
        theta.extend(correlations);
        Ok(theta)
    }
}

/// Row-major numbers as a matrix.
fn matrix(shape: (usize, usize), numbers: Vec<f64>) -> Array2<f64> {
    // The only caller takes K·D numbers from between two offsets that are K·D apart.
    Array2::from_shape_vec(shape, numbers).expect("K·D numbers")
}

/// log(1 + eᵗ) without overflow.
pub(crate) fn softplus(t: f64) -> f64 {
    t.max(0.0) + (-t.abs()).exp().ln_1p()
}

/// log cosh y without overflow.
pub(crate) fn log_cosh(y: f64) -> f64 {
    y.abs() + (-2.0 * y.abs()).exp().ln_1p() - std::f64::consts::LN_2
}
