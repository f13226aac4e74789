//! Random data, and mixtures to evaluate over it.
use gaussmix::memory;
use gaussmix::model::{CovarianceType, Covariances, Mixture};
use ndarray::{Array1, Array2, Array3};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use rayon::prelude::*;

/// The number of parameter sets that take turns, so that an evaluation cannot reuse results of the one before.
pub const PARAMETER_SETS: usize = 16;
const SEED: u64 = 2018;
/// The correlation of any two features of a component with a matrix.
const CORRELATION: f64 = 0.3;
const BLOCK: usize = 1 << 20;

/// Random data, and parameter sets near the one the data was drawn from.
pub struct Problem {
    /// The samples (N, D).
    pub data: Array2<f32>,
    /// `PARAMETER_SETS` mixtures.
    pub mixtures: Vec<Mixture>,
}

impl Problem {
    /// Draws a problem of N samples, K components and D features. Errors: if there is no memory for it.
    pub fn random([n, k, d]: [usize; 3], covariance_type: CovarianceType) -> anyhow::Result<Self> {
        let remedy = "use fewer samples, components or features";
        let copies = 3;
        memory::check("the samples and their copies", &[n, d], copies * size_of::<f32>(), remedy)?;
        memory::check("the means of the parameter sets", &[PARAMETER_SETS, k, d], 3 * size_of::<f64>(), remedy)?;
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        let means = Array2::from_shape_simple_fn((k, d), || 2.0 * rng.sample::<f64, _>(StandardNormal));
        let variances = Array2::from_shape_simple_fn((k, d), || rng.random_range(0.5..2.0));
        let weights = Array1::from_shape_simple_fn(k, || rng.random_range(0.5..1.5));
        let covariance = |c: usize, i: usize, j: usize| {
            let deviations = f64::sqrt(variances[[c, i]] * variances[[c, j]]);
            if i == j { deviations } else { CORRELATION * deviations }
        };
        let mixtures = near_each_other(PARAMETER_SETS, &weights, &means, covariance_type, covariance)?;
        Ok(Self { data: mixtures[0].sample(n, SEED)?.0.mapv(|v| v as f32), mixtures })
    }
}

/// Returns mixtures of K components over D features, near each other. Their components are as wide as [`numbers`] and
/// near their centre, so that every sample belongs to several components. Errors: if there is no memory for them.
pub fn mixtures(count: usize, [k, d]: [usize; 2], covariance_type: CovarianceType) -> anyhow::Result<Vec<Mixture>> {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    memory::check("the means", &[k, d], size_of::<f64>(), "use a smaller K or D")?;
    let weights = Array1::from_shape_simple_fn(k, || rng.random_range(0.5..1.5));
    let means = Array2::from_shape_simple_fn((k, d), || rng.sample::<f64, _>(StandardNormal) / (d as f64).sqrt());
    let matrices = matches!(covariance_type, CovarianceType::Full | CovarianceType::Tied);
    near_each_other(count, &weights, &means, covariance_type, |_, i, j| match (matrices, i == j) {
        (true, true) => 1.2,
        (true, false) => 0.2,
        (false, _) => rng.random_range(0.9..1.1),
    })
}

/// Returns mixtures whose means differ slightly; `covariance(c, i, j)` is that of features i and j in component c.
fn near_each_other(
    count: usize,
    weights: &Array1<f64>,
    means: &Array2<f64>,
    covariance_type: CovarianceType,
    mut covariance: impl FnMut(usize, usize, usize) -> f64,
) -> anyhow::Result<Vec<Mixture>> {
    let (k, d) = means.dim();
    // The covariances, their factors, and the memory of the statistics and an M-step.
    let shape = [&[4 * count], &covariance_type.shape(k, d)[..]].concat();
    memory::check("the covariances", &shape, size_of::<f64>(), "use a smaller K or D")?;
    let covariances = match covariance_type {
        CovarianceType::Full => Covariances::Full(Array3::from_shape_fn((k, d, d), |(c, i, j)| covariance(c, i, j))),
        CovarianceType::Tied => Covariances::Tied(Array2::from_shape_fn((d, d), |(i, j)| covariance(0, i, j))),
        CovarianceType::Diag => Covariances::Diag(Array2::from_shape_fn((k, d), |(c, j)| covariance(c, j, j))),
        CovarianceType::Spherical => Covariances::Spherical(Array1::from_shape_fn(k, |c| covariance(c, 0, 0))),
    };
    let weights = weights / weights.sum();
    let of = |i: usize| Mixture::new(weights.clone(), means + 1e-3 * i as f64, covariances.clone());
    Ok((0..count).map(of).collect::<Result<_, _>>()?)
}

/// Returns `count` independent, normal numbers, of which the share `missing` is NaN.
pub fn numbers(count: usize, missing: f64) -> Vec<f32> {
    let mut numbers = vec![0.0; count];
    numbers.par_chunks_mut(BLOCK).enumerate().for_each(|(i, block)| {
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        rng.set_stream(i as u64);
        block.fill_with(|| match missing > 0.0 && rng.random_bool(missing) {
            true => f32::NAN,
            false => rng.sample(StandardNormal),
        });
    });
    numbers
}
