//! Models as JSON, with scikit-learn's names and shapes:
//! `{"version":1,"covariance_type":"diag","weights":[K],"means":[K][D],"covariances":…}`.
use super::contents::{Array, FitSummary, mixture_from_arrays};
use super::json_array::{JsonArray, quote_non_finite};
use crate::io::{Problem, Result as FileResult};
use gmm_host::memory::in_words;
use gmm_host::{Mixture, UniformDensity};
use serde::ser::{SerializeSeq, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::ser::{CompactFormatter, Formatter};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

const VERSION: u64 = 1;

#[derive(Serialize)]
pub(super) struct ModelMembers {
    version: u64,
    covariance_type: &'static str,
    weights: NestedLists,
    means: NestedLists,
    covariances: NestedLists,
    #[serde(skip_serializing_if = "Option::is_none")]
    noise: Option<UniformDensity>,
}

impl From<&Mixture> for ModelMembers {
    fn from(mixture: &Mixture) -> Self {
        let gaussians = mixture.without_noise();
        let (weights, means, covariances) = (mixture.weights(), gaussians.means(), gaussians.covariances());
        Self {
            version: VERSION,
            covariance_type: mixture.covariance_model().name(),
            weights: NestedLists((weights.shape().to_vec(), weights.iter().copied().collect())),
            means: NestedLists((means.shape().to_vec(), means.iter().copied().collect())),
            covariances: NestedLists((covariances.shape().to_vec(), covariances.iter().collect())),
            noise: mixture.noise().cloned(),
        }
    }
}

pub(super) struct NestedLists(pub Array);

impl Serialize for NestedLists {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Part<'a>(&'a [usize], &'a [f64]);

        impl Serialize for Part<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let Self(shape, values) = *self;
                match shape {
                    // A single number is left.
                    [] => values.first().serialize(serializer),
                    [n, inner @ ..] => {
                        let mut list = serializer.serialize_seq(Some(*n))?;
                        for part in values.chunks(inner.iter().product::<usize>().max(1)) {
                            list.serialize_element(&Part(inner, part))?;
                        }
                        list.end()
                    }
                }
            }
        }

        let (shape, values) = &self.0;
        Part(shape, values).serialize(serializer)
    }
}

/// Writes a mixture as JSON. Reading it gives the same bits.
pub fn model_to_json(mixture: &Mixture) -> String {
    to_json(&ModelMembers::from(mixture)).expect("members with fixed names and finite numbers have a form in JSON")
}

/// Reads a whole file of text: a model or options.
///
/// # Errors
/// If it cannot be read, is not in UTF-8, or takes more than an eighth of the machine's memory: a device may give
/// endless text.
pub fn read_text(path: impl AsRef<Path>) -> FileResult<String> {
    let path = path.as_ref();
    read_bytes(path).and_then(text_of).map_err(|problem| problem.at(path))
}

pub(super) fn read_bytes(path: &Path) -> Result<Vec<u8>, Problem> {
    read_within(path, gmm_host::memory::half() / 4)
}

fn read_within(path: &Path, most: u64) -> Result<Vec<u8>, Problem> {
    let file = File::open(path).map_err(Problem::io("read it"))?;
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(Problem::io("read it"))?;
    if bytes.len() as u64 > most {
        return Err(Problem::Format(format!("it has more than {}, the limit for a text here", in_words(most.into()))));
    }
    Ok(bytes)
}

pub(super) fn text_of(bytes: Vec<u8>) -> Result<String, Problem> {
    String::from_utf8(bytes).map_err(|e| {
        let byte = e.utf8_error().valid_up_to();
        Problem::format(format!("not a text in UTF-8: byte {byte} (counted from 0) is not part of a character"))
    })
}

/// The members that say how to read the rest.
#[derive(Deserialize)]
struct Head {
    version: u64,
    covariance_type: String,
}

/// The parameters. Other members are ignored.
#[derive(Deserialize)]
struct Parameters {
    weights: JsonArray,
    means: JsonArray,
    covariances: JsonArray,
    noise: Option<UniformDensity>,
}

/// Reads a mixture from a JSON text. Errors: as [`read_model`](super::read_model).
pub fn parse_model(json: &str) -> Result<Mixture, Problem> {
    let json = quote_non_finite(json);
    let Head { version, covariance_type } = decode(&json)?;
    if version != VERSION {
        return Err(Problem::format(format!("the model's version is {version}; this gmm reads version {VERSION}")));
    }
    let Parameters { weights, means, covariances, noise } = decode(&json)?;
    let (weights, means) = (weights.into_parts("weights")?, means.into_parts("means")?);
    mixture_from_arrays(covariance_type.parse()?, weights, means, covariances.into_parts("covariances")?, noise)
}

