//! Devices by name, and the way of a data set into one.
use crate::backends::auto::AutoEvaluator;
use crate::{CpuEvaluator, Error, Evaluator, ReferenceEvaluator, Result, Samples};
use std::{fmt, str::FromStr};

/// Where to compute. Its text form is `auto`, `cpu`, `reference`, `cuda` (the same as `cuda:0`) or `cuda:N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Device {
    /// The CPU, and for jobs of which the CPU is expected to need about half a second longer yet, a GPU as soon as that is
    /// ready and measured to be faster. A shorter job never touches a GPU and gives the bits that [`Cpu`](Self::Cpu)
    /// gives. In a longer one the moment of the move depends on the clock: what is evaluated after it differs from the
    /// CPU's in the last digits, and so the results may from run to run. `Cpu` gives the same bits every time.
    /// An evaluator that is [settled](crate::Evaluator::settle) chooses, by measurement too, before its first result.
    #[default]
    Auto,
    /// All cores of the CPU, with its SIMD instructions.
    Cpu,
    /// Plain float64 on one core: slow, and what all others are compared with.
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

/// How to load a data set.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// The kernel (code variant) to use, one of [`kernel_names`]; by default the device chooses by measured time.
    pub kernel: Option<String>,
    /// Compute in float64 whatever the samples are, from a float64 copy of them. Without it float32 samples are evaluated
    /// in float32 as far as its digits suffice for each sample ([`Evaluator::precision`]).
    pub float64: bool,
}

/// Makes `samples` resident in `device`. The evaluator keeps `samples` as well: borrowed ones must outlive it.
///
/// # Errors
/// [`Error::NoCudaDevice`] where a CUDA device is asked for and cannot be used, [`Error::Kernel`] for a kernel that the
/// device does not have, and what the backend itself reports.
pub fn load<'a>(device: Device, samples: Samples<'a>, options: &LoadOptions) -> Result<Box<dyn Evaluator + 'a>> {
    let samples = if options.float64 { samples.into_float64() } else { samples };
    match (device, &options.kernel) {
        (Device::Auto, None) => Ok(Box::new(AutoEvaluator::new(samples, cuda::open)?)),
        // A kernel says which device is meant.
        (Device::Auto, Some(name)) => {
            let all = [Device::Cpu, Device::Cuda(0), Device::Reference];
            // Behind a CUDA kernel's name may stand its shape.
            let known = |kernel: &String| name.split([':', '/']).next() == Some(kernel);
            match all.into_iter().find(|device| kernel_names(device).iter().any(known)) {
                Some(device) => load(device, samples, options),
                None => Err(unknown_kernel(device, name)),
            }
        }
        (Device::Cpu, None) => Ok(Box::new(CpuEvaluator::new(samples)?)),
        (Device::Cpu, Some(name)) => Ok(Box::new(CpuEvaluator::with_kernel(samples, name)?)),
        (Device::Reference, Some(name)) if !kernel_names(&device).contains(name) => Err(unknown_kernel(device, name)),
        (Device::Reference, _) => Ok(Box::new(ReferenceEvaluator::new(samples))),
        (Device::Cuda(ordinal), _) => cuda::load(ordinal, samples, options),
    }
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
        let options = CudaOptions { kernel: options.kernel.clone(), ..Default::default() };
        Ok(Box::new(CudaEvaluator::new(samples, ordinal, &options)?))
    }

    /// The first device, for `auto`.
    pub fn open(samples: Samples<'_>) -> Result<Box<dyn Evaluator + '_>> {
        load(0, samples, &LoadOptions::default())
    }

    pub fn kernel_names(ordinal: usize) -> Vec<String> {
        let usable = cuda_devices().is_ok_and(|gpus| gpus.get(ordinal).is_some_and(|gpu| gpu.usable().is_ok()));
        if usable { cuda_kernel_names() } else { Vec::new() }
    }

    pub fn devices() -> Result<Vec<Result<String>>> {
        Ok(cuda_devices()?.into_iter().map(|gpu| gpu.usable().map(|()| gpu.to_string())).collect())
    }
}

/// The same without a CUDA backend.
#[cfg(not(feature = "cuda"))]
mod cuda {
    use super::{Error, Evaluator, LoadOptions, Result, Samples};

    fn absent() -> Error {
        Error::NoCudaDevice { reason: "this build has no CUDA backend".into() }
    }

    pub fn load<'a>(_: usize, _: Samples<'a>, _: &LoadOptions) -> Result<Box<dyn Evaluator + 'a>> {
        Err(absent())
    }

    pub fn open(_: Samples<'_>) -> Result<Box<dyn Evaluator + '_>> {
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
                load(
                    device,
                    Samples::from_f32(x.view()).unwrap(),
                    &LoadOptions { kernel: Some(kernel.into()), ..Default::default() },
                )
            };
            for name in kernel_names(&device) {
                assert_eq!(load(&name).unwrap().n_samples(), 2);
            }
            let Err(Error::Kernel { name, available, .. }) = load("warp9") else { panic!("{device}: kernel warp9") };
            assert_eq!((name.as_str(), available), ("warp9", kernel_names(&device).join(", ")));
        }
    }
}
