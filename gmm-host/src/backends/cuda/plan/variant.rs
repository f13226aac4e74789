//! A variant: a kernel and the shape of its launch, with a text form.
use super::{Task, even, weighted_sums_shape};
use crate::Precision;
use crate::backends::cuda::estep::tensor_cores_layout::{MOST_WARPS, Shapes, WhitenedShapes};
use crate::backends::cuda::likelihood::{batch_tensor_cores_layout, small_k};
use gmm_kernels::data::QUAD;
use gmm_kernels::entries;
use gmm_kernels::estep::fused::{self, Moments};
use gmm_kernels::estep::{fused_tensor_cores, fused64, warpgroup, warpgroup_whitened};
use gmm_kernels::likelihood::{batch, batch_tensor_cores, batch_warpgroup, pair, tiled};
use gmm_kernels::simt::{WARP, WARPGROUP};
use std::fmt;
use std::str::FromStr;

/// A kernel, or several that work together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    SmallK,
    Batch,
    BatchTensorCores,
    BatchWarpgroup,
    Tiled8,
    Tiled16,
    Pair,
    Fused,
    FusedTensorCores,
    TensorCores,
    Warpgroup,
    WarpgroupWhitened,
    Whitened,
    WeightedSums,
    General,
}

impl Family {
    pub const ALL: [Self; 15] = [
        Self::SmallK,
        Self::Batch,
        Self::BatchTensorCores,
        Self::BatchWarpgroup,
        Self::Tiled8,
        Self::Tiled16,
        Self::Pair,
        Self::Fused,
        Self::FusedTensorCores,
        Self::TensorCores,
        Self::Warpgroup,
        Self::WarpgroupWhitened,
        Self::Whitened,
        Self::WeightedSums,
        Self::General,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::SmallK => "small_k",
            Self::Batch => "batch",
            Self::BatchTensorCores => "batch_tensor_cores",
            Self::BatchWarpgroup => "batch_warpgroup",
            Self::Tiled8 => "tiled8",
            Self::Tiled16 => "tiled16",
            Self::Pair => "pair",
            Self::Fused => "fused",
            Self::FusedTensorCores => "fused_tensor_cores",
            Self::TensorCores => "tensor_cores",
            Self::Warpgroup => "warpgroup",
            Self::WarpgroupWhitened => "warpgroup_whitened",
            Self::Whitened => "whitened",
            Self::WeightedSums => "weighted_sums",
            Self::General => "general",
        }
    }

    /// Registers that a thread may have, where the compiler's choice costs occupancy (measured on
    /// an H200).
    pub fn max_registers(self, task: &Task) -> Option<u32> {
        match self {
            // It holds as many marks of what is observed as features.
            Self::SmallK if task.gaps => Some(168),
            Self::SmallK => Some(120),
            Self::Batch => Some(168),
            // 512 threads then leave registers of a multiprocessor, or 384, for a warp of
            // `reduce_sets`: the sums of one batch are added up beside the blocks of another
            // thread's batch, which hold their place for the whole of their time.
            Self::BatchTensorCores | Self::BatchWarpgroup => {
                Some(if batch_tensor_cores::steps(task.d) <= 2 { 120 } else { 160 })
            }
            Self::Pair => Some(40),
            _ => None,
        }
    }

    /// Whether it evaluates parameter sets by what they differ in from a reference.
    pub fn compares_sets(self) -> bool {
        matches!(self, Self::BatchTensorCores | Self::BatchWarpgroup)
    }

    /// Whether it sums Σₖ wₖ·2^qₖ without the maximum taken out, so that the bias of the device's
    /// 2^x is in every sample's likelihood. (With the maximum taken out the largest term is 2⁰,
    /// which is exact.)
    pub fn has_exp2_bias(self) -> bool {
        matches!(self, Self::SmallK | Self::Batch | Self::BatchTensorCores | Self::BatchWarpgroup | Self::Fused)
    }

    /// `tiled`: components of a tile, or rows of a triangle.
    pub fn rows(self) -> usize {
        if self == Self::Tiled8 { 8 } else { 16 }
    }
}

impl FromStr for Family {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|family| family.name() == name).ok_or(())
    }
}

