//! Every entry of the PTX by name, with the type of its one argument. The host launches kernels by
//! these entries only.
use crate::arrays::{columns, ranges, rows};
use crate::estep::fused_mma::FusedShape;
use crate::estep::{
    fused, fused_mma, fused_patterns, fused64, products_mma, products_wgmma, weighted_sums, whitened_mma,
    whitened_wgmma,
};
use crate::fit;
use crate::general::{accumulate, density, posterior};
use crate::likelihood::{batch, batch_mma, batch_parameters, exp2_bias, pair, small_k, tiled};
use crate::metropolis;
use crate::pairwise::products::Tiling;
use crate::pairwise::{centres, pairs, products, products_few, split};
use crate::patterns::{complete, marginals};
use crate::reduce::{sets, slices};
use core::marker::PhantomData;
use std::format;
use std::string::String;

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
}

/// An element type of the kernels that have an instance for each.
pub trait Element {
    /// The end of the names of its kernels.
    const SUFFIX: &'static str;
}

impl Element for f32 {
    const SUFFIX: &'static str = "f32";
}

impl Element for f64 {
    const SUFFIX: &'static str = "f64";
}

/// The part of a kernel's name that says whether its matrices are triangles or diagonals.
fn shape(full: bool) -> &'static str {
    if full { "full" } else { "diag" }
}

/// The part of a kernel's name that says that it is for samples with missing values, and diagonals.
const OBSERVED: &str = "observed";

/// Total of at most 8 components over D ≤ 16 features. `None` unless a component of D features has
/// `ROW` numbers.
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

/// Totals of many parameter sets over D ≤ 16 features.
pub fn batch(d: usize) -> Entry<batch::BatchArgs> {
    Entry::new(format!("batch_d{d:02}"))
}

/// The parameters of many similar sets, for the kernels on the tensor cores.
pub fn batch_parameters() -> Entry<batch_parameters::BatchParametersArgs> {
    Entry::new("batch_parameters")
}

/// Totals of many parameter sets on the tensor cores, over the features of so many steps (1 to 4).
pub fn batch_mma(steps: usize) -> Entry<batch_mma::BatchMmaArgs> {
    Entry::new(format!("batch_mma_s{steps}"))
}

/// As [`batch_mma()`], with the products of warpgroups; `k`: the number of components.
pub fn batch_wgmma(steps: usize, k: usize) -> Entry<batch_mma::BatchMmaArgs> {
    let of = if k <= batch_mma::COMPONENTS { "k08_" } else { "" };
    Entry::new(format!("batch_wgmma_{of}s{steps}"))
}

/// Whole fits of small mixtures, each by a block, with full or diagonal covariances.
pub fn fit(full: bool, d: usize) -> Entry<fit::FitArgs> {
    // With one feature a matrix is a number.
    Entry::new(format!("fit_{}_d{:02}", shape(full && d > 1), fit::features(d)))
}

/// Total and scores, with one thread for each (sample, component).
pub fn pair() -> Entry<pair::PairArgs> {
    Entry::new("pair")
}

/// The bias of the device's approximate 2^x.
pub fn exp2_bias() -> Entry<exp2_bias::Exp2BiasArgs> {
    Entry::new("exp2_bias")
}

/// Total, scores and exponents in tiles of `rows` (8 or 16) components, or rows of triangles;
/// `gaps`: of samples with missing values, for diagonals in tiles of 8.
pub fn tiled(rows: usize, full: bool, gaps: bool) -> Entry<tiled::TiledArgs> {
    let of = match (full, gaps) {
        (true, _) => "_full",
        (false, true) => "_observed",
        (false, false) => "",
    };
    Entry::new(format!("tiled{of}{rows}"))
}

/// The fused E-step of `capacity` (8 or 32) components over D ≤ 16 features.
pub fn fused(moments: fused::Moments, capacity: usize, d: usize) -> Entry<fused::FusedArgs> {
    Entry::new(format!("fused_{}_k{capacity:02}_d{d:02}", moments.name()))
}

/// The fused E-step in float64, of `capacity` (8 or 32) diagonal components over `features` (4, 8,
/// 12 or 16).
pub fn fused64(capacity: usize, features: usize) -> Entry<fused64::Fused64Args> {
    Entry::new(format!("fused64_k{capacity:02}_d{features:02}"))
}

