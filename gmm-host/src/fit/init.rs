//! The start of a fit.
//!
//! The host seeks centres among some of the samples: a random subset, and samples drawn from all others with
//! probabilities proportional to weight times squared distance to first centres, so that rare, distant samples are
//! among them. Each chosen sample is weighted by the number of samples that it stands for. Passes over all samples run
//! on the backend, with a mixture of equal, very narrow components at the centres: scores are then distances to the
//! nearest centre, and an E-step assigns each sample to its nearest centre. So one such pass is a Lloyd iteration, and
//! the last one gives the start in the fit's covariance type. (For k-means++ and random_from_data scikit-learn starts
//! at the centres with covariance `reg_covar`, so that its first iteration is such an assignment.)
use super::fitting::FitOptions;
use super::hierarchical::{Hierarchy, quantile_classes};
use super::kmeans::Gaps;
use super::noise::NoiseComponent;
use super::options::InitParams;
use super::points::Points;
use super::subset::{SUBSET, Subset, subset};
use gmm_core::backends::cpu::CpuEvaluator;
use gmm_core::contract::draw::{Draw, Drawn};
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::contract::labels::Labels;
use gmm_core::data::samples::{Rows, Samples};
use gmm_core::error::{Error, Result};
use gmm_core::model::covariances::{CovarianceType, Covariances};
use gmm_core::model::linalg::row_major;
use gmm_core::model::mixture::Mixture;
use gmm_core::reproducible::Functions;
use gmm_core::statistics::Statistics;
use gmm_core::statistics::freeze::Freeze;
use gmm_core::statistics::prior::ConjugatePrior;
use ndarray::{Array1, Array2, Axis, concatenate, s};
use rand::seq::index;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The most Lloyd iterations over all samples. Such a pass takes as long as two EM iterations, because most samples are
/// far from every narrow component; but EM needs three times as many iterations from centres that still move.
const MAX_LLOYD: usize = 20;
/// The most Lloyd iterations over a subset, and over a subset that holds all samples.
pub(super) const SUBSET_LLOYD: (usize, usize) = (30, 100);
/// The multiply-adds that seeding, and Lloyd's iterations over the subset, may take each on the host: some
/// milliseconds. For many samples each may take as long as half a pass over all of them, little beside ten EM
/// iterations.
const FREE_WORK: usize = 1 << 22;
/// The most first centres; rare samples are far from any number of centres.
const FIRST_CENTRES: usize = 64;
/// The subset size for random responsibilities, which take at least 4 samples for each feature.
const RANDOM_SUBSET: usize = 1024;
/// Lloyd's iterations end when the centres' squared moves sum to less than this times the mean variance
/// (scikit-learn's).
pub(super) const LLOYD_TOL: f64 = 1e-4;
/// The variance of the narrow components over the mean squared distance to the nearest centre. Two centres share only
/// samples whose squared distances differ by less than about 1e-3 of that mean.
const NARROW: f64 = 5e-5;

/// The statistics of a start, and what its parameters need besides.
pub(super) struct Found {
    statistics: Statistics,
    /// The mixture behind the statistics; a component without samples keeps its parameters.
    assigner: Option<Mixture>,
}

impl Found {
    /// Adds the variance of missing values, which the statistics count as the means of their columns: each varies about
    /// as the observed values of its column.
    fn new(statistics: Statistics, assigner: Option<Mixture>, gaps: Option<Gaps>) -> Self {
        let statistics = match gaps {
            Some(gaps) => statistics.with_variances(gaps.variances().view()),
            None => statistics,
        };
        Self { statistics, assigner }
    }

    pub fn into_mixture(self, options: &FitOptions, prior: Option<&ConjugatePrior>) -> Result<Mixture> {
        let FitOptions { reg_covar, covariance_type: model, .. } = *options;
        let assigner = self.assigner.map(|assigner| assigner.with_covariance_model(model)).transpose()?;
        match &assigner {
            Some(assigner) => Ok(self.statistics.into_update(assigner, reg_covar, &Freeze::default(), prior)?.mixture),
            None => self.statistics.to_mixture_of(model, reg_covar, prior),
        }
    }

    /// Returns the statistics, scaled to this weight.
    pub fn into_statistics(self, weight: f64) -> Statistics {
        let factor = weight / self.statistics.weight();
        self.statistics.scaled(factor)
    }
}

pub(super) fn random_numbers((seed, stream): (u64, u64)) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng
}

