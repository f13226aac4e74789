//! Devices by name, and how a data set is loaded into one.
use crate::backends::auto::{AutoEvaluator, on_gpus};
use crate::backends::chunked::ChunkedEvaluator;
use crate::backends::cpu::CpuEvaluator;
#[cfg(feature = "cuda")]
use crate::backends::cuda::{CudaEvaluator, DeviceArray};
use crate::backends::reference::ReferenceEvaluator;
use crate::backends::sharded::ShardedEvaluator;
use crate::data::samples::{Samples, View};
use crate::error::{Error, Result};
use crate::evaluator::Evaluator;
use crate::memory_plan::Footprint;
use std::ops::Range;
use std::{fmt, path::PathBuf, str::FromStr};

/// Where to compute. Its text form is `auto`, `cpu`, `reference`, `cuda` (the same as `cuda:0`) or
/// `cuda:N`; and for several devices at once `cuda:all`, or a list such as `cuda:0,2` or
/// `cuda:0,cpu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "String", into = "String")
)]
#[non_exhaustive]
pub enum Device {
    /// The CPU; and a GPU for jobs that are expected to take the CPU about half a second longer, as
    /// soon as the GPU is ready and measured to be faster; and by the same rule all GPUs in the
    /// place of one, where there are several ([`LoadOptions::one_gpu`]). A shorter job never
    /// touches a GPU and gives the bits that [`Cpu`](Self::Cpu) gives. In a longer job the moment
    /// of the move to the GPU depends on the clock, and the results after it differ from the CPU's
    /// in the last digits; so they may differ from run to run, where those of `Cpu` never do. An
    /// evaluator that is [settled](crate::Evaluator::settle) chooses, by measurement too, before
    /// its first result.
    #[default]
    Auto,
    /// All cores of the CPU, with its SIMD instructions.
    Cpu,
    /// float64 on one core. It is slow; all other devices are compared with it.
    Reference,
    /// The CUDA device of this number.
    Cuda(usize),
    /// Several devices, over which the samples are divided. All of them evaluate at the same time,
    /// and their results are added up in a fixed order, so that the same division gives the same
    /// bits on every run.
    Several(DeviceSet),
}

/// Some CUDA devices, and the CPU if it is to take a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceSet {
    cuda: CudaDevices,
    cpu: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum CudaDevices {
    All,
    /// Bit n stands for device n.
    Some(u64),
}

impl DeviceSet {
    /// All CUDA devices of the machine.
    pub const ALL_CUDA: Self = Self { cuda: CudaDevices::All, cpu: false };

    /// The CUDA devices of these numbers, which must be below 64; others are left out.
    pub fn cuda(ordinals: impl IntoIterator<Item = usize>) -> Self {
        let bits = ordinals.into_iter().filter(|n| *n < 64).fold(0, |bits, n| bits | 1 << n);
        Self { cuda: CudaDevices::Some(bits), cpu: false }
    }

    /// The same devices and the CPU, which gets one sample for [`GPU_SHARE`](Self::GPU_SHARE)
    /// samples of a GPU.
    #[must_use]
    pub fn and_cpu(self) -> Self {
        Self { cpu: true, ..self }
    }

    /// How many samples a GPU gets for one of the CPU, if both take part. A GPU of a data centre is
    /// about so many times as fast as the cores beside it.
    pub const GPU_SHARE: usize = 64;

    /// The devices one by one, the CPU first.
    fn devices(self) -> Result<Vec<Device>> {
        let ordinals: Vec<usize> = match self.cuda {
            CudaDevices::All => cuda::usable()?,
            CudaDevices::Some(bits) => (0..64).filter(|n| bits >> n & 1 == 1).collect(),
        };
        let cpu = self.cpu.then_some(Device::Cpu);
        Ok(cpu.into_iter().chain(ordinals.into_iter().map(Device::Cuda)).collect())
    }
}

impl fmt::Display for DeviceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cuda {
            CudaDevices::All => f.write_str("cuda:all")?,
            CudaDevices::Some(bits) => {
                let numbers: Vec<String> = (0..64).filter(|n| bits >> n & 1 == 1).map(|n| n.to_string()).collect();
                write!(f, "cuda:{}", numbers.join(","))?;
            }
        }
        f.write_str(if self.cpu { ",cpu" } else { "" })
    }
}

