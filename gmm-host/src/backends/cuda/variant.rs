//! Code variants: which kernels there are, what each can take, and in which shapes it may be launched.
use super::gpu::Limits;
use super::layout;
use gmm_kernels::data;
use gmm_kernels::likelihood::{batch, pair, small_k as direct, tiled};
use gmm_kernels::simt::WARP;
use std::fmt;
use std::str::FromStr;

/// A kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Direct,
    Batch,
    Tiled8,
    Tiled16,
    Pair,
}

impl Kind {
    pub const ALL: [Self; 5] = [Self::Direct, Self::Batch, Self::Tiled8, Self::Tiled16, Self::Pair];

    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Batch => "batch",
            Self::Tiled8 => "tiled8",
            Self::Tiled16 => "tiled16",
            Self::Pair => "pair",
        }
    }

    /// The entry that serves D features.
    pub fn entry(self, d: usize) -> String {
        match self {
            Self::Direct => format!("small_k_d{d:02}"),
            Self::Batch => format!("batch_d{d:02}"),
            _ => self.name().into(),
        }
    }

    /// Registers that a thread may have, where the compiler's own choice costs occupancy (measured on an H200).
    pub fn max_registers(self) -> Option<u32> {
        match self {
            Self::Direct => Some(120),
            Self::Batch => Some(168),
            _ => None,
        }
    }

    /// Why this kernel cannot take a mixture of that shape, if it cannot.
    pub fn problem(self, k: usize, d: usize, limits: &Limits) -> Option<String> {
        match self {
            Self::Direct | Self::Batch if d > direct::MAX_FEATURES => {
                Some(format!("takes at most {} features, and the data has {d}", direct::MAX_FEATURES))
            }
            Self::Direct if k > direct::COMPONENTS => {
                Some(format!("takes at most {} components, and the mixture has {k}", direct::COMPONENTS))
            }
            Self::Batch if batch::shared_bytes(d, layout::filled_up(k), 1, 256) > limits.shared_per_block => {
                Some(format!("cannot hold {k} components of {d} features in shared memory"))
            }
            _ => None,
        }
    }

    /// Whether it can give the log-likelihood of each sample.
    pub fn scores(self) -> bool {
        matches!(self, Self::Tiled8 | Self::Tiled16 | Self::Pair)
    }

    /// What log₂ of each sample's likelihood lacks.
    pub fn bias(self) -> f64 {
        match self {
            Self::Direct | Self::Batch => layout::EXP2_BIAS,
            _ => 0.0,
        }
    }

    /// Components of a tile.
    pub fn tile(self) -> usize {
        if self == Self::Tiled8 { 8 } else { 16 }
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or(())
    }
}

/// A kernel and the shape of its launch: what two runs must have in common to give the same bits.
///
/// Its text form is `KERNEL[/SPLIT]:BLOCKxBLOCKS:KEEP`, for example `direct:128x4:28` or `tiled16/2:128x3:all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Variant {
    pub kind: Kind,
    /// `pair`: threads of a sample. `tiled`: warps of a block along the components. `batch`: most sets of a group.
    /// `direct`: 1.
    pub split: u32,
    /// Threads of a block.
    pub block: u32,
    /// Blocks of the grid for each multiprocessor, at most.
    pub per_multiprocessor: u32,
    /// Megabytes (10⁶) of the data to be kept in the L2 cache from launch to launch; none: all of it.
    pub keep: Option<u32>,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if self.kind != Kind::Direct {
            write!(f, "/{}", self.split)?;
        }
        write!(f, ":{}x{}:", self.block, self.per_multiprocessor)?;
        match self.keep {
            Some(megabytes) => write!(f, "{megabytes}"),
            None => f.write_str("all"),
        }
    }
}

impl FromStr for Variant {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split(':');
        let (Some(kernel), Some(shape), Some(keep), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(());
        };
        let number = |text: &str| text.parse::<u32>().map_err(|_| ());
        let (name, split) = kernel.split_once('/').unwrap_or((kernel, "1"));
        let (block, per_multiprocessor) = shape.split_once('x').ok_or(())?;
        let variant = Self {
            kind: name.parse()?,
            split: number(split)?,
            block: number(block)?,
            per_multiprocessor: number(per_multiprocessor)?,
            keep: if keep == "all" { None } else { Some(number(keep)?) },
        };
        if variant.is_launchable() { Ok(variant) } else { Err(()) }
    }
}

impl Variant {
    /// Whether the shape keeps to what the kernel's documentation asks for.
    fn is_launchable(&self) -> bool {
        let warps = self.block / WARP;
        let whole = (WARP..=1024).contains(&self.block) && self.block.is_multiple_of(WARP);
        let counts = (1..=64).contains(&self.per_multiprocessor) && self.split > 0;
        let split = match self.kind {
            Kind::Direct => self.split == 1,
            Kind::Batch => true,
            Kind::Pair => self.block.is_multiple_of(self.split),
            Kind::Tiled8 | Kind::Tiled16 => warps.is_multiple_of(self.split) && (warps / self.split).is_power_of_two(),
        };
        whole && counts && split
    }

