//! Reads the header of NumPy's array files, `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
//!
//! The time of `ndarray-npy`'s parser doubles with each nested bracket, so a header with 30 of them hangs the program.
//! This parser reads the header once, from left to right, and bounds its length, its nesting and the number of
//! dimensions.
use crate::io::Problem;
use std::io::{self, Read};

/// The longest header to read, in bytes: NumPy's own limit. The header of an array of numbers takes 128.
const MAX_LENGTH: usize = 10_000;
/// The deepest nesting of brackets: an array of numbers needs two levels.
const MAX_DEPTH: usize = 8;
/// The most dimensions to read: NumPy's own limit.
const MAX_DIMENSIONS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::io) struct Header {
    /// The type of the elements as the header spells it, with its quotes: for example `'<f4'`.
    pub descr: String,
    /// Whether the first index varies fastest.
    pub fortran: bool,
    pub shape: Vec<usize>,
    /// The position of the first element in the file, in bytes.
    pub start: u64,
}

impl Header {
    /// Reads the header and leaves the reader at the first element.
    pub fn read(reader: &mut impl Read) -> Result<Self, Problem> {
        let not_npy = |e: io::Error| match e.kind() {
            io::ErrorKind::UnexpectedEof => Problem::format("not a .npy file: it ends within the header"),
            _ => Problem::io("read it")(e),
        };
        // Magic string (6), version (2), length of the rest (2 or 4, little-endian).
        let mut head = [0; 12];
        reader.read_exact(&mut head[..10]).map_err(not_npy)?;
        if !head.starts_with(b"\x93NUMPY") {
            return Err(Problem::format("not a .npy file: it does not begin with NumPy's magic string"));
        }
        let before = match head[6] {
            1 => 10,
            2 | 3 => 12,
            version => return Err(Problem::format(format!("the .npy header has version {version}; 1 to 3 are read"))),
        };
        reader.read_exact(&mut head[10..before]).map_err(not_npy)?;
        // The last two bytes are zero in version 1.
        let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        if length > MAX_LENGTH {
            return Err(Problem::format(format!("the header claims {length} bytes; at most {MAX_LENGTH} are read")));
        }
        let mut text = vec![0; length];
        reader.read_exact(&mut text).map_err(not_npy)?;
        parse(&String::from_utf8_lossy(&text), (before + length) as u64)
            .map_err(|what| Problem::format(format!("the .npy header is not usable: {what}")))
    }

    /// Returns the kind of the elements (NumPy's letter), their size in bytes, and whether the most significant byte
    /// comes first. `None` for types other than numbers, truth values and texts.
    pub fn element(&self) -> Option<(char, u64, bool)> {
        let descr = self.descr.strip_prefix(['\'', '"'])?.strip_suffix(['\'', '"'])?;
        let mut characters = descr.chars();
        let (order, kind) = (characters.next()?, characters.next()?);
        let size: u64 = characters.as_str().parse().ok()?;
        let size = match kind {
            'b' | 'i' | 'u' | 'f' | 'c' | 'S' => size,
            'U' => size.checked_mul(4)?,
            _ => return None,
        };
        "<>|".contains(order).then_some((kind, size, order == '>'))
    }

    /// Checks that elements of `size` bytes in this shape take exactly the file's `body` bytes. Call it before memory
    /// is taken for them.
    pub fn check_size(&self, size: u64, body: u64) -> Result<(), Problem> {
        let needed = self.shape.iter().try_fold(size, |n, &length| n.checked_mul(u64::try_from(length).ok()?));
        if needed == Some(body) {
            return Ok(());
        }
        let needed = needed.map_or("too many".into(), |n| n.to_string());
        Err(Problem::format(format!(
            "an array of shape {:?} takes {needed} bytes, the file holds {body}: it was cut short or something was appended",
            self.shape
        )))
    }
}

fn parse(text: &str, start: u64) -> Result<Header, String> {
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    for (key, value) in members(text)? {
        let twice = match key.trim_matches(['\'', '"']) {
            "descr" => descr.replace(value.to_string()).is_some(),
            "fortran_order" => fortran
                .replace(match value {
                    "True" => true,
                    "False" => false,
                    _ => return Err("`fortran_order` is neither True nor False".into()),
                })
                .is_some(),
            "shape" => shape.replace(tuple(value)?).is_some(),
            _ => return Err("it has a member other than `descr`, `fortran_order` and `shape`".into()),
        };
        if twice {
            return Err(format!("it has the member {key} twice"));
        }
    }
    let missing = |name: &str| format!("`{name}` is missing");
    Ok(Header {
        descr: descr.ok_or_else(|| missing("descr"))?,
        fortran: fortran.ok_or_else(|| missing("fortran_order"))?,
        shape: shape.ok_or_else(|| missing("shape"))?,
        start,
    })
}

