//! The least time that an evaluation can take, bounded by the memory, the arithmetic or the exponentials.
use clap::{Args, ValueEnum};
use gaussmix::model::CovarianceType;
use serde::Serialize;

/// Bytes a second of an H100's memory.
const BANDWIDTH: &str = "3.0e12";
/// Float32 multiply-adds a second of an H100.
const FLOPS: &str = "33.4e12";
/// The multiply-adds in the time of an exponential: a multiprocessor starts 128 and 16 of them in a clock.
const OF_EXPONENTIAL: usize = 8;

/// A task to evaluate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// An iteration of EM, from parameters to new parameters
    Em,
    /// The log-likelihood of all samples together
    Total,
    /// The log-likelihood of each sample
    Scores,
}

impl Task {
    /// Names the task.
    pub fn title(self) -> &'static str {
        match self {
            Self::Em => "an iteration of EM",
            Self::Total => "the total log-likelihood",
            Self::Scores => "the log-likelihood of each sample",
        }
    }

    /// Returns the least number of multiply-adds for a sample: those of its log densities
    /// ([`CovarianceType::multiply_adds`]), and in an iteration of EM as many for the moments.
    ///
    /// Under `tied` covariances the terms quadratic in x are the same in all log densities: responsibilities do not
    /// depend on them, and their sum over the samples is a product of the inverse covariances with moments of the data,
    /// which no mixture changes. The sum of the components' scatter is such a moment too. So only the scores of samples
    /// need the quadratic terms; totals and EM need K·D, and the moments K·D.
    fn multiply_adds(self, covariance_type: CovarianceType, k: usize, d: usize) -> usize {
        let densities = match covariance_type {
            CovarianceType::Tied if self != Self::Scores => k * d,
            other => other.multiply_adds(k, d),
        };
        let moments = match covariance_type {
            // The densities have computed |x|² already.
            CovarianceType::Spherical => k * (d + 1),
            _ => densities,
        };
        if self == Self::Em { densities + moments } else { densities }
    }

    /// Returns the least number of bytes for a sample: a read of its float32 values, and a write of its score, if any.
    fn bytes(self, d: usize) -> usize {
        size_of::<f32>() * if self == Self::Scores { d + 1 } else { d }
    }
}

/// The throughput of a device.
#[derive(Debug, Clone, Copy, Args)]
pub struct Rates {
    /// Bytes that the device's memory reads in a second, for the floor
    #[arg(long, value_name = "BYTES", value_parser = rate, default_value = BANDWIDTH)]
    pub bandwidth: f64,
    /// Float32 multiply-adds of the device in a second, for the floor
    #[arg(long, value_name = "MULTIPLY-ADDS", value_parser = rate, default_value = FLOPS)]
    pub flops: f64,
}

impl Rates {
    /// Returns the least seconds of a task over N samples with K components and D features.
    pub fn floor(&self, task: Task, covariance_type: CovarianceType, [n, k, d]: [usize; 3]) -> f64 {
        let memory = task.bytes(d) as f64 / self.bandwidth;
        // Both happen side by side, in different units.
        let arithmetic = task.multiply_adds(covariance_type, k, d).max(OF_EXPONENTIAL * k) as f64 / self.flops;
        n as f64 * memory.max(arithmetic)
    }