/// Finds the start by `init_params`, with the random numbers of this seed and stream, among all rows but the noise.
pub(super) fn find(
    options: &FitOptions,
    evaluator: &mut dyn Evaluator,
    noise: Option<&NoiseComponent>,
    seed: (u64, u64),
    check: &mut dyn FnMut() -> Result<()>,
) -> Result<Found> {
    options.find_start(evaluator, noise, &mut random_numbers(seed), check)
}

impl FitOptions {
    fn find_start(
        &self,
        evaluator: &mut dyn Evaluator,
        noise: Option<&NoiseComponent>,
        rng: &mut ChaCha8Rng,
        check: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Found> {
        let (k, n) = (self.n_components, evaluator.n_samples());
        if let Some(labels) = evaluator.labels().cloned() {
            return self.start_with_labels(evaluator, &labels, rng, check);
        }
        let wanted = match self.init_params {
            // Each sample counts for all components.
            InitParams::Random => RANDOM_SUBSET.max(4 * evaluator.n_features()),
            InitParams::Hierarchical => self.hierarchical_rows.max(k),
            _ => SUBSET.max(k.saturating_mul(4)),
        };
        let wanted = match self.init_params {
            InitParams::KMeans | InitParams::KMeansPlusPlus if wanted < n => wanted / 2,
            _ => wanted.min(n),
        };
        let mut subset = subset(evaluator, k, wanted, rng)?;
        if let Some(noise) = noise {
            subset = noise.leave_out(subset, k)?;
        }
        match self.init_params {
            InitParams::Random => self.random_start(&subset.rows.x, &subset.rows.weights, |_, _| true, rng),
            InitParams::Hierarchical => {
                let Rows { x, weights } = &subset.rows;
                let points = Points::with_gaps(x, weights);
                let filled = points.filled();
                let classes = match filled.ncols() {
                    1 => quantile_classes(filled.column(0), k),
                    _ => Hierarchy::of_start(filled.view())?.classes(k),
                };
                let r = Array2::from_shape_fn((x.nrows(), k), |(i, c)| if classes[i] == c { weights[i] } else { 0.0 });
                let kind = self.covariance_type.form();
                let statistics = Statistics::from_responsibilities(filled.view(), r.view(), kind)?;
                let gaps = points.gaps(&statistics.means().to_owned());
                Ok(Found::new(statistics, None, gaps))
            }
            InitParams::RandomFromData => {
                let Rows { x, weights } = &subset.rows;
                let points = Points::with_gaps(x, weights);
                let mut centres = points.filled().select(Axis(0), &random_rows(weights, k, rng)?);
                points.settle_gaps(&mut centres);
                self.start_at_centres(evaluator, &points, centres, true, check)
            }
            InitParams::KMeans | InitParams::KMeansPlusPlus => {
                let whole = subset.share == 1.0;
                let points = Points::with_gaps(&subset.rows.x, &subset.rows.weights);
                let passes = passes(n, subset.indices.len(), k, evaluator.n_features());
                if whole || points.has_gaps() || noise.is_some() {
                    // Scores do not tell how far a sample with missing values is, and noise is far.
                    let (centres, converged) = self.seek(&points, passes, whole, rng);
                    let are_final = converged && whole || noise.is_some();
                    return self.start_at_centres(evaluator, &points, centres, are_final, check);
                }
                // Distant samples among the centres help some data (few distinct rows) and harm others (heavy tails).
                let passes = (passes / 2).max(1);
                let (first, _) = self.seek(&points, passes, false, rng);
                let rows = with_far_samples(evaluator, &points, &first, subset, wanted / 2, rng)?;
                let points = Points::with_gaps(&rows.x, &rows.weights);
                let (second, _) = self.seek(&points, passes, false, rng);
                let centres = self.likelier(&rows, &points, [first, second])?;
                self.start_at_centres(evaluator, &points, centres, self.init_params != InitParams::KMeans, check)
            }
        }
    }

    /// Finds a start that heeds labels: a component with labelled samples begins at their mean, others among samples
    /// that may belong to them.
    fn start_with_labels(
        &self,
        evaluator: &mut dyn Evaluator,
        labels: &Labels,
        rng: &mut ChaCha8Rng,
        check: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Found> {
        let (k, n, d) = (self.n_components, evaluator.n_samples(), evaluator.n_features());
        let sets = labels.sets();
        let mut indices = subset(evaluator, k, SUBSET.max(k.saturating_mul(4)).min(n), rng)?.indices;
        // Samples of any set may be rare.
        for set in 0..sets.len() {
            let rows = labels.rows_of(set);
            let size = rows.len().min(SUBSET.div_ceil(sets.len()));
            indices.extend(index::sample(rng, rows.len(), size).iter().map(|i| rows[i]));
        }
        indices.sort_unstable();
        indices.dedup();
        let Rows { x, weights } = evaluator.rows(&indices)?;
        let counted: Vec<usize> = (0..indices.len()).filter(|&i| weights[i] > 0.0).collect();
        let (x, weights) = (x.select(Axis(0), &counted), weights.select(Axis(0), &counted));
        let indices: Vec<usize> = counted.iter().map(|&i| indices[i]).collect();
        if self.init_params == InitParams::Random {
            return self.random_start(&x, &weights, |i, c| labels.allowed(indices[i]).contains(&c), rng);
        }
        let points = Points::with_gaps(&x, &weights);
        let filled = points.filled();
        let passes = passes(n, indices.len(), k, d);
        let (mut centres, mut found) = (Array2::zeros((k, d)), Vec::new());
        // A smaller set says more, so it comes first. All samples come last, for components that no set allows.
        let mut by_size: Vec<usize> = (0..sets.len()).collect();
        by_size.sort_by_key(|&set| sets[set].len());
        for set in by_size.into_iter().map(Some).chain([None]) {
            let of_set = |row: usize| set.is_none_or(|set| labels.place(row).0 == set);
            let here: Vec<usize> = (0..indices.len()).filter(|&i| of_set(indices[i])).collect();
            let components = set.map_or_else(|| (0..k).collect(), |set| sets[set].clone());
            let sought: Vec<usize> = components.iter().copied().filter(|c| !found.contains(c)).collect();
            if here.is_empty() || sought.is_empty() {
                continue;
            }
            let (x, weights) = (filled.select(Axis(0), &here), weights.select(Axis(0), &here));
            let those = Points::with_gaps(&x, &weights);
            let seeds = match self.init_params {
                _ if components.len() == 1 => those.mean(),
                InitParams::RandomFromData if sought.len() <= here.len() => {
                    x.select(Axis(0), &random_rows(&weights, sought.len(), rng)?)
                }
                _ => those.seeds_beside(&centres.select(Axis(0), &found), sought.len(), passes, rng),
            };
            sought.iter().zip(seeds.outer_iter()).for_each(|(&c, seed)| centres.row_mut(c).assign(&seed));
            found.extend(sought);
        }
        self.start_at_centres(evaluator, &points, centres, self.init_params != InitParams::KMeans, check)
    }

    /// Returns centres among the points, and whether they have settled. `whole`: the points are all samples.
    fn seek(&self, points: &Points<f64>, passes: usize, whole: bool, rng: &mut ChaCha8Rng) -> (Array2<f64>, bool) {
        let mut centres = points.seeds(self.n_components, passes, rng);
        if self.init_params != InitParams::KMeans {
            points.settle_gaps(&mut centres);
            return (centres, true);
        }
        let rounds = passes.min(if whole { SUBSET_LLOYD.1 } else { SUBSET_LLOYD.0 });
        let converged = points.lloyd(&mut centres, rounds, LLOYD_TOL * points.mean_variance());
        (centres, converged)
    }

    /// Returns the set of centres whose clusters make some samples likelier; the second set if both are equal.
    fn likelier(&self, rows: &Rows, points: &Points<f64>, sets: [Array2<f64>; 2]) -> Result<Array2<f64>> {
        let samples = Samples::from_f64(rows.x.view())?.with_weights(rows.weights.view())?;
        let mut data = CpuEvaluator::new(samples)?;
        let kind = match self.covariance_type.form() {
            CovarianceType::Spherical => CovarianceType::Spherical,
            _ => CovarianceType::Diag,
        };
        let mut likelihood = |centres: &Array2<f64>| -> Result<f64> {
            let narrow = narrow_variance(points, centres).unwrap_or(1.0);
            let (statistics, assigner) = assign(&mut data, centres, narrow, kind)?;
            let mixture = statistics.update(&assigner, self.reg_covar, &Freeze::default())?.mixture;
            data.log_likelihood(&mixture)
        };
        // A set that makes no valid mixture loses. If neither set does, the start reports why.
        let [first, second] = sets;
        let likelihoods = [&first, &second].map(|centres| likelihood(centres).unwrap_or(f64::NEG_INFINITY));
        Ok(if likelihoods[0] > likelihoods[1] { first } else { second })
    }

    /// Returns a start from random responsibilities of some samples, each only for components that are `allowed`.
    fn random_start(
        &self,
        x: &Array2<f64>,
        weights: &Array1<f64>,
        allowed: impl Fn(usize, usize) -> bool,
        rng: &mut ChaCha8Rng,
    ) -> Result<Found> {
        let points = Points::with_gaps(x, weights);
        let mut r = Array2::from_shape_fn((x.nrows(), self.n_components), |(i, c)| {
            let random = rng.random::<f64>();
            // Never zero: the component may be the only one.
            if allowed(i, c) { random.max(f64::MIN_POSITIVE) } else { 0.0 }
        });
        for (mut r, w) in r.outer_iter_mut().zip(weights) {
            let factor = w / r.sum();
            r *= factor;
        }
        let kind = self.covariance_type.form();
        let statistics = Statistics::from_responsibilities(points.filled().view(), r.view(), kind)?;
        // Each component is about like all samples.
        let means = statistics.means().select(Axis(0), &[0]);
        Ok(Found::new(statistics, None, points.gaps(&means)))
    }

    /// Returns a start at centres among some samples; passes over all samples improve them unless they `are_final`.
    fn start_at_centres(
        &self,
        evaluator: &mut dyn Evaluator,
        points: &Points<f64>,
        mut centres: Array2<f64>,
        are_final: bool,
        check: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Found> {
        // If all samples are equal, all components are too, and any width will do.
        let narrow = narrow_variance(points, &centres).unwrap_or(1.0);
        let mut last = None;
        if !are_final {
            // For these types a Lloyd iteration computes the start itself: the clusters before the last, tiny move.
            let kind = match self.covariance_type.form() {
                kind @ (CovarianceType::Diag | CovarianceType::Spherical) => kind,
                _ => CovarianceType::Spherical,
            };
            let tol = LLOYD_TOL * points.mean_variance();
            last = lloyd_over_all(evaluator, &mut centres, narrow, kind, tol, check)?;
        }
        let (statistics, assigner) =
            match last.filter(|(_, assigner)| assigner.covariance_type() == self.covariance_type.form()) {
                Some(last) => last,
                None => assign(evaluator, &centres, narrow, self.covariance_type.form())?,
            };
        let gaps = points.gaps(&centres).map(|gaps| gaps.beside(assigner.variance(0, 0)));
        Ok(Found::new(statistics, Some(assigner), gaps))
    }
}

/// Draws `size` random rows by weight; at least as many weights must be positive, all finite.
fn random_rows(weights: &Array1<f64>, size: usize, rng: &mut ChaCha8Rng) -> Result<Vec<usize>> {
    let chosen = index::sample_weighted(rng, weights.len(), |i| weights[i], size);
    Ok(chosen.map_err(|_| Error::ZeroSampleWeights)?.into_vec())
}

/// Returns the number of passes over `s` of `n` samples that FREE_WORK allows.
fn passes(n: usize, s: usize, k: usize, d: usize) -> usize {
    let work_per_pass = s.saturating_mul(k).saturating_mul(d).max(1);
    (FREE_WORK / work_per_pass).max(n / (2 * s))
}

/// Returns the variance of the narrow components that assign samples to `centres`, or `None` if all samples are equal.
fn narrow_variance(points: &Points<f64>, centres: &Array2<f64>) -> Option<f64> {
    let d = centres.ncols() as f64;
    // All samples may be centres.
    let widths = [points.inertia(centres), points.mean_variance() * d];
    let width = widths.into_iter().map(|v| NARROW * v).find(|v| v.is_normal())?;
    // An E-step gives each missing value this variance, so it must be narrow in its column's unit too.
    let least = points.gaps(centres).and_then(|gaps| gaps.least_variance());
    Some(least.map_or(width, |least| width.min(NARROW * d * least)))
}

/// Makes Lloyd's iterations over all samples, on the backend, until the centres' squared moves sum to at most `tol`.
/// Returns the last result of `assign`.
fn lloyd_over_all(
    evaluator: &mut dyn Evaluator,
    centres: &mut Array2<f64>,
    narrow: f64,
    kind: CovarianceType,
    tol: f64,
    check: &mut dyn FnMut() -> Result<()>,
) -> Result<Option<(Statistics, Mixture)>> {
    let mut last = None;
    for _ in 0..MAX_LLOYD {
        check()?;
        let (statistics, assigner) = assign(evaluator, centres, narrow, kind)?;
        let moved: f64 = (statistics.means().to_owned() - &*centres).iter().map(|v| v * v).sum();
        centres.assign(&statistics.means());
        last = Some((statistics, assigner));
        if moved <= tol {
            break;
        }
    }
    Ok(last)
}

/// Adds to a random subset up to `size` of the other samples, drawn by their distance to centres among the subset. Each
/// weight is divided by the probability that its sample was chosen.
fn with_far_samples(
    evaluator: &mut dyn Evaluator,
    points: &Points<f64>,
    centres: &Array2<f64>,
    subset: Subset,
    size: usize,
    rng: &mut ChaCha8Rng,
) -> Result<Rows> {
    let Subset { rows: Rows { x, mut weights }, indices, share } = subset;
    let centres = centres.slice(s![..centres.nrows().min(FIRST_CENTRES), ..]).to_owned();
    // If these samples are equal, the others may be at any distance.
    let narrow = narrow_variance(points, &centres).unwrap_or_else(|| points.smallest_variance());
    let seed = rng.random();
    // One more than is kept: its key gives the probability of the others.
    let (mut drawn, narrow) = with_centres(&centres, narrow, CovarianceType::Spherical, |centres| {
        let drawn = evaluator.draw(&Draw::new(centres, seed, size + 1))?;
        Ok((drawn, centres.variance(0, 0)))
    })?;
    let limit = if drawn.len() > size { drawn.pop().map_or(f64::INFINITY, |last| last.key) } else { f64::INFINITY };
    let probability = |far: f64| {
        // Infinity times 0 is not a number: if more samples are infinitely far than are drawn, the limit is 0.
        let by_distance = if far > 0.0 { (-(-far * limit).exp_e_m1()).max(0.0) } else { 0.0 };
        share + (1.0 - share) * by_distance
    };
    for (w, distance) in weights.iter_mut().zip(points.distances(&row_major(centres.view()))) {
        let far = *w * Draw::beyond_a_centre(distance / narrow);
        *w /= probability(far);
    }
    drawn.retain(|drawn| indices.binary_search(&drawn.row).is_err());
    if drawn.is_empty() {
        return Ok(Rows { x, weights });
    }
    drawn.sort_unstable_by_key(|drawn| drawn.row);
    let far = evaluator.rows(&drawn.iter().map(|drawn| drawn.row).collect::<Vec<_>>())?;
    let far_weights = far.weights.iter().zip(&drawn).map(|(w, Drawn { far, .. })| w / probability(*far));
    let weights = weights.iter().copied().chain(far_weights).collect();
    match concatenate(Axis(0), &[x.view(), far.x.view()]) {
        Ok(x) => Ok(Rows { x, weights }),
        Err(_) => Err(Error::ShapeMismatch {
            what: "the samples that an evaluator gave",
            expected: vec![drawn.len(), x.ncols()],
            got: far.x.shape().to_vec(),
        }),
    }
}

/// Returns statistics with each sample at its nearest centre, or shared between nearest ones, and the mixture used.
fn assign(
    evaluator: &mut dyn Evaluator,
    centres: &Array2<f64>,
    narrow: f64,
    covariance_type: CovarianceType,
) -> Result<(Statistics, Mixture)> {
    with_centres(centres, narrow, covariance_type, |assigner| Ok((evaluator.statistics(assigner)?, assigner.clone())))
}

/// Calls `evaluate` with a mixture of narrow components at the centres.
pub(super) fn with_centres<T>(
    centres: &Array2<f64>,
    mut narrow: f64,
    covariance_type: CovarianceType,
    mut evaluate: impl FnMut(&Mixture) -> Result<T>,
) -> Result<T> {
    let (k, d) = centres.dim();
    loop {
        let covariances = Covariances::isotropic(covariance_type, k, d, narrow);
        let assigner =
            Mixture::new(Array1::from_elem(k, 1.0 / k as f64), centres.clone(), covariances)?.of_measurements();
        match evaluate(&assigner) {
            // Too narrow for the backend's precision over samples this far away. Wider components share more samples.
            Err(Error::OutOfRange { .. } | Error::NonFiniteStatistic { .. } | Error::UnreachableSample { .. })
                if narrow < f64::MAX / 1e4 =>
            {
                narrow *= 1e4
            }
            result => return result,
        }
    }
}
