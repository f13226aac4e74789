//! Mixtures in files; as JSON: `{"version":1,"covariance_type":"diag","weights":[K],"means":[K][D],"covariances":…}`, with
//! scikit-learn's names and shapes.
use super::json::{Nested, quote_non_finite};
use super::{Output, Problem, Result, npz};
use gmm_host::{CovarianceType, Covariances, Error, Fit, Mixture};
use ndarray::{Array1, Array2};
use serde::Deserialize;
use std::fmt;
use std::fs::File;
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

/// An array of any shape in row-major order.
pub(super) type Array = (Vec<usize>, Vec<f64>);

/// How a fit found a mixture, under scikit-learn's names, as far as a file tells.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Found {
    /// Whether the last iteration changed the lower bound by less than the tolerance.
    pub converged: Option<bool>,
    /// Number of iterations.
    pub n_iter: Option<u64>,
    /// The lower bound of the last iteration; none without iterations.
    pub lower_bound: Option<f64>,
    /// The lower bound of each iteration.
    pub lower_bounds: Option<Vec<f64>>,
}

impl Found {
    fn of(fit: &Fit) -> Self {
        Self {
            converged: Some(fit.converged),
            n_iter: Some(fit.n_iter() as u64),
            lower_bound: fit.lower_bounds.last().copied(),
            lower_bounds: Some(fit.lower_bounds.clone()),
        }
    }
}

/// Reads a mixture from a file: `.npz` with scikit-learn's attribute names, anything else is JSON.
///
/// # Errors
/// A file that cannot be read, that is no JSON or .npz, of a version or covariance type that is not known, with rows of unequal
/// length, or with parameters that [`Mixture::new`] refuses; the error names the file, and the component.
pub fn read_model(path: impl AsRef<Path>) -> Result<Mixture> {
    let path = path.as_ref();
    let read = || match Format::of(path) {
        Ok(Format::Npz) => read_npz(path).map(|(mixture, _)| mixture),
        _ => parse_model(&read_text(path)?),
    };
    read().map_err(|problem| problem.at(path))
}

/// Reads a mixture and how it was found. Errors: as [`read_model`]; a `converged`, `n_iter`, `lower_bound` or `lower_bounds` of
/// another type.
pub fn read_found_model(path: impl AsRef<Path>) -> Result<(Mixture, Found)> {
    let path = path.as_ref();
    let read = || match Format::of(path) {
        Ok(Format::Npz) => read_npz(path),
        _ => {
            let json = read_text(path)?;
            Ok((parse_model(&json)?, decode(&quote_non_finite(&json))?))
        }
    };
    read().map_err(|problem| problem.at(path))
}

fn read_npz(path: &Path) -> std::result::Result<(Mixture, Found), Problem> {
    npz::read(std::io::BufReader::new(File::open(path).map_err(Problem::io("read it"))?))
}

fn read_text(path: &Path) -> std::result::Result<String, Problem> {
    std::fs::read_to_string(path).map_err(Problem::io("read it"))
}

/// Reads a mixture from a JSON text. Errors: as [`read_model`].
pub fn parse_model(json: &str) -> std::result::Result<Mixture, Problem> {
    let json = quote_non_finite(json);
    let Head { version, covariance_type } = decode(&json)?;
    if version != VERSION {
        return Err(Problem::Format(format!("the model's version is {version}; this gmm reads version {VERSION}")));
    }
    let Parameters { weights, means, covariances } = decode(&json)?;
    let (weights, means) = (weights.into_parts("weights")?, means.into_parts("means")?);
    build(covariance_type.parse()?, weights, means, covariances.into_parts("covariances")?)
}

/// Makes a mixture of arrays whose shapes are not yet known to agree.
pub(super) fn build(
    covariance_type: CovarianceType,
    weights: Array,
    means: Array,
    covariances: Array,
) -> std::result::Result<Mixture, Problem> {
    let (shape, means) = means;
    let &[k, d] = &shape[..] else {
        return Err(Error::ShapeMismatch { what: "means (K, D)", expected: vec![1, 1], got: shape }.into());
    };
    let weights = of_shape("weights", weights, vec![k])?;
    let covariances = of_shape("covariances", covariances, covariance_type.shape(k, d))?;
    let means = Array2::from_shape_vec((k, d), means).map_err(|e| Problem::Format(e.to_string()))?;
    let covariances = Covariances::from_vec(covariance_type, k, d, covariances)?;
    Ok(Mixture::new(Array1::from_vec(weights), means, covariances)?)
}

fn of_shape(what: &'static str, (got, values): Array, expected: Vec<usize>) -> std::result::Result<Vec<f64>, Problem> {
    if got == expected { Ok(values) } else { Err(Error::ShapeMismatch { what, expected, got }.into()) }
}

/// A file for a mixture, JSON or .npz by its name; see [`Output`].
#[derive(Debug)]
pub struct ModelOutput {
    output: Output,
    format: Format,
}

