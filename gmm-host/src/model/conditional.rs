//! What a mixture says about some of its features: alone, or given values of the others. Both are
//! mixtures again, of the same type of covariances.
use super::density::Density;
use super::linalg;
use super::marginal::{Completion, restrict, spreads};
use crate::error::{Error, Result};
use crate::model::covariances::Covariances;
use crate::model::mixture::Mixture;
use ndarray::{Array1, Array2, Array3, Axis};

/// # Parts of a mixture
impl Mixture {
    /// The distribution of some of the features alone, in the order given.
    ///
    /// ```
    /// use gmm_host::{Covariances, Mixture};
    /// use ndarray::array;
    ///
    /// let mixture = Mixture::new(array![1.0], array![[1.0, 2.0, 3.0]], Covariances::Diag(array![[0.1, 0.2, 0.3]]))?;
    /// let marginal = mixture.marginal(&[2, 0])?;
    /// assert_eq!((marginal.means(), marginal.variance(0, 0)), (array![[3.0, 1.0]].view(), 0.3));
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchFeature`], [`Error::RepeatedFeature`], [`Error::BadParameter`] for no
    /// features, [`Error::NotPositiveDefinite`] where rounding makes a part of a nearly singular
    /// covariance singular.
    pub fn marginal(&self, features: &[usize]) -> Result<Self> {
        self.check_distinct(features)?;
        if features.is_empty() {
            let remedy = "name at least one feature that is to stay";
            return Err(Error::BadParameter { name: "features", value: "empty".into(), remedy });
        }
        restrict(self, features)
    }

    /// The distribution of the other features, in their order, given the values of some: of each
    /// component the normal distribution with the mean μₐ + Σₐᵦ Σᵦᵦ⁻¹ (xᵦ − μᵦ) and the covariance
    /// Σₐₐ − Σₐᵦ Σᵦᵦ⁻¹ Σᵦₐ, and a weight in proportion to πₖ N(xᵦ; μₖ,ᵦ, Σₖ,ᵦᵦ). Its mean is what
    /// [`impute`](Self::impute) fills in.
    ///
    /// ```
    /// use gmm_host::{Covariances, Mixture};
    /// use ndarray::array;
    ///
    /// let mixture = Mixture::new(array![1.0], array![[0.0, 0.0]], Covariances::Tied(array![[1.0, 0.5], [0.5, 1.0]]))?;
    /// let given = mixture.condition(&[(0, 2.0)])?;
    /// assert!((given.means()[[0, 0]] - 1.0).abs() < 1e-15 && (given.variance(0, 0) - 0.75).abs() < 1e-15);
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchFeature`], [`Error::RepeatedFeature`]; [`Error::BadParameter`] for a value
    /// that is not finite, and if all features are given;
    /// [`Error::NotPositiveDefinite`] as [`marginal`](Self::marginal).
    pub fn condition(&self, given: &[(usize, f64)]) -> Result<Self> {
        let (k, d) = (self.n_components(), self.n_features());
        let features: Vec<usize> = given.iter().map(|(feature, _)| *feature).collect();
        self.check_distinct(&features)?;
        if let Some((feature, value)) = given.iter().find(|(_, value)| !value.is_finite()) {
            let value = format!("{value} for feature {feature} (counted from 0)");
            return Err(Error::BadParameter { name: "a given value", value, remedy: "give a finite number" });
        }
        if given.len() == d {
            let value = format!("of all {d} features");
            let remedy = "leave at least one out: its distribution is the result";
            return Err(Error::BadParameter { name: "what is given", value, remedy });
        }
        let mut x = Array1::from_elem(d, f64::NAN);
        given.iter().for_each(|(feature, value)| x[*feature] = *value);
        let mut log_weights = Array1::zeros(k);
        let rest: Vec<usize> = (0..d).filter(|j| x[*j].is_nan()).collect();
        let mut completion = Completion::new(self);
        completion.prepare(x.view())?;
        Density::new(self).log_responsibilities(x.view(), log_weights.as_slice_mut().unwrap_or_default());
        let (mut means, mut filled) = (Array2::zeros((k, rest.len())), vec![0.0; d]);
        for (c, mut mean) in means.outer_iter_mut().enumerate() {
            completion.fill(c, x.view(), &mut filled);
            mean.iter_mut().zip(&rest).for_each(|(mean, &j)| *mean = filled[j]);
        }
        let covariances = match self.covariances() {
            Covariances::Full(_) => {
                let mut v = Array3::zeros((k, rest.len(), rest.len()));
                for (mut v, spread) in v.outer_iter_mut().zip(spreads(self, &rest)?) {
                    v.assign(&linalg::gram(spread.view()));
                }
                Covariances::Full(v)
            }
            Covariances::Tied(_) => Covariances::Tied(linalg::gram(spreads(self, &rest)?[0].view())),
            Covariances::Diag(v) => Covariances::Diag(v.select(Axis(1), &rest)),
            Covariances::Spherical(v) => Covariances::Spherical(v.clone()),
        };
        let conditional = Self::new(self.weights().to_owned(), means, covariances)?;
        Ok(conditional.with_log_weights(log_weights)?.0)
    }

    fn check_distinct(&self, features: &[usize]) -> Result<()> {
        let n_features = self.n_features();
        let mut seen = vec![false; n_features];
        for &feature in features {
            let seen = seen.get_mut(feature).ok_or(Error::NoSuchFeature { feature, n_features })?;
            if std::mem::replace(seen, true) {
                return Err(Error::RepeatedFeature { feature });
            }
        }
        Ok(())
    }
}
