//! Random-walk Metropolis on the device, by the kernel `metropolis`: many steps in one launch.
pub(crate) mod layout;
pub mod shape;

use super::device::gpu::Gpu;
use super::device::kernel::{Grid, Kernel};
use super::device::launch::launch;
use super::device::memory::{Numbers, allocate, copied, locked};
use super::device::samples::Columns;
use super::device::stream::{Running, Stream};
use super::device::{mismatch, require};
use gmm_core::contract::metropolis::{MetropolisSteps, MetropolisTarget};
use gmm_core::data::frame::Frame;
use gmm_core::error::{Error, Result};
use gmm_driver::{DeviceBuffer, LockedBuffer};
use gmm_kernels::entries;
use gmm_kernels::likelihood::small_k::{COMPONENTS, MAX_FEATURES};
use gmm_kernels::metropolis::MetropolisArgs;
use shape::Shape;

/// Steps of a chain's first launch, which waits for the host to make them, and the most, after repeated doubling.
const FIRST_STEPS: usize = 32;
const MOST_STEPS: usize = 512;
/// The approximate seconds of a launch: a chain can be stopped, and a display updated, only between launches.
const LAUNCH: f64 = 0.05;
/// Fused multiply-adds in a second, for a rough estimate of the time of a step.
const SPEED: f64 = 1e13;

/// Returns whether K and D of the target's mixtures are small enough for the kernels.
pub fn takes(target: &MetropolisTarget) -> bool {
    target.n_components <= COMPONENTS && target.n_features <= MAX_FEATURES
}

/// Some steps, with memory for them and their results. The host fills one while the device works on the other.
#[derive(Debug)]
struct Segment {
    steps: LockedBuffer<f64>,
    densities: LockedBuffer<f64>,
    device_steps: DeviceBuffer<f64>,
    device_densities: DeviceBuffer<f64>,
    count: usize,
}

impl Segment {
    fn new(width: usize, most: usize) -> Result<Self> {
        Ok(Self {
            steps: locked(most * width)?,
            densities: locked(most)?,
            device_steps: allocate(most * width)?,
            device_densities: allocate(most)?,
            count: 0,
        })
    }
}

/// A kernel made ready for a target over an evaluator's samples.
#[derive(Debug)]
pub struct Metropolis {
    pub shape: Shape,
    kernel: Kernel<MetropolisArgs>,
    target: MetropolisTarget,
    terms: DeviceBuffer<f64>,
    constant: f64,
    state: DeviceBuffer<f64>,
    exchange: DeviceBuffer<f64>,
    most_steps: usize,
    /// The segments that no launch is using.
    segments: Vec<Segment>,
}

impl Metropolis {
    /// The device's context is current. `exp2_bias` is added to the kernel's log₂ of each sample's likelihood.
    /// [`Error::Kernel`] if the device cannot launch a shape.
    pub fn new(
        gpu: &Gpu,
        target: &MetropolisTarget,
        frame: &Frame,
        n: usize,
        requested: Option<Shape>,
        exp2_bias: f64,
    ) -> Result<Self> {
        let (d, width) = (target.n_features, target.step_width());
        let mut limits = gpu.limits;
        let mut shape = requested.unwrap_or_else(|| Shape::new(n, target, &limits));
        let mut kernel = gpu.kernel(&entries::metropolis(d), shape.max_registers())?;
        if requested.is_none() && shape.shared_bytes(target) > kernel.most_shared() {
            // The kernel has static shared memory, which leaves less for the samples.
            limits.shared_per_block = kernel.most_shared();
            shape = Shape::new(n, target, &limits);
            kernel = gpu.kernel(&entries::metropolis(d), shape.max_registers())?;
        }
        let shared = shape.shared_bytes(target);
        let available = || Shape::new(n, target, &limits).to_string();
        let refused = |problem: String| Error::Kernel { name: shape.to_string(), problem, available: available() };
        if shared > kernel.most_shared() {
            return Err(refused(format!("needs {shared} bytes of shared memory, more than the device has")));
        }
        let most = kernel.blocks_at_once(shape.block, shared)? * gpu.limits.multiprocessors;
        if shape.blocks > most {
            return Err(refused(format!("has {} blocks, and the device runs {most} at once", shape.blocks)));
        }
        let (terms, constant) = layout::terms(target, frame, n, exp2_bias);
        let step = n as f64 * target.n_components as f64 * (2 * d + 1) as f64 / SPEED;
        let most_steps = ((LAUNCH / step) as usize).clamp(1, MOST_STEPS);
        Ok(Self {
            shape,
            kernel,
            target: target.clone(),
            terms: copied(&terms)?,
            constant,
            state: allocate(target.dim() + 1)?,
            exchange: allocate(2 * shape.blocks as usize)?,
            most_steps,
            segments: vec![Segment::new(width, most_steps)?, Segment::new(width, most_steps)?],
        })
    }

    pub fn is_for(&self, target: &MetropolisTarget) -> bool {
        self.target == *target
    }

