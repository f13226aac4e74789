//! The start of a fit.
//!
//! Centres are sought among some of the samples on the host, which takes little time: a random
//! subset, and samples that are drawn from all others with probabilities in proportion to their
//! weights times their squared distances to first centres, so that few samples far from the others
//! are among them. Each counts as often as such a choice leaves others out. What needs all samples
//! runs on the backend, under a mixture of equal, very narrow components at the centres: scores
//! then are distances to the nearest centre; and in an E-step each sample belongs to its nearest
//! centre, so that one such pass is a Lloyd iteration, and the last one gives the start in the
//! covariance type of the fit. (scikit-learn takes the centres themselves with the covariance
//! `reg_covar` for k-means++ and random_from_data; its first iteration is then such an assignment.)
use super::fitting::FitOptions;
use super::kmeans::Gaps;
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
use std::ops::AddAssign;

/// The most Lloyd iterations over all samples. Such a pass takes as long as two EM iterations,
/// because most samples are far from every component in units of its width; but EM needs three
/// times as many iterations from centres that still move.
const MAX_LLOYD: usize = 20;
/// The most Lloyd iterations over a subset before those over all samples; and the most if the
/// subset is all samples.
pub(super) const SUBSET_LLOYD: (usize, usize) = (30, 100);
/// Multiply-adds that seeding may take on the host, and Lloyd's iterations over the subset too:
/// some milliseconds. Both may take more if there are many samples: as much as half a pass over all
/// of them, which is little beside ten EM iterations.
const FREE_WORK: usize = 1 << 22;
/// The most centres by the distances to which samples are drawn: rare samples are far from any of
/// these too.
const FIRST_CENTRES: usize = 64;
/// The same for random responsibilities; there are at least 4 for each feature.
const RANDOM_SUBSET: usize = 1024;
/// Lloyd's iterations end when the centres move by less than this times the data's mean variance,
/// squared and summed, as in scikit-learn's k-means.
pub(super) const LLOYD_TOL: f64 = 1e-4;
/// Variance of the narrow components over the mean squared distance to the nearest centre: between
/// two centres, only samples whose squared distances differ by less than about 1e-3 of that are
/// shared.
const NARROW: f64 = 5e-5;

/// What the parameters of a start follow from.
pub(super) struct Found {
    statistics: Statistics,
    /// The mixture of which the statistics are, which a component without samples retains.
    assigner: Option<Mixture>,
    /// Of missing values, for which the statistics have the means of their columns.
    gaps: Option<Gaps>,
}

impl Found {
    pub fn into_mixture(self, reg_covar: f64, prior: Option<&ConjugatePrior>) -> Result<Mixture> {
        let mixture = match &self.assigner {
            Some(assigner) => self.statistics.into_update(assigner, reg_covar, &Freeze::default(), prior)?.mixture,
            None => self.statistics.to_mixture(reg_covar)?,
        };
        with_gaps(mixture, self.gaps)
    }

    /// The statistics, as those of samples of this weight.
    pub fn into_statistics(self, weight: f64) -> Statistics {
        let factor = weight / self.statistics.weight();
        let statistics = self.statistics.scaled(factor);
        match self.gaps {
            Some(gaps) => statistics.with_variances(gaps.variances().view()),
            None => statistics,
        }
    }
}

/// The random numbers of a seed and a stream.
pub(super) fn random_numbers((seed, stream): (u64, u64)) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng
}

/// What `init_params` finds from random numbers of this seed and stream.
pub(super) fn find(options: &FitOptions, evaluator: &mut dyn Evaluator, seed: (u64, u64)) -> Result<Found> {
    options.find_start(evaluator, &mut random_numbers(seed))
}

impl FitOptions {
    /// A start by `init_params`.
    fn find_start(&self, evaluator: &mut dyn Evaluator, rng: &mut ChaCha8Rng) -> Result<Found> {
        let (k, n) = (self.n_components, evaluator.n_samples());
        if let Some(labels) = evaluator.labels().cloned() {
            return self.start_with_labels(evaluator, &labels, rng);
        }
        let wanted = match self.init_params {
            // Each sample counts for all components.
            InitParams::Random => RANDOM_SUBSET.max(4 * evaluator.n_features()),
            _ => SUBSET.max(k.saturating_mul(4)),
        };
        let wanted = match self.init_params {
            InitParams::KMeans | InitParams::KMeansPlusPlus if wanted < n => wanted / 2,
            _ => wanted.min(n),
        };
        let subset = subset(evaluator, k, wanted, rng)?;
        match self.init_params {
            InitParams::Random => self.random_start(&subset.rows.x, &subset.rows.weights, |_, _| true, rng),
            InitParams::RandomFromData => {
                let Rows { x, weights } = &subset.rows;
                let points = Points::with_gaps(x, weights);
                let mut centres = points.filled().select(Axis(0), &random_rows(weights, k, rng)?);
                points.settle_gaps(&mut centres);
                self.start_at_centres(evaluator, &points, centres, true)
            }
            InitParams::KMeans | InitParams::KMeansPlusPlus => {
                let whole = subset.share == 1.0;
                let points = Points::with_gaps(&subset.rows.x, &subset.rows.weights);
                let passes = passes(n, subset.indices.len(), k, evaluator.n_features());
                if whole || points.has_gaps() {
                    // By scores one cannot tell how far a sample with missing values is.
                    let (centres, converged) = self.seek(&points, passes, whole, rng);
                    return self.start_at_centres(evaluator, &points, centres, converged && whole);
                }
                // Far samples among the centres are what some data need (few distinct rows), and
                // what others do not bear (heavy tails).
                let passes = (passes / 2).max(1);
                let (first, _) = self.seek(&points, passes, false, rng);
                let rows = with_far_samples(evaluator, &points, &first, subset, wanted / 2, rng)?;
                let points = Points::with_gaps(&rows.x, &rows.weights);
                let (second, _) = self.seek(&points, passes, false, rng);
                let centres = self.likelier(&rows, &points, [first, second])?;
                self.start_at_centres(evaluator, &points, centres, self.init_params != InitParams::KMeans)
            }
        }
    }

