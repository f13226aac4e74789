//! Values of options that several commands have.

/// Reads a whole number above 0, also as 1e6.
pub fn whole_number(text: &str) -> Result<usize, String> {
    let number = text.parse::<usize>().ok().or_else(|| {
        let value: f64 = text.parse().ok()?;
        (value.fract() == 0.0 && (1.0..=1e15).contains(&value)).then_some(value as usize)
    });
    number.filter(|&n| n > 0).ok_or_else(|| "must be a whole number above 0, such as 1000 or 1e6".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers() {
        assert_eq!(whole_number("1e6"), Ok(1_000_000));
        assert_eq!(whole_number("12"), Ok(12));
        for bad in ["0", "-1", "1.5", "1e99", "nan", "x", ""] {
            assert!(whole_number(bad).is_err(), "{bad}");
        }
    }
}
