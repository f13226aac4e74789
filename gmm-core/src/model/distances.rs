//! Distances between mixtures and between their components.
use super::decomposition::squared_distance_up_to_rotation;
use super::density::Density;
use super::gaussian::{Covariance, Gaussian};
use super::transport::cheapest_plan;
use crate::compensated::log_sum_exp;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::memory;
use crate::model::covariances::CovarianceType;
use crate::model::mixture::Mixture;
use crate::reproducible::Functions;
use ndarray::parallel::prelude::*;
use ndarray::{Array1, Array2, Axis};

const REMEDY: &str = "reduce the mixtures first";

/// An estimate from random samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// The standard deviation over seeds, estimated from the samples themselves.
    pub standard_error: f64,
}

/// A plan that moves the weights of one mixture to those of another.
#[derive(Debug, Clone, PartialEq)]
pub struct Transport {
    /// The distance, in the units of the data.
    pub distance: f64,
    /// The weight (K, L) moved from each component of one mixture to each of the other.
    pub plan: Array2<f64>,
}

/// # Distances
///
/// All methods return [`Error::ShapeMismatch`] if the numbers of features differ.
impl Mixture {
    /// Returns the Cauchy–Schwarz divergence −ln(∫pq / √(∫p² ∫q²)), in closed form. It is symmetric, and zero only for
    /// equal densities (Jenssen et al. 2006).
    pub fn cauchy_schwarz(&self, other: &Self) -> Result<f64> {
        let [pp, pq, qq] = self.log_products(other)?;
        Ok((0.5 * pp + 0.5 * qq - pq).max(0.0))
    }

    /// Returns the distance √∫(p − q)² of the densities, in closed form. It is a difference of integrals, so below 10⁻⁸
    /// of √∫p² only rounding errors are left.
    pub fn l2_distance(&self, other: &Self) -> Result<f64> {
        let [pp, pq, qq] = self.log_products(other)?;
        let most = pp.max(qq);
        let square = (pp - most).exp_e() + (qq - most).exp_e() - 2.0 * (pq - most).exp_e();
        Ok((0.5 * most).exp_e() * square.max(0.0).sqrt())
    }

    fn log_products(&self, other: &Self) -> Result<[f64; 3]> {
        self.check_same_features(other)?;
        Ok([self.log_product(self)?, self.log_product(other)?, other.log_product(other)?])
    }

    /// Returns ln ∫pq = ln Σᵢⱼ πᵢ ρⱼ N(μᵢ; νⱼ, Σᵢ + Tⱼ).
    fn log_product(&self, other: &Self) -> Result<f64> {
        Ok(log_sum_exp(&self.pairs(other, |_, _, _, _, log_weight| log_weight)?))
    }

    /// Returns the results of `f` for each pair of components i of this mixture and j of the other, ordered by i. `f`
    /// gets i, j, the normal distribution of covariance Σᵢ + Tⱼ, νⱼ − μᵢ, and ln(πᵢ ρⱼ N(μᵢ; νⱼ, Σᵢ + Tⱼ)).
    pub(super) fn pairs<T: Send>(
        &self,
        other: &Self,
        f: impl Fn(usize, usize, &Gaussian, &Array1<f64>, f64) -> T + Sync,
    ) -> Result<Vec<T>> {
        let shape = [self.n_components(), other.n_components()];
        // Rows of results are copied together.
        memory::check("the pairs of components", &shape, 3 * size_of::<T>(), REMEDY)?;
        let interrupt = Interrupt::current();
        let (first, second) = (Covariance::all(self), Covariance::all(other));
        let tied = [self, other].iter().all(|m| m.covariance_type() == CovarianceType::Tied);
        let common = if tied { Some(Gaussian::new(first[0].plus(&second[0]))?) } else { None };
        let row = |i: usize| {
            let pair = |j: usize| {
                interrupt.check()?;
                let own;
                let sum = match &common {
                    Some(sum) => sum,
                    None => {
                        own = Gaussian::new(first[i].plus(&second[j]))?;
                        &own
                    }
                };
                let delta = &other.means().row(j) - &self.means().row(i);
                let log_weight = self.log_weight(i) + other.log_weight(j) + sum.log_density(delta.view());
                Ok(f(i, j, sum, &delta, log_weight))
            };
            (0..other.n_components()).map(pair).collect::<Result<Vec<_>>>()
        };
        let rows: Vec<Vec<T>> = (0..self.n_components()).into_par_iter().map(row).collect::<Result<_>>()?;
        Ok(rows.into_iter().flatten().collect())
    }

