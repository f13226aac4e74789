//! `split_rows`: splits rows of float32 into pairs of float16 numbers, which [`products`](super::products) multiplies.
//!
//! Each row has its own scale, the power of two 2^e not above its largest magnitude. A number x becomes h + l, with h
//! the float16 next to x·2^(12 − e) and l the float16 next to the rest. So h ≤ 2^14, and h + l differs from x·2^(12 −
//! e) by 2^-22 of it, or by 2^-25: numbers down to 2^-15 of the largest retain 22 bits.
//!
//! A block takes a row at a time. A thread takes eight pairs of numbers at a time, and keeps the first eight from the
//! search for the largest magnitude to the splitting.
//!
//! * Launch: any one-dimensional grid of blocks of whole warps; [`threads`] are best. Shared memory [`SHARED_BYTES`].
//! * Necessary work for each number: read 4 bytes, write 4 bytes. 50,000 rows of 1000 on an H200: 400 MB, 0.1 ms at
//!   4.24 TB/s.

/// Numbers of a segment of a row. A row is padded with zeros to whole segments.
pub const SEGMENT: usize = 32;
/// Elements of a segment, of two float16 numbers each: the [`SEGMENT`] numbers h, then the numbers l. 128 bytes.
pub const SEGMENT_ELEMENTS: usize = SEGMENT;
/// The factor of 2^-e·x. It brings a row's largest magnitude to 1 to 2 times this (to 4 times at the end of float32's
/// range), so that the numbers l are normal too.
pub const LARGEST: f32 = 4096.0;

/// Dynamic shared memory of a launch: a magnitude of each warp.
pub const SHARED_BYTES: usize = 32 * size_of::<u32>();
/// Pairs of numbers that a thread reads at a time, so that enough bytes are being read.
pub const TOGETHER: usize = 8;

/// Threads of a block for rows of D numbers: enough to read a row at once, at most 256, so that two blocks fit.
pub const fn threads(d: usize) -> u32 {
    let warps = d.div_ceil(2 * TOGETHER * 32);
    32 * if warps > 8 { 8 } else { warps as u32 }
}

/// Elements of a row of D numbers.
pub const fn row_elements(d: usize) -> usize {
    d.div_ceil(SEGMENT) * SEGMENT_ELEMENTS
}

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SplitArgs {
    /// (rows, D).
    pub x: *const f32,
    /// Number of rows.
    pub rows: u64,
    /// D.
    pub d: u32,
    /// The split rows, each of [`row_elements`]`(D)`; aligned to 16 bytes.
    pub halves: *mut u32,
    /// 2^e of each row.
    pub scales: *mut f32,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
