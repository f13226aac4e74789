//! Brings data from a file to a device, whole or in chunks, and finds the features that options name.
mod advice;
mod dataset;
mod features;
mod files;
mod groups;
mod noise;
pub(crate) mod options;
pub(crate) mod source;
mod storage;

pub use features::{feature, given, names_of, read_alike};
pub use files::{read_vector, refuse_overlap};
pub use groups::Groups;
pub use options::{DataOptions, Names, TableOptions, tuning_file};
pub use source::{Input, Source};
