//! Models of many groups: a table of Parquet, or a folder with a model file for each group.
mod contents;
mod folder;
#[cfg(feature = "parquet")]
mod parquet;

pub use contents::{GroupFit, GroupModels};

use crate::io::{Ids, Output, Problem, Result, extension};
use std::fmt;
use std::path::{Path, PathBuf};

impl GroupModels {
    /// Reads the models of a `.parquet`, or of a folder by its `groups.csv`.
    ///
    /// # Errors
    /// If the file or folder does not exist, or [`GroupOutput`] has not written it; if a model is not usable. The error
    /// names the file.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if path.is_dir() {
            return folder::read(path);
        }
        let read = match extension(path).as_str() {
            #[cfg(feature = "parquet")]
            "parquet" => parquet::read(path),
            _ => Err(names()),
        };
        read.map_err(|problem| problem.at(path))
    }
}

/// The destination of the models of many groups.
///
/// - A name that ends in `.parquet` (with the feature `parquet`) denotes a table with a row for each component of each
///   group: the group under the name of its column, `component` (counted from 0), `weight`, the mean of each feature
///   (`mean_NAME`, or `mean0`, `mean1`, … for unnamed features), `covariance` (its numbers in a list, row by row: D·D
///   of full and tied ones, D of diag, 1 of spherical), `covariance_type`, `n_samples`, `converged`, `n_iter`,
///   `lower_bound` and `error`. A group without a model has one row, with nulls and the error. For a posterior of
///   variational inference only the mixture of the means is written.
/// - A name without an extension, or with a slash at its end, or of an empty folder, denotes a folder: a `.json` for
///   each group, and `groups.csv` with a row for each: `group`, `file`, `n_samples`, `converged`, `n_iter`,
///   `lower_bound`, `error`. The files have the names of the groups, with `_` for every character other than ASCII
///   letters, digits, `-`, `_` and point.
#[derive(Debug)]
pub struct GroupOutput {
    path: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    #[cfg(feature = "parquet")]
    Parquet(Output),
    Folder,
}

impl GroupOutput {
    /// Checks that `path` can be written, and changes nothing there. Errors: as [`Output::create`]; also for a folder
    /// that is not empty, or another extension.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Self::open(path.as_ref(), false)
    }

    /// Like [`create`](Self::create), for a call that continues from a [`FitLog`](crate::io::FitLog): a folder may have
    /// the models of the interrupted call, which are replaced. [`check_names`](Self::check_names) refuses other files.
    /// Errors: as [`create`](Self::create).
    pub fn resume(path: impl AsRef<Path>) -> Result<Self> {
        Self::open(path.as_ref(), true)
    }

    fn open(path: &Path, resumes: bool) -> Result<Self> {
        let in_words = path.to_string_lossy();
        let kind = if path.is_dir() {
            let mut entries = path.read_dir().map_err(|e| Problem::io("read it")(e).at(path))?;
            if !resumes && entries.next().is_some() {
                let what = "the folder is not empty; empty it, or name another for the models of the groups";
                return Err(Problem::format(what).at(path));
            }
            Output::create(path.join(folder::TABLE))?;
            Kind::Folder
        } else if in_words.ends_with(std::path::is_separator) || extension(path).is_empty() {
            if path.exists() {
                return Err(Problem::format("it is not a folder, as models of groups need").at(path));
            }
            Output::create(path)?;
            Kind::Folder
        } else {
            match extension(path).as_str() {
                #[cfg(feature = "parquet")]
                "parquet" => Kind::Parquet(Output::create(path)?),
                _ => return Err(names().at(path)),
            }
        };
        Ok(Self { path: path.into(), kind })
    }

    /// Returns the path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a folder of model files, which can have posteriors of variational inference.
    pub fn is_folder(&self) -> bool {
        matches!(self.kind, Kind::Folder)
    }

    /// Checks that the columns of the result have distinct names, and that a folder holds only models of these groups.
    /// `by` is the name of their column, and `features` are the names of the features, if any.
    ///
    /// # Errors
    /// For a `.parquet`, if another of its columns is named `by`. For a folder, if it has another file.
    #[cfg_attr(not(feature = "parquet"), allow(unused_variables))]
    pub fn check_names(&self, by: &str, groups: &Ids, features: Option<&[String]>) -> Result<()> {
        match &self.kind {
            #[cfg(feature = "parquet")]
            Kind::Parquet(_) => parquet::check_names(by, features).map_err(|problem| problem.at(&self.path)),
            Kind::Folder => folder::check_content(&self.path, groups),
        }
    }

    /// Writes the models. On failure an existing file stays as it was, and a folder has no new file. Errors: as
    /// [`Output::write`].
    pub fn write(&self, models: &GroupModels) -> Result<()> {
        match &self.kind {
            #[cfg(feature = "parquet")]
            Kind::Parquet(output) => output.write(|file| parquet::write(models, file)),
            Kind::Folder => folder::write(&self.path, models),
        }
    }
}

impl fmt::Display for GroupOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            #[cfg(feature = "parquet")]
            Kind::Parquet(output) => output.fmt(f),
            Kind::Folder => write!(f, "{}, a file for each group", self.path.display()),
        }
    }
}