/// A kernel and the shape of its launch: what two runs must have in common to give the same bits.
///
/// Its text form is `FAMILY[/SPLIT]:BLOCKxBLOCKS:CACHED`, for example `small_k:128x4:28` or
/// `tiled16/2:128x3:all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Variant {
    pub family: Family,
    /// `pair`: components that a block takes at a time. `tiled`: warps of a block along the
    /// components. `batch`: most sets of a group. `batch_tensor_cores`, `batch_warpgroup`: most
    /// sets of a block. `weighted_sums`: rows of a tile of the kernel that goes before it.
    /// `tensor_cores`, `whitened`: warps of a block of `exponents` or `whiten` along the
    /// components. Others: 1.
    pub split: u32,
    /// Threads of a block (`weighted_sums`: at most; `tensor_cores`: of `exponents`; `whitened`: of
    /// `whiten`).
    pub block: u32,
    /// Blocks of the grid for each multiprocessor, at most.
    pub per_multiprocessor: u32,
    /// Megabytes (10⁶) of the data that the L2 cache is asked to hold from launch to launch;
    /// `None`: all of it.
    pub cached: Option<u32>,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.family.name())?;
        if self.split != 1 || matches!(self.family, Family::Pair | Family::Tiled8 | Family::Tiled16) {
            write!(f, "/{}", self.split)?;
        }
        write!(f, ":{}x{}:", self.block, self.per_multiprocessor)?;
        match self.cached {
            Some(megabytes) => write!(f, "{megabytes}"),
            None => f.write_str("all"),
        }
    }
}

impl FromStr for Variant {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split(':');
        let (Some(kernel), Some(shape), Some(cached), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(());
        };
        let number = |text: &str| text.parse::<u32>().map_err(|_| ());
        let (name, split) = kernel.split_once('/').unwrap_or((kernel, "1"));
        let (block, per_multiprocessor) = shape.split_once('x').ok_or(())?;
        let variant = Self {
            family: name.parse()?,
            split: number(split)?,
            block: number(block)?,
            per_multiprocessor: number(per_multiprocessor)?,
            cached: if cached == "all" { None } else { Some(number(cached)?) },
        };
        if variant.is_launchable() { Ok(variant) } else { Err(()) }
    }
}

/// Dynamic shared memory of a launch of `fused`.
pub fn fused_shared_bytes(task: &Task, block: u32) -> usize {
    if task.precision == Precision::Float64 {
        return fused64::shared_bytes(fused64::features(task.d), fused64::capacity(task.k), block);
    }
    fused::shared_bytes(task.d, task.full, fused::capacity(task.k), block)
}

impl Variant {
    /// Whether the shape meets the requirements in the kernel's documentation.
    pub fn is_launchable(&self) -> bool {
        let warps = self.block / WARP;
        let whole = (WARP..=1024).contains(&self.block) && self.block.is_multiple_of(WARP);
        let counts = (1..=64).contains(&self.per_multiprocessor) && self.split > 0;
        let split = match self.family {
            Family::SmallK | Family::Fused | Family::FusedTensorCores | Family::General => self.split == 1,
            Family::Warpgroup => self.split == 1 && self.block == warpgroup::BLOCK,
            Family::WarpgroupWhitened => self.split == 1 && warpgroup_whitened::WHITEN_BLOCKS.contains(&self.block),
            Family::Batch | Family::BatchTensorCores => true,
            Family::BatchWarpgroup => {
                self.block.is_multiple_of(WARPGROUP)
                    && batch_tensor_cores_layout::fours(self.split as usize) <= batch_warpgroup::MOST_FOURS
            }
            Family::Pair => self.split == warps,
            Family::Tiled8 | Family::Tiled16 => {
                warps.is_multiple_of(self.split) && (warps / self.split).is_power_of_two()
            }
            Family::WeightedSums => matches!(self.split, 8 | 16),
            // The other direction has a power of two of warps.
            Family::TensorCores => {
                self.split.is_power_of_two()
                    && warps.is_multiple_of(self.split)
                    && (warps / self.split).is_power_of_two()
                    && warps <= MOST_WARPS
            }
            Family::Whitened => {
                warps.is_multiple_of(self.split) && (warps / self.split).is_power_of_two() && warps <= MOST_WARPS
            }
        };
        whole && counts && split
    }

    /// Blocks of a grid over `n` samples: no more than there is work for.
    pub fn blocks(&self, n: usize, multiprocessors: u32) -> u32 {
        let per_block = match self.family {
            Family::SmallK => self.block as usize * QUAD,
            Family::Batch => self.block as usize * QUAD * batch::QUADS,
            Family::BatchTensorCores => (self.block / WARP) as usize * batch_tensor_cores::SAMPLES,
            Family::BatchWarpgroup => (self.block / WARP) as usize * batch_warpgroup::SAMPLES,
            Family::Tiled8 | Family::Tiled16 => (self.block / WARP / self.split) as usize * tiled::WARP_SAMPLES,
            Family::Pair => pair::TILE,
            Family::Fused => (self.block / WARP) as usize * fused::TILE,
            Family::FusedTensorCores
            | Family::TensorCores
            | Family::Warpgroup
            | Family::WarpgroupWhitened
            | Family::Whitened
            | Family::WeightedSums
            | Family::General => self.block as usize,
        };
        self.most_blocks(n, per_block, multiprocessors)
    }

