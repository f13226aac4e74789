//! The list of the families, and the choice among them: [`families`] returns those worth trying for a task,
//! [`candidates`] their shapes; [`timing`](super::plan::timing) chooses among these by measured time.
use super::device::gpu::Limits;
use super::estep::fused::FUSED;
use super::estep::fused_mma::{EXPANDED_MMA, FUSED_MMA};
use super::estep::products_mma::{PRODUCTS_MMA, PRODUCTS_WGMMA};
use super::estep::products_shapes::Expanded;
use super::estep::weighted_sums::WEIGHTED_SUMS;
use super::estep::whitened_wgmma::{WHITENED_MMA, WHITENED_WGMMA};
use super::general::GENERAL;
use super::likelihood::batch::BATCH;
use super::likelihood::batch_mma::{BATCH_MMA, BATCH_WGMMA};
use super::likelihood::pair::PAIR;
use super::likelihood::small_k::SMALL_K;
use super::likelihood::tiled::TILED;
use super::plan::family::{Family, Variant};
use super::plan::task::{Covariance, Digits, Operation, Shape, Task};
use gmm_core::error::Error;
use gmm_kernels::estep::fused_mma;
use gmm_kernels::likelihood::tiled::MAX_EXPANDED;
use std::str::FromStr;

/// All families. A new one is added here, and in [`families`] if it may be chosen.
pub static ALL: &[&dyn Family] = &[
    &SMALL_K,
    &BATCH,
    &BATCH_MMA,
    &BATCH_WGMMA,
    &TILED,
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

/// The samples from which `fused_mma` can be faster than `fused` (measured on an H200).
const MANY_SAMPLES: usize = 200_000;

/// The samples from which the tensor cores' roundings average. They then pay if `weighted_sums` is the only
/// alternative, and with matrices, for which `fused` takes several times as long.
const ENOUGH_SAMPLES: usize = 50_000;

/// The features from which `whitened_mma` is faster than `products_mma` with matrices (measured on an H200, N = 10⁶:
/// D = 64, K = 32: 5.6 and 10 ms; D = 32, K = 64: 4.4 and 3.1). A list with both would cost the host the coefficients of
/// products in each iteration (D = 300, K = 4: 17 ms of 21).
const WIDE: usize = 40;

/// The same for `whitened_wgmma`, which pads features to multiples of 32 (D = 32, K = 64: 2.5 ms, `products_mma` 3.0).
const WIDE_OF_WARPGROUPS: usize = 29;

/// The numbers times components from which totals and scores gain by linear terms, or by products of features.
const LINEAR: usize = 10_000_000;
/// The features from which a total is faster by `whitened_wgmma`, which pads them to 32, than by `tiled` (measured on an
/// H200, D = 28, K = 64: 0.9 and 2.5 ms).
const WIDE_TOTAL: usize = 20;
/// The multiply-adds of a total from which the host's part of a total on the tensor cores is negligible.
const LONG_TOTAL: usize = 4_000_000_000;
/// The numbers in a mixture's triangles from which the tensor cores keep the digits of differences of totals.
const MANY_PARAMETERS: usize = 1 << 14;

/// Returns the family of this name.
pub fn find(name: &str) -> Option<&'static dyn Family> {
    ALL.iter().copied().find(|family| family.name() == name)
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

/// Returns the error of a family or variant that cannot do a task, with the names of the families that can.
pub fn error(name: String, problem: String, task: &Task, limits: &Limits) -> Error {
    let fitting = ALL.iter().filter(|family| family.problem(task, limits).is_none());
    let available = fitting.map(|family| family.name()).collect::<Vec<_>>().join(", ");
    Error::Kernel { name, problem, available }
}

/// Returns the families that a task may use without a request, the likely best first.
pub fn families(task: &Task, limits: &Limits) -> Vec<&'static dyn Family> {
    let usable = |family: &dyn Family| family.problem(task, limits).is_none();
    let in_order: &[&dyn Family] = match task.operation {
        Operation::Total if usable(&SMALL_K) => &[&SMALL_K],
        Operation::Total => &[&BATCH, &TILED],
        Operation::Totals => &[&BATCH_WGMMA, &BATCH_MMA, &BATCH],
        Operation::Scores => &[&TILED],
        Operation::EStep if task.gaps => &[&FUSED_MMA, &PRODUCTS_WGMMA],
        Operation::EStep if suits_whitening(task) && usable(&WHITENED_MMA) => &[&WHITENED_MMA],
        Operation::EStep if !task.is_long() && suits_expanded(task) && usable(&EXPANDED_MMA) => &[&EXPANDED_MMA],
        Operation::EStep if task.is_linear() && !task.is_long() && usable(&FUSED_MMA) => &[&FUSED_MMA],
        Operation::EStep if task.is_linear() => &[&FUSED_MMA, &PRODUCTS_WGMMA, &PRODUCTS_MMA, &EXPANDED_MMA],
        Operation::EStep if !task.is_long() && suits_tensor_cores(task, limits) && usable(&FUSED_MMA) => &[&FUSED_MMA],
        // So short that only the launches take time.
        Operation::EStep if !task.is_long() && usable(&FUSED) => &[&FUSED],
        Operation::EStep if suits_weighted_sums(task) && usable(&WEIGHTED_SUMS) => &[&WEIGHTED_SUMS],
        Operation::EStep if task.d >= WIDE_OF_WARPGROUPS && usable(&WHITENED_WGMMA) => &[&WHITENED_WGMMA],
        Operation::EStep if task.d >= WIDE && usable(&WHITENED_MMA) => &[&WHITENED_MMA],
        Operation::EStep if usable(&FUSED) || usable(&PRODUCTS_MMA) || usable(&WEIGHTED_SUMS) => {
            &[&FUSED_MMA, &EXPANDED_MMA, &FUSED, &PRODUCTS_WGMMA, &PRODUCTS_MMA, &WEIGHTED_SUMS]
        }
        Operation::EStep => &[],
    };
    let families: Vec<_> = in_order.iter().copied().filter(|family| usable(*family)).collect();
    if families.is_empty() && usable(&GENERAL) { vec![&GENERAL] } else { families }
}