    /// Estimates the Kullback–Leibler divergence ∫ p ln(p/q) of `other` (q) from this mixture (p) in nats, by the mean
    /// of ln(p/q) over `n_samples` samples of p. The same seed gives the same bits.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for fewer than two samples;
    /// [`Error::UnreachableSample`] for a sample infinitely far from the other mixture; as [`sampler`](Self::sampler).
    pub fn kl_divergence(&self, other: &Self, n_samples: usize, seed: u64) -> Result<Estimate> {
        self.check_same_features(other)?;
        self.mean_over_samples(n_samples, seed, |x| {
            let (p, q) = (log_densities(self, x), log_densities(other, x));
            p.into_iter().zip(q).map(|(p, q)| p - q).collect()
        })
    }

    /// Estimates the Jensen–Shannon divergence ½ ∫ p ln(p/m) + ½ ∫ q ln(q/m) with m = ½(p + q), in nats, from
    /// `n_samples` samples of each mixture. It lies between 0 and ln 2 and is symmetric up to the error of the
    /// estimate. The same seed gives the same bits.
    ///
    /// # Errors
    /// As [`kl_divergence`](Self::kl_divergence).
    pub fn js_divergence(&self, other: &Self, n_samples: usize, seed: u64) -> Result<Estimate> {
        self.check_same_features(other)?;
        let half = |from: &Self, to: &Self, seed| {
            from.mean_over_samples(n_samples, seed, |x| {
                let (p, q) = (log_densities(from, x), log_densities(to, x));
                // ln(p/m) = ln 2 − ln(1 + q/p)
                p.into_iter().zip(q).map(|(p, q)| 2f64.log_e() - log_sum_exp(&[0.0, q - p])).collect()
            })
        };
        // The two sets of samples need different random numbers.
        let (a, b) = (half(self, other, seed)?, half(other, self, !seed)?);
        let standard_error = 0.5 * a.standard_error.hypot(b.standard_error);
        Ok(Estimate { value: 0.5 * (a.value + b.value), standard_error })
    }

    /// Returns the mean of the numbers `f` returns for samples (N, D) of this mixture.
    fn mean_over_samples(&self, n_samples: usize, seed: u64, f: impl Fn(&Array2<f64>) -> Vec<f64>) -> Result<Estimate> {
        if n_samples < 2 {
            let remedy = "at least two are needed, for a standard error; 10000 give two digits";
            return Err(Error::BadParameter { name: "n_samples", value: n_samples.to_string(), remedy });
        }
        let mut sampler = self.sampler(seed)?;
        // Enough rows for all threads, few enough for a quick response to Ctrl-C.
        let (k, d) = self.means().dim();
        let at_once = ((1 << 24) / (k * d)).clamp(1 << 13, 1 << 20).min((1 << 20) / d).max(1);
        let (mut n, mut mean, mut squares) = (0.0, 0.0, 0.0);
        for first in (0..n_samples).step_by(at_once) {
            Interrupt::current().check()?;
            let (x, _) = sampler.draw(at_once.min(n_samples - first))?;
            for (row, value) in f(&x).into_iter().enumerate() {
                if !value.is_finite() {
                    return Err(Error::UnreachableSample { row: first + row });
                }
                // Welford's algorithm.
                n += 1.0;
                let delta = value - mean;
                mean += delta / n;
                squares += delta * (value - mean);
            }
        }
        Ok(Estimate { value: mean, standard_error: (squares / (n - 1.0) / n).sqrt() })
    }

    /// Returns the 2-Wasserstein distance of each component of this mixture from each of the other (K, L), in the units
    /// of the data: W² = |μ − ν|² + tr(Σ + T − 2 (Σ^½ T Σ^½)^½).
    ///
    /// # Errors
    /// [`Error::NonFiniteStatistic`] if a distance overflows.
    pub fn wasserstein(&self, other: &Self) -> Result<Array2<f64>> {
        Ok(self.squared_wasserstein(other)?.mapv_into(f64::sqrt))
    }