    /// Blocks of a grid over `n` samples, of which a warp takes `of_warp` at a time.
    pub fn blocks_of(&self, n: usize, of_warp: usize, multiprocessors: u32) -> u32 {
        self.most_blocks(n, (self.block / WARP) as usize * of_warp, multiprocessors)
    }

    fn most_blocks(&self, n: usize, per_block: usize, multiprocessors: u32) -> u32 {
        let most = multiprocessors * self.per_multiprocessor;
        n.div_ceil(per_block).clamp(1, most as usize) as u32
    }

    /// `batch`: sets of a group, as many as its split says and 48 KiB of shared memory hold, and at
    /// least one.
    pub fn group(&self, k: usize, d: usize) -> usize {
        let fits = |group: &usize| batch::shared_bytes(d, even(k), *group, self.block) <= 48 << 10;
        (1..=self.split as usize).rev().find(fits).unwrap_or(1)
    }

    /// Dynamic shared memory of a launch, in bytes.
    pub fn shared_bytes(&self, task: &Task) -> usize {
        let Task { k, d, .. } = *task;
        match self.family {
            Family::SmallK => small_k::kind(task).shared_bytes(d, k, self.block),
            Family::Batch => batch::shared_bytes(d, even(k), self.group(k, d), self.block),
            Family::BatchTensorCores | Family::BatchWarpgroup => {
                let (eights, part) =
                    (batch_tensor_cores_layout::eights(k), batch_tensor_cores_layout::fours(self.split as usize));
                if self.family == Family::BatchWarpgroup {
                    batch_warpgroup::shared_bytes(d, eights, part, self.block)
                } else {
                    batch_tensor_cores::shared_bytes(d, eights, part, self.block)
                }
            }
            Family::Tiled8 | Family::Tiled16 => {
                tiled::shared_bytes(self.family.rows(), task.gaps, self.block, self.split)
            }
            Family::Pair => pair::shared_bytes(self.block),
            Family::Fused => fused_shared_bytes(task, self.block),
            Family::FusedTensorCores => fused_tensor_cores::Shape::new(k, d, task.full, task.gaps)
                .map_or(usize::MAX, |shape| shape.shared_bytes(self.block)),
            Family::TensorCores => {
                let shapes = Shapes::new(task, self);
                shapes.exponents.shared_bytes().max(shapes.weigh.shared_bytes())
            }
            Family::Warpgroup => {
                let shape = warpgroup::Shape { d: d as u32, k: k as u32 };
                shape.exponents_bytes().max(shape.weigh_bytes())
            }
            Family::WarpgroupWhitened | Family::Whitened => {
                WhitenedShapes::new(task, self).map_or(usize::MAX, |shapes| shapes.shared_bytes())
            }
            // With two stages, the fewest that the kernel can use.
            Family::WeightedSums => weighted_sums_shape(task, self.block as usize, 0).shared_bytes(),
            Family::General => 0,
        }
    }

    /// Quads that the L2 cache is asked to hold.
    pub fn cached_quads(&self, d: usize) -> u32 {
        let quads = |megabytes: u32| megabytes as usize * 1_000_000 / (d * QUAD * size_of::<f32>());
        self.cached.map_or(u32::MAX, |megabytes| quads(megabytes).min(u32::MAX as usize) as u32)
    }