/// Returns the [linear](Task::is_linear) task that replaces a task of a `tied` mixture, if there are kernels for it (the
/// `requested` one, if any) and it is not slower.
///
/// It takes at most as long as a task of diagonal covariances. An E-step is slower only where `fused` is chosen: there
/// only the launches take time, or the products are too few for `fused_mma` to gain without them. Totals and scores
/// gain less than a launch takes if samples and components are few.
pub fn linear(task: &Task, requested: Option<&'static dyn Family>, limits: &Limits) -> Option<Task> {
    if task.covariance != Covariance::Tied || task.gaps {
        return None;
    }
    let linear = Task { covariance: Covariance::TiedLinear, digits: Digits::Expandable, ..*task };
    let suits = match (requested, task.operation) {
        (Some(family), _) => family.problem(&linear, limits).is_none(),
        (None, Operation::EStep) => !(suits_fused(task, limits) || families(&linear, limits).is_empty()),
        (None, _) => {
            task.n.saturating_mul(task.k * task.d) >= LINEAR && !families(task, limits).contains(&(&SMALL_K as _))
        }
    };
    suits.then_some(linear)
}

/// Returns the task that replaces totals or scores of `full` covariances of few features: with products of two features,
/// by `tiled` (the `requested` family, if any).
pub fn expanded(task: &Task, requested: Option<&'static dyn Family>, limits: &Limits) -> Option<Task> {
    let Task { operation, n, k, d, covariance, gaps, .. } = *task;
    let tiled: &'static dyn Family = &TILED;
    // Fewer components fill no tile.
    let suits = covariance == Covariance::Full && operation != Operation::EStep && !gaps && k >= 8 && d <= MAX_EXPANDED;
    let by_tiled = match requested {
        Some(family) => family == tiled,
        None => n.saturating_mul(k * d) >= LINEAR && families(task, limits) == [tiled],
    };
    (suits && by_tiled).then_some(Task { digits: Digits::Expandable, ..*task })
}

/// Returns whether a short E-step of matrices is left to `fused`, whose time grows with the number of products: with 7
/// features, 35 products, `fused_mma` with diagonals is faster (estimated from [`suits_tensor_cores`]).
fn suits_fused(task: &Task, limits: &Limits) -> bool {
    let fused: &dyn Family = &FUSED;
    let large = has_many_exponents(task) || task.n >= ENOUGH_SAMPLES && task.d >= 7;
    !task.is_long() && !large && fused.problem(task, limits).is_none()
}

/// Returns whether a short E-step is faster with `fused_mma` than with `fused`, whose time grows with D, and with K
/// above 8 (measured on an H200 for K = 8, D = 13: 27.6 and 37 µs, matrices 78 and 109; for other D in proportion to
/// the arithmetic), and than with `weighted_sums`, which takes those too large for `fused` (on an H100, D = 32, K = 2:
/// 93 µs for N = 10⁵; `fused_mma` 86 for N = 10⁶).
fn suits_tensor_cores(task: &Task, limits: &Limits) -> bool {
    let fused: &dyn Family = &FUSED;
    let (samples, features) = if task.full() { (ENOUGH_SAMPLES, 12) } else { (MANY_SAMPLES, 11) };
    has_many_exponents(task)
        || task.n >= samples && task.d >= features
        || task.n >= ENOUGH_SAMPLES && fused.problem(task, limits).is_some()
}

