//! Result tables with a row for each sample, written chunk by chunk.
use super::{Output, disk_space};
use crate::io::data::npy::npy_header;
use crate::io::{Problem, Result, extension};
use ndarray_npy::{WritableElement, WriteDataError};
use std::fmt::{self, Debug};
use std::io::{self, Write};
use std::path::Path;

/// A result file for rows of numbers, `.npy` or `.csv` by its name; see [`Output`]. Only one chunk of rows at a time is in memory.
#[derive(Debug)]
pub struct TableOutput {
    output: Output,
    csv: bool,
}

impl TableOutput {
    /// Makes sure that `path` can be written, and changes nothing there.
    ///
    /// # Errors
    /// As [`Output::create`]; also if the name of a regular file ends in neither `.npy` nor `.csv`.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let output = Output::create(path)?;
        let csv = extension(path) == "csv";
        // A device or a pipe may have any name, and is written to as a .npy.
        if !csv && extension(path) != "npy" && (!path.exists() || path.is_file()) {
            return Err(Problem::Format("the name of this result must end in .npy or .csv".into()).at(path));
        }
        Ok(Self { output, csv })
    }

    /// The path as given.
    pub fn path(&self) -> &Path {
        self.output.path()
    }

    /// The bytes that [`write`](Self::write) will write: exact for a .npy, a low estimate for a .csv.
    pub fn size<T>(&self, rows: usize, columns: &Columns) -> u64 {
        let per_number = if self.csv { csv_width::<T>() } else { size_of::<T>() as u64 };
        // The header of an array of numbers takes 128 bytes.
        let header = if self.csv { 0 } else { 128 };
        (rows as u64).saturating_mul(columns.width() as u64).saturating_mul(per_number).saturating_add(header)
    }

    /// Makes sure that the disks have room for these tables, each with the bytes that it needs; see [`size`](Self::size).
    ///
    /// # Errors
    /// Names the first table for which there is too little space, what it needs and what is free.
    pub fn check_space(tables: &[(&Self, u64)]) -> Result<()> {
        disk_space::check(&tables.iter().map(|(table, needed)| (&table.output, *needed)).collect::<Vec<_>>())
    }

    /// Writes an array of shape (rows, columns), or (rows,) for [`Columns::One`], from chunks of whole rows. A .csv begins with
    /// the columns' names.
    ///
    /// # Errors
    /// The outer error is that of [`Output::write`], or that the disk has too little space, which is checked before the first
    /// chunk is asked for. The inner error is that of a chunk. After either, no result is left.
    pub fn write<T: WritableElement + Debug, E>(
        &self,
        rows: usize,
        columns: &Columns,
        mut chunks: impl Iterator<Item = std::result::Result<Vec<T>, E>>,
    ) -> Result<std::result::Result<(), E>> {
        Self::check_space(&[(self, self.size::<T>(rows, columns))])?;
        let mut failed = None;
        let written = self.output.write(|file| {
            if self.csv {
                writeln!(file, "{}", columns.names().join(","))?;
            } else {
                file.write_all(&npy_header::<T>(columns.shape(rows))?)?;
            }
            let mut count = 0;
            for chunk in &mut chunks {
                let values = chunk.map_err(|e| {
                    failed = Some(e);
                    io::Error::other("the content failed")
                })?;
                count += values.len();
                if self.csv { write_csv(&values, columns.width(), file)? } else { write_binary(&values, file)? }
            }
            if count == rows * columns.width() { Ok(()) } else { Err(io::Error::other("rows are missing")) }
        });
        match failed {
            Some(e) => Ok(Err(e)),
            None => written.map(Ok),
        }
    }
}

/// As the display of [`Output`].
impl fmt::Display for TableOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.output, f)
    }
}

/// A low estimate of the characters that a number of this type takes in a .csv, with the comma or line feed after it. Integers
/// are labels, mostly of one digit. Floating-point numbers have a little less than their usual number of digits, because some
/// are short.
fn csv_width<T>() -> u64 {
    match std::any::type_name::<T>() {
        "f64" => 16,
        "f32" => 8,
        _ => 2,
    }
}

/// The columns of a table.
#[derive(Debug, Clone)]
pub enum Columns {
    /// One number for each row, under this name; the array has one dimension.
    One(&'static str),
    /// The given number of columns, with the names `PREFIX0`, `PREFIX1` and so on.
    Numbered(&'static str, usize),
}

impl Columns {
    fn width(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Numbered(_, n) => *n,
        }
    }

    fn names(&self) -> Vec<String> {
        match self {
            Self::One(name) => vec![(*name).into()],
            Self::Numbered(prefix, n) => (0..*n).map(|i| format!("{prefix}{i}")).collect(),
        }
    }

    fn shape(&self, rows: usize) -> Vec<usize> {
        match self {
            Self::One(_) => vec![rows],
            Self::Numbered(_, n) => vec![rows, *n],
        }
    }
}

/// Writes each number in the shortest form that reads back to the same bits.
fn write_csv<T: Debug>(values: &[T], width: usize, file: &mut dyn Write) -> io::Result<()> {
    for row in values.chunks(width.max(1)) {
        for (i, v) in row.iter().enumerate() {
            write!(file, "{}{v:?}", if i == 0 { "" } else { "," })?;
        }
        writeln!(file)?;
    }
    Ok(())
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
        // An estimate below the true size, and close to it.
        let (csv, written) = size("x.csv");
        assert!(csv <= written && 4 * csv > 3 * written, "{csv} {written}");
    }

    /// The table would take nine petabytes.
    #[cfg(unix)]
    #[test]
    fn what_no_disk_holds_is_not_begun() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["x.npy", "x.csv"] {
            let table = TableOutput::create(folder.path().join(name)).unwrap();
            let never = std::iter::from_fn(|| -> Option<std::result::Result<Vec<f64>, Infallible>> {
                panic!("a chunk was asked for")
            });
            let error = table.write(1 << 50, &Columns::One("x"), never).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(" PB; the disk has ") && error.contains(" free"), "{error}");
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
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
