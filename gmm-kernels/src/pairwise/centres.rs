//! `gaussian_centres`: exp(−γ‖xᵢ − cⱼ‖²) of rows with centres.
//!
//! Both are stored column by column ([`Columns`]). A thread takes [`THREAD_QUADS`] quads of rows and one quad of
//! centres; the 16 threads of half a warp read the same rows. The differences are computed first: ‖x‖² − 2x·c + ‖c‖²
//! would lose the digits of data far from the origin.
//!
//! * Launch: blocks of [`THREADS`]; ⌈M / [`TILE_CENTRES`]⌉ along x and ⌈N / [`TILE_ROWS`]⌉ along y; no shared memory.
//! * Necessary work for each value: 2·D operations of float32, and 4 bytes written. N = 10⁵, M = 1000, D = 20 on an
//!   H200: 4·10⁹ operations, 135 µs at the 29.7·10¹² of 132 multiprocessors at 1.76 GHz; 400 MB, 94 µs.
use crate::data::{Columns, QUAD};

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Threads of a block along the centres.
pub const THREADS_ACROSS: u32 = 16;
/// Quads of rows of a thread.
pub const THREAD_QUADS: usize = 2;
/// Centres of a block.
pub const TILE_CENTRES: usize = THREADS_ACROSS as usize * QUAD;
/// Rows of a block.
pub const TILE_ROWS: usize = (THREADS / THREADS_ACROSS) as usize * THREAD_QUADS * QUAD;

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CentresArgs {
    /// N rows. Here and below `cached_quads` is not used, and the number is at least one.
    pub x: Columns,
    /// M centres.
    pub centres: Columns,
    /// D.
    pub d: u32,
    /// −γ·log₂ e.
    pub factor: f32,
    /// The values (N, M); aligned to 16 bytes.
    pub values: *mut f32,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
