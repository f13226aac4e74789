//! What is written and read of the models of many groups.
use crate::io::Ids;
use crate::io::model::contents::Model;

/// Mixtures that were fitted to the groups of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupModels {
    /// The name of the column whose values are the groups.
    pub by: String,
    /// The groups (G,), each once.
    pub groups: Ids,
    /// The fit to each of them (G,).
    pub fits: Vec<GroupFit>,
}

/// The fit to a group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupFit {
    /// The number of samples.
    pub n_samples: usize,
    /// The model, or why there is none.
    pub model: Result<Model, String>,
}

impl GroupModels {
    /// The models that there are.
    pub fn models(&self) -> impl Iterator<Item = &Model> {
        self.fits.iter().filter_map(|fit| fit.model.as_ref().ok())
    }

    /// The names of the features, if they have any.
    pub fn feature_names(&self) -> Option<&[String]> {
        self.models().next()?.summary.feature_names.as_deref()
    }
}
