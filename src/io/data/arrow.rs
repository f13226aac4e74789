//! Columns of Arrow, as in Parquet and Arrow IPC files.
use super::array::Dtype;
use super::block::{Block, Ids};
use super::columns::{Field, Kind, Projection};
use super::damaged::{damaged, guarded};
use super::file_stamp::FileStamp;
use super::stream::Stamp;
use crate::io::Problem;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrowPrimitiveType, PrimitiveArray, RecordBatch, new_empty_array};
use arrow_schema::{DataType, Schema, SchemaRef};
use std::fs::File;

/// The most rows converted at a time.
const SLICE_ROWS: usize = 8192;

/// Returns the columns of a schema. float16 and float32 are read as float32, all other numbers as float64.
pub(super) fn fields(schema: &Schema) -> Vec<Field> {
    // The names that pandas gives to unnamed indices.
    let is_index = |name: &str| name.starts_with("__index_level_") && name.ends_with("__");
    let field = |field: &arrow_schema::FieldRef| Field {
        name: Some(field.name().clone()),
        kind: kind(field.data_type()),
        is_index: is_index(field.name()),
        has_missing: false,
    };
    schema.fields().iter().map(field).collect()
}

pub(super) fn kind(data_type: &DataType) -> Kind {
    use DataType::*;
    let what = match data_type {
        Float16 | Float32 => return Kind::Number(Dtype::F32),
        Float64 | Boolean => return Kind::Number(Dtype::F64),
        integer if integer.is_integer() => return Kind::Number(Dtype::F64),
        Utf8 | LargeUtf8 | Utf8View => "texts",
        Dictionary(..) => "categories",
        Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => {
            "decimals (convert them to float64 where the file is written)"
        }
        time if time.is_temporal() => {
            "dates or times (convert them to numbers, of days for example, where the file is written)"
        }
        Null => "nothing but nulls",
        other => return Kind::Other(format!("values of the type {other}")),
    };
    Kind::Other(what.into())
}

/// Batches of rows of a file, in order.
pub(super) type Batches = Box<dyn Iterator<Item = Result<RecordBatch, Problem>> + Send>;

/// Reads the columns [`needed`] of a reopened file, from a group on, without a number of rows at its beginning. Returns
/// the batches, and how many rows of the first batch to skip.
pub(super) type ReadGroups =
    Box<dyn Fn(File, &Projection, usize, usize) -> Result<(Batches, usize), Problem> + Send + Sync>;

/// An open file of Arrow's columns in groups of rows (row groups of Parquet, record batches of Arrow IPC), each of
/// which can be read at any time.
pub(super) struct Grouped {
    file: File,
    stamp: FileStamp,
    pub schema: SchemaRef,
    /// The first row of each group, and then the number of rows.
    starts: Vec<usize>,
    read: ReadGroups,
}

impl Grouped {
    /// `group_rows` are the numbers of rows that the file claims.
    pub fn new(
        (file, stamp): (File, FileStamp),
        schema: SchemaRef,
        group_rows: impl IntoIterator<Item = i64>,
        read: ReadGroups,
    ) -> Result<Self, Problem> {
        let mut starts = vec![0usize];
        for rows in group_rows {
            let end = usize::try_from(rows).ok().and_then(|rows| starts[starts.len() - 1].checked_add(rows));
            starts.push(end.ok_or_else(|| damaged("a group of rows has an impossible length"))?);
        }
        Ok(Self { file, stamp, schema, starts, read })
    }

    pub fn fields(&self) -> Vec<Field> {
        fields(&self.schema)
    }

