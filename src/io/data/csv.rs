//! Numbers from comma-separated text.
use super::file_stamp::FileStamp;
use crate::io::Problem;
use ndarray::Array2;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// Reads a table of numbers. More numbers than fit into `memory` bytes are an error.
pub(super) fn read(path: &Path, memory: u64) -> Result<Array2<f64>, Problem> {
    let file = File::open(path).map_err(Problem::io("open it"))?;
    let stamp = FileStamp::of(&file.metadata().map_err(Problem::io("open it"))?);
    let read = parse(path, &file, memory);
    // If the file changed in the meantime, that is the error to report, not what was read of it.
    stamp.map_or(Ok(()), |stamp| stamp.check(&file))?;
    read
}

fn parse(path: &Path, file: &File, memory: u64) -> Result<Array2<f64>, Problem> {
    // `flexible`: rows of unequal length are reported below, with their line, and not by the reader.
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).trim(csv::Trim::All).from_reader(file);
    let mut record = csv::ByteRecord::new();
    let mut values = Vec::new();
    let mut columns = None;
    let mut first = true;
    while reader.read_byte_record(&mut record).map_err(problem)? {
        // Found by reading the file again, for an error only: the reader takes empty lines before a record for a part of it.
        let line = || first_line(path, record.position().map_or(0, |p| p.byte()));
        let expected = *columns.get_or_insert(record.len());
        if record.len() != expected {
            return Err(Problem::Format(format!(
                "line {} has {} fields where the lines before have {expected}",
                line(),
                record.len()
            )));
        }
        // A first line without any number and with a name in it; missing values alone are a sample.
        let header = std::mem::take(&mut first)
            && record.iter().all(|field| number(field).is_none())
            && !record.iter().all(is_missing);
        if header {
            continue;
        }
        for (column, field) in record.iter().enumerate() {
            values.push(number(field).or(is_missing(field).then_some(f64::NAN)).ok_or_else(|| {
                Problem::Format(format!(
                    "line {}, column {column} (counted from 0): `{}` is not a number; numbers are separated by commas, \
                     and only the first line may be a header (without any number in it)",
                    line(),
                    excerpt(field)
                ))
            })?);
        }
        let taken = size_of_val(&values[..]) as u64;
        if taken > memory {
            return Err(Problem::format(format!(
                "its numbers take {taken} bytes of memory or more, where {memory} are allowed; allow more, or save them as a \
                 .npy, which is read in chunks"
            )));
        }
    }
    let columns = columns.unwrap_or(0);
    let rows = values.len().checked_div(columns).unwrap_or(0);
    Array2::from_shape_vec((rows, columns), values).map_err(|e| Problem::Format(e.to_string()))
}

/// The line (counted from 1) of the first character at or after `offset` that does not end a line.
fn first_line(path: &Path, offset: u64) -> usize {
    let bytes = File::open(path).map(BufReader::new).map(|f| f.bytes().map_while(Result::ok));
    let mut line = 1;
    for (position, byte) in (0..).zip(bytes.into_iter().flatten()) {
        if position >= offset && !b"\r\n".contains(&byte) {
            break;
        }
        line += usize::from(byte == b'\n');
    }
    line
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
    ["", "NA", "NaN", "null"].iter().any(|name| field.eq_ignore_ascii_case(name.as_bytes()))
}

fn number(field: &[u8]) -> Option<f64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn problem(error: csv::Error) -> Problem {
    match error.into_kind() {
        csv::ErrorKind::Io(e) => Problem::io("read it")(e),
        kind => Problem::Format(format!("{kind:?}")),
    }
}
