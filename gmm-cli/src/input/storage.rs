//! Numbers that were read, or a file whose rows are read when they are needed.
use super::files::note_columns;
use gaussmix::io::{self, ColumnSelection, Data, DataFile, Table};
use std::ops::Range;
use std::path::Path;

pub enum Storage {
    Memory(Data),
    File(Box<DataFile>),
}

impl Storage {
    /// Reads a file of at most `memory` bytes; opens a larger one.
    pub fn open(path: &Path, memory: u64) -> io::Result<Self> {
        let table = Table::open(&[path], &ColumnSelection::default())?;
        note_columns(&table, &path.display().to_string());
        Ok(match table.read_within(memory, &mut |_| ())? {
            Some(contents) => Self::Memory(contents.data),
            None => Self::File(Box::new(table.into_file(&mut |_| ())?)),
        })
    }

    pub fn dim(&self) -> (usize, usize) {
        match self {
            Self::Memory(data) => data.dim(),
            Self::File(file) => file.dim(),
        }
    }

    pub fn dtype(&self) -> &'static str {
        match self {
            Self::Memory(data) => data.dtype(),
            Self::File(file) => file.dtype(),
        }
    }

    pub fn n_bytes(&self) -> u64 {
        match self {
            Self::Memory(data) => data.n_bytes(),
            Self::File(file) => file.n_bytes(),
        }
    }

    pub fn is_memory(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// Copies or reads some rows.
    pub fn rows(&self, rows: Range<usize>) -> io::Result<Data> {
        match self {
            Self::Memory(data) => Ok(data.rows(rows)),
            Self::File(file) => file.rows(rows),
        }
    }
}
