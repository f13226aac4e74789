//! Bytes of a file or of standard input, decompressed.
use super::file_stamp::FileStamp;
use crate::io::Problem;
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

/// The name that stands for standard input.
const STANDARD_INPUT: &str = "-";
/// Bytes by which a format and a separator are recognised.
pub(super) const HEAD: u64 = 64 << 10;

/// Whether the path stands for standard input, which can be read only once.
pub(super) fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == STANDARD_INPUT
}

/// A stream of bytes from a file or from standard input. gzip and Zstandard are recognised by their first bytes, and decompressed.
pub(super) struct Stream {
    /// The beginning of the content, which [`into_reader`](Self::into_reader) gives once more.
    pub head: Vec<u8>,
    rest: Box<dyn Read + Send>,
    pub stamp: Stamp,
}

/// The file that is read, and what it was when it was opened; of a pipe nothing is known.
pub(super) struct Stamp(Option<(File, FileStamp)>);

impl Stamp {
    /// That of an open file.
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
        let (magic, rest) = beginning(source, 4).map_err(Problem::io("read it"))?;
        let whole = Cursor::new(magic.clone()).chain(rest);
        let content: Box<dyn Read + Send> = match magic[..] {
            [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(BufReader::new(whole))),
            [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::Decoder::with_buffer(BufReader::new(whole)).map_err(problem)?),
            _ => Box::new(whole),
        };
        let (head, rest) = beginning(content, HEAD).map_err(problem)?;
        Ok(Self { head, rest, stamp })
    }

    /// The whole content.
    pub fn into_reader(self) -> (Box<dyn Read + Send>, Stamp) {
        (Box::new(Cursor::new(self.head).chain(self.rest)), self.stamp)
    }
}

/// The problem that a failed read shows: errors that the system did not report are of decompression.
pub(super) fn problem(error: io::Error) -> Problem {
    match error.raw_os_error() {
        Some(_) => Problem::io("read it")(error),
        None => Problem::format(format!("the compressed content is damaged or cut short: {error}")),
    }
}

/// Reads the first bytes, fewer only if there are no more.
fn beginning<R: Read>(mut source: R, bytes: u64) -> io::Result<(Vec<u8>, R)> {
    let mut head = Vec::new();
    source.by_ref().take(bytes).read_to_end(&mut head)?;
    Ok((head, source))
}