    /// Blocks of a grid over `n` samples: no more than there is work for.
    pub fn blocks(&self, n: usize, multiprocessors: u32) -> u32 {
        let per_block = match self.kind {
            Kind::Direct => self.block as usize * data::QUAD,
            Kind::Batch => self.block as usize * data::QUAD * batch::QUADS,
            Kind::Tiled8 | Kind::Tiled16 => (self.block / WARP / self.split) as usize * tiled::WARP_SAMPLES,
            Kind::Pair => (self.block / self.split) as usize,
        };
        let most = multiprocessors * self.per_multiprocessor;
        n.div_ceil(per_block).clamp(1, most as usize) as u32
    }

    /// Sets of a group: as many as its split says and 48 KiB of shared memory hold, and at least one.
    pub fn group(&self, k: usize, d: usize) -> usize {
        let fits = |group: &usize| batch::shared_bytes(d, layout::filled_up(k), *group, self.block) <= 48 << 10;
        (1..=self.split as usize).rev().find(fits).unwrap_or(1)
    }

    /// Dynamic shared memory of a launch, in bytes.
    pub fn shared_bytes(&self, k: usize, d: usize) -> usize {
        match self.kind {
            Kind::Direct => direct::shared_bytes(d, self.block),
            Kind::Batch => batch::shared_bytes(d, layout::filled_up(k), self.group(k, d), self.block),
            Kind::Tiled8 | Kind::Tiled16 => tiled::shared_bytes(self.kind.tile(), self.block, self.split),
            Kind::Pair => pair::shared_bytes(self.block),
        }
    }

    /// Quads to be kept in the L2 cache.
    pub fn keep_quads(&self, d: usize) -> u32 {
        let quads = |megabytes: u32| megabytes as usize * 1_000_000 / (d * data::QUAD * size_of::<f32>());
        self.keep.map_or(u32::MAX, |megabytes| quads(megabytes).min(u32::MAX as usize) as u32)
    }
}

/// What is to be evaluated, as far as the choice of a variant depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Task {
    /// Samples of a launch.
    pub n: usize,
    pub k: usize,
    pub d: usize,
    pub op: Op,
}

/// The operations that variants are chosen for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Op {
    /// The total for one parameter set.
    Total,
    /// The totals for several parameter sets.
    Batch,
    /// The log-likelihood of each sample.
    Scores,
}

impl fmt::Display for Task {
    /// The size class: everything that the choice depends on, N to the power of ten.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = match self.op {
            Op::Total => "total",
            Op::Batch => "batch",
            Op::Scores => "scores",
        };
        write!(f, "{op} n=1e{} k={} d={}", self.n.ilog10(), self.k, self.d)
    }
}

/// The kernels that an operation may use on a shape, without a wish of the user.
fn kinds(task: &Task, limits: &Limits) -> Vec<Kind> {
    let Task { n, k, d, op } = *task;
    let usable = |kind: &Kind| kind.problem(k, d, limits).is_none();
    let candidates: &[Kind] = match op {
        Op::Total if usable(&Kind::Direct) => &[Kind::Direct],
        // With few samples, `pair` has the most threads at work.
        Op::Total if n <= 20_000 => &[Kind::Batch, Kind::Tiled16, Kind::Tiled8, Kind::Pair],
        Op::Total => &[Kind::Batch, Kind::Tiled16, Kind::Tiled8],
        Op::Batch => &[Kind::Batch],
        Op::Scores if n <= 20_000 => &[Kind::Tiled16, Kind::Tiled8, Kind::Pair],
        Op::Scores => &[Kind::Tiled16, Kind::Tiled8],
    };
    candidates.iter().copied().filter(usable).collect()
}

/// The variants to be timed for a task, the likely best first; of one kernel if one is asked for. Empty where no kernel
/// can do it in one launch.
pub(super) fn candidates(task: &Task, kind: Option<Kind>, limits: &Limits) -> Vec<Variant> {
    let kinds = kind.map_or_else(|| kinds(task, limits), |kind| vec![kind]);
    let mut variants = Vec::new();
    for kind in kinds {
        for (split, block, per_multiprocessor) in shapes(kind, task, limits) {
            for keep in keeps(kind, task, limits) {
                variants.push(Variant { kind, split, block, per_multiprocessor, keep });
            }
        }
    }
    variants
}

