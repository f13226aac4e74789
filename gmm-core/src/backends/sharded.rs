//! Samples divided over several devices.
use super::parts;
use crate::compensated::neumaier_sum;
use crate::contract::draw::{Draw, Drawn};
use crate::contract::evaluator::{
    DataFacts, Description, Evaluator, check_features, check_responsibilities, data_facts, shift_row,
};
use crate::contract::markov::Markov;
use crate::contract::sampling::Sampling;
use crate::data::samples::{Rows, check_rows};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::model::mixture::Mixture;
use crate::precision::{Operation, Precision};
use crate::statistics::Statistics;
use ndarray::{Array1, Array2};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::yield_now;
use std::time::{Duration, Instant};

/// How long a thread waits awake: for the next evaluation, or for the other shards. To wake a thread that sleeps takes
/// some 50 microseconds, as long as a GPU takes for 10⁷ numbers.
const AWAKE: Duration = Duration::from_millis(1);

/// The pauses in which a thread leaves a job that has ended: a microsecond.
const LAST_STEPS: usize = 30;

/// Waits awake until a condition is true, or for [`AWAKE`].
fn wait_awake(until: impl Fn() -> bool) {
    let start = Instant::now();
    while !until() && start.elapsed() < AWAKE {
        yield_now();
    }
}

/// An evaluator of samples divided over shards, evaluators that work at the same time: one GPU each, for example.
///
/// Results are combined in the order of the shards, so the same division always gives the same bits.
///
/// ```
/// use gmm_host::{CpuEvaluator, Evaluator, Samples, ShardedEvaluator};
/// use ndarray::Array2;
///
/// let x = Array2::<f32>::zeros((8, 2));
/// let samples = Samples::from_f32(x.view())?;
/// let shards: Vec<Box<dyn Evaluator + '_>> =
///     vec![Box::new(CpuEvaluator::new(samples.rows(0..3))?), Box::new(CpuEvaluator::new(samples.rows(3..8))?)];
/// let data = ShardedEvaluator::new(shards)?;
/// assert_eq!((data.n_samples(), data.n_shards()), (8, 2));
/// # Ok::<(), gmm_host::Error>(())
/// ```
pub struct ShardedEvaluator<'a> {
    shards: Vec<Box<dyn Evaluator + 'a>>,
    /// The first row of each shard, and N at the end.
    starts: Vec<usize>,
    /// A thread for each shard but the first, which the calling thread evaluates.
    pool: ThreadPool,
    /// The evaluations so far, for which the threads wait.
    evaluations: Arc<AtomicUsize>,
}

impl<'a> ShardedEvaluator<'a> {
    /// Takes the shards in the order of their rows. A CPU shard that should use all its threads must be the first.
    ///
    /// # Errors
    /// [`Error::EmptyData`] without shards, [`Error::ShapeMismatch`] if their numbers of features differ,
    /// [`Error::Threads`] if threads cannot be started.
    pub fn new(shards: Vec<Box<dyn Evaluator + 'a>>) -> Result<Self> {
        // At least one: a pool of none would get a thread per core.
        let n_threads = shards.len().saturating_sub(1).max(1);
        let pool = ThreadPoolBuilder::new().num_threads(n_threads).thread_name(|i| format!("shard {}", i + 1)).build();
        let pool = pool.map_err(|e| Error::Threads { n_threads, message: e.to_string() })?;
        let Some(first) = shards.first() else { return Err(Error::EmptyData { rows: 0, columns: 0 }) };
        let d = first.n_features();
        let mut starts = vec![0];
        for shard in &shards {
            let (n, got) = (shard.n_samples(), shard.n_features());
            if got != d {
                return Err(Error::ShapeMismatch { what: "a shard", expected: vec![n, d], got: vec![n, got] });
            }
            starts.push(starts[starts.len() - 1] + n);
        }
        Ok(Self { shards, starts, pool, evaluations: Arc::default() })
    }

    /// Returns the number of shards.
    pub fn n_shards(&self) -> usize {
        self.shards.len()
    }

