//! Loading a data set into a device.
use crate::device::auto::{AutoEvaluator, on_gpus};
use crate::device::gpus;
use crate::device::memory_plan::Footprint;
use crate::device::names::{Device, DeviceSet};
use gmm_core::backends::chunked::ChunkedEvaluator;
use gmm_core::backends::cpu::CpuEvaluator;
use gmm_core::backends::noisy::NoisyEvaluator;
use gmm_core::backends::noisy_reference::NoisyReference;
use gmm_core::backends::reference::ReferenceEvaluator;
use gmm_core::backends::sharded::ShardedEvaluator;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::data::noise::Noise;
use gmm_core::data::samples::{Samples, View};
use gmm_core::error::{Error, Result};
use gmm_core::reproducible::Reproducible;
#[cfg(feature = "cuda")]
use gmm_cuda::{CudaEvaluator, CudaOptions, DeviceArray};
use std::ops::Range;
use std::path::PathBuf;

/// Options for loading a data set. The method of a field's name sets it:
///
/// ```
/// use gmm_host::{Device, LoadOptions, Samples, load};
/// use ndarray::array;
///
/// let x = array![[0.5f32, 1.0], [2.0, 3.0]];
/// let options = LoadOptions::new().threads(1).float64(true);
/// let data = load(Device::Cpu, Samples::from_f32(x.view())?, &options)?;
/// assert!(data.describe().device.contains("1 thread") && data.describe().device.contains("float64"));
/// # Ok::<(), gmm_host::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LoadOptions {
    /// The kernel (code variant), one of [`kernel_names`]. By default the device chooses by measured time.
    pub kernel: Option<String>,
    /// Whether to compute in float64 even for float32 samples, from a float64 copy. By default float32 samples are
    /// evaluated in float32, except with mixtures that need more digits ([`Evaluator::precision`]).
    pub float64: bool,
    /// The CPU backend's number of threads. By default rayon's global ones: all cores of the machine, or `RAYON_NUM_THREADS`.
    pub threads: Option<usize>,
    /// The most bytes of this machine's memory for the samples in a device; by default no limit. Samples that need
    /// more, and more than GPUs have, are loaded in chunks ([`load_chunks`]) in each evaluation: a mapped file may
    /// exceed the memory.
    pub memory: Option<u64>,
    /// The most bytes of GPU memory for samples; by default nearly all that is free. Samples that need more stay on the
    /// host and are sent in chunks in each evaluation.
    pub gpu_memory: Option<usize>,
    /// Whether [`Device::Auto`] keeps to the first GPU. By default it moves to all GPUs if these are measured to be
    /// faster.
    pub one_gpu: bool,
    /// The file in which the CUDA backend keeps kernels chosen by measured time. By default they last as long as the
    /// process.
    pub tuning_file: Option<PathBuf>,
}

impl LoadOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`kernel`](Self::kernel), to a name or to `None`.
    #[must_use]
    pub fn kernel(self, name: impl Into<Option<String>>) -> Self {
        Self { kernel: name.into(), ..self }
    }

    /// Sets [`float64`](Self::float64).
    #[must_use]
    pub fn float64(self, float64: bool) -> Self {
        Self { float64, ..self }
    }

    /// Sets [`threads`](Self::threads), to a number or to `None`.
    #[must_use]
    pub fn threads(self, threads: impl Into<Option<usize>>) -> Self {
        Self { threads: threads.into(), ..self }
    }

    /// Sets [`memory`](Self::memory), to a number of bytes or to `None`.
    #[must_use]
    pub fn memory(self, bytes: impl Into<Option<u64>>) -> Self {
        Self { memory: bytes.into(), ..self }
    }

    /// Sets [`gpu_memory`](Self::gpu_memory), to a number of bytes or to `None`.
    #[must_use]
    pub fn gpu_memory(self, bytes: impl Into<Option<usize>>) -> Self {
        Self { gpu_memory: bytes.into(), ..self }
    }

    /// Sets [`one_gpu`](Self::one_gpu).
    #[must_use]
    pub fn one_gpu(self, one_gpu: bool) -> Self {
        Self { one_gpu, ..self }
    }

    /// Sets [`tuning_file`](Self::tuning_file), to a path or to `None`.
    #[must_use]
    pub fn tuning_file(self, path: impl Into<Option<PathBuf>>) -> Self {
        Self { tuning_file: path.into(), ..self }
    }

    /// Returns the device for chunks that are loaded one after the other. For [`Device::Auto`] it is the CPU, or the
    /// device of a named kernel: no chunk stays on a device long enough to measure its speed.
    pub fn device_of_chunks(&self, device: Device) -> Device {
        match (device, &self.kernel) {
            (Device::Auto, None) => Device::Cpu,
            (device, _) => device,
        }
    }
}

