//! The process's driver: one for all devices, found at first use.
use gmm_core::error::{Error, Result};
use gmm_driver::Driver;
use std::sync::OnceLock;

/// The driver from its first use to the end of the process, or the error of loading it.
static DRIVER: OnceLock<std::result::Result<Driver, gmm_driver::Error>> = OnceLock::new();

/// Returns the driver. [`Error::NoCudaDevice`], with the loader's explanation, if its library cannot be loaded.
pub fn driver() -> Result<Driver> {
    Ok(DRIVER.get_or_init(load).clone()?)
}

#[cfg(not(test))]
fn load() -> std::result::Result<Driver, gmm_driver::Error> {
    Driver::load()
}

/// The unit tests run on the emulator.
#[cfg(test)]
fn load() -> std::result::Result<Driver, gmm_driver::Error> {
    // SAFETY: the emulator's functions have the driver's signatures, and check their memory.
    Ok(unsafe { Driver::from_functions(gmm_kernels::simt::emulator::driver::symbol) })
}

/// Replaces the machine's driver in this process, for tests without a GPU. Must precede every other use of a GPU.
///
/// # Errors
/// [`Error::Cuda`] if a driver has been looked for before.
pub fn use_driver(driver: Driver) -> Result<()> {
    DRIVER.set(Ok(driver)).map_err(|_| Error::Cuda {
        op: "use_driver",
        message: "a driver is in use already; call this before any use of a GPU".into(),
    })
}
