//! Rows of a table in memory.
use super::array::{Data, Dtype};
use super::columns::Projection;
use crate::io::Problem;
use ndarray::{Array2, ArrayView2};
use std::collections::TryReserveError;

/// The values of a column that identifies rows; `None` where a value is missing.
#[derive(Debug, Clone, PartialEq)]
pub enum Ids {
    /// Whole numbers.
    Integers(Vec<Option<i64>>),
    /// Anything else, as text.
    Texts(Vec<Option<String>>),
}

impl Ids {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Integers(ids) => ids.len(),
            Self::Texts(ids) => ids.len(),
        }
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The identifier of a row as text; empty where it is missing.
    pub fn text(&self, row: usize) -> String {
        match self {
            Self::Integers(ids) => ids[row].map(|id| id.to_string()).unwrap_or_default(),
            Self::Texts(ids) => ids[row].clone().unwrap_or_default(),
        }
    }

    /// Some of the rows.
    #[must_use]
    pub fn rows(&self, rows: std::ops::Range<usize>) -> Self {
        match self {
            Self::Integers(ids) => Self::Integers(ids[rows].to_vec()),
            Self::Texts(ids) => Self::Texts(ids[rows].to_vec()),
        }
    }

    fn into_texts(self) -> Vec<Option<String>> {
        match self {
            Self::Integers(ids) => ids.into_iter().map(|id| id.map(|id| id.to_string())).collect(),
            Self::Texts(ids) => ids,
        }
    }
}

fn no_memory(_: TryReserveError) -> Problem {
    Problem::format("there is too little memory for its numbers; read fewer rows or columns at a time (--memory)")
}

/// Rows that were read: numbers in row-major order, and identifiers if there is a column of them.
pub(super) struct Block {
    values: Values,
    ids: Option<Ids>,
    /// Bytes of the texts that identify rows.
    text_bytes: u64,
}

enum Values {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Block {
    pub fn new(dtype: Dtype) -> Self {
        let values = match dtype {
            Dtype::F32 => Values::F32(Vec::new()),
            Dtype::F64 => Values::F64(Vec::new()),
        };
        Self { values, ids: None, text_bytes: 0 }
    }

    /// Reserves memory for so many more numbers, and no more.
    pub fn reserve(&mut self, count: usize) -> Result<(), Problem> {
        let reserved = match &mut self.values {
            Values::F32(values) => values.try_reserve_exact(count),
            Values::F64(values) => values.try_reserve_exact(count),
        };
        reserved.map_err(no_memory)
    }

    /// Makes room for as many numbers again, at most for `most`, so that it grows here, where there
    /// may be too little memory.
    pub fn grow(&mut self, most: usize) -> Result<(), Problem> {
        let grown = match &mut self.values {
            Values::F32(values) => values.try_reserve(values.len().min(most)),
            Values::F64(values) => values.try_reserve(values.len().min(most)),
        };
        grown.map_err(no_memory)
    }

    /// Bytes of the texts that identify rows.
    pub fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    /// Bytes of the numbers, and of the texts that identify rows.
    pub fn n_bytes(&self) -> u64 {
        let numbers = match &self.values {
            Values::F32(values) => size_of_val(&values[..]),
            Values::F64(values) => size_of_val(&values[..]),
        };
        let ids = self.ids.as_ref().map_or(0, |ids| ids.len() * size_of::<Option<String>>());
        (numbers + ids) as u64 + self.text_bytes
    }

    /// Appends a number.
    pub fn push(&mut self, value: f64) {
        match &mut self.values {
            Values::F32(values) => values.push(value as f32),
            Values::F64(values) => values.push(value),
        }
    }

    /// Appends rows of an array. Gives their number.
    pub fn append(&mut self, rows: &Data, projection: &Projection) -> usize {
        fn each<T: Copy + Into<f64>>(block: &mut Block, rows: ArrayView2<'_, T>, projection: &Projection) {
            for row in rows.outer_iter() {
                projection.columns.iter().for_each(|&column| block.push(row[column].into()));
                if let Some(column) = projection.id {
                    block.push_text(Some(Into::<f64>::into(row[column]).to_string()));
                }
            }
        }
        match rows {
            Data::F32(rows) => each(self, rows.view(), projection),
            Data::F64(rows) => each(self, rows.view(), projection),
        }
        rows.dim().0
    }

    /// Appends an identifier.
    pub fn push_text(&mut self, id: Option<String>) {
        match &mut self.ids {
            Some(Ids::Texts(ids)) => {
                self.text_bytes += id.as_ref().map_or(0, String::len) as u64;
                ids.push(id);
            }
            _ => self.append_ids(Ids::Texts(vec![id])),
        }
    }

    /// Appends identifiers. Where some are numbers and others are not, all become texts.
    pub fn append_ids(&mut self, more: Ids) {
        if let Ids::Texts(texts) = &more {
            self.text_bytes += texts.iter().flatten().map(String::len).sum::<usize>() as u64;
        }
        self.ids = Some(match (self.ids.take(), more) {
            (None, more) => more,
            (Some(Ids::Integers(mut ids)), Ids::Integers(more)) => {
                ids.extend(more);
                Ids::Integers(ids)
            }
            (Some(ids), more) => {
                let mut texts = ids.into_texts();
                texts.extend(more.into_texts());
                Ids::Texts(texts)
            }
        });
    }

    /// The rows as an array of `columns` columns, and their identifiers.
    pub fn finish(self, columns: usize) -> (Data, Option<Ids>) {
        fn array<T>(values: Vec<T>, columns: usize) -> Array2<T> {
            let rows = values.len().checked_div(columns).unwrap_or(0);
            // Every reader appends whole rows.
            Array2::from_shape_vec((rows, columns), values).expect("whole rows")
        }
        let data = match self.values {
            Values::F32(values) => Data::F32(array(values, columns)),
            Values::F64(values) => Data::F64(array(values, columns)),
        };
        (data, self.ids)
    }
}
