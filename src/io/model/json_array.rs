//! Reads arrays of numbers from JSON.
use crate::io::Problem;
use serde::de::{self, DeserializeSeed, Deserializer, SeqAccess, Unexpected, Visitor};
use std::borrow::Cow;
use std::fmt;

/// An array spelled in JSON as lists of lists of numbers, collected in row-major order. All lists at one depth must
/// have the same length; the first violation is recorded as an irregularity.
#[derive(Default)]
pub(super) struct JsonArray {
    values: Vec<f64>,
    /// The length of the lists at each depth, known from the end of the first list.
    lengths: Vec<Option<usize>>,
    /// The depth of the numbers; `None` before the first number.
    depth: Option<usize>,
    position: Vec<usize>,
    irregular: Option<String>,
}

impl JsonArray {
    /// Returns the shape and the values.
    pub fn into_parts(self, what: &str) -> Result<(Vec<usize>, Vec<f64>), Problem> {
        match self.irregular {
            Some(irregular) => Err(Problem::Format(format!("the {what} are not an array: {irregular}"))),
            None => Ok((self.lengths.into_iter().flatten().collect(), self.values)),
        }
    }

    fn note(&mut self, irregular: impl FnOnce(&[usize]) -> String) {
        if self.irregular.is_none() {
            self.irregular = Some(irregular(&self.position));
        }
    }

    fn number(&mut self, value: f64) {
        let depth = self.position.len();
        if self.lengths.len() > depth || *self.depth.get_or_insert(depth) != depth {
            self.mixed();
        }
        self.values.push(value);
    }

    fn mixed(&mut self) {
        self.note(|p| format!("at {p:?} (counted from 0) there is a number instead of a list, or the reverse"));
    }

    fn end_of_list(&mut self, length: usize) {
        let depth = self.position.len();
        match self.lengths[depth] {
            None => self.lengths[depth] = Some(length),
            Some(expected) if expected == length => {}
            Some(expected) => self.note(|p| {
                let place = match p {
                    [component] => format!("component {component}"),
                    p => format!("{p:?}"),
                };
                format!("{place} (counted from 0) has {length} values, those before have {expected}")
            }),
        }
    }
}

impl<'de> de::Deserialize<'de> for JsonArray {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut array = Self::default();
        Item(&mut array).deserialize(deserializer)?;
        Ok(array)
    }
}

struct Item<'a>(&'a mut JsonArray);

impl<'de> DeserializeSeed<'de> for Item<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Item<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let depth = self.0.position.len();
        if self.0.depth.is_some_and(|numbers| numbers <= depth) {
            self.0.mixed();
        }
        if self.0.lengths.len() <= depth {
            self.0.lengths.push(None);
        }
        let mut length = 0;
        loop {
            self.0.position.push(length);
            let item = list.next_element_seed(Item(self.0));
            self.0.position.pop();
            match item? {
                Some(()) => length += 1,
                None => break,
            }
        }
        self.0.end_of_list(length);
        Ok(())
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<(), E> {
        self.0.number(v);
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, v: u64) -> Result<(), E> {
        self.visit_f64(v as f64)
    }

    fn visit_i64<E: de::Error>(self, v: i64) -> Result<(), E> {
        self.visit_f64(v as f64)
    }

    // NaN and infinities, which Python writes although JSON lacks them, are read as numbers: the later check of the
    // parameters then names the component.

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.visit_f64(f64::NAN)
    }

    fn visit_str<E: de::Error>(self, v: &str) -> Result<(), E> {
        match v {
            "NaN" => self.visit_f64(f64::NAN),
            "Infinity" => self.visit_f64(f64::INFINITY),
            "-Infinity" => self.visit_f64(f64::NEG_INFINITY),
            _ => Err(E::invalid_type(Unexpected::Str(v), &self)),
        }
    }
}

/// Puts NaN, Infinity and -Infinity into quotes: Python's json module writes them as bare words, which JSON does not
/// allow.
pub(super) fn quote_non_finite(json: &str) -> Cow<'_, str> {
    const WORDS: [&str; 3] = ["NaN", "-Infinity", "Infinity"];
    if !json.contains(WORDS[0]) && !json.contains(WORDS[2]) {
        return Cow::Borrowed(json);
    }
    let (mut out, mut rest, mut in_string) = (String::with_capacity(json.len() + 64), json, false);
    while let Some(c) = rest.chars().next() {
        let word = WORDS.into_iter().find(|w| !in_string && rest.starts_with(w));
        let length = match word {
            Some(word) => word.len(),
            // A backslash and the character that it escapes.
            None if in_string && c == '\\' => rest.chars().take(2).map(char::len_utf8).sum(),
            None => c.len_utf8(),
        };
        in_string ^= c == '"';
        let quote = if word.is_some() { "\"" } else { "" };
        out.extend([quote, &rest[..length], quote]);
        rest = &rest[length..];
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<(Vec<usize>, Vec<f64>), String> {
        let array: JsonArray = serde_json::from_str(json).map_err(|e| e.to_string())?;
        array.into_parts("means").map_err(|e| e.to_string())
    }

    #[test]
    fn shapes() {
        assert_eq!(parse("3"), Ok((vec![], vec![3.0])));
        assert_eq!(parse("[1, -2, 3.5]"), Ok((vec![3], vec![1.0, -2.0, 3.5])));
        assert_eq!(parse("[[[1, 2]], [[3, 4]], [[5, 6]]]"), Ok((vec![3, 1, 2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0])));
        assert_eq!(parse("[[], []]"), Ok((vec![2, 0], vec![])));
        assert_eq!(parse("[]"), Ok((vec![0], vec![])));
    }

    #[test]
    fn irregular_lists() {
        for (json, message) in [
            ("[[1, 2], [3]]", "component 1 (counted from 0) has 1 values, those before have 2"),
            ("[[[1], [2]], [[3], [4, 5]]]", "[1, 1] (counted from 0) has 2 values, those before have 1"),
            ("[1, [2]]", "at [1]"),
            ("[[1], 2]", "at [1]"),
            ("[[], 1]", "at [1]"),
            ("[1, []]", "at [1]"),
        ] {
            let error = parse(json).unwrap_err();
            assert!(error.contains(message), "{json}: {error}");
        }
        assert!(parse("[{}]").unwrap_err().contains("expected a number or a list"));
    }

    #[test]
    fn only_bare_words_are_quoted() {
        assert_eq!(quote_non_finite("[1, 2]"), "[1, 2]");
        assert_eq!(quote_non_finite("[NaN,-Infinity,Infinity]"), "[\"NaN\",\"-Infinity\",\"Infinity\"]");
        let text = r#"{"NaN \" Infinity \\": NaN, "é\u00e9NaN": "-Infinity"}"#;
        assert_eq!(quote_non_finite(text), r#"{"NaN \" Infinity \\": "NaN", "é\u00e9NaN": "-Infinity"}"#);
    }
}
