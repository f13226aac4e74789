//! The device code of gmm.
#![no_std]
#[cfg(not(target_arch = "nvptx64"))]
extern crate std;
