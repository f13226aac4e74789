//! The code of the `tiled` kernels.
use super::*;
use crate::math::{LogProduct, LogSumExp};
use crate::simt::*;

/// What the threads of a block share about a launch.
struct Tiles<'a, const T: usize, const FULL: bool> {
    args: &'a TiledArgs,
    /// Quads of a block's samples, a power of two.
    quads: u32,
    /// The two stages.
    stages: Shared<f32>,
    stage: usize,
}

/// A step of the work on a block's samples.
#[derive(Clone, Copy)]
struct Step {
    /// Tile, or component of `full`.
    tile: u32,
    /// Tile of rows within the component.
    row: u32,
    /// First feature.
    start: u32,
}

impl<const T: usize, const FULL: bool> Tiles<'_, T, FULL> {
    /// Numbers of a feature in a tile: s and m of each component, or a column of A.
    const WIDTH: usize = if FULL { T } else { 2 * T };

    /// Tiles of rows of a component.
    #[inline(always)]
    fn rows(&self) -> u32 {
        if FULL { self.args.d.div_ceil(T as u32) } else { 1 }
    }

    /// Features that a tile of rows reaches.
    #[inline(always)]
    fn features(&self, row: u32) -> u32 {
        let reach = (row + 1) * T as u32;
        if FULL && reach < self.args.d { reach } else { self.args.d }
    }

    /// Parameters of a tile of rows.
    #[inline(always)]
    fn parameters(&self, tile: u32, row: u32) -> *const f32 {
        // The triangle's tiles have one more line: b.
        let lines = self.args.d as usize + FULL as usize;
        self.args.scales_and_shifts.wrapping_add((tile as usize * self.rows() as usize + row as usize) * lines * Self::WIDTH)
    }

    /// The step behind `at`.
    #[inline(always)]
    fn next(&self, at: Step) -> Step {
        let Step { tile, row, start } = at;
        if start + (STEP as u32) < self.features(row) {
            Step { start: start + STEP as u32, ..at }
        } else if row + 1 < self.rows() {
            Step { tile, row: row + 1, start: 0 }
        } else {
            Step { tile: tile + self.args.component_warps, row: 0, start: 0 }
        }
    }

    /// Starts to copy a step, for the quads from `first`.
    ///
    /// # Safety
    /// All threads of the block call it, and none computes on stage `which`.
    #[inline(always)]
    unsafe fn fetch(&self, which: usize, first: u32, step: Step) {
        let args = self.args;
        let policy = policy_keep();
        let Step { tile, row, start } = step;
        let left = self.features(row) - start;
        let features = if left < STEP as u32 { left } else { STEP as u32 };
        let to = self.stages.offset(which * self.stage);
        let last = args.columns.quads() - 1;
        // A power of two.
        let shift = self.quads.trailing_zeros();
        let mut c = thread_idx();
        while c < features << shift {
            let (feature, q) = (c >> shift, c & (self.quads - 1));
            // Past the end the last quad stands in, and is not counted.
            let quad = if first + q < last { first + q } else { last };
            // SAFETY: the feature and the quad exist; the stage has room for a step.
            unsafe { to.copy4(QUAD * c as usize, args.columns.quad(quad, (start + feature) as usize), policy) };
            c += block_dim();
        }
        let to = to.offset(STEP * QUAD * self.quads as usize);
        // A whole step of each part, of which the last may have fewer features.
        let chunk = (STEP * Self::WIDTH / 4) as u32;
        let mut c = thread_idx();
        while c < args.component_warps * chunk {
            let (part, i) = (c / chunk, c % chunk);
            if tile + part < args.tiles && i < features * (Self::WIDTH / 4) as u32 {
                let from =
                    self.parameters(tile + part, row).wrapping_add(start as usize * Self::WIDTH + 4 * i as usize);
                // SAFETY: within the tile's parameters; the stage has room for a step of each part.
                unsafe { to.copy4(part as usize * STEP * Self::WIDTH + 4 * i as usize, from, policy) };
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

/// z += a·x for the tile's rows and one feature.
///
/// # Safety
/// `a` has T elements, aligned to 16 bytes.
#[inline(always)]
unsafe fn multiply<const T: usize>(z: &mut [[f32; SAMPLES]; T], x: &[f32; SAMPLES], a: Shared<f32>) {
    let mut k = 0;
    while k < T {
        // SAFETY: the caller's.
        let a = unsafe { a.get4(k) };
        let mut l = 0;
        while l < 4 {
            let mut p = 0;
            while p < SAMPLES {
                z[k + l][p] = fma(a[l], x[p], z[k + l][p]);
                p += 1;
            }
            l += 1;
        }
        k += 4;
    }
}

/// The log-sum-exps of a thread's samples, in shared memory: the work between two tiles needs the registers.
#[derive(Clone, Copy)]
struct Sums {
    /// Maxima of the thread's first quad of samples.
    maxima: Shared<f32>,
    /// From there to its sums.
    sums: usize,
}

impl Sums {
    /// Samples of a quad.
    ///
    /// # Safety
    /// The places exist; only this thread uses them.
    #[inline(always)]
    unsafe fn get(self, quad: usize) -> [[f32; QUAD]; 2] {
        let at = quad * (WARP_SAMPLES / 2);
        // SAFETY: the caller's.
        unsafe { [self.maxima.get4(at), self.maxima.get4(self.sums + at)] }
    }

    /// # Safety
    /// As for [`Self::get`].
    #[inline(always)]
    unsafe fn set(self, quad: usize, max: [f32; QUAD], sum: [f32; QUAD]) {
        let at = quad * (WARP_SAMPLES / 2);
        // SAFETY: the caller's.
        unsafe {
            self.maxima.set4(at, max);
            self.maxima.set4(self.sums + at, sum);
        }
    }

    /// Adds R components. `constants`: w of each.
    ///
    /// # Safety
    /// As for [`Self::get`]; `constants` has R elements.
    #[inline(always)]
    unsafe fn add<const R: usize>(self, q: &[[f32; SAMPLES]; R], constants: *const f32) {
        let mut quad = 0;
        while quad < SAMPLES / QUAD {
            // SAFETY: the caller's.
            let [mut max_, mut sum] = unsafe { self.get(quad) };
            let mut p = 0;
            while p < QUAD {
                let mut top = max_[p];
                let mut k = 0;
                while k < R {
                    top = max(top, q[k][quad * QUAD + p]);
                    k += 1;
                }
                sum[p] *= exp2(max_[p] - top);
                let mut k = 0;
                while k < R {
                    // SAFETY: the caller's.
                    sum[p] = fma(unsafe { load(constants.add(k)) }, exp2(q[k][quad * QUAD + p] - top), sum[p]);
                    k += 1;
                }
                max_[p] = top;
                p += 1;
            }
            // SAFETY: the caller's.
            unsafe { self.set(quad, max_, sum) };
            quad += 1;
        }
    }
}

/// Writes a thread's samples of one row of an array, both quads of it.
///
/// # Safety
/// `to` is the place of its first sample: aligned to 16 bytes, and writable for those of a warp.
#[inline(always)]
unsafe fn store_samples(to: *mut f32, v: [f32; SAMPLES]) {
    // SAFETY: the caller's.
    unsafe {
        store4(to, [v[0], v[1], v[2], v[3]]);
        store4(to.add(WARP_SAMPLES / 2), [v[4], v[5], v[6], v[7]]);
    }
}

#[inline(always)]
unsafe fn body<const T: usize, const FULL: bool>(args: &TiledArgs) {
    let columns = &args.columns;
    let (warp, lane) = (thread_idx() / WARP, (thread_idx() % WARP) as usize);
    let warps = block_dim() / WARP;
    // This warp's part of the components, and its part of the block's samples.
    let (part, group) = (warp % args.component_warps, (warp / args.component_warps) as usize);
    let quads = warps / args.component_warps * (WARP_SAMPLES / QUAD) as u32;
    let all = Tiles::<T, FULL> {
        args,
        quads,
        stages: Shared::<f32>::at(FINISH_SHARED_BYTES).offset(2 * warps as usize * WARP_SAMPLES),
        stage: stage(T, warps as usize, args.component_warps as usize),
    };
    let mine = group * WARP_SAMPLES + QUAD * lane;
    let block_samples = QUAD * quads as usize;
    let maxima = Shared::<f32>::at(FINISH_SHARED_BYTES);
    let totals = maxima.offset(warps as usize * WARP_SAMPLES);
    let sums =
        Sums { maxima: maxima.offset(part as usize * block_samples + mine), sums: warps as usize * WARP_SAMPLES };
    let mut product = LogProduct::new();
    let mut first = block_idx() * quads;
    // The bounds are the same for all threads of a block, so that all of them meet at the barriers.
    while first < columns.quads() {
        let empty = LogSumExp::new();
        // SAFETY: this thread's places; the barrier that ends this loop has let all read them.
        unsafe {
            sums.set(0, [empty.max; QUAD], [empty.sum; QUAD]);
            sums.set(1, [empty.max; QUAD], [empty.sum; QUAD]);
        }
        let mut which = 0;
        let mut at = Step { tile: 0, row: 0, start: 0 };
        // SAFETY: the stages are free: the start, or the barrier that ends this loop.
        unsafe { all.fetch(0, first, at) };
        // Exponents of the thread's samples, for a component.
        let exponents = |component: usize| {
            let sample = QUAD * first as usize + mine;
            args.exponents.q.wrapping_add(component * args.exponents.stride as usize + sample)
        };
        while at.tile < args.tiles {
            let tile = at.tile;
            let present = tile + part < args.tiles;
            // A warp without a tile of its own follows the last one.
            let own = if present { tile + part } else { args.tiles - 1 };
            // SAFETY: the tile exists.
            let constants = unsafe { args.weights_and_seeds.add(own as usize * if FULL { 2 } else { 2 * T }) };
            // SAFETY: as above.
            let mut exponent = [if FULL { unsafe { load(constants.add(1)) } } else { 0.0 }; SAMPLES];
            while at.tile == tile {
                let row = at.row;
                // Rows of z begin with b, components with their seed.
                let start = if FULL {
                    all.parameters(own, row).wrapping_add(args.d as usize * T)
                } else {
                    constants.wrapping_add(T)
                };
                let mut q = [[0.0f32; SAMPLES]; T];
                let mut k = 0;
                while k < T {
                    // SAFETY: as above.
                    q[k] = [unsafe { load(start.add(k)) }; SAMPLES];
                    k += 1;
                }
                while at.tile == tile && at.row == row {
                    copies_wait();
                    barrier!();
                    let next = all.next(at);
                    if next.tile < args.tiles {
                        // SAFETY: all threads have passed the barrier, so none computes on the other stage any more.
                        unsafe { all.fetch(which ^ 1, first, next) };
                    }
                    if present {
                        let x = all.stages.offset(which * all.stage);
                        let parameters =
                            x.offset(STEP * QUAD * quads as usize + part as usize * STEP * Tiles::<T, FULL>::WIDTH);
                        let left = all.features(row) - at.start;
                        let features = if left < STEP as u32 { left as usize } else { STEP };
                        let mut f = 0;
                        while f < features {
                            // SAFETY: the step has arrived, and the barrier made the other threads' copies visible.
                            unsafe {
                                let x = x.offset(f * QUAD * quads as usize + mine);
                                let (a, b) = (x.get4(0), x.get4(WARP_SAMPLES / 2));
                                let x = [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]];
                                let parameters = parameters.offset(f * Tiles::<T, FULL>::WIDTH);
                                if FULL {
                                    multiply(&mut q, &x, parameters);
                                } else {
                                    accumulate(&mut q, &x, parameters);
                                }
                            }
                            f += 1;
                        }
                    }
                    which ^= 1;
                    at = all.next(at);
                }
                if FULL {
                    let mut k = 0;
                    while k < T {
                        let mut p = 0;
                        while p < SAMPLES {
                            exponent[p] = fma(-q[k][p], q[k][p], exponent[p]);
                            p += 1;
                        }
                        k += 1;
                    }
                } else if present {
                    // SAFETY: the tile's constants; rows of the tile's components, which have a place for each sample.
                    unsafe {
                        if !args.exponents.q.is_null() {
                            let stride = opaque(args.exponents.stride) as usize;
                            let mut to = exponents(own as usize * T);
                            let mut k = 0;
                            while k < T {
                                store_samples(to, q[k]);
                                to = to.wrapping_add(stride);
                                k += 1;
                            }
                        }
                        sums.add(&q, constants);
                    }
                }
            }
            if FULL && present {
                // SAFETY: as above.
                unsafe {
                    sums.add(&[exponent], constants);
                    if !args.exponents.q.is_null() {
                        store_samples(exponents(own as usize), exponent);
                    }
                }
            }
        }
        // The block's threads share the samples anew, side by side, and put together what its warps have of them.
        barrier!();
        let mut at = thread_idx() as usize;
        while at < block_samples {
            let sample = QUAD as u64 * first as u64 + at as u64;
            let (mut top, mut factor) = (0.0, 0.0);
            if sample < columns.n {
                let mut sum = LogSumExp::new();
                let mut other = at;
                while other < args.component_warps as usize * block_samples {
                    // SAFETY: written before the barrier.
                    sum.merge(unsafe { LogSumExp { max: maxima.get(other), sum: totals.get(other) } });
                    other += block_samples;
                }
                let mut weight = 1.0;
                if args.sample_weights.is_null() {
                    product.multiply_scaled(sum.max, sum.sum);
                } else {
                    // SAFETY: sample < N.
                    weight = unsafe { load(args.sample_weights.add(sample as usize)) };
                    product.multiply_scaled(weight * sum.log2(), 1.0);
                }
                (top, factor) = (sum.max, weight * reciprocal(sum.sum));
                if !args.samples.is_null() {
                    // SAFETY: sample < N.
                    unsafe { store(args.samples.add(sample as usize), sum.log2()) };
                }
            }
            if !args.exponents.q.is_null() {
                let to = args.exponents.normalisers.wrapping_add(sample as usize);
                // SAFETY: both rows have a place for each sample of the block.
                unsafe {
                    store(to, top);
                    store(to.add(args.exponents.stride as usize), factor);
                }
            }
            at += block_dim() as usize;
        }
        barrier!();
        first += grid_dim() * quads;
    }
    // SAFETY: all threads end here, with the start of the shared memory unused.
    unsafe { args.output.finish(product) };
}

macro_rules! instances {
    ($($(#[$doc:meta])* $name:ident $t:literal $full:literal;)*) => { $(
        kernel! {
            $(#[$doc])*
            ///
            /// # Safety
            /// The pointers of `args` are valid for the sizes given; launched as the module says.
            pub unsafe fn $name(args: TiledArgs) {
                // SAFETY: the caller's.
                unsafe { body::<$t, $full>(&args) }
            }
        }
    )* };
}
instances! {
    /// Diagonal covariances, tiles of 8 components.
    tiled8 8 false;
    /// Diagonal covariances, tiles of 16 components.
    tiled16 16 false;
    /// Triangles, tiles of 8 rows.
    tiled_full8 8 true;
    /// Triangles, tiles of 16 rows.
    tiled_full16 16 true;
}
