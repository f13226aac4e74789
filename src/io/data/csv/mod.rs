//! Numbers from text with separators: CSV, TSV and similar formats.
mod beginning;
mod dialect;
mod records;
mod rows;

use super::columns::{ColumnSelection, Field, Kind, Projection};
use super::decimal::text;
use super::file_stamp::FileStamp;
use super::header::{self, FirstLine};
use super::stream::{self, Stream};
use crate::io::Problem;
use beginning::{
    Beginning, about_header, check_decimals, check_first_rows, check_last_rows, check_second_header, count_columns,
    end_empty, find_characters, has_header, has_no_choice, kinds, named_by, undivided,
};
use csv::ByteRecord;
use dialect::Layout;
use records::{MAX_ROW, first_rows, line_at, reader};
pub(super) use rows::CsvRows;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A table of text whose beginning was read.
#[derive(Debug)]
pub(super) struct Csv {
    path: PathBuf,
    layout: Layout,
    names: Vec<Option<String>>,
    /// The kind of each column, judged by the first rows.
    kinds: Vec<Kind>,
    /// Whether each column has missing values in the first rows.
    have_missing: Vec<bool>,
    /// Whether only the first column has no name: an index of the rows.
    has_index: bool,
    remarks: Vec<String>,
    /// Advice about a table that seems to be a single column of texts.
    undivided: Option<String>,
    /// The last line to read, counted from 1.
    last_line: Option<usize>,
    /// The stamp of the file when its beginning was read.
    stamp: Option<FileStamp>,
    max_row: u64,
}

impl Csv {
    /// Reads the beginning of a stream and finds there the notation that the selection leaves open. The rows are read
    /// from the path again, unless the returned stream is passed to [`rows_of`](Self::rows_of). `first` are the columns
    /// of the first file, if this is a later one: a first line with their names is a header too.
    ///
    /// Lines at the beginning that begin with `#` are comments. The last of them is the header if it has as many names
    /// as the line after it has numbers. If all lines end with a separator, the field after it is not read. If a header
    /// has one name fewer than there are columns, the first column is unnamed: an index of the rows.
    pub fn open(
        path: &Path,
        stream: Stream,
        selection: &ColumnSelection,
        first: Option<&[Field]>,
    ) -> Result<(Self, Stream), Problem> {
        Self::open_within(path, stream, selection, first, MAX_ROW)
    }

    /// Like [`open`](Self::open), with at most `max_row` bytes in a row.
    fn open_within(
        path: &Path,
        stream: Stream,
        selection: &ColumnSelection,
        first: Option<&[Field]>,
        max_row: u64,
    ) -> Result<(Self, Stream), Problem> {
        let mut stream = stream.into_text()?.until_line(selection.last_line)?;
        let (skip, comment, (separator, spelling)) = find_characters(&mut stream, selection, max_row)?;
        let (head, whole) = (&stream.head[skip..], stream.whole);
        let mut rows = first_rows(head, whole, separator, max_row)?;
        let is_latin = rows.iter().any(|row| row.iter().any(|field| std::str::from_utf8(field).is_err()));
        let first_line = header::first_line(&rows, &spelling);
        let header = has_header(&rows, &first_line, selection.header, first);
        let mut names = match rows.first() {
            Some(_) if header => Some(rows.remove(0)),
            Some(row) => named_by(&comment, separator, row.len())
                .filter(|names| header::first_line(std::slice::from_ref(names), &spelling) == FirstLine::Names),
            None => None,
        };
        let line = |row: &ByteRecord| {
            let byte = row.position().map_or(0, csv::Position::byte);
            line_at(stream.head.iter().copied(), (skip as u64) + byte)
        };
        if separator == b',' && selection.decimal.is_none() && names.as_ref().is_some_and(|names| names.len() == 1) {
            check_decimals(&rows, head, line)?;
        }
        let ends_empty = |width| end_empty(head, whole, separator, header, width);
        let (columns, trailing) = count_columns(&mut names, &rows, header, ends_empty)?;
        let has_index = columns > 1
            && names.as_ref().is_some_and(|names| {
                names.iter().take(columns).enumerate().all(|(column, name)| name.is_empty() == (column == 0))
            });
        if !trailing {
            let above = names.as_ref().filter(|_| header);
            let table =
                Beginning { header: above, rows: &rows, spelling: &spelling, advises: has_no_choice(selection) };
            check_first_rows(table, line)?;
            if whole {
                check_last_rows(table, columns, line)?;
            }
        }
        let (kinds, have_missing) = kinds(&rows, columns, &spelling, line);
        check_second_header(&rows, &kinds, &spelling, line)?;
        let skipped_lines = stream.head[..skip].iter().filter(|&&byte| byte == b'\n').count() as u64;
        let undivided = match &kinds[..] {
            [Kind::Other(what)] => undivided(head, whole, skipped_lines as usize)
                .map(|advice| format!("all of it is one column of {what}; {advice}")),
            _ => None,
        };
        let mut remarks = Vec::new();
        if selection.header.is_none() {
            remarks.extend(about_header(&first_line, names.as_ref(), &rows, header, &spelling));
        }
        if is_latin {
            remarks.push("its letters are not in UTF-8, and were read as Windows-1252 (Latin-1)".into());
        }
        if trailing {
            remarks.push(
                "the lines end with a separator; the empty column behind it is left out (a header with a name for it \
                 keeps it)"
                    .into(),
            );
        }
        let layout = Layout { separator, spelling, skip: skip as u64, skipped_lines, header, trailing };
        let name = |(column, field): (usize, &[u8])| match text(field) {
            name if name.is_empty() => format!("column {column}"),
            name => name,
        };
        let names = match &names {
            Some(names) => names.iter().take(columns).enumerate().map(|field| Some(name(field))).collect(),
            None => vec![None; columns],
        };
        let stamp = stream.stamp.value();
        let (path, last_line) = (path.into(), selection.last_line);
        let csv =
            Self { path, layout, names, kinds, have_missing, has_index, remarks, undivided, last_line, stamp, max_row };
        Ok((csv, stream))
    }