    /// Takes a chain from `point` through all steps.
    pub fn run(
        &mut self,
        stream: &Stream,
        columns: Columns<'_>,
        point: &[f64],
        log_density: f64,
        steps: &mut dyn MetropolisSteps,
    ) -> Result<()> {
        let (dim, width) = (self.target.dim(), self.target.step_width());
        if point.len() != dim || columns.d() != self.target.n_features {
            return Err(mismatch("the point of a chain", vec![dim], vec![point.len()]));
        }
        // A failed run has dropped its segments.
        while self.segments.len() < 2 {
            self.segments.push(Segment::new(width, self.most_steps)?);
        }
        let mut segments = std::mem::take(&mut self.segments);
        let mut state = point.to_vec();
        state.push(log_density);
        stream.write(&self.state, &state)?;
        self.all_steps(stream, columns, &mut segments, steps)?;
        self.segments = segments;
        Ok(())
    }

    /// Takes the chain, whose state is on the device, through the steps, with the two segments that are `free`.
    fn all_steps(
        &self,
        stream: &Stream,
        columns: Columns<'_>,
        free: &mut Vec<Segment>,
        steps: &mut dyn MetropolisSteps,
    ) -> Result<()> {
        let width = self.target.step_width();
        let mut before = 0u32;
        let mut most = FIRST_STEPS;
        let mut under_way: Option<Running<'_, Steps<'_>>> = None;
        let _cleared = stream.clear(&self.exchange)?;
        loop {
            let mut next = free.pop();
            if let Some(segment) = &mut next {
                most = most.min(self.most_steps);
                segment.count = steps.propose(&mut segment.steps[..most * width]).min(most);
                most *= 2;
            }
            let started = match next {
                Some(segment) if segment.count > 0 => {
                    let count = segment.count as u32;
                    let running = self.start(stream, columns, segment, before)?;
                    before = before.wrapping_add(count);
                    Some(running)
                }
                segment => {
                    free.extend(segment);
                    None
                }
            };
            // While the device works on the new segment, the host takes the results of the previous one.
            let ended = started.is_none();
            if let Some(running) = std::mem::replace(&mut under_way, started)
                && let Some(Steps { segment, .. }) = running.wait()?
            {
                steps.record(&segment.steps[..segment.count * width], &segment.densities[..segment.count]);
                free.push(segment);
            }
            if ended {
                return Ok(());
            }
        }
    }

    /// Sends a segment's steps, starts them, and starts to copy the proposals' densities back.
    fn start<'a>(
        &'a self,
        stream: &'a Stream,
        columns: Columns<'a>,
        segment: Segment,
        before: u32,
    ) -> Result<Running<'a, Steps<'a>>> {
        let (target, width) = (&self.target, self.target.step_width());
        let steps = Steps {
            segment,
            shape: self.shape,
            columns,
            target,
            terms: Numbers::of(&self.terms),
            constant: self.constant,
            before,
            state: Numbers::of(&self.state),
            exchange: Numbers::of(&self.exchange),
        };
        let grid = Grid {
            cooperative: true,
            ..Grid::new(self.shape.blocks, self.shape.block, self.shape.shared_bytes(target))
        };
        let sent = stream
            .upload(steps, |Steps { segment, .. }| (&segment.steps, &segment.device_steps, segment.count * width))?;
        sent.launch(self.kernel, grid)?
            .download(|Steps { segment, .. }| (&segment.device_densities, &mut segment.densities, segment.count))?
            .marked()
    }
}

#[derive(Debug)]
struct Steps<'a> {
    segment: Segment,
    shape: Shape,
    columns: Columns<'a>,
    target: &'a MetropolisTarget,
    terms: Numbers<'a, f64>,
    constant: f64,
    /// Steps of earlier launches with the same `exchange`.
    before: u32,
    state: Numbers<'a, f64>,
    exchange: Numbers<'a, f64>,
}

// `exchange` was zero before the first launch. The driver refuses a grid that cannot run at once.
launch!(Steps<'_>, MetropolisArgs, "metropolis", |launch, grid, what| {
    let Steps { segment, target, .. } = launch;
    let fits = takes(target) && launch.columns.d() == target.n_features;
    require(what, grid.cooperative && fits && segment.count > 0)?;
    grid.require_shared(what, launch.shape.shared_bytes(target))?;
    Ok(MetropolisArgs {
        columns: launch.columns.argument(launch.shape.cached_quads(target.n_features)),
        k: target.n_components as u32,
        spherical: target.spherical,
        resident: launch.shape.resident,
        terms: launch.terms.read(layout::length(target), what)?,
        n_ln_2: std::f64::consts::LN_2 * launch.columns.n() as f64,
        constant: launch.constant,
        steps: Numbers::of(&segment.device_steps).read(segment.count * target.step_width(), what)?,
        count: segment.count as u32,
        before: launch.before,
        state: launch.state.write(target.dim() + 1, what)?,
        densities: Numbers::of(&segment.device_densities).write(segment.count, what)?,
        exchange: launch.exchange.write(2 * grid.blocks.0 as usize, what)?,
    })
});
