//! Inputs made from good files by a few changes, or from random bytes.
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};

/// Pieces of text with a meaning in some format: numbers at the limits, words, brackets, signatures.
const TOKENS: [&[u8]; 44] = [
    b"NaN",
    b"-Infinity",
    b"inf",
    b"1e999",
    b"-1e-320",
    b"-1",
    b"0",
    b"1",
    b"18446744073709551615",
    b"18446744073709551616",
    b"9223372036854775807",
    b"4294967296",
    b"99999999999",
    b"1,",
    b",",
    b"\n",
    b"\r\n",
    b"\"",
    b"[",
    b"]",
    b"[[[[",
    b"]]",
    b"{",
    b"}",
    b"(",
    b")",
    b"((((((((((",
    b"null",
    b"true",
    b"full",
    b"tied",
    b"diag",
    b"spherical",
    b"'<f8'",
    b"'>f4'",
    b"'<U9'",
    b"\x93NUMPY",
    b"PK\x01\x02",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0",
    // NaN, infinity and 1e300, and the largest integer in postcard's encoding.
    b"\0\0\0\0\0\0\xf8\x7f",
    b"\0\0\0\0\0\0\xf0\x7f",
    b"\x9c\x75\x00\x88\x3c\xe4\x37\x7e",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
];

/// Returns an input: mostly a good file with one to four changes, sometimes random bytes.
pub fn input(rng: &mut impl Rng, good: &[Vec<u8>]) -> Vec<u8> {
    if rng.random_ratio(1, 20) {
        return random_bytes(rng, 300);
    }
    let mut bytes = choose(rng, good).clone();
    for _ in 0..rng.random_range(1..=4) {
        change(rng, &mut bytes, good);
    }
    bytes
}

pub fn change(rng: &mut impl Rng, bytes: &mut Vec<u8>, good: &[Vec<u8>]) {
    let (start, end) = range(rng, bytes.len());
    match rng.random_range(0..15) {
        0..=3 if !bytes.is_empty() => bytes[start.min(end - 1)] ^= 1 << rng.random_range(0..8),
        4..=5 if !bytes.is_empty() => bytes[start.min(end - 1)] = rng.random(),
        6 => bytes.truncate(start),
        7 => drop(bytes.drain(start..end)),
        8 => {
            let part = bytes[start..end].to_vec();
            bytes.splice(start..start, part);
        }
        9 => drop(bytes.splice(start..end, random_bytes(rng, 20))),
        10 => {
            // The beginning of this file and the end of another.
            let other = choose(rng, good);
            let (from, _) = range(rng, other.len());
            bytes.truncate(start);
            bytes.extend(&other[from..]);
        }
        11 => {
            let token = TOKENS.choose(rng).copied().unwrap_or_default();
            let end = bytes.len().min(start + token.len());
            drop(bytes.splice(start..end, token.iter().copied()));
        }
        12 => drop(bytes.splice(start..start, TOKENS.choose(rng).into_iter().copied().flatten().copied())),
        _ => replace_number(rng, bytes, start),
    }
}

/// Puts a token in place of the first number at or after `start`, or inserts it there.
fn replace_number(rng: &mut impl Rng, bytes: &mut Vec<u8>, start: usize) {
    let digit = |b: &u8| b.is_ascii_digit() || b"+-.eE".contains(b);
    let begin = bytes[start..].iter().position(u8::is_ascii_digit).map_or(start, |at| start + at);
    let length = bytes[begin..].iter().take_while(|b| digit(b)).count();
    bytes.splice(begin..begin + length, TOKENS.choose(rng).into_iter().copied().flatten().copied());
}

fn choose<'a>(rng: &mut impl Rng, good: &'a [Vec<u8>]) -> &'a Vec<u8> {
    good.choose(rng).expect("at least one good file")
}

/// Returns a short range within `0..length`, empty at the end.
fn range(rng: &mut impl Rng, length: usize) -> (usize, usize) {
    let start = rng.random_range(0..=length);
    (start, length.min(start + 1 + rng.random_range(0..16)))
}

fn random_bytes(rng: &mut impl Rng, most: usize) -> Vec<u8> {
    (0..rng.random_range(0..=most)).map(|_| rng.random()).collect()
}