    pub fn fields(&self) -> Vec<Field> {
        let field = |(column, (name, kind)): (usize, (&Option<String>, &Kind))| Field {
            name: name.clone(),
            kind: kind.clone(),
            is_index: self.has_index && column == 0,
            has_missing: self.have_missing[column],
        };
        self.names.iter().zip(&self.kinds).enumerate().map(field).collect()
    }

    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    pub fn undivided(&self) -> Option<&str> {
        self.undivided.as_deref()
    }

    /// Reads the rows from the first on.
    pub fn rows(&self, projection: &Projection) -> Result<CsvRows, Problem> {
        let stream = Stream::reopen(&self.path, self.stamp)?.into_text()?.until_line(self.last_line)?;
        self.rows_of(stream, projection)
    }

    /// Reads the rows of a stream of which only the head was read.
    pub fn rows_of(&self, stream: Stream, projection: &Projection) -> Result<CsvRows, Problem> {
        let (mut content, stamp) = stream.into_reader();
        std::io::copy(&mut content.by_ref().take(self.layout.skip), &mut std::io::sink()).map_err(stream::problem)?;
        Ok(CsvRows {
            reader: reader(content, self.layout.separator, self.max_row),
            record: ByteRecord::new(),
            layout: self.layout.clone(),
            names: self.names.clone(),
            projection: projection.clone(),
            header_is_next: self.layout.header,
            has_rows: false,
            stamp,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::array::Dtype;
    use super::super::block::Block;
    use super::*;

    /// Returns the number of values of a text, or its error, with rows of at most 200 KiB.
    fn read_within_200_kib(content: &[u8]) -> Result<usize, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let read = || {
            let (csv, _) = Csv::open_within(
                file.path(),
                Stream::open(file.path())?,
                &ColumnSelection::default(),
                None,
                200 << 10,
            )?;
            let fields = csv.fields();
            let projection = ColumnSelection::default().resolve(&fields)?;
            csv.rows(&projection)?.read(usize::MAX, &mut Block::new(Dtype::F64, &[]))
        };
        read().map_err(|problem: Problem| problem.to_string())
    }

    #[test]
    fn a_row_has_a_limit() {
        let (below, above) = ("1".repeat(199 << 10), "1".repeat(300 << 10));
        let wide = "1,".repeat(90 << 10);
        for good in [format!("{below}\n2\n"), format!("a\n1\n{below}\n"), format!("{wide}1\n{wide}2\n{wide}3")] {
            assert!(read_within_200_kib(good.as_bytes()).is_ok());
        }
        // Compression by a factor of a thousand makes such long lines cheap.
        let quoted = format!("\"a{}", "\n".repeat(1 << 20));
        let comment = format!("# {}", "x".repeat(1 << 20));
        for bad in [format!("{above}\n2\n"), format!("a\n1\n2\n{above}\n"), above, quoted, comment] {
            let error = read_within_200_kib(bad.as_bytes()).unwrap_err();
            assert!(error.contains("a line has more than 200 KiB"), "{error}");
        }
    }
}
