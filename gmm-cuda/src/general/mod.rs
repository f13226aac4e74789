//! Every operation, for any K, D, covariance type and element type, with sample weights, by the kernels `density`,
//! `posterior` and `accumulate` in turn. Other kernels are faster, each for some operations and shapes.
mod chain;
pub(super) mod launches;
pub(crate) mod layout;
pub(super) mod results;

use super::device::gpu::{Gpu, Limits};
use super::device::kernel::Kernel;
use super::device::memory::{Numbers, allocate, enlarge, enlarge_with_zeros};
use super::device::place::Element;
use super::device::samples::{Chunk, Columns, DeviceSamples};
use super::device::staging::BUFFER_BYTES;
use super::device::stream::{Running, Stream, finite, seconds};
use super::device::workspace::Upload;
use super::missing::add_offsets;
use super::plan::family::{Facts, Family, Variant};
use super::plan::task::{Operation, Shape as LaunchShape, Task};
use super::source::Source;
use crate::device::layout::STRIDE;
use chain::memory::Chains;
use gmm_core::backends::device_parameters::DeviceParameters;
use gmm_core::contract::evaluator::{
    far_rows, labels_from_afar, responsibilities, responsibilities_from_afar, unreachable_sample,
};
use gmm_core::data::frame::Frame;
use gmm_core::error::Result;
use gmm_core::model::mixture::Mixture;
use gmm_core::precision::Precision;
use gmm_core::statistics::{CentredSums, Statistics};
use gmm_driver::{DeviceBuffer, Plain};
use gmm_kernels::entries;
use gmm_kernels::general::accumulate::{self, AccumulateArgs};
use gmm_kernels::general::density;
use launches::{Accumulate, BLOCK, Density, Products};
use layout::GeneralLayout;
use ndarray::{Array1, Array2};
use results::{Goal, Piece, Results, Shape, add_slices};
use std::f64::consts::LN_2;

/// The most qₖ, and features' values, of a piece, unless the device would idle: more than the L2 cache holds, because
/// the starts and ends of launches take longer than the memory.
const PIECE_NUMBERS: usize = 1 << 23;
/// Least samples of a piece, and of one with more qₖ than [`MOST_NUMBERS`].
const MIN_PIECE: usize = 16 * STRIDE;
const MIN_LARGE_PIECE: usize = 4 * STRIDE;
const MOST_NUMBERS: usize = 1 << 24;
/// Least warps of `density` for each multiprocessor.
const DENSITY_WARPS: usize = 16;
const MIN_SLICE: usize = 256;

/// `general`: every operation of one parameter set, of any shape, in float32 and float64.
pub static GENERAL: GeneralFamily = GeneralFamily;
pub struct GeneralFamily;

const SHAPE: LaunchShape = LaunchShape::new(1, BLOCK, 8);
pub const VARIANT: Variant = Variant { family: &GENERAL, shape: SHAPE, cached: None };

impl Family for GeneralFamily {
    fn facts(&self) -> Facts {
        let about = "every operation of one parameter set, in float32 and float64";
        let operations = &[Operation::Total, Operation::Scores, Operation::EStep];
        Facts { gaps: true, ..Facts::complete("general", about, operations) }
    }

    fn sizes(&self) -> String {
        "any".into()
    }

    fn limit(&self, _: &Task, _: &Limits) -> Option<String> {
        None
    }

    fn shapes(&self, _: &Task, _: &Limits) -> Vec<LaunchShape> {
        vec![SHAPE]
    }

    fn shared_bytes(&self, _: &Task, _: LaunchShape) -> usize {
        0
    }
}

fn piece(layout: &GeneralLayout, multiprocessors: usize) -> usize {
    let busy = (DENSITY_WARPS * multiprocessors).div_ceil(launches::density_units(layout)) * density::TILE;
    let least = MIN_PIECE.min(MOST_NUMBERS / layout.k).max(MIN_LARGE_PIECE);
    (PIECE_NUMBERS / layout.k.max(layout.d)).max(busy).max(least).next_multiple_of(STRIDE)
}

/// Returns the blocks of `posterior` for this many samples: as many as have work, but no more than run at once.
pub(super) fn posterior_blocks(n: usize, k: usize, multiprocessors: u32) -> u32 {
    VARIANT.most_blocks(n, launches::posterior_samples(k), multiprocessors)
}

