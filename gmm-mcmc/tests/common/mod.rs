//! Functions shared by several tests and the benchmark.
#![allow(dead_code)]
use gmm_host::{DataFacts, Description, Evaluator, Mixture, Rows, Statistics};
use gmm_mcmc::{Chains, Posterior, Progress, Settings, Start, Target, diagnostics};
use ndarray::{Array1, Array2};
use std::ops::ControlFlow;

/// A likelihood that is 1 everywhere, so that the posterior is the prior.
pub struct Nothing {
    pub n: usize,
    pub d: usize,
}

impl Evaluator for Nothing {
    fn data(&self) -> DataFacts<'_> {
        DataFacts::new(self.n, self.d)
    }
    fn describe(&self) -> Description {
        Description::new("none", "none")
    }
    fn log_likelihood(&mut self, _: &Mixture) -> gmm_host::Result<f64> {
        Ok(0.0)
    }
    fn score_samples(&mut self, _: &Mixture) -> gmm_host::Result<Array1<f64>> {
        Ok(Array1::zeros(self.n))
    }
    fn statistics(&mut self, m: &Mixture) -> gmm_host::Result<Statistics> {
        Ok(Statistics::empty(m.covariance_type(), m.n_components(), m.n_features()))
    }
    fn rows(&mut self, rows: &[usize]) -> gmm_host::Result<Rows> {
        Ok(Rows::new(Array2::zeros((rows.len(), self.d)), Array1::ones(rows.len())))
    }
}

pub fn run(settings: Settings, start: Start, target: &mut dyn Target) -> Chains {
    let mut run = Chains::new(settings, start, target).unwrap();
    run.advance(target, go_on).unwrap();
    assert!(run.finished());
    run
}

pub fn go_on(_: &Progress<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

pub fn run_from_prior(settings: Settings, posterior: &mut Posterior<'_>) -> Chains {
    let start = Start::from_prior(posterior.model(), &settings).unwrap();
    run(settings, start, posterior)
}

/// Returns the draws of one scalar: number `index` (row-major) of a variable, chain by chain.
pub fn scalar(run: &Chains, name: &str, index: usize) -> Vec<Vec<f64>> {
    let draws = run.draws(name).unwrap();
    let (chains, n) = (draws.shape()[0], draws.shape()[1]);
    let flat: Vec<f64> = draws.iter().copied().collect();
    let size = flat.len() / (chains * n);
    flat.chunks(n * size).map(|c| c.chunks(size).map(|row| row[index]).collect()).collect()
}

/// Returns the mean of the draws of a scalar and its standard error.
pub fn estimate(chains: &[Vec<f64>]) -> (f64, f64) {
    let chains: Vec<&[f64]> = chains.iter().map(Vec::as_slice).collect();
    let all = chains.concat();
    let n = all.len() as f64;
    let mean = all.iter().sum::<f64>() / n;
    let variance = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, (variance / diagnostics::ess_mean(&chains)).sqrt())
}