    fn squared_wasserstein(&self, other: &Self) -> Result<Array2<f64>> {
        self.check_same_features(other)?;
        let shape = [self.n_components(), other.n_components()];
        // Rows of results are copied together, and a plan may be held as well.
        memory::check("the distances of the components", &shape, 3 * size_of::<f64>(), REMEDY)?;
        let interrupt = Interrupt::current();
        let roots = |m: &Self| Covariance::all(m).iter().map(Covariance::root).collect::<Result<Vec<_>>>();
        let (a, b) = (roots(self)?, roots(other)?);
        let row = |i: usize| {
            let pair = |j: usize| {
                interrupt.check()?;
                let delta = &self.means().row(i) - &other.means().row(j);
                let square = delta.dot(&delta) + squared_distance_of_roots(&a[i], &b[j]);
                let failure = Error::NonFiniteStatistic { what: "a distance", component: i, value: square };
                if square.is_finite() { Ok(square) } else { Err(failure) }
            };
            (0..b.len()).map(pair).collect::<Result<Vec<_>>>()
        };
        let rows: Vec<Vec<f64>> = (0..a.len()).into_par_iter().map(row).collect::<Result<_>>()?;
        Ok(Array2::from_shape_fn((a.len(), b.len()), |(i, j)| rows[i][j]))
    }

    /// Returns the distance of the mixtures if only shares of whole components move: the square root of the least Σᵢⱼ
    /// wᵢⱼ W²(i, j) over all plans w between the two sets of weights, found exactly. The 2-Wasserstein distance of the
    /// densities is at most this (Delon and Desolneux 2020).
    ///
    /// # Errors
    /// As [`wasserstein`](Self::wasserstein).
    pub fn transport(&self, other: &Self) -> Result<Transport> {
        let costs = self.squared_wasserstein(other)?;
        let shares = |m: &Self| (&m.weights() / m.weights().sum()).to_vec();
        let plan = cheapest_plan(&costs, shares(self), shares(other))?;
        Ok(Transport { distance: (&plan * &costs).sum().sqrt(), plan })
    }

    /// Returns the Hellinger affinity ∫√(fg), or Bhattacharyya coefficient, of each component f of this mixture with
    /// each component g of the other (K, L): 1 for equal components, 0 without overlap. The Hellinger distance is √(1 −
    /// affinity).
    pub fn hellinger_affinity(&self, other: &Self) -> Result<Array2<f64>> {
        self.check_same_features(other)?;
        let d = self.n_features() as f64;
        let of_pair = |i, j, sum: &Gaussian, delta: &Array1<f64>, _| {
            let log_det_of_mean = sum.log_det - d * 2f64.log_e();
            let log_dets = 0.25 * (self.log_det(i) + other.log_det(j)) - 0.5 * log_det_of_mean;
            (log_dets - 0.25 * sum.square(delta.view())).exp_e().min(1.0)
        };
        let values = self.pairs(other, of_pair)?;
        let (k, l) = (self.n_components(), other.n_components());
        Ok(Array2::from_shape_fn((k, l), |(i, j)| values[i * l + j]))
    }

    pub(super) fn check_same_features(&self, other: &Self) -> Result<()> {
        [self, other].into_iter().try_for_each(|mixture| mixture.check_no_noise("the distance or product"))?;
        let (d, (k, got)) = (self.n_features(), other.means().dim());
        if d == got {
            return Ok(());
        }
        Err(Error::ShapeMismatch { what: "the means of the other mixture", expected: vec![k, d], got: vec![k, got] })
    }
}

/// Returns tr(Σ + T − 2 (Σ^½ T Σ^½)^½) of Σ = L·Lᵀ and T = M·Mᵀ: the least |L − M·Q|² over orthogonal Q, which keeps
/// its digits if Σ and T are nearly equal.
fn squared_distance_of_roots(l: &Covariance, m: &Covariance) -> f64 {
    match (l, m) {
        _ if l == m => 0.0,
        (Covariance::Diagonal(l), Covariance::Diagonal(m)) => (l - m).mapv(|v| v * v).sum(),
        _ => {
            let (l, m) = (l.clone().into_matrix(), m.clone().into_matrix());
            squared_distance_up_to_rotation(&l, &m).unwrap_or(f64::NAN)
        }
    }
}

fn log_densities(mixture: &Mixture, x: &Array2<f64>) -> Vec<f64> {
    let rows = 1 << 10;
    let parts = x.axis_chunks_iter(Axis(0), rows).into_par_iter().map(|x| {
        let (mut density, mut log_p) = (Density::new(mixture), vec![0.0; mixture.n_components()]);
        x.outer_iter().map(|x| density.evaluate(x, &mut log_p)).collect::<Vec<_>>()
    });
    parts.collect::<Vec<_>>().concat()
}
