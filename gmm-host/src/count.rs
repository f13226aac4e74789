//! Counts in arguments of commands.

/// Parses a whole number above 0, also as 1e6 or 1_000_000.
pub fn whole_number(text: &str) -> Result<usize, String> {
    count(text).filter(|&n| n > 0).ok_or_else(|| "must be a whole number above 0, such as 1000 or 1e6".into())
}

/// Parses a whole number, which may be 0, also as 1e6 or 1_000_000.
pub fn whole_number_or_0(text: &str) -> Result<usize, String> {
    count(text).ok_or_else(|| "must be a whole number, such as 0, 1000 or 1e6".into())
}

fn count(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let between_digits =
        |at: usize| at > 0 && bytes[at - 1].is_ascii_digit() && bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
    if bytes.iter().enumerate().any(|(at, &byte)| byte == b'_' && !between_digits(at)) {
        return None;
    }
    let text = text.replace('_', "");
    text.parse().ok().or_else(|| {
        let value: f64 = text.parse().ok()?;
        (value.fract() == 0.0 && (0.0..=1e15).contains(&value)).then_some(value as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers() {
        assert_eq!(whole_number("1e6"), Ok(1_000_000));
        assert_eq!(whole_number("12"), Ok(12));
        assert_eq!(whole_number("1_000"), Ok(1_000));
        for bad in ["0", "-1", "1.5", "1e99", "nan", "x", "", "_1", "1_", "1__0", "1_e3"] {
            assert!(whole_number(bad).is_err(), "{bad}");
        }
        assert_eq!((whole_number_or_0("0"), whole_number_or_0("1.2e2")), (Ok(0), Ok(120)));
    }
}
