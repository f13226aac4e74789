//! Variational inference in float32, whose E-step has weights that do not sum to one.
use super::{normal, samples};
use crate::float32::Float32;
use crate::options::CudaOptions;
use crate::source::Source;
use gmm_core::backends::reference::ReferenceEvaluator;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::model::covariances::CovarianceType;
use gmm_core::statistics::Statistics;
use gmm_core::variational::prior::WeightConcentrationPriorType;
use gmm_host::BayesianGaussianMixtureParams;
use ndarray::Array2;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

#[test]
fn fits_agree() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut x = normal(&mut rng, 70, 2);
    x.outer_iter_mut().step_by(2).for_each(|mut row| row += 6.0);
    let r = Array2::from_shape_fn((70, 3), |(i, c)| if i % 2 == c { 0.8 } else { 0.1 });
    let samples = samples(&x, None);
    for t in CovarianceType::ALL {
        for kind in WeightConcentrationPriorType::ALL {
            let statistics = Statistics::from_responsibilities(x.mapv(f64::from).view(), r.view(), t).unwrap();
            let params = BayesianGaussianMixtureParams::new(3).covariance_type(t).max_iter(3).tol(0.0);
            let params = params.weight_concentration_prior_type(kind).start_statistics(statistics);
            let mut reference = ReferenceEvaluator::new(samples.clone());
            let expected = params.fit(&mut reference as &mut dyn Evaluator).unwrap();
            let mut emulated = Float32::new(Source::Host(samples.clone(), 0), &CudaOptions::default()).unwrap();
            let found = params.fit(&mut emulated as &mut dyn Evaluator).unwrap();
            // Responsibilities are off by a few units of 2⁻²⁴; three iterations hardly enlarge this.
            let near = |got: f64, truth: f64| (got - truth).abs() <= 1e-4 * truth.abs().max(1.0);
            let numbers = found.mixture.means().into_iter().zip(expected.mixture.means());
            assert!(numbers.into_iter().all(|(a, b)| near(*a, *b)), "{t} {kind}");
            let (found_weights, weights) = (found.mixture.weights(), expected.mixture.weights());
            assert!(found_weights.iter().zip(&weights).all(|(a, b)| near(*a, *b)), "{t} {kind}");
            assert!(near(found.elbo(), expected.elbo()), "{t} {kind}: {} for {}", found.elbo(), expected.elbo());
        }
    }
}
