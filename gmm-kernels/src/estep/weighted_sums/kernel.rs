//! The code of the `weighted_sums` kernels.
use super::*;
use crate::simt::*;

/// Responsibilities (times a sample's weight) below 2^-40 count as zero: in float32's sums they are nothing, and where a
/// warp has no others there is no work.
const NOTHING: f32 = 9.094_947e-13;

/// What the threads of a block share about a launch.
struct Block<'a> {
    args: &'a WeightedSumsArgs,
    shape: Shape,
    /// First tile and patch.
    tile: u32,
    patch: u32,
}

impl Block<'_> {
    /// Row of a feature in a stage: those of a quad are far apart, so that lanes with neighbouring quads meet in no bank.
    #[inline(always)]
    fn row(&self, feature: u32) -> usize {
        let feature = if self.shape.full { feature } else { feature - self.patch * QUAD as u32 };
        (feature % QUAD as u32 * self.shape.quads() + feature / QUAD as u32) as usize
    }

    /// First feature of a stage.
    #[inline(always)]
    fn first_feature(&self) -> u32 {
        if self.shape.full { 0 } else { self.patch * QUAD as u32 }
    }

    /// Features of a stage, those behind D included.
    #[inline(always)]
    fn features(&self) -> u32 {
        self.shape.quads() * QUAD as u32
    }

    /// Tiles of the block that there are.
    #[inline(always)]
    fn present(&self) -> u32 {
        let left = self.shape.tiles - self.tile;
        if left < self.shape.block_tiles { left } else { self.shape.block_tiles }
    }

    /// Starts to copy stage number `number` of the samples to the place `to`. Each thread copies the exponents that it
    /// will turn into responsibilities.
    ///
    /// # Safety
    /// No thread computes on that place.
    #[inline(always)]
    unsafe fn fetch(&self, to: Shared<f32>, number: u32) {
        let (args, policy) = (self.args, policy_keep());
        let first = number * QUADS as u32;
        let mut c = thread_idx();
        while c < self.features() * QUADS as u32 {
            let (feature, quad) = (self.first_feature() + c / QUADS as u32, c % QUADS as u32);
            if feature < self.shape.d {
                // SAFETY: columns go on to a multiple of a stage; the stage has a row for the feature.
                unsafe {
                    let from = args.columns.quad(first + quad, feature as usize);
                    to.copy4(self.row(feature) * PITCH + QUAD * quad as usize, from, policy);
                }
            }
            c += block_dim();
        }
        let posterior = &args.posterior;
        let sample = QUAD * first as usize;
        let to = to.offset(self.features() as usize * PITCH);
        let mut c = thread_idx();
        while c < self.present() * (COMPONENTS * QUADS) as u32 {
            let (component, quad) = ((c / QUADS as u32) as usize, (c % QUADS as u32) as usize);
            let k = self.tile as usize * COMPONENTS + component;
            let from = posterior.exponents.wrapping_add(k * posterior.stride as usize + sample + QUAD * quad);
            // SAFETY: a row for each component.
            unsafe { to.copy4(component * PITCH + QUAD * quad, from, policy) };
            c += block_dim();
        }
    }

    /// Maxima and factors of the quad of a stage whose exponents this thread copies: the same quad for all components.
    ///
    /// # Safety
    /// The stage exists.
    #[inline(always)]
    unsafe fn normalisers(&self, number: u32) -> [[f32; QUAD]; 2] {
        let Posterior { normalisers, stride, .. } = self.args.posterior;
        let from = normalisers.wrapping_add(number as usize * STAGE + QUAD * (thread_idx() as usize % QUADS));
        // SAFETY: two rows for the samples.
        unsafe { [load4(from, policy_keep()), load4(from.wrapping_add(stride as usize), policy_keep())] }
    }
}

/// Moves values to their places, `step` apart, or adds them to what is there, and leaves zeros in their stead.
///
/// # Safety
/// The places exist, and no other thread uses them.
#[inline(always)]
unsafe fn flush<const V: usize>(to: *mut f64, step: usize, values: &mut [f32; V], add: bool) {
    let mut sums = [0.0f64; V];
    // All reads before the first write, so that their latencies overlap.
    let mut v = 0;
    while add && v < V {
        // SAFETY: the caller's.
        sums[v] = unsafe { *to.wrapping_add(v * step) };
        v += 1;
    }
    let mut v = 0;
    while v < V {
        // SAFETY: the caller's.
        unsafe { *to.wrapping_add(v * step) = sums[v] + values[v] as f64 };
        values[v] = 0.0;
        v += 1;
    }
}

