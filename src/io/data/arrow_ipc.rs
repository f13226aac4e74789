//! Arrow IPC files, also called Feather (version 2).
use super::arrow::{self, Batches, Grouped};
use super::columns::{Kind, Projection, short};
use super::damaged::{check_memory, damaged, guarded};
use super::file_stamp::FileStamp;
use super::npy::read_exact_at;
use crate::io::Problem;
use arrow_ipc::reader::FileReaderBuilder;
use arrow_ipc::{Block, Message, root_as_footer, root_as_message};
use arrow_schema::{DataType, Field, Schema};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use std::sync::Arc;

/// The first and the last bytes of a file.
const MAGIC: &[u8; 6] = b"ARROW1";
/// The bytes at the end of a file: the length of the footer and the magic bytes.
const TRAILER: u64 = 10;
/// An upper bound of the compression by LZ4 and Zstandard: a block of 128 KiB takes at least 4 bytes.
const MAX_RATIO: i64 = 1 << 16;

/// Opens an Arrow file, and reads the schema and the positions of the record batches.
pub(super) fn open(path: &Path) -> Result<Grouped, Problem> {
    let (file, stamp) = FileStamp::open(path)?;
    let (schema, group_rows) = guarded(|| read_places(&file, stamp.size()))?;
    let n_groups = group_rows.len();
    let read = move |file, projection: &Projection, first, skip| {
        let builder = FileReaderBuilder::new().with_projection(arrow::needed(projection));
        let mut reader = builder.build(BufReader::new(file)).map_err(damaged)?;
        if n_groups > 0 {
            reader.set_index(first).map_err(damaged)?;
        }
        Ok((Box::new(reader.map(|batch| batch.map_err(damaged))) as Batches, skip))
    };
    Grouped::new((file, stamp), Arc::new(schema), group_rows, Box::new(read))
}

/// Reads the footer and the headers of all batches, and checks that every length in them is possible, because memory is
/// later taken for them. Returns the schema and the number of rows of each record batch.
fn read_places(file: &File, size: u64) -> Result<(Schema, Vec<i64>), Problem> {
    let read = |at: u64, length: u64| {
        if at.checked_add(length).is_none_or(|end| end > size) {
            return Err(damaged("a part lies beyond its end; it may have been cut short"));
        }
        // At most the size of the file.
        let mut bytes = vec![0; length as usize];
        read_exact_at(file, &mut bytes, at).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => Problem::Changed,
            _ => Problem::io("read it")(e),
        })?;
        Ok(bytes)
    };
    let head = read(0, size.min(6))?;
    if head.starts_with(b"FEA1") {
        return Err(Problem::format(
            "Feather of version 1 is not read; write it with version 2 (in Python: pyarrow.feather.write_feather(table, name))",
        ));
    }
    if head != MAGIC || size < 8 + TRAILER {
        return Err(Problem::format("not an Arrow IPC file (.arrow, or .feather of version 2)"));
    }
    let trailer = read(size - TRAILER, TRAILER)?;
    let (length, magic) = trailer.split_at(4);
    let length = u64::try_from(i32::from_le_bytes([length[0], length[1], length[2], length[3]])).ok();
    let footer = length.and_then(|length| (size - TRAILER).checked_sub(length).map(|at| (at, length)));
    let Some((at, length)) = footer.filter(|_| magic == MAGIC) else {
        return Err(damaged("it has no footer; it was cut short, or is unfinished"));
    };
    let bytes = read(at, length)?;
    let footer = root_as_footer(&bytes).map_err(damaged)?;
    let schema = footer.schema().ok_or_else(|| damaged("its footer has no schema"))?;
    let schema = arrow_ipc::convert::try_fb_to_schema(schema).map_err(damaged)?;
    let rows_of = |block: &Block| -> Result<i64, Problem> {
        let part = |v: i64| u64::try_from(v).map_err(|_| damaged("a part has a negative length"));
        let (at, header, body) =
            (part(block.offset())?, part(block.metaDataLength().into())?, part(block.bodyLength())?);
        let end = at.checked_add(header).and_then(|at| at.checked_add(body));
        if end.is_none_or(|end| end > size) {
            return Err(damaged("a part lies beyond its end; it may have been cut short"));
        }
        let bytes = read(at, header)?;
        // A marker of four bytes, absent in old files, and the length.
        let skip = if bytes.starts_with(&[0xff; 4]) { 8 } else { 4 };
        let message = bytes.get(skip..).ok_or_else(|| damaged("a part has no header"))?;
        let message = root_as_message(message).map_err(damaged)?;
        check_batch(message, &schema, body, |offset| read(at + header + offset, 8))
    };
    for block in footer.dictionaries().into_iter().flatten() {
        rows_of(block)?;
    }
    let group_rows = footer.recordBatches().into_iter().flatten().map(rows_of).collect::<Result<_, _>>()?;
    Ok((schema, group_rows))
}

