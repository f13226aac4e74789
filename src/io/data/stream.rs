//! Bytes of a file or of standard input, decompressed.
use super::file_stamp::FileStamp;
use crate::io::Problem;
use bzip2::bufread::MultiBzDecoder;
use encoding_rs_io::DecodeReaderBytes;
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

/// The name that stands for standard input.
const STANDARD_INPUT: &str = "-";
/// Bytes by which a format and a separator are recognised.
pub(super) const HEAD: u64 = 64 << 10;
/// The marks at the beginning of a text that name its encoding.
const UTF_8: &[u8] = b"\xef\xbb\xbf";
const UTF_16: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];
/// In UTF-32 the mark begins as that of UTF-16 does.
const UTF_32: &[u8] = b"\xff\xfe\0\0";

/// Whether the path stands for standard input, which can be read only once.
pub(super) fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == STANDARD_INPUT
}

/// A stream of bytes from a file or from standard input. gzip, Zstandard and bzip2 are recognised by
/// their first bytes, and decompressed.
pub(super) struct Stream {
    /// The beginning of the content, which [`into_reader`](Self::into_reader) gives once more.
    pub head: Vec<u8>,
    /// Whether the head is the whole content.
    pub whole: bool,
    rest: Box<dyn Read + Send>,
    pub stamp: Stamp,
}

/// The file that is read, and what it was when it was opened; of a pipe nothing is known.
pub(super) struct Stamp(Option<(File, FileStamp)>);

impl Stamp {
    /// That of an open file.
    #[cfg(feature = "parquet")]
    pub fn new(file: File, stamp: FileStamp) -> Self {
        Self(Some((file, stamp)))
    }

    /// What the file was; `None` for a pipe.
    pub fn value(&self) -> Option<FileStamp> {
        self.0.as_ref().map(|(_, stamp)| *stamp)
    }

    /// [`Problem::Changed`] if the file is not what it was.
    pub fn check(&self) -> Result<(), Problem> {
        self.0.as_ref().map_or(Ok(()), |(file, stamp)| stamp.check(file))
    }
}

impl Stream {
    /// Opens a file once more. [`Problem::Changed`] if it is not what it was.
    pub fn reopen(path: &Path, stamp: Option<FileStamp>) -> Result<Self, Problem> {
        let now = path.metadata().map_err(Problem::io("open it"))?;
        if FileStamp::of(&now) == stamp { Self::open(path) } else { Err(Problem::Changed) }
    }

