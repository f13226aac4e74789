//! `exp2_bias`: the correction of log₂ of a sample's likelihood for the error of a device's 2^x, measured there.
use super::reduce_sets::{ReduceSets, Totals};
use crate::device::gpu::Gpu;
use crate::device::kernel::Grid;
use crate::device::launch::launch;
use crate::device::memory::{Numbers, allocate};
use crate::device::slots::Slots;
use crate::device::stream::Stream;
use gmm_core::error::Result;
use gmm_kernels::entries;
use gmm_kernels::likelihood::exp2_bias::Exp2BiasArgs;
use gmm_kernels::reduce::FINISH_SHARED_BYTES;
use std::f64::consts::LOG2_E;

/// Blocks, threads of a block, and arguments of a thread: 2²² arguments, in the same order on any device.
const BLOCKS: u32 = 1024;
const THREADS: u32 = 256;
const PER_THREAD: u32 = 16;

/// The resolution of the mean error; 10⁻¹⁰ is 10⁻⁴ in the log-likelihood of 10⁶ samples. Further digits are arbitrary.
const RESOLUTION: f64 = 1e-10;

/// Returns the correction of log₂ of each sample's likelihood, if every term went through the device's approximate 2^x:
/// the mean relative error of that function, measured at first use. The device's context is current.
pub fn exp2_bias(gpu: &Gpu) -> Result<f64> {
    if let Some(bias) = gpu.exp2_bias.get() {
        return Ok(*bias);
    }
    let stream = Stream::new()?;
    let (partials, slots) = (allocate(BLOCKS as usize)?, Slots::new(1)?);
    let partials = Numbers::of(&partials);
    slots.clear(1);
    let grid = Grid::new(BLOCKS, THREADS, FINISH_SHARED_BYTES);
    let measurement = stream.launch(gpu.kernel(&entries::exp2_bias(), None)?, grid, Exp2Bias { partials })?;
    let sum = ReduceSets { partials, count: BLOCKS as usize, totals: Totals::Slots(&slots, 1) };
    let sum = stream.launch(gpu.kernel(&entries::reduce_sets(), None)?, sum.grid(1), sum)?;
    let sum = measurement.followed_by(sum).results(&slots, 1)?[0];
    let mean = sum / f64::from(BLOCKS * THREADS * PER_THREAD);
    let bias = -(mean / RESOLUTION).round() * RESOLUTION * LOG2_E;
    // Another thread's earlier measurement takes precedence; both are equal.
    Ok(*gpu.exp2_bias.get_or_init(|| bias))
}

/// A launch that leaves each block's sum of errors.
#[derive(Clone, Copy)]
struct Exp2Bias<'a> {
    partials: Numbers<'a, f64>,
}

launch!(Exp2Bias<'_>, Exp2BiasArgs, "exp2_bias", |launch, grid, what| {
    grid.require_shared(what, FINISH_SHARED_BYTES)?;
    Ok(Exp2BiasArgs { partials: launch.partials.write(grid.blocks.0 as usize, what)?, per_thread: PER_THREAD })
});