    /// A start that heeds labels: a component of which samples are known begins at the mean of these,
    /// and others at centres among the samples that may belong to them.
    fn start_with_labels(&self, evaluator: &mut dyn Evaluator, labels: &Labels, rng: &mut ChaCha8Rng) -> Result<Found> {
        let (k, n, d) = (self.n_components, evaluator.n_samples(), evaluator.n_features());
        let sets = labels.sets();
        let mut indices = subset(evaluator, k, SUBSET.max(k.saturating_mul(4)).min(n), rng)?.indices;
        // Those of any set may be rare.
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
        // The smaller a set, the more it says. At last all samples, for components that none may belong to.
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
        self.start_at_centres(evaluator, &points, centres, self.init_params != InitParams::KMeans)
    }

    /// Centres among some samples or all of them, the `whole`, and whether they have settled.
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

    /// Of two sets of centres, that whose clusters make a mixture of variances under which some
    /// samples are likelier; the second one of equals.
    fn likelier(&self, rows: &Rows, points: &Points<f64>, sets: [Array2<f64>; 2]) -> Result<Array2<f64>> {
        let samples = Samples::from_f64(rows.x.view())?.with_weights(rows.weights.view())?;
        let mut data = CpuEvaluator::new(samples)?;
        let kind = match self.covariance_type {
            CovarianceType::Spherical => CovarianceType::Spherical,
            _ => CovarianceType::Diag,
        };
        let mut likelihood = |centres: &Array2<f64>| -> Result<f64> {
            let narrow = narrow_variance(points, centres).unwrap_or(1.0);
            let (statistics, assigner) = assign(&mut data, centres, narrow, kind)?;
            let mixture = statistics.update(&assigner, self.reg_covar, &Freeze::default())?.mixture;
            data.log_likelihood(&mixture)
        };
        // A set that makes no mixture is not taken. If neither does, the start reports why.
        let [first, second] = sets;
        let likelihoods = [&first, &second].map(|centres| likelihood(centres).unwrap_or(f64::NEG_INFINITY));
        Ok(if likelihoods[0] > likelihoods[1] { first } else { second })
    }

    /// A start from random responsibilities of some samples, each for the components that are `allowed`.
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
            // Not zero: the component may be the only one.
            if allowed(i, c) { random.max(f64::MIN_POSITIVE) } else { 0.0 }
        });
        for (mut r, w) in r.outer_iter_mut().zip(weights) {
            let factor = w / r.sum();
            r *= factor;
        }
        let statistics = Statistics::from_responsibilities(points.filled().view(), r.view(), self.covariance_type)?;
        // Each component is about as all samples are.
        let means = statistics.means().select(Axis(0), &[0]);
        Ok(Found { statistics, assigner: None, gaps: points.gaps(&means) })
    }

    /// A start at centres that were found among some samples, and are improved over all samples
    /// unless they `are_final`.
    fn start_at_centres(
        &self,
        evaluator: &mut dyn Evaluator,
        points: &Points<f64>,
        mut centres: Array2<f64>,
        are_final: bool,
    ) -> Result<Found> {
        // If all samples are equal, so are all components, and any width will do.
        let narrow = narrow_variance(points, &centres).unwrap_or(1.0);
        let mut last = None;
        if !are_final {
            // With these types an iteration of Lloyd gives what the start needs: the clusters
            // before the last, tiny move of the centres.
            let kind = match self.covariance_type {
                kind @ (CovarianceType::Diag | CovarianceType::Spherical) => kind,
                _ => CovarianceType::Spherical,
            };
            last = lloyd_over_all(evaluator, &mut centres, narrow, kind, LLOYD_TOL * points.mean_variance())?;
        }
        let (statistics, assigner) =
            match last.filter(|(_, assigner)| assigner.covariance_type() == self.covariance_type) {
                Some(last) => last,
                None => assign(evaluator, &centres, narrow, self.covariance_type)?,
            };
        let gaps = points.gaps(&centres).map(|gaps| gaps.beside(assigner.variance(0, 0)));
        Ok(Found { statistics, assigner: Some(assigner), gaps })
    }
}

