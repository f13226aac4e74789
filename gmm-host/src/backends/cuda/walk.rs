//! Random-walk Metropolis on the device: launches of the `walk` kernels.
//!
//! Ways to a step that does not wait for the host, on paper for K = 8, D = 13, N = 10⁶ on an H200, where an evaluation by
//! `direct` takes 16 µs on the device and 21 µs from parameters to total:
//! - the next proposals of a rejecting chain as one batch (prefetching; Brockwell 2006): a set takes 9.5 µs by arithmetic
//!   and the host 6 µs more, so that three sets, 2.4 steps at an acceptance of 0.23, are 14.6 µs a step; for small N nothing
//!   is won;
//! - a recorded sequence of launches: 16 µs, and a few for a kernel that decides;
//! - one kernel that stays on the device: arithmetic 7 to 9 µs, what of the samples is not in shared memory (38 MB, from the
//!   L2 cache) at the same time, and 1 to 2 µs in which blocks wait for each other. For small N the last is all there is.
//!
//! So it is the last, and the random numbers are the host's, from each chain's own counter-based generator: the very
//! proposals that it would make by itself, some microseconds each, while the device works on those before.
use super::gpu::{Gpu, Kernel, Limits, check, failed};
use super::launch::{Columns, Lane, arg, shape};
use super::layout;
use super::memory::{allocate, locked};
use crate::data::frame::Frame;
use crate::{Error, MetropolisSteps, MetropolisTarget, Result};
use cust::event::{Event, EventFlags};
use cust::memory::{AsyncCopyDestination, DeviceBuffer, LockedBuffer};
use cust::sys;
use gmm_kernels::data::QUAD;
use gmm_kernels::likelihood::small_k::{COMPONENTS, MAX_FEATURES};
use gmm_kernels::metropolis::{self as walk, MIN_BLOCK, MetropolisArgs};
use gmm_kernels::simt::WARP;
use std::fmt;
use std::str::FromStr;

/// Most threads of a block: with so many, each has as many registers as the kernel needs.
const MAX_BLOCK: u32 = 512;
/// The share of the L2 cache that samples are kept in.
const CACHED: f64 = 0.6;
/// Steps of a walk's first launch: the device waits for the host to make them. Later ones double, up to the most.
const FIRST_STEPS: usize = 32;
const MOST_STEPS: usize = 512;
/// About how long a launch may take, in seconds: a walk can be stopped between two, and a display waits for them.
const LAUNCH: f64 = 0.05;
/// Fused multiply-adds in a second, for a rough estimate of a step.
const SPEED: f64 = 1e13;

/// The name of the kernel.
pub(super) const NAME: &str = "walk";

/// The shape of a launch. The bits of a log density depend on blocks and threads alone.
///
/// Its text form is `walk:BLOCKxBLOCKS/RESIDENT:KEEP`, for example `walk:512x132/1:28`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Threads of a block.
    block: u32,
    /// Blocks, one on each multiprocessor.
    blocks: u32,
    /// Rounds of a block's samples that stay in shared memory, besides the place that the others come through.
    resident: u32,
    /// Megabytes (10⁶) of the others to be kept in the L2 cache.
    keep: u32,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME}:{}x{}/{}:{}", self.block, self.blocks, self.resident, self.keep)
    }
}

impl FromStr for Shape {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let rest = text.strip_prefix(NAME).and_then(|rest| rest.strip_prefix(':')).ok_or(())?;
        let (launch, keep) = rest.split_once(':').ok_or(())?;
        let (grid, resident) = launch.split_once('/').ok_or(())?;
        let (block, blocks) = grid.split_once('x').ok_or(())?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| ());
        let shape =
            Self { block: number(block)?, blocks: number(blocks)?, resident: number(resident)?, keep: number(keep)? };
        let threads = (MIN_BLOCK..=MAX_BLOCK).contains(&shape.block) && shape.block.is_multiple_of(WARP);
        if threads && shape.blocks > 0 && shape.resident < 1 << 16 { Ok(shape) } else { Err(()) }
    }
}

