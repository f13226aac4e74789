//! `tiled8`, `tiled16`: the general fast kernel, for any K and D.
//!
//! A register tile of 8 or 16 components by four samples a thread, as in a matrix product whose inner operation is the
//! squared distance. Samples come by wide, coalesced reads that the caches serve again for the next tile of components;
//! the parameters of a tile go through shared memory, [`CHUNK`] features at a time. Over the tiles, a log-sum-exp with
//! the running maximum. Several parameter sets, and several parts of the components, run along gridDim.y.
//!
//! * Launch: grid (blocks, sets); block of whole warps; shared memory [`shared_bytes`].
//! * Must do: N·K·D·2 fused multiply-adds: on an H200 at most 33.5·10¹² a second.
use crate::direct::{Columns, QUAD};
use crate::output::{FINISH_SHARED_BYTES, Output};
use crate::simt::*;
use crate::tally::{LogSumExp, Tally};

/// Features of a chunk of parameters in shared memory.
pub const CHUNK: usize = 64;

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TiledArgs {
    /// The data.
    pub columns: Columns,
    /// D.
    pub d: u32,
    /// Tiles of components: ⌈K / T⌉; the last one is filled up with components of weight zero.
    pub tiles: u32,
    /// sⱼ and mⱼ, (tiles, D, 2, T).
    pub sm: *const f32,
    /// w and seed, (tiles, 2, T).
    pub constants: *const f32,
    /// Log₂-likelihood of each sample (N,), or null.
    pub samples: *mut f32,
    /// Where the total goes.
    pub output: Output,
}

/// Dynamic shared memory of a launch with tiles of `t` components.
pub fn shared_bytes(t: usize) -> usize {
    FINISH_SHARED_BYTES.max(CHUNK * 2 * t * size_of::<f32>())
}

#[inline(always)]
unsafe fn body<const T: usize>(args: &TiledArgs) {
    let columns = &args.columns;
    let policy = policy_keep();
    let parameters = shared::<f32>();
    let (quads, d) = (columns.quads(), args.d as usize);
    let mut tally = Tally::new();
    let mut base = block_idx() * block_dim();
    // The bound is the same for all threads of a block, so that all of them meet at the barriers.
    while base < quads {
        let i = base + thread_idx();
        // Threads past the end compute the last quad once more, and do not count it.
        let quad = if i < quads { i } else { quads - 1 };
        let mut sums = [LogSumExp::new(); QUAD];
        let mut tile = 0;
        while tile < args.tiles as usize {
            // SAFETY: the tile's constants.
            let constants = unsafe { args.constants.add(tile * 2 * T) };
            let mut q = [[0.0f32; QUAD]; T];
            let mut k = 0;
            while k < T {
                // SAFETY: as above.
                q[k] = [unsafe { *constants.add(T + k) }; QUAD];
                k += 1;
            }
            let mut start = 0;
            while start < d {
                let features = if d - start < CHUNK { d - start } else { CHUNK };
                barrier!();
                let mut f = thread_idx() as usize;
                while f < features * 2 * T {
                    // SAFETY: the chunk lies within the tile's parameters, and the shared memory holds a chunk.
                    unsafe { *parameters.add(f) = *args.sm.add((tile * d + start) * 2 * T + f) };
                    f += block_dim() as usize;
                }
                barrier!();
                let mut j = 0;
                while j < features {
                    // SAFETY: feature start + j < D, of a quad that exists; the chunk's parameters are in place.
                    unsafe {
                        let x = load4(columns.x.add((start + j) * columns.stride as usize + QUAD * quad as usize), policy);
                        let at = parameters.add(j * 2 * T);
                        let mut k = 0;
                        while k < T {
                            let (s, m) = (shared4(at.add(k)), shared4(at.add(T + k)));
                            let mut l = 0;
                            while l < 4 {
                                let mut p = 0;
                                while p < QUAD {
                                    let t = fma(s[l], x[p], m[l]);
                                    q[k + l][p] = fma(-t, t, q[k + l][p]);
                                    p += 1;
                                }
                                l += 1;
                            }
                            k += 4;
                        }
                    }
                    j += 1;
                }
                start += CHUNK;
            }
            let mut p = 0;
            while p < QUAD {
                let mut top = sums[p].max;
                let mut k = 0;
                while k < T {
                    top = max(top, q[k][p]);
                    k += 1;
                }
                let mut sum = sums[p].sum * exp2(sums[p].max - top);
                let mut k = 0;
                while k < T {
                    // SAFETY: the tile's constants.
                    sum = fma(unsafe { *constants.add(k) }, exp2(q[k][p] - top), sum);
                    k += 1;
                }
                sums[p] = LogSumExp { max: top, sum };
                p += 1;
            }
            tile += 1;
        }
        let mut p = 0;
        while p < QUAD {
            let sample = QUAD as u64 * i as u64 + p as u64;
            if sample < columns.n {
                tally.add_scaled(sums[p].max, sums[p].sum);
                if !args.samples.is_null() {
                    // SAFETY: sample < N.
                    unsafe { *args.samples.add(sample as usize) = sums[p].log2() };
                }
            }
            p += 1;
        }
        base += grid_dim() * block_dim();
    }
    barrier!();
    // SAFETY: all threads end here; the barrier freed the shared memory.
    unsafe { args.output.finish(tally) };
}

kernel! {
    /// Total log₂-likelihood, and each sample's where asked for; tiles of 8 components.
    ///
    /// # Safety
    /// The pointers of `args` are valid for the sizes given; launched as the module says.
    pub unsafe fn tiled8(args: TiledArgs) {
        // SAFETY: the caller's.
        unsafe { body::<8>(&args) }
    }
}
kernel! {
    /// As [`tiled8`], with tiles of 16 components.
    ///
    /// # Safety
    /// See [`tiled8`].
    pub unsafe fn tiled16(args: TiledArgs) {
        // SAFETY: the caller's.
        unsafe { body::<16>(&args) }
    }
}
