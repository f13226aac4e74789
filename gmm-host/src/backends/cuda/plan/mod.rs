//! The plan of an evaluation: which kernels can make it, in which shapes of launch, and which of
//! these is the fastest.
//!
//! | family | operation | covariances | K, D | sample weights |
//! |---|---|---|---|---|
//! | `small_k` | total | all | K ≤ 8, D ≤ 16 | yes |
//! | `batch` | total, totals of many parameter sets | diagonal | D ≤ 16, K as shared memory allows | no |
//! | `batch_tensor_cores` | totals of many parameter sets | diagonal, sets near to each other | D ≤ 28, K as shared memory allows | no |
//! | `batch_warpgroup` | the same, on compute capability 9.0 | | | |
//! | `tiled8`, `tiled16` | total, scores | all | any | yes |
//! | `pair` | total, scores | diagonal | any | no |
//! | `fused` | E-step | all | K ≤ 32, D ≤ 16 | yes |
//! | `fused_tensor_cores` | E-step | all, where expanded squares keep their digits | K ≤ 64, D ≤ 32; matrices: K ≤ 8, D ≤ 15 | yes |
//! | `tensor_cores` | E-step | all, where expanded squares keep their digits | any, as shared memory allows | yes |
//! | `warpgroup` | E-step | diagonal, where expanded squares keep their digits; compute capability 9.0 | D ≤ 128 | yes |
//! | `whitened` | E-step | matrices, where expanded squares keep their digits | D up to 350 | yes |
//! | `weighted_sums` | E-step | all | any, as shared memory allows | yes |
//! | `general` | all | all | any | yes |
//!
//! Samples with missing values are taken by `small_k`, `tiled8`, `fused_tensor_cores` (K ≤ 32) and
//! `general`, under diagonal covariances.
//!
//! In float64 `fused` makes the E-step of diagonal covariances, and `general` all else. `general`
//! alone gives labels and responsibilities; in float32 it makes the E-steps that the others cannot.
//! [`Family::problem`] is this table; [`candidates`] adds the shapes; [`timing`] chooses among them
//! by measured time.
pub mod timing;
pub mod variant;

use super::device::gpu::{Limits, REGISTERS};
use crate::backends::cuda::estep::tensor_cores_layout::Shapes;
use crate::{Error, Precision};
use gmm_kernels::data::QUAD;
use gmm_kernels::estep::{fused, fused_tensor_cores, tensor_cores, warpgroup, warpgroup_whitened, weighted_sums};
use gmm_kernels::likelihood::{batch, batch_tensor_cores, small_k};
use gmm_kernels::simt::WARP;
use std::fmt;
pub use variant::{Family, Variant};

/// Registers of a thread of `weighted_sums`.
pub const WEIGHTED_SUMS_REGISTERS: u32 = 168;
/// Multiply-adds of an E-step that takes about 0.1 ms on a large device. For a shorter one, timing
/// several shapes costs more than the best of them saves.
const LONG_ESTEP: usize = 2_000_000_000;

/// Samples from which on `fused_tensor_cores` can be faster than `fused` (measured on an H200).
const MANY_SAMPLES: usize = 200_000;

/// Features from which on `whitened` can be faster than `tensor_cores` with matrices (measured on
/// an H200: D = 64, K = 32: 5.6 and 10 ms for N = 10⁶; D = 32, K = 64: 4.4 and 3.1).
const WIDE: usize = 40;

/// The same of `warpgroup_whitened`, which pads features to a multiple of 32 (measured: D = 32,
/// K = 64: 2.5 ms, 3.0 by `tensor_cores`).
const WIDE_OF_WARPGROUPS: usize = 29;

/// What is computed over the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The total log-likelihood for one parameter set.
    Total,
    /// The totals for several parameter sets, in one read of the data.
    Totals,
    /// The log-likelihood of each sample.
    Scores,
    /// Log-likelihood and sufficient statistics.
    EStep,
}

