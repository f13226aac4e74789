//! Samples that each have their own noise, in float64, by the kernels `noisy_density`, `posterior` and `noisy_sums` in
//! turn, for a piece of the samples after the other.
pub(super) mod launches;
mod store;

use super::device::layout::STRIDE;
use super::device::memory::{Numbers, allocate, enlarge, enlarge_with_zeros};
use super::device::slots::Slots;
use super::device::stream::{Running, Stream, finite, seconds};
use super::device::workspace::Upload;
use super::engine::Engine;
use super::general::launches::slices_in_waves;
use super::general::layout::GeneralLayout;
use super::general::posterior_blocks;
use super::general::results::{self, Goal, Piece, Results, add_slices};
use super::options::CudaOptions;
use gmm_core::backends::cpu::CpuEvaluator;
use gmm_core::contract::evaluator::{
    DataFacts, Description, Evaluator, check_features, far_rows, responsibilities, unreachable_sample,
};
use gmm_core::data::noise::Noise;
use gmm_core::data::samples::{Rows, Samples};
use gmm_core::data::true_values;
use gmm_core::error::{Error, Result};
use gmm_core::interrupt::Interrupt;
use gmm_core::model::covariances::Covariances;
use gmm_core::model::mixture::Mixture;
use gmm_core::statistics::Statistics;
use gmm_driver::DeviceBuffer;
use gmm_kernels::entries;
use gmm_kernels::noisy::{self, BLOCK, NARROW, SINGULAR};
use gmm_kernels::simt::WARP;
use launches::{Pairs, Sums};
use ndarray::{Array1, Array2};
use std::f64::consts::{LN_2, TAU};
use std::sync::Arc;
use store::Store;

/// Most numbers q, and of the noise, of a piece, for the L2 cache to hold; but see [`MIN_PIECE`].
const PIECE_NUMBERS: usize = 1 << 22;
/// Least samples of a piece.
const MIN_PIECE: usize = 4 * STRIDE;
/// Least samples of a slice, for pairs of a thread and of a warp.
const MIN_SLICE: (usize, usize) = (256, 16);

/// Evaluates samples with noise.
#[derive(Debug)]
pub(super) struct OwnNoise<'a> {
    store: Arc<Store>,
    samples: Samples<'a>,
    stream: Stream,
    parameters: Upload<f64>,
    /// q, then responsibilities, (K, samples of a piece).
    q: DeviceBuffer<f64>,
    results: Results,
    total: Slots,
    /// The sums of `noisy_sums`, slice by slice and over all of them.
    partials: DeviceBuffer<f64>,
    sums: DeviceBuffer<f64>,
}

#[derive(Clone, Copy)]
struct Shape {
    layout: GeneralLayout,
    has_noise: bool,
    of_piece: results::Shape,
}

impl<'a> OwnNoise<'a> {
    /// # Errors
    /// [`Error::Unsupported`] for a requested kernel, and those of [`Store::new`].
    pub fn new(samples: Samples<'a>, noise: &Noise<'_>, ordinal: usize, options: &CudaOptions) -> Result<Self> {
        if let Some(name) = &options.kernel {
            return Err(Error::Unsupported {
                what: format!("noise of each sample by the kernel `{name}`"),
                backend: "the CUDA backend",
                remedy: "name no kernel",
            });
        }
        Self::over(Arc::new(Store::new(&samples, noise, ordinal, options.memory_limit)?), samples)
    }

    fn over(store: Arc<Store>, samples: Samples<'a>) -> Result<Self> {
        let _entered = store.gpu.enter()?;
        Ok(Self {
            store,
            samples,
            stream: Stream::new()?,
            parameters: Upload::new()?,
            q: allocate(1)?,
            results: Results::new()?,
            total: Slots::new(1)?,
            partials: allocate(1)?,
            sums: allocate(1)?,
        })
    }

    /// Makes one pass over all samples; returns their total log-likelihood.
    fn pass(&mut self, mixture: &Mixture, mut goal: Goal<'_>) -> Result<f64> {
        let _entered = self.store.gpu.enter()?;
        let shape = self.prepare(mixture, &goal)?;
        let this = &*self;
        this.start(shape, &mut goal)?.wait()?;
        let gpu = this.store.gpu;
        if let Goal::Sums(values) = goal {
            values.resize(shape.layout.k * noisy::sums(shape.layout.d), 0.0);
            add_slices(gpu, &this.stream, &this.partials, shape.of_piece.slices, &this.sums, values)?;
        }
        let total = this.results.total(gpu, &this.stream, &this.total, shape.of_piece)?;
        Ok(LN_2 * total * this.weight_scale())
    }

