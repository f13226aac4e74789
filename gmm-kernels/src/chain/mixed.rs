//! `chain_states_f32`, `_f64`: the exponents of states that emit from mixtures, and p(component | state, row) in the
//! place of the components' exponents. `chain_components_f32`, `_f64`: multiplies these by the states' posteriors.
//!
//! * Launch: one-dimensional grid with a thread for each row.
//! * Necessary work: read and write a number for each row and component, and one for each row and state; 2 exponentials
//!   for each row and component of `chain_states`.

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MixedArgs<T> {
    /// qₖ of the components (K·M, stride), M neighbours to each state.
    pub q: *mut T,
    /// Elements from one component, or state, to the next.
    pub stride: u64,
    /// Number of rows.
    pub rows: u32,
    /// K.
    pub n_states: u32,
    /// M.
    pub n_mix: u32,
    /// cₖ of the components (K·M,): density 2^(qₖ + cₖ), times a number of the row that cancels.
    pub offsets: *const f64,
    /// The exponents of the states, or their posteriors (K, stride).
    pub states: *mut T,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
