//! Parameters that an M-step leaves unchanged.
use crate::error::{Error, Result};
use crate::model::covariance_model::CovarianceModel;
use crate::model::covariances::{CovarianceType, Covariances};
use crate::model::linalg::{gram, inverse};
use crate::model::mixture::Mixture;
use crate::statistics::constrained::constrain;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2};
use std::fmt;

/// The components of which a parameter is frozen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Frozen {
    /// None.
    #[default]
    None,
    /// All.
    All,
    /// These, counted from 0.
    Components(Vec<usize>),
}

impl Frozen {
    /// Whether the parameter of this component is frozen.
    pub fn has(&self, component: usize) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Components(components) => components.contains(&component),
        }
    }

    /// Whether the parameter of any component is frozen.
    pub fn any(&self) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Components(components) => !components.is_empty(),
        }
    }

    /// Returns, for each of K components, whether its parameter is frozen.
    pub fn mask(&self, n_components: usize) -> Vec<bool> {
        (0..n_components).map(|c| self.has(c)).collect()
    }

    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, other) | (other, Self::None) => other,
            (Self::Components(mut a), Self::Components(b)) => {
                a.extend(b);
                Self::Components(a)
            }
            _ => Self::All,
        }
    }
}

impl From<bool> for Frozen {
    fn from(all: bool) -> Self {
        if all { Self::All } else { Self::None }
    }
}

impl From<Vec<usize>> for Frozen {
    fn from(components: Vec<usize>) -> Self {
        Self::Components(components)
    }
}

/// Which parameters an M-step leaves unchanged, of all or of single components, and whether the free ones are equal.
///
/// ```
/// use gmm_host::{Freeze, Frozen};
///
/// let freeze: Freeze = "means=0,2,covariances".parse()?;
/// assert_eq!(freeze.means, Frozen::Components(vec![0, 2]));
/// assert_eq!(freeze, Freeze { means: vec![0, 2].into(), covariances: true.into(), ..Freeze::default() });
/// assert_eq!(freeze.to_string(), "covariances,means=0,2");
/// # Ok::<(), gmm_host::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "String", into = "String")
)]
pub struct Freeze {
    /// Freeze these weights. The other components share the rest of 1.
    pub weights: Frozen,
    /// Freeze these means.
    pub means: Frozen,
    /// Freeze these covariances; all or none where components share a part of them, as `tied` ones.
    pub covariances: Frozen,
    /// Give all components with a free weight the same weight.
    pub equal_weights: bool,
    /// Give all components with a free mean the same mean, which makes them a scale mixture.
    pub equal_means: bool,
}

