//! CUDA devices: their list, their contexts, and the kernels loaded on them.
use super::buffer::Buffer;
use super::driver::driver;
use super::kernel::{Compiled, Kernel};
use super::memory::locked;
use super::ptx::{machine_code, ptx_for};
use gmm_core::error::{Error, Result};
use gmm_driver::{Attribute, Context, Driver, Entered, LockedBuffer, Module};
use gmm_kernels::entries::Entry;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The oldest compute capability for which the PTX is made.
const OLDEST: (u32, u32) = (8, 0);

/// A CUDA device, as its driver describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GpuInfo {
    /// Its number, from 0.
    pub ordinal: usize,
    /// For example, `NVIDIA H200`.
    pub name: String,
    /// Major and minor version; at least 8.0 is needed.
    pub compute_capability: (u32, u32),
    /// Total memory in bytes.
    pub memory: usize,
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// The newest CUDA version that the driver knows.
    pub driver_version: (u32, u32),
}

impl GpuInfo {
    /// Checks that the kernels run on it.
    ///
    /// # Errors
    /// [`Error::NoCudaDevice`] with the reason that they do not.
    pub fn usable(&self) -> Result<()> {
        if self.compute_capability >= OLDEST {
            return Ok(());
        }
        let ((major, minor), (a, b)) = (self.compute_capability, OLDEST);
        let reason = format!("{} has compute capability {major}.{minor}; {a}.{b} or later is needed", self.name);
        Err(Error::NoCudaDevice { reason })
    }
}

impl fmt::Display for GpuInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.compute_capability;
        let gib = self.memory as f64 / (1u64 << 30) as f64;
        let (cuda_major, cuda_minor) = self.driver_version;
        write!(
            f,
            "{} (compute capability {major}.{minor}, {gib:.0} GiB, {} multiprocessors, CUDA {cuda_major}.{cuda_minor})",
            self.name, self.multiprocessors
        )
    }
}

/// Returns the CUDA devices that the driver lists, at least one.
///
/// # Errors
/// [`Error::NoCudaDevice`] if the driver library cannot be loaded (with the loader's explanation), if the driver does
/// not start (with the driver's error), or if it lists no device.
pub fn cuda_devices() -> Result<Vec<GpuInfo>> {
    let driver = driver()?;
    let count = driver.device_count().map_err(|error| Error::NoCudaDevice { reason: error.to_string() })?;
    if count == 0 {
        return Err(Error::NoCudaDevice { reason: "the driver lists no device".into() });
    }
    (0..count).map(|ordinal| info(driver, ordinal)).collect()
}

fn info(driver: Driver, ordinal: u32) -> Result<GpuInfo> {
    let device = driver.device(ordinal)?;
    Ok(GpuInfo {
        ordinal: ordinal as usize,
        name: device.name()?,
        compute_capability: (
            device.attribute(Attribute::ComputeCapabilityMajor)?,
            device.attribute(Attribute::ComputeCapabilityMinor)?,
        ),
        memory: device.total_memory()?,
        multiprocessors: device.attribute(Attribute::MultiprocessorCount)?,
        driver_version: driver.version()?,
    })
}

/// Registers of a multiprocessor of every supported device.
pub const REGISTERS: u32 = 65536;
/// Bytes of shared memory that the system takes in each block.
const RESERVED: usize = 1024;

/// The environment variable that makes a later device choose kernels as capability 8.0 does, to test and time them.
const AS_CAPABILITY: &str = "GMM_TEST_CAPABILITY";

/// The facts of a device for the choice of a launch's shape.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Limits {
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of the L2 cache.
    pub l2: usize,
    /// Bytes of shared memory that a block can request.
    pub shared_per_block: usize,
    /// Bytes of shared memory of a multiprocessor; each block takes some for the system beyond its request.
    pub shared_per_multiprocessor: usize,
    /// Whether warpgroups multiply on the tensor cores, which only compute capability 9.0 has.
    pub warpgroups: bool,
}

