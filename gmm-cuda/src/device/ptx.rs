//! The kernels as PTX, from `gmm-kernels`, and with a feature as machine code.
pub(crate) use gmm_kernels::ptx::entry as ptx_for;

/// The machine code of a kernel for a GPU of this compute capability, made with this limit of
/// registers from the PTX that is in use; `None` where there is none.
#[cfg(all(feature = "machine-code", not(test)))]
pub fn machine_code(gpu: (u32, u32), name: &str, registers: Option<u32>) -> Option<Vec<u8>> {
    gmm_machine_code::code(gpu, name, registers, gmm_kernels::ptx::checksum(name)?)
}

/// There is none without the feature.
#[cfg(not(any(feature = "machine-code", test)))]
pub fn machine_code(_gpu: (u32, u32), _name: &str, _registers: Option<u32>) -> Option<Vec<u8>> {
    None
}

/// Machine code of every kernel without a limit of registers, for the emulated driver, which reads
/// its first byte alone.
#[cfg(test)]
pub fn machine_code(_gpu: (u32, u32), _name: &str, registers: Option<u32>) -> Option<Vec<u8>> {
    registers.is_none().then(|| b"\x7fELF".into())
}
