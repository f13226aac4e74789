//! Numbers from text with separators: CSV, TSV and their relatives.
use super::array::Dtype;
use super::block::Block;
use super::columns::{Field, Kind, Projection, short};
use super::decimal::Decimal;
use super::file_stamp::FileStamp;
use super::stream::{self, Stamp, Stream, TooLong};
use crate::io::Problem;
use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder, Trim};
use gmm_host::memory;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// The separators that are recognised, besides spaces. Of equally frequent ones the first counts.
const SEPARATORS: [u8; 4] = [b',', b'\t', b';', b'|'];
/// What a field holds whose value is missing, in any case of letters.
const MISSING: [&str; 4] = ["", "NA", "NaN", "null"];

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
    /// Whether the first column has no name although the others have: an index of the rows.
    has_index: bool,
    /// What the file was when its beginning was read.
    stamp: Option<FileStamp>,
    /// Most bytes of a row.
    max_row: u64,
}

/// How rows are made of characters.
#[derive(Debug, Clone, Copy)]
struct Layout {
    separator: u8,
    decimal: Decimal,
    /// Bytes before the first row: those of comments.
    skip: u64,
    header: bool,
    /// Whether lines end with a separator, behind which nothing stands.
    trailing: bool,
}

impl Csv {
    /// Reads the beginning of a stream. The rows are read from the path again, unless the stream,
    /// which it gives back, is given to them. How decimals are written is found in the beginning if
    /// it is not given.
    ///
    /// Lines at the beginning that begin with `#` are comments. The last of them is the header if
    /// it has as many names as the line after it has numbers. Where all lines end with a separator,
    /// nothing is read behind it.
    pub fn open(path: &Path, stream: Stream, decimal: Option<Decimal>) -> Result<(Self, Stream), Problem> {
        Self::open_within(path, stream, decimal, MAX_ROW)
    }

    /// As [`open`](Self::open), with so many bytes for a row.
    fn open_within(
        path: &Path,
        stream: Stream,
        decimal: Option<Decimal>,
        max_row: u64,
    ) -> Result<(Self, Stream), Problem> {
        let mut stream = stream.into_text()?;
        let (skip, comment, (separator, decimal)) = loop {
            let (skip, comment) = comments(&stream.head);
            let content = &stream.head[skip..];
            let layout = characters(content, stream.whole, decimal);
            if stream.whole || is_complete(content, layout.0, max_row)? {
                break (skip, comment.to_vec(), layout);
            }
            if stream.head.len() as u64 > 2 * max_row {
                return Err(Problem::format(too_long(max_row)));
            }
            stream.extend()?;
        };
        let (first, second) = first_rows(&stream.head[skip..], separator, max_row)?;
        // A first line without any number and with a name in it; missing values alone are a sample.
        let are_names =
            |row: &ByteRecord| row.iter().all(|field| decimal.number(field).is_none()) && !row.iter().all(is_missing);
        let header = first.as_ref().is_some_and(are_names);
        let (names, row) = match first {
            Some(first) if header => (Some(first), second),
            Some(first) => (named_by(&comment, separator, first.len()).filter(are_names), Some(first)),
            None => (None, None),
        };
        let columns = names.as_ref().or(row.as_ref()).map_or(0, ByteRecord::len);
        let width = row.as_ref().map_or(columns, ByteRecord::len);
        let ends_empty = || end_empty(&stream.head[skip..], stream.whole, separator, header, width);
        let is_named = |names: &ByteRecord| names.iter().next_back().is_some_and(|name| !name.is_empty());
        // Rows may end with the separator, or the header, or both.
        let (trailing, columns) = match names.as_ref().is_some_and(is_named) {
            _ if width < 2 => (false, columns),
            true => (width == columns + 1 && ends_empty()?, columns),
            false if row.is_none() || width == columns && ends_empty()? || header && width + 1 == columns => {
                (true, columns - 1)
            }
            false => (false, columns),
        };
        let text = |(column, field): (usize, &[u8])| match String::from_utf8_lossy(field) {
            name if name.is_empty() => format!("column {column}"),
            name => name.into_owned(),
        };
        let has_index = columns > 1
            && names.as_ref().is_some_and(|names| {
                names.iter().take(columns).enumerate().all(|(column, name)| name.is_empty() == (column == 0))
            });
        let layout = Layout { separator, decimal, skip: skip as u64, header, trailing };
        let names = match &names {
            Some(names) => names.iter().take(columns).enumerate().map(|field| Some(text(field))).collect(),
            None => vec![None; columns],
        };
        Ok((Self { path: path.into(), layout, names, has_index, stamp: stream.stamp.value(), max_row }, stream))
    }

    pub fn fields(&self) -> Vec<Field> {
        let field = |(column, name): (usize, &Option<String>)| Field {
            name: name.clone(),
            kind: Kind::Number(Dtype::F64),
            is_index: self.has_index && column == 0,
        };
        self.names.iter().enumerate().map(field).collect()
    }