/// Divides `n` rows over devices; the CPU's part is one [`DeviceSet::GPU_SHARE`]th of a GPU's. Every part but the last
/// has a multiple of 4 rows if there are enough. No part is empty, so there may be fewer parts than devices.
fn divide(n: usize, devices: &[Device]) -> Vec<(Device, Range<usize>)> {
    let share = |device: &Device| if *device == Device::Cpu { 1 } else { DeviceSet::GPU_SHARE };
    let total: usize = devices.iter().map(share).sum();
    let mut shares = 0;
    let mut start = 0;
    let mut parts = Vec::with_capacity(devices.len());
    for device in devices {
        shares += share(device);
        let end = (n as u128 * shares as u128 / total as u128) as usize;
        let end = if shares == total { n } else { end.next_multiple_of(4).min(n) };
        if end > start {
            parts.push((*device, start..end));
        }
        start = end;
    }
    parts
}

/// Makes `samples` resident in `device`, or loads them in chunks if they exceed [`LoadOptions::memory`]. The evaluator
/// also holds `samples`, so borrowed arrays must outlive it.
///
/// # Errors
/// [`Error::NoCudaDevice`] for a CUDA device that cannot be used, [`Error::Kernel`] for a kernel that the device does
/// not have, [`Error::Unsupported`] for a GPU under [`Reproducible`], and errors of the backend.
pub fn load<'a>(device: Device, samples: Samples<'a>, options: &LoadOptions) -> Result<Box<dyn Evaluator + 'a>> {
    let device = reproducible(device)?;
    if let Some(memory) = options.memory {
        let options = LoadOptions { memory: None, ..options.clone() };
        return load_within(memory, device, samples, &options);
    }
    let samples = if options.float64 { samples.into_float64() } else { samples };
    let samples = match NoisyEvaluator::new(samples, |part| load(device, part, options))? {
        Ok(evaluator) => return Ok(Box::new(evaluator)),
        Err(samples) => samples,
    };
    match (device, &options.kernel) {
        (Device::Auto, None) if samples.noise().is_some_and(Noise::is_projected) => load(Device::Cpu, samples, options),
        (Device::Auto, None) => {
            let options = options.clone();
            let auto = AutoEvaluator::new(samples, options.threads, move |samples| load_on_gpus(samples, &options))?;
            Ok(Box::new(auto))
        }
        // A kernel's name decides the device.
        (Device::Auto, Some(name)) => {
            let all = [Device::Cpu, Device::Cuda(0), Device::Reference];
            // A CUDA kernel's name may be followed by its shape.
            let known = |kernel: &String| name.split([':', '/']).next() == Some(kernel);
            match all.into_iter().find(|device| kernel_names(device).iter().any(known)) {
                Some(device) => load(device, samples, options),
                None => Err(unknown_kernel(device, name)),
            }
        }
        (Device::Cpu, kernel) => Ok(Box::new(CpuEvaluator::with(samples, options.threads, kernel.as_deref())?)),
        (Device::Reference, Some(name)) if !kernel_names(&device).contains(name) => Err(unknown_kernel(device, name)),
        (Device::Reference, _) if samples.noise().is_some() => Ok(Box::new(NoisyReference::new(samples))),
        (Device::Reference, _) => Ok(Box::new(ReferenceEvaluator::new(samples))),
        (Device::Cuda(ordinal), _) => load_on_cuda(ordinal, samples, options),
        (Device::Several(devices), _) => load_shards(&devices.devices()?, samples, options),
    }
}

/// Returns the device; under [`Reproducible`] the CPU for [`Device::Auto`], and an error for a GPU.
pub(crate) fn reproducible(device: Device) -> Result<Device> {
    match device {
        Device::Auto if Reproducible::is_on() => Ok(Device::Cpu),
        Device::Cuda(_) | Device::Several(_) if Reproducible::is_on() => {
            let what = "a computation with the same bits on every CPU".into();
            Err(Error::Unsupported { what, backend: "GPUs", remedy: "name the device cpu" })
        }
        device => Ok(device),
    }
}

