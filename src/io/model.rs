//! Mixtures as JSON: `{"version":1,"covariance_type":"diag","weights":[K],"means":[K][D],"covariances":…}`, with
//! scikit-learn's names and shapes.
use super::json::{Nested, quote_non_finite};
use super::{Problem, Result};
use gmm_host::{CovarianceType, Covariances, Error, Mixture};
use ndarray::{Array1, Array2};
use serde::Deserialize;
use std::path::Path;

/// The version of the format that is written, and the only one that is read.
const VERSION: u64 = 1;

/// The parts that say how to read the rest.
#[derive(Deserialize)]
struct Head {
    version: u64,
    covariance_type: String,
}

/// The parameters. Other fields are left alone.
#[derive(Deserialize)]
struct Parameters {
    weights: Nested,
    means: Nested,
    covariances: Nested,
}

/// Reads a mixture from a JSON file.
///
/// # Errors
/// A file that cannot be read, that is no JSON, of a version or covariance type that is not known, with rows of unequal
/// length, or with parameters that [`Mixture::new`] refuses; the error names the file, and the component.
pub fn read_model(path: impl AsRef<Path>) -> Result<Mixture> {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path).map_err(|e| Problem::io("read it")(e).at(path))?;
    parse_model(&text).map_err(|problem| problem.at(path))
}

/// Reads a mixture from a JSON text. Errors: as [`read_model`].
pub fn parse_model(json: &str) -> std::result::Result<Mixture, Problem> {
    let json = quote_non_finite(json);
    let Head { version, covariance_type } = decode(&json)?;
    if version != VERSION {
        return Err(Problem::Format(format!("the model's version is {version}; this gmm reads version {VERSION}")));
    }
    let covariance_type: CovarianceType = covariance_type.parse()?;
    let Parameters { weights, means, covariances } = decode(&json)?;
    let (shape, means) = means.into_parts("means")?;
    let &[k, d] = &shape[..] else {
        return Err(Error::ShapeMismatch { what: "means (K, D)", expected: vec![1, 1], got: shape }.into());
    };
    let weights = of_shape("weights", weights, vec![k])?;
    let covariances = of_shape("covariances", covariances, covariance_type.shape(k, d))?;
    let means = Array2::from_shape_vec((k, d), means).map_err(|e| Problem::Format(e.to_string()))?;
    let covariances = Covariances::from_vec(covariance_type, k, d, covariances)?;
    Ok(Mixture::new(Array1::from_vec(weights), means, covariances)?)
}

fn decode<'a, T: Deserialize<'a>>(json: &'a str) -> std::result::Result<T, Problem> {
    serde_json::from_str(json).map_err(|e| Problem::Format(format!("not a model in JSON: {e}")))
}

fn of_shape(what: &'static str, values: Nested, expected: Vec<usize>) -> std::result::Result<Vec<f64>, Problem> {
    let (got, values) = values.into_parts(what)?;
    if got == expected { Ok(values) } else { Err(Error::ShapeMismatch { what, expected, got }.into()) }
}

/// A mixture as JSON. Every number is written so that reading gives the same bits.
pub fn model_to_json(mixture: &Mixture) -> String {
    let (covariances, means) = (mixture.covariances(), mixture.means());
    format!(
        "{{\"version\": {VERSION}, \"covariance_type\": \"{}\",\n\"weights\": {},\n\"means\": {},\n\"covariances\": {}}}\n",
        covariances.covariance_type(),
        nested(&[mixture.n_components()], &mut mixture.weights().iter().copied()),
        nested(means.shape(), &mut means.iter().copied()),
        nested(covariances.shape(), &mut covariances.iter()),
    )
}

/// Nested lists, each of the innermost on a line of its own.
fn nested(shape: &[usize], values: &mut dyn Iterator<Item = f64>) -> String {
    match shape {
        // Rust's shortest form that reads back to the same bits; finite by construction of a mixture.
        [] => values.next().map_or_else(String::new, |v| format!("{v:?}")),
        [n] => format!("[{}]", (0..*n).map(|_| nested(&[], values)).collect::<Vec<_>>().join(", ")),
        [n, inner @ ..] => format!("[\n{}]", (0..*n).map(|_| nested(inner, values)).collect::<Vec<_>>().join(",\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that are hard to write: many digits, the extremes, a denormal, a negative zero.
    fn mixture(covariance_type: CovarianceType) -> Mixture {
        let means = Array2::from_shape_vec((2, 2), vec![0.1 + 0.2, f64::MAX, -5e-324, -0.0]).unwrap();
        let covariances = match covariance_type {
            CovarianceType::Full => vec![1.0 / 3.0, 0.1, 0.1, 2.0, 1e300, 0.0, 0.0, 1e-300],
            CovarianceType::Spherical => vec![f64::MIN_POSITIVE, 7e22],
            _ => vec![1.0 / 3.0, 0.1, 0.1, 2.0],
        };
        let covariances = Covariances::from_vec(covariance_type, 2, 2, covariances).unwrap();
        Mixture::new(Array1::from_vec(vec![1.0 / 3.0, 2.0 / 3.0]), means, covariances).unwrap()
    }

    #[test]
    fn every_type_comes_back_bit_for_bit() {
        for covariance_type in CovarianceType::ALL {
            let written = mixture(covariance_type);
            let read = parse_model(&model_to_json(&written)).unwrap();
            assert_eq!(read, written);
            let bits = |m: &Mixture| m.means().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&read), bits(&written));
        }
    }

    /// Whatever one byte is changed to, there is a mixture or an error, never a panic.
    #[test]
    fn damaged_texts_do_not_panic() {
        let good = model_to_json(&mixture(CovarianceType::Full));
        let mut refused = 0;
        for i in 0..good.len() {
            for by in b"\0 ,[]{}\"\\9-NnI\xc3" {
                let mut bytes = good.clone().into_bytes();
                bytes[i] = *by;
                refused += usize::from(parse_model(&String::from_utf8_lossy(&bytes)).is_err());
            }
            refused += usize::from(parse_model(&good[..i]).is_err());
        }
        assert!(refused > good.len());
    }
}
