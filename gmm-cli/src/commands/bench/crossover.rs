//! The number of samples from which the GPU is faster than the CPU.
use super::rows::Row;
use crate::terminal::text;
use gaussmix::device::Device;

/// The size at which the GPU overtakes the CPU, as measured.
#[derive(Debug, PartialEq)]
pub enum Crossover {
    /// Interpolated on logarithmic axes between two measured sizes.
    At(f64),
    /// The GPU is faster from the smallest size measured.
    Below(usize),
    /// The CPU is faster up to the largest size measured.
    Above(usize),
}

impl std::fmt::Display for Crossover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::At(n) => write!(f, "crossover: the GPU overtakes the CPU at about N = {}", text::count(*n)),
            Self::Below(n) => write!(f, "crossover: the GPU is faster at every N measured, from {n}"),
            Self::Above(n) => write!(f, "crossover: the CPU is faster at every N measured, up to {n}"),
        }
    }
}

impl Crossover {
    /// Finds the largest size at which the GPU takes the lead; `None` if CPU and GPU were measured at no common size.
    pub fn of(rows: &[Row]) -> Option<Self> {
        let best = |n: usize, gpu: bool| {
            let of_side = |r: &&Row| {
                r.n == n
                    && if gpu { matches!(r.device(), Some(Device::Cuda(_))) } else { r.device() == Some(Device::Cpu) }
            };
            rows.iter().filter(of_side).map(|r| r.seconds).min_by(f64::total_cmp)
        };
        let mut sizes: Vec<usize> = rows.iter().map(|r| r.n).collect();
        sizes.sort_unstable();
        sizes.dedup();
        // The logarithm of the CPU's time over the GPU's, for each size.
        let lead: Vec<(usize, f64)> =
            sizes.into_iter().filter_map(|n| Some((n, (best(n, false)? / best(n, true)?).ln()))).collect();
        let (first, last) = (lead.first()?, lead.last()?);
        if last.1 <= 0.0 {
            return Some(Self::Above(last.0));
        }
        let change = lead.windows(2).rev().find(|w| w[0].1 <= 0.0 && w[1].1 > 0.0);
        Some(change.map_or(Self::Below(first.0), |w| {
            let (x0, x1) = ((w[0].0 as f64).ln(), (w[1].0 as f64).ln());
            Self::At((x0 + (x1 - x0) * -w[0].1 / (w[1].1 - w[0].1)).exp())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(device: &str, n: usize, seconds: f64) -> Row {
        Row { device: device.into(), kernel: "x".into(), n, k: 8, d: 13, seconds }
    }

    #[test]
    fn crossover_is_interpolated_on_logarithmic_axes() {
        // The times N and 1000 cross at N = 1000, which was not measured.
        let rows: Vec<Row> = [100usize, 10_000]
            .iter()
            .flat_map(|&n| [row("cpu", n, n as f64 * 1e-9), row("cuda", n, 1e-6), row("cuda:0", n, 2e-6)])
            .collect();
        let Some(Crossover::At(n)) = Crossover::of(&rows) else { panic!("{:?}", Crossover::of(&rows)) };
        // Exact except for a few roundings of ln and exp.
        assert!((n - 1000.0).abs() < 1e-6, "{n}");
        assert_eq!(Crossover::of(&[row("cpu", 10, 1.0), row("cuda", 10, 0.5)]), Some(Crossover::Below(10)));
        assert_eq!(Crossover::of(&[row("cpu", 10, 1.0), row("cuda", 10, 1.5)]), Some(Crossover::Above(10)));
        assert_eq!(Crossover::of(&[row("cpu", 10, 1.0), row("cuda", 11, 1.5)]), None);
        assert_eq!(Crossover::of(&[row("cpu", 10, 1.0), row("reference", 10, 1.5)]), None);
        assert_eq!(Crossover::of(&[row("cpu", 10, 1.0), row("auto", 10, 1.5)]), None);
    }
}
