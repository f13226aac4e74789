//! The E-step on the device for any K and D: a `tiled` kernel leaves the exponents of a piece of the samples, a
//! `scatter` kernel sums up what they weigh.
use super::gpu::{Gpu, Kernel, failed};
use super::launch::{Columns, Lane, arg, shape as mismatch};
use super::layout;
use super::memory::{allocate, zeroed};
use super::scattered::Scattered;
use crate::backends::device_parameters::{DeviceParameters, Matrices};
use crate::{CovarianceType, Error, Result};
use cust::memory::{CopyDestination, DeviceBuffer};
use gmm_kernels::estep::weighted_sums::{self as scatter, Shape, WeightedSumsArgs};
use gmm_kernels::likelihood::tiled::{self, Exponents, TiledArgs, WARP_SAMPLES};
use gmm_kernels::reduce::Output;
use gmm_kernels::reduce::slices::{self, ReduceSlicesArgs};
use gmm_kernels::simt::WARP;
use std::ptr;

/// Name of these kernels together.
pub(super) const NAME: &str = "scatter";
/// Threads of a block of `tiled`.
const BLOCK: u32 = 128;
/// Threads of a block of `scatter`, at most: the fastest of 64, 128, 192 and 256, measured on an H200.
pub(super) fn scatter_threads(covariance_type: CovarianceType) -> usize {
    match covariance_type {
        CovarianceType::Diag | CovarianceType::Spherical => 192,
        CovarianceType::Full | CovarianceType::Tied => 128,
    }
}
/// Registers of its threads, and of a multiprocessor of any device served.
const SCATTER_REGISTERS: u32 = 168;
const REGISTERS: u32 = 65536;
/// Most bytes of exponents, as long as a piece keeps the device busy: half of a large L2 cache, where they are read again.
const EXPONENT_BYTES: usize = 64 << 20;
/// Threads of a block of `scatter_reduce`.
const REDUCE_BLOCK: u32 = 1024;
/// Least samples of a slice.
const SLICE: usize = 128;

/// The samples that went through `tiled` and `scatter` together: their sums ([`Shape::sums`]), and Σᵢ log₂ Σₖ wₖ·2^qₖ.
pub(super) struct Sums {
    pub values: Vec<f64>,
    pub log2: f64,
}

/// The kernels made ready for mixtures of one shape.
#[derive(Debug)]
pub(super) struct EStep {
    tiled: &'static Kernel,
    scatter: &'static Kernel,
    reduce: &'static Kernel,
    k: usize,
    shape: Shape,
    /// Rows of a tile of `tiled`.
    t: usize,
    across: u32,
    /// Blocks of `tiled`.
    most_blocks: u32,
    /// Samples of a piece, whose exponents are kept: a multiple of a block's samples.
    piece: usize,
    slices: usize,
    exponents: DeviceBuffer<f32>,
    normalisers: DeviceBuffer<f32>,
    sums: DeviceBuffer<f64>,
    totals: DeviceBuffer<f64>,
    partials: DeviceBuffer<f64>,
    ticket: DeviceBuffer<u32>,
    /// Log₂-likelihood of each piece.
    log2: DeviceBuffer<f64>,
}