    /// As [`pass`](Self::pass). Errors: also [`Error::NoSpread`].
    fn evaluate(&mut self, mixture: &Mixture, goal: Goal<'_>) -> Result<f64> {
        let total = self.pass(mixture, goal)?;
        if total != f64::NEG_INFINITY && !total.is_finite() {
            // A singular factor, whose row this names.
            self.score_samples(mixture)?;
            finite(vec![total])?;
        }
        Ok(total)
    }

    /// Sends the parameters to the device and allocates the launches' memory.
    fn prepare(&mut self, mixture: &Mixture, goal: &Goal<'_>) -> Result<Shape> {
        check_features(mixture, self.n_features())?;
        mixture.check_no_noise("noise of the samples, under the density")?;
        let (gpu, n, (k, d)) = (self.store.gpu, self.n_samples(), mixture.means().dim());
        let multiprocessors = gpu.limits.multiprocessors;
        let piece = (PIECE_NUMBERS / k.max(self.store.entries)).max(MIN_PIECE).min(n).next_multiple_of(STRIDE);
        let mut slices = 1;
        if let Goal::Sums(_) = goal {
            let kernel = gpu.kernel(&entries::noisy_sums(d), None)?;
            let at_once = kernel.blocks_at_once(BLOCK, noisy::shared_bytes(d, true))?.max(1);
            let resident = at_once * multiprocessors * (BLOCK / WARP);
            let least = if d <= NARROW { MIN_SLICE.0 } else { MIN_SLICE.1 };
            slices = slices_in_waves(k, resident as usize, piece.div_ceil(least));
            enlarge(&mut self.partials, k * noisy::sums(d) * slices)?;
            enlarge(&mut self.sums, k * noisy::sums(d))?;
        }
        let of_piece = results::Shape { piece, posterior_blocks: posterior_blocks(piece, k, multiprocessors), slices };
        self.results.prepare(of_piece, goal)?;
        enlarge_with_zeros(&mut self.q, k * piece)?;
        let layout = GeneralLayout::of_triangles(k, d);
        self.parameters.fill(layout.len(), |to| write(mixture, &layout, to))?;
        self.parameters.send(&self.stream)?.wait()?;
        Ok(Shape { layout, has_noise: !mixture.is_of_measurements(), of_piece })
    }

    /// Starts the launches over all samples, and the copies of the goal's results.
    fn start(&self, shape: Shape, goal: &mut Goal<'_>) -> Result<Running<'_, ()>> {
        let Self { store, stream, .. } = self;
        let (gpu, layout, stride) = (store.gpu, shape.layout, shape.of_piece.piece);
        let (all, parameters, q) = (store.columns()?, self.parameters.device(), Numbers::of(&self.q));
        let mut running = stream.idle();
        for first in (0..all.n()).step_by(stride) {
            Interrupt::current().check()?;
            let columns = all.part(first, stride.min(all.n() - first))?;
            let noise = shape.has_noise.then(|| store.noise(first));
            let pairs = Pairs { columns, noise, layout, parameters, q, stride };
            let kernel = gpu.kernel(&entries::noisy_density(layout.d), None)?;
            running = running.followed_by(stream.launch(kernel, pairs.grid(), pairs)?.borrowed());
            let piece = Piece { gpu, stream, columns, layout, shape: shape.of_piece, done: first };
            running = running.followed_by(self.results.posterior(piece, parameters, &self.q, goal)?);
            if let Goal::Sums(_) = goal {
                let partials = Numbers::of(&self.partials);
                let sums = Sums { pairs, slices: shape.of_piece.slices, add: first > 0, partials };
                let kernel = gpu.kernel(&entries::noisy_sums(layout.d), None)?;
                running = running.followed_by(stream.launch(kernel, sums.grid(), sums)?.borrowed());
            }
        }
        Ok(running)
    }

    fn weight_scale(&self) -> f64 {
        self.store.weight_scale.unwrap_or(1.0)
    }

    /// Returns the evaluator of a row infinitely far from all components.
    fn on_host(&self, row: usize) -> CpuEvaluator<'_> {
        CpuEvaluator::of_this_thread(self.samples.reborrow().rows(row..row + 1))
    }
}

