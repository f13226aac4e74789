//! Conclusions from the first rows of a table, and their errors.
use super::super::array::Dtype;
use super::super::columns::{ColumnSelection, Field, Kind, MAX_ADVISED, MAX_LISTED, option_list, option_name};
use super::super::decimal::{Decimal, Spelling, text};
use super::super::header::{self, FirstLine};
use super::super::stream::Stream;
use super::dialect::{characters, decimals};
use super::records::{FIRST_ROWS, MAX_ROW, excerpt, is_complete, line_start, read_record, reader, too_long};
use crate::io::Problem;
use csv::ByteRecord;
use std::collections::HashSet;

type Layout = (u8, Spelling);

/// Finds the beginning of the rows, the last comment before them, the separator, and the notation of values.
pub(super) fn find_characters(
    stream: &mut Stream,
    selection: &ColumnSelection,
    max_row: u64,
) -> Result<(usize, Vec<u8>, Layout), Problem> {
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

/// Decides whether the first row is a header: as the caller says or, if unsaid, by its fields, or because it has the
/// names of the columns of the `first` file.
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

/// Refuses rows below one name that are numbers with decimal commas, or an index of the rows and whole numbers. Quotes
/// around a label show that it is one.
pub(super) fn check_decimals(
    rows: &[ByteRecord],
    head: &[u8],
    line: impl Fn(&ByteRecord) -> u64,
) -> Result<(), Problem> {
    let joined = |row: &ByteRecord| row.iter().collect::<Vec<_>>().join(&b',');
    let is_number = |row: &ByteRecord| {
        let start = row.position().map_or(0, |position| position.byte() as usize);
        let number = joined(row);
        let is_whole =
            row.len() == 1 || decimals(&number).is_some() && !head[start..].trim_ascii_start().starts_with(b"\"");
        is_whole && Decimal::Comma.number(&number).is_some()
    };
    match rows.iter().find(|row| row.len() == 2) {
        Some(row) if rows.iter().all(is_number) => Err(Problem::format(format!(
            "line {}: `{}` is a number with a decimal comma, or an index and a number; --decimal , or --decimal . says which \
             for data; in any file, write the number with a point, or a comma before the header",
            line(row),
            text(&joined(row))
        ))),
        _ => Ok(()),
    }
}

/// Returns the number of columns, and whether lines end with a separator: rows may, or the header, or both. A header
/// with one name fewer than there are columns of labelled rows gets an empty first name.
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

/// Returns a remark on a first line of numbers, if the caller does not say what it is.
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
            "the first line holds the numbers {numbers} and was taken as a sample; --header yes says that it is a \
             header"
        )),
        _ => None,
    }
}

/// Finds the first line that is neither empty nor a comment, and the last comment before it.
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

/// Returns the names in a comment if there are `count`.
pub(super) fn named_by(comment: &[u8], separator: u8, count: usize) -> Option<ByteRecord> {
    let names = match comment.strip_prefix(b"#")? {
        blank if blank.first().is_some_and(u8::is_ascii_whitespace) => blank.trim_ascii_start(),
        // Without a blank, the character is a part of the first name.
        _ => comment,
    };
    let mut record = ByteRecord::new();
    let found = read_record(&mut reader(names, separator, MAX_ROW), &mut record, separator).ok()?;
    (found && count > 1 && record.len() == count).then_some(record)
}

/// Whether the first field of each row is a unique label, as R writes them.
fn are_labelled(rows: &[ByteRecord]) -> bool {
    let labels: HashSet<&[u8]> = rows.iter().filter_map(|row| row.get(0)).filter(|label| !label.is_empty()).collect();
    labels.len() == rows.len() && rows.len() > 1 && rows.iter().all(|row| row.len() == rows[0].len())
}

/// Returns the kind of each column, and whether its values are missing in the first rows. A column holds texts if most
/// of its values, at least two, are not numbers.
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
            // If it is a number with the other decimal mark, the error for its line says so.
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