    pub fn n_rows(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    pub fn size(&self) -> u64 {
        self.stamp.size()
    }

    /// Reads all rows, with all columns in their order.
    pub fn all(&self) -> Result<(SchemaRef, Batches), Problem> {
        let columns = (0..self.schema.fields().len()).collect();
        let (names, left_out, dtype) = (None, Vec::new(), Dtype::F64);
        let projection = Projection { columns, names, id: None, left_out, index: None, dtype };
        let file = self.file.try_clone().map_err(Problem::io("read it"))?;
        let (batches, _) = guarded(|| (self.read)(file, &projection, 0, 0))?;
        Ok((self.schema.clone(), batches))
    }

    /// Reads the rows from row `start` on.
    pub fn rows(&self, projection: &Projection, start: usize) -> Result<BatchRows, Problem> {
        self.stamp.check(&self.file)?;
        let again = || self.file.try_clone().map_err(Problem::io("read it"));
        let groups = self.starts.len() - 1;
        let first = self.starts.partition_point(|&s| s <= start).min(groups).saturating_sub(1);
        let (batches, skip) = guarded(|| (self.read)(again()?, projection, first, start - self.starts[first]))?;
        let mut rows = BatchRows::new(batches, projection, Stamp::new(again()?, self.stamp));
        rows.skip(skip)?;
        Ok(rows)
    }
}

/// The rows of a file of Arrow's columns, in order.
pub(super) struct BatchRows {
    batches: Batches,
    /// The current batch, and the number of its rows read so far.
    current: Option<(RecordBatch, usize)>,
    /// The positions of the features and the identifier among the requested columns.
    features: Vec<usize>,
    id: Option<usize>,
    stamp: Stamp,
}

/// Returns the columns to request from a file: those of the features and of the identifier, ascending.
pub(super) fn needed(projection: &Projection) -> Vec<usize> {
    let mut needed: Vec<usize> = projection.columns.iter().copied().chain(projection.id).collect();
    needed.sort_unstable();
    needed.dedup();
    needed
}

impl BatchRows {
    /// `batches` have the columns [`needed`].
    pub fn new(batches: Batches, projection: &Projection, stamp: Stamp) -> Self {
        let needed = needed(projection);
        // Every column of the projection is in `needed`.
        let place = |column: &usize| needed.binary_search(column).unwrap_or(0);
        let features = projection.columns.iter().map(place).collect();
        Self { batches, current: None, features, id: projection.id.as_ref().map(place), stamp }
    }

    /// Appends the next rows, at most `limit`, to a block and returns their number.
    pub fn read(&mut self, limit: usize, block: &mut Block) -> Result<usize, Problem> {
        let (features, id) = (self.features.clone(), self.id);
        self.pass(limit, SLICE_ROWS, |part| guarded(|| append(part, &features, id, block)))
    }

    /// Skips the next rows, at most `limit`, and returns their number.
    pub fn skip(&mut self, limit: usize) -> Result<usize, Problem> {
        self.pass(limit, usize::MAX, |_| Ok(()))
    }

