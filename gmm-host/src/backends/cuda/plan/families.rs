//! The list of the families, and the choice among them: [`families`] says which are worth trying
//! for a task, [`candidates`] in which shapes; [`timing`](super::timing) chooses among these by
//! measured time.
use super::family::{Family, Variant};
use super::task::{Operation, Shape, Task};
use crate::backends::cuda::device::gpu::Limits;
use crate::backends::cuda::estep::fused::FUSED;
use crate::backends::cuda::estep::fused_mma::{EXPANDED_MMA, FUSED_MMA};
use crate::backends::cuda::estep::products_mma::{PRODUCTS_MMA, PRODUCTS_WGMMA};
use crate::backends::cuda::estep::products_shapes::Expanded;
use crate::backends::cuda::estep::weighted_sums::WEIGHTED_SUMS;
use crate::backends::cuda::estep::whitened_mma::WHITENED_MMA;
use crate::backends::cuda::estep::whitened_wgmma::WHITENED_WGMMA;
use crate::backends::cuda::general::GENERAL;
use crate::backends::cuda::likelihood::batch::BATCH;
use crate::backends::cuda::likelihood::batch_mma::{BATCH_MMA, BATCH_WGMMA};
use crate::backends::cuda::likelihood::pair::PAIR;
use crate::backends::cuda::likelihood::small_k::SMALL_K;
use crate::backends::cuda::likelihood::tiled::{TILED8, TILED16};
use crate::error::Error;
use crate::precision::Precision;
use gmm_kernels::estep::fused_mma;
use std::str::FromStr;

/// All families. A new one is added here, and where [`families`] is to choose it.
pub static ALL: [&dyn Family; 16] = [
    &SMALL_K,
    &BATCH,
    &BATCH_MMA,
    &BATCH_WGMMA,
    &TILED8,
    &TILED16,
    &PAIR,
    &FUSED,
    &FUSED_MMA,
    &EXPANDED_MMA,
    &PRODUCTS_MMA,
    &PRODUCTS_WGMMA,
    &WHITENED_WGMMA,
    &WHITENED_MMA,
    &WEIGHTED_SUMS,
    &GENERAL,
];

/// Samples from which on `fused_mma` can be faster than `fused` (measured on an H200).
const MANY_SAMPLES: usize = 200_000;

/// Samples from which on the roundings of the tensor cores average. They then pay where only
/// `weighted_sums` is there besides, and with matrices, where `fused` takes several times as long.
const ENOUGH_SAMPLES: usize = 50_000;

/// Features from which on `whitened_mma` can be faster than `products_mma` with matrices (measured on
/// an H200: D = 64, K = 32: 5.6 and 10 ms for N = 10⁶; D = 32, K = 64: 4.4 and 3.1).
const WIDE: usize = 40;

/// The same of `whitened_wgmma`, which pads features to a multiple of 32 (measured: D = 32,
/// K = 64: 2.5 ms, 3.0 by `products_mma`).
const WIDE_OF_WARPGROUPS: usize = 29;

/// Multiply-adds of a total from which on the host's part of one on the tensor cores does not
/// count.
const LONG_TOTAL: usize = 4_000_000_000;
/// Numbers of all triangles of a mixture from which on totals on the tensor cores have differences
/// as exact as those of the other kernels.
const MANY_PARAMETERS: usize = 1 << 14;

/// The family of a name.
pub fn find(name: &str) -> Option<&'static dyn Family> {
    ALL.into_iter().find(|family| family.name() == name)
}

impl FromStr for Variant {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut fields = text.split(':');
        let (Some(kernel), Some(shape), Some(cached), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(());
        };
        let number = |text: &str| text.parse::<u32>().map_err(|_| ());
        let (name, split) = kernel.split_once('/').unwrap_or((kernel, "1"));
        let (block, per_multiprocessor) = shape.split_once('x').ok_or(())?;
        let variant = Self {
            family: find(name).ok_or(())?,
            shape: Shape::new(number(split)?, number(block)?, number(per_multiprocessor)?),
            cached: if cached == "all" { None } else { Some(number(cached)?) },
        };
        if variant.is_launchable() { Ok(variant) } else { Err(()) }
    }
}

