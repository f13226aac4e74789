//! A file of a table. A format describes its columns (`Content`), and reads its rows in order from any row on (`Rows`).
use super::array::{Data, Dtype};
use super::block::Block;
use super::columns::{ColumnSelection, Field, Kind, Projection};
use super::csv::{Csv, CsvRows};
use super::files::{Format, is_regular};
use super::npy::{self, Npy};
use super::stream::{ARROW, Stream};
#[cfg(feature = "parquet")]
use super::{
    arrow::{BatchRows, Grouped, has_integers},
    arrow_ipc,
    arrow_stream::ArrowStream,
    parquet,
};
use crate::io::{Problem, extension};
use gmm_host::Interrupt;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

#[cfg(not(feature = "parquet"))]
const NO_ARROW: &str = "Parquet and Arrow files are not read, because the program was built without the feature `parquet` of the crate gaussmix; \
                        turn it on, or convert the file to .npy or .csv";

/// The number of rows counted between reports of progress.
const STEP_ROWS: usize = 1 << 16;

pub(super) type Outcome<T> = std::result::Result<T, Problem>;

pub(super) struct Part {
    pub path: PathBuf,
    pub content: Content,
    pub projection: Projection,
    /// Whether the features are all columns in the order of the file.
    pub all_columns: bool,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("path", &self.path).field("projection", &self.projection).finish_non_exhaustive()
    }
}

pub(super) enum Content {
    Npy(Npy),
    /// An array that was read from a stream.
    Memory(Data),
    #[cfg(feature = "parquet")]
    Grouped(Grouped),
    #[cfg(feature = "parquet")]
    ArrowStream(ArrowStream),
    /// Text. The stream of standard input, which can be read only once, is held until the rows are read.
    Csv(Box<Csv>, Mutex<Option<Stream>>),
}

/// The rows of a file from some row on.
enum Rows {
    /// The rows are at known positions.
    Direct,
    #[cfg(feature = "parquet")]
    Batches(BatchRows),
    Csv(Box<CsvRows>),
}

/// The next row of a part to read.
pub(super) struct Cursor {
    pub part: usize,
    pub row: usize,
    rows: Rows,
}

impl Part {
    /// Opens a file. Its columns are those of `first`, if there is a first file.
    pub fn open(path: &Path, selection: &ColumnSelection, first: Option<&Self>) -> Outcome<Self> {
        let first_fields = first.map(|first| first.content.fields());
        let content = Content::open(path, selection, first_fields.as_deref())?;
        let fields = content.fields();
        let wanted = first.and_then(|first| first.projection.names.clone());
        let projection = match (first, wanted) {
            (Some(_), Some(names)) => selection.resolve_as(&fields, &names),
            _ => selection.resolve(&fields),
        };
        let projection = projection.map_err(|problem| content.explained(problem))?;
        if let Some(first) = first {
            let (got, expected) = (projection.columns.len(), first.projection.columns.len());
            if got != expected {
                return Err(Problem::format(format!("it has {got} columns, the first file has {expected}")));
            }
        }
        let all_columns = projection.columns.iter().copied().eq(0..fields.len());
        Ok(Self { path: path.into(), content, projection, all_columns })
    }

    /// Whether its rows come from standard input or a pipe. An array from there is in memory.
    pub fn is_read_once(&self) -> bool {
        self.n_rows().is_none() && !is_regular(&self.path)
    }

    /// Returns the number of rows, if the file says it.
    pub fn n_rows(&self) -> Option<usize> {
        match &self.content {
            Content::Npy(npy) => Some(npy.shape()[0]),
            Content::Memory(data) => Some(data.dim().0),
            #[cfg(feature = "parquet")]
            Content::Grouped(file) => Some(file.n_rows()),
            _ => None,
        }
    }

    /// Returns the count of numbers for which memory may be taken before they are read: a file may claim any number of
    /// rows.
    pub fn plausible_numbers(&self) -> u64 {
        match &self.content {
            Content::Npy(npy) => npy.shape().iter().product::<usize>() as u64,
            Content::Memory(data) => data.n_bytes(),
            // Eight numbers for each byte.
            #[cfg(feature = "parquet")]
            Content::Grouped(file) => 8 * file.size(),
            _ => 0,
        }
    }

    /// Returns the number of rows, which are read if the file does not say it.
    pub fn count(&self, number: usize, progress: &mut dyn FnMut(usize)) -> Outcome<usize> {
        if let Some(n) = self.n_rows() {
            return Ok(n);
        }
        if self.is_read_once() {
            return Err(Problem::format("a stream is read once, and cannot be read in parts; write it to a file"));
        }
        let mut cursor = self.cursor(number, 0)?;
        loop {
            Interrupt::current().check()?;
            let before = cursor.row;
            self.skip(&self.projection, &mut cursor, before + STEP_ROWS)?;
            if cursor.row == before {
                return Ok(before);
            }
            progress(cursor.row);
        }
    }

    /// Whether the column that identifies the rows yields integers.
    pub fn has_integer_ids(&self) -> bool {
        #[cfg(feature = "parquet")]
        if let (Content::Grouped(Grouped { schema, .. }) | Content::ArrowStream(ArrowStream { schema, .. }), Some(id)) =
            (&self.content, self.projection.id)
        {
            return has_integers(schema, id);
        }
        false
    }

    pub fn cursor(&self, number: usize, row: usize) -> Outcome<Cursor> {
        self.cursor_of(&self.projection, number, row)
    }