/// The E-step of few components on the tensor cores, in one read of the data.
pub fn fused_mma(shape: FusedShape) -> Entry<fused_mma::FusedMmaArgs> {
    if shape.expanded > 0 {
        let shape = shape.of_warp();
        return Entry::new(format!("fused_mma_expanded_p{:03}_k{}", shape.products(), shape.capacity()));
    }
    let of = match shape {
        FusedShape { rotations: 1.., .. } => "full_",
        FusedShape { gaps: true, .. } => "observed_",
        _ => "",
    };
    let team = if shape.is_of_team() { "team_" } else { "" };
    let shape = shape.of_warp();
    Entry::new(format!("fused_mma_{of}{team}d{:02}_k{:02}", shape.features(), shape.capacity()))
}

/// The sums of the E-step over samples whose exponents are known, raw or central.
pub fn weighted_sums(full: bool, central: bool) -> Entry<weighted_sums::WeightedSumsArgs> {
    Entry::new(format!("weighted_sums_{}_{}", shape(full), if central { "central" } else { "raw" }))
}

/// The coefficients of `products_mma`, in float16.
pub fn split_coefficients() -> Entry<products_mma::SplitArgs> {
    Entry::new("split_coefficients")
}

/// The exponents of `products_mma`, with `tiles` (1 or 2) tiles of components a warp.
pub fn exponents(full: bool, tiles: usize) -> Entry<products_mma::ExponentsArgs> {
    Entry::new(format!("exponents_{}_m{tiles}", shape(full)))
}

/// The sums of `products_mma` over samples whose exponents are known, with `tiles` (1 or 2) tiles of
/// components a warp.
pub fn weigh(full: bool, tiles: usize) -> Entry<products_mma::WeighArgs> {
    Entry::new(format!("weigh_{}_m{tiles}", shape(full)))
}

/// The coefficients of `products_wgmma`, in float16.
pub fn warpgroup_coefficients() -> Entry<products_wgmma::CoefficientsArgs> {
    Entry::new("warpgroup_coefficients")
}

/// The products of the samples of `products_wgmma`, in float16.
pub fn warpgroup_products() -> Entry<products_wgmma::ProductsArgs> {
    Entry::new("warpgroup_products")
}

/// The exponents of `products_wgmma`.
pub fn warpgroup_exponents() -> Entry<products_wgmma::ExponentsArgs> {
    Entry::new("warpgroup_exponents")
}

/// The sums of `products_wgmma` over samples whose exponents are known.
pub fn warpgroup_weigh() -> Entry<products_wgmma::WeighArgs> {
    Entry::new("warpgroup_weigh")
}

/// The triangles of `whitened_mma`, in float16.
pub fn split_matrices() -> Entry<whitened_mma::SplitMatricesArgs> {
    Entry::new("split_matrices")
}

/// The exponents of `whitened_mma`.
pub fn whiten() -> Entry<whitened_mma::WhitenArgs> {
    Entry::new("whiten")
}

/// The sums of `whitened_mma`, of products of two features over samples whose exponents are known.
pub fn outer() -> Entry<whitened_mma::OuterArgs> {
    Entry::new("outer")
}

/// The triangles of `whitened_wgmma`, in float16.
pub fn warpgroup_triangles() -> Entry<whitened_wgmma::TrianglesArgs> {
    Entry::new("warpgroup_triangles")
}

/// The features of the samples of `whitened_wgmma`, in float16.
pub fn warpgroup_features() -> Entry<whitened_wgmma::FeaturesArgs> {
    Entry::new("warpgroup_features")
}

/// The exponents of `whitened_wgmma`.
pub fn warpgroup_whiten(shape: whitened_wgmma::Shape) -> Entry<whitened_wgmma::WhitenArgs> {
    Entry::new(format!("warpgroup_whiten_d{}", shape.width()))
}

/// The log-sum-exps of the exponents of `whitened_wgmma`.
pub fn warpgroup_normalise() -> Entry<whitened_wgmma::NormaliseArgs> {
    Entry::new("warpgroup_normalise")
}

/// The responsibilities of `whitened_wgmma`, and their sums.
pub fn warpgroup_respond(shape: whitened_wgmma::Shape) -> Entry<whitened_wgmma::RespondArgs> {
    Entry::new(format!("warpgroup_respond_d{}", shape.width()))
}

/// The sums of `whitened_wgmma`, of products of two features over samples whose responsibilities are
/// known.
pub fn warpgroup_outer(shape: whitened_wgmma::Shape) -> Entry<whitened_wgmma::OuterArgs> {
    Entry::new(format!("warpgroup_outer_d{}", shape.width()))
}

