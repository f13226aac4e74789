//! The start of a fit.
//!
//! Seeding looks at a random subset of the samples on the host, where it costs next to nothing. What needs all
//! samples runs on the backend, as statistics under a mixture of equal, very narrow components at the centres:
//! there each sample belongs to its nearest centre, so one such pass is a Lloyd iteration, and the last one gives the
//! start in the covariance type of the fit. (scikit-learn takes the centres themselves with the covariance `reg_covar` for
//! k-means++ and random_from_data; its first iteration is then such an assignment.)
use super::kmeans::Points;
use super::params::{GaussianMixtureValidParams, InitParams};
use crate::{CovarianceType, Covariances, Error, Evaluator, Freeze, Mixture, Result, Rows, Statistics};
use ndarray::{Array1, Array2, Axis};
use rand::seq::index;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Lloyd iterations over all samples, at most. In such a pass most samples are far from every component in units of its width,
/// which makes it as expensive as two EM iterations.
const MAX_LLOYD: usize = 2;
/// Lloyd iterations over a subset before those, at most, and where the subset is all there is.
const SUBSET_LLOYD: (usize, usize) = (10, 100);
/// Multiply-adds on the host that may be spent on seeding, and on a subset's Lloyd iterations: as many as half a pass over
/// all samples takes, so that neither counts beside ten EM iterations; and some milliseconds in any case.
const FREE_WORK: usize = 1 << 22;
/// How many samples a subset has: 32 for each component within these limits, and at least 4 for each.
const SUBSET: (usize, usize) = (1024, 4096);
/// Lloyd's iterations end when the centres move by less than this times the data's mean variance, squared and summed, as in
/// scikit-learn's k-means.
const LLOYD_TOL: f64 = 1e-4;
/// Variance of the narrow components over the mean squared distance to the nearest centre: between two centres,
/// only samples whose squared distances differ by less than about 1e-3 of that are shared.
const NARROW: f64 = 5e-5;

impl GaussianMixtureValidParams {
    /// The start of a run, where none is given.
    pub(super) fn initialise(&self, evaluator: &mut dyn Evaluator, run: usize) -> Result<Mixture> {
        let params = self;
        let found = match (&params.weights_init, &params.means_init, &params.precisions_init) {
            (Some(weights), Some(means), Some(precisions)) => {
                return Mixture::from_precisions(weights.clone(), means.clone(), precisions.clone());
            }
            _ => {
                let mut rng = ChaCha8Rng::seed_from_u64(params.random_state);
                rng.set_stream(run as u64);
                self.find_start(evaluator, &mut rng)?
            }
        };
        let weights = params.weights_init.clone().unwrap_or_else(|| found.weights().to_owned());
        let means = params.means_init.clone().unwrap_or_else(|| found.means().to_owned());
        match &params.precisions_init {
            Some(precisions) => Mixture::from_precisions(weights, means, precisions.clone()),
            None => Mixture::from_parts(weights, means, found.covariances().clone(), found.factor().cloned()),
        }
    }

