//! Convergence diagnostics: rank-normalised split R-hat, bulk and tail effective sample size
//! (Vehtari, Gelman, Simpson, Carpenter and Bürkner 2021), as ArviZ and Stan compute them.
//!
//! All functions take the draws of one quantity, chain by chain, with the same number of draws in each chain. They
//! return NaN for fewer than four draws, or if a draw is not finite.
use rustfft::FftPlanner;
use rustfft::num_complex::Complex;
use statrs::distribution::{ContinuousCDF, Normal};

/// Returns the rank-normalised split R-hat: the larger of two, of the draws and of their distances from the median. NaN
/// if all draws are equal.
pub fn r_hat(chains: &[&[f64]]) -> f64 {
    let Some(split) = split(chains) else { return f64::NAN };
    let mut all: Vec<f64> = split.concat();
    all.sort_by(f64::total_cmp);
    let median = quantile(&all, 0.5);
    let folded: Vec<Vec<f64>> = split.iter().map(|c| c.iter().map(|x| (x - median).abs()).collect()).collect();
    let (bulk, tail) = (split_r_hat(&rank_normalised(&split)), split_r_hat(&rank_normalised(&folded)));
    if bulk.is_nan() || tail.is_nan() { f64::NAN } else { bulk.max(tail) }
}

/// Returns the effective sample size for the bulk of the distribution: that of the rank-normalised draws.
pub fn ess_bulk(chains: &[&[f64]]) -> f64 {
    split(chains).map_or(f64::NAN, |s| ess(&rank_normalised(&s)))
}

/// Returns the effective sample size for the tails: the smaller of those for the 5% and the 95% quantile.
pub fn ess_tail(chains: &[&[f64]]) -> f64 {
    let Some(split) = split(chains) else { return f64::NAN };
    let mut all: Vec<f64> = chains.concat();
    all.sort_by(f64::total_cmp);
    let below = |p: f64| {
        let q = quantile(&all, p);
        ess(&split.iter().map(|c| c.iter().map(|&x| f64::from(u8::from(x <= q))).collect()).collect::<Vec<_>>())
    };
    below(0.05).min(below(0.95))
}

/// Returns the effective sample size for the mean. The mean's Monte Carlo standard error is the standard deviation over
/// its square root.
pub fn ess_mean(chains: &[&[f64]]) -> f64 {
    split(chains).map_or(f64::NAN, |s| ess(&s))
}

/// Returns a quantile of sorted values, interpolated linearly (R's type 7, NumPy's default); NaN without values.
pub fn quantile(sorted: &[f64], p: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let position = p * last as f64;
    let (low, fraction) = (position.floor() as usize, position.fract());
    sorted[low] + fraction * (sorted[(low + 1).min(last)] - sorted[low])
}

/// Returns the first and the last half of each chain; `None` for fewer than four draws, or if a draw is not finite.
fn split(chains: &[&[f64]]) -> Option<Vec<Vec<f64>>> {
    let draws = chains.first()?.len();
    if draws < 4 || chains.iter().any(|c| c.len() != draws || c.iter().any(|x| !x.is_finite())) {
        return None;
    }
    Some(chains.iter().flat_map(|c| [c[..draws / 2].to_vec(), c[draws - draws / 2..].to_vec()]).collect())
}

/// Replaces each of S values by Φ⁻¹((rank − 3/8) / (S + 1/4)) (Blom 1958). Equal values get the mean of their ranks.
fn rank_normalised(chains: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let all = chains.concat();
    let n = all.len();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| all[a].total_cmp(&all[b]));
    let mut z = vec![0.0; n];
    let mut start = 0;
    while start < n {
        let mut end = start + 1;
        while end < n && all[order[end]] == all[order[start]] {
            end += 1;
        }
        let rank = (start + 1 + end) as f64 / 2.0;
        let value = Normal::standard().inverse_cdf((rank - 0.375) / (n as f64 + 0.25));
        order[start..end].iter().for_each(|&i| z[i] = value);
        start = end;
    }
    z.chunks_exact(n / chains.len()).map(<[f64]>::to_vec).collect()
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

fn variance(x: &[f64]) -> f64 {
    let m = mean(x);
    x.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / (x.len() - 1) as f64
}

