//! The driver and its devices.
use crate::error::{Error, Result};
use crate::functions::{DeviceHandle, Find, Functions};
use libloading::Library;
use std::error::Error as _;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;

const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

/// The functions of a CUDA driver, which stay in memory until the process ends.
#[derive(Clone, Copy)]
pub struct Driver(&'static Functions);

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Driver")
    }
}

impl Driver {
    /// Loads the installed driver. Call this once: each call keeps a table of functions.
    ///
    /// # Errors
    /// [`Error::Absent`] if the library cannot be loaded.
    pub fn load() -> Result<Self> {
        // SAFETY: loading runs the library's initialisers; under this name it is NVIDIA's driver, whose initialisers
        // need nothing of the process.
        let library = unsafe { Library::new(LIBRARY) }.map_err(|error| {
            // The error's own text is only "dlopen failed"; its source is the loader's explanation.
            let reason = error.source().map_or_else(|| error.to_string(), |source| source.to_string());
            Error::Absent { library: LIBRARY, reason }
        })?;
        // The driver has its own threads, so it is never unloaded.
        let library: &'static Library = Box::leak(Box::new(library));
        // SAFETY: nothing is read or called through the pointer here.
        let find = |name: &CStr| unsafe { library.get::<*const c_void>(name) }.ok().map(|found| *found);
        // SAFETY: these are the driver's functions.
        Ok(unsafe { Self::of_functions(find) })
    }

    /// Makes a driver of the functions that `find` returns by name. Tests without a GPU use an emulated device.
    ///
    /// # Safety
    /// Each function that `find` returns must have the signature of the CUDA driver's function of that name, and its
    /// documented effect on host memory.
    #[must_use]
    pub unsafe fn from_functions(find: Find) -> Self {
        // SAFETY: the caller guarantees it; functions are never unloaded.
        unsafe { Self::of_functions(find) }
    }

    /// # Safety
    /// As [`Functions::new`].
    unsafe fn of_functions(find: impl Fn(&CStr) -> Option<*const c_void>) -> Self {
        // SAFETY: the caller guarantees it.
        Self(Box::leak(Box::new(unsafe { Functions::new(find) })))
    }

    pub(crate) fn functions(self) -> &'static Functions {
        self.0
    }

    /// Returns the newest CUDA version that the driver knows: (12, 8) for 12.8.
    pub fn version(self) -> Result<(u32, u32)> {
        let mut version = 0;
        // SAFETY: a place for the number.
        self.0.check("cuDriverGetVersion", unsafe { (self.0.cuDriverGetVersion)(&mut version) })?;
        Ok((version as u32 / 1000, version as u32 % 1000 / 10))
    }

    /// Starts the driver and returns the number of devices. Fails without a device.
    pub fn device_count(self) -> Result<u32> {
        // SAFETY: the flags must be zero.
        self.0.check("cuInit", unsafe { (self.0.cuInit)(0) })?;
        let mut count = 0;
        // SAFETY: a place for the number.
        self.0.check("cuDeviceGetCount", unsafe { (self.0.cuDeviceGetCount)(&mut count) })?;
        Ok(count.max(0) as u32)
    }

    /// Starts the driver and returns the device of this number, counted from 0.
    pub fn device(self, ordinal: u32) -> Result<Device> {
        // SAFETY: the flags must be zero.
        self.0.check("cuInit", unsafe { (self.0.cuInit)(0) })?;
        let mut handle = 0;
        // SAFETY: a place for the handle.
        self.0.check("cuDeviceGet", unsafe { (self.0.cuDeviceGet)(&mut handle, ordinal as c_int) })?;
        Ok(Device { driver: self, handle })
    }
}

/// A device of a driver.
#[derive(Debug, Clone, Copy)]
pub struct Device {
    driver: Driver,
    handle: DeviceHandle,
}

/// A number that describes a device (`CUdevice_attribute`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Attribute {
    /// The number of streaming multiprocessors.
    MultiprocessorCount = 16,
    /// The bytes of the L2 cache.
    L2CacheSize = 38,
    /// The compute capability's first number.
    ComputeCapabilityMajor = 75,
    /// The compute capability's second number.
    ComputeCapabilityMinor = 76,
    /// The bytes of shared memory of a multiprocessor.
    MaxSharedMemoryPerMultiprocessor = 81,
    /// The bytes of shared memory that a block can request.
    MaxSharedMemoryPerBlockOptin = 97,
}

impl Device {
    pub(crate) fn driver(self) -> Driver {
        self.driver
    }

    pub(crate) fn handle(self) -> DeviceHandle {
        self.handle
    }

    /// Returns the name, for example `NVIDIA H200`.
    pub fn name(self) -> Result<String> {
        // The last byte stays zero, whatever the driver writes.
        let mut name = [0u8; 257];
        let (place, len) = (name.as_mut_ptr().cast::<c_char>(), name.len() as c_int - 1);
        // SAFETY: a place for so many bytes, and an existing device.
        let code = unsafe { (self.driver.0.cuDeviceGetName)(place, len, self.handle) };
        self.driver.0.check("cuDeviceGetName", code)?;
        let text = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    /// Returns the bytes of memory.
    pub fn total_memory(self) -> Result<usize> {
        let mut bytes = 0;
        // SAFETY: a place for the number, and an existing device.
        let code = unsafe { (self.driver.0.cuDeviceTotalMem_v2)(&mut bytes, self.handle) };
        self.driver.0.check("cuDeviceTotalMem", code)?;
        Ok(bytes)
    }

    /// Returns an attribute, which is never negative.
    pub fn attribute(self, attribute: Attribute) -> Result<u32> {
        let mut value = 0;
        // SAFETY: a place for the number, and an existing device.
        let code = unsafe { (self.driver.0.cuDeviceGetAttribute)(&mut value, attribute as c_uint, self.handle) };
        self.driver.0.check("cuDeviceGetAttribute", code)?;
        Ok(value.max(0) as u32)
    }
}
