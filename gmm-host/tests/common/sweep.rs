//! The E-step under missing values, sample by sample with the sweep operator (Little and Rubin, Statistical Analysis
//! with Missing Data, section 7.4.3). It shares no code and no factorisation with the library.
use super::statistics_of;
use gmm_host::{Mixture, Statistics};
use ndarray::{Array1, Array2, Array3, ArrayView1, Axis};

/// The posterior of one sample's values under one component.
pub struct Component {
    /// log πₖ N(x_o; μ_o, Σ_oo).
    pub log_p: f64,
    /// x, with the conditional means of missing values (D,).
    pub filled: Array1<f64>,
    /// The conditional covariance of missing values, zero for observed ones (D, D).
    pub covariance: Array2<f64>,
}

pub fn component(m: &Mixture, c: usize, x: ArrayView1<'_, f64>) -> Component {
    let d = x.len();
    let means = m.means();
    let (mut g, mu) = (m.matrix(c), means.row(c));
    let is_observed = |j: usize| !x[j].is_nan();
    let observed: Vec<usize> = (0..d).filter(|&j| is_observed(j)).collect();
    let mut log_det = 0.0;
    for &k in &observed {
        let h = g.clone();
        let pivot = h[[k, k]];
        log_det += pivot.ln();
        for i in 0..d {
            for j in 0..d {
                g[[i, j]] = match (i == k, j == k) {
                    (true, true) => -1.0 / pivot,
                    (true, false) | (false, true) => h[[i, j]] / pivot,
                    (false, false) => h[[i, j]] - h[[i, k]] * h[[k, j]] / pivot,
                };
            }
        }
    }
    let mut square = 0.0;
    for &i in &observed {
        for &j in &observed {
            square -= (x[i] - mu[i]) * g[[i, j]] * (x[j] - mu[j]);
        }
    }
    let mut filled = x.to_owned();
    for j in (0..d).filter(|&j| !is_observed(j)) {
        filled[j] = mu[j] + observed.iter().map(|&o| g[[j, o]] * (x[o] - mu[o])).sum::<f64>();
    }
    let covariance = Array2::from_shape_fn((d, d), |(i, j)| match is_observed(i) || is_observed(j) {
        true => 0.0,
        false => g[[i, j]],
    });
    let constant = observed.len() as f64 * std::f64::consts::TAU.ln();
    Component { log_p: m.weights()[c].ln() - 0.5 * (constant + log_det + square), filled, covariance }
}

/// The posterior of samples under a mixture.
pub struct Posterior {
    components: Vec<Vec<Component>>,
    /// The log-likelihood of each sample (N,).
    pub scores: Array1<f64>,
    /// The responsibilities (N, K).
    pub r: Array2<f64>,
}

pub fn posterior(m: &Mixture, x: &Array2<f64>) -> Posterior {
    let (n, k) = (x.nrows(), m.n_components());
    let components: Vec<Vec<Component>> =
        (0..k).map(|c| x.outer_iter().map(|x| component(m, c, x)).collect()).collect();
    let mut r = Array2::from_shape_fn((n, k), |(i, c)| components[c][i].log_p);
    let mut scores = Array1::zeros(n);
    for (score, mut r) in scores.iter_mut().zip(r.outer_iter_mut()) {
        let largest = r.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        *score = largest + r.iter().map(|v| (v - largest).exp()).sum::<f64>().ln();
        r.map_inplace(|v| *v = (*v - *score).exp());
    }
    Posterior { components, scores, r }
}

pub fn statistics(m: &Mixture, posterior: &Posterior, w: &Array1<f64>) -> Statistics {
    let (k, d) = m.means().dim();
    let scores = &posterior.scores;
    let r = &posterior.r * &w.view().insert_axis(Axis(1));
    let counts = r.sum_axis(Axis(0));
    let mut centres = Array2::zeros((k, d));
    let mut full = Array3::zeros((k, d, d));
    for (c, parts) in posterior.components.iter().enumerate() {
        // Differences from the component's mean lose nothing far from the origin.
        let origin = m.means().row(c).to_owned();
        let mut centre = Array1::<f64>::zeros(d);
        parts.iter().zip(r.column(c)).for_each(|(p, r)| centre += &((&p.filled - &origin) * (*r / counts[c])));
        centre += &origin;
        for (part, &r) in parts.iter().zip(r.column(c)) {
            let delta = &part.filled - &centre;
            for ((i, j), v) in full.index_axis_mut(Axis(0), c).indexed_iter_mut() {
                *v += r * (delta[i] * delta[j] + part.covariance[[i, j]]);
            }
        }
        centres.row_mut(c).assign(&centre);
    }
    let log_likelihood = scores.iter().zip(w).filter(|(_, w)| **w > 0.0).map(|(s, w)| s * w).sum();
    statistics_of(m.covariance_type(), log_likelihood, w.sum(), counts, centres, full)
}
