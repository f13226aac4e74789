//! `tiled8`, `tiled16`: the general fast kernel, for any K and D.
//!
//! Built like a matrix product whose inner operation is the squared distance: each thread holds a register tile of T
//! components by [`SAMPLES`] samples; the warps of a block divide among themselves the components (`across` of them) and
//! the samples (the others), so that each sample that comes from memory meets `across`·T components. Samples and
//! parameters pass through shared memory, [`STEP`] features at a time, the next step on its way while one is computed.
//! Over the tiles of components, a log-sum-exp with the running maximum.
//!
//! * Launch: one-dimensional grid; block of at least `across` warps, a multiple of it; shared memory [`shared_bytes`].
//! * Must do: N·K·D·2 fused multiply-adds (K rounded up to tiles), on an H200 at most 33.4·10¹² a second.
use crate::direct::{Columns, QUAD};
use crate::output::{FINISH_SHARED_BYTES, Output};
use crate::simt::*;
use crate::tally::{LogSumExp, Tally};

/// Samples of a thread: two quads, 32 quads apart.
pub const SAMPLES: usize = 2 * QUAD;
/// Samples of a warp.
pub const WARP_SAMPLES: usize = SAMPLES * WARP as usize;
/// Features of a step.
pub const STEP: usize = 8;

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TiledArgs {
    /// The data.
    pub columns: Columns,
    /// D.
    pub d: u32,
    /// Tiles of components: ⌈K / T⌉; the last one is filled up with components of weight zero and seed −10³⁰.
    pub tiles: u32,
    /// Warps of a block along the components; a power of two.
    pub across: u32,
    /// sⱼ and mⱼ, (tiles, D, 2, T).
    pub sm: *const f32,
    /// w and seed, (tiles, 2, T).
    pub constants: *const f32,
    /// Log₂-likelihood of each sample (N,), or null.
    pub samples: *mut f32,
    /// Where the total goes.
    pub output: Output,
}

/// Numbers of a stage: a step's samples, then its parameters.
const fn stage(t: usize, warps: usize, across: usize) -> usize {
    STEP * (warps / across * WARP_SAMPLES + across * 2 * t)
}

/// Dynamic shared memory of a launch with tiles of `t` components.
pub fn shared_bytes(t: usize, block_dim: u32, across: u32) -> usize {
    let warps = (block_dim / WARP) as usize;
    // At the end of a tile of samples, the warps leave a maximum and a sum for each of their samples.
    let exchange = 2 * warps * WARP_SAMPLES;
    let stages = 2 * stage(t, warps, across as usize);
    FINISH_SHARED_BYTES + if stages > exchange { stages } else { exchange } * size_of::<f32>()
}

/// What the threads of a block share about a launch.
struct Tiles<'a, const T: usize> {
    args: &'a TiledArgs,
    /// Quads of a block's samples, a power of two.
    quads: u32,
    /// The two stages.
    stages: Shared<f32>,
    stage: usize,
}

impl<const T: usize> Tiles<'_, T> {
    /// Starts to copy the step of features from `start`, for the quads from `first` and the tiles from `tile`.
    ///
    /// # Safety
    /// All threads of the block call it, and none computes on stage `which`.
    #[inline(always)]
    unsafe fn fetch(&self, which: usize, first: u32, tile: u32, start: u32) {
        let args = self.args;
        let policy = policy_keep();
        let features = if args.d - start < STEP as u32 { args.d - start } else { STEP as u32 };
        let to = self.stages.offset(which * self.stage);
        let last = args.columns.quads() - 1;
        let mut c = thread_idx();
        while c < features * self.quads {
            let (feature, q) = (c / self.quads, c % self.quads);
            // Past the end the last quad stands in, and is not counted.
            let quad = if first + q < last { first + q } else { last };
            // SAFETY: the feature and the quad exist; the stage has room for a step.
            unsafe { to.copy4(QUAD * c as usize, args.columns.quad(quad, (start + feature) as usize), policy) };
            c += block_dim();
        }
        let to = to.offset(STEP * QUAD * self.quads as usize);
        let chunk = features * 2 * (T / 4) as u32;
        let mut c = thread_idx();
        while c < args.across * chunk {
            let (part, i) = (c / chunk, c % chunk);
            if tile + part < args.tiles {
                let from = ((tile + part) as usize * args.d as usize + start as usize) * 2 * T + 4 * i as usize;
                // SAFETY: within the tile's parameters; the stage has room for a step of each part.
                unsafe { to.copy4(part as usize * STEP * 2 * T + 4 * i as usize, args.sm.add(from), policy) };
            }
            c += block_dim();
        }
        copies_commit();
    }
}

