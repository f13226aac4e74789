//! Covariances with matrices over samples with missing values. Rows with the same observed columns, a pattern, are
//! neighbours on the device, with 0 in place of missing values. Each pattern has its own parameters and sums, and a
//! launch covers all patterns:
//!
//! 1. `marginals` factorises the observed columns' part of the mixture, for each pattern and component;
//! 2. `fused_patterns`, or `density`, `posterior` and `accumulate`, evaluate the rows with their pattern's parameters;
//! 3. `complete_patterns` makes sums of all columns from those of the observed ones;
//! 4. `reduce_sets` adds up the patterns.
//!
//! If the parameters and sums of all patterns would need more than 256 MiB, patterns take turns. With as many patterns
//! as rows, the factorisations take all the time.
pub(crate) mod arrangement;
mod launches;
mod pieces;
mod store;

use super::super::device::memory::{Numbers, allocate, copied, enlarge, enlarge_with_zeros};
use super::super::device::mismatch;
use super::super::device::place::Element;
use super::super::device::samples::Columns;
use super::super::device::slots::Slots;
use super::super::device::stream::{Running, Stream};
use super::super::device::workspace::Upload;
use super::super::general::posterior_blocks;
use super::super::likelihood::{ReduceSets, Totals, exp2_bias};
use super::super::options::CudaOptions;
use arrangement::{Batch, Shape};
use gmm_core::backends::cpu::CpuEvaluator;
use gmm_core::backends::enough_digits::{EnoughDigits, FramedEvaluator};
use gmm_core::contract::evaluator::{
    DataFacts, Description, Evaluator, check_features, far_rows, labels_from_afar, responsibilities,
    responsibilities_from_afar,
};
use gmm_core::data::frame::Frame;
use gmm_core::data::samples::{Rows, Samples, View};
use gmm_core::error::{Error, Result};
use gmm_core::interrupt::Interrupt;
use gmm_core::model::mixture::Mixture;
use gmm_core::precision::Precision;
use gmm_core::statistics::Statistics;
use gmm_driver::{DeviceBuffer, Plain};
use gmm_kernels::data::QUAD;
use gmm_kernels::entries;
use gmm_kernels::estep::{fused, fused_patterns};
use gmm_kernels::general::density::TILE;
use gmm_kernels::patterns::{self, MATRICES, VECTORS};
use launches::{Complete, FusedPatterns, Marginals, OfBatch};
use ndarray::{Array1, Array2};
use std::any::TypeId;
use std::f64::consts::LN_2;
use std::sync::Arc;
use store::Store;

/// Most qₖ, and features' values, of a piece for the general kernels, for the L2 cache to hold; but see [`MIN_PIECE`].
const PIECE_NUMBERS: usize = 1 << 21;
/// Least rows of a piece, unless it is a single slice.
const MIN_PIECE: usize = 2048;
/// Results of a batch besides the sums: see [`patterns::values`].
const BESIDE_SUMS: usize = patterns::values(0, 1);

/// Returns an evaluator, on the device of this number, of mixtures with matrices over samples with missing values.
///
/// # Errors
/// [`Error::NoCudaDevice`]; [`Error::Unsupported`] if the samples do not fit into the device's memory; [`Error::Cuda`].
pub(crate) fn evaluator<'a>(
    samples: Samples<'a>,
    ordinal: usize,
    options: &CudaOptions,
) -> Result<Box<dyn Evaluator + 'a>> {
    let limit = options.memory_limit;
    if matches!(samples.view(), View::F32(_)) {
        let float32 = ByPattern::<f32>::new(samples.clone(), ordinal, limit)?;
        return Ok(Box::new(EnoughDigits::new(float32, move || float64(samples.clone(), ordinal, limit))));
    }
    float64(samples, ordinal, limit)
}