/// An operation, with all that the choice of its kernel and launch depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Task {
    pub operation: Operation,
    /// Samples of a launch.
    pub n: usize,
    pub k: usize,
    pub d: usize,
    /// Whether the covariances are matrices (`full`, `tied`); else they are diagonal (`diag`,
    /// `spherical`).
    pub full: bool,
    /// Whether the components have one matrix (`tied`).
    pub tied: bool,
    /// Whether the moments of each component are taken around the component's centre, not the
    /// data's (E-step).
    pub central: bool,
    /// Whether the squares in the exponents can be expanded without a loss of digits that would
    /// show (E-step), or those in the differences of the parameter sets' exponents (totals of many
    /// sets).
    pub expandable: bool,
    /// Whether samples have weights.
    pub weighted: bool,
    /// Whether values are missing (then the covariances are diagonal).
    pub gaps: bool,
    pub precision: Precision,
}

impl fmt::Display for Task {
    /// The size class: everything that the choice depends on, N to the power of ten.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = match self.operation {
            Operation::Total => "total",
            Operation::Totals => "totals",
            Operation::Scores => "scores",
            Operation::EStep => "estep",
        };
        let shape = match (self.full, self.tied) {
            (_, true) => "tied",
            (true, false) => "full",
            (false, false) => "diag",
        };
        write!(f, "{operation} n=1e{} k={} d={} {shape}", self.n.ilog10(), self.k, self.d)?;
        f.write_str(if self.central { " central" } else { "" })?;
        f.write_str(if self.expandable { " expandable" } else { "" })?;
        f.write_str(if self.weighted { " weighted" } else { "" })?;
        f.write_str(if self.gaps { " gaps" } else { "" })?;
        f.write_str(if self.precision == Precision::Float64 { " float64" } else { "" })
    }
}

impl Family {
    /// Why this family cannot do a task, if it cannot.
    pub fn problem(self, task: &Task, limits: &Limits) -> Option<String> {
        let Task { operation, k, d, full, weighted, gaps, precision, .. } = *task;
        if self == Self::General {
            return (operation == Operation::Totals).then(|| "evaluates one parameter set at a time".into());
        }
        if precision == Precision::Float64 && !(self == Self::Fused && operation == Operation::EStep && !full) {
            return Some("computes in float32".into());
        }
        if !self.operations().contains(&operation) {
            return Some("has no such operation".into());
        }
        if gaps && !self.takes_gaps() {
            return Some("takes samples without missing values only".into());
        }
        let diagonal_only = self.compares_sets() || matches!(self, Self::Batch | Self::Pair);
        if diagonal_only && full {
            return Some("takes no matrices".into());
        }
        if diagonal_only && weighted {
            return Some("takes samples without weights only".into());
        }
        let most = |what: &str, most: usize, got: usize| format!("takes at most {most} {what}, and here are {got}");
        match self {
            Self::SmallK | Self::Batch if d > small_k::MAX_FEATURES => Some(most("features", small_k::MAX_FEATURES, d)),
            Self::SmallK if k > small_k::COMPONENTS => Some(most("components", small_k::COMPONENTS, k)),
            Self::Batch if batch::shared_bytes(d, even(k), 1, 256) > limits.shared_per_block => {
                Some(format!("cannot hold {k} components of {d} features in shared memory"))
            }
            Self::Fused if d > small_k::MAX_FEATURES => Some(most("features", small_k::MAX_FEATURES, d)),
            Self::Fused if k > fused::MAX_COMPONENTS => Some(most("components", fused::MAX_COMPONENTS, k)),
            Self::BatchWarpgroup | Self::Warpgroup | Self::WarpgroupWhitened if !limits.warpgroups => {
                Some("needs a device of compute capability 9.0".into())
            }
            _ if self.compares_sets() && d > batch_tensor_cores::MAX_FEATURES => {
                Some(most("features", batch_tensor_cores::MAX_FEATURES, d))
            }
            _ if self.compares_sets() && shapes(self, task, limits).is_empty() => {
                Some(format!("cannot hold {k} components of {d} features in shared memory"))
            }
            _ if self.compares_sets() && !task.expandable => Some(
                "takes parameter sets only that are so near to each other that float16 keeps the digits of their differences".into(),
            ),
            Self::FusedTensorCores if gaps && fused_tensor_cores::Shape::new(k, d, full, gaps).is_none() => Some(format!(
                "takes at most {} components of {} features where values are missing, and here are {k} of {d}",
                fused_tensor_cores::MAX_COMPONENTS_GAPS,
                fused_tensor_cores::MAX_FEATURES,
            )),
            Self::FusedTensorCores if fused_tensor_cores::Shape::new(k, d, full, gaps).is_none() => Some(format!(
                "takes at most {} components of {} features, with matrices {} of {}, and here are {k} of {d}",
                fused_tensor_cores::MAX_COMPONENTS,
                fused_tensor_cores::MAX_FEATURES,
                fused_tensor_cores::TILE,
                fused_tensor_cores::MAX_FEATURES_FULL,
            )),
            Self::Warpgroup if full => Some("takes covariances of type diag or spherical only".into()),
            Self::Warpgroup if d > warpgroup::MAX_FEATURES => Some(most("features", warpgroup::MAX_FEATURES, d)),
            Self::WarpgroupWhitened if d > warpgroup_whitened::MAX_FEATURES => {
                Some(most("features", warpgroup_whitened::MAX_FEATURES, d))
            }
            Self::Whitened | Self::WarpgroupWhitened if !full => Some("takes covariances of type full or tied only".into()),
            _ if self.on_matrix_units() && !task.expandable => Some(
                "takes no component so narrow and so far from the centre of the data that float16 loses digits".into(),
            ),
            _ if self.on_matrix_units() && shapes(self, task, limits).is_empty() => {
                Some(format!("cannot hold samples of {d} features in shared memory"))
            }
            Self::WeightedSums if weighted_sums_shape(task, 128, 0).shared_bytes() > limits.shared_per_block => {
                Some(format!("cannot hold samples of {d} features in shared memory"))
            }
            _ => None,
        }
    }