pub(super) fn parse_model_with_summary(json: &str) -> Result<(Mixture, FitSummary), Problem> {
    let mixture = parse_model(json)?;
    let summary: FitSummary = decode(&quote_non_finite(json))?;
    summary.check(&mixture)?;
    Ok((mixture, summary))
}

pub(super) fn decode<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, Problem> {
    serde_json::from_str(json).map_err(|e| Problem::format(format!("not a model in JSON: {e}")))
}

/// Writes JSON text with a line for each member and for each row of an array, and a line feed at the end.
pub(super) fn to_json(value: &impl Serialize) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, LineFormatter::default()))?;
    bytes.push(b'\n');
    String::from_utf8(bytes).map_err(serde::ser::Error::custom)
}

/// Breaks lines before the members of an object and before lists within a list.
#[derive(Default)]
struct LineFormatter {
    /// Whether the next value is an element of a list, and if so the first one.
    element: Option<bool>,
}

impl LineFormatter {
    fn write_space<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.element.take() == Some(false) { writer.write_all(b" ") } else { Ok(()) }
    }
}

impl Formatter for LineFormatter {
    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b"" } else { b",\n" })
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(if self.element.take().is_some() { b"\n[" } else { b"[" })
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.element = Some(first);
        writer.write_all(if first { b"" } else { b"," })
    }

    fn begin_string<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.write_space(writer)?;
        writer.write_all(b"\"")
    }

    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        self.write_space(writer)?;
        CompactFormatter.write_f64(writer, value)
    }

    fn write_u64<W: ?Sized + Write>(&mut self, writer: &mut W, value: u64) -> io::Result<()> {
        self.write_space(writer)?;
        CompactFormatter.write_u64(writer, value)
    }
}

#[cfg(test)]
mod tests {
    use super::super::variational::to_json_text;
    use super::*;
    use gmm_host::Covariances;
    use ndarray::{arr1, arr3};

    #[test]
    fn a_text_has_a_limit() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "12345").unwrap();
        assert_eq!(read_within(file.path(), 5).unwrap(), b"12345");
        let error = read_within(file.path(), 4).unwrap_err().to_string();
        assert!(error.contains("more than 4 bytes"), "{error}");
        #[cfg(unix)]
        assert!(read_within(Path::new("/dev/zero"), 1 << 20).unwrap_err().to_string().contains("1 MiB"));
    }

    #[test]
    fn rows_stand_on_lines_of_their_own() {
        let covariances = Covariances::Full(arr3(&[[[1.0, 0.5], [0.5, 2.0]], [[1e300, 0.0], [0.0, 1e-300]]]));
        let means = ndarray::arr2(&[[-0.0, 1.0], [0.1, 2.0]]);
        let mixture = Mixture::new(arr1(&[0.25, 0.75]), means, covariances).unwrap();
        let text = "{\"version\": 1,\n\"covariance_type\": \"full\",\n\"weights\": [0.25, 0.75],\n\"means\": [\n[-0.0, 1.0],\n\
                    [0.1, 2.0]],\n\"covariances\": [\n[\n[1.0, 0.5],\n[0.5, 2.0]],\n[\n[1e+300, 0.0],\n[0.0, 1e-300]]]}\n";
        assert_eq!(model_to_json(&mixture), text);
        let summary = FitSummary { n_iter: Some(3), lower_bounds: Some(vec![-1.5, -1.0]), ..Default::default() };
        let with_summary = to_json_text(&mixture, &summary, None).unwrap();
        assert_eq!(with_summary, text.replace("]]]}\n", "]]],\n\"n_iter\": 3,\n\"lower_bounds\": [-1.5, -1.0]}\n"));
        assert_eq!(parse_model_with_summary(&with_summary).unwrap(), (mixture.clone(), summary.clone()));
        let names = ["a \"b\"".to_string(), "NaN".to_string()];
        let named = summary.with_feature_names(Some(&names));
        let with_names = to_json_text(&mixture, &named, None).unwrap();
        assert_eq!(
            with_names,
            with_summary.replace("\"n_iter\"", "\"feature_names\": [\"a \\\"b\\\"\", \"NaN\"],\n\"n_iter\"")
        );
        assert_eq!(parse_model_with_summary(&with_names).unwrap(), (mixture, named));
        for (other, message) in [
            ("[\"a\"]", "expected 2 feature_names, one for each column of means, got 1"),
            ("[\"a\", \"a\"]", "`a` twice"),
            ("[1, 2]", "not a model"),
        ] {
            let bad = with_names.replace("[\"a \\\"b\\\"\", \"NaN\"]", other);
            assert!(parse_model_with_summary(&bad).unwrap_err().to_string().contains(message), "{bad}");
        }
    }
}
