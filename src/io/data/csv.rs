//! Numbers from text with separators: CSV, TSV and their relatives.
use super::block::Block;
use super::columns::{Field, Kind, Projection, short};
use super::file_stamp::FileStamp;
use super::npy::Dtype;
use super::stream::{self, Stamp, Stream};
use crate::io::Problem;
use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder, Trim};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// The separators that are recognised, besides spaces. Of equally frequent ones the first counts.
const SEPARATORS: [u8; 4] = [b',', b'\t', b';', b'|'];
/// What a field holds whose value is missing, in any case of letters.
const MISSING: [&str; 4] = ["", "NA", "NaN", "null"];

/// Bytes that are read at a time.
const BUFFER: usize = 16 << 10;

/// A table of text, of which the beginning was read.
#[derive(Debug)]
pub(super) struct Csv {
    path: PathBuf,
    layout: Layout,
    /// Names, or `None` for each column.
    names: Vec<Option<String>>,
    /// What the file was when its beginning was read.
    stamp: Option<FileStamp>,
}

/// What stands between the whole part and the decimals of numbers in text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decimal {
    /// 1.5
    Point,
    /// 1,5
    Comma,
}

/// How rows are made of characters.
#[derive(Debug, Clone, Copy)]
struct Layout {
    separator: u8,
    decimal: Decimal,
    header: bool,
}

impl Csv {
    /// Reads the beginning of a stream. The rows are read from the path again, unless the stream is given to them. How decimals are
    /// written is found in the beginning if it is not given.
    pub fn open(path: &Path, stream: &Stream, decimal: Option<Decimal>) -> Result<Self, Problem> {
        let (separator, decimal) = characters(&stream.head, decimal);
        let mut record = ByteRecord::new();
        read_record(&mut reader(&stream.head[..], separator), &mut record, separator)?;
        // A first line without any number and with a name in it; missing values alone are a sample.
        let header = record.iter().all(|field| decimal.number(field).is_none()) && !record.iter().all(is_missing);
        let name = |(column, field): (usize, &[u8])| match String::from_utf8_lossy(field) {
            name if name.is_empty() => format!("column {column}"),
            name => name.into_owned(),
        };
        let names = record.iter().enumerate().map(|field| header.then(|| name(field))).collect();
        Ok(Self {
            path: path.into(),
            layout: Layout { separator, decimal, header },
            names,
            stamp: stream.stamp.value(),
        })
    }

    pub fn fields(&self) -> Vec<Field> {
        self.names.iter().map(|name| Field { name: name.clone(), kind: Kind::Number(Dtype::F64) }).collect()
    }

    /// The rows, beginning with the first.
    pub fn rows(&self, projection: &Projection) -> Result<CsvRows, Problem> {
        Stream::reopen(&self.path, self.stamp).map(|stream| self.rows_of(stream, projection))
    }

    /// The rows of a stream, of which nothing was read but the head.
    pub fn rows_of(&self, stream: Stream, projection: &Projection) -> CsvRows {
        let (content, stamp) = stream.into_reader();
        CsvRows {
            path: self.path.clone(),
            reader: reader(content, self.layout.separator),
            record: ByteRecord::new(),
            layout: self.layout,
            names: self.names.clone(),
            projection: projection.clone(),
            header_is_next: self.layout.header,
            stamp,
        }
    }
}

fn reader<R: Read>(content: R, separator: u8) -> Reader<R> {
    // `flexible`: rows of unequal length are reported below, with their line, and not by the reader.
    ReaderBuilder::new()
        .buffer_capacity(BUFFER)
        .delimiter(separator)
        .has_headers(false)
        .flexible(true)
        .trim(Trim::All)
        .from_reader(content)
}

/// Reads a row, where several spaces separate as one does. False at the end.
fn read_record<R: Read>(reader: &mut Reader<R>, record: &mut ByteRecord, separator: u8) -> Result<bool, Problem> {
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
    reader: Reader<Box<dyn Read + Send>>,
    record: ByteRecord,
    layout: Layout,
    names: Vec<Option<String>>,
    projection: Projection,
    header_is_next: bool,
    stamp: Stamp,
}

impl CsvRows {
    /// Appends the next rows to a block, as many as there are, but at most `limit`. Gives their number.
    pub fn read(&mut self, limit: usize, block: &mut Block) -> Result<usize, Problem> {
        self.pass(limit, |rows| rows.parse(block))
    }

    /// Passes over rows, as many as there are, but at most `limit`. Gives their number.
    pub fn skip(&mut self, limit: usize) -> Result<usize, Problem> {
        self.pass(limit, |_| Ok(()))
    }

