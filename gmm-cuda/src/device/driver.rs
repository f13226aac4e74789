//! The driver of this process: one for all devices, found at first use.
use gmm_core::error::{Error, Result};
use gmm_driver::Driver;
use std::sync::OnceLock;

/// The driver from its first use on, until the process ends; or why it cannot be loaded.
static DRIVER: OnceLock<std::result::Result<Driver, gmm_driver::Error>> = OnceLock::new();

/// The driver.
///
/// # Errors
/// [`Error::NoCudaDevice`] with the loader's explanation where its library cannot be loaded.
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

/// Puts another driver in the place of the machine's, for all of this process: it is for tests
/// without a GPU. Call it before anything else that uses a GPU.
///
/// # Errors
/// [`Error::Cuda`] where a driver, or its absence, has been found before.
pub fn use_driver(driver: Driver) -> Result<()> {
    DRIVER
        .set(Ok(driver))
        .map_err(|_| Error::Cuda { op: "use_driver", message: "the driver is in use already; call this first".into() })
}
