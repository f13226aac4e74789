//! The models of many groups, as written and read.
use crate::io::Ids;
use crate::io::model::contents::Model;

/// Mixtures fitted to the groups of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupModels {
    /// The name of the column of the groups.
    pub by: String,
    /// The distinct groups (G,).
    pub groups: Ids,
    /// The fit to each group (G,).
    pub fits: Vec<GroupFit>,
}

/// The fit to a group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupFit {
    /// The number of samples.
    pub n_samples: usize,
    /// The model, or the reason of its absence.
    pub model: Result<Model, String>,
}

impl GroupModels {
    /// Returns the models of groups that have one.
    pub fn models(&self) -> impl Iterator<Item = &Model> {
        self.fits.iter().filter_map(|fit| fit.model.as_ref().ok())
    }

    /// Returns the names of the features, if any.
    pub fn feature_names(&self) -> Option<&[String]> {
        self.models().next()?.summary.feature_names.as_deref()
    }
}
