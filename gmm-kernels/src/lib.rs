//! The device code of gmm, and all that host and device must agree on.
//!
//! Each folder is one kind of computation. The part of a kernel that host and device must agree on is a file, and its
//! code is `kernel.rs` in the folder of the same name. Kernels use only the interface of [`simt`], so that the same
//! source runs on a GPU (compiled by rustc's NVPTX target or by rust-cuda) and on the host, where tests execute it
//! thread by thread.
//!
//! All kernels compute in units of log₂, from parameters that the host derives from a mixture. With t = s·x + m for
//! each feature (scale s, shift m), or z = A·x + b with a lower triangle A, a component's exponent is q = seed − |t|²
//! or seed − |z|². A sample's likelihood is Σₖ wₖ·2^qₖ times a constant that the host adds in float64.
#![no_std]
// A kernel is unsafe as a whole: what a function's callers guarantee holds in all of it. Comments say what else makes an
// access valid.
#![allow(unsafe_op_in_unsafe_fn)]
#![cfg_attr(
    all(target_arch = "nvptx64", not(feature = "rust-cuda")),
    feature(abi_ptx, stdarch_nvptx, asm_experimental_arch, core_float_math)
)]
#![cfg_attr(all(target_arch = "nvptx64", feature = "rust-cuda"), feature(asm_experimental_arch))]
#![cfg_attr(target_arch = "nvptx64", allow(improper_ctypes_definitions))]

#[cfg(not(target_arch = "nvptx64"))]
extern crate std;

#[cfg(all(target_arch = "nvptx64", not(feature = "rust-cuda")))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // SAFETY: ends the kernel with an error; there is nothing to uphold.
    unsafe { core::arch::nvptx::trap() }
}

#[macro_use]
pub mod simt;
pub mod arrays;
pub mod chain;
pub mod data;
#[cfg(not(target_arch = "nvptx64"))]
pub mod entries;
pub mod estep;
pub mod fit;
pub mod general;
pub mod likelihood;
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub mod math;
pub mod metropolis;
pub mod noisy;
pub mod pairwise;
pub mod patterns;
#[cfg(feature = "ptx")]
pub mod ptx;
pub mod reduce;
