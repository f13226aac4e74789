//! Numbers from text with separators: CSV, TSV and their relatives.
use super::array::Dtype;
use super::block::Block;
use super::columns::{Field, Kind, MAX_LISTED, Projection, Selection, option_list, option_name, short};
use super::decimal::{Decimal, Spelling, text};
use super::file_stamp::FileStamp;
use super::header::{self, FirstLine};
use super::stream::{self, Stamp, Stream, TooLong};
use crate::io::Problem;
use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder, Trim};
use gmm_host::memory;
use std::collections::HashSet;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// The separators that are recognised, besides spaces. Of equally frequent ones the first counts.
const SEPARATORS: [u8; 4] = [b',', b'\t', b';', b'|'];
/// Most rows that are looked at to find how a text is written.
const FIRST_ROWS: usize = 1000;

/// Bytes that are read at a time.
const BUFFER: usize = 16 << 10;
/// Most bytes of a row. It is in memory as a whole, so that a text that has no second line must end
/// somewhere.
const MAX_ROW: u64 = 128 << 20;

/// Bytes of identifiers after which no further row is read at once.
const MAX_TEXT: u64 = 64 << 20;

/// A table of text, of which the beginning was read.
#[derive(Debug)]
pub(super) struct Csv {
    path: PathBuf,
    layout: Layout,
    /// Names, or `None` for each column.
    names: Vec<Option<String>>,
    /// What each column holds, by the first rows.
    kinds: Vec<Kind>,
    /// Whether a value of it is missing in the first rows.
    have_missing: Vec<bool>,
    /// Whether the first column has no name although the others have: an index of the rows.
    has_index: bool,
    /// What a reader should know of how the text is read.
    remarks: Vec<String>,
    /// What the file was when its beginning was read.
    stamp: Option<FileStamp>,
    /// Most bytes of a row.
    max_row: u64,
}

/// How rows are made of characters.
#[derive(Debug, Clone)]
struct Layout {
    separator: u8,
    spelling: Spelling,
    /// Bytes before the first row: those of comments.
    skip: u64,
    header: bool,
    /// Whether lines end with a separator, behind which nothing stands.
    trailing: bool,
}

impl Csv {
    /// Reads the beginning of a stream. The rows are read from the path again, unless the stream,
    /// which it gives back, is given to them. What the selection does not say of how the text is
    /// written is found in the beginning. `first` are the columns of the first file, if this is
    /// another: a first line with their names is a header too.
    ///
    /// Lines at the beginning that begin with `#` are comments. The last of them is the header if
    /// it has as many names as the line after it has numbers. Where all lines end with a separator,
    /// nothing is read behind it. A header with one name less than there are columns has none for the
    /// first, which is an index of the rows.
    pub fn open(
        path: &Path,
        stream: Stream,
        selection: &Selection,
        first: Option<&[Field]>,
    ) -> Result<(Self, Stream), Problem> {
        Self::open_within(path, stream, selection, first, MAX_ROW)
    }