pub(super) fn accumulate_kernel<T: Element>(gpu: &Gpu, layout: &GeneralLayout) -> Result<Kernel<AccumulateArgs<T>>> {
    let products = Products::new::<T>(layout, &gpu.limits);
    let registers = Some(Products::accumulate_registers::<T>(layout));
    let entry = match products {
        Products::Tensor { tall, narrow } => entries::wide_accumulate(tall, narrow),
        Products::Scalar => entries::accumulate(layout.full, layout.gaps),
    };
    gpu.kernel(&entry, registers)
}

struct Ready<'a, T> {
    gpu: &'static Gpu,
    mixture: &'a Mixture,
    parameters: DeviceParameters<T>,
    layout: GeneralLayout,
    /// The centres of the second moments, in the frame (K, D).
    centres: Vec<T>,
}

impl<'a, T: Element> Ready<'a, T> {
    /// Errors: those of [`DeviceSamples::parameters`].
    fn new(mixture: &'a Mixture, data: &DeviceSamples<T>) -> Result<Self> {
        let parameters = data.parameters(mixture)?;
        let layout = GeneralLayout::new(&parameters);
        let centres = layout::means(mixture, &parameters, data.frame());
        Ok(Self { gpu: data.gpu(), mixture, parameters, layout, centres })
    }

    /// Takes the second moments around other centres, where these sums do not cancel.
    fn move_centres(&mut self, sums: &CentredSums, frame: &Frame) {
        let centre = |((_, j), mean): ((usize, usize), &f64)| T::from_f64(frame.apply(j, *mean));
        self.centres = sums.new_centres().indexed_iter().map(centre).collect();
    }
}

/// The memory of evaluations. Where a `source` is asked for, it has the samples of `data`, as given.
#[derive(Debug)]
pub struct General<T: Plain> {
    parameters: Upload<T>,
    /// qₖ, then responsibilities, (K, samples of a piece).
    q: DeviceBuffer<T>,
    results: Results,
    /// Exponents, then posteriors, of a chain's states that emit from mixtures.
    states: DeviceBuffer<T>,
    /// The sums of `accumulate`, slice by slice and over all of them.
    partials: DeviceBuffer<f64>,
    sums: DeviceBuffer<f64>,
    chains: Option<Chains>,
}

impl<T: Element> General<T> {
    pub fn new() -> Result<Self> {
        Ok(Self {
            parameters: Upload::new()?,
            q: allocate(1)?,
            results: Results::new()?,
            states: allocate(1)?,
            partials: allocate(1)?,
            sums: allocate(1)?,
            chains: None,
        })
    }

    pub fn log_likelihood(&mut self, data: &mut DeviceSamples<T>, mixture: &Mixture) -> Result<f64> {
        let ready = Ready::new(mixture, data)?;
        self.pass(data, &ready, Goal::Total)
    }

    pub fn score_samples(
        &mut self,
        data: &mut DeviceSamples<T>,
        source: &Source<'_>,
        mixture: &Mixture,
    ) -> Result<Array1<f64>> {
        let ready = Ready::new(mixture, data)?;
        let mut scores = Vec::with_capacity(data.n());
        self.pass(data, &ready, Goal::Scores(&mut scores))?;
        let Ready { parameters, .. } = ready;
        let scores = scores.into_iter().map(|score| LN_2 * (score + parameters.offset)).collect();
        Ok(add_offsets(source, parameters.gaps.as_ref(), scores))
    }

    pub fn predict(
        &mut self,
        data: &mut DeviceSamples<T>,
        source: &Source<'_>,
        mixture: &Mixture,
    ) -> Result<Vec<usize>> {
        let ready = Ready::new(mixture, data)?;
        let mut labels = Vec::with_capacity(data.n());
        if self.pass(data, &ready, Goal::Labels(&mut labels))? == f64::NEG_INFINITY {
            let far = far_rows(&self.score_samples(data, source, mixture)?);
            labels_from_afar(&mut labels, &far, mixture, |rows| source.select(rows))?;
        }
        Ok(labels)
    }