    /// The error for a family or variant that cannot do a task, with the families that can.
    pub fn error(name: String, problem: String, task: &Task, limits: &Limits) -> Error {
        let fitting = Self::ALL.iter().filter(|family| family.problem(task, limits).is_none());
        let available = fitting.map(|family| family.name()).collect::<Vec<_>>().join(", ");
        Error::Kernel { name, problem, available }
    }

    /// Whether it takes samples with missing values.
    fn takes_gaps(self) -> bool {
        matches!(self, Self::SmallK | Self::Tiled8 | Self::FusedTensorCores | Self::General)
    }

    /// Whether it is an E-step on the matrix units.
    pub fn on_matrix_units(self) -> bool {
        use Family::{FusedTensorCores, TensorCores, Warpgroup, WarpgroupWhitened, Whitened};
        matches!(self, FusedTensorCores | TensorCores | Warpgroup | WarpgroupWhitened | Whitened)
    }

    /// Whether it is an E-step on the matrix units that multiplies features, not products of
    /// features, with what it has of a mixture; `full`: of one with matrices.
    pub fn multiplies_features(self, full: bool) -> bool {
        full && matches!(self, Self::Whitened | Self::WarpgroupWhitened | Self::FusedTensorCores)
    }

    /// The operations that it has.
    pub fn operations(self) -> &'static [Operation] {
        match self {
            Self::SmallK => &[Operation::Total],
            Self::Batch => &[Operation::Total, Operation::Totals],
            Self::BatchTensorCores | Self::BatchWarpgroup => &[Operation::Totals],
            Self::Tiled8 | Self::Tiled16 | Self::Pair => &[Operation::Total, Operation::Scores],
            Self::Fused
            | Self::FusedTensorCores
            | Self::TensorCores
            | Self::Warpgroup
            | Self::WarpgroupWhitened
            | Self::Whitened
            | Self::WeightedSums => &[Operation::EStep],
            Self::General => &[Operation::Total, Operation::Scores, Operation::EStep],
        }
    }
}

