//! Arrow IPC streams: consecutive messages without a footer, as programs write them to pipes.
use super::arrow::{self, BatchRows};
use super::arrow_ipc::check_batch;
use super::columns::{Field, Projection};
use super::damaged::{check_memory, damaged, guarded};
use super::file_stamp::FileStamp;
use super::stream::{self, ARROW, Stamp, Stream};
use crate::io::Problem;
use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::root_as_message;
use arrow_schema::{Schema, SchemaRef};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A stream whose schema was read.
pub(super) struct ArrowStream {
    path: PathBuf,
    pub schema: SchemaRef,
    /// The stamp of the file when the schema was read; `None` for a pipe.
    stamp: Option<FileStamp>,
    /// The unread rest of a pipe, which can be read only once.
    rest: Mutex<Option<Messages>>,
}

impl ArrowStream {
    pub fn is_at(path: &Path) -> Result<bool, Problem> {
        let (file, _) = FileStamp::open(path)?;
        let mut head = Vec::new();
        file.take(ARROW.len() as u64).read_to_end(&mut head).map_err(Problem::io("read it"))?;
        Ok(head == ARROW)
    }

    /// Reads the schema. The rows of a regular file are read from the path again.
    pub fn open(path: &Path, stream: Stream, regular: bool) -> Result<Self, Problem> {
        let stamp = stream.stamp.value();
        let messages = guarded(|| Messages::begin(stream))?;
        let schema = messages.schema.clone();
        Ok(Self { path: path.into(), schema, stamp, rest: Mutex::new((!regular).then_some(messages)) })
    }

    pub fn fields(&self) -> Vec<Field> {
        arrow::fields(&self.schema)
    }

    /// Reads the rows from the first on.
    pub fn rows(&self, projection: &Projection) -> Result<BatchRows, Problem> {
        let rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner).take();
        let messages = match rest {
            Some(messages) => messages,
            None => guarded(|| Messages::begin(Stream::reopen(&self.path, self.stamp)?))?,
        };
        let Messages { mut content, stamp, mut decoder, .. } = messages;
        let (needed, schema, mut message) = (arrow::needed(projection), self.schema.clone(), Buffer::default());
        let mut next = move || -> Result<Option<RecordBatch>, Problem> {
            loop {
                if message.is_empty() {
                    match read_message(content.as_mut())? {
                        Some(bytes) => message = checked(bytes, &schema)?,
                        None => return Ok(None),
                    }
                }
                if let Some(batch) = decoder.decode(&mut message).map_err(damaged)? {
                    return batch.project(&needed).map(Some).map_err(damaged);
                }
            }
        };
        let batches = std::iter::from_fn(move || next().transpose()).fuse();
        Ok(BatchRows::new(Box::new(batches), projection, stamp))
    }
}

/// The messages after the schema.
struct Messages {
    content: Box<dyn Read + Send>,
    stamp: Stamp,
    decoder: StreamDecoder,
    schema: SchemaRef,
}

impl Messages {
    fn begin(stream: Stream) -> Result<Self, Problem> {
        let (mut content, stamp) = stream.into_reader();
        let first = read_message(content.as_mut())?.ok_or_else(|| damaged("it has no schema"))?;
        let message = root_as_message(first.header()).map_err(damaged)?;
        let schema = message.header_as_schema().ok_or_else(|| damaged("it does not begin with a schema"))?;
        let schema = arrow_ipc::convert::try_fb_to_schema(schema).map_err(damaged)?;
        let mut decoder = StreamDecoder::new();
        // The decoder reads it when the next message comes.
        decoder.decode(&mut Buffer::from_vec(first.bytes)).map_err(damaged)?;
        Ok(Self { content, stamp, decoder, schema: Arc::new(schema) })
    }
}

/// The bytes of a message: its length, its header, and its body.
struct MessageBytes {
    bytes: Vec<u8>,
    header: std::ops::Range<usize>,
}

impl MessageBytes {
    fn header(&self) -> &[u8] {
        &self.bytes[self.header.clone()]
    }

    fn body(&self) -> &[u8] {
        &self.bytes[self.header.end..]
    }
}

/// Reads the next message; `None` at the end. Memory is taken as the bytes come, whatever the claimed length.
fn read_message(content: &mut dyn Read) -> Result<Option<MessageBytes>, Problem> {
    let mut bytes = Vec::new();
    let mut append = |bytes: &mut Vec<u8>, length: u64| {
        check_memory(length)?;
        let read = content.take(length).read_to_end(bytes).map_err(stream::problem)?;
        if read as u64 == length { Ok(()) } else { Err(damaged("it was cut short")) }
    };
    let begun = append(&mut bytes, 4);
    if bytes.is_empty() {
        // The mark at the end of a stream is optional.
        return Ok(None);
    }
    begun?;
    // Old streams lack the marker.
    if bytes == ARROW {
        append(&mut bytes, 4)?;
    }
    let start = bytes.len();
    let length = bytes[start - 4..].try_into().map(u32::from_le_bytes).unwrap_or(0);
    if length == 0 {
        return Ok(None);
    }
    append(&mut bytes, length.into())?;
    let header = start..bytes.len();
    let body = root_as_message(&bytes[header.clone()]).map_err(damaged)?.bodyLength();
    append(&mut bytes, u64::try_from(body).map_err(|_| damaged("a part has a negative length"))?)?;
    Ok(Some(MessageBytes { bytes, header }))
}

/// Returns the message of a batch for the decoder, which takes memory as the header claims; so the header is checked
/// first.
fn checked(message: MessageBytes, schema: &Schema) -> Result<Buffer, Problem> {
    let body = message.body();
    let header = root_as_message(message.header()).map_err(damaged)?;
    check_batch(header, schema, body.len() as u64, |offset| {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let head = at.checked_add(8).and_then(|end| body.get(at..end));
        head.map(<[u8]>::to_vec).ok_or_else(|| damaged("a buffer lies beyond its part"))
    })?;
    Ok(Buffer::from_vec(message.bytes))
}
