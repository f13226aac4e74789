//! Every entry of the PTX by name, with the type of its one argument. The host launches kernels through these only.
use crate::arrays::{columns, ranges, rows};
use crate::chain::{capacity, ends, mixed, posteriors};
use crate::estep::fused_mma::{self, FusedShape};
use crate::estep::{
    fused, fused_patterns, fused64, products_mma, products_wgmma, weighted_sums, whitened_mma, whitened_wgmma,
};
use crate::fit;
use crate::general::{accumulate, density, posterior};
use crate::likelihood::{batch, batch_mma, batch_parameters, exp2_bias, pair, small_k, tiled};
use crate::metropolis;
use crate::noisy;
use crate::pairwise::products::{self, TILINGS, Tiling};
use crate::pairwise::{centres, pairs, products_few, split};
use crate::patterns::{complete, marginals};
use crate::reduce::{sets, slices};
use core::marker::PhantomData;
use std::collections::BTreeMap;
use std::format;
use std::string::String;
use tiled::Form;
use whitened_wgmma::Shape as Whitened;

/// The name of a kernel whose argument is of type `A`.
#[derive(Debug)]
pub struct Entry<A> {
    name: String,
    argument: PhantomData<fn(A)>,
}

impl<A> Entry<A> {
    fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), argument: PhantomData }
    }

    /// The name, as the PTX has it.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn add_to(self, all: &mut BTreeMap<String, usize>) {
        all.insert(self.name, size_of::<A>());
    }
}

/// An element type with kernels of its own.
pub trait Element {
    /// The end of its kernels' names.
    const SUFFIX: &'static str;
}

impl Element for f32 {
    const SUFFIX: &'static str = "f32";
}

impl Element for f64 {
    const SUFFIX: &'static str = "f64";
}

/// The part of a kernel's name for its matrices: triangles or diagonals.
fn shape(full: bool) -> &'static str {
    if full { "full" } else { "diag" }
}

/// As [`shape`], with a third name for samples with missing values under diagonals.
fn shape_or_observed(full: bool, gaps: bool) -> &'static str {
    if gaps { "observed" } else { shape(full) }
}

/// The part of a kernel's name for its products of float64 on the tensor cores.
fn wide(tall: bool, narrow: bool) -> &'static str {
    match (tall, narrow) {
        (false, _) => "wide",
        (true, false) => "tall",
        (true, true) => "tall_d16",
    }
}

const BOTH: [bool; 2] = [false, true];
const CAPACITIES: [usize; 2] = [8, 32];
const STATES: [usize; 4] = [4, 8, 16, 32];

/// Runs a statement for all values of the variables.
macro_rules! each {
    ($statement:stmt;) => { $statement };
    ($statement:stmt; $variable:ident in $values:expr $(, $($rest:tt)*)?) => {
        for $variable in $values {
            each!($statement; $($($rest)*)?);
        }
    };
}

/// Calls a function for all element types.
macro_rules! of_elements {
    ($add:ident, $all:ident) => {
        $add(&mut $all)
    };
    ($add:ident, $all:ident, $element:ident) => {
        [$add::<f32>, $add::<f64>].iter().for_each(|add| add(&mut $all))
    };
    ($add:ident, $all:ident, $from:ident, $to:ident) => {
        [$add::<f32, f32>, $add::<f32, f64>, $add::<f64, f32>, $add::<f64, f64>].iter().for_each(|add| add(&mut $all))
    };
}

