//! Tables: one or several files of any format as one data set, some of whose columns are read.
//!
//! All data is read through tables, both into memory and in chunks.
use super::array::{Data, Dtype};
use super::block::{Block, Ids};
use super::columns::{ColumnSelection, Projection, list, short};
use super::damaged::damaged;
use super::decimal::Decimal;
use super::files::expand;
use super::part::{Content, Cursor, Part};
use crate::io::{Error, Problem, Result};
use gmm_host::{Interrupt, memory};
use ndarray::{Array1, Axis};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The most numbers to read before the limit of memory is checked again.
const STEP_NUMBERS: usize = 1 << 20;

/// Tables in one or several files, opened but not yet read: N samples in rows, with D columns as features.
///
/// ```no_run
/// use gaussmix::io::{ColumnSelection, Table};
///
/// let selection = ColumnSelection { drop: vec!["species".into()], ..ColumnSelection::default() };
/// let table = Table::open(&["iris.parquet"], &selection)?;
/// println!("{:?}", table.names()); // of the features, if the files have names
/// let contents = table.read()?;
/// println!("{:?}", contents.data.dim());
/// # Ok::<(), gaussmix::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Table {
    parts: Vec<Part>,
    dtype: Dtype,
    /// The numbers that stand for missing values.
    na_values: Vec<f64>,
}

/// The contents of a [`Table`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Contents {
    /// The features.
    pub data: Data,
    /// The column that identifies the rows, if named.
    pub ids: Option<Ids>,
    /// The number of rows of each file.
    pub part_rows: Vec<usize>,
}

impl Table {
    /// Opens files and finds the columns. A folder denotes the files in it and in its subfolders that have the ending
    /// of a data file (other than `.txt`, `.data`, `.dat`, `.tab` and `.asc`), in the order of their names. Names that
    /// begin with a point or an underscore are skipped. The columns of several files are matched by name.
    ///
    /// # Errors
    /// If a file cannot be opened or is not a table, if a column is missing or does not hold numbers; the error names
    /// the file and the column.
    pub fn open<P: AsRef<Path>>(paths: &[P], selection: &ColumnSelection) -> Result<Self> {
        let mut parts: Vec<Part> = Vec::new();
        for path in expand(paths)? {
            let part = Part::open(&path, selection, parts.first()).map_err(|problem| problem.at(&path))?;
            parts.push(part);
        }
        let wide = parts.iter().any(|part| part.projection.dtype == Dtype::F64);
        let dtype = if wide { Dtype::F64 } else { Dtype::F32 };
        let number =
            |text: &String| [Decimal::Point, Decimal::Comma].iter().find_map(|decimal| decimal.number(text.as_bytes()));
        let na_values = selection.na_values.iter().filter_map(number).collect();
        Ok(Self { parts, dtype, na_values })
    }

    /// Opens a file with one number for each sample, for [`read_vector`](Self::read_vector). Errors: as
    /// [`open`](Self::open).
    pub fn open_vector(path: impl AsRef<Path>) -> Result<Self> {
        Self::open(&[path], &ColumnSelection { is_vector: true, ..ColumnSelection::default() })
    }

    /// Reads the numbers of a single column. Errors: as [`read`](Self::read); also if there are more columns.
    pub fn read_vector(&self) -> Result<Array1<f64>> {
        if self.n_features() != 1 {
            let what = format!("it has {} columns; expected one number for each sample", self.n_features());
            return Err(Problem::format(what).at(&self.first().path));
        }
        Ok(self.read()?.data.into_f64().index_axis_move(Axis(1), 0))
    }

    /// Returns the distinct names of the features; `None` if the files have none.
    pub fn names(&self) -> Option<&[String]> {
        self.first().projection.names.as_deref()
    }

    /// Returns the names of columns that are left out because the model lacks them.
    pub fn left_out(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.parts.iter().flat_map(|part| &part.projection.left_out) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// Returns remarks on how the first file is read: an index of the rows that is left out, lines that end with a
    /// separator, columns that the model lacks.
    pub fn remarks(&self) -> Vec<String> {
        let first = self.first();
        let index = first.projection.index.as_deref().map(short).map(|name| {
            format!("`{name}` is left out: it is an index of the rows, as pandas writes it; --columns names it if it is a feature")
        });
        let text = match &first.content {
            Content::Csv(csv, _) => csv.remarks(),
            _ => &[],
        };
        let left_out = self.left_out();
        let others = (!left_out.is_empty()).then(|| {
            let names = list(left_out.into_iter().map(short));
            format!("columns that the model does not have are left out: {names}")
        });
        index.into_iter().chain(text.iter().cloned()).chain(others).collect()
    }

    /// Returns the number of each feature among the columns of the first file, counted from 0.
    pub fn columns(&self) -> &[usize] {
        &self.first().projection.columns
    }

    /// Returns the paths of the files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().map(|part| part.path.as_path())
    }

    /// Returns D.
    pub fn n_features(&self) -> usize {
        self.first().projection.columns.len()
    }

