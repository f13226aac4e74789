//! Decides whether the first line of a text is a header.
use super::decimal::{Decimal, Spelling, text};
use csv::ByteRecord;

/// The least count of numbers in a row for which equal steps are not an accident.
const FEW: usize = 3;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum FirstLine {
    /// Names, none of which is a number.
    Names,
    /// Names, some or all of which are numbers, such as years, wavelengths or pandas' column numbers.
    Numbers,
    Sample,
    /// A sample whose numbers rise by equal steps, as those of a header may.
    Doubtful,
}

/// Judges the first line by the first rows of a text.
///
/// Numbers are a header if a text stands above numbers and beside whole ones, or if they have equal steps and differ
/// from all numbers below: by their count of decimals, or by lying far outside of their range.
pub(super) fn first_line(rows: &[ByteRecord], spelling: &Spelling) -> FirstLine {
    let Some((first, below)) = rows.split_first() else { return FirstLine::Sample };
    // Rows of another length are footnotes, or errors that the reader reports.
    let n_below = below.len();
    let below: Vec<&ByteRecord> = below.iter().filter(|row| row.len() == first.len()).collect();
    let number = |field: &[u8]| spelling.decimal.number(field).filter(|number| number.is_finite());
    if first.iter().all(|field| spelling.decimal.number(field).is_none()) {
        let all_missing = first.iter().all(|field| spelling.is_missing(field));
        return if all_missing { FirstLine::Sample } else { FirstLine::Names };
    }
    let (mut names, mut above_numbers, mut above_index) = (Vec::new(), false, false);
    for (column, field) in first.iter().enumerate() {
        let under = || below.iter().filter_map(move |row| row.get(column)).filter(|field| !spelling.is_missing(field));
        if let Some(value) = number(field) {
            names.push((column, field, value));
        } else if field.is_empty() && column == 0 {
            above_index = below.len() > 1
                && below.iter().enumerate().all(|(row, fields)| fields.get(0).and_then(number) == Some(row as f64));
            if !above_index {
                return FirstLine::Sample;
            }
        } else if spelling.is_missing(field) || !text(field).starts_with(|c: char| c.is_alphabetic() || c == '_') {
            return FirstLine::Sample;
        } else if under().next().is_some() && under().all(|field| number(field).is_some()) {
            above_numbers = true;
        } else if under().any(|under| under == field) {
            // It is a value of the column.
            return FirstLine::Sample;
        }
    }
    if 2 * below.len() <= n_below {
        return FirstLine::Sample;
    }
    let values: Vec<f64> = names.iter().map(|(_, _, value)| *value).collect();
    let count_from_zero = values.iter().enumerate().all(|(at, &value)| value == at as f64);
    if above_numbers && names.iter().all(|(_, field, _)| field.iter().all(u8::is_ascii_digit))
        || above_index && count_from_zero
    {
        return FirstLine::Numbers;
    }
    let of_row = |row: &ByteRecord| -> Vec<f64> {
        names.iter().filter_map(|(column, ..)| row.get(*column).and_then(number)).collect()
    };
    let others_too = below.iter().any(|row| {
        let row = of_row(row);
        row.len() == values.len() && row.len() >= FEW && has_equal_steps(&row)
    });
    // Columns without values are ignored.
    let under = names.iter().map(|(column, field, value)| {
        let under = below.iter().filter_map(|row| row.get(*column)).filter(|field| number(field).is_some());
        (*field, *value, under.collect::<Vec<_>>())
    });
    let under: Vec<_> = under.filter(|(.., under)| !under.is_empty()).collect();
    let stand_out = below.len() > 1
        && under.len() >= FEW.min(values.len())
        && under.iter().all(|(field, value, under)| stands_out((field, *value), under, spelling.decimal));
    match has_equal_steps(&values) {
        true if stand_out && !others_too && values.len() >= FEW => FirstLine::Numbers,
        true if count_from_zero || stand_out && !others_too && values[1] - values[0] == 1.0 => FirstLine::Doubtful,
        _ => FirstLine::Sample,
    }
}

/// Whether at least two numbers rise by the same step, except for rounding.
fn has_equal_steps(values: &[f64]) -> bool {
    let [first, second, ..] = *values else { return false };
    let step = second - first;
    // Names are written with few digits.
    step > 0.0 && values.windows(2).all(|pair| (pair[1] - pair[0] - step).abs() <= 1e-6 * step)
}

/// Whether a number differs from all below it in its count of decimals, or lies further from them than they do from
/// each other.
fn stands_out((field, value): (&[u8], f64), below: &[&[u8]], decimal: Decimal) -> bool {
    let mark = if decimal == Decimal::Comma { b',' } else { b'.' };
    let decimals = |field: &[u8]| match field.iter().position(|&byte| byte == mark) {
        Some(at) => field.len() - at,
        None => 0,
    };
    let values = || below.iter().filter_map(|field| decimal.number(field));
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    let far = value < least - (most - least) || value > most + (most - least);
    far || below.iter().all(|other| decimals(other) != decimals(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(text: &str) -> FirstLine {
        let spelling = Spelling { decimal: Decimal::Point, na_values: Vec::new() };
        let rows: Vec<ByteRecord> = text.lines().map(|line| line.split(',').collect::<Vec<_>>().into()).collect();
        first_line(&rows, &spelling)
    }

    #[test]
    fn numbers_may_be_names() {
        for text in [
            "2019,2020,2021\n0.1,0.2,0.9\n0.3,0.1,0.2\n",
            "400.5,401.0,401.5\n0.123,0.311,0.500\n0.250,0.001,0.111\n",
            "0,1,2\n0.5,1.5,7.5\n1.5,0.5,2.5\n",
            ",0,1\n0,3,4\n1,5,5\n2,0,1\n",
            ",0\n0,3\n1,5\n",
            "2019,2020,2021\n12,17,15\n11,19,14\n",
            "country,2019,2020,2021\nc0,0.1,0.2,0.9\nc1,0.3,0.1,0.2\n",
            "country,1960,1961,1962,1963\nc0,4.8,4.7,4.6,\nc1,7.4,7.5,7.3,\n",
            "id,2020,2021\n1,2,3\n",
        ] {
            assert_eq!(look(text), FirstLine::Numbers, "{text}");
        }
    }

    #[test]
    fn samples_are_no_names() {
        for text in [
            // Whole numbers among whole numbers; rows that all rise; a missing first value.
            "1,2,3\n4,2,5\n7,1,9\n",
            "1,2,3\n4.5,5.5,6.5\n7.5,8.5,9.5\n",
            ",1.5\n2,2.5\n3,0.5\n",
            "NA,1,2\n0.5,0.5,0.1\n",
            "5.1,3.5,1.4\n4.9,3.0,1.4\n",
            // A column of texts in a table without a header, and a typing error.
            "setosa,5.1,3.5,1.4\nsetosa,4.9,3.0,1.4\n",
            "1.O5,2\n1.1,2\n",
            "?,1.5\n2,3\n",
            "1,2,3\n0.5,0.7,0.1,1.1\n0.1,0.2,0.3,1.2\n",
        ] {
            assert_eq!(look(text), FirstLine::Sample, "{text}");
        }
        for text in ["0,1,2\n3,5,5\n1,4,2\n", "0,1\n3.5,2.5\n1.5,0.5\n", "2019,2020\n1,5\n2,3\n"] {
            assert_eq!(look(text), FirstLine::Doubtful, "{text}");
        }
    }
}