/// `size` random rows, by their weights, which are positive and finite and at least as many.
fn random_rows(weights: &Array1<f64>, size: usize, rng: &mut ChaCha8Rng) -> Result<Vec<usize>> {
    let chosen = index::sample_weighted(rng, weights.len(), |i| weights[i], size);
    Ok(chosen.map_err(|_| Error::ZeroSampleWeights)?.into_vec())
}

/// The number of passes over `s` of `n` samples that FREE_WORK allows.
fn passes(n: usize, s: usize, k: usize, d: usize) -> usize {
    let work_per_pass = s.saturating_mul(k).saturating_mul(d).max(1);
    (FREE_WORK / work_per_pass).max(n / (2 * s))
}

/// Adds to the variances what the missing values contribute, for which the start has used the means
/// of their columns: each varies about as those do that are observed in the same column. With gaps
/// of one row, this row is that of all components.
fn with_gaps(mixture: Mixture, gaps: Option<Gaps>) -> Result<Mixture> {
    let Some(gaps) = gaps else { return Ok(mixture) };
    let added = gaps.variances();
    let (k, d) = mixture.means().dim();
    let of = |c: usize| added.row(c.min(added.nrows() - 1));
    let mut covariances = mixture.covariances().clone();
    match &mut covariances {
        Covariances::Full(v) => v.outer_iter_mut().enumerate().for_each(|(c, mut v)| v.diag_mut().add_assign(&of(c))),
        Covariances::Tied(v) => (0..k).for_each(|c| v.diag_mut().scaled_add(mixture.weights()[c], &of(c))),
        Covariances::Diag(v) => v.outer_iter_mut().enumerate().for_each(|(c, mut v)| v.add_assign(&of(c))),
        Covariances::Spherical(v) => v.iter_mut().enumerate().for_each(|(c, v)| *v += of(c).sum() / d as f64),
    }
    Mixture::new(mixture.weights().to_owned(), mixture.means().to_owned(), covariances)
}

/// The variance of the narrow components that assign samples to `centres`; `None` if all samples
/// are equal.
fn narrow_variance(points: &Points<f64>, centres: &Array2<f64>) -> Option<f64> {
    let d = centres.ncols() as f64;
    // All samples may be centres.
    let widths = [points.inertia(centres), points.mean_variance() * d];
    let width = widths.into_iter().map(|v| NARROW * v).find(|v| v.is_normal())?;
    // An E-step gives each missing value this variance, which must be narrow in its column's unit too.
    let least = points.gaps(centres).and_then(|gaps| gaps.least_variance());
    Some(least.map_or(width, |least| width.min(NARROW * d * least)))
}

/// Lloyd's iterations over all samples, on the backend, until the squared moves of the centres sum
/// to at most `tol`. Gives what `assign` gave in the last one.
fn lloyd_over_all(
    evaluator: &mut dyn Evaluator,
    centres: &mut Array2<f64>,
    narrow: f64,
    kind: CovarianceType,
    tol: f64,
) -> Result<Option<(Statistics, Mixture)>> {
    let mut last = None;
    for _ in 0..MAX_LLOYD {
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

/// Adds to a random subset up to `size` samples that are drawn, from all others, by their distance
/// to centres among the subset. The weights become those of all samples that each one stands for:
/// its own over the probability to be among them.
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
    // If these samples are equal, others may differ by any distance.
    let narrow = narrow_variance(points, &centres).unwrap_or_else(|| points.smallest_variance());
    let seed = rng.random();
    // One more than is kept: its key says how probable the others were.
    let (mut drawn, narrow) = with_centres(&centres, narrow, CovarianceType::Spherical, |centres| {
        let drawn = evaluator.draw(&Draw::new(centres, seed, size + 1))?;
        Ok((drawn, centres.variance(0, 0)))
    })?;
    let limit = if drawn.len() > size { drawn.pop().map_or(f64::INFINITY, |last| last.key) } else { f64::INFINITY };
    let probability = |far: f64| {
        // Not a number where far is infinite and the limit 0, because more samples are infinitely
        // far than are drawn.
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

/// Statistics with each sample at its nearest centre (shared, where two are as near), and the
/// mixture that does it.
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
        let assigner = Mixture::new(Array1::from_elem(k, 1.0 / k as f64), centres.clone(), covariances)?;
        match evaluate(&assigner) {
            // The components are too narrow for the backend's precision over samples this far away.
            // With wider ones, more samples are shared between centres.
            Err(Error::OutOfRange { .. } | Error::NonFiniteStatistic { .. } | Error::UnreachableSample { .. })
                if narrow < f64::MAX / 1e4 =>
            {
                narrow *= 1e4
            }
            result => return result,
        }
    }
}
