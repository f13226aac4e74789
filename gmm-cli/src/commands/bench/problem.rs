//! Random data with mixtures to evaluate over it.
use anyhow::bail;
use gaussmix::memory;
use gaussmix::model::{CovarianceType, Covariances, Mixture};
use ndarray::{Array1, Array2, Array3};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// How many different parameter sets take turns, so that no evaluation can reuse anything from the
/// one before.
pub const PARAMETER_SETS: usize = 16;
const SEED: u64 = 2018;
/// Of any two features of a component with a matrix.
const CORRELATION: f64 = 0.3;

/// Random data, and parameter sets near those that the data was drawn from.
pub struct Problem {
    pub data: Array2<f32>,
    pub mixtures: Vec<Mixture>,
}

impl Problem {
    /// Of N, K and D.
    pub fn random([n, k, d]: [usize; 3], covariance_type: CovarianceType) -> anyhow::Result<Self> {
        let remedy = "use fewer samples, components or features";
        let per_set = [&[PARAMETER_SETS], &covariance_type.shape(k, d)[..]].concat();
        let device_copies = 3;
        memory::check("the samples and their copies", &[n, d], device_copies * size_of::<f32>(), remedy)?;
        memory::check("the parameter sets with their factors", &per_set, 3 * size_of::<f64>(), remedy)?;
        memory::check("the means of the parameter sets", &[PARAMETER_SETS, k, d], 3 * size_of::<f64>(), remedy)?;
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        let means = Array2::from_shape_simple_fn((k, d), || 2.0 * rng.sample::<f64, _>(StandardNormal));
        let variances = Array2::from_shape_simple_fn((k, d), || rng.random_range(0.5..2.0));
        let weights = Array1::from_shape_simple_fn(k, || rng.random_range(0.5..1.5));
        let weights = &weights / weights.sum();
        // Which of the variances a component has along a feature.
        let variance = |component: usize, j: usize| match covariance_type {
            CovarianceType::Tied => variances[[0, j]],
            CovarianceType::Spherical => variances[[component, 0]],
            _ => variances[[component, j]],
        };
        let correlation = match covariance_type {
            CovarianceType::Full | CovarianceType::Tied => CORRELATION,
            _ => 0.0,
        };
        let covariance = |component: usize, i: usize, j: usize| {
            let deviations = f64::sqrt(variance(component, i) * variance(component, j));
            if i == j { deviations } else { correlation * deviations }
        };
        let covariances = match covariance_type {
            CovarianceType::Full => {
                Covariances::Full(Array3::from_shape_fn((k, d, d), |(c, i, j)| covariance(c, i, j)))
            }
            CovarianceType::Tied => Covariances::Tied(Array2::from_shape_fn((d, d), |(i, j)| covariance(0, i, j))),
            CovarianceType::Spherical => Covariances::Spherical(variances.column(0).to_owned()),
            CovarianceType::Diag => Covariances::Diag(variances.clone()),
            other => bail!("there are no random mixtures of type {}", other.name()),
        };
        let mut values = Vec::with_capacity(n * d);
        for _ in 0..n {
            let component = rng.random_range(0..k);
            // The part that all features of the sample share.
            let common: f64 = if correlation > 0.0 { rng.sample(StandardNormal) } else { 0.0 };
            values.extend((0..d).map(|j| {
                let own: f64 = rng.sample(StandardNormal);
                let z = f64::sqrt(correlation) * common + f64::sqrt(1.0 - correlation) * own;
                (means[[component, j]] + z * f64::sqrt(variance(component, j))) as f32
            }));
        }
        let mixtures =
            (0..PARAMETER_SETS).map(|i| Mixture::new(weights.clone(), &means + 1e-3 * i as f64, covariances.clone()));
        Ok(Self { data: Array2::from_shape_vec((n, d), values)?, mixtures: mixtures.collect::<Result<_, _>>()? })
    }
}