/// K as `small_k` and `batch` count it: with a component of zeros that makes it even.
pub fn even(k: usize) -> usize {
    k.next_multiple_of(small_k::SIDE_BY_SIDE)
}

/// Patches of features that `weighted_sums` cuts a sample's values into: quads, or the pairs of all
/// features and the one.
pub fn patches(d: usize, full: bool) -> usize {
    if full { (0..=d / 2).map(|pair| (2 * pair + 1) / QUAD + 1).sum() } else { d.div_ceil(QUAD) }
}

/// How `weighted_sums` divides its work among blocks of at most so many threads, with as many
/// stages of samples as fit into so many bytes of shared memory, and at least two.
pub fn weighted_sums_shape(task: &Task, threads: usize, shared: usize) -> weighted_sums::Shape {
    /// Patches of a block, at most: the lanes of a warp.
    const MOST_PATCHES: usize = 32;
    let tiles = task.k.div_ceil(weighted_sums::COMPONENTS);
    let patches = patches(task.d, task.full);
    let block_patches = patches.div_ceil(patches.div_ceil(MOST_PATCHES));
    let mut shape = weighted_sums::Shape {
        d: task.d as u32,
        tiles: tiles as u32,
        patches: patches as u32,
        block_tiles: tiles.min((threads / block_patches).max(1)) as u32,
        block_patches: block_patches as u32,
        stages: weighted_sums::MOST_STAGES,
        full: task.full,
        central: task.central,
    };
    while shape.stages > 2 && shape.shared_bytes() > shared {
        shape.stages -= 1;
    }
    shape
}

/// The families that a task may use if the user asks for none, the likely best first.
pub fn families(task: &Task, limits: &Limits) -> Vec<Family> {
    use Family::{
        Batch, BatchTensorCores, BatchWarpgroup, Fused, FusedTensorCores, General, Pair, SmallK, TensorCores, Tiled8,
        Tiled16, Warpgroup, WarpgroupWhitened, WeightedSums, Whitened,
    };
    let usable = |family: &Family| family.problem(task, limits).is_none();
    let in_order: &[Family] = match task.operation {
        // They are not timed: `general` takes several times as long.
        Operation::EStep if task.precision == Precision::Float64 && usable(&Fused) => &[Fused],
        _ if task.precision == Precision::Float64 => &[General],
        Operation::Total if usable(&SmallK) => &[SmallK],
        // With few samples, `pair` has the most threads at work.
        Operation::Total if task.n <= 20_000 => &[Batch, Tiled16, Tiled8, Pair],
        Operation::Total => &[Batch, Tiled16, Tiled8],
        Operation::Totals => &[BatchWarpgroup, BatchTensorCores, Batch],
        Operation::Scores if task.n <= 20_000 => &[Tiled16, Tiled8, Pair],
        Operation::Scores => &[Tiled16, Tiled8],
        Operation::EStep if task.gaps => &[FusedTensorCores],
        Operation::EStep if !is_long(task) && suits_matrix_units(task) && usable(&FusedTensorCores) => {
            &[FusedTensorCores]
        }
        // So short that the time is that of the launches.
        Operation::EStep if !is_long(task) && usable(&Fused) => &[Fused],
        Operation::EStep if !is_long(task) && usable(&WeightedSums) => &[WeightedSums],
        Operation::EStep if task.d >= WIDE_OF_WARPGROUPS && usable(&WarpgroupWhitened) => &[WarpgroupWhitened],
        Operation::EStep if task.d >= WIDE && usable(&Whitened) => &[Whitened, TensorCores, WeightedSums],
        Operation::EStep if usable(&Fused) || usable(&TensorCores) || usable(&WeightedSums) => {
            &[FusedTensorCores, Fused, Warpgroup, TensorCores, WeightedSums]
        }
        Operation::EStep => &[],
    };
    let families: Vec<Family> = in_order.iter().copied().filter(usable).collect();
    if families.is_empty() && usable(&General) { vec![General] } else { families }
}

