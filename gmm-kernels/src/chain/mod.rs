//! The forward–backward algorithm of hidden Markov models, over the exponents of [`density`](crate::general::density).
//!
//! State k emits row t with the density bₖ = 2^(qₖ + cₖ), times a number of the row that cancels. A chunk is some rows
//! of one sequence, and a group of [`capacity`] neighbouring lanes takes a chunk, a lane for each state. [`ends`]
//! computes the probabilities at both ends of each chunk from the rows around them. [`posteriors`] then computes
//! p(state | sequence) in all chunks at once, and finds whether each chunk's recursion arrives at its neighbours' ends.
//! No step of a recursion makes two vectors of probabilities differ more (Birkhoff 1957), so all ends are right if the
//! neighbours agree.
//!
//! Where states emit from mixtures, [`mixed`] makes the exponents of states before, and afterwards posteriors of
//! components.
//!
//! Numbers are scaled by powers of two, which are exact. A probability below [`LEAST`] that could matter makes a
//! chunk's result NaN, and so do ends that do not agree.
pub mod ends;
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
mod group;
pub mod mixed;
pub mod posteriors;

/// Most states.
pub const MAX_STATES: usize = 32;

/// The least scaled probability: two of them multiply without underflow.
pub const LEAST: f64 = 1e-140;

/// Rows whose exponents a lane reads at once.
pub const AHEAD: usize = 4;

/// Lanes of a group for K states, up to [`MAX_STATES`].
pub const fn capacity(k: usize) -> usize {
    let lanes = k.next_power_of_two();
    if lanes < 4 { 4 } else { lanes }
}

/// Numbers of [`ChainArgs::parameters`].
pub const fn parameters(capacity: usize) -> usize {
    2 * capacity * (1 + capacity)
}

/// Dynamic shared memory of a launch.
pub const fn shared_bytes(block_dim: u32) -> usize {
    2 * block_dim as usize * size_of::<f64>()
}

/// Numbers of a chunk: its first row, the row after its last, and the same of its sequence.
pub const CHUNK: usize = 4;

/// The arguments that both kernels take, for groups of C lanes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ChainArgs<T> {
    /// qₖ (K, stride), of each row.
    pub q: *mut T,
    /// Elements from one component to the next.
    pub stride: u64,
    /// K, at most C.
    pub k: u32,
    /// Whether transitions may be so improbable that a lost state matters: 0 or 1.
    pub watched: u32,
    /// c (C,), π (C,), a (C, C) and its transpose, with zeros behind the K-th.
    pub parameters: *const f64,
    /// (chunks, [`CHUNK`]); each has a row.
    pub chunks: *const u32,
    /// The ends of chunks (chunks, 2, C): p(state | rows before) of the row before the first, unless the chunk begins a
    /// sequence, and p(later rows | state) of the last row up to a factor, unless it ends one.
    pub ends: *mut f64,
}