impl EStep {
    /// For up to `n` samples at once. The device's context is current.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where a stage of samples does not fit into shared memory.
    pub fn new(gpu: &Gpu, packed: &DeviceParameters<f32>, scattered: &Scattered, n: usize) -> Result<Self> {
        let (k, d, shape) = (packed.n_components, packed.n_features, scattered.shape);
        let full = !matches!(packed.matrices, Matrices::Diagonal);
        let shared = shape.shared_bytes();
        if shared > gpu.limits.shared_per_block {
            return Err(Error::Unsupported {
                what: format!("an E-step with {d} features and covariance matrices"),
                backend: "the CUDA backend",
                remedy: "use the device `cpu`, or covariances of type `diag`",
            });
        }
        let t = if full && d <= 32 || !full && k <= 8 { 8 } else { 16 };
        // As many as their registers allow.
        let tiled_blocks = if t == 8 { 4 } else { 2 };
        let units = if full { k } else { k.div_ceil(t) };
        let across = (units.min((BLOCK / WARP) as usize)).next_power_of_two() as u32;
        let across = if across as usize > units { across / 2 } else { across };
        let per_block = (BLOCK / WARP / across) as usize * WARP_SAMPLES;
        let multiprocessors = gpu.limits.multiprocessors;
        let rows = k.next_multiple_of(16);
        let wave = (multiprocessors * tiled_blocks) as usize * per_block;
        let most = (EXPONENT_BYTES / size_of::<f32>() / rows).max(wave) / wave * wave;
        let piece = most.min(n.next_multiple_of(per_block));
        let blocks = shape.blocks() as usize;
        let resident = (REGISTERS / (SCATTER_REGISTERS * shape.block()))
            .min((gpu.limits.shared_per_multiprocessor / (shared + 1024)) as u32)
            .max(1);
        let room = (multiprocessors * resident) as usize;
        let slices = room.div_ceil(blocks).min(piece.min(n).div_ceil(SLICE)).max(1);
        let kind = if full { "full" } else { "diag" };
        let centre = if shape.central { "_central" } else { "_raw" };
        Ok(Self {
            tiled: gpu.kernel(&if full { format!("tiled_full{t}") } else { format!("tiled{t}") }, None)?,
            scatter: gpu.kernel(&format!("weighted_sums_{kind}{centre}"), Some(SCATTER_REGISTERS))?,
            reduce: gpu.kernel("reduce_slices", None)?,
            k,
            shape,
            t,
            across,
            piece,
            slices,
            // Rows behind K are read, though nothing comes of them.
            exponents: zeroed(rows * piece)?,
            normalisers: allocate(2 * piece)?,
            sums: allocate(slices * shape.sums())?,
            totals: allocate(shape.sums())?,
            partials: allocate((multiprocessors * tiled_blocks) as usize)?,
            most_blocks: multiprocessors * tiled_blocks,
            ticket: DeviceBuffer::from_slice(&[0]).map_err(failed("cuMemcpyHtoD"))?,
            log2: allocate(n.div_ceil(piece))?,
        })
    }

    /// Whether it serves mixtures of this shape.
    pub fn serves(&self, k: usize, shape: &Shape) -> bool {
        (self.k, self.shape) == (k, *shape)
    }

