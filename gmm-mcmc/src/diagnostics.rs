//! Convergence diagnostics: rank-normalised split R-hat, bulk and tail effective sample size (Vehtari, Gelman, Simpson,
//! Carpenter and Bürkner 2021), as ArviZ and Stan compute them.
//!
//! All take the draws of one quantity, chain by chain, all chains equally long. With fewer than four draws, or with
//! a draw that is not finite, they are NaN.
use rustfft::FftPlanner;
use rustfft::num_complex::Complex;

/// Rank-normalised split R-hat: the larger of that of the draws and that of their distances from the median. NaN for
/// a constant.
pub fn r_hat(chains: &[&[f64]]) -> f64 {
    let Some(split) = split(chains) else { return f64::NAN };
    let mut all: Vec<f64> = split.concat();
    all.sort_by(f64::total_cmp);
    let median = quantile(&all, 0.5);
    let folded: Vec<Vec<f64>> = split.iter().map(|c| c.iter().map(|x| (x - median).abs()).collect()).collect();
    let (bulk, tail) = (plain_r_hat(&rank_normalised(&split)), plain_r_hat(&rank_normalised(&folded)));
    if bulk.is_nan() || tail.is_nan() { f64::NAN } else { bulk.max(tail) }
}

/// Effective sample size for the bulk of the distribution: of the rank-normalised split draws.
pub fn ess_bulk(chains: &[&[f64]]) -> f64 {
    split(chains).map_or(f64::NAN, |s| ess(&rank_normalised(&s)))
}

/// Effective sample size for the tails: the smaller of those of the 5% and the 95% quantile.
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

/// Effective sample size for the mean: of the split draws as they are. sd/√ess is the mean's Monte Carlo standard error.
pub fn ess_mean(chains: &[&[f64]]) -> f64 {
    split(chains).map_or(f64::NAN, |s| ess(&s))
}

/// Quantile of sorted values, interpolated linearly (R's type 7, NumPy's default).
pub fn quantile(sorted: &[f64], p: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let position = p * last as f64;
    let (low, fraction) = (position.floor() as usize, position.fract());
    sorted[low] + fraction * (sorted[(low + 1).min(last)] - sorted[low])
}

/// The first and the last half of each chain; `None` where there is too little, or something not finite.
fn split(chains: &[&[f64]]) -> Option<Vec<Vec<f64>>> {
    let draws = chains.first()?.len();
    if draws < 4 || chains.iter().any(|c| c.len() != draws || c.iter().any(|x| !x.is_finite())) {
        return None;
    }
    Some(chains.iter().flat_map(|c| [c[..draws / 2].to_vec(), c[draws - draws / 2..].to_vec()]).collect())
}

/// Φ⁻¹((rank − 3/8) / (S + 1/4)) (Blom 1958), with the mean rank for equal values.
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
        let value = normal_quantile((rank - 0.375) / (n as f64 + 0.25));
        order[start..end].iter().for_each(|&i| z[i] = value);
        start = end;
    }
    z.chunks_exact(n / chains.len()).map(<[f64]>::to_vec).collect()
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

/// With divisor n − 1.
fn variance(x: &[f64]) -> f64 {
    let m = mean(x);
    x.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / (x.len() - 1) as f64
}

fn plain_r_hat(chains: &[Vec<f64>]) -> f64 {
    let n = chains[0].len() as f64;
    let means: Vec<f64> = chains.iter().map(|c| mean(c)).collect();
    let between = n * variance(&means);
    let within = mean(&chains.iter().map(|c| variance(c)).collect::<Vec<_>>());
    ((between / within + n - 1.0) / n).sqrt()
}