    pub fn predict_proba(
        &mut self,
        data: &mut DeviceSamples<T>,
        source: &Source<'_>,
        mixture: &Mixture,
    ) -> Result<Array2<f64>> {
        let ready = Ready::new(mixture, data)?;
        let mut r = responsibilities(data.n(), ready.layout.k)?;
        self.pass(data, &ready, Goal::Responsibilities(&mut r))?;
        responsibilities_from_afar(&mut r, mixture, |rows| source.select(rows))?;
        Ok(r)
    }

    pub fn statistics(
        &mut self,
        data: &mut DeviceSamples<T>,
        source: &Source<'_>,
        mixture: &Mixture,
    ) -> Result<Statistics> {
        let mut ready = Ready::new(mixture, data)?;
        let mut sums = self.sums(data, &ready)?;
        if sums.log_likelihood == f64::NEG_INFINITY {
            let scores = self.score_samples(data, source, mixture)?;
            return Err(unreachable_sample(&scores, source.weights()));
        }
        if T::PRECISION == Precision::Float64 && sums.cancel(mixture) {
            ready.move_centres(&sums, data.frame());
            sums = self.sums(data, &ready)?;
        }
        Statistics::from_centred_sums(sums)
    }

    fn sums(&mut self, data: &mut DeviceSamples<T>, ready: &Ready<'_, T>) -> Result<CentredSums> {
        let mut values = Vec::new();
        let log_likelihood = self.pass(data, ready, Goal::Sums(&mut values))?;
        let Ready { mixture, layout, centres, .. } = ready;
        let mut sums = layout.centred_sums(&values, data.weight_scale(), mixture, centres, data.frame());
        (sums.weight, sums.log_likelihood) = (data.total_weight(), log_likelihood);
        Ok(sums)
    }

    /// Returns the seconds of a total over the first chunk by the device's clock, the mean over `repeats` back to back.
    pub fn seconds(&mut self, data: &mut DeviceSamples<T>, mixture: &Mixture, repeats: u32) -> Result<f64> {
        let ready = Ready::new(mixture, data)?;
        let _entered = ready.gpu.enter()?;
        let shape = self.prepare(data, &ready, &Goal::Total)?;
        let Chunk { pass, columns, started } = data.chunk(0)?;
        // The first launches, which do not count, load the kernels.
        started.followed_by(self.start(&pass.stream, columns, &ready, shape, 0, &mut Goal::Total)?).wait()?;
        seconds(&pass.stream, repeats.max(1), || self.start(&pass.stream, columns, &ready, shape, 0, &mut Goal::Total))
    }

    /// Makes one pass over all samples; returns their total log-likelihood.
    fn pass(&mut self, data: &mut DeviceSamples<T>, ready: &Ready<'_, T>, mut goal: Goal<'_>) -> Result<f64> {
        let _entered = ready.gpu.enter()?;
        let shape = self.prepare(data, ready, &goal)?;
        let (this, data) = (&*self, &*data);
        let mut done = 0;
        data.one_by_one(
            |_, Chunk { pass, columns, started }| {
                let running = this.start(&pass.stream, columns, ready, shape, done, &mut goal)?;
                done += columns.n();
                Ok(started.followed_by(running))
            },
            |running| running.wait().map(|_| ()),
        )?;
        let pass = data.pass(0);
        let stream = &pass.stream;
        if let Goal::Sums(values) = goal {
            let GeneralLayout { k, d, full, .. } = ready.layout;
            values.resize(accumulate::values(k, d, full), 0.0);
            add_slices(ready.gpu, stream, &this.partials, shape.slices, &this.sums, values)?;
        }
        let total = this.results.total(ready.gpu, stream, &pass.workspace.totals, shape)?;
        // −∞ if a sample is infinitely far from every component.
        if total != f64::NEG_INFINITY {
            finite(vec![total])?;
        }
        Ok(LN_2 * (total * data.weight_scale() + data.total_weight() * ready.parameters.offset))
    }

