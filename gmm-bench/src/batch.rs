use crate::{median, normal};
use clap::Args;
use gaussmix::cuda::{CudaEvaluator, CudaOptions};
use gaussmix::data::Samples;
use gaussmix::evaluator::Evaluator;
use gaussmix::model::{Covariances, Mixture};
use gaussmix::program::whole_number;
use gaussmix::{Error, Result};
use gaussmix_cli::bench::text;
use ndarray::{Array1, Array2, s};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

const FEATURES: [usize; 2] = [13, 20];
const K: usize = 8;
/// Parameter sets of a batch.
const SETS: [usize; 4] = [64, 32, 16, 8];
/// Threads that evaluate batches side by side, each a share of them.
const THREADS: [usize; 5] = [1, 2, 3, 4, 6];
/// Batches of one measurement.
const BATCHES: usize = 40;

/// Time batches of parameter sets on a GPU, by several threads side by side
///
/// D = 13 and D = 20, K = 8, diagonal covariances; times are per set.
#[derive(Debug, Args)]
pub struct Batch {
    /// Numbers of samples
    #[arg(long, value_delimiter = ',', value_parser = whole_number, default_value = "1e3,1e5,1e6")]
    n: Vec<usize>,
    /// Kernels by name or variant, such as batch_mma or batch_mma/64:512x1:0
    #[arg(long, value_delimiter = ',')]
    kernel: Vec<String>,
    /// Distance between sets; by default about the width of a posterior of 10⁶ samples
    #[arg(long, default_value = "3e-3")]
    apart: f64,
}

impl Batch {
    pub fn run(self) -> anyhow::Result<()> {
        let mut rows = Vec::new();
        for d in FEATURES {
            let sets = self.sets(d)?;
            let x = normal(self.n.iter().copied().max().unwrap_or(0), d)?;
            for kernel in kernels(&self.kernel) {
                for &n in &self.n {
                    let options = CudaOptions::default().with_kernel(kernel.clone());
                    let mut cuda = CudaEvaluator::new(Samples::from_f32(x.slice(s![..n, ..]))?, 0, &options)?;
                    // Fixes the reference of all batches, and the choice of the kernel.
                    cuda.sampling().into_iter().for_each(|sampling| sampling.fix_batch_reference(&sets[0]));
                    cuda.log_likelihood_batch(&sets)?;
                    for threads in THREADS {
                        let times = SETS.iter().map(|&count| side_by_side(&cuda, threads, &sets[..count]));
                        let times = times.collect::<Result<Vec<_>>>()?.into_iter().map(text::seconds);
                        let shape = [d.to_string(), text::grouped(n as u64), threads.to_string()];
                        rows.push(shape.into_iter().chain(times).chain([cuda.describe().kernel]).collect());
                    }
                }
            }
        }
        let header = ["D", "N", "threads", "a set of 64", "of 32", "of 16", "of 8", "kernel"];
        text::print(text::table(&header, rows, 0))
    }

    fn sets(&self, d: usize) -> Result<Vec<Mixture>> {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let weights = Array1::from_shape_simple_fn(K, || rng.random_range(0.5..1.5));
        let means = Array2::from_shape_simple_fn((K, d), || rng.sample::<f64, _>(StandardNormal));
        let variances = Array2::from_shape_simple_fn((K, d), || rng.random_range(0.3..2.0));
        let mut set = || {
            let mut step = || self.apart * rng.sample::<f64, _>(StandardNormal);
            let weights = weights.mapv(|v: f64| v * step().exp());
            let means = means.mapv(|v| v + step());
            let variances = variances.mapv(|v: f64| v * step().exp());
            Mixture::new(&weights / weights.sum(), means, Covariances::Diag(variances))
        };
        (0..SETS[0]).map(|_| set()).collect()
    }
}

/// The kernels asked for; `None` is the device's own choice.
pub fn kernels(asked: &[String]) -> Vec<Option<String>> {
    if asked.is_empty() { vec![None] } else { asked.iter().cloned().map(Some).collect() }
}

/// Seconds per set if `threads` threads evaluate batches of these sets at the same time.
fn side_by_side(cuda: &CudaEvaluator<'_>, threads: usize, sets: &[Mixture]) -> Result<f64> {
    let mut shares: Vec<_> = (0..threads).map(|_| cuda.share()).collect::<Result<_>>()?;
    let batches = BATCHES / threads;
    let of_thread = |share: &mut Box<dyn Evaluator + '_>| -> Result<()> {
        (0..batches).try_for_each(|_| share.log_likelihood_batch(sets).map(drop))
    };
    let seconds = median(|_| {
        std::thread::scope(|scope| {
            let running: Vec<_> = shares.iter_mut().map(|share| scope.spawn(|| of_thread(share))).collect();
            running.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok::<_, Error>(())))
        })
    })?;
    Ok(seconds / (batches * threads * sets.len()) as f64)
}
