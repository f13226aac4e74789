//! Devices by name, and how a data set is loaded into one.
use crate::backends::auto::AutoEvaluator;
use crate::{CpuEvaluator, Error, Evaluator, ReferenceEvaluator, Result, Samples};
use std::{fmt, path::PathBuf, str::FromStr};

/// Where to compute. Its text form is `auto`, `cpu`, `reference`, `cuda` (the same as `cuda:0`) or `cuda:N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "String", into = "String")
)]
#[non_exhaustive]
pub enum Device {
    /// The CPU; and a GPU for jobs that are expected to take the CPU about half a second longer, as soon as the GPU is
    /// ready and measured to be faster. A shorter job never touches a GPU and gives the bits that [`Cpu`](Self::Cpu)
    /// gives. In a longer job the moment of the move to the GPU depends on the clock, and the results after it differ from
    /// the CPU's in the last digits; so they may differ from run to run, where those of `Cpu` never do. An evaluator that
    /// is [settled](crate::Evaluator::settle) chooses, by measurement too, before its first result.
    #[default]
    Auto,
    /// All cores of the CPU, with its SIMD instructions.
    Cpu,
    /// float64 on one core. It is slow; all other devices are compared with it.
    Reference,
    /// The CUDA device of this number.
    Cuda(usize),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Reference => f.write_str("reference"),
            Self::Cuda(n) => write!(f, "cuda:{n}"),
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
                digits.and_then(|n| n.parse().ok()).map(Self::Cuda).ok_or_else(unknown)
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
    /// The kernel (code variant) to use, one of [`kernel_names`]; by default the device chooses by measured time.
    pub kernel: Option<String>,
    /// Whether to compute in float64 also for float32 samples, from a float64 copy of them. By default float32 samples are
    /// evaluated in float32, except with mixtures for which its digits do not suffice ([`Evaluator::precision`]).
    pub float64: bool,
    /// How many threads the CPU backend computes with; by default rayon's global threads, as many as the machine has or as
    /// `RAYON_NUM_THREADS` says.
    pub threads: Option<usize>,
    /// Most bytes of the GPU's memory to be used for samples; by default nearly all that is free. Samples that need more
    /// stay on the host and are sent in chunks, for each evaluation anew.
    pub gpu_memory: Option<usize>,
    /// The file in which the CUDA backend remembers the kernels that it has chosen by measured time. Without one they are
    /// remembered within the process only.
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

    /// Sets [`gpu_memory`](Self::gpu_memory), to a number of bytes or to `None`.
    #[must_use]
    pub fn gpu_memory(self, bytes: impl Into<Option<usize>>) -> Self {
        Self { gpu_memory: bytes.into(), ..self }
    }

    /// Sets [`tuning_file`](Self::tuning_file), to a path or to `None`.
    #[must_use]
    pub fn tuning_file(self, path: impl Into<Option<PathBuf>>) -> Self {
        Self { tuning_file: path.into(), ..self }
    }
}

/// Makes `samples` resident in `device`. The evaluator also holds `samples`, so that borrowed arrays must outlive it.
///
/// # Errors
/// [`Error::NoCudaDevice`] where a CUDA device is asked for and cannot be used, [`Error::Kernel`] for a kernel that the
/// device does not have, and what the backend itself reports.
pub fn load<'a>(device: Device, samples: Samples<'a>, options: &LoadOptions) -> Result<Box<dyn Evaluator + 'a>> {
    let samples = if options.float64 { samples.into_float64() } else { samples };
    match (device, &options.kernel) {
        (Device::Auto, None) => {
            let on_gpu = options.clone();
            let auto = AutoEvaluator::new(samples, options.threads, move |samples| cuda::load(0, samples, &on_gpu))?;
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
    }
}

/// Makes the samples of an array in a GPU's memory resident in that GPU, without a way through the host.
///
/// # Errors
/// As [`load`], and those of [`CudaEvaluator::from_device_array`](crate::CudaEvaluator::from_device_array).
#[cfg(feature = "cuda")]
pub fn load_device_array(array: crate::DeviceArray, options: &LoadOptions) -> Result<Box<dyn Evaluator>> {
    let array = if options.float64 { array.in_float64() } else { array };
    Ok(Box::new(crate::CudaEvaluator::from_device_array(array, &cuda::options(options))?))
}

/// The names of the kernels that `device` can run; none for a device that cannot be used.
pub fn kernel_names(device: &Device) -> Vec<String> {
    match device {
        Device::Auto => [Device::Cpu, Device::Cuda(0), Device::Reference].iter().flat_map(kernel_names).collect(),
        Device::Reference => vec!["reference".into()],
        Device::Cpu => CpuEvaluator::kernels().into_iter().map(String::from).collect(),
        Device::Cuda(ordinal) => cuda::kernel_names(*ordinal),
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
    use crate::{CudaEvaluator, CudaOptions, cuda_devices, cuda_kernel_names};

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

    pub fn devices() -> Result<Vec<Result<String>>> {
        Err(absent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in ["auto", "cpu", "reference", "cuda:0", "cuda:17"] {
            assert_eq!(name.parse::<Device>().unwrap().to_string(), name);
        }
        assert_eq!("cuda".parse::<Device>().unwrap(), Device::Cuda(0));
    }

    #[test]
    fn unknown_names_are_refused() {
        for name in ["", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:+1", "cuda:x", "cuda:99999999999999999999", "cuda0"] {
            let error = name.parse::<Device>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
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
