//! Rows of text as fields.
use super::super::decimal::text;
use super::super::stream::{self, TooLong};
use crate::io::Problem;
use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder, Trim};
use gmm_host::memory;
use std::io::Read;

/// Most rows that are looked at to find how a text is written.
pub(super) const FIRST_ROWS: usize = 1000;
/// Bytes that are read at a time.
const BUFFER: usize = 16 << 10;
/// Most bytes of a row. It is in memory as a whole, so that a text that has no second line must end
/// somewhere.
pub(super) const MAX_ROW: u64 = 128 << 20;

pub(super) fn reader<R: Read>(content: R, separator: u8, max_row: u64) -> Reader<RowLimit<R>> {
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

pub(super) fn too_long(max_row: u64) -> String {
    let most = memory::in_words(max_row.into());
    format!("a line has more than {most}, or a quote is not closed: it is no table of numbers")
}

/// Lets a row have so many bytes.
pub(super) struct RowLimit<R> {
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
pub(super) fn read_record<R: Read>(
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

/// Whether the beginning of a text has two whole rows: a header, perhaps, and a row of numbers.
pub(super) fn is_complete(head: &[u8], separator: u8, max_row: u64) -> Result<bool, Problem> {
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
pub(super) fn first_rows(head: &[u8], whole: bool, separator: u8, max_row: u64) -> Result<Vec<ByteRecord>, Problem> {
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

/// Where a line begins, counted from 0.
pub(super) fn line_start(head: &[u8], line: usize) -> usize {
    head.split_inclusive(|&byte| byte == b'\n').take(line).map(<[u8]>::len).sum()
}

/// The line (counted from 1) of the first character at or after `offset` that does not end a line.
pub(super) fn line_at(content: impl Iterator<Item = u8>, offset: u64) -> u64 {
    let mut line = 1;
    for (position, byte) in (0..).zip(content) {
        if position >= offset && !b"\r\n".contains(&byte) {
            break;
        }
        line += u64::from(byte == b'\n');
    }
    line
}

/// The beginning of a field, on one line, for an error.
pub(super) fn excerpt(field: &[u8]) -> String {
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