/// Writes the parameters: lower triangles of Σ row by row, constants, weights of one, means.
fn write(mixture: &Mixture, layout: &GeneralLayout, out: &mut [f64]) {
    let [matrices, _, seeds, weights, means] = layout.sections();
    out.fill(0.0);
    for (c, to) in out[matrices].chunks_exact_mut(layout.matrix_stride).enumerate() {
        let sigma = |(i, j): (usize, usize)| match mixture.covariances() {
            Covariances::Full(v) => v[[c, i, j]],
            Covariances::Tied(v) => v[[i, j]],
            Covariances::Diag(_) | Covariances::Spherical(_) if i == j => mixture.variance(c, i),
            Covariances::Diag(_) | Covariances::Spherical(_) => 0.0,
        };
        let lower = (0..layout.d).flat_map(|i| (0..=i).map(move |j| (i, j)));
        to.iter_mut().zip(lower).for_each(|(to, place)| *to = sigma(place));
    }
    let constant = -0.5 * layout.d as f64 * TAU.log2();
    out[seeds].iter_mut().take(layout.k).enumerate().for_each(|(c, to)| *to = mixture.log2_weight(c) + constant);
    out[weights][..layout.k].fill(1.0);
    out[means].iter_mut().zip(mixture.means()).for_each(|(to, mean)| *to = *mean);
}

impl Drop for OwnNoise<'_> {
    fn drop(&mut self) {
        // The fields are freed after this. A failure cannot be reported here.
        let _ = self.stream.synchronize();
    }
}

impl Engine for OwnNoise<'_> {
    fn is_resident(&self) -> bool {
        true
    }

    fn kernel_seconds(&mut self, mixture: &Mixture, repeats: u32) -> Result<f64> {
        let _entered = self.store.gpu.enter()?;
        let shape = self.prepare(mixture, &Goal::Total)?;
        // The first launches, which do not count, load the kernels.
        self.start(shape, &mut Goal::Total)?.wait()?;
        seconds(&self.stream, repeats.max(1), || self.start(shape, &mut Goal::Total))
    }
}

impl Evaluator for OwnNoise<'_> {
    fn data(&self) -> DataFacts<'_> {
        DataFacts::from(&self.samples)
    }

    fn describe(&self) -> Description {
        let info = &self.store.gpu.info;
        let device = format!("cuda:{} {} (float64, noise of each sample)", info.ordinal, info.name);
        Description::new(device, "noisy")
    }

    fn share(&self) -> Result<Box<dyn Evaluator + '_>> {
        Ok(Box::new(OwnNoise::over(Arc::clone(&self.store), self.samples.reborrow())?))
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        self.evaluate(mixture, Goal::Total)
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        let mut scores = Vec::with_capacity(self.n_samples());
        self.pass(mixture, Goal::Scores(&mut scores))?;
        match scores.iter().position(|score| *score == SINGULAR) {
            Some(row) => Err(Error::NoSpread { row }),
            None => Ok(scores.into_iter().map(|score| LN_2 * score).collect()),
        }
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        let mut sums = Vec::new();
        let total = self.evaluate(mixture, Goal::Sums(&mut sums))?;
        if total == f64::NEG_INFINITY {
            return Err(unreachable_sample(&self.score_samples(mixture)?, self.samples.weights()));
        }
        let (scale, width) = (self.weight_scale(), noisy::sums(self.n_features()));
        let of_component = |c: usize, i: usize| scale * sums[c * width + i];
        true_values::statistics(mixture, (self.samples.total_weight(), total), of_component)
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.samples.select(rows)
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        let mut labels = Vec::with_capacity(self.n_samples());
        if self.evaluate(mixture, Goal::Labels(&mut labels))? == f64::NEG_INFINITY {
            for row in far_rows(&self.score_samples(mixture)?) {
                labels[row] = self.on_host(row).predict(mixture)?[0];
            }
        }
        Ok(labels)
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        let mut r = responsibilities(self.n_samples(), mixture.n_components())?;
        if self.evaluate(mixture, Goal::Responsibilities(&mut r))? == f64::NEG_INFINITY {
            for row in far_rows(&self.score_samples(mixture)?) {
                r.row_mut(row).assign(&self.on_host(row).predict_proba(mixture)?.row(0));
            }
        }
        Ok(r)
    }
}