/// Reads `cuda:all`, `cuda:0,2`, `cuda:0,cpu` or `cpu,cuda:0`: at least two devices, none of them
/// twice.
fn several(name: &str) -> Option<DeviceSet> {
    let (mut all, mut bits, mut cpu, mut in_cuda) = (false, 0u64, false, false);
    for part in name.split(',') {
        if part == "cpu" && !cpu {
            (cpu, in_cuda) = (true, false);
            continue;
        }
        let number = match part.strip_prefix("cuda:") {
            Some(number) => number,
            None if in_cuda => part,
            None => return None,
        };
        in_cuda = true;
        if number == "all" && !all && bits == 0 {
            all = true;
            continue;
        }
        let n = number.bytes().all(|b| b.is_ascii_digit()).then(|| number.parse::<u32>().ok()).flatten()?;
        let bit = 1u64.checked_shl(n)?;
        if all || bits & bit != 0 {
            return None;
        }
        bits |= bit;
    }
    let enough = all || bits.count_ones() + u32::from(cpu) >= 2 && bits != 0;
    enough.then_some(DeviceSet { cuda: if all { CudaDevices::All } else { CudaDevices::Some(bits) }, cpu })
}

impl Device {
    /// The bytes of GPU memory that samples can take now on this device: nearly all that is free.
    /// On several devices, which get equal parts, it is as many times that of the GPU with the
    /// least. `None` for a device that is no GPU or cannot be used.
    pub fn free_gpu_memory(self) -> Option<u64> {
        let devices = match self {
            Self::Cuda(_) => vec![self],
            Self::Several(devices) => devices.devices().ok()?,
            Self::Auto | Self::Cpu | Self::Reference => return None,
        };
        let gpus = devices.iter().filter_map(|device| if let Self::Cuda(n) = device { Some(*n) } else { None });
        let free = gpus.map(|n| cuda::free_memory(n).ok()).collect::<Option<Vec<u64>>>()?;
        Some(free.len() as u64 * free.iter().min()?)
    }

    /// The device for chunks that are loaded one after the other. [`Auto`](Self::Auto) is the CPU
    /// there, unless a kernel is named, whose device it then is: no chunk stays on a device long
    /// enough for its speed to be measured.
    pub fn of_chunks(self, options: &LoadOptions) -> Self {
        match (self, &options.kernel) {
            (Self::Auto, None) => Self::Cpu,
            (device, _) => device,
        }
    }

    /// Whether the memory of this GPU, or of these, takes samples of so many bytes now; false for a
    /// device that is no GPU or cannot be used. Samples with `missing` values may take more there
    /// than on the host: each pattern of them begins with a multiple of four rows.
    pub fn has_gpu_memory_for(self, bytes: u64, missing: bool) -> bool {
        self.free_gpu_memory().is_some_and(|free| bytes.saturating_mul(if missing { PADDED } else { 1 }) <= free)
    }
}

/// How many times the bytes of samples with missing values a GPU may need for them: every row may
/// be a pattern of its own, and a column of weights comes with it.
const PADDED: u64 = 5;

/// Divides `n` rows over devices: equally over GPUs, of whose part the CPU gets a
/// [`DeviceSet::GPU_SHARE`]th. Every device but the last gets a multiple of 4 rows where there are
/// enough, and none gets no row: there are fewer ranges than devices, if need be.
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

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Reference => f.write_str("reference"),
            Self::Cuda(n) => write!(f, "cuda:{n}"),
            Self::Several(devices) => devices.fmt(f),
        }
    }
}

#[cfg(feature = "serde")]
impl From<Device> for String {
    fn from(device: Device) -> Self {
        device.to_string()
    }
}

#[cfg(feature = "serde")]
impl TryFrom<String> for Device {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        name.parse()
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let unknown = || Error::UnknownDevice { name: name.into() };
        match name {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "reference" => Ok(Self::Reference),
            "cuda" => Ok(Self::Cuda(0)),
            _ => {
                let digits = name.strip_prefix("cuda:").filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
                let one = digits.and_then(|n| n.parse().ok()).map(Self::Cuda);
                one.or_else(|| several(name).map(Self::Several)).ok_or_else(unknown)
            }
        }
    }
}