/// q −= (s·x + m)² for the tile's components and one feature; `sm` holds s and then m of each component.
///
/// # Safety
/// `sm` has 2·T elements, aligned to 16 bytes.
#[inline(always)]
unsafe fn accumulate<const T: usize>(q: &mut [[f32; SAMPLES]; T], x: &[f32; SAMPLES], sm: Shared<f32>) {
    let mut k = 0;
    while k < T {
        // SAFETY: the caller's.
        let (s, m) = unsafe { (sm.get4(k), sm.get4(T + k)) };
        let mut l = 0;
        while l < 4 {
            let mut p = 0;
            while p < SAMPLES {
                let t = fma(s[l], x[p], m[l]);
                q[k + l][p] = fma(-t, t, q[k + l][p]);
                p += 1;
            }
            l += 1;
        }
        k += 4;
    }
}

#[inline(always)]
unsafe fn body<const T: usize>(args: &TiledArgs) {
    let columns = &args.columns;
    let (warp, lane) = (thread_idx() / WARP, (thread_idx() % WARP) as usize);
    let warps = block_dim() / WARP;
    // This warp's part of the components, and its part of the block's samples.
    let (part, group) = (warp % args.across, (warp / args.across) as usize);
    let quads = warps / args.across * (WARP_SAMPLES / QUAD) as u32;
    let all = Tiles::<T> {
        args,
        quads,
        stages: Shared::at(FINISH_SHARED_BYTES),
        stage: stage(T, warps as usize, args.across as usize),
    };
    let mine = group * WARP_SAMPLES + QUAD * lane;
    let mut tally = Tally::new();
    let mut first = block_idx() * quads;
    // The bounds are the same for all threads of a block, so that all of them meet at the barriers.
    while first < columns.quads() {
        let mut sums = [LogSumExp::new(); SAMPLES];
        let mut which = 0;
        // SAFETY: the stages are free: the start, or the barrier that ends this loop.
        unsafe { all.fetch(0, first, 0, 0) };
        let mut tile = 0;
        while tile < args.tiles {
            let present = tile + part < args.tiles;
            // A warp without a tile of its own follows the last one.
            let own = if present { tile + part } else { args.tiles - 1 } as usize;
            // SAFETY: the tile exists.
            let constants = unsafe { args.constants.add(own * 2 * T) };
            let mut q = [[0.0f32; SAMPLES]; T];
            let mut k = 0;
            while k < T {
                // SAFETY: as above.
                q[k] = [unsafe { *constants.add(T + k) }; SAMPLES];
                k += 1;
            }
            let mut start = 0;
            while start < args.d {
                copies_wait();
                barrier!();
                let (next_tile, next_start) =
                    if start + (STEP as u32) < args.d { (tile, start + STEP as u32) } else { (tile + args.across, 0) };
                if next_tile < args.tiles {
                    // SAFETY: all threads have passed the barrier, so none computes on the other stage any more.
                    unsafe { all.fetch(which ^ 1, first, next_tile, next_start) };
                }
                if present {
                    let x = all.stages.offset(which * all.stage);
                    let sm = x.offset(STEP * QUAD * quads as usize + part as usize * STEP * 2 * T);
                    let mut f = 0;
                    while f < STEP && start + (f as u32) < args.d {
                        // SAFETY: the step has arrived, and the barrier made the other threads' copies visible.
                        unsafe {
                            let at = x.offset(f * QUAD * quads as usize + mine);
                            let (a, b) = (at.get4(0), at.get4(WARP_SAMPLES / 2));
                            accumulate(&mut q, &[a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]], sm.offset(f * 2 * T));
                        }
                        f += 1;
                    }
                }
                which ^= 1;
                start += STEP as u32;
            }
            if present {
                let mut p = 0;
                while p < SAMPLES {
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
            }
            tile += args.across;
        }
        // The warps of the same samples put their parts together.
        barrier!();
        let maxima = all.stages.offset(mine);
        let totals = maxima.offset(warps as usize * WARP_SAMPLES);
        let samples_of_block = QUAD * quads as usize;
        let mut p = 0;
        while p < SAMPLES {
            let at = part as usize * samples_of_block + p / QUAD * (WARP_SAMPLES / 2) + p % QUAD;
            // SAFETY: a place for each warp and sample; the barrier freed the stages.
            unsafe {
                maxima.set(at, sums[p].max);
                totals.set(at, sums[p].sum);
            }
            p += 1;
        }
        barrier!();
        if part == 0 {
            let mut p = 0;
            while p < SAMPLES {
                let at = p / QUAD * (WARP_SAMPLES / 2) + p % QUAD;
                let sample = QUAD as u64 * first as u64 + (mine + at) as u64;
                if sample < columns.n {
                    let mut sum = sums[p];
                    let mut other = 1;
                    while other < args.across as usize {
                        let at = other * samples_of_block + at;
                        // SAFETY: written before the barrier.
                        sum.merge(unsafe { LogSumExp { max: maxima.get(at), sum: totals.get(at) } });
                        other += 1;
                    }
                    tally.add_scaled(sum.max, sum.sum);
                    if !args.samples.is_null() {
                        // SAFETY: sample < N.
                        unsafe { *args.samples.add(sample as usize) = sum.log2() };
                    }
                }
                p += 1;
            }
        }
        barrier!();
        first += grid_dim() * quads;
    }
    // SAFETY: all threads end here, with the start of the shared memory unused.
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