/// The E-step's task and variant whose first kernels give a total sooner than the kernels for
/// totals do, if there is one. On an H200, N = 10⁶, from parameters to total, by these kernels and
/// by `tiled` (milliseconds, 2026-11-24): D = 32, K = 64 1.1 and 2.6; D = 64, K = 32 1.3 and 4.4;
/// D = 128, K = 16 1.7 and 8.1.
///
/// The units cut off the last digits of sums of products, which makes a total too high by about
/// 2·10⁻⁸ of itself. How much a product loses also depends on its parameter, on how many zeros that
/// ends with. In a difference of two totals this averages out over the parameters: what is left is
/// the error of a total over the root of their number. So there have to be many.
pub fn total_on_matrix_units(task: &Task, limits: &Limits) -> Option<(Task, Variant)> {
    let Task { n, k, d, full, tied, .. } = *task;
    let task = Task { operation: Operation::EStep, expandable: true, ..*task };
    let parameters = k * (d * (d + 1) / 2);
    let suits = full && !tied && d >= WIDE_OF_WARPGROUPS && parameters >= MANY_PARAMETERS;
    if !suits || n.saturating_mul(parameters) < LONG_TOTAL || Family::WarpgroupWhitened.problem(&task, limits).is_some()
    {
        return None;
    }
    candidates(&task, Some(Family::WarpgroupWhitened), limits).first().map(|variant| (task, *variant))
}

/// The variants to be timed for a task, the likely best first; of one family if that is requested
/// and has the operation. Empty where no kernel can do it in one launch.
pub fn candidates(task: &Task, requested: Option<Family>, limits: &Limits) -> Vec<Variant> {
    let families = requested.map_or_else(|| families(task, limits), |family| vec![family]);
    let mut variants = Vec::new();
    for family in families {
        for (split, block, per_multiprocessor) in shapes(family, task, limits) {
            for cached in cached_megabytes(family, task, limits) {
                variants.push(Variant { family, split, block, per_multiprocessor, cached });
            }
        }
    }
    variants
}

