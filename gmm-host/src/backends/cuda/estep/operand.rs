//! What the E-steps of warpgroups have in common: an operand that is formed of the samples before
//! it is multiplied.
use super::pieces::Piece;
use crate::backends::cuda::device::gpu::Gpu;
use crate::backends::cuda::device::kernel::Grid;
use crate::backends::cuda::device::memory::{Numbers, allocate};
use crate::backends::cuda::device::stream::{Running, Stream};
use crate::error::Result;
use gmm_driver::DeviceBuffer;
use std::cell::Cell;

/// Threads of a block of the kernels that form operands, and blocks of a multiprocessor.
const FORMING: (u32, u32) = (256, 8);
/// The part of the device's free memory that an operand is kept in, if it needs no more.
const KEPT: usize = 4;

/// A grid for so many items of a kernel that forms operands, or of one that is as simple.
pub(super) fn forming_grid(multiprocessors: u32, items: usize) -> Grid {
    let (threads, _) = FORMING;
    let most = most_forming_blocks(multiprocessors) as usize;
    Grid::new(items.div_ceil(threads as usize).clamp(1, most) as u32, threads, 0)
}

/// Blocks of such a grid, at most.
pub(super) fn most_forming_blocks(multiprocessors: u32) -> u32 {
    multiprocessors * FORMING.1
}

/// An operand in float16, two numbers to an element: of a piece of the samples, or of all of them,
/// which are then formed once.
#[derive(Debug)]
pub(super) struct Operand {
    numbers: DeviceBuffer<u32>,
    kept: bool,
    /// How many samples, from the first one on, have numbers that are kept.
    formed: Cell<usize>,
}

impl Operand {
    /// Memory for pieces of so many samples, of which `len` is the number of elements. `same`:
    /// every E-step is over the same samples, so many of them, which are all kept if the device has
    /// room for them.
    pub fn new(gpu: &Gpu, len: impl Fn(usize) -> usize, piece: usize, same: Option<usize>) -> Result<Self> {
        let most = gpu.free_memory()? / KEPT;
        let kept = same.map(&len).filter(|len| len * size_of::<u32>() <= most);
        let numbers = allocate(kept.unwrap_or_else(|| len(piece)))?;
        Ok(Self { numbers, kept: kept.is_some(), formed: Cell::new(0) })
    }

    /// The operand of a piece, and what `form` has started to write it, if it is not there yet.
    pub fn of_piece<'a>(
        &'a self,
        stream: &'a Stream,
        piece: &Piece<'a>,
        len: impl Fn(usize) -> usize,
        form: impl FnOnce(Numbers<'a, u32>) -> Result<Running<'a, ()>>,
    ) -> Result<(Numbers<'a, u32>, Running<'a, ()>)> {
        let all = Numbers::of(&self.numbers);
        let operand = if self.kept { all.part(len(piece.first)..all.len())? } else { all };
        if self.kept && self.formed.get() > piece.first {
            return Ok((operand, stream.idle()));
        }
        let running = form(operand)?;
        self.formed.set(piece.first + piece.columns.n());
        Ok((operand, running))
    }
}