/// Returns the [`evaluator`] in float64. The host evaluates mixtures that need the differences from each mean.
fn float64<'a>(samples: Samples<'a>, ordinal: usize, limit: Option<usize>) -> Result<Box<dyn Evaluator + 'a>> {
    let float64 = ByPattern::<f64>::new(samples.clone(), ordinal, limit)?;
    let open = move || Ok(Box::new(CpuEvaluator::new(samples.clone())?) as _);
    Ok(Box::new(EnoughDigits::new(float64, open)))
}

/// Evaluates mixtures with matrices over samples with missing values, in one precision.
#[derive(Debug)]
pub(crate) struct ByPattern<'a, T: Element> {
    store: Arc<Store<T>>,
    samples: Samples<'a>,
    stream: Stream,
    mixture: Upload<f64>,
    memory: Memory<T>,
    /// The needs of the latest mixtures of some K, for `fused_patterns` and for the general kernels.
    fused: Option<Ready>,
    general: Option<Ready>,
    latest: &'static str,
}

/// The needs of mixtures of one K besides memory for numbers.
#[derive(Debug)]
struct Ready {
    shape: Shape,
    slices: DeviceBuffer<u32>,
    first_slices: DeviceBuffer<u32>,
}

#[derive(Debug)]
struct Memory<T: Plain> {
    parameters: DeviceBuffer<T>,
    matrices: DeviceBuffer<f64>,
    vectors: DeviceBuffer<f64>,
    constants: DeviceBuffer<f64>,
    problems: DeviceBuffer<i32>,
    offsets: DeviceBuffer<f64>,
    values: DeviceBuffer<f64>,
    sums: DeviceBuffer<f64>,
    totals: DeviceBuffer<f64>,
    results: Slots,
    /// For the general kernels, of a piece: qₖ, then responsibilities, (K, rows); and a row's results.
    q: DeviceBuffer<T>,
    scores: DeviceBuffer<f64>,
    labels: DeviceBuffer<u32>,
    /// A total for each block of `posterior` in each piece; and their sum.
    blocks: DeviceBuffer<f64>,
    total: Slots,
}