/// Returns keys and values of a Python dictionary as spelled.
fn members(text: &str) -> Result<Vec<(&str, &str)>, String> {
    const NOT_A_DICTIONARY: &str = "it is not a Python dictionary";
    let body = text.trim().strip_prefix('{').and_then(|t| t.strip_suffix('}')).ok_or(NOT_A_DICTIONARY)?;
    let mut members = Vec::new();
    let (mut depth, mut quote, mut escaped) = (0usize, None, false);
    let (mut begin, mut colon) = (0, None);
    // A comma is added, because the last member may have none.
    for (at, c) in body.char_indices().chain([(body.len(), ',')]) {
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(' | '[' | '{') => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(format!(
                        "its brackets are nested deeper than {MAX_DEPTH}; only arrays of numbers are read"
                    ));
                }
            }
            (None, ')' | ']' | '}') => depth = depth.checked_sub(1).ok_or(NOT_A_DICTIONARY)?,
            (None, ':') if depth == 0 && colon.is_none() => colon = Some(at),
            (None, ',') if depth == 0 => {
                match colon.take() {
                    Some(colon) => members.push((body[begin..colon].trim(), body[colon + 1..at].trim())),
                    None if body[begin..at].trim().is_empty() && at == body.len() => {}
                    None => return Err(NOT_A_DICTIONARY.into()),
                }
                begin = at + 1;
            }
            _ => {}
        }
    }
    if depth > 0 || quote.is_some() { Err(NOT_A_DICTIONARY.into()) } else { Ok(members) }
}

/// Parses the numbers of `(2, 3)`, `(2,)` or `()`. An L after a number, from Python 2, is skipped.
fn tuple(value: &str) -> Result<Vec<usize>, String> {
    let bad = || "`shape` is not a tuple of whole numbers that this machine can address".to_string();
    let inner = value.strip_prefix('(').and_then(|v| v.strip_suffix(')')).ok_or_else(bad)?.trim();
    if inner.is_empty() {
        return Ok(Vec::new());
    }
    let inner = inner.strip_suffix(',').unwrap_or(inner);
    let number = |text: &str| {
        let digits = text.trim().trim_end_matches('L');
        // Rust's `parse` accepts a plus sign, Python's tuples have none.
        if digits.starts_with('+') { Err(bad()) } else { digits.parse().map_err(|_| bad()) }
    };
    let shape: Vec<usize> = inner.split(',').map(number).collect::<Result<_, _>>()?;
    if shape.len() > MAX_DIMENSIONS {
        return Err(format!("`shape` has {} dimensions; at most {MAX_DIMENSIONS} are read", shape.len()));
    }
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> Result<(String, bool, Vec<usize>), String> {
        parse(text, 0).map(|h| (h.descr, h.fortran, h.shape))
    }

    #[test]
    fn what_numpy_writes_is_read() {
        let good = |descr: &str, fortran, shape: &[usize]| Ok((descr.to_string(), fortran, shape.to_vec()));
        for (text, wanted) in [
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n", good("'<f4'", false, &[2, 3])),
            ("{'shape': (), 'descr': '<U4', 'fortran_order': True}\n", good("'<U4'", true, &[])),
            ("{\"descr\":\"|b1\",\"fortran_order\":False,\"shape\":(7,)}", good("\"|b1\"", false, &[7])),
            ("{'descr': '>f8', 'fortran_order': False, 'shape': (3L, 1L)}", good("'>f8'", false, &[3, 1])),
            (
                "{'descr': [('a}', '<f4'), ('b', '<i8', (2,))], 'fortran_order': False, 'shape': (1,)}",
                good("[('a}', '<f4'), ('b', '<i8', (2,))]", false, &[1]),
            ),
        ] {
            assert_eq!(header(text), wanted, "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let with = |shape: &str| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}");
        for (text, part) in [
            ("", "not a Python dictionary"),
            ("{", "not a Python dictionary"),
            ("{,}", "not a Python dictionary"),
            ("{'descr'}", "not a Python dictionary"),
            ("{'descr': '<f4'}", "`fortran_order` is missing"),
            ("{'descr': '<f4', 'fortran_order': 0}", "neither True nor False"),
            ("{'descr': '<f4', 'descr': '<f8'}", "twice"),
            ("{'descr': '<f4', 'colour': 'red'}", "a member other than"),
            (&with("(2, 3"), "not a Python dictionary"),
            (&with("2, 3)"), "not a Python dictionary"),
            (&with("'(2, 3)"), "not a Python dictionary"),
            (&with("2"), "`shape`"),
            (&with("(+2,)"), "`shape`"),
            (&with("(,)"), "`shape`"),
            (&with("(1,(1,(1,1)))"), "`shape`"),
            // A parser whose time doubles with each bracket would take 25 s for 22 of them.
            (&with(&"(1,".repeat(22)), "nested deeper"),
            (&with(&"(1,".repeat(1000)), "nested deeper"),
            (&with(&format!("({})", "1,".repeat(65))), "65 dimensions"),
        ] {
            let error = header(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn kinds_of_elements() {
        let element =
            |descr: &str| Header { descr: descr.into(), fortran: false, shape: Vec::new(), start: 0 }.element();
        assert_eq!(element("'<f4'"), Some(('f', 4, false)));
        assert_eq!(element("'>f8'"), Some(('f', 8, true)));
        assert_eq!(element("'<U9'"), Some(('U', 36, false)));
        for other in ["'|O'", "[('a', '<f4')]", "'<f'", "<f4", "'<U9223372036854775807'", "''", "'"] {
            assert_eq!(element(other), None, "{other}");
        }
    }
}