    /// As [`open`](Self::open), with so many bytes for a row.
    fn open_within(
        path: &Path,
        stream: Stream,
        selection: &Selection,
        first: Option<&[Field]>,
        max_row: u64,
    ) -> Result<(Self, Stream), Problem> {
        let mut stream = stream.into_text()?;
        let (skip, comment, (separator, spelling)) = loop {
            let before = line_start(&stream.head, selection.skip_lines);
            let (skip, comment) = comments(&stream.head[before..]);
            let skip = before + skip;
            let content = &stream.head[skip..];
            let layout = characters(content, stream.whole, selection.decimal, &selection.na_values);
            if stream.whole || before < stream.head.len() && is_complete(content, layout.0, max_row)? {
                break (skip, comment.to_vec(), layout);
            }
            if stream.head.len() as u64 > 2 * max_row {
                return Err(Problem::format(too_long(max_row)));
            }
            stream.extend()?;
        };
        let mut rows = first_rows(&stream.head[skip..], stream.whole, separator, max_row)?;
        let is_latin = rows.iter().any(|row| row.iter().any(|field| std::str::from_utf8(field).is_err()));
        let first_line = header::first_line(&rows, &spelling);
        let has_first_names = |row: &ByteRecord| {
            let names = || first.into_iter().flatten().map(|field| field.name.as_deref());
            names().count() == row.len() && row.iter().zip(names()).all(|(field, name)| name == Some(&*text(field)))
        };
        let header = match (selection.header, &first_line) {
            (Some(header), _) => header && !rows.is_empty(),
            (None, FirstLine::Names) => true,
            (None, FirstLine::Numbers) if first.is_none() => true,
            _ => rows.first().is_some_and(has_first_names),
        };
        let mut names = match rows.first() {
            Some(_) if header => Some(rows.remove(0)),
            Some(row) => named_by(&comment, separator, row.len())
                .filter(|names| header::first_line(std::slice::from_ref(names), &spelling) == FirstLine::Names),
            None => None,
        };
        let mut columns = names.as_ref().or(rows.first()).map_or(0, ByteRecord::len);
        let width = rows.first().map_or(columns, ByteRecord::len);
        let ends_empty = || end_empty(&stream.head[skip..], stream.whole, separator, header, width);
        let is_named = |names: &ByteRecord| names.iter().next_back().is_some_and(|name| !name.is_empty());
        // Rows may end with the separator, or the header, or both.
        let mut trailing = false;
        match names.as_ref().is_some_and(is_named) {
            true if width == columns + 1 && width > 1 => {
                trailing = width > 2 && ends_empty()?;
                if let (Some(record), true, false) = (&mut names, header && are_labelled(&rows), trailing) {
                    *record = std::iter::once(&b""[..]).chain(record.iter()).collect();
                    columns = width;
                }
            }
            false
                if width > 1
                    && (rows.is_empty() || width == columns && ends_empty()? || header && width + 1 == columns) =>
            {
                (trailing, columns) = (true, columns - 1);
            }
            _ => {}
        }
        let has_index = columns > 1
            && names.as_ref().is_some_and(|names| {
                names.iter().take(columns).enumerate().all(|(column, name)| name.is_empty() == (column == 0))
            });
        let name = |(column, field): (usize, &[u8])| match text(field) {
            name if name.is_empty() => format!("column {column}"),
            name => name,
        };
        let line = |row: &ByteRecord| {
            let byte = row.position().map_or(0, csv::Position::byte);
            line_at(stream.head.iter().copied(), (skip as u64) + byte)
        };
        if !trailing {
            check_first_rows(names.as_ref().filter(|_| header), &rows, line)?;
        }
        let (kinds, have_missing) = kinds(&rows, columns, &spelling, line);
        check_second_header(&rows, &kinds, &spelling, line)?;
        let numbers = || {
            let first = names.as_ref().filter(|_| header).or(rows.first());
            let mut numbers = first.into_iter().flatten().filter(|field| spelling.decimal.number(field).is_some());
            let first = numbers.next().map_or_else(String::new, text);
            numbers.next_back().map_or(first.clone(), |last| format!("{first} to {}", text(last)))
        };
        let mut remarks = Vec::new();
        match first_line {
            FirstLine::Numbers if selection.header.is_none() && header => remarks.push(format!(
                "the first line, with the numbers {}, was taken as a header; --header no says that it is a sample",
                numbers()
            )),
            FirstLine::Doubtful if selection.header.is_none() && names.is_none() => remarks.push(format!(
                "the first line holds the numbers {} and was taken as a sample; --header yes says that it is a header",
                numbers()
            )),
            _ => {}
        }
        if is_latin {
            remarks.push("its letters are not in UTF-8, and were read as Windows-1252 (Latin-1)".into());
        }
        if trailing {
            remarks.push("the lines end with a separator; the empty column behind it is left out (a header with a name for it keeps it)".into());
        }
        let layout = Layout { separator, spelling, skip: skip as u64, header, trailing };
        let names = match &names {
            Some(names) => names.iter().take(columns).enumerate().map(|field| Some(name(field))).collect(),
            None => vec![None; columns],
        };
        let stamp = stream.stamp.value();
        Ok((Self { path: path.into(), layout, names, kinds, have_missing, has_index, remarks, stamp, max_row }, stream))
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

    /// What a reader should know of how the text is read.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// The rows, beginning with the first.
    pub fn rows(&self, projection: &Projection) -> Result<CsvRows, Problem> {
        let stream = Stream::reopen(&self.path, self.stamp)?.into_text()?;
        self.rows_of(stream, projection)
    }

    /// The rows of a stream, of which nothing was read but the head.
    pub fn rows_of(&self, stream: Stream, projection: &Projection) -> Result<CsvRows, Problem> {
        let (mut content, stamp) = stream.into_reader();
        std::io::copy(&mut content.by_ref().take(self.layout.skip), &mut std::io::sink()).map_err(stream::problem)?;
        Ok(CsvRows {
            path: self.path.clone(),
            reader: reader(content, self.layout.separator, self.max_row),
            record: ByteRecord::new(),
            layout: self.layout.clone(),
            names: self.names.clone(),
            projection: projection.clone(),
            header_is_next: self.layout.header,
            stamp,
        })
    }
}

/// Where a line begins, counted from 0.
fn line_start(head: &[u8], line: usize) -> usize {
    head.split_inclusive(|&byte| byte == b'\n').take(line).map(<[u8]>::len).sum()
}

/// Where the first line begins that is neither empty nor a comment, and the last comment before it.
fn comments(head: &[u8]) -> (usize, &[u8]) {
    let (mut at, mut comment, mut skip) = (0, &head[..0], 0);
    for line in head.split_inclusive(|&byte| byte == b'\n') {
        let text = line.trim_ascii();
        if !text.is_empty() && !text.starts_with(b"#") {
            break;
        }
        at += line.len();
        // Empty lines before a first row are left to the reader, which counts them.
        if !text.is_empty() {
            (comment, skip) = (text, at);
        }
    }
    (skip, comment)
}

/// The names in a comment, if there are so many.
fn named_by(comment: &[u8], separator: u8, count: usize) -> Option<ByteRecord> {
    let names = match comment.strip_prefix(b"#")? {
        blank if blank.first().is_some_and(u8::is_ascii_whitespace) => blank.trim_ascii_start(),
        // Where no blank follows, the character is a part of the first name.
        _ => comment,
    };
    let mut record = ByteRecord::new();
    let found = read_record(&mut reader(names, separator, MAX_ROW), &mut record, separator).ok()?;
    (found && count > 1 && record.len() == count).then_some(record)
}

/// Whether the beginning of a text has two whole rows: a header, perhaps, and a row of numbers.
fn is_complete(head: &[u8], separator: u8, max_row: u64) -> Result<bool, Problem> {
    if head.len() as u64 > max_row {
        // A row that is longer fails.
        return Ok(!first_rows(head, false, separator, max_row)?.is_empty());
    }
    let (mut reader, mut record) = (reader(head, separator, max_row), ByteRecord::new());
    for _ in 0..2 {
        if !read_record(&mut reader, &mut record, separator)? || reader.position().byte() >= head.len() as u64 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The first rows of the beginning of a text, without one that its end cuts.
fn first_rows(head: &[u8], whole: bool, separator: u8, max_row: u64) -> Result<Vec<ByteRecord>, Problem> {
    let (mut reader, mut rows) = (reader(head, separator, max_row), Vec::new());
    while rows.len() < FIRST_ROWS {
        let mut record = ByteRecord::new();
        match read_record(&mut reader, &mut record, separator) {
            // The first two are whole.
            Ok(true) if rows.len() < 2 || whole || reader.position().byte() < head.len() as u64 => rows.push(record),
            Err(problem) if rows.len() < 2 => return Err(problem),
            _ => break,
        }
    }
    Ok(rows)
}

/// Whether the first field of each row is a label of its own, as R writes them.
fn are_labelled(rows: &[ByteRecord]) -> bool {
    let labels: HashSet<&[u8]> = rows.iter().filter_map(|row| row.get(0)).filter(|label| !label.is_empty()).collect();
    labels.len() == rows.len() && rows.len() > 1 && rows.iter().all(|row| row.len() == rows[0].len())
}

/// What the columns hold, texts where most of the values of the first rows, two at least, are no
/// numbers; and whether
/// values of them are missing.
fn kinds(
    rows: &[ByteRecord],
    columns: usize,
    spelling: &Spelling,
    line: impl Fn(&ByteRecord) -> u64,
) -> (Vec<Kind>, Vec<bool>) {
    let mut listed = 0;
    let kind = |column: usize| {
        let (mut present, mut texts, mut first) = (0, 0, None);
        for (row, field) in rows.iter().filter_map(|row| Some((row, row.get(column)?))) {
            let value = spelling.value(field);
            present += usize::from(value.is_none_or(|value| !value.is_nan()));
            // With the other decimal point it is a number, and the error for its line says so.
            if value.is_none() && spelling.decimal.other().number(field).is_none() {
                texts += 1;
                first.get_or_insert((row, field));
            }
        }
        let has_missing = present < rows.len();
        let Some((row, field)) = first.filter(|_| texts > 1 && 2 * texts > present) else {
            return (Kind::Number(Dtype::F64), has_missing);
        };
        listed += 1;
        let kind = match listed {
            ..=MAX_LISTED => format!("texts (line {}: `{}`)", line(row), excerpt(field)),
            _ => "texts".into(),
        };
        (Kind::Other(kind), has_missing)
    };
    (0..columns).map(kind).unzip()
}

/// Refuses lines before the table: the first line, or more of them, are of other lengths than all
/// behind them.
fn check_first_rows(
    header: Option<&ByteRecord>,
    rows: &[ByteRecord],
    line: impl Fn(&ByteRecord) -> u64,
) -> Result<(), Problem> {
    let all: Vec<&ByteRecord> = header.into_iter().chain(rows).collect();
    let width = all.last().map_or(0, |row| row.len());
    let as_long = all.iter().rev().take_while(|row| row.len() == width).count();
    let mut table = all.len() - as_long;
    // A header may have one name more or less.
    let is_header = |row: &ByteRecord| {
        let ends_empty = row.iter().next_back().is_some_and(<[u8]>::is_empty);
        row.len() + 1 == width || row.len() == width + 1 && ends_empty
    };
    if table > 1 && is_header(all[table - 1]) {
        table -= 1;
    }
    if table == 0 || as_long < 3 || width < 2 || all[..table].iter().any(|row| row.len() == width) {
        return Ok(());
    }
    let before = line(all[table]) - 1;
    Err(Problem::format(format!(
        "line {} has {} fields where line {before} has {}; --skip-lines {before} passes over what stands before the table",
        before + 1,
        all[table].len(),
        all[table - 1].len()
    )))
}

/// Refuses lines between the header and the numbers, such as units, which have no number where the
/// others have numbers.
fn check_second_header(
    rows: &[ByteRecord],
    kinds: &[Kind],
    spelling: &Spelling,
    line: impl Fn(&ByteRecord) -> u64,
) -> Result<(), Problem> {
    let of_numbers = |row: &ByteRecord| {
        let fields = row.iter().zip(kinds).filter(|(_, kind)| matches!(kind, Kind::Number(_)));
        fields.map(|(field, _)| spelling.value(field)).collect::<Vec<_>>()
    };
    let has_number = |row: &ByteRecord| of_numbers(row).iter().any(|value| value.is_some_and(f64::is_finite));
    // A row of another length is reported by the reader.
    let has_text = |row: &ByteRecord| row.len() == kinds.len() && of_numbers(row).iter().any(Option::is_none);
    match rows.iter().position(has_number) {
        Some(numbers) if numbers > 0 && rows[..numbers].iter().any(has_text) => Err(Problem::format(format!(
            "line {} has no number where line {} has some; --skip-lines {} --header no passes over the header and what \
             follows it",
            line(&rows[0]),
            line(&rows[numbers]),
            line(&rows[numbers]) - 1
        ))),
        _ => Ok(()),
    }
}

/// Whether the last of `width` fields is empty in all rows of the beginning of a text that are as
/// long, but for the header.
fn end_empty(head: &[u8], whole: bool, separator: u8, header: bool, width: usize) -> Result<bool, Problem> {
    let (mut reader, mut record) = (reader(head, separator, MAX_ROW), ByteRecord::new());
    if header {
        read_record(&mut reader, &mut record, separator)?;
    }
    while read_record(&mut reader, &mut record, separator)? {
        if !whole && reader.position().byte() >= head.len() as u64 {
            // This row may be cut.
            break;
        }
        if record.len() == width && record.iter().next_back().is_some_and(|field| !field.is_empty()) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn reader<R: Read>(content: R, separator: u8, max_row: u64) -> Reader<RowLimit<R>> {
    // `flexible`: rows of unequal length are reported below, with their line, and not by the
    // reader.
    ReaderBuilder::new()
        .buffer_capacity(BUFFER)
        .delimiter(separator)
        .has_headers(false)
        .flexible(true)
        .trim(Trim::All)
        .from_reader(RowLimit { content, left: max_row, max_row, tabs_are_spaces: separator == b' ' })
}

fn too_long(max_row: u64) -> String {
    let most = memory::in_words(max_row.into());
    format!("a line has more than {most}, or a quote is not closed: it is no table of numbers")
}

/// Lets a row have so many bytes.
struct RowLimit<R> {
    content: R,
    /// Bytes that the current row may still have.
    left: u64,
    max_row: u64,
    /// Whether a tab separates as a space does.
    tabs_are_spaces: bool,
}

impl<R: Read> Read for RowLimit<R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let read = self.content.read(out)?;
        if self.tabs_are_spaces {
            out[..read].iter_mut().filter(|byte| **byte == b'\t').for_each(|byte| *byte = b' ');
        }
        self.left = match self.left.checked_sub(read as u64) {
            Some(left) => left,
            None => return Err(std::io::Error::other(TooLong(too_long(self.max_row)))),
        };
        Ok(read)
    }
}

/// Reads a row, where several spaces separate as one does and a line of spaces is empty. False at the
/// end.
fn read_record<R: Read>(
    reader: &mut Reader<RowLimit<R>>,
    record: &mut ByteRecord,
    separator: u8,
) -> Result<bool, Problem> {
    loop {
        let limit = reader.get_mut();
        limit.left = limit.max_row;
        let more = reader.read_byte_record(record).map_err(problem)?;
        if separator == b' ' {
            let position = record.position().cloned();
            *record = record.iter().filter(|field| !field.is_empty()).collect();
            record.set_position(position);
        }
        if !more || !record.is_empty() {
            return Ok(more);
        }
    }
}

/// The rows of a table of text, in order.
pub(super) struct CsvRows {
    path: PathBuf,
    reader: Reader<RowLimit<Box<dyn Read + Send>>>,
    record: ByteRecord,
    layout: Layout,
    names: Vec<Option<String>>,
    projection: Projection,
    header_is_next: bool,
    stamp: Stamp,
}

impl CsvRows {
    /// Appends the next rows to a block, as many as there are, but at most `limit`. Gives their
    /// number.
    pub fn read(&mut self, limit: usize, block: &mut Block) -> Result<usize, Problem> {
        let most = block.text_bytes() + MAX_TEXT;
        self.pass(limit, |rows| {
            rows.parse(block)?;
            Ok(block.text_bytes() < most)
        })
    }

    /// Passes over rows, as many as there are, but at most `limit`. Gives their number.
    pub fn skip(&mut self, limit: usize) -> Result<usize, Problem> {
        self.pass(limit, |_| Ok(true))
    }

    /// Calls `take` with each row until it says that it has enough.
    fn pass(&mut self, limit: usize, mut take: impl FnMut(&Self) -> Result<bool, Problem>) -> Result<usize, Problem> {
        let mut pass = || {
            for count in 0..limit {
                if !self.next()? {
                    return Ok(count);
                }
                if !take(self)? {
                    return Ok(count + 1);
                }
            }
            Ok(limit)
        };
        let count = pass();
        // If the file changed in the meantime, that is the error to report, not what was read of
        // it.
        self.stamp.check()?;
        count
    }

    /// Goes to the next row. False at the end.
    fn next(&mut self) -> Result<bool, Problem> {
        let separator = self.layout.separator;
        let mut more = read_record(&mut self.reader, &mut self.record, separator)?;
        if more && std::mem::take(&mut self.header_is_next) {
            more = read_record(&mut self.reader, &mut self.record, separator)?;
        }
        let (expected, got) = (self.names.len(), self.record.len());
        if more && got != expected {
            let beyond = self.layout.trailing && got == expected + 1;
            let Some(value) = self.record.get(expected).filter(|value| beyond && !value.is_empty()) else {
                if beyond {
                    return Ok(more);
                }
                return Err(Problem::format(format!(
                    "line {} has {got} fields where the lines before have {expected}{}",
                    self.line(),
                    self.about_comments()
                )));
            };
            return Err(Problem::format(format!(
                "line {} has `{}` behind its last separator, where the first lines have nothing; a header with a name for each \
                 column says what it is",
                self.line(),
                excerpt(value)
            )));
        }
        Ok(more)
    }

    /// Appends the features and the identifier of the current row.
    fn parse(&self, block: &mut Block) -> Result<(), Problem> {
        for &column in &self.projection.columns {
            let field = &self.record[column];
            let value = self.layout.spelling.value(field).ok_or_else(|| self.not_a_number(column, field));
            block.push(value?);
        }
        if let Some(column) = self.projection.id {
            // `NA` and `null` may be texts like any others here.
            let field = &self.record[column];
            block.push_text((!field.is_empty()).then(|| text(field)));
        }
        Ok(())
    }

    /// What to know of a line that looks like a comment.
    fn about_comments(&self) -> &'static str {
        match self.record.get(0) {
            Some([b'#', ..]) => "; comments, which begin with #, may stand before the first line only",
            _ => "",
        }
    }

    fn not_a_number(&self, column: usize, field: &[u8]) -> Problem {
        let (line, excerpt) = (self.line(), excerpt(field));
        let name = self.names[column].as_ref().map_or_else(String::new, |name| format!(", `{}`", short(name)));
        let option = option_list([option_name(self.names[column].as_deref(), column)]);
        let is_first = self.record.position().is_none_or(|position| position.byte() == 0);
        let header = if is_first && !self.layout.header { "; --header yes says that the line is a header" } else { "" };
        let decimals = match self.layout.spelling.decimal {
            Decimal::Point if self.layout.separator != b',' && field.contains(&b',') => {
                "; decimals have a point, not a comma, unless --decimal , says otherwise"
            }
            Decimal::Comma if field.contains(&b'.') => {
                "; decimals have a comma here, as in the first lines, unless --decimal . says otherwise"
            }
            _ => "",
        };
        let missing = option_list([excerpt.clone()]);
        Problem::Format(format!(
            "line {line}, column {column} (counted from 0){name}: `{excerpt}` is not a number{decimals}{}{header}; leave the column \
             out with --drop {option}, or correct it; if it stands for a missing value, --na-values {missing} says so",
            self.about_comments()
        ))
    }

    /// The line of the current row (counted from 1). Found by reading the file again, for an error
    /// only: the reader takes empty lines before a row for a part of it.
    fn line(&self) -> u64 {
        let (byte, line) = self.record.position().map_or((0, 1), |p| (p.byte(), p.line()));
        if !self.path.is_file() {
            return line;
        }
        let content = Stream::open(&self.path).and_then(Stream::into_text).ok();
        let content = content.map(|stream| BufReader::new(stream.into_reader().0).bytes());
        line_at(content.into_iter().flatten().map_while(Result::ok), self.layout.skip + byte)
    }
}

/// The line (counted from 1) of the first character at or after `offset` that does not end a line.
fn line_at(content: impl Iterator<Item = u8>, offset: u64) -> u64 {
    let mut line = 1;
    for (position, byte) in (0..).zip(content) {
        if position >= offset && !b"\r\n".contains(&byte) {
            break;
        }
        line += u64::from(byte == b'\n');
    }
    line
}

/// The separator of a text, and how its values are written.
fn characters(head: &[u8], whole: bool, decimal: Option<Decimal>, na_values: &[String]) -> (u8, Spelling) {
    let spelling = |decimal| Spelling { decimal, na_values: na_values.to_vec() };
    let (point, comma) = (spelling(Decimal::Point), spelling(Decimal::Comma));
    let with_points = separator(head, whole, &point);
    let with_commas = separator(head, whole, &comma);
    match decimal {
        Some(Decimal::Point) => (with_points, point),
        Some(Decimal::Comma) => (with_commas, comma),
        None if has_decimal_commas(head, whole, with_commas, with_points, &comma) => (with_commas, comma),
        None => (with_points, point),
    }
}

/// Whether a text has decimals with a comma beyond doubt, where its fields are separated by
/// `separator`: some have, none has a point, and where commas could separate its fields instead
/// (`otherwise`), the first line has nothing but numbers.
fn has_decimal_commas(head: &[u8], whole: bool, separator: u8, otherwise: u8, comma: &Spelling) -> bool {
    let whole_lines = match whole {
        true => head,
        false => &head[..head.iter().rposition(|&byte| byte == b'\n').unwrap_or(0)],
    };
    if !whole_lines.contains(&b',') {
        return false;
    }
    let commas_may_separate = otherwise == b',' && {
        let rows = first_rows(head, whole, b',', MAX_ROW).unwrap_or_default();
        rows.windows(2).all(|pair| pair[0].len() == pair[1].len())
    };
    let (mut reader, mut record) = (reader(whole_lines, separator, MAX_ROW), ByteRecord::new());
    let (mut first, mut found) = (true, false);
    while read_record(&mut reader, &mut record, separator).unwrap_or(false) {
        let is_number = |field: &[u8]| {
            let usable = !field.contains(&b',') || decimals(field).is_some();
            usable && Decimal::Comma.number(field).is_some() || comma.is_missing(field)
        };
        if first && (record.len() < 2 || commas_may_separate && !record.iter().all(is_number)) {
            return false;
        }
        first = false;
        if record.iter().any(|field| field.contains(&b'.') && Decimal::Point.number(field).is_some()) {
            return false;
        }
        // A number such as 1,500 may be of thousands.
        let beyond_doubt = |field: &[u8]| {
            decimals(field).is_some_and(|n| n != 3 || matches!(field, [b'0', b',', ..] | [b'-', b'0', b',', ..]))
        };
        found |= record.iter().any(|field| beyond_doubt(field) && Decimal::Comma.number(field).is_some());
    }
    found
}

/// How many digits follow the first comma of a field, if it stands between digits.
fn decimals(field: &[u8]) -> Option<usize> {
    let comma = field.iter().position(|&byte| byte == b',')?;
    let digits = field[comma + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    (digits > 0 && comma > 0 && field[comma - 1].is_ascii_digit()).then_some(digits)
}

/// The most frequent separator of the first line that is not empty, outside of quotes; spaces where
/// there is none but tabs, and the rows below are divided by them.
fn separator(head: &[u8], whole: bool, spelling: &Spelling) -> u8 {
    let separators = &SEPARATORS[usize::from(spelling.decimal == Decimal::Comma)..];
    let mut lines = head.split(|byte| b"\r\n".contains(byte)).filter(|line| !line.trim_ascii().is_empty());
    let Some(line) = lines.next() else { return separators[0] };
    let mut quoted = false;
    let mut counts = [0u32; SEPARATORS.len()];
    for byte in line {
        quoted ^= *byte == b'"';
        if let Some(at) = separators.iter().position(|separator| separator == byte && !quoted) {
            counts[at] += 1;
        }
    }
    let most = (0..separators.len()).rev().max_by_key(|&at| counts[at]).unwrap_or(0);
    let only_tabs = separators.iter().zip(counts).all(|(separator, count)| count == 0 || *separator == b'\t');
    if only_tabs && spaces_separate(head, whole, counts != [0; SEPARATORS.len()], spelling) {
        return b' ';
    }
    separators[most]
}

/// Whether spaces divide the lines into numbers and perhaps texts: all of the first rows are as long,
/// but for a header with one name less, and each has a number. Where there are tabs, these have to
/// divide them worse: into rows of unequal length, or with several numbers in a field.
fn spaces_separate(head: &[u8], whole: bool, has_tabs: bool, spelling: &Spelling) -> bool {
    /// Rows that are looked at where nothing else could separate, so that the others may be wrong.
    const FEW: usize = 3;
    let rows = |separator| first_rows(head, whole, separator, MAX_ROW).unwrap_or_default();
    let is_number = |field: &[u8]| spelling.decimal.number(field).is_some();
    let mut by_spaces = rows(b' ');
    if !has_tabs {
        by_spaces.truncate(FEW);
    }
    let Some((first, below)) = by_spaces.split_first() else { return false };
    if first.len() > 1 && first.iter().all(is_number) && !has_tabs {
        return true;
    }
    let Some(width) = below.first().map(ByteRecord::len).filter(|width| *width > 1) else { return false };
    let divides = (first.len() == width || first.len() + 1 == width)
        && below.iter().all(|row| row.len() == width && row.iter().any(is_number));
    let several = |field: &[u8]| {
        let mut words = field.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        words.clone().count() > 1 && words.all(is_number)
    };
    divides
        && (!has_tabs || {
            let by_tabs = rows(b'\t');
            by_tabs.windows(2).skip(1).any(|pair| pair[0].len() != pair[1].len())
                || by_tabs.iter().any(|row| row.iter().any(several))
        })
}

/// The beginning of a field, on one line, for an error.
fn excerpt(field: &[u8]) -> String {
    const LENGTH: usize = 40;
    let text = text(field);
    let start: String = text.chars().take(LENGTH).collect();
    let more = if start.len() < text.len() { "…" } else { "" };
    format!("{}{more}", start.replace(['\r', '\n'], " "))
}

fn problem(error: csv::Error) -> Problem {
    match error.into_kind() {
        ErrorKind::Io(e) => stream::problem(e),
        kind => Problem::Format(format!("{kind:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(head: &[u8], whole: bool, decimal: Option<Decimal>) -> (u8, Decimal) {
        let (separator, spelling) = characters(head, whole, decimal, &[]);
        (separator, spelling.decimal)
    }

    #[test]
    fn separators_are_recognised() {
        for (head, wanted) in [
            ("a,b;c,d\n1\t2\n", b','),
            ("\n\na;b\n", b';'),
            ("\"a,b,c\"\tb\n", b'\t'),
            ("1|2|3", b'|'),
            ("1.5  2 -3e5\n", b' '),
            ("a b\n1 2\n", b' '),
            ("  a   b\n 1.5 x\n", b' '),
            ("\"a b\" c\n\"1\" 2 3\n\"2\" 3 4\n", b' '),
            // Spaces, and a tab before the last column; two tabs in some lines.
            ("18.0  8 307.0\t\"a car\"\n15.0  8 350.0\t\"a car\"\n", b' '),
            ("1\t2\t3\n1\t\t2\t3\n1\t2\t3\n", b' '),
            ("a\tb\nno 1\t2\nno 2\t3\n", b'\t'),
            ("a\tb\n1\t\n\t2\n", b'\t'),
            ("sepal length\n5.1\n", b','),
            ("", b','),
        ] {
            assert_eq!(found(head.as_bytes(), true, None), (wanted, Decimal::Point), "{head}");
        }
    }

    /// What the values of a text are, or what is wrong with it, where a row may have 200 KiB.
    fn read_within_200_kib(content: &[u8]) -> Result<usize, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let read = || {
            let (csv, _) =
                Csv::open_within(file.path(), Stream::open(file.path())?, &Selection::default(), None, 200 << 10)?;
            let fields = csv.fields();
            let projection = Selection::default().resolve(&fields)?;
            csv.rows(&projection)?.read(usize::MAX, &mut Block::new(Dtype::F64))
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
        // Compressed to a thousandth such a line may be as long as one likes.
        let quoted = format!("\"a{}", "\n".repeat(1 << 20));
        let comment = format!("# {}", "x".repeat(1 << 20));
        for bad in [format!("{above}\n2\n"), format!("a\n1\n2\n{above}\n"), above, quoted, comment] {
            let error = read_within_200_kib(bad.as_bytes()).unwrap_err();
            assert!(error.contains("a line has more than 200 KiB"), "{error}");
        }
    }

    #[test]
    fn decimal_commas_are_recognised_beyond_doubt_only() {
        for (head, wanted) in [
            ("a;b\n1,5;2\n", b';'),
            ("1,5;2,25;-3,0\n4;5,5;6\n", b';'),
            ("1,5\t2,5\n", b'\t'),
            ("1,5 2,5e-3\n", b' '),
            ("a|b\n1,500|0,125\n", b'|'),
            ("a b\n1,5 2,5\n", b' '),
        ] {
            assert_eq!(found(head.as_bytes(), true, None), (wanted, Decimal::Comma), "{head}");
        }
        for (head, wanted) in [
            // Thousands, perhaps.
            ("a;b\n1,500;2\n", b';'),
            // One column, or two.
            ("1,5\n2,5\n", b','),
            ("1, 2, 3\n4, 5, 6\n", b','),
            ("1,2 ,3\n", b','),
            // Points as well.
            ("a;b\n1,5;2\n1,5;2.5\n", b';'),
            // Names with commas are no numbers.
            ("x, mm;y, mm\n1,5;2,5\n", b','),
            ("a;b\n,5;2,\n", b';'),
            ("a;b\nno 1,5;1,5,5\n", b';'),
        ] {
            assert_eq!(found(head.as_bytes(), true, None), (wanted, Decimal::Point), "{head}");
        }
        // A number that the end of the beginning cuts is not looked at.
        let long = format!("a;b\n{}1,500;2", "1;2\n".repeat(stream::HEAD as usize / 4));
        let cut = &long.as_bytes()[..stream::HEAD as usize];
        assert_eq!(found(cut, false, None), (b';', Decimal::Point));
        // What the caller says counts.
        for (head, decimal, wanted) in [
            ("1,500;2\n", Decimal::Comma, b';'),
            ("x, mm;y, mm\n1,5;2,5\n", Decimal::Comma, b';'),
            ("1,5\n2,5\n", Decimal::Comma, b'\t'),
            ("a;b\n1,5;2\n", Decimal::Point, b';'),
        ] {
            assert_eq!(found(head.as_bytes(), true, Some(decimal)), (wanted, decimal), "{head}");
        }
    }
}