/// Loads as [`load`], in chunks if neither this much memory nor the GPUs hold the samples.
fn load_within<'a>(
    memory: u64,
    device: Device,
    samples: Samples<'a>,
    options: &LoadOptions,
) -> Result<Box<dyn Evaluator + 'a>> {
    let element = match samples.view() {
        View::F32(_) if !options.float64 => size_of::<f32>(),
        _ => size_of::<f64>(),
    };
    let (n, d) = (samples.n_samples(), samples.n_features());
    let bytes = (n as u64).saturating_mul((d * element) as u64);
    let footprint = Footprint { n_samples: n, bytes, held: 0, in_device: 1, is_read: true };
    let on_gpus = || device.has_gpu_memory_for(bytes, samples.missing().is_some());
    let Some(rows) = footprint.within(memory, on_gpus).chunk_rows else { return load(device, samples, options) };
    let (device, options) = (options.device_of_chunks(device), options.clone());
    Ok(Box::new(ChunkedEvaluator::of_samples(samples, rows, move |part| load(device, part, &options))?))
}

/// Returns an evaluator of N samples of D features that are not in memory: [`load`] gets `rows` of them at a time, on
/// the device of [`LoadOptions::device_of_chunks`]. `read` returns a range's samples, the same in each pass.
///
/// ```
/// use gmm_host::{Device, Evaluator, LoadOptions, Samples, load_chunks};
/// use ndarray::Array2;
///
/// // In a real program the rows come from a file.
/// let read = |rows: std::ops::Range<usize>| Samples::from_shared_f32(Array2::zeros((rows.len(), 2)).into_shared());
/// let data = load_chunks(Device::Auto, (8, 2), 3, read, &LoadOptions::new())?;
/// assert_eq!((data.n_samples(), data.n_chunks()), (8, 3));
/// # Ok::<(), gmm_host::Error>(())
/// ```
///
/// # Errors
/// [`Error::EmptyData`] without samples or features; later, in each evaluation, errors of [`load`] and of `read`.
pub fn load_chunks<'a>(
    device: Device,
    (n, d): (usize, usize),
    rows: usize,
    mut read: impl FnMut(Range<usize>) -> Result<Samples<'a>> + Send + 'a,
    options: &LoadOptions,
) -> Result<ChunkedEvaluator<'a>> {
    let rows = rows.max(1);
    let (device, options) = (options.device_of_chunks(device), options.clone());
    let sizes = (0..n).step_by(rows).map(|start| rows.min(n - start)).collect();
    ChunkedEvaluator::new(d, sizes, move |i| load(device, read(i * rows..n.min((i + 1) * rows))?, &options))
}

/// Loads samples into the first GPU for `auto`, which may move on to all of them.
fn load_on_gpus<'a>(samples: Samples<'a>, options: &LoadOptions) -> Result<Box<dyn Evaluator + 'a>> {
    let several = !options.one_gpu && gpus::usable().is_ok_and(|gpus| gpus.len() > 1);
    let all = options.clone();
    let open_one = |samples| load_on_cuda(0, samples, options);
    on_gpus(samples, several, open_one, move |samples| load(Device::Several(DeviceSet::ALL_CUDA), samples, &all))
}

/// Loads a part of the samples into each device, all at once, read in place: a mapped file is never copied as a whole.
fn load_shards<'a>(devices: &[Device], samples: Samples<'a>, options: &LoadOptions) -> Result<Box<dyn Evaluator + 'a>> {
    let parts = divide(samples.n_samples(), devices);
    if let [(device, _)] = parts[..] {
        return load(device, samples, options);
    }
    let samples = &samples;
    let shards: Vec<Result<Box<dyn Evaluator + 'a>>> = std::thread::scope(|scope| {
        let loading: Vec<_> = parts
            .into_iter()
            .map(|(device, rows)| scope.spawn(move || load(device, samples.rows(rows), options)))
            .collect();
        loading
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    Ok(Box::new(ShardedEvaluator::new(shards.into_iter().collect::<Result<_>>()?)?))
}

#[cfg(feature = "cuda")]
fn load_on_cuda<'a>(ordinal: usize, samples: Samples<'a>, options: &LoadOptions) -> Result<Box<dyn Evaluator + 'a>> {
    Ok(Box::new(CudaEvaluator::new(samples, ordinal, &cuda_options(options))?))
}

#[cfg(not(feature = "cuda"))]
fn load_on_cuda<'a>(_: usize, _: Samples<'a>, _: &LoadOptions) -> Result<Box<dyn Evaluator + 'a>> {
    Err(gpus::absent())
}