#[inline(always)]
unsafe fn body<const FULL: bool, const OWN: bool>(args: &WeightedSumsArgs) {
    let shape = Shape { full: FULL, own: OWN, ..args.shape };
    let (group, part) = (block_idx() / shape.across(), block_idx() % shape.across());
    let block = Block { args, shape, tile: group * shape.block_tiles, patch: part * shape.block_patches };
    let stages = Shared::<f32>::at(0);
    let stage = shape.stage();
    let counts = stages.offset(shape.stages as usize * stage);
    let largest = counts.offset(shape.places());
    let weights = largest.offset(2 * shape.places());
    let centres = weights.offset(shape.block_tiles as usize * COMPONENTS);
    // This thread's tile and patch; one without work follows the first.
    let (tile, patch) = (thread_idx() / shape.block_patches, thread_idx() % shape.block_patches);
    let works = tile < block.present() && block.patch + patch < shape.patches;
    let (tile, patch) = if works { (tile, patch) } else { (0, 0) };
    let (quads, features_rows) = (shape.quads() as usize, block.features() as usize);
    // Rows of its features in a stage: of a quad they are `quads` rows apart.
    let (pair, quad) = if FULL {
        let at = 2 * (block.patch + patch) as usize;
        // SAFETY: a pair for each patch.
        unsafe { (*args.pairs.add(at), *args.pairs.add(at + 1)) }
    } else {
        (0, patch)
    };
    let own_row = quad as usize;
    let pair_row = block.row(if FULL { 2 * pair } else { block.first_feature() });
    let mut c = thread_idx() as usize;
    while c < shape.places() {
        // SAFETY: inside; only this thread counts in this place.
        unsafe { counts.set(c, 0.0) };
        c += block_dim() as usize;
    }
    let mut c = thread_idx() as usize;
    while c < block.present() as usize * COMPONENTS {
        // SAFETY: weights of all components; inside.
        unsafe { weights.set(c, *args.weights.add(block.tile as usize * COMPONENTS + c)) };
        c += block_dim() as usize;
    }
    // Features behind D are the number one.
    let mut c = thread_idx() as usize;
    while c < shape.stages as usize * features_rows * STAGE {
        let (which, feature, at) =
            (c / STAGE / features_rows, block.first_feature() + (c / STAGE % features_rows) as u32, c % STAGE);
        if feature >= shape.d {
            // SAFETY: inside; copies do not touch these rows.
            unsafe { stages.set(which * stage + block.row(feature) * PITCH + at, 1.0) };
        }
        c += block_dim() as usize;
    }
    if OWN {
        let mut c = thread_idx() as usize;
        while c < block.present() as usize * COMPONENTS * features_rows {
            let (component, feature) = (c / features_rows, block.first_feature() + (c % features_rows) as u32);
            let k = block.tile as usize * COMPONENTS + component;
            let at = component * features_rows + block.row(feature);
            // SAFETY: centres of all components; inside.
            unsafe {
                let d = shape.d as usize;
                centres.set(at, if feature < shape.d { *args.centres.add(k * d + feature as usize) } else { 0.0 });
            }
            c += block_dim() as usize;
        }
    }
    let centres = centres.offset(tile as usize * COMPONENTS * features_rows);
    // Where its sums go: neighbours beside each other.
    let tasks = shape.tiles as usize * shape.patches as usize;
    let task = (block.tile + tile) as usize * shape.patches as usize + (block.patch + patch) as usize;
    let sums = args.sums.wrapping_add(block_idx_y() as usize * shape.sums());
    let mut add = args.add != 0;
    let mut sum = [[0.0f32; VALUES]; COMPONENTS];
    let all = args.columns.n.div_ceil(STAGE as u64) as u32;
    let mut number = block_idx_y();
    // The place of the present stage, and which half of `largest` belongs to it.
    let (mut which, mut half) = (0, 0);
    let mut since = 0;
    let mut ahead = 0;
    while ahead + 1 < shape.stages {
        if number + ahead * args.slices < all {
            // SAFETY: the start: nothing is in use.
            unsafe { block.fetch(stages.offset(ahead as usize * stage), number + ahead * args.slices) };
        }
        copies_commit();
        ahead += 1;
    }
    let mut normalisers = [[0.0f32; QUAD]; 2];
    if number < all {
        // SAFETY: the stage exists.
        normalisers = unsafe { block.normalisers(number) };
    }
    barrier!();
    while number < all {
        let at = stages.offset(which as usize * stage);
        let r = at.offset(features_rows * PITCH);
        let largest = largest.offset(half * shape.places());
        match shape.stages {
            2 => copies_wait(),
            3 => copies_wait_but_one(),
            _ => copies_wait_but_two(),
        }
        // Exponents that this thread copied, into responsibilities.
        let quad = thread_idx() as usize % QUADS;
        let mut c = thread_idx();
        while c < block.present() * (COMPONENTS * QUADS) as u32 {
            let component = (c / QUADS as u32) as usize;
            let place = component * PITCH + QUAD * quad;
            // SAFETY: places of this thread's own.
            unsafe {
                let q = r.get4(place);
                let w = weights.get(component);
                let [top, factor] = normalisers;
                let mut v = [0.0f32; QUAD];
                let mut total = 0.0;
                let mut most = 0.0;
                let mut p = 0;
                while p < QUAD {
                    // Nobody wrote exponents of components behind K.
                    let r = if w > 0.0 { w * exp2(q[p] - top[p]) * factor[p] } else { 0.0 };
                    v[p] = if r >= NOTHING { r } else { 0.0 };
                    total += v[p];
                    most = max(most, v[p]);
                    p += 1;
                }
                r.set4(place, v);
                counts.set(c as usize, counts.get(c as usize) + total);
                // A place for each quad and component of a tile: those of a tile side by side.
                let (t, k) = (component / COMPONENTS, component % COMPONENTS);
                largest.set((t * QUADS + quad) * COMPONENTS + k, most);
            }
            c += block_dim();
        }
        barrier!();
        let next = number + args.slices;
        let last = number + ahead * args.slices;
        if last < all {
            // The place of the stage before this one.
            let free = if which == 0 { ahead } else { which - 1 };
            // SAFETY: all threads have passed the barrier: none computes on that stage any more.
            unsafe { block.fetch(stages.offset(free as usize * stage), last) };
        }
        copies_commit();
        if next < all {
            // SAFETY: the stage exists.
            normalisers = unsafe { block.normalisers(next) };
        }
        let r = r.offset(tile as usize * COMPONENTS * PITCH);
        let largest = largest.offset(tile as usize * COMPONENTS * QUADS);
        // Known at run time only, which keeps the loop from being unrolled.
        let left = args.columns.quads() - number * QUADS as u32;
        let present = if left < QUADS as u32 { left as usize } else { QUADS };
        let mut quad = 0;
        while quad < present {
            // SAFETY: responsibilities and features of the stage, which the barrier made visible.
            unsafe {
                let (a, b) = (largest.get4(quad * COMPONENTS), largest.get4(quad * COMPONENTS + 4));
                let most = max(max(max(a[0], a[1]), max(a[2], a[3])), max(max(b[0], b[1]), max(b[2], b[3])));
                if warp_any(works && most > 0.0) {
                    let x = at.offset(own_row * PITCH + QUAD * quad);
                    let mut y = [[0.0f32; QUAD]; 4];
                    let mut f = 0;
                    while f < 4 {
                        y[f] = x.get4(f * quads * PITCH);
                        f += 1;
                    }
                    let mut z = [[0.0f32; QUAD]; 2];
                    if FULL {
                        let x = at.offset(pair_row * PITCH + QUAD * quad);
                        z = [x.get4(0), x.get4(quads * PITCH)];
                    }
                    let r = r.offset(QUAD * quad);
                    if OWN {
                        centred::<FULL>(&mut sum, r, &y, &z, centres, (own_row, pair_row), (quads, features_rows));
                    } else {
                        plain::<FULL>(&mut sum, r, &y, &z);
                    }
                }
            }
            quad += 1;
        }
        which = if which == ahead { 0 } else { which + 1 };
        half ^= 1;
        number = next;
        since += 1;
        if since == FLUSH || next >= all {
            since = 0;
            if works {
                let tasks = opaque(tasks as u32) as usize;
                let mut to = sums.wrapping_add(task);
                let mut i = 0;
                while i < COMPONENTS {
                    // SAFETY: a place for each sum of each task.
                    unsafe { flush(to, tasks, &mut sum[i], add) };
                    to = to.wrapping_add(VALUES * tasks);
                    i += 1;
                }
            }
            if part == 0 {
                // One thread a component; its counts are ready, for each was written before the last barrier.
                let mut component = thread_idx() as usize;
                while component < block.present() as usize * COMPONENTS {
                    let mut quad = 0;
                    let mut count = [0.0f32];
                    while quad < QUADS {
                        // SAFETY: the component's own places.
                        unsafe { count[0] += counts.get(component * QUADS + quad) };
                        quad += 1;
                    }
                    let to = COMPONENTS * VALUES * tasks + block.tile as usize * COMPONENTS + component;
                    // SAFETY: a place for each component.
                    unsafe { flush(sums.add(to), 1, &mut count, add) };
                    component += block_dim() as usize;
                }
            }
            barrier!();
            let mut c = thread_idx() as usize;
            while c < shape.places() {
                // SAFETY: only this thread counts in this place, and the barrier has let all read it.
                unsafe { counts.set(c, 0.0) };
                c += block_dim() as usize;
            }
            add = true;
        }
    }
}

