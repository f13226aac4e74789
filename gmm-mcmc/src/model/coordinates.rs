//! The unconstrained coordinates θ in which the samplers move, and their conversion to a mixture and back.
//!
//! With K components, D features and S scales for each component (S = D, or 1 for `spherical`), θ consists of:
//! - K − 1 numbers for the weights, by Stan's stick-breaking: zₖ = logit⁻¹(θₖ − log(K−1−k)), πₖ = zₖ Π_{j<k} (1 − zⱼ).
//!   Equal weights have θ = 0. The Jacobian is log|∂π/∂θ| = Σₖ log πₖ over all K.
//! - K·D means, unchanged.
//! - K·S logarithms of the scales σ. The Jacobians belong to the priors, which are stated for σ or for σ².
//! - K·D(D−1)/2 numbers y for the correlations of `full` covariances: z = tanh y are the partial correlations, row by
//!   row below the diagonal. Stan's recursion turns them into the Cholesky factor C of the correlation matrix; L =
//!   diag(σ) C, Σ = L Lᵀ.
use gmm_host::{CovarianceType, Covariances, Mixture};
use nalgebra::{Cholesky, DMatrix};
use ndarray::{Array1, Array2, Array3};

/// The shape of a mixture, which determines the positions of its parameters in θ.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub k: usize,
    pub d: usize,
    pub covariance_type: CovarianceType,
}

#[derive(Debug, Clone)]
pub(crate) struct MixtureParameters {
    pub log_weights: Vec<f64>,
    pub weights: Array1<f64>,
    pub means: Array2<f64>,
    pub covariances: Covariances,
    /// The Cholesky factors L of the covariances (K, D, D); `full` only.
    pub cholesky: Option<Array3<f64>>,
}

impl Layout {
    /// Returns S, the number of scales of one component.
    pub fn scales(&self) -> usize {
        if self.covariance_type == CovarianceType::Spherical { 1 } else { self.d }
    }

    /// Returns the number of partial correlations of one component.
    pub fn correlations(&self) -> usize {
        if self.covariance_type == CovarianceType::Full { self.d * (self.d - 1) / 2 } else { 0 }
    }

    /// Returns the index of the first mean in θ.
    pub fn means_at(&self) -> usize {
        self.k - 1
    }

    /// Returns the index of the first scale in θ.
    pub fn scales_at(&self) -> usize {
        self.means_at() + self.k * self.d
    }

    /// Returns the index of the first correlation in θ.
    pub fn correlations_at(&self) -> usize {
        self.scales_at() + self.k * self.scales()
    }

    /// Returns the number of coordinates.
    pub fn dim(&self) -> usize {
        self.correlations_at() + self.k * self.correlations()
    }

    /// Returns the coordinates in blocks: those of the weights (if K > 1), then those of each component.
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

    /// Returns the parameters at θ. At an extreme θ they may overflow or underflow; [`Mixture::new`] then fails.
    pub fn parameters_at(&self, theta: &[f64]) -> MixtureParameters {
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
        MixtureParameters { log_weights, weights, means, covariances, cholesky }
    }

    /// Returns the Cholesky factors L = diag(σ) C of all components (K, D, D).
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

    /// Applies the chain rule to a function f of the parameters: from ∂f/∂(log πₖ), with independent πₖ, ∂f/∂μ and
    /// ∂f/∂L it computes ∂f/∂θ for the weights, the means and the correlations. The part of `gradient` for the scales
    /// must hold ∂f/∂(log σ), to which the part through L is added.
    pub fn chain_rule(
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
                    // A row of L is L_ij = r_j tanh y_j and L_ii = r_i, with r_0 = σ_i and r_{j+1} = r_j / cosh y_j.
                    // The loop below runs this recursion backwards.
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

    /// Returns the point θ of a mixture. Errors: the reason why the mixture has none, as the rest of a sentence that
    /// begins with "the initial model".
    pub fn point_of(&self, mixture: &Mixture) -> Result<Vec<f64>, String> {
        let (k, d) = (self.k, self.d);
        if mixture.means().dim() != (k, d) {
            return Err(format!("has means of shape {:?}; expected (K, D) = ({k}, {d})", mixture.means().dim()));
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
        // The weights sum to 1 only within a tolerance, so the rest for the later components is their own sum.
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
                    let Some(factor) = Cholesky::new(DMatrix::from_fn(d, d, |i, j| v[[i, j]])) else {
                        return Err(format!(
                            "has a covariance matrix that is not positive definite, that of component {c} (counted from 0)"
                        ));
                    };
                    let l = factor.l();
                    for i in 0..d {
                        theta.push(0.5 * v[[i, i]].ln());
                        let mut rest = v[[i, i]].sqrt();
                        for j in 0..i {
                            let z: f64 = (l[(i, j)] / rest).clamp(-1.0 + 1e-15, 1.0 - 1e-15);
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

fn matrix(shape: (usize, usize), numbers: Vec<f64>) -> Array2<f64> {
    // Both callers take the K·D numbers between two offsets that are K·D apart.
    Array2::from_shape_vec(shape, numbers).expect("K·D numbers")
}

/// Returns log(1 + eᵗ) without overflow.
pub(crate) fn softplus(t: f64) -> f64 {
    t.max(0.0) + (-t.abs()).exp().ln_1p()
}

/// Returns log cosh y without overflow.
pub(crate) fn log_cosh(y: f64) -> f64 {
    y.abs() + (-2.0 * y.abs()).exp().ln_1p() - std::f64::consts::LN_2
}
