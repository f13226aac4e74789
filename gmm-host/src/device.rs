//! Devices by name, and the way of a data set into one.
use crate::{Error, Evaluator, ReferenceEvaluator, Result, Samples};
use std::{fmt, str::FromStr};

/// Where to compute. Its text form is `auto`, `cpu`, `reference`, `cuda` (the same as `cuda:0`) or `cuda:N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Device {
    /// Whichever of the devices found is fastest for the data, by measurement.
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
}

/// Makes `samples` resident in `device`.
///
/// # Errors
/// [`Error::NoCudaDevice`] where a CUDA device is asked for and cannot be used, [`Error::Kernel`] for a kernel that the
/// device does not have, and what the backend itself reports.
pub fn load(device: Device, samples: Samples<'_>, options: &LoadOptions) -> Result<Box<dyn Evaluator>> {
    let known = || check_kernel(device, options);
    match device {
        Device::Cpu => Err(Error::Unsupported {
            what: "device `cpu`".into(),
            backend: "this build",
            remedy: "use device `reference`",
        }),
        Device::Auto | Device::Reference => known().map(|()| Box::new(ReferenceEvaluator::new(samples)) as _),
        Device::Cuda(_) => Err(no_cuda()),
    }
}

/// The names of the kernels that `device` can run; none for a device that cannot be used.
pub fn kernel_names(device: &Device) -> Vec<String> {
    match device {
        Device::Auto | Device::Reference => vec!["reference".into()],
        Device::Cpu | Device::Cuda(_) => Vec::new(),
    }
}

/// Every device that was looked for, with its description, or why it cannot be used.
pub fn devices() -> Vec<(Device, Result<String>)> {
    let point = ndarray::arr2(&[[0.0f32]]);
    [Device::Cpu, Device::Cuda(0), Device::Reference]
        .into_iter()
        .map(|device| {
            let loaded = Samples::from_f32(point.view()).and_then(|s| load(device, s, &LoadOptions::default()));
            (device, loaded.map(|e| e.describe().device))
        })
        .collect()
}

fn check_kernel(device: Device, options: &LoadOptions) -> Result<()> {
    let available = kernel_names(&device);
    match &options.kernel {
        Some(name) if !available.contains(name) => Err(Error::Kernel {
            name: name.clone(),
            problem: format!("is not one of device `{device}`"),
            available: available.join(", "),
        }),
        _ => Ok(()),
    }
}

/// Why there is no CUDA evaluator.
fn no_cuda() -> Error {
    #[cfg(feature = "cuda")]
    if let Err(error) = crate::cuda_device_count() {
        return error;
    }
    Error::NoCudaDevice { reason: "this build has no CUDA backend".into() }
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
        for device in [Device::Auto, Device::Reference] {
            let load = |kernel: &str| {
                load(device, Samples::from_f32(x.view()).unwrap(), &LoadOptions { kernel: Some(kernel.into()) })
            };
            for name in kernel_names(&device) {
                assert_eq!(load(&name).unwrap().n_samples(), 2);
            }
            let Err(Error::Kernel { name, available, .. }) = load("warp9") else { panic!("{device}: kernel warp9") };
            assert_eq!((name.as_str(), available), ("warp9", kernel_names(&device).join(", ")));
        }
    }
}
