//! The memory in which the exponents of samples wait for the kernels that sum over them.
use crate::device::memory::Numbers;
use crate::device::require;
use gmm_core::error::Result;
use gmm_kernels::likelihood::tiled;

/// The place of a launch's exponents, from which the E-step forms responsibilities.
#[derive(Clone, Copy)]
pub struct Exponents<'a> {
    /// qₖ of each sample, (components, stride).
    pub exponents: Numbers<'a, f32>,
    /// Maximum and factor of each sample, (2, stride).
    pub normalisers: Numbers<'a, f32>,
    /// Samples from one component to the next.
    pub stride: usize,
}

impl Exponents<'_> {
    /// Returns the exponents as a kernel's argument, for this many components and samples.
    pub fn argument(&self, components: usize, samples: usize) -> Result<tiled::Exponents> {
        let what = "the exponents of an E-step";
        require(what, self.stride >= samples)?;
        Ok(tiled::Exponents {
            q: self.exponents.write(components * self.stride, what)?,
            normalisers: self.normalisers.write(2 * self.stride, what)?,
            stride: self.stride as u32,
        })
    }
}