    /// What a reader should know of how the text is read.
    pub fn remark(&self) -> Option<&'static str> {
        let what = "the lines end with a separator; the empty column behind it is left out (a header with a name for it keeps it)";
        self.layout.trailing.then_some(what)
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
            layout: self.layout,
            names: self.names.clone(),
            projection: projection.clone(),
            header_is_next: self.layout.header,
            stamp,
        })
    }
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
        return Ok(first_rows(head, separator, max_row)?.0.is_some());
    }
    let (mut reader, mut record) = (reader(head, separator, max_row), ByteRecord::new());
    for _ in 0..2 {
        if !read_record(&mut reader, &mut record, separator)? || reader.position().byte() >= head.len() as u64 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The first two rows of the beginning of a text.
fn first_rows(head: &[u8], separator: u8, max_row: u64) -> Result<(Option<ByteRecord>, Option<ByteRecord>), Problem> {
    let mut reader = reader(head, separator, max_row);
    let mut next = || -> Result<_, Problem> {
        let mut record = ByteRecord::new();
        Ok(read_record(&mut reader, &mut record, separator)?.then_some(record))
    };
    Ok((next()?, next()?))
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
        .from_reader(RowLimit { content, left: max_row, max_row })
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
}

impl<R: Read> Read for RowLimit<R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let read = self.content.read(out)?;
        self.left = match self.left.checked_sub(read as u64) {
            Some(left) => left,
            None => return Err(std::io::Error::other(TooLong(too_long(self.max_row)))),
        };
        Ok(read)
    }
}