/// Returns the error that lists valid names.
fn names() -> Problem {
    Problem::format(if cfg!(feature = "parquet") {
        "models of groups are a .parquet, or a folder (a name without an ending, or with a slash at its end)"
    } else {
        "models of groups are a folder (a name without an ending, or with a slash at its end); a .parquet needs the feature `parquet` \
         of the crate gaussmix"
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{FitSummary, Model};
    use gmm_host::{CovarianceType, Covariances, Mixture};
    use ndarray::{Array1, Array2};

    fn mixture(covariance_type: CovarianceType, k: usize) -> Mixture {
        let means = Array2::from_shape_fn((k, 2), |(c, j)| (c * 2 + j) as f64 / 3.0);
        let covariances: Vec<f64> = match covariance_type {
            CovarianceType::Full => (0..k).flat_map(|c| [1.0 + c as f64, 0.1, 0.1, 2.0]).collect(),
            CovarianceType::Tied => vec![1.0 / 3.0, 0.1, 0.1, 2.0],
            CovarianceType::Diag => (0..2 * k).map(|v| 0.7 + v as f64).collect(),
            _ => (0..k).map(|c| 0.3 + c as f64).collect(),
        };
        let covariances = Covariances::from_vec(covariance_type, k, 2, covariances).unwrap();
        Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, covariances).unwrap()
    }

    fn models(covariance_type: CovarianceType, names: Option<&[String]>, groups: Ids) -> GroupModels {
        let model = |k: usize| {
            let summary =
                FitSummary { converged: Some(k == 2), n_iter: Some(7), lower_bound: Some(-0.1), ..Default::default() };
            Model::new(mixture(covariance_type, k), summary.with_feature_names(names))
        };
        let fits = vec![
            GroupFit { n_samples: 1, model: Err("too few, \"really\"".into()) },
            GroupFit { n_samples: 30, model: Ok(model(2)) },
            GroupFit { n_samples: 20, model: Ok(model(3)) },
        ];
        GroupModels { by: "who".into(), groups, fits }
    }

    fn texts(texts: [&str; 3]) -> Ids {
        Ids::Texts(texts.map(|text| Some(text.into())).to_vec())
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn a_table_of_several_batches_comes_back_bit_for_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("models.parquet");
        let named = ["x".to_string(), "y 2".to_string()];
        for covariance_type in CovarianceType::ALL {
            for (names, groups) in
                [(None, texts(["", "a", "b"])), (Some(&named[..]), Ids::Integers([-3, 5, 70].map(Some).to_vec()))]
            {
                let written = models(covariance_type, names, groups);
                GroupOutput::create(&path).unwrap().write(&written).unwrap();
                assert_eq!(GroupModels::read(&path).unwrap(), written);
            }
        }
        let output = GroupOutput::create(&path).unwrap();
        assert!(output.check_names("who", &texts(["a", "b", "c"]), Some(&named)).is_ok());
        for taken in ["weight", "mean_x"] {
            assert!(
                output
                    .check_names(taken, &texts(["a", "b", "c"]), Some(&named))
                    .unwrap_err()
                    .to_string()
                    .contains(taken)
            );
        }
    }

    #[test]
    fn a_folder_comes_back_and_nothing_lies_beside_it() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("models");
        for groups in [texts(["../x", "a/b", "A_b"]), texts([".", "..", "con"]), texts(["", "é", "ü"])] {
            let written = models(CovarianceType::Diag, None, groups);
            GroupOutput::create(&path).unwrap().write(&written).unwrap();
            let mut read = GroupModels::read(&path).unwrap();
            // Only a table holds the name of the column.
            read.by = "who".into();
            assert_eq!(read, written);
            assert_eq!(path.read_dir().unwrap().count(), 3);
            assert_eq!(root.path().read_dir().unwrap().count(), 1);
            assert!(GroupOutput::create(&path).unwrap_err().to_string().contains("not empty"));
            // A call that continues may replace these models, and nothing else.
            let output = GroupOutput::resume(&path).unwrap();
            output.check_names("who", &written.groups, None).unwrap();
            output.write(&written).unwrap();
            assert_eq!(path.read_dir().unwrap().count(), 3);
            std::fs::write(path.join("other.json"), "").unwrap();
            let error = output.check_names("who", &written.groups, None).unwrap_err().to_string();
            assert!(error.contains("other.json"), "{error}");
            std::fs::remove_dir_all(&path).unwrap();
        }
    }

    #[test]
    fn a_table_of_a_folder_leads_nowhere_else() {
        let root = tempfile::tempdir().unwrap();
        for (file, message) in
            [("../secret.json", "`../secret.json` is not a file of the folder"), ("no.json", "no.json")]
        {
            let table = format!("group,file,n_samples,error\na,{file},3,\n");
            std::fs::write(root.path().join("groups.csv"), table).unwrap();
            let error = GroupModels::read(root.path()).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        std::fs::write(root.path().join("groups.csv"), "a,b\n1,2\n").unwrap();
        assert!(GroupModels::read(root.path()).unwrap_err().to_string().contains("no column `group`"));
    }
}
