//! The distribution of some features alone, and of the others given those, for samples with missing values.
//!
//! Split the features of a component N(μ, Σ) into observed o and missing m: x_o has the distribution N(μ_o, Σ_oo), and
//! x_m given x_o has N(μ_m + B·(x_o − μ_o), C) with B = Σ_mo Σ_oo⁻¹ and C = Σ_mm − B Σ_om (Little and Rubin,
//! Statistical Analysis with Missing Data, chapter 11; Ghahramani and Jordan 1994 for mixtures).
use crate::error::Result;
use crate::model::covariances::Covariances;
use crate::model::linalg::product;
use crate::model::mixture::Mixture;
use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2, ArrayViewMut1, Axis};

#[derive(Debug)]
pub(crate) struct Marginal {
    /// The observed and the missing columns, both ascending.
    pub observed: Vec<usize>,
    pub missing: Vec<usize>,
    /// The mixture of the observed features, at least one.
    pub mixture: Mixture,
}

/// B and C of the missing features of a component given the observed ones.
#[derive(Debug)]
pub(crate) struct Dependence {
    /// B (missing, observed); `None` for types without covariances between features, where B is zero.
    pub slope: Option<Array2<f64>>,
    /// C (missing, missing).
    pub covariance: Array2<f64>,
}

impl Marginal {
    /// Restricts a mixture to some of its features, at least one. Fails if rounding makes a part of a nearly
    /// singular covariance singular.
    pub fn new(mixture: &Mixture, observed: &[usize]) -> Result<Self> {
        let missing: Vec<usize> = (0..mixture.n_features()).filter(|j| observed.binary_search(j).is_err()).collect();
        let part = if missing.is_empty() { mixture.clone() } else { restrict(mixture, observed)? };
        Ok(Self { observed: observed.to_vec(), missing, mixture: part })
    }

    /// Returns the dependence of each component's missing features on the observed ones (one for all if tied).
    /// `mixture` is the one this was made from.
    pub fn dependences(&self, mixture: &Mixture) -> Vec<Dependence> {
        dependences(mixture, &self.mixture, &self.observed, &self.missing)
    }
}

/// Returns the dependence of each component's features `wanted` on those `given` (one for all if tied). `marginal` is
/// the mixture of the features `given`.
pub(crate) fn dependences(mixture: &Mixture, marginal: &Mixture, given: &[usize], wanted: &[usize]) -> Vec<Dependence> {
    let with_matrix = |sigma: ArrayView2<'_, f64>, u: ArrayView2<'_, f64>| {
        // Σ_oo⁻¹ = U·Uᵀ, so B = W·Uᵀ and C = Σ_mm − W·Wᵀ with W = Σ_mo·U.
        let w = product(block(sigma, wanted, given).view(), u);
        let covariance = block(sigma, wanted, wanted) - product(w.view(), w.t());
        Dependence { slope: Some(product(w.view(), u.t())), covariance }
    };
    match marginal.factor() {
        Some(factor) => {
            let pairs = mixture.covariances().matrices().into_iter().zip(factor.matrices());
            pairs.map(|((_, sigma), (_, u))| with_matrix(sigma, u)).collect()
        }
        None => {
            let one = |c| {
                let variances = wanted.iter().map(|&j| mixture.variance(c, j));
                Dependence { slope: None, covariance: Array2::from_diag(&variances.collect::<Array1<f64>>()) }
            };
            (0..mixture.n_components()).map(one).collect()
        }
    }
}

impl Dependence {
    /// Adds B·δ to `out` (missing,), for δ (observed,).
    pub fn add(&self, delta: ArrayView1<'_, f64>, mut out: ArrayViewMut1<'_, f64>) {
        if let Some(slope) = &self.slope {
            out += &slope.dot(&delta);
        }
    }
}

/// Returns the mixture of some features, at least one, in the given order. Errors as [`Marginal::new`].
pub(crate) fn restrict(mixture: &Mixture, features: &[usize]) -> Result<Mixture> {
    mixture.check_no_noise("a part")?;
    let (k, d) = (mixture.n_components(), features.len());
    let covariances = match mixture.covariances() {
        Covariances::Full(v) => {
            Covariances::Full(Array3::from_shape_fn((k, d, d), |(c, i, j)| v[[c, features[i], features[j]]]))
        }
        Covariances::Tied(v) => Covariances::Tied(block(v.view(), features, features)),
        Covariances::Diag(v) => Covariances::Diag(v.select(Axis(1), features)),
        Covariances::Spherical(v) => Covariances::Spherical(v.clone()),
    };
    mixture.with_parts(mixture.means().select(Axis(1), features), covariances)
}

/// Returns some rows and columns of a matrix.
pub fn block(matrix: ArrayView2<'_, f64>, rows: &[usize], columns: &[usize]) -> Array2<f64> {
    Array2::from_shape_fn((rows.len(), columns.len()), |(i, j)| matrix[[rows[i], columns[j]]])
}

/// Returns the columns in which a sample has a value.
pub fn observed(x: ArrayView1<'_, f64>) -> Vec<usize> {
    x.iter().enumerate().filter(|(_, v)| !v.is_nan()).map(|(j, _)| j).collect()
}

/// Fills in missing values sample by sample in float64. Consecutive samples that miss the same values share work.
pub(crate) struct Completion<'a> {
    mixture: &'a Mixture,
    columns: Option<Vec<usize>>,
    parts: Option<(Marginal, Vec<Dependence>)>,
}

impl<'a> Completion<'a> {
    pub fn new(mixture: &'a Mixture) -> Self {
        Self { mixture, columns: None, parts: None }
    }

    /// Prepares for samples that miss the same values as `x` (D,). Errors as [`Marginal::new`].
    pub fn prepare(&mut self, x: ArrayView1<'_, f64>) -> Result<()> {
        let columns = observed(x);
        if self.columns.as_ref() != Some(&columns) {
            self.parts = match columns.is_empty() {
                true => None,
                false => {
                    let marginal = Marginal::new(self.mixture, &columns)?;
                    let dependences = marginal.dependences(self.mixture);
                    Some((marginal, dependences))
                }
            };
            self.columns = Some(columns);
        }
        Ok(())
    }

    /// Writes the values of the sample into `out` (D,), with missing ones replaced by their means under component `c`.
    pub fn fill(&self, c: usize, x: ArrayView1<'_, f64>, out: &mut [f64]) {
        let means = self.mixture.means();
        let mean = means.row(c);
        let Some((marginal, dependences)) = &self.parts else {
            return out.iter_mut().zip(mean).for_each(|(out, mean)| *out = *mean);
        };
        out.iter_mut().zip(x).for_each(|(out, x)| *out = *x);
        if marginal.missing.is_empty() {
            return;
        }
        let delta = marginal.observed.iter().map(|&j| x[j] - mean[j]).collect::<Array1<f64>>();
        let mut filled = mean.select(Axis(0), &marginal.missing);
        dependences[c.min(dependences.len() - 1)].add(delta.view(), filled.view_mut());
        marginal.missing.iter().zip(filled).for_each(|(&j, v)| out[j] = v);
    }

    /// Returns the missing columns, and their covariance under component `c` given the observed values.
    pub fn covariance(&self, c: usize) -> (Vec<usize>, Array2<f64>) {
        match &self.parts {
            Some((marginal, dependences)) => {
                (marginal.missing.clone(), dependences[c.min(dependences.len() - 1)].covariance.clone())
            }
            None => ((0..self.mixture.n_features()).collect(), self.mixture.matrix(c)),
        }
    }
}
