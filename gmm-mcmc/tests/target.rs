//! Targets of one's own: a normal distribution in many dimensions, and the seam for targets that run segments themselves.
mod common;
use common::{go_on, run, scalar};
use gmm_mcmc::{Result, Run, Sampler, Settings, Start, Target, Walk, diagnostics};

/// Normal with standard deviations 1, 2, …, 10 in turn, and a correlation of 0.8 between neighbours within blocks of ten.
struct Normal {
    dim: usize,
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
                // An autoregressive chain: z given the last is normal with mean 0.8 z₋ and variance 1 − 0.64.
                sum -= if j == 0 { 0.5 * z * z } else { 0.5 * (z - 0.8 * before).powi(2) / 0.36 };
                before = z;
            }
        }
        Ok(sum)
    }
    fn log_density_gradient(&mut self, _: &[f64], _: &mut [f64]) -> Result<f64> {
        unimplemented!("Metropolis needs none")
    }
    fn blocks(&self) -> Vec<Vec<usize>> {
        (0..self.dim).step_by(10).map(|i| (i..(i + 10).min(self.dim)).collect()).collect()
    }
    fn segment_draws(&self) -> usize {
        self.segment
    }
    fn metropolis(&mut self, walk: &mut Walk<'_>) -> Result<()> {
        self.segments += 1;
        assert!(walk.draws <= self.segment && walk.chains[0].point.len() == self.dim);
        walk.run(self)
    }
}

fn sample(target: &mut Normal, sampler: Sampler, draws: usize, thin: usize) -> Run {
    let settings = Settings { sampler, chains: 2, warmup: 20_000, draws, thin, seed: 3 };
    let start = Start { points: vec![vec![0.1; target.dim]; 2], scale: vec![1.0; target.dim] };
    run(settings, start, target)
}

#[test]
fn metropolis_adapts_to_scales_and_correlations() {
    // 30 coordinates have one dense covariance, 100 one for each block of ten, and by component each block its own.
    for (dim, sampler, thin) in [
        (30, Sampler::METROPOLIS, 40),
        (100, Sampler::METROPOLIS, 120),
        (100, Sampler::Metropolis { by_component: true }, 12),
    ] {
        let mut target = Normal { dim, segment: 1, segments: 0 };
        let run = sample(&mut target, sampler, 1000, thin);
        let goal = 0.234 + 0.206 / if sampler == Sampler::METROPOLIS { dim as f64 } else { 10.0 };
        // The acceptance that warm-up aims for, up to the noise of its last window.
        assert!((run.acceptance() - goal).abs() < 0.06, "{dim}: {} {goal}", run.acceptance());
        for i in [0, 9, 10, dim - 1] {
            let chains = scalar(&run, "theta", i);
            let squares: Vec<Vec<f64>> = chains.iter().map(|c| c.iter().map(|x| x * x).collect()).collect();
            let ess = diagnostics::ess_mean(&squares.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let all = squares.concat();
            let variance = all.iter().sum::<f64>() / all.len() as f64;
            let expected = ((i % 10 + 1) as f64).powi(2);
            // A variance estimated from so many independent draws errs by √(2/ess) relative; four of that.
            assert!(
                (variance / expected - 1.0).abs() < 4.0 * (2.0 / ess).sqrt(),
                "{dim} {i}: {variance} {expected} {ess}"
            );
            // Without correlations in the proposal (or with a wrong scale) this many steps give a handful.
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
    let (one, seven) = (draws(1), draws(7));
    assert_eq!((&one.0, &one.1), (&seven.0, &seven.1));
    assert_eq!((one.2, seven.2), (100, 15));

    // Resumed off a segment's end (a run made longer), the segments are those of the whole run.
    let mut target = Normal { dim: 12, segment: 7, segments: 0 };
    let mut run = sample(&mut target, Sampler::METROPOLIS, 50, 3);
    run.set_draws(100).unwrap();
    run.advance(&mut target, go_on).unwrap();
    assert_eq!(run.draws("theta").unwrap(), seven.0);
    assert_eq!(target.segments, 16);
}
