//! The CSV of a chain, in CmdStan's layout.
use crate::run::Chains;
use crate::samplers::{Sampler, State};
use crate::summary::parameter_names;
use std::io::{self, Write};

/// Writes one chain in CmdStan's layout: the configuration as comments, then a row for each draw. The first index of an
/// array varies fastest. CmdStanPy, which is stricter than other readers, needs the key `model`, CmdStan's names for
/// NUTS, and comments at the end, where CmdStan reports its times. The content depends neither on time nor on
/// interruptions of the run.
pub(super) fn write(run: &Chains, chain: usize, out: impl Write) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    let (settings, identity) = (&run.settings, &run.identity);
    writeln!(out, "# gmm_mcmc_version = {}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "# model = gmm_mcmc_model")?;
    writeln!(out, "# {}", identity.model)?;
    writeln!(out, "# prior: {}", identity.prior)?;
    writeln!(out, "# method = sample (Default)")?;
    writeln!(out, "#   sample")?;
    // CmdStan counts iterations. One in `thin` of them is a row.
    writeln!(out, "#     num_samples = {}", settings.draws as u128 * settings.thin as u128)?;
    writeln!(out, "#     num_warmup = {}", settings.warmup)?;
    writeln!(out, "#     save_warmup = false")?;
    writeln!(out, "#     thin = {}", settings.thin)?;
    match settings.sampler {
        Sampler::Metropolis { by_component } => {
            writeln!(out, "#     algorithm = metropolis")?;
            writeln!(out, "#       by_component = {by_component}")?;
        }
        Sampler::Ensemble { stretch } => {
            writeln!(out, "#     algorithm = ensemble")?;
            writeln!(out, "#       stretch = {stretch:?}")?;
        }
        Sampler::Nuts { target_accept, max_depth } => {
            writeln!(out, "#     adapt")?;
            writeln!(out, "#       delta = {target_accept:?}")?;
            writeln!(out, "#     algorithm = hmc (Default)")?;
            writeln!(out, "#       engine = nuts (Default)")?;
            writeln!(out, "#         max_depth = {max_depth}")?;
            writeln!(out, "#       metric = diag_e (Default)")?;
        }
    }
    writeln!(out, "# id = {}", chain + 1)?;
    writeln!(out, "# data: {}", identity.data)?;
    writeln!(out, "# random")?;
    writeln!(out, "#   seed = {}", settings.seed)?;
    writeln!(out, "# device: {}", identity.device)?;
    writeln!(out, "# kernel: {}", identity.kernel)?;

    let statistics = settings.sampler.statistics();
    let names = parameter_names(run);
    // The position of each CSV column's number in a row.
    let order: Vec<usize> = (0..statistics.len())
        .chain(
            column_major(&run.variables.iter().map(|v| v.shape.as_slice()).collect::<Vec<_>>())
                .map(|i| statistics.len() + i),
        )
        .collect();
    for (column, &i) in order.iter().enumerate() {
        let name = if i < statistics.len() { statistics[i] } else { &names[i - statistics.len()] };
        write!(out, "{}{name}", if column > 0 { "," } else { "" })?;
    }
    writeln!(out)?;
    match &run.state {
        State::Nuts(s) => {
            if let Some(tuned) = s.tuned(chain) {
                writeln!(out, "# Adaptation terminated")?;
                writeln!(out, "# Step size = {}", number(tuned.step_size))?;
                writeln!(out, "# Diagonal elements of inverse mass matrix:")?;
                let metric: Vec<String> = tuned.scale.iter().map(|s| number(s * s)).collect();
                writeln!(out, "# {}", metric.join(", "))?;
            }
        }
        State::Metropolis(s) => {
            let scales: Vec<String> = s.scales(chain).into_iter().map(number).collect();
            writeln!(out, "# Adaptation terminated")?;
            writeln!(out, "# Scale of the proposal of each block: {}", scales.join(", "))?;
        }
        State::Ensemble(_) => {}
    }
    for row in run.rows.of_chain(chain) {
        for (column, &i) in order.iter().enumerate() {
            write!(out, "{}{}", if column > 0 { "," } else { "" }, number(row[i]))?;
        }
        writeln!(out)?;
    }
    write!(out, "#\n#\n")?;
    out.flush()
}

/// Returns the positions of the numbers of consecutive row-major arrays, in the order that reads each array
/// column-major.
fn column_major(shapes: &[&[usize]]) -> impl Iterator<Item = usize> {
    let mut positions = Vec::new();
    let mut start = 0;
    for shape in shapes {
        let size: usize = shape.iter().product();
        for mut i in 0..size {
            // The first index varies fastest. Its stride in row-major order is the product of the later lengths.
            let (mut position, mut stride) = (0, size);
            for &n in *shape {
                stride /= n;
                position += i % n * stride;
                i /= n;
            }
            positions.push(start + position);
        }
        start += size;
    }
    positions.into_iter()
}

/// Returns the shortest decimal number that reads back as the same bits.
fn number(v: f64) -> String {
    if v == 0.0 || (1e-5..1e16).contains(&v.abs()) || !v.is_finite() { v.to_string() } else { format!("{v:e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_index_is_fastest() {
        // (2, 3) row-major 0..6, then (2,).
        let order: Vec<usize> = column_major(&[&[2, 3], &[2]]).collect();
        assert_eq!(order, [0, 3, 1, 4, 2, 5, 6, 7]);
        assert_eq!(column_major(&[&[2, 1, 2]]).collect::<Vec<_>>(), [0, 2, 1, 3]);
    }

    #[test]
    fn numbers_are_read_back() {
        for v in [0.1, -1e-300, 1.0 / 3.0, 3.0, 1e22, f64::MIN_POSITIVE, -12345.678] {
            assert_eq!(number(v).parse::<f64>().unwrap().to_bits(), v.to_bits());
        }
        assert_eq!(number(3.0), "3");
        assert_eq!(number(1e-7), "1e-7");
    }
}