/// Returns whether a short E-step is faster with `expanded_mma` than with `fused_mma`, which pads few features to
/// sixteen, and as many squares, with zeros, and whose warps take eight components each with matrices (measured on an
/// H100: D = 2, K = 64: 84 and 130 µs, matrices 84 and 750; D = 13, K = 16: 139 and 280).
fn suits_expanded(task: &Task) -> bool {
    let pays = match task.full() {
        true if task.d > fused_mma::MAX_FEATURES_FULL => return task.n >= ENOUGH_SAMPLES,
        true => true,
        false => task.k > 2 * fused_mma::TILE && Expanded::of(false, task.is_linear()).count(task.d) <= fused_mma::STEP,
    };
    pays && has_many_exponents(task)
}

/// Returns whether a short E-step is left to `weighted_sums`, which with many features takes several times as long as
/// kernels that whiten (measured on an H100 for N = 10⁵, D = 64, K = 2 and 8: 645 and 1339 µs; `whitened_wgmma` 181 and
/// 449, `whitened_mma` 197 and 482).
fn suits_weighted_sums(task: &Task) -> bool {
    let wide = task.full() && task.d >= WIDE_OF_WARPGROUPS && task.n >= ENOUGH_SAMPLES;
    !task.is_long() && !wide
}

/// Returns whether an E-step of matrices is faster with `whitened_mma` than with `expanded_mma`, which forms products
/// even for few components (measured on an H100, K = 2 and 8, in µs: N = 10⁶: D = 16 238 and 369, `expanded_mma` 279
/// and 324; D = 20 270 and 559, 395 and 449; D = 28 318 and 662, 708 and 770; N = 10⁵: D = 24 88 and 173, 127 and 189).
fn suits_whitening(task: &Task) -> bool {
    let features = fused_mma::MAX_FEATURES_FULL + 1..=fused_mma::MAX_FEATURES_EXPANDED;
    task.full() && task.n >= ENOUGH_SAMPLES && features.contains(&task.d) && task.k < task.d / 3
}

/// Returns whether a task with more than a tile of components has the exponents of [`MANY_SAMPLES`] samples of a tile.
fn has_many_exponents(task: &Task) -> bool {
    task.k > fused_mma::TILE && task.n.saturating_mul(task.k) >= MANY_SAMPLES * fused_mma::TILE
}

/// Returns the families that a task may use: the requested one, or [`families`].
pub fn usable(task: &Task, requested: Option<&'static dyn Family>, limits: &Limits) -> Vec<&'static dyn Family> {
    requested.map_or_else(|| families(task, limits), |family| vec![family])
}

/// Returns the variants to time for a task, the likely best first, of the requested family if there is one and it has
/// the operation. Empty if no kernel can do the task in one launch.
pub fn candidates(task: &Task, requested: Option<&'static dyn Family>, limits: &Limits) -> Vec<Variant> {
    let mut variants = Vec::new();
    for family in usable(task, requested, limits) {
        for shape in family.shapes(task, limits) {
            for cached in family.cached(task, limits) {
                variants.push(Variant { family, shape, cached });
            }
        }
    }
    variants
}

/// Returns the E-step's task and variant whose first kernels compute a total before the kernels for totals, if any.
///
/// The tensor cores cut off the last digits of sums of products, which makes a total too high by about 2·10⁻⁸ of
/// itself. The loss also depends on each parameter, by the number of its trailing zeros. In a difference of totals this
/// averages over the parameters: the error of a total over the root of their number is left. So there must be many.
pub fn total_on_tensor_cores(task: &Task, limits: &Limits) -> Option<(Task, Variant)> {
    let Task { n, k, d, covariance, .. } = *task;
    let task = Task { operation: Operation::EStep, digits: Digits::Expandable, ..*task };
    let parameters = k * (d * (d + 1) / 2);
    let suits = covariance == Covariance::Full && d >= WIDE_TOTAL && parameters >= MANY_PARAMETERS;
    let family: &dyn Family = &WHITENED_WGMMA;
    if !suits || n.saturating_mul(parameters) < LONG_TOTAL || family.problem(&task, limits).is_some() {
        return None;
    }
    candidates(&task, Some(family), limits).first().map(|variant| (task, *variant))
}

#[cfg(test)]
pub(crate) mod tests;
