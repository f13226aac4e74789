//! The CUDA backend on a real device.
mod gpu_harness;

use cust::module::Module;
use std::process::ExitCode;

/// (entry, PTX) of every kernel as committed.
const KERNELS: &[(&str, &str)] = include!("../../gmm-kernels/ptx/index.rs");

fn main() -> ExitCode {
    gpu_harness::main_with(vec![
        ("a_device_is_listed", a_device_is_listed),
        ("the_driver_takes_every_kernel", the_driver_takes_every_kernel),
    ])
}

fn a_device_is_listed() {
    assert!(!gmm_host::cuda_devices().unwrap().is_empty());
}

/// The driver compiles the committed PTX, and finds each entry under its name.
fn the_driver_takes_every_kernel() {
    let _context = cust::quick_init().unwrap();
    assert!(!KERNELS.is_empty());
    for (entry, ptx) in KERNELS {
        let module = Module::from_ptx(ptx, &[]).unwrap_or_else(|error| panic!("{entry}: {error}"));
        module.get_function(entry).unwrap_or_else(|error| panic!("{entry}: {error}"));
    }
}
