//! The code of the `weighted_sums` kernels.
//!
//! No barrier stands between two branches on the same condition: a compiler unaware that barriers are convergent may
//! merge the branches and copy the barrier into both sides.
mod task;

use super::*;
use crate::simt::*;
use task::PatchTask;

/// Responsibilities (times a sample's weight) below 2^-40 count as zero: float32 sums do not notice them, and a warp
/// whose components have no larger ones for a quad of samples skips the quad.
const NEGLIGIBLE: f32 = 9.094_947e-13;

/// The state that the threads of a block share: the launch, the block's part of the work, and its shared memory.
struct PatchBlock<'a> {
    args: &'a WeightedSumsArgs,
    shape: PatchShape,
    /// The block's first tile.
    tile: u32,
    /// The block's first patch.
    patch: u32,
    /// The stages, rows of [`PITCH`] numbers: the features, then the components' exponents, later responsibilities.
    stages: Shared<f32>,
    /// Σ r of each component and quad of a stage since the sums last moved to memory.
    counts: Shared<f32>,
    /// The largest responsibility of each component and quad, for the current stage and the one before.
    largest: Shared<f32>,
    weights: Shared<f32>,
    /// The components' centres, a row for each component, in the order of a stage's features.
    centres: Shared<f32>,
}

impl<'a> PatchBlock<'a> {
    #[inline(always)]
    fn new(args: &'a WeightedSumsArgs, shape: PatchShape) -> Self {
        let (group, part) = (block_idx() / shape.across(), block_idx() % shape.across());
        let stages = Shared::<f32>::at(0);
        let counts = stages.offset(shape.stages as usize * shape.stage());
        let largest = counts.offset(shape.places());
        let weights = largest.offset(2 * shape.places());
        let centres = weights.offset(shape.block_tiles as usize * COMPONENTS);
        let (tile, patch) = (group * shape.block_tiles, part * shape.block_patches);
        Self { args, shape, tile, patch, stages, counts, largest, weights, centres }
    }

    /// Row of a feature in a stage. A quad's rows are apart, so that lanes with neighbouring quads use different banks.
    #[inline(always)]
    fn row(&self, feature: u32) -> usize {
        let feature = if self.shape.full { feature } else { feature - self.patch * QUAD as u32 };
        (feature % QUAD as u32 * self.shape.quads() + feature / QUAD as u32) as usize
    }

    #[inline(always)]
    fn first_feature(&self) -> u32 {
        if self.shape.full { 0 } else { self.patch * QUAD as u32 }
    }

    /// Features of a stage, including those behind D.
    #[inline(always)]
    fn features(&self) -> u32 {
        self.shape.quads() * QUAD as u32
    }

    /// Tiles of the block that exist: the last block may have fewer.
    #[inline(always)]
    fn tiles(&self) -> u32 {
        let left = self.shape.tiles - self.tile;
        if left < self.shape.block_tiles { left } else { self.shape.block_tiles }
    }

    /// Fills the shared memory with all that is the same for all stages. All threads of the block take part.
    /// Safety: the shared memory is not in use.
    #[inline(always)]
    unsafe fn prepare<const CENTRAL: bool>(&self) {
        let (args, shape) = (self.args, self.shape);
        let (first, features) = (self.first_feature(), self.features() as usize);
        counted!(for c in (thread_idx() as usize..shape.places()).step_by(block_dim() as usize) {
            // SAFETY: inside.
            self.counts.set(c, 0.0);
        });
        counted!(for c in (thread_idx() as usize..self.tiles() as usize * COMPONENTS).step_by(block_dim() as usize) {
            // SAFETY: weights of all components; inside.
            self.weights.set(c, load(args.weights.add(self.tile as usize * COMPONENTS + c)));
        });
        // Features behind D are the number one.
        counted!(for c in
            (thread_idx() as usize..shape.stages as usize * features * STAGE).step_by(block_dim() as usize)
        {
            let (stage, feature, at) = (c / STAGE / features, first + (c / STAGE % features) as u32, c % STAGE);
            if feature >= shape.d {
                // SAFETY: inside; copies do not touch these rows.
                self.stages.set(stage * shape.stage() + self.row(feature) * PITCH + at, 1.0);
            }
        });
        if CENTRAL {
            counted!(for c in
                (thread_idx() as usize..self.tiles() as usize * COMPONENTS * features).step_by(block_dim() as usize)
            {
                let (component, feature) = (c / features, first + (c % features) as u32);
                let k = self.tile as usize * COMPONENTS + component;
                let at = component * features + self.row(feature);
                // SAFETY: centres of all components; inside.
                let from = args.centres.wrapping_add(k * shape.d as usize + feature as usize);
                self.centres.set(at, if feature < shape.d { load(from) } else { 0.0 });
            });
        }
    }

