//! What a mixture says about some of the features alone, and about the others given those: for
//! samples with missing values.
//!
//! With the observed features o and the missing ones m of a component N(μ, Σ): x_o is distributed
//! as N(μ_o, Σ_oo), and x_m given x_o as N(μ_m + B·(x_o − μ_o), C) with B = Σ_mo Σ_oo⁻¹ and
//! C = Σ_mm − B Σ_om (Little and Rubin, Statistical Analysis with Missing Data, chapter 11;
//! Ghahramani and Jordan 1994 for mixtures).
use crate::error::Result;
use crate::model::covariances::Covariances;
use crate::model::linalg::product;
use crate::model::mixture::Mixture;
use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2, ArrayViewMut1, Axis};

/// The distribution of the observed features under a mixture.
#[derive(Debug)]
pub(crate) struct Marginal {
    /// The columns that are observed, and those that are missing, both ascending.
    pub observed: Vec<usize>,
    pub missing: Vec<usize>,
    /// The mixture of the observed features, of which there is at least one.
    pub mixture: Mixture,
}

/// How some features of one component depend on others: B and C of the missing and the observed ones.
#[derive(Debug)]
pub(crate) struct Dependence {
    /// B (missing, observed); none for a component without covariances between features, where B is
    /// zero.
    pub slope: Option<Array2<f64>>,
    /// C (missing, missing).
    pub covariance: Array2<f64>,
}

impl Marginal {
    /// Restricts a mixture to some of its features, at least one.
    ///
    /// # Errors
    /// [`Error::NotPositiveDefinite`](crate::error::Error::NotPositiveDefinite) where rounding makes a
    /// part of a nearly singular covariance singular.
    pub fn new(mixture: &Mixture, observed: &[usize]) -> Result<Self> {
        let missing: Vec<usize> = (0..mixture.n_features()).filter(|j| observed.binary_search(j).is_err()).collect();
        let part = if missing.is_empty() { mixture.clone() } else { restrict(mixture, observed)? };
        Ok(Self { observed: observed.to_vec(), missing, mixture: part })
    }

    /// How the missing features of each component of `mixture`, from which this was made, depend on
    /// the observed ones; one for all components where the covariance is tied.
    pub fn dependences(&self, mixture: &Mixture) -> Vec<Dependence> {
        dependences(mixture, &self.mixture, &self.observed, &self.missing)
    }
}

/// How the features `wanted` of each component of a mixture depend on those `given`, of which `marginal`
/// is the mixture; one for all components where the covariance is tied.
pub(crate) fn dependences(mixture: &Mixture, marginal: &Mixture, given: &[usize], wanted: &[usize]) -> Vec<Dependence> {
    let with_matrix = |sigma: ArrayView2<'_, f64>, u: ArrayView2<'_, f64>| {
        // Σ_oo⁻¹ = U·Uᵀ, so that B = W·Uᵀ and C = Σ_mm − W·Wᵀ with W = Σ_mo·U.
        let w = product(block(sigma, wanted, given).view(), u);
        let covariance = block(sigma, wanted, wanted) - product(w.view(), w.t());
        Dependence { slope: Some(product(w.view(), u.t())), covariance }
    };
    match (mixture.covariances(), marginal.factor()) {
        (Covariances::Full(sigma), Some(Covariances::Full(u))) => {
            sigma.outer_iter().zip(u.outer_iter()).map(|(sigma, u)| with_matrix(sigma, u)).collect()
        }
        (Covariances::Tied(sigma), Some(Covariances::Tied(u))) => vec![with_matrix(sigma.view(), u.view())],
        _ => {
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

/// The mixture of some of the features, at least one, in the order given. Errors as
/// [`Marginal::new`].
pub(crate) fn restrict(mixture: &Mixture, features: &[usize]) -> Result<Mixture> {
    let (k, d) = (mixture.n_components(), features.len());
    let covariances = match mixture.covariances() {
        Covariances::Full(v) => {
            Covariances::Full(Array3::from_shape_fn((k, d, d), |(c, i, j)| v[[c, features[i], features[j]]]))
        }
        Covariances::Tied(v) => Covariances::Tied(block(v.view(), features, features)),
        Covariances::Diag(v) => Covariances::Diag(v.select(Axis(1), features)),
        Covariances::Spherical(v) => Covariances::Spherical(v.clone()),
    };
    let (factor, failures) = covariances.factorise();
    if let Some(failure) = failures.into_iter().next() {
        return Err(failure);
    }
    let means = mixture.means().select(Axis(1), features);
    let parts = Mixture::from_parts(mixture.weights().to_owned(), means, covariances, factor)?;
    Ok(parts.with_weights_of(mixture))
}

/// Some rows and columns of a matrix.
pub fn block(matrix: ArrayView2<'_, f64>, rows: &[usize], columns: &[usize]) -> Array2<f64> {
    Array2::from_shape_fn((rows.len(), columns.len()), |(i, j)| matrix[[rows[i], columns[j]]])
}

/// The columns in which a sample has a value.
pub fn observed(x: ArrayView1<'_, f64>) -> Vec<usize> {
    x.iter().enumerate().filter(|(_, v)| !v.is_nan()).map(|(j, _)| j).collect()
}

/// Fills in what is missing in one sample after the other, sample by sample in float64. What it
/// takes from the mixture it takes once for samples that follow each other and have the same values
/// missing.
pub(crate) struct Completion<'a> {
    mixture: &'a Mixture,
    columns: Option<Vec<usize>>,
    parts: Option<(Marginal, Vec<Dependence>)>,
}

impl<'a> Completion<'a> {
    pub fn new(mixture: &'a Mixture) -> Self {
        Self { mixture, columns: None, parts: None }
    }

    /// Prepares for samples in which the same values are missing as in `x` (D,).
    ///
    /// # Errors
    /// As [`Marginal::new`].
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

    /// Writes into `out` (D,) the values of the sample, and for those that are missing their means
    /// under component `c`.
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

    /// The columns that are missing, and their covariance (missing, missing) under component `c`
    /// given what is observed.
    pub fn covariance(&self, c: usize) -> (Vec<usize>, Array2<f64>) {
        match &self.parts {
            Some((marginal, dependences)) => {
                (marginal.missing.clone(), dependences[c.min(dependences.len() - 1)].covariance.clone())
            }
            None => {
                let d = self.mixture.n_features();
                let covariance = match self.mixture.covariances() {
                    Covariances::Full(v) => v.index_axis(Axis(0), c).to_owned(),
                    Covariances::Tied(v) => v.clone(),
                    _ => Array2::from_diag(&(0..d).map(|j| self.mixture.variance(c, j)).collect::<Array1<f64>>()),
                };
                ((0..d).collect(), covariance)
            }
        }
    }
}