/// Split, block and blocks for each multiprocessor of a family's candidates.
fn shapes(family: Family, task: &Task, limits: &Limits) -> Vec<(u32, u32, u32)> {
    let Task { n, k, .. } = *task;
    let all: Vec<(u32, u32, u32)> = match family {
        // So few samples that each thread has at most a quad: the shape makes no difference.
        Family::SmallK if n <= limits.multiprocessors as usize * 128 * QUAD => vec![(1, 128, 1)],
        Family::SmallK => [(128, 4), (128, 3), (192, 2), (96, 4), (256, 2), (160, 3), (128, 8), (256, 4)]
            .map(|(block, per)| (1, block, per))
            .into(),
        Family::Batch if n <= limits.multiprocessors as usize * 64 * 2 * QUAD => vec![(16, 64, 3)],
        Family::Batch => vec![(16, 96, 1), (16, 128, 3), (16, 192, 1), (16, 64, 6), (8, 128, 3)],
        Family::BatchTensorCores | Family::BatchWarpgroup => {
            let all = [
                (64, 512, 1),
                (64, 384, 1),
                (32, 256, 2),
                (32, 512, 1),
                (16, 256, 2),
                (8, 128, 4),
                (4, 128, 2),
                (4, if family == Family::BatchWarpgroup { 128 } else { 64 }, 1),
            ];
            let fits = |&(split, block, per): &(u32, u32, u32)| {
                let variant = Variant { family, split, block, per_multiprocessor: per, cached: None };
                let shared = variant.shared_bytes(task);
                let registers = family.max_registers(task).unwrap_or(0) * block * per;
                shared <= limits.shared_per_block && per <= limits.blocks_by_shared(shared) && registers <= REGISTERS
            };
            // With few samples the shape makes no difference.
            let few = n <= limits.multiprocessors as usize * 512 * QUAD;
            return all.into_iter().filter(fits).take(if few { 1 } else { 4 }).collect();
        }
        Family::Tiled8 | Family::Tiled16 => {
            let tiles = if task.full { k } else { k.div_ceil(family.rows()) } as u32;
            let across = |block: u32| [1, 2, 4, 8].into_iter().filter(move |a| *a <= tiles && *a <= block / WARP);
            let shapes = [(64, 4), (128, 2), (128, 3), (128, 4), (128, 6), (256, 1), (256, 2)];
            shapes.iter().flat_map(|&(block, per)| across(block).map(move |a| (a, block, per))).collect()
        }
        Family::Pair => {
            // As many blocks as a multiprocessor has registers for.
            let components = (k as u32).min(WARP);
            vec![(components, WARP * components, (48 / components).min(32))]
        }
        // As many warps as registers hold.
        Family::Fused if task.precision == Precision::Float64 => return vec![(1, 128, 2)],
        // With fewer warps where the sums of all would not fit into shared memory.
        Family::Fused => {
            let most = if task.full { vec![(128, 2), (64, 4)] } else { vec![(128, 3), (96, 4), (64, 6)] };
            let few = if is_long(task) { most.len() } else { 1 };
            let shared = |block: u32| variant::fused_shared_bytes(task, block);
            let fitting =
                |block: u32| (1..=block / WARP).rev().map(|w| w * WARP).find(|b| shared(*b) <= limits.shared_per_block);
            let per = |block: u32, per: u32| limits.blocks_by_shared(shared(block)).clamp(1, per);
            let mut found = Vec::new();
            for &(block, most) in &most[..few] {
                let block = fitting(block).unwrap_or(WARP);
                let shape = (1, block, per(block, most));
                if !found.contains(&shape) {
                    found.push(shape);
                }
            }
            return found;
        }
        Family::FusedTensorCores => {
            let Some(shape) = fused_tensor_cores::Shape::new(k, task.d, task.full, task.gaps) else {
                return Vec::new();
            };
            // As many warps as have room for their sums in registers, and in shared memory.
            let most = match shape.components {
                _ if task.full => 384,
                1 if task.gaps => 384,
                1 | 2 if !task.gaps => 512,
                _ => 256,
            };
            let fits = |block: &u32| shape.shared_bytes(*block) <= limits.shared_per_block;
            let block = (1..=most / WARP).rev().map(|warps| warps * WARP).find(fits);
            return block.map(|block| (1, block, 1)).into_iter().collect();
        }
        Family::TensorCores => {
            let rows = k.div_ceil(Shapes::tiles(k) * tensor_cores::TILE) as u32;
            let all = [(8, 512), (4, 512), (2, 512), (4, 256), (2, 256), (1, 256), (2, 128), (1, 128), (1, 64)];
            let useful = |split: u32| split == 1 || split < 2 * rows;
            let shared = |&(split, block): &(u32, u32)| {
                let variant = Variant { family, split, block, per_multiprocessor: 1, cached: None };
                variant.shared_bytes(task) <= limits.shared_per_block
            };
            let fitting = all.into_iter().filter(|(split, _)| useful(*split)).filter(shared);
            return fitting.map(|(split, block)| (split, block, 1)).collect();
        }
        Family::Warpgroup => return vec![(1, warpgroup::BLOCK, 1)],
        Family::WarpgroupWhitened => {
            let [three, four] = warpgroup_whitened::WHITEN_BLOCKS;
            return vec![(1, if task.d <= 64 { four } else { three }, 1)];
        }
        Family::Whitened => {
            // Of `whiten`: three blocks, or three warps for each of four schedulers.
            let all = [(2, 128), (4, 128), (1, 128), (3, 384), (6, 384), (2, 64), (1, 32)];
            let fits = |&(split, block): &(u32, u32)| {
                let variant = Variant { family, split, block, per_multiprocessor: 1, cached: None };
                split as usize <= k && variant.shared_bytes(task) <= limits.shared_per_block
            };
            return all.into_iter().filter(fits).map(|(split, block)| (split, block, 1)).collect();
        }
        Family::WeightedSums => {
            // Rows of a tile of `tiled`, which is launched before `weighted_sums`.
            let rows = if task.full && task.d <= 32 || !task.full && k <= 8 { 8 } else { 16 };
            // The fastest of 64, 128, 192 and 256 threads on an H200 comes first.
            let threads = if task.full { [128, 192, 256] } else { [192, 128, 256] };
            let shape = |threads: u32| {
                let block = weighted_sums_shape(task, threads as usize, limits.shared_per_block).block();
                (rows, threads, (REGISTERS / (WEIGHTED_SUMS_REGISTERS * block)).clamp(1, 64))
            };
            let few = if is_long(task) { 3 } else { 1 };
            return threads[..few].iter().map(|threads| shape(*threads)).collect();
        }
        Family::General => return vec![(1, 256, 8)],
    };
    let fits = |&(split, block, per_multiprocessor): &(u32, u32, u32)| {
        let variant = Variant { family, split, block, per_multiprocessor, cached: None };
        let shared = variant.shared_bytes(task);
        shared <= limits.shared_per_block && per_multiprocessor <= limits.blocks_by_shared(shared)
    };
    let fitting: Vec<_> = all.iter().copied().filter(fits).collect();
    if fitting.is_empty() {
        // No shape fits with as many blocks at once as it asks for: the smallest block, one at a
        // time.
        return all.into_iter().min_by_key(|shape| shape.1).map(|(s, b, _)| (s, b, 1)).into_iter().collect();
    }
    fitting
}

