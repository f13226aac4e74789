//! Tables: one or several files of any format as one data set, of which some columns are read.
//!
//! A format has a file here (`Content`) that says which columns there are, and rows (`Rows`) that
//! are read in order from any row on. What is read into memory and what is read in chunks comes by
//! this way.
use super::array::{Data, Dtype, check_vector_shape, matrix_shape};
use super::block::{Block, Ids};
use super::columns::{Field, Kind, Projection, Selection, list, short};
use super::csv::{Csv, CsvRows};
use super::damaged::damaged;
use super::decimal::Decimal;
#[cfg(not(feature = "parquet"))]
use super::no_arrow::{ArrowStream, BatchRows, CONTINUATION, Grouped, arrow_ipc, parquet};
use super::npy::{self, Npy};
use super::stream::{Stream, is_standard_input};
#[cfg(feature = "parquet")]
use super::{
    arrow::{BatchRows, Grouped},
    arrow_ipc,
    arrow_stream::{ArrowStream, CONTINUATION},
    parquet,
};
use crate::io::{Error, Problem, Result, extension, half_of_the_memory};
use gmm_host::memory;
use ndarray::ArrayD;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Most numbers that are read before the limit of memory is looked at again.
const STEP_NUMBERS: usize = 1 << 20;
/// Rows that are counted before the progress is told.
const STEP_ROWS: usize = 1 << 16;

type Outcome<T> = std::result::Result<T, Problem>;

/// Tables in one or several files, opened and not yet read: N samples in rows, of which D columns
/// are features.
///
/// ```no_run
/// use gaussmix::io::{Selection, Table};
///
/// let selection = Selection { drop: vec!["species".into()], ..Selection::default() };
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

/// What was read of a [`Table`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Contents {
    /// The features.
    pub data: Data,
    /// The column that identifies the rows, if one was named.
    pub ids: Option<Ids>,
    /// The number of rows of each file.
    pub part_rows: Vec<usize>,
}

/// A file of a table.
struct Part {
    path: PathBuf,
    content: Content,
    projection: Projection,
    /// Whether the features are all columns in the order of the file.
    all_columns: bool,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("path", &self.path).field("projection", &self.projection).finish_non_exhaustive()
    }
}

/// An open file.
enum Content {
    Npy(Npy),
    /// An array that was read from a stream.
    Memory(Data),
    /// A file of Parquet or Arrow IPC.
    Grouped(Grouped),
    ArrowStream(ArrowStream),
    /// Text. Of standard input, which can be read only once, the stream is held until the rows are
    /// read.
    Csv(Csv, Mutex<Option<Stream>>),
}

/// The rows of a file from some row on.
enum Rows {
    /// They stand at known places.
    Direct,
    Batches(BatchRows),
    Csv(Box<CsvRows>),
}

/// The row of a part that is read next.
struct Cursor {
    part: usize,
    row: usize,
    rows: Rows,
}

