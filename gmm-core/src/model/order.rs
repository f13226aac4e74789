//! Sorting of components.
use crate::error::{Error, Result};
use crate::model::mixture::Mixture;

/// The order of components.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// The heaviest component first.
    Weight,
    /// The component with the least mean of this feature first.
    Mean(usize),
    /// The components of these numbers, each exactly once.
    Permutation(Vec<usize>),
}

impl Mixture {
    /// Returns the mixture with its components in another order. Ties keep their order.
    ///
    /// ```
    /// use gmm_host::{Covariances, Mixture, Order};
    /// use ndarray::array;
    ///
    /// let variances = Covariances::Spherical(array![1.0, 2.0]);
    /// let mixture = Mixture::new(array![0.25, 0.75], array![[-3.0], [3.0]], variances)?;
    /// assert_eq!(mixture.sorted(&Order::Weight)?.weights(), array![0.75, 0.25]);
    /// assert_eq!(mixture.sorted(&Order::Mean(0))?, mixture);
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchFeature`]; [`Error::BadParameter`] if the numbers are not a permutation.
    pub fn sorted(&self, order: &Order) -> Result<Self> {
        let mut numbers: Vec<usize> = (0..self.n_gaussians()).collect();
        match order {
            Order::Weight => numbers.sort_by(|a, b| self.log_weight(*b).total_cmp(&self.log_weight(*a))),
            Order::Mean(feature) => {
                let (feature, n_features) = (*feature, self.n_features());
                if feature >= n_features {
                    return Err(Error::NoSuchFeature { feature, n_features });
                }
                let means = self.means();
                numbers.sort_by(|a, b| means[[*a, feature]].total_cmp(&means[[*b, feature]]));
            }
            Order::Permutation(given) => {
                let mut sorted = given.clone();
                sorted.sort_unstable();
                if sorted != numbers {
                    let value = format!("{given:?} for {} components", numbers.len());
                    let remedy = "name each component once, by its number counted from 0";
                    return Err(Error::BadParameter { name: "the order", value, remedy });
                }
                numbers.clone_from(given);
            }
        }
        // The noise stays last.
        numbers.extend(self.n_gaussians()..self.n_components());
        Ok(self.permuted(&numbers))
    }
}
