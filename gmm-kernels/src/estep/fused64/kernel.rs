//! Loops over a lane's arrays have constant bounds, so that the arrays are registers.
use super::*;
use crate::estep::fused::kernel::likelihoods::sum_over_components;
use crate::math::{Float, LogProduct64, float64, smaller, warp_sum};
use crate::simt::*;

/// A warp's samples in its two stages in shared memory.
struct Stages<'a, const FEATURES: usize> {
    args: &'a Fused64Args,
    /// (2, FEATURES, [`TILE`]).
    ring: Shared<f64>,
    /// The place of this lane's pair in the ring.
    own: Shared<f32>,
    lane: u64,
    policy: CachePolicy,
}

impl<const FEATURES: usize> Stages<'_, FEATURES> {
    /// Starts to copy the samples from `first` on, a pair for each lane, to a stage; past the end it copies nothing.
    /// Safety: no lane reads the stage.
    #[inline(always)]
    unsafe fn fetch(&self, first: u64, stage: usize) {
        let args = self.args;
        if first < args.n {
            // A pair past the end is replaced by the last one, which is not counted.
            let (pair, last) = (first + PAIR as u64 * self.lane, (args.n - 1) & !(PAIR as u64 - 1));
            let mut from = args.x.wrapping_add(smaller(pair, last) as usize);
            let mut to = self.own.offset(stage * FEATURES * TILE * 2);
            counted!(for j in 0..args.d {
                // SAFETY: the pair exists, and the ring has a place for each lane, feature and stage.
                to.copy4(0, from.cast(), self.policy);
                from = from.wrapping_add(args.stride as usize);
                to = to.offset(TILE * 2);
            });
        }
        copies_commit();
    }

    /// Writes zeros to this lane's places for features that the data lacks.
    /// Safety: no other lane accesses the stages.
    #[inline(always)]
    unsafe fn clear_the_rest(&self) {
        counted!(for j in self.args.d as usize..FEATURES {
            // SAFETY: inside the stages.
            self.own.set4(j * TILE * 2, [0.0; 4]);
            self.own.set4((FEATURES + j) * TILE * 2, [0.0; 4]);
        });
    }
}

/// Maximum of `x` over the lanes that share a sample.
#[inline(always)]
fn max_over_components<const LANES: usize>(mut x: f64) -> f64 {
    let mut by = LANES as u32 / 2;
    while by > 0 {
        let other = x.shuffle_xor(by);
        x = if other > x { other } else { x };
        by /= 2;
    }
    x
}

/// A lane's component and its sums. The shifts are in shared memory, because registers do not hold them as well.
struct LaneComponent<const FEATURES: usize> {
    scale: [f64; FEATURES],
    /// The first shift; the next are LANES places apart.
    shifts: Shared<f64>,
    weight: f64,
    seed: f64,
    count: f64,
    first: [f64; FEATURES],
    second: [f64; FEATURES],
}

impl<const FEATURES: usize> LaneComponent<FEATURES> {
    /// Reads component `c` of `capacity`.
    /// Safety: the parameters are readable.
    #[inline(always)]
    unsafe fn load(parameters: *const f64, shifts: Shared<f64>, c: usize, capacity: usize) -> Self {
        let number = |at: usize| f64::load(parameters.add(at * capacity + c));
        let mut component = Self {
            scale: [0.0; FEATURES],
            shifts: shifts.offset(c),
            weight: number(2 * FEATURES),
            seed: number(2 * FEATURES + 1),
            count: 0.0,
            first: [0.0; FEATURES],
            second: [0.0; FEATURES],
        };
        counted!(for j in 0..FEATURES {
            component.scale[j] = number(j);
        });
        component
    }

    /// Adds a sample of responsibility `r`.
    #[inline(always)]
    fn add(&mut self, r: f64, z: &[f64; FEATURES]) {
        self.count += r;
        counted!(for j in 0..FEATURES {
            let rz = r * z[j];
            self.first[j] += rz;
            self.second[j] = fma64(rz, z[j], self.second[j]);
        });
    }

    /// Writes the warp's sums, added over the lanes of the same component. All lanes take part.
    /// Safety: `to` has places for them, which only this warp uses.
    #[inline(always)]
    unsafe fn write<const LANES: usize>(&self, to: Shared<f64>) {
        let lane = (thread_idx() % WARP) as usize;
        let write = |row: usize, mut v: f64| {
            let mut by = WARP / 2;
            while by >= LANES as u32 {
                v += v.shuffle_xor(by);
                by /= 2;
            }
            if lane < LANES {
                to.set(row * LANES + lane, v);
            }
        };
        write(0, self.count);
        counted!(for j in 0..FEATURES {
            write(1 + j, self.first[j]);
            write(1 + FEATURES + j, self.second[j]);
        });
    }
}

