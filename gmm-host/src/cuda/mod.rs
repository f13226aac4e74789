//! The CUDA backend: found at run time, absent without harm.
mod driver;
#[cfg(test)]
mod emulator;
#[allow(dead_code)] // The evaluator that uses it follows.
mod layout;
#[allow(dead_code)]
mod ptx;

#[allow(unused_imports)]
pub(crate) use driver::{driver_available, symbol};

use crate::{Error, Result};

/// How many CUDA devices the driver lists: at least one.
///
/// # Errors
/// [`Error::NoCudaDevice`] says why there is none: no driver library (in the loader's words), a driver that does not
/// start (in its own), or a driver without a device.
pub fn cuda_device_count() -> Result<u32> {
    let absent = |reason: String| Error::NoCudaDevice { reason };
    driver_available().map_err(absent)?;
    cust::init(cust::CudaFlags::empty()).map_err(|error| absent(message(error)))?;
    match cust::device::Device::num_devices().map_err(|error| absent(message(error)))? {
        0 => Err(absent("the driver lists no device".into())),
        count => Ok(count),
    }
}

/// The driver's text for an error, without the quotation marks that `cust` puts around it.
pub(crate) fn message(error: cust::error::CudaError) -> String {
    error.to_string().trim_matches('"').to_owned()
}