impl Limits {
    /// Returns the limits of a named compute capability (only `8.0`), with these multiprocessors, or these limits.
    fn under(self, capability: Option<&str>) -> Result<Self> {
        match capability {
            None => Ok(self),
            Some("8.0") => Ok(Self {
                shared_per_block: self.shared_per_block.min(163 << 10),
                shared_per_multiprocessor: self.shared_per_multiprocessor.min(164 << 10),
                warpgroups: false,
                ..self
            }),
            Some(other) => Err(Error::Cuda { op: AS_CAPABILITY, message: format!("`{other}` is not known; use 8.0") }),
        }
    }

    /// Returns the blocks with this many bytes of shared memory that a multiprocessor holds at once.
    pub fn blocks_by_shared(&self, shared: usize) -> u32 {
        (self.shared_per_multiprocessor / (shared + RESERVED)) as u32
    }

    /// Returns the blocks that a multiprocessor holds at once, at least one, by registers, threads and shared memory.
    pub fn resident_blocks(&self, registers: u32, block: u32, shared: usize) -> u32 {
        (REGISTERS / (registers * block)).min(self.blocks_by_shared(shared)).max(1)
    }
}

/// A device in use: its primary context and the kernels loaded so far, never freed before the process ends.
#[derive(Debug)]
pub struct Gpu {
    pub info: GpuInfo,
    pub limits: Limits,
    /// See `likelihood::exp2_bias`: measured at first use.
    pub exp2_bias: OnceLock<f64>,
    context: Context,
    /// Whether the driver has refused machine code, as a driver older than the assembler does.
    refuses_machine_code: AtomicBool,
    /// The page-locked buffers of the latest long copy, for the next one.
    pub(super) spare_buffers: Mutex<Option<[Buffer; 2]>>,
    /// A byte of page-locked memory: while some lives, the driver takes microseconds for more, not a millisecond.
    _locked: LockedBuffer<u8>,
    /// Kernels by entry and limit of registers.
    kernels: Mutex<HashMap<(String, Option<u32>), &'static Compiled>>,
}