/// Adds a quad of samples: r·v for each component and value.
///
/// # Safety
/// `r` has a row for each component.
#[inline(always)]
unsafe fn plain<const FULL: bool>(
    sum: &mut [[f32; VALUES]; COMPONENTS],
    r: Shared<f32>,
    y: &[[f32; QUAD]; 4],
    z: &[[f32; QUAD]; 2],
) {
    let mut values = [[0.0f32; QUAD]; VALUES];
    let mut f = 0;
    while f < 4 {
        let mut p = 0;
        while p < QUAD {
            values[f][p] = if FULL { z[0][p] * y[f][p] } else { y[f][p] };
            values[4 + f][p] = if FULL { z[1][p] * y[f][p] } else { y[f][p] * y[f][p] };
            p += 1;
        }
        f += 1;
    }
    let mut k = 0;
    while k < COMPONENTS {
        // SAFETY: the caller's.
        let r = unsafe { r.get4(k * PITCH) };
        let mut v = 0;
        while v < VALUES {
            let mut p = 0;
            while p < QUAD {
                sum[k][v] = fma(r[p], values[v][p], sum[k][v]);
                p += 1;
            }
            v += 1;
        }
        k += 1;
    }
}

/// The same around each component's own centre.
///
/// # Safety
/// `r` and `centres` have a row for each component.
#[inline(always)]
unsafe fn centred<const FULL: bool>(
    sum: &mut [[f32; VALUES]; COMPONENTS],
    r: Shared<f32>,
    y: &[[f32; QUAD]; 4],
    z: &[[f32; QUAD]; 2],
    centres: Shared<f32>,
    (own_row, pair_row): (usize, usize),
    (quads, features): (usize, usize),
) {
    let features = opaque(features as u32) as usize;
    let mut k = 0;
    while k < COMPONENTS {
        // SAFETY: the caller's.
        unsafe {
            let r = r.get4(k * PITCH);
            let c = centres.offset(k * features);
            let (mut c0, mut c1) = (0.0, 0.0);
            if FULL {
                (c0, c1) = (c.get(pair_row), c.get(pair_row + quads));
            }
            let mut f = 0;
            while f < 4 {
                let own = c.get(own_row + f * quads);
                let mut p = 0;
                while p < QUAD {
                    let y = y[f][p] - own;
                    if FULL {
                        sum[k][f] = fma(r[p] * (z[0][p] - c0), y, sum[k][f]);
                        sum[k][4 + f] = fma(r[p] * (z[1][p] - c1), y, sum[k][4 + f]);
                    } else {
                        let t = r[p] * y;
                        sum[k][f] += t;
                        sum[k][4 + f] = fma(t, y, sum[k][4 + f]);
                    }
                    p += 1;
                }
                f += 1;
            }
        }
        k += 1;
    }
}

macro_rules! instances {
    ($($(#[$doc:meta])* $name:ident $full:literal $own:literal;)*) => { $(
        kernel! {
            $(#[$doc])*
            ///
            /// # Safety
            /// The pointers of `args` are valid for the sizes given; launched as the module says.
            pub unsafe fn $name(args: WeightedSumsArgs) {
                // SAFETY: the caller's.
                unsafe { body::<$full, $own>(&args) }
            }
        }
    )* };
}
instances! {
    /// Diagonal covariances, all moments around the data's centre.
    weighted_sums_diag_raw false false;
    /// Matrices, all moments around the data's centre.
    weighted_sums_full_raw true false;
    /// Diagonal covariances, moments around each component's own centre.
    weighted_sums_diag_central false true;
    /// Matrices, moments around each component's own centre.
    weighted_sums_full_central true true;
}
