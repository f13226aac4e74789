//! The kernels as PTX, from `gmm-kernels`, and with a feature as machine code.
pub(crate) use gmm_kernels::ptx::entry as ptx_for;

/// Returns a kernel's machine code for this compute capability and limit of registers, made from the PTX in use.
#[cfg(feature = "machine-code")]
pub fn machine_code(gpu: (u32, u32), name: &str, registers: Option<u32>) -> Option<Vec<u8>> {
    gmm_machine_code::code(gpu, name, registers, gmm_kernels::ptx::checksum(name)?)
}

#[cfg(not(feature = "machine-code"))]
pub fn machine_code(_gpu: (u32, u32), _name: &str, _registers: Option<u32>) -> Option<Vec<u8>> {
    None
}
