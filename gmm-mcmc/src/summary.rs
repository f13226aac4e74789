//! A summary of each parameter's draws, and checks of their reliability.
use crate::diagnostics::{ess_bulk, ess_mean, ess_tail, quantile, r_hat};
use crate::run::Chains;
use rayon::prelude::*;
use serde::Serialize;
use std::fmt;

/// The summary of one parameter's draws.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The parameter's name in CmdStan, with indices from 1: `means.2.1` is the mean of component 2 in column 1.
    pub name: String,
    /// Mean.
    pub mean: f64,
    /// Monte Carlo standard error of the mean.
    pub mcse: f64,
    /// Standard deviation.
    pub std: f64,
    /// 5% quantile.
    pub q5: f64,
    /// Median.
    pub median: f64,
    /// 95% quantile.
    pub q95: f64,
    /// Effective sample size of the bulk.
    pub ess_bulk: f64,
    /// Effective sample size of the tails.
    pub ess_tail: f64,
    /// Rank-normalised split R-hat. Above 1.01 the chains do not agree.
    pub r_hat: f64,
}

/// Moments, quantiles and diagnostics of all parameters, and figures of the sampler.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// The name of the sampler.
    pub sampler: String,
    /// C.
    pub chains: usize,
    /// Draws of each chain.
    pub draws: usize,
    /// Mean acceptance probability.
    pub acceptance: f64,
    /// Divergent trajectories.
    pub divergences: usize,
    /// One row for `lp__`, the log density, and then one for each parameter.
    pub rows: Vec<Row>,
}

impl Chains {
    /// Returns moments, quantiles and diagnostics of all parameters.
    pub fn summary(&self) -> Summary {
        let statistics = self.settings.sampler.statistics().len();
        let names = parameter_names(self).into_iter().enumerate().map(|(i, n)| (statistics + i, n));
        let numbers: Vec<(usize, String)> = std::iter::once((0, "lp__".into())).chain(names).collect();
        let numbers_of = |at: usize| -> Vec<Vec<f64>> {
            (0..self.settings.chains).map(|chain| self.rows.of_chain(chain).map(|row| row[at]).collect()).collect()
        };
        let rows = numbers.into_par_iter().map(|(at, name)| row(&numbers_of(at), name)).collect();
        Summary {
            sampler: self.settings.sampler.name().into(),
            chains: self.settings.chains,
            draws: self.drawn(),
            acceptance: self.acceptance(),
            divergences: self.divergences(),
            rows,
        }
    }
}

impl Summary {
    /// Returns the largest R-hat of all parameters; NaN if no parameter has one.
    pub fn max_r_hat(&self) -> f64 {
        self.rows.iter().map(|r| r.r_hat).fold(f64::NAN, f64::max)
    }

    /// Returns the smallest effective sample size, bulk or tail, of all parameters; NaN if no parameter has one.
    pub fn min_ess(&self) -> f64 {
        self.rows.iter().flat_map(|r| [r.ess_bulk, r.ess_tail]).fold(f64::NAN, f64::min)
    }

    /// Returns reasons to distrust the draws, in words, each with advice.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.divergences > 0 {
            warnings.push(format!(
                "{} divergent trajectories: parts of the posterior may be missed; raise the target acceptance or narrow the prior",
                self.divergences
            ));
        }
        if self.max_r_hat() > 1.01 {
            warnings.push(format!(
                "R-hat is up to {:.3}: the chains do not agree yet; warm up longer and draw more, or order the components if they swapped labels",
                self.max_r_hat()
            ));
        }
        let wanted = 100.0 * self.chains as f64;
        let least = self.min_ess();
        // Not a number after a few draws.
        if self.sampler != "ensemble" && (least.is_nan() || least < wanted) {
            warnings.push(format!(
                "the effective sample size is down to {least:.0}; {wanted} (100 a chain) makes quantiles reliable: draw more"
            ));
        }
        warnings
    }
}

/// Returns CmdStan's names of the parameters, in the order of a row of draws.
pub(crate) fn parameter_names(run: &Chains) -> Vec<String> {
    let mut names = Vec::new();
    for v in &run.variables {
        for mut i in 0..v.size() {
            let mut index: Vec<String> = Vec::new();
            for &n in v.shape.iter().rev() {
                index.push((i % n + 1).to_string());
                i /= n;
            }
            index.push(v.name.clone());
            index.reverse();
            names.push(index.join("."));
        }
    }
    names
}

/// Returns the row of a number, from its draws of each chain.
fn row(chains: &[Vec<f64>], name: String) -> Row {
    let chains: Vec<&[f64]> = chains.iter().map(Vec::as_slice).collect();
    let mut all = chains.concat();
    all.sort_by(f64::total_cmp);
    let n = all.len() as f64;
    let mean = all.iter().sum::<f64>() / n;
    let std = (all.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (n - 1.0)).sqrt();
    Row {
        name,
        mean,
        mcse: std / ess_mean(&chains).sqrt(),
        std,
        q5: quantile(&all, 0.05),
        median: quantile(&all, 0.5),
        q95: quantile(&all, 0.95),
        ess_bulk: ess_bulk(&chains),
        ess_tail: ess_tail(&chains),
        r_hat: r_hat(&chains),
    }
}

/// The precision is the number of rows that are shown: `{:.40}` shows the first 40.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name_width = self.rows.iter().map(|r| r.name.len()).max().unwrap_or(0).max(9);
        write!(f, "{:<name_width$}", "parameter")?;
        for title in ["mean", "mcse", "std", "5%", "50%", "95%"] {
            write!(f, " {title:>10}")?;
        }
        writeln!(f, " {:>9} {:>9} {:>6}", "ess_bulk", "ess_tail", "r_hat")?;
        for r in self.rows.iter().take(f.precision().unwrap_or(usize::MAX)) {
            write!(f, "{:<name_width$}", r.name)?;
            for v in [r.mean, r.mcse, r.std, r.q5, r.median, r.q95] {
                write!(f, " {:>10}", short(v))?;
            }
            writeln!(f, " {:>9.0} {:>9.0} {:>6.3}", r.ess_bulk, r.ess_tail, r.r_hat)?;
        }
        write!(
            f,
            "{}: {} chains of {} draws, acceptance {:.2}",
            self.sampler, self.chains, self.draws, self.acceptance
        )?;
        if self.sampler == "nuts" {
            write!(f, ", {} divergences", self.divergences)?;
        }
        self.warnings().iter().try_for_each(|w| write!(f, "\nwarning: {w}"))
    }
}

/// Formats a number with about five digits.
fn short(v: f64) -> String {
    let magnitude = v.abs();
    if magnitude != 0.0 && !(1e-3..1e6).contains(&magnitude) {
        format!("{v:.2e}")
    } else {
        let digits = 4usize.saturating_sub(magnitude.max(1.0).log10() as usize);
        format!("{v:.digits$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_count_all_rows_and_few_draws() {
        let few = row(&[vec![0.0, 1.0], vec![1.0, 0.0]], "lp__".into());
        let (sampler, rows) = ("nuts".into(), vec![few.clone()]);
        let mut summary = Summary { sampler, chains: 2, draws: 2, acceptance: 1.0, divergences: 0, rows };
        assert!(few.r_hat.is_nan() && summary.warnings()[0].starts_with("the effective sample size"), "{summary}");
        summary.rows.push(Row { name: "means.1.1".into(), r_hat: 2.0, ..few });
        let shown = format!("{summary:.1}");
        assert!(shown.contains("R-hat is up to 2.000") && !shown.contains("means"), "{shown}");
    }
}