    /// Returns N if the files state it. Text does not.
    pub fn n_rows(&self) -> Option<usize> {
        self.parts.iter().try_fold(0usize, |n, part| n.checked_add(part.n_rows()?))
    }

    /// Whether the table comes from standard input or a pipe, and can be read only once.
    pub fn is_read_once(&self) -> bool {
        self.parts.iter().any(Part::is_read_once)
    }

    /// Reads all rows. The values are not checked: [`Data::samples`] does that.
    ///
    /// # Errors
    /// If a file cannot be read, has a field that is not a number, is cut short or changes while it is read; the error
    /// names the file and the place. If the values take more than half of the machine's memory.
    pub fn read(&self) -> Result<Contents> {
        let memory = memory::half();
        self.read_within(memory, &mut |_| {})?.ok_or_else(|| {
            let words = memory::in_words(memory.into());
            Problem::format(format!(
                "its numbers take more than {words}, half of this machine's memory; read fewer rows or columns"
            ))
            .at(&self.first().path)
        })
    }

    /// Like [`read`](Self::read); `None` if the values take more than `memory` bytes. `progress` is called repeatedly
    /// with the number of rows read. Errors: as [`read`](Self::read).
    pub fn read_within(&self, memory: u64, progress: &mut dyn FnMut(usize)) -> Result<Option<Contents>> {
        let d = self.n_features();
        let numbers = self.n_rows().map(|n| n.saturating_mul(d));
        if numbers.is_some_and(|numbers| numbers as u64 > memory / self.dtype.size()) {
            return Ok(None);
        }
        if let [part @ Part { content: Content::Npy(npy), all_columns: true, projection, .. }] = &self.parts[..]
            && projection.id.is_none()
        {
            let data = npy.data(0..npy.shape()[0]).map_err(|problem| problem.at(&part.path))?;
            let part_rows = vec![data.dim().0];
            return Ok(Some(Contents { data: data.with_missing(&self.na_values), ids: None, part_rows }));
        }
        let mut block = Block::new(self.dtype, &self.na_values);
        let most: u64 = self.parts.iter().map(Part::plausible_numbers).sum();
        let first = |problem: Problem| problem.at(&self.first().path);
        block.reserve(numbers.unwrap_or(0).min(usize::try_from(most).unwrap_or(usize::MAX))).map_err(first)?;
        let mut part_rows: Vec<usize> = Vec::with_capacity(self.parts.len());
        for (number, part) in self.parts.iter().enumerate() {
            let mut read = || {
                let mut cursor = part.cursor(number, 0)?;
                while part.read(&mut cursor, (STEP_NUMBERS / d.max(1)).max(1), &mut block)? > 0 {
                    Interrupt::current().check()?;
                    if block.n_bytes() > memory {
                        return Ok(None);
                    }
                    block.grow(STEP_NUMBERS)?;
                    progress(part_rows.iter().sum::<usize>() + cursor.row);
                }
                match part.n_rows() {
                    Some(n) if n != cursor.row => {
                        Err(damaged(format_args!("it has {} rows, but claims {n}", cursor.row)))
                    }
                    _ => Ok(Some(cursor.row)),
                }
            };
            match read().map_err(|problem: Problem| problem.at(&part.path))? {
                Some(rows) => part_rows.push(rows),
                None => return Ok(None),
            }
        }
        let (data, ids) = block.finish(d);
        Ok(Some(Contents { data, ids, part_rows }))
    }

    /// Returns the table as rows to be read in parts. Text is read once to count its rows; `progress` is called with
    /// the number counted. Errors: as [`read`](Self::read); also for standard input.
    pub fn into_file(self, progress: &mut dyn FnMut(usize)) -> Result<DataFile> {
        let mut starts = vec![0usize];
        for (number, part) in self.parts.iter().enumerate() {
            let before = starts[number];
            let rows = part.count(number, &mut |rows| progress(before + rows));
            starts.push(before + rows.map_err(|problem| problem.at(&part.path))?);
        }
        Ok(DataFile { table: self, starts, features: Mutex::default(), ids: Mutex::default() })
    }

    fn first(&self) -> &Part {
        // `expand` returns at least one path.
        &self.parts[0]
    }
}

/// A data set (N, D) that stays in its files and is read some rows at a time, so that it may be larger than memory.
///
/// The rows after those read last are found at once; going back in text means reading it from its beginning. Every read
/// compares the sizes and times of change of the files with those at opening, and fails with [`Problem::Changed`] if
/// they differ.
pub struct DataFile {
    table: Table,
    /// The first row of each part, and then N.
    starts: Vec<usize>,
    features: Mutex<Option<Cursor>>,
    ids: Mutex<Option<Cursor>>,
}

impl fmt::Debug for DataFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataFile").field("table", &self.table).field("starts", &self.starts).finish_non_exhaustive()
    }
}

