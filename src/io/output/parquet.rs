//! Rows of numbers as a Parquet file.
use crate::io::Ids;
use arrow_array::{ArrayRef, Float32Array, Float64Array, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use std::io::{self, Write};
use std::sync::Arc;

/// Numbers that a column can hold.
pub trait Column: Sized {
    fn column(values: impl Iterator<Item = Self>) -> ArrayRef;
}

impl Column for i64 {
    fn column(values: impl Iterator<Item = Self>) -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(values))
    }
}

impl Column for f32 {
    fn column(values: impl Iterator<Item = Self>) -> ArrayRef {
        Arc::new(Float32Array::from_iter_values(values))
    }
}

impl Column for f64 {
    fn column(values: impl Iterator<Item = Self>) -> ArrayRef {
        Arc::new(Float64Array::from_iter_values(values))
    }
}

/// A Parquet file. Its first rows determine the types of its columns.
pub(in crate::io) struct ParquetWriter<'a> {
    file: Option<&'a mut (dyn Write + Send)>,
    open: Option<Box<ArrowWriter<&'a mut (dyn Write + Send)>>>,
}

impl<'a> ParquetWriter<'a> {
    pub fn new(file: &'a mut (dyn Write + Send)) -> Self {
        Self { file: Some(file), open: None }
    }

    /// Writes rows of `width` numbers; `names` are those of all columns, beginning with the identifiers, if any.
    pub fn write<T: Column + Clone>(
        &mut self,
        values: &[T],
        width: usize,
        names: &[String],
        ids: Option<Ids>,
    ) -> io::Result<()> {
        let numbers = (0..width).map(|j| T::column(values.iter().skip(j).step_by(width).cloned()));
        let ids = ids.map(ids_column);
        let nullable = std::iter::once(ids.is_some()).chain(std::iter::repeat(false));
        let columns = names.iter().zip(ids.into_iter().chain(numbers)).zip(nullable);
        let columns = columns.map(|((name, column), nullable)| (name, column, nullable));
        self.write_batch(&RecordBatch::try_from_iter_with_nullable(columns).map_err(io::Error::other)?)
    }

    pub fn write_batch(&mut self, batch: &RecordBatch) -> io::Result<()> {
        if let Some(file) = self.file.take() {
            let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
            let writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).map_err(io_error)?;
            self.open = Some(Box::new(writer));
        }
        match &mut self.open {
            Some(writer) => writer.write(batch).map_err(io_error),
            None => Err(io::Error::other("the file was not begun")),
        }
    }

    pub fn finish(self) -> io::Result<()> {
        self.open.map_or(Ok(()), |writer| writer.close().map(drop).map_err(io_error))
    }
}

pub(in crate::io) fn ids_column(ids: Ids) -> ArrayRef {
    match ids {
        Ids::Integers(ids) => Arc::new(Int64Array::from(ids)),
        Ids::Texts(ids) => Arc::new(StringArray::from(ids)),
    }
}

/// Returns the system's error behind an error of the library, if any.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}