impl Shape {
    /// A block for each multiprocessor, or for each 128 quads if that is fewer; as many rounds in shared memory as fit.
    fn new(n: usize, target: &MetropolisTarget, limits: &Limits) -> Self {
        let d = target.n_features;
        let quads = n.div_ceil(QUAD) as u32;
        let blocks = quads.div_ceil(MIN_BLOCK).min(limits.multiprocessors);
        let share = quads.div_ceil(blocks);
        let fit = |block: u32| {
            let fits = |rounds: &u32| walk::shared_bytes(d, target.dim(), block, *rounds) <= limits.shared_per_block;
            (1..=share.div_ceil(block)).take_while(fits).last()
        };
        let mut block = share.next_multiple_of(WARP).clamp(MIN_BLOCK, MAX_BLOCK);
        while block > MIN_BLOCK && fit(block).is_none() {
            block -= WARP;
        }
        let resident = fit(block).unwrap_or(1) - 1;
        Self { block, blocks, resident, keep: (CACHED * limits.l2 as f64 / 1e6) as u32 }
    }

    fn shared_bytes(&self, target: &MetropolisTarget) -> usize {
        walk::shared_bytes(target.n_features, target.dim(), self.block, self.resident + 1)
    }

    /// Quads of a block's share before which samples are to be kept in a cache: those resident need none.
    fn keep_quads(&self, d: usize) -> u32 {
        let cached = self.keep as usize * 1_000_000 / (d * QUAD * size_of::<f32>()) / self.blocks as usize;
        (self.resident as usize * self.block as usize + cached).min(u32::MAX as usize) as u32
    }

    /// Registers that a thread may have so that a block fits a multiprocessor.
    fn max_registers(&self) -> Option<u32> {
        let registers = (1 << 16) / self.block / 8 * 8;
        (registers < 255).then_some(registers)
    }
}

/// Whether the kernels take mixtures of this shape.
pub(super) fn takes(target: &MetropolisTarget) -> bool {
    target.n_components <= COMPONENTS && target.n_features <= MAX_FEATURES
}

/// One of the two pieces of work that are under way at a time: the host fills one while the device does the other.
#[derive(Debug)]
struct Piece {
    steps: LockedBuffer<f64>,
    densities: LockedBuffer<f64>,
    device_steps: DeviceBuffer<f64>,
    device_densities: DeviceBuffer<f64>,
    /// Recorded behind the last copy.
    done: Event,
    /// Steps that it holds.
    count: usize,
}

impl Piece {
    fn new(width: usize, most: usize) -> Result<Self> {
        Ok(Self {
            steps: locked(most * width)?,
            densities: locked(most)?,
            device_steps: allocate(most * width)?,
            device_densities: allocate(most)?,
            done: Event::new(EventFlags::DISABLE_TIMING).map_err(failed("cuEventCreate"))?,
            count: 0,
        })
    }

    /// Waits for the work, and hands the densities out.
    fn finish(&mut self, width: usize, steps: &mut dyn MetropolisSteps) -> Result<()> {
        self.done.synchronize().map_err(failed("cuEventSynchronize"))?;
        if self.count > 0 {
            steps.record(&self.steps[..self.count * width], &self.densities[..self.count]);
        }
        self.count = 0;
        Ok(())
    }
}

/// A kernel made ready for a target over the samples of an evaluator.
#[derive(Debug)]
pub(super) struct Walk {
    pub shape: Shape,
    kernel: &'static Kernel,
    target: MetropolisTarget,
    terms: DeviceBuffer<f64>,
    constant: f64,
    state: DeviceBuffer<f64>,
    exchange: DeviceBuffer<f64>,
    pieces: [Piece; 2],
}