#[cfg(feature = "cuda")]
fn cuda_options(options: &LoadOptions) -> CudaOptions {
    let mut cuda = CudaOptions::default();
    cuda.kernel = options.kernel.clone();
    cuda.memory_limit = options.gpu_memory;
    cuda.tuning_file = options.tuning_file.clone();
    cuda
}

/// Makes the samples of an array in a GPU's memory resident in that GPU, without a copy to the host.
///
/// # Errors
/// As [`load`] and [`CudaEvaluator::from_device_array`](crate::CudaEvaluator::from_device_array).
#[cfg(feature = "cuda")]
pub fn load_device_array(array: DeviceArray, options: &LoadOptions) -> Result<Box<dyn Evaluator>> {
    reproducible(Device::Cuda(0))?;
    let array = if options.float64 { array.in_float64() } else { array };
    Ok(Box::new(CudaEvaluator::from_device_array(array, &cuda_options(options))?))
}

/// Returns the names of the kernels that `device` can run, none if it cannot be used.
pub fn kernel_names(device: &Device) -> Vec<String> {
    match device {
        Device::Auto => [Device::Cpu, Device::Cuda(0), Device::Reference].iter().flat_map(kernel_names).collect(),
        Device::Reference => vec!["reference".into()],
        Device::Cpu => CpuEvaluator::kernels().into_iter().map(String::from).collect(),
        Device::Cuda(ordinal) => gpus::kernel_names(*ordinal),
        Device::Several(devices) => devices.devices().iter().flatten().take(1).flat_map(kernel_names).collect(),
    }
}

/// Returns every device that was looked for, with its description or the reason that it cannot be used.
pub fn devices() -> Vec<(Device, Result<String>)> {
    let point = ndarray::arr2(&[[0.0f32]]);
    let describe = |device| {
        let loaded = Samples::from_f32(point.view()).and_then(|s| load(device, s, &LoadOptions::default()));
        (device, loaded.map(|e| e.describe().device))
    };
    let mut all = vec![describe(Device::Cpu)];
    match gpus::devices() {
        Ok(gpus) => all.extend(gpus.into_iter().enumerate().map(|(i, gpu)| (Device::Cuda(i), gpu))),
        Err(error) => all.push((Device::Cuda(0), Err(error))),
    }
    all.push(describe(Device::Reference));
    all
}

fn unknown_kernel(device: Device, name: &str) -> Error {
    let problem = format!("is not a kernel of device `{device}`");
    Error::Kernel { name: name.into(), problem, available: kernel_names(&device).join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_divided_without_a_rest() {
        let devices = |n: usize| (0..n).map(Device::Cuda).collect::<Vec<_>>();
        for n in [1, 2, 3, 7, 8, 100, 1001, 1 << 20] {
            for count in 1..=5 {
                let mut all = devices(count);
                if n % 2 == 0 {
                    all.insert(0, Device::Cpu);
                }
                let parts = divide(n, &all);
                let mut next = 0;
                for (_, rows) in &parts {
                    assert!(rows.start == next && rows.end > rows.start, "{n} {count} {parts:?}");
                    next = rows.end;
                }
                assert_eq!(next, n);
                assert!(parts.iter().rev().skip(1).all(|(_, rows)| rows.end % 4 == 0 || rows.end == n), "{parts:?}");
            }
        }
        let sizes: Vec<usize> = divide(1 << 20, &devices(4)).iter().map(|(_, rows)| rows.len()).collect();
        assert_eq!(sizes, [1 << 18; 4]);
        let with_cpu = divide(6500, &[Device::Cpu, Device::Cuda(0)]);
        assert_eq!(with_cpu, [(Device::Cpu, 0..100), (Device::Cuda(0), 100..6500)]);
    }

    #[test]
    fn every_kernel_name_loads_and_others_do_not() {
        let x = ndarray::arr2(&[[0.5f32, 1.0], [2.0, 3.0]]);
        for device in [Device::Auto, Device::Cpu, Device::Reference] {
            let load = |kernel: &str| {
                let options = LoadOptions::new().kernel(kernel.to_string());
                load(device, Samples::from_f32(x.view()).unwrap(), &options)
            };
            for name in kernel_names(&device) {
                assert_eq!(load(&name).unwrap().n_samples(), 2);
            }
            let Err(Error::Kernel { name, available, .. }) = load("warp9") else { panic!("{device}: kernel warp9") };
            assert_eq!((name.as_str(), available), ("warp9", kernel_names(&device).join(", ")));
        }
    }
}