/// Checks that the lengths in the header of a batch are possible: those of its buffers in a body of `body` bytes, their
/// decompressed lengths (the first eight bytes of a compressed buffer, read by `head`), and those of its columns.
/// Returns the number of rows.
pub(super) fn check_batch(
    message: Message<'_>,
    schema: &Schema,
    body: u64,
    head: impl Fn(u64) -> Result<Vec<u8>, Problem>,
) -> Result<i64, Problem> {
    let dictionary = message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
    let rows = message.header_as_record_batch();
    let batch = rows.or(dictionary).ok_or_else(|| damaged("a part is not a record batch"))?;
    // Bytes of all buffers, decompressed.
    let mut decompressed = 0u64;
    for buffer in batch.buffers().into_iter().flatten() {
        let within = buffer.offset() >= 0
            && buffer.length() >= 0
            && buffer.offset().checked_add(buffer.length()).is_some_and(|end| end as u64 <= body);
        if !within {
            return Err(damaged("a buffer lies beyond its part"));
        }
        let mut claimed = buffer.length();
        if batch.compression().is_some() && buffer.length() >= 8 {
            claimed = head(buffer.offset() as u64)?.try_into().map(i64::from_le_bytes).unwrap_or(i64::MAX);
            if claimed > buffer.length().saturating_mul(MAX_RATIO) {
                return Err(damaged("a buffer claims more than it can hold"));
            }
            if claimed < 0 {
                // This buffer is not compressed, although others are.
                claimed = buffer.length();
            }
        }
        decompressed = decompressed.saturating_add(u64::try_from(claimed).unwrap_or(0));
    }
    check_memory(decompressed)?;
    let mut nodes = batch.nodes().into_iter().flatten().map(|node| node.length());
    let differs = |length: Option<i64>| length != Some(batch.length());
    match rows {
        // Each column has a node, followed by those of its children.
        Some(_) => {
            for field in schema.fields() {
                if differs(nodes.next()) {
                    return Err(damaged(format_args!(
                        "column `{}` and its record batch have different numbers of rows",
                        short(field.name())
                    )));
                }
                nodes.by_ref().take(descendants(field.data_type())).for_each(drop);
            }
        }
        None if differs(nodes.next()) => {
            return Err(damaged("a dictionary has another number of values than it claims"));
        }
        None => {}
    }
    let is_number = |field: &Arc<Field>| matches!(arrow::kind(field.data_type()), Kind::Number(_));
    if rows.is_some() && schema.fields().iter().any(is_number) {
        // A number takes at least a bit.
        let most = i64::try_from(decompressed).unwrap_or(i64::MAX).saturating_mul(8);
        if batch.length() > most {
            return Err(damaged("a record batch claims more rows than it can hold"));
        }
    }
    Ok(batch.length())
}

/// Returns the number of nodes of a column's descendants.
fn descendants(data_type: &DataType) -> usize {
    let of = |field: &Field| 1 + descendants(field.data_type());
    match data_type {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => of(field),
        DataType::Struct(fields) => fields.iter().map(|field| of(field)).sum(),
        DataType::Union(fields, _) => fields.iter().map(|(_, field)| of(field)).sum(),
        DataType::RunEndEncoded(ends, values) => of(ends) + of(values),
        _ => 0,
    }
}
