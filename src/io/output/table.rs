//! Result tables with a row for each sample, written chunk by chunk.
#[cfg(feature = "parquet")]
use super::parquet::ParquetWriter;
use super::{Output, disk_space};
use crate::io::data::npy::npy_header;
use crate::io::{Ids, Problem, Result, extension};
use ndarray_npy::{WritableElement, WriteDataError};
use std::fmt::{self, Debug};
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

/// A result file for rows of numbers, `.npy`, `.csv`, `.tsv` or `.parquet` by its name; see [`Output`]. Only one chunk
/// of rows at a time is in memory.
#[derive(Debug)]
pub struct TableOutput {
    output: Output,
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Npy,
    Text(char),
    #[cfg(feature = "parquet")]
    Parquet,
}

/// The type of the numbers of a result: `i64`, `f32` or `f64`.
pub trait TableNumber: WritableElement + Debug + Clone + sealed::Sealed {}

impl TableNumber for i64 {}
impl TableNumber for f32 {}
impl TableNumber for f64 {}

mod sealed {
    /// Only this module implements [`TableNumber`](super::TableNumber).
    #[cfg(not(feature = "parquet"))]
    pub trait Sealed {}
    #[cfg(not(feature = "parquet"))]
    impl<T> Sealed for T {}
    #[cfg(feature = "parquet")]
    pub use super::super::parquet::Column as Sealed;
}

/// A column of identifiers before the numbers of a table. `read` is called for consecutive ranges of rows.
pub struct IdColumn<'a> {
    /// The name of the column.
    pub name: &'a str,
    /// Returns the identifiers of rows.
    pub read: &'a mut dyn FnMut(Range<usize>) -> Result<Option<Ids>>,
}