/// The results of an evaluation besides the total.
enum Goal<'g> {
    Total,
    Scores(&'g mut [f64]),
    Labels(&'g mut [usize]),
    /// (N, K)
    Responsibilities(&'g mut Array2<f64>),
    /// [`patterns::sums`] of each component.
    Sums(&'g mut Vec<f64>),
}

impl<'a, T: Element> ByPattern<'a, T> {
    pub fn new(samples: Samples<'a>, ordinal: usize, memory_limit: Option<usize>) -> Result<Self> {
        let store = Store::new(&samples, ordinal, memory_limit)?;
        Self::over(Arc::new(store), samples)
    }

    fn over(store: Arc<Store<T>>, samples: Samples<'a>) -> Result<Self> {
        let _entered = store.gpu.enter()?;
        let multiprocessors = store.gpu.limits.multiprocessors;
        // For any number of components.
        let blocks = posterior_blocks(store.arrangement.places.min(PIECE_NUMBERS), usize::MAX, multiprocessors);
        let memory = Memory {
            parameters: allocate(1)?,
            matrices: allocate(1)?,
            vectors: allocate(1)?,
            constants: allocate(1)?,
            problems: allocate(1)?,
            offsets: allocate(1)?,
            values: allocate(1)?,
            sums: allocate(1)?,
            totals: allocate(1)?,
            results: Slots::new(1)?,
            q: allocate(1)?,
            scores: allocate(1)?,
            labels: allocate(1)?,
            blocks: allocate(blocks as usize)?,
            total: Slots::new(1)?,
        };
        let (stream, mixture) = (Stream::new()?, Upload::new()?);
        Ok(Self { store, samples, stream, mixture, memory, fused: None, general: None, latest: "not chosen yet" })
    }

    fn weight_scale(&self) -> f64 {
        self.store.weight_scale.unwrap_or(1.0)
    }

    /// Evaluates a mixture and returns its total log-likelihood.
    fn evaluate(&mut self, mixture: &Mixture, mut goal: Goal<'_>) -> Result<f64> {
        let (k, d) = (mixture.n_components(), self.store.arrangement.d);
        check_features(mixture, d)?;
        let _entered = self.store.gpu.enter()?;
        let fused = TypeId::of::<T>() == TypeId::of::<f32>()
            && d <= fused_patterns::MAX_FEATURES
            && k <= fused::MAX_COMPONENTS
            && matches!(goal, Goal::Total | Goal::Sums(_));
        self.latest = if fused { "fused_patterns" } else { "general" };
        let kept = if fused { &mut self.fused } else { &mut self.general };
        let ready = match kept.take().filter(|ready| ready.shape.k == k) {
            Some(ready) => ready,
            None => {
                let shape = Shape::new::<T>(&self.store.arrangement, k, fused);
                Ready { slices: copied(&shape.slices)?, first_slices: copied(&shape.first_slices)?, shape }
            }
        };
        let total = self.evaluate_by(&ready, mixture, &mut goal);
        *(if fused { &mut self.fused } else { &mut self.general }) = Some(ready);
        total
    }

    fn evaluate_by(&mut self, ready: &Ready, mixture: &Mixture, goal: &mut Goal<'_>) -> Result<f64> {
        let (shape, frame) = (&ready.shape, &self.store.frame);
        let Shape { k, d, .. } = *shape;
        let mut written = Ok(());
        let numbers = arrangement::mixture_numbers(k, d);
        self.mixture.fill(numbers, |to| written = arrangement::write_mixture(mixture, frame, to))?;
        written?;
        self.memory.prepare(shape, goal)?;
        let this = &*self;
        // Waiting for later work waits for this.
        let _ = this.mixture.send(&this.stream)?.followed_by(this.stream.idle());
        let results = if matches!(goal, Goal::Sums(_)) { patterns::values(k, d) } else { BESIDE_SUMS };
        let mut sums = vec![0.0; results];
        let interrupt = Interrupt::current();
        for (number, batch) in shape.batches.iter().enumerate() {
            interrupt.check()?;
            let running = this.marginals(ready, batch)?;
            let slots = &this.memory.results;
            slots.clear(results);
            let running = match shape.capacity {
                0 => running.followed_by(this.general(ready, batch, number == 0, goal)?),
                _ => running.followed_by(this.fused(ready, batch)?),
            };
            let running = running.followed_by(this.complete(ready, batch, results)?);
            let found = running.numbers(slots, results)?;
            if found[results - 2] != 0.0 {
                let mut problems = vec![0; batch.patterns.len() * k];
                this.stream.read(&this.memory.problems, &mut problems)?;
                arrangement::check_problems(&problems, k, mixture, T::NAME)?;
            }
            sums.iter_mut().zip(found).for_each(|(sum, v)| *sum += v);
        }
        if let Some(v) = sums.iter().find(|v| !v.is_finite()) {
            return Err(Error::Cuda { op: "cuLaunchKernel", message: format!("the kernel's result is {v}") });
        }
        let store = &this.store;
        let (log2, bias) = match shape.capacity {
            0 => (this.general_total(shape)?, 0.0),
            _ => (sums[results - 1], exp2_bias(store.gpu)?),
        };
        let offsets = sums[results - BESIDE_SUMS] + store.arrangement.frame_offset(&store.frame);
        if let Goal::Sums(to) = goal {
            sums.truncate(results - BESIDE_SUMS);
            **to = sums;
        }
        Ok(LN_2 * (log2 * this.weight_scale() + offsets + store.total_weight * bias))
    }

    fn of_batch<'m>(&'m self, shape: &'m Shape, batch: &'m Batch) -> OfBatch<'m> {
        let Self { store, memory, .. } = self;
        OfBatch {
            shape,
            batch,
            masks: Numbers::of(&store.masks),
            words: store.arrangement.words(),
            weights: Numbers::of(&store.weights),
            matrices: Numbers::of(&memory.matrices),
            vectors: Numbers::of(&memory.vectors),
            values: Numbers::of(&memory.values),
        }
    }

    fn marginals<'m>(&'m self, ready: &'m Ready, batch: &'m Batch) -> Result<Running<'m, ()>> {
        let of = self.of_batch(&ready.shape, batch);
        let launch = Marginals {
            of,
            mixture: self.mixture.device(),
            parameters: Numbers::of(&self.memory.parameters),
            constants: Numbers::of(&self.memory.constants),
            problems: Numbers::of(&self.memory.problems),
            offsets: Numbers::of(&self.memory.offsets),
        };
        // As many as let two blocks be on a multiprocessor, without local memory.
        let kernel = self.store.gpu.kernel(&entries::marginals::<T>(), Some(128))?;
        Ok(self.stream.launch(kernel, of.grid(), launch)?.borrowed())
    }

    /// Computes the sums and log-likelihoods of a batch's slices by `fused_patterns`. Only float32 gets here.
    fn fused<'m>(&'m self, ready: &'m Ready, batch: &'m Batch) -> Result<Running<'m, ()>> {
        let shape = &ready.shape;
        let float32 = |numbers: Numbers<'m, T>| numbers.cast::<f32>();
        let (Some(columns), Some(parameters)) =
            (float32(Numbers::of(&self.store.columns)), float32(Numbers::of(&self.memory.parameters)))
        else {
            return Err(mismatch("the bytes of a number for `fused_patterns`", vec![4], vec![size_of::<T>()]));
        };
        let gpu = self.store.gpu;
        let launch = FusedPatterns {
            shape,
            batch,
            columns: Columns::new(columns, self.store.arrangement.padded(), shape.d, true)?,
            weighted: self.store.weight_scale.is_some(),
            // The next launch reads the same samples; this many stay in half of the cache.
            cached_quads: (gpu.limits.l2 / 2 / (shape.d * QUAD * size_of::<f32>())).min(u32::MAX as usize) as u32,
            slices: Numbers::of(&ready.slices),
            parameters,
            sums: Numbers::of(&self.memory.sums),
            totals: Numbers::of(&self.memory.totals),
        };
        let kernel = gpu.kernel(&entries::fused_patterns(shape.capacity, shape.d), None)?;
        Ok(self.stream.launch(kernel, launch.grid(), launch)?.borrowed())
    }

    /// Computes the sums of all columns of a batch, added up over its patterns, and starts to copy `results` of the
    /// numbers to the host: all, or those beside the sums.
    fn complete<'m>(&'m self, ready: &'m Ready, batch: &'m Batch, results: usize) -> Result<Running<'m, ()>> {
        let (shape, memory) = (&ready.shape, &self.memory);
        let of = self.of_batch(shape, batch);
        let fused = shape.capacity > 0;
        let launch = Complete {
            of,
            first_slices: Numbers::of(&ready.first_slices),
            sums: (results > BESIDE_SUMS).then(|| Numbers::of(&memory.sums)),
            totals: fused.then(|| Numbers::of(&memory.totals)),
        };
        let kernel = self.store.gpu.kernel(&entries::complete_patterns(), None)?;
        let running = self.stream.launch(kernel, of.grid(), launch)?.borrowed();
        let (count, all) = (batch.patterns.len(), patterns::values(shape.k, shape.d));
        let sets = ReduceSets {
            partials: Numbers::of(&memory.values).part((all - results) * count..all * count)?,
            count,
            totals: Totals::Slots(&memory.results, results),
        };
        let reduce = self.store.gpu.kernel(&entries::reduce_sets(), None)?;
        Ok(running.followed_by(self.stream.launch(reduce, sets.grid(results), sets)?.borrowed()))
    }
}

