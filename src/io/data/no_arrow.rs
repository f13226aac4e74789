//! Replaces the readers of Parquet and Arrow without the feature `parquet`: recognises their files and refuses them.
use super::block::Block;
use super::columns::{Field, Projection};
use super::stream::Stream;
use crate::io::Problem;
use std::path::Path;

/// The beginning of a stream of Arrow IPC.
pub(super) const CONTINUATION: [u8; 4] = [0xff; 4];

fn refused<T>() -> Result<T, Problem> {
    Err(Problem::format(
        "Parquet and Arrow files are not read, because the program was built without the feature `parquet` of the crate gaussmix; turn \
         it on, or convert the file to .npy or .csv",
    ))
}

pub(super) mod parquet {
    use super::{Grouped, Path, Problem, refused};

    pub fn open(_: &Path) -> Result<Grouped, Problem> {
        refused()
    }
}

pub(super) mod arrow_ipc {
    pub use super::parquet::open;
}

/// An open file, which cannot exist.
pub(super) enum Grouped {}

impl Grouped {
    pub fn fields(&self) -> Vec<Field> {
        match *self {}
    }

    pub fn n_rows(&self) -> usize {
        match *self {}
    }

    pub fn size(&self) -> u64 {
        match *self {}
    }

    pub fn rows(&self, _: &Projection, _: usize) -> Result<BatchRows, Problem> {
        match *self {}
    }
}

/// An open stream, which cannot exist.
pub(super) enum ArrowStream {}

impl ArrowStream {
    pub fn is_at(_: &Path) -> Result<bool, Problem> {
        Ok(false)
    }

    pub fn open(_: &Path, _: Stream, _: bool) -> Result<Self, Problem> {
        refused()
    }

    pub fn fields(&self) -> Vec<Field> {
        match *self {}
    }

    pub fn rows(&self, _: &Projection) -> Result<BatchRows, Problem> {
        match *self {}
    }
}

pub(super) enum BatchRows {}

impl BatchRows {
    pub fn read(&mut self, _: usize, _: &mut Block) -> Result<usize, Problem> {
        match *self {}
    }

    pub fn skip(&mut self, _: usize) -> Result<usize, Problem> {
        match *self {}
    }
}