    /// Runs the E-step over some samples, at most as many as it was made for, and waits for its sums.
    pub fn run(
        &mut self,
        lane: &mut Lane,
        columns: Columns<'_>,
        packed: &DeviceParameters<f32>,
        scattered: &Scattered,
    ) -> Result<Sums> {
        let (n, d) = (columns.n(), packed.n_features);
        let pieces = n.div_ceil(self.piece);
        if !self.serves(packed.n_components, &scattered.shape) || columns.d() != d || pieces > self.log2.len() {
            return Err(mismatch(
                "a mixture for this E-step",
                vec![self.k, self.shape.d as usize],
                vec![packed.n_components, d],
            ));
        }
        let Self { k, t, shape, .. } = *self;
        let (sm, constants) = if shape.full {
            layout::triangle_sizes(k, d, t)
        } else {
            let (_, sm, constants) = layout::tiled_sizes(k, d, t);
            (sm, constants)
        };
        // What is staged, each part aligned to 16 bytes.
        let sizes = [sm, constants, scattered.weights.len(), scattered.centres.len(), 2 * scattered.pairs.len()];
        let starts = sizes.iter().scan(0, |end: &mut usize, len| {
            let start = *end;
            *end += len.next_multiple_of(4);
            Some(start)
        });
        let starts: Vec<usize> = starts.collect();
        lane.stage(starts[4] + sizes[4].next_multiple_of(4), |to| {
            let (sm, constants) = to[..starts[2]].split_at_mut(starts[1]);
            let (sm, constants) = (&mut sm[..sizes[0]], &mut constants[..sizes[1]]);
            if shape.full {
                layout::triangles(packed, t, sm, constants);
            } else {
                layout::tiles(packed, t, sm, constants);
            }
            to[starts[2]..][..sizes[2]].copy_from_slice(&scattered.weights);
            to[starts[3]..][..sizes[3]].copy_from_slice(&scattered.centres);
            for (to, v) in to[starts[4]..].iter_mut().zip(scattered.pairs.as_flattened()) {
                *to = f32::from_bits(*v);
            }
        })?;
        let at = |part: usize| lane.parameters().wrapping_add(starts[part]);
        let exponents = Exponents {
            q: self.exponents.as_device_ptr().as_mut_ptr(),
            normalisers: self.normalisers.as_device_ptr().as_mut_ptr(),
            stride: self.piece as u32,
        };
        let sums = self.sums.as_device_ptr().as_mut_ptr();
        // Each slice has a stage of the first piece, or what it adds to is undefined.
        let slices = self.slices.min(self.piece.min(n).div_ceil(scatter::STAGE)) as u32;
        let per_block = (BLOCK / WARP / self.across) as usize * WARP_SAMPLES;
        for p in 0..pieces {
            let first = p * self.piece;
            let piece = columns.part(first, self.piece.min(n - first))?;
            let blocks = piece.n().div_ceil(per_block).min(self.most_blocks as usize) as u32;
            let tiled = TiledArgs {
                columns: piece.args(u32::MAX),
                d: d as u32,
                tiles: if shape.full { k } else { k.div_ceil(t) } as u32,
                component_warps: self.across,
                scales_and_shifts: at(0),
                weights_and_seeds: at(1),
                sample_weights: piece.weights(),
                samples: ptr::null_mut(),
                exponents,
                output: Output {
                    partials: self.partials.as_device_ptr().as_mut_ptr(),
                    ticket: self.ticket.as_device_ptr().as_mut_ptr(),
                    total: self.log2.as_device_ptr().as_mut_ptr().wrapping_add(p),
                },
            };
            let scatter = WeightedSumsArgs {
                shape,
                columns: piece.args(u32::MAX),
                exponents,
                weights: at(2),
                centres: at(3),
                pairs: at(4).cast(),
                slices,
                add: (p > 0) as u32,
                sums,
            };
            let grid = (shape.blocks(), slices);
            // SAFETY: the arguments of these entries: the columns are checked, all parameters were staged; exponents,
            // normalisers, partial sums and sums have the sizes that `new` gave them for this shape and piece.
            unsafe {
                let shared = tiled::shared_bytes(t, BLOCK, self.across);
                lane.start(self.tiled, (blocks, 1), BLOCK, shared, &[arg(&tiled)])?;
                lane.start(self.scatter, grid, shape.block(), shape.shared_bytes(), &[arg(&scatter)])?;
            }
        }
        let count = shape.sums() as u32;
        let totals = self.totals.as_device_ptr().as_mut_ptr();
        let blocks = count.div_ceil(slices::REDUCE_NUMBERS);
        // SAFETY: as above.
        unsafe {
            let args = ReduceSlicesArgs { sums, slices, count, totals };
            lane.start(self.reduce, (blocks, 1), REDUCE_BLOCK, slices::shared_bytes(REDUCE_BLOCK), &[arg(&args)])?;
        }
        lane.synchronize()?;
        let mut values = vec![0.0; shape.sums()];
        self.totals.copy_to(&mut values).map_err(failed("cuMemcpyDtoH"))?;
        let mut log2 = vec![0.0; pieces];
        self.log2.index(..pieces).copy_to(&mut log2).map_err(failed("cuMemcpyDtoH"))?;
        Ok(Sums { values, log2: log2.iter().sum() })
    }
}