/// Returns R-hat of chains that have been split and transformed.
fn split_r_hat(chains: &[Vec<f64>]) -> f64 {
    let n = chains[0].len() as f64;
    let means: Vec<f64> = chains.iter().map(|c| mean(c)).collect();
    let between = n * variance(&means);
    let within = mean(&chains.iter().map(|c| variance(c)).collect::<Vec<_>>());
    ((between / within + n - 1.0) / n).sqrt()
}

/// Returns the effective sample size from the chains' combined autocorrelation, cut off by Geyer's (1992) initial
/// monotone sequence.
fn ess(chains: &[Vec<f64>]) -> f64 {
    let (m, n) = (chains.len() as f64, chains[0].len());
    let all = chains.iter().flatten();
    let (low, high) = all.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &x| (l.min(x), h.max(x)));
    if high - low < 1e-15 {
        return m * n as f64;
    }
    let mut covariance = vec![0.0; n];
    let mut planner = FftPlanner::new();
    for chain in chains {
        for (sum, c) in covariance.iter_mut().zip(autocovariance(chain, &mut planner)) {
            *sum += c / m;
        }
    }
    let within = covariance[0] * n as f64 / (n as f64 - 1.0);
    let mut total = covariance[0];
    if chains.len() > 1 {
        total += variance(&chains.iter().map(|c| mean(c)).collect::<Vec<_>>());
    }
    let rho = |t: usize| 1.0 - (within - covariance[t]) / total;
    // The autocorrelations as long as the sums of pairs are positive; 0 after that.
    let mut retained = vec![0.0; n];
    let (mut even, mut odd) = (1.0, rho(1));
    (retained[0], retained[1]) = (even, odd);
    let mut t = 1;
    while t + 3 < n && even + odd > 0.0 {
        (even, odd) = (rho(t + 1), rho(t + 2));
        if even + odd >= 0.0 {
            (retained[t + 1], retained[t + 2]) = (even, odd);
        }
        t += 2;
    }
    // t is odd and at least 1. The last retained pair is one step back; there was no step if n ≤ 4.
    let end = t as isize - 2;
    if even > 0.0 {
        retained[(end + 1) as usize] = even;
    }
    // The sums of pairs must not increase either.
    let mut t = 1;
    while t as isize <= end - 2 {
        let before = retained[t - 1] + retained[t];
        if retained[t + 1] + retained[t + 2] > before {
            (retained[t + 1], retained[t + 2]) = (before / 2.0, before / 2.0);
        }
        t += 2;
    }
    let end = (end + 1) as usize;
    let size = m * n as f64;
    let tau = -1.0 + 2.0 * retained[..end].iter().sum::<f64>() + retained[end];
    // Anticorrelated draws can be worth more than independent ones, but not without limit.
    size / tau.max(1.0 / size.log10())
}

/// Returns the autocovariance at each lag, with divisor n, by FFT.
fn autocovariance(x: &[f64], planner: &mut FftPlanner<f64>) -> Vec<f64> {
    let n = x.len();
    let size = (2 * n).next_power_of_two();
    let m = mean(x);
    let mut buffer: Vec<Complex<f64>> = x.iter().map(|x| Complex::new(x - m, 0.0)).collect();
    buffer.resize(size, Complex::ZERO);
    planner.plan_fft_forward(size).process(&mut buffer);
    buffer.iter_mut().for_each(|c| *c = Complex::new(c.norm_sqr(), 0.0));
    planner.plan_fft_inverse(size).process(&mut buffer);
    buffer[..n].iter().map(|c| c.re / (size as f64 * n as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_interpolated() {
        assert_eq!(quantile(&[1.0, 2.0, 4.0], 0.25), 1.5);
        assert_eq!(quantile(&[1.0, 2.0, 4.0], 1.0), 4.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn too_little_or_not_finite_is_nan() {
        assert!(r_hat(&[&[1.0, 2.0, 3.0]]).is_nan());
        assert!(ess_bulk(&[&[1.0, 2.0, f64::NAN, 3.0, 4.0]]).is_nan());
        assert!(r_hat(&[&[1.0; 10], &[1.0; 10]]).is_nan());
        assert_eq!(ess_bulk(&[&[1.0; 10], &[1.0; 10]]), 20.0);
    }
}
