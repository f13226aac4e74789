use crate::{median, normal};
use clap::Args;
use gaussmix::Error;
use gaussmix::data::Samples;
use gaussmix::device::{Device, LoadOptions, load};
use gaussmix::model::CovarianceType;
use gaussmix::program::whole_number;
use gaussmix_cli::bench::{mixtures, text};
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashSet;
use std::time::Instant;

/// The share of missing values, and the most patterns of missing values (`None`: each row has its own draw).
const CASES: [(f64, Option<usize>); 6] =
    [(0.0, None), (0.1, Some(10)), (0.1, Some(100)), (0.1, Some(1000)), (0.1, None), (0.5, None)];

/// Time evaluations and E-steps over samples with missing values, beside complete ones
#[derive(Debug, Args)]
pub struct Missing {
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// Number of samples
    #[arg(long, value_parser = whole_number, default_value = "1e6")]
    n: usize,
    /// Number of features
    #[arg(short, value_parser = whole_number, default_value = "13")]
    d: usize,
    /// Number of components
    #[arg(short, value_parser = whole_number, default_value = "8")]
    k: usize,
    /// The shapes of the covariances
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "full,tied,diag,spherical")]
    covariance_type: Vec<CovarianceType>,
}

impl Missing {
    pub fn run(self) -> anyhow::Result<()> {
        let x = normal(self.n, self.d)?;
        let mut rows = Vec::new();
        for (share, most) in CASES {
            let (holes, patterns) = with_holes(&x, share, most);
            let begin = Instant::now();
            let mut evaluator = load(self.device, Samples::with_missing(holes.view())?, &LoadOptions::new())?;
            let loaded = begin.elapsed().as_secs_f64();
            for &covariance_type in &self.covariance_type {
                let mixture = &mixtures(1, [self.k, self.d], covariance_type)?[0];
                let case = [format!("{:.0} %", 100.0 * share), text::grouped(patterns as u64), text::seconds(loaded)];
                let times = match median(|_| evaluator.log_likelihood(mixture).map(drop)) {
                    Err(Error::Unsupported { .. }) => ["–"; 4].map(String::from),
                    total => {
                        let (total, kernel) = (total?, evaluator.describe().kernel);
                        let e_step = median(|_| evaluator.statistics(mixture).map(drop))?;
                        [text::seconds(total), kernel, text::seconds(e_step), evaluator.describe().kernel]
                    }
                };
                rows.push(case.into_iter().chain([covariance_type.to_string()]).chain(times).collect());
            }
        }
        let header = ["missing", "patterns", "loaded in", "type", "total", "kernel", "E-step", "kernel"];
        text::print(text::table(&header, rows, 0))
    }
}

/// Makes a share of the values missing, and counts the patterns.
fn with_holes(x: &Array2<f32>, share: f64, most: Option<usize>) -> (Array2<f32>, usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut draw = || (0..x.ncols()).map(|_| rng.random::<f64>() < share).collect::<Vec<bool>>();
    let (mut some, most) = (Vec::new(), most.unwrap_or(0));
    // Few features have fewer patterns.
    for _ in 0..100 * most {
        let pattern = draw();
        if some.len() < most && !some.contains(&pattern) {
            some.push(pattern);
        }
    }
    let (mut holes, mut patterns) = (x.clone(), HashSet::new());
    for (i, mut row) in holes.outer_iter_mut().enumerate() {
        let pattern = if some.is_empty() { draw() } else { some[i % some.len()].clone() };
        row.iter_mut().zip(&pattern).filter(|(_, missing)| **missing).for_each(|(v, _)| *v = f32::NAN);
        patterns.insert(pattern);
    }
    (holes, patterns.len())
}