/// How to load a data set. Each field has a method of its name that sets it:
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
    /// The kernel (code variant) to use, one of [`kernel_names`]; by default the device chooses by
    /// measured time.
    pub kernel: Option<String>,
    /// Whether to compute in float64 also for float32 samples, from a float64 copy of them. By
    /// default float32 samples are evaluated in float32, except with mixtures for which its digits
    /// do not suffice ([`Evaluator::precision`]).
    pub float64: bool,
    /// How many threads the CPU backend computes with; by default rayon's global threads, as many
    /// as the machine has or as `RAYON_NUM_THREADS` says.
    pub threads: Option<usize>,
    /// Most bytes of this machine's memory to be used for the samples in a device; by default any
    /// number. Samples that need more, and for which GPUs have no room either, are loaded in chunks
    /// ([`load_chunks`]), for each evaluation anew. So samples of a mapped file may be more than
    /// the memory holds.
    pub memory: Option<u64>,
    /// Most bytes of the GPU's memory to be used for samples; by default nearly all that is free.
    /// Samples that need more stay on the host and are sent in chunks, for each evaluation anew.
    pub gpu_memory: Option<usize>,
    /// Whether [`Device::Auto`] keeps to the first GPU. By default it goes on to all GPUs where
    /// that is measured to be faster.
    pub one_gpu: bool,
    /// The file in which the CUDA backend remembers the kernels that it has chosen by measured
    /// time. Without one they are remembered within the process only.
    pub tuning_file: Option<PathBuf>,
}

impl LoadOptions {
    /// The default options.
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
}

/// Makes `samples` resident in `device`, or loads them in chunks where they are more than
/// [`LoadOptions::memory`] allows. The evaluator also holds `samples`, so that borrowed arrays must
/// outlive it.
///
/// # Errors
/// [`Error::NoCudaDevice`] where a CUDA device is asked for and cannot be used, [`Error::Kernel`]
/// for a kernel that the device does not have, and what the backend itself reports.
pub fn load<'a>(device: Device, samples: Samples<'a>, options: &LoadOptions) -> Result<Box<dyn Evaluator + 'a>> {
    if let Some(memory) = options.memory {
        let options = LoadOptions { memory: None, ..options.clone() };
        return load_within(memory, device, samples, &options);
    }
    let samples = if options.float64 { samples.into_float64() } else { samples };
    match (device, &options.kernel) {
        (Device::Auto, None) => {
            let options = options.clone();
            let auto = AutoEvaluator::new(samples, options.threads, move |samples| load_on_gpus(samples, &options))?;
            Ok(Box::new(auto))
        }
        // The name of a kernel decides the device.
        (Device::Auto, Some(name)) => {
            let all = [Device::Cpu, Device::Cuda(0), Device::Reference];
            // The name of a CUDA kernel may be followed by its shape.
            let known = |kernel: &String| name.split([':', '/']).next() == Some(kernel);
            match all.into_iter().find(|device| kernel_names(device).iter().any(known)) {
                Some(device) => load(device, samples, options),
                None => Err(unknown_kernel(device, name)),
            }
        }
        (Device::Cpu, kernel) => Ok(Box::new(CpuEvaluator::with(samples, options.threads, kernel.as_deref())?)),
        (Device::Reference, Some(name)) if !kernel_names(&device).contains(name) => Err(unknown_kernel(device, name)),
        (Device::Reference, _) => Ok(Box::new(ReferenceEvaluator::new(samples))),
        (Device::Cuda(ordinal), _) => cuda::load(ordinal, samples, options),
        (Device::Several(devices), _) => load_shards(&devices.devices()?, samples, options),
    }
}

/// As [`load`], in chunks where neither so much memory nor that of GPUs holds the samples.
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
    let total_weight = samples.total_weight();
    let chunks = load_chunks(device, (n, d), rows, move |rows| Ok(samples.rows(rows)), options)?;
    Ok(Box::new(chunks.with_total_weight(total_weight)))
}

