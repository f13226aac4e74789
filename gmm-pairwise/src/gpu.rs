//! The interface of the CUDA backend, which computes in float32.
use crate::number::Number;
use gmm_host::{Error, Result};
use ndarray::ArrayView2;

#[cfg(feature = "cuda")]
pub use crate::cuda::{Centres, Pairs, Products, start};
#[cfg(not(feature = "cuda"))]
pub use absent::{Centres, Pairs, Products, start};

/// Returns the array, or an error for float64.
pub fn float32<T: Number>(x: ArrayView2<'_, T>) -> Result<ArrayView2<'_, f32>> {
    T::float32(x).ok_or_else(float32_only)
}

pub fn float32_only() -> Error {
    Error::Unsupported {
        what: "a comparison of float64 vectors".into(),
        backend: "the CUDA backend",
        remedy: "give float32 arrays, or use the device `cpu`",
    }
}

/// Returns the error for a GPU's time without a GPU.
pub fn no_clock() -> Error {
    Error::Unsupported {
        what: "the time of a kernel".into(),
        backend: "any device but a GPU",
        remedy: "load the data on a CUDA device",
    }
}

/// The replacement of the CUDA backend in builds without it.
#[cfg(not(feature = "cuda"))]
mod absent {
    use super::{Error, Result};
    use ndarray::ArrayView2;

    fn absent<T>() -> Result<T> {
        Err(Error::NoCudaDevice { reason: "this build has no CUDA backend".into() })
    }

    pub fn start() -> Result<()> {
        absent()
    }

    pub enum Products {}

    impl Products {
        pub fn open(_: usize, _: ArrayView2<'_, f32>) -> Result<Self> {
            absent()
        }

        pub fn products(&mut self, _: ArrayView2<'_, f32>, _: &mut [f32]) -> Result<()> {
            match *self {}
        }

        pub fn seconds(&mut self, _: ArrayView2<'_, f32>, _: u32) -> Result<f64> {
            match *self {}
        }
    }

    pub enum Pairs {}

    impl Pairs {
        pub fn open(_: usize, _: [ArrayView2<'_, f32>; 2]) -> Result<Self> {
            absent()
        }

        pub fn gaussian(&mut self, _: f64, _: &mut [f32]) -> Result<()> {
            match *self {}
        }

        pub fn seconds(&mut self, _: f64, _: u32) -> Result<f64> {
            match *self {}
        }
    }

    pub enum Centres {}

    impl Centres {
        pub fn open(_: usize, _: usize) -> Result<Self> {
            absent()
        }

        pub fn gaussian(
            &mut self,
            _: f64,
            _: ArrayView2<'_, f32>,
            _: ArrayView2<'_, f32>,
            _: &mut [f32],
        ) -> Result<()> {
            match *self {}
        }

        pub fn seconds(&mut self, _: f64, _: ArrayView2<'_, f32>, _: ArrayView2<'_, f32>, _: u32) -> Result<f64> {
            match *self {}
        }
    }
}