    /// Returns the rows from `row` on, or from the beginning if the earlier rows must be read.
    pub fn cursor_of(&self, projection: &Projection, number: usize, row: usize) -> Outcome<Cursor> {
        let (rows, row) = match &self.content {
            Content::Npy(_) | Content::Memory(_) => (Rows::Direct, row),
            #[cfg(feature = "parquet")]
            Content::Grouped(file) => (Rows::Batches(file.rows(projection, row)?), row),
            #[cfg(feature = "parquet")]
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

    /// Moves forward to a row, or to the end.
    pub fn skip(&self, projection: &Projection, cursor: &mut Cursor, row: usize) -> Outcome<()> {
        let left = row.saturating_sub(cursor.row);
        match (&mut cursor.rows, &self.content) {
            _ if left == 0 => {}
            (Rows::Direct, _) => *cursor = self.cursor_of(projection, cursor.part, row)?,
            (Rows::Csv(rows), _) => cursor.row += rows.skip(left)?,
            #[cfg(feature = "parquet")]
            (Rows::Batches(_), Content::Grouped(_)) => *cursor = self.cursor_of(projection, cursor.part, row)?,
            #[cfg(feature = "parquet")]
            (Rows::Batches(rows), _) => cursor.row += rows.skip(left)?,
        }
        Ok(())
    }

    pub fn read(&self, cursor: &mut Cursor, limit: usize, block: &mut Block) -> Outcome<usize> {
        self.read_of(&self.projection, cursor, limit, block)
    }

    /// Appends the next rows, at most `limit`, to a block and returns their number.
    pub fn read_of(
        &self,
        projection: &Projection,
        cursor: &mut Cursor,
        limit: usize,
        block: &mut Block,
    ) -> Outcome<usize> {
        let count = match (&mut cursor.rows, &self.content) {
            (Rows::Csv(rows), _) => rows.read(limit, block)?,
            #[cfg(feature = "parquet")]
            (Rows::Batches(rows), _) => rows.read(limit, block)?,
            (Rows::Direct, Content::Npy(npy)) => {
                let end = cursor.row.saturating_add(limit).min(npy.shape()[0]);
                block.append(&npy.data(cursor.row..end)?, projection)?
            }
            (Rows::Direct, Content::Memory(data)) => {
                let end = cursor.row.saturating_add(limit).min(data.dim().0);
                block.append(&data.rows(cursor.row..end), projection)?
            }
            (Rows::Direct, _) => 0,
        };
        cursor.row += count;
        Ok(count)
    }
}

impl Content {
    fn open(path: &Path, selection: &ColumnSelection, first: Option<&[Field]>) -> Outcome<Self> {
        let regular = is_regular(path);
        match Format::of(path)? {
            #[cfg(not(feature = "parquet"))]
            Format::Parquet | Format::ArrowIpc | Format::ArrowStream => Err(Problem::format(NO_ARROW)),
            #[cfg(feature = "parquet")]
            Format::Parquet => parquet::open(path).map(Self::Grouped),
            #[cfg(feature = "parquet")]
            Format::ArrowIpc if regular && !ArrowStream::is_at(path)? => arrow_ipc::open(path).map(Self::Grouped),
            Format::Npy if regular && extension(path) == "npy" => Npy::open(path, selection.is_vector).map(Self::Npy),
            format => {
                let stream = Stream::open(path)?;
                let begins_with = |magic: &[u8]| stream.head.starts_with(magic);
                match format {
                    Format::Npy => Self::array(stream, selection.is_vector),
                    Format::Any if begins_with(b"\x93NUMPY") => Self::array(stream, selection.is_vector),
                    Format::Any | Format::ArrowIpc if begins_with(b"PAR1") || begins_with(b"ARROW1") => {
                        Err(Problem::format(
                            "Parquet and Arrow files (other than Arrow IPC streams) cannot be read as a stream; write it to a file, \
                             and name that",
                        ))
                    }
                    #[cfg(not(feature = "parquet"))]
                    Format::Any if begins_with(&ARROW) => Err(Problem::format(NO_ARROW)),
                    #[cfg(feature = "parquet")]
                    Format::ArrowIpc | Format::ArrowStream | Format::Any
                        if format != Format::Any || begins_with(&ARROW) =>
                    {
                        ArrowStream::open(path, stream, regular).map(Self::ArrowStream)
                    }
                    _ => {
                        let (csv, stream) = Csv::open(path, stream, selection, first)?;
                        Ok(Self::Csv(Box::new(csv), Mutex::new((!regular).then_some(stream))))
                    }
                }
            }
        }
    }

    fn array(stream: Stream, is_vector: bool) -> Outcome<Self> {
        let (mut content, stamp) = stream.into_reader();
        let data = npy::read_stream(content.as_mut(), is_vector);
        stamp.check()?;
        data.map(Self::Memory)
    }

    /// Explains a problem with the columns, if nothing separates them.
    fn explained(&self, problem: Problem) -> Problem {
        match self {
            Self::Csv(csv, _) => csv.undivided().map_or(problem, Problem::format),
            _ => problem,
        }
    }

    fn fields(&self) -> Vec<Field> {
        let numbers = |columns, dtype| {
            vec![Field { name: None, kind: Kind::Number(dtype), is_index: false, has_missing: false }; columns]
        };
        match self {
            Self::Npy(npy) => numbers(npy.shape()[1], npy.dtype()),
            Self::Memory(data @ Data::F32(_)) => numbers(data.dim().1, Dtype::F32),
            Self::Memory(data @ Data::F64(_)) => numbers(data.dim().1, Dtype::F64),
            #[cfg(feature = "parquet")]
            Self::Grouped(file) => file.fields(),
            #[cfg(feature = "parquet")]
            Self::ArrowStream(stream) => stream.fields(),
            Self::Csv(csv, _) => csv.fields(),
        }
    }
}
