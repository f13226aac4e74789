//! Rows of a table in memory.
use super::array::{Data, Dtype};
use super::columns::Projection;
use crate::io::Problem;
use ndarray::Array2;
use std::collections::{HashMap, TryReserveError};
use std::hash::Hash;

/// The values of a column that identifies rows; `None` for missing values.
#[derive(Debug, Clone, PartialEq)]
pub enum Ids {
    /// Whole numbers.
    Integers(Vec<Option<i64>>),
    /// Other values, as text.
    Texts(Vec<Option<String>>),
}

impl Ids {
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Integers(ids) => ids.len(),
            Self::Texts(ids) => ids.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the identifier of a row as text; empty if missing.
    pub fn text(&self, row: usize) -> String {
        match self {
            Self::Integers(ids) => ids[row].map(|id| id.to_string()).unwrap_or_default(),
            Self::Texts(ids) => ids[row].clone().unwrap_or_default(),
        }
    }

    /// Returns a range of the rows.
    #[must_use]
    pub fn rows(&self, rows: std::ops::Range<usize>) -> Self {
        match self {
            Self::Integers(ids) => Self::Integers(ids[rows].to_vec()),
            Self::Texts(ids) => Self::Texts(ids[rows].to_vec()),
        }
    }

    /// Returns the rows with these numbers.
    ///
    /// # Panics
    /// If a row does not exist.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Self {
        match self {
            Self::Integers(ids) => Self::Integers(rows.iter().map(|&row| ids[row]).collect()),
            Self::Texts(ids) => Self::Texts(rows.iter().map(|&row| ids[row].clone()).collect()),
        }
    }

    /// Divides the rows into groups of equal values. Returns the distinct values (G,) in order, and the number of each
    /// row's group (N,).
    ///
    /// # Errors
    /// The first row without a value.
    pub fn groups(&self) -> std::result::Result<(Self, Vec<usize>), usize> {
        fn divide<T: Ord + Hash>(ids: &[Option<T>]) -> std::result::Result<(Vec<usize>, Vec<usize>), usize> {
            // The first row of each group, in the order of rows, later in the order of values.
            let (mut numbers, mut firsts) = (HashMap::new(), Vec::new());
            let mut of_row = Vec::with_capacity(ids.len());
            for (row, id) in ids.iter().enumerate() {
                let number = *numbers.entry(id.as_ref().ok_or(row)?).or_insert(firsts.len());
                if number == firsts.len() {
                    firsts.push(row);
                }
                of_row.push(number);
            }
            let mut order: Vec<usize> = (0..firsts.len()).collect();
            order.sort_unstable_by_key(|&number| &ids[firsts[number]]);
            let mut place = vec![0; order.len()];
            order.iter().enumerate().for_each(|(at, &number)| place[number] = at);
            of_row.iter_mut().for_each(|number| *number = place[*number]);
            Ok((order.into_iter().map(|number| firsts[number]).collect(), of_row))
        }
        let (firsts, of_row) = match self {
            Self::Integers(ids) => divide(ids)?,
            Self::Texts(ids) => divide(ids)?,
        };
        Ok((self.select(&firsts), of_row))
    }

    /// Joins the rows with more rows. If only some are numbers, all become texts.
    pub(in crate::io) fn and(self, more: Self) -> Self {
        match (self, more) {
            (Self::Integers(mut ids), Self::Integers(more)) => {
                ids.extend(more);
                Self::Integers(ids)
            }
            (ids, more) => {
                let mut texts = ids.into_texts();
                texts.extend(more.into_texts());
                Self::Texts(texts)
            }
        }
    }

    pub(super) fn into_texts(self) -> Vec<Option<String>> {
        match self {
            Self::Integers(ids) => ids.into_iter().map(|id| id.map(|id| id.to_string())).collect(),
            Self::Texts(ids) => ids,
        }
    }
}

fn no_memory(_: TryReserveError) -> Problem {
    Problem::format("there is too little memory for its numbers; read fewer rows or columns at a time (--memory)")
}

/// Rows read so far: numbers in row-major order, and identifiers if the table has a column of them.
pub(super) struct Block {
    values: Values,
    ids: Option<Ids>,
    text_bytes: u64,
    /// The numbers that stand for missing values.
    na_values: Vec<f64>,
}

enum Values {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Block {
    pub fn new(dtype: Dtype, na_values: &[f64]) -> Self {
        let values = match dtype {
            Dtype::F32 => Values::F32(Vec::new()),
            Dtype::F64 => Values::F64(Vec::new()),
        };
        Self { values, ids: None, text_bytes: 0, na_values: na_values.into() }
    }