    /// Calls `take` with the next rows, at most `at_a_time` each.
    fn pass(
        &mut self,
        limit: usize,
        at_a_time: usize,
        mut take: impl FnMut(&RecordBatch) -> Result<(), Problem>,
    ) -> Result<usize, Problem> {
        let mut pass = || {
            let mut count = 0;
            while count < limit {
                match &mut self.current {
                    Some((batch, at)) if *at < batch.num_rows() => {
                        let rows = (batch.num_rows() - *at).min(limit - count).min(at_a_time);
                        take(&batch.slice(*at, rows))?;
                        *at += rows;
                        count += rows;
                    }
                    current => {
                        let next = guarded(|| self.batches.next().transpose())?;
                        *current = next.map(|batch| (batch, 0));
                        if current.is_none() {
                            break;
                        }
                    }
                }
            }
            Ok(count)
        };
        let count = pass();
        // If the file has changed, report the change rather than its content.
        self.stamp.check()?;
        count
    }
}

fn append(batch: &RecordBatch, features: &[usize], id: Option<usize>, block: &mut Block) -> Result<(), Problem> {
    let column = |&column: &usize| {
        let array = batch.column(column);
        let is_narrow = matches!(kind(array.data_type()), Kind::Number(Dtype::F32));
        Ok((numbers(array)?, if is_narrow { Dtype::F32 } else { Dtype::F64 }))
    };
    let columns = features.iter().map(column).collect::<Result<Vec<_>, Problem>>()?;
    for row in 0..batch.num_rows() {
        columns.iter().for_each(|(column, dtype)| block.push(column[row], *dtype));
    }
    if let Some(column) = id {
        block.append_ids(ids(batch.column(column))?);
    }
    Ok(())
}

/// Returns the values of a column as float64, NaN for nulls.
pub(in crate::io) fn numbers(array: &dyn Array) -> Result<Vec<f64>, Problem> {
    fn convert<T: ArrowPrimitiveType>(array: &dyn Array, number: impl Fn(T::Native) -> f64) -> Vec<f64> {
        let array: &PrimitiveArray<T> = array.as_primitive();
        match array.null_count() {
            0 => array.values().iter().map(|&v| number(v)).collect(),
            _ => array.iter().map(|v| v.map_or(f64::NAN, &number)).collect(),
        }
    }
    use DataType::*;
    Ok(match array.data_type() {
        Float16 => convert::<Float16Type>(array, |v| v.to_f64()),
        Float32 => convert::<Float32Type>(array, f64::from),
        Float64 => convert::<Float64Type>(array, |v| v),
        Int8 => convert::<Int8Type>(array, f64::from),
        Int16 => convert::<Int16Type>(array, f64::from),
        Int32 => convert::<Int32Type>(array, f64::from),
        Int64 => convert::<Int64Type>(array, |v| v as f64),
        UInt8 => convert::<UInt8Type>(array, f64::from),
        UInt16 => convert::<UInt16Type>(array, f64::from),
        UInt32 => convert::<UInt32Type>(array, f64::from),
        UInt64 => convert::<UInt64Type>(array, |v| v as f64),
        Boolean => array.as_boolean().iter().map(|v| v.map_or(f64::NAN, f64::from)).collect(),
        other => return Err(damaged(format!("a column of the type {other} in place of numbers"))),
    })
}

/// Whether the identifiers in a column are integers.
pub(super) fn has_integers(schema: &Schema, column: usize) -> bool {
    matches!(ids(&new_empty_array(schema.field(column).data_type())), Ok(Ids::Integers(_)))
}

/// Returns the values of a column that identifies rows.
pub(in crate::io) fn ids(array: &dyn Array) -> Result<Ids, Problem> {
    fn integers<T: ArrowPrimitiveType>(array: &dyn Array) -> Ids
    where
        i64: From<T::Native>,
    {
        Ids::Integers(array.as_primitive::<T>().iter().map(|v| v.map(i64::from)).collect())
    }
    fn texts<T: ToString>(values: impl Iterator<Item = Option<T>>) -> Ids {
        Ids::Texts(values.map(|v| v.map(|v| v.to_string())).collect())
    }
    use DataType::*;
    Ok(match array.data_type() {
        Int8 => integers::<Int8Type>(array),
        Int16 => integers::<Int16Type>(array),
        Int32 => integers::<Int32Type>(array),
        Int64 => integers::<Int64Type>(array),
        UInt8 => integers::<UInt8Type>(array),
        UInt16 => integers::<UInt16Type>(array),
        UInt32 => integers::<UInt32Type>(array),
        UInt64 => texts(array.as_primitive::<UInt64Type>().iter()),
        Float32 => texts(array.as_primitive::<Float32Type>().iter().map(|v| v.filter(|v| !v.is_nan()))),
        Float64 => texts(array.as_primitive::<Float64Type>().iter().map(|v| v.filter(|v| !v.is_nan()))),
        Boolean => texts(array.as_boolean().iter()),
        Utf8 => texts(array.as_string::<i32>().iter()),
        LargeUtf8 => texts(array.as_string::<i64>().iter()),
        Utf8View => texts(array.as_string_view().iter()),
        Null => Ids::Texts(vec![None; array.len()]),
        Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let values = ids(dictionary.values())?;
            // Without values all keys are missing.
            let keys = if values.is_empty() { vec![0; array.len()] } else { dictionary.normalized_keys() };
            let key = |row: usize| keys.get(row).filter(|_| array.is_valid(row));
            match values {
                Ids::Integers(v) => Ids::Integers((0..array.len()).map(|row| v[*key(row)?]).collect()),
                Ids::Texts(v) => Ids::Texts((0..array.len()).map(|row| v[*key(row)?].clone()).collect()),
            }
        }
        other => {
            return Err(Problem::format(format!(
                "--id or --by: a column of the type {other} cannot be kept; only numbers, truth values and texts are"
            )));
        }
    })
}