impl Gpu {
    /// Returns the device of this number, made ready at first use.
    pub fn open(ordinal: usize) -> Result<&'static Self> {
        static OPEN: Mutex<Vec<&'static Gpu>> = Mutex::new(Vec::new());
        let mut open = lock(&OPEN);
        if let Some(gpu) = open.iter().find(|gpu| gpu.info.ordinal == ordinal) {
            return Ok(gpu);
        }
        let devices = cuda_devices()?;
        let Some(info) = devices.get(ordinal).cloned() else {
            let reason = format!("there is no device {ordinal} (counted from 0); the driver lists {}", devices.len());
            return Err(Error::NoCudaDevice { reason });
        };
        info.usable()?;
        let gpu: &'static Self = Box::leak(Box::new(Self::new(info)?));
        open.push(gpu);
        Ok(gpu)
    }

    pub(super) fn new(info: GpuInfo) -> Result<Self> {
        let device = driver()?.device(info.ordinal as u32)?;
        let limits = Limits {
            multiprocessors: info.multiprocessors,
            l2: device.attribute(Attribute::L2CacheSize)? as usize,
            shared_per_block: device.attribute(Attribute::MaxSharedMemoryPerBlockOptin)? as usize,
            shared_per_multiprocessor: device.attribute(Attribute::MaxSharedMemoryPerMultiprocessor)? as usize,
            warpgroups: info.compute_capability == (9, 0),
        };
        let context = Context::new(device)?;
        let _entered = context.enter()?;
        Ok(Self {
            info,
            limits: limits.under(std::env::var(AS_CAPABILITY).ok().as_deref())?,
            exp2_bias: OnceLock::new(),
            spare_buffers: Mutex::default(),
            _locked: locked(1)?,
            context,
            refuses_machine_code: AtomicBool::new(false),
            kernels: Mutex::default(),
        })
    }

    /// Returns the thread's stay in the device's context. Each public call begins with it.
    pub fn enter(&self) -> Result<Entered> {
        Ok(self.context.enter()?)
    }

    /// Returns the bytes of free memory.
    pub fn free_memory(&self) -> Result<usize> {
        Ok(self.context.free_memory()?)
    }

    /// Returns the kernel of an entry with this limit of registers: machine code if this device has some, else the
    /// driver compiles it at first use.
    pub fn kernel<A>(&self, entry: &Entry<A>, max_registers: Option<u32>) -> Result<Kernel<A>> {
        let mut kernels = lock(&self.kernels);
        let key = (entry.name().to_string(), max_registers);
        if let Some(compiled) = kernels.get(&key) {
            return Ok(Kernel::new(entry, compiled));
        }
        let module = match self.load_machine_code(entry.name(), max_registers) {
            Some(module) => module,
            None => self.compile(entry.name(), max_registers)?,
        };
        let compiled = Compiled::new(&module, entry.name(), self.limits.shared_per_block)?;
        // Leaked: a kernel may be stored anywhere, and there are a few dozen at most.
        let compiled: &'static Compiled = Box::leak(Box::new(compiled));
        kernels.insert(key, compiled);
        Ok(Kernel::new(entry, compiled))
    }

    /// Returns the module of a kernel's machine code; `None` if there is none here, or the driver refuses it.
    fn load_machine_code(&self, name: &str, max_registers: Option<u32>) -> Option<Module> {
        if self.refuses_machine_code.load(Ordering::Relaxed) {
            return None;
        }
        let code = machine_code(self.info.compute_capability, name, max_registers)?;
        // SAFETY: a whole image of the archive.
        let module = unsafe { Module::from_machine_code(&self.context, &code) }.ok();
        // A driver that refuses one refuses all.
        self.refuses_machine_code.store(module.is_none(), Ordering::Relaxed);
        module
    }

    fn compile(&self, name: &str, max_registers: Option<u32>) -> Result<Module> {
        let ptx = ptx_for(name).ok_or_else(|| Error::Cuda {
            op: "cuModuleGetFunction",
            message: format!("this build has no kernel `{name}`"),
        })?;
        Ok(Module::from_ptx(&self.context, ptx, max_registers)?)
    }
}

/// Locks a mutex even after a panic of its holder: these locks guard single insertions, so the data is consistent.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_refused() {
        let error = Gpu::open(4711).unwrap_err();
        assert!(matches!(error, Error::NoCudaDevice { .. }), "{error}");
    }

    /// What the driver takes of a kernel, with its limits of registers: on a device of its own, so
    /// that what it refuses does not concern other tests.
    #[test]
    fn machine_code_is_loaded_and_gives_way_to_ptx() {
        use gmm_kernels::entries;
        use gmm_kernels::simt::emulator::driver::{machine_code_taken, refuse_machine_code};

        let gpu = || Gpu::new(cuda_devices().unwrap().remove(0)).unwrap();
        let taker = gpu();
        let _entered = taker.enter().unwrap();
        refuse_machine_code(false);
        taker.kernel(&entries::reduce_sets(), None).unwrap();
        taker.kernel(&entries::batch(4), None).unwrap();
        assert_eq!(machine_code_taken(), Some(2));
        // There is none with this limit.
        taker.kernel(&entries::batch(4), Some(88)).unwrap();
        assert_eq!(machine_code_taken(), Some(2));

        let older = gpu();
        refuse_machine_code(true);
        older.kernel(&entries::reduce_sets(), None).unwrap();
        refuse_machine_code(false);
        assert!(older.refuses_machine_code.load(Ordering::Relaxed));
        older.kernel(&entries::pair(), None).unwrap();
        assert_eq!(machine_code_taken(), Some(0));
    }
}