/// Effective sample size from the chains' combined autocorrelation, cut off by Geyer's (1992) initial monotone sequence.
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
    let mut kept = vec![0.0; n];
    let (mut even, mut odd) = (1.0, rho(1));
    (kept[0], kept[1]) = (even, odd);
    let mut t = 1;
    while t + 3 < n && even + odd > 0.0 {
        (even, odd) = (rho(t + 1), rho(t + 2));
        if even + odd >= 0.0 {
            (kept[t + 1], kept[t + 2]) = (even, odd);
        }
        t += 2;
    }
    // t is odd and at least 1; one step back is the last pair that was kept. With n ≤ 4 there was no step.
    let end = t as isize - 2;
    if even > 0.0 {
        kept[(end + 1) as usize] = even;
    }
    let mut t = 1;
    while t as isize <= end - 2 {
        let before = kept[t - 1] + kept[t];
        if kept[t + 1] + kept[t + 2] > before {
            (kept[t + 1], kept[t + 2]) = (before / 2.0, before / 2.0);
        }
        t += 2;
    }
    let end = (end + 1) as usize;
    let size = m * n as f64;
    let tau = -1.0 + 2.0 * kept[..end].iter().sum::<f64>() + kept[end];
    size / tau.max(1.0 / size.log10())
}

/// Autocovariance at each lag, with divisor n, by FFT.
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

/// Φ⁻¹(p) for 0 < p < 1, by algorithm AS 241 (Wichura 1988): about 10⁻¹⁶ relative.
#[allow(clippy::excessive_precision)] // The coefficients are as published.
fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 8] = [
        3.387132872796366608,
        133.14166789178437745,
        1971.5909503065514427,
        13731.693765509461125,
        45921.953931549871457,
        67265.770927008700853,
        33430.575583588128105,
        2509.0809287301226727,
    ];
    const B: [f64; 8] = [
        1.0,
        42.313330701600911252,
        687.1870074920579083,
        5394.1960214247511077,
        21213.794301586595867,
        39307.89580009271061,
        28729.085735721942674,
        5226.495278852545925,
    ];
    const C: [f64; 8] = [
        1.42343711074968357734,
        4.6303378461565452959,
        5.7694972214606914055,
        3.64784832476320460504,
        1.27045825245236838258,
        0.24178072517745061177,
        0.0227238449892691845833,
        7.7454501427834140764e-4,
    ];
    const D: [f64; 8] = [
        1.0,
        2.05319162663775882187,
        1.6763848301838038494,
        0.68976733498510000455,
        0.14810397642748007459,
        0.0151986665636164571966,
        5.475938084995344946e-4,
        1.05075007164441684324e-9,
    ];
    const E: [f64; 8] = [
        6.6579046435011037772,
        5.4637849111641143699,
        1.7848265399172913358,
        0.29656057182850489123,
        0.026532189526576123093,
        0.0012426609473880784386,
        2.71155556874348757815e-5,
        2.01033439929228813265e-7,
    ];
    const F: [f64; 8] = [
        1.0,
        0.59983220655588793769,
        0.13692988092273580531,
        0.0148753612908506148525,
        7.868691311456132591e-4,
        1.8463183175100546818e-5,
        1.4215117583164458887e-7,
        2.04426310338993978564e-15,
    ];
    let ratio = |x: f64, top: &[f64; 8], bottom: &[f64; 8]| {
        let value = |c: &[f64; 8]| c.iter().rev().fold(0.0, |sum, c| sum * x + c);
        value(top) / value(bottom)
    };
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        return q * ratio(0.180625 - q * q, &A, &B);
    }
    let r = (-p.min(1.0 - p).ln()).sqrt();
    let z = if r <= 5.0 { ratio(r - 1.6, &C, &D) } else { ratio(r - 5.0, &E, &F) };
    if q < 0.0 { -z } else { z }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_quantiles() {
        // Values of SciPy's norm.ppf.
        for (p, z) in [
            (0.5, 0.0),
            (0.975, 1.959963984540054),
            (0.3, -0.5244005127080409),
            (1e-4, -3.7190164854556804),
            (1e-12, -7.034483825301131),
            (1.0 - 1e-3, 3.090232306167813),
        ] {
            assert!((normal_quantile(p) - z).abs() < 4e-15 * z.abs().max(1.0), "{p}: {}", normal_quantile(p));
        }
    }

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
