//! An operand of the warpgroups' E-steps, formed from the samples before it is multiplied.
use super::pieces::Piece;
use crate::device::gpu::Gpu;
use crate::device::kernel::Grid;
use crate::device::memory::{Numbers, allocate};
use crate::device::stream::{Running, Stream};
use gmm_core::error::Result;
use gmm_driver::DeviceBuffer;
use std::cell::Cell;

/// Threads of a block of the kernels that form operands, and blocks of a multiprocessor.
const FORMING: (u32, u32) = (256, 8);
/// The share of the device's free memory (one over this) within which a whole operand is kept.
const KEPT: usize = 4;

/// Returns a grid for this many items of a kernel that forms operands, or of one as simple.
pub(super) fn forming_grid(multiprocessors: u32, items: usize) -> Grid {
    let (threads, _) = FORMING;
    let most = most_forming_blocks(multiprocessors) as usize;
    Grid::new(items.div_ceil(threads as usize).clamp(1, most) as u32, threads, 0)
}

pub(super) fn most_forming_blocks(multiprocessors: u32) -> u32 {
    multiprocessors * FORMING.1
}

/// Samples whose numbers lie together, and the number of their elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tile {
    pub samples: usize,
    pub len: usize,
}

impl Tile {
    fn len_of(self, n: usize) -> usize {
        n.div_ceil(self.samples) * self.len
    }
}

/// An operand in float16, two numbers to an element: of a piece of the samples, or of all, which are then formed once.
#[derive(Debug)]
pub(super) struct Operand {
    numbers: DeviceBuffer<u32>,
    tile: Tile,
    kept: bool,
    /// The number of samples, from the first on, whose numbers are kept.
    formed: Cell<usize>,
}

impl Operand {
    /// Allocates memory for pieces of this many samples, or all `same` samples of every E-step if the device has room.
    pub fn new(gpu: &Gpu, tile: Tile, piece: usize, same: Option<usize>) -> Result<Self> {
        let most = gpu.free_memory()? / KEPT;
        let kept = same.map(|n| tile.len_of(n)).filter(|len| len * size_of::<u32>() <= most);
        let numbers = allocate(kept.unwrap_or_else(|| tile.len_of(piece)))?;
        Ok(Self { numbers, tile, kept: kept.is_some(), formed: Cell::new(0) })
    }

    pub fn of_piece(&self, piece: &Piece<'_>) -> Result<Numbers<'_, u32>> {
        let all = Numbers::of(&self.numbers);
        if self.kept { all.part(self.tile.len_of(piece.first)..all.len()) } else { Ok(all) }
    }

    /// Starts `form` to write a piece's numbers, unless they are there already.
    pub fn form<'a>(
        &self,
        stream: &'a Stream,
        piece: &Piece<'_>,
        form: impl FnOnce() -> Result<Running<'a, ()>>,
    ) -> Result<Running<'a, ()>> {
        if self.kept && self.formed.get() > piece.first {
            return Ok(stream.idle());
        }
        let running = form()?;
        self.formed.set(piece.first + piece.columns.n());
        Ok(running)
    }
}
