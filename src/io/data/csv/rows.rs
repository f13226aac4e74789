//! The rows of a table of text.
use super::super::array::Dtype;
use super::super::block::Block;
use super::super::columns::{Projection, option_list, option_name, short};
use super::super::decimal::{Decimal, text};
use super::super::stream::Stamp;
use super::beginning::{behind_the_table, of_another_length};
use super::dialect::Layout;
use super::records::{FIRST_ROWS, RowLimit, excerpt, read_record};
use crate::io::Problem;
use csv::{ByteRecord, Reader};
use std::io::Read;

/// The size of identifiers in bytes after which reading pauses.
const MAX_TEXT: u64 = 64 << 20;

pub(in crate::io::data) struct CsvRows {
    pub(super) reader: Reader<RowLimit<Box<dyn Read + Send>>>,
    pub(super) record: ByteRecord,
    pub(super) layout: Layout,
    pub(super) names: Vec<Option<String>>,
    pub(super) projection: Projection,
    pub(super) header_is_next: bool,
    pub(super) has_rows: bool,
    pub(super) stamp: Stamp,
}

impl CsvRows {
    /// Appends the next rows, at most `limit`, to a block and returns their number.
    pub fn read(&mut self, limit: usize, block: &mut Block) -> Result<usize, Problem> {
        let most = block.text_bytes() + MAX_TEXT;
        self.pass(limit, |rows| {
            rows.parse(block)?;
            Ok(block.text_bytes() < most)
        })
    }

    /// Skips the next rows, at most `limit`, and returns their number.
    pub fn skip(&mut self, limit: usize) -> Result<usize, Problem> {
        self.pass(limit, |_| Ok(true))
    }

    /// Calls `take` with each row until it returns false.
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
        // If the file has changed, report the change rather than its content.
        self.stamp.check()?;
        count
    }

    /// Reads the next row; returns false at the end.
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
                return Err(self.of_another_length());
            };
            return Err(Problem::format(format!(
                "line {} has `{}` after its last separator, where the first lines have nothing; a header with a name for each \
                 column says what it is",
                self.line(),
                excerpt(value)
            )));
        }
        self.has_rows |= more;
        Ok(more)
    }

    /// Returns the error about the current row, before which the table may have ended.
    fn of_another_length(&mut self) -> Problem {
        let (line, columns, row) = (self.line(), self.names.len(), self.record.clone());
        let comments = self.about_comments();
        Problem::Format(match self.has_rows && self.ends(columns) {
            true => behind_the_table(line, &row, columns, "", ""),
            false => format!("{}{comments}", of_another_length(line, &row, columns)),
        })
    }

    /// Whether no row of `columns` fields and only few rows follow: notes are short.
    fn ends(&mut self, columns: usize) -> bool {
        for _ in 0..FIRST_ROWS {
            match read_record(&mut self.reader, &mut self.record, self.layout.separator) {
                Ok(true) if self.record.len() != columns => {}
                end => return matches!(end, Ok(false)),
            }
        }
        false
    }

    fn parse(&self, block: &mut Block) -> Result<(), Problem> {
        for &column in &self.projection.columns {
            let field = &self.record[column];
            let value = self.layout.spelling.value(field).ok_or_else(|| self.not_a_number(column, field));
            block.push(value?, Dtype::F64);
        }
        if let Some(column) = self.projection.id {
            // `NA` and `null` may be ordinary texts here.
            let field = &self.record[column];
            block.push_text((!field.is_empty()).then(|| text(field)));
        }
        Ok(())
    }

    /// Returns a note on a line that looks like a comment.
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

    /// Returns the line of the current row, counted from 1. The reader counts empty lines before a row as part of it.
    fn line(&self) -> u64 {
        let line = self.record.position().map_or(1, csv::Position::line);
        self.layout.skipped_lines + line + self.reader.get_ref().line_feeds_before_row()
    }
}