    /// Reserves memory for exactly `count` more numbers.
    pub fn reserve(&mut self, count: usize) -> Result<(), Problem> {
        let reserved = match &mut self.values {
            Values::F32(values) => values.try_reserve_exact(count),
            Values::F64(values) => values.try_reserve_exact(count),
        };
        reserved.map_err(no_memory)
    }

    /// Doubles the room for numbers, by at most `most`, so that a lack of memory shows here.
    pub fn grow(&mut self, most: usize) -> Result<(), Problem> {
        let grown = match &mut self.values {
            Values::F32(values) => values.try_reserve(values.len().min(most)),
            Values::F64(values) => values.try_reserve(values.len().min(most)),
        };
        grown.map_err(no_memory)
    }

    /// Returns the size in bytes of the texts that identify rows.
    pub fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    /// Returns the size in bytes of the numbers and of the texts that identify rows.
    pub fn n_bytes(&self) -> u64 {
        let numbers = match &self.values {
            Values::F32(values) => size_of_val(&values[..]),
            Values::F64(values) => size_of_val(&values[..]),
        };
        let ids = self.ids.as_ref().map_or(0, |ids| ids.len() * size_of::<Option<String>>());
        (numbers + ids) as u64 + self.text_bytes
    }

    /// Appends a number of a column of this type.
    pub fn push(&mut self, value: f64, dtype: Dtype) {
        let value = if dtype.is_any_of(value, &self.na_values) { f64::NAN } else { value };
        match &mut self.values {
            Values::F32(values) => values.push(value as f32),
            Values::F64(values) => values.push(value),
        }
    }

    /// Appends rows of an array and returns their number.
    pub fn append(&mut self, rows: &Data, projection: &Projection) -> Result<usize, Problem> {
        fn each<T: Copy + Into<f64>>(
            block: &mut Block,
            (rows, dtype): (&Array2<T>, Dtype),
            projection: &Projection,
        ) -> Result<(), Problem> {
            // From here on, neighbouring whole numbers are the same floating-point number.
            let digits = if dtype == Dtype::F32 { f32::MANTISSA_DIGITS } else { f64::MANTISSA_DIGITS };
            let large = (1u64 << digits) as f64;
            for row in rows.outer_iter() {
                projection.columns.iter().for_each(|&column| block.push(row[column].into(), dtype));
                if let Some(column) = projection.id {
                    let id: f64 = row[column].into();
                    if id.abs() >= large {
                        return Err(Problem::format(format!(
                            "--id or --by: column {column} has {id}, and whole numbers from {large} on lose digits in arrays; write the table \
                             as .parquet or .csv"
                        )));
                    }
                    block.push_text((!id.is_nan()).then(|| id.to_string()));
                }
            }
            Ok(())
        }
        match rows {
            Data::F32(rows) => each(self, (rows, Dtype::F32), projection)?,
            Data::F64(rows) => each(self, (rows, Dtype::F64), projection)?,
        }
        Ok(rows.dim().0)
    }

    pub fn push_text(&mut self, id: Option<String>) {
        match &mut self.ids {
            Some(Ids::Texts(ids)) => {
                self.text_bytes += id.as_ref().map_or(0, String::len) as u64;
                ids.push(id);
            }
            _ => self.append_ids(Ids::Texts(vec![id])),
        }
    }

    /// Appends identifiers. If only some are numbers, all become texts.
    pub fn append_ids(&mut self, more: Ids) {
        if let Ids::Texts(texts) = &more {
            self.text_bytes += texts.iter().flatten().map(String::len).sum::<usize>() as u64;
        }
        self.ids = Some(match self.ids.take() {
            Some(ids) => ids.and(more),
            None => more,
        });
    }

    /// Returns the rows as an array of `columns` columns, and their identifiers.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_divided_into_groups_in_the_order_of_their_values() {
        let numbers = Ids::Integers([10, 9, 10, -1].map(Some).to_vec());
        assert_eq!(numbers.groups(), Ok((Ids::Integers(vec![Some(-1), Some(9), Some(10)]), vec![2, 1, 2, 0])));
        let texts = |texts: &[&str]| Ids::Texts(texts.iter().map(|&text| Some(text.into())).collect());
        assert_eq!(texts(&["b", "", "b", "a"]).groups(), Ok((texts(&["", "a", "b"]), vec![2, 0, 2, 1])));
        assert_eq!(Ids::Integers(vec![Some(1), None, None]).groups(), Err(1));
    }
}