impl DataFile {
    /// Opens a file of any format, all columns of which are features. Errors: as [`Table::open`] and
    /// [`Table::into_file`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Table::open(&[path], &ColumnSelection::default())?.into_file(&mut |_| {})
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Returns (N, D).
    pub fn dim(&self) -> (usize, usize) {
        (self.starts[self.starts.len() - 1], self.table.n_features())
    }

    /// Returns the name of the element type.
    pub fn dtype(&self) -> &'static str {
        self.table.dtype.name()
    }

    /// Returns the size of the values in bytes.
    pub fn n_bytes(&self) -> u64 {
        let (n, d) = self.dim();
        (n as u64).saturating_mul(d as u64).saturating_mul(self.table.dtype.size())
    }

    /// Returns the number of rows of each file.
    pub fn part_rows(&self) -> Vec<usize> {
        self.starts.windows(2).map(|ends| ends[1] - ends[0]).collect()
    }

    /// Reads some of the samples. The values are not checked: [`Data::samples`] does that.
    ///
    /// # Errors
    /// [`Problem::Changed`]; errors of the system; a field of text that is not a number.
    ///
    /// # Panics
    /// If there are fewer rows.
    pub fn rows(&self, rows: Range<usize>) -> Result<Data> {
        self.check(&rows);
        if let [part @ Part { content: Content::Npy(npy), all_columns: true, .. }] = &self.table.parts[..] {
            let data = npy.data(rows).map_err(|problem| problem.at(&part.path))?;
            return Ok(data.with_missing(&self.table.na_values));
        }
        let block = self.block(&self.features, rows, |projection| Projection { id: None, ..projection.clone() })?;
        Ok(block.finish(self.table.n_features()).0)
    }

    /// Reads the column that identifies the rows; `None` if none was named. Unless all files have integers, all become
    /// texts. Errors and panics: as [`rows`](Self::rows).
    pub fn ids(&self, rows: Range<usize>) -> Result<Option<Ids>> {
        self.check(&rows);
        if self.table.first().projection.id.is_none() {
            return Ok(None);
        }
        let block =
            self.block(&self.ids, rows, |projection| Projection { columns: Vec::new(), ..projection.clone() })?;
        let ids = block.finish(0).1;
        let are_integers = self.table.parts.iter().all(Part::has_integer_ids);
        Ok(ids.map(|ids| if are_integers { ids } else { Ids::Texts(ids.into_texts()) }))
    }

    /// Returns the file of a row, and the row's number in it.
    pub fn place(&self, row: usize) -> (&Path, usize) {
        let part = self.part_of(row);
        (&self.table.parts[part].path, row - self.starts[part])
    }

    /// Returns the error to report if values that were usable at an earlier read no longer are: [`Problem::Changed`].
    pub fn changed(&self, row: usize) -> Error {
        Problem::Changed.at(self.place(row).0)
    }

    fn check(&self, rows: &Range<usize>) {
        let n = self.dim().0;
        assert!(rows.start <= rows.end && rows.end <= n, "rows {rows:?} of {n}");
    }

    fn part_of(&self, row: usize) -> usize {
        self.starts.partition_point(|&start| start <= row).clamp(1, self.table.parts.len()) - 1
    }

    /// Reads rows from a cursor, which then points at the next rows.
    fn block(
        &self,
        cursor: &Mutex<Option<Cursor>>,
        rows: Range<usize>,
        project: impl Fn(&Projection) -> Projection,
    ) -> Result<Block> {
        let mut place = cursor.lock().unwrap_or_else(PoisonError::into_inner);
        let mut block = Block::new(self.table.dtype, &self.table.na_values);
        let mut next = rows.start;
        while next < rows.end {
            let number = self.part_of(next);
            let (part, row) = (&self.table.parts[number], next - self.starts[number]);
            let left = self.starts[number + 1].min(rows.end) - next;
            let mut read = || {
                let near = place.take().filter(|cursor| cursor.part == number && cursor.row <= row);
                let projection = project(&part.projection);
                let mut cursor = match near {
                    Some(cursor) => cursor,
                    None => part.cursor_of(&projection, number, row)?,
                };
                part.skip(&projection, &mut cursor, row)?;
                block.reserve(left.saturating_mul(projection.columns.len()))?;
                let end = row + left;
                while cursor.row < end {
                    Interrupt::current().check()?;
                    let step = (end - cursor.row).min((STEP_NUMBERS / projection.columns.len().max(1)).max(1));
                    if part.read_of(&projection, &mut cursor, step, &mut block)? == 0 {
                        return Err(match &part.content {
                            // The rows of other files were counted.
                            #[cfg(feature = "parquet")]
                            Content::Grouped(file) => {
                                damaged(format_args!("it has {} rows, but claims {}", cursor.row, file.n_rows()))
                            }
                            _ => Problem::Changed,
                        });
                    }
                }
                *place = Some(cursor);
                Ok(())
            };
            read().map_err(|problem| problem.at(&part.path))?;
            next += left;
        }
        Ok(block)
    }
}