/// The error for a family or variant that cannot do a task, with the families that can.
pub fn error(name: String, problem: String, task: &Task, limits: &Limits) -> Error {
    let fitting = ALL.iter().filter(|family| family.problem(task, limits).is_none());
    let available = fitting.map(|family| family.name()).collect::<Vec<_>>().join(", ");
    Error::Kernel { name, problem, available }
}

/// The families that a task may use if the user asks for none, the likely best first.
pub fn families(task: &Task, limits: &Limits) -> Vec<&'static dyn Family> {
    let usable = |family: &dyn Family| family.problem(task, limits).is_none();
    let in_order: &[&dyn Family] = match task.operation {
        // They are not timed: `general` takes several times as long.
        Operation::EStep if task.precision == Precision::Float64 && usable(&FUSED) => &[&FUSED],
        _ if task.precision == Precision::Float64 => &[&GENERAL],
        Operation::Total if usable(&SMALL_K) => &[&SMALL_K],
        Operation::Total => &[&BATCH, &TILED16, &TILED8],
        Operation::Totals => &[&BATCH_WGMMA, &BATCH_MMA, &BATCH],
        Operation::Scores => &[&TILED16, &TILED8],
        Operation::EStep if task.gaps => &[&FUSED_MMA, &PRODUCTS_WGMMA],
        Operation::EStep if suits_whitening(task) && usable(&WHITENED_MMA) => &[&WHITENED_MMA],
        Operation::EStep if !task.is_long() && suits_expanded(task) && usable(&EXPANDED_MMA) => &[&EXPANDED_MMA],
        Operation::EStep if task.is_linear() && !task.is_long() && usable(&FUSED_MMA) => &[&FUSED_MMA],
        Operation::EStep if task.is_linear() => &[&FUSED_MMA, &PRODUCTS_WGMMA, &PRODUCTS_MMA, &EXPANDED_MMA],
        Operation::EStep if !task.is_long() && suits_tensor_cores(task, limits) && usable(&FUSED_MMA) => &[&FUSED_MMA],
        // So short that the time is that of the launches.
        Operation::EStep if !task.is_long() && usable(&FUSED) => &[&FUSED],
        Operation::EStep if suits_weighted_sums(task) && usable(&WEIGHTED_SUMS) => &[&WEIGHTED_SUMS],
        Operation::EStep if task.d >= WIDE_OF_WARPGROUPS && usable(&WHITENED_WGMMA) => &[&WHITENED_WGMMA],
        Operation::EStep if task.d >= WIDE && usable(&WHITENED_MMA) => &[&WHITENED_MMA, &PRODUCTS_MMA, &WEIGHTED_SUMS],
        Operation::EStep if usable(&FUSED) || usable(&PRODUCTS_MMA) || usable(&WEIGHTED_SUMS) => {
            &[&FUSED_MMA, &EXPANDED_MMA, &FUSED, &PRODUCTS_WGMMA, &PRODUCTS_MMA, &WEIGHTED_SUMS]
        }
        Operation::EStep => &[],
    };
    let families: Vec<_> = in_order.iter().copied().filter(|family| usable(*family)).collect();
    if families.is_empty() && usable(&GENERAL) { vec![&GENERAL] } else { families }
}

/// The [linear](Task::is_linear) task in the place of an E-step of a `tied` mixture, where there
/// are kernels for it and it is not slower: by `requested`, if the user asks for that.
///
/// It takes as long as an E-step of diagonal covariances. Only where `fused` is chosen, the time is
/// that of the launches, of which the linear task has no fewer, or of so few products that
/// `fused_mma` does not gain by their absence.
pub fn linear(task: &Task, requested: Option<&'static dyn Family>, limits: &Limits) -> Option<Task> {
    let linear = Task { full: false, expandable: true, whitenable: true, ..*task };
    let complete = task.operation == Operation::EStep && task.precision == Precision::Float32 && !task.gaps;
    if !complete || !linear.is_linear() {
        return None;
    }
    let suits = match requested {
        Some(family) => family.problem(&linear, limits).is_none(),
        None => !(suits_fused(task, limits) || families(&linear, limits).is_empty()),
    };
    suits.then_some(linear)
}