/// Reads a row, where several spaces separate as one does. False at the end.
fn read_record<R: Read>(
    reader: &mut Reader<RowLimit<R>>,
    record: &mut ByteRecord,
    separator: u8,
) -> Result<bool, Problem> {
    let limit = reader.get_mut();
    limit.left = limit.max_row;
    let more = reader.read_byte_record(record).map_err(problem)?;
    if separator == b' ' {
        let position = record.position().cloned();
        *record = record.iter().filter(|field| !field.is_empty()).collect();
        record.set_position(position);
    }
    Ok(more)
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
            let value = value(field, self.layout.decimal).ok_or_else(|| self.not_a_number(column, field));
            block.push(value?);
        }
        if let Some(column) = self.projection.id {
            let field = &self.record[column];
            block.push_text((!is_missing(field)).then(|| String::from_utf8_lossy(field).into_owned()));
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
        let line = self.line();
        let (name, advice) = match &self.names[column] {
            Some(name) => {
                let name = short(name);
                (format!(", `{name}`"), format!("leave the column out with --drop {name}, or correct it"))
            }
            None => {
                let advice =
                    "only the first line may be a header (without any number in it); a column is left out with --drop";
                (String::new(), format!("{advice} {column}"))
            }
        };
        let decimals = match self.layout.decimal {
            Decimal::Point if self.layout.separator != b',' && field.contains(&b',') => {
                "; decimals have a point, not a comma, unless --decimal , says otherwise"
            }
            Decimal::Comma if field.contains(&b'.') => {
                "; decimals have a comma here, as in the first lines, unless --decimal . says otherwise"
            }
            _ => "",
        };
        let field = excerpt(field);
        Problem::Format(format!(
            "line {line}, column {column} (counted from 0){name}: `{field}` is not a number{decimals}{}; {advice}",
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
        first_line(content.into_iter().flatten().map_while(Result::ok), self.layout.skip + byte)
    }
}

/// The line (counted from 1) of the first character at or after `offset` that does not end a line.
fn first_line(content: impl Iterator<Item = u8>, offset: u64) -> u64 {
    let mut line = 1;
    for (position, byte) in (0..).zip(content) {
        if position >= offset && !b"\r\n".contains(&byte) {
            break;
        }
        line += u64::from(byte == b'\n');
    }
    line
}

/// The separator of a text, and how its decimals are written.
fn characters(head: &[u8], whole: bool, decimal: Option<Decimal>) -> (u8, Decimal) {
    let with_points = separator(head, Decimal::Point);
    let with_commas = separator(head, Decimal::Comma);
    match decimal {
        Some(Decimal::Point) => (with_points, Decimal::Point),
        Some(Decimal::Comma) => (with_commas, Decimal::Comma),
        None if has_decimal_commas(head, whole, with_commas, with_points) => (with_commas, Decimal::Comma),
        None => (with_points, Decimal::Point),
    }
}

/// Whether a text has decimals with a comma beyond doubt, where its fields are separated by
/// `separator`: some have, none has a point, and where commas could separate its fields instead
/// (`otherwise`), the first line has nothing but numbers.
fn has_decimal_commas(head: &[u8], whole: bool, separator: u8, otherwise: u8) -> bool {
    let whole_lines = match whole {
        true => head,
        false => &head[..head.iter().rposition(|&byte| byte == b'\n').unwrap_or(0)],
    };
    if !whole_lines.contains(&b',') {
        return false;
    }
    let (mut reader, mut record) = (reader(whole_lines, separator, MAX_ROW), ByteRecord::new());
    let (mut first, mut found) = (true, false);
    while read_record(&mut reader, &mut record, separator).unwrap_or(false) {
        let is_number = |field: &[u8]| {
            let usable = !field.contains(&b',') || decimals(field).is_some();
            usable && Decimal::Comma.number(field).is_some() || is_missing(field)
        };
        if first && (record.len() < 2 || otherwise == b',' && !record.iter().all(is_number)) {
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

/// The most frequent separator of the first line that is not empty, outside of quotes. Spaces count
/// only if there are no others and they stand between numbers: names may contain spaces.
fn separator(head: &[u8], decimal: Decimal) -> u8 {
    let separators = &SEPARATORS[usize::from(decimal == Decimal::Comma)..];
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
    let words = || line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    if counts == [0; SEPARATORS.len()] && words().count() > 1 && words().all(|word| decimal.number(word).is_some()) {
        return b' ';
    }
    let most = (0..separators.len()).rev().max_by_key(|&at| counts[at]).unwrap_or(0);
    separators[most]
}

/// The beginning of a field, on one line, for an error.
fn excerpt(field: &[u8]) -> String {
    const LENGTH: usize = 40;
    let text = String::from_utf8_lossy(field);
    let start: String = text.chars().take(LENGTH).collect();
    let more = if start.len() < text.len() { "…" } else { "" };
    format!("{}{more}", start.replace(['\r', '\n'], " "))
}

/// Whether a field says that its value is missing.
fn is_missing(field: &[u8]) -> bool {
    MISSING.iter().any(|missing| field.eq_ignore_ascii_case(missing.as_bytes()))
}

/// The number of a field, NaN where it is missing; a truth value is 0 or 1. `None` for something
/// else.
fn value(field: &[u8], decimal: Decimal) -> Option<f64> {
    let truth = |word: &str, value| field.eq_ignore_ascii_case(word.as_bytes()).then_some(value);
    (decimal.number(field))
        .or_else(|| is_missing(field).then_some(f64::NAN))
        .or_else(|| truth("true", 1.0))
        .or_else(|| truth("false", 0.0))
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

    #[test]
    fn separators_are_recognised() {
        for (head, wanted) in [
            ("a,b;c,d\n1\t2\n", b','),
            ("\n\na;b\n", b';'),
            ("\"a,b,c\"\tb\n", b'\t'),
            ("1|2|3", b'|'),
            ("1.5  2 -3e5\n", b' '),
            ("sepal length\n5.1\n", b','),
            ("", b','),
        ] {
            assert_eq!(characters(head.as_bytes(), true, None), (wanted, Decimal::Point), "{head}");
        }
    }

    /// What the values of a text are, or what is wrong with it, where a row may have 200 KiB.
    fn read_within_200_kib(content: &[u8]) -> Result<usize, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let read = || {
            let (csv, _) = Csv::open_within(file.path(), Stream::open(file.path())?, None, 200 << 10)?;
            let fields = csv.fields();
            let projection = super::super::columns::Selection::default().resolve(&fields)?;
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
        ] {
            assert_eq!(characters(head.as_bytes(), true, None), (wanted, Decimal::Comma), "{head}");
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
            assert_eq!(characters(head.as_bytes(), true, None), (wanted, Decimal::Point), "{head}");
        }
        // A number that the end of the beginning cuts is not looked at.
        let long = format!("a;b\n{}1,500;2", "1;2\n".repeat(stream::HEAD as usize / 4));
        let cut = &long.as_bytes()[..stream::HEAD as usize];
        assert_eq!(characters(cut, false, None), (b';', Decimal::Point));
        // What the caller says counts.
        for (head, decimal, wanted) in [
            ("1,500;2\n", Decimal::Comma, b';'),
            ("x, mm;y, mm\n1,5;2,5\n", Decimal::Comma, b';'),
            ("1,5\n2,5\n", Decimal::Comma, b'\t'),
            ("a;b\n1,5;2\n", Decimal::Point, b';'),
        ] {
            assert_eq!(characters(head.as_bytes(), true, Some(decimal)), (wanted, decimal), "{head}");
        }
    }

    #[test]
    fn missing_values_are_nan() {
        for text in ["", "NA", "NaN", "nan", "null", "NULL"] {
            assert!(value(text.as_bytes(), Decimal::Point).unwrap().is_nan(), "{text}");
        }
        let values = [b"-1e3" as &[u8], b"True", b"false"].map(|text| value(text, Decimal::Point));
        assert_eq!(values, [Some(-1000.0), Some(1.0), Some(0.0)]);
        let values =
            [b"-1,5e3" as &[u8], b"0,25", b"7", b"1.5", b"1,2,3", b"NA"].map(|text| value(text, Decimal::Comma));
        assert_eq!(values[..5], [Some(-1500.0), Some(0.25), Some(7.0), None, None]);
        assert!(values[5].unwrap().is_nan());
        for text in ["N/A", "none", "1,5", "NAN0"] {
            assert!(value(text.as_bytes(), Decimal::Point).is_none(), "{text}");
        }
    }
}
