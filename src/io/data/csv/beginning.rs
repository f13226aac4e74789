//! What the first rows say of a table, and what is wrong with them.
use super::super::array::Dtype;
use super::super::columns::{Field, Kind, MAX_LISTED, Selection};
use super::super::decimal::{Spelling, text};
use super::super::header::FirstLine;
use super::super::stream::Stream;
use super::dialect::characters;
use super::records::{MAX_ROW, excerpt, is_complete, line_start, read_record, reader, too_long};
use crate::io::Problem;
use csv::ByteRecord;
use std::collections::HashSet;

/// Where the rows begin, the last comment before them, the separator, and how values are written.
pub(super) fn find_characters(
    stream: &mut Stream,
    selection: &Selection,
    max_row: u64,
) -> Result<(usize, Vec<u8>, (u8, Spelling)), Problem> {
    loop {
        let before = line_start(&stream.head, selection.skip_lines);
        let (skip, comment) = comments(&stream.head[before..]);
        let skip = before + skip;
        let content = &stream.head[skip..];
        let layout = characters(content, stream.whole, selection.decimal, &selection.na_values);
        if stream.whole || before < stream.head.len() && is_complete(content, layout.0, max_row)? {
            return Ok((skip, comment.to_vec(), layout));
        }
        if stream.head.len() as u64 > 2 * max_row {
            return Err(Problem::format(too_long(max_row)));
        }
        stream.extend()?;
    }
}

/// Whether the first row is a header: as the caller says or, where nothing is said, by its fields, or
/// because it has the names of the columns of the `first` file.
pub(super) fn has_header(
    rows: &[ByteRecord],
    first_line: &FirstLine,
    said: Option<bool>,
    first: Option<&[Field]>,
) -> bool {
    let has_first_names = |row: &ByteRecord| {
        let names = || first.into_iter().flatten().map(|field| field.name.as_deref());
        names().count() == row.len() && row.iter().zip(names()).all(|(field, name)| name == Some(&*text(field)))
    };
    match (said, first_line) {
        (Some(header), _) => header && !rows.is_empty(),
        (None, FirstLine::Names) => true,
        (None, FirstLine::Numbers) if first.is_none() => true,
        _ => rows.first().is_some_and(has_first_names),
    }
}

/// The number of columns, and whether lines end with a separator behind which nothing stands: rows
/// may, or the header, or both. A header with one name less than there are labelled columns gets an
/// empty one for the first.
pub(super) fn count_columns(
    names: &mut Option<ByteRecord>,
    rows: &[ByteRecord],
    header: bool,
    ends_empty: impl Fn(usize) -> Result<bool, Problem>,
) -> Result<(usize, bool), Problem> {
    let columns = names.as_ref().or(rows.first()).map_or(0, ByteRecord::len);
    let width = rows.first().map_or(columns, ByteRecord::len);
    let is_named = |names: &ByteRecord| names.iter().next_back().is_some_and(|name| !name.is_empty());
    match names.as_ref().is_some_and(is_named) {
        true if width == columns + 1 && width > 1 => {
            let trailing = width > 2 && ends_empty(width)?;
            if let (Some(record), true, false) = (names, header && are_labelled(rows), trailing) {
                *record = std::iter::once(&b""[..]).chain(record.iter()).collect();
                return Ok((width, false));
            }
            Ok((columns, trailing))
        }
        false
            if width > 1
                && (rows.is_empty() || width == columns && ends_empty(width)? || header && width + 1 == columns) =>
        {
            Ok((columns - 1, true))
        }
        _ => Ok((columns, false)),
    }
}

/// What to know of a first line of numbers, of which nobody said what it is.
pub(super) fn about_header(
    first_line: &FirstLine,
    names: Option<&ByteRecord>,
    rows: &[ByteRecord],
    header: bool,
    spelling: &Spelling,
) -> Option<String> {
    let line = names.filter(|_| header).or(rows.first());
    let mut numbers = line.into_iter().flatten().filter(|field| spelling.decimal.number(field).is_some());
    let first = numbers.next().map_or_else(String::new, text);
    let numbers = numbers.next_back().map_or(first.clone(), |last| format!("{first} to {}", text(last)));
    match first_line {
        FirstLine::Numbers if header => Some(format!(
            "the first line, with the numbers {numbers}, was taken as a header; --header no says that it is a sample"
        )),
        FirstLine::Doubtful if names.is_none() => Some(format!(
            "the first line holds the numbers {numbers} and was taken as a sample; --header yes says that it is a header"
        )),
        _ => None,
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
pub(super) fn named_by(comment: &[u8], separator: u8, count: usize) -> Option<ByteRecord> {
    let names = match comment.strip_prefix(b"#")? {
        blank if blank.first().is_some_and(u8::is_ascii_whitespace) => blank.trim_ascii_start(),
        // Where no blank follows, the character is a part of the first name.
        _ => comment,
    };
    let mut record = ByteRecord::new();
    let found = read_record(&mut reader(names, separator, MAX_ROW), &mut record, separator).ok()?;
    (found && count > 1 && record.len() == count).then_some(record)
}

/// Whether the first field of each row is a label of its own, as R writes them.
fn are_labelled(rows: &[ByteRecord]) -> bool {
    let labels: HashSet<&[u8]> = rows.iter().filter_map(|row| row.get(0)).filter(|label| !label.is_empty()).collect();
    labels.len() == rows.len() && rows.len() > 1 && rows.iter().all(|row| row.len() == rows[0].len())
}

/// What the columns hold, texts where most of the values of the first rows, two at least, are no
/// numbers; and whether
/// values of them are missing.
pub(super) fn kinds(
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
pub(super) fn check_first_rows(
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
pub(super) fn check_second_header(
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
pub(super) fn end_empty(head: &[u8], whole: bool, separator: u8, header: bool, width: usize) -> Result<bool, Problem> {
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
