//! The .npz of a run: its draws as arrays for other programs, and its state for resuming it.
//!
//! `ndarray-npy` writes it. The code here reads it, because `ndarray-npy` trusts a header: it allocates whatever size
//! an array claims, and takes exponential time to parse nested tuples. Each array of a run has only one right header.
//! So the header is compared with the expected one instead of being parsed, and nothing is allocated if the file is too
//! short for it.
use super::snapshot::{Layout, Snapshot, decode, numbers};
use crate::rows::Rows;
use crate::run::Chains;
use crate::samplers::Settings;
use crate::target::{RunIdentity, Variable};
use ndarray::{Array1, ArrayD, IxDyn, aview1};
use ndarray_npy::NpzWriter;
use serde::Serialize;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use zip::{CompressionMethod, ZipArchive};

/// The format of the state. States of other formats are refused.
const FORMAT: &str = "gmm-mcmc state 3";

/// Longer headers are refused. Those of a run take a few hundred bytes.
const LONGEST_HEADER: usize = 4096;

/// A description of the run for the reader of the file.
#[derive(Serialize)]
struct Header<'a> {
    format: &'a str,
    settings: &'a Settings,
    identity: &'a RunIdentity,
    variables: &'a [Variable],
    drawn: usize,
    finished: bool,
}

/// Writes each statistic (C, S) and each variable (C, S, …), and as bytes the `header` (JSON) and the `state`. If a
/// NUTS warm-up was interrupted, `warmup` holds its evaluations.
pub(super) fn write(run: &Chains, out: impl Write + Seek) -> io::Result<()> {
    let header = Header {
        format: FORMAT,
        settings: &run.settings,
        identity: &run.identity,
        variables: &run.variables,
        drawn: run.drawn(),
        finished: run.finished(),
    };
    let header = serde_json::to_vec_pretty(&header).map_err(io::Error::other)?;
    let state = postcard::to_stdvec(&(FORMAT, Snapshot::of(run))).map_err(io::Error::other)?;
    let mut npz = NpzWriter::new(BufWriter::new(out));
    let names = run.settings.sampler.statistics().iter().copied().chain(run.variables.iter().map(|v| v.name.as_str()));
    for name in names {
        let empty = || ArrayD::zeros(IxDyn(&[run.settings.chains, 0]));
        npz.add_array(name, &run.draws(name).unwrap_or_else(empty)).map_err(io::Error::other)?;
    }
    npz.add_array("header", &Array1::from(header)).map_err(io::Error::other)?;
    npz.add_array("state", &Array1::from(state)).map_err(io::Error::other)?;
    if !run.recorded().is_empty() {
        npz.add_array("warmup", &aview1(run.recorded())).map_err(io::Error::other)?;
    }
    npz.finish().map_err(io::Error::other)?.flush()
}

/// Reads a run. Errors: the problem of the file.
pub(super) fn read(file: File) -> Result<Chains, String> {
    let mut archive = Archive::new(file)?;
    let snapshot: Snapshot = decode(FORMAT, &archive.bytes("state")?)?;
    let Layout::Draws { chains, drawn, width } = snapshot.layout()? else {
        return snapshot.with_evaluations(archive.vector("warmup")?);
    };
    let mut columns = Vec::new();
    for (name, shape) in snapshot.columns() {
        let full_shape = [&[chains, drawn][..], shape].concat();
        columns.push((archive.array(name, &full_shape)?, shape.iter().product::<usize>()));
    }
    let mut rows = Rows::new(chains, width);
    for draw in 0..drawn {
        for chain in 0..chains {
            let i = chain * drawn + draw;
            rows.push(columns.iter().map(|(numbers, size)| &numbers[i * size..(i + 1) * size]));
        }
    }
    snapshot.with_draws(rows)
}

struct Archive {
    zip: ZipArchive<BufReader<File>>,
    length: u64,
}

impl Archive {
    fn new(file: File) -> Result<Self, String> {
        let damaged = |e: &dyn Display| format!("it is damaged ({e})");
        let length = file.metadata().map_err(|e| damaged(&e))?.len();
        Ok(Self { zip: ZipArchive::new(BufReader::new(file)).map_err(|e| damaged(&e))?, length })
    }

    fn bytes(&mut self, name: &str) -> Result<Vec<u8>, String> {
        self.member(name, "|u1", |size| Some((vec![size], size)))
    }

    fn vector(&mut self, name: &str) -> Result<Vec<f64>, String> {
        self.member(name, "<f8", |size| Some((vec![size / 8], size))).map(|bytes| numbers(&bytes))
    }

    fn array(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f64>, String> {
        let size = shape.iter().try_fold(8usize, |product, &n| product.checked_mul(n));
        self.member(name, "<f8", |_| Some((shape.to_vec(), size?))).map(|bytes| numbers(&bytes))
    }

    /// Returns the content of an array of the element type `descr`. From the number of its bytes, `expected` computes
    /// the required shape, and the number of bytes that this shape takes.
    fn member(
        &mut self,
        name: &str,
        descr: &str,
        expected: impl FnOnce(usize) -> Option<(Vec<usize>, usize)>,
    ) -> Result<Vec<u8>, String> {
        let damaged = |e: &dyn Display| format!("`{name}` is missing or damaged ({e})");
        let mut member = self.zip.by_name(&format!("{name}.npy")).map_err(|e| damaged(&e))?;
        if member.compression() != CompressionMethod::Stored || member.size() > self.length {
            return Err(damaged(&"it is compressed, or longer than the file; gmm writes neither"));
        }
        let (header, header_size) = read_header(&mut member).map_err(|e| damaged(&e))?;
        let size = (member.size() as usize).saturating_sub(header_size);
        let (shape, needed) = expected(size).ok_or_else(|| damaged(&"its shape is too large"))?;
        let lengths: Vec<String> = shape.iter().map(usize::to_string).collect();
        let tuple = format!("({}{})", lengths.join(","), if shape.len() == 1 { "," } else { "" });
        let right = format!("{{'descr':'{descr}','fortran_order':False,'shape':{tuple}}}");
        // NumPy writes a comma before the brace and blanks, and may have rewritten the file.
        let without_blanks = header.split(|c: char| c.is_ascii_whitespace()).collect::<String>();
        if without_blanks.replace(",}", "}") != right || needed != size {
            return Err(damaged(&format_args!(
                "it is not an array of type {descr} and shape {tuple}, as it must be here"
            )));
        }
        let mut content = Vec::with_capacity(size);
        member.read_to_end(&mut content).map_err(|e| damaged(&e))?;
        if content.len() != size {
            return Err(damaged(&"it is shorter than its header says"));
        }
        Ok(content)
    }
}

/// Returns the text of the header of an .npy, and the number of bytes before the array.
fn read_header(file: &mut impl Read) -> Result<(String, usize), String> {
    let mut start = [0; 10];
    file.read_exact(&mut start).map_err(|e| e.to_string())?;
    let size = usize::from(u16::from_le_bytes([start[8], start[9]]));
    if !start.starts_with(b"\x93NUMPY\x01\x00") || size > LONGEST_HEADER {
        return Err("it does not have the header that gmm writes".into());
    }
    let mut text = vec![0; size];
    file.read_exact(&mut text).map_err(|e| e.to_string())?;
    Ok((String::from_utf8(text).map_err(|e| e.to_string())?, start.len() + size))
}
