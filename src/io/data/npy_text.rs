//! Texts in NumPy's array files.
use super::npy::split;
use crate::io::Problem;
use ndarray_npy::npy::header as numpy;
use py_literal::Value;
use std::io;

/// Reads NumPy's 0-dimensional array of a text (`numpy.array("diag")`) from the bytes of a .npy.
pub(in crate::io) fn parse_text(bytes: &[u8]) -> Result<String, Problem> {
    let (shape, mut texts) = parse_unicode(bytes)?;
    match (&shape[..], texts.pop()) {
        ([], Some(text)) => Ok(text),
        _ => Err(Problem::format(format!("expected a text, found an array of shape {shape:?}"))),
    }
}

/// Reads NumPy's 1-dimensional array of texts from the bytes of a .npy.
pub(in crate::io) fn parse_texts(bytes: &[u8]) -> Result<Vec<String>, Problem> {
    match parse_unicode(bytes)? {
        (shape, texts) if shape.len() == 1 => Ok(texts),
        (shape, _) => Err(Problem::format(format!("the array of texts has shape {shape:?}; expected one dimension"))),
    }
}

fn parse_unicode(bytes: &[u8]) -> Result<(Vec<usize>, Vec<String>), Problem> {
    let (header, body) = split(bytes)?;
    let Some(('U', size, false)) = header.element() else {
        let (descr, shape) = (&header.descr, &header.shape);
        return Err(Problem::format(format!("expected texts, found an array of type {descr} and shape {shape:?}")));
    };
    header.check_size(size, body.len() as u64)?;
    // UCS-4, padded with zeros.
    let text = |characters: &[u8]| {
        let (characters, _) = characters.as_chunks::<4>();
        let text = characters.iter().map(|&c| char::from_u32(u32::from_le_bytes(c))).collect::<Option<String>>();
        Ok(text.ok_or_else(|| Problem::format("there is a text that is not Unicode"))?.trim_end_matches('\0').into())
    };
    // Nothing else bounds the number of empty texts.
    if size == 0 {
        return Err(Problem::format("there is a text without characters"));
    }
    let texts = body.chunks_exact(size as usize).map(text).collect::<Result<_, Problem>>()?;
    Ok((header.shape, texts))
}

/// Returns NumPy's 0-dimensional array of a text, as the bytes of a .npy.
pub(in crate::io) fn text_to_npy(text: &str) -> io::Result<Vec<u8>> {
    unicode_to_npy(&[text], Vec::new())
}

/// Returns NumPy's 1-dimensional array of texts, as the bytes of a .npy.
pub(in crate::io) fn texts_to_npy(texts: &[String]) -> io::Result<Vec<u8>> {
    unicode_to_npy(texts, vec![texts.len()])
}

fn unicode_to_npy<T: AsRef<str>>(texts: &[T], shape: Vec<usize>) -> io::Result<Vec<u8>> {
    let width = texts.iter().map(|text| text.as_ref().chars().count()).max().unwrap_or(0).max(1);
    let type_descriptor = Value::String(format!("<U{width}"));
    let header = numpy::Header { type_descriptor, layout: numpy::Layout::Standard, shape };
    let mut bytes = header.to_bytes().map_err(io::Error::other)?;
    for text in texts {
        let padded = text.as_ref().chars().map(u32::from).chain(std::iter::repeat(0)).take(width);
        bytes.extend(padded.flat_map(u32::to_le_bytes));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::npy::{parse, write_npy};
    use super::*;

    #[test]
    fn texts_round_trip() {
        for text in ["diag", "spherical", "", "é𝄞"] {
            let bytes = text_to_npy(text).unwrap();
            assert_eq!(parse_text(&bytes).unwrap(), text);
            assert!(parse(&bytes).is_err());
        }
        let mut numbers = Vec::new();
        write_npy(&ndarray::arr0(1.0f64), &mut numbers).unwrap();
        assert!(parse_text(&numbers).is_err());
    }
}
