//! The kernel `pair` on the first GPU, launched through the crate cust.
use cust::context::Context;
use cust::device::{Device, DeviceAttribute};
use cust::error::CudaResult;
use cust::launch;
use cust::memory::{CopyDestination, DeviceBuffer, DeviceCopy};
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use gmm_host::{Covariances, Mixture};
use gmm_kernels::data::QUAD;
use gmm_kernels::likelihood::pair::{PairArgs, shared_bytes};
use gmm_kernels::reduce::{Output, UNWRITTEN};
use gmm_kernels::simt::WARP;
use ndarray::{Array2, ArrayView2, Axis, Zip, s};
use std::f64::consts::{LN_2, LOG2_E, PI};
use std::ptr::null_mut;

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Argument(PairArgs);

// SAFETY: numbers, and addresses of the device's memory.
unsafe impl DeviceCopy for Argument {}

/// Samples and parameters in the memory of the GPU, and the kernel.
pub struct Pair {
    n: usize,
    /// Blocks, threads of a block, and bytes of shared memory.
    shape: (u32, u32, u32),
    argument: Argument,
    /// (D, stride)
    _samples: DeviceBuffer<f32>,
    /// (K, 2·D + 2)
    parameters: DeviceBuffer<f32>,
    /// The total of each block, while the kernel runs.
    _partials: DeviceBuffer<f64>,
    total: DeviceBuffer<f64>,
    pub stream: Stream,
    module: Module,
    // Dropped last, because everything above is part of it.
    _context: Context,
}

impl Pair {
    /// Copies the samples (N, D) to the GPU, for mixtures of K components.
    pub fn new(x: ArrayView2<'_, f32>, k: usize) -> CudaResult<Self> {
        let context = cust::quick_init()?;
        let module = Module::from_ptx(gmm_kernels::ptx::entry("pair").expect("the PTX of `pair`"), &[])?;
        // Work of this stream begins after the preceding copies, for which a non-blocking stream would not wait.
        let stream = Stream::new(StreamFlags::DEFAULT, None)?;

        // Column by column, each padded to whole quads.
        let (n, d) = x.dim();
        let mut columns = Array2::zeros((d, n.next_multiple_of(QUAD)));
        columns.slice_mut(s![.., ..n]).assign(&x.t());
        let samples = DeviceBuffer::from_slice(columns.as_slice().expect("row-major"))?;

        // A warp for each component, a lane for each of 32 samples; with more than 32 components each warp takes
        // several in turn. A multiprocessor has registers for 48 warps.
        let warps = (k as u32).min(WARP);
        let multiprocessors = Device::get_device(0)?.get_attribute(DeviceAttribute::MultiprocessorCount)? as u32;
        let blocks = (n.div_ceil(WARP as usize) as u32).min(multiprocessors * (48 / warps).min(32));
        let shape = (blocks, WARP * warps, shared_bytes(d, WARP * warps) as u32);

        let parameters = DeviceBuffer::from_slice(&vec![0.0; k * (2 * d + 2)])?;
        let partials = DeviceBuffer::from_slice(&vec![f64::from_bits(UNWRITTEN); blocks as usize])?;
        let total = DeviceBuffer::from_slice(&[0.0])?;
        let argument = Argument(PairArgs {
            x: samples.as_device_ptr().as_ptr(),
            stride: columns.ncols() as u64,
            n: n as u64,
            k: k as u32,
            d: d as u32,
            parameters: parameters.as_device_ptr().as_ptr(),
            samples: null_mut(),
            output: Output {
                partials: partials.as_device_ptr().as_mut_ptr(),
                total: total.as_device_ptr().as_mut_ptr(),
            },
        });
        let (_samples, _partials, _context) = (samples, partials, context);
        Ok(Self { n, shape, argument, _samples, parameters, _partials, total, stream, module, _context })
    }

    /// Returns log p(x) of all samples together.
    pub fn log_likelihood(&mut self, mixture: &Mixture) -> CudaResult<f64> {
        let (rows, offset) = parameters(mixture);
        self.parameters.copy_from(rows.as_slice().expect("row-major"))?;
        self.launch()?;
        self.stream.synchronize()?;
        let mut total = [0.0];
        self.total.copy_to(&mut total)?;
        Ok((total[0] + offset * self.n as f64) * LN_2)
    }

    pub fn launch(&self) -> CudaResult<()> {
        let (module, stream, (blocks, threads, shared)) = (&self.module, &self.stream, self.shape);
        // SAFETY: the memory that the argument names is this struct's, of the sizes that the kernel requires; launches
        // of one stream run one after another.
        unsafe { launch!(module.pair<<<blocks, threads, shared, stream>>>(self.argument)) }
    }
}

/// Returns the parameters as the kernel reads them, (K, 2·D + 2): for each component s₀, m₀, s₁, m₁, …, w, seed; and
/// the constant to add to each sample's log₂ Σₖ wₖ·2^(seedₖ − Σⱼ (sₖⱼ·xⱼ + mₖⱼ)²).
///
/// With s = √(log₂e / 2) / σ and m = −μ·s, a feature's log₂ density is log₂ s − log₂(π·log₂e) / 2 − (s·x + m)². The
/// constants are those of the rounded s.
fn parameters(mixture: &Mixture) -> (Array2<f32>, f64) {
    let Covariances::Diag(variances) = mixture.covariances() else { panic!("`pair` takes diagonal covariances") };
    let (k, d) = mixture.means().dim();
    let scales = variances.mapv(|variance| (LOG2_E / 2.0 / variance).sqrt() as f32);
    let of_scales = scales.mapv(|s| f64::from(s).log2() - (PI * LOG2_E).log2() / 2.0).sum_axis(Axis(1));
    let constants = of_scales + mixture.weights().mapv(f64::log2);
    let offset = constants.iter().copied().fold(f64::NEG_INFINITY, f64::max);

    let mut rows = Array2::<f32>::zeros((k, 2 * d + 2));
    rows.slice_mut(s![.., ..2 * d; 2]).assign(&scales);
    Zip::from(rows.slice_mut(s![.., 1..2 * d; 2])).and(&scales).and(mixture.means()).for_each(|m, &s, mean| {
        *m = (-mean * f64::from(s)) as f32;
    });
    for (mut row, constant) in rows.rows_mut().into_iter().zip(&constants) {
        let weight = (constant - offset).max(-60.0).exp2() as f32;
        row[2 * d] = weight;
        // The remainder that does not fit into the weight, including its rounding.
        row[2 * d + 1] = (constant - offset - f64::from(weight).log2()) as f32;
    }
    (rows, offset)
}