/// Multiply-adds of a total from which on the host's part of one on the matrix units does not
/// count.
const LONG_TOTAL: usize = 4_000_000_000;
/// Numbers of all triangles of a mixture from which on totals on the matrix units have differences
/// as exact as those of the other kernels.
const MANY_PARAMETERS: usize = 1 << 14;

/// Whether an E-step takes so long that its shapes are worth timing.
fn is_long(task: &Task) -> bool {
    let pairs = if task.full { task.d * task.d } else { 4 * task.d };
    task.n.saturating_mul(task.k).saturating_mul(pairs) >= LONG_ESTEP
}

/// Whether a short E-step is faster with `fused_tensor_cores` than with `fused`, whose time grows
/// with D, and with K from 8 components to more (measured on an H200 for K = 8, D = 13: 27.6 and
/// 37 µs, matrices 78 and 109; for other D in proportion to the arithmetic).
fn suits_matrix_units(task: &Task) -> bool {
    task.n >= MANY_SAMPLES && (task.k > fused_tensor_cores::TILE || task.d >= if task.full { 12 } else { 11 })
}

/// The amounts of data to try to keep in the L2 cache: all, if it fits, else a few amounts.
fn cached_megabytes(family: Family, task: &Task, limits: &Limits) -> Vec<Option<u32>> {
    let bytes = task.n * task.d * size_of::<f32>();
    match family {
        Family::SmallK if bytes > limits.l2 / 2 => vec![Some(0), Some(28), Some(40)],
        Family::Batch | Family::BatchTensorCores if bytes > limits.l2 => vec![Some(0)],
        Family::BatchWarpgroup => vec![Some(0)],
        // Measured on an H200: keeping a part of the data in the cache gains nothing here.
        Family::Fused | Family::FusedTensorCores => vec![Some(0)],
        _ => vec![None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub const H200: Limits = Limits {
        multiprocessors: 132,
        l2: 60 << 20,
        shared_per_block: 227 << 10,
        shared_per_multiprocessor: 228 << 10,
        warpgroups: true,
    };

    fn tasks() -> impl Iterator<Item = Task> {
        let shapes = [(1, 1), (8, 13), (9, 13), (40, 16), (300, 16), (4000, 16), (8, 17), (4096, 1024), (1, 2000)];
        let sizes = [1, 5, 100, 10_000, 1_000_000, 100_000_000];
        let operations = [Operation::Total, Operation::Totals, Operation::Scores, Operation::EStep];
        let all = sizes.into_iter().flat_map(move |n| shapes.map(|(k, d)| (n, k, d)));
        all.flat_map(move |(n, k, d)| operations.map(|operation| (n, k, d, operation))).flat_map(
            |(n, k, d, operation)| {
                // Missing values come with diagonals only.
                (0..128).filter(|bits| bits & 33 != 32 && bits & 65 != 65).map(move |bits| Task {
                    operation,
                    n,
                    k,
                    d,
                    full: bits & 1 != 0,
                    weighted: bits & 2 != 0,
                    central: bits & 4 != 0,
                    expandable: bits & 16 != 0,
                    tied: bits & 32 != 0,
                    gaps: bits & 64 != 0,
                    precision: if bits & 8 != 0 { Precision::Float64 } else { Precision::Float32 },
                })
            },
        )
    }

    /// Every task has a candidate, each candidate can be launched within the device's limits, and
    /// none is listed twice.
    #[test]
    fn every_task_has_candidates_that_can_be_launched() {
        for task in tasks() {
            let found = candidates(&task, None, &H200);
            let float64 = task.precision == Precision::Float64;
            let too_wide = task.d > 28 || task.d > 16 && !task.expandable;
            let no_batch = too_wide || task.k == 4000 || task.full || task.weighted || task.gaps || float64;
            assert_eq!(found.is_empty(), task.operation == Operation::Totals && no_batch, "{task}");
            for (i, variant) in found.iter().enumerate() {
                assert!(
                    variant.is_launchable() && variant.family.problem(&task, &H200).is_none(),
                    "{variant} for {task}"
                );
                assert!(variant.shared_bytes(&task) <= H200.shared_per_block, "{variant} for {task}");
                assert!(!found[..i].contains(variant), "{variant} twice for {task}");
                assert!(variant.family.operations().contains(&task.operation));
            }
        }
    }

    /// No likelihood of complete samples in float32 falls to the general kernels, and no E-step but
    /// those whose samples fit nowhere.
    #[test]
    fn float32_has_better_kernels_than_the_general_ones() {
        for task in tasks().filter(|task| task.precision == Precision::Float32 && !task.gaps) {
            let general = candidates(&task, None, &H200).iter().any(|variant| variant.family == Family::General);
            let too_wide = task.operation == Operation::EStep && task.d >= 1024;
            assert!(!general || too_wide, "{task}");
        }
    }

    #[test]
    fn a_short_estep_is_not_timed() {
        let task = |n, k, d| Task {
            operation: Operation::EStep,
            n,
            k,
            d,
            full: false,
            tied: false,
            central: false,
            expandable: false,
            weighted: false,
            gaps: false,
            precision: Precision::Float32,
        };
        assert_eq!(candidates(&task(1_000_000, 8, 13), None, &H200).len(), 1);
        // Few samples and few features are left to `fused`, like those that lose digits.
        let family = |n, d, expandable| families(&Task { expandable, ..task(n, 8, d) }, &H200);
        assert_eq!(family(1_000_000, 13, true), [Family::FusedTensorCores]);
        for (n, d, expandable) in [(1_000_000, 13, false), (1_000_000, 5, true), (10_000, 13, true)] {
            assert_eq!(family(n, d, expandable), [Family::Fused]);
        }
        assert!(candidates(&task(1_000_000, 64, 32), None, &H200).len() > 1);
    }

    #[test]
    fn patches_cover_all_pairs() {
        // Pairs of features by quads: the lower triangle of D features and the number one.
        assert_eq!([1, 2, 3, 13].map(|d| patches(d, true)), [1, 2, 2, 16]);
        assert_eq!([1, 4, 5].map(|d| patches(d, false)), [1, 1, 2]);
    }
}
