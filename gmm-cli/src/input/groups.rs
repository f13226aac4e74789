//! Data divided into groups by a column.
use super::Source;
use anyhow::{Context, anyhow};
use gaussmix::Error;
use gaussmix::data::Samples;
use gaussmix::io::Ids;

pub struct Groups<'a> {
    /// The groups (G,): the distinct values of the column, in order.
    pub names: Ids,
    /// The number of each row's group (N,).
    pub of_row: Vec<usize>,
    /// The samples of each group (G,), in the order of their rows.
    pub sets: Vec<Samples<'a>>,
}

impl<'a> Groups<'a> {
    /// Divides data that was opened with `by` as [`ColumnSelection::by`](gaussmix::io::ColumnSelection::by).
    pub fn new(source: &Source<'a>, by: &str) -> anyhow::Result<Self> {
        let (samples, ids) = source.in_memory().with_context(|| {
            format!(
                "{}: --by needs all of the data in memory; allow more (--memory), or give fewer rows",
                source.name()
            )
        })?;
        let (names, of_row) = ids.groups().map_err(|row| {
            anyhow!(
                "{}: row {row} (counted from 0) has no value in the column `{by}` of --by; give it one, or leave the row out",
                source.name()
            )
        })?;
        let sets = samples.groups(&of_row, names.len())?;
        Ok(Self { names, of_row, sets })
    }

    /// Makes an error about the samples of a group name a row by its number in the whole data.
    pub fn error(&self, group: usize, error: Error) -> Error {
        let mut rows = self.of_row.iter().enumerate().filter(|&(_, &of)| of == group).map(|(row, _)| row);
        match error {
            Error::UnreachableSample { row } => Error::UnreachableSample { row: rows.nth(row).unwrap_or(row) },
            other => other,
        }
    }
}
