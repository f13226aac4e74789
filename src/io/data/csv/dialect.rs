//! The notation of a text: its separator and its decimals.
use super::super::decimal::{Decimal, Spelling};
use super::records::{MAX_ROW, first_rows, read_record, reader};
use csv::ByteRecord;

/// The separators to recognise besides spaces. The first of equally frequent ones is taken.
const SEPARATORS: [u8; 4] = [b',', b'\t', b';', b'|'];

#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub separator: u8,
    pub spelling: Spelling,
    /// The bytes of comments and of skipped lines before the first row, and the number of their lines.
    pub skip: u64,
    pub skipped_lines: u64,
    pub header: bool,
    /// Whether lines end with a separator.
    pub trailing: bool,
}

/// Finds the separator of a text and the notation of its values.
pub(super) fn characters(head: &[u8], whole: bool, decimal: Option<Decimal>, na_values: &[String]) -> (u8, Spelling) {
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

/// Whether a text whose fields are separated by `separator` certainly has decimals with a comma: some fields have them,
/// none has a point, and if commas separated the fields (`otherwise`), the first line would hold only numbers.
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
        // A number such as 1,500 may be in thousands.
        let beyond_doubt = |field: &[u8]| {
            decimals(field).is_some_and(|n| n != 3 || matches!(field, [b'0', b',', ..] | [b'-', b'0', b',', ..]))
        };
        found |= record.iter().any(|field| beyond_doubt(field) && Decimal::Comma.number(field).is_some());
    }
    found
}

/// Returns the number of digits after the first comma of a field, if it stands between digits.
pub(super) fn decimals(field: &[u8]) -> Option<usize> {
    let comma = field.iter().position(|&byte| byte == b',')?;
    let digits = field[comma + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    (digits > 0 && comma > 0 && field[comma - 1].is_ascii_digit()).then_some(digits)
}

/// Returns the most frequent separator of the first non-empty line, outside of quotes; spaces if there are only tabs or
/// none, and spaces divide the rows below.
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

/// Whether spaces divide the lines into numbers and perhaps texts: all first rows have the same length, except a
/// header with one name fewer, and each has a number. Tabs, if any, must divide them worse: into rows of unequal
/// length, or with several numbers in a field.
fn spaces_separate(head: &[u8], whole: bool, has_tabs: bool, spelling: &Spelling) -> bool {
    /// The number of rows to examine if nothing else could separate, so that later rows may be wrong.
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

#[cfg(test)]
mod tests {
    use super::super::super::stream::HEAD;
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
            // Perhaps thousands.
            ("a;b\n1,500;2\n", b';'),
            // One column, or two.
            ("1,5\n2,5\n", b','),
            ("1, 2, 3\n4, 5, 6\n", b','),
            ("1,2 ,3\n", b','),
            // Points as well.
            ("a;b\n1,5;2\n1,5;2.5\n", b';'),
            // Names with commas are not numbers.
            ("x, mm;y, mm\n1,5;2,5\n", b','),
            ("a;b\n,5;2,\n", b';'),
            ("a;b\nno 1,5;1,5,5\n", b';'),
        ] {
            assert_eq!(found(head.as_bytes(), true, None), (wanted, Decimal::Point), "{head}");
        }
        // A number cut by the end of the beginning is ignored.
        let long = format!("a;b\n{}1,500;2", "1;2\n".repeat(HEAD as usize / 4));
        let cut = &long.as_bytes()[..HEAD as usize];
        assert_eq!(found(cut, false, None), (b';', Decimal::Point));
        // The caller's choice counts.
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
