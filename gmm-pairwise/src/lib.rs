//! Comparisons of vectors: inner products with a resident matrix, and the Gaussian kernel exp(−γ‖a − b‖²) of pairs of
//! rows and of rows with a growing set of centres.
//!
//! ```
//! use gmm_pairwise::{Centres, Device, GaussianKernel, InnerProducts};
//! use ndarray::array;
//!
//! let mut matrix = InnerProducts::load(Device::Cpu, array![[1.0f32, 0.0, 2.0], [0.0, 3.0, 0.0]].view())?;
//! assert_eq!(matrix.products(array![[1.0, 1.0, 1.0]].view())?, array![[3.0, 3.0]]);
//!
//! let kernel = GaussianKernel::new(0.5)?;
//! let mut centres = Centres::load(Device::Cpu, array![[0.0f64, 0.0]].view())?;
//! centres.push(array![[1.0, 0.0]].view())?;
//! let values = centres.gaussian(&kernel, array![[1.0, 0.0], [0.0, 0.0]].view())?;
//! assert!((values[[0, 0]] - (-0.5f64).exp()).abs() < 1e-15 && values[[0, 1]] == 1.0);
//! # Ok::<(), gmm_pairwise::Error>(())
//! ```
//!
//! Each type takes a [`Device`] when loaded. `Auto` computes on the CPU, and moves sizes that a GPU computes faster by
//! measurement to it, once the CPU has computed for longer than a GPU takes to start. The GPU computes in float32 only;
//! `Auto` keeps float64 on the CPU.
//!
//! On a CUDA device, `load` can also fail with [`Error::NoCudaDevice`] or, for float64, [`Error::Unsupported`], and
//! every method with [`Error::Cuda`].
mod check;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod gaussian;
mod gpu;
mod inner_products;
mod number;
mod reference;
mod side;

pub use gmm_host::{Device, Error, Interrupt, Result};

pub use gaussian::{Centres, GaussianKernel, RowPairs};
pub use inner_products::InnerProducts;
pub use number::Number;

/// Tests the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