impl Freeze {
    /// Freezes the parameters of both, and makes equal the parameters that either makes equal.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            weights: self.weights.or(other.weights),
            means: self.means.or(other.means),
            covariances: self.covariances.or(other.covariances),
            equal_weights: self.equal_weights || other.equal_weights,
            equal_means: self.equal_means || other.equal_means,
        }
    }

    fn parts(&self) -> [(&'static str, &Frozen); 3] {
        [("covariances", &self.covariances), ("means", &self.means), ("weights", &self.weights)]
    }

    /// Checks the component numbers and the combination of options.
    ///
    /// # Errors
    /// [`Error::BadParameter`].
    pub fn check(&self, n_components: usize, model: CovarianceModel) -> Result<()> {
        let bad = |value: String, remedy| Err(Error::BadParameter { name: "freeze", value, remedy });
        for (name, frozen) in self.parts() {
            if let Frozen::Components(components) = frozen
                && let Some(component) = components.iter().find(|component| **component >= n_components)
            {
                return bad(format!("{name} of component {component}"), "components are counted from 0 to K − 1");
            }
        }
        let all = |frozen: &Frozen| (0..n_components).all(|c| frozen.has(c));
        if model.shares() && self.covariances.any() && !all(&self.covariances) {
            return bad(
                "covariances of some components".into(),
                "freeze covariances that share a part for all components or none",
            );
        }
        if self.equal_weights && all(&self.weights) {
            return bad("all weights, and equal weights".into(), "leave out one of them");
        }
        if self.equal_means && all(&self.means) {
            return bad("all means, and equal means".into(), "leave out one of them");
        }
        Ok(())
    }

    /// As [`check`](Self::check), for methods that freeze a parameter of all components or of none.
    ///
    /// # Errors
    /// [`Error::BadParameter`].
    pub fn check_whole(&self) -> Result<()> {
        let single = self.parts().into_iter().any(|(_, frozen)| matches!(frozen, Frozen::Components(_)));
        if single || self.equal_weights || self.equal_means {
            return Err(Error::BadParameter {
                name: "freeze",
                value: self.to_string(),
                remedy: "variational inference can only freeze a parameter for all components",
            });
        }
        Ok(())
    }

    /// Freezes the place of the previous mixture's noise too.
    pub(crate) fn with_noise_of(&self, previous: &Mixture) -> Self {
        let noise = || Frozen::Components((previous.n_gaussians()..previous.n_components()).collect());
        self.clone().or(Self { means: noise(), covariances: noise(), ..Self::default() })
    }

    /// Returns the new weights: free ones are in proportion to `numbers`.
    pub fn weights(&self, numbers: Array1<f64>, previous: &Mixture) -> Array1<f64> {
        let k = numbers.len();
        let mask = self.weights.mask(k);
        let mut numbers = numbers;
        if self.equal_weights {
            let equal = |c: &usize| !mask[*c] && !previous.is_noise(*c);
            let sum: f64 = (0..k).filter(equal).map(|c| numbers[c]).sum();
            let each = sum / (0..k).filter(equal).count() as f64;
            (0..k).filter(equal).for_each(|c| numbers[c] = each);
        }
        let of_free: f64 = (0..k).filter(|&c| !mask[c]).map(|c| numbers[c]).sum();
        let of_frozen: f64 = (0..k).filter(|&c| mask[c]).map(|c| previous.weights()[c]).sum();
        if of_free == 0.0 {
            // The numbers give no shares.
            return previous.weights().to_owned();
        }
        let share = (1.0 - of_frozen).max(0.0);
        Array1::from_shape_fn(k, |c| if mask[c] { previous.weights()[c] } else { share * numbers[c] / of_free })
    }

    /// Returns the mean that the components with free means share. With nₖ samples around x̄ₖ it is the likeliest one
    /// under the previous covariances, (Σₖ nₖ Σₖ⁻¹)⁻¹ Σₖ nₖ Σₖ⁻¹ x̄ₖ (Meng and Rubin 1993, "Maximum likelihood
    /// estimation via the ECM algorithm"); `None` if no such component has samples.
    pub(crate) fn shared_mean(
        &self,
        counts: ArrayView1<'_, f64>,
        means: ArrayView2<'_, f64>,
        previous: &Mixture,
    ) -> Option<Array1<f64>> {
        let (k, d) = means.dim();
        let sharing = || (0..k).filter(|&c| !self.means.has(c) && counts[c] > 0.0);
        // Differences from one of the means keep their digits far from the origin.
        let origin = means.row(sharing().max_by(|&a, &b| counts[a].total_cmp(&counts[b]))?);
        let shift = if previous.factor().is_some() {
            let (mut precision, mut moment) = (Array2::zeros((d, d)), Array1::zeros(d));
            for c in sharing() {
                let of_component = gram(previous.factor_of(c)?) * counts[c];
                moment += &of_component.dot(&(&means.row(c) - &origin));
                precision += &of_component;
            }
            inverse(precision.view()).ok()?.dot(&moment)
        } else {
            Array1::from_shape_fn(d, |j| {
                let (mut precision, mut moment) = (0.0, 0.0);
                for c in sharing() {
                    let of_component = counts[c] / previous.variance(c, j);
                    moment += of_component * (means[[c, j]] - origin[j]);
                    precision += of_component;
                }
                moment / precision
            })
        };
        shift.iter().all(|v| v.is_finite()).then(|| &origin + &shift)
    }

    /// Gives a start the weights and means that every M-step will give it, so that no lower bound falls (but VVE's).
    pub fn start(&self, mixture: Mixture) -> Result<Mixture> {
        if !self.equal_weights && !self.equal_means {
            return Ok(mixture);
        }
        let weights = match self.equal_weights {
            true => self.weights(mixture.weights().to_owned(), &mixture),
            false => mixture.weights().to_owned(),
        };
        let (mut means, mut covariances) = (mixture.means().to_owned(), mixture.covariances().clone());
        let mean = if self.equal_means { self.shared_mean(weights.view(), means.view(), &mixture) } else { None };
        let Some(mean) = mean else {
            let factor = mixture.factor().cloned();
            return Mixture::from_parts(weights, means, covariances, factor)?
                .with_covariance_model(mixture.covariance_model());
        };
        // Spread each covariance around the new mean, so that components stay as different as their model lets them.
        let tied = covariances.covariance_type() == CovarianceType::Tied;
        for c in (0..weights.len()).filter(|&c| !self.means.has(c)) {
            let delta = &means.row(c) - &mean;
            means.row_mut(c).assign(&mean);
            if !self.covariances.has(c) {
                let d = if let Covariances::Spherical(_) = covariances { delta.len() as f64 } else { 1.0 };
                covariances.add_outer(c, if tied { weights[c] } else { 1.0 / d }, &delta.to_vec());
            }
        }
        if !self.covariances.any() {
            constrain(&mut covariances, &weights, &mixture);
        }
        Mixture::new(weights, means, covariances)?.with_covariance_model(mixture.covariance_model())
    }
}