    /// Evaluates all shards at once; returns their results in order, or the first error.
    fn map<T: Send>(
        &mut self,
        mixture: &Mixture,
        f: impl Fn(&mut (dyn Evaluator + 'a)) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        self.map_with_start(mixture, |shard, _| f(shard))
    }

    /// As [`map`](Self::map), but `f` also gets the shard's first row.
    fn map_with_start<T: Send>(
        &mut self,
        mixture: &Mixture,
        f: impl Fn(&mut (dyn Evaluator + 'a), usize) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        check_features(mixture, self.n_features())?;
        let mut results: Vec<Option<Result<T>>> = self.shards.iter().map(|_| None).collect();
        let mut work = self.shards.iter_mut().zip(&self.starts).zip(&mut results);
        let first = work.next();
        let others: Vec<_> = work.map(|work| Mutex::new(Some(work))).collect();
        let (interrupt, ended) = (Interrupt::current(), AtomicUsize::new(0));
        let evaluate = |shard: &mut Box<dyn Evaluator + 'a>, start: &usize, result: &mut Option<Result<T>>| {
            *result = Some(interrupt.install(|| f(shard.as_mut(), *start)));
            ended.fetch_add(1, Ordering::Release);
        };
        let n_evaluations = self.evaluations.fetch_add(1, Ordering::Relaxed) + 1;
        self.pool.in_place_scope(|scope| {
            if !others.is_empty() {
                // Each thread has its own shard. If shards were jobs for any thread, a thread waiting inside its shard
                // could take the next shard meanwhile and return with another GPU's context.
                scope.spawn_broadcast(|_, thread| {
                    let work = others[thread.index()].lock().unwrap_or_else(PoisonError::into_inner).take();
                    work.into_iter().for_each(|((shard, start), result)| evaluate(shard, start, result));
                });
            }
            first.into_iter().for_each(|((shard, start), result)| evaluate(shard, start, result));
            wait_awake(|| ended.load(Ordering::Acquire) > others.len());
            // The threads' jobs end a moment after their shards.
            (0..LAST_STEPS).for_each(|_| spin_loop());
        });
        if !others.is_empty() {
            let evaluations = self.evaluations.clone();
            self.pool.spawn_broadcast(move |_| wait_awake(|| evaluations.load(Ordering::Relaxed) != n_evaluations));
        }
        drop(others);
        let shifted = |(result, &start): (Result<T>, &usize)| result.map_err(|e| shift_row(e, start));
        results.into_iter().flatten().zip(&self.starts).map(shifted).collect()
    }
}

#[deny(clippy::missing_trait_methods)]
impl Evaluator for ShardedEvaluator<'_> {
    data_facts!();

    /// Without weights, which each shard holds.
    fn data(&self) -> DataFacts<'_> {
        let total_weight = neumaier_sum(self.shards.iter().map(|shard| shard.total_weight()));
        let has_noise = self.shards.iter().any(|shard| shard.data().has_noise);
        DataFacts {
            total_weight,
            has_noise,
            ..DataFacts::new(self.starts[self.shards.len()], self.shards[0].n_features())
        }
    }

    /// The devices in the order of the shards, and the distinct kernels.
    fn describe(&self) -> Description {
        let all: Vec<Description> = self.shards.iter().map(|shard| shard.describe()).collect();
        let devices: Vec<&str> = all.iter().map(|d| d.device.as_str()).collect();
        let mut kernels: Vec<&str> = all.iter().map(|d| d.kernel.as_str()).collect();
        kernels.dedup();
        let gpu_problem = all.iter().find_map(|d| d.gpu_problem.clone());
        Description { gpu_problem, ..Description::new(devices.join(" + "), kernels.join(" + ")) }
    }

    fn precision(&self, mixture: &Mixture, operation: Operation) -> Precision {
        let float32 = self.shards.iter().any(|shard| shard.precision(mixture, operation) == Precision::Float32);
        if float32 { Precision::Float32 } else { Precision::Float64 }
    }

    fn share(&self) -> Result<Box<dyn Evaluator + '_>> {
        let shards = self.shards.iter().map(|shard| shard.share()).collect::<Result<Vec<_>>>()?;
        Ok(Box::new(ShardedEvaluator::new(shards)?))
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        Ok(neumaier_sum(self.map(mixture, |shard| shard.log_likelihood(mixture))?))
    }

    fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
        let Some(first) = mixtures.first() else { return Ok(Vec::new()) };
        Ok(parts::totals(mixtures.len(), &self.map(first, |shard| shard.log_likelihood_batch(mixtures))?))
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        Ok(self.map(mixture, |shard| shard.score_samples(mixture))?.into_iter().flatten().collect())
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        parts::merged(mixture, self.map(mixture, |shard| shard.statistics(mixture))?)
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        check_rows(rows, self.n_samples())?;
        let d = self.n_features();
        let shards = &mut self.shards;
        parts::rows(&self.starts, d, rows, |part, rows| shards[part].rows(rows))
    }

    fn draw(&mut self, draw: &Draw<'_>) -> Result<Vec<Drawn>> {
        let drawn = self.map_with_start(draw.centres(), |shard, start| shard.draw(&draw.from_row(start)))?;
        Ok(draw.least(drawn.concat()))
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        Ok(self.map(mixture, |shard| shard.predict(mixture))?.concat())
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        check_responsibilities(self.n_samples(), mixture.n_components())?;
        parts::stacked(&self.map(mixture, |shard| shard.predict_proba(mixture))?)
    }
    fn sampling(&mut self) -> Option<&mut dyn Sampling> {
        Some(self)
    }

    fn markov(&mut self) -> Option<&mut dyn Markov> {
        None
    }
}

/// One useful share only: every share already has a thread for each shard.
impl Sampling for ShardedEvaluator<'_> {
    fn settle(&mut self) {
        self.shards.iter_mut().filter_map(|shard| shard.sampling()).for_each(Sampling::settle);
    }

    fn fix_batch_reference(&mut self, mixture: &Mixture) {
        let sampling = self.shards.iter_mut().filter_map(|shard| shard.sampling());
        sampling.for_each(|sampling| sampling.fix_batch_reference(mixture));
    }
}

impl std::fmt::Debug for ShardedEvaluator<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardedEvaluator")
            .field("starts", &self.starts)
            .field("devices", &self.describe().device)
            .finish()
    }
}