/// N samples of D features that are not in memory, of which [`load`] gets `rows` at a time
/// ([`Device::of_chunks`] computes over them). `read` gives the samples of a range of rows; it is
/// called in each pass, and must give the same each time.
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
/// [`Error::EmptyData`] without samples or features; later, in each evaluation, those of [`load`]
/// and of `read`.
pub fn load_chunks<'a>(
    device: Device,
    (n, d): (usize, usize),
    rows: usize,
    mut read: impl FnMut(Range<usize>) -> Result<Samples<'a>> + Send + 'a,
    options: &LoadOptions,
) -> Result<ChunkedEvaluator<'a>> {
    let rows = rows.max(1);
    let (device, options) = (device.of_chunks(options), options.clone());
    let sizes = (0..n).step_by(rows).map(|start| rows.min(n - start)).collect();
    ChunkedEvaluator::new(d, sizes, move |i| load(device, read(i * rows..n.min((i + 1) * rows))?, &options))
}

/// Loads samples into the first GPU, for `auto`, which may go on to all of them.
fn load_on_gpus<'a>(samples: Samples<'a>, options: &LoadOptions) -> Result<Box<dyn Evaluator + 'a>> {
    let several = !options.one_gpu && cuda::usable().is_ok_and(|gpus| gpus.len() > 1);
    let all = options.clone();
    let open_one = |samples| cuda::load(0, samples, options);
    on_gpus(samples, several, open_one, move |samples| load(Device::Several(DeviceSet::ALL_CUDA), samples, &all))
}

/// Loads a part of the samples into each device, all at once. The samples are read where they lie,
/// so that those of a mapped file are never copied as a whole.
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

/// Makes the samples of an array in a GPU's memory resident in that GPU, without a way through the
/// host.
///
/// # Errors
/// As [`load`], and those of
/// [`CudaEvaluator::from_device_array`](crate::CudaEvaluator::from_device_array).
#[cfg(feature = "cuda")]
pub fn load_device_array(array: DeviceArray, options: &LoadOptions) -> Result<Box<dyn Evaluator>> {
    let array = if options.float64 { array.in_float64() } else { array };
    Ok(Box::new(CudaEvaluator::from_device_array(array, &cuda::options(options))?))
}

/// The names of the kernels that `device` can run; none for a device that cannot be used.
pub fn kernel_names(device: &Device) -> Vec<String> {
    match device {
        Device::Auto => [Device::Cpu, Device::Cuda(0), Device::Reference].iter().flat_map(kernel_names).collect(),
        Device::Reference => vec!["reference".into()],
        Device::Cpu => CpuEvaluator::kernels().into_iter().map(String::from).collect(),
        Device::Cuda(ordinal) => cuda::kernel_names(*ordinal),
        Device::Several(devices) => devices.devices().iter().flatten().take(1).flat_map(kernel_names).collect(),
    }
}

/// Every device that was looked for, with its description, or why it cannot be used.
pub fn devices() -> Vec<(Device, Result<String>)> {
    let point = ndarray::arr2(&[[0.0f32]]);
    let describe = |device| {
        let loaded = Samples::from_f32(point.view()).and_then(|s| load(device, s, &LoadOptions::default()));
        (device, loaded.map(|e| e.describe().device))
    };
    let mut all = vec![describe(Device::Cpu)];
    match cuda::devices() {
        Ok(gpus) => all.extend(gpus.into_iter().enumerate().map(|(i, gpu)| (Device::Cuda(i), gpu))),
        Err(error) => all.push((Device::Cuda(0), Err(error))),
    }
    all.push(describe(Device::Reference));
    all
}

fn unknown_kernel(device: Device, name: &str) -> Error {
    let problem = format!("is not one of device `{device}`");
    Error::Kernel { name: name.into(), problem, available: kernel_names(&device).join(", ") }
}

/// What this module asks of the CUDA backend.
#[cfg(feature = "cuda")]
mod cuda {
    use super::{Evaluator, LoadOptions, Result, Samples};
    use crate::backends::cuda::{CudaEvaluator, CudaOptions, cuda_devices, cuda_kernel_names};

