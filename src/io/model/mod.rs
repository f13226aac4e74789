//! Models in files: JSON or `.npz`, and checkpoints of a fit.
mod c_header;
mod checkpoint;
mod contents;
mod fit_log;
mod groups;
mod hmm;
mod json;
mod json_array;
mod npz;
mod variational;

pub use c_header::model_to_c;
pub use checkpoint::{Checkpoint, CheckpointOutput, read_checkpoint};
pub use contents::{FitSummary, Model, ModelInFile};
pub use fit_log::FitLog;
pub use groups::{GroupFit, GroupModels, GroupOutput};
pub use hmm::HiddenMarkovFile;
pub use json::{model_to_json, parse_model, read_text};

use super::{Output, Problem, Result};
use gmm_host::{Fit, Mixture};
use std::fmt;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// Reads a mixture from a file: a `.npz` holds arrays under scikit-learn's attribute names; any other file is read as
/// JSON.
///
/// # Errors
/// If the file cannot be read, has neither format, has an unknown version or covariance type, rows of unequal length or
/// parameters that [`Mixture::new`] refuses. The error names the file, and the component.
pub fn read_model(path: impl AsRef<Path>) -> Result<Mixture> {
    read(path.as_ref(), |model| model.mixture, parse_model)
}

/// Reads a mixture, or a posterior of variational inference, and the record of its fit. Errors: as [`Model::read`];
/// also if a posterior is wanted and the file holds only a mixture.
pub fn read_model_with_summary<M: ModelInFile>(path: impl AsRef<Path>) -> Result<(M, FitSummary)> {
    let model = Model::read(&path)?;
    let summary = model.summary.clone();
    Ok((M::of(model).map_err(|problem| problem.at(path.as_ref()))?, summary))
}

impl Model {
    /// Reads everything in a model file. Errors: as [`read_model`]; also if `converged`, `n_iter`, `lower_bound` or
    /// `lower_bounds` has the wrong type, or the file has an unusable posterior.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        read(path.as_ref(), |model| model, variational::parse_json)
    }
}

/// Reads a model: `of` takes what is wanted from a `.npz`, `parse` reads it from JSON.
fn read<T>(
    path: &Path,
    of: impl FnOnce(Model) -> T,
    parse: impl FnOnce(&str) -> std::result::Result<T, Problem>,
) -> Result<T> {
    let read = match Format::of(path) {
        Ok(Format::Npz) => {
            let file = File::open(path).map_err(Problem::io("read it"));
            file.and_then(|file| npz::read(BufReader::new(file))).map(of)
        }
        _ => parse(&read_text(path)?),
    };
    read.map_err(|problem| problem.at(path))
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
            _ => Err(Problem::format("the name of a model file must end in .json or .npz")),
        }
    }
}

/// A result file for a mixture, JSON or `.npz` by its name; see [`Output`].
#[derive(Debug)]
pub struct ModelOutput {
    output: Output,
    format: Format,
}

impl ModelOutput {
    /// Checks that `path` can be written, and changes nothing there. Errors: as [`Output::create`]; also if the name
    /// ends in neither `.json` nor `.npz`.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let format = Format::of(path).map_err(|problem| problem.at(path))?;
        Ok(Self { output: Output::create(path)?, format })
    }

    /// Returns the path as given.
    pub fn path(&self) -> &Path {
        self.output.path()
    }

    /// Writes the mixture; a second call replaces it. Errors: as [`Output::write`].
    pub fn write(&self, mixture: &Mixture) -> Result<()> {
        self.write_with_summary(mixture, &FitSummary::default())
    }

    /// Writes the model of a fit and, under scikit-learn's names, the record of the fit. Errors: as
    /// [`Output::write`].
    pub fn write_fit<M: ModelInFile>(&self, fit: &Fit<M>) -> Result<()> {
        self.write_with_summary(&fit.mixture, &fit.into())
    }

    /// Writes a model and the record of a fit; of a posterior also the mixture of its means, for programs without
    /// posteriors. Errors: as [`Output::write`].
    pub fn write_with_summary(&self, model: &impl ModelInFile, summary: &FitSummary) -> Result<()> {
        let (mixture, posterior) = model.parts().map_err(|e| Problem::from(e).at(self.path()))?;
        let bytes = match self.format {
            Format::Json => variational::to_json_text(&mixture, summary, posterior)
                .map(String::into_bytes)
                .map_err(|e| Problem::format(e.to_string())),
            Format::Npz => npz::to_bytes(&mixture, summary, posterior),
        };
        let bytes = bytes.map_err(|problem| problem.at(self.path()))?;
        self.output.write(|file| file.write_all(&bytes))
    }
}

impl fmt::Display for ModelOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.output.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmm_host::{CovarianceType, Covariances};
    use ndarray::{Array1, Array2};

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
            let bits = |m: &Mixture| {
                m.means().iter().copied().chain(m.covariances().iter()).map(f64::to_bits).collect::<Vec<_>>()
            };
            let npz = npz::to_bytes(&written, &FitSummary::default(), None).unwrap();
            for read in
                [parse_model(&model_to_json(&written)), npz::read(std::io::Cursor::new(npz)).map(|model| model.mixture)]
            {
                let read = read.unwrap();
                assert_eq!(read, written);
                assert_eq!(bits(&read), bits(&written));
            }
        }
    }
}