/// The first rows of a table, for advice about them.
#[derive(Clone, Copy)]
pub(super) struct Beginning<'a> {
    pub header: Option<&'a ByteRecord>,
    pub rows: &'a [ByteRecord],
    pub spelling: &'a Spelling,
    /// Whether to name the columns of texts.
    pub advises: bool,
}

/// Whether the caller does not choose columns.
pub(super) fn has_no_choice(selection: &ColumnSelection) -> bool {
    let ColumnSelection { columns, drop, id, by, model, .. } = selection;
    columns.is_empty() && drop.is_empty() && id.is_none() && by.is_none() && model.is_none()
}

/// Returns the option that leaves out a table's columns of texts, after a space, and a note on it, so that one error
/// says all that is needed. Both are empty if there are no such columns.
fn without_texts(names: Option<&ByteRecord>, rows: &[ByteRecord], spelling: &Spelling) -> (String, String) {
    // The field after a separator that ends all lines is not read.
    let ends_empty = |row: &ByteRecord| row.iter().next_back().is_some_and(<[u8]>::is_empty);
    let trailing = names.is_none() && rows.iter().all(ends_empty);
    let columns = rows.first().map_or(0, |row| row.len() - usize::from(trailing));
    let (kinds, have_missing) = kinds(rows, columns, spelling, |_| 0);
    let (numbers, texts): (Vec<usize>, Vec<usize>) =
        (0..columns).partition(|&column| matches!(kinds[column], Kind::Number(_)));
    let missing = match numbers.iter().any(|&column| have_missing[column]) {
        true => " (values are missing, which --missing allows)",
        false => "",
    };
    let (option, chosen) = if numbers.len() < texts.len() { ("columns", &numbers) } else { ("drop", &texts) };
    if texts.is_empty() || !(1..=MAX_ADVISED).contains(&chosen.len()) {
        return (String::new(), missing.into());
    }
    let name = |column: usize| names.and_then(|names| names.get(column)).map(text).filter(|name| !name.is_empty());
    let list = option_list(chosen.iter().map(|&column| option_name(name(column).as_deref(), column)));
    (format!(" --{option} {list}"), format!(", and leaves out texts{missing}"))
}

/// Refuses lines before the table: first lines whose lengths differ from those of all later lines.
pub(super) fn check_first_rows(table: Beginning<'_>, line: impl Fn(&ByteRecord) -> u64) -> Result<(), Problem> {
    let all: Vec<&ByteRecord> = table.header.into_iter().chain(table.rows).collect();
    let width = all.last().map_or(0, |row| row.len());
    let as_long = all.iter().rev().take_while(|row| row.len() == width).count();
    let mut first = all.len() - as_long;
    // A header may have one name more or less.
    let is_header = |row: &ByteRecord| {
        let ends_empty = row.iter().next_back().is_some_and(<[u8]>::is_empty);
        row.len() + 1 == width || row.len() == width + 1 && ends_empty
    };
    if first > 1 && is_header(all[first - 1]) {
        first -= 1;
    }
    if first == 0 || as_long < 3 || width < 2 || all[..first].iter().any(|row| row.len() == width) {
        return Ok(());
    }
    let mut rows: Vec<ByteRecord> = all[first..].iter().copied().cloned().collect();
    let names = (header::first_line(&rows, table.spelling) == FirstLine::Names).then(|| rows.remove(0));
    let (option, note) = match table.advises {
        true => without_texts(names.as_ref(), &rows, table.spelling),
        false => Default::default(),
    };
    let before = line(all[first]) - 1;
    Err(Problem::format(format!(
        "line {} has {} fields where line {before} has {}; --skip-lines {before}{option} skips the lines \
         before the table{note}",
        before + 1,
        all[first].len(),
        all[first - 1].len()
    )))
}