    /// Starts to copy the samples' stage `number` to `to`. Each thread copies exponents that it later converts.
    /// Safety: no thread computes on the place.
    #[inline(always)]
    unsafe fn fetch(&self, to: Shared<f32>, number: u32) {
        let (args, policy) = (self.args, policy_keep());
        let first = number * QUADS as u32;
        counted!(for c in (thread_idx()..self.features() * QUADS as u32).step_by(block_dim()) {
            let (feature, quad) = (self.first_feature() + c / QUADS as u32, c % QUADS as u32);
            if feature < self.shape.d {
                // SAFETY: columns extend to whole stages; the stage has a row for the feature.
                let from = args.columns.quad(first + quad, feature as usize);
                to.copy4(self.row(feature) * PITCH + QUAD * quad as usize, from, policy);
            }
        });
        let Exponents { q, stride, .. } = args.exponents;
        let sample = QUAD * first as usize;
        let to = to.offset(self.features() as usize * PITCH);
        counted!(for c in (thread_idx()..self.tiles() * (COMPONENTS * QUADS) as u32).step_by(block_dim()) {
            let (component, quad) = ((c / QUADS as u32) as usize, (c % QUADS as u32) as usize);
            let k = self.tile as usize * COMPONENTS + component;
            let from = q.wrapping_add(k * stride as usize + sample + QUAD * quad);
            // SAFETY: a row for each component.
            to.copy4(component * PITCH + QUAD * quad, from, policy);
        });
    }

    /// Maxima and factors of the quad of a stage whose exponents this thread copies, for all components.
    /// Safety: the stage exists.
    #[inline(always)]
    unsafe fn normalisers(&self, number: u32) -> [[f32; QUAD]; 2] {
        let Exponents { normalisers, stride, .. } = self.args.exponents;
        let from = normalisers.wrapping_add(number as usize * STAGE + QUAD * (thread_idx() as usize % QUADS));
        // SAFETY: two rows for the samples.
        [load4(from, policy_keep()), load4(from.wrapping_add(stride as usize), policy_keep())]
    }

    /// Turns the exponents that this thread copied into responsibilities, in place, and adds them to the counts.
    /// Safety: the exponents `r` of the stage have arrived; `largest` is the current stage's.
    #[inline(always)]
    unsafe fn responsibilities(&self, r: Shared<f32>, largest: Shared<f32>, normalisers: [[f32; QUAD]; 2]) {
        let quad = thread_idx() as usize % QUADS;
        counted!(for c in (thread_idx()..self.tiles() * (COMPONENTS * QUADS) as u32).step_by(block_dim()) {
            let component = (c / QUADS as u32) as usize;
            let place = component * PITCH + QUAD * quad;
            // SAFETY: places that only this thread uses.
            let q = r.get4(place);
            let w = self.weights.get(component);
            let [top, factor] = normalisers;
            let mut v = [0.0f32; QUAD];
            let mut total = 0.0;
            let mut most = 0.0;
            counted!(for p in 0..QUAD {
                // The exponents of components behind K were never written.
                let r = if w > 0.0 { w * exp2(q[p] - top[p]) * factor[p] } else { 0.0 };
                v[p] = if r >= NEGLIGIBLE { r } else { 0.0 };
                total += v[p];
                most = max(most, v[p]);
            });
            r.set4(place, v);
            self.counts.set(c as usize, self.counts.get(c as usize) + total);
            // A place for each quad and component; the components of a tile are neighbours.
            let (t, k) = (component / COMPONENTS, component % COMPONENTS);
            largest.set((t * QUADS + quad) * COMPONENTS + k, most);
        });
    }

    /// Moves the counts to memory like [`move_sums`]. `to`: the place of component 0. All threads of the block take
    /// part.
    /// Safety: each component has a place, and no other block uses the places of this block's.
    #[inline(always)]
    unsafe fn move_counts(&self, to: *mut f64, add: bool) {
        // Four neighbouring lanes counted the quads of a component; whole warps meet here.
        const { assert!(COMPONENTS * QUADS == WARP as usize && QUADS == 4) };
        counted!(for c in (thread_idx()..self.tiles() * (COMPONENTS * QUADS) as u32).step_by(block_dim()) {
            // SAFETY: only this thread counts in this place.
            let count = self.counts.get(c as usize);
            let other = |lane: u32| f32::from_bits(shuffle_xor_u32(count.to_bits(), lane));
            let (second, third, fourth) = (other(1), other(2), other(3));
            self.counts.set(c as usize, 0.0);
            if c.is_multiple_of(QUADS as u32) {
                let component = self.tile as usize * COMPONENTS + (c / QUADS as u32) as usize;
                move_sums(to.wrapping_add(component), 1, &mut [count + second + third + fourth], add);
            }
        });
    }
}

/// Moves a thread's sums to memory, `step` apart, replacing or adding, and leaves zeros.
/// Safety: the places exist, and no other thread uses them.
#[inline(always)]
unsafe fn move_sums<const V: usize>(to: *mut f64, step: usize, values: &mut [f32; V], add: bool) {
    let mut sums = [0.0f64; V];
    // All reads come before the first write, so that they overlap.
    let mut v = 0;
    while add && v < V {
        sums[v] = load(to.wrapping_add(v * step));
        v += 1;
    }
    counted!(for v in 0..V {
        store(to.wrapping_add(v * step), sums[v] + values[v] as f64);
        values[v] = 0.0;
    });
}

