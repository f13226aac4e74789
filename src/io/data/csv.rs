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

/// How rows are made of characters.
#[derive(Debug, Clone, Copy)]
struct Layout {
    separator: u8,
    header: bool,
}

impl Csv {
    /// Reads the beginning of a stream. The rows are read from the path again, unless the stream is given to them.
    pub fn open(path: &Path, stream: &Stream) -> Result<Self, Problem> {
        let separator = separator(&stream.head);
        let mut record = ByteRecord::new();
        read_record(&mut reader(&stream.head[..], separator), &mut record, separator)?;
        // A first line without any number and with a name in it; missing values alone are a sample.
        let header = record.iter().all(|field| number(field).is_none()) && !record.iter().all(is_missing);
        let name = |(column, field): (usize, &[u8])| match String::from_utf8_lossy(field) {
            name if name.is_empty() => format!("column {column}"),
            name => name.into_owned(),
        };
        let names = record.iter().enumerate().map(|field| header.then(|| name(field))).collect();
        Ok(Self { path: path.into(), layout: Layout { separator, header }, names, stamp: stream.stamp.value() })
    }

    pub fn fields(&self) -> Vec<Field> {
        self.names.iter().map(|name| Field { name: name.clone(), kind: Kind::Number(Dtype::F64) }).collect()
    }

    /// The rows, beginning with the first.
    pub fn rows(&self, projection: &Projection) -> Result<CsvRows, Problem> {
        let now = self.path.metadata().map_err(Problem::io("open it"))?;
        if FileStamp::of(&now) != self.stamp {
            return Err(Problem::Changed);
        }
        Stream::open(&self.path).map(|stream| self.rows_of(stream, projection))
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
            block.push(value(field).ok_or_else(|| self.not_a_number(column, field))?);
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
        let comma = self.layout.separator != b',' && field.contains(&b',');
        let point = if comma { "; decimals have a point, not a comma" } else { "" };
        let field = excerpt(field);
        Problem::Format(format!(
            "line {line}, column {column} (counted from 0){name}: `{field}` is not a number{point}; {advice}"
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

/// The most frequent separator of the first line that is not empty, outside of quotes. Spaces count only if there are no others
/// and they stand between numbers: names may contain spaces.
fn separator(head: &[u8]) -> u8 {
    let mut lines = head.split(|byte| b"\r\n".contains(byte)).filter(|line| !line.trim_ascii().is_empty());
    let Some(line) = lines.next() else { return SEPARATORS[0] };
    let mut quoted = false;
    let mut counts = [0u32; SEPARATORS.len()];
    for byte in line {
        quoted ^= *byte == b'"';
        if let Some(at) = SEPARATORS.iter().position(|separator| separator == byte && !quoted) {
            counts[at] += 1;
        }
    }
    let words = || line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    if counts == [0; SEPARATORS.len()] && words().count() > 1 && words().all(|word| number(word).is_some()) {
        return b' ';
    }
    let most = (0..SEPARATORS.len()).rev().max_by_key(|&at| counts[at]).unwrap_or(0);
    SEPARATORS[most]
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
fn value(field: &[u8]) -> Option<f64> {
    let truth = |word: &str, value| field.eq_ignore_ascii_case(word.as_bytes()).then_some(value);
    number(field)
        .or_else(|| is_missing(field).then_some(f64::NAN))
        .or_else(|| truth("true", 1.0))
        .or_else(|| truth("false", 0.0))
}

fn number(field: &[u8]) -> Option<f64> {
    std::str::from_utf8(field).ok()?.parse().ok()
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
            assert_eq!(char::from(separator(head.as_bytes())), char::from(wanted), "{head}");
        }
    }

    #[test]
    fn missing_values_are_nan() {
        for text in ["", "NA", "NaN", "nan", "null", "NULL"] {
            assert!(value(text.as_bytes()).unwrap().is_nan(), "{text}");
        }
        assert_eq!([value(b"-1e3"), value(b"True"), value(b"false")], [Some(-1000.0), Some(1.0), Some(0.0)]);
        for text in ["N/A", "none", "1,5", "NAN0"] {
            assert!(value(text.as_bytes()).is_none(), "{text}");
        }
    }
}