    /// Describes the floor in words.
    pub fn describe(&self) -> String {
        let is = |value: f64, default: &str| default.parse() == Ok(value);
        let whose = if is(self.bandwidth, BANDWIDTH) && is(self.flops, FLOPS) {
            " (rates of an H100; --bandwidth and --flops are for another device)"
        } else {
            ""
        };
        let (bandwidth, flops) = (self.bandwidth / 1e12, self.flops / 1e12);
        format!(
            "The floor is the largest of one read of the samples at {bandwidth}·10¹² bytes a second,\n\
             the multiply-adds at {flops}·10¹² a second and the exponentials at an eighth of that{whose}."
        )
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: Option<f64> = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "must be a number above 0, such as 3.0e12".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const H100: Rates = Rates { bandwidth: 3.0e12, flops: 33.4e12 };

    /// Counted by hand for a sample of two features and three components.
    #[test]
    fn multiply_adds_of_each_type() {
        for (covariance_type, expected) in [
            (CovarianceType::Full, [15, 15, 30]),
            (CovarianceType::Tied, [11, 6, 12]),
            (CovarianceType::Diag, [12, 12, 24]),
            (CovarianceType::Spherical, [11, 11, 20]),
        ] {
            let of = |task: Task| task.multiply_adds(covariance_type, 3, 2);
            assert_eq!([Task::Scores, Task::Total, Task::Em].map(of), expected, "{covariance_type}");
        }
    }

    /// Returns the polynomial a·K·D² + b·K·D + c·K + e·D² + g·D, found from its values.
    fn formula(of: impl Fn(usize, usize) -> usize) -> String {
        let f = |k, d| 2 * of(k, d) as i64;
        let with_k = |d| f(1, d) - f(0, d);
        let (c, e) = (with_k(0), f(0, 2) / 2 - f(0, 1));
        let a = (with_k(2) - 2 * with_k(1) + c) / 2;
        let twice = [(a, "K·D²"), (with_k(1) - a - c, "K·D"), (c, "K"), (e, "D²"), (f(0, 1) - e, "D")];
        let term = |(twice, name): (i64, &str)| match (twice, twice % 2) {
            (0, _) => None,
            (1, _) => Some(format!("{name}/2")),
            (2, _) => Some(name.into()),
            (_, 0) => Some(format!("{}·{name}", twice / 2)),
            _ => Some(format!("{twice}·{name}/2")),
        };
        twice.into_iter().filter_map(term).collect::<Vec<_>>().join(" + ")
    }

    /// `GMM_WRITE_DOCS=1 cargo test -p gaussmix-cli table_of_floors` writes the table.
    #[test]
    fn the_guide_has_the_table_of_floors() {
        let mut table = String::from("| covariances | `scores` | `total` | `em` |\n|---|---|---|---|\n");
        for covariance_type in CovarianceType::ALL {
            let of = |task: Task| formula(|k, d| task.multiply_adds(covariance_type, k, d));
            let [scores, total, em] = [Task::Scores, Task::Total, Task::Em].map(of);
            table += &format!("| {covariance_type} | {scores} | {total} | {em} |\n");
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/speed.md");
        let page = std::fs::read_to_string(path).unwrap();
        let start = page.find("| covariances | `scores`").expect("the table in docs/speed.md");
        let end = start + page[start..].find("\n\n").unwrap() + 1;
        if std::env::var_os("GMM_WRITE_DOCS").is_some() {
            std::fs::write(path, [&page[..start], &table, &page[end..]].concat()).unwrap();
        } else {
            assert_eq!(page[start..end], table, "GMM_WRITE_DOCS=1 writes it");
        }
    }

    #[test]
    fn the_floor_is_that_of_the_memory_the_arithmetic_or_the_exponentials() {
        let floor = |task, covariance_type, k, d| H100.floor(task, covariance_type, [1_000_000, k, d]) * 1e6;
        // 64 features are 256 bytes, and 8 components take 2,048 multiply-adds: 85 and 61 µs.
        assert!((floor(Task::Em, CovarianceType::Diag, 8, 64) - 256e6 / 3e6).abs() < 1e-9);
        assert!((floor(Task::Scores, CovarianceType::Diag, 8, 64) - 260e6 / 3e6).abs() < 1e-9);
        // 128 exponentials, each in the time of 8 multiply-adds: 31 µs.
        assert!((floor(Task::Total, CovarianceType::Tied, 128, 2) - 1024.0 / 33.4).abs() < 1e-9);
        // 8·200·203 multiply-adds: 9.7 ms.
        assert!((floor(Task::Em, CovarianceType::Full, 8, 200) - 324_800.0 / 33.4).abs() < 1e-9);
    }

    #[test]
    fn the_rates_are_an_h100_s_unless_others_are_given() {
        assert!(H100.describe().contains("at 3·10¹² bytes") && H100.describe().contains("rates of an H100"));
        let other = Rates { bandwidth: 2.0e12, ..H100 }.describe();
        assert!(
            other.contains("at 2·10¹² bytes")
                && other.contains("33.4·10¹² a second and the exponentials at an eighth of that.")
                && !other.contains("H100")
        );
        for bad in ["0", "-1", "nan", "inf", "x"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