/// Refuses lines after the table, in a text that was read to its end: last lines whose lengths differ from those of all
/// earlier lines.
pub(super) fn check_last_rows(
    table: Beginning<'_>,
    columns: usize,
    line: impl Fn(&ByteRecord) -> u64,
) -> Result<(), Problem> {
    let rows = table.rows;
    let as_long = rows.iter().take_while(|row| row.len() == columns).count();
    let is_table = as_long > 0 && rows.len() + 1 < FIRST_ROWS && rows[as_long..].iter().all(|row| row.len() != columns);
    let Some(behind) = rows.get(as_long).filter(|_| is_table) else { return Ok(()) };
    let (option, note) = match table.advises {
        true => without_texts(table.header, &rows[..as_long], table.spelling),
        false => Default::default(),
    };
    Err(Problem::format(behind_the_table(line(behind), behind, columns, &option, &note)))
}

/// Returns the error about a row after which no row is as long as the earlier ones. The `option` leaves out columns,
/// which the `note` explains.
pub(super) fn behind_the_table(line: u64, row: &ByteRecord, columns: usize, option: &str, note: &str) -> String {
    format!(
        "{}; if the table ends before it, --last-line {}{option} says so{note}",
        of_another_length(line, row, columns),
        line - 1
    )
}

/// Returns the error about a row whose length differs from that of the earlier rows.
pub(super) fn of_another_length(line: u64, row: &ByteRecord, columns: usize) -> String {
    format!("line {line} has {} fields where the lines before have {columns}", row.len())
}

/// Refuses lines between the header and the numbers, such as units: they have no number in columns of numbers.
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
    let has_text = |row: &ByteRecord| of_numbers(row).iter().any(Option::is_none);
    // The reader reports a row of another length.
    let is_header = |row: &ByteRecord, numbers: usize| row.len() == rows[numbers].len() && has_text(row);
    match rows.iter().position(has_number) {
        Some(numbers) if rows[..numbers].iter().any(|row| is_header(row, numbers)) => {
            let (option, note) = without_texts(None, &rows[numbers..], spelling);
            Err(Problem::format(format!(
                "line {} has no number where line {} has some; --skip-lines {} --header no{option} skips the \
                 header and the lines between{note}",
                line(&rows[0]),
                line(&rows[numbers]),
                line(&rows[numbers]) - 1
            )))
        }
        _ => Ok(()),
    }
}

/// Returns advice about a text that yields a single column of texts: it may have numbers further down, or columns of
/// fixed widths. There are `above` lines before it.
pub(super) fn undivided(head: &[u8], whole: bool, above: usize) -> Option<String> {
    /// Enough lines to rule out accident.
    const ENOUGH: usize = 3;
    let lines: Vec<String> = head.split(|&byte| byte == b'\n').map(text).collect();
    let lines = &lines[..lines.len() - usize::from(!whole)];
    let numbers = |line: &String| {
        let mut fields = line.split([' ', '\t', ',', ';', '\r']).filter(|field| !field.is_empty());
        let count = fields.clone().count();
        (count > 1 && fields.all(|field| field.parse::<f64>().is_ok())).then_some(count)
    };
    let of_numbers = lines.windows(ENOUGH).position(|lines| {
        let first = numbers(&lines[0]);
        first.is_some() && lines.iter().all(|line| numbers(line) == first)
    });
    let gaps = |line: &String| line.trim().contains("  ");
    match of_numbers {
        Some(first) => {
            let before = above + first;
            Some(format!("numbers begin on line {}: --skip-lines {before} --header no says so", before + 1))
        }
        None if lines.iter().filter(|line| gaps(line)).count() >= ENOUGH => Some(
            "its columns seem to have fixed widths, and no character separates them: write them with commas, as \
             pandas does by read_fwf(…).to_csv(…)"
                .into(),
        ),
        None => None,
    }
}

/// Whether the last of `width` fields is empty in all rows of that length at the beginning of a text, except the
/// header.
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
