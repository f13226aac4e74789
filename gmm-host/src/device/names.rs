//! Devices by name.
use crate::device::gpus;
use gmm_core::error::{Error, Result};
use std::{fmt, str::FromStr};

/// A device to compute on. Its text form is `auto`, `cpu`, `reference`, `cuda` (the same as `cuda:0`) or `cuda:N`; for
/// several devices at once it is `cuda:all`, or a list such as `cuda:0,2` or `cuda:0,cpu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "String", into = "String")
)]
#[non_exhaustive]
pub enum Device {
    /// The CPU at first; a GPU for jobs that are expected to take the CPU about half a second longer, once the GPU is
    /// ready and measured to be faster; by the same rule all GPUs instead of one
    /// ([`LoadOptions::one_gpu`](crate::LoadOptions::one_gpu)). A shorter job never touches a GPU and returns the same
    /// bits as [`Cpu`](Self::Cpu). In a longer job the moment of the move depends on the clock, and later results
    /// differ from the CPU's in the last digits, so they may differ between runs. A [settled](crate::Sampling::settle)
    /// evaluator chooses before its first result, also by measurement.
    #[default]
    Auto,
    /// All cores of the CPU, with its SIMD instructions.
    Cpu,
    /// float64 on one core: slow, the standard with which all other devices are compared.
    Reference,
    /// The CUDA device of this number.
    Cuda(usize),
    /// Several devices that share the samples. They evaluate at the same time, and their results are added in a fixed
    /// order, so that the same division gives the same bits on every run.
    Several(DeviceSet),
}

/// Some CUDA devices, with or without the CPU.
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

    /// Returns the CUDA devices of these numbers below 64, and ignores other numbers.
    pub fn cuda(ordinals: impl IntoIterator<Item = usize>) -> Self {
        let bits = ordinals.into_iter().filter(|n| *n < 64).fold(0, |bits, n| bits | 1 << n);
        Self { cuda: CudaDevices::Some(bits), cpu: false }
    }

    /// Adds the CPU, which gets one sample for [`GPU_SHARE`](Self::GPU_SHARE) samples of a GPU.
    #[must_use]
    pub fn and_cpu(self) -> Self {
        Self { cpu: true, ..self }
    }

    /// The samples that a GPU gets for each of the CPU: about the ratio of their speeds in a data centre.
    pub const GPU_SHARE: usize = 64;

    /// Returns the devices one by one, the CPU first.
    pub(crate) fn devices(self) -> Result<Vec<Device>> {
        let ordinals: Vec<usize> = match self.cuda {
            CudaDevices::All => gpus::usable()?,
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

/// Parses `cuda:all`, `cuda:0,2`, `cuda:0,cpu` or `cpu,cuda:0`: at least two devices, each once.
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
    /// Returns the bytes of GPU memory that samples can take now: nearly all that is free. Several devices get equal
    /// parts, so it is their number times the least. `None` for a device that is not a GPU or cannot be used.
    pub fn free_gpu_memory(self) -> Option<u64> {
        let devices = match self {
            Self::Cuda(_) => vec![self],
            Self::Several(devices) => devices.devices().ok()?,
            Self::Auto | Self::Cpu | Self::Reference => return None,
        };
        let gpus = devices.iter().filter_map(|device| if let Self::Cuda(n) = device { Some(*n) } else { None });
        let free = gpus.map(|n| gpus::free_memory(n).ok()).collect::<Option<Vec<u64>>>()?;
        Some(free.len() as u64 * free.iter().min()?)
    }

    /// Returns whether these GPUs have memory for samples of `bytes` now; false for a device that is not a GPU or
    /// cannot be used. `missing` values may take more than on the host: each pattern begins at a multiple of four rows.
    pub fn has_gpu_memory_for(self, bytes: u64, missing: bool) -> bool {
        self.free_gpu_memory().is_some_and(|free| bytes.saturating_mul(if missing { PADDED } else { 1 }) <= free)
    }
}

/// The most GPU memory of samples with missing values, over their bytes: each row a pattern, and a column of weights.
const PADDED: u64 = 5;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in "auto cpu reference cuda:0 cuda:17 cuda:all cuda:0,2 cuda:1,cpu cuda:all,cpu".split(' ') {
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
    fn unknown_names_are_refused() {
        let names = "gpu CPU cuda: cuda:-1 cuda:+1 cuda:x cuda:99999999999999999999 cuda0 cuda:0,0 cuda:all,1 cuda:64,65 \
                     cpu,cpu cpu, 0,1 cuda:0, cuda:0,gpu cpu,1 auto,cpu";
        for name in names.split(' ').chain([""]) {
            let text = name.parse::<Device>().unwrap_err().to_string();
            assert!(text.contains(&format!("`{name}`")), "{text}");
            for part in "auto cpu reference cuda:N cuda:all cuda:0,2 cuda:0,cpu".split(' ') {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
    }
}