/// Exponents of all components, for any shape; `gaps`: of samples with missing values, for
/// diagonals; `around_means`: of differences from the means, in float64.
pub fn density<T: Element>(full: bool, gaps: bool, around_means: bool) -> Entry<density::DensityArgs<T>> {
    let shape = if gaps { OBSERVED } else { shape(full) };
    Entry::new(format!("density_{shape}_{}{}", if around_means { "around_means_" } else { "" }, T::SUFFIX))
}

/// Exponents of components with triangles of many features, in float64.
pub fn wide_density<T: Element>() -> Entry<density::DensityArgs<T>> {
    Entry::new(format!("density_wide_{}", T::SUFFIX))
}

/// Scores, labels and responsibilities from exponents.
pub fn posterior<T: Element>() -> Entry<posterior::PosteriorArgs<T>> {
    Entry::new(format!("posterior_{}", T::SUFFIX))
}

/// Sufficient statistics from responsibilities; `gaps`: of samples with missing values, for
/// diagonals.
pub fn accumulate<T: Element>(full: bool, gaps: bool) -> Entry<accumulate::AccumulateArgs<T>> {
    Entry::new(format!("accumulate_{}_{}", if gaps { OBSERVED } else { shape(full) }, T::SUFFIX))
}

/// Sufficient statistics from responsibilities, of components with triangles of many features, in
/// float64.
pub fn wide_accumulate<T: Element>() -> Entry<accumulate::AccumulateArgs<T>> {
    Entry::new(format!("accumulate_wide_{}", T::SUFFIX))
}

/// The parameters of each pattern of missing values.
pub fn marginals<T: Element>() -> Entry<marginals::MarginalsArgs<T>> {
    Entry::new(format!("marginals_{}", T::SUFFIX))
}

/// The sums of all columns of each pattern of missing values.
pub fn complete_patterns() -> Entry<complete::CompleteArgs> {
    Entry::new("complete_patterns")
}

/// The fused E-step over patterns of missing values, of `capacity` (8 or 32) components over
/// D ≤ 16 features.
pub fn fused_patterns(capacity: usize, d: usize) -> Entry<fused_patterns::FusedPatternsArgs> {
    Entry::new(format!("fused_patterns_k{capacity:02}_d{d:02}"))
}

/// Steps of random-walk Metropolis over D ≤ 16 features.
pub fn metropolis(d: usize) -> Entry<metropolis::MetropolisArgs> {
    Entry::new(format!("metropolis_d{d:02}"))
}

/// Sums over blocks, a number for each of several sets.
pub fn reduce_sets() -> Entry<sets::ReduceSetsArgs> {
    Entry::new("reduce_sets")
}

/// Sums over slices of the samples.
pub fn reduce_slices() -> Entry<slices::ReduceSlicesArgs> {
    Entry::new("reduce_slices")
}

/// Rows as pairs of float16 numbers.
pub fn split_rows() -> Entry<split::SplitArgs> {
    Entry::new("split_rows")
}

/// Inner products of split rows, in tiles of this size.
pub fn products(tiling: Tiling) -> Entry<products::ProductsArgs> {
    Entry::new(match tiling {
        products::LARGE => "products_large",
        products::MEDIUM => "products_medium",
        _ => "products_small",
    })
}

/// Inner products of few vectors with split rows.
pub fn products_few() -> Entry<products_few::ProductsFewArgs> {
    Entry::new("products_few")
}

/// The Gaussian kernel of pairs of rows.
pub fn gaussian_pairs() -> Entry<pairs::PairsArgs> {
    Entry::new("gaussian_pairs")
}

/// The Gaussian kernel of rows with centres.
pub fn gaussian_centres() -> Entry<centres::CentresArgs> {
    Entry::new("gaussian_centres")
}

/// The range of each column of an array, and its first element that is not finite.
pub fn array_ranges<T: Element>() -> Entry<ranges::RangesArgs<T>> {
    Entry::new(format!("array_ranges_{}", T::SUFFIX))
}

/// An array's samples as columns of another type, or of the same.
pub fn array_columns<S: Element, T: Element>() -> Entry<columns::ColumnsArgs<S, T>> {
    Entry::new(format!("array_columns_{}_{}", S::SUFFIX, T::SUFFIX))
}

/// Some rows of an array.
pub fn array_rows<T: Element>() -> Entry<rows::RowsArgs<T>> {
    Entry::new(format!("array_rows_{}", T::SUFFIX))
}
