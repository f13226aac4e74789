//! Parquet files.
use super::arrow::{self, BatchRows, damaged, guarded};
use super::columns::{Field, Projection};
use super::file_stamp::FileStamp;
use crate::io::Problem;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::Compression;
use std::fs::File;
use std::path::Path;

/// Most rows that are decoded at a time, and most numbers.
const BATCH_ROWS: usize = 8192;
const BATCH_NUMBERS: usize = 1 << 20;

/// An open Parquet file, of which the metadata was read.
pub(super) struct Parquet {
    file: File,
    stamp: FileStamp,
    metadata: ArrowReaderMetadata,
    /// First row of each row group, and the number of rows at the end.
    starts: Vec<usize>,
}

impl Parquet {
    pub fn open(path: &Path) -> Result<Self, Problem> {
        let (file, stamp) = FileStamp::open(path)?;
        let metadata = guarded(|| ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).map_err(damaged))?;
        let mut starts = vec![0usize];
        for group in metadata.metadata().row_groups() {
            let compression = group.columns().iter().map(|column| column.compression());
            if let Some(other) =
                compression.into_iter().find(|c| matches!(c, Compression::BROTLI(_) | Compression::LZO))
            {
                return Err(Problem::format(format!(
                    "the compression {other} is not read; write it with snappy or zstd"
                )));
            }
            let rows = usize::try_from(group.num_rows()).ok();
            let end = rows.and_then(|rows| starts[starts.len() - 1].checked_add(rows));
            starts.push(end.ok_or_else(|| damaged("a row group has an impossible number of rows"))?);
        }
        Ok(Self { file, stamp, metadata, starts })
    }

    pub fn fields(&self) -> Vec<Field> {
        arrow::fields(self.metadata.schema())
    }

    pub fn n_rows(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    /// The size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.stamp.size()
    }

    /// [`Problem::Changed`] if the file is not what it was when it was opened.
    pub fn check(&self) -> Result<(), Problem> {
        self.stamp.check(&self.file)
    }

    /// The rows, beginning with row `start`.
    pub fn rows(&self, projection: &Projection, start: usize) -> Result<BatchRows, Problem> {
        let groups = self.starts.len() - 1;
        let first = self.starts.partition_point(|&s| s <= start).min(groups).saturating_sub(1);
        let file = self.file.try_clone().map_err(Problem::io("read it"))?;
        let batches = guarded(|| {
            let metadata = self.metadata.clone();
            let mask = ProjectionMask::roots(metadata.parquet_schema(), arrow::needed(projection));
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
                .with_projection(mask)
                .with_row_groups((first..groups).collect())
                .with_offset(start - self.starts[first])
                .with_batch_size((BATCH_NUMBERS / projection.columns.len().max(1)).clamp(1, BATCH_ROWS))
                .build()
                .map_err(damaged)
        })?;
        BatchRows::new(Box::new(batches), projection, 0)
    }
}
