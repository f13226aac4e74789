//! Sums over the arguments ½(ν − j), j < D, of Wishart distributions. Arguments two apart in j differ by one, so a few
//! function values give all others.
use crate::reproducible::{Functions, Reproducible};
use libm::lgamma;

/// ψ(x) for x > 0; under [`Reproducible`] by its asymptotic series from 12 on, to which
/// ψ(x) = ψ(x + 1) − 1/x leads.
pub fn digamma(mut x: f64) -> f64 {
    if !Reproducible::is_on() {
        return statrs::function::gamma::digamma(x);
    }
    let mut below = 0.0;
    while x < 12.0 {
        below += 1.0 / x;
        x += 1.0;
    }
    let square = 1.0 / (x * x);
    let series = [1.0 / 12.0, 1.0 / 120.0, 1.0 / 252.0, 1.0 / 240.0, 1.0 / 132.0];
    let correction = series.iter().rev().fold(0.0, |sum, term| square * (term - sum));
    x.log_e() - 0.5 / x - correction - below
}

/// Returns the largest argument ½(ν − j) and the number of arguments, for even and for odd j.
fn chains(nu: f64, d: usize) -> [(f64, usize); 2] {
    [(0.5 * nu, d.div_ceil(2)), (0.5 * (nu - 1.0), d / 2)]
}

/// Returns Σⱼ ψ(½(ν − j)) for j < `d`, by ψ(x − 1) = ψ(x) − 1/(x − 1): downwards, where nothing cancels.
pub fn digamma_sum(nu: f64, d: usize) -> f64 {
    let mut sum = 0.0;
    for (mut x, count) in chains(nu, d) {
        if count == 0 {
            continue;
        }
        let mut psi = digamma(x);
        sum += psi;
        for _ in 1..count {
            x -= 1.0;
            psi -= 1.0 / x;
            sum += psi;
        }
    }
    sum
}

/// Arguments that share one value of ln Γ: their product of powers is below 10³⁰⁰ for arguments below [`MOST`].
const TOGETHER: usize = 6;
const MOST: f64 = 1e20;

/// Returns Σⱼ ln Γ(½(ν − j)) for j < `d`, with Γ(x − 1) = Γ(x)/(x − 1).
pub fn ln_gamma_sum(nu: f64, d: usize) -> f64 {
    let mut sum = 0.0;
    for (mut x, mut count) in chains(nu, d) {
        while count > 0 {
            let together = if x < MOST { count.min(TOGETHER) } else { 1 };
            sum += together as f64 * lgamma(x);
            // Π Γ(x)/Γ(x − i) over the shared arguments.
            let (mut quotient, mut product) = (1.0, 1.0);
            for _ in 1..together {
                x -= 1.0;
                quotient *= x;
                product *= quotient;
            }
            sum -= product.log_e();
            x -= 1.0;
            count -= together;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with each argument's function, for D around the chains' lengths and ν down to the least possible.
    #[test]
    fn sums_are_those_of_all_arguments() {
        for d in [1, 2, 3, 11, 12, 13, 14, 64, 127] {
            for above in [1e-6, 0.3, 1.0, 17.25, 1e3, 1e6, 1e12, 3e21] {
                let nu = d as f64 - 1.0 + above;
                let arguments = || (0..d).map(|j| 0.5 * (nu - j as f64));
                let near = |what: &str, got: f64, terms: Vec<f64>| {
                    let (sum, size) = terms.iter().fold((0.0, 1.0), |(sum, size), v| (sum + v, size + v.abs()));
                    assert!((got - sum).abs() <= 1e-14 * size, "{what} D={d} ν={nu}: {got} for {sum}");
                };
                near("ψ", digamma_sum(nu, d), arguments().map(digamma).collect());
                near("ln Γ", ln_gamma_sum(nu, d), arguments().map(lgamma).collect());
            }
        }
    }
}
