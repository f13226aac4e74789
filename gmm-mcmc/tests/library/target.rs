//! Targets other than the posterior of a mixture, and targets that make the steps of Metropolis themselves.
use crate::common::{go_on, run, scalar};
use gmm_host::{
    CovarianceType, DataFacts, Description, Evaluator, MetropolisSteps, MetropolisTarget, Mixture, ReferenceEvaluator,
    Rows, Samples, Sampling, Statistics,
};
use gmm_mcmc::{
    Chains, DataSummary, Posterior, PosteriorModel, Prior, Result, Sampler, Settings, Start, Target, diagnostics,
};
use ndarray::{Array1, Array2};

/// A normal distribution with standard deviations 1, 2, …, 10 in turn, and a correlation of 0.8 between neighbours
/// within blocks of ten.
struct Normal {
    dim: usize,
    /// The number of steps requested for a segment.
    segment: usize,
    segments: usize,
}

impl Target for Normal {
    fn dim(&self) -> usize {
        self.dim
    }
    fn log_density(&mut self, theta: &[f64]) -> Result<f64> {
        let mut sum = 0.0;
        for block in theta.chunks(10) {
            let mut before = 0.0;
            for (j, x) in block.iter().enumerate() {
                let z = x / (j + 1) as f64;
                // Given the z before it, z is normal with mean 0.8 times that and variance 1 − 0.64.
                sum -= if j == 0 { 0.5 * z * z } else { 0.5 * (z - 0.8 * before).powi(2) / 0.36 };
                before = z;
            }
        }
        Ok(sum)
    }
    fn log_density_gradient(&mut self, _: &[f64], _: &mut [f64]) -> Result<f64> {
        unimplemented!("Metropolis needs no gradient")
    }
    fn blocks(&self) -> Vec<Vec<usize>> {
        (0..self.dim).step_by(10).map(|i| (i..(i + 10).min(self.dim)).collect()).collect()
    }
    fn segment_steps(&self, chains: usize) -> usize {
        assert_eq!(chains, 2);
        self.segment
    }
    fn metropolis(&mut self, point: &[f64], log_density: f64, _: &mut dyn MetropolisSteps) -> Result<bool> {
        self.segments += 1;
        assert_eq!((point.len(), log_density), (self.dim, self.log_density(point)?));
        Ok(false)
    }
}

fn sample(target: &mut Normal, sampler: Sampler, draws: usize, thin: usize) -> Chains {
    let settings = Settings::new(sampler).chains(2).warmup(20_000).draws(draws).thin(thin).seed(3);
    let start = Start::new(vec![vec![0.1; target.dim]; 2], vec![1.0; target.dim]);
    run(settings, start, target)
}

#[test]
fn metropolis_adapts_to_scales_and_correlations() {
    // With 30 coordinates all correlations are learned, with 100 those within each block of ten. By component, the
    // blocks are also updated in turn.
    for (dim, sampler, thin) in
        [(30, Sampler::METROPOLIS, 40), (100, Sampler::METROPOLIS, 120), (100, Sampler::METROPOLIS_BY_COMPONENT, 12)]
    {
        let mut target = Normal { dim, segment: 1, segments: 0 };
        let run = sample(&mut target, sampler, 1000, thin);
        let goal = 0.234 + 0.206 / if sampler == Sampler::METROPOLIS { dim as f64 } else { 10.0 };
        // Warm-up aims for this acceptance. The scale still has the noise of its last adaptations.
        assert!((run.acceptance() - goal).abs() < 0.06, "{dim}: {} {goal}", run.acceptance());
        for i in [0, 9, 10, dim - 1] {
            let chains = scalar(&run, "theta", i);
            let squares: Vec<Vec<f64>> = chains.iter().map(|c| c.iter().map(|x| x * x).collect()).collect();
            let ess = diagnostics::ess_mean(&squares.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let all = squares.concat();
            let variance = all.iter().sum::<f64>() / all.len() as f64;
            let expected = ((i % 10 + 1) as f64).powi(2);
            // A variance estimated from `ess` independent draws has the relative error √(2/ess); four times that is
            // allowed.
            assert!(
                (variance / expected - 1.0).abs() < 4.0 * (2.0 / ess).sqrt(),
                "{dim} {i}: {variance} {expected} {ess}"
            );
            // With uncorrelated proposals, or with a wrong scale, this many steps give only a handful of independent
            // draws.
            assert!(ess > 100.0, "{dim} {i}: {ess}");
        }
    }
}

#[test]
fn segments_change_nothing_but_when_the_callback_comes() {
    let draws = |segment| {
        let mut target = Normal { dim: 12, segment, segments: 0 };
        let run = sample(&mut target, Sampler::METROPOLIS, 100, 3);
        (run.draws("theta").unwrap(), run.draws("accept_stat__").unwrap(), target.segments)
    };
    // 22 steps have room for seven draws of three steps each.
    let (one, seven) = (draws(1), draws(22));
    assert_eq!((&one.0, &one.1), (&seven.0, &seven.1));
    assert_eq!((one.2, seven.2), (100, 15));

    // A run made longer in the middle of a segment has the draws of a whole run. Only its one segment is split in two.
    let mut target = Normal { dim: 12, segment: 22, segments: 0 };
    let mut run = sample(&mut target, Sampler::METROPOLIS, 50, 3);
    run.set_draws(100).unwrap();
    run.advance(&mut target, go_on).unwrap();
    assert_eq!(run.draws("theta").unwrap(), seven.0);
    assert_eq!(target.segments, 16);
}

/// An evaluator that makes Metropolis steps itself, with the densities of another posterior over the same data.
struct MetropolisEvaluator<'a> {
    inner: ReferenceEvaluator,
    model: &'a PosteriorModel,
    /// The number of steps it requests at a time.
    portion: usize,
    calls: usize,
}