impl std::str::FromStr for Freeze {
    type Err = Error;

    /// Parses names separated by commas: `weights`, `means`, `covariances`, each for all components or, after `=`, for
    /// some; also `weights=equal`, `means=equal`. `none` freezes nothing.
    fn from_str(text: &str) -> Result<Self> {
        let bad = |part: &str| Error::BadParameter {
            name: "freeze",
            value: format!("`{part}`"),
            remedy: "use weights, means or covariances, for single components as in means=0,2, or weights=equal, means=equal",
        };
        let mut freeze = Self::default();
        if text == "none" {
            return Ok(freeze);
        }
        // Numbers after a comma belong to the last name that has `=`.
        let mut last = None;
        for part in text.split(',').map(str::trim) {
            let (name, value) = match (part.split_once('='), last) {
                (Some((name, value)), _) => (name.trim(), Some(value.trim())),
                (None, Some(name)) if part.parse::<usize>().is_ok() => (name, Some(part)),
                (None, _) => (part, None),
            };
            last = value.map(|_| name);
            let (frozen, equal) = match value {
                None => (Frozen::All, false),
                Some("equal") if name != "covariances" => (Frozen::None, true),
                Some(number) => (Frozen::Components(vec![number.parse().map_err(|_| bad(part))?]), false),
            };
            let named = match name {
                "weights" => Self { weights: frozen, equal_weights: equal, ..Self::default() },
                "means" => Self { means: frozen, equal_means: equal, ..Self::default() },
                "covariances" => Self { covariances: frozen, ..Self::default() },
                _ => return Err(bad(part)),
            };
            freeze = freeze.or(named);
        }
        Ok(freeze)
    }
}

#[cfg(feature = "serde")]
impl TryFrom<String> for Freeze {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

#[cfg(feature = "serde")]
impl From<Freeze> for String {
    fn from(freeze: Freeze) -> Self {
        freeze.to_string()
    }
}

impl fmt::Display for Freeze {
    /// Writes the form that is parsed, in one order; `none` if nothing is frozen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Vec::new();
        for (name, frozen) in self.parts() {
            match frozen {
                Frozen::All => names.push(name.to_owned()),
                Frozen::Components(components) if !components.is_empty() => {
                    let mut components = components.clone();
                    components.sort_unstable();
                    components.dedup();
                    let numbers: Vec<String> = components.iter().map(usize::to_string).collect();
                    names.push(format!("{name}={}", numbers.join(",")));
                }
                _ => {}
            }
        }
        let equal = [("means=equal", self.equal_means), ("weights=equal", self.equal_weights)];
        names.extend(equal.into_iter().filter(|(_, equal)| *equal).map(|(name, _)| name.to_owned()));
        f.write_str(if names.is_empty() { "none".into() } else { names.join(",") }.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::covariances::Covariances;
    use ndarray::{Array2, arr1};

    #[test]
    fn weights_without_counts_stay() {
        let (weights, means) = (arr1(&[0.5, 0.125, 0.375]), Array2::from_shape_fn((3, 1), |(c, _)| c as f64));
        let mixture = Mixture::new(weights.clone(), means, Covariances::Spherical(Array1::ones(3))).unwrap();
        let freeze: Freeze = "weights=0".parse().unwrap();
        assert_eq!(freeze.weights(arr1(&[7.0, 0.0, 0.0]), &mixture), weights);
        assert_eq!(freeze.weights(arr1(&[7.0, 0.0, 2.0]), &mixture), arr1(&[0.5, 0.0, 0.5]));
        assert_eq!(Freeze::default().weights(Array1::zeros(3), &mixture), weights);
        let frozen = Freeze { weights: true.into(), ..Freeze::default() };
        assert_eq!(frozen.weights(arr1(&[1.0, 2.0, 3.0]), &mixture), weights);
    }
}