/// Makes a function for each entry, and [`all`], which lists the instances: one for each value of an argument and each
/// element type for which the condition holds.
macro_rules! entries {
    ($(
        $(#[$doc:meta])*
        fn $name:ident $(<$($element:ident),+>)? ($($argument:ident: $type:ident in $values:expr),*) -> $of:ty =
            $text:literal $(, $part:expr)* $(; if $exists:expr)?;
    )*) => {
        $(
            $(#[$doc])*
            pub fn $name $(<$($element: Element),+>)? ($($argument: $type),*) -> Entry<$of> {
                Entry::new(format!($text $(, $part)*))
            }
        )*

        /// Returns the name of every entry, and the size of its argument in bytes.
        pub fn all() -> BTreeMap<String, usize> {
            let mut all = BTreeMap::new();
            all_small_k(&mut all);
            $({
                fn add $(<$($element: Element),+>)? (all: &mut BTreeMap<String, usize>) {
                    each!(
                        if true $(&& $exists)? {
                            $name $(::<$($element),+>)? ($($argument),*).add_to(all);
                        };
                        $($argument in $values),*
                    );
                }
                of_elements!(add, all $($(, $element)+)?);
            })*
            all
        }
    };
}

/// Total of at most 8 components over D ≤ 16 features. `None` unless a component of D features has `ROW` numbers.
pub fn small_k<const ROW: usize>(d: usize, kind: small_k::Kind) -> Option<Entry<small_k::SmallKArgs<ROW>>> {
    let exists = (1..=small_k::MAX_FEATURES).contains(&d) && kind.row(d) == ROW;
    exists.then(|| Entry::new(small_k_name(d, kind)))
}

/// The name of a `small_k`.
pub fn small_k_name(d: usize, kind: small_k::Kind) -> String {
    let of = match kind {
        small_k::Kind::Diagonal => "",
        small_k::Kind::Observed => "observed_",
        small_k::Kind::Tied => "tied_",
        small_k::Kind::Full => "full_",
    };
    format!("small_k_{of}d{d:02}")
}

fn all_small_k(all: &mut BTreeMap<String, usize>) {
    fn add<const ROW: usize>(all: &mut BTreeMap<String, usize>) {
        for kind in small_k::Kind::ALL {
            (1..=small_k::MAX_FEATURES).filter_map(|d| small_k::<ROW>(d, kind)).for_each(|entry| entry.add_to(all));
        }
    }
    let of_rows = [
        add::<4>, add::<8>, add::<12>, add::<16>, add::<20>, add::<24>, add::<28>, add::<32>, add::<36>, add::<40>,
        add::<44>, add::<48>, add::<52>,
    ];
    of_rows.iter().for_each(|add| add(all));
}

/// The shapes of all instances of `fused_mma`.
fn fused_shapes() -> impl Iterator<Item = FusedShape> {
    let sizes = (1..=12).flat_map(|tiles| [13, 9, 15, 16, 32, 64].map(|d| (fused_mma::TILE * tiles, d)));
    sizes.flat_map(|(k, d)| {
        let steps = (1..=14).filter_map(move |steps| FusedShape::expanded(k, d, steps * fused_mma::STEP));
        let of_kinds = [(false, false), (false, true), (true, false)];
        of_kinds.into_iter().filter_map(move |(full, gaps)| FusedShape::new(k, d, full, gaps)).chain(steps)
    })
}

/// The name of a `fused_mma`.
fn fused_mma_name(shape: FusedShape) -> String {
    let warp = shape.of_warp();
    if shape.expanded > 0 {
        return format!("fused_mma_expanded_p{:03}_k{}", warp.products(), warp.capacity());
    }
    let of = match shape {
        FusedShape { rotations: 1.., .. } => "full_",
        FusedShape { gaps: true, .. } => "observed_",
        _ => "",
    };
    let team = if shape.is_of_team() { "team_" } else { "" };
    format!("fused_mma_{of}{team}d{:02}_k{:02}", warp.features(), warp.capacity())
}

/// One size for each instance of `whitened_wgmma`.
fn widths() -> impl Iterator<Item = Whitened> {
    (1..=whitened_wgmma::MAX_FEATURES as u32).map(|d| Whitened { d, k: 1 })
}

fn tiling_name(tiling: Tiling) -> &'static str {
    match tiling {
        products::LARGE => "large",
        products::MEDIUM => "medium",
        _ => "small",
    }
}

entries! {
    /// Totals of many parameter sets over D ≤ 16 features.
    fn batch(d: usize in 1..=small_k::MAX_FEATURES) -> batch::BatchArgs = "batch_d{d:02}";

    /// The parameters of many similar sets, for the kernels on the tensor cores.
    fn batch_parameters() -> batch_parameters::BatchParametersArgs = "batch_parameters";

    /// Totals of many parameter sets on the tensor cores, over the features of 1 to 4 `steps`.
    fn batch_mma(steps: usize in 1..=4) -> batch_mma::BatchMmaArgs = "batch_mma_s{steps}";

    /// As [`batch_mma()`], with warpgroup products; `k`: the number of components.
    fn batch_wgmma(steps: usize in 1..=4, k: usize in CAPACITIES) -> batch_mma::BatchMmaArgs =
        "batch_wgmma_{}s{steps}", if k <= batch_mma::COMPONENTS { "k08_" } else { "" };

    /// Whole fits of small mixtures, each by one block. (With one feature, full and diagonal covariances are the same.)
    fn fit(full: bool in BOTH, d: usize in 1..=fit::MAX_FEATURES) -> fit::FitArgs =
        "fit_{}_d{:02}", shape(full && d > 1), fit::features(d);

    /// Total and scores, with one thread for each (sample, component) pair.
    fn pair() -> pair::PairArgs = "pair";

    /// The bias of the device's approximate 2^x.
    fn exp2_bias() -> exp2_bias::Exp2BiasArgs = "exp2_bias";

    /// Total, scores and exponents in tiles of `rows` (8 or 16; 8 with missing values) components or rows of triangles.
    fn tiled(rows: usize in [8, 16], form: Form in Form::ALL) -> tiled::TiledArgs = "tiled{}{rows}", match form {
        Form::Diagonal => "",
        Form::Observed => "_observed",
        Form::Linear => "_linear",
        Form::Full => "_full",
        Form::Expanded => "_expanded",
    }; if form != Form::Observed || rows == 8;

    /// The fused E-step of `capacity` (8 or 32) components over at most [`fused::most_features`].
    fn fused(full: bool in BOTH, capacity: usize in CAPACITIES, d: usize in 1..=small_k::MAX_FEATURES)
        -> fused::FusedArgs = "fused_{}_k{capacity:02}_d{d:02}", shape(full);
        if d <= fused::most_features(full, capacity);

    /// The fused E-step in float64, of `capacity` (8 or 32) diagonal components over `features` (4, 8, 12 or 16).
    fn fused64(capacity: usize in CAPACITIES, features: usize in [4, 8, 12, 16]) -> fused64::Fused64Args =
        "fused64_k{capacity:02}_d{features:02}";

    /// The E-step of few components on the tensor cores, in one read of the data.
    fn fused_mma(shape: FusedShape in fused_shapes()) -> fused_mma::FusedMmaArgs = "{}", fused_mma_name(shape);

    /// The sums of the E-step from known exponents, raw or central.
    fn weighted_sums(full: bool in BOTH, central: bool in BOTH) -> weighted_sums::WeightedSumsArgs =
        "weighted_sums_{}_{}", shape(full), if central { "central" } else { "raw" };

    /// The coefficients of `products_mma`, in float16.
    fn split_coefficients() -> products_mma::SplitArgs = "split_coefficients";

    /// The exponents of `products_mma`, with `tiles` (1 or 2) tiles of components per warp.
    fn exponents(full: bool in BOTH, tiles: usize in 1..=2) -> products_mma::ExponentsArgs =
        "exponents_{}_m{tiles}", shape(full);

    /// The sums of `products_mma` from known exponents, with `tiles` (1 or 2) tiles of components per warp.
    fn weigh(full: bool in BOTH, tiles: usize in 1..=2) -> products_mma::WeighArgs = "weigh_{}_m{tiles}", shape(full);

    /// The coefficients of `products_wgmma`, in float16.
    fn warpgroup_coefficients() -> products_wgmma::CoefficientsArgs = "warpgroup_coefficients";

    /// The products of the samples of `products_wgmma`, in float16.
    fn warpgroup_products() -> products_wgmma::ProductsArgs = "warpgroup_products";

    /// The exponents of `products_wgmma`.
    fn warpgroup_exponents() -> products_wgmma::ExponentsArgs = "warpgroup_exponents";

    /// The sums of `products_wgmma` from known exponents.
    fn warpgroup_weigh() -> products_wgmma::WeighArgs = "warpgroup_weigh";

    /// The triangles of `whitened_mma`, in float16.
    fn split_matrices() -> whitened_mma::SplitMatricesArgs = "split_matrices";

    /// The exponents of `whitened_mma`.
    fn whiten() -> whitened_mma::WhitenArgs = "whiten";

    /// The sums of `whitened_mma` from known exponents: products of two features.
    fn outer() -> whitened_mma::OuterArgs = "outer";

    /// The triangles of `whitened_wgmma`, in float16.
    fn warpgroup_triangles() -> whitened_wgmma::TrianglesArgs = "warpgroup_triangles";

    /// The features of the samples of `whitened_wgmma`, in float16.
    fn warpgroup_features() -> whitened_wgmma::FeaturesArgs = "warpgroup_features";

    /// The exponents of `whitened_wgmma`.
    fn warpgroup_whiten(shape: Whitened in widths()) -> whitened_wgmma::WhitenArgs =
        "warpgroup_whiten_d{}", shape.width();

    /// The log-sum-exps of the exponents of `whitened_wgmma`.
    fn warpgroup_normalise() -> whitened_wgmma::NormaliseArgs = "warpgroup_normalise";

    /// The responsibilities of `whitened_wgmma`, and their sums.
    fn warpgroup_respond(shape: Whitened in widths()) -> whitened_wgmma::RespondArgs =
        "warpgroup_respond_d{}", shape.width();

    /// The sums of `whitened_wgmma` from known responsibilities: products of two features.
    fn warpgroup_outer(shape: Whitened in widths()) -> whitened_wgmma::OuterArgs =
        "warpgroup_outer_d{}", shape.width();

    /// Exponents of all components, for any shape. `gaps`: for samples with missing values, with diagonals;
    /// `around_means`: of differences from the means, in float64.
    fn density<T>(full: bool in BOTH, gaps: bool in BOTH, around_means: bool in BOTH) -> density::DensityArgs<T> =
        "density_{}_{}{}", shape_or_observed(full, gaps), if around_means { "around_means_" } else { "" }, T::SUFFIX;
        if !around_means || T::SUFFIX == f64::SUFFIX;

    /// Exponents with triangles on the tensor cores, in float64. `tall`: by the products of compute capability 9.0;
    /// `narrow`: of at most 16 features.
    fn wide_density<T>(tall: bool in BOTH, narrow: bool in BOTH) -> density::DensityArgs<T> =
        "density_{}_{}", wide(tall, narrow), T::SUFFIX; if T::SUFFIX == f64::SUFFIX && (tall || !narrow);

    /// Scores, labels and responsibilities from exponents.
    fn posterior<T>() -> posterior::PosteriorArgs<T> = "posterior_{}", T::SUFFIX;

    /// Sufficient statistics from responsibilities; `gaps`: for samples with missing values, with diagonals.
    fn accumulate<T>(full: bool in BOTH, gaps: bool in BOTH) -> accumulate::AccumulateArgs<T> =
        "accumulate_{}_{}", shape_or_observed(full, gaps), T::SUFFIX;

    /// Sufficient statistics from responsibilities, as for [`wide_density`].
    fn wide_accumulate<T>(tall: bool in BOTH, narrow: bool in BOTH) -> accumulate::AccumulateArgs<T> =
        "accumulate_{}_{}", wide(tall, narrow), T::SUFFIX; if T::SUFFIX == f64::SUFFIX && (tall || !narrow);

    /// The ends of a hidden Markov chain's chunks, of `k` states.
    fn chain_ends<T>(k: usize in STATES) -> ends::EndsArgs<T> = "chain_ends_k{:02}_{}", capacity(k), T::SUFFIX;

    /// The exponents of states that emit from mixtures.
    fn chain_states<T>() -> mixed::MixedArgs<T> = "chain_states_{}", T::SUFFIX;

    /// The posteriors of these states' components.
    fn chain_components<T>() -> mixed::MixedArgs<T> = "chain_components_{}", T::SUFFIX;

    /// The posteriors of a hidden Markov chain of `k` states.
    fn chain_posteriors<T>(k: usize in STATES) -> posteriors::PosteriorsArgs<T> =
        "chain_posteriors_k{:02}_{}", capacity(k), T::SUFFIX;

    /// The parameters of each pattern of missing values.
    fn marginals<T>() -> marginals::MarginalsArgs<T> = "marginals_{}", T::SUFFIX;

    /// The sums of all columns of each pattern of missing values.
    fn complete_patterns() -> complete::CompleteArgs = "complete_patterns";

    /// The fused E-step over patterns of missing values, of `capacity` (8 or 32) components over D ≤ 16 features.
    fn fused_patterns(capacity: usize in CAPACITIES, d: usize in 1..=fused_patterns::MAX_FEATURES)
        -> fused_patterns::FusedPatternsArgs = "fused_patterns_k{capacity:02}_d{d:02}";

    /// Log-densities of samples that each have their own noise.
    fn noisy_density(d: usize in 1..=noisy::MAX_FEATURES) -> noisy::PairsArgs =
        "noisy_density_d{:02}", noisy::features(d);

    /// The sums of true values behind noise.
    fn noisy_sums(d: usize in 1..=noisy::MAX_FEATURES) -> noisy::SumsArgs = "noisy_sums_d{:02}", noisy::features(d);

    /// Steps of random-walk Metropolis over D ≤ 16 features.
    fn metropolis(d: usize in 1..=small_k::MAX_FEATURES) -> metropolis::MetropolisArgs = "metropolis_d{d:02}";

    /// Sums over blocks, for each of several sets.
    fn reduce_sets() -> sets::ReduceSetsArgs = "reduce_sets";

    /// Sums over slices of the samples.
    fn reduce_slices() -> slices::ReduceSlicesArgs = "reduce_slices";

    /// Rows as pairs of float16 numbers.
    fn split_rows() -> split::SplitArgs = "split_rows";

    /// Inner products of split rows, in tiles of one size.
    fn products(tiling: Tiling in TILINGS) -> products::ProductsArgs = "products_{}", tiling_name(tiling);

    /// Inner products of few vectors with split rows.
    fn products_few() -> products_few::ProductsFewArgs = "products_few";

    /// The Gaussian kernel of pairs of rows.
    fn gaussian_pairs() -> pairs::PairsArgs = "gaussian_pairs";

    /// The Gaussian kernel of rows with centres.
    fn gaussian_centres() -> centres::CentresArgs = "gaussian_centres";

    /// The range of each column of an array, and its first element that is not finite.
    fn array_ranges<T>() -> ranges::RangesArgs<T> = "array_ranges_{}", T::SUFFIX;

    /// An array's samples as columns of the same or another type.
    fn array_columns<S, T>() -> columns::ColumnsArgs<S, T> = "array_columns_{}_{}", S::SUFFIX, T::SUFFIX;

    /// Chosen rows of an array.
    fn array_rows<T>() -> rows::RowsArgs<T> = "array_rows_{}", T::SUFFIX;
}

#[cfg(all(test, feature = "ptx"))]
mod tests {
    use super::*;
    use crate::ptx;
    use crate::simt::emulator::KERNELS;
    use std::vec::Vec;

    /// The entries are the kernels of the PTX; the PTX and the kernel's code take an argument of the entry's size.
    #[test]
    fn every_kernel_has_an_entry_with_its_argument() {
        let all = all();
        assert_eq!(all.keys().map(String::as_str).collect::<Vec<_>>(), ptx::names());
        for (name, bytes) in &all {
            let text = ptx::entry(name).unwrap();
            let parameter = format!("{name}_param_0[");
            let size = text.split(&parameter).nth(1).and_then(|rest| rest.split(']').next());
            assert_eq!(size.map(str::parse), Some(Ok(*bytes)), "the argument of {name}");
            assert!(!text.contains(&format!("{name}_param_1")), "{name} has a second parameter");
            let kernel = KERNELS.iter().find(|kernel| kernel.name == name).unwrap();
            assert_eq!(kernel.argument_bytes, *bytes, "the argument of {name} in the emulator");
        }
    }
}