/// Split, block and blocks per multiprocessor of a kernel's candidates.
fn shapes(kind: Kind, task: &Task, limits: &Limits) -> Vec<(u32, u32, u32)> {
    let Task { n, k, d, .. } = *task;
    let all: Vec<(u32, u32, u32)> = match kind {
        // All samples are on the device at once in any shape.
        Kind::Direct if n <= limits.multiprocessors as usize * 128 * data::QUAD => vec![(1, 128, 1)],
        Kind::Direct => [(128, 4), (128, 3), (192, 2), (96, 4), (256, 2), (160, 3), (128, 8), (256, 4)]
            .map(|(block, per)| (1, block, per))
            .into(),
        Kind::Batch if n <= limits.multiprocessors as usize * 64 * 2 * data::QUAD => vec![(16, 64, 3)],
        Kind::Batch => vec![(16, 96, 1), (16, 128, 3), (16, 192, 1), (16, 64, 6), (8, 128, 3)],
        Kind::Tiled8 | Kind::Tiled16 => {
            let tiles = k.div_ceil(kind.tile()) as u32;
            let across = |block: u32| [1, 2, 4, 8].into_iter().filter(move |a| *a <= tiles && *a <= block / WARP);
            let shapes = [(64, 4), (128, 2), (128, 3), (128, 4), (128, 6), (256, 1), (256, 2)];
            shapes.iter().flat_map(|&(block, per)| across(block).map(move |a| (a, block, per))).collect()
        }
        Kind::Pair => {
            let lanes = (k as u32).next_power_of_two().min(WARP);
            vec![(lanes, 256, 8), (lanes, 128, 16)]
        }
    };
    let fits = |&(split, block, per_multiprocessor): &(u32, u32, u32)| {
        let shared = Variant { kind, split, block, per_multiprocessor, keep: None }.shared_bytes(k, d);
        shared <= limits.shared_per_block
            && (shared + 1024) * per_multiprocessor as usize <= limits.shared_per_multiprocessor
    };
    let fitting: Vec<_> = all.iter().copied().filter(fits).collect();
    if fitting.is_empty() {
        // Fewer blocks at once than any of them asked for.
        return all.into_iter().min_by_key(|shape| shape.1).map(|(s, b, _)| (s, b, 1)).into_iter().collect();
    }
    fitting
}

/// How much of the data to keep in the L2 cache: all of what fits, else a few amounts.
fn keeps(kind: Kind, task: &Task, limits: &Limits) -> Vec<Option<u32>> {
    let bytes = task.n * task.d * size_of::<f32>();
    match kind {
        Kind::Direct if bytes > limits.l2 / 2 => vec![Some(0), Some(28), Some(40)],
        Kind::Batch if bytes > limits.l2 => vec![Some(0)],
        _ => vec![None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Limits = Limits {
        multiprocessors: 132,
        l2: 60 << 20,
        shared_per_block: 227 << 10,
        shared_per_multiprocessor: 228 << 10,
    };

    #[test]
    fn a_variant_survives_its_text() {
        for text in ["direct:128x4:28", "tiled16/2:128x3:all", "pair/8:256x8:all", "batch/16:64x6:0"] {
            assert_eq!(text.parse::<Variant>().unwrap().to_string(), text);
        }
        let bad = "direct direct:128x4 direct:100x4:0 direct/2:128x4:0 warp:128x4:0 pair/7:128x1:all tiled8/8:128x1:all \
            direct:128x0:0 direct:2048x1:0 direct:128x4:-1 direct:128x4:0:0 batch/0:64x1:0";
        for text in bad.split_whitespace() {
            assert!(text.parse::<Variant>().is_err(), "{text}");
        }
    }

    /// Whatever the shape, there is a candidate; each is launchable and within the device's limits, and none is twice.
    #[test]
    fn every_task_has_candidates_that_can_be_launched() {
        for n in [1, 5, 100, 10_000, 1_000_000, 100_000_000] {
            for (k, d) in [(1, 1), (8, 13), (9, 13), (40, 16), (300, 16), (4000, 16), (8, 17), (4096, 1024), (1, 2000)]
            {
                for op in [Op::Total, Op::Batch, Op::Scores] {
                    let task = Task { n, k, d, op };
                    let found = candidates(&task, None, &H200);
                    let impossible = op == Op::Batch && (d > 16 || k == 4000);
                    assert_eq!(found.is_empty(), impossible, "{task}");
                    for (i, variant) in found.iter().enumerate() {
                        assert!(variant.is_launchable() && variant.kind.problem(k, d, &H200).is_none(), "{variant}");
                        assert!(variant.shared_bytes(k, d) <= H200.shared_per_block, "{variant} for {task}");
                        assert!(!found[..i].contains(variant), "{variant} twice");
                        assert!(op != Op::Scores || variant.kind.scores());
                    }
                }
            }
        }
    }

    #[test]
    fn the_grid_covers_the_work_and_no_more() {
        let variant: Variant = "direct:128x4:0".parse().unwrap();
        assert_eq!([1, 512, 513, 1 << 30].map(|n| variant.blocks(n, 132)), [1, 1, 2, 528]);
        let variant: Variant = "tiled16/2:128x3:all".parse().unwrap();
        assert_eq!([512, 513].map(|n| variant.blocks(n, 132)), [1, 2]);
        let variant: Variant = "pair/8:128x3:all".parse().unwrap();
        assert_eq!([16, 17].map(|n| variant.blocks(n, 132)), [1, 2]);
        // The groups of a batch do not change its grid along x: a set's result does not depend on its company.
        let variant: Variant = "batch/16:128x3:all".parse().unwrap();
        assert_eq!(variant.blocks(1025, 132), 2);
        assert_eq!((variant.group(8, 13), variant.group(300, 16)), (16, 1));
    }
}