impl Table {
    /// Opens files, and finds the columns. A folder stands for the files in it and in its
    /// subfolders whose names end as data files do (other than `.txt`, `.data`, `.dat`, `.tab` and `.asc`), in the order of their
    /// names. What begins with a point or an underscore is passed over. The columns of several
    /// files are matched by their names.
    ///
    /// # Errors
    /// If a file cannot be opened or is no table, if a column is missing or is no number; the error
    /// names the file and the column.
    pub fn open<P: AsRef<Path>>(paths: &[P], selection: &Selection) -> Result<Self> {
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

    /// The names of the features, which are distinct; `None` where the files have none.
    pub fn names(&self) -> Option<&[String]> {
        self.first().projection.names.as_deref()
    }

    /// The names of columns that are not used because the model does not have them.
    pub fn left_out(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.parts.iter().flat_map(|part| &part.projection.left_out) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// The names of the features, the first of them if there are many, for an error.
    pub fn names_in_words(&self) -> String {
        list(self.names().unwrap_or_default().iter().map(|name| short(name)))
    }

    /// What a user should know of how the first file is read: an index of the rows that is left
    /// out, lines that end with a separator, columns that the model does not have.
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

    /// The number that each feature has among the columns of the first file, counted from 0.
    pub fn columns(&self) -> &[usize] {
        &self.first().projection.columns
    }

    /// The files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().map(|part| part.path.as_path())
    }

    /// D.
    pub fn n_features(&self) -> usize {
        self.first().projection.columns.len()
    }

    /// N, if the files say it: text has to be read for that.
    pub fn n_rows(&self) -> Option<usize> {
        self.parts.iter().try_fold(0usize, |n, part| n.checked_add(part.n_rows()?))
    }

    /// Whether it comes from standard input or a pipe, and can therefore be read only once.
    pub fn is_read_once(&self) -> bool {
        self.parts.iter().any(Part::is_read_once)
    }

    /// Reads all rows. The values are not checked: [`Data::samples`] does.
    ///
    /// # Errors
    /// If a file cannot be read, has a field that is no number, is cut short or changes while it is
    /// read; the error names the file and the place. If the values take more than half of the
    /// machine's memory.
    pub fn read(&self) -> Result<Contents> {
        let memory = half_of_the_memory();
        self.read_within(memory, &mut |_| {})?.ok_or_else(|| {
            let words = memory::in_words(memory.into());
            Problem::format(format!(
                "its numbers take more than {words}, half of this machine's memory; read fewer rows or columns"
            ))
            .at(&self.first().path)
        })
    }

    /// As [`read`](Self::read); `None` if the values take more than `memory` bytes. `progress` is
    /// told how many rows were read, again and again.
    ///
    /// # Errors
    /// As [`read`](Self::read).
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
        let mut block = Block::new(self.dtype);
        let most: u64 = self.parts.iter().map(Part::plausible_numbers).sum();
        let first = |problem: Problem| problem.at(&self.first().path);
        block.reserve(numbers.unwrap_or(0).min(usize::try_from(most).unwrap_or(usize::MAX))).map_err(first)?;
        let mut part_rows: Vec<usize> = Vec::with_capacity(self.parts.len());
        for (number, part) in self.parts.iter().enumerate() {
            let mut read = || {
                let mut cursor = part.cursor(number, 0)?;
                while part.read(&mut cursor, (STEP_NUMBERS / d.max(1)).max(1), &mut block)? > 0 {
                    if block.n_bytes() > memory {
                        return Ok(None);
                    }
                    block.grow(STEP_NUMBERS)?;
                    progress(part_rows.iter().sum::<usize>() + cursor.row);
                }
                match part.n_rows() {
                    Some(n) if n != cursor.row => {
                        Err(damaged(format_args!("it has {} rows, and claims {n}", cursor.row)))
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
        Ok(Some(Contents { data: data.with_missing(&self.na_values), ids, part_rows }))
    }

    /// The table as rows of which some at a time are read. Text is read once to count its rows;
    /// `progress` is told how many were counted.
    ///
    /// # Errors
    /// As [`read`](Self::read); also for standard input.
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
        // `expand` gives at least one path.
        &self.parts[0]
    }
}

/// A data set (N, D) that stays in its files and of which some rows at a time are read, so that it
/// may be larger than memory.
///
/// Rows that follow those that were read last are found at once; to go back in text means to read
/// it from its beginning. Every read compares the sizes of the files and the times of their last
/// changes with those when they were opened, and fails with [`Problem::Changed`] if they differ.
pub struct DataFile {
    table: Table,
    /// The first row of each part, and N at the end.
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
    /// Opens a file of any format, all columns of which are features. Errors: as [`Table::open`]
    /// and [`Table::into_file`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Table::open(&[path], &Selection::default())?.into_file(&mut |_| {})
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// (N, D).
    pub fn dim(&self) -> (usize, usize) {
        (self.starts[self.starts.len() - 1], self.table.n_features())
    }

    /// Name of the element type.
    pub fn dtype(&self) -> &'static str {
        self.table.dtype.name()
    }

    /// Size of the values in bytes.
    pub fn n_bytes(&self) -> u64 {
        let (n, d) = self.dim();
        (n as u64).saturating_mul(d as u64).saturating_mul(self.table.dtype.size())
    }

    /// The number of rows of each file.
    pub fn part_rows(&self) -> Vec<usize> {
        self.starts.windows(2).map(|ends| ends[1] - ends[0]).collect()
    }

    /// Reads some of the samples. The values are not checked: [`Data::samples`] does.
    ///
    /// # Errors
    /// [`Problem::Changed`]; what the system reports; a field of text that is no number.
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
        Ok(block.finish(self.table.n_features()).0.with_missing(&self.table.na_values))
    }

    /// Reads the column that identifies the rows; `None` if none was named. Errors and panics: as
    /// [`rows`](Self::rows).
    pub fn ids(&self, rows: Range<usize>) -> Result<Option<Ids>> {
        self.check(&rows);
        if self.table.first().projection.id.is_none() {
            return Ok(None);
        }
        let block =
            self.block(&self.ids, rows, |projection| Projection { columns: Vec::new(), ..projection.clone() })?;
        Ok(block.finish(0).1)
    }

    /// The file in which a row stands, and its number there.
    pub fn place(&self, row: usize) -> (&Path, usize) {
        let part = self.part_of(row);
        (&self.table.parts[part].path, row - self.starts[part])
    }

    /// The error to report when values that were usable at an earlier read are not any more:
    /// [`Problem::Changed`].
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

    /// Reads rows from a cursor, which stays where the next rows are.
    fn block(
        &self,
        cursor: &Mutex<Option<Cursor>>,
        rows: Range<usize>,
        project: impl Fn(&Projection) -> Projection,
    ) -> Result<Block> {
        let mut place = cursor.lock().unwrap_or_else(PoisonError::into_inner);
        let mut block = Block::new(self.table.dtype);
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
                    if part.read_of(&projection, &mut cursor, end - row, &mut block)? == 0 {
                        return Err(match &part.content {
                            // Its rows were not counted.
                            Content::Grouped(file) => {
                                damaged(format_args!("it has {} rows, and claims {}", cursor.row, file.n_rows()))
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

impl Part {
    /// Opens a file. Its columns are those of `first`, if there is a first file.
    fn open(path: &Path, selection: &Selection, first: Option<&Self>) -> Outcome<Self> {
        let first_fields = first.map(|first| first.content.fields());
        let content = Content::open(path, selection, first_fields.as_deref())?;
        let fields = content.fields();
        let wanted = first.and_then(|first| first.projection.names.clone());
        let projection = match (first, wanted) {
            (Some(_), Some(names)) => selection.resolve_as(&fields, &names)?,
            _ => selection.resolve(&fields)?,
        };
        if let Some(first) = first {
            let (got, expected) = (projection.columns.len(), first.projection.columns.len());
            if got != expected {
                return Err(Problem::format(format!("it has {got} columns where the first file has {expected}")));
            }
        }
        let all_columns = projection.columns.iter().copied().eq(0..fields.len());
        Ok(Self { path: path.into(), content, projection, all_columns })
    }

    /// Whether its rows come from standard input or a pipe. An array from there is in memory.
    fn is_read_once(&self) -> bool {
        matches!(self.content, Content::Csv(..) | Content::ArrowStream(_)) && !is_regular(&self.path)
    }

    /// The number of rows, if the file says it.
    fn n_rows(&self) -> Option<usize> {
        match &self.content {
            Content::Npy(npy) => Some(npy.shape()[0]),
            Content::Memory(data) => Some(data.dim().0),
            Content::Grouped(file) => Some(file.n_rows()),
            Content::Csv(..) | Content::ArrowStream(_) => None,
        }
    }

    /// Numbers for which memory may be taken before they are read: a file may claim any number of
    /// rows.
    fn plausible_numbers(&self) -> u64 {
        const NUMBERS_PER_BYTE: u64 = 8;
        match &self.content {
            Content::Npy(npy) => npy.shape().iter().product::<usize>() as u64,
            Content::Memory(data) => data.n_bytes(),
            Content::Grouped(file) => NUMBERS_PER_BYTE * file.size(),
            Content::Csv(..) | Content::ArrowStream(_) => 0,
        }
    }

    /// The number of rows, which are read if the file does not say it.
    fn count(&self, number: usize, progress: &mut dyn FnMut(usize)) -> Outcome<usize> {
        if let Some(n) = self.n_rows() {
            return Ok(n);
        }
        if self.is_read_once() {
            return Err(Problem::format("a stream is read once, and cannot be read in parts; write it to a file"));
        }
        let mut cursor = self.cursor(number, 0)?;
        loop {
            let before = cursor.row;
            self.skip(&self.projection, &mut cursor, before + STEP_ROWS)?;
            if cursor.row == before {
                return Ok(before);
            }
            progress(cursor.row);
        }
    }

    fn cursor(&self, number: usize, row: usize) -> Outcome<Cursor> {
        self.cursor_of(&self.projection, number, row)
    }

    /// The rows from `row` on, or from the beginning if they have to be passed over.
    fn cursor_of(&self, projection: &Projection, number: usize, row: usize) -> Outcome<Cursor> {
        let (rows, row) = match &self.content {
            Content::Npy(_) | Content::Memory(_) => (Rows::Direct, row),
            Content::Grouped(file) => (Rows::Batches(file.rows(projection, row)?), row),
            Content::ArrowStream(stream) => (Rows::Batches(stream.rows(projection)?), 0),
            Content::Csv(csv, stream) => {
                let stream = stream.lock().unwrap_or_else(PoisonError::into_inner).take();
                let rows = match stream {
                    Some(stream) => csv.rows_of(stream, projection)?,
                    None => csv.rows(projection)?,
                };
                (Rows::Csv(Box::new(rows)), 0)
            }
        };
        Ok(Cursor { part: number, row, rows })
    }

    /// Goes forward to a row, or to the end.
    fn skip(&self, projection: &Projection, cursor: &mut Cursor, row: usize) -> Outcome<()> {
        let left = row.saturating_sub(cursor.row);
        match (&mut cursor.rows, &self.content) {
            _ if left == 0 => {}
            (Rows::Direct, _) => cursor.row = row,
            (Rows::Csv(rows), _) => cursor.row += rows.skip(left)?,
            (Rows::Batches(rows), Content::ArrowStream(_)) => cursor.row += rows.skip(left)?,
            (Rows::Batches(_), _) => *cursor = self.cursor_of(projection, cursor.part, row)?,
        }
        Ok(())
    }

    fn read(&self, cursor: &mut Cursor, limit: usize, block: &mut Block) -> Outcome<usize> {
        self.read_of(&self.projection, cursor, limit, block)
    }

    /// Appends the next rows to a block, as many as there are, but at most `limit`. Gives their
    /// number.
    fn read_of(&self, projection: &Projection, cursor: &mut Cursor, limit: usize, block: &mut Block) -> Outcome<usize> {
        let count = match (&mut cursor.rows, &self.content) {
            (Rows::Csv(rows), _) => rows.read(limit, block)?,
            (Rows::Batches(rows), _) => rows.read(limit, block)?,
            (Rows::Direct, Content::Npy(npy)) => {
                let end = cursor.row.saturating_add(limit).min(npy.shape()[0]);
                block.append(&npy.data(cursor.row..end)?, projection)
            }
            (Rows::Direct, Content::Memory(data)) => {
                let end = cursor.row.saturating_add(limit).min(data.dim().0);
                block.append(&data.rows(cursor.row..end), projection)
            }
            (Rows::Direct, _) => 0,
        };
        cursor.row += count;
        Ok(count)
    }
}

impl Content {
    fn open(path: &Path, selection: &Selection, first: Option<&[Field]>) -> Outcome<Self> {
        let regular = is_regular(path);
        match Format::of(path)? {
            Format::Parquet => parquet::open(path).map(Self::Grouped),
            Format::ArrowIpc if regular && !ArrowStream::is_at(path)? => arrow_ipc::open(path).map(Self::Grouped),
            Format::Npy if regular && extension(path) == "npy" => {
                let npy = Npy::open(path)?;
                matrix_shape(npy.shape())?;
                Ok(Self::Npy(npy))
            }
            format => {
                let stream = Stream::open(path)?;
                let begins_with = |magic: &[u8]| stream.head.starts_with(magic);
                match format {
                    Format::Npy => Self::array(stream),
                    Format::Any if begins_with(b"\x93NUMPY") => Self::array(stream),
                    Format::Any | Format::ArrowIpc if begins_with(b"PAR1") || begins_with(b"ARROW1") => {
                        Err(Problem::format(
                            "Parquet and Arrow files (other than Arrow IPC streams) cannot be read as a stream; write it to a file, \
                             and name that",
                        ))
                    }
                    Format::ArrowIpc | Format::ArrowStream => {
                        ArrowStream::open(path, stream, regular).map(Self::ArrowStream)
                    }
                    Format::Any if begins_with(&CONTINUATION) => {
                        ArrowStream::open(path, stream, regular).map(Self::ArrowStream)
                    }
                    _ => {
                        let (csv, stream) = Csv::open(path, stream, selection, first)?;
                        Ok(Self::Csv(csv, Mutex::new((!regular).then_some(stream))))
                    }
                }
            }
        }
    }

    /// Reads an array from a stream.
    fn array(stream: Stream) -> Outcome<Self> {
        let (mut content, stamp) = stream.into_reader();
        let data = npy::read_stream(content.as_mut());
        stamp.check()?;
        data.map(Self::Memory)
    }

    fn fields(&self) -> Vec<Field> {
        let numbers = |columns, dtype| {
            vec![Field { name: None, kind: Kind::Number(dtype), is_index: false, has_missing: false }; columns]
        };
        match self {
            Self::Npy(npy) => numbers(npy.shape()[1], npy.dtype()),
            Self::Memory(data @ Data::F32(_)) => numbers(data.dim().1, Dtype::F32),
            Self::Memory(data @ Data::F64(_)) => numbers(data.dim().1, Dtype::F64),
            Self::Grouped(file) => file.fields(),
            Self::ArrowStream(stream) => stream.fields(),
            Self::Csv(csv, _) => csv.fields(),
        }
    }
}

/// Reads an array of one dimension, or of one column, if the file is an array that can be read in
/// place.
pub(super) fn vector_from_npy(path: &Path) -> Outcome<Option<ArrayD<f64>>> {
    if extension(path) != "npy" {
        return Ok(None);
    }
    let npy = Npy::open(path)?;
    check_vector_shape(npy.shape())?;
    Ok(Some(match npy.dtype() {
        Dtype::F32 => npy.read::<f32>()?.mapv(f64::from),
        Dtype::F64 => npy.read::<f64>()?,
    }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Npy,
    Text,
    Parquet,
    /// A file, or a stream, which is known by its first bytes.
    ArrowIpc,
    ArrowStream,
    /// A stream, which is known by its first bytes.
    Any,
}

/// What the names of texts end in that may be tables, or not.
const TEXTS: [&str; 5] = ["txt", "data", "dat", "tab", "asc"];
/// What the names of data files end in, for errors.
const ENDINGS: &str =
    ".npy, .csv, .tsv, .tab, .txt, .data, .dat, .asc, .arrows (also with .gz or .zst), .parquet, .arrow or .feather";

impl Format {
    /// The format that a name stands for.
    fn by_name(path: &Path) -> Option<Self> {
        let whole = extension(path);
        let compressed = matches!(whole.as_str(), "gz" | "zst");
        let inner = if compressed { extension(Path::new(path.file_stem()?)) } else { whole };
        match inner.as_str() {
            "npy" => Some(Self::Npy),
            "csv" | "tsv" => Some(Self::Text),
            ending if TEXTS.contains(&ending) => Some(Self::Text),
            "parquet" | "pq" if !compressed => Some(Self::Parquet),
            "arrow" | "feather" | "ipc" if !compressed => Some(Self::ArrowIpc),
            "arrows" => Some(Self::ArrowStream),
            _ => None,
        }
    }

    fn of(path: &Path) -> Outcome<Self> {
        let stream = is_standard_input(path) || path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir());
        match Self::by_name(path) {
            _ if is_standard_input(path) => Ok(Self::Any),
            Some(format) => Ok(format),
            None if stream => Ok(Self::Any),
            None => Err(path.metadata().err().map_or_else(
                || Problem::format(format!("the name of a data file must end in {ENDINGS}")),
                Problem::io("open it"),
            )),
        }
    }
}

/// Whether the path stands for a file, of which any part can be read at any time.
fn is_regular(path: &Path) -> bool {
    !is_standard_input(path) && path.is_file()
}

/// The files that paths stand for, where a folder stands for the data files in it and in its
/// subfolders.
fn expand<P: AsRef<Path>>(paths: &[P]) -> Result<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> = Vec::new();
    for path in paths.iter().map(AsRef::as_ref) {
        if is_standard_input(path) && all.iter().any(|other| is_standard_input(other)) {
            return Err(Problem::format("standard input can be read only once").at(path));
        }
        if !path.is_dir() {
            all.push(path.into());
            continue;
        }
        let before = all.len();
        add_folder(path, &mut all)?;
        if all.len() == before {
            return Err(Problem::format(format!("a folder without a file whose name ends in {ENDINGS}")).at(path));
        }
    }
    if all.is_empty() {
        return Err(Problem::format("no file is named").at(Path::new("")));
    }
    Ok(all)
}

/// Adds the data files of a folder and of its subfolders in the order of their names.
fn add_folder(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let problem = |e| Problem::io("read it")(e).at(folder);
    let mut entries =
        std::fs::read_dir(folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>).map_err(problem)?;
    entries.sort_unstable_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with(['.', '_']) {
            continue;
        }
        // A link to a folder is not followed, because it may lead back.
        if entry.file_type().map_err(problem)?.is_dir() {
            add_folder(&path, files)?;
        } else if Format::by_name(&path).is_some() && !TEXTS.contains(&&*extension(&path)) && path.is_file() {
            // A text in a folder of tables is a description, mostly.
            files.push(path);
        }
    }
    Ok(())
}
