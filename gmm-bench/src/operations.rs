use crate::batch::kernels;
use crate::{median, normal};
use anyhow::Context;
use clap::Args;
use gaussmix::cuda::{CudaEvaluator, CudaOptions, cuda_devices};
use gaussmix::data::Samples;
use gaussmix::evaluator::Evaluator;
use gaussmix::model::CovarianceType;
use gaussmix::program::whole_number;
use gaussmix::statistics::Freeze;
use gaussmix::{Error, Result};
use gaussmix_cli::bench::{Rates, Task, mixtures, text};
use ndarray::{Array1, Array2};

/// Mixtures used in turn.
const SETS: usize = 16;
/// Rows read back.
const ROWS: usize = 1000;
/// Launches back to back.
const LAUNCHES: u32 = 100;

/// Time every operation on a GPU beside its floor
///
/// `launch` is one of many launches of the kernels of a total, by the device's clock; `iteration` an iteration of EM,
/// from parameters to new parameters; `rows` the reading of 1000 samples. The floors of the total and of the E-step are
/// as in `gmm bench map`; float64 has half the rates.
#[derive(Debug, Args)]
pub struct Operations {
    /// Numbers of samples
    #[arg(long, value_delimiter = ',', value_parser = whole_number, default_value = "1e6")]
    n: Vec<usize>,
    /// Numbers of features and of components
    #[arg(long, value_name = "DxK", value_delimiter = ',', value_parser = shape, default_value = "13x8,32x64,64x32,128x1024,128x16")]
    shape: Vec<(usize, usize)>,
    /// The shapes of the covariances: full, tied, diag and spherical
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "diag,full")]
    covariance_type: Vec<CovarianceType>,
    /// Kernels by name or variant
    #[arg(long, value_delimiter = ',')]
    kernel: Vec<String>,
    /// Compute in float64
    #[arg(long)]
    float64: bool,
    /// Give the samples weights
    #[arg(long)]
    weights: bool,
    #[command(flatten)]
    rates: Rates,
}

/// `13x8` as (13, 8).
fn shape(text: &str) -> anyhow::Result<(usize, usize)> {
    let (d, k) = text.split_once('x').context("a shape is DxK, such as 13x8")?;
    Ok((d.parse()?, k.parse()?))
}

impl Operations {
    pub fn run(mut self) -> anyhow::Result<()> {
        text::print(&cuda_devices()?[0])?;
        if self.float64 {
            self.rates = Rates { bandwidth: self.rates.bandwidth / 2.0, flops: self.rates.flops / 2.0 };
        }
        let mut rows = Vec::new();
        for &n in &self.n {
            for &(d, k) in &self.shape {
                let x = normal(n, d)?;
                for &covariance_type in &self.covariance_type {
                    for kernel in kernels(&self.kernel) {
                        let times = self.times(&x, covariance_type, k, kernel)?;
                        let shape =
                            [text::grouped(n as u64), d.to_string(), k.to_string(), covariance_type.to_string()];
                        rows.push(shape.into_iter().chain(times).collect());
                    }
                }
            }
        }
        let header = "N D K type kernels launch total floor E-step iteration floor scores labels rows";
        text::print(text::table(&header.split(' ').collect::<Vec<_>>(), rows, 0))
    }

    /// The kernels, and the times in their columns; a dash if the requested kernel is for other operations.
    fn times(
        &self,
        x: &Array2<f32>,
        covariance_type: CovarianceType,
        k: usize,
        kernel: Option<String>,
    ) -> anyhow::Result<Vec<String>> {
        let (n, d) = x.dim();
        let (double, weights) =
            (self.float64.then(|| x.mapv(f64::from)), Array1::from_shape_fn(n, |i| 0.5 + (i % 4) as f64 / 4.0));
        let mut samples = match &double {
            Some(x) => Samples::from_f64(x.view())?,
            None => Samples::from_f32(x.view())?,
        };
        if self.weights {
            samples = samples.with_weights(weights.view())?;
        }
        let mut cuda = CudaEvaluator::new(samples, 0, &CudaOptions::default().with_kernel(kernel.clone()))?;
        let mixtures = mixtures(SETS, [k, d], covariance_type)?;
        let mut kernels = Vec::new();
        let mut time = |seconds: &dyn Fn(&mut CudaEvaluator<'_>) -> Result<f64>| {
            let seconds = seconds(&mut cuda);
            let used = cuda.describe().kernel;
            match seconds {
                Ok(seconds) if kernel.as_ref().is_none_or(|kernel| used.starts_with(kernel)) => {
                    if !kernels.contains(&used) {
                        kernels.push(used);
                    }
                    Ok(text::seconds(seconds))
                }
                Ok(_) | Err(Error::Kernel { .. }) => Ok("–".into()),
                Err(error) => Err(error),
            }
        };
        let floor = |task| text::seconds(self.rates.floor(task, covariance_type, [n, k, d]));
        let of = |i: usize| &mixtures[i % SETS];
        let rows: Vec<usize> = (0..ROWS).map(|i| i * 7919 % n).collect();
        let times = [
            time(&|cuda| cuda.kernel_seconds(of(0), 10).and_then(|_| cuda.kernel_seconds(of(0), LAUNCHES)))?,
            time(&|cuda| median(|i| cuda.log_likelihood(of(i)).map(drop)))?,
            floor(Task::Total),
            time(&|cuda| median(|i| cuda.statistics(of(i)).map(drop)))?,
            time(&|cuda| {
                median(|i| cuda.statistics(of(i))?.into_update(of(i), 0.0, &Freeze::default(), None).map(drop))
            })?,
            floor(Task::Em),
            time(&|cuda| median(|i| cuda.score_samples(of(i)).map(drop)))?,
            time(&|cuda| median(|i| cuda.predict(of(i)).map(drop)))?,
            time(&|cuda| median(|_| cuda.rows(&rows).map(drop)))?,
        ];
        Ok([kernels.join(", ")].into_iter().chain(times).collect())
    }
}