    fn find_start(&self, evaluator: &mut dyn Evaluator, rng: &mut ChaCha8Rng) -> Result<Mixture> {
        let params = self;
        let (k, t, n) = (params.n_components, params.covariance_type, evaluator.n_samples());
        let wanted = match params.init_params {
            // Each sample counts for all components.
            InitParams::Random => SUBSET.0.max(4 * evaluator.n_features()),
            _ => k.saturating_mul(32).clamp(SUBSET.0, SUBSET.1).max(k.saturating_mul(4)),
        };
        let Rows { x, weights } = subset(evaluator, k, wanted.min(n), rng)?;
        let (s, d) = x.dim();
        // The passes over the subset that FREE_WORK gives.
        let per_pass = s.saturating_mul(k).saturating_mul(d).max(1);
        let passes = (FREE_WORK / per_pass).max(n / (2 * s));
        if params.init_params == InitParams::Random {
            let mut r = Array2::from_shape_simple_fn((s, k), || rng.random::<f64>());
            for (mut r, w) in r.outer_iter_mut().zip(&weights) {
                let factor = w / r.sum();
                r *= factor;
            }
            return Statistics::from_responsibilities(x.view(), r.view(), t)?.to_mixture(params.reg_covar);
        }
        let points = Points::new(&x, &weights);
        let mut centres = match params.init_params {
            InitParams::KMeans | InitParams::KMeansPlusPlus => points.plus_plus(k, passes, rng),
            _ => {
                // `subset` saw to K samples with weight, and weights were checked finite and not negative.
                let chosen = index::sample_weighted(rng, s, |i| weights[i], k).map_err(|_| Error::ZeroSampleWeights)?;
                x.select(Axis(0), &chosen.into_vec())
            }
        };
        let variance = points.mean_variance();
        let mut settled = params.init_params != InitParams::KMeans;
        if !settled {
            let rounds = passes.min(if s == n { SUBSET_LLOYD.1 } else { SUBSET_LLOYD.0 });
            settled = points.lloyd(&mut centres, rounds, LLOYD_TOL * variance) && s == n;
        }
        let mut narrow = NARROW * points.inertia(&centres);
        if !(narrow.is_normal() && narrow > 0.0) {
            // Every sample of the subset is a centre.
            narrow = NARROW * variance * d as f64;
        }
        if !(narrow.is_normal() && narrow > 0.0) {
            // All samples are equal; then so are all components, whatever their width.
            narrow = 1.0;
        }
        if !settled {
            for _ in 0..MAX_LLOYD {
                let (s, _) = assign(evaluator, &centres, narrow, CovarianceType::Spherical)?;
                let moved: f64 = (s.means().to_owned() - &centres).iter().map(|v| v * v).sum();
                centres.assign(&s.means());
                if moved <= LLOYD_TOL * variance {
                    break;
                }
            }
        }
        let (statistics, assigner) = assign(evaluator, &centres, narrow, t)?;
        Ok(statistics.update(&assigner, params.reg_covar, Freeze::default())?.mixture)
    }
}

/// Statistics with each sample at its nearest centre (shared, where two are as near), and the mixture that does it.
fn assign(
    evaluator: &mut dyn Evaluator,
    centres: &Array2<f64>,
    mut narrow: f64,
    covariance_type: CovarianceType,
) -> Result<(Statistics, Mixture)> {
    let (k, d) = centres.dim();
    loop {
        let covariances = Covariances::isotropic(covariance_type, k, d, narrow);
        let assigner = Mixture::new(Array1::from_elem(k, 1.0 / k as f64), centres.clone(), covariances)?;
        match evaluator.statistics(&assigner) {
            // Too narrow for the backend's precision over samples this far: a wider one shares more of them.
            Err(Error::OutOfRange { .. } | Error::NonFiniteStatistic { .. }) if narrow < f64::MAX / 1e4 => {
                narrow *= 1e4
            }
            statistics => return Ok((statistics?, assigner)),
        }
    }
}

/// `size` random samples, more where too few of them have weight; those without are left out.
fn subset(evaluator: &mut dyn Evaluator, k: usize, mut size: usize, rng: &mut ChaCha8Rng) -> Result<Rows> {
    let n = evaluator.n_samples();
    loop {
        let mut indices = index::sample(rng, n, size).into_vec();
        indices.sort_unstable();
        let rows = evaluator.rows(&indices)?;
        let counted: Vec<usize> = (0..size).filter(|&i| rows.weights[i] > 0.0).collect();
        if counted.len() == size {
            return Ok(rows);
        }
        if size == n && counted.len() < k {
            return Err(Error::TooFewSamples { n_samples: counted.len(), n_components: k });
        }
        if size == n || counted.len() >= 4 * k {
            return Ok(Rows { x: rows.x.select(Axis(0), &counted), weights: rows.weights.select(Axis(0), &counted) });
        }
        size = size.saturating_mul(4).min(n);
    }
}