/// Whether a short E-step of matrices is left to `fused`, whose time grows with the number of their
/// products: from 7 features on, of which there are 35, it takes longer than `fused_mma` with
/// diagonal covariances (estimated from [`suits_tensor_cores`]).
fn suits_fused(task: &Task, limits: &Limits) -> bool {
    let fused: &dyn Family = &FUSED;
    let large = has_many_exponents(task) || task.n >= ENOUGH_SAMPLES && task.d >= 7;
    !task.is_long() && !large && fused.problem(task, limits).is_none()
}

/// Whether a short E-step is faster with `fused_mma` than with `fused`, whose time grows
/// with D, and with K from 8 components to more (measured on an H200 for K = 8, D = 13: 27.6 and
/// 37 µs, matrices 78 and 109; for other D in proportion to the arithmetic), and than `weighted_sums`,
/// which takes those that are too large for `fused` (on an H100, D = 32, K = 2: 93 µs for N = 10⁵, by
/// `fused_mma` 86 for N = 10⁶).
fn suits_tensor_cores(task: &Task, limits: &Limits) -> bool {
    let fused: &dyn Family = &FUSED;
    let (samples, features) = if task.full { (ENOUGH_SAMPLES, 12) } else { (MANY_SAMPLES, 11) };
    has_many_exponents(task)
        || task.n >= samples && task.d >= features
        || task.n >= ENOUGH_SAMPLES && fused.problem(task, limits).is_some()
}

/// Whether a short E-step is faster with `expanded_mma` than with `fused_mma`, of whose sixteen features
/// and as many squares most are zeros where there are few, and whose warps have eight components each
/// with matrices (measured on an H100: D = 2, K = 64: 84 and 130 µs, matrices 84 and 750; D = 13, K = 16:
/// 139 and 280).
fn suits_expanded(task: &Task) -> bool {
    let pays = match task.full {
        true if task.d > fused_mma::MAX_FEATURES_FULL => return task.n >= ENOUGH_SAMPLES,
        true => true,
        false => task.k > 2 * fused_mma::TILE && Expanded::of(false, task.is_linear()).count(task.d) <= fused_mma::STEP,
    };
    pays && has_many_exponents(task)
}

/// Whether a short E-step is left to `weighted_sums`, which with many features takes several times as long
/// as kernels that whiten (measured on an H100 for N = 10⁵, D = 64, K = 2 and 8: 645 and 1339 µs, 181 and
/// 449 by `whitened_wgmma`, 197 and 482 by `whitened_mma`).
fn suits_weighted_sums(task: &Task) -> bool {
    let wide = task.full && task.d >= WIDE_OF_WARPGROUPS && task.n >= ENOUGH_SAMPLES;
    !task.is_long() && !wide
}

/// Whether an E-step of matrices is faster with `whitened_mma` than with `expanded_mma`, which forms the
/// products of two features for however few components (measured on an H100 for N = 10⁶, with K = 2 and
/// 8: D = 16 238 and 369 µs, 279 and 324 by `expanded_mma`; D = 20 270 and 559, 395 and 449; D = 28 318
/// and 662, 708 and 770; for N = 10⁵ and D = 24 88 and 173, 127 and 189).
fn suits_whitening(task: &Task) -> bool {
    let features = fused_mma::MAX_FEATURES_FULL + 1..=fused_mma::MAX_FEATURES_EXPANDED;
    task.full && task.n >= ENOUGH_SAMPLES && features.contains(&task.d) && task.k < task.d / 3
}

/// Whether a task of more components than the kernels of few take at once has as many exponents as
/// [`MANY_SAMPLES`] samples have there.
fn has_many_exponents(task: &Task) -> bool {
    task.k > fused_mma::TILE && task.n.saturating_mul(task.k) >= MANY_SAMPLES * fused_mma::TILE
}