fn most_rows(shape: &Shape) -> usize {
    (PIECE_NUMBERS / shape.k.max(shape.d)).max(MIN_PIECE)
}

impl<T: Element> Memory<T> {
    fn prepare(&mut self, shape: &Shape, goal: &Goal<'_>) -> Result<()> {
        let Shape { k, d, .. } = *shape;
        let most = |of: &dyn Fn(&Batch) -> usize| shape.batches.iter().map(of).max().unwrap_or(0);
        let patterns = most(&|batch| batch.patterns.len());
        let slices = most(&|batch| batch.slices.len());
        let results = patterns::values(k, d);
        enlarge(&mut self.parameters, patterns * shape.stride)?;
        enlarge(&mut self.matrices, patterns * k * MATRICES * d * d)?;
        enlarge(&mut self.vectors, patterns * k * VECTORS * d)?;
        enlarge(&mut self.constants, patterns * k)?;
        enlarge(&mut self.problems, patterns * k)?;
        enlarge(&mut self.offsets, patterns)?;
        enlarge(&mut self.values, patterns * results)?;
        enlarge(&mut self.totals, slices)?;
        enlarge(&mut self.sums, slices * shape.sums)?;
        if self.results.len() < results {
            self.results = Slots::new(results)?;
        }
        if shape.capacity > 0 {
            return Ok(());
        }
        let pieces = shape.batches.iter().flat_map(|batch| shape.pieces(batch, most_rows(shape)));
        let rows = pieces.map(|slices| shape.rows(slices).len()).max().unwrap_or(0).next_multiple_of(TILE);
        // The kernels read numbers behind the last sample, and ignore them.
        enlarge_with_zeros(&mut self.q, k * rows)?;
        match goal {
            Goal::Scores(_) => enlarge(&mut self.scores, rows)?,
            Goal::Labels(_) => enlarge(&mut self.labels, rows)?,
            Goal::Total | Goal::Responsibilities(_) | Goal::Sums(_) => {}
        }
        Ok(())
    }
}