    fn pass(&mut self, limit: usize, mut take: impl FnMut(&Self) -> Result<(), Problem>) -> Result<usize, Problem> {
        let mut pass = || {
            for count in 0..limit {
                if !self.next()? {
                    return Ok(count);
                }
                take(self)?;
            }
            Ok(limit)
        };
        let count = pass();
        // If the file changed in the meantime, that is the error to report, not what was read of it.
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
        let expected = self.names.len();
        if more && self.record.len() != expected {
            return Err(Problem::format(format!(
                "line {} has {} fields where the lines before have {expected}",
                self.line(),
                self.record.len()
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
            "line {line}, column {column} (counted from 0){name}: `{field}` is not a number{decimals}; {advice}"
        ))
    }

    /// The line of the current row (counted from 1). Found by reading the file again, for an error only: the reader takes empty
    /// lines before a row for a part of it.
    fn line(&self) -> u64 {
        let (byte, line) = self.record.position().map_or((0, 1), |p| (p.byte(), p.line()));
        if !self.path.is_file() {
            return line;
        }
        let content = Stream::open(&self.path).ok().map(|stream| BufReader::new(stream.into_reader().0).bytes());
        first_line(content.into_iter().flatten().map_while(Result::ok), byte)
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
fn characters(head: &[u8], decimal: Option<Decimal>) -> (u8, Decimal) {
    let with_points = separator(head, Decimal::Point);
    let with_commas = separator(head, Decimal::Comma);
    match decimal {
        Some(Decimal::Point) => (with_points, Decimal::Point),
        Some(Decimal::Comma) => (with_commas, Decimal::Comma),
        None if has_decimal_commas(head, with_commas, with_points) => (with_commas, Decimal::Comma),
        None => (with_points, Decimal::Point),
    }
}

/// Whether a text has decimals with a comma beyond doubt, where its fields are separated by `separator`: some have, none has a point,
/// and where commas could separate its fields instead (`otherwise`), the first line has nothing but numbers.
fn has_decimal_commas(head: &[u8], separator: u8, otherwise: u8) -> bool {
    let whole_lines = match head.len() < stream::HEAD as usize {
        true => head,
        false => &head[..head.iter().rposition(|&byte| byte == b'\n').unwrap_or(0)],
    };
    if !whole_lines.contains(&b',') {
        return false;
    }
    let (mut reader, mut record) = (reader(whole_lines, separator), ByteRecord::new());
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

/// The most frequent separator of the first line that is not empty, outside of quotes. Spaces count only if there are no others
/// and they stand between numbers: names may contain spaces.
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

/// The number of a field, NaN where it is missing; a truth value is 0 or 1. `None` for something else.
fn value(field: &[u8], decimal: Decimal) -> Option<f64> {
    let truth = |word: &str, value| field.eq_ignore_ascii_case(word.as_bytes()).then_some(value);
    (decimal.number(field))
        .or_else(|| is_missing(field).then_some(f64::NAN))
        .or_else(|| truth("true", 1.0))
        .or_else(|| truth("false", 0.0))
}

impl Decimal {
    fn number(self, field: &[u8]) -> Option<f64> {
        let text = std::str::from_utf8(field).ok()?;
        match self {
            Self::Comma if text.contains('.') => None,
            Self::Comma if text.contains(',') => text.replace(',', ".").parse().ok(),
            _ => text.parse().ok(),
        }
    }
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
            assert_eq!(characters(head.as_bytes(), None), (wanted, Decimal::Point), "{head}");
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
            assert_eq!(characters(head.as_bytes(), None), (wanted, Decimal::Comma), "{head}");
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
            assert_eq!(characters(head.as_bytes(), None), (wanted, Decimal::Point), "{head}");
        }
        // A number that the end of the beginning cuts is not looked at.
        let long = format!("a;b\n{}1,500;2", "1;2\n".repeat(stream::HEAD as usize / 4));
        let cut = &long.as_bytes()[..stream::HEAD as usize];
        assert_eq!(characters(cut, None), (b';', Decimal::Point));
        // What the caller says counts.
        for (head, decimal, wanted) in [
            ("1,500;2\n", Decimal::Comma, b';'),
            ("x, mm;y, mm\n1,5;2,5\n", Decimal::Comma, b';'),
            ("1,5\n2,5\n", Decimal::Comma, b'\t'),
            ("a;b\n1,5;2\n", Decimal::Point, b';'),
        ] {
            assert_eq!(characters(head.as_bytes(), Some(decimal)), (wanted, decimal), "{head}");
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