/// The kernel. LANES lanes, with one component each, share a pair of samples.
#[inline(always)]
unsafe fn body<const LANES: usize, const FEATURES: usize>(args: &Fused64Args) {
    let (warp, lane) = (thread_idx() / WARP, (thread_idx() % WARP) as usize);
    let warps = block_dim() / WARP;
    let (c, group) = (lane % LANES, lane / LANES);
    // Shared memory: the sums of each warp, the stages of each warp, the components' shifts.
    let values = values(FEATURES, LANES);
    let per_warp = values.next_multiple_of(2);
    let all_sums = Shared::<f64>::at(0);
    let warp_sums = all_sums.offset(warp as usize * per_warp);
    let ring = all_sums.offset(warps as usize * per_warp + warp as usize * 2 * FEATURES * TILE);
    let shifts = all_sums.offset(warps as usize * (per_warp + 2 * FEATURES * TILE));
    let own = ring.offset(PAIR * lane).cast::<f32>().in_thread_register();
    let stages = Stages::<FEATURES> { args, ring, own, lane: lane as u64, policy: policy_stream() };
    let step = grid_dim() as u64 * warps as u64 * TILE as u64;
    let mut first = (block_idx() as u64 * warps as u64 + warp as u64) * TILE as u64;
    // SAFETY: at the start no lane reads the stages.
    stages.clear_the_rest();
    stages.fetch(first, 0);
    counted!(for i in (thread_idx() as usize..FEATURES * LANES).step_by(block_dim() as usize) {
        // SAFETY: the numbers behind the scales, which have a place in shared memory.
        shifts.set(i, f64::load(args.parameters.add(FEATURES * LANES + i)));
    });
    barrier!();
    // SAFETY: the parameters have these sizes.
    let mut component = LaneComponent::<FEATURES>::load(args.parameters, shifts, c, LANES);
    let mut product = LogProduct64::new();
    let mut stage = 0;
    // The bound is the same for all lanes of a warp, so that all take part in the exchanges.
    while first < args.n {
        // SAFETY: all lanes have read the stage at the end of this loop.
        stages.fetch(first + step, stage ^ 1);
        copies_wait_but_one();
        warp_sync();
        let samples = stages.ring.offset(stage * FEATURES * TILE);
        let left = args.n - first;
        let end = if left < TILE as u64 { left as usize } else { TILE };
        counted!(for round in (0..end).step_by(PAIR * (WARP as usize / LANES)) {
            not_unrolled();
            let at = round + group * PAIR;
            let sample = first + at as u64;
            let mut z = [[0.0; FEATURES]; PAIR];
            let mut q = [component.seed; PAIR];
            counted!(for j in 0..FEATURES {
                // SAFETY: samples of the stage, which has arrived, and shifts, which are there since the barrier.
                let (x, shift) = (samples.get_pair(j * TILE + at), component.shifts.get(j * LANES));
                counted!(for p in 0..PAIR {
                    z[p][j] = fma64(component.scale[j], x[p], shift);
                    q[p] = fma64(-z[p][j], z[p][j], q[p]);
                });
            });
            // All exchanges come first: nothing between them depends on the lane.
            let (mut top, mut likelihood, mut sum) = ([0.0; PAIR], [0.0; PAIR], [0.0; PAIR]);
            counted!(for p in 0..PAIR {
                // A component without weight does not count in the maximum.
                let q = if component.weight > 0.0 { q[p] } else { f64::LOWEST };
                top[p] = max_over_components::<LANES>(q);
                // 2^LEAST is negligible beside one.
                const LEAST: f64 = -1000.0;
                let power = q - top[p];
                let power = if power > LEAST { power } else { LEAST };
                likelihood[p] = component.weight * float64::exp2_normal(power);
                sum[p] = sum_over_components::<f64, LANES>(likelihood[p]);
            });
            let mut r = [0.0; PAIR];
            counted!(for p in 0..PAIR {
                // A sample past the end counts as nothing.
                let exists = sample + (p as u64) < args.n;
                let (top, sum) = if exists { (top[p], sum[p]) } else { (0.0, 1.0) };
                r[p] = if exists { likelihood[p] * float64::reciprocal(sum) } else { 0.0 };
                if args.sample_weights.is_null() {
                    product.multiply(top, sum);
                } else {
                    let weight = if exists {
                        // SAFETY: the sample exists.
                        f64::load(args.sample_weights.add(sample as usize + p))
                    } else {
                        0.0
                    };
                    product.add(weight * (top + float64::log2(sum)));
                    r[p] *= weight;
                }
            });
            counted!(for p in 0..PAIR {
                component.add(r[p], &z[p]);
            });
        });
        first += step;
        stage ^= 1;
        // The next copy into this stage starts after all lanes have read it.
        warp_sync();
    }
    // The first lane of each group counts the samples that its lanes share.
    let total = warp_sum(if c == 0 { product.sum() } else { 0.0 });
    // SAFETY: places that only this warp uses.
    component.write::<LANES>(warp_sums);
    if lane == 0 {
        warp_sums.set(values - 1, total);
    }
    barrier!();
    counted!(for v in (thread_idx() as usize..values).step_by(block_dim() as usize) {
        let mut sum = 0.0;
        counted!(for warp in 0..warps as usize {
            // SAFETY: the barrier made the sums of all warps visible.
            sum += all_sums.get(warp * per_warp + v);
        });
        // SAFETY: a place for each value and block.
        store(args.partials.add(v * grid_dim() as usize + block_idx() as usize), sum);
    });
}

kernels! {
    /// Computes each block's log-likelihood and sufficient statistics.
    fused64_k08_d04: Fused64Args = body::<8, 4>;
    fused64_k08_d08: Fused64Args = body::<8, 8>;
    fused64_k08_d12: Fused64Args = body::<8, 12>;
    fused64_k08_d16: Fused64Args = body::<8, 16>;
    fused64_k32_d04: Fused64Args = body::<32, 4>;
    fused64_k32_d08: Fused64Args = body::<32, 8>;
    fused64_k32_d12: Fused64Args = body::<32, 12>;
    fused64_k32_d16: Fused64Args = body::<32, 16>;
}
