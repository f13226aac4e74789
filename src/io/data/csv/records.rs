//! Rows of text as fields.
use super::super::decimal::text;
use super::super::stream::{self, TooLong};
use crate::io::Problem;
use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder, Trim};
use gmm_host::memory;
use std::io::Read;

/// The most rows examined to find the notation of a text.
pub(super) const FIRST_ROWS: usize = 1000;
const BUFFER: usize = 16 << 10;
/// The largest size of a row in bytes. A row is held in memory, so a text without line ends must be refused.
pub(super) const MAX_ROW: u64 = 128 << 20;

pub(super) fn reader<R: Read>(content: R, separator: u8, max_row: u64) -> Reader<RowLimit<R>> {
    // `flexible`: rows of unequal length are reported below, with their line, not by the reader.
    ReaderBuilder::new()
        .buffer_capacity(BUFFER)
        .delimiter(separator)
        .has_headers(false)
        .flexible(true)
        .trim(Trim::All)
        .from_reader(RowLimit {
            content,
            left: max_row,
            max_row,
            tabs_are_spaces: separator == b' ',
            recent: Vec::new(),
            start: 0,
            row: 0,
        })
}

pub(super) fn too_long(max_row: u64) -> String {
    let most = memory::in_words(max_row.into());
    format!("a line has more than {most}, or a quote is not closed: it is not a table of numbers")
}

pub(super) struct RowLimit<R> {
    content: R,
    left: u64,
    max_row: u64,
    /// Whether a tab separates like a space.
    tabs_are_spaces: bool,
    /// The bytes from `start` on that were read last, among them those of the row, which begins at `row`.
    recent: Vec<u8>,
    start: u64,
    row: u64,
}

impl<R> RowLimit<R> {
    /// Returns the number of line feeds at the beginning of the row, where it has the end of the line before and empty
    /// lines.
    pub fn line_feeds_before_row(&self) -> u64 {
        let row = self.recent.iter().skip((self.row - self.start) as usize);
        row.take_while(|byte| b"\r\n".contains(byte)).filter(|byte| **byte == b'\n').count() as u64
    }
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
        self.recent.drain(..(self.row - self.start) as usize);
        self.recent.extend_from_slice(&out[..read]);
        self.start = self.row;
        Ok(read)
    }
}

/// Reads a row; returns false at the end. Several spaces separate like one, and a line of spaces is empty.
pub(super) fn read_record<R: Read>(
    reader: &mut Reader<RowLimit<R>>,
    record: &mut ByteRecord,
    separator: u8,
) -> Result<bool, Problem> {
    loop {
        let row = reader.position().byte();
        let limit = reader.get_mut();
        (limit.left, limit.row) = (limit.max_row, row);
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

/// Whether the beginning of a text has two whole rows: perhaps a header, and a row of numbers.
pub(super) fn is_complete(head: &[u8], separator: u8, max_row: u64) -> Result<bool, Problem> {
    if head.len() as u64 > max_row {
        // A longer row fails.
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

/// Returns the first rows of the beginning of a text, without a row that its end cuts.
pub(super) fn first_rows(head: &[u8], whole: bool, separator: u8, max_row: u64) -> Result<Vec<ByteRecord>, Problem> {
    let (mut reader, mut rows) = (reader(head, separator, max_row), Vec::new());
    while rows.len() < FIRST_ROWS {
        let mut record = ByteRecord::new();
        match read_record(&mut reader, &mut record, separator) {
            // The first two rows are whole.
            Ok(true) if rows.len() < 2 || whole || reader.position().byte() < head.len() as u64 => rows.push(record),
            Err(problem) if rows.len() < 2 => return Err(problem),
            _ => break,
        }
    }
    Ok(rows)
}

/// Returns the position at which a line begins, counted from 0.
pub(super) fn line_start(head: &[u8], line: usize) -> usize {
    head.split_inclusive(|&byte| byte == b'\n').take(line).map(<[u8]>::len).sum()
}

/// Returns the line (counted from 1) of the first character at or after `offset` that does not end a line.
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

/// Returns the beginning of a field, on one line, for an error.
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