/// Waits for the oldest of `stages` stages, all but one of which are being copied.
#[inline(always)]
fn wait_for_stage(stages: u32) {
    match stages {
        2 => copies_wait(),
        3 => copies_wait_but_one(),
        _ => copies_wait_but_two(),
    }
}

#[inline(always)]
unsafe fn body<const FULL: bool, const CENTRAL: bool>(args: &WeightedSumsArgs) {
    let shape = PatchShape { full: FULL, central: CENTRAL, ..args.shape };
    let block = PatchBlock::new(args, shape);
    // The stages of all slices, and this block's current one.
    let all = args.columns.n.div_ceil(STAGE as u64) as u32;
    let mut number = block_idx_y();
    let mut ahead = 0;
    while ahead + 1 < shape.stages {
        if number + ahead * args.slices < all {
            // SAFETY: at the start no stage is in use.
            block.fetch(block.stages.offset(ahead as usize * shape.stage()), number + ahead * args.slices);
        }
        copies_commit();
        ahead += 1;
    }
    let mut normalisers = [[0.0f32; QUAD]; 2];
    if number < all {
        // SAFETY: the stage exists.
        normalisers = block.normalisers(number);
    }
    // SAFETY: at the start only copies use the shared memory; the arguments are as documented.
    let task = {
        block.prepare::<CENTRAL>();
        PatchTask::of_thread::<FULL>(&block)
    };
    let features = block.features() as usize;
    let centres = block.centres.offset(task.tile as usize * COMPONENTS * features);
    // The place of this task's sums: neighbouring tasks are side by side, and all counts come last.
    let tasks = shape.tiles as usize * shape.patches as usize;
    let index = (block.tile + task.tile) as usize * shape.patches as usize + (block.patch + task.patch) as usize;
    let to = args.sums.wrapping_add(block_idx_y() as usize * shape.sums());
    let mut add = args.add != 0;
    let mut sums = [[0.0f32; VALUES]; COMPONENTS];
    // The place of the current stage, and its half of `largest`.
    let (mut place, mut half) = (0, 0);
    let mut since_move = 0;
    barrier!();
    while number < all {
        let samples = block.stages.offset(place as usize * shape.stage());
        let r = samples.offset(features * PITCH);
        let largest = block.largest.offset(half * shape.places());
        wait_for_stage(shape.stages);
        // SAFETY: this thread's copies have arrived; no thread reads this half of `largest` since the last barrier.
        block.responsibilities(r, largest, normalisers);
        barrier!();
        let next = number + args.slices;
        let last = number + ahead * args.slices;
        if last < all {
            // The place of the previous stage.
            let free = if place == 0 { ahead } else { place - 1 };
            // SAFETY: all threads have passed the barrier, so none computes on that stage.
            block.fetch(block.stages.offset(free as usize * shape.stage()), last);
        }
        copies_commit();
        if next < all {
            normalisers = block.normalisers(next);
        }
        let r = r.offset(task.tile as usize * COMPONENTS * PITCH);
        let largest = largest.offset(task.tile as usize * COMPONENTS * QUADS);
        // The bound is only known at run time, so that the loop is not unrolled.
        let left = args.columns.quads() - number * QUADS as u32;
        let quads = if left < QUADS as u32 { left as usize } else { QUADS };
        counted!(for quad in 0..quads {
            // SAFETY: responsibilities and features of the stage, which the barrier made visible.
            let (a, b) = (largest.get4(quad * COMPONENTS), largest.get4(quad * COMPONENTS + 4));
            let most = max(max(max(a[0], a[1]), max(a[2], a[3])), max(max(b[0], b[1]), max(b[2], b[3])));
            if warp_any(task.works && most > 0.0) {
                task.add_quad::<FULL, CENTRAL>(&mut sums, samples, r, quad, (centres, features));
            }
        });
        place = if place == ahead { 0 } else { place + 1 };
        half ^= 1;
        number = next;
        since_move += 1;
        if since_move == FLUSH || next >= all {
            since_move = 0;
            if task.works {
                let tasks = opaque(tasks as u32) as usize;
                let mut to = to.wrapping_add(index);
                counted!(for k in 0..COMPONENTS {
                    // SAFETY: a place for each sum of each task.
                    move_sums(to, tasks, &mut sums[k], add);
                    to = to.wrapping_add(VALUES * tasks);
                });
            }
            if block.patch == 0 {
                // SAFETY: a place for each component, which only the blocks of the first patches use.
                block.move_counts(to.wrapping_add(COMPONENTS * VALUES * tasks), add);
            }
            add = true;
        }
    }
}

kernels! {
    /// Sums moments around the data's centre (`raw`) or each component's (`central`).
    weighted_sums_diag_raw: WeightedSumsArgs = body::<false, false>;
    weighted_sums_full_raw: WeightedSumsArgs = body::<true, false>;
    weighted_sums_diag_central: WeightedSumsArgs = body::<false, true>;
    weighted_sums_full_central: WeightedSumsArgs = body::<true, true>;
}