impl Walk {
    /// The device's context is current.
    ///
    /// # Errors
    /// [`Error::Kernel`] for a shape that the device cannot launch.
    pub fn new(gpu: &Gpu, target: &MetropolisTarget, frame: &Frame, n: usize, wish: Option<Shape>) -> Result<Self> {
        let (d, width) = (target.n_features, target.step_width());
        let shape = wish.unwrap_or_else(|| Shape::new(n, target, &gpu.limits));
        let shared = shape.shared_bytes(target);
        let refused = |problem: String| Error::Kernel {
            name: shape.to_string(),
            problem,
            available: Shape::new(n, target, &gpu.limits).to_string(),
        };
        if shared > gpu.limits.shared_per_block {
            return Err(refused(format!("needs {shared} bytes of shared memory, more than the device has")));
        }
        let kernel = gpu.kernel(&format!("metropolis_d{d:02}"), shape.max_registers())?;
        let mut together = 0;
        // SAFETY: a place for the number, and a function that was loaded.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut together,
                kernel.function(shared)?.to_raw(),
                shape.block as i32,
                shared,
            )
        };
        check("cuOccupancyMaxActiveBlocksPerMultiprocessor", result)?;
        let most = together as u32 * gpu.limits.multiprocessors;
        if shape.blocks > most {
            return Err(refused(format!("has {} blocks, and the device runs {most} at once", shape.blocks)));
        }
        let (terms, constant) = layout::walk_terms(target, frame, n, layout::EXP2_BIAS);
        let step = n as f64 * target.n_components as f64 * (2 * d + 1) as f64 / SPEED;
        let most = ((LAUNCH / step) as usize).clamp(1, MOST_STEPS);
        Ok(Self {
            shape,
            kernel,
            target: target.clone(),
            terms: DeviceBuffer::from_slice(&terms).map_err(failed("cuMemcpyHtoD"))?,
            constant,
            state: allocate(target.dim() + 1)?,
            exchange: allocate(2 * shape.blocks as usize)?,
            pieces: [Piece::new(width, most)?, Piece::new(width, most)?],
        })
    }

    /// Whether it was made for this target.
    pub fn is_for(&self, target: &MetropolisTarget) -> bool {
        self.target == *target
    }

    /// Walks from `point` until there are no more steps. After an error the lane is to be synchronized.
    pub fn run(
        &mut self,
        lane: &Lane,
        columns: Columns<'_>,
        point: &[f64],
        log_density: f64,
        steps: &mut dyn MetropolisSteps,
    ) -> Result<()> {
        let (dim, width) = (self.target.dim(), self.target.step_width());
        if point.len() != dim || columns.d() != self.target.n_features {
            return Err(shape("the point of a walk", vec![dim], vec![point.len()]));
        }
        let mut state = point.to_vec();
        state.push(log_density);
        let stream = &lane.stream;
        // SAFETY: pageable memory is read before the call returns; both are as long.
        unsafe { self.state.async_copy_from(&state, stream) }.map_err(failed("cuMemcpyHtoDAsync"))?;
        let words = self.exchange.len() * size_of::<f64>() / size_of::<u32>();
        // SAFETY: the whole buffer, which no work before in the stream uses any longer.
        let zeroed =
            unsafe { sys::cuMemsetD32Async(self.exchange.as_device_ptr().as_raw(), 0, words, stream.as_inner()) };
        check("cuMemsetD32Async", zeroed)?;
        self.pieces.iter_mut().for_each(|piece| piece.count = 0);
        let (mut before, mut next, mut most) = (0u32, 0, FIRST_STEPS);
        loop {
            let piece = &mut self.pieces[next];
            most = most.min(piece.densities.len());
            let count = steps.propose(&mut piece.steps[..most * width]).min(most);
            if count == 0 {
                break;
            }
            piece.count = count;
            let len = count * width;
            // SAFETY: both are as long; the host's memory is used again only after `finish` has waited for this work.
            unsafe { piece.device_steps.index(..len).async_copy_from(&piece.steps[..len], stream) }
                .map_err(failed("cuMemcpyHtoDAsync"))?;
            self.launch(lane, columns, next, before)?;
            before = before.wrapping_add(count as u32);
            let piece = &mut self.pieces[next];
            // SAFETY: as above.
            unsafe { piece.device_densities.index(..count).async_copy_to(&mut piece.densities[..count], stream) }
                .map_err(failed("cuMemcpyDtoHAsync"))?;
            piece.done.record(stream).map_err(failed("cuEventRecord"))?;
            (next, most) = (next ^ 1, 2 * most);
            self.pieces[next].finish(width, steps)?;
        }
        self.pieces[next ^ 1].finish(width, steps)
    }

    fn launch(&self, lane: &Lane, columns: Columns<'_>, piece: usize, before: u32) -> Result<()> {
        let (target, piece) = (&self.target, &self.pieces[piece]);
        let args = MetropolisArgs {
            columns: columns.args(self.shape.keep_quads(target.n_features)),
            k: target.n_components as u32,
            d: target.n_features as u32,
            spherical: target.spherical,
            resident: self.shape.resident,
            terms: self.terms.as_device_ptr().as_ptr(),
            n_ln_2: std::f64::consts::LN_2 * columns.n() as f64,
            constant: self.constant,
            steps: piece.device_steps.as_device_ptr().as_ptr(),
            count: piece.count as u32,
            before,
            state: self.state.as_device_ptr().as_mut_ptr(),
            densities: piece.device_densities.as_device_ptr().as_mut_ptr(),
            exchange: self.exchange.as_device_ptr().as_mut_ptr(),
        };
        let shared = self.shape.shared_bytes(target);
        let function = self.kernel.function(shared)?.to_raw();
        let (grid, block) = (self.shape.blocks, self.shape.block);
        // SAFETY: the argument of this entry; all buffers have the sizes that go with it, `count` steps were copied before
        // in this stream, and `exchange` was zero before the first launch. The driver refuses a grid that does not run
        // at once.
        let result = unsafe {
            sys::cuLaunchCooperativeKernel(
                function,
                grid,
                1,
                1,
                block,
                1,
                1,
                shared as u32,
                lane.stream.as_inner(),
                [arg(&args)].as_mut_ptr(),
            )
        };
        check("cuLaunchCooperativeKernel", result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MetropolisPrior;

    const H200: Limits = Limits {
        multiprocessors: 132,
        l2: 60 << 20,
        shared_per_block: 227 << 10,
        shared_per_multiprocessor: 228 << 10,
    };

    fn target(k: usize, d: usize) -> MetropolisTarget {
        let prior = MetropolisPrior {
            concentration: vec![1.0; k],
            location: vec![0.0; k * d],
            precision: vec![1.0; k * d],
            scaled_precision: vec![0.0; k * d],
            by_log_scale: vec![1.0; k * d],
            by_variance: vec![1.0; k * d],
            by_precision: vec![0.0; k * d],
            constant: 0.0,
        };
        MetropolisTarget { n_components: k, n_features: d, spherical: false, prior }
    }

    #[test]
    fn a_shape_survives_its_text() {
        for text in ["walk:512x132/1:28", "walk:128x1/0:0"] {
            assert_eq!(text.parse::<Shape>().unwrap().to_string(), text);
        }
        for text in
            ["walk", "walk:", "walk:64x1/0:0", "walk:130x1/0:0", "walk:1024x1/0:0", "walk:128x0/0:0", "walk:128x1:0"]
        {
            assert!(text.parse::<Shape>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_shape_uses_the_device_and_stays_within_it() {
        let small = Limits { shared_per_block: 99 << 10, multiprocessors: 20, ..H200 };
        for limits in [H200, small] {
            for n in [1, 100, 10_000, 70_000, 500_000, 1_000_000, 100_000_000] {
                for (k, d) in [(1, 1), (3, 2), (8, 13), (8, 16)] {
                    let target = target(k, d);
                    let shape = Shape::new(n, &target, &limits);
                    assert!(shape.blocks <= limits.multiprocessors && shape.block <= MAX_BLOCK, "{shape}");
                    assert!(shape.shared_bytes(&target) <= limits.shared_per_block, "{shape}");
                    assert_eq!(shape.to_string().parse::<Shape>().unwrap(), shape);
                }
            }
        }
        let shape = |n| Shape::new(n, &target(8, 13), &H200).to_string();
        assert_eq!(shape(100), "walk:128x1/0:37");
        assert_eq!(shape(10_000), "walk:128x20/0:37");
        // 2 · 512 of a block's 1894 quads are in shared memory, half of them for good.
        assert_eq!(shape(1_000_000), "walk:512x132/1:37");
    }
}
