//! The arrays of a posterior of variational inference in a model file, under the names of scikit-learn's attributes,
//! beside the mixture of its means.
use super::contents::{Array, FitSummary, Model};
use super::json::{ModelMembers, NestedLists, decode, parse_model_with_summary, to_json};
use super::json_array::{JsonArray, quote_non_finite};
use crate::io::Problem;
use gmm_host::{Covariances, Error, Mixture, VariationalMixture, VariationalPrior};
use ndarray::{Array1, Array2};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::HashMap;

pub(super) const PRIOR_TYPE: &str = "weight_concentration_prior_type";
/// The names of the arrays, without the final underscore of an attribute's name.
pub(super) const NAMES: [&str; 8] = [
    "weight_concentration",
    "mean_precision",
    "degrees_of_freedom",
    "weight_concentration_prior",
    "mean_precision_prior",
    "mean_prior",
    "degrees_of_freedom_prior",
    "covariance_prior",
];

/// Returns the arrays of a posterior, in the order of [`NAMES`]; single numbers have no dimension.
pub(super) fn arrays(posterior: &VariationalMixture) -> [Array; 8] {
    let prior = posterior.prior();
    let vector = |v: &[f64]| (vec![v.len()], v.to_vec());
    let number = |v: f64| (vec![], vec![v]);
    [
        (posterior.weight_concentration().shape().to_vec(), posterior.weight_concentration().iter().copied().collect()),
        vector(&posterior.mean_precision().to_vec()),
        vector(&posterior.degrees_of_freedom().to_vec()),
        number(prior.weight_concentration),
        number(prior.mean_precision),
        vector(&prior.mean.to_vec()),
        number(prior.degrees_of_freedom),
        (prior.covariance.shape().to_vec(), prior.covariance.iter().collect()),
    ]
}

/// Builds a posterior from the `mixture` of its means and the arrays that `array` returns by name.
pub(super) fn posterior(
    mixture: &Mixture,
    prior_type: &str,
    mut array: impl FnMut(&'static str) -> Result<Array, Problem>,
) -> Result<VariationalMixture, Problem> {
    let (k, d) = mixture.means().dim();
    let kind = mixture.covariance_type();
    let wrong =
        |what, expected: &[usize], got: Vec<usize>| Error::ShapeMismatch { what, expected: expected.to_vec(), got };
    let mut of_shape = |name: &'static str, shape: &[usize]| {
        let (got, values) = array(name)?;
        if got == shape { Ok(values) } else { Err(Problem::from(wrong(name, shape, got))) }
    };
    let gamma = of_shape("weight_concentration_prior", &[])?[0];
    let beta = of_shape("mean_precision_prior", &[])?[0];
    let nu = of_shape("degrees_of_freedom_prior", &[])?[0];
    let mean = Array1::from_vec(of_shape("mean_prior", &[d])?);
    let covariance = Covariances::from_vec(kind, 1, d, of_shape("covariance_prior", &kind.shape(1, d))?)?;
    let prior = VariationalPrior::new(prior_type.parse()?, gamma, beta, mean, nu, covariance)?;
    let mean_precision = Array1::from_vec(of_shape("mean_precision", &[k])?);
    let degrees_of_freedom = Array1::from_vec(of_shape("degrees_of_freedom", &[k])?);
    let (shape, values) = array("weight_concentration")?;
    let concentration = match shape[..] {
        [rows, columns] => Array2::from_shape_vec((rows, columns), values).ok(),
        _ => None,
    };
    let concentration = concentration.ok_or_else(|| Problem::from(wrong("weight_concentration", &[2, k], shape)))?;
    let (means, covariances) = (mixture.means().to_owned(), mixture.covariances().clone());
    Ok(VariationalMixture::new(prior, concentration, mean_precision, degrees_of_freedom, means, covariances)?)
}

#[derive(Serialize)]
pub(super) struct Member<'a> {
    weight_concentration_prior_type: &'static str,
    #[serde(flatten)]
    arrays: Arrays<'a>,
}

struct Arrays<'a>(&'a VariationalMixture);

impl Serialize for Arrays<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(NAMES.into_iter().zip(arrays(self.0).map(NestedLists)))
    }
}

impl<'a> From<&'a VariationalMixture> for Member<'a> {
    fn from(posterior: &'a VariationalMixture) -> Self {
        let weight_concentration_prior_type = posterior.prior().weight_concentration_type.name();
        Self { weight_concentration_prior_type, arrays: Arrays(posterior) }
    }
}

/// Writes a model as JSON; a posterior as the member `variational` beside the mixture of its means.
pub(super) fn to_json_text(
    mixture: &Mixture,
    summary: &FitSummary,
    posterior: Option<&VariationalMixture>,
) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Members<'a> {
        #[serde(flatten)]
        model: ModelMembers,
        #[serde(flatten)]
        summary: &'a FitSummary,
        #[serde(skip_serializing_if = "Option::is_none")]
        variational: Option<Member<'a>>,
    }

    to_json(&Members { model: mixture.into(), summary, variational: posterior.map(Member::from) })
}

/// Reads a model, with the posterior of [`to_json_text`], if any.
pub(super) fn parse_json(json: &str) -> Result<Model, Problem> {
    #[derive(Deserialize)]
    struct Variational {
        weight_concentration_prior_type: String,
        #[serde(flatten)]
        arrays: HashMap<String, JsonArray>,
    }

    #[derive(Deserialize)]
    struct Members {
        variational: Option<Variational>,
    }

    let (mixture, summary) = parse_model_with_summary(json)?;
    let Members { variational } = decode(&quote_non_finite(json))?;
    let posterior = variational.map(|Variational { weight_concentration_prior_type, mut arrays }| {
        let array = |name| arrays.remove(name).ok_or_else(|| missing(name))?.into_parts(name);
        posterior(&mixture, &weight_concentration_prior_type, array)
    });
    Ok(Model { posterior: posterior.transpose()?, mixture, summary })
}

pub(super) fn missing(name: &str) -> Problem {
    Problem::format(format!("the posterior has no `{name}`"))
}