impl<T: Element> Drop for ByPattern<'_, T> {
    fn drop(&mut self) {
        // The fields are freed after this. A failure cannot be reported here.
        let _ = self.stream.synchronize();
    }
}

impl<T: Element> FramedEvaluator for ByPattern<'_, T> {
    const PRECISION: Precision = T::PRECISION;

    fn frame(&self) -> &Frame {
        &self.store.frame
    }

    fn shared(&self) -> Result<Self> {
        Self::over(Arc::clone(&self.store), self.samples.clone())
    }
}

impl<T: Element> Evaluator for ByPattern<'_, T> {
    fn data(&self) -> DataFacts<'_> {
        DataFacts::from(&self.samples)
    }

    fn describe(&self) -> Description {
        let (info, patterns) = (&self.store.gpu.info, self.store.arrangement.patterns.len());
        let plural = if patterns == 1 { "" } else { "s" };
        let (ordinal, name, float) = (info.ordinal, &info.name, T::NAME);
        let device = format!("cuda:{ordinal} {name} ({float}, {patterns} pattern{plural} of missing values)");
        Description::new(device, self.latest)
    }

    fn precision(&self, _: &Mixture, _: gmm_core::precision::Operation) -> Precision {
        T::PRECISION
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        self.evaluate(mixture, Goal::Total)
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        let mut scores = vec![0.0; self.n_samples()];
        self.evaluate(mixture, Goal::Scores(&mut scores))?;
        Ok(scores.into())
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        let mut sums = Vec::new();
        let log_likelihood = self.evaluate(mixture, Goal::Sums(&mut sums))?;
        let (factor, weight) = (self.weight_scale(), self.store.total_weight);
        arrangement::statistics(&sums, factor, (weight, log_likelihood), mixture, &self.store.frame)
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.samples.select(rows)
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        let mut labels = vec![0; self.n_samples()];
        if self.evaluate(mixture, Goal::Labels(&mut labels))? == f64::NEG_INFINITY {
            let far = far_rows(&self.score_samples(mixture)?);
            labels_from_afar(&mut labels, &far, mixture, |rows| self.samples.select(rows))?;
        }
        Ok(labels)
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        let mut r = responsibilities(self.n_samples(), mixture.n_components())?;
        self.evaluate(mixture, Goal::Responsibilities(&mut r))?;
        responsibilities_from_afar(&mut r, mixture, |rows| self.samples.select(rows))?;
        Ok(r)
    }
}
