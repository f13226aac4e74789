//! The notation of numbers, missing values and texts in text.
use encoding_rs::WINDOWS_1252;

/// Fields of missing values, in upper or lower case.
const MISSING: [&str; 14] =
    ["", "NA", "NaN", "null", "N/A", "#N/A", "#NA", "<NA>", "None", "NaT", "-NaN", "1.#IND", "-1.#IND", "?"];

/// The decimal mark of numbers in text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decimal {
    /// 1.5
    Point,
    /// 1,5
    Comma,
}

impl Decimal {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Point => Self::Comma,
            Self::Comma => Self::Point,
        }
    }

    /// Parses a field with this decimal mark.
    pub(super) fn number(self, field: &[u8]) -> Option<f64> {
        let text = std::str::from_utf8(field).ok()?;
        match self {
            Self::Comma if text.contains('.') => None,
            Self::Comma if text.contains(',') => text.replace(',', ".").parse().ok(),
            _ => text.parse().ok(),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Spelling {
    pub decimal: Decimal,
    /// Further texts that stand for a missing value.
    pub na_values: Vec<String>,
}

impl Spelling {
    /// Whether a field stands for a missing value.
    pub fn is_missing(&self, field: &[u8]) -> bool {
        let texts = self.na_values.iter().map(String::as_str).chain(MISSING);
        texts.into_iter().any(|missing| field.eq_ignore_ascii_case(missing.as_bytes()))
    }

    /// Returns the number of a field: NaN if missing, 0 or 1 for a truth value, `None` for anything else.
    pub fn value(&self, field: &[u8]) -> Option<f64> {
        let truth = |word: &str, value| field.eq_ignore_ascii_case(word.as_bytes()).then_some(value);
        (self.decimal.number(field))
            .or_else(|| self.is_missing(field).then_some(f64::NAN))
            .or_else(|| truth("true", 1.0))
            .or_else(|| truth("false", 0.0))
    }
}

/// Decodes a field as UTF-8 or, if invalid, as Windows-1252, which includes Latin-1.
pub(super) fn text(field: &[u8]) -> String {
    match std::str::from_utf8(field) {
        Ok(text) => text.into(),
        Err(_) => WINDOWS_1252.decode_without_bom_handling(field).0.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_values_are_nan() {
        let spelling = |decimal, na_values: &[&str]| Spelling {
            decimal,
            na_values: na_values.iter().map(|&t| t.into()).collect(),
        };
        let point = spelling(Decimal::Point, &[]);
        for text in ["", "NA", "NaN", "nan", "null", "NULL", "n/a", "#N/A", "<NA>", "None", "NaT", "?"] {
            assert!(point.value(text.as_bytes()).unwrap().is_nan(), "{text}");
        }
        let values = [b"-1e3" as &[u8], b"True", b"false"].map(|text| point.value(text));
        assert_eq!(values, [Some(-1000.0), Some(1.0), Some(0.0)]);
        let comma = spelling(Decimal::Comma, &[]);
        let values = [b"-1,5e3" as &[u8], b"0,25", b"7", b"1.5", b"1,2,3", b"NA"].map(|text| comma.value(text));
        assert_eq!(values[..5], [Some(-1500.0), Some(0.25), Some(7.0), None, None]);
        assert!(values[5].unwrap().is_nan());
        for text in ["no", ".", "-", "1,5", "NAN0"] {
            assert!(point.value(text.as_bytes()).is_none(), "{text}");
        }
        let named = spelling(Decimal::Point, &[".", "No Answer"]);
        for text in [".", "no answer", "NA"] {
            assert!(named.value(text.as_bytes()).unwrap().is_nan(), "{text}");
        }
    }
}