/// The variants to be timed for a task, the likely best first; of one family if that is requested
/// and has the operation. Empty where no kernel can do it in one launch.
pub fn candidates(task: &Task, requested: Option<&'static dyn Family>, limits: &Limits) -> Vec<Variant> {
    let families = requested.map_or_else(|| families(task, limits), |family| vec![family]);
    let mut variants = Vec::new();
    for family in families {
        for shape in family.shapes(task, limits) {
            for cached in family.cached(task, limits) {
                variants.push(Variant { family, shape, cached });
            }
        }
    }
    variants
}

/// The E-step's task and variant whose first kernels give a total sooner than the kernels for
/// totals do, if there is one.
///
/// The tensor cores cut off the last digits of sums of products, which makes a total too high by
/// about 2·10⁻⁸ of itself. How much a product loses also depends on its parameter, on how many
/// zeros that ends with. In a difference of two totals this averages out over the parameters: what
/// is left is the error of a total over the root of their number. So there have to be many.
pub fn total_on_tensor_cores(task: &Task, limits: &Limits) -> Option<(Task, Variant)> {
    let Task { n, k, d, full, tied, .. } = *task;
    let task = Task { operation: Operation::EStep, expandable: true, whitenable: true, ..*task };
    let parameters = k * (d * (d + 1) / 2);
    let suits = full && !tied && d >= WIDE_OF_WARPGROUPS && parameters >= MANY_PARAMETERS;
    let family: &dyn Family = &WHITENED_WGMMA;
    if !suits || n.saturating_mul(parameters) < LONG_TOTAL || family.problem(&task, limits).is_some() {
        return None;
    }
    candidates(&task, Some(family), limits).first().map(|variant| (task, *variant))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::cuda::likelihood::batch::group;

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
                    whitenable: bits & 16 != 0,
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
                assert!(variant.family.has(task.operation));
            }
        }
    }

    /// No likelihood of complete samples in float32 falls to the general kernels, and no E-step but
    /// those whose samples fit nowhere.
    #[test]
    fn float32_has_better_kernels_than_the_general_ones() {
        for task in tasks().filter(|task| task.precision == Precision::Float32 && !task.gaps) {
            let general = candidates(&task, None, &H200).iter().any(|variant| variant.family.name() == "general");
            let too_wide = task.operation == Operation::EStep && task.d >= 1024;
            assert!(!general || too_wide, "{task}");
        }
    }

    /// The grids of `gmm bench map` (`gmm-cli/src/commands/bench/map`): D and K under diagonals, and
    /// under matrices.
    const MAPS: [(&[usize], &[usize]); 2] = [
        (&[2, 13, 32, 40, 64, 128, 256], &[2, 8, 16, 32, 64, 128, 512, 1024]),
        (&[2, 8, 13, 16, 28, 64, 200], &[2, 8, 16, 32, 64, 128]),
    ];

    /// An A100.
    const CAPABILITY_8_0: Limits = Limits {
        multiprocessors: 108,
        l2: 40 << 20,
        shared_per_block: 163 << 10,
        shared_per_multiprocessor: 164 << 10,
        warpgroups: false,
    };

    /// The tasks of a cell of the map under each covariance type: the planning knows `diag` and
    /// `spherical` as one.
    fn tasks_of_maps() -> impl Iterator<Item = Task> {
        let operations = [Operation::Total, Operation::Scores, Operation::EStep];
        let cells = [false, true].into_iter().flat_map(|full| {
            let (features, components) = MAPS[usize::from(full)];
            features.iter().flat_map(move |&d| components.iter().map(move |&k| (full, d, k)))
        });
        let tasks = cells.flat_map(move |cell| operations.map(|operation| (cell, operation)));
        tasks.flat_map(|((full, d, k), operation)| {
            let sizes = [100_000, 1_000_000].into_iter().flat_map(|n| (0..8).map(move |bits| (n, bits)));
            sizes.filter(move |(_, bits)| full || bits & 1 == 0).map(move |(n, bits)| Task {
                operation,
                n,
                k,
                d,
                full,
                tied: bits & 1 != 0,
                central: bits & 2 != 0,
                expandable: bits & 4 != 0,
                whitenable: bits & 4 != 0,
                weighted: false,
                gaps: false,
                precision: Precision::Float32,
            })
        })
    }

    /// Of mixtures whose components lie many of their standard deviations apart, so that the tensor
    /// cores are not for them (not `expandable`), a block of `weighted_sums` would take 1024
    /// components of two features at once, for which shared memory has no room. The list may get
    /// shorter, never longer.
    #[test]
    fn few_cells_of_the_map_have_no_family_but_general() {
        const ONLY_GENERAL: [&str; 6] = [
            "8.0: estep n=1e5 k=1024 d=2 diag",
            "8.0: estep n=1e5 k=1024 d=2 diag central",
            "8.0: estep n=1e6 k=1024 d=2 diag",
            "8.0: estep n=1e6 k=1024 d=2 diag central",
            "9.0: estep n=1e5 k=1024 d=2 diag central",
            "9.0: estep n=1e6 k=1024 d=2 diag central",
        ];
        let of_device = |name: &str, limits: &Limits| {
            let only = |task: &Task| candidates(task, None, limits).iter().all(|v| v.family.name() == "general");
            let found: Vec<_> = tasks_of_maps().filter(only).map(|task| format!("{name}: {task}")).collect();
            found
        };
        let found = [of_device("8.0", &CAPABILITY_8_0), of_device("9.0", &H200)].concat();
        assert_eq!(found, ONLY_GENERAL);
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
            whitenable: false,
            weighted: false,
            gaps: false,
            precision: Precision::Float32,
        };
        assert_eq!(candidates(&task(1_000_000, 8, 13), None, &H200).len(), 1);
        // Few samples and few features are left to `fused`, like those that lose digits.
        let family = |n, d, expandable| families(&Task { expandable, whitenable: expandable, ..task(n, 8, d) }, &H200);
        assert_eq!(family(1_000_000, 13, true), [&FUSED_MMA as &dyn Family]);
        for (n, d, expandable) in [(1_000_000, 13, false), (1_000_000, 5, true), (10_000, 13, true)] {
            assert_eq!(family(n, d, expandable), [&FUSED as &dyn Family]);
        }
        assert!(candidates(&task(1_000_000, 64, 32), None, &H200).len() > 1);
        // Products of two features, triangles times features, and neither.
        let full = |d, expandable, whitenable| {
            families(&Task { full: true, expandable, whitenable, ..task(1_000_000, 9, d) }, &H200)
        };
        assert_eq!(full(13, true, true), [&EXPANDED_MMA as &dyn Family]);
        assert_eq!(full(13, false, true), [&FUSED_MMA as &dyn Family]);
        assert_eq!(full(13, false, false), [&FUSED as &dyn Family]);
        // Few components of many features are whitened, of many samples and of some.
        let few = |n, k, d| families(&Task { full: true, expandable: true, whitenable: true, ..task(n, k, d) }, &H200);
        for n in [100_000, 1_000_000] {
            assert_eq!(few(n, 2, 28), [&WHITENED_MMA as &dyn Family]);
            assert_eq!(few(n, 9, 28)[0].name(), EXPANDED_MMA.name());
            assert_eq!(few(n, 2, 64), [&WHITENED_WGMMA as &dyn Family]);
        }
        assert_eq!(few(10_000, 2, 64), [&WEIGHTED_SUMS as &dyn Family]);
        assert_eq!(
            families(&Task { expandable: true, ..task(1_000_000, 17, 2) }, &H200),
            [&EXPANDED_MMA as &dyn Family]
        );
    }

    /// A `tied` E-step is by linear terms on the tensor cores, except where `fused` computes few
    /// products in the time of its launches; and by those of a requested family that has them.
    #[test]
    fn tied_esteps_are_linear() {
        let task = |n, k, d| Task {
            operation: Operation::EStep,
            n,
            k,
            d,
            full: true,
            tied: true,
            central: false,
            expandable: true,
            whitenable: true,
            weighted: false,
            gaps: false,
            precision: Precision::Float32,
        };
        let chosen = |n, k, d, limits: &Limits| {
            linear(&task(n, k, d), None, limits).map(|task| {
                assert!(task.is_linear());
                let found = candidates(&task, None, limits);
                assert!(found.iter().all(|variant| variant.family.problem(&task, limits).is_none()));
                found[0].family.name()
            })
        };
        for (n, k, d, family) in [
            (1_000_000, 8, 13, Some("fused_mma")),
            (1_000_000, 8, 5, None),
            (1_000_000, 16, 5, Some("fused_mma")),
            (1_000_000, 32, 5, Some("expanded_mma")),
            (10_000, 8, 13, None),
            (10_000, 8, 20, Some("fused_mma")),
            (1_000_000, 64, 32, Some("fused_mma")),
            (1_000_000, 8, 200, Some("fused_mma")),
            (1_000_000, 300, 32, Some("products_wgmma")),
            (1_000_000, 8, 300, Some("products_mma")),
            (1, 4096, 1024, None),
        ] {
            if let Some(family) = family {
                assert_eq!(chosen(n, k, d, &H200), Some(family), "N={n} K={k} D={d}");
            } else {
                assert_eq!(chosen(n, k, d, &H200), None, "N={n} K={k} D={d}");
            }
        }
        assert_eq!(chosen(1_000_000, 300, 32, &CAPABILITY_8_0), Some("products_mma"));
        let requested = |name| linear(&task(1000, 8, 5), find(name), &H200).is_some();
        assert!(
            requested("fused_mma")
                && requested("expanded_mma")
                && requested("products_mma")
                && requested("products_wgmma")
        );
        assert!(!["fused", "weighted_sums", "whitened_mma", "whitened_wgmma", "general"].into_iter().any(requested));
        for other in [Task { tied: false, ..task(1_000_000, 64, 32) }, Task { gaps: true, ..task(1_000_000, 8, 13) }] {
            assert_eq!(linear(&other, None, &H200), None);
        }
    }

    #[test]
    fn a_variant_survives_its_text() {
        for text in [
            "small_k:128x4:28",
            "tiled16/2:128x3:all",
            "pair/8:256x8:all",
            "pair/1:32x8:all",
            "batch/16:64x6:0",
            "batch_mma/64:512x1:0",
            "batch_wgmma/64:512x1:0",
            "fused:128x3:0",
            "fused_mma:512x1:0",
            "expanded_mma:256x1:0",
            "products_mma/4:256x1:all",
            "products_wgmma:384x1:all",
            "whitened_wgmma:512x1:all",
            "whitened_mma/3:384x1:all",
            "weighted_sums/8:192x2:all",
            "general:256x8:all",
        ] {
            assert_eq!(text.parse::<Variant>().unwrap().to_string(), text);
        }
        let bad = "small_k small_k:128x4 small_k:100x4:0 small_k/2:128x4:0 warp:128x4:0 pair/7:128x1:all \
            tiled8/8:128x1:all small_k:128x0:0 small_k:2048x1:0 small_k:128x4:-1 small_k:128x4:0:0 batch/0:64x1:0 \
            weighted_sums/4:128x1:all products_mma/3:256x1:all products_mma/1:1024x1:all \
            products_wgmma:128x1:all products_wgmma/2:384x1:all whitened_wgmma:256x1:all batch_wgmma/64:160x1:0 batch_wgmma/65:512x1:0";
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
        assert_eq!([32, 33].map(|n| variant.blocks(n, 132)), [1, 2]);
        // The groups of a batch do not change its grid along x: a set's result does not depend on
        // its company.
        let variant: Variant = "batch/16:128x3:all".parse().unwrap();
        assert_eq!(variant.blocks(1025, 132), 2);
        assert_eq!((group(variant.shape, 8, 13), group(variant.shape, 300, 16)), (16, 1));
    }
}