impl TableOutput {
    /// Checks that `path` can be written, and changes nothing there. Errors: as [`Output::create`]; also if the name of
    /// a regular file does not end in `.npy`, `.csv`, `.tsv` or `.parquet`.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let output = Output::create(path)?;
        let format = match extension(path).as_str() {
            "npy" => Format::Npy,
            "csv" => Format::Text(','),
            "tsv" => Format::Text('\t'),
            #[cfg(feature = "parquet")]
            "parquet" => Format::Parquet,
            #[cfg(not(feature = "parquet"))]
            "parquet" => {
                let what = "a .parquet is not written, because the program was built without the feature `parquet` of the crate gaussmix";
                return Err(Problem::format(what).at(path));
            }
            // A device or a pipe may have any name, and is written as a .npy.
            _ if path.exists() && !path.is_file() => Format::Npy,
            _ => {
                let endings = "the name of this result must end in .npy or .csv, .tsv or .parquet";
                return Err(Problem::format(endings).at(path));
            }
        };
        Ok(Self { output, format })
    }

    /// Returns the path as given.
    pub fn path(&self) -> &Path {
        self.output.path()
    }

    /// Checks that the format can hold a column of identifiers.
    ///
    /// # Errors
    /// For a .npy, which holds numbers only.
    pub fn check_ids(&self) -> Result<()> {
        match self.format {
            Format::Npy => {
                let what = "a .npy has no place for the column of --id; name a .csv, .tsv or .parquet";
                Err(Problem::format(what).at(self.path()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the bytes that [`write`](Self::write) will write: exact for a .npy, a low estimate for text, and 0 for a
    /// Parquet file, whose compressed size is unknown.
    pub fn size<T>(&self, rows: usize, columns: &Columns) -> u64 {
        let (per_number, header) = match self.format {
            // The header of an array of numbers takes 128 bytes.
            Format::Npy => (size_of::<T>() as u64, 128),
            Format::Text(_) => (csv_width::<T>(), 0),
            #[cfg(feature = "parquet")]
            Format::Parquet => (0, 0),
        };
        (rows as u64).saturating_mul(columns.width() as u64).saturating_mul(per_number).saturating_add(header)
    }

    /// Checks that the disks have room for these tables, each with its [`size`](Self::size) in bytes.
    ///
    /// # Errors
    /// Names the first table with too little space, the space it needs and the free space.
    pub fn check_space(tables: &[(&Self, u64)]) -> Result<()> {
        disk_space::check(&tables.iter().map(|(table, needed)| (&table.output, *needed)).collect::<Vec<_>>())
    }

    /// Writes an array of shape (rows, columns), or (rows,) for [`Columns::One`], from chunks of whole rows. Text
    /// begins with the columns' names, and the columns of a Parquet file have them.
    ///
    /// # Errors
    /// The outer error is that of [`Output::write`], or a lack of disk space, found before the first chunk is
    /// requested. The inner error is that of a chunk. After either, no result is left.
    pub fn write<T: TableNumber, E>(
        &self,
        rows: usize,
        columns: &Columns,
        chunks: impl Iterator<Item = std::result::Result<Vec<T>, E>>,
    ) -> Result<std::result::Result<(), E>> {
        self.write_with_ids(rows, columns, None, chunks)
    }

    /// Like [`write`](Self::write), with a column of identifiers before the others. Errors: as [`write`](Self::write)
    /// and [`check_ids`](Self::check_ids); also if another column has its name, and errors of reading the identifiers.
    pub fn write_with_ids<T: TableNumber, E>(
        &self,
        rows: usize,
        columns: &Columns,
        mut ids: Option<IdColumn<'_>>,
        mut chunks: impl Iterator<Item = std::result::Result<Vec<T>, E>>,
    ) -> Result<std::result::Result<(), E>> {
        let names = columns.names();
        if let Some(IdColumn { name, .. }) = &ids {
            self.check_ids()?;
            if names.iter().any(|other| other == name) {
                let what =
                    format!("the kept column cannot be called `{name}`, like another column of the result; rename it");
                return Err(Problem::format(what).at(self.path()));
            }
        }
        Self::check_space(&[(self, self.size::<T>(rows, columns))])?;
        let (mut failed, mut failed_ids) = (None, None);
        let names: Vec<String> = ids.iter().map(|ids| ids.name.to_string()).chain(names).collect();
        let written = self.output.write(|file| {
            let mut writer = match self.format {
                Format::Npy => {
                    file.write_all(&npy_header::<T>(columns.shape(rows))?)?;
                    Writer::Npy(file)
                }
                Format::Text(separator) => {
                    let mut text = csv::WriterBuilder::new().delimiter(separator as u8).from_writer(file);
                    text.write_record(&names)?;
                    Writer::Text(Box::new(text))
                }
                #[cfg(feature = "parquet")]
                Format::Parquet => Writer::Parquet(ParquetWriter::new(file)),
            };
            let mut count = 0;
            for chunk in &mut chunks {
                let values = chunk.map_err(|e| {
                    failed = Some(e);
                    io::Error::other("the content failed")
                })?;
                let width = columns.width().max(1);
                let (begin, end) = (count / width, (count + values.len()) / width);
                let ids = ids.as_mut().map(|ids| (ids.read)(begin..end)).transpose().map_err(|e| {
                    failed_ids = Some(e);
                    io::Error::other("the identifiers failed")
                })?;
                count += values.len();
                writer.write(&values, &names, ids.flatten())?;
            }
            if count as u128 != rows as u128 * columns.width() as u128 {
                return Err(io::Error::other("rows are missing"));
            }
            writer.finish()
        });
        match (failed, failed_ids) {
            (Some(e), _) => Ok(Err(e)),
            (None, Some(e)) => Err(e),
            (None, None) => written.map(Ok),
        }
    }
}

impl fmt::Display for TableOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.output, f)
    }
}

/// Returns a low estimate of the characters of a number in a .csv, with the comma or line feed after it. Integers are
/// labels, mostly of one digit. Floating-point numbers count slightly fewer digits than usual, because some are short.
fn csv_width<T>() -> u64 {
    match std::any::type_name::<T>() {
        "f64" => 16,
        "f32" => 8,
        _ => 2,
    }
}

enum Writer<'a> {
    Npy(&'a mut (dyn Write + Send)),
    Text(Box<csv::Writer<&'a mut (dyn Write + Send)>>),
    #[cfg(feature = "parquet")]
    Parquet(ParquetWriter<'a>),
}

impl Writer<'_> {
    /// Writes whole rows; `names` are those of all columns, beginning with the identifiers, if any.
    fn write<T: TableNumber>(&mut self, values: &[T], names: &[String], ids: Option<Ids>) -> io::Result<()> {
        let width = (names.len() - usize::from(ids.is_some())).max(1);
        match self {
            Self::Npy(file) => write_binary(values, *file),
            Self::Text(text) => {
                for (i, row) in values.chunks(width).enumerate() {
                    if let Some(ids) = &ids {
                        text.write_field(ids.text(i))?;
                    }
                    // Each number in the shortest form that reads back to the same bits.
                    row.iter().try_for_each(|v| text.write_field(format!("{v:?}")))?;
                    text.write_record(None::<&[u8]>)?;
                }
                Ok(())
            }
            #[cfg(feature = "parquet")]
            Self::Parquet(file) => file.write(values, width, names, ids),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Npy(_) => Ok(()),
            Self::Text(mut text) => text.flush(),
            #[cfg(feature = "parquet")]
            Self::Parquet(file) => file.finish(),
        }
    }
}

/// The columns of a table.
#[derive(Debug, Clone)]
pub enum Columns {
    /// Columns with these names.
    Named(Vec<String>),
    /// One number for each row, under this name; the array has one dimension.
    One(&'static str),
    /// The given number of columns, named `PREFIX0`, `PREFIX1` and so on.
    Numbered(&'static str, usize),
}

impl Columns {
    /// Returns the count of numbers in a row.
    pub fn width(&self) -> usize {
        match self {
            Self::Named(names) => names.len(),
            Self::One(_) => 1,
            Self::Numbered(_, n) => *n,
        }
    }

    fn names(&self) -> Vec<String> {
        match self {
            Self::Named(names) => names.clone(),
            Self::One(name) => vec![(*name).into()],
            Self::Numbered(prefix, n) => (0..*n).map(|i| format!("{prefix}{i}")).collect(),
        }
    }

    fn shape(&self, rows: usize) -> Vec<usize> {
        match self {
            Self::One(_) => vec![rows],
            Self::Named(_) | Self::Numbered(..) => vec![rows, self.width()],
        }
    }
}

fn write_binary<T: WritableElement>(values: &[T], file: &mut dyn Write) -> io::Result<()> {
    T::write_slice(values, file).map_err(|e| match e {
        WriteDataError::Io(e) => e,
        e => io::Error::other(e),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn rows(values: &[f64], at_a_time: usize) -> impl Iterator<Item = std::result::Result<Vec<f64>, Infallible>> {
        values.chunks(at_a_time).map(|c| Ok(c.to_vec()))
    }

    #[test]
    fn chunks_make_the_array_that_is_written_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let x = ndarray::arr2(&[[0.1 + 0.2, 1e-300], [-0.0, 7e22], [1.0 / 3.0, 5.0]]);
        let flat: Vec<f64> = x.iter().copied().collect();
        for at_a_time in [2, 4, 6] {
            let table = TableOutput::create(path("x.npy")).unwrap();
            let Ok(()) = table.write(3, &Columns::Numbered("x", 2), rows(&flat, at_a_time)).unwrap();
            let mut whole = Vec::new();
            crate::io::write_npy(&x, &mut whole).unwrap();
            assert_eq!(std::fs::read(path("x.npy")).unwrap(), whole);
            let table = TableOutput::create(path("x.csv")).unwrap();
            let Ok(()) = table.write(3, &Columns::Numbered("x", 2), rows(&flat, at_a_time)).unwrap();
            let crate::io::Data::F64(read) = crate::io::read_data(path("x.csv")).unwrap() else { panic!("float64") };
            assert_eq!(read, x);
        }
        let table = TableOutput::create(path("n.npy")).unwrap();
        let chunks = [Ok::<_, Infallible>(vec![1i64, 2]), Ok(vec![3])];
        let Ok(()) = table.write(3, &Columns::One("label"), chunks.into_iter()).unwrap();
        let n: ndarray::Array1<i64> = ndarray_npy::read_npy(path("n.npy")).unwrap();
        assert_eq!(n.to_vec(), [1, 2, 3]);
    }

    #[test]
    fn sizes_are_known_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let columns = Columns::Numbered("x", 2);
        let values: Vec<f64> = (0..2000).map(|i| f64::from(i - 1000) / 7.0).collect();
        let size = |name: &str| {
            let table = TableOutput::create(path(name)).unwrap();
            let Ok(()) = table.write(1000, &columns, rows(&values, 200)).unwrap();
            (table.size::<f64>(1000, &columns), std::fs::metadata(path(name)).unwrap().len())
        };
        let (npy, written) = size("x.npy");
        assert_eq!(npy, written);
        // The estimate is below the true size, and close to it.
        let (csv, written) = size("x.csv");
        assert!(csv <= written && 4 * csv > 3 * written, "{csv} {written}");
    }

    #[test]
    fn what_fails_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["x.npy", "x.csv"] {
            std::fs::write(path(name), "old").unwrap();
            let table = TableOutput::create(path(name)).unwrap();
            let failing = [Ok(vec![1.0]), Err("no more")].into_iter();
            assert_eq!(table.write(2, &Columns::One("x"), failing).unwrap(), Err("no more"));
            let short = [Ok::<_, Infallible>(vec![1.0])].into_iter();
            assert!(table.write(2, &Columns::One("x"), short).unwrap_err().to_string().contains("rows are missing"));
            assert_eq!(std::fs::read(path(name)).unwrap(), b"old");
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
        assert!(TableOutput::create(path("x.txt")).unwrap_err().to_string().contains(".npy or .csv"));
    }
}