    pub fn open(path: &Path) -> Result<Self, Problem> {
        let (source, stamp): (Box<dyn Read + Send>, Stamp) = if is_standard_input(path) {
            (Box::new(io::stdin()), Stamp(None))
        } else {
            let file = File::open(path).map_err(Problem::io("open it"))?;
            let metadata = file.metadata().map_err(Problem::io("open it"))?;
            if metadata.is_dir() {
                return Err(Problem::io("read it")(io::ErrorKind::IsADirectory.into()));
            }
            let stamp = FileStamp::of(&metadata);
            let same = stamp.map(|stamp| file.try_clone().map(|file| (file, stamp))).transpose();
            (Box::new(file), Stamp(same.map_err(Problem::io("open it"))?))
        };
        let (magic, rest) = beginning(source, 6).map_err(Problem::io("read it"))?;
        let whole = Cursor::new(magic.clone()).chain(rest);
        let content: Box<dyn Read + Send> = match magic[..] {
            [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(BufReader::new(whole))),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                Box::new(zstd::Decoder::with_buffer(BufReader::new(whole)).map_err(problem)?)
            }
            // A block, or an empty file; a text may begin with the letters before.
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41] | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72] => {
                Box::new(MultiBzDecoder::new(BufReader::new(whole)))
            }
            _ => Box::new(whole),
        };
        let stream = Self::of(content, stamp)?;
        if stream.head.is_empty() && is_standard_input(path) {
            return Err(Problem::format("standard input is empty: nothing was written to it"));
        }
        Ok(stream)
    }

    fn of(content: Box<dyn Read + Send>, stamp: Stamp) -> Result<Self, Problem> {
        let (head, rest) = beginning(content, HEAD).map_err(problem)?;
        let whole = (head.len() as u64) < HEAD;
        Ok(Self { head, whole, rest, stamp })
    }

    /// The content as text in UTF-8, without a mark: text in UTF-16 that has its mark is decoded.
    pub fn into_text(mut self) -> Result<Self, Problem> {
        if self.head.starts_with(UTF_32) {
            return Err(Problem::format("line 1: the text is in UTF-32; write it in UTF-8 or UTF-16"));
        }
        if self.head.starts_with(UTF_8) {
            self.head.drain(..UTF_8.len());
        } else if UTF_16.iter().any(|mark| self.head.starts_with(mark)) {
            let (content, stamp) = self.into_reader();
            self = Self::of(Box::new(DecodeReaderBytes::new(content)), stamp)?;
        }
        if self.head.contains(&b'\r') && !self.head.contains(&b'\n') {
            let (content, stamp) = self.into_reader();
            self = Self::of(Box::new(OldLines(content)), stamp)?;
        }
        if let Some(at) = self.head.iter().position(|&byte| byte == 0) {
            let line = 1 + self.head[..at].iter().filter(|&&byte| byte == b'\n').count();
            return Err(Problem::Format(format!(
                "line {line} has a byte of zero: it is no text, or text in UTF-16 without the mark (BOM) that says so; write it in UTF-8"
            )));
        }
        Ok(self)
    }

    /// The content up to the end of a line, which is counted from 1; all of it where none is named.
    pub fn until_line(self, last: Option<usize>) -> Result<Self, Problem> {
        let Some(left) = last else { return Ok(self) };
        let (content, stamp) = self.into_reader();
        Self::of(Box::new(FirstLines { content, left }), stamp)
    }

    /// Makes the head twice as long, if there is so much content.
    pub fn extend(&mut self) -> Result<(), Problem> {
        let more = self.head.len() as u64;
        let read = self.rest.by_ref().take(more).read_to_end(&mut self.head).map_err(problem)?;
        self.whole = (read as u64) < more;
        Ok(())
    }

    /// The whole content.
    pub fn into_reader(self) -> (Box<dyn Read + Send>, Stamp) {
        (Box::new(Cursor::new(self.head).chain(self.rest)), self.stamp)
    }
}

/// Text whose lines end with a carriage return alone, as programs for the first Macintoshes write it.
struct OldLines<R>(R);

impl<R: Read> Read for OldLines<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(out)?;
        out[..read].iter_mut().filter(|byte| **byte == b'\r').for_each(|byte| *byte = b'\n');
        Ok(read)
    }
}

/// So many lines of a content.
struct FirstLines<R> {
    content: R,
    left: usize,
}

impl<R: Read> Read for FirstLines<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = if self.left == 0 { 0 } else { self.content.read(out)? };
        for (at, _) in out[..read].iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            self.left -= 1;
            if self.left == 0 {
                return Ok(at + 1);
            }
        }
        Ok(read)
    }
}

/// The problem that a failed read shows: errors that the system did not report are of
/// decompression.
pub(super) fn problem(error: io::Error) -> Problem {
    match error.raw_os_error() {
        Some(_) => Problem::io("read it")(error),
        None if error.get_ref().is_some_and(|inner| inner.is::<TooLong>()) => Problem::format(error.to_string()),
        None => Problem::format(format!("the compressed content is damaged or cut short: {error}")),
    }
}

/// Reads the first bytes, fewer only if there are no more.
fn beginning<R: Read>(mut source: R, bytes: u64) -> io::Result<(Vec<u8>, R)> {
    let mut head = Vec::new();
    source.by_ref().take(bytes).read_to_end(&mut head)?;
    Ok((head, source))
}

/// Says that a part of a text is too long to be read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct TooLong(pub String);