impl Evaluator for MetropolisEvaluator<'_> {
    fn data(&self) -> DataFacts<'_> {
        self.inner.data()
    }
    fn describe(&self) -> Description {
        self.inner.describe()
    }
    fn log_likelihood(&mut self, _: &Mixture) -> gmm_host::Result<f64> {
        unreachable!("all densities come from Metropolis steps")
    }
    fn score_samples(&mut self, m: &Mixture) -> gmm_host::Result<Array1<f64>> {
        self.inner.score_samples(m)
    }
    fn statistics(&mut self, m: &Mixture) -> gmm_host::Result<Statistics> {
        self.inner.statistics(m)
    }
    fn rows(&mut self, rows: &[usize]) -> gmm_host::Result<Rows> {
        self.inner.rows(rows)
    }
    fn sampling(&mut self) -> Option<&mut dyn Sampling> {
        Some(self)
    }
}

impl Sampling for MetropolisEvaluator<'_> {
    fn metropolis(
        &mut self,
        target: &MetropolisTarget,
        point: &[f64],
        mut log_density: f64,
        steps: &mut dyn MetropolisSteps,
    ) -> gmm_host::Result<bool> {
        assert_eq!(Some(target), self.model.metropolis_target().as_ref());
        self.calls += 1;
        let (dim, width) = (target.dim(), target.step_width());
        let mut posterior = Posterior::new(self.model, &mut self.inner).unwrap();
        let mut point = point.to_vec();
        // Steps are recorded one portion later than they are made, as on a device without synchronisation.
        let mut before: Option<(Vec<f64>, Vec<f64>)> = None;
        loop {
            let mut rows = vec![f64::NAN; self.portion * width];
            let count = steps.propose(&mut rows);
            rows.truncate(count * width);
            let mut densities = Vec::new();
            for row in rows.chunks(width) {
                let proposal: Vec<f64> = point.iter().zip(row).map(|(x, z)| x + z).collect();
                let value = posterior.log_density(&proposal).unwrap();
                if row[dim] < value - log_density {
                    (point, log_density) = (proposal, value);
                }
                densities.push(value);
            }
            if let Some((rows, densities)) = before.replace((rows, densities)) {
                steps.record(&rows, &densities);
            }
            if count == 0 {
                return Ok(true);
            }
        }
    }
}

#[test]
fn draws_do_not_depend_on_who_makes_the_steps() {
    let x = Array2::from_shape_fn((30, 2), |(i, j)| (i % 2) as f64 * 4.0 + (i as f64 * 1.7 + j as f64).sin());
    let samples = Samples::from_f64(x.view()).unwrap();
    for (covariance_type, by_component, portion) in
        [(CovarianceType::Diag, false, 5), (CovarianceType::Diag, true, 1000), (CovarianceType::Spherical, true, 1)]
    {
        let model =
            PosteriorModel::new(2, covariance_type, &Prior::default(), None, &DataSummary::new(&samples)).unwrap();
        let sampler = if by_component { Sampler::METROPOLIS_BY_COMPONENT } else { Sampler::METROPOLIS };
        let settings = Settings::new(sampler).chains(3).warmup(60).draws(50).thin(3).seed(11);
        let mut reference = ReferenceEvaluator::new(samples.clone());
        let mut posterior = Posterior::new(&model, &mut reference).unwrap();
        let expected = crate::common::run_from_prior(settings.clone(), &mut posterior);
        let evaluations = posterior.evaluations();

        let mut own =
            MetropolisEvaluator { inner: ReferenceEvaluator::new(samples.clone()), model: &model, portion, calls: 0 };
        let mut posterior = Posterior::new(&model, &mut own).unwrap();
        let run = crate::common::run_from_prior(settings, &mut posterior);
        for name in ["means", "lp__", "accept_stat__"] {
            assert_eq!(run.draws(name), expected.draws(name), "{covariance_type} {by_component} {name}");
        }
        assert_eq!(run.acceptance(), expected.acceptance());
        // Only the evaluator's Metropolis steps evaluate a point of density 0.
        assert!((evaluations..=evaluations + 500).contains(&posterior.evaluations()));
        // For each of three chains: its start, each step of its warm-up in each block, and one segment of draws.
        let blocks = if by_component { 3 } else { 1 };
        assert_eq!(own.calls, 3 * (1 + 60 * blocks + 1));
    }
}