    /// The entries of the kernels that it launches for a task, by name.
    pub fn entries(&self, task: &Task) -> Vec<String> {
        let Task { k, d, full, central, .. } = *task;
        let suffix = if task.precision == Precision::Float64 { "f64" } else { "f32" };
        let shape = match (full, task.gaps) {
            (true, _) => "full",
            (false, true) => "observed",
            (false, false) => "diag",
        };
        match self.family {
            Family::SmallK => vec![entries::small_k_name(d, small_k::kind(task))],
            Family::Batch => vec![entries::batch(d).name().into()],
            Family::BatchTensorCores => {
                let sums = entries::batch_tensor_cores(batch_tensor_cores::steps(d));
                vec![entries::batch_parameters().name().into(), sums.name().into()]
            }
            Family::BatchWarpgroup => {
                let sums = entries::batch_warpgroup(batch_tensor_cores::steps(d), k);
                vec![entries::batch_parameters().name().into(), sums.name().into()]
            }
            Family::Tiled8 | Family::Tiled16 => vec![entries::tiled(self.family.rows(), full, task.gaps).name().into()],
            Family::Pair => vec![entries::pair().name().into()],
            Family::Fused if task.precision == Precision::Float64 => {
                vec![entries::fused64(fused64::capacity(k), fused64::features(d)).name().into()]
            }
            Family::Fused => vec![entries::fused(Self::moments(task), fused::capacity(k), d).name().into()],
            Family::FusedTensorCores => fused_tensor_cores::Shape::new(k, d, full, task.gaps)
                .map(|shape| entries::fused_tensor_cores(shape).name().into())
                .into_iter()
                .collect(),
            Family::Warpgroup => vec![
                entries::warpgroup_products().name().into(),
                entries::warpgroup_exponents().name().into(),
                entries::warpgroup_weigh().name().into(),
            ],
            Family::WarpgroupWhitened => {
                let shape = warpgroup_whitened::Shape { d: d as u32, k: k as u32 };
                vec![
                    entries::warpgroup_whiten(shape).name().into(),
                    entries::warpgroup_respond(shape).name().into(),
                    entries::warpgroup_outer(shape).name().into(),
                ]
            }
            Family::Whitened => {
                vec![entries::whiten().name().into(), entries::outer().name().into()]
            }
            Family::TensorCores => {
                let tiles = Shapes::tiles(k);
                vec![entries::exponents(full, tiles).name().into(), entries::weigh(full, tiles).name().into()]
            }
            Family::WeightedSums => vec![
                entries::tiled(self.split as usize, full, false).name().into(),
                entries::weighted_sums(full, central).name().into(),
            ],
            Family::General => {
                vec![
                    format!("density_{shape}_{suffix}"),
                    format!("posterior_{suffix}"),
                    format!("accumulate_{shape}_{suffix}"),
                ]
            }
        }
    }

    /// `fused`: which moments, for a task.
    pub fn moments(task: &Task) -> Moments {
        match (task.full, task.central) {
            (true, _) => Moments::Full,
            (false, true) => Moments::Diag,
            (false, false) => Moments::Raw,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_survives_its_text() {
        for text in [
            "small_k:128x4:28",
            "tiled16/2:128x3:all",
            "pair/8:256x8:all",
            "pair/1:32x8:all",
            "batch/16:64x6:0",
            "batch_tensor_cores/64:512x1:0",
            "batch_warpgroup/64:512x1:0",
            "fused:128x3:0",
            "fused_tensor_cores:512x1:0",
            "tensor_cores/4:256x1:all",
            "warpgroup:384x1:all",
            "warpgroup_whitened:512x1:all",
            "whitened/3:384x1:all",
            "weighted_sums/8:192x2:all",
            "general:256x8:all",
        ] {
            assert_eq!(text.parse::<Variant>().unwrap().to_string(), text);
        }
        let bad = "small_k small_k:128x4 small_k:100x4:0 small_k/2:128x4:0 warp:128x4:0 pair/7:128x1:all \
            tiled8/8:128x1:all small_k:128x0:0 small_k:2048x1:0 small_k:128x4:-1 small_k:128x4:0:0 batch/0:64x1:0 \
            weighted_sums/4:128x1:all tensor_cores/3:256x1:all tensor_cores/1:1024x1:all \
            warpgroup:128x1:all warpgroup/2:384x1:all warpgroup_whitened:256x1:all batch_warpgroup/64:160x1:0 batch_warpgroup/65:512x1:0";
        for text in bad.split_whitespace() {
            assert!(text.parse::<Variant>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_grid_covers_the_work_and_no_more() {
        let variant: Variant = "small_k:128x4:0".parse().unwrap();
        assert_eq!([1, 512, 513, 1 << 30].map(|n| variant.blocks(n, 132)), [1, 1, 2, 528]);
        let variant: Variant = "tiled16/2:128x3:all".parse().unwrap();
        assert_eq!([512, 513].map(|n| variant.blocks(n, 132)), [1, 2]);
        let variant: Variant = "pair/8:256x3:all".parse().unwrap();
        assert_eq!([64, 65].map(|n| variant.blocks(n, 132)), [1, 2]);
        // The groups of a batch do not change its grid along x: a set's result does not depend on
        // its company.
        let variant: Variant = "batch/16:128x3:all".parse().unwrap();
        assert_eq!(variant.blocks(1025, 132), 2);
        assert_eq!((variant.group(8, 13), variant.group(300, 16)), (16, 1));
    }
}