#[derive(Debug, Clone, Copy)]
enum Format {
    Json,
    Npz,
}

impl Format {
    fn of(path: &Path) -> std::result::Result<Self, Problem> {
        match super::extension(path).as_str() {
            "json" => Ok(Self::Json),
            "npz" => Ok(Self::Npz),
            _ => Err(Problem::Format("the name of a model file must end in .json or .npz".into())),
        }
    }
}

impl ModelOutput {
    /// Makes sure that `path` can be written, and changes nothing there.
    ///
    /// # Errors
    /// As [`Output::create`]; a name that ends in neither `.json` nor `.npz`.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let format = Format::of(path).map_err(|problem| problem.at(path))?;
        Ok(Self { output: Output::create(path)?, format })
    }

    /// The path as given.
    pub fn path(&self) -> &Path {
        self.output.path()
    }

    /// Writes the mixture; may be done again, with another. Errors: as [`Output::write`].
    pub fn write(&self, mixture: &Mixture) -> Result<()> {
        self.write_found(mixture, &Found::default())
    }

    /// Writes the fit's mixture and, with scikit-learn's names, how it was found: `converged`, `n_iter`, `lower_bound` (not
    /// without iterations) and `lower_bounds`. Errors: as [`Output::write`].
    pub fn write_fit(&self, fit: &Fit) -> Result<()> {
        self.write_found(&fit.mixture, &Found::of(fit))
    }

    /// Writes the mixture and what is known of how it was found. Errors: as [`Output::write`].
    pub fn write_found(&self, mixture: &Mixture, found: &Found) -> Result<()> {
        let bytes = match self.format {
            Format::Json => {
                let found = match found_members(found) {
                    members if members.is_empty() => members,
                    members => format!(",\n{members}"),
                };
                format!("{{{}{found}}}\n", model_members(mixture)).into_bytes()
            }
            Format::Npz => npz::to_bytes(mixture, found).map_err(|problem| problem.at(self.path()))?,
        };
        self.output.write(|file| file.write_all(&bytes))
    }
}

/// As that of [`Output`].
impl fmt::Display for ModelOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.output.fmt(f)
    }
}

fn decode<'a, T: Deserialize<'a>>(json: &'a str) -> std::result::Result<T, Problem> {
    serde_json::from_str(json).map_err(|e| Problem::Format(format!("not a model in JSON: {e}")))
}

/// A mixture as JSON. Every number is written so that reading gives the same bits.
pub fn model_to_json(mixture: &Mixture) -> String {
    format!("{{{}}}\n", model_members(mixture))
}

/// What stands between the braces of a mixture.
pub(super) fn model_members(mixture: &Mixture) -> String {
    let (covariances, means) = (mixture.covariances(), mixture.means());
    format!(
        "\"version\": {VERSION}, \"covariance_type\": \"{}\",\n\"weights\": {},\n\"means\": {},\n\"covariances\": {}",
        covariances.covariance_type(),
        nested(&[mixture.n_components()], &mut mixture.weights().iter().copied()),
        nested(means.shape(), &mut means.iter().copied()),
        nested(covariances.shape(), &mut covariances.iter()),
    )
}

/// How a mixture was found, as members of the same object.
pub(super) fn fit_members(fit: &Fit) -> String {
    found_members(&Found::of(fit))
}

fn found_members(found: &Found) -> String {
    let bounds = |bounds: &Vec<f64>| nested(&[bounds.len()], &mut bounds.iter().copied());
    let members = [
        found.converged.map(|v| format!("\"converged\": {v}")),
        found.n_iter.map(|v| format!("\"n_iter\": {v}")),
        found.lower_bound.map(|v| format!("\"lower_bound\": {v:?}")),
        found.lower_bounds.as_ref().map(|v| format!("\n\"lower_bounds\": {}", bounds(v))),
    ];
    members.into_iter().flatten().collect::<Vec<_>>().join(", ").replace(", \n", ",\n").trim_start().into()
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
            let bits = |m: &Mixture| m.means().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            let npz = npz::to_bytes(&written, &Found::default()).unwrap();
            for read in [
                parse_model(&model_to_json(&written)),
                npz::read(std::io::Cursor::new(npz)).map(|(mixture, _)| mixture),
            ] {
                let read = read.unwrap();
                assert_eq!(read, written);
                assert_eq!(bits(&read), bits(&written));
            }
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

    #[test]
    fn damaged_archives_do_not_panic() {
        let good = npz::to_bytes(&mixture(CovarianceType::Full), &Found::default()).unwrap();
        let mut refused = 0;
        for i in (0..good.len()).step_by(5) {
            let mut bytes = good.clone();
            bytes[i] ^= 0x41;
            refused += usize::from(npz::read(std::io::Cursor::new(bytes)).is_err());
            refused += usize::from(npz::read(std::io::Cursor::new(&good[..i])).is_err());
        }
        assert!(refused > good.len() / 5, "{refused}");
    }
}
