//! How decimals are written in text.

/// What stands between the whole part and the decimals of numbers in text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decimal {
    /// 1.5
    Point,
    /// 1,5
    Comma,
}

impl Decimal {
    /// The number of a field that is written so.
    pub(super) fn number(self, field: &[u8]) -> Option<f64> {
        let text = std::str::from_utf8(field).ok()?;
        match self {
            Self::Comma if text.contains('.') => None,
            Self::Comma if text.contains(',') => text.replace(',', ".").parse().ok(),
            _ => text.parse().ok(),
        }
    }
}
