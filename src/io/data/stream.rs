//! Bytes of a file or of standard input, decompressed.
use super::file_stamp::FileStamp;
use crate::io::Problem;
use bzip2::bufread::MultiBzDecoder;
use encoding_rs_io::DecodeReaderBytes;
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

const STANDARD_INPUT: &str = "-";
/// The bytes by which a format and a separator are recognised.
pub(super) const HEAD: u64 = 64 << 10;
/// The beginning of a stream of Arrow IPC and of each of its messages, before the length of the message.
pub(super) const ARROW: [u8; 4] = [0xff; 4];
/// The marks at the beginning of a text that name its encoding.
const UTF_8: &[u8] = b"\xef\xbb\xbf";
const UTF_16: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];
/// The mark of UTF-32 begins like that of UTF-16.
const UTF_32: &[u8] = b"\xff\xfe\0\0";

/// Whether the path denotes standard input, which can be read only once.
pub(super) fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == STANDARD_INPUT
}

/// A stream of bytes from a file or from standard input. gzip, Zstandard and bzip2 are recognised by their first bytes,
/// and decompressed.
pub(super) struct Stream {
    /// The beginning of the content, which [`into_reader`](Self::into_reader) repeats.
    pub head: Vec<u8>,
    /// Whether the head is the whole content.
    pub whole: bool,
    rest: Box<dyn Read + Send>,
    pub stamp: Stamp,
}

/// The open file and its stamp at opening; `None` for a pipe.
pub(super) struct Stamp(Option<(File, FileStamp)>);

impl Stamp {
    #[cfg(feature = "parquet")]
    pub fn new(file: File, stamp: FileStamp) -> Self {
        Self(Some((file, stamp)))
    }

    /// Returns the stamp of the file; `None` for a pipe.
    pub fn value(&self) -> Option<FileStamp> {
        self.0.as_ref().map(|(_, stamp)| *stamp)
    }

    /// Returns [`Problem::Changed`] if the file has changed.
    pub fn check(&self) -> Result<(), Problem> {
        self.0.as_ref().map_or(Ok(()), |(file, stamp)| stamp.check(file))
    }
}

impl Stream {
    /// Reopens a file; [`Problem::Changed`] if it has changed.
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
            // A block or an empty file: a text may begin with the letters before.
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

    /// Returns the content as UTF-8 text without a mark. UTF-16 with its mark is decoded.
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
                "line {line} has a byte of zero: it is not a text, or UTF-16 without the mark (BOM) at its beginning; write it in UTF-8"
            )));
        }
        Ok(self)
    }

    /// Returns the content up to the end of a line, counted from 1; all of it for `None`.
    pub fn until_line(self, last: Option<usize>) -> Result<Self, Problem> {
        let Some(left) = last else { return Ok(self) };
        let (content, stamp) = self.into_reader();
        Self::of(Box::new(FirstLines { content, left }), stamp)
    }

    /// Doubles the head, if there is enough content.
    pub fn extend(&mut self) -> Result<(), Problem> {
        let more = self.head.len() as u64;
        let read = self.rest.by_ref().take(more).read_to_end(&mut self.head).map_err(problem)?;
        self.whole = (read as u64) < more;
        Ok(())
    }

    pub fn into_reader(self) -> (Box<dyn Read + Send>, Stamp) {
        (Box::new(Cursor::new(self.head).chain(self.rest)), self.stamp)
    }
}

/// Text whose lines end with a carriage return alone, as on early Macintoshes.
struct OldLines<R>(R);

impl<R: Read> Read for OldLines<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(out)?;
        out[..read].iter_mut().filter(|byte| **byte == b'\r').for_each(|byte| *byte = b'\n');
        Ok(read)
    }
}

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

/// Returns the problem behind a failed read. Errors that the system did not report come from decompression.
pub(super) fn problem(error: io::Error) -> Problem {
    match error.raw_os_error() {
        Some(_) => Problem::io("read it")(error),
        None if error.get_ref().is_some_and(|inner| inner.is::<TooLong>()) => Problem::format(error.to_string()),
        None => Problem::format(format!("the compressed content is damaged or cut short: {error}")),
    }
}

fn beginning<R: Read>(mut source: R, bytes: u64) -> io::Result<(Vec<u8>, R)> {
    let mut head = Vec::new();
    source.by_ref().take(bytes).read_to_end(&mut head)?;
    Ok((head, source))
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct TooLong(pub String);