    pub fn load<'a>(ordinal: usize, samples: Samples<'a>, options: &LoadOptions) -> Result<Box<dyn Evaluator + 'a>> {
        Ok(Box::new(CudaEvaluator::new(samples, ordinal, &self::options(options))?))
    }

    pub fn options(options: &LoadOptions) -> CudaOptions {
        CudaOptions {
            kernel: options.kernel.clone(),
            memory_limit: options.gpu_memory,
            tuning_file: options.tuning_file.clone(),
        }
    }

    pub fn kernel_names(ordinal: usize) -> Vec<String> {
        let usable = cuda_devices().is_ok_and(|gpus| gpus.get(ordinal).is_some_and(|gpu| gpu.usable().is_ok()));
        if usable { cuda_kernel_names() } else { Vec::new() }
    }

    pub fn free_memory(ordinal: usize) -> Result<u64> {
        Ok(crate::backends::cuda::free_memory(ordinal)? as u64)
    }

    /// The numbers of the devices that can be used, of which there is at least one.
    pub fn usable() -> Result<Vec<usize>> {
        let gpus = cuda_devices()?;
        let usable: Vec<usize> = (0..gpus.len()).filter(|n| gpus[*n].usable().is_ok()).collect();
        match gpus.first() {
            Some(first) if usable.is_empty() => first.usable().map(|()| usable),
            _ => Ok(usable),
        }
    }

    pub fn devices() -> Result<Vec<Result<String>>> {
        Ok(cuda_devices()?.into_iter().map(|gpu| gpu.usable().map(|()| gpu.to_string())).collect())
    }
}

/// What takes its place in a build without the CUDA backend.
#[cfg(not(feature = "cuda"))]
mod cuda {
    use super::{Error, Evaluator, LoadOptions, Result, Samples};

    fn absent() -> Error {
        Error::NoCudaDevice { reason: "this build has no CUDA backend".into() }
    }

    pub fn load<'a>(_: usize, _: Samples<'a>, _: &LoadOptions) -> Result<Box<dyn Evaluator + 'a>> {
        Err(absent())
    }

    pub fn kernel_names(_: usize) -> Vec<String> {
        Vec::new()
    }

    pub fn free_memory(_: usize) -> Result<u64> {
        Err(absent())
    }

    pub fn usable() -> Result<Vec<usize>> {
        Err(absent())
    }

    pub fn devices() -> Result<Vec<Result<String>>> {
        Err(absent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in
            ["auto", "cpu", "reference", "cuda:0", "cuda:17", "cuda:all", "cuda:0,2", "cuda:1,cpu", "cuda:all,cpu"]
        {
            assert_eq!(name.parse::<Device>().unwrap().to_string(), name);
        }
        assert_eq!("cuda".parse::<Device>().unwrap(), Device::Cuda(0));
        for (name, same) in [("cuda:2,0", "cuda:0,2"), ("cpu,cuda:3", "cuda:3,cpu"), ("cuda:0,cuda:1", "cuda:0,1")] {
            assert_eq!(name.parse::<Device>().unwrap().to_string(), same);
        }
        assert_eq!("cuda:0,2".parse::<Device>().unwrap(), Device::Several(DeviceSet::cuda([2, 0])));
        assert_eq!("cuda:all,cpu".parse::<Device>().unwrap(), Device::Several(DeviceSet::ALL_CUDA.and_cpu()));
    }

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
    fn unknown_names_are_refused() {
        for name in [
            "",
            "gpu",
            "CPU",
            "cuda:",
            "cuda:-1",
            "cuda:+1",
            "cuda:x",
            "cuda:99999999999999999999",
            "cuda0",
            "cuda:0,0",
            "cuda:all,1",
            "cuda:64,65",
            "cpu,cpu",
            "cpu,",
            "0,1",
            "cuda:0,",
            "cuda:0,gpu",
            "cpu,1",
            "auto,cpu",
        ] {
            let error = name.parse::<Device>().unwrap_err();
            let text = error.to_string();
            for part in
                [&format!("`{name}`"), "auto", "cpu", "reference", "cuda:N", "cuda:all", "cuda:0,2", "cuda:0,cpu"]
            {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
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
