//! Parquet files.
use super::arrow::{self, Batches, Grouped};
use super::columns::{Projection, short};
use super::damaged::{check_memory, damaged, guarded};
use super::file_stamp::FileStamp;
use crate::io::Problem;
use arrow_schema::SchemaRef;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::Compression;
use parquet::file::metadata::ColumnChunkMetaData;
use std::path::Path;

/// The most rows, and the most numbers, decoded at a time.
const BATCH_ROWS: usize = 8192;
const BATCH_NUMBERS: usize = 1 << 20;

pub(super) fn open(path: &Path) -> Result<Grouped, Problem> {
    let (file, stamp) = FileStamp::open(path)?;
    let metadata = guarded(|| ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).map_err(damaged))?;
    let groups = metadata.metadata().row_groups();
    let mut compressions = groups.iter().flat_map(|group| group.columns()).map(|column| column.compression());
    if let Some(other) = compressions.find(|c| matches!(c, Compression::BROTLI(_) | Compression::LZO)) {
        return Err(Problem::format(format!("the compression {other} is not read; write it with snappy or zstd")));
    }
    for (number, group) in groups.iter().enumerate() {
        // A row of a list column may have several values, and an empty row counts as one.
        let fits = |column: &ColumnChunkMetaData| match column.column_descr().max_rep_level() {
            0 => column.num_values() == group.num_rows(),
            _ => column.num_values() >= group.num_rows(),
        };
        if let Some(column) = group.columns().iter().find(|column| !fits(column)) {
            return Err(damaged(format_args!(
                "column `{}` has {} values in row group {number} (counted from 0) of {} rows",
                short(&column.column_path().string()),
                column.num_values(),
                group.num_rows()
            )));
        }
    }
    let group_rows: Vec<i64> = groups.iter().map(|group| group.num_rows()).collect();
    let (schema, n_groups) = (metadata.schema().clone(), groups.len());
    let read = move |file, projection: &Projection, first, skip| {
        let metadata = metadata.clone();
        let mask = ProjectionMask::roots(metadata.parquet_schema(), arrow::needed(projection));
        let batches = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
            .with_projection(mask)
            .with_row_groups((first..n_groups).collect())
            .with_offset(skip)
            .with_batch_size((BATCH_NUMBERS / projection.columns.len().max(1)).clamp(1, BATCH_ROWS))
            .build()
            .map_err(damaged)?;
        Ok((Box::new(batches.map(|batch| batch.map_err(damaged))) as Batches, 0))
    };
    Grouped::new((file, stamp), schema, group_rows, Box::new(read))
}

/// Returns the columns and all rows of a Parquet file. `row_bytes` for each row must fit into half of the machine's
/// memory.
pub(in crate::io) fn read_all(path: &Path, row_bytes: usize) -> Result<(SchemaRef, Batches), Problem> {
    let file = open(path)?;
    check_memory((file.n_rows() as u64).saturating_mul(row_bytes as u64))?;
    file.all()
}