    /// Sends the parameters to the device and allocates the launches' memory.
    fn prepare(&mut self, data: &DeviceSamples<T>, ready: &Ready<'_, T>, goal: &Goal<'_>) -> Result<Shape> {
        let GeneralLayout { k, d, full, .. } = ready.layout;
        let multiprocessors = data.gpu().limits.multiprocessors;
        let chunk = data.chunk_size();
        let mut piece = piece(&ready.layout, multiprocessors as usize).min(chunk.next_multiple_of(STRIDE));
        if let Goal::Responsibilities(_) = goal {
            // They are copied through one buffer.
            piece = piece.min(BUFFER_BYTES / size_of::<T>() / k / STRIDE * STRIDE).max(STRIDE);
        }
        let posterior_blocks = posterior_blocks(piece, k, multiprocessors);
        let slices = launches::accumulate_slices::<T>(&ready.layout, &data.gpu().limits, piece.div_ceil(MIN_SLICE));
        let shape = Shape { piece, posterior_blocks, slices };
        self.results.prepare(shape, goal)?;
        if let Goal::Sums(_) = goal {
            let values = accumulate::values(k, d, full);
            enlarge_with_zeros(&mut self.partials, values * slices)?;
            enlarge(&mut self.sums, values)?;
        }
        // The kernels read numbers behind the last sample, and do not use them.
        enlarge_with_zeros(&mut self.q, k * piece)?;
        self.write(data, ready)?;
        Ok(shape)
    }

    /// Sends the parameters to the device.
    fn write(&mut self, data: &DeviceSamples<T>, ready: &Ready<'_, T>) -> Result<()> {
        let Ready { parameters, layout, centres, .. } = ready;
        self.parameters.fill(layout.len(), |to| layout.write(parameters, centres, to))?;
        self.parameters.send(&data.pass(0).stream)?.wait().map(drop)
    }

    /// Starts the launches over some samples, which follow `done` others, and the copies of the goal's results.
    fn start<'a>(
        &'a self,
        stream: &'a Stream,
        all: Columns<'a, T>,
        ready: &Ready<'_, T>,
        shape: Shape,
        done: usize,
        goal: &mut Goal<'_>,
    ) -> Result<Running<'a, ()>> {
        let mut running = stream.idle();
        for first in (0..all.n()).step_by(shape.piece) {
            let columns = all.part(first, shape.piece.min(all.n() - first))?;
            let piece = Piece { gpu: ready.gpu, stream, columns, layout: ready.layout, shape, done: done + first };
            running = running.followed_by(self.density(piece)?);
            running = running.followed_by(self.results.posterior(piece, self.parameters.device(), &self.q, goal)?);
            if let Goal::Sums(_) = goal {
                running = running.followed_by(self.accumulate(piece)?);
            }
        }
        Ok(running)
    }

    fn density<'a>(&'a self, piece: Piece<'a, T>) -> Result<Running<'a, ()>> {
        let Piece { gpu, stream, columns, layout, shape, .. } = piece;
        let (parameters, q) = (self.parameters.device(), Numbers::of(&self.q));
        let launch = Density { columns, layout, parameters, of_quads: None, q, stride: shape.piece };
        let products = match Products::new::<T>(&layout, &gpu.limits) {
            // One panel leaves half of a large product empty.
            Products::Tensor { .. } if layout.around_means || layout.d <= density::ROWS => Products::Scalar,
            products => products,
        };
        let registers = Some(products.density_registers::<T>(&layout));
        let entry = match products {
            Products::Tensor { tall, narrow } => entries::wide_density(tall, narrow),
            Products::Scalar => entries::density(layout.full, layout.gaps, layout.around_means),
        };
        let kernel = gpu.kernel(&entry, registers)?;
        let grid = launch.grid(products, &gpu.limits);
        Ok(stream.launch(kernel, grid, launch)?.borrowed())
    }

    fn accumulate<'a>(&'a self, piece: Piece<'a, T>) -> Result<Running<'a, ()>> {
        let Piece { gpu, stream, columns, layout, shape, done } = piece;
        let launch = Accumulate {
            columns,
            layout,
            products: Products::new::<T>(&layout, &gpu.limits),
            parameters: self.parameters.device(),
            responsibilities: Numbers::of(&self.q),
            stride: shape.piece,
            slices: shape.slices,
            table: None,
            add: done > 0,
            partials: Numbers::of(&self.partials),
        };
        Ok(stream.launch(accumulate_kernel(gpu, &layout)?, launch.grid(), launch)?.borrowed())
    }
}
